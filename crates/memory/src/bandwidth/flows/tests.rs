//! Shares of a rate against a naive twin: CPUs that ask for one page after the other, in turn, of servers that fall behind.

use super::{super::Server, *};

const US: u64 = 1_000_000;

/// A CPU that sweeps: its node, when it begins and ends, and its pages as they come, again and again: each the node of its
/// memory.
#[derive(Clone, Debug)]
struct Sweep {
    from: usize,
    span: (Time, Time),
    pages: Vec<usize>,
}

/// The memory of a CPU's sweep, which is no other's.
fn writes(cpu: usize) -> Written {
    let pages = 512;
    Written { root: Pfn(1), pages: (Vpn(pages * cpu as u64), Vpn(pages * (cpu as u64 + 1))) }
}

/// Two nodes and the links between them; what a page takes alone by places.
#[derive(Clone, Debug)]
struct Machine {
    nodes: [Picos; 2],
    links: [[Picos; 2]; 2],
    alone: [[Picos; 2]; 2],
}

impl Machine {
    fn flows(&self) -> Flows {
        let mut flows = Flows::default();
        for (node, per_page) in self.nodes.into_iter().enumerate() {
            flows.limit_node((node, 2), per_page);
        }
        flows.limit_links(self.links.iter().map(|row| row.to_vec()).collect());
        flows
    }

    /// Pages that each has had at the end, one after the other: the CPU that is farthest behind is next.
    fn page_by_page(&self, sweeps: &[Sweep]) -> Vec<u64> {
        let server = |per_frame| Server { per_frame, ..Server::default() };
        let mut nodes = self.nodes.map(server);
        let mut links = self.links.map(|row| row.map(server));
        let mut clocks: Vec<Time> = sweeps.iter().map(|sweep| sweep.span.0).collect();
        let mut done = vec![0; sweeps.len()];
        while let Some(cpu) =
            (0..sweeps.len()).filter(|cpu| clocks[*cpu] < sweeps[*cpu].span.1).min_by_key(|cpu| clocks[*cpu])
        {
            let (sweep, start) = (&sweeps[cpu], clocks[cpu]);
            let to = sweep.pages[usize::try_from(done[cpu]).unwrap() % sweep.pages.len()];
            let mut end = start + self.alone[sweep.from][to];
            end = end.max(nodes[to].transfer(start, 1));
            if self.links[sweep.from][to] > Picos(0) {
                end = end.max(links[sweep.from][to].transfer(start, 1));
            }
            clocks[cpu] = end;
            done[cpu] += 1;
        }
        done
    }

    /// Pages of each in steps that end with the tick, or where turns change. Says how often they did, too.
    fn by_rate(&self, sweeps: &[Sweep]) -> (Vec<u64>, u64) {
        let mut flows = self.flows();
        let mut clocks: Vec<Time> = sweeps.iter().map(|sweep| sweep.span.0).collect();
        let mut done = vec![0; sweeps.len()];
        while let Some(cpu) =
            (0..sweeps.len()).filter(|cpu| clocks[*cpu] < sweeps[*cpu].span.1).min_by_key(|cpu| clocks[*cpu])
        {
            let (sweep, mut now) = (&sweeps[cpu], clocks[cpu]);
            let due = flows.begin_step(now);
            let tick = Time((now.0 / TICK.0 + 1) * TICK.0);
            let until = if flows.is_live(cpu) { due.map_or(tick, |due| tick.min(due)) } else { now + Picos(2 * US) };
            let until = until.min(sweep.span.1);
            while now < until {
                let to = sweep.pages[usize::try_from(done[cpu]).unwrap() % sweep.pages.len()];
                let alone = self.alone[sweep.from][to];
                now = now + alone.max(flows.turn(cpu, sweep.from, to));
                flows.note(cpu, (sweep.from, to), (1, alone));
                done[cpu] += 1;
            }
            let end = if now < sweep.span.1 { End::GoesOn } else { End::Done };
            flows.end_step(cpu, (sweep.from, Some(writes(cpu))), now, end);
            clocks[cpu] = now;
        }
        (done, flows.changes())
    }
}

fn machine() -> Machine {
    let us = |tenths: u64| Picos(US / 10 * tenths);
    Machine { nodes: [us(4), us(3)], links: [[Picos(0); 2]; 2], alone: [[us(5), us(8)], [us(8), us(5)]] }
}

fn sweep(from: usize, pages: &[usize]) -> Sweep {
    Sweep { from, span: (Time(0), Time(100_000 * US)), pages: pages.to_vec() }
}

/// Checks that each sweep gets as many pages as the twin says, within `percent` per cent.
fn check(machine: &Machine, sweeps: &[Sweep], percent: u64) -> Vec<u64> {
    let (twin, (found, _)) = (machine.page_by_page(sweeps), machine.by_rate(sweeps));
    for (cpu, (twin, found)) in twin.iter().zip(&found).enumerate() {
        let what = format!("CPU {cpu} of {}, {machine:?}", sweeps.len());
        assert!(found.abs_diff(*twin) * 100 <= twin * percent, "{what}: {found} pages, by page {twin}");
    }
    found
}

#[test]
fn one_alone_has_all_that_it_wants() {
    assert_eq!(check(&machine(), &[sweep(0, &[0])], 1), [200_000]);
}

#[test]
fn equals_have_equal_parts_of_what_a_node_gives() {
    let found = check(&machine(), &vec![sweep(0, &[0]); 5], 1);
    let all: u64 = found.iter().sum();
    assert!(all.abs_diff(250_000) < 2_500, "100 ms by 0.4 us: {all}");
}

#[test]
fn who_wants_less_than_a_part_has_all_of_it() {
    // Three that want 2 pages a microsecond between them and one that is slow, of 2.5.
    let machine = Machine { alone: [[Picos(US / 2), Picos(US)], [Picos(4 * US), Picos(US)]], ..machine() };
    let found = check(&machine, &[sweep(0, &[0]), sweep(0, &[0]), sweep(1, &[0])], 1);
    assert_eq!(found[2], 25_000);
}

#[test]
fn memory_on_both_nodes_is_limited_by_the_slower_one() {
    let sweeps = [vec![sweep(0, &[0, 1]); 4], vec![sweep(1, &[1]); 2]].concat();
    check(&machine(), &sweeps, 4);
}

#[test]
fn links_limit_those_who_come_over_them_and_no_others() {
    let mut machine = machine();
    machine.links[0][1] = Picos(2 * US);
    let sweeps = [vec![sweep(0, &[1]); 3], vec![sweep(1, &[1]); 1]].concat();
    let found = check(&machine, &sweeps, 1);
    assert!(found[..3].iter().sum::<u64>().abs_diff(50_000) < 500, "{found:?}");
    assert_eq!(found[3], 200_000);
}

#[test]
fn parts_change_when_a_flow_begins_and_ends_and_changes_node() {
    let mut sweeps = vec![sweep(0, &[0]); 4];
    sweeps[1].span = (Time(30_000 * US), Time(61_000 * US));
    sweeps[2].span.1 = Time(50_500 * US);
    // Half of the time near, half of it far.
    sweeps[3].pages = [vec![0; 60_000], vec![1; 60_000]].concat();
    check(&machine(), &sweeps, 4);
}

#[test]
fn any_flows_have_their_parts() {
    let mut draws = 7_u64;
    let mut below = |n: u64| {
        draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (draws >> 33) % n
    };
    for _ in 0..40 {
        let mut machine = machine();
        machine.nodes = [0; 2].map(|_| Picos(US / 10 * (1 + below(8))));
        if below(2) == 0 {
            machine.links[0][1] = Picos(US / 10 * (1 + below(20)));
            machine.links[1][0] = machine.links[0][1];
        }
        let sweeps: Vec<Sweep> = (0..=below(7))
            .map(|_| {
                let node = usize::try_from(below(2)).unwrap();
                sweep(usize::try_from(below(2)).unwrap(), &[node])
            })
            .collect();
        check(&machine, &sweeps, 2);
    }
}

#[test]
fn turns_change_once_a_tick_at_most_and_not_where_nothing_does() {
    let steady = vec![sweep(0, &[0]); 5];
    assert_eq!(machine().by_rate(&steady).1, 1, "when they begin; as the first ends, all do");
    let restless = vec![sweep(0, &[vec![0; 3_000], vec![1; 3_000]].concat()); 5];
    let (_, changes) = machine().by_rate(&restless);
    assert!((10..=28).contains(&changes), "{changes} changes in 25 ticks");
}

#[test]
fn who_copies_beside_flows_has_what_they_leave() {
    let machine = machine();
    let mut flows = machine.flows();
    for cpu in 0..2 {
        flows.begin_step(Time(0));
        flows.note(cpu, (0, 0), (2, Picos(US)));
        flows.end_step(cpu, (0, Some(writes(cpu))), Time(2 * US), End::GoesOn);
    }
    flows.begin_step(Time(20 * US));
    // Two pages a microsecond of 2.5: a fifth is left, less than an equal part.
    assert_eq!(flows.leaves(0), Picos(US / 10 * 12));
    assert_eq!(flows.leaves(1), Picos(0));
    // Their CPUs do something else, and nobody says so.
    flows.begin_step(Time(20_000 * US));
    flows.begin_step(Time(30_000 * US));
    assert_eq!(flows.leaves(0), Picos(0));
}

/// Four CPUs, of which those held up by faults copy: the more copy, the more of the node is theirs together.
#[test]
fn each_cpu_that_copies_has_a_part_like_that_of_a_flow() {
    let left = |held_up: usize| {
        let mut flows = Flows::default();
        flows.limit_node((0, 1), Picos(US));
        for cpu in 0..4 {
            flows.note(cpu, (0, 0), (10, Picos(US)));
            flows.end_step(cpu, (0, Some(writes(cpu))), Time(US), End::GoesOn);
        }
        for cpu in 0..held_up {
            flows.end_step(cpu, (0, Some(writes(cpu))), Time(2 * US), End::HeldUp);
        }
        flows.begin_step(Time(20 * US));
        flows.leaves(0)
    };
    assert_eq!(left(0), Picos(5 * US), "a fifth for one that nobody knows of");
    assert_eq!(left(1), Picos(4 * US));
    assert_eq!(left(3), Picos(4 * US / 3));
    assert_eq!(left(4), Picos(0), "nobody sweeps");
}

#[test]
fn uneven_turns_serve_as_many_pages_and_memory_that_is_not_short_serves_all_alike() {
    let turns = |cpus: usize, thousandths: &[u64]| {
        let mut flows = Flows::default();
        flows.limit_node((0, 1), Picos(US));
        flows.set_unevenness(thousandths.to_vec());
        for cpu in 0..cpus {
            flows.note(cpu, (0, 0), (10, Picos(2 * US)));
            flows.end_step(cpu, (0, None), Time(US), End::GoesOn);
        }
        flows.begin_step(Time(20 * US));
        (0..cpus).map(|cpu| flows.turn(cpu, 0, 0).0).collect::<Vec<_>>()
    };
    let uneven = [900, 1000, 1000, 1100];
    let of_four = turns(4, &uneven);
    let mean = of_four[1];
    assert_eq!(of_four, uneven.map(|thousandths| mean * thousandths / 1000));
    // In a second the four have a page for each microsecond, as with equal turns.
    let pages: u64 = of_four.iter().map(|turn| 1_000_000 * US / turn).sum();
    assert!((999_000..=1_000_001).contains(&pages), "{pages}");
    assert_eq!(turns(4, &[]), [4 * US; 4]);
    assert_eq!(turns(2, &uneven), [0; 2], "each wants a page in two microseconds");
}

/// Twelve CPUs of each of two nodes write the same range: 22 times within a node and twice between them a line goes on before it
/// comes back, and memory sends it once for all.
#[test]
fn lines_go_round_those_who_write_in_step() {
    let mut flows = Flows::default();
    // Memory would be enough for one in 24.
    flows.limit_node((0, 2), Picos(20 * US));
    flows.limit_node((1, 2), Picos(0));
    flows.set_handovers(vec![vec![Picos(US), Picos(4 * US)], vec![Picos(4 * US), Picos(US)]]);
    let step = |flows: &mut Flows, cpu: usize, writes: Option<Written>, from: u64| {
        flows.begin_step(Time(from * US));
        flows.note(cpu, (0, 0), (100, Picos(US)));
        flows.end_step(cpu, (cpu / 12, writes), Time((from + 2) * US), End::GoesOn);
    };
    let turns = |flows: &Flows| [0, 23].map(|cpu| flows.turn(cpu, cpu / 12, 0).0 / US);
    (0..24).for_each(|cpu| step(&mut flows, cpu, Some(writes(0)), 0));
    flows.begin_step(Time(20 * US));
    assert_eq!(turns(&flows), [30, 30], "22 * 1 + 2 * 4");
    // Each has memory of its own, and memory is what they wait for.
    (0..24).for_each(|cpu| step(&mut flows, cpu, Some(writes(cpu)), 30));
    (0..24).for_each(|cpu| step(&mut flows, cpu, Some(writes(cpu)), 4000));
    flows.begin_step(Time(4030 * US));
    assert_eq!(turns(&flows), [480, 480], "24 * 20");
    // So they do where stores go past caches, whatever they write.
    (0..24).for_each(|cpu| step(&mut flows, cpu, None, 4040));
    (0..24).for_each(|cpu| step(&mut flows, cpu, None, 8010));
    flows.begin_step(Time(8040 * US));
    assert_eq!(turns(&flows), [480, 480], "no line goes round");
}
