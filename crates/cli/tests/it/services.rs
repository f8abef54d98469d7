//! Services: files of processes and phases, as strong as workloads in Rust, deterministic, and refused where they are wrong.

use std::collections::{BTreeMap, BTreeSet};

use report::{Cell, Record};

use crate::support::{document, room::Room, words};

const SIM: [&str; 7] = ["--target", "sim", "--machine", "one-node-512m", "--variant", "v6.1", "--quiet"];

fn file(name: &str) -> String {
    format!("{}/tests/services/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

fn cells(room: &Room, result: &str) -> Vec<Cell> {
    let cell = |record| match record {
        Record::Cell(cell) => Some(cell),
        _ => None,
    };
    document::whole_records(&room.here().join(result)).into_iter().filter_map(cell).collect()
}

/// Seeds of a comparison where memory is short: what single runs of the same workload count differs by more than 2 %.
const SEEDS: u64 = 8;

/// Counters of each cell, without the gauges that only some workloads read.
fn counters(room: &Room, result: &str) -> Vec<BTreeMap<String, i64>> {
    let of =
        |cell: Cell| cell.measured.counters.into_iter().filter(|(name, _)| name != "nr_page_table_pages").collect();
    cells(room, result).into_iter().map(of).collect()
}

/// Counters whose means are further apart than 2 % and 3 events, and than seeds of one workload are by chance: three and a half
/// standard errors, as some forty counters are looked at.
fn apart(built_in: &[BTreeMap<String, i64>], written: &[BTreeMap<String, i64>]) -> Vec<String> {
    let names: BTreeSet<&String> = built_in.iter().chain(written).flat_map(BTreeMap::keys).collect();
    let of = |cells: &[BTreeMap<String, i64>], name: &str| {
        let values: Vec<f64> = cells.iter().map(|cell| cell.get(name).copied().unwrap_or(0) as f64).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
        let count = values.len() as f64;
        (mean, if count > 1.0 { squares / (count - 1.0) / count } else { 0.0 })
    };
    let far = |name: &&String| {
        let ((one, one_error), (other, other_error)) = (of(built_in, name), of(written, name));
        let chance = 3.5 * (one_error + other_error).sqrt();
        ((one - other).abs() > (one.abs() / 50.0).max(3.0).max(chance)).then(|| format!("{name} {one} {other}"))
    };
    names.iter().filter_map(far).collect()
}

type Counted = Vec<BTreeMap<String, i64>>;

/// The counters of a workload and of the file that says the same.
fn both(workload: &[&str], name: &str, seeds: u64) -> (Counted, Counted) {
    let room = Room::new();
    let seeds = ["--seeds", &seeds.to_string()];
    room.run(&words(&[&["run"], workload, &SIM, &seeds, &["-o", "built-in"]])).expect(0);
    room.run(&words(&[&["run", &file(name)], &SIM, &seeds, &["-o", "written"]])).expect(0);
    (counters(&room, "built-in"), counters(&room, "written"))
}

#[test]
fn fault_storm_as_a_file_counts_the_same() {
    let storm =
        ["fault-storm", "--set", "tasks=2", "--set", "model=threads", "--set", "page=base", "--set", "size=64MiB"];
    let (built_in, written) = both(&storm, "fault-storm", 1);
    assert!(built_in[0]["pgfault"] > 200_000, "{built_in:?}");
    assert_eq!(apart(&built_in, &written), [""; 0]);
}

#[test]
fn small_files_as_a_file_counts_the_same() {
    let (built_in, written) = both(&["small-files", "--set", "file=64KiB"], "small-files", SEEDS);
    assert!(built_in[0]["pgsteal_kswapd"] > 10_000, "{built_in:?}");
    assert_eq!(apart(&built_in, &written), [""; 0]);
}

#[test]
fn the_faults_of_thpscale_as_a_file_count_the_same() {
    let scale = ["thpscale", "--set", "threads=1", "--set", "advise=yes", "--set", "file=no"];
    let (built_in, written) = both(&scale, "thpscale", SEEDS);
    assert!(built_in[0]["pswpout"] > 1000, "{built_in:?}");
    assert_eq!(apart(&built_in, &written), [""; 0]);
}

const SMALL: &str = r#"
about = "a store that saves itself"
[[process]]
name = "store"
threads = 3
[[process.phase]]
name = "fill"
do = "allocate"
size = "30%"
[[process.phase]]
name = "serve"
do = "access"
for = "3s"
pattern = "zipf 0.99"
writes = "20%"
rate = "2k/s"
churn = "5%/s"
[[process.phase]]
name = "save"
do = "fork"
every = "1s"
[[process]]
name = "scan"
after = "store.fill"
[[process.phase]]
name = "scan"
do = "read"
size = "1GiB"
rate = "400MiB/s"
"#;

#[test]
fn a_store_has_latencies_throughput_and_memory() {
    let room = Room::new();
    let path = room.give("store.toml", SMALL);
    let run = ["run", path.as_str(), "--machine", "one-node-512m", "--variant", "v6.1"];
    let text = room.run(&words(&[&run, &["-o", "first"]])).expect(0).stdout;
    for part in [
        "store Latency, us",
        "serve-p99.9",
        "serve-churn-p50",
        "save-call-p50",
        "serve-reached",
        "serve-asked",
        "Huge, pct",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // Requests are the same whatever the kernel does, and all of them were served.
    let metric = |result: &str, class: &str, part: &str| {
        let cells = cells(&room, result);
        let metrics = cells.into_iter().flat_map(|cell| cell.measured.metrics);
        let mut found = metrics.filter(|one| one.class.as_deref() == Some(class) && one.part.as_deref() == Some(part));
        found.next().unwrap_or_else(|| panic!("{class} {part}")).samples[0]
    };
    assert!((metric("first", "serve", "reached") - metric("first", "serve", "asked")).abs() < 1e-9);
    assert!(metric("first", "serve", "p99") <= metric("first", "serve", "max"));
    // Byte for byte the same on one worker.
    room.run(&words(&[&run, &["-o", "second", "--workers", "1"]])).expect(0);
    assert_eq!(document::run_hashes(&room.here().join("first")), document::run_hashes(&room.here().join("second")));
}

const BESIDE: &str = r#"
about = "a phase beside another one"
[[process]]
name = "store"
threads = 2
[[process.phase]]
name = "fill"
do = "allocate"
size = "8MiB"
[[process.phase]]
name = "serve"
do = "access"
for = "700ms"
rate = "1k/s"
[[process.phase]]
name = "sweep"
do = "access"
every = "100ms"
times = 10
"#;

#[test]
fn a_phase_runs_beside_another_one_on_this_kernel_too() {
    // The clock of a real kernel goes on between two looks at it.
    let room = Room::new();
    let path = room.give("beside.toml", BESIDE);
    let text = room.run(&["run", &path, "--target", "host", "--memory", "64MiB", "--quiet"]).expect(0).stdout;
    for row in ["serve-p50", "sweep-p50"] {
        assert!(text.contains(row), "{row}\n{text}");
    }
}

#[test]
fn a_single_thread_saves_at_its_time_between_requests() {
    let room = Room::new();
    let one = SMALL.replace("threads = 3", "threads = 1").replace("churn = \"5%/s\"\n", "").replace("2k/s", "7/s");
    let path = room.give("store.toml", one);
    let text = room.run(&words(&[&["run", &path], &SIM])).expect(0).stdout;
    for row in ["serve-p50", "save-call-p50"] {
        assert!(text.contains(row), "{row}\n{text}");
    }
}

#[test]
fn a_plan_is_said_in_words_before_it_runs() {
    let room = Room::new();
    let path = room.give("store.toml", SMALL);
    let text = room.run(&["run", &path, "--machine", "one-node-512m", "--explain"]).expect(0).stdout;
    for part in [
        "process store, 3 threads",
        "allocates 153.6 MiB",
        "by Zipf 0.99",
        "beside serve every 1 s",
        "begins when store.fill is over",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!room.here().join("results").exists());
    room.run(&["run", "fault-storm", "--target", "sim", "--explain"]).expect(2).says(&["--explain", "fault-storm"]);
}

#[test]
fn the_services_that_real_kernels_ran_are_files_of_the_page() {
    let room = Room::new();
    for name in ["buffer-pool", "jvm", "kv-store"] {
        let file = format!("{}/../../docs/services/{name}-512m.toml", env!("CARGO_MANIFEST_DIR"));
        let said = room.run(&["run", &file, "--explain"]).expect(0).stdout;
        assert!(said.starts_with(&format!("{name}-512m on machine one-cpu-512m")), "{said}");
    }
}

#[test]
fn mistakes_in_a_service_are_one_message() {
    let room = Room::new();
    let path = room.give("mine.toml", SMALL.replace("pattern", "patern"));
    let run = room.run(&["run", &path]).expect(2);
    run.says(&["mine.toml:14: process.phase: unknown key \"patern\"; did you mean \"pattern\"?"]);
}

#[test]
fn a_mapping_that_no_kernel_makes_is_refused_before_it_runs() {
    let room = Room::new();
    let greedy = "about = \"too much\"\n[[process]]\nname = \"greedy\"\n[[process.phase]]\ndo = \"allocate\"\nsize = \"300%\"\n\
                  [[process]]\nname = \"small\"\n[[process.phase]]\ndo = \"sleep\"\nfor = \"1s\"\n";
    let path = room.give("greedy.toml", greedy);
    room.run(&words(&[&["run", &path], &SIM]))
        .expect(2)
        .says(&["greedy.allocate maps 1536 MiB in one call", "memory and swap, 1024 MiB"]);
}

#[test]
fn a_machine_is_shown_as_its_file() {
    let room = Room::new();
    let text = room.run(&["machine", "show", "two-node-2g"]).expect(0).stdout;
    let path = room.give("my-machine.toml", &text);
    room.run(&["run", "fault-storm", "--target", "sim", "--machine", &path, "--set", "tasks=1", "--set", "size=2MiB"])
        .expect(0);
    room.run(&["machine", "show", "two-nodes-2g"]).expect(2).says(&["did you mean \"two-node-2g\"?"]);
}

/// A machine without swap, so small that memory is soon out.
fn small_machine(room: &Room) -> String {
    let text = room.run(&["machine", "show", "one-node-512m"]).expect(0).stdout;
    let text = text.replace("swap = \"512MiB\"\n", "").replace("512MiB", "96MiB");
    room.give("small-machine.toml", text)
}

const GREEDY: &str = r#"
about = "too much"
[[process]]
name = "greedy"
start = "1s"
[[process.phase]]
name = "grow"
do = "allocate"
size = "40%"
times = 6
[[process]]
name = "small"
threads = 2
[[process.phase]]
name = "fill"
do = "allocate"
size = "4MiB"
[[process.phase]]
name = "serve"
do = "access"
for = "3s"
rate = "1k/s"
writes = "50%"
[[process.phase]]
name = "sweep"
do = "access"
pattern = "sequential"
every = "1s"
times = 100
[[process.phase]]
name = "again"
do = "access"
times = 100
[[process]]
name = "last"
after = "greedy.grow"
[[process.phase]]
name = "late"
do = "allocate"
size = "1MiB"
"#;

#[test]
fn a_process_that_the_kernel_kills_is_a_row_and_others_go_on() {
    let room = Room::new();
    let (machine, path) = (small_machine(&room), room.give("greedy.toml", GREEDY));
    let run = ["run", path.as_str(), "--machine", &machine, "--variant", "v6.1", "--quiet", "-o", "killed"];
    let text = room.run(&words(&[&run])).expect(0).stdout;
    let row = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| panic!("{name}\n{text}")).trim().to_owned()
    };
    assert_eq!(row("greedy-killed "), "1", "{text}");
    // The survivors' phases are whole, those with several threads and those beside another one too.
    assert_eq!((row("serve-reached "), row("serve-asked ")), ("1000".to_owned(), "1000".to_owned()));
    for name in ["fill-p50 ", "serve-p99 ", "sweep-p50 ", "again-p50 ", "late-p50 "] {
        row(name);
    }
    assert!(!text.contains("grow-"), "{text}");
    assert!(text.contains("zero in all columns: small-killed, last-killed"), "{text}");
}
