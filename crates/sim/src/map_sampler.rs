//! The map of physical memory over time: what each pageblock is used for, with every sample.
//!
//! A look walks all blocks of frames, as [`Mm::block_census`] does; the memory manager keeps no counts by pageblock. Only what
//! differs from the sample before is kept.

use mm::{Band, BlockUse, MigrateType, Mm, ZoneCompaction};
use units::BlockCell;

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
    /// The cells of the last look.
    now: Vec<[u8; 2]>,
    /// The differences that the last look has found.
    found: MapSample,
}

impl MapSampler {
    pub(crate) fn new(mm: &Mm) -> Self {
        let bands = mm.bands();
        let cells = |group: u32| bands.iter().map(|band| band.blocks.div_ceil(group)).sum::<u32>();
        let mut group = 1;
        // Bound: the bits of a number; each band has at least one cell, and there are few.
        while cells(group) > CELLS_MAX {
            group *= 2;
        }
        let now = vec![[0; 2]; cells(group) as usize];
        let map = MapSamples { pageblock_order: mm.frames.blocks.order().0, group, bands, samples: Vec::new() };
        Self { map, now, found: MapSample::default() }
    }

    /// The map of one moment.
    pub(crate) fn of(mm: &Mm) -> MapSamples {
        let mut sampler = Self::new(mm);
        sampler.look(mm);
        sampler.keep();
        sampler.finish()
    }

    /// Looks at all memory.
    pub(crate) fn look(&mut self, mm: &Mm) {
        let Self { map: MapSamples { group, bands, .. }, now, found } = self;
        let group = *group;
        // Whether a cell ends with the pageblock.
        let mut blocks = bands
            .iter()
            .flat_map(|band| (1..=band.blocks).map(move |before| before == band.blocks || before % group == 0));
        let (mut cell, mut at) = (Cell::default(), 0);
        found.changed.clear();
        mm.visit_pageblocks(|block| {
            cell.add(block);
            if blocks.next().expect("bands do not change") {
                let new = std::mem::take(&mut cell).close();
                if now[at] != new {
                    now[at] = new;
                    found.changed.push((u32::try_from(at).expect("few cells"), new));
                }
                at += 1;
            }
        });
        assert_eq!(at, now.len(), "every cell was looked at");
        found.compaction = bands.iter().map(|band| mm.zone_compaction(band.node, band.kind)).collect();
    }

    /// Keeps what the last look has found as a sample. Again, it is one in which nothing has changed.
    pub(crate) fn keep(&mut self) {
        let compaction = self.found.compaction.clone();
        self.map.samples.push(MapSample { changed: std::mem::take(&mut self.found.changed), compaction });
    }

    pub(crate) fn finish(self) -> MapSamples {
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
