//! Linux: kernel/sched/core.c (v3.9, v4.1): `build_sched_domains`, `sd_init`, `sched_init_numa`: which CPUs are compared with
//! which.
//! Differs: of domains of nodes that overlap, each node has its own list of groups, as `build_overlap_sched_groups` makes it for
//! the first CPU of a node. The capacity of hardware threads is rounded as up to 3.11 in all releases that have one.

use std::collections::BTreeMap;

use units::CpuId;

/// The power of a CPU that shares its core with none (`SCHED_POWER_SCALE`).
const POWER: u64 = 1024;
/// The power of both hardware threads of a core together (`smt_gain`).
const SMT_GAIN: u64 = 1178;
/// Beyond this distance of two nodes no task is pulled to the CPU that wakes it (`RECLAIM_DISTANCE`, `sd_local_flags`).
const RECLAIM_DISTANCE: u32 = 30;

/// The hardware that the CPUs of a scheduling domain share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shared {
    /// A core (`SD_SHARE_CPUPOWER`).
    Core,
    /// A cache (`SD_SHARE_PKG_RESOURCES`).
    Cache,
    /// A node with several caches.
    Node,
    /// Nodes no further from each other than this (`SD_NUMA`).
    Distance(u32),
}

/// CPUs that a domain compares with others (`struct sched_group`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuGroup {
    pub(super) cpus: Vec<usize>,
    /// The power of all CPUs of the group, in units of 1/[`POWER`] CPU (`group_power`).
    pub(super) power: u64,
}

impl CpuGroup {
    /// Number of tasks that the group runs at full speed (`group_capacity`, before 3.12).
    pub(super) fn capacity(&self) -> u64 {
        ((self.power + POWER / 2) / POWER).max(1)
    }
}

/// One level of domains (`struct sched_domain_topology_level`).
#[derive(Clone, Debug)]
struct Level {
    shared: Shared,
    /// The groups of each domain, in their circle.
    domains: Vec<Vec<CpuGroup>>,
    /// For each CPU from the first on: its domain, and the group of that domain that holds it.
    places: Vec<(usize, usize)>,
    /// Number of CPUs in each domain (`span_weight`); groups of nodes may overlap.
    weights: Vec<u64>,
    /// Whether a group with more than one task counts as too busy, as long as the own group has room (`SD_PREFER_SIBLING` of the
    /// domain below).
    spreads: Spreads,
}

/// The releases whose groups at a level spread single tasks (`SD_PREFER_SIBLING`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spreads {
    Never,
    /// For groups above cores: since 4.1; before that a core's capacity had that effect.
    SinceUsage,
    Always,
}

/// The cores, caches and nodes of a kernel's CPUs, by index in the list of all CPUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    /// Cores of several hardware threads; empty if each CPU is a core.
    pub(crate) cores: Vec<Vec<usize>>,
    /// The CPUs of each last cache.
    pub(crate) caches: Vec<Vec<usize>>,
    /// For each node with CPUs: the CPUs, and the distances to these nodes; empty if there is a single node.
    pub(crate) nodes: Vec<(Vec<usize>, Vec<u32>)>,
}

/// The sched domains of a machine, the smallest first.
#[derive(Clone, Debug)]
pub(crate) struct Domains {
    /// The lowest number of the CPUs, which are consecutive.
    first: usize,
    /// The cache of each CPU from the first on.
    caches: Vec<usize>,
    levels: Vec<Level>,
    /// Number of busy CPUs of each cache.
    busy: Vec<u64>,
}

impl Domains {
    /// # Panics
    /// When a CPU is in no cache's list.
    pub(crate) fn new(topology: &Topology) -> Self {
        let Topology { cores, caches, nodes } = topology;
        let cpus = caches.iter().map(Vec::len).sum::<usize>();
        let first = caches.iter().flatten().copied().min().expect("a kernel has CPUs");
        let all: Vec<usize> = (first..first + cpus).collect();
        let single = || Spans { sets: all.iter().map(|cpu| vec![*cpu]).collect(), of: (0..cpus).collect() };
        let cores = if cores.is_empty() { single() } else { Spans::of(cores, &all) };
        let powers = cores.of.iter().map(|core| match cores.sets[*core].len() as u64 {
            threads if threads > 1 => SMT_GAIN / threads,
            _ => POWER,
        });
        let powers = powers.collect();
        let own = Spans::of(&nodes.iter().map(|(cpus, _)| cpus.clone()).collect::<Vec<_>>(), &all);
        let caches = Spans::of(caches, &all);
        let (of_cache, of_node) = (caches.of.clone(), own.of.clone());
        let busy = vec![0; caches.sets.len()];
        let mut built = Built { all: &all, powers, spans: single(), homes: all.clone(), levels: Vec::new() };
        built.add(Shared::Core, cores);
        built.add(Shared::Cache, caches);
        built.add(
            Shared::Node,
            if nodes.is_empty() { Spans { sets: vec![all.clone()], of: vec![0; cpus] } } else { own },
        );
        let mut distances: Vec<u32> = nodes.iter().flat_map(|(_, distance)| distance.iter().copied()).collect();
        distances.sort_unstable();
        distances.dedup();
        for distance in distances.into_iter().skip(1) {
            let near = |(_, row): &(Vec<usize>, Vec<u32>)| {
                let within = nodes.iter().zip(row).filter(|(_, there)| **there <= distance);
                within.flat_map(|((cpus, _), _)| cpus.iter().copied()).collect::<Vec<_>>()
            };
            built
                .add(Shared::Distance(distance), Spans { sets: nodes.iter().map(near).collect(), of: of_node.clone() });
        }
        Self { first, caches: of_cache, levels: built.levels, busy }
    }

    /// The domains of CPUs that share one cache.
    pub(crate) fn flat(cpus: impl Iterator<Item = usize>) -> Self {
        Self::new(&Topology { caches: vec![cpus.collect()], ..Topology::default() })
    }

    fn at(&self, id: CpuId) -> usize {
        id.0 as usize - self.first
    }

    /// Whether two CPUs share a cache.
    pub(super) fn share_cache(&self, one: CpuId, other: CpuId) -> bool {
        self.cache_of(one) == self.cache_of(other)
    }

    /// Number of CPUs that share a cache with this one, itself included (`sd_llc_size`).
    pub(crate) fn sharing(&self, id: CpuId) -> u64 {
        let own = self.cache_of(id);
        self.caches.iter().filter(|cache| **cache == own).count() as u64
    }

    /// The cores that share a cache with a CPU, its own first and the others in their circle (`sd_llc`).
    pub(super) fn cores_beside(&self, id: CpuId) -> impl Iterator<Item = &[usize]> + Clone {
        let level = self.levels.iter().position(|level| level.shared == Shared::Cache).unwrap_or(0);
        self.groups(id, level).map(|group| &group.cpus[..])
    }

    fn cache_of(&self, id: CpuId) -> usize {
        self.caches[self.at(id)]
    }

    /// A CPU gets a task.
    pub(super) fn begin_busy(&mut self, id: CpuId) {
        let cache = self.cache_of(id);
        self.busy[cache] += 1;
    }

    /// A CPU has no task any more.
    pub(super) fn end_busy(&mut self, id: CpuId) {
        let cache = self.cache_of(id);
        self.busy[cache] -= 1;
    }

    /// Number of all CPUs with a task.
    pub(crate) fn all_busy(&self) -> u64 {
        self.busy.iter().sum()
    }

    /// Number of CPUs with a task that share a cache with this one, itself included.
    pub(super) fn busy_beside(&self, id: CpuId) -> u64 {
        self.busy[self.cache_of(id)]
    }

    /// Number of levels.
    pub(crate) fn levels(&self) -> usize {
        self.levels.len()
    }

    /// The groups that a CPU compares in a domain: its own first, and the others in a circle.
    pub(super) fn groups(&self, id: CpuId, level: usize) -> impl Iterator<Item = &CpuGroup> + Clone {
        let level = &self.levels[level];
        let (domain, own) = level.places[self.at(id)];
        let (before, from_own) = level.domains[domain].split_at(own);
        from_own.iter().chain(before)
    }

    /// Number of CPUs in a domain (`span_weight`).
    pub(super) fn span(&self, id: CpuId, level: usize) -> u64 {
        self.levels[level].weights[self.at(id)]
    }

    /// By how much the load of others has to exceed the own, in percent (`imbalance_pct`).
    pub(super) fn imbalance_pct(&self, level: usize) -> u64 {
        match self.levels[level].shared {
            Shared::Core => 110,
            Shared::Cache => 117,
            Shared::Node | Shared::Distance(_) => 125,
        }
    }

    /// Number of failed looks after which a CPU takes a task that ran recently (`cache_nice_tries`).
    pub(super) fn nice_tries(&self, level: usize) -> u32 {
        match self.levels[level].shared {
            Shared::Core => 0,
            Shared::Cache | Shared::Node => 1,
            Shared::Distance(_) => 2,
        }
    }

    /// Whether a domain spans several nodes (`SD_NUMA`).
    pub(super) fn spans_nodes(&self, level: usize) -> bool {
        matches!(self.levels[level].shared, Shared::Distance(_))
    }

    /// Whether a group with more than one task counts as too busy, as long as the own group has room (`SD_PREFER_SIBLING`).
    pub(super) fn spreads(&self, level: usize, by_usage: bool) -> bool {
        match self.levels[level].spreads {
            Spreads::Never => false,
            Spreads::SinceUsage => by_usage,
            Spreads::Always => true,
        }
    }

    /// Whether new tasks spread over a domain's groups, and tasks are pulled to the CPU that wakes them (`SD_BALANCE_FORK`,
    /// `SD_WAKE_AFFINE`).
    pub(super) fn is_near(&self, level: usize) -> bool {
        !matches!(self.levels[level].shared, Shared::Distance(distance) if distance > RECLAIM_DISTANCE)
    }

    /// The level of the smallest domain that has both CPUs.
    pub(super) fn common(&self, one: CpuId, other: CpuId) -> Option<usize> {
        let number = other.0 as usize;
        (0..self.levels()).find(|level| self.groups(one, *level).any(|group| group.cpus.contains(&number)))
    }
}

/// Sets of CPUs, and the set of each CPU from the first on. CPUs share a set: a machine has thousands of them.
struct Spans {
    sets: Vec<Vec<usize>>,
    of: Vec<usize>,
}

impl Spans {
    /// The set of each CPU, the first that has it; the CPUs are consecutive.
    ///
    /// # Panics
    /// When there are sets, and a CPU is in none.
    fn of(sets: &[Vec<usize>], all: &[usize]) -> Self {
        const NONE: usize = usize::MAX;
        let mut of = vec![NONE; all.len()];
        for (set, cpus) in sets.iter().enumerate().rev() {
            for cpu in cpus {
                of[cpu - all[0]] = set;
            }
        }
        assert!(sets.is_empty() || !of.contains(&NONE), "each CPU is of one core, one cache and one node");
        Self { sets: sets.to_vec(), of }
    }

    /// The set of the CPU at an index.
    fn at(&self, place: usize) -> &[usize] {
        &self.sets[self.of[place]]
    }
}

/// The levels that are built so far.
struct Built<'a> {
    all: &'a [usize],
    /// The power of each CPU.
    powers: Vec<u64>,
    /// The CPUs of each CPU's domain in the level below, which are the groups of the next level.
    spans: Spans,
    /// The first CPU of each CPU's node.
    homes: Vec<usize>,
    levels: Vec<Level>,
}

impl Built<'_> {
    /// Adds a level whose domains have these CPUs, unless it compares nothing that the level below does not
    /// (`sd_parent_degenerate`). In time linear in the CPUs, as far as domains do not overlap.
    fn add(&mut self, shared: Shared, spans: Spans) {
        let places = 0..self.all.len();
        let is_same = places.clone().all(|place| spans.at(place).len() == self.spans.at(place).len());
        // A single CPU has a level too, as balancing asks for one.
        if is_same && !(shared == Shared::Cache && self.levels.is_empty()) {
            return;
        }
        let spreads = match (shared, self.levels.last().map(|level| level.shared)) {
            (Shared::Distance(_), Some(Shared::Distance(_))) => Spreads::Never,
            (Shared::Distance(_), _) => Spreads::Always,
            (_, Some(Shared::Core)) => Spreads::SinceUsage,
            _ => Spreads::Never,
        };
        let overlaps = matches!(shared, Shared::Distance(_));
        let weights = places.clone().map(|place| spans.at(place).len() as u64).collect();
        let mut level = Level { shared, domains: Vec::new(), places: Vec::new(), weights, spreads };
        // By set and home: the domain, and the first group in it that has each CPU.
        let mut known: BTreeMap<(usize, usize), (usize, BTreeMap<usize, usize>)> = BTreeMap::new();
        for (place, cpu) in self.all.iter().enumerate() {
            // Groups overlap if distances are those of a ring: each node begins with its own.
            let home = if overlaps { self.homes[place] } else { 0 };
            let (domain, own) = known.entry((spans.of[place], home)).or_insert_with(|| {
                let mut span = spans.at(place).to_vec();
                if overlaps {
                    let first = span.iter().position(|other| *other == home);
                    span.rotate_left(first.expect("a domain has those below it"));
                }
                let (groups, own) = self.groups_of(&span);
                let same = level.domains.iter().position(|domain| overlaps && *domain == groups);
                let domain = same.unwrap_or_else(|| {
                    level.domains.push(groups);
                    level.domains.len() - 1
                });
                (domain, own)
            });
            level.places.push((*domain, *own.get(cpu).expect("a CPU is in its own domain")));
        }
        if !overlaps {
            self.homes = places.map(|place| spans.at(place)[0]).collect();
        }
        self.spans = spans;
        self.levels.push(level);
    }

    /// A domain's CPUs grouped by the domains of the level below, and the first group that has each of them.
    fn groups_of(&self, span: &[usize]) -> (Vec<CpuGroup>, BTreeMap<usize, usize>) {
        let (mut groups, mut own) = (Vec::new(), BTreeMap::new());
        for cpu in span {
            if own.contains_key(cpu) {
                continue;
            }
            let cpus = self.spans.at(cpu - self.all[0]).to_vec();
            for cpu in &cpus {
                own.entry(*cpu).or_insert(groups.len());
            }
            let power = cpus.iter().map(|cpu| self.powers[cpu - self.all[0]]).sum();
            groups.push(CpuGroup { cpus, power });
        }
        (groups, own)
    }
}

/// The CPU at an index in the list of all CPUs.
pub(super) fn number(cpu: usize) -> CpuId {
    CpuId(u32::try_from(cpu).expect("fewer than 2^32 CPUs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(domains: &Domains, cpu: u32) -> Vec<u64> {
        (0..domains.levels()).map(|level| domains.span(CpuId(cpu), level)).collect()
    }

    fn groups(domains: &Domains, cpu: u32, level: usize) -> Vec<Vec<usize>> {
        domains.groups(CpuId(cpu), level).map(|group| group.cpus.clone()).collect()
    }

    #[test]
    fn cores_caches_and_nodes_are_levels_and_none_repeats_the_one_below() {
        let topology = Topology {
            cores: vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]],
            caches: vec![vec![0, 1, 4, 5], vec![2, 3, 6, 7]],
            nodes: vec![(vec![0, 1, 4, 5], vec![10, 21]), (vec![2, 3, 6, 7], vec![21, 10])],
        };
        let domains = Domains::new(&topology);
        assert_eq!(spans(&domains, 5), [2, 4, 8]);
        assert_eq!(groups(&domains, 5, 0), [[5], [1]]);
        assert_eq!(groups(&domains, 5, 1), [[1, 5], [0, 4]]);
        assert_eq!(groups(&domains, 6, 2), [[2, 3, 6, 7], [0, 1, 4, 5]]);
        assert_eq!([0, 1, 2].map(|level| domains.imbalance_pct(level)), [110, 117, 125]);
        assert_eq!([0, 1, 2].map(|level| domains.nice_tries(level)), [0, 1, 2]);
        // Two threads of a core do the work of 1.15 CPUs: one task fills it.
        let capacities = |level| domains.groups(CpuId(0), level).map(CpuGroup::capacity).collect::<Vec<_>>();
        assert_eq!([capacities(1), capacities(2)], [[1, 1], [2, 2]]);
        assert_eq!(domains.common(CpuId(0), CpuId(4)), Some(0));
        assert_eq!(domains.common(CpuId(0), CpuId(5)), Some(1));
        assert_eq!(domains.common(CpuId(0), CpuId(7)), Some(2));
    }

    #[test]
    fn each_distance_is_a_level_and_in_a_ring_domains_overlap() {
        let row = |from: usize| (0..4).map(|to: usize| [10, 20, 40, 20][(4 + to - from) % 4]).collect();
        let nodes = (0..4).map(|node| (vec![node], row(node))).collect();
        let domains =
            Domains::new(&Topology { cores: Vec::new(), caches: (0..4).map(|cpu| vec![cpu]).collect(), nodes });
        assert_eq!(spans(&domains, 1), [1, 3, 4]);
        assert_eq!(groups(&domains, 1, 1), [[1], [2], [0]]);
        assert_eq!(groups(&domains, 3, 1), [[3], [0], [2]]);
        // Beyond RECLAIM_DISTANCE no task is pulled to the CPU that wakes it.
        assert_eq!([1, 2].map(|level| domains.is_near(level)), [true, false]);
        assert_eq!(groups(&domains, 1, 2)[0], [0, 1, 2]);
    }

    /// Each level of a machine keeps each CPU in one group of one domain: memory grows with the number of CPUs alone.
    #[test]
    fn domains_of_thousands_of_cpus_take_room_for_each_once() {
        let cpus = 4096;
        let of = |n: usize| (0..cpus / n).map(|set| (set * n..(set + 1) * n).collect()).collect::<Vec<Vec<usize>>>();
        let row = |from: usize| (0..4).map(|to| if to == from { 10 } else { 20 }).collect();
        let nodes = of(1024).into_iter().enumerate().map(|(node, cpus)| (cpus, row(node))).collect();
        let domains = Domains::new(&Topology { cores: of(2), caches: of(64), nodes });
        assert_eq!(spans(&domains, 4095), [2, 64, 1024, 4096]);
        for (level, of_all) in domains.levels.iter().zip([1, 1, 1, 4]) {
            let kept: usize = level.domains.iter().flatten().map(|group| group.cpus.len()).sum();
            assert_eq!(kept, cpus * of_all, "{:?}: each of four nodes has its own circle of nodes", level.shared);
        }
        assert_eq!(groups(&domains, 2049, 0), [[2049], [2048]]);
        assert_eq!(domains.common(CpuId(0), CpuId(63)), Some(1));
        assert_eq!(Domains::flat(0..cpus).groups(CpuId(4095), 0).count(), cpus);
    }

    #[test]
    fn a_single_cpu_has_a_level_of_its_own() {
        let domains = Domains::flat(3..4);
        assert_eq!(spans(&domains, 3), [1]);
        assert!(domains.share_cache(CpuId(3), CpuId(3)));
    }
}
