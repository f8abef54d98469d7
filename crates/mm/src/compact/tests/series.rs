//! Linux: none; the rules of the series of 5.1, each by itself ("Increase success rates and reduce latency of compaction").

use memory::{
    event::Event,
    pageblock::{MigrateType, ZoneIndex},
    step::Step,
};
use rules::variant::{CompactHugePages, Variant};
use units::{Order, Pfn};

use super::{
    fixed::behind_huge_pages,
    lab::{Lab, ME, rules},
    random,
};
use crate::compact::{CompactControl, CompactPriority, DirectCompact};

/// A switch of a variant.
pub(super) type Switch = fn(&mut Variant) -> &mut bool;

/// The switches of the series.
pub(super) const SERIES: [(&str, Switch); 10] = [
    ("compact_lists_for_sources", |rules| &mut rules.compact_lists_for_sources),
    ("compact_private_sources", |rules| &mut rules.compact_private_sources),
    ("compact_lists_for_targets", |rules| &mut rules.compact_lists_for_targets),
    ("compact_orders_in_turn", |rules| &mut rules.compact_orders_in_turn),
    ("compact_rescans_at_once", |rules| &mut rules.compact_rescans_at_once),
    ("compact_passes_unfit", |rules| &mut rules.compact_passes_unfit),
    ("compact_syncs_cached", |rules| &mut rules.compact_syncs_cached),
    ("compact_marks_searched", |rules| &mut rules.compact_marks_searched),
    ("compact_samples", |rules| &mut rules.compact_samples),
    ("compact_clears_selectively", |rules| &mut rules.compact_clears_selectively),
];

/// The rules of 5.0 with some of the series, by position.
pub(super) fn with(base: &str, mask: usize) -> Variant {
    let mut rules = rules(base);
    for (at, (_, switch)) in SERIES.iter().enumerate() {
        *switch(&mut rules) = mask >> at & 1 == 1;
    }
    rules
}

/// The outcome of random runs, but for the rules themselves.
fn footprint(rules: Variant) -> [String; 3] {
    [(8, 1), (8, 3), (16, 3)].map(|(mib, run)| {
        let (lab, _) = Lab::fragmented_every(mib, rules, run);
        let lab = random::run_in(lab, 3, 3_000, 3_000).lab;
        format!("{:?} {:?}", lab.counters, lab.mm.zone_compacts[ZoneIndex(0)])
    })
}

/// Where the next compactions are to begin, asynchronous or not, when an asynchronous one moves its first page.
fn cached_at_first_move(lab: &mut Lab) -> [Pfn; 2] {
    let mut compact = DirectCompact::new(Lab::request(), CompactPriority::Async);
    while lab.count(Event::PgmigrateSuccess) == 0 {
        assert!(matches!(lab.step(ME, |mm, spaces, cx| compact.step(mm, spaces, cx)), Step::More));
    }
    lab.mm.zone_compacts[ZoneIndex(0)].cached_migrate
}

#[test]
fn the_series_rules_are_off_in_5_0_on_in_5_1() {
    assert_eq!(with("v5.0", 0), rules("v5.0"));
    assert_eq!(with("v5.1", (1 << SERIES.len()) - 1), rules("v5.1"));
}

#[test]
fn the_next_run_begins_behind_pageblocks_without_sources() {
    for passes in [false, true] {
        let of_then = Variant { compact_passes_unfit: passes, ..rules("v5.0") };
        let (mut lab, blocks) = behind_huge_pages(of_then);
        let cached = cached_at_first_move(&mut lab);
        assert_eq!(cached[0] > blocks[0], passes, "{cached:?}, {blocks:?}");
        assert_eq!(cached[1], blocks[0], "that was asynchronous");
    }
}

#[test]
fn what_asynchronous_compaction_found_empty_synchronous_compaction_passes_too() {
    for syncs in [false, true] {
        // Scanned frame by frame, and in vain.
        let compact_huge_pages = CompactHugePages::ByFrame;
        let private = Variant { compact_private_sources: true, ..rules("v5.0") };
        let (mut lab, blocks) =
            behind_huge_pages(Variant { compact_huge_pages, compact_syncs_cached: syncs, ..private });
        let cached = cached_at_first_move(&mut lab);
        assert!(cached[0] > blocks[0], "{cached:?}, {blocks:?}");
        assert_eq!(cached[0] == cached[1], syncs, "{cached:?}");
    }
}

#[test]
fn what_is_left_of_a_pageblock_is_moved_at_once() {
    for at_once in [false, true] {
        let of_then = Variant { compact_rescans_at_once: at_once, ..rules("v5.0") };
        let (mut lab, _) = Lab::fragmented(16, of_then);
        let mut compact = DirectCompact::new(Lab::request(), CompactPriority::SyncLight);
        let mut most = 0;
        while matches!(lab.step(ME, |mm, spaces, cx| compact.step(mm, spaces, cx)), Step::More) {
            most = most.max(compact.holdings().off_lru.len());
        }
        assert!(if at_once { most > 200 } else { most == 32 }, "{most}");
    }
}

#[test]
fn a_pageblock_searched_to_its_end_is_marked() {
    let marked = |compact_marks_searched| {
        let of_then = Variant { compact_marks_searched, ..rules("v5.0") };
        let (mut lab, _) = Lab::fragmented_every(16, of_then, 3);
        lab.compact_fast(Lab::request(), CompactPriority::SyncLight);
        let blocks = &lab.mm.memory.frames.blocks;
        (0..8).filter(|n| blocks.skip(Pfn(n << 9))).count()
    };
    assert!(marked(true) > marked(false), "{} and {}", marked(true), marked(false));
}

#[test]
fn each_of_the_others_does_something_by_itself() {
    // Those that only say where the next run begins have tests of their own; so has the clearing of marks, in `fixed.rs`.
    let own = ["compact_passes_unfit", "compact_syncs_cached", "compact_clears_selectively"];
    let lists = 1 << 2;
    let [none, with_lists] = [0, lists].map(|mask| footprint(with("v5.0", mask)));
    for (at, (name, _)) in SERIES.iter().enumerate().filter(|(_, (name, _))| !own.contains(name)) {
        // Turns are of the lists that are looked at.
        let (below, without) = if *name == "compact_orders_in_turn" { (lists, &with_lists) } else { (0, &none) };
        assert!(footprint(with("v5.0", below | 1 << at)) != *without, "{name}");
    }
}

/// A task's run over a fragmented zone whose scanners are at these frames, before it begins.
fn between(rules: Variant, migrate: Pfn, free: Pfn) -> (Lab, CompactControl) {
    let (lab, _) = Lab::fragmented(16, rules);
    let mut control = CompactControl::direct(ZoneIndex(0), &Lab::request(), CompactPriority::Async);
    (control.migrate_pfn, control.free_pfn) = (migrate, free);
    (lab, control)
}

#[test]
fn since_5_12_a_search_without_a_source_has_failed() {
    for (compact_fails_without_source, failures) in [(false, 0), (true, 1)] {
        // No frame is below both scanners.
        let of_then = Variant { compact_fails_without_source, ..rules("v5.1") };
        let (mut lab, mut control) = between(of_then, Pfn(0), Pfn(512));
        assert_eq!(lab.step(ME, |mm, _, cx| control.fast_find_migrateblock(mm, cx)), Pfn(0));
        assert_eq!(control.fast_search_fail, failures);
    }
}

#[test]
fn before_5_14_the_target_search_reads_one_block_per_list() {
    let looked = |compact_looks_further| {
        // All frames are too far down, and this is not where the search begins.
        let end = Pfn(1 << 13);
        let (mut lab, mut control) = between(Variant { compact_looks_further, ..rules("v5.1") }, end, end);
        lab.mm.zone_compacts[ZoneIndex(0)].init_free = Some(end.plus(1));
        assert_eq!(lab.step(ME, |mm, _, cx| control.fast_isolate_freepages(mm, cx)), None);
        let zone = &lab.mm.memory.zones()[0];
        let lists = (0..9).filter(|order| !zone.free_list(Order(*order), MigrateType::Movable).is_empty());
        (control.free_scanned, lists.count() as u64)
    };
    let ((one, lists), (more, _)) = (looked(false), looked(true));
    assert_eq!(one, lists);
    assert!(more > one, "{more} of {one}");
}

#[test]
fn before_6_0_the_linear_search_begins_at_the_highest_free_block() {
    for (version, begins) in [("v5.1", Pfn(512)), ("v5.18", Pfn(512)), ("v6.1", Pfn(2048))] {
        let (mut lab, mut control) = between(rules(version), Pfn(0), Pfn(3584));
        let page = control.after_fast_search(&mut lab.mm, None, (Some(Pfn(512)), Pfn(2048)), true);
        assert_eq!((page, control.free_pfn), (Some(begins), begins), "{version}");
    }
}
