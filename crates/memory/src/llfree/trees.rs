//! Linux: none; LLFree's upper allocator, Wrenger et al. (USENIX ATC 2023).
//! Differs: a tree knows its CPU, where LLFree's knows only that it has one.

use units::{CpuId, Order};

use super::{area::TREE, primitive};
use crate::{cx::Cx, line::CacheLine};

/// Free frames up to which a tree is almost allocated, and allocated frames up to which it is almost free: a run of the largest
/// order.
// almost_allocated and almost_free, core/src/upper/array.rs of luhsra/llfree-rs (atc23-artifact-eval).
pub(super) const FEW: u32 = 1 << 10;
/// Trees whose counters, 2 bytes each, are one cache line.
const TREES_A_LINE: u32 = 32;
/// Frees in a row to a tree that has no CPU, after which it gets theirs.
// A4C32 of the same file: F = 4.
pub(super) const FREES: u8 = 4;

/// A tree: neighbouring areas that one CPU at a time allocates from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree {
    /// Free frames that its CPU does not count.
    pub(super) free: u32,
    /// The CPU that has reserved the tree.
    pub(super) cpu: Option<CpuId>,
}

/// How full a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// At most [`FEW`] frames are free.
    AlmostAllocated,
    /// More than that are free, and more than that are allocated.
    Half,
    /// At most [`FEW`] frames are allocated.
    AlmostFree,
}

/// How full a tree is, by its free frames and all its frames.
pub(super) fn fill(free: u32, frames: u32) -> Fill {
    if free <= FEW {
        Fill::AlmostAllocated
    } else if free + FEW >= frames {
        Fill::AlmostFree
    } else {
        Fill::Half
    }
}

/// The trees that a search for one to reserve looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    /// Trees that are as full as this.
    Filled(Fill),
    /// All that have enough free frames.
    Any,
}

/// The order of searches for a CPU whose tree is used up: a tree that is in use anyway keeps free ones free, and one that is
/// almost allocated would be used up at once.
pub(super) const USED_UP: [Among; 3] = [Among::Filled(Fill::Half), Among::Filled(Fill::AlmostFree), Among::Any];
/// The order of searches for a CPU whose tree has enough frames, but no such run.
pub(super) const SCATTERED: [Among; 3] = [Among::Filled(Fill::AlmostFree), Among::Filled(Fill::Half), Among::Any];

/// The tree that a CPU has reserved, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reservation {
    pub(super) tree: Option<u32>,
    /// Free frames of the tree that the CPU counts.
    pub(super) free: u32,
    /// The row of the last allocation, where the next allocation begins to look.
    pub(super) row: u32,
    /// The tree of the CPU's last frees.
    pub(super) freed: Option<u32>,
    /// How many in a row they were, up to [`FREES`].
    pub(super) frees: u8,
}

impl Reservation {
    /// Has the CPU freed to this tree only, lately?
    pub(super) fn frees_to(&self, tree: u32) -> bool {
        self.freed == Some(tree) && self.frees >= FREES
    }

    /// Remembers a free.
    pub(super) fn note_free(&mut self, tree: u32) {
        if self.freed == Some(tree) {
            self.frees = FREES.min(self.frees + 1);
        } else {
            (self.freed, self.frees) = (Some(tree), 1);
        }
    }
}

/// The counters of all trees.
#[derive(Clone, Debug)]
pub(super) struct Trees {
    pub(super) each: Vec<Tree>,
    lines: Vec<CacheLine>,
    /// Frames of all trees; the last tree counts as if it were whole.
    frames: u32,
}

impl Trees {
    /// The trees of a zone of `frames` frames, none of which is free.
    pub(super) fn new(frames: u32) -> Self {
        let count = frames.div_ceil(TREE);
        let lines = count.div_ceil(TREES_A_LINE) as usize;
        Self { each: vec![Tree::default(); count as usize], lines: vec![CacheLine::default(); lines], frames }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.each.len()).expect("frames have 32-bit numbers")
    }

    /// Frames of a tree.
    pub(super) fn frames_of(&self, tree: u32) -> u32 {
        TREE.min(self.frames - tree * TREE)
    }

    /// A tree, to be changed by a CPU.
    pub(super) fn change(&mut self, cx: &mut Cx<'_>, tree: u32) -> &mut Tree {
        primitive::change(&mut self.lines[(tree / TREES_A_LINE) as usize], cx);
        &mut self.each[tree as usize]
    }

    /// May this tree be reserved in a search for a run of `order`?
    pub(super) fn is_among(&self, tree: u32, among: Among, order: Order) -> bool {
        let Tree { free, cpu } = self.each[tree as usize];
        cpu.is_none()
            && free >= order.frames()
            && match among {
                Among::Any => true,
                Among::Filled(wanted) => fill(free, self.frames_of(tree)) == wanted,
            }
    }

    /// The n-th tree of a search that begins at one: that one, then those beside it, in turns before and behind, around the ends.
    pub(super) fn nth_from(&self, start: u32, n: u32) -> u32 {
        let count = self.count();
        let distance = n.div_ceil(2);
        if n % 2 == 1 { (start + count - distance) % count } else { (start + distance) % count }
    }
}
