//! The map of physical memory over time: what each pageblock is used for, with every sample.
//!
//! The memory manager keeps no counts by pageblock, but while it is watched it notes in which ones frames become something else:
//! a look walks the frames of those. Only what differs from the sample before is kept.

use memory::pageblock::MigrateType;
use mm::{Band, BlockUse, Mm, ZoneCompaction};
use units::{BlockCell, Pfn};

/// A map has at most so many cells: those of 32 GiB, one for each pageblock. Of larger memory some share a cell.
pub const CELLS_MAX: u32 = 16_384;

/// The map of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSamples {
    /// A pageblock has 2 to this many frames.
    pub pageblock_order: u8,
    /// Pageblocks of a cell: a power of two. No cell is in two bands; the last one of a band may have fewer.
    pub group: u32,
    /// Zones, in the order of addresses.
    pub bands: Vec<Band>,
    /// One for each sample of the series.
    pub samples: Vec<MapSample>,
}

/// The difference of one sample from the one before; of the first from cells that are all zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapSample {
    /// Cells that have changed, by their place, with what they are now.
    pub changed: Vec<(u32, [u8; 2])>,
    /// Of each band, how far compaction of its zone has come.
    pub compaction: Vec<ZoneCompaction>,
}

/// Takes the map.
#[derive(Clone, Debug)]
pub(crate) struct MapSampler {
    map: MapSamples,
    /// Pageblocks as the last look has seen them, band by band.
    uses: Vec<BlockUse>,
    /// The cells of the last look.
    now: Vec<[u8; 2]>,
    /// The differences that the last look has found.
    found: MapSample,
}

impl MapSampler {
    /// One that watches the memory of `mm` from now on.
    pub(crate) fn new(mm: &mut Mm) -> Self {
        mm.memory.frames.watch();
        let bands = mm.bands();
        let cells = |group: u32| bands.iter().map(|band| band.blocks.div_ceil(group)).sum::<u32>();
        let mut group = 1;
        // Bound: the bits of a number; each band has at least one cell, and there are few.
        while cells(group) > CELLS_MAX {
            group *= 2;
        }
        let now = vec![[0; 2]; cells(group) as usize];
        let map = MapSamples { pageblock_order: mm.memory.frames.blocks.order().0, group, bands, samples: Vec::new() };
        let blocks = map.bands.iter().flat_map(|band| band.first..band.first + band.blocks);
        Self { uses: blocks.map(|block| mm.block_use(block)).collect(), map, now, found: MapSample::default() }
    }

    /// The map of one moment.
    pub(crate) fn of(mm: &mut Mm) -> MapSamples {
        let mut sampler = Self::new(mm);
        sampler.look(mm);
        sampler.keep();
        sampler.finish(mm)
    }

    /// Looks at all memory.
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
        found.compaction = bands.iter().map(|band| mm.zone_compaction(band.node, band.kind)).collect();
    }

    /// Keeps what the last look has found as a sample. Again, it is one in which nothing has changed.
    pub(crate) fn keep(&mut self) {
        let compaction = self.found.compaction.clone();
        self.map.samples.push(MapSample { changed: std::mem::take(&mut self.found.changed), compaction });
    }

    /// The map of a run that is over.
    ///
    /// # Panics
    /// When a pageblock is not as it was seen last, and nothing was noted.
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

/// Pageblocks of one cell so far.
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
