//! The branch of an order, for the simulator.

use units::{Picos, Time, Vpn};

use crate::order::{BranchChange, BranchOrder, Symptom};

/// The branch that an order is about.
///
/// # Errors
/// Rules that this program does not know.
pub(super) fn of(order: &BranchOrder) -> Result<sim::Branch, String> {
    let BranchOrder { changes, otherwise, symptom, window, .. } = order;
    let changes = changes.iter().map(|(at, change)| Ok((Time(*at), change_of(change)?)));
    let changes = changes.collect::<Result<Vec<_>, String>>()?;
    let window = window.map(|[first, last]| (Time(first), Time(last)));
    Ok(sim::Branch { changes, otherwise: *otherwise, symptom: symptom.map(symptom_of), window })
}

fn change_of(change: &BranchChange) -> Result<sim::Change, String> {
    Ok(match change {
        BranchChange::Nothing => sim::Change::Nothing,
        BranchChange::Rules(rules) => sim::Change::Rules(Box::new(rules.rules()?)),
        BranchChange::Draws(seed) => sim::Change::Draws(*seed),
    })
}

fn symptom_of(Symptom { task, pages: [first, last], over_ps, from_ps }: Symptom) -> sim::Symptom {
    sim::Symptom { task, first: Vpn(first), last: Vpn(last), over: Picos(over_ps), from: Time(from_ps) }
}
