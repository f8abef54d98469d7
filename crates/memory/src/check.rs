//! Linux: none; CONFIG_DEBUG_VM and CONFIG_DEBUG_LIST check single pages and links.
//! Differs: walks the whole state, and reads it only through `FrameTable::get`, the raw words and the ends of lists: none
//! of what it checks helps it.

mod slabs;

use std::fmt;

use units::{CpuId, Order, Pfn};

use crate::{
    Memory,
    buddy::types_merge,
    frame::{Frame, NIL},
    list::List,
    llfree::LlFree,
    pageblock::{MigrateType, ZoneIndex},
    pcp::stack::Stack,
    zone_llfree::ZoneLlFree,
    zone_state::ZoneState,
};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The frame where it shows, if it is about one.
    pub pfn: Option<Pfn>,
    /// The contradiction that was found there.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pfn {
            Some(pfn) => write!(f, "frame {pfn}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for Broken {}

/// Walks every list and every frame of an allocator that nobody else keeps lists of.
///
/// # Errors
/// The first invariant that does not hold.
pub fn walk(memory: &Memory) -> Result<(), Broken> {
    let mut walk = Walk::new(memory);
    walk.zone_lists()?;
    walk.slab_lists()?;
    walk.all_frames(&|_, _| Ok(()))?;
    walk.counts()
}

/// A walk over the state of an allocator.
pub struct Walk<'a> {
    memory: &'a Memory,
    /// Seen on a list, by frame.
    listed: Vec<bool>,
    /// Free frames met, by zone.
    free: Vec<u64>,
    /// Page tables met, by zone.
    page_tables: Vec<u64>,
    /// Single frames that controls hold, by zone.
    isolated: Vec<u64>,
}

impl<'a> Walk<'a> {
    /// A walk that has met nothing yet.
    pub fn new(memory: &'a Memory) -> Self {
        let zones = memory.zones.len();
        let none = || vec![0; zones];
        let listed = vec![false; memory.frames.len() as usize];
        Self { memory, listed, free: none(), page_tables: none(), isolated: none() }
    }

    /// Free lists, and the lists of CPUs, of all zones.
    ///
    /// # Errors
    /// The first list that is not sound.
    pub fn zone_lists(&mut self) -> Result<(), Broken> {
        for (index, zone) in self.memory.zones.iter().enumerate() {
            let index = ZoneIndex(u16::try_from(index).expect("fewer zones than numbers for them"));
            if let Some(all) = &zone.llfree {
                all.allocator().check().or_else(|what| broken(None, || format!("LLFree of {}: {what}", name(zone))))?;
            }
            self.free_lists(index, zone)?;
            self.pcp_lists(index, zone)?;
        }
        Ok(())
    }

    /// Zones count what was met.
    ///
    /// # Errors
    /// The first count that is wrong.
    pub fn counts(&self) -> Result<(), Broken> {
        for (zone, free) in self.memory.zones.iter().zip(&self.free) {
            let counted = zone.buddy.free_frames();
            ensure(counted == *free, None, || format!("{} counts {counted} free frames, not {free}", name(zone)))?;
            ensure(zone.fair.is_sound(&zone.marks), None, || format!("{} may not give {:?}", name(zone), zone.fair))?;
        }
        for ((zone, tables), held) in self.memory.zones.iter().zip(&self.page_tables).zip(&self.isolated) {
            // A table that a control holds is counted from its allocation on, but looks like anything else that is held.
            let counted = zone.page_tables.0;
            ensure((*tables..=tables + held).contains(&counted), None, || {
                format!("{} counts {counted} page tables, not {tables}", name(zone))
            })?;
        }
        Ok(())
    }
}

impl Walk<'_> {
    fn free_lists(&mut self, index: ZoneIndex, zone: &ZoneState) -> Result<(), Broken> {
        let here = |zone: ZoneIndex| zone == index;
        for order in (0..=zone.buddy.max_order().0).map(Order) {
            let is_big = order >= self.memory.frames.blocks.order();
            for list in MigrateType::ALL {
                let wanted =
                    move |frame| matches!(frame, Frame::Free { order: o, list: l, .. } if o == order && l == list);
                let what = || format!("the free list of {}, order {order}, {list:?}", name(zone));
                self.list(zone.buddy.area(order).list(list), &here, is_big, &wanted, &what)?;
            }
        }
        Ok(())
    }

    fn pcp_lists(&mut self, index: ZoneIndex, zone: &ZoneState) -> Result<(), Broken> {
        let here = |zone: ZoneIndex| zone == index;
        for (number, pcp) in (0..).zip(&zone.pcps) {
            let mut frames = 0;
            for pfn in pcp.lists(self.memory.variant().pcp_lists).flat_map(Stack::blocks) {
                let wanted = move |frame| matches!(frame, Frame::Pcp { cpu, .. } if cpu == CpuId(number));
                let what = || format!("a list of {}, CPU {number}", name(zone));
                frames += self.listed(*pfn, &here, &wanted, &what)?;
                let links = self.memory.frames.raw_links(*pfn);
                ensure(links == 0, Some(*pfn), || format!("on {}, but linked: {links:#x}", what()))?;
            }
            let count = pcp.count();
            ensure(u64::from(count) == frames, None, || {
                format!("{}, CPU {number}: counts {count} frames on its lists, not {frames}", name(zone))
            })?;
        }
        Ok(())
    }

    /// Walks one list and returns its frames. Bounded: no frame may be on two lists, or twice on one.
    ///
    /// # Errors
    /// A block that is not `wanted` on this list or not of a zone that is `here`, or a link that does not lead back.
    pub fn list(
        &mut self,
        list: &List,
        here: &dyn Fn(ZoneIndex) -> bool,
        is_big: bool,
        wanted: &dyn Fn(Frame) -> bool,
        what: &dyn Fn() -> String,
    ) -> Result<u64, Broken> {
        let frames = &self.memory.frames;
        let (mut previous, mut at, mut count, mut total) = (NIL, list.first().unwrap_or(NIL), 0, 0);
        while at != NIL {
            total += self.listed(at, here, wanted, what)?;
            let word = if is_big { frames.raw_block(at).1 } else { frames.raw_links(at) };
            let [next, prev] = [word >> 32, word & u64::from(u32::MAX)];
            ensure(prev == u64::from(previous.0), Some(at), || {
                format!("on {} behind {previous}, but its link says {prev}", what())
            })?;
            count += 1;
            previous = at;
            at = Pfn(u32::try_from(next).expect("half a word"));
        }
        let (end, len) = (list.last().unwrap_or(NIL), list.len());
        ensure(end == previous, None, || format!("{} ends with {previous}, but it says {end}", what()))?;
        ensure(len == count, None, || format!("{} has {count} blocks, but it says {len}", what()))?;
        Ok(total)
    }

    /// A list leads to this block: returns its frames.
    fn listed(
        &mut self,
        at: Pfn,
        here: &dyn Fn(ZoneIndex) -> bool,
        wanted: &dyn Fn(Frame) -> bool,
        what: &dyn Fn() -> String,
    ) -> Result<u64, Broken> {
        let frames = &self.memory.frames;
        ensure(at.0 < frames.len(), None, || format!("{} leads to frame {at}, which is none", what()))?;
        let frame = frames.get(at);
        ensure(wanted(frame), Some(at), || format!("on {}, but {frame:?}", what()))?;
        ensure(!self.listed[at.0 as usize], Some(at), || format!("on {} for the second time", what()))?;
        let is_here = frames.blocks.zone(at).is_some_and(here);
        ensure(is_here, Some(at), || format!("on {}, of another zone", what()))?;
        self.listed[at.0 as usize] = true;
        Ok(frames.order_of(frame).frames().into())
    }

    /// Every frame is whole, and where it says that it is. `folio`: asked of every anonymous page and page of a file, which
    /// says whether a list has led to it.
    ///
    /// # Errors
    /// The first frame that is not.
    pub fn all_frames(&mut self, folio: &dyn Fn(Pfn, bool) -> Result<(), Broken>) -> Result<(), Broken> {
        let frames = &self.memory.frames;
        let mut at = Pfn(0);
        // Bounded by the table: each block is at least a frame.
        while at.0 < frames.len() {
            let frame = frames.get(at);
            let order = frames.order_of(frame);
            let listed = self.listed[at.0 as usize];
            match frame {
                Frame::Interior | Frame::Tail { .. } => broken(Some(at), || format!("{frame:?} of no block"))?,
                Frame::Reserved => ensure(frames.raw_links(at) == 0, Some(at), || "reserved, but linked".to_owned())?,
                Frame::Free { .. } if self.is_llfree(at) => {
                    ensure(self.is_free_there(at), Some(at), || format!("{frame:?}, but LLFree has it in use"))?;
                    count(&mut self.free, frames.blocks.zone(at), at, 1)?;
                }
                Frame::Free { .. } => {
                    ensure(listed, Some(at), || format!("{frame:?}, but on no list"))?;
                    count(&mut self.free, frames.blocks.zone(at), at, order.frames())?;
                    self.is_merged(at, frame)?;
                }
                Frame::Slab(slab) => self.is_kept(at, slab)?,
                Frame::Pcp { .. } => ensure(listed, Some(at), || format!("{frame:?}, but on no list"))?,
                Frame::Anon { .. } | Frame::File { .. } => folio(at, listed)?,
                Frame::Isolated { order: Order::BASE, .. } => {
                    count(&mut self.isolated, frames.blocks.zone(at), at, 1)?;
                }
                Frame::PageTable => count(&mut self.page_tables, frames.blocks.zone(at), at, 1)?,
                _ => {}
            }
            self.is_whole(at, frame)?;
            at = at.plus(order.frames());
        }
        Ok(())
    }

    /// Is a block where a block can be, inside one zone, and is nothing else inside it?
    fn is_whole(&self, head: Pfn, frame: Frame) -> Result<(), Broken> {
        let frames = &self.memory.frames;
        let (order, block) = (frames.order_of(frame), frames.blocks.order());
        ensure(order <= self.memory.max_order(), Some(head), || format!("{frame:?} is larger than any block"))?;
        ensure(head.is_aligned(order), Some(head), || format!("{frame:?} starts here"))?;
        let is_allocated = !matches!(frame, Frame::Free { .. } | Frame::Pcp { .. });
        let is_big_free = matches!(frame, Frame::Free { .. }) && order >= block;
        let zone = frames.blocks.zone(head);
        for pfn in (head.0..head.0 + order.frames()).map(Pfn) {
            let is_head = pfn == head;
            let is_tail = || is_allocated && matches!(frames.get(pfn), Frame::Tail { .. });
            let clean = (is_head && !is_big_free) || frames.raw(pfn) == (0, 0) || is_tail();
            ensure(clean, Some(pfn), || format!("part of {frame:?} at {head}, but {:x?}", frames.raw(pfn)))?;
            if !pfn.is_aligned(block) {
                continue;
            }
            let inside = frames.blocks.zone(pfn) == zone;
            ensure(inside, Some(pfn), || format!("part of {frame:?} at {head}, but in another zone"))?;
            let clean = (is_head && is_big_free) || frames.raw_block(pfn) == (0, 0);
            ensure(clean, Some(pfn), || {
                format!("its pageblock is part of {frame:?} at {head}, but {:x?}", frames.raw_block(pfn))
            })?;
        }
        Ok(())
    }

    /// Two free buddies would be one block.
    fn is_merged(&self, head: Pfn, frame: Frame) -> Result<(), Broken> {
        let frames = &self.memory.frames;
        let order = frames.order_of(frame);
        let buddy = head.buddy(order);
        if order >= self.memory.max_order() || frames.blocks.zone(buddy) != frames.blocks.zone(head) {
            return Ok(());
        }
        let (Frame::Free { list, .. }, Frame::Free { order: o, list: other, .. }) = (frame, frames.get(buddy)) else {
            return Ok(());
        };
        if o != order {
            return Ok(());
        }
        let types = [head, buddy].map(|pfn| frames.blocks.migrate_type(pfn));
        // A block from a per-CPU list has the type that its pageblock had when the block went onto that list. So the block of
        // the two that was freed last may have met another type than today's, and that type kept the two apart.
        let merge = |one, other| types_merge(one, other, self.memory.variant().merging);
        let may_merge = merge(types[0], types[1]) && merge(list, types[1]) && merge(other, types[0]);
        let keeps_apart = order >= frames.blocks.order() && (self.has_unmerged(head) || !may_merge);
        ensure(keeps_apart, Some(head), || format!("{frame:?}, and so is its buddy {buddy} of {types:?}"))
    }
}

/// Counts frames for their zone.
fn count(counts: &mut [u64], zone: Option<ZoneIndex>, pfn: Pfn, frames: u32) -> Result<(), Broken> {
    match zone {
        Some(zone) => counts[usize::from(zone.0)] += u64::from(frames),
        None => broken(Some(pfn), || "in use or free, but in no zone".to_owned())?,
    }
    Ok(())
}

impl Walk<'_> {
    fn llfree_of(&self, pfn: Pfn) -> Option<&LlFree> {
        self.memory
            .frames
            .blocks
            .zone(pfn)
            .and_then(|zone| self.memory.zones[zone].llfree.as_deref())
            .map(ZoneLlFree::allocator)
    }

    fn is_llfree(&self, pfn: Pfn) -> bool {
        self.llfree_of(pfn).is_some()
    }

    fn is_free_there(&self, pfn: Pfn) -> bool {
        self.llfree_of(pfn).is_some_and(|all| all.is_free(pfn))
    }

    fn has_unmerged(&self, pfn: Pfn) -> bool {
        self.memory.frames.blocks.zone(pfn).is_some_and(|zone| self.memory.zones[zone].has_unmerged)
    }
}

fn name(zone: &ZoneState) -> String {
    format!("node {} {}", zone.node, zone.kind)
}

/// Is it so? Else an invariant is broken.
///
/// # Errors
/// `what` is wrong with this frame.
pub fn ensure(holds: bool, pfn: Option<Pfn>, what: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { broken(pfn, what) }
}

/// An invariant is broken.
///
/// # Errors
/// `what` is wrong with this frame: always.
pub fn broken(pfn: Option<Pfn>, what: impl FnOnce() -> String) -> Result<(), Broken> {
    Err(Broken { pfn, what: what() })
}

#[cfg(test)]
mod tests;
