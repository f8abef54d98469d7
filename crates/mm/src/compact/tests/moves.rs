//! Linux: none; What is known of a page after it has moved.

use memory::{
    event::Event,
    frame::{FrameFlag, Holdings, SpaceId},
    lru_kind::LruKind,
    pageblock::ZoneIndex,
    step::Step,
};
use units::{Bytes, CpuId, Order, Pfn, Time, Vpn};

use super::{
    failures::{finish, small_with},
    lab::{Lab, ME, OTHER, rules},
};
use crate::{
    fault::{Access, FaultDone, touch::Touch},
    folio::pte::Pte,
    migrate::{Migrate, MigrateMode},
    space::vma::PageRange,
    swap::{SlotFlag, SwapMedium, SwapSpec},
    thp::ThpEnabled,
};

impl Lab {
    /// Moves the first pages of a process, or tries to.
    fn move_first(&mut self, id: SpaceId, pages: usize) {
        let (sources, mut targets) = self.isolated_for_move(id, pages, pages);
        let mut migrate = Migrate::new(sources, MigrateMode::SyncLight, true);
        finish(self, &mut migrate, &mut targets);
    }

    fn first_entry(&self, id: SpaceId) -> Pte {
        self.spaces.get(id).unwrap().tables.lookup(self.mapped[0].1.start)
    }

    fn touch_first(&mut self, id: SpaceId, access: Access) {
        let mut touch = Touch::pages(PageRange::new(self.mapped[0].1.start, 1), access);
        let step = self.step(OTHER, |mm, spaces, cx| touch.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)));
        assert_eq!(step, Step::Done(FaultDone::Handled));
    }
}

/// Also those to which there is another reference, and also where as much as can be is to be compacted.
#[test]
fn no_release_moves_huge_pages_to_compact() {
    for version in ["v3.9", "v4.1", "v4.4", "v4.15", "v4.20", "v6.1", "v6.12", "v6.18"] {
        let (mut lab, id) = Lab::fragmented(32, rules(version));
        lab.end(id);
        let id = lab.process();
        lab.mm.thp.enabled = ThpEnabled::Always;
        let room = lab.map(id, 3 * 512);
        let start = Vpn(room.start.0.next_multiple_of(512));
        lab.write(id, PageRange::new(start, 2 * 512));
        lab.mm.thp.enabled = ThpEnabled::Never;
        // Base pages all over the zone, every second one of which goes.
        let (stays, goes) = (lab.process(), lab.process());
        let pages = lab.mm.memory.zones()[0].free_frames() / 3;
        let [one, two] = [stays, goes].map(|id| lab.map(id, pages));
        for n in 0..pages {
            lab.write(stays, PageRange::new(one.start.plus(n), 1));
            lab.write(goes, PageRange::new(two.start.plus(n), 1));
        }
        lab.end(goes);
        let head = |lab: &Lab, n: u64| lab.spaces.get(id).unwrap().tables.lookup(start.plus(n * 512)).pfn();
        let heads = [0, 1].map(|n| head(&lab, n));
        assert!(heads.iter().all(|head| lab.mm.memory.frames.allocated(*head) == Some(Order::HUGE)), "{version}");
        lab.mm.set_pinned(heads[1], true);
        lab.compact_memory();
        assert!(lab.count(Event::PgmigrateSuccess) > 0, "{version}: base pages do move");
        assert_eq!([0, 1].map(|n| head(&lab, n)), heads, "{version}");
        assert_eq!(lab.count(Event::ThpSplitPage) + lab.count(Event::ThpSplitPageFailed), 0, "{version}");
        lab.check(Holdings::default());
    }
}

#[test]
fn entries_forget_before_6_1_that_they_were_used() {
    for (version, keeps) in [("v3.9", false), ("v4.1", false), ("v5.18", false), ("v6.1", true), ("v6.18", true)] {
        for fails in [false, true] {
            let (mut lab, id) = small_with(version);
            lab.mm.compaction.fail_moves(u32::from(fails));
            let before = lab.first_entry(id);
            lab.move_first(id, 1);
            let pte = lab.first_entry(id);
            assert_eq!(pte.pfn() == before.pfn(), fails, "{version}");
            assert!(pte.is_writable() && !pte.is_migration(), "{version}");
            assert_eq!((pte.is_accessed(), pte.is_dirty()), (keeps, keeps), "{version}, fails: {fails}");
            lab.touch_first(id, Access::Read);
            let pte = lab.first_entry(id);
            assert_eq!((pte.is_accessed(), pte.is_dirty()), (true, keeps), "{version}: reading does not make it dirty");
            lab.touch_first(id, Access::Write);
            assert!(lab.first_entry(id).is_dirty(), "{version}");
        }
    }
}

#[test]
fn a_store_survives_the_loss_of_the_entrys_dirty_bit() {
    for (version, slot_knows) in [("v4.1", true), ("v6.1", false)] {
        let (mut lab, id) = small_with(version);
        lab.mm.swapon(&SwapSpec { size: Bytes::mib(1), medium: SwapMedium::Memory });
        let page = lab.first_entry(id).pfn();
        assert!(lab.mm.add_to_swap(page));
        let slot = lab.mm.swap.slot_of(page).unwrap();
        // As if it had been written to the device, and stored to again since.
        lab.mm.swap.mark(slot, SlotFlag::Dirty, false);
        lab.move_first(id, 1);
        let now = lab.first_entry(id);
        assert_eq!((lab.mm.swap.slot_of(now.pfn()), now.pfn() == page), (Some(slot), false), "{version}");
        assert_eq!(lab.mm.swap.has(slot, SlotFlag::Dirty), slot_knows, "{version}");
        assert!(now.is_dirty() || slot_knows, "{version}: one of both says it");
        // One that was not stored to stays as clean as it is.
        lab.mm.swap.mark(slot, SlotFlag::Dirty, false);
        lab.move_first(id, 1);
        assert!(!lab.mm.swap.has(slot, SlotFlag::Dirty), "{version}");
    }
}

#[test]
fn since_4_8_compaction_without_disk_waits_leaves_pages_under_writeback() {
    for (version, light) in [("v4.7", true), ("v4.8", false), ("v6.1", false)] {
        let (mut lab, id) = small_with(version);
        lab.mm.swapon(&SwapSpec { size: Bytes::mib(1), medium: SwapMedium::Memory });
        let page = lab.first_entry(id).pfn();
        assert!(lab.mm.add_to_swap(page));
        let slot = lab.mm.swap.slot_of(page).unwrap();
        lab.mm.swap.mark(slot, SlotFlag::Writeback, true);
        let modes = [MigrateMode::Async, MigrateMode::SyncLight, MigrateMode::Sync];
        assert_eq!(modes.map(|mode| lab.mm.is_migratable(page, mode)), [false, light, true], "{version}");
    }
}

/// The folios that wait on the CPU of who compacts.
fn waiting(lab: &Lab) -> Vec<Pfn> {
    lab.mm.lru.batch(CpuId(0)).to_vec()
}

fn drain(lab: &mut Lab) {
    lab.step(ME, |mm, _, cx| mm.lru_add_drain(cx));
    lab.check(Holdings::default());
}

#[test]
fn up_to_4_7_old_and_new_page_wait_among_new_folios() {
    for (version, waits) in [("v3.9", true), ("v4.1", true), ("v4.7", true), ("v4.8", false), ("v6.1", false)] {
        let (mut lab, id) = small_with(version);
        lab.step(ME, |mm, _, cx| mm.lru_add_drain_all(cx));
        let sources = lab.frames_of(id)[..2].to_vec();
        let list = LruKind::of_new_anon(lab.mm.memory.variant().lru_new_anon);
        // One of them is not in use.
        assert_eq!(lab.mm.isolate_lru(sources[0]), Some(list), "{version}");
        lab.mm.putback_lru(sources[0], false);
        let listed = LruKind::ALL.map(|kind| lab.mm.lru.zone_frames(ZoneIndex(0), kind));
        lab.move_first(id, 2);
        assert_eq!(lab.mm.lru.zone_isolated(ZoneIndex(0), false), 0, "{version}");
        let targets = lab.frames_of(id)[..2].to_vec();
        let expected = [sources[1], targets[1], sources[0], targets[0]];
        assert_eq!(waiting(&lab), if waits { &expected[..] } else { &[] }, "{version}");
        for pfn in &sources {
            assert_eq!(lab.mm.memory.frames.allocated(*pfn).is_some(), waits, "{version}: the batch has a reference");
        }
        drain(&mut lab);
        assert!(sources.iter().all(|pfn| lab.mm.memory.frames.allocated(*pfn).is_none()), "{version}");
        let now = LruKind::ALL.map(|kind| lab.mm.lru.zone_frames(ZoneIndex(0), kind));
        assert_eq!(now, listed, "{version}: each is where its page was");
    }
}

#[test]
fn up_to_4_7_unmoved_pages_wait_and_freed_ones_take_frames() {
    for (version, waits) in [("v4.1", true), ("v4.8", false)] {
        let (mut lab, id) = small_with(version);
        let (sources, mut targets) = lab.isolated_for_move(id, 2, 2);
        assert!(lab.mm.try_lock_folio(sources[1]));
        let (_, range) = lab.mapped[0];
        let first = PageRange::new(range.start, 1);
        lab.step(OTHER, |mm, spaces, cx| spaces.get_mut(id).unwrap().munmap(mm, cx, first)).unwrap();
        let frame = targets[1];
        let mut migrate = Migrate::new(sources.clone(), MigrateMode::Async, true);
        let migrated = finish(&mut lab, &mut migrate, &mut targets);
        assert_eq!((migrated.failed, targets.len()), (1, if waits { 1 } else { 2 }), "{version}");
        let expected = [sources[0], frame, sources[1]];
        assert_eq!(waiting(&lab), if waits { &expected[..] } else { &[] }, "{version}");
        for target in targets {
            lab.step(ME, |mm, _, cx| mm.memory.free(cx, target, units::Order::BASE));
        }
        drain(&mut lab);
        assert!(lab.mm.memory.frames.has(sources[1], FrameFlag::OnLru), "{version}");
        assert_eq!([sources[0], frame].map(|pfn| lab.mm.memory.frames.allocated(pfn)), [None; 2], "{version}");
    }
}
