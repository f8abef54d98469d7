//! Linux: none; the VM_BUG_ON assertions of `mm/swap.c` and `mm/vmscan.c`.
//! Differs: walks every list and batch.

use memory::{
    frame::{Frame, FrameFlag},
    lru_kind::LruKind,
    pageblock::ZoneIndex,
};
use units::{CpuId, Pfn};

use super::{Broken, Walk, broken, ensure};
use crate::Mm;

impl Walk<'_> {
    /// Checks that every folio on an LRU list has the flag, and is on the right list.
    pub(super) fn lru_lists(&mut self) -> Result<(), Broken> {
        let (frames, lru) = (&self.mm.memory.frames, &self.mm.lru);
        for (number, lruvec) in lru.lruvecs().iter().enumerate() {
            for kind in LruKind::ALL {
                let what = || format!("LRU list {kind:?} of lruvec {number}");
                let wanted = |frame| match frame {
                    Frame::Anon { .. } => !kind.is_file(),
                    Frame::File { .. } => kind.is_file(),
                    _ => false,
                };
                let here = |zone: ZoneIndex| lru.of_zone(zone) == number;
                let walked = self.low.list(lruvec.list(kind), &here, false, &wanted, &what)?;
                let counted = lru.frames(number, kind);
                ensure(counted == walked, None, || format!("{} counts {counted} frames, not {walked}", what()))?;
                for head in lruvec.list(kind).iter(frames) {
                    let is_active = frames.has(head, FrameFlag::Active);
                    let fits = is_active == kind.is_active() && frames.has(head, FrameFlag::OnLru);
                    ensure(fits, Some(head), || format!("on {}, but not marked so", what()))?;
                }
            }
        }
        Ok(())
    }

    /// Checks that a folio in a batch is on no list, and in no other batch.
    pub(super) fn lru_batches(&mut self) -> Result<(), Broken> {
        let (frames, lru) = (&self.mm.memory.frames, &self.mm.lru);
        for cpu in (0..lru.cpus()).map(CpuId) {
            for head in lru.batch(cpu).iter().copied() {
                let is_folio = matches!(frames.get(head), Frame::Anon { .. } | Frame::File { .. });
                let is_here = is_folio && frames.has(head, FrameFlag::InBatch) && !frames.has(head, FrameFlag::OnLru);
                ensure(is_here, Some(head), || format!("in the batch of CPU {cpu}, but not marked so"))?;
                let twice = std::mem::replace(&mut self.batched[head.0 as usize], true);
                ensure(!twice, Some(head), || "in a batch for the second time".to_owned())?;
            }
        }
        Ok(())
    }
}

/// A folio is on a list or in a batch if it says so.
pub(super) fn is_where_it_says(mm: &Mm, batched: &[bool], head: Pfn, listed: bool) -> Result<(), Broken> {
    let frames = &mm.memory.frames;
    if frames.has(head, FrameFlag::OnLru) != listed {
        broken(Some(head), || "its mark and the LRU lists disagree".to_owned())?;
    }
    let batched = batched[head.0 as usize];
    ensure(frames.has(head, FrameFlag::InBatch) == batched, Some(head), || {
        "its mark and the batches disagree".to_owned()
    })?;
    // A control that has taken a folio off its list holds the folio, and `walk_owners` hears of that.
    let is_held = batched || !listed;
    ensure(!frames.has(head, FrameFlag::Dropped) || is_held, Some(head), || "given up, but on a list".to_owned())
}
