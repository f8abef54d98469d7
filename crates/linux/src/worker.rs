//! A cell's worker: this program as `pagelab cell`, its order on standard input, one line of result on standard output.
//! One process per cell gives each its own memory figure, and confines a crash or an OOM kill to it.

use std::{
    io::{self, Read, Write},
    os::{fd::AsFd, unix::process::ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::Pid,
};

use crate::{
    host::monotonic_ns,
    process::{die_with_parent, ending},
};

/// The hidden subcommand that works on one cell.
pub const CELL_COMMAND: &str = "cell";

/// The status of a worker that says on standard error why what was asked for cannot be had.
pub const REFUSED: u8 = 2;

/// The status of a worker whose simulation would never end; standard error says what waits for what.
pub const LIVELOCK: u8 = 3;

/// How often a waiting loop looks whether it should stop.
pub const LOOK_UP: Duration = Duration::from_millis(50);

/// Why a worker gave no line.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
    /// The worker took too long.
    #[error("no result within {0} s")]
    Timeout(u64),
    /// The worker has found out that the request cannot be served.
    #[error("{0}")]
    Refused(String),
    /// The worker's simulation would never end.
    #[error("{0}")]
    Livelock(String),
    /// The worker died; the text says how, and its last words.
    #[error("the worker {0}")]
    Died(String),
    /// The worker could not be started or talked to.
    #[error("cannot run a worker: {0}")]
    Io(#[from] io::Error),
}

/// Runs one cell and returns its line.
///
/// `timeout_s`: how long to wait; `None` waits for ever and does not look at `stop`, for a guest whose host does both.
/// Must be called from a thread that lives as long as the worker: the worker dies with it.
pub fn run(order: &[u8], timeout_s: Option<u64>, stop: &AtomicBool) -> Result<String, WorkerError> {
    if timeout_s.is_some() && stop.load(Ordering::Relaxed) {
        return Err(WorkerError::Interrupted);
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg(CELL_COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = die_with_parent(&mut command).spawn()?;
    let readers = reader(child.stdout.take()).and_then(|output| Ok((output, reader(child.stderr.take())?)));
    let (output, complaints) = readers.inspect_err(|_| {
        let _ = child.kill().and_then(|()| child.wait());
    })?;
    // An order is far smaller than a pipe's buffer, so this does not block on a worker that does not read.
    let sent = child.stdin.take().expect("the worker's input is a pipe").write_all(order);
    let status = wait(child, timeout_s, stop);
    let line = output.join().expect("the reading thread does not panic");
    let complaints = complaints.join().expect("the reading thread does not panic");
    let status = status?;
    if status.success() {
        sent?;
        return Ok(line.trim_end().to_owned());
    }
    // Ctrl-C reaches the worker too, and may end it before this process has seen it.
    if status.signal() == Some(Signal::SIGINT as i32) {
        return Err(WorkerError::Interrupted);
    }
    let said = complaints.trim();
    if status.code() == Some(REFUSED.into()) {
        return Err(WorkerError::Refused(said.to_owned()));
    }
    if status.code() == Some(LIVELOCK.into()) {
        return Err(WorkerError::Livelock(said.to_owned()));
    }
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    Err(WorkerError::Died(format!("{}{said}", ending(status))))
}

/// Sets the flag once nothing can read the standard output of this process: the process at the other end of the pipe has ended,
/// and work for it is in vain. A file or a terminal can always be read.
///
/// # Errors
/// No thread can be had.
pub fn stop_when_unread(stop: &Arc<AtomicBool>) -> io::Result<()> {
    let stop = Arc::clone(stop);
    start(move || {
        let stdout = io::stdout();
        // An error is reported without being asked for.
        let mut watched = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        let mut told = poll(&mut watched, PollTimeout::NONE);
        while told == Err(Errno::EINTR) {
            told = poll(&mut watched, PollTimeout::NONE);
        }
        stop.store(told.is_ok(), Ordering::Relaxed);
    })?;
    Ok(())
}

/// Starts a thread, if the system has one: a limit of processes counts threads too.
pub fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<thread::JoinHandle<T>> {
    thread::Builder::new().spawn(work).map_err(|error| no_thread(&error))
}

/// Starts a thread of a scope, if the system has one.
pub(crate) fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, T>, String> {
    thread::Builder::new().spawn_scoped(scope, work).map_err(|error| no_thread(&error).to_string())
}

fn no_thread(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("no thread can be started: {error}"))
}

fn reader(stream: Option<impl Read + Send + 'static>) -> io::Result<thread::JoinHandle<String>> {
    let mut stream = stream.expect("the worker's streams are pipes");
    start(move || {
        let mut bytes = Vec::new();
        // What was read before an error is still worth showing.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(mut child: Child, timeout_s: Option<u64>, stop: &AtomicBool) -> Result<ExitStatus, WorkerError> {
    let pid = Pid::from_raw(child.id().cast_signed());
    let (ended, end) = mpsc::channel();
    let waiting = start(move || ended.send(child.wait()));
    if let Err(error) = waiting {
        let _ = kill(pid, Signal::SIGKILL).and_then(|()| waitpid(pid, None));
        return Err(error.into());
    }
    let Some(timeout_s) = timeout_s else {
        return Ok(end.recv().expect("the waiting thread sends before it ends")?);
    };
    let deadline = monotonic_ns().saturating_add(timeout_s.saturating_mul(1_000_000_000));
    loop {
        if let Ok(status) = end.recv_timeout(LOOK_UP) {
            return Ok(status?);
        }
        let verdict = if stop.load(Ordering::Relaxed) {
            WorkerError::Interrupted
        } else if monotonic_ns() > deadline {
            WorkerError::Timeout(timeout_s)
        } else {
            continue;
        };
        // The worker may end by itself at this moment; either way it is reaped below.
        let _ = kill(pid, Signal::SIGKILL);
        end.recv().expect("the waiting thread sends before it ends")?;
        return Err(verdict);
    }
}
