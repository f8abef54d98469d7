//! Linux: unmap_and_move() in mm/migrate.c, set_pmd_migration_entry() and remove_migration_pmd() in mm/huge_memory.c (v4.14 to
//! v6.6).
//! Differs: a huge page in the queue of deferred splits stays in it after the move (in the kernel its copy leaves the queue up
//! to 6.9, and since then it is split before it moves); the kernel does not count a mapping that is removed meanwhile as a
//! partial one.
//!
//! One huge page moves as a whole: all its entries, huge ones and base ones, are migration entries until its copy is in place. A
//! task that meets one waits for the page's lock.

use memory::{
    cost::Cause,
    cx::Cx,
    frame::{Frame, FrameFlag},
    primitive,
    step::Step,
};
use units::{Order, Pfn};

use crate::{
    Mm, Spaces,
    folio::pte::Pte,
    space::spaces::{Entry, Mapping},
};

/// The move of a huge page to a frame. The caller has isolated both.
#[derive(Clone, Debug)]
pub(crate) struct HugeMove {
    source: Pfn,
    target: Pfn,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Lock the page, and replace its entries.
    Unmap,
    /// Copy the page; `copied` base pages are done.
    Copy { copied: u32 },
    /// Map the copy.
    Map,
}

/// The result of the move. The caller still holds the page and the frame, unless the page has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugeMoved {
    /// The frame is the page now, on a list; the old frames are free.
    Moved,
    /// The page cannot be moved now: another task has its lock, or a reference to it (`-EAGAIN`).
    Again,
}

impl HugeMove {
    pub(crate) fn new(source: Pfn, target: Pfn) -> Self {
        Self { source, target, phase: Phase::Unmap }
    }

    /// The page, and the frame that it moves to.
    pub(crate) fn frames(&self) -> (Pfn, Pfn) {
        (self.source, self.target)
    }

    /// Takes a step.
    pub(crate) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<HugeMoved> {
        mm.memory.assert_isolated(cx, self.target, Order::HUGE);
        match self.phase {
            Phase::Unmap => {
                if !cx.because(Cause::Migrate, |cx| unmap(mm, spaces, cx, self.source)) {
                    return Step::Done(HugeMoved::Again);
                }
                self.phase = Phase::Copy { copied: 0 };
                Step::More
            }
            Phase::Copy { copied: 0 } if mm.is_pinned(self.source) => {
                // An unknown reference to the page is left (`migrate_page_move_mapping`, `folio_migrate_mapping`).
                self.abort(mm, spaces, cx);
                Step::Done(HugeMoved::Again)
            }
            Phase::Copy { copied } => {
                let piece = mm.memory.piece(Order::HUGE);
                mm.memory.copy(cx, self.source.plus(copied), self.target.plus(copied), piece);
                let copied = copied + piece.frames();
                self.phase = if copied == Order::HUGE.frames() { Phase::Map } else { Phase::Copy { copied } };
                Step::More
            }
            Phase::Map => {
                self.phase = Phase::Unmap;
                cx.because(Cause::Migrate, |cx| take_place(mm, spaces, cx, self.source, self.target));
                Step::Done(HugeMoved::Moved)
            }
        }
    }

    /// Maps the page again where it was, and stops.
    pub(crate) fn abort(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        if std::mem::replace(&mut self.phase, Phase::Unmap) == Phase::Unmap {
            return;
        }
        cx.because(Cause::Migrate, |cx| {
            let is_mapped = map(mm, spaces, cx, self.source, self.source);
            mm.memory.frames.mark(self.source, FrameFlag::Dropped, !is_mapped);
            mm.unlock_folio(cx, self.source);
        });
    }
}

/// Replaces the entries of a huge page by migration entries (`try_to_migrate`); returns false and changes nothing if another
/// task holds its lock, or if not all mappings can be found.
fn unmap(mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, source: Pfn) -> bool {
    if !mm.try_lock_folio(source) {
        return false;
    }
    primitive::walk_rmap(cx, 1);
    let mappings = spaces.mappings(mm, source);
    if mappings.is_empty() || u32::try_from(mappings.len()).ok() != Some(mm.folio_mappings(source)) {
        mm.unlock_folio(cx, source);
        return false;
    }
    for mapping in &mappings {
        write_entry(spaces, cx, *mapping, Pte::migrating);
        match mapping.at {
            Entry::Huge(_) => primitive::flush_tlb_huge(cx, mapping.space),
            Entry::Base(..) => primitive::flush_tlb_page(cx, mapping.space, 1),
        }
    }
    primitive::count_mappings(cx, mappings.len() as u64);
    mm.unmap_huge_folio(source);
    true
}

/// Makes the copy the page, and frees the old frames (`migrate_folio_move`).
fn take_place(mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, source: Pfn, target: Pfn) {
    primitive::migrate_folio(cx);
    mm.become_huge(source, target);
    let is_mapped = map(mm, spaces, cx, source, target);
    mm.unlock_folio(cx, source);
    mm.free_moved_huge(cx, source);
    if is_mapped {
        mm.lru_add_migrated(cx, target);
    } else {
        // All processes that had mapped the page have ended meanwhile.
        primitive::clear_tails(cx, Order::HUGE);
        mm.memory.free(cx, target, Order::HUGE);
    }
}

/// Replaces the migration entries of a huge page by entries that map a frame (`remove_migration_ptes`); returns whether there
/// were any.
fn map(mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, source: Pfn, to: Pfn) -> bool {
    primitive::walk_rmap(cx, 1);
    let keeps_young = mm.memory.variant().migrate_keeps_young;
    let mappings = spaces.leaving(mm, source);
    let mut parts = Vec::new();
    let mut by_huge = 0;
    for mapping in &mappings {
        let part = spaces.entry(*mapping).pfn().0 - source.0;
        write_entry(spaces, cx, *mapping, |pte| {
            let moved = pte.migrated(to.plus(part));
            if keeps_young { moved } else { moved.unused() }
        });
        match mapping.at {
            Entry::Huge(_) => by_huge += 1,
            Entry::Base(..) => parts.push(part),
        }
    }
    primitive::count_mappings(cx, mappings.len() as u64);
    mm.map_huge_folio(cx, to, by_huge, &parts);
    !mappings.is_empty()
}

fn write_entry(spaces: &mut Spaces, cx: &mut Cx, mapping: Mapping, change: impl Fn(Pte) -> Pte) {
    let was = spaces.entry(mapping);
    let tables = &mut spaces.get_mut(mapping.space).expect("found in the same step").tables;
    match mapping.at {
        Entry::Huge(slot) => tables.set_pmd(cx, slot, change(was)),
        Entry::Base(table, vpn) => tables.set_pte(cx, table, vpn, change(was)),
    }
}

impl Mm {
    /// Makes a block of frames the copy of a huge page, without its mappings.
    pub(super) fn become_huge(&mut self, source: Pfn, target: Pfn) {
        let was = self.memory.frames.get(source);
        assert!(matches!(was, Frame::Anon { order: Order::HUGE, .. }), "frame {source} is a huge page, not {was:?}");
        self.memory.frames.set(target, was);
        self.swap.forget(target);
        self.swap.migrate(source, target);
        for flag in [FrameFlag::Active, FrameFlag::Referenced] {
            self.memory.frames.mark(target, flag, self.memory.frames.has(source, flag));
        }
    }

    /// Frees an isolated huge page whose contents were moved.
    pub(super) fn free_moved_huge(&mut self, cx: &mut Cx, source: Pfn) {
        self.end_isolation(source);
        primitive::clear_tails(cx, Order::HUGE);
        primitive::uncharge(cx);
        self.memory.free(cx, source, Order::HUGE);
    }
}
