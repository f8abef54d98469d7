//! Linux: none; memory of a process that moves to a node, by release, and each way of failing.

use memory::{
    event::Event,
    frame::{FrameFlag, Holdings, SpaceId},
    step::{Step, Wait},
};
use units::NodeId;

use super::world::{HUGE, ME, OTHER, World};
use crate::{
    migrate::to_node::{Moved, ToNode},
    space::vma::PageRange,
    thp::ThpEnabled,
};

const RULES: [&str; 6] = ["v3.9", "v4.1", "v4.12", "v4.20", "v5.10", "v6.1"];

fn with_huge(rules: &str, huge: u64) -> (World, SpaceId, PageRange) {
    let mut world = World::new(rules);
    let id = world.process();
    let range = world.room(id, huge);
    world.write(id, range, 0);
    (world, id, range)
}

/// Successes and failures in pages, and the same of huge pages as a whole, then those that were split.
fn counts(world: &World) -> [u64; 5] {
    [
        Event::PgmigrateSuccess,
        Event::PgmigrateFail,
        Event::ThpMigrationSuccess,
        Event::ThpMigrationFail,
        Event::ThpMigrationSplit,
    ]
    .map(|event| world.count(event))
}

#[test]
fn up_to_4_13_huge_pages_are_split_since_then_moved_whole() {
    for (rules, is_huge, counted) in [
        ("v3.9", false, [2 * HUGE, 0, 0, 0, 0]),
        ("v4.1", false, [2 * HUGE, 0, 0, 0, 0]),
        ("v4.12", false, [2 * HUGE, 0, 0, 0, 0]),
        // One each before 5.9.
        ("v4.20", true, [2, 0, 0, 0, 0]),
        ("v5.10", true, [2 * HUGE, 0, 2, 0, 0]),
        ("v6.1", true, [2 * HUGE, 0, 2, 0, 0]),
    ] {
        let (mut world, id, range) = with_huge(rules, 2);
        let moved = world.move_to_node(id, range, 1);
        assert_eq!(moved, Moved { moved: 2 * HUGE, failed: 0 }, "{rules}");
        assert_eq!((world.is_huge(id, range.start), world.nodes(id, range)), (is_huge, vec![1]), "{rules}");
        assert_eq!(counts(&world), counted, "{rules}");
        assert_eq!(world.count(Event::ThpSplitPage), if is_huge { 0 } else { 2 }, "{rules}");
        world.end(id);
        world.check(Holdings::default());
    }
}

#[test]
fn a_huge_page_without_a_target_is_split_and_its_parts_move() {
    for (rules, split) in [("v4.20", 0), ("v5.10", 1), ("v6.1", 1)] {
        let (mut world, id, range) = with_huge(rules, 1);
        world.fragment(1);
        let moved = world.move_to_node(id, range, 1);
        assert_eq!(moved, Moved { moved: HUGE, failed: 0 }, "{rules}");
        assert_eq!((world.is_huge(id, range.start), world.nodes(id, range)), (false, vec![1]), "{rules}");
        assert_eq!(counts(&world), [HUGE, 0, 0, 0, split], "{rules}");
    }
}

#[test]
fn pages_that_find_no_frame_stay_on_their_lists() {
    for rules in RULES {
        let (mut world, id, range) = with_huge(rules, 1);
        world.fragment(1);
        // And none of those that are left.
        let taken = world.room(id, 8);
        world.mm.thp.enabled = ThpEnabled::Never;
        let free = world.free(1) - 300;
        world.write(id, PageRange::new(taken.start, free), 1);
        let moved = world.move_to_node(id, range, 1);
        assert!(moved.moved > 0 && moved.failed > 0 && moved.moved + moved.failed == HUGE, "{rules}: {moved:?}");
        world.drain();
        let listed = |vpn| world.mm.memory.frames.has(world.head(id, vpn), FrameFlag::OnLru);
        assert!((0..HUGE).all(|n| listed(range.start.plus(n))), "{rules}");
    }
}

#[test]
fn a_pinned_huge_page_stays_whole() {
    for (rules, counted) in [("v4.20", [0, 1, 0, 0, 0]), ("v5.10", [0, 1, 0, 1, 0]), ("v6.1", [0, HUGE, 0, 1, 0])] {
        let (mut world, id, range) = with_huge(rules, 1);
        let head = world.head(id, range.start);
        world.mm.set_pinned(head, true);
        assert_eq!(world.move_to_node(id, range, 1), Moved { moved: 0, failed: HUGE }, "{rules}");
        assert_eq!((world.is_huge(id, range.start), world.head(id, range.start)), (true, head), "{rules}");
        assert_eq!(counts(&world), counted, "{rules}");
    }
}

#[test]
fn a_pinned_huge_page_without_a_target_is_not_split() {
    for (rules, counted) in [("v4.20", [0, 1, 0, 0, 0]), ("v5.10", [0, HUGE, 0, 1, 0])] {
        let (mut world, id, range) = with_huge(rules, 2);
        let head = world.head(id, range.start);
        world.mm.set_pinned(head, true);
        world.fragment(1);
        // The first one fails, and the others are not tried.
        assert_eq!(world.move_to_node(id, range, 1), Moved { moved: 0, failed: 2 * HUGE }, "{rules}");
        assert_eq!(counts(&world), counted, "{rules}");
        assert_eq!(world.count(Event::ThpSplitPageFailed), 1, "{rules}");
    }
}

#[test]
fn only_pages_that_one_process_maps_move() {
    for rules in RULES {
        let (mut world, id, range) = with_huge(rules, 2);
        let child = world.fork(id);
        world.unmap(child, PageRange::new(range.start, HUGE));
        assert_eq!(world.move_to_node(id, range, 1), Moved { moved: HUGE, failed: 0 }, "{rules}");
        let second = PageRange::new(range.start.plus(HUGE), HUGE);
        assert_eq!((world.nodes(id, range), world.nodes(child, second)), (vec![1, 0], vec![0]), "{rules}");
    }
}

#[test]
fn a_huge_page_that_base_entries_map_moves_as_a_whole_too() {
    for rules in ["v4.20", "v5.10", "v6.1"] {
        let (mut world, id, range) = with_huge(rules, 1);
        world.unmap(id, PageRange::new(range.start.plus(10), 20));
        let left = PageRange::new(range.start.plus(30), HUGE - 30);
        assert!(!world.is_huge(id, left.start));
        assert_eq!(world.move_to_node(id, left, 1), Moved { moved: HUGE, failed: 0 }, "{rules}");
        assert_eq!(world.nodes(id, left), [1], "{rules}");
        assert_eq!(world.mm.deferred_split_count(), 1, "{rules}: it is mapped in part, as before");
        let first = world.head(id, range.start);
        assert_eq!(world.head(id, left.start), first.plus(30), "{rules}");
    }
}

#[test]
fn a_locked_huge_page_is_waited_for_after_three_passes() {
    let (mut world, id, range) = with_huge("v6.1", 1);
    let head = world.head(id, range.start);
    assert!(world.mm.try_lock_folio(head));
    let mut moving = ToNode::new(id, range, NodeId(1));
    let mut steps = 0;
    while let Step::More = world.on(ME, 0, |mm, spaces, cx| moving.step(mm, spaces, cx)) {
        world.check(moving.holdings());
        steps += 1;
        assert!(steps < 20, "it waits");
    }
    assert_eq!(world.on(ME, 0, |mm, spaces, cx| moving.step(mm, spaces, cx)), Step::Block(Wait::Folio(head)));
    world.on(OTHER, 0, |mm, _, cx| mm.unlock_folio(cx, head));
    let mut step = Step::More;
    while step == Step::More {
        step = world.on(ME, 0, |mm, spaces, cx| moving.step(mm, spaces, cx));
    }
    assert_eq!(step, Step::Done(Moved { moved: HUGE, failed: 0 }));
}

#[test]
fn a_move_can_be_given_up_at_any_step() {
    for rules in RULES {
        for steps in 1..40 {
            let (mut world, id, range) = with_huge(rules, 2);
            let mut moving = ToNode::new(id, range, NodeId(1));
            for _ in 0..steps {
                if matches!(world.on(ME, 0, |mm, spaces, cx| moving.step(mm, spaces, cx)), Step::Done(_)) {
                    break;
                }
            }
            world.on(ME, 0, |mm, spaces, cx| moving.abort(mm, spaces, cx));
            world.check(Holdings::default());
            world.end(id);
            world.check(Holdings::default());
        }
    }
}
