//! One cell of the map of physical memory, in two bytes.

/// The use of a pageblock, or of some of the same zone beside each other, as a map of physical memory has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCell {
    /// Number of the type of its pageblocks; of several, the most frequent.
    pub kind: u8,
    /// Frames that are on no free list, in sixteenths: 0 where there are none, 16 where all are; none where no frame is the
    /// page allocator's.
    pub used: Option<u8>,
    /// A huge page starts in it.
    pub huge: bool,
    /// Some frames are in use of another mobility than its type is for.
    pub mixed: bool,
    /// At least half of its frames are free, and its host has been told.
    pub reported: bool,
}

const KIND: u8 = 0x7;
const HUGE: u8 = 1 << 3;
const MIXED: u8 = 1 << 4;
const REPORTED: u8 = 1 << 5;
/// Owner in the second byte if the page allocator has no frame of the cell.
const NONE: u8 = 31;

impl BlockCell {
    /// Sixteenths of a whole.
    pub const WHOLE: u8 = 16;

    /// The sixteenths of frames in use among those that there are. Only none of them is 0, only all are 16.
    pub fn sixteenths(used: u64, frames: u64) -> Option<u8> {
        let part = (used * 16 + frames / 2).checked_div(frames)?;
        let whole = u64::from(Self::WHOLE);
        let part = if used == 0 || used == frames { part } else { part.clamp(1, whole - 1) };
        Some(u8::try_from(part).expect("frames in use are among the frames"))
    }

    /// The cell as it is stored.
    pub fn to_bytes(self) -> [u8; 2] {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let marks = flag(self.huge, HUGE) | flag(self.mixed, MIXED) | flag(self.reported, REPORTED);
        [self.kind & KIND | marks, self.used.unwrap_or(NONE)]
    }

    /// A cell that was stored; none for bytes that are none.
    pub fn from_bytes([first, used]: [u8; 2]) -> Option<Self> {
        let has = |flag| first & flag != 0;
        let is_cell = first & !(KIND | HUGE | MIXED | REPORTED) == 0 && (used <= Self::WHOLE || used == NONE);
        is_cell.then_some(Self {
            kind: first & KIND,
            used: (used != NONE).then_some(used),
            huge: has(HUGE),
            mixed: has(MIXED),
            reported: has(REPORTED),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_comes_back_and_other_bytes_are_refused() {
        let mut cells = 0;
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                if let Some(cell) = BlockCell::from_bytes([first, second]) {
                    assert_eq!(cell.to_bytes(), [first, second]);
                    cells += 1;
                }
            }
        }
        assert_eq!(cells, 64 * 18);
    }

    #[test]
    fn only_none_is_nothing_and_only_all_is_whole() {
        let of = |used| BlockCell::sixteenths(used, 512);
        assert_eq!([0, 1, 511, 512].map(of), [0, 1, 15, 16].map(Some));
        assert_eq!([31, 33, 256].map(of), [1, 1, 8].map(Some));
        assert_eq!(BlockCell::sixteenths(0, 0), None);
    }
}
