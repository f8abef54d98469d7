//! The map of physical memory over time: what every pageblock was used for at the instants of a cell's series.
//!
//! A file of a result, named by its BLAKE3: the line `pagelab map 1`, a line of JSON (the head: zones, instants, scanners), and a
//! zlib stream of two bytes for each cell and sample ([`units::BlockCell`]), each sample XORed with the one before. Moves of
//! pages ([`Moves`]) follow in the stream, if they were recorded.
//! Exact counts (pageblocks by type and zone, free blocks by order) are in the series of the same instants.

mod census;
mod moves;
mod text;

use std::io::{self, Read, Write};

use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};
use serde::{Deserialize, Serialize};
use units::BlockCell;

use crate::names::brief;

pub use self::{
    census::{ZoneCensus, census, unusable},
    moves::{Move, Moves},
    text::{Caption, map_text},
};

/// The folder of a result with files that are named by their hash.
pub const FOLDER: &str = "files";
/// The first line of a file.
const MAGIC: &[u8] = b"pagelab map 1\n";
/// Bytes of a cell.
const CELL: usize = 2;
/// More than a map of the most samples of the most cells is not read: the length of a line in a damaged file.
const UNPACKED_MAX: u64 = 1 << 32;
/// More bytes of moves than these are not read.
const MOVES_MAX: u64 = 1 << 28;

/// Names of types by their numbers in cells (`migratetype_names`, mm/page_alloc.c, v6.1; up to 4.3 with Reserve).
pub const TYPES: [&str; 7] = ["Unmovable", "Movable", "Reclaimable", "HighAtomic", "Reserve", "CMA", "Isolate"];

/// A zone's part of a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Band {
    /// The zone's path, as in names of series: `node0/DMA32`.
    pub zone: String,
    /// The first pageblock, by number.
    pub first: u32,
    /// Pageblocks, all beside each other.
    pub blocks: u32,
}

/// All of a map but its cells: what samples share, and what is small about each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// A pageblock has 2 to this many frames of 4 KiB.
    pub pageblock_order: u8,
    /// Pageblocks of a cell: a power of two. No cell is in two bands; the last one of a band may have fewer.
    pub group: u32,
    /// Names of types by their numbers in cells.
    pub types: Vec<String>,
    /// Zones, in the order of addresses.
    pub bands: Vec<Band>,
    /// When each sample was taken, in microseconds from the start.
    pub at_us: Vec<u64>,
    /// Of each sample and band the pageblocks at which compaction's scanners go on: the migrate scanner, and the free scanner.
    pub scanners: Vec<Vec<[u32; 2]>>,
    /// Of each sample and band the fragmentation index of its zone for a pageblock, in thousandths: towards 0 a request would
    /// fail for want of memory, towards 1000 because memory is in pieces, and at -1000 it would not fail.
    pub fragmentation: Vec<Vec<i64>>,
}

/// A map over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockMap {
    /// All but the cells.
    pub head: Head,
    /// Bytes of all cells of all samples, as they are.
    cells: Vec<u8>,
    /// Pages that moved, and their movers; none in older files.
    moves: Option<Moves>,
}

/// Bytes are no map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MapError(pub String);

impl Head {
    /// Cells of a sample.
    pub fn cells(&self) -> usize {
        self.bands.iter().map(|band| band.cells(self.group)).sum()
    }

    /// MiB of a pageblock.
    pub fn block_mib(&self) -> f64 {
        f64::from(1_u32 << self.pageblock_order) / 256.0
    }

    fn check(&self) -> Result<(), MapError> {
        let bad = |what: &str| Err(MapError(format!("the head of the map: {what}")));
        if !self.group.is_power_of_two() || self.group > 1 << 16 {
            return bad("group: expected a power of two");
        }
        if self.pageblock_order > 20 {
            return bad("pageblock_order: expected at most 20");
        }
        let ends = |band: &Band| u64::from(band.first) + u64::from(band.blocks);
        if self.bands.is_empty() || self.bands.windows(2).any(|pair| ends(&pair[0]) > u64::from(pair[1].first)) {
            return bad("bands: expected some, in the order of addresses");
        }
        if self.bands.iter().any(|band| band.blocks == 0 || ends(band) > 1 << 31) {
            return bad("bands: expected blocks");
        }
        let (samples, bands) = (self.at_us.len(), self.bands.len());
        if self.scanners.len() != samples || self.scanners.iter().any(|row| row.len() != bands) {
            return bad("scanners: expected two for each band and sample");
        }
        if self.fragmentation.len() != samples || self.fragmentation.iter().any(|row| row.len() != bands) {
            return bad("fragmentation: expected one for each band and sample");
        }
        if !self.at_us.is_sorted() {
            return bad("at_us: expected instants in order");
        }
        Ok(())
    }
}

impl Band {
    /// Cells of the band.
    pub fn cells(&self, group: u32) -> usize {
        self.blocks.div_ceil(group) as usize
    }

    /// Words for people: `node 0 DMA32`.
    pub fn title(&self) -> String {
        match self.zone.split_once('/') {
            Some((node, zone)) if node.starts_with("node") => format!("node {} {zone}", &node[4..]),
            _ => self.zone.clone(),
        }
    }
}

impl BlockMap {
    /// A map of samples, each of which is told by the cells that differ from the one before; at first all bytes are 0.
    ///
    /// # Panics
    /// When a change is of no cell.
    pub fn from_changes<'a>(head: Head, samples: impl Iterator<Item = &'a [(u32, [u8; CELL])]>) -> Self {
        let mut now = vec![0; head.cells() * CELL];
        let mut cells = Vec::with_capacity(now.len() * head.at_us.len());
        for changed in samples {
            for (at, bytes) in changed {
                now[*at as usize * CELL..][..CELL].copy_from_slice(bytes);
            }
            cells.extend_from_slice(&now);
        }
        assert_eq!(cells.len(), now.len() * head.at_us.len(), "every instant has a sample");
        Self { head, cells, moves: None }
    }

    /// The map with the moves of its samples, the largest of them: the file grows by a quarter at most.
    #[must_use]
    pub fn with_moves(self, moves: Moves) -> Self {
        let room = self.to_bytes().len() / 4;
        Self { moves: Some(moves.fitting(room)), ..self }
    }

    /// The moves; none if they were not recorded.
    pub fn moves(&self) -> Option<&Moves> {
        self.moves.as_ref()
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.head.at_us.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.head.at_us.is_empty()
    }

    /// The cells of a sample, band by band.
    ///
    /// # Panics
    /// When there is no such sample.
    pub fn cells(&self, sample: usize) -> Vec<BlockCell> {
        let bytes = self.bytes(sample).chunks_exact(CELL);
        let cell = |pair: &[u8]| BlockCell::from_bytes([pair[0], pair[1]]).expect("checked when it was read");
        bytes.map(cell).collect()
    }

    fn bytes(&self, sample: usize) -> &[u8] {
        let length = self.head.cells() * CELL;
        &self.cells[sample * length..][..length]
    }

    /// The last sample that is not after an instant; the first one if all are.
    pub fn at(&self, us: u64) -> usize {
        self.head.at_us.partition_point(|at| *at <= us).saturating_sub(1)
    }

    /// A map of some of the samples.
    #[must_use]
    pub fn only(&self, samples: &[usize]) -> Self {
        let head = Head {
            at_us: samples.iter().map(|sample| self.head.at_us[*sample]).collect(),
            scanners: samples.iter().map(|sample| self.head.scanners[*sample].clone()).collect(),
            fragmentation: samples.iter().map(|sample| self.head.fragmentation[*sample].clone()).collect(),
            ..self.head.clone()
        };
        let moves = self.moves.as_ref().map(|moves| moves.only(samples));
        Self { head, cells: samples.iter().flat_map(|sample| self.bytes(*sample)).copied().collect(), moves }
    }

    /// The samples, each XORed with the one before, and the moves, as a zlib stream.
    ///
    /// # Panics
    /// Never: memory takes what is written.
    pub fn packed(&self) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        let mut before = vec![0; self.head.cells() * CELL];
        for sample in 0..self.len() {
            let now = self.bytes(sample);
            let differing: Vec<u8> = now.iter().zip(&before).map(|(now, before)| now ^ before).collect();
            encoder.write_all(&differing).expect("memory takes it");
            before.copy_from_slice(now);
        }
        if let Some(moves) = &self.moves {
            encoder.write_all(&moves.bytes()).expect("memory takes it");
        }
        encoder.finish().expect("memory takes it")
    }

    /// The map as a file.
    ///
    /// # Panics
    /// Never: a head serialises.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        serde_json::to_writer(&mut bytes, &self.head).expect("a head serialises");
        bytes.push(b'\n');
        bytes.extend(self.packed());
        bytes
    }

    /// The map in a file.
    ///
    /// # Errors
    /// Bytes that are no map, are damaged or cut off.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MapError> {
        let expected = || MapError("expected \"pagelab map 1\" in its first line".to_owned());
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(expected)?;
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let head: Head = serde_json::from_slice(&rest[..end])
            .map_err(|error| MapError(format!("the head of the map: {}", brief(error))))?;
        head.check()?;
        let length = head.cells() as u64 * CELL as u64 * head.at_us.len() as u64;
        if length > UNPACKED_MAX {
            return Err(MapError(format!("{length} bytes of cells are more than a map has")));
        }
        let mut cells = Vec::new();
        let stream = rest.get(end + 1..).unwrap_or_default();
        let read = ZlibDecoder::new(stream).take(length + MOVES_MAX).read_to_end(&mut cells);
        read.map_err(|error: io::Error| MapError(format!("its cells are damaged or cut off: {error}")))?;
        if (cells.len() as u64) < length {
            return Err(MapError(format!("expected {length} bytes of cells, found {}", cells.len())));
        }
        let sample = head.cells() * CELL;
        let behind = cells.split_off(sample * head.at_us.len());
        let size = (head.at_us.len(), head.cells());
        let moves = (!behind.is_empty()).then(|| Moves::from_bytes(&behind, size)).transpose();
        let moves = moves.map_err(|problem| MapError(format!("its moves: {problem}")))?;
        for at in sample..cells.len() {
            cells[at] ^= cells[at - sample];
        }
        if cells.chunks_exact(CELL).any(|pair| BlockCell::from_bytes([pair[0], pair[1]]).is_none()) {
            return Err(MapError("its cells are no cells".to_owned()));
        }
        Ok(Self { head, cells, moves })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Marsaglia's xorshift64, below a bound.
    fn random(state: &mut u64, below: u32) -> u32 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        u32::try_from(*state % u64::from(below)).expect("it is below the bound")
    }

    pub(crate) fn head(group: u32, samples: u32) -> Head {
        let band = |zone: &str, first, blocks| Band { zone: zone.to_owned(), first, blocks };
        Head {
            pageblock_order: 9,
            group,
            types: TYPES.map(str::to_owned).to_vec(),
            bands: vec![band("node0/DMA", 0, 8), band("node0/DMA32", 8, 101), band("node1/Normal", 128, 40)],
            at_us: (0..u64::from(samples)).map(|n| n * 500_000).collect(),
            scanners: (0..samples).map(|n| vec![[0, 7], [8 + n, 108], [128, 167 - n]]).collect(),
            fragmentation: (0..i64::from(samples)).map(|n| vec![-1000, 100 + n, 0]).collect(),
        }
    }

    /// The cells that a sample changes.
    pub(crate) type Changes = Vec<(u32, [u8; 2])>;

    /// Samples of which each changes some cells.
    pub(crate) fn random_map(group: u32, samples: u32, state: &mut u64) -> (BlockMap, Vec<Changes>) {
        let head = head(group, samples);
        let cells = u32::try_from(head.cells()).expect("few cells");
        let mut cell = || {
            let mut below = |bound| u8::try_from(random(state, bound)).expect("a small number");
            let (kind, used) = (below(7), Some(below(18)).filter(|used| *used < 17));
            let [huge, mixed, reported] = [below(5), below(5), below(5)].map(|drawn| drawn == 0);
            BlockCell { kind, used, huge, mixed, reported }.to_bytes()
        };
        let of_sample = |n: u32| match n {
            0 => (0..cells).map(|at| (at, cell())).collect(),
            _ => (0..n % 5).map(|m| ((n * 7 + m * 13) % cells, cell())).collect(),
        };
        let changes: Vec<Changes> = (0..samples).map(of_sample).collect();
        let map = BlockMap::from_changes(head, changes.iter().map(Vec::as_slice));
        (map, changes)
    }

    #[test]
    fn maps_come_back_as_they_were() {
        let mut state = 7;
        for group in [1, 2, 16] {
            let (map, changes) = random_map(group, 20, &mut state);
            let back = BlockMap::from_bytes(&map.to_bytes()).unwrap();
            assert_eq!(back, map);
            let mut now = vec![[0; 2]; map.head.cells()];
            for (sample, changed) in changes.iter().enumerate() {
                for (at, bytes) in changed {
                    now[*at as usize] = *bytes;
                }
                let cells: Vec<_> = back.cells(sample).iter().map(|cell| cell.to_bytes()).collect();
                assert_eq!(cells, now, "sample {sample}");
            }
            let moves = Moves::new((0..20).map(|at| vec![(at % 3, "kswapd0", "x", at, 2)]));
            let moving = map.clone().with_moves(moves);
            assert!(moving.to_bytes().len() * 3 < map.to_bytes().len() * 4);
            assert_eq!(BlockMap::from_bytes(&moving.to_bytes()).unwrap(), moving);
            let some = back.only(&[0, 3, 19]);
            assert_eq!((some.len(), some.cells(1), some.cells(2)), (3, back.cells(3), back.cells(19)));
        }
    }

    #[test]
    fn an_instant_has_the_sample_before_it() {
        let (map, _) = random_map(1, 4, &mut 3);
        assert_eq!([0, 499_999, 500_000, 1_700_000, 99_000_000].map(|us| map.at(us)), [0, 0, 1, 3, 3]);
    }

    #[test]
    fn what_is_no_map_is_refused_and_never_panics() {
        let (map, _) = random_map(2, 6, &mut 5);
        let whole = map.to_bytes();
        let message = |bytes: &[u8]| BlockMap::from_bytes(bytes).unwrap_err().to_string();
        assert_eq!(message(b"PNG"), "expected \"pagelab map 1\" in its first line");
        assert!(message(&whole[..whole.len() - 9]).starts_with("its cells are damaged or cut off"));
        assert!(message(&whole[..40]).starts_with("the head of the map: "));
        let text = String::from_utf8_lossy(&whole).replace("\"group\":2", "\"group\":3");
        assert!(message(text.as_bytes()).contains("a power of two"));
        let mut state = 11;
        for _ in 0..2000 {
            let mut damaged = whole.clone();
            let at = random(&mut state, 1 << 30) as usize % damaged.len();
            damaged[at] ^= 1 << random(&mut state, 8);
            let _ = BlockMap::from_bytes(&damaged);
        }
    }
}
