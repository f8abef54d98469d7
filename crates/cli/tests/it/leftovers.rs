//! Nothing is left behind, however a run ends: no process, no scratch file, no changed setting, no torn result.

use std::{
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use crate::support::{
    TINY, document, guests,
    room::{Answer, PATIENCE_S, Room, within},
    skip, words,
};
use linux::{host::monotonic_ns, setting};
use nix::sys::signal::{Signal, kill};
use report::RESULT_FILE;

/// As shells report a run that was interrupted.
const INTERRUPTED: i32 = 130;

/// A small guest.
const GUEST: [&str; 6] = ["--target", "vm", "--accel", "tcg", "--machine", "one-node-512m"];
/// One cell that runs until somebody ends it.
const ENDLESS: [&str; 8] =
    ["--set", "tasks=1", "--set", "page=base", "--set", "model=processes", "--set", "duration=600"];

fn run_guest(room: &Room, more: &[&str]) -> Answer {
    room.run(&words(&[&["run", "fault-storm"], &GUEST, more]))
}

// ---- Ordinary ends

#[test]
fn vm_success_leaves_nothing() {
    let Some(_turn) = guests::turn("vm_success_leaves_nothing") else { return };
    let room = Room::new();
    run_guest(&room, &[&TINY[..], &["-o", "result"]].concat()).expect(0);
    room.assert_nothing_left("success");
    let mut files: Vec<_> = fs::read_dir(room.here().join("result")).unwrap().map(|e| e.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, [RESULT_FILE, "run.json"]);
    assert_eq!(fs::read_dir(room.here()).unwrap().count(), 1, "only the result is in the working directory");
}

#[test]
fn a_failed_cell_leaves_nothing() {
    let room = Room::new();
    let answer = room.run(&words(&[&["run", "fault-storm", "--target", "host", "--timeout", "1"], &ENDLESS]));
    answer.expect(1).says(&["pagelab: failed: host base-processes-1: no result within 1 s"]);
    room.assert_nothing_left("a cell that took too long");
}

// ---- Signals

/// Two cells on this machine, then two in a guest.
const FOUR_CELLS: [&str; 8] =
    ["--set", "tasks=1", "--set", "model=threads", "--set", "iterations=1", "--set", "size=16MiB"];
/// How many of the stopped runs are resumed.
const RESUMED: usize = 3;
/// Of the moments of Ctrl-C.
const SEED: u64 = 20_261_120;

#[test]
fn vm_ctrl_c_at_ten_random_moments() {
    let Some(_turn) = guests::turn("vm_ctrl_c_at_ten_random_moments") else { return };
    let both = ["run", "fault-storm", "--target", "host"];
    let args = words(&[&both, &GUEST, &FOUR_CELLS, &["-o", "result"]]);
    let start = monotonic_ns();
    let room = Room::new();
    room.run(&args).expect(0);
    assert_complete(&room.here().join("result"));
    let length_ns = monotonic_ns() - start;

    let mut random = SEED;
    let mut resumed = 0;
    for round in 0..10 {
        let moment = Duration::from_nanos(splitmix64(&mut random) % length_ns);
        let when = format!("Ctrl-C after {moment:?} (round {round}, seed {SEED})");
        let room = Room::new();
        let running = room.start(room.command(&args));
        thread::sleep(moment);
        running.press_ctrl_c();
        let answer = running.wait();
        room.assert_nothing_left(&when);
        let directory = room.here().join("result");
        // A program that has just begun dies of the signal, which shells call 130 too.
        let code = answer.status.code().unwrap_or(INTERRUPTED);
        assert!(code == INTERRUPTED || code == 0, "{when}: {answer:?}");
        if answer.status.code().is_none() || !directory.exists() {
            assert!(!directory.exists() && code == INTERRUPTED, "{when}: {answer:?}");
            continue;
        }
        let cells = report::cells(document::whole_records(&directory)).len();
        println!("{when}: status {code}, {cells} cells");
        assert!(code != 0 || cells == 4, "{when}: done with {cells} cells");
        if resumed < RESUMED && cells < 4 {
            room.run(&args).expect(0);
            assert_complete(&directory);
            resumed += 1;
        }
    }
    assert!(resumed > 0, "no run was stopped between its first and its last cell; another seed?");
}

/// Four cells, each once.
fn assert_complete(directory: &Path) {
    let cells = report::cells(document::whole_records(directory));
    let cases: Vec<_> = cells.iter().map(|cell| format!("{} {}", cell.key.target, cell.key.case)).collect();
    assert_eq!(cases, ["host base-threads-1", "host huge-threads-1", "vm base-threads-1", "vm huge-threads-1"]);
}

/// The generator that seeds others (Steele, Lea and Flood, 2014).
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn vm_signals_in_the_middle_of_a_guest() {
    let Some(_turn) = guests::turn("vm_signals_in_the_middle_of_a_guest") else { return };
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGHUP] {
        for moment in ["the boot", "the first job"] {
            let room = Room::new();
            let running = room.start(room.command(&words(&[&["run", "fault-storm"], &GUEST, &ENDLESS])));
            match moment {
                "the boot" => drop(room.emulator()),
                _ => room.wait_for_first_operation(),
            }
            assert!(room.processes().len() >= 3, "pagelab, its guard and QEMU: {:?}", room.processes());
            running.signal(signal);
            let answer = running.wait();
            let expected = if signal == Signal::SIGKILL { None } else { Some(INTERRUPTED) };
            assert_eq!(answer.status.code(), expected, "{signal} during {moment}: {answer:?}");
            room.assert_nothing_left(&format!("{signal} during {moment}"));
        }
    }
}

#[test]
fn killed_with_a_cell_on_this_machine() {
    let room = Room::new();
    let running = room.start(room.command(&words(&[&["run", "fault-storm", "--target", "host"], &ENDLESS])));
    let task = || room.processes().iter().any(|found| found.command_line.contains(" task "));
    assert!(within(PATIENCE_S, task), "no task was started: {:?}", room.processes());
    running.signal(Signal::SIGKILL);
    drop(running);
    room.assert_nothing_left("SIGKILL during a cell");
}

// ---- Guests that fail

#[test]
fn vm_killed_emulator() {
    let Some(_turn) = guests::turn("vm_killed_emulator") else { return };
    let room = Room::new();
    let running = room.start(room.command(&words(&[&["run", "fault-storm"], &GUEST, &ENDLESS])));
    room.wait_for_first_operation();
    kill(room.emulator(), Signal::SIGKILL).expect("QEMU runs");
    let answer = running.wait().expect(1);
    answer.says(&["pagelab: failed: vm 6.1.", "without an exit record", "killed by signal 9", "its last lines:\n  "]);
    room.assert_nothing_left("a killed QEMU");
}

#[test]
fn vm_guests_that_fail() {
    let Some(_turn) = guests::turn("vm_guests_that_fail") else { return };
    // What the guest does, what is asked of it, and what must be said about it. `oom` leaves 48 MiB.
    let cases: [(&str, &[&str], &[&str]); 4] = [
        ("panic", &["--set", "size=2MiB"], &["without an exit record", "Kernel panic", "sysrq triggered crash"]),
        ("hang", &["--set", "size=2MiB", "--timeout", "3"], &["no first operation from the guest within 3 s"]),
        ("exit", &["--set", "size=2MiB"], &["without an exit record", "Attempted to kill init"]),
        ("oom", &["--set", "size=256MiB"], &["base-threads-1: ", "killed by signal 9", "Out of memory"]),
    ];
    for (fault, more, expected) in cases {
        let room = Room::new();
        let mut command = room.command(&words(&[&["run", "fault-storm"], &GUEST, &TINY[..8], more]));
        let answer = room
            .start({
                command.env("PAGELAB_INJECT", fault);
                command
            })
            .wait()
            .expect(1);
        println!("{fault}: {}", answer.stderr);
        answer.says(&["pagelab: failed: vm 6.1."]).says(expected).says(&["last lines:\n  "]);
        room.assert_nothing_left(fault);
    }
}

// ---- Settings of this machine

/// How far ahead the kernel reads from swap; changing it for a moment does no harm.
const SETTING: &str = "vm.page-cluster";

/// One test changes it at a time.
static CHANGING: Mutex<()> = Mutex::new(());

/// What the setting is, and another value; none when it cannot be changed, after saying so.
fn changeable(name: &str) -> Option<(String, String)> {
    if let Err(error) = setting::check_writable(SETTING) {
        skip(name, &error.to_string());
        return None;
    }
    let old = setting::read(SETTING).expect("it is writable");
    let new = if old == "2" { "4" } else { "2" };
    Some((old, new.to_owned()))
}

fn value() -> String {
    setting::read(SETTING).expect("it was readable before")
}

#[test]
fn a_setting_is_put_back_at_every_end() {
    let _alone = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((old, new)) = changeable("a_setting_is_put_back_at_every_end") else { return };
    let set = format!("{SETTING}={new}");
    let host = ["run", "fault-storm", "--target", "host", "--set", set.as_str()];

    let room = Room::new();
    room.run(&words(&[&host, &TINY])).expect(0);
    assert_eq!(value(), old, "after success");
    room.run(&words(&[&host, &ENDLESS, &["--timeout", "1"]])).expect(1);
    assert_eq!(value(), old, "after a failed cell");

    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGKILL] {
        let room = Room::new();
        let running = room.start(room.command(&words(&[&host, &ENDLESS])));
        assert!(within(PATIENCE_S, || value() == new), "the setting was not changed");
        match signal {
            Signal::SIGINT => running.press_ctrl_c(),
            signal => running.signal(signal),
        }
        let answer = running.wait();
        let expected = if signal == Signal::SIGKILL { None } else { Some(INTERRUPTED) };
        assert_eq!(answer.status.code(), expected, "{signal}: {answer:?}");
        assert!(within(PATIENCE_S, || value() == old), "{signal}: {SETTING} is {} and was {old}", value());
        room.assert_nothing_left(signal.as_str());
    }
}

/// The second of two settings is refused by the kernel: the first one is put back, and the mistake is the user's.
#[test]
fn a_refused_setting_undoes_the_others() {
    let _alone = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((old, new)) = changeable("a_refused_setting_undoes_the_others") else { return };
    let set = format!("{SETTING}={new}");
    let room = Room::new();
    let host = ["run", "fault-storm", "--target", "host", "--set", set.as_str(), "--set", "vm.swappiness=-7"];
    room.run(&words(&[&host, &TINY])).expect(2).says(&["pagelab: --set vm.swappiness: ", "\"-7\""]);
    assert_eq!(value(), old);
    room.assert_untouched("a refused setting");
}
