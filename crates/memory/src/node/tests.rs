use rules::machine::{MachineSpec, NodeSpec, ZoneSpec};
use units::{CpuId, Frames, Order, Pfn};

use super::*;

fn machine(distances: &[&[u32]], cpus: &[u32], normal: &[u32]) -> MachineSpec {
    let mut start = 0;
    let mut next = |frames| {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(start), frames);
        start += frames;
        zone
    };
    let nodes = (0..).zip(distances).map(|(id, distance)| NodeSpec {
        id: NodeId(id),
        cpus: (0..cpus[id as usize]).map(|cpu| CpuId(id * 8 + cpu)).collect(),
        distance: distance.to_vec(),
        zones: vec![next(normal[id as usize])],
    });
    MachineSpec { pageblock_order: Order(2), max_order: Order(3), nodes: nodes.collect() }
}

fn orders(machine: &MachineSpec) -> Vec<Vec<usize>> {
    let mut loads = vec![0; machine.nodes.len()];
    (0..machine.nodes.len()).map(|node| node_order(machine, node, &mut loads)).collect()
}

#[test]
fn nodes_of_equal_distance_take_turns() {
    let flat =
        machine(&[&[10, 20, 20, 20], &[20, 10, 20, 20], &[20, 20, 10, 20], &[20, 20, 20, 10]], &[1; 4], &[16; 4]);
    assert_eq!(orders(&flat), [[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2]]);
}

#[test]
fn near_nodes_come_first_and_those_without_memory_not_at_all() {
    let ring =
        machine(&[&[10, 21, 31, 21], &[21, 10, 21, 31], &[31, 21, 10, 21], &[21, 31, 21, 10]], &[1; 4], &[16; 4]);
    assert_eq!(orders(&ring)[0], [0, 1, 3, 2]);
    let empty = machine(&[&[10, 20], &[20, 10]], &[1, 1], &[0, 16]);
    assert_eq!(orders(&empty), [[1], [1]]);
}

#[test]
fn zones_go_from_high_to_low_within_a_node() {
    let kinds = [ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::Normal, ZoneKind::Movable];
    let zones = [0, 0, 1, 1].map(NodeId).into_iter().zip(kinds).collect::<Vec<_>>();
    let lists = zonelists(&machine(&[&[10, 20], &[20, 10]], &[1, 1], &[16, 16]), &zones);
    let of = |node: usize, highest, only| -> Vec<u16> {
        lists[node].zones(highest, only).iter().map(|zone| zone.0).collect()
    };
    assert_eq!(of(0, ZoneKind::Movable, false), [1, 0, 3, 2]);
    assert_eq!(of(1, ZoneKind::Movable, false), [3, 2, 1, 0]);
    assert_eq!(of(1, ZoneKind::Normal, false), [2, 1, 0]);
    assert_eq!(of(1, ZoneKind::Dma32, false), [0]);
    assert_eq!(of(1, ZoneKind::Dma32, true), [0; 0]);
    assert_eq!(of(1, ZoneKind::Movable, true), [3, 2]);
}

#[test]
fn what_is_not_managed_is_at_the_ends() {
    let zone =
        ZoneSpec { present: Frames(90), managed: Frames(80), ..ZoneSpec::whole(ZoneKind::Normal, Pfn(100), 100) };
    assert_eq!((zone.managed_range(), zone.end()), ((Pfn(110), Pfn(190)), Pfn(200)));
}

#[test]
fn a_home_is_the_nodes_own_or_none() {
    let mut two = machine(&[&[10, 20], &[20, 10]], &[1, 1], &[0, 16]);
    (two.nodes[0].id, two.nodes[1].id) = (NodeId(1), NodeId(3));
    let zones = [ZoneKind::Normal, ZoneKind::Movable].map(|kind| (NodeId(3), kind));
    let homes = homes(&two, &Node::all(&two, &zones));
    let (none, normal, movable) = (ZoneIndex::NONE, ZoneIndex(0), ZoneIndex(1));
    assert_eq!(homes[..3], [[none; 5]; 3], "node 1 has no memory, and nodes 0 and 2 are none");
    assert_eq!(homes[3], [none, none, normal, movable, movable]);
    assert_eq!(homes.len(), 4);
    let nodes = Node::all(&two, &zones);
    assert_eq!([1, 3].map(|id| nodes[NodeId(id)].zone_range()), [0..0, 0..2]);
}
