//! Linux: none; the invariants of LLFree's counters.
//! Differs: walks the whole state.

use units::{CpuId, Pfn};

use super::{
    LlFree,
    area::{AREA, ROW, TREE, TREE_AREAS},
    trees::FREES,
};

impl LlFree {
    /// Walks all bits and counters.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), String> {
        for area in 0..self.areas.count() {
            self.check_area(area)?;
        }
        let mut free = 0;
        for tree in 0..self.trees.count() {
            free += u64::from(self.check_tree(tree)?);
        }
        for cpu in 0..self.reserved.len() {
            self.check_cpu(CpuId(u32::try_from(cpu).expect("fewer than 2^32 CPUs")))?;
        }
        ensure(free == self.free, || format!("{} free frames are counted, but there are {free}", self.free))
    }

    fn check_area(&self, area: u32) -> Result<(), String> {
        let (bits, counter) = (&self.areas.bits[area as usize], self.areas.counters[area as usize]);
        let (says, has) = (counter.free(), bits.free());
        if counter.is_whole() {
            return ensure(has == AREA, || format!("area {area} is allocated whole, but {} bits are set", AREA - has));
        }
        ensure(says == has, || format!("area {area} counts {says} free frames, but {has} bits are clear"))?;
        let first = self.base.plus(area * AREA);
        let mut outside = (first.0..first.0 + AREA).map(Pfn).filter(|pfn| !(self.start..self.end).contains(pfn));
        let stray = outside.find(|pfn| self.areas.is_free(pfn.0 - self.base.0, units::Order::BASE));
        ensure(stray.is_none(), || format!("frame {} is free, but not of the zone", stray.unwrap_or(first)))
    }

    /// Says how many frames of the tree are free.
    fn check_tree(&self, tree: u32) -> Result<u32, String> {
        let state = self.trees.each[tree as usize];
        let areas = tree * TREE_AREAS..self.areas.count().min((tree + 1) * TREE_AREAS);
        let free = self.areas.free_of(areas);
        let own = match state.cpu {
            None => 0,
            Some(cpu) => {
                let own = self.reserved.get(cpu.0 as usize).filter(|own| own.tree == Some(tree));
                own.ok_or_else(|| format!("tree {tree} says that CPU {cpu} has it, but that CPU has not"))?.free
            }
        };
        let counted = state.free + own;
        ensure(counted == free, || {
            format!("tree {tree} and its CPU count {} and {own} free frames, but its areas {free}", state.free)
        })?;
        Ok(free)
    }

    fn check_cpu(&self, cpu: CpuId) -> Result<(), String> {
        let own = self.reserved[cpu.0 as usize];
        ensure(own.frees <= FREES, || format!("CPU {cpu} remembers {} frees", own.frees))?;
        let Some(tree) = own.tree else {
            return ensure(own.free == 0, || format!("CPU {cpu} counts {} free frames, but has no tree", own.free));
        };
        let has = self.trees.each.get(tree as usize).is_some_and(|state| state.cpu == Some(cpu));
        ensure(has, || format!("CPU {cpu} has tree {tree}, but that tree does not say so"))?;
        let row = own.row;
        ensure(row / (TREE / ROW) == tree, || format!("CPU {cpu} looks in row {row}, which is not of tree {tree}"))
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
