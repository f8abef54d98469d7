use rules::variant::named;
use units::{Bytes, NodeId};

use super::*;

fn zone(kind: ZoneKind, managed: u64) -> ZoneView {
    ZoneView { kind, present: Frames(managed), managed: Frames(managed) }
}

fn node(id: u32, managed: [u64; 5]) -> NodeView {
    let zones = ZoneKind::ALL.into_iter().zip(managed).map(|(kind, managed)| zone(kind, managed)).collect();
    NodeView { id: NodeId(id), cpus: 1, zones }
}

fn single(managed: [u64; 5]) -> MachineView {
    MachineView { nodes: vec![node(0, managed)] }
}

fn gib(n: u64) -> u64 {
    Bytes::gib(n).frames().0
}

fn automatic(managed: [u64; 5], thp: bool, rules: &Variant) -> u64 {
    automatic_min_free_kbytes(&single(managed), &Settings { thp, ..Settings::default() }, rules)
}

fn marks(machine: &MachineView, min_free_kbytes: u64, kind: ZoneKind, rules: &Variant) -> (u64, u64, u64) {
    let settings = Settings { min_free_kbytes, ..Settings::default() };
    let zone = machine.zones().find(|zone| zone.kind == kind).unwrap();
    let marks = Shares::of(machine, &settings, rules).marks(zone, rules);
    (marks.min.0, marks.low.0, marks.high.0)
}

#[test]
fn min_free_kbytes_by_the_size_of_memory() {
    let table = [(1, 4096), (4, 8192), (8, 11585), (16, 16384), (32, 23170), (64, 32768), (256, 65536)];
    for (size, kbytes) in table {
        for name in ["v3.9", "v4.20", "v5.10", "v6.18"] {
            assert_eq!(automatic([0, 0, gib(size), 0, 0], false, named(name)), kbytes, "{size} GiB, {name}");
        }
    }
    assert_eq!(automatic([0, 0, gib(1024), 0, 0], false, named("v4.20")), 65536);
    assert_eq!(automatic([0, 0, gib(1024), 0, 0], false, named("v5.8")), 131_072);
    assert_eq!(automatic([0, 0, gib(65536), 0, 0], false, named("v5.8")), 262_144);
    assert_eq!(automatic([64, 0, 0, 0, 0], false, named("v6.1")), 128);
    assert_eq!(automatic([0, 0, gib(4), gib(60), 0], false, named("v6.1")), 8192, "Movable is no place for GFP_USER");
}

#[test]
fn min_free_kbytes_for_huge_pages() {
    assert_eq!(automatic([0, gib(3), gib(8), 0, 0], true, named("v6.1")), 45056);
    assert_eq!(automatic([3840, gib(3), gib(8), 0, 0], true, named("v6.1")), 67584);
    let two_nodes = MachineView { nodes: vec![node(0, [3840, gib(3), gib(8), 0, 0]), node(1, [0, 0, gib(8), 0, 0])] };
    let thp = Settings { thp: true, ..Settings::default() };
    assert_eq!(automatic_min_free_kbytes(&two_nodes, &thp, named("v6.1")), 90112);

    let movable = [3840, gib(3), gib(8), gib(8), 0];
    assert_eq!(automatic(movable, true, named("v4.1")), 90112, "Movable counted");
    assert_eq!(automatic(movable, true, named("v4.17")), 67584, "Movable left out");
    // One zone of 400 MiB: 5 % of what is above the high mark is less than 22 MiB. By size 2560 kB, so high 960 frames.
    let frames = Bytes::mib(400).frames().0;
    assert_eq!(automatic([0, 0, frames, 0, 0], true, named("v6.1")), (frames - 960) / 20 * 4);
}

#[test]
fn marks_of_one_large_zone() {
    let machine = single([0, 0, gib(16), 0, 0]);
    let kib = |kib: (u64, u64, u64)| (kib.0 / 4, kib.1 / 4, kib.2 / 4);
    for rules in [named("v4.20"), named("v5.10"), named("v6.1"), named("v6.18")] {
        assert_eq!(marks(&machine, 67584, ZoneKind::Normal, rules), kib((67584, 84480, 101_376)));
    }
    // With little to share, the scale factor is the larger step: 0.1 % of 4 Mi frames.
    assert_eq!(marks(&machine, 16384, ZoneKind::Normal, named("v4.20")), (4096, 4096 + 4194, 4096 + 8388));
    assert_eq!(marks(&machine, 16384, ZoneKind::Normal, named("v4.1")), (4096, 4096 + 1024, 4096 + 2048));
    // A quarter and a half are rounded on their own: no multiple of a step.
    assert_eq!(marks(&machine, 4 * 1003, ZoneKind::Normal, named("v3.9")), (1003, 1003 + 250, 1003 + 501));
}

#[test]
fn promo_is_one_step_above_high() {
    let machine = single([0, 0, gib(16), 0, 0]);
    let settings = Settings { min_free_kbytes: 67584, ..Settings::default() };
    let promo = |rules| Shares::of(&machine, &settings, rules).marks(&machine.nodes[0].zones[2], rules).promo;
    assert_eq!(promo(named("v6.1")), Some(Frames((67584 + 3 * 16896) / 4)));
    assert_eq!(promo(named("v5.10")), None);
}

#[test]
fn movable_shared_until_6_6() {
    let machine = single([0, 0, gib(4), gib(4), 0]);
    let half = (8448, 10560, 12672);
    assert_eq!(marks(&machine, 67584, ZoneKind::Movable, named("v6.1")), half);
    assert_eq!(marks(&machine, 67584, ZoneKind::Normal, named("v6.1")), half);
    assert_eq!(marks(&machine, 67584, ZoneKind::Normal, named("v6.6")), (16896, 21120, 25344));
    assert_eq!(
        marks(&machine, 67584, ZoneKind::Movable, named("v6.6")),
        (128, 128 + 4224, 128 + 8448),
        "step as before"
    );
    assert_eq!(marks(&single([0, 0, 4096, 50_000, 0]), 0, ZoneKind::Movable, named("v6.7")), (48, 98, 148));
}

#[test]
fn empty_zones() {
    let machine = single([3840, gib(1), 0, 0, 0]);
    for kind in [ZoneKind::Normal, ZoneKind::Movable, ZoneKind::Device] {
        assert_eq!(marks(&machine, 67584, kind, named("v6.1")), (0, 0, 0), "{kind}");
    }
    assert_eq!(marks(&machine, 67584, ZoneKind::Normal, named("v6.18")), (0, 0, 0));
    assert_eq!(marks(&machine, 67584, ZoneKind::Movable, named("v6.18")), (32, 32, 32));
    assert_eq!(marks(&machine, 67584, ZoneKind::Device, named("v6.18")), (0, 0, 0));
    assert_eq!(marks(&single([0; 5]), 67584, ZoneKind::Normal, named("v6.1")), (0, 0, 0), "no memory at all");
}

#[test]
fn the_largest_machine_does_not_overflow() {
    let most = 1 << 40;
    let machine = single([0, 0, most, 0, 0]);
    let (min, low, high) = marks(&machine, u64::from(u32::MAX), ZoneKind::Normal, named("v6.1"));
    assert_eq!((min, high - low), (u64::from(u32::MAX) / 4, most / 1000));
}

#[test]
fn protection_is_the_sum_above_over_the_ratio() {
    let ratios = [256, 256, 32, 0, 0];
    let of = |index| -> Vec<u64> {
        let recorded = node(0, [3840, 772_917, 4_030_464, 0, 0]);
        protection(&recorded, index, &ratios, named("v6.18")).into_iter().map(|frames| frames.0).collect()
    };
    assert_eq!(of(0), [0, 3019, 18763, 18763, 18763]);
    assert_eq!(of(1), [0, 0, 15744, 15744, 15744]);
    assert_eq!(of(2), [0, 0, 0, 0, 0]);
    assert_eq!(of(4), [0, 0, 0, 0, 0]);
    let twelve = node(0, [3840, gib(3), gib(12), 0, 0]);
    assert_eq!(protection(&twelve, 1, &ratios, named("v6.1"))[2], Bytes::mib(48).frames());
}

#[test]
fn a_ratio_of_zero() {
    let node = node(0, [3840, 10_000, 0, 500, 0]);
    let of = |rules| protection(&node, 1, &[256, 0, 32, 0], rules)[3];
    assert_eq!(of(named("v4.1")), Frames(500), "taken for 1");
    assert_eq!(of(named("v4.20")), Frames(0));
    assert_eq!(of(named("v6.18")), Frames(0));
}

#[test]
fn an_empty_zone_keeps_nothing_since_5_8() {
    let node = node(2, [0, 0, 262_144, 0, 0]);
    let of = |rules| protection(&node, 0, &[256, 256, 32, 0, 0], rules);
    let kept = [0, 0, 1024, 1024, 1024].map(Frames);
    assert_eq!(of(named("v4.1")), kept);
    assert_eq!(of(named("v4.20")), kept);
    assert_eq!(of(named("v5.8")), [Frames(0); 5]);
    assert_eq!(protection(&node, 0, &[0, 256, 32], named("v4.1"))[2], Frames(262_144), "a ratio of 1, and no memory");
}

#[test]
fn as_many_entries_as_zones() {
    let mut four = node(0, [3840, 10_000, 50_000, 0, 0]);
    four.zones.pop();
    assert_eq!(protection(&four, 0, &[256, 256, 32], named("v3.9")).len(), 4);
    assert_eq!(protection(&four, 3, &[256, 256, 32], named("v3.9")), [Frames(0); 4], "the last zone has no ratio");
}
