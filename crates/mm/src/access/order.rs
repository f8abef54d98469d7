//! Linux: none.
//!
//! In which order user code goes through a range: piece by piece, as the range's PMD entries have it.

use units::Vpn;

use crate::{page_table::Level, vma::PageRange};

/// Where a walk through all pieces of a range is, round after round.
#[derive(Clone, Debug)]
pub(super) struct Order {
    range: PageRange,
    pieces: u64,
    /// The number that the order of each round is drawn from; none: by address.
    draw: Option<u64>,
    round: u64,
    /// How many pieces of the round have passed.
    nth: u64,
    /// Of this round: which piece it is at, and how far it is from one to the next.
    index: u64,
    stride: u64,
    /// The pages of that piece.
    piece: PageRange,
}

impl Order {
    pub(super) fn new(range: PageRange, draw: Option<u64>) -> Self {
        assert!(range.pages() > 0, "a range of no pages has no order");
        let end = Level::Pmd.entry_range(Vpn(range.end.0 - 1)).end;
        let pieces = (end.0 - Level::Pmd.entry_range(range.start).start.0) / Level::Pmd.entry_pages();
        let mut order = Self { range, pieces, draw, round: 0, nth: 0, index: 0, stride: 1, piece: range };
        order.begin_round();
        order
    }

    pub(super) fn range(&self) -> PageRange {
        self.range
    }

    /// The pages of the piece that is gone through.
    #[inline]
    pub(super) fn piece(&self) -> PageRange {
        self.piece
    }

    /// The piece has been gone through; says where the next one begins.
    pub(super) fn next_piece(&mut self) -> Vpn {
        self.nth += 1;
        if self.nth == self.pieces {
            self.pass_rounds(1);
        } else {
            let next = self.index + self.stride;
            self.index = if next < self.pieces { next } else { next - self.pieces };
            self.piece = self.nth_piece();
        }
        self.piece.start
    }

    fn nth_piece(&self) -> PageRange {
        let all = Level::Pmd.entry_range(self.range.start).start;
        let start = Vpn(all.0 + self.index * Level::Pmd.entry_pages());
        let end = Vpn(start.0 + Level::Pmd.entry_pages());
        PageRange { start: start.max(self.range.start), end: end.min(self.range.end) }
    }

    /// Is this the first page of a round?
    pub(super) fn is_round_start(&self, next: Vpn) -> bool {
        self.nth == 0 && next == self.piece().start
    }

    /// So many rounds have passed, and one begins.
    pub(super) fn pass_rounds(&mut self, n: u64) {
        self.round += n;
        self.nth = 0;
        self.begin_round();
    }

    fn begin_round(&mut self) {
        self.index = 0;
        if let Some(draw) = self.draw {
            let word = mix(draw ^ mix(self.round));
            self.index = (word >> 32) % self.pieces;
            // Bound: one of any few neighbours shares no factor with the number of pieces.
            self.stride = (word & 0xffff_ffff) % self.pieces;
            while greatest_common_divisor(self.stride, self.pieces) != 1 {
                self.stride += 1;
            }
        }
        self.piece = self.nth_piece();
    }
}

/// Between two states of `splitmix64` (Steele, Lea and Flood, OOPSLA 2014).
pub(crate) const SPLITMIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that `splitmix64` draws in a state; the next state is that much further by its constant.
pub(crate) fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(SPLITMIX_STEP);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(order: &mut Order) -> Vec<u64> {
        (0..order.pieces)
            .map(|_| {
                let start = order.piece().start.0;
                order.next_piece();
                start
            })
            .collect()
    }

    #[test]
    fn every_round_has_every_piece_once_and_random_ones_differ() {
        let range = PageRange::new(Vpn(700), 512 * 12);
        let mut linear = Order::new(range, None);
        let by_address = starts(&mut linear);
        assert_eq!(by_address[..3], [700, 1024, 1536]);
        assert_eq!(by_address.len(), 13);
        let mut random = Order::new(range, Some(3));
        let rounds = [starts(&mut random), starts(&mut random)];
        assert!(rounds[0] != rounds[1] && rounds[0] != by_address);
        for mut round in rounds {
            round.sort_unstable();
            assert_eq!(round, by_address);
        }
        assert_ne!(starts(&mut Order::new(range, Some(4))), starts(&mut Order::new(range, Some(3))));
    }

    #[test]
    fn a_small_range_is_one_piece() {
        let range = PageRange::new(Vpn(1030), 3);
        let mut order = Order::new(range, Some(1));
        assert_eq!(order.piece(), range);
        assert_eq!(order.next_piece(), range.start);
        assert!(order.is_round_start(range.start) && order.round == 1);
    }
}
