//! The warehouse workload: points and shares of heaps, held to the published series.

use os::Runs;
use units::{CpuId, NodeId};

use super::*;
use crate::autonumabench::tests::nodes;

fn jvm(given: &[(&'static str, &str)], index: u32) -> Jvm {
    let params = Params::parse(given.iter().copied()).unwrap();
    let four = nodes(4, 16);
    params.jvm(index, (params.jvms(&four), Bytes::gib(64)), &params.points(48), None)
}

/// The parts of runs, by address.
fn parts(runs: Runs) -> Vec<(u64, u64)> {
    let (start, end) = (runs.range.start.0, runs.range.start.0 + runs.range.len.0);
    let starts = (start..end).step_by(usize::try_from(runs.every.0).unwrap());
    starts.map(|at| (at, (at + runs.len.0).min(end))).collect()
}

#[test]
fn points_are_those_of_the_series() {
    let points = |given: &[(&'static str, &str)]| Params::parse(given.iter().copied()).unwrap().points(48);
    assert_eq!(points(&[]), [1, 7, 13, 19, 25, 31, 37, 43]);
    assert_eq!(points(&[("threads", "1..46:9")]), [1, 10, 19, 28, 37, 46]);
    assert_eq!(points(&[("threads", "12")]), [12]);
    assert_eq!(points(&[("threads", "2..4")]), [2, 3, 4]);
    assert_eq!(jvm(&[("jvms", "nodes")], 3).heap.0.len.as_mib() / 4, 3276, "12.8 GiB of 64 for each of four");
}

#[test]
fn warehouses_share_no_byte_and_fill_what_they_came_with() {
    for buffer in ["1MiB", "3MiB", "100KiB"] {
        let jvm = jvm(&[("threads", "1..13:6"), ("buffer", buffer)], 0);
        let mut all: Vec<(u64, u64)> = (0..13).flat_map(|warehouse| parts(jvm.records(warehouse))).collect();
        all.push((jvm.tables().start.0, TABLES.0));
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0].1 == two[1].0), "{buffer}: {all:?}");
        assert_eq!(all.last().unwrap().1, jvm.live().0);
        // The collector's threads copy each byte once.
        let region = jvm.batch(1).region;
        let mut copied: Vec<_> = (0..33).filter_map(|worker| jvm.share(region, (worker, 33))).flat_map(parts).collect();
        copied.sort_unstable();
        assert_eq!((copied[0].0, copied.last().unwrap().1), (region.start.0, region.start.0 + region.len.0));
        assert!(copied.windows(2).all(|two| two[0].1 == two[1].0), "{buffer}: {copied:?}");
    }
    let first = parts(jvm(&[], 0).records(1));
    assert_eq!(first.len(), 25, "a MiB of each in turn");
    assert_eq!(first[1].0 - first[0].0, Bytes::mib(6).0, "six came together");
}

#[test]
fn heaps_have_the_shares_of_their_generations() {
    let heap = Heap(VmRange { start: units::VirtAddr(0), len: Bytes::mib(1200) });
    assert_eq!(heap.eden().len.as_mib(), 300);
    assert_eq!([false, true].map(|second| heap.survivors(second).len.as_mib()), [50, 50]);
    assert_eq!(heap.survivors(true).start.0, Bytes::mib(1150).0);
    assert_eq!(heap.old().len.as_mib(), 500);
    assert_eq!([1, 8, 12, 48].map(collectors), [1, 8, 10, 33]);
}

#[test]
fn hands_bind_each_jvm_to_a_node() {
    let bound = |index| jvm(&[("jvms", "nodes"), ("bind", "hard")], index).bound(&nodes(4, 16));
    assert_eq!(bound(2).map(|(cpus, node)| (cpus[0], node)), Some((CpuId(24), NodeId(2))));
    assert_eq!(jvm(&[], 0).bound(&nodes(4, 16)), None);
}

#[test]
fn what_does_not_fit_is_refused() {
    for (name, text) in [
        ("jvms", "0"),
        ("jvms", "each"),
        ("threads", "0"),
        ("threads", "5..1"),
        ("threads", "1..4096"),
        ("threads", "1,2"),
        ("bind", "soft"),
        ("heap", "1MiB"),
        ("seconds", "0"),
        ("warehouse", "1KiB"),
        ("buffer", "5KB"),
        ("loads", "5"),
    ] {
        assert!(Params::parse([(name, text)]).is_err(), "{name} = {text}");
    }
    let misfit = |given: &[(&'static str, &str)], count, gib| {
        let all = nodes(count, gib);
        Params::parse(given.iter().copied()).unwrap().misfit(Bytes::gib(gib * u64::from(count)), &all)
    };
    assert_eq!(misfit(&[], 4, 16), None);
    let small = misfit(&[("threads", "40")], 2, 1).unwrap();
    assert!(small.starts_with("heap: expected more than") && small.contains("40 warehouses of 25MiB"), "{small}");
    let alone = misfit(&[("bind", "hard")], 4, 16).unwrap();
    assert!(alone.starts_with("bind: expected no, as 1 JVM on 4 nodes"), "{alone}");
    let case = |given: &[(&'static str, &str)]| Params::parse(given.iter().copied()).unwrap().case();
    assert_eq!(case(&[]), "jvms=1");
    assert_eq!(case(&[("jvms", "nodes"), ("threads", "1..46:9"), ("bind", "hard")]), "jvms=nodes-threads=1..46:9-hard");
}
