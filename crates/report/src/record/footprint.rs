//! The memory of a guest on its host over time: what was there, and when it fell.

use serde::{Deserialize, Serialize};

use crate::series::{Sample, Series};

/// The column of [`Footprint::series`] that is the memory of the guest on its host, in base pages.
pub const RESIDENT: &str = "host_resident";
/// Base pages of that in huge pages of the host; only where that is known.
pub const HUGE: &str = "host_anon_huge";

/// Base pages of the guest's memory that are in use by its own count; only where that is known.
pub const USED: &str = "guest_used";

/// A fall of less between two samples is not one: 1 MiB, in base pages.
const FALL: u64 = 256;
/// Base pages of a MiB.
pub(crate) const MIB: f64 = 256.0;

/// The activity of a guest over time, and the memory that its host had for it meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// The guest's monotonic clock at time 0, in microseconds; 0 where both are the same.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch_us: u64,
    /// Memory that the workload held, earliest first.
    pub held: Vec<Held>,
    /// [`RESIDENT`], [`HUGE`] and [`USED`], at times of the workload; no rows until they are there.
    pub series: Series,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// From a time on, so much was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// When that began to change, in microseconds.
    pub at_us: u64,
    /// When it had changed, in microseconds.
    pub done_us: u64,
    /// Bytes of anonymous memory.
    pub anonymous: u64,
    /// Bytes of files.
    pub file: u64,
}

/// The memory of the guest fell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The first sample that is lower, in microseconds.
    pub at_us: u64,
    /// By so many base pages, in one sample or in several that follow each other.
    pub pages: u64,
    /// Since when the guest had no more use for some of its memory, in microseconds: the last time before.
    pub freed_us: Option<u64>,
}

impl Step {
    /// By how much, in MiB.
    pub fn mib(&self) -> f64 {
        self.pages as f64 / MIB
    }
}

impl Footprint {
    /// Base pages on the host at each time.
    pub fn resident(&self) -> Vec<(u64, u64)> {
        self.column(RESIDENT)
    }

    /// Base pages that the guest has in use at each time; none where that is not known.
    pub fn used(&self) -> Vec<(u64, u64)> {
        self.column(USED)
    }

    fn column(&self, name: &str) -> Vec<(u64, u64)> {
        let column = self.series.columns.iter().position(|known| known == name);
        let still = self.series.still.get(name);
        let value = |sample: &Sample| match (column, still) {
            (Some(column), _) => Some((sample.at_us, sample.values[column])),
            (None, still) => still.map(|value| (sample.at_us, *value)),
        };
        self.series.samples().iter().filter_map(value).collect()
    }

    /// Each time that it fell. A step is over with the first sample that is not lower than the one before it.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let mut falls = false;
        for pair in self.resident().windows(2) {
            let [(_, before), (at_us, now)] = *pair else { unreachable!("windows of two") };
            let pages = before.saturating_sub(now);
            match steps.last_mut() {
                _ if pages < FALL => falls = false,
                Some(step) if falls => step.pages += pages,
                _ => {
                    falls = true;
                    steps.push(Step { at_us, pages, freed_us: self.freed_before(at_us) });
                }
            }
        }
        steps
    }

    fn freed_before(&self, at_us: u64) -> Option<u64> {
        let less = |pair: &&[Held]| pair[1].anonymous < pair[0].anonymous || pair[1].file < pair[0].file;
        let mut before = self.held.windows(2).filter(less).map(|pair| pair[1]).filter(|held| held.at_us <= at_us);
        before.next_back().map(|held| held.done_us.min(at_us))
    }
}
