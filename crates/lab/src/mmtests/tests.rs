//! Exports file by file, the way back, and files that are not as they should be.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use report::{Cell, Duration, Key, Metric, RESULT_FILE, Record, Run, SCHEMA, Target};
use tempfile::TempDir;

use super::{beside::BESIDE, *};
use crate::{metrics, results, run::IDENTITY_FILE, usage::UsageError};

fn key(kernel: &str, case: &str, seed: u64) -> Key {
    Key {
        result: None,
        experiment: "thpscale".into(),
        group: None,
        workload: "thpscale".into(),
        case: case.into(),
        params: BTreeMap::from([("threads".to_owned(), case.to_owned())]),
        variant: kernel.into(),
        machine: "one-node-512m".into(),
        state: "fresh".into(),
        target: Target::Sim,
        kernel: kernel.into(),
        seed,
        program: "p".into(),
    }
}

fn cell(key: Key, metrics: Vec<Metric>) -> Cell {
    let mut measured = report::Measured::nothing();
    measured.metrics = metrics;
    measured.counters = BTreeMap::from([("compact_stall".to_owned(), 3), ("pgfault".to_owned(), 1000)]);
    measured.duration =
        Some(Duration { user_ps: 1_500_000_000_000, system_ps: 250_000_000_000, elapsed_ps: 2_000_000_000_001 });
    let run = Run {
        date: "2026-01-02T03:04:05Z".into(),
        wall_s: 1.0,
        boot_s: None,
        host: "builder".into(),
        commit: "abc".into(),
        max_rss_kib: 1,
    };
    Cell { schema: SCHEMA, key, measured, series: None, map: None, slow_path: None, footprint: None, run }
}

/// Two kernels with two seeds of two thread counts; of one thread nothing was huge.
fn thpscale() -> Vec<Cell> {
    let mut cells = Vec::new();
    for kernel in ["v5.0", "v5.1"] {
        for (seed, by) in [(1, 0.0), (2, 1.25)] {
            let one = metrics::of_faults(&[(false, 600.5 + by)], vec![10.0], vec![20.0]);
            let faults = [(false, 700.0), (true, 200.123_456 + by), (false, 1e6 / 3.0)];
            let three = metrics::of_faults(&faults, vec![1.0, 2.0, 3.0], Vec::new());
            cells.extend([cell(key(kernel, "1", seed), one), cell(key(kernel, "3", seed), three)]);
        }
    }
    cells
}

fn lines(cells: &[Cell]) -> String {
    let line = |cell: &Cell| serde_json::to_string(&Record::Cell(cell.clone())).expect("a line") + "\n";
    cells.iter().map(line).collect()
}

/// A room with a result in it.
fn room(cells: &[Cell]) -> (TempDir, PathBuf) {
    let room = tempfile::tempdir().expect("a directory");
    let result = room.path().join("result");
    fs::create_dir(&result).expect("made");
    let keys: Vec<&Key> = cells.iter().map(|cell| &cell.key).collect();
    let identity = serde_json::json!({ "program": "p", "keys": keys, "machines": [], "simulated": [] });
    fs::write(result.join(IDENTITY_FILE), identity.to_string()).expect("written");
    fs::write(result.join(RESULT_FILE), lines(cells)).expect("written");
    (room, result)
}

/// Every file and link under a directory, by path.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).expect("under it").display().to_string();
            if path.is_symlink() {
                found.insert(name, fs::read_link(&path).expect("a link").display().to_string().into_bytes());
            } else if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(name, logs::read_packed(&path).expect("a file"));
            }
        }
    }
    found
}

fn text_of<'a>(files: &'a BTreeMap<String, Vec<u8>>, name: &str) -> &'a str {
    let bytes = files.get(name).unwrap_or_else(|| panic!("{name} is not among {:?}", files.keys()));
    std::str::from_utf8(bytes).expect("a text")
}

fn read(path: &Path) -> Result<Vec<Cell>, UsageError> {
    Ok(report::cells(results::contents(path, None)?.1.records))
}

fn message(path: &Path) -> String {
    read(path).expect_err("it is wrong").to_string()
}

#[test]
fn an_export_has_these_files() {
    let (room, result) = room(&thpscale());
    let to = room.path().join("to");
    let exported = export(&result, None, &to).expect("exported");
    assert_eq!(exported.runs, [to.join("v5.0-sim"), to.join("v5.1-sim")]);
    assert_eq!((exported.tests.as_slice(), exported.left_out.len()), (["thpchallenge"].as_slice(), 0));
    let files = files(&to);
    let of_iteration = |run: &str, iteration: u32| {
        let names = [
            "tests-activity",
            "tests-sysstate",
            "tests-timestamp",
            "thpchallenge/logs/threads-1.log.gz",
            "thpchallenge/logs/threads-3.log.gz",
            "thpscale",
        ];
        names.map(|name| format!("{run}/iter-{iteration}/{name}"))
    };
    let mut names = vec![BESIDE.to_owned()];
    for run in ["v5.0-sim", "v5.1-sim"] {
        names.extend(of_iteration(run, 0).into_iter().chain(of_iteration(run, 1)));
    }
    assert_eq!(files.keys().cloned().collect::<Vec<_>>(), names);
    let text = |name: &str| text_of(&files, name);
    assert_eq!(
        text("v5.1-sim/iter-0/thpchallenge/logs/threads-3.log.gz"),
        "anoninit 0            1\nanoninit 1            2\nanoninit 2            3\n\
         fault 0 base          700 0.0 -1\nfault 0 huge   200.123456 0.0 -1\nfault 0 base 333333.3333333333 0.0 -1\n"
    );
    assert_eq!(text("v5.1-sim/iter-0/thpscale"), "thpchallenge");
    assert_eq!(
        text("v5.0-sim/iter-1/tests-activity"),
        "1000000000 run-mmtests: Start\n1000000000 run-mmtests: test start :: thpchallenge 1000000000\n"
    );
    let time = "time :: thpchallenge 3.00 user 0.50 system 4.000000000002 elapsed\n";
    assert_eq!(text("v5.1-sim/iter-1/tests-timestamp"), time, "of both cases");
    assert_eq!(
        text("v5.1-sim/iter-1/tests-sysstate"),
        format!(
            "test begin :: thpchallenge 0\nfile start :: /proc/vmstat\ncompact_stall 0\npgfault 0\nfile start :: \
             /proc/zoneinfo\nfile end :: /proc/vmstat\ncompact_stall 6\npgfault 2000\nfile end :: /proc/zoneinfo\ntest end \
             :: thpchallenge 0 0\n{time}"
        )
    );
}

#[test]
fn an_export_comes_back_as_it_was() {
    let cells = thpscale();
    let (room, result) = room(&cells);
    let to = room.path().join("a/b");
    export(&result, None, &to).expect("exported");
    assert_eq!(read(&to).expect("read"), cells);
    // Numbers in logs count, also after somebody has changed them.
    let log = to.join("v5.0-sim/iter-0/thpchallenge/logs/threads-1.log.gz");
    fs::remove_file(&log).expect("removed");
    fs::write(log.with_extension(""), "fault 0 huge 5 0.0 1\n").expect("written");
    let cell = &read(&to).expect("read")[0];
    let samples = |at: usize| cell.measured.metrics[at].samples.clone();
    assert_eq!((samples(0), samples(1)), (vec![], vec![5.0]));
}

#[test]
fn a_run_of_an_export_is_a_run_of_mmtests() {
    let (room, result) = room(&thpscale());
    let to = room.path().join("to");
    export(&result, None, &to).expect("exported");
    fs::remove_file(to.join(BESIDE)).expect("removed");
    let cells = read(&to).expect("read");
    let place = |cell: &Cell| (cell.key.kernel.clone(), cell.key.seed);
    let expected = [("v5.0-sim", 1), ("v5.0-sim", 2), ("v5.1-sim", 1), ("v5.1-sim", 2)];
    assert_eq!(cells.iter().map(place).collect::<Vec<_>>(), expected.map(|(run, seed)| (run.to_owned(), seed)));
    let last = &cells[3].measured;
    assert_eq!(last.counters["pgfault"], 2000);
    assert_eq!(last.duration.expect("times").elapsed_ps, 4_000_000_000_002);
    let row = |metric: &Metric| (metric.part.clone().unwrap(), metric.class.clone().unwrap(), metric.samples.clone());
    assert_eq!(row(&last.metrics[0]), ("1".into(), "fault-base".into(), vec![601.75]));
    assert_eq!(row(&last.metrics[7]), ("3".into(), "fault-huge".into(), vec![201.373_456]));
    // The export is read alone, under its own name, and then put into the rows of a result.
    let run = to.join("v5.1-sim");
    assert_eq!(read(&run).expect("read").len(), 2);
    let (identity, _) = results::contents(&result, None).expect("read");
    let (identity, _) = contents(&run, Some(&Like::of_result("x", &identity))).expect("read");
    let place = (identity.keys[0].kernel.as_str(), identity.keys[0].case.as_str());
    assert_eq!(place, ("v5.1", "thpchallenge"), "its counters are of neither case alone");
}

#[test]
fn an_export_is_whole_or_absent() {
    let (room, result) = room(&thpscale());
    let to = room.path().join("to");
    fs::create_dir(&to).expect("made");
    export(&result, None, &to).expect("into an empty directory");
    let first = room.path().join("first");
    export(&result, "1".parse().ok(), &first).expect("of one seed");
    assert!(files(&first).keys().all(|name| !name.contains("iter-1")) && files(&to).len() > files(&first).len());
    fs::remove_dir_all(&first).expect("removed");
    let message = export(&result, None, &to).expect_err("there is something").to_string();
    assert_eq!(message, format!("{} is not empty; give a directory that is, or a new one", to.display()));
    let other = room.path().join("other");
    let refused = |cells: &[Cell], expected: &str| {
        fs::write(result.join(RESULT_FILE), lines(cells)).expect("written");
        let message = export(&result, None, &other).expect_err("refused").to_string();
        assert!(message.contains(expected), "{message}");
        assert!(!other.exists() && fs::read_dir(room.path()).expect("it").count() == 2, "nothing is left");
    };
    let mut cells = thpscale();
    cells[0].measured.metrics[3].samples = vec![50.0];
    refused(&cells, "has not the time of every fault");
    cells[0].measured.metrics.clear();
    refused(&cells[..1], "nothing that mmtests reads: thpscale: it is no benchmark of mmtests");
    refused(&[], "nothing that mmtests reads: no cell is done");
}

/// Names that fold together, or that are one when they are put together, are different directories.
#[test]
fn every_column_of_an_export_is_a_directory_of_its_own() {
    let one = |kernel: &str, machine: &str, size: &str| {
        let mut key = Key { machine: machine.to_owned(), ..key(kernel, "1", 1) };
        key.params.insert("size".to_owned(), size.to_owned());
        cell(key, metrics::of_faults(&[(false, size.len() as f64)], vec![10.0], Vec::new()))
    };
    let cells = vec![
        one("a b", "m", "1"),
        one("a_b", "m", "22"),
        one("a/b", "m", "333"),
        one("..", "m", "4444"),
        one("6.1-x", "y-m", "55555"),
        one("6.1-x-y", "m", "666666"),
        one("6.1-x-y", "m", "7777777"),
    ];
    let (room, result) = room(&cells);
    let to = room.path().join("to");
    let exported = export(&result, None, &to).expect("exported");
    let runs: Vec<_> =
        exported.runs.iter().map(|run| run.strip_prefix(&to).expect("in it").display().to_string()).collect();
    let expected = ["a_b-sim-m", "a_b-sim-m_2", "a_b-sim-m_3", "_.-sim-m", "6.1-x-y-m", "6.1-x-y-m_2"];
    assert_eq!(runs, expected);
    assert_eq!(read(&to).expect("read"), cells, "two cases of one name too");
    assert_eq!(fs::read_dir(room.path()).expect("it").count(), 2, "nothing is written beside it");
}

/// One log for two cells would be one cell.
#[test]
fn cells_that_mmtests_cannot_tell_apart_are_refused() {
    let one = |size: &str, warehouses: &str, seed| {
        let mut key = Key { workload: "w".into(), ..key("v5.0", "page_fault1-threads-4", seed) };
        key.params.insert("size".to_owned(), size.to_owned());
        let metric = |name: &str, class: Option<&str>, part: &str| Metric {
            name: name.into(),
            class: class.map(str::to_owned),
            part: Some(part.into()),
            unit: "n".into(),
            better: report::Better::Higher,
            samples: vec![5.0],
        };
        let stores = cell(key.clone(), vec![metric("page_fault1.iterations", None, "tasks=4")]);
        let jvm = cell(key, vec![metric("bops", Some("TPut"), &format!("warehouses={warehouses}"))]);
        (stores, jvm)
    };
    let [small, large] = [one("1", "1", 1), one("2", "2", 1)];
    let said = |cells: &[Cell]| {
        let (room, result) = room(cells);
        export(&result, None, &room.path().join("to")).map(drop).map_err(|error| error.to_string())
    };
    let refused = said(&[small.0, large.0]).expect_err("one log of two");
    let expected = "would both be in wis-pf/logs/benchlog-page_fault1_threads-4, and mmtests could not tell them apart";
    assert!(
        refused.contains("size=1 and ") && refused.contains("size=2 of sim:v5.0:one-node-512m seed 1 "),
        "{refused}"
    );
    assert!(refused.contains(expected), "{refused}");
    assert_eq!(said(&[small.1.clone(), large.1]), Ok(()), "a table has several points");
    let refused = said(&[small.1, one("2", "1", 1).1]).expect_err("a point twice");
    assert!(refused.contains("SPECjbb.001.txt, 1 warehouses"), "{refused}");
}

/// Writes a file and the folders above it.
fn give(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("one")).expect("made");
    fs::write(path, text).expect("written");
}

#[test]
fn only_an_unfinished_export_of_ours_is_removed() {
    let (room, result) = room(&thpscale());
    let (to, partial) = (room.path().join("to"), room.path().join(".to.partial"));
    let refused = |expected: &str| {
        let message = export(&result, None, &to).expect_err(expected).to_string();
        assert!(message.contains(".to.partial") && message.contains(expected), "{message}");
        assert!(!to.exists());
    };
    give(&partial, "mine", "kept");
    refused("is in the way, and no unfinished export");
    assert_eq!(fs::read_to_string(partial.join("mine")).expect("it is there"), "kept");
    let elsewhere = room.path().join("elsewhere");
    fs::rename(&partial, &elsewhere).expect("moved");
    std::os::unix::fs::symlink(&elsewhere, &partial).expect("a link");
    refused("is in the way");
    fs::remove_file(&partial).expect("removed");
    // As one that was killed leaves it: before its mark, or in the middle.
    fs::create_dir(&partial).expect("made");
    export(&result, None, &to).expect("exported");
    fs::rename(&to, room.path().join("first")).expect("moved");
    give(&partial, "v5.0-sim/iter-0/half", "x");
    give(&partial, ".pagelab-export", "");
    let lives = fs::File::open(partial.join(".pagelab-export")).expect("the mark");
    lives.lock().expect("locked");
    refused("another export is writing there");
    drop(lives);
    export(&result, None, &to).expect("exported");
    assert_eq!(files(&to), files(&room.path().join("first")));
    assert!(!partial.exists() && files(&elsewhere).len() == 1);
    assert!(files(&to).keys().all(|name| !name.contains(".pagelab")));
}

#[test]
fn logs_of_mmtests_itself_are_read() {
    let folder = tempfile::tempdir().expect("a directory");
    let (root, logs) = (folder.path(), "6.8.0-vanilla/iter-0");
    give(
        root,
        &format!("{logs}/autonumabench/logs/time-NUMA01-1"),
        "6000.10user 300.02system 5:00.25elapsed 2100%CPU (0avg",
    );
    give(
        root,
        &format!("{logs}/autonumabench/logs/time-NUMA01-2"),
        "6001.10user 301.02system 1:05:01.25elapsed 2100%CPU\n0i",
    );
    give(
        root,
        &format!("{logs}/autonumabench/logs/time-NUMA01_THREADLOCAL-1"),
        "1.00user 0.00system 0:02.00elapsed 50%CPU",
    );
    let log = "min:1 max:2 total:300\nmin:1 max:2 total:310\naverage:305\n";
    give(root, &format!("{logs}/wis-pf/logs/benchlog-page_fault1_threads-4"), log);
    let jvms =
        "JVM 1 Scores\nWarehouses Thrput\n 1 100\n* 2 200\n\nJVM 2 Scores\nWarehouses Thrput\n 1 300\n 2 250\n\n";
    give(root, &format!("{logs}/specjbb/logs/default/SPECjbbMultiJVM.001/MultiVMReport.txt"), jvms);
    give(root, &format!("{logs}/kernbench/logs/time"), "not understood");
    let before = "test begin :: kernbench 1\nfile start :: /proc/vmstat\nnr_free_pages 5\npgfault 10\nfile start :: \
                  /proc/zoneinfo\nx\nfile end :: /proc/vmstat\n";
    let state = format!(
        "{before}nr_free_pages 9\npgfault 30\nthp_new 4\nfile end :: /proc/zoneinfo\ntest end :: kernbench 9 0\n"
    );
    give(root, &format!("{logs}/tests-sysstate"), &state);
    let cells = read(root).expect("read");
    let of = |workload: &str| cells.iter().filter(|cell| cell.key.workload == workload).collect::<Vec<_>>();
    let programs = of("autonumabench");
    assert_eq!(programs.iter().map(|cell| cell.key.seed).collect::<Vec<_>>(), [1, 2], "repetitions are runs");
    let metric = |cell: &Cell, at: usize| {
        let metric = &cell.measured.metrics[at];
        (metric.class.clone().unwrap_or_default(), metric.part.clone().unwrap_or_default(), metric.samples.clone())
    };
    assert_eq!(metric(programs[1], 2), ("Elapsed".into(), "NUMA01".into(), vec![3901.25]));
    assert_eq!(metric(programs[0], 4), ("User".into(), "NUMA01_THEADLOCAL".into(), vec![1.0]), "as in 2013");
    assert!(programs[0].measured.skipped[0].reason.contains("2 runs"), "counters are of both");
    let stores = of("will-it-scale");
    assert_eq!(stores[0].key.group.as_deref(), Some("will-it-scale-threads"));
    assert_eq!(metric(stores[0], 0), (String::new(), "tasks=4".into(), vec![300.0, 310.0]));
    let jvms = of("warehouses");
    assert_eq!(metric(jvms[0], 0), ("Mean".into(), "warehouses=1".into(), vec![200.0]));
    assert_eq!(metric(jvms[0], 5), ("TPut".into(), "warehouses=2".into(), vec![450.0]));
    let unknown = &of("kernbench")[0].measured;
    let counters = [("pgfault".to_owned(), 20), ("thp_new".to_owned(), 4)];
    assert_eq!(unknown.counters, BTreeMap::from(counters), "gauges are none");
    assert!(unknown.skipped[0].reason.contains("thpscale"), "{:?}", unknown.skipped);

    give(root, &format!("{logs}/tests-sysstate"), before);
    assert!(message(root).contains("expected `file end :: /proc/vmstat` for kernbench: the run was cut short"));
}

#[test]
fn captures_of_vmstat_are_a_run_each() {
    let folder = tempfile::tempdir().expect("a directory");
    let root = folder.path().join("6.8.0-vanilla");
    give(&root, "before-1", "pgfault 10\nnr_free_pages 1\n");
    give(&root, "after-1", "pgfault 15\nnr_free_pages 7\n");
    give(&root, "before-2", "pgfault 10\n");
    give(&root, "after-2", "pgfault 16\n");
    give(&root, "notes.txt", "not looked at");
    for name in ["x-before", "x-after"] {
        fs::create_dir(root.join(name)).expect("made");
    }
    let cells = read(&root).expect("read");
    let moved: Vec<_> = cells.iter().map(|cell| (cell.key.seed, cell.measured.counters["pgfault"])).collect();
    assert_eq!(moved, [(1, 5), (2, 6)]);
    assert_eq!(cells[0].measured.counters.len(), 1);
    let (_room, result) = room(&thpscale());
    let (identity, _) = results::contents(&result, None).expect("read");
    let error = contents(&root, Some(&Like::of_result("mine", &identity))).expect_err("several cases").to_string();
    assert_eq!(error, "6.8.0-vanilla: a pair of /proc/vmstat is of one case, and mine has several: 1, 3");
    give(&root, "after-2", "pgfault\n");
    assert!(
        message(&root).ends_with("after-2:1: expected a counter and its value, as in /proc/vmstat, found \"pgfault\"")
    );
    give(&root, "after-2", "");
    assert!(message(&root).ends_with("after-2: expected lines of /proc/vmstat, found none"));
    give(&root, "6.9/iter-0/thpscale/logs/threads-1.log", "fault 0 base 1 0.0 1\n");
    assert!(message(&root).contains("holds runs of mmtests (6.9) and captures of /proc/vmstat (before-1)"));
}

#[test]
fn files_that_are_cut_short_are_named() {
    let folder = tempfile::tempdir().expect("a directory");
    let (root, log) = (folder.path(), "a-b/iter-0/thpscale/logs/threads-3.log");
    for (text, expected) in [
        (
            "fault 0 base\n",
            "threads-3.log:1: expected `fault THREAD base|huge MICROSECONDS ...`, found \"fault 0 base\"",
        ),
        ("x\nfault 0 tiny 5 0.0 1\n", "threads-3.log:2: expected `fault THREAD base|huge"),
        ("fault 0 base inf 0.0 1\n", "threads-3.log:1: expected `fault"),
        ("anoninit 0\n", "threads-3.log:1: expected `anoninit|fileinit THREAD MICROSECONDS`"),
        ("Running with 3 threads\n", "threads-3.log: no line begins with `fault`: was it cut short?"),
    ] {
        give(root, log, text);
        assert!(message(root).contains(expected), "{}", message(root));
    }
    fs::remove_file(root.join(log)).expect("removed");
    assert!(message(root).contains("expected logs such as threads-N.log.gz, found none"), "{}", message(root));
    give(root, &format!("{log}.gz"), "not packed");
    assert!(message(root).contains("threads-3.log.gz: cannot be unpacked, it may be cut short"), "{}", message(root));
    fs::remove_file(root.join(format!("{log}.gz"))).expect("removed");
    give(root, log, "fault 0 base 5 0.0 1\n");
    let begin = "test begin :: thpscale 1\nfile start :: /proc/vmstat\npgfault 1\nfile start :: /proc/zoneinfo\n";
    give(root, "a-b/iter-0/tests-sysstate", begin);
    assert!(message(root).contains("expected `file end :: /proc/vmstat` for thpscale"), "{}", message(root));
    give(root, "a-b/iter-0/tests-sysstate", "time :: thpscale 1 user x system 3 elapsed\n");
    assert!(message(root).contains("tests-sysstate:1: expected `time :: TEST SECONDS user"), "{}", message(root));
    give(root, BESIDE, "{\"version\": 7}");
    assert!(message(root).ends_with("pagelab.json: expected version 1, found 7"), "{}", message(root));
    for name in [BESIDE, "a-b/iter-0/tests-sysstate"] {
        fs::remove_file(root.join(name)).expect("removed");
    }
    fs::create_dir(root.join("c-d")).expect("made");
    fs::create_dir(root.join("c-d/iter-0")).expect("made");
    assert!(
        message(root).ends_with("c-d/iter-0: expected logs of a test (TEST/logs), found none"),
        "{}",
        message(root)
    );
}

#[test]
fn the_json_of_compare_mmtests_is_read() {
    let room = tempfile::tempdir().expect("a directory");
    let file = room.path().join("thpchallenge.json");
    let samples = |values: &[&str]| serde_json::json!([{ "SampleNrs": [1], "Values": values }]);
    let data = serde_json::json!({
        "fault-base-3": samples(&["700\n", "5"]), "fault-huge-3": samples(&["0"]), "fault-both-3": samples(&["700", "5"]),
    });
    let module = |name: &str| serde_json::json!({ "_TestName": "6.8-x", "_ModuleName": name, "_ResultData": data });
    let write = |modules: &[serde_json::Value]| {
        fs::write(&file, serde_json::json!({ "_ExtractModules": modules, "_Other": 1 }).to_string()).expect("written");
    };
    write(&[module("ExtractShellpackthpchallenge")]);
    let cells = read(&file).expect("read");
    let samples: Vec<_> = cells[0].measured.metrics.iter().map(|metric| metric.samples.clone()).collect();
    assert_eq!(
        samples[..4],
        [vec![700.0, 5.0], vec![], vec![700.0, 5.0], vec![0.0]],
        "a lone zero says that there was none"
    );
    assert_eq!((cells[0].key.kernel.as_str(), cells[0].key.experiment.as_str()), ("6.8-x", "thpscale"));
    write(&[module("ExtractKernbench")]);
    assert!(message(&file).contains("it is of \"kernbench\", which is not understood; these are: thpchallenge"));
    fs::write(&file, "{\"_Extract").expect("written");
    assert!(
        message(&file).contains("is not a result directory, nor what compare-mmtests.pl --json-export writes: EOF")
    );
}
