//! Linux: include/linux/list.h (v6.1).
//! Differs: threaded through the frame table by frame number; the ends are marked, there is no list head in the circle.

use units::Pfn;

use crate::frame::{FrameTable, Links, NIL, Threads};

/// A doubly linked list of frames. The list's owner passes the column of links that the list is threaded through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    head: Pfn,
    tail: Pfn,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NIL, tail: NIL, len: 0 }
    }
}

impl List {
    /// A list between two ends, whose frames are linked already.
    pub const fn of_ends((head, tail): (Pfn, Pfn), len: u32) -> Self {
        Self { head, tail, len }
    }

    /// Number of frames on the list.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the list has no frame.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The frame at the head.
    #[inline]
    pub fn first(&self) -> Option<Pfn> {
        (!self.is_empty()).then_some(self.head)
    }

    /// The frame at the tail.
    #[inline]
    pub fn last(&self) -> Option<Pfn> {
        (!self.is_empty()).then_some(self.tail)
    }

    /// Puts a frame at the head.
    #[inline]
    pub fn push_head(&mut self, mut threads: Threads<'_>, pfn: Pfn) {
        threads.set(pfn, Links { prev: NIL, next: self.head });
        if self.head == NIL {
            self.tail = pfn;
        } else {
            threads.set_prev(self.head, pfn);
        }
        self.head = pfn;
        self.len += 1;
    }

    /// Puts a frame at the tail.
    #[inline]
    pub fn push_tail(&mut self, mut threads: Threads<'_>, pfn: Pfn) {
        threads.set(pfn, Links { prev: self.tail, next: NIL });
        if self.tail == NIL {
            self.head = pfn;
        } else {
            threads.set_next(self.tail, pfn);
        }
        self.tail = pfn;
        self.len += 1;
    }

    /// Puts frames at the head, one after the other.
    pub fn push_heads(&mut self, mut threads: Threads<'_>, pfns: &[Pfn]) {
        let [first, .., last] = pfns else {
            return pfns.iter().for_each(|pfn| self.push_head(threads.again(), *pfn));
        };
        let mut behind = self.head;
        for pair in pfns.windows(2) {
            threads.set(pair[0], Links { prev: pair[1], next: behind });
            behind = pair[0];
        }
        threads.set(*last, Links { prev: NIL, next: behind });
        if self.head == NIL {
            self.tail = *first;
        } else {
            threads.set_prev(self.head, *first);
        }
        self.head = *last;
        self.len += count(pfns);
    }

    /// Takes frames off the list; frames that are neighbours on it leave together.
    pub fn remove_all(&mut self, mut threads: Threads<'_>, pfns: &[Pfn]) {
        // The links of all frames are read before any is followed, so that memory brings them at the same time.
        std::hint::black_box(pfns.iter().fold(0, |seen, pfn| seen ^ threads.get(*pfn).prev.0));
        let mut left = pfns;
        // Bound: each turn takes off at least one frame.
        while let [first, rest @ ..] = left {
            let ends = threads.get(*first);
            let rises = rest.first() == Some(&ends.prev);
            let next_to = |links: Links| if rises { links.prev } else { links.next };
            let (mut last, mut last_links, mut more) = (*first, ends, rest);
            while let [pfn, behind @ ..] = more
                && next_to(last_links) == *pfn
            {
                threads.clear(last);
                (last, last_links, more) = (*pfn, threads.get(*pfn), behind);
            }
            threads.clear(last);
            let (prev, next) = if rises { (last_links.prev, ends.next) } else { (ends.prev, last_links.next) };
            let (head, tail) = if rises { (last, *first) } else { (*first, last) };
            self.join(&mut threads, (prev, head), (next, tail));
            self.len -= count(left) - count(more);
            left = more;
        }
    }

    /// Closes the gap that the frames from `head` to `tail` leave: joins the frames on both sides, which may be the
    /// list's ends.
    fn join(&mut self, threads: &mut Threads<'_>, (prev, head): (Pfn, Pfn), (next, tail): (Pfn, Pfn)) {
        if prev == NIL {
            assert!(self.head == head, "frame {head} is not on this list");
            self.head = next;
        } else {
            threads.set_next(prev, next);
        }
        if next == NIL {
            assert!(self.tail == tail, "frame {tail} is not on this list");
            self.tail = prev;
        } else {
            threads.set_prev(next, prev);
        }
    }

    /// Inserts a frame before another frame of this list, towards the head.
    pub fn insert_before(&mut self, mut threads: Threads<'_>, at: Pfn, pfn: Pfn) {
        let prev = threads.get(at).prev;
        if prev == NIL {
            return self.push_head(threads, pfn);
        }
        threads.set(pfn, Links { prev, next: at });
        threads.set_next(prev, pfn);
        threads.set_prev(at, pfn);
        self.len += 1;
    }

    /// Takes off a frame that is on this list.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "in the innermost loops of the buddy allocator and of the LRU lists")]
    pub fn remove(&mut self, mut threads: Threads<'_>, pfn: Pfn) {
        let Links { prev, next } = threads.get(pfn);
        if prev == NIL {
            assert!(self.head == pfn, "frame {pfn} is not on this list");
            self.head = next;
        } else {
            threads.set_next(prev, next);
        }
        if next == NIL {
            assert!(self.tail == pfn, "frame {pfn} is not on this list");
            self.tail = prev;
        } else {
            threads.set_prev(next, prev);
        }
        threads.clear(pfn);
        self.len -= 1;
    }

    /// Takes the frame at the head.
    #[inline]
    pub fn pop_head(&mut self, mut threads: Threads<'_>) -> Option<Pfn> {
        let pfn = self.first()?;
        self.head = threads.get(pfn).next;
        if self.head == NIL {
            self.tail = NIL;
        } else {
            threads.set_prev(self.head, NIL);
        }
        threads.clear(pfn);
        self.len -= 1;
        Some(pfn)
    }

    /// Takes the frame at the tail.
    #[inline]
    pub fn pop_tail(&mut self, mut threads: Threads<'_>) -> Option<Pfn> {
        let pfn = self.last()?;
        self.tail = threads.get(pfn).prev;
        if self.tail == NIL {
            self.head = NIL;
        } else {
            threads.set_next(self.tail, NIL);
        }
        threads.clear(pfn);
        self.len -= 1;
        Some(pfn)
    }

    /// Makes a frame of this list its head; the frames before it follow the tail, in their order.
    pub fn rotate_to(&mut self, mut threads: Threads<'_>, pfn: Pfn) {
        let Links { prev, .. } = threads.get(pfn);
        if prev == NIL {
            assert!(self.head == pfn, "frame {pfn} is not on this list");
            return;
        }
        threads.set_next(self.tail, self.head);
        threads.set_prev(self.head, self.tail);
        threads.set_next(prev, NIL);
        threads.set_prev(pfn, NIL);
        (self.head, self.tail) = (pfn, prev);
    }

    /// The frames from head to tail.
    pub fn iter<'a>(&self, frames: &'a FrameTable) -> impl Iterator<Item = Pfn> + use<'a> {
        let bound = self.len as usize;
        std::iter::successors(self.first(), |pfn| Some(frames.links(*pfn).next).filter(|next| *next != NIL)).take(bound)
    }
}

fn count(pfns: &[Pfn]) -> u32 {
    u32::try_from(pfns.len()).expect("fewer frames than numbers for them")
}

#[cfg(test)]
mod tests {
    use units::Order;

    use super::*;

    #[test]
    fn several_at_once_are_one_after_the_other() {
        let mut frames = FrameTable::new(Pfn(64), Order(3), Order(4));
        let (mut list, mut naive) = (List::default(), Vec::<Pfn>::new());
        let mut word = 1_u32;
        let mut draw = |below: usize| {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (word >> 8) as usize % below
        };
        for _ in 0..20_000 {
            let mut absent: Vec<Pfn> = (0..64).map(Pfn).filter(|pfn| !naive.contains(pfn)).collect();
            if draw(2) == 0 {
                let by = draw(absent.len() + 1);
                absent.rotate_left(by);
                absent.truncate(draw(12));
                list.push_heads(frames.threads(), &absent);
                naive.splice(0..0, absent.iter().rev().copied());
            } else {
                // Neighbours in either direction, and strangers.
                let from = draw(naive.len() + 1);
                let mut gone: Vec<Pfn> = naive[from..].iter().copied().take(draw(12)).collect();
                match draw(4) {
                    0 => gone.reverse(),
                    1 => {
                        let half = gone.len() / 2;
                        gone.rotate_left(half);
                    }
                    2 => gone.retain(|pfn| pfn.0 % 3 > 0),
                    _ => {}
                }
                list.remove_all(frames.threads(), &gone);
                naive.retain(|pfn| !gone.contains(pfn));
                assert!(gone.iter().all(|pfn| frames.raw_links(*pfn) == 0));
            }
            let (mut forwards, mut backwards) = (Vec::new(), Vec::new());
            let (mut next, mut prev) = (list.head, list.tail);
            while next != NIL {
                forwards.push(next);
                next = frames.threads().get(next).next;
            }
            while prev != NIL {
                backwards.insert(0, prev);
                prev = frames.threads().get(prev).prev;
            }
            assert_eq!((&forwards, &backwards, list.len() as usize), (&naive, &naive, naive.len()));
        }
    }
}
