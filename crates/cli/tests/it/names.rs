//! Names that are alike or odd. No file of one cell is taken for a file of another cell, and each file that is written can be
//! read again.

use std::{fs, path::Path};

use crate::support::{
    TINY,
    room::{Answer, Room},
    words,
};

/// The machine file of 512 MiB, under another name.
fn machine(room: &Room, name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/one-node-512m.toml");
    room.give(name, fs::read_to_string(file).expect("a machine file"))
}

fn names(folder: &Path, with: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.contains(with));
    names.sort();
    names
}

#[test]
fn every_cell_has_a_trace_of_its_own() {
    let room = Room::new();
    let variants = ["x y", "x_y"].map(|name| room.give(&format!("{name}.toml"), "about = 'mine'\nparent = 'v6.1'\n"));
    let run = ["run", "fault-storm", "--target", "sim", "--machine", "one-node-512m", "--trace", "-o", "result"];
    let several = ["--variant", &variants[0], "--variant", &variants[1], "--set", "size=2MiB,4MiB", "--seeds", "2"];
    room.run(&words(&[&run, &several, &TINY[..8]])).expect(0);
    let traces = names(&room.here().join("result"), "trace-");
    assert_eq!(traces.len(), 8, "two variants, two sizes of one case, two seeds: {traces:?}");
}

#[test]
fn a_recipe_reads_back_a_machine_name_with_quotes() {
    let room = Room::new();
    let odd = machine(&room, "a\"b\\n.toml");
    room.run(&["state", "make", "--recipe", "metadata+anon", "--machine", &odd, "-o", "odd.toml"]).expect(0);
    let shown = room.run(&["state", "show", "odd.toml"]).expect(0).stdout;
    assert!(shown.contains("on a\"b\\n, "), "{shown}");
    let run = ["run", "fault-storm", "--machine", &odd, "--variant", "v4.20", "--state", "./odd.toml", "-o", "result"];
    room.run(&words(&[&run, &TINY])).expect(0);
}

#[test]
fn names_that_would_be_others_are_refused() {
    let room = Room::new();
    for (name, letter) in [("a\nb.toml", "'\\n'"), ("a:b.toml", "':'"), ("a\u{1b}[2Jb.toml", "'\\u{1b}'")] {
        let odd = machine(&room, name);
        let answer = room.run(&words(&[&["run", "fault-storm", "--target", "sim", "--machine", &odd], &TINY]));
        let answer = answer.expect(2).says(&["pagelab: machine \"a", &format!("expected a name without {letter}")]);
        assert_eq!(answer.stderr.lines().count(), 1, "{answer:?}");
    }
    room.assert_untouched("names that are refused");
}

/// Parsers repeat what they have read. A message is a line that can be read.
#[test]
fn no_message_repeats_all_that_was_read() {
    let room = Room::new();
    let long = "x".repeat(10_000);
    let is_short = |answer: Answer| {
        let answer = answer.expect(2);
        assert!(answer.stderr.len() < 1500 && answer.stderr.lines().count() == 1, "{}", answer.stderr);
    };
    for text in [
        format!("{long} = 1\n"),
        format!("about = 'x'\nswap = '{long}'\n"),
        format!("about = 'x'\nswap = 1{}\n", "0".repeat(10_000)),
        format!("{long} = 1\n{long} = 2\n"),
        format!("about = '{long}\n"),
        format!("about = 'x'\nmodules = ['{long}', '{long}']\n"),
    ] {
        let file = room.give("long.toml", text);
        is_short(room.run(&["run", "fault-storm", "--target", "sim", "--machine", &file]));
    }
    room.run(&words(&[
        &["run", "fault-storm", "--target", "sim", "--machine", "one-node-512m", "--variant", "v6.1", "-o", "result"],
        &TINY,
    ]))
    .expect(0);
    let result = room.here().join("result");
    let [lines, run] = ["result.jsonl", "run.json"].map(|name| result.join(name));
    let [lines_then, run_then] = [&lines, &run].map(|file| fs::read_to_string(file).expect("it is there"));
    for (from, to) in [
        ("\"record\":\"cell\"", format!("\"record\":\"{long}\"")),
        ("\"target\":\"sim\"", format!("\"target\":\"{long}\"")),
        ("\"schema\":5", format!("\"schema\":\"{long}\"")),
    ] {
        fs::write(&lines, lines_then.replace(from, &to)).expect("written");
        is_short(room.run(&["show", "result"]));
    }
    fs::write(&lines, lines_then).expect("written");
    for (from, to) in
        [("\"target\": \"sim\"", format!("\"target\": \"{long}\"")), ("\"checksum\"", format!("\"{long}\""))]
    {
        assert!(run_then.contains(from));
        fs::write(&run, run_then.replace(from, &to)).expect("written");
        is_short(room.run(&["show", "result"]));
    }
    let json = room.give("numbers.json", format!("{{\"_ExtractModules\":[{{\"_ModuleName\":\"{long}\"}}]}}"));
    is_short(room.run(&["show", &json]));
    is_short(room.run(&["run", &long]));
    is_short(room.run(&["run", "fault-storm", "--variant", &long]));
}
