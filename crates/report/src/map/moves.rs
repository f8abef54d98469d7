//! Pages that came into a cell of a map and left it, by mover and reason: behind the cells in the file of a map.
//!
//! A line of JSON names movers and reasons. Columns of numbers follow, each as LEB128: moves of each sample; then of all moves
//! the cell, as the difference from the move before of its sample, the mover, the reason, pages that came, pages that left.

use std::{collections::BTreeMap, io::Write};

use flate2::{Compression, write::ZlibEncoder};
use serde::{Deserialize, Serialize};

use crate::names::brief;

/// A move: pages that came into a cell and left it since the sample before, by one mover for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// The cell.
    pub cell: u32,
    /// Index of the mover's name.
    pub mover: u32,
    /// Index of the reason.
    pub reason: u32,
    /// Pages that came; of a fallback, pages of the block that was taken.
    pub came: u32,
    /// Pages that left.
    pub left: u32,
}

/// Numbers of a move in a file.
const COLUMNS: usize = 5;

impl Move {
    fn numbers(&self) -> [u32; COLUMNS] {
        [self.cell, self.mover, self.reason, self.came, self.left]
    }
}

/// The names, and the least move that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Names {
    /// Names of tasks and kernel threads.
    movers: Vec<String>,
    /// Reasons in words.
    reasons: Vec<String>,
    /// Moves of fewer pages than this in a cell and sample are left out.
    least: u32,
}

/// All moves of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    names: Names,
    /// Moves of each sample, by cell.
    samples: Vec<Vec<Move>>,
}

impl Moves {
    /// Moves of all samples, as (cell, mover, reason, pages that came, pages that left).
    ///
    /// # Panics
    /// With more movers or reasons than a number of 32 bits.
    pub fn new<'a>(samples: impl Iterator<Item = Vec<(u32, &'a str, &'a str, u32, u32)>>) -> Self {
        let (mut movers, mut reasons) = (BTreeMap::new(), BTreeMap::new());
        let number = |names: &mut BTreeMap<&'a str, u32>, name: &'a str| {
            let next = u32::try_from(names.len()).expect("few names");
            *names.entry(name).or_insert(next)
        };
        let of_sample = |moves: Vec<(u32, &'a str, &'a str, u32, u32)>| {
            let mut all: Vec<Move> = moves
                .into_iter()
                .map(|(cell, mover, reason, came, left)| {
                    let (mover, reason) = (number(&mut movers, mover), number(&mut reasons, reason));
                    Move { cell, mover, reason, came, left }
                })
                .collect();
            all.sort_unstable();
            all
        };
        let samples = samples.map(of_sample).collect();
        let in_order = |names: BTreeMap<&str, u32>| {
            let mut names: Vec<(u32, &str)> = names.into_iter().map(|(name, at)| (at, name)).collect();
            names.sort_unstable();
            names.into_iter().map(|(_, name)| name.to_owned()).collect()
        };
        Self { names: Names { movers: in_order(movers), reasons: in_order(reasons), least: 1 }, samples }
    }

    /// Moves of fewer pages than this are left out.
    pub fn least(&self) -> u32 {
        self.names.least
    }

    /// The moves of a sample, each with mover and reason in words.
    ///
    /// # Panics
    /// When there is no such sample.
    pub fn of(&self, sample: usize) -> impl Iterator<Item = (Move, &str, &str)> {
        let name = |names: &'_ [String], at: u32| -> usize { (at as usize).min(names.len() - 1) };
        self.samples[sample].iter().map(move |one| {
            let Names { movers, reasons, .. } = &self.names;
            (*one, movers[name(movers, one.mover)].as_str(), reasons[name(reasons, one.reason)].as_str())
        })
    }

    /// The moves without the smallest, so that their stream has at most `most` bytes.
    pub(super) fn fitting(mut self, most: usize) -> Self {
        // Bound: the bits of a number of pages; without a move the stream has its names alone.
        while self.samples.iter().any(|moves| !moves.is_empty()) && self.packed().len() > most {
            self.names.least = self.names.least.saturating_mul(2);
            let least = self.names.least;
            for moves in &mut self.samples {
                moves.retain(|one| one.came.saturating_add(one.left) >= least);
            }
        }
        self
    }

    /// Moves between some of the samples: a sample has those since the one before it that is kept.
    pub(super) fn only(&self, samples: &[usize]) -> Self {
        let mut from = 0;
        let merged = |sample: &usize| {
            let mut sums: BTreeMap<(u32, u32, u32), (u32, u32)> = BTreeMap::new();
            for one in self.samples[from..=(*sample).max(from).min(self.samples.len() - 1)].iter().flatten() {
                let sum = sums.entry((one.cell, one.mover, one.reason)).or_default();
                *sum = (sum.0.saturating_add(one.came), sum.1.saturating_add(one.left));
            }
            from = sample + 1;
            let of = |((cell, mover, reason), (came, left))| Move { cell, mover, reason, came, left };
            sums.into_iter().map(of).collect()
        };
        Self { names: self.names.clone(), samples: samples.iter().map(merged).collect() }
    }

    /// The bytes behind the cells.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(&self.names).expect("names serialise");
        bytes.push(b'\n');
        for moves in &self.samples {
            write(&mut bytes, u32::try_from(moves.len()).expect("few moves"));
        }
        for column in 0..COLUMNS {
            for moves in &self.samples {
                let mut before = 0;
                for one in moves {
                    let number = one.numbers()[column];
                    write(&mut bytes, number - before);
                    before = if column == 0 { number } else { 0 };
                }
            }
        }
        bytes
    }

    fn packed(&self) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.bytes()).expect("memory takes it");
        encoder.finish().expect("memory takes it")
    }

    /// The moves of the bytes behind the cells, of a map with this number of samples and of cells.
    pub(super) fn from_bytes(bytes: &[u8], (samples, cells): (usize, usize)) -> Result<Self, String> {
        let bad = str::to_owned;
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| bad("no names"))?;
        let names: Names = serde_json::from_slice(&bytes[..end]).map_err(|error| bad(&brief(error)))?;
        let mut rest = &bytes[end + 1..];
        let mut next = || read(&mut rest).ok_or_else(|| bad("cut off"));
        let counts = (0..samples).map(|_| next()).collect::<Result<Vec<u32>, _>>()?;
        let all = counts.iter().fold(0_u64, |sum, count| sum + u64::from(*count));
        // Each number has a byte at least.
        if all > bytes.len() as u64 {
            return Err(bad("more than there are bytes"));
        }
        let mut found: Vec<Vec<[u32; COLUMNS]>> =
            counts.iter().map(|count| vec![[0; COLUMNS]; *count as usize]).collect();
        for column in 0..COLUMNS {
            for moves in &mut found {
                let mut before: u32 = 0;
                for one in moves {
                    let number = before.checked_add(next()?).ok_or_else(|| bad("a number is too large"))?;
                    one[column] = number;
                    before = if column == 0 { number } else { 0 };
                }
            }
        }
        let is_known = |[cell, mover, reason, ..]: &[u32; COLUMNS]| {
            (*cell as usize) < cells
                && (*mover as usize) < names.movers.len()
                && (*reason as usize) < names.reasons.len()
        };
        if !rest.is_empty() || !found.iter().flatten().all(is_known) {
            return Err(bad("a cell, mover or reason that is not there"));
        }
        let of = |[cell, mover, reason, came, left]: [u32; COLUMNS]| Move { cell, mover, reason, came, left };
        let samples = found.into_iter().map(|moves| moves.into_iter().map(of).collect()).collect();
        Ok(Self { names, samples })
    }
}

/// A number in bytes of seven bits, the lowest first.
fn write(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).expect("seven bits"));
}

fn read(rest: &mut &[u8]) -> Option<u32> {
    let mut number: u32 = 0;
    for at in 0..5 {
        let (first, others) = rest.split_first()?;
        *rest = others;
        let bits = u32::from(first & 0x7f);
        if at == 4 && bits > 0xf {
            return None;
        }
        number |= bits << (7 * at);
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves() -> Moves {
        let compaction = "compaction for a block of order 9";
        let samples = vec![
            vec![],
            vec![
                (7, "kcompactd0", compaction, 0, 300),
                (2, "kcompactd0", compaction, 300, 0),
                (2, "task 3", "x", 1, 0),
            ],
            vec![(2, "task 3", "x", 70_000, 5)],
        ];
        Moves::new(samples.into_iter())
    }

    #[test]
    fn moves_come_back_as_they_were() {
        let moves = moves();
        let back = Moves::from_bytes(&moves.bytes(), (3, 8)).unwrap();
        assert_eq!(back, moves);
        let of = |sample| back.of(sample).map(|(one, who, _)| (one.cell, who, one.came, one.left)).collect::<Vec<_>>();
        assert_eq!(of(1), [(2, "kcompactd0", 300, 0), (2, "task 3", 1, 0), (7, "kcompactd0", 0, 300)]);
        let some = back.only(&[0, 2]);
        let of = |sample| some.of(sample).map(|(one, who, _)| (one.cell, who, one.came, one.left)).collect::<Vec<_>>();
        assert_eq!((of(0).len(), of(1)[1]), (0, (2, "task 3", 70_001, 5)), "what came between is not lost");
    }

    #[test]
    fn small_moves_are_left_out_where_there_is_no_room() {
        let all = moves();
        let most = all.packed().len();
        assert_eq!(all.clone().fitting(most).least(), 1);
        let some = all.clone().fitting(most - 1);
        assert!(some.least() > 1 && some.packed().len() < most);
        assert_eq!(all.fitting(0).of(1).count(), 0);
    }

    #[test]
    fn damaged_moves_are_refused() {
        let whole = moves().bytes();
        assert!(Moves::from_bytes(&whole, (3, 7)).unwrap_err().contains("not there"));
        for length in 0..whole.len() {
            assert!(Moves::from_bytes(&whole[..length], (3, 8)).is_err());
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let _ = Moves::from_bytes(&damaged, (3, 8));
            }
        }
    }
}
