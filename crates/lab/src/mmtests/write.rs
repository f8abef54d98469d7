//! A result as the directory of logs that mmtests' `compare-kernels.sh` reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    path::{Path, PathBuf},
};

use report::{Cell, Column, Duration, Metric, Record, file_names};

use super::{
    beside::{BESIDE, BESIDE_VERSION, Beside, CellBeside},
    kind::{Kind, place},
    logs::Logs,
    sysstate::{self, Around},
};
use crate::{plan::Seeds, results, usage::UsageError};

/// The outcome of an export.
#[derive(Debug)]
pub struct Exported {
    /// Directories of runs (kernels), each beside the others of its tables.
    pub runs: Vec<PathBuf>,
    /// The tests in them, as `compare-mmtests.pl -b` names them.
    pub tests: Vec<&'static str>,
    /// Workloads that mmtests has no logs for, a line for each.
    pub left_out: Vec<String>,
}

/// Files and links by path under the directory of the export.
#[derive(Debug, Default)]
struct Tree {
    files: BTreeMap<PathBuf, Vec<u8>>,
    links: BTreeMap<PathBuf, &'static str>,
}

/// Writes the result in `result`, or what of it has one of these seeds, to `to`, which must not exist or be empty: whole, or not
/// at all.
///
/// # Errors
/// No result, nothing in it that mmtests has a benchmark for, or a directory that cannot be written.
pub fn export(result: &Path, seeds: Option<Seeds>, to: &Path) -> Result<Exported, UsageError> {
    check_free(to)?;
    let (identity, contents) = results::contents(result, seeds)?;
    let (cells, others): (Vec<Record>, Vec<Record>) =
        contents.records.into_iter().partition(|record| matches!(record, Record::Cell(_)));
    let order: BTreeMap<_, _> = identity.keys.iter().zip(0..).collect();
    let mut cells = report::cells(cells);
    cells.sort_by_key(|cell| order.get(&cell.key).copied());
    let labels = report::operations(&cells);
    let mut left_out = BTreeSet::new();
    let mut sets: Vec<(&str, Vec<&Cell>)> = Vec::new();
    for cell in &cells {
        if let Some(reason) = no_logs(cell) {
            left_out.insert(reason);
            continue;
        }
        let name = cell.key.group.as_deref().unwrap_or(&cell.key.experiment);
        match sets.iter_mut().find(|(known, _)| *known == name) {
            Some((_, set)) => set.push(cell),
            None => sets.push((name, vec![cell])),
        }
    }
    let left_out: Vec<String> = left_out.into_iter().collect();
    if sets.is_empty() {
        let what = if left_out.is_empty() { "no cell is done".to_owned() } else { left_out.join("; ") };
        return Err(UsageError::in_file(result.display(), format!("nothing that mmtests reads: {what}")));
    }
    let mut tree = Tree::default();
    let (mut runs, mut tests, mut beside) = (Vec::new(), BTreeSet::new(), Vec::new());
    let roots = file_names(sets.iter().map(|(set, _)| set));
    for ((_, of_set), root) in sets.iter().zip(roots) {
        let root = if sets.len() > 1 { PathBuf::from(root) } else { PathBuf::new() };
        for (place, (column, name)) in columns(of_set).into_iter().enumerate() {
            let of_column: Vec<&Cell> = of_set.iter().copied().filter(|cell| cell.key.column() == column).collect();
            let run = root.join(&name);
            runs.push(to.join(&run));
            let seeds: BTreeSet<u64> = of_column.iter().map(|cell| cell.key.seed).collect();
            for (number, seed) in seeds.into_iter().enumerate() {
                let of_seed: Vec<&Cell> = of_column.iter().copied().filter(|cell| cell.key.seed == seed).collect();
                let mut whole = Iteration { run: &run, number, start: START + STEP * place as u64, tree: &mut tree };
                let written = whole.write(&of_seed, &labels);
                let (kinds, cells) = written.map_err(|problem| UsageError::in_file(result.display(), problem))?;
                tests.extend(kinds.into_iter().map(Kind::test));
                beside.extend(cells);
            }
        }
    }
    // Cells without logs of mmtests come back as they are.
    let rest = cells.iter().filter(|cell| no_logs(cell).is_some()).cloned().map(Record::Cell);
    let records = others.into_iter().chain(rest).collect();
    let beside = Beside { version: BESIDE_VERSION, identity, records, cells: beside };
    let text = serde_json::to_vec(&beside).expect("what was read can be written");
    tree.files.insert(PathBuf::from(BESIDE), text);
    tree.write(to)?;
    Ok(Exported { runs, tests: tests.into_iter().collect(), left_out })
}

/// Runs are ordered by when they began. mmtests wants these seconds to differ and says nothing else of them. They are made up, so
/// that an export of the same result has the same bytes.
const START: u64 = 1_000_000_000;
/// Between two runs.
const STEP: u64 = 1000;

/// Why mmtests has no logs for a cell, if it has none.
fn no_logs(cell: &Cell) -> Option<String> {
    let workload = &cell.key.workload;
    let Some(kind) = Kind::of_metrics(&cell.measured.metrics) else {
        return Some(format!(
            "{workload}: it is no benchmark of mmtests; thpscale and its relatives, autonumabench, warehouses and \
             will-it-scale are"
        ));
    };
    let logs = Logs::of(kind, &[(&cell.key.case, &cell.measured.metrics)]);
    (logs.packed().next().is_none()).then(|| match kind {
        Kind::Warehouses => {
            format!("{workload} with several JVMs: results have the mean of them, mmtests wants the throughput of each")
        }
        _ => format!("{workload}: it measured nothing"),
    })
}

/// The columns of a set of tables, each with a name as mmtests wants it: one dash and no comma.
fn columns(cells: &[&Cell]) -> Vec<(Column, String)> {
    let mut columns: Vec<Column> = Vec::new();
    for cell in cells {
        let column = cell.key.column();
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let several = |of: fn(&Column) -> String| columns.iter().map(of).collect::<BTreeSet<_>>().len() > 1;
    let (targets, machines) = (several(|column| column.target.to_string()), several(|column| column.machine.clone()));
    let name = |column: &Column| {
        let mut name = column.kernel.clone();
        // mmtests splits a name at its first dash, and without one drops the last letter.
        if targets || !name.contains('-') {
            name += &format!("-{}", column.target);
        }
        if machines {
            name += &format!("-{}", column.machine);
        }
        name
    };
    let names = file_names(columns.iter().map(name));
    columns.into_iter().zip(names).collect()
}

/// One run with one seed, which is an iteration of mmtests.
struct Iteration<'a> {
    run: &'a Path,
    number: usize,
    /// Seconds since 1970.
    start: u64,
    tree: &'a mut Tree,
}

impl Iteration<'_> {
    fn write(
        &mut self,
        cells: &[&Cell],
        labels: &BTreeMap<report::Key, String>,
    ) -> Result<(BTreeSet<Kind>, Vec<CellBeside>), String> {
        let mut by_kind: BTreeMap<Kind, Vec<&Cell>> = BTreeMap::new();
        for cell in cells {
            by_kind
                .entry(Kind::of_metrics(&cell.measured.metrics).expect("others are left out"))
                .or_default()
                .push(cell);
        }
        let folder = self.run.join(format!("iter-{}", self.number));
        let (mut activity, mut timestamp, mut sysstate) =
            (format!("{} run-mmtests: Start\n", self.start), String::new(), String::new());
        let mut beside = Vec::new();
        for (kind, cells) in &by_kind {
            let test = kind.test();
            // As names of logs have them, which is where they are read from.
            let of_logs = file_names(cells.iter().map(|cell| &labels[&cell.key]));
            let named = cells.iter().zip(&of_logs);
            let named: Vec<(&str, &[Metric])> =
                named.map(|(cell, label)| (label.as_str(), cell.measured.metrics.as_slice())).collect();
            let logs = Logs::of(*kind, &named);
            if let Some([file, one, other]) = logs.clash() {
                return Err(format!(
                    "{one} and {other} of {} seed {} would both be in {test}/logs/{file}, and mmtests could not tell them \
                     apart; such a result cannot be exported",
                    cells[0].key.column().label(),
                    cells[0].key.seed
                ));
            }
            let numbers = logs.numbers(*kind).map_err(|error| error.to_string())?;
            let known: Vec<&Metric> = numbers.iter().flat_map(|numbers| numbers.runs.iter().flatten()).collect();
            for (cell, (label, _)) in cells.iter().zip(&named) {
                beside.push(self.beside(cell, label, test, &known)?);
            }
            for (name, bytes) in logs.packed() {
                self.tree.files.insert(folder.join(test).join("logs").join(name), bytes);
            }
            if *kind == Kind::Faults {
                // Under the name that mmtests had for it up to 2026.
                let old = if cells[0].key.workload == "thpfioscale" { "thpfioscale" } else { "thpscale" };
                self.tree.links.insert(folder.join(old), test);
            }
            let around = around(cells);
            activity += &format!("{} run-mmtests: test start :: {test} {0}\n", self.start);
            timestamp += &around.duration.as_ref().map_or_else(String::new, |time| sysstate::time_line(test, time));
            sysstate += &sysstate::write(test, &around);
        }
        for (name, text) in [("tests-activity", activity), ("tests-timestamp", timestamp), ("tests-sysstate", sysstate)]
        {
            self.tree.files.insert(folder.join(name), text.into_bytes());
        }
        Ok((by_kind.into_keys().collect(), beside))
    }

    /// The cell without what its logs say.
    fn beside(&self, cell: &Cell, label: &str, test: &str, known: &[&Metric]) -> Result<CellBeside, String> {
        let mut rest = cell.clone();
        for metric in &mut rest.measured.metrics {
            let in_logs = known.iter().find(|known| place(known, label) == place(metric, label));
            match in_logs {
                Some(known) if known.samples == metric.samples => metric.samples.clear(),
                Some(_) if metric.name == "thp_success_pct" => {
                    return Err(format!(
                        "{} {label} of seed {} has not the time of every fault, from which mmtests computes the percentage; \
                         such a result cannot be exported",
                        cell.key.column().label(),
                        cell.key.seed
                    ));
                }
                _ => {}
            }
        }
        Ok(CellBeside {
            run: self.run.display().to_string(),
            iteration: self.number,
            test: test.to_owned(),
            label: label.to_owned(),
            cell: rest,
        })
    }
}

/// Counters and times of all cells together, as mmtests has them for a test.
fn around(cells: &[&Cell]) -> Around {
    let mut around = Around::default();
    for measured in cells.iter().map(|cell| &cell.measured) {
        for (name, moved) in &measured.counters {
            *around.counters.entry(name.clone()).or_default() += moved;
        }
        if let Some(Duration { user_ps, system_ps, elapsed_ps }) = measured.duration {
            let sum = around.duration.get_or_insert(Duration { user_ps: 0, system_ps: 0, elapsed_ps: 0 });
            sum.user_ps += user_ps;
            sum.system_ps += system_ps;
            sum.elapsed_ps += elapsed_ps;
        }
    }
    around
}

fn mistake(path: &Path) -> impl FnOnce(io::Error) -> UsageError {
    move |error| UsageError::new(format!("cannot write {}: {error}", path.display()))
}

/// Refuses a directory with anything in it.
fn check_free(to: &Path) -> Result<(), UsageError> {
    match std::fs::read_dir(to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(mistake(to)(error)),
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => {
                Err(UsageError::new(format!("{} is not empty; give a directory that is, or a new one", to.display())))
            }
        },
    }
}

/// The file that marks a directory as an unfinished export, locked for as long as it is being written.
const MARK: &str = ".pagelab-export";

/// Makes the directory of an unfinished export, in the place of one whose program was killed.
///
/// # Errors
/// A directory that no export has left there, or that another one is writing.
fn make_partial(partial: &Path) -> Result<File, UsageError> {
    let mark = partial.join(MARK);
    if partial.symlink_metadata().is_ok() {
        let is_folder = partial.symlink_metadata().is_ok_and(|found| found.is_dir());
        let is_empty = || std::fs::read_dir(partial).is_ok_and(|mut entries| entries.next().is_none());
        let is_marked = mark.symlink_metadata().is_ok_and(|found| found.is_file());
        if !is_folder || (!is_marked && !is_empty()) {
            return Err(UsageError::new(format!(
                "{} is in the way, and no unfinished export: remove it, or give another directory",
                partial.display()
            )));
        }
        if is_marked && File::open(&mark).is_ok_and(|file| file.try_lock().is_err()) {
            return Err(UsageError::in_file(partial.display(), "another export is writing there"));
        }
        std::fs::remove_dir_all(partial).map_err(mistake(partial))?;
    }
    std::fs::create_dir(partial).map_err(mistake(partial))?;
    let file = File::create_new(&mark).map_err(mistake(&mark))?;
    file.lock().map_err(mistake(&mark))?;
    Ok(file)
}

impl Tree {
    /// Writes everything to a directory beside `to`, which then gets its name.
    fn write(&self, to: &Path) -> Result<(), UsageError> {
        let Some(name) = to.file_name() else {
            return Err(UsageError::in_file(to.display(), "it names no directory"));
        };
        let parent = to.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent).map_err(mistake(parent))?;
        let partial = parent.join(format!(".{}.partial", name.to_string_lossy()));
        let _lock = make_partial(&partial)?;
        let written = self.write_all(&partial).and_then(|()| {
            let _ = std::fs::remove_dir(to);
            std::fs::rename(&partial, to).map_err(mistake(to))
        });
        // An export with the mark in it is one too.
        let _ = match written {
            Ok(()) => std::fs::remove_file(to.join(MARK)),
            Err(_) => std::fs::remove_dir_all(&partial),
        };
        written
    }

    fn write_all(&self, root: &Path) -> Result<(), UsageError> {
        for (name, bytes) in &self.files {
            let path = root.join(name);
            let folder = path.parent().expect("it is under the root");
            std::fs::create_dir_all(folder).map_err(mistake(folder))?;
            std::fs::write(&path, bytes).map_err(mistake(&path))?;
        }
        for (name, to) in &self.links {
            let path = root.join(name);
            std::os::unix::fs::symlink(to, &path).map_err(mistake(&path))?;
        }
        Ok(())
    }
}
