//! Many calls of write(2) to one page of a file, one after the other, without a turn of the order for each: dd(1) writes eight
//! times to each page. The effects of each call are known, and no other CPU has a turn before the last of them is over.

use memory::{cx::Cx, frame::ControlId};
use mm::file::page_cache::Blocks;
use units::Picos;

use crate::{kernel::Kernel, run_hash::Mark, world::World};

impl World {
    /// Does as many of the current task's next calls of write(2) as fit before another CPU has a turn; returns their bytes. The
    /// result, and the run hash, are as if each call had been an operation of its own. 0 if a task waits for the CPU, something
    /// was asked of it, or the task's last operation is not wholly over.
    pub(crate) fn write_again(&mut self, blocks: Blocks) -> u64 {
        let Self { kernels, tasks, cpus, prices, clock, hash, .. } = self;
        let id = self.current;
        let task = &mut tasks[id.0 as usize];
        let (cpu, prices) = (task.cpu, prices.on(cpus, task.cpu));
        let here = &mut cpus[cpu.0 as usize];
        let is_watched = self.injector.wanted.is_some() || task.is_dying || task.is_slow || task.is_settled;
        let is_between = here.lets_go.is_none() && task.holds.is_none() && task.supply.is_idle();
        if here.undisturbed() != Some(id) || is_watched || !is_between {
            return 0;
        }
        let number = kernels[task.kernel].number(cpu);
        let Kernel { mm, counters, .. } = &mut kernels[task.kernel];
        let start = here.clock;
        let mut cx = Cx::new(number, start, prices, counters).acting_for(ControlId(id.0));
        let n = mm.write_again(&mut cx, blocks, clock.earliest().min(self.sampler.due));
        if n == 0 {
            return 0;
        }
        task.spent.add_step(cx.meter());
        task.was_preempted = false;
        here.clock = cx.now();
        let each = Picos(here.clock.since(start).0 / n);
        let mut at = start;
        for _ in 0..n {
            hash.fold(at, cpu, Mark::Begin, u64::from(id.0));
            at = at + each;
            hash.fold(at, cpu, Mark::Faults, 0);
            hash.fold(at, cpu, Mark::End, u64::from(id.0));
        }
        self.injector.steps += n;
        self.operations += n;
        #[cfg(test)]
        self.check();
        blocks.block * n
    }
}
