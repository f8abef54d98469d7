//! Linux: mm/page_alloc.c, and the recommendation in mm/khugepaged.c (v3.9 to v6.18).
//! Differs: marks are a function of today's sizes; the kernel sets them when a setting is written and keeps them. No boost;
//! single frames always leave the HIGHATOMIC reserve alone (4.7 to 5.8 overlook it).

use rules::{
    gfp::Urgency,
    variant::{EmptyReserve, MarkStep, MovableMarks, RatioZero, ThpZones, Variant, WatermarkOrders},
    zone::{MachineView, NodeView, Settings, ZoneKind, ZoneView},
};
use serde::{Deserialize, Serialize};
use units::{Frames, Order};

use crate::{buddy::Buddy, pageblock::MigrateType};

/// A zone's watermarks in frames, without boost (`enum zone_watermarks`, include/linux/mmzone.h, v6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Below this mark only privileged requests are served without direct reclaim.
    pub min: Frames,
    /// Below this mark kswapd is woken.
    pub low: Frames,
    /// Mark up to which kswapd reclaims.
    pub high: Frames,
    /// Mark up to which kswapd reclaims to make room for promotion between memory tiers (5.18 and later).
    pub promo: Option<Frames>,
}

/// Bounds of Movable's own Min mark, in frames; between them the mark is one part in `MOVABLE_PART` of the zone.
// is_highmem() branch of __setup_per_zone_wmarks, mm/page_alloc.c (v6.6): managed / 1024 within SWAP_CLUSTER_MAX and 128.
const MOVABLE_MIN: (u64, u64) = (32, 128);
const MOVABLE_PART: u64 = 1024;

/// Smallest automatic `min_free_kbytes`, in KiB.
// calculate_min_free_kbytes, mm/page_alloc.c (v6.1).
const MIN_FREE_KBYTES_LEAST: u64 = 128;

/// Frames in a pageblock on x86-64 with huge pages.
const PAGEBLOCK: Frames = Frames(512);

/// Pageblocks that THP wants free in each zone: two, and one for each pair of three migrate types.
// set_recommended_min_free_kbytes, mm/khugepaged.c (v6.1).
const THP_PAGEBLOCKS: u64 = 2 + 3 * 3;

/// THP's recommendation is at most one part in this many of the free frames: 5 %.
const THP_PART: u64 = 20;

/// How `min_free_kbytes` is divided among zones: the part of the arithmetic that all zones have in common.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// Frames to divide: `vm.min_free_kbytes`.
    pub pages_min: Frames,
    /// Managed frames of all the zones that share.
    pub lowmem: Frames,
    /// `vm.watermark_scale_factor`, in 1/10000 of a zone.
    pub scale_factor: u32,
}

impl Shares {
    /// The shares under `settings`.
    pub fn of(machine: &MachineView, settings: &Settings, rules: &Variant) -> Self {
        let shares = |zone: &&ZoneView| zone.kind != ZoneKind::Movable || rules.movable_marks == MovableMarks::Share;
        Self {
            pages_min: Frames::from_kib(settings.min_free_kbytes),
            lowmem: machine.zones().filter(shares).map(|zone| zone.managed).sum(),
            scale_factor: settings.watermark_scale_factor,
        }
    }

    /// The marks of `zone`; `__setup_per_zone_wmarks`, mm/page_alloc.c (v3.9 to v6.18).
    pub fn marks(&self, zone: &ZoneView, rules: &Variant) -> Marks {
        let share = part(self.pages_min, zone.managed, self.lowmem);
        let min = match (zone.kind, rules.movable_marks) {
            (ZoneKind::Movable, MovableMarks::Clamped) => {
                Frames((zone.managed.0 / MOVABLE_PART).clamp(MOVABLE_MIN.0, MOVABLE_MIN.1))
            }
            _ => share,
        };
        let (low, high) = match rules.mark_step {
            MarkStep::QuarterOfMin => (Frames(share.0 / 4), Frames(share.0 / 2)),
            MarkStep::ScaleFactor => {
                let scaled = part(zone.managed, Frames(u64::from(self.scale_factor)), Frames(10_000));
                let step = Frames(share.0 / 4).max(scaled);
                (step, step * 2)
            }
        };
        let promo = rules.promo_mark.then(|| min + high + low);
        Marks { min, low: min + low, high: min + high, promo }
    }
}

/// `whole * numerator / denominator`, rounded down; 0 if the denominator is 0. Bounded, so that sums cannot overflow:
/// Movable may be any multiple of the zones that share.
fn part(whole: Frames, numerator: Frames, denominator: Frames) -> Frames {
    let product = u128::from(whole.0) * u128::from(numerator.0);
    let quotient = product.checked_div(u128::from(denominator.0)).unwrap_or(0);
    Frames(u64::try_from(quotient).unwrap_or(u64::MAX).min(u64::MAX / 8))
}

/// Frames that zone number `index` of `node` keeps from requests whose highest zone is number 0, 1, ... of the node.
///
/// `setup_per_zone_lowmem_reserve`, mm/page_alloc.c (v3.9 to v6.18). A zone beyond the end of `ratios` keeps nothing.
pub fn protection(node: &NodeView, index: usize, ratios: &[u32], rules: &Variant) -> Vec<Frames> {
    let zone = &node.zones[index];
    let keeps = zone.managed > Frames(0) || rules.empty_zone_reserve == EmptyReserve::Formula;
    let ratio = match (ratios.get(index), rules.reserve_ratio_zero) {
        (Some(0), RatioZero::One) => 1,
        (Some(ratio), _) if keeps => *ratio,
        _ => 0,
    };
    let mut above = Frames(0);
    let entries = node.zones.iter().enumerate().map(|(other, higher)| {
        if other > index {
            above += higher.managed;
        }
        Frames(above.0.checked_div(u64::from(ratio)).unwrap_or(0))
    });
    entries.collect()
}

/// The `vm.min_free_kbytes` that the kernel chooses if it is not set, in KiB.
///
/// By the size of memory (`calculate_min_free_kbytes`, mm/page_alloc.c, v6.1), or as transparent huge pages want it
/// (`set_recommended_min_free_kbytes`, mm/khugepaged.c, v6.1) if that is more. `settings.min_free_kbytes` is not read.
pub fn automatic_min_free_kbytes(machine: &MachineView, settings: &Settings, rules: &Variant) -> u64 {
    let by_size = min_free_kbytes_by_size(machine, rules);
    if settings.thp { by_size.max(min_free_kbytes_for_thp(machine, settings, by_size, rules)) } else { by_size }
}

fn min_free_kbytes_by_size(machine: &MachineView, rules: &Variant) -> u64 {
    // Marks are still 0 at this point of the boot, so every managed frame counts as free.
    let buffer: Frames = machine.zones().filter(|zone| zone.kind.holds_user()).map(|zone| zone.managed).sum();
    (16 * buffer.kib()).isqrt().clamp(MIN_FREE_KBYTES_LEAST, rules.min_free_kbytes_max)
}

fn min_free_kbytes_for_thp(machine: &MachineView, settings: &Settings, by_size: u64, rules: &Variant) -> u64 {
    let counts =
        |zone: &&ZoneView| zone.is_populated() && (zone.kind.holds_user() || rules.thp_zones == ThpZones::Populated);
    let zones = machine.zones().filter(counts).count() as u64;
    let before = Settings { min_free_kbytes: by_size, ..settings.clone() };
    let shares = Shares::of(machine, &before, rules);
    // nr_free_buffer_pages: the frames of each zone above its High mark.
    let above_high = |zone: &ZoneView| Frames(zone.managed.0.saturating_sub(shares.marks(zone, rules).high.0));
    let buffer: Frames = machine.zones().filter(|zone| zone.kind.holds_user()).map(above_high).sum();
    (PAGEBLOCK * zones * THP_PAGEBLOCKS).min(Frames(buffer.0 / THP_PART)).kib()
}

/// Whether a zone with these free blocks stays above `mark`, and above the frames that it `keeps` from such requests, after
/// a block of `order` is taken. `zone_watermark_ok`, mm/page_alloc.c (v3.9 to v6.1).
#[inline]
pub fn is_ok(buddy: &Buddy, order: Order, mark: u64, keeps: u64, urgency: Urgency, rules: &Variant) -> bool {
    let is_above = buddy.free_frames() > needed(order, mark, keeps, urgency);
    let mark = urgency.lowered(mark);
    is_above && (order == Order::BASE || buddy.counts_for_another || has_order(buddy, order, mark, urgency, rules))
}

/// Frames that more than must be free, whatever blocks they are in.
#[inline]
pub(crate) fn needed(order: Order, mark: u64, keeps: u64, urgency: Urgency) -> u64 {
    u64::from(order.frames() - 1) + urgency.lowered(mark) + keeps
}

/// Whether the mark would hold with `more` frames free, as single ones.
pub fn could_be_ok(
    buddy: &Buddy,
    more: u64,
    order: Order,
    mark: u64,
    keeps: u64,
    urgency: Urgency,
    rules: &Variant,
) -> bool {
    let spared = u64::from(order.frames() - 1);
    let mark = urgency.lowered(mark);
    buddy.free_frames() + more > spared + mark + keeps
        && (order == Order::BASE || buddy.counts_for_another || has_order(buddy, order, mark, urgency, rules))
}

/// The part of `__zone_watermark_ok` that looks for a free block of the order.
fn has_order(buddy: &Buddy, order: Order, mark: u64, urgency: Urgency, rules: &Variant) -> bool {
    match rules.watermark_orders {
        WatermarkOrders::HalvedPerOrder => {
            let mut free = buddy.free_frames().saturating_sub(u64::from(order.frames() - 1));
            (0..order.0).map(Order).all(|smaller| {
                free = free.saturating_sub(buddy.area(smaller).nr_free() * u64::from(smaller.frames()));
                free > mark >> (smaller.0 + 1)
            })
        }
        WatermarkOrders::AnyLargeEnough => {
            let may_use =
                |list: &MigrateType| list.is_requestable() || (*list == MigrateType::HighAtomic && urgency.is_harder());
            let types = MigrateType::ALL.into_iter().filter(may_use);
            let has_any = |order: u8| types.clone().any(|list| !buddy.area(Order(order)).list(list).is_empty());
            (order.0..=buddy.max_order().0).any(has_any)
        }
    }
}

#[cfg(test)]
mod tests;
