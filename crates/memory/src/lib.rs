//! The page allocator of Linux, without the reclaim, the files and the huge pages that stand on it: frames, zones and nodes,
//! free lists, lists of CPUs, watermarks and slabs; and the price of what they do, with the context of a step.
//!
//! | Linux | here | left out |
//! |-------|------|----------|
//! | `include/linux/mmzone.h` | `zone_state.rs`, `lru_kind.rs` | |
//! | `include/linux/mmzone.h` | `pageblock.rs` | |
//! | `include/linux/mm_types.h` | `frame.rs`, `frame/` | |
//! | `mm/slab_common.c` | `slab.rs`, `slab/kinds.rs` | caches but those of VMAs, processes, files and XFS |
//! | `mm/slub.c` | `slab/slub.rs` | partial slabs of other nodes, sheaves (6.18) |
//! | `mm/slab.c` | `slab/arrays.rs` | colours, mempolicy |
//! | `mm/slab.c` | `slab/layout.rs`, `slab/reap.rs` | lists off slabs |
//! | `include/linux/list.h`, `list_lru.h` | `list.rs`, `list_order.rs` | |
//! | `mm/page_alloc.c` | `alloc.rs`, `alloc/fair.rs` | zone reclaim, cpusets |
//! | `mm/page_alloc.c` | `buddy.rs` | |
//! | `mm/shuffle.c` | `shuffle.rs`, `splitmix.rs` | |
//! | `mm/page_poison.c` | `poison.rs` | pages that compaction takes from free lists |
//! | `mm/page_alloc.c` | `fallback.rs` | CMA |
//! | `mm/page_alloc.c` | `reserve.rs` | the limits of 6.8 and later |
//! | `mm/page_alloc.c` | `pcp.rs`, `pcp/` | tuning of `high` and batch at run time, CPU hotplug |
//! | `mm/page_alloc.c` | `node.rs`, `per_node.rs`, `per_zone.rs` | hotplug |
//! | `mm/page_alloc.c` | `watermark.rs` | `totalreserve_pages`; the boost is in `zone_state.rs` |
//! | (none: LLFree) | `llfree.rs`, `llfree/`, `zone_llfree.rs`, `frame_churn.rs` | persistence |
//! | `mm/page_alloc.c` | `frame_allocator.rs`, `frame_allocator/` | |
//! | `arch/x86/mm/tlb.c` | `primitive.rs`, `tlb.rs` | lazy TLBs, PCIDs, the heuristics before 3.17 |
//! | `kernel/locking/qspinlock.c` | `spin.rs` | the queue |
//! | `include/linux/vm_event_item.h` | `event.rs` | events of what is not here |
//! | `include/trace/events/` | `fact.rs`, `fact/reasons.rs` | tracepoints of what is not here |
//! | – | `decision.rs` | decisions that a branch of a run takes otherwise |
//! | (none: conditions of all files) | `tally.rs`, `tally/` | tests of what is not here |
//! | `mm/vmscan.c`, `mm/compaction.c` | `bell.rs` | what the threads do, which is theirs |
//! | `mm/compaction.c`, `mm/vmstat.c` | `suitable.rs` | |
//! | `mm/page_alloc.c` | `free_blocks.rs`, `alloc/lent.rs` | CMA |
//! | `mm/mmzone.c` | `last_fault.rs`, `last_fault/` | |
//! | `virt/kvm/kvm_main.c` | `backing.rs` | what the guest's kernel reads again |
//! | `kernel/kthread.c` | `news.rs` | when and where a thread runs: `sim` decides that |
//! | `mm/page_owner.c` | `block_census.rs` | who asked for a page |
//! | (none: tests) | `check.rs`, `check/` | |
//! | (none: hardware) | `bandwidth.rs`, `bandwidth/`, `line.rs` | |
//! | (none: hardware) | `cost/latency.rs`, `cost/walk.rs` | |
//! | (none: steps and prices) | `step.rs`, `cx.rs`, `cost.rs`, `cost/` | |
//!
//! [`zone_figures`] says what a kernel writes into its zones, given nothing but present and managed frames, CPUs and
//! settings. [`Memory`] is the allocator itself: a caller hands it a request ([`rules::gfp::AllocRequest`]) and the context of
//! its step ([`cx::Cx`]), and has a frame or hears why not ([`alloc::NoMemory`]). Threads that shall make room are not stepped
//! here: [`bell`] says that they are wanted, and [`news`] carries that to whoever runs them. Begin with `alloc.rs`: one request,
//! from the zonelist to a block.

pub mod alloc;
pub mod backing;
pub mod bandwidth;
pub mod bell;
pub mod block_census;
pub mod buddy;
pub mod check;
pub mod cost;
pub mod cx;
pub mod decision;
pub mod event;
pub mod fact;
pub mod fallback;
pub mod frame;
pub mod frame_allocator;
pub mod frame_churn;
pub mod free_blocks;
pub mod last_fault;
pub mod line;
pub mod list;
pub mod list_order;
pub mod llfree;
pub mod lru_kind;
pub mod news;
pub mod node;
pub mod pageblock;
pub mod pcp;
pub mod per_node;
pub mod per_zone;
pub mod poison;
pub mod primitive;
pub mod reserve;
pub mod shuffle;
pub mod slab;
pub mod spin;
pub mod splitmix;
pub mod step;
pub mod suitable;
pub mod tally;
pub mod tlb;
pub mod watermark;
mod zone_llfree;
pub mod zone_state;

use rules::{
    machine::{MachineSpec, NodeSpec},
    variant::Variant,
    zone::{MachineView, Settings, ZoneKind},
};
use serde::{Deserialize, Serialize};
use units::{CpuId, Frames, NodeId, Order, PageAllocator, Pfn, Picos, Time};

use self::{
    bandwidth::Bandwidth,
    cost::{Latency, Prices, latency::Beside},
    cx::Cx,
    event::Counters,
    fallback::Extfrag,
    frame::FrameTable,
    last_fault::LastFaults,
    news::News,
    node::Node,
    pageblock::ZoneIndex,
    pcp::PcpLimits,
    per_node::PerNode,
    per_zone::PerZone,
    slab::Slabs,
    watermark::Marks,
    zone_state::ZoneState,
};

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

/// The page allocator of one machine.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Every frame.
    pub frames: FrameTable,
    /// Kernel objects.
    pub slabs: Slabs,
    bandwidth: Bandwidth,
    /// Latency of accesses of user code, by place of the CPU and of the memory.
    latency: Latency,
    /// Busy CPUs beside that of a step, where they matter.
    beside: Beside,
    /// The host below, where this memory is a guest's.
    host: Option<Box<backing::Host>>,
    /// The pattern written over freed pages, and whether the balloon's device knows of it (`VIRTIO_BALLOON_F_PAGE_POISON`).
    on_free: poison::OnFree,
    device_knows_poison: bool,
    /// The last fault at each page, where automatic NUMA balancing is on.
    last_faults: Option<Box<LastFaults>>,
    /// News that other tasks and threads have not heard of yet.
    news: Vec<News>,
    zones: PerZone<ZoneState>,
    /// The zone that is tried first, if it is the preferred node's own: by the node's number and the highest zone.
    homes: Vec<[ZoneIndex; ZoneKind::ALL.len()]>,
    nodes: PerNode<Node>,
    cpu_nodes: Vec<NodeId>,
    /// `vm.extfrag_threshold`, in thousandths.
    extfrag_threshold: u32,
    variant: Variant,
}

impl Memory {
    /// The memory of a machine that has just booted: all that is managed is free and Movable.
    pub fn new(machine: &MachineSpec, variant: Variant, settings: &Settings) -> Self {
        let mut memory = Self::bare(machine, variant, settings);
        let prices = Prices::free();
        let mut counters = Counters::default();
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        let Self { zones, frames, variant, .. } = &mut memory;
        let specs = machine.nodes.iter().flat_map(NodeSpec::managed_zones);
        for ((zone, index), spec) in zones.iter_mut().zip((0..).map(ZoneIndex)).zip(specs) {
            zone.release(frames, &mut cx, index, spec.managed_range(), variant);
            zone.setup_migrate_reserve(frames, &mut cx, variant);
        }
        memory
    }

    /// The memory of a machine before the allocator is given any of it.
    pub fn bare(machine: &MachineSpec, variant: Variant, settings: &Settings) -> Self {
        let frames = FrameTable::new(machine.end(), machine.pageblock_order, machine.max_order);
        let cpu_nodes = cpu_nodes(machine);
        let figures = zone_figures(&machine.view(), settings, &variant);
        let mut zones = Vec::new();
        let mut places = Vec::new();
        for node in &machine.nodes {
            for spec in node.managed_zones() {
                let figures = figures.iter().find(|f| f.node == node.id && f.kind == spec.kind);
                let figures = figures.expect("there are figures for every zone");
                let mut zone = ZoneState::new(spec, figures, machine.max_order, &cpu_nodes);
                if variant.allocator == PageAllocator::Llfree {
                    zone.hand_to_llfree();
                }
                zone.boost_factor = settings.watermark_boost_factor;
                zone.can_spread = spec.kind == ZoneKind::Normal && machine.has_below_normal(node);
                zones.push(zone);
                places.push((node.id, spec.kind));
            }
        }
        let nodes = Node::all(machine, &places);
        let homes = node::homes(machine, &nodes);
        Self {
            frames,
            slabs: Slabs::new(machine, &cpu_nodes, settings, &variant),
            bandwidth: Bandwidth::default(),
            latency: Latency::default(),
            beside: Beside::default(),
            host: None,
            on_free: poison::OnFree::of(settings),
            device_knows_poison: settings.device_knows_poison,
            last_faults: None,
            news: Vec::new(),
            zones: PerZone::new(zones),
            homes,
            nodes,
            cpu_nodes,
            extfrag_threshold: settings.extfrag_threshold,
            variant,
        }
    }

    /// Keeps the last fault at each page from now on: of a kernel that balances NUMA.
    pub fn keep_last_faults(&mut self, machine: &MachineSpec) {
        self.last_faults = Some(Box::new(LastFaults::new(machine, self.variant.numa_splits_false_sharing)));
    }

    /// Takes over settings that marks, reserves and limits depend on: a write to `vm.min_free_kbytes` and its like;
    /// `setup_per_zone_wmarks`, mm/page_alloc.c (v6.1). `machine`: the one that this was made for.
    pub fn apply_settings(&mut self, cx: &mut Cx<'_>, machine: &MachineView, settings: &Settings) {
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

    /// Sets `vm.extfrag_threshold`, in thousandths, alone: for tests. Users set it with all others ([`Self::apply_settings`]).
    pub fn set_extfrag_threshold(&mut self, thousandths: u32) {
        self.extfrag_threshold = thousandths;
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
        Frames(self.zones.iter().map(ZoneState::free_frames).sum())
    }

    /// A zone with memory.
    #[inline]
    pub fn zone(&self, at: ZoneIndex) -> &ZoneState {
        &self.zones[at]
    }

    /// A zone with memory, to be changed.
    #[inline]
    pub fn zone_mut(&mut self, at: ZoneIndex) -> &mut ZoneState {
        &mut self.zones[at]
    }

    /// A zone with memory, and the frames of all zones, to be changed.
    pub fn zone_and_frames(&mut self, at: ZoneIndex) -> (&ZoneState, &mut FrameTable) {
        (&self.zones[at], &mut self.frames)
    }

    /// Which zones there are: by node, lowest first.
    pub fn zone_indices(&self) -> impl DoubleEndedIterator<Item = ZoneIndex> + Clone + use<> {
        self.zones.indices()
    }

    /// A node.
    #[inline]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// A node, to be changed.
    #[inline]
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id]
    }

    /// The last fault at each page, where automatic NUMA balancing is on.
    #[inline]
    pub fn last_faults(&self) -> Option<&LastFaults> {
        self.last_faults.as_deref()
    }

    /// The last fault at each page, to be changed.
    #[inline]
    pub fn last_faults_mut(&mut self) -> Option<&mut LastFaults> {
        self.last_faults.as_deref_mut()
    }

    /// The zone of a frame that the buddy allocator manages.
    pub fn zone_of_mut(&mut self, pfn: Pfn) -> &mut ZoneState {
        let zone = self.frames.blocks.zone(pfn).expect("a reserved frame is of no zone");
        &mut self.zones[zone]
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

    /// CPUs that there are places for: one past the highest number.
    pub fn cpus(&self) -> usize {
        self.cpu_nodes.len()
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
            let of_page = |line: &Picos| Picos(line.0 * cost::Pattern::Sweep.accesses());
            let handovers = latency.handover.iter().map(|row| row.iter().map(of_page).collect()).collect();
            self.bandwidth.flows.set_handovers(handovers);
        }
        self.latency = latency;
    }

    /// Latency of accesses of user code, by place of the CPU and of the memory.
    #[inline]
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    /// Busy CPUs beside that of this step.
    #[inline]
    pub fn beside(&self) -> &Beside {
        &self.beside
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
        self.zones[ZoneIndex::FIRST].max_order()
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
    let shares = watermark::Shares::of(machine, settings, rules);
    let mut figures = Vec::new();
    for node in &machine.nodes {
        for (index, zone) in node.zones.iter().enumerate() {
            let marks = shares.marks(zone, rules);
            figures.push(ZoneFigures {
                node: node.id,
                kind: zone.kind,
                marks,
                protection: watermark::protection(node, index, &settings.lowmem_reserve_ratio, rules),
                pcp: pcp::limits(zone.managed, marks.low, machine.local_cpus(node), settings, rules),
            });
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use rules::zone::{NodeView, ZoneView};

    use super::*;
    use crate::pcp::PcpHigh;

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
