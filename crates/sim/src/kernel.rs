//! A kernel: its memory, its processes, and what is known of their locks. A run has one, or several beside each other; a task, a
//! CPU and an address space belong to one of them.

use std::ops::{Index, IndexMut};

use mm::{Mm, SpaceId, Spaces, Variant, address_space::AddressSpace, event::Counters, line::CacheLine};
use units::{Bytes, Pfn};

use crate::{TICK, runqueue::Periods, rwsem::Rwsem, sched::Domains, task::TaskId};

/// Number of a kernel, in the order of creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KernelId(pub(crate) u16);

/// The kernel of the machine itself.
pub(crate) const HOST: KernelId = KernelId(0);

/// All that one kernel has.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) mm: Mm,
    /// Its rules, those of its scheduler and of its locks too. Read where a decision is made, and never kept from one step to
    /// the next: they may change at any instant.
    pub(crate) variant: Variant,
    pub(crate) counters: Counters,
    pub(crate) spaces: Spaces,
    /// The lock of each address space, and the cache line that its count is in.
    pub(crate) locks: Vec<Rwsem>,
    pub(crate) lines: Vec<CacheLine>,
    /// How many CPUs run a task of each, and how many of these tasks are settled.
    pub(crate) running_in: Vec<u32>,
    pub(crate) settled_in: Vec<u32>,
    /// What its scheduler works with, and who looks at whom.
    pub(crate) periods: Periods,
    pub(crate) domains: Domains,
    /// Bytes that each process may still map.
    pub(crate) left: Vec<Bytes>,
    /// What the first process may map.
    cap: Bytes,
    /// The kswapd of each node.
    pub(crate) kswapds: Vec<TaskId>,
    /// The kcompactd of each node.
    pub(crate) kcompactds: Vec<TaskId>,
    /// khugepaged, once kernel threads have been started.
    pub(crate) khugepaged: Option<TaskId>,
    /// Those that allocate huge pages for faults, by node, where there are any.
    pub(crate) thp_threads: Vec<TaskId>,
    pub(crate) flusher: Option<TaskId>,
    /// Who waits for which folio.
    pub(crate) folio_sleepers: Vec<(Pfn, TaskId)>,
}

impl Kernel {
    /// A kernel without processes, of so many CPUs that share a cache.
    pub(crate) fn new(mm: Mm, cpus: usize, cap: Bytes) -> Self {
        let variant = *mm.variant();
        Self {
            variant,
            periods: Periods::for_cpus(cpus, TICK, &variant),
            domains: Domains::new(vec![(0..cpus).collect()]),
            mm,
            counters: Counters::default(),
            spaces: Spaces::default(),
            locks: Vec::new(),
            lines: Vec::new(),
            running_in: Vec::new(),
            settled_in: Vec::new(),
            left: Vec::new(),
            cap,
            kswapds: Vec::new(),
            kcompactds: Vec::new(),
            khugepaged: None,
            thp_threads: Vec::new(),
            flusher: None,
            folio_sleepers: Vec::new(),
        }
    }

    /// A process, which may map as much as the one that made it, if any did.
    pub(crate) fn add_space(&mut self, space: AddressSpace, parent: Option<SpaceId>) -> SpaceId {
        let left = parent.map_or(self.cap, |parent| self.left[parent.0 as usize]);
        self.locks.push(Rwsem::default());
        self.lines.push(CacheLine::default());
        self.running_in.push(0);
        self.settled_in.push(0);
        self.left.push(left);
        self.spaces.add(space)
    }
}

/// The kernels of a run.
#[derive(Clone, Debug)]
pub(crate) struct Kernels(Vec<Kernel>);

impl Kernels {
    pub(crate) fn new(host: Kernel) -> Self {
        Self(vec![host])
    }

    /// Every kernel with its number.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (KernelId, &Kernel)> {
        (0..).map(KernelId).zip(&self.0)
    }
}

impl Index<KernelId> for Kernels {
    type Output = Kernel;

    #[inline]
    fn index(&self, id: KernelId) -> &Kernel {
        &self.0[id.0 as usize]
    }
}

impl IndexMut<KernelId> for Kernels {
    #[inline]
    fn index_mut(&mut self, id: KernelId) -> &mut Kernel {
        &mut self.0[id.0 as usize]
    }
}
