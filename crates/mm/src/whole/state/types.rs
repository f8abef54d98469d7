//! Linux: none; show_migrate_types() in mm/vmstat.c (v6.1) counts pageblocks and free blocks of each type, but does not
//! tell which they are.
//! Differs: searches a type for each pageblock so that all counts hold, near to what is in them.

use memory::{buddy::ORDERS, pageblock::MigrateType};

use super::{Draw, Drawn, shuffle};

const TYPES: usize = MigrateType::COUNT;

/// Most exchanges that are tried: enough for some hundred pageblocks against any others of a large machine.
const TRIES_MAX: u64 = 1 << 26;
/// Weight of a free block on a list of another type than the kernel counts: more than all frames of a pageblock.
const FREE_BLOCK: i64 = 1 << 12;

/// Frames in a pageblock, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    /// Free blocks that start in it, by order.
    pub(super) free: [u16; ORDERS],
    /// Frames that can be migrated.
    pub(super) movable: u16,
    /// Frames of slabs.
    pub(super) slab: u16,
    /// Other frames that stay where they are.
    pub(super) pinned: u16,
}

impl Census {
    /// Number of frames that speak against a type.
    fn against(&self, to: usize) -> i64 {
        let [movable, slab, pinned] = [self.movable, self.slab, self.pinned].map(i64::from);
        match MigrateType::from_index(to) {
            MigrateType::Unmovable => movable,
            // Slabs of inodes and dentries; the report does not tell which slabs these are.
            MigrateType::Reclaimable => movable + pinned,
            MigrateType::Movable | MigrateType::Cma => slab + pinned,
            MigrateType::HighAtomic | MigrateType::Reserve | MigrateType::Isolate => movable + slab + pinned,
        }
    }
}

/// The search for the types of a zone's pageblocks, in the numbers of `wanted`; the rest is Movable.
pub(super) struct Search<'a> {
    blocks: &'a [Census],
    types: Vec<usize>,
    /// Free blocks by type and order, minus the kernel's counts.
    excess: [[i64; ORDERS]; TYPES],
    tries: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        blocks: &'a [Census],
        wanted: &[u64; TYPES],
        free: &[[u64; ORDERS]; TYPES],
        draw: &mut dyn Draw,
    ) -> Self {
        let mut left = *wanted;
        let mut types = vec![MigrateType::Movable as usize; blocks.len()];
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        shuffle(&mut order, draw, Drawn::BlockType);
        // The rarest types choose first: the pageblocks that fit them best.
        for to in [MigrateType::Isolate, MigrateType::Cma, MigrateType::HighAtomic, MigrateType::Reserve]
            .into_iter()
            .chain([MigrateType::Reclaimable, MigrateType::Unmovable])
            .map(|to| to as usize)
        {
            order.sort_by_key(|at| blocks[*at].against(to) - blocks[*at].against(MigrateType::Movable as usize));
            let untyped = |at: &&usize| types[**at] == MigrateType::Movable as usize;
            let count = usize::try_from(left[to]).unwrap_or(usize::MAX);
            let chosen: Vec<usize> = order.iter().filter(untyped).take(count).copied().collect();
            left[to] = 0;
            for at in chosen {
                types[at] = to;
            }
        }
        let mut excess = free.map(|orders| orders.map(|count| -i64::try_from(count).unwrap_or(i64::MAX)));
        for (census, to) in blocks.iter().zip(&types) {
            for (sum, count) in excess[*to].iter_mut().zip(census.free) {
                *sum += i64::from(count);
            }
        }
        let mut search = Self { blocks, types, excess, tries: 0 };
        shuffle(&mut order, draw, Drawn::BlockType);
        search.exchange(&order);
        search
    }

    /// Exchanges the types of two pageblocks as long as that improves the counts.
    fn exchange(&mut self, order: &[usize]) {
        let rare = |types: &[usize]| {
            let is_rare = |at: &&usize| types[**at] != MigrateType::Movable as usize;
            order.iter().filter(is_rare).copied().collect::<Vec<usize>>()
        };
        // Bound: each round but the last lowers a sum of counts, and the number of tries is limited.
        loop {
            let mut better = false;
            for one in rare(&self.types) {
                for other in order.iter().copied() {
                    self.tries += 1;
                    if self.types[one] != self.types[other] && self.gain(one, other) > 0 {
                        self.swap(one, other);
                        better = true;
                    }
                }
                if self.tries > TRIES_MAX {
                    return;
                }
            }
            if !better {
                return;
            }
        }
    }

    /// How much an exchange would improve the counts.
    fn gain(&self, one: usize, other: usize) -> i64 {
        let [from, to] = [one, other].map(|at| self.types[at]);
        let mut gain = 0;
        for order in 0..ORDERS {
            let moved = i64::from(self.blocks[other].free[order]) - i64::from(self.blocks[one].free[order]);
            if moved != 0 {
                let [a, b] = [self.excess[from][order], self.excess[to][order]];
                gain += a.abs() - (a + moved).abs() + b.abs() - (b - moved).abs();
            }
        }
        let against = |at: usize, to: usize| self.blocks[at].against(to);
        gain * FREE_BLOCK + against(one, from) + against(other, to) - against(one, to) - against(other, from)
    }

    fn swap(&mut self, one: usize, other: usize) {
        let [from, to] = [one, other].map(|at| self.types[at]);
        for order in 0..ORDERS {
            let moved = i64::from(self.blocks[other].free[order]) - i64::from(self.blocks[one].free[order]);
            self.excess[from][order] += moved;
            self.excess[to][order] -= moved;
        }
        self.types.swap(one, other);
    }

    /// The types found, by pageblock.
    pub(super) fn types(&self) -> impl Iterator<Item = MigrateType> + '_ {
        self.types.iter().map(|to| MigrateType::from_index(*to))
    }

    /// Free blocks that the kernel counts under another type than that found for their pageblock.
    pub(super) fn apart(&self) -> u64 {
        let over = self.excess.iter().flatten().filter(|excess| **excess > 0);
        over.map(|excess| excess.unsigned_abs()).sum()
    }
}
