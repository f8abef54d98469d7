//! Swarm cases: held to follow from their seed alone, and to find no broken invariant.

use super::*;

#[test]
fn a_case_is_drawn_from_its_seed_alone_and_is_text() {
    let cases: Vec<_> = (0..40).map(|number| case("1", number)).collect();
    assert_eq!(cases, (0..40).map(|number| case("1", number)).collect::<Vec<_>>());
    assert!(cases.iter().any(|case| *case != cases[0]));
    for case in cases {
        let text = serde_json::to_string(&case).unwrap();
        assert_eq!(serde_json::from_str::<Case>(&text).unwrap(), case);
        for smaller in case.smaller() {
            assert_ne!(smaller, case);
        }
    }
}

#[test]
fn most_cases_can_run_and_those_that_cannot_say_why() {
    let directory = tempfile::tempdir().unwrap();
    let cases = (0..60).map(|number| case("1", number));
    let refused: Vec<_> = cases.filter(|case| case.runnable(directory.path()).is_none()).collect();
    assert!(refused.len() < 20, "{refused:#?}");
    for case in refused {
        assert!(!case.plan(directory.path()).unwrap_err().is_empty());
    }
}

/// The part of `cargo xtask swarm` that each run of the suite has. A mistake panics; the case's text runs it again.
#[test]
fn cases_of_a_fixed_seed_find_no_mistake() {
    const CASES: u64 = 60;
    let directory = tempfile::tempdir().unwrap();
    let (mut events, mut cells, mut faults) = (BTreeMap::<String, u64>::new(), 0, 0);
    for number in 0..CASES {
        let Some(case) = case("suite", number).runnable(directory.path()) else { continue };
        let text = serde_json::to_string(&case).unwrap();
        let ran =
            std::panic::catch_unwind(|| case.run(directory.path())).unwrap_or_else(|_| panic!("case {number}: {text}"));
        let ran = ran.unwrap_or_else(|reason| panic!("case {number}: {reason}: {text}"));
        cells += ran.cells;
        faults += ran.faults;
        for (event, count) in ran.events {
            *events.entry(event).or_default() += count;
        }
    }
    assert!(cells > CASES / 2 && faults > 10, "{cells} cells have a result, {faults} faults were made");
    // The mechanisms that are for nothing else than trouble were in it.
    for event in ["pgscan_kswapd", "pgsteal_direct", "pswpout", "thp_fault_fallback", "pgmigrate_success", "nr_written"]
    {
        assert!(events.get(event).is_some_and(|count| *count > 0), "{event}: {events:?}");
    }
}
