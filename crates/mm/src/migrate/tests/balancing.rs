//! Linux: none; processes whose pages are scanned and follow their tasks, by chance: what was stored is found again, whatever
//! moved, and whatever could not be moved.

use memory::{
    event::Event,
    frame::{ControlId, Frame, Holdings, SpaceId},
    step::{Step, Wait},
};
use rules::{
    mempolicy::Mempolicy,
    variant::{Variant, named, patched},
};
use units::{CpuId, Picos, Time, Vpn};

use super::world::{HUGE, World};
use crate::{
    compact::tests::random::Draws,
    fault::{Access, FaultDone, touch::Touch},
    numa::numa_balancing::Tick,
    space::vma::PageRange,
};

/// A task in the middle of an access.
struct Accessing {
    who: ControlId,
    id: SpaceId,
    vpn: Vpn,
    node: u32,
    touch: Touch,
}

impl Accessing {
    /// One step of it; true when it is over.
    fn step(&mut self, world: &mut World) -> bool {
        let Self { who, id, vpn, node, touch } = self;
        let step = if touch.is_moving() {
            world.on(*who, *node, |mm, spaces, cx| touch.step_moving(mm, spaces, cx, *id))
        } else {
            world.on(*who, *node, |mm, spaces, cx| touch.step(mm, spaces.get_mut(*id).unwrap(), cx, Time(u64::MAX)))
        };
        match step {
            Step::More | Step::Block(Wait::Folio(_)) => false,
            Step::Block(wait) => panic!("{wait:?}"),
            Step::Done(FaultDone::Handled) => {
                world.store(*id, *vpn);
                true
            }
            Step::Done(done) => {
                assert_eq!(done, FaultDone::BadAddress, "there is memory");
                true
            }
        }
    }

    fn holdings(&self, world: &World) -> Holdings {
        self.touch.holdings(world.spaces.get(self.id).unwrap())
    }
}

/// Everything at an instant.
struct Run {
    world: World,
    draws: Draws,
    processes: Vec<(SpaceId, PageRange)>,
    tasks: Vec<Accessing>,
    /// The page that is pinned.
    pinned: Option<units::Pfn>,
}

impl Run {
    fn begin(rules: Variant, seed: u64) -> Self {
        let settings = [
            ("kernel.numa_balancing", "1"),
            ("kernel.numa_balancing_scan_delay_ms", "1"),
            ("kernel.numa_balancing_scan_period_min_ms", "1"),
            ("kernel.numa_balancing_scan_size_mb", "1"),
        ];
        let mut world = World::with(rules, &settings);
        let id = world.process();
        let range = world.room(id, 3);
        for task in 0..2 {
            world.begin_to_balance(ControlId(20 + task), id);
        }
        world.write(id, PageRange::new(range.start, 2 * HUGE), 0);
        Self { world, draws: Draws(seed), processes: vec![(id, range)], tasks: Vec::new(), pinned: None }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.draws.below(limit)
    }

    fn check(&self) {
        let holdings = self.tasks.iter().map(|task| (task.who, task.holdings(&self.world))).collect();
        self.world.check_of(holdings);
    }

    fn is_busy(&self, id: SpaceId) -> bool {
        self.tasks.iter().any(|task| task.id == id)
    }

    /// A task stores into some page.
    fn access(&mut self, (id, range): (SpaceId, PageRange)) {
        let who = ControlId(20 + u32::from(self.tasks.iter().any(|task| task.who == ControlId(20))));
        // Half of all accesses are to a page or two, so that faults follow each other.
        let pages = [range.pages(), 2][usize::try_from(self.below(2)).unwrap()];
        let vpn = range.start.plus(self.below(pages));
        // Each task has a node where it is most of the time.
        let node = (who.0 + u32::from(self.below(4) == 0)) % 2;
        let touch = Touch::pages(PageRange::new(vpn, 1), Access::Write).under(Mempolicy::Local);
        self.tasks.push(Accessing { who, id, vpn, node, touch });
    }

    /// A tick finds a task of a process in user mode, whose turn it may be to scan.
    fn tick(&mut self, id: SpaceId) {
        let step = Picos::from_micros(1000 * (1 + self.below(80)));
        self.world.now = self.world.now + step;
        let (task, at) = (u32::try_from(self.below(2)).unwrap(), self.world.now);
        let tick = Tick { id: ControlId(20 + task), cpu: CpuId(task), at, ran: Picos(at.0), policy: Mempolicy::Local };
        let work = self.world.mm.numa_tick(self.world.spaces.get_mut(id).unwrap(), tick);
        let Some(mut work) = work.map(|work| work.of_threads(2)) else { return };
        while let Step::More = self
            .world
            .on(tick.id, task, |mm, spaces, cx| work.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)))
        {
        }
    }

    fn operate(&mut self) {
        let at = usize::try_from(self.draws.below(self.processes.len() as u64)).unwrap();
        let (id, range) = self.processes[at];
        let is_moving = self.tasks.iter().any(|task| task.touch.is_moving());
        match self.below(40) {
            0 if self.processes.len() < 3 && !self.is_busy(id) && !is_moving => {
                let child = self.world.fork(id);
                self.processes.push((child, range));
            }
            1 if self.processes.len() > 1 && !self.is_busy(id) => {
                self.unpin();
                self.world.end(id);
                self.processes.remove(at);
            }
            2 if !self.is_busy(id) => {
                self.unpin();
                // Memory that is given up as a whole comes back as a huge page.
                let part = if self.below(4) == 0 {
                    PageRange::new(range.start.plus(self.below(range.pages() - 60)), 60)
                } else {
                    PageRange::new(range.start.plus(HUGE * self.below(range.pages() / HUGE)), HUGE)
                };
                self.world.forget(id, part);
            }
            3 => self.world.drain(),
            4 if !is_moving => self.pin_another(id, range),
            5..12 => self.tick(id),
            _ if self.tasks.len() < 2 && self.below(2) == 0 => self.access((id, range)),
            _ if !self.tasks.is_empty() => {
                let at = usize::try_from(self.draws.below(self.tasks.len() as u64)).unwrap();
                if self.tasks[at].step(&mut self.world) {
                    self.tasks.remove(at);
                }
            }
            _ => {}
        }
    }

    /// No page is pinned any more, or another one is.
    fn pin_another(&mut self, id: SpaceId, range: PageRange) {
        if self.unpin() {
            return;
        }
        // The pages that tasks come to most often.
        let vpn = range.start.plus(self.draws.below(2));
        let pte = self.world.spaces.get(id).unwrap().tables.lookup(vpn);
        if pte.is_present() && !pte.is_zero_page() {
            self.pinned = Some(pte.pfn());
            self.world.mm.set_pinned(pte.pfn(), true);
        }
    }

    /// True where a page was pinned. One that was copied for its last user is gone.
    fn unpin(&mut self) -> bool {
        let Some(page) = self.pinned.take() else { return false };
        if matches!(self.world.mm.memory.frames.get(page), Frame::Anon { .. }) {
            self.world.mm.set_pinned(page, false);
        }
        true
    }

    fn end(mut self) -> World {
        // Bound: each turn takes a step of one that will end.
        while let Some(task) = self.tasks.first_mut() {
            if task.step(&mut self.world) {
                self.tasks.remove(0);
            } else {
                self.tasks.rotate_left(1);
            }
        }
        self.unpin();
        for (id, _) in std::mem::take(&mut self.processes) {
            self.world.end(id);
        }
        self.world.drain();
        self.world.check_of(Vec::new());
        self.world
    }
}

#[test]
fn with_balancing_no_contents_are_lost_and_each_failure_occurs() {
    let all = (1..=16).collect::<Vec<_>>();
    let rules = [
        ("v3.9", *named("v3.9")),
        ("v3.9+1-16", patched("v3.9", &all)),
        ("v3.16", *named("v3.16")),
        ("v4.19", *named("v4.19")),
        ("v5.10", *named("v5.10")),
        ("v6.1", *named("v6.1")),
        ("v6.8", *named("v6.8")),
    ];
    for (name, rules) in rules {
        let (mut hints, mut moved, mut failed, mut updates) = (0, 0, 0, 0);
        for seed in 0..12 {
            let mut run = Run::begin(rules, 1 + seed);
            for _ in 0..12_000 {
                run.operate();
                if run.draws.below(24) == 0 {
                    run.check();
                }
            }
            let world = run.end();
            hints += world.count(Event::NumaHintFaults);
            moved += world.count(Event::NumaPagesMigrated);
            failed += world.count(Event::PgmigrateFail);
            updates += world.count(Event::NumaPteUpdates);
        }
        assert!(
            updates > 1000 && hints > 50 && moved > 50 && failed > 0,
            "{name}: {updates} entries updated, {hints} faults, {moved} pages moved, {failed} not"
        );
    }
}
