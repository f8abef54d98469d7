//! Linux: tracepoints (include/trace/events/kmem.h, vmscan.h, compaction.h, v6.1).
//! Differs: a fact has the numbers that its decision was made by, where a tracepoint has some of them.
//!
//! Facts are recorded where a decision is made, and only while an observer has lent a step its list (`Cx::tell_facts`).
//! Otherwise the place pays one branch, and nothing is made. No mechanism reads a fact.

mod reasons;

use rules::{
    gfp::{Mark, Mobility},
    zone::ZoneKind,
};
use serde::{Deserialize, Serialize};
use units::{CpuId, NodeId, Order, Picos, Time};

pub use self::reasons::{Collapsed, Device, HintVerdict, Settled, Throttle};
use crate::{
    decision::{Decision, Otherwise},
    tally::{Place, Tally},
};

/// A fact, with its instant and the control whose step recorded it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The instant.
    pub at: Time,
    /// The number of the control: of a task, its own.
    pub by: u32,
    /// The number of the kernel: 0 is the only one or the host, 1 the first guest.
    #[serde(default, skip_serializing_if = "is_first")]
    pub kernel: u16,
    /// The fact.
    pub fact: Fact,
}

impl Told {
    /// The decision that the fact tells of, and its instant; none if there is nothing that could be otherwise.
    pub fn decision(&self) -> Option<(Decision, Time)> {
        let decision = match &self.fact {
            Fact::WakeupKswapd { kswapd: Kswapd::Woken, .. } => Decision::WakeKswapd,
            Fact::DeferCompaction { .. } => Decision::Defer,
            Fact::CompactionDeferred { .. } => Decision::Deferred,
            Fact::CompactionBegin { .. } => Decision::Compact,
            Fact::ReclaimBegin { .. } => Decision::Reclaim,
            Fact::Waited { cause, since, .. } => {
                return match cause.as_str() {
                    "run queue" => Some((Decision::Preempt, *since)),
                    "disk" | "swap" | "throttle" => Some((Decision::Sleep, *since)),
                    _ => None,
                };
            }
            _ => return None,
        };
        Some((decision, self.at))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first(kernel: &u16) -> bool {
    *kernel == 0
}

/// A zone of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ZoneName {
    /// The node.
    pub node: NodeId,
    /// Which of the node's zones.
    pub kind: ZoneKind,
}

impl From<ZoneName> for Place {
    fn from(ZoneName { node, kind }: ZoneName) -> Self {
        Self::Zone(node, kind)
    }
}

/// Free frames of a zone, and the frames that a request must leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Free frames.
    pub free: u64,
    /// Free blocks by order, from 0 up: a line of /proc/buddyinfo.
    pub blocks: Vec<u64>,
    /// The mark that was asked for, without boost.
    pub mark: u64,
    /// Frames by which the mark is raised (`watermark_boost`).
    pub boost: u64,
    /// Frames that the zone keeps from the request (`lowmem_reserve` and free HIGHATOMIC ones).
    pub keeps: u64,
    /// More frames than these must be free: the mark as the request's urgency lowers it, the boost, the frames that are kept, and
    /// the block.
    pub needs: u64,
}

/// Why a zone was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lacks {
    /// Too few frames are free above the mark.
    Frames,
    /// Enough frames are free, in blocks that are too small.
    Block,
    /// The mark holds, and the lists that the request may take from are empty.
    List,
}

/// The answer of a node's kswapd to a request for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kswapd {
    /// Kswapd slept, and was woken.
    Woken,
    /// Kswapd was awake already.
    Awake,
    /// Kswapd sleeps on: it has failed too often (`kswapd_failures`).
    Hopeless,
    /// Kswapd sleeps on: the node has room by kswapd's own test (`pgdat_balanced`).
    Content,
}

/// The result of a test or a run of compaction, as `mm_compaction_end` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// Too few free frames to move pages to.
    Skipped,
    /// The scanners met after the whole zone.
    Complete,
    /// The scanners met, but had not begun at the ends of the zone.
    PartialSkipped,
    /// Another task wanted the lock or the CPU.
    Contended,
    /// There is a block.
    Success,
    /// Compaction is deferred.
    Deferred,
}

/// A fact of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// The lists of a CPU could not serve a request: zones are looked at.
    Request {
        /// The request's order.
        order: Order,
        /// The request's mobility.
        mobility: Mobility,
        /// The node that is tried first.
        node: NodeId,
        /// Whether the request may reclaim and compact.
        reclaims: bool,
    },
    /// A zone was passed over (`get_page_from_freelist`).
    PassedOver {
        /// The zone.
        zone: ZoneName,
        /// The request's order.
        order: Order,
        /// The mark that the zone was held against.
        mark: Mark,
        /// The zone's free memory.
        room: Room,
        /// The lack of the zone.
        lacks: Lacks,
    },
    /// The request enters the slow path (`__alloc_pages_slowpath`).
    SlowPath {
        /// The request's order.
        order: Order,
    },
    /// The slow path ends.
    SlowPathEnd {
        /// The request's order.
        order: Order,
        /// Whether there is a block.
        found: bool,
    },
    /// A request asks kswapd for room (`mm_vmscan_wakeup_kswapd`).
    WakeupKswapd {
        /// The node of the thread.
        node: NodeId,
        /// The order that is asked for.
        order: Order,
        /// The answer.
        kswapd: Kswapd,
    },
    /// The test whether a zone is worth compacting says no (`mm_compaction_suitable`).
    CompactionUnsuitable {
        /// The zone.
        zone: ZoneName,
        /// The request's order.
        order: Order,
        /// Skipped, or success: there is a block.
        result: Compaction,
        /// Free frames of the zone.
        free: u64,
    },
    /// Compaction of a zone is deferred (`mm_compaction_deferred`).
    CompactionDeferred {
        /// The zone.
        zone: ZoneName,
        /// The request's order.
        order: Order,
        /// log2 of the number of requests of which the last is let through.
        shift: u8,
        /// Requests since the failure, with this one.
        considered: u32,
    },
    /// A failed run defers compaction of a zone (`mm_compaction_defer_compaction`).
    DeferCompaction {
        /// The zone.
        zone: ZoneName,
        /// The order of the run.
        order: Order,
        /// The new shift.
        shift: u8,
    },
    /// A run begins in a zone (`mm_compaction_begin`).
    CompactionBegin {
        /// The zone.
        zone: ZoneName,
        /// The wanted order; none: the whole zone.
        order: Option<Order>,
        /// Whether the run waits for locks.
        sync: bool,
    },
    /// A run ends (`mm_compaction_end`).
    CompactionEnd {
        /// The zone.
        zone: ZoneName,
        /// The result.
        result: Compaction,
        /// Frames that the migrate scanner has looked at.
        migrate_scanned: u64,
        /// Frames that the free scanner has looked at.
        free_scanned: u64,
        /// Pages that have moved.
        moved: u64,
        /// Pages that could not be moved.
        failed: u64,
    },
    /// Direct reclaim begins (`mm_vmscan_direct_reclaim_begin`).
    ReclaimBegin {
        /// The request's order.
        order: Order,
    },
    /// Direct reclaim ends (`mm_vmscan_direct_reclaim_end`).
    ReclaimEnd {
        /// Pages that were looked at.
        scanned: u64,
        /// Pages that were reclaimed.
        reclaimed: u64,
        /// The priority of the last round, from 12 down to 0.
        priority: u8,
    },
    /// The OOM killer has chosen a process.
    OomKill {
        /// The number of the process's address space.
        space: u32,
    },
    /// A fault falls back to base pages (`thp_fault_fallback`).
    ThpFallback,
    /// A CPU waits for a spin lock.
    SpinWait {
        /// The cause that the wait is charged to: the lock's name.
        lock: String,
        /// The CPU that held the lock last.
        holder: CpuId,
        /// The task that ran on that CPU at the end of the hold.
        by: Option<String>,
        /// The end of the wait.
        until: Time,
    },
    /// A task slept or had no CPU, since this instant up to the fact's.
    Waited {
        /// The cause of the wait.
        cause: String,
        /// The begin of the wait.
        since: Time,
        /// The task that had the CPU, or holds the lock.
        behind: Option<String>,
    },
    /// A request is sent to a device.
    Sent {
        /// The device.
        device: Device,
        /// Whether the device writes.
        is_write: bool,
        /// Pages of the request.
        pages: u64,
        /// The end of the request.
        done: Time,
        /// The earlier end of the request that these pages have joined.
        joins: Option<Time>,
        /// The time that sending it takes.
        took: Picos,
    },
    /// A task begins to wait for a device.
    DeviceWait {
        /// The device.
        device: Device,
        /// The request that ends then: whether it writes, and the task that has sent it. None: the device has none, and the
        /// wait is a pause until memory is there.
        request: Option<(bool, String)>,
        /// Pages of reads that end before that.
        reads: u64,
        /// Pages of writes that end before that.
        writes: u64,
        /// The task that has sent most of these pages.
        most: Option<String>,
        /// The end of the wait.
        until: Time,
    },
    /// A task is held back.
    Throttled {
        /// The reason.
        by: Throttle,
        /// Pages that there are, in the sense of the reason.
        has: u64,
        /// The limit that they are held against.
        limit: u64,
        /// The latest end of the pause.
        until: Time,
    },
    /// Other CPUs are interrupted to flush their TLBs.
    Shootdown {
        /// Number of interrupted CPUs.
        cpus: u32,
        /// Number of such interrupts in a row.
        times: u64,
        /// Pages that are flushed one by one; 0 is the whole TLB.
        pages: u64,
        /// The cause that is charged: the mechanism that asks for the flush, where it is one with a cause of its own.
        cause: String,
        /// The time that the sender waits.
        took: Picos,
    },
    /// The CPU does the flushes that other CPUs have asked for.
    Interrupted {
        /// Number of interrupts.
        times: u64,
        /// Pages that are flushed one by one.
        pages: u64,
        /// Interrupts that flush the whole TLB.
        whole: u64,
        /// The time of the interrupts and of the flushes.
        took: Picos,
    },
    /// Pages were cleared.
    Cleared {
        /// The node of the page.
        node: NodeId,
        /// The node of the CPU.
        here: NodeId,
        /// Their distance; 10 is none.
        distance: u32,
        /// Base pages.
        pages: u64,
        /// The time, without waits for the memory's bandwidth.
        took: Picos,
    },
    /// Pages were copied.
    Copied {
        /// The node that is read.
        from: NodeId,
        /// The node that is written.
        to: NodeId,
        /// Their distance; 10 is none.
        distance: u32,
        /// Base pages.
        pages: u64,
        /// The time, without waits for the memory's bandwidth.
        took: Picos,
    },
    /// The CPU waits for a node's memory, which others use too.
    MemoryBusy {
        /// The node.
        node: NodeId,
        /// Base pages that are read or written.
        pages: u64,
        /// The time beyond that of a CPU alone.
        waits: Picos,
    },
    /// A NUMA hinting fault on a page (`numa_hint_faults`).
    HintFault {
        /// The node of the page.
        node: NodeId,
        /// The node of the CPU.
        here: NodeId,
        /// Base pages of the folio.
        pages: u64,
        /// The decision (`mpol_misplaced`).
        hinted: HintVerdict,
    },
    /// The move of a misplaced page has ended (`migrate_misplaced_page`).
    HintMove {
        /// The wanted node.
        to: NodeId,
        /// The result.
        settled: Settled,
    },
    /// Khugepaged has tried to collapse a range (`mm_collapse_huge_page`).
    Collapse {
        /// The node of the huge page.
        node: NodeId,
        /// The result.
        result: Collapsed,
    },
    /// Kswapd has ended a pass over its node, or over one of its zones.
    KswapdPass {
        /// The node.
        node: NodeId,
        /// The zone; none: the whole node.
        zone: Option<ZoneKind>,
        /// The order that is wanted.
        order: Order,
        /// The priority, from 12 down to 1.
        priority: u8,
        /// Pages that were looked at.
        scanned: u64,
        /// Pages that were reclaimed.
        reclaimed: u64,
    },
    /// Kcompactd begins to work (`mm_compaction_kcompactd_wake`).
    KcompactdWork {
        /// The node.
        node: NodeId,
        /// The wanted order; none: the score of the node is to be lowered.
        order: Option<Order>,
    },
}

impl Fact {
    /// Adds a fact that directly follows this one, if together they are one fact with larger numbers.
    pub fn absorb(&mut self, next: &Self) -> bool {
        match (self, next) {
            (
                Self::Copied { from, to, pages, took, .. },
                Self::Copied { from: from2, to: to2, pages: more, took: longer, .. },
            ) if (*from, *to) == (*from2, *to2) => (*pages, *took) = (*pages + more, *took + *longer),
            (
                Self::Cleared { node, here, pages, took, .. },
                Self::Cleared { node: node2, here: here2, pages: more, took: longer, .. },
            ) if (*node, *here) == (*node2, *here2) => (*pages, *took) = (*pages + more, *took + *longer),
            (Self::MemoryBusy { node, pages, waits }, Self::MemoryBusy { node: node2, pages: more, waits: longer })
                if node == node2 =>
            {
                (*pages, *waits) = (*pages + more, *waits + *longer);
            }
            (
                Self::Shootdown { cpus, times, pages, cause, took },
                Self::Shootdown { cpus: cpus2, times: again, pages: more, cause: cause2, took: longer },
            ) if (*cpus, &*cause, *pages == 0) == (*cpus2, cause2, *more == 0) => {
                (*times, *pages, *took) = (*times + again, *pages + more, *took + *longer);
            }
            _ => return false,
        }
        true
    }
}

/// The facts of steps, until their observer takes them, and the counts of the tests that steps have asked.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    told: Vec<Told>,
    kernel: u16,
    is_detailed: bool,
    /// The decision that is taken otherwise, if there is one.
    pub otherwise: Option<Otherwise>,
    /// How often each test was asked, and failed.
    pub tally: Tally,
}

impl Facts {
    /// Begins a step of a kernel. `is_detailed`: facts are wanted that only the step's own operation is explained by.
    pub fn begin(&mut self, kernel: u16, is_detailed: bool) {
        (self.kernel, self.is_detailed) = (kernel, is_detailed);
    }

    /// Whether details are wanted.
    pub fn is_detailed(&self) -> bool {
        self.is_detailed
    }

    /// Records a fact.
    pub fn tell(&mut self, at: Time, by: u32, fact: Fact) {
        let is_absorbed = self.told.last_mut().is_some_and(|last| last.by == by && last.fact.absorb(&fact));
        if !is_absorbed {
            self.told.push(Told { at, by, kernel: self.kernel, fact });
        }
    }

    /// Whether a decision of a control is taken otherwise at this instant.
    pub fn decides_otherwise(&self, at: Time, by: u32, decision: Decision) -> bool {
        self.otherwise == Some(Otherwise { at, by, decision })
    }

    /// Takes all facts since the last call.
    pub fn take(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_tells_of_the_decision_that_can_be_otherwise() {
        let told = |fact| Told { at: Time(7), by: 1, kernel: 0, fact };
        let zone = ZoneName { node: NodeId(0), kind: ZoneKind::Normal };
        let begin = told(Fact::CompactionBegin { zone, order: Some(Order::HUGE), sync: true });
        assert_eq!(begin.decision(), Some((Decision::Compact, Time(7))));
        let (result, migrate_scanned, free_scanned, moved, failed) = (Compaction::Complete, 0, 0, 0, 0);
        let end = told(Fact::CompactionEnd { zone, result, migrate_scanned, free_scanned, moved, failed });
        assert_eq!(end.decision(), None, "an end follows from what was found");
        let waited = |cause: &str| told(Fact::Waited { cause: cause.to_owned(), since: Time(3), behind: None });
        assert_eq!(waited("run queue").decision(), Some((Decision::Preempt, Time(3))));
        assert_eq!(waited("disk").decision(), Some((Decision::Sleep, Time(3))));
        assert_eq!(waited("mmap lock").decision(), None);
        let kswapd = |kswapd| told(Fact::WakeupKswapd { node: NodeId(0), order: Order::BASE, kswapd });
        assert_eq!(kswapd(Kswapd::Woken).decision(), Some((Decision::WakeKswapd, Time(7))));
        assert_eq!(kswapd(Kswapd::Awake).decision(), None);
    }
}
