//! Linux: kthread_run() of mm/vmscan.c, mm/compaction.c, mm/khugepaged.c and fs/fs-writeback.c (v6.1), and work of mm/slab.c
//! (v4.20): the kernel threads of memory management, one row each.
//! Differs: the work of the threads is here; `sim` decides when and where they run, by what this table says.
//!
//! A new kernel thread is a file with its state and its step, a name in `news.rs`, and a row here.

use memory::{cx::Cx, frame::Holdings, news::Daemon, slab::REAP_CPU, step::Step};
use rules::variant::ThpRequests;
use units::{NodeId, Picos};

use crate::{Mm, Spaces, compact::kcompactd::CHECK_INTERVAL, thp::khugepaged::NeedsLock};

/// One per node, per CPU, or per machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One per node, which runs on the node's CPUs.
    Node,
    /// One per CPU, which runs there. A thread with a timer runs at the same times on all CPUs, but for three jiffies more
    /// for each CPU before (`round_jiffies_relative`).
    Cpu,
    /// The machine has one, which runs anywhere.
    Machine,
}

/// The node and the lock of a daemon's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The thread's node; without meaning for a thread of the machine.
    pub node: NodeId,
    /// The thread holds the lock that it needs ([`Row::needs`]). A step may run without the lock if that is a try.
    pub has_lock: bool,
}

/// A row of the table of kernel threads.
#[derive(Debug)]
pub struct Row {
    /// The thread's name, without the node's number (`comm`).
    pub name: &'static str,
    /// One per node, per CPU, or per machine.
    pub scope: Scope,
    /// Nice level of the thread (`set_user_nice`).
    pub nice: i8,
    /// Whether this kernel has the thread.
    pub exists: fn(&Mm) -> bool,
    /// Time between two wake-ups by the thread's timer, from boot on; none if it waits to be woken.
    pub period: fn(&Mm) -> Option<Picos>,
    /// Whether the thread only waits for its timer. Then it does not keep the run from ending.
    pub is_idle: fn(&Mm, NodeId) -> bool,
    /// The process whose mmap lock the next step needs; the thread keeps it until a step needs another lock.
    pub needs: fn(&Mm, &Spaces) -> Option<NeedsLock>,
    /// Returns the frames that the thread holds between two steps.
    pub holdings: fn(&Mm, NodeId) -> Holdings,
    step: fn(&mut Mm, &mut Spaces, &mut Cx<'_>, Turn) -> Step<()>,
}

macro_rules! rows {
    ($($daemon:ident { $($field:tt)* })*) => {
        impl Row {
            /// The row of a kernel thread.
            pub fn of(daemon: Daemon) -> &'static Self {
                match daemon {
                    $(Daemon::$daemon => {
                        static ROW: Row = Row { $($field)* };
                        &ROW
                    })*
                }
            }
        }
    };
}

fn always(_: &Mm) -> bool {
    true
}

fn no_lock(_: &Mm, _: &Spaces) -> Option<NeedsLock> {
    None
}

rows! {
    Kswapd {
        name: "kswapd",
        scope: Scope::Node,
        nice: 0,
        exists: always,
        period: |_| None,
        is_idle: |_, _| false,
        needs: no_lock,
        holdings: |mm, node| mm.kswapds[node].holdings(),
        step: |mm, spaces, cx, turn| mm.step_kswapd(spaces, cx, turn.node),
    }
    Flusher {
        name: "flush",
        scope: Scope::Machine,
        nice: 0,
        exists: always,
        period: |_| None,
        is_idle: |mm, _| mm.is_flusher_idle(),
        needs: no_lock,
        holdings: |mm, _| mm.flusher_holdings(),
        step: |mm, spaces, cx, _| mm.step_flusher(spaces, cx),
    }
    Kcompactd {
        name: "kcompactd",
        scope: Scope::Node,
        nice: 0,
        exists: always,
        period: |mm| mm.is_proactive().then_some(CHECK_INTERVAL),
        is_idle: Mm::is_kcompactd_idle,
        needs: no_lock,
        holdings: Mm::kcompactd_holdings,
        step: |mm, spaces, cx, turn| mm.step_kcompactd(spaces, cx, turn.node),
    }
    Khugepaged {
        name: "khugepaged",
        scope: Scope::Machine,
        nice: 19,
        exists: always,
        period: |_| None,
        is_idle: |mm, _| mm.khugepaged.is_asleep(),
        needs: Mm::khugepaged_needs,
        holdings: |mm, _| mm.khugepaged.holdings(),
        step: |mm, spaces, cx, turn| mm.step_khugepaged(spaces, cx, turn.has_lock),
    }
    ThpThread {
        name: "kthpd",
        scope: Scope::Node,
        nice: 19,
        exists: |mm| mm.memory.variant().thp_requests == ThpRequests::NodeThreads,
        period: |_| None,
        is_idle: |mm, node| mm.thp_threads[node].is_idle(),
        needs: no_lock,
        holdings: |mm, node| mm.thp_threads[node].holdings(),
        step: |mm, spaces, cx, turn| mm.step_thp_thread(spaces, cx, turn.node),
    }
    Reporter {
        name: "kworker/reporting",
        scope: Scope::Machine,
        nice: 0,
        exists: Mm::has_reporting,
        period: |_| None,
        is_idle: |mm, _| mm.is_reporter_idle(),
        needs: no_lock,
        holdings: |mm, _| mm.reporter_holdings(),
        step: |mm, _, cx, _| mm.step_reporter(cx),
    }
    CacheReap {
        name: "kworker/cache_reap",
        scope: Scope::Cpu,
        nice: 0,
        exists: |mm| mm.memory.reaps_caches(),
        period: |mm| mm.memory.reaps_caches().then_some(REAP_CPU),
        is_idle: |_, _| true,
        needs: no_lock,
        holdings: |_, _| Holdings::default(),
        step: |mm, _, cx, _| mm.memory.step_cache_reap(cx),
    }
    Balloon {
        name: "kworker/balloon",
        scope: Scope::Machine,
        nice: 0,
        exists: Mm::has_balloon,
        period: |_| None,
        is_idle: |mm, _| mm.is_balloon_idle(),
        needs: no_lock,
        holdings: |mm, _| mm.balloon_holdings(),
        step: |mm, spaces, cx, _| mm.step_balloon(spaces, cx),
    }
}

impl Mm {
    /// Takes a step of a kernel thread, or lets it sleep. Threads never end.
    pub fn step_daemon(&mut self, daemon: Daemon, spaces: &mut Spaces, cx: &mut Cx<'_>, turn: Turn) -> Step<()> {
        (Row::of(daemon).step)(self, spaces, cx, turn)
    }
}
