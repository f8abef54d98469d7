//! Linux: none.
//!
//! Faults under each policy, page by page, on a machine of four nodes.

use memory::{
    cost::Prices,
    cx::Cx,
    event::{Counters, Event},
    frame::Frame,
    step::Step,
};
use rules::{
    gfp::{AllocRequest, Mobility},
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    mempolicy::{Mempolicy, NodeMask},
    variant::{ThpNodes, Variant, named, patched},
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Order, Pfn, Time, Vpn};

use crate::{
    Mm,
    fault::{Access, FaultDone, touch::Touch},
    folio::pte::Pte,
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        vma::{HugeAdvice, PageRange},
    },
    thp::{HugeGot, HugeTry, ThpEnabled, huge_request},
};

const FRAMES: u32 = 4096;

/// Four nodes of 16 MiB in a row, a CPU each: the farther, the greater the distance.
struct World {
    mm: Mm,
    space: AddressSpace,
    counters: Counters,
}

impl World {
    fn new(rules: &str) -> Self {
        Self::by(*named(rules))
    }

    fn by(rules: Variant) -> Self {
        let node = |id: u32| NodeSpec {
            id: NodeId(id),
            cpus: vec![CpuId(id)],
            distance: (0..4_u32).map(|to| 10 + 10 * id.abs_diff(to)).collect(),
            zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(id * FRAMES), FRAMES)],
        };
        let nodes = (0..4).map(node).collect();
        let spec = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes };
        let settings = Settings { min_free_kbytes: 256, ..Settings::default() };
        let mut mm = Mm::new(&spec, rules, &settings);
        mm.thp.enabled = ThpEnabled::Never;
        let (mut counters, prices) = (Counters::default(), Prices::free());
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        let space = AddressSpace::new(&mut mm, &mut cx, MMAP_BASE).expect("there is room");
        Self { mm, space, counters }
    }

    /// Stores into each of `pages` new pages under a policy, on a CPU; returns the pages, and how the last step ended.
    fn fault(&mut self, policy: Mempolicy, cpu: u32, pages: u64) -> (PageRange, Step<FaultDone>) {
        let prices = Prices::free();
        let mut cx = Cx::new(CpuId(cpu), Time(0), &prices, &mut self.counters);
        let range = self.space.mmap(&mut self.mm, &mut cx, pages).expect("there is room");
        let mut touch = Touch::pages(range, Access::Write).under(policy);
        loop {
            let step = touch.step(&mut self.mm, &mut self.space, &mut cx, Time(u64::MAX));
            if step != Step::More {
                return (range, step);
            }
        }
    }

    fn node(&self, vpn: Vpn) -> Option<u32> {
        let pte = self.space.tables.lookup(vpn);
        (pte != Pte::NONE).then(|| self.mm.memory.node_of(pte.pfn()).0)
    }

    fn nodes(&self, range: PageRange) -> Vec<Option<u32>> {
        (range.start.0..range.end.0).map(|vpn| self.node(Vpn(vpn))).collect()
    }
}

fn mask(nodes: &[u32]) -> NodeMask {
    NodeMask::of(nodes.iter().copied().map(NodeId))
}

#[test]
fn memory_is_where_the_policy_says() {
    for rules in ["v4.1", "v4.20", "v6.1"] {
        let mut world = World::new(rules);
        for (policy, cpu, node) in [
            (Mempolicy::Local, 2, 2),
            (Mempolicy::Preferred(NodeId(3)), 0, 3),
            (Mempolicy::Bind(mask(&[1])), 0, 1),
            // The nearest of those that are allowed, from where the task runs.
            (Mempolicy::Bind(mask(&[0, 2])), 3, 2),
            (Mempolicy::Bind(mask(&[0, 2])), 0, 0),
        ] {
            let (range, done) = world.fault(policy, cpu, 40);
            assert_eq!(done, Step::Done(FaultDone::Handled));
            assert_eq!(world.nodes(range), vec![Some(node); 40], "{rules}: {policy:?} on CPU {cpu}");
        }
    }
}

#[test]
fn interleaving_goes_by_page_number() {
    let mut world = World::new("v6.1");
    let nodes = [0, 2, 3];
    for _ in 0..3 {
        let (range, _) = world.fault(Mempolicy::Interleave(mask(&nodes)), 1, 31);
        for vpn in range.start.0..range.end.0 {
            let place = usize::try_from(vpn % 3).unwrap();
            assert_eq!(world.node(Vpn(vpn)), Some(nodes[place]), "page {vpn}");
        }
    }
    // The node is the one that was wanted.
    assert_eq!(world.counters.get(Event::NumaMiss), 0);
}

#[test]
fn interleaving_huge_pages_goes_by_their_numbers() {
    let mut world = World::new("v6.1");
    world.mm.thp.enabled = ThpEnabled::Always;
    let (range, _) = world.fault(Mempolicy::Interleave(mask(&[1, 2])), 0, 512 * 5);
    let whole: Vec<u64> =
        (range.start.0..range.end.0).filter(|vpn| vpn % 512 == 0 && vpn + 512 <= range.end.0).collect();
    assert!(whole.len() >= 4);
    for vpn in whole {
        assert!(world.space.tables.lookup(Vpn(vpn)).is_huge(), "page {vpn}");
        assert_eq!(world.node(Vpn(vpn)), Some(1 + u32::try_from(vpn / 512 % 2).unwrap()), "page {vpn}");
    }
}

#[test]
fn bound_memory_runs_out_where_preferred_memory_goes_elsewhere() {
    let pages = u64::from(FRAMES) + 100;
    let mut world = World::new("v6.1");
    let (range, done) = world.fault(Mempolicy::Preferred(NodeId(1)), 1, pages);
    assert_eq!(done, Step::Done(FaultDone::Handled));
    let elsewhere = world.nodes(range).iter().filter(|node| **node != Some(1)).count();
    assert!(elsewhere > 100, "{elsewhere} pages are elsewhere");
    let mut world = World::new("v6.1");
    let (range, done) = world.fault(Mempolicy::Bind(mask(&[1])), 1, pages);
    assert_eq!(done, Step::Done(FaultDone::OutOfMemory));
    assert!(world.nodes(range).iter().all(|node| node.is_none_or(|node| node == 1)));
    assert_eq!(world.counters.get(Event::NumaMiss), 0);
}

#[test]
fn who_gets_huge_pages_from_other_nodes() {
    let (advised, plain) = (HugeAdvice::HugePage, HugeAdvice::Default);
    // Node 0 has no huge page, and a CPU of it asks.
    let got = |rules: &str, advice, which, policy| {
        let mut world = World::new(rules);
        let prices = Prices::free();
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut world.counters);
        let local = AllocRequest::gfp_transhuge_light(NodeId(0)).this_node();
        while world.mm.memory.alloc(&mut cx, &local).is_ok() {}
        match world.mm.try_huge(&mut cx, advice, which, (policy, Vpn(0))) {
            HugeGot::Frame(pfn) => Ok(world.mm.memory.node_of(pfn).0),
            other => Err(other),
        }
    };
    let (first, local) = (HugeTry::First, Mempolicy::Local);
    let again = Err(HugeGot::Next(HugeTry::Second));
    for (rules, of_advised, of_plain) in [
        ("v3.9", Ok(1), Ok(1)),
        ("v4.20-rc3", Ok(1), Err(HugeGot::Nothing)),
        ("v4.20", Err(HugeGot::Nothing), Err(HugeGot::Nothing)),
        ("v5.1", Err(HugeGot::Nothing), Err(HugeGot::Nothing)),
        ("v5.3", Ok(1), Err(HugeGot::Nothing)),
        ("v5.4", again, Err(HugeGot::Nothing)),
        ("v6.1", again, Err(HugeGot::Nothing)),
    ] {
        assert_eq!(got(rules, advised, first, local), of_advised, "{rules}");
        assert_eq!(got(rules, plain, first, local), of_plain, "{rules}");
        if of_advised == again {
            assert_eq!(got(rules, advised, HugeTry::Second, local), Ok(1), "{rules}");
        }
    }
    let nowhere_else = Mempolicy::Interleave(mask(&[0]));
    assert_eq!(got("v4.20", plain, first, nowhere_else), Ok(1), "as a base page");
    assert_eq!(got("v5.3", plain, first, nowhere_else), Err(HugeGot::Nothing), "from the node whose turn it is");
    let bound = Mempolicy::Bind(mask(&[0, 3]));
    assert_eq!(got("v4.20", plain, first, bound), Err(HugeGot::Nothing), "from the local node");
    assert_eq!(got("v5.3", plain, first, bound), Ok(3));
}

/// The policies that were argued about in 2018: does a fault get a huge page, from which node, in how many tries?
#[test]
fn who_gets_huge_pages_from_other_nodes_by_each_proposal() {
    // Node 0 has no huge page, and next to no base page either, or enough of them.
    let got = |patches: &[u32], advice, is_short: bool| {
        let mut world = World::by(patched("v4.18", patches));
        let prices = Prices::free();
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut world.counters);
        let local = AllocRequest::gfp_transhuge_light(NodeId(0)).this_node();
        let mut blocks = Vec::new();
        while let Ok(block) = world.mm.memory.alloc(&mut cx, &local) {
            blocks.push(block);
        }
        if !is_short {
            // In pieces, of which no two are one again.
            for block in blocks.drain(..3) {
                for n in 0..512 {
                    let kept = Frame::Kernel { order: Order::BASE, mobility: Mobility::Movable };
                    world.mm.memory.frames.set(block.plus(n), kept);
                }
                for n in (0..512).step_by(2) {
                    world.mm.memory.free(&mut cx, block.plus(n), Order::BASE);
                }
            }
        }
        let mut which = HugeTry::First;
        loop {
            match world.mm.try_huge(&mut cx, advice, which, (Mempolicy::Local, Vpn(0))) {
                HugeGot::Frame(pfn) => return Some((world.mm.memory.node_of(pfn).0, which)),
                HugeGot::Next(next) => which = next,
                HugeGot::Nothing | HugeGot::Asked => return None,
            }
        }
    };
    let (advised, plain) = (HugeAdvice::HugePage, HugeAdvice::Default);
    let (first, second) = (Some((1, HugeTry::First)), Some((1, HugeTry::Second)));
    let proposals: [(&[u32], _, _, _, _); 11] = [
        (&[], None, None, None, None),
        (&[1], first, first, None, None),
        (&[2], None, None, None, None),
        (&[3], second, None, second, None),
        (&[4], None, None, None, None),
        (&[5], second, second, second, second),
        (&[6], second, second, None, None),
        (&[6, 7], second, second, None, None),
        (&[8], first, first, None, None),
        (&[9], None, None, None, None),
        (&[10], None, None, None, None),
    ];
    for (patches, of_advised, of_advised_with_room, of_plain, of_plain_with_room) in proposals {
        assert_eq!(got(patches, advised, true), of_advised, "{patches:?}");
        assert_eq!(got(patches, advised, false), of_advised_with_room, "{patches:?}");
        assert_eq!(got(patches, plain, true), of_plain, "{patches:?}");
        assert_eq!(got(patches, plain, false), of_plain_with_room, "{patches:?}");
    }
}

/// With `defrag` at `always`, mappings without advice reclaim too: two ways to accept far memory, and one to refuse it, differ.
#[test]
fn advice_is_not_the_same_as_reclaim() {
    let only = |patch, advice| {
        let mut world = World::by(patched("v4.18", &[patch]));
        world.mm.thp.defrag = rules::variant::ThpDefrag::Always;
        let wish = world.mm.thp_request(NodeId(0), advice);
        assert!(wish.reclaims);
        huge_request(world.mm.memory.variant().thp_nodes, HugeTry::First, wish, advice == HugeAdvice::HugePage)
            .this_node_only
    };
    let both = |patch| [HugeAdvice::HugePage, HugeAdvice::Default].map(|advice| only(patch, advice));
    assert_eq!([1, 8, 10].map(both), [[false, false], [false, true], [true, false]]);
}

#[test]
fn the_light_try_is_second_in_5_4_and_first_after() {
    let wish = AllocRequest { reclaims: true, ..AllocRequest::gfp_transhuge_light(NodeId(0)) };
    let tries = |rules: ThpNodes| {
        [HugeTry::First, HugeTry::Second].map(|which| {
            let request = huge_request(rules, which, wish, true);
            (request.this_node_only, request.no_retry)
        })
    };
    assert_eq!(tries(ThpNodes::LocalThenOnce), [(true, false), (false, true)]);
    assert_eq!(tries(ThpNodes::LocalFirst), [(true, true), (false, false)]);
    assert_eq!(tries(ThpNodes::Local)[0], (true, false));
}
