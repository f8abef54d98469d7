//! Linux: none; reference counts and page flags are checked one page at a time, where they are used.
//! Differs: asks every address space and every control what it has, and finds a frame that two have, or nobody.

use std::collections::BTreeMap;

use units::{Order, Pfn, Vpn};

use super::{Broken, broken, ensure};
use crate::{
    ControlId, Mm,
    address_space::{AddressSpace, EVERYTHING},
    frame::{Frame, FrameFlag, Holdings},
    page_table::Pmd,
    pte::Pte,
    slab::{Object, Slab},
    vma::PageRange,
};

/// Everybody who has frames between two steps.
#[derive(Clone, Debug, Default)]
pub struct Owners<'a> {
    /// Every address space, those of children that are being forked too.
    pub spaces: Vec<&'a AddressSpace>,
    /// Every operation under way, by who takes its steps.
    pub controls: Vec<(ControlId, Holdings)>,
}

/// Asks everybody, and compares with what the frames say of themselves.
pub fn walk_owners(mm: &Mm, owners: &Owners) -> Result<(), Broken> {
    let mut claims = Claims::default();
    for (control, holdings) in &owners.controls {
        for held in &holdings.isolated {
            claims.isolated.add(held.pfn, (*control, held.order))?;
        }
        for held in &holdings.gathered {
            claims.gathered.add(held.pfn, held.order)?;
        }
        claims.count_objects(holdings.objects.iter().copied());
    }
    for space in &owners.spaces {
        for table in space.tables.frames() {
            if !claims.isolated.0.contains_key(&table) {
                claims.tables.add(table, ())?;
            }
        }
        claims.count_objects(space.objects());
        claims.count_entries(mm, space)?;
    }
    let mut at = Pfn(0);
    // Bounded by the table: each block is at least a frame.
    while at.0 < mm.frames.len() {
        let frame = mm.frames.get(at);
        claims.settle(mm, at, frame)?;
        at = at.plus(mm.frames.order_of(frame).frames());
    }
    claims.are_settled()
}

/// Who says that he has which block.
#[derive(Default)]
struct Claims {
    isolated: Claim<(ControlId, Order)>,
    gathered: Claim<Order>,
    tables: Claim<()>,
    /// Entries of page tables, by the head of the folio that they map.
    entries: BTreeMap<Pfn, u32>,
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

    /// The block is there, and is what it was claimed to be.
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

    fn count_entries(&mut self, mm: &Mm, space: &AddressSpace) -> Result<(), Broken> {
        let mut rest = EVERYTHING;
        // Bound: each turn passes one PMD entry.
        while let Some((part, slot)) = space.tables.next_pmd(rest) {
            match space.tables.pmd(slot) {
                Pmd::None => {}
                Pmd::Huge(huge) => self.count_entry(mm, huge)?,
                Pmd::Table(table) => {
                    for vpn in (part.start.0..part.end.0).map(Vpn) {
                        self.count_entry(mm, space.tables.pte(table, vpn))?;
                    }
                }
            }
            rest = PageRange { start: part.end, end: rest.end };
        }
        Ok(())
    }

    fn count_entry(&mut self, mm: &Mm, pte: Pte) -> Result<(), Broken> {
        if !pte.is_present() || pte.is_zero_page() {
            return Ok(());
        }
        let huge = pte.pfn().align_down(Order::HUGE);
        let heads = [pte.pfn(), huge].map(|pfn| (pfn, mm.frames.get(pfn)));
        let head = match heads {
            [(pfn, Frame::Anon { .. }), _] | [_, (pfn, Frame::Anon { order: Order::HUGE, .. })] => pfn,
            [(pfn, frame), _] => return broken(Some(pfn), || format!("{frame:?}, but an entry maps it")),
        };
        *self.entries.entry(head).or_default() += 1;
        Ok(())
    }

    fn settle(&mut self, mm: &Mm, pfn: Pfn, frame: Frame) -> Result<(), Broken> {
        match frame {
            Frame::Isolated { owner, order } => self.isolated.settle(pfn, frame, &(owner, order)),
            Frame::PageTable => self.tables.settle(pfn, frame, &()),
            Frame::Anon { order, .. } => {
                let counted = mm.folio_mappings(pfn);
                let entries = self.entries.remove(&pfn).unwrap_or(0);
                ensure(counted == entries, Some(pfn), || format!("counts {counted} mappings, not {entries}"))?;
                // The batch that holds the last reference is walked with the LRU lists.
                let is_dropped = mm.frames.has(pfn, FrameFlag::Dropped);
                if counted == 0 && !is_dropped { self.gathered.settle(pfn, frame, &order) } else { Ok(()) }
            }
            Frame::Slab(Slab { in_use, .. }) => {
                let objects = self.objects.remove(&pfn).unwrap_or(0);
                ensure(in_use == objects, Some(pfn), || format!("{frame:?}, but somebody has {objects}"))
            }
            Frame::ZeroHuge => {
                let known = mm.thp.huge_zero_frame();
                ensure(known == Some(pfn), Some(pfn), || format!("{frame:?}, but that is {known:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Whatever is left was claimed, but is something else.
    fn are_settled(&self) -> Result<(), Broken> {
        let isolated = self.isolated.0.first_key_value().map(|(pfn, (owner, _))| (*pfn, format!("held by {owner:?}")));
        let gathered = self.gathered.0.keys().next().map(|pfn| (*pfn, "waits for a flush".to_owned()));
        let table = self.tables.0.keys().next().map(|pfn| (*pfn, "a page table".to_owned()));
        let slab = self.objects.keys().next().map(|pfn| (*pfn, "a slab".to_owned()));
        match isolated.or(gathered).or(table).or(slab) {
            Some((pfn, what)) => broken(Some(pfn), || format!("said to be {what}, but it is not")),
            None => Ok(()),
        }
    }
}
