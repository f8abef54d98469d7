//! Turns in which a huge page is cleared: 512 steps, between any two of which others may run, but nearly never have to.

use memory::{cx::Cx, frame::ControlId};
use units::CpuId;

use crate::{
    ids::TaskId,
    kernel::Kernel,
    run_hash::Mark,
    task::{TaskState, operation::Operation},
    world::World,
};

impl World {
    /// Goes on clearing a huge page for the running task of a CPU, if nothing was asked of the CPU, for as many steps as fit
    /// before another CPU has a turn. It has the same effects as `run` and `step`. Returns false and changes nothing if there
    /// is more to consider.
    #[inline]
    pub(super) fn clear_on(&mut self, cpu: CpuId, id: TaskId) -> bool {
        let Self { kernels, tasks, cpus, prices, clock, hash, .. } = self;
        let prices = prices.on(cpus, cpu);
        let (task, here) = (&mut tasks[id.0 as usize], &mut cpus[cpu.0 as usize]);
        let is_watched = self.injector.wanted.is_some() || self.trace.is_some() || task.is_slow;
        if is_watched || task.is_dying || !task.supply.is_idle() || here.lets_go.is_some() {
            return false;
        }
        let TaskState::Kernel(Operation::Touch(touch)) = &mut task.state else { return false };
        let number = kernels[task.kernel].number(cpu);
        let Kernel { mm, spaces, running_in, counters, .. } = &mut kernels[task.kernel];
        let space = spaces.get(task.space).expect("a live task has an address space");
        if task.holds.is_none() && Operation::touch_needs(touch, space, mm.memory.variant()).is_some() {
            return false;
        }
        let is_shared = running_in[task.space.0 as usize] > 1 || task.is_settled;
        let left = is_shared.then(|| touch.left());
        let before = clock.earliest().min(self.sampler.due);
        let mut steps = 0;
        let mut cx = Cx::new(number, here.clock, prices, counters).acting_for(ControlId(id.0));
        let last = touch.clear_on(mm, &mut cx, before, |end| {
            hash.fold(end, cpu, Mark::Faults, 0);
            steps += 1;
        });
        task.spent.add_step(cx.meter());
        task.was_preempted = false;
        let end = cx.now();
        here.clock = end;
        here.stay(cpu, clock);
        self.injector.steps += steps;
        self.current = id;
        self.gets_on(end);
        if let Some(left) = left {
            self.note_pace(id, (left, last), end, true);
        }
        #[cfg(test)]
        self.check();
        true
    }
}
