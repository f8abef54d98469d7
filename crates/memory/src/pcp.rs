//! Linux: mm/page_alloc.c (v3.9 to v6.18).
//! Differs: the tuning of `high` between its bounds is left to the kernel.

pub mod lists;
pub mod stack;

use rules::{
    variant::{PcpHighRule, Variant},
    zone::Settings,
};
use serde::{Deserialize, Serialize};
use units::Frames;

/// Limits of one CPU's page list in one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcpLimits {
    /// Frames moved between the list and the buddy allocator at a time.
    pub batch: Frames,
    /// Frames at which the list gives some back.
    pub high: PcpHigh,
}

/// Frames at which a CPU's list gives some back to the buddy allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PcpHigh {
    /// One number of frames for every CPU, at all times.
    Fixed(Frames),
    /// A number of each CPU's own, which the kernel tunes between these bounds (6.7 and later).
    Tuned {
        /// Lower bound, `high_min`.
        min: Frames,
        /// Upper bound, `high_max`.
        max: Frames,
    },
}

/// Largest batch under the old `vm.percpu_pagelist_fraction`, in frames.
// pageset_set_high, mm/page_alloc.c (v5.10): PAGE_SHIFT * 8.
const FRACTION_BATCH_MAX: u64 = 96;

/// `high_max` of all CPUs together is one part in this many of the zone.
// MIN_PERCPU_PAGELIST_HIGH_FRACTION, mm/page_alloc.c (v6.7).
const HIGH_MAX_PART: u64 = 8;

/// The limits in a zone of `managed` frames whose Low mark is `low`, shared by `cpus` CPUs (at least 1).
///
/// `zone_set_pageset_high_and_batch` and `zone_highsize`, mm/page_alloc.c (v6.1, v6.7); `pageset_set_high_and_batch`
/// (v3.9 to v5.10).
pub fn limits(managed: Frames, low: Frames, cpus: u64, settings: &Settings, rules: &Variant) -> PcpLimits {
    assert!(cpus > 0, "a zone is shared by at least one CPU");
    let step = batch_step(managed, rules.pcp_batch_limit_frames());
    let batch = step.max(Frames(1));
    let fraction = match settings.percpu_pagelist_high_fraction {
        0 => None,
        fraction => Some(Frames(managed.0 / u64::from(fraction))),
    };
    let per_cpu = |total: Frames| Frames(total.0 / cpus).max(batch * 4);
    match (rules.pcp_high, fraction) {
        (PcpHighRule::SixBatches, None) => PcpLimits { batch, high: PcpHigh::Fixed(step * 6) },
        (PcpHighRule::SixBatches, Some(high)) => {
            let batch = Frames((high.0 / 4).clamp(1, FRACTION_BATCH_MAX));
            PcpLimits { batch, high: PcpHigh::Fixed(high) }
        }
        (PcpHighRule::LowMarkPerCpu, _) => PcpLimits { batch, high: PcpHigh::Fixed(per_cpu(fraction.unwrap_or(low))) },
        (PcpHighRule::Tuned, Some(total)) => {
            PcpLimits { batch, high: PcpHigh::Tuned { min: per_cpu(total), max: per_cpu(total) } }
        }
        (PcpHighRule::Tuned, None) => {
            let most = Frames(managed.0 / HIGH_MAX_PART);
            PcpLimits { batch, high: PcpHigh::Tuned { min: per_cpu(low), max: per_cpu(most) } }
        }
    }
}

/// The batch before rounding: one less than a power of two near a 4096th of the zone; 0 in a small zone.
/// `zone_batchsize`, mm/page_alloc.c.
fn batch_step(managed: Frames, limit: Frames) -> Frames {
    let quarter = (managed.0 / 1024).min(limit.0) / 4;
    let quarter = quarter.max(1);
    let power = 1 << (quarter + quarter / 2).ilog2();
    Frames(power - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::variant::named;

    fn fraction(fraction: u32) -> Settings {
        Settings { percpu_pagelist_high_fraction: fraction, ..Settings::default() }
    }

    fn of(mib: u64, rules: &Variant) -> PcpLimits {
        limits(units::Bytes::mib(mib).frames(), Frames(0), 1, &Settings::default(), rules)
    }

    #[test]
    fn batches_of_the_old_and_the_new_limit() {
        for (mib, old, new) in [(8, 1, 1), (64, 3, 3), (256, 15, 15), (1024, 31, 63), (16384, 31, 63)] {
            assert_eq!(of(mib, named("v3.9")).batch, Frames(old), "{mib} MiB");
            assert_eq!(of(mib, named("v4.1")).batch, Frames(old), "{mib} MiB");
            assert_eq!(of(mib, named("v4.20")).batch, Frames(new), "{mib} MiB");
            assert_eq!(of(mib, named("v6.18")).batch, Frames(new), "{mib} MiB");
        }
    }

    #[test]
    fn high_was_six_batches_and_nothing_in_a_tiny_zone() {
        assert_eq!(of(1024, named("v4.1")).high, PcpHigh::Fixed(Frames(186)));
        assert_eq!(of(1024, named("v5.10")).high, PcpHigh::Fixed(Frames(378)));
        assert_eq!(of(15, named("v5.10")), PcpLimits { batch: Frames(1), high: PcpHigh::Fixed(Frames(0)) });
        assert_eq!(of(0, named("v5.10")), PcpLimits { batch: Frames(1), high: PcpHigh::Fixed(Frames(0)) });
    }

    #[test]
    fn the_old_fraction_sets_both() {
        let with = |managed, n| limits(Frames(managed), Frames(0), 4, &fraction(n), named("v5.10"));
        assert_eq!(with(8_000, 8), PcpLimits { batch: Frames(96), high: PcpHigh::Fixed(Frames(1000)) });
        assert_eq!(with(1_600, 8), PcpLimits { batch: Frames(50), high: PcpHigh::Fixed(Frames(200)) });
        assert_eq!(with(7, 8), PcpLimits { batch: Frames(1), high: PcpHigh::Fixed(Frames(0)) });
    }

    #[test]
    fn high_is_the_low_mark_per_cpu_and_at_least_four_batches() {
        let with = |low, cpus, n| limits(Frames(124_819), Frames(low), cpus, &fraction(n), named("v6.1")).high;
        assert_eq!(with(7726, 1, 0), PcpHigh::Fixed(Frames(7726)));
        assert_eq!(with(7726, 3, 0), PcpHigh::Fixed(Frames(2575)));
        assert_eq!(with(7726, 1000, 0), PcpHigh::Fixed(Frames(4 * 31)));
        assert_eq!(with(7726, 2, 8), PcpHigh::Fixed(Frames(124_819 / 8 / 2)));
    }

    #[test]
    fn bounds_of_a_tuned_high() {
        // The recorded 6.18 host: Normal with low mark 18195 and two CPUs.
        let with = |n| limits(Frames(4_030_464), Frames(18_195), 2, &fraction(n), named("v6.7")).high;
        assert_eq!(with(0), PcpHigh::Tuned { min: Frames(9097), max: Frames(251_904) });
        assert_eq!(with(100), PcpHigh::Tuned { min: Frames(20152), max: Frames(20152) });
        assert_eq!(of(0, named("v6.7")).high, PcpHigh::Tuned { min: Frames(4), max: Frames(4) });
    }
}
