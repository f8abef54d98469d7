//! Linux: mm/swap.c, include/linux/mm_inline.h, struct lruvec in include/linux/mmzone.h (v3.9 to v6.18).
//! Differs: a memcg only charges, no generations (MGLRU), no unevictable list.
//!
//! A new folio first waits in a batch of its CPU, which holds a reference to it, and is on no list: it cannot be isolated.
//! If the batch's reference is the last when the batch is drained, the folio is freed.

mod moves;
mod quiet;

use memory::{
    cost::{Cause, Work},
    cx::Cx,
    frame::{FrameFlag, FrameTable},
    list::List,
    lru_kind::LruKind,
    pageblock::ZoneIndex,
    per_node::PerNode,
    per_zone::PerZone,
    primitive,
    spin::SpinLock,
    step::RUN,
};
use rules::{machine::MachineSpec, variant::LruBy};
use units::{CpuId, NodeId, Order, Pfn};

use crate::{Mm, space::rmap::Unmapped};

pub(crate) use moves::Taken;
pub(crate) use quiet::{Patience, Quiet, QuietFolio, QuietLists};

/// Most folios that a batch of any release holds.
const BATCH_MAX: usize = 31;
/// Most folios that leave their lists under one hold of a lock.
const RUN_MAX: usize = 32;
const _: () = assert!(RUN_MAX as u64 == RUN);

/// The lists of one node or zone (`struct lruvec`).
#[derive(Clone, Debug, Default)]
pub struct Lruvec {
    lists: [List; LruKind::ALL.len()],
    /// `lru_lock`: of the zone up to 4.7, of the node up to 5.10.
    lock: SpinLock,
    /// Number of times that an anonymous folio was put on one of the lists, or taken off.
    moves: u64,
    /// The anonymous lists, while reclaim can free none of their folios (`quiet.rs`).
    pub(crate) quiet: Option<Box<Quiet>>,
    /// When the lists are next checked for that.
    pub(crate) patience: Patience,
    /// The cost of recent reclaim, in pages: of anonymous memory, and of files (`anon_cost`, `file_cost`).
    pub(crate) cost: [u64; 2],
    /// Evictions and activations so far: the clock that measures how long a page was away (`nonresident_age`).
    pub(crate) nonresident_age: u64,
    /// Refaulted pages that became active at once (`WORKINGSET_ACTIVATE_ANON`, `_FILE`), now and when reclaim last ended
    /// (`refaults`).
    pub(crate) activations: [u64; 2],
    pub(crate) refaults: [u64; 2],
    /// Pages that came to these lists or were scanned lately, and the part of these pages that was in use: of anonymous
    /// memory, and of files (`struct zone_reclaim_stat`, up to 5.7).
    pub(crate) recent: [Recent; 2],
}

/// Pages of one kind of memory that were scanned lately, and the part of these pages that was in use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recent {
    /// `recent_scanned`.
    pub(crate) scanned: u64,
    /// `recent_rotated`.
    pub(crate) rotated: u64,
}

impl Recent {
    /// Counts `pages` more, in use or not (`update_page_reclaim_stat`, mm/swap.c, v4.1).
    pub(crate) fn note(&mut self, pages: u64, is_active: bool) {
        self.scanned += pages;
        self.rotated += if is_active { pages } else { 0 };
    }
}

impl Lruvec {
    /// Counts a folio that is put on a list, or taken off.
    #[inline]
    fn note_move(&mut self, kind: LruKind) {
        self.moves += u64::from(!kind.is_file());
    }

    /// The folios of one list, the newest at its head.
    pub fn list(&self, kind: LruKind) -> &List {
        &self.lists[kind as usize]
    }
}

/// New folios of one CPU on their way to the lists (`lru_add` of `struct cpu_fbatches`), oldest first. 15 of them, as most
/// releases have, fill one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Batch {
    len: u8,
    folios: [Pfn; BATCH_MAX],
}

/// Folios of one order that are freed together: as many as leave their lists under one hold of a lock (`SWAP_CLUSTER_MAX`).
#[derive(Debug)]
pub(crate) struct Run {
    folios: [Pfn; RUN_MAX],
    len: usize,
    order: Order,
}

impl Run {
    /// An empty run of base pages.
    pub(crate) const EMPTY: Self = Self { folios: [Pfn(0); RUN_MAX], len: 0, order: Order::BASE };

    /// Adds a folio.
    #[inline]
    pub(crate) fn push(&mut self, head: Pfn) {
        self.folios[self.len] = head;
        self.len += 1;
    }
}

/// A list, and the zone whose folios on the list count.
type Place = (ZoneIndex, LruKind);

/// The folios of a zone on LRU lists.
#[derive(Clone, Debug)]
struct InZone {
    /// Index of the `Lruvec` that the zone's folios are on.
    lruvec: u16,
    /// Frames of the zone on each list (`NR_ZONE_INACTIVE_ANON` and so on).
    frames: [u64; LruKind::ALL.len()],
    /// Frames of the zone's isolated folios (`NR_ISOLATED_ANON`, `NR_ISOLATED_FILE`).
    isolated: [u64; 2],
}

/// All LRU lists, and the batches of new folios.
#[derive(Clone, Debug)]
pub struct Lru {
    lruvecs: Vec<Lruvec>,
    zones: PerZone<InZone>,
    /// Batches of new folios, by CPU number.
    batches: Vec<Batch>,
}

impl Lru {
    /// Empty lists for zones, which are given by their nodes.
    pub(crate) fn new(by: LruBy, machine: &MachineSpec, node_of_zone: &[NodeId], cpus: usize) -> Self {
        let mut places = 0..;
        let places = PerNode::new(machine, |_| places.next().expect("there is no end"));
        let index = |(zone, node): (usize, &NodeId)| match by {
            LruBy::Zone => zone,
            LruBy::Node => places[*node],
        };
        let in_zone = |at| InZone {
            lruvec: u16::try_from(at).expect("fewer zones than numbers for them"),
            frames: [0; LruKind::ALL.len()],
            isolated: [0; 2],
        };
        let zones: Vec<InZone> = node_of_zone.iter().enumerate().map(index).map(in_zone).collect();
        let count = zones.iter().map(|zone| zone.lruvec).max().map_or(0, |last| usize::from(last) + 1);
        let batch = Batch { folios: [Pfn(0); BATCH_MAX], len: 0 };
        Self { lruvecs: vec![Lruvec::default(); count], zones: PerZone::new(zones), batches: vec![batch; cpus] }
    }

    /// The lists of each node, or of each zone up to 4.7.
    pub fn lruvecs(&self) -> &[Lruvec] {
        &self.lruvecs
    }

    /// Index in [`Self::lruvecs`] of the lists of a zone's folios.
    pub fn of_zone(&self, zone: ZoneIndex) -> usize {
        usize::from(self.zones[zone].lruvec)
    }

    /// Frames of a zone on a kind of list (`nr_zone_inactive_anon` and so on).
    pub fn zone_frames(&self, zone: ZoneIndex, kind: LruKind) -> u64 {
        self.zones[zone].frames[kind as usize]
    }

    /// Frames of a zone's isolated folios.
    pub fn zone_isolated(&self, zone: ZoneIndex, is_file: bool) -> u64 {
        self.zones[zone].isolated[usize::from(is_file)]
    }

    /// Frames on one list of a node, or zone (`nr_inactive_anon` and so on).
    pub fn frames(&self, lruvec: usize, kind: LruKind) -> u64 {
        let its = self.zones.iter().filter(|zone| usize::from(zone.lruvec) == lruvec);
        its.map(|zone| zone.frames[kind as usize]).sum()
    }

    #[inline]
    fn insert(&mut self, frames: &mut FrameTable, zone: ZoneIndex, kind: LruKind, head: Pfn, order: Order) {
        let zone = &mut self.zones[zone];
        zone.frames[kind as usize] += u64::from(order.frames());
        self.lruvecs[usize::from(zone.lruvec)].note_move(kind);
        self.lruvecs[usize::from(zone.lruvec)].lists[kind as usize].push_head(frames.threads(), head);
    }

    #[inline]
    fn remove(&mut self, frames: &mut FrameTable, zone: ZoneIndex, kind: LruKind, head: Pfn, order: Order) {
        let zone = &mut self.zones[zone];
        zone.frames[kind as usize] -= u64::from(order.frames());
        self.lruvecs[usize::from(zone.lruvec)].note_move(kind);
        self.lruvecs[usize::from(zone.lruvec)].lists[kind as usize].remove(frames.threads(), head);
    }

    /// Puts folios of one order at the head of a list, one after the other.
    fn insert_all(&mut self, frames: &mut FrameTable, (zone, kind): Place, heads: &[Pfn], order: Order) {
        let zone = &mut self.zones[zone];
        zone.frames[kind as usize] += heads.len() as u64 * u64::from(order.frames());
        self.lruvecs[usize::from(zone.lruvec)].note_move(kind);
        self.lruvecs[usize::from(zone.lruvec)].lists[kind as usize].push_heads(frames.threads(), heads);
    }

    /// Takes folios of one order off a list, one after the other.
    fn remove_all(&mut self, frames: &mut FrameTable, (zone, kind): Place, heads: &[Pfn], order: Order) {
        let zone = &mut self.zones[zone];
        zone.frames[kind as usize] -= heads.len() as u64 * u64::from(order.frames());
        self.lruvecs[usize::from(zone.lruvec)].note_move(kind);
        self.lruvecs[usize::from(zone.lruvec)].lists[kind as usize].remove_all(frames.threads(), heads);
    }

    /// Takes the LRU lock of a zone.
    pub(crate) fn hold(&mut self, cx: &mut Cx<'_>, zone: ZoneIndex) {
        let at = self.of_zone(zone);
        self.lruvecs[at].lock.acquire(cx, Cause::LruLock);
    }

    /// Releases the LRU lock of a zone, and charges the folios that were moved.
    pub(crate) fn let_go(&mut self, cx: &mut Cx<'_>, zone: ZoneIndex, moves: u64) {
        let at = self.of_zone(zone);
        cx.work(Work::LruMove, moves);
        self.lruvecs[at].lock.release(cx, Cause::LruLock);
    }

    /// Sets the LRU sizes of the first zone.
    #[cfg(test)]
    pub(crate) fn set_sizes_for_test(&mut self, frames: [u64; LruKind::ALL.len()]) {
        self.zones[ZoneIndex::FIRST].frames = frames;
    }

    /// Whether a CPU would have to wait for the LRU lock of a zone.
    pub(crate) fn is_contended(&self, cx: &Cx<'_>, zone: ZoneIndex) -> bool {
        self.lruvecs[self.of_zone(zone)].lock.is_contended(cx)
    }

    /// The lists of a node or zone, and what is known of them.
    pub(crate) fn lruvec_mut(&mut self, at: usize) -> &mut Lruvec {
        &mut self.lruvecs[at]
    }

    /// Takes the LRU lock of some lists, and releases it.
    pub(crate) fn look(&mut self, cx: &mut Cx<'_>, at: usize) {
        self.lruvecs[at].lock.acquire(cx, Cause::LruLock);
        self.lruvecs[at].lock.release(cx, Cause::LruLock);
    }

    /// The folios in a CPU's batch, oldest first.
    pub fn batch(&self, cpu: CpuId) -> &[Pfn] {
        let batch = &self.batches[cpu.0 as usize];
        &batch.folios[..usize::from(batch.len)]
    }

    /// Number of CPUs with batches.
    pub fn cpus(&self) -> u32 {
        u32::try_from(self.batches.len()).expect("fewer than 2^32 CPUs")
    }
}

/// Holds an LRU lock while folios are moved one after the other, for as long as they belong to the same lists
/// (`folio_lruvec_relock_irqsave`).
#[derive(Clone, Copy, Debug, Default)]
struct Relock {
    held: Option<usize>,
    moves: u64,
}

impl Relock {
    /// Takes the LRU lock of a zone to move some folios, if it is not held yet.
    fn hold(&mut self, lru: &mut Lru, cx: &mut Cx<'_>, zone: ZoneIndex, moves: usize) {
        let at = lru.of_zone(zone);
        if self.held != Some(at) {
            self.change(lru, cx, at);
        }
        self.moves += moves as u64;
    }

    fn change(&mut self, lru: &mut Lru, cx: &mut Cx<'_>, at: usize) {
        self.end(lru, cx);
        self.held = Some(at);
        lru.lruvecs[at].lock.acquire(cx, Cause::LruLock);
    }

    fn end(&mut self, lru: &mut Lru, cx: &mut Cx<'_>) {
        if let Some(at) = self.held.take() {
            cx.work(Work::LruMove, std::mem::take(&mut self.moves));
            lru.lruvecs[at].lock.release(cx, Cause::LruLock);
        }
    }
}

impl Mm {
    /// Puts a folio into the CPU's batch (`folio_add_lru`). The folio is on no list, and has [`FrameFlag::InBatch`] and the
    /// flag of its future list.
    #[inline]
    pub(crate) fn lru_add(&mut self, cx: &mut Cx, head: Pfn, order: Order) {
        let (most, full_drains) = (self.memory.variant().lru_batch, self.memory.variant().lru_full_drains);
        let cpu = cx.cpu().0 as usize;
        if !full_drains && u64::from(self.lru.batches[cpu].len) == most {
            self.lru_add_drain(cx);
        }
        let batch = &mut self.lru.batches[cpu];
        batch.folios[usize::from(batch.len)] = head;
        batch.len += 1;
        let is_over = full_drains && u64::from(batch.len) == most;
        if is_over || (order > Order::BASE && self.memory.variant().lru_huge_drains) {
            self.lru_add_drain(cx);
        }
    }

    /// Moves the folios of this CPU's batch to their lists; folios without another reference are freed (`lru_add_drain`).
    pub(crate) fn lru_add_drain(&mut self, cx: &mut Cx) {
        self.lru_add_drain_cpu(cx, cx.cpu());
    }

    /// Moves the folios of any CPU's batch to their lists.
    pub(crate) fn lru_add_drain_cpu(&mut self, cx: &mut Cx, cpu: CpuId) {
        let batch = &mut self.lru.batches[cpu.0 as usize];
        let folios = batch.folios;
        let count = usize::from(std::mem::take(&mut batch.len));
        if count == 0 {
            return;
        }
        let mut dropped = [Pfn(0); BATCH_MAX];
        let mut drops = 0;
        let mut relock = Relock::default();
        // Folios for the same list are put there together.
        let (mut run, mut first, mut same) = ([Pfn(0); BATCH_MAX], 0, None);
        let mut len = 0;
        for head in folios[..count].iter().copied() {
            let Some((kind, order)) = self.memory.frames.leave_batch(head) else {
                dropped[drops] = head;
                drops += 1;
                continue;
            };
            let to = (self.zone_position(head), kind, order);
            if same.is_some_and(|same| same != to) {
                self.insert_run(cx, &mut relock, same, &run[first..len]);
                first = len;
            }
            same = Some(to);
            run[len] = head;
            len += 1;
        }
        self.insert_run(cx, &mut relock, same, &run[first..len]);
        relock.end(&mut self.lru, cx);
        if drops > 0 {
            primitive::uncharge(cx);
        }
        // The last folio is freed first, as in `release_pages`.
        for head in dropped[..drops].iter().rev().copied() {
            let order = self.memory.frames.allocated(head).expect("a dropped folio is not freed yet");
            self.memory.free(cx, head, order);
        }
    }

    fn insert_run(&mut self, cx: &mut Cx, relock: &mut Relock, to: Option<(ZoneIndex, LruKind, Order)>, heads: &[Pfn]) {
        if let Some((zone, kind, order)) = to {
            relock.hold(&mut self.lru, cx, zone, heads.len());
            let at = self.lru.of_zone(zone);
            self.lru.lruvecs[at].recent[usize::from(kind.is_file())].note(heads.len() as u64, kind.is_active());
            self.lru.insert_all(&mut self.memory.frames, (zone, kind), heads, order);
        }
    }

    fn remove_run(&mut self, cx: &mut Cx, relock: &mut Relock, from: Option<Place>, heads: &[Pfn], order: Order) {
        if let Some((zone, kind)) = from {
            relock.hold(&mut self.lru, cx, zone, heads.len());
            self.lru.remove_all(&mut self.memory.frames, (zone, kind), heads, order);
        }
    }

    /// Drops the last reference beside that of a batch or of an isolation: the folio is freed now, or when the batch is
    /// drained or the isolation ends (`folio_put`).
    pub(crate) fn put_folio(&mut self, cx: &mut Cx, folio: Unmapped) {
        let mut run = Run { order: folio.order, ..Run::EMPTY };
        if folio.order > Order::BASE {
            primitive::clear_tails(cx, folio.order);
        }
        run.push(folio.head);
        self.put_run(cx, &mut run);
    }

    /// Takes folios off their lists under one lock, then frees them (`release_pages`).
    pub(crate) fn put_run(&mut self, cx: &mut Cx, run: &mut Run) {
        let (count, order) = (std::mem::take(&mut run.len), run.order);
        let mut free = 0;
        let mut relock = Relock::default();
        // Folios of the same list leave it together.
        let (mut first, mut same) = (0, None);
        for at in 0..count {
            let head = run.folios[at];
            let Some(kind) = self.memory.frames.leave_lru(head) else {
                // A batch holds it, or whoever has taken it off its list; they free it.
                self.memory.frames.mark(head, FrameFlag::Dropped, true);
                continue;
            };
            let from = (self.zone_position(head), kind);
            if same.is_some_and(|same| same != from) {
                self.remove_run(cx, &mut relock, same, &run.folios[first..free], order);
                first = free;
            }
            same = Some(from);
            run.folios[free] = head;
            free += 1;
        }
        self.remove_run(cx, &mut relock, same, &run.folios[first..free], order);
        relock.end(&mut self.lru, cx);
        if free > 0 {
            primitive::uncharge(cx);
        }
        for head in &run.folios[..free] {
            self.memory.free(cx, *head, order);
        }
    }

    /// The zone of an allocated frame, by position.
    #[inline]
    pub(crate) fn zone_position(&self, head: Pfn) -> ZoneIndex {
        self.memory.frames.blocks.zone(head).expect("an allocated frame is in a zone")
    }

    /// Isolates a folio from its LRU list (`folio_isolate_lru`); returns the list, or nothing if the folio is on none. Its
    /// state stays, and its control lists it (`Holdings::off_lru`). The caller holds the LRU lock.
    pub(crate) fn isolate_lru(&mut self, head: Pfn) -> Option<LruKind> {
        let kind = self.memory.frames.leave_lru(head)?;
        let (zone, order) =
            (self.zone_position(head), self.memory.frames.allocated(head).expect("it is on an LRU list"));
        self.lru.remove(&mut self.memory.frames, zone, kind, head, order);
        self.lru.zones[zone].isolated[usize::from(kind.is_file())] += u64::from(order.frames());
        Some(kind)
    }

    /// Charges one hold of a zone's LRU lock, under which `moves` folios were moved.
    pub(crate) fn charge_lru_moves(&mut self, cx: &mut Cx, zone: ZoneIndex, moves: u64) {
        let at = self.lru.of_zone(zone);
        self.lru.lruvecs[at].lock.acquire(cx, Cause::LruLock);
        cx.work(Work::LruMove, moves);
        self.lru.lruvecs[at].lock.release(cx, Cause::LruLock);
    }

    /// Splits a huge folio on its list: its mapped tails go before the head, the last one first, and the head goes if it is
    /// unmapped. Unmapped tails are put on the list too, and freed right after (`lru_add_page_tail`).
    pub(crate) fn lru_split(
        &mut self,
        cx: &mut Cx,
        (zone, head): (ZoneIndex, Pfn),
        is_active: bool,
        (tails, unmapped): (&[Pfn], usize),
        keeps_head: bool,
    ) {
        let (at, kind) = (self.lru.of_zone(zone), LruKind::of(false, is_active));
        self.lru.lruvecs[at].lock.acquire(cx, Cause::LruLock);
        cx.work(Work::LruMove, (tails.len() + unmapped) as u64);
        self.lru.lruvecs[at].recent[0].note((tails.len() + unmapped) as u64, is_active);
        self.lru.lruvecs[at].note_move(kind);
        let list = &mut self.lru.lruvecs[at].lists[kind as usize];
        for tail in tails {
            self.memory.frames.mark(*tail, FrameFlag::OnLru, true);
            self.memory.frames.mark(*tail, FrameFlag::Active, is_active);
            list.insert_before(self.memory.frames.threads(), head, *tail);
        }
        if keeps_head {
            self.memory.frames.mark(head, FrameFlag::OnLru, true);
            self.memory.frames.mark(head, FrameFlag::Active, is_active);
        } else {
            list.remove(self.memory.frames.threads(), head);
        }
        let left = tails.len() as u64 + u64::from(keeps_head);
        self.lru.zones[zone].frames[kind as usize] -= u64::from(Order::HUGE.frames()) - left;
        self.lru.lruvecs[at].lock.release(cx, Cause::LruLock);
    }

    /// Counts off frames of an isolated folio that were freed.
    pub(crate) fn lru_isolated_less(&mut self, zone: ZoneIndex, frames: u64) {
        self.lru.zones[zone].isolated[0] -= frames;
    }

    /// Counts off an isolated folio that is freed or becomes part of another.
    pub(crate) fn end_isolation(&mut self, head: Pfn) {
        let (zone, order) = (self.zone_position(head), self.memory.frames.allocated(head).expect("it is a folio"));
        let is_file = self.memory.frames.is_file(head);
        self.lru.zones[zone].isolated[usize::from(is_file)] -= u64::from(order.frames());
    }

    /// Puts an isolated folio back on its list, or returns it to be freed if its last reference was dropped
    /// (`putback_movable_pages`). The caller holds the LRU lock.
    #[must_use]
    pub(crate) fn putback_or_drop(&mut self, head: Pfn) -> Option<Pfn> {
        if self.memory.frames.has(head, FrameFlag::Dropped) {
            self.end_isolation(head);
            return Some(head);
        }
        self.putback_lru(head, self.memory.frames.has(head, FrameFlag::Active));
        None
    }

    /// Puts a folio that replaces an isolated one on its list at once, after draining this CPU's batch (`folio_add_lru` and
    /// `lru_add_drain` in `migrate_folio_move`).
    pub(crate) fn lru_add_migrated(&mut self, cx: &mut Cx, head: Pfn) {
        self.lru_add_drain(cx);
        let (zone, order) = (self.zone_position(head), self.memory.frames.allocated(head).expect("it is a folio"));
        let kind = LruKind::of(self.memory.frames.is_file(head), self.memory.frames.has(head, FrameFlag::Active));
        self.memory.frames.mark(head, FrameFlag::OnLru, true);
        self.lru.hold(cx, zone);
        self.lru.insert(&mut self.memory.frames, zone, kind, head, order);
        self.lru.let_go(cx, zone, 1);
    }

    /// Puts an isolated folio at the head of the active or inactive list. The caller holds the LRU lock
    /// (`move_folios_to_lru`, `folio_putback_lru`).
    pub(crate) fn putback_lru(&mut self, head: Pfn, is_active: bool) {
        self.end_isolation(head);
        let (zone, order) = (self.zone_position(head), self.memory.frames.allocated(head).expect("it is a folio"));
        self.memory.frames.mark(head, FrameFlag::OnLru, true);
        self.memory.frames.mark(head, FrameFlag::Active, is_active);
        let kind = LruKind::of(self.memory.frames.is_file(head), is_active);
        self.lru.insert(&mut self.memory.frames, zone, kind, head, order);
    }
}

#[cfg(test)]
mod tests;
