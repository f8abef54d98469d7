//! The built-in variants, their order, and what a variant file may say.

use std::{collections::BTreeSet, path::Path};

use super::*;

fn name_for(release: &str) -> Result<&'static str, UnknownRelease> {
    Variant::for_release(release).map(|variant| variant.name.as_str())
}

#[test]
fn a_release_gets_the_newest_rules_that_are_not_newer() {
    for (release, name) in [
        ("3.9.0", "v3.9"),
        ("3.16.0-4-amd64", "v3.16"),
        ("4.1.0-rc2+", "v4.1"),
        ("4.20", "v4.20"),
        ("5.2.0", "v5.1"),
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
    assert!(all().is_sorted_by(|a, b| a.since < b.since));
    for variant in all() {
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
        assert!(parent.since < variant.since, "{}", variant.name);
        let mut diff = Diff::default();
        assert!(variant.diff.iter().all(|(rule, value)| diff.set(rule, value)), "{}", variant.name);
        assert_eq!(diff.over(&parent.rules), variant.rules, "{}", variant.name);
    }
    let of = |name| built_in(name).unwrap().difference();
    assert_eq!(of("v6.7"), "v6.6 with pcp_high = tuned, mmap_align = large-at-huge, pcp_doublings_max = 5");
    assert_eq!(of("v6.18"), "the rules of v6.15");
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

#[test]
fn a_bad_file_is_refused() {
    let bad = |text: &str| built_in::read("x", text, all()).unwrap_err();
    assert_eq!(bad("about = ''\nsince = '6'"), "since: \"6\" is no release");
    assert_eq!(bad("about = ''\nsince = '6.1'\nparent = 'x'"), "no such parent");
    assert!(bad("about = ''\nsince = '6.1'").starts_with("without a parent, but also without mark_step, promo_mark"));
    assert!(bad("about = ''\nsince = '6.1'\ncolour = 1").contains("unknown field `colour`"));
    let text = "about = ''\nsince = '6.1'\nparent = 'v6.1'\n[rules]\nnofragment = 'no'";
    assert_eq!(bad(text), "rules.nofragment: no such rule, or it does not take no");
}
