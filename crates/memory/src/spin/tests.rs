//! Spin locks: waits are held not to depend on the order in which CPUs are simulated.

use units::Picos;

use super::*;
use crate::{
    cost::{Prices, Spent},
    event::Counters,
};

const PAIR: u64 = 20;
const TRANSFER: u64 = 50;

/// One hold of `span` by a CPU that comes at `at`: what it spent, and when it let go.
fn hold(lock: &mut SpinLock, cpu: u32, at: u64, span: u64) -> (Spent, u64) {
    let prices = Prices::new(|work| match work {
        Work::LockPair => Picos(PAIR),
        Work::LineTransfer => Picos(TRANSFER),
        _ => Picos(1),
    });
    let mut counters = Counters::default();
    let mut cx = Cx::new(CpuId(cpu), Time(at), &prices, &mut counters);
    lock.acquire(&mut cx, Cause::ZoneLock);
    cx.wait(cx.now() + Picos(span), Cause::Allocator);
    lock.release(&mut cx, Cause::ZoneLock);
    let spent = *cx.spent();
    assert_eq!(spent.total(), cx.now().since(Time(at)), "the parts sum to the total");
    assert_eq!(spent.total(), spent.on(Cause::ZoneLock) + spent.on(Cause::Allocator));
    (spent, cx.now().0)
}

/// Time spent on the lock.
fn locking(lock: &mut SpinLock, cpu: u32, at: u64, span: u64) -> u64 {
    hold(lock, cpu, at, span).0.on(Cause::ZoneLock).0
}

#[test]
fn a_free_lock_costs_its_price_and_a_line_from_another_cpu() {
    let mut lock = SpinLock::default();
    assert_eq!(locking(&mut lock, 0, 0, 100), PAIR, "nobody had it before");
    assert_eq!(locking(&mut lock, 0, 1000, 100), PAIR, "the line is still here");
    assert_eq!(locking(&mut lock, 1, 2000, 100), PAIR + TRANSFER);
    assert_eq!(locking(&mut lock, 1, 3000, 100), PAIR);
    assert_eq!(locking(&mut lock, 0, 4000, 100), PAIR + TRANSFER);
    assert_eq!(locking(&mut lock, 1, 4000 + PAIR + TRANSFER + 100, 0), PAIR + TRANSFER, "just let go");
}

#[test]
fn who_comes_first_is_served_first() {
    let mut lock = SpinLock::default();
    assert_eq!(hold(&mut lock, 0, 0, 1000).1, 1000 + PAIR);
    let one = 1000 + PAIR + TRANSFER;
    let second = hold(&mut lock, 1, 500, 1000).1;
    assert_eq!(second, 1000 + PAIR + one);
    // The third waits for both holds, though it comes before the second one's begins.
    let (spent, third) = hold(&mut lock, 2, 600, 1000);
    assert_eq!(third, second + one);
    assert_eq!(spent.on(Cause::ZoneLock).0, second - 600 + PAIR + TRANSFER);
    assert_eq!(hold(&mut lock, 3, 1500, 0).1, third + PAIR + TRANSFER, "and the fourth for three");
}

#[test]
fn a_hold_by_a_cpu_that_runs_ahead_is_not_waited_for() {
    let mut lock = SpinLock::default();
    hold(&mut lock, 0, 5000, 1000);
    assert_eq!(locking(&mut lock, 1, 2000, 1000), PAIR + TRANSFER, "it is over before the other begins");
    // Both holds count for those who come in their time, whichever was recorded last.
    assert!(locking(&mut lock, 2, 5500, 0) > 500);
    assert!(locking(&mut lock, 3, 2500, 0) > 500);
    assert_eq!(locking(&mut lock, 0, 4000, 0), PAIR + TRANSFER, "between them it is free");
}

#[test]
fn the_sum_of_waits_does_not_depend_on_who_is_simulated_first() {
    // Four CPUs come within 300 ps and hold the lock for 1000 each.
    let waits = |order: [u64; 4]| {
        let mut lock = SpinLock::default();
        hold(&mut lock, 9, 0, 1000);
        order.map(|cpu| locking(&mut lock, u32::try_from(cpu).unwrap(), 100 + 100 * cpu, 1000)).iter().sum::<u64>()
    };
    let in_order = waits([0, 1, 2, 3]);
    for order in [[3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]] {
        assert_eq!(waits(order), in_order, "{order:?}");
    }
}

#[test]
fn two_holds_at_once_cost_the_same_whoever_is_simulated_first() {
    // The second comes when the first has 520 ps left.
    let cost = |order: [(u32, u64); 2]| {
        let mut lock = SpinLock::default();
        hold(&mut lock, 9, 0, 0);
        order.map(|(cpu, at)| locking(&mut lock, cpu, at, 1000)).iter().sum::<u64>()
    };
    let both = 2 * (PAIR + TRANSFER);
    assert_eq!(cost([(0, 1000), (1, 1500)]), both + 500 + PAIR + TRANSFER);
    assert_eq!(cost([(1, 1500), (0, 1000)]), cost([(0, 1000), (1, 1500)]));
    assert_eq!(cost([(1, 5000), (0, 1000)]), both, "one after the other");
}

#[test]
fn a_cpu_never_waits_for_itself() {
    let mut lock = SpinLock::default();
    hold(&mut lock, 0, 0, 1000);
    assert_eq!(locking(&mut lock, 0, 500, 1000), PAIR);
}

#[test]
#[should_panic(expected = "held within one step")]
fn a_lock_that_was_not_released_is_a_bug() {
    let (mut lock, prices, mut counters) = (SpinLock::default(), Prices::free(), Counters::default());
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    lock.acquire(&mut cx, Cause::LruLock);
    lock.acquire(&mut cx, Cause::LruLock);
}
