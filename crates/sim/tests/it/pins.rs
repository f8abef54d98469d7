//! Memory that is given to a device: more of it than a node has, by the policies for huge pages that were argued about in 2018.

use memory::event::Event;
use mm::{
    swap::{SwapMedium, SwapSpec},
    thp::ThpEnabled,
};
use os::{Advice, MapSpec, Os};
use rules::{
    machine::{NodeSpec, ZoneSpec},
    variant,
    zone::ZoneKind,
};
use sim::{Config, Finish, Sim, simulate};
use units::{Bytes, CpuId, Errno, NodeId, Pfn, Picos};

use crate::support::{self, no_entries};

/// Frames of a node: 128 MiB.
const FRAMES: u32 = 32 << 10;

/// Two nodes of two CPUs, and a device to swap to.
fn machine(patches: &[u32]) -> Config {
    let mut config = support::machine(4, FRAMES);
    let node = |id: u32| NodeSpec {
        id: NodeId(id),
        cpus: vec![CpuId(id * 2), CpuId(id * 2 + 1)],
        distance: if id == 0 { vec![10, 21] } else { vec![21, 10] },
        zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(id * FRAMES), FRAMES)],
    };
    config.machine.nodes = (0..2).map(node).collect();
    config.variant = variant::patched("v4.18", patches);
    config.settings.min_free_kbytes = 4096;
    config.thp_enabled = ThpEnabled::Madvise;
    config.swap = Some(SwapSpec { size: Bytes::mib(64), medium: SwapMedium::Memory });
    config
}

/// The places of pages: how many are on each node, and how many of both are huge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    nodes: [usize; 2],
    huge: u64,
}

/// Pins a guest of `mib` MiB on a CPU of node 0. Returns the time, the nodes of its memory, and the counters.
fn pin(patches: &[u32], mib: u64) -> (Picos, Places, Finish) {
    let ((time, nodes), finish) = simulate(&machine(patches), no_entries, async move |os: Sim| {
        os.set_affinity(&[CpuId(0)]).await.unwrap();
        let range = os.mmap(Bytes::mib(mib), MapSpec::Anonymous).await.unwrap();
        os.madvise(range, Advice::HugePage).await.unwrap();
        let start = os.now();
        os.pin(range).await.unwrap();
        let time = os.now().since(start);
        let nodes = os.node_of(range).await.unwrap();
        (time, [0, 1].map(|id| nodes.iter().filter(|node| **node == Some(NodeId(id))).count()))
    });
    let places = Places { nodes, huge: finish.counters.get(Event::ThpFaultAlloc) };
    (time, places, finish)
}

fn count(finish: &Finish, event: Event) -> u64 {
    finish.counters.get(event)
}

#[test]
fn a_guest_that_fits_a_node_ignores_the_policy() {
    let (time, places, vanilla) = pin(&[], 96);
    assert_eq!(places.nodes, [96 * 256, 0]);
    for patches in [&[1][..], &[2], &[3], &[4], &[5], &[6], &[6, 7], &[8], &[9], &[10], &[11]] {
        let other = pin(patches, 96);
        assert_eq!((other.0, other.1), (time, places), "{patches:?}");
        assert_eq!(count(&other.2, Event::AllocstallMovable), count(&vanilla, Event::AllocstallMovable));
    }
}

/// Each fault beyond the node reclaims to the last priority in vain, as compaction does not even begin. That it would not try
/// hard changes nothing; that it never reclaims, or goes elsewhere, everything.
#[test]
fn a_guest_larger_than_a_node_storms_unless_reclaim_is_off() {
    let (storm, _, vanilla) = pin(&[], 160);
    let (stalls, fallbacks) = (count(&vanilla, Event::AllocstallMovable), count(&vanilla, Event::ThpFaultFallback));
    assert!(fallbacks > 10 && stalls == fallbacks, "{stalls} stalls in {fallbacks} faults");
    assert_eq!(count(&vanilla, Event::SimCompactDeferred), 0);
    assert_eq!(count(&vanilla, Event::SimCompactSkipped), 2 * fallbacks, "before reclaim, and after it");
    assert_eq!(count(&vanilla, Event::PgstealDirect), 0, "nothing of a pinned page can go");
    let compare = |patches: &[u32]| {
        let (time, places, finish) = pin(patches, 160);
        (storm.0 as f64 / time.0 as f64, places.huge, count(&finish, Event::AllocstallMovable))
    };
    let huge = count(&vanilla, Event::ThpFaultAlloc);
    let (times, its_huge, its_stalls) = compare(&[4]);
    assert!(times < 1.1 && its_huge == huge && its_stalls == stalls, "__GFP_NORETRY alone: {times}");
    for stays in [&[2][..], &[9], &[11]] {
        let (times, its_huge, its_stalls) = compare(stays);
        assert!(times > 3.0 && its_huge == huge && its_stalls == 0, "{stays:?}: {times} times as fast");
    }
    for goes in [&[1][..], &[3], &[5], &[6], &[6, 7], &[8]] {
        let (times, its_huge, its_stalls) = compare(goes);
        assert!(times > 3.0 && its_huge > huge + fallbacks / 2 && its_stalls == 0, "{goes:?}: {times} times as fast");
    }
    let (times, its_huge, _) = compare(&[10]);
    assert!(times < 1.1 && its_huge == huge, "whoever insists on the node has the storm: {times}");
}

#[test]
fn what_cannot_be_pinned_says_why() {
    let (results, _) = simulate(&machine(&[]), no_entries, async |os: Sim| {
        let file = os.create("f").await.unwrap();
        os.truncate(file, Bytes::mib(1)).await.unwrap();
        let part = os::FileRange { file, offset: Bytes(0) };
        let mapped = os.mmap(Bytes::mib(1), MapSpec::Shared(part)).await.unwrap();
        let gone = os.mmap(Bytes::mib(1), MapSpec::Anonymous).await.unwrap();
        os.munmap(gone).await.unwrap();
        (os.pin(mapped).await, os.pin(gone).await)
    });
    assert_eq!(results, (Err(Errno::OPNOTSUPP), Err(Errno::FAULT)));
}
