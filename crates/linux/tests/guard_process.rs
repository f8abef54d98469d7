//! The guard cleans up after a panic, too: when its handle is dropped while the stack unwinds, and when the process aborts.
//!
//! A guard is this program started again, so this one has its own `main`: as a session's leader it is a guard, with the
//! argument `abort` it dies in the middle, and else it is the test.

use std::{
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::{Command, ExitCode, exit},
    thread,
    time::Duration,
};

use nix::unistd::{getpid, getsid};
use pagelab_linux::guard::{self, GUARD_COMMAND, Guard};

const ABORT: &str = "abort-with-a-guard";

#[expect(clippy::print_stdout, reason = "what the test harness would say, for those who add results up")]
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
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
        _ => {}
    }
    unwinding_cleans_up();
    aborting_cleans_up();
    println!("test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
    ExitCode::SUCCESS
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
