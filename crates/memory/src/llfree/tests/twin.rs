//! Linux: none; LLFree's policy on a set of free frames, written plainly.
//! Differs: no bits, no counters of areas and trees; nothing is kept that can be counted.

use std::collections::BTreeSet;

const TREE: u32 = 32 * 512;
const MANY: u32 = 1025;

#[derive(Clone, Default)]
struct Cpu {
    tree: Option<u32>,
    /// Frames that others have freed to the tree since the CPU counted them last.
    foreign: u32,
    row: u32,
    freed: Vec<u32>,
}

pub(super) struct Twin {
    base: u32,
    /// Free frames, counted from the base.
    free: BTreeSet<u32>,
    frames: u32,
    cpus: Vec<Cpu>,
}

impl Twin {
    pub(super) fn new(start: u32, end: u32, cpus: u32) -> Self {
        let base = start / 1024 * 1024;
        let frames = (end - base).div_ceil(512) * 512;
        Self { base, free: (start - base..end - base).collect(), frames, cpus: vec![Cpu::default(); cpus as usize] }
    }

    pub(super) fn alloc(&mut self, cpu: u32, order: u8) -> Option<u32> {
        let me = cpu as usize;
        let mut searches = ["half", "free", "any"];
        if let Some(tree) = self.cpus[me].tree {
            let all = self.free_in(tree);
            let own = all - self.cpus[me].foreign;
            if own >= 1 << order || all >= MANY {
                if own < 1 << order {
                    self.cpus[me].foreign = 0;
                }
                if let Some(at) = self.first_run(self.cpus[me].row, order) {
                    return Some(self.take(me, at, order));
                }
                searches = ["free", "half", "any"];
            }
        }
        let trees = self.frames.div_ceil(TREE);
        let start = self.cpus[me].tree.unwrap_or(trees / u32::try_from(self.cpus.len()).unwrap() * cpu);
        for search in searches.into_iter().chain(["any of all"]) {
            if search == "any of all" {
                if self.free.len() < 1 << order {
                    return None;
                }
                self.cpus.iter_mut().for_each(|cpu| (cpu.tree, cpu.foreign) = (None, 0));
            }
            for tree in near(start, trees) {
                if self.is_eligible(tree, search, order)
                    && let Some(at) = self.first_run(tree * TREE / 64, order)
                {
                    (self.cpus[me].tree, self.cpus[me].foreign) = (Some(tree), 0);
                    return Some(self.take(me, at, order));
                }
            }
        }
        None
    }

    fn take(&mut self, me: usize, at: u32, order: u8) -> u32 {
        self.cpus[me].row = at / 64;
        (at..at + (1 << order)).for_each(|frame| assert!(self.free.remove(&frame)));
        self.base + at
    }

    pub(super) fn take_at(&mut self, pfn: u32, order: u8) -> bool {
        let at = pfn - self.base;
        if !(at..at + (1 << order)).all(|frame| self.free.contains(&frame)) {
            return false;
        }
        (at..at + (1 << order)).for_each(|frame| assert!(self.free.remove(&frame)));
        // Frames that the CPU does not count yet are what is taken.
        if let Some(cpu) = self.cpus.iter_mut().find(|cpu| cpu.tree == Some(at / TREE)) {
            cpu.foreign = cpu.foreign.saturating_sub(1 << order);
        }
        true
    }

    pub(super) fn free(&mut self, cpu: u32, pfn: u32, order: u8) {
        let at = pfn - self.base;
        let (tree, me) = (at / TREE, cpu as usize);
        (at..at + (1 << order)).for_each(|frame| assert!(self.free.insert(frame), "frame {frame} was free"));
        let lately = &self.cpus[me].freed;
        let frees_here = lately.len() >= 4 && lately[lately.len() - 4..].iter().all(|freed| *freed == tree);
        let owner = self.cpus.iter().position(|cpu| cpu.tree == Some(tree));
        match owner {
            Some(owner) if owner != me => self.cpus[owner].foreign += 1 << order,
            None if frees_here && self.free_in(tree) >= MANY => {
                let row = tree * TREE / 64;
                let freed = std::mem::take(&mut self.cpus[me].freed);
                self.cpus[me] = Cpu { tree: Some(tree), foreign: 0, row, freed };
                return;
            }
            _ => {}
        }
        self.cpus[me].freed.push(tree);
    }

    pub(super) fn free_frames(&self) -> u64 {
        self.free.len() as u64
    }

    pub(super) fn is_free(&self, pfn: u32) -> bool {
        self.free.contains(&(pfn - self.base))
    }

    pub(super) fn free_list(&self) -> Vec<u32> {
        self.free.iter().map(|at| self.base + at).collect()
    }

    /// Blocks by order, the largest first.
    pub(super) fn free_blocks(&self) -> [u64; 11] {
        let mut left = self.free.clone();
        let mut blocks = [0; 11];
        for order in (0..11_usize).rev() {
            for at in (0..self.frames).step_by(1 << order) {
                let block = at..at + (1 << order);
                if left.contains(&at) && block.clone().all(|frame| left.contains(&frame)) {
                    block.for_each(|frame| assert!(left.remove(&frame)));
                    blocks[order] += 1;
                }
            }
        }
        blocks
    }

    fn free_in(&self, tree: u32) -> u32 {
        u32::try_from(self.free.range(tree * TREE..(tree + 1) * TREE).count()).unwrap()
    }

    fn is_eligible(&self, tree: u32, search: &str, order: u8) -> bool {
        let (free, frames) = (self.free_in(tree), TREE.min(self.frames - tree * TREE));
        let is_free = free >= MANY && frames - free < MANY;
        free >= 1 << order
            && self.cpus.iter().all(|cpu| cpu.tree != Some(tree))
            && match search {
                "half" => free >= MANY && !is_free,
                "free" => is_free,
                _ => true,
            }
    }

    /// The first run of a row's tree: areas from the row's on, once around; the rest of the first area before its beginning.
    fn first_run(&self, row: u32, order: u8) -> Option<u32> {
        let (tree, size) = (row * 64 / TREE, 1 << order);
        let end = self.frames.min((tree + 1) * TREE);
        let is_free = |at: &u32| at + size <= end && (*at..at + size).all(|frame| self.free.contains(&frame));
        if order >= 9 {
            let first = row * 64 / size * size;
            let mut runs = (first..end).step_by(size as usize).chain((tree * TREE..first).step_by(size as usize));
            return runs.find(is_free);
        }
        let area = row * 64 / 512;
        let areas = (area..end / 512).chain(tree * TREE / 512..area);
        areas.into_iter().find_map(|at| {
            let (first, last) = (at * 512, (at + 1) * 512);
            let middle = if at == area && order <= 6 { row * 64 } else { first };
            (middle..last).step_by(size as usize).chain((first..middle).step_by(size as usize)).find(is_free)
        })
    }
}

/// All trees, the nearest first.
fn near(start: u32, trees: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..trees).collect();
    let distance = |tree: &u32| {
        let (ahead, behind) = ((tree + trees - start) % trees, (start + trees - tree) % trees);
        // Of two that are as near, the one before.
        (ahead.min(behind), behind > ahead)
    };
    order.sort_by_key(distance);
    order
}
