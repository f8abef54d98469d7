//! Entering the kernel and leaving it.

use super::{Found, Raw, each, probe, timed};

const CALLS: i64 = 4000;

pub(super) fn probes() -> Vec<Found> {
    vec![system_call()]
}

fn system_call() -> Found {
    probe(&[Raw::SystemCall], |samples| {
        samples.set(Raw::SystemCall, each(timed(|| (0..CALLS).for_each(|_| getuid())), CALLS));
        Ok(())
    })
}

fn getuid() {
    #[expect(unsafe_code, reason = "the system call itself is what is timed")]
    // SAFETY: getuid takes no argument and touches no memory.
    unsafe {
        libc::syscall(libc::SYS_getuid);
    }
}
