//! The order of a simulated cell once more, from its result.
//!
//! The machine is the one that the result holds, and the kernel is as `run.json` has it: no file is read that may have changed
//! since, but for a state file. That it is the same run is judged by the run hash of what comes of the order.

use std::path::Path;

use linux::{file::Ground, tracing::Watch};
use report::{Key, System};

use super::{files::SIMULATED_MACHINE, states};
use crate::{
    machine::Machine,
    order::{CellOrder, Simulated},
    plan::{Identity, cap_of, in_turn},
    source::Source,
    usage::UsageError,
    workload,
};

/// The order of a cell of the result in `directory`.
///
/// # Errors
/// A result without the machine or the kernel of the cell.
pub(crate) fn order_again(
    directory: &Path,
    identity: &Identity,
    systems: &[System],
    key: &Key,
) -> Result<CellOrder, UsageError> {
    let wrong = |problem: String| UsageError::in_file(directory.display(), problem);
    let lacks =
        |what: &str| wrong(format!("it does not say the {what} of {}, so nothing can be run again", key.kernel));
    let column = identity.simulated.iter().find(|simulated| simulated.column == key.column());
    let column = column.ok_or_else(|| lacks("rules"))?;
    let system = systems.iter().find(|system| system.column() == key.column());
    let text = system.and_then(|system| system.captures.get(SIMULATED_MACHINE)?.as_str());
    let text = text.ok_or_else(|| lacks("machine"))?;
    let source = Source::from_text(format!("{}.toml", key.machine), text);
    let machine = Machine::from_source(&source, &linux::setting::names())?;
    let workload = workload::of_key(key).map_err(wrong)?;
    let cap = cap_of(&key.workload, &machine).max(workload.mapped(machine.memory()));
    // Of a twin, the machine is held with the prices of the first seed.
    let machine = match &column.shifts[..] {
        [] => machine,
        shifts => machine.counting_instructions(in_turn(shifts, key.seed)),
    };
    let asked = identity.asked.clone().unwrap_or_default();
    Ok(CellOrder {
        key: key.clone(),
        cap,
        ground: Ground::default(),
        watch: Watch::default(),
        idle_window: false,
        simulated: Some(Simulated {
            machine: machine.to_toml(),
            variant: column.variant.clone(),
            state: states::file(directory, &column.start, column.twin_of.as_ref(), key),
            // Which settings the recipe's file is about is not known; the run hash says whether the state is the same.
            prefix: states::prefix(&column.start, true, key, &asked),
        }),
        trace: None,
        sample: None,
        map: None,
        footprint: None,
    })
}
