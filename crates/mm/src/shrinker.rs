//! Linux: shrink_slab() and do_shrink_slab() in mm/vmscan.c (v4.16 to v6.1).
//! Differs: what was put off is kept for each shrinker and node alike, whether or not it knows nodes.
//!
//! Whoever can give back memory that is on no LRU list is asked for objects, the more the harder memory is needed.

use units::Order;

use crate::{Mm, cost::Cx, event::Event};

/// Objects that a shrinker is asked for at once.
// SHRINK_BATCH, mm/vmscan.c (v6.1).
const BATCH: u64 = 128;
/// What it takes to make an object again, as to how rarely it is asked for.
// DEFAULT_SEEKS, include/linux/shrinker.h (v6.1).
const SEEKS: u64 = 2;

/// Who can be asked (`register_shrinker`), in the order in which they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shrinker {
    /// Dentries and inodes that nobody uses.
    Inodes,
    /// The huge zero page, when no process uses it; its objects are frames.
    HugeZero,
}

impl Shrinker {
    const ALL: [Self; 2] = [Self::HugeZero, Self::Inodes];

    /// Objects that could go (`count_objects`).
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
        }
    }

    /// Frees some of so many that it looks at; how many went (`scan_objects`).
    fn scan(self, mm: &mut Mm, cx: &mut Cx, node: usize, most: u64) -> u64 {
        match self {
            Self::Inodes => mm.shrink_inodes(cx, node, most),
            Self::HugeZero => {
                if mm.shrink_huge_zero(cx) {
                    Order::HUGE.frames().into()
                } else {
                    0
                }
            }
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

impl Mm {
    /// Asks every shrinker for its share (`shrink_slab`). Frames that go are found free; the kernel counts only slabs as
    /// reclaimed.
    pub(crate) fn shrink_slab(&mut self, cx: &mut Cx, node: usize, priority: u8) {
        for (at, shrinker) in Shrinker::ALL.into_iter().enumerate() {
            let freeable = shrinker.count(self, node);
            if freeable == 0 {
                continue;
            }
            let deferred = std::mem::take(&mut self.shrinkers.deferred[node][at]);
            let delta = (freeable >> priority) * 4 / SEEKS;
            let mut left = ((deferred >> priority) + delta).min(freeable * 2);
            let mut scanned = 0;
            // Bound: each turn takes a batch off what is left.
            while left >= BATCH || left >= freeable {
                let batch = left.min(BATCH);
                shrinker.scan(self, cx, node, batch);
                cx.count(Event::SlabsScanned, batch);
                left -= batch;
                scanned += batch;
                if shrinker.count(self, node) == 0 {
                    break;
                }
            }
            let rest = (deferred + delta).saturating_sub(scanned).min(freeable * 2);
            self.shrinkers.deferred[node][at] = rest;
        }
    }
}

#[cfg(test)]
mod tests;
