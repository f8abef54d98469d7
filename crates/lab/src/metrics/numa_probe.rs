//! Metrics of numa-probe: how long its phases took, where its pages ended, and where the task went meanwhile.

use std::collections::BTreeMap;

use report::{Better, Metric};
use units::{Bytes, NodeId};
use workloads::TaskOutcome;

use super::metric::classed;

/// Seconds of both phases, moves by how far they went, base pages by node at the end, and what the load got of the CPUs.
pub(super) fn metrics(tasks: &[TaskOutcome]) -> Vec<Metric> {
    tasks.iter().flat_map(of_task).collect()
}

fn of_task(task: &TaskOutcome) -> Vec<Metric> {
    let Some(probe) = &task.probe else { return Vec::new() };
    let phases = [("read", probe.read), ("write", probe.write)];
    let phases = phases
        .map(|(class, phase)| classed("phase_s", class, "s", Better::Lower, vec![phase.time.as_secs_f64()]))
        .into_iter();
    let mut pages: BTreeMap<NodeId, u64> = BTreeMap::new();
    for place in task.places.iter().flatten() {
        *pages.entry(place.node).or_default() += place.size.0 / Bytes::PAGE.0;
    }
    let of_node = |(node, pages): (NodeId, u64)| {
        classed("pages_at_end", &format!("node{node}"), "base pages", Better::None, vec![pages as f64])
    };
    let moves = probe.moves.map(|moves| {
        let all = [("same-core", moves.same_core), ("same-node", moves.same_node), ("other-node", moves.other_node)];
        all.map(|(class, count)| classed("task_moves", class, "per run", Better::None, vec![count as f64]))
    });
    let loaded =
        probe.loaded.map(|millionths| classed("load_pct", "load", "pct", Better::None, vec![millionths as f64 / 1e4]));
    phases.chain(pages.into_iter().map(of_node)).chain(moves.into_iter().flatten()).chain(loaded).collect()
}

#[cfg(test)]
mod tests {
    use os::{Accessed, CountedBy, Moves, Placed};
    use units::{Picos, Time};
    use workloads::numa_probe::Probe;

    use super::{super::metric::task_of, *};

    #[test]
    fn a_probe_has_seconds_pages_by_node_and_moves() {
        let mut task = task_of(Time(0), Time(Picos::from_secs(3).0));
        assert!(of_task(&task).is_empty());
        let phase = |secs| Accessed { accesses: 10, time: Picos::from_secs(secs) };
        let moves = Moves { same_core: 1, same_node: 2, other_node: 3, counted_by: CountedBy::Scheduler };
        task.probe = Some(Probe { read: phase(1), write: phase(2), moves: Some(moves), loaded: Some(600_000) });
        let place = |node, is_huge, mib| Placed { node: NodeId(node), is_huge, size: Bytes::mib(mib) };
        task.places = Some(vec![place(0, false, 1), place(1, false, 1), place(1, true, 2)]);
        let rows: Vec<_> = of_task(&task).into_iter().map(|row| (row.class.unwrap(), row.samples[0])).collect();
        let expected = [
            ("read", 1.0),
            ("write", 2.0),
            ("node0", 256.0),
            ("node1", 768.0),
            ("same-core", 1.0),
            ("same-node", 2.0),
            ("other-node", 3.0),
            ("load", 60.0),
        ];
        assert_eq!(rows, expected.map(|(class, value)| (class.to_owned(), value)));
    }
}
