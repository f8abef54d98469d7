//! Linux: do_pages_move() and below in mm/migrate.c: move_pages(2), to one node (v4.1 to v6.1).
//! Differs: huge pages come first; pages that could not be moved yet are tried again at once, and not after the rest; failed
//! pages are counted, their addresses are not told.
//!
//! A task moves memory of a process to a node. Up to 4.13 huge pages are split first. Since 4.14 they move as a whole if the
//! node has a huge page, or can make one; else they are split, and their parts move.

use memory::{
    alloc::NoMemory,
    cx::Cx,
    event::Event,
    frame::{FrameFlag, Held, Holdings, SpaceId, moves::MoveReason},
    primitive,
    step::{RUN, Step},
};
use rules::gfp::AllocRequest;
use units::{NodeId, Order, Pfn, Vpn};

use super::{
    Migrate, MigrateMode, Migrating,
    huge::{HugeMove, HugeMoved},
};
use crate::{
    Mm, Spaces,
    folio::pte::Pte,
    reclaim::split::Split,
    space::{
        page_table::{Pmd, TableId},
        vma::PageRange,
    },
};

/// The result of move_pages(2), in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Pages that have moved to the node.
    pub moved: u64,
    /// Pages that were isolated and could not be moved.
    pub failed: u64,
}

/// Moves the pages that a process maps in a range to a node. The caller holds the mmap lock for read in the first steps, which
/// isolate pages, and no lock that reclaim may want.
#[derive(Clone, Debug)]
pub struct ToNode {
    space: SpaceId,
    rest: PageRange,
    node: NodeId,
    phase: Phase,
    /// Isolated huge pages; the last element is moved next.
    huge: Vec<Pfn>,
    /// Isolated base pages.
    base: Vec<Pfn>,
    /// Isolated pages that are given up.
    failed: Vec<Pfn>,
    done: Moved,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Drain the batches of new folios of all CPUs.
    Begin,
    /// Isolate pages.
    Isolate,
    /// Move huge pages, the last one first; `passes` counts the tries for it.
    Huge {
        passes: u8,
        moving: Option<HugeMove>,
    },
    /// Move base pages.
    Base {
        migrate: Box<Migrate>,
        targets: Vec<Pfn>,
    },
    /// Put back isolated pages that have not moved.
    PutBack,
    Over,
}

impl ToNode {
    /// A control that moves the pages of a range of a process.
    pub fn new(space: SpaceId, range: PageRange, node: NodeId) -> Self {
        Self {
            space,
            rest: range,
            node,
            phase: Phase::Begin,
            huge: Vec::new(),
            base: Vec::new(),
            failed: Vec::new(),
            done: Moved::default(),
        }
    }

    /// Takes a step. A step that has asked for memory is taken again when there is an answer.
    pub fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Moved> {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Begin => {
                // migrate_prep
                mm.lru_add_drain_all(cx);
                self.later(Phase::Isolate)
            }
            Phase::Isolate => self.isolate(mm, spaces, cx),
            Phase::Huge { passes, moving } => self.move_huge(mm, spaces, cx, passes, moving),
            Phase::Base { migrate, targets } => self.move_base(mm, spaces, cx, migrate, targets),
            Phase::PutBack => {
                let run = self.failed.len().saturating_sub(usize::try_from(RUN).expect("small"));
                mm.put_back_all(cx, &self.failed[run..]);
                self.failed.truncate(run);
                if run > 0 { self.later(Phase::PutBack) } else { Step::Done(self.done) }
            }
            Phase::Over => unreachable!("no step follows the last"),
        }
    }

    /// Frames that the operation holds between two steps.
    pub fn holdings(&self) -> Holdings {
        let held = |order| move |pfn: &Pfn| Held { pfn: *pfn, order };
        let mut holdings = Holdings::default();
        holdings.off_lru.extend(self.huge.iter().map(held(Order::HUGE)));
        holdings.off_lru.extend(self.base.iter().map(held(Order::BASE)));
        holdings.off_lru.extend(self.failed.iter().map(|pfn| Held { pfn: *pfn, order: Order::BASE }));
        match &self.phase {
            Phase::Huge { moving: Some(moving), .. } => {
                holdings.isolated.push(Held { pfn: moving.frames().1, order: Order::HUGE });
            }
            Phase::Base { migrate, targets } => {
                holdings.add(migrate.holdings());
                holdings.isolated.extend(targets.iter().map(held(Order::BASE)));
            }
            _ => {}
        }
        holdings
    }

    /// Stops, and puts back pages that have not moved.
    pub fn abort(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Huge { moving: Some(mut moving), .. } => {
                moving.abort(mm, spaces, cx);
                mm.memory.free(cx, moving.frames().1, Order::HUGE);
            }
            Phase::Base { mut migrate, mut targets } => {
                migrate.abort(mm, spaces, cx, &mut targets);
                for target in targets {
                    mm.memory.free(cx, target, Order::BASE);
                }
            }
            _ => {}
        }
        for folios in [&mut self.huge, &mut self.base, &mut self.failed] {
            for head in std::mem::take(folios) {
                mm.put_back_all(cx, &[head]);
            }
        }
    }

    fn later(&mut self, phase: Phase) -> Step<Moved> {
        self.phase = phase;
        Step::More
    }

    // ---- Taking pages off their lists

    /// Isolates the pages of the next PMD entry, or a run of them (`add_page_for_migration`).
    fn isolate(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Moved> {
        let found = spaces.get(self.space).and_then(|space| Some((space, space.tables.next_pmd(self.rest)?)));
        let Some((space, (part, slot))) = found else {
            return self.later(Phase::Huge { passes: 0, moving: None });
        };
        match space.tables.pmd(slot) {
            Pmd::Huge(huge) if self.is_misplaced(mm, huge) => {
                if !mm.memory.variant().thp_migrates {
                    // FOLL_SPLIT: its base pages are looked at next, unless it cannot be split.
                    if mm.split_folio(spaces, cx, huge.pfn()) == Split::Busy {
                        self.rest.start = part.end;
                    }
                    return self.later(Phase::Isolate);
                }
                self.rest.start = part.end;
                self.take(mm, cx, huge.pfn(), Order::HUGE);
            }
            Pmd::None | Pmd::Huge(_) => self.rest.start = part.end,
            Pmd::Table(table) => {
                let part = PageRange { end: part.end.min(part.start.plus(RUN)), ..part };
                self.rest.start = part.end;
                primitive::scan_ptes(cx, part.pages());
                for pte in self.misplaced_in(mm, spaces, table, part) {
                    let is_own = mm.memory.frames.is_file(pte.pfn()) || mm.memory.frames.is_base_anon(pte.pfn());
                    let (head, order) =
                        if is_own { (pte.pfn(), Order::BASE) } else { (mm.folio_head(pte.pfn()), Order::HUGE) };
                    self.take(mm, cx, head, order);
                }
            }
        }
        self.later(Phase::Isolate)
    }

    fn misplaced_in(&self, mm: &Mm, spaces: &Spaces, table: TableId, part: PageRange) -> Vec<Pte> {
        let tables = &spaces.get(self.space).expect("found in the same step").tables;
        let ptes = (part.start.0..part.end.0).map(|vpn| tables.pte(table, Vpn(vpn)));
        ptes.filter(|pte| self.is_misplaced(mm, *pte)).collect()
    }

    /// Whether an entry maps a page of another node, and no other entry maps the page.
    fn is_misplaced(&self, mm: &Mm, entry: Pte) -> bool {
        let is_page = entry.is_present() && !entry.is_zero_page();
        let mappings = |pfn| if mm.memory.frames.is_file(pfn) { mm.mappings_of(pfn) } else { mm.frame_mappings(pfn) };
        is_page && mm.memory.node_of(entry.pfn()) != self.node && mappings(entry.pfn()) == 1
    }

    /// Isolates a folio, if it is on a list.
    fn take(&mut self, mm: &mut Mm, cx: &mut Cx, head: Pfn, order: Order) {
        let zone = mm.zone_position(head);
        mm.lru.hold(cx, zone);
        let is_isolated = mm.isolate_lru(head).is_some();
        mm.lru.let_go(cx, zone, u64::from(is_isolated));
        if is_isolated {
            let list = if order == Order::HUGE { &mut self.huge } else { &mut self.base };
            list.insert(if order == Order::HUGE { 0 } else { list.len() }, head);
        }
    }

    // ---- Huge pages

    fn move_huge(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        passes: u8,
        moving: Option<HugeMove>,
    ) -> Step<Moved> {
        let Some(source) = self.huge.last().copied() else {
            let migrate = Migrate::new(std::mem::take(&mut self.base), MigrateMode::Sync, false);
            let migrate = Box::new(migrate.for_reason(MoveReason::ToNode));
            return self.later(Phase::Base { migrate, targets: Vec::new() });
        };
        let Some(mut moving) = moving else { return self.begin_huge(mm, spaces, cx, source, passes) };
        match moving.step(mm, spaces, cx) {
            Step::More => self.later(Phase::Huge { passes, moving: Some(moving) }),
            Step::Block(wait) => unreachable!("the lock is waited for before, but {wait:?}"),
            Step::Done(HugeMoved::Moved) => {
                mm.memory.frames.note_move(cx.control(), MoveReason::ToNode, moving.frames(), Order::HUGE);
                self.huge.pop();
                self.done.moved += u64::from(Order::HUGE.frames());
                count_huge(mm, cx, Event::PgmigrateSuccess, Event::ThpMigrationSuccess);
                self.later(Phase::Huge { passes: 0, moving: None })
            }
            Step::Done(HugeMoved::Again) => {
                mm.memory.free(cx, moving.frames().1, Order::HUGE);
                if passes + 1 < super::PASSES {
                    return self.later(Phase::Huge { passes: passes + 1, moving: None });
                }
                cx.count(
                    Event::PgmigrateFail,
                    if mm.memory.variant().migrate_counts_parts { Order::HUGE.frames().into() } else { 1 },
                );
                cx.count(Event::ThpMigrationFail, u64::from(mm.memory.variant().thp_migration_counts));
                self.give_up_huge(mm, cx)
            }
        }
    }

    /// Allocates a huge page on the node for a huge page that moves; without one, the huge page is split.
    fn begin_huge(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, source: Pfn, passes: u8) -> Step<Moved> {
        if mm.memory.frames.has(source, FrameFlag::Dropped) {
            // The page was freed meanwhile.
            self.huge.pop();
            mm.put_back_all(cx, &[source]);
            return self.later(Phase::Huge { passes: 0, moving: None });
        }
        if passes >= super::PASSES_WITHOUT_WAITING && mm.memory.frames.has(source, FrameFlag::Locked) {
            self.phase = Phase::Huge { passes, moving: None };
            return Step::Block(mm.wait_on_folio(source));
        }
        let wish = AllocRequest::gfp_transhuge_light(self.node).this_node();
        // GFP_TRANSHUGE holds __GFP_NORETRY before 4.8.
        let no_retry = !mm.memory.variant().thp_advised_retries;
        match mm.memory.alloc(cx, &AllocRequest { reclaims: true, no_retry, ..wish }) {
            Ok(target) => {
                primitive::write_tails(cx, Order::HUGE);
                mm.memory.isolate(cx, target, Order::HUGE);
                return self.later(Phase::Huge { passes, moving: Some(HugeMove::new(source, target)) });
            }
            Err(NoMemory::Asked) => return self.later(Phase::Huge { passes, moving: None }),
            Err(NoMemory::Refused) => {}
        }
        let mut tails = Vec::new();
        if mm.split_isolated(spaces, cx, source, &mut tails) {
            cx.count(Event::ThpMigrationSplit, u64::from(mm.memory.variant().thp_migration_counts));
            self.huge.pop();
            self.base.push(source);
            self.base.extend(tails.into_iter().rev());
            return self.later(Phase::Huge { passes: 0, moving: None });
        }
        count_huge(mm, cx, Event::PgmigrateFail, Event::ThpMigrationFail);
        // Memory is short: no other huge page is tried.
        while self.huge.len() > 1 {
            self.give_up_huge(mm, cx);
        }
        self.failed.append(&mut self.base);
        self.give_up_huge(mm, cx)
    }

    /// Puts a huge page back on its list.
    fn give_up_huge(&mut self, mm: &mut Mm, cx: &mut Cx) -> Step<Moved> {
        let source = self.huge.pop().expect("one was tried");
        mm.put_back_all(cx, &[source]);
        self.done.failed += u64::from(Order::HUGE.frames());
        self.later(Phase::Huge { passes: 0, moving: None })
    }

    // ---- Base pages

    fn move_base(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        mut migrate: Box<Migrate>,
        mut targets: Vec<Pfn>,
    ) -> Step<Moved> {
        match migrate.step(mm, spaces, cx, &mut targets) {
            Migrating::More => self.later(Phase::Base { migrate, targets }),
            Migrating::Block(wait) => {
                self.phase = Phase::Base { migrate, targets };
                Step::Block(wait)
            }
            Migrating::WantsTarget => {
                match mm.memory.alloc(cx, &AllocRequest::gfp_highuser_movable(self.node).this_node()) {
                    Ok(frame) => {
                        mm.memory.isolate(cx, frame, Order::BASE);
                        targets.push(frame);
                    }
                    Err(NoMemory::Asked) => {}
                    Err(NoMemory::Refused) => migrate.no_target(),
                }
                self.later(Phase::Base { migrate, targets })
            }
            Migrating::Done(migrated) => {
                for target in targets {
                    mm.memory.free(cx, target, Order::BASE);
                }
                self.done.moved += u64::from(migrated.moved);
                self.done.failed += u64::from(migrated.left) + self.failed.len() as u64;
                self.later(Phase::PutBack)
            }
        }
    }
}

/// Counts a huge page by its base pages, and in `thp_migration_*`; before 5.9 as one page.
fn count_huge(mm: &Mm, cx: &mut Cx, pages: Event, wholes: Event) {
    let counts = mm.memory.variant().thp_migration_counts;
    cx.count(pages, if counts { Order::HUGE.frames().into() } else { 1 });
    cx.count(wholes, u64::from(counts));
}
