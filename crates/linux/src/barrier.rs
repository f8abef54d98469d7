//! A barrier that works across processes: four words in a memory file whose descriptor children inherit.

use std::{
    num::NonZeroUsize,
    os::fd::{BorrowedFd, IntoRawFd, RawFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use nix::{
    sys::{
        memfd::{MFdFlags, memfd_create},
        mman::{MapFlags, ProtFlags, mmap, munmap},
    },
    unistd::ftruncate,
};
use os::Barrier;
use units::{Bytes, Errno};

use crate::host::errno;

/// The words in the shared page. All zero is a fresh barrier.
#[repr(C)]
#[derive(Debug)]
struct Words {
    arrived: AtomicU32,
    /// Moves when everybody has arrived and when the barrier is cancelled: what waiters sleep on.
    generation: AtomicU32,
    cancelled: AtomicU32,
    /// A number of its parties.
    count: AtomicU32,
}

/// One barrier as mapped into this process.
#[derive(Debug)]
pub(crate) struct SharedBarrier {
    words: NonNull<Words>,
    handle: Barrier,
}

#[expect(unsafe_code, reason = "shared words are atomics")]
// SAFETY: the words are atomics in a shared mapping that lives as long as the value.
unsafe impl Send for SharedBarrier {}
#[expect(unsafe_code, reason = "shared words are atomics")]
// SAFETY: as above; all access is through atomics.
unsafe impl Sync for SharedBarrier {}

const PAGE: usize = 4096;
const _: () = assert!(PAGE as u64 == Bytes::PAGE.0 && size_of::<Words>() <= PAGE);

impl SharedBarrier {
    /// A fresh barrier. Its descriptor survives exec on purpose: that is how children get it.
    pub(crate) fn new(parties: u32) -> Result<Self, Errno> {
        let file = memfd_create(c"pagelab-barrier", MFdFlags::empty()).map_err(errno)?;
        ftruncate(&file, Bytes::PAGE.0.cast_signed()).map_err(errno)?;
        let descriptor = file.into_raw_fd();
        let id = u32::try_from(descriptor).expect("open descriptors are not negative");
        Self::map(descriptor, Barrier { id, parties })
    }

    /// The barrier that an ancestor made and whose descriptor this process inherited.
    pub(crate) fn open(handle: Barrier) -> Result<Self, Errno> {
        Self::map(RawFd::try_from(handle.id).map_err(|_| Errno::INVAL)?, handle)
    }

    fn map(descriptor: RawFd, handle: Barrier) -> Result<Self, Errno> {
        let length = NonZeroUsize::new(PAGE).expect("a page is not empty");
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: the descriptor is open (an error otherwise) for the duration of the call, and the mapping is new.
        let address = unsafe {
            let file = BorrowedFd::borrow_raw(descriptor);
            mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, file, 0)
        };
        Ok(Self { words: address.map_err(errno)?.cast(), handle })
    }

    pub(crate) fn handle(&self) -> Barrier {
        self.handle
    }

    fn words(&self) -> &Words {
        #[expect(unsafe_code, reason = "a shared page")]
        // SAFETY: the page is mapped until drop, zero-filled at birth, and only ever accessed as these atomics.
        unsafe {
            self.words.as_ref()
        }
    }

    /// Waits for the others; the last one to come wakes them.
    pub(crate) fn arrive(&self) -> Result<(), Errno> {
        let words = self.words();
        let generation = words.generation.load(Ordering::Acquire);
        if words.cancelled.load(Ordering::Acquire) != 0 {
            return Err(Errno::CANCELED);
        }
        if words.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.handle.parties {
            words.arrived.store(0, Ordering::Release);
            self.advance();
        } else {
            while words.generation.load(Ordering::Acquire) == generation {
                futex(&words.generation, libc::FUTEX_WAIT, generation);
            }
        }
        if words.cancelled.load(Ordering::Acquire) == 0 { Ok(()) } else { Err(Errno::CANCELED) }
    }

    /// Lets everybody go with `ECANCELED`, now and later.
    pub(crate) fn cancel(&self) {
        self.words().cancelled.store(1, Ordering::Release);
        self.advance();
    }

    /// Adds to the number of its parties; says what it was before.
    pub(crate) fn add(&self, n: u32) -> u32 {
        self.words().count.fetch_add(n, Ordering::SeqCst)
    }

    /// Sets that number.
    pub(crate) fn set(&self, value: u32) {
        self.words().count.store(value, Ordering::SeqCst);
    }

    /// Has somebody?
    pub(crate) fn is_cancelled(&self) -> bool {
        self.words().cancelled.load(Ordering::Acquire) != 0
    }

    fn advance(&self) {
        let generation = &self.words().generation;
        generation.fetch_add(1, Ordering::AcqRel);
        futex(generation, libc::FUTEX_WAKE, i32::MAX.cast_unsigned());
    }
}

impl Drop for SharedBarrier {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: the mapping is ours and no reference to it outlives the value. The descriptor stays open: others in
        // this process may hold the handle; it goes with the process.
        unsafe {
            let _ = munmap(self.words.cast(), PAGE);
        }
    }
}

/// FUTEX_WAIT with the expected value, or FUTEX_WAKE with how many to wake. Spurious returns are harmless: callers test.
fn futex(word: &AtomicU32, operation: i32, value: u32) {
    #[expect(unsafe_code, reason = "nix does not wrap futex")]
    // SAFETY: the word is valid for the duration of the call; no timeout is given.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, std::ptr::null::<libc::timespec>());
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn everybody_waits_for_the_last_one() {
        let barrier = Arc::new(SharedBarrier::new(4).unwrap());
        for _ in 0..100 {
            let others: Vec<_> = (0..3)
                .map(|_| {
                    let barrier = Arc::clone(&barrier);
                    thread::spawn(move || barrier.arrive())
                })
                .collect();
            assert_eq!(barrier.arrive(), Ok(()));
            assert!(others.into_iter().all(|other| other.join().unwrap() == Ok(())));
        }
    }

    #[test]
    fn a_second_mapping_is_the_same_barrier() {
        let first = SharedBarrier::new(2).unwrap();
        let second = SharedBarrier::open(first.handle()).unwrap();
        let other = thread::spawn(move || second.arrive());
        assert_eq!(first.arrive(), Ok(()));
        assert_eq!(other.join().unwrap(), Ok(()));
    }

    #[test]
    fn cancelling_frees_those_who_wait_and_those_who_come_later() {
        let barrier = Arc::new(SharedBarrier::new(3).unwrap());
        let waiting = Arc::clone(&barrier);
        let other = thread::spawn(move || waiting.arrive());
        assert!(!barrier.is_cancelled());
        barrier.cancel();
        assert!(barrier.is_cancelled());
        assert_eq!(other.join().unwrap(), Err(Errno::CANCELED));
        assert_eq!(barrier.arrive(), Err(Errno::CANCELED));
    }

    #[test]
    fn a_handle_that_is_no_descriptor_is_an_error() {
        assert!(SharedBarrier::open(Barrier { id: 4000, parties: 2 }).is_err());
    }
}
