//! Files of variants: what they come to, and every way in which one can be wrong.

use rules::variant::file::FORMER;

use super::*;

/// Reads `x.toml` beside other files; what is not among them is built in.
fn with(others: &[(&str, &str)], text: &str) -> Result<Named, String> {
    let lookup = |name: &str| match others.iter().find(|(other, _)| *other == name) {
        Some((name, text)) => Ok(Source::from_text(format!("variants/{name}.toml"), *text)),
        None => source::lookup(Kind::Variant, name),
    };
    read(&Source::from_text("variants/x.toml", text), &[], &lookup).map_err(|error| error.to_string())
}

fn bad(text: &str) -> String {
    with(&[], text).expect_err(text)
}

#[test]
fn built_in_files_are_read_alike_with_and_without_lines() {
    for built_in in variant::all() {
        assert_eq!(load(&built_in.name).as_ref(), Ok(built_in));
        for patch in &built_in.patches {
            let name = format!("{}+{}", built_in.name, patch.number);
            assert_eq!(load(&name), Ok(built_in.with_patches(&[patch.number]).unwrap()));
        }
        assert_eq!(Recorded::of(built_in).rules(), Ok(built_in.rules));
    }
}

#[test]
fn a_variant_is_its_parent_plus_what_differs() {
    let y = ("y", "about = 'y'\nparent = 'v6.1'\n[rules]\nnofragment = false\nmin_free_kbytes_max = 1024");
    let rules = "nofragment = true\npcp_batch_limit = '2MiB'\npcp_high = 'low-mark-per-cpu'";
    let x = with(&[y], &format!("about = 'x'\nparent = 'y'\n[rules]\n{rules}")).unwrap();
    let parent = variant::named("v6.1");
    let expected = Variant { min_free_kbytes_max: 1024, pcp_batch_limit: Bytes::mib(2), ..*parent };
    assert_eq!(x.rules, expected);
    // What is said but does not differ is no difference.
    assert_eq!(x.difference(), "y with nofragment = true, pcp_batch_limit = 2MiB");
    assert_eq!((x.name.as_str(), x.since), ("x", (6, 1)));
    let alone = with(&[], "about = ''\nparent = 'v4.1'").unwrap();
    assert_eq!((alone.rules, alone.difference().as_str()), (*variant::named("v4.1"), "the rules of v4.1"));
}

#[test]
fn a_users_variant_is_never_chosen_by_release() {
    let x = with(&[], "about = ''\nparent = 'v6.1'\nsince = '6.2'\n[rules]\nnofragment = false").unwrap();
    assert_eq!(x.since, (6, 2));
    assert_eq!(Variant::for_version(6, 2).map(|variant| variant.name.as_str()), Ok("v6.1"));
}

#[test]
fn keys_and_rules_that_do_not_exist_are_named_with_the_nearest() {
    assert_eq!(
        bad("about = ''\nparnet = 'v6.1'"),
        "variants/x.toml:2: unknown key \"parnet\"; did you mean \"parent\"? \
         (valid keys: about, parent, since, from_memory, not_modelled, rules, patch)"
    );
    assert_eq!(
        bad("about = ''\nparent = 'v6.1'\nfrom_memory = ['compact_captur']"),
        "variants/x.toml:3: from_memory: unknown rule \"compact_captur\"; did you mean \"compact_capture\"?"
    );
    assert_eq!(
        bad("about = ''\nparent = 'v6.1'\n[rules]\nno_fragment = true"),
        "variants/x.toml:4: rules: unknown rule \"no_fragment\"; did you mean \"nofragment\"?"
    );
    assert_eq!(
        bad("about = ''\nparent = 'v6.1'\n\n[rules]\npcp_high = 'tunde'"),
        "variants/x.toml:5: rules.pcp_high: unknown value \"tunde\"; did you mean \"tuned\"? \
         (valid values: six-batches, low-mark-per-cpu, tuned)"
    );
}

#[test]
fn a_rule_that_became_others_names_them() {
    assert_eq!(
        bad("about = ''\nparent = 'v6.1'\n[rules]\nsched_imbalance = 1"),
        "variants/x.toml:4: rules.sched_imbalance: is no rule any more, but true or false for sched_compares_loads"
    );
    let said = bad("about = ''\nparent = 'v6.1'\n[rules]\ncompact_search = 'linear'");
    let series = variant::named("v5.1").differences(variant::named("v5.0"));
    let others = ["compact_ends", "compact_contended", "compact_capture", "compact_stall"];
    let switches = series.iter().filter(|(rule, ..)| rule.starts_with("compact_") && !others.contains(rule));
    let names: Vec<_> = switches.map(|(rule, ..)| *rule).collect();
    assert_eq!(names.len(), 10);
    assert!(names.iter().all(|name| said.contains(name)), "{said} lacks one of {names:?}");
    for (former, now) in FORMER {
        let is_rule = |name: &str| Variant::RULES.iter().any(|rule| rule.name == name && rule.takes == Takes::Switch);
        assert!(!is_rule(former) && now.iter().all(|name| is_rule(name)), "{former}");
    }
}

#[test]
fn values_of_another_kind_say_what_was_expected() {
    for (rule, message) in [
        ("nofragment = 1", "nofragment: expected true or false, found the integer 1"),
        ("nofragment = 'true'", "nofragment: expected true or false, found the string \"true\""),
        (
            "min_free_kbytes_max = '64MiB'",
            "min_free_kbytes_max: expected a whole number from 128 to 2147483647, found the string \"64MiB\"",
        ),
        ("pcp_batch_limit = 128", "pcp_batch_limit: expected a size from \"4KiB\" to \"1GiB\", found the integer 128"),
        ("lru_batch = 0", "lru_batch: expected a whole number from 1 to 31, found 0"),
        ("lru_batch = 32", "lru_batch: expected a whole number from 1 to 31, found 32"),
        ("min_free_kbytes_max = 100", "min_free_kbytes_max: expected a whole number from 128 to 2147483647, found 100"),
        ("sched_busy_factor = 0", "sched_busy_factor: expected a whole number from 1 to 4294967295, found 0"),
        (
            "sched_base_slice_ns = 9223372036854775807",
            "sched_base_slice_ns: expected a whole number from 100000 to 1000000000, found 9223372036854775807",
        ),
        ("pcp_batch_limit = '2GiB'", "pcp_batch_limit: expected a size from \"4KiB\" to \"1GiB\", found 2GiB"),
        (
            "pcp_high = true",
            "pcp_high: expected one of \"six-batches\", \"low-mark-per-cpu\", \"tuned\", found the boolean true",
        ),
    ] {
        let text = format!("about = ''\nparent = 'v6.1'\n[rules]\n{rule}");
        assert_eq!(bad(&text), format!("variants/x.toml:4: rules.{message}"));
    }
    assert_eq!(
        bad("about = ''\nparent = 'v6.1'\nsince = 'v6.1'"),
        "variants/x.toml:3: since: expected a release such as \"6.1\", found \"v6.1\""
    );
}

#[test]
fn parents_must_be_there_and_not_in_a_circle() {
    let unknown = "variants/x.toml:2: parent: unknown variant \"v4.1-rc3\"; did you mean \"v4.1-rc2\"?";
    assert_eq!(bad("about = ''\nparent = 'v4.1-rc3'"), unknown);
    let too_old = "variants/x.toml:2: parent: kernel 3.8 is older than v3.9, the oldest whose rules we know";
    assert_eq!(bad("about = ''\nparent = 'v3.8'"), too_old);
    assert_eq!(
        bad("about = ''\nparent = 'no/such.toml'"),
        "variants/x.toml:2: parent: no/such.toml cannot be read: No such file or directory (os error 2)"
    );
    let circle = |others: &[(&str, &str)], parent: &str| {
        with(others, &format!("about = ''\nparent = '{parent}'")).expect_err(parent)
    };
    let x = ("x", "about = ''\nparent = 'y'");
    assert_eq!(
        circle(&[x], "x"),
        "variants/x.toml:2: parent: variants are their own parents: variants/x.toml -> variants/x.toml"
    );
    assert_eq!(
        circle(&[x, ("y", "about = ''\nparent = 'x'")], "y"),
        "variants/y.toml:2: parent: variants are their own parents: \
         variants/x.toml -> variants/y.toml -> variants/x.toml"
    );
    // A mistake in the parent is the parent's.
    assert_eq!(
        circle(&[("y", "about = ''\nparent = 'v6.1'\n[rules]\nnofragment = 0")], "y"),
        "variants/y.toml:4: rules.nofragment: expected true or false, found the integer 0"
    );
}

#[test]
fn a_release_without_a_file_is_a_variant_and_a_parent() {
    let file = |name: &str| load(name).map_err(|error| error.to_string());
    for (name, parent) in [("v5.15", "v5.14"), ("v4.9", "v4.8"), ("v7.2", "v6.18")] {
        let variant = file(name).unwrap();
        let (rules, difference) = (variant.rules, variant.difference());
        assert_eq!((rules, difference), (*variant::named(parent), format!("the rules of {parent}")), "{name}");
        let child = with(&[], &format!("about = ''\nparent = '{name}'\n[rules]\nnofragment = true")).unwrap();
        assert_eq!(child.parent.as_deref(), Some(name));
        assert_eq!(child.rules, Variant { nofragment: true, ..rules });
        assert_eq!(child.stands_in, Some((name.to_owned(), parent.to_owned())), "it is said of a child too");
    }
    assert_eq!(file("6.1").unwrap(), file("v6.1").unwrap());
    assert_eq!(file("v6.1.7").unwrap(), file("v6.1").unwrap());
    let patched = file("v3.10+1,3").unwrap();
    assert_eq!((patched.name.as_str(), patched.rules), ("v3.10+1,3", variant::patched("v3.9", &[1, 3])));
    let child = |parent: &str| with(&[], &format!("about = 'x'\nparent = '{parent}'"));
    assert_eq!(child("v3.10+1-3").unwrap().rules, variant::patched("v3.9", &[1, 2, 3]));
    assert_eq!(child("v5.15+1").unwrap_err(), "variants/x.toml:2: parent: v5.15 has no patches");
    assert_eq!(file("v5.15+1"), Err("v5.15: has no patches".to_owned()));
    assert_eq!(file("v3.8"), Err("kernel 3.8 is older than v3.9, the oldest whose rules we know".to_owned()));
    assert_eq!(from_memory("v3.10+1"), from_memory("v3.9+1"));
    assert_eq!(from_memory("v4.2"), from_memory("v4.1"));
    // A file of the user is before that.
    let mine = ("v5.15", "about = 'mine'\nparent = 'v5.18'");
    let of = |parent: &str| with(&[mine], &format!("about = 'x'\nparent = '{parent}'")).unwrap();
    assert_eq!([of("v5.15").rules, of("5.15.3").rules], [*variant::named("v5.18"); 2]);
}

#[test]
fn patches_of_a_file_are_switches() {
    let y = "about = 'y'\nparent = 'v6.1'\n[patch.2]\nabout = 'two'\n[patch.2.rules]\nnofragment = false\n\
             [patch.10]\nabout = 'ten'\nrules = { min_free_kbytes_max = 1024, nofragment = true }";
    let of = |parent: &str| with(&[("y", y)], &format!("about = 'x'\nparent = '{parent}'"));
    let both = of("y+10,2").unwrap();
    assert_eq!(
        both.rules,
        Variant { min_free_kbytes_max: 1024, ..*variant::named("v6.1") },
        "in order of their numbers"
    );
    assert_eq!((both.parent.as_deref(), both.difference().as_str()), (Some("y+2,10"), "the rules of y+2,10"));
    assert!(!of("y+2").unwrap().rules.nofragment && of("y").unwrap().rules.nofragment);
    assert_eq!(of("y+2").unwrap().patches, [], "a child has no patches of its parent");
    assert_eq!(of("y+3").unwrap_err(), "variants/x.toml:2: parent: variants/y.toml has no patch 3; it has 2, 10");
    assert!(of("y+2,2").unwrap_err().ends_with("variants/y.toml patch 2 is asked for twice"));
    let file = |name: &str| load(name).map_err(|error| error.to_string());
    assert_eq!(file("v4.1-rc2+3,1").unwrap().name, "v4.1-rc2+1,3");
    assert_eq!(file("v4.1-rc2+7"), Err("built-in variants/v4.1-rc2.toml: has no patch 7; it has 1 to 5".to_owned()));
    assert_eq!(file("v4.1-rc2+1,1"), Err("built-in variants/v4.1-rc2.toml: patch 1 is asked for twice".to_owned()));
    assert_eq!(
        file("v4.1-rc2+"),
        Err("variant \"v4.1-rc2+\": expected numbers of patches such as v4.1-rc2+1,2 or v4.1-rc2+1-3, found \"\""
            .to_owned())
    );
    assert!(file("v4.1-rc3+1").unwrap_err().starts_with("unknown variant \"v4.1-rc3\"; did you mean \"v4.1-rc2\"?"));
}

/// One kernel has one name, and so one place in results, however its patches were asked for.
#[test]
fn a_range_of_patches_is_the_list_of_them() {
    let file = |name: &str| load(name).map_err(|error| error.to_string());
    let list = file("v4.1-rc2+1,2,3,4,5").unwrap();
    assert_eq!(list.name, "v4.1-rc2+1,2,3,4,5");
    for same in ["v4.1-rc2+1-5", "v4.1-rc2+4-5,1-3", "v4.1-rc2+1,2-4,5"] {
        let range = file(same).unwrap();
        assert_eq!((&range, Recorded::of(&range)), (&list, Recorded::of(&list)), "{same}");
        assert_eq!(from_memory(same), from_memory(&list.name), "{same}");
    }
    let child = |parent: &str| with(&[], &format!("about = 'x'\nparent = '{parent}'")).unwrap();
    assert_eq!(child("v4.1-rc2+1-5"), child("v4.1-rc2+1,2,3,4,5"));
    let no = "built-in variants/v4.1-rc2.toml: has no patch 6; it has 1 to 5";
    assert_eq!(file("v4.1-rc2+1-99"), Err(no.to_owned()));
    let twice = "built-in variants/v4.1-rc2.toml: patch 3 is asked for twice";
    assert_eq!(file("v4.1-rc2+1-5,3"), Err(twice.to_owned()));
    for (name, found) in [("v4.1-rc2+5-1", "5-1"), ("v4.1-rc2+1-", "1-")] {
        let form = "expected numbers of patches such as v4.1-rc2+1,2 or v4.1-rc2+1-3, found";
        assert_eq!(file(name), Err(format!("variant {name:?}: {form} {found:?}")));
    }
}

#[test]
fn wrong_patches_name_file_line_and_key() {
    let patch = |text: &str| bad(&format!("about = ''\nparent = 'v6.1'\n{text}"));
    let rules = "rules = { nofragment = true }";
    assert_eq!(
        patch(&format!("[patch.one]\nabout = ''\n{rules}")),
        "variants/x.toml:3: patch.one: expected a number from 1 on, as in [patch.1]"
    );
    assert!(patch(&format!("[patch.0]\nabout = ''\n{rules}")).contains("patch.0: expected a number from 1 on"));
    assert!(patch(&format!("[patch.01]\nabout = ''\n{rules}")).contains("patch.01: expected a number"));
    assert!(patch("patch = 1").starts_with("variants/x.toml:3: patch: expected a table"));
    assert!(patch("patch.1 = 1").starts_with("variants/x.toml:3: patch.1: expected a table"));
    assert_eq!(
        patch("[patch.1]\nabout = ''\nrule = {}"),
        "variants/x.toml:5: patch.1: unknown key \"rule\"; did you mean \"rules\"? (valid keys: about, rules)"
    );
    assert!(patch("[patch.1]\nrules = {}").contains("patch.1.about: missing"));
    assert_eq!(patch("[patch.1]\nabout = ''"), "variants/x.toml:3: patch.1.rules: missing; a patch changes rules");
    assert_eq!(
        patch("[patch.1]\nabout = ''\n[patch.1.rules]\nno_fragment = true"),
        "variants/x.toml:6: patch.1.rules: unknown rule \"no_fragment\"; did you mean \"nofragment\"?"
    );
    assert_eq!(
        patch("[patch.1]\nabout = ''\nrules = { nofragment = 1 }"),
        "variants/x.toml:5: patch.1.rules.nofragment: expected true or false, found the integer 1"
    );
}

#[test]
fn a_list_shows_patches_below_their_kernel() {
    let (_, lines) = list().into_iter().find(|(name, _)| name == "v4.1-rc2").unwrap();
    assert_eq!(lines.len(), 2 + 5);
    assert!(lines[2].starts_with("+1  ") && lines[2].ends_with(": khugepaged_keeps_page = true"), "{}", lines[2]);
}

#[test]
fn a_root_gives_every_rule() {
    // One is there, four are named.
    let more = rules::variant::Variant::RULES.len() - 5;
    let expected = format!(
        "variants/x.toml:1: parent: missing; a variant without a parent gives every rule, and this one lacks promo_mark, \
         movable_marks, reserve_ratio_zero, empty_zone_reserve and {more} more"
    );
    assert_eq!(bad("about = ''\nsince = '3.9'\n[rules]\nmark_step = 'scale-factor'"), expected);
    let source = source::lookup(Kind::Variant, "v3.9").unwrap();
    let whole = source.text().replace("since = \"3.9\"\n", "");
    assert_eq!(bad(&whole), "variants/x.toml:1: since: missing; expected a release such as \"6.1\"");
    let lacking = source.text().replace("nofragment = false\n", "");
    assert!(bad(&lacking).ends_with("and this one lacks nofragment"), "{}", bad(&lacking));
}

#[test]
fn a_record_that_is_not_whole_is_refused() {
    let whole = Recorded::of(&variant::all()[0]);
    let mut lacking = whole.clone();
    lacking.rules.remove("nofragment");
    assert_eq!(lacking.rules(), Err("variant v3.9 lacks nofragment".to_owned()));
    let mut wrong = whole;
    wrong.rules.insert("nofragment".to_owned(), "maybe".to_owned());
    assert_eq!(wrong.rules(), Err("variant v3.9: nofragment cannot be maybe".to_owned()));
}

#[test]
fn a_chain_of_parents_has_an_end() {
    let names: Vec<String> = (0..3000).map(|n| format!("p{n}")).collect();
    let text = |n: usize| match names.get(n + 1) {
        Some(parent) => format!("about = ''\nparent = '{parent}'"),
        None => "about = ''\nparent = 'v6.1'".to_owned(),
    };
    let texts: Vec<String> = (0..names.len()).map(text).collect();
    let others: Vec<_> = names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
    let said = with(&others, "about = ''\nparent = 'p0'").unwrap_err();
    assert!(said.ends_with("expected a chain of at most 64 parents"), "{said}");
    let few = with(&others, "about = ''\nparent = 'p2980'").unwrap();
    assert_eq!(few.rules, *variant::named("v6.1"));
}

#[test]
fn a_rule_is_an_effect_a_function_and_a_release() {
    let of = |name: &str| effect(rules::variant::Variant::RULES.iter().find(|rule| rule.name == name).expect(name));
    for rule in rules::variant::Variant::RULES {
        let line = effect(rule);
        assert!(line.chars().count() <= 120, "{}: {} characters: {line}", rule.name, line.chars().count());
        let asks = ["Does ", "Is ", "Are ", "Has ", "Do ", "Which ", "How ", "What "]
            .iter()
            .any(|word| line.starts_with(word));
        assert!(!asks && !line.contains('?'), "{}: a question: {line}", rule.name);
        let has_source = line.contains('`') || line.contains("(posted 20") || line.contains("(an idea)");
        assert!(has_source, "{}: no name of the kernel's, and neither posted nor an idea: {line}", rule.name);
    }
    assert!(of("reclaim_ages_by_pass").ends_with("; from 4.12 on, before 4.18; since 4.19"));
    assert!(of("kswapd_needs_all_zones").ends_with("; before 4.12"), "{}", of("kswapd_needs_all_zones"));
    assert!(of("thp_faults_gated").ends_with("; in no release"));
    assert!(of("min_free_kbytes_max").contains("; changed in "), "{}", of("min_free_kbytes_max"));
    assert!(of("compact_capture").ends_with("; since 5.1"), "{}", of("compact_capture"));
}
