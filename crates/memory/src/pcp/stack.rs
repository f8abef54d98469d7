//! Linux: the lists of struct per_cpu_pages, include/linux/mmzone.h (v6.1).
//! Differs: frame numbers side by side instead of links through the frames, as no block is taken out of the middle.

use units::Pfn;

/// Blocks that a new list has room for: the batch of most machines.
const LEAST: usize = 64;

/// Room for blocks at the tail side, once a block is put there: one run of reclaim.
const GAP: u32 = 32;
const _: () = assert!(GAP as usize <= LEAST);

/// The blocks on one of a CPU's lists: put on and taken off at the head, given back from the tail. Up to 4.14 cold blocks are
/// also put on and taken off at the tail.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// The blocks on the list, from tail to head, and room on both sides.
    slots: Box<[Pfn]>,
    /// Index of the block at the tail.
    tail: u32,
    /// One past the index of the block at the head.
    head: u32,
}

impl Stack {
    /// The blocks from tail to head.
    pub fn blocks(&self) -> &[Pfn] {
        &self.slots[self.tail as usize..self.head as usize]
    }

    /// Whether the list has no block.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head <= self.tail
    }

    /// The slot of the next block at the head, if there is room; the block is on the list after [`Self::raise_head`].
    #[inline]
    pub(crate) fn next_slot(&mut self) -> Option<&mut Pfn> {
        self.slots.get_mut(self.head as usize)
    }

    /// Puts the block in the next slot on the list.
    #[inline]
    pub(crate) fn raise_head(&mut self) {
        // Does not exceed the number of slots: the caller has seen a free one.
        self.head = self.head.wrapping_add(1);
    }

    /// Puts a block at the head.
    pub fn push_head(&mut self, pfn: Pfn) {
        if self.head as usize == self.slots.len() {
            self.grow();
        }
        self.slots[self.head as usize] = pfn;
        self.raise_head();
    }

    /// Puts a block at the tail.
    pub fn push_tail(&mut self, pfn: Pfn) {
        if self.tail == 0 {
            self.make_gap();
        }
        self.tail -= 1;
        self.slots[self.tail as usize] = pfn;
    }

    #[cold]
    fn make_gap(&mut self) {
        let head = self.head + GAP;
        if head as usize > self.slots.len() {
            self.grow();
        }
        self.slots.copy_within(..self.head as usize, GAP as usize);
        (self.tail, self.head) = (GAP, head);
    }

    #[cold]
    fn grow(&mut self) {
        let mut slots = std::mem::take(&mut self.slots).into_vec();
        slots.resize((2 * slots.len()).max(LEAST), Pfn(0));
        self.slots = slots.into_boxed_slice();
    }

    /// Takes the block at the head.
    #[inline]
    pub(crate) fn pop_head(&mut self) -> Option<Pfn> {
        if self.is_empty() {
            return None;
        }
        self.head -= 1;
        Some(self.slots[self.head as usize])
    }

    /// Takes the block at the tail.
    pub fn pop_tail(&mut self) -> Option<Pfn> {
        let pfn = *self.blocks().first()?;
        self.drop_tail(1);
        Some(pfn)
    }

    /// Takes the `count` blocks at the tail; the list has at least `count` blocks.
    pub(crate) fn drop_tail(&mut self, count: u32) {
        self.tail += count;
        // Moves no more blocks than were taken since the last move, but for the gap.
        if self.tail >= self.head - self.tail {
            self.slots.copy_within(self.tail as usize..self.head as usize, 0);
            (self.tail, self.head) = (0, self.head - self.tail);
        }
    }

    /// The head becomes the tail.
    pub fn reverse(&mut self) {
        self.slots[self.tail as usize..self.head as usize].reverse();
    }
}

#[cfg(test)]
impl Stack {
    /// From tail to head, to be damaged.
    pub fn blocks_mut(&mut self) -> &mut [Pfn] {
        &mut self.slots[self.tail as usize..self.head as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_give_what_a_plain_list_gives() {
        let (mut stack, mut list) = (Stack::default(), Vec::new());
        let mut word = 1_u32;
        for n in 0..20_000 {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // The list grows for a while, then shrinks.
            let grows = if n / 1_000 % 2 == 0 { 5 } else { 3 };
            match word >> 8 & 7 {
                draw if draw < grows => {
                    stack.push_head(Pfn(n));
                    list.push(Pfn(n));
                }
                7 => assert_eq!(stack.pop_head(), list.pop()),
                6 if word >> 11 & 1 == 0 => {
                    stack.push_tail(Pfn(n));
                    list.insert(0, Pfn(n));
                }
                _ if list.is_empty() => assert_eq!(stack.pop_tail(), None),
                _ => assert_eq!(stack.pop_tail(), Some(list.remove(0))),
            }
            if n % 100 == 0 {
                stack.reverse();
                list.reverse();
            }
            assert_eq!((stack.blocks(), stack.is_empty()), (&list[..], list.is_empty()));
        }
    }

    #[test]
    fn a_stack_filled_at_its_tail_needs_no_extra_room() {
        let mut stack = Stack::default();
        for n in 0..10_000 {
            stack.push_tail(Pfn(n));
            if n >= 100 {
                assert_eq!(stack.pop_head(), Some(Pfn(n - 100)));
            }
        }
        assert_eq!(stack.slots.len(), 256, "a hundred blocks, and the gap");
    }

    #[test]
    fn room_at_the_tail_is_used_again() {
        let mut stack = Stack::default();
        for n in 0..10_000 {
            stack.push_head(Pfn(n));
            if n >= 100 {
                assert_eq!(stack.pop_tail(), Some(Pfn(n - 100)));
            }
        }
        assert_eq!(stack.slots.len(), 256, "a hundred blocks, and as many that are gone");
    }
}
