//! The check that every frame has one owner: after each step of a unit test, and as often as a run's options say.

use memory::frame::{ControlId, Holdings};

use crate::{
    ids::{KernelId, NO_SPACE, TaskId, Thread},
    kernel::Kernel,
    task::Task,
    world::World,
};

/// Checks of the owners of frames.
impl World {
    /// Asserts that every frame has one owner, and the state that its owner claims.
    #[cold]
    pub(crate) fn check(&self) {
        self.kernels.iter().for_each(|(id, kernel)| self.check_kernel(id, kernel));
    }

    fn check_kernel(&self, id: KernelId, kernel: &Kernel) {
        let busy = self.cpus[kernel.cpus.clone()].iter().filter(|cpu| cpu.running.is_some()).count();
        assert_eq!(kernel.domains.all_busy(), busy as u64, "busy CPUs of kernel {}", id.0);
        let is_of_process = |task: &TaskId| self.tasks[task.0 as usize].space != NO_SPACE;
        let running = self.cpus[kernel.cpus.clone()].iter().filter_map(|cpu| cpu.running);
        let of_processes = running.filter(is_of_process).count();
        assert_eq!(kernel.running_user as usize, of_processes, "CPUs that run processes of kernel {}", id.0);
        let mm = &kernel.mm;
        mm::whole::check::walk_files(mm).unwrap();
        let own = || (0..).zip(&self.tasks).filter(|(_, task)| task.kernel == id);
        let children = own().filter_map(|(_, task)| task.operation()?.child());
        let spaces = kernel.spaces.iter().map(|(_, space)| space).chain(children).collect();
        let controls = self.holdings(id).collect();
        mm::whole::check::walk(mm).unwrap();
        mm::whole::check::walk_owners(mm, &mm::whole::check::Owners { spaces, controls }).unwrap();
    }
    /// The blocks that each task and thread of a kernel holds between two steps.
    pub(super) fn holdings(&self, id: KernelId) -> impl Iterator<Item = (ControlId, Holdings)> + '_ {
        let kernel = &self.kernels[id];
        let of_task = |(id, task): (u32, &Task)| {
            let operation = task.operation()?;
            let space = kernel.spaces.get(task.space).expect("a live task has an address space");
            let mut holdings = operation.holdings(space);
            holdings.add(task.supply.holdings());
            Some((ControlId(id), holdings))
        };
        let daemons = kernel.daemons.iter().map(|(Thread { daemon, node }, id)| {
            let holdings = (mm::whole::daemon::Row::of(*daemon).holdings)(&kernel.mm, *node);
            (ControlId(id.0), holdings)
        });
        (0..).zip(&self.tasks).filter(move |(_, task)| task.kernel == id).filter_map(of_task).chain(daemons)
    }
}
