//! The Linux physical-memory manager: mechanism and policy, without clock, I/O or threads.
//!
//! | Linux | here | left out |
//! |-------|------|----------|
//! | **rules** | `rules.rs` | |
//! | `include/linux/mmzone.h` | `rules/zone.rs` | HighMem (64-bit only) |
//! | arch/x86/kernel/e820.c, ACPI | `rules/machine.rs` | ranges |
//! | `include/linux/gfp.h` | `rules/gfp.rs` | `__GFP_FS`, `__GFP_IO`, `__GFP_NOFAIL`, `__GFP_MEMALLOC` |
//! | `mm/mempolicy.c`, `mm/mprotect.c` | `rules/mempolicy.rs`, `numa/numa_hint.rs` | policies of VMAs, weights |
//! | (several) | `rules/variant.rs`, `rules/variant/` | 32-bit rules, configurations without SMP |
//! | **memory** | `memory.rs` | |
//! | `include/linux/mmzone.h` | `memory/zone_state.rs`, `memory/lru_kind.rs` | |
//! | `include/linux/mmzone.h` | `memory/pageblock.rs` | |
//! | `include/linux/mm_types.h` | `memory/frame.rs`, `memory/frame/` | |
//! | `mm/slab_common.c` | `memory/slab.rs`, `memory/slab/kinds.rs` | caches but those of VMAs, processes, files and XFS |
//! | `mm/slub.c` | `memory/slab/slub.rs` | partial slabs of other nodes, sheaves (6.18) |
//! | `mm/slab.c` | `memory/slab/arrays.rs` | colours, mempolicy |
//! | `mm/slab.c` | `memory/slab/layout.rs`, `memory/slab/reap.rs` | lists off slabs |
//! | `include/linux/list.h`, `list_lru.h` | `memory/list.rs`, `memory/list_order.rs` | |
//! | `mm/page_alloc.c` | `memory/alloc.rs`, `memory/alloc/fair.rs` | zone reclaim, cpusets |
//! | `mm/page_alloc.c` | `memory/buddy.rs` | |
//! | `mm/shuffle.c` | `memory/shuffle.rs`, `memory/splitmix.rs` | |
//! | `mm/page_poison.c` | `memory/poison.rs` | pages that compaction takes from free lists |
//! | `mm/page_alloc.c` | `memory/fallback.rs` | CMA |
//! | `mm/page_alloc.c` | `memory/reserve.rs` | the limits of 6.8 and later |
//! | `mm/page_alloc.c` | `memory/pcp.rs`, `memory/pcp/` | tuning of `high` and batch at run time, CPU hotplug |
//! | `mm/page_alloc.c` | `memory/node.rs`, `memory/per_node.rs`, `memory/per_zone.rs` | hotplug |
//! | `mm/page_alloc.c` | `memory/watermark.rs` | `totalreserve_pages`; the boost is in `zone_state.rs` |
//! | `arch/x86/mm/tlb.c` | `memory/primitive.rs`, `memory/tlb.rs` | lazy TLBs, PCIDs, the heuristics before 3.17 |
//! | `kernel/locking/qspinlock.c` | `memory/spin.rs` | the queue |
//! | `include/linux/vm_event_item.h` | `memory/event.rs` | events of what is not here |
//! | `mm/page_owner.c` | `memory/block_census.rs`, `whole/block_map.rs` | who asked for a page |
//! | (none: hardware) | `memory/bandwidth.rs`, `memory/bandwidth/`, `memory/line.rs` | |
//! | (none: hardware) | `memory/cost/latency.rs`, `memory/cost/walk.rs` | |
//! | (none: steps and prices) | `memory/step.rs`, `memory/cx.rs`, `memory/cost.rs`, `memory/cost/` | |
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
//! | `mm/page_alloc.c` | `slow.rs`, `slow/`, `memory/alloc/lent.rs` | reserves for tasks that reclaim |
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
//! | `virt/kvm/kvm_main.c` | `guest/host.rs` | what the guest's kernel reads again |
//! | **whole** | `whole.rs` | |
//! | `mm/vmstat.c` | `whole/vmstat.rs` | counts by CPU |
//! | /proc/kpageflags | `whole/state.rs`, `whole/state/` | files on disks, caches of slabs, who maps what |
//! | `kernel/kthread.c` | `whole/daemon.rs`, `memory/news.rs` | when and where a thread runs: `sim` decides that |
//! | (none: tests) | `whole/check.rs`, `whole/check/`, `guest/mistake.rs` | |
//!
//! [`zone_figures`] says what a kernel writes into its zones, given nothing but present and managed frames, CPUs and
//! settings. [`Mm`] is the memory itself.

pub mod compact;
pub mod fault;
pub mod file;
pub mod folio;
pub mod guest;
pub mod memory;
pub mod migrate;
pub mod numa;
pub mod reclaim;
pub mod rules;
pub mod slow;
#[cfg(test)]
#[path = "../tests/soak/mod.rs"]
mod soak;
pub mod space;
pub mod swap;
pub mod thp;
pub mod whole;

use serde::{Deserialize, Serialize};
use units::{CpuId, Frames, NodeId, Order, Pfn, Picos, Time};

pub use self::{
    memory::{
        fallback::Extfrag,
        frame::{ControlId, FamilyId, Frame, FrameTable, SpaceId},
        node::Node,
        pageblock::MigrateType,
        pcp::{PcpHigh, PcpLimits},
        per_node::PerNode,
        watermark::{Marks, automatic_min_free_kbytes},
        zone_state::ZoneState,
    },
    rules::{
        gfp::{AllocRequest, Mark, Mobility, Urgency},
        machine::{MachineSpec, NodeSpec, ZoneSpec},
        mempolicy::{Mempolicy, NodeMask},
        variant::{UnknownRelease, Variant},
        zone::{MachineView, NodeView, Settings, ZoneKind, ZoneView},
    },
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
    memory::{
        bandwidth::Bandwidth,
        cost::{Latency, Prices, latency::Beside},
        cx::Cx,
        event::Counters,
        last_fault::LastFaults,
        lru_kind::LruKind,
        news::News,
        pageblock::ZoneIndex,
        per_zone::PerZone,
        slab::Slabs,
    },
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

/// The arithmetic of one zone. All quantities are frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneFigures {
    /// The zone's node.
    pub node: NodeId,
    /// Which of the node's zones.
    pub kind: ZoneKind,
    /// Watermarks without boost; `__setup_per_zone_wmarks`, mm/page_alloc.c (v6.1).
    pub marks: Marks,
    /// Frames kept from requests whose highest zone is the n-th of the node (`lowmem_reserve`, shown as "protection" in
    /// /proc/zoneinfo); `setup_per_zone_lowmem_reserve`, mm/page_alloc.c (v6.1).
    pub protection: Vec<Frames>,
    /// Limits of each CPU's page list; `zone_set_pageset_high_and_batch`, mm/page_alloc.c (v6.1).
    pub pcp: PcpLimits,
}

/// The memory of one machine.
#[derive(Clone, Debug)]
pub struct Mm {
    /// Every frame.
    pub frames: FrameTable,
    /// Families of processes: which address spaces may map an anonymous frame.
    pub rmap: Rmap,
    /// Transparent huge pages.
    pub thp: Thp,
    /// The huge zero page.
    pub huge_zero: HugeZero,
    /// LRU lists.
    pub lru: Lru,
    /// Kernel objects.
    pub slabs: Slabs,
    /// The thread that makes huge pages.
    pub khugepaged: Khugepaged,
    /// Which nodes have huge pages.
    pub thp_avail: ThpAvail,
    /// Swap.
    pub swap: Swap,
    /// Files, and their pages.
    pub cache: PageCache,
    /// Mappings of files whose process ended in the middle of unmapping them.
    pub(crate) orphan_maps: Vec<(FamilyId, space::vma::FileMap)>,
    shrinkers: Shrinkers,
    /// `vm.swappiness`: how much rather anonymous memory is reclaimed than files, 100 is even.
    pub swappiness: u32,
    bandwidth: Bandwidth,
    /// Latency of accesses of user code, by place of the CPU and of the memory.
    latency: Latency,
    /// Busy CPUs beside that of a step, where they matter.
    beside: Beside,
    /// Compaction in the background.
    pub compaction: Compaction,
    folio_waits: FolioWaits,
    pins: space::rmap::Pins,
    oom: Oom,
    /// The host below, where this memory is a guest's.
    host: Option<Box<memory::backing::Host>>,
    /// The device that takes reports of free blocks, if there is one.
    reporting: Option<Box<guest::reporting::Reporting>>,
    /// The pattern written over freed pages, and whether the balloon's device knows of it (`VIRTIO_BALLOON_F_PAGE_POISON`).
    on_free: memory::poison::OnFree,
    device_knows_poison: bool,
    /// The guest's balloon, if there is one.
    balloon: Option<Box<guest::balloon::Balloon>>,
    /// The last fault at each page, where automatic NUMA balancing is on.
    last_faults: Option<Box<LastFaults>>,
    /// Automatic NUMA balancing, where that is on.
    numa: Option<Box<numa::numa_balancing::NumaBalancing>>,
    /// News that other tasks and threads have not heard of yet.
    news: Vec<News>,
    zones: PerZone<ZoneState>,
    /// The zone that is tried first, if it is the preferred node's own: by the node's number and the highest zone.
    homes: Vec<[ZoneIndex; ZoneKind::ALL.len()]>,
    nodes: PerNode<Node>,
    /// Threads that keep memory of nodes free.
    pub kswapds: PerNode<Kswapd>,
    /// Threads that compact nodes.
    kcompactds: PerNode<Kcompactd>,
    /// Threads that allocate huge pages for faults; idle but by a rule.
    pub thp_threads: PerNode<ThpThread>,
    /// How far compaction of each zone has come, and how it has gone lately.
    zone_compacts: PerZone<ZoneCompact>,
    /// `vm.extfrag_threshold`, in thousandths.
    extfrag_threshold: u32,
    cpu_nodes: Vec<NodeId>,
    variant: Variant,
}

impl Mm {
    /// The memory of a machine that has just booted: all that is managed is free and Movable.
    pub fn new(machine: &MachineSpec, variant: Variant, settings: &Settings) -> Self {
        let mut mm = Self::bare(machine, variant, settings);
        let prices = Prices::free();
        let mut counters = Counters::default();
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        let Self { zones, frames, variant, .. } = &mut mm;
        let specs = machine.nodes.iter().flat_map(NodeSpec::managed_zones);
        for ((zone, index), spec) in zones.iter_mut().zip((0..).map(ZoneIndex)).zip(specs) {
            zone.release(frames, &mut cx, index, spec.managed_range(), variant);
            zone.setup_migrate_reserve(frames, &mut cx, variant);
        }
        mm
    }

    /// The memory of a machine before the allocator is given any of it.
    fn bare(machine: &MachineSpec, variant: Variant, settings: &Settings) -> Self {
        let frames = FrameTable::new(machine.end(), machine.pageblock_order, machine.max_order);
        let cpu_nodes = cpu_nodes(machine);
        let figures = zone_figures(&machine.view(), settings, &variant);
        let mut zones = Vec::new();
        let mut places = Vec::new();
        let mut zone_compacts = Vec::new();
        for node in &machine.nodes {
            for spec in node.managed_zones() {
                let figures = figures.iter().find(|f| f.node == node.id && f.kind == spec.kind);
                let figures = figures.expect("there are figures for every zone");
                let mut zone = ZoneState::new(spec, figures, machine.max_order, &cpu_nodes);
                zone.boost_factor = settings.watermark_boost_factor;
                zone.can_spread = spec.kind == ZoneKind::Normal && machine.has_below_normal(node);
                zones.push(zone);
                zone_compacts.push(ZoneCompact::new(spec.start, spec.end(), machine.pageblock_order));
                places.push((node.id, spec.kind));
            }
        }
        let nodes = Node::all(machine, &places);
        let homes = memory::node::homes(machine, &nodes);
        let node_of_zone: Vec<NodeId> = places.iter().map(|(node, _)| *node).collect();
        let lru = Lru::new(variant.lru_by, machine, &node_of_zone, cpu_nodes.len());
        let (rmap, thp, slabs) = (Rmap::default(), Thp::default(), Slabs::new(machine, &cpu_nodes, settings, &variant));
        let bandwidth = Bandwidth::default();
        let khugepaged = Khugepaged::default();
        let thp_avail = ThpAvail::new(machine);
        let (swap, shrinkers) = (Swap::default(), Shrinkers::new(machine));
        let folio_waits = FolioWaits::default();
        let cache = PageCache::new(zones.len(), machine, settings);
        Self {
            frames,
            rmap,
            thp,
            huge_zero: HugeZero::default(),
            lru,
            slabs,
            khugepaged,
            thp_avail,
            swap,
            cache,
            orphan_maps: Vec::new(),
            shrinkers,
            swappiness: settings.swappiness,
            bandwidth,
            latency: Latency::default(),
            beside: Beside::default(),
            compaction: Compaction::new(settings),
            folio_waits,
            pins: space::rmap::Pins::default(),
            oom: Oom::default(),
            host: None,
            reporting: None,
            on_free: memory::poison::OnFree::of(settings),
            device_knows_poison: settings.device_knows_poison,
            balloon: None,
            last_faults: balances_numa(machine, &variant, settings)
                .then(|| Box::new(LastFaults::new(machine, variant.numa_splits_false_sharing))),
            numa: numa::numa_balancing::NumaBalancing::of(machine, &variant, settings),
            news: Vec::new(),
            zones: PerZone::new(zones),
            homes,
            nodes,
            kswapds: PerNode::new(machine, |_| Kswapd::default()),
            kcompactds: PerNode::new(machine, |_| Kcompactd::default()),
            thp_threads: PerNode::new(machine, |_| ThpThread::default()),
            zone_compacts: PerZone::new(zone_compacts),
            extfrag_threshold: settings.extfrag_threshold,
            cpu_nodes,
            variant,
        }
    }

    /// Takes over settings that marks, reserves and limits depend on: a write to `vm.min_free_kbytes` and its like;
    /// `setup_per_zone_wmarks`, mm/page_alloc.c (v6.1). `machine`: the one that this was made for.
    pub fn apply_settings(&mut self, cx: &mut Cx<'_>, machine: &MachineView, settings: &Settings) {
        self.swappiness = settings.swappiness;
        self.cache.apply_settings(settings);
        self.compaction.apply_settings(settings);
        self.extfrag_threshold = settings.extfrag_threshold;
        for figures in zone_figures(machine, settings, &self.variant) {
            let is_its = |zone: &&mut ZoneState| zone.node == figures.node && zone.kind == figures.kind;
            if let Some(zone) = self.zones.iter_mut().find(is_its) {
                zone.set_figures(&figures);
                zone.boost_factor = settings.watermark_boost_factor;
                zone.setup_migrate_reserve(&mut self.frames, cx, &self.variant);
            }
        }
    }

    /// The kernel's rules. Everything of a kernel reads them here, where it decides, and keeps none from one step to the next.
    #[inline]
    pub fn variant(&self) -> &Variant {
        &self.variant
    }

    /// Replaces the kernel's rules at this instant, for all that it has: the only way to change them. A timeline of rules will
    /// (docs/plan.md, step 2); until there is one, tests alone do.
    ///
    /// Refuses, and changes nothing, when rules differ that only a boot can change ([`rules::variant::Changes`]).
    pub fn set_variant(&mut self, variant: Variant) -> Result<(), rules::variant::NeedsBoot> {
        self.variant.check_change(&variant)?;
        self.variant = variant;
        Ok(())
    }

    /// Every zone with memory: by node, lowest first.
    pub fn zones(&self) -> &[ZoneState] {
        &self.zones
    }

    /// Free frames of all zones.
    pub fn free_frames(&self) -> Frames {
        Frames(self.zones.iter().map(|zone| zone.buddy.free_frames()).sum())
    }

    /// The machine's gauges, by their names in `/proc/vmstat`: each is kept by the zones and only viewed here.
    pub fn gauges(&self) -> Vec<(&'static str, u64)> {
        let page_tables: Frames = self.zones.iter().map(|zone| zone.page_tables).sum();
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
            ("nr_free_pages", self.free_frames().0),
        ];
        gauges.extend(self.host_resident().map(|frames| ("sim_host_resident", frames)));
        if self.has_reporting() {
            // All, before there is less.
            gauges.push(("sim_report_least_millionths", self.least_reported().unwrap_or(1_000_000)));
        }
        gauges.extend(self.balloon_pages().map(|pages| (guest::balloon::GAUGE, pages)));
        gauges
    }

    /// The zone of a frame that the buddy allocator manages.
    pub(crate) fn zone_of_mut(&mut self, pfn: Pfn) -> &mut ZoneState {
        let zone = self.frames.blocks.zone(pfn).expect("a reserved frame is of no zone");
        &mut self.zones[zone]
    }

    /// How far compaction has come in the zone of a frame that the buddy allocator manages.
    pub(crate) fn zone_compact_of_mut(&mut self, pfn: Pfn) -> &mut ZoneCompact {
        let zone = self.frames.blocks.zone(pfn).expect("a reserved frame is of no zone");
        &mut self.zone_compacts[zone]
    }

    /// The node of a frame that the buddy allocator manages.
    pub fn node_of(&self, pfn: Pfn) -> NodeId {
        let zone = self.frames.blocks.zone(pfn).expect("a reserved frame is of no node");
        self.zones[zone].node
    }

    /// The numbers of all nodes, in their order.
    pub fn node_ids(&self) -> Vec<NodeId> {
        self.nodes.ids().collect()
    }

    /// The node of a CPU.
    #[inline]
    pub fn node_of_cpu(&self, cpu: CpuId) -> NodeId {
        self.cpu_nodes[cpu.0 as usize]
    }

    /// Gives the machine's memory distances, by position of the nodes.
    ///
    /// # Panics
    /// When there is not a figure for each pair of nodes.
    pub fn set_latency(&mut self, latency: Latency) {
        let is_square =
            |of: &[Vec<Picos>]| of.len() == self.nodes.count() && of.iter().all(|row| row.len() == of.len());
        assert!(latency.is_flat() || is_square(&latency.load), "a figure for each pair of nodes");
        assert!(latency.line.is_empty() || is_square(&latency.line), "a figure for each pair of nodes");
        if !latency.links.is_empty() {
            assert!(is_square(&latency.links), "a figure for each pair of nodes");
            self.bandwidth.flows.limit_links(latency.links.clone());
        }
        if !latency.handover.is_empty() {
            assert!(is_square(&latency.handover), "a figure for each pair of nodes");
            let of_page = |line: &Picos| Picos(line.0 * memory::cost::Pattern::Sweep.accesses());
            let handovers = latency.handover.iter().map(|row| row.iter().map(of_page).collect()).collect();
            self.bandwidth.flows.set_handovers(handovers);
        }
        self.latency = latency;
    }

    /// Does it matter what is busy beside a CPU?
    pub fn shares_cpus(&self) -> bool {
        self.latency.sharing.is_some()
    }

    /// Says what is busy beside the CPU that takes the next step.
    pub fn set_beside(&mut self, beside: Beside) {
        self.beside = beside;
    }

    /// The time of user code that needs no memory, now, in percent of its time alone.
    pub fn compute_percent(&self) -> u32 {
        self.latency.sharing.filter(|_| self.beside.on_core).map_or(100, |sharing| sharing.core_percent)
    }

    /// User code accesses a frame `n` times, past all caches.
    pub fn access(&self, cx: &mut Cx<'_>, frame: Pfn, n: u64) {
        let from = self.nodes.place(self.node_of_cpu(cx.cpu()));
        let price = self.latency.of(cx.prices(), from, self.nodes.place(self.node_of(frame)));
        cx.access(price, n);
    }

    /// The largest order of the buddy allocator.
    pub fn max_order(&self) -> Order {
        self.zones[ZoneIndex::FIRST].buddy.max_order()
    }

    /// Starts or stops keeping what falls back, in every zone.
    pub fn trace_extfrag(&mut self, on: bool) {
        for zone in self.zones.iter_mut() {
            zone.buddy.trace = on.then(Vec::new);
        }
    }

    /// Takes the fallbacks since the last call, by zone.
    pub fn take_extfrag(&mut self) -> Vec<Extfrag> {
        self.zones.iter_mut().filter_map(|zone| zone.buddy.trace.as_mut()).flat_map(std::mem::take).collect()
    }
}

/// The node of each CPU, by number.
fn cpu_nodes(machine: &MachineSpec) -> Vec<NodeId> {
    let count = machine.nodes.iter().flat_map(|node| &node.cpus).map(|cpu| cpu.0 as usize + 1).max().unwrap_or(1);
    let mut nodes = vec![machine.nodes[0].id; count];
    for node in &machine.nodes {
        for cpu in &node.cpus {
            nodes[cpu.0 as usize] = node.id;
        }
    }
    nodes
}

/// The figures of every zone, in the order of the machine's nodes and their zones.
pub fn zone_figures(machine: &MachineView, settings: &Settings, rules: &Variant) -> Vec<ZoneFigures> {
    let shares = memory::watermark::Shares::of(machine, settings, rules);
    let mut figures = Vec::new();
    for node in &machine.nodes {
        for (index, zone) in node.zones.iter().enumerate() {
            let marks = shares.marks(zone, rules);
            figures.push(ZoneFigures {
                node: node.id,
                kind: zone.kind,
                marks,
                protection: memory::watermark::protection(node, index, &settings.lowmem_reserve_ratio, rules),
                pcp: memory::pcp::limits(zone.managed, marks.low, machine.local_cpus(node), settings, rules),
            });
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_figure_per_zone_in_order() {
        let zone = |kind, frames| ZoneView { kind, present: Frames(frames), managed: Frames(frames) };
        let node = |id, cpus, normal| NodeView {
            id: NodeId(id),
            cpus,
            zones: vec![zone(ZoneKind::Normal, normal), zone(ZoneKind::Movable, 0)],
        };
        let machine = MachineView { nodes: vec![node(0, 2, 4 << 20), node(3, 0, 1 << 20)] };
        let settings = Settings { min_free_kbytes: 67584, ..Settings::default() };
        let figures = zone_figures(&machine, &settings, rules::variant::named("v6.1"));
        let order: Vec<_> = figures.iter().map(|f| (f.node.0, f.kind)).collect();
        let both = |node| [(node, ZoneKind::Normal), (node, ZoneKind::Movable)];
        assert_eq!(order, [both(0), both(3)].concat());
        assert_eq!(figures[0].marks.min + figures[2].marks.min, Frames(67584 / 4 - 1), "two shares, rounded down");
        assert_eq!(
            figures[2].pcp.high,
            PcpHigh::Fixed(Frames(figures[2].marks.low.0 / 2)),
            "all CPUs: node 3 has none"
        );
    }
}
