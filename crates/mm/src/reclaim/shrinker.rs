//! Linux: shrink_slab() and do_shrink_slab() in mm/vmscan.c (v4.1, v4.16 to v6.1).
//! Differs: no other task holds `shrinker_rwsem`.
//!
//! Each owner of memory that is on no LRU list is asked for objects; the harder memory is needed, the more.

use memory::{cx::Cx, event::Event, per_node::PerNode, step::Step};
use rules::machine::MachineSpec;
use units::{NodeId, Order};

use crate::{Mm, Spaces, file::page_cache::LeftOfInodes, guest::balloon::Leak};

/// Objects that a shrinker is asked for at a time, by default.
// SHRINK_BATCH, mm/vmscan.c (v6.1).
const BATCH: u64 = 128;
/// Dentries and inodes that a file system is asked for at a time.
// alloc_super(), fs/super.c (v6.1).
const BATCH_OF_SUPER: u64 = 1024;
/// The cost of making an object again; the higher it is, the fewer objects are asked for.
// DEFAULT_SEEKS, include/linux/shrinker.h (v6.1).
const SEEKS: u64 = 2;

/// How hard memory is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// The priority of reclaim (since 4.16).
    Priority(u8),
    /// The frames that reclaim has scanned, and the frames on the lists that it went to.
    Ratio { scanned: u64, eligible: u64 },
}

impl Demand {
    /// The demand of `drop_slab_node` (mm/vmscan.c, v4.1).
    const DROP: Self = Self::Ratio { scanned: 1000, eligible: 1000 };

    /// The share of `freeable` objects, and how many to ask for now, with those deferred earlier.
    fn share(self, freeable: u64, deferred: u64, rules: ShareRules) -> (u64, u64) {
        let (delta, by_priority) = match self {
            Self::Priority(priority) => {
                let delta = ((freeable >> priority) * 4 / SEEKS).max(rules.least.min(freeable));
                (delta, rules.deferred_by_priority.then_some(priority))
            }
            Self::Ratio { scanned, eligible } => (4 * scanned / SEEKS * freeable / (eligible + 1), None),
        };
        if let Some(priority) = by_priority {
            return (delta, ((deferred >> priority) + delta).min(freeable * 2));
        }
        // Deferred objects must not empty a cache of which little is wanted.
        let most = if delta < freeable / 4 { freeable / 2 } else { freeable * 2 };
        (delta, (deferred + delta).min(most))
    }
}

/// Rules of shares in which releases differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ShareRules {
    /// Fewest objects to ask for, if there are as many.
    least: u64,
    /// The part of the deferred objects to ask for follows from the priority too.
    deferred_by_priority: bool,
}

/// Objects that file systems are asked for, of `freeable` ones, when all are to be dropped (`drop_slab_node`, v4.1).
pub(crate) fn asked_when_dropping(freeable: u64) -> u64 {
    let (_, asked) = Demand::DROP.share(freeable, 0, ShareRules::default());
    let mut left = asked;
    // Bound: each turn takes objects off, if there are any.
    while freeable > 0 && (left >= BATCH_OF_SUPER || left >= freeable) {
        left -= left.min(BATCH_OF_SUPER);
    }
    asked - left
}

/// The shrinkers (`register_shrinker`), in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shrinker {
    /// The huge zero page, when no process uses it; its objects are frames.
    HugeZero,
    /// Huge pages of which some base pages have no mapping any more.
    DeferredSplit,
    /// Dentries and inodes that are not in use.
    Inodes,
    /// Buffers of metadata.
    Buffers,
    /// Journal heads of ext4's journal.
    Journal,
    /// A balloon with a shrinker, in some releases; its objects are pages.
    Balloon,
}

impl Shrinker {
    const ALL: [Self; 6] =
        [Self::HugeZero, Self::DeferredSplit, Self::Inodes, Self::Buffers, Self::Journal, Self::Balloon];

    /// Objects of a node that could be freed (`count_objects`).
    fn count(self, mm: &Mm, node: NodeId) -> u64 {
        match self {
            Self::Inodes => mm.count_idle_inodes(node),
            Self::Buffers => mm.count_buffers(node),
            Self::Journal => mm.count_checkpointed(),
            Self::HugeZero => {
                if mm.huge_zero.is_unused() {
                    Order::HUGE.frames().into()
                } else {
                    0
                }
            }
            Self::DeferredSplit => mm.deferred_split_count_of(node),
            Self::Balloon => mm.count_balloon(),
        }
    }

    /// Objects that the shrinker is asked for at a time (`shrinker->batch`).
    fn batch(self, mm: &Mm) -> u64 {
        match self {
            Self::HugeZero | Self::DeferredSplit | Self::Buffers | Self::Balloon => BATCH,
            Self::Journal => mm.checkpointed_batch(),
            Self::Inodes => BATCH_OF_SUPER,
        }
    }

    /// Whether the shrinker goes by node (`SHRINKER_NUMA_AWARE`).
    fn knows_nodes(self) -> bool {
        match self {
            Self::HugeZero | Self::Journal | Self::Balloon => false,
            Self::DeferredSplit | Self::Inodes | Self::Buffers => true,
        }
    }
}

/// Objects whose scan was deferred, because there were fewer than a batch.
#[derive(Clone, Debug)]
pub(crate) struct Shrinkers {
    /// The machine's first node.
    first: NodeId,
    deferred: PerNode<[u64; Shrinker::ALL.len()]>,
}

impl Shrinkers {
    pub(crate) fn new(machine: &MachineSpec) -> Self {
        let first = machine.nodes[0].id;
        Self { first, deferred: PerNode::new(machine, |_| [0; Shrinker::ALL.len()]) }
    }

    /// Deferred objects of a shrinker for a node; a shrinker that does not go by node keeps them at the first.
    fn deferred_mut(&mut self, shrinker: Shrinker, node: NodeId) -> &mut u64 {
        let node = if shrinker.knows_nodes() { node } else { self.first };
        &mut self.deferred[node][shrinker as usize]
    }
}

/// Calls every shrinker for its share of a node (`shrink_slab`). Freed frames show up as free; the kernel counts only slabs
/// as reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlabScan {
    /// Index of the shrinker whose turn it is.
    at: usize,
    turn: Option<Turn>,
}

/// One shrinker's turn (`do_shrink_slab`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    demand: Demand,
    rules: ShareRules,
    freeable: u64,
    delta: u64,
    deferred: u64,
    left: u64,
    scanned: u64,
    batch: Option<Batch>,
}

/// Objects that the shrinker is asked for now (`scan_objects`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Batch {
    objects: u64,
    /// For the queue of deferred splits: the place up to which huge pages are still to be tried.
    until: u64,
    /// A huge page was split.
    has_split: bool,
    /// The inodes that are left when dentries are done.
    inodes: Option<LeftOfInodes>,
    /// Pages that come out of a balloon once its device knows of them.
    leak: Option<Leak>,
}

impl Turn {
    fn new(mm: &mut Mm, at: usize, node: NodeId, demand: Demand) -> Option<Self> {
        let shrinker = Shrinker::ALL[at];
        let freeable = shrinker.count(mm, node);
        if freeable == 0 {
            return None;
        }
        let deferred = std::mem::take(mm.shrinkers.deferred_mut(shrinker, node));
        let batch = shrinker.batch(mm);
        let rules = mm.memory.variant();
        let rules = ShareRules {
            least: if rules.slab_scans_a_batch { batch } else { 0 },
            deferred_by_priority: rules.slab_deferred_by_priority,
        };
        let (delta, left) = demand.share(freeable, deferred, rules);
        Some(Self { demand, rules, freeable, delta, deferred, left, scanned: 0, batch: None })
    }

    /// The batch in progress, else the batch after it; none at the end.
    fn batch(&mut self, mm: &Mm, shrinker: Shrinker, node: NodeId) -> Option<Batch> {
        if self.batch.is_none() && (self.left >= shrinker.batch(mm) || self.left >= self.freeable) {
            let objects = self.left.min(shrinker.batch(mm));
            let until = if shrinker == Shrinker::DeferredSplit { mm.deferred_split_place(node, objects) } else { 0 };
            self.batch = Some(Batch { objects, until, has_split: false, inodes: None, leak: None });
        }
        self.batch
    }

    fn end_batch(&mut self, cx: &mut Cx) {
        let objects = self.batch.take().expect("it has begun").objects;
        cx.count(Event::SlabsScanned, objects);
        self.left -= objects;
        self.scanned += objects;
    }

    /// Stops after a batch that freed nothing (`SHRINK_STOP`).
    fn stop(&mut self) {
        (self.batch, self.left) = (None, 0);
    }

    /// Objects that are deferred to the next call.
    fn rest(&self) -> u64 {
        if let Demand::Ratio { .. } = self.demand {
            return self.left;
        }
        let rest = (self.deferred + self.delta).saturating_sub(self.scanned);
        if self.rules.deferred_by_priority { rest.min(self.freeable * 2) } else { rest }
    }
}

impl SlabScan {
    /// Takes a step.
    pub(crate) fn step(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        (node, demand): (NodeId, Demand),
    ) -> Step<()> {
        // Bound: each turn takes a batch off what is left for one shrinker.
        while let Some(shrinker) = Shrinker::ALL.get(self.at).copied() {
            let Some(turn) = &mut self.turn else {
                self.turn = Turn::new(mm, self.at, node, demand);
                self.at += usize::from(self.turn.is_none());
                continue;
            };
            let Some(batch) = turn.batch(mm, shrinker, node) else {
                *mm.shrinkers.deferred_mut(shrinker, node) += turn.rest();
                (self.turn, self.at) = (None, self.at + 1);
                continue;
            };
            match shrinker {
                Shrinker::Buffers => mm.shrink_buffers(cx, node, batch.objects),
                Shrinker::Journal => mm.shrink_checkpointed(cx, batch.objects),
                Shrinker::Balloon => {
                    if let Some(leak) = batch.leak {
                        mm.end_leak(cx, leak);
                    } else if let Some((leak, wait)) = mm.begin_leak(cx, batch.objects) {
                        turn.batch = Some(Batch { leak: Some(leak), ..batch });
                        return Step::Block(wait);
                    }
                }
                Shrinker::HugeZero => {
                    mm.shrink_huge_zero(cx);
                }
                Shrinker::Inodes => {
                    let left = batch.inodes.unwrap_or_else(|| mm.shrink_dentries(cx, node, batch.objects));
                    if let Some(left) = mm.prune_inodes(cx, node, left) {
                        turn.batch = Some(Batch { inodes: Some(left), ..batch });
                        return Step::More;
                    }
                }
                Shrinker::DeferredSplit => {
                    if let Some((place, head)) = mm.next_deferred_split(node, batch.until) {
                        // One at a time: others may take what it frees.
                        let has_split = mm.split_deferred(spaces, cx, head).is_some() || batch.has_split;
                        turn.batch = Some(Batch { until: place - 1, has_split, ..batch });
                        return Step::More;
                    }
                    if !batch.has_split && mm.deferred_split_count_of(node) == 0 {
                        turn.stop();
                        continue;
                    }
                }
            }
            turn.end_batch(cx);
        }
        Step::Done(())
    }

    /// Ends the scan; a batch in progress is completed.
    pub(crate) fn abort(&mut self, mm: &mut Mm, cx: &mut Cx) {
        let leak = self.turn.take().and_then(|turn| turn.batch).and_then(|batch| batch.leak);
        if let Some(leak) = leak {
            mm.end_leak(cx, leak);
        }
    }
}

#[cfg(test)]
mod tests;
