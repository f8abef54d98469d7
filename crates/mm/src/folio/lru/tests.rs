use memory::{cost::Prices, event::Counters, frame::FamilyId, lru_kind::LruKind};
use rules::{
    gfp::AllocRequest,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{self, Variant},
    zone::{Settings, ZoneKind},
};
use units::{Bytes, NodeId, Time, Vpn};

use super::*;
use crate::whole::check;

/// Two nodes of one CPU each; the first has two zones.
fn machine(rules: &Variant) -> Mm {
    let zone = |kind, mib: u64| ZoneSpec::whole(kind, frame(mib), frame(64).0);
    let node = |id: u32, zones| NodeSpec { id: NodeId(id), cpus: vec![CpuId(id)], distance: vec![10, 20], zones };
    let first = node(0, vec![zone(ZoneKind::Dma32, 0), zone(ZoneKind::Normal, 64)]);
    let mut second = node(1, vec![zone(ZoneKind::Normal, 128)]);
    second.distance.reverse();
    let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![first, second] };
    Mm::new(&machine, *rules, &Settings::default())
}

fn frame(mib: u64) -> Pfn {
    Pfn(u32::try_from(Bytes::mib(mib).frames().0).unwrap())
}

fn on<T>(mm: &mut Mm, cpu: u32, body: impl FnOnce(&mut Mm, &mut Cx<'_>) -> T) -> T {
    let (prices, mut counters) = (Prices::free(), Counters::default());
    let result = body(mm, &mut Cx::new(CpuId(cpu), Time(0), &prices, &mut counters));
    check::walk(mm).unwrap();
    result
}

fn fault(mm: &mut Mm, cpu: u32, order: Order) -> Pfn {
    on(mm, cpu, |mm, cx| {
        let request = AllocRequest::gfp_highuser_movable(NodeId(cpu));
        let head = mm.memory.alloc(cx, &request.of_order(order)).unwrap();
        mm.map_new_folio(cx, head, FamilyId(0), Vpn(512), order);
        head
    })
}

/// The only mapping goes away, and with it the last reference but for that of a batch.
fn unmap(mm: &mut Mm, cpu: u32, head: Pfn) {
    on(mm, cpu, |mm, cx| {
        let order = mm.memory.frames.allocated(head).unwrap();
        let folio = if order == Order::BASE { mm.unmap_base(cx, head) } else { mm.unmap_huge(cx, head) };
        mm.put_folio(cx, folio.unwrap());
    });
}

fn listed(mm: &Mm, lruvec: usize, kind: LruKind) -> Vec<Pfn> {
    mm.lru.lruvecs()[lruvec].list(kind).iter(&mm.memory.frames).collect()
}

#[test]
fn a_full_batch_goes_to_the_list_newest_at_the_head() {
    for name in ["v4.1", "v4.15", "v6.1", "v6.18"] {
        let rules = variant::named(name);
        let mut mm = machine(rules);
        let full = usize::try_from(rules.lru_batch).unwrap();
        let mut folios: Vec<Pfn> = (1..full).map(|_| fault(&mut mm, 1, Order::BASE)).collect();
        assert_eq!(mm.lru.batch(CpuId(1)), folios, "{name}: none is on a list yet");
        folios.push(fault(&mut mm, 1, Order::BASE));
        if name == "v4.1" {
            assert_eq!(mm.lru.batch(CpuId(1)), folios, "{name}: nor now");
            let next = fault(&mut mm, 1, Order::BASE);
            assert_eq!(mm.lru.batch(CpuId(1)), [next]);
        } else {
            assert!(mm.lru.batch(CpuId(1)).is_empty());
        }
        folios.reverse();
        let lruvec = mm.lru.lruvecs().len() - 1;
        assert_eq!(listed(&mm, lruvec, LruKind::of_new_anon(rules.lru_new_anon)), folios, "{name}");
        assert_eq!(mm.lru.frames(lruvec, LruKind::of_new_anon(rules.lru_new_anon)), full as u64);
        let gone = folios.remove(3);
        unmap(&mut mm, 0, gone);
        assert_eq!(
            listed(&mm, lruvec, LruKind::of_new_anon(rules.lru_new_anon)),
            folios,
            "{name}: it left the list when it was freed"
        );
    }
}

#[test]
fn a_huge_page_takes_the_batch_along() {
    for (name, waits) in [("v4.6", true), ("v4.7", false)] {
        let mut mm = machine(variant::named(name));
        let base = fault(&mut mm, 0, Order::BASE);
        let huge = fault(&mut mm, 0, Order::HUGE);
        let waiting = if waits { vec![base, huge] } else { vec![] };
        assert_eq!(mm.lru.batch(CpuId(0)), waiting, "{name}");
    }
    let mut mm = machine(variant::named("v6.1"));
    let huge = fault(&mut mm, 0, Order::HUGE);
    assert_eq!(mm.lru.frames(0, LruKind::InactiveAnon), 512);
    unmap(&mut mm, 0, huge);
    assert_eq!(mm.lru.frames(0, LruKind::InactiveAnon), 0);
}

#[test]
fn lists_are_by_zone_and_later_by_node() {
    assert_eq!(machine(variant::named("v4.7")).lru.lruvecs().len(), 3);
    let mm = machine(variant::named("v4.8"));
    assert_eq!((mm.lru.lruvecs().len(), [0, 1, 2].map(|zone| mm.lru.of_zone(ZoneIndex(zone)))), (2, [0, 0, 1]));
}

#[test]
fn a_folio_in_another_cpus_batch_is_freed_when_that_is_drained() {
    let mut mm = machine(variant::named("v6.1"));
    let [kept, gone] = [0, 0].map(|cpu| fault(&mut mm, cpu, Order::BASE));
    unmap(&mut mm, 1, gone);
    assert_eq!(mm.memory.frames.allocated(gone), Some(Order::BASE), "the batch still holds it");
    assert_eq!(mm.lru.batch(CpuId(0)), [kept, gone]);
    on(&mut mm, 0, Mm::lru_add_drain);
    assert_eq!(mm.memory.frames.allocated(gone), None);
    assert_eq!(listed(&mm, 0, LruKind::InactiveAnon), [kept]);
}

#[test]
fn nobody_frees_what_a_gather_still_holds() {
    let mut mm = machine(variant::named("v6.1"));
    let folio = fault(&mut mm, 0, Order::BASE);
    let unmapped = on(&mut mm, 1, |mm, cx| mm.unmap_base(cx, folio)).unwrap();
    on(&mut mm, 0, Mm::lru_add_drain);
    assert_eq!(listed(&mm, 0, LruKind::InactiveAnon), [folio], "unmapped, but not given up");
    on(&mut mm, 1, |mm, cx| mm.put_folio(cx, unmapped));
    assert_eq!(mm.memory.frames.allocated(folio), None);
}

#[test]
fn an_isolated_folio_is_counted_apart_and_comes_back_to_the_head() {
    let rules = variant::named("v6.1");
    let mut mm = machine(rules);
    let full = usize::try_from(rules.lru_batch).unwrap();
    let folios: Vec<Pfn> = (0..full).map(|_| fault(&mut mm, 1, Order::BASE)).collect();
    let (lruvec, zone) = (mm.lru.lruvecs().len() - 1, mm.zone_position(folios[0]));
    assert_eq!(mm.isolate_lru(folios[3]), Some(LruKind::InactiveAnon));
    assert_eq!(mm.isolate_lru(folios[3]), None, "it is on no list any more");
    check::walk(&mm).unwrap();
    assert_eq!(mm.lru.zone_isolated(zone, false), 1);
    assert_eq!(mm.lru.zone_frames(zone, LruKind::InactiveAnon), full as u64 - 1);
    mm.putback_lru(folios[3], true);
    check::walk(&mm).unwrap();
    assert_eq!(listed(&mm, lruvec, LruKind::ActiveAnon), [folios[3]]);
    assert_eq!(mm.lru.zone_isolated(zone, false), 0);
    mm.isolate_lru(folios[0]);
    mm.putback_lru(folios[0], false);
    assert_eq!(listed(&mm, lruvec, LruKind::InactiveAnon)[0], folios[0]);
}
