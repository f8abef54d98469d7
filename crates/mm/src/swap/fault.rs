//! Linux: do_swap_page() in mm/memory.c (`SWP_SYNCHRONOUS_IO` too), swap_cluster_readahead() in mm/swap_state.c (v6.1).
//! Differs: pages are read ahead by slot, as from a rotating device, and not by VMA.

use std::ops::Range;

use memory::{alloc::NoMemory, cx::Cx, event::Event, frame::FrameFlag};
use rules::gfp::AllocRequest;
use units::{Order, Pfn, Time, Vpn};

use super::SlotFlag;
use crate::{
    Mm,
    fault::{Access, FaultDone},
    folio::pte::{Pte, SwapSlot},
    space::{
        address_space::AddressSpace,
        page_table::{Pmd, TableId},
    },
};

/// A fault on a page that is in swap.
#[derive(Clone, Debug, Default)]
pub(crate) struct SwapIn {
    /// The slots still to be read, and the slot of the page that the fault needs.
    reading: Option<(Range<u32>, SwapSlot)>,
    /// There was no memory for the page that the fault needs.
    has_failed: bool,
}

/// The result of a step of such a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Went {
    /// The fault has asked for memory, and goes on when there is an answer.
    Asked,
    /// The device reads the page; the fault begins again at this instant.
    Waits(Time),
    /// The page is mapped.
    Mapped,
    /// The fault is over: the page has gone meanwhile, or there is no memory.
    Ended(FaultDone),
}

impl SwapIn {
    pub(crate) fn step(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        (vpn, access): (Vpn, Access),
    ) -> Went {
        mm.complete_swap_io(cx);
        let Some((table, slot)) = swapped(space, vpn) else { return Went::Ended(FaultDone::Handled) };
        if self.reading.as_ref().is_some_and(|(_, wanted)| *wanted != slot) {
            self.reading = None;
        }
        if self.reading.is_none() && mm.swap.cached(slot).is_none() {
            if mm.swap.device.is_memory() && mm.swap.count(slot) == 1 {
                return mm.swap_in_alone(space, cx, (table, vpn, slot), access);
            }
            self.reading = Some((mm.swap.read_ahead_of(slot), slot));
        }
        if self.reading.is_some()
            && let Some(went) = self.read(mm, cx)
        {
            return went;
        }
        let head = mm.swap.cached(slot).expect("it was there, or was read");
        if mm.swap.has(slot, SlotFlag::ReadAhead) {
            mm.swap.mark(slot, SlotFlag::ReadAhead, false);
            mm.swap.read_ahead.hits += 1;
            cx.count(Event::SwapRaHit, 1);
        }
        if mm.memory.frames.has(head, FrameFlag::Locked) {
            return Went::Waits(mm.swap.read_by(slot));
        }
        if mm.swap.has(slot, SlotFlag::Broken) {
            return Went::Ended(FaultDone::BusError);
        }
        mm.map_swapped(space, cx, (table, vpn, slot), access);
        Went::Mapped
    }

    /// Submits reads for the pages that are not in memory yet; then waits for the page that the fault needs, unless it is already
    /// there.
    fn read(&mut self, mm: &mut Mm, cx: &mut Cx) -> Option<Went> {
        let Some((slots, wanted)) = &mut self.reading else { unreachable!("begun by the caller") };
        let request = AllocRequest::gfp_highuser_movable(mm.memory.node_of_cpu(cx.cpu()));
        // Bound: the pages that are read at once.
        for at in slots.clone() {
            let slot = SwapSlot(at);
            if mm.swap.count(slot) > 0 && mm.swap.cached(slot).is_none() {
                match mm.memory.alloc(cx, &request) {
                    Ok(head) => {
                        mm.read_swap(cx, slot, head);
                        if slot != *wanted {
                            mm.swap.mark(slot, SlotFlag::ReadAhead, true);
                            cx.count(Event::SwapRa, 1);
                        }
                    }
                    Err(NoMemory::Asked) => return Some(Went::Asked),
                    Err(NoMemory::Refused) => self.has_failed |= slot == *wanted,
                }
            }
            slots.start = at + 1;
        }
        if mm.swap.cached(*wanted).is_none() {
            // The page may have gone again while memory was asked for; then the access is tried again.
            return Some(Went::Ended(if self.has_failed { FaultDone::OutOfMemory } else { FaultDone::Handled }));
        }
        cx.major_fault();
        mm.lru_add_drain(cx);
        (!mm.swap.device.is_memory()).then(|| Went::Waits(mm.swap.read_by(*wanted)))
    }
}

/// The slot that the entry of a page names, if it still names one.
fn swapped(space: &AddressSpace, vpn: Vpn) -> Option<(TableId, SwapSlot)> {
    let Pmd::Table(table) = space.tables.pmd_of(vpn) else { return None };
    Some((table, space.tables.pte(table, vpn).swap_slot()?))
}

impl super::Swap {
    /// The slots around a page that are read with it (`swapin_nr_pages`): more of them if reading ahead was of use lately.
    fn read_ahead_of(&mut self, slot: SwapSlot) -> Range<u32> {
        let most = 1 << self.page_cluster;
        let ahead = &mut self.read_ahead;
        let hits = std::mem::take(&mut ahead.hits);
        let is_next = slot.0.abs_diff(ahead.last_slot) == 1;
        let wanted = match hits {
            0 if is_next => 2,
            0 => 1,
            // At least 4, at most 2^`page_cluster`.
            hits => (hits + 2).next_power_of_two().max(4),
        };
        let pages = wanted.min(most).max(ahead.last_pages / 2).max(1);
        ahead.last_pages = pages;
        if hits == 0 {
            ahead.last_slot = slot.0;
        }
        let start = slot.0 & !(pages - 1);
        start.max(1)..(start + pages).min(self.slots.len())
    }
}

impl Mm {
    /// Reads a page that no other process wants from a device that is memory, past the swap cache and without its neighbours.
    fn swap_in_alone(
        &mut self,
        space: &mut AddressSpace,
        cx: &mut Cx,
        (table, vpn, slot): (TableId, Vpn, SwapSlot),
        access: Access,
    ) -> Went {
        let request = AllocRequest::gfp_highuser_movable(self.memory.node_of_cpu(cx.cpu()));
        let head = match self.memory.alloc(cx, &request) {
            Ok(head) => head,
            Err(NoMemory::Asked) => return Went::Asked,
            Err(NoMemory::Refused) => return Went::Ended(FaultDone::OutOfMemory),
        };
        cx.major_fault();
        if !self.read_swap_alone(cx, slot, head) {
            self.memory.free(cx, head, Order::BASE);
            return Went::Ended(FaultDone::BusError);
        }
        self.swap_free(slot);
        self.map_again(space, cx, (table, vpn, head), access == Access::Write);
        Went::Mapped
    }

    /// Maps a page that was read, and frees its slot if that is of no more use.
    fn map_swapped(
        &mut self,
        space: &mut AddressSpace,
        cx: &mut Cx,
        (table, vpn, slot): (TableId, Vpn, SwapSlot),
        access: Access,
    ) {
        let head = self.swap.cached(slot).expect("the caller looked");
        if access == Access::Write && self.memory.frames.has(head, FrameFlag::InBatch) {
            self.lru_add_drain(cx);
        }
        self.swap_free(slot);
        let stores_alone = access == Access::Write && self.folio_references(head) == 1;
        if self.swap.is_full() || stores_alone {
            self.free_swap(cx, head);
        }
        let others = self.folio_mappings(head) + self.swap.slot_of(head).map_or(0, |slot| self.swap.count(slot));
        self.map_again(space, cx, (table, vpn, head), access == Access::Write && others == 0);
    }

    fn map_again(
        &mut self,
        space: &mut AddressSpace,
        cx: &mut Cx,
        (table, vpn, head): (TableId, Vpn, Pfn),
        may_write: bool,
    ) {
        self.map_base_again(head);
        self.pins.lost += u64::from(self.is_pinned(head));
        let pte = if may_write { Pte::written(head) } else { Pte::read(head) };
        space.tables.set_pte(cx, table, vpn, pte);
        space.rss += 1;
        space.swapped -= 1;
        debug_assert_eq!(self.memory.frames.allocated(head), Some(Order::BASE), "only base pages are swapped");
    }
}
