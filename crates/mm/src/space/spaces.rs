//! Linux: the anonymous side of mm/rmap.c, anon_vma_chain in include/linux/rmap.h (v6.1).
//! Differs: a frame names the family of processes that may map it, and where; who of them does is found in their page
//! tables. So it survives that VMAs are split and merged, and costs nothing until it is asked for.

use std::collections::BTreeMap;

use memory::frame::{FamilyId, Frame, FrameTable, SpaceId};
use units::{Order, Pfn, Vpn};

use crate::{
    Mm,
    folio::pte::Pte,
    space::{
        address_space::AddressSpace,
        page_table::{Pmd, PmdSlot, TableId},
    },
};

/// Every address space that uses one memory. Apart from it, so that an operation on one of them may change both.
#[derive(Clone, Debug, Default)]
pub struct Spaces {
    /// None once the process has ended.
    all: Vec<Option<AddressSpace>>,
    /// Address spaces related by fork, the oldest first.
    families: BTreeMap<FamilyId, Vec<SpaceId>>,
}

/// An entry of a process's page tables that maps a folio, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The address space.
    pub space: SpaceId,
    /// Where it is.
    pub at: Entry,
}

/// The entries of one address space that map a folio, or parts of it.
fn for_each_entry(space: &AddressSpace, head: Pfn, vpn: Vpn, order: Order, visit: impl FnMut(Entry)) {
    for_each_that(space, head, vpn, order, Pte::maps, visit);
}

/// The entries of one address space at a folio's place that are as asked for, given the frame that they would map.
fn for_each_that(
    space: &AddressSpace,
    head: Pfn,
    vpn: Vpn,
    order: Order,
    is_wanted: fn(Pte, Pfn) -> bool,
    mut visit: impl FnMut(Entry),
) {
    let Some(slot) = space.tables.pmd_slot(vpn) else { return };
    match space.tables.pmd(slot) {
        Pmd::None => {}
        Pmd::Huge(huge) => {
            if is_wanted(huge, head) {
                visit(Entry::Huge(slot));
            }
        }
        Pmd::Table(table) => {
            for n in 0..order.frames() {
                let page = vpn.plus(n.into());
                if is_wanted(space.tables.pte(table, page), head.plus(n)) {
                    visit(Entry::Base(table, page));
                }
            }
        }
    }
}

/// A place in page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Of a base page.
    Base(TableId, Vpn),
    /// Of a huge page.
    Huge(PmdSlot),
}

impl Spaces {
    /// A process begins.
    ///
    /// # Panics
    /// When there have been 2^32 of them.
    pub fn add(&mut self, space: AddressSpace) -> SpaceId {
        let id = SpaceId(u32::try_from(self.all.len()).expect("fewer than 2^32 processes"));
        self.families.entry(space.family).or_default().push(id);
        self.all.push(Some(space));
        id
    }

    /// A process ends: its address space, for [`AddressSpace::end`].
    ///
    /// # Panics
    /// When it has ended before.
    pub fn take(&mut self, id: SpaceId) -> AddressSpace {
        let space = self.all[id.0 as usize].take().expect("it ends once");
        let members = self.families.get_mut(&space.family).expect("it was added");
        members.retain(|member| *member != id);
        if members.is_empty() {
            self.families.remove(&space.family);
        }
        space
    }

    /// One that lives.
    #[inline]
    pub fn get(&self, id: SpaceId) -> Option<&AddressSpace> {
        self.all[id.0 as usize].as_ref()
    }

    /// An address space, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: SpaceId) -> Option<&mut AddressSpace> {
        self.all[id.0 as usize].as_mut()
    }

    /// All that live, in the order of creation.
    pub fn iter(&self) -> impl Iterator<Item = (SpaceId, &AddressSpace)> {
        (0..).map(SpaceId).zip(&self.all).filter_map(|(id, space)| Some((id, space.as_ref()?)))
    }

    /// The process that khugepaged knows by a number, if it lives.
    pub(crate) fn registered(&self, number: u64) -> Option<SpaceId> {
        self.iter().find(|(_, space)| space.khugepaged == Some(number)).map(|(id, _)| id)
    }

    /// The first that it knows by this number or a later one.
    pub(crate) fn registered_from(&self, number: u64) -> Option<(u64, SpaceId)> {
        let known = self.iter().filter_map(|(id, space)| Some((space.khugepaged?, id)));
        known.filter(|(its, _)| *its >= number).min()
    }

    /// The entries that map the folio of an anonymous frame, or parts of it (`rmap_walk_anon`): by process, then by page.
    /// A child that is being forked is not among them yet; a control that takes mappings away finds out by the folio's count.
    pub fn mappings(&self, mm: &Mm, head: Pfn) -> Vec<Mapping> {
        let mut found = Vec::new();
        let Frame::Anon { family, vpn, order } = mm.memory.frames.get(head) else { return found };
        for id in self.families.get(&family).into_iter().flatten() {
            let space = self.get(*id).expect("members live");
            for_each_entry(space, head, vpn, order, |at| found.push(Mapping { space: *id, at }));
        }
        found
    }

    /// The entries that name a huge page, or parts of it, as one that is on its way to another frame: by process, then by page.
    pub(crate) fn leaving(&self, mm: &Mm, head: Pfn) -> Vec<Mapping> {
        let mut found = Vec::new();
        let Frame::Anon { family, vpn, order } = mm.memory.frames.get(head) else { return found };
        for id in self.families.get(&family).into_iter().flatten() {
            let space = self.get(*id).expect("members live");
            for_each_that(space, head, vpn, order, Pte::leaves, |at| found.push(Mapping { space: *id, at }));
        }
        found
    }

    /// Visits the entries of [`Self::mappings`], to read or change them, with the address space of each; says how many there
    /// were.
    pub(crate) fn visit_mappings(
        &mut self,
        frames: &FrameTable,
        head: Pfn,
        mut visit: impl FnMut(SpaceId, &mut AddressSpace, Entry),
    ) -> u32 {
        let Frame::Anon { family, vpn, order } = frames.get(head) else { return 0 };
        let mut found = 0;
        for id in self.families.get(&family).into_iter().flatten() {
            let space = self.all[id.0 as usize].as_mut().expect("members live");
            if order == Order::BASE {
                // Nearly always.
                if let Pmd::Table(table) = space.tables.pmd_of(vpn)
                    && space.tables.pte(table, vpn).maps(head)
                {
                    found += 1;
                    visit(*id, space, Entry::Base(table, vpn));
                }
                continue;
            }
            let mut entries = Vec::new();
            for_each_entry(space, head, vpn, order, |at| entries.push(at));
            for at in entries {
                found += 1;
                visit(*id, space, at);
            }
        }
        found
    }

    /// Visits the entries that map a page of a file, which are where its file is mapped by these families; says how many.
    pub(crate) fn visit_file_mappings(
        &mut self,
        places: &[(FamilyId, Vpn)],
        head: Pfn,
        mut visit: impl FnMut(SpaceId, &mut AddressSpace, Entry),
    ) -> u32 {
        let mut found = 0;
        for (family, vpn) in places {
            for id in self.families.get(family).into_iter().flatten() {
                let space = self.all[id.0 as usize].as_mut().expect("members live");
                if let Pmd::Table(table) = space.tables.pmd_of(*vpn)
                    && space.tables.pte(table, *vpn).maps(head)
                {
                    found += 1;
                    visit(*id, space, Entry::Base(table, *vpn));
                }
            }
        }
        found
    }

    /// The wanted entries that map a base page, into a list that is used again: those of its family at its place.
    pub(crate) fn base_entries(&self, mm: &Mm, page: Pfn, is_wanted: impl Fn(Pte) -> bool, found: &mut Vec<Mapping>) {
        found.clear();
        let Frame::Anon { family, vpn, .. } = mm.memory.frames.get(page) else {
            for place in mm.file_places(page) {
                self.entries_at(place, &is_wanted, found);
            }
            return;
        };
        self.entries_at((family, vpn), &is_wanted, found);
    }

    fn entries_at(&self, (family, vpn): (FamilyId, Vpn), is_wanted: &impl Fn(Pte) -> bool, found: &mut Vec<Mapping>) {
        for id in self.families.get(&family).into_iter().flatten() {
            let tables = &self.get(*id).expect("members live").tables;
            if let Pmd::Table(table) = tables.pmd_of(vpn)
                && is_wanted(tables.pte(table, vpn))
            {
                found.push(Mapping { space: *id, at: Entry::Base(table, vpn) });
            }
        }
    }

    /// The entry of a mapping.
    ///
    /// # Panics
    /// When its process has ended.
    pub fn entry(&self, mapping: Mapping) -> Pte {
        let space = self.get(mapping.space).expect("the process lives");
        match mapping.at {
            Entry::Base(table, vpn) => space.tables.pte(table, vpn),
            Entry::Huge(slot) => match space.tables.pmd(slot) {
                Pmd::Huge(huge) => huge,
                Pmd::None | Pmd::Table(_) => Pte::NONE,
            },
        }
    }
}
