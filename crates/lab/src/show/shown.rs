//! A result with its tables, as everything that prints reads it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use report::{Cell, Published, Record, Report, Skipped, System, Target};

use super::{print::Causes, zones::ZoneTables};
use crate::{
    mmtests::Like,
    plan::{Seeds, SimulatedColumn},
    presentation::Presentation,
    provenance,
    results::contents_like,
    suggest::Again,
    usage::UsageError,
};

/// Why there is no time by cause.
pub(super) const ONLY_SIM: &str = "only the simulator knows it";

/// A result as read, in the order of its experiment.
pub(crate) struct Shown {
    pub(super) experiment: String,
    /// Hash of the program that made it.
    pub(crate) program: String,
    pub(crate) presentation: Presentation,
    pub(crate) cells: Vec<Cell>,
    pub(super) systems: Vec<System>,
    /// Seconds from QEMU's start to the first operation, one per boot, with the kernel.
    pub(super) boots: Vec<(String, f64)>,
    pub(super) skipped: Vec<Skipped>,
    pub(crate) missing: usize,
    pub(crate) report: Report,
    /// The series whose tables these are.
    pub(super) published: Option<Published>,
    pub(super) zones: Vec<ZoneTables>,
    pub(super) simulated: Vec<SimulatedColumn>,
    /// The run of this result once more, where it is known what was asked for.
    pub(super) again: Option<Again>,
    /// Where time by cause was asked for and is not known.
    pub(super) without_causes: Vec<Target>,
}

impl Shown {
    /// Refuses a result without times by cause where they are required.
    pub(super) fn check_causes(&self, causes: Causes, directory: &Path) -> Result<(), UsageError> {
        if causes == Causes::Required && self.cells.iter().all(|cell| cell.measured.causes.is_empty()) {
            let place = directory.display();
            return Err(UsageError::of_key("--causes", format!("nothing in {place} says where time went; {ONLY_SIM}")));
        }
        Ok(())
    }
}

/// Reads a result, or what of it has one of these seeds.
pub(crate) fn read(directory: &Path, seeds: Option<Seeds>) -> Result<Shown, UsageError> {
    read_like(directory, seeds, None)
}

/// Reads a result, or numbers that were measured elsewhere: those in the rows of another result, where one is given.
pub(super) fn read_like(directory: &Path, seeds: Option<Seeds>, like: Option<&Like>) -> Result<Shown, UsageError> {
    let (identity, contents) = contents_like(directory, seeds, like)?;
    let place: BTreeMap<_, _> = identity.keys.iter().zip(0..).collect();
    let skipped = skips(&contents.records);
    let unable = skipped.iter().filter(|skipped| skipped.key.is_some()).count();
    let mut systems: Vec<System> = Vec::new();
    let mut boots = Vec::new();
    for record in &contents.records {
        if let Record::System(system) = record {
            // A resumed run or a further seed boots again; what the kernel computes of its zones is the same.
            let same = |known: &System| known.column() == system.column();
            // Which seed it was for, nobody knows.
            let seconds = system.run.boot_s.filter(|_| seeds.is_none());
            boots.extend(seconds.map(|seconds| (system.kernel.clone(), seconds)));
            if !systems.iter().any(same) {
                systems.push(system.clone());
            }
        }
    }
    let mut cells = report::cells(contents.records);
    if cells.is_empty() {
        let (place, planned) = (directory.display(), identity.keys.len());
        return Err(UsageError::in_file(
            &place,
            format!("none of its {planned} cells is done; the same run with `-o {place}` goes on"),
        ));
    }
    cells.sort_by_key(|cell| place.get(&cell.key).copied());
    for cell in &mut cells {
        // They follow from what was seen of a guest that nobody can repeat, and are no part of what was measured.
        let of_host = cell.footprint.as_ref().map(report::Footprint::metrics);
        cell.measured.metrics.extend(of_host.into_iter().flatten());
    }
    let experiment = identity.keys.first().map_or_else(String::new, |key| key.experiment.clone());
    let again = Again::of(&identity);
    let presentation = match identity.presentation {
        Some(kept) => kept,
        None => Presentation::of_older(&experiment, cells.iter().map(|cell| &cell.key))?,
    };
    let zones = |system| ZoneTables::of(system, &identity.simulated, &presentation.rules);
    let zones = systems.iter().map(zones).collect();
    let report = Report::of_layout(identity.layout, &cells, presentation.counter_threshold);
    let published = presentation.series()?;
    let program = cells.first().map_or(provenance::PROGRAM_HASH, |cell| &cell.key.program).to_owned();
    Ok(Shown {
        experiment,
        program,
        presentation,
        published,
        again,
        missing: identity.keys.len().saturating_sub(cells.len() + unable),
        cells,
        systems,
        boots,
        skipped,
        report,
        zones,
        simulated: identity.simulated,
        without_causes: Vec::new(),
    })
}

/// Index of the first result whose cells have other experiments or workloads than the first result's.
pub(super) fn strange(shown: &[Shown]) -> Option<usize> {
    let of = |shown: &Shown| {
        shown.cells.iter().map(|cell| (cell.key.experiment.clone(), cell.key.workload.clone())).collect::<BTreeSet<_>>()
    };
    let first = of(&shown[0]);
    (1..shown.len()).find(|at| first.is_disjoint(&of(&shown[*at])))
}

/// The cells that were left out, for the end of a report.
fn skips(records: &[Record]) -> Vec<Skipped> {
    let skipped = |record: &Record| match record {
        Record::Skipped(skipped) => Some(skipped.clone()),
        Record::Cell(_) | Record::System(_) => None,
    };
    records.iter().filter_map(skipped).collect()
}
