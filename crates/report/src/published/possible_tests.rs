//! Names of claims that a result could have, and those that none can.

use std::collections::BTreeSet;

use super::{Possible, ours::Ours, tests::series};

/// The mistake in a claim about this set, metric and case, beside a result that has some rows.
fn problem(set: &str, metric: &str, case: &str) -> Option<String> {
    let claim = format!(
        "[[claim]]\nid = 't-1'\nclaim = ''\nreason = ''\n[[claim.part]]\nwhat = 'a part'\nkind = 'value'\nof = {{ \
         experiment = '{set}', metric = '{metric}', case = '{case}', kernel = 'old' }}\nholds = {{ above = 0 }}\n"
    );
    let mut ours = Ours::of_values(&[1], &[]);
    let rows = [
        ("us.Amean", "fault-huge-1"),
        ("us.Amean", "fault-huge-3"),
        ("us.Max", "fault-huge-1"),
        ("page_fault1.rate", "tasks=16"),
        ("counter", "Compaction stalls"),
    ];
    let rows = rows.into_iter().map(|(metric, case)| (metric.to_owned(), case.to_owned()));
    ours.rows.insert("e".to_owned(), rows.collect());
    ours.words.insert("base".to_owned());
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    let possible = Possible {
        sets: names(&["f"]),
        metrics: names(&["compact_stall"]),
        words: names(&["bind", "hard", "page", "fault"]),
        ..Possible::default()
    };
    series(&claim).check_claims(&ours, &possible).err().map(|error| error.to_string())
}

#[test]
fn what_was_not_measured_is_no_mistake() {
    for (set, metric, case) in [
        ("e", "us.Amean", "fault-huge-1"),
        ("e", "us.Amean", "fault-huge-64"),
        ("e", "us.Amean", "fault-base-1"),
        ("e", "us.Hmean", "fault-huge-1"),
        ("e", "us.Amean", "bind=hard;fault-1"),
        ("e", "page_fault2.rate", "tasks=1"),
        ("e", "compact_stall", "fault-huge-1"),
        ("e", "counter", "THP splits"),
        ("e", "extfrag_events", "movable,order<9"),
        ("e", "step_mb", "3"),
        ("f", "anything", "at all"),
    ] {
        assert_eq!(problem(set, metric, case), None, "{set} {metric} {case}");
    }
}

#[test]
fn what_no_result_can_have_is_named_with_the_nearest() {
    for (set, metric, case, expected) in [
        ("e", "us.Amean", "fault-hugh-1", "case \"fault-hugh-1\"; did you mean \"fault-huge-1\"?"),
        ("e", "us.Amaen", "fault-huge-1", "metric \"us.Amaen\"; did you mean \"us.Amean\"?"),
        ("e", "compact_stal", "fault-huge-1", "metric \"compact_stal\"; did you mean \"compact_stall\"?"),
        ("e", "counter", "Compaction stals", "case \"Compaction stals\"; did you mean \"Compaction stalls\"?"),
        // All of its words are known, and no table of 2015 has the row.
        ("e", "counter", "Compaction splits", "case \"Compaction splits\"; did you mean \"Compaction stalls\"?"),
        ("elsewhere", "us.Amean", "fault-huge-1", "set of tables \"elsewhere\" (nearest: e; there are e, f)"),
    ] {
        let found = problem(set, metric, case).unwrap_or_else(|| panic!("{set} {metric} {case} is possible"));
        let start = "published/t/claims.toml: t-1: a part: no result can have ";
        assert!(found.starts_with(&format!("{start}{expected}")), "{found}");
    }
}
