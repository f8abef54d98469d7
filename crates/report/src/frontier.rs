//! How much memory a guest occupies on its host, beside what it costs to give memory back: a line for each way of giving
//! memory back, and one for the best possible way.

use std::fmt;

use serde::Serialize;

use crate::csv::CsvLine;
use crate::footprint::{area, held_at_end};
use crate::record::{Cell, Column, Footprint, Key, Target};
use crate::short::WIDTH;
use crate::short::text::fold;

/// The cause of [`crate::Measured::causes`] that is the host's work for its guest.
const HOST: &str = "host";
/// The counter of nanoseconds spent on giving memory back while a worker of the guest slept.
const GIVES_BACK: &str = "sim_host_gives_back_ns";
/// The counter of base pages that the host backs again after they were given back.
const REFAULTS: &str = "sim_host_refaults";
/// The kernel's default settings for free pages of a guest: each setting with its default value.
const DEFAULTS: [(&str, &str); 3] =
    [("page_reporting.order", "9"), ("page_reporting.delay_ms", "2000"), ("host.discard", "dontneed")];
const REPORTING: &str = "virtio_balloon.reporting";
/// The setting for the memory that a balloon leaves to the guest, if an operator drives one.
const BALLOON: &str = "virtio_balloon.target";

/// Width of the name of a row; the numbers take the rest of the line.
const NAME: usize = 34;
const HEADS: [&str; 5] = ["GiB min", "end MiB", "process s", "host s", "re-faults"];
const WIDTHS: [usize; 5] = [9, 8, 10, 9, 10];
const _: () = assert!(NAME + 9 + 8 + 10 + 9 + 10 <= WIDTH, "a line has room for all");

/// One way of giving memory back, in means over the runs of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontierRow {
    /// The case: the work that the guest did.
    pub case: String,
    /// The column of the result. The column `ideal` is computed and was not run.
    pub column: Column,
    /// Are free pages reported in the kernel's default way?
    pub is_default: bool,
    /// Memory on the host times time, in GiB minutes.
    pub area_gib_min: f64,
    /// The guest's memory on the host at the last sample, in MiB.
    pub end_mib: f64,
    /// Time of the process in the guest, user and system time together, in seconds.
    pub process_s: Option<f64>,
    /// The host's work for the guest, in seconds: while tasks waited for it, and while a worker slept that gave pages back.
    pub host_s: Option<f64>,
    /// Base pages that the host took back and then had to back again.
    pub refaults: Option<f64>,
}

/// The name of the computed column.
const IDEAL: &str = "ideal";

/// A line for each column of cells that have a guest's memory over time, by case. After the lines of a simulated machine comes
/// one more, `ideal`: every free frame is given back at once and comes back at no cost. Its memory is what is in use by the
/// guest's own count (frames that exist, less `nr_free_pages` and the balloon's pages) at each sample of the machine's first
/// column. Whatever is in use is on the host, so no measured line can be below `ideal` by more than what happens between two
/// samples.
pub fn frontier(cells: &[Cell]) -> Vec<FrontierRow> {
    let with: Vec<(&Cell, &Footprint)> = cells.iter().filter_map(|cell| Some((cell, seen(cell)?))).collect();
    let mut rows: Vec<FrontierRow> = Vec::new();
    let is_of = |cell: &Cell, key: &Key| (&cell.key.case, cell.key.column()) == (&key.case, key.column());
    let mut machines: Vec<(&str, Target, &str)> = Vec::new();
    for (cell, _) in &with {
        let of = (cell.key.case.as_str(), cell.key.target, cell.key.machine.as_str());
        if !machines.contains(&of) {
            machines.push(of);
        }
    }
    for (case, target, machine) in machines {
        let here = with.iter().filter(|(cell, _)| {
            (cell.key.case.as_str(), cell.key.target, cell.key.machine.as_str()) == (case, target, machine)
        });
        let mut ideal = None;
        for (first, _) in here {
            let column = first.key.column();
            if rows.iter().any(|row| row.case == case && row.column == column) {
                continue;
            }
            let same: Vec<(&Cell, &Footprint)> =
                with.iter().filter(|(cell, _)| is_of(cell, &first.key)).copied().collect();
            rows.push(measured(&same));
            ideal = ideal.or_else(|| ideal_of(&same));
        }
        rows.extend(ideal);
    }
    rows
}

fn seen(cell: &Cell) -> Option<&Footprint> {
    cell.footprint.as_ref().filter(|footprint| !footprint.resident().is_empty())
}

fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Option<Vec<f64>> = values.collect();
    values.filter(|values| !values.is_empty()).map(|values| values.iter().sum::<f64>() / values.len() as f64)
}

fn measured(cells: &[(&Cell, &Footprint)]) -> FrontierRow {
    let of = |value: &dyn Fn(&Cell) -> Option<f64>| mean(cells.iter().map(|(cell, _)| value(cell)));
    let key = &cells[0].0.key;
    // A cell that knows where time went also knows all of the host's work.
    let is_known = |cell: &Cell| !cell.measured.causes.is_empty();
    let counter = |cell: &Cell, name| cell.measured.counters.get(name).map_or(0.0, |n| *n as f64);
    let stood_still = |cell: &Cell| cell.measured.causes.get(HOST).map_or(0.0, |ps| *ps as f64 / 1e12);
    let host = |cell: &Cell| is_known(cell).then(|| stood_still(cell) + counter(cell, GIVES_BACK) / 1e9);
    let refaults = |cell: &Cell| is_known(cell).then(|| counter(cell, REFAULTS));
    let process =
        |cell: &Cell| cell.measured.duration.map(|duration| (duration.user_ps + duration.system_ps) as f64 / 1e12);
    FrontierRow {
        process_s: of(&process),
        host_s: of(&host),
        refaults: of(&refaults),
        ..row(key, key.column(), cells.iter().map(|(_, footprint)| footprint.resident()))
    }
}

/// The `ideal` line of these cells; none where the guest's own count is not known.
fn ideal_of(cells: &[(&Cell, &Footprint)]) -> Option<FrontierRow> {
    let used: Vec<_> = cells.iter().map(|(_, footprint)| footprint.used()).collect();
    let key = &cells[0].0.key;
    let column = Column { kernel: IDEAL.to_owned(), ..key.column() };
    let is_known = used.iter().all(|used| !used.is_empty());
    is_known.then(|| FrontierRow { is_default: false, ..row(key, column, used.into_iter()) })
}

fn row(key: &Key, column: Column, runs: impl ExactSizeIterator<Item = Vec<(u64, u64)>>) -> FrontierRow {
    let count = runs.len() as f64;
    let (area_gib_min, end_mib) = runs.fold((0.0, 0.0), |(all, end), run| (all + area(&run), end + held_at_end(&run)));
    let of = |name: &str| key.params.get(name).map(String::as_str);
    let is_default = of(REPORTING) == Some("on")
        && of(BALLOON).is_none_or(|target| target == "off")
        && DEFAULTS.iter().all(|(name, value)| of(name).is_none_or(|set| set == *value));
    FrontierRow {
        case: key.case.clone(),
        column,
        is_default,
        area_gib_min: area_gib_min / count,
        end_mib: end_mib / count,
        process_s: None,
        host_s: None,
        refaults: None,
    }
}

/// The table of each case in 80 columns; the meaning of the heads stands below the last table.
pub fn frontier_text(rows: &[FrontierRow]) -> String {
    let mut cases: Vec<&str> = Vec::new();
    for row in rows {
        if !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
    }
    let tables: Vec<String> = cases.into_iter().map(|case| table(case, rows)).collect();
    if tables.is_empty() { String::new() } else { tables.join("\n") + &legend(rows) }
}

fn table(case: &str, rows: &[FrontierRow]) -> String {
    let of_case = || rows.iter().filter(|row| row.case == case);
    let several = of_case().any(|row| of_case().any(|other| other.column.machine != row.column.machine));
    let title = format!("Frontier of {case}: memory that the host keeps, and what giving it back costs");
    let mut text = fold(&title, WIDTH).join("\n") + "\n";
    text += &line("", &HEADS);
    for row in of_case() {
        let number =
            |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_owned(), |n| format!("{n:.digits$}"));
        let numbers = [
            number(Some(row.area_gib_min), 3),
            number(Some(row.end_mib), 0),
            number(row.process_s, 3),
            number(row.host_s, 3),
            number(row.refaults, 0),
        ];
        let machine = if several { format!(" {}", row.column.machine) } else { String::new() };
        let mark = if row.is_default { "*" } else { "" };
        let name = format!("{} {}{machine}{mark}", row.column.target, row.column.kernel);
        let mut names = fold(&name, NAME);
        let last = names.pop().expect("a name has a line");
        for name in names {
            text += &name;
            text += "\n";
        }
        text += &line(&last, &numbers);
    }
    text
}

fn line<T: fmt::Display>(name: &str, numbers: &[T; 5]) -> String {
    let cells: Vec<String> = numbers.iter().zip(WIDTHS).map(|(number, width)| format!("{number:>width$}")).collect();
    format!("{name:<NAME$}{}\n", cells.concat())
}

fn legend(rows: &[FrontierRow]) -> String {
    let mut words = vec![
        "process s: user and system; host s: what the host did while the guest stood still for it (part of process s), \
         and while a worker slept that gave pages back",
    ];
    if rows.iter().any(|row| row.is_default) {
        words.push("*: as kernels report when nobody says: order 9, every 2000 ms");
    }
    if rows.iter().any(|row| row.column.kernel == IDEAL) {
        words.push("ideal: what the guest has in use, each free frame gone at once at no cost; computed, not run");
    }
    if rows.iter().any(|row| row.column.kernel != IDEAL && row.host_s.is_none()) {
        words.push("-: no real host says what it does for a guest, nor a real guest what is free meanwhile");
    }
    words.iter().flat_map(|words| fold(words, WIDTH)).map(|line| line + "\n").collect()
}

/// A line for each number that is known.
pub fn frontier_csv(rows: &[FrontierRow], experiment: &str) -> Vec<CsvLine> {
    let lines = rows.iter().flat_map(|row| {
        let values = [
            ("host_memory_gib_min", Some(row.area_gib_min)),
            ("host_memory_at_end_mib", Some(row.end_mib)),
            ("process_s", row.process_s),
            ("host_s", row.host_s),
            (REFAULTS, row.refaults),
        ];
        values.into_iter().filter_map(move |(name, value)| {
            Some(CsvLine {
                experiment: experiment.to_owned(),
                metric: format!("frontier.{name}"),
                case: row.case.clone(),
                kernel: row.column.label(),
                value: value?.to_string(),
            })
        })
    });
    lines.collect()
}

#[cfg(test)]
mod tests;
