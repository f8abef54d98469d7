//! A capture's description of one machine at one moment.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use units::{CpuId, NodeId};

use super::{Capture, ProcError, Release, Zone, list, meminfo, version, zoneinfo};

/// Kernel, zones, nodes and settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The kernel (/proc/version).
    pub version: Release,
    /// Zones in the kernel's order (/proc/zoneinfo).
    pub zones: Vec<Zone>,
    /// Online nodes by number.
    pub nodes: Vec<Node>,
    /// Settings by the kernel's names: `vm.min_free_kbytes`, words separated by one space, and
    /// `transparent_hugepage/enabled`, the chosen word.
    pub settings: BTreeMap<String, String>,
    /// /proc/meminfo: KiB, or counts of huge pages; empty when not captured.
    pub meminfo: BTreeMap<String, u64>,
    /// Each CPU's hardware threads of the same core, itself included; empty when not captured.
    pub thread_siblings: BTreeMap<CpuId, Vec<CpuId>>,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The node's number.
    pub id: NodeId,
    /// The node's online CPUs.
    pub cpus: Vec<CpuId>,
    /// Distances to the online nodes, by number, in tenths of the distance to itself; empty when not captured.
    pub distances: Vec<u32>,
}

impl Snapshot {
    /// Parses what a snapshot needs of `capture`; vmstat, buddyinfo and pagetypeinfo are left alone.
    pub fn parse(capture: &Capture) -> Result<Self, ProcError> {
        let zones = zoneinfo::parse(capture.text("zoneinfo")?)?;
        Ok(Self {
            version: version::parse(capture.text("version")?)?,
            nodes: nodes(capture, &zones)?,
            zones,
            settings: settings(capture)?,
            meminfo: capture.text("meminfo").map_or(Ok(BTreeMap::new()), meminfo::parse)?,
            thread_siblings: thread_siblings(capture)?,
        })
    }
}

fn nodes(capture: &Capture, zones: &[Zone]) -> Result<Vec<Node>, ProcError> {
    let with_zones = zones.iter().map(|zone| zone.node);
    let with_files = capture.matching("node/node", "/cpulist").filter_map(|(id, _)| id.parse().ok()).map(NodeId);
    let ids: BTreeSet<NodeId> = with_zones.chain(with_files).collect();
    if let Some(lacking) = ids.iter().find(|id| !zones.iter().any(|zone| zone.node == **id))
        && zoneinfo::prints_empty(zones)
    {
        return Err(ProcError::Missing { file: format!("zoneinfo of node {lacking}") });
    }
    let alone = ids.len() == 1;
    let node = |id| {
        let key = format!("node/node{id}/cpulist");
        let cpus = match capture.text(&key) {
            Ok(text) => list::cpus(&key, text)?,
            // A kernel built without NUMA has one node and no such directory: every CPU is its own.
            Err(_) if alone => all_cpus(zones),
            Err(missing) => return Err(missing),
        };
        let key = format!("node/node{id}/distance");
        let distances = capture.text(&key).map_or(Ok(vec![]), |text| list::distances(&key, text))?;
        Ok(Node { id, cpus, distances })
    };
    ids.into_iter().map(node).collect()
}

fn all_cpus(zones: &[Zone]) -> Vec<CpuId> {
    let cpus: BTreeSet<CpuId> = zones.iter().flat_map(|zone| &zone.pagesets).map(|pageset| pageset.cpu).collect();
    cpus.into_iter().collect()
}

fn settings(capture: &Capture) -> Result<BTreeMap<String, String>, ProcError> {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let vm = capture.matching("sys/vm/", "").map(|(name, text)| (format!("vm.{name}"), words(text)));
    let mut settings: BTreeMap<_, _> = vm.collect();
    for (name, text) in capture.matching("transparent_hugepage/", "") {
        let key = format!("transparent_hugepage/{name}");
        let chosen = list::choice(&key, text)?.to_owned();
        settings.insert(key, chosen);
    }
    Ok(settings)
}

fn thread_siblings(capture: &Capture) -> Result<BTreeMap<CpuId, Vec<CpuId>>, ProcError> {
    let files = capture.matching("cpu/cpu", "/thread_siblings_list");
    let numbered = files.filter_map(|(cpu, text)| Some((cpu.parse().ok()?, text)));
    let entries = numbered.map(|(cpu, text)| {
        let key = format!("cpu/cpu{cpu}/thread_siblings_list");
        Ok((CpuId(cpu), list::cpus(&key, text)?))
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::fuzz::recording;

    #[test]
    fn a_recording_of_four_nodes() {
        let snapshot = Snapshot::parse(&recording("6.1-4n-2g/recomputed")).unwrap();
        assert_eq!((snapshot.version.major, snapshot.version.minor), (6, 1));
        assert_eq!(snapshot.zones.len(), 20);
        assert_eq!(snapshot.nodes[2].cpus, [CpuId(2)]);
        assert_eq!(snapshot.nodes[2].distances, [20, 20, 10, 20]);
        assert_eq!(snapshot.settings["vm.lowmem_reserve_ratio"], "256 256 32 0 0");
        assert_eq!(snapshot.settings["transparent_hugepage/enabled"], "always");
        assert_eq!(snapshot.meminfo["MemTotal"], 2_028_084);
        let json = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
    }

    #[test]
    fn cpus_come_from_zoneinfo_only_without_numa() {
        let mut capture = recording("6.1-1n-4g/recomputed");
        let expected = Snapshot::parse(&capture).unwrap().nodes[0].cpus.clone();
        capture.texts.remove("node/node0/cpulist");
        assert_eq!(Snapshot::parse(&capture).unwrap().nodes[0].cpus, expected);

        let mut capture = recording("6.1-4n-2g/recomputed");
        capture.texts.remove("node/node1/cpulist");
        let error = Snapshot::parse(&capture).unwrap_err().to_string();
        assert_eq!(error, "node/node1/cpulist is not in this capture");
    }

    #[test]
    fn a_node_without_zones_is_a_cut() {
        let mut capture = recording("6.1-4n-2g/recomputed");
        let text = &capture.texts["zoneinfo"];
        let cut = text[..text.find("Node 3,").unwrap()].to_owned();
        capture.texts.insert("zoneinfo".to_owned(), cut);
        let error = Snapshot::parse(&capture).unwrap_err().to_string();
        assert_eq!(error, "zoneinfo of node 3 is not in this capture");
    }

    #[test]
    fn siblings_of_a_cpu() {
        let mut capture = recording("6.1-1n-4g/recomputed");
        capture.texts.insert("cpu/cpu1/thread_siblings_list".to_owned(), "0-1\n".to_owned());
        let snapshot = Snapshot::parse(&capture).unwrap();
        assert_eq!(snapshot.thread_siblings[&CpuId(1)], [CpuId(0), CpuId(1)]);
    }
}
