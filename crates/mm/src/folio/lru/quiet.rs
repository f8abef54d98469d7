//! Linux: none; struct lruvec of include/linux/mmzone.h, where all of its anonymous folios stay whatever reclaim does.
//! Differs: folios are moved here first, and in the frame table when somebody else is to see them.
//!
//! A pinned folio that nobody uses only moves from list to list when it is looked at. A node may have tens of thousands of them,
//! each in a page of the frame table of its own, and reclaim in trouble looks at all of them again and again. Here they are next
//! to each other, and of all the moves between two settlements only the difference is written.

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

/// Looks after which it is asked again, at first, whether some lists are quiet.
const PATIENCE: u32 = 64;

/// Some lists whose folios are all quiet, and how long that holds.
#[derive(Clone, Debug)]
pub(crate) struct Quiet {
    pub(crate) lists: QuietLists,
    /// The address spaces that map them, each with how often it has changed a huge entry by then.
    pub(crate) mapped_by: Vec<(SpaceId, u64)>,
    /// How often pins were given up and pinned pages came back from swap by then.
    pub(crate) pins_lost: u64,
}

/// When it is asked whether some lists are quiet: that takes time, and is in vain for most of them.
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
    /// So many folios were looked at one by one.
    pub(crate) fn note(&mut self, looks: u32) {
        self.looks = self.looks.saturating_add(looks);
    }

    pub(crate) fn is_over(self) -> bool {
        self.looks >= self.most
    }

    /// The answer, for lists of so many folios: who was wrong asks less often, up to once for each time around.
    pub(crate) fn learn(&mut self, is_quiet: bool, folios: u32) {
        let most = if is_quiet { folios / 16 } else { self.most.saturating_mul(2).min(folios) };
        *self = Self { looks: 0, most: most.max(PATIENCE) };
    }
}

/// A folio that a look leaves as it is, but for its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuietFolio {
    pub(crate) head: Pfn,
    pub(crate) zone: ZoneIndex,
    pub(crate) frames: u32,
    /// Entries that are read when it is looked at.
    pub(crate) entries: u32,
    /// Does a look at it on the inactive list bring it to the active one? Else it stays.
    pub(crate) activates: bool,
}

/// A folio, and what the frame table says of its place.
#[derive(Clone, Copy, Debug)]
struct Slot {
    folio: QuietFolio,
    links: Links,
    is_active: bool,
}

/// Folios that were taken off a list together.
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

    /// How many there are.
    pub(crate) fn folios(&self) -> u64 {
        self.len as u64
    }

    /// Their frames.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Entries that are read when they are looked at.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }
}

/// The two lists of anonymous folios, while all of these are quiet.
#[derive(Clone, Debug)]
pub(crate) struct QuietLists {
    slots: Vec<Slot>,
    /// Inactive and active, the head first.
    queues: [VecDeque<u32>; 2],
    /// How many were put at each head since the frame table was written.
    pushed: [usize; 2],
    /// Frames on each.
    pub(crate) frames: [u64; 2],
    /// The highest zone of any.
    pub(crate) highest: ZoneKind,
    /// How often folios were put on these lists, or taken off, by others: the lists are known until then.
    moves: u64,
}

impl QuietLists {
    /// Nothing yet, of lists that have seen so many moves.
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

    /// The zone of one of the folios, whose lock is that of the lists.
    fn zone(&self) -> ZoneIndex {
        self.slots[0].folio.zone
    }

    /// The next folio from the head on of a list, as the frame table has it.
    pub(crate) fn add(&mut self, folio: QuietFolio, kind: ZoneKind, links: Links, is_active: bool) {
        let slot = u32::try_from(self.slots.len()).expect("fewer folios than frames");
        self.slots.push(Slot { folio, links, is_active });
        self.queues[usize::from(is_active)].push_back(slot);
        self.frames[usize::from(is_active)] += u64::from(folio.frames);
        self.highest = self.highest.max(kind);
    }

    /// Folios at the tail of a list that hold at least so many frames, or all there are.
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
    /// Are these still the lists?
    pub(crate) fn knows(&self, lruvec: usize, lists: &QuietLists) -> bool {
        self.lruvecs[lruvec].moves == lists.moves
    }

    /// How often anonymous folios were put on some lists, or taken off.
    pub(crate) fn moves(&self, lruvec: usize) -> u64 {
        self.lruvecs[lruvec].moves
    }

    /// The longest that it can take to isolate so many folios, if nobody has the lock: a CPU's new folios go to their lists
    /// first, each perhaps to others than the one before.
    pub(crate) fn isolation_takes_at_most(&self, cx: &Cx, folios: u64) -> Picos {
        let price = |work| cx.price(work).0;
        let new = self.batch(cx.cpu()).len() as u64;
        let locks = price(Work::LineTransfer) + price(Work::LockPair);
        Picos(locks * (1 + new) + price(Work::LruMove) * (folios + new))
    }

    /// Takes folios off the tail of a list, up to so many frames or the first more (`isolate_lru_pages`).
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

    /// Puts folios at the head of a list, the active one if they activate and `may_activate`; says how many frames are active
    /// now (`putback_inactive_pages`, `move_active_pages_to_lru`).
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

    /// Writes into the frame table what has changed.
    pub(crate) fn settle(&mut self, frames: &mut FrameTable, lruvec: usize, lists: &mut QuietLists) {
        for is_active in [false, true] {
            let kind = LruKind::of(false, is_active);
            let queue = &lists.queues[usize::from(is_active)];
            let pushed = std::mem::take(&mut lists.pushed[usize::from(is_active)]);
            let head_of = |at: usize| queue.get(at).map_or(NIL, |slot| lists.slots[*slot as usize].folio.head);
            let count = queue.len();
            // Those that came, the one that they came before, and the one that is the last by now.
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
