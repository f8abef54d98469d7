//! The comparison after an operation. Of the real one it reads frames, raw words and the ends of lists.

use memory::{
    event::Event,
    frame::{Frame, FrameFlag, FrameTable, NIL},
    list::List,
    lru_kind::LruKind,
    news::Daemon,
    pageblock::MigrateType,
    per_node::PerNode,
    slab::{ArrayCache, Arrays, Cache, Slabs, Slub},
    zone_state::ZoneState,
};
use mm::{folio::pte::Pte, space::address_space::AddressSpace, whole::check};
use rules::variant::PcpLists;
use units::{CpuId, Order, Pfn};

use crate::{
    arrays::Array,
    model::Zone,
    pair::{Operation, Pair},
    processes::{Entry, HUGE, Page, Process},
    slabs::KINDS,
};

// Bits of an entry: arch/x86/include/asm/pgtable_types.h.
const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const HUGE_BIT: u64 = 1 << 7;
const ZERO: u64 = 1 << 9;

impl Pair {
    /// Both agree in everything, and the real one with itself.
    pub(crate) fn compare(&self) {
        check::walk(&self.mm).unwrap();
        let (owners, kernel) = self.owners();
        assert_eq!(check::walk_owners(&self.mm, &owners).unwrap(), kernel);
        self.compare_memory();
        self.compare_lru();
        self.compare_slabs();
        self.compare_processes();
        let huge_zero = self.mm.huge_zero.frame().map(|pfn| pfn.0);
        assert_eq!(huge_zero, self.twin.huge_zero);
        assert!(
            self.mm.rmap.deferred_splits().map(|pfn| pfn.0).eq(self.twin.deferred.iter().map(|waiting| waiting.head))
        );
        // What is in a TLB is no state here: flushes are prices.
        for event in Event::ALL.iter().filter(|event| !event.name().contains("_tlb_")) {
            assert_eq!(self.counters.get(*event), self.twin.memory.counted(*event), "{}", event.name());
        }
    }

    fn compare_memory(&self) {
        let (frames, model) = (&self.mm.memory.frames, &self.twin.memory);
        for (zone, twin) in self.mm.memory.zones().iter().zip(&model.zones) {
            for order in 0..=model.max {
                let is_big = order >= model.pageblock;
                for list in MigrateType::ALL {
                    let ours = zone.free_list(Order(u8::try_from(order).unwrap()), list);
                    let theirs = twin.free.get(&(order, list)).map_or(&[][..], Vec::as_slice);
                    let same = listed(frames, ours, is_big).eq(theirs.iter().copied());
                    assert!(
                        same,
                        "{} order {order} {list:?}: {:?}, not {theirs:?}",
                        zone.kind,
                        all(frames, ours, is_big)
                    );
                }
            }
            assert_eq!(zone.high_atomic, twin.high_atomic, "{}", zone.kind);
            assert_eq!(zone.boost, twin.boost, "{}: by what its marks are raised", zone.kind);
            compare_pcps(zone, twin, model.rules.pcp_lists);
        }
        for pfn in (0..frames.len()).step_by(1 << model.pageblock) {
            assert_eq!(frames.blocks.migrate_type(Pfn(pfn)), model.type_at(pfn), "pageblock of {pfn}");
        }
        assert_eq!(self.mm.memory.has_woken(Daemon::Kswapd), !model.woken.is_empty());
        for (node, twin) in self.mm.memory.nodes().values().zip(&model.kswapds) {
            let kswapd = &node.kswapd;
            assert_eq!((kswapd.is_asleep(), kswapd.failures()), (twin.is_asleep(), twin.failures));
        }
        for (pfn, taken) in &model.taken {
            let order = frames.order_of(frames.get(Pfn(*pfn)));
            assert_eq!(u32::from(order.0), taken.order, "frame {pfn}");
        }
    }

    fn compare_lru(&self) {
        let (frames, lru, twin) = (&self.mm.memory.frames, &self.mm.lru, &self.twin.lru);
        for (number, lruvec) in lru.lruvecs().iter().enumerate() {
            for kind in [LruKind::InactiveAnon, LruKind::ActiveAnon] {
                let same = listed(frames, lruvec.list(kind), false).eq(twin.list(number, kind == LruKind::ActiveAnon));
                assert!(same, "LRU list {kind:?} of {number}: {:?}", all(frames, lruvec.list(kind), false));
            }
        }
        for (cpu, batch) in (0..).zip(&twin.batches) {
            assert!(lru.batch(CpuId(cpu)).iter().map(|head| head.0).eq(batch.iter().copied()), "batch of CPU {cpu}");
            for head in batch {
                assert_eq!(frames.has(Pfn(*head), FrameFlag::Dropped), twin.dropped.contains(head), "frame {head}");
            }
        }
    }

    fn compare_slabs(&self) {
        let twin = &self.twin.slabs;
        match &self.mm.memory.slabs {
            Slabs::Slub(all) => self.compare_slub(all),
            Slabs::Slab(arrays) => self.compare_arrays(arrays),
        }
        for (pfn, twin) in &twin.all {
            let frame = self.mm.memory.frames.get(Pfn(*pfn));
            let Frame::Slab(slab) = frame else { panic!("{pfn} is a slab, not {frame:?}") };
            assert_eq!(slab.cache, twin.cache, "slab {pfn}");
            assert_eq!((u32::from(slab.order.0), u32::from(slab.in_use)), (twin.order, twin.in_use), "slab {pfn}");
        }
    }

    fn compare_slub(&self, slabs: &Slub) {
        let twin = &self.twin.slabs;
        for cache in Cache::ALL {
            for (cpu, current) in slabs.current(cache).iter().enumerate() {
                assert_eq!(
                    current.map(|slab| slab.0),
                    twin.current.get(&(cache, cpu)).copied(),
                    "{cache:?}, CPU {cpu}"
                );
            }
            for (cpu, list) in slabs.cpu_partial(cache).iter().enumerate() {
                let theirs = twin.of_cpu.get(&(cache, cpu)).map_or(&[][..], Vec::as_slice);
                let ours = list.iter().map(|partial| (partial.slab.0, partial.objects));
                assert!(ours.eq(theirs.iter().copied()), "{cache:?}, CPU {cpu}: {list:?}, not {theirs:?}");
            }
            for (node, list) in (0..).zip(slabs.partial(cache).values()) {
                let theirs = twin.partial.get(&(cache, node)).map_or(&[][..], Vec::as_slice);
                assert!(
                    listed(&self.mm.memory.frames, list, false).eq(theirs.iter().copied()),
                    "{cache:?}, node {node}"
                );
            }
        }
    }

    fn compare_arrays(&self, arrays: &Arrays) {
        let (twin, none) = (&self.twin.arrays, Array::default());
        let same = |ours: &ArrayCache, theirs: &Array, what: &str| {
            assert!(ours.slabs.iter().map(|pfn| pfn.0).eq(theirs.slabs.iter().copied()), "{what}");
            assert_eq!(ours.touched, theirs.used, "{what}");
        };
        for cache in KINDS {
            let kmem = arrays.of(cache);
            for (cpu, array) in kmem.cpus.iter().enumerate() {
                same(array, twin.cpus.get(&(cache, cpu)).unwrap_or(&none), &format!("{cache:?} of CPU {cpu}"));
            }
            for (id, node) in kmem.nodes.iter() {
                let key = (cache, id.0);
                for (ours, theirs) in [(&node.partial, &twin.partial), (&node.free, &twin.empty)] {
                    let theirs = theirs.get(&key).map_or(&[][..], Vec::as_slice);
                    let ours = listed(&self.mm.memory.frames, ours, false);
                    assert!(ours.eq(theirs.iter().copied()), "{cache:?}, node {id}: not {theirs:?}");
                }
                if let Some(shared) = &node.shared {
                    same(shared, twin.shared.get(&key).unwrap_or(&none), &format!("{cache:?} shared on {id}"));
                }
                for (of, array) in node.aliens.iter().flat_map(PerNode::iter) {
                    let theirs = twin.collected.get(&(cache, id.0, of.0)).map_or(&[][..], Vec::as_slice);
                    assert!(array.slabs.iter().map(|pfn| pfn.0).eq(theirs.iter().copied()), "{cache:?}: {of} on {id}");
                }
                assert_eq!(node.free_touched, twin.searched.contains(&key), "{cache:?}, node {id}");
                let due = twin.due.get(&key).copied().unwrap_or(node.next_reap.0);
                assert_eq!(node.next_reap.0, due, "{cache:?}, node {id}");
            }
        }
    }

    fn compare_processes(&self) {
        let mut spaces = 0;
        for (id, space) in self.all_spaces() {
            let process = &self.twin.processes[&id];
            let tables = Tables { frames: &self.mm.memory.frames, space, process };
            tables.compare();
            compare_mappings(space, process);
            spaces += 1;
        }
        assert_eq!(spaces, self.twin.processes.len());
    }

    /// Each process reads what it wrote, and what it inherited.
    pub(crate) fn compare_contents(&self) {
        for (id, space) in self.all_spaces().filter(|(id, _)| self.reads_back(*id)) {
            let process = &self.twin.processes[&id];
            Tables { frames: &self.mm.memory.frames, space, process }.compare_contents();
        }
    }

    /// Is the process in a state to read what it wrote: not half forked, and not half unmapped?
    fn reads_back(&self, id: u32) -> bool {
        self.running.iter().all(|running| match &running.work {
            Operation::Touch(..) => true,
            Operation::Unmap(..) => running.id != id,
            Operation::Fork(_, model) => model.child != id,
        })
    }
}

fn compare_pcps(zone: &ZoneState, twin: &Zone, rules: PcpLists) {
    for (ours, theirs) in zone.cpu_lists().iter().zip(&twin.pcps) {
        assert_eq!(ours.count(), theirs.count());
        for (ours, theirs) in ours.lists(rules).zip(&theirs.lists) {
            let same = ours.blocks().iter().rev().map(|head| head.0).eq(theirs.iter().map(|block| block.0));
            assert!(same, "{} per CPU: {ours:?}, not {theirs:?}", zone.kind);
        }
    }
}

/// A list by its raw links.
fn listed(frames: &FrameTable, list: &List, is_big: bool) -> impl Iterator<Item = u32> {
    let next = move |pfn: &u32| {
        let word = if is_big { frames.raw_block(Pfn(*pfn)).1 } else { frames.raw_links(Pfn(*pfn)) };
        u32::try_from(word >> 32).ok().filter(|next| *next != NIL.0)
    };
    std::iter::successors(list.first().map(|pfn| pfn.0), next)
}

fn all(frames: &FrameTable, list: &List, is_big: bool) -> Vec<u32> {
    listed(frames, list, is_big).collect()
}

fn compare_mappings(space: &AddressSpace, process: &Process) {
    assert_eq!(u32::from(space.family.0), process.family);
    assert_eq!(space.rss_pages(), process.rss);
    assert_eq!(space.vmas.len(), process.vmas.len());
    for (vma, twin) in space.vmas.iter().zip(&process.vmas) {
        let ours = (vma.start.0, vma.end().0, vma.advice, vma.anon.is_some(), vma.object.slab().0);
        assert_eq!(ours, (twin.start, twin.end, twin.advice, twin.tie.is_some(), twin.object));
    }
}

/// The tables of one process.
struct Tables<'a> {
    frames: &'a FrameTable,
    space: &'a AddressSpace,
    process: &'a Process,
}

impl Tables<'_> {
    /// Each table is in the same frame, and each entry says the same.
    fn compare(&self) {
        let process = self.process;
        let mut met = (0, 0, 0);
        let (root, entries, _) = self.space.tables.raw(self.space.tables.raw_root());
        assert_eq!(root.0, process.root);
        for (pgd, pud) in used(entries) {
            let (frame, entries, _) = self.space.tables.raw(number_in(pud));
            assert_eq!(process.puds.get(&pgd), Some(&frame.0));
            met.0 += 1;
            for (n, pmd) in used(entries) {
                let number = pgd * HUGE + n;
                let (frame, entries, kept) = self.space.tables.raw(number_in(pmd));
                let twin = &process.pmds[&number];
                assert_eq!(frame.0, twin.frame);
                assert!(kept.map(|at| self.space.tables.raw(at).0.0).eq(twin.kept.iter().copied()));
                met.1 += 1;
                for (n, entry) in used(entries) {
                    self.compare_entry(entry, number * HUGE + n);
                    met.2 += 1;
                }
            }
        }
        assert_eq!(met, (process.puds.len(), process.pmds.len(), process.entries.len()));
    }

    fn compare_entry(&self, entry: u64, number: u64) {
        match &self.process.entries[&number] {
            Entry::Huge { frame, zero, writable } => {
                let wanted = huge_bits(*zero, *writable) | u64::from(*frame) << 12;
                assert_eq!(entry & !0x60, wanted, "huge page {number}");
            }
            Entry::Table { frame, pages } => {
                assert!(entry & HUGE_BIT == 0, "huge page {number} is {entry:#x}, not a table");
                let (ours, entries, _) = self.space.tables.raw(number_in(entry));
                assert_eq!(ours.0, *frame);
                let differs = entries.iter().zip(pages).position(|(ours, page)| !is_same(*ours, *page));
                if let Some(n) = differs {
                    panic!("page {n} of huge page {number}: {:#x}, not {:?}", entries[n].raw(), pages[n]);
                }
            }
        }
    }

    /// Each page holds what the process has put there, through whatever frame; and tables are clear.
    fn compare_contents(&self) {
        let nothing = vec![0; usize::try_from(HUGE).unwrap()];
        for (number, entry) in &self.process.entries {
            let words = self.process.contents.get(number).unwrap_or(&nothing);
            for (n, word) in (0..).zip(words) {
                let frame = match entry {
                    Entry::Huge { zero: true, .. } => None,
                    Entry::Huge { frame, .. } => Some(frame + n),
                    Entry::Table { pages, .. } => match pages[n as usize] {
                        Page::Frame { pfn, .. } => Some(pfn),
                        Page::Nothing | Page::Zero => None,
                    },
                };
                let reads = frame.map_or(0, |pfn| self.frames.content(Pfn(pfn)));
                assert_eq!(reads, *word, "page {n} of huge page {number} in frame {frame:?}");
            }
        }
        for number in self.process.contents.keys() {
            assert!(self.process.entries.contains_key(number), "huge page {number} was written, and is not mapped");
        }
        let bases = self.process.entries.values().filter_map(|entry| match entry {
            Entry::Table { frame, .. } => Some(*frame),
            Entry::Huge { .. } => None,
        });
        let above =
            self.process.pmds.values().flat_map(|table| [table.frame].into_iter().chain(table.kept.iter().copied()));
        for table in bases.chain(above).chain(self.process.puds.values().copied()).chain([self.process.root]) {
            assert_eq!(self.frames.content(Pfn(table)), 0, "table {table} was not cleared");
        }
    }
}

/// The entries of a table that say something.
fn used(entries: &[Pte; 512]) -> impl Iterator<Item = (u64, u64)> + '_ {
    (0..).zip(entries).map(|(n, entry)| (n, entry.raw())).filter(|(_, word)| *word != 0)
}

/// A table's place beside its frame.
fn number_in(entry: u64) -> usize {
    usize::try_from(entry >> 12).unwrap()
}

fn huge_bits(zero: bool, writable: bool) -> u64 {
    PRESENT | HUGE_BIT | if zero { ZERO } else { 0 } | if writable { WRITABLE } else { 0 }
}

/// Does an entry say this of a base page? Accessed and dirty are not the twin's.
fn is_same(entry: Pte, page: Page) -> bool {
    let word = entry.raw() & !0x60;
    match page {
        Page::Nothing => entry.raw() == 0,
        Page::Zero => word == PRESENT | ZERO,
        Page::Frame { pfn, writable } => word == u64::from(pfn) << 12 | PRESENT | if writable { WRITABLE } else { 0 },
    }
}
