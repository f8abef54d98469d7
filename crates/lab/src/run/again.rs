//! Simulated cells once more, from their result: the order of a cell, and a whole result beside itself.
//!
//! The machine is the one that the result holds, and the kernel is as `run.json` has it: no file is read that may have changed
//! since, but for a state file. That it is the same run is judged by the run hash of what comes of the order.

use std::{collections::BTreeSet, path::Path, sync::atomic::AtomicBool, thread};

use linux::{file::Ground, tracing::Watch};
use report::{Key, Record, Target, read_line};

use super::{
    at_once::{News, in_order},
    files::SIMULATED_MACHINE,
    held, states, travel,
};
use crate::{
    footprint,
    machine::Machine,
    order::{CellOrder, Simulated},
    plan::{Identity, TIMEOUT_S_MAX, cap_of, in_turn},
    progress::{Progress, RunError},
    provenance,
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
    records: &[Record],
    key: &Key,
) -> Result<CellOrder, UsageError> {
    let wrong = |problem: String| UsageError::in_file(directory.display(), problem);
    let lacks =
        |what: &str| wrong(format!("it does not say the {what} of {}, so nothing can be run again", key.kernel));
    let column = identity.simulated.iter().find(|simulated| simulated.column == key.column());
    let column = column.ok_or_else(|| lacks("rules"))?;
    let text = records.iter().find_map(|record| match record {
        Record::System(system) if system.column() == key.column() => system.captures.get(SIMULATED_MACHINE)?.as_str(),
        Record::System(_) | Record::Cell(_) | Record::Skipped(_) => None,
    });
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
    let footprint = footprint::every(&workload, &machine.settings);
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
        sample: identity.sample,
        map: None,
        footprint,
    })
}

/// A line for each cell of a result, as `pagelab cells` makes them of a run, with what the cell came to.
///
/// # Errors
/// A result that does not come out again from its own files: unfinished, of another program, of real kernels, begun from a file.
pub(crate) fn lines_again(directory: &Path) -> Result<Vec<(Record, String)>, UsageError> {
    let wrong = |problem: String| UsageError::in_file(directory.display(), problem);
    let (identity, contents) = held::read(directory)?;
    provenance::check_program(&identity.program).map_err(wrong)?;
    let cells: Vec<&Record> = contents.records.iter().filter(|record| matches!(record, Record::Cell(_))).collect();
    let found: BTreeSet<&Key> = cells.iter().filter_map(|record| held::key_of(record)).collect();
    if let Some(Key { kernel, case, seed, .. }) = identity.keys.iter().find(|key| !found.contains(key)) {
        return Err(wrong(format!(
            "{kernel} {case} seed {seed} has no result yet, or failed; the same run with -o goes on"
        )));
    }
    if cells.is_empty() {
        return Err(wrong("it has no cells".to_owned()));
    }
    if identity.map {
        return Err(wrong("its maps of memory are files beside it; run it without --map".to_owned()));
    }
    let line = |record: &Record| {
        let key = held::key_of(record).expect("only cells were kept");
        let name = format!("{} {} seed {}", key.kernel, key.case, key.seed);
        if key.target != Target::Sim {
            let target = key.target;
            return Err(wrong(format!(
                "{name} is of target {target}, and only simulated cells come out the same again"
            )));
        }
        let order = order_again(directory, &identity, &contents.records, key)?;
        let line = travel::line_of(order, TIMEOUT_S_MAX).map_err(|problem| wrong(format!("{name}: {problem}")))?;
        Ok((record.clone(), line))
    };
    cells.into_iter().map(line).collect()
}

/// Cells that were run again.
#[derive(Debug, Default)]
pub struct Repeated {
    /// Number of cells that came out as they were, to the byte.
    pub same: usize,
    /// The others, each with what is wrong.
    pub others: Vec<String>,
}

/// Runs all cells of a result again, and says which come out as they were.
///
/// # Errors
/// A result of which no lines can be made; an interruption.
pub(crate) fn repeat(
    directory: &Path,
    workers: Option<usize>,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Repeated, RunError> {
    let cells = lines_again(directory)?;
    let workers = workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let mut repeated = Repeated::default();
    let work = |(_, line): &(Record, String)| travel::work(line, stop);
    in_order(&cells, workers, work, |(record, _), news| {
        let Key { kernel, case, seed, .. } = held::key_of(record).expect("it is a cell");
        let News::Done(outcome) = news else {
            progress.step(repeated.same + repeated.others.len(), cells.len(), &format!("{kernel} {case} seed {seed}"));
            return Ok(());
        };
        let problem = match outcome {
            Ok(line) => {
                let again = read_line(line.as_bytes()).map_err(|none| RunError::Failed(none.reason))?.0;
                (!travel::say_the_same(record, &again)).then(|| "it comes out otherwise".to_owned())
            }
            Err(RunError::Failed(problem)) => Some(problem),
            Err(error) => return Err(error),
        };
        match problem {
            None => repeated.same += 1,
            Some(problem) => repeated.others.push(format!("{kernel} {case} seed {seed}: {problem}")),
        }
        Ok(())
    })?;
    Ok(repeated)
}
