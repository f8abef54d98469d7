//! Metrics of numa-access for each pair of nodes; where both page sizes were used, also relative to local huge pages.

use os::Pattern;
use report::{Better, Metric};
use workloads::{TaskOutcome, numa_access::Access};

use super::metric::{GIB, classed, metric, rate};

/// Bytes of an access of a sweep.
const LINE: u64 = 64;

/// A class for each pair of nodes and each way of mapping, with a sample for each task or one for all tasks together.
pub(super) fn metrics(pattern: Pattern, tasks: &[TaskOutcome]) -> Vec<Metric> {
    let accesses: Vec<Access> = tasks.iter().filter_map(|task| task.access).collect();
    let mut pairs: Vec<(String, Vec<Access>)> = Vec::new();
    for access in &accesses {
        let pair = pair(access);
        match pairs.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, all)) => all.push(*access),
            None => pairs.push((pair, vec![*access])),
        }
    }
    let of = |(pair, all): &(String, Vec<Access>)| match pattern {
        Pattern::Random | Pattern::Lines(_) | Pattern::Stride | Pattern::Update => {
            classed("access_latency_ns", pair, "ns", Better::Lower, all.iter().map(latency_ns).collect())
        }
        Pattern::Sweep | Pattern::Fresh | Pattern::NonTemporal | Pattern::RepStosb => {
            let each = |access: &Access| rate(access.done.accesses * LINE, access.done.time) / GIB;
            classed("store_bandwidth", pair, "GiB/s", Better::Higher, vec![all.iter().map(each).sum()])
        }
    };
    let mut metrics: Vec<Metric> = pairs.iter().map(of).collect();
    if !pattern.is_sweep() {
        metrics.extend(by_local_huge(&accesses));
    }
    metrics
}

/// Metrics where one pair stands for each distance: a part for each of these.
pub(super) fn by_distance(pattern: Pattern, tasks: &[TaskOutcome]) -> Vec<Metric> {
    let to_part = |metric: Metric| Metric { part: metric.part.or(metric.class), class: None, ..metric };
    metrics(pattern, tasks).into_iter().map(to_part).collect()
}

fn latency_ns(access: &Access) -> f64 {
    access.done.time.0 as f64 / 1e3 / access.done.accesses as f64
}

fn pair(access: &Access) -> String {
    let memory = access.memory.map_or_else(|| "all".to_owned(), |node| format!("node{node}"));
    let huge = if access.mapped.is_huge { "-huge" } else { "" };
    let near = if access.mapped.has_near_tables { "-near-tables" } else { "" };
    format!("node{}-{memory}{huge}{near}", access.cpu)
}

/// Names of rows of the published tables: distances from the nearest (D0, the node itself) on, and page sizes.
const THP: &str = "thp";
const BASE: &str = "4k";
const BASE_NEAR_TABLES: &str = "4k near tables";

/// By how many per cent accesses take longer than to huge pages of the own node; nothing where there were none of these.
fn by_local_huge(accesses: &[Access]) -> Vec<Metric> {
    let mut distances: Vec<u32> = accesses.iter().filter_map(|access| access.distance).collect();
    distances.sort_unstable();
    distances.dedup();
    let mean = |rank: usize, size: &str| {
        let distance = distances.get(rank)?;
        let its = accesses.iter().filter(|access| access.distance == Some(*distance) && self::size(access) == size);
        let all: Vec<f64> = its.map(latency_ns).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let Some(local) = mean(0, THP) else { return Vec::new() };
    let sizes = [THP, BASE, BASE_NEAR_TABLES];
    let places = (0..distances.len()).flat_map(|rank| sizes.map(|size| (rank, size)));
    let row = |(rank, size): (usize, &str)| {
        // The one that the others are compared with says nothing of itself.
        let took = mean(rank, size).filter(|_| (rank, size) != (0, THP))?;
        Some(of_part("latency_vs_local_thp_pct", format!("D{rank}-{size}"), percent_more(took, local)))
    };
    let mut metrics: Vec<Metric> = places.filter_map(row).collect();
    if let Some((far, near)) = mean(1, THP).zip(mean(0, BASE)) {
        let part = "local node fragmented; remote THP instead of local 4K".to_owned();
        metrics.push(of_part("access_latency_regression_pct", part, percent_more(far, near)));
    }
    metrics
}

fn size(access: &Access) -> &'static str {
    match (access.mapped.is_huge, access.mapped.has_near_tables) {
        (true, _) => THP,
        (false, true) => BASE_NEAR_TABLES,
        (false, false) => BASE,
    }
}

fn of_part(name: &str, part: String, value: f64) -> Metric {
    Metric { part: Some(part), ..metric(name, "pct", Better::Lower, vec![value]) }
}

fn percent_more(took: f64, than: f64) -> f64 {
    100.0 * (took / than - 1.0)
}

#[cfg(test)]
mod tests {
    use os::Accessed;
    use units::{NodeId, Picos, Time};
    use workloads::numa_access::Mapped;

    use super::{super::metric::task_of, *};

    fn task(distance: u32, is_huge: bool, ns: u64) -> TaskOutcome {
        let done = Accessed { accesses: 10, time: Picos::from_nanos(ns * 10) };
        let mapped = Mapped { is_huge, has_near_tables: false };
        let memory = Some(NodeId(distance / 10 - 1));
        let access = Access { cpu: NodeId(0), memory, done, misplaced: None, distance: Some(distance), mapped };
        TaskOutcome { access: Some(access), ..task_of(Time(0), Time(0)) }
    }

    fn rows(tasks: &[TaskOutcome]) -> Vec<(String, f64)> {
        let all = metrics(Pattern::Random, tasks);
        all.into_iter().filter_map(|metric| Some((metric.part?, metric.samples[0]))).collect()
    }

    #[test]
    fn latencies_are_compared_with_local_huge_pages() {
        let tasks = [task(10, true, 100), task(10, false, 143), task(20, true, 145), task(20, false, 206)];
        let found = rows(&tasks);
        let expected = [("D0-4k", 43.0), ("D1-thp", 45.0), ("D1-4k", 106.0)];
        for ((name, value), (found, is)) in expected.iter().zip(&found) {
            assert!(name == found && (value - is).abs() < 1e-6, "{found} is {is}");
        }
        assert_eq!(found[3].0, "local node fragmented; remote THP instead of local 4K");
        assert!((found[3].1 - 100.0 * (145.0 / 143.0 - 1.0)).abs() < 1e-6);
        assert_eq!(rows(&tasks[1..]), [], "nothing to compare with");
    }
}
