//! Where a machine's memory lies, when its file does not say: the map of QEMU's `pc` machine, which recorded guests have.
//!
//! What is not known exactly, the pages that boot keeps for itself, is estimated from recorded guests; a machine imported
//! from a kernel has the kernel's own numbers and needs none of this.

use units::{Bytes, Frames};

use crate::machine::{Machine, ZoneFacts};

/// The DMA zone ends at 16 MiB, DMA32 at 4 GiB (arch/x86/include/asm/dma.h, v6.1).
const DMA_END: u64 = Bytes::mib(16).frames().0;
const DMA32_END: u64 = Bytes::gib(4).frames().0;
/// From this size on, QEMU's `pc` puts what is above 3 GiB beyond 4 GiB (hw/i386/pc_piix.c, 7.2).
const SPLIT_FROM: u64 = Bytes::mib(3584).frames().0;
const LOW_END: u64 = Bytes::gib(3).frames().0;
/// Frame 0 is never used; the hole below 1 MiB, and firmware tables at the end of low memory (recorded e820 maps).
const FIRST: u64 = 1;
const HOLE_BELOW_1M: u64 = 97;
const FIRMWARE: u64 = 32;
/// One 64-byte `struct page` per frame (include/linux/mm_types.h, v6.1).
const FRAMES_PER_STRUCT_PAGE: u64 = 64;
/// Estimates from recorded 6.1 guests: what boot keeps of DMA; the kernel image, its tables and the initramfs, at the top of
/// the last node; and the bounce buffer of machines with memory beyond 4 GiB.
const BOOT_DMA: u64 = 158;
const BOOT_KERNEL: u64 = 8_600;
const SWIOTLB: u64 = Bytes::mib(64).frames().0;

/// The zones of each node, from the machine file or the usual map of a machine.
pub fn zones(machine: &Machine) -> Vec<Vec<ZoneFacts>> {
    if machine.nodes.iter().any(|node| !node.zones.is_empty()) {
        return machine.nodes.iter().map(|node| node.zones.clone()).collect();
    }
    let total = machine.memory().frames().0;
    let low_end = if total >= SPLIT_FROM { LOW_END } else { total };
    let mut next = 0;
    let mut nodes = Vec::with_capacity(machine.nodes.len());
    for node in &machine.nodes {
        let size = node.memory.frames().0;
        let (low, high) = split(next, size, low_end);
        nodes.push(node_zones(low, high, low_end));
        next += size;
    }
    keep_for_boot(&mut nodes, total > low_end);
    nodes
}

/// The part of `size` frames from the `next`th on that lies below the hole, and the part that lies beyond 4 GiB.
fn split(next: u64, size: u64, low_end: u64) -> ((u64, u64), (u64, u64)) {
    let beyond = |frame: u64| DMA32_END + frame.saturating_sub(low_end);
    let end = next + size;
    ((next.min(low_end), end.min(low_end)), (beyond(next), beyond(end)))
}

fn node_zones(low: (u64, u64), high: (u64, u64), low_end: u64) -> Vec<ZoneFacts> {
    let mut zones = Vec::new();
    let mut add = |name: &str, start: u64, end: u64, spanned_to: u64, holes: u64| {
        if start < end {
            zones.push(ZoneFacts {
                name: name.to_owned(),
                start_pfn: start,
                spanned: Frames(spanned_to - start),
                present: Frames(end - start - holes),
                managed: Frames(end - start - holes),
            });
        }
    };
    let dma_end = low.1.min(DMA_END);
    add("DMA", low.0.max(FIRST), dma_end, dma_end, if low.0 == 0 { HOLE_BELOW_1M } else { 0 });
    let firmware = if low.1 == low_end { FIRMWARE } else { 0 };
    // A node with memory on both sides spans the hole between them.
    let spanned_to = if high.0 < high.1 { DMA32_END } else { low.1.saturating_sub(firmware) };
    add("DMA32", low.0.max(DMA_END), low.1.saturating_sub(firmware), spanned_to, 0);
    add("Normal", high.0, high.1, high.1, 0);
    zones
}

/// Takes off what boot keeps: allocated from the top of each node downwards, as memblock does it.
fn keep_for_boot(nodes: &mut [Vec<ZoneFacts>], beyond_4g: bool) {
    let take = |zone: Option<&mut ZoneFacts>, frames: u64| {
        if let Some(zone) = zone {
            zone.managed = Frames(zone.managed.0.saturating_sub(frames));
        }
    };
    let last = nodes.iter().rposition(|zones| !zones.is_empty()).unwrap_or(0);
    for (at, zones) in nodes.iter_mut().enumerate() {
        let present: u64 = zones.iter().map(|zone| zone.present.0).sum();
        let kernel = if at == last { BOOT_KERNEL } else { 0 };
        take(zones.last_mut(), present / FRAMES_PER_STRUCT_PAGE + kernel);
        take(zones.iter_mut().find(|zone| zone.name == "DMA"), BOOT_DMA);
        if beyond_4g && at == 0 {
            take(zones.iter_mut().find(|zone| zone.name == "DMA32"), SWIOTLB);
        }
    }
}

#[cfg(test)]
mod tests {
    use linux::procfs::{Capture, Snapshot};

    use super::*;
    use crate::{import::import, recordings::recording};

    /// The recorded machines of 6.1, with and without what the kernel said of their zones.
    #[test]
    fn the_usual_map_is_that_of_recorded_guests() {
        for (shape, mib) in [("1n-512m", 512), ("2n-2g", 2048), ("1n-4g", 4096), ("4n-2g", 2048)] {
            let dir = recording(&format!("proc/6.1-{shape}/booted"));
            let recorded = import(&Snapshot::parse(&Capture::from_dir(&dir).unwrap()).unwrap(), shape);
            let mut bare = recorded.clone();
            let nodes = bare.nodes.len() as u64;
            for node in &mut bare.nodes {
                node.zones.clear();
                node.memory = Bytes::mib(mib / nodes);
            }
            for (ours, theirs) in zones(&bare).iter().zip(zones(&recorded)) {
                assert_eq!(ours.len(), theirs.len(), "{shape}");
                for (ours, theirs) in ours.iter().zip(&theirs) {
                    let place = |zone: &ZoneFacts| (zone.name.clone(), zone.start_pfn, zone.spanned, zone.present);
                    assert_eq!(place(ours), place(theirs), "{shape}");
                    let off = ours.managed.0.abs_diff(theirs.managed.0);
                    assert!(
                        off * 50 <= theirs.managed.0,
                        "{shape} {}: {} or {}",
                        ours.name,
                        ours.managed,
                        theirs.managed
                    );
                }
            }
        }
    }
}
