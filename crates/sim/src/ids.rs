//! Which task, kernel or kernel thread: small values by which all else is found.

use memory::{frame::SpaceId, news::Daemon};
use units::NodeId;

/// Number of a task, in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(pub(crate) u32);

/// The first task of all, which has the result of the run.
pub(crate) const MAIN: TaskId = TaskId(0);

/// Number of a kernel, in the order of creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KernelId(pub(crate) u16);

/// The kernel of the machine itself.
pub(crate) const HOST: KernelId = KernelId(0);

/// Which kernel thread a task is, and of which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) daemon: Daemon,
    pub(crate) node: NodeId,
}

/// No process: kernel threads have no address space.
pub(crate) const NO_SPACE: SpaceId = SpaceId(u32::MAX);
