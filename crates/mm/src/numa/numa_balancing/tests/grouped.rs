//! Linux: kernel/sched/fair.c, mm/mprotect.c (v3.16 to v6.1).
//!
//! Faults as tasks count them since 3.13: alone and in groups, which pages come over, periods and scans.

use memory::{
    event::Event,
    frame::{ControlId, SpaceId},
    last_fault::Last,
    step::Step,
};
use rules::{
    mempolicy::Mempolicy,
    variant::{NumaPeriod, named},
};
use units::{CpuId, NodeId, Picos, Time};

use super::{HUGE, World};
use crate::{
    Mm,
    fault::{Access, touch::Touch},
    numa::numa_balancing::{Maker, Tick, period::adapted, scan::ScanWork, task::Fault},
    space::{address_space::AddressSpace, vma::PageRange},
};

fn world(rules: &str) -> World {
    World::new(named(rules), &[])
}

/// A fault of a task on the CPU of a node, after that of another task there or elsewhere.
fn fault(world: &mut World, (task, node): (u32, u32), fault: Fault) {
    let id = world.id;
    world.on(task, node, |mm, spaces, cx| mm.numa_fault(spaces.get_mut(id).unwrap(), cx, fault));
}

/// As CPU `cpu` leaves it at a page.
fn by(cpu: usize, task: u32) -> Last {
    Last::new(cpu, ControlId(task))
}

/// Faults of one task or group, worked out from all that there ever were: by node and kind, with every scan.
#[derive(Clone, Default)]
struct Naive {
    scans: Vec<[[u64; 2]; 3]>,
    now: [[u64; 2]; 3],
}

impl Naive {
    fn end_scan(&mut self) {
        self.scans.push(std::mem::take(&mut self.now));
    }

    fn at(&self, node: usize) -> u64 {
        let of = |private: usize| self.scans.iter().fold(0, |sum, scan| sum - sum / 2 + scan[node][private]);
        of(0) + of(1)
    }
}

#[test]
fn groups_count_what_a_naive_twin_counts_for_their_tasks() {
    let mut world = world("v6.1");
    let tasks = [1, 2, 3, 4_u32];
    let mut naive = vec![Naive::default(); 5];
    for task in tasks {
        let id = world.id;
        let space = world.spaces.get_mut(id).unwrap();
        world.mm.numa_begin(ControlId(task), (id, space), None);
    }
    let (mut draw, mut joined, mut ms) = (1_u64, 0, 0);
    for _ in 0..20_000 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (task, node) = (1 + u32::try_from((draw >> 33) % 4).unwrap(), (draw >> 36) % 3);
        let (pages, before) = (1 + (draw >> 40) % 512, 1 + u32::try_from((draw >> 50) % 4).unwrap());
        // Two seconds later each time, so that a placement is due at each fault.
        ms += 2000;
        world.now = Time(Picos::from_micros(1000 * ms).0);
        if (draw >> 55).is_multiple_of(40) {
            world.space().numa.begin_again();
        }
        // Up to here all of a scan's faults are in a buffer; the first fault after it adds them.
        let seq = world.space().numa.seq;
        let known = world.mm.numa.as_ref().unwrap().task(ControlId(task)).unwrap().scan_seq;
        let is_private = before == task;
        let cpu = CpuId(before % 3);
        world.mm.numa_switch(cpu, Some(ControlId(before)));
        fault(
            &mut world,
            (task, 0),
            Fault::at(NodeId(u32::try_from(node).unwrap()), pages, by(cpu.0 as usize, before)),
        );
        let twin = &mut naive[task as usize];
        if seq != known {
            twin.end_scan();
        }
        twin.now[usize::try_from(node).unwrap()][usize::from(is_private)] += pages;

        let numa = world.mm.numa.as_ref().unwrap();
        for group in 0..numa.groups.len() {
            let of = |task: &&u32| {
                let stats = &numa.task(ControlId(**task)).unwrap().stats;
                stats.group == Some(super::super::group::GroupId::nth(u32::try_from(group).unwrap()))
            };
            let members: Vec<_> = tasks.iter().filter(of).collect();
            joined = joined.max(members.len());
            let counts = &numa.groups[group];
            assert_eq!(counts.tasks, members.len() as u64);
            for node in 0..3 {
                let all: u64 = members.iter().map(|task| naive[**task as usize].at(node)).sum();
                assert_eq!(counts.faults.at(node), all, "group {group}, node {node}");
            }
        }
    }
    assert_eq!(joined, 4, "all of them come to be of one group");
    // A task that ends takes its faults along.
    world.mm.numa_end(ControlId(2));
    let numa = world.mm.numa.as_ref().unwrap();
    let whole = numa.groups.iter().find(|group| group.tasks > 0).unwrap();
    assert_eq!((whole.tasks, whole.faults.at(1)), (3, [1, 3, 4].map(|task: usize| naive[task].at(1)).iter().sum()));
}

#[test]
fn a_task_joins_groups_of_running_tasks_of_shared_memory() {
    let other_space = SpaceId(7);
    for (runs, other, shared, joins, private) in [
        (true, false, false, true, false),
        // The CPU runs another task meanwhile.
        (false, false, false, false, false),
        // Of another process: a PID that looks alike, unless both map the page to write to it.
        (true, true, false, false, true),
        (true, true, true, true, false),
    ] {
        let mut world = world("v6.1");
        let own = world.id;
        for (task, space) in [(1, own), (2, if other { other_space } else { own })] {
            let memory = world.spaces.get_mut(own).unwrap();
            world.mm.numa_begin(ControlId(task), (space, memory), None);
        }
        // The other one has a group of its own, which is older.
        fault(&mut world, (2, 1), Fault::at(NodeId(0), 1, by(0, 9)));
        world.mm.numa_switch(CpuId(1), Some(ControlId(if runs { 2 } else { 3 })));
        fault(&mut world, (1, 0), Fault { is_shared: shared, ..Fault::at(NodeId(0), 1, by(1, 2)) });
        let numa = world.mm.numa.as_ref().unwrap();
        let [one, two] = [1, 2].map(|task| numa.task(ControlId(task)).unwrap().stats.group);
        assert_eq!(one == two, joins, "{runs} {other} {shared}");
        let counted = numa.task(ControlId(1)).unwrap().stats.mem_now[0];
        assert_eq!(counted, if private { [0, 1] } else { [1, 0] }, "{runs} {other} {shared}");
        // A fault at a read-only page puts nobody into a group.
        let mut world = super::grouped::world("v6.1");
        fault(&mut world, (1, 0), Fault { is_read_only: true, ..Fault::at(NodeId(0), 1, by(1, 2)) });
        assert_eq!(world.mm.numa.as_ref().unwrap().groups.len(), 0);
    }
}

/// Says of a page on node 0 whether it comes to a task on node 1.
fn comes(mm: &Mm, last: Last) -> bool {
    mm.numa_may_come(ControlId(1), last, (NodeId(0), NodeId(1)))
}

#[test]
fn a_page_comes_over_by_the_first_reason_that_decides() {
    let mut world = world("v6.1");
    let id = world.id;
    let memory = world.spaces.get_mut(id).unwrap();
    world.mm.numa_begin(ControlId(1), (id, memory), None);
    let task = |world: &mut World| world.mm.numa.as_mut().unwrap().task_mut(ControlId(1)).clone();
    // Young: what nobody or itself has had, at once; what another had elsewhere, not.
    assert!(comes(&world.mm, Last::NOBODY) && comes(&world.mm, by(0, 1)));
    assert!(!comes(&world.mm, by(0, 2)));
    // Grown up: the last fault has to have been on the node.
    let mut grown = task(&mut world);
    (grown.preferred, grown.scan_seq) = (Some(NodeId(1)), 5);
    *world.mm.numa.as_mut().unwrap().task_mut(ControlId(1)) = grown;
    assert!(!comes(&world.mm, by(0, 1)) && comes(&world.mm, by(1, 1)));
    assert!(comes(&world.mm, by(1, 2)), "it has no group yet");
    // In a group, shared pages come by the use that the group makes of both nodes.
    fault(&mut world, (1, 0), Fault::at(NodeId(0), 1, by(1, 2)));
    for ([cpu_from, cpu_to], [mem_from, mem_to], expected) in [
        ([10, 31], [1, 1000], true),
        ([10, 30], [1, 1000], false),
        ([10, 14], [10, 10], true),
        ([10, 13], [10, 10], false),
        ([10, 10], [14, 10], true),
    ] {
        let group = &mut world.mm.numa.as_mut().unwrap().groups[0];
        (group.faults.cpu[0], group.faults.cpu[1]) = ([cpu_from, 0], [cpu_to, 0]);
        (group.faults.mem[0], group.faults.mem[1]) = ([mem_from, 0], [mem_to, 0]);
        assert_eq!(comes(&world.mm, by(1, 2)), expected, "{cpu_from} {cpu_to} {mem_from} {mem_to}");
        assert!(comes(&world.mm, by(1, 1)), "private ones do in any case");
    }
}

#[test]
fn up_to_4_6_group_pages_move_to_active_nodes() {
    let mut world = world("v3.16");
    fault(&mut world, (1, 0), Fault::at(NodeId(0), 1, by(1, 2)));
    let group = |world: &mut World, mem: [u64; 2]| {
        let group = &mut world.mm.numa.as_mut().unwrap().groups[0];
        (group.faults.mem[0], group.faults.mem[1]) = ([mem[0], 0], [mem[1], 0]);
    };
    group(&mut world, [100, 0]);
    assert!(!comes(&world.mm, by(1, 2)), "only the node where the group began is in use");
    // More than six sixteenths of the most make a node one of them, less than three end that.
    for (cpu, active) in [([16, 6], false), ([16, 7], true), ([16, 3], true), ([16, 2], false)] {
        let group = &mut world.mm.numa.as_mut().unwrap().groups[0];
        (group.faults.cpu[0], group.faults.cpu[1]) = ([cpu[0], 0], [cpu[1], 0]);
        group.count_active_nodes();
        assert_eq!(group.is_active(1), active, "{cpu:?}");
        assert_eq!(comes(&world.mm, by(1, 2)), active);
    }
    let counts = &mut world.mm.numa.as_mut().unwrap().groups[0];
    counts.faults.cpu[1] = [16, 0];
    counts.count_active_nodes();
    group(&mut world, [100, 75]);
    assert!(!comes(&world.mm, by(1, 2)));
    group(&mut world, [100, 74]);
    assert!(comes(&world.mm, by(1, 2)));
}

#[test]
fn periods_follow_from_what_is_local_private_and_moved_in_vain() {
    use NumaPeriod::{Local, LocalOrPrivate, LocalUnlessFailed};
    for (form, locality, types, expected) in [
        // Nothing but private remote faults: put off.
        (LocalOrPrivate, [10, 0, 0], [0, 10], None),
        (LocalOrPrivate, [0, 10, 1], [10, 10], None),
        (Local, [0, 10, 1], [10, 10], Some(1300)),
        (LocalUnlessFailed, [0, 10, 1], [10, 10], None),
        // Private ones alone make it longer; then local ones; else it is shorter by the better of both.
        (LocalOrPrivate, [9, 1, 0], [1, 9], Some(1200)),
        (LocalOrPrivate, [3, 7, 0], [10, 0], Some(1100)),
        (LocalOrPrivate, [7, 3, 0], [6, 4], Some(700)),
        // Local ones make it longer; fewer make it shorter, less so where they are shared.
        (Local, [0, 10, 0], [10, 0], Some(1300)),
        (Local, [7, 3, 0], [5, 5], Some(800)),
        (Local, [7, 3, 0], [10, 0], Some(1000)),
    ] {
        assert_eq!(adapted(form, 1000, locality, types), expected, "{form:?} {locality:?} {types:?}");
    }
}

/// A tick of a task that has run for `ms` milliseconds by then.
fn tick(world: &mut World, task: u32, ms: u64) -> Option<ScanWork> {
    let at = Picos::from_micros(1000 * ms);
    let tick = Tick { id: ControlId(task), cpu: CpuId(0), at: Time(at.0), ran: at, policy: Mempolicy::Local };
    let id = world.id;
    let space = world.spaces.get_mut(id).unwrap();
    world.mm.numa_tick(space, tick)
}

#[test]
fn a_new_process_delays_its_scan_twice_a_threaded_one_once() {
    let mut world = world("v6.1");
    let (id, begin) = (world.id, ControlId(1));
    let memory = world.spaces.get_mut(id).unwrap();
    world.mm.numa_begin(begin, (id, memory), None);
    assert!(tick(&mut world, 1, 1000).is_none(), "no more than its delay");
    assert!(tick(&mut world, 1, 1004).is_none(), "the delay of its memory begins");
    assert!(tick(&mut world, 1, 2000).is_none(), "no more than a period");
    assert!(tick(&mut world, 1, 2004).is_some());
    // A second task: all begins anew, and it looks two ticks later than it would.
    let now = Time(Picos::from_secs(4).0);
    let memory = world.spaces.get_mut(id).unwrap();
    memory.numa.begin_again();
    world.mm.numa_begin(ControlId(2), (id, memory), Some(Maker { id: begin, users: 1, now }));
    assert_eq!((world.space().numa.seq, world.space().numa.next_scan), (0, Time(Picos::from_secs(5).0)));
    assert!(tick(&mut world, 2, 1008).is_none());
    world.space().numa.next_scan = Time(0);
    assert!(tick(&mut world, 2, 1012).is_none() && world.space().numa.next_scan > Time(0));
    // Third ones leave it as it is.
    let memory = world.spaces.get_mut(id).unwrap();
    memory.numa.begin_again();
    world.mm.numa_begin(ControlId(3), (id, memory), Some(Maker { id: begin, users: 2, now }));
    assert_eq!(world.space().numa.seq, 1);
}

#[test]
fn a_scan_beyond_a_tick_is_paid_for() {
    for (rules, paid) in [("v4.4", 0), ("v6.1", 32 * 2 * 4)] {
        let mut world = world(rules);
        world.huge(2, 0);
        let id = world.id;
        let memory = world.spaces.get_mut(id).unwrap();
        world.mm.numa_begin(ControlId(1), (id, memory), None);
        world.space().numa.next_scan = Time(1);
        let mut work = tick(&mut world, 1, 1004).unwrap();
        let stamp = |world: &World| world.mm.numa.as_ref().unwrap().task(ControlId(1)).unwrap().stamp;
        let before = stamp(&world);
        // The scan takes two ticks and a bit.
        world.now = Time(Picos::from_micros(1000 * 1013).0);
        let done = world.on(1, 0, |mm, spaces, cx| work.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)));
        assert_eq!(done, Step::Done(()));
        assert_eq!(Picos(stamp(&world).0 - before.0), Picos::from_micros(1000 * paid), "{rules}");
    }
}

/// Base pages of a task on a node, on their lists or still on their way there.
fn base_pages(world: &mut World, pages: u64, (node, listed): (u32, bool)) -> PageRange {
    let id = world.id;
    world.on(0, node, |mm, spaces, cx| {
        let space = spaces.get_mut(id).unwrap();
        let range = space.mmap(mm, cx, pages).unwrap();
        let mut touch = Touch::pages(range, Access::Write);
        while let Step::More = touch.step(mm, space, cx, Time(u64::MAX)) {}
        if listed {
            mm.lru_add_drain_all(cx);
        }
        range
    })
}

fn scan_alone(world: &mut World, is_alone: bool) -> u64 {
    let id = world.id;
    let before = world.count(Event::NumaPteUpdates);
    let tick = Tick { id: ControlId(1), cpu: CpuId(1), at: Time(0), ran: Picos(0), policy: Mempolicy::Local };
    let mut work = ScanWork::new(100 * HUGE).of(tick).of_threads(if is_alone { 1 } else { 2 });
    world.on(
        1,
        1,
        |mm, spaces, cx| {
            while let Step::More = work.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)) {}
        },
    );
    world.count(Event::NumaPteUpdates) - before
}

#[test]
fn base_pages_hint_unless_well_placed_or_shared() {
    // On the node of a task that is alone in its process; on another node.
    for (rules, node, is_alone, expected) in
        [("v6.1", 1, true, 0), ("v6.1", 1, false, 20), ("v6.1", 0, true, 20), ("v4.8", 1, true, 20)]
    {
        let mut world = world(rules);
        base_pages(&mut world, 20, (node, true));
        assert_eq!(scan_alone(&mut world, is_alone), expected, "{rules}, node {node}, {is_alone}");
        // Those that hint already do not count.
        assert_eq!(scan_alone(&mut world, is_alone), 0);
    }
    // A CPU's batch has a reference to the last few.
    for (rules, at_least, at_most) in [("v5.18", 0, 19), ("v5.14", 20, 20)] {
        let mut world = world(rules);
        base_pages(&mut world, 20, (0, false));
        let hinting = scan_alone(&mut world, false);
        assert!((at_least..=at_most).contains(&hinting), "{rules}: {hinting}");
    }
    // Those of a child too are copied first: from 4.16 on they are left alone.
    for (rules, expected) in [("v4.15", 20), ("v4.16", 0), ("v6.1", 0)] {
        let mut world = world(rules);
        base_pages(&mut world, 20, (0, true));
        let id = world.id;
        let child: AddressSpace = world.on(0, 0, |mm, spaces, cx| spaces.get_mut(id).unwrap().fork(mm, cx).unwrap());
        world.spaces.add(child);
        assert_eq!(scan_alone(&mut world, false), expected, "{rules}");
    }
}

#[test]
fn a_scan_ends_after_eight_times_its_size_without_pages() {
    for (rules, ends) in [("v4.1", false), ("v4.4", true)] {
        let mut world = world(rules);
        let id = world.id;
        world.on(0, 0, |mm, spaces, cx| spaces.get_mut(id).unwrap().mmap(mm, cx, 40 * HUGE).unwrap());
        let mut work = ScanWork::new(2 * HUGE);
        world.on(
            0,
            0,
            |mm, spaces, cx| {
                while let Step::More = work.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)) {}
            },
        );
        assert_eq!(world.space().numa.seq, u64::from(!ends), "{rules}");
    }
}

#[test]
fn a_task_with_a_policy_of_its_own_scans_nothing() {
    let mut world = world("v6.1");
    world.huge(2, 0);
    let id = world.id;
    let policy = Mempolicy::Preferred(NodeId(0));
    let tick = Tick { id: ControlId(1), cpu: CpuId(1), at: Time(0), ran: Picos(0), policy };
    let mut work = ScanWork::new(100 * HUGE).of(tick);
    world.on(
        1,
        1,
        |mm, spaces, cx| {
            while let Step::More = work.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)) {}
        },
    );
    assert_eq!((world.count(Event::NumaPteUpdates), world.space().numa.seq), (0, 1), "but it has come to the end");
}

#[test]
fn from_5_15_on_a_local_fault_leaves_no_record() {
    for (rules, private) in [("v5.14", false), ("v6.1", true)] {
        let mut world = world(rules);
        let page = world.huge(1, 0).start;
        // One on the node of the page, then another one there.
        for task in [2, 1] {
            world.scan(100 * HUGE);
            world.fault(task, 0, page);
        }
        let stats = &world.mm.numa.as_ref().unwrap().task(ControlId(1)).unwrap().stats;
        assert_eq!(stats.mem_now[0], if private { [0, HUGE] } else { [HUGE, 0] }, "{rules}");
    }
}

#[test]
fn a_failed_move_counts_and_another_tasks_move_does_not() {
    let mut world = world("v6.1");
    let page = world.huge(1, 0).start;
    world.scan(100 * HUGE);
    // Both are of node 1; the first takes the page off its list, so that the second one cannot.
    let mut first = world.begin_fault(1, 1, page);
    assert!(!world.go_on(&mut first, 1, 1).unwrap());
    let mut second = world.begin_fault(2, 1, page);
    while second.is_moving() && !world.go_on(&mut second, 2, 1).unwrap() {}
    while !world.go_on(&mut first, 1, 1).unwrap() {}
    assert_eq!((world.node_of(page), world.count(Event::NumaPagesMigrated)), (1, HUGE));
    let numa = world.mm.numa.as_ref().unwrap();
    let of = |task: u32| numa.task(ControlId(task)).unwrap().stats.clone();
    assert_eq!((of(1).locality, of(1).mem_now[1]), ([HUGE, 0, 0], [0, HUGE]));
    assert_eq!(of(2).locality[2], HUGE, "it was tried in vain, and then the entry hints no longer");
}
