//! Counters of simulated cells beside those of a real kernel: the last comparison that was recorded.

use serde::Deserialize;

use super::text::Row;

/// What `cargo xtask fidelity` wrote last.
static RECORDED: &str = include_str!("../../../../docs/fidelity.json");

#[derive(Deserialize)]
struct Recorded {
    kernel: String,
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

/// Those of this experiment, if any were compared.
pub(super) fn of(experiment: &str) -> Option<Beside> {
    let recorded: Recorded = serde_json::from_str(RECORDED).expect("docs/fidelity.json is written by a program");
    let cells = recorded.cells.iter().filter(|cell| cell.cell.split_whitespace().nth(1) == Some(experiment));
    let counters: Vec<_> = cells.flat_map(|cell| cell.counters.iter().map(move |counter| (cell, counter))).collect();
    let outside = || counters.iter().filter(|(_, counter)| !counter.within);
    let worst = outside().max_by(|(_, a), (_, b)| a.factor().total_cmp(&b.factor()));
    let in_words = |(cell, Counter { name, kernel, ours, .. }): &(&Cell, &Counter)| {
        format!("{name} of {}: {kernel:.0} on {}, ours {ours:.0}", cell.cell, recorded.kernel)
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
        Row { name: "counters off", count: *outside, of: *compared, worst: worst.clone() }
    }
}
