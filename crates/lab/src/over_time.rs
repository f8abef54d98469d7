//! What a simulated run tells over time, in the form of results.

use std::collections::BTreeMap;

use memory::{frame::moves::MoveReason, pageblock::MigrateType};
use report::{
    Sample, Series, SlowPath,
    map::{Band, BlockMap, Head, Moves, TYPES},
    slow_path::{Entry, Total},
};
use sim::{CellMove, MapSamples, Samples, SlowOperation, SlowOperations};
use units::{Picos, Time};

/// Microseconds, rounded down.
fn micros(at: Time) -> u64 {
    Picos(at.0).as_nanos() / 1000
}

/// Samples that were taken so far apart.
pub(crate) fn series(every: Picos, samples: &Samples) -> Series {
    let sample = |(at, values): &(Time, Vec<u64>)| Sample { at_us: micros(*at), values: values.clone() };
    Series::new(every.0, &samples.names, &samples.rows.iter().map(sample).collect::<Vec<_>>())
}

/// The map of memory whose samples are of these instants.
pub(crate) fn map(map: &MapSamples, instants: &[Time]) -> BlockMap {
    let band = |band: &mm::Band| Band {
        zone: format!("node{}/{}", band.node, band.kind),
        first: band.first,
        blocks: band.blocks,
    };
    let compaction = || map.samples.iter().map(|sample| &sample.compaction);
    let head = Head {
        pageblock_order: map.pageblock_order,
        group: map.group,
        types: TYPES.map(str::to_owned).to_vec(),
        bands: map.bands.iter().map(band).collect(),
        at_us: instants.iter().copied().map(micros).collect(),
        scanners: compaction().map(|zones| zones.iter().map(|zone| zone.scanners).collect()).collect(),
        fragmentation: compaction().map(|zones| zones.iter().map(|zone| zone.fragmentation).collect()).collect(),
    };
    BlockMap::from_changes(head, map.samples.iter().map(|sample| sample.changed.as_slice())).with_moves(moves(map))
}

/// The moves of a map's samples, with their movers and reasons in words.
fn moves(map: &MapSamples) -> Moves {
    let all = || map.samples.iter().flat_map(|sample| &sample.moves);
    let reasons: BTreeMap<MoveReason, String> = all().map(|one| (one.reason, reason(one.reason))).collect();
    let of = |one: &CellMove| {
        let mover = map.movers.get(&one.mover).map_or("?", String::as_str);
        (one.cell, mover, reasons[&one.reason].as_str(), one.moved.came, one.moved.left)
    };
    Moves::new(map.samples.iter().map(|sample| sample.moves.iter().map(of).collect()))
}

/// The reason of a move in words.
fn reason(reason: MoveReason) -> String {
    let name = |of: MigrateType| TYPES[of as usize];
    match reason {
        MoveReason::Compaction(Some(order)) => format!("compaction for a block of order {}", order.0),
        MoveReason::Compaction(None) => "compaction of the whole zone".to_owned(),
        MoveReason::NumaBalancing => "NUMA balancing".to_owned(),
        MoveReason::ToNode => "a call that moves pages to a node".to_owned(),
        MoveReason::Collapse => "collapse into a huge page".to_owned(),
        MoveReason::Fallback { request, list, takes_over } => {
            let then = if takes_over { ", and takes the pageblock over" } else { "" };
            format!("fallback: {} request served from {}{then}", name(request), name(list))
        }
        MoveReason::Retyped(to) => format!("makes the pageblock {}", name(to)),
    }
}

/// Operations that left the fast path.
pub(crate) fn slow_path(operations: &SlowOperations) -> SlowPath {
    let SlowOperations { longest, totals } = operations;
    let mut log = SlowPath::default();
    for (what, total) in totals {
        log.totals.insert(what.to_string(), Total { count: total.count, ps: total.time.0 });
        log.what.push(what.to_string());
    }
    let kinds: Vec<_> = totals.keys().collect();
    let number = |at: usize| u32::try_from(at).expect("a log has few names");
    let entry = |operation: &SlowOperation| {
        let part = |(cause, span): (memory::cost::Cause, Picos)| {
            let known = log.causes.iter().position(|known| known == cause.name());
            let at = known.unwrap_or_else(|| {
                log.causes.push(cause.name().to_owned());
                log.causes.len() - 1
            });
            (number(at), span.0)
        };
        Entry {
            start_ps: operation.start.0,
            task: operation.task,
            cpu: operation.cpu.0,
            what: number(kinds.iter().position(|what| **what == operation.what).expect("all are counted")),
            vpn: operation.vpn.map(|vpn| vpn.0),
            order: operation.order.map(|order| order.0),
            parts: operation.spent.by_cause().map(part).collect(),
        }
    };
    log.entries = longest.iter().map(entry).collect();
    log
}

#[cfg(test)]
mod tests {
    use memory::cost::{Cause, Spent};
    use sim::{SlowTotal, What};
    use units::{CpuId, NodeId, Order, Vpn};

    use super::*;

    #[test]
    fn entries_refer_to_names() {
        let (fault, kswapd) =
            (What { name: "fault", node: None, guest: 0 }, What { name: "kswapd", node: Some(NodeId(0)), guest: 0 });
        let operation = |what, causes: &[(Cause, u64)]| {
            let mut spent = Spent::default();
            for (cause, picos) in causes {
                spent.add_on(*cause, Picos(*picos));
            }
            let (vpn, order) = (Some(Vpn(7)), Some(Order(9)));
            SlowOperation { start: Time(5), task: 1, cpu: CpuId(2), what, vpn, order, spent }
        };
        let longest = vec![
            operation(kswapd, &[(Cause::ReclaimScan, 3)]),
            operation(fault, &[(Cause::ReclaimScan, 4), (Cause::Migrate, 6)]),
        ];
        let total = SlowTotal { count: 4, time: Picos(30) };
        let log = slow_path(&SlowOperations { longest, totals: [(fault, total), (kswapd, total)].into() });
        assert_eq!(log.count(), 8);
        assert_eq!(log.entries.iter().map(|entry| log.name(entry)).collect::<Vec<_>>(), ["kswapd0", "fault"]);
        assert_eq!(log.parts(&log.entries[1]), [("migrate", 6), ("reclaim scan", 4)]);
        assert_eq!((log.entries[1].vpn, log.entries[1].order, log.entries[1].ps()), (Some(7), Some(9), 10));
    }

    #[test]
    fn types_have_the_manager_s_numbers() {
        let name = |of: &memory::pageblock::MigrateType| {
            if *of == memory::pageblock::MigrateType::Cma { "CMA".to_owned() } else { format!("{of:?}") }
        };
        assert_eq!(memory::pageblock::MigrateType::ALL.each_ref().map(name), TYPES.map(str::to_owned));
    }

    #[test]
    fn times_are_microseconds() {
        let rows = vec![(Time(0), vec![1]), (Time(2_999_999), vec![2])];
        let series = series(Picos(1_000_000), &Samples { names: vec!["a".to_owned()], rows });
        assert_eq!(series.samples()[1], Sample { at_us: 2, values: vec![2] });
    }
}
