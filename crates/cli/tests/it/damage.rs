//! Results that are not as they were written: every command refuses them or says what is missing, and the run again mends them.

use std::{fs, path::Path};

use crate::support::{
    room::{Answer, PATIENCE_S, Room, within},
    words,
};
use nix::sys::signal::Signal;
use report::RESULT_FILE;
use serde_json::Value;

const RUN: [&str; 19] = [
    "run",
    "fault-storm",
    "--target",
    "sim",
    "--machine",
    "one-node-512m",
    "--variant",
    "v6.1",
    "--variant",
    "v5.0",
    "--seeds",
    "2",
    "--sample",
    "1ms",
    "--map",
    "--set",
    "size=2MiB",
    "--set",
    "iterations=1",
];
const SMALL: [&str; 6] = ["--set", "tasks=1", "--set", "model=threads", "--set", "page=base"];

fn run(room: &Room, directory: &str) -> Answer {
    room.run(&words(&[&RUN, &SMALL, &["-o", directory]])).expect(0)
}

fn lines(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join(RESULT_FILE)).expect("a result");
    text.split_inclusive('\n').map(str::to_owned).collect()
}

/// The part of each line that a rerun repeats.
fn repeated(lines: &[String]) -> Vec<Value> {
    let repeated = |line: &String| {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        let fields = line.as_object_mut().expect("an object");
        for key in ["run", "checksum"] {
            fields.remove(key);
        }
        line
    };
    lines.iter().map(repeated).collect()
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to.join("files")).expect("a directory");
    for name in ["run.json", RESULT_FILE] {
        fs::copy(from.join(name), to.join(name)).expect(name);
    }
    for entry in fs::read_dir(from.join("files")).expect("files").flatten() {
        fs::copy(entry.path(), to.join("files").join(entry.file_name())).expect("a file");
    }
}

/// The first file of a folder.
fn first_file(directory: &Path) -> std::path::PathBuf {
    let mut files: Vec<_> = fs::read_dir(directory.join("files")).expect("files").flatten().map(|e| e.path()).collect();
    files.sort_unstable();
    files.swap_remove(0)
}

/// A change of the lines of a result.
type Change<'a> = &'a dyn Fn(&mut Vec<String>);

#[test]
fn damage_is_refused_by_every_command_and_mended_by_the_run() {
    let room = Room::new();
    run(&room, "whole");
    let (whole, hurt) = (room.here().join("whole"), room.here().join("hurt"));
    let before = lines(&whole);
    assert_eq!(before.len(), 6, "two systems and four cells");
    let put = |lines: &[String]| fs::write(hurt.join(RESULT_FILE), lines.concat()).expect("a result");
    let changes: [(Change<'_>, &str); 5] = [
        (&|lines| lines[1] = lines[1].replacen("\"pgfault\":", "\"pgfault\":1", 1), "result.jsonl:2: its checksum"),
        (&|lines| lines.insert(2, lines[1].clone()), "seed 1 is there already"),
        (&|lines| drop(lines.remove(3)), "the line about the system sim:"),
        (&|lines| lines[0] = lines[0].replacen("swappiness", "swapiness", 1), "result.jsonl:1: its checksum"),
        (&|lines| lines[4].truncate(99), "result.jsonl:5: not a result record"),
    ];
    for (change, words) in changes {
        copy(&whole, &hurt);
        let mut lines_then = before.clone();
        change(&mut lines_then);
        if lines_then == before {
            // No setting of that name in the machine: the machine's text is a line of its own.
            lines_then[0] = lines_then[0].replacen("\"release\":\"", "\"release\":\"1", 1);
        }
        put(&lines_then);
        let all: [&[&str]; 4] = [
            &["show", "hurt"],
            &["report", "hurt", "-o", "page.html"],
            &["compare", "hurt"],
            &["export", "hurt", "--to", "perfetto", "trace"],
        ];
        for command in all {
            let answer = room.run(command).expect(2).says(&[words]);
            assert!(answer.stdout.is_empty() && answer.stderr.lines().count() == 1, "{answer:?}");
        }
        run(&room, "hurt").says(&[words, "what is lost is made again"]);
        assert_eq!(repeated(&lines(&hurt)), repeated(&before), "{words}");
        let again = run(&room, "hurt");
        assert!(!again.stderr.contains("again"), "{again:?}");
        room.run(&["show", "hurt"]).expect(0);
    }
    assert!(!room.here().join("page.html").exists() && !room.here().join("trace").exists());
    room.assert_nothing_left("damaged results");
}

#[test]
fn files_and_cells_that_are_gone_are_made_again() {
    let room = Room::new();
    run(&room, "whole");
    let (whole, hurt) = (room.here().join("whole"), room.here().join("hurt"));
    let before = lines(&whole);
    copy(&whole, &hurt);
    fs::write(first_file(&hurt), "altered").expect("a file");
    room.run(&["show", "hurt"]).expect(2).says(&["its content is not that of its name"]);
    fs::remove_dir_all(hurt.join("files")).expect("files");
    let shown = room.run(&["show", "hurt"]).expect(0).says(&["maps of memory are not in files/ any more"]);
    assert_eq!(shown.stdout, room.run(&["show", "whole"]).expect(0).stdout.replace("whole", "hurt"));
    run(&room, "hurt").says(&["is not there any more"]);
    assert_eq!(repeated(&lines(&hurt)), repeated(&before));
    room.run(&["map", "hurt"]).expect(0);
    // A line that was cut off, or one that is not there: the rest is shown, and what is missing is said.
    for keep in [before[..5].concat(), before.concat()[..before.concat().len() - 40].to_owned()] {
        copy(&whole, &hurt);
        fs::write(hurt.join(RESULT_FILE), keep).expect("a result");
        room.run(&["show", "hurt", "--format", "csv"]).expect(0).says(&["are missing"]);
        run(&room, "hurt");
        assert_eq!(repeated(&lines(&hurt)), repeated(&before));
    }
    // Lines in another order are those of the run, and stand in its order again.
    let mut other = before.clone();
    other.swap(1, 5);
    copy(&whole, &hurt);
    fs::write(hurt.join(RESULT_FILE), other.concat()).expect("a result");
    room.run(&["show", "hurt"]).expect(0).says(&["in another order"]);
    run(&room, "hurt");
    assert_eq!(lines(&hurt), before);
}

#[test]
fn what_run_json_says_cannot_change_unseen() {
    let room = Room::new();
    run(&room, "whole");
    let file = room.here().join("whole/run.json");
    let text = fs::read_to_string(&file).expect("run.json");
    for (from, to) in [("\"seed\": 2", "\"seed\": 3"), ("\"checksum\"", "\"checksun\""), ("about", "abuot")] {
        assert!(text.contains(from), "{from}");
        fs::write(&file, text.replacen(from, to, 1)).expect("run.json");
        for command in [words(&[&["show", "whole"]]), words(&[&RUN, &SMALL, &["-o", "whole"]])] {
            room.run(&command).expect(2).says(&["whole/run.json: ", "it was altered"]);
        }
    }
}

/// Maps that are removed while other cells are still worked on are missed at the end, and made by the run again.
#[test]
fn files_that_are_removed_during_a_run_are_missed() {
    const TRIES: usize = 10;
    let room = Room::new();
    for number in 0..TRIES {
        let directory = format!("mine-{number}");
        let args = words(&[&RUN, &SMALL, &["--workers", "1", "-o", &directory]]);
        let files = room.here().join(&directory).join("files");
        let mut running = room.start(room.command(&args));
        let is_whole = |entry: fs::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
        let is_there = || fs::read_dir(&files).is_ok_and(|entries| entries.flatten().any(is_whole));
        within(PATIENCE_S, || is_there() || running.has_ended());
        // A run that is stopped begins no cell.
        running.signal(Signal::SIGSTOP);
        // At once, whatever a worker is writing there.
        fs::rename(&files, files.with_extension("away")).expect("maps");
        running.signal(Signal::SIGCONT);
        let answer = running.wait();
        if answer.status.success() {
            // The run was at its end already.
            continue;
        }
        // A worker that was writing one may have found no place for it.
        let answer = answer.expect(1);
        let is_told = answer.stderr.contains("is not there any more") || answer.stderr.contains("cannot write mine-");
        assert!(is_told, "{answer:?}");
        room.run(&args).expect(0).says(&["what is lost is made again"]);
        room.run(&["map", &directory]).expect(0);
        return;
    }
    panic!("all of {TRIES} runs had ended before their files were removed");
}

/// A directory where `run.json` cannot be written keeps nothing of the run.
#[test]
fn a_run_that_cannot_say_what_it_is_leaves_nothing() {
    let room = Room::new();
    fs::create_dir_all(room.here().join("mine/run.json.d")).expect("a directory");
    std::os::unix::fs::symlink("nowhere/run.json", room.here().join("mine/run.json")).expect("a link");
    room.run(&words(&[&RUN, &SMALL, &["-o", "mine"]])).expect(2).says(&["mine/run.json"]);
    let left: Vec<_> = fs::read_dir(room.here().join("mine")).expect("it is there").flatten().collect();
    let left: Vec<_> = left.iter().map(fs::DirEntry::file_name).collect();
    assert!(!left.iter().any(|name| name == RESULT_FILE), "{left:?}");
}
