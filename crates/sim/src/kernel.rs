//! A kernel: its memory, its processes, and their locks. A run has one kernel, or several beside each other; a task, a CPU and an
//! address space belong to one of them.

use std::ops::{Index, IndexMut, Range};

use memory::{event::Counters, frame::SpaceId, line::CacheLine};
use mm::{Mm, Spaces, space::address_space::AddressSpace};
use rules::variant::Variant;
use units::{Bytes, CpuId, NodeId, Pfn, Time};

use crate::{
    TICK,
    ids::{KernelId, TaskId, Thread},
    runqueue::{Periods, Ticks},
    rwsem::Rwsem,
    sched::{Domains, SchedMoves},
};

/// The state of one kernel.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) mm: Mm,
    /// The range of the kernel's CPUs among all CPUs of the run.
    pub(crate) cpus: Range<usize>,
    pub(crate) counters: Counters,
    pub(crate) spaces: Spaces,
    /// The mmap lock of each address space, and the cache line of its count.
    pub(crate) locks: Vec<Rwsem>,
    pub(crate) lines: Vec<CacheLine>,
    /// Number of CPUs that run a task of each address space, and how many of these tasks are settled.
    pub(crate) running_in: Vec<u32>,
    /// CPUs that run a task of a process, whichever it is.
    pub(crate) running_user: u32,
    pub(crate) settled_in: Vec<u32>,
    /// When the kernel's CPUs tick.
    pub(crate) ticks: Ticks,
    /// When a busy CPU next looks for idle ones (`nohz_kick_needed`).
    pub(crate) next_kick: Time,
    /// The sched domains: which CPUs the scheduler compares.
    pub(crate) domains: Domains,
    /// Moves of the kernel's tasks from CPU to CPU.
    pub(crate) moves: SchedMoves,
    /// Bytes that each process may still map.
    pub(crate) left: Vec<Bytes>,
    /// Bytes that the first process may map.
    cap: Bytes,
    /// The kernel's threads, once they are started.
    pub(crate) daemons: Vec<(Thread, TaskId)>,
    /// Tasks that wait for a folio.
    pub(crate) folio_sleepers: Vec<(Pfn, TaskId)>,
    /// Tasks that wait for a pass of a node's kswapd.
    pub(crate) pass_sleepers: Vec<(NodeId, TaskId)>,
}

impl Kernel {
    /// A kernel without processes, whose CPUs share a cache.
    pub(crate) fn new(mm: Mm, cpus: Range<usize>, cap: Bytes) -> Self {
        let mut counters = Counters::of(mm.memory.variant());
        if mm.balances_numa() {
            counters.of_balancing();
        }
        Self {
            counters,
            ticks: Ticks::every(TICK),
            next_kick: Time(0),
            domains: Domains::flat(cpus.clone()),
            moves: SchedMoves::default(),
            mm,
            cpus,
            spaces: Spaces::default(),
            locks: Vec::new(),
            lines: Vec::new(),
            running_in: Vec::new(),
            running_user: 0,
            settled_in: Vec::new(),
            left: Vec::new(),
            cap,
            daemons: Vec::new(),
            folio_sleepers: Vec::new(),
            pass_sleepers: Vec::new(),
        }
    }

    /// Periods of the scheduler, by the present rules.
    #[inline]
    pub(crate) fn periods(&self) -> Periods {
        Periods::for_cpus(self.cpus.len(), self.ticks, self.variant())
    }

    /// The rules of the kernel, also for its scheduler and locks: the page allocator has the only copy, and
    /// [`memory::Memory::set_variant`] replaces it.
    #[inline]
    pub(crate) fn variant(&self) -> &Variant {
        self.mm.memory.variant()
    }

    /// Whether the scheduler tracks loads, for itself or for NUMA balancing.
    #[inline]
    pub(crate) fn tracks_loads(&self) -> bool {
        self.variant().sched_compares_loads || self.mm.balances_numa()
    }

    /// A task's name: its number, or the name of the kernel thread that it is, such as `kswapd0`.
    pub(crate) fn name_of(&self, task: TaskId) -> String {
        let found = self.daemons.iter().find(|(_, id)| *id == task);
        found.map_or_else(|| format!("task {}", task.0), |(thread, _)| thread.to_string())
    }

    /// The task of a kernel thread, if there is one.
    pub(crate) fn thread(&self, thread: Thread) -> Option<TaskId> {
        self.daemons.iter().find(|(known, _)| *known == thread).map(|(_, id)| *id)
    }

    /// The kernel's CPUs, by their numbers in the run.
    pub(crate) fn cpu_ids(&self) -> impl ExactSizeIterator<Item = CpuId> + Clone + use<> {
        self.cpus.clone().map(|cpu| CpuId(u32::try_from(cpu).expect("fewer than 2^32 CPUs")))
    }

    /// The number by which the kernel itself knows one of its CPUs.
    #[inline]
    pub(crate) fn number(&self, cpu: CpuId) -> CpuId {
        #[expect(clippy::cast_possible_truncation, reason = "no CPU has a larger number")]
        CpuId(cpu.0 - self.cpus.start as u32)
    }

    /// Adds a process, which may map as many bytes as its parent, if it has one.
    pub(crate) fn add_space(&mut self, space: AddressSpace, parent: Option<SpaceId>) -> SpaceId {
        let left = parent.map_or(self.cap, |parent| self.left[parent.0 as usize]);
        self.locks.push(Rwsem::default());
        self.lines.push(CacheLine::default());
        self.running_in.push(0);
        self.settled_in.push(0);
        self.left.push(left);
        self.spaces.add(space)
    }
}

/// The kernels of a run.
#[derive(Clone, Debug)]
pub(crate) struct Kernels(Vec<Kernel>);

impl Kernels {
    pub(crate) fn new(host: Kernel) -> Self {
        Self(vec![host])
    }

    /// Adds a kernel, which gets the next number.
    pub(crate) fn add(&mut self, kernel: Kernel) {
        self.0.push(kernel);
    }

    /// All kernels, the host's first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Kernel> {
        self.0.iter()
    }

    /// Every kernel with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (KernelId, &Kernel)> {
        (0..).map(KernelId).zip(&self.0)
    }
}

impl Index<KernelId> for Kernels {
    type Output = Kernel;

    #[inline]
    fn index(&self, id: KernelId) -> &Kernel {
        &self.0[id.0 as usize]
    }
}

impl IndexMut<KernelId> for Kernels {
    #[inline]
    fn index_mut(&mut self, id: KernelId) -> &mut Kernel {
        &mut self.0[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use memory::{cost::Prices, cx::Cx, event::Event};
    use mm::{space::address_space::MMAP_BASE, thp::ThpEnabled};
    use os::{MapSpec, VmRange};
    use rules::variant::{self, Changes, Takes};
    use units::{Picos, Time};

    use super::*;
    use crate::{
        Config, QUANTUM,
        clock::Clock,
        draw::Draws,
        ids::HOST,
        runqueue::{Enqueue, Nice},
        sched::Cpu,
        task::{Answer, Request, Task},
        tests::{config, world_of},
        world::{Turn, World},
    };

    /// Kernels beside each other, each with one CPU and one task in a process of its own.
    fn beside(rules: &[&str]) -> World {
        let mut world = world_of(rules[0], vec![vec![0]]);
        for rules in &rules[1..] {
            let mut config = config(ThpEnabled::Never);
            config.machine.nodes[0].cpus = vec![CpuId(0)];
            let mm = Mm::new(&config.machine, *variant::named(rules), &config.settings);
            let cpu = world.cpus.len();
            let id = KernelId(u16::try_from(world.kernels.0.len()).unwrap());
            world.kernels.0.push(Kernel::new(mm, cpu..cpu + 1, config.cap));
            world.cpus.push(Cpu::new(id, variant::named(rules)));
        }
        world.clock = Clock::new(rules.len(), QUANTUM);
        for at in 0..rules.len() {
            let (id, cpu) = (KernelId(u16::try_from(at).unwrap()), CpuId(u32::try_from(at).unwrap()));
            let kernel = &mut world.kernels[id];
            kernel.mm.thp.enabled = ThpEnabled::Never;
            let prices = Prices::free();
            let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut kernel.counters);
            let space = AddressSpace::new(&mut kernel.mm, &mut cx, MMAP_BASE).unwrap();
            let space = kernel.add_space(space, None);
            world.tasks.push(Task::new(cpu, vec![cpu], (id, space), Nice::default()));
            world.wake(TaskId(cpu.0), Time(0), Enqueue::New);
        }
        world
    }

    /// Each task maps 4 MiB, stores to all of it, unmaps half, and ends. Returns the counters of each kernel, and the time of its
    /// task.
    fn run(mut world: World) -> Vec<(Counters, Picos)> {
        let mut progress = vec![(0, None::<VmRange>); world.tasks.len()];
        // Bound: four requests a task.
        loop {
            let id = match world.turn() {
                Turn::Over => break,
                Turn::Poll(id) => id,
                Turn::Drop(id) => panic!("{id:?} was killed"),
            };
            let (next, range) = &mut progress[id.0 as usize];
            if let Some(Answer::Range(answer)) = world.take_answer() {
                *range = Some(answer.unwrap());
            }
            match *next {
                0 => world.submit(Request::Mmap(Bytes::mib(4), MapSpec::Anonymous)),
                1 => world.submit(Request::Store(range.unwrap(), Bytes::PAGE)),
                2 => world.submit(Request::Munmap(VmRange { len: Bytes::mib(2), ..range.unwrap() })),
                _ => world.end(),
            }
            *next += 1;
            world.settle_current();
        }
        world.check();
        let kernels = (0..world.tasks.len()).map(|at| {
            let task = &world.tasks[at];
            (world.kernels[task.kernel].counters.clone(), task.spent.total())
        });
        kernels.collect()
    }

    #[test]
    fn a_kernel_beside_others_does_what_it_does_alone() {
        let rules = ["v4.1", "v6.7", "v5.10"];
        let together = run(beside(&rules));
        for (rules, found) in rules.iter().zip(&together) {
            assert_eq!(*found, run(beside(&[*rules])).remove(0), "{rules}");
            assert_eq!(found.0.get(Event::Pgfault), 1024, "{rules}");
        }
        assert_ne!(together[0], together[1], "other rules, other counters");
    }

    #[test]
    fn periods_follow_the_rules_of_the_instant() {
        let kernel = &mut beside(&["v6.1"]).kernels[HOST];
        let before = kernel.periods();
        let mut rules = *kernel.variant();
        rules.sched_base_slice_ns *= 2;
        kernel.mm.memory.set_variant(rules).unwrap();
        assert_ne!(kernel.periods(), before);
    }

    /// Rules whose values are visible in the state of a newly booted kernel, and which can change all the same: they decided in
    /// the past.
    const HISTORY: [&str; 1] = ["moved_end"];

    /// Rules that may change at any instant have built nothing at boot, and the table names all others.
    #[test]
    fn rules_that_shape_a_booting_kernel_need_a_boot() {
        let of = |rules: Variant| Config { variant: rules, ..config(ThpEnabled::Never) };
        let booted = |rules: Variant| {
            let mut world = crate::fresh(&of(rules));
            crate::set_up(&mut world.kernels[HOST], &of(rules));
            let places = [(NodeId(0), vec![CpuId(0), CpuId(1)])];
            world.start_daemons(HOST, &places, Draws::new(1));
            world
        };
        let mut shown = BTreeSet::new();
        for name in ["v4.1", "v6.7"] {
            let before = *variant::named(name);
            for rule in Variant::RULES {
                for value in others(rule, &before) {
                    let mut diff = variant::Diff::default();
                    assert!(diff.set(rule.name, &value), "{} = {value}", rule.name);
                    let after = diff.over(&before);
                    if after == before {
                        continue;
                    }
                    let mut world = booted(before);
                    let refused = world.kernels[HOST].mm.memory.set_variant(after);
                    if rule.changes == Changes::AtBoot {
                        let said = format!("rules that only a boot can change: {}", rule.name);
                        assert_eq!(refused.map_err(|error| error.to_string()), Err(said));
                        assert_eq!(*world.kernels[HOST].variant(), before);
                        if without_rules(&booted(after)) != without_rules(&world) {
                            shown.insert(rule.name);
                        }
                    } else {
                        assert_eq!((refused, *world.kernels[HOST].variant()), (Ok(()), after));
                        let is_alike = format!("{world:?}") == format!("{:?}", booted(after));
                        assert!(is_alike || HISTORY.contains(&rule.name), "{name}: {} = {value}", rule.name);
                    }
                }
            }
        }
        for rule in ["fragment_stall", "last_resort", "pcp_high", "promo_mark", "scheduler", "thp_requests"] {
            assert!(shown.contains(rule), "{rule} is to show in a kernel that has booted, and {shown:?} do");
        }
    }

    /// Counters, queues, threads and zones of a world.
    fn without_rules(world: &World) -> String {
        let kernel = &world.kernels[HOST];
        format!("{:?} {:?} {:?} {:?}", kernel.counters, world.cpus, kernel.daemons, kernel.mm.memory.zones())
    }

    /// The other values that a rule could have, as a variant file says them.
    fn others(rule: &variant::Rule, now: &Variant) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match rule.takes {
            Takes::Switch => words(&["false", "true"]),
            Takes::Words(all) => words(all),
            Takes::Size(..) => words(&["3MiB"]),
            Takes::Number(_, most) => {
                let value = now.values().into_iter().find(|(name, _)| *name == rule.name).unwrap().1;
                let value: u64 = value.parse().unwrap();
                vec![if value < most { value + 1 } else { value - 1 }.to_string()]
            }
        }
    }
}
