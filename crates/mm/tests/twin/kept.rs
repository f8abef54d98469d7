//! Pageblocks that are kept for the needy once more: RESERVE ones up to 4.3, HIGHATOMIC ones from 4.4 on. And zones that take
//! turns, from 3.12 to 4.7.

use memory::{ZoneFigures, pageblock::MigrateType, pcp::PcpHigh};
use rules::{gfp::Urgency, machine::MachineSpec, variant::LastResort, zone::Settings};

use crate::model::{Model, REQUESTABLE, Wish, Zone, type_of};

impl Model {
    /// The first pageblocks of which every frame is managed, as many as the min mark fills, at most two.
    pub(crate) fn keep_reserve(&mut self, z: usize) {
        let size = 1 << self.pageblock;
        let wanted = u64::min(self.zones[z].min.div_ceil(size), 2);
        let kept = self.zones[z].reserve;
        if self.rules.last_resort == LastResort::Nothing || wanted == kept {
            return;
        }
        self.zones[z].reserve = wanted;
        let (spanned, range) = (self.zones[z].spanned, self.zones[z].range);
        let size = u32::try_from(size).unwrap();
        let starts = (0..spanned.1).step_by(size as usize).filter(|start| *start >= spanned.0);
        let whole = |start: &u32| *start >= range.0 && u32::min(start + size, spanned.1) <= range.1;
        let starts: Vec<u32> = starts.collect();
        let mut left = wanted;
        for start in starts {
            let kind = self.type_at(start);
            let suits = [MigrateType::Movable, MigrateType::Reserve].contains(&kind) && whole(&start);
            if left > 0 && suits {
                left -= 1;
                if kind == MigrateType::Movable {
                    self.retype(z, start, MigrateType::Reserve);
                }
            } else if left == 0 && kind == MigrateType::Reserve {
                self.retype(z, start, MigrateType::Movable);
            }
        }
    }

    pub(crate) fn set_marks(&mut self, machine: &MachineSpec, settings: &Settings) {
        for figures in memory::zone_figures(&machine.view(), settings, &self.rules) {
            let is_its = |zone: &Zone| zone.node == figures.node.0 && zone.kind == figures.kind;
            let Some(z) = self.zones.iter().position(is_its) else { continue };
            let zone = &mut self.zones[z];
            zone.boost = 0;
            (zone.min, zone.low, zone.high) = (figures.marks.min.0, figures.marks.low.0, figures.marks.high.0);
            zone.share.0 = share_of(&figures);
            zone.protection = figures.protection.iter().map(|frames| frames.0).collect();
            for pcp in &mut zone.pcps {
                pcp.high = match figures.pcp.high {
                    PcpHigh::Fixed(high) | PcpHigh::Tuned { min: high, .. } => u32::try_from(high.0).unwrap(),
                };
            }
            self.keep_reserve(z);
        }
    }

    pub(crate) fn keep_for_atomic(&mut self, z: usize, pfn: u32) {
        let size = 1 << self.pageblock;
        let zone = &mut self.zones[z];
        let managed = u64::from(zone.range.1 - zone.range.0);
        if zone.high_atomic < managed / 100 + size && REQUESTABLE.contains(&self.type_at(pfn)) {
            self.zones[z].high_atomic += size;
            self.retype(z, pfn, MigrateType::HighAtomic);
        }
    }

    pub(crate) fn give_up_kept(&mut self, wish: Wish, force: bool) -> bool {
        let size = 1 << self.pageblock;
        for z in self.zonelist(wish) {
            if self.zones[z].high_atomic <= if force { 0 } else { size } {
                continue;
            }
            for order in 0..=self.max {
                let Some(pfn) = self.zones[z].list(order, MigrateType::HighAtomic).first().copied() else { continue };
                if self.type_at(pfn) == MigrateType::HighAtomic {
                    let zone = &mut self.zones[z];
                    zone.high_atomic = zone.high_atomic.saturating_sub(size);
                }
                if self.retype(z, pfn, type_of(wish.mobility)) {
                    return true;
                }
            }
        }
        false
    }

    /// A pageblock changes its type, and its free blocks their lists, unless it reaches beyond the zone.
    pub(crate) fn retype(&mut self, z: usize, pfn: u32, to: MigrateType) -> bool {
        let start = pfn >> self.pageblock << self.pageblock;
        self.types.insert(start, to);
        if start + (1 << self.pageblock) > self.zones[z].spanned.1 {
            return false;
        }
        for (at, order) in self.free_in(z, start) {
            self.regroup(z, at, order, to);
        }
        true
    }

    /// Free blocks that start in a pageblock, from the first.
    pub(crate) fn free_in(&self, z: usize, start: u32) -> Vec<(u32, u32)> {
        let mut free: Vec<(u32, u32)> = Vec::new();
        for ((order, _), blocks) in &self.zones[z].free {
            let inside = blocks.iter().filter(|at| **at >> self.pageblock << self.pageblock == start);
            free.extend(inside.map(|at| (*at, *order)));
        }
        free.sort_unstable();
        free
    }

    /// Where zones take turns, first from the node's own whose turn it is; if there is none, all are asked, after those have
    /// begun anew.
    pub(crate) fn walk_fast(&mut self, cpu: usize, wish: Wish, own: &[usize], all: &[usize]) -> Option<(usize, u32)> {
        if !self.rules.fair_zones {
            return self.walk(cpu, wish, all, false, false);
        }
        let (over, open): (Vec<usize>, Vec<usize>) = own.iter().partition(|z| self.zones[**z].share.1);
        let found = self.walk(cpu, wish, &open, false, false);
        if found.is_some() || (over.is_empty() && self.nodes() == 1) {
            return found;
        }
        if !over.is_empty() {
            // Also those below the lowest that may serve: there are none.
            for z in own {
                let zone = &mut self.zones[*z];
                zone.share = (i64::try_from(zone.high - zone.low).unwrap(), false);
            }
        }
        self.walk(cpu, wish, all, false, false)
    }

    /// A zone has given a block.
    pub(crate) fn take_share(&mut self, z: usize, order: u32) {
        if self.rules.fair_zones {
            let (left, over) = &mut self.zones[z].share;
            *left -= 1 << order;
            *over |= *left <= 0;
        }
    }

    /// The reserves of a request below the Low mark.
    pub(crate) fn below_low(&self, wish: Wish) -> Wish {
        let is_nowait = wish.wakes && !wish.reclaims && wish.urgency == Urgency::Normal;
        let urgency = if is_nowait && self.rules.nowait_is_harder { Urgency::Harder } else { wish.urgency };
        Wish { urgency, ..wish }
    }
}

pub(crate) fn share_of(figures: &ZoneFigures) -> i64 {
    i64::try_from(figures.marks.high.0 - figures.marks.low.0).unwrap()
}
