//! `pagelab cells`, `worker` and `collect`: what comes back is what a run on this machine gives, or nothing.

use std::{fs, io::Write, process::Stdio, thread};

use crate::support::{
    document,
    room::{Answer, PATIENCE_S, Room, within},
    words,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use report::RESULT_FILE;
use serde_json::{Value, json};

const SPEC: [&str; 13] = [
    "fault-storm",
    "--machine",
    "one-node-512m",
    "--set",
    "size=2MiB,4MiB",
    "--set",
    "vm.swappiness=0,60",
    "--set",
    "iterations=1",
    "--set",
    "page=base",
    "--seeds",
    "2",
];
const SMALL: [&str; 4] = ["--set", "tasks=1", "--set", "model=threads"];

/// The lines that go out for a result directory `there`.
fn orders(room: &Room) -> Vec<String> {
    let out = room.run(&words(&[&["cells"], &SPEC, &SMALL, &["-o", "there"]])).expect(0).stdout;
    out.lines().map(str::to_owned).collect()
}

/// A worker that reads these lines.
fn worker(room: &Room, lines: &[String]) -> Answer {
    let file = room.give("orders", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    let mut command = room.command(&["worker"]);
    command.stdin(Stdio::from(fs::File::open(file).expect("it was written")));
    room.start(command).wait()
}

fn collect(room: &Room, back: &[String], more: &[&str]) -> Answer {
    let file = room.give("back.jsonl", back.join("\n"));
    room.run(&words(&[&["collect", "there", &file], more]))
}

#[test]
fn what_comes_back_is_what_a_run_gives() {
    let room = Room::new();
    let sent = orders(&room);
    assert_eq!(sent.len(), 8, "two sizes, two values of swappiness, two seeds");
    // Each line by itself, last one first, as on a cluster.
    let answers = sent.iter().rev().map(|line| worker(&room, std::slice::from_ref(line)).expect(0).stdout);
    let mut back: Vec<String> = answers.map(|line| line.trim_end().to_owned()).collect();
    back.push(back[0].clone());
    back.push(back[1][..100].to_owned());
    collect(&room, &back, &[]).expect(0).says(&["back.jsonl:10: cut off", "1 lines said again", "all 8 cells"]);
    room.run(&words(&[&["sweep"], &SPEC, &SMALL, &["-o", "here"]])).expect(0);
    let shown = |arguments: &[&str]| room.run(arguments).expect(0).stdout;
    let form = |directory| shown(&["sweep", "--result", directory, "--format", "csv"]);
    assert_eq!(form("there"), form("here"));
    assert_eq!(shown(&["show", "there", "--format", "csv"]), shown(&["show", "here", "--format", "csv"]));
    let records = |directory: &str| document::whole_records(&room.here().join(directory));
    let kinds = |directory: &str| records(directory).iter().map(std::mem::discriminant).collect::<Vec<_>>();
    assert_eq!(kinds("there"), kinds("here"), "in the order of a run");
    assert!(orders(&room).is_empty(), "nothing is left to do");
    room.assert_nothing_left("cells that travelled");
}

#[test]
fn lines_that_lack_cells_or_are_of_others_make_no_result() {
    let room = Room::new();
    let sent = orders(&room);
    let back: Vec<String> = worker(&room, &sent).expect(0).stdout.lines().map(str::to_owned).collect();
    assert_eq!(back.len(), 8);
    let before = fs::read(room.here().join("there").join(RESULT_FILE)).expect("what is known before");
    let other_program = back[0].replace("\"program\":\"", "\"program\":\"0");
    let other_cell = back[0].replace("\"seed\":1", "\"seed\":3");
    let other_number = back[0].replacen("\"pgfault\":", "\"pgfault\":1", 1);
    assert!(other_number != back[0] && other_cell != back[0]);
    let with = |line: &str| [back.as_slice(), &[line.to_owned()]].concat();
    for (lines, expected) in [
        (with(&other_program), "back.jsonl:9: of program 0"),
        (with(&other_cell), "is no cell of this run"),
        (with(&other_number), "says another thing than an earlier line"),
        (with("hello"), "back.jsonl:9: no result of a worker"),
        (with("{}"), "back.jsonl:9: no result of a worker"),
        (back[1..].to_vec(), "1 of 8 cells have no line (the first: "),
        ([&back[1..], &[back[0][..200].to_owned()]].concat(), "1 lines were cut off"),
    ] {
        let answer = collect(&room, &lines, &[]).expect(2).says(&[expected, "there is as it was"]);
        assert!(answer.stderr.lines().count() == 1 && answer.stdout.is_empty(), "{answer:?}");
        assert_eq!(fs::read(room.here().join("there").join(RESULT_FILE)).expect("it is there"), before);
    }
    // Those that are missing go out again.
    let orders = room.give("cells.jsonl", sent.join("\n"));
    let again = collect(&room, &back[2..], &["--orders", &orders]).expect(2).stdout;
    assert_eq!(again.lines().map(str::to_owned).collect::<Vec<_>>(), sent[..2]);
    collect(&room, &back, &[]).expect(0);
}

#[test]
fn a_worker_refuses_what_is_not_for_it() {
    let room = Room::new();
    let sent = orders(&room);
    let other = sent[0].replacen("\"program\":\"", "\"program\":\"0", 1);
    for (line, expected) in [
        (other.as_str(), "is of program 0"),
        ("{}", "expected a line of pagelab cells"),
        (&sent[0][..50], "expected a line of pagelab cells"),
    ] {
        let answer = worker(&room, &[line.to_owned()]).expect(2).says(&[expected]);
        assert!(answer.stderr.lines().count() == 1 && answer.stdout.is_empty(), "{answer:?}");
    }
    room.run(&["cells", "fault-storm", "--set", "vm.swapiness=1", "-o", "x"]).expect(2).says(&["vm.swappiness"]);
    room.run(&["collect", "nowhere", "-"]).expect(2).says(&["nowhere"]);
    assert!(!room.here().join("x").exists() && !room.here().join("nowhere").exists());
}

/// A queue is written by others: a line of it can ask for a simulated cell, and for nothing else.
#[test]
fn a_line_cannot_name_a_file_or_this_host() {
    let room = Room::new();
    let sent: Value = serde_json::from_str(&orders(&room)[0]).expect("a line is JSON");
    let precious = room.give("precious/file", "kept");
    let folder = room.given("precious");
    let place = |name: &str| folder.join(name).to_str().expect("paths of rooms are UTF-8").to_owned();
    let ground = json!({ "directory": folder, "room": 1, "memory": null, "drops_caches": true });
    for (pointer, value) in [
        ("/order/ground", ground.clone()),
        ("/order/trace", json!(place("file"))),
        ("/order/map", json!(folder)),
        ("/order/simulated/state", json!(place("file"))),
        ("/order/idle_window", json!(true)),
        ("/order/simulated", Value::Null),
        ("/timeout_s", json!(u64::MAX)),
        ("/order/footprint", json!(0)),
        ("/order/sample", json!(0)),
    ] {
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
        let mut line = sent.clone();
        let fields = line.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
        fields.insert(name.to_owned(), value);
        let answer = worker(&room, &[line.to_string()]).expect(2).says(&[&pointer[1..].replace('/', ".")]);
        assert!(answer.stderr.lines().count() == 1 && answer.stdout.is_empty(), "{answer:?}");
    }
    // A worker's own process has such orders, of its run alone.
    let mut order = sent["order"].clone();
    order["ground"] = ground;
    order["idle_window"] = json!(false);
    let file = room.give("order", order.to_string());
    for inside in [vec!["cell"], vec!["task", "x"], vec!["sampler", "1"], vec!["guard"]] {
        let mut command = room.command(&inside);
        command.stdin(Stdio::from(fs::File::open(&file).expect("it was written")));
        room.start(command).wait().expect(2).says(&["only pagelab itself starts this"]);
    }
    assert_eq!(fs::read_to_string(&precious).expect("it is there"), "kept");
    assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 1);
    room.assert_nothing_left("lines that were refused");
}

/// A line whose cell takes longer than any test waits.
fn endless(room: &Room) -> String {
    let spec = ["cells", "fault-storm", "--machine", "one-node-512m", "--variant", "v6.1", "--seeds", "1"];
    let set = ["--set", "tasks=1", "--set", "model=threads", "--set", "page=base", "--set", "iterations=1000000"];
    room.run(&words(&[&spec, &set, &["-o", "endless"]])).expect(0).stdout
}

fn runs_a_cell(room: &Room) -> bool {
    room.processes().iter().any(|found| found.command_line.trim_end().ends_with(" cell"))
}

/// A signal at a parent's death comes when the thread ends that has forked, and schedulers hand work to threads that end.
#[test]
fn a_worker_outlives_the_thread_that_has_started_it() {
    let room = Room::new();
    let line = orders(&room)[0].clone();
    let mut worker = thread::scope(|scope| {
        let start = scope.spawn(|| {
            let mut command = room.command(&["worker"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().expect("a worker")
        });
        start.join().expect("the thread has ended")
    });
    writeln!(worker.stdin.take().expect("a pipe"), "{line}").expect("it reads");
    let output = worker.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);
}

#[test]
fn a_worker_ends_with_the_process_that_reads_its_lines() {
    let room = Room::new();
    let line = endless(&room);
    let mut command = room.command(&["worker"]);
    let mut worker =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a worker");
    let mut orders = worker.stdin.take().expect("a pipe");
    orders.write_all(line.as_bytes()).expect("it reads");
    assert!(within(PATIENCE_S, || runs_a_cell(&room)));
    // More lines may come, and nothing takes results.
    drop(worker.stdout.take());
    assert!(!worker.wait().expect("it ends").success());
    room.assert_nothing_left("a worker that nothing reads");
}

#[test]
fn a_cell_ends_with_its_worker_and_a_worker_with_ctrl_c() {
    let room = Room::new();
    let file = room.give("orders", endless(&room));
    let start = || {
        let mut command = room.command(&["worker"]);
        command.stdin(Stdio::from(fs::File::open(&file).expect("it was written")));
        let running = room.start(command);
        assert!(within(PATIENCE_S, || runs_a_cell(&room)));
        running
    };
    let killed = start();
    killed.signal(Signal::SIGKILL);
    killed.wait();
    room.assert_nothing_left("a worker that was killed");
    let stopped = start();
    stopped.press_ctrl_c();
    stopped.wait().expect(130);
    // One that waits for lines, too.
    let mut command = room.command(&["worker"]);
    let mut waiting =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a worker");
    // Waiting for its end would close its stdin, which ends it too.
    let _orders = waiting.stdin.take();
    let catches = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
        u64::from_str_radix(caught.trim(), 16).is_ok_and(|caught| caught & (1 << (Signal::SIGINT as i32 - 1)) != 0)
    };
    assert!(within(PATIENCE_S, || catches(waiting.id())));
    kill(Pid::from_raw(waiting.id().cast_signed()), Signal::SIGINT).expect("a child");
    assert_eq!(waiting.wait().expect("it ends").code(), Some(130));
    room.assert_nothing_left("workers that were interrupted");
}
