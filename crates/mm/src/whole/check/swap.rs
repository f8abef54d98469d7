//! Linux: none; swapoff would find such contradictions.
//! Differs: compares every slot with the entries that name it and the folio behind it.

use memory::frame::{Frame, FrameFlag};

use super::{Broken, Walk, ensure};
use crate::{Mm, folio::pte::SwapSlot, swap::SlotFlag};

impl Walk<'_> {
    /// Checks that each folio in the swap cache is the one of its slot, and that free slots are those without users.
    pub(super) fn swap_cache(&self) -> Result<(), Broken> {
        let (swap, frames) = (&self.mm.swap, &self.mm.memory.frames);
        let mut taken = 0;
        for slot in (1..=u32::try_from(swap.total()).expect("slots have 32 bits")).map(SwapSlot) {
            let folio = swap.cached(slot);
            let is_wanted = folio.is_some() || swap.count(slot) > 0;
            ensure(is_wanted == swap.is_taken(slot), folio, || format!("{slot:?}, wanted: {is_wanted}"))?;
            taken += u64::from(is_wanted);
            let Some(head) = folio else { continue };
            let (family, vpn) = swap.owner(slot);
            let is = frames.get(head);
            let order = units::Order::BASE;
            ensure(is == Frame::Anon { family, vpn, order }, folio, || format!("in the swap cache, but {is:?}"))?;
            ensure(swap.slot_of(head) == Some(slot), folio, || format!("{slot:?} leads to it, not back"))?;
            // A folio under writeback may be locked by the control that isolated it: khugepaged waits for no device.
            let is_listed = frames.has(head, FrameFlag::OnLru) || frames.has(head, FrameFlag::InBatch);
            let is_read = is_listed && frames.has(head, FrameFlag::Locked);
            ensure(!is_read || !swap.has(slot, SlotFlag::Writeback), folio, || "read and written at once".to_owned())?;
            ensure(!frames.has(head, FrameFlag::Dropped), folio, || "given up, but in the swap cache".to_owned())?;
        }
        let free = swap.free();
        ensure(free + taken == swap.total(), None, || format!("{free} slots are free, {taken} are taken"))?;
        for head in (0..frames.len()).map(units::Pfn) {
            if let Some(slot) = swap.slot_of(head) {
                ensure(swap.cached(slot) == Some(head), Some(head), || format!("leads to {slot:?}, but not back"))?;
            }
        }
        Ok(())
    }
}

/// Number of entries that name each slot.
pub(super) struct Named(Vec<u32>);

impl Named {
    pub(super) fn new(mm: &Mm) -> Self {
        Self(vec![0; usize::try_from(mm.swap.total()).expect("slots have 32 bits") + 1])
    }

    /// Counts one more entry that names a slot.
    pub(super) fn add(&mut self, mm: &Mm, slot: SwapSlot, at: crate::swap::Owner) -> Result<(), Broken> {
        let exists = slot.0 > 0 && (slot.0 as usize) < self.0.len();
        ensure(exists, None, || format!("an entry names {slot:?}, which is none"))?;
        let owner = mm.swap.owner(slot);
        ensure(owner == at, None, || format!("{slot:?} of {owner:?} is named at {at:?}"))?;
        self.0[slot.0 as usize] += 1;
        Ok(())
    }

    /// Compares the numbers with the slots' counts, after all page tables were walked.
    pub(super) fn agree(&self, mm: &Mm) -> Result<(), Broken> {
        for (slot, found) in (0..).map(SwapSlot).zip(&self.0).skip(1) {
            let count = mm.swap.count(slot);
            ensure(count == *found, None, || format!("{found} entries name {slot:?}, not {count}"))?;
        }
        Ok(())
    }
}
