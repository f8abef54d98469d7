//! Linux: shrink_slab() and do_shrink_slab() in mm/vmscan.c (v4.16 to v6.1).
//! Differs: what was put off is kept for each shrinker and node alike, whether or not it knows nodes.
//!
//! Whoever can give back memory that is on no LRU list is asked for objects, the more the harder memory is needed.

use units::Order;

use crate::{Mm, Spaces, cost::Cx, event::Event, step::Step};

/// Objects that a shrinker is asked for at once.
// SHRINK_BATCH, mm/vmscan.c (v6.1).
const BATCH: u64 = 128;
/// What it takes to make an object again, as to how rarely it is asked for.
// DEFAULT_SEEKS, include/linux/shrinker.h (v6.1).
const SEEKS: u64 = 2;

/// Who can be asked (`register_shrinker`), in the order in which they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shrinker {
    /// The huge zero page, when no process uses it; its objects are frames.
    HugeZero,
    /// Huge pages of which nobody maps some base pages any more.
    DeferredSplit,
    /// Dentries and inodes that nobody uses.
    Inodes,
}

impl Shrinker {
    const ALL: [Self; 3] = [Self::HugeZero, Self::DeferredSplit, Self::Inodes];

    /// Objects of a node that could go (`count_objects`).
    fn count(self, mm: &Mm, node: usize) -> u64 {
        match self {
            Self::Inodes => mm.count_idle_inodes(node),
            Self::HugeZero => {
                if mm.thp.is_huge_zero_unused() {
                    Order::HUGE.frames().into()
                } else {
                    0
                }
            }
            Self::DeferredSplit => mm.deferred_split_count_of(node),
        }
    }
}

/// What shrinkers were spared so far, because it was less than a batch.
#[derive(Clone, Debug)]
pub(crate) struct Shrinkers {
    /// By position of the node.
    deferred: Vec<[u64; Shrinker::ALL.len()]>,
}

impl Shrinkers {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { deferred: vec![[0; Shrinker::ALL.len()]; nodes] }
    }
}

/// Asking every shrinker for its share of a node (`shrink_slab`). Frames that go are found free; the kernel counts only slabs
/// as reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlabScan {
    /// Whose turn it is.
    at: usize,
    turn: Option<Turn>,
}

/// One shrinker's turn (`do_shrink_slab`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    freeable: u64,
    delta: u64,
    deferred: u64,
    left: u64,
    scanned: u64,
    /// Objects of a batch that are still to be looked at, and the last huge page that was queued when it began.
    batch: Option<(u64, u64)>,
}

impl Turn {
    fn new(mm: &mut Mm, at: usize, node: usize, priority: u8) -> Option<Self> {
        let freeable = Shrinker::ALL[at].count(mm, node);
        if freeable == 0 {
            return None;
        }
        let deferred = std::mem::take(&mut mm.shrinkers.deferred[node][at]);
        let delta = (freeable >> priority) * 4 / SEEKS;
        let left = ((deferred >> priority) + delta).min(freeable * 2);
        Some(Self { freeable, delta, deferred, left, scanned: 0, batch: None })
    }

    /// The next batch; false when it is over.
    fn begin_batch(&mut self, mm: &Mm, cx: &mut Cx, shrinker: Shrinker, node: usize) -> bool {
        let is_empty = self.scanned > 0 && shrinker.count(mm, node) == 0;
        if is_empty || (self.left < BATCH && self.left < self.freeable) {
            return false;
        }
        let batch = self.left.min(BATCH);
        cx.count(Event::SlabsScanned, batch);
        self.left -= batch;
        self.scanned += batch;
        self.batch = Some((batch, mm.rmap.last_deferral()));
        true
    }

    /// What is put off until the next time.
    fn rest(&self) -> u64 {
        (self.deferred + self.delta).saturating_sub(self.scanned).min(self.freeable * 2)
    }
}

impl SlabScan {
    /// Goes on until others may run.
    pub(crate) fn step(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        (node, priority): (usize, u8),
    ) -> Step<()> {
        // Bound: each turn takes a batch off what is left of one shrinker.
        while let Some(shrinker) = Shrinker::ALL.get(self.at).copied() {
            let Some(turn) = &mut self.turn else {
                self.turn = Turn::new(mm, self.at, node, priority);
                self.at += usize::from(self.turn.is_none());
                continue;
            };
            if turn.batch.is_none() && !turn.begin_batch(mm, cx, shrinker, node) {
                mm.shrinkers.deferred[node][self.at] = turn.rest();
                (self.turn, self.at) = (None, self.at + 1);
                continue;
            }
            let (left, until) = turn.batch.expect("begun above");
            let next = match shrinker {
                Shrinker::HugeZero => {
                    mm.shrink_huge_zero(cx);
                    None
                }
                Shrinker::Inodes => {
                    mm.shrink_inodes(cx, node, left);
                    None
                }
                Shrinker::DeferredSplit => mm.next_deferred_split(node, until),
            };
            turn.batch = next.and((left > 1).then_some((left - 1, until)));
            if let Some(head) = next {
                // One at a time: others may have what it frees.
                mm.split_deferred(spaces, cx, head);
                return Step::More;
            }
        }
        Step::Done(())
    }
}

#[cfg(test)]
mod tests;
