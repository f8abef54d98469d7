//! The run hash: every (time, cpu, event) of a run folded into 64 bits.
//!
//! Two runs with the same hash did the same things at the same instants; the first difference changes all that follows.
//! The hash guards against accidents, not against adversaries.

use units::{CpuId, Time};

/// A hash under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunHash(u64);

/// Events of a run, for the hash; the numbers are part of every recorded hash and are only ever added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mark {
    /// An operation of a task began.
    Begin = 1,
    /// An operation of a task ended.
    End = 2,
    /// A step of an operation ended; the payload is the fold of the step's faults.
    Faults = 3,
    /// A step of a kernel thread ended; the payload is the thread's number.
    Daemon = 6,
    /// A counter at the end of the run; the payload is its value.
    Counter = 4,
    /// The last task of a process has ended, and its memory is freed; the payload is the task.
    Exit = 5,
}

impl Default for RunHash {
    fn default() -> Self {
        // The fractional part of the golden ratio: any odd constant without a pattern would do.
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl RunHash {
    /// Folds in one event.
    #[inline]
    pub(crate) fn fold(&mut self, at: Time, cpu: CpuId, mark: Mark, payload: u64) {
        self.mix(at.0);
        self.mix(u64::from(cpu.0) << 8 | mark as u64);
        self.mix(payload);
    }

    /// Multiply, fold the high half down: each input bit reaches every later state bit (the finaliser of `splitmix64`
    /// with its published constant).
    #[inline]
    fn mix(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = mixed ^ mixed >> 31;
    }

    /// The hash so far, as results print it.
    pub(crate) fn hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_and_their_order_matter() {
        let hash = |events: &[(u64, u32, Mark, u64)]| {
            let mut hash = RunHash::default();
            for (at, cpu, mark, payload) in events {
                hash.fold(Time(*at), CpuId(*cpu), *mark, *payload);
            }
            hash.hex()
        };
        let base = hash(&[(1, 0, Mark::Begin, 7), (2, 1, Mark::End, 7)]);
        assert_eq!(base, hash(&[(1, 0, Mark::Begin, 7), (2, 1, Mark::End, 7)]));
        for other in [
            hash(&[(2, 1, Mark::End, 7), (1, 0, Mark::Begin, 7)]),
            hash(&[(1, 0, Mark::Begin, 7), (2, 1, Mark::End, 8)]),
            hash(&[(1, 0, Mark::Begin, 7), (2, 0, Mark::End, 7)]),
            hash(&[(1, 0, Mark::Begin, 7), (3, 1, Mark::End, 7)]),
            hash(&[(1, 0, Mark::Begin, 7), (2, 1, Mark::Faults, 7)]),
        ] {
            assert_ne!(base, other);
        }
    }
}
