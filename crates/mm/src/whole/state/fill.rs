//! Linux: none; the inverse of stable_page_flags() in fs/proc/page.c (v6.1).
//! Differs: puts every frame where the kernel had it.

use memory::{
    alloc::NoMemory,
    buddy::{Block, ORDERS, types_merge},
    cost::Prices,
    cx::Cx,
    event::Counters,
    frame::{Frame, FrameFlag},
    lru_kind::LruKind,
    pageblock::{MigrateType, ZoneIndex},
    slab::Cache,
};
use rules::{
    gfp::Mobility,
    machine::{MachineSpec, ZoneSpec},
    variant::ListEnd,
};
use units::{CpuId, Order, Pfn, Time, Vpn};

use super::{
    Draw, Drawn, FrameMap, Loaded, Seen, Shmem, ZoneCounts, order_of, shuffle,
    types::{Census, Search},
};
use crate::{
    Mm,
    folio::pte::Pte,
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        vma::PageRange,
    },
};

/// First page number of the mappings of all processes' memory; a multiple of the pages under a PMD entry.
const PAGES_FROM: Vpn = Vpn(1 << 27);

/// The frames of a zone, by kind.
#[derive(Default)]
struct Sorted {
    free: Vec<Block>,
    unmarked: Vec<Pfn>,
}

/// Caches of objects that init has; slabs of their order hold them.
const INITS: [Cache; 2] = [Cache::VmArea, Cache::MmStruct];

/// Frames of processes in all zones.
#[derive(Default)]
struct Mapped {
    anon: Vec<(Block, Option<LruKind>)>,
    shmem: Vec<(Pfn, Shmem)>,
    tables: Vec<Pfn>,
    /// For each of our slab caches, a slab block of the size that the cache uses.
    slabs: [Option<Pfn>; INITS.len()],
}

/// Counts for notes to the reader of the result.
#[derive(Default)]
struct Notes {
    blocks: usize,
    typed: usize,
    free: usize,
    apart: u64,
    uncounted: u64,
    listed: usize,
    unmarked: usize,
    lru: usize,
    others: Vec<String>,
}

pub(super) fn fill(mut mm: Mm, machine: &MachineSpec, map: &FrameMap, draw: &mut dyn Draw) -> Option<Loaded> {
    let prices = Prices::free();
    let mut counters = Counters::default();
    let (mut mapped, mut notes) = (Mapped::default(), Notes::default());
    let specs: Vec<ZoneSpec> = machine.nodes.iter().flat_map(|node| node.managed_zones().copied()).collect();
    for (index, spec) in (0..).map(ZoneIndex).zip(&specs) {
        let node = mm.memory.zone(index).node;
        let counts = map.zones.iter().find(|counts| counts.node == node && counts.kind == spec.kind);
        let mut zone = Filling { mm: &mut mm, map, index, spec, counts, mapped: &mut mapped, notes: &mut notes };
        let blocks = zone.blocks();
        let pieces = zone.pieces(&blocks);
        zone.set_types(&blocks, &pieces, draw);
        let sorted = zone.place(&pieces);
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        zone.give_free(&mut cx, sorted.free, draw);
        zone.put_listed(&prices, &sorted.unmarked, draw);
    }
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    for (cache, slab) in INITS.into_iter().zip(mapped.slabs) {
        if let Some(slab) = slab {
            let order = mm.memory.slabs.order(cache);
            mm.memory.take_over_slab(slab, cache, order);
        }
    }
    let init = map_all(&mut mm, &mut cx, mapped, &mut notes, draw)?;
    Some(Loaded { mm, init, notes: notes.lines() })
}

/// The filling of one zone.
struct Filling<'a> {
    mm: &'a mut Mm,
    map: &'a FrameMap,
    index: ZoneIndex,
    spec: &'a ZoneSpec,
    counts: Option<&'a ZoneCounts>,
    mapped: &'a mut Mapped,
    notes: &'a mut Notes,
}

impl Filling<'_> {
    fn seen(&self, pfn: u32) -> Seen {
        let inside = (self.spec.start.0..self.spec.end().0).contains(&pfn);
        self.map.frames.get(pfn as usize).copied().filter(|_| inside).unwrap_or(Seen::Hole)
    }

    fn block_frames(&self) -> u32 {
        self.mm.memory.frames.blocks.order().frames()
    }

    /// The zone's pageblocks with memory. The kernel counts and marks only pageblocks that are online.
    fn blocks(&mut self) -> Vec<Pfn> {
        let size = self.block_frames();
        let first = self.spec.start.align_down(self.mm.memory.frames.blocks.order());
        let all = |block: &Pfn, is: &dyn Fn(Seen) -> bool| (block.0..block.0 + size).all(|pfn| is(self.seen(pfn)));
        let blocks = (first.0..self.spec.end().0).step_by(size as usize).map(Pfn);
        let mut blocks: Vec<Pfn> = blocks.filter(|block| !all(block, &|seen| seen == Seen::Hole)).collect();
        let counted = self.counts.map_or(0, |counts| counts.blocks.iter().sum::<u64>());
        let mut excess = (blocks.len() as u64).saturating_sub(counted) * u64::from(counted > 0);
        let mut dropped = 0;
        for at in (0..blocks.len()).rev() {
            if excess > 0 && all(&blocks[at], &|seen| seen == Seen::Unmarked) {
                blocks.remove(at);
                (excess, dropped) = (excess - 1, dropped + 1);
            }
        }
        if dropped > 0 {
            self.note(&format!("{dropped} pageblocks in which nothing is marked are taken as offline"));
        }
        for block in &blocks {
            self.mm.memory.frames.blocks.set_zone(*block, self.index);
        }
        blocks
    }

    fn note(&mut self, text: &str) {
        let zone = self.mm.memory.zone(self.index);
        self.notes.others.push(format!("node {} {}: {text}", zone.node, zone.kind));
    }

    /// The zone's blocks of frames; free blocks as large as they can be, as free buddies have merged.
    fn pieces(&mut self, blocks: &[Pfn]) -> Vec<(Seen, Block)> {
        let (size, max) = (self.block_frames(), self.mm.memory.max_order());
        let mut pieces = Vec::new();
        let mut odd = 0;
        let mut at = 0;
        for block in blocks {
            at = at.max(block.0);
            // Bound: each piece has at least one frame.
            while at < block.0 + size {
                let seen = self.seen(at);
                let of_run = |seen| if matches!(seen, Seen::Free) { Seen::Free } else { Seen::Tail };
                let more = match seen {
                    Seen::Hole | Seen::Reserved | Seen::Unmarked | Seen::Tail => 0,
                    _ => (at + 1..).take_while(|pfn| self.seen(*pfn) == of_run(seen)).take(1 << max.0).count(),
                };
                let more = u32::try_from(more).expect("at most a block of the largest order");
                let (seen, order) = if seen == Seen::Free {
                    let fits = Order(u8::try_from((more + 1).ilog2().min(max.0.into())).expect("at most the largest"));
                    let aligned = (0..=fits.0).rev().map(Order).find(|order| Pfn(at).is_aligned(*order));
                    (seen, aligned.expect("every frame is a block of one"))
                } else {
                    let whole = order_of(at, more + 1).filter(|order| *order <= max);
                    odd += u32::from(whole.is_none() || seen == Seen::Tail);
                    (if seen == Seen::Tail { Seen::Kernel } else { seen }, whole.unwrap_or(Order::BASE))
                };
                pieces.push((seen, Block { pfn: Pfn(at), order }));
                at += order.frames();
            }
        }
        if odd > 0 {
            self.note(&format!("{odd} compound pages are no blocks and are taken frame by frame"));
        }
        pieces
    }

    /// Gives each pageblock a type, so that the kernel's counts hold. Without counts, the type is that of most frames in
    /// it.
    fn type_by_content(&mut self, blocks: &[Pfn], pieces: &[(Seen, Block)]) {
        let mut pinned = vec![0_i64; blocks.len()];
        let size = self.block_frames();
        for (seen, piece) in pieces {
            let Ok(at) = blocks.binary_search(&piece.pfn.align_down(self.mm.memory.frames.blocks.order())) else {
                continue;
            };
            let frames = i64::from(piece.order.frames().min(size));
            match seen {
                Seen::Anon(_) | Seen::Shmem(_) | Seen::File => pinned[at] -= frames,
                Seen::Slab | Seen::Unmarked | Seen::PageTable | Seen::Kernel => pinned[at] += frames,
                Seen::Free | Seen::Hole | Seen::Reserved | Seen::Tail => {}
            }
        }
        for (block, _) in blocks.iter().zip(&pinned).filter(|(_, pinned)| **pinned > 0) {
            self.mm.memory.frames.blocks.set_migrate_type(*block, MigrateType::Unmovable);
        }
        self.note("no counts of types: a pageblock is Movable unless most of it cannot be moved");
    }

    fn set_types(&mut self, blocks: &[Pfn], pieces: &[(Seen, Block)], draw: &mut dyn Draw) {
        let Some(counts) = self.counts else {
            self.type_by_content(blocks, pieces);
            return;
        };
        let mut census = vec![Census::default(); blocks.len()];
        let mut of = 0;
        for (seen, piece) in pieces {
            of = (of..blocks.len())
                .find(|at| piece.pfn.0 < blocks[*at].0 + self.block_frames())
                .expect("in a pageblock");
            let census = &mut census[of];
            let frames = u16::try_from(piece.order.frames()).unwrap_or(u16::MAX);
            match seen {
                Seen::Free => census.free[usize::from(piece.order.0)] += 1,
                Seen::Anon(_) | Seen::Shmem(_) | Seen::File => census.movable = census.movable.saturating_add(frames),
                Seen::Slab => census.slab = census.slab.saturating_add(frames),
                Seen::Unmarked | Seen::PageTable | Seen::Kernel => census.pinned = census.pinned.saturating_add(frames),
                Seen::Hole | Seen::Reserved | Seen::Tail => {}
            }
        }
        self.split_pairs(counts, &mut census, draw);
        let search = Search::new(&census, &counts.blocks, &counts.free, draw);
        for (block, to) in blocks.iter().zip(search.types()) {
            self.mm.memory.frames.blocks.set_migrate_type(*block, to);
            self.notes.typed += usize::from(to != MigrateType::Movable);
        }
        self.notes.blocks += blocks.len();
        self.notes.apart += search.apart();
        let size = u64::from(self.block_frames());
        self.mm.memory.zone_mut(self.index).high_atomic = counts.blocks[MigrateType::HighAtomic as usize] * size;
    }

    /// Splits blocks of the largest order into two pageblocks whose types do not merge, where the kernel counts fewer such
    /// blocks than there could be.
    fn split_pairs(&self, counts: &ZoneCounts, census: &mut [Census], draw: &mut dyn Draw) {
        let (large, half) =
            (usize::from(self.mm.memory.max_order().0), usize::from(self.mm.memory.frames.blocks.order().0));
        let mut pairs: Vec<usize> = (0..census.len()).filter(|at| census[*at].free[large] > 0).collect();
        let counted: u64 = counts.free.iter().map(|orders| orders[large]).sum();
        let excess = pairs.len().saturating_sub(usize::try_from(counted).unwrap_or(usize::MAX));
        if large != half + 1 {
            return;
        }
        shuffle(&mut pairs, draw, Drawn::BlockType);
        for at in pairs.into_iter().take(excess) {
            census[at].free[large] -= 1;
            census[at].free[half] += 1;
            census[at + 1].free[half] += 1;
        }
    }

    /// Sets the state of each frame that does not go to a list.
    fn place(&mut self, pieces: &[(Seen, Block)]) -> Sorted {
        let mut sorted = Sorted::default();
        for (seen, piece) in pieces.iter().copied() {
            let Block { pfn, order } = piece;
            let to = self.mm.memory.frames.blocks.migrate_type(pfn);
            let mobility = match seen {
                Seen::Hole | Seen::Reserved => {
                    self.mm.memory.frames.set(pfn, Frame::Reserved);
                    continue;
                }
                Seen::Free => {
                    self.split_by_type(piece, &mut sorted.free);
                    continue;
                }
                Seen::Unmarked => {
                    sorted.unmarked.push(pfn);
                    continue;
                }
                Seen::Anon(list) => {
                    self.keep_anon(piece, list);
                    continue;
                }
                Seen::Shmem(shmem) if order == Order::BASE => {
                    self.mapped.shmem.push((pfn, shmem));
                    continue;
                }
                Seen::PageTable if order == Order::BASE => {
                    self.mapped.tables.push(pfn);
                    Mobility::Unmovable
                }
                Seen::Shmem(_) | Seen::File => Mobility::Movable,
                Seen::Slab => {
                    for (slab, cache) in self.mapped.slabs.iter_mut().zip(INITS) {
                        if self.mm.memory.slabs.order(cache) == order && to == MigrateType::Unmovable {
                            slab.get_or_insert(pfn);
                        }
                    }
                    if to == MigrateType::Reclaimable { Mobility::Reclaimable } else { Mobility::Unmovable }
                }
                Seen::PageTable | Seen::Kernel | Seen::Tail => Mobility::Unmovable,
            };
            self.mm.memory.frames.set(pfn, Frame::Kernel { order, mobility });
            // It was on a list, and counts so where pageblocks are counted.
            self.mm.memory.frames.mark(pfn, FrameFlag::OnLru, mobility == Mobility::Movable);
        }
        sorted
    }

    /// Splits a free block of several pageblocks where their types do not merge.
    fn split_by_type(&self, piece: Block, free: &mut Vec<Block>) {
        let blocks = &self.mm.memory.frames.blocks;
        let half = Order(piece.order.0.saturating_sub(1));
        let starts = (0..piece.order.frames()).step_by(self.block_frames() as usize).map(|n| piece.pfn.plus(n));
        let first = blocks.migrate_type(piece.pfn);
        let is_one = |pfn| types_merge(first, blocks.migrate_type(pfn), self.mm.memory.variant().merging);
        if piece.order <= blocks.order() || starts.skip(1).all(is_one) {
            free.push(piece);
        } else {
            for pfn in [piece.pfn, piece.pfn.plus(half.frames())] {
                self.split_by_type(Block { pfn, order: half }, free);
            }
        }
    }

    /// Collects anonymous memory, which is mapped by base pages or by huge ones; folios of other orders are split.
    fn keep_anon(&mut self, piece: Block, list: Option<LruKind>) {
        if piece.order == Order::BASE || piece.order == Order::HUGE {
            self.mapped.anon.push((piece, list));
        } else {
            let frames = (0..piece.order.frames()).map(|n| Block { pfn: piece.pfn.plus(n), order: Order::BASE });
            self.mapped.anon.extend(frames.map(|frame| (frame, list)));
        }
    }

    /// Puts free blocks on the lists that the kernel counts them on, in a random order.
    fn give_free(&mut self, cx: &mut Cx<'_>, mut free: Vec<Block>, draw: &mut dyn Draw) {
        shuffle(&mut free, draw, Drawn::FreeOrder);
        self.notes.free += free.len();
        let counts = self.counts.map(|counts| counts.free);
        let mut left = counts.unwrap_or([[0; ORDERS]; MigrateType::COUNT]);
        let mut take = |list: MigrateType, order: Order| {
            let count = &mut left[list as usize][usize::from(order.0)];
            *count = count.checked_sub(1)?;
            Some(list)
        };
        let own = |mm: &Mm, block: &Block| mm.memory.frames.blocks.migrate_type(block.pfn);
        let mut lists: Vec<_> = free.iter().map(|block| take(own(self.mm, block), block.order)).collect();
        for (block, list) in free.iter().zip(&mut lists).filter(|(_, list)| list.is_none()) {
            *list = MigrateType::ALL.into_iter().find_map(|list| take(list, block.order));
            self.notes.uncounted += u64::from(list.is_none() && counts.is_some());
        }
        self.notes.uncounted += left.iter().flatten().sum::<u64>();
        for (block, list) in free.into_iter().zip(lists) {
            let list = list.unwrap_or_else(|| own(self.mm, &block));
            self.mm.memory.put_free(cx, self.index, block, (list, Some(ListEnd::Tail)));
        }
    }

    /// Puts as many unmarked frames on per-CPU lists as the kernel counts, first the frames of Movable pageblocks: few
    /// other frames there are unmarked. The rest are the kernel's. Runs of neighbours go together, as a refill takes them
    /// (`rmqueue_bulk`, mm/page_alloc.c, v6.1): single frames would be free blocks of their own once the lists are
    /// drained.
    fn put_listed(&mut self, prices: &Prices, unmarked: &[Pfn], draw: &mut dyn Draw) {
        let block = self.block_frames();
        let mut runs: Vec<&[Pfn]> =
            unmarked.chunk_by(|one, next| one.0 + 1 == next.0 && one.0 / block == next.0 / block).collect();
        shuffle(&mut runs, draw, Drawn::Listed);
        let memory = &mut self.mm.memory;
        runs.sort_by_key(|run| memory.frames.blocks.migrate_type(run[0]) != MigrateType::Movable);
        self.notes.unmarked += unmarked.len();
        let mut unmarked = runs.into_iter().flatten().copied();
        let mut counters = Counters::default();
        let listed = self.counts.map_or(&[][..], |counts| &counts.listed);
        for (cpu, count) in (0..).map(CpuId).zip(listed).take(memory.cpus()) {
            let mut cx = Cx::new(cpu, Time(0), prices, &mut counters);
            for pfn in unmarked.by_ref().take(*count as usize) {
                let own = memory.frames.blocks.migrate_type(pfn);
                let list = if own.is_requestable() { own } else { MigrateType::Movable };
                memory.put_listed(&mut cx, self.index, pfn, list);
                self.notes.listed += 1;
            }
        }
        for pfn in unmarked {
            memory.frames.set(pfn, Frame::Kernel { order: Order::BASE, mobility: Mobility::Unmovable });
        }
    }
}

/// Maps all anonymous memory into one address space, huge pages first, then files in memory, and gives it all page tables.
fn map_all(
    mm: &mut Mm,
    cx: &mut Cx<'_>,
    mapped: Mapped,
    notes: &mut Notes,
    draw: &mut dyn Draw,
) -> Option<AddressSpace> {
    let Mapped { mut anon, mut shmem, mut tables, .. } = mapped;
    tables.reverse();
    let mut space = AddressSpace::new_in(mm, cx, MMAP_BASE, tables).ok()?;
    anon.sort_by_key(|(block, _)| block.order == Order::BASE);
    let kept = shmem.split_off(shmem.len().min(room_beside(&anon, space.tables.given())));
    if !kept.is_empty() {
        notes.others.push(format!("{} pages of files in memory stay: there are no page tables for them", kept.len()));
    }
    for (pfn, _) in kept {
        mm.memory.frames.set(pfn, Frame::Kernel { order: Order::BASE, mobility: Mobility::Movable });
        mm.memory.frames.mark(pfn, FrameFlag::OnLru, true);
    }
    let pages: u64 = anon.iter().map(|(block, _)| u64::from(block.order.frames())).sum::<u64>() + shmem.len() as u64;
    if pages > 0 {
        let range = PageRange::new(PAGES_FROM, pages);
        space.vmas.insert(range, || mm.memory.alloc_object(cx, Cache::VmArea)).ok()?;
        space.vmas.prepare_anon(range.start);
    }
    let mut vpn = PAGES_FROM;
    for (block, _) in &anon {
        map_one(mm, &mut space, cx, *block, (vpn, true)).ok()?;
        vpn = Vpn(vpn.0 + u64::from(block.order.frames()));
    }
    for (pfn, of) in &shmem {
        // No entry has its accessed bit set if only the file has the page.
        map_one(mm, &mut space, cx, Block { pfn: *pfn, order: Order::BASE }, (vpn, of.is_mapped)).ok()?;
        mm.memory.frames.mark(*pfn, FrameFlag::Referenced, of.is_referenced);
        vpn = Vpn(vpn.0 + 1);
    }
    // Tables without anything to map are those of sparse processes, whose tables have a few pages each.
    vpn = Vpn(vpn.0.next_multiple_of(u64::from(Order::HUGE.frames())));
    while space.tables.given() > 0 {
        let slot = space.tables.make_pmd_slot(mm, cx, vpn).ok()?;
        space.tables.make_pte_table(mm, cx, slot).ok()?;
        vpn = Vpn(vpn.0 + u64::from(Order::HUGE.frames()));
    }
    anon.extend(shmem.iter().map(|(pfn, of)| (Block { pfn: *pfn, order: Order::BASE }, of.list)));
    shuffle(&mut anon, draw, Drawn::LruOrder);
    for (block, list) in anon {
        if let Some(kind) = list {
            mm.lru_insert(block.pfn, block.order, kind);
            notes.lru += 1;
        } else {
            // On its way to a list.
            mm.memory.frames.mark(block.pfn, FrameFlag::InBatch, true);
            mm.memory.frames.mark(
                block.pfn,
                FrameFlag::Active,
                LruKind::of_new_anon(mm.memory.variant().lru_new_anon).is_active(),
            );
            mm.lru_add(cx, block.pfn, block.order);
        }
    }
    Some(space)
}

/// Base pages that this number of tables can map beside anonymous memory, which comes first.
fn room_beside(anon: &[(Block, Option<LruKind>)], tables: usize) -> usize {
    // A table of each level above, and one more where anonymous memory crosses into the next.
    const ABOVE: usize = 4;
    let per_table = Order::HUGE.frames() as usize;
    let base = anon.iter().filter(|(block, _)| block.order == Order::BASE).count();
    // Each huge page has a deposited table.
    let for_huge = (anon.len() - base) + (anon.len() - base).div_ceil(per_table);
    let rest = tables.saturating_sub(ABOVE + for_huge);
    (rest * per_table).saturating_sub(base + rest.div_ceil(per_table) * per_table)
}

fn map_one(
    mm: &mut Mm,
    space: &mut AddressSpace,
    cx: &mut Cx<'_>,
    Block { pfn, order }: Block,
    (vpn, is_used): (Vpn, bool),
) -> Result<(), NoMemory> {
    let slot = space.tables.make_pmd_slot(mm, cx, vpn)?;
    mm.memory.frames.set(pfn, Frame::Anon { family: space.family, vpn, order });
    mm.memory.frames.set_map_count(pfn, 1);
    space.rss += u64::from(order.frames());
    if order == Order::HUGE {
        let deposit = space.tables.alloc_pte_table(mm, cx)?;
        space.tables.deposit(slot, deposit);
        space.tables.set_pmd(cx, slot, Pte::written_huge(pfn));
        return Ok(());
    }
    let table = space.tables.make_pte_table(mm, cx, slot)?;
    let pte = Pte::written(pfn);
    space.tables.set_pte(cx, table, vpn, if is_used { pte } else { pte.old() });
    Ok(())
}

impl Notes {
    fn lines(self) -> Vec<String> {
        let Self { blocks, typed, free, apart, uncounted, listed, unmarked, lru, others } = self;
        let mut lines = vec![
            format!(
                "drawn: which {typed} of {blocks} pageblocks are not Movable, as far as contents and counts leave it open"
            ),
            format!("drawn: the order of {free} blocks on free lists"),
            format!("drawn: which {listed} of {unmarked} unmarked frames are on per-CPU lists"),
            format!("drawn: the order of {lru} folios on LRU lists"),
        ];
        if apart > 0 {
            lines
                .push(format!("{apart} free blocks are on lists of another type than their pageblock was found to be"));
        }
        if uncounted > 0 {
            lines.push(format!("{uncounted} free blocks are not as the kernel counts them: memory moved meanwhile"));
        }
        lines.extend(others);
        lines
    }
}
