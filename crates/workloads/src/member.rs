//! The outcome of a service's process, as integers: phases, and latencies of many operations as counts by value.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use units::{Bytes, Picos, Time};

/// A process of a service, when it is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberOutcome {
    /// The process in the file.
    pub process: String,
    /// The number of this process among its copies.
    pub copy: u32,
    /// The kernel killed it.
    pub killed: bool,
    /// The phases of the process, in the order of the file; none where it was killed.
    pub phases: Vec<PhaseOutcome>,
}

/// A phase of a process, when it is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseOutcome {
    /// The phase in the file.
    pub name: String,
    /// When it began.
    pub start: Time,
    /// When it was over.
    pub end: Time,
    /// Operations that were due in this time, where they come at a rate for a time.
    pub asked: Option<u64>,
    /// Latencies of its operations, from when each was due.
    pub operations: Latencies,
    /// Latencies of pieces that were given back and taken anew; of copies of a process, of the call fork(2) alone.
    pub inner: Latencies,
    /// Bytes of its operations.
    pub bytes: u64,
    /// Times that it did not begin, as the one before was not over.
    pub skipped: u64,
    /// Programs and children that the kernel killed.
    pub killed: u64,
    /// Memory of the process at its end: of base pages and of huge pages. None where the kernel does not show that.
    pub resident: Option<(Bytes, Bytes)>,
}

/// Counts of latencies, each to 1 % (two significant digits). Integers alone: runs compare to the byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Latencies {
    /// Latencies in nanoseconds, upwards, and the number of operations of each.
    counts: Vec<(u64, u64)>,
}

/// Latencies while they are recorded.
#[derive(Debug)]
pub(crate) struct Recorder(Histogram<u64>);

impl Recorder {
    pub(crate) fn new() -> Self {
        Self(Histogram::new(2).expect("two significant digits are among those there are"))
    }

    pub(crate) fn record(&mut self, latency: Picos) {
        self.0.record(latency.as_nanos()).expect("the histogram grows");
    }

    pub(crate) fn counts(&self) -> Latencies {
        let counts = self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
        Latencies { counts: counts.collect() }
    }
}

impl Latencies {
    /// Adds the operations of somebody else.
    pub fn add(&mut self, others: &Self) {
        let mut all = std::collections::BTreeMap::new();
        for (value, count) in self.counts.iter().chain(&others.counts) {
            *all.entry(*value).or_insert(0) += count;
        }
        self.counts = all.into_iter().collect();
    }

    /// The number of operations.
    pub fn len(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The latency that a part of the operations, in millionths, does not exceed; none of no operations.
    pub fn percentile(&self, part: u32) -> Option<Picos> {
        let rank = (u128::from(self.len()) * u128::from(part)).div_ceil(1_000_000).max(1);
        let mut seen = 0_u128;
        let value = self.counts.iter().find(|(_, count)| {
            seen += u128::from(*count);
            seen >= rank
        });
        value.map(|(value, _)| Picos::from_nanos(*value))
    }

    /// The longest latency.
    pub fn max(&self) -> Option<Picos> {
        self.counts.last().map(|(value, _)| Picos::from_nanos(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: impl IntoIterator<Item = u64>) -> Latencies {
        let mut recorder = Recorder::new();
        micros.into_iter().for_each(|us| recorder.record(Picos::from_micros(us)));
        recorder.counts()
    }

    #[test]
    fn percentiles_are_right_to_a_hundredth() {
        let all = of(1..=1000);
        for (part, expected) in [(500_000, 500.0), (990_000, 990.0), (999_000, 999.0), (1_000_000, 1000.0)] {
            let found = all.percentile(part).unwrap().0 as f64 / 1e6;
            assert!((found / expected - 1.0).abs() < 0.01, "{part}: {found}");
        }
        assert_eq!((all.len(), all.max()), (1000, all.percentile(1_000_000)));
        assert_eq!((of([]).percentile(500_000), of([]).max()), (None, None));
    }

    #[test]
    fn those_of_two_threads_are_added() {
        let mut both = of([1, 2, 3]);
        both.add(&of([3, 400]));
        assert_eq!(both, of([1, 2, 3, 3, 400]));
    }
}
