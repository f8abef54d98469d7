//! Our arithmetic against kernels that were recorded under QEMU, and one host. `recordings/proc/KERNEL-SHAPE/PHASE/` holds
//! the kernel's texts; `recomputed` ones were taken after the settings were written back.

#[path = "../src/recordings.rs"]
mod recordings;

use std::{collections::BTreeSet, fs};

use lab::arithmetic::{ArithmeticError, LiveState, Phase, ZoneComparison, compare, view};
use linux::procfs::{Capture, Snapshot, buddyinfo, pagetypeinfo, vmstat};
use memory::pcp::PcpHigh;
use recordings::recording;
use rules::{
    variant::{self, Named, Variant},
    zone::ZoneKind,
};
use units::{Frames, NodeId};

/// Names of the recordings of `phase`, such as "6.1-4n-2g/booted".
fn names(phase: &str) -> Vec<String> {
    let shapes =
        fs::read_dir(recording("proc")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let with_phase = shapes.filter(|shape| recording("proc").join(shape).join(phase).exists());
    let names: BTreeSet<String> = with_phase.map(|shape| format!("{shape}/{phase}")).collect();
    names.into_iter().collect()
}

fn capture(name: &str) -> Capture {
    Capture::from_dir(&recording("proc").join(name)).unwrap()
}

fn snapshot(name: &str) -> Snapshot {
    Snapshot::parse(&capture(name)).unwrap()
}

fn rules(snapshot: &Snapshot) -> &'static Named {
    Variant::for_release(&snapshot.version.text).unwrap()
}

fn comparison(name: &str, phase: Phase) -> ZoneComparison {
    let snapshot = snapshot(name);
    compare(&snapshot, rules(&snapshot), phase).unwrap()
}

#[test]
fn recomputed_figures_are_equal_to_the_page() {
    let names = names("recomputed");
    assert_eq!(names.len(), 12);
    for name in names {
        let comparison = comparison(&name, Phase::Recomputed);
        assert!(comparison.equal(), "{name}\n{}", comparison.table().join("\n"));
    }
}

#[test]
fn the_host_is_equal_with_bounds_of_high() {
    let comparison = comparison("6.18-host/booted", Phase::Live);
    assert!(comparison.equal(), "{}", comparison.table().join("\n"));
    assert_eq!(comparison.zones.iter().filter(|zone| zone.kernel.pcp_high.is_some()).count(), 3);
}

#[test]
fn switching_thp_on_recomputes_marks() {
    let names = names("thp-always");
    assert_eq!(names.len(), 12);
    for name in names {
        // Protection too, but for another reason: between the recordings somebody read lowmem_reserve_ratio.
        let comparison = comparison(&name, Phase::Recomputed);
        assert!(comparison.equal(), "{name}\n{}", comparison.table().join("\n"));
    }
}

#[test]
fn what_a_boot_leaves_behind_differs_only_by_late_pages() {
    for name in names("booted") {
        for (zone, mismatch) in comparison(&name, Phase::Booted).mismatches() {
            assert_eq!(mismatch.reason, "pages freed after boot");
            let (kernel, ours) = (mismatch.kernel.unwrap().0, mismatch.ours.unwrap().0);
            let close = kernel.abs_diff(ours) <= 1 + kernel / 20;
            assert!(close, "{name}: {} {}: {mismatch:?}", zone.node, zone.kind);
        }
    }
}

#[test]
fn min_free_kbytes_is_chosen_as_the_kernel_does() {
    for name in names("booted").into_iter().chain(names("thp-always")) {
        let sizes = comparison(&name, Phase::Booted).min_free_kbytes;
        assert!(sizes.within, "{name}: {sizes:?}");
    }
}

#[test]
fn a_tuned_high_is_within_its_bounds_or_still_unused() {
    let mut seen = BTreeSet::new();
    for name in names("recomputed").into_iter().chain(["6.18-host/booted".to_owned(), LATER.to_owned()]) {
        for zone in comparison(&name, Phase::Recomputed).zones {
            let Some(PcpHigh::Tuned { min, .. }) = zone.ours.pcp_high else { continue };
            for live in zone.live_high {
                // Left from when the list was last used, before the marks rose; never above the bounds.
                assert!(live.state != LiveState::Stale || live.high < min, "{name}: {live:?}");
                seen.insert(format!("{:?}", live.state));
            }
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["Stale", "Unused", "Within"]);
}

/// The host hours after boot. Its first CPU had used its list of DMA32 before the low mark was computed, when the lower bound was
/// four batches, and not since; and a balloon had changed the bounds.
const LATER: &str = "6.18-host/later";

#[test]
fn a_list_unused_since_boot_keeps_the_high_of_then() {
    let later = comparison(LATER, Phase::Live);
    assert!(later.equal(), "{}", later.table().join("\n"));
    let zone = later.zones.iter().find(|zone| zone.kind == ZoneKind::Dma32).unwrap();
    assert_eq!(zone.kernel.pcp_high, Some(PcpHigh::Tuned { min: Frames(1753), max: Frames(48_307) }));
    let highs: Vec<_> = zone.live_high.iter().map(|live| (live.high, live.state)).collect();
    assert_eq!(highs, [(Frames(252), LiveState::Stale), (Frames(1753), LiveState::Within)]);
    assert_eq!(zone.kernel.pcp_batch, Some(Frames(252 / 4)));
    let table = later.table().join("\n");
    assert!(table.contains("DMA32 pcp high now 252-1753; CPUs: 1 within, 1 stale"), "{table}");
}

#[test]
fn a_high_that_no_bounds_allow_is_outside() {
    let states = |high| {
        let mut snapshot = snapshot(LATER);
        let zone = snapshot.zones.iter_mut().find(|zone| zone.name == "DMA32").unwrap();
        zone.pagesets[0].high = Frames(high);
        let zones = compare(&snapshot, rules(&snapshot), Phase::Live).unwrap().zones;
        zones.iter().find(|zone| zone.kind == ZoneKind::Dma32).unwrap().live_high[0].state
    };
    // 782,336 frames are present: an eighth of them, for one CPU, is the most that `high_max` ever was.
    let expected = [
        (0, LiveState::Unused),
        (1, LiveState::Outside),
        (4, LiveState::Stale),
        (1752, LiveState::Stale),
        (1753, LiveState::Within),
        (48_307, LiveState::Within),
        (97_792, LiveState::Stale),
        (97_793, LiveState::Outside),
    ];
    for (high, state) in expected {
        assert_eq!(states(high), state, "{high}");
    }
}

#[test]
fn other_managed_pages_are_noticed() {
    for name in names("recomputed") {
        let mut snapshot = snapshot(&name);
        let zone = snapshot.zones.iter_mut().max_by_key(|zone| zone.managed).unwrap();
        zone.managed += Frames(1000);
        let node = zone.node;
        let comparison = compare(&snapshot, rules(&snapshot), Phase::Recomputed).unwrap();
        assert!(!comparison.equal(), "{name}");
        let of_zone = comparison.mismatches().filter(|(row, _)| row.node == node).count();
        assert!(of_zone >= 3, "{name}: {of_zone}");
        let verdicts: Vec<_> =
            comparison.table().into_iter().filter(|line| line.starts_with("zones: differs: ")).collect();
        assert!(verdicts.iter().all(|line| line.ends_with("(our rules are not this kernel's)")), "{verdicts:?}");
        assert!(!verdicts.is_empty());
    }
}

type Change = fn(&mut linux::procfs::Zone);

#[test]
fn each_figure_can_differ() {
    let name = "6.18-host/booted";
    let changes: [(&str, Change); 8] = [
        ("min", |zone| zone.min += Frames(1)),
        ("low", |zone| zone.low += Frames(1)),
        ("high", |zone| zone.high += Frames(1)),
        ("promo", |zone| zone.promo = Some(Frames(1))),
        ("protection[2]", |zone| zone.protection[2] += Frames(1)),
        ("protection[4]", |zone| zone.protection.truncate(4)),
        ("pcp batch", |zone| zone.pagesets[1].batch += Frames(1)),
        ("pcp high_max", |zone| zone.pagesets[1].high_max = Some(Frames(1))),
    ];
    for (figure, change) in changes {
        let mut snapshot = snapshot(name);
        change(&mut snapshot.zones[1]);
        let comparison = compare(&snapshot, rules(&snapshot), Phase::Live).unwrap();
        let found: Vec<_> = comparison.mismatches().map(|(_, mismatch)| mismatch.figure.as_str()).collect();
        assert_eq!(found, [figure]);
    }
    let mut fixed = snapshot("6.1-4n-2g/recomputed");
    fixed.zones[1].pagesets[3].high += Frames(1);
    let comparison = compare(&fixed, rules(&fixed), Phase::Recomputed).unwrap();
    assert_eq!(comparison.mismatches().next().unwrap().1.figure, "pcp high");
}

#[test]
fn a_boost_is_no_difference() {
    let mut snapshot = snapshot("6.18-host/booted");
    let zone = &mut snapshot.zones[2];
    let boost = Frames(512);
    zone.boost = Some(boost);
    for mark in [&mut zone.min, &mut zone.low, &mut zone.high, zone.promo.as_mut().unwrap()] {
        *mark += boost;
    }
    assert!(compare(&snapshot, rules(&snapshot), Phase::Live).unwrap().equal());
}

#[test]
fn other_rules_are_noticed() {
    for (name, wrong) in [
        ("5.10-1n-4g", "v6.1"),
        ("5.10-1n-4g", "v4.1"),
        ("6.1-2n-2g", "v5.10"),
        ("6.1-2n-2g", "v6.6"),
        ("6.12-2n-2g", "v6.1"),
    ] {
        let snapshot = snapshot(&format!("{name}/recomputed"));
        let comparison = compare(&snapshot, variant::built_in(wrong).unwrap(), Phase::Recomputed).unwrap();
        assert!(!comparison.equal(), "{name} under {wrong}");
    }
}

#[test]
fn old_kernels_print_no_empty_zones() {
    let mut snapshot = snapshot("6.1-4n-2g/recomputed");
    let (all, _) = view(&snapshot).unwrap();
    snapshot.zones.retain(linux::procfs::Zone::is_populated);
    // DMA, DMA32 and two of the three missing ones can be told from the five protection entries.
    let (filled, _) = view(&snapshot).unwrap();
    assert_eq!(filled.nodes[0].zones.len(), 5);
    assert_eq!(filled, all);
    assert_eq!(filled.nodes[3].id, NodeId(3));
}

#[test]
fn what_the_arithmetic_needs_must_be_there() {
    let missing = |name: &'static str| {
        let mut snapshot = snapshot("6.1-1n-4g/recomputed");
        snapshot.settings.remove(name);
        view(&snapshot).map(drop)
    };
    for name in ["vm.min_free_kbytes", "vm.lowmem_reserve_ratio"] {
        assert_eq!(missing(name), Err(ArithmeticError::NoSetting { name }));
    }
    assert_eq!(missing("transparent_hugepage/enabled"), Ok(()));
    let mut snapshot = snapshot("6.1-1n-4g/recomputed");
    snapshot.settings.insert("vm.lowmem_reserve_ratio".to_owned(), "256 many".to_owned());
    let error = view(&snapshot).unwrap_err().to_string();
    assert_eq!(error, "setting vm.lowmem_reserve_ratio: expected numbers of 32 bits, found \"256 many\"");
    snapshot.zones[0].name = "HighMem".to_owned();
    assert_eq!(view(&snapshot).unwrap_err(), ArithmeticError::Zone("HighMem".to_owned()));
}

#[test]
fn tables_fit_a_terminal_and_say_equal() {
    for name in names("recomputed") {
        let table = comparison(&name, Phase::Recomputed).table();
        assert!(table.iter().all(|line| line.len() <= 120), "{name}\n{}", table.join("\n"));
        assert!(table.contains(&"zones: equal".to_owned()), "{name}");
    }
    let table = comparison("6.1-2n-2g/recomputed", Phase::Recomputed).table().join("\n");
    assert_eq!(table, TABLE.trim_end());
}

const TABLE: &str = "\
Linux 6.1.0-50-cloud-amd64, recomputed from today's pages; ours: rules of v6.1; frames of 4 KiB
node zone          managed   min    low   high  batch  pcp high  protection
0 DMA      kernel     3840   127    158    189      1        79  0 991 991 991 991
           ours       3840   127    158    189      1        79  0 991 991 991 991
0 DMA32    kernel   253782  8455  10568  12681     63      5284  0 0 0 0 0
           ours     253782  8455  10568  12681     63      5284  0 0 0 0 0
1 DMA32    kernel   249487  8312  10390  12468     63      5195  0 0 0 0 0
           ours     249487  8312  10390  12468     63      5195  0 0 0 0 0
0 Normal, Movable, Device: empty, equal
1 DMA, Normal, Movable, Device: empty, equal
zones: equal
min_free_kbytes: kernel 67584, ours 67584 (+0.00 %): equal within 2.5 %
";

#[test]
fn differences_are_named_below_the_table() {
    let table = comparison("6.12-2n-2g/booted", Phase::Booted).table();
    for line in [
        "1 DMA32 pcp high now 5158-6396; CPUs: 3 within, 1 stale",
        "zones: differs: 0 DMA32 in min, low, high, promo (pages freed after boot)",
    ] {
        assert!(table.contains(&line.to_owned()), "{line}\n{}", table.join("\n"));
    }
    assert!(!table.contains(&"zones: equal".to_owned()));
}

/// The largest numbers that the parser lets through must not overflow anything.
#[test]
fn absurd_sizes_are_computed_not_refused() {
    let mut intact = snapshot("6.12-2n-2g/booted");
    for (setting, value) in &mut intact.settings {
        if setting.starts_with("vm.") {
            *value = [i32::MAX.to_string().as_str(); 5].join(" ");
        }
    }
    let huge = Frames(1 << 40);
    for index in 0..intact.zones.len() {
        for rules in variant::all() {
            let mut one = intact.clone();
            (one.zones[index].present, one.zones[index].managed) = (huge, huge);
            assert!(!compare(&one, rules, Phase::Live).unwrap().equal());
        }
    }
    for zone in &mut intact.zones {
        (zone.present, zone.managed, zone.boost) = (huge, huge, Some(huge));
    }
    for rules in variant::all() {
        assert!(!compare(&intact, rules, Phase::Live).unwrap().equal());
    }
}

#[test]
fn a_comparison_survives_json() {
    let comparison = comparison("6.12-2n-2g/booted", Phase::Booted);
    let json = serde_json::to_string(&comparison).unwrap();
    assert_eq!(serde_json::from_str::<ZoneComparison>(&json).unwrap(), comparison);
}

#[test]
fn counters_and_free_blocks_of_each_kernel_parse() {
    for name in ["5.10-4n-2g/booted", "6.1-4n-2g/booted", "6.12-4n-2g/booted", "6.18-host/booted"] {
        let capture = capture(name);
        let counters = vmstat::parse(capture.text("vmstat").unwrap()).unwrap();
        assert!(counters.contains_key("pgfault") && counters.contains_key("compact_stall"), "{name}");
        let types = pagetypeinfo::parse(capture.text("pagetypeinfo").unwrap()).unwrap();
        assert_eq!(types.pageblock_order, 9, "{name}");
        let zones = buddyinfo::parse(capture.text("buddyinfo").unwrap()).unwrap();
        assert_eq!(zones.len(), types.blocks.len(), "{name}");
        let populated = Snapshot::parse(&capture).unwrap().zones.into_iter().filter(linux::procfs::Zone::is_populated);
        assert_eq!(zones.len(), populated.count(), "{name}");
    }
}
