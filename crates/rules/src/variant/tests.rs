//! The built-in variants, their order, and what a variant file may say.

use std::{collections::BTreeSet, path::Path};

use super::*;

fn name_for(release: &str) -> Result<&'static str, UnknownRelease> {
    Variant::for_release(release).map(|variant| variant.name.as_str())
}

#[test]
fn each_mechanism_has_one_section_of_the_table() {
    let headings = Variant::RULES.chunk_by(|a, b| a.section == b.section).map(|rules| rules[0].section);
    let mut headings: Vec<_> = headings.collect();
    let sections = headings.len();
    headings.sort_unstable();
    headings.dedup();
    assert_eq!(headings.len(), sections, "{headings:?}");
    let begins_with = |start: &str| {
        let rules = Variant::RULES.iter().filter(|rule| rule.name.starts_with(start)).map(|rule| rule.section);
        rules.collect::<BTreeSet<_>>()
    };
    for start in ["compact_", "khugepaged_", "pcp_", "reclaim_", "sched_", "slab_"] {
        assert_eq!(begins_with(start).len(), 1, "{start}: {:?}", begins_with(start));
    }
}

#[test]
fn a_release_gets_the_newest_rules_that_are_not_newer() {
    for (release, name) in [
        ("3.9.0", "v3.9"),
        ("3.16.0-4-amd64", "v3.16"),
        ("4.1.0-rc2+", "v4.1"),
        ("4.16.18", "v4.16"),
        ("4.20", "v4.20"),
        ("5.2.0", "v5.2"),
        ("5.4.0-200-generic", "v5.4"),
        ("5.10.0-32-cloud-amd64", "v5.10"),
        ("5.15.0", "v5.14"),
        ("6.1.0-50-cloud-amd64", "v6.1"),
        ("6.11.0", "v6.10"),
        ("6.12.95+deb12-cloud-amd64", "v6.12"),
        ("6.14", "v6.12"),
        ("6.17", "v6.15"),
        ("6.18", "v6.18"),
        ("7.2-rc1", "v6.18"),
    ] {
        assert_eq!(name_for(release), Ok(name), "{release}");
    }
    assert_eq!(Variant::for_version(6, 6).map(|variant| variant.name.as_str()), Ok("v6.6"));
}

/// Each from 3.9 on has rules, under its own name.
#[test]
fn a_release_without_a_file_has_the_newest_older_rules() {
    for (name, expected, rules) in [
        ("v5.15", "v5.15", "v5.14"),
        ("5.15", "v5.15", "v5.14"),
        ("v5.15.91", "v5.15", "v5.14"),
        ("v4.9", "v4.9", "v4.8"),
        ("v3.10", "v3.10", "v3.9"),
        ("v7.2", "v7.2", "v6.18"),
    ] {
        let variant = Variant::of_release(name).unwrap().unwrap();
        assert_eq!(
            (variant.name.as_str(), variant.difference()),
            (expected, format!("the rules of {rules}")),
            "{name}"
        );
        assert_eq!((variant.rules, &variant.patches), (*named(rules), &built_in(rules).unwrap().patches), "{name}");
        assert_eq!(variant.stands_in, Some((expected.to_owned(), rules.to_owned())), "{name}");
    }
    assert_eq!(Variant::of_release("v6.1.7"), Some(Ok(built_in("v6.1").unwrap().clone())));
    assert_eq!(Variant::of_release("v3.8"), Some(Err(UnknownRelease::TooOld(3, 8))));
    for name in ["v4.1-rc3", "v5", "v5.15.1.2", "5.15-generic", "v05.15", "vv5.15", "", "host"] {
        assert_eq!(Variant::of_release(name), None, "{name}");
    }
    let stands_in = |name: &str| built_in(name).unwrap().stands_in.clone().map(|(_, rules)| rules);
    assert_eq!([stands_in("v6.18").as_deref(), stands_in("v6.15").as_deref()], [Some("v6.15"), None]);
    assert_eq!(stands_in("v4.1-rc2"), None, "a development kernel says what it is of by its name");
    // Patches of the rules go on top, and what they stand for is said all the same.
    let patched = Variant::of_release("v3.10").unwrap().unwrap().with_patches(&[3, 1]).unwrap();
    assert_eq!((patched.name.as_str(), patched.parent.as_deref()), ("v3.10+1,3", Some("v3.10")));
    assert_eq!(patched.stands_in, Some(("v3.10".to_owned(), "v3.9".to_owned())));
}

/// A mechanism that is not modelled of a release is not of later ones either.
#[test]
fn what_is_not_modelled_of_a_release_is_not_of_later_ones() {
    let lacks = |variant: &Named| variant.not_modelled.iter().map(|(since, _)| *since).collect::<Vec<_>>();
    let of = |name| lacks(built_in(name).unwrap());
    assert_eq!([of("v6.7"), of("v6.8"), of("v6.12")], [vec![], vec![(6, 8)], vec![(6, 8), (6, 10)]]);
    assert_eq!(of("v6.18"), [(6, 8), (6, 10), (6, 15)]);
    assert_eq!(lacks(&Variant::of_release("v6.9").unwrap().unwrap()), [(6, 8)]);
}

#[test]
fn other_releases_are_refused() {
    assert_eq!(name_for("3.8.13"), Err(UnknownRelease::TooOld(3, 8)));
    for text in ["", "6", "6.", "linux", "v6.1", "-6.1", "6.x"] {
        assert_eq!(name_for(text), Err(UnknownRelease::Form(text.to_owned())));
    }
    let too_old = UnknownRelease::TooOld(3, 8).to_string();
    assert_eq!(too_old, "kernel 3.8 is older than v3.9, the oldest whose rules we know");
}

#[test]
fn variants_are_sorted_and_named_after_their_release() {
    let releases: Vec<_> = all().iter().filter(|variant| variant.is_release).collect();
    assert!(releases.is_sorted_by(|a, b| a.since < b.since) && all().is_sorted_by(|a, b| a.since <= b.since));
    for variant in releases {
        assert_eq!(variant.name, format!("v{}.{}", variant.since.0, variant.since.1));
    }
}

#[test]
fn every_file_of_the_folder_is_built_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../variants");
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let files: BTreeSet<_> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(files, all().iter().map(|variant| variant.name.clone()).collect());
}

#[test]
fn a_file_says_only_what_differs() {
    let root = &all()[0];
    assert_eq!(root.parent, None);
    assert_eq!(root.difference(), "every rule");
    for variant in &all()[1..] {
        let parent = built_in(variant.parent.as_deref().unwrap()).unwrap();
        assert!(parent.since < variant.since || !variant.is_release, "{}", variant.name);
        let mut diff = Diff::default();
        assert!(variant.diff.iter().all(|(rule, value)| diff.set(rule, value)), "{}", variant.name);
        assert_eq!(diff.over(&parent.rules), variant.rules, "{}", variant.name);
    }
    let of = |name| built_in(name).unwrap().difference();
    assert_eq!(
        of("v6.7"),
        "v6.6 with pcp_high = tuned, pcp_doublings_max = 5, mmap_align = large-at-huge, numa_vma_forgets_first = true, \
         numa_vma_finishes = true, numa_vma_once = true, numa_moves_shared_huge = true"
    );
    assert_eq!(of("v6.18"), "the rules of v6.15");
}

/// The kernel that the series of 2015 was posted for is none of its own, and each patch is one rule.
#[test]
fn a_kernel_with_patches_is_its_parent_until_some_are_asked_for() {
    let base = built_in("v4.1-rc2").unwrap();
    assert_eq!((base.rules, base.since, base.is_release), (*named("v4.1"), (4, 1), false));
    assert_eq!(name_for("4.1.0-rc2"), Ok("v4.1"));
    assert_eq!(base.difference(), "the rules of v4.1");
    let with = |patches: &[u32]| base.with_patches(patches).unwrap();
    assert_eq!(with(&[]), *base);
    let both = with(&[3, 1]);
    assert_eq!(both.name, "v4.1-rc2+1,3");
    assert_eq!(both.difference(), "v4.1-rc2 with khugepaged_keeps_page = true, thp_faults_gated = true");
    assert_eq!(both.rules, Variant { khugepaged_keeps_page: true, thp_faults_gated: true, ..base.rules });
    assert_eq!(patched("v4.1-rc2", &[1, 3]), both.rules);
    assert_eq!(with(&[5, 4, 3, 2, 1]).diff.len(), 5);
    for number in 1..=5 {
        assert_eq!(with(&[number]).diff.len(), 1, "patch {number}");
    }
    let wrong = |patches: &[u32]| base.with_patches(patches).unwrap_err().to_string();
    assert_eq!(wrong(&[1, 7]), "has no patch 7; it has 1 to 5");
    assert_eq!(wrong(&[2, 1, 2]), "patch 2 is asked for twice");
    assert_eq!(built_in("v6.1").unwrap().with_patches(&[1]).unwrap_err().to_string(), "has no patches");
    assert_eq!(both.with_patches(&[2]).unwrap_err().to_string(), "has no patches");
}

/// The upper patch decides: as published nothing is spared, as mended pageblocks are.
#[test]
fn the_2018_series_loses_a_flag_that_a_later_patch_restores() {
    let with = |patches: &[u32]| patched("v4.20-rc3", patches);
    let spares = |rules: Variant| rules.nofragment && !rules.nofragment_flag_lost;
    let tables: [&[u32]; 4] = [&[], &[1], &[1, 2, 3, 4], &[1, 2, 3, 4, 6]];
    assert_eq!(tables.map(|patches| spares(with(patches))), [false, true, false, true]);
    assert_eq!(tables.map(|patches| with(patches).watermark_boost != WatermarkBoost::None), [false, false, true, true]);
    assert_eq!(with(&[2]), with(&[]), "an accessor changes no rule");
    assert_eq!(with(&[5]), Variant { fragment_stall: true, ..with(&[]) }, "the patch that was dropped");
    let base = built_in("v4.20-rc3").unwrap();
    assert_eq!((base.since, base.is_release, name_for("4.20-rc3")), ((4, 20), false, Ok("v4.20")));
}

#[test]
fn patches_stand_behind_a_plus() {
    let split = |name| split_patches(name).map_err(|error| error.to_string());
    assert_eq!(split("v4.1-rc2"), Ok(("v4.1-rc2", vec![])));
    assert_eq!(split("v4.1-rc2+3,1"), Ok(("v4.1-rc2", vec![3, 1])));
    assert_eq!(split("a+b/x.toml+12"), Ok(("a+b/x.toml", vec![12])));
    assert_eq!(split("a+b/x+y.toml"), Ok(("a+b/x+y.toml", vec![])));
    let bad = |name| split(name).unwrap_err();
    assert_eq!(bad("v4+"), "variant \"v4+\": expected numbers of patches such as v4+1,2 or v4+1-3, found \"\"");
    assert_eq!(bad("v4+1,"), "variant \"v4+1,\": expected numbers of patches such as v4+1,2 or v4+1-3, found \"\"");
    assert_eq!(bad("v4+1,x"), "variant \"v4+1,x\": expected numbers of patches such as v4+1,2 or v4+1-3, found \"x\"");
    for name in ["v4++1", "v4+1+2", "v4+1 ,2", "v4+-1", "v4+99999999999"] {
        assert!(split_patches(name).is_err(), "{name}");
    }
    assert_eq!(split("v4.1-rc2+1-3,5"), Ok(("v4.1-rc2", vec![1, 2, 3, 5])));
    for range in ["5-1", "1-", "-5", "1-1", "1-2-3", "1--3", "+1-3", "1-4294967295"] {
        let name = format!("v4+2,{range}");
        let said = split_patches(&name).unwrap_err().to_string();
        assert!(said.ends_with(&format!("such as v4+1,2 or v4+1-3, found {range:?}")), "{said}");
    }
}

/// Fixed points of the history, read from the kernels' sources and recordings.
#[test]
fn resolved_rules_are_those_of_the_whole_line_of_parents() {
    let (old, new) = (named("v4.1"), named("v6.18"));
    assert_eq!(old.fallback, FallbackRules::KernelSteals);
    assert_eq!((old.last_resort, old.pcp_batch_limit), (LastResort::Reserve, Bytes::kib(512)));
    assert_eq!((new.last_resort, new.pcp_batch_limit), (LastResort::Nothing, Bytes::mib(1)));
    assert_eq!((new.pcp_high, new.mmap_align), (PcpHighRule::Tuned, MmapAlign::MultiplesAtHuge));
    assert_eq!((named("v6.7").mmap_align, named("v6.6").mmap_align), (MmapAlign::LargeAtHuge, MmapAlign::Base));
    assert_eq!((named("v5.0").min_free_kbytes_max, new.min_free_kbytes_max), (65536, 262_144));
}

/// The rules that changed between two consecutive variants, and that once stood in a wrong release.
#[test]
fn rules_change_with_their_release() {
    let batch = |name| named(name).lru_batch;
    assert_eq!([batch("v4.1"), batch("v4.15"), batch("v4.16"), batch("v6.7")], [14, 14, 15, 15]);
    let mark = |name| named(name).compact_mark;
    assert_eq!(
        [mark("v4.1"), mark("v4.8"), mark("v4.12"), mark("v6.1")].map(|mark| mark == CompactMark::Low),
        [true, true, false, false]
    );
    let counts = |name| (named(name).compact_counts_frames, named(name).compact_counts_passed);
    assert_eq!([counts("v5.18"), counts("v6.1"), counts("v6.4")], [(false, false), (true, false), (true, true)]);
    let gives_up = |name| named(name).node_only_gives_up;
    assert_eq!((gives_up("v4.4"), gives_up("v4.6")), (true, false));
    let by_scanned = |name| named(name).slab_by_scanned;
    assert_eq!((by_scanned("v4.15"), by_scanned("v4.16")), (true, false));
}

#[test]
fn every_value_is_read_as_it_is_written() {
    for rule in Variant::RULES {
        let Takes::Words(words) = rule.takes else { continue };
        for word in words {
            let mut diff = Diff::default();
            assert!(diff.set(rule.name, word), "{} {word}", rule.name);
            let changed = diff.over(named("v6.1"));
            let value = changed.values().into_iter().find(|(name, _)| *name == rule.name).unwrap().1;
            assert_eq!(value, *word);
        }
    }
    let names: BTreeSet<_> = Variant::RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(names.len(), Variant::RULES.len());
    for (rule, value) in
        [("nofragment", "yes"), ("min_free_kbytes_max", "-1"), ("pcp_high", "Tuned"), ("pcp-high", "tuned")]
    {
        assert!(!Diff::default().set(rule, value), "{rule} = {value}");
    }
}

/// Each number and each size has a range: both of its ends are taken, what is beyond is not, and built-in variants lie in it.
#[test]
fn numbers_and_sizes_have_ranges() {
    let mut ranges = 0;
    for rule in Variant::RULES {
        let (least, most, below, above) = match rule.takes {
            Takes::Switch | Takes::Words(_) => continue,
            Takes::Number(least, most) => {
                let text = |number: Option<u64>| number.map(|number| number.to_string());
                (least.to_string(), most.to_string(), text(least.checked_sub(1)), text(most.checked_add(1)))
            }
            Takes::Size(least, most) => {
                let text = |size: Bytes| Some(size.to_string());
                (least.to_string(), most.to_string(), text(Bytes(least.0 - 1)), text(most + Bytes(1)))
            }
        };
        let takes = |value: &String| Diff::default().set(rule.name, value);
        assert!(takes(&least) && takes(&most), "{}: {least} to {most}", rule.name);
        assert!(![below, above].iter().flatten().any(takes), "{}: only {least} to {most}", rule.name);
        assert!(!takes(&u64::MAX.to_string()), "{}", rule.name);
        for variant in all() {
            let value = variant.rules.values().into_iter().find(|(name, _)| *name == rule.name).unwrap().1;
            assert!(takes(&value), "{}: {} = {value}", variant.name, rule.name);
        }
        ranges += 1;
    }
    assert_eq!(ranges, 9);
}

#[test]
fn a_bad_file_is_refused() {
    let bad = |text: &str| built_in::read("x", text, all()).unwrap_err();
    assert_eq!(bad("about = ''\nsince = '6'"), "since: expected a release such as \"6.1\", found \"6\"");
    assert_eq!(bad("about = ''\nsince = '6.1'\nparent = 'x'"), "parent: x is none of the older variants");
    assert_eq!(bad("about = ''\nparent = 'v4.1-rc2+9'"), "parent: has no patch 9; it has 1 to 5");
    let with = |patch: &str| bad(&format!("about = ''\nparent = 'v6.1'\n[patch.{patch}"));
    assert_eq!(with("x]\nabout = ''\nrules = {}"), "patch.x: expected a number from 1 on, as in [patch.1]");
    assert_eq!(with("1]\nabout = ''"), "patch.1.rules: missing; a patch changes rules");
    assert_eq!(with("1]\nabout = ''\nrules = { x = 1 }"), "patch.1.rules.x: unknown rule \"x\"");
    let missing =
        "parent: missing; a variant without a parent gives every rule, and this one lacks mark_step, promo_mark";
    assert!(bad("about = ''\nsince = '6.1'").starts_with(missing));
    assert_eq!(bad("about = ''\nsince = '6.1'\ncolour = 1"), "colour: unknown key \"colour\"");
    let rule = |rule: &str| bad(&format!("about = ''\nsince = '6.1'\nparent = 'v6.1'\n[rules]\n{rule}"));
    assert_eq!(rule("nofragment = 'no'"), "rules.nofragment: expected true or false, found \"no\"");
    assert_eq!(rule("pcp_high = 'Tuned'"), "rules.pcp_high: unknown value \"Tuned\"");
    assert_eq!(
        rule("pcp_high = 1"),
        "rules.pcp_high: expected one of \"six-batches\", \"low-mark-per-cpu\", \"tuned\", found 1"
    );
    assert_eq!(rule("migrate_batch = -1"), "rules.migrate_batch: expected a whole number from 1 to 512, found -1");
    assert_eq!(rule("lru_batch = 32"), "rules.lru_batch: expected a whole number from 1 to 31, found 32");
}
