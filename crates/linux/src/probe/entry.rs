//! Entering the kernel and leaving it.

use nix::sys::mman::{MsFlags, msync};

use super::{Found, Raw, each, mapping::FileInMemory, probe, timed};

const CALLS: i64 = 4000;

pub(super) fn probes() -> Vec<Found> {
    vec![system_call(), vsyscall::time(), find_vma()]
}

fn call(number: libc::c_long) {
    #[expect(unsafe_code, reason = "a system call of this number and no other is what is timed")]
    // SAFETY: getuid takes no argument, and time a null pointer; neither touches memory.
    unsafe {
        libc::syscall(number, 0_usize);
    }
}

fn system_call() -> Found {
    probe(&[Raw::SystemCall], |samples| {
        samples.set(Raw::SystemCall, each(timed(|| (0..CALLS).for_each(|_| call(libc::SYS_getuid))), CALLS));
        Ok(())
    })
}

fn find_vma() -> Found {
    const GIVES: &[Raw] = &[Raw::Msync];
    let mapping = match FileInMemory::new(1).and_then(|file| file.map()) {
        Ok(mapping) => mapping,
        Err(why) => return super::absent(GIVES, why),
    };
    probe(GIVES, move |samples| {
        let mut result = Ok(());
        let ns = timed(|| {
            for _ in 0..CALLS {
                #[expect(unsafe_code, reason = "a system call")]
                // SAFETY: MS_ASYNC does nothing to the range, which is our own mapping.
                let done = unsafe { msync(mapping.start(), mapping.len(), MsFlags::MS_ASYNC) };
                result = result.and(done);
            }
        });
        samples.set(Raw::Msync, each(ns, CALLS));
        result.map_err(super::failed("msync"))
    })
}

#[cfg(not(target_arch = "x86_64"))]
mod vsyscall {
    pub(super) fn time() -> super::Found {
        super::super::absent(&[super::Raw::VsyscallTime], "only x86-64 has a vsyscall page")
    }
}

/// A page of old at a fixed address, executable and nothing else. Nowadays fetching from it is a page fault, which the kernel
/// recognises by its address before it looks at any VMA, and answers by doing the system call: an exception without memory
/// management. (Documentation/admin-guide/kernel-parameters.txt, `vsyscall=`, v6.1.)
#[cfg(target_arch = "x86_64")]
mod vsyscall {
    use super::{CALLS, Found, Raw, call, each, probe, timed};
    use crate::probe::absent;

    const GIVES: &[Raw] = &[Raw::VsyscallTime];
    /// `time`; `gettimeofday` is at the start of the page, `getcpu` 1 KiB further on.
    const TIME: usize = 0xffff_ffff_ff60_0400;
    /// A kernel that lets the page run as code (before 5.3, `vsyscall=native`) takes no exception: no dearer than a call.
    const NATIVE_PERCENT: i64 = 130;

    pub(super) fn time() -> Found {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        if !maps.lines().any(|line| line.ends_with("[vsyscall]") && line.contains("xp ")) {
            return absent(GIVES, "this kernel has no vsyscall page (vsyscall=none)");
        }
        #[expect(unsafe_code, reason = "the address is the kernel's promise")]
        // SAFETY: the page is mapped, as just seen, and `time` of the C convention is at this address on every kernel.
        let time = unsafe { std::mem::transmute::<usize, extern "C" fn(*mut i64) -> i64>(TIME) };
        let calls = move |times| {
            timed(|| {
                for _ in 0..times {
                    std::hint::black_box(time(std::ptr::null_mut()));
                }
            })
        };
        if calls(CALLS) * 100 < timed(|| (0..CALLS).for_each(|_| call(libc::SYS_time))) * NATIVE_PERCENT {
            return absent(GIVES, "this kernel runs the vsyscall page without an exception (vsyscall=native)");
        }
        probe(GIVES, move |samples| {
            samples.set(Raw::VsyscallTime, each(calls(CALLS), CALLS));
            Ok(())
        })
    }
}
