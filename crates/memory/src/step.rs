//! Linux: none; the kernel is preempted or sleeps where our controls return.
//! Differs: waits are added with the mechanism that needs them.

use units::{NodeId, Pfn, Picos, Time};

use crate::cost::Cause;

/// Pages that one step of a range operation handles before it checks the time.
// SWAP_CLUSTER_MAX and COMPACT_CLUSTER_MAX, include/linux/swap.h (v6.1).
pub const RUN: u64 = 32;

/// One jiffy of a kernel with CONFIG_HZ=250, which is what `schedule_timeout_uninterruptible(1)` takes.
pub const TICK: Picos = Picos::from_micros(4000);

/// The outcome of one bounded step of a long operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// There is more to do; others may run first, and nothing that was read before is true after.
    More,
    /// Nothing can be done before this event.
    Block(Wait),
    /// The operation has ended.
    Done(T),
}

impl<T> Step<T> {
    /// Replaces the result of a step that is done.
    pub fn map<U>(self, result: impl FnOnce(T) -> U) -> Step<U> {
        match self {
            Self::More => Step::More,
            Self::Block(wait) => Step::Block(wait),
            Self::Done(done) => Step::Done(result(done)),
        }
    }
}

/// Where a phase of a control leads: `P` are the control's phases, `T` is the result of the control.
pub enum Next<P, T> {
    /// Another phase, at once.
    Phase(P),
    /// Goes on with another phase, after others may have run.
    Later(P),
    /// Goes on with another phase after this event.
    Block(Wait, P),
    /// The control has ended.
    Done(T),
}

impl<P, T> Next<P, T> {
    /// Notes the phase to go on with. What the step came to, unless the control goes on at once.
    pub fn note(self, phase: &mut P) -> Option<Step<T>> {
        let (next, step) = match self {
            Self::Phase(next) => (next, None),
            Self::Later(next) => (next, Some(Step::More)),
            Self::Block(wait, next) => (next, Some(Step::Block(wait))),
            Self::Done(done) => return Some(Step::Done(done)),
        };
        *phase = next;
        step
    }
}

/// The event that a blocked operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// An instant.
    Until(Time),
    /// A device that is done at an instant; meanwhile the locks of the address space are released.
    Io {
        /// When the device is done.
        until: Time,
        /// The cause that the wait is charged to.
        cause: Cause,
    },
    /// A waker that the wait does not name.
    Queue,
    /// Nothing: a kernel thread that does not sleep goes on with its loop once others may have had the CPU (`cond_resched`).
    /// Where nothing else will ever happen, it sleeps until it is woken.
    Yield,
    /// The unlock of a folio that another task works on (`folio_wait_locked`).
    Folio(Pfn),
    /// The end of a pass of a node's kswapd, or an instant (`pfmemalloc_wait`).
    Pass {
        /// The node of that kswapd.
        node: NodeId,
        /// When the wait ends even without a pass.
        until: Time,
    },
}
