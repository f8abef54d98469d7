//! Samples of the counters and memory of the simulated machine, at instants of virtual time.
//!
//! A sample of an instant includes all steps that began before it, and so may be ahead by one step: a CPU that runs alone goes
//! on to the next timer. No timer is armed for samples and no step becomes shorter, so a run is the same with and without them.

use std::fmt;

use memory::{event::Counters, pageblock::MigrateType};
use mm::Mm;
use units::{Picos, Time};

use crate::{
    ids::{HOST, TaskId},
    kernel::{Kernel, Kernels},
    task::Task,
    watch::{
        free_watch::{Free, FreeWatch},
        map_sampler::{MapSampler, MapSamples},
        sweeps::{self, Sweep},
    },
    world::World,
};

/// Most samples that are taken, not counting the last.
const SAMPLES_MAX: usize = 65_536;

/// The samples of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Paths of the values: `pgfault`, `node0/nr_free_pages`, `node0/DMA32/free/3`, `node0/DMA32/blocks/Movable`. In a
    /// run with guests a path begins with the kernel: `host/pgfault`, `guest1/node0/nr_free_pages`.
    pub names: Vec<String>,
    /// Instants, each with a value for every name: the start, multiples of the sampling time, and the end.
    pub rows: Vec<(Time, Vec<u64>)>,
}

/// Takes samples.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    every: Picos,
    /// The next instant at which free memory, a sample or a change of a branch is due.
    pub(crate) due: Time,
    /// The instant of the next change of a branch; after all other times if there is none.
    change: Time,
    /// When the next sample is due; after all other times if none are asked for.
    next: Time,
    samples: Samples,
    /// The watch over free memory, which is always on.
    free: FreeWatch,
    /// The map of memory, if it was asked for.
    map: Option<MapSampler>,
}

impl Default for Sampler {
    /// A sampler that takes no samples.
    fn default() -> Self {
        let (next, free) = (Time(u64::MAX), FreeWatch::default());
        Self { every: Picos(0), due: free.due, change: next, next, samples: Samples::default(), free, map: None }
    }
}

impl Sampler {
    /// A sampler that takes a sample every `every`.
    ///
    /// # Panics
    /// When `every` is 0.
    pub(crate) fn new(every: Picos) -> Self {
        assert!(every > Picos(0), "time goes on between two samples");
        Self { every, next: Time(0), ..Self::default() }
    }

    /// Sets the instant of the next change of a branch.
    pub(crate) fn expect_change(&mut self, at: Time) {
        self.change = at;
        self.set_due();
    }

    fn set_due(&mut self) {
        self.due = self.free.due.min(self.next).min(self.change);
    }

    /// A sampler which also takes the map of memory of a kernel with each sample.
    #[must_use]
    pub(crate) fn with_map(self, mm: &mut Mm) -> Self {
        Self { map: Some(MapSampler::new(mm)), ..self }
    }
}

impl World {
    /// Takes the samples that are due, before a step that starts at `start`.
    #[inline]
    pub(crate) fn sample_before(&mut self, start: Time) {
        if start >= self.sampler.due {
            self.look_before(start);
        }
    }

    #[cold]
    fn look_before(&mut self, start: Time) {
        if start >= self.sampler.free.due {
            let free = self.kernels[HOST].mm.memory.free_frames();
            self.sampler.free.look(start, free);
        }
        if start >= self.sampler.next {
            self.take_samples(start);
        }
        if start >= self.sampler.change {
            self.make_changes(start);
        }
        self.sampler.set_due();
    }

    /// Restarts the watch over free memory.
    pub(crate) fn watch_free_anew(&mut self) {
        let now = self.latest();
        self.sampler.free = FreeWatch::from(now);
        self.sampler.set_due();
    }

    /// Free memory of a run that has ended.
    pub(crate) fn end_free(&mut self) -> Free {
        let (end, free) = (self.latest(), self.kernels[HOST].mm.memory.free_frames());
        std::mem::take(&mut self.sampler.free).end(end, free)
    }

    fn take_samples(&mut self, start: Time) {
        let values = self.read_samples();
        let Sampler { every, next, samples, map, .. } = &mut self.sampler;
        if let Some(map) = map {
            map.look(&mut self.kernels[HOST].mm);
        }
        // Bound: the number of samples.
        while *next <= start && samples.rows.len() < SAMPLES_MAX {
            samples.rows.push((*next, values.clone()));
            if let Some(map) = map {
                map.keep();
            }
            *next = *next + *every;
        }
        if samples.rows.len() == SAMPLES_MAX {
            *next = Time(u64::MAX);
        }
    }

    /// All samples of a run that has ended, with one of its end, and the map; none if they were not asked for.
    pub(crate) fn end_samples(&mut self) -> (Option<Samples>, Option<MapSamples>) {
        if self.sampler.every == Picos(0) {
            return (None, None);
        }
        let end = self.latest();
        self.sample_before(end);
        let mut samples = std::mem::take(&mut self.sampler.samples);
        if samples.rows.last().is_none_or(|(at, _)| *at < end) {
            self.sampler.samples = samples;
            let values = self.read_samples();
            samples = std::mem::take(&mut self.sampler.samples);
            samples.rows.push((end, values));
            if let Some(map) = &mut self.sampler.map {
                map.look(&mut self.kernels[HOST].mm);
                map.keep();
            }
        }
        let mut map = self.sampler.map.take().map(|map| map.finish(&mut self.kernels[HOST].mm));
        if let Some(MapSamples { samples, movers, .. }) = &mut map {
            let numbers = samples.iter().flat_map(|sample| &sample.moves).map(|one| one.mover);
            movers.extend(numbers.map(|number| (number, self.kernels[HOST].name_of(TaskId(number)))));
        }
        (Some(samples), map)
    }
}

impl World {
    /// Values of the host's sweeps, with their names; none where memory serves as many sweeps as there are.
    fn visit_sweeps(&self, tell: impl FnMut(String, u64)) {
        let kernel = &self.kernels[HOST];
        let memory = &kernel.mm.memory;
        if !memory.flows().is_limited() {
            return;
        }
        let of_host = self.tasks.iter().filter(|task| task.kernel == HOST);
        let sweep = |task: &Task| {
            let (range, passed, left) = task.operation()?.sweep()?;
            let way = (task.space, (range.start, range.end), passed + left);
            Some(Sweep { node: memory.node_of_cpu(kernel.number(task.cpu)), way, passed })
        };
        let sweeps: Vec<Sweep> = of_host.filter_map(sweep).collect();
        sweeps::by_node(memory.nodes().ids(), &sweeps, tell);
    }

    /// The present values. Names come with the first sample; later samples have more names when events of further kinds are
    /// counted for the first time, or a guest has booted.
    fn read_samples(&mut self) -> Vec<u64> {
        let mut values = Vec::with_capacity(self.sampler.samples.names.len());
        for Kernel { counters, mm, .. } in self.kernels.all() {
            visit(counters, mm, |_, value| values.push(value));
        }
        self.visit_sweeps(|_, value| values.push(value));
        // Names are only ever added, so an equal number means equal names.
        if values.len() != self.sampler.samples.names.len() {
            let mut names = names(&self.kernels);
            self.visit_sweeps(|name, _| names.push(name));
            self.sampler.samples.rename(names);
        }
        values
    }
}

impl Samples {
    /// Adds names, whose values in all samples so far were 0.
    fn rename(&mut self, names: Vec<String>) {
        let places: Vec<_> = names.iter().map(|name| self.names.iter().position(|known| known == name)).collect();
        for (_, values) in &mut self.rows {
            *values = places.iter().map(|place| place.map_or(0, |place| values[place])).collect();
        }
        self.names = names;
    }
}

/// The names of all values that are sampled.
fn names(kernels: &Kernels) -> Vec<String> {
    let mut names = Vec::new();
    let has_guests = kernels.all().count() > 1;
    for (n, Kernel { counters, mm, .. }) in kernels.all().enumerate() {
        visit(counters, mm, |name, _| {
            names.push(match n {
                _ if !has_guests => name.to_string(),
                0 => format!("host/{name}"),
                n => format!("guest{n}/{name}"),
            });
        });
    }
    names
}

/// Visits every value that is sampled, always in the same order.
fn visit(counters: &Counters, mm: &Mm, mut tell: impl FnMut(fmt::Arguments<'_>, u64)) {
    let census = mm.census();
    for (event, count) in counters.iter() {
        tell(format_args!("{}", event.name()), count);
    }
    let by_node = census.nodes.first().map_or(&[][..], |node| &node.gauges);
    for (name, value) in mm.gauges() {
        if !by_node.iter().any(|(known, _)| *known == name) {
            tell(format_args!("{name}"), value);
        }
    }
    for node in &census.nodes {
        for (name, value) in &node.gauges {
            tell(format_args!("node{}/{name}", node.node), *value);
        }
    }
    for zone in &census.zones {
        let (node, kind) = (zone.node, zone.kind);
        for (order, blocks) in zone.free.iter().enumerate() {
            tell(format_args!("node{node}/{kind}/free/{order}"), *blocks);
        }
        for (of, blocks) in MigrateType::ALL.iter().zip(zone.blocks) {
            // `migratetype_names`, mm/page_alloc.c (v6.1; up to 4.3 with Reserve).
            match of {
                MigrateType::Cma => tell(format_args!("node{node}/{kind}/blocks/CMA"), blocks),
                _ => tell(format_args!("node{node}/{kind}/blocks/{of:?}"), blocks),
            }
        }
        tell(format_args!("node{node}/{kind}/blocks/free"), zone.free_blocks);
    }
}
