//! Linux: include/linux/list.h (v6.1).
//! Differs: threaded through the frame table by frame number; the ends are marked, there is no list head in the circle.

use units::Pfn;

use crate::frame::{FrameTable, Links, NIL, Threads};

/// A doubly linked list of frames. Whoever holds it knows which column of links it is threaded through.
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
    /// How many frames are on it.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether none is.
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

    /// Puts a frame right before one that is on this list, on the side of the head.
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

    /// Makes a frame that is on this list its head; those before it follow the tail, in their order.
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
