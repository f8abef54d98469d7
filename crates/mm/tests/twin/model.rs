//! The allocator once more, as plainly as it can be said: lists are vectors with the head first, what is allocated is a
//! map. It shares nothing with the real one but names, sizes of zones, and the arithmetic of marks and limits.

use std::collections::BTreeMap;

use memory::{event::Event, pageblock::MigrateType, pcp::PcpHigh};
use rules::{
    gfp::{Mobility, Urgency},
    machine::MachineSpec,
    variant::{FallbackRules, HighAtomic, LastResort, Merging, PcpDrain, PcpFree, PcpLists, SlowPath, Variant},
    zone::{Settings, ZoneKind},
};

use crate::{kept::share_of, kswapd::Kswapd, marks::STALL_ORDER};

/// An allocated block, as far as the allocator can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) order: u32,
    /// The block could be migrated.
    pub(crate) on_lru: bool,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) order: u32,
    pub(crate) mobility: Mobility,
    pub(crate) highest: ZoneKind,
    pub(crate) node: u32,
    pub(crate) only: bool,
    pub(crate) urgency: Urgency,
    /// The request wakes kswapd.
    pub(crate) wakes: bool,
    /// The request would reclaim, if there were reclaim here.
    pub(crate) reclaims: bool,
}

impl Wish {
    /// One frame for the kernel itself.
    pub(crate) fn kernel(node: u32) -> Self {
        let (mobility, highest, urgency) = (Mobility::Unmovable, ZoneKind::Normal, Urgency::Normal);
        Self { order: 0, mobility, highest, node, only: false, urgency, wakes: true, reclaims: true }
    }

    /// One frame for a process.
    pub(crate) fn user(node: u32) -> Self {
        Self { mobility: Mobility::Movable, highest: ZoneKind::Movable, ..Self::kernel(node) }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) rules: Variant,
    pub(crate) pageblock: u32,
    pub(crate) max: u32,
    /// All that zones manage.
    pub(crate) frames: u32,
    pub(crate) zones: Vec<Zone>,
    /// Type of each pageblock by its first frame; Movable when absent.
    pub(crate) types: BTreeMap<u32, MigrateType>,
    pub(crate) taken: BTreeMap<u32, Taken>,
    distances: Vec<Vec<u32>>,
    cpu_nodes: Vec<u32>,
    counts: BTreeMap<Event, u64>,
    /// By node.
    pub(crate) kswapds: Vec<Kswapd>,
    /// Nodes whose kswapd was woken.
    pub(crate) woken: Vec<usize>,
    /// One was woken in this step, which ends as soon as it can.
    pub(crate) cut: bool,
    pub(crate) boost_factor: u64,
    /// The request in progress wakes kswapd where it breaks up a pageblock.
    pub(crate) wakes: bool,
    /// The request takes no small block from other types.
    pub(crate) stalls: bool,
    /// Cases reached that no event counts.
    pub(crate) reached: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Zone {
    pub(crate) node: u32,
    pub(crate) kind: ZoneKind,
    pub(crate) range: (u32, u32),
    pub(crate) spanned: (u32, u32),
    /// RESERVE pageblocks wanted, and frames of HIGHATOMIC ones.
    pub(crate) reserve: u64,
    pub(crate) high_atomic: u64,
    pub(crate) min: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    /// Frames by which the marks are raised, and whether the zone's kswapd is still to hear of it.
    pub(crate) boost: u64,
    pub(crate) tells: bool,
    /// Frames that it may give before it is the other zones' turn, and whether it is.
    pub(crate) share: (i64, bool),
    pub(crate) protection: Vec<u64>,
    pub(crate) free: BTreeMap<(u32, MigrateType), Vec<u32>>,
    pub(crate) pcps: Vec<Pcp>,
}

#[derive(Clone, Debug)]
pub(crate) struct Pcp {
    /// First frame, order, and the type to go back to.
    pub(crate) lists: Vec<Vec<(u32, u32, MigrateType)>>,
    batch: u32,
    pub(crate) high: u32,
    factor: u32,
    /// The CPU may have four batches at most.
    pub(crate) hurried: bool,
}

impl Pcp {
    pub(crate) fn count(&self) -> u32 {
        self.lists.iter().flatten().map(|block| 1 << block.1).sum()
    }
}

pub(crate) const REQUESTABLE: [MigrateType; 3] =
    [MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable];

pub(crate) fn type_of(mobility: Mobility) -> MigrateType {
    match mobility {
        Mobility::Unmovable => MigrateType::Unmovable,
        Mobility::Movable => MigrateType::Movable,
        Mobility::Reclaimable => MigrateType::Reclaimable,
    }
}

impl Zone {
    pub(crate) fn list(&mut self, order: u32, list: MigrateType) -> &mut Vec<u32> {
        self.free.entry((order, list)).or_default()
    }

    pub(crate) fn free_frames(&self) -> u64 {
        self.free.iter().map(|((order, _), blocks)| (blocks.len() as u64) << order).sum()
    }

    pub(crate) fn blocks_of(&self, order: u32) -> u64 {
        self.free.iter().filter(|((o, _), _)| *o == order).map(|(_, blocks)| blocks.len() as u64).sum()
    }

    /// The type of the list that a free block is on.
    fn find(&self, pfn: u32, order: u32) -> Option<MigrateType> {
        let on = |((o, _), blocks): &(&(u32, MigrateType), &Vec<u32>)| *o == order && blocks.contains(&pfn);
        self.free.iter().find(on).map(|((_, list), _)| *list)
    }

    fn put(&mut self, pfn: u32, order: u32, list: MigrateType, tail: bool) {
        let blocks = self.list(order, list);
        let at = if tail { blocks.len() } else { 0 };
        blocks.insert(at, pfn);
    }

    fn take_off(&mut self, pfn: u32, order: u32) {
        let list = self.find(pfn, order).unwrap();
        self.list(order, list).retain(|other| *other != pfn);
    }
}

impl Model {
    pub(crate) fn new(machine: &MachineSpec, rules: Variant, settings: &Settings) -> Self {
        let mut model = Self {
            rules,
            pageblock: machine.pageblock_order.0.into(),
            max: machine.max_order.0.into(),
            frames: 0,
            zones: Vec::new(),
            types: BTreeMap::new(),
            taken: BTreeMap::new(),
            distances: machine.nodes.iter().map(|node| node.distance.clone()).collect(),
            cpu_nodes: machine.nodes.iter().flat_map(|node| vec![node.id.0; node.cpus.len()]).collect(),
            counts: BTreeMap::new(),
            kswapds: vec![Kswapd::new(); machine.nodes.len()],
            woken: Vec::new(),
            cut: false,
            boost_factor: settings.watermark_boost_factor.into(),
            wakes: false,
            stalls: false,
            reached: BTreeMap::new(),
        };
        let cpus = model.cpu_nodes.len();
        for figures in memory::zone_figures(&machine.view(), settings, &rules) {
            let node = &machine.nodes[figures.node.0 as usize];
            let Some(spec) = node.zones.iter().find(|zone| zone.kind == figures.kind && zone.managed.0 > 0) else {
                continue;
            };
            let [spanned, present, managed] =
                [spec.spanned, spec.present, spec.managed].map(|n| u32::try_from(n.0).unwrap());
            let end = spec.start.0 + present;
            let high = match figures.pcp.high {
                PcpHigh::Fixed(high) | PcpHigh::Tuned { min: high, .. } => high,
            };
            let lists = if rules.pcp_lists == PcpLists::HugeByType { 15 } else { 13 };
            let pcp = Pcp {
                lists: vec![Vec::new(); lists],
                batch: u32::try_from(figures.pcp.batch.0).unwrap(),
                high: u32::try_from(high.0).unwrap(),
                factor: 0,
                hurried: false,
            };
            model.zones.push(Zone {
                node: figures.node.0,
                kind: figures.kind,
                range: (end - managed, end),
                spanned: (spec.start.0, spec.start.0 + spanned),
                reserve: 0,
                high_atomic: 0,
                min: figures.marks.min.0,
                low: figures.marks.low.0,
                high: figures.marks.high.0,
                boost: 0,
                tells: false,
                share: (share_of(&figures), false),
                protection: figures.protection.iter().map(|frames| frames.0).collect(),
                free: BTreeMap::new(),
                pcps: vec![pcp; cpus],
            });
            model.frames += managed;
            model.boot(end - managed, end);
            model.keep_reserve(model.zones.len() - 1);
        }
        model
    }

    /// From the first frame up: each time the largest block that may start there and fits.
    fn boot(&mut self, start: u32, end: u32) {
        let zone = self.zones.last_mut().unwrap();
        let mut at = start;
        while at < end {
            let order = (0..=self.max).rev().find(|o| at.is_multiple_of(1 << o) && at + (1 << o) <= end).unwrap();
            zone.put(at, order, MigrateType::Movable, self.rules.moved_end == rules::variant::ListEnd::Tail);
            at += 1 << order;
        }
    }

    pub(crate) fn type_at(&self, pfn: u32) -> MigrateType {
        let block = pfn >> self.pageblock << self.pageblock;
        self.types.get(&block).copied().unwrap_or(MigrateType::Movable)
    }

    /// The place of a frame's zone among them.
    pub(crate) fn zone_of(&self, pfn: u32) -> usize {
        self.zones.iter().position(|zone| (zone.range.0..zone.range.1).contains(&pfn)).unwrap()
    }

    pub(crate) fn node_of(&self, cpu: usize) -> u32 {
        self.cpu_nodes[cpu]
    }

    pub(crate) fn nodes(&self) -> usize {
        self.distances.len()
    }

    pub(crate) fn cpus(&self) -> usize {
        self.cpu_nodes.len()
    }

    pub(crate) fn cpus_on(&self, node: u32) -> usize {
        self.cpu_nodes.iter().filter(|of| **of == node).count()
    }

    pub(crate) fn count(&mut self, event: Event, n: u64) {
        *self.counts.entry(event).or_insert(0) += n;
    }

    pub(crate) fn counted(&self, event: Event) -> u64 {
        self.counts.get(&event).copied().unwrap_or(0)
    }

    // What a request goes through.

    pub(crate) fn alloc(&mut self, cpu: usize, wish: Wish) -> Option<u32> {
        let order = self.zonelist(wish);
        let home = self.zones[*order.first()?].node;
        let has_dma32 = self.zones.iter().any(|zone| zone.node == home && zone.kind == ZoneKind::Dma32);
        let careful = self.rules.nofragment
            && !self.rules.nofragment_flag_lost
            && self.zones[order[0]].kind == ZoneKind::Normal
            && (self.distances.len() == 1 || has_dma32);
        let own: Vec<usize> = order.iter().copied().take_while(|z| self.zones[*z].node == home).collect();
        self.wakes = wish.wakes;
        let first = if careful { self.walk(cpu, wish, &own, true, false) } else { None };
        let fast = first.or_else(|| self.walk_fast(cpu, wish, &own, &order));
        if fast.is_none() && wish.only && !wish.reclaims && self.rules.slow_path == SlowPath::Fixed {
            return None;
        }
        if fast.is_none() && wish.wakes {
            self.wake_kswapds(wish, &order);
        }
        let wish = self.below_low(wish);
        let (z, pfn) = fast.or_else(|| self.walk_slow(cpu, wish, &own, &order))?;
        assert!(self.taken.insert(pfn, Taken { order: wish.order, on_lru: false }).is_none());
        self.tell_of_boost(z);
        self.count_alloc(cpu, z, home, 1 << wish.order);
        Some(pfn)
    }

    fn count_alloc(&mut self, cpu: usize, z: usize, home: u32, frames: u64) {
        let Zone { node, kind, .. } = self.zones[z];
        let of_zone = match kind {
            ZoneKind::Dma => Event::PgallocDma,
            ZoneKind::Dma32 => Event::PgallocDma32,
            ZoneKind::Normal => Event::PgallocNormal,
            _ => Event::PgallocMovable,
        };
        self.count(of_zone, frames);
        let [hit, elsewhere] = [u64::from(node == home), u64::from(node != home)];
        self.count(Event::NumaHit, hit);
        self.count(Event::NumaMiss, elsewhere);
        self.count(Event::NumaForeign, elsewhere);
        let is_local = node == self.cpu_nodes[cpu];
        self.count(if is_local { Event::NumaLocal } else { Event::NumaOther }, 1);
    }

    pub(crate) fn zonelist(&self, wish: Wish) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.zones.len()).filter(|z| self.zones[*z].kind <= wish.highest).collect();
        order.retain(|z| !wish.only || self.zones[*z].node == wish.node);
        let distances = &self.distances[wish.node as usize];
        order.sort_by_key(|z| (distances[self.zones[*z].node as usize], std::cmp::Reverse(self.zones[*z].kind)));
        order
    }

    pub(crate) fn walk(
        &mut self,
        cpu: usize,
        wish: Wish,
        order: &[usize],
        careful: bool,
        at_min: bool,
    ) -> Option<(usize, u32)> {
        order.iter().copied().find_map(|z| {
            let (mark, urgency) =
                if at_min { (self.zones[z].min, wish.urgency) } else { (self.zones[z].low, Urgency::Normal) };
            let passes = self.passes(z, wish, mark + self.zones[z].boost, urgency);
            if !(passes || at_min && self.spares_boost(z, wish)) {
                return None;
            }
            let harder = wish.order > 0 && [Urgency::Harder, Urgency::Atomic].contains(&urgency);
            let listed = if self.has_list(wish.order) { self.take_listed(z, cpu, wish, careful) } else { None };
            let asks_on = match self.rules.high_atomic {
                HighAtomic::PageblockAfterPcp => harder,
                _ => false,
            };
            let pfn = if listed.is_some() || (self.has_list(wish.order) && !asks_on) {
                listed?
            } else {
                let kept = if harder { self.smallest(z, wish.order, MigrateType::HighAtomic) } else { None };
                let taken = |model: &mut Self| model.take_free(z, wish.order, type_of(wish.mobility), careful);
                kept.or_else(|| Some(taken(self)?.0))?
            };
            if harder && self.rules.high_atomic != HighAtomic::Nothing {
                self.keep_for_atomic(z, pfn);
            }
            self.take_share(z, wish.order);
            Some((z, pfn))
        })
    }

    fn has_list(&self, order: u32) -> bool {
        match self.rules.pcp_lists {
            PcpLists::BaseReclaimableFirst | PcpLists::Base => order == 0,
            PcpLists::HugeByType | PcpLists::HugeTogether => order <= 3 || order == self.pageblock,
        }
    }

    /// The number of a per-CPU list.
    pub(crate) fn number(&self, order: u32, list: MigrateType) -> usize {
        let types = match self.rules.pcp_lists {
            PcpLists::BaseReclaimableFirst => [MigrateType::Unmovable, MigrateType::Reclaimable, MigrateType::Movable],
            _ => REQUESTABLE,
        };
        let movable = types.iter().position(|t| *t == MigrateType::Movable).unwrap();
        let kind = types.iter().position(|t| *t == list).unwrap_or(movable);
        match (order, self.rules.pcp_lists) {
            (0..=3, _) => order as usize * 3 + kind,
            (_, PcpLists::HugeTogether) => 12,
            _ => 12 + kind,
        }
    }

    fn take_listed(&mut self, z: usize, cpu: usize, wish: Wish, careful: bool) -> Option<u32> {
        let list = type_of(wish.mobility);
        let number = self.number(wish.order, list);
        self.zones[z].pcps[cpu].factor /= 2;
        if self.zones[z].pcps[cpu].lists[number].is_empty() {
            let batch = self.zones[z].pcps[cpu].batch;
            let wanted = if batch == 1 { 1 } else { u32::max(batch / (1 << wish.order), 2) };
            for _ in 0..wanted {
                let Some((pfn, back)) = self.take_free(z, wish.order, list, careful) else { break };
                self.zones[z].pcps[cpu].lists[number].push((pfn, wish.order, back));
            }
        }
        let blocks = &mut self.zones[z].pcps[cpu].lists[number];
        if blocks.is_empty() { None } else { Some(blocks.remove(0).0) }
    }

    /// A block, and the type that it goes back to from a per-CPU list.
    fn take_free(&mut self, z: usize, order: u32, list: MigrateType, careful: bool) -> Option<(u32, MigrateType)> {
        if let Some(pfn) = self.smallest(z, order, list) {
            return Some((pfn, list));
        }
        if let Some(pfn) = self.fall_back(z, order, list, careful) {
            return Some((pfn, list));
        }
        match self.rules.last_resort {
            LastResort::ReserveMisplaced => Some((self.smallest(z, order, MigrateType::Reserve)?, list)),
            LastResort::Reserve => Some((self.smallest(z, order, MigrateType::Reserve)?, MigrateType::Reserve)),
            LastResort::Nothing => None,
        }
    }

    pub(crate) fn smallest(&mut self, z: usize, order: u32, list: MigrateType) -> Option<u32> {
        let found = (order..=self.max).find(|o| !self.zones[z].list(*o, list).is_empty())?;
        let pfn = self.zones[z].list(found, list)[0];
        self.split(z, pfn, (found, order), list);
        Some(pfn)
    }

    fn split(&mut self, z: usize, pfn: u32, (from, to): (u32, u32), list: MigrateType) {
        self.zones[z].take_off(pfn, from);
        for half in (to..from).rev() {
            self.zones[z].put(pfn + (1 << half), half, list, false);
        }
    }

    // Other types.

    fn fall_back(&mut self, z: usize, order: u32, want: MigrateType, careful: bool) -> Option<u32> {
        let others: [MigrateType; 2] = match want {
            MigrateType::Movable => [MigrateType::Reclaimable, MigrateType::Unmovable],
            MigrateType::Reclaimable => [MigrateType::Unmovable, MigrateType::Movable],
            _ => [MigrateType::Reclaimable, MigrateType::Movable],
        };
        let zone = &mut self.zones[z];
        let first = |zone: &mut Zone, o| others.iter().find_map(|list| zone.list(o, *list).first().copied());
        let least = if careful { u32::max(order, self.pageblock) } else { order };
        let mut found = (least..=self.max).rev().find(|o| first(zone, *o).is_some())?;
        let modern = self.rules.fallback == FallbackRules::CountsAlike;
        let greedy = found >= self.pageblock / 2
            || match self.rules.fallback {
                FallbackRules::ReclaimableSteals => want == MigrateType::Reclaimable,
                FallbackRules::KernelSteals | FallbackRules::CountsAlike => want != MigrateType::Movable,
            };
        if modern && !greedy && found > order {
            found = (order..=self.max).find(|o| first(zone, *o).is_some()).unwrap();
        }
        let pfn = first(zone, found).unwrap();
        if found < self.pageblock && self.type_at(pfn) != MigrateType::HighAtomic {
            self.raise_marks(z);
            if self.stalls && found < STALL_ORDER {
                self.reach("a small block is refused");
                return None;
            }
        }
        self.count(Event::SimExtfrag, 1);
        self.count(Event::SimExtfragFragmenting, u64::from(found < self.pageblock));
        self.steal(z, pfn, found, want, greedy);
        if modern {
            return self.smallest(z, order, want);
        }
        self.split(z, pfn, (found, order), want);
        Some(pfn)
    }

    fn steal(&mut self, z: usize, pfn: u32, order: u32, want: MigrateType, greedy: bool) {
        let size = 1 << self.pageblock;
        let start = pfn / size * size;
        let old = self.type_at(pfn);
        if old == MigrateType::HighAtomic {
            return self.regroup(z, pfn, order, want);
        }
        if order >= self.pageblock {
            for block in (pfn..pfn + (1 << order)).step_by(size as usize) {
                self.types.insert(block, want);
            }
            return self.regroup(z, pfn, order, want);
        }
        if !greedy || start + size > self.zones[z].spanned.1 {
            return self.regroup(z, pfn, order, want);
        }
        let free = self.free_in(z, start);
        let count: u32 = free.iter().map(|(_, o)| 1 << o).sum();
        let movable = self.taken.range(start..start + size).filter(|(_, taken)| taken.on_lru);
        let movable: u32 = movable.map(|(_, taken)| 1 << taken.order).sum();
        let alike = match self.rules.fallback {
            FallbackRules::CountsAlike if want == MigrateType::Movable => movable,
            FallbackRules::CountsAlike if old == MigrateType::Movable => size - count - movable,
            _ => 0,
        };
        for (at, o) in free {
            self.regroup(z, at, o, want);
        }
        if count + alike >= size / 2 {
            self.types.insert(start, want);
        }
    }

    pub(crate) fn regroup(&mut self, z: usize, pfn: u32, order: u32, to: MigrateType) {
        self.zones[z].take_off(pfn, order);
        self.zones[z].put(pfn, order, to, self.rules.moved_end == rules::variant::ListEnd::Tail);
    }

    // The way back.

    pub(crate) fn free(&mut self, cpu: usize, pfn: u32) {
        let Taken { order, .. } = self.taken.remove(&pfn).unwrap();
        self.count(Event::Pgfree, 1 << order);
        let z = self.zone_of(pfn);
        let list = self.type_at(pfn);
        if !self.has_list(order) {
            return self.merge(z, pfn, order, list);
        }
        let number = self.number(order, list);
        let doubling = self.rules.pcp_free != PcpFree::Batch;
        let doublings = u32::try_from(self.rules.pcp_doublings_max).unwrap();
        let pcp = &mut self.zones[z].pcps[cpu];
        pcp.lists[number].insert(0, (pfn, order, list));
        let high = if pcp.hurried && pcp.batch * 4 < pcp.high { pcp.batch * 4 } else { pcp.high };
        let in_a_row = self.rules.pcp_free == PcpFree::DoublingAllOfHigh && pcp.factor > 0;
        if in_a_row && (1..=3).contains(&order) {
            let all = pcp.count();
            self.drain(z, cpu, all, number);
        } else if pcp.count() >= high {
            let mut amount = pcp.batch;
            if doubling && high < pcp.batch {
                amount = 1;
            } else if doubling {
                amount <<= pcp.factor;
                if amount < high - pcp.batch && pcp.factor < doublings {
                    pcp.factor += 1;
                }
                amount = amount.max(pcp.batch).min(high - pcp.batch);
            }
            let amount = amount.min(pcp.count());
            self.drain(z, cpu, amount, number);
        }
    }

    fn drain(&mut self, z: usize, cpu: usize, amount: u32, requested: usize) {
        let lists = match self.rules.pcp_lists {
            PcpLists::BaseReclaimableFirst | PcpLists::Base => 3,
            PcpLists::HugeByType => 15,
            PcpLists::HugeTogether => 13,
        };
        let mut left = i64::from(amount);
        let mut number = if self.rules.pcp_drain == PcpDrain::RequestedFirst { requested + lists - 1 } else { 0 };
        let mut turns = 0;
        while left > 0 {
            loop {
                number = (number + 1) % lists;
                turns += 1;
                if !self.zones[z].pcps[cpu].lists[number].is_empty() {
                    break;
                }
            }
            if turns >= i64::try_from(lists).unwrap() || self.rules.pcp_drain == PcpDrain::RequestedFirst {
                turns = left;
            }
            loop {
                let (pfn, order, list) = self.zones[z].pcps[cpu].lists[number].pop().unwrap();
                self.merge(z, pfn, order, list);
                left -= 1 << order;
                turns -= 1;
                if left <= 0 || turns == 0 || self.zones[z].pcps[cpu].lists[number].is_empty() {
                    break;
                }
            }
        }
    }

    fn merge(&mut self, z: usize, pfn: u32, order: u32, list: MigrateType) {
        let (mut pfn, mut order) = (pfn, order);
        while order < self.max {
            let buddy = pfn ^ (1 << order);
            if self.zones[z].find(buddy, order).is_none() {
                break;
            }
            let other = self.type_at(buddy);
            let mixes = match self.rules.merging {
                Merging::AllButIsolated => true,
                Merging::Requestable => REQUESTABLE.contains(&other) && REQUESTABLE.contains(&list),
            };
            if order >= self.pageblock && list != other && !mixes {
                break;
            }
            self.zones[z].take_off(buddy, order);
            pfn = pfn.min(buddy);
            order += 1;
        }
        let above = pfn >> (order + 1) << (order + 1) ^ (1 << (order + 1));
        let likely = order + 1 < self.max && self.zones[z].find(above, order + 1).is_some();
        self.zones[z].put(pfn, order, list, likely);
    }
}
