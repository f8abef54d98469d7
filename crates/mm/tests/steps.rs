//! Operations in steps: each is short, and between two of them every frame is somebody's.

mod small_machine;

use pagelab_mm::{
    AllocRequest, ControlId, Frame, Mm,
    address_space::AddressSpace,
    check::{self, Owners},
    cost::Cx,
    event::Event,
    fault::{Access, FaultControl, FaultDone},
    fork::Fork,
    frame::Holdings,
    step::Step,
    thp::ThpEnabled,
    unmap::Unmap,
    vma::PageRange,
};
use small_machine::SmallMachine;
use units::{CpuId, Errno, NodeId, Order, Time};

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
    check::walk_owners(&machine.mm, &Owners { spaces: spaces.to_vec(), controls: vec![(ME, holdings)] })
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
fn a_fault_owns_its_huge_page_and_its_table_until_they_are_mapped() {
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
        assert_eq!(machine.mm.frames.get(held.pfn), Frame::Isolated { owner: ME, order });
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
    assert_eq!(steps, 3 * HUGE / 32 + 1 + 1, "runs, and the end");
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
    let kept = machine.run(|mm, cx| mm.alloc(cx, &kernel.of_order(Order(4)))).0.unwrap();
    while machine.run(|mm, cx| mm.alloc(cx, &kernel)).0.is_some() {}
    machine.run(|mm, cx| mm.free(cx, kept, Order(4)));
    let allocated = machine.allocated();
    let (steps, child) = fork_by_steps(&mut machine, &mut parent);
    assert_eq!(child.unwrap_err(), Errno::NOMEM);
    assert!(steps > 4 * HUGE / 32, "{steps}: it found some of its tables, and took them down again");
    assert_eq!(machine.allocated(), allocated);
}
