//! Where the threads of a process meet, whatever the kernel kills elsewhere.
//!
//! A process that dies cancels all barriers of a run, so that no task waits for it. The threads of other processes miss none of
//! their own: each counts itself at its barrier, and where that is cancelled they go on by the count.

use os::{Barrier, Os};
use units::Errno;

use super::phase::LOOK;

/// A barrier of the threads of a process, which meet there again and again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meeting {
    barrier: Barrier,
    threads: u32,
}

impl Meeting {
    /// The count from which on no thread waits for another one: a thread has failed, and will not come.
    const LEFT: u32 = 1 << 31;

    /// A meeting of `threads` threads.
    pub(super) async fn new<O: Os>(os: &O, threads: u32) -> Result<Self, Errno> {
        Ok(Self { barrier: os.barrier(threads).await?, threads })
    }

    /// Waits for all threads. `ECANCELED` if a thread has left.
    pub(super) async fn arrive<O: Os>(self, os: &O) -> Result<(), Errno> {
        // No thread arrives for the next time before all have arrived for this one.
        let full = (os.add(self.barrier, 1)? + 1).next_multiple_of(self.threads);
        match os.arrive(self.barrier).await {
            Err(Errno::CANCELED) => self.poll(os, full).await,
            arrived => arrived,
        }
    }

    async fn poll<O: Os>(self, os: &O, full: u32) -> Result<(), Errno> {
        // Bound: the work of the other threads.
        loop {
            match os.add(self.barrier, 0)? {
                Self::LEFT.. => return Err(Errno::CANCELED),
                count if count >= full => return Ok(()),
                _ => os.sleep(LOOK).await,
            }
        }
    }

    /// Lets no thread wait for the calling one.
    pub(super) async fn leave<O: Os>(self, os: &O) -> Result<(), Errno> {
        os.set(self.barrier, Self::LEFT)?;
        os.cancel(self.barrier).await;
        Ok(())
    }
}
