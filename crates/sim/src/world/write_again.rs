//! Many write(2) to one page of a file, one after the other, without a turn of the order for each: dd(1) writes eight times to
//! each page. What each of them would do is known, and nobody else has a turn before the last of them is over.

use memory::{cx::Cx, frame::ControlId};
use mm::file::page_cache::Blocks;
use units::Picos;

use crate::{kernel::Kernel, run_hash::Mark, world::World};

impl World {
    /// The task whose user half runs does as many of its next write(2) as it can without anybody else; how many bytes they
    /// were. All is as if each of them had been an operation of its own, the run hash too. None where anybody waits for the CPU
    /// or has asked something of it, or anything is left of the task's last operation.
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
