//! The memory of a guest on its host: of a real guest that reports free pages, of a simulated one, and what is refused.

use std::fs;

use crate::support::{
    TINY, document, guests,
    room::{PATIENCE_S, Room, within},
    words,
};
use nix::sys::signal::Signal;
use report::{Cell, Footprint};

/// Touched, freed, and then long enough for all of it to be reported, in passes of 2 s.
const TRACE: &str = "seconds,anonymous,file\n0,400MiB,0\n6,0,0\n14,0,0\n";

fn cells(room: &Room, result: &str) -> Vec<Cell> {
    report::cells(document::whole_records(&room.here().join(result)))
}

fn footprint(cell: &Cell) -> &Footprint {
    cell.footprint.as_ref().unwrap_or_else(|| panic!("{}: {:?}", cell.key.kernel, cell.measured.skipped))
}

/// The most that was on the host, and what was in the end, in MiB.
fn most_and_end(footprint: &Footprint) -> (u64, u64) {
    let resident = footprint.resident();
    let most = resident.iter().map(|(_, pages)| *pages).max().expect("there are samples");
    (most / 256, resident.last().expect("there are samples").1 / 256)
}

/// Off keeps all that was ever touched; on gives it back, a part in each pass.
#[track_caller]
fn assert_given_back(off: &Cell, on: &Cell) {
    assert!(off.key.kernel.ends_with("reporting=off") && on.key.kernel.ends_with("reporting=on"));
    let (most, end) = most_and_end(footprint(off));
    assert!(most >= 400 && end + 8 >= most, "{most} MiB at most, {end} at the end");
    assert_eq!(footprint(off).steps(), []);
    let (most, end) = most_and_end(footprint(on));
    assert!(most >= 400 && end + 340 <= most, "{most} MiB at most, {end} at the end");
    let freed = footprint(on).held[1].done_us;
    let steps = footprint(on).steps();
    let sizes: Vec<u64> = steps.iter().map(|step| step.pages / 256).filter(|mib| *mib > 20).collect();
    // 32 blocks of 4 MiB are 128 MiB, and a pass makes at most two such reports of a list so short.
    assert!(sizes.len() >= 2 && sizes.iter().all(|mib| *mib <= 260), "{sizes:?} MiB");
    let first = steps.iter().find(|step| step.pages / 256 > 20).expect("there is one");
    // A pass may be due already.
    assert!((freed..freed + 4_500_000).contains(&first.at_us), "{} us, freed at {freed} us", first.at_us);
    assert_eq!(first.freed_us, Some(freed));
}

#[test]
fn vm_a_guest_that_reports_free_pages_shrinks() {
    let Some(_turn) = guests::turn("vm_a_guest_that_reports_free_pages_shrinks") else { return };
    let room = Room::new();
    fs::write(room.here().join("mine.csv"), TRACE).unwrap();
    let guest = ["run", "guest-footprint", "--target", "vm", "--target", "sim", "--accel", "tcg", "--kernel", "6.1"];
    let run = room.run(&words(&[&guest, &["--set", "trace=mine.csv", "-o", "result"]]));
    let text = run.expect(0).stdout;
    let cells = cells(&room, "result");
    let [off, sim_off, on, sim_on] = &cells[..] else { panic!("{} cells", cells.len()) };
    assert_given_back(off, on);
    assert_given_back(sim_off, sim_on);
    assert!(text.contains("Steps by which the guest's memory on its host fell"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let csv = room.run(&["show", "result", "--series=host_resident", "--format", "csv"]).expect(0).stdout;
    let samples: usize = cells.iter().map(|cell| footprint(cell).resident().len()).sum();
    let rests = |cell: &&Cell| footprint(cell).series.still.contains_key("host_resident");
    assert_eq!(cells.iter().filter(rests).count(), 0);
    assert_eq!(csv.lines().count(), 1 + samples, "{csv}");
    let digest = room.run(&["show", "result", "--series"]).expect(0).stdout;
    assert!(digest.contains("host-MiB"), "{digest}");
    room.assert_nothing_left("a guest that was watched");
}

#[test]
fn vm_what_guests_have_is_written_where_the_kernel_has_it() {
    let Some(_turn) = guests::turn("vm_what_guests_have_is_written_where_the_kernel_has_it") else { return };
    let room = Room::new();
    let guest = ["run", "fault-storm", "--target", "vm", "--accel", "tcg", "--kernel", "6.1"];
    // Written where the kernel has it, and read back.
    let set = ["--set", "page_reporting.order=4", "--set", "page_alloc.shuffle=Y", "-o", "result"];
    let cells_of = words(&[&guest, &TINY, &set]);
    room.run(&cells_of).expect(0);
    let cells = cells(&room, "result");
    assert_eq!(cells[0].key.params["page_reporting.order"], "4");
    assert_eq!(cells[0].footprint, None, "nobody asked");
}

#[test]
fn a_simulated_guest_gives_memory_back_in_passes() {
    let room = Room::new();
    fs::write(room.here().join("mine.csv"), TRACE).unwrap();
    let run = ["run", "guest-footprint", "--set", "trace=mine.csv,build", "-o", "result"];
    room.run(&run).expect(0);
    let mine = |cells: &[Cell]| cells.iter().filter(|cell| cell.key.case == "mine").cloned().collect::<Vec<_>>();
    let first = cells(&room, "result");
    assert_eq!(first.len(), 4);
    let [off, on] = &mine(&first)[..] else { panic!("two columns") };
    assert_given_back(off, on);
    assert!(on.key.params["trace"].starts_with("mine.csv 2:0/400MiB/0B "), "{:?}", on.key.params);
    // The gauge is read, and no step is made shorter by that.
    let sampled = ["run", "guest-footprint", "--set", "trace=mine.csv", "--sample", "1s", "-o", "sampled"];
    room.run(&sampled).expect(0);
    let again = mine(&cells(&room, "sampled"));
    assert_eq!((&off.measured, &on.measured), (&again[0].measured, &again[1].measured));
    assert!(again[1].series.as_ref().is_some_and(|series| series.names().contains(&"sim_host_resident")));
    // Another content is another run.
    fs::write(room.here().join("mine.csv"), TRACE.replace("14,", "15,")).unwrap();
    room.run(&run).expect(2).says(&["holds a different run"]);
}

#[test]
fn how_pages_are_reported_makes_columns() {
    let room = Room::new();
    let set = ["--set", "page_reporting.order=0,9", "--set", "page_reporting.delay_ms=100,2000", "--set", "size=64MiB"];
    room.run(&words(&[&["run", "guest-footprint", "-o", "result"], &set])).expect(0);
    let kernels: Vec<_> = cells(&room, "result").into_iter().map(|cell| cell.key.kernel).collect();
    let on = ["order=0 delay_ms=100", "order=0 delay_ms=2000", "order=9 delay_ms=100", "order=9 delay_ms=2000"];
    let expected: Vec<_> = on.map(|words| format!("v6.1 reporting=on {words}")).to_vec();
    assert_eq!(kernels, [&["v6.1 reporting=off".to_owned()][..], &expected].concat());
}

/// What a line of the frontier's table says: minutes times memory, memory at the end, and the times and re-faults.
fn numbers(text: &str, name: &str) -> Vec<f64> {
    let lines = text.lines().skip_while(|line| !line.starts_with("Frontier of "));
    let words = |line: &str| line.split_whitespace().rev().take(5).map(|word| word.parse().unwrap_or(-1.0)).collect();
    let mut line = lines.filter(|line| line.starts_with(name)).map(words);
    line.next().unwrap_or_else(|| panic!("{name}: {text}"))
}

#[test]
fn reporting_and_a_balloon_are_beside_the_ideal() {
    let room = Room::new();
    fs::write(room.here().join("mine.csv"), TRACE).unwrap();
    let columns = ["--set", "virtio_balloon.reporting=off,on", "--set", "virtio_balloon.target=off,trace"];
    let run = words(&[&["run", "guest-footprint", "--set", "trace=mine.csv", "-o", "result"], &columns]);
    let text = room.run(&run).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let area = |name: &str| numbers(&text, name)[4];
    let [off, on] = ["sim v6.1 reporting=off target=off", "sim v6.1 reporting=on target=off"].map(area);
    let [balloon, ideal] = ["target=trace", "sim ideal"].map(area);
    assert!(ideal < on && on < off && ideal < balloon && balloon < off, "{ideal} {on} {balloon} {off}");
    // Nobody has less than what is in use, and a balloon by hand leaves next to nothing else.
    let cells = cells(&room, "result");
    for cell in &cells {
        let footprint = footprint(cell);
        let below = footprint.resident().iter().zip(footprint.used()).filter(|(has, uses)| has.1 < uses.1).count();
        assert_eq!(below, 0, "{}", cell.key.kernel);
    }
    let csv = room.run(&["show", "result", "--format", "csv"]).expect(0).stdout;
    assert!(csv.contains(",frontier.host_memory_gib_min,mine,sim:ideal:guest-1g,"), "{csv}");
    let inflated = |cell: &Cell| cell.measured.counters.get("balloon_inflate").copied();
    assert_eq!(inflated(&cells[0]), None, "there is no balloon");
    assert!(inflated(&cells[1]).is_some_and(|pages| pages > 90_000), "{:?}", inflated(&cells[1]));
}

/// What is on the host a moment before the trace ends, in MiB, and what the balloon holds then, in pages.
fn left_and_taken(cell: &Cell) -> (u64, i64) {
    let inflated = cell.measured.counters.get("balloon_inflate").copied();
    // A real one may begin a moment before its workload, and then the counter does not have all.
    let held = cell.measured.detail.get("balloon_pages").and_then(serde_json::Value::as_i64);
    (most_and_end(footprint(cell)).1, held.or(inflated).unwrap_or(0))
}

#[test]
fn vm_a_balloon_by_hand_takes_what_a_guest_has_freed() {
    let Some(_turn) = guests::turn("vm_a_balloon_by_hand_takes_what_a_guest_has_freed") else { return };
    let room = Room::new();
    fs::write(room.here().join("mine.csv"), TRACE).unwrap();
    let guest = ["run", "guest-footprint", "--target", "vm", "--target", "sim", "--accel", "tcg", "--kernel", "6.1"];
    let columns = ["--set", "virtio_balloon.reporting=off", "--set", "virtio_balloon.target=off,trace,640MiB"];
    let run = room.run(&words(&[&guest, &columns, &["--set", "trace=mine.csv", "-o", "result"]]));
    let text = run.expect(0).stdout;
    assert!(text.lines().any(|line| line.starts_with("target=trace")), "a line of the frontier: {text}");
    let cells = cells(&room, "result");
    let [off, sim_off, trace, sim_trace, size, sim_size] = &cells[..] else { panic!("{} cells", cells.len()) };
    // A real guest has this program in memory as its init, and no balloon gets those pages.
    let program = fs::metadata(env!("CARGO_BIN_EXE_pagelab")).unwrap().len().div_ceil(4096).cast_signed();
    for (off, trace, size) in [(off, trace, size), (sim_off, sim_trace, sim_size)] {
        let [off, trace, size] = [off, trace, size].map(left_and_taken);
        assert_eq!(off.1, 0);
        // Of 1,024 MiB; the 400 that were in use are in it too.
        let least = 800 * 256 - program;
        assert!(trace.0 + 300 < off.0 && trace.1 > least, "{trace:?} MiB and pages, {off:?} without");
        assert!((380 * 256..=384 * 256).contains(&size.1), "{size:?}");
    }
    let [held, held_by_ours] = [trace, sim_trace].map(|cell| left_and_taken(cell).1);
    // The libraries and tasks of a real guest are in memory too.
    let less = held_by_ours - held;
    assert!((0..held / 10 + program).contains(&less), "{held} pages, {held_by_ours} pages by ours");
    // It came after the guest had freed all.
    let footprint = footprint(trace);
    let freed = footprint.held[1].done_us;
    let resident = footprint.resident();
    let (most, _) = most_and_end(footprint);
    // All of it is there by then.
    let mut later = resident.iter().filter(|(at, _)| *at > 5_000_000);
    let fell = later.find(|(_, pages)| pages / 256 + 100 < most).expect("it falls");
    assert!((freed..freed + 5_000_000).contains(&fell.0), "freed at {freed} us, given back at {} us", fell.0);
    room.assert_nothing_left("a balloon by hand");
}

#[test]
fn vm_a_guest_with_a_balloon_goes_with_its_run() {
    let Some(_turn) = guests::turn("vm_a_guest_with_a_balloon_goes_with_its_run") else { return };
    let room = Room::new();
    let guest = ["run", "guest-footprint", "--target", "vm", "--accel", "tcg", "--kernel", "6.1", "-o", "result"];
    let balloon =
        ["--set", "virtio_balloon.target=640MiB", "--set", "virtio_balloon.reporting=off", "--set", "size=300MiB"];
    let run = words(&[&guest, &balloon]);
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let running = room.start(room.command(&run));
        room.wait_for_first_operation();
        let emulator = room.emulator();
        running.signal(signal);
        drop(running);
        assert!(within(PATIENCE_S, || !room.processes().iter().any(|found| found.pid == emulator)), "{signal}");
    }
}

#[test]
fn guests_that_overwrite_what_they_free_report_as_the_device_knows() {
    let room = Room::new();
    fs::write(room.here().join("mine.csv"), TRACE).unwrap();
    let reporting = ["run", "guest-footprint", "--set", "trace=mine.csv", "--set", "virtio_balloon.reporting=on"];
    let set = ["--set", "boot.page_poison=off,on", "--set", "virtio_balloon.page_poison=on,off", "-o", "result"];
    room.run(&words(&[&reporting, &set])).expect(0);
    let cells = cells(&room, "result");
    let [plain, plain_unknown, poisoned, poisoned_unknown] = &cells[..] else { panic!("{} cells", cells.len()) };
    let has = |cell: &Cell, name: &str| cell.measured.counters.get(name).copied().unwrap_or_default() > 0;
    let is = |cell: &Cell| (has(cell, "sim_page_reports"), has(cell, "sim_host_discards"));
    assert_eq!([plain, plain_unknown].map(is), [(true, true); 2]);
    assert_eq!((is(poisoned), is(poisoned_unknown)), ((true, false), (false, false)));
    assert_eq!(plain.measured.counters, plain_unknown.measured.counters, "nobody asks");
    // All was written at boot, and nothing is given back.
    let (most, end) = most_and_end(footprint(poisoned));
    assert!(most == end && most > 1000, "{most} MiB at most, {end} at the end");
    let refused = ["run", "fault-storm", "--target", "sim", "--set", "virtio_balloon.page_poison=off"];
    room.run(&refused).expect(2).says(&["is no guest"]);
}

#[test]
fn a_balloon_that_gives_pages_back_keeps_a_process_alive() {
    let room = Room::new();
    // By then the balloon has what it shall have.
    fs::write(room.here().join("mine.csv"), "seconds,anonymous,file\n0,4MiB,0\n5,400MiB,0\n10,0,0\n").unwrap();
    let on = ["--set", "virtio_balloon.target=256MiB", "--set", "virtio_balloon.deflate_on_oom=on", "-o", "result"];
    let run = ["run", "guest-footprint", "--set", "trace=mine.csv", "--set", "virtio_balloon.reporting=off"];
    room.run(&words(&[&run, &on])).expect(0);
    let counters = &cells(&room, "result")[0].measured.counters;
    let pages = |name: &str| counters.get(name).copied().unwrap_or_default();
    assert!(pages("balloon_inflate") > 190_000, "{}", pages("balloon_inflate"));
    assert!((40_000..80_000).contains(&pages("balloon_deflate")), "{}", pages("balloon_deflate"));
    let old = ["--variant", "v3.16", "--set", "virtio_balloon.deflate_on_oom=on"];
    room.run(&words(&[&run, &old])).expect(2).says(&["gives nothing back by itself, which came with 3.19"]);
}

#[test]
fn a_balloon_that_makes_no_sense_is_refused() {
    let room = Room::new();
    let refused = |run: &[&str], says: &str| {
        room.run(&words(&[&["run"], run])).expect(2).says(&[says]);
    };
    let size = "expected a size such as 400MiB, or one of off, trace, found";
    refused(&["guest-footprint", "--set", "virtio_balloon.target=much"], size);
    refused(&["guest-footprint", "--set", "virtio_balloon.target=0"], size);
    let trace = "trace is of the workload guest-footprint, and this is fault-storm; expected a size or off";
    refused(&["fault-storm", "--target", "sim", "--set", "virtio_balloon.target=trace"], trace);
    let no_guest = "is no guest; expected one with the key host_page";
    refused(&["fault-storm", "--target", "sim", "--set", "virtio_balloon.target=64MiB"], no_guest);
    room.assert_nothing_left("what was refused");
}

#[test]
fn what_a_host_or_a_real_kernel_cannot_have_is_refused() {
    let room = Room::new();
    for set in [
        "virtio_balloon.reporting=on",
        "virtio_balloon.target=64MiB",
        "virtio_balloon.deflate_on_oom=on",
        "virtio_balloon.page_poison=off",
        "boot.page_poison=on",
        "boot.init_on_free=on",
        "page_reporting.order=3",
        "page_reporting.delay_ms=5",
        "page_alloc.shuffle=Y",
        "host.discard=free",
    ] {
        let name = set.split('=').next().unwrap_or_default();
        let host = ["run", "guest-footprint", "--target", "host", "--set", "size=4MiB", "--set", set];
        room.run(&host).expect(2).says(&[&format!("--set {name}: ")]);
    }
    room.assert_nothing_left("what was refused");
}

#[test]
fn vm_what_no_real_kernel_has_is_refused_with_the_reason() {
    let Some(_turn) = guests::turn("vm_what_no_real_kernel_has_is_refused_with_the_reason") else { return };
    let room = Room::new();
    let refused = |more: &[&str], says: &str| {
        let run = words(&[&["run", "guest-footprint", "--target", "vm"], more]);
        room.run(&run).expect(2).says(&[says]);
    };
    refused(&["--accel", "tcg", "--set", "page_reporting.delay_ms=5"], "delay_ms: a constant of the kernel, 2 s");
    refused(&["--accel", "tcg", "--set", "host.discard=free"], "host.discard: QEMU discards with MADV_DONTNEED");
    refused(&["--replayable"], "virtio_balloon.reporting=on: not with --replayable");
    let by_hand = ["--replayable", "--set", "virtio_balloon.reporting=off", "--set", "virtio_balloon.target=trace"];
    refused(&by_hand, "virtio_balloon.target=trace: not with --replayable: an order comes at an instant of the host's");
}

#[test]
fn traces_that_are_none_are_one_message() {
    let room = Room::new();
    let run = |trace: &str| room.run(&["run", "guest-footprint", "--set", &format!("trace={trace}")]);
    let of_text = |text: &str| {
        fs::write(room.here().join("bad.csv"), text).unwrap();
        run("bad.csv").expect(2)
    };
    of_text("").says(&["bad.csv:1: the trace is empty; expected seconds,anonymous,file"]);
    of_text("seconds,anon,file\n").says(&["bad.csv:1: unknown column \"anon\""]);
    of_text("seconds,anonymous,file\n5,0,0\n4,0,0\n").says(&["bad.csv:3: seconds: expected more than 5, found 4"]);
    of_text("seconds,anonymous,file\n0,0,0\n5,2GiB,0\n")
        .says(&["bad.csv:3: 2048 MiB of anonymous memory", "the memory of the run is 1024 MiB"]);
    run("biuld").expect(2).says(&["unknown trace \"biuld\"; did you mean \"build\"?"]);
    run("none.csv").expect(2).says(&["none.csv: cannot be read"]);
    room.assert_nothing_left("traces that are none");
}
