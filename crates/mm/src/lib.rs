//! The Linux physical-memory manager: mechanism and policy, without clock, I/O or threads.
//!
//! | Linux                  | here           | left out                                                              |
//! |------------------------|----------------|-----------------------------------------------------------------------|
//! | `include/linux/mmzone.h` | `zone.rs`    | HighMem (64-bit only), zone contents: only sizes so far               |
//! | `mm/page_alloc.c`      | `watermark.rs` | boost, `zone_watermark_ok`, `totalreserve_pages`                      |
//! | `mm/khugepaged.c`      | `watermark.rs` | all but the recommended `min_free_kbytes`; its per-size switches too  |
//! | `mm/page_alloc.c`      | `pcp.rs`       | the lists themselves, tuning of `high` at run time, CPU hotplug       |
//! | (several)              | `variant.rs`   | 32-bit rules, configurations without SMP                              |
//!
//! So far the crate is arithmetic only: [`zone_figures`] says what a kernel writes into its zones, given nothing but
//! present and managed frames, CPUs and settings.

pub mod cost;
pub mod event;
pub mod pcp;
pub mod variant;
pub mod watermark;
pub mod zone;

use serde::{Deserialize, Serialize};
use units::{Frames, NodeId};

pub use pcp::{PcpHigh, PcpLimits};
pub use variant::{UnknownRelease, Variant};
pub use watermark::{Marks, automatic_min_free_kbytes};
pub use zone::{MachineView, NodeView, Settings, ZoneKind, ZoneView};

/// What one zone's arithmetic comes to. All quantities are frames.
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
        let figures = zone_figures(&machine, &settings, &variant::V6_1);
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
