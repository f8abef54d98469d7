//! Linux: mm/swap.c, include/linux/mm_inline.h, struct lruvec in include/linux/mmzone.h (v3.9 to v6.18).
//! Differs: anonymous folios only; a memcg only charges, no generations (MGLRU), nothing moves between the lists yet.
//!
//! A new folio first waits in a batch of its CPU, which holds a reference to it, and is on no list: nobody can isolate it,
//! and it is freed when the batch is drained if nobody else wants it any more.

use serde::Serialize;
use units::{CpuId, Order, Pfn};

use crate::{
    Mm,
    cost::{Cause, Cx, Work},
    frame::{FrameFlag, FrameTable},
    list::List,
    primitive,
    rmap::Unmapped,
    spin::SpinLock,
    step::RUN,
};

/// The most folios that a batch of any version holds.
const BATCH_MAX: usize = 31;
/// Folios that leave their lists under one hold of a lock.
const RUN_MAX: usize = 32;
const _: () = assert!(RUN_MAX as u64 == RUN);

/// Who has LRU lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LruBy {
    /// Each zone.
    Zone,
    /// Each node.
    Node,
}

/// An LRU list (`enum lru_list`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LruKind {
    /// Anonymous memory to be looked at next.
    InactiveAnon,
    /// Anonymous memory in use.
    ActiveAnon,
}

impl LruKind {
    /// Every list.
    pub const ALL: [Self; 2] = [Self::InactiveAnon, Self::ActiveAnon];
}

/// The lists of one node or zone (`struct lruvec`).
#[derive(Clone, Debug, Default)]
pub struct Lruvec {
    lists: [List; LruKind::ALL.len()],
    frames: [u64; LruKind::ALL.len()],
    /// `lru_lock`: of the zone up to 4.7, of the node up to 5.10.
    lock: SpinLock,
}

impl Lruvec {
    /// The folios of one list, the newest at its head.
    pub fn list(&self, kind: LruKind) -> &List {
        &self.lists[kind as usize]
    }

    /// The frames of its folios (`nr_inactive_anon` and so on).
    pub fn frames(&self, kind: LruKind) -> u64 {
        self.frames[kind as usize]
    }

    #[inline]
    fn insert(&mut self, frames: &mut FrameTable, kind: LruKind, head: Pfn, order: Order) {
        self.lists[kind as usize].push_head(frames.threads(), head);
        self.frames[kind as usize] += u64::from(order.frames());
    }

    #[inline]
    fn remove(&mut self, frames: &mut FrameTable, kind: LruKind, head: Pfn, order: Order) {
        self.lists[kind as usize].remove(frames.threads(), head);
        self.frames[kind as usize] -= u64::from(order.frames());
    }
}

/// Folios of one CPU on their way to the lists (`lru_add` of `struct cpu_fbatches`), oldest first.
#[derive(Clone, Debug)]
struct Batch {
    folios: [Pfn; BATCH_MAX],
    len: u8,
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

/// LRU lists and the batches before them.
#[derive(Clone, Debug)]
pub struct Lru {
    lruvecs: Vec<Lruvec>,
    /// Which of them a zone's folios are on.
    of_zone: Vec<u16>,
    /// By CPU number.
    batches: Vec<Batch>,
}

impl Lru {
    /// Empty lists for zones, given by the position of each one's node.
    pub(crate) fn new(by: LruBy, node_of_zone: &[usize], cpus: usize) -> Self {
        let index = |(zone, node): (usize, &usize)| match by {
            LruBy::Zone => zone,
            LruBy::Node => *node,
        };
        let of_zone = node_of_zone.iter().enumerate().map(index);
        let of_zone: Vec<u16> =
            of_zone.map(|at| u16::try_from(at).expect("fewer zones than numbers for them")).collect();
        let count = of_zone.iter().max().map_or(0, |last| usize::from(*last) + 1);
        let batch = Batch { folios: [Pfn(0); BATCH_MAX], len: 0 };
        Self { lruvecs: vec![Lruvec::default(); count], of_zone, batches: vec![batch; cpus] }
    }

    /// The lists of each node, or zone.
    pub fn lruvecs(&self) -> &[Lruvec] {
        &self.lruvecs
    }

    /// Which of [`Self::lruvecs`] the folios of a zone are on, by the zone's position.
    pub fn of_zone(&self, zone: usize) -> usize {
        usize::from(self.of_zone[zone])
    }

    /// Takes the lock of the lists of a zone's folios, finds nothing to do, and lets it go.
    pub(crate) fn look(&mut self, cx: &mut Cx<'_>, zone: usize) {
        let at = self.of_zone(zone);
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
    /// The lists at `at`, to move one folio.
    #[inline]
    fn lists<'a>(&mut self, lru: &'a mut Lru, cx: &mut Cx<'_>, at: usize) -> &'a mut Lruvec {
        if self.held != Some(at) {
            self.change(lru, cx, at);
        }
        self.moves += 1;
        &mut lru.lruvecs[at]
    }

    #[inline(never)]
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
    /// A new folio, marked [`FrameFlag::InBatch`], goes into the CPU's batch (`folio_add_lru`).
    #[inline]
    pub(crate) fn lru_add(&mut self, cx: &mut Cx, head: Pfn, order: Order) {
        let rules = &self.variant;
        let batch = &mut self.lru.batches[cx.cpu().0 as usize];
        batch.folios[usize::from(batch.len)] = head;
        batch.len += 1;
        if u64::from(batch.len) == rules.lru_batch || (order > Order::BASE && rules.lru_huge_drains) {
            self.lru_add_drain(cx);
        }
    }

    /// Moves the folios of this CPU's batch to their lists; those that nobody else wants any more are freed
    /// (`lru_add_drain`).
    #[inline(never)]
    pub(crate) fn lru_add_drain(&mut self, cx: &mut Cx) {
        let batch = &mut self.lru.batches[cx.cpu().0 as usize];
        let folios = batch.folios;
        let count = usize::from(std::mem::take(&mut batch.len));
        if count == 0 {
            return;
        }
        let kind = self.variant.lru_new_anon;
        let mut dropped = [Pfn(0); BATCH_MAX];
        let mut drops = 0;
        let mut relock = Relock::default();
        for head in folios[..count].iter().copied() {
            if let Some(order) = self.frames.leave_batch(head, kind == LruKind::ActiveAnon) {
                let at = self.lruvec_of(head);
                relock.lists(&mut self.lru, cx, at).insert(&mut self.frames, kind, head, order);
            } else {
                dropped[drops] = head;
                drops += 1;
            }
        }
        relock.end(&mut self.lru, cx);
        if drops > 0 {
            primitive::uncharge(cx);
        }
        // The last is freed first, as `release_pages` does it.
        for head in dropped[..drops].iter().rev().copied() {
            let order = self.frames.allocated(head).expect("a dropped folio is not freed yet");
            self.free(cx, head, order);
        }
    }

    /// Gives back the last reference but for that of a batch: the folio is freed, now or when the batch is drained
    /// (`folio_put`).
    pub(crate) fn put_folio(&mut self, cx: &mut Cx, folio: Unmapped) {
        let mut run = Run { order: folio.order, ..Run::EMPTY };
        if folio.order > Order::BASE {
            primitive::write_tails(cx, folio.order);
        }
        run.push(folio.head);
        self.put_run(cx, &mut run);
    }

    /// The same for folios that leave their lists all under one lock, and are freed then (`release_pages`).
    pub(crate) fn put_run(&mut self, cx: &mut Cx, run: &mut Run) {
        let (count, order) = (std::mem::take(&mut run.len), run.order);
        let mut free = 0;
        let mut relock = Relock::default();
        for at in 0..count {
            let head = run.folios[at];
            if let Some(is_active) = self.frames.leave_lru(head) {
                let kind = if is_active { LruKind::ActiveAnon } else { LruKind::InactiveAnon };
                let lruvec = self.lruvec_of(head);
                relock.lists(&mut self.lru, cx, lruvec).remove(&mut self.frames, kind, head, order);
            } else if self.frames.has(head, FrameFlag::InBatch) {
                self.frames.mark(head, FrameFlag::Dropped, true);
                continue;
            }
            run.folios[free] = head;
            free += 1;
        }
        relock.end(&mut self.lru, cx);
        if free > 0 {
            primitive::uncharge(cx);
        }
        for head in &run.folios[..free] {
            self.free(cx, *head, order);
        }
    }

    /// A folio that is on no list goes to the head of one.
    pub(crate) fn lru_insert(&mut self, head: Pfn, order: Order, kind: LruKind) {
        self.frames.mark(head, FrameFlag::OnLru, true);
        self.frames.mark(head, FrameFlag::Active, kind == LruKind::ActiveAnon);
        let at = self.lruvec_of(head);
        self.lru.lruvecs[at].insert(&mut self.frames, kind, head, order);
    }

    /// References to a folio: its mappings, and a batch (`folio_ref_count`).
    pub(crate) fn folio_references(&self, head: Pfn) -> u32 {
        self.folio_mappings(head) + u32::from(self.frames.has(head, FrameFlag::InBatch))
    }

    #[inline]
    fn lruvec_of(&self, head: Pfn) -> usize {
        let zone = self.frames.blocks.zone(head).expect("an allocated frame is in a zone");
        self.lru.of_zone(zone.position())
    }
}

#[cfg(test)]
mod tests;
