//! Linux: task_numa_find_cpu(), task_numa_compare(), numa_classify(), load_too_imbalanced(), kernel/sched/fair.c (v3.16, v4.19,
//! v6.1).
//! Differs: up to 5.6 a task goes to the CPU that was compared, or to an idle one of its node (`select_idle_sibling`). In the
//! rules of 5.8 to 5.14 nodes are classified, and imbalances allowed, as in 6.1.
//!
//! The decision by numbers alone: whether a task should move to a CPU, or swap places with the task that runs there.

use mm::numa::numa_balancing::group::GroupId;
use rules::variant::NumaPlaces;
use units::{CpuId, NodeId};

use crate::ids::TaskId;

/// Swaps with a smaller gain are not made (`SMALLIMP`).
const SMALL_IMPROVEMENT: i64 = 30;
/// Number of tasks by which one node's load may exceed another's (`NUMA_IMBALANCE_MIN`).
const IMBALANCE_MIN: usize = 2;
/// Half of the imbalance that domains of nodes allow, in percent (`imbalance_pct`; 117 since 5.10, 125 before).
const IMBALANCE_PCT: u64 = 100 + 17 / 2;
const IMBALANCE_PCT_BEFORE: i64 = 100 + 25 / 2;

/// How busy a node is (`enum numa_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NodeType {
    #[default]
    HasSpare,
    FullyBusy,
    Overloaded,
}

/// A node at an instant (`struct numa_stats`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeStats {
    pub(super) load: i64,
    pub(super) runnable: u64,
    pub(super) usage: u64,
    pub(super) capacity: u64,
    pub(super) running: usize,
    pub(super) cpus: usize,
    pub(super) idle: Option<CpuId>,
}

impl NodeStats {
    /// `numa_classify`.
    pub(super) fn kind(&self) -> NodeType {
        let (used, can) = (self.usage * IMBALANCE_PCT, self.runnable * 100);
        if self.running > self.cpus && (self.capacity * 100 < used || self.capacity * IMBALANCE_PCT < can) {
            NodeType::Overloaded
        } else if self.running < self.cpus || (self.capacity * 100 > used && self.capacity * IMBALANCE_PCT > can) {
            NodeType::HasSpare
        } else {
            NodeType::FullyBusy
        }
    }
}

/// A task that looks for a CPU (`struct task_numa_env`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    pub(super) form: NumaPlaces,
    /// Number of tasks on its CPU.
    pub(super) beside: usize,
    /// The task's group, and the task's load.
    pub(super) group: Option<GroupId>,
    pub(super) task_load: i64,
    pub(super) source: NodeId,
    pub(super) from: NodeStats,
    pub(super) to: NodeStats,
    /// The gain of the task by memory of its own on the node, and by memory of its group.
    pub(super) gain: i64,
    pub(super) group_gain: i64,
    /// A move without an exchange is allowed.
    pub(super) may_move: bool,
    pub(super) best: Best,
}

/// The best candidate found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Best {
    pub(super) cpu: Option<CpuId>,
    /// The task to swap with, and the node that this task prefers.
    pub(super) swap: Option<(TaskId, Option<NodeId>)>,
    pub(super) improvement: i64,
}

/// The task that runs on the CPU that is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) id: TaskId,
    /// The task may run on the CPU that it would come to.
    pub(super) may_come: bool,
    pub(super) preferred: Option<NodeId>,
    pub(super) group: Option<GroupId>,
    /// The gain of the task by memory of its own there, and by memory of its group.
    pub(super) gain: i64,
    pub(super) group_gain: i64,
    pub(super) load: i64,
    /// Number of tasks on its CPU.
    pub(super) beside: usize,
}

/// A CPU that is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) cpu: CpuId,
    pub(super) node: NodeId,
    pub(super) running: Option<Running>,
}

/// The result of comparing a CPU (`task_numa_compare`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// Passed over: another CPU may be better, or is.
    Passed(Why),
    /// The best so far; `stops`: the search is over.
    Move {
        stops: bool,
    },
    Swap {
        stops: bool,
    },
}

/// The reason why a CPU is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The CPU is idle, but the task may not just move, or has found a better one.
    NoMove,
    /// The task that runs there may not come.
    Pinned,
    /// The partner found before would go to the node that it prefers, and this one would not.
    BestGoesHome,
    /// Both tasks are of one group, or of none, and the node has room.
    SameGroupHasRoom,
    /// The gain is too small.
    Small,
    /// Loads would be further apart.
    Imbalanced,
    /// The node is as busy as it can be, and the task's own is not.
    NoCapacity,
}

impl Search {
    /// Whether loads of the nodes would be further apart than they are (`load_too_imbalanced`).
    fn is_too_imbalanced(&self, from: i64, to: i64) -> bool {
        let (from_can, to_can) = (self.from.capacity.cast_signed(), self.to.capacity.cast_signed());
        let apart = |from: i64, to: i64| (to * from_can - from * to_can).abs();
        apart(from, to) > apart(self.from.load, self.to.load)
    }

    /// As `is_too_imbalanced`, with a threshold below which loads may be apart, up to 4.18.
    fn exceeds_threshold(&self, from: i64, to: i64) -> bool {
        let (from_can, to_can) = (self.from.capacity.cast_signed(), self.to.capacity.cast_signed());
        let over = |from: i64, to: i64| to.max(from) * from_can * 100 - from.min(to) * to_can * IMBALANCE_PCT_BEFORE;
        let imbalance = over(from, to);
        imbalance > 0 && imbalance > over(self.from.load, self.to.load)
    }

    /// Decides whether the task may move there without an exchange (`task_numa_find_cpu`).
    pub(super) fn decide_move(&mut self, imbalance_limit: usize) {
        self.may_move = if self.has_room() {
            let (from, to) = (self.from.running.saturating_sub(1), self.to.running + 1);
            let imbalance = to.saturating_sub(from);
            imbalance == 0 || (to <= imbalance_limit && imbalance <= IMBALANCE_MIN)
        } else {
            !self.is_too_imbalanced(self.from.load - self.task_load, self.to.load + self.task_load)
        };
    }

    /// Whether the node could run more, if that counts (5.7).
    pub(super) fn has_room(&self) -> bool {
        self.form == NumaPlaces::ByRoom && self.to.kind() == NodeType::HasSpare
    }

    pub(super) fn compare(&mut self, there: &Candidate) -> Compared {
        if self.form == NumaPlaces::ByCapacity { self.compare_by_capacity(there) } else { self.compare_by_gain(there) }
    }

    /// Compares a CPU up to 4.18, where a move or a swap is decided for each CPU.
    fn compare_by_capacity(&mut self, there: &Candidate) -> Compared {
        let alone = if self.group.is_some() { self.group_gain } else { self.gain };
        let best = self.best.improvement;
        let gain = match there.running {
            Some(other) if !other.may_come => return Compared::Passed(Why::Pinned),
            Some(other) if other.group == self.group => {
                let gain = self.gain + other.gain;
                if other.group.is_some() { gain - gain / 16 } else { gain }
            }
            Some(other) => alone + if other.group.is_some() { other.group_gain } else { other.gain },
            None => alone,
        };
        if gain <= best && alone <= best {
            return Compared::Passed(Why::Small);
        }
        let swap = there.running.map(|other| (other.id, other.preferred));
        match there.running {
            None => {
                let (own_fits, theirs_is_full) = (self.from.running <= self.from.cpus, self.to.running >= self.to.cpus);
                if own_fits && theirs_is_full {
                    return Compared::Passed(Why::NoCapacity);
                }
            }
            // If each CPU has one task, loads say nothing.
            Some(other) if gain > best && self.beside == 1 && other.beside == 1 => {
                self.best = Best { cpu: Some(there.cpu), swap, improvement: gain };
                return Compared::Swap { stops: false };
            }
            Some(_) => {}
        }
        let (from, to) = (self.from.load - self.task_load, self.to.load + self.task_load);
        if alone > gain && alone > best && !self.exceeds_threshold(from, to) {
            // A little less, so that an idle CPU is better.
            self.best = Best { cpu: Some(there.cpu), swap: None, improvement: alone - 1 };
            return Compared::Move { stops: false };
        }
        if gain <= best {
            return Compared::Passed(Why::Small);
        }
        let back = there.running.map_or(0, |other| other.load);
        if self.exceeds_threshold(from + back, to - back) {
            return Compared::Passed(Why::Imbalanced);
        }
        if swap.is_some() {
            self.best = Best { cpu: Some(there.cpu), swap, improvement: gain };
            return Compared::Swap { stops: false };
        }
        self.best = Best { cpu: Some(self.to.idle.unwrap_or(there.cpu)), swap: None, improvement: gain };
        Compared::Move { stops: false }
    }

    /// Compares a CPU since 4.19.
    fn compare_by_gain(&mut self, there: &Candidate) -> Compared {
        let alone = if self.group.is_some() { self.group_gain } else { self.gain };
        let Some(other) = there.running else {
            if self.may_move && alone >= self.best.improvement {
                return self.take_idle(there.cpu, alone);
            }
            return Compared::Passed(Why::NoMove);
        };
        if !other.may_come {
            return Compared::Passed(Why::Pinned);
        }
        let heeds_homes = self.form == NumaPlaces::ByRoom;
        let goes_home = heeds_homes && other.preferred == Some(self.source);
        let best_goes_home = self.best.swap.map(|(_, preferred)| preferred == Some(self.source));
        if best_goes_home == Some(true) && !goes_home {
            return Compared::Passed(Why::BestGoesHome);
        }
        let mut gain = if other.group == self.group {
            if self.has_room() {
                return Compared::Passed(Why::SameGroupHasRoom);
            }
            let gain = self.gain + other.gain;
            if other.group.is_some() { gain - gain / 16 } else { gain }
        } else if other.group.is_some() && self.group.is_some() {
            alone + other.group_gain
        } else {
            alone + other.gain
        };
        if heeds_homes && other.preferred == Some(there.node) {
            gain -= gain / 16;
        }
        if goes_home {
            gain += gain / 8;
        }
        if self.may_move && alone > gain && alone > self.best.improvement {
            return self.take_idle(there.cpu, alone);
        }
        let is_better_partner = goes_home && best_goes_home == Some(false);
        if !is_better_partner {
            if gain < SMALL_IMPROVEMENT || gain <= self.best.improvement + SMALL_IMPROVEMENT / 2 {
                return Compared::Passed(Why::Small);
            }
            let load = self.task_load - other.load;
            if load != 0 && self.is_too_imbalanced(self.from.load - load, self.to.load + load) {
                return Compared::Passed(Why::Imbalanced);
            }
        }
        self.best = Best { cpu: Some(there.cpu), swap: Some((other.id, other.preferred)), improvement: gain };
        Compared::Swap { stops: heeds_homes && !self.may_move && goes_home }
    }

    /// Chooses a move: to the node's idle CPU, if it has one, else to the one that is compared.
    fn take_idle(&mut self, cpu: CpuId, improvement: i64) -> Compared {
        self.best = Best { cpu: Some(self.to.idle.unwrap_or(cpu)), swap: None, improvement };
        Compared::Move { stops: self.form == NumaPlaces::ByRoom && self.to.idle.is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: NodeId = NodeId(0);
    const THERE: NodeId = NodeId(1);

    /// Two nodes of two CPUs, each with this number of tasks that always run.
    fn search(form: NumaPlaces, running: [usize; 2], gains: (i64, i64)) -> Search {
        let node = |running: usize| NodeStats {
            load: 1024 * i64::try_from(running).unwrap(),
            runnable: running as u64 * 1024,
            usage: running.min(2) as u64 * 1024,
            capacity: 2048,
            running,
            cpus: 2,
            idle: (running < 2).then_some(CpuId(3)),
        };
        let mut search = Search {
            form,
            beside: running[0].div_ceil(2),
            group: None,
            task_load: 1024,
            source: HOME,
            from: node(running[0]),
            to: node(running[1]),
            gain: gains.0,
            group_gain: gains.1,
            may_move: false,
            best: Best::default(),
        };
        search.decide_move(1);
        search
    }

    fn other(gain: i64) -> Running {
        let (id, preferred, group) = (TaskId(9), None, None);
        Running { id, may_come: true, preferred, group, gain, group_gain: 0, load: 1024, beside: 1 }
    }

    fn at(running: Option<Running>) -> Candidate {
        Candidate { cpu: CpuId(2), node: THERE, running }
    }

    fn found(search: &Search) -> (Option<u32>, Option<u32>, i64) {
        let swap = search.best.swap.map(|(id, _)| id.0);
        (search.best.cpu.map(|cpu| cpu.0), swap, search.best.improvement)
    }

    #[test]
    fn nodes_have_room_are_busy_or_have_too_much() {
        let kind = |running: usize, usage: u64, runnable: u64| {
            NodeStats { running, cpus: 2, capacity: 2048, usage, runnable, ..NodeStats::default() }.kind()
        };
        assert_eq!(kind(1, 2048, 2048), NodeType::HasSpare, "fewer tasks than CPUs");
        assert_eq!(kind(2, 2048, 2048), NodeType::FullyBusy);
        assert_eq!(kind(2, 1800, 2048), NodeType::HasSpare, "they use less than they could");
        assert_eq!(kind(3, 2048, 3072), NodeType::Overloaded);
        assert_eq!(kind(3, 1800, 2000), NodeType::HasSpare, "more tasks, but these sleep");
    }

    #[test]
    fn a_task_may_move_where_that_leaves_no_imbalance() {
        // 5.7 and later: one task more than the other node is allowed for so few tasks.
        for (running, may) in [([2, 0], true), ([1, 0], true), ([1, 1], false), ([2, 1], false), ([3, 1], true)] {
            assert_eq!(search(NumaPlaces::ByRoom, running, (0, 0)).may_move, may, "{running:?}");
        }
        // From a node that has more tasks to a full one: by load.
        assert!(search(NumaPlaces::ByRoom, [5, 2], (0, 0)).may_move);
        assert!(!search(NumaPlaces::ByRoom, [2, 2], (0, 0)).may_move);
        // In 4.19 always by load.
        for (running, may) in [([2, 0], true), ([1, 0], true), ([1, 1], false), ([2, 1], true)] {
            assert_eq!(search(NumaPlaces::ByImbalance, running, (0, 0)).may_move, may, "{running:?}");
        }
    }

    #[test]
    fn an_idle_cpu_is_taken_if_the_task_may_move_and_gains() {
        let mut this = search(NumaPlaces::ByRoom, [2, 0], (100, 0));
        assert_eq!(this.compare(&at(None)), Compared::Move { stops: true });
        assert_eq!(found(&this), (Some(3), None, 100), "the one that was found to idle");
        let mut this = search(NumaPlaces::ByRoom, [1, 1], (100, 0));
        assert_eq!(this.compare(&at(None)), Compared::Passed(Why::NoMove));
        let mut this = search(NumaPlaces::ByImbalance, [2, 0], (-1, 0));
        assert_eq!(this.compare(&at(None)), Compared::Passed(Why::NoMove), "nothing is better than that");
        // For a task of a group the group's gain counts.
        let mut this = search(NumaPlaces::ByImbalance, [2, 0], (-1, 7));
        this.group = Some(GroupId::nth(0));
        assert_eq!(this.compare(&at(None)), Compared::Move { stops: false });
        assert_eq!(found(&this), (Some(3), None, 7));
    }

    #[test]
    fn tasks_are_swapped_where_both_gain_enough() {
        let mut this = search(NumaPlaces::ByRoom, [2, 2], (500, 0));
        let pinned = Running { may_come: false, ..other(500) };
        assert_eq!(this.compare(&at(Some(pinned))), Compared::Passed(Why::Pinned));
        assert_eq!(this.compare(&at(Some(other(-471)))), Compared::Passed(Why::Small), "29 together");
        assert_eq!(this.compare(&at(Some(other(-470)))), Compared::Swap { stops: false });
        assert_eq!(found(&this), (Some(2), Some(9), 30));
        // The next candidate has to be better by more than half of that.
        assert_eq!(this.compare(&at(Some(other(-455)))), Compared::Passed(Why::Small));
        assert_eq!(this.compare(&at(Some(other(-454)))), Compared::Swap { stops: false });
        // A lighter task would leave loads further apart.
        let light = Running { load: 100, ..other(400) };
        assert_eq!(this.compare(&at(Some(light))), Compared::Passed(Why::Imbalanced));
        // A task that wants to come is the partner in any case, and ends the search; after it no other one is.
        let comes = Running { preferred: Some(HOME), ..other(-490) };
        assert_eq!(this.compare(&at(Some(comes))), Compared::Swap { stops: true });
        assert_eq!(this.compare(&at(Some(other(500)))), Compared::Passed(Why::BestGoesHome));
    }

    #[test]
    fn tasks_on_their_node_or_in_a_group_are_swapped_less() {
        let gain = |form: NumaPlaces, running: Running, group: Option<GroupId>| {
            let mut this = search(form, [2, 2], (160, 320));
            this.group = group;
            let compared = this.compare(&at(Some(running)));
            assert_eq!(compared, Compared::Swap { stops: false }, "{form:?}");
            this.best.improvement
        };
        let (mine, theirs) = (Some(GroupId::nth(0)), Some(GroupId::nth(1)));
        let home = Running { preferred: Some(THERE), ..other(0) };
        assert_eq!(gain(NumaPlaces::ByRoom, home, None), 150);
        assert_eq!(gain(NumaPlaces::ByImbalance, home, None), 160, "5.7 brought that");
        assert_eq!(gain(NumaPlaces::ByRoom, Running { group: mine, ..other(0) }, mine), 150, "a sixteenth less");
        let with_group = Running { group: theirs, group_gain: 40, ..other(7) };
        assert_eq!(gain(NumaPlaces::ByRoom, with_group, mine), 360, "groups count if both have one");
        assert_eq!(gain(NumaPlaces::ByRoom, with_group, None), 167);
        let mut this = search(NumaPlaces::ByRoom, [2, 1], (160, 0));
        assert_eq!(this.compare(&at(Some(other(160)))), Compared::Passed(Why::SameGroupHasRoom));
        let mut this = search(NumaPlaces::ByImbalance, [1, 1], (160, 0));
        assert_eq!(this.compare(&at(Some(other(160)))), Compared::Swap { stops: false });
    }

    #[test]
    fn a_move_is_better_than_a_swap_that_costs_the_other_one() {
        let mut this = search(NumaPlaces::ByRoom, [5, 2], (100, 0));
        assert_eq!(this.compare(&at(Some(other(-10)))), Compared::Move { stops: false });
        assert_eq!(found(&this), (Some(2), None, 100));
    }

    #[test]
    fn up_to_4_18_each_cpu_is_compared_for_move_and_swap() {
        let form = NumaPlaces::ByCapacity;
        let mut this = search(form, [2, 2], (500, 0));
        assert_eq!(this.compare(&at(None)), Compared::Passed(Why::NoCapacity));
        assert_eq!(this.compare(&at(Some(Running { may_come: false, ..other(1) }))), Compared::Passed(Why::Pinned));
        assert_eq!(this.compare(&at(Some(other(-600)))), Compared::Passed(Why::Small));
        // One task for each CPU: loads say nothing.
        assert_eq!(this.compare(&at(Some(other(-400)))), Compared::Swap { stops: false });
        assert_eq!(found(&this), (Some(2), Some(9), 100));
        assert_eq!(this.compare(&at(Some(Running { beside: 2, ..other(-450) }))), Compared::Passed(Why::Small));
        let mut this = search(form, [2, 2], (-50, 0));
        assert_eq!(this.compare(&at(Some(other(40)))), Compared::Passed(Why::Small));
        // An idle CPU, if the node has room or the own one has too much.
        let mut this = search(form, [2, 1], (500, 0));
        assert_eq!(this.compare(&at(None)), Compared::Move { stops: false });
        assert_eq!(found(&this), (Some(3), None, 500));
        let mut this = search(form, [4, 2], (500, 0));
        assert_eq!(this.compare(&at(Some(Running { beside: 2, ..other(-100) }))), Compared::Move { stops: false });
        assert_eq!(found(&this), (Some(2), None, 499));
        // Loads that are already apart may not be moved further apart.
        let mut this = search(form, [1, 3], (500, 0));
        let compared = this.compare(&at(Some(Running { beside: 2, load: 100, ..other(10) })));
        assert_eq!(compared, Compared::Passed(Why::Imbalanced));
    }
}
