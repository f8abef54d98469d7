//! Linux: cache_reap() and below in mm/slab.c (v4.20).
//! Differs: the work of an idle CPU is not put off (`INIT_DEFERRABLE_WORK`); `slab_mutex` is always free; the caches of a node
//! become due in the order of their numbers, not of the addresses of their descriptors.
//!
//! Every two seconds each CPU drops idle objects from its arrays, and every four seconds one CPU of a node does so for the
//! node.

use rules::machine::MachineSpec;
use units::{NodeId, Picos, Time};

use super::{Cache, arrays::Which};
use crate::{
    Memory,
    cx::Cx,
    step::{Step, Wait},
};

/// From one look at a CPU's arrays to the next (`REAPTIMEOUT_AC`).
pub const REAP_CPU: Picos = Picos::from_micros(2_000_000);
/// From one look at a node's to the next (`REAPTIMEOUT_NODE`).
const REAP_NODE: Picos = Picos::from_micros(4_000_000);

/// The state of a CPU's work (`slab_reap_work`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reaper {
    /// The cache that is next.
    at: usize,
    /// The node whose objects, collected on this CPU's node, are sent home next (`slab_reap_node`).
    aliens_of: NodeId,
    /// When the present run of the work, or the last one, was due.
    due: Option<Time>,
}

impl Reaper {
    pub(super) fn new(machine: &MachineSpec, node: NodeId) -> Self {
        let ids: Vec<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
        Self { at: 0, aliens_of: next_in(&ids, node), due: None }
    }
}

/// The next node by number, and round again (`next_node_in`).
fn next_in(ids: &[NodeId], node: NodeId) -> NodeId {
    let behind = ids.iter().copied().filter(|id| *id > node).min();
    behind.or_else(|| ids.iter().copied().min()).unwrap_or(node)
}

/// When a cache is first due on a node.
pub(super) fn first_of(cache: Cache) -> Time {
    Time(REAP_NODE.0 * cache as u64 / Cache::ALL.len() as u64)
}

impl Memory {
    /// The work of this CPU goes on with one kind of object, or waits until it is due again (`cache_reap`).
    pub fn step_cache_reap(&mut self, cx: &mut Cx) -> Step<()> {
        let cpu = cx.cpu().0 as usize;
        let reaper = &mut self.slabs.arrays_mut().reapers[cpu];
        let due = *reaper.due.get_or_insert(cx.now());
        if let Some(cache) = Cache::ALL.get(reaper.at).copied() {
            reaper.at += 1;
            let of = reaper.aliens_of;
            self.reap_cache(cx, cache, of);
            return Step::More;
        }
        let ids = self.node_ids();
        let late = (cx.now().0 - due.0) / REAP_CPU.0;
        let due = due + Picos(REAP_CPU.0 * (1 + late));
        let reaper = &mut self.slabs.arrays_mut().reapers[cpu];
        *reaper = Reaper { at: 0, aliens_of: next_in(&ids, reaper.aliens_of), due: Some(due) };
        Step::Block(Wait::Until(due))
    }

    fn reap_cache(&mut self, cx: &mut Cx, cache: Cache, of: NodeId) {
        let (cpu, node, now) = (cx.cpu(), self.node_of_cpu(cx.cpu()), cx.now());
        if of != node {
            let (kmem, frames) = self.slab_cache(cache);
            let gone = kmem.drain_aliens(frames, node, of);
            self.destroy_slabs(cx, gone);
        }
        let (kmem, frames) = self.slab_cache(cache);
        let gone = kmem.drain_unused(frames, Which::Cpu(cpu), node);
        self.destroy_slabs(cx, gone);
        let (kmem, frames) = self.slab_cache(cache);
        if kmem.nodes[node].next_reap > now {
            return;
        }
        kmem.nodes[node].next_reap = now + REAP_NODE;
        let gone = kmem.drain_unused(frames, Which::Shared, node);
        self.destroy_slabs(cx, gone);
        let (kmem, frames) = self.slab_cache(cache);
        let gone = kmem.drain_free(frames, node);
        self.destroy_slabs(cx, gone);
    }

    /// Does each CPU look for objects that lie idle?
    pub fn reaps_caches(&self) -> bool {
        self.slabs.arrays().is_some()
    }
}
