//! The meter: times by cause are held to sum to the latency.

use super::*;
use crate::cx::Cx;

#[test]
fn parts_sum_to_the_latency() {
    let prices = Prices::new(|work| Picos(1 + work as u64 * 1000));
    let mut counters = Counters::default();
    let mut cx = Cx::new(CpuId(0), Time(5), &prices, &mut counters);
    cx.work(Work::Trap, 1);
    cx.because(Cause::Copy, |cx| {
        cx.because(Cause::Ipi, |cx| cx.work(Work::ClearFrame, 1));
        cx.work(Work::ClearFrame, 512);
    });
    cx.work(Work::AllocFast, 1);
    cx.wait(cx.now() + Picos(7), Cause::ZoneLock);
    cx.wait(Time(0), Cause::ZoneLock);
    cx.fault(Vpn(1));
    cx.fault(Vpn(2));
    let spent = *cx.spent();
    assert_eq!(spent.on(Cause::ZoneLock), Picos(7));
    assert_eq!(spent.on(Cause::Clear), Picos(0));
    assert_eq!(spent.on(Cause::Copy), Picos((1 + Work::ClearFrame as u64 * 1000) * 512));
    assert_eq!(spent.on(Cause::Ipi), Picos(1 + Work::ClearFrame as u64 * 1000));
    assert_eq!(spent.on(Cause::Allocator), Picos(1 + Work::AllocFast as u64 * 1000));
    assert_eq!(spent.on(Cause::Trap), Picos(1 + Work::Trap as u64 * 1000));
    assert_eq!(cx.now().since(Time(5)), spent.total());
    assert_eq!((cx.faults().taken, counters.get(Event::Pgfault)), (2, 2));
}

#[test]
fn what_was_spent_is_told_by_names_of_its_own() {
    let mut spent = Spent::default();
    spent.add_on(Cause::Copy, Picos(3));
    spent.add_on(Cause::User, Picos(2));
    assert_eq!(spent.by_cause().collect::<Vec<_>>(), [(Cause::User, Picos(2)), (Cause::Copy, Picos(3))]);
    let names: std::collections::BTreeSet<_> = Cause::ALL.iter().map(|cause| cause.name()).collect();
    assert_eq!(names.len(), Cause::ALL.len());
}

#[test]
fn the_fold_of_faults_holds_their_pages_times_and_order() {
    let fold = |faults: &[(u64, u64)]| {
        let mut all = Faults::default();
        for (at, vpn) in faults {
            all.take(Time(*at), Vpn(*vpn));
        }
        all.fold
    };
    let base = fold(&[(5, 1), (9, 2)]);
    let others =
        [vec![], vec![(5, 1)], vec![(5, 1), (8, 2)], vec![(5, 1), (9, 3)], vec![(5, 2), (9, 1)], vec![(9, 2), (5, 1)]];
    for other in others {
        assert_ne!(fold(&other), base, "{other:?}");
    }
}
