//! From a result directory to what is printed: a pure function of the files, so that tables are redrawn without rerunning.

mod zones;

use std::{collections::BTreeMap, path::Path};

use report::{Cell, Record, Report, Skipped, Store, System, Target};
use serde::Serialize;

use self::zones::ZoneTables;
use crate::{
    experiment::Experiment,
    plan::UsageError,
    provenance,
    run::{self, read_identity},
};

/// A counter is shown when it moved at least this often in some case: less is within what reading counters costs.
const COUNTER_THRESHOLD: u64 = 400;
/// Skipped measurements named one by one; the rest is counted.
const NAMED_SKIPS: usize = 4;

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
}

/// Prints the result in `directory`.
pub fn render(directory: &Path, format: Format) -> Result<String, UsageError> {
    let shown = read(directory)?;
    Ok(match format {
        Format::Text => text(&shown),
        Format::Csv => report::to_csv(&shown.report, &zones::csv(&shown.zones, &shown.experiment)),
        Format::Json => json(&shown),
    })
}

/// The rules that the arithmetic knows, for `pagelab list variants`.
pub fn variants() -> Vec<(String, String)> {
    let about = |variant: &&mm::Variant| format!("zone and watermark arithmetic of Linux {}", &variant.name[1..]);
    mm::variant::ALL.iter().map(|variant| (variant.name.to_owned(), about(variant))).collect()
}

fn read(directory: &Path) -> Result<Shown, UsageError> {
    let identity = read_identity(directory)?;
    let contents = Store::read(directory).map_err(|error| UsageError(error.to_string()))?;
    let place: BTreeMap<_, _> = identity.keys.iter().zip(0..).collect();
    let skipped = run::skips(&contents.records);
    let mut systems: Vec<System> = Vec::new();
    let mut boots = Vec::new();
    for record in &contents.records {
        if let Record::System(system) = record {
            // A resumed run or a further seed boots again; what the kernel computes of its zones is the same.
            let same = |known: &System| (known.target, &known.kernel) == (system.target, &system.kernel);
            boots.extend(system.run.boot_s.map(|boot_s| (system.kernel.clone(), boot_s)));
            if !systems.iter().any(same) {
                systems.push(system.clone());
            }
        }
    }
    let mut cells = report::cells(contents.records);
    cells.sort_by_key(|cell| place.get(&cell.key).copied());
    let report = Report::new(&cells, COUNTER_THRESHOLD);
    let zones = systems.iter().map(ZoneTables::of).collect();
    let experiment = identity.keys.first().map_or_else(String::new, |key| key.experiment.clone());
    Ok(Shown {
        experiment,
        missing: identity.keys.len().saturating_sub(cells.len()),
        cells,
        systems,
        boots,
        skipped,
        report,
        zones,
    })
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
    for system in &shown.systems {
        let mut words = vec![format!("{:<5}{} on {}", system.target.name(), system.kernel, system.machine)];
        words.extend(system.accelerator.as_ref().map(|accelerator| format!("under QEMU ({accelerator})")));
        words.extend(first_operation(shown, &system.kernel));
        words.extend(system.notes.iter().cloned());
        for (name, value) in &system.settings {
            words.push(format!("{name}={value}"));
        }
        text += &(words.join(", ") + "\n");
    }
    if shown.systems.iter().any(|system| system.target == Target::Vm) {
        text +=
            "In a guest under translation counters are trustworthy, times are not; compare times within one column.\n";
    }
    text + "\n"
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

/// What is not there, and why.
fn tail(shown: &Shown) -> String {
    let mut lines = Vec::new();
    for skipped in &shown.skipped {
        lines.push(format!("skipped: {} {}: {}", skipped.target, skipped.what, skipped.reason));
    }
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

/// Everything a program may want.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    program: &'a str,
    report: &'a Report,
    zones: &'a [ZoneTables],
    cells: &'a [Cell],
    systems: &'a [System],
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
        skipped: &shown.skipped,
        missing: shown.missing,
    };
    serde_json::to_string_pretty(&document).expect("a report serialises") + "\n"
}
