//! Linux: none; Compaction for a request: blocks come about, pages keep what they hold.

use memory::{
    event::Event,
    frame::{Frame, Holdings},
    pageblock::{MigrateType, ZoneIndex},
};
use rules::gfp::{AllocRequest, Mobility};
use units::{NodeId, Order, Pfn};

use super::lab::{Lab, rules};
use crate::{
    compact::{CompactPriority, CompactResult},
    migrate::MigrateMode,
};

fn makes_a_huge_page(version: &str, priority: CompactPriority) {
    // In runs of three: a pageblock is known again by every eighth of its frames.
    let (mut lab, _) = Lab::fragmented_every(16, rules(version), 3);
    assert_eq!(lab.free_blocks(9), 0, "no block of this size is free");
    let free = lab.mm.memory.zones()[0].free_frames();
    let mut tries = 1;
    let mut compacted = lab.compact_fast(Lab::request(), priority);
    // Until somebody has given up, the search for free frames halves what is left with each look in vain (5.1); kswapd
    // then has it begin anew.
    while compacted.block.is_none() && tries < 4 {
        assert_eq!(compacted.result, CompactResult::PartialSkipped, "{version} {priority:?}: {:?}", lab.counters);
        lab.step(super::lab::ME, |mm, _, cx| mm.reset_isolation_suitable(cx, NodeId(0)));
        compacted = lab.compact_fast(Lab::request(), priority);
        tries += 1;
    }
    assert_eq!(compacted.result, CompactResult::Success, "{version} {priority:?}: {:?}", lab.counters);
    let block = compacted.block.expect("it has one");
    assert_eq!(lab.mm.memory.frames.get(block), Frame::Kernel { order: Order::HUGE, mobility: Mobility::Movable });
    assert!(lab.mm.memory.zones()[0].free_frames() + 512 <= free);
    lab.check(Holdings::default());
    lab.check_contents();
    let [stall, success, fail] = [Event::CompactStall, Event::CompactSuccess, Event::CompactFail].map(|e| lab.count(e));
    assert_eq!((stall, success, fail), (tries, 1, tries - 1));
    let moved = lab.count(Event::PgmigrateSuccess);
    assert!((200..=1024).contains(&moved), "{moved}");
    assert!(lab.count(Event::CompactIsolated) >= 2 * moved, "sources and targets");
    assert!(lab.count(Event::CompactMigrateScanned) >= moved && lab.count(Event::CompactFreeScanned) >= moved);
    assert!(lab.count(Event::PgmigrateFail) < tries);
}

#[test]
fn asynchronous_compaction_makes_a_huge_page() {
    // Not 4.20: the short per-CPU lists of so small a zone give back at once, the frame where the next scan begins is soon
    // inside of a free block, and for a page that cannot be had the rest is left out.
    for version in ["v6.1", "v5.10", "v4.1", "v6.4"] {
        makes_a_huge_page(version, CompactPriority::Async);
    }
}

#[test]
fn synchronous_compaction_makes_a_huge_page() {
    for version in ["v6.1", "v5.10", "v4.20", "v4.1", "v6.4"] {
        makes_a_huge_page(version, CompactPriority::SyncLight);
        makes_a_huge_page(version, CompactPriority::SyncFull);
    }
}

#[test]
fn one_huge_page_after_the_other_comes_from_a_larger_machine() {
    let (mut lab, _) = Lab::fragmented(64, rules("v6.1"));
    let mut blocks = Vec::new();
    for round in 0..8 {
        let compacted = lab.compact_fast(Lab::request(), CompactPriority::SyncLight);
        assert_eq!(compacted.result, CompactResult::Success, "round {round}");
        blocks.extend(compacted.block);
    }
    assert_eq!(blocks.len(), 8);
    lab.check(Holdings::default());
    lab.check_contents();
}

#[test]
fn a_zone_with_a_block_or_without_room_is_unsuitable() {
    let mut lab = Lab::new(16, rules("v6.1"));
    let compacted = lab.compact(Lab::request(), CompactPriority::Async);
    assert_eq!(compacted.result, CompactResult::Success);
    assert_eq!(lab.count(Event::CompactMigrateScanned), 0);

    // Everything but 900 frames is in use: less than the gap of 1024 above the mark.
    let mut lab = Lab::new(16, rules("v6.1"));
    let id = lab.process();
    let free = lab.mm.memory.zones()[0].free_frames();
    let range = lab.map(id, free - 900);
    lab.write(id, range);
    let compacted = lab.compact(Lab::request(), CompactPriority::Async);
    assert_eq!((compacted.result, compacted.block), (CompactResult::Skipped, None));
    assert_eq!((lab.count(Event::CompactStall), lab.count(Event::CompactFail)), (0, 0));
}

#[test]
fn vm_compact_memory_makes_all_the_blocks_that_can_be() {
    let (mut lab, _) = Lab::fragmented(64, rules("v6.1"));
    let free = lab.mm.memory.zones()[0].free_frames();
    lab.compact_memory();
    lab.check_contents();
    let huge = lab.free_blocks(9) * 512;
    assert!(huge * 100 >= free * 80, "{huge} of {free} free frames are in huge blocks");
    // The frames that were left are on the lists of this CPU.
    let listed: u64 = lab.mm.memory.zones()[0].cpu_lists().iter().map(|pcp| u64::from(pcp.count())).sum();
    assert_eq!(lab.mm.memory.zones()[0].free_frames() + listed, free);
}

#[test]
fn the_same_run_twice_is_the_same() {
    let run = || {
        let (mut lab, _) = Lab::fragmented(16, rules("v6.1"));
        lab.compact(Lab::request(), CompactPriority::Async);
        lab.compact(Lab::request(), CompactPriority::SyncLight);
        (format!("{:?}", lab.mm), format!("{:?}", lab.counters))
    };
    assert!(run() == run());
}

#[test]
fn pages_keep_their_place_on_the_lists_and_their_rights() {
    let (mut lab, id) = Lab::fragmented(16, rules("v6.1"));
    let before = [
        lab.mm.lru.zone_frames(ZoneIndex(0), memory::lru_kind::LruKind::InactiveAnon),
        lab.spaces.get(id).unwrap().rss_pages(),
    ];
    lab.compact(Lab::request(), CompactPriority::SyncLight);
    let after = [
        lab.mm.lru.zone_frames(ZoneIndex(0), memory::lru_kind::LruKind::InactiveAnon),
        lab.spaces.get(id).unwrap().rss_pages(),
    ];
    assert_eq!(before, after);
    assert_eq!(lab.mm.lru.zone_isolated(ZoneIndex(0), false), 0);
    let (_, range) = lab.mapped[0];
    let pte = lab.spaces.get(id).unwrap().tables.lookup(range.start);
    assert!(pte.is_writable() && pte.is_dirty() && pte.is_accessed() && !pte.is_migration());
}

#[test]
fn a_block_that_is_captured_is_not_stolen() {
    for (captures, stolen) in [(true, false), (false, true)] {
        let (mut lab, _) = Lab::fragmented(16, rules::variant::Variant { compact_capture: captures, ..rules("v6.1") });
        let mut compact = super::super::DirectCompact::new(Lab::request(), CompactPriority::SyncLight);
        let mut thief = None;
        let compacted = loop {
            match lab.step(super::lab::ME, |mm, spaces, cx| compact.step(mm, spaces, cx)) {
                memory::step::Step::Done(compacted) => break compacted,
                memory::step::Step::More => {}
                memory::step::Step::Block(wait) => panic!("{wait:?}"),
            }
            // Somebody else takes every large block as soon as he sees it.
            let light = AllocRequest { reclaims: false, ..Lab::request() };
            if let Ok(block) = lab.step(super::lab::OTHER, |mm, _, cx| mm.memory.alloc(cx, &light)) {
                thief = Some(block);
            }
        };
        assert_eq!(thief.is_some(), stolen, "captures: {captures}");
        assert!(compacted.block.is_some() || stolen);
        if captures {
            assert_eq!(compacted.result, CompactResult::Success);
        }
    }
}

#[test]
fn a_pageblock_where_nothing_was_found_is_skipped_next_time() {
    // Unmovable memory fills the lower half: nothing to move there.
    let mut lab = Lab::new(16, rules("v6.1"));
    let request = AllocRequest { mobility: Mobility::Unmovable, ..AllocRequest::gfp_nowait(units::NodeId(0)) };
    for _ in 0..1500 {
        lab.step(super::lab::OTHER, |mm, _, cx| mm.memory.alloc(cx, &request)).unwrap();
    }
    let stuck: Vec<Pfn> = (0..4096_u32)
        .step_by(512)
        .map(Pfn)
        .filter(|pfn| lab.mm.memory.frames.blocks.migrate_type(*pfn) == MigrateType::Unmovable)
        .collect();
    assert!(!stuck.is_empty());
    let id = lab.process();
    let free = lab.mm.memory.zones()[0].free_frames();
    let pages = free * 9 / 10;
    let range = lab.map(id, pages);
    lab.write(id, range);
    // Half of the pages go again, one by one.
    for at in (0..pages).step_by(2) {
        let page = crate::space::vma::PageRange::new(range.start.plus(at), 1);
        lab.step(super::lab::OTHER, |mm, spaces, cx| spaces.get_mut(id).unwrap().munmap(mm, cx, page)).unwrap();
    }
    lab.step(super::lab::OTHER, |mm, _, cx| mm.memory.drain_all_pages(cx));
    lab.compact(Lab::request(), CompactPriority::SyncLight);
    let skipped = stuck.iter().filter(|pfn| lab.mm.memory.frames.blocks.skip(**pfn)).count();
    let passed = stuck.iter().filter(|pfn| **pfn < lab.mm.zone_compacts[ZoneIndex(0)].cached_migrate[1]).count();
    assert!(skipped > 0 && skipped <= stuck.len(), "{skipped} of {passed} passed");
    assert_eq!(CompactPriority::Async.mode(), MigrateMode::Async);
}
