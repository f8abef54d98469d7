//! Linux: mm/khugepaged.c (v6.1).
//! Differs: anonymous memory only; the entries of a page table stay where they are until the huge page takes their place, as
//! whoever could look holds the mmap lock or finds the pages isolated; the ranges of an address space are found in its VMAs,
//! not registered one by one; memory that swapping in needs is not reclaimed for.
//!
//! One cursor goes through all processes that may have huge pages, a few base pages per wake-up. What looks as if it were in
//! use becomes a huge page: `mechanisms.md` D3 and D4 by number.

mod collapse;

use units::{NodeId, Picos, Vpn};

use self::collapse::Collapse;
use crate::{
    Mm, SpaceId, Spaces,
    address_space::{AddressSpace, EVERYTHING},
    cost::Cx,
    frame::{FrameFlag, Holdings},
    page_table::{Pmd, TableId},
    primitive,
    pte::Pte,
    step::{Step, Wait},
    thp::{ThpEnabled, huge_range},
    vma::PageRange,
};

const HUGE_PAGES: u64 = AddressSpace::HUGE_PAGES;

/// `/sys/kernel/mm/transparent_hugepage/khugepaged`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KhugepagedSettings {
    /// Base pages to look at per wake-up (`pages_to_scan`).
    pub pages_to_scan: u64,
    /// Sleep between wake-ups (`scan_sleep_millisecs`).
    pub scan_sleep: Picos,
    /// Sleep after an allocation failed (`alloc_sleep_millisecs`).
    pub alloc_sleep: Picos,
    /// Base pages of a huge page that need not be mapped (`max_ptes_none`).
    pub max_ptes_none: u32,
    /// Base pages of a huge page that may be on a swap device, to be read (`max_ptes_swap`, 4.8).
    pub max_ptes_swap: u32,
    /// Base pages of a huge page that others may map too (`max_ptes_shared`, 5.8).
    pub max_ptes_shared: u32,
    /// Does it reclaim and compact for a huge page (`defrag`)?
    pub defrag: bool,
}

impl Default for KhugepagedSettings {
    /// `mechanisms.md` D2.
    fn default() -> Self {
        Self {
            pages_to_scan: 4096,
            scan_sleep: Picos::from_secs(10),
            alloc_sleep: Picos::from_secs(60),
            max_ptes_none: 511,
            max_ptes_swap: 64,
            max_ptes_shared: 256,
            defrag: true,
        }
    }
}

/// How khugepaged needs the mmap lock of an address space for its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsLock {
    /// For read, or it goes on to the next address space (`mmap_read_trylock`).
    TryRead(SpaceId),
    /// For read.
    Read(SpaceId),
    /// For write.
    Write(SpaceId),
}

/// The thread that makes huge pages of base pages.
#[derive(Clone, Debug, Default)]
pub struct Khugepaged {
    /// Its settings.
    pub settings: KhugepagedSettings,
    /// Huge pages that it has made (`pages_collapsed`).
    pub pages_collapsed: u64,
    /// Times that it has passed every process (`full_scans`).
    pub full_scans: u64,
    /// How many processes were registered so far: the next one's number.
    registered: u64,
    /// The process that it looks at, by number, and where (`khugepaged_scan`).
    cursor: Option<(u64, Vpn)>,
    state: State,
    /// Woken, and nobody has told its CPU yet.
    is_woken: bool,
}

/// One wake-up.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    /// Base pages looked at (`progress`).
    pages: u64,
    /// Times that it began a round over all processes (`pass_through_head`).
    rounds: u32,
    /// An allocation has failed already.
    has_failed: bool,
}

#[derive(Clone, Debug, Default)]
enum State {
    /// Nothing is registered: until somebody is.
    #[default]
    Asleep,
    /// Between two wake-ups.
    Waiting,
    /// It looks at processes.
    Scanning(Scan),
    /// It makes a huge page.
    Collapsing(Scan, Box<Collapse>),
    /// An allocation failed.
    WaitingForMemory(Scan),
}

/// What looking at one range came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It should be a huge page, on this node.
    Suitable(NodeId),
    Unsuitable,
}

/// What is known of the pages of one range so far.
#[derive(Debug, Default)]
struct Survey {
    none: u32,
    shared: u32,
    swapped: u32,
    is_writable: bool,
    referenced: u32,
    /// Pages by node.
    nodes: Vec<(NodeId, u32)>,
}

impl Survey {
    /// Looks at one entry; false when the range cannot become a huge page (`hpage_collapse_scan_pmd`).
    fn look(&mut self, mm: &Mm, pte: Pte) -> bool {
        let settings = &mm.khugepaged.settings;
        if pte.swap_slot().is_some() {
            self.swapped += 1;
            return mm.variant().khugepaged_swaps_in && self.swapped <= settings.max_ptes_swap;
        }
        if !pte.is_present() || pte.is_zero_page() {
            self.none += 1;
            return self.none <= settings.max_ptes_none && pte.is_none_or_zero();
        }
        let pfn = pte.pfn();
        self.is_writable |= pte.is_writable();
        if mm.frame_mappings(pfn) > 1 {
            self.shared += 1;
            if !mm.variant().khugepaged_shared || self.shared > settings.max_ptes_shared {
                return false;
            }
        }
        self.count_node(mm.node_of(pfn));
        let head = mm.folio_head(pfn);
        self.referenced += u32::from(pte.is_accessed() || mm.frames.has(head, FrameFlag::Referenced));
        // A folio in a batch has a reference that no mapping explains.
        mm.frames.has(head, FrameFlag::OnLru) && !mm.frames.has(head, FrameFlag::Locked)
    }

    fn count_node(&mut self, node: NodeId) {
        match self.nodes.iter_mut().find(|(known, _)| *known == node) {
            Some((_, count)) => *count += 1,
            None => self.nodes.push((node, 1)),
        }
    }

    /// After the last entry (`hpage_collapse_find_target_node`): the node of most pages, the first of those that have as many.
    fn verdict(&self) -> Found {
        // What is read from a device for it should be worth it.
        let is_cold = self.swapped > 0 && u64::from(self.referenced) < HUGE_PAGES / 2;
        if !self.is_writable || self.referenced == 0 || is_cold {
            return Found::Unsuitable;
        }
        let most = self.nodes.iter().map(|(_, count)| *count).max();
        let first = self.nodes.iter().filter(|(_, count)| Some(*count) == most).map(|(node, _)| *node).min();
        first.map_or(Found::Unsuitable, Found::Suitable)
    }
}

impl Khugepaged {
    /// Does it sleep, for good or for a while?
    pub fn is_asleep(&self) -> bool {
        matches!(self.state, State::Asleep | State::Waiting | State::WaitingForMemory(_))
    }

    /// What its next step needs to hold; it keeps it until a step needs something else.
    pub fn needs(&self, spaces: &Spaces) -> Option<NeedsLock> {
        match &self.state {
            State::Asleep | State::Waiting | State::WaitingForMemory(_) => None,
            // The wake-up is over.
            State::Scanning(scan) if scan.pages >= self.settings.pages_to_scan => None,
            State::Scanning(_) => {
                let (number, _) = self.cursor?;
                spaces.registered(number).map(NeedsLock::TryRead)
            }
            State::Collapsing(_, collapse) => collapse.needs(),
        }
    }

    /// The blocks that it holds between two steps.
    pub fn holdings(&self) -> Holdings {
        match &self.state {
            State::Collapsing(_, collapse) => collapse.holdings(),
            _ => Holdings::default(),
        }
    }
}

impl Mm {
    /// A process has a mapping that may have huge pages (`khugepaged_enter_vma`).
    pub(crate) fn khugepaged_enter(&mut self, space: &mut AddressSpace) {
        if space.khugepaged.is_some() || self.thp.enabled == ThpEnabled::Never {
            return;
        }
        space.khugepaged = Some(self.khugepaged.registered);
        self.khugepaged.registered += 1;
        if let State::Asleep = self.khugepaged.state {
            self.khugepaged.state = State::Waiting;
            self.khugepaged.is_woken = true;
        }
    }

    /// Has it been woken since this was last asked?
    pub fn take_woken_khugepaged(&mut self) -> bool {
        std::mem::take(&mut self.khugepaged.is_woken)
    }

    /// Has it been?
    #[inline]
    pub(crate) fn has_woken_khugepaged(&self) -> bool {
        self.khugepaged.is_woken
    }

    /// Goes on until others may run, or goes to sleep. `has_lock`: whether it holds what [`Khugepaged::needs`] says; it may be
    /// without only where that was a try.
    pub fn step_khugepaged(&mut self, spaces: &mut Spaces, cx: &mut Cx, has_lock: bool) -> Step<()> {
        match std::mem::take(&mut self.khugepaged.state) {
            State::Asleep => Step::Block(Wait::Queue),
            State::Waiting => {
                // `lru_add_drain_all`: what CPUs collect is looked at too.
                self.lru_add_drain(cx);
                self.khugepaged.state = State::Scanning(Scan::default());
                Step::More
            }
            State::WaitingForMemory(scan) => {
                self.khugepaged.state = State::Scanning(scan);
                Step::More
            }
            State::Scanning(scan) => self.scan(spaces, cx, scan, has_lock),
            State::Collapsing(scan, mut collapse) => match collapse.step(self, spaces, cx) {
                Step::More => {
                    self.khugepaged.state = State::Collapsing(scan, collapse);
                    Step::More
                }
                Step::Block(wait) => {
                    self.khugepaged.state = State::Collapsing(scan, collapse);
                    Step::Block(wait)
                }
                Step::Done(ended) => self.after_collapse(cx, scan, ended),
            },
        }
    }

    /// One range of one process, or on to the next process (`khugepaged_scan_mm_slot`).
    fn scan(&mut self, spaces: &mut Spaces, cx: &mut Cx, mut scan: Scan, has_lock: bool) -> Step<()> {
        if scan.pages >= self.khugepaged.settings.pages_to_scan {
            return self.end_wake_up(cx, spaces);
        }
        let Some((number, from)) = self.khugepaged.cursor else {
            scan.rounds += 1;
            let first = spaces.registered_from(0).map(|(number, _)| number);
            let Some(number) = first.filter(|_| scan.rounds < 2) else { return self.end_wake_up(cx, spaces) };
            self.khugepaged.cursor = Some((number, Vpn(0)));
            self.khugepaged.state = State::Scanning(scan);
            return Step::More;
        };
        scan.pages += 1;
        let id = spaces.registered(number).filter(|_| has_lock);
        let Some(id) = id else {
            // It has ended, or its lock was not to be had.
            self.next_process(spaces, number);
            self.khugepaged.state = State::Scanning(scan);
            return Step::More;
        };
        let space = spaces.get(id).expect("it is registered");
        match self.next_range(space, from, &mut scan) {
            None => {
                self.next_process(spaces, number);
                self.khugepaged.state = State::Scanning(scan);
            }
            Some(range) => {
                self.khugepaged.cursor = Some((number, range.end));
                scan.pages += HUGE_PAGES;
                self.khugepaged.state = match self.survey(cx, space, range) {
                    Found::Unsuitable => State::Scanning(scan),
                    Found::Suitable(node) => State::Collapsing(scan, Box::new(Collapse::new(id, range, node))),
                };
            }
        }
        Step::More
    }

    /// The next range of a process that could be one huge page; each VMA that is passed costs a page.
    fn next_range(&self, space: &AddressSpace, from: Vpn, scan: &mut Scan) -> Option<PageRange> {
        for vma in space.vmas.overlapping(PageRange { start: from, end: EVERYTHING.end }) {
            let at = from.max(vma.start);
            let range = huge_range(if at == at.huge_start() { at } else { at.huge_start().plus(HUGE_PAGES) });
            if vma.anon.is_some() && vma.range().covers(range) && self.is_thp_eligible(vma, range.start) {
                return Some(range);
            }
            scan.pages += 1;
        }
        None
    }

    fn next_process(&mut self, spaces: &Spaces, number: u64) {
        let next = spaces.registered_from(number + 1).map(|(number, _)| (number, Vpn(0)));
        self.khugepaged.full_scans += u64::from(next.is_none());
        self.khugepaged.cursor = next;
    }

    /// 2: should this range be a huge page?
    fn survey(&self, cx: &mut Cx, space: &AddressSpace, range: PageRange) -> Found {
        let Pmd::Table(table) = space.tables.pmd_of(range.start) else { return Found::Unsuitable };
        self.survey_table(cx, space, table)
    }

    fn survey_table(&self, cx: &mut Cx, space: &AddressSpace, table: TableId) -> Found {
        let mut survey = Survey::default();
        for (n, pte) in (1..).zip(space.tables.ptes(table)) {
            if !survey.look(self, *pte) {
                primitive::scan_ptes(cx, n);
                return Found::Unsuitable;
            }
        }
        primitive::scan_ptes(cx, HUGE_PAGES);
        survey.verdict()
    }

    fn after_collapse(&mut self, cx: &mut Cx, mut scan: Scan, ended: collapse::Ended) -> Step<()> {
        match ended {
            collapse::Ended::Collapsed => self.khugepaged.pages_collapsed += 1,
            collapse::Ended::Abandoned => {}
            collapse::Ended::NoMemory => {
                // The first time it waits; the second time this wake-up is over.
                if scan.has_failed {
                    self.khugepaged.state = State::Waiting;
                    return Step::Block(Wait::Until(cx.now() + self.khugepaged.settings.scan_sleep));
                }
                scan.has_failed = true;
                self.khugepaged.state = State::WaitingForMemory(scan);
                return Step::Block(Wait::Until(cx.now() + self.khugepaged.settings.alloc_sleep));
            }
        }
        self.khugepaged.state = State::Scanning(scan);
        Step::More
    }

    /// `khugepaged_wait_work`.
    fn end_wake_up(&mut self, cx: &mut Cx, spaces: &Spaces) -> Step<()> {
        let has_work = spaces.registered_from(0).is_some() && self.thp.enabled != ThpEnabled::Never;
        if has_work {
            self.khugepaged.state = State::Waiting;
            return Step::Block(Wait::Until(cx.now() + self.khugepaged.settings.scan_sleep));
        }
        self.khugepaged.state = State::Asleep;
        Step::Block(Wait::Queue)
    }

    /// What khugepaged holds goes back: the end of a run.
    pub fn abort_khugepaged(&mut self, spaces: &mut Spaces, cx: &mut Cx) {
        if let State::Collapsing(_, mut collapse) = std::mem::take(&mut self.khugepaged.state) {
            collapse.abort(self, spaces, cx);
        }
    }
}

#[cfg(test)]
mod tests;
