//! Linux: include/linux/mmzone.h, and the zonelists of mm/page_alloc.c (v6.1).
//! Differs: nodes do not come and go; the penalty of a node that others of equal distance already turn to first is one
//! per list (5.17 and later; before, it shrank from list to list).

use std::{collections::BTreeSet, ops::Range};

use rules::{
    machine::{MachineSpec, NodeSpec},
    zone::ZoneKind,
};
use units::{NodeId, Picos, Time};

use crate::{
    Memory,
    bandwidth::Server,
    bell::{KcompactdBell, KswapdBell},
    pageblock::ZoneIndex,
    per_node::PerNode,
    zone_state::ZoneState,
};

/// Interval in which pages moved to a node are counted.
// migrate_interval_millisecs, mm/migrate.c (v3.10).
const LIMIT_INTERVAL: Picos = Picos::from_micros(100_000);
/// Most pages that may move to a node in one interval.
// ratelimit_pages, mm/migrate.c (v3.10): 128 MiB.
const LIMIT_PAGES: u64 = 128 << (20 - 12);
/// For how long after a full interval no scans make entries hint.
// pteupdate_interval_millisecs, mm/migrate.c (v3.10).
const SCANS_AGAIN: Picos = Picos::from_micros(1_000_000);

/// Pages moved to a node in the present interval (`numabalancing_migrate_*` of `pg_data_t`, up to 4.18).
#[derive(Clone, Copy, Debug, Default)]
pub struct MoveLimit {
    until: Time,
    pages: u64,
}

impl MoveLimit {
    /// Counts pages that are about to move; false when these are too many (`numamigrate_update_ratelimit`).
    pub fn admits(&mut self, now: Time, pages: u64) -> bool {
        if now > self.until {
            *self = Self { until: now + LIMIT_INTERVAL, pages: 0 };
        }
        let is_limited = self.pages > LIMIT_PAGES;
        if !is_limited {
            self.pages += pages;
        }
        !is_limited
    }

    /// Is the node's interval full, or was it when it ended a short while ago, so that nobody is to fault for it
    /// (`migrate_ratelimited`)?
    pub fn keeps_scans_away(self, now: Time) -> bool {
        now <= self.until + SCANS_AGAIN && self.pages >= LIMIT_PAGES
    }
}

/// A node of the machine, and its state (`pg_data_t`).
#[derive(Clone, Debug)]
pub struct Node {
    /// The node's number.
    pub id: NodeId,
    /// The node's zones with memory, lowest first: its first zone, and one past its last.
    zones: Range<ZoneIndex>,
    /// The node's distance to each node of the machine, in their order; 10 to itself.
    distance: Vec<u32>,
    /// The zones to try for requests that prefer it.
    pub zonelist: Zonelist,
    /// Rings for the thread that keeps memory of the node free.
    pub kswapd: KswapdBell,
    /// Rings for the thread that compacts the node.
    pub kcompactd: KcompactdBell,
    /// A huge block was freed on the node, as such and not by merging, since this was last cleared.
    pub has_freed_huge: bool,
    /// How many pages have been moved to the node lately because they are used there, where that has a limit.
    pub move_limit: MoveLimit,
    /// The bandwidth of the node's memory, where that has a limit.
    pub bandwidth: Server,
}

impl Node {
    /// The nodes of a machine, all threads asleep. `zones`: all zones with memory, each with its node and its kind.
    pub fn all(machine: &MachineSpec, zones: &[(NodeId, ZoneKind)]) -> PerNode<Self> {
        let mut zonelists = zonelists(machine, zones).into_iter();
        let mut first = ZoneIndex(0);
        PerNode::new(machine, |spec| {
            let count = zones.iter().filter(|(node, _)| *node == spec.id).count();
            let count = u16::try_from(count).expect("fewer zones than numbers for them");
            let its = first..ZoneIndex(first.0 + count);
            first = its.end;
            Self {
                id: spec.id,
                zones: its,
                distance: spec.distance.clone(),
                zonelist: zonelists.next().expect("each node has one"),
                kswapd: KswapdBell::default(),
                kcompactd: KcompactdBell::default(),
                has_freed_huge: false,
                move_limit: MoveLimit::default(),
                bandwidth: Server::default(),
            }
        })
    }

    /// The node's zones with memory, lowest first.
    pub fn zones(&self) -> impl DoubleEndedIterator<Item = ZoneIndex> + Clone + use<> {
        (self.zones.start.0..self.zones.end.0).map(ZoneIndex)
    }

    /// Positions of the node's zones among all zones.
    pub(crate) fn zone_range(&self) -> Range<usize> {
        self.zones.start.position()..self.zones.end.position()
    }
}

impl Memory {
    /// The nodes, and what each keeps of its own.
    pub fn nodes(&self) -> &PerNode<Node> {
        &self.nodes
    }

    /// The distances from a node to each node of the machine, in their order (`node_distance`).
    pub fn distances(&self, from: NodeId) -> Vec<u32> {
        self.nodes[from].distance.clone()
    }

    /// A node's zones with memory, lowest first.
    pub fn node_zones(&self, node: NodeId) -> &[ZoneState] {
        self.zones.of(&self.nodes[node])
    }

    /// A node's zones with memory, lowest first, to be changed.
    pub fn node_zones_mut(&mut self, node: NodeId) -> &mut [ZoneState] {
        self.zones.of_mut(&self.nodes[node])
    }

    /// The zones of a node up to a kind, the lowest first.
    pub fn zones_up_to(
        &self,
        node: NodeId,
        highest: ZoneKind,
    ) -> impl DoubleEndedIterator<Item = ZoneIndex> + Clone + '_ {
        self.nodes[node].zones().filter(move |zone| self.zones[*zone].kind <= highest)
    }
}

/// The zones to try for requests that prefer one node, best first, for each highest zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zonelist {
    by_highest: [Vec<ZoneIndex>; ZoneKind::ALL.len()],
    /// Number of zones of the node itself, at the front of each list.
    own: [usize; ZoneKind::ALL.len()],
}

impl Zonelist {
    /// The zones that may serve a request.
    #[inline]
    pub fn zones(&self, highest: ZoneKind, this_node_only: bool) -> &[ZoneIndex] {
        let zones = &self.by_highest[highest as usize];
        if this_node_only { &zones[..self.own[highest as usize]] } else { zones }
    }
}

/// The zonelist of each node; `build_all_zonelists`. `zones`: all zones with memory, each with its node and its kind.
pub(crate) fn zonelists(machine: &MachineSpec, zones: &[(NodeId, ZoneKind)]) -> Vec<Zonelist> {
    let mut loads = vec![0; machine.nodes.len()];
    let list = |(position, local): (usize, &NodeSpec)| {
        let order = node_order(machine, position, &mut loads);
        let within = |node: NodeId, highest: ZoneKind| {
            let of = zones.iter().enumerate().filter(move |(_, zone)| zone.0 == node && zone.1 <= highest);
            of.rev().map(|(index, _)| ZoneIndex(u16::try_from(index).expect("fewer zones than numbers for them")))
        };
        let ids = || order.iter().map(|place| machine.nodes[*place].id);
        Zonelist {
            by_highest: ZoneKind::ALL.map(|highest| ids().flat_map(|node| within(node, highest)).collect()),
            own: ZoneKind::ALL.map(|highest| within(local.id, highest).count()),
        }
    };
    machine.nodes.iter().enumerate().map(list).collect()
}

/// By the number of a node, for each highest zone: the first zone of its list, if it is its own.
pub fn homes(machine: &MachineSpec, nodes: &PerNode<Node>) -> Vec<[ZoneIndex; ZoneKind::ALL.len()]> {
    let numbers = machine.nodes.iter().map(|node| node.id.0 as usize + 1).max().unwrap_or(0);
    let mut homes = vec![[ZoneIndex::NONE; ZoneKind::ALL.len()]; numbers];
    for node in nodes.values() {
        let own = |highest| node.zonelist.zones(highest, true).first().copied().unwrap_or(ZoneIndex::NONE);
        homes[node.id.0 as usize] = ZoneKind::ALL.map(own);
    }
    homes
}

/// Nodes with memory by distance from `local`, `local` first; `build_zonelists` and `find_next_best_node`.
fn node_order(machine: &MachineSpec, local: usize, loads: &mut [u64]) -> Vec<usize> {
    let nodes = &machine.nodes;
    let distance = |to: usize| u64::from(nodes[local].distance[to]);
    let mut left: BTreeSet<usize> = (0..nodes.len()).filter(|node| nodes[*node].has_memory()).collect();
    let mut order = Vec::new();
    let mut previous = local;
    if left.remove(&local) {
        order.push(local);
    }
    // Bound: each round takes one node.
    while let Some(best) = left.iter().copied().min_by_key(|node| {
        let penalty = u64::from(*node < local) + u64::from(!nodes[*node].cpus.is_empty());
        (distance(*node) + penalty, loads[*node], *node)
    }) {
        if distance(best) != distance(previous) {
            loads[best] += 1;
        }
        left.remove(&best);
        order.push(best);
        previous = best;
    }
    order
}

#[cfg(test)]
mod tests;
