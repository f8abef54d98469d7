//! The result directory: what survives a stopped writer, and what is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use report::{
    ALTERED, Better, Cell, Duration, Footprint, Key, Lines, Measured, Metric, RESULT_FILE, Record, Rejected, Run,
    SCHEMA, Sample, Series, Skipped, SlowPath, Store, StoreError, System, Target, Torn, seal::seal,
};

/// A directory of its own for one test, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("pagelab-report-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).expect("a scratch directory");
        Self(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join(RESULT_FILE)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn skipped(what: &str) -> Record {
    Record::Skipped(Skipped {
        schema: SCHEMA,
        key: None,
        target: Target::Vm,
        what: what.into(),
        reason: "no kernel".into(),
    })
}

fn run() -> Run {
    Run {
        date: "2026-01-02T03:04:05Z".into(),
        wall_s: 0.25,
        boot_s: None,
        host: "builder".into(),
        commit: "abc".into(),
        max_rss_kib: 1,
    }
}

fn cell(sample: f64) -> Record {
    let key = Key {
        result: None,
        experiment: "e".into(),
        group: None,
        workload: "w".into(),
        case: "c".into(),
        params: BTreeMap::from([("threads".into(), "4".into())]),
        variant: "v".into(),
        machine: "m".into(),
        state: "s".into(),
        target: Target::Sim,
        kernel: "6.1".into(),
        seed: u64::MAX,
        program: "p".into(),
    };
    let metric = Metric {
        name: "x".into(),
        class: None,
        part: None,
        unit: "ns".into(),
        better: Better::Lower,
        samples: vec![sample],
    };
    let measured = Measured {
        scored: true,
        metrics: vec![metric],
        counters: BTreeMap::from([("nr_free_pages".into(), -5)]),
        gauges: BTreeMap::from([("nr_page_table_pages".into(), 64)]),
        duration: Some(Duration { user_ps: 1, system_ps: u64::MAX, elapsed_ps: 3 }),
        causes: BTreeMap::from([("page table".into(), u64::MAX)]),
        extfrag: None,
        memory: None,
        checks: vec![],
        skipped: vec![],
        detail: serde_json::json!({ "tasks": [1, 2] }),
    };
    let samples = [[3, 7], [4, 7]].map(|values| Sample { at_us: values[0], values: values.to_vec() });
    let series = Some(Series::new(1_000_000, &["pgfault".into(), "node0/nr_free_pages".into()], &samples));
    let slow_path = Some(SlowPath::default());
    let footprint = Some(Footprint { epoch_us: 7, ..Footprint::default() });
    Record::Cell(Cell { schema: SCHEMA, key, measured, series, map: None, slow_path, footprint, run: run() })
}

fn system() -> Record {
    Record::System(System {
        schema: SCHEMA,
        target: Target::Vm,
        machine: "m".into(),
        kernel: "6.1".into(),
        release: "6.1.0-1-amd64".into(),
        accelerator: Some("kvm".into()),
        settings: BTreeMap::from([("vm.swappiness".into(), "0".into())]),
        captures: serde_json::json!({ "start": { "/proc/buddyinfo": "Node 0" } }),
        notes: vec!["a note".into()],
        run: Run { boot_s: Some(1.5), ..run() },
    })
}

fn records(lines: &Lines) -> Vec<Record> {
    lines.whole.iter().map(|line| line.record.clone()).collect()
}

#[test]
fn records_come_back_as_written() {
    let dir = Scratch::new();
    let written = [system(), skipped("6.18"), cell(0.1), cell(37_487.0 / 15.0)];
    let mut store = Store::create(&dir.0).expect("an empty directory");
    for record in &written {
        store.append(record).expect("appended");
    }
    // A reader needs no lock and sees whole lines while the writer lives.
    assert_eq!(records(&Store::read(&dir.0).expect("readable")), written);
    drop(store);

    let (mut store, contents) = Store::open(&dir.0).expect("reopened");
    assert_eq!((records(&contents).as_slice(), contents.torn), (&written[..], None));
    store.append(&skipped("more")).expect("appended");
    assert_eq!(records(&Store::read(&dir.0).expect("readable")).len(), 5);
}

#[test]
fn a_line_describes_itself() {
    let line = serde_json::to_string(&skipped("6.18")).expect("JSON");
    assert_eq!(line, r#"{"record":"skipped","schema":5,"target":"vm","what":"6.18","reason":"no kernel"}"#);
    let line = serde_json::to_string(&cell(1.5)).expect("JSON");
    let measured = r#""metrics":[{"name":"x","unit":"ns","better":"lower","samples":[1.5]}]"#;
    assert!(line.starts_with(r#"{"record":"cell","schema":5,"key":{"experiment":"e","#), "{line}");
    assert!(line.contains(measured), "{line}");
    assert!(!line.contains("boot_s"), "{line}");
}

#[test]
fn a_torn_last_line_is_cut_off() {
    let whole = serde_json::to_string(&skipped("a")).expect("JSON");
    // Without its end; whole but for the newline; not JSON; not text.
    for torn in [&whole.as_bytes()[..20], whole.as_bytes(), b"{\"rec\n", b"\xff\xfe\n", b"\n"] {
        let dir = Scratch::new();
        fs::write(dir.file(), [whole.as_bytes(), b"\n", torn].concat()).expect("written");
        let is_cut = !torn.ends_with(b"\n");
        let expected = Some(Torn { line: 2, bytes: torn.len() as u64, is_cut });

        let read = Store::read(&dir.0).expect("readable");
        assert_eq!((read.whole.len(), read.torn), (1, expected));
        let (mut store, contents) = Store::open(&dir.0).expect("opened");
        assert_eq!((contents.whole.len(), contents.torn), (1, expected));
        store.append(&skipped("b")).expect("appended");
        let after = Store::read(&dir.0).expect("readable");
        assert_eq!((records(&after), after.torn), (vec![skipped("a"), skipped("b")], None));
    }
}

#[test]
fn a_line_without_a_record_is_rejected_and_the_others_are_read() {
    let whole = serde_json::to_string(&skipped("a")).expect("JSON");
    let rejected = |lines: &[&str]| {
        let dir = Scratch::new();
        fs::write(dir.file(), lines.join("\n") + "\n").expect("written");
        let (_, found) = Store::open(&dir.0).expect("opened");
        assert_eq!((found.whole.len(), found.torn), (lines.len() - 1, None));
        let Rejected { line, reason, is_foreign } = found.rejected[0].clone();
        (line, reason, is_foreign)
    };
    let of = |line, reason: &str, is_foreign| (line, reason.to_owned(), is_foreign);
    let expected = of(2, "not a result record: EOF while parsing a string at column 5", false);
    assert_eq!(rejected(&[&whole, "{\"rec", &whole]), expected);
    // Whole JSON is never cut off, not even at the end: a newer program may have written it.
    assert_eq!(rejected(&[&whole, "{}"]), of(2, "not a result record: missing field `record`", true));
    assert_eq!(rejected(&[&whole.replace(":5,", ":6,")]), of(1, "expected schema 1 to 5, found 6", true));
    assert_eq!(rejected(&[&whole.replace(":5,", ":0,")]), of(1, "expected schema 1 to 5, found 0", true));
    // Unless its checksum says that something has happened to it.
    let sealed = String::from_utf8(seal(whole.clone().into_bytes())).expect("JSON");
    assert_eq!(rejected(&[&sealed.replace(":5,", ":6,")]), of(1, "expected schema 1 to 5, found 6", false));
    assert_eq!(rejected(&[&sealed.replace("no kernel", "a kernel")]), of(1, ALTERED, false));
}

#[test]
fn lines_are_kept_byte_by_byte_and_the_file_stays_ours() {
    let dir = Scratch::new();
    let mut store = Store::create(&dir.0).expect("an empty directory");
    for what in ["a", "b", "c", "d"] {
        store.append(&skipped(what)).expect("appended");
    }
    let text = fs::read_to_string(dir.file()).expect("readable");
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    store.keep(&[4, 1, 2]).expect("kept");
    assert_eq!(fs::read_to_string(dir.file()).expect("readable"), [lines[3], lines[0], lines[1]].concat());
    assert!(matches!(Store::open(&dir.0), Err(StoreError::Busy { .. })));
    store.append(&skipped("e")).expect("appended");
    let found = Store::read(&dir.0).expect("readable");
    assert_eq!(records(&found), ["d", "a", "b", "e"].map(skipped));
    assert!(found.whole.iter().all(|line| line.is_sealed));
    store.replace(&[skipped("f")]).expect("replaced");
    store.append(&skipped("g")).expect("appended");
    assert_eq!(records(&Store::read(&dir.0).expect("readable")), ["f", "g"].map(skipped));
    assert_eq!(fs::read_dir(&dir.0).expect("listed").count(), 1);
}

#[test]
fn only_one_process_writes() {
    let dir = Scratch::new();
    let first = Store::create(&dir.0).expect("an empty directory");
    assert!(matches!(Store::open(&dir.0), Err(StoreError::Busy { path }) if path == dir.file()));
    assert!(matches!(Store::create(&dir.0), Err(StoreError::Exists { path }) if path == dir.file()));
    drop(first);
    assert!(Store::open(&dir.0).is_ok());
}

#[test]
fn a_directory_that_cannot_be_written_is_named_with_the_reason() {
    let dir = Scratch::new();
    let file = dir.0.join("file");
    fs::write(&file, "").expect("written");
    let below = file.join("results");
    let message = Store::create(&below).expect_err("below a file").to_string();
    assert_eq!(message, format!("cannot create {}: Not a directory (os error 20)", below.display()));
    let absent = dir.0.join("absent");
    let message = Store::open(&absent).expect_err("nothing there").to_string();
    let path = absent.join(RESULT_FILE);
    assert_eq!(message, format!("cannot open {}: No such file or directory (os error 2)", path.display()));
}

#[test]
fn a_number_that_json_lacks_is_refused_and_nothing_is_written() {
    let dir = Scratch::new();
    let mut store = Store::create(&dir.0).expect("an empty directory");
    assert!(matches!(store.append(&cell(f64::NAN)), Err(StoreError::Unreadable { .. })));
    assert_eq!(fs::read(dir.file()).expect("readable"), b"");
}

#[test]
fn numbers_come_back_to_the_last_bit() {
    let dir = Scratch::new();
    // Quotients with nothing round about them, as rates have.
    let samples: Vec<f64> = (1..=20_000).map(|i| 1e9 * f64::from(i) / f64::from(7 * i + 12_345)).collect();
    let Record::Cell(mut cell) = cell(0.0) else { panic!("a cell") };
    cell.measured.metrics[0].samples.clone_from(&samples);
    Store::create(&dir.0).expect("an empty directory").append(&Record::Cell(cell)).expect("appended");
    let back = &report::cells(records(&Store::read(&dir.0).expect("readable")))[0].measured.metrics[0].samples;
    let changed = back.iter().zip(&samples).filter(|(back, sample)| back.to_bits() != sample.to_bits()).count();
    assert_eq!(changed, 0, "of {}", samples.len());
}

/// As builds before schema 2 wrote it.
#[test]
fn lines_of_schema_1_are_read() {
    let dir = Scratch::new();
    fs::write(dir.file(), include_bytes!("schema-1.jsonl")).expect("written");
    let contents = Store::read(&dir.0).expect("readable");
    let found = records(&contents);
    let [Record::System(system), Record::Cell(cell)] = &found[..] else { panic!("{contents:?}") };
    assert_eq!((system.schema, cell.schema), (1, 1));
    assert_eq!(cell.measured.detail["run_hash"].as_str().map(str::len), Some(16));
    assert_eq!((&cell.series, &cell.slow_path, &cell.footprint), (&None, &None, &None));
    // What is written back is what was read.
    let text = serde_json::to_string(&found[1]).expect("it serialises");
    assert!(include_str!("schema-1.jsonl").ends_with(&format!("{text}\n")), "{text}");
}
