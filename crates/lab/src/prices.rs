//! What primitive operations take on a machine, each price with its source.
//!
//! A machine file may give prices; what it leaves open is taken from [`GENERIC`]. No price is taken from a benchmark that
//! is then compared: fault-storm least of all.

use mm::cost::{Prices, Work};
use units::Picos;

/// A price in picoseconds, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// The operation.
    pub work: Work,
    /// What it takes.
    pub takes: Picos,
    /// Who measured it, or that it is an assumption.
    pub source: &'static str,
}

const fn ns(work: Work, nanos: u64, source: &'static str) -> Price {
    Price { work, takes: Picos::from_nanos(nanos), source }
}

/// Prices of a server of about 2020, for machines that nobody has calibrated. The parts of a fault are assumptions that
/// add up to the 1.0 us median of a minor fault measured on an i7 of the 11th generation with 6.6.
pub const GENERIC: &[Price] = &[
    ns(Work::UserTouch, 4, "assumed: a store that misses the caches but not the TLB, overlapped"),
    ns(Work::Trap, 350, "assumed: entry, exit and the VMA lookup of a fault, of its 1.0 us median (i7 11th gen, 6.6)"),
    ns(Work::SystemCall, 150, "assumed: entry and exit with mitigations off"),
    ns(Work::VmaUpdate, 400, "assumed: find, insert or remove in the tree"),
    ns(Work::PteWrite, 20, "assumed: one cache line, mostly present"),
    ns(Work::PteScan, 2, "assumed: eight entries per cache line"),
    ns(Work::TlbFlush, 200, "assumed: full flush of one CPU and its misses"),
    ns(Work::ClearFrame, 281, "14.55 GB/s page by page, AMD Milan: A. Arora, x86/clear_huge_page v2, 30 Aug 2023"),
    ns(Work::CopyFrame, 700, "assumed: 6 GB/s, the middle of 3 to 10"),
    ns(Work::AllocFast, 60, "assumed: per-CPU list hit, counters and preparation"),
    ns(Work::FreeFast, 40, "assumed: per-CPU list push"),
    ns(Work::ListMove, 10, "assumed: two cache lines"),
    ns(Work::LockPair, 20, "assumed: uncontended lock and unlock"),
    ns(Work::LruMove, 15, "assumed: batched"),
];

/// The prices of a machine that gives none of its own.
///
/// # Panics
/// Never: a test sees to it that every operation has a price.
pub fn generic() -> Prices {
    let of = |work: Work| GENERIC.iter().find(|price| price.work == work).map(|price| price.takes);
    Prices::new(|work| of(work).expect("every operation has a generic price"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_one_price_with_a_source() {
        for work in Work::ALL {
            assert_eq!(GENERIC.iter().filter(|price| price.work == *work).count(), 1, "{}", work.name());
        }
        assert!(GENERIC.iter().all(|price| !price.source.is_empty() && price.takes > Picos(0)));
        let _ = generic();
    }
}
