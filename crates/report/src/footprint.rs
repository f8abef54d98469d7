//! A guest's memory on its host: area over time, amount at the end, and the steps in which it fell.

use crate::better::Better;
use crate::record::{Cell, Footprint, MIB, Metric};
use crate::short::WIDTH;
use crate::short::text::fit;

/// Most lines of steps that are printed for one run.
const STEPS: usize = 12;
/// Base pages of a GiB.
const GIB: f64 = 262_144.0;
const MICROS: f64 = 1e6;

impl Footprint {
    /// The footprint's metrics, computed from the series when a result is shown.
    pub fn metrics(&self) -> Vec<Metric> {
        let resident = self.resident();
        let Some(peak) = resident.iter().map(|(_, pages)| *pages).max() else {
            return Vec::new();
        };
        let metric = |name: &str, unit: &str, value: f64| Metric {
            name: name.to_owned(),
            class: None,
            part: None,
            unit: unit.to_owned(),
            better: Better::Lower,
            samples: vec![value],
        };
        vec![
            metric("host_memory_gib_min", "GiB min", area(&resident)),
            metric("host_memory_at_most_mib", "MiB", peak as f64 / MIB),
            metric("host_memory_at_end_mib", "MiB", held_at_end(&resident)),
        ]
    }
}

/// The area below the samples (microseconds, base pages), in GiB minutes. A sample holds until the following
/// sample.
pub(crate) fn area(samples: &[(u64, u64)]) -> f64 {
    let span = |pair: &[(u64, u64)]| pair[0].1 as f64 * (pair[1].0 - pair[0].0) as f64;
    samples.windows(2).map(span).sum::<f64>() / GIB / MICROS / 60.0
}

/// The last sample, in MiB.
pub(crate) fn held_at_end(samples: &[(u64, u64)]) -> f64 {
    samples.last().map_or(0.0, |(_, pages)| *pages as f64 / MIB)
}

/// The steps of each cell that has a guest's memory over time, in 80 columns.
pub fn footprint_text(cells: &[Cell]) -> String {
    let with = cells.iter().filter_map(|cell| Some((cell, cell.footprint.as_ref()?)));
    let with = with.filter(|(_, footprint)| !footprint.resident().is_empty());
    let texts: Vec<String> = with.map(|(cell, footprint)| text(cell, footprint)).collect();
    if texts.is_empty() {
        return String::new();
    }
    format!("Steps by which the guest's memory on its host fell (free: the last before)\n{}", texts.join(""))
}

fn text(cell: &Cell, footprint: &Footprint) -> String {
    let key = &cell.key;
    let who = format!("{} {} on {}, {}, seed {}", key.target, key.kernel, key.machine, key.case, key.seed);
    let steps = footprint.steps();
    if steps.is_empty() {
        return fit(&format!("{who}: none"), WIDTH) + "\n";
    }
    let mut text = format!("{}\n", fit(&who, WIDTH));
    text += &format!("{:>10} {:>10} {:>14} {:>14}\n", "MiB", "at s", "s after free", "s after step");
    let mut before: Option<u64> = None;
    for step in steps.iter().take(STEPS) {
        let seconds = |us: u64| format!("{:.2}", us as f64 / MICROS);
        let since = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), |us| seconds(step.at_us - us));
        let mib = format!("{:.1}", step.pages as f64 / MIB);
        let (free, last) = (since(step.freed_us), since(before.replace(step.at_us)));
        text += &format!("{mib:>10} {:>10} {free:>14} {last:>14}\n", seconds(step.at_us));
    }
    if steps.len() > STEPS {
        let rest = steps[STEPS..].iter().map(|step| step.pages).sum::<u64>() as f64 / MIB;
        text += &format!("{:>10.1} in {} more\n", rest, steps.len() - STEPS);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::{Held, RESIDENT, Step},
        series::{Sample, Series},
    };

    /// A footprint with one sample every 100 ms, in MiB.
    fn footprint(mib: &[u64]) -> Footprint {
        let sample = |(at, mib): (u64, &u64)| Sample { at_us: at * 100_000, values: vec![mib * 256] };
        let samples: Vec<Sample> = (1..).zip(mib).map(sample).collect();
        let held = |at_us, done_us, anonymous| Held { at_us, done_us, anonymous, file: 0 };
        let held = vec![held(0, 150_000, 8), held(250_000, 310_000, 0), held(900_000, 900_000, 0)];
        let series = Series::new(100_000_000_000, &[RESIDENT.to_owned()], &samples);
        Footprint { epoch_us: 0, held, series }
    }

    #[test]
    fn a_step_is_a_fall_without_a_pause() {
        let steps = footprint(&[10, 700, 700, 600, 448, 448, 500, 200, 200]).steps();
        let step = |at_us, mib: u64, freed_us| Step { at_us, pages: mib * 256, freed_us };
        assert_eq!(steps, [step(400_000, 252, Some(310_000)), step(800_000, 300, Some(310_000))]);
        assert_eq!(footprint(&[700, 600]).steps(), [step(200_000, 100, None)], "nothing was freed before");
        assert_eq!(footprint(&[10, 700, 700, 700]).steps(), []);
        // The fall is seen while memory is unmapped.
        assert_eq!(footprint(&[1, 9, 5]).steps(), [step(300_000, 4, Some(300_000))]);
    }

    #[test]
    fn little_falls_are_none() {
        let mut footprint = footprint(&[]);
        let samples = [1000, 745, 490].map(|pages| Sample { at_us: pages, values: vec![pages] });
        let samples: Vec<Sample> = (0..).zip(samples).map(|(at_us, sample)| Sample { at_us, ..sample }).collect();
        footprint.series = Series::new(1, &[RESIDENT.to_owned()], &samples);
        assert_eq!(footprint.steps(), []);
    }

    #[test]
    fn the_area_is_of_what_was_there_until_the_next_sample() {
        let metrics = footprint(&[1024, 0, 512]).metrics();
        let values: Vec<f64> = metrics.iter().map(|metric| metric.samples[0]).collect();
        assert_eq!(values, [0.1 / 60.0, 1024.0, 512.0]);
        assert_eq!(footprint(&[]).metrics(), []);
        let still = footprint(&[64, 64, 64]);
        assert_eq!(still.resident().len(), 3, "a column that rests is no column of rows");
        assert_eq!(still.metrics()[1].samples, [64.0]);
    }
}
