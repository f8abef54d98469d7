//! Linux: the anonymous side of mm/rmap.c, anon_vma_chain in include/linux/rmap.h (v6.1).
//! Differs: a frame names the family of processes that may map it, and the page number; the processes that do are found in
//! their page tables. So splits and merges of VMAs change nothing, and reverse mapping costs nothing until it is used.

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

/// Every address space of one kernel. Not a part of `Mm`, so that an operation on a space may change both.
#[derive(Clone, Debug, Default)]
pub struct Spaces {
    /// Address spaces by number; none after the process has ended.
    all: Vec<Option<AddressSpace>>,
    /// Address spaces related by fork, the oldest first.
    families: BTreeMap<FamilyId, Vec<SpaceId>>,
}

/// An entry of a process's page tables that maps a folio, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The address space.
    pub space: SpaceId,
    /// The place of the entry.
    pub at: Entry,
}

/// The entries of one address space that map a folio, or parts of it.
fn for_each_entry(space: &AddressSpace, head: Pfn, vpn: Vpn, order: Order, visit: impl FnMut(Entry)) {
    for_each_that(space, head, vpn, order, Pte::maps, visit);
}

/// Visits the entries of one address space at a folio's place that fit a test, which is given the entry and the frame that it
/// would map.
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

/// The place of an entry in page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The entry of a base page.
    Base(TableId, Vpn),
    /// The entry of a huge page.
    Huge(PmdSlot),
}

impl Spaces {
    /// Adds the address space of a new process.
    ///
    /// # Panics
    /// When there have been 2^32 processes.
    pub fn add(&mut self, space: AddressSpace) -> SpaceId {
        let id = SpaceId(u32::try_from(self.all.len()).expect("fewer than 2^32 processes"));
        self.families.entry(space.family).or_default().push(id);
        self.all.push(Some(space));
        id
    }

    /// Takes the address space of a process that ends, for [`AddressSpace::end`].
    ///
    /// # Panics
    /// When the process has ended before.
    pub fn take(&mut self, id: SpaceId) -> AddressSpace {
        let space = self.all[id.0 as usize].take().expect("it ends once");
        let members = self.families.get_mut(&space.family).expect("it was added");
        members.retain(|member| *member != id);
        if members.is_empty() {
            self.families.remove(&space.family);
        }
        space
    }

    /// The address space of a process, if it lives.
    #[inline]
    pub fn get(&self, id: SpaceId) -> Option<&AddressSpace> {
        self.all[id.0 as usize].as_ref()
    }

    /// The address space of a process, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: SpaceId) -> Option<&mut AddressSpace> {
        self.all[id.0 as usize].as_mut()
    }

    /// The address spaces of all living processes, in the order of creation.
    pub fn iter(&self) -> impl Iterator<Item = (SpaceId, &AddressSpace)> {
        (0..).map(SpaceId).zip(&self.all).filter_map(|(id, space)| Some((id, space.as_ref()?)))
    }

    /// The process that khugepaged knows by this number, if it lives.
    pub(crate) fn registered(&self, number: u64) -> Option<SpaceId> {
        self.iter().find(|(_, space)| space.khugepaged == Some(number)).map(|(id, _)| id)
    }

    /// The process with the lowest of khugepaged's numbers from this one on.
    pub(crate) fn registered_from(&self, number: u64) -> Option<(u64, SpaceId)> {
        let known = self.iter().filter_map(|(id, space)| Some((space.khugepaged?, id)));
        known.filter(|(its, _)| *its >= number).min()
    }

    /// The entries that map the folio of an anonymous frame, or parts of it (`rmap_walk_anon`): by process, then by page. A
    /// child that is being forked is not included yet; a control that unmaps a folio notices that by the folio's map count.
    pub fn mappings(&self, mm: &Mm, head: Pfn) -> Vec<Mapping> {
        let mut found = Vec::new();
        let Frame::Anon { family, vpn, order } = mm.memory.frames.get(head) else { return found };
        for id in self.families.get(&family).into_iter().flatten() {
            let space = self.get(*id).expect("members live");
            for_each_entry(space, head, vpn, order, |at| found.push(Mapping { space: *id, at }));
        }
        found
    }

    /// The migration entries of a huge page, or of its parts: by process, then by page.
    pub(crate) fn leaving(&self, mm: &Mm, head: Pfn) -> Vec<Mapping> {
        let mut found = Vec::new();
        let Frame::Anon { family, vpn, order } = mm.memory.frames.get(head) else { return found };
        for id in self.families.get(&family).into_iter().flatten() {
            let space = self.get(*id).expect("members live");
            for_each_that(space, head, vpn, order, Pte::leaves, |at| found.push(Mapping { space: *id, at }));
        }
        found
    }

    /// Visits the entries of [`Self::mappings`], each with its address space, to read or change them; returns their number.
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
                // Nearly always the process maps the base page through a table.
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

    /// Visits the entries that map a page of a file, at the places where these families map the file; returns their number.
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

    /// Collects the entries of a base page's family and page number that fit a test, into a list that is reused.
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

    /// The contents of a mapping's entry.
    ///
    /// # Panics
    /// When the process has ended.
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
