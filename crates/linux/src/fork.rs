//! fork(2) as an operation of a workload: a copy of this process runs a part of it, and its result comes through a pipe.
//!
//! Only the reader of the pipe learns when the child ends: a thread that waits for it would be a second task of this process, and
//! would change what is measured. So the pipe is read and the child reaped where its result is awaited.

use std::{
    fs::File,
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitStatus,
    sync::atomic::Ordering,
};

use nix::{
    fcntl::OFlag,
    sys::{
        prctl,
        signal::Signal,
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid, getpid, getppid, pipe2},
};
use os::{Died, Placement, Wire};
use units::Errno;

use crate::{
    host::{Linux, block_on, errno, place},
    process::ending,
};

/// A child that panicked, or whose result cannot be sent.
const FAILED: i32 = 101;

/// A child that was forked, and the end of the pipe through which its result comes.
pub(crate) struct Child {
    pid: Pid,
    reader: File,
}

/// Forks; the child runs `body` to its end and never returns.
pub(crate) fn fork<T: Wire>(
    os: &Linux,
    on: Placement,
    body: impl AsyncFnOnce(Linux) -> T + 'static,
) -> Result<Child, Errno> {
    if os.shared.tasks.load(Ordering::Acquire) != 1 {
        return Err(Errno::INVAL);
    }
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(errno)?;
    let parent = getpid();
    #[expect(unsafe_code, reason = "fork(2) is what the workload asks for")]
    // SAFETY: no other task of the workload runs in this process, so nobody else holds a lock that the child may want; the
    // C library's own are kept consistent by its fork. The child leaves by _exit, past all that the parent will do.
    let forked = unsafe { nix::unistd::fork() }.map_err(errno)?;
    match forked {
        ForkResult::Child => {
            drop(reader);
            let result = catch_unwind(AssertUnwindSafe(|| run(os, parent, on, body, File::from(writer))));
            let status = result.unwrap_or_else(|_| {
                os.cancel_all();
                FAILED
            });
            #[expect(unsafe_code, reason = "a system call")]
            // SAFETY: it does not return. Buffers and exit handlers are the parent's.
            unsafe {
                libc::_exit(status)
            }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            Ok(Child { pid: child, reader: File::from(reader) })
        }
    }
}

/// The child's life; its exit status.
fn run<T: Wire>(os: &Linux, parent: Pid, on: Placement, body: impl AsyncFnOnce(Linux) -> T, mut writer: File) -> i32 {
    // It dies with the parent, which may have died already.
    if prctl::set_pdeathsig(Signal::SIGKILL).is_err() || getppid() != parent {
        return FAILED;
    }
    place(&os.shared.cpus, on);
    let result = block_on(body(os.clone()));
    let sent = serde_json::to_vec(&result).is_ok_and(|result| writer.write_all(&result).is_ok());
    if sent { 0 } else { FAILED }
}

impl Child {
    /// Waits for its end.
    pub(crate) fn receive<T: Wire>(mut self) -> Result<T, Died> {
        let mut output = Vec::new();
        let read = self.reader.read_to_end(&mut output);
        let status = match waitpid(self.pid, None) {
            Ok(WaitStatus::Exited(_, code)) => ExitStatus::from_raw(code << 8),
            Ok(WaitStatus::Signaled(_, signal, _)) => ExitStatus::from_raw(signal as i32),
            Ok(other) => return Err(Died { reason: format!("{other:?}") }),
            Err(error) => return Err(Died { reason: format!("nobody knows how it ended: {error}") }),
        };
        if !status.success() {
            return Err(Died { reason: ending(status) });
        }
        let reason = |error: String| Died { reason: format!("its result is not readable: {error}") };
        read.map_err(|error| reason(error.to_string()))?;
        serde_json::from_slice(&output).map_err(|error| reason(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use os::{MapSpec, Os};
    use units::{Bytes, Picos};

    use super::*;
    use crate::host::usable_cpus;

    fn os() -> Linux {
        Linux::new(usable_cpus(), Bytes::mib(8), crate::file::Ground::default())
    }

    #[test]
    fn a_child_gives_its_result_and_has_a_copy_of_the_memory() {
        let os = os();
        let range = block_on(os.mmap(Bytes::mib(1), MapSpec::Anonymous)).unwrap();
        block_on(os.store(range, Bytes::PAGE)).unwrap();
        let child = block_on(os.fork(Placement::Spread(0), async move |os: Linux| {
            let before = os.rusage().await.unwrap().faults();
            os.store(range, Bytes::PAGE).await.unwrap();
            os.munmap(range).await.unwrap();
            os.rusage().await.unwrap().faults() - before
        }));
        let faults: u64 = block_on(child.unwrap()).unwrap();
        assert!(faults >= 1, "writing what is shared takes faults");
        assert!(block_on(os.mincore(range)).unwrap().iter().all(|resident| *resident), "unmapping there is not here");
    }

    #[test]
    fn how_a_child_died_is_told() {
        let os = os();
        let killed = async |_: Linux| -> u32 {
            nix::sys::signal::kill(getpid(), Signal::SIGKILL).unwrap();
            unreachable!("it is dead")
        };
        let died = block_on(block_on(os.fork(Placement::Spread(0), killed)).unwrap()).unwrap_err();
        assert_eq!(died.reason, "killed by signal 9 (SIGKILL)");
    }

    #[test]
    fn a_process_of_two_tasks_does_not_fork() {
        let os = os();
        let meet = block_on(os.barrier(2)).unwrap();
        let other = os.spawn(Placement::Spread(0), async move |os: Linux| os.arrive(meet).await);
        let body = async |os: Linux| os.sleep(Picos::from_nanos(1)).await;
        assert_eq!(block_on(os.fork(Placement::Spread(0), body)).err(), Some(Errno::INVAL));
        block_on(os.arrive(meet)).unwrap();
        block_on(other).unwrap().unwrap();
        assert_eq!(block_on(block_on(os.fork(Placement::Spread(0), body)).unwrap()), Ok(()));
    }
}
