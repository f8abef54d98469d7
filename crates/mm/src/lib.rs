//! The Linux physical-memory manager: mechanism and policy, without clock, I/O or threads.
//!
//! | Linux | here | left out |
//! |-------|------|----------|
//! | `mm/mempolicy.c`, `mm/mprotect.c` | `numa/numa_hint.rs` | policies of VMAs, weights |
//! | `mm/page_owner.c` | `whole/block_map.rs` | who asked for a page |
//! | **folio** | `folio.rs` | |
//! | `mm/filemap.c` | `folio/folio_lock.rs` | all but the lock of a folio |
//! | `mm/swap.c` | `folio/lru.rs`, `folio/lru/` | batches of rotations, the unevictable list |
//! | `mm/workingset.c` | `file/workingset.rs` | reclaim of nodes that hold only shadows |
//! | `mm/rmap.c` | `space/rmap.rs`, `space/spaces.rs` | the locks of `anon_vma`s and files |
//! | `mm/swapfile.c`, `mm/swap_state.c`, `mm/page_io.c` | `swap.rs`, `swap/` | huge pages, clusters per CPU, more devices |
//! | **file** | `file.rs` | |
//! | `mm/filemap.c`, `readahead.c`, `fadvise.c` | `file/page_cache.rs` | large folios, `try_context_readahead` |
//! | `mm/truncate.c`, `mm/page-writeback.c` | `file/page_cache/` | |
//! | `fs/fs-writeback.c` | `file/page_cache/flusher.rs` | inodes themselves |
//! | `fs/ext4`, `fs/dcache.c`, `fs/inode.c`, `fs/buffer.c` | `file/page_cache/` | contents of directories, quotas, attributes |
//! | `fs/xfs` | `file/page_cache/xfs.rs`, `file/page_cache/xfs/` | all but what a journal and its buffers need |
//! | `block/blk-mq.c` | `file/disk.rs` | schedulers, priorities |
//! | **space** | `space.rs` | |
//! | `mm/mmap.c`, `mm/madvise.c` | `space/vma.rs`, `space/vma/` | shared anonymous and fixed mappings |
//! | `mm/mmap.c`, `mm/madvise.c` | `space/address_space.rs` | mremap, mprotect |
//! | `mm/mincore.c` | `space/address_space.rs` | pages of files that are cached and not mapped |
//! | `mm/memory.c` | `space/page_table.rs`, `space/page_table/`, `folio/pte.rs`, `space/unmap.rs`, `space/fork.rs` | devices |
//! | `mm/mmu_gather.c` | `space/mmu_gather.rs` | |
//! | `mm/migrate.c` | `migrate.rs`, `migrate/` | pages of drivers, `mbind` with `MPOL_MF_MOVE` |
//! | `mm/compaction.c` | `compact.rs`, `compact/` | CMA, pages of drivers |
//! | `mm/vmscan.c` | `reclaim.rs`, `reclaim/` | memcg, MGLRU, demotion, vmpressure |
//! | `mm/vmscan.c` | `reclaim/kswapd.rs`, `reclaim/kswapd/` | |
//! | `mm/vmscan.c` | `reclaim/shrinker.rs` | |
//! | `mm/backing-dev.c` | `reclaim/throttle.rs`, `file/disk.rs` | congestion of other devices than the disk |
//! | `mm/page_alloc.c` | `slow/stall.rs` (a patch of 2018) | stalls of tasks that cannot ask for memory |
//! | `mm/page_alloc.c` | `slow.rs`, `slow/` | reserves for tasks that reclaim |
//! | `mm/oom_kill.c` | `slow/oom.rs` | scores set by users, the reaper's work, memcg |
//! | `mm/huge_memory.c` | `thp.rs`, `reclaim/split.rs` | huge pages of files, sizes other than the PMD's, memcg |
//! | `mm/huge_memory.c` | `thp/huge_cow.rs`, `space/huge_zero.rs` | |
//! | `mm/khugepaged.c` | `thp/khugepaged.rs`, `thp/khugepaged/` | files, `MADV_COLLAPSE`, per-size switches |
//! | `mm/memory.c` | `fault.rs`, `fault/`, `swap/fault.rs`, `file/page_cache/fault.rs` | userfaultfd, device memory |
//! | `mm/gup.c` | `fault/gup.rs` | pins of pages of files, several pins of one page |
//! | (none: user code) | `fault/touch.rs`, `fault/access.rs`, `fault/access/` | |
//! | **numa** | `numa.rs` | |
//! | `kernel/sched/fair.c` | `numa/numa_balancing.rs`, `numa/numa_balancing/` | far nodes among near ones |
//! | **guest** | `guest.rs` | |
//! | `mm/page_reporting.c` | `guest/reporting.rs` | |
//! | `drivers/virtio/virtio_balloon.c` | `guest/balloon.rs` | migration of its pages, statistics |
//! | **whole** | `whole.rs` | |
//! | `mm/vmstat.c` | `whole/vmstat.rs` | counts by CPU |
//! | /proc/kpageflags | `whole/state.rs`, `whole/state/` | files on disks, caches of slabs, who maps what |
//! | `kernel/kthread.c` | `whole/daemon.rs` | when and where a thread runs: `sim` decides that |
//! | (none: tests) | `whole/check.rs`, `whole/check/`, `guest/mistake.rs` | |
//!
//! The page allocator below is a crate of its own, `memory`, and what is settled before a machine runs is `rules`. [`Mm`] is
//! the memory of a machine, with all of it.

pub mod compact;
pub mod fault;
pub mod file;
pub mod folio;
pub mod guest;
pub mod migrate;
pub mod numa;
pub mod reclaim;
pub mod slow;
#[cfg(test)]
#[path = "../tests/soak/mod.rs"]
mod soak;
pub mod space;
pub mod swap;
pub mod thp;
pub mod whole;

use memory::{Memory, cx::Cx, frame::FamilyId, lru_kind::LruKind, per_node::PerNode, per_zone::PerZone};
use rules::{
    machine::{MachineSpec, ZoneSpec},
    variant::Variant,
    zone::{MachineView, Settings},
};
use units::{Frames, NodeId, Pfn};

pub use self::{
    space::spaces::Spaces,
    whole::block_map::{Band, BlockUse, ZoneCompaction},
};

use self::{
    compact::{
        ZoneCompact,
        kcompactd::{Compaction, Kcompactd},
    },
    file::page_cache::PageCache,
    folio::{folio_lock::FolioWaits, lru::Lru},
    numa::numa_balancing::balances_numa,
    reclaim::{kswapd::Kswapd, shrinker::Shrinkers},
    slow::oom::Oom,
    space::huge_zero::HugeZero,
    swap::Swap,
    thp::{
        Thp,
        khugepaged::{Khugepaged, ThpAvail, ThpThread},
    },
};
use crate::space::rmap::Rmap;

/// The memory of one machine.
#[derive(Clone, Debug)]
pub struct Mm {
    /// The page allocator: frames, zones and nodes.
    pub memory: Memory,
    /// Families of processes: which address spaces may map an anonymous frame.
    pub rmap: Rmap,
    /// Transparent huge pages.
    pub thp: Thp,
    /// The huge zero page.
    pub huge_zero: HugeZero,
    /// LRU lists.
    pub lru: Lru,
    /// The thread that makes huge pages.
    pub khugepaged: Khugepaged,
    /// The nodes that have huge pages, as far as is known (rule `thp_faults_gated`).
    pub thp_avail: ThpAvail,
    /// The swap device and the swap cache.
    pub swap: Swap,
    /// Files, and their pages.
    pub cache: PageCache,
    /// Mappings of files whose process ended in the middle of unmapping them.
    pub(crate) orphan_maps: Vec<(FamilyId, space::vma::FileMap)>,
    shrinkers: Shrinkers,
    /// `vm.swappiness`: the weight of anonymous memory against files in reclaim; 100 is even.
    pub swappiness: u32,
    /// Compaction in the background.
    pub compaction: Compaction,
    folio_waits: FolioWaits,
    pins: space::rmap::Pins,
    oom: Oom,
    /// The device that takes reports of free blocks, if there is one.
    reporting: Option<Box<guest::reporting::Reporting>>,
    /// The guest's balloon, if there is one.
    balloon: Option<Box<guest::balloon::Balloon>>,
    /// Automatic NUMA balancing, where that is on.
    numa: Option<Box<numa::numa_balancing::NumaBalancing>>,
    /// Threads that keep memory of nodes free.
    pub kswapds: PerNode<Kswapd>,
    /// Threads that compact nodes.
    kcompactds: PerNode<Kcompactd>,
    /// Threads that allocate huge pages for faults; idle but by a rule.
    pub thp_threads: PerNode<ThpThread>,
    /// How far compaction of each zone has come, and how it has gone lately.
    zone_compacts: PerZone<ZoneCompact>,
}

impl Mm {
    /// The memory of a machine that has just booted: all managed frames are free and Movable.
    pub fn new(machine: &MachineSpec, variant: Variant, settings: &Settings) -> Self {
        Self::over(Memory::new(machine, variant, settings), machine, settings)
    }

    /// The memory of a machine before the allocator is given any of it.
    pub(crate) fn bare(machine: &MachineSpec, variant: Variant, settings: &Settings) -> Self {
        Self::over(Memory::bare(machine, variant, settings), machine, settings)
    }

    /// The memory of a machine whose page allocator is this.
    fn over(mut memory: Memory, machine: &MachineSpec, settings: &Settings) -> Self {
        let specs = || machine.nodes.iter().flat_map(|node| node.managed_zones().map(move |zone| (node.id, zone)));
        let node_of_zone: Vec<NodeId> = specs().map(|(node, _)| node).collect();
        let compact = |spec: &ZoneSpec| ZoneCompact::new(spec.start, spec.end(), machine.pageblock_order);
        let zone_compacts: Vec<_> = specs().map(|(_, zone)| compact(zone)).collect();
        if balances_numa(machine, memory.variant(), settings) {
            memory.keep_last_faults(machine);
        }
        let variant = *memory.variant();
        Self {
            rmap: Rmap::default(),
            thp: Thp::default(),
            huge_zero: HugeZero::default(),
            lru: Lru::new(variant.lru_by, machine, &node_of_zone, memory.cpus()),
            khugepaged: Khugepaged::default(),
            thp_avail: ThpAvail::new(machine),
            swap: Swap::default(),
            cache: PageCache::new(node_of_zone.len(), machine, settings),
            orphan_maps: Vec::new(),
            shrinkers: Shrinkers::new(machine),
            swappiness: settings.swappiness,
            compaction: Compaction::new(settings),
            folio_waits: FolioWaits::default(),
            pins: space::rmap::Pins::default(),
            oom: Oom::default(),
            reporting: None,
            balloon: None,
            numa: numa::numa_balancing::NumaBalancing::of(machine, &variant, settings),
            kswapds: PerNode::new(machine, |_| Kswapd::default()),
            kcompactds: PerNode::new(machine, |_| Kcompactd::default()),
            thp_threads: PerNode::new(machine, |_| ThpThread::default()),
            zone_compacts: PerZone::new(zone_compacts),
            memory,
        }
    }

    /// Applies settings that marks, reserves and limits depend on, as a write to `vm.min_free_kbytes` does;
    /// `setup_per_zone_wmarks`, mm/page_alloc.c (v6.1). `machine` is the one that this memory was made for.
    pub fn apply_settings(&mut self, cx: &mut Cx<'_>, machine: &MachineView, settings: &Settings) {
        self.swappiness = settings.swappiness;
        self.cache.apply_settings(settings);
        self.compaction.apply_settings(settings);
        self.memory.apply_settings(cx, machine, settings);
    }

    /// The machine's gauges, by their names in `/proc/vmstat`: each is kept by the zones and only viewed here.
    pub fn gauges(&self) -> Vec<(&'static str, u64)> {
        let page_tables: Frames = self.memory.zones().iter().map(|zone| zone.page_tables).sum();
        let files = self.cache.totals();
        let on = |kind| (0..self.lru.lruvecs().len()).map(|at| self.lru.frames(at, kind)).sum();
        let mut gauges = vec![
            ("nr_page_table_pages", page_tables.0),
            ("nr_file_pages", files.pages),
            ("nr_mapped", files.mapped),
            ("nr_dirty", files.dirty),
            ("nr_writeback", files.writeback),
            ("nr_inactive_anon", on(LruKind::InactiveAnon)),
            ("nr_active_anon", on(LruKind::ActiveAnon)),
            ("nr_inactive_file", on(LruKind::InactiveFile)),
            ("nr_active_file", on(LruKind::ActiveFile)),
            ("nr_free_pages", self.memory.free_frames().0),
        ];
        gauges.extend(self.memory.host_resident().map(|frames| ("sim_host_resident", frames)));
        if self.has_reporting() {
            // The whole, before there was less.
            gauges.push(("sim_report_least_millionths", self.least_reported().unwrap_or(1_000_000)));
        }
        gauges.extend(self.balloon_pages().map(|pages| (guest::balloon::GAUGE, pages)));
        gauges
    }

    /// How far compaction has come in the zone of a frame that the buddy allocator manages.
    pub(crate) fn zone_compact_of_mut(&mut self, pfn: Pfn) -> &mut ZoneCompact {
        let zone = self.memory.frames.blocks.zone(pfn).expect("a reserved frame is of no zone");
        &mut self.zone_compacts[zone]
    }
}
