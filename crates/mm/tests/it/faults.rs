//! The rules of the fault path, one by one.

use memory::{event::Event, step::Step};
use mm::{
    fault::{Access, FaultControl, FaultDone, touch::Touch},
    space::{
        address_space::AddressSpace,
        page_table::{Level, Pmd},
        unmap::Unmap,
        vma::{HugeAdvice, PageRange},
    },
    thp::ThpEnabled,
};
use rules::variant;
use units::{Bytes, Time, VirtAddr, Vpn};

use crate::small_machine::SmallMachine;

const HUGE: u64 = 512;

fn page(range: PageRange, n: u64) -> PageRange {
    PageRange::new(range.start.plus(n), 1)
}

fn setup(enabled: ThpEnabled, pages: u64) -> (SmallMachine, AddressSpace, PageRange) {
    let mut machine = SmallMachine::new(16 * 512);
    machine.mm.thp.enabled = enabled;
    let mut space = machine.space();
    let range = machine.map(&mut space, pages);
    (machine, space, range)
}

fn write(machine: &mut SmallMachine, space: &mut AddressSpace, range: PageRange) {
    assert_eq!(machine.touch(space, range, Access::Write).0, FaultDone::Handled);
}

fn end(mut machine: SmallMachine, spaces: Vec<AddressSpace>) {
    for space in spaces {
        machine.run(|mm, cx| space.exit(mm, cx));
    }
    machine.run(mm::Mm::shrink_huge_zero);
    assert_eq!(machine.allocated(), 0);
}

#[test]
fn a_base_page_is_one_fault_one_frame_and_its_tables() {
    let (mut machine, mut space, range) = setup(ThpEnabled::Never, 3 * HUGE);
    let (done, cleared, copied) = machine.touch(&mut space, range, Access::Write);
    assert_eq!((done, copied), (FaultDone::Handled, 0));
    assert_eq!(machine.count(Event::Pgfault), 3 * HUGE);
    assert_eq!(space.rss_pages(), 3 * HUGE);
    let tables = [Level::Pte, Level::Pmd, Level::Pud, Level::Pgd].map(|level| space.tables.count(level));
    assert_eq!(tables, [3, 1, 1, 1]);
    assert_eq!(cleared, 3 * HUGE + 5, "frames and tables, but the root");
    let faults = machine.count(Event::Pgfault);
    write(&mut machine, &mut space, range);
    assert_eq!(machine.count(Event::Pgfault), faults, "mapped pages do not fault");
    end(machine, vec![space]);
}

#[test]
fn a_load_maps_the_zero_page_and_a_store_replaces_it() {
    let (mut machine, mut space, range) = setup(ThpEnabled::Never, 4);
    machine.touch(&mut space, range, Access::Read);
    assert_eq!((space.rss_pages(), machine.count(Event::Pgfault)), (0, 4));
    let (resident, ..) = machine.run(|mm, cx| space.mincore(mm, cx, range));
    assert_eq!(resident, Ok(vec![true; 4]));
    let (_, cleared, copied) = machine.touch(&mut space, page(range, 1), Access::Write);
    assert_eq!((cleared, copied, space.rss_pages()), (1, 0, 1));
    assert_eq!(machine.count(Event::Pgfault), 5);
    end(machine, vec![space]);
}

#[test]
fn a_huge_page_needs_the_setting_the_advice_and_the_room() {
    for (enabled, advice, is_huge) in [
        (ThpEnabled::Always, HugeAdvice::Default, true),
        (ThpEnabled::Always, HugeAdvice::NoHugePage, false),
        (ThpEnabled::Madvise, HugeAdvice::Default, false),
        (ThpEnabled::Madvise, HugeAdvice::HugePage, true),
        (ThpEnabled::Never, HugeAdvice::HugePage, false),
    ] {
        let (mut machine, mut space, range) = setup(enabled, 2 * HUGE);
        machine.run(|mm, cx| space.madvise(mm, cx, range, advice)).0.unwrap();
        write(&mut machine, &mut space, range);
        let faults = if is_huge { 2 } else { 2 * HUGE };
        assert_eq!(machine.count(Event::Pgfault), faults, "{enabled:?}, {advice:?}");
        assert_eq!(machine.count(Event::ThpFaultAlloc), if is_huge { 2 } else { 0 });
        assert_eq!(space.tables.count(Level::Pte), 2, "deposited or linked");
        assert_eq!(machine.count(Event::ThpFaultFallback), 0, "nothing was wanted in vain");
        end(machine, vec![space]);
    }
    let (mut machine, mut space, range) = setup(ThpEnabled::Always, HUGE + 100);
    write(&mut machine, &mut space, range);
    assert_eq!(machine.count(Event::ThpFaultAlloc), 1, "the rest has no room for one");
    assert_eq!(machine.count(Event::Pgfault), 101);
    end(machine, vec![space]);
}

#[test]
fn without_a_huge_block_the_fault_falls_back() {
    let (mut machine, mut space, range) = setup(ThpEnabled::Always, 16 * HUGE);
    for n in 0..16 {
        write(&mut machine, &mut space, page(range, n * HUGE));
    }
    let missed = machine.count(Event::ThpFaultFallback);
    assert!(missed > 0, "page tables took a part of one block of sixteen");
    assert_eq!(machine.count(Event::ThpFaultAlloc) + missed, 16);
    assert_eq!(machine.count(Event::Pgfault), 16, "falling back is the same fault");
    write(&mut machine, &mut space, page(range, 15 * HUGE + 1));
    assert_eq!(machine.count(Event::ThpFaultFallback), missed, "its PMD has a table now");
    end(machine, vec![space]);
}

#[test]
fn the_huge_zero_page_is_allocated_once_and_splits_on_a_store() {
    let (mut machine, mut space, range) = setup(ThpEnabled::Always, 2 * HUGE);
    machine.touch(&mut space, range, Access::Read);
    assert_eq!(machine.count(Event::Pgfault), 2);
    assert_eq!(machine.count(Event::ThpZeroPageAlloc), 1, "its mappings are not counted");
    assert_eq!(space.rss_pages(), 0);
    write(&mut machine, &mut space, page(range, 7));
    assert_eq!(machine.count(Event::ThpSplitPmd), 1);
    assert_eq!((space.rss_pages(), machine.count(Event::Pgfault)), (1, 3));
    assert!(!machine.run(mm::Mm::shrink_huge_zero).0, "it is in use");
    end(machine, vec![space]);

    let (mut machine, mut space, range) = setup(ThpEnabled::Always, HUGE);
    machine.mm.thp.use_zero_page = false;
    machine.touch(&mut space, range, Access::Read);
    assert_eq!((machine.count(Event::ThpFaultAlloc), space.rss_pages()), (1, HUGE));
    end(machine, vec![space]);
}

#[test]
fn a_huge_page_unmapped_in_part_is_queued_for_a_split() {
    let (mut machine, mut space, range) = setup(ThpEnabled::Always, HUGE);
    write(&mut machine, &mut space, range);
    let allocated = machine.allocated();
    let tail = PageRange { start: range.start.plus(100), end: range.end };
    machine.run(|mm, cx| space.munmap(mm, cx, tail)).0.unwrap();
    assert_eq!(machine.count(Event::ThpSplitPmd), 1);
    assert_eq!(machine.count(Event::ThpDeferredSplitPage), 1);
    assert_eq!(machine.mm.rmap.deferred_splits().count(), 1);
    assert_eq!((machine.allocated(), space.rss_pages()), (allocated, 100));
    machine.run(|mm, cx| space.munmap(mm, cx, PageRange { start: range.start, end: tail.start })).0.unwrap();
    assert_eq!(machine.mm.rmap.deferred_splits().count(), 0);
    assert_eq!(machine.allocated(), 1, "the root table");
    end(machine, vec![space]);
}

#[test]
fn advice_about_a_part_splits_the_pmd_but_queues_nothing() {
    let (mut machine, mut space, range) = setup(ThpEnabled::Always, 2 * HUGE);
    write(&mut machine, &mut space, range);
    let second = PageRange { start: range.start.plus(HUGE), end: range.end };
    machine.run(|mm, cx| space.madvise(mm, cx, second, HugeAdvice::HugePage)).0.unwrap();
    assert_eq!(machine.count(Event::ThpSplitPmd), 0, "the border is between huge pages");
    machine.run(|mm, cx| space.madvise(mm, cx, page(range, 9), HugeAdvice::NoHugePage)).0.unwrap();
    assert_eq!(machine.count(Event::ThpSplitPmd), 1, "both ends are in the same one");
    assert_eq!(machine.count(Event::ThpDeferredSplitPage), 0);
    assert_eq!(space.rss_pages(), 2 * HUGE);
    end(machine, vec![space]);
}

#[test]
fn after_fork_the_first_store_copies_and_the_sole_owner_reuses() {
    let (mut machine, mut parent, range) = setup(ThpEnabled::Never, 8);
    write(&mut machine, &mut parent, range);
    let mut child = machine.run(|mm, cx| parent.fork(mm, cx)).0.unwrap();
    assert_eq!(child.rss_pages(), 8);
    let faults = machine.count(Event::Pgfault);
    let (_, _, copied) = machine.touch(&mut child, page(range, 0), Access::Write);
    assert_eq!(copied, 1);
    let (_, _, copied) = machine.touch(&mut parent, page(range, 0), Access::Write);
    assert_eq!(copied, 0, "the child has its own");
    machine.touch(&mut parent, range, Access::Read);
    assert_eq!(machine.count(Event::Pgfault), faults + 2, "the second is a fault all the same; loads are none");
    machine.run(|mm, cx| child.exit(mm, cx));
    let (_, _, copied) = machine.touch(&mut parent, range, Access::Write);
    assert_eq!((copied, machine.count(Event::Pgfault)), (0, faults + 9));
    end(machine, vec![parent]);
}

#[test]
fn kernels_that_count_references_copy_new_pages_in_a_batch() {
    for (name, copies) in [("v5.8", 0), ("v5.9", 1), ("v5.18", 0)] {
        let mut machine = SmallMachine::with(2048, *variant::named(name));
        machine.mm.thp.enabled = ThpEnabled::Never;
        let mut parent = machine.space();
        let range = machine.map(&mut parent, 1);
        write(&mut machine, &mut parent, range);
        let mut child = machine.run(|mm, cx| parent.fork(mm, cx)).0.unwrap();
        write(&mut machine, &mut child, range);
        let (_, _, copied) = machine.touch(&mut parent, range, Access::Write);
        assert_eq!(copied, copies, "{name}");
        end(machine, vec![parent, child]);
    }
}

#[test]
fn a_shared_huge_page_splits_on_a_store_the_last_reuses_it() {
    let (mut machine, mut parent, range) = setup(ThpEnabled::Always, HUGE);
    write(&mut machine, &mut parent, range);
    let mut child = machine.run(|mm, cx| parent.fork(mm, cx)).0.unwrap();
    assert_eq!(child.tables.count(Level::Pte), 1, "a deposit of its own");
    let (_, _, copied) = machine.touch(&mut child, page(range, 3), Access::Write);
    assert_eq!((copied, machine.count(Event::ThpSplitPmd)), (1, 1));
    assert_eq!(machine.count(Event::ThpDeferredSplitPage), 0, "the parent maps all of it");
    machine.run(|mm, cx| child.exit(mm, cx));
    let faults = machine.count(Event::Pgfault);
    let (_, _, copied) = machine.touch(&mut parent, range, Access::Write);
    assert_eq!((copied, machine.count(Event::Pgfault)), (0, faults + 1), "one fault for all of it");
    assert!(matches!(parent.tables.pmd_of(range.start), Pmd::Huge(huge) if huge.is_writable()));
    end(machine, vec![parent]);
}

#[test]
fn a_huge_page_is_queued_after_its_last_huge_entry() {
    let (mut machine, mut parent, range) = setup(ThpEnabled::Always, HUGE);
    write(&mut machine, &mut parent, range);
    let mut child = machine.run(|mm, cx| parent.fork(mm, cx)).0.unwrap();
    let tail = PageRange { start: range.start.plus(100), end: range.end };
    machine.run(|mm, cx| child.munmap(mm, cx, tail)).0.unwrap();
    assert_eq!(machine.count(Event::ThpDeferredSplitPage), 0, "the parent maps all of it");
    machine.run(|mm, cx| parent.munmap(mm, cx, range)).0.unwrap();
    assert_eq!(machine.count(Event::ThpDeferredSplitPage), 1);
    let (_, _, copied) = machine.touch(&mut child, page(range, 0), Access::Write);
    assert_eq!(copied, 1, "99 other entries map the folio");
    end(machine, vec![parent, child]);
}

#[test]
fn a_fork_leaves_out_what_only_shows_zeros() {
    let (mut machine, mut parent, range) = setup(ThpEnabled::Never, 8);
    machine.touch(&mut parent, range, Access::Read);
    let child = machine.run(|mm, cx| parent.fork(mm, cx)).0.unwrap();
    assert_eq!(
        machine.run(|mm, cx| child.mincore(mm, cx, range)).0,
        Ok(vec![false; 8]),
        "no anonymous page was ever here"
    );
    assert_eq!(child.tables.count(Level::Pte), 0);
    end(machine, vec![parent, child]);
}

#[test]
fn page_tables_go_with_the_last_mapping_that_they_cover() {
    let (mut machine, mut space, range) = setup(ThpEnabled::Never, 3 * HUGE);
    write(&mut machine, &mut space, range);
    let unmap = |machine: &mut SmallMachine, space: &mut AddressSpace, from: u64, to: u64| {
        let part = PageRange { start: range.start.plus(from), end: range.start.plus(to) };
        machine.run(|mm, cx| space.munmap(mm, cx, part)).0.unwrap();
        space.tables.count(Level::Pte)
    };
    assert_eq!(unmap(&mut machine, &mut space, 10, HUGE), 3);
    assert_eq!(unmap(&mut machine, &mut space, HUGE + 5, 3 * HUGE), 2, "the third table covers nothing");
    assert_eq!(unmap(&mut machine, &mut space, HUGE, HUGE + 5), 1);
    assert_eq!(unmap(&mut machine, &mut space, 0, 10), 0);
    assert_eq!([Level::Pmd, Level::Pud, Level::Pgd].map(|level| space.tables.count(level)), [0, 0, 1]);
    end(machine, vec![space]);
}

#[test]
fn a_fault_that_others_overtook_gives_its_huge_page_back() {
    let (mut machine, mut space, range) = setup(ThpEnabled::Always, HUGE);
    let mut slow = FaultControl::new(range.start, Access::Write);
    assert_eq!(machine.run(|mm, cx| slow.step(mm, &mut space, cx)).0, Step::More);
    write(&mut machine, &mut space, page(range, 1));
    let allocated = machine.allocated();
    assert_eq!(machine.run(|mm, cx| slow.step(mm, &mut space, cx)).0, Step::Done(FaultDone::Handled));
    assert_eq!(machine.allocated(), allocated - HUGE - 1, "the page and its deposit");
    let mut killed = FaultControl::new(range.start, Access::Write);
    machine.run(|mm, cx| space.munmap(mm, cx, range)).0.unwrap();
    let range = machine.map(&mut space, HUGE);
    assert_eq!(range.start, Vpn(range.start.0));
    assert_eq!(machine.run(|mm, cx| killed.step(mm, &mut space, cx)).0, Step::More);
    machine.run(|mm, cx| killed.abort(mm, &mut space, cx));
    end(machine, vec![space]);
}

#[test]
fn wrong_addresses_and_full_memory_are_said() {
    let (mut machine, mut space, range) = setup(ThpEnabled::Never, 20 * HUGE);
    let below = PageRange::new(Vpn(range.start.0 - 1), 1);
    assert_eq!(machine.touch(&mut space, below, Access::Read).0, FaultDone::BadAddress);
    assert_eq!(machine.touch(&mut space, range, Access::Write).0, FaultDone::OutOfMemory);
    assert_eq!(machine.count(Event::Pgfault), space.rss_pages() + 1, "the last one, once; the wrong one not");
    assert!(machine.run(|mm, cx| space.fork(mm, cx)).0.is_err());
    end(machine, vec![space]);
}

#[test]
fn strides_touch_what_they_say() {
    let (mut machine, mut space, range) = setup(ThpEnabled::Always, HUGE + 4);
    let start = VirtAddr(range.start.0 * 4096);
    let mut faults = 0;
    for (offset, len, stride, touches, new_faults) in [
        (0, 4096, 1024, 4, 1),
        (100, 8192, 4096, 2, 0),
        (0, 2 << 20, 8192, 256, 0),
        (2 << 20, 16384, 12288, 2, 2),
        (2 << 20, 16384, 16384, 1, 0),
        ((2 << 20) + 5, 1, 1, 1, 0),
    ] {
        let mut touch = Touch::new(VirtAddr(start.0 + offset), Bytes(len), Bytes(stride), Access::Write);
        let mut touched = 0;
        for _ in 0..10 {
            let (step, _, _, n) = machine.run(|mm, cx| touch.step(mm, &mut space, cx, Time(u64::MAX)));
            touched += n;
            if step == Step::Done(FaultDone::Handled) {
                break;
            }
        }
        faults += new_faults;
        assert_eq!((touched, machine.count(Event::Pgfault)), (touches, faults), "{offset}, {len}, {stride}");
    }
    end(machine, vec![space]);
}

#[test]
fn unmapping_goes_on_where_it_stopped() {
    let (mut machine, mut space, range) = setup(ThpEnabled::Never, HUGE);
    write(&mut machine, &mut space, range);
    let mut unmap = Unmap::new(range);
    let mut steps = 1;
    while machine.run(|mm, cx| unmap.step(mm, &mut space, cx, Time(0))).0 == Step::More {
        steps += 1;
        assert!(steps <= 2 * (HUGE / 32) + 6, "32 pages, or 32 folios, a step");
    }
    assert!(steps >= 2 * (HUGE / 32));
    assert!(space.vmas.is_empty() && space.rss_pages() == 0);
    end(machine, vec![space]);
}
