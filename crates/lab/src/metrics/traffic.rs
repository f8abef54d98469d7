//! Metrics of memory traffic: what programs wrote and how, where sweeps went, and what limited them.

use report::{Better, Metric};
use units::{Bytes, Picos};
use workloads::TaskOutcome;

use super::metric::{GIB, classed};

/// GiB per second that a program or a point wrote by kind of store, what sweeps of all tasks streamed through memory of the same
/// node and of others, and what limited it, in per cent. Rows that nobody could count are not there.
pub(super) fn metrics(task: &TaskOutcome) -> Vec<Metric> {
    let span = task.end.since(task.start);
    if span == Picos(0) {
        return Vec::new();
    }
    let of = |name: &str, class: &str, bytes: Bytes| {
        let rate = bytes.0 as f64 / GIB / span.as_secs_f64();
        classed(name, class, "GiB/s", Better::None, vec![rate])
    };
    let mut rows: Vec<_> = task.wrote.iter().map(|(stores, bytes)| of("wrote_gib_s", stores.name(), *bytes)).collect();
    if let Some(streamed) = task.streamed.filter(|streamed| streamed.total() > Bytes(0)) {
        rows.extend(
            [("near", streamed.near), ("far", streamed.far)].map(|(class, bytes)| of("streamed_gib_s", class, bytes)),
        );
        rows.extend(streamed.limits().map(|(class, bytes)| {
            let percent = 100.0 * bytes.0 as f64 / streamed.total().0 as f64;
            classed("limit_pct", class, "%", Better::None, vec![percent])
        }));
    }
    rows.into_iter().map(|metric| Metric { part: task.part.clone(), ..metric }).collect()
}

#[cfg(test)]
mod tests {
    use units::{Stores, Streamed, Time};

    use super::{super::metric::task_of, *};

    #[test]
    fn traffic_is_by_second_and_limits_are_shares() {
        let second = Picos::from_secs(1).0;
        let mut task = task_of(Time(second), Time(3 * second));
        assert_eq!(metrics(&task), []);
        task.wrote = vec![(Stores::NonTemporal, Bytes::gib(8))];
        let gib = Bytes::gib;
        let streamed = Streamed { near: gib(3), far: gib(5), by_core: gib(2), by_node: gib(6), ..Streamed::default() };
        task.streamed = Some(streamed);
        let rows: Vec<_> =
            metrics(&task).into_iter().map(|row| (row.name, row.class.unwrap(), row.samples[0])).collect();
        let row = |name: &str, class: &str, value| (name.to_owned(), class.to_owned(), value);
        let expected = [
            row("wrote_gib_s", "non-temporal", 4.0),
            row("streamed_gib_s", "near", 1.5),
            row("streamed_gib_s", "far", 2.5),
            row("limit_pct", "core", 25.0),
            row("limit_pct", "node", 75.0),
            row("limit_pct", "link", 0.0),
            row("limit_pct", "lines", 0.0),
        ];
        assert_eq!(rows, expected);
    }
}
