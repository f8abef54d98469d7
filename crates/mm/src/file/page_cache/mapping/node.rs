//! Linux: struct xa_node, include/linux/xarray.h; lib/xarray.c (v6.1).
//! Differs: the memory for a node's entries behind the first sixteen, and for buffer heads, is allocated when it is needed.

use std::cell::Cell;

use memory::{frame::NIL, slab::Object};

use super::{EMPTY, Entry, KIND, SLOTS};

/// Entries inside the node itself: the pages of a file of 64 KiB, of which small-file benchmarks have a million.
const FIRST: usize = 16;

#[derive(Clone, Debug)]
struct Entries<const N: usize> {
    words: [u32; N],
    flags: [u8; N],
}

impl<const N: usize> Entries<N> {
    const NONE: Self = Self { words: [0; N], flags: [EMPTY; N] };
}

/// One node (`struct xa_node`).
#[derive(Clone, Debug)]
pub(super) struct Node {
    first: Entries<FIRST>,
    /// The node's entries after the first ones; none while these are empty.
    rest: Option<Box<Entries<{ SLOTS - FIRST }>>>,
    /// Slabs of buffer heads; none while no entry has one, as with XFS.
    buffers: Option<Box<[u32; SLOTS]>>,
    /// Entries that are a page, or lead to one.
    pub(super) folios: u64,
    /// Entries that are dirty, or lead to a dirty one (`PAGECACHE_TAG_DIRTY`).
    pub(super) dirty: u64,
    /// Number of entries that are not empty.
    pub(super) count: u8,
    /// Bits of an index below this node's.
    pub(super) shift: u8,
    /// The node above, and the entry of this one there.
    pub(super) parent: Option<(u32, u8)>,
    pub(super) object: Object,
}

impl Node {
    pub(super) fn new(object: Object, shift: u8, parent: Option<(u32, u8)>) -> Self {
        Self { first: Entries::NONE, rest: None, buffers: None, folios: 0, dirty: 0, count: 0, shift, parent, object }
    }

    pub(super) fn get(&self, at: usize) -> Entry {
        Entry { word: self.word(at), flags: self.flags(at), buffer: self.buffer(at) }
    }

    pub(super) fn word(&self, at: usize) -> u32 {
        match at.checked_sub(FIRST) {
            None => self.first.words[at],
            Some(at) => self.rest.as_ref().map_or(0, |rest| rest.words[at]),
        }
    }

    pub(super) fn flags(&self, at: usize) -> u8 {
        match at.checked_sub(FIRST) {
            None => self.first.flags[at],
            Some(at) => self.rest.as_ref().map_or(EMPTY, |rest| rest.flags[at]),
        }
    }

    pub(super) fn entry_mut(&mut self, at: usize) -> (&mut u32, &mut u8) {
        match at.checked_sub(FIRST) {
            None => (&mut self.first.words[at], &mut self.first.flags[at]),
            Some(at) => {
                let rest = self.rest.get_or_insert_with(|| Box::new(Entries::NONE));
                (&mut rest.words[at], &mut rest.flags[at])
            }
        }
    }

    fn buffer(&self, at: usize) -> u32 {
        self.buffers.as_ref().map_or(NIL.0, |buffers| buffers[at])
    }

    /// Sets the slab of an entry's buffer head.
    pub(super) fn set_buffer(&mut self, at: usize, buffer: u32) {
        if self.buffers.is_some() || buffer != NIL.0 {
            self.buffers.get_or_insert_with(|| Box::new([NIL.0; SLOTS]))[at] = buffer;
        }
    }

    pub(super) fn put(&mut self, at: usize, entry: Entry) {
        let was = self.flags(at) & KIND != EMPTY;
        let is = entry.kind() != EMPTY;
        self.count = self.count + u8::from(is) - u8::from(was);
        if was || is {
            let (word, flags) = self.entry_mut(at);
            (*word, *flags) = (entry.word, entry.flags);
        }
        self.set_buffer(at, entry.buffer);
    }
}

/// The nodes of all mappings.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Nodes {
    all: Vec<Option<Node>>,
    free: Vec<u32>,
    /// Objects of nodes that were dropped since this list was last taken.
    pub(in super::super) freed: Vec<Object>,
    pub(super) found: Found,
}

/// Leaf nodes that were found last: the next lookup is for the same page again, and then for the next page. There are several,
/// as tasks that read different files take turns.
#[derive(Clone, Debug)]
pub(super) struct Found {
    leaves: [Cell<Leaf>; 1 << Self::BITS],
    /// Number of nodes dropped so far: leaves found before the last drop are not trusted.
    given: u32,
}

/// A leaf node: the top node that it is under, and the indices that it holds (those with the same `high`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Leaf {
    top: u32,
    high: u64,
    node: u32,
    given: u32,
}

impl Default for Found {
    fn default() -> Self {
        // A leaf that was never set must not match: its number of drops is 0.
        Self { leaves: std::array::from_fn(|_| Cell::default()), given: 1 }
    }
}

impl Found {
    /// More leaves than simulated machines have CPUs, so that few of their files share a place.
    const BITS: u32 = 6;

    fn at(&self, top: u32) -> &Cell<Leaf> {
        // The numbers of top nodes lie a whole file apart: multiplied by Knuth's constant they spread.
        let spread = top.wrapping_mul(0x9E37_79B1) >> (u32::BITS - Self::BITS);
        &self.leaves[spread as usize]
    }

    pub(super) fn get(&self, top: u32, high: u64) -> Option<u32> {
        let leaf = self.at(top).get();
        ((leaf.top, leaf.high, leaf.given) == (top, high, self.given)).then_some(leaf.node)
    }

    pub(super) fn put(&self, top: u32, high: u64, node: u32) {
        self.at(top).set(Leaf { top, high, node, given: self.given });
    }
}

impl Nodes {
    pub(super) fn add(&mut self, node: Node) -> u32 {
        let node = Some(node);
        if let Some(id) = self.free.pop() {
            self.all[id as usize] = node;
            return id;
        }
        self.all.push(node);
        u32::try_from(self.all.len() - 1).expect("fewer than 2^32 nodes")
    }

    pub(super) fn give(&mut self, id: u32) {
        self.found.given += 1;
        let node = self.all[id as usize].take().expect("it is in use");
        self.freed.push(node.object);
        self.free.push(id);
    }

    pub(super) fn get(&self, id: u32) -> &Node {
        self.all[id as usize].as_ref().expect("it is in use")
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Node {
        self.all[id as usize].as_mut().expect("it is in use")
    }

    /// The kernel objects of all nodes.
    pub(in super::super) fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        self.all.iter().flatten().map(|node| node.object)
    }

    /// Number of nodes.
    #[cfg(test)]
    pub(in super::super) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
