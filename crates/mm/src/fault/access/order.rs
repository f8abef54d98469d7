//! Linux: none.
//!
//! The order in which user code accesses a range: piece by piece, a piece being the part of a run under one PMD entry.

use memory::splitmix::mix;
use units::Vpn;

use crate::space::{page_table::Level, vma::PageRange};

/// Runs of pages of equal length at equal distances in a range; the last may be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// The range, which starts with the first run.
    pub range: PageRange,
    /// Pages of a run.
    pub len: u64,
    /// Pages from the start of one run to the start of the next; at least `len`.
    pub every: u64,
}

impl From<PageRange> for Runs {
    /// One run over the whole range.
    fn from(range: PageRange) -> Self {
        let pages = range.pages().max(1);
        Self { range, len: pages, every: pages }
    }
}

impl Runs {
    fn is_one(self) -> bool {
        self.len >= self.range.pages()
    }

    /// The parts of the runs, by PMD entry.
    fn pieces(self) -> Vec<PageRange> {
        let mut pieces = Vec::new();
        let mut start = self.range.start;
        while start < self.range.end {
            let end = start.plus(self.len).min(self.range.end);
            let mut from = start;
            while from < end {
                let to = Level::Pmd.entry_range(from).end.min(end);
                pieces.push(PageRange { start: from, end: to });
                from = to;
            }
            start = start.plus(self.every);
        }
        pieces
    }
}

/// The position of a walk over all pieces of a range, round after round.
#[derive(Clone, Debug)]
pub(super) struct Order {
    range: PageRange,
    /// The pieces, if the runs do not cover the whole range.
    parts: Vec<PageRange>,
    pages: u64,
    pieces: u64,
    /// The seed of each round's random order; none: by address.
    draw: Option<u64>,
    round: u64,
    /// Number of pieces of this round that are done.
    nth: u64,
    /// In this round: the index of the present piece, and the distance from one piece to the next.
    index: u64,
    stride: u64,
    /// The pages of the present piece.
    piece: PageRange,
}

impl Order {
    pub(super) fn new(runs: Runs, draw: Option<u64>) -> Self {
        let range = runs.range;
        assert!(range.pages() > 0 && runs.len > 0, "a range of no pages has no order");
        assert!(runs.len <= runs.every, "runs lie one after the other");
        let parts = if runs.is_one() { Vec::new() } else { runs.pieces() };
        let (pages, pieces) = if runs.is_one() {
            let end = Level::Pmd.entry_range(Vpn(range.end.0 - 1)).end;
            (range.pages(), (end.0 - Level::Pmd.entry_range(range.start).start.0) / Level::Pmd.entry_pages())
        } else {
            (parts.iter().map(|part| part.pages()).sum(), parts.len() as u64)
        };
        let (round, nth, index, stride) = (0, 0, 0, 1);
        let mut order = Self { range, parts, pages, pieces, draw, round, nth, index, stride, piece: range };
        order.begin_round();
        order
    }

    pub(super) fn range(&self) -> PageRange {
        self.range
    }

    /// Pages in a round.
    #[inline]
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// The pages of the present piece.
    #[inline]
    pub(super) fn piece(&self) -> PageRange {
        self.piece
    }

    /// Goes on to the next piece, and returns its first page.
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
        if let Some(part) = self.parts.get(usize::try_from(self.index).expect("a place in a list")) {
            return *part;
        }
        let all = Level::Pmd.entry_range(self.range.start).start;
        let start = Vpn(all.0 + self.index * Level::Pmd.entry_pages());
        let end = Vpn(start.0 + Level::Pmd.entry_pages());
        PageRange { start: start.max(self.range.start), end: end.min(self.range.end) }
    }

    /// Whether this is the first page of a round.
    pub(super) fn is_round_start(&self, next: Vpn) -> bool {
        self.nth == 0 && next == self.piece().start
    }

    /// Skips `n` rounds.
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
            // Bound: among a few neighbours there is one without a common factor with the number of pieces.
            self.stride = (word & 0xffff_ffff) % self.pieces;
            while greatest_common_divisor(self.stride, self.pieces) != 1 {
                self.stride += 1;
            }
        }
        self.piece = self.nth_piece();
    }
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
        let mut linear = Order::new(range.into(), None);
        let by_address = starts(&mut linear);
        assert_eq!(by_address[..3], [700, 1024, 1536]);
        assert_eq!(by_address.len(), 13);
        let mut random = Order::new(range.into(), Some(3));
        let rounds = [starts(&mut random), starts(&mut random)];
        assert!(rounds[0] != rounds[1] && rounds[0] != by_address);
        for mut round in rounds {
            round.sort_unstable();
            assert_eq!(round, by_address);
        }
        assert_ne!(starts(&mut Order::new(range.into(), Some(4))), starts(&mut Order::new(range.into(), Some(3))));
    }

    #[test]
    fn runs_are_gone_through_without_what_lies_between_them() {
        let runs = Runs { range: PageRange::new(Vpn(512 + 256), 2000), len: 384, every: 768 };
        let mut order = Order::new(runs, None);
        assert_eq!(order.pages(), 384 + 384 + 384, "from 768, 1536 and 2304 on");
        let mut met = Vec::new();
        for _ in 0..order.pieces {
            met.push((order.piece().start.0, order.piece().end.0));
            order.next_piece();
        }
        assert_eq!(met, [(768, 1024), (1024, 1152), (1536, 1920), (2304, 2560), (2560, 2688)]);
        assert!(order.is_round_start(Vpn(768)));
        let mut cut = Order::new(Runs { range: PageRange::new(Vpn(0), 900), ..runs }, Some(7));
        assert_eq!(cut.pages(), 384 + 132, "the last one is cut off");
        let mut starts = starts(&mut cut);
        starts.sort_unstable();
        assert_eq!(starts, [0, 768]);
    }

    #[test]
    fn a_small_range_is_one_piece() {
        let range = PageRange::new(Vpn(1030), 3);
        let mut order = Order::new(range.into(), Some(1));
        assert_eq!(order.piece(), range);
        assert_eq!(order.next_piece(), range.start);
        assert!(order.is_round_start(range.start) && order.round == 1);
    }
}
