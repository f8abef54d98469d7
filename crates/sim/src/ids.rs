//! Numbers of tasks, kernels and kernel threads: small values by which all else is found.

use std::fmt;

use memory::{frame::SpaceId, news::Daemon};
use mm::whole::daemon::{Row, Scope};
use units::NodeId;

/// Number of a task, in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(pub(crate) u32);

/// The first task of the run, whose result is the run's.
pub(crate) const MAIN: TaskId = TaskId(0);

/// Number of a kernel, in the order of creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KernelId(pub(crate) u16);

/// The kernel of the machine itself.
pub(crate) const HOST: KernelId = KernelId(0);

/// The kernel thread that a task is, and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) daemon: Daemon,
    pub(crate) node: NodeId,
}

impl fmt::Display for Thread {
    /// As the kernel names its threads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = Row::of(self.daemon);
        f.write_str(row.name)?;
        if row.scope == Scope::Node { self.node.fmt(f) } else { Ok(()) }
    }
}

/// No process: the address space of kernel threads.
pub(crate) const NO_SPACE: SpaceId = SpaceId(u32::MAX);
