//! Nodes, memory policies and places of pages, by system calls and /sys.

use std::ptr;

use os::{Mempolicy, NumaNode, VmRange};
use units::{Bytes, CpuId, Errno, NodeId};

use crate::{host::errno, memory::pointer, procfs};

const NODES: &str = "/sys/devices/system/node";

/// The nodes that the kernel shows, each with the CPUs among `cpus` that it has; one node with all CPUs where the
/// kernel shows no node.
pub(crate) fn nodes(cpus: &[CpuId], whole: Bytes) -> Vec<NumaNode> {
    let list = |file: String| {
        let text = std::fs::read_to_string(&file).ok()?;
        // Nodes are listed as CPUs are.
        procfs::list::cpus(&file, &text).ok()
    };
    let Some(ids) = list(format!("{NODES}/online")) else {
        return vec![NumaNode { id: NodeId(0), cpus: cpus.to_vec(), memory: whole, distance: vec![10] }];
    };
    let node = |id: &CpuId| {
        let its = list(format!("{NODES}/node{id}/cpulist")).unwrap_or_default();
        let cpus = cpus.iter().copied().filter(|cpu| its.contains(cpu)).collect();
        NumaNode { id: NodeId(id.0), cpus, memory: memory_of(*id), distance: distances_of(*id) }
    };
    ids.iter().map(node).collect()
}

/// Distances from a node to all nodes that are online; empty where the kernel does not say.
fn distances_of(id: CpuId) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("{NODES}/node{id}/distance")).unwrap_or_default();
    text.split_whitespace().map(str::parse).collect::<Result<_, _>>().unwrap_or_default()
}

/// `MemTotal` of a node.
fn memory_of(id: CpuId) -> Bytes {
    let text = std::fs::read_to_string(format!("{NODES}/node{id}/meminfo")).unwrap_or_default();
    let total =
        text.lines().find_map(|line| line.split_once("MemTotal:")?.1.trim().strip_suffix("kB")?.trim().parse().ok());
    Bytes::kib(total.unwrap_or(0))
}

/// Nodes that a mask has bits for.
const MASK_BITS: usize = 1024;

pub(crate) fn set_mempolicy(policy: &Mempolicy) -> Result<(), Errno> {
    // include/uapi/linux/mempolicy.h
    let (mode, nodes) = match policy {
        Mempolicy::Local => (0, [].as_slice()),
        Mempolicy::Preferred(node) => (1, std::slice::from_ref(node)),
        Mempolicy::Bind(nodes) => (2, nodes.as_slice()),
        Mempolicy::Interleave(nodes) => (3, nodes.as_slice()),
    };
    let mut mask = [0_u64; MASK_BITS / 64];
    for node in nodes {
        *mask.get_mut(node.0 as usize / 64).ok_or(Errno::INVAL)? |= 1 << (node.0 % 64);
    }
    let mask_pointer = if nodes.is_empty() { ptr::null() } else { mask.as_ptr() };
    // The kernel takes one bit less than it is told of (`get_nodes`).
    let bits = if nodes.is_empty() { 0 } else { MASK_BITS + 1 };
    #[expect(unsafe_code, reason = "the C library does not wrap set_mempolicy")]
    // SAFETY: the kernel reads as many bits as `mask` has, and the policy only says where new pages go.
    let status = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask_pointer, bits) };
    nix::errno::Errno::result(status).map(drop).map_err(errno)
}

/// The node of each page of a range; none where nothing is, or a zero page. `move_pages(2)` without nodes to move to.
pub(crate) fn node_of(range: VmRange) -> Result<Vec<Option<NodeId>>, Errno> {
    let count = usize::try_from(range.pages(Bytes::PAGE)).map_err(|_| Errno::INVAL)?;
    let first = pointer(range)?.as_ptr();
    let page = usize::try_from(Bytes::PAGE.0).expect("a page");
    let pages: Vec<_> = (0..count).map(|n| first.wrapping_byte_add(n * page)).collect();
    let mut status = vec![0_i32; count];
    let (pages, to, places) = (pages.as_ptr(), ptr::null::<i32>(), status.as_mut_ptr());
    #[expect(unsafe_code, reason = "the C library does not wrap move_pages")]
    // SAFETY: the kernel reads `count` addresses and writes as many places; without nodes to move to, it moves nothing.
    let result = unsafe { libc::syscall(libc::SYS_move_pages, 0, count, pages, to, places, 0) };
    nix::errno::Errno::result(result).map_err(errno)?;
    Ok(status.into_iter().map(|node| u32::try_from(node).ok().map(NodeId)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{host::usable_cpus, memory};

    #[test]
    fn the_nodes_have_the_cpus_between_them() {
        let cpus = usable_cpus();
        let nodes = nodes(&cpus, Bytes::gib(1));
        let mut found: Vec<CpuId> = nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        found.sort_unstable();
        let mut cpus = cpus;
        cpus.sort_unstable();
        assert_eq!(found, cpus);
        assert!(nodes.iter().any(NumaNode::has_memory));
        let are_own =
            (0..).zip(&nodes).all(|(at, node): (usize, _)| node.distance.get(at).is_none_or(|own| *own == 10));
        assert!(are_own, "a node is at distance 10 from itself: {nodes:?}");
    }

    #[test]
    fn bound_memory_is_on_its_node() {
        let node = nodes(&usable_cpus(), Bytes::gib(1)).into_iter().find(NumaNode::has_memory).unwrap().id;
        match set_mempolicy(&Mempolicy::Bind(vec![node])) {
            Ok(()) => {}
            Err(refused) => return println!("skipped: set_mempolicy: {refused}"),
        }
        let range = memory::map_anonymous(Bytes(Bytes::PAGE.0 * 20)).unwrap();
        memory::store(range.part(Bytes(0), Bytes(Bytes::PAGE.0 * 10)), Bytes::PAGE);
        match node_of(range) {
            Ok(places) => assert_eq!(places, [vec![Some(node); 10], vec![None; 10]].concat()),
            Err(refused) => println!("skipped: move_pages: {refused}"),
        }
        set_mempolicy(&Mempolicy::Local).unwrap();
        assert!(set_mempolicy(&Mempolicy::Bind(Vec::new())).is_err(), "bound to nothing");
        memory::unmap(range).unwrap();
    }
}
