//! Prices of accesses by place: held to the figures of a machine's file.

use super::*;

fn picos(ns: &[&[u64]]) -> Vec<Vec<Picos>> {
    ns.iter().map(|row| row.iter().copied().map(Picos::from_nanos).collect()).collect()
}

/// Two nodes; the second one's CPUs are nearer to the first one's memory than the other way round.
fn two_nodes() -> Latency {
    Latency { load: picos(&[&[80, 140], &[120, 90]]), line: picos(&[&[6, 11], &[10, 7]]), ..Latency::default() }
}

fn prices() -> Prices {
    Prices::new(|work| Picos(if work == Work::UserFill { 300_000 } else { 5_000 }))
}

fn place(from: usize, to: usize) -> Place {
    Place { from, to, is_huge: false, cache_users: 1 }
}

#[test]
fn an_access_takes_what_the_file_says_of_its_two_places() {
    let latency = two_nodes();
    for (from, row) in latency.load.iter().enumerate() {
        for (to, load) in row.iter().enumerate() {
            let price = latency.of(&prices(), from, to);
            assert_eq!(price.total(), *load);
            assert_eq!(price.near, latency.load[from][from], "nothing is nearer than one's own node here");
            let visit = latency.of_visit(&prices(), Pattern::Random, Frames(1 << 20), place(from, to));
            assert_eq!(visit.total(), *load, "no cache, no TLB");
            let sweep = latency.of_visit(&prices(), Pattern::Sweep, Frames(1 << 20), place(from, to));
            assert_eq!(sweep.total().0, latency.line[from][to].0 * 64);
            let past = latency.of_visit(&prices(), Pattern::NonTemporal, Frames(1 << 20), place(from, to));
            assert_eq!(past.total().0, latency.load[from][to].0 / 10 * 64, "ten lines on their way at once");
        }
    }
    let own = two_nodes();
    let unmeasured = Latency { line: Vec::new(), ..two_nodes() };
    let sweep = |of: &Latency| of.of_visit(&prices(), Pattern::Sweep, Frames(1 << 20), place(0, 1)).total();
    assert_eq!(sweep(&unmeasured).0, 64 * 140_000);
    assert!(sweep(&own) < sweep(&unmeasured));
}

#[test]
fn a_flat_machine_takes_the_same_everywhere() {
    let flat = Latency::default();
    for to in [0, 1] {
        assert_eq!(flat.of(&prices(), 0, to), AccessPrice { near: Picos(5_000), far: Picos(0) });
        let sweep = flat.of_visit(&prices(), Pattern::Sweep, Frames(8), place(0, to));
        assert_eq!(sweep, AccessPrice { near: Picos(300_000), far: Picos(0) });
    }
}

#[test]
fn memory_that_is_nearer_than_ones_own_is_not_remote() {
    let latency = Latency { load: picos(&[&[90, 60], &[60, 90]]), ..Latency::default() };
    assert_eq!(latency.of(&prices(), 0, 1), AccessPrice { near: Picos(60_000), far: Picos(0) });
}

#[test]
fn threads_that_share_a_cache_have_parts_of_it() {
    let cache = LastCache { size: Bytes::mib(18), load: Picos::from_nanos(30) };
    let latency = Latency { cache: Some(cache), ..two_nodes() };
    let price = |cache_users| {
        let place = Place { cache_users, ..place(0, 1) };
        latency.of_visit(&prices(), Pattern::Sweep, Bytes::mib(6).frames(), place).total().0
    };
    let (cached, remote) = (300_000, 11_000 * 64);
    // A third of the cache each.
    assert_eq!([1, 3, 4, 16].map(price), [cached, cached, remote, remote]);
}

#[test]
fn cached_and_tlb_covered_parts_of_a_range_are_fast() {
    let cache = Some(LastCache { size: Bytes::mib(32), load: Picos::from_nanos(20) });
    let latency = Latency { cache, ..two_nodes() };
    let random = |of: &Latency, mib: u64, is_huge| {
        of.of_visit(
            &prices(),
            Pattern::Random,
            Bytes::mib(mib).frames(),
            Place { from: 0, to: 1, is_huge, cache_users: 1 },
        )
    };
    assert_eq!(random(&latency, 32, false), AccessPrice { near: Picos(20_000), far: Picos(0) });
    assert_eq!(random(&latency, 64, false), AccessPrice { near: Picos(50_000), far: Picos(30_000) });
    let two = Place { cache_users: 2, ..place(0, 1) };
    let shared = latency.of_visit(&prices(), Pattern::Random, Bytes::mib(32).frames(), two);
    assert_eq!(shared, random(&latency, 64, false), "half of the cache is a busy neighbour's");
    let sweep = latency.of_visit(&prices(), Pattern::Sweep, Bytes::mib(32).frames(), place(0, 1));
    assert_eq!(sweep.total(), Picos(300_000));
    let tlb = Some(TlbReach { base: Bytes::mib(8), huge: Bytes::mib(64), miss: Picos::from_nanos(40) });
    let latency = Latency { tlb, ..latency };
    assert_eq!(random(&latency, 32, false).near, Picos(20_000 + 30_000), "three of four walk");
    assert_eq!(random(&latency, 32, true).near, Picos(20_000));
}
