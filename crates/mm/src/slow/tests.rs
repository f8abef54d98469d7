//! Linux: none.
//!
//! Answers to a step that asks for memory when there is none.

use memory::{alloc::NoMemory, cost::Prices, cx::Cx, event::Counters};
use rules::{
    gfp::AllocRequest,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Order, Pfn, Time};

use super::Supply;
use crate::{Mm, Spaces};

const USER: AllocRequest = AllocRequest::gfp_highuser_movable(NodeId(2));

/// A machine of one zone, behind frames of no zone.
fn small() -> Mm {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(64), 1 << 14);
    let node = NodeSpec { id: NodeId(2), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
    let machine = MachineSpec { pageblock_order: Order(4), max_order: Order(5), nodes: vec![node] };
    Mm::new(&machine, *named("v6.1"), &Settings { min_free_kbytes: 1024, ..Settings::default() })
}

fn with<T>(mm: &mut Mm, body: impl FnOnce(&mut Mm, &mut Cx<'_>) -> T) -> T {
    let prices = Prices::free();
    let mut counters = Counters::default();
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    body(mm, &mut cx)
}

#[test]
fn only_a_step_that_may_ask_and_a_request_that_reclaims_are_told_to_come_again() {
    let mut mm = small();
    let nowait = AllocRequest { reclaims: false, ..USER };
    with(&mut mm, |mm, cx| while mm.memory.alloc(cx, &USER).is_ok() {});
    assert_eq!(with(&mut mm, |mm, cx| mm.memory.alloc(cx, &USER)), Err(NoMemory::Refused), "nobody would get it");
    let mut supply = Supply::default();
    let mut step = |requests: [&AllocRequest; 2], spaces: &mut Spaces| {
        let got = with(&mut mm, |mm, cx| {
            supply.lend(cx);
            let got = requests.map(|request| mm.memory.alloc(cx, request));
            (got, supply.settle(mm, cx))
        });
        // Bound: the slow path finds nothing that it could reclaim.
        while supply.is_busy() {
            let _ = with(&mut mm, |mm, cx| supply.step(mm, spaces, cx));
        }
        got
    };
    let spaces = &mut Spaces::default();
    let (asked, refused) = (Err(NoMemory::Asked), Err(NoMemory::Refused));
    assert_eq!(step([&nowait, &nowait], spaces), ([refused; 2], false));
    assert_eq!(step([&USER, &nowait], spaces), ([asked; 2], true), "a step that has asked gets nothing more");
    assert_eq!(step([&USER, &USER], spaces), ([refused, asked], true), "what was refused may be asked for again");
}
