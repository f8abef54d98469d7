//! The map of physical memory over time: the use of each pageblock, with every sample.
//!
//! The memory manager keeps no counts by pageblock, but while it is watched it marks pageblocks with frames that change: a look
//! walks the frames of those. Only differences from the sample before are kept, and pages that moved meanwhile, by mover.

use std::collections::BTreeMap;

use memory::{
    frame::moves::{MoveReason, Moved, Moves},
    pageblock::MigrateType,
};
use mm::{Band, BlockUse, Mm, ZoneCompaction};
use units::{BlockCell, Pfn};

/// Most cells of a map: a machine of 32 GiB has that number of pageblocks. In larger memory several pageblocks share a cell.
pub const CELLS_MAX: u32 = 16_384;

/// The map of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSamples {
    /// log2 of the frames in a pageblock.
    pub pageblock_order: u8,
    /// Pageblocks of a cell: a power of two. No cell is in two bands; the last cell of a band may have fewer.
    pub group: u32,
    /// Zones, in the order of addresses.
    pub bands: Vec<Band>,
    /// One sample of the map for each sample of the series.
    pub samples: Vec<MapSample>,
    /// Names of the movers, by number: `task 12`, or the name of a kernel thread.
    pub movers: BTreeMap<u32, String>,
}

/// The difference of a sample from the one before; for the first sample from cells of zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapSample {
    /// Changed cells: their index, and their new contents.
    pub changed: Vec<(u32, [u8; 2])>,
    /// For each band, the state of compaction in its zone.
    pub compaction: Vec<ZoneCompaction>,
    /// Pages that moved since the sample before, by cell.
    pub moves: Vec<CellMove>,
}

/// Pages that came into a cell and left it, by one mover for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellMove {
    /// The cell.
    pub cell: u32,
    /// The number of the mover: of a task or kernel thread, its own.
    pub mover: u32,
    /// The reason.
    pub reason: MoveReason,
    /// The pages.
    pub moved: Moved,
}

/// Takes samples of the map.
#[derive(Clone, Debug)]
pub(crate) struct MapSampler {
    map: MapSamples,
    /// The use of each pageblock at the last look, band by band.
    uses: Vec<BlockUse>,
    /// The cells at the last look.
    now: Vec<[u8; 2]>,
    /// The differences found by the last look.
    found: MapSample,
}

impl MapSampler {
    /// A sampler that watches the memory of `mm` from now on.
    pub(crate) fn new(mm: &mut Mm) -> Self {
        mm.memory.frames.watch();
        let bands = mm.bands();
        let cells = |group: u32| bands.iter().map(|band| band.blocks.div_ceil(group)).sum::<u32>();
        let mut group = 1;
        // Bound: the bits of a number; each band has at least one cell, and there are few bands.
        while cells(group) > CELLS_MAX {
            group *= 2;
        }
        let now = vec![[0; 2]; cells(group) as usize];
        let pageblock_order = mm.memory.frames.blocks.order().0;
        let map = MapSamples { pageblock_order, group, bands, samples: Vec::new(), movers: BTreeMap::new() };
        let blocks = map.bands.iter().flat_map(|band| band.first..band.first + band.blocks);
        Self { uses: blocks.map(|block| mm.block_use(block)).collect(), map, now, found: MapSample::default() }
    }

    /// The map at one instant.
    pub(crate) fn of(mm: &mut Mm) -> MapSamples {
        let mut sampler = Self::new(mm);
        sampler.look(mm);
        sampler.keep();
        sampler.finish(mm)
    }

    /// Looks at all changed pageblocks.
    pub(crate) fn look(&mut self, mm: &mut Mm) {
        let Self { map: MapSamples { group, bands, .. }, uses, now, found } = self;
        // Each pageblock, and whether a cell ends with it.
        let of_band = |band: &Band| {
            let (first, blocks, group) = (band.first, band.blocks, *group);
            (0..blocks).map(move |at| (first + at, at + 1 == blocks || (at + 1) % group == 0))
        };
        let (mut cell, mut at) = (Cell::default(), 0);
        found.changed.clear();
        for ((block, is_last), used) in bands.iter().flat_map(of_band).zip(uses) {
            if mm.memory.frames.take_touched(block) {
                *used = mm.block_use(block);
            }
            // A pageblock may get another type while its frames stay what they are.
            used.migrate_type = mm.memory.frames.blocks.migrate_type(Pfn(block << mm.memory.frames.blocks.order().0));
            cell.add(*used);
            if is_last {
                let new = std::mem::take(&mut cell).close();
                if now[at] != new {
                    now[at] = new;
                    found.changed.push((u32::try_from(at).expect("few cells"), new));
                }
                at += 1;
            }
        }
        assert_eq!(at, now.len(), "every cell was looked at");
        found.moves = of_cells(mm.memory.frames.take_moves(), bands, *group);
        found.compaction = bands.iter().map(|band| mm.zone_compaction(band.node, band.kind)).collect();
    }

    /// Keeps the differences of the last look as a sample. A second call keeps a sample without differences.
    pub(crate) fn keep(&mut self) {
        let compaction = self.found.compaction.clone();
        let moves = std::mem::take(&mut self.found.moves);
        self.map.samples.push(MapSample { changed: std::mem::take(&mut self.found.changed), compaction, moves });
    }

    /// The map of a run that has ended.
    ///
    /// # Panics
    /// When a pageblock has changed since the last look without having been marked.
    pub(crate) fn finish(self, mm: &mut Mm) -> MapSamples {
        let blocks = self.map.bands.iter().flat_map(|band| band.first..band.first + band.blocks);
        for (block, seen) in blocks.zip(&self.uses) {
            if !mm.memory.frames.take_touched(block) {
                let now = BlockUse { migrate_type: seen.migrate_type, ..mm.block_use(block) };
                assert!(now == *seen, "pageblock {block} is {now:?}, and was {seen:?} when it was last noted");
            }
        }
        self.map
    }
}

/// Moves of pageblocks as moves of cells.
fn of_cells(moves: Moves, bands: &[Band], group: u32) -> Vec<CellMove> {
    let cell_of = |block: u32| {
        let mut first = 0;
        for band in bands {
            if (band.first..band.first + band.blocks).contains(&block) {
                return Some(first + (block - band.first) / group);
            }
            first += band.blocks.div_ceil(group);
        }
        None
    };
    let mut sums: BTreeMap<(u32, u32, MoveReason), Moved> = BTreeMap::new();
    for ((block, by, reason), moved) in moves {
        // A block without a cell is of no zone, and has no pages.
        let Some(cell) = cell_of(block) else { continue };
        let sum = sums.entry((cell, by, reason)).or_default();
        sum.came = sum.came.saturating_add(moved.came);
        sum.left = sum.left.saturating_add(moved.left);
    }
    sums.into_iter().map(|((cell, mover, reason), moved)| CellMove { cell, mover, reason, moved }).collect()
}

/// The pageblocks of a cell so far.
#[derive(Default)]
struct Cell {
    blocks: u32,
    of_type: [u32; MigrateType::COUNT],
    frames: u64,
    used: u64,
    reported: u64,
    huge: bool,
    mixed: bool,
}

impl Cell {
    fn add(&mut self, block: BlockUse) {
        self.blocks += 1;
        self.of_type[block.migrate_type as usize] += 1;
        self.frames += u64::from(block.frames);
        self.used += u64::from(block.used);
        self.reported += u64::from(block.reported);
        self.huge |= block.huge;
        self.mixed |= block.is_mixed();
    }

    fn close(self) -> [u8; 2] {
        let most = self.of_type.iter().max().copied().unwrap_or(0);
        let kind = self.of_type.iter().position(|blocks| *blocks == most).unwrap_or(0);
        let cell = BlockCell {
            kind: u8::try_from(kind).expect("few types"),
            used: BlockCell::sixteenths(self.used, self.frames),
            huge: self.huge,
            mixed: self.mixed,
            reported: self.reported > 0 && 2 * self.reported >= self.frames,
        };
        cell.to_bytes()
    }
}
