//! A machine from what a kernel says about itself: the one that runs, or another whose files or reports there are.
//!
//! | file | has |
//! |---|---|
//! | `collect.rs` | the texts in a folder, a sosreport, a paste, a log |
//! | `refuse.rs` | machines that are not modelled, and files that are missing |
//! | `report.rs` | the machine of an OOM report |

mod collect;
mod refuse;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use linux::{
    procfs::{self, Capture, Snapshot},
    setting,
};
use units::{CpuId, Frames, NodeId};

pub(crate) use self::collect::{Collected, collect};
use self::report::Reported;
use crate::{
    machine::{LOCAL_DISTANCE, Machine, Node, REMOTE_DISTANCE, ZoneFacts},
    source::Source,
    usage::UsageError,
};

/// Settings that shape how memory is handed out, in the order in which the file lists them.
const KEPT: [&str; 6] = [
    "transparent_hugepage/enabled",
    "transparent_hugepage/defrag",
    "vm.min_free_kbytes",
    "vm.lowmem_reserve_ratio",
    "vm.watermark_scale_factor",
    "vm.watermark_boost_factor",
];

/// Kernels up to 5.13 have the first, later ones the second. Each starts as 0, "automatic", and is kept only if someone
/// changed it, as a guest with another kernel would lack it.
const KEPT_IF_SET: [&str; 2] = ["vm.percpu_pagelist_fraction", "vm.percpu_pagelist_high_fraction"];

/// A machine file, and what is to be known of it.
#[derive(Debug)]
pub struct Imported {
    /// The text of the file.
    pub text: String,
    /// Facts that were assumed, because no file says them: a line each.
    pub notes: Vec<String>,
}

/// The machine file of this machine, or of what is at `from`: a copy of /proc and /sys files, a sosreport, a pasted text, an OOM
/// report; `-` is stdin. A release that no file has may be given.
///
/// # Errors
/// One message: all files that are missing, a line that is not what the kernel writes, or a machine that is not modelled.
pub fn machine_file(from: Option<&Path>, name: &str, kernel: Option<&str>) -> Result<Imported, UsageError> {
    let Some(from) = from else {
        let snapshot = Capture::live().and_then(|capture| Snapshot::parse(&capture));
        let snapshot = snapshot.map_err(|error| UsageError::new(error.to_string()))?;
        return finish(&snapshot, name).map_err(UsageError::new);
    };
    match collect(from)? {
        Collected::Files(mut capture) => {
            if let Some(release) = kernel {
                capture.texts.insert("version".to_owned(), format!("Linux version {release}\n"));
            }
            let snapshot = snapshot(&capture);
            snapshot.and_then(|snapshot| finish(&snapshot, name)).map_err(|problem| at(from, &problem))
        }
        Collected::Report(file, found) => {
            let problem = |problem: String| UsageError::in_file(&file, problem);
            let Reported { machine, notes } = report::machine(&found, name, kernel).map_err(problem)?;
            let text = machine.to_toml() + "\n" + &report::beside(&found, &machine);
            valid(&text).map_err(problem)?;
            Ok(Imported { text, notes })
        }
    }
}

fn at(from: &Path, problem: &str) -> UsageError {
    let name = if from == Path::new("-") { "stdin".to_owned() } else { from.display().to_string() };
    UsageError::new(format!("{name}: {problem}"))
}

/// The machine that files of another host describe, if it is modelled.
pub(crate) fn snapshot(capture: &Capture) -> Result<Snapshot, String> {
    if let Some(problem) = refuse::files(capture).or_else(|| refuse::missing(capture)) {
        return Err(problem);
    }
    let snapshot = Snapshot::parse(capture).map_err(|error| error.to_string())?;
    match refuse::page_size(capture, &snapshot) {
        Some(problem) => Err(problem),
        None => Ok(snapshot),
    }
}

fn finish(snapshot: &Snapshot, name: &str) -> Result<Imported, String> {
    let text = import(snapshot, name).to_toml();
    check(snapshot, &text)?;
    Ok(Imported { text, notes: Vec::new() })
}

/// Each file of a copy may be well-formed and the whole be no machine: a CPU on two nodes, a row of distances cut short.
fn check(snapshot: &Snapshot, text: &str) -> Result<(), String> {
    let nodes = snapshot.nodes.len();
    let cut = |node: &&procfs::Node| !node.distances.is_empty() && node.distances.len() != nodes;
    if let Some(node) = snapshot.nodes.iter().find(cut) {
        let found = node.distances.len();
        return Err(format!("node/node{}/distance, line 1: expected {nodes} distances, found {found}", node.id));
    }
    valid(text)
}

fn valid(text: &str) -> Result<(), String> {
    match Machine::from_source(&Source::from_text("imported", text), &setting::names()) {
        Ok(_) => Ok(()),
        // Its line is that of a file that is not written.
        Err(error) => Err(UsageError { file: None, line: None, ..error }.to_string()),
    }
}

/// The machine of a snapshot. Offline nodes and CPUs are left out, and the others numbered from 0 without gaps. A node's
/// memory is that of its present frames.
pub fn import(snapshot: &Snapshot, name: &str) -> Machine {
    let numbers = cpu_numbers(snapshot);
    let nodes = (0..).map(NodeId).zip(&snapshot.nodes);
    let nodes: Vec<Node> = nodes.map(|(id, found)| node(snapshot, id, found, &numbers)).collect();
    let release = &snapshot.version.text;
    let kept = KEPT.into_iter().filter_map(|name| snapshot.settings.get_key_value(name));
    let set = KEPT_IF_SET.into_iter().filter_map(|name| snapshot.settings.get_key_value(name));
    let settings = kept.chain(set.filter(|(_, value)| *value != "0"));
    Machine {
        name: name.to_owned(),
        about: format!("imported from a machine that runs Linux {release}"),
        nodes,
        threads: threads(snapshot, &numbers),
        caches: Vec::new(),
        shared_core: None,
        settings: settings.map(|(name, value)| (name.clone(), value.clone())).collect(),
        modules: Vec::new(),
        disk: None,
        system: None,
        pace: None,
        swap: units::Bytes(0),
        storage: crate::machine::Storage::default(),
        host_page: None,
        prices: Vec::new(),
        latency: None,
        measured: Vec::new(),
        kernel: Some(release.clone()),
    }
}

/// The kernel's number of each online CPU, and ours.
fn cpu_numbers(snapshot: &Snapshot) -> BTreeMap<CpuId, CpuId> {
    let online: BTreeSet<CpuId> = snapshot.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
    online.into_iter().zip((0..).map(CpuId)).collect()
}

fn node(snapshot: &Snapshot, id: NodeId, found: &procfs::Node, numbers: &BTreeMap<CpuId, CpuId>) -> Node {
    let zones = snapshot.zones.iter().filter(|zone| zone.node == found.id && zone.is_populated());
    let zones: Vec<ZoneFacts> = zones
        .map(|zone| ZoneFacts {
            name: zone.name.clone(),
            start_pfn: zone.start_pfn.expect("the kernel prints it for populated zones"),
            spanned: zone.spanned,
            present: zone.present,
            managed: zone.managed,
        })
        .collect();
    Node {
        id,
        cpus: found.cpus.iter().map(|cpu| numbers[cpu]).collect(),
        memory: zones.iter().map(|zone| zone.present).sum::<Frames>().bytes(),
        distance: distances(snapshot, id, found),
        bandwidth: None,
        zones,
    }
}

/// The kernel's row, if it gave one for every node; else what a kernel without a SLIT assumes.
fn distances(snapshot: &Snapshot, id: NodeId, found: &procfs::Node) -> Vec<u32> {
    let nodes = snapshot.nodes.len();
    if snapshot.nodes.iter().all(|node| node.distances.len() == nodes) {
        return found.distances.clone();
    }
    let assumed = |to| if NodeId(to) == id { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
    (0..).map(assumed).take(nodes).collect()
}

/// Cores in the order of their first CPU; none when no core has two threads.
fn threads(snapshot: &Snapshot, numbers: &BTreeMap<CpuId, CpuId>) -> Vec<Vec<CpuId>> {
    let core = |cpu: &CpuId| match snapshot.thread_siblings.get(cpu) {
        Some(siblings) => siblings.iter().filter_map(|sibling| numbers.get(sibling)).copied().collect(),
        None => vec![numbers[cpu]],
    };
    let cores: BTreeSet<Vec<CpuId>> = numbers.keys().map(core).collect();
    if cores.iter().all(|core| core.len() == 1) { Vec::new() } else { cores.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;
    use crate::recordings::recording;

    fn snapshot(name: &str) -> Snapshot {
        let dir = recording(&format!("proc/{name}"));
        Snapshot::parse(&Capture::from_dir(&dir).unwrap()).unwrap()
    }

    fn cpus(numbers: &[u32]) -> Vec<CpuId> {
        numbers.iter().copied().map(CpuId).collect()
    }

    #[test]
    fn two_nodes_as_recorded() {
        let machine = import(&snapshot("6.1-2n-2g/recomputed"), "x");
        assert_eq!(machine.about, "imported from a machine that runs Linux 6.1.0-50-cloud-amd64");
        assert_eq!(machine.kernel.as_deref(), Some("6.1.0-50-cloud-amd64"));
        let [first, second] = machine.nodes.as_slice() else { panic!("{machine:?}") };
        assert_eq!((&first.cpus, &first.distance), (&cpus(&[0, 1]), &vec![10, 20]));
        assert_eq!((&second.cpus, &second.distance), (&cpus(&[2, 3]), &vec![20, 10]));
        assert_eq!(first.memory, Frames(3998 + 258_048).bytes());
        let names: Vec<_> = first.zones.iter().map(|zone| (zone.name.as_str(), zone.start_pfn)).collect();
        assert_eq!(names, [("DMA", 1), ("DMA32", 4096)], "empty zones are left out");
        let settings: Vec<_> = machine.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            settings,
            [
                ("transparent_hugepage/enabled", "always"),
                ("transparent_hugepage/defrag", "madvise"),
                ("vm.min_free_kbytes", "67584"),
                ("vm.lowmem_reserve_ratio", "256 256 32 0 0"),
                ("vm.watermark_scale_factor", "10"),
                ("vm.watermark_boost_factor", "15000"),
            ]
        );
    }

    #[test]
    fn every_recording_becomes_a_valid_file() {
        let shapes = [("1n-512m", 1, 512), ("1n-4g", 1, 4096), ("2n-2g", 2, 2048), ("4n-2g", 4, 2048)];
        let guests = ["5.10", "6.1", "6.12"].into_iter().flat_map(|kernel| {
            shapes.map(|(shape, nodes, mib)| (kernel, format!("{kernel}-{shape}/booted"), nodes, Bytes::mib(mib)))
        });
        let host = ("6.18", "6.18-host/booted".to_owned(), 1, Bytes::gib(24));
        for (kernel, recording, nodes, memory) in guests.chain([host]) {
            let machine = import(&snapshot(&recording), "x");
            assert!(machine.kernel.as_ref().is_some_and(|release| release.starts_with(kernel)), "{recording}");
            assert_eq!(machine.nodes.len(), nodes, "{recording}");
            // Firmware keeps some frames below 1 MiB, and more at the end of memory.
            let lost = memory - machine.memory();
            assert!(lost < Bytes::mib(4), "{recording}: {lost}");
            let source = Source::from_text("x.toml", machine.to_toml());
            assert_eq!(Machine::from_source(&source, &setting::names()), Ok(machine), "{recording}");
        }
    }

    #[test]
    fn nodes_and_cpus_are_renumbered_without_gaps() {
        let mut snapshot = snapshot("6.1-2n-2g/booted");
        snapshot.nodes[1].id = NodeId(3);
        for zone in snapshot.zones.iter_mut().filter(|zone| zone.node == NodeId(1)) {
            zone.node = NodeId(3);
        }
        snapshot.nodes[0].cpus = cpus(&[0, 8]);
        snapshot.nodes[1].cpus = cpus(&[2, 10]);
        // CPU 9 is offline.
        let cores: [(u32, &[u32]); 4] = [(0, &[0, 8]), (8, &[0, 8]), (2, &[2, 9]), (10, &[10])];
        snapshot.thread_siblings = cores.map(|(cpu, core)| (CpuId(cpu), cpus(core))).into();
        let machine = import(&snapshot, "x");
        assert_eq!((machine.nodes[0].id, &machine.nodes[0].cpus), (NodeId(0), &cpus(&[0, 2])));
        assert_eq!((machine.nodes[1].id, &machine.nodes[1].cpus), (NodeId(1), &cpus(&[1, 3])));
        assert!(machine.nodes[1].memory > Bytes::gib(1) - Bytes::mib(4));
        assert_eq!(machine.threads, [cpus(&[0, 2]), cpus(&[1]), cpus(&[3])]);

        snapshot.thread_siblings = cores.map(|(cpu, _)| (CpuId(cpu), cpus(&[cpu]))).into();
        assert_eq!(import(&snapshot, "x").threads, Vec::<Vec<CpuId>>::new(), "one thread per core");
    }

    #[test]
    fn a_source_without_distances_has_the_usual_ones() {
        let mut snapshot = snapshot("6.1-2n-2g/booted");
        snapshot.nodes[1].distances.clear();
        let distances = |machine: Machine| machine.nodes.into_iter().map(|node| node.distance).collect::<Vec<_>>();
        assert_eq!(distances(import(&snapshot, "x")), [[10, 20], [20, 10]]);
    }

    #[test]
    fn well_formed_files_that_make_no_machine_are_refused() {
        let refused = |change: &dyn Fn(&mut Snapshot)| {
            let mut snapshot = snapshot("6.1-2n-2g/booted");
            change(&mut snapshot);
            check(&snapshot, &import(&snapshot, "x").to_toml()).unwrap_err()
        };
        assert_eq!(
            refused(&|snapshot| snapshot.nodes[1].distances = vec![10]),
            "node/node1/distance, line 1: expected 2 distances, found 1"
        );
        assert_eq!(
            refused(&|snapshot| snapshot.nodes[1].distances = vec![30, 10]),
            "node.distance: node 1 to node 0 is 30, but node 0 to node 1 is 20"
        );
        let twice = refused(&|snapshot| snapshot.nodes[1].cpus = snapshot.nodes[0].cpus.clone());
        assert_eq!(twice, "node.cpus: CPU 0 is already on node 0");
    }

    #[test]
    fn per_cpu_lists_are_kept_when_someone_set_them() {
        let mut snapshot = snapshot("6.1-2n-2g/booted");
        snapshot.settings.insert("vm.percpu_pagelist_high_fraction".to_owned(), "8".to_owned());
        let last = import(&snapshot, "x").settings.pop();
        assert_eq!(last, Some(("vm.percpu_pagelist_high_fraction".to_owned(), "8".to_owned())));
    }
}
