//! Linux: kernel/hung_task.c (v6.1) warns of a task that has not run for 120 s; a kernel that loops for ever says nothing.
//! Differs: a run in which no task makes progress is ended, unless pages reach the disk: a sync(2) of much memory to a slow
//! disk takes minutes, in which the flusher alone works. The bounds count turns and virtual time, and so are equal on every
//! host. Until one is reached a turn pays three comparisons; the last turns are recorded from then on.

use std::fmt;

use memory::event::Event;
use units::{Picos, Time};

use crate::{
    clock::Next,
    ids::{HOST, KernelId, TaskId},
    task::{Task, TaskState},
    watch::slow_log::What,
    world::World,
};

/// The bounds of a run without progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Turns in a row after which virtual time must have moved.
    pub still: u64,
    /// Turns in a row after which some task must have made progress, unless a task sleeps.
    pub vain: u64,
    /// Virtual time after which some task must have made progress, beyond the time for which tasks asked to sleep.
    pub span: Picos,
}

impl Default for Bounds {
    /// Far above what the built-in experiments reach; the span is `kernel.hung_task_timeout_secs`
    /// (Documentation/admin-guide/sysctl/kernel.rst).
    fn default() -> Self {
        Self { still: 1 << 24, vain: 1 << 25, span: Picos::from_secs(120) }
    }
}

/// Number of last turns that are reported.
const EVENTS: usize = 10;
/// Most tasks that are reported.
const TASKS: usize = 16;

/// The bound that a run has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// This number of turns in which virtual time has not moved.
    Still(u64),
    /// This number of turns and this virtual time in which no task has made progress.
    Vain(u64, Picos),
}

/// A run that would never end: the bound that it reached, and what its tasks wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Livelock {
    /// The bound.
    pub stuck: Stuck,
    /// Virtual time from the start of the run.
    pub after: Picos,
    /// Each task that has not ended, and each kernel thread that is awake, with what it waits for.
    pub tasks: Vec<String>,
    /// Free pages and marks of each zone.
    pub zones: Vec<String>,
    /// The last turns.
    pub events: Vec<String>,
}

impl fmt::Display for Livelock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "livelock after {:.6} s of virtual time: ", self.after.as_secs_f64())?;
        match self.stuck {
            Stuck::Still(turns) => writeln!(f, "it has not moved in {turns} turns")?,
            Stuck::Vain(turns, span) => {
                writeln!(f, "no task has got on for {:.3} s and {turns} turns", span.as_secs_f64())?;
            }
        }
        for (heading, lines) in [("tasks", &self.tasks), ("zones, in pages", &self.zones), ("last turns", &self.events)]
        {
            write!(f, "  {heading}:")?;
            for line in lines {
                write!(f, "\n    {line}")?;
            }
            if heading != "last turns" {
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

/// The watch over a run's progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchdog {
    pub(crate) bounds: Bounds,
    /// The last instant at which a task made progress: its user half ran, or a step of its operation did more than wait for
    /// memory.
    pub(crate) progressed: Time,
    /// Pages that all kernels had written to their disks when a bound was last looked at.
    written: u64,
    /// The turns since a bound was reached.
    events: Vec<String>,
    /// The end of the run.
    pub(crate) found: Option<Box<Livelock>>,
}

impl World {
    /// A task gets on at an instant.
    #[inline]
    pub(crate) fn gets_on(&mut self, at: Time) {
        self.watchdog.progressed = at;
        self.clock.get_on();
    }

    /// A bound may have been reached before a turn: true where the run ends. The next bounds are set here.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_livelock(&mut self, next: Next) -> bool {
        let now = self.clock.latest_start();
        if self.has_written() {
            self.gets_on(now.max(self.watchdog.progressed));
        }
        let (still, vain) = (self.clock.still(), self.clock.vain());
        let Watchdog { bounds, progressed, .. } = self.watchdog;
        // A user half that sleeps is not stuck, however long it has said that it will.
        let asleep = self.tasks.iter().filter(|task| matches!(task.state, TaskState::Blocked));
        let from = asleep.filter_map(|task| task.sleeps_until).max().unwrap_or_default().max(progressed);
        let stuck = if still >= bounds.still {
            Stuck::Still(still)
        } else if now > from + bounds.span || (vain >= bounds.vain && from <= now) {
            Stuck::Vain(vain, now.max(progressed).since(progressed))
        } else {
            self.watchdog.events.clear();
            let vain_max = if vain >= bounds.vain { vain + bounds.vain } else { bounds.vain };
            self.clock.look_again(from + bounds.span, bounds.still, vain_max);
            return false;
        };
        if self.watchdog.events.len() < EVENTS {
            let event = self.event(next);
            self.watchdog.events.push(event);
            return false;
        }
        self.watchdog.found = Some(Box::new(Livelock {
            stuck,
            after: now.max(self.begin).since(self.begin),
            tasks: self.stuck_tasks(),
            zones: self.zones_in_words(),
            events: std::mem::take(&mut self.watchdog.events),
        }));
        true
    }

    /// Whether pages have reached a disk since this was last asked.
    fn has_written(&mut self) -> bool {
        let written = self.kernels.all().map(|kernel| kernel.counters.get(Event::NrWritten)).sum();
        std::mem::replace(&mut self.watchdog.written, written) < written
    }

    fn event(&self, next: Next) -> String {
        match next {
            Next::Timer { at, task } => format!("{}  a timer of {}", instant(at), self.name_of(task)),
            Next::Cpu { cpu, clock, .. } => {
                let running = self.cpus[cpu.0 as usize].running;
                let doing = |id| format!("{}: {}", self.name_of(id), self.doing(id));
                format!("{}  CPU {cpu}: {}", instant(clock), running.map_or_else(|| "switches".to_owned(), doing))
            }
            Next::Nothing => "nothing".to_owned(),
        }
    }

    /// All that are not at their end, but for kernel threads that sleep.
    fn stuck_tasks(&self) -> Vec<String> {
        let is_there = |task: &Task| !matches!(task.state, TaskState::Ended | TaskState::Asleep(_));
        let ids = (0..).zip(&self.tasks).filter(|(_, task)| is_there(task)).map(|(id, _)| TaskId(id));
        let ids: Vec<_> = ids.collect();
        let told = ids.iter().take(TASKS).map(|id| format!("{}: {}", self.name_of(*id), self.doing(*id)));
        let more = ids.len().checked_sub(TASKS).filter(|more| *more > 0);
        told.chain(more.map(|more| format!("and {more} more"))).collect()
    }

    /// A task's name, and its activity in words.
    pub(crate) fn name_and_work(&self, id: TaskId) -> String {
        let name = self.kernels[self.tasks[id.0 as usize].kernel].name_of(id);
        format!("{name} ({})", self.doing(id))
    }

    fn name_of(&self, id: TaskId) -> String {
        let task = &self.tasks[id.0 as usize];
        let name = match task.state {
            TaskState::Daemon(thread) | TaskState::Asleep(thread) | TaskState::DaemonLockWait(thread) => {
                What::daemon(thread).to_string()
            }
            _ => format!("task-{}", id.0),
        };
        format!("{name}{}", of_guest(task.kernel))
    }

    /// The activity of a task in words, with what the task waits for.
    fn doing(&self, id: TaskId) -> String {
        let task = &self.tasks[id.0 as usize];
        let lock = || format!("the mmap lock of process {} since {}", task.lock_of.0, instant(task.lock_since));
        match &task.state {
            TaskState::User | TaskState::Answered(_) => "user code".to_owned(),
            TaskState::Kernel(operation) => match task.supply.order() {
                Some(order) => format!("{}, makes room for a block of order {order}", operation.name()),
                None => operation.name().to_owned(),
            },
            TaskState::LockWait(operation) => format!("{}, waits for {}", operation.name(), lock()),
            TaskState::Sleeping(operation, slumber) => {
                let (cause, since) = (slumber.cause.name(), instant(slumber.since));
                format!("{}, sleeps for {cause} since {since}", operation.name())
            }
            TaskState::Blocked => self.blocked_for(id),
            TaskState::Daemon(_) => "runs".to_owned(),
            TaskState::DaemonLockWait(_) => format!("waits for {}", lock()),
            TaskState::Asleep(_) => "sleeps".to_owned(),
            TaskState::Ended => "has ended".to_owned(),
        }
    }

    fn blocked_for(&self, id: TaskId) -> String {
        if let Some(until) = self.tasks[id.0 as usize].sleeps_until {
            return format!("sleeps until {}", instant(until));
        }
        if let Some(meeting) = self.meetings.iter().find(|meeting| meeting.waiting.contains(&id)) {
            return format!("waits at a barrier, where {} of {} are", meeting.waiting.len(), meeting.parties);
        }
        match self.tasks.iter().position(|task| task.joiners.contains(&id)) {
            Some(other) => format!("waits for the end of task-{other}"),
            None => "waits to be asked".to_owned(),
        }
    }

    fn zones_in_words(&self) -> Vec<String> {
        let of_kernel = |(kernel, memory): (u16, &crate::kernel::Kernel)| {
            let zones = memory.mm.memory.zones().iter().filter(|zone| zone.managed > 0);
            let words = zones.map(|zone| {
                let (marks, free) = (zone.marks, zone.free_frames());
                let (min, low, high) = (marks.min.0, marks.low.0, marks.high.0);
                let (node, kind, guest) = (zone.node, zone.kind.name(), of_guest(KernelId(kernel)));
                format!(
                    "node {node} {kind}{guest}: free {free}, min {min}, low {low}, high {high}, boost {}",
                    zone.boost
                )
            });
            words.collect::<Vec<_>>()
        };
        (0..).zip(self.kernels.all()).flat_map(of_kernel).collect()
    }
}

fn of_guest(kernel: KernelId) -> String {
    if kernel == HOST { String::new() } else { format!(" of guest {}", kernel.0) }
}

fn instant(at: Time) -> String {
    format!("{:.6} s", Picos(at.0).as_secs_f64())
}
