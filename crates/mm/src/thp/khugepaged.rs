//! Linux: mm/khugepaged.c (v6.1), mm/huge_memory.c (v3.9 to v4.7), and a series that was posted for v4.1-rc2.
//! Differs: anonymous memory only; the entries of a page table stay until the huge page replaces them, as all who could look hold
//! the mmap lock or find the pages isolated; the ranges of an address space are found in its VMAs, not registered one by one; no
//! memory is reclaimed to read pages from swap; no builds without NUMA, which before 6.0 allocated ahead.
//!
//! One cursor goes through all processes that may have huge pages, a few base pages per wake-up, and collapses ranges that seem
//! to be in use. `avail.rs`, `check_nodes.rs` and `node_thread.rs` are the series: faults leave the allocation of huge pages to
//! khugepaged.

mod avail;
mod check_nodes;
mod collapse;
mod node_alloc;
mod node_thread;
mod survey;

use memory::{
    cx::Cx,
    fact::Fact,
    frame::{Held, Holdings, SpaceId},
    news::{Daemon, News},
    primitive,
    step::{Step, TICK, Wait},
    tally::{Place, Test},
};
use units::{NodeId, Order, Pfn, Picos, Time, Vpn};

pub use self::{avail::ThpAvail, node_thread::ThpThread};
use self::{check_nodes::CheckNodes, collapse::Collapse, survey::Found};
use crate::{
    Mm, Spaces,
    space::{
        address_space::{AddressSpace, EVERYTHING},
        vma::PageRange,
    },
    thp::{ThpEnabled, huge_range},
};
pub use rules::variant::{CollapseTarget, ThpRequests};

const HUGE_PAGES: u64 = AddressSpace::HUGE_PAGES;

/// `/sys/kernel/mm/transparent_hugepage/khugepaged`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KhugepagedSettings {
    /// Base pages to scan per wake-up (`pages_to_scan`).
    pub pages_to_scan: u64,
    /// Sleep between wake-ups (`scan_sleep_millisecs`).
    pub scan_sleep: Picos,
    /// Sleep after an allocation failed (`alloc_sleep_millisecs`).
    pub alloc_sleep: Picos,
    /// Base pages of a huge page that need not be mapped (`max_ptes_none`).
    pub max_ptes_none: u32,
    /// Base pages of a huge page that may be on a swap device, from which they are read (`max_ptes_swap`, 4.8).
    pub max_ptes_swap: u32,
    /// Base pages of a huge page that other processes may map too (`max_ptes_shared`, 5.8).
    pub max_ptes_shared: u32,
    /// Whether khugepaged reclaims and compacts for a huge page (`defrag`).
    pub defrag: bool,
}

impl Default for KhugepagedSettings {
    /// khugepaged_init() and the variables above it in mm/khugepaged.c (v6.1).
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

/// How khugepaged's next step needs the mmap lock of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsLock {
    /// For read; if it is taken, khugepaged goes on to the next address space (`mmap_read_trylock`).
    TryRead(SpaceId),
    /// For read.
    Read(SpaceId),
    /// For write.
    Write(SpaceId),
}

/// The thread that makes huge pages of base pages.
#[derive(Clone, Debug, Default)]
pub struct Khugepaged {
    /// The settings of khugepaged.
    pub settings: KhugepagedSettings,
    /// Huge pages made (`pages_collapsed`).
    pub pages_collapsed: u64,
    /// Rounds over all processes (`full_scans`).
    pub full_scans: u64,
    /// Number of processes registered so far: the next process gets this number.
    registered: u64,
    /// The number of the process being scanned, and the page (`khugepaged_scan`).
    cursor: Option<(u64, Vpn)>,
    state: State,
    /// A fault wants a huge page (`khugepaged_thp_requested`): khugepaged does not sleep.
    is_requested: bool,
    /// When its sleep would end. If it spares itself the scan, it scans processes no sooner than that, whatever wakes it.
    due: Time,
    /// A huge page for the next collapse on its node (`hpage`).
    held: Option<Pfn>,
    /// The node of the last collapsed range (`last_khugepaged_target_node`).
    last_target: Option<NodeId>,
}

/// The progress of one wake-up.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    /// Base pages scanned (`progress`).
    pages: u64,
    /// Number of rounds over all processes that have begun (`pass_through_head`).
    rounds: u32,
    /// An allocation has failed in this wake-up.
    has_failed: bool,
}

#[derive(Clone, Debug, Default)]
enum State {
    /// khugepaged sleeps until a process is registered.
    #[default]
    Asleep,
    /// Between two wake-ups.
    Waiting,
    /// khugepaged scans processes.
    Scanning(Scan),
    /// khugepaged collapses a range.
    Collapsing(Scan, Box<Collapse>),
    /// khugepaged checks whether nodes have huge pages again.
    Checking(Box<CheckNodes>),
    /// An allocation failed; the wake-up goes on after a sleep.
    WaitingForMemory(Scan),
    /// An allocation failed, and the wake-up is over. khugepaged sleeps for the failure first, and then as after any wake-up.
    OutOfMemory,
}

impl Khugepaged {
    /// Whether khugepaged sleeps.
    pub fn is_asleep(&self) -> bool {
        matches!(self.state, State::Asleep | State::Waiting | State::WaitingForMemory(_) | State::OutOfMemory)
    }

    /// The blocks that khugepaged holds between two steps.
    pub fn holdings(&self) -> Holdings {
        let mut holdings = match &self.state {
            State::Collapsing(_, collapse) => collapse.holdings(),
            State::Checking(check) => check.holdings(),
            _ => Holdings::default(),
        };
        holdings.isolated.extend(self.held.map(|pfn| Held { pfn, order: Order::HUGE }));
        holdings
    }

    /// The huge page kept for the next collapse: for checks.
    pub(crate) fn raw_held(&self) -> Option<Pfn> {
        self.held
    }
}

impl Mm {
    /// Wakes khugepaged for a fault that wants a huge page, or keeps it from sleeping (`thp_avail_clear`).
    fn request_of_khugepaged(&mut self) {
        self.khugepaged.is_requested = true;
        if self.khugepaged.is_asleep() {
            self.memory.tell(News::Woken(Daemon::Khugepaged, NodeId(0)));
        }
        if let State::Asleep = self.khugepaged.state {
            self.khugepaged.state = State::Waiting;
        }
    }

    /// The lock that khugepaged's next step needs; the thread keeps it until a step needs something else.
    pub fn khugepaged_needs(&self, spaces: &Spaces) -> Option<NeedsLock> {
        let daemon = &self.khugepaged;
        match &daemon.state {
            State::Asleep | State::Waiting | State::Checking(_) | State::WaitingForMemory(_) | State::OutOfMemory => {
                None
            }
            // The wake-up is over.
            State::Scanning(scan) if scan.pages >= daemon.settings.pages_to_scan => None,
            State::Scanning(_) => {
                let (number, _) = daemon.cursor?;
                let lock =
                    if self.memory.variant().khugepaged_tries_lock { NeedsLock::TryRead } else { NeedsLock::Read };
                spaces.registered(number).map(lock)
            }
            State::Collapsing(_, collapse) => collapse.needs(),
        }
    }

    /// Registers a process with a mapping that may have huge pages (`khugepaged_enter_vma`).
    pub(crate) fn khugepaged_enter(&mut self, space: &mut AddressSpace) {
        if space.khugepaged.is_some() || self.thp.enabled == ThpEnabled::Never {
            return;
        }
        space.khugepaged = Some(self.khugepaged.registered);
        self.khugepaged.registered += 1;
        if let State::Asleep = self.khugepaged.state {
            self.khugepaged.state = State::Waiting;
            self.memory.tell(News::Woken(Daemon::Khugepaged, NodeId(0)));
        }
    }

    /// Takes a step, or sleeps. `has_lock`: whether it holds the lock of [`Mm::khugepaged_needs`], which it may lack only if that
    /// is a try.
    pub fn step_khugepaged(&mut self, spaces: &mut Spaces, cx: &mut Cx, has_lock: bool) -> Step<()> {
        match std::mem::take(&mut self.khugepaged.state) {
            State::Asleep => Step::Block(Wait::Queue),
            State::Waiting => self.begin_wake_up(cx),
            State::Checking(mut check) => match check.step(self, spaces, cx) {
                Step::Done(found) => self.after_check(cx, &check, found),
                step => {
                    self.khugepaged.state = State::Checking(check);
                    step.map(|_| ())
                }
            },
            State::OutOfMemory => self.wait_work(cx),
            State::WaitingForMemory(scan) => {
                self.khugepaged.state = State::Scanning(scan);
                Step::More
            }
            State::Scanning(scan) => self.scan(spaces, cx, scan, has_lock),
            State::Collapsing(scan, mut collapse) => match collapse.step(self, spaces, cx) {
                Step::Done(ended) => {
                    cx.fact(|| Fact::Collapse { node: collapse.node(), result: ended.told() });
                    self.after_collapse(cx, scan, collapse.node(), ended)
                }
                step => {
                    self.khugepaged.state = State::Collapsing(scan, collapse);
                    step.map(|_| ())
                }
            },
        }
    }

    /// `khugepaged_do_scan`, up to its loop.
    fn begin_wake_up(&mut self, cx: &mut Cx) -> Step<()> {
        if self.memory.variant().khugepaged_drains_lru {
            // Folios in the CPUs' LRU batches go to the lists first, so that they can be isolated.
            self.lru_add_drain_all(cx);
        }
        let was_requested = std::mem::take(&mut self.khugepaged.is_requested);
        let spares = self.memory.variant().thp_requests == ThpRequests::KhugepagedUnscanned;
        let scans = !(was_requested && spares && cx.now() < self.khugepaged.due);
        self.khugepaged.state = if self.memory.variant().khugepaged_checks_nodes {
            State::Checking(Box::new(CheckNodes::new(scans)))
        } else if scans {
            State::Scanning(Scan::default())
        } else {
            return self.sleep_until(State::Waiting, self.khugepaged.due);
        };
        Step::More
    }

    /// Goes on after the check of nodes. If no node has huge pages (`found`), nothing is scanned.
    fn after_check(&mut self, cx: &mut Cx, check: &CheckNodes, found: bool) -> Step<()> {
        if check.scans() && found {
            self.khugepaged.state = State::Scanning(Scan::default());
            return Step::More;
        }
        self.give_back_held(cx);
        if check.scans() {
            self.sleep(cx, State::Waiting, self.alloc_sleep())
        } else {
            self.sleep_until(State::Waiting, self.khugepaged.due)
        }
    }

    /// Sleeps before going on with `then`, unless a fault has asked for a huge page meanwhile.
    fn sleep(&mut self, cx: &Cx, then: State, span: Picos) -> Step<()> {
        self.sleep_until(then, cx.now() + span)
    }

    /// Time to sleep after a failed allocation: at least until the next tick, at which a timer of 0 fires
    /// (`khugepaged_alloc_sleep`, `schedule_timeout`).
    fn alloc_sleep(&self) -> Picos {
        match self.khugepaged.settings.alloc_sleep {
            Picos(0) => TICK,
            span => span,
        }
    }

    /// Sleeps until the next wake-up. If the time to sleep is 0 khugepaged goes on like any task that has a CPU, and pays for
    /// another round of its loop (`khugepaged_wait_work`, mm/huge_memory.c, v3.9; mm/khugepaged.c, v6.1).
    fn wait_work(&mut self, cx: &mut Cx) -> Step<()> {
        let span = self.khugepaged.settings.scan_sleep;
        if span > Picos(0) {
            return self.sleep(cx, State::Waiting, span);
        }
        primitive::khugepaged_round(cx);
        self.khugepaged.state = State::Waiting;
        self.khugepaged.due = cx.now();
        Step::Block(Wait::Yield)
    }

    fn sleep_until(&mut self, then: State, until: Time) -> Step<()> {
        self.khugepaged.state = then;
        self.khugepaged.due = until;
        if self.khugepaged.is_requested { Step::More } else { Step::Block(Wait::Until(until)) }
    }

    fn give_back_held(&mut self, cx: &mut Cx) {
        if let Some(frame) = self.khugepaged.held.take() {
            self.memory.free(cx, frame, Order::HUGE);
        }
    }

    /// Scans one range of a process, or goes on to the next process (`khugepaged_scan_mm_slot`).
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
        if self.memory.variant().khugepaged_tries_lock {
            cx.test(Test::KhugepagedLock, Place::Machine, id.is_some());
        }
        let Some(id) = id else {
            // The process has ended, or its lock was taken.
            self.next_process(spaces, number);
            self.khugepaged.state = State::Scanning(scan);
            return Step::More;
        };
        let space = spaces.get(id).expect("it is registered");
        match self.next_range(cx, space, from, &mut scan) {
            None => {
                self.next_process(spaces, number);
                self.khugepaged.state = State::Scanning(scan);
            }
            Some(range) => {
                self.khugepaged.cursor = Some((number, range.end));
                scan.pages += HUGE_PAGES;
                self.khugepaged.state = match self.survey(cx, space, range) {
                    Found::Unsuitable => State::Scanning(scan),
                    Found::Suitable(node) => {
                        let held = self.khugepaged.held.take();
                        State::Collapsing(scan, Box::new(Collapse::new(id, range, node, held)))
                    }
                };
            }
        }
        Step::More
    }

    /// The next range of a process that could be one huge page; each VMA that is passed counts as a page.
    fn next_range(&self, cx: &mut Cx, space: &AddressSpace, from: Vpn, scan: &mut Scan) -> Option<PageRange> {
        for vma in space.vmas.overlapping(PageRange { start: from, end: EVERYTHING.end }) {
            let at = from.max(vma.start);
            let range = huge_range(if at == at.huge_start() { at } else { at.huge_start().plus(HUGE_PAGES) });
            let is_eligible = vma.anon.is_some() && vma.range().covers(range) && self.is_thp_eligible(vma, range.start);
            if cx.test(Test::KhugepagedVma, Place::Machine, is_eligible) {
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

    fn after_collapse(&mut self, cx: &mut Cx, mut scan: Scan, node: NodeId, ended: collapse::Ended) -> Step<()> {
        match ended {
            collapse::Ended::Collapsed => self.khugepaged.pages_collapsed += 1,
            collapse::Ended::Abandoned(left) => self.khugepaged.held = left,
            collapse::Ended::NoMemory => {
                let alloc_sleep = self.alloc_sleep();
                if self.memory.variant().khugepaged_checks_nodes {
                    self.note_without_huge(node);
                    return self.sleep(cx, State::Waiting, alloc_sleep);
                }
                if self.memory.variant().khugepaged_keeps_page {
                    return self.sleep(cx, State::OutOfMemory, alloc_sleep);
                }
                // The first failure of a wake-up waits; the second one ends it.
                if scan.has_failed {
                    return self.wait_work(cx);
                }
                scan.has_failed = true;
                return self.sleep(cx, State::WaitingForMemory(scan), alloc_sleep);
            }
        }
        self.khugepaged.state = State::Scanning(scan);
        Step::More
    }

    /// `khugepaged_wait_work`.
    fn end_wake_up(&mut self, cx: &mut Cx, spaces: &Spaces) -> Step<()> {
        self.give_back_held(cx);
        let has_work = self.khugepaged.is_requested || spaces.registered_from(0).is_some();
        if has_work && self.thp.enabled != ThpEnabled::Never {
            return self.wait_work(cx);
        }
        self.khugepaged.state = State::Asleep;
        Step::Block(Wait::Queue)
    }
}

#[cfg(test)]
mod tests;
