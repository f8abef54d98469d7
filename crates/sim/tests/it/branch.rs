//! Branches: a run is the same up to the instant at which it leaves its path, and ends at its symptom.

use memory::{
    decision::{Decision, Otherwise},
    fact::Told,
};
use rules::variant::{self, Variant};
use sim::{Branch, Change, Decided, Extra, Finish, NoResult, Options, SlowOperation, Symptom, try_simulate_from};
use units::{Picos, Time, Vpn};

use crate::{
    support::no_entries,
    why::{fill_memory, small, watched},
};

/// The run of `why.rs`, which leaves its path.
fn run(branch: Branch) -> Result<(Finish, Extra), NoResult> {
    let options = Options { branch, ..Options::default() };
    let (result, finish, extra) = try_simulate_from(&small(), options, None, no_entries, fill_memory)?;
    assert_eq!(result, Ok(()));
    Ok((finish, extra))
}

fn changed(at: Time, change: Change) -> (Finish, Extra) {
    run(Branch { changes: vec![(at, change)], ..Branch::default() }).expect("it comes to its end")
}

/// The longest fault of the run.
fn slowest() -> SlowOperation {
    let (_, extra) = run(Branch::default()).unwrap();
    let faults = extra.slow_operations.longest.into_iter().filter(|operation| operation.vpn.is_some());
    faults.max_by_key(|operation| operation.spent.total()).expect("memory is short")
}

fn symptom(of: &SlowOperation, over: Picos) -> Symptom {
    let page = of.vpn.unwrap();
    Symptom { task: of.task, first: page, last: Vpn(page.0 | 511), over, from: of.start }
}

#[test]
fn equal_rules_change_nothing_and_others_only_what_follows() {
    let (finish, extra) = run(Branch::default()).unwrap();
    assert!(extra.hashes.is_empty(), "no change was asked for");
    let at = slowest().start;
    let (same, before) = changed(at, Change::Nothing);
    assert_eq!((&same, before.hashes.len()), (&finish, 1));
    let own: Variant = small().variant;
    assert_eq!(changed(at, Change::Rules(Box::new(own))), (same.clone(), before.clone()));
    let mut others = own;
    others.reclaim_by_costs = !own.reclaim_by_costs;
    others.reclaim_ages_by_pass = !own.reclaim_ages_by_pass;
    let (other, of_other) = changed(Time(0), Change::Rules(Box::new(others)));
    assert_eq!(of_other.hashes.len(), 1);
    assert_ne!(other, finish, "what is reclaimed depends on the rules");
    let (_, of_draws) = changed(at, Change::Draws(1));
    assert_eq!(of_draws.hashes, before.hashes, "up to the instant it is the same run");
}

#[test]
fn draws_follow_from_their_seed() {
    let at = slowest().start;
    let of = |seed| changed(at, Change::Draws(seed)).0.hash;
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    assert_ne!(of(1), run(Branch::default()).unwrap().0.hash);
}

#[test]
fn changes_behind_the_end_are_not_made() {
    let (finish, extra) = changed(Time(u64::MAX - 1), Change::Draws(1));
    assert_eq!((finish, extra.hashes), (run(Branch::default()).unwrap().0, Vec::new()));
}

#[test]
fn rules_that_need_a_boot_are_refused() {
    let other = Variant { thp_defrag_values: 9 - small().variant.thp_defrag_values, ..*variant::named("v6.1") };
    let branch = Branch { changes: vec![(Time(5), Change::Rules(Box::new(other)))], ..Branch::default() };
    let Err(NoResult::NeedsBoot(problem)) = run(branch) else { panic!("it was to be refused") };
    assert!(problem.rules.contains(&"thp_defrag_values"), "{problem}");
}

#[test]
fn a_branch_ends_when_its_symptom_is_known() {
    let stall = slowest();
    let time = stall.spent.total();
    let ask = |over| run(Branch { symptom: Some(symptom(&stall, over)), ..Branch::default() });
    let decided = |over| match ask(over) {
        Err(NoResult::Decided(Decided { is_met, .. })) => is_met,
        other => panic!("{other:?}"),
    };
    assert!(decided(Picos(time.0 / 2)));
    assert!(decided(Picos(time.0 - 1)));
    assert!(!decided(time), "more than its own time is not the symptom");
}

/// Decisions that the facts of slow faults tell of can be taken otherwise, and then what follows is another run. A wait for a CPU
/// behind a wake-up is no decision, and stays.
#[test]
fn a_decision_is_taken_otherwise() {
    let (finish, extra) = run(Branch::default()).unwrap();
    let faults = extra.slow_operations.longest.iter().filter(|operation| operation.vpn.is_some());
    let why = faults.map(watched).collect();
    let options = Options { why, ..Options::default() };
    let (_, again, extra) = try_simulate_from(&small(), options, None, no_entries, fill_memory).unwrap();
    assert_eq!(again, finish);
    let all: Vec<Told> = extra.why.into_iter().flat_map(|story| story.facts).collect();
    let mut found = Vec::new();
    let mut tried = 0;
    for told in &all {
        let Some((decision, at)) = told.decision() else { continue };
        if found.contains(&decision) || tried == 60 {
            continue;
        }
        tried += 1;
        let otherwise = Some(Otherwise { at, by: told.by, decision });
        let (other, _) = run(Branch { otherwise, ..Branch::default() }).unwrap();
        if other.hash != finish.hash {
            found.push(decision);
        }
    }
    found.sort_unstable();
    for decision in [Decision::WakeKswapd, Decision::Reclaim, Decision::Sleep] {
        assert!(found.contains(&decision), "{found:?}");
    }
}
