//! Linux: none; check_mm() in kernel/fork.c counts what a dead process has left.
//! Differs: walks every page table of every process, and reads raw words, without help from the code that it checks.

use memory::frame::{Frame, FrameFlag, FrameTable};
use units::{Order, Pfn, Vpn};

use super::{Broken, broken, ensure, swap::Named};
use crate::{
    Mm,
    folio::pte::{Pte, SwapSlot},
    space::address_space::{AddressSpace, TASK_PAGES},
};

// The bits of an entry, defined a second time.
const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const HUGE: u64 = 1 << 7;
const ZERO: u64 = 1 << 9;
const SWAP: u64 = 1 << 10;
const MIGRATION: u64 = 1 << 59;
const PFN_SHIFT: u32 = 12;

const HUGE_PAGES: u32 = 512;

/// Sums over the page tables of all processes.
pub(super) struct Spaces<'a> {
    mm: &'a Mm,
    /// Base entries that map each frame.
    by_base: Vec<u32>,
    /// Huge entries that map each frame as their first frame.
    by_huge: Vec<u32>,
    /// First frame and number of frames of each entry through which user code may store.
    writable: Vec<(Pfn, u32)>,
    /// Frames that were met as page tables.
    tables: Vec<bool>,
    zero_users: u32,
    /// Number of entries that name each swap slot.
    named: Named,
}

/// Sums over the page tables of one address space.
#[derive(Default)]
struct Sums {
    tables: usize,
    resident: u64,
    swapped: u64,
    zero: bool,
}

impl<'a> Spaces<'a> {
    pub(super) fn new(mm: &'a Mm) -> Self {
        let zeros = |()| vec![0; mm.memory.frames.len() as usize];
        let tables = vec![false; mm.memory.frames.len() as usize];
        let [by_base, by_huge] = [(); 2].map(zeros);
        Self { mm, by_base, by_huge, writable: Vec::new(), tables, zero_users: 0, named: Named::new(mm) }
    }

    /// Walks the page tables of one process: every entry and its frame agree, and each table is linked once, except `held`
    /// tables that a control holds.
    pub(super) fn walk(&mut self, space: &AddressSpace, held: usize) -> Result<(), Broken> {
        let mut sums = Sums::default();
        self.table(space, space.tables.raw_root(), 3, 0, &mut sums)?;
        let (rss, resident) = (space.rss_pages(), sums.resident);
        ensure(rss == resident, None, || format!("a process maps {resident} pages, but it counts {rss}"))?;
        let (counted, swapped) = (space.swapped_pages(), sums.swapped);
        ensure(counted == swapped, None, || format!("a process has {swapped} pages in swap, but it counts {counted}"))?;
        let (linked, len) = (sums.tables, space.tables.raw_len());
        ensure(linked + held == len, None, || format!("a process has {len} tables: {linked} in place, {held} held"))?;
        ensure(space.uses_huge_zero || !sums.zero, None, || {
            "the huge zero page is mapped, but not counted".to_owned()
        })?;
        self.zero_users += u32::from(space.uses_huge_zero);
        let mut free_from = 0;
        for vma in space.vmas.iter() {
            let is_apart = vma.start.0 >= free_from && vma.pages > 0 && vma.end().0 <= TASK_PAGES;
            ensure(is_apart, None, || format!("{vma:?} begins below page {free_from}"))?;
            free_from = vma.end().0;
        }
        Ok(())
    }

    /// Walks a table of `level`, 0 for base pages, whose first entry is for page `at`.
    fn table(
        &mut self,
        space: &AddressSpace,
        index: usize,
        level: u32,
        at: u64,
        sums: &mut Sums,
    ) -> Result<(), Broken> {
        let (frame, entries, deposits) = space.tables.raw(index);
        self.own_table(frame, sums)?;
        let mut huge = 0;
        for (n, entry) in (0_u64..).zip(entries).filter(|(_, entry)| **entry != Pte::NONE) {
            let (word, vpn) = (entry.raw(), at + (n << (level * 9)));
            if level == 0 && word & (PRESENT | SWAP) == SWAP {
                sums.swapped += 1;
                let slot = SwapSlot(frame_of(word).0);
                self.named.add(self.mm, slot, (space.family, Vpn(vpn)))?;
                continue;
            }
            if level < 2 && word & (PRESENT | MIGRATION) == MIGRATION {
                self.moving_entry(space, word, vpn, level == 1)?;
                huge += usize::from(level == 1);
                sums.resident += if level == 1 { u64::from(HUGE_PAGES) } else { 1 };
                continue;
            }
            ensure(word & PRESENT != 0, Some(frame), || format!("entry {n} of a table is {word:#x}"))?;
            if level == 0 {
                ensure(word & HUGE == 0, Some(frame), || format!("a base entry is {word:#x}"))?;
                self.base_entry(space, word, vpn, sums)?;
            } else if word & HUGE != 0 {
                ensure(level == 1, Some(frame), || format!("an entry of level {level} is {word:#x}"))?;
                huge += 1;
                self.huge_entry(space, word, vpn, sums)?;
            } else {
                self.table(space, frame_of(word).0 as usize, level - 1, vpn, sums)?;
            }
        }
        let kept = deposits.len();
        ensure(kept == huge, Some(frame), || format!("{kept} tables are kept for {huge} huge pages"))?;
        for deposit in deposits {
            let (frame, entries, _) = space.tables.raw(deposit);
            self.own_table(frame, sums)?;
            let is_empty = entries.iter().all(|entry| *entry == Pte::NONE);
            ensure(is_empty, Some(frame), || "a table that is kept has entries".to_owned())?;
        }
        Ok(())
    }

    fn own_table(&mut self, frame: Pfn, sums: &mut Sums) -> Result<(), Broken> {
        self.exists(frame)?;
        let is = self.mm.memory.frames.get(frame);
        ensure(is == Frame::PageTable, Some(frame), || format!("a page table, but {is:?}"))?;
        let seen = std::mem::replace(&mut self.tables[frame.0 as usize], true);
        sums.tables += 1;
        ensure(!seen, Some(frame), || "a page table in two places".to_owned())
    }

    fn base_entry(&mut self, space: &AddressSpace, word: u64, vpn: u64, sums: &mut Sums) -> Result<(), Broken> {
        if word & ZERO != 0 {
            return ensure(word & WRITABLE == 0, None, || format!("page {vpn}: the zero page can be written"));
        }
        let pfn = frame_of(word);
        self.exists(pfn)?;
        if self.mm.memory.frames.is_file(pfn) {
            self.is_page_of_file(space, pfn, vpn)?;
            self.by_base[pfn.0 as usize] += 1;
            sums.resident += 1;
            return Ok(());
        }
        let is_base = matches!(self.mm.memory.frames.get(pfn), Frame::Anon { order: Order::BASE, .. });
        let head = if is_base { pfn } else { Pfn(pfn.0 & !(HUGE_PAGES - 1)) };
        let order = if is_base { Order::BASE } else { Order::HUGE };
        self.is_folio(space, head, order, vpn.wrapping_sub(u64::from(pfn.0 - head.0)))?;
        self.by_base[pfn.0 as usize] += 1;
        if word & WRITABLE != 0 {
            self.writable.push((pfn, 1));
        }
        sums.resident += 1;
        Ok(())
    }

    /// Checks a migration entry: its page is locked and unmapped.
    fn moving_entry(&self, space: &AddressSpace, word: u64, vpn: u64, is_huge: bool) -> Result<(), Broken> {
        let pfn = frame_of(word);
        self.exists(pfn)?;
        ensure(is_huge == (word & HUGE != 0), Some(pfn), || format!("page {vpn} leaves it by {word:#x}"))?;
        let frames = &self.mm.memory.frames;
        let is_base = matches!(frames.get(pfn), Frame::Anon { order: Order::BASE, .. });
        let mut head = pfn;
        if frames.is_file(pfn) {
            self.is_page_of_file(space, pfn, vpn)?;
        } else if is_base && !is_huge {
            self.is_folio(space, pfn, Order::BASE, vpn)?;
        } else {
            // A huge page may have lost its huge entry while it moves, but no huge entry leads into its middle.
            head = if is_huge { pfn } else { Pfn(pfn.0 & !(HUGE_PAGES - 1)) };
            self.is_folio(space, head, Order::HUGE, vpn.wrapping_sub(u64::from(pfn.0 - head.0)))?;
        }
        let waits = frames.has(head, FrameFlag::Locked) && !frames.has(head, FrameFlag::OnLru);
        let count = state_count(frames, head);
        ensure(waits && count == Some(0), Some(head), || {
            format!("page {vpn} leaves it, but it is mapped {count:?} times")
        })
    }

    fn huge_entry(&mut self, space: &AddressSpace, word: u64, vpn: u64, sums: &mut Sums) -> Result<(), Broken> {
        let head = frame_of(word);
        self.exists(head)?;
        if word & ZERO != 0 {
            sums.zero = true;
            let is = self.mm.memory.frames.get(head);
            let holds = is == Frame::ZeroHuge && self.mm.huge_zero.frame() == Some(head) && word & WRITABLE == 0;
            return ensure(holds, Some(head), || format!("mapped as the huge zero page by {word:#x}, but {is:?}"));
        }
        self.is_folio(space, head, Order::HUGE, vpn)?;
        self.by_huge[head.0 as usize] += 1;
        if word & WRITABLE != 0 {
            self.writable.push((head, HUGE_PAGES));
        }
        sums.resident += u64::from(HUGE_PAGES);
        Ok(())
    }

    fn exists(&self, pfn: Pfn) -> Result<(), Broken> {
        ensure(pfn.0 < self.mm.memory.frames.len(), None, || format!("an entry leads to frame {pfn}, which is none"))
    }

    fn is_folio(&self, space: &AddressSpace, head: Pfn, order: Order, at: u64) -> Result<(), Broken> {
        let is = self.mm.memory.frames.get(head);
        let fits = |vpn: u64| vpn == at;
        let holds =
            matches!(is, Frame::Anon { family, vpn, order: o } if family == space.family && fits(vpn.0) && o == order);
        ensure(holds, Some(head), || format!("mapped at page {at} by {:?} with {order:?}, but {is:?}", space.family))
    }

    /// Checks that a page of a file is mapped where its VMA says. (A removed VMA may have mappings left.)
    fn is_page_of_file(&self, space: &AddressSpace, pfn: Pfn, at: u64) -> Result<(), Broken> {
        let Some(vma) = space.vmas.find(Vpn(at)) else { return Ok(()) };
        let wanted = vma.file.map(|map| (map.inode, map.index(Vpn(at))));
        let is = self.mm.cache.place_of(&self.mm.memory.frames, pfn);
        ensure(is.is_some() && is == wanted, Some(pfn), || {
            format!("mapped at page {at} as {wanted:?}, but it is {is:?}")
        })
    }

    /// Checks the sums after every process was walked.
    pub(super) fn agree(&self) -> Result<(), Broken> {
        self.exclusive_writers()?;
        self.named.agree(self.mm)?;
        self.side_tables()?;
        let (users, counted) = (self.zero_users, self.mm.huge_zero.raw_users());
        ensure(users == counted, None, || format!("{users} processes use the huge zero page, not {counted}"))
    }

    /// Whether a frame is a page table of a process.
    pub(super) fn has_table(&self, pfn: Pfn) -> bool {
        self.tables[pfn.0 as usize]
    }

    /// Checks that a writable entry is the only one that maps its frame.
    fn exclusive_writers(&self) -> Result<(), Broken> {
        for (first, count) in &self.writable {
            let head = Pfn(first.0 & !(HUGE_PAGES - 1));
            let huge = self.by_huge[head.0 as usize];
            for pfn in (first.0..first.0 + count).map(Pfn) {
                let mappings = huge + self.by_base[pfn.0 as usize];
                ensure(mappings == 1, Some(pfn), || format!("it can be written, but has {mappings} entries"))?;
                let slot = self.mm.swap.slot_of(pfn).filter(|slot| self.mm.swap.count(*slot) > 0);
                ensure(slot.is_none(), Some(pfn), || format!("it can be written, but others name {slot:?}"))?;
            }
        }
        Ok(())
    }

    /// Checks that map counts kept outside of frames are about frames that need them.
    fn side_tables(&self) -> Result<(), Broken> {
        let rmap = &self.mm.rmap;
        for (head, count) in rmap.raw_many() {
            let held = state_count(&self.mm.memory.frames, *head);
            let holds = held == Some(FrameTable::MAP_COUNT_MAX.into()) && *count >= FrameTable::MAP_COUNT_MAX.into();
            ensure(holds, Some(*head), || {
                format!("counted aside as mapped {count} times, but its own count is {held:?}")
            })?;
        }
        let mut partly = Vec::new();
        for (head, counts, total) in rmap.raw_by_base() {
            let is = self.mm.memory.frames.get(head);
            let is_huge = matches!(is, Frame::Anon { order: Order::HUGE, .. });
            ensure(is_huge, Some(head), || format!("base entries are counted, but {is:?}"))?;
            let found = &self.by_base[head.0 as usize..][..HUGE_PAGES as usize];
            let same = found.iter().zip(counts).all(|(found, count)| *found == u32::from(*count));
            ensure(same, Some(head), || "its base entries are not as counted".to_owned())?;
            let sum: u32 = found.iter().sum();
            ensure(sum == total, Some(head), || format!("{sum} base entries, but {total} are counted"))?;
            if sum > 0 && self.by_huge[head.0 as usize] == 0 && counts.contains(&0) {
                partly.push(head);
            }
        }
        let mut deferred: Vec<Pfn> = rmap.deferred_splits().collect();
        deferred.sort_unstable();
        ensure(deferred == partly, None, || format!("{deferred:?} wait for a split, but {partly:?} are mapped in part"))
    }

    /// Compares a folio's map counts with the entries that were met; returns whether there are any.
    pub(super) fn maps_folio(&self, head: Pfn, order: Order) -> Result<bool, Broken> {
        let by_base = &self.by_base[head.0 as usize..][..order.frames() as usize];
        let own = if order == Order::BASE { by_base[0] } else { self.by_huge[head.0 as usize] };
        let small = state_count(&self.mm.memory.frames, head).unwrap_or(0);
        let counted =
            if small == FrameTable::MAP_COUNT_MAX.into() { self.mm.rmap.raw_many().get(&head) } else { Some(&small) };
        ensure(counted == Some(&own), Some(head), || format!("{own} entries, but {counted:?} are counted"))?;
        let in_part = order > Order::BASE && by_base.iter().any(|count| *count > 0);
        if in_part && !self.mm.rmap.raw_by_base().any(|(other, ..)| other == head) {
            broken(Some(head), || "it has base entries, but none are counted".to_owned())?;
        }
        Ok(own > 0 || in_part)
    }
}

/// The map count in a frame's own word: two flags of a folio.
fn state_count(frames: &FrameTable, pfn: Pfn) -> Option<u32> {
    let is_folio = matches!(frames.get(pfn), Frame::Anon { .. } | Frame::File { .. });
    is_folio.then(|| u32::try_from(frames.raw_state(pfn) >> 14 & 3).expect("two bits"))
}

fn frame_of(word: u64) -> Pfn {
    Pfn(u32::try_from(word >> PFN_SHIFT & 0xffff_ffff).expect("half a word"))
}

#[cfg(test)]
mod tests;
