//! Linux: none; Pages that cannot be moved, for each reason, and what comes in between.

use memory::{
    event::Event,
    frame::{Frame, FrameFlag, Holdings},
    pageblock::ZoneIndex,
    step::{Step, Wait},
};
use units::{Order, Pfn, Time};

use super::lab::{Lab, ME, OTHER, rules};
use crate::{
    compact::{CompactPriority, DirectCompact},
    fault::{Access, FaultControl, FaultDone},
    migrate::{Migrate, MigrateMode, Migrating},
    space::{unmap::Unmap, vma::PageRange},
};

impl Lab {
    pub(super) fn lock_all(&mut self, id: memory::frame::SpaceId) {
        for pfn in self.frames_of(id) {
            assert!(self.mm.try_lock_folio(pfn));
        }
    }

    pub(super) fn frames_of(&self, id: memory::frame::SpaceId) -> Vec<Pfn> {
        let (_, range) = self.mapped.iter().find(|(owner, _)| *owner == id).unwrap();
        let tables = &self.spaces.get(id).unwrap().tables;
        (range.start.0..range.end.0).map(|vpn| tables.lookup(units::Vpn(vpn)).pfn()).collect()
    }

    /// Takes the first pages of a process off their lists, with as many free frames to move them to.
    pub(super) fn isolated_for_move(
        &mut self,
        id: memory::frame::SpaceId,
        pages: usize,
        targets: usize,
    ) -> (Vec<Pfn>, Vec<Pfn>) {
        let sources: Vec<Pfn> = self.frames_of(id).into_iter().take(pages).collect();
        let request = rules::gfp::AllocRequest::gfp_highuser_movable(units::NodeId(0));
        let got = sources.clone();
        let targets = self.step(ME, |mm, _, cx| {
            mm.lru_add_drain_all(cx);
            mm.lru.hold(cx, ZoneIndex(0));
            for page in &got {
                assert!(mm.isolate_lru(*page).is_some());
            }
            mm.lru.let_go(cx, ZoneIndex(0), 0);
            let take = |_| {
                let pfn = mm.memory.alloc(cx, &request).unwrap();
                mm.memory.isolate(cx, pfn, Order::BASE);
                pfn
            };
            (0..targets).map(take).collect::<Vec<_>>()
        });
        (sources, targets)
    }
}

fn holdings(migrate: &Migrate, targets: &[Pfn]) -> Holdings {
    let mut holdings = migrate.holdings();
    holdings.isolated.extend(targets.iter().map(|pfn| memory::frame::Held { pfn: *pfn, order: Order::BASE }));
    holdings
}

/// Goes on to the end, giving no more targets.
pub(super) fn finish(lab: &mut Lab, migrate: &mut Migrate, targets: &mut Vec<Pfn>) -> crate::migrate::Migrated {
    loop {
        match lab.step(ME, |mm, spaces, cx| migrate.step(mm, spaces, cx, targets)) {
            Migrating::More => {}
            Migrating::WantsTarget => migrate.no_target(),
            Migrating::Block(wait) => panic!("{wait:?}"),
            Migrating::Done(migrated) => {
                lab.check(holdings(migrate, targets));
                return migrated;
            }
        }
        lab.check(holdings(migrate, targets));
    }
}

fn small() -> (Lab, memory::frame::SpaceId) {
    small_with("v6.1")
}

/// One process, with 64 pages that were written.
pub(super) fn small_with(version: &str) -> (Lab, memory::frame::SpaceId) {
    let mut lab = Lab::new(16, rules(version));
    let id = lab.process();
    let range = lab.map(id, 64);
    lab.write(id, range);
    (lab, id)
}

#[test]
fn pages_move_the_last_that_was_taken_first() {
    let (mut lab, id) = small();
    let (sources, mut targets) = lab.isolated_for_move(id, 10, 12);
    let first = *targets.last().unwrap();
    let mut migrate = Migrate::new(sources.clone(), MigrateMode::Async, true);
    let migrated = finish(&mut lab, &mut migrate, &mut targets);
    assert_eq!((migrated.failed, migrated.is_out, targets.len()), (0, false, 2));
    let now = lab.frames_of(id);
    assert_eq!(now[9], first);
    assert!(sources.iter().all(|old| !now.contains(old)));
    assert_eq!(lab.count(Event::PgmigrateSuccess), 10);
    lab.check_contents();
}

#[test]
fn a_locked_page_is_tried_ten_times_and_left_where_it_is() {
    let (mut lab, id) = small();
    let (sources, mut targets) = lab.isolated_for_move(id, 5, 5);
    assert!(lab.mm.try_lock_folio(sources[2]));
    let mut migrate = Migrate::new(sources.clone(), MigrateMode::Async, true);
    let migrated = finish(&mut lab, &mut migrate, &mut targets);
    assert_eq!((migrated.failed, targets.len()), (1, 1));
    assert_eq!((lab.count(Event::PgmigrateSuccess), lab.count(Event::PgmigrateFail)), (4, 1));
    assert_eq!(lab.frames_of(id)[2], sources[2]);
    assert!(lab.mm.memory.frames.has(sources[2], FrameFlag::OnLru));
}

#[test]
fn who_may_wait_waits_for_a_locked_page_in_the_fourth_pass() {
    let (mut lab, id) = small();
    let (sources, mut targets) = lab.isolated_for_move(id, 1, 1);
    assert!(lab.mm.try_lock_folio(sources[0]));
    let mut migrate = Migrate::new(sources.clone(), MigrateMode::SyncLight, false);
    let mut steps = 0;
    let wait = loop {
        match lab.step(ME, |mm, spaces, cx| migrate.step(mm, spaces, cx, &mut targets)) {
            Migrating::More => steps += 1,
            Migrating::Block(wait) => break wait,
            other => panic!("{other:?}"),
        }
    };
    // A try and the end of the pass, three times.
    assert_eq!((wait, steps), (Wait::Folio(sources[0]), 6));
    assert!(lab.mm.memory.take_unlocked().is_empty());
    lab.step(OTHER, |mm, _, cx| mm.unlock_folio(cx, sources[0]));
    assert_eq!(lab.mm.memory.take_unlocked(), [sources[0]]);
    assert_eq!(finish(&mut lab, &mut migrate, &mut targets).failed, 0);
}

#[test]
fn without_a_frame_to_move_to_the_rest_goes_back() {
    let (mut lab, id) = small();
    let (sources, mut targets) = lab.isolated_for_move(id, 6, 2);
    let mut migrate = Migrate::new(sources, MigrateMode::Async, true);
    let migrated = finish(&mut lab, &mut migrate, &mut targets);
    assert!(migrated.is_out);
    assert_eq!((lab.count(Event::PgmigrateSuccess), lab.count(Event::PgmigrateFail)), (2, 1));
    assert_eq!(lab.mm.lru.zone_isolated(ZoneIndex(0), false), 0);
}

#[test]
fn a_page_that_a_child_is_getting_stays() {
    let (mut lab, id) = small();
    // The child has all pages, but is no member of the family yet.
    let child = lab.step(OTHER, |mm, spaces, cx| spaces.get_mut(id).unwrap().fork(mm, cx)).unwrap();
    let (sources, mut targets) = lab.isolated_for_move(id, 3, 3);
    let mut migrate = Migrate::new(sources.clone(), MigrateMode::SyncLight, true);
    let done = loop {
        match lab.step(ME, |mm, spaces, cx| migrate.step(mm, spaces, cx, &mut targets)) {
            Migrating::Done(done) => break done,
            Migrating::More => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((done.failed, targets.len()), (3, 3));
    // As a member it goes along.
    let child = lab.spaces.add(child);
    lab.check(holdings(&migrate, &targets));
    let (_, range) = lab.mapped[0];
    let sources: Vec<Pfn> = lab.frames_of(id)[..3].to_vec();
    lab.step(ME, |mm, _, cx| {
        mm.lru.hold(cx, ZoneIndex(0));
        for page in &sources {
            assert!(mm.isolate_lru(*page).is_some());
        }
        mm.lru.let_go(cx, ZoneIndex(0), 0);
    });
    let mut migrate = Migrate::new(sources.clone(), MigrateMode::SyncLight, true);
    assert_eq!(finish(&mut lab, &mut migrate, &mut targets).failed, 0);
    for n in 0..3 {
        let [ours, theirs] = [id, child].map(|id| lab.spaces.get(id).unwrap().tables.lookup(range.start.plus(n)));
        assert_eq!(ours, theirs);
        assert!(!ours.is_writable() && !sources.contains(&ours.pfn()));
        assert_eq!(lab.mm.folio_mappings(ours.pfn()), 2);
    }
}

/// Up to where the first page is unmapped, and not copied yet.
fn begun(lab: &mut Lab, id: memory::frame::SpaceId) -> (Migrate, Vec<Pfn>, Pfn) {
    let (sources, mut targets) = lab.isolated_for_move(id, 1, 1);
    let mut migrate = Migrate::new(sources.clone(), MigrateMode::Async, true);
    assert_eq!(lab.step(ME, |mm, spaces, cx| migrate.step(mm, spaces, cx, &mut targets)), Migrating::More);
    lab.check(holdings(&migrate, &targets));
    let (_, range) = lab.mapped[0];
    assert!(lab.spaces.get(id).unwrap().tables.lookup(range.start).is_migration());
    (migrate, targets, sources[0])
}

#[test]
fn a_fault_waits_until_the_page_has_arrived() {
    let (mut lab, id) = small();
    let (mut migrate, mut targets, source) = begun(&mut lab, id);
    let (_, range) = lab.mapped[0];
    let mut fault = FaultControl::new(range.start, Access::Write);
    let step = lab.step(OTHER, |mm, spaces, cx| fault.step(mm, spaces.get_mut(id).unwrap(), cx));
    assert_eq!(step, Step::Block(Wait::Folio(source)));
    let resident =
        lab.step(OTHER, |mm, spaces, cx| spaces.get(id).unwrap().mincore(mm, cx, PageRange::new(range.start, 1)));
    assert_eq!(resident.unwrap(), [true]);
    finish(&mut lab, &mut migrate, &mut targets);
    assert_eq!(lab.mm.memory.take_unlocked(), [source]);
    let step = lab.step(OTHER, |mm, spaces, cx| fault.step(mm, spaces.get_mut(id).unwrap(), cx));
    assert_eq!(step, Step::Done(FaultDone::Handled));
    assert_ne!(lab.frames_of(id)[0], source);
    lab.check_contents();
}

#[test]
fn a_page_unmapped_during_migration_is_freed_on_arrival() {
    let (mut lab, id) = small();
    let (mut migrate, mut targets, source) = begun(&mut lab, id);
    let (_, range) = lab.mapped.remove(0);
    let mut unmap = Unmap::new(range);
    loop {
        match lab.step(OTHER, |mm, spaces, cx| unmap.step(mm, spaces.get_mut(id).unwrap(), cx, Time(0))) {
            Step::More => lab.check_with(holdings(&migrate, &targets), unmap.holdings()),
            Step::Done(result) => break result.unwrap(),
            Step::Block(wait) => panic!("{wait:?}"),
        }
    }
    assert_eq!(lab.spaces.get(id).unwrap().rss_pages(), 0);
    let migrated = finish(&mut lab, &mut migrate, &mut targets);
    assert_eq!((migrated.failed, targets.len()), (0, 0));
    assert!(!matches!(lab.mm.memory.frames.get(source), Frame::Anon { .. }));
    let anon = (0..4096).filter(|pfn| matches!(lab.mm.memory.frames.get(Pfn(*pfn)), Frame::Anon { .. })).count();
    assert_eq!(anon, 0, "nothing is left of it");
}

#[test]
fn a_page_unmapped_before_migration_is_freed_by_the_isolation() {
    let (mut lab, id) = small();
    let (sources, mut targets) = lab.isolated_for_move(id, 2, 2);
    let (_, range) = lab.mapped.remove(0);
    lab.step(OTHER, |mm, spaces, cx| spaces.get_mut(id).unwrap().munmap(mm, cx, range)).unwrap();
    let mut migrate = Migrate::new(sources, MigrateMode::Async, true);
    lab.check(holdings(&migrate, &targets));
    let migrated = finish(&mut lab, &mut migrate, &mut targets);
    assert_eq!((migrated.failed, targets.len()), (0, 2), "it counts as moved, without a frame for it");
    assert_eq!(lab.count(Event::PgmigrateSuccess), 2);
}

#[test]
fn who_is_aborted_leaves_everything_as_it_was() {
    let (mut lab, id) = Lab::fragmented(16, rules("v6.1"));
    let frames = lab.frames_of(id);
    // At every step of a run, once.
    for stop in 1..400 {
        let mut compact = DirectCompact::new(Lab::request(), CompactPriority::SyncLight);
        for _ in 0..stop {
            if !matches!(lab.step(ME, |mm, spaces, cx| compact.step(mm, spaces, cx)), Step::More) {
                return;
            }
        }
        lab.step(ME, |mm, spaces, cx| compact.abort(mm, spaces, cx));
        lab.check(Holdings::default());
        assert_eq!(lab.mm.lru.zone_isolated(ZoneIndex(0), false), 0);
    }
    lab.check_contents();
    assert_eq!(lab.frames_of(id).len(), frames.len());
}
