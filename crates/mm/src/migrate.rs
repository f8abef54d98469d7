//! Linux: migrate_pages() and below in mm/migrate.c (v4.1 to v6.4).
//! Differs: base pages here, huge ones in `migrate/huge.rs`. A page has references from its mappings, its file and the swap
//! cache; beside these only a pin, the journal and a child that is being forked hold one. Migration does not wait for a page on
//! its way to swap.
//!
//! The frames to move to come from the caller. A page is unmapped in one step, and copied and mapped again in the next; between
//! them it has migration entries, and a task that meets one waits.
//!
//! Floor 4: this room is migration, and the choice of pages and nodes (`misplaced.rs`, `to_node.rs`). Files here use floors 0
//! to 3.

mod huge;
pub mod misplaced;
#[cfg(test)]
mod tests;
pub mod to_node;

use memory::{
    cost::Cause,
    cx::Cx,
    event::Event,
    frame::{Frame, FrameFlag, Held, Holdings, moves::MoveReason},
    primitive,
    step::{RUN, Wait},
};
use units::{Order, Pfn};

use crate::{
    Mm, Spaces,
    folio::pte::Pte,
    space::spaces::{Entry, Mapping},
    swap::SlotFlag,
};

/// Passes over the pages that could not be moved yet.
// NR_MAX_MIGRATE_PAGES_RETRY, mm/migrate.c (v6.1).
const PASSES: u8 = 10;
/// Passes, the first ones, that never wait for a folio lock.
// migrate_pages_batch, mm/migrate.c (v6.1): `pass > 2` forces.
const PASSES_WITHOUT_WAITING: u8 = 3;

/// The waits that migration accepts (`enum migrate_mode`), from none to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigrateMode {
    /// For nothing.
    Async,
    /// For locks, but not for a disk.
    SyncLight,
    /// For locks and disks.
    Sync,
}

/// A migration of isolated pages (`migrate_pages`).
#[derive(Clone, Debug)]
pub(crate) struct Migrate {
    mode: MigrateMode,
    /// Whether the caller must not wait for locks, as its task may hold some (`PF_MEMALLOC`).
    never_waits: bool,
    /// The reason that maps of memory have for these moves.
    reason: MoveReason,
    /// Isolated pages. Those below index `kept` were tried in this pass and stay for the next, those from `at` on are still to
    /// be tried, and those between have moved or failed.
    from: Vec<Pfn>,
    kept: usize,
    at: usize,
    pass: u8,
    /// Isolated pages that are given up; they go back to their lists in the end.
    failed: Vec<Pfn>,
    /// Number of pages that were given up.
    given_up: usize,
    /// Unmapped pages, each with the frame that it moves to.
    unmapped: Vec<(Pfn, Pfn)>,
    moved: u32,
    /// The result, known when the rest of the pages goes back.
    result: Option<Migrated>,
    /// The caller has no more frames to move to.
    is_out: bool,
    is_putting_back: bool,
    /// The entries of the present page; kept between pages to reuse its memory.
    entries: Vec<Mapping>,
}

/// The result of a step of migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Migrating {
    More,
    Block(Wait),
    /// Migration goes on when the caller has got a frame to move to, or says that there is none ([`Migrate::no_target`]).
    WantsTarget,
    Done(Migrated),
}

/// The result of a migration. All pages that have not moved are back on their lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Migrated {
    /// Pages that failed, without those that were not tried for want of frames.
    pub(crate) failed: u32,
    /// The caller ran out of frames to move to (`-ENOMEM`).
    pub(crate) is_out: bool,
    /// Pages that have moved, or were freed meanwhile.
    pub(crate) moved: u32,
    /// Pages that have not moved.
    pub(crate) left: u32,
}

/// The result of trying one page.
enum Tried {
    /// The page was freed meanwhile.
    Gone,
    Unmapped(Pfn),
    /// The page cannot be moved now (`-EAGAIN`).
    Again,
    /// The page cannot be moved at all (`-EBUSY`).
    Failed,
    Wait(Wait),
    WantsTarget,
}

impl Migrate {
    /// A migration of the pages of `from`, the last first; all are off their LRU lists.
    pub(crate) fn new(mut from: Vec<Pfn>, mode: MigrateMode, never_waits: bool) -> Self {
        from.reverse();
        Self {
            mode,
            never_waits,
            reason: MoveReason::Compaction(None),
            from,
            kept: 0,
            at: 0,
            pass: 0,
            failed: Vec::new(),
            given_up: 0,
            unmapped: Vec::new(),
            moved: 0,
            result: None,
            is_out: false,
            is_putting_back: false,
            entries: Vec::new(),
        }
    }

    /// Sets the reason that maps of memory have for the moves.
    pub(crate) fn for_reason(self, reason: MoveReason) -> Self {
        Self { reason, ..self }
    }

    /// Notes that the caller has no frame to move to.
    pub(crate) fn no_target(&mut self) {
        self.is_out = true;
    }

    /// Returns an empty vector, to reuse its memory for the next migration.
    pub(crate) fn into_memory(mut self) -> Vec<Pfn> {
        self.from.clear();
        self.from
    }

    /// Unmaps a page, or copies and maps the unmapped pages, or puts some pages back. Frames to move to are taken from the end
    /// of `targets`, and return there if unused; all are isolated by this control.
    pub(crate) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, targets: &mut Vec<Pfn>) -> Migrating {
        if self.is_putting_back {
            return self.put_back(mm, cx);
        }
        let batch = usize::try_from(mm.memory.variant().migrate_batch.min(RUN)).expect("at most a run");
        let is_last = self.is_out || self.at == self.from.len();
        if !self.unmapped.is_empty() && (is_last || self.unmapped.len() >= batch) {
            self.move_unmapped(mm, spaces, cx, targets);
            return Migrating::More;
        }
        if self.is_out {
            return self.begin_putting_back(mm, cx);
        }
        if self.at == self.from.len() {
            return self.end_pass(mm, cx);
        }
        // Requests that the device has finished by now are completed first, whether or not a task has run since.
        mm.complete_swap_io(cx);
        mm.complete_disk_io(cx);
        let page = self.from[self.at];
        match self.try_unmap(mm, spaces, cx, page, targets) {
            Tried::WantsTarget => return Migrating::WantsTarget,
            Tried::Wait(wait) => return Migrating::Block(wait),
            Tried::Gone => {
                give_back(mm, cx, page, targets);
                self.moved += 1;
            }
            Tried::Again => {
                self.from[self.kept] = page;
                self.kept += 1;
            }
            Tried::Failed => {
                self.given_up += 1;
                if mm.memory.variant().migrate_through_batch {
                    mm.putback_by_batch(cx, page);
                } else {
                    self.failed.push(page);
                }
            }
            Tried::Unmapped(target) => self.unmapped.push((page, target)),
        }
        self.at += 1;
        Migrating::More
    }

    /// Frames that migration holds between two steps, beside `targets`.
    pub(crate) fn holdings(&self) -> Holdings {
        let page = |pfn: &Pfn| Held { pfn: *pfn, order: Order::BASE };
        let sources = self.from[..self.kept].iter().chain(&self.from[self.at..]).chain(&self.failed).map(page);
        let unmapped = self.unmapped.iter().map(|(source, _)| page(source));
        Holdings {
            off_lru: sources.chain(unmapped).collect(),
            isolated: self.unmapped.iter().map(|(_, target)| page(target)).collect(),
            ..Holdings::default()
        }
    }

    /// Maps unmapped pages again where they were, and puts all pages back on their lists.
    pub(crate) fn abort(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, targets: &mut Vec<Pfn>) {
        for (source, target) in std::mem::take(&mut self.unmapped) {
            self.map_back(mm, spaces, cx, source);
            self.failed.push(source);
            self.given_up += 1;
            targets.push(target);
        }
        if !self.is_putting_back {
            self.begin_putting_back(mm, cx);
        }
        // Bound: each step puts some pages back.
        while matches!(self.put_back(mm, cx), Migrating::More) {}
    }

    /// Ends a pass: begins another one if some pages may still be moved.
    fn end_pass(&mut self, mm: &Mm, cx: &mut Cx) -> Migrating {
        self.pass += 1;
        if self.kept > 0 && self.pass < PASSES {
            self.from.truncate(self.kept);
            (self.kept, self.at) = (0, 0);
            return Migrating::More;
        }
        self.begin_putting_back(mm, cx)
    }

    fn begin_putting_back(&mut self, mm: &Mm, cx: &mut Cx) -> Migrating {
        // If there was no frame to move to, the page that wanted one has failed; the pages behind it were not tried.
        let failed = self.given_up + self.kept + usize::from(self.is_out && self.at < self.from.len());
        let counted = if mm.memory.variant().migrate_counts_tried { failed } else { self.given_up };
        cx.count(Event::PgmigrateSuccess, self.moved.into());
        cx.count(Event::PgmigrateFail, counted as u64);
        self.failed.extend_from_slice(&self.from[..self.kept]);
        self.failed.extend_from_slice(&self.from[self.at..]);
        let number = |n: usize| u32::try_from(n).expect("fewer than 2^32 pages");
        // Up to 4.7 those that have failed were put back before.
        let left = self.failed.len() + if mm.memory.variant().migrate_through_batch { self.given_up } else { 0 };
        let (is_out, moved) = (self.is_out, self.moved);
        self.result = Some(Migrated { failed: number(failed), is_out, moved, left: number(left) });
        self.kept = 0;
        self.at = self.from.len();
        self.is_putting_back = true;
        Migrating::More
    }

    /// Puts back up to 32 of the pages that have not moved (`putback_movable_pages`).
    fn put_back(&mut self, mm: &mut Mm, cx: &mut Cx) -> Migrating {
        let run = self.failed.len().saturating_sub(usize::try_from(RUN).expect("small"));
        mm.put_back_all(cx, &self.failed[run..]);
        self.failed.truncate(run);
        if run > 0 {
            return Migrating::More;
        }
        Migrating::Done(self.result.expect("noted when this began"))
    }

    /// Locks a page and replaces its entries by migration entries (`migrate_folio_unmap`).
    fn try_unmap(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, page: Pfn, targets: &mut Vec<Pfn>) -> Tried {
        let is_gone = mm.memory.frames.has(page, FrameFlag::Dropped);
        // Up to 4.7 the frame is asked for first.
        if targets.is_empty() && (!is_gone || mm.memory.variant().migrate_through_batch) {
            return Tried::WantsTarget;
        }
        if is_gone {
            return Tried::Gone;
        }
        if !mm.try_lock_folio(page) {
            let may_wait = self.mode > MigrateMode::Async && self.pass >= PASSES_WITHOUT_WAITING && !self.never_waits;
            return if may_wait && self.unmapped.is_empty() {
                Tried::Wait(mm.wait_on_page(page))
            } else {
                Tried::Again
            };
        }
        if mm.swap.is_writeback(page) {
            mm.unlock_folio(cx, page);
            return Tried::Failed;
        }
        if let Some(until) = mm.written_by(page) {
            mm.unlock_folio(cx, page);
            let may_wait = self.mode == MigrateMode::Sync && self.unmapped.is_empty();
            return if may_wait { Tried::Wait(Wait::Io { until, cause: Cause::Disk }) } else { Tried::Failed };
        }
        spaces.base_entries(mm, page, |pte| pte.maps(page), &mut self.entries);
        let found = u32::try_from(self.entries.len()).expect("fewer than 2^32 processes");
        let is_wanted = found > 0 || mm.memory.frames.is_file(page) || mm.swap.slot_of(page).is_some();
        if !is_wanted || found != mm.mappings_of(page) {
            // The page waits for a TLB flush to be freed; or a child that is being forked maps it too, and not all mappings can
            // be found.
            mm.unlock_folio(cx, page);
            return Tried::Again;
        }
        cx.because(Cause::Migrate, |cx| {
            primitive::walk_rmap(cx, 1);
            unmap(mm, spaces, cx, page, &self.entries);
        });
        Tried::Unmapped(targets.pop().expect("looked at above"))
    }

    /// Copies the unmapped pages, and maps the copies in their place (`migrate_folio_move`).
    fn move_unmapped(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, targets: &mut Vec<Pfn>) {
        let mut unmapped = std::mem::take(&mut self.unmapped);
        for (source, target) in unmapped.drain(..) {
            mm.memory.assert_isolated(cx, target, Order::BASE);
            if mm.is_pinned(source) || mm.is_journaled(source) {
                // An unknown reference to the page is left (`migrate_page_move_mapping`, `folio_migrate_mapping`), or one to a
                // buffer of it (`buffer_migrate_folio_norefs`).
                self.map_back(mm, spaces, cx, source);
                self.from[self.kept] = source;
                self.kept += 1;
                targets.push(target);
                continue;
            }
            if mm.compaction.does_move_fail() {
                self.map_back(mm, spaces, cx, source);
                self.failed.push(source);
                self.given_up += 1;
                targets.push(target);
                continue;
            }
            mm.memory.copy(cx, source, target, Order::BASE);
            mm.memory.frames.note_move(cx.control(), self.reason, (source, target), Order::BASE);
            spaces.base_entries(mm, source, |pte| pte.leaves(source), &mut self.entries);
            cx.because(Cause::Migrate, |cx| {
                primitive::walk_rmap(cx, 1);
                primitive::migrate_folio(cx);
                take_place(mm, cx, source, target, self.entries.len());
                map(mm, spaces, cx, target, &self.entries);
                mm.unlock_folio(cx, source);
                if mm.memory.variant().migrate_through_batch {
                    mm.memory.frames.mark(source, FrameFlag::Dropped, true);
                    mm.putback_by_batch(cx, source);
                    mm.lru_add_again(cx, target);
                } else {
                    mm.end_isolation(source);
                    mm.memory.free(cx, source, Order::BASE);
                }
            });
            self.moved += 1;
        }
        self.unmapped = unmapped;
    }

    fn map_back(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, page: Pfn) {
        spaces.base_entries(mm, page, |pte| pte.leaves(page), &mut self.entries);
        if self.entries.is_empty() && !mm.memory.frames.is_file(page) && mm.swap.slot_of(page).is_none() {
            mm.memory.frames.mark(page, FrameFlag::Dropped, true);
        }
        mm.map_migrated(page, u32::try_from(self.entries.len()).expect("as before"));
        map(mm, spaces, cx, page, &self.entries);
        mm.unlock_folio(cx, page);
    }
}

/// Replaces every entry of a page by a migration entry (`try_to_migrate`, `try_to_unmap` before 5.14). If an entry was dirty,
/// the page's slot or file is told.
fn unmap(mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, page: Pfn, entries: &[Mapping]) {
    let mut is_dirty = false;
    for mapping in entries {
        let was = write_entry(spaces, cx, *mapping, Pte::migrating);
        assert!(was.maps(page), "found in the same step");
        is_dirty |= was.is_dirty();
        primitive::flush_tlb_page(cx, mapping.space, 1);
        // The folio is not freed: the isolation holds a reference.
        let _ = mm.unmap_base(cx, page);
    }
    if is_dirty && !mm.memory.variant().migrate_keeps_young {
        mm.set_folio_dirty(cx, page);
    }
}

/// Frees a page that lost its last reference meanwhile; up to 4.7 the frame that it was to move to is freed with it.
fn give_back(mm: &mut Mm, cx: &mut Cx, page: Pfn, targets: &mut Vec<Pfn>) {
    if !mm.memory.variant().migrate_through_batch {
        mm.end_isolation(page);
        return mm.memory.free(cx, page, Order::BASE);
    }
    let was = mm.memory.frames.get(page);
    let target = targets.pop().expect("asked for before");
    mm.putback_by_batch(cx, page);
    become_unwanted(mm, target, was);
    mm.lru_add_again(cx, target);
}

/// Turns a frame into a page without users: the last holder of a reference frees it.
fn become_unwanted(mm: &mut Mm, target: Pfn, was: Frame) {
    mm.memory.frames.set(target, was);
    mm.memory.frames.mark(target, FrameFlag::Dropped, true);
}

/// Makes the copy the page, and puts it on the page's list or into a batch; a page without users is freed now or when the batch
/// is drained.
fn take_place(mm: &mut Mm, cx: &mut Cx, source: Pfn, target: Pfn, entries: usize) {
    let was = mm.memory.frames.get(source);
    match was {
        Frame::Anon { order: Order::BASE, .. } => {
            if entries == 0 && mm.swap.slot_of(source).is_none() {
                if mm.memory.variant().migrate_through_batch {
                    return become_unwanted(mm, target, was);
                }
                return mm.memory.free(cx, target, Order::BASE);
            }
            mm.memory.frames.set(target, was);
            mm.swap.migrate(source, target);
        }
        Frame::File { .. } => {
            mm.memory.frames.set(target, was);
            mm.replace_page(cx, source, target);
        }
        _ => unreachable!("only base pages are isolated for migration"),
    }
    primitive::count_mappings(cx, entries as u64);
    mm.map_migrated(target, u32::try_from(entries).expect("fewer than 2^32 processes"));
    for flag in [FrameFlag::Active, FrameFlag::Referenced] {
        mm.memory.frames.mark(target, flag, mm.memory.frames.has(source, flag));
    }
    if !mm.memory.variant().migrate_through_batch {
        mm.lru_add_migrated(cx, target);
    }
}

/// Replaces the migration entries of a page by entries that map a frame (`remove_migration_ptes`).
fn map(mm: &Mm, spaces: &mut Spaces, cx: &mut Cx, to: Pfn, entries: &[Mapping]) {
    let keeps_young = mm.memory.variant().migrate_keeps_young;
    for mapping in entries {
        write_entry(spaces, cx, *mapping, |pte| if keeps_young { pte.migrated(to) } else { pte.migrated(to).unused() });
    }
}

fn write_entry(spaces: &mut Spaces, cx: &mut Cx, mapping: Mapping, change: impl Fn(Pte) -> Pte) -> Pte {
    let Entry::Base(table, vpn) = mapping.at else { unreachable!("base pages have base entries") };
    let tables = &mut spaces.get_mut(mapping.space).expect("found in the same step").tables;
    let was = tables.pte(table, vpn);
    tables.set_pte(cx, table, vpn, change(was));
    was
}

impl Mm {
    /// Whether a folio on an LRU list can be moved to another frame.
    pub(crate) fn is_migratable(&self, head: Pfn, mode: MigrateMode) -> bool {
        // Who must not wait for a disk leaves what is being written (`ISOLATE_ASYNC_MIGRATE`).
        let leaves =
            if self.memory.variant().compact_leaves_written { MigrateMode::SyncLight } else { MigrateMode::Async };
        let takes_written = mode > leaves;
        if self.memory.frames.is_file(head) {
            return takes_written || self.written_by(head).is_none();
        }
        // A page with an unknown reference stays where it is; for one in the swap cache that turns out later.
        let is_kept = self.is_pinned(head) && self.swap.slot_of(head).is_none();
        self.memory.frames.is_base_anon(head) && !is_kept && (takes_written || !self.swap.is_writeback(head))
    }

    /// Marks a page dirty (`set_page_dirty`). For anonymous memory only the swap slot has such a mark: a page that gets a slot
    /// later is written in any case.
    fn set_folio_dirty(&mut self, cx: &mut Cx, head: Pfn) {
        if self.memory.frames.is_file(head) {
            self.set_page_dirty(cx, head);
        } else if let Some(slot) = self.swap.slot_of(head) {
            self.swap.mark(slot, SlotFlag::Dirty, true);
        }
    }

    /// Puts isolated folios back on their lists under one hold of the lock, or up to 4.7 into this CPU's batch; folios without
    /// users are freed (`putback_movable_pages`).
    pub(crate) fn put_back_all(&mut self, cx: &mut Cx, folios: &[Pfn]) {
        if self.memory.variant().migrate_through_batch {
            for head in folios {
                self.putback_by_batch(cx, *head);
            }
            return;
        }
        let Some(first) = folios.first() else { return };
        let zone = self.zone_position(*first);
        let mut dropped = Vec::new();
        self.lru.hold(cx, zone);
        for head in folios {
            dropped.extend(self.putback_or_drop(*head));
        }
        self.lru.let_go(cx, zone, (folios.len() - dropped.len()) as u64);
        for head in dropped {
            let order = self.memory.frames.allocated(head).expect("it is a folio");
            self.memory.free(cx, head, order);
        }
    }
}
