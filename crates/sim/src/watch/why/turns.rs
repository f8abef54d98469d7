//! The tasks that CPUs have run lately: a spin lock knows the CPU that held it, and here is the task.

use std::collections::{BTreeMap, VecDeque};

use units::{CpuId, Time};

use crate::ids::TaskId;

/// Steps of a CPU that are remembered. CPUs run ahead of each other by a few steps at most.
const KEPT: usize = 16;

/// The last steps of each CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(BTreeMap<CpuId, VecDeque<(Time, Time, TaskId)>>);

impl Turns {
    pub(super) fn note(&mut self, cpu: CpuId, task: TaskId, (start, end): (Time, Time)) {
        let steps = self.0.entry(cpu).or_default();
        steps.truncate(KEPT - 1);
        steps.push_front((start, end, task));
    }

    /// The task other than `but` that ran on a CPU at an instant: of the last step that began by then.
    pub(super) fn on(&self, cpu: CpuId, at: Time, but: TaskId) -> Option<TaskId> {
        let steps = self.0.get(&cpu)?;
        let begun = steps.iter().find(|(start, _, task)| *start <= at && *task != but);
        begun.map(|(_, _, task)| *task)
    }
}
