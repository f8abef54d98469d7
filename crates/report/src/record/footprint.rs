//! The memory of a guest on its host over time, with the times at which it fell.

use serde::{Deserialize, Serialize};

use crate::series::{Sample, Series};

/// Name of the column of [`Footprint::series`] with the guest's memory on the host, in base pages.
pub const RESIDENT: &str = "host_resident";
/// Name of the column with the part of that memory in the host's huge pages, in base pages; present if the host knows
/// it.
pub const HUGE: &str = "host_anon_huge";

/// Name of the column with the memory in use by the guest's own count, in base pages; present if the guest's count is
/// known.
pub const USED: &str = "guest_used";

/// Least fall between two samples that counts as a step: 1 MiB, in base pages.
const FALL: u64 = 256;
/// Base pages of a MiB.
pub(crate) const MIB: f64 = 256.0;

/// Memory that a guest's workload held over time, and the memory that the host had for the guest meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// The guest's monotonic clock at time 0, in microseconds; 0 where both are the same.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch_us: u64,
    /// Memory that the workload held, from the earliest time on.
    pub held: Vec<Held>,
    /// The columns [`RESIDENT`], [`HUGE`] and [`USED`] at the workload's times; no rows until the host's samples are
    /// added.
    pub series: Series,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Amounts of memory that the workload held from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// When the amount began to change, in microseconds.
    pub at_us: u64,
    /// When the change was complete, in microseconds.
    pub done_us: u64,
    /// Bytes of anonymous memory.
    pub anonymous: u64,
    /// Bytes of mapped files.
    pub file: u64,
}

/// A step in which the guest's memory on the host fell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The first lower sample, in microseconds.
    pub at_us: u64,
    /// The size of the fall in base pages, over one sample or several consecutive ones.
    pub pages: u64,
    /// Last time before the step at which the guest released memory, in microseconds.
    pub freed_us: Option<u64>,
}

impl Step {
    /// The size of the fall, in MiB.
    pub fn mib(&self) -> f64 {
        self.pages as f64 / MIB
    }
}

impl Footprint {
    /// Base pages on the host at each sample's time.
    pub fn resident(&self) -> Vec<(u64, u64)> {
        self.column(RESIDENT)
    }

    /// Base pages in use by the guest's own count at each sample's time; none if that is not known.
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

    /// Every fall of the guest's memory. A step ends before the first sample that is not lower than the sample before
    /// it.
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
