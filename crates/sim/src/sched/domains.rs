//! Linux: kernel/sched/core.c (v4.1): `build_sched_domains`: which CPUs are compared with which.

use units::CpuId;

/// Domains of CPUs (`struct sched_domain`), the smaller first: those that share a cache, and all of them.
pub(super) const LEVELS: usize = 2;

/// The CPUs of a machine by the caches that they share.
#[derive(Clone, Debug)]
pub(crate) struct Domains {
    caches: Vec<Vec<usize>>,
    /// The lowest number of them all; they are consecutive.
    first: usize,
    /// Which of them each CPU from the first on has, and where it is among those that share it.
    places: Vec<(usize, usize)>,
}

impl Domains {
    /// # Panics
    /// When a CPU shares no cache, not even one of its own.
    pub(crate) fn new(caches: Vec<Vec<usize>>) -> Self {
        let cpus = caches.iter().map(Vec::len).sum::<usize>();
        let first = caches.iter().flatten().copied().min().expect("a kernel has CPUs");
        let place = |cpu: usize| {
            let of = |cache: &Vec<usize>| cache.iter().position(|other| *other == cpu);
            let found = caches.iter().enumerate().find_map(|(n, cache)| Some((n, of(cache)?)));
            found.expect("each CPU shares one cache")
        };
        Self { places: (first..first + cpus).map(place).collect(), first, caches }
    }

    fn place(&self, id: CpuId) -> (usize, usize) {
        self.places[id.0 as usize - self.first]
    }

    /// Do two CPUs share a cache?
    pub(super) fn share_cache(&self, one: CpuId, other: CpuId) -> bool {
        self.place(one).0 == self.place(other).0
    }

    /// The other CPUs that share a cache with one, in their circle.
    pub(super) fn beside(&self, id: CpuId) -> impl Iterator<Item = CpuId> + '_ {
        self.groups(id, 0).flatten().skip(1).map(|cpu| number(*cpu))
    }

    /// The levels that there are.
    pub(super) fn levels(&self) -> usize {
        if self.caches.len() > 1 { LEVELS } else { 1 }
    }

    /// Groups that a CPU compares in a domain: single CPUs, or those of each cache; its own first, and the others in a circle.
    pub(super) fn groups(&self, id: CpuId, level: usize) -> impl Iterator<Item = &[usize]> + Clone {
        let (cache, place) = self.place(id);
        let (first, of) = if level == 0 { (place, self.caches[cache].len()) } else { (cache, self.caches.len()) };
        let group = move |n: usize| if level == 0 { &self.caches[cache][n..=n] } else { &self.caches[n] };
        (0..of).map(move |n| group((first + n) % of))
    }

    /// How many CPUs there are in a domain (`span_weight`).
    pub(super) fn span(&self, id: CpuId, level: usize) -> u64 {
        if level == 0 { self.caches[self.place(id).0].len() as u64 } else { self.places.len() as u64 }
    }
}

/// The CPU at a place in the list of all.
pub(super) fn number(cpu: usize) -> CpuId {
    CpuId(u32::try_from(cpu).expect("fewer than 2^32 CPUs"))
}
