//! A branch of a simulated cell, on the worker's side.

use units::{Picos, Time, Vpn};

use super::{Problem, Trial, simulated};
use crate::{
    order::{BranchChange, BranchOrder, Branched, Symptom},
    workload,
};

/// Runs a cell that leaves its path, to its end or to its symptom.
pub(super) fn work(order: BranchOrder) -> Result<String, Problem> {
    let BranchOrder { cell, changes, otherwise, symptom, window } = order;
    let what = cell.simulated.as_ref().ok_or_else(|| "only simulated cells run again".to_owned())?;
    let changes = changes.into_iter().map(|(at, change)| Ok((Time(at), change_of(change)?)));
    let changes = changes.collect::<Result<Vec<_>, String>>()?;
    let window = window.map(|[first, last]| (Time(first), Time(last)));
    let branch = sim::Branch { changes, otherwise, symptom: symptom.map(symptom_of), window };
    let mut trial = Trial { branch, ..Trial::default() };
    let found = simulated(&workload::of_key(&cell.key)?, &cell, what, &mut trial);
    let branched = if let Some(sim::Decided { is_met, hashes, left }) = trial.decided {
        Branched { hashes, is_met: Some(is_met), left_ps: left.map(|left| left.0), window: Vec::new(), found: None }
    } else {
        let found = found?;
        // The run has ended without the fault: the symptom has not shown.
        let is_met = symptom.map(|_| false);
        let found = Some((found.measured, found.series));
        Branched { hashes: trial.hashes, is_met, left_ps: None, window: trial.window, found }
    };
    Ok(serde_json::to_string(&branched).expect("a branch serialises"))
}

fn change_of(change: BranchChange) -> Result<sim::Change, String> {
    Ok(match change {
        BranchChange::Nothing => sim::Change::Nothing,
        BranchChange::Rules(rules) => sim::Change::Rules(Box::new(rules.rules()?)),
        BranchChange::Draws(seed) => sim::Change::Draws(seed),
    })
}

fn symptom_of(Symptom { task, pages: [first, last], over_ps, from_ps }: Symptom) -> sim::Symptom {
    sim::Symptom { task, first: Vpn(first), last: Vpn(last), over: Picos(over_ps), from: Time(from_ps) }
}
