//! Linux: none (`memory/last_fault/sharing.rs`).

use super::*;

/// The rules of the series with the detection of false sharing.
fn detects() -> Variant {
    patched("v3.9", &(1..=17).collect::<Vec<_>>())
}

/// Two tasks on nodes 0 and 1 fault in turn, each at its own base page of a huge page of node 0, `times` times.
fn in_turn(world: &mut World, pages: [u64; 2], times: usize) -> Vpn {
    let page = world.huge(1, 0).start;
    for _ in 0..times {
        for (task, at) in (0..2).zip(pages) {
            world.scan(100 * HUGE);
            world.fault(7 + task, task, page.plus(at));
        }
    }
    page
}

fn is_huge(world: &mut World, vpn: Vpn) -> bool {
    matches!(world.space().tables.pmd_of(vpn), Pmd::Huge(_))
}

#[test]
fn a_falsely_shared_huge_page_is_split() {
    let mut world = World::new(&detects(), &[]);
    let page = in_turn(&mut world, [0, 300], 1);
    assert!(is_huge(&mut world, page), "each was there once");
    for (task, at) in [(0, 0), (1, 300)] {
        world.scan(100 * HUGE);
        world.fault(7 + task, task, page.plus(at));
    }
    assert!(!is_huge(&mut world, page));
    assert_eq!(world.count(Event::ThpSplitPage), 1);
    // Base pages know the task of their part, and come to it with its next fault.
    for (task, at) in [(0, 0), (1, 300)] {
        world.scan(100 * HUGE);
        world.fault(7 + task, task, page.plus(at));
    }
    assert_eq!([0, 300].map(|at| world.node_of(page.plus(at))), [0, 1]);
    // Without the rule the page stays as it is.
    let mut world = World::new(&patched("v3.9", &(1..=16).collect::<Vec<_>>()), &[]);
    let page = in_turn(&mut world, [0, 300], 10);
    assert!(is_huge(&mut world, page));
}

#[test]
fn a_huge_page_shared_in_a_part_or_by_one_node_stays() {
    let mut world = World::new(&detects(), &[]);
    let page = in_turn(&mut world, [0, 3], 10);
    assert!(is_huge(&mut world, page), "both use the same part");
    let mut world = World::new(&detects(), &[]);
    let page = world.huge(1, 0).start;
    for _ in 0..10 {
        for (task, at) in [(7, 0), (8, 300)] {
            world.scan(100 * HUGE);
            world.fault(task, 1, page.plus(at));
        }
    }
    assert!(is_huge(&mut world, page), "both are of one node");
}

#[test]
fn later_rules_detect_it_by_the_nodes_of_cpus() {
    let mut world = World::new(&Variant { numa_splits_false_sharing: true, ..*named("v6.1") }, &[]);
    let page = in_turn(&mut world, [0, 300], 2);
    assert!(!is_huge(&mut world, page));
}

#[test]
fn base_pages_keep_the_last_fault_of_their_huge_page() {
    let mut world = World::new(&patched("v3.9", &(1..=16).collect::<Vec<_>>()), &[]);
    let page = world.huge(1, 0).start;
    world.scan(100 * HUGE);
    world.fault(7, 1, page);
    assert_eq!(world.node_of(page), 1, "it came with the first fault");
    let (id, head) = (world.id, world.space().tables.lookup(page).pfn());
    world.on(0, 0, |mm, _, cx| mm.lru_add_drain_all(cx));
    world.on(0, 0, |mm, spaces, cx| {
        mm.split_folio(spaces, cx, head);
        assert_eq!(spaces.get(id).unwrap().tables.lookup(page).pfn(), head);
    });
    for base in [0, 511] {
        let last = world.mm.memory.last_faults().unwrap().get(head.plus(base), Order::BASE);
        assert!(last.may_be(ControlId(7)), "page {base}");
    }
}
