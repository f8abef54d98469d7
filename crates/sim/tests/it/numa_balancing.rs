//! Automatic NUMA balancing: memory comes over to the node whose tasks use it, as 3.9 has it and with the patches of July 2013.

use memory::{cost::Latency, event::Event};
use mm::thp::ThpEnabled;
use os::{Amount, MapSpec, Os, Pattern, Placement, VmRange};
use rules::{
    machine::{NodeSpec, ZoneSpec},
    variant,
    zone::ZoneKind,
};
use sim::{Config, Finish, Sim, simulate};
use units::{Bytes, CpuId, NodeId, Pfn, Picos};

use crate::support::{self, no_entries};

const FRAMES: u32 = 65536;

/// Two nodes of 256 MiB, two CPUs each.
fn machine(rules: &str, thp_enabled: ThpEnabled, settings: &[(&str, &str)]) -> Config {
    let mut config = support::machine(4, FRAMES);
    let node = |id: u32| NodeSpec {
        id: NodeId(id),
        cpus: vec![CpuId(id * 2), CpuId(id * 2 + 1)],
        distance: (0..2_u32).map(|to| if to == id { 10 } else { 20 }).collect(),
        zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(id * FRAMES), FRAMES)],
    };
    config.machine.nodes = (0..2).map(node).collect();
    config.caches = (0..2).map(|id| vec![CpuId(id * 2), CpuId(id * 2 + 1)]).collect();
    let (near, far) = (Picos(80_000), Picos(140_000));
    config.latency = Latency { load: vec![vec![near, far], vec![far, near]], ..Latency::default() };
    let base = rules.split('+').next().unwrap();
    config.variant = if base == rules { *variant::named(rules) } else { patched(rules) };
    config.thp_enabled = thp_enabled;
    config.cap = Bytes::mib(256);
    config.settings.set("kernel.numa_balancing", "1").unwrap();
    for (name, value) in settings {
        config.settings.set(name, value).unwrap();
    }
    config
}

fn patched(name: &str) -> variant::Variant {
    let (base, patches) = variant::split_patches(name).unwrap();
    variant::patched(base, &patches)
}

fn seconds(n: u64) -> Amount {
    Amount::Time(Picos::from_secs(n))
}

/// Pages of a range on node 1.
async fn come_over(os: &Sim, range: VmRange) -> usize {
    os.node_of(range).await.unwrap().iter().filter(|node| **node == Some(NodeId(1))).count()
}

/// Adds as many base pages as take all earlier pages out of the CPU's batch of new pages: who is in it cannot be moved.
async fn empty_batch(os: &Sim) {
    let others = os.mmap(Bytes::kib(128), MapSpec::Anonymous).await.unwrap();
    os.store(others, Bytes::PAGE).await.unwrap();
}

/// A task uses its memory on node 0 for a while, and then on node 1: how many pages have come over, of 8,192.
fn follow(config: &Config) -> (usize, Finish) {
    simulate(config, no_entries, async |os: Sim| {
        let task = os.spawn(Placement::Free, async move |os: Sim| {
            os.set_affinity(&[CpuId(0)]).await.unwrap();
            // No table has pages of the stack, too.
            let mapping = os.mmap(Bytes::mib(34), MapSpec::Anonymous).await.unwrap();
            let range = mapping.aligned_part(Bytes::HUGE_PAGE, Bytes::mib(32));
            os.store(range, Bytes::PAGE).await.unwrap();
            empty_batch(&os).await;
            os.access(range, Pattern::Sweep, seconds(2)).await.unwrap();
            assert_eq!(come_over(&os, range).await, 0);
            os.set_affinity(&[CpuId(2)]).await.unwrap();
            os.access(range, Pattern::Sweep, seconds(20)).await.unwrap();
            let pages = come_over(&os, range).await;
            os.munmap(mapping).await.unwrap();
            pages
        });
        task.await.unwrap()
    })
}

#[test]
fn memory_follows_its_task_to_another_node() {
    for thp in [ThpEnabled::Always, ThpEnabled::Never] {
        let (pages, finish) = follow(&machine("v3.9", thp, &[]));
        let of = |event| finish.counters.get(event);
        // A few were not on their lists yet when it was their turn.
        assert!(pages >= 8170, "{pages} pages have come, {thp:?}");
        assert_eq!([Event::NumaPagesMigrated, Event::PgmigrateSuccess].map(of), [pages as u64; 2]);
        assert!(of(Event::NumaHintFaultsLocal) > 0 && of(Event::NumaHintFaults) > of(Event::NumaHintFaultsLocal));
    }
}

/// Base pages that a process of two threads has besides its own memory.
fn besides(config: &Config) -> i64 {
    simulate(config, no_entries, async |os: Sim| {
        let before = os.vmstat().await.unwrap();
        let threads: Vec<_> = (0..2).map(|_| os.spawn(Placement::Free, async |os: Sim| os.now())).collect();
        for thread in threads {
            thread.await.unwrap();
        }
        os.vmstat().await.unwrap().since(&before)["pgfault"]
    })
    .0
}

#[test]
fn threads_have_stacks_where_rules_choose_among_vmas() {
    assert_eq!(besides(&machine("v3.9", ThpEnabled::Always, &[])), 2 * 3);
    assert_eq!(besides(&machine("v3.9", ThpEnabled::Always, &[("kernel.numa_balancing", "0")])), 0);
}

#[test]
fn without_it_memory_stays() {
    let (pages, finish) = follow(&machine("v3.9", ThpEnabled::Always, &[("kernel.numa_balancing", "0")]));
    assert_eq!((pages, finish.counters.get(Event::NumaPteUpdates)), (0, 0));
}

/// Threads of a process go through all of its memory again and again, each at its own pace, on all CPUs.
fn share(config: &Config) -> Finish {
    let ((), finish) = simulate(config, no_entries, async |os: Sim| {
        let mapping = os.mmap(Bytes::mib(66), MapSpec::Anonymous).await.unwrap();
        let range = mapping.aligned_part(Bytes::HUGE_PAGE, Bytes::mib(64));
        os.fill(range).await.unwrap();
        empty_batch(&os).await;
        let thread = |index: u32| {
            os.spawn(Placement::Free, async move |os: Sim| {
                os.compute(Picos::from_micros(u64::from(index) * 300)).await;
                os.access(range, Pattern::Sweep, seconds(30)).await.unwrap();
            })
        };
        let threads: Vec<_> = (0..4).map(thread).collect();
        for thread in threads {
            thread.await.unwrap();
        }
        os.munmap(mapping).await.unwrap();
    });
    finish
}

#[test]
fn racing_threads_all_count_and_the_series_makes_faults_fewer() {
    let counts = |rules: &str| {
        let finish = share(&machine(rules, ThpEnabled::Always, &[]));
        [Event::NumaPteUpdates, Event::NumaHintFaults, Event::NumaHintFaultsLocal, Event::NumaPagesMigrated]
            .map(|event| finish.counters.get(event))
    };
    let [vanilla, scanshared] = ["v3.9", "v3.9+1-14"].map(counts);
    for [updates, faults, local, moved] in [vanilla, scanshared] {
        assert!(faults > local && local > 0 && moved > 0);
        // A huge PMD counts 512; each racing thread counts its fault. (Beside it there are absent entries of the stacks' tables.)
        assert!(faults > updates / 512 * 9 / 10);
    }
    assert!(
        scanshared[0] <= vanilla[0] && scanshared[1] < vanilla[1],
        "periods of a whole task: {scanshared:?} {vanilla:?}"
    );
}

#[test]
fn from_3_16_on_memory_follows_its_task_too() {
    for (rules, thp) in [
        ("v3.16", ThpEnabled::Always),
        ("v4.1", ThpEnabled::Never),
        ("v4.19", ThpEnabled::Always),
        ("v5.8", ThpEnabled::Never),
        ("v6.1", ThpEnabled::Always),
        ("v6.1", ThpEnabled::Never),
    ] {
        let (pages, finish) = follow(&machine(rules, thp, &[]));
        let of = |event| finish.counters.get(event);
        assert!(pages >= 8170, "{pages} pages have come, {rules} {thp:?}");
        assert_eq!([Event::NumaPagesMigrated, Event::PgmigrateSuccess].map(of), [pages as u64; 2], "{rules}");
        assert!(of(Event::NumaHintFaults) >= of(Event::NumaHintFaultsLocal), "{rules} {thp:?}");
    }
}

/// Where two tasks run in the end, one on each CPU of as many nodes, each with memory on the other one's node that stays
/// there: it is pinned, or no node has room.
fn cross(rules: &str, pins: bool) -> Vec<Option<NodeId>> {
    let mut config = machine(rules, ThpEnabled::Always, &[]);
    for (node, spec) in config.machine.nodes.iter_mut().enumerate() {
        spec.cpus = vec![CpuId(u32::try_from(node).unwrap())];
    }
    (config.cpus, config.caches, config.cap) = (2, vec![vec![CpuId(0)], vec![CpuId(1)]], Bytes::mib(600));
    let (places, _) = simulate(&config, no_entries, async move |os: Sim| {
        let rest = Bytes::mib(if pins { 2 } else { 220 });
        for node in 0..2 {
            os.set_affinity(&[CpuId(node)]).await.unwrap();
            let range = os.mmap(rest, MapSpec::Anonymous).await.unwrap();
            os.store(range, Bytes::PAGE).await.unwrap();
        }
        let task = |node: u32| {
            os.spawn(Placement::Free, async move |os: Sim| {
                os.set_affinity(&[CpuId(1 - node)]).await.unwrap();
                let range = os.mmap(Bytes::mib(32), MapSpec::Anonymous).await.unwrap();
                os.store(range, Bytes::PAGE).await.unwrap();
                if pins {
                    os.pin(range).await.unwrap();
                }
                os.set_affinity(&[CpuId(node)]).await.unwrap();
                os.set_affinity(&[CpuId(0), CpuId(1)]).await.unwrap();
                os.access(range, Pattern::Sweep, seconds(20)).await.unwrap();
                // A new page is where its task runs.
                let page = os.mmap(Bytes::PAGE, MapSpec::Anonymous).await.unwrap();
                os.store(page, Bytes::PAGE).await.unwrap();
                os.node_of(page).await.unwrap()[0]
            })
        };
        let tasks: Vec<_> = (0..2).map(task).collect();
        let mut places = Vec::new();
        for task in tasks {
            places.push(task.await.unwrap());
        }
        places
    });
    places
}

#[test]
fn tasks_whose_memory_cannot_move_swap_their_places() {
    let (as_they_were, swapped) = ([Some(NodeId(0)), Some(NodeId(1))], [Some(NodeId(1)), Some(NodeId(0))]);
    for rules in ["v3.16", "v4.19", "v5.8"] {
        assert_eq!(cross(rules, true), swapped, "{rules}");
    }
    // Since 5.14 the entry of a page that is tried in vain is another one afterwards, so that its fault does not count.
    assert_eq!(cross("v6.1", true), as_they_were);
    assert_eq!(cross("v6.1", false), swapped);
    assert_eq!(cross("v3.9", true), as_they_were, "3.9 places no tasks");
}

#[test]
fn shared_pages_stay_where_most_used_and_periods_grow() {
    let finish = share(&machine("v6.1", ThpEnabled::Always, &[]));
    let of = |event| finish.counters.get(event);
    let [updates, faults, local, moved] =
        [Event::NumaPteUpdates, Event::NumaHintFaults, Event::NumaHintFaultsLocal, Event::NumaPagesMigrated].map(of);
    assert!(updates > 0 && faults > local && local > 0, "{updates} {faults} {local} {moved}");
    let finish = share(&machine("v3.9", ThpEnabled::Always, &[]));
    assert!(updates < finish.counters.get(Event::NumaPteUpdates), "periods of a whole task, and of those that share");
}
