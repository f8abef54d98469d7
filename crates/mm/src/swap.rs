//! Linux: mm/swapfile.c, mm/swap_state.c (v5.9 to v6.1).
//! Differs: one device, whose slots are allocated as on a rotating one; no batches of slots for each CPU, no frontswap.
//!
//! A page on its way to or from the device is in the swap cache: its slot is known by its folio, and counts the page-table
//! entries that name it. A slot is free when no entry names it and it has no folio.
//!
//! Floor 3: this room is the swap cache and its device. Files here use floors 0 to 2 and the room `folio`; a fault that reads a
//! page back (`fault.rs`) is of floor 5.

mod device;
mod fault;
mod slots;

use memory::{
    cx::Cx,
    event::Event,
    frame::{FamilyId, Frame, FrameFlag},
    lru_kind::LruKind,
};
use units::{Bytes, BytesPerSecond, Order, Pfn, Picos, Time, Vpn};

use crate::{Mm, folio::pte::SwapSlot, space::rmap::Unmapped};

use device::{Device, Io};
pub(crate) use fault::{SwapIn, Went};
pub use slots::SlotFlag;
use slots::Slots;

/// A swap device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapSpec {
    /// The room on the device.
    pub size: Bytes,
    /// The medium of the device.
    pub medium: SwapMedium,
}

/// The medium of a swap device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapMedium {
    /// A device with a queue: a page is written, or read, some time after it was submitted.
    Disk {
        /// Time from the end of a page's transfer to the interrupt.
        latency: Picos,
        /// Bytes per second that the device reads and writes.
        bandwidth: BytesPerSecond,
    },
    /// Memory outside the kernel's zones (brd, pmem): the task that writes or reads a page copies it (`bdev_write_page`,
    /// `SWP_SYNCHRONOUS_IO`).
    Memory,
}

/// The swap device and the swap cache; off until [`Mm::swapon`].
#[derive(Clone, Debug, Default)]
pub struct Swap {
    slots: Slots,
    /// A word for each frame: its slot plus one while its folio is in the swap cache, and [`WORKINGSET`]. Empty until a bit is
    /// set, as every new and every freed folio is looked up.
    of_frame: Vec<u32>,
    /// Number of frames.
    frames: u32,
    device: Device,
    /// `vm.page-cluster`: 2^this pages are read at a time.
    pub page_cluster: u32,
    /// Pages read ahead that were used since the last read (`swapin_readahead_hits`), the slot of that read, and its number of
    /// pages.
    read_ahead: ReadAhead,
    /// The contents of each slot, for tests.
    contents: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ReadAhead {
    hits: u32,
    last_slot: u32,
    last_pages: u32,
}

/// Flag of a folio that was on the active list before it was reclaimed (`PG_workingset`).
const WORKINGSET: u32 = 1 << 31;

impl Swap {
    /// Whether there is a swap device.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.frames > 0
    }

    /// The word of a frame, to be written; there is a swap device.
    fn word_mut(&mut self, head: Pfn) -> &mut u32 {
        if self.of_frame.is_empty() {
            self.of_frame = vec![0; self.frames as usize];
        }
        &mut self.of_frame[head.0 as usize]
    }

    /// Pages that fit on the device.
    pub fn total(&self) -> u64 {
        // Slot 0 is the device's header.
        u64::from(self.slots.len()).saturating_sub(1)
    }

    /// Slots that are free (`get_nr_swap_pages`).
    pub fn free(&self) -> u64 {
        self.slots.free().into()
    }

    /// Whether more than half of the slots are taken (`vm_swap_full`): then a slot is freed as soon as its page is read.
    pub fn is_full(&self) -> bool {
        self.free() * 2 < self.total()
    }

    /// The slot of a folio in the swap cache.
    #[inline]
    pub fn slot_of(&self, head: Pfn) -> Option<SwapSlot> {
        let word = self.of_frame.get(head.0 as usize)? & !WORKINGSET;
        word.checked_sub(1).map(SwapSlot)
    }

    /// The folio in the swap cache for a slot.
    pub fn cached(&self, slot: SwapSlot) -> Option<Pfn> {
        self.slots.folio(slot)
    }

    /// Entries of page tables that name a slot (`__swap_count`).
    pub fn count(&self, slot: SwapSlot) -> u32 {
        self.slots.count(slot)
    }

    /// Counts one more entry that names a slot (`swap_duplicate`).
    pub(crate) fn duplicate(&mut self, slot: SwapSlot) {
        self.slots.set_count(slot, self.slots.count(slot) + 1);
    }

    /// Whether a folio is being written to the device.
    pub fn is_writeback(&self, head: Pfn) -> bool {
        self.slot_of(head).is_some_and(|slot| self.slots.has(slot, SlotFlag::Writeback))
    }

    /// Whether a slot is taken.
    pub(crate) fn is_taken(&self, slot: SwapSlot) -> bool {
        self.slots.is_taken(slot)
    }

    /// The family and page number of a slot's page.
    pub(crate) fn owner(&self, slot: SwapSlot) -> Owner {
        self.slots.owner(slot)
    }

    pub(crate) fn has(&self, slot: SwapSlot, flag: SlotFlag) -> bool {
        self.slots.has(slot, flag)
    }

    pub(crate) fn mark(&mut self, slot: SwapSlot, flag: SlotFlag, on: bool) {
        self.slots.mark(slot, flag, on);
    }

    /// When the device will be done with `pages` requests that are under way, if there are any.
    pub(crate) fn done_by(&self, pages: usize) -> Option<Time> {
        self.device.done_by(pages)
    }

    /// When the device will have read a page that is being read.
    pub(crate) fn read_by(&self, slot: SwapSlot) -> Time {
        self.device.done_at(self.slots.io(slot))
    }

    /// Makes every n-th write fail: for tests.
    pub fn fail_writes(&mut self, every: u32) {
        self.device.fail_every = every;
    }

    /// Makes every n-th read fail: a task that needs such a page is killed.
    pub fn fail_reads(&mut self, every: u32) {
        self.device.fail_reads_every = every;
    }

    /// Whether a folio was on the active list before it was reclaimed (`PG_workingset`).
    pub(crate) fn is_workingset(&self, head: Pfn) -> bool {
        self.of_frame.get(head.0 as usize).is_some_and(|word| word & WORKINGSET != 0)
    }

    pub(crate) fn set_workingset(&mut self, head: Pfn) {
        if self.is_on() {
            *self.word_mut(head) |= WORKINGSET;
        }
    }

    /// Clears the word of a frame that becomes a new folio.
    #[inline]
    pub(crate) fn forget(&mut self, head: Pfn) {
        if let Some(word) = self.of_frame.get_mut(head.0 as usize) {
            *word = 0;
        }
    }

    fn put(&mut self, slot: SwapSlot, head: Pfn) {
        self.slots.set_folio(slot, head);
        let word = self.word_mut(head);
        *word = *word & WORKINGSET | (slot.0 + 1);
    }

    /// Gives the slot of a folio, and its workingset flag, to the folio's copy after migration (`migrate_page_move_mapping`).
    pub fn migrate(&mut self, from: Pfn, to: Pfn) {
        if !self.of_frame.is_empty() {
            if let Some(slot) = self.slot_of(from) {
                self.slots.set_folio(slot, to);
            }
            self.of_frame[to.0 as usize] = std::mem::take(&mut self.of_frame[from.0 as usize]);
        }
    }
}

impl Mm {
    /// Starts to swap to an empty device.
    ///
    /// # Panics
    /// When there is a swap device already.
    pub fn swapon(&mut self, spec: &SwapSpec) {
        assert!(!self.swap.is_on(), "there is one swap device");
        let pages = u32::try_from(spec.size.0 / Bytes::PAGE.0).expect("a swap device has fewer than 2^32 pages");
        self.swap = Swap {
            slots: Slots::new(pages),
            frames: self.memory.frames.len(),
            device: Device::new(spec),
            // swap_setup, mm/swap.c (v6.1), on machines of at least 16 MiB.
            page_cluster: 3,
            // swapin_readahead_hits, mm/swap_state.c (v6.1).
            read_ahead: ReadAhead { hits: 4, ..ReadAhead::default() },
            ..Swap::default()
        };
    }

    /// Gives a folio a slot: it is in the swap cache from now on, to be written (`add_to_swap`); false if swap is full.
    pub(crate) fn add_to_swap(&mut self, head: Pfn) -> bool {
        let Frame::Anon { family, vpn, order: Order::BASE } = self.memory.frames.get(head) else {
            unreachable!("base pages are swapped")
        };
        let Some(slot) = self.swap.slots.take(family, vpn) else { return false };
        self.swap.put(slot, head);
        self.swap.mark(slot, SlotFlag::Dirty, true);
        true
    }

    /// Takes a folio out of the swap cache (`delete_from_swap_cache`). The slot is freed unless entries name it; then it
    /// remembers `shadow`.
    pub(crate) fn delete_from_swap_cache(&mut self, head: Pfn, shadow: u32) {
        let slot = self.swap.slot_of(head).expect("it is in the swap cache");
        self.swap.of_frame[head.0 as usize] &= WORKINGSET;
        self.swap.slots.clear_folio(slot, shadow);
    }

    /// Frees the slot of a folio that no entry names (`folio_free_swap`); returns whether it did.
    pub(crate) fn free_swap(&mut self, cx: &mut Cx, head: Pfn) -> bool {
        self.complete_swap_io(cx);
        let Some(slot) = self.swap.slot_of(head) else { return false };
        let is_busy = self.swap.has(slot, SlotFlag::Writeback) || self.memory.frames.has(head, FrameFlag::Locked);
        if is_busy || self.swap.count(slot) > 0 {
            return false;
        }
        self.delete_from_swap_cache(head, 0);
        true
    }

    /// Returns a folio that has lost its last mapping, to be freed, unless the swap cache keeps it for others
    /// (`free_swap_cache`).
    #[inline]
    pub(crate) fn unless_swapped(&mut self, cx: &mut Cx, folio: Unmapped) -> Option<Unmapped> {
        if self.swap.slot_of(folio.head).is_none() { Some(folio) } else { self.leave_swap_cache(cx, folio) }
    }

    #[cold]
    fn leave_swap_cache(&mut self, cx: &mut Cx, folio: Unmapped) -> Option<Unmapped> {
        self.free_swap(cx, folio.head).then_some(folio)
    }

    /// Counts off an entry that names a slot; the folio in the swap cache is dropped if it has no other users
    /// (`free_swap_and_cache`).
    pub(crate) fn free_swap_entry(&mut self, cx: &mut Cx, slot: SwapSlot) {
        self.swap_free(slot);
        if self.swap.count(slot) == 0
            && let Some(head) = self.swap.cached(slot)
            && self.folio_mappings(head) == 0
            && self.free_swap(cx, head)
        {
            self.put_folio(cx, Unmapped { head, order: Order::BASE });
        }
    }

    /// Counts off an entry that names a slot (`swap_free`).
    pub(crate) fn swap_free(&mut self, slot: SwapSlot) {
        self.swap.slots.set_count(slot, self.swap.count(slot) - 1);
        if self.swap.count(slot) == 0 && self.swap.cached(slot).is_none() {
            self.swap.slots.give(slot);
        }
    }

    /// Sends a folio of the swap cache to the device (`swap_writepage`). The folio is clean when that is done, unless it fails;
    /// a device that is memory is done at once.
    pub(crate) fn write_swap(&mut self, cx: &mut Cx, head: Pfn) {
        let slot = self.swap.slot_of(head).expect("it is in the swap cache");
        self.swap.mark(slot, SlotFlag::Dirty, false);
        self.swap.mark(slot, SlotFlag::Writeback, true);
        cx.count(Event::Pswpout, 1);
        if self.memory.frames.keeps_contents() {
            self.swap.contents.resize(self.swap.slots.len() as usize, 0);
            self.swap.contents[slot.0 as usize] = self.memory.frames.content(head);
        }
        if let Some(failed) = self.swap.device.write_at_once(cx) {
            return self.end_swap_write(cx, head, slot, failed);
        }
        let io = self.swap.device.submit(cx, slot, true);
        self.swap.slots.set_io(slot, io);
    }

    /// Puts a newly allocated frame into the swap cache for a slot, locked until the device has read the page
    /// (`__read_swap_cache_async`, `swap_readpage`).
    fn read_swap(&mut self, cx: &mut Cx, slot: SwapSlot, head: Pfn) {
        let shadow = self.swap.slots.shadow(slot);
        self.fill_from_swap(cx, slot, head, shadow);
        self.swap.put(slot, head);
        let failed = self.swap.device.read_at_once(cx);
        self.swap.mark(slot, SlotFlag::Broken, failed == Some(true));
        if failed.is_none() {
            self.memory.frames.mark(head, FrameFlag::Locked, true);
            let io = self.swap.device.submit(cx, slot, false);
            self.swap.slots.set_io(slot, io);
        }
        self.lru_add(cx, head, Order::BASE);
    }

    /// Reads a page past the swap cache, for the only task that wants it, from a device that is memory. Returns false and
    /// changes nothing if the page cannot be read.
    fn read_swap_alone(&mut self, cx: &mut Cx, slot: SwapSlot, head: Pfn) -> bool {
        let failed = self.swap.device.read_at_once(cx);
        if failed.expect("a device with a queue is read through the swap cache") {
            return false;
        }
        self.fill_from_swap(cx, slot, head, self.swap.slots.shadow(slot));
        self.lru_add(cx, head, Order::BASE);
        true
    }

    fn fill_from_swap(&mut self, cx: &mut Cx, slot: SwapSlot, head: Pfn, shadow: u32) {
        let (family, vpn) = self.swap.slots.owner(slot);
        self.memory.frames.set(head, Frame::Anon { family, vpn, order: Order::BASE });
        self.swap.forget(head);
        self.memory.frames.mark(head, FrameFlag::InBatch, true);
        self.memory.frames.mark(
            head,
            FrameFlag::Active,
            LruKind::of_new_anon(self.memory.variant().lru_new_anon).is_active(),
        );
        self.refault_anon(cx, head, shadow);
        cx.count(Event::Pswpin, 1);
        if self.memory.frames.keeps_contents() {
            self.memory.frames.store(head, self.swap.contents[slot.0 as usize]);
        }
    }

    /// Whether a request will be done by `at`.
    pub(crate) fn is_swap_io_due(&self, at: Time) -> bool {
        self.swap.device.is_done(at)
    }

    /// Completes requests that the device has done by now (`end_swap_bio_write`, `end_swap_bio_read`): pages read become
    /// usable, pages written go to the tail of their list, if reclaim wants to free them.
    #[inline]
    pub(crate) fn complete_swap_io(&mut self, cx: &mut Cx) {
        if self.swap.device.is_done(cx.now()) {
            self.complete_io(cx);
        }
    }

    #[cold]
    fn complete_io(&mut self, cx: &mut Cx) {
        let now = cx.now();
        // Bound: the requests that were submitted.
        while let Some(Io { slot, is_write, failed, .. }) = self.swap.device.next_done(now) {
            let head = self.swap.cached(slot).expect("a folio under I/O stays in the swap cache");
            if is_write {
                self.end_swap_write(cx, head, slot, failed);
            } else {
                self.swap.mark(slot, SlotFlag::Broken, failed);
                self.unlock_folio(cx, head);
            }
        }
    }

    /// Ends the writeback of a folio, with or without success (`end_page_writeback`). A folio that reclaim still holds is on no
    /// list and is not rotated.
    fn end_swap_write(&mut self, cx: &mut Cx, head: Pfn, slot: SwapSlot, failed: bool) {
        self.swap.mark(slot, SlotFlag::Writeback, false);
        let is_wanted_gone = self.swap.has(slot, SlotFlag::Reclaim);
        self.swap.mark(slot, SlotFlag::Reclaim, false);
        if failed {
            if self.memory.frames.keeps_contents() {
                self.swap.contents[slot.0 as usize] = !0;
            }
            self.swap.mark(slot, SlotFlag::Dirty, true);
        } else if is_wanted_gone && !self.swap.has(slot, SlotFlag::Dirty) {
            self.lru_rotate(cx, head);
        }
    }
}

/// The family that may map a slot's page, and the page number.
pub(crate) type Owner = (FamilyId, Vpn);

#[cfg(test)]
mod tests;
