//! Linux: none; Everything at once, in random order.

use memory::{
    event::Event,
    frame::{Holdings, SpaceId},
    pageblock::ZoneIndex,
    step::{Step, Wait},
    suitable::Suitable,
};
use rules::{
    gfp::{AllocRequest, Urgency},
    variant::Variant,
    zone::ZoneKind,
};
use units::{NodeId, Order, Pfn, Time};

use super::{
    lab::{Lab, ME, OTHER, rules},
    series,
};
use crate::{
    compact::{CompactPriority, DirectCompact},
    fault::{Access, FaultDone, touch::Touch},
    space::{unmap::Unmap, vma::PageRange},
};

/// A stream of numbers (xorshift64*).
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

/// The activity of another task.
enum Doing {
    Nothing,
    Touching(SpaceId, Touch),
    Unmapping(SpaceId, PageRange, Unmap),
}

pub(super) struct World {
    pub(super) lab: Lab,
    draws: Draws,
    doing: Doing,
    /// The folio that it waits for.
    waits: Option<Pfn>,
    blocks: Vec<(Pfn, Order)>,
    compact: Option<DirectCompact>,
    waited: u32,
    /// Marks are raised and come down again; how often a zone was not compacted for that.
    spared: Option<u32>,
}

impl World {
    fn holdings(&self) -> (Holdings, Holdings) {
        let mine = self.compact.as_ref().map_or_else(Holdings::default, DirectCompact::holdings);
        let others = match &self.doing {
            Doing::Nothing => Holdings::default(),
            Doing::Touching(id, touch) => touch.holdings(self.lab.spaces.get(*id).unwrap()),
            Doing::Unmapping(_, _, unmap) => unmap.holdings(),
        };
        (mine, others)
    }

    fn any_page(&mut self) -> Option<(SpaceId, PageRange)> {
        let mapped = &self.lab.mapped;
        let (id, range) = *mapped.get(usize::try_from(self.draws.below(mapped.len().max(1) as u64)).unwrap())?;
        let from = self.draws.below(range.pages());
        let pages = 1 + self.draws.below((range.pages() - from).min(40));
        Some((id, PageRange::new(range.start.plus(from), pages)))
    }

    fn begin(&mut self) {
        match self.draws.below(10) {
            0..=5 => {
                if let Some((id, part)) = self.any_page() {
                    let access = if self.draws.below(3) == 0 { Access::Read } else { Access::Write };
                    self.doing = Doing::Touching(id, Touch::pages(part, access));
                }
            }
            6 | 7 => {
                if let Some((id, part)) = self.any_page() {
                    self.doing = Doing::Unmapping(id, part, Unmap::new(part));
                }
            }
            8 => {
                // A fork: the child shares, until one of them stores.
                if let Some((id, _)) = self.any_page()
                    && self.lab.spaces.iter().count() < 5
                    && self.compact.is_none()
                {
                    let child = self.lab.step(OTHER, |mm, spaces, cx| spaces.get_mut(id).unwrap().fork(mm, cx));
                    if let Ok(child) = child {
                        self.lab.spaces.add(child);
                    }
                }
            }
            _ => {
                let ids: Vec<_> = self.lab.spaces.iter().map(|(id, _)| id).collect();
                if ids.len() > 3 {
                    let id = ids[usize::try_from(self.draws.below(ids.len() as u64)).unwrap()];
                    self.lab.end(id);
                }
            }
        }
    }

    /// A step of another task.
    fn other(&mut self) {
        if let Some(pfn) = self.waits {
            if !self.lab.mm.memory.take_unlocked().contains(&pfn) {
                return;
            }
            self.waits = None;
        }
        match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing => self.begin(),
            Doing::Touching(id, mut touch) => {
                let step =
                    self.lab.step(OTHER, |mm, spaces, cx| touch.step(mm, spaces.get_mut(id).unwrap(), cx, Time(0)));
                match step {
                    Step::More => self.doing = Doing::Touching(id, touch),
                    Step::Block(Wait::Folio(pfn)) => {
                        self.waited += 1;
                        self.waits = Some(pfn);
                        self.doing = Doing::Touching(id, touch);
                    }
                    Step::Block(wait) => panic!("{wait:?}"),
                    Step::Done(FaultDone::Handled | FaultDone::BadAddress) => {}
                    Step::Done(FaultDone::BusError) => panic!("nothing is on a device"),
                    Step::Done(FaultDone::OutOfMemory) => {
                        self.lab.step(OTHER, |mm, spaces, cx| touch.abort(mm, spaces.get_mut(id).unwrap(), cx));
                        self.free_blocks();
                    }
                }
            }
            Doing::Unmapping(id, part, mut unmap) => {
                let step =
                    self.lab.step(OTHER, |mm, spaces, cx| unmap.step(mm, spaces.get_mut(id).unwrap(), cx, Time(0)));
                match step {
                    Step::More => self.doing = Doing::Unmapping(id, part, unmap),
                    Step::Block(wait) => panic!("{wait:?}"),
                    Step::Done(_) => {}
                }
            }
        }
    }

    fn free_blocks(&mut self) {
        for (pfn, order) in std::mem::take(&mut self.blocks) {
            self.lab.step(OTHER, |mm, _, cx| mm.memory.free(cx, pfn, order));
        }
    }

    /// The allocator's turn.
    fn alloc_or_free(&mut self) {
        let order = Order(u8::try_from(self.draws.below(5)).unwrap());
        if self.draws.below(2) == 0 || self.blocks.len() > 40 {
            if self.blocks.is_empty() {
                return;
            }
            let at = usize::try_from(self.draws.below(self.blocks.len() as u64)).unwrap();
            let (pfn, order) = self.blocks.swap_remove(at);
            self.lab.step(OTHER, |mm, _, cx| mm.memory.free(cx, pfn, order));
        } else {
            let request = AllocRequest::gfp_nowait(NodeId(0)).of_order(order);
            let block = self.lab.step(OTHER, |mm, _, cx| mm.memory.alloc(cx, &request));
            self.blocks.extend(block.map(|pfn| (pfn, order)));
        }
    }

    /// Raises marks as if pageblocks were broken up, or lowers them as if kswapd had made room again.
    fn raise_marks(&mut self, order: Order) {
        let Some(spared) = &mut self.spared else { return };
        let mut ask = |boost| {
            self.lab.mm.memory.zone_mut(ZoneIndex(0)).boost = boost;
            self.lab.mm.memory.compaction_suitable(ZoneIndex(0), order, ZoneKind::Movable, Urgency::Normal)
        };
        let before = ask(0);
        let after = ask(self.draws.below(4) * 256);
        *spared += u32::from(before == Suitable::Continue && after == Suitable::Skipped);
    }

    fn compact(&mut self) {
        let Some(compact) = &mut self.compact else {
            let order = [9, 9, 9, 5, 3][usize::try_from(self.draws.below(5)).unwrap()];
            let priority = match self.draws.below(5) {
                0 | 1 => CompactPriority::Async,
                2 | 3 => CompactPriority::SyncLight,
                _ => CompactPriority::SyncFull,
            };
            self.raise_marks(Order(order));
            self.compact = Some(DirectCompact::new(Lab::request().of_order(Order(order)), priority));
            return;
        };
        match self.lab.step(ME, |mm, spaces, cx| compact.step(mm, spaces, cx)) {
            Step::More => {
                if self.draws.below(3000) == 0 {
                    self.lab.step(ME, |mm, spaces, cx| compact.abort(mm, spaces, cx));
                    self.compact = None;
                }
            }
            Step::Block(Wait::Until(at)) => self.lab.now = at,
            Step::Block(wait) => panic!("{wait:?}"),
            Step::Done(compacted) => {
                if let Some(pfn) = compacted.block {
                    let order = self.lab.mm.memory.frames.allocated(pfn).unwrap();
                    self.lab.step(ME, |mm, _, cx| mm.memory.free(cx, pfn, order));
                }
                self.compact = None;
            }
        }
    }
}

fn run(rules: Variant, seed: u64, steps: u32, check_every: u32) -> World {
    run_in(Lab::fragmented(8, rules).0, seed, steps, check_every)
}

pub(super) fn run_in(lab: Lab, seed: u64, steps: u32, check_every: u32) -> World {
    run_with(lab, (seed, false), steps, check_every)
}

fn run_with(mut lab: Lab, (seed, raises_marks): (u64, bool), steps: u32, check_every: u32) -> World {
    // More processes, in what is free.
    for _ in 0..2 {
        let id = lab.process();
        lab.map(id, 300);
    }
    let mut world = World {
        lab,
        draws: Draws(seed),
        doing: Doing::Nothing,
        waits: None,
        blocks: Vec::new(),
        compact: None,
        waited: 0,
        spared: raises_marks.then_some(0),
    };
    for step in 0..steps {
        match world.draws.below(8) {
            0..=3 => world.compact(),
            4..=6 => world.other(),
            _ => world.alloc_or_free(),
        }
        if step % check_every == 0 {
            let (mine, others) = world.holdings();
            world.lab.check_with(mine, others);
        }
        if step % 1024 == 0 {
            world.lab.check_contents();
        }
    }
    world
}

#[test]
fn contents_survive_compaction_whatever_comes_in_between() {
    let (mut moved, mut waited) = (0, 0);
    let seeds = [("v6.1", 1), ("v6.1", 2), ("v6.1", 7), ("v5.10", 3), ("v4.20", 4), ("v4.1", 5), ("v6.7", 6)];
    for (round, (version, seed)) in (0..crate::soak::times()).flat_map(|round| seeds.map(|kind| (round, kind))) {
        let world = run(rules(version), seed + 7 * round, 8_000, 1);
        moved += world.lab.count(Event::PgmigrateSuccess);
        waited += world.waited;
        assert!(world.lab.count(Event::CompactStall) > 0, "{version}");
    }
    assert!(moved > 2_000 && waited > 0, "{moved} pages moved, {waited} faults waited");
}

#[test]
fn contents_survive_compaction_under_marks_that_come_and_go() {
    let (mut moved, mut spared) = (0, 0);
    for seed in 0..4 * crate::soak::times() {
        let world = run_with(Lab::fragmented(8, rules("v6.1")).0, (seed + 1, true), 4_000, 7);
        moved += world.lab.count(Event::PgmigrateSuccess);
        spared += world.spared.unwrap();
    }
    assert!(moved > 100 && spared > 0, "{moved} pages moved, {spared} times not compacted");
}

#[test]
fn contents_survive_any_part_of_the_series_of_5_1() {
    let mut moved = 0;
    for (round, mask) in
        (0..crate::soak::times()).flat_map(|round| (0..1 << series::SERIES.len()).map(move |mask| (round, mask)))
    {
        let (base, run) = (["v4.1", "v5.0", "v6.1"][mask % 3], [1, 3, 5][mask / 3 % 3]);
        let (lab, _) = Lab::fragmented_every(8, series::with(base, mask), run);
        let world = run_in(lab, 1 + mask as u64 + (round << 10), 500, 50);
        world.lab.check_contents();
        moved += world.lab.count(Event::PgmigrateSuccess);
    }
    assert!(moved > 10_000, "{moved} pages moved");
}

#[test]
fn the_same_seed_does_the_same() {
    let once = || {
        let world = run(rules("v6.1"), 9, 4_000, 4_000);
        (format!("{:?}", world.lab.mm), format!("{:?}", world.lab.counters))
    };
    assert!(once() == once());
}
