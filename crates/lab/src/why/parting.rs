//! Where two columns of a result part: the first instant at which their runs differ, and what each decided then.
//!
//! Both cells run again from their seed, with the run hash at 64 instants. From the last instant at which the hashes agree to
//! the instant behind it they run again with 64 others, until the instants are closer than a microsecond; then once more for
//! the facts.

use std::sync::atomic::AtomicBool;

use memory::fact::{Fact, Told};
use report::{Cell, Record, WIDTH, compare::Between, short::text::fold};
use serde::Serialize;
use units::Time;

use super::{
    chain, check_single,
    numbers::{count, seconds},
};
use crate::{
    branches::run_all,
    order::{BranchChange, BranchOrder, Branched, CellOrder},
    progress::{Progress, RunError},
    provenance, results,
    run::order_again,
    show::between::{BetweenWanted, first_pair},
    usage::UsageError,
};

/// Instants of a pass.
const INSTANTS: u64 = 64;
/// Instants that are closer than this are not parted further: 1 us.
const CLOSE: u64 = 1_000_000;
/// The time behind the parting of which facts are asked for: 1 ms.
const BEHIND: u64 = 1_000_000_000;
/// The end of a run that is not known yet is sought up to here: eleven days.
const LONGEST: u64 = 1_000_000_000_000_000_000;

/// Where two runs part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parting {
    /// The case.
    pub case: String,
    /// The seed.
    pub seed: u64,
    /// The columns.
    pub columns: [String; 2],
    /// The last instant that is known to be the same in both, and the first that is not, in picoseconds; none if the runs are
    /// the same to their end.
    pub between_ps: Option<[u64; 2]>,
    /// The first fact of each column that the other one does not have, up to a millisecond behind.
    pub facts: [Option<Told>; 2],
}

/// Finds where the runs of a row's case and first seed part.
///
/// # Errors
/// As [`crate::show::between::between`]; a result of another program.
pub fn parting(wanted: &BetweenWanted, stop: &AtomicBool, progress: &mut dyn Progress) -> Result<Parting, RunError> {
    let (cells, case) = first_pair(wanted)?;
    check_single(cells.iter().map(|cell| &cell.key))?;
    let (identity, contents) = results::contents(&wanted.result, None)?;
    let others: Vec<Record> =
        contents.records.into_iter().filter(|record| !matches!(record, Record::Cell(_))).collect();
    let order = |cell: &Cell| {
        provenance::check_program(&cell.key.program)
            .map_err(|problem| UsageError::in_file(wanted.result.display(), problem))?;
        order_again(&wanted.result, &identity, &others, &cell.key)
    };
    let orders = [order(&cells[0])?, order(&cells[1])?];
    let label = |cell: &Cell| cell.key.column().label();
    let known = Parting {
        case,
        seed: cells[0].key.seed,
        columns: [label(&cells[0]), label(&cells[1])],
        between_ps: None,
        facts: [None, None],
    };
    let (mut first, mut last) = (0, elapsed(&cells).saturating_mul(2).min(LONGEST));
    loop {
        let apart = (last - first) / INSTANTS;
        let instants: Vec<u64> = (1..=INSTANTS).map(|n| first + n * apart).collect();
        let found = pass(&orders, &instants, None, stop, progress)?;
        let differs = |place: &usize| found[0].hashes.get(*place) != found[1].hashes.get(*place);
        let Some(place) = (0..instants.len()).find(differs) else {
            // Behind the last instant, or never: the whole run tells.
            let hash =
                |branch: &Branched| branch.found.as_ref().map(|(measured, _)| measured.detail["run_hash"].clone());
            if last >= LONGEST || hash(&found[0]) == hash(&found[1]) {
                return Ok(known);
            }
            (first, last) = (last, LONGEST);
            continue;
        };
        (first, last) = (place.checked_sub(1).map_or(first, |before| instants[before]), instants[place]);
        if last - first < CLOSE.max(INSTANTS) {
            break;
        }
    }
    let window = Some([first, last + BEHIND]);
    let found = pass(&orders, &[], window, stop, progress)?;
    let (old, new) = (&found[0].window, &found[1].window);
    // The instants of facts differ from the parting on; what was decided may differ later.
    let differs = |(old, new): (&Told, &Told)| (old.by, &old.fact) != (new.by, &new.fact);
    let place = old.iter().zip(new).position(differs).unwrap_or_else(|| old.len().min(new.len()));
    Ok(Parting { between_ps: Some([first, last]), facts: [old.get(place).cloned(), new.get(place).cloned()], ..known })
}

/// The longer workload of the two, in picoseconds, and a second.
fn elapsed(cells: &[Cell; 2]) -> u64 {
    let of = |cell: &Cell| cell.measured.duration.map_or(0, |duration| duration.elapsed_ps);
    of(&cells[0]).max(of(&cells[1])).saturating_add(1_000_000_000_000)
}

fn pass(
    orders: &[CellOrder; 2],
    instants: &[u64],
    window: Option<[u64; 2]>,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Vec<Branched>, RunError> {
    let changes: Vec<(u64, BranchChange)> = instants.iter().map(|at| (*at, BranchChange::Nothing)).collect();
    let branch = |cell: &CellOrder| BranchOrder {
        cell: cell.clone(),
        changes: changes.clone(),
        otherwise: None,
        symptom: None,
        window,
    };
    run_all(&[branch(&orders[0]), branch(&orders[1])], stop, progress)
}

/// The answer about two columns as JSON, with where their runs part as `parting`.
pub fn json(between: &Between, parting: &Parting) -> String {
    #[derive(Serialize)]
    struct Answer<'a> {
        #[serde(flatten)]
        between: &'a Between,
        parting: &'a Parting,
    }
    serde_json::to_string_pretty(&Answer { between, parting }).expect("fields serialise") + "\n"
}

/// A parting as text of 80 columns.
pub fn text(parting: &Parting) -> String {
    let Parting { case, seed, columns, between_ps, facts } = parting;
    let mut lines = vec![String::new()];
    match between_ps {
        None => lines.extend(fold(&format!("{case} seed {seed}: the runs are the same to their end"), WIDTH)),
        Some([first, last]) => {
            let at = |ps: &u64| seconds(Time(*ps));
            let head = format!("{case} seed {seed}: the runs part between {} s and {} s", at(first), at(last));
            lines.extend(fold(&head, WIDTH));
            for (column, fact) in columns.iter().zip(facts) {
                let said = fact.as_ref().map_or_else(|| "no decision that is told".to_owned(), said);
                lines.extend(fold(&format!("{column}: {said}"), WIDTH));
            }
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// A fact in words, where there is a sentence of it; else as it is told.
fn said(told: &Told) -> String {
    let sentences = chain::sentences(std::slice::from_ref(told), (told.by, u64::MAX));
    let words = sentences.first().map(|sentence| sentence.text.clone());
    let words = words.unwrap_or_else(|| match &told.fact {
        Fact::Request { order, mobility, node, .. } => {
            format!("asks node {} for order {}, {mobility:?}", node.0, order.0)
        }
        Fact::PassedOver { zone, order, room, .. } => {
            let [free, needs] = [room.free, room.needs].map(count);
            let (kind, node) = (zone.kind, zone.node.0);
            format!("passes over {kind} of node {node} for order {}: {free} pages are free of {needs}", order.0)
        }
        fact => serde_json::to_string(fact).expect("a fact serialises"),
    });
    format!("task {} at {} s: {words}", told.by, seconds(told.at))
}
