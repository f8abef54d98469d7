//! A machine from an OOM report: zones and their sizes as printed, the rest as a machine of that shape usually has it.

use linux::procfs::oom::{Report, ReportedZone};
use units::{Bytes, CpuId, Frames, NodeId};

use super::refuse;
use crate::{
    arithmetic::ComputedZones,
    machine::{LOCAL_DISTANCE, Machine, Node, REMOTE_DISTANCE, ZoneFacts},
    variant,
};

/// DMA is the first 16 MiB of x86-64 and DMA32 the memory below 4 GiB (arch/x86/include/asm/dma.h, v6.1).
const DMA_END: u64 = Bytes::mib(16).frames().0;
const DMA32_END: u64 = Bytes::gib(4).frames().0;
/// Zones begin at a pageblock of their own.
const BLOCK: u64 = Bytes::HUGE_PAGE.frames().0;
/// A release newer than all that there are rules of.
const NEWEST: &str = "999.0";

/// The machine of a report, and what is assumed of it.
pub(crate) struct Reported {
    pub(crate) machine: Machine,
    /// One line each.
    pub(crate) notes: Vec<String>,
}

/// # Errors
/// One sentence: a page size, a zone or a kernel that is not modelled.
pub(crate) fn machine(report: &Report, name: &str, kernel: Option<&str>) -> Result<Reported, String> {
    if report.page_kib != 4 {
        return Err(format!("pages of {} KiB are not modelled: its smallest blocks are not of 4 kB", report.page_kib));
    }
    // Kernels of 2.6 print an empty one on x86-64.
    if let Some(zone) = report.zones.iter().find(|zone| zone.name == "HighMem" && zone.present > 0) {
        return Err(format!("line {}: {}", zone.line, refuse::HIGHMEM));
    }
    if let Some(line) = report.of_32_bit {
        return Err(format!("line {line}: {}", refuse::BITS));
    }
    if let Some(problem) = report.release.as_deref().and_then(refuse::of_32_bit) {
        return Err(problem);
    }
    if let Some(zone) = report.zones.iter().find(|zone| zone.managed.is_none()) {
        return Err(format!("line {}: {}", zone.line, refuse::NO_MANAGED));
    }
    let mut assumed = Vec::new();
    if report.reports > 1 {
        assumed.push(format!("{} reports in it: the last whole one is taken", report.reports));
    }
    assumed.extend(missing(report));
    let mut ids: Vec<NodeId> = report.zones.iter().map(|zone| zone.node).collect();
    ids.sort_unstable();
    ids.dedup();
    let cpus = cpus(report, ids.len(), &mut assumed);
    let mut places = Places { low: 1, high: DMA32_END };
    let nodes = (0..).map(NodeId).zip(&ids).zip(cpus).map(|((id, found), cpus)| {
        let zones = report.zones.iter().filter(|zone| zone.node == *found && zone.present > 0);
        let zones: Vec<ZoneFacts> = zones.map(|zone| places.zone(zone)).collect();
        let distance = |to| if NodeId(to) == id { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
        Node {
            id,
            cpus,
            memory: zones.iter().map(|zone| zone.present).sum::<Frames>().bytes(),
            distance: (0..).map(distance).take(ids.len()).collect(),
            bandwidth: None,
            zones,
        }
    });
    let nodes = nodes.collect();
    assumed.push("where zones lie and what nodes are apart is assumed: a report does not say it".to_owned());
    let kernel = kernel.map(str::to_owned).or_else(|| report.release.clone());
    let release = if let Some(release) = &kernel {
        format!("Linux {release}")
    } else {
        assumed.push("the release is not in it: say --kernel RELEASE, or name rules with --variant".to_owned());
        "an unknown release".to_owned()
    };
    let machine = Machine {
        name: name.to_owned(),
        about: format!("imported from an OOM report of {release}"),
        nodes,
        threads: Vec::new(),
        caches: Vec::new(),
        shared_core: None,
        settings: min_free(report, &mut assumed),
        modules: Vec::new(),
        disk: None,
        system: None,
        pace: None,
        swap: Bytes(0),
        storage: crate::machine::Storage::default(),
        host_page: None,
        prices: Vec::new(),
        latency: None,
        measured: Vec::new(),
        kernel,
    };
    Ok(Reported { machine, notes: assumed })
}

/// A note on memory that a report lacks: it may list only the zones or nodes that the request could use, or be cut short.
fn missing(report: &Report) -> Option<String> {
    let pages = report.ram_pages?;
    let all = pages.saturating_mul(report.page_kib);
    let listed: u64 = report.zones.iter().map(|zone| zone.present).sum();
    (all > listed + listed / 10).then(|| {
        format!(
            "zones of {listed} kB are listed, but the machine has {all} kB ({pages} pages RAM): the other zones are missing, \
             as the report does not list them"
        )
    })
}

/// CPUs by node: as many on each.
fn cpus(report: &Report, nodes: usize, assumed: &mut Vec<String>) -> Vec<Vec<CpuId>> {
    let count = report.cpus.unwrap_or(report.cpus_at_least).max(1);
    if report.cpus.is_none() {
        let named = report.cpus_at_least;
        let how = if named > 0 { format!("CPU {} is named", named - 1) } else { "no CPU is named".to_owned() };
        assumed.push(format!("{how}: {count} of them is assumed, change `cpus` if there are more"));
    }
    let mut all = (0..count).map(CpuId);
    let nodes = u32::try_from(nodes).expect("few nodes");
    let share = |node: u32| count / nodes + u32::from(node < count % nodes);
    (0..nodes).map(|node| all.by_ref().take(share(node) as usize).collect()).collect()
}

/// The setting of which the kernel made the marks: each zone below HighMem has its share of it (`__setup_per_zone_wmarks()`,
/// mm/page_alloc.c, v6.6).
fn min_free(report: &Report, assumed: &mut Vec<String>) -> Vec<(String, String)> {
    const NAME: &str = "vm.min_free_kbytes";
    let of_zones = report.zones.iter().filter(|zone| zone.name != "Movable");
    let sum: u64 = of_zones.map(|zone| zone.marks[0].saturating_sub(zone.boost)).sum();
    if sum == 0 {
        return Vec::new();
    }
    assumed.push(format!("{NAME} is the sum of the min marks, {sum} kB"));
    vec![(NAME.to_owned(), sum.to_string())]
}

/// Where the next zone begins, below and beyond 4 GiB.
struct Places {
    low: u64,
    high: u64,
}

impl Places {
    fn zone(&mut self, zone: &ReportedZone) -> ZoneFacts {
        let frames = |kib: u64| kib / 4;
        let present = frames(zone.present);
        let managed = frames(zone.managed.unwrap_or_default()).min(present);
        let (start, spanned) = match zone.name.as_str() {
            "DMA" if present < DMA_END => (self.low, present.max(DMA_END - self.low)),
            "DMA32" if self.low.max(DMA_END) + present <= DMA32_END => (self.low.max(DMA_END), present),
            // A DMA zone of more than 16 MiB is of another architecture, which need not have these borders.
            _ => (self.high, present),
        };
        let end = (start + spanned).next_multiple_of(BLOCK);
        if start < DMA32_END {
            self.low = end;
        } else {
            self.high = end;
        }
        ZoneFacts {
            name: zone.name.clone(),
            start_pfn: start,
            spanned: Frames(spanned),
            present: Frames(present),
            managed: Frames(managed),
        }
    }
}

/// Lines of a machine file that put the report's marks beside ours, and say how many blocks were free.
pub(crate) fn beside(report: &Report, machine: &Machine) -> String {
    let release = machine.kernel.as_deref().unwrap_or(NEWEST);
    let rules = variant::for_release(release).or_else(|_| variant::for_release(NEWEST));
    let computed = rules.and_then(|rules| ComputedZones::of(machine, &rules.name, &rules.rules));
    let Ok(computed) = computed else { return String::new() };
    let mut text = format!(
        "# Marks min, low and high in kB, without boost: in the report, and computed by rules of {}. Free blocks by order.\n",
        computed.variant
    );
    let zones = report.zones.iter().filter(|zone| zone.present > 0);
    let ours = machine.nodes.iter().flat_map(|node| node.zones.iter().map(|zone| (node.id, zone.name.as_str())));
    for (zone, (node, name)) in zones.zip(ours) {
        let theirs = zone.marks.map(|mark| mark.saturating_sub(zone.boost));
        let own = computed.zones.iter().find(|own| own.node == node && own.kind.name() == name);
        let marks = own.map_or([0; 3], |own| {
            let marks = &own.figures.marks;
            [marks.min, marks.low, marks.high].map(|frames| frames.0 * 4)
        });
        let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        text += &format!("# node {} {}: {}; computed {}", zone.node, zone.name, list(&theirs), list(&marks));
        if !zone.blocks.is_empty() {
            text += &format!("; free {}", list(&zone.blocks));
        }
        text.push('\n');
    }
    text
}
