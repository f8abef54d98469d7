//! Distances as a program sees them: accesses take what the machine says of the two nodes, memory is where its policy says, and a
//! task runs where it may.

use memory::{
    cost::{Cause, LastCache, Latency, Prices, Work, latency::Sharing},
    event::Event,
};
use os::{Amount, MapSpec, Mempolicy, Os, Pattern, Placement, Runs};
use rules::{
    machine::{NodeSpec, ZoneSpec},
    zone::ZoneKind,
};
use sim::{Config, Sim, simulate};
use units::{Bytes, BytesPerSecond, CpuId, NodeId, Pfn, Picos, Stores, Time};

use crate::support::{self, no_entries};

const NODES: u32 = 3;
const FRAMES: u32 = 8192;

/// Three nodes of 32 MiB, two CPUs each; each pair has figures of its own.
fn machine() -> Config {
    let mut config = support::machine(NODES * 2, FRAMES);
    let node = |id: u32| NodeSpec {
        id: NodeId(id),
        cpus: vec![CpuId(id * 2), CpuId(id * 2 + 1)],
        distance: (0..NODES).map(|to| if to == id { 10 } else { 20 }).collect(),
        zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(id * FRAMES), FRAMES)],
    };
    config.machine.nodes = (0..NODES).map(node).collect();
    config.latency = latency();
    config
}

fn latency() -> Latency {
    let row = |from: u64| (0..3).map(|to| Picos(80_000 + 7_001 * from + 40_003 * (from ^ to))).collect();
    Latency { load: (0..3).map(row).collect(), ..Latency::default() }
}

/// Pages of each range.
const PAGES: u64 = 300;

/// Time of a load on CPUs of a node, from memory of another one, as a program measures it.
async fn load(os: &Sim, from: u32, to: u32) -> Picos {
    let task = os.spawn(Placement::Free, async move |os: Sim| {
        os.set_affinity(&[CpuId(from * 2 + 1)]).await.unwrap();
        os.set_mempolicy(&Mempolicy::Bind(vec![NodeId(to)])).await.unwrap();
        let range = os.mmap(Bytes(PAGES * 4096), MapSpec::Anonymous).await.unwrap();
        os.store(range, Bytes::PAGE).await.unwrap();
        assert_eq!(os.node_of(range).await.unwrap(), vec![Some(NodeId(to)); usize::try_from(PAGES).unwrap()]);
        let (begin, rounds) = (os.now(), 50);
        let done = os.access(range, Pattern::Random, Amount::Rounds(rounds)).await.unwrap();
        assert_eq!(done.accesses, rounds * PAGES);
        assert_eq!(os.now().since(begin), done.time, "nobody else has the CPU");
        os.munmap(range).await.unwrap();
        Picos(done.time.0 / done.accesses)
    });
    task.await.unwrap()
}

#[test]
fn a_load_takes_the_figure_of_each_pair_of_nodes() {
    let (loads, finish) = simulate(&machine(), no_entries, async |os: Sim| {
        let mut loads = Vec::new();
        for (from, to) in (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to))) {
            loads.push(load(&os, from, to).await);
        }
        loads
    });
    assert_eq!(loads, latency().load.concat());
    let load = latency().load;
    let far: u64 = load.iter().enumerate().flat_map(|(from, row)| row.iter().map(move |to| to.0 - row[from].0)).sum();
    assert_eq!(finish.times.cpu.on(Cause::RemoteMemory).0, far * PAGES * 50);
}

#[test]
fn without_distances_it_takes_the_same_everywhere() {
    let config = Config { latency: Latency::default(), ..machine() };
    let ((near, far), finish) = simulate(&config, no_entries, async |os: Sim| {
        let near = load(&os, 1, 1).await;
        (near, load(&os, 1, 2).await)
    });
    assert_eq!((near, far), (config.prices.of(Work::UserTouch), config.prices.of(Work::UserTouch)));
    assert_eq!(finish.times.cpu.on(Cause::RemoteMemory), Picos(0));
}

#[test]
fn affinity_and_mempolicy_are_kept_and_inherited() {
    simulate(&machine(), no_entries, async |os: Sim| {
        let nodes = os.nodes();
        assert_eq!(nodes.iter().map(|node| node.cpus.len()).collect::<Vec<_>>(), [2, 2, 2]);
        for node in [2, 0, 1] {
            os.set_affinity(&nodes[node].cpus).await.unwrap();
            let range = os.mmap(Bytes(4096 * 5), MapSpec::Anonymous).await.unwrap();
            os.store(range, Bytes::PAGE).await.unwrap();
            assert_eq!(os.node_of(range).await.unwrap(), vec![Some(nodes[node].id); 5], "local memory");
        }
        os.set_mempolicy(&Mempolicy::Preferred(NodeId(2))).await.unwrap();
        let child = os.spawn(Placement::Spread(0), async |os: Sim| {
            let range = os.mmap(Bytes(4096 * 5), MapSpec::Anonymous).await.unwrap();
            os.store(range.part(Bytes(0), Bytes(4096 * 2)), Bytes::PAGE).await.unwrap();
            os.node_of(range).await.unwrap()
        });
        let two = Some(NodeId(2));
        assert_eq!(child.await.unwrap(), [two, two, None, None, None]);
        assert!(os.set_affinity(&[]).await.is_err() && os.set_affinity(&[CpuId(77)]).await.is_err());
        for nowhere in [Mempolicy::Bind(Vec::new()), Mempolicy::Preferred(NodeId(7))] {
            assert!(os.set_mempolicy(&nowhere).await.is_err(), "{nowhere:?}");
        }
    });
}

#[test]
fn accesses_end_with_their_time_and_computing_takes_its_own() {
    let config = Config { prices: Prices::new(|_| Picos::from_nanos(100)), ..machine() };
    let ((), finish) = simulate(&config, no_entries, async |os: Sim| {
        let range = os.mmap(Bytes::mib(1), MapSpec::Anonymous).await.unwrap();
        os.store(range, Bytes::PAGE).await.unwrap();
        let span = Picos::from_micros(9_000);
        let begin = os.now();
        os.compute(span).await;
        assert_eq!(os.now().since(begin), span);
        let done = os.access(range, Pattern::Random, Amount::Time(span)).await.unwrap();
        let longest = latency().load[0][2];
        assert!(done.time >= span && done.time < span + longest, "{done:?}");
        assert_eq!(done.accesses, span.0.div_ceil(latency().load[0][0].0));
        os.hint(range).await.unwrap();
        os.access(range, Pattern::Random, Amount::Rounds(3)).await.unwrap();
        assert!(os.now() > Time(0));
    });
    assert_eq!(finish.counters.get(Event::NumaHintFaults), 256);
    assert_eq!(finish.counters.get(Event::NumaHintFaultsLocal), 256);
}

/// Threads of each node that sweep over memory of one node, and what they get of it, in bytes; and the steps of the run.
fn sweeps(config: &Config, threads: &'static [(u32, u32)], ms: u64) -> (Vec<u64>, u64) {
    sweeps_of(config, Pattern::Sweep, threads, ms)
}

fn sweeps_of(config: &Config, pattern: Pattern, threads: &'static [(u32, u32)], ms: u64) -> (Vec<u64>, u64) {
    let (bytes, _, extra) = sim::simulate_with(config, sim::Options::default(), no_entries, async move |os: Sim| {
        let barrier = os.barrier(u32::try_from(threads.len()).unwrap()).await.unwrap();
        let body = |(cpu, to): (u32, u32)| {
            async move |os: Sim| {
                os.set_affinity(&[CpuId(cpu)]).await.unwrap();
                os.set_mempolicy(&Mempolicy::Bind(vec![NodeId(to)])).await.unwrap();
                let range = os.mmap(Bytes::mib(4), MapSpec::Anonymous).await.unwrap();
                os.store(range, Bytes::PAGE).await.unwrap();
                os.arrive(barrier).await.unwrap();
                let span = Picos::from_micros(ms * 1000);
                os.access(range, pattern, Amount::Time(span)).await.unwrap().accesses * 64
            }
        };
        let tasks: Vec<_> = threads.iter().map(|place| os.spawn(Placement::Free, body(*place))).collect();
        let mut bytes = Vec::new();
        for task in tasks {
            bytes.push(task.await.unwrap());
        }
        bytes
    });
    (bytes, extra.steps)
}

#[test]
fn sweeps_share_the_bandwidth_of_a_node_or_link() {
    // A line takes 8 ns near and 16 ns far: 8 and 4 GB/s.
    let by_place =
        |near, far| (0..3).map(|from| (0..3).map(|to| if from == to { near } else { far }).collect()).collect();
    let line = by_place(Picos::from_nanos(8), Picos::from_nanos(16));
    let latency = Latency { line, ..latency() };
    let gb = |rate: u64| BytesPerSecond::new(Bytes(rate * 1_000_000_000)).unwrap();
    let within = |found: u64, wanted: u64| assert!(found.abs_diff(wanted) * 100 <= wanted * 2, "{found}, not {wanted}");
    let free = Config { latency: latency.clone(), ..machine() };
    let threads: &[(u32, u32)] = &[(0, 0), (1, 0), (2, 0), (4, 2)];
    let (alone, steps_alone) = sweeps(&free, threads, 400);
    for (bytes, rate) in alone.iter().zip([8, 8, 4, 8]) {
        within(*bytes, rate * 400_000_000);
    }
    // Twelve of twenty: who wants four gets them.
    let limited = Config { bandwidth: vec![(NodeId(0), gb(12))], ..free.clone() };
    let (shared, steps) = sweeps(&limited, threads, 400);
    for (bytes, rate) in shared.iter().zip([4, 4, 4, 8]) {
        within(*bytes, rate * 400_000_000);
    }
    assert!(steps < steps_alone + 1_000, "{steps} steps, {steps_alone} without a limit");
    // Node 1's link to node 0 carries one, and leaves the others more.
    let mut links: Vec<Vec<Picos>> = by_place(Picos(0), Picos(0));
    links[1][0] = gb(1).takes(Bytes::PAGE);
    let linked = Config { latency: Latency { links, ..latency }, ..limited };
    let (bytes, _) = sweeps(&linked, threads, 400);
    for (bytes, tenths) in bytes.iter().zip([55, 55, 10, 80]) {
        within(*bytes, tenths * 40_000_000);
    }
}

/// A thread of node 0 and one of node 1 sweep a hundred times over the same 4 MiB of node 0, the second one half as fast.
fn near_and_far(limit: Option<u64>) -> (Result<units::Streamed, units::Errno>, sim::Samples) {
    let nanos = |from, to| Picos::from_nanos(if from == to { 8 } else { 16 });
    let line = (0..3).map(|from| (0..3).map(|to| nanos(from, to)).collect()).collect();
    let gb = |rate: u64| BytesPerSecond::new(Bytes(rate * 1_000_000_000)).unwrap();
    let bandwidth = limit.map(|limit| (NodeId(0), gb(limit))).into_iter().collect();
    let config = Config { latency: Latency { line, ..latency() }, bandwidth, ..machine() };
    let options = sim::Options { sample: Some(Picos::from_micros(1000)), ..sim::Options::default() };
    let (streamed, _, extra) = sim::simulate_with(&config, options, no_entries, async |os: Sim| {
        os.set_affinity(&[CpuId(0)]).await.unwrap();
        let range = os.mmap(Bytes::mib(4), MapSpec::Anonymous).await.unwrap();
        os.store(range, Bytes::PAGE).await.unwrap();
        let before = os.streamed().await;
        let barrier = os.barrier(2).await.unwrap();
        let body = |cpu: u32| {
            async move |os: Sim| {
                os.set_affinity(&[CpuId(cpu)]).await.unwrap();
                os.arrive(barrier).await.unwrap();
                os.access(range, Pattern::Sweep, Amount::Rounds(100)).await.unwrap();
            }
        };
        for task in [0, 2].map(|cpu| os.spawn(Placement::Free, body(cpu))) {
            task.await.unwrap();
        }
        Ok(os.streamed().await?.since(&before?))
    });
    (streamed, extra.samples.expect("they were asked for"))
}

#[test]
fn sweeps_are_counted_by_place_and_by_what_limits_them() {
    let all = Bytes::mib(400);
    let (streamed, samples) = near_and_far(Some(1000));
    let streamed = streamed.unwrap();
    assert_eq!((streamed.near, streamed.far, streamed.by_core), (all, all, Bytes::mib(800)), "{streamed:?}");
    let column = |name: &str| {
        let at = samples.names.iter().position(|known| known == name).unwrap_or_else(|| panic!("no {name}"));
        samples.rows.iter().map(|(_, values)| values[at]).collect::<Vec<_>>()
    };
    let far_behind = column("node1/sweeps_behind_mib");
    // 8 and 4 GB/s: the second one falls behind until the first one is at its end, and is alone from then on.
    let most = *far_behind.iter().max().unwrap();
    assert!((150..=200).contains(&most) && far_behind.ends_with(&[0]), "{far_behind:?}");
    assert!(column("node0/sweeps_behind_mib").iter().all(|mib| *mib == 0));
    assert!(column("node2/sweeps").iter().all(|tasks| *tasks == 0));
    // Two that want twelve of six.
    let (streamed, _) = near_and_far(Some(6));
    let streamed = streamed.unwrap();
    assert_eq!((streamed.near, streamed.far), (all, all));
    assert!(streamed.by_node > Bytes::mib(500) && streamed.by_link == Bytes(0), "{streamed:?}");
    assert_eq!(streamed.limits().iter().map(|(_, bytes)| bytes.0).sum::<u64>(), streamed.total().0);
    // Where nothing limits sweeps, nobody counts them.
    let (streamed, samples) = near_and_far(None);
    assert_eq!(streamed, Err(units::Errno::NOSYS));
    assert!(!samples.names.iter().any(|name| name.contains("sweeps")));
}

#[test]
fn two_that_share_a_cpu_have_half_of_it_each() {
    let (shares, _) = simulate(&machine(), no_entries, async |os: Sim| {
        let body = async |os: Sim| {
            let range = os.mmap(Bytes::mib(2), MapSpec::Anonymous).await.unwrap();
            os.store(range, Bytes::PAGE).await.unwrap();
            os.access(range, Pattern::Sweep, Amount::Time(Picos::from_micros(400_000))).await.unwrap().accesses
        };
        let tasks = [os.spawn(Placement::Spread(1), body), os.spawn(Placement::Spread(1), body)];
        let mut shares = Vec::new();
        for task in tasks {
            shares.push(task.await.unwrap());
        }
        shares
    });
    let (less, more) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    assert!(more - less < more / 5, "{shares:?}");
}

#[test]
fn accesses_to_runs_leave_alone_what_lies_between() {
    let (resident, _) = simulate(&machine(), no_entries, async |os: Sim| {
        let range = os.mmap(Bytes(20 * 4096), MapSpec::Anonymous).await.unwrap();
        let runs = Runs { range, len: Bytes(2 * 4096), every: Bytes(8 * 4096) };
        for (pattern, accesses) in [(Pattern::Sweep, 6 * 64), (Pattern::Lines(3), 6 * 3)] {
            let done = os.access_runs(runs, pattern, Amount::Rounds(2)).await.unwrap();
            assert_eq!(done.accesses, 2 * accesses);
        }
        os.mincore(range).await.unwrap()
    });
    let there: Vec<usize> = (0..20).filter(|page| resident[*page]).collect();
    assert_eq!(there, [0, 1, 8, 9, 16, 17]);
}

/// Node 0 serves 12 GB/s, and each of its two CPUs stores at 8 GB/s, over a range that the cache would hold.
#[test]
fn stores_past_caches_and_to_fresh_memory_take_bandwidth_whatever_the_cache_holds() {
    let all = |ns: u64| vec![vec![Picos::from_nanos(ns); 3]; 3];
    let cache = Some(LastCache { size: Bytes::mib(64), load: Picos(1_000) });
    let latency = Latency { load: all(80), line: all(8), cache, ..Latency::default() };
    let limit = BytesPerSecond::new(Bytes(12_000_000_000)).unwrap();
    let prices = Prices::new(|work| if work == Work::UserFill { Picos::from_nanos(100) } else { Picos(0) });
    let config = Config { latency, prices, bandwidth: vec![(NodeId(0), limit)], ..machine() };
    let found = |pattern| sweeps_of(&config, pattern, &[(0, 0), (1, 0)], 400).0;
    // From the cache: 4 KiB in 100 ns. Past it: 6 GB/s each. Lines that are read and written back: half of that.
    for (pattern, megabytes) in [(Pattern::Sweep, 16_384), (Pattern::NonTemporal, 2_400), (Pattern::Fresh, 1_200)] {
        for bytes in found(pattern) {
            let (wanted, what) = (megabytes * 1_000_000, format!("{pattern:?}: {bytes}"));
            assert!(bytes.abs_diff(wanted) * 50 <= wanted, "{what}");
        }
    }
}

#[test]
fn bzero_of_2013_goes_past_caches_beyond_a_share_of_the_cache() {
    let cache = Some(LastCache { size: Bytes::mib(3), load: Picos(1_000) });
    let pairs: Vec<Vec<CpuId>> = (0..NODES).map(|node| vec![CpuId(2 * node), CpuId(2 * node + 1)]).collect();
    let latency = Latency { cache, ..latency() };
    let of = |release: &str| {
        let rules = *rules::variant::named(release);
        let config = Config { latency: latency.clone(), caches: pairs.clone(), variant: rules, ..machine() };
        let sizes = [1152, 1153, 1536, 1537].map(Bytes::kib);
        simulate(&config, no_entries, async move |os: Sim| sizes.map(|size| os.bzero(size))).0
    };
    let (cached, past) = (Stores::Cached, Stores::NonTemporal);
    assert_eq!(of("v3.9"), [cached, cached, cached, past], "half of 3 MiB");
    assert_eq!(of("v3.16"), [cached; 4]);
    assert_eq!(of("v6.1"), [cached; 4]);
    assert_eq!(of("v6.10"), [cached, past, past, past], "three quarters of that half");
}

/// The time of computing and of a round of loads on CPU 0, while CPU 1 of the same core and cache is busy or not.
fn beside(sharing: Option<Sharing>, is_busy: bool) -> (Picos, Picos) {
    let cache = Some(LastCache { size: Bytes(PAGES * 4096), load: Picos(1_000) });
    let latency = Latency { cache, sharing, ..latency() };
    let pairs: Vec<Vec<CpuId>> = (0..NODES).map(|node| vec![CpuId(2 * node), CpuId(2 * node + 1)]).collect();
    let config = Config { latency, cores: pairs.clone(), caches: pairs, ..machine() };
    let (times, _) = simulate(&config, no_entries, async move |os: Sim| {
        let measured = os.spawn(Placement::Free, async |os: Sim| {
            os.set_affinity(&[CpuId(0)]).await.unwrap();
            let range = os.mmap(Bytes(PAGES * 4096), MapSpec::Anonymous).await.unwrap();
            os.store(range, Bytes::PAGE).await.unwrap();
            os.sleep(Picos::from_micros(10_000)).await;
            let begin = os.now();
            os.compute(Picos::from_micros(20_000)).await;
            let middle = os.now();
            os.access(range, Pattern::Random, Amount::Rounds(100)).await.unwrap();
            (middle.since(begin), os.now().since(middle))
        });
        let other = os.spawn(Placement::Free, async move |os: Sim| {
            os.set_affinity(&[CpuId(1)]).await.unwrap();
            os.compute(if is_busy { Picos::from_micros(500_000) } else { Picos(1) }).await;
        });
        let times = measured.await.unwrap();
        other.await.unwrap();
        times
    });
    times
}

#[test]
fn busy_cpus_share_core_and_cache_on_such_machines() {
    let sharing = Some(Sharing { core_percent: 160, uneven_percent: None });
    let (compute, loads) = beside(sharing, false);
    assert_eq!(compute, Picos::from_micros(20_000));
    assert_eq!(loads, Picos(100 * PAGES * 1_000), "all in the cache");
    let (slow, half) = beside(sharing, true);
    // But for what is interrupted and switched to meanwhile.
    let within =
        |found: Picos, wanted: u64| assert!(found.0.abs_diff(wanted) * 1_000 <= wanted, "{found:?}, not {wanted}");
    within(slow, Picos::from_micros(32_000).0);
    // Half of the loads are from memory.
    within(half, 100 * PAGES * (500 + 80_000 / 2));
    assert_eq!(beside(None, true), (compute, loads), "machines that do not say so have no such thing");
}
