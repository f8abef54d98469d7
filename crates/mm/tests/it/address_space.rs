//! Address spaces against a naive twin: what each process reads back, over random streams of operations.

use std::collections::{BTreeMap, BTreeSet};

use memory::{cx::Cx, event::Event, frame::Frame};
use mm::{
    Mm,
    fault::{Access, FaultDone},
    space::{
        address_space::{AddressSpace, TASK_PAGES},
        page_table::{Level, Pmd},
        vma::{HugeAdvice, PageRange},
    },
    thp::ThpEnabled,
    whole::check::{self, Owners},
};
use rules::variant::{self, Variant};
use units::{CpuId, Order, Pfn, Time, Vpn};

use crate::small_machine::SmallMachine;

/// A page's content: two words, so that a store to one shows whether the other was copied.
type Content = [u64; 2];

/// Contents of frames before they are cleared.
const DIRT: Content = [u64::MAX; 2];

/// Processes at a time.
const PROCESSES: usize = 6;

struct World {
    machine: SmallMachine,
    spaces: BTreeMap<u32, AddressSpace>,
    /// Contents of each frame.
    tags: BTreeMap<Pfn, Content>,
    /// The twin: pages that each process has mapped, and those that are not zero.
    mapped: BTreeMap<u32, BTreeSet<Vpn>>,
    contents: BTreeMap<(u32, Vpn), Content>,
    /// Pages that a process has touched, so that they are resident.
    touched: BTreeSet<(u32, Vpn)>,
    random: u64,
    next_process: u32,
    next_value: u64,
}

impl World {
    fn new(seed: u64, enabled: ThpEnabled, variant: Variant) -> Self {
        let mut machine = SmallMachine::with(8 * 512, variant);
        machine.mm.thp.enabled = enabled;
        let mut world = Self {
            machine,
            spaces: BTreeMap::new(),
            tags: BTreeMap::new(),
            mapped: BTreeMap::new(),
            contents: BTreeMap::new(),
            touched: BTreeSet::new(),
            random: seed,
            next_process: 0,
            next_value: 0,
        };
        world.start();
        world
    }

    /// splitmix64.
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn start(&mut self) {
        let space = self.machine.space();
        self.spaces.insert(self.next_process, space);
        self.mapped.insert(self.next_process, BTreeSet::new());
        self.next_process += 1;
    }

    fn some_process(&mut self) -> u32 {
        let at = self.below(self.spaces.len() as u64);
        *self.spaces.keys().nth(usize::try_from(at).unwrap()).unwrap()
    }

    /// A part of one mapping, at times reaching beyond it.
    fn some_range(&mut self, process: u32, pages_max: u64) -> Option<PageRange> {
        let vmas: Vec<_> = self.spaces[&process].vmas.iter().copied().collect();
        let at = self.below(vmas.len().max(1) as u64);
        let vma = vmas.get(usize::try_from(at).unwrap())?;
        let start = vma.start.plus(self.below(vma.pages));
        let pages = 1 + self.below(pages_max);
        Some(PageRange::new(start, pages.min(TASK_PAGES - start.0)))
    }

    fn step(&mut self) {
        let process = self.some_process();
        match self.below(100) {
            0..10 => self.map(process),
            10..55 => self.store(process),
            55..65 => self.load(process),
            65..78 => self.unmap(process),
            78..88 => self.advise(process),
            88..94 => self.fork(process),
            94..97 => self.exit(process),
            _ => self.start_another(),
        }
    }

    fn map(&mut self, process: u32) {
        let pages = if self.below(3) == 0 { 512 * (1 + self.below(2)) } else { 1 + self.below(700) };
        let space = self.spaces.get_mut(&process).unwrap();
        let range = self.machine.run(|mm, cx| space.mmap(mm, cx, pages)).0.unwrap();
        let mapped = self.mapped.get_mut(&process).unwrap();
        for vpn in vpns(range) {
            assert!(mapped.insert(vpn), "{vpn:?} was mapped already");
        }
    }

    fn store(&mut self, process: u32) {
        let pages = if self.below(3) == 0 { 300 } else { 4 };
        let Some(range) = self.some_range(process, pages) else { return };
        let (done, end) = self.touch(process, range, Access::Write);
        let word = usize::try_from(self.below(2)).unwrap();
        for vpn in vpns(PageRange { start: range.start, end }) {
            self.next_value += 1;
            let pfn = frame_at(&self.spaces[&process], vpn).expect("it was stored to");
            self.tags.get_mut(&pfn).expect("it was cleared or copied")[word] = self.next_value;
            self.contents.entry((process, vpn)).or_insert([0; 2])[word] = self.next_value;
        }
        if done == FaultDone::OutOfMemory {
            self.exit(process);
        }
    }

    fn load(&mut self, process: u32) {
        let Some(range) = self.some_range(process, 20) else { return };
        if self.touch(process, range, Access::Read).0 == FaultDone::OutOfMemory {
            self.exit(process);
        }
    }

    /// Touches pages up to the first that is not mapped, and lets tags follow what was cleared and copied.
    fn touch(&mut self, process: u32, range: PageRange, access: Access) -> (FaultDone, Vpn) {
        let space = self.spaces.get_mut(&process).unwrap();
        let around = PageRange { start: range.start.huge_start(), end: range.end.plus(511).huge_start() };
        let before: Vec<_> = vpns(around).map(|vpn| frame_at(space, vpn)).collect();
        let faults = self.machine.count(Event::Pgfault);
        let (done, cleared, copied) = self.machine.touch(space, range, access);
        let faults = self.machine.count(Event::Pgfault) - faults;
        let (mut fresh, mut moved) = (0, 0);
        for (vpn, before) in vpns(around).zip(before) {
            let after = frame_at(space, vpn);
            let Some(now) = after.filter(|_| after != before) else { continue };
            assert_eq!(access, Access::Write, "a load gives no frame");
            let content = match before {
                Some(old) => self.tags[&old],
                None => [0; 2],
            };
            if before.is_some() {
                moved += 1;
            } else {
                fresh += 1;
            }
            self.tags.insert(now, content);
        }
        let end = vpns(range).find(|vpn| {
            let pte = space.tables.lookup(*vpn);
            !pte.is_present() || (access == Access::Write && !pte.is_writable())
        });
        let end = end.unwrap_or(range.end);
        assert_eq!(done == FaultDone::Handled, end == range.end, "{done:?} at {end:?} of {range:?}");
        assert!(faults <= range.pages() + 1, "{faults} faults on {range:?}");
        if done == FaultDone::BadAddress {
            assert!(!self.mapped[&process].contains(&end), "{end:?} is mapped");
        }
        // Tables are cleared too, and a frame that did not get mapped in the end.
        assert!(cleared >= fresh, "{fresh} pages appeared, {cleared} frames were cleared");
        assert_eq!(copied, moved, "pages that changed their frame were copied, no others");
        self.touched.extend(vpns(PageRange { start: range.start, end }).map(|vpn| (process, vpn)));
        (done, end)
    }

    fn unmap(&mut self, process: u32) {
        let Some(range) = self.some_range(process, 900) else { return };
        let space = self.spaces.get_mut(&process).unwrap();
        self.machine.run(|mm, cx| space.munmap(mm, cx, range)).0.unwrap();
        let mapped = self.mapped.get_mut(&process).unwrap();
        for vpn in vpns(range) {
            mapped.remove(&vpn);
            self.contents.remove(&(process, vpn));
            self.touched.remove(&(process, vpn));
        }
    }

    fn advise(&mut self, process: u32) {
        let Some(range) = self.some_range(process, 900) else { return };
        let advice = if self.below(2) == 0 { HugeAdvice::HugePage } else { HugeAdvice::NoHugePage };
        let space = self.spaces.get_mut(&process).unwrap();
        let result = self.machine.run(|mm, cx| space.madvise(mm, cx, range, advice)).0;
        let whole = vpns(range).all(|vpn| self.mapped[&process].contains(&vpn));
        assert_eq!(result.is_ok(), whole, "{result:?} for {range:?}");
        for vma in space.vmas.overlapping(range) {
            assert_eq!(vma.advice, advice, "{vma:?}");
        }
    }

    fn fork(&mut self, process: u32) {
        if self.spaces.len() >= PROCESSES {
            return;
        }
        let space = self.spaces.get_mut(&process).unwrap();
        let Ok(child) = self.machine.run(|mm, cx| space.fork(mm, cx)).0 else { return };
        let id = self.next_process;
        self.next_process += 1;
        self.spaces.insert(id, child);
        self.mapped.insert(id, self.mapped[&process].clone());
        let inherited: Vec<_> = of_process(&self.contents, process).map(|(vpn, content)| (vpn, *content)).collect();
        for (vpn, content) in inherited {
            self.contents.insert((id, vpn), content);
            self.touched.insert((id, vpn));
        }
    }

    fn exit(&mut self, process: u32) {
        let space = self.spaces.remove(&process).unwrap();
        self.machine.run(|mm, cx| space.exit(mm, cx));
        self.mapped.remove(&process);
        self.contents.retain(|(of, _), _| *of != process);
        self.touched.retain(|(of, _)| *of != process);
        if self.spaces.is_empty() {
            self.start();
        }
    }

    fn start_another(&mut self) {
        if self.spaces.len() < PROCESSES {
            self.start();
        }
    }

    /// The twin and the processes see the same, and tables, frames and counts agree.
    fn check(&self) {
        let owners = Owners { spaces: self.spaces.values().collect(), controls: Vec::new() };
        check::walk_owners(&self.machine.mm, &owners).unwrap();
        check::walk(&self.machine.mm).unwrap();
        let mut mappings: BTreeMap<Pfn, u32> = BTreeMap::new();
        let mut owned: BTreeMap<Pfn, u64> = BTreeMap::new();
        for (process, space) in &self.spaces {
            self.check_contents(*process, space);
            self.check_tables(space, &mut mappings);
            for table in space.tables.frames() {
                assert_eq!(self.machine.mm.memory.frames.get(table), Frame::PageTable);
                assert!(owned.insert(table, 1).is_none(), "table {table} belongs to two");
            }
        }
        for (pfn, count) in mappings {
            assert_eq!(self.machine.mm.frame_mappings(pfn), count, "frame {pfn}");
            let head = if let Frame::Anon { order, .. } = self.machine.mm.memory.frames.get(pfn) {
                owned.insert(pfn, order.frames().into());
                pfn
            } else {
                pfn.align_down(Order::HUGE)
            };
            let Frame::Anon { order, .. } = self.machine.mm.memory.frames.get(head) else { panic!("frame {head}") };
            owned.insert(head, order.frames().into());
        }
        let zero = self.machine.mm.huge_zero.frame().map_or(0, |_| 512);
        assert_eq!(self.machine.allocated(), owned.values().sum::<u64>() + zero, "frames that nobody reaches");
        for head in self.machine.mm.rmap.deferred_splits() {
            assert!(owned.contains_key(&head), "{head} waits for a split, but is free");
        }
    }

    fn check_contents(&self, process: u32, space: &AddressSpace) {
        let mapped: BTreeSet<Vpn> = space.vmas.iter().flat_map(|vma| vpns(vma.range())).collect();
        assert_eq!(mapped, self.mapped[&process]);
        let mut machine_resident = BTreeSet::new();
        for vma in space.vmas.iter() {
            let mut counters = self.machine.counters.clone();
            let mut cx = Cx::new(CpuId(0), Time(0), &self.machine.prices, &mut counters);
            let resident = space.mincore(&self.machine.mm, &mut cx, vma.range()).unwrap();
            machine_resident.extend(vpns(vma.range()).zip(resident).filter(|(_, is)| *is).map(|(vpn, _)| vpn));
        }
        for vpn in mapped {
            let is = frame_at(space, vpn).map_or([0; 2], |pfn| self.tags.get(&pfn).copied().unwrap_or(DIRT));
            let should = self.contents.get(&(process, vpn)).copied().unwrap_or([0; 2]);
            assert_eq!(is, should, "process {process}, {vpn:?}");
            let is_resident = machine_resident.contains(&vpn);
            assert_eq!(is_resident, space.tables.lookup(vpn).is_present());
            let was_touched = self.touched.contains(&(process, vpn));
            assert!(is_resident || !was_touched, "process {process} has touched {vpn:?}");
            if is_resident && !was_touched && self.machine.mm.thp.enabled == ThpEnabled::Never {
                assert!(space.tables.lookup(vpn).is_zero_page(), "only zero pages are inherited unseen");
            }
        }
    }

    fn check_tables(&self, space: &AddressSpace, mappings: &mut BTreeMap<Pfn, u32>) {
        let frames = &self.machine.mm.memory.frames;
        let mut rest = PageRange { start: Vpn(0), end: Vpn(TASK_PAGES) };
        let mut rss = 0;
        let mut tables = 0;
        while let Some((part, slot)) = space.tables.next_pmd(rest) {
            rest.start = part.end;
            assert!(space.vmas.first_in(part).is_some(), "a table without a VMA");
            tables += 1;
            let is_huge = matches!(space.tables.pmd(slot), Pmd::Huge(_));
            for vpn in vpns(part) {
                let pte = space.tables.lookup(vpn);
                if !pte.is_present() {
                    continue;
                }
                assert!(space.vmas.find(vpn).is_some(), "{vpn:?} is mapped outside of VMAs");
                let Some(pfn) = frame_at(space, vpn) else {
                    assert!(!pte.is_writable(), "a zero page is never written");
                    continue;
                };
                rss += 1;
                *mappings.entry(pfn).or_default() += 1;
                let (head, order) = match frames.get(pfn) {
                    Frame::Anon { order, .. } => (pfn, order),
                    _ => (pfn.align_down(Order::HUGE), Order::HUGE),
                };
                let at = Vpn(vpn.0 - u64::from(pfn.0 - head.0));
                assert_eq!(frames.get(head), Frame::Anon { family: space.family, vpn: at, order }, "{vpn:?}");
                assert!(!is_huge || order == Order::HUGE);
                assert!(!pte.is_writable() || self.machine.mm.frame_mappings(pfn) == 1, "{vpn:?} is shared");
            }
        }
        assert_eq!(space.rss_pages(), rss);
        assert_eq!(space.tables.count(Level::Pte), tables, "one table for 2 MiB, linked or deposited");
    }
}

fn vpns(range: PageRange) -> impl Iterator<Item = Vpn> + Clone {
    (range.start.0..range.end.0).map(Vpn)
}

fn of_process(contents: &BTreeMap<(u32, Vpn), Content>, process: u32) -> impl Iterator<Item = (Vpn, &Content)> {
    contents.range((process, Vpn(0))..(process + 1, Vpn(0))).map(|((_, vpn), content)| (*vpn, content))
}

/// The frame of memory that a page shows; none for what is not there and for zero pages.
fn frame_at(space: &AddressSpace, vpn: Vpn) -> Option<Pfn> {
    let pte = space.tables.lookup(vpn);
    let offset = if pte.is_huge() { u32::try_from(vpn.0 - vpn.huge_start().0).unwrap() } else { 0 };
    (pte.is_present() && !pte.is_zero_page()).then(|| pte.pfn().plus(offset))
}

fn run_stream(seed: u64, enabled: ThpEnabled, operations: u32) -> SmallMachine {
    let variants = ["v6.1", "v6.18", "v4.20"].map(|name| *variant::named(name));
    let mut world = World::new(seed, enabled, variants[usize::try_from(seed / 3 % 3).unwrap()]);
    for n in 0..operations {
        world.step();
        if n % 8 == 0 {
            world.check();
        }
    }
    world.check();
    while let Some(process) = world.spaces.keys().next().copied() {
        let space = world.spaces.remove(&process).unwrap();
        world.machine.run(|mm, cx| space.exit(mm, cx));
    }
    world.machine.run(Mm::shrink_huge_zero);
    assert_eq!(world.machine.allocated(), 0, "frames outlive all processes");
    assert_eq!(world.machine.mm.rmap.deferred_splits().count(), 0);
    world.machine
}

#[test]
fn processes_read_back_what_they_wrote() {
    let mut seen = BTreeMap::new();
    let settings = [ThpEnabled::Always, ThpEnabled::Madvise, ThpEnabled::Never];
    for (seed, enabled) in (0..24).zip(settings.into_iter().cycle()) {
        let machine = run_stream(seed, enabled, 250);
        for (event, count) in machine.counters.iter() {
            *seen.entry(event).or_insert(0) += count;
        }
    }
    for event in [
        Event::ThpDeferredSplitPage,
        Event::ThpFaultAlloc,
        Event::ThpFaultFallback,
        Event::ThpSplitPmd,
        Event::ThpZeroPageAlloc,
    ] {
        assert!(seen[&event] > 0, "{} did not happen", event.name());
    }
}

#[test]
fn a_stream_gives_the_same_counters_twice() {
    let first = run_stream(7, ThpEnabled::Always, 120);
    let second = run_stream(7, ThpEnabled::Always, 120);
    assert_eq!(first.counters, second.counters);
}
