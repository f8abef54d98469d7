//! Linux: none.
//! Differs: pageblocks with frames whose state has changed, and movers of pages, for maps of memory over time.

use units::{Order, Pfn};

use super::{
    ControlId, FrameTable,
    moves::{MoveReason, Moved, Moves},
};

/// Notes about pageblocks: none, unless a map is drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    /// Pageblocks with a frame whose state has changed; empty where nothing is noted.
    blocks: Vec<bool>,
    /// The pages that have moved, and their movers.
    moves: Moves,
}

impl Touched {
    /// Whether anything is noted.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "on the fast path of every allocation")]
    fn is_on(&self) -> bool {
        !self.blocks.is_empty()
    }
}

impl FrameTable {
    /// Notes from now on the pageblocks with frames whose state changes, and who moves pages. At first all pageblocks count as
    /// changed.
    pub fn watch(&mut self) {
        self.touched = Touched { blocks: vec![true; self.block_state.len()], moves: Moves::new() };
    }

    /// Whether the state of any frame of this pageblock has changed since the last call; true if changes are not noted.
    pub fn take_touched(&mut self, block: u32) -> bool {
        self.touched.blocks.get_mut(block as usize).is_none_or(std::mem::take)
    }

    /// Notes that the block of `order` at `pfn` changes its state. If changes are not noted this is one comparison.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "on the fast path of every allocation")]
    pub(super) fn touch(&mut self, pfn: Pfn, order: Order) {
        if self.touched.is_on() {
            self.note(pfn, order);
        }
    }

    #[inline(never)]
    fn note(&mut self, pfn: Pfn, order: Order) {
        let pageblocks = (order.frames() >> self.blocks.order().0).max(1);
        let first = self.blocks.index(pfn);
        self.touched.blocks[first..first + pageblocks as usize].fill(true);
    }

    /// Notes pages that move from one block of `order` to another.
    #[inline]
    pub fn note_move(&mut self, by: ControlId, reason: MoveReason, (from, to): (Pfn, Pfn), order: Order) {
        if self.touched.is_on() {
            self.add_move(by, reason, from, Moved { came: 0, left: order.frames() });
            self.add_move(by, reason, to, Moved { came: order.frames(), left: 0 });
        }
    }

    /// Notes a block of `order` that a mover takes for a reason, without moving a page.
    #[inline]
    pub(crate) fn note_taken(&mut self, by: ControlId, reason: MoveReason, pfn: Pfn, order: Order) {
        if self.touched.is_on() {
            self.add_move(by, reason, pfn, Moved { came: order.frames(), left: 0 });
        }
    }

    #[inline(never)]
    fn add_move(&mut self, by: ControlId, reason: MoveReason, pfn: Pfn, moved: Moved) {
        let block = u32::try_from(self.blocks.index(pfn)).expect("fewer pageblocks than frames");
        let sum = self.touched.moves.entry((block, by.0, reason)).or_default();
        sum.came = sum.came.saturating_add(moved.came);
        sum.left = sum.left.saturating_add(moved.left);
    }

    /// The moves since the last call; none if they are not noted.
    pub fn take_moves(&mut self) -> Moves {
        std::mem::take(&mut self.touched.moves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_noted_by_pageblock_only_while_watched() {
        let mut frames = FrameTable::new(Pfn(4096), Order(9), Order(10));
        let compaction = MoveReason::Compaction(Some(Order(9)));
        frames.note_move(ControlId(3), compaction, (Pfn(5), Pfn(1030)), Order(0));
        assert!(frames.take_moves().is_empty());
        frames.watch();
        for page in 0..3 {
            frames.note_move(ControlId(3), compaction, (Pfn(5 + page), Pfn(1030 + page)), Order(0));
        }
        frames.note_move(ControlId(4), MoveReason::NumaBalancing, (Pfn(512), Pfn(1024)), Order(9));
        let moves: Vec<_> = frames.take_moves().into_iter().map(|((block, by, _), moved)| (block, by, moved)).collect();
        let sum = |came, left| Moved { came, left };
        assert_eq!(moves, [(0, 3, sum(0, 3)), (1, 4, sum(0, 512)), (2, 3, sum(3, 0)), (2, 4, sum(512, 0))]);
        assert!(frames.take_moves().is_empty());
    }
}
