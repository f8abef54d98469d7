//! A room: a working directory and a TMPDIR for one test, and a mark on every process that is started in it.

use std::{
    fs::{self, File},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use linux::host::monotonic_ns;
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use tempfile::TempDir;

/// The variable that marks the processes of a room; children inherit it.
const MARK: &str = "PAGELAB_TEST_ROOM";
/// How long to wait for what must happen, on however busy a machine: only what hangs takes this long.
pub(crate) const PATIENCE_S: f64 = 3600.0;
const LOOK_UP: Duration = Duration::from_millis(5);

pub(crate) struct Room {
    dir: TempDir,
    mark: String,
}

/// A command that runs in a room, leader of its process group as in a terminal. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    output: PathBuf,
}

/// What a command left when it ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A process of a room.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) pid: Pid,
    pub(crate) command_line: String,
}

/// Waits until `condition` holds; false when it still does not after `seconds`.
pub(crate) fn within(seconds: f64, mut condition: impl FnMut() -> bool) -> bool {
    let start = monotonic_ns();
    loop {
        if condition() {
            return true;
        }
        if (monotonic_ns() - start) as f64 / 1e9 > seconds {
            return false;
        }
        thread::sleep(LOOK_UP);
    }
}

impl Room {
    pub(crate) fn new() -> Self {
        static ROOMS: AtomicUsize = AtomicUsize::new(0);
        let number = ROOMS.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::Builder::new().prefix("pagelab-room-").tempdir().expect("a temporary directory");
        for name in ["here", "tmp", "given", "output"] {
            fs::create_dir(dir.path().join(name)).expect("a directory of the room");
        }
        Self { dir, mark: format!("{MARK}={}-{number}-{}", std::process::id(), monotonic_ns()) }
    }

    /// Everything of the room.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The working directory of commands; empty until they write into it.
    pub(crate) fn here(&self) -> PathBuf {
        self.dir.path().join("here")
    }

    /// Where files go that the test gives to commands.
    pub(crate) fn given(&self, name: &str) -> PathBuf {
        self.dir.path().join("given").join(name)
    }

    /// Writes such a file, and returns its path as text.
    pub(crate) fn give(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.given(name);
        fs::create_dir_all(path.parent().expect("it lies in the room")).expect("a directory for a given file");
        fs::write(&path, bytes).expect("a given file");
        path.to_str().expect("paths of rooms are UTF-8").to_owned()
    }

    /// The command, about to be run in this room.
    pub(crate) fn command<S: AsRef<str>>(&self, args: &[S]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_pagelab")), args)
    }

    /// The same with another build of it.
    pub(crate) fn command_of<S: AsRef<str>>(&self, program: &Path, args: &[S]) -> Command {
        let (name, value) = self.mark.split_once('=').expect("a mark is NAME=VALUE");
        let mut command = Command::new(program);
        command.args(args.iter().map(AsRef::as_ref)).current_dir(self.here()).process_group(0);
        command.env(name, value).env("TMPDIR", self.dir.path().join("tmp")).env_remove("PAGELAB_INJECT");
        // On a busy machine a run may take longer than the 15 s between two lines of progress.
        command.env("PAGELAB_PROGRESS", "none");
        command.stdin(Stdio::null());
        command
    }

    /// Runs `pagelab ARGS` to its end.
    pub(crate) fn run<S: AsRef<str>>(&self, args: &[S]) -> Answer {
        self.start(self.command(args)).wait()
    }

    /// Starts a command, with its output going to files: it is no terminal and never makes the command wait.
    pub(crate) fn start(&self, mut command: Command) -> Running {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let output = self.dir.path().join("output").join(RUNS.fetch_add(1, Ordering::Relaxed).to_string());
        let file = |extension| File::create(output.with_extension(extension)).expect("a file for output");
        let child = command.stdout(file("out")).stderr(file("err")).spawn().expect("pagelab starts");
        Running { child, output }
    }

    /// The processes that were started in this room and still run. Zombies have no environment and do not count.
    pub(crate) fn processes(&self) -> Vec<Found> {
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let found = entries.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let environ = fs::read(entry.path().join("environ")).ok()?;
            environ.split(|byte| *byte == 0).find(|variable| *variable == self.mark.as_bytes())?;
            let command_line = fs::read(entry.path().join("cmdline")).ok()?;
            let command_line = String::from_utf8_lossy(&command_line).replace('\0', " ");
            Some(Found { pid: Pid::from_raw(pid), command_line })
        });
        found.collect()
    }

    /// The emulator that runs in this room, waited for.
    pub(crate) fn emulator(&self) -> Pid {
        let mut found = None;
        let there = within(PATIENCE_S, || {
            let processes = self.processes();
            found = processes.iter().find(|found| found.command_line.contains("-nodefaults")).map(|found| found.pid);
            found.is_some()
        });
        assert!(there, "no emulator was started");
        found.expect("it is there")
    }

    /// Waits until the guest that runs in this room has started its first job.
    pub(crate) fn wait_for_first_operation(&self) {
        let started = || {
            let directories = fs::read_dir(self.dir.path().join("tmp")).expect("the TMPDIR").flatten();
            let streams = directories.filter_map(|entry| fs::read(entry.path().join("data")).ok());
            let word = b"first-operation".as_slice();
            streams.into_iter().any(|stream| stream.windows(word.len()).any(|window| window == word))
        };
        assert!(within(PATIENCE_S, started), "no first operation");
    }

    /// Asserts that nothing is left: no process, no scratch file. `after` says after what.
    pub(crate) fn assert_nothing_left(&self, after: &str) {
        let scratch = || {
            let entries = fs::read_dir(self.dir.path().join("tmp")).expect("the TMPDIR").flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let clean = within(PATIENCE_S, || self.processes().is_empty() && scratch().is_empty());
        assert!(clean, "left behind after {after}: {:?} {:?}", self.processes(), scratch());
    }

    /// Asserts that commands wrote nothing into their working directory either.
    pub(crate) fn assert_untouched(&self, after: &str) {
        self.assert_nothing_left(after);
        let written: Vec<_> = fs::read_dir(self.here()).expect("the working directory").flatten().collect();
        assert!(written.is_empty(), "written by {after}: {written:?}");
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // What a failed test left behind must not disturb others: the mark says that it is ours.
        for found in self.processes() {
            let _ = kill(found.pid, Signal::SIGKILL);
        }
    }
}

impl Running {
    /// The process itself.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Signals the process alone. It may have ended, but as it was not waited for its number is still its own.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("a child can be signalled");
    }

    /// Ctrl-C: the terminal signals the whole process group.
    pub(crate) fn press_ctrl_c(&self) {
        killpg(self.pid(), Signal::SIGINT).expect("a group can be signalled");
    }

    /// Has it ended by itself?
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> Answer {
        let mut status = None;
        let ended = within(PATIENCE_S, || {
            status = self.child.try_wait().expect("a child can be waited for");
            status.is_some()
        });
        let read = |extension| {
            let bytes = fs::read(self.output.with_extension(extension)).expect("a file of output");
            String::from_utf8(bytes).expect("output is UTF-8")
        };
        let (stdout, stderr) = (read("out"), read("err"));
        assert!(ended, "no end after {PATIENCE_S} s:\n{stdout}\n{stderr}");
        Answer { status: status.expect("it ended"), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After `wait`, both fail because it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    /// Asserts the exit status.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        let how = (self.status.code(), self.status.signal());
        assert_eq!(how, (Some(code), None), "stderr:\n{}\nstdout:\n{}", self.stderr, self.stdout);
        self
    }

    /// Asserts that stderr holds these words.
    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "expected {word:?} in:\n{}", self.stderr);
        }
        self
    }
}
