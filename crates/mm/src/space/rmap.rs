//! Linux: mm/rmap.c, mm/huge_memory.c (v6.1).
//! Differs: mappings of a folio are counted here and found by `spaces.rs`. The counts of a huge page that is mapped by base
//! entries are in a table of their own, made at its first PMD split.

use std::collections::BTreeMap;

use memory::{
    cx::Cx,
    event::Event,
    frame::{FamilyId, Frame, FrameFlag, FrameTable},
    lru_kind::LruKind,
    primitive,
};
use units::{Order, Pfn, Vpn};

use crate::{Mm, folio::pte::Pte};

const BASE_PER_HUGE: usize = Order::HUGE.frames() as usize;

/// Families are numbered in 12 bits.
const FAMILIES: u16 = 1 << 12;

/// A map count of a frame from which on the real count is in `Rmap::many`.
const MANY: u8 = FrameTable::MAP_COUNT_MAX;

/// The mappings of anonymous folios.
#[derive(Clone, Debug, Default)]
pub struct Rmap {
    /// Processes of each family, related by fork.
    families: BTreeMap<FamilyId, u32>,
    /// Map counts that do not fit into the frame.
    many: BTreeMap<Pfn, u32>,
    /// Huge pages of which some process maps base pages, by head frame.
    by_base: BTreeMap<Pfn, BaseMapped>,
    /// Huge pages to split when memory is short, oldest first (`deferred_split_queue`).
    deferred: BTreeMap<u64, Pfn>,
    deferrals: u64,
}

/// The base entries that map a huge page.
#[derive(Clone, Debug)]
struct BaseMapped {
    /// Number of base entries that map each of its frames.
    of_frame: Box<[u16; BASE_PER_HUGE]>,
    /// Sum of `of_frame`.
    total: u32,
    /// The folio's place in the queue of deferred splits.
    deferred: Option<u64>,
}

impl BaseMapped {
    fn none() -> Self {
        Self { of_frame: Box::new([0; BASE_PER_HUGE]), total: 0, deferred: None }
    }
}

/// Facts about pins that the folios themselves do not tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pins {
    /// Whether any page was ever pinned.
    pub(crate) has_any: bool,
    /// Grows when a mapped page loses its pin, and when a pinned page is mapped again.
    pub(crate) lost: u64,
}

/// A folio that has lost its last mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmapped {
    /// The folio's first frame.
    pub head: Pfn,
    /// The folio's size.
    pub order: Order,
}

impl Rmap {
    /// A new family of one process; none if all numbers are taken.
    pub fn new_family(&mut self) -> Option<FamilyId> {
        let family = (0..FAMILIES).map(FamilyId).find(|family| !self.families.contains_key(family))?;
        self.families.insert(family, 1);
        Some(family)
    }

    /// Adds a process to its parent's family.
    pub fn join_family(&mut self, family: FamilyId) {
        *self.families.get_mut(&family).expect("the parent lives") += 1;
    }

    /// Removes a process that ends from its family.
    pub fn leave_family(&mut self, family: FamilyId) {
        let members = self.families.get_mut(&family).expect("the process lives");
        *members -= 1;
        if *members == 0 {
            self.families.remove(&family);
        }
    }

    /// Huge pages that wait for a split, oldest first.
    pub fn deferred_splits(&self) -> impl ExactSizeIterator<Item = Pfn> + '_ {
        self.deferred.values().copied()
    }

    /// Huge pages up to a place in the queue, with their places.
    pub(crate) fn deferred_until(&self, until: u64) -> impl DoubleEndedIterator<Item = (u64, Pfn)> + '_ {
        self.deferred.range(..=until).map(|(place, head)| (*place, *head))
    }

    /// Map counts that do not fit into frames: for checks.
    pub(crate) fn raw_many(&self) -> &BTreeMap<Pfn, u32> {
        &self.many
    }

    /// Counts of base entries of huge pages, and their sums: for checks.
    pub(crate) fn raw_by_base(&self) -> impl Iterator<Item = (Pfn, &[u16; BASE_PER_HUGE], u32)> {
        self.by_base.iter().map(|(head, mapped)| (*head, &*mapped.of_frame, mapped.total))
    }

    /// Drops the queue, for tests that damage a state on purpose.
    #[cfg(test)]
    pub(crate) fn forget_deferred(&mut self) {
        self.deferred.clear();
    }

    /// Takes the numbers of base entries that map each frame of a huge page that is being split.
    pub(crate) fn take_base_counts(&mut self, head: Pfn) -> Box<[u16; BASE_PER_HUGE]> {
        let mapped = self.by_base.remove(&head).expect("its huge entries were split");
        if let Some(place) = mapped.deferred {
            self.deferred.remove(&place);
        }
        mapped.of_frame
    }

    /// Requeues a huge page that could not be split behind all others.
    pub(crate) fn requeue_deferred(&mut self, head: Pfn) {
        let Some(mapped) = self.by_base.get_mut(&head) else { return };
        let Some(place) = mapped.deferred else { return };
        self.deferrals += 1;
        mapped.deferred = Some(self.deferrals);
        self.deferred.remove(&place);
        self.deferred.insert(self.deferrals, head);
    }

    fn defer_split(&mut self, cx: &mut Cx, head: Pfn) {
        let mapped = self.by_base.get_mut(&head).expect("only a huge page with base entries is mapped in part");
        if mapped.deferred.is_none() {
            self.deferrals += 1;
            mapped.deferred = Some(self.deferrals);
            self.deferred.insert(self.deferrals, head);
            cx.count(Event::ThpDeferredSplitPage, 1);
        }
    }

    /// Forgets a huge page without mappings.
    pub(crate) fn forget(&mut self, head: Pfn) {
        if let Some(place) = self.by_base.remove(&head).and_then(|mapped| mapped.deferred) {
            self.deferred.remove(&place);
        }
    }
}

impl Mm {
    /// Maps a newly allocated folio for the first time (`page_add_new_anon_rmap`), and puts it into the CPU's batch
    /// (`lru_cache_add_inactive_or_unevictable`).
    #[inline]
    pub(crate) fn map_new_folio(&mut self, cx: &mut Cx, head: Pfn, family: FamilyId, vpn: Vpn, order: Order) {
        self.memory.frames.set_new_anon(
            head,
            (family, vpn),
            order,
            LruKind::of_new_anon(self.memory.variant().lru_new_anon),
        );
        self.swap.forget(head);
        primitive::count_mappings(cx, 1);
        self.lru_add(cx, head, order);
    }

    /// Counts one more base entry of a frame (`page_try_dup_anon_rmap`); the caller charges for it, a run at a time.
    pub(crate) fn map_base_again(&mut self, pfn: Pfn) {
        if self.memory.frames.is_file(pfn) {
            return self.map_file_page(pfn);
        }
        let (head, order) = self.anon_folio(pfn);
        if order == Order::BASE {
            self.set_count(head, self.count(head) + 1);
        } else {
            let mapped = self.rmap.by_base.get_mut(&head).expect("it has a base entry already");
            mapped.of_frame[(pfn.0 - head.0) as usize] += 1;
            mapped.total += 1;
        }
    }

    /// Counts one more entry of a file's page (`page_add_file_rmap`); the caller charges for it.
    pub(crate) fn map_file_page(&mut self, head: Pfn) {
        let count = self.count(head);
        if count == 0 {
            let zone = self.zone_position(head);
            self.cache.count_mapped(zone, true);
        }
        self.set_count(head, count + 1);
    }

    /// Counts off one entry of a file's page.
    pub(crate) fn unmap_file_page(&mut self, head: Pfn) {
        let count = self.count(head) - 1;
        if count == 0 {
            let zone = self.zone_position(head);
            self.cache.count_mapped(zone, false);
        }
        self.set_count(head, count);
    }

    /// Counts off a cleared entry of a file's page; its accessed and dirty bits go to the page (`zap_pte_range`).
    pub(crate) fn unmap_file_entry(&mut self, cx: &mut Cx, was: Pte) {
        let head = was.pfn();
        if was.is_dirty() {
            self.set_page_dirty(cx, head);
        }
        if was.is_accessed() {
            self.mark_page_accessed(cx, head);
        }
        self.unmap_file_page(head);
    }

    /// Whether an anonymous folio has a long-term reference beside its mappings.
    #[inline]
    pub fn is_pinned(&self, head: Pfn) -> bool {
        self.memory.frames.is_anon(head) && self.memory.frames.has(head, FrameFlag::Pinned)
    }

    /// Pins the anonymous folio that holds this frame, or unpins it.
    pub(crate) fn set_pinned(&mut self, pfn: Pfn, is_pinned: bool) {
        self.pins.has_any |= is_pinned;
        self.pins.lost += u64::from(!is_pinned);
        let head = self.folio_head(pfn);
        self.memory.frames.mark(head, FrameFlag::Pinned, is_pinned);
    }

    /// Does a huge folio have no references but its mappings' and the caller's (`can_split_huge_page`)? Up to 4.4 pins belong to
    /// its base pages and survive a split.
    pub(crate) fn can_split(&self, head: Pfn) -> bool {
        self.memory.variant().thp_splits_at_once || !self.is_pinned(head)
    }

    /// Number of references to a folio: its mappings, a batch or an isolation, the swap cache, and a pin, which counts once
    /// (`folio_ref_count`).
    pub(crate) fn folio_references(&self, head: Pfn) -> u32 {
        let is_held = !self.memory.frames.has(head, FrameFlag::OnLru);
        let is_cached = self.swap.slot_of(head).is_some();
        self.folio_mappings(head) + u32::from(is_held) + u32::from(is_cached) + u32::from(self.is_pinned(head))
    }

    /// Number of mappings of a base page, anonymous or of a file.
    pub(crate) fn mappings_of(&self, head: Pfn) -> u32 {
        self.count(head)
    }

    /// Sets the number of entries that map a base page after its migration.
    pub(crate) fn map_migrated(&mut self, head: Pfn, entries: u32) {
        if self.memory.frames.is_file(head) {
            for _ in 0..entries {
                self.map_file_page(head);
            }
            return;
        }
        self.set_count(head, entries);
    }

    /// Counts one more huge entry of a huge page.
    pub(crate) fn map_huge_again(&mut self, cx: &mut Cx, head: Pfn) {
        primitive::count_mappings(cx, 1);
        self.set_count(head, self.count(head) + 1);
    }

    /// Unmaps a huge page whose entries are all migration entries.
    pub(crate) fn unmap_huge_folio(&mut self, head: Pfn) {
        self.set_count(head, 0);
        self.rmap.forget(head);
    }

    /// Maps an unmapped huge page by `by_huge` huge entries, and by one base entry for each of `parts`. A page that is mapped in
    /// part is queued for a split.
    pub(crate) fn map_huge_folio(&mut self, cx: &mut Cx, head: Pfn, by_huge: u32, parts: &[u32]) {
        self.set_count(head, by_huge);
        if parts.is_empty() {
            return;
        }
        let mut mapped = BaseMapped::none();
        for part in parts {
            mapped.of_frame[*part as usize] += 1;
        }
        mapped.total = u32::try_from(parts.len()).expect("fewer than 2^32 entries");
        let is_in_part = by_huge == 0 && mapped.of_frame.contains(&0);
        self.rmap.by_base.insert(head, mapped);
        if is_in_part {
            self.rmap.defer_split(cx, head);
        }
    }

    /// Replaces a huge entry by 512 base entries.
    pub(crate) fn map_huge_by_base(&mut self, head: Pfn) {
        self.set_count(head, self.count(head) - 1);
        let mapped = self.rmap.by_base.entry(head).or_insert_with(BaseMapped::none);
        for count in mapped.of_frame.iter_mut() {
            *count += 1;
        }
        mapped.total += Order::HUGE.frames();
    }

    /// Counts off a base entry (`page_remove_rmap`); the caller charges for it, a run at a time. Returns the folio if this was
    /// its last mapping.
    #[inline]
    pub(crate) fn unmap_base(&mut self, cx: &mut Cx, pfn: Pfn) -> Option<Unmapped> {
        if self.memory.frames.unmap_only(pfn) {
            return self.unless_swapped(cx, Unmapped { head: pfn, order: Order::BASE });
        }
        if self.memory.frames.is_base_anon(pfn) {
            self.set_count(pfn, self.count(pfn) - 1);
            return None;
        }
        if self.memory.frames.is_file(pfn) {
            self.unmap_file_page(pfn);
            return None;
        }
        self.unmap_base_of_huge(cx, pfn)
    }

    /// Counts off all `entries` base entries of a base page, which its slot in the swap cache keeps.
    pub(crate) fn unmap_for_swap(&mut self, head: Pfn, entries: u32) {
        assert_eq!(self.count(head), entries, "frame {head} is mapped by others too");
        self.set_count(head, 0);
    }

    fn unmap_base_of_huge(&mut self, cx: &mut Cx, pfn: Pfn) -> Option<Unmapped> {
        let (head, order) = self.anon_folio(pfn);
        let by_huge = self.count(head);
        let mapped = self.rmap.by_base.get_mut(&head).expect("a base entry was counted");
        let of_frame = &mut mapped.of_frame[(pfn.0 - head.0) as usize];
        *of_frame -= 1;
        mapped.total -= 1;
        if *of_frame == 0 && by_huge == 0 {
            // The kernel queues it here even if this was its last entry, and takes it off the queue when it is freed.
            let is_last = mapped.total == 0;
            self.rmap.defer_split(cx, head);
            if is_last {
                self.rmap.forget(head);
                return Some(Unmapped { head, order });
            }
        }
        None
    }

    /// Counts off a huge entry; returns the folio if this was its last mapping.
    pub(crate) fn unmap_huge(&mut self, cx: &mut Cx, head: Pfn) -> Option<Unmapped> {
        primitive::count_mappings(cx, 1);
        let by_huge = self.count(head) - 1;
        self.set_count(head, by_huge);
        if by_huge > 0 {
            return None;
        }
        let Some(mapped) = self.rmap.by_base.get(&head).filter(|mapped| mapped.total > 0) else {
            self.rmap.forget(head);
            return Some(Unmapped { head, order: Order::HUGE });
        };
        if mapped.of_frame.contains(&0) {
            self.rmap.defer_split(cx, head);
        }
        None
    }

    /// Number of entries that map any part of the folio that holds `pfn`.
    pub fn folio_mappings(&self, pfn: Pfn) -> u32 {
        let (head, _) = self.anon_folio(pfn);
        self.count(head) + self.rmap.by_base.get(&head).map_or(0, |mapped| mapped.total)
    }

    /// Number of entries that map this frame.
    pub fn frame_mappings(&self, pfn: Pfn) -> u32 {
        let (head, _) = self.anon_folio(pfn);
        let by_base = self.rmap.by_base.get(&head);
        self.count(head) + by_base.map_or(0, |mapped| u32::from(mapped.of_frame[(pfn.0 - head.0) as usize]))
    }

    /// The first frame of the anonymous folio that holds `pfn`.
    pub(crate) fn folio_head(&self, pfn: Pfn) -> Pfn {
        self.anon_folio(pfn).0
    }

    /// The anonymous folio that holds `pfn`.
    fn anon_folio(&self, pfn: Pfn) -> (Pfn, Order) {
        if let Frame::Anon { order, .. } = self.memory.frames.get(pfn) {
            return (pfn, order);
        }
        let head = pfn.align_down(Order::HUGE);
        match self.memory.frames.get(head) {
            Frame::Anon { order: Order::HUGE, .. } => (head, Order::HUGE),
            other => panic!("frame {pfn} is mapped as anonymous memory, and {head} is {other:?}"),
        }
    }

    /// Sets the map count of a frame of a huge page that was split.
    pub(crate) fn set_base_mappings(&mut self, pfn: Pfn, count: u32) {
        self.set_count(pfn, count);
    }

    fn count(&self, head: Pfn) -> u32 {
        match self.memory.frames.map_count(head) {
            MANY => self.rmap.many[&head],
            count => u32::from(count),
        }
    }

    fn set_count(&mut self, head: Pfn, count: u32) {
        let small = u8::try_from(count).unwrap_or(MANY).min(MANY);
        if small == MANY {
            self.rmap.many.insert(head, count);
        } else if self.memory.frames.map_count(head) == MANY {
            self.rmap.many.remove(&head);
        }
        self.memory.frames.set_map_count(head, small);
    }
}
