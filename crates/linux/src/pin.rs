//! Pinning memory for the life of its mapping: buffers registered with an io_uring(7), which is what a process without a device
//! has for it (include/uapi/linux/io_uring.h, io_sqe_buffers_register in io_uring/rsrc.c, v6.1).

use std::{
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        raw::c_uint,
    },
    sync::Mutex,
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use os::VmRange;
use units::{Bytes, Errno, VirtAddr};

use crate::{host::errno, memory::pointer};

/// The longest buffer that can be registered.
// io_buffer_validate, io_uring/rsrc.c (v6.1).
const BUFFER_MAX: Bytes = Bytes::gib(1);
/// `IORING_REGISTER_BUFFERS`.
const REGISTER_BUFFERS: c_uint = 0;
/// Bytes of `struct io_uring_params`, all of which may be zero.
const PARAMS: usize = 120;

/// Ranges with the rings that pin them. A ring that is closed lets go of its pages.
static RINGS: Mutex<Vec<(VmRange, OwnedFd)>> = Mutex::new(Vec::new());

/// Pins all pages of a range.
///
/// # Errors
/// `ENOSYS` where the kernel has no io_uring or does not let this process use it; `ENOMEM` where no more memory may be locked
/// (`RLIMIT_MEMLOCK`, which those with the right to it raise before), or memory is out.
pub(crate) fn pin(range: VmRange) -> Result<(), Errno> {
    let ring = setup().map_err(|refused| match refused {
        nix::errno::Errno::EPERM | nix::errno::Errno::EACCES => Errno::NOSYS,
        other => errno(other),
    })?;
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK) {
        // Without the right to it this fails, and so does the pin if it needs more than there is.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, libc::RLIM_INFINITY, libc::RLIM_INFINITY)
            .or_else(|_| setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard));
    }
    let buffers = buffers(range)?;
    let count = c_uint::try_from(buffers.len()).map_err(|_| Errno::INVAL)?;
    #[expect(unsafe_code, reason = "the C library does not wrap io_uring_register")]
    // SAFETY: the kernel reads `count` descriptions; it takes references to the pages, and no request ever uses them.
    let status = unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring.as_raw_fd(), REGISTER_BUFFERS, buffers.as_ptr(), count)
    };
    nix::errno::Errno::result(status).map_err(errno)?;
    RINGS.lock().map_err(|_| Errno::INVAL)?.push((range, ring));
    Ok(())
}

/// Lets go of what was pinned of a range that is unmapped, and of the rest of what was pinned with it.
pub(crate) fn unpin(range: VmRange) {
    let end = |range: VmRange| range.start.0 + range.len.0;
    if let Ok(mut rings) = RINGS.lock() {
        rings.retain(|(pinned, _)| end(*pinned) <= range.start.0 || end(range) <= pinned.start.0);
    }
}

fn setup() -> nix::Result<OwnedFd> {
    let mut params = [0_u64; PARAMS / 8];
    #[expect(unsafe_code, reason = "the C library does not wrap io_uring_setup")]
    // SAFETY: the kernel reads and writes as many bytes as `params` has.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    let fd = i32::try_from(nix::errno::Errno::result(fd)?).expect("a descriptor");
    #[expect(unsafe_code, reason = "a descriptor that the kernel has just made")]
    // SAFETY: nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The buffers that a range is registered as.
fn buffers(range: VmRange) -> Result<Vec<libc::iovec>, Errno> {
    let mut buffers = Vec::new();
    for at in (0..range.len.0).step_by(usize::try_from(BUFFER_MAX.0).expect("it is small")) {
        let len = BUFFER_MAX.0.min(range.len.0 - at);
        let part = VmRange { start: VirtAddr(range.start.0 + at), len: Bytes(len) };
        let iov_len = usize::try_from(len).map_err(|_| Errno::INVAL)?;
        buffers.push(libc::iovec { iov_base: pointer(part)?.as_ptr(), iov_len });
    }
    Ok(buffers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;

    #[test]
    fn what_is_pinned_is_there() {
        let range = memory::map_anonymous(Bytes::kib(64)).unwrap();
        match pin(range) {
            Ok(()) => assert_eq!(memory::resident(range), Ok(vec![true; 16])),
            Err(refused @ (Errno::NOSYS | Errno::NOMEM)) => println!("skipped: io_uring: {refused}"),
            Err(other) => panic!("{other}"),
        }
        unpin(range);
        memory::unmap(range).unwrap();
    }

    #[test]
    fn a_long_range_is_several_buffers() {
        let range = VmRange { start: VirtAddr(1 << 40), len: Bytes(Bytes::gib(2).0 + 4096) };
        let lens: Vec<_> = buffers(range).unwrap().iter().map(|buffer| buffer.iov_len).collect();
        assert_eq!(lens, [1 << 30, 1 << 30, 4096]);
    }
}
