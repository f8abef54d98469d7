//! The kernel's flags as what the memory manager wants to know of a frame, and its counts of each zone.

use linux::{
    frame_map::{Run, kpf},
    procfs::{Snapshot, buddyinfo, pagetypeinfo},
};
use memory::{buddy::ORDERS, lru_kind::LruKind, pageblock::MigrateType};
use mm::whole::state::{FrameMap, Seen, Shmem, ZoneCounts};
use rules::zone::ZoneKind;
use units::{NodeId, Pfn};

use super::State;

/// Kernels that say of each frame of a free block that it is free; older ones say it of the first.
const SINCE: (u32, u32) = (4, 6);

impl State {
    /// The frames up to the end of a machine, as the memory manager takes them over.
    pub fn frame_map(&self, end: Pfn) -> Result<FrameMap, String> {
        let snapshot = self.snapshot()?;
        if (snapshot.version.major, snapshot.version.minor) < SINCE {
            return Err(format!("Linux {} marks only the first frame of a free block", snapshot.version.text));
        }
        let text = |name| self.capture.text(name).map_err(|error| error.to_string());
        let types = pagetypeinfo::parse(text("pagetypeinfo")?).map_err(|error| error.to_string())?;
        buddyinfo::parse(text("buddyinfo")?).map_err(|error| error.to_string())?;
        let frames = self.runs.iter().flat_map(|run| {
            std::iter::repeat_n(seen(run), usize::try_from(run.frames).expect("frames have 32-bit numbers"))
        });
        Ok(FrameMap { frames: frames.take(end.0 as usize).collect(), zones: zones(&snapshot, &types) })
    }
}

/// Names of what frames can be.
const KINDS: [&str; 11] = [
    "hole",
    "reserved",
    "free",
    "unmarked: the kernel's, or on per-CPU lists",
    "anonymous",
    "of files",
    "of files in memory",
    "of slabs",
    "page tables",
    "otherwise the kernel's",
    "tails of compound pages",
];

impl State {
    /// How many frames are what.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let mut counts = [0; KINDS.len()];
        for run in &self.runs {
            let kind = match seen(run) {
                Seen::Hole => 0,
                Seen::Reserved => 1,
                Seen::Free => 2,
                Seen::Unmarked => 3,
                Seen::Anon(_) => 4,
                Seen::File => 5,
                Seen::Shmem(_) => 6,
                Seen::Slab => 7,
                Seen::PageTable => 8,
                Seen::Kernel => 9,
                Seen::Tail => 10,
            };
            counts[kind] += run.frames;
        }
        KINDS.into_iter().zip(counts)
    }
}

/// The kind of a run's frames, as the kernel says.
pub(super) fn seen(run: &Run) -> Seen {
    const FILE: u64 = kpf::LRU | kpf::SWAPBACKED | kpf::UPTODATE | kpf::DIRTY;
    let has = |flags: u64| run.flags & flags != 0;
    // Of each bit that says what a frame is, the first that it has; the order matters.
    let list = has(kpf::LRU).then_some(if has(kpf::ACTIVE) { LruKind::ActiveAnon } else { LruKind::InactiveAnon });
    // Swap is where it would be written to, so it is not a disk's. One that cannot be reclaimed (ramfs) stays.
    let is_shmem = has(kpf::SWAPBACKED) && has(kpf::LRU) && !has(kpf::UNEVICTABLE | kpf::COMPOUND_HEAD | kpf::THP);
    let of_file = if is_shmem {
        Seen::Shmem(Shmem { list, is_mapped: has(kpf::MMAP), is_referenced: has(kpf::REFERENCED) })
    } else {
        Seen::File
    };
    let kinds = [
        (kpf::NOPAGE, Seen::Hole),
        (kpf::RESERVED, Seen::Reserved),
        (kpf::BUDDY, Seen::Free),
        (kpf::COMPOUND_TAIL, Seen::Tail),
        (kpf::ANON, Seen::Anon(list)),
        (kpf::SLAB, Seen::Slab),
        (kpf::PGTABLE, Seen::PageTable),
        (kpf::OFFLINE | kpf::ZERO_PAGE, Seen::Kernel),
        (FILE, of_file),
        (kpf::MMAP | kpf::COMPOUND_HEAD | kpf::MARKS, Seen::Kernel),
    ];
    kinds.into_iter().find(|(flags, _)| has(*flags)).map_or(Seen::Unmarked, |(_, seen)| seen)
}

/// The counts of every zone with memory. Nodes and CPUs are numbered as in the machine that is imported.
fn zones(snapshot: &Snapshot, types: &pagetypeinfo::PageTypeInfo) -> Vec<ZoneCounts> {
    let populated = snapshot.zones.iter().filter(|zone| zone.is_populated());
    let counts = populated.filter_map(|zone| {
        let node = snapshot.nodes.iter().position(|node| node.id == zone.node)?;
        let mut counts = ZoneCounts {
            node: NodeId(u32::try_from(node).ok()?),
            kind: ZoneKind::from_name(&zone.name)?,
            blocks: [0; MigrateType::COUNT],
            free: [[0; ORDERS]; MigrateType::COUNT],
            listed: zone.pagesets.iter().map(|set| u32::try_from(set.count.0).unwrap_or(u32::MAX)).collect(),
        };
        let is_its = |node: NodeId, name: &str| node == zone.node && name == zone.name;
        for (name, blocks) in types.blocks.iter().filter(|of| is_its(of.node, &of.zone)).flat_map(|of| &of.blocks) {
            counts.blocks[migrate_type(name)? as usize] += blocks;
        }
        for of in types.free.iter().filter(|of| is_its(of.node, &of.zone)) {
            let free = &mut counts.free[migrate_type(&of.migrate_type)? as usize];
            for (count, blocks) in free.iter_mut().zip(&of.free) {
                *count += blocks;
            }
        }
        Some(counts)
    });
    counts.collect()
}

/// The type that the kernel calls so (`migratetype_names`, mm/page_alloc.c, v6.1).
fn migrate_type(name: &str) -> Option<MigrateType> {
    Some(match name {
        "Unmovable" => MigrateType::Unmovable,
        "Movable" => MigrateType::Movable,
        "Reclaimable" => MigrateType::Reclaimable,
        "HighAtomic" => MigrateType::HighAtomic,
        "Reserve" => MigrateType::Reserve,
        "CMA" => MigrateType::Cma,
        "Isolate" => MigrateType::Isolate,
        _ => return None,
    })
}
