//! Linux: none; one page that moves to the node of its user: each way, and each way of failing.

use memory::{
    event::Event,
    frame::{FrameFlag, Holdings, SpaceId},
    step::{Step, Wait},
};
use rules::{gfp::AllocRequest, variant::named};
use units::{NodeId, Picos, Time};

use super::world::{HUGE, ME, OTHER, World};
use crate::{
    fault::{Access, FaultControl},
    migrate::misplaced::{Misplaced, Misplacement},
    space::vma::PageRange,
    thp::ThpEnabled,
};

/// Releases with each way in which huge pages move.
const RULES: [&str; 8] = ["v3.9", "v4.1", "v4.15", "v4.20", "v5.10", "v5.14", "v6.1", "v6.8"];
const MOVED: Misplacement = Misplacement::Moved { pages: HUGE };

/// A process with `huge` huge pages on node 0, every one of which hints.
fn with_huge(rules: &str, huge: u64) -> (World, SpaceId, PageRange) {
    let mut world = World::new(rules);
    let id = world.process();
    let range = world.room(id, huge);
    world.write(id, range, 0);
    world.hint(id, range);
    assert!(world.is_huge(id, range.start) && world.nodes(id, range) == [0]);
    (world, id, range)
}

fn counts(world: &World) -> [u64; 5] {
    [
        Event::PgmigrateSuccess,
        Event::PgmigrateFail,
        Event::NumaPagesMigrated,
        Event::ThpMigrationSuccess,
        Event::ThpMigrationFail,
    ]
    .map(|event| world.count(event))
}

#[test]
fn a_huge_page_moves_as_a_whole() {
    for rules in RULES {
        let (mut world, id, range) = with_huge(rules, 2);
        let free = [0, 1].map(|node| world.free(node));
        let second = range.start.plus(HUGE + 77);
        assert_eq!(world.migrate(id, second, 1), MOVED, "{rules}");
        assert!(world.is_huge(id, second), "{rules}");
        let [first_half, second_half] = [0, HUGE].map(|at| PageRange::new(range.start.plus(at), HUGE));
        assert_eq!((world.nodes(id, first_half), world.nodes(id, second_half)), (vec![0], vec![1]), "{rules}");
        assert_eq!([0, 1].map(|node| world.free(node)), [free[0] + HUGE, free[1] - HUGE], "{rules}");
        let as_a_whole = u64::from(!named(rules).numa_huge_at_once);
        assert_eq!(counts(&world), [HUGE, 0, HUGE, as_a_whole, 0], "{rules}");
        let entry = world.spaces.get(id).unwrap().tables.lookup(second);
        assert!(entry.is_accessible() && entry.is_writable(), "{rules}");
        let head = world.head(id, second);
        world.drain();
        assert!(world.mm.memory.frames.has(head, FrameFlag::OnLru), "{rules}");
        // Back again, and everything goes.
        assert_eq!(world.migrate(id, second, 0), MOVED, "{rules}");
        world.end(id);
        world.check(Holdings::default());
    }
}

#[test]
fn base_pages_move_one_by_one() {
    for rules in RULES {
        let mut world = World::new(rules);
        world.mm.thp.enabled = ThpEnabled::Never;
        let id = world.process();
        let range = world.room(id, 1);
        world.write(id, range, 0);
        world.hint(id, range);
        for n in 0..40 {
            assert_eq!(world.migrate(id, range.start.plus(n), 1), Misplacement::Moved { pages: 1 }, "{rules}");
        }
        let [moved, rest] = [(0, 40), (40, HUGE - 40)].map(|(at, n)| PageRange::new(range.start.plus(at), n));
        assert_eq!((world.nodes(id, moved), world.nodes(id, rest)), (vec![1], vec![0]), "{rules}");
        assert_eq!(counts(&world), [40, 0, 40, 0, 0], "{rules}");
    }
}

#[test]
fn a_page_stays_that_is_there_already() {
    for rules in RULES {
        let (mut world, id, range) = with_huge(rules, 1);
        assert_eq!(world.migrate(id, range.start, 0), Misplacement::Stays, "{rules}");
        world.unmap(id, range);
        assert_eq!(world.migrate(id, range.start, 1), Misplacement::Changed, "{rules}");
        assert_eq!(counts(&world), [0; 5], "{rules}");
    }
}

#[test]
fn a_pinned_huge_page_stays_and_the_attempt_counts() {
    for (rules, failed, wholes) in [
        ("v3.9", HUGE, 0),
        ("v4.20", HUGE, 0),
        ("v5.10", HUGE, 0),
        ("v5.14", 1, 1),
        ("v6.1", HUGE, 1),
        ("v6.8", HUGE, 1),
    ] {
        let (mut world, id, range) = with_huge(rules, 1);
        let (head, free) = (world.head(id, range.start), world.free(1));
        world.mm.set_pinned(head, true);
        assert_eq!(world.migrate(id, range.start, 1), Misplacement::Stays, "{rules}");
        assert_eq!((world.head(id, range.start), world.free(1)), (head, free), "{rules}");
        assert_eq!(counts(&world), [0, failed, 0, 0, wholes], "{rules}");
        world.drain();
        assert!(world.mm.memory.frames.has(head, FrameFlag::OnLru), "{rules}");
        world.mm.set_pinned(head, false);
        assert_eq!(world.migrate(id, range.start, 1), MOVED, "{rules}");
    }
}

/// Pages that were only tried too often count since 4.4.
#[test]
fn a_pinned_base_page_stays_and_is_tried_ten_times() {
    for (rules, failed) in [("v3.9", 0), ("v4.1", 0), ("v4.20", 1), ("v6.1", 1)] {
        let mut world = World::new(rules);
        world.mm.thp.enabled = ThpEnabled::Never;
        let id = world.process();
        let range = world.room(id, 1);
        world.write(id, range, 0);
        let (page, free) = (world.head(id, range.start), world.free(1));
        world.mm.set_pinned(page, true);
        assert_eq!(world.migrate(id, range.start, 1), Misplacement::Stays, "{rules}");
        world.drain();
        assert_eq!((world.head(id, range.start), world.free(1)), (page, free), "{rules}");
        assert_eq!(counts(&world), [0, failed, 0, 0, 0], "{rules}");
        world.mm.set_pinned(page, false);
        assert_eq!(world.migrate(id, range.start, 1), Misplacement::Moved { pages: 1 }, "{rules}");
    }
}

#[test]
fn no_huge_page_there_is_no_reason_to_split() {
    for (rules, failed, wholes) in [("v3.9", HUGE, 0), ("v5.10", HUGE, 0), ("v5.14", 1, 0), ("v6.1", HUGE, 1)] {
        let (mut world, id, range) = with_huge(rules, 1);
        world.fragment(1);
        assert_eq!(world.migrate(id, range.start, 1), Misplacement::Stays, "{rules}");
        assert!(world.is_huge(id, range.start), "{rules}");
        assert_eq!(counts(&world), [0, failed, 0, 0, wholes], "{rules}");
        assert_eq!(world.count(Event::ThpSplitPage) + world.count(Event::ThpMigrationSplit), 0, "{rules}");
    }
}

#[test]
fn a_node_without_room_takes_nothing() {
    for rules in RULES {
        let (mut world, id, range) = with_huge(rules, 1);
        // Down to the High mark and a little more than a page, in blocks that leave huge pages free.
        let zone = &world.mm.memory.zones()[1];
        let keep = zone.marks.high.0 + HUGE - 1;
        let request = AllocRequest::gfp_highuser_movable(NodeId(1)).this_node();
        let request = AllocRequest { reclaims: false, wakes_kswapd: false, ..request };
        while world.mm.memory.zones()[1].free_frames() > keep {
            world.on(ME, 1, |mm, _, cx| mm.memory.alloc(cx, &request)).unwrap();
        }
        assert_eq!(world.migrate(id, range.start, 1), Misplacement::Stays, "{rules}");
        // The older way asks for the frame first, and counts what comes of it.
        let failed = if named(rules).numa_huge_at_once { HUGE } else { 0 };
        assert_eq!(counts(&world), [0, failed, 0, 0, 0], "{rules}");
    }
}

#[test]
fn a_shared_huge_page_moves_since_6_7() {
    for (rules, moves) in [("v3.9", false), ("v4.20", false), ("v5.14", false), ("v6.1", false), ("v6.8", true)] {
        let (mut world, id, range) = with_huge(rules, 1);
        let child = world.fork(id);
        let done = world.migrate(id, range.start, 1);
        assert_eq!(done, if moves { MOVED } else { Misplacement::Stays }, "{rules}");
        let node = u32::from(moves);
        assert_eq!((world.nodes(id, range), world.nodes(child, range)), (vec![node], vec![node]), "{rules}");
        assert_eq!(world.head(id, range.start), world.head(child, range.start), "{rules}");
    }
}

#[test]
fn a_shared_base_page_moves_for_all_since_3_13() {
    for (rules, moves) in [("v3.9", false), ("v3.16", true), ("v6.1", true)] {
        let mut world = World::new(rules);
        world.mm.thp.enabled = ThpEnabled::Never;
        let id = world.process();
        let range = world.room(id, 1);
        world.write(id, range, 0);
        let child = world.fork(id);
        let done = world.migrate(id, range.start, 1);
        assert_eq!(done, if moves { Misplacement::Moved { pages: 1 } } else { Misplacement::Stays }, "{rules}");
        assert_eq!(world.head(id, range.start), world.head(child, range.start), "{rules}");
    }
}

#[test]
fn a_page_that_another_task_has_taken_off_its_list_stays() {
    for rules in RULES {
        let (mut world, id, range) = with_huge(rules, 1);
        let head = world.head(id, range.start);
        world.mm.isolate_lru(head).unwrap();
        let mut moving = Misplaced::new(id, range.start, NodeId(1));
        let done = world.on(ME, 1, |mm, spaces, cx| moving.step(mm, spaces, cx));
        assert_eq!(done, Step::Done(Misplacement::Stays), "{rules}");
        world.on(ME, 1, |mm, _, cx| mm.put_back_all(cx, &[head]));
        world.drain();
        assert_eq!(world.migrate(id, range.start, 1), MOVED, "{rules}");
    }
}

#[test]
fn up_to_5_13_locked_huge_pages_wait_then_ten_tries() {
    for rules in ["v4.20", "v5.10"] {
        let (mut world, id, range) = with_huge(rules, 1);
        let head = world.head(id, range.start);
        assert!(world.mm.try_lock_folio(head));
        let mut moving = Misplaced::new(id, range.start, NodeId(1));
        assert_eq!(world.step(&mut moving), Step::Block(Wait::Folio(head)), "{rules}");
        world.on(ME, 1, |mm, _, cx| mm.unlock_folio(cx, head));
        assert_eq!(world.step(&mut moving), Step::More, "{rules}");
        world.on(ME, 1, |mm, spaces, cx| moving.abort(mm, spaces, cx));
        world.check(Holdings::default());
    }
    let (mut world, id, range) = with_huge("v6.1", 1);
    let head = world.head(id, range.start);
    assert!(world.mm.try_lock_folio(head));
    assert_eq!(world.migrate(id, range.start, 1), Misplacement::Stays);
    world.on(ME, 1, |mm, _, cx| mm.unlock_folio(cx, head));
    assert_eq!(counts(&world), [0, HUGE, 0, 0, 1]);
}

/// All that can happen between two steps of a move: after each number of steps, once.
#[test]
fn whatever_happens_meanwhile_no_page_is_lost() {
    type Meddle = fn(&mut World, SpaceId, PageRange);
    let meddles: [(&str, Meddle); 4] = [
        ("unmaps it", |world, id, range| world.unmap(id, range)),
        ("unmaps a part", |world, id, range| world.unmap(id, PageRange::new(range.start.plus(100), 50))),
        ("ends", |world, id, _| world.end(id)),
        ("hints again", |world, id, range| world.hint(id, range)),
    ];
    for rules in ["v3.9", "v4.1", "v4.20", "v5.10", "v5.14", "v6.1", "v6.8"] {
        for (what, meddle) in meddles {
            for steps in 1..6 {
                let (mut world, id, range) = with_huge(rules, 1);
                let mut moving = Misplaced::new(id, range.start, NodeId(1));
                let mut done = None;
                for _ in 0..steps {
                    if let Step::Done(result) = world.step(&mut moving) {
                        done = Some(result);
                        break;
                    }
                }
                if done.is_none() {
                    meddle(&mut world, id, range);
                    world.check(moving.holdings());
                    // Bound: ten passes of a few steps.
                    while !matches!(world.step(&mut moving), Step::Done(_)) {}
                }
                let free = |world: &World| world.free(0) + world.free(1);
                let context = format!("{rules}: another task {what} after {steps} steps");
                if world.spaces.get(id).is_some() {
                    world.end(id);
                }
                world.drain();
                world.check(Holdings::default());
                let empty = World::new(rules);
                assert!(free(&empty) - free(&world) < 64, "{context}: {} frames are lost", free(&empty) - free(&world));
            }
        }
    }
}

#[test]
fn a_move_can_be_given_up_at_any_step() {
    for rules in RULES {
        for steps in 1..4 {
            let (mut world, id, range) = with_huge(rules, 1);
            let free = world.free(1);
            let mut moving = Misplaced::new(id, range.start, NodeId(1));
            if (0..steps).any(|_| matches!(world.step(&mut moving), Step::Done(_))) {
                continue;
            }
            world.on(ME, 1, |mm, spaces, cx| moving.abort(mm, spaces, cx));
            world.check(Holdings::default());
            assert_eq!((world.nodes(id, range), world.free(1)), (vec![0], free), "{rules} after {steps}");
            world.drain();
            assert!(world.mm.memory.frames.has(world.head(id, range.start), FrameFlag::OnLru), "{rules} after {steps}");
        }
    }
}

#[test]
fn a_task_that_meets_a_page_on_its_way_waits() {
    let (mut world, id, range) = with_huge("v6.1", 1);
    let head = world.head(id, range.start);
    let mut moving = Misplaced::new(id, range.start, NodeId(1));
    while !world.spaces.get(id).unwrap().tables.lookup(range.start).is_migration() {
        assert_eq!(world.step(&mut moving), Step::More);
    }
    let mut fault = FaultControl::new(range.start.plus(5), Access::Read);
    let step = world.on(OTHER, 0, |mm, spaces, cx| fault.step(mm, spaces.get_mut(id).unwrap(), cx));
    assert_eq!(step, Step::Block(Wait::Folio(head)));
    while !matches!(world.step(&mut moving), Step::Done(_)) {}
    assert_eq!(world.nodes(id, range), [1]);
}

#[test]
fn a_task_that_faults_on_a_copied_page_waits_without_losing_stores() {
    for rules in ["v3.9", "v4.20", "v5.10"] {
        let (mut world, id, range) = with_huge(rules, 1);
        let head = world.head(id, range.start);
        let mut moving = Misplaced::new(id, range.start, NodeId(1));
        assert_eq!(world.step(&mut moving), Step::More);
        let mut fault = FaultControl::new(range.start.plus(5), Access::Write);
        let step = world.on(OTHER, 0, |mm, spaces, cx| fault.step(mm, spaces.get_mut(id).unwrap(), cx));
        assert_eq!(step, Step::Block(Wait::Folio(head)), "{rules}");
        while !matches!(world.step(&mut moving), Step::Done(_)) {}
        world.write(id, PageRange::new(range.start.plus(5), 1), 0);
        assert_eq!(world.nodes(id, range), [1], "{rules}");
        world.check(Holdings::default());
    }
}

#[test]
fn an_entry_without_a_hint_is_not_migrated() {
    for rules in RULES {
        let (mut world, id, range) = with_huge(rules, 1);
        world.write(id, PageRange::new(range.start, 1), 1);
        let mut moving = Misplaced::new(id, range.start, NodeId(1));
        assert_eq!(world.step(&mut moving), Step::Done(Misplacement::Changed), "{rules}");
    }
}

#[test]
fn up_to_4_18_at_most_128_mib_move_per_100_ms() {
    for (rules, is_limited) in [("v4.18", true), ("v4.19", false)] {
        let mut world = World::new(rules);
        let id = world.process();
        let range = world.room(id, 1);
        world.write(id, range, 0);
        let mut at = 0;
        // Back and forth: each node is moved to every other time.
        let mut moves = 0;
        while moves < 140 {
            let to = 1 - at;
            if world.migrate(id, range.start, to) != MOVED {
                break;
            }
            (at, moves) = (to, moves + 1);
        }
        // 65 times 2 MiB are the first to be more than 128 MiB, for each of the two.
        assert_eq!(moves, if is_limited { 130 } else { 140 }, "{rules}");
        world.now = Time(0) + Picos::from_micros(101_000);
        assert_eq!(world.migrate(id, range.start, 1 - at), MOVED, "{rules}");
    }
}

#[test]
fn a_hinting_entry_is_in_no_tlb_as_4_20_knows() {
    for (rules, flushes) in [("v4.19", true), ("v4.20", false), ("v5.10", false)] {
        let (mut world, id, range) = with_huge(rules, 1);
        world.runs = Some(id);
        let before = world.count(Event::SimTlbLocalFlushAll);
        assert_eq!(world.migrate(id, range.start, 1), MOVED);
        assert_eq!(world.count(Event::SimTlbLocalFlushAll) - before, u64::from(flushes), "{rules}");
    }
}
