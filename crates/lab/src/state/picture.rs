//! Memory of the simulator at one moment, in the kernel's words: /proc/buddyinfo and /proc/pagetypeinfo, and a checksum of
//! every frame.

use memory::{frame::Frame, pageblock::MigrateType};
use mm::Mm;
use units::{BlockCensus, Order};

/// Memory as a simulated kernel would print it, and the checksum that tells it from any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    /// /proc/buddyinfo.
    pub(crate) buddyinfo: String,
    /// /proc/pagetypeinfo.
    pub(crate) pagetypeinfo: String,
    /// How scattered unmovable memory is.
    pub(crate) census: BlockCensus,
    /// BLAKE3 of both texts and of what every frame is.
    pub(crate) checksum: String,
}

impl Picture {
    /// Of memory as it is now.
    pub(crate) fn of(mm: &Mm) -> Self {
        let (buddyinfo, pagetypeinfo) = (buddyinfo(mm), pagetypeinfo(mm));
        let mut hash = blake3::Hasher::new();
        hash.update(buddyinfo.as_bytes()).update(pagetypeinfo.as_bytes());
        let mut words = Vec::with_capacity(CHUNK);
        mm.memory.visit_blocks(|pfn, frames, frame| {
            let of_block = mm.memory.frames.blocks.migrate_type(pfn) as u8;
            words.extend(frames.to_le_bytes());
            words.extend([kind(frame), of_block]);
            if words.len() + 6 > CHUNK {
                hash.update(&words);
                words.clear();
            }
        });
        hash.update(&words);
        let checksum = hash.finalize().to_hex().to_string();
        Self { buddyinfo, pagetypeinfo, census: mm.memory.block_census(), checksum }
    }
}

/// Bytes that are hashed at a time.
const CHUNK: usize = 1 << 16;

/// The kind of a block of frames, as a byte of the checksum.
fn kind(frame: Frame) -> u8 {
    match frame {
        Frame::Free { list, .. } => 0x10 + list as u8,
        Frame::Pcp { list, .. } => 0x20 + list as u8,
        Frame::Kernel { mobility, .. } => 0x30 + mobility as u8,
        Frame::Slab(slab) => 0x40 + slab.cache as u8,
        Frame::Anon { .. } => 1,
        Frame::File { .. } => 2,
        Frame::PageTable => 3,
        Frame::Isolated { .. } => 4,
        Frame::ZeroHuge => 5,
        Frame::Reserved => 6,
        Frame::Interior | Frame::Tail { .. } => 7,
    }
}

/// `frag_show_print()`, mm/vmstat.c (v6.1).
fn buddyinfo(mm: &Mm) -> String {
    let mut text = String::new();
    for zone in &mm.census().zones {
        text += &format!("Node {}, zone {:>8} ", zone.node, zone.kind.name());
        text.extend(zone.free.iter().map(|blocks| format!("{blocks:>6} ")));
        text.push('\n');
    }
    text
}

/// The types that a kernel has: one of those that keep memory back.
fn types(mm: &Mm) -> Vec<MigrateType> {
    let has = |of: MigrateType| mm.census().zones.iter().any(|zone| zone.blocks[of as usize] > 0);
    let keeps = if has(MigrateType::Reserve) { MigrateType::Reserve } else { MigrateType::HighAtomic };
    vec![MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable, keeps, MigrateType::Isolate]
}

/// `pagetypeinfo_show()`, mm/vmstat.c (v6.1), without the counts of mixed pageblocks, which need page owner. It begins anew with
/// each node.
fn pagetypeinfo(mm: &Mm) -> String {
    let (types, census, order) = (types(mm), mm.census(), mm.memory.frames.blocks.order());
    let mut text = String::new();
    for node in mm.memory.node_ids() {
        text += &format!("Page block order: {order}\nPages per block:  {}\n\n", order.frames());
        text += &format!("{:<43} ", "Free pages count per migrate type at order");
        let orders = || (0..=mm.memory.max_order().0).map(Order);
        text.extend(orders().map(|order| format!("{:>6} ", order.0)));
        text.push('\n');
        let of_node = || mm.memory.zones().iter().zip(&census.zones).filter(|(zone, _)| zone.node == node);
        for (zone, _) in of_node() {
            for of in &types {
                text += &format!("Node {:>4}, zone {:>8}, type {:>12} ", node.0, zone.kind.name(), name(*of));
                text.extend(orders().map(|order| format!("{:>6} ", zone.free_list(order, *of).len())));
                text.push('\n');
            }
        }
        text += &format!("\n{:<23}", "Number of blocks type ");
        text.extend(types.iter().map(|of| format!("{:>12} ", name(*of))));
        text.push('\n');
        for (zone, counted) in of_node() {
            text += &format!("Node {}, zone {:>8} ", node.0, zone.kind.name());
            text.extend(types.iter().map(|of| format!("{:>12} ", counted.blocks[*of as usize])));
            text.push('\n');
        }
    }
    text
}

/// `migratetype_names`, mm/page_alloc.c (v6.1).
fn name(of: MigrateType) -> String {
    format!("{of:?}")
}

#[cfg(test)]
mod tests {
    use linux::procfs::{buddyinfo, pagetypeinfo};

    use super::*;
    use crate::machine::Machine;

    #[test]
    fn what_is_printed_is_what_a_kernel_prints() {
        let machine = Machine::load("two-node-2g", &linux::setting::names()).unwrap();
        let config =
            crate::simulated::config(&machine, rules::variant::named("v6.1"), units::Bytes::gib(1), 1).unwrap();
        let mm = Mm::new(&config.machine, config.variant, &config.settings);
        let picture = Picture::of(&mm);
        let types = pagetypeinfo::parse(&picture.pagetypeinfo).unwrap();
        assert_eq!(types.blocks.len(), mm.memory.zones().len());
        let blocks: u64 = types.blocks.iter().flat_map(|zone| &zone.blocks).map(|(_, blocks)| blocks).sum();
        assert_eq!((types.pageblock_order, blocks), (9, picture.census.blocks));
        let zones = buddyinfo::parse(&picture.buddyinfo).unwrap();
        assert_eq!(zones.len(), mm.memory.zones().len());
        assert_eq!(picture, Picture::of(&mm));
    }
}
