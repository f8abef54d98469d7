//! Linux: the history of mm/page_alloc.c and mm/khugepaged.c (v3.9 to v6.18).
//! Differs: one constant per release in which a rule changed or that an experiment names; development kernels between
//! two releases have the older one's rules.

use std::fmt;

use serde::Serialize;
use units::{Bytes, Frames};

use crate::{buddy::End, vma::MmapAlign};

/// A kernel's rules as data: each is its parent plus a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Variant {
    /// The variant's name, such as "v6.1".
    pub name: &'static str,
    /// The first release (major, minor) with these rules.
    pub since: (u32, u32),
    /// Distance between two watermarks.
    pub mark_step: MarkStep,
    /// Is there a mark above high, for promotion between memory tiers?
    pub promo_mark: bool,
    /// How ZONE_MOVABLE takes part in `min_free_kbytes`.
    pub movable_marks: MovableMarks,
    /// What a `vm.lowmem_reserve_ratio` of 0 means.
    pub reserve_ratio_zero: RatioZero,
    /// What a zone without managed frames keeps in reserve.
    pub empty_zone_reserve: EmptyReserve,
    /// Where a CPU's `batch` stops growing with the zone.
    pub pcp_batch_limit: Bytes,
    /// How long a CPU's list may grow.
    pub pcp_high: PcpHighRule,
    /// The most that the kernel chooses for `vm.min_free_kbytes` by the size of memory, in KiB.
    pub min_free_kbytes_max: u64,
    /// Zones that count in the `min_free_kbytes` recommended for transparent huge pages.
    pub thp_zones: ThpZones,
    /// How mappings without an address are placed.
    pub mmap_align: MmapAlign,
    /// What a store to a huge page does that others map too.
    pub huge_cow: HugeCow,
    /// What a request does that finds no free block of its own type.
    pub fallback: FallbackRules,
    /// Where it turns when there is no other type either.
    pub last_resort: LastResort,
    /// What an atomic request for more than one frame leaves for the next one.
    pub high_atomic: HighAtomic,
    /// Which free pageblocks become one block.
    pub merging: Merging,
    /// What a request for more than one frame must find above a watermark.
    pub watermark_orders: WatermarkOrders,
    /// Does a request for the Normal zone rather go to the same node's DMA32 than break up a pageblock of another type
    /// (`ALLOC_NOFRAGMENT`)?
    pub nofragment: bool,
    /// Where blocks go that nobody just used: those given at boot, those moved between types.
    pub moved_end: End,
    /// Which blocks per-CPU lists hold.
    pub pcp_lists: PcpLists,
    /// How a per-CPU list decides how much to give back.
    pub pcp_free: PcpFree,
    /// In which order the lists of a CPU give back.
    pub pcp_drain: PcpDrain,
}

/// What a store to a huge page does that others map too, or to the huge zero page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum HugeCow {
    /// It gets a huge page of its own; without one, 512 base pages.
    Copy,
    /// The PMD is split, and the store gets one base page ("thp: change CoW semantics for anon-THP", 5.8).
    SplitPmd,
}

/// What a request does that finds no free block of its own type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FallbackRules {
    /// It breaks the largest block of another type; reclaimable requests take the free frames around it, others only
    /// from large blocks; half a pageblock makes it theirs.
    ReclaimableSteals,
    /// The same, with the right of reclaimable requests for unmovable ones.
    KernelSteals,
    /// Allocated frames of a like kind count towards the half, and a movable request that may not take more than it
    /// found breaks the smallest block.
    CountsAlike,
}

/// Where a request turns when no other type has a block for it either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LastResort {
    /// To pageblocks kept for this. Frames of theirs that a per-CPU list drew and gives back go to the type that they
    /// were drawn for ("mm/page_alloc: prevent MIGRATE_RESERVE pages from being misplaced", 3.16, ends that).
    ReserveMisplaced,
    /// To pageblocks kept for this.
    Reserve,
    /// It fails.
    Nothing,
}

/// What an atomic request for more than one frame leaves for the next one (`MIGRATE_HIGHATOMIC`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum HighAtomic {
    /// Nothing.
    Nothing,
    /// Its pageblock; the next one looks there first, but for orders that per-CPU lists hold.
    Pageblock,
    /// Its pageblock; the next one looks there first, after the per-CPU list of its order.
    PageblockAfterPcp,
}

/// Which free pageblocks become one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Merging {
    /// All, but those being emptied with others.
    AllButIsolated,
    /// Those of types that requests ask for, and those of the same type.
    Requestable,
}

/// What a request for more than one frame must find above a watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WatermarkOrders {
    /// Without the blocks of each smaller order, half the mark for each.
    HalvedPerOrder,
    /// Any free block that is large enough.
    AnyLargeEnough,
}

/// Which blocks per-CPU lists hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PcpLists {
    /// Single frames; lists in the order unmovable, reclaimable, movable.
    BaseReclaimableFirst,
    /// Single frames; lists in the order unmovable, movable, reclaimable.
    Base,
    /// Orders 0 to 3, and huge pages by type.
    HugeByType,
    /// Orders 0 to 3, and huge pages on one list for all types.
    HugeTogether,
}

/// How a per-CPU list decides how much to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PcpFree {
    /// One batch.
    Batch,
    /// Twice as much each time, until an allocation halves it again.
    Doubling,
    /// The same, and everything when larger blocks (but not huge ones) are freed in a row.
    DoublingAllOfHigh,
}

/// In which order the lists of a CPU give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PcpDrain {
    /// In turn, more from one the more empty ones were passed.
    RoundRobin,
    /// The list just freed to as far as it goes, then the others.
    RequestedFirst,
}

/// Distance from min to low, and from low to high.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MarkStep {
    /// A quarter of min each.
    QuarterOfMin,
    /// A quarter of min, or `vm.watermark_scale_factor` of the zone when that is more.
    ScaleFactor,
}

/// How ZONE_MOVABLE takes part in `min_free_kbytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MovableMarks {
    /// It takes its share like any other zone.
    Share,
    /// The other zones share all of it; Movable has a small min mark of its own, even when empty.
    Clamped,
}

/// What a `vm.lowmem_reserve_ratio` of 0 means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RatioZero {
    /// The same as 1: all of the higher zones' frames are kept.
    One,
    /// Nothing is kept.
    NoReserve,
}

/// What a zone without managed frames keeps in reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EmptyReserve {
    /// The same formula as for other zones.
    Formula,
    /// Nothing.
    Nothing,
}

/// How long a CPU's list may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PcpHighRule {
    /// Six batches.
    SixBatches,
    /// The zone's low mark, divided among the CPUs of its node.
    LowMarkPerCpu,
    /// Tuned at run time, from the low mark per CPU up to an eighth of the zone per CPU.
    Tuned,
}

/// Zones that count in the `min_free_kbytes` recommended for transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ThpZones {
    /// Every populated zone.
    Populated,
    /// Populated zones up to Normal: all pages in Movable are movable anyway.
    UpToNormal,
}

/// 3.9, the oldest that we know.
pub const V3_9: Variant = Variant {
    name: "v3.9",
    since: (3, 9),
    mark_step: MarkStep::QuarterOfMin,
    promo_mark: false,
    movable_marks: MovableMarks::Share,
    reserve_ratio_zero: RatioZero::One,
    empty_zone_reserve: EmptyReserve::Formula,
    pcp_batch_limit: Bytes::kib(512),
    pcp_high: PcpHighRule::SixBatches,
    min_free_kbytes_max: 65536,
    thp_zones: ThpZones::Populated,
    mmap_align: MmapAlign::Base,
    huge_cow: HugeCow::Copy,
    fallback: FallbackRules::ReclaimableSteals,
    last_resort: LastResort::ReserveMisplaced,
    high_atomic: HighAtomic::Nothing,
    merging: Merging::AllButIsolated,
    watermark_orders: WatermarkOrders::HalvedPerOrder,
    nofragment: false,
    moved_end: End::Head,
    pcp_lists: PcpLists::BaseReclaimableFirst,
    pcp_free: PcpFree::Batch,
    pcp_drain: PcpDrain::RoundRobin,
};

/// 4.1: unmovable requests take free frames of other types from blocks of any size; kept frames go back to where they are
/// kept (3.16).
pub const V4_1: Variant = Variant {
    name: "v4.1",
    since: (4, 1),
    fallback: FallbackRules::KernelSteals,
    last_resort: LastResort::Reserve,
    ..V3_9
};

/// 4.4 keeps HIGHATOMIC pageblocks instead of RESERVE ones, simplifies the watermark test of higher orders, and renumbers
/// the migrate types.
pub const V4_4: Variant = Variant {
    name: "v4.4",
    since: (4, 4),
    last_resort: LastResort::Nothing,
    high_atomic: HighAtomic::Pageblock,
    watermark_orders: WatermarkOrders::AnyLargeEnough,
    pcp_lists: PcpLists::Base,
    ..V4_1
};

/// 4.6 adds `vm.watermark_scale_factor`.
pub const V4_6: Variant = Variant { name: "v4.6", since: (4, 6), mark_step: MarkStep::ScaleFactor, ..V4_4 };

/// 4.12 counts like frames when a request falls back, and lets movable ones break the smallest block.
pub const V4_12: Variant = Variant { name: "v4.12", since: (4, 12), fallback: FallbackRules::CountsAlike, ..V4_6 };

/// 4.17 lets a reserve ratio be 0, and leaves Movable out of the recommendation for transparent huge pages.
pub const V4_17: Variant = Variant {
    name: "v4.17",
    since: (4, 17),
    reserve_ratio_zero: RatioZero::NoReserve,
    thp_zones: ThpZones::UpToNormal,
    ..V4_12
};

/// 4.19 doubles the largest batch.
pub const V4_19: Variant = Variant { name: "v4.19", since: (4, 19), pcp_batch_limit: Bytes::mib(1), ..V4_17 };

/// 4.20: the arithmetic of 4.19.
pub const V4_20: Variant = Variant { name: "v4.20", since: (4, 20), ..V4_19 };

/// 5.0 avoids fallbacks inside Normal while DMA32 has free memory.
pub const V5_0: Variant = Variant { name: "v5.0", since: (5, 0), nofragment: true, ..V4_20 };

/// 5.8 chooses a larger `min_free_kbytes` on large machines, clears the reserve of empty zones, and splits shared huge pages
/// on a store.
pub const V5_8: Variant = Variant {
    name: "v5.8",
    since: (5, 8),
    empty_zone_reserve: EmptyReserve::Nothing,
    min_free_kbytes_max: 262_144,
    huge_cow: HugeCow::SplitPmd,
    ..V5_0
};

/// 5.10: blocks given at boot or moved between types go to the tail of their list.
pub const V5_10: Variant = Variant { name: "v5.10", since: (5, 10), moved_end: End::Tail, ..V5_8 };

/// 5.14 sizes per-CPU lists by the zone and its CPUs, puts larger blocks on them, and gives back more the longer frames
/// are freed in a row.
pub const V5_14: Variant = Variant {
    name: "v5.14",
    since: (5, 14),
    pcp_high: PcpHighRule::LowMarkPerCpu,
    pcp_lists: PcpLists::HugeByType,
    pcp_free: PcpFree::Doubling,
    ..V5_10
};

/// 6.1, with the promo mark that 5.18 added above high, and its order of giving back from per-CPU lists. HIGHATOMIC
/// pageblocks no longer merge with others (5.18), and serve after per-CPU lists too (6.0).
pub const V6_1: Variant = Variant {
    name: "v6.1",
    since: (6, 1),
    promo_mark: true,
    high_atomic: HighAtomic::PageblockAfterPcp,
    merging: Merging::Requestable,
    pcp_lists: PcpLists::HugeTogether,
    pcp_free: PcpFree::DoublingAllOfHigh,
    pcp_drain: PcpDrain::RequestedFirst,
    ..V5_14
};

/// 6.6 takes Movable out of the shares of `min_free_kbytes` ("mm/page_alloc: fix min_free_kbytes calculation regarding
/// ZONE_MOVABLE"); the recordings of 6.12 and 6.18 show it, those of 6.1 do not.
pub const V6_6: Variant = Variant { name: "v6.6", since: (6, 6), movable_marks: MovableMarks::Clamped, ..V6_1 };

/// 6.7 tunes the length of per-CPU lists at run time, and aligns anonymous mappings of at least 2 MiB to huge pages.
pub const V6_7: Variant =
    Variant { name: "v6.7", since: (6, 7), pcp_high: PcpHighRule::Tuned, mmap_align: MmapAlign::LargeAtHuge, ..V6_6 };

/// 6.18: the arithmetic of 6.7. Only mappings of whole huge pages are aligned ("mm, mmap: limit THP alignment of anonymous
/// mappings to PMD-aligned sizes", 6.12; there is no variant between).
pub const V6_18: Variant = Variant { name: "v6.18", since: (6, 18), mmap_align: MmapAlign::MultiplesAtHuge, ..V6_7 };

/// Every variant, oldest first.
pub static ALL: [&Variant; 16] = [
    &V3_9, &V4_1, &V4_4, &V4_6, &V4_12, &V4_17, &V4_19, &V4_20, &V5_0, &V5_8, &V5_10, &V5_14, &V6_1, &V6_6, &V6_7,
    &V6_18,
];

/// No rules for this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownRelease {
    /// The text does not start with two numbers.
    Form(String),
    /// Older than the oldest variant.
    TooOld(u32, u32),
}

impl fmt::Display for UnknownRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(text) => write!(f, "expected a kernel release such as \"6.1.0-50-cloud-amd64\", found {text:?}"),
            Self::TooOld(major, minor) => {
                write!(f, "kernel {major}.{minor} is older than {}, the oldest whose rules we know", V3_9.name)
            }
        }
    }
}

impl std::error::Error for UnknownRelease {}

impl Variant {
    /// The newest rules that are not newer than a release as `uname -r` prints it ("6.1.0-50-cloud-amd64", "6.18").
    pub fn for_release(release: &str) -> Result<&'static Self, UnknownRelease> {
        let (major, minor) = major_minor(release).ok_or_else(|| UnknownRelease::Form(release.to_owned()))?;
        Self::for_version(major, minor)
    }

    /// The newest rules that are not newer than release `major.minor`.
    pub fn for_version(major: u32, minor: u32) -> Result<&'static Self, UnknownRelease> {
        let newest = ALL.into_iter().rfind(|variant| variant.since <= (major, minor));
        newest.ok_or(UnknownRelease::TooOld(major, minor))
    }

    /// The rules of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.into_iter().find(|variant| variant.name == name)
    }

    /// Where a CPU's batch stops growing, in frames.
    pub fn pcp_batch_limit_frames(&self) -> Frames {
        self.pcp_batch_limit.frames()
    }
}

fn major_minor(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_gets_the_newest_rules_that_are_not_newer() {
        for (release, name) in [
            ("3.9.0", "v3.9"),
            ("3.16.0-4-amd64", "v3.9"),
            ("4.1.0-rc2+", "v4.1"),
            ("4.20", "v4.20"),
            ("5.4.0-200-generic", "v5.0"),
            ("5.10.0-32-cloud-amd64", "v5.10"),
            ("5.15.0", "v5.14"),
            ("6.1.0-50-cloud-amd64", "v6.1"),
            ("6.12.95+deb12-cloud-amd64", "v6.7"),
            ("6.18", "v6.18"),
            ("7.2-rc1", "v6.18"),
        ] {
            assert_eq!(Variant::for_release(release).map(|v| v.name), Ok(name), "{release}");
        }
        assert_eq!(Variant::for_version(6, 6).map(|v| v.name), Ok("v6.6"));
    }

    #[test]
    fn other_releases_are_refused() {
        assert_eq!(Variant::for_release("3.8.13"), Err(UnknownRelease::TooOld(3, 8)));
        for text in ["", "6", "6.", "linux", "v6.1", "-6.1", "6.x"] {
            assert_eq!(Variant::for_release(text), Err(UnknownRelease::Form(text.to_owned())));
        }
    }

    #[test]
    fn variants_are_sorted_and_named_after_their_release() {
        assert!(ALL.is_sorted_by(|a, b| a.since < b.since));
        for variant in ALL {
            assert_eq!(variant.name, format!("v{}.{}", variant.since.0, variant.since.1));
        }
    }
}
