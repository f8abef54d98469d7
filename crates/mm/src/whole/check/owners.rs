//! Linux: none; reference counts and page flags are checked one page at a time, where they are used.
//! Differs: asks every address space and every control for its frames, and finds a frame with two owners, or with none.

use std::collections::{BTreeMap, BTreeSet};

use memory::{
    frame::{ControlId, Frame, FrameFlag, Holdings},
    slab::{Object, Slab},
};
use units::{Order, Pfn};

use super::{Broken, broken, ensure, spaces::Spaces};
use crate::{Mm, space::address_space::AddressSpace};

/// All owners of frames between two steps.
#[derive(Clone, Debug, Default)]
pub struct Owners<'a> {
    /// Every address space, including the address spaces of children that are being forked.
    pub spaces: Vec<&'a AddressSpace>,
    /// Every operation under way, by who takes its steps.
    pub controls: Vec<(ControlId, Holdings)>,
}

/// Walks the page tables of every process, asks every control, and compares with the frames' states: each frame has one
/// owner, and as many mappings as are counted. Returns, in order, the heads of the blocks that no owner lists: the
/// kernel's own blocks.
pub fn walk_owners(mm: &Mm, owners: &Owners) -> Result<Vec<Pfn>, Broken> {
    let mut claims = Claims::default();
    for (control, holdings) in &owners.controls {
        for held in &holdings.isolated {
            claims.isolated.add(held.pfn, (*control, held.order))?;
        }
        for held in &holdings.gathered {
            claims.gathered.add(held.pfn, held.order)?;
        }
        for held in &holdings.off_lru {
            claims.off_lru.add(held.pfn, held.order)?;
        }
        claims.count_objects(holdings.objects.iter().copied());
    }
    claims.count_objects(mm.cache.objects());
    claims.count_objects(mm.memory.slabs.spare_objects().into_iter());
    let mut spaces = Spaces::new(mm);
    for space in &owners.spaces {
        let held = space.tables.frames().filter(|table| claims.isolated.0.contains_key(table)).count();
        spaces.walk(space, held)?;
        claims.count_objects(space.objects());
    }
    spaces.agree()?;
    let mut metadata = BTreeSet::new();
    for page in mm.cache.metadata_pages() {
        ensure(metadata.insert(page), Some(page), || "of two buffers".to_owned())?;
    }
    let mut others = Vec::new();
    let mut at = Pfn(0);
    // Bounded by the table: each block is at least a frame.
    while at.0 < mm.memory.frames.len() {
        let frame = mm.memory.frames.get(at);
        if let Frame::Kernel { .. } = frame
            && !metadata.remove(&at)
        {
            others.push(at);
        }
        claims.settle(mm, &spaces, at, frame)?;
        at = at.plus(mm.memory.frames.order_of(frame).frames());
    }
    claims.are_settled()?;
    let lost = metadata.first().copied();
    ensure(lost.is_none(), lost, || "of a buffer, which does not have it".to_owned())?;
    Ok(others)
}

/// The owner recorded for each block.
#[derive(Default)]
struct Claims {
    isolated: Claim<(ControlId, Order)>,
    gathered: Claim<Order>,
    off_lru: Claim<Order>,
    /// Kernel objects, by slab.
    objects: BTreeMap<Pfn, u16>,
}

/// Blocks by their first frame.
struct Claim<T>(BTreeMap<Pfn, T>);

impl<T> Default for Claim<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: std::fmt::Debug + PartialEq> Claim<T> {
    fn add(&mut self, pfn: Pfn, what: T) -> Result<(), Broken> {
        let other = self.0.insert(pfn, what);
        ensure(other.is_none(), Some(pfn), || "two say that they have it".to_owned())
    }

    /// Checks that a claimed block has the state that its claim demands.
    fn settle(&mut self, pfn: Pfn, frame: Frame, what: &T) -> Result<(), Broken> {
        let claimed = self.0.remove(&pfn);
        ensure(claimed.as_ref() == Some(what), Some(pfn), || format!("{frame:?}, but claimed as {claimed:?}"))
    }
}

impl Claims {
    fn count_objects(&mut self, objects: impl Iterator<Item = Object>) {
        for object in objects {
            *self.objects.entry(object.slab()).or_default() += 1;
        }
    }

    fn settle(&mut self, mm: &Mm, spaces: &Spaces, pfn: Pfn, frame: Frame) -> Result<(), Broken> {
        match frame {
            Frame::Isolated { owner, order } => self.isolated.settle(pfn, frame, &(owner, order)),
            Frame::PageTable => ensure(spaces.has_table(pfn), Some(pfn), || "a page table of no process".to_owned()),
            Frame::Anon { order, .. } => {
                let is_mapped = spaces.maps_folio(pfn, order)?;
                // The batch that holds the last reference is walked with the LRU lists.
                let is_dropped = mm.memory.frames.has(pfn, FrameFlag::Dropped);
                ensure(!(is_mapped && is_dropped), Some(pfn), || "mapped, but given up".to_owned())?;
                let is_cached = mm.swap.slot_of(pfn).is_some();
                let is_loose =
                    !mm.memory.frames.has(pfn, FrameFlag::OnLru) && !mm.memory.frames.has(pfn, FrameFlag::InBatch);
                if is_loose && (is_mapped || is_cached || is_dropped) || self.off_lru.0.contains_key(&pfn) {
                    if !is_mapped && !is_cached && !is_dropped {
                        // The control that unmapped it last may still wait for a flush.
                        self.gathered.0.remove(&pfn);
                    }
                    return self.off_lru.settle(pfn, frame, &order);
                }
                if is_mapped || is_cached || is_dropped { Ok(()) } else { self.gathered.settle(pfn, frame, &order) }
            }
            Frame::File { order, .. } => {
                spaces.maps_folio(pfn, order)?;
                let is_loose =
                    !mm.memory.frames.has(pfn, FrameFlag::OnLru) && !mm.memory.frames.has(pfn, FrameFlag::InBatch);
                if is_loose || self.off_lru.0.contains_key(&pfn) {
                    return self.off_lru.settle(pfn, frame, &order);
                }
                Ok(())
            }
            Frame::Slab(Slab { in_use, .. }) => {
                let objects = self.objects.remove(&pfn).unwrap_or(0);
                ensure(in_use == objects, Some(pfn), || format!("{frame:?}, but somebody has {objects}"))
            }
            Frame::ZeroHuge => {
                let known = mm.huge_zero.frame();
                ensure(known == Some(pfn), Some(pfn), || format!("{frame:?}, but that is {known:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no claim is left: a claimed block that was not met has another state.
    fn are_settled(&self) -> Result<(), Broken> {
        let isolated = self.isolated.0.first_key_value().map(|(pfn, (owner, _))| (*pfn, format!("held by {owner:?}")));
        let gathered = self.gathered.0.keys().next().map(|pfn| (*pfn, "waits for a flush".to_owned()));
        let off = self.off_lru.0.keys().next().map(|pfn| (*pfn, "a folio off its list".to_owned()));
        let slab = self.objects.keys().next().map(|pfn| (*pfn, "a slab".to_owned()));
        match isolated.or(gathered).or(off).or(slab) {
            Some((pfn, what)) => broken(Some(pfn), || format!("said to be {what}, but it is not")),
            None => Ok(()),
        }
    }
}
