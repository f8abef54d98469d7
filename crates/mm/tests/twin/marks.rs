//! Watermarks once more: what a request must leave in a zone; and marks that are raised, where who breaks up a pageblock makes
//! kswapd make room, or would rather wait than do so.

use memory::pageblock::MigrateType;
use rules::{
    gfp::{Mobility, Urgency},
    variant::{WatermarkBoost, WatermarkOrders},
    zone::ZoneKind,
};

use crate::{
    kswapd::Need,
    model::{Model, REQUESTABLE, Wish},
};

/// Blocks as large as this are broken up without waiting.
pub(crate) const STALL_ORDER: u32 = 4;

impl Model {
    pub(crate) fn passes(&self, z: usize, wish: Wish, mark: u64, urgency: Urgency) -> bool {
        let zone = &self.zones[z];
        let harder = [Urgency::Harder, Urgency::Atomic].contains(&urgency);
        let mut mark = mark;
        if [Urgency::High, Urgency::Atomic].contains(&urgency) {
            mark -= mark / 2;
        }
        if harder {
            mark -= mark / 4;
        }
        let mut free = i128::from(zone.free_frames()) - (1 << wish.order) + 1;
        if !harder {
            free -= i128::from(zone.high_atomic);
        }
        let keeps = zone.protection[ZoneKind::ALL.iter().position(|kind| *kind == wish.highest).unwrap()];
        if free <= i128::from(mark + keeps) {
            return false;
        }
        match self.rules.watermark_orders {
            WatermarkOrders::HalvedPerOrder => {
                let mut min = i128::from(mark);
                for o in 0..wish.order {
                    free -= i128::from(zone.blocks_of(o)) << o;
                    min >>= 1;
                    if free <= min {
                        return false;
                    }
                }
                true
            }
            WatermarkOrders::AnyLargeEnough => {
                let may =
                    |list: &MigrateType| REQUESTABLE.contains(list) || (harder && *list == MigrateType::HighAtomic);
                let is_one = |o: u32, list: &MigrateType| o >= wish.order && may(list);
                wish.order == 0 || zone.free.iter().any(|((o, list), blocks)| is_one(*o, list) && !blocks.is_empty())
            }
        }
    }

    /// Notes something that no event says.
    pub(crate) fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_insert(0) += 1;
    }

    /// A pageblock of a zone is broken up.
    pub(crate) fn raise_marks(&mut self, z: usize) {
        let block = 1 << self.pageblock;
        let zone = &mut self.zones[z];
        let ceiling = zone.high * self.boost_factor / 10_000;
        let is_small = u64::from(zone.range.1 - zone.range.0) < 4 * block;
        let may = match self.rules.watermark_boost {
            WatermarkBoost::None => false,
            WatermarkBoost::Any => ceiling > 0,
            WatermarkBoost::NotSmall => ceiling > 0 && !is_small,
        };
        let wakes = self.wakes && (may || self.rules.fallback_wakes_unboosted);
        zone.tells |= wakes;
        if may {
            let most = ceiling.max(block);
            let is_bounded = zone.boost + block > most;
            zone.boost = if is_bounded { most } else { zone.boost + block };
            self.reach(if is_bounded { "marks are as high as they may be" } else { "marks are raised" });
        } else if wakes {
            self.reach("kswapd is woken without a boost");
        }
    }

    /// The kswapd of a zone whose marks are raised hears of it.
    pub(crate) fn tell_of_boost(&mut self, z: usize) {
        if std::mem::take(&mut self.zones[z].tells) {
            let (node, highest) = (self.zones[z].node as usize, self.zones[z].kind);
            self.wake_kswapd(node, Need { order: 0, highest });
        }
    }

    /// Has an atomic request for a frame what raised marks keep from others?
    pub(crate) fn spares_boost(&mut self, z: usize, wish: Wish) -> bool {
        let may = self.rules.atomic_ignores_boost && wish.order == 0 && wish.urgency == Urgency::Atomic;
        let spares = may && self.zones[z].boost > 0 && self.passes(z, wish, self.zones[z].min, wish.urgency);
        if spares {
            self.reach("an atomic request ignores a boost");
        }
        spares
    }

    /// Down to the Min mark. Nobody can wait here, so that the second look comes at once.
    pub(crate) fn walk_slow(&mut self, cpu: usize, wish: Wish, own: &[usize], all: &[usize]) -> Option<(usize, u32)> {
        if self.rules.fragment_stall && wish.reclaims && wish.mobility == Mobility::Movable {
            self.stalls = true;
            let found = self.walk(cpu, wish, own, false, true);
            self.stalls = false;
            for z in all {
                self.tell_of_boost(*z);
            }
            if found.is_some() {
                return found;
            }
        }
        self.walk(cpu, wish, all, false, true)
    }
}
