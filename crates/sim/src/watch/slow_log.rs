//! The log of slow-path operations: which operation left the fast path, when, and where its time went by cause.
//!
//! An operation is in the log from the end of the step that found too little memory (or went to sleep) until it goes on with
//! what it wanted: the slow path of one allocation, or a sleep, each fault by itself. A kernel thread is in the log from when
//! it begins to work until it sleeps again. Waiting for the mmap lock alone is not logged.
//!
//! Always on: a step on the fast path pays one check. Nothing that is simulated depends on the log. Bounded: the longest
//! operations of each kind and order are kept, of equal ones those that ended first, and all are counted. Were the longest of
//! all kept, a run that waits for its disk would have no other operation in its log.

use std::{cmp::Reverse, collections::BTreeMap, fmt};

use memory::cost::Spent;
use mm::whole::daemon::{Row, Scope};
use units::{Bytes, CpuId, NodeId, Order, Picos, Time, Vpn};

use crate::{
    ids::{KernelId, TaskId, Thread},
    task::{
        TaskState,
        operation::{Operation, Progress},
    },
    world::World,
};

/// Most operations of each kind and order that are kept: some 100 KiB in a result.
const KEPT_MAX: usize = 1024;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct What {
    /// `fault`, the name of a system call, or the name of a kernel thread.
    pub name: &'static str,
    /// The node of a kernel thread that has one.
    pub node: Option<NodeId>,
    /// The number of the guest; 0 is the host, or the only kernel.
    pub guest: u16,
}

impl What {
    fn call(name: &'static str) -> Self {
        Self { name, node: None, guest: 0 }
    }

    pub(crate) fn daemon(Thread { daemon, node }: Thread) -> Self {
        let row = Row::of(daemon);
        Self { name: row.name, node: (row.scope == Scope::Node).then_some(node), guest: 0 }
    }

    fn of_kernel(self, kernel: KernelId) -> Self {
        Self { guest: kernel.0, ..self }
    }
}

impl fmt::Display for What {
    /// As the kernel names its threads: `kswapd0`, or `guest 1: kswapd0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.guest > 0 {
            write!(f, "guest {}: ", self.guest)?;
        }
        f.write_str(self.name)?;
        self.node.map_or(Ok(()), |node| node.fmt(f))
    }
}

/// One operation of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowOperation {
    /// When the operation left the fast path.
    pub start: Time,
    /// The task's number, in the order of creation.
    pub task: u32,
    /// The CPU that the task was on at `start`.
    pub cpu: CpuId,
    /// The kind of the operation.
    pub what: What,
    /// The page of a fault.
    pub vpn: Option<Vpn>,
    /// The order of the allocation, if there is one.
    pub order: Option<Order>,
    /// The time from start to end, by cause.
    pub spent: Spent,
}

/// Number of operations of a kind, and their total time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowTotal {
    /// Number of operations.
    pub count: u64,
    /// Their total time.
    pub time: Picos,
}

/// The slow operations of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowOperations {
    /// The longest operations, by start, then by task.
    pub longest: Vec<SlowOperation>,
    /// Totals of all operations, by kind.
    pub totals: BTreeMap<What, SlowTotal>,
}

/// An operation that is off the fast path.
#[derive(Clone, Debug)]
struct Open {
    /// The operation as it will be logged; `spent` is the time that its task had spent when it left the fast path.
    operation: SlowOperation,
    /// If the operation has slept and goes on: since when, and the time that its task had spent by then.
    resumed: Option<(Time, Spent)>,
}

/// The operations of a kind and order that are kept, the shortest first; of equal ones, the latest first.
type Kept = BTreeMap<(Picos, Reverse<u64>), Box<SlowOperation>>;

/// The log of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlowLog {
    open: BTreeMap<TaskId, Box<Open>>,
    kept: BTreeMap<(What, Option<Order>), Kept>,
    totals: BTreeMap<What, SlowTotal>,
    /// Number of operations that have ended.
    ended: u64,
}

impl SlowLog {
    /// Closes an operation whose task has spent this time by now.
    fn close(&mut self, mut operation: SlowOperation, spent: &Spent) {
        operation.spent = spent.since(&operation.spent);
        let time = operation.spent.total();
        if time == Picos(0) {
            // A kernel thread has checked for work, and spent no time.
            return;
        }
        let total = self.totals.entry(operation.what).or_default();
        total.count += 1;
        total.time = Picos(total.time.0.saturating_add(time.0));
        let key = (time, Reverse(self.ended));
        self.ended += 1;
        let kept = self.kept.entry((operation.what, operation.order)).or_default();
        if kept.len() == KEPT_MAX {
            if kept.first_key_value().is_some_and(|(shortest, _)| key < *shortest) {
                return;
            }
            kept.pop_first();
        }
        kept.insert(key, Box::new(operation));
    }

    fn finish(self) -> SlowOperations {
        let kept = self.kept.into_values().flat_map(Kept::into_values);
        let mut longest: Vec<SlowOperation> = kept.map(|operation| *operation).collect();
        longest.sort_by_key(|operation| (operation.start, operation.task));
        SlowOperations { longest, totals: self.totals }
    }
}

impl World {
    /// Notes, before a step, that an operation goes on after a sleep, unless it is still on the slow path of an allocation.
    #[inline]
    pub(crate) fn slow_goes_on(&mut self, id: TaskId) {
        let task = &self.tasks[id.0 as usize];
        if task.is_slow && !task.supply.is_busy() {
            let resumed = (self.cpus[task.cpu.0 as usize].clock, task.spent);
            if let Some(spans) = &mut self.spans {
                spans.spend(id, &task.spent, None, false);
            }
            let open = self.slow_log.open.get_mut(&id).expect("the task says that it is there");
            open.resumed = Some(resumed);
        }
    }

    /// Notes, after a step, whether its operation has left the fast path, or come back to it.
    #[inline]
    pub(crate) fn slow_step(&mut self, id: TaskId, progress: &Progress) {
        let task = &self.tasks[id.0 as usize];
        let is_slow = task.supply.is_busy() || matches!(progress, Progress::Block(_));
        if is_slow || task.is_slow {
            self.note_slow_step(id, is_slow);
        }
    }

    #[inline(never)]
    fn note_slow_step(&mut self, id: TaskId, is_slow: bool) {
        let Self { kernels, tasks, slow_log, cpus, why, spans, .. } = self;
        let task = &mut tasks[id.0 as usize];
        let TaskState::Kernel(operation) = &task.state else { unreachable!("an operation has taken a step") };
        let (what, vpn) = describe(operation);
        if task.is_slow {
            let open = slow_log.open.get_mut(&id).expect("the task says that it is there");
            // The fault that has slept may be over, and this may be another one.
            let is_another = open.resumed.is_some() && open.operation.vpn != vpn;
            if is_slow && !is_another {
                if let Some(symptom) = why.as_mut().and_then(|why| why.symptom.as_mut()) {
                    let start = open.operation.start;
                    symptom.is_slow(id.0, vpn, (start, cpus[task.cpu.0 as usize].clock.since(start)));
                }
                open.resumed = None;
                open.operation.order = open.operation.order.or(task.supply.order());
                return;
            }
            let open = slow_log.open.remove(&id).expect("it was just there");
            let now = (cpus[task.cpu.0 as usize].clock, task.spent);
            let (end, spent) = open.resumed.unwrap_or(now);
            let parts = spent.since(&open.operation.spent).total();
            let is_whole = end.since(open.operation.start) == parts || self.injector.done;
            assert!(is_whole, "the parts of a slow operation sum to its time");
            if let Some(symptom) = why.as_mut().and_then(|why| why.symptom.as_mut()) {
                symptom.is_slow(id.0, open.operation.vpn, (open.operation.start, parts));
            }
            if let Some(spans) = spans {
                // What was spent since the operation went on is not its own.
                spans.end_slow(id, open.resumed.is_none().then_some(&task.spent), parts);
            }
            slow_log.close(open.operation, &spent);
        }
        task.is_slow = is_slow;
        if is_slow {
            let start = cpus[task.cpu.0 as usize].clock;
            let cpu = kernels[task.kernel].number(task.cpu);
            let (what, order, spent) = (what.of_kernel(task.kernel), task.supply.order(), task.spent);
            if let Some(spans) = spans {
                spans.begin_slow(id, start, spent);
            }
            let operation = SlowOperation { start, task: id.0, cpu, what, vpn, order, spent };
            slow_log.open.insert(id, Box::new(Open { operation, resumed: None }));
        }
    }

    /// Notes that a kernel thread works, if it did not before.
    #[inline]
    pub(crate) fn slow_daemon(&mut self, id: TaskId, cpu: CpuId, thread: Thread) {
        let task = &mut self.tasks[id.0 as usize];
        if !std::mem::replace(&mut task.is_slow, true) {
            let (start, what) = (self.cpus[cpu.0 as usize].clock, What::daemon(thread).of_kernel(task.kernel));
            let cpu = self.kernels[task.kernel].number(cpu);
            if let Some(spans) = &mut self.spans {
                spans.begin_slow(id, start, task.spent);
            }
            let operation = SlowOperation { start, task: id.0, cpu, what, vpn: None, order: None, spent: task.spent };
            self.slow_log.open.insert(id, Box::new(Open { operation, resumed: None }));
        }
    }

    /// Notes that a kernel thread goes to sleep.
    pub(crate) fn slow_daemon_sleeps(&mut self, id: TaskId) {
        let task = &mut self.tasks[id.0 as usize];
        if std::mem::take(&mut task.is_slow) {
            let open = self.slow_log.open.remove(&id).expect("the task says that it is there");
            if let Some(spans) = &mut self.spans {
                spans.end_slow(id, Some(&task.spent), task.spent.since(&open.operation.spent).total());
            }
            self.slow_log.close(open.operation, &task.spent);
        }
    }

    /// The log of a run that has ended; operations that are not over are in it with their time so far.
    pub(crate) fn take_slow_operations(&mut self) -> SlowOperations {
        let mut log = std::mem::take(&mut self.slow_log);
        for (id, open) in std::mem::take(&mut log.open) {
            let spent = &self.tasks[id.0 as usize].spent;
            if let Some(spans) = &mut self.spans {
                spans.end_slow(id, Some(spent), spent.since(&open.operation.spent).total());
            }
            log.close(open.operation, spent);
        }
        log.finish()
    }
}

impl Operation {
    /// `fault`, or the name of the system call.
    pub(crate) fn name(&self) -> &'static str {
        describe(self).0.name
    }

    /// The page that comes next, of an operation that accesses pages in turn.
    pub(crate) fn page(&self) -> Option<Vpn> {
        describe(self).1
    }
}

/// The kind of an operation, and the page of a fault.
fn describe(operation: &Operation) -> (What, Option<Vpn>) {
    let call = |name| (What::call(name), None);
    match operation {
        Operation::Touch(touch) => (What::call("fault"), Some(Vpn(touch.next().0 / Bytes::PAGE.0))),
        // The page of such accesses is not known here.
        Operation::Access { .. } => call("access"),
        Operation::Hint(_) => call("hint"),
        Operation::Scan { then, .. } => describe(then),
        Operation::Compute { .. } => call("compute"),
        Operation::Pin { pin, .. } => (What::call("pin"), Some(pin.next())),
        Operation::NodeOf { .. } => call("move_pages"),
        Operation::File { operation, .. } => call(operation.name()),
        Operation::Mmap { .. } => call("mmap"),
        Operation::Munmap { .. } => call("munmap"),
        Operation::Madvise { .. } | Operation::Discard { .. } => call("madvise"),
        Operation::Mincore { .. } => call("mincore"),
        Operation::Fork { .. } => call("fork"),
        Operation::Exit(_) => call("exit"),
    }
}

#[cfg(test)]
mod tests {
    use memory::{cost::Cause, news::Daemon};

    use super::*;

    fn operation(start: u64) -> SlowOperation {
        let (task, cpu, what) = (0, CpuId(0), What::call("fault"));
        SlowOperation { start: Time(start), task, cpu, what, vpn: None, order: None, spent: Spent::default() }
    }

    fn spent(picos: u64) -> Spent {
        let mut spent = Spent::default();
        spent.add_on(Cause::Migrate, Picos(picos));
        spent
    }

    #[test]
    fn the_longest_are_kept_and_of_equal_ones_the_first() {
        let mut log = SlowLog::default();
        let most = KEPT_MAX as u64;
        (0..most).for_each(|start| log.close(operation(start), &spent(5)));
        // Longer than some; as long as all that are left; shorter; and one that took no time.
        (most..most + 3).for_each(|start| log.close(operation(start), &spent(6)));
        log.close(operation(most + 3), &spent(5));
        log.close(operation(most + 4), &spent(4));
        log.close(operation(most + 5), &spent(0));
        // Another kind and another order have room of their own.
        log.close(SlowOperation { what: What::call("fsync"), ..operation(most + 6) }, &spent(1));
        log.close(SlowOperation { order: Some(Order::HUGE), ..operation(most + 7) }, &spent(1));
        let mut all = log.finish();
        let others: Vec<u64> = all.longest.split_off(KEPT_MAX).iter().map(|operation| operation.start.0).collect();
        assert_eq!(others, [most + 6, most + 7]);
        let starts: Vec<u64> = all.longest.iter().map(|operation| operation.start.0).collect();
        assert_eq!(starts, (0..most - 3).chain(most..most + 3).collect::<Vec<_>>());
        let faults = SlowTotal { count: most + 6, time: Picos(5 * most + 6 * 3 + 5 + 4 + 1) };
        let fsync = SlowTotal { count: 1, time: Picos(1) };
        assert_eq!(all.totals, [(What::call("fault"), faults), (What::call("fsync"), fsync)].into());
    }

    #[test]
    fn kernel_threads_are_called_as_the_kernel_does() {
        let name = |daemon, node| What::daemon(Thread { daemon, node: NodeId(node) }).to_string();
        let names = [name(Daemon::Kswapd, 1), name(Daemon::Kcompactd, 0), name(Daemon::Khugepaged, 0)];
        assert_eq!(names, ["kswapd1", "kcompactd0", "khugepaged"]);
        let of_guest = What::daemon(Thread { daemon: Daemon::Kswapd, node: NodeId(0) }).of_kernel(KernelId(2));
        assert_eq!(of_guest.to_string(), "guest 2: kswapd0");
    }
}
