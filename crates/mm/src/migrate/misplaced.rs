//! Linux: migrate_misplaced_page(), migrate_misplaced_transhuge_page(), numamigrate_isolate_page() and what they call in
//! mm/migrate.c (v3.9 to v6.6).
//! Differs: mappings of a program's text, which the kernel leaves out, do not exist; pages may also move to a node that cannot be
//! reclaimed any more; up to 4.5 memory may be reclaimed for the copy of a base page, which a node above its High mark never
//! needs.
//!
//! NUMA balancing has found that a page is used on another node than its own, and moves it there if that is easy.

use memory::{
    cost::Cause,
    cx::Cx,
    event::Event,
    fact::{Fact, Settled},
    frame::{FrameFlag, Held, Holdings, SpaceId, moves::MoveReason},
    primitive,
    step::Step,
    tally::Test,
};
use rules::{
    gfp::{AllocRequest, Mark, Urgency},
    zone::ZoneKind,
};
use units::{NodeId, Order, Pfn, Time, Vpn};

use super::{
    Migrate, MigrateMode, Migrating,
    huge::{HugeMove, HugeMoved},
};
use crate::{
    Mm, Spaces,
    folio::pte::Pte,
    space::page_table::{Pmd, PmdSlot},
};

/// Passes over a page that could not be moved yet.
const PASSES: u8 = super::PASSES;

/// The result of moving a misplaced page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misplacement {
    /// The memory of the page is on the wanted node now, and its entries do not hint any more.
    Moved {
        /// Base pages that were moved: 1 or 512.
        pages: u64,
    },
    /// The page stays where it is. Its entry is unchanged: if it hints, the caller has to clear the hint.
    Stays,
    /// The entry has changed meanwhile: user code tries its access again.
    Changed,
}

/// Moves the page that a process maps at some page number to a node, on behalf of a task that has faulted there.
///
/// The caller has checked that there is a page, and decided that it is to move (`mpol_misplaced`); the entry of a huge page still
/// hints, that of a base page may. The mmap lock is held for read throughout. Between two steps, other tasks that meet the page
/// wait for its lock.
#[derive(Clone, Debug)]
pub struct Misplaced {
    space: SpaceId,
    vpn: Vpn,
    node: NodeId,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Check whether the node has room, and isolate the page.
    Begin,
    /// A base page: migrate it like any other page.
    Base {
        migrate: Box<Migrate>,
        targets: Vec<Pfn>,
    },
    /// A huge page, since 5.14: migrate it like any other, again if it could not be moved yet.
    Huge {
        source: Pfn,
        passes: u8,
        moving: Option<HugeMove>,
    },
    /// A huge page, up to 5.13: copy it while it is mapped. The page is locked.
    CopyMapped {
        entry: Pte,
        target: Pfn,
        copied: u32,
    },
    /// Map the copy, if the entry is still unchanged.
    Replace {
        entry: Pte,
        target: Pfn,
    },
    Over,
}

impl Misplaced {
    /// A control that moves the page at `vpn` of a process to a node.
    pub fn new(space: SpaceId, vpn: Vpn, node: NodeId) -> Self {
        Self { space, vpn, node, phase: Phase::Begin }
    }

    /// Takes a step.
    pub fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Misplacement> {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Begin => self.begin(mm, spaces, cx),
            Phase::Base { migrate, targets } => self.move_base(mm, spaces, cx, migrate, targets),
            Phase::Huge { source, passes, moving } => self.move_huge(mm, spaces, cx, (source, passes), moving),
            Phase::CopyMapped { entry, target, copied } => self.copy_mapped(mm, cx, entry, target, copied),
            Phase::Replace { entry, target } => self.replace(mm, spaces, cx, entry, target),
            Phase::Over => unreachable!("no step follows the last"),
        }
    }

    /// Frames that the move holds between two steps.
    pub fn holdings(&self) -> Holdings {
        let huge = |pfn: Pfn| Held { pfn, order: Order::HUGE };
        match &self.phase {
            Phase::Begin | Phase::Over => Holdings::default(),
            Phase::Base { migrate, targets } => {
                let mut holdings = migrate.holdings();
                holdings.isolated.extend(targets.iter().map(|pfn| Held { pfn: *pfn, order: Order::BASE }));
                holdings
            }
            Phase::Huge { source, moving, .. } => Holdings {
                off_lru: vec![huge(*source)],
                isolated: moving.iter().map(|moving| huge(moving.frames().1)).collect(),
                ..Holdings::default()
            },
            Phase::CopyMapped { entry, target, .. } | Phase::Replace { entry, target } => {
                Holdings { off_lru: vec![huge(entry.pfn())], isolated: vec![huge(*target)], ..Holdings::default() }
            }
        }
    }

    /// Stops, and leaves the page where it is.
    pub fn abort(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Begin | Phase::Over => {}
            Phase::Base { mut migrate, mut targets } => {
                migrate.abort(mm, spaces, cx, &mut targets);
                for target in targets {
                    mm.memory.free(cx, target, Order::BASE);
                }
            }
            Phase::Huge { source, moving, .. } => {
                if let Some(mut moving) = moving {
                    moving.abort(mm, spaces, cx);
                    mm.memory.free(cx, moving.frames().1, Order::HUGE);
                }
                mm.put_back_all(cx, &[source]);
            }
            Phase::CopyMapped { entry, target, .. } | Phase::Replace { entry, target } => {
                mm.unlock_folio(cx, entry.pfn());
                mm.memory.free(cx, target, Order::HUGE);
                mm.put_back_all(cx, &[entry.pfn()]);
            }
        }
    }

    fn later(&mut self, phase: Phase) -> Step<Misplacement> {
        self.phase = phase;
        Step::More
    }

    fn begin(&mut self, mm: &mut Mm, spaces: &Spaces, cx: &mut Cx) -> Step<Misplacement> {
        let Some(space) = spaces.get(self.space) else { return Step::Done(Misplacement::Changed) };
        let (is_huge, entry) = match space.tables.pmd_of(self.vpn) {
            Pmd::None => return Step::Done(Misplacement::Changed),
            Pmd::Huge(huge) => (true, huge),
            Pmd::Table(table) => (false, space.tables.pte(table, self.vpn)),
        };
        // The entry of a huge page hints until it has moved: a store meanwhile would go to the old page.
        if !entry.is_present() || (is_huge && !entry.is_hinting()) {
            return Step::Done(Misplacement::Changed);
        }
        if entry.is_zero_page() || mm.memory.node_of(entry.pfn()) == self.node {
            return self.stays(cx, Settled::IsThere);
        }
        match (is_huge, mm.memory.variant().numa_huge_at_once) {
            (true, true) => self.begin_mapped(mm, cx, entry),
            (true, false) => self.begin_huge(mm, cx, entry.pfn()),
            (false, _) => self.begin_base(mm, cx, entry.pfn()),
        }
    }

    // ---- Base pages

    fn begin_base(&mut self, mm: &mut Mm, cx: &mut Cx, page: Pfn) -> Step<Misplacement> {
        let is_file = mm.memory.frames.is_file(page);
        let is_part = !is_file && !mm.memory.frames.is_base_anon(page);
        let is_dirty = is_file && mm.is_page_dirty(page);
        let is_shared = !is_part && mm.mappings_of(page) != 1;
        let (keeps_shared, keeps_dirty) =
            (!mm.memory.variant().numa_moves_shared, !mm.memory.variant().numa_moves_dirty);
        if is_part
            || !cx.test(Test::MisplacedShared, self.node, !(is_shared && keeps_shared))
            || (keeps_dirty && !cx.test(Test::MisplacedDirty, self.node, !is_dirty))
        {
            return self.stays(cx, Settled::Unfit);
        }
        if !mm.admits_misplaced(cx, self.node, Order::BASE) {
            return self.stays(cx, Settled::RateLimit);
        }
        if !mm.isolate_misplaced(cx, self.node, page, Order::BASE) {
            return self.stays(cx, Settled::NoRoom);
        }
        let migrate = Migrate::new(vec![page], MigrateMode::Async, false);
        let migrate = Box::new(migrate.for_reason(MoveReason::NumaBalancing));
        self.later(Phase::Base { migrate, targets: Vec::new() })
    }

    fn move_base(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        mut migrate: Box<Migrate>,
        mut targets: Vec<Pfn>,
    ) -> Step<Misplacement> {
        match migrate.step(mm, spaces, cx, &mut targets) {
            Migrating::More => self.later(Phase::Base { migrate, targets }),
            Migrating::Block(wait) => {
                self.phase = Phase::Base { migrate, targets };
                Step::Block(wait)
            }
            Migrating::WantsTarget => {
                let wish = AllocRequest::gfp_highuser_movable(self.node).this_node();
                let request = AllocRequest { reclaims: false, wakes_kswapd: false, no_retry: true, ..wish };
                match mm.memory.alloc(cx, &request) {
                    Ok(frame) => {
                        mm.memory.isolate(cx, frame, Order::BASE);
                        targets.push(frame);
                    }
                    // A request that does not reclaim does not ask the slow path.
                    Err(_) => migrate.no_target(),
                }
                self.later(Phase::Base { migrate, targets })
            }
            Migrating::Done(migrated) => {
                for target in targets {
                    mm.memory.free(cx, target, Order::BASE);
                }
                let is_moved = migrated.failed == 0 && !migrated.is_out;
                if !cx.test(Test::MisplacedMoved, self.node, is_moved) {
                    let settled = if migrated.is_out { Settled::NoFrame } else { Settled::Busy };
                    return self.stays(cx, settled);
                }
                self.moved(cx, Order::BASE)
            }
        }
    }

    // ---- Huge pages as all pages, since 5.14

    fn begin_huge(&mut self, mm: &mut Mm, cx: &mut Cx, source: Pfn) -> Step<Misplacement> {
        let is_shared = mm.folio_mappings(source) > 1;
        let stays = is_shared && !mm.memory.variant().numa_moves_shared_huge;
        if !cx.test(Test::MisplacedShared, self.node, !stays) {
            return self.stays(cx, Settled::Unfit);
        }
        if !mm.isolate_misplaced(cx, self.node, source, Order::HUGE) {
            return self.stays(cx, Settled::NoRoom);
        }
        self.later(Phase::Huge { source, passes: 0, moving: None })
    }

    fn move_huge(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        (source, passes): (Pfn, u8),
        moving: Option<HugeMove>,
    ) -> Step<Misplacement> {
        let Some(mut moving) = moving else {
            let Some(target) = mm.alloc_misplaced_huge(cx, self.node) else {
                return self.end_huge(mm, cx, source, HugeEnd::NoFrame);
            };
            let moving = Some(HugeMove::new(source, target));
            return self.later(Phase::Huge { source, passes, moving });
        };
        match moving.step(mm, spaces, cx) {
            Step::More => self.later(Phase::Huge { source, passes, moving: Some(moving) }),
            Step::Block(wait) => unreachable!("who must not wait does not, but for {wait:?}"),
            Step::Done(HugeMoved::Moved) => {
                mm.memory.frames.note_move(cx.control(), MoveReason::NumaBalancing, moving.frames(), Order::HUGE);
                cx.test(Test::MisplacedMoved, self.node, true);
                cx.count(Event::PgmigrateSuccess, Order::HUGE.frames().into());
                cx.count(Event::ThpMigrationSuccess, 1);
                self.moved(cx, Order::HUGE)
            }
            Step::Done(HugeMoved::Again) => {
                mm.memory.free(cx, moving.frames().1, Order::HUGE);
                if passes + 1 < PASSES {
                    return self.later(Phase::Huge { source, passes: passes + 1, moving: None });
                }
                cx.test(Test::MisplacedMoved, self.node, false);
                self.end_huge(mm, cx, source, HugeEnd::Tried)
            }
        }
    }

    // ---- Huge pages under the entry's lock, up to 5.13

    fn begin_mapped(&mut self, mm: &mut Mm, cx: &mut Cx, entry: Pte) -> Step<Misplacement> {
        let source = entry.pfn();
        if !mm.try_lock_folio(source) {
            // Another task moves the page: when that is done, the entry has changed (`wait_on_page_locked`).
            self.phase = Phase::Begin;
            return Step::Block(mm.wait_on_folio(source));
        }
        let is_shared = mm.folio_mappings(source) != 1;
        let is_refused = is_shared && !mm.memory.variant().numa_moves_shared;
        if !cx.test(Test::MisplacedShared, self.node, !is_refused) || !mm.admits_misplaced(cx, self.node, Order::HUGE) {
            mm.unlock_folio(cx, source);
            return self.stays(cx, if is_refused { Settled::Unfit } else { Settled::RateLimit });
        }
        let Some(target) = mm.alloc_misplaced_huge(cx, self.node) else {
            return self.fail_mapped(mm, cx, source, (None, Settled::NoFrame));
        };
        if !mm.isolate_misplaced(cx, self.node, source, Order::HUGE) {
            return self.fail_mapped(mm, cx, source, (Some(target), Settled::NoRoom));
        }
        // The only references are those of the entry, the isolation and the fault.
        if is_shared || mm.is_pinned(source) {
            cx.test(Test::MisplacedMoved, self.node, false);
            mm.put_back_all(cx, &[source]);
            return self.fail_mapped(mm, cx, source, (Some(target), Settled::Busy));
        }
        self.later(Phase::CopyMapped { entry, target, copied: 0 })
    }

    fn copy_mapped(&mut self, mm: &mut Mm, cx: &mut Cx, entry: Pte, target: Pfn, copied: u32) -> Step<Misplacement> {
        mm.memory.assert_isolated(cx, target, Order::HUGE);
        let piece = mm.memory.piece(Order::HUGE);
        mm.memory.copy(cx, entry.pfn().plus(copied), target.plus(copied), piece);
        let copied = copied + piece.frames();
        self.later(if copied == Order::HUGE.frames() {
            Phase::Replace { entry, target }
        } else {
            Phase::CopyMapped { entry, target, copied }
        })
    }

    fn replace(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        entry: Pte,
        target: Pfn,
    ) -> Step<Misplacement> {
        mm.memory.assert_isolated(cx, target, Order::HUGE);
        let source = entry.pfn();
        let slot = self.slot(spaces).filter(|_| mm.folio_mappings(source) == 1 && !mm.is_pinned(source));
        let unchanged =
            slot.filter(|slot| spaces.get(self.space).is_some_and(|space| space.tables.pmd(*slot) == Pmd::Huge(entry)));
        cx.test(Test::MisplacedMoved, self.node, unchanged.is_some());
        let Some(slot) = unchanged else {
            mm.unlock_folio(cx, source);
            mm.memory.free(cx, target, Order::HUGE);
            mm.put_back_all(cx, &[source]);
            if mm.memory.variant().numa_hints_by_table {
                // As v3.9 has it; from 3.14 on this end counts as nothing.
                cx.count(Event::PgmigrateFail, Order::HUGE.frames().into());
            }
            let to = self.node;
            cx.fact(|| Fact::HintMove { to, settled: Settled::Changed });
            return Step::Done(Misplacement::Changed);
        };
        mm.memory.frames.note_move(cx.control(), MoveReason::NumaBalancing, (source, target), Order::HUGE);
        let space = spaces.get_mut(self.space).expect("looked at above");
        cx.because(Cause::Migrate, |cx| {
            primitive::migrate_folio(cx);
            mm.become_huge(source, target);
            // The new entry is writable, whatever rights the entry had before.
            space.tables.set_pmd(cx, slot, Pte::written_huge(target));
            if mm.memory.variant().numa_huge_flushes || !entry.is_hinting() {
                primitive::flush_tlb_huge(cx, self.space);
            }
            primitive::count_mappings(cx, 2);
            mm.unmap_huge_folio(source);
            mm.map_huge_folio(cx, target, 1, &[]);
            mm.lru_add_again(cx, target);
            mm.unlock_folio(cx, source);
            mm.free_moved_huge(cx, source);
        });
        cx.count(Event::PgmigrateSuccess, Order::HUGE.frames().into());
        self.moved(cx, Order::HUGE)
    }

    fn slot(&self, spaces: &Spaces) -> Option<PmdSlot> {
        spaces.get(self.space)?.tables.pmd_slot(self.vpn)
    }
}

/// The reason why a huge page has not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HugeEnd {
    /// The node has no free huge page (`-ENOMEM`).
    NoFrame,
    /// Another task held the page in each pass (`-EAGAIN`).
    Tried,
}

impl Misplaced {
    /// Puts the huge page back on its list. It is not split for its parts to move (`nosplit`).
    fn end_huge(&self, mm: &mut Mm, cx: &mut Cx, source: Pfn, end: HugeEnd) -> Step<Misplacement> {
        let counts_parts = mm.memory.variant().migrate_counts_parts;
        cx.count(Event::PgmigrateFail, if counts_parts { Order::HUGE.frames().into() } else { 1 });
        cx.count(Event::ThpMigrationFail, u64::from(counts_parts || end == HugeEnd::Tried));
        mm.put_back_all(cx, &[source]);
        self.stays(cx, if end == HugeEnd::Tried { Settled::Busy } else { Settled::NoFrame })
    }

    /// Unlocks a huge page that was not moved, and frees the frame for it.
    fn fail_mapped(
        &self,
        mm: &mut Mm,
        cx: &mut Cx,
        source: Pfn,
        (target, settled): (Option<Pfn>, Settled),
    ) -> Step<Misplacement> {
        if let Some(target) = target {
            mm.memory.free(cx, target, Order::HUGE);
        }
        mm.unlock_folio(cx, source);
        cx.count(Event::PgmigrateFail, Order::HUGE.frames().into());
        self.stays(cx, settled)
    }

    fn moved(&self, cx: &mut Cx, order: Order) -> Step<Misplacement> {
        let (to, pages) = (self.node, u64::from(order.frames()));
        cx.count(Event::NumaPagesMigrated, pages);
        cx.fact(|| Fact::HintMove { to, settled: Settled::Moved });
        Step::Done(Misplacement::Moved { pages })
    }

    fn stays(&self, cx: &mut Cx, settled: Settled) -> Step<Misplacement> {
        let to = self.node;
        cx.fact(|| Fact::HintMove { to, settled });
        Step::Done(Misplacement::Stays)
    }
}

impl Mm {
    /// Whether the huge page of an entry is being copied while it is mapped, so that a task that faults waits for its lock
    /// (`pmd_trans_migrating`, 3.14).
    pub(crate) fn is_copied_mapped(&self, entry: Pte) -> bool {
        self.memory.variant().numa_huge_at_once
            && entry.is_hinting()
            && self.memory.frames.has(entry.pfn(), FrameFlag::Locked)
    }

    /// Whether pages of this order may still move to a node in the present interval; always, since there is no limit any more.
    fn admits_misplaced(&mut self, cx: &mut Cx, node: NodeId, order: Order) -> bool {
        if !self.memory.variant().numa_rate_limit {
            return true;
        }
        let admits = self.memory.node_mut(node).move_limit.admits(cx.now(), order.frames().into());
        cx.test(Test::MisplacedRate, node, admits)
    }

    /// Whether as many pages have moved to a node lately that scans must make no entries hint.
    pub(crate) fn keeps_scans_away(&self, node: NodeId, now: Time) -> bool {
        self.memory.variant().numa_rate_limit && self.memory.node(node).move_limit.keeps_scans_away(now)
    }

    /// Allocates a huge page of a node for a misplaced one, if one is free, and isolates it.
    fn alloc_misplaced_huge(&mut self, cx: &mut Cx, node: NodeId) -> Option<Pfn> {
        // A request that does not reclaim asks for nothing.
        let found = self.memory.alloc(cx, &AllocRequest::gfp_transhuge_light(node).this_node()).ok();
        cx.test(Test::MisplacedAlloc, node, found.is_some());
        let frame = found?;
        primitive::write_tails(cx, Order::HUGE);
        self.memory.isolate(cx, frame, Order::HUGE);
        Some(frame)
    }

    /// Whether a node has room for `pages` more pages without waking its kswapd (`migrate_balanced_pgdat`).
    fn has_room_to_move(&self, node: NodeId, pages: u64) -> bool {
        // The lowmem reserve against requests for Movable, or none, as requests for DMA have it.
        let highest = if self.memory.variant().numa_room_spares_low { ZoneKind::Movable } else { ZoneKind::Dma };
        self.memory.node_zones(node).iter().any(|zone| {
            let keeps = zone.keeps(highest, Urgency::Normal);
            zone.free_frames() > zone.mark(Mark::High) + pages + keeps
        })
    }

    /// Isolates a page that is to move to a node, if the node has room and the page is on a list (`numamigrate_isolate_page`).
    fn isolate_misplaced(&mut self, cx: &mut Cx, node: NodeId, head: Pfn, order: Order) -> bool {
        if !cx.test(Test::MisplacedRoom, node, self.has_room_to_move(node, order.frames().into())) {
            return false;
        }
        let zone = self.zone_position(head);
        self.lru.hold(cx, zone);
        let is_isolated = self.isolate_lru(head).is_some();
        self.lru.let_go(cx, zone, u64::from(is_isolated));
        cx.test(Test::MisplacedIsolated, node, is_isolated)
    }
}
