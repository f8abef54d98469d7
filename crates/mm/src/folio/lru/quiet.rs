//! Linux: none; struct lruvec of include/linux/mmzone.h, when reclaim can free none of its anonymous folios.
//! Differs: moves are noted here first, and written to the frame table when other code needs it.
//!
//! A pinned folio that is not accessed only moves from list to list when reclaim scans it. A node may have tens of thousands of
//! such folios, each in a page of the frame table of its own, and reclaim in trouble scans every folio again and again. Here
//! they lie next to each other, and of all moves between two settlements only the difference is written.

use std::collections::VecDeque;

use memory::{
    cost::Work,
    cx::Cx,
    frame::{FrameFlag, FrameTable, Links, NIL, SpaceId},
    list::List,
    lru_kind::LruKind,
    pageblock::ZoneIndex,
};
use rules::zone::ZoneKind;
use units::{Pfn, Picos};

use super::{Lru, RUN_MAX};

/// Scans before lists are next checked for being quiet, at first.
const PATIENCE: u32 = 64;

/// Lists whose folios are all quiet, and the conditions under which they stay so.
#[derive(Clone, Debug)]
pub(crate) struct Quiet {
    pub(crate) lists: QuietLists,
    /// The address spaces that map the folios, each with its count of changes to huge entries at the time of the check.
    pub(crate) mapped_by: Vec<(SpaceId, u64)>,
    /// Number of pins given up and of pinned pages read from swap, at the time of the check.
    pub(crate) pins_lost: u64,
}

/// When lists are next checked for being quiet: the check takes time, and is in vain for most lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    looks: u32,
    most: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { looks: 0, most: PATIENCE }
    }
}

impl Patience {
    /// Counts folios that were scanned one by one.
    pub(crate) fn note(&mut self, looks: u32) {
        self.looks = self.looks.saturating_add(looks);
    }

    pub(crate) fn is_over(self) -> bool {
        self.looks >= self.most
    }

    /// Sets the time of the next check, for lists of `folios` folios: after a check in vain it comes later, at most once for
    /// each time around the lists.
    pub(crate) fn learn(&mut self, is_quiet: bool, folios: u32) {
        let most = if is_quiet { folios / 16 } else { self.most.saturating_mul(2).min(folios) };
        *self = Self { looks: 0, most: most.max(PATIENCE) };
    }
}

/// A folio that a scan leaves unchanged, but for its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuietFolio {
    pub(crate) head: Pfn,
    pub(crate) zone: ZoneIndex,
    pub(crate) frames: u32,
    /// Page-table entries that a scan reads.
    pub(crate) entries: u32,
    /// Whether a scan moves the folio from the inactive list to the active one, or leaves it there.
    pub(crate) activates: bool,
}

/// A folio, and its place as the frame table has it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    folio: QuietFolio,
    links: Links,
    is_active: bool,
}

/// Folios that were isolated from a list together.
pub(crate) struct QuietTaken {
    folios: [(u32, QuietFolio); RUN_MAX],
    len: usize,
    frames: u64,
    entries: u64,
}

impl QuietTaken {
    fn push(&mut self, slot: u32, folio: QuietFolio) {
        self.folios[self.len] = (slot, folio);
        self.len += 1;
        self.frames += u64::from(folio.frames);
        self.entries += u64::from(folio.entries);
    }

    /// Number of folios.
    pub(crate) fn folios(&self) -> u64 {
        self.len as u64
    }

    /// Frames of the folios.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Page-table entries that a scan of the folios reads.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }
}

/// The two lists of anonymous folios, while all folios on them are quiet.
#[derive(Clone, Debug)]
pub(crate) struct QuietLists {
    slots: Vec<Slot>,
    /// Indices of `slots` on the inactive and on the active list, the head first.
    queues: [VecDeque<u32>; 2],
    /// Number of folios put at each head since the frame table was written.
    pushed: [usize; 2],
    /// Frames on each list.
    pub(crate) frames: [u64; 2],
    /// The highest zone that a folio on either list lies in.
    pub(crate) highest: ZoneKind,
    /// `Lruvec::moves` at the time of the check: the lists are known for as long as it stays.
    moves: u64,
}

impl QuietLists {
    /// Empty lists; `moves` is the present value of `Lruvec::moves`.
    pub(crate) fn new(moves: u64) -> Self {
        Self {
            slots: Vec::new(),
            queues: Default::default(),
            pushed: [0; 2],
            frames: [0; 2],
            highest: ZoneKind::Dma,
            moves,
        }
    }

    /// The zone of a folio, which has the LRU lock of the lists.
    fn zone(&self) -> ZoneIndex {
        self.slots[0].folio.zone
    }

    /// Adds the next folio of a list, from its head on, as the frame table has it.
    pub(crate) fn add(&mut self, folio: QuietFolio, kind: ZoneKind, links: Links, is_active: bool) {
        let slot = u32::try_from(self.slots.len()).expect("fewer folios than frames");
        self.slots.push(Slot { folio, links, is_active });
        self.queues[usize::from(is_active)].push_back(slot);
        self.frames[usize::from(is_active)] += u64::from(folio.frames);
        self.highest = self.highest.max(kind);
    }

    /// Number of folios at the tail of a list that hold at least `frames` frames, or all.
    pub(crate) fn count_last(&self, is_active: bool, frames: u64) -> u64 {
        let last = self.queues[usize::from(is_active)].iter().rev();
        let mut held = 0;
        let of_frames = |slot: &&u32| {
            let is_wanted = held < frames;
            held += u64::from(self.slots[**slot as usize].folio.frames);
            is_wanted
        };
        last.take_while(of_frames).count() as u64
    }

    /// Takes the folio at the tail of a list.
    fn pop(&mut self, is_active: bool) -> Option<(u32, QuietFolio)> {
        let slot = self.queues[usize::from(is_active)].pop_back()?;
        let folio = self.slots[slot as usize].folio;
        self.frames[usize::from(is_active)] -= u64::from(folio.frames);
        Some((slot, folio))
    }

    /// Puts a folio at the head of a list.
    fn push(&mut self, slot: u32, is_active: bool) {
        let at = usize::from(is_active);
        self.queues[at].push_front(slot);
        self.pushed[at] += 1;
        self.frames[at] += u64::from(self.slots[slot as usize].folio.frames);
    }
}

impl Lru {
    /// Whether these are still the lists that the frame table has.
    pub(crate) fn knows(&self, lruvec: usize, lists: &QuietLists) -> bool {
        self.lruvecs[lruvec].moves == lists.moves
    }

    /// Number of times that an anonymous folio was put on some lists, or taken off.
    pub(crate) fn moves(&self, lruvec: usize) -> u64 {
        self.lruvecs[lruvec].moves
    }

    /// The longest time to isolate `folios` folios if the lock is free: the CPU's new folios go to their lists first, each
    /// perhaps to lists of another node than the one before.
    pub(crate) fn isolation_takes_at_most(&self, cx: &Cx, folios: u64) -> Picos {
        let price = |work| cx.price(work).0;
        let new = self.batch(cx.cpu()).len() as u64;
        let locks = price(Work::LineTransfer) + price(Work::LockPair);
        Picos(locks * (1 + new) + price(Work::LruMove) * (folios + new))
    }

    /// Isolates folios from the tail of a list, until they hold at least `frames` frames (`isolate_lru_pages`).
    pub(crate) fn take_quiet(
        &mut self,
        cx: &mut Cx,
        lists: &mut QuietLists,
        (is_active, most): (bool, u64),
    ) -> QuietTaken {
        let none = QuietFolio { head: NIL, zone: ZoneIndex(0), frames: 0, entries: 0, activates: false };
        let mut taken = QuietTaken { folios: [(0, none); RUN_MAX], len: 0, frames: 0, entries: 0 };
        self.hold(cx, lists.zone());
        while taken.frames < most
            && let Some((slot, folio)) = lists.pop(is_active)
        {
            taken.push(slot, folio);
        }
        self.let_go(cx, lists.zone(), taken.folios());
        taken
    }

    /// Puts folios at the head of a list, of the active one if they activate and `may_activate`; returns how many frames are
    /// active now (`putback_inactive_pages`, `move_active_pages_to_lru`).
    pub(crate) fn return_quiet(
        &mut self,
        cx: &mut Cx,
        lists: &mut QuietLists,
        (taken, may_activate): (&QuietTaken, bool),
    ) -> u64 {
        self.hold(cx, lists.zone());
        let mut active = 0;
        for (slot, folio) in &taken.folios[..taken.len] {
            let is_active = may_activate && folio.activates;
            lists.push(*slot, is_active);
            active += if is_active { u64::from(folio.frames) } else { 0 };
        }
        self.let_go(cx, lists.zone(), taken.folios());
        active
    }

    /// Writes all changes into the frame table.
    pub(crate) fn settle(&mut self, frames: &mut FrameTable, lruvec: usize, lists: &mut QuietLists) {
        for is_active in [false, true] {
            let kind = LruKind::of(false, is_active);
            let queue = &lists.queues[usize::from(is_active)];
            let pushed = std::mem::take(&mut lists.pushed[usize::from(is_active)]);
            let head_of = |at: usize| queue.get(at).map_or(NIL, |slot| lists.slots[*slot as usize].folio.head);
            let count = queue.len();
            // The folios that came, the former head, and the present tail.
            let near = count.min(pushed + 1);
            let last = (near < count).then(|| count - 1);
            let mut changes = Vec::with_capacity(near + 1);
            for at in (0..near).chain(last) {
                let prev = if at == 0 { NIL } else { head_of(at - 1) };
                changes.push((queue[at], Links { prev, next: head_of(at + 1) }));
            }
            let ends = (head_of(0), if count == 0 { NIL } else { head_of(count - 1) });
            self.lruvecs[lruvec].lists[kind as usize] =
                List::of_ends(ends, u32::try_from(count).expect("fewer than frames"));
            for (slot, links) in changes {
                let slot = &mut lists.slots[slot as usize];
                let QuietFolio { head, zone, frames: size, .. } = slot.folio;
                if slot.links != links {
                    slot.links = links;
                    frames.threads().set(head, links);
                }
                if slot.is_active != is_active {
                    slot.is_active = is_active;
                    frames.mark(head, FrameFlag::Active, is_active);
                    let of_zone = &mut self.zones[zone].frames;
                    of_zone[kind as usize] += u64::from(size);
                    of_zone[LruKind::of(false, !is_active) as usize] -= u64::from(size);
                }
            }
        }
    }
}
