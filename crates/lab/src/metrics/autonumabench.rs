//! Metrics of autonumabench: what time(1) says of each program, and where its memory ended.

use std::collections::BTreeMap;

use report::{Better, Metric};
use workloads::{Outcome, TaskOutcome};

use super::{
    metric::{GIB, classed},
    traffic,
};

/// User, System and Elapsed of each program in seconds, the CPUs that it used in per cent, GiB by node and page size, and its
/// traffic.
pub(super) fn metrics(outcome: &Outcome) -> Vec<Metric> {
    outcome.tasks.iter().flat_map(of_program).collect()
}

/// Times of a program as time(1) says them, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) user: f64,
    pub(crate) system: f64,
    pub(crate) elapsed: f64,
}

/// The times of a program, and last the CPUs that it used.
pub(crate) fn of_times(Times { user, system, elapsed }: Times) -> Vec<Metric> {
    let times = [("User", user), ("System", system), ("Elapsed", elapsed)];
    let times = times.into_iter().map(|(class, secs)| classed("time_s", class, "s", Better::Lower, vec![secs]));
    // As time(1) prints it: a whole number.
    let percent = if elapsed > 0.0 { (100.0 * (user + system) / elapsed).trunc() } else { 0.0 };
    times.chain([classed("cpu_pct", "CPU", "%", Better::None, vec![percent])]).collect()
}

fn of_program(task: &TaskOutcome) -> Vec<Metric> {
    let elapsed = task.end.since(task.start).as_secs_f64();
    let (user, system) = (task.rusage.user.as_secs_f64(), task.rusage.system.as_secs_f64());
    let times = of_times(Times { user, system, elapsed });
    let mut sizes: BTreeMap<String, f64> = BTreeMap::new();
    for place in task.places.iter().flatten() {
        let size = if place.is_huge { "2M" } else { "4k" };
        *sizes.entry(format!("node{}-{size}", place.node)).or_default() += place.size.0 as f64 / GIB;
    }
    let sizes = sizes.iter().map(|(class, gib)| classed("memory_gib", class, "GiB", Better::None, vec![*gib]));
    let own = times.into_iter().chain(sizes).map(|metric| Metric { part: task.part.clone(), ..metric });
    own.chain(traffic::metrics(task)).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::metric::task_of, *};

    #[test]
    fn a_program_has_the_times_that_time_prints() {
        let second = 1_000_000_000_000_u64;
        let place =
            |node, is_huge, mib| os::Placed { node: units::NodeId(node), is_huge, size: units::Bytes::mib(mib) };
        let mut task = task_of(units::Time(second), units::Time(3 * second));
        (task.rusage.user, task.rusage.system) = (units::Picos(90 * second), units::Picos(second));
        task.part = Some("NUMA02".to_owned());
        task.places = Some(vec![place(0, false, 512), place(1, true, 1024), place(1, true, 512)]);
        let rows: Vec<_> = of_program(&task)
            .into_iter()
            .map(|row| (row.name, row.class.unwrap(), row.part.unwrap(), row.samples[0]))
            .collect();
        let row = |name: &str, class: &str, value| (name.to_owned(), class.to_owned(), "NUMA02".to_owned(), value);
        let expected = [
            row("time_s", "User", 90.0),
            row("time_s", "System", 1.0),
            row("time_s", "Elapsed", 2.0),
            row("cpu_pct", "CPU", 4550.0),
            row("memory_gib", "node0-4k", 0.5),
            row("memory_gib", "node1-2M", 1.5),
        ];
        assert_eq!(rows, expected);
    }
}
