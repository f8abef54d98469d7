//! Is our zone and watermark arithmetic the kernel's? Both from the same machine, side by side.
//!
//! Ours sees present and managed pages, CPUs and settings; every figure is then held against what the kernel printed.

mod table;

use std::collections::BTreeSet;

use linux::procfs::{Pageset, Snapshot, Zone};
use memory::{ZoneFigures, pcp::PcpHigh, watermark::Marks};
use rules::{
    variant::{Named, Variant},
    zone::{MachineView, NodeView, Settings, ZoneKind, ZoneView},
};
use serde::{Deserialize, Serialize};
use units::{CpuId, Frames, NodeId};

use crate::{machine::Machine, simulated};

/// When the kernel's figures were read; it decides what a difference may mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// As the kernel left them at boot: from before the last pages were freed to the zones.
    Booted,
    /// After the settings were written back, so that the kernel computed everything from today's pages.
    Recomputed,
    /// Some time later.
    Live,
}

impl Phase {
    /// Why a figure may differ in this phase.
    fn reason(self) -> &'static str {
        match self {
            Self::Booted => "pages freed after boot",
            Self::Recomputed => "our rules are not this kernel's",
            Self::Live => "set before memory changed, or the zone is boosted",
        }
    }
}

/// A kernel's figures and ours, zone by zone. Frames, except where a name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoneComparison {
    /// The kernel's release.
    pub release: String,
    /// The name of the rules that ours follow.
    pub variant: String,
    /// When the kernel's figures were read.
    pub phase: Phase,
    /// Zones in the order of /proc/zoneinfo.
    pub zones: Vec<ZoneRow>,
    /// `vm.min_free_kbytes`, which is not part of the zones' verdict: a user may have set it.
    pub min_free_kbytes: MinFree,
}

/// One zone's figures, both ways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoneRow {
    /// The zone's node.
    pub node: NodeId,
    /// Which of the node's zones.
    pub kind: ZoneKind,
    /// Frames that exist.
    pub present: Frames,
    /// Frames that the buddy allocator was given.
    pub managed: Frames,
    /// Figures that the kernel printed.
    pub kernel: Figures,
    /// Figures that we compute.
    pub ours: Figures,
    /// `high` of each CPU at this moment, where the kernel tunes it.
    pub live_high: Vec<LiveHigh>,
    /// Figures that are not equal.
    pub mismatches: Vec<Mismatch>,
}

/// One side's figures of a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Watermarks, without boost where the kernel prints the boost; promo where it prints that.
    pub marks: Marks,
    /// Frames kept from requests whose highest zone is the n-th.
    pub protection: Vec<Frames>,
    /// Batch of a CPU's list; none where the kernel prints no lists. When CPUs differ, of the first that differs from ours.
    pub pcp_batch: Option<Frames>,
    /// High of a CPU's list, or its bounds; none where the kernel does not print them.
    pub pcp_high: Option<PcpHigh>,
}

/// One CPU's tuned `high` at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveHigh {
    /// The CPU.
    pub cpu: CpuId,
    /// The CPU's `high`, in frames.
    pub high: Frames,
    /// Is it within its bounds?
    pub state: LiveState,
}

/// Where a tuned `high` is.
///
/// A CPU moves its `high` into the bounds whenever it takes pages from its list or puts some there (`nr_pcp_alloc` and
/// `nr_pcp_high`, mm/page_alloc.c, v6.18), and at no other time: whoever changes the bounds leaves it alone (`pageset_update`).
/// Bounds follow the low mark and the managed pages, so they change when the marks are first computed at boot, with a setting,
/// and when the kernel computes the marks anew after a balloon or hotplug. A CPU whose pages come from a higher zone may not
/// use a list for hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LiveState {
    /// Between the bounds of now.
    Within,
    /// 0: this CPU has not used its list of this zone yet.
    Unused,
    /// Between bounds that this zone may have had when the CPU used its list last.
    Stale,
    /// Where no bounds of this zone allow it.
    Outside,
}

/// The smallest `high_min` that any zone has: a batch of one page, times four (`zone_highsize`, mm/page_alloc.c, v6.18).
const LEAST_HIGH: Frames = Frames(4);
/// The largest `high_max`: one part in this many of the zone, for one CPU alone, as there is early at boot
/// (`MIN_PERCPU_PAGELIST_HIGH_FRACTION`, mm/page_alloc.c, v6.18).
const MOST_HIGH_PART: u64 = 8;

/// One figure that is not equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Which, such as "min" or "protection\[2\]".
    pub figure: String,
    /// The kernel's, in frames; none if it has no such figure.
    pub kernel: Option<Frames>,
    /// Ours, in frames; none if we have no such figure.
    pub ours: Option<Frames>,
    /// The suspected cause.
    pub reason: String,
}

/// `vm.min_free_kbytes` in force, and what we would choose.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MinFree {
    /// In force, in KiB.
    pub kernel_kib: u64,
    /// The automatic value by our rules, in KiB.
    pub automatic_kib: u64,
    /// Ours above the kernel's, in percent of the kernel's.
    pub difference_percent: f64,
    /// Is the difference within [`MinFree::TOLERANCE_PERCENT`]?
    pub within: bool,
}

/// The figures of a simulated machine's zones, which no kernel has printed. Frames, except where a name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComputedZones {
    /// The name of the rules that they follow.
    pub variant: String,
    /// Zones in the order of /proc/zoneinfo.
    pub zones: Vec<ComputedZone>,
    /// `vm.min_free_kbytes`: what is set, or what the kernel chooses, in KiB.
    pub min_free_kbytes: u64,
}

/// One zone of a simulated machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComputedZone {
    /// The zone's node.
    pub node: NodeId,
    /// Which of the node's zones.
    pub kind: ZoneKind,
    /// Frames that the buddy allocator is given.
    pub managed: Frames,
    /// Marks, protection and limits of lists.
    pub figures: Figures,
}

impl ComputedZones {
    /// Of a machine with its settings, under rules of this name.
    ///
    /// # Errors
    /// When the machine cannot be laid out.
    pub fn of(machine: &Machine, variant: &str, rules: &Variant) -> Result<Self, String> {
        let view = simulated::spec(machine)?.view();
        let settings = simulated::settings(machine, &view, rules)?;
        let managed = view.nodes.iter().flat_map(|node| &node.zones).map(|zone| zone.managed);
        let zone = |(figures, managed): (ZoneFigures, Frames)| ComputedZone {
            node: figures.node,
            kind: figures.kind,
            managed,
            figures: Figures {
                marks: figures.marks,
                protection: figures.protection,
                pcp_batch: Some(figures.pcp.batch),
                pcp_high: Some(figures.pcp.high),
            },
        };
        Ok(Self {
            variant: variant.to_owned(),
            zones: memory::zone_figures(&view, &settings, rules).into_iter().zip(managed).map(zone).collect(),
            min_free_kbytes: settings.min_free_kbytes,
        })
    }
}

/// Why a snapshot has no arithmetic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArithmeticError {
    /// A setting that the arithmetic reads was not captured.
    #[error("setting {name} is not in this snapshot")]
    NoSetting {
        /// The setting.
        name: &'static str,
    },
    /// A setting is not what the kernel prints.
    #[error("setting {name}: expected numbers of 32 bits, found {found:?}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// The text of the field.
        found: String,
    },
    /// A zone that we do not have, such as HighMem.
    #[error("no rules for zone {0}: 64-bit kernels do not have it")]
    Zone(String),
}

/// All that the arithmetic may see of a machine. Zones that old kernels do not print, because they are empty, are added.
pub fn view(snapshot: &Snapshot) -> Result<(MachineView, Settings), ArithmeticError> {
    let kinds = zone_kinds(&snapshot.zones)?;
    let nodes = snapshot.nodes.iter().map(|node| {
        let zones = kinds.iter().map(|kind| {
            let printed = snapshot.zones.iter().find(|zone| zone.node == node.id && zone.name == kind.name());
            let (present, managed) = printed.map_or_else(Default::default, |zone| (zone.present, zone.managed));
            ZoneView { kind: *kind, present, managed }
        });
        NodeView { id: node.id, cpus: u32::try_from(node.cpus.len()).expect("few CPUs"), zones: zones.collect() }
    });
    Ok((MachineView { nodes: nodes.collect() }, settings(snapshot)?))
}

/// The kinds that the kernel was built with: those it prints, and the likeliest others until there is one for each
/// protection entry.
fn zone_kinds(zones: &[Zone]) -> Result<BTreeSet<ZoneKind>, ArithmeticError> {
    let kind = |zone: &Zone| ZoneKind::from_name(&zone.name).ok_or_else(|| ArithmeticError::Zone(zone.name.clone()));
    let mut kinds = zones.iter().map(kind).collect::<Result<BTreeSet<_>, _>>()?;
    let built = zones.iter().map(|zone| zone.protection.len()).max().unwrap_or(0);
    // x86-64 always has the first two.
    for likely in [ZoneKind::Normal, ZoneKind::Movable, ZoneKind::Dma32, ZoneKind::Dma, ZoneKind::Device] {
        if kinds.len() < built {
            kinds.insert(likely);
        }
    }
    Ok(kinds)
}

fn settings(snapshot: &Snapshot) -> Result<Settings, ArithmeticError> {
    let numbers = |name: &'static str| {
        let Some(text) = snapshot.settings.get(name) else { return Ok(None) };
        // The kernel keeps these as int and takes a negative ratio for 0.
        let number = |word: &str| word.parse::<i32>().map(|number| u32::try_from(number).unwrap_or(0));
        let numbers: Result<Vec<u32>, _> = text.split_whitespace().map(number).collect();
        match numbers {
            Ok(numbers) if !numbers.is_empty() => Ok(Some(numbers)),
            _ => Err(ArithmeticError::Setting { name, found: text.clone() }),
        }
    };
    let need = |name| numbers(name)?.ok_or(ArithmeticError::NoSetting { name });
    let or = |name, default| Ok(numbers(name)?.map_or(default, |numbers| numbers[0]));
    let unset = Settings::default();
    // The fraction was called percpu_pagelist_fraction before 5.14, and the scale factor is new in 4.6.
    let fraction = or("vm.percpu_pagelist_fraction", unset.percpu_pagelist_high_fraction)?;
    let thp = snapshot.settings.get("transparent_hugepage/enabled");
    Ok(Settings {
        min_free_kbytes: u64::from(need("vm.min_free_kbytes")?[0]),
        watermark_scale_factor: or("vm.watermark_scale_factor", unset.watermark_scale_factor)?,
        lowmem_reserve_ratio: need("vm.lowmem_reserve_ratio")?,
        percpu_pagelist_high_fraction: or("vm.percpu_pagelist_high_fraction", fraction)?,
        thp: thp.is_some_and(|chosen| chosen != "never"),
        ..Settings::default()
    })
}

/// Holds the kernel's figures against ours under the rules of `variant`.
pub fn compare(snapshot: &Snapshot, variant: &Named, phase: Phase) -> Result<ZoneComparison, ArithmeticError> {
    let (machine, mut settings) = view(snapshot)?;
    let in_force = settings.min_free_kbytes;
    let automatic = memory::watermark::automatic_min_free_kbytes(&machine, &settings, &variant.rules);
    if phase == Phase::Booted {
        // Nobody has set it yet, so it is no input: ours follows from the pages as well.
        settings.min_free_kbytes = automatic;
    }
    let figures = memory::zone_figures(&machine, &settings, &variant.rules);
    let row = |zone: &Zone| {
        let same = |ours: &&ZoneFigures| ours.node == zone.node && ours.kind.name() == zone.name;
        row(zone, figures.iter().find(same).expect("the view has every zone that is printed"), phase)
    };
    Ok(ZoneComparison {
        release: snapshot.version.text.clone(),
        variant: variant.name.clone(),
        phase,
        zones: snapshot.zones.iter().map(row).collect(),
        min_free_kbytes: MinFree::new(in_force, automatic),
    })
}

impl ZoneComparison {
    /// Is every figure of every zone equal?
    pub fn equal(&self) -> bool {
        self.zones.iter().all(|zone| zone.mismatches.is_empty())
    }

    /// Everything that is not equal, with its zone.
    pub fn mismatches(&self) -> impl Iterator<Item = (&ZoneRow, &Mismatch)> {
        self.zones.iter().flat_map(|zone| zone.mismatches.iter().map(move |mismatch| (zone, mismatch)))
    }
}

impl MinFree {
    /// How far the computed and the real value may be apart, in percent. The kernel chose with fewer pages, early at boot: the
    /// pages of a guest's initramfs were missing, 24 MiB of 512 in our smallest guest, of which the square root leaves half.
    pub const TOLERANCE_PERCENT: f64 = 2.5;

    fn new(kernel_kib: u64, automatic_kib: u64) -> Self {
        let difference_percent = (automatic_kib as f64 - kernel_kib as f64) * 100.0 / u64::max(kernel_kib, 1) as f64;
        let within = difference_percent.abs() <= Self::TOLERANCE_PERCENT;
        Self { kernel_kib, automatic_kib, difference_percent, within }
    }
}

fn row(zone: &Zone, computed: &ZoneFigures, phase: Phase) -> ZoneRow {
    let worst = zone.pagesets.iter().find(|set| !agrees(set, computed)).or(zone.pagesets.first());
    let kernel = kernel_figures(zone, worst, computed.pcp.high);
    let ours = Figures {
        marks: Marks { promo: zone.promo.and(computed.marks.promo), ..computed.marks },
        protection: computed.protection.clone(),
        pcp_batch: kernel.pcp_batch.map(|_| computed.pcp.batch),
        pcp_high: kernel.pcp_batch.map(|_| computed.pcp.high),
    };
    let bounds = match kernel.pcp_high.unwrap_or(computed.pcp.high) {
        PcpHigh::Fixed(_) => None,
        PcpHigh::Tuned { min, max } => Some((min, max)),
    };
    let live_high = bounds.map(|bounds| zone.pagesets.iter().map(|set| live_high(zone, set, bounds)).collect());
    ZoneRow {
        node: zone.node,
        kind: computed.kind,
        present: zone.present,
        managed: zone.managed,
        mismatches: mismatches(&kernel, &ours, phase),
        kernel,
        ours,
        live_high: live_high.unwrap_or_default(),
    }
}

/// Does one CPU's list follow our limits?
fn agrees(set: &Pageset, computed: &ZoneFigures) -> bool {
    set.batch == computed.pcp.batch && printed_high(set, computed.pcp.high).is_none_or(|high| high == computed.pcp.high)
}

/// The form in which the kernel prints the figure that we compute as `ours`: bounds only where it prints them.
fn printed_high(set: &Pageset, ours: PcpHigh) -> Option<PcpHigh> {
    match ours {
        PcpHigh::Fixed(_) => Some(PcpHigh::Fixed(set.high)),
        PcpHigh::Tuned { .. } => Some(PcpHigh::Tuned { min: set.high_min?, max: set.high_max? }),
    }
}

fn kernel_figures(zone: &Zone, set: Option<&Pageset>, ours: PcpHigh) -> Figures {
    let boost = zone.boost.unwrap_or_default();
    let unboosted = |mark: Frames| Frames(mark.0.saturating_sub(boost.0));
    Figures {
        marks: Marks {
            min: unboosted(zone.min),
            low: unboosted(zone.low),
            high: unboosted(zone.high),
            promo: zone.promo.map(unboosted),
        },
        protection: zone.protection.clone(),
        pcp_batch: set.map(|set| set.batch),
        pcp_high: set.and_then(|set| printed_high(set, ours)),
    }
}

fn live_high(zone: &Zone, set: &Pageset, (min, max): (Frames, Frames)) -> LiveHigh {
    let most = Frames(zone.present.0 / MOST_HIGH_PART).max(max);
    let state = match set.high {
        Frames(0) => LiveState::Unused,
        high if (min..=max).contains(&high) => LiveState::Within,
        high if (LEAST_HIGH..=most).contains(&high) => LiveState::Stale,
        _ => LiveState::Outside,
    };
    LiveHigh { cpu: set.cpu, high: set.high, state }
}

fn mismatches(kernel: &Figures, ours: &Figures, phase: Phase) -> Vec<Mismatch> {
    let mut pairs = vec![
        ("min".to_owned(), Some(kernel.marks.min), Some(ours.marks.min)),
        ("low".to_owned(), Some(kernel.marks.low), Some(ours.marks.low)),
        ("high".to_owned(), Some(kernel.marks.high), Some(ours.marks.high)),
        ("promo".to_owned(), kernel.marks.promo, ours.marks.promo),
        ("pcp batch".to_owned(), kernel.pcp_batch, ours.pcp_batch),
    ];
    let entries = kernel.protection.len().max(ours.protection.len());
    pairs.extend((0..entries).map(|entry| {
        let of = |side: &Figures| side.protection.get(entry).copied();
        (format!("protection[{entry}]"), of(kernel), of(ours))
    }));
    match (kernel.pcp_high, ours.pcp_high) {
        (Some(PcpHigh::Fixed(kernel)), Some(PcpHigh::Fixed(ours))) => {
            pairs.push(("pcp high".to_owned(), Some(kernel), Some(ours)));
        }
        (Some(PcpHigh::Tuned { min, max }), Some(PcpHigh::Tuned { min: our_min, max: our_max })) => {
            pairs.push(("pcp high_min".to_owned(), Some(min), Some(our_min)));
            pairs.push(("pcp high_max".to_owned(), Some(max), Some(our_max)));
        }
        // Bounds that the kernel does not print.
        _ => {}
    }
    let differing = pairs.into_iter().filter(|(_, kernel, ours)| kernel != ours);
    let reason = phase.reason().to_owned();
    differing.map(|(figure, kernel, ours)| Mismatch { figure, kernel, ours, reason: reason.clone() }).collect()
}
