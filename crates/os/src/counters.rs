//! Counters of an operating system.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use units::Picos;

/// `getrusage(2)` of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rusage {
    /// Minor faults (`ru_minflt`).
    pub minor_faults: u64,
    /// Major faults (`ru_majflt`).
    pub major_faults: u64,
    /// Time in user mode.
    pub user: Picos,
    /// Time in the kernel.
    pub system: Picos,
}

impl Rusage {
    /// Resources used since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            minor_faults: self.minor_faults - earlier.minor_faults,
            major_faults: self.major_faults - earlier.major_faults,
            user: self.user - earlier.user,
            system: self.system - earlier.system,
        }
    }

    /// Adds what was used at another time.
    pub fn add(&mut self, other: &Self) {
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.user += other.user;
        self.system += other.system;
    }

    /// All faults. Which of them count as major differs between kernels, so comparisons use the sum.
    pub fn faults(&self) -> u64 {
        self.minor_faults + self.major_faults
    }
}

/// A reading of `/proc/vmstat`: names are the kernel's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VmStat(pub BTreeMap<String, u64>);

impl VmStat {
    /// How far each counter moved since `earlier`; counters that only one reading has are left out. Gauges (`nr_*`) can
    /// fall, so a movement is signed.
    pub fn since(&self, earlier: &Self) -> BTreeMap<String, i64> {
        let moved = |now: u64, then: u64| now.cast_signed().wrapping_sub(then.cast_signed());
        self.0
            .iter()
            .filter_map(|(name, now)| earlier.0.get(name).map(|then| (name.clone(), moved(*now, *then))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movements_are_signed_and_by_name() {
        let then = VmStat([("pgfault".to_owned(), 10), ("nr_free_pages".to_owned(), 50)].into());
        let now = VmStat([("pgfault".to_owned(), 17), ("nr_free_pages".to_owned(), 40), ("new".to_owned(), 1)].into());
        let moved = now.since(&then);
        assert_eq!(moved["pgfault"], 7);
        assert_eq!(moved["nr_free_pages"], -10);
        assert!(!moved.contains_key("new"));
    }
}
