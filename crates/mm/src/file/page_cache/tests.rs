//! Files on a machine that is too small for them. Every step is followed by a walk over everything.

mod bio;
mod ext4;
mod random;
mod xfs;

use memory::{
    alloc::NoMemory,
    cost::Prices,
    event::{Counters, Event},
    frame::SpaceId,
    news::Daemon,
    step::{Step, Wait},
};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{InodeShrink, Variant, named},
    zone::ZoneKind,
};
use units::{Bytes, BytesPerSecond, CpuId, Errno, NodeId, Picos, Time};

use super::*;
use crate::{
    Spaces,
    fault::{Access, FaultDone, touch::Touch},
    file::disk::{DiskMedium, Filesystem},
    slow::Supply,
    space::address_space::{AddressSpace, MMAP_BASE},
    whole::check,
};

struct Lab {
    mm: Mm,
    spaces: Spaces,
    space: SpaceId,
    counters: Counters,
    prices: Prices,
    now: Time,
    supply: Supply,
    /// When each daemon runs again: kswapd, flusher, kcompactd.
    daemons: [Option<Time>; 3],
    state: u64,
    steps: u64,
    /// Sleeps until kswapd has come to the end of a pass, and those that a pass has ended.
    stalls: [u64; 2],
    /// Number of steps between two walks.
    walks: u64,
}

/// An operation that was taken to its end.
trait Operate {
    type Out;
    fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Self::Out>;
    fn holdings(&self, spaces: &Spaces) -> memory::frame::Holdings;
}

impl Operate for FileOperation {
    type Out = Result<FileAnswer, Errno>;
    fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Self::Out> {
        self.step(mm, spaces, cx, cx.now())
    }
    fn holdings(&self, _: &Spaces) -> memory::frame::Holdings {
        self.holdings()
    }
}

/// Accesses, each step of which ends at its horizon, or as soon as it can.
struct Touching(SpaceId, Touch, Option<Time>);

impl Operate for Touching {
    type Out = FaultDone;
    fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<FaultDone> {
        let horizon = self.2.unwrap_or(cx.now());
        self.1.step(mm, spaces.get_mut(self.0).unwrap(), cx, horizon)
    }
    fn holdings(&self, spaces: &Spaces) -> memory::frame::Holdings {
        self.1.holdings(spaces.get(self.0).unwrap())
    }
}

/// A block of some order, given back at once.
struct Block(u8);

impl Operate for Block {
    type Out = bool;
    fn step(&mut self, mm: &mut Mm, _: &mut Spaces, cx: &mut Cx) -> Step<bool> {
        let order = Order(self.0);
        match mm.memory.alloc(cx, &AllocRequest::gfp_kernel(NodeId(0)).of_order(order)) {
            Ok(block) => {
                mm.memory.free(cx, block, order);
                Step::Done(true)
            }
            Err(NoMemory::Asked) => Step::More,
            Err(NoMemory::Refused) => Step::Done(false),
        }
    }
    fn holdings(&self, _: &Spaces) -> memory::frame::Holdings {
        memory::frame::Holdings::default()
    }
}

/// Contents of frames before they are cleared, and of blocks whose write has failed.
const DIRT: u64 = 1 << 63;
const TORN: u64 = !0;

const ME: ControlId = ControlId(7);

impl Lab {
    fn new(frames: u32, seed: u64, walks: u64) -> Self {
        Self::with(frames, seed, walks, (*named("v6.1"), 0))
    }

    fn with(frames: u32, seed: u64, walks: u64, (rules, watermark_boost_factor): (Variant, u32)) -> Self {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), frames);
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
        let machine = MachineSpec { pageblock_order: Order(4), max_order: Order(10), nodes: vec![node] };
        let settings = Settings { min_free_kbytes: 64, watermark_boost_factor, ..Settings::default() };
        let mut mm = Mm::new(&machine, rules, &settings);
        mm.memory.frames.keep_contents(DIRT);
        let bandwidth = BytesPerSecond::new(Bytes::mib(100)).unwrap();
        let medium = if seed.is_multiple_of(2) { DiskMedium::Memory } else { DiskMedium::Queue };
        let filesystem = if seed & 2 == 0 { Filesystem::Ext4 } else { Filesystem::Xfs };
        mm.mount(&DiskSpec { size: Bytes::mib(64), bandwidth, medium, filesystem, ..DiskSpec::default() });
        let prices = Prices::new(|_| Picos::from_nanos(200));
        let mut counters = Counters::default();
        let mut spaces = Spaces::default();
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        let space = AddressSpace::new(&mut mm, &mut cx, MMAP_BASE).unwrap();
        let space = spaces.add(space);
        let (supply, state) = (Supply::default(), seed);
        Self {
            mm,
            spaces,
            space,
            counters,
            prices,
            now: Time(0),
            supply,
            daemons: [None; 3],
            state,
            steps: 0,
            stalls: [0; 2],
            walks,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    /// Whoever was woken, or whose time has come.
    fn run_daemons(&mut self) {
        for node in self.mm.memory.take_woken(Daemon::Kswapd) {
            self.daemons[node.0 as usize] = Some(self.now);
        }
        if !self.mm.memory.take_woken(Daemon::Flusher).is_empty() {
            self.daemons[1] = Some(self.now);
        }
        if !self.mm.memory.take_woken(Daemon::Kcompactd).is_empty() {
            self.daemons[2] = Some(self.now);
        }
        for at in 0..3 {
            if self.daemons[at].is_none_or(|due| due > self.now) {
                continue;
            }
            let mut cx = Cx::new(CpuId(0), self.now, &self.prices, &mut self.counters)
                .acting_for(ControlId(u32::try_from(at).unwrap()));
            let step = match at {
                0 => self.mm.step_kswapd(&mut self.spaces, &mut cx, NodeId(0)),
                1 => self.mm.step_flusher(&mut self.spaces, &mut cx),
                _ => self.mm.step_kcompactd(&mut self.spaces, &mut cx, NodeId(0)),
            };
            self.now = cx.now();
            self.daemons[at] = match step {
                Step::More | Step::Block(Wait::Yield) => Some(self.now),
                Step::Block(Wait::Until(until) | Wait::Io { until, .. } | Wait::Pass { until, .. }) => Some(until),
                // The thread looks at the folio again after 100 us.
                Step::Block(Wait::Folio(_)) => Some(self.now + Picos::from_micros(100)),
                Step::Block(Wait::Queue) => None,
                Step::Done(()) => unreachable!(),
            };
        }
        let _ = self.mm.memory.take_unlocked();
    }

    fn check(&mut self, holdings: memory::frame::Holdings) {
        self.steps += 1;
        if !self.steps.is_multiple_of(self.walks) {
            return;
        }
        check::walk(&self.mm).unwrap();
        check::walk_files(&self.mm).unwrap();
        let spaces = self.spaces.iter().map(|(_, space)| space).collect();
        let mut mine = holdings;
        mine.add(self.supply.holdings());
        let controls = vec![
            (ControlId(0), self.mm.kswapds[NodeId(0)].holdings()),
            (ControlId(1), self.mm.flusher_holdings()),
            (ControlId(2), self.mm.kcompactd_holdings(NodeId(0))),
            (ME, mine),
        ];
        check::walk_owners(&self.mm, &check::Owners { spaces, controls }).unwrap();
    }

    fn run<T: Operate>(&mut self, mut what: T) -> T::Out {
        // Bound: waits end, and steps go on.
        for _ in 0..1_000_000 {
            let mut cx = Cx::new(CpuId(0), self.now, &self.prices, &mut self.counters).acting_for(ME);
            let step = if self.supply.is_busy() {
                match self.supply.step(&mut self.mm, &mut self.spaces, &mut cx) {
                    Step::Block(wait) => Step::Block(wait),
                    Step::More | Step::Done(()) => Step::More,
                }
            } else {
                self.supply.lend(&mut cx);
                let step = what.step(&mut self.mm, &mut self.spaces, &mut cx);
                if self.supply.settle(&mut self.mm, &mut cx) { Step::More } else { step }
            };
            self.now = cx.now();
            if let Step::Done(out) = step {
                self.check(memory::frame::Holdings::default());
                return out;
            }
            self.check(what.holdings(&self.spaces));
            match step {
                Step::Block(wait @ (Wait::Until(until) | Wait::Io { until, .. } | Wait::Pass { until, .. })) => {
                    let _ = self.mm.memory.take_passed();
                    let is_stall = matches!(wait, Wait::Pass { .. });
                    self.stalls[0] += u64::from(is_stall);
                    // Others run meanwhile.
                    while self.now < until {
                        self.run_daemons();
                        if !self.mm.memory.take_passed().is_empty() && is_stall {
                            self.stalls[1] += 1;
                            break;
                        }
                        self.now = self.now + Picos::from_micros(500);
                    }
                }
                Step::Block(_) => self.now = self.now + Picos::from_micros(100),
                _ => {}
            }
            self.run_daemons();
        }
        panic!("it never ends");
    }

    fn call(&mut self, request: FileRequest) -> Result<FileAnswer, Errno> {
        self.run(FileOperation::new(request))
    }

    fn create(&mut self, name: &str) -> u32 {
        match self.call(FileRequest::Create(name.to_owned())) {
            Ok(FileAnswer::Opened(file)) => file,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, file: u32, page: u64) -> Result<FileAnswer, Errno> {
        self.call(FileRequest::Write { file, offset: Bytes::PAGE * page, len: Bytes::PAGE })
    }

    /// The content that read(2) finds in a page, if the page could be had.
    fn read(&mut self, file: u32, page: u64) -> Option<u64> {
        let read = FileRequest::Read { file, offset: Bytes::PAGE * page, len: Bytes::PAGE };
        match self.call(read) {
            Ok(_) => Some(self.mm.cache.balancing.seen),
            Err(errno) => {
                assert_eq!(errno, Errno::IO);
                None
            }
        }
    }

    /// Leaves a file alone for a while: its inode may go, with its pages or not. Returns its number when opened then.
    fn leave_for_a_while(&mut self, file: u32, name: u64) -> u32 {
        self.call(FileRequest::Close(file)).unwrap();
        self.run(Block(5));
        if self.draw(2) == 0 {
            self.call(FileRequest::SyncAll).unwrap();
            self.call(FileRequest::DropCaches).unwrap();
        }
        match self.call(FileRequest::Open(format!("file {name}"))) {
            Ok(FileAnswer::Opened(file)) => file,
            other => panic!("{other:?}"),
        }
    }

    fn content(&self, file: u32, page: u64) -> u64 {
        self.mm.memory.frames.content(self.mm.file_page(self.mm.inode_of(file).unwrap(), page).unwrap())
    }

    fn with_space<T>(&mut self, body: impl FnOnce(&mut Mm, &mut AddressSpace, &mut Cx) -> T) -> T {
        let mut cx = Cx::new(CpuId(0), self.now, &self.prices, &mut self.counters).acting_for(ME);
        body(&mut self.mm, self.spaces.get_mut(self.space).unwrap(), &mut cx)
    }

    /// Maps one page of a file, uses it, says what was found there if it could be had, and unmaps it again.
    fn touch(&mut self, file: u32, page: u64, access: Access, shared: bool) -> Option<u64> {
        let range = self.with_space(|mm, space, cx| space.mmap_file(mm, cx, 1, (file, page, shared))).unwrap();
        loop {
            let done = self.run(Touching(self.space, Touch::pages(range, access), None));
            if done == FaultDone::BusError {
                self.with_space(|mm, space, cx| space.munmap(mm, cx, range)).unwrap();
                return None;
            }
            assert_eq!(done, FaultDone::Handled);
            let space = self.spaces.get(self.space).unwrap();
            let Some(crate::space::page_table::Pmd::Table(table)) = Some(space.tables.pmd_of(range.start)) else {
                panic!()
            };
            let pte = space.tables.pte(table, range.start);
            if !pte.is_present() || (access == Access::Write && !pte.is_writable()) {
                continue;
            }
            let found = self.mm.memory.frames.content(pte.pfn());
            if access == Access::Write {
                self.mm.cache.balancing.tags += 1;
                self.mm.memory.frames.store(pte.pfn(), self.mm.cache.balancing.tags);
            }
            self.with_space(|mm, space, cx| space.munmap(mm, cx, range)).unwrap();
            return Some(found);
        }
    }
}

/// The number of objects of a slab cache that are in use.
fn used(lab: &Lab, cache: memory::slab::Cache) -> usize {
    let is_it = |object: &memory::slab::Object| {
        let frame = lab.mm.memory.frames.get(object.slab());
        matches!(frame, memory::frame::Frame::Slab(slab) if slab.cache == cache)
    };
    lab.mm.cache.objects().filter(is_it).count()
}

/// Lets time pass for the flusher.
fn rest(lab: &mut Lab, millis: u64) {
    for _ in 0..millis {
        lab.run_daemons();
        lab.now = lab.now + Picos::from_micros(1000);
    }
}

#[test]
fn a_disk_that_fails_is_reported_and_nothing_else_breaks() {
    let mut lab = Lab::new(1024, 1, 3);
    lab.mm.cache.fail_disk(3);
    let file = lab.create("a");
    let mut failures = 0;
    for round in 0..10 {
        for page in 0..200 {
            lab.write(file, round * 100 + page).unwrap();
        }
        match lab.call(FileRequest::Sync(file)) {
            Err(Errno::IO) => failures += 1,
            other => drop(other.unwrap()),
        }
    }
    assert!(failures > 0);
    lab.mm.cache.fail_disk(0);
    let _ = lab.call(FileRequest::Sync(file));
    assert_eq!(lab.call(FileRequest::Sync(file)), Ok(FileAnswer::Done), "an error is reported once");
    lab.call(FileRequest::SyncAll).unwrap();
    // Pages that the journal of ext4 has a part in go the second time.
    lab.call(FileRequest::DropCaches).unwrap();
    lab.call(FileRequest::DropCaches).unwrap();
    assert_eq!(lab.mm.cache.totals(), FileCounts::default());
}

#[test]
fn a_disk_of_memory_is_done_with_what_it_is_sent() {
    let mut lab = Lab::new(4096, 2, 50);
    let file = lab.create("a");
    for page in 0..600 {
        lab.write(file, page).unwrap();
        let counts = lab.mm.cache.totals();
        assert_eq!(counts.writeback, 0, "at page {page}");
    }
    lab.call(FileRequest::Sync(file)).unwrap();
    assert_eq!((lab.mm.cache.totals().dirty, lab.counters.get(Event::NrWritten)), (0, 600));
    lab.call(FileRequest::DropCaches).unwrap();
    let start = lab.now;
    lab.touch(file, 0, Access::Read, true);
    // A window of pages: two system calls, a request and 32 copies, each 200 ns here, and far from the 80 us of other disks.
    assert!(lab.now.since(start) < Picos::from_micros(60), "{}", lab.now.since(start));
    assert!(lab.counters.get(Event::Pgpgin) >= 4 * 16);
}

#[test]
fn nobody_has_a_page_that_a_disk_of_memory_cannot_read() {
    let mut lab = Lab::new(4096, 2, 50);
    let file = lab.create("a");
    lab.write(file, 0).unwrap();
    lab.call(FileRequest::Sync(file)).unwrap();
    lab.call(FileRequest::DropCaches).unwrap();
    lab.mm.cache.fail_disk(1);
    assert_eq!(lab.touch(file, 0, Access::Write, true), None);
    assert_eq!(lab.touch(file, 0, Access::Read, true), None);
    lab.mm.cache.fail_disk(0);
    assert!(lab.touch(file, 0, Access::Write, true).is_some());
}

#[test]
fn who_dirties_faster_than_the_disk_writes_is_slowed_down_to_it() {
    let mut lab = Lab::new(8192, 1, 1000);
    let file = lab.create("a");
    let start = lab.now;
    for page in 0..6000 {
        lab.write(file, page).unwrap();
        let limits = lab.mm.dirty_limits();
        assert!(limits.dirty <= limits.thresh * 5 / 4, "{limits:?} at page {page}");
    }
    // 100 MiB/s are 25,600 pages a second; a fifth of memory is dirty at the end.
    let seconds = lab.now.since(start).0 / Picos::from_micros(1_000_000).0 * 1000
        + lab.now.since(start).0 % Picos::from_micros(1_000_000).0 / Picos::from_micros(1000).0;
    assert!((120..2000).contains(&seconds), "{seconds} ms for 6,000 pages");
}

#[test]
fn reclaimed_files_leave_their_slabs_when_asked() {
    let mut lab = Lab::new(2048, 1, 500);
    for number in 0..800 {
        let file = lab.create(&format!("{number}"));
        lab.write(file, 0).unwrap();
        lab.call(FileRequest::Close(file)).unwrap();
    }
    let file = lab.create("last");
    lab.call(FileRequest::Sync(file)).unwrap();
    for number in 0..800 {
        let Ok(FileAnswer::Opened(file)) = lab.call(FileRequest::Open(format!("{number}"))) else { panic!() };
        lab.call(FileRequest::Sync(file)).unwrap();
        lab.call(FileRequest::Close(file)).unwrap();
    }
    lab.call(FileRequest::SyncAll).unwrap();
    lab.call(FileRequest::DropCaches).unwrap();
    let inodes = lab.mm.cache.inodes.iter().flatten();
    let (resident, names) = (inodes.clone().filter(|inode| inode.object.is_some()).count(), lab.mm.cache.names.len());
    assert_eq!((resident, names), (1, 801), "only the open one stays in memory, and no name is lost");
    // Pages that the journal had a part in go now, and with them their buffers.
    lab.call(FileRequest::DropCaches).unwrap();
    assert!(lab.mm.cache.objects().count() < 6, "those of the open one");
}

/// Files of one page and files of three that stay when dentries have gone and all inodes were looked at once, and their pages.
fn kept_by(rule: InodeShrink) -> (usize, usize, usize) {
    let mut lab = Lab::new(2048, 1, 500);
    let rules = Variant { inode_shrink: rule, ..*lab.mm.memory.variant() };
    lab.mm.memory.set_variant(rules).unwrap();
    for number in 0..20 {
        let file = lab.create(&format!("{number}"));
        for page in 0..if number < 10 { 1 } else { 3 } {
            lab.write(file, page).unwrap();
        }
        lab.call(FileRequest::Close(file)).unwrap();
    }
    lab.call(FileRequest::SyncAll).unwrap();
    lab.now = lab.now + Picos::from_secs(40);
    lab.run_daemons();
    lab.with_space(|mm, _, cx| {
        mm.shrink_dentries(cx, NodeId(0), 40);
        mm.prune_inodes(cx, NodeId(0), shrink::LeftOfInodes::all(20));
    });
    lab.check(memory::frame::Holdings::default());
    let inodes = |pages: u64| {
        let its = lab.mm.cache.inodes.iter().flatten().filter(move |inode| inode.pages() == pages);
        its.filter(|inode| inode.object.is_some()).count()
    };
    (inodes(1), inodes(3), lab.mm.cache.pages().filter(|(id, ..)| !lab.mm.cache.ext4.is_own(*id)).count())
}

#[test]
fn the_inode_shrinker_frees_or_spares_pages_by_release() {
    assert_eq!(kept_by(InodeShrink::TakesPages), (0, 0, 0), "up to 4.19, and from 5.0 to 5.15");
    assert_eq!(kept_by(InodeShrink::KeepsMany), (0, 10, 30), "4.20");
    assert_eq!(kept_by(InodeShrink::WithoutPages), (10, 10, 40), "since 5.16");
}

#[test]
fn extents_say_which_blocks_a_file_has() {
    let mut extents = inode::Extents::default();
    for index in [5, 7, 6, 1, 2, 100] {
        assert!(extents.add(index));
        assert!(!extents.add(index));
    }
    assert_eq!((extents.blocks(), extents.has(6), extents.has(3), extents.has(8)), (6, true, false, false));
    assert_eq!(extents.cut(6), 3);
    assert_eq!((extents.blocks(), extents.has(5), extents.has(6)), (3, true, false));
}

/// Stores to a private mapping of a file whose pages are there: when they were done, what was counted, what the copies hold.
fn copied(horizon: Option<Time>) -> (Time, Counters, Vec<u64>) {
    let mut lab = Lab::new(2048, 4, 50);
    let file = lab.create("a");
    for page in 0..300 {
        lab.write(file, page).unwrap();
    }
    let range = lab.with_space(|mm, space, cx| space.mmap_file(mm, cx, 300, (file, 0, false))).unwrap();
    assert_eq!(lab.run(Touching(lab.space, Touch::pages(range, Access::Write), horizon)), FaultDone::Handled);
    let space = lab.spaces.get(lab.space).unwrap();
    let frame = |at: u64| match space.tables.pmd_of(range.start.plus(at)) {
        crate::space::page_table::Pmd::Table(table) => space.tables.pte(table, range.start.plus(at)).pfn(),
        other => panic!("{other:?}"),
    };
    for at in 0..300 {
        assert_ne!(Some(frame(at)), lab.mm.file_page(lab.mm.inode_of(file).unwrap(), at), "it is a copy");
        assert_eq!(lab.mm.memory.frames.content(frame(at)), lab.content(file, at), "of that page");
    }
    let contents = (0..300).map(|at| lab.mm.memory.frames.content(frame(at))).collect();
    (lab.now, lab.counters, contents)
}

#[test]
fn private_copies_made_in_one_step_are_those_of_single_faults() {
    assert_eq!(copied(Some(Time(u64::MAX))), copied(None));
}
