//! Operations in steps: each is short, and between two of them every frame is somebody's.

use memory::{
    cx::Cx,
    event::Event,
    frame::{ControlId, Frame, Holdings},
    step::Step,
};
use mm::{
    Mm,
    fault::{Access, FaultControl, FaultDone},
    space::{
        address_space::AddressSpace,
        fork::Fork,
        page_table::Pmd,
        unmap::Unmap,
        vma::{HugeAdvice, PageRange},
    },
    thp::ThpEnabled,
    whole::check::{self, Owners},
};
use rules::{gfp::AllocRequest, variant};
use units::{CpuId, Errno, NodeId, Order, Pfn, Time};

use crate::small_machine::SmallMachine;

const HUGE: u64 = 512;
const ME: ControlId = ControlId(7);

/// A run of pages or folios, and what it may set off: a batch of the gather that goes back, or comes.
const STEP: u64 = 32;

fn step<T>(machine: &mut SmallMachine, body: impl FnOnce(&mut Mm, &mut Cx) -> T) -> T {
    let cx = Cx::new(CpuId(0), Time(0), &machine.prices, &mut machine.counters);
    body(&mut machine.mm, &mut cx.acting_for(ME))
}

fn owners(machine: &SmallMachine, spaces: &[&AddressSpace], holdings: Holdings) -> Result<(), check::Broken> {
    check::walk(&machine.mm).unwrap();
    check::walk_owners(&machine.mm, &Owners { spaces: spaces.to_vec(), controls: vec![(ME, holdings)] }).map(|_| ())
}

fn written(enabled: ThpEnabled, blocks: u32, pages: u64) -> (SmallMachine, AddressSpace, PageRange) {
    let mut machine = SmallMachine::new(blocks * 512);
    machine.mm.thp.enabled = enabled;
    let mut space = machine.space();
    let range = machine.map(&mut space, pages);
    assert_eq!(machine.touch(&mut space, range, Access::Write).0, FaultDone::Handled);
    (machine, space, range)
}

#[test]
fn a_fault_owns_its_huge_page_and_table_until_mapped() {
    let mut machine = SmallMachine::new(16 * 512);
    let mut space = machine.space();
    let range = machine.map(&mut space, HUGE);
    let mut fault = FaultControl::new(range.start, Access::Write);
    assert_eq!(step(&mut machine, |mm, cx| fault.step(mm, &mut space, cx)), Step::More);
    let holdings = fault.holdings(&space);
    let orders: Vec<_> = holdings.isolated.iter().map(|held| held.order).collect();
    assert_eq!(orders, [Order::HUGE, Order::BASE]);
    for held in &holdings.isolated {
        let order = held.order;
        assert_eq!(machine.mm.memory.frames.get(held.pfn), Frame::Isolated { owner: ME, order });
    }
    owners(&machine, &[&space], holdings.clone()).unwrap();

    // Whoever does not say what he holds, or says it of what he does not hold, is found out.
    assert!(owners(&machine, &[&space], Holdings::default()).is_err(), "a frame that nobody has");
    let mut lies = holdings.clone();
    lies.isolated[1].pfn = lies.isolated[0].pfn.plus(512);
    assert!(owners(&machine, &[&space], lies).is_err());
    let twice = Holdings { isolated: [holdings.isolated.clone(), holdings.isolated.clone()].concat(), ..holdings };
    assert!(owners(&machine, &[&space], twice).is_err());
    let mut other = machine.mm.clone();
    other
        .memory
        .frames
        .set(fault.holdings(&space).isolated[0].pfn, Frame::Isolated { owner: ControlId(8), order: Order::HUGE });
    let says = Owners { spaces: vec![&space], controls: vec![(ME, fault.holdings(&space))] };
    assert!(check::walk_owners(&other, &says).is_err(), "it is another's");
    assert!(check::walk_owners(&machine.mm, &Owners { spaces: Vec::new(), ..says }).is_err(), "tables of no process");

    assert_eq!(step(&mut machine, |mm, cx| fault.step(mm, &mut space, cx)), Step::Done(FaultDone::Handled));
    owners(&machine, &[&space], fault.holdings(&space)).unwrap();
}

#[test]
#[should_panic(expected = "is held by ControlId(0)")]
fn a_control_goes_on_with_its_own_number() {
    let mut machine = SmallMachine::new(16 * 512);
    let mut space = machine.space();
    let range = machine.map(&mut space, HUGE);
    let mut fault = FaultControl::new(range.start, Access::Write);
    assert_eq!(step(&mut machine, |mm, cx| fault.step(mm, &mut space, cx)), Step::More);
    machine.run(|mm, cx| fault.step(mm, &mut space, cx));
}

/// Takes all steps of an unmapping, each bounded, and asks everybody between them; says how many there were.
fn unmap_by_steps(machine: &mut SmallMachine, space: &mut AddressSpace, mut unmap: Unmap) -> u64 {
    let huge = machine.count(Event::ThpFaultAlloc);
    let mut steps = 0;
    let mut held_most = 0;
    loop {
        let freed = machine.count(Event::Pgfree);
        let done = step(machine, |mm, cx| unmap.step(mm, space, cx, Time(0)));
        steps += 1;
        let freed = machine.count(Event::Pgfree) - freed;
        let most = if huge > 0 { STEP * HUGE } else { STEP };
        assert!(freed <= most, "{freed} frames in step {steps}");
        let holdings = unmap.holdings();
        held_most = held_most.max(holdings.gathered.len());
        owners(machine, &[&*space], holdings).unwrap();
        match done {
            Step::More => {}
            other => {
                assert_eq!(other, Step::Done(Ok(())));
                assert!(held_most > 0, "something was gathered on the way");
                return steps;
            }
        }
    }
}

#[test]
fn unmapping_more_than_the_gather_holds_goes_in_short_steps() {
    // 8 folios, and 19 batches of 510, are all that it holds.
    let pages = 8 + 19 * 510 + 100;
    let (mut machine, mut space, range) = written(ThpEnabled::Never, 24, pages);
    let mut at_once = (machine.mm.clone(), space.clone());
    let steps = unmap_by_steps(&mut machine, &mut space, Unmap::new(range));
    assert!(steps >= 2 * pages / 32, "{steps}");
    assert_eq!(machine.allocated(), 1, "the root table");

    // In one step: the same frames in the same order on every list.
    let mut unmap = Unmap::new(range);
    let (mm, space) = (&mut at_once.0, &mut at_once.1);
    let mut counters = machine.counters.clone();
    let mut cx = Cx::new(CpuId(0), Time(0), &machine.prices, &mut counters);
    assert_eq!(unmap.step(mm, space, &mut cx, Time(1)), Step::Done(Ok(())));
    assert_eq!(format!("{mm:?}"), format!("{:?}", machine.mm));
}

#[test]
fn the_end_of_a_process_goes_in_short_steps() {
    for enabled in [ThpEnabled::Always, ThpEnabled::Never] {
        let (mut machine, mut space, range) = written(enabled, 24, 9 * HUGE + 40);
        // Far away mappings bring tables of their own.
        let far: Vec<_> = (0..40).map(|_| machine.map(&mut space, HUGE * HUGE)).collect();
        for range in &far {
            machine.touch(&mut space, PageRange::new(range.start, 1), Access::Read);
        }
        machine.touch(&mut space, PageRange::new(range.start, 1), Access::Write);
        let steps = unmap_by_steps(&mut machine, &mut space, Unmap::everything());
        assert!(steps > 3, "{steps}");
        step(&mut machine, |mm, cx| space.end(mm, cx));
        machine.run(Mm::shrink_huge_zero);
        assert_eq!(machine.allocated(), 0);
    }
}

/// Takes all steps of a fork, and asks everybody between them; says how many there were.
fn fork_by_steps(machine: &mut SmallMachine, parent: &mut AddressSpace) -> (u64, Result<AddressSpace, Errno>) {
    let mut fork = Fork::new();
    let mut steps = 0;
    loop {
        let (freed, rss) = (machine.count(Event::Pgfree), fork.child().map_or(0, AddressSpace::rss_pages));
        let done = step(machine, |mm, cx| fork.step(mm, parent, cx, Time(0)));
        steps += 1;
        assert!(machine.count(Event::Pgfree) - freed <= STEP + 1, "a run, and the root");
        if let Step::Done(result) = done {
            return (steps, result);
        }
        let child = fork.child().expect("there is more to do for it");
        assert!(child.rss_pages() <= rss + 32, "a run of pages at a time");
        owners(machine, &[&*parent, child], fork.holdings()).unwrap();
    }
}

#[test]
fn a_fork_copies_32_entries_a_step() {
    let (mut machine, mut parent, _) = written(ThpEnabled::Never, 16, 3 * HUGE + 10);
    let (steps, child) = fork_by_steps(&mut machine, &mut parent);
    assert_eq!(steps, 1 + 3 * HUGE / 32 + 1 + 1 + 1, "a VMA, runs, its end, and the end");
    let child = child.unwrap();
    owners(&machine, &[&parent, &child], Holdings::default()).unwrap();
    assert_eq!(child.rss_pages(), parent.rss_pages());
    let mut fork = Fork::new();
    for _ in 0..20 {
        assert!(matches!(step(&mut machine, |mm, cx| fork.step(mm, &mut parent, cx, Time(0))), Step::More));
    }
    step(&mut machine, |mm, cx| fork.abort(mm, cx));
    owners(&machine, &[&parent, &child], Holdings::default()).unwrap();
}

#[test]
fn a_fork_without_memory_takes_itself_back_in_short_steps() {
    let (mut machine, mut parent, _) = written(ThpEnabled::Never, 16, 14 * HUGE);
    // All but sixteen frames, a block too large for the per-CPU lists, go elsewhere.
    let kernel = AllocRequest::gfp_kernel(NodeId(0));
    let kept = machine.run(|mm, cx| mm.memory.alloc(cx, &kernel.of_order(Order(4)))).0.unwrap();
    while machine.run(|mm, cx| mm.memory.alloc(cx, &kernel)).0.is_ok() {}
    machine.run(|mm, cx| mm.memory.free(cx, kept, Order(4)));
    let allocated = machine.allocated();
    let (steps, child) = fork_by_steps(&mut machine, &mut parent);
    assert_eq!(child.unwrap_err(), Errno::NOMEM);
    assert!(steps > 4 * HUGE / 32, "{steps}: it found some of its tables, and took them down again");
    assert_eq!(machine.allocated(), allocated);
}

/// The huge page in a mapping that is not aligned to one.
fn huge_part(range: PageRange) -> PageRange {
    PageRange::new(range.start.plus(HUGE - 1).huge_start(), HUGE)
}

/// A parent and a child that share one huge page, before 5.8; with a full memory but for `spare` frames if it says so.
fn sharing(spare: Option<u8>) -> (SmallMachine, AddressSpace, AddressSpace, PageRange) {
    let mut machine = SmallMachine::with(16 * 512, *variant::named("v4.20"));
    let mut parent = machine.space();
    let range = huge_part(machine.map(&mut parent, 2 * HUGE));
    assert_eq!(machine.touch(&mut parent, range, Access::Write).0, FaultDone::Handled);
    let child = machine.run(|mm, cx| parent.fork(mm, cx)).0.unwrap();
    if let Some(order) = spare {
        let kernel = AllocRequest::gfp_kernel(NodeId(0));
        let pieces: Vec<_> = (0..1 << order >> 8)
            .map(|_| machine.run(|mm, cx| mm.memory.alloc(cx, &kernel.of_order(Order(8)))).0.unwrap())
            .collect();
        // What separates the pieces keeps them from becoming a huge page again.
        for order in (0..=10).rev().map(Order) {
            while machine.run(|mm, cx| mm.memory.alloc(cx, &kernel.of_order(order))).0.is_ok() {}
        }
        for piece in pieces.into_iter().step_by(2) {
            machine.run(|mm, cx| mm.memory.free(cx, piece, Order(8)));
        }
    }
    (machine, parent, child, range)
}

/// Takes all steps of a store's fault, and asks everybody between them; says how many there were, and what was copied.
fn store_by_steps(
    machine: &mut SmallMachine,
    space: &mut AddressSpace,
    other: &AddressSpace,
    page: PageRange,
) -> (u64, u64) {
    let mut fault = FaultControl::new(page.start, Access::Write);
    let (mut steps, mut copied) = (0, 0);
    loop {
        let (done, price) = step(machine, |mm, cx| (fault.step(mm, space, cx), cx.spent().total().0));
        (steps, copied) = (steps + 1, copied + price / 1_000_000);
        match done {
            Step::More => owners(machine, &[&*space, other], fault.holdings(space)).unwrap(),
            end => {
                assert_eq!(end, Step::Done(FaultDone::Handled));
                owners(machine, &[&*space, other], Holdings::default()).unwrap();
                return (steps, copied);
            }
        }
    }
}

#[test]
fn before_5_8_a_store_copies_the_whole_huge_page() {
    let (mut machine, parent, mut child, range) = sharing(None);
    let page = PageRange::new(range.start.plus(3), 1);
    assert_eq!(store_by_steps(&mut machine, &mut child, &parent, page), (2, HUGE));
    assert_eq!(
        [Event::ThpFaultAlloc, Event::ThpFaultFallback, Event::ThpSplitPmd].map(|e| machine.count(e)),
        [2, 0, 0]
    );
    assert!(matches!(child.tables.pmd_of(range.start), Pmd::Huge(huge) if huge.is_writable()));
    assert_ne!(child.tables.lookup(range.start).pfn(), parent.tables.lookup(range.start).pfn());
    for space in [parent, child] {
        assert_eq!(space.rss_pages(), HUGE);
        machine.run(|mm, cx| space.exit(mm, cx));
    }
    assert_eq!(machine.allocated(), 0);
}

#[test]
fn without_a_huge_page_it_copies_512_base_pages() {
    let (mut machine, mut parent, mut child, range) = sharing(Some(11));
    let before = machine.allocated();
    let page = PageRange::new(range.start.plus(3), 1);
    assert_eq!(
        store_by_steps(&mut machine, &mut child, &parent, page),
        (18, HUGE),
        "a try in vain, sixteen runs, and the mapping"
    );
    assert_eq!(
        [Event::ThpFaultAlloc, Event::ThpFaultFallback, Event::ThpSplitPmd].map(|e| machine.count(e)),
        [1, 1, 0]
    );
    assert_eq!((machine.allocated() - before, child.rss_pages()), (HUGE, HUGE));
    assert!(child.tables.lookup(range.start.plus(HUGE - 1)).is_writable());
    let (_, _, copied) = machine.touch(&mut parent, range, Access::Write);
    assert_eq!(copied, 0, "the other one is alone with it now");
    machine.run(|mm, cx| child.exit(mm, cx));
    machine.run(|mm, cx| parent.exit(mm, cx));
}

#[test]
fn without_512_base_pages_it_splits_the_pmd_and_copies_one() {
    let (mut machine, parent, mut child, range) = sharing(Some(9));
    let page = PageRange::new(range.start.plus(3), 1);
    let (steps, copied) = store_by_steps(&mut machine, &mut child, &parent, page);
    assert!(steps > 8, "{steps}: some pages came and went");
    assert_eq!(copied, 1);
    assert_eq!(
        [Event::ThpFaultAlloc, Event::ThpFaultFallback, Event::ThpSplitPmd].map(|e| machine.count(e)),
        [1, 1, 1]
    );
}

#[test]
fn a_copy_that_somebody_else_was_faster_with_is_given_back() {
    for (spare, steps) in [(None, 1), (Some(11), 4)] {
        let (mut machine, parent, mut child, range) = sharing(spare);
        let mut slow = FaultControl::new(range.start, Access::Write);
        for _ in 0..steps {
            assert_eq!(step(&mut machine, |mm, cx| slow.step(mm, &mut child, cx)), Step::More);
        }
        let held = slow.holdings(&child);
        let mut killed = slow.clone();
        let mut other = (machine.mm.clone(), child.clone());
        // A thread changes the advice of a part, which splits the PMD.
        let part = PageRange::new(range.start.plus(9), 1);
        machine.run(|mm, cx| child.madvise(mm, cx, part, HugeAdvice::NoHugePage)).0.unwrap();
        while step(&mut machine, |mm, cx| slow.step(mm, &mut child, cx)) == Step::More {
            owners(&machine, &[&parent, &child], slow.holdings(&child)).unwrap();
        }
        owners(&machine, &[&parent, &child], Holdings::default()).unwrap();
        assert_eq!(child.rss_pages(), HUGE);
        // And a task that is killed gives back what it has.
        assert!(!held.isolated.is_empty());
        std::mem::swap(&mut machine.mm, &mut other.0);
        step(&mut machine, |mm, cx| killed.abort(mm, &mut other.1, cx));
        owners(&machine, &[&parent, &other.1], Holdings::default()).unwrap();
    }
}

#[test]
fn before_5_8_a_store_to_the_huge_zero_page_clears_one() {
    let mut machine = SmallMachine::with(16 * 512, *variant::named("v4.20"));
    let mut space = machine.space();
    let range = huge_part(machine.map(&mut space, 2 * HUGE));
    machine.touch(&mut space, range, Access::Read);
    let (_, cleared, copied) = machine.touch(&mut space, PageRange::new(range.start, 1), Access::Write);
    assert_eq!((cleared, copied, space.rss_pages()), (HUGE, 0, HUGE));
    assert_eq!([Event::ThpFaultAlloc, Event::ThpSplitPmd].map(|event| machine.count(event)), [1, 0]);
    machine.run(|mm, cx| space.exit(mm, cx));
    machine.run(Mm::shrink_huge_zero);
    assert_eq!(machine.allocated(), 0);
}

#[test]
fn vmas_take_slabs_and_give_them_back() {
    let mut machine = SmallMachine::new(16 * 512);
    let mut space = machine.space();
    let range = machine.map(&mut space, 200);
    let slabs = |machine: &SmallMachine| {
        let is_slab = |pfn: &u32| matches!(machine.mm.memory.frames.get(Pfn(*pfn)), Frame::Slab(_));
        (0..machine.frames).filter(is_slab).count()
    };
    assert_eq!(slabs(&machine), 2, "its own, and its VMA's");
    // Every other page goes: a hundred VMAs, twenty in a frame.
    for n in 0..100 {
        let page = PageRange::new(range.start.plus(2 * n), 1);
        machine.run(|mm, cx| space.munmap(mm, cx, page)).0.unwrap();
        owners(&machine, &[&space], Holdings::default()).unwrap();
    }
    assert_eq!((space.vmas.len(), slabs(&machine)), (100, 1 + 6), "102 for a moment");
    let mut fork = Fork::new();
    let mut child = loop {
        match step(&mut machine, |mm, cx| fork.step(mm, &mut space, cx, Time(0))) {
            Step::Done(child) => break child.unwrap(),
            _ => owners(&machine, &[&space, fork.child().unwrap()], fork.holdings()).unwrap(),
        }
    };
    assert_eq!((child.vmas.len(), slabs(&machine)), (100, 1 + 10), "the child has its own VMAs");
    let mut unmap = Unmap::everything();
    while step(&mut machine, |mm, cx| unmap.step(mm, &mut child, cx, Time(0))) == Step::More {
        owners(&machine, &[&space, &child], unmap.holdings()).unwrap();
    }
    machine.run(|mm, cx| child.end(mm, cx));
    assert!(slabs(&machine) <= 1 + 6 + 5, "five may stay");
    owners(&machine, &[&space], Holdings::default()).unwrap();
    machine.run(|mm, cx| space.munmap(mm, cx, range)).0.unwrap();
    machine.run(|mm, cx| space.exit(mm, cx));
    assert_eq!(machine.allocated(), 0);
}

#[test]
fn without_memory_for_a_vma_there_is_no_mapping() {
    let mut machine = SmallMachine::new(512);
    let mut space = machine.space();
    let range = machine.map(&mut space, 64);
    let kernel = AllocRequest::gfp_kernel(NodeId(0));
    while machine.run(|mm, cx| mm.memory.alloc(cx, &kernel)).0.is_ok() {}
    // Every other page goes, until twenty VMAs fill the slab that is there.
    let mut split = 0;
    let error = loop {
        let page = PageRange::new(range.start.plus(1 + 2 * split), 1);
        match machine.run(|mm, cx| space.munmap(mm, cx, page)).0 {
            Ok(()) => split += 1,
            Err(error) => break error,
        }
    };
    // The last one still was cut at its start.
    assert_eq!((error, split, space.vmas.len()), (Errno::NOMEM, 18, 20));
    owners(&machine, &[&space], Holdings::default()).unwrap();
}
