//! Runs, read from result directories: a guest's with the memory it started from, and that of a simulated run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use report::{Key, Record, Target};

use super::{Cell, Figures, figures};
use crate::{run, usage::UsageError};

/// One case that a guest has run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The case's name in the experiment.
    pub case: String,
    /// Parameters and settings, as `pagelab run --set` takes them.
    pub sets: BTreeMap<String, String>,
    /// The guest's memory just before it.
    pub state: PathBuf,
    /// The kernel's release.
    pub kernel: String,
    /// The figures of the run.
    pub figures: Figures,
}

/// The cases that guests have run into this directory.
pub fn guests(directory: &Path) -> Result<Vec<Ran>, UsageError> {
    let cells = report::cells(read(directory)?).into_iter().filter(|cell| cell.key.target == Target::Vm);
    let ran = cells.map(|cell| Ran {
        state: run::state_path(directory, &cell.key.column(), &cell.key),
        figures: figures(&cell.measured),
        case: cell.key.case,
        sets: cell.key.params,
        kernel: cell.key.kernel,
    });
    Ok(ran.collect())
}

/// The one simulated run of this directory, if it got to its end.
pub fn simulated(directory: &Path) -> Result<Option<Figures>, UsageError> {
    let cells = report::cells(read(directory)?);
    Ok(cells.iter().find(|cell| cell.key.target == Target::Sim).map(|cell| figures(&cell.measured)))
}

/// The cases of a result that guests and the simulator have run beside each other; of the same seed in pairs.
pub fn beside(directory: &Path) -> Result<Vec<Cell>, UsageError> {
    Ok(paired(&report::cells(read(directory)?)))
}

fn paired(ran: &[report::Cell]) -> Vec<Cell> {
    // A column's settings follow the name of its kernel.
    let label = |key: &Key| key.kernel.split_once(' ').map(|(_, label)| label.to_owned());
    let place = |key: &Key| (key.case.clone(), label(key), key.params.clone(), key.machine.clone(), key.seed);
    let of = |target: Target| ran.iter().filter(move |cell| cell.key.target == target);
    let simulated: BTreeMap<_, _> = of(Target::Sim).map(|cell| (place(&cell.key), figures(&cell.measured))).collect();
    let mut cells: Vec<Cell> = Vec::new();
    for guest in of(Target::Vm) {
        let Some(ours) = simulated.get(&place(&guest.key)) else { continue };
        let pair = (figures(&guest.measured), ours.clone());
        let (case, machine) = (&guest.key.case, &guest.key.machine);
        let settings = label(&guest.key).map(|label| format!(", {label}")).unwrap_or_default();
        let name = format!("{case} on {machine}{settings}");
        match cells.iter_mut().find(|cell| cell.name == name) {
            Some(cell) => cell.runs.push(pair),
            None => cells.push(Cell { name, runs: vec![pair], ..Cell::default() }),
        }
    }
    cells
}

fn read(directory: &Path) -> Result<Vec<Record>, UsageError> {
    run::read(directory).map(|(_, contents)| contents.records)
}

#[cfg(test)]
mod tests {
    use report::{Measured, Run, SCHEMA};

    use super::*;

    fn cell(target: Target, kernel: &str, seed: u64, faults: i64) -> report::Cell {
        report::Cell {
            schema: SCHEMA,
            key: Key {
                result: None,
                experiment: "e".into(),
                group: None,
                workload: "service".into(),
                case: "c".into(),
                params: BTreeMap::new(),
                variant: kernel.into(),
                machine: "m".into(),
                state: "kernel".into(),
                target,
                kernel: kernel.into(),
                seed,
                program: "p".into(),
            },
            measured: Measured { counters: BTreeMap::from([("pgfault".to_owned(), faults)]), ..Measured::nothing() },
            series: None,
            map: None,
            slow_path: None,
            footprint: None,
            run: Run {
                date: "2026-01-02T03:04:05Z".into(),
                wall_s: 1.0,
                boot_s: None,
                host: "h".into(),
                commit: "c".into(),
                max_rss_kib: 1,
            },
        }
    }

    #[test]
    fn a_guest_stands_beside_the_simulated_cell_of_its_settings_and_seed() {
        let (vm, sim) = (Target::Vm, Target::Sim);
        let ran = [
            cell(vm, "6.1.0 defrag=always", 1, 10),
            cell(vm, "6.1.0 defrag=always", 2, 20),
            cell(vm, "6.1.0 defrag=madvise", 1, 30),
            cell(vm, "6.1.0 defrag=never", 1, 40),
            cell(sim, "v6.1 defrag=madvise", 1, 31),
            cell(sim, "v6.1 defrag=always", 2, 21),
            cell(sim, "v6.1 defrag=always", 1, 11),
        ];
        let faults = |figures: &Figures| figures["pgfault"];
        let found: Vec<(String, Vec<(f64, f64)>)> = paired(&ran)
            .into_iter()
            .map(|cell| (cell.name, cell.runs.iter().map(|(kernel, ours)| (faults(kernel), faults(ours))).collect()))
            .collect();
        let expected = [
            ("c on m, defrag=always", vec![(10.0, 11.0), (20.0, 21.0)]),
            ("c on m, defrag=madvise", vec![(30.0, 31.0)]),
        ];
        assert_eq!(found, expected.map(|(name, runs)| (name.to_owned(), runs)));
    }
}
