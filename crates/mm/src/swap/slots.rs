//! Linux: swap_map and scan_swap_map_slots() in mm/swapfile.c (v6.1).
//! Differs: a slot also remembers the family and page number of its page, which the kernel finds in page tables.

use memory::frame::{FamilyId, NIL};
use units::{Pfn, Vpn};

use super::Owner;
use crate::folio::pte::SwapSlot;

/// A flag of a folio in the swap cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotFlag {
    /// The device does not hold the folio's contents (`PG_dirty`).
    Dirty,
    /// The device is writing the folio (`PG_writeback`).
    Writeback,
    /// Reclaim frees the folio after writeback (`PG_reclaim`).
    Reclaim,
    /// The folio was read ahead, and not used yet (`PG_readahead`).
    ReadAhead,
    /// The folio could not be read (not `PG_uptodate`).
    Broken,
}

/// Slots are given out one after the other, in runs of 512 slots.
// SWAPFILE_CLUSTER with CONFIG_THP_SWAP, mm/swapfile.c (v6.1).
const CLUSTER: u32 = 512;

const IN_CACHE: u8 = 1 << 7;
const FAMILY_SHIFT: u32 = 36;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Family and page number of the slot's page.
    owner: u64,
    /// The folio in the swap cache; else the shadow of the last folio.
    folio: u32,
    /// Number of the last request, as the device counts.
    io: u32,
    count: u16,
    flags: u8,
}

impl Slot {
    const FREE: Self = Self { owner: 0, folio: 0, io: 0, count: 0, flags: 0 };
}

/// All slots of a device. A device may be many times as large as memory: the slots of a cluster take room once one of them is
/// taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    count: u32,
    clusters: Vec<Option<Box<[Slot; CLUSTER as usize]>>>,
    /// One bit per slot, set if the slot is taken.
    taken: Vec<u64>,
    free: u32,
    /// The slot to try next (`cluster_next`), and the slots left there before another empty run is searched for
    /// (`cluster_nr`).
    next: u32,
    left: u32,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        let words = (count as usize).div_ceil(64);
        let clusters = vec![None; count.div_ceil(CLUSTER) as usize];
        let mut slots = Self { count, clusters, taken: vec![0; words], free: count - 1, next: 0, left: 0 };
        // The device's header.
        slots.set_taken(0, true);
        for beyond in count..u32::try_from(words * 64).expect("as few as slots") {
            slots.set_taken(beyond, true);
        }
        slots
    }

    pub(super) fn len(&self) -> u32 {
        self.count
    }

    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// The state of a slot; a slot of an unused cluster is free.
    fn at(&self, slot: SwapSlot) -> Slot {
        let cluster = &self.clusters[(slot.0 / CLUSTER) as usize];
        cluster.as_ref().map_or(Slot::FREE, |slots| slots[(slot.0 % CLUSTER) as usize])
    }

    /// The state of a slot, to be written.
    fn at_mut(&mut self, slot: SwapSlot) -> &mut Slot {
        let cluster = &mut self.clusters[(slot.0 / CLUSTER) as usize];
        &mut cluster.get_or_insert_with(|| Box::new([Slot::FREE; CLUSTER as usize]))[(slot.0 % CLUSTER) as usize]
    }

    /// Takes a free slot for the page of `family` at `vpn`.
    pub(super) fn take(&mut self, family: FamilyId, vpn: Vpn) -> Option<SwapSlot> {
        if self.free == 0 {
            return None;
        }
        if self.left == 0 {
            self.left = CLUSTER;
            if self.free >= CLUSTER
                && let Some(start) = self.empty_run()
            {
                self.next = start;
            }
        }
        self.left -= 1;
        let at = self.first_free(self.next).or_else(|| self.first_free(0)).expect("one is free");
        self.next = at + 1;
        self.free -= 1;
        self.set_taken(at, true);
        *self.at_mut(SwapSlot(at)) = Slot { owner: u64::from(family.0) << FAMILY_SHIFT | vpn.0, ..Slot::FREE };
        Some(SwapSlot(at))
    }

    /// Frees a slot that no entry names and that has no folio.
    pub(super) fn give(&mut self, slot: SwapSlot) {
        let state = self.at_mut(slot);
        assert!(state.count == 0 && state.flags & IN_CACHE == 0, "{slot:?} is given back, but {state:?}");
        *state = Slot::FREE;
        self.set_taken(slot.0, false);
        self.free += 1;
    }

    /// Whether a slot is taken; slots beyond the end count as taken.
    pub(super) fn is_taken(&self, slot: SwapSlot) -> bool {
        self.taken[slot.0 as usize / 64] >> (slot.0 % 64) & 1 != 0
    }

    pub(super) fn owner(&self, slot: SwapSlot) -> Owner {
        let owner = self.at(slot).owner;
        let family = u16::try_from(owner >> FAMILY_SHIFT).expect("twelve bits");
        (FamilyId(family), Vpn(owner & ((1 << FAMILY_SHIFT) - 1)))
    }

    pub(super) fn count(&self, slot: SwapSlot) -> u32 {
        self.at(slot).count.into()
    }

    pub(super) fn set_count(&mut self, slot: SwapSlot, count: u32) {
        self.at_mut(slot).count = u16::try_from(count).expect("fewer than 2^16 processes share a page");
    }

    pub(super) fn folio(&self, slot: SwapSlot) -> Option<Pfn> {
        let state = self.at(slot);
        (state.flags & IN_CACHE != 0).then_some(Pfn(state.folio))
    }

    pub(super) fn set_folio(&mut self, slot: SwapSlot, head: Pfn) {
        assert!(head != NIL, "a folio has a frame");
        let state = self.at_mut(slot);
        (state.folio, state.flags) = (head.0, state.flags | IN_CACHE);
    }

    /// Takes the folio out of the swap cache, with its flags.
    pub(super) fn clear_folio(&mut self, slot: SwapSlot, shadow: u32) {
        let state = self.at_mut(slot);
        (state.folio, state.flags) = (shadow, 0);
        if state.count == 0 {
            self.give(slot);
        }
    }

    /// The shadow of the slot's last folio, while it has none.
    pub(super) fn shadow(&self, slot: SwapSlot) -> u32 {
        self.at(slot).folio
    }

    pub(super) fn has(&self, slot: SwapSlot, flag: SlotFlag) -> bool {
        self.at(slot).flags >> flag as u8 & 1 != 0
    }

    pub(super) fn mark(&mut self, slot: SwapSlot, flag: SlotFlag, on: bool) {
        let flags = &mut self.at_mut(slot).flags;
        *flags = *flags & !(1 << flag as u8) | u8::from(on) << flag as u8;
    }

    pub(super) fn io(&self, slot: SwapSlot) -> u32 {
        self.at(slot).io
    }

    pub(super) fn set_io(&mut self, slot: SwapSlot, io: u32) {
        self.at_mut(slot).io = io;
    }

    /// Number of slots that take room.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.clusters.iter().flatten().map(|slots| slots.len()).sum()
    }

    fn set_taken(&mut self, slot: u32, taken: bool) {
        let bit = 1 << (slot % 64);
        let word = &mut self.taken[slot as usize / 64];
        if taken { *word |= bit } else { *word &= !bit }
    }

    fn first_free(&self, from: u32) -> Option<u32> {
        let mut at = from as usize / 64;
        let mut mask = !0 << (from % 64);
        while let Some(word) = self.taken.get(at) {
            let free = !word & mask;
            if free != 0 {
                return u32::try_from(at * 64).ok().map(|start| start + free.trailing_zeros());
            }
            (at, mask) = (at + 1, !0);
        }
        None
    }

    /// The first run of free slots as long as a cluster.
    fn empty_run(&self) -> Option<u32> {
        let (mut start, mut at) = (0, 0);
        while at < self.len() {
            let word = self.taken[at as usize / 64] >> (at % 64);
            let ahead = 64 - at % 64;
            let free = word.trailing_zeros().min(ahead);
            at += free;
            if at - start >= CLUSTER {
                return Some(start);
            }
            if free < ahead {
                at += (!(word >> free)).trailing_zeros().min(ahead - free).max(1);
                start = at;
            }
        }
        None
    }
}
