//! Everything at once: tasks that fault huge pages, fork, give up parts and end, kswapd, kcompactd and khugepaged, the OOM
//! killer; and a device, moves and allocations that fail. What a process wrote is what it finds.

use memory::{
    backing::{Discard, HostSpec},
    cx::Cx,
    frame::{ControlId, SpaceId},
    news::Daemon,
    step::Step,
};
use mm::{
    compact::kcompactd::CompactMemory,
    fault::Access,
    guest::reporting::ReportingSpec,
    space::{
        fork::Fork,
        unmap::Unmap,
        vma::{HugeAdvice, PageRange},
    },
    thp::khugepaged::{KhugepagedSettings, NeedsLock},
};
use rules::gfp::AllocRequest;
use units::{CpuId, NodeId, Order, Picos, Time};

use crate::{
    chance::Chance,
    machine::{COMPACT, Fate, KCOMPACTD, KHUGEPAGED, Machine, Operation, REPORTER, Task, goes_on, until},
};

/// Pages of each process: three huge pages at least are whole.
const PAGES: u64 = 4 * 512;
/// Tasks at a time, and processes.
const TASKS: usize = 4;
const PROCESSES: usize = 5;
/// Blocks that those have at most who cannot wait for memory.
const ATOMIC_MOST: usize = 24;
/// Number of steps between two comparisons of pages' contents.
const CONTENTS_EVERY: u64 = 61;

impl Machine {
    /// Goes on for `steps` steps; then every process ends.
    pub(crate) fn everything(&mut self, seed: u64, steps: u64) {
        let mut chance = Chance(seed + 1);
        self.check_every = 19;
        self.mm.khugepaged.settings = KhugepagedSettings {
            scan_sleep: Picos::from_micros(200),
            alloc_sleep: Picos::from_micros(500),
            ..KhugepagedSettings::default()
        };
        let host_page = [Order::HUGE, Order::BASE][usize::from(seed.is_multiple_of(3))];
        self.mm.memory.attach_host(HostSpec { page: host_page, discard: Discard::DontNeed });
        let order = Order([0, 3, 5, 2][usize::try_from(seed % 4).unwrap()]);
        self.mm.register_reporting(ReportingSpec { order, delay: Picos::from_micros(300) }, self.now);
        self.mm.fail_reports([0, 5][usize::from(seed.is_multiple_of(5))]);
        self.seed_mistake();
        let end = self.steps + steps;
        let mut tasks: Vec<Task> = Vec::new();
        let mut id = 0;
        while self.steps < end || !self.memory.is_empty() {
            let is_over = self.steps >= end;
            if self.memory.len() < 2 && !is_over {
                // If no process can start, the present ones go on, and make room.
                self.try_start(PAGES);
            }
            id += 1;
            let idle = |space: &SpaceId| tasks.iter().all(|task| task.space != *space) && self.may_change(*space);
            let idle: Vec<SpaceId> = self.memory.keys().copied().filter(idle).collect();
            if let Some(dead) = idle.iter().copied().find(|space| is_over || self.killed.contains(space)) {
                tasks.push(self.exit(id, dead));
            } else if !idle.is_empty() && tasks.len() < TASKS {
                let space = idle[usize::try_from(chance.below(idle.len() as u64)).unwrap()];
                tasks.extend(self.deed(id, space, &mut chance));
            }
            if self.compact.is_none() && chance.below(1000) == 0 {
                self.compact = Some(CompactMemory::default());
            }
            if chance.below(20) == 0 {
                self.interrupt(&mut chance);
            }
            self.fails_alloc = (chance.below(50) == 0).then(|| u32::try_from(chance.below(3)).unwrap());
            self.turn_of_all(&mut tasks, &mut chance);
        }
        self.come_to_rest();
        self.report_all(order);
        self.check(&tasks);
        self.check_host();
    }

    /// Notes something that no event says.
    pub(crate) fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_insert(0) += 1;
    }

    /// kswapd has come to the end of a pass: those go on who wait for that.
    pub(crate) fn wake_after_pass(&mut self, tasks: &mut [Task]) {
        if !self.mm.memory.take_passed().is_empty() {
            for task in tasks.iter_mut().filter(|task| task.waits_for_pass) {
                self.reach(if task.sleeps_until > self.now {
                    "a stall ends with a pass"
                } else {
                    "a pass is too late"
                });
                (task.waits_for_pass, task.sleeps_until) = (false, self.now.min(task.sleeps_until));
            }
        }
    }

    /// Takes a block as an interrupt does, which cannot wait, or gives one back.
    fn interrupt(&mut self, chance: &mut Chance) {
        let Self { mm, prices, counters, atomic, .. } = self;
        let mut cx = Cx::new(CpuId(1), self.now, prices, counters);
        if chance.below(2) == 0 || atomic.len() == ATOMIC_MOST {
            if let Some((block, order)) = atomic.pop_first() {
                mm.memory.free(&mut cx, block, order);
            }
        } else {
            let order = Order(u8::try_from(chance.below(3)).unwrap());
            let is_boosted = mm.memory.zones()[0].boost > 0;
            let got = mm.memory.alloc(&mut cx, &AllocRequest::gfp_atomic(NodeId(0)).of_order(order));
            atomic.extend(got.map(|block| (block, order)));
            if is_boosted {
                self.reach(if got.is_ok() { "who cannot wait is served under a boost" } else { "or is not" });
            }
        }
    }

    /// The next operation of a process.
    fn deed(&mut self, id: u32, space: SpaceId, chance: &mut Chance) -> Option<Task> {
        let range = self.memory[&space].0;
        let page = range.start.plus(chance.below(range.pages()));
        match chance.below(80) {
            0 if self.memory.len() < PROCESSES => Some(self.task(id, space, Operation::Fork(Fork::new()))),
            1 if self.memory.len() > 2 && chance.below(4) == 0 => Some(self.exit(id, space)),
            2 | 3 => {
                let pages = (1 + chance.below(600)).min(range.end.0 - page.0);
                let part = PageRange::new(page, pages);
                // The words are gone from here on, whoever looks.
                self.memory.get_mut(&space).unwrap().1.retain(|at, _| *at < part.start || *at >= part.end);
                Some(self.task(id, space, Operation::Discard(Unmap::discard(part))))
            }
            4 => {
                let mut cx = Cx::new(CpuId(0), self.now, &self.prices, &mut self.counters);
                let space = self.spaces.get_mut(space).unwrap();
                space.madvise(&mut self.mm, &mut cx, range, HugeAdvice::HugePage).unwrap();
                None
            }
            n if n < 50 => Some(self.access(id, space, page, Access::Write)),
            _ => Some(self.access(id, space, page, Access::Read)),
        }
    }

    /// Gives back all that daemons hold.
    fn come_to_rest(&mut self) {
        while let Some((block, order)) = self.atomic.pop_first() {
            self.mm.memory.free(&mut Cx::new(CpuId(1), self.now, &self.prices, &mut self.counters), block, order);
        }
        loop {
            let awake = [self.kswapd, self.kcompactd, self.khugepaged, self.reporter];
            match awake.map(|at| at.is_some_and(|at| at <= self.now)) {
                [true, _, _, _] => self.step_kswapd(),
                [_, true, _, _] => self.step_kcompactd(),
                [_, _, true, _] => self.step_khugepaged(&[]),
                [_, _, _, true] => self.step_reporter(),
                _ if self.compact.is_some() => {
                    self.now = self.now.max(self.compact_sleeps);
                    self.step_compact();
                }
                _ => match awake.iter().flatten().min() {
                    Some(next) if self.has_held() => self.now = *next,
                    _ => break,
                },
            }
        }
    }

    fn has_held(&self) -> bool {
        let mm = &self.mm;
        let of_node = [mm.kswapds[NodeId(0)].holdings(), mm.kcompactd_holdings(NodeId(0))];
        let all = of_node.into_iter().chain([mm.khugepaged.holdings(), mm.reporter_holdings()]);
        all.into_iter().any(|held| !(held.isolated.is_empty() && held.off_lru.is_empty() && held.gathered.is_empty()))
    }

    /// Does khugepaged let a system call of this process begin?
    fn may_change(&self, space: SpaceId) -> bool {
        self.keeps.is_none_or(|kept| space_of(kept) != space)
    }

    /// Kernel threads that somebody has woken.
    fn wake_threads(&mut self) {
        if !self.mm.memory.take_woken(Daemon::Kswapd).is_empty() {
            self.kswapd = Some(self.now);
        }
        if !self.mm.memory.take_woken(Daemon::Kcompactd).is_empty() {
            self.kcompactd = Some(self.now);
        }
        if !self.mm.memory.take_woken(Daemon::Khugepaged).is_empty() {
            self.khugepaged = Some(self.now);
        }
        if self.steps.is_multiple_of(7) {
            // Somebody has freed a block that is large enough.
            self.mm.notify_reporting(self.now);
        }
        if !self.mm.memory.take_woken(Daemon::Reporter).is_empty() {
            self.reporter = Some(self.now);
        }
    }

    fn turn_of_all(&mut self, tasks: &mut Vec<Task>, chance: &mut Chance) {
        self.steps += 1;
        self.wake_threads();
        let _ = self.mm.memory.take_unlocked();
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= self.now);
        let ready = |task: &Task| task.sleeps_until <= self.now && !self.is_kept_out(task);
        let ready: Vec<usize> = (0..tasks.len()).filter(|at| ready(&tasks[*at])).collect();
        let due = [
            is_due(self.kswapd),
            is_due(self.kcompactd),
            is_due(self.khugepaged) && self.may_lock(tasks),
            self.compact.is_some() && self.compact_sleeps <= self.now,
            is_due(self.reporter),
        ];
        // Tasks about as often as all others.
        match chance.below(10) {
            0 if due[0] => self.step_kswapd(),
            1 if due[1] => self.step_kcompactd(),
            2 if due[2] => self.step_khugepaged(tasks),
            3 if due[3] => self.step_compact(),
            4 if due[4] => self.step_reporter(),
            _ if !ready.is_empty() => {
                let at = ready[usize::try_from(chance.below(ready.len() as u64)).unwrap()];
                let fate = self.step(&mut tasks[at]);
                if let Some(fate) = fate {
                    let task = tasks.remove(at);
                    if fate == Fate::BusError {
                        self.killed.insert(task.space);
                    }
                }
            }
            _ if due[0] => self.step_kswapd(),
            _ if due[1] => self.step_kcompactd(),
            _ if due[2] => self.step_khugepaged(tasks),
            _ if due[3] => self.step_compact(),
            _ if due[4] => self.step_reporter(),
            _ => {
                let sleeps = tasks.iter().map(|task| task.sleeps_until);
                let sleeps = sleeps
                    .chain(self.compact.is_some().then_some(self.compact_sleeps))
                    .chain(self.kswapd)
                    .chain(self.kcompactd)
                    .chain(self.khugepaged)
                    .chain(self.reporter);
                let next = sleeps.filter(|at| *at > self.now).min();
                // Without anybody who sleeps, it is the driver's turn to begin something.
                self.now = next.unwrap_or(self.now);
            }
        }
        self.wake_after_pass(tasks);
        for space in self.mm.memory.take_killed() {
            self.killed.insert(space);
            tasks.iter_mut().filter(|task| task.space == space).for_each(|task| task.supply.open_reserves());
        }
        if self.steps.is_multiple_of(self.check_every) {
            self.check(tasks);
            self.check_host();
        }
        if self.mm.memory.zones()[0].boost > 0 {
            self.reach("marks are raised");
        }
        self.was_full |= self.mm.swap.free() == 0;
        if self.steps.is_multiple_of(CONTENTS_EVERY) {
            self.check_contents();
        }
    }

    /// Takes a step of a write to `vm.compact_memory`.
    fn step_compact(&mut self) {
        let Some(mut compact) = self.compact.take() else { return };
        let cx = Cx::new(CpuId(1), self.now, &self.prices, &mut self.counters);
        let mut cx = cx.acting_for(ControlId(COMPACT));
        match compact.step(&mut self.mm, &mut self.spaces, &mut cx) {
            Step::Done(()) => {}
            Step::More => self.compact = Some(compact),
            Step::Block(wait) => {
                // It alone: others go on meanwhile.
                self.compact_sleeps = until(wait, cx.now());
                self.compact = Some(compact);
            }
        }
        self.now = cx.now();
    }

    fn step_kcompactd(&mut self) {
        let cx = Cx::new(CpuId(1), self.now, &self.prices, &mut self.counters);
        let mut cx = cx.acting_for(ControlId(KCOMPACTD));
        let step = self.mm.step_kcompactd(&mut self.spaces, &mut cx, NodeId(0));
        self.now = cx.now();
        self.kcompactd = goes_on(&step, self.now);
    }

    pub(crate) fn step_reporter(&mut self) {
        let before = self.reported_types();
        let cx = Cx::new(CpuId(1), self.now, &self.prices, &mut self.counters);
        let mut cx = cx.acting_for(ControlId(REPORTER));
        let step = self.mm.step_reporter(&mut cx);
        let has_free_block = cx.has_free_block();
        self.now = cx.now();
        self.reporter = goes_on(&step, self.now);
        if has_free_block {
            self.mm.notify_reporting(self.now);
        }
        self.check_put_back(&before);
    }

    fn step_khugepaged(&mut self, tasks: &[Task]) {
        let needs = self.mm.khugepaged_needs(&self.spaces);
        let has_lock = needs.is_some_and(|needs| self.keeps.is_some() || Self::is_free(needs, tasks));
        let cx = Cx::new(CpuId(1), self.now, &self.prices, &mut self.counters);
        let mut cx = cx.acting_for(ControlId(KHUGEPAGED));
        if let Some(after) = self.fails_alloc.take() {
            self.injected += u64::from(cx.fail_alloc(after));
        }
        let step = self.mm.step_khugepaged(&mut self.spaces, &mut cx, has_lock);
        self.now = cx.now();
        self.khugepaged = goes_on(&step, self.now);
        // It keeps the lock for as long as its steps need the same.
        let held = needs.filter(|_| has_lock);
        let wants = self.mm.khugepaged_needs(&self.spaces);
        self.keeps = held.zip(wants).filter(|(held, wants)| is_same(*held, *wants)).map(|(_, wants)| wants);
    }

    /// Can khugepaged take its next step, with the lock that it needs or without one that it only tries?
    fn may_lock(&self, tasks: &[Task]) -> bool {
        match self.mm.khugepaged_needs(&self.spaces) {
            None | Some(NeedsLock::TryRead(_)) => true,
            Some(needs) => self.keeps.is_some() || Self::is_free(needs, tasks),
        }
    }

    fn is_free(needs: NeedsLock, tasks: &[Task]) -> bool {
        let writes = matches!(needs, NeedsLock::Write(_));
        tasks.iter().filter(|task| task.space == space_of(needs)).all(|task| match &task.operation {
            Operation::Touch(touch) => !writes || !(touch.is_in_fault() || task.supply.is_busy()),
            Operation::Discard(_) => !writes,
            Operation::Fork(_) | Operation::Exit(_) => false,
        })
    }

    /// Does khugepaged hold a lock that a task needs?
    fn is_kept_out(&self, task: &Task) -> bool {
        let writes = matches!(task.operation, Operation::Fork(_) | Operation::Exit(_));
        self.keeps.is_some_and(|kept| space_of(kept) == task.space && (writes || matches!(kept, NeedsLock::Write(_))))
    }

    /// Every page that is there holds what was written to it, whether or not anybody reads it.
    fn check_contents(&self) {
        for (id, (_, written)) in &self.memory {
            let tables = &self.spaces.get(*id).unwrap().tables;
            for (page, expected) in written {
                let pte = tables.lookup(*page);
                if (pte.is_present() || pte.is_migration()) && !pte.is_zero_page() {
                    let within = if pte.is_huge() { u32::try_from(page.0 % 512).unwrap() } else { 0 };
                    assert_eq!(
                        self.mm.memory.frames.content(pte.pfn().plus(within)),
                        *expected,
                        "{page:?} of {id:?}: {pte:?}"
                    );
                }
            }
        }
    }
}

fn space_of(needs: NeedsLock) -> SpaceId {
    let (NeedsLock::TryRead(space) | NeedsLock::Read(space) | NeedsLock::Write(space)) = needs;
    space
}

/// Does the lock that is held do for the next step?
fn is_same(held: NeedsLock, wants: NeedsLock) -> bool {
    let writes = |needs| matches!(needs, NeedsLock::Write(_));
    space_of(held) == space_of(wants) && writes(held) == writes(wants)
}
