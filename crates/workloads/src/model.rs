//! Tasks that share an address space, or have one each: how will-it-scale starts them.

use os::{Os, Placement, Wire};
use serde::{Deserialize, Serialize};
use units::Picos;

use crate::{
    ParamError, ParamInfo, TaskOutcome, WorkloadError,
    meet::{Meet, TaskError, Window},
    params::{one_of, value},
};

pub(crate) const MODEL: ParamInfo = ParamInfo {
    name: "model",
    expects: "\"threads\" or \"processes\"",
    default: "threads",
    about: "whether the tasks share an address space",
};
pub(crate) const TASKS: ParamInfo = ParamInfo {
    name: "tasks",
    expects: "a whole number from 1 to 4096",
    default: "1",
    about: "tasks that run at the same time, task i pinned to CPU i mod CPUs",
};

pub(crate) fn parse_tasks(text: &str) -> Result<u32, ParamError> {
    value(&TASKS, text, |n| (1..=4096).contains(n))
}

/// Whether tasks share an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// One address space: the mmap lock is shared.
    Threads,
    /// One address space each.
    Processes,
}

impl Model {
    pub(crate) fn parse(text: &str) -> Result<Self, ParamError> {
        Ok(if one_of(&MODEL, text, "threads", "processes")? { Self::Threads } else { Self::Processes })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Processes => "processes",
        }
    }
}

/// When counting begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    /// Whether tasks hold still twice before they are ready, for the gauges.
    pub(crate) census: bool,
    /// How long after the common start the counters are read for the first time.
    pub(crate) after: Picos,
}

impl Begin {
    /// At the common start, and without gauges.
    pub(crate) const AT_START: Self = Self { census: false, after: Picos(0) };
}

/// A task in a thread or in a process of its own: the entry of the process, and the same as a function.
pub(crate) struct Body<F> {
    pub(crate) entry: &'static str,
    pub(crate) run: F,
}

/// Runs a task for each of these parameters, spread over CPUs, and counts meanwhile.
pub(crate) async fn gather<O: Os, P: Wire>(
    os: &O,
    (meet, begin): (Meet, Begin),
    model: Model,
    body: Body<impl AsyncFnOnce(O, P) -> Result<TaskOutcome, TaskError> + Copy + Send + 'static>,
    each: impl Iterator<Item = P>,
) -> Result<(Vec<TaskOutcome>, Window), WorkloadError> {
    let placed = each.zip(0..).map(|(with, index)| (with, Placement::Spread(index)));
    match model {
        Model::Threads => {
            let run = body.run;
            let thread = |(with, on)| os.spawn(on, async move |os: O| run(os, with).await);
            meet.gather(os, begin, placed.map(thread).collect()).await
        }
        Model::Processes => {
            let process = |(with, on)| os.spawn_process(on, body.entry, with);
            meet.gather(os, begin, placed.map(process).collect()).await
        }
    }
}
