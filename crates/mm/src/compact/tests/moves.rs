//! Linux: none; What is known of a page after it has moved.

use units::{Bytes, Time};

use super::{
    failures::{finish, small_with},
    lab::{Lab, OTHER},
};
use crate::{
    SpaceId,
    fault::{Access, FaultDone},
    migrate::{Migrate, MigrateMode},
    pte::Pte,
    step::Step,
    swap::{SlotFlag, SwapMedium, SwapSpec},
    touch::Touch,
    vma::PageRange,
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
fn what_was_stored_to_a_page_is_not_lost_when_its_entry_forgets_it() {
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
