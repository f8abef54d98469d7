//! Tasks that are processes: the program re-executed at a named entry, its parameters and its result through pipes.
//!
//! A child dies with its parent (`PR_SET_PDEATHSIG`), so a killed run leaves nothing behind.

use std::{
    future::Future,
    io::{self, Read, Write},
    os::unix::{
        fs::MetadataExt,
        process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
};

use nix::{
    sys::{prctl, signal::Signal},
    unistd::{Pid, getpid, getppid},
};
use os::{Died, Placement, Wire};
use serde::{Deserialize, Serialize};
use units::{Bytes, CpuId};

use crate::{
    file::Ground,
    host::{Linux, place},
    worker,
};

/// The argument before the entry's name: `pagelab task ENTRY`.
pub const TASK_COMMAND: &str = "task";

/// The input of a child, on its standard input.
#[derive(Serialize, Deserialize)]
struct Orders<P> {
    epoch_ns: u64,
    cpus: Vec<CpuId>,
    on: Placement,
    cap: Bytes,
    ground: Ground,
    params: P,
}

/// Makes `command` die when the thread that starts it does, and keeps the terminal's signals from it: only the parent
/// decides when it ends.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = getpid();
    command.process_group(0);
    #[expect(unsafe_code, reason = "only pre_exec runs between fork and exec")]
    // SAFETY: prctl and getppid are async-signal-safe, and nothing is allocated.
    unsafe {
        command.pre_exec(move || follow(parent))
    }
}

fn follow(parent: Pid) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have died before the line above.
    if getppid() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// Whether a process of this very program has started this one.
///
/// An order on standard input says which directories to empty and which files to write. A run writes it, into a pipe that no
/// other process has; whatever else could start this program has no business there.
pub fn is_started_by_own_program() -> bool {
    let program = |process: String| {
        let file = std::fs::metadata(format!("/proc/{process}/exe")).ok()?;
        Some((file.dev(), file.ino()))
    };
    program("self".to_owned()).is_some_and(|own| program(getppid().to_string()) == Some(own))
}

/// How a process ended, for people.
pub fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => match Signal::try_from(signal) {
            Ok(name) => format!("killed by signal {signal} ({name})"),
            Err(_) => format!("killed by signal {signal}"),
        },
        (None, None) => "ended for no known reason".to_owned(),
    }
}

pub(crate) fn spawn<P: Wire, T: Wire>(
    os: &Linux,
    on: Placement,
    entry: &'static str,
    params: &P,
) -> impl Future<Output = Result<T, Died>> + use<P, T> + 'static {
    let orders = Orders {
        epoch_ns: os.shared.epoch_ns,
        cpus: os.shared.cpus.clone(),
        on,
        cap: Bytes(os.shared.left.load(std::sync::atomic::Ordering::Relaxed)),
        ground: os.shared.files.ground(),
        params,
    };
    let orders = serde_json::to_vec(&orders).expect("parameters serialise");
    let mut command = Command::new("/proc/self/exe");
    command.arg(TASK_COMMAND).arg(entry).stdin(Stdio::piped()).stdout(Stdio::piped());
    // Started here, by a thread that outlives the child, because the child dies with the thread that started it.
    let mut child = die_with_parent(&mut command).spawn();
    let survivors = os.clone();
    let (hand, handed) = mpsc::channel::<io::Result<Child>>();
    let reader = worker::start(move || {
        let child = handed.recv().expect("the child is handed over as soon as there is a thread");
        let result = child.and_then(|child| converse(child, &orders));
        let result = result.map_err(|error| error.to_string()).and_then(|(status, output)| {
            if status.success() {
                serde_json::from_slice(&output).map_err(|error| format!("its result is not readable: {error}"))
            } else {
                Err(ending(status))
            }
        });
        result.map_err(|reason| {
            survivors.cancel_all();
            Died { reason }
        })
    });
    let reader = match reader {
        Ok(reader) => {
            // The thread waits for it.
            let _ = hand.send(child);
            Ok(reader)
        }
        Err(error) => {
            if let Ok(child) = &mut child {
                let _ = child.kill().and_then(|()| child.wait());
            }
            os.cancel_all();
            Err(Died { reason: error.to_string() })
        }
    };
    async move { reader?.join().expect("the thread that reads a child's result does not panic") }
}

fn converse(mut child: Child, orders: &[u8]) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut output = Vec::new();
    let sent = child.stdin.take().expect("the child's input is a pipe").write_all(orders);
    let read = child.stdout.take().expect("the child's output is a pipe").read_to_end(&mut output);
    let status = child.wait()?;
    // A child that died early breaks the pipe; how it died says more than that.
    if status.success() {
        sent?;
        read?;
    }
    Ok((status, output))
}

/// Runs a re-executed child: it reads its orders, takes its place, runs `entry` and writes the result.
///
/// `entry` gets the handle and the parameters as JSON and returns the result as JSON.
pub fn run_task(entry: impl FnOnce(Linux, &[u8]) -> Result<Vec<u8>, String>) -> Result<(), String> {
    let mut input = Vec::new();
    io::stdin().read_to_end(&mut input).map_err(|error| format!("cannot read the task's orders: {error}"))?;
    let orders: Orders<serde_json::Value> =
        serde_json::from_slice(&input).map_err(|error| format!("the task's orders are malformed: {error}"))?;
    place(&orders.cpus, orders.on);
    let os = Linux::resume(orders.epoch_ns, orders.cpus, orders.cap, orders.ground);
    let params = serde_json::to_vec(&orders.params).expect("JSON stays JSON");
    let result = entry(os, &params)?;
    io::stdout().write_all(&result).map_err(|error| format!("cannot send the task's result: {error}"))
}
