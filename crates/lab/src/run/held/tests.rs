//! Reading result files: every kind of damage is held to be noticed, down to a flipped bit.

use std::{fs, path::PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::run::directory;

mod damage;

/// A finished run of two simulated kernels and a guest's, with maps of memory.
struct Result {
    dir: TempDir,
    identity: Identity,
    records: Vec<Record>,
}

fn key(target: &str, kernel: &str, seed: u64) -> serde_json::Value {
    json!({
        "experiment": "e", "workload": "w", "case": "c", "params": { "threads": "4" }, "variant": kernel, "machine": "m",
        "state": "fresh", "target": target, "kernel": kernel, "seed": seed, "program": "p",
    })
}

fn run(second: u64) -> serde_json::Value {
    let date = format!("2026-01-02T03:04:{second:02}Z");
    json!({ "date": date, "wall_s": 0.25, "host": "builder", "commit": "abc", "max_rss_kib": 1 })
}

fn cell(target: &str, kernel: &str, seed: u64, map: Option<&str>) -> Record {
    let samples = [0.1, 37_487.0 / 15.0, 1e-7 * seed as f64];
    let metric = json!({ "name": "x", "unit": "ns", "better": "lower", "samples": samples });
    let measured = json!({
        "scored": true, "metrics": [metric], "counters": { "pgfault": 5390 + seed }, "checks": [], "skipped": [], "detail": null,
    });
    let mut cell = json!({
        "record": "cell", "schema": report::SCHEMA, "key": key(target, kernel, seed), "measured": measured, "run": run(seed),
    });
    if let Some(map) = map {
        cell["map"] = json!(map);
    }
    serde_json::from_value(cell).unwrap()
}

fn system(target: &str, kernel: &str, second: u64) -> Record {
    let system = json!({
        "record": "system", "schema": report::SCHEMA, "target": target, "machine": "m", "kernel": kernel, "release": kernel,
        "accelerator": null, "settings": { "vm.swappiness": "60" }, "captures": { "machine": "about = \"x\"" }, "notes": [],
        "run": run(second),
    });
    serde_json::from_value(system).unwrap()
}

fn skipped() -> Record {
    let line =
        json!({ "record": "skipped", "schema": report::SCHEMA, "target": "host", "what": "all", "reason": "none" });
    serde_json::from_value(line).unwrap()
}

impl Result {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(report::map::FOLDER);
        fs::create_dir(&folder).unwrap();
        let map = |text: &str| {
            let name = blake3::hash(text.as_bytes()).to_hex().to_string();
            fs::write(folder.join(&name), text).unwrap();
            name
        };
        let (one, other) = (map("a map of memory"), map("another one"));
        let records = vec![
            skipped(),
            system("sim", "v6.1", 0),
            cell("sim", "v6.1", 1, Some(&one)),
            cell("sim", "v6.1", 2, Some(&other)),
            system("sim", "v5.10", 0),
            cell("sim", "v5.10", 1, None),
            cell("sim", "v5.10", 2, Some(&one)),
            cell("vm", "6.1.0", 1, None),
            system("vm", "6.1.0", 1),
            cell("vm", "6.1.0", 2, None),
            system("vm", "6.1.0", 2),
        ];
        let identity = json!({
            "program": "p", "keys": records.iter().filter_map(key_of).collect::<Vec<_>>(), "machines": [["about = \"x\"", "sim"]],
            "simulated": [], "map": true,
        });
        let identity: Identity = serde_json::from_value(identity).unwrap();
        let result = Self { dir, identity, records };
        result.write(&result.records);
        result
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes these records as the lines of the run, and ends it.
    fn write(&self, records: &[Record]) {
        let _ = fs::remove_file(self.path().join(RESULT_FILE));
        write_identity(self.path(), &self.identity, true).unwrap();
        let mut store = Store::create(self.path()).unwrap();
        for record in records {
            store.append(record).unwrap();
        }
        assert_eq!(directory::finish(self.path(), &mut store).unwrap(), Vec::<String>::new());
    }

    /// The reason why the result is refused, or the notes that a reader is told.
    fn said(&self) -> std::result::Result<Vec<String>, String> {
        let known = identity(self.path()).map_err(|error| error.to_string())?;
        let lines = Store::read(self.path()).map_err(|error| error.to_string())?;
        let held = hold(self.path(), &known, lines);
        held.check(self.path()).map_err(|error| error.to_string())?;
        let notices = held.notices(self.path(), &known);
        assert_eq!(held.is_finished, notices.is_empty() && known.identity.lines.is_some());
        Ok(notices)
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path().join(RESULT_FILE)).unwrap();
        text.split_inclusive('\n').map(str::to_owned).collect()
    }

    fn put(&self, lines: &[String]) {
        fs::write(self.path().join(RESULT_FILE), lines.concat()).unwrap();
    }
}

/// A line with a checksum that is right.
fn sealed(record: &Record) -> String {
    String::from_utf8(seal(serde_json::to_vec(record).unwrap())).unwrap() + "\n"
}

#[test]
fn a_result_as_it_was_written_is_read_and_nothing_said() {
    let result = Result::new();
    assert_eq!(result.said(), Ok(vec![]));
    let (_, contents) = read(result.path()).unwrap();
    assert_eq!(contents.records, result.records);
    // So is one that is not at its end, whoever reads it.
    write_identity(result.path(), &result.identity, true).unwrap();
    result.put(&result.lines()[..4]);
    assert_eq!(result.said(), Ok(vec![]));
}

/// Damage, and what is said of it: `Err` where it is refused, `Ok` where the reader is told and the rest is shown.
#[test]
fn no_kind_of_damage_passes_unseen() {
    let result = Result::new();
    let whole = result.lines();
    let refused = |change: &dyn Fn(&mut Vec<String>), words: &str| {
        let mut lines = whole.clone();
        change(&mut lines);
        assert_ne!(lines, whole, "{words}");
        result.put(&lines);
        let said = result.said().expect_err(words);
        assert!(said.contains(words), "expected {words:?} in {said}");
    };
    let noted = |change: &dyn Fn(&mut Vec<String>), words: &str| {
        let mut lines = whole.clone();
        change(&mut lines);
        result.put(&lines);
        let said = result.said().expect(words).concat();
        assert!(said.contains(words), "expected {words:?} in {said:?}");
    };
    refused(&|lines| lines[2] = lines[2].replacen("5391", "5931", 1), "result.jsonl:3: its checksum does not match");
    refused(
        &|lines| lines[1] = lines[1].replacen("\"60\"", "\"10\"", 1),
        "result.jsonl:2: its checksum does not match",
    );
    refused(&|lines| lines[0] = lines[0].replacen("none", "some", 1), "result.jsonl:1: its checksum does not match");
    refused(
        &|lines| lines[3] = lines[3].replacen("\"checksum\"", "\"chfcksum\"", 1),
        "result.jsonl:4: it has no checksum",
    );
    refused(&|lines| lines[2].truncate(100), "result.jsonl:3: not a result record");
    refused(&|lines| lines[2] = "\n".to_owned(), "result.jsonl:3: not a result record");
    refused(&|lines| lines[10] = "garbage\n".to_owned(), "result.jsonl:11: not a result record");
    refused(&|lines| lines.insert(3, lines[2].clone()), "result.jsonl:4: v6.1 c on m seed 1 is there already");
    refused(&|lines| lines.insert(3, lines[1].clone()), "result.jsonl:4: an earlier line says it already");
    refused(&|lines| lines.push(lines[10].clone()), "result.jsonl:12: an earlier line says it already");
    refused(&|lines| lines.push(sealed(&cell("sim", "v6.1", 3, None))), "v6.1 c on m seed 3 is no cell of this run");
    refused(&|lines| lines[2] = sealed(&cell("sim", "v4.1", 1, None)), "result.jsonl:3: v4.1 c on m seed 1 is no cell");
    refused(&|lines| lines.push(sealed(&system("sim", "v4.1", 0))), "the system sim:v4.1:m is none of this run");
    refused(
        &|lines| lines[2] = sealed(&cell("sim", "v6.1", 1, None)),
        "result.jsonl:3: it was not there when the run ended",
    );
    refused(
        &|lines| lines[1] = sealed(&system("sim", "v6.1", 9)),
        "result.jsonl:2: it was not there when the run ended",
    );
    refused(&|lines| drop(lines.remove(1)), "the line about the system sim:v6.1:m is not there");
    refused(&|lines| drop(lines.remove(8)), "1 lines that were there when the run ended are not");
    refused(&|lines| drop(lines.remove(0)), "1 lines that were there when the run ended are not");
    noted(&|lines| drop(lines.remove(2)), "cells of 1 of the 11 lines");
    refused(&|lines| lines[10].truncate(50), "1 lines that were there when the run ended are not");
    noted(&|lines| lines.swap(2, 3), "in another order");
    noted(&|lines| lines.swap(1, 6), "in another order");
    result.put(&whole);
    assert_eq!(result.said(), Ok(vec![]));
}

#[test]
fn lines_in_another_order_are_read_in_theirs() {
    let result = Result::new();
    let mut lines = result.lines();
    lines.reverse();
    result.put(&lines);
    assert_eq!(read(result.path()).unwrap().1.records, result.records);
}

#[test]
fn files_are_what_their_names_say() {
    let result = Result::new();
    let folder = result.path().join(report::map::FOLDER);
    let files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let before = fs::read(&files[0]).unwrap();
    fs::write(&files[0], "other").unwrap();
    assert!(result.said().expect_err("altered").contains("its content is not that of its name"));
    fs::remove_file(&files[0]).unwrap();
    assert!(result.said().expect("absent")[0].contains("not in files/ any more"));
    fs::write(&files[0], before).unwrap();
    assert_eq!(result.said(), Ok(vec![]));
    let known = identity(result.path()).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let mut held = hold(result.path(), &known, Store::read(result.path()).unwrap());
    held.reject_what_lacks_something(&known.identity);
    let rejected: Vec<_> = held.rejected.iter().map(|rejected| rejected.line).collect();
    assert_eq!((rejected, held.is_finished), (vec![3, 4, 7], false));
}

#[test]
fn a_guest_without_its_system_is_booted_again() {
    let result = Result::new();
    let lines: Vec<String> =
        result.lines().into_iter().filter(|line| !line.contains("\"release\":\"6.1.0\"")).collect();
    result.put(&lines);
    let known = identity(result.path()).unwrap();
    let mut held = hold(result.path(), &known, Store::read(result.path()).unwrap());
    held.reject_what_lacks_something(&known.identity);
    assert_eq!(held.rejected.iter().map(|rejected| rejected.line).collect::<Vec<_>>(), [8, 9]);
    // While cells are missing, another boot comes anyway.
    result.put(&lines[..8]);
    let mut held = hold(result.path(), &known, Store::read(result.path()).unwrap());
    held.reject_what_lacks_something(&known.identity);
    assert_eq!(held.rejected, []);
}

#[test]
fn a_finished_file_has_the_order_of_the_plan() {
    let result = Result::new();
    let right = result.lines();
    let mut records = result.records.clone();
    // As a run leaves it that was stopped, damaged and gone on with.
    records.rotate_left(3);
    let skipped = records.iter().position(|record| matches!(record, Record::Skipped(_))).unwrap();
    records.swap(0, skipped);
    records.swap(1, 2);
    result.write(&records);
    let key_and_kind = |line: &String| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        (value["record"].clone(), value["key"].clone(), value["kernel"].clone())
    };
    let of_sim = |lines: &[String]| lines[..7].iter().map(key_and_kind).collect::<Vec<_>>();
    assert_eq!(of_sim(&result.lines()), of_sim(&right));
    assert_eq!(result.said(), Ok(vec![]));
    // A boot that was interrupted and one that did the rest.
    let boots = [9, 7, 10, 8].map(|at| result.records[at].clone());
    result.write(&[&result.records[..7], &boots].concat());
    let seconds = result.lines()[7..].iter().map(|line| u8::from(line.contains("\"seed\":2"))).collect::<Vec<_>>();
    assert_eq!(seconds, [0, 0, 0, 1], "systems stand behind the last cell before them: {:?}", result.lines());
}

#[test]
fn results_without_checksums_are_read_and_say_so_once() {
    let result = Result::new();
    let text = |record: &Record| serde_json::to_string(record).unwrap() + "\n";
    result.put(&result.records.iter().map(text).collect::<Vec<_>>());
    assert!(result.said().expect_err("of today's run").contains("result.jsonl:1: it has no checksum"));
    let plain = serde_json::to_vec_pretty(&result.identity).unwrap();
    fs::write(result.path().join(IDENTITY_FILE), plain).unwrap();
    let said = result.said().unwrap();
    assert!(said.len() == 1 && said[0].contains("an older program wrote it"), "{said:?}");
    assert_eq!(read(result.path()).unwrap().1.records, result.records);
}

#[test]
fn no_flip_of_a_bit_passes_unseen() {
    let result = Result::new();
    let mut files: Vec<PathBuf> = vec![result.path().join(IDENTITY_FILE), result.path().join(RESULT_FILE)];
    files.extend(fs::read_dir(result.path().join(report::map::FOLDER)).unwrap().map(|entry| entry.unwrap().path()));
    let mut state = 56_u64;
    // Marsaglia's xorshift64.
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).unwrap()
    };
    for turn in 0..2000 {
        let file = &files[if turn % 10 == 0 { 2 + below(2) } else { turn % 2 }];
        let before = fs::read(file).unwrap();
        let mut damaged = before.clone();
        let at = below(before.len());
        damaged[at] ^= 1 << below(8);
        fs::write(file, &damaged).unwrap();
        assert_ne!(result.said(), Ok(vec![]), "{}: byte {at}", file.display());
        fs::write(file, &before).unwrap();
    }
    assert_eq!(result.said(), Ok(vec![]));
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
    for name in [RESULT_FILE, IDENTITY_FILE] {
        let result = Result::new();
        fs::remove_file(result.path().join(name)).unwrap();
        nix::unistd::mkfifo(&result.path().join(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let said = result.said().expect_err(name);
        assert!(said.contains(name) && said.contains("expected a file, found a pipe"), "{said}");
    }
}
