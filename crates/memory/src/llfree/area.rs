//! Linux: none; LLFree, Wrenger et al., "LLFree: Scalable and Optionally-Persistent Page-Frame Allocation" (USENIX ATC 2023).
//! Differs: one task at a time writes to a bit field, so nothing is retried or undone.

use units::Order;

/// Frames of an area: 2 MiB.
pub(super) const AREA: u32 = Order::HUGE.frames();
/// Frames of a row of a bit field.
pub(super) const ROW: u32 = u64::BITS;
/// Areas of a tree.
// C32 of core/src/lower/cache.rs, luhsra/llfree-rs (atc23-artifact-eval): the counters of a tree's areas are one cache line.
pub(super) const TREE_AREAS: u32 = 32;
/// Frames of a tree.
pub(super) const TREE: u32 = TREE_AREAS * AREA;
/// Rows of a bit field: one cache line together.
const ROWS: usize = (AREA / ROW) as usize;
/// Order of a row.
const ROW_ORDER: Order = Order(6);

/// Multiples of the frames of each order below a row's, as bits of a row.
const STARTS: [u64; ROW_ORDER.0 as usize + 1] =
    [u64::MAX, u64::MAX / 0x3, u64::MAX / 0xf, u64::MAX / 0xff, u64::MAX / 0xffff, u64::MAX / 0xffff_ffff, 1];

/// The frames of an area, a bit each: set while the frame is allocated.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub(super) struct Bits([u64; ROWS]);

impl Bits {
    /// Every frame allocated.
    pub(super) const TAKEN: Self = Self([u64::MAX; ROWS]);

    /// Takes the first free run of `order`, below that of an area, and says where it is. Runs that fit into a row are looked
    /// for from row `from` on, once around; larger ones from the start.
    #[inline]
    pub(super) fn take_first(&mut self, from: u32, order: Order) -> Option<u32> {
        if order > ROW_ORDER {
            let at = (0..AREA).step_by(order.frames() as usize).find(|at| self.is(*at, order, false))?;
            self.set(at, order, true);
            return Some(at);
        }
        // Bound: each row once.
        for turn in 0..AREA / ROW {
            let row = (from + turn) % (AREA / ROW);
            let bits = &mut self.0[row as usize];
            let starts = free_starts(*bits, order);
            if starts != 0 {
                let bit = starts.trailing_zeros();
                *bits |= mask(bit, order);
                return Some(row * ROW + bit);
            }
        }
        None
    }

    /// Is every frame of a run below the order of an area allocated, or free?
    pub(super) fn is(&self, at: u32, order: Order, taken: bool) -> bool {
        let expected = |mask: u64| if taken { mask } else { 0 };
        if order >= ROW_ORDER {
            return self.rows(at, order).iter().all(|row| *row == expected(u64::MAX));
        }
        let mask = mask(at % ROW, order);
        self.0[(at / ROW) as usize] & mask == expected(mask)
    }

    /// Marks a run below the order of an area as allocated, or as free.
    #[inline]
    pub(super) fn set(&mut self, at: u32, order: Order, taken: bool) {
        let first = (at / ROW) as usize;
        if order > ROW_ORDER {
            self.0[first..first + (order.frames() / ROW) as usize].fill(if taken { u64::MAX } else { 0 });
            return;
        }
        let mask = mask(at % ROW, order);
        if taken {
            self.0[first] |= mask;
        } else {
            self.0[first] &= !mask;
        }
    }

    /// Free frames.
    pub(super) fn free(&self) -> u32 {
        self.0.iter().map(|row| row.count_zeros()).sum()
    }

    fn rows(&self, at: u32, order: Order) -> &[u64] {
        let first = (at / ROW) as usize;
        &self.0[first..first + (order.frames() / ROW) as usize]
    }
}

/// The bits of a run within its row, which is no longer than that.
#[inline]
fn mask(bit: u32, order: Order) -> u64 {
    (u64::MAX >> (ROW - order.frames())) << bit
}

/// The first bits of all runs of `order` that are free in a row.
#[inline]
fn free_starts(row: u64, order: Order) -> u64 {
    let mut free = !row;
    // Each turn joins neighbours of the order below.
    for half in 0..order.0 {
        free &= free >> (1 << half);
    }
    free & STARTS[usize::from(order.0)]
}

/// An area's counter of free frames, and whether one allocation has all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counter(u16);

impl Counter {
    /// One allocation has the area; its bits are clear.
    pub(super) const WHOLE: Self = Self(1 << 15);
    /// Every frame is free.
    pub(super) const FREE: Self = Self(1 << Order::HUGE.0);

    /// Free frames.
    #[inline]
    pub(super) fn free(self) -> u32 {
        if self == Self::WHOLE { 0 } else { u32::from(self.0) }
    }

    /// Has one allocation all of the area?
    #[inline]
    pub(super) fn is_whole(self) -> bool {
        self == Self::WHOLE
    }

    /// Counts frames of a run that becomes free.
    #[inline]
    pub(super) fn add(&mut self, order: Order) {
        self.0 += 1 << order.0;
    }

    /// Counts frames of a run that is allocated.
    #[inline]
    pub(super) fn take(&mut self, order: Order) {
        self.0 -= 1 << order.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_aligned_run_is_taken_from_the_row_on_that_was_asked_for() {
        let mut bits = Bits::default();
        assert_eq!(bits.take_first(0, Order(0)), Some(0));
        assert_eq!(bits.take_first(0, Order(1)), Some(2));
        assert_eq!(bits.take_first(0, Order(2)), Some(4));
        assert_eq!(bits.take_first(0, Order(5)), Some(32));
        assert_eq!(bits.take_first(3, Order(6)), Some(192));
        assert_eq!(bits.take_first(3, Order(0)), Some(256));
        assert_eq!(bits.take_first(0, Order(7)), Some(384), "rows 2 and 3 are a run of it, but row 3 is taken");
        assert_eq!(bits.take_first(0, Order(8)), None);
        assert_eq!(bits.take_first(7, Order(0)), Some(1), "around the end");
        assert_eq!(bits.free(), AREA - 1 - 1 - 2 - 4 - 32 - 64 - 1 - 128);
    }

    #[test]
    fn runs_of_every_order_fill_an_area_and_leave_it() {
        for order in (0..Order::HUGE.0).map(Order) {
            let mut bits = Bits::default();
            for at in (0..AREA).step_by(order.frames() as usize) {
                assert!(bits.is(at, order, false));
                assert_eq!(bits.take_first(at / ROW, order), Some(at), "order {}", order.0);
                assert!(bits.is(at, order, true));
            }
            assert_eq!((bits.take_first(0, order), bits.free()), (None, 0));
            for at in (0..AREA).step_by(order.frames() as usize) {
                bits.set(at, order, false);
            }
            assert_eq!(bits.free(), AREA);
        }
    }
}
