//! What results say over time: samples on every target in one form, and the operations that left the fast path.

use std::collections::BTreeSet;

use report::{Cell, Series};

use crate::support::{TINY, document, guests, room::Room, words};

/// Memory is filled, so that there is something to see: 512 MiB, one thread.
const FULL: [&str; 10] =
    ["run", "thpscale", "--target", "sim", "--machine", "one-node-512m", "--variant", "v6.1", "--set", "threads=1"];

fn cells(room: &Room, result: &str) -> Vec<Cell> {
    report::cells(document::whole_records(&room.here().join(result)))
}

/// Asserts what holds of a series on all targets.
#[track_caller]
fn assert_series(cell: &Cell) -> &Series {
    let series = cell.series.as_ref().expect("it was sampled");
    let times: Vec<u64> = series.samples().iter().map(|sample| sample.at_us).collect();
    assert!(times.len() >= 2 && times[0] == 0 && times.is_sorted(), "{times:?}");
    let names: BTreeSet<&str> = series.names().into_iter().collect();
    for name in ["pgfault", "compact_stall", "node0/nr_free_pages", "node0/DMA32/free/0", "node0/DMA32/blocks/free"] {
        assert!(names.contains(name), "no {name} in {names:?}");
    }
    assert!(!names.contains("nr_free_pages"), "it is the nodes'");
    assert!(series.columns.iter().any(|name| name == "pgfault"), "{:?}", series.columns);
    series
}

#[test]
fn a_simulated_run_is_the_same_with_samples_and_tables_show_them() {
    let room = Room::new();
    room.run(&words(&[&FULL, &["-o", "plain"]])).expect(0);
    room.run(&words(&[&FULL, &["--sample", "100ms", "-o", "sampled"]])).expect(0);
    let (plain, sampled) = (cells(&room, "plain"), cells(&room, "sampled"));
    assert_eq!((plain[0].measured.clone(), &plain[0].slow_path), (sampled[0].measured.clone(), &sampled[0].slow_path));
    assert_eq!(plain[0].series, None);
    let series = assert_series(&sampled[0]);
    let rows = series.samples();
    assert!(rows.len() > 20 && rows[3].at_us == 300_000, "{}", rows.len());

    let text = room.run(&["show", "sampled", "--series"]).expect(0).stdout;
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("0.300 ")).count(), 1, "{text}");
    let one = room.run(&["show", "sampled", "--series=node0/nr_free_pages"]).expect(0).stdout;
    assert_eq!(one.lines().nth(2).map(str::trim), Some("s node0/nr_free_pages"), "{one}");
    let csv = room.run(&["show", "sampled", "--series=pgfault", "--format", "csv"]).expect(0).stdout;
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(csv.lines().nth(4).is_some_and(|line| line.contains(",1,0.300000,pgfault,")), "{csv}");
    let whole = room.run(&["show", "sampled", "--series", "--format", "csv"]).expect(0).stdout;
    assert_eq!(whole.lines().count(), 1 + rows.len() * series.columns.len() + series.still.len());
    room.run(&["show", "sampled", "--series=pgfaul"]).expect(2).says(&["unknown column \"pgfaul\"", "\"pgfault\"?"]);
    room.run(&["show", "plain", "--series"]).expect(2).says(&["--series: nothing in plain was sampled"]);
}

#[test]
fn the_longest_slow_operations_are_shown_by_cause() {
    let room = Room::new();
    room.run(&words(&[&FULL, &["-o", "result"]])).expect(0);
    let cells = cells(&room, "result");
    let log = cells[0].slow_path.as_ref().expect("simulated runs have one");
    assert!(log.totals["fault"].count > 100 && log.entries.len() as u64 <= log.count(), "{:?}", log.totals);
    let text = room.run(&["show", "result", "--stalls", "3"]).expect(0).stdout;
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert!(text.contains(&format!("{} operations off the fast path", log.count())), "{text}");
    let csv = room.run(&["show", "result", "--stalls", "3", "--format", "csv"]).expect(0).stdout;
    let of = |cause: &str| csv.lines().filter(|line| line.split(',').nth(10) == Some(cause)).count();
    assert_eq!((of("total"), of("cause")), (3, 1), "{csv}");
    // The parts of the longest are all of it.
    let longest = log.longest(1)[0];
    assert!(log.entries.iter().all(|entry| entry.ps() <= longest.ps()));
}

#[test]
fn guests_of_a_simulated_host_and_the_host_are_sampled() {
    let room = Room::new();
    let run =
        words(&[&["run", "two-guests", "--machine", "one-node-512m", "--variant", "v6.1", "--set", "reporting=on"]]);
    let small: Vec<_> =
        ["memory=64MiB", "turn=1", "rounds=1"].iter().flat_map(|set| ["--set", set]).map(str::to_owned).collect();
    let run = |more: &[&str]| room.run(&[&run[..], &small, &words(&[more])].concat());
    run(&["--sample", "250ms", "-o", "sampled"]).expect(0);
    let cells = cells(&room, "sampled");
    let series = cells[0].series.as_ref().expect("it was sampled");
    for name in ["host/pgfault", "host/node0/nr_free_pages", "guest1/pgfault", "guest2/node0/nr_free_pages"] {
        assert!(series.columns.iter().any(|known| known == name), "no {name} in {:?}", series.columns);
    }
    assert!(series.rows.len() >= 9, "two turns of a second");
    let text = room.run(&["show", "sampled", "--series"]).expect(0).stdout;
    for title in ["\nhost\n", "\nguest1\n", "\nguest2\n"] {
        assert!(text.contains(title), "{text}");
    }
    // A setting of guests reaches them: more blocks are reported where small ones are.
    let reports = |cell: &Cell| cell.measured.counters.get("sim_pages_reported").copied().unwrap_or(0);
    run(&["--set", "page_reporting.order=0", "-o", "all"]).expect(0);
    let all = self::cells(&room, "all");
    assert!(reports(&all[0]) > reports(&cells[0]), "{} and {}", reports(&all[0]), reports(&cells[0]));
    run(&["--set", "virtio_balloon.reporting=on"]).expect(2).says(&["by parameter: --set reporting=on"]);
    run(&["--set", "host.discard=free"]).expect(2).says(&["host.discard: machine one-node-512m is no guest"]);
}

#[test]
fn how_often_a_run_was_sampled_is_part_of_what_it_is() {
    let room = Room::new();
    let run = |more: &[&str]| {
        room.run(&words(&[&["run", "fault-storm", "--target", "sim", "--variant", "v6.1"], &TINY, more]))
    };
    run(&["--sample", "1ms", "-o", "result"]).expect(0);
    run(&["--sample", "1ms", "-o", "result"]).expect(0).says(&["resuming result"]);
    for other in [&["-o", "result"][..], &["--sample", "2ms", "-o", "result"]] {
        run(other).expect(2).says(&["result holds a different run", "--sample"]);
    }
}

#[test]
fn this_kernel_is_sampled_in_the_same_form() {
    let room = Room::new();
    let run = ["run", "fault-storm", "--target", "host", "--sample", "10ms", "-o", "result"];
    room.run(&words(&[&run, &TINY[..6], &["--set", "iterations=200", "--set", "size=32MiB"]])).expect(0);
    let cells = cells(&room, "result");
    assert_series(&cells[0]);
    assert_eq!(cells[0].slow_path, None, "nobody knows it there");
    room.run(&["show", "result", "--stalls", "1"]).expect(2).says(&["--stalls: nothing in result has a log"]);
    room.assert_nothing_left("a sampled run");
}

#[test]
fn vm_guests_are_sampled_in_the_same_form() {
    let Some(_turn) = guests::turn("vm_guests_are_sampled_in_the_same_form") else { return };
    let room = Room::new();
    let run = ["run", "fault-storm", "--target", "vm", "--kernel", "6.1", "--machine", "one-node-512m"];
    room.run(&words(&[&run, &TINY, &["--sample", "10ms", "-o", "result"]])).expect(0);
    let cells = cells(&room, "result");
    let series = assert_series(&cells[0]);
    // Guests' workers are root: pageblocks by type are there too.
    assert!(series.names().contains(&"node0/DMA32/blocks/Movable"));
}
