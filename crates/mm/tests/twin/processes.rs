//! Address spaces once more, as plainly as it can be said: mappings are a sorted vector, tables are maps by address, and
//! what a process reads is a map by page. It shares nothing with the real ones but names and constants of the kernel.

use std::collections::{BTreeMap, BTreeSet};

use memory::{
    event::Event,
    slab::{Cache, SlabAllocator},
};
use mm::{
    space::{
        address_space::{MMAP_BASE, TASK_PAGES},
        vma::HugeAdvice,
    },
    thp::ThpEnabled,
};
use rules::{
    machine::MachineSpec,
    variant::{MmapAlign, Variant},
    zone::Settings,
};

use crate::{
    arrays::Arrays,
    lru::Lru,
    model::{Model, Wish},
    shrink::{Round, Shrinker, Waiting},
    slabs::Slabs,
};

/// Pages of a huge page, and entries of a table.
pub(crate) const HUGE: u64 = 512;
/// Pages below one entry of a PUD table, and of the root: what a PMD table and a PUD table cover.
const PUD_PAGES: u64 = HUGE * HUGE;
const PGD_PAGES: u64 = HUGE * PUD_PAGES;
/// The lowest page that a mapping gets: `vm.mmap_min_addr`.
const LOWEST: u64 = 16;

/// Everything but the allocator.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) memory: Model,
    pub(crate) lru: Lru,
    pub(crate) slabs: Slabs,
    pub(crate) allocator: SlabAllocator,
    pub(crate) arrays: Arrays,
    pub(crate) processes: BTreeMap<u32, Process>,
    /// Anonymous memory by its first frame.
    pub(crate) folios: BTreeMap<u32, Folio>,
    pub(crate) huge_zero: Option<u32>,
    /// Objects that shrinkers were spared so far, by node.
    pub(crate) put_off: BTreeMap<(Shrinker, usize), u64>,
    /// Huge pages to be split when memory is short, oldest first.
    pub(crate) deferred: Vec<Waiting>,
    pub(crate) deferrals: u64,
    /// The round of each node's kswapd.
    pub(crate) rounds: Vec<Option<Round>>,
    pub(crate) enabled: ThpEnabled,
    ties: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// The slab that it lives in itself.
    object: u32,
    pub(crate) family: u32,
    /// By address.
    pub(crate) vmas: Vec<Vma>,
    pub(crate) root: u32,
    /// Frames of PUD tables by number of the root's entry, of PMD tables by number of the PUD entry.
    pub(crate) puds: BTreeMap<u64, u32>,
    pub(crate) pmds: BTreeMap<u64, PmdTable>,
    /// PMD entries by number of the huge page.
    pub(crate) entries: BTreeMap<u64, Entry>,
    pub(crate) rss: u64,
    pub(crate) uses_huge_zero: bool,
    /// The contents that the process would read, by number of the huge page; absent is zero.
    pub(crate) contents: BTreeMap<u64, Vec<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vma {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) advice: HugeAdvice,
    pub(crate) tie: Option<Tie>,
    /// The slab that it lives in.
    pub(crate) object: u32,
}

impl Vma {
    /// Can it and its upper neighbour be one?
    fn merges_with(self, above: Self) -> bool {
        let ties = match (self.tie, above.tie) {
            (Some(a), Some(b)) => a.number == b.number,
            (Some(tie), None) | (None, Some(tie)) => !tie.inherited,
            (None, None) => true,
        };
        self.end == above.start && ties && self.advice == above.advice
    }
}

/// The `anon_vma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tie {
    number: u32,
    inherited: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct PmdTable {
    pub(crate) frame: u32,
    /// Tables kept for the split of huge pages, the next to be taken first.
    pub(crate) kept: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Huge { frame: u32, zero: bool, writable: bool },
    Table { frame: u32, pages: Vec<Page> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Nothing,
    Zero,
    Frame { pfn: u32, writable: bool },
}

/// The word that a store puts into a page: one half of it. The other half shows whether it came along when the page was
/// copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    pub(crate) value: u32,
    pub(crate) upper: bool,
}

impl Store {
    /// The word of a page after the store: no two pages get the same.
    pub(crate) fn into(self, page: u64, word: u64) -> u64 {
        let shift = if self.upper { 32 } else { 0 };
        let value = (u64::from(self.value) << 20).wrapping_add(page) & u64::from(u32::MAX);
        word & !(u64::from(u32::MAX) << shift) | value << shift
    }
}

/// How often anonymous memory is mapped.
#[derive(Clone, Debug)]
pub(crate) struct Folio {
    pub(crate) by_huge: u32,
    /// By frame.
    pub(crate) by_base: Vec<u32>,
}

impl Folio {
    pub(crate) fn mappings(&self) -> u32 {
        self.by_huge + self.by_base.iter().sum::<u32>()
    }
}

impl Process {
    pub(crate) fn vma_of(&self, page: u64) -> Option<usize> {
        self.vmas.iter().position(|vma| (vma.start..vma.end).contains(&page))
    }

    /// The mapped pages of `range` in order.
    pub(crate) fn overlaps(&self, (start, end): (u64, u64)) -> impl Iterator<Item = &Vma> + use<'_> {
        self.vmas.iter().filter(move |vma| start < end && vma.start < end && start < vma.end)
    }

    pub(crate) fn page(&self, page: u64) -> Page {
        match self.entries.get(&(page / HUGE)) {
            None => Page::Nothing,
            Some(Entry::Huge { zero: true, .. }) => Page::Zero,
            Some(Entry::Huge { frame, writable, .. }) => {
                Page::Frame { pfn: frame + u32::try_from(page % HUGE).unwrap(), writable: *writable }
            }
            Some(Entry::Table { pages, .. }) => pages[usize::try_from(page % HUGE).unwrap()],
        }
    }

    /// The entry of a base page whose table is there.
    pub(crate) fn page_mut(&mut self, page: u64) -> &mut Page {
        match self.entries.get_mut(&(page / HUGE)) {
            Some(Entry::Table { pages, .. }) => &mut pages[usize::try_from(page % HUGE).unwrap()],
            other => panic!("page {page} has no table but {other:?}"),
        }
    }

    pub(crate) fn pmd_table(&mut self, page: u64) -> &mut PmdTable {
        self.pmds.get_mut(&(page / PUD_PAGES)).unwrap()
    }

    /// A table is kept beside the others: it is the next to be taken, and the one before it the last.
    pub(crate) fn keep(&mut self, page: u64, table: u32) {
        let kept = &mut self.pmd_table(page).kept;
        if !kept.is_empty() {
            let before = kept.remove(0);
            kept.push(before);
        }
        kept.insert(0, table);
    }

    pub(crate) fn store(&mut self, page: u64, store: Store) {
        let words = self.contents.entry(page / HUGE).or_insert_with(|| vec![0; usize::try_from(HUGE).unwrap()]);
        let word = &mut words[usize::try_from(page % HUGE).unwrap()];
        *word = store.into(page, *word);
    }

    fn forget(&mut self, (start, end): (u64, u64)) {
        for (number, words) in self.contents.range_mut(start / HUGE..end.div_ceil(HUGE)) {
            for (page, word) in (number * HUGE..).zip(words) {
                if (start..end).contains(&page) {
                    *word = 0;
                }
            }
        }
        self.contents.retain(|_, words| words.iter().any(|word| *word != 0));
    }

    // ---- Mappings.

    /// The highest place for `pages` pages below `MMAP_BASE`.
    fn place(&self, pages: u64) -> Option<u64> {
        let tops = [MMAP_BASE.0].into_iter().chain(self.vmas.iter().map(|vma| vma.start));
        let starts = tops.filter_map(|top| top.checked_sub(pages).filter(|start| *start >= LOWEST));
        starts.filter(|start| self.overlaps((*start, start + pages)).next().is_none()).max()
    }

    fn place_aligned(&self, pages: u64, align: MmapAlign) -> Option<u64> {
        let at_huge = match align {
            MmapAlign::Base => false,
            MmapAlign::LargeAtHuge => pages >= HUGE,
            MmapAlign::MultiplesAtHuge => pages >= HUGE && pages.is_multiple_of(HUGE),
        };
        let roomy = if at_huge { self.place(pages + HUGE) } else { None };
        roomy.map(|start| start / HUGE * HUGE + HUGE).or_else(|| self.place(pages))
    }

    /// Two neighbours at `at` become one if they are alike; where the upper one lived.
    fn join(&mut self, at: u64) -> Option<u32> {
        let above = self.vmas.iter().position(|vma| vma.start == at)?;
        let below = above.checked_sub(1)?;
        let [a, b] = [below, above].map(|n| self.vmas[n]);
        if !a.merges_with(b) {
            return None;
        }
        self.vmas[below] = Vma { end: b.end, tie: a.tie.or(b.tie), ..a };
        Some(self.vmas.remove(above).object)
    }
}

impl World {
    pub(crate) fn new(machine: &MachineSpec, rules: Variant, settings: &Settings) -> Self {
        let memory = Model::new(machine, rules, settings);
        Self {
            lru: Lru::new(memory.cpus()),
            slabs: Slabs::default(),
            allocator: settings.slab_allocator,
            arrays: Arrays::default(),
            memory,
            processes: BTreeMap::new(),
            folios: BTreeMap::new(),
            huge_zero: None,
            put_off: BTreeMap::new(),
            deferred: Vec::new(),
            deferrals: 0,
            rounds: vec![None; machine.nodes.len()],
            enabled: ThpEnabled::Always,
            ties: 0,
        }
    }

    /// Has a step come to its end: this many pages, or somebody was woken?
    pub(crate) fn is_over(&self, looked: u64, most: u64) -> bool {
        looked >= most || self.memory.cut
    }

    pub(crate) fn process(&mut self, id: u32) -> &mut Process {
        self.processes.get_mut(&id).unwrap()
    }

    /// A process without memory; a relative of `parent`, if there is one. False when memory is out.
    pub(crate) fn start(&mut self, cpu: usize, id: u32, parent: Option<u32>) -> bool {
        let used: BTreeSet<u32> = self.processes.values().map(|process| process.family).collect();
        let family = match parent {
            Some(parent) => self.process(parent).family,
            None => (0..4096).find(|family| !used.contains(family)).unwrap(),
        };
        let Some(object) = self.new_object(cpu, Cache::MmStruct) else { return false };
        let Some(root) = self.table(cpu) else {
            self.free_object(cpu, object);
            return false;
        };
        let process = Process {
            object,
            family,
            root,
            vmas: Vec::new(),
            puds: BTreeMap::new(),
            pmds: BTreeMap::new(),
            entries: BTreeMap::new(),
            rss: 0,
            uses_huge_zero: false,
            contents: BTreeMap::new(),
        };
        assert!(self.processes.insert(id, process).is_none());
        true
    }

    pub(crate) fn map(&mut self, cpu: usize, id: u32, pages: u64) -> Option<u64> {
        let align = self.memory.rules.mmap_align;
        let process = self.process(id);
        let start = process.place_aligned(pages, align)?;
        let mut vma = Vma { start, end: start + pages, advice: HugeAdvice::Default, tie: None, object: 0 };
        let above = process.vmas.iter().position(|above| vma.merges_with(*above));
        let above = above.map(|above| process.vmas.remove(above));
        if let Some(above) = above {
            vma = Vma { start, ..above };
        }
        if let Some(below) = process.vmas.iter().position(|below| below.merges_with(vma)) {
            let below = &mut process.vmas[below];
            *below = Vma { end: vma.end, tie: below.tie.or(vma.tie), ..*below };
            if let Some(above) = above {
                self.free_object(cpu, above.object);
            }
            return Some(start);
        }
        if above.is_none() {
            vma.object = self.new_object(cpu, Cache::VmArea)?;
        }
        let process = self.process(id);
        process.vmas.push(vma);
        process.vmas.sort_by_key(|vma| vma.start);
        Some(start)
    }

    /// False where something in the range is not mapped, or when memory is out.
    pub(crate) fn advise(&mut self, cpu: usize, id: u32, range: (u64, u64), advice: HugeAdvice) -> bool {
        let mut at = range.0;
        let mut is_whole = true;
        loop {
            let Some(vma) = self.process(id).overlaps((at, range.1)).next().copied() else { break };
            let part = (vma.start.max(at), vma.end.min(range.1));
            is_whole &= part.0 == at;
            if vma.advice != advice {
                if !self.cut(cpu, id, part.0) || !self.cut(cpu, id, part.1) {
                    return false;
                }
                let process = self.process(id);
                let which = process.vma_of(part.0).unwrap();
                process.vmas[which].advice = advice;
                let left_over = [part.1, part.0].map(|at| process.join(at));
                for object in left_over.into_iter().flatten() {
                    self.free_object(cpu, object);
                }
            }
            at = part.1;
        }
        is_whole && at == range.1
    }

    /// No mapping, and no huge page, reaches across `at`; false when memory is out.
    pub(crate) fn cut(&mut self, cpu: usize, id: u32, at: u64) -> bool {
        let process = self.process(id);
        let Some(which) = process.vma_of(at).filter(|which| process.vmas[*which].start < at) else { return true };
        let Some(object) = self.new_object(cpu, Cache::VmArea) else { return false };
        let process = self.process(id);
        let whole = process.vmas[which];
        process.vmas[which].end = at;
        process.vmas.insert(which + 1, Vma { start: at, object, ..whole });
        if !at.is_multiple_of(HUGE) && matches!(process.entries.get(&(at / HUGE)), Some(Entry::Huge { .. })) {
            self.split_huge_entry(id, at);
        }
        true
    }

    /// Takes out the mappings in a range; where the first of them begins and the last ends, if there are any, and where
    /// they lived. Nothing when memory is out.
    #[expect(clippy::option_option, reason = "no memory, and no mappings")]
    pub(crate) fn detach(
        &mut self,
        cpu: usize,
        id: u32,
        range: (u64, u64),
        objects: &mut Vec<u32>,
    ) -> Option<Option<(u64, u64)>> {
        if !self.cut(cpu, id, range.0) || !self.cut(cpu, id, range.1) {
            return None;
        }
        let process = self.process(id);
        let gone: Vec<Vma> = process.overlaps(range).copied().collect();
        objects.extend(gone.iter().rev().map(|vma| vma.object));
        process.vmas.retain(|vma| vma.end <= range.0 || range.1 <= vma.start);
        process.forget(range);
        Some(gone.first().zip(gone.last()).map(|(first, last)| (first.start, last.end)))
    }

    /// Before the first page of memory is mapped: the tie of a neighbour, or a new one.
    pub(crate) fn tie(&mut self, id: u32, page: u64) {
        let next = self.ties + 1;
        let process = self.process(id);
        let at = process.vma_of(page).unwrap();
        let vma = process.vmas[at];
        if vma.tie.is_some() {
            return;
        }
        let above = process.vmas.get(at + 1).filter(|above| above.start == vma.end);
        let below = at.checked_sub(1).map(|below| &process.vmas[below]).filter(|below| below.end == vma.start);
        let near = [above, below].into_iter().flatten().filter(|near| near.advice == vma.advice);
        let tie = near.filter_map(|near| near.tie).find(|tie| !tie.inherited);
        process.vmas[at].tie = Some(tie.unwrap_or(Tie { number: next, inherited: false }));
        self.ties = next;
    }

    /// The child gets a mapping of its parent's, with a tie of its own.
    pub(crate) fn inherit(&mut self, child: u32, vma: Vma, object: u32) {
        let tie = vma.tie.map(|_| {
            self.ties += 1;
            Tie { number: self.ties, inherited: true }
        });
        self.process(child).vmas.push(Vma { tie, object, ..vma });
    }

    // ---- Tables.

    pub(crate) fn table(&mut self, cpu: usize) -> Option<u32> {
        let node = self.memory.node_of(cpu);
        self.memory.alloc(cpu, Wish::kernel(node))
    }

    /// The tables above the PMD entry of a page; false when memory is out.
    pub(crate) fn upper_tables(&mut self, cpu: usize, id: u32, page: u64) -> bool {
        if !self.process(id).puds.contains_key(&(page / PGD_PAGES)) {
            let Some(frame) = self.table(cpu) else { return false };
            self.process(id).puds.insert(page / PGD_PAGES, frame);
        }
        if !self.process(id).pmds.contains_key(&(page / PUD_PAGES)) {
            let Some(frame) = self.table(cpu) else { return false };
            self.process(id).pmds.insert(page / PUD_PAGES, PmdTable { frame, kept: Vec::new() });
        }
        true
    }

    /// A table for base pages where no huge page is; false when memory is out.
    pub(crate) fn base_table(&mut self, cpu: usize, id: u32, page: u64) -> bool {
        if !self.process(id).entries.contains_key(&(page / HUGE)) {
            let Some(frame) = self.table(cpu) else { return false };
            let pages = vec![Page::Nothing; usize::try_from(HUGE).unwrap()];
            self.process(id).entries.insert(page / HUGE, Entry::Table { frame, pages });
        }
        true
    }

    /// Frees up to `most` of the page tables that cover some of `range` and no mapping, lower levels first, then by
    /// address. True if no such table is left.
    pub(crate) fn free_tables(&mut self, cpu: usize, id: u32, range: (u64, u64), most: usize) -> bool {
        let vmas = self.process(id).vmas.clone();
        let covers_nothing = |start: u64, size: u64| {
            let end = start + size;
            start < range.1 && range.0 < end && vmas.iter().all(|vma| vma.end <= start || end <= vma.start)
        };
        let process = self.process(id);
        // Each table with where it ends and how high it is: that is the order in which a walk leaves them.
        let mut leaving: Vec<(u64, u64, u32)> = Vec::new();
        for (number, entry) in &process.entries {
            let Entry::Table { frame, .. } = entry else { continue };
            leaving.push(((number + 1) * HUGE, HUGE, *frame));
        }
        leaving.extend(process.pmds.iter().map(|(number, table)| ((number + 1) * PUD_PAGES, PUD_PAGES, table.frame)));
        leaving.extend(process.puds.iter().map(|(number, frame)| ((number + 1) * PGD_PAGES, PGD_PAGES, *frame)));
        leaving.retain(|(end, size, _)| covers_nothing(end - size, *size));
        leaving.sort_unstable();
        let is_all = leaving.len() <= most;
        leaving.truncate(most);
        for (end, size, frame) in leaving {
            let number = (end - size) / size;
            let process = self.process(id);
            match size {
                HUGE => drop(process.entries.remove(&number)),
                PUD_PAGES => drop(process.pmds.remove(&number)),
                _ => drop(process.puds.remove(&number)),
            }
            self.memory.free(cpu, frame);
        }
        is_all
    }

    // ---- Huge pages.

    pub(crate) fn may_be_huge(&self, id: u32, page: u64) -> bool {
        let process = &self.processes[&id];
        let vma = process.vmas[process.vma_of(page).unwrap()];
        let wanted = vma.advice != HugeAdvice::NoHugePage
            && (self.enabled == ThpEnabled::Always
                || (self.enabled == ThpEnabled::Madvise && vma.advice == HugeAdvice::HugePage));
        let start = page / HUGE * HUGE;
        wanted && 1 << self.memory.pageblock == HUGE && vma.start <= start && start + HUGE <= vma.end
    }

    /// A huge entry becomes a table of base entries.
    pub(crate) fn split_huge_entry(&mut self, id: u32, page: u64) {
        let whole = self.split_entry(id, page);
        if let Some(head) = whole.filter(|_| self.memory.rules.thp_splits_at_once) {
            self.fall_apart(head);
        }
    }

    /// Splits the entry, and nothing else; returns the huge page, if it is not the zero page.
    pub(crate) fn split_entry(&mut self, id: u32, page: u64) -> Option<u32> {
        let process = self.process(id);
        let table = process.pmd_table(page).kept.remove(0);
        let Some(Entry::Huge { frame, zero, writable }) = process.entries.remove(&(page / HUGE)) else {
            panic!("page {page} is not huge");
        };
        let base = |n| if zero { Page::Zero } else { Page::Frame { pfn: frame + n, writable } };
        process.entries.insert(page / HUGE, Entry::Table { frame: table, pages: (0..512).map(base).collect() });
        self.memory.count(Event::ThpSplitPmd, 1);
        if !zero {
            let folio = self.folios.get_mut(&frame).unwrap();
            folio.by_huge -= 1;
            for count in &mut folio.by_base {
                *count += 1;
            }
        }
        (!zero).then_some(frame)
    }

    // ---- Anonymous memory.

    /// Memory that was just allocated is mapped for the first time.
    pub(crate) fn map_new(&mut self, cpu: usize, head: u32) {
        let order = self.memory.taken[&head].order;
        let (by_huge, by_base) = if order == 0 { (0, vec![1]) } else { (1, vec![0; 1 << order]) };
        assert!(self.folios.insert(head, Folio { by_huge, by_base }).is_none());
        self.lru_add(cpu, head);
    }

    /// The first frame of the memory that holds a frame.
    pub(crate) fn head_of(&self, pfn: u32) -> u32 {
        let (head, folio) = self.folios.range(..=pfn).next_back().unwrap();
        assert!(((pfn - head) as usize) < folio.by_base.len(), "frame {pfn} is no anonymous memory");
        *head
    }

    pub(crate) fn map_again(&mut self, pfn: u32) {
        let head = self.head_of(pfn);
        self.folios.get_mut(&head).unwrap().by_base[(pfn - head) as usize] += 1;
    }

    /// A base entry goes; true if it was the last of all.
    pub(crate) fn unmap_base(&mut self, pfn: u32) -> bool {
        let head = self.head_of(pfn);
        let folio = self.folios.get_mut(&head).unwrap();
        let count = &mut folio.by_base[(pfn - head) as usize];
        *count -= 1;
        let is_unmapped = *count == 0 && folio.by_huge == 0;
        if folio.by_base.len() > 1 && is_unmapped {
            self.defer_split(head);
        }
        self.forget_unmapped(head)
    }

    /// A huge entry goes; true if it was the last of all.
    pub(crate) fn unmap_huge(&mut self, head: u32) -> bool {
        let folio = self.folios.get_mut(&head).unwrap();
        folio.by_huge -= 1;
        if folio.by_huge == 0 && folio.by_base.contains(&0) && folio.mappings() > 0 {
            self.defer_split(head);
        }
        self.forget_unmapped(head)
    }

    fn defer_split(&mut self, head: u32) {
        if self.deferred.iter().all(|waiting| waiting.head != head) {
            self.wait_for_split(head);
            self.memory.count(Event::ThpDeferredSplitPage, 1);
        }
    }

    fn forget_unmapped(&mut self, head: u32) -> bool {
        let is_last = self.folios[&head].mappings() == 0;
        if is_last {
            self.folios.remove(&head);
            self.deferred.retain(|waiting| waiting.head != head);
        }
        is_last
    }

    /// A process that maps nothing ends.
    pub(crate) fn end(&mut self, cpu: usize, id: u32) {
        let process = self.processes.remove(&id).unwrap();
        assert!(process.rss == 0 && process.puds.is_empty() && process.pmds.is_empty() && process.entries.is_empty());
        self.memory.free(cpu, process.root);
        self.free_object(cpu, process.object);
    }

    /// All of a process's addresses.
    pub(crate) const EVERYTHING: (u64, u64) = (0, TASK_PAGES);
}
