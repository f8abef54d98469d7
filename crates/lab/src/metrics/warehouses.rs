//! Metrics of warehouses: business operations per second by warehouses, and the peak, as SPECjbb2005 and mmtests print them.

use report::{
    Better, Metric,
    stats::{amean, stddev},
};
use workloads::{Outcome, TaskOutcome};

use super::{
    metric::{classed, metric, rate},
    traffic,
};

/// Throughput of each point (with several JVMs their mean and deviation too), the peaks, and each point's traffic.
pub(super) fn metrics(outcome: &Outcome) -> Vec<Metric> {
    let by_point = outcome.tasks.chunk_by(|one, next| one.part == next.part);
    let points: Vec<(&str, Vec<f64>)> = by_point.clone().map(|jvms| (part(&jvms[0]), rates(jvms))).collect();
    let mut metrics = bops(&points);
    metrics.extend(peaks(outcome, &points));
    // Each JVM has read the traffic of the whole machine.
    metrics.extend(by_point.flat_map(|jvms| traffic::metrics(&jvms[0])));
    metrics
}

/// Metrics that follow from the operations per second of each JVM at each point alone: nothing is known of the machine.
pub(crate) fn of_points(points: &[(&str, Vec<f64>)]) -> Vec<Metric> {
    let mut metrics = bops(points);
    metrics.extend(actual(points));
    metrics
}

/// Throughput of each point.
fn bops(points: &[(&str, Vec<f64>)]) -> Vec<Metric> {
    let bops = |class: &str, of: fn(&[f64]) -> Option<f64>| {
        let row = |(part, rates): &(&str, Vec<f64>)| {
            let better = if class == "Stddev" { Better::Lower } else { Better::Higher };
            let row = classed("bops", class, "ops/s", better, of(rates).into_iter().collect());
            Metric { part: Some((*part).to_owned()), ..row }
        };
        points.iter().map(row).collect::<Vec<_>>()
    };
    let has_several = points.iter().any(|(_, rates)| rates.len() > 1);
    let mut metrics = Vec::new();
    if has_several {
        metrics.extend(bops("Mean", amean));
        metrics.extend(bops("Stddev", stddev));
    }
    metrics.extend(bops("TPut", |rates| Some(rates.iter().sum())));
    metrics
}

fn part(task: &TaskOutcome) -> &str {
    task.part.as_deref().expect("a point has a name")
}

/// The operations per second of each JVM.
fn rates(jvms: &[TaskOutcome]) -> Vec<f64> {
    jvms.iter().map(|jvm| rate(jvm.transactions.unwrap_or(0), jvm.end.since(jvm.start))).collect()
}

/// The sum over JVMs at each number of warehouses.
fn sums(points: &[(&str, Vec<f64>)]) -> Vec<(u32, f64)> {
    let warehouses = |part: &str| part.strip_prefix("warehouses=").and_then(|number| number.parse::<u32>().ok());
    points.iter().filter_map(|(part, rates)| Some((warehouses(part)?, rates.iter().sum()))).collect()
}

fn peak(name: &str, unit: &str, better: Better, value: f64) -> Metric {
    Metric { part: Some(name.to_owned()), ..metric("peak", unit, better, vec![value]) }
}

/// The peak that is expected at as many warehouses as CPUs, and the actual one.
fn peaks(outcome: &Outcome, points: &[(&str, Vec<f64>)]) -> Vec<Metric> {
    let jvms = points.first().map_or(1, |(_, rates)| rates.len().max(1)) as u64;
    let cpus = u64::from(outcome.cpus.unwrap_or(0));
    let mut rows = vec![peak("Expected Warehouse", "", Better::None, cpus as f64 / jvms as f64)];
    let all = sums(points);
    let at_expected = all.iter().find(|(warehouses, _)| u64::from(*warehouses) * jvms == cpus);
    rows.extend(at_expected.map(|(_, bops)| peak("Expected Bops", "ops/s", Better::Higher, *bops)));
    rows.extend(actual(points));
    rows
}

/// The actual peak, whose warehouses mmtests of 2013 calls one more than they are.
fn actual(points: &[(&str, Vec<f64>)]) -> Vec<Metric> {
    // The first of several that are as high.
    let actual = sums(points).into_iter().reduce(|peak, point| if point.1 > peak.1 { point } else { peak });
    let rows = |(warehouses, bops): (u32, f64)| {
        let warehouse = peak("Warehouse", "", Better::None, f64::from(warehouses + 1));
        vec![warehouse, peak("Peak Bops", "ops/s", Better::Higher, bops)]
    };
    actual.map(rows).unwrap_or_default()
}
