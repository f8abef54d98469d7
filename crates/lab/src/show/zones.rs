//! The second table of a run: every zone's marks, protection and per-CPU limits, the kernel's and ours; of a simulated machine
//! ours alone.

use std::collections::BTreeMap;

use linux::procfs::{Capture, Snapshot};
use memory::pcp::PcpHigh;
use report::{Column, CsvLine, System, Target};
use rules::variant::{self, Named, Variant};
use serde::Serialize;
use units::Frames;

use crate::{
    arithmetic::{self, ComputedZone, ComputedZones, Figures, Phase, ZoneComparison},
    machine::Machine,
    plan::SimulatedColumn,
    run::SIMULATED_MACHINE,
    source::Source,
    variant::Recorded,
};

/// Phases of a system in the order in which they are shown.
const PHASES: [(&str, Phase); 3] =
    [("recomputed", Phase::Recomputed), ("live", Phase::Live), ("booted", Phase::Booted)];

/// The comparisons of one system, one per moment at which its files were read.
#[derive(Debug, Serialize)]
pub(super) struct ZoneTables {
    #[serde(flatten)]
    column: Column,
    comparisons: Vec<ZoneComparison>,
    /// Of a simulated machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    computed: Option<ComputedZones>,
    /// Why a moment has none.
    problems: Vec<String>,
}

impl ZoneTables {
    /// Of a system; of a simulated one, `simulated` says which rules it has, of a real one `kept`, by its release. Where the
    /// result does not say, a real kernel is held against what is known of it today.
    pub(super) fn of(system: &System, simulated: &[SimulatedColumn], kept: &BTreeMap<String, Recorded>) -> Self {
        let column = system.column();
        let mut tables = Self { column, comparisons: Vec::new(), computed: None, problems: Vec::new() };
        let rules = simulated.iter().find(|what| what.column == tables.column);
        if let (Some(what), Some(machine)) = (rules, system.captures[SIMULATED_MACHINE].as_str()) {
            match compute(what, machine) {
                Ok(computed) => tables.computed = Some(computed),
                Err(problem) => tables.problems.push(problem),
            }
        }
        for (name, phase) in PHASES {
            let Some(files) = system.captures.get(name) else { continue };
            match compare(files, phase, kept.get(&system.release)) {
                Ok(comparison) => tables.comparisons.push(comparison),
                Err(problem) => tables.problems.push(format!("{name}: {problem}")),
            }
        }
        tables
    }

    pub(super) fn text(&self) -> String {
        let Column { target, kernel, machine, .. } = &self.column;
        let mut text = String::new();
        for comparison in &self.comparisons {
            text += &format!("Zones of {target} {kernel} on {machine}\n");
            text += &(comparison.table().join("\n") + "\n\n");
        }
        if let Some(computed) = &self.computed {
            text += &format!("Zones of {target} {kernel} on {machine}\n");
            text += &(computed.table().join("\n") + "\n\n");
        }
        for problem in &self.problems {
            text += &format!("skipped: zones of {target} {kernel}: {problem}\n");
        }
        text
    }

    /// What is not as it should be, in one line.
    pub(super) fn difference(&self) -> Option<String> {
        let Column { target, kernel, machine, .. } = &self.column;
        let zones = || self.comparisons.iter().flat_map(|comparison| &comparison.zones);
        let differ = zones().filter(|zone| !zone.mismatches.is_empty()).count();
        let what = match (self.problems.first(), differ) {
            (Some(problem), _) => format!("skipped: {problem}"),
            (None, 0) => return None,
            (None, differ) => format!("{differ} of {} differ from ours (--full)", zones().count()),
        };
        Some(format!("zones of {target} {kernel} on {machine}: {what}"))
    }

    /// Whether a real kernel said what its figures are.
    pub(super) fn is_real(&self) -> bool {
        self.column.target != Target::Sim && !self.comparisons.is_empty()
    }
}

/// The zones of a simulated machine, which is recorded as a machine file.
fn compute(what: &SimulatedColumn, machine: &str) -> Result<ComputedZones, String> {
    let source = Source::from_text(format!("{}.toml", what.column.machine), machine);
    let machine = Machine::from_source(&source, &linux::setting::names()).map_err(|error| error.to_string())?;
    let today = variant::built_in(&what.variant.name).or(variant::all().last()).expect("there are some");
    ComputedZones::of(&machine, &what.variant.name, &what.variant.rules_over(&today.rules)?)
}

fn compare(files: &serde_json::Value, phase: Phase, kept: Option<&Recorded>) -> Result<ZoneComparison, String> {
    let capture: Capture = serde_json::from_value(files.clone()).map_err(report::brief)?;
    let snapshot = Snapshot::parse(&capture).map_err(|error| error.to_string())?;
    let variant = Variant::for_version(snapshot.version.major, snapshot.version.minor);
    let today = variant.map_err(|error| error.to_string())?;
    let kept = kept.map(|kept| {
        let rules = kept.rules_over(&today.rules)?;
        Ok::<_, String>(Named { name: kept.name.clone(), rules, ..today.clone() })
    });
    arithmetic::compare(&snapshot, kept.transpose()?.as_ref().unwrap_or(today), phase)
        .map_err(|error| error.to_string())
}

/// Lines for the CSV: metric `zone.PHASE.FIGURE`, case the zone, and a column of ours beside each kernel's, which
/// is called as everywhere else. Of simulated machines the phase is `simulated`.
pub(super) fn csv(tables: &[ZoneTables], experiment: &str) -> Vec<CsvLine> {
    let mut lines = Vec::new();
    for table in tables {
        let kernel = table.column.label();
        let mut line = |metric: &str, case: &str, value: u64| {
            lines.push(CsvLine {
                experiment: experiment.to_owned(),
                metric: format!("zone.simulated.{metric}"),
                case: case.to_owned(),
                kernel: kernel.clone(),
                value: value.to_string(),
            });
        };
        if let Some(computed) = &table.computed {
            for ComputedZone { node, kind, figures, .. } in &computed.zones {
                let zone = format!("node{node}.{}", kind.name());
                for (figure, frames) in named(figures) {
                    line(&figure, &zone, frames.0);
                }
            }
            line("min_free_kbytes", "all", computed.min_free_kbytes);
        }
        for comparison in &table.comparisons {
            let ours = format!("{kernel}:rules {}", comparison.variant);
            let mut line = |figure: &str, case: &str, kernel: &str, value: u64| {
                let phase = serde_json::to_value(comparison.phase).expect("a phase serialises");
                lines.push(CsvLine {
                    experiment: experiment.to_owned(),
                    metric: format!("zone.{}.{figure}", phase.as_str().expect("a phase is a word")),
                    case: case.to_owned(),
                    kernel: kernel.to_owned(),
                    value: value.to_string(),
                });
            };
            for row in &comparison.zones {
                let zone = format!("node{}.{}", row.node, row.kind.name());
                for (who, figures) in [(&kernel, &row.kernel), (&ours, &row.ours)] {
                    for (figure, frames) in named(figures) {
                        line(&figure, &zone, who, frames.0);
                    }
                }
            }
            line("min_free_kbytes", "all", &kernel, comparison.min_free_kbytes.kernel_kib);
            line("min_free_kbytes", "all", &ours, comparison.min_free_kbytes.automatic_kib);
        }
    }
    lines
}

/// Every figure of a zone with its name, in frames.
fn named(figures: &Figures) -> Vec<(String, Frames)> {
    let marks = figures.marks;
    let mut named = vec![("min".to_owned(), marks.min), ("low".to_owned(), marks.low), ("high".to_owned(), marks.high)];
    named.extend(marks.promo.map(|promo| ("promo".to_owned(), promo)));
    named.extend(figures.protection.iter().enumerate().map(|(entry, frames)| (format!("protection{entry}"), *frames)));
    named.extend(figures.pcp_batch.map(|batch| ("pcp_batch".to_owned(), batch)));
    match figures.pcp_high {
        Some(PcpHigh::Fixed(high)) => named.push(("pcp_high".to_owned(), high)),
        Some(PcpHigh::Tuned { min, max }) => {
            named.extend([("pcp_high_min".to_owned(), min), ("pcp_high_max".to_owned(), max)]);
        }
        None => {}
    }
    named
}
