//! A heap, and what lies where in it: buffers of the warehouses of a point in turn.

use os::{Barrier, NumaNode, Runs, VmRange};
use serde::{Deserialize, Serialize};
use units::{Bytes, CpuId, NodeId};

use super::{ALLOCATED, LOADS, ROUNDS, TABLES, homes};

/// A heap, by address: the old generation, eden, two survivor spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Heap(pub(super) VmRange);

impl Heap {
    pub(super) fn part(self, (from, to): (u64, u64)) -> VmRange {
        let at = |twelfths: u64| self.0.len.0 / 12 * twelfths / Bytes::PAGE.0 * Bytes::PAGE.0;
        self.0.part(Bytes(at(from)), Bytes(at(to) - at(from)))
    }

    /// Two thirds of it (`NewRatio`), of which five eighths are used before an old collection. assumed: collectors leave some.
    pub(super) fn old(self) -> VmRange {
        self.part((0, 5))
    }

    /// Three quarters of the young generation (`InitialSurvivorRatio`, of which 6 are left to eden).
    pub(super) fn eden(self) -> VmRange {
        self.part((8, 11))
    }

    pub(super) fn survivors(self, second: bool) -> VmRange {
        let both = self.part((11, 12));
        let half = Bytes(both.len.0 / 2 / Bytes::PAGE.0 * Bytes::PAGE.0);
        both.part(if second { half } else { Bytes(0) }, half)
    }
}

/// A JVM, as its starter tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jvm {
    pub(super) index: u32,
    pub(super) points: Vec<u32>,
    pub(super) heap: Heap,
    pub(super) seconds: u64,
    pub(super) warehouse: Bytes,
    pub(super) buffer: Bytes,
    pub(super) is_bound: bool,
    /// All JVMs begin each point at the same time.
    pub(super) together: Barrier,
}

/// Warehouses that came with one point, which lie together in the old generation, a buffer of each in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) region: VmRange,
    pub(super) warehouses: u64,
}

impl Jvm {
    /// Buffers of a warehouse.
    pub(super) fn buffers(&self) -> u64 {
        self.warehouse.0.div_ceil(self.buffer.0)
    }

    pub(super) fn whole_warehouse(&self) -> Bytes {
        self.buffer * self.buffers()
    }

    /// Tables and warehouses at the last point.
    pub(super) fn live(&self) -> Bytes {
        TABLES + self.whole_warehouse() * u64::from(*self.points.last().expect("there is a point"))
    }

    pub(super) fn tables(&self) -> VmRange {
        self.heap.old().part(Bytes(0), TABLES)
    }

    pub(super) fn before(&self, point: usize) -> u32 {
        if point == 0 { 0 } else { self.points[point - 1] }
    }

    /// The warehouses that came with a point.
    pub(super) fn batch(&self, point: usize) -> Batch {
        let (before, now) = (self.before(point), self.points[point]);
        let at = TABLES + self.whole_warehouse() * u64::from(before);
        let warehouses = u64::from(now - before);
        Batch { region: self.heap.old().part(at, self.whole_warehouse() * warehouses), warehouses }
    }

    /// The live objects of a warehouse.
    pub(super) fn records(&self, warehouse: u32) -> Runs {
        let came = self.points.iter().position(|warehouses| warehouse < *warehouses).expect("there are as many");
        let batch = self.batch(came);
        let first = self.buffer * u64::from(warehouse - self.before(came));
        let range = batch.region.part(first, Bytes(batch.region.len.0 - first.0));
        Runs { range, len: self.buffer, every: self.buffer * batch.warehouses }
    }

    /// The buffers of a region that collector thread `worker` of `workers` copies: every `workers`-th buffer.
    pub(super) fn share(&self, region: VmRange, (worker, workers): (u64, u64)) -> Option<Runs> {
        let first = self.buffer * worker;
        let rest = region.len.0.checked_sub(first.0).filter(|rest| *rest > 0)?;
        Some(Runs { range: region.part(first, Bytes(rest)), len: self.buffer, every: self.buffer * workers })
    }

    /// Number of transactions in a batch: the batch's rounds over the live objects load as many words as this number of
    /// transactions.
    pub(super) fn transactions(&self) -> u64 {
        (self.whole_warehouse().0 / Bytes::PAGE.0 * ROUNDS / LOADS).max(1)
    }

    /// Eden that a batch allocates.
    pub(super) fn allocates(&self) -> Bytes {
        Bytes((ALLOCATED.0 * self.transactions()).next_multiple_of(Bytes::PAGE.0))
    }

    /// The CPUs that it may use, and the memory; none is all.
    pub(super) fn bound(&self, nodes: &[NumaNode]) -> Option<(Vec<CpuId>, NodeId)> {
        let homes = homes(nodes);
        let home = homes[self.index as usize % homes.len()];
        self.is_bound.then(|| (home.cpus.clone(), home.id))
    }
}

/// Threads of a collector (`ParallelGCThreads`): one for each of eight CPUs, and five for each eight more.
pub(super) fn collectors(cpus: u64) -> u64 {
    if cpus <= 8 { cpus.max(1) } else { 8 + (cpus - 8) * 5 / 8 }
}
