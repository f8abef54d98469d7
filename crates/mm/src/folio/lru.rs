//! Linux: mm/swap.c, include/linux/mm_inline.h, struct lruvec in include/linux/mmzone.h (v3.9 to v6.18).
//! Differs: a memcg only charges, no generations (MGLRU), no unevictable list.
//!
//! A new folio first waits in a batch of its CPU, which holds a reference to it, and is on no list: nobody can isolate it,
//! and it is freed when the batch is drained if nobody else wants it any more.

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

/// The most folios that a batch of any version holds.
const BATCH_MAX: usize = 31;
/// Folios that leave their lists under one hold of a lock.
const RUN_MAX: usize = 32;
const _: () = assert!(RUN_MAX as u64 == RUN);

/// The lists of one node or zone (`struct lruvec`).
#[derive(Clone, Debug, Default)]
pub struct Lruvec {
    lists: [List; LruKind::ALL.len()],
    /// `lru_lock`: of the zone up to 4.7, of the node up to 5.10.
    lock: SpinLock,
    /// How often a folio of anonymous memory was put on one of the lists, or taken off.
    moves: u64,
    /// The lists, where reclaim can take nothing of them.
    pub(crate) quiet: Option<Box<Quiet>>,
    /// When that is looked for.
    pub(crate) patience: Patience,
    /// The cost of reclaiming lately, in pages: of anonymous memory, of files (`anon_cost`, `file_cost`).
    pub(crate) cost: [u64; 2],
    /// Evictions and activations so far: the clock by which a page was away for long or not (`nonresident_age`).
    pub(crate) nonresident_age: u64,
    /// Pages that came back to be active at once (`WORKINGSET_ACTIVATE_ANON`, `_FILE`), and how many had when reclaim last
    /// ended (`refaults`).
    pub(crate) activations: [u64; 2],
    pub(crate) refaults: [u64; 2],
    /// Pages that came to these lists or were looked at lately, and those of them that were in use: of anonymous memory, of
    /// files (`struct zone_reclaim_stat`, up to 5.7).
    pub(crate) recent: [Recent; 2],
}

/// How much of one kind of memory was looked at lately, and was found in use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recent {
    /// `recent_scanned`.
    pub(crate) scanned: u64,
    /// `recent_rotated`.
    pub(crate) rotated: u64,
}

impl Recent {
    /// So many pages more, in use or not (`update_page_reclaim_stat`, mm/swap.c, v4.1).
    pub(crate) fn note(&mut self, pages: u64, is_active: bool) {
        self.scanned += pages;
        self.rotated += if is_active { pages } else { 0 };
    }
}

impl Lruvec {
    /// A folio is put on a list, or taken off.
    #[inline]
    fn note_move(&mut self, kind: LruKind) {
        self.moves += u64::from(!kind.is_file());
    }

    /// The folios of one list, the newest at its head.
    pub fn list(&self, kind: LruKind) -> &List {
        &self.lists[kind as usize]
    }
}

/// Folios of one CPU on their way to the lists (`lru_add` of `struct cpu_fbatches`), oldest first: 15 of them, which most
/// versions have, are one line of cache.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Batch {
    len: u8,
    folios: [Pfn; BATCH_MAX],
}

/// Folios of one size that are given back together: as many as one hold of a lock takes (`SWAP_CLUSTER_MAX`).
#[derive(Debug)]
pub(crate) struct Run {
    folios: [Pfn; RUN_MAX],
    len: usize,
    order: Order,
}

impl Run {
    /// For base pages; none yet.
    pub(crate) const EMPTY: Self = Self { folios: [Pfn(0); RUN_MAX], len: 0, order: Order::BASE };

    /// One more.
    #[inline]
    pub(crate) fn push(&mut self, head: Pfn) {
        self.folios[self.len] = head;
        self.len += 1;
    }
}

/// One list and the zone of the folios on it that are meant.
type Place = (ZoneIndex, LruKind);

/// Folios of a zone on LRU lists.
#[derive(Clone, Debug)]
struct InZone {
    /// The lists that its folios are on.
    lruvec: u16,
    /// Their frames on each (`NR_ZONE_INACTIVE_ANON` and so on).
    frames: [u64; LruKind::ALL.len()],
    /// Frames of folios that were taken off them, to be looked at or moved (`NR_ISOLATED_ANON`, `NR_ISOLATED_FILE`).
    isolated: [u64; 2],
}

/// LRU lists and the batches before them.
#[derive(Clone, Debug)]
pub struct Lru {
    lruvecs: Vec<Lruvec>,
    zones: PerZone<InZone>,
    /// By CPU number.
    batches: Vec<Batch>,
}

impl Lru {
    /// Empty lists for zones, given by each one's node.
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

    /// The lists of each node, or zone.
    pub fn lruvecs(&self) -> &[Lruvec] {
        &self.lruvecs
    }

    /// Which of [`Self::lruvecs`] the folios of a zone are on.
    pub fn of_zone(&self, zone: ZoneIndex) -> usize {
        usize::from(self.zones[zone].lruvec)
    }

    /// Frames of a zone on lists of a kind (`nr_zone_inactive_anon` and so on).
    pub fn zone_frames(&self, zone: ZoneIndex, kind: LruKind) -> u64 {
        self.zones[zone].frames[kind as usize]
    }

    /// Frames of a zone that were taken off the lists, to be looked at or moved.
    pub fn zone_isolated(&self, zone: ZoneIndex, is_file: bool) -> u64 {
        self.zones[zone].isolated[usize::from(is_file)]
    }

    /// Frames on one of the lists of a node, or zone (`nr_inactive_anon` and so on).
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

    /// Inserts folios of one size, one after the other.
    fn insert_all(&mut self, frames: &mut FrameTable, (zone, kind): Place, heads: &[Pfn], order: Order) {
        let zone = &mut self.zones[zone];
        zone.frames[kind as usize] += heads.len() as u64 * u64::from(order.frames());
        self.lruvecs[usize::from(zone.lruvec)].note_move(kind);
        self.lruvecs[usize::from(zone.lruvec)].lists[kind as usize].push_heads(frames.threads(), heads);
    }

    /// Removes folios of one size, one after the other.
    fn remove_all(&mut self, frames: &mut FrameTable, (zone, kind): Place, heads: &[Pfn], order: Order) {
        let zone = &mut self.zones[zone];
        zone.frames[kind as usize] -= heads.len() as u64 * u64::from(order.frames());
        self.lruvecs[usize::from(zone.lruvec)].note_move(kind);
        self.lruvecs[usize::from(zone.lruvec)].lists[kind as usize].remove_all(frames.threads(), heads);
    }

    /// Takes the lock of the lists of a zone's folios.
    pub(crate) fn hold(&mut self, cx: &mut Cx<'_>, zone: ZoneIndex) {
        let at = self.of_zone(zone);
        self.lruvecs[at].lock.acquire(cx, Cause::LruLock);
    }

    /// Lets go of it, after so many folios were put on lists or taken off.
    pub(crate) fn let_go(&mut self, cx: &mut Cx<'_>, zone: ZoneIndex, moves: u64) {
        let at = self.of_zone(zone);
        cx.work(Work::LruMove, moves);
        self.lruvecs[at].lock.release(cx, Cause::LruLock);
    }

    /// As if there were so many frames on the lists of the first zone.
    #[cfg(test)]
    pub(crate) fn set_sizes_for_test(&mut self, frames: [u64; LruKind::ALL.len()]) {
        self.zones[ZoneIndex::FIRST].frames = frames;
    }

    /// Would it have to be waited for?
    pub(crate) fn is_contended(&self, cx: &Cx<'_>, zone: ZoneIndex) -> bool {
        self.lruvecs[self.of_zone(zone)].lock.is_contended(cx)
    }

    /// Some lists, to read or write what is known of them.
    pub(crate) fn lruvec_mut(&mut self, at: usize) -> &mut Lruvec {
        &mut self.lruvecs[at]
    }

    /// Takes the lock of some lists, and lets it go.
    pub(crate) fn look(&mut self, cx: &mut Cx<'_>, at: usize) {
        self.lruvecs[at].lock.acquire(cx, Cause::LruLock);
        self.lruvecs[at].lock.release(cx, Cause::LruLock);
    }

    /// The folios in a CPU's batch, oldest first.
    pub fn batch(&self, cpu: CpuId) -> &[Pfn] {
        let batch = &self.batches[cpu.0 as usize];
        &batch.folios[..usize::from(batch.len)]
    }

    /// How many CPUs have batches.
    pub fn cpus(&self) -> u32 {
        u32::try_from(self.batches.len()).expect("fewer than 2^32 CPUs")
    }
}

/// The lists whose lock is held while folios are moved one after the other, as long as they are of the same lists
/// (`folio_lruvec_relock_irqsave`).
#[derive(Clone, Copy, Debug, Default)]
struct Relock {
    held: Option<usize>,
    moves: u64,
}

impl Relock {
    /// Holds the lock of a zone's folios, to move some.
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
    /// A folio on no list, marked [`FrameFlag::InBatch`] and with the list that it is for, goes into the CPU's batch
    /// (`folio_add_lru`).
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

    /// Moves the folios of this CPU's batch to their lists; those that nobody else wants any more are freed
    /// (`lru_add_drain`).
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
        // Those that go to one list, one after the other.
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
        // The last is freed first, as `release_pages` does it.
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

    /// Gives back the last reference but for that of a batch, or of who has isolated the folio: it is freed, now or when
    /// the batch is drained or the folio put back (`folio_put`).
    pub(crate) fn put_folio(&mut self, cx: &mut Cx, folio: Unmapped) {
        let mut run = Run { order: folio.order, ..Run::EMPTY };
        if folio.order > Order::BASE {
            primitive::clear_tails(cx, folio.order);
        }
        run.push(folio.head);
        self.put_run(cx, &mut run);
    }

    /// Puts folios that leave their lists all under one lock, and are freed then (`release_pages`).
    pub(crate) fn put_run(&mut self, cx: &mut Cx, run: &mut Run) {
        let (count, order) = (std::mem::take(&mut run.len), run.order);
        let mut free = 0;
        let mut relock = Relock::default();
        // Those that leave one list, one after the other.
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

    /// Takes a folio off its LRU list, to be looked at or moved: it stays what it is, and its control says so
    /// (`Holdings::off_lru`). Which list it was on; nothing when it is on none. The caller holds the lists' lock
    /// (`folio_isolate_lru`).
    pub(crate) fn isolate_lru(&mut self, head: Pfn) -> Option<LruKind> {
        let kind = self.memory.frames.leave_lru(head)?;
        let (zone, order) =
            (self.zone_position(head), self.memory.frames.allocated(head).expect("it is on an LRU list"));
        self.lru.remove(&mut self.memory.frames, zone, kind, head, order);
        self.lru.zones[zone].isolated[usize::from(kind.is_file())] += u64::from(order.frames());
        Some(kind)
    }

    /// One hold of the lock of a zone's lists, in which so many folios were moved.
    pub(crate) fn charge_lru_moves(&mut self, cx: &mut Cx, zone: ZoneIndex, moves: u64) {
        let at = self.lru.of_zone(zone);
        self.lru.lruvecs[at].lock.acquire(cx, Cause::LruLock);
        cx.work(Work::LruMove, moves);
        self.lru.lruvecs[at].lock.release(cx, Cause::LruLock);
    }

    /// A huge folio on a list was taken apart: its tails that are mapped, the last one first, go before the head, which goes
    /// if nobody maps it; the others are put on the list too, and freed right after (`lru_add_page_tail`).
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

    /// So many frames of an isolated folio are freed.
    pub(crate) fn lru_isolated_less(&mut self, zone: ZoneIndex, frames: u64) {
        self.lru.zones[zone].isolated[0] -= frames;
    }

    /// An isolated folio is freed, or becomes part of something else: it is counted no longer.
    pub(crate) fn end_isolation(&mut self, head: Pfn) {
        let (zone, order) = (self.zone_position(head), self.memory.frames.allocated(head).expect("it is a folio"));
        let is_file = self.memory.frames.is_file(head);
        self.lru.zones[zone].isolated[usize::from(is_file)] -= u64::from(order.frames());
    }

    /// An isolated folio goes back to the list that it came from; one that nobody wants any more is freed instead. The
    /// caller holds the lists' lock, and frees what is returned after (`putback_movable_pages`).
    #[must_use]
    pub(crate) fn putback_or_drop(&mut self, head: Pfn) -> Option<Pfn> {
        if self.memory.frames.has(head, FrameFlag::Dropped) {
            self.end_isolation(head);
            return Some(head);
        }
        self.putback_lru(head, self.memory.frames.has(head, FrameFlag::Active));
        None
    }

    /// A folio that takes the place of one that was isolated goes to a list at once; before it, this CPU's batch
    /// (`folio_add_lru` and `lru_add_drain` in `migrate_folio_move`).
    pub(crate) fn lru_add_migrated(&mut self, cx: &mut Cx, head: Pfn) {
        self.lru_add_drain(cx);
        let (zone, order) = (self.zone_position(head), self.memory.frames.allocated(head).expect("it is a folio"));
        let kind = LruKind::of(self.memory.frames.is_file(head), self.memory.frames.has(head, FrameFlag::Active));
        self.memory.frames.mark(head, FrameFlag::OnLru, true);
        self.lru.hold(cx, zone);
        self.lru.insert(&mut self.memory.frames, zone, kind, head, order);
        self.lru.let_go(cx, zone, 1);
    }

    /// An isolated folio goes back to the head of a list, active or not. The caller holds the lists' lock
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
