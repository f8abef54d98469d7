use memory::{
    cost::Prices,
    cx::Circumstances,
    event::Counters,
    frame::{ControlId, FrameFlag, SpaceId},
    pageblock::MigrateType,
    tlb::{Running, Shootdowns},
};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::Settings,
};
use units::{Bytes, CpuId, NodeId, Pfn, Time};

use super::*;
use crate::{
    fault::{Access, touch::Touch},
    folio::lru::Taken,
    space::address_space::{AddressSpace, MMAP_BASE},
    swap::{SwapMedium, SwapSpec},
    thp::ThpEnabled,
};

struct Files {
    mm: Mm,
    counters: Counters,
    pages: u32,
}

impl Files {
    /// A node with `pages` pages of files on its inactive list, the first page the oldest.
    fn new(pages: u32) -> Self {
        Self::of("v6.1", pages)
    }

    fn of(rules: &str, pages: u32) -> Self {
        Self::with(rules, pages, &Settings::default())
    }

    fn with(rules: &str, pages: u32, settings: &Settings) -> Self {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 8192);
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
        let machine = MachineSpec { pageblock_order: Order(4), max_order: Order(10), nodes: vec![node] };
        let mm = Mm::new(&machine, *named(rules), settings);
        let mut files = Self { mm, counters: Counters::default(), pages: 0 };
        for _ in 0..pages {
            files.add();
        }
        files.at(Mm::lru_add_drain_all);
        files
    }

    fn at<T>(&mut self, body: impl FnOnce(&mut Mm, &mut Cx<'_>) -> T) -> T {
        let prices = Prices::free();
        body(&mut self.mm, &mut Cx::new(CpuId(0), Time(0), &prices, &mut self.counters))
    }

    fn add(&mut self) -> Pfn {
        let index = self.pages;
        self.pages += 1;
        self.at(|mm, cx| mm.add_clean_page(cx, index.into()))
    }

    fn frames(&self, kind: LruKind) -> u64 {
        self.mm.lru.frames(0, kind)
    }

    /// One pass over the node.
    fn pass(&mut self, sc: &mut ScanControl) {
        let mut scan = NodeScan::new(&self.mm, NodeId(0), sc);
        while self.at(|mm, cx| scan.step(mm, &mut Spaces::default(), cx, sc)) != Step::Done(()) {
            crate::whole::check::walk(&self.mm).unwrap();
        }
    }
}

#[test]
fn the_second_use_activates() {
    let mut files = Files::new(64);
    let head = *files.mm.lru.lruvecs()[0].list(LruKind::InactiveFile).last().as_ref().unwrap();
    files.at(|mm, cx| mm.mark_page_accessed(cx, head));
    assert_eq!((files.frames(LruKind::ActiveFile), files.mm.memory.frames.has(head, FrameFlag::Referenced)), (0, true));
    files.at(|mm, cx| mm.mark_page_accessed(cx, head));
    assert_eq!(
        (files.frames(LruKind::ActiveFile), files.mm.memory.frames.has(head, FrameFlag::Referenced)),
        (1, false)
    );
    assert_eq!(files.counters.get(Event::Pgactivate), 1);
}

#[test]
fn a_pass_takes_the_oldest_of_its_part_of_the_list() {
    let mut files = Files::new(4096);
    let oldest = files.mm.lru.lruvecs()[0].list(LruKind::InactiveFile).last().unwrap();
    let mut sc = ScanControl { priority: 6, ..ScanControl::new(Reclaimer::Direct, Order::BASE, ZoneKind::Movable) };
    sc.to_reclaim = 64;
    files.pass(&mut sc);
    assert_eq!((sc.scanned, sc.reclaimed), (64, 64), "4,096 pages, 1/2^6 of them");
    assert_eq!(files.frames(LruKind::InactiveFile), 4032);
    assert!(!files.mm.memory.frames.is_file(oldest));
    let counts = [Event::PgscanDirect, Event::PgscanFile, Event::PgstealDirect, Event::PgstealFile, Event::PgscanAnon];
    assert_eq!(counts.map(|event| files.counters.get(event)), [64, 64, 64, 64, 0]);
}

#[test]
fn the_active_list_is_aged_when_too_little_is_inactive() {
    let mut files = Files::new(512);
    let heads: Vec<Pfn> =
        files.mm.lru.lruvecs()[0].list(LruKind::InactiveFile).iter(&files.mm.memory.frames).take(300).collect();
    for head in heads {
        files.at(|mm, cx| mm.mark_page_accessed(cx, head));
        files.at(|mm, cx| mm.mark_page_accessed(cx, head));
    }
    assert!(files.mm.inactive_is_low(0, true));
    let mut sc = ScanControl { priority: 2, ..ScanControl::new(Reclaimer::Kswapd, Order::BASE, ZoneKind::Movable) };
    sc.to_reclaim = 1 << 20;
    files.pass(&mut sc);
    assert_eq!((files.counters.get(Event::Pgrefill), files.counters.get(Event::Pgdeactivate)), (75, 75));
    assert_eq!(files.frames(LruKind::ActiveFile), 225);
    // A quarter of the 212 that were inactive when the pass began.
    assert_eq!(sc.reclaimed, 53);
}

#[test]
fn frames_of_higher_zones_are_passed_over() {
    let mut files = Files::new(256);
    let mut sc = ScanControl { priority: 0, ..ScanControl::new(Reclaimer::Direct, Order::BASE, ZoneKind::Dma32) };
    files.pass(&mut sc);
    assert_eq!((sc.scanned, sc.reclaimed, files.frames(LruKind::InactiveFile)), (0, 0, 256));
}

#[test]
fn inactive_lists_of_large_machines_may_be_a_smaller_part() {
    // 1 GiB 3, 10 GiB 10, 100 GiB 31, 1 TiB 101 (the comment in mm/vmscan.c).
    for (gib, ratio) in [(1_u64, 3), (10, 10), (100, 31), (1024, 101)] {
        assert_eq!((10 * gib).isqrt(), ratio);
    }
    let files = Files::new(100);
    assert!(!files.mm.inactive_is_low(0, true));
}

#[test]
fn enough_is_enough_in_proportion() {
    let sc = ScanControl { priority: 8, ..ScanControl::new(Reclaimer::Kswapd, Order::BASE, ZoneKind::Movable) };
    let mut amounts = Amounts::for_test([100, 0, 400, 0]);
    for at in [0, 2] {
        assert_eq!(amounts.take(at, 32), 32);
    }
    amounts.trim(31, &sc, true);
    assert_eq!(amounts.left, [68, 0, 368, 0], "not enough yet");
    amounts.trim(32, &sc, true);
    // 67 of 100 anonymous pages are left: a third of the files is enough, of which 32 are scanned.
    assert_eq!((amounts.left, amounts.is_over), ([0, 0, 400 * 33 / 100 - 32, 0], false));
    amounts.trim(32, &sc, true);
    assert!(amounts.is_over);
}

#[test]
fn up_to_5_7_the_kind_used_less_is_scanned_more() {
    let mut files = Files::of("v4.1", 512);
    let recent = |scanned, rotated| crate::folio::lru::Recent { scanned, rotated };
    files.mm.lru.lruvec_mut(0).recent = [recent(99, 9), recent(128, 31)];
    // Of anonymous memory there is none: what is known of it is halved. 60 * 50 / 5 and 140 * 129 / 32.
    let parts = [600, 564];
    assert_eq!(files.mm.balance_by_use(0), amounts::Balance::Fraction(parts, 1165));
    let recent = files.mm.lru.lruvecs()[0].recent;
    assert_eq!(recent.map(|recent| (recent.scanned, recent.rotated)), [(49, 4), (128, 31)]);
}

#[test]
fn pages_put_on_active_lists_count_as_in_use() {
    let mut files = Files::of("v4.1", 64);
    let recent = |files: &Files| {
        let recent = files.mm.lru.lruvecs()[0].recent[1];
        (recent.scanned, recent.rotated)
    };
    assert_eq!(recent(&files), (64, 0));
    let head = files.mm.lru.lruvecs()[0].list(LruKind::InactiveFile).last().unwrap();
    for _ in 0..2 {
        files.at(|mm, cx| mm.mark_page_accessed(cx, head));
    }
    assert_eq!(recent(&files), (65, 1));
    let mut sc = ScanControl { priority: 0, ..ScanControl::new(Reclaimer::Direct, Order::BASE, ZoneKind::Movable) };
    sc.to_reclaim = 1 << 20;
    files.pass(&mut sc);
    assert_eq!((recent(&files), sc.reclaimed), ((65 + 63, 1), 63));
}

#[test]
fn what_a_list_came_to_says_something_of_its_zone() {
    let mut files = Files::of("v4.1", 32);
    let mut after = |by, met| {
        let sc = ScanControl { met, ..ScanControl::new(by, Order::BASE, ZoneKind::Movable) };
        files.mm.memory.zone_mut(ZoneIndex(0)).reclaim = memory::zone_state::ZoneReclaim::default();
        let wait = files.at(|mm, cx| mm.end_zone_list(cx, &sc, ZoneIndex(0)));
        let flags = files.mm.memory.zone(ZoneIndex(0)).reclaim;
        ([flags.meets_writeback, flags.meets_dirty, flags.is_congested], wait)
    };
    let taken = Met { taken: 32, ..Met::default() };
    assert_eq!(after(Reclaimer::Direct, taken), ([false; 3], None));
    assert_eq!(after(Reclaimer::Direct, Met { writeback: 32, ..taken }), ([true, false, false], None));
    assert_eq!(after(Reclaimer::Direct, Met { unqueued_dirty: 32, ..taken }), ([false, true, false], None));
    assert_eq!(after(Reclaimer::Direct, Met { unqueued_dirty: 31, writeback: 31, ..taken }), ([false; 3], None));
    // Nobody waits for a disk with a short queue.
    assert_eq!(after(Reclaimer::Direct, Met { dirty: 3, congested: 3, ..taken }), ([false, false, true], None));
    let until = Time(0) + units::Picos::from_micros(100_000);
    assert_eq!(after(Reclaimer::Kswapd, Met { immediate: 1, ..taken }), ([false; 3], Some(until)));
}

#[test]
fn most_anonymous_memory_of_a_large_zone_may_be_active() {
    let low = |rules: &str, gib: u64| {
        let mut files = Files::of(rules, 32);
        files.mm.memory.zone_mut(ZoneIndex(0)).managed = gib << 18;
        files.mm.lru.set_sizes_for_test([100, 299, 100, 101]);
        [false, true].map(|is_file| files.mm.inactive_is_low(0, is_file))
    };
    assert_eq!((low("v4.6", 0), low("v4.6", 1)), ([true, true], [false, true]), "3 for 1 GiB");
    assert_eq!(low("v4.7", 1), [true, true], "the lists are small");
}

/// A process that runs on CPU 1 has stored to `pages` pages, and not used them since; CPU 0 reclaims all these pages. Returns
/// the TLB shootdowns sent to the process's CPU, and to all CPUs that run user code.
fn reclaim_mapped(files: &mut Files, pages: u64) -> (Shootdowns, Shootdowns) {
    files.mm.thp.enabled = ThpEnabled::Never;
    files.mm.swapon(&SwapSpec { size: Bytes::mib(1), medium: SwapMedium::Memory });
    let (mut spaces, prices, mut asked) = (Spaces::default(), Prices::free(), Vec::new());
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut files.counters);
    let mm = &mut files.mm;
    let id = spaces.add(AddressSpace::new(mm, &mut cx, MMAP_BASE).unwrap());
    let space = spaces.get_mut(id).unwrap();
    let range = space.mmap(mm, &mut cx, pages).unwrap();
    let mut touch = Touch::pages(range, Access::Write);
    while !matches!(touch.step(mm, space, &mut cx, Time(u64::MAX)), Step::Done(_)) {}
    mm.lru_add_drain(&mut cx);
    let runs = [SpaceId(u32::MAX), id];
    let running = Some(Running { spaces: &runs, asked: &mut asked });
    let control = ControlId(0);
    cx.set_circumstances(Circumstances {
        control,
        sharers: 1,
        running,
        need_resched: false,
        was_preempted: false,
        alone_until: Time(0),
    });
    let (list, mut taken) = ((0, LruKind::of_new_anon(mm.memory.variant().lru_new_anon)), Taken::default());
    mm.isolate_folios(&mut cx, list, pages, ZoneKind::Movable, &mut taken);
    for head in taken.as_slice() {
        mm.test_and_clear_used(&mut spaces, &mut cx, *head);
    }
    let mut sc = ScanControl::new(Reclaimer::Direct, Order::BASE, ZoneKind::Movable);
    let reclaimed = mm.shrink_folio_list(&mut spaces, &mut cx, &mut sc, list, &taken, &mut Vec::new());
    assert_eq!(reclaimed, pages);
    let all = cx.shootdowns();
    let of_its: Vec<_> = asked.into_iter().map(|(whose, asked)| (whose == id).then_some(asked).unwrap()).collect();
    (of_its.first().copied().unwrap_or_default(), all)
}

#[test]
fn up_to_4_2_each_page_is_flushed_as_it_is_unmapped() {
    let flushes = |rules| reclaim_mapped(&mut Files::of(rules, 0), 8);
    let none = Shootdowns::default();
    assert_eq!(flushes("v4.1"), (Shootdowns { rounds: 8, whole: 0, pages: 8 }, none));
    // Before each is written to the device: no two of them share a flush here either, though all of the TLB goes.
    assert_eq!(flushes("v4.4"), (none, Shootdowns { rounds: 8, whole: 8, pages: 0 }));
}

/// A CPU's list may hold more than is freed in these tests.
fn long_lists() -> Settings {
    Settings { percpu_pagelist_high_fraction: 8, ..Settings::default() }
}

/// Movable frames on the first CPU's list, from the tail, where it gives back.
fn listed(files: &Files) -> Vec<Pfn> {
    let (pcp, rules) = (&files.mm.memory.zone(ZoneIndex(0)).cpu_lists()[0], files.mm.memory.variant());
    pcp.lists(rules.pcp_lists).nth(MigrateType::Movable as usize).unwrap().blocks().to_vec()
}

#[test]
fn up_to_4_14_a_cpu_allocates_reclaimed_frames_last() {
    let after = |rules: &str| {
        let mut files = Files::with(rules, 14, &long_lists());
        let was = listed(&files);
        let (list, mut taken) = ((0, LruKind::InactiveFile), Taken::default());
        files.at(|mm, cx| mm.isolate_folios(cx, list, 14, ZoneKind::Movable, &mut taken));
        let mut sc = ScanControl::new(Reclaimer::Direct, Order::BASE, ZoneKind::Movable);
        files.at(|mm, cx| mm.shrink_folio_list(&mut Spaces::default(), cx, &mut sc, list, &taken, &mut Vec::new()));
        (was, taken.as_slice().to_vec(), listed(&files))
    };
    let (was, reclaimed, is) = after("v4.12");
    assert_eq!(is, [reclaimed, was].concat(), "the first goes back first");
    let (was, reclaimed, is) = after("v4.15");
    assert_eq!(is, [was, reclaimed].concat());
}

#[test]
fn up_to_4_14_reads_take_frames_of_the_cold_end() {
    let next = |rules: &str| {
        let mut files = Files::with(rules, 1, &long_lists());
        let list = listed(&files);
        let got = files.add();
        (list.first() == Some(&got), list.last() == Some(&got))
    };
    assert_eq!((next("v4.12"), next("v4.15")), ((true, false), (false, true)));
}

#[test]
fn who_reclaims_waits_for_kswapd_the_sooner_the_higher_marks_are_raised() {
    // allow_direct_reclaim() adds up min_wmark_pages(), which holds watermark_boost (mm/vmscan.c, v5.0 to v6.1).
    let mut files = Files::new(1000);
    let node = NodeId(0);
    let (free, min) = (files.mm.memory.zones()[0].free_frames(), files.mm.memory.zones()[0].marks.min.0);
    for (boost, may) in [(0, true), (2 * free - min - 2, true), (2 * free - min, false)] {
        files.mm.memory.zone_mut(memory::pageblock::ZoneIndex(0)).boost = boost;
        assert_eq!(files.at(|mm, cx| mm.may_reclaim_directly(cx, node)), may, "{boost} above {min}, {free} free");
    }
}
