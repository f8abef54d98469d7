//! Linux: mm/memory.c, mm/pgtable-generic.c, arch/x86/mm/pgtable.c (v6.1).
//! Differs: four levels; a root table is one frame, also where page-table isolation takes two. The policy of a task applies to
//! tables that its faults make; tables made by fork are on the CPU's node.
//!
//! Each table's frame is a real allocation; its contents are in an arena beside. A walk over a range costs one descent per 512
//! base pages.

pub(crate) mod huge;
pub(crate) mod runs;

use std::collections::{BTreeSet, VecDeque};

use memory::{alloc::NoMemory, cx::Cx, frame::Frame, primitive};
use rules::{gfp::AllocRequest, mempolicy::Mempolicy};
use units::{Order, Pfn, Vpn};

use crate::{Mm, folio::pte::Pte, space::vma::PageRange};

/// Number of levels.
const LEVELS: usize = 4;
const ENTRIES: usize = 512;
const BITS: u32 = 9;

/// A level of the tree, named by its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// 4 KiB.
    Pte,
    /// 2 MiB.
    Pmd,
    /// 1 GiB.
    Pud,
    /// 512 GiB: the root.
    Pgd,
}

impl Level {
    /// Index of the entry for `vpn` in a table of this level.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "nine bits are left")]
    pub const fn index(self, vpn: Vpn) -> usize {
        (vpn.0 >> (self as u32 * BITS) & (ENTRIES as u64 - 1)) as usize
    }

    /// Base pages that one entry covers.
    pub(crate) const fn entry_pages(self) -> u64 {
        1 << (self as u32 * BITS)
    }

    /// The pages that the entry for `vpn` covers.
    pub(crate) const fn entry_range(self, vpn: Vpn) -> PageRange {
        PageRange::new(Vpn(vpn.0 & !(self.entry_pages() - 1)), self.entry_pages())
    }

    const fn below(self) -> Self {
        match self {
            Self::Pgd => Self::Pud,
            Self::Pud => Self::Pmd,
            Self::Pmd | Self::Pte => Self::Pte,
        }
    }
}

/// Index of a table in its address space's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableId(u32);

#[derive(Clone, Debug)]
struct Table {
    frame: Pfn,
    entries: Box<[Pte; ENTRIES]>,
    /// In a PMD table: PTE tables kept for the split of its huge pages; the first is taken next.
    deposits: VecDeque<TableId>,
    /// In a PTE table: its summary, if computed since an entry was last written.
    summary: Option<runs::Summary>,
    /// In a PTE table: one hinting fault clears the hints of all its pages.
    hints_at_once: bool,
}

/// The tables to be freed, and how many more in this step.
struct Sweep {
    /// Tables that cover nothing outside this range are freed.
    gap: PageRange,
    left: u64,
}

/// The place of a PMD entry: its table, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmdSlot {
    table: TableId,
    index: usize,
}

/// The contents of a PMD entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pmd {
    /// Nothing.
    None,
    /// A huge page.
    Huge(Pte),
    /// A table of base pages.
    Table(TableId),
}

/// The page tables of one address space. Fields that every access needs come first.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct PageTables {
    arena: Vec<Table>,
    /// Number of times that a table of base pages was linked or unlinked: a table that was found stays in place until this
    /// changes.
    moves: u64,
    /// Grows with each write of a PTE, or of the PMD entry of a huge page.
    changes: u64,
    /// Grows with each change of a huge page's entry, also of its accessed bit, but not with new entries.
    huge_changes: u64,
    spare: Vec<TableId>,
    /// Frames that tables are in already, when a recorded state is taken over; they are used before new frames.
    given: Vec<Pfn>,
    root: TableId,
    counts: [u64; LEVELS],
    policy: Mempolicy,
}

impl PageTables {
    /// New page tables with a root.
    pub fn new(mm: &mut Mm, cx: &mut Cx) -> Result<Self, NoMemory> {
        Self::new_in(mm, cx, Vec::new())
    }

    /// New page tables in the frames of `given`, the last first.
    pub(crate) fn new_in(mm: &mut Mm, cx: &mut Cx, given: Vec<Pfn>) -> Result<Self, NoMemory> {
        let (arena, spare) = (Vec::new(), Vec::new());
        let mut tables = Self {
            arena,
            moves: 0,
            changes: 0,
            huge_changes: 0,
            spare,
            given,
            root: TableId(0),
            counts: [0; LEVELS],
            policy: Mempolicy::Local,
        };
        tables.root = tables.alloc_table(mm, cx, Level::Pgd)?;
        Ok(tables)
    }

    /// Number of given frames that are not used yet.
    pub(crate) fn given(&self) -> usize {
        self.given.len()
    }

    /// Number of tables of `level`; deposited tables count as PTE tables.
    pub fn count(&self, level: Level) -> u64 {
        self.counts[level as usize]
    }

    /// The frames of all tables in use.
    pub fn frames(&self) -> impl Iterator<Item = Pfn> + '_ {
        let spare: BTreeSet<u32> = self.spare.iter().map(|id| id.0).collect();
        (0..).zip(&self.arena).filter(move |(id, _)| !spare.contains(id)).map(|(_, table)| table.frame)
    }

    /// Index of the root among the raw tables: for checks.
    pub fn raw_root(&self) -> usize {
        self.root.0 as usize
    }

    /// A raw table: its frame, its entries, and the indices of its deposited tables. For checks.
    pub fn raw(&self, index: usize) -> (Pfn, &[Pte; ENTRIES], impl ExactSizeIterator<Item = usize> + '_) {
        let table = &self.arena[index];
        (table.frame, &table.entries, table.deposits.iter().map(|id| id.0 as usize))
    }

    /// Number of tables, linked or not: for checks.
    pub fn raw_len(&self) -> usize {
        self.arena.len() - self.spare.len()
    }

    /// The frame of the PMD table for `vpn`, if there is one.
    pub(crate) fn pmd_frame(&self, vpn: Vpn) -> Option<Pfn> {
        self.pmd_slot(vpn).map(|slot| self.frame(slot.table))
    }

    /// Sets the policy by which further tables are allocated, which is that of the task, as in the kernel.
    pub(crate) fn make_under(&mut self, policy: Mempolicy) {
        self.policy = policy;
    }

    /// The frame of the root, which no other address space has.
    pub(crate) fn root_frame(&self) -> Pfn {
        self.frame(self.root)
    }

    /// The frame of a table.
    pub(crate) fn frame(&self, table: TableId) -> Pfn {
        self.table(table).frame
    }

    // PMD entries.

    /// The PMD entry for `vpn`, if the tables above exist.
    pub fn pmd_slot(&self, vpn: Vpn) -> Option<PmdSlot> {
        let pud = self.child(self.root, Level::Pgd.index(vpn))?;
        let table = self.child(pud, Level::Pud.index(vpn))?;
        Some(PmdSlot { table, index: Level::Pmd.index(vpn) })
    }

    /// The PMD entry for `vpn`, after making the tables above.
    pub fn make_pmd_slot(&mut self, mm: &mut Mm, cx: &mut Cx, vpn: Vpn) -> Result<PmdSlot, NoMemory> {
        let pud = self.make_child(mm, cx, self.root, Level::Pgd, vpn)?;
        let table = self.make_child(mm, cx, pud, Level::Pud, vpn)?;
        Ok(PmdSlot { table, index: Level::Pmd.index(vpn) })
    }

    /// Grows with each table of base pages that is linked or unlinked.
    #[inline]
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// Grows with each entry written that maps memory: facts about several entries hold until then.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Grows with each change of a huge page's entry, also of its accessed bit.
    pub(crate) fn huge_changes(&self) -> u64 {
        self.huge_changes
    }

    /// The contents of a PMD entry.
    pub fn pmd(&self, slot: PmdSlot) -> Pmd {
        match self.table(slot.table).entries[slot.index] {
            Pte::NONE => Pmd::None,
            pte if pte.is_huge() => Pmd::Huge(pte),
            pte => Pmd::Table(TableId(pte.table_index())),
        }
    }

    /// The contents of the PMD entry for `vpn`.
    pub fn pmd_of(&self, vpn: Vpn) -> Pmd {
        self.pmd_slot(vpn).map_or(Pmd::None, |slot| self.pmd(slot))
    }

    /// Maps a huge page, or unmaps one.
    pub fn set_pmd(&mut self, cx: &mut Cx, slot: PmdSlot, pte: Pte) {
        assert!(pte == Pte::NONE || pte.is_huge(), "tables are linked by make_pte_table and link_pte_table");
        primitive::write_ptes(cx, 1);
        self.moves += 1;
        self.changes += 1;
        let was = std::mem::replace(&mut self.arena[slot.table.0 as usize].entries[slot.index], pte);
        self.huge_changes += u64::from(was.is_huge());
    }

    /// Marks the entry of the huge page at `vpn` as used, as the processor does when user code reads or stores.
    pub(crate) fn use_huge(&mut self, vpn: Vpn, stores: bool) {
        if let Some(slot) = self.pmd_slot(vpn) {
            self.changes += 1;
            self.huge_changes += 1;
            let entry = &mut self.arena[slot.table.0 as usize].entries[slot.index];
            *entry = entry.used(stores);
        }
    }

    /// Clears the accessed bit of a huge page's entry; returns whether it was set (`pmdp_test_and_clear_young`).
    pub(crate) fn clear_huge_used(&mut self, slot: PmdSlot) -> bool {
        self.changes += 1;
        let entry = &mut self.arena[slot.table.0 as usize].entries[slot.index];
        let was = std::mem::replace(entry, entry.old());
        self.huge_changes += u64::from(was.is_accessed());
        was.is_accessed()
    }

    /// The first PMD entry that is not empty and covers a page of `range`, with the part of `range` that it covers.
    pub fn next_pmd(&self, range: PageRange) -> Option<(PageRange, PmdSlot)> {
        let mut from = range.start;
        // Bound: each turn passes an empty entry, and the turns of a level end at its table's border.
        while from < range.end {
            let mut level = Level::Pgd;
            let mut table = self.root;
            while level > Level::Pmd
                && let Some(child) = self.child(table, level.index(from))
            {
                (table, level) = (child, level.below());
            }
            let covered = level.entry_range(from);
            let slot = PmdSlot { table, index: level.index(from) };
            if level == Level::Pmd && self.pmd(slot) != Pmd::None {
                return Some((PageRange { start: from, end: covered.end.min(range.end) }, slot));
            }
            from = covered.end;
        }
        None
    }

    // PTEs.

    /// The table of base pages at a PMD entry, which is made if there is none.
    pub fn make_pte_table(&mut self, mm: &mut Mm, cx: &mut Cx, slot: PmdSlot) -> Result<TableId, NoMemory> {
        match self.pmd(slot) {
            Pmd::Table(table) => Ok(table),
            Pmd::Huge(_) => unreachable!("a huge page is split first"),
            Pmd::None => {
                let table = self.alloc_table(mm, cx, Level::Pte)?;
                self.link_pte_table(cx, slot, table);
                Ok(table)
            }
        }
    }

    /// Links a table of base pages at an entry that is empty, or maps a huge page.
    pub fn link_pte_table(&mut self, cx: &mut Cx, slot: PmdSlot, table: TableId) {
        primitive::write_ptes(cx, 1);
        self.moves += 1;
        self.changes += 1;
        let entry = &mut self.arena[slot.table.0 as usize].entries[slot.index];
        self.huge_changes += u64::from(entry.is_huge());
        *entry = Pte::table(table.0);
    }

    /// The entries of a table of base pages.
    #[inline]
    pub fn ptes(&self, table: TableId) -> &[Pte; ENTRIES] {
        &self.table(table).entries
    }

    /// The entries of a table, to be written; the caller charges for the writes.
    #[inline]
    pub fn ptes_mut(&mut self, table: TableId) -> &mut [Pte; ENTRIES] {
        self.changes += 1;
        let table = &mut self.arena[table.0 as usize];
        table.summary = None;
        &mut table.entries
    }

    /// The entry for base page `vpn` in a table of base pages.
    #[inline]
    pub fn pte(&self, table: TableId, vpn: Vpn) -> Pte {
        self.table(table).entries[Level::Pte.index(vpn)]
    }

    /// Writes the entry for base page `vpn`.
    #[inline]
    pub fn set_pte(&mut self, cx: &mut Cx, table: TableId, vpn: Vpn, pte: Pte) {
        primitive::write_ptes(cx, 1);
        self.changes += 1;
        let table = &mut self.arena[table.0 as usize];
        table.summary = None;
        table.entries[Level::Pte.index(vpn)] = pte;
    }

    /// The entry that maps `vpn`: its own, or that of the huge page around it.
    pub fn lookup(&self, vpn: Vpn) -> Pte {
        match self.pmd_of(vpn) {
            Pmd::None => Pte::NONE,
            Pmd::Huge(pte) => pte,
            Pmd::Table(table) => self.pte(table, vpn),
        }
    }

    // Deposits: a table is kept with each huge page, so that its split cannot fail.

    /// Allocates a PTE table that is not linked.
    pub fn alloc_pte_table(&mut self, mm: &mut Mm, cx: &mut Cx) -> Result<TableId, NoMemory> {
        self.alloc_table(mm, cx, Level::Pte)
    }

    /// Frees a PTE table that is not linked.
    pub fn free_pte_table(&mut self, mm: &mut Mm, cx: &mut Cx, table: TableId) {
        self.free_table(mm, cx, table, Level::Pte);
    }

    /// Deposits a table for the huge page at `slot` (`pgtable_trans_huge_deposit`).
    pub fn deposit(&mut self, slot: PmdSlot, table: TableId) {
        // The kernel inserts behind the head of a ring, and makes the new table the head: the newest is taken first, then the
        // others from the oldest.
        let deposits = &mut self.arena[slot.table.0 as usize].deposits;
        if !deposits.is_empty() {
            deposits.rotate_left(1);
        }
        deposits.push_front(table);
    }

    /// Withdraws a table deposited for a huge page of the same PMD table (`pgtable_trans_huge_withdraw`).
    pub fn withdraw(&mut self, slot: PmdSlot) -> TableId {
        let deposits = &mut self.arena[slot.table.0 as usize].deposits;
        deposits.pop_front().expect("every huge page has a deposit")
    }

    // Making and freeing tables.

    /// Frees tables below the root that cover a part of `range` and nothing outside `gap`, in which nothing is mapped
    /// (`free_pgtables`): at most `most`. Returns the page to go on at, or none when all are freed.
    pub fn free_tables(
        &mut self,
        mm: &mut Mm,
        cx: &mut Cx,
        range: PageRange,
        gap: PageRange,
        most: u64,
    ) -> Option<Vpn> {
        self.free_children(mm, cx, (self.root, Level::Pgd), range, &mut Sweep { gap, left: most })
    }

    /// Frees the root, the last table.
    pub fn free_root(mut self, mm: &mut Mm, cx: &mut Cx) {
        self.free_table(mm, cx, self.root, Level::Pgd);
        assert_eq!(self.counts, [0; LEVELS], "tables outlive their root");
    }

    fn free_children(
        &mut self,
        mm: &mut Mm,
        cx: &mut Cx,
        (parent, level): (TableId, Level),
        range: PageRange,
        sweep: &mut Sweep,
    ) -> Option<Vpn> {
        let mut from = range.start;
        // Bound: the entries of one table.
        while from < range.end {
            let covered = level.entry_range(from);
            if let Some(child) = self.child(parent, level.index(from)) {
                if level > Level::Pmd {
                    let part = PageRange { start: from, end: covered.end.min(range.end) };
                    let stopped = self.free_children(mm, cx, (child, level.below()), part, sweep);
                    if stopped.is_some() {
                        return stopped;
                    }
                }
                if sweep.gap.covers(covered) {
                    if sweep.left == 0 {
                        return Some(from);
                    }
                    sweep.left -= 1;
                    primitive::write_ptes(cx, 1);
                    self.moves += 1;
                    self.changes += 1;
                    self.arena[parent.0 as usize].entries[level.index(from)] = Pte::NONE;
                    self.free_table(mm, cx, child, level.below());
                }
            }
            from = covered.end;
        }
        None
    }

    #[inline]
    fn table(&self, id: TableId) -> &Table {
        &self.arena[id.0 as usize]
    }

    fn child(&self, table: TableId, index: usize) -> Option<TableId> {
        let pte = self.table(table).entries[index];
        (pte.is_present() && !pte.is_huge()).then(|| TableId(pte.table_index()))
    }

    fn make_child(
        &mut self,
        mm: &mut Mm,
        cx: &mut Cx,
        table: TableId,
        level: Level,
        vpn: Vpn,
    ) -> Result<TableId, NoMemory> {
        let index = level.index(vpn);
        if let Some(child) = self.child(table, index) {
            return Ok(child);
        }
        let child = self.alloc_table(mm, cx, level.below())?;
        primitive::write_ptes(cx, 1);
        self.arena[table.0 as usize].entries[index] = Pte::table(child.0);
        Ok(child)
    }

    fn alloc_table(&mut self, mm: &mut Mm, cx: &mut Cx, level: Level) -> Result<TableId, NoMemory> {
        let frame = if let Some(frame) = self.given.pop() {
            frame
        } else {
            let wish = AllocRequest::gfp_pgtable_user(mm.memory.node_of_cpu(cx.cpu()));
            // Where tables are interleaved, they are so in turn, whatever their addresses.
            mm.memory.alloc(cx, &self.policy.apply(wish, Vpn(self.arena.len() as u64)))?
        };
        mm.memory.clear(cx, frame, Order::BASE);
        mm.memory.frames.set(frame, Frame::PageTable);
        mm.memory.zone_of_mut(frame).page_tables.0 += 1;
        self.counts[level as usize] += 1;
        if let Some(id) = self.spare.pop() {
            let table = &mut self.arena[id.0 as usize];
            (table.frame, table.hints_at_once) = (frame, false);
            return Ok(id);
        }
        let id = TableId(u32::try_from(self.arena.len()).expect("fewer than 2^32 tables"));
        self.arena.push(Table {
            frame,
            entries: Box::new([Pte::NONE; ENTRIES]),
            deposits: VecDeque::new(),
            summary: None,
            hints_at_once: false,
        });
        Ok(id)
    }

    fn free_table(&mut self, mm: &mut Mm, cx: &mut Cx, id: TableId, level: Level) {
        let table = self.table(id);
        assert!(Pte::are_none(&*table.entries), "a table of level {level:?} is freed with entries");
        assert!(table.deposits.is_empty(), "a table of level {level:?} is freed with deposits");
        mm.memory.zone_of_mut(table.frame).page_tables.0 -= 1;
        primitive::uncharge(cx);
        mm.memory.free(cx, table.frame, Order::BASE);
        self.counts[level as usize] -= 1;
        self.spare.push(id);
    }
}
