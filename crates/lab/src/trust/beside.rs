//! Counters of simulated cells beside a real kernel's: the last recorded comparison of the fixed list, and the newest draw
//! with its ceiling.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::text::Row;
use crate::{
    fidelity::{Tally, draw::WORKLOADS},
    provenance::PROGRAM_HASH,
};

/// What `cargo xtask fidelity` wrote last.
static RECORDED: &str = include_str!("../../../../docs/fidelity.json");

#[derive(Deserialize)]
struct Recorded {
    kernel: String,
    program: String,
    cells: Vec<Cell>,
}

#[derive(Deserialize)]
struct Cell {
    /// Guest, experiment, case and settings: `one-cpu thpscale 1 defrag=always`.
    cell: String,
    counters: Vec<Counter>,
}

#[derive(Deserialize)]
struct Counter {
    #[serde(rename = "counter")]
    name: String,
    kernel: f64,
    ours: f64,
    within: bool,
}

/// The counters of one experiment.
pub(super) struct Beside {
    compared: usize,
    outside: usize,
    /// The one that is off by the largest factor, in words.
    worst: String,
}

/// Names the build of pagelab that recorded a comparison, if it is not this one. Rules may have changed since.
fn recorded_by(program: &str) -> String {
    if program == PROGRAM_HASH {
        return String::new();
    }
    format!("; by simulator {}, not this one", program.get(..8).unwrap_or(program))
}

/// The comparison of this experiment, if any of its counters were compared.
pub(super) fn of(experiment: &str) -> Option<Beside> {
    let recorded: Recorded = serde_json::from_str(RECORDED).expect("docs/fidelity.json is written by a program");
    let cells = recorded.cells.iter().filter(|cell| cell.cell.split_whitespace().nth(1) == Some(experiment));
    let counters: Vec<_> = cells.flat_map(|cell| cell.counters.iter().map(move |counter| (cell, counter))).collect();
    let outside = || counters.iter().filter(|(_, counter)| !counter.within);
    let worst = outside().max_by(|(_, a), (_, b)| a.factor().total_cmp(&b.factor()));
    let in_words = |(cell, Counter { name, kernel, ours, .. }): &(&Cell, &Counter)| {
        let by = recorded_by(&recorded.program);
        format!("{name} of {}: {kernel:.0} on {}, ours {ours:.0}{by}", cell.cell, recorded.kernel)
    };
    (!counters.is_empty()).then(|| Beside {
        compared: counters.len(),
        outside: outside().count(),
        worst: worst.map(in_words).unwrap_or_default(),
    })
}

impl Counter {
    /// How far it is off, up or down; one event more on both sides, as there may be none.
    fn factor(&self) -> f64 {
        let factor = (self.ours + 1.0) / (self.kernel + 1.0);
        factor.max(1.0 / factor)
    }
}

impl Beside {
    pub(super) fn row(&self) -> Row {
        let Self { compared, outside, worst } = self;
        Row { name: "counters off, fixed list", count: *outside, of: *compared, worst: worst.clone() }
    }
}

// ---- The newest draw

/// The record of the last `cargo xtask fidelity --draw`; `null` where no draw was recorded.
static DRAWN: &str = include_str!("../../../../docs/fidelity-draw.json");

#[derive(Deserialize)]
struct Recording {
    seed: String,
    comparison: Compared,
    ceiling: Option<Tally>,
    experiments: BTreeMap<String, Score>,
}

#[derive(Deserialize)]
struct Compared {
    program: String,
    total: Tally,
    cells: Vec<serde_json::Value>,
}

#[derive(Clone, Copy, Deserialize)]
struct Score {
    ours: Tally,
    ceiling: Tally,
}

/// Counters of drawn cells, of one experiment or of all.
pub(super) struct Drawn {
    ours: Tally,
    /// Their ceiling, and of which draw they are, in words.
    words: String,
}

/// The comparison of the newest draw: of this experiment if it was drawn; of the whole draw if the experiment could have been
/// drawn and was not.
pub(super) fn drawn(experiment: &str) -> Option<Drawn> {
    drawn_of(DRAWN, experiment)
}

pub(super) fn drawn_of(recorded: &str, experiment: &str) -> Option<Drawn> {
    let draw: Option<Recording> =
        serde_json::from_str(recorded).expect("docs/fidelity-draw.json is written by a program");
    let Recording { seed, comparison, ceiling, experiments } = draw?;
    let can_be_drawn = WORKLOADS.iter().any(|workload| workload.experiment == experiment);
    let score = experiments.get(experiment).filter(|score| score.ours.compared > 0);
    if score.is_none() && !can_be_drawn {
        return None;
    }
    let ours = score.map_or(comparison.total, |score| score.ours);
    let kernel = score.map_or(ceiling, |score| Some(score.ceiling)).filter(|kernel| kernel.compared > 0);
    let ceiling = kernel.map_or_else(
        || "without a ceiling: cells were booted once".to_owned(),
        |kernel| {
            let share = |tally: Tally| tally.share().unwrap_or_default();
            let (ours, kernel, off) = (share(ours), share(kernel), kernel.outside());
            format!("{ours} within; a kernel beside its own boots {kernel} ({off} off)")
        },
    );
    let whose = if score.is_some() { "draw" } else { "of other workloads: draw" };
    let by = recorded_by(&comparison.program);
    let words = format!("{ceiling}; {whose} {seed}, {} cells{by}", comparison.cells.len());
    Some(Drawn { ours, words })
}

impl Drawn {
    pub(super) fn row(&self) -> Row {
        let Self { ours, words } = self;
        Row { name: "counters off, drawn cells", count: ours.outside(), of: ours.compared, worst: words.clone() }
    }
}
