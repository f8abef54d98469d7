//! From a result directory to what is printed: a pure function of the files, so that tables are redrawn without rerunning.

mod over_time;
mod zones;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    path::Path,
};

use report::{Cell, CheckRow, Column, Contents, Key, Layout, Record, Report, Skipped, Store, System, Target};
use serde::Serialize;

pub use self::over_time::{series, stalls};
use self::zones::ZoneTables;
use crate::{
    cell::STATE,
    experiment::Experiment,
    machine,
    plan::{Identity, Seeds, Simulated, Start, UsageError},
    prices, provenance,
    run::{self, IDENTITY_FILE, read_identity},
};

/// A counter is shown when it moved at least this often in some case: less is within what reading counters costs.
const COUNTER_THRESHOLD: u64 = 400;
/// The same of workloads that fill memory, whose stalls, compactions and splits are few and none of them ours.
const PRESSED_THRESHOLD: u64 = 20;
/// Skipped measurements named one by one; the rest is counted.
const NAMED_SKIPS: usize = 4;

/// Why there is no time by cause.
const ONLY_SIM: &str = "only the simulator knows it";

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Tables in mmtests' layout.
    Text,
    /// One line per value.
    Csv,
    /// Everything.
    Json,
}

/// Whether tables of time by cause are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Causes {
    /// They are left out.
    No,
    /// They are, where they are known.
    Yes,
    /// They were asked for by name: a result that knows none is refused.
    Required,
}

/// A result as read, in the order of its experiment.
struct Shown {
    experiment: String,
    cells: Vec<Cell>,
    systems: Vec<System>,
    /// Seconds from QEMU's start to the first operation, one per boot, with the kernel.
    boots: Vec<(String, f64)>,
    skipped: Vec<Skipped>,
    missing: usize,
    report: Report,
    zones: Vec<ZoneTables>,
    simulated: Vec<Simulated>,
    /// Where time by cause was asked for and is not known.
    without_causes: Vec<Target>,
}

/// Prints the result in `directory`, or what of it has one of these seeds.
pub fn render(directory: &Path, seeds: Option<Seeds>, format: Format, causes: Causes) -> Result<String, UsageError> {
    let mut shown = read(directory, seeds)?;
    if causes == Causes::Required && shown.cells.iter().all(|cell| cell.measured.causes.is_empty()) {
        let place = directory.display();
        return Err(UsageError(format!("--causes: nothing in {place} says where time went; {ONLY_SIM}")));
    }
    if causes != Causes::No {
        shown.report.tables.extend(report::causes(&shown.cells));
        let without: BTreeSet<Target> =
            shown.cells.iter().filter(|cell| cell.measured.causes.is_empty()).map(|cell| cell.key.target).collect();
        shown.without_causes = without.into_iter().collect();
    }
    Ok(match format {
        Format::Text => text(&shown),
        Format::Csv => report::to_csv(&shown.report, &zones::csv(&shown.zones, &shown.experiment)),
        Format::Json => json(&shown),
    })
}

/// What a result directory holds, or what of it has one of these seeds.
pub(crate) fn contents(directory: &Path, seeds: Option<Seeds>) -> Result<(Identity, Contents), UsageError> {
    let lacks_identity = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory);
    if directory.join(IDENTITY_FILE).metadata().is_err_and(|error| lacks_identity(error.kind())) {
        let place = directory.display();
        return Err(UsageError(format!("{place} is not a result directory: it has no {IDENTITY_FILE}")));
    }
    let mut identity = read_identity(directory)?;
    let mut contents = Store::read(directory).map_err(|error| UsageError(error.to_string()))?;
    if let Some(seeds) = seeds {
        leave_out(&mut identity.keys, &mut contents.records, seeds)?;
    }
    Ok((identity, contents))
}

fn read(directory: &Path, seeds: Option<Seeds>) -> Result<Shown, UsageError> {
    let (identity, contents) = contents(directory, seeds)?;
    let place: BTreeMap<_, _> = identity.keys.iter().zip(0..).collect();
    let skipped = run::skips(&contents.records);
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
    cells.sort_by_key(|cell| place.get(&cell.key).copied());
    let presses = |cell: &Cell| crate::cell::parse(&cell.key).is_ok_and(|workload| workload.presses());
    let threshold = if cells.iter().any(presses) { PRESSED_THRESHOLD } else { COUNTER_THRESHOLD };
    let report = match identity.layout {
        Layout::Head => Report::new(&cells, threshold),
        Layout::Classic => Report::classic(&cells),
    };
    let zones = systems.iter().map(ZoneTables::of).collect();
    let experiment = identity.keys.first().map_or_else(String::new, |key| key.experiment.clone());
    Ok(Shown {
        experiment,
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

/// Leaves out what has none of these seeds, all of which the result must have.
fn leave_out(keys: &mut Vec<Key>, records: &mut Vec<Record>, seeds: Seeds) -> Result<(), UsageError> {
    let all = || keys.iter().map(|key| key.seed);
    let (first, last) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
    if let Some(lacks) = seeds.all().find(|seed| !(first..=last).contains(seed)) {
        return Err(UsageError(format!("--seeds: the result has no seed {lacks}; it has {first}-{last}")));
    }
    keys.retain(|key| seeds.contains(key.seed));
    records.retain(|record| match record {
        Record::Cell(Cell { key, .. }) | Record::Skipped(Skipped { key: Some(key), .. }) => seeds.contains(key.seed),
        Record::System(_) | Record::Skipped(_) => true,
    });
    Ok(())
}

fn text(shown: &Shown) -> String {
    let mut text = head(shown);
    text += &report::to_text(&shown.report);
    for zones in &shown.zones {
        text += &format!("\n{}", zones.text());
    }
    text += &tail(shown);
    text
}

/// What ran where.
fn head(shown: &Shown) -> String {
    let mut text = String::new();
    if let Some(cell) = shown.cells.first() {
        let about = Experiment::load(&cell.key.experiment).map(|experiment| format!(": {}", experiment.about));
        text += &format!("{}{}\n", cell.key.experiment, about.unwrap_or_default());
        text += &format!("program {}  commit {}  date {}\n", cell.key.program, cell.run.commit, cell.run.date);
        if !cell.measured.scored {
            text += "not scored: work bounded by time (duration) is not the same work on two kernels\n";
        }
    }
    for system in shown.systems.iter().filter(|system| system.target != Target::Sim) {
        let mut words = vec![format!("{:<5}{} on {}", system.target.name(), system.kernel, system.machine)];
        words.extend(system.accelerator.as_ref().map(|accelerator| format!("under QEMU ({accelerator})")));
        words.extend(first_operation(shown, &system.kernel));
        words.extend(system.notes.iter().cloned());
        for (name, value) in &system.settings {
            words.push(format!("{name}={value}"));
        }
        text += &(words.join(", ") + "\n");
    }
    for column in &shown.simulated {
        text += &simulated(column);
        text += &distances(shown, column);
        text += &state_notes(shown, column);
    }
    if shown.systems.iter().any(|system| system.target == Target::Vm) {
        text +=
            "In a guest under translation counters are trustworthy, times are not; compare times within one column.\n";
    }
    text + "\n"
}

/// What a simulated column is: whose rules, and what its numbers are worth.
fn simulated(what: &Simulated) -> String {
    let Column { kernel, machine, .. } = &what.column;
    let mut words = vec![format!("sim  {kernel} on {machine}")];
    let twin = |real: &Column| format!("twin of {} {} on {}", real.target, real.kernel, real.machine);
    words.extend(what.twin_of.as_ref().map(twin));
    words.extend(what.chosen_for.as_ref().map(|release| format!("the newest rules not newer than {release}")));
    words.push(what.variant.difference.clone());
    if !what.shifts.is_empty() {
        let shifts: Vec<_> = what.shifts.iter().map(u8::to_string).collect();
        words.push(format!("prices are the guest's own (an instruction takes 2^{} ns, by seed)", shifts.join(", 2^")));
    }
    let prices = prices::summary(&what.prices);
    let start = match &what.start {
        Start::Fresh => what.system.as_ref().map_or_else(
            || "memory all free at the start".to_owned(),
            |system| format!("memory at the start: {system}; the rest is free"),
        ),
        Start::Kernel => "memory at the start as the kernel had it before the same cell".to_owned(),
        Start::File(file) => {
            format!("memory at the start as in {} (state {})", file.path.display(), short(&file.hash))
        }
    };
    let worth = format!("{start}; {prices}: counters are predictions, times are not yet");
    format!("{}\n     {worth}\n", words.join(", "))
}

/// How far memory was from the CPUs of a column: of machines that say so, and of workloads whose times it decides.
fn distances(shown: &Shown, what: &Simulated) -> String {
    let mut cells = shown.cells.iter().filter(|cell| cell.key.column() == what.column);
    match &what.latency {
        Some(latency) => format!("     {}\n", latency.summary()),
        None if cells.any(|cell| cell.key.workload == workloads::numa_access::INFO.name) => {
            format!("     {}\n", machine::FLAT)
        }
        None => String::new(),
    }
}

/// Digits of a hash that a reader sees.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// What was drawn of the states that the cells of a column started from: of the first, as the others differ by numbers.
fn state_notes(shown: &Shown, what: &Simulated) -> String {
    let states = shown.cells.iter().filter(|cell| cell.key.column() == what.column);
    let mut states = states.filter_map(|cell| Some((&cell.key.case, cell.measured.detail.get(STATE)?)));
    let Some((case, state)) = states.next() else { return String::new() };
    let notes = state["notes"].as_array().into_iter().flatten().filter_map(|note| note.as_str());
    let hash = short(state["hash"].as_str().unwrap_or("?"));
    let lines: Vec<String> = notes.map(|note| format!("       {note}\n")).collect();
    format!("     state {hash} of {case}, as an example of {}:\n{}", states.count() + 1, lines.concat())
}

/// How long the boots took, where there were any.
fn first_operation(shown: &Shown, kernel: &str) -> Option<String> {
    let boots: Vec<f64> = shown.boots.iter().filter(|(of, _)| of == kernel).map(|(_, seconds)| *seconds).collect();
    let median = report::stats::percentile(&boots, 50.0)?;
    let range = match (report::stats::min(&boots), report::stats::max(&boots)) {
        (Some(min), Some(max)) if boots.len() > 1 => {
            format!(" (median of {} boots, {min:.2} to {max:.2})", boots.len())
        }
        _ => String::new(),
    };
    Some(format!("first operation {median:.2} s after QEMU's start{range}"))
}

/// What is not as it should be, and what is not there and why.
fn tail(shown: &Shown) -> String {
    let rows = shown.report.checks.iter().flat_map(|table| &table.rows);
    let mut lines: Vec<String> = rows.filter(|row| row.failed()).map(|row| failed_check(shown, row)).collect();
    for skipped in &shown.skipped {
        lines.push(format!("skipped: {} {}: {}", skipped.target, skipped.what, skipped.reason));
    }
    lines.extend(shown.without_causes.iter().map(|target| format!("skipped: {target} time by cause: {ONLY_SIM}")));
    for cell in &shown.cells {
        let skips = &cell.measured.skipped;
        let who = format!("{} {}", cell.key.target, cell.key.case);
        let named = skips.iter().take(NAMED_SKIPS);
        lines.extend(named.map(|skip| format!("skipped: {who} {}: {}", skip.what, skip.reason)));
        if let Some(more) = skips.len().checked_sub(NAMED_SKIPS).filter(|more| *more > 0) {
            lines.push(format!(
                "skipped: {who}: {more} more counters for the same kind of reason (--format json names them)"
            ));
        }
    }
    if shown.missing > 0 {
        lines.push(format!("missing: {} cells have no result yet", shown.missing));
    }
    if lines.is_empty() { String::new() } else { format!("\n{}\n", lines.join("\n")) }
}

/// Names the kernel only where there are several of a target.
fn failed_check(shown: &Shown, row: &CheckRow) -> String {
    let kernels = shown.systems.iter().filter(|system| system.target == row.column.target).count();
    let place = if kernels > 1 { row.lines.join(" ") } else { row.column.target.to_string() };
    let runs = if row.cells > 1 {
        format!(", in {} of {} runs", row.cells - row.cells_within, row.cells)
    } else {
        String::new()
    };
    let CheckRow { case, check, .. } = row;
    format!(
        "check failed: {place} {case} {}: expected {}, found {} (tolerance {}{runs})",
        check.name, check.expected, check.found, check.tolerance
    )
}

/// Everything a program may want.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    program: &'a str,
    report: &'a Report,
    zones: &'a [ZoneTables],
    cells: &'a [Cell],
    systems: &'a [System],
    simulated: &'a [Simulated],
    skipped: &'a [Skipped],
    missing: usize,
}

fn json(shown: &Shown) -> String {
    let document = Document {
        schema: report::SCHEMA,
        program: shown.cells.first().map_or(provenance::PROGRAM_HASH, |cell| &cell.key.program),
        report: &shown.report,
        zones: &shown.zones,
        cells: &shown.cells,
        systems: &shown.systems,
        simulated: &shown.simulated,
        skipped: &shown.skipped,
        missing: shown.missing,
    };
    serde_json::to_string_pretty(&document).expect("a report serialises") + "\n"
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use linux::procfs::Capture;
    use report::{Check, Key, Measured, Run, SCHEMA};

    use super::*;

    fn cell(kernel: &str, case: &str, found: u64) -> Cell {
        let key = Key {
            experiment: "fault-storm".into(),
            group: None,
            workload: "fault-storm".into(),
            case: case.into(),
            params: BTreeMap::new(),
            variant: "as-found".into(),
            machine: "here".into(),
            state: "as-found".into(),
            target: Target::Host,
            kernel: kernel.into(),
            seed: 1,
            program: "p".into(),
        };
        let check = Check {
            name: "faults by getrusage".into(),
            expected: 4096,
            found,
            tolerance: "0.5 % + 400".into(),
            within: found == 4096,
        };
        let measured = Measured {
            scored: true,
            metrics: Vec::new(),
            counters: BTreeMap::new(),
            gauges: BTreeMap::new(),
            duration: None,
            causes: BTreeMap::new(),
            checks: vec![check],
            skipped: Vec::new(),
            detail: serde_json::Value::Null,
        };
        Cell { schema: SCHEMA, key, measured, series: None, slow_path: None, run: run() }
    }

    fn run() -> Run {
        Run {
            date: "2026-01-02T03:04:05Z".into(),
            wall_s: 1.0,
            boot_s: None,
            host: "builder".into(),
            commit: "abc".into(),
            max_rss_kib: 1,
        }
    }

    /// With the files of a recorded 6.1.
    fn system(kernel: &str) -> System {
        let recording = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/proc/6.1-1n-512m/recomputed");
        let files = Capture::from_dir(&recording).expect("a recording");
        System {
            schema: SCHEMA,
            target: Target::Host,
            machine: "here".into(),
            kernel: kernel.into(),
            release: kernel.into(),
            accelerator: None,
            settings: BTreeMap::new(),
            captures: serde_json::json!({ "recomputed": files }),
            notes: Vec::new(),
            run: run(),
        }
    }

    /// What `format` makes of a result of these cells and systems.
    fn rendered(cells: &[Cell], kernels: &[&str], format: Format) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        let keys = cells.iter().map(|cell| cell.key.clone()).collect();
        let identity = Identity {
            program: "p".into(),
            keys,
            machines: vec![],
            simulated: vec![],
            layout: Layout::Head,
            sample: None,
        };
        let identity = serde_json::to_vec(&identity).expect("an identity serialises");
        std::fs::write(directory.path().join(IDENTITY_FILE), identity).expect("written");
        let mut store = Store::create(directory.path()).expect("an empty directory");
        let systems = kernels.iter().map(|kernel| Record::System(system(kernel)));
        for record in systems.chain(cells.iter().cloned().map(Record::Cell)) {
            store.append(&record).expect("appended");
        }
        render(directory.path(), None, format, Causes::No).expect("a result")
    }

    #[test]
    fn a_kernel_has_one_name_in_every_line_of_the_csv() {
        let csv = rendered(&[cell("6.1.1", "base", 4096)], &["6.1.1"], Format::Csv);
        let names = |prefix: &str| {
            let fields = csv.lines().map(|line| line.split(',').collect::<Vec<&str>>());
            let mine = fields.filter(|fields| fields[1].starts_with(prefix)).map(|fields| fields[3].to_owned());
            mine.collect::<BTreeSet<String>>()
        };
        assert_eq!(names("check."), ["host:6.1.1:here".to_owned()].into());
        let kernel_and_ours = ["host:6.1.1:here", "host:6.1.1:here:rules v6.1"].map(str::to_owned);
        assert_eq!(names("zone.recomputed."), kernel_and_ours.into());
    }

    #[test]
    fn failed_checks_are_lines_of_their_own() {
        let failed = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.starts_with("check failed")).map(str::to_owned).collect()
        };
        let good = cell("6.1.1", "base-threads-1", 4096);
        let bad = cell("6.1.1", "base-threads-2", 5000);
        let text = rendered(&[good.clone(), bad.clone()], &["6.1.1"], Format::Text);
        let line = "base-threads-2 faults by getrusage: expected 4096, found 5000 (tolerance 0.5 % + 400)";
        assert_eq!(failed(&text), [format!("check failed: host {line}")]);
        assert!(text.find(" no\n") < text.find(" yes\n"), "failures first:\n{text}");
        assert_eq!(failed(&rendered(&[good], &["6.1.1"], Format::Text)), [""; 0]);

        // Whatever else could be meant is named: the kernel, and how many of the seeds.
        let mut again = bad.clone();
        again.key.seed = 2;
        let text = rendered(&[bad, again], &["6.1.1", "6.1.2"], Format::Text);
        let line = line.replace(')', ", in 2 of 2 runs)");
        assert_eq!(failed(&text), [format!("check failed: host 6.1.1 {line}")]);
    }

    #[test]
    fn a_place_without_a_result_is_called_that() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        std::fs::write(&file, "").expect("written");
        for place in [directory.path(), &directory.path().join("nowhere"), &file] {
            let message = render(place, None, Format::Text, Causes::No).expect_err("no result").to_string();
            assert_eq!(message, format!("{} is not a result directory: it has no run.json", place.display()));
        }
        std::fs::write(directory.path().join(IDENTITY_FILE), "{").expect("written");
        let message = render(directory.path(), None, Format::Text, Causes::No).expect_err("no result").to_string();
        assert!(message.contains("run.json: EOF while parsing"), "{message}");
    }
}
