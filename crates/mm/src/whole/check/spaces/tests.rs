use memory::{cost::Prices, cx::Cx, event::Counters, frame::FamilyId, step::Step};
use rules::{
    gfp::{AllocRequest, Mobility},
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Time, Vpn};

use super::*;
use crate::{
    fault::{Access, touch::Touch},
    space::{
        address_space::MMAP_BASE,
        page_table::{Pmd, PmdSlot, TableId},
        vma::PageRange,
    },
    whole::check::{Owners, walk_owners},
};

const SEEDS: u32 = 40;

/// Numbers that depend on a seed alone.
struct Numbers(u32);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % n
    }
}

/// Some processes and their memory.
struct State {
    mm: Mm,
    spaces: Vec<AddressSpace>,
}

fn with<T>(mm: &mut Mm, body: impl FnOnce(&mut Mm, &mut Cx<'_>) -> T) -> T {
    let (prices, mut counters) = (Prices::free(), Counters::default());
    body(mm, &mut Cx::new(CpuId(0), Time(0), &prices, &mut counters))
}

impl State {
    /// After a random number of forks, touches and partial unmappings: some processes share memory, some do not.
    fn used(numbers: &mut Numbers) -> Self {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 24 * HUGE_PAGES);
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] };
        let rules = *variant::named("v6.7");
        let mut mm = Mm::new(&machine, rules, &Settings { min_free_kbytes: 0, ..Settings::default() });
        let first = with(&mut mm, |mm, cx| AddressSpace::new(mm, cx, MMAP_BASE)).expect("there is memory");
        let mut state = Self { mm, spaces: vec![first] };
        // One that is written, one that is only read, one of base pages; each survives in part at least.
        let [written, read] = [(); 2].map(|()| state.map(4 * 512));
        let base = state.map(100);
        state.touch(0, written, Access::Write);
        state.touch(0, read, Access::Read);
        state.touch(0, base, Access::Write);
        let some = PageRange::new(read.start.plus(numbers.below(500) as u64), 3);
        state.touch(0, some, Access::Write);
        for parent in [0, 0, 1] {
            let State { mm, spaces } = &mut state;
            let child = with(mm, |mm, cx| spaces[parent].fork(mm, cx)).expect("there is memory");
            state.spaces.push(child);
            let own = PageRange::new(base.start.plus(numbers.below(90) as u64), 1 + numbers.below(9) as u64);
            state.touch(parent, own, Access::Write);
        }
        // The second huge page is mapped in part, by nobody whole.
        let part = PageRange::new(written.start.plus(512 + numbers.below(200) as u64), 1 + numbers.below(200) as u64);
        for which in 0..state.spaces.len() {
            let State { mm, spaces } = &mut state;
            with(mm, |mm, cx| spaces[which].munmap(mm, cx, part)).expect("a part of a mapping");
        }
        state.touch(3, PageRange::new(base.start, 40), Access::Write);
        // A page of one's own, and tables of one's own.
        let own = state.map(30);
        state.touch(0, own, Access::Write);
        state
    }

    fn map(&mut self, pages: u64) -> PageRange {
        let Self { mm, spaces } = self;
        with(mm, |mm, cx| spaces[0].mmap(mm, cx, pages)).expect("there is room")
    }

    fn touch(&mut self, which: usize, range: PageRange, access: Access) {
        let Self { mm, spaces } = self;
        let mut touch = Touch::pages(range, access);
        while with(mm, |mm, cx| touch.step(mm, &mut spaces[which], cx, Time(1 << 40))) == Step::More {}
    }

    fn walk(&self) -> Result<Vec<Pfn>, Broken> {
        walk_owners(&self.mm, &Owners { spaces: self.spaces.iter().collect(), controls: Vec::new() })
    }

    /// A page of some process whose entry is one that `holds`, with its table.
    fn base(&self, numbers: &mut Numbers, holds: impl Fn(&Self, Pte) -> bool) -> (usize, TableId, Vpn) {
        let mut found = Vec::new();
        for (which, slot, part) in self.pmds() {
            let Pmd::Table(table) = self.spaces[which].tables.pmd(slot) else { continue };
            let pages = (part.start.0..part.end.0).map(Vpn);
            let matching = pages.filter(|vpn| holds(self, self.spaces[which].tables.pte(table, *vpn)));
            found.extend(matching.map(|vpn| (which, table, vpn)));
        }
        found[numbers.below(found.len())]
    }

    fn huge(&self, numbers: &mut Numbers, zero: bool) -> (usize, PmdSlot, Pte) {
        let huge = |(which, slot, _): (usize, PmdSlot, PageRange)| match self.spaces[which].tables.pmd(slot) {
            Pmd::Huge(pte) if pte.is_zero_page() == zero => Some((which, slot, pte)),
            _ => None,
        };
        let found: Vec<_> = self.pmds().into_iter().filter_map(huge).collect();
        found[numbers.below(found.len())]
    }

    fn pmds(&self) -> Vec<(usize, PmdSlot, PageRange)> {
        let mut found = Vec::new();
        for (which, space) in self.spaces.iter().enumerate() {
            let mut rest = PageRange::new(Vpn(0), TASK_PAGES);
            while let Some((part, slot)) = space.tables.next_pmd(rest) {
                found.push((which, slot, part));
                rest.start = part.end;
            }
        }
        found
    }

    fn set(&mut self, (which, table, vpn): (usize, TableId, Vpn), pte: Pte) {
        let Self { mm, spaces } = self;
        with(mm, |_, cx| spaces[which].tables.set_pte(cx, table, vpn, pte));
    }

    fn set_pmd(&mut self, (which, slot, _): (usize, PmdSlot, Pte), pte: Pte) {
        let Self { mm, spaces } = self;
        with(mm, |_, cx| spaces[which].tables.set_pmd(cx, slot, pte));
    }

    fn pte(&self, (which, table, vpn): (usize, TableId, Vpn)) -> Pte {
        self.spaces[which].tables.pte(table, vpn)
    }

    fn frame(&self, numbers: &mut Numbers, holds: impl Fn(Frame) -> bool) -> Pfn {
        let all: Vec<Pfn> =
            (0..self.mm.memory.frames.len()).map(Pfn).filter(|pfn| holds(self.mm.memory.frames.get(*pfn))).collect();
        all[numbers.below(all.len())]
    }

    /// A PMD entry with a table, and another.
    fn two_tables(&self, numbers: &mut Numbers) -> [(usize, PmdSlot, TableId); 2] {
        let table = |(which, slot, _): (usize, PmdSlot, PageRange)| match self.spaces[which].tables.pmd(slot) {
            Pmd::Table(table) => Some((which, slot, table)),
            _ => None,
        };
        let of_first: Vec<_> = self.pmds().into_iter().filter_map(table).filter(|found| found.0 == 0).collect();
        let at = numbers.below(of_first.len() - 1);
        [of_first[at], of_first[at + 1]]
    }
}

fn is_mapped(_: &State, pte: Pte) -> bool {
    pte.is_present() && !pte.is_zero_page()
}

fn is_shared(state: &State, pte: Pte) -> bool {
    is_mapped(state, pte) && state.mm.frame_mappings(pte.pfn()) > 1
}

fn is_base(state: &State, pte: Pte) -> bool {
    is_mapped(state, pte) && matches!(state.mm.memory.frames.get(pte.pfn()), Frame::Anon { order: Order::BASE, .. })
}

type Damage = fn(&mut State, &mut Numbers);

const DAMAGES: [(&str, Damage); 24] = [
    ("an entry to a free frame", |s, n| {
        let free = s.frame(n, |frame| matches!(frame, Frame::Free { .. }));
        let at = s.base(n, is_mapped);
        s.set(at, Pte::written(free));
    }),
    ("an entry to a page table", |s, n| {
        let table = s.frame(n, |frame| frame == Frame::PageTable);
        let at = s.base(n, is_mapped);
        s.set(at, Pte::written(table));
    }),
    ("an entry beyond memory", |s, n| {
        let at = s.base(n, is_mapped);
        s.set(at, Pte::written(Pfn(1 << 30)));
    }),
    ("an entry to the memory of another page", |s, n| {
        let [at, other] = [(); 2].map(|()| s.base(n, is_base));
        let pte = s.pte(other);
        s.set(at, if at.2 == other.2 { Pte::written(pte.pfn().plus(1)) } else { pte });
    }),
    ("an entry forgotten", |s, n| {
        let at = s.base(n, is_mapped);
        s.set(at, Pte::NONE);
    }),
    ("an entry that became the zero page", |s, n| {
        let at = s.base(n, is_mapped);
        s.set(at, Pte::ZERO);
    }),
    ("an entry of a shared page that can be written", |s, n| {
        let at = s.base(n, is_shared);
        s.set(at, s.pte(at).rewritten());
    }),
    ("a zero page that can be written", |s, n| {
        let at = s.base(n, |_, pte| pte.is_present() && pte.is_zero_page());
        s.set(at, Pte::ZERO.rewritten());
    }),
    ("an entry of a base page that says huge", |s, n| {
        let at = s.base(n, is_base);
        s.set(at, Pte::written_huge(s.pte(at).pfn()));
    }),
    ("a frame mapped less often than is counted", |s, n| {
        let at = s.base(n, is_mapped);
        s.mm.map_base_again(s.pte(at).pfn());
    }),
    ("a frame mapped more often than is counted", |s, n| {
        let at = s.base(n, is_shared);
        let pfn = s.pte(at).pfn();
        with(&mut s.mm, |mm, cx| mm.unmap_base(cx, pfn));
    }),
    ("a count in a frame's own word", |s, n| {
        let at = s.base(n, is_base);
        let pfn = s.pte(at).pfn();
        *s.mm.memory.frames.raw_mut(pfn).0 ^= 1 << (14 + n.below(2));
    }),
    ("memory of another family", |s, n| {
        let at = s.base(n, is_base);
        let Frame::Anon { vpn, order, .. } = s.mm.memory.frames.get(s.pte(at).pfn()) else { unreachable!() };
        let count = s.mm.memory.frames.map_count(s.pte(at).pfn());
        s.mm.memory.frames.set(s.pte(at).pfn(), Frame::Anon { family: FamilyId(9), vpn, order });
        s.mm.memory.frames.set_map_count(s.pte(at).pfn(), count);
    }),
    ("mapped memory that says it is the kernel's", |s, n| {
        let at = s.base(n, is_base);
        s.mm.memory.frames.set(s.pte(at).pfn(), Frame::Kernel { order: Order::BASE, mobility: Mobility::Movable });
    }),
    ("a table that is not marked", |s, n| {
        let table = s.frame(n, |frame| frame == Frame::PageTable);
        s.mm.memory.frames.set(table, Frame::Kernel { order: Order::BASE, mobility: Mobility::Unmovable });
    }),
    ("a table that nobody has", |s, _| {
        let request = AllocRequest::gfp_kernel(NodeId(0));
        let frame = with(&mut s.mm, |mm, cx| mm.memory.alloc(cx, &request)).expect("there is memory");
        s.mm.memory.frames.set(frame, Frame::PageTable);
    }),
    ("a table in two places", |s, n| {
        let [one, other] = s.two_tables(n);
        let State { mm, spaces } = s;
        with(mm, |_, cx| spaces[0].tables.link_pte_table(cx, one.1, other.2));
    }),
    ("a table cut off", |s, n| {
        let [one, _] = s.two_tables(n);
        let State { mm, spaces } = s;
        with(mm, |_, cx| spaces[0].tables.set_pmd(cx, one.1, Pte::NONE));
    }),
    ("a huge page forgotten", |s, n| {
        let at = s.huge(n, false);
        s.set_pmd(at, Pte::NONE);
    }),
    ("a shared huge page that can be written", |s, n| {
        let at = s.huge(n, false);
        s.set_pmd(at, at.2.rewritten());
    }),
    ("a huge page mapped less often than is counted", |s, n| {
        let at = s.huge(n, false);
        with(&mut s.mm, |mm, cx| mm.map_huge_again(cx, at.2.pfn()));
    }),
    ("a huge page without a table to split it", |s, n| {
        let at = s.huge(n, false);
        s.spaces[at.0].tables.withdraw(at.1);
    }),
    ("a table kept for a huge page, with entries", |s, n| {
        let at = s.huge(n, true);
        let tables = &mut s.spaces[at.0].tables;
        let kept = tables.withdraw(at.1);
        tables.ptes_mut(kept)[n.below(512)] = Pte::ZERO;
        tables.deposit(at.1, kept);
    }),
    ("a process that forgot that it uses the huge zero page", |s, n| {
        let at = s.huge(n, true);
        s.spaces[at.0].uses_huge_zero = false;
    }),
];

#[test]
fn every_damage_to_processes_is_noticed() {
    for seed in 0..SEEDS {
        for (what, damage) in DAMAGES {
            let mut numbers = Numbers(seed);
            let mut state = State::used(&mut numbers);
            assert_eq!(state.walk(), Ok(Vec::new()), "seed {seed}");
            damage(&mut state, &mut numbers);
            let verdict = state.walk();
            assert!(verdict.as_ref().map_or(true, |others| !others.is_empty()), "seed {seed}: {what} went unnoticed");
        }
    }
}

#[test]
fn what_no_process_owns_is_listed() {
    let mut state = State::used(&mut Numbers(1));
    let request = AllocRequest::gfp_kernel(NodeId(0));
    let frame = with(&mut state.mm, |mm, cx| mm.memory.alloc(cx, &request)).expect("there is memory");
    assert_eq!(state.walk(), Ok(vec![frame]));
    // Frames that it shares with its children are mapped by one entry less than is counted.
    let dead = state.spaces.remove(0);
    let broken = state.walk().unwrap_err().to_string();
    assert!(broken.ends_with("its base entries are not as counted"), "{broken}");
    with(&mut state.mm, |mm, cx| dead.exit(mm, cx));
    assert_eq!(state.walk(), Ok(vec![frame]));
}

#[test]
fn a_forgotten_split_is_noticed() {
    let mut state = State::used(&mut Numbers(2));
    assert!(state.mm.rmap.deferred_splits().count() > 0, "a huge page is mapped in part");
    // The earlier queue is empty: nothing was mapped in part before.
    state.mm.rmap.forget_deferred();
    let broken = state.walk().unwrap_err().to_string();
    assert!(broken.contains("wait for a split"), "{broken}");
}
