//! SLAB once more: free objects in arrays of CPUs and of nodes, with slabs behind them.

use std::collections::{BTreeMap, BTreeSet};

use memory::slab::Cache;

use crate::{
    model::Wish,
    processes::World,
    slabs::{Slab, room, wish},
};

/// Mechanisms that streams of objects must reach, as objects come and go and time passes.
pub(crate) const SLAB: [&str; 20] = [
    "an array is filled from the shared one",
    "an array is filled from slabs",
    "an array is filled by a new slab",
    "an array that was not used is filled by less",
    "an array is flushed to the shared one",
    "an array is flushed to slabs",
    "an object of another node is collected",
    "collected objects go back when they are many",
    "collected objects go back in time",
    "collected objects are more than the shared array holds",
    "a slab of another node serves",
    "a slab is made on another node",
    "an empty slab goes back above the limit",
    "an empty slab goes back in time",
    "an array is drained in time",
    "a shared array is drained in time",
    "an array that was used is left alone",
    "empty slabs that were looked for are left alone",
    "a slab has two frames",
    "a slab is refused",
];

/// Objects that may wait to go to another node.
const COLLECTED: usize = 12;
const SECOND: u64 = 1_000_000_000_000;

/// Free objects, by their slabs; the last is the first to be used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Array {
    pub(crate) slabs: Vec<u32>,
    pub(crate) used: bool,
}

/// Where objects are that nobody has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrays {
    pub(crate) cpus: BTreeMap<(Cache, usize), Array>,
    pub(crate) shared: BTreeMap<(Cache, u32), Array>,
    /// By the node that has collected them, and their own.
    pub(crate) collected: BTreeMap<(Cache, u32, u32), Vec<u32>>,
    /// Slabs of a node that are partly free, and empty ones; the first is the next to be used.
    pub(crate) partial: BTreeMap<(Cache, u32), Vec<u32>>,
    pub(crate) empty: BTreeMap<(Cache, u32), Vec<u32>>,
    /// Empty slabs of these were looked for.
    pub(crate) searched: BTreeSet<(Cache, u32)>,
    /// When a node's are looked at again, and each CPU's.
    pub(crate) due: BTreeMap<(Cache, u32), u64>,
    cpu_due: BTreeMap<usize, u64>,
    /// How many times a CPU has looked.
    rounds: BTreeMap<usize, u32>,
}

impl Arrays {
    /// Objects that nobody has, but that their slabs count.
    pub(crate) fn spare(&self) -> usize {
        let arrays = self.cpus.values().chain(self.shared.values()).map(|array| array.slabs.len());
        arrays.sum::<usize>() + self.collected.values().map(Vec::len).sum::<usize>()
    }
}

/// Objects that a CPU has at most.
fn limit(cache: Cache) -> usize {
    match cache {
        Cache::MmStruct => 24,
        Cache::Kmalloc512 => 54,
        _ => 120,
    }
}

fn batch(cache: Cache) -> usize {
    limit(cache) / 2
}

impl World {
    fn slab_order(&self, cache: Cache) -> u32 {
        u32::from(cache == Cache::MmStruct && self.memory.frames > 8192)
    }

    fn per_slab(&self, cache: Cache) -> usize {
        room(cache, self.slab_order(cache)) as usize
    }

    fn free_on(&self, cache: Cache, node: u32) -> usize {
        let of = |lists: &BTreeMap<(Cache, u32), Vec<u32>>| lists.get(&(cache, node)).cloned().unwrap_or_default();
        let slabs = [of(&self.arrays.partial), of(&self.arrays.empty)].concat();
        slabs.iter().map(|slab| self.slabs.all[slab].free() as usize).sum()
    }

    fn free_limit(&self, cache: Cache, node: u32) -> usize {
        (1 + self.memory.cpus_on(node)) * batch(cache) + self.per_slab(cache)
    }

    /// How many the shared array still takes; none when there is none.
    fn shared_room(&self, cache: Cache, node: u32) -> usize {
        let most = if self.memory.cpus() > 1 { 8 * batch(cache) } else { 0 };
        most - self.arrays.shared.get(&(cache, node)).map_or(0, |array| array.slabs.len())
    }

    fn array(&mut self, cache: Cache, cpu: usize) -> &mut Array {
        self.arrays.cpus.entry((cache, cpu)).or_default()
    }

    /// An object's slab; nothing when memory is out.
    pub(crate) fn take_object(&mut self, cpu: usize, cache: Cache) -> Option<u32> {
        let node = self.memory.node_of(cpu);
        if self.array(cache, cpu).slabs.is_empty() {
            let wanted = self.fill(cpu, cache, node);
            if self.array(cache, cpu).slabs.is_empty() {
                let Some(slab) = self.make_slab(cpu, cache, Self::only(cache, node)) else {
                    return self.take_elsewhere(cpu, cache, node);
                };
                self.memory.reach(SLAB[2]);
                let count = self.move_to_cpu(cpu, slab, wanted);
                assert!(count > 0);
                self.put_behind_use(slab, node);
            }
        }
        let array = self.array(cache, cpu);
        array.used = true;
        array.slabs.pop()
    }

    fn only(cache: Cache, node: u32) -> Wish {
        Wish { only: true, wakes: false, reclaims: false, ..wish(cache, node) }
    }

    /// Fills an array from its node; says how many it would have had.
    fn fill(&mut self, cpu: usize, cache: Cache, node: u32) -> usize {
        let was_used = self.array(cache, cpu).used;
        let mut wanted = if was_used { batch(cache) } else { batch(cache).min(16) };
        if !was_used && batch(cache) > 16 {
            self.memory.reach(SLAB[3]);
        }
        let shared = self.arrays.shared.entry((cache, node)).or_default();
        if !shared.slabs.is_empty() {
            let from = shared.slabs.len().saturating_sub(wanted);
            let moved = shared.slabs.split_off(from);
            shared.used = true;
            self.array(cache, cpu).slabs = moved;
            self.memory.reach(SLAB[0]);
            return 0;
        }
        let mut may_search = self.free_on(cache, node) > 0;
        while wanted > 0 && may_search {
            match self.next_of(cache, node) {
                Some(slab) => {
                    wanted -= self.move_to_cpu(cpu, slab, wanted);
                    self.put_behind_use(slab, node);
                    self.memory.reach(SLAB[1]);
                }
                None => may_search = false,
            }
        }
        wanted
    }

    /// The slab that is used next, which leaves its list.
    fn next_of(&mut self, cache: Cache, node: u32) -> Option<u32> {
        let partial = self.arrays.partial.entry((cache, node)).or_default();
        if !partial.is_empty() {
            return Some(partial.remove(0));
        }
        self.arrays.searched.insert((cache, node));
        let empty = self.arrays.empty.entry((cache, node)).or_default();
        if empty.is_empty() { None } else { Some(empty.remove(0)) }
    }

    fn move_to_cpu(&mut self, cpu: usize, frame: u32, most: usize) -> usize {
        let slab = self.slabs.all.get_mut(&frame).unwrap();
        let (cache, count) = (slab.cache, most.min(slab.free() as usize));
        slab.in_use += u32::try_from(count).unwrap();
        self.array(cache, cpu).slabs.extend(vec![frame; count]);
        count
    }

    fn put_behind_use(&mut self, frame: u32, node: u32) {
        let slab = self.slabs.all[&frame];
        if slab.free() > 0 {
            self.arrays.partial.entry((slab.cache, node)).or_default().insert(0, frame);
        }
    }

    fn make_slab(&mut self, cpu: usize, cache: Cache, wish: Wish) -> Option<u32> {
        let order = self.slab_order(cache);
        let Some(frame) = self.memory.alloc(cpu, Wish { order, ..wish }) else {
            self.memory.reach(SLAB[19]);
            return None;
        };
        if order == 1 {
            self.memory.reach(SLAB[18]);
        }
        self.slabs.all.insert(frame, Slab { cache, order, in_use: 0 });
        Some(frame)
    }

    /// One object past the arrays: the node is looked at again, then others, then memory is made.
    fn take_elsewhere(&mut self, cpu: usize, cache: Cache, node: u32) -> Option<u32> {
        assert_eq!(self.next_of(cache, node), None);
        if let Some(slab) = self.make_slab(cpu, cache, Self::only(cache, node)) {
            self.arrays.empty.entry((cache, node)).or_default().push(slab);
            return self.take_one(cache, node);
        }
        for zone in self.memory.zonelist(wish(cache, node)) {
            let other = self.memory.zones[zone].node;
            if self.free_on(cache, other) > 0 {
                self.memory.reach(SLAB[10]);
                return self.take_one(cache, other);
            }
        }
        let slab = self.make_slab(cpu, cache, wish(cache, node))?;
        let other = self.node_of_frame(slab);
        if other != node {
            self.memory.reach(SLAB[11]);
        }
        self.arrays.empty.entry((cache, other)).or_default().push(slab);
        self.take_one(cache, other)
    }

    fn take_one(&mut self, cache: Cache, node: u32) -> Option<u32> {
        let slab = self.next_of(cache, node)?;
        self.slabs.all.get_mut(&slab).unwrap().in_use += 1;
        self.put_behind_use(slab, node);
        Some(slab)
    }

    pub(crate) fn give_object(&mut self, cpu: usize, frame: u32) {
        let cache = self.slabs.all[&frame].cache;
        let (node, of) = (self.memory.node_of(cpu), self.node_of_frame(frame));
        if node != of {
            self.memory.reach(SLAB[6]);
            if self.arrays.collected.entry((cache, node, of)).or_default().len() == COLLECTED {
                self.memory.reach(SLAB[7]);
                self.send_back(cpu, (cache, node, of));
            }
            self.arrays.collected.get_mut(&(cache, node, of)).unwrap().push(frame);
            return;
        }
        if self.array(cache, cpu).slabs.len() == limit(cache) {
            self.flush(cpu, cache, node);
        }
        self.array(cache, cpu).slabs.push(frame);
    }

    fn flush(&mut self, cpu: usize, cache: Cache, node: u32) {
        let may = self.shared_room(cache, node).min(batch(cache));
        let count = if may > 0 { may } else { batch(cache) };
        let oldest: Vec<u32> = self.array(cache, cpu).slabs.drain(..count).collect();
        if may > 0 {
            self.memory.reach(SLAB[4]);
            self.arrays.shared.entry((cache, node)).or_default().slabs.extend(oldest);
        } else {
            self.memory.reach(SLAB[5]);
            self.put_back(cpu, cache, node, oldest);
        }
    }

    /// Collected objects of a node go there: the last ones to the shared array, as many as it takes.
    fn send_back(&mut self, cpu: usize, (cache, node, of): (Cache, u32, u32)) {
        let mut objects = self.arrays.collected.insert((cache, node, of), Vec::new()).unwrap_or_default();
        let kept = objects.len().saturating_sub(self.shared_room(cache, of));
        let shared = objects.split_off(kept);
        self.arrays.shared.entry((cache, of)).or_default().slabs.extend(shared);
        if !objects.is_empty() {
            self.memory.reach(SLAB[9]);
            self.put_back(cpu, cache, of, objects);
        }
    }

    /// Objects go back to their slabs; a node that has too many then gives up empty ones.
    fn put_back(&mut self, cpu: usize, cache: Cache, node: u32, objects: Vec<u32>) {
        for frame in objects {
            self.arrays.partial.entry((cache, node)).or_default().retain(|other| *other != frame);
            let slab = self.slabs.all.get_mut(&frame).unwrap();
            slab.in_use -= 1;
            if slab.in_use == 0 {
                self.arrays.empty.entry((cache, node)).or_default().insert(0, frame);
            } else {
                self.arrays.partial.entry((cache, node)).or_default().push(frame);
            }
        }
        let limit = self.free_limit(cache, node);
        let mut gone = Vec::new();
        while self.free_on(cache, node) > limit
            && let Some(frame) = self.arrays.empty.entry((cache, node)).or_default().pop()
        {
            self.memory.reach(SLAB[12]);
            gone.insert(0, frame);
        }
        self.drop_slabs(cpu, gone);
    }

    fn drop_slabs(&mut self, cpu: usize, gone: Vec<u32>) {
        for frame in gone {
            self.slabs.all.remove(&frame);
            self.memory.free(cpu, frame);
        }
    }

    /// A CPU looks for what lies idle, at a time; says when it will look again.
    pub(crate) fn reap(&mut self, cpu: usize, now: u64) -> u64 {
        let node = self.memory.node_of(cpu);
        let round = self.arrays.rounds.entry(cpu).or_default();
        *round += 1;
        let of = (node + *round) % u32::try_from(self.memory.nodes()).unwrap();
        for (index, cache) in (0..).zip(Cache::ALL) {
            if !crate::slabs::KINDS.contains(&cache) {
                continue;
            }
            if of != node && self.arrays.collected.get(&(cache, node, of)).is_some_and(|objects| !objects.is_empty()) {
                self.memory.reach(SLAB[8]);
                self.send_back(cpu, (cache, node, of));
            }
            let idle = Self::idle(self.array(cache, cpu), limit(cache));
            self.drain(cpu, cache, node, idle, SLAB[14]);
            let due = self.arrays.due.entry((cache, node)).or_insert(4 * SECOND * index / Cache::ALL.len() as u64);
            if *due > now {
                continue;
            }
            *due = now + 4 * SECOND;
            let most = if self.memory.cpus() > 1 { 8 * batch(cache) } else { 0 };
            let idle = Self::idle(self.arrays.shared.entry((cache, node)).or_default(), most);
            self.drain(cpu, cache, node, idle, SLAB[15]);
            if self.arrays.searched.remove(&(cache, node)) {
                self.memory.reach(SLAB[17]);
                continue;
            }
            let most = self.free_limit(cache, node).div_ceil(5 * self.per_slab(cache));
            let mut gone = Vec::new();
            while gone.len() < most
                && let Some(frame) = self.arrays.empty.entry((cache, node)).or_default().pop()
            {
                self.memory.reach(SLAB[13]);
                gone.push(frame);
            }
            self.drop_slabs(cpu, gone);
        }
        let due = self.arrays.cpu_due.entry(cpu).or_insert(now);
        while *due <= now {
            *due += 2 * SECOND;
        }
        *due
    }

    /// The oldest of an array, if nobody has used it: a fifth of what it may hold, of fewer a half. None when it is empty.
    fn idle(array: &mut Array, limit: usize) -> Option<Vec<u32>> {
        let have = array.slabs.len();
        if have == 0 {
            return None;
        }
        if array.used {
            array.used = false;
            return Some(Vec::new());
        }
        let fifth = limit.div_ceil(5);
        let count = if fifth > have { have.div_ceil(2) } else { fifth };
        Some(array.slabs.drain(..count).collect())
    }

    fn drain(&mut self, cpu: usize, cache: Cache, node: u32, idle: Option<Vec<u32>>, what: &'static str) {
        match idle {
            None => {}
            Some(objects) if objects.is_empty() => self.memory.reach(SLAB[16]),
            Some(objects) => {
                self.memory.reach(what);
                self.put_back(cpu, cache, node, objects);
            }
        }
    }
}
