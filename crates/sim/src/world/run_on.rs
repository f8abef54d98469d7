//! The most frequent kind of turn: user code goes on with its accesses, and there is nothing else to consider. Such a
//! turn has the same effects as `run` and `step`.

use memory::{
    cx::{Circumstances, Cx},
    frame::ControlId,
    step::Step,
};
use units::{CpuId, Picos, Time};

use super::{
    rig::{Owed, pay},
    step::{Past, come_to, keeps_lock},
};
use crate::{
    kernel::Kernel,
    run_hash::Mark,
    sched::LetGo,
    task::{
        TaskState,
        operation::{Operation, progress_of},
    },
    world::World,
};

impl World {
    /// Takes such a turn of a CPU; true if the kernel ends the task. None, without any change, if the turn is of another
    /// kind.
    #[inline]
    pub(super) fn run_on(&mut self, cpu: CpuId, horizon: Time) -> Option<bool> {
        let Self { kernels, tasks, cpus, prices, .. } = self;
        let prices = prices.on(cpus, cpu);
        let here = &mut cpus[cpu.0 as usize];
        let id = here.undisturbed()?;
        let task = &mut tasks[id.0 as usize];
        let TaskState::Kernel(operation) = &mut task.state else { return None };
        let Operation::Touch(touch) = operation else { return None };
        if touch.is_moving() || (kernels[task.kernel].mm.balances_numa() && here.clock >= task.numa_tick) {
            return None;
        }
        if touch.is_clearing() {
            return self.clear_on(cpu, id).then_some(false);
        }
        let number = kernels[task.kernel].number(cpu);
        let Kernel { mm, spaces, locks, lines, running_in, settled_in, counters, .. } = &mut kernels[task.kernel];
        let (space_id, lock) = (task.space, &mut locks[task.space.0 as usize]);
        let is_watched = self.injector.wanted.is_some() || self.trace.is_some() || self.why.is_some() || task.is_slow;
        if is_watched || task.is_dying || !task.supply.is_idle() || lock.is_wanted() || !here.is_between(id, task.holds)
        {
            return None;
        }
        let space = spaces.get_mut(space_id).expect("a live task has an address space");
        let needs = Operation::touch_needs(touch, space, mm.memory.variant());
        lock.renew(task.holds.is_some(), needs.is_some(), mm.memory.variant().mmap_lock);
        task.holds = needs;
        task.was_preempted = false;
        self.current = id;
        self.injector.steps += 1;
        let start = here.clock;
        let sharers = running_in[space_id.0 as usize] - 1;
        let settled = settled_in[space_id.0 as usize] - u32::from(task.is_settled);
        // As `horizon_under_lock`, for a lock without waiters.
        let horizon = if needs.is_some() && settled < sharers { start } else { horizon };
        let left = (sharers > 0 || task.is_settled).then(|| touch.left());
        let mut cx = Cx::new(number, start, prices, counters);
        cx.set_circumstances(Circumstances::plain(ControlId(id.0), sharers));
        task.supply.lend(&mut cx);
        let step = touch.step(mm, space, &mut cx, horizon);
        let is_plain = matches!(step, Step::More)
            && !touch.is_in_fault()
            && !cx.has_asked_anybody()
            && !mm.memory.has_news()
            && !mm.memory.has_host_work()
            && !mm.memory.has_host_clears();
        let line = (sharers > 0).then(|| (&mut lines[space_id.0 as usize], mm.memory.variant().mmap_lock));
        if is_plain {
            pay(&mut cx, task, here, line);
            self.hash.fold(here.clock, cpu, Mark::Faults, cx.faults().fold);
            here.lets_go = needs.map(|_| (id, LetGo::Unlock { after: Picos(0) }));
            here.stay(cpu, &mut self.clock);
            if let Some(left) = left {
                let end = here.clock;
                self.note_pace(id, (left, start), end, true);
            }
            #[cfg(test)]
            self.check();
            return Some(false);
        }
        here.lets_go = None;
        let what = (space_id, &mut *operation, &mut task.supply);
        let progress = come_to(mm, spaces, what, progress_of(step), &mut cx);
        let keeps = keeps_lock(&progress, operation, &task.supply);
        pay(&mut cx, task, here, line);
        let (faults, shootdowns) = (cx.faults().fold, cx.shootdowns());
        self.settle_step(id, cpu, &Owed { faults, shootdowns, asked_of: &[] });
        let killed = self.finish(id, cpu, Past { start, left, keeps, progress });
        if !killed {
            self.settle(cpu);
        }
        Some(killed)
    }
}
