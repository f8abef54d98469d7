//! Linux: struct address_space, include/linux/fs.h; struct xa_node and xas_create() in lib/xarray.c (v6.1).
//! Differs: base pages only; the marks of a page that do not fit into its frame are kept beside its entry; nodes that hold only
//! shadows are not on a list of their own.
//!
//! An inode's pages by index: a tree of nodes of 64 entries, with the fewest levels that its largest index allows. A file of one
//! page needs no node.

mod node;

use memory::{frame::NIL, slab::Object};
use units::Pfn;

use self::node::Node;
pub(super) use self::node::Nodes;

const SHIFT: u8 = 6;
const SLOTS: usize = 1 << SHIFT;

/// A mark of a page in the cache, beside the flags of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFlag {
    /// The disk does not have the page's contents (`PG_dirty`).
    Dirty,
    /// The page is being written (`PG_writeback`).
    Writeback,
    /// Reclaim frees the page after writeback (`PG_reclaim`).
    Reclaim,
    /// The page was on the active list before it was last reclaimed (`PG_workingset`).
    Workingset,
    /// A task that uses the page reads ahead (`PG_readahead`).
    ReadAhead,
    /// The page's contents are valid (`PG_uptodate`).
    Uptodate,
}

impl PageFlag {
    const fn mask(self) -> u8 {
        1 << (self as u8 + 2)
    }
}

/// All marks of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks(u8);

impl Marks {
    /// No mark.
    pub(super) const NONE: Self = Self(0);

    /// These marks and another one.
    pub(super) const fn with(self, flag: PageFlag) -> Self {
        Self(self.0 | flag.mask())
    }

    /// Whether this mark is set.
    pub(crate) fn has(self, flag: PageFlag) -> bool {
        self.0 & flag.mask() != 0
    }
}

const KIND: u8 = 3;
const EMPTY: u8 = 0;
const FOLIO: u8 = 1;
const SHADOW: u8 = 2;
const NODE: u8 = 3;

/// The contents of the tree at an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// No page and no shadow.
    Empty,
    /// A page.
    Folio(Pfn),
    /// No page, but the shadow that reclaim left (`workingset.rs`).
    Shadow(u32),
}

/// An entry of the tree: a frame, a shadow or a node; marks; and the slab of the page's buffer head. If the mapping's head is a
/// node, its last field holds that node's shift: most files have one node, whose entry is found without reading the node.
#[derive(Clone, Copy, Debug)]
struct Entry {
    word: u32,
    flags: u8,
    buffer: u32,
}

const NOTHING: Entry = Entry { word: 0, flags: EMPTY, buffer: NIL.0 };

impl Entry {
    fn kind(self) -> u8 {
        self.flags & KIND
    }

    fn slot(self) -> Slot {
        match self.kind() {
            FOLIO => Slot::Folio(Pfn(self.word)),
            SHADOW => Slot::Shadow(self.word),
            _ => Slot::Empty,
        }
    }

    /// The slab of the buffer head; none for an entry that is a node.
    fn buffer(self) -> Option<Object> {
        (self.kind() != NODE && self.buffer != NIL.0).then_some(Object::of(Pfn(self.buffer)))
    }
}

/// A page that was looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedPage {
    pub(super) head: Pfn,
    pub(super) marks: Marks,
    /// The page has a buffer head.
    pub(super) has_buffer: bool,
}

/// The entry of an index at which a page shall be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is a page.
    Taken,
    /// There is none.
    Free,
    /// The tree needs another node before it has such an entry.
    NeedsNode,
}

/// The place of an index's entry.
#[derive(Clone, Copy)]
enum Place {
    Head,
    In(u32, usize),
}

/// The pages of one inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    /// The entry of index 0 if that is the only one; else the node of the highest level.
    head: Entry,
    /// Number of pages (`nrpages`).
    pub(super) folios: u64,
}

impl Default for Mapping {
    fn default() -> Self {
        Self { head: NOTHING, folios: 0 }
    }
}

impl Mapping {
    fn place(&self, nodes: &Nodes, index: u64) -> Option<Place> {
        if self.head.kind() != NODE {
            return (index == 0).then_some(Place::Head);
        }
        let (mut id, shift) = (self.head.word, self.head.buffer);
        if index >> shift >= SLOTS as u64 {
            return None;
        }
        if shift == 0 {
            return Some(Place::In(id, place_in_node(index)));
        }
        let (top, high) = (id, index >> SHIFT);
        if let Some(node) = nodes.found.get(top, high) {
            return Some(Place::In(node, place_in_node(index)));
        }
        // Bound: the levels of the tree.
        loop {
            let node = nodes.get(id);
            let at = place_in_node(index >> node.shift);
            if node.shift == 0 {
                nodes.found.put(top, high, id);
                return Some(Place::In(id, at));
            }
            if node.flags(at) & KIND != NODE {
                return None;
            }
            id = node.word(at);
        }
    }

    fn entry(&self, nodes: &Nodes, index: u64) -> Entry {
        match self.place(nodes, index) {
            Some(Place::Head) => self.head,
            Some(Place::In(id, at)) => nodes.get(id).get(at),
            None => NOTHING,
        }
    }

    /// The page or shadow at an index (`xas_load`).
    pub(super) fn get(&self, nodes: &Nodes, index: u64) -> Slot {
        self.entry(nodes, index).slot()
    }

    /// The page at an index, with all that its entry says.
    pub(super) fn page(&self, nodes: &Nodes, index: u64) -> Option<CachedPage> {
        let entry = self.entry(nodes, index);
        let page = CachedPage { head: Pfn(entry.word), marks: Marks(entry.flags), has_buffer: entry.buffer != NIL.0 };
        (entry.kind() == FOLIO).then_some(page)
    }

    /// Whether there are neither pages nor shadows (`mapping_empty`).
    pub(super) fn is_empty(&self) -> bool {
        self.head.kind() == EMPTY
    }

    /// Whether the inode could be freed without freeing pages (`mapping_shrinkable`).
    pub(super) fn is_shrinkable(&self) -> bool {
        matches!(self.head.kind(), EMPTY | SHADOW)
    }

    /// Whether a page has this mark.
    pub(super) fn has(&self, nodes: &Nodes, index: u64, flag: PageFlag) -> bool {
        self.entry(nodes, index).flags & flag.mask() != 0
    }

    /// A page that is up to date, and has no read-ahead mark.
    pub(super) fn ready_page(&self, nodes: &Nodes, index: u64) -> Option<Pfn> {
        let entry = self.entry(nodes, index);
        let marks = PageFlag::Uptodate.mask() | PageFlag::ReadAhead.mask();
        let is_ready = entry.kind() == FOLIO && entry.flags & marks == PageFlag::Uptodate.mask();
        is_ready.then_some(Pfn(entry.word))
    }

    /// The marks of the page at an index, if it is in this frame.
    pub(super) fn marks_of(&self, nodes: &Nodes, index: u64, head: Pfn) -> Option<Marks> {
        let entry = self.entry(nodes, index);
        (entry.slot() == Slot::Folio(head)).then_some(Marks(entry.flags))
    }

    /// Whether a page is up to date, dirty and has a buffer head, so that another write(2) to it changes nothing in the tree.
    pub(super) fn is_written(&self, nodes: &Nodes, index: u64) -> bool {
        let entry = self.entry(nodes, index);
        let marks = PageFlag::Uptodate.mask() | PageFlag::Dirty.mask();
        entry.kind() == FOLIO && entry.flags & marks == marks && entry.buffer != NIL.0
    }

    /// Sets or clears a mark of a page.
    pub(super) fn mark(&mut self, nodes: &mut Nodes, index: u64, flag: PageFlag, on: bool) {
        let flag = Marks::NONE.with(flag);
        let (on, off) = if on { (flag, Marks::NONE) } else { (Marks::NONE, flag) };
        self.remark(nodes, index, (on, off));
    }

    /// Sets marks of a page, and clears others.
    pub(super) fn remark(&mut self, nodes: &mut Nodes, index: u64, (on, off): (Marks, Marks)) {
        let set = |flags: &mut u8| *flags = *flags & !off.0 | on.0;
        match self.place(nodes, index).expect("only pages are marked") {
            Place::Head => set(&mut self.head.flags),
            Place::In(id, at) => {
                set(nodes.get_mut(id).entry_mut(at).1);
                if on.has(PageFlag::Dirty) || off.has(PageFlag::Dirty) {
                    propagate(nodes, id, at, on.has(PageFlag::Dirty), |node| &mut node.dirty);
                }
            }
        }
    }

    /// The slab of a page's buffer head.
    pub(super) fn buffer(&self, nodes: &Nodes, index: u64) -> Option<Object> {
        self.entry(nodes, index).buffer()
    }

    /// Gives a page a buffer head.
    pub(super) fn set_buffer(&mut self, nodes: &mut Nodes, index: u64, buffer: Object) {
        let buffer = buffer.slab().0;
        match self.place(nodes, index).expect("only pages have buffers") {
            Place::Head => self.head.buffer = buffer,
            Place::In(id, at) => nodes.get_mut(id).set_buffer(at, buffer),
        }
    }

    /// Whether a page can be put at an index.
    pub(super) fn room(&self, nodes: &Nodes, index: u64) -> Room {
        let kind = match self.place(nodes, index) {
            Some(Place::Head) => self.head.kind(),
            Some(Place::In(id, at)) => nodes.get(id).flags(at) & KIND,
            None => return Room::NeedsNode,
        };
        if kind == FOLIO { Room::Taken } else { Room::Free }
    }

    /// Adds that node: at the top if the index is beyond the tree, else on the way down (`xas_expand`, `xas_create`).
    pub(super) fn add_node(&mut self, nodes: &mut Nodes, index: u64, object: Object) {
        if self.head.kind() == EMPTY {
            // A tree with the levels that the index needs.
            let mut shift = 0;
            while index >> shift >= SLOTS as u64 {
                shift += SHIFT;
            }
            self.head = Entry { word: nodes.add(Node::new(object, shift, None)), flags: NODE, buffer: shift.into() };
            return;
        }
        let top = if self.head.kind() == NODE { Some(self.head.word) } else { None };
        let shift = top.map_or(0, |top| nodes.get(top).shift + SHIFT);
        let reaches = top.is_some_and(|top| index >> nodes.get(top).shift < SLOTS as u64);
        if !reaches {
            let mut node = Node::new(object, shift, None);
            let below = if self.head.kind() == NODE { Entry { buffer: NIL.0, ..self.head } } else { self.head };
            node.put(0, below);
            let (folios, dirty) = match top {
                Some(top) => (nodes.get(top).folios != 0, nodes.get(top).dirty != 0),
                None => (self.head.kind() == FOLIO, self.head.flags & PageFlag::Dirty.mask() != 0),
            };
            (node.folios, node.dirty) = (u64::from(folios), u64::from(dirty));
            let id = nodes.add(node);
            if let Some(top) = top {
                nodes.get_mut(top).parent = Some((id, 0));
            }
            self.head = Entry { word: id, flags: NODE, buffer: shift.into() };
            return;
        }
        let mut id = top.expect("it reaches");
        // Bound: the levels of the tree.
        loop {
            let node = nodes.get(id);
            let (shift, at) = (node.shift, place_in_node(index >> node.shift));
            if node.flags(at) & KIND == NODE {
                id = node.word(at);
                continue;
            }
            let child = nodes.add(Node::new(object, shift - SHIFT, Some((id, u8::try_from(at).expect("below 64")))));
            nodes.get_mut(id).put(at, Entry { word: child, flags: NODE, buffer: NIL.0 });
            return;
        }
    }

    /// Sets the entry at an index, whose nodes exist; returns what was there.
    pub(super) fn set(&mut self, nodes: &mut Nodes, index: u64, slot: Slot) -> Slot {
        self.exchange(nodes, index, slot).0
    }

    /// Sets the entry at an index, whose nodes exist; returns what was there, with the slab of its buffer head.
    pub(super) fn exchange(&mut self, nodes: &mut Nodes, index: u64, slot: Slot) -> (Slot, Option<Object>) {
        let entry = match slot {
            Slot::Empty => NOTHING,
            Slot::Folio(pfn) => Entry { word: pfn.0, flags: FOLIO, buffer: NIL.0 },
            Slot::Shadow(word) => Entry { word, flags: SHADOW, buffer: NIL.0 },
        };
        let was = match self.place(nodes, index).expect("the caller made a place") {
            Place::Head => std::mem::replace(&mut self.head, entry),
            Place::In(id, at) => {
                let was = nodes.get(id).get(at);
                nodes.get_mut(id).put(at, entry);
                propagate(nodes, id, at, entry.kind() == FOLIO, |node| &mut node.folios);
                propagate(nodes, id, at, false, |node| &mut node.dirty);
                if entry.kind() == EMPTY {
                    self.prune(nodes, id);
                }
                was
            }
        };
        self.folios = self.folios + u64::from(entry.kind() == FOLIO) - u64::from(was.kind() == FOLIO);
        (was.slot(), was.buffer())
    }

    /// Replaces the frame of a page; marks and buffer stay (`folio_migrate_mapping`).
    pub(super) fn replace(&mut self, nodes: &mut Nodes, index: u64, to: Pfn) {
        match self.place(nodes, index).expect("it has a page") {
            Place::Head => self.head.word = to.0,
            Place::In(id, at) => *nodes.get_mut(id).entry_mut(at).0 = to.0,
        }
    }

    /// Drops nodes that are empty, and nodes at the top that lead only to index 0's (`xas_delete_node`).
    fn prune(&mut self, nodes: &mut Nodes, from: u32) {
        let mut id = from;
        // Bound: the levels of the tree.
        while nodes.get(id).count == 0 {
            let parent = nodes.get(id).parent;
            nodes.give(id);
            match parent {
                None => {
                    self.head = NOTHING;
                    return;
                }
                Some((above, at)) => {
                    nodes.get_mut(above).put(at.into(), NOTHING);
                    id = above;
                }
            }
        }
        // `xas_shrink`.
        while self.head.kind() == NODE {
            let top = nodes.get(self.head.word);
            let only = top.get(0);
            if top.count != 1 || only.kind() == EMPTY || (only.kind() != NODE && top.shift > 0) {
                return;
            }
            nodes.give(self.head.word);
            self.head = only;
            if only.kind() == NODE {
                let below = nodes.get_mut(only.word);
                below.parent = None;
                self.head.buffer = below.shift.into();
            }
        }
    }

    /// The first page from an index on.
    pub(super) fn next_folio(&self, nodes: &Nodes, from: u64) -> Option<(u64, Pfn)> {
        if self.head.kind() == FOLIO && from == 0 {
            return Some((0, Pfn(self.head.word)));
        }
        self.next(nodes, from, |node| node.folios)
    }

    /// The first dirty page from an index on.
    pub(super) fn next_dirty(&self, nodes: &Nodes, from: u64) -> Option<(u64, Pfn)> {
        if self.head.kind() == FOLIO && self.head.flags & PageFlag::Dirty.mask() != 0 && from == 0 {
            return Some((0, Pfn(self.head.word)));
        }
        self.next(nodes, from, |node| node.dirty)
    }

    fn next(&self, nodes: &Nodes, from: u64, of: fn(&Node) -> u64) -> Option<(u64, Pfn)> {
        if self.head.kind() == NODE { next_in(nodes, self.head.word, 0, from, of) } else { None }
    }

    /// The first index with a page or shadow from an index on, for callers that remove every page and shadow.
    pub(super) fn next_any(&self, nodes: &Nodes, from: u64) -> Option<u64> {
        if self.head.kind() != NODE {
            return (self.head.kind() != EMPTY && from == 0).then_some(0);
        }
        next_any_in(nodes, self.head.word, 0, from)
    }
}

fn place_in_node(index: u64) -> usize {
    usize::try_from(index % SLOTS as u64).expect("below 64")
}

fn next_any_in(nodes: &Nodes, id: u32, base: u64, from: u64) -> Option<u64> {
    let node = nodes.get(id);
    let first = from.saturating_sub(base) >> node.shift;
    (usize::try_from(first).unwrap_or(SLOTS)..SLOTS).find_map(|at| {
        let start = base + ((at as u64) << node.shift);
        match node.flags(at) & KIND {
            EMPTY => None,
            NODE => next_any_in(nodes, node.word(at), start, from),
            _ => Some(start),
        }
    })
}

/// The first page of a node, from an index on, whose entry is in a set of the node; `base` is the node's first index.
fn next_in(nodes: &Nodes, id: u32, base: u64, from: u64, of: fn(&Node) -> u64) -> Option<(u64, Pfn)> {
    let node = nodes.get(id);
    let first = from.saturating_sub(base) >> node.shift;
    let mut bits = if first < SLOTS as u64 { of(node) & (!0 << first) } else { 0 };
    // Bound: the bits of a word.
    while bits != 0 {
        let at = bits.trailing_zeros() as usize;
        let start = base + ((at as u64) << node.shift);
        if node.shift == 0 {
            return Some((start, Pfn(node.word(at))));
        }
        let found = next_in(nodes, node.word(at), start, from, of);
        if found.is_some() {
            return found;
        }
        bits &= bits - 1;
    }
    None
}

/// Sets an entry's bit in a set of its node, and the bits of the nodes above as long as that changes anything.
fn propagate(nodes: &mut Nodes, id: u32, at: usize, on: bool, of: impl Fn(&mut Node) -> &mut u64) {
    let (mut id, mut at) = (id, at);
    // Bound: the levels of the tree.
    loop {
        let node = nodes.get_mut(id);
        let parent = node.parent;
        let set = of(node);
        let was = *set != 0;
        *set = if on { *set | 1 << at } else { *set & !(1 << at) };
        let is = *set != 0;
        let Some(above) = parent.filter(|_| was != is) else { return };
        (id, at) = (above.0, above.1.into());
    }
}

#[cfg(test)]
mod tests;
