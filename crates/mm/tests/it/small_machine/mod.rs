//! One node with one zone, and prices that tell clearing from copying.

use memory::{
    cost::{Prices, Work},
    cx::Cx,
    event::{Counters, Event},
    frame::Frame,
    step::Step,
};
use mm::{
    Mm,
    fault::{Access, FaultDone, touch::Touch},
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        vma::PageRange,
    },
};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{self, Variant},
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Order, Pfn, Picos, Time};

pub(crate) struct SmallMachine {
    pub(crate) mm: Mm,
    pub(crate) counters: Counters,
    pub(crate) prices: Prices,
    pub(crate) frames: u32,
}

#[allow(dead_code, reason = "each test file uses its part")]
impl SmallMachine {
    pub(crate) fn new(frames: u32) -> Self {
        Self::with(frames, *variant::named("v6.7"))
    }

    pub(crate) fn with(frames: u32, variant: Variant) -> Self {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), frames);
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] };
        let prices = Prices::new(|work| match work {
            Work::ClearFrame => Picos(1),
            Work::CopyFrame => Picos(1_000_000),
            Work::UserTouch => Picos(1_000_000_000_000),
            _ => Picos(0),
        });
        // Nobody steps kswapd here, so that raised marks would stay.
        let mm = Mm::new(&machine, variant, &Settings { watermark_boost_factor: 0, ..Settings::default() });
        Self { mm, counters: Counters::default(), prices, frames }
    }

    /// Runs one operation, and says how many frames it cleared, how many it copied, how many pages it touched.
    pub(crate) fn run<T>(&mut self, body: impl FnOnce(&mut Mm, &mut Cx) -> T) -> (T, u64, u64, u64) {
        let mut cx = Cx::new(CpuId(0), Time(0), &self.prices, &mut self.counters);
        let result = body(&mut self.mm, &mut cx);
        let spent = cx.spent().total().0;
        (result, spent % 1_000_000, spent / 1_000_000 % 1_000_000, spent / 1_000_000_000_000)
    }

    pub(crate) fn space(&mut self) -> AddressSpace {
        self.run(|mm, cx| AddressSpace::new(mm, cx, MMAP_BASE)).0.unwrap()
    }

    pub(crate) fn map(&mut self, space: &mut AddressSpace, pages: u64) -> PageRange {
        self.run(|mm, cx| space.mmap(mm, cx, pages)).0.unwrap()
    }

    /// Accesses each page of a range in many small steps; clears and copies along the way.
    pub(crate) fn touch(
        &mut self,
        space: &mut AddressSpace,
        range: PageRange,
        access: Access,
    ) -> (FaultDone, u64, u64) {
        let mut touch = Touch::pages(range, access);
        let (mut cleared, mut copied) = (0, 0);
        loop {
            let (step, clears, moves, _) = self.run(|mm, cx| touch.step(mm, space, cx, Time(40_000_000_000_000)));
            cleared += clears;
            copied += moves;
            match step {
                Step::More => {}
                Step::Block(wait) => panic!("nothing waits here, but for {wait:?}"),
                Step::Done(done) => return (done, cleared, copied),
            }
        }
    }

    pub(crate) fn count(&self, event: Event) -> u64 {
        self.counters.get(event)
    }

    /// Frames that somebody owns, but for slabs, which stay a while when they are empty.
    pub(crate) fn allocated(&self) -> u64 {
        let owned = |pfn| match self.mm.memory.frames.get(Pfn(pfn)) {
            Frame::Interior
            | Frame::Free { .. }
            | Frame::Pcp { .. }
            | Frame::Tail { .. }
            | Frame::Slab(_)
            | Frame::Reserved => 0,
            frame => u64::from(self.mm.memory.frames.order_of(frame).frames()),
        };
        (0..self.frames).map(owned).sum()
    }
}
