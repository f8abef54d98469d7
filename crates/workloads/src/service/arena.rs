//! Anonymous memory of a process of a service, which all of its threads share.

use os::VmRange;
use rand_chacha::ChaCha8Rng;
use units::{Bytes, Picos, VirtAddr};

use super::{
    pattern::{MILLION, below_u64},
    plan::PieceClass,
};

/// The mappings of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Arena {
    parts: Vec<Part>,
}

/// A mapping, or a part that is left of a mapping.
#[derive(Clone, Debug)]
struct Part {
    range: VmRange,
    /// The phase that allocated it.
    phase: u32,
    /// Pages of the parts before it.
    before: u64,
    /// The piece that lies where in it: none where it is cut into blocks.
    pieces: Vec<Piece>,
}

/// A piece of an allocation: it is given back and taken anew as a whole.
#[derive(Clone, Copy, Debug)]
struct Piece {
    offset: Bytes,
    class: PieceClass,
}

impl Arena {
    /// A mapping that the process has now, all of it touched.
    pub(super) fn push(&mut self, phase: u32, range: VmRange, classes: &[PieceClass], random: &mut ChaCha8Rng) {
        let before = self.pages();
        self.parts.push(Part { range, phase, before, pieces: cut(range.len, classes, random) });
    }

    /// Pages that the process has.
    pub(super) fn pages(&self) -> u64 {
        self.parts.last().map_or(0, |last| last.before + last.range.pages(Bytes::PAGE))
    }

    /// The first page that a phase has allocated, and how many there are up to the last one; of all phases where none is named.
    pub(super) fn pages_of(&self, phase: Option<u32>) -> (u64, u64) {
        let own = |part: &&Part| phase.is_none_or(|phase| part.phase == phase);
        let first = self.parts.iter().find(own).map_or(0, |part| part.before);
        let end = self.parts.iter().rfind(own).map_or(0, |part| part.before + part.range.pages(Bytes::PAGE));
        (first, end.saturating_sub(first))
    }

    /// The memory of the process, in the order of its allocation.
    pub(super) fn ranges(&self) -> Vec<VmRange> {
        self.parts.iter().map(|part| part.range).collect()
    }

    /// `len` bytes from a page on; fewer at the end of a mapping.
    pub(super) fn at(&self, page: u64, len: Bytes) -> VmRange {
        let part = self.parts.partition_point(|part| part.before <= page) - 1;
        let part = &self.parts[part];
        let offset = Bytes::PAGE * (page - part.before);
        part.range.part(offset, Bytes(len.0.min(part.range.len.0 - offset.0)))
    }

    /// A piece that is given back next: of a class by how many of its pieces end in a time, and any piece of it.
    pub(super) fn piece(&self, random: &mut ChaCha8Rng) -> Option<VmRange> {
        let page = below_u64(random, self.pages().max(1));
        let part = self.parts.get(self.parts.partition_point(|part| part.before <= page).checked_sub(1)?)?;
        if part.pieces.is_empty() {
            let block = Bytes::PAGE * ((page - part.before) / PAGES_OF_BLOCK * PAGES_OF_BLOCK);
            return Some(part.range.part(block, Bytes(Bytes::HUGE_PAGE.0.min(part.range.len.0 - block.0))));
        }
        // Rejection: pieces that live long are passed over as often as they live longer than those that live shortest.
        let shortest = part.pieces.iter().filter_map(|piece| piece.class.lifetime).min();
        loop {
            let piece = part.pieces[usize::try_from(below_u64(random, part.pieces.len() as u64)).expect("an index")];
            let odds =
                shortest.zip(piece.class.lifetime).map(|(least, own)| least.0.saturating_mul(MILLION) / own.0.max(1));
            if odds.is_none_or(|odds| below_u64(random, MILLION) < odds) {
                return Some(part.range.part(piece.offset, piece.class.size));
            }
        }
    }

    /// Pieces that there are, each a block where no classes are.
    pub(super) fn pieces(&self) -> u64 {
        let of = |part: &Part| match part.pieces.len() as u64 {
            0 => part.range.pages(Bytes::PAGE).div_ceil(PAGES_OF_BLOCK),
            pieces => pieces,
        };
        self.parts.iter().map(of).sum()
    }

    /// Pieces whose life ends in a second, in thousandths, by the lifetimes of their classes.
    pub(super) fn ended_in_a_second(&self) -> u64 {
        let pieces = self.parts.iter().flat_map(|part| &part.pieces);
        pieces.filter_map(|piece| piece.class.lifetime).map(|life| Picos::from_secs(1000).0 / life.0.max(1)).sum()
    }

    /// Takes a part of the memory out, in millionths, the last mapping first, and says where it was.
    pub(super) fn take(&mut self, part: u32) -> Vec<VmRange> {
        let mut left = Bytes::PAGE * (self.pages().saturating_mul(part.into()) / MILLION);
        let mut taken = Vec::new();
        while let Some(mut last) = self.parts.pop().filter(|_| left > Bytes(0)) {
            let len = Bytes(last.range.len.0.min(left.0));
            let stays = Bytes(last.range.len.0 - len.0);
            taken.push(last.range.part(stays, len));
            left = Bytes(left.0 - len.0);
            if stays > Bytes(0) {
                last.range.len = stays;
                last.pieces.retain(|piece| piece.offset.0 + piece.class.size.0 <= stays.0);
                self.parts.push(last);
                break;
            }
        }
        taken
    }

    /// Takes holes of `block` bytes out, a part of all blocks in millionths, evenly, and says where they were. The first one
    /// is at a boundary of 2 MiB, so that every other one of 1 MiB leaves no block of 2 MiB whole.
    pub(super) fn punch(&mut self, part: u32, block: Bytes) -> Vec<VmRange> {
        let mut holes = Vec::new();
        let mut kept = Self::default();
        let mut share = MILLION.saturating_sub(part.into());
        for old in std::mem::take(&mut self.parts) {
            let end = old.range.start.0 + old.range.len.0;
            let mut from = old.range.start;
            let mut at = from.align_up(block.max(Bytes::HUGE_PAGE));
            while at.0 + block.0 <= end {
                share += u64::from(part);
                if share >= MILLION {
                    share -= MILLION;
                    kept.keep(old.phase, from, at);
                    holes.push(VmRange { start: at, len: block });
                    from = VirtAddr(at.0 + block.0);
                }
                at = VirtAddr(at.0 + block.0);
            }
            kept.keep(old.phase, from, VirtAddr(end));
        }
        *self = kept;
        holes
    }

    fn keep(&mut self, phase: u32, from: VirtAddr, to: VirtAddr) {
        if to.0 > from.0 {
            let before = self.pages();
            let range = VmRange { start: from, len: Bytes(to.0 - from.0) };
            self.parts.push(Part { range, phase, before, pieces: Vec::new() });
        }
    }
}

const PAGES_OF_BLOCK: u64 = Bytes::HUGE_PAGE.0 / Bytes::PAGE.0;

/// Cuts an allocation into pieces of classes, each class by its weight.
fn cut(len: Bytes, classes: &[PieceClass], random: &mut ChaCha8Rng) -> Vec<Piece> {
    // Weights are of bytes: a class has as many more pieces as its pieces are smaller.
    let odds = |class: &PieceClass| u64::from(class.weight) * (1 << 40) / class.size.0;
    let all: u64 = classes.iter().map(odds).sum();
    let mut pieces = Vec::new();
    let mut offset = Bytes(0);
    if all == 0 {
        return pieces;
    }
    loop {
        let mut drawn = below_u64(random, all);
        let class = classes.iter().find(|class| {
            let found = drawn < odds(class);
            drawn = drawn.saturating_sub(odds(class));
            found
        });
        let class = *class.expect("the draw is below the sum of all");
        if offset.0 + class.size.0 > len.0 {
            return pieces;
        }
        pieces.push(Piece { offset, class });
        offset += class.size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    fn arena(mib: &[u64], classes: &[PieceClass]) -> Arena {
        let mut arena = Arena::default();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut start = VirtAddr(0x4000_0000);
        for (phase, len) in (0..).zip(mib.iter().map(|mib| Bytes::mib(*mib))) {
            arena.push(phase, VmRange { start, len }, classes, &mut random);
            start = VirtAddr(start.0 + len.0 + Bytes::gib(1).0);
        }
        arena
    }

    #[test]
    fn pages_are_found_across_mappings() {
        let arena = arena(&[2, 3], &[]);
        assert_eq!((arena.pages(), arena.pieces()), (1280, 3));
        let ranges = arena.ranges();
        assert_eq!(arena.at(0, Bytes::PAGE), ranges[0].part(Bytes(0), Bytes::PAGE));
        assert_eq!(arena.at(512, Bytes::PAGE), ranges[1].part(Bytes(0), Bytes::PAGE));
        assert_eq!((arena.pages_of(Some(1)), arena.pages_of(None)), ((512, 768), (0, 1280)));
        assert_eq!(arena.at(511, Bytes::mib(1)).len, Bytes::PAGE, "an access ends with its mapping");
    }

    #[test]
    fn what_is_taken_comes_from_the_end() {
        let mut arena = arena(&[2, 2], &[]);
        let taken = arena.take(750_000);
        assert_eq!(taken.iter().map(|range| range.len.as_mib()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(arena.pages(), 256);
        assert_eq!(arena.take(1_000_000).len(), 1);
        assert_eq!(arena.pages(), 0);
    }

    #[test]
    fn every_other_block_is_a_hole() {
        let mut arena = arena(&[8], &[]);
        let start = arena.ranges()[0].start.0;
        let holes = arena.punch(500_000, Bytes::mib(1));
        let at: Vec<u64> = holes.iter().map(|hole| (hole.start.0 - start) >> 20).collect();
        assert_eq!(at, [0, 2, 4, 6], "as thpscale punches them");
        assert_eq!(arena.pages(), 1024);
    }

    #[test]
    fn pieces_are_of_their_classes() {
        let class =
            |kib, weight, secs| PieceClass { size: Bytes::kib(kib), weight, lifetime: Some(Picos::from_secs(secs)) };
        let arena = arena(&[64], &[class(4, 1, 1), class(64, 1, 10)]);
        let small = arena.parts[0].pieces.iter().filter(|piece| piece.class.size == Bytes::kib(4)).count();
        let bytes = small * 4;
        assert!((30 << 10..34 << 10).contains(&bytes), "half of the bytes: {bytes} KiB");
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let short = (0..4000).filter(|_| arena.piece(&mut random).unwrap().len == Bytes::kib(4)).count();
        assert!(short > 3950, "16 times as many, each 10 times as soon: {short}");
        assert!(arena.ended_in_a_second() > 8_000_000);
    }
}
