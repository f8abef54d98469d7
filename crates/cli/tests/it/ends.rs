//! Runs that do not end as they were meant to: each says one thing or goes on, and leaves whole lines.

use std::{fs, os::unix::process::CommandExt, path::Path, process::Command};

use crate::support::{
    document,
    room::{Answer, PATIENCE_S, Room, Running, within},
    skip, words,
};
use nix::sys::signal::Signal;
use report::{Cell, RESULT_FILE, Store};

/// Eight cells of some tens of milliseconds.
const RUN: [&str; 8] = ["run", "fault-storm", "--target", "sim", "--set", "size=32MiB", "--workers", "1"];

fn into(directory: &str) -> Vec<&str> {
    [&RUN[..], &["-o", directory]].concat()
}

/// What was measured, cell by cell.
fn measured(directory: &Path) -> Vec<String> {
    let of = |cell: &Cell| format!("{:?} {}", cell.key, serde_json::to_string(&cell.measured).expect("it serialises"));
    let mut cells: Vec<_> = report::cells(document::whole_records(directory)).iter().map(of).collect();
    cells.sort();
    cells
}

/// One message, in one line.
#[track_caller]
fn says_once(answer: &Answer, what: &str) {
    assert_eq!(answer.stdout, "");
    assert_eq!(answer.stderr.lines().count(), 1, "{}", answer.stderr);
    assert!(answer.stderr.starts_with("pagelab: ") && answer.stderr.contains(what), "{}", answer.stderr);
}

#[test]
fn a_killed_run_goes_on_and_gives_the_same_bytes() {
    let room = Room::new();
    room.run(&into("whole")).expect(0);
    let lines =
        || fs::read_to_string(room.here().join("killed").join(RESULT_FILE)).map_or(0, |text| text.lines().count());
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT] {
        let running = room.start(room.command(&into("killed")));
        let before = lines();
        assert!(within(PATIENCE_S, || lines() > before + 1), "no cell was done");
        running.signal(signal);
        let answer = running.wait();
        assert!(answer.stdout.is_empty() || answer.status.success(), "half of what is printed: {}", answer.stdout);
        assert!(answer.stderr.lines().count() <= 2, "{}", answer.stderr);
        room.assert_nothing_left(&format!("{signal}"));
        let torn = Store::read(&room.here().join("killed")).expect("it can be read").torn;
        assert!(torn.is_none() || signal == Signal::SIGKILL, "{torn:?}");
    }
    room.run(&into("killed")).expect(0);
    assert_eq!(measured(&room.here().join("killed")), measured(&room.here().join("whole")));
}

#[test]
fn two_processes_do_not_write_one_result() {
    let room = Room::new();
    let endless = ["run", "fault-storm", "--target", "host", "--set", "tasks=1", "--set", "page=base", "-o", "result"];
    let run = words(&[&endless, &["--set", "model=processes", "--set", "duration=600"]]);
    let first = room.start(room.command(&run));
    assert!(within(PATIENCE_S, || room.here().join("result").join(RESULT_FILE).exists()), "no result was begun");
    says_once(&room.run(&run).expect(2), "result/result.jsonl is being written by another process");
    first.signal(Signal::SIGKILL);
    drop(first);
    room.assert_nothing_left("SIGKILL");
}

#[test]
fn processes_that_begin_at_once_do_not_write_one_result() {
    let room = Room::new();
    let start = || room.start(room.command(&into("result")));
    let answers = [start(), start(), start()].map(Running::wait);
    let done = answers.iter().filter(|answer| answer.status.success()).count();
    assert!(done >= 1, "{answers:?}");
    for answer in answers.iter().filter(|answer| !answer.status.success()) {
        assert_eq!(answer.status.code(), Some(2), "{answer:?}");
        says_once(answer, "result/result.jsonl is being written by another process");
    }
    assert_eq!(measured(&room.here().join("result")).len(), 8);
}

/// `pagelab ARGS` where no file may become larger than `kib` KiB: as on a full disk, a write fails.
fn short_of_room(room: &Room, kib: u32, args: &[&str]) -> Answer {
    let mut shell = room.command_of(Path::new("sh"), &[] as &[&str]);
    let program = env!("CARGO_BIN_EXE_pagelab");
    // Blocks of 512 bytes, as POSIX has it. Without the trap the signal would end it.
    shell.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", kib * 2)).arg(program).args(args);
    room.start(shell).wait()
}

#[test]
fn a_full_disk_is_named_and_the_run_resumes() {
    let room = Room::new();
    room.run(&into("whole")).expect(0);
    let run_json = fs::metadata(room.here().join("whole/run.json")).expect("it is there").len();
    let result = fs::metadata(room.here().join("whole").join(RESULT_FILE)).expect("it is there").len();
    let none = short_of_room(&room, 4, &into("none")).expect(2);
    says_once(&none, "cannot write none/run.json: File too large");
    assert!(!room.here().join("none/run.json").exists(), "a file that is not whole");
    // Enough for the head of the run and some of its cells.
    let some = u32::try_from(run_json.max(result / 2) / 1024 + 1).expect("small files");
    let answer = short_of_room(&room, some, &into("some")).expect(1);
    says_once(&answer, "cannot append to some/result.jsonl: File too large");
    let contents = Store::read(&room.here().join("some")).expect("it can be read");
    assert!(contents.torn.is_none() && !contents.whole.is_empty(), "{contents:?}");
    room.run(&into("some")).expect(0);
    assert_eq!(measured(&room.here().join("some")), measured(&room.here().join("whole")));
}

#[test]
fn what_cannot_be_printed_is_said() {
    let room = Room::new();
    room.run(&into("result")).expect(0);
    let mut show: Command = room.command(&["show", "result"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let output = show.stdout(full).output().expect("pagelab runs");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "pagelab: cannot print: No space left on device (os error 28)\n"
    );
}

#[test]
fn a_narrow_terminal_breaks_nothing() {
    let room = Room::new();
    room.run(&into("result")).expect(0);
    let shown = |columns: &str| {
        let output = room.command(&["show", "result"]).env("COLUMNS", columns).output().expect("pagelab runs");
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"".as_slice()), "{columns}");
        String::from_utf8(output.stdout).expect("text")
    };
    let usual = shown("80");
    assert!(usual.ends_with('\n') && usual.lines().count() > 10, "{usual}");
    for columns in ["40", "1", "0", "wide"] {
        assert!(shown(columns).lines().count() >= usual.lines().count(), "{columns}");
    }
}

/// A limit of processes counts threads too: at every limit a run ends as it should, or with a message.
#[test]
fn a_limit_of_threads_is_a_message() {
    /// No other process has it, so the limit is of this run's alone.
    const USER: u32 = 61_234;
    let room = Room::new();
    let has_prlimit = Command::new("prlimit").arg("--version").output().is_ok_and(|output| output.status.success());
    if !nix::unistd::geteuid().is_root() || !has_prlimit {
        return skip("a_limit_of_threads_is_a_message", "it needs root, to be another user, and prlimit of util-linux");
    }
    for folder in ["", "here", "tmp"] {
        std::os::unix::fs::chown(room.path().join(folder), Some(USER), Some(USER)).expect("root gives it away");
    }
    let program = room.give("pagelab", fs::read(env!("CARGO_BIN_EXE_pagelab")).expect("the program"));
    std::os::unix::fs::chown(room.given(""), Some(USER), Some(USER)).expect("root gives it away");
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its mode");
    let run = |limit: u32, more: &[&str]| {
        let limit = format!("--nproc={limit}");
        let small =
            ["run", "fault-storm", "--set", "page=base", "--set", "size=2MiB", "--set", "iterations=1", "--quiet"];
        let args = words(&[&[&limit, &program], &small, more]);
        let mut command = room.command_of(Path::new("prlimit"), &args);
        command.uid(USER).gid(USER).env("HOME", room.here());
        room.start(command).wait()
    };
    for (target, model, tasks) in [("host", "threads", "3"), ("host", "processes", "3"), ("sim", "threads", "1")] {
        let more = ["--target", target, "--set", &format!("model={model}"), "--set", &format!("tasks={tasks}")];
        let mut ends = Vec::new();
        for limit in 1..40 {
            let answer = run(limit, &more);
            let said = &answer.stderr;
            assert!(!said.contains("panicked"), "{target} {model} at {limit}: {said}");
            assert!(answer.status.code().is_some_and(|code| code <= 2), "{target} {model} at {limit}: {answer:?}");
            ends.push(answer.status.success());
            if answer.status.success() {
                break;
            }
            assert!(said.contains("pagelab: "), "{target} {model} at {limit}: {said}");
        }
        assert!(ends.len() > 1 && ends.last() == Some(&true), "{target} {model}: {ends:?}");
    }
}
