//! The guard cleans up after a panic, too: when its handle is dropped while the stack unwinds, and when the process aborts.
//!
//! A guard is this program started again, so this one has its own `main`: as a session's leader it is a guard, with the
//! argument `abort` it dies in the middle, and else it is the test. Settings are files below a root of the test's own.

use std::{
    fs, io,
    io::{BufRead, BufReader},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::{Child, Command, ExitCode, Stdio, exit},
    thread,
    time::Duration,
};

use linux::{
    guard::{self, GUARD_COMMAND, Guard},
    journal, setting,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, getpid, getsid},
};

const ABORT: &str = "abort-with-a-guard";
const CHANGE: &str = "change-settings-and-wait";
/// Names the root of settings, for this program and for its guard.
const ROOT: &str = "PAGELAB_TEST_ROOT";

#[expect(clippy::print_stdout, reason = "what the test harness would say, for those who add results up")]
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(root) = std::env::var_os(ROOT) {
        setting::root_at(Path::new(&root));
    }
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        // Only a guard leads a session of its own: a person may give the word as the name of tests to run.
        [GUARD_COMMAND] if getsid(None) == Ok(getpid()) => {
            let served = guard::serve(io::stdin().lock(), io::stdout());
            exit(i32::from(served.is_err()));
        }
        [ABORT, directory] => {
            let _guard = guarded(Path::new(directory));
            std::process::abort();
        }
        [CHANGE] => change(),
        _ => {}
    }
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let root = scratch.path().join("root");
    if std::env::var_os(ROOT).is_none() {
        setting::root_at(&root);
    }
    unwinding_cleans_up();
    aborting_cleans_up();
    a_journal_outlives_run_and_guard(scratch.path(), &root);
    println!("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
    ExitCode::SUCCESS
}

/// Settings of a machine that is none.
const SETTINGS: [(&str, &str); 3] = [("vm/swappiness", "60\n"), ("vm/dirty_ratio", "20\n"), ("vm/dirty_bytes", "0\n")];

/// Changes two settings, says so, and waits for its end.
#[expect(clippy::print_stdout, reason = "the test reads it")]
fn change() -> ! {
    let mut guard = Guard::start().expect("the guard starts");
    for (name, value) in [("vm.swappiness", "10"), ("vm.dirty_ratio", "50"), ("vm.swappiness", "11")] {
        guard.set(name, value).expect("it is changed");
    }
    println!("changed");
    loop {
        thread::park();
    }
}

/// The process of a run that has changed settings, and its guard.
fn changed(scratch: &Path, root: &Path) -> (Child, Pid) {
    for (name, value) in SETTINGS {
        let file = root.join("proc/sys").join(name);
        fs::create_dir_all(file.parent().expect("it lies below")).expect("a folder");
        fs::write(file, value).expect("a setting");
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg(CHANGE).env(ROOT, root).env("PAGELAB_CACHE", scratch.join("cache")).stdout(Stdio::piped());
    let mut run = command.spawn().expect("this program starts");
    let mut line = String::new();
    BufReader::new(run.stdout.take().expect("a pipe")).read_line(&mut line).expect("it is read");
    assert_eq!(line, "changed\n");
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).expect("its children");
    let guard = children.trim().parse().expect("one child, the guard");
    (run, Pid::from_raw(guard))
}

fn values(root: &Path) -> [String; 3] {
    SETTINGS.map(|(name, _)| fs::read_to_string(root.join("proc/sys").join(name)).expect("a setting").trim().to_owned())
}

/// As a control group is killed: nobody is left who would put anything back.
fn kill_both(run: &mut Child, guard: Pid) {
    // The guard first: it outlives its run, and would do its work.
    kill(guard, Signal::SIGKILL).expect("the guard runs");
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    // A guard without a parent is reaped by init or by nobody; a zombie has no lock.
    let gone = || fs::read_to_string(format!("/proc/{guard}/stat")).map_or(true, |stat| stat.contains(") Z "));
    while !gone() {
        thread::sleep(Duration::from_millis(1));
    }
}

fn a_journal_outlives_run_and_guard(scratch: &Path, root: &Path) {
    let folder = scratch.join("cache/settings");
    let journals = || fs::read_dir(&folder).expect("the folder of journals").count();

    // Both live, then one: nothing is taken from them.
    let (mut run, guard) = changed(scratch, root);
    assert_eq!((values(root), journals()), (["11", "50", "0"].map(str::to_owned), 1));
    assert_eq!(journal::put_back_in(&folder), Vec::<String>::new(), "they live");
    assert_eq!(values(root)[0], "11");
    kill_both(&mut run, guard);
    assert_eq!(values(root), ["11", "50", "0"].map(str::to_owned), "nobody has put them back");
    let said = journal::put_back_in(&folder);
    assert_eq!(
        said,
        ["a run that was killed left settings of this machine changed; vm.dirty_ratio is 20 again (it was 50); \
          vm.swappiness is 60 again (it was 11)"]
    );
    assert_eq!((values(root), journals()), (["60", "20", "0"].map(str::to_owned), 0));
    assert_eq!(journal::put_back_in(&folder), Vec::<String>::new(), "once");

    // A setting that was changed by hand since then stays.
    let (mut run, guard) = changed(scratch, root);
    kill_both(&mut run, guard);
    fs::write(root.join("proc/sys/vm/swappiness"), "33").expect("a setting");
    let said = journal::put_back_in(&folder);
    assert!(said.len() == 1 && said[0].ends_with("vm.swappiness was changed again since, and stays 33"), "{said:?}");
    assert_eq!((values(root), journals()), (["33", "20", "0"].map(str::to_owned), 0));

    // Another user could have written this one.
    let (mut run, guard) = changed(scratch, root);
    kill_both(&mut run, guard);
    let file = fs::read_dir(&folder).expect("the folder").next().expect("a journal").expect("a journal").path();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("its mode");
    let said = journal::put_back_in(&folder);
    assert!(said.len() == 1 && said[0].contains("expected a file that this user alone can read and write"), "{said:?}");
    assert_eq!(values(root)[0], "11");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its mode");
    assert_eq!(journal::put_back_in(&folder).len(), 1);

    // A run that is killed alone leaves it to its guard.
    let (mut run, guard) = changed(scratch, root);
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    while journals() > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(values(root), ["60", "20", "0"].map(str::to_owned), "by guard {guard}");
}

/// A directory with something in it, and the guard that removes it.
fn guarded(directory: &Path) -> Guard {
    let mut guard = Guard::start().expect("the guard starts");
    guard.remove_at_end(directory).expect("the guard takes orders");
    fs::create_dir(directory).expect("a directory to remove");
    fs::write(directory.join("file"), "x").expect("a file to remove");
    guard
}

fn unwinding_cleans_up() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let directory = scratch.path().join("doomed");
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let _guard = guarded(&directory);
        assert!(!directory.exists(), "the panic of this test");
    }));
    assert!(outcome.is_err(), "the directory was there before the end");
    assert!(!directory.exists(), "left behind after a panic");
}

fn aborting_cleans_up() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let directory = scratch.path().join("doomed");
    let program = std::env::current_exe().expect("this program");
    let status = Command::new(program).arg(ABORT).arg(&directory).status().expect("this program starts");
    assert_eq!(status.code(), None, "it was to abort");
    // The guard finds out by the end of its input.
    let gone = (0..400).any(|_| {
        thread::sleep(Duration::from_millis(5));
        !directory.exists()
    });
    assert!(gone, "left behind after an abort");
}
