//! The turn that nearly all are: user code goes on with its accesses, and there is nothing else to think of. It does what
//! `run` and `step` do, less all that they would find not to be so.

use mm::{
    ControlId,
    cost::{Circumstances, Cx},
    step::Step,
};
use units::{CpuId, Picos, Time};

use super::step::{Past, come_to, keeps_lock, pay};
use crate::{
    lock::LetGo,
    operation::{Operation, progress_of},
    run_hash::Mark,
    rwsem::Mode,
    task::{TaskId, TaskState},
    world::World,
};

impl World {
    /// Such a turn of a CPU; true when the kernel ends the task. None, and nothing has happened, where it is another.
    #[inline]
    pub(super) fn run_on(&mut self, cpu: CpuId, horizon: Time) -> Option<bool> {
        let id = self.relock(cpu)?;
        self.current = id;
        let horizon = self.horizon_under_lock(id, cpu, horizon);
        Some(self.step_on(id, cpu, horizon))
    }

    /// Is it such a turn, and whose? Then the task lets go of the lock of its address space and takes it anew, if it needs it:
    /// nobody wants it, and nobody sees it.
    #[inline]
    fn relock(&mut self, cpu: CpuId) -> Option<TaskId> {
        let Self { mm, spaces, locks, tasks, cpus, injector, trace, .. } = self;
        let here = &mut cpus[cpu.0 as usize];
        let id = here.undisturbed()?;
        let task = &mut tasks[id.0 as usize];
        let TaskState::Kernel(operation @ Operation::Touch(_)) = &task.state else { return None };
        let lock = &mut locks[task.space.0 as usize];
        let is_between = match task.holds {
            None => here.lets_go.is_none(),
            Some(mode) => mode == Mode::Read && here.lets_go == Some((id, LetGo::Unlock { after: Picos(0) })),
        };
        let is_watched = injector.wanted.is_some() || trace.is_some();
        if !is_between || is_watched || task.is_dying || !task.supply.is_idle() || lock.is_wanted() {
            return None;
        }
        let space = spaces.get(task.space).expect("a live task has an address space");
        let needs = operation.needs(space, mm.variant());
        if task.holds.is_some() {
            lock.release_alone(Mode::Read);
        }
        here.lets_go = None;
        task.holds = None;
        if needs.is_some() && lock.read_alone(mm.variant().mmap_lock) {
            task.holds = needs;
        }
        Some(id)
    }

    #[inline]
    fn step_on(&mut self, id: TaskId, cpu: CpuId, horizon: Time) -> bool {
        let Self { mm, spaces, tasks, cpus, lines, .. } = self;
        let (task, here) = (&mut tasks[id.0 as usize], &mut cpus[cpu.0 as usize]);
        let (start, space_id) = (here.clock, task.space);
        let TaskState::Kernel(operation) = &mut task.state else { unreachable!("only operations are stepped") };
        let Operation::Touch(touch) = operation else { unreachable!("it is user code") };
        let sharers = self.running_in[space_id.0 as usize] - 1;
        let left = (sharers > 0 || task.is_settled).then(|| touch.left());
        self.injector.steps += 1;
        let mut cx = Cx::new(cpu, start, &self.prices, &mut self.counters);
        cx.set_circumstances(Circumstances { control: ControlId(id.0), sharers, running: &[], need_resched: false });
        task.supply.lend(&mut cx);
        let space = spaces.get_mut(space_id).expect("a live task has an address space");
        let step = touch.step(mm, space, &mut cx, horizon);
        let is_plain = matches!(step, Step::More) && !touch.is_in_fault();
        let line = (sharers > 0).then(|| (&mut lines[space_id.0 as usize], mm.variant().mmap_lock));
        if is_plain && !cx.has_asked_anybody() && !mm.has_news() {
            pay(&mut cx, task, here, line);
            self.hash.fold(here.clock, cpu, Mark::Faults, cx.faults().fold);
            here.lets_go = task.holds.map(|_| (id, LetGo::Unlock { after: Picos(0) }));
            let end = here.clock;
            if let Some(left) = left {
                self.note_pace(id, (left, start), end, true);
            }
            self.cpus[cpu.0 as usize].ready(cpu, &mut self.clock);
            #[cfg(test)]
            self.check();
            return false;
        }
        let what = (space_id, &mut *operation, &mut task.supply);
        let progress = come_to(mm, spaces, what, progress_of(step), &mut cx);
        let keeps = keeps_lock(&progress, operation, &task.supply);
        pay(&mut cx, task, here, line);
        let (faults, shootdowns, asked_of) = (cx.faults().fold, cx.shootdowns(), cx.take_asked_of());
        let killed = self.finish(id, cpu, Past { start, left, keeps, faults, shootdowns, asked_of, progress });
        if !killed {
            self.settle(cpu);
        }
        killed
    }
}
