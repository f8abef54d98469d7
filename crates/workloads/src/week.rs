//! week: does huge-page success hold? Hours of builds, file trees and a service, and after the work of each hour a probe.
//!
//! At the start sources are written, half as much as memory holds. Each hour a build starts processes that read some of them,
//! fault memory, write an object and end; meanwhile a tree of small files is unpacked and an old one removed, others are walked
//! through, and a service frees and faults parts of its memory, grows or shrinks, and writes a log. Every sixth hour all
//! sources are read, as a backup does. When all have been quiet for a while, a task faults blocks of 2 MiB, each timed, and
//! frees them. Then nothing happens until the hour is over.
//! (The phases are our own. Sizes are parts of memory, so that memory is full of page cache from the first hours on.)

use os::{Advice, MapSpec, Os, Placement, VmRange};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use serde::{Deserialize, Serialize};
use units::{Bytes, Errno, Picos};

use crate::{
    During, Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    block::{ADVISE, SIZE_EXPECTS, Size, blocks, fault_blocks, map_blocks, parse_advise},
    draw::{below, seed_of},
    meet::{TaskError, results},
    params::value,
};

const HOURS: ParamInfo = ParamInfo {
    name: "hours",
    expects: "a whole number from 1 to 168",
    default: "24",
    about: "hours that pass, of virtual time in the simulator",
};
const SIZE: ParamInfo =
    ParamInfo { name: "size", expects: SIZE_EXPECTS, default: "5%", about: "memory that each probe faults in blocks" };
const ADVISED: ParamInfo = ParamInfo { about: "MADV_HUGEPAGE on the memory of probes", ..ADVISE };

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "week",
    about: "hours of builds, file trees and a service; after each, how many blocks of 2 MiB are huge, and how mixed memory is",
    maps_memory: true,
    params: &[HOURS, SIZE, ADVISED],
};

/// The entry of a compiler's process.
pub const COMPILE_ENTRY: &str = "week-compile";

const HOUR: Picos = Picos::from_secs(3600);
/// How long all are quiet before a probe.
const QUIET: Picos = Picos::from_secs(60);
/// Compilers that a build starts.
const UNITS: u32 = 128;
/// Sources that each of them reads.
const READS: u32 = 8;
const SOURCE: Bytes = Bytes::kib(64);
/// How many of them a directory has.
const SOURCES_OF_DIRECTORY: u64 = 512;
const OBJECT: Bytes = Bytes::kib(128);
/// Trees that are kept; older ones are removed.
const TREES: u64 = 8;
/// A file of a tree has from one page to this number of pages, drawn at random.
const TREE_PAGES: usize = 8;
/// Hours between two backups.
const BACKUP: u64 = 6;
/// Memory that the service maps at a time.
const ARENA: Bytes = Bytes::mib(4);
/// Memory that the service frees at a time inside of an arena.
const PIECE: Bytes = Bytes::kib(64);
/// Tasks that unpack, walk and back up at the same time.
const READERS: usize = 4;

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// How many hours pass.
    pub hours: u64,
    /// Memory that each probe faults.
    pub size: Size,
    /// `MADV_HUGEPAGE` on that.
    pub advise: bool,
}

/// Sizes on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    /// Files of 64 KiB.
    sources: u64,
    /// A compiler's private memory.
    compiler: Bytes,
    /// Files of a tree.
    tree: u64,
    /// Arenas that the service has at least, and how many more it may have.
    arenas: u64,
    more_arenas: u64,
}

impl Sizes {
    fn of(memory: Bytes) -> Self {
        Self {
            sources: (memory.0 / 2 / SOURCE.0).max(1),
            compiler: Bytes((memory.0 / 2048 / Bytes::PAGE.0 * Bytes::PAGE.0).clamp(Bytes::mib(2).0, Bytes::mib(64).0)),
            tree: (memory.0 / Bytes::mib(1).0).max(1),
            arenas: (memory.0 / 4 / ARENA.0).max(1),
            more_arenas: (memory.0 / 8 / ARENA.0).max(1),
        }
    }

    fn service(self) -> Bytes {
        ARENA * (self.arenas + self.more_arenas)
    }
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self { hours: 24, size: Size::Percent(5), advise: false };
        for (name, text) in given {
            match name {
                "hours" => params.hours = value(&HOURS, text, |hours| (1..=168).contains(hours))?,
                "size" => params.size = Size::parse(&SIZE, text)?,
                "advise" => params.advise = parse_advise(text)?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        let sizes = Sizes::of(total);
        sizes.service() + self.size.of(total).max(sizes.compiler * u64::from(UNITS.min(64))) + Bytes::HUGE_PAGE
    }

    pub(crate) fn files(&self, total: Bytes) -> Bytes {
        let sizes = Sizes::of(total);
        let trees = Bytes::PAGE * (TREE_PAGES as u64 * sizes.tree) * (TREES + 1);
        SOURCE * sizes.sources + OBJECT * u64::from(UNITS) + trees + Bytes::mib(1) * self.hours
    }

    pub(crate) fn case(&self) -> String {
        format!("{}{}h", if self.advise { "advised-" } else { "" }, self.hours)
    }
}

/// Parameters of a compiler.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Unit {
    number: u32,
    hour: u64,
    sources: u64,
    memory: Bytes,
    seed: u64,
}

/// Lets the hours pass; its outcomes are the probes, one each hour.
pub async fn run<O: Os>(os: O, params: Params, seed: u64) -> Result<Outcome, WorkloadError> {
    let sizes = Sizes::of(os.memory());
    let before = os.vmstat().await.during("vmstat")?;
    let start = os.now();
    by_all(&os, async move |os: &O, reader| {
        for number in (reader..sizes.sources).step_by(READERS) {
            write_file(os, &source(number), SOURCE).await?;
        }
        Ok(())
    })
    .await?;
    let mut service = Service { arenas: Vec::new(), random: random(seed, 0, 0) };
    let mut probes = Vec::new();
    for hour in 0..params.hours {
        service = work(&os, sizes, (hour, seed), service).await?;
        os.sleep(QUIET).await;
        probes.push(probe(&os, &params).await.during("a probe")?);
        let end = start + Picos(HOUR.0 * (hour + 1));
        if end > os.now() {
            os.sleep(end.since(os.now())).await;
        }
    }
    let after = os.vmstat().await.during("vmstat")?;
    let window = os.now().since(start);
    let (gauges, unable) = (std::collections::BTreeMap::new(), Vec::new());
    Ok(Outcome { tasks: probes, counters: after.since(&before), gauges, window, unable, cpus: None })
}

/// All that happens in an hour, at the same time.
async fn work<O: Os>(
    os: &O,
    sizes: Sizes,
    (hour, seed): (u64, u64),
    service: Service,
) -> Result<Service, WorkloadError> {
    let jobs = os.cpus().min(UNITS);
    let builds = (0..jobs).map(|job| {
        os.spawn(Placement::Free, async move |os: O| build(&os, sizes, (hour, seed), (job..UNITS, jobs)).await)
    });
    let builds: Vec<_> = builds.collect();
    let files = os.spawn(Placement::Free, async move |os: O| {
        by_all(&os, async move |os: &O, reader| {
            unpack(os, sizes, hour, reader).await?;
            walk(os, sizes, hour, (reader, seed)).await?;
            if hour % BACKUP == 0 { back_up(os, sizes, reader).await } else { Ok(()) }
        })
        .await
        .map_err(TaskError::from)
    });
    let service = os.spawn(Placement::Free, async move |os: O| service.hour(&os, sizes).await.map_err(TaskError::from));
    results(builds).await?;
    results(vec![files]).await?;
    let mut service = results(vec![service]).await?;
    Ok(service.pop().expect("one task gives one result"))
}

fn random(seed: u64, hour: u64, part: u32) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed_of(seed_of(seed, part), u32::try_from(hour).expect("few hours")))
}

fn draw(random: &mut ChaCha8Rng, bound: u64) -> u64 {
    below(random, usize::try_from(bound).expect("a number of things in memory")) as u64
}

/// Readers at the same time.
async fn by_all<O: Os>(
    os: &O,
    each: impl AsyncFn(&O, u64) -> Result<(), Errno> + Clone + Send + 'static,
) -> Result<(), WorkloadError> {
    let tasks = (0..READERS as u64).map(|reader| {
        let each = each.clone();
        os.spawn(Placement::Free, async move |os: O| each(&os, reader).await.map_err(TaskError::from))
    });
    results(tasks.collect()).await.map(drop)
}

fn source(number: u64) -> String {
    format!("src-{}/{number}", number / SOURCES_OF_DIRECTORY)
}

async fn write_file<O: Os>(os: &O, name: &str, size: Bytes) -> Result<(), Errno> {
    let file = os.create(name).await?;
    os.write(file, Bytes(0), size).await?;
    os.close(file).await
}

async fn read_file<O: Os>(os: &O, name: &str, size: Bytes) -> Result<(), Errno> {
    let file = os.open(name).await?;
    os.read(file, Bytes(0), size).await?;
    os.close(file).await
}

/// One job of a build: a compiler after the other. Objects of the hour before are removed first.
async fn build<O: Os>(
    os: &O,
    sizes: Sizes,
    (hour, seed): (u64, u64),
    (units, jobs): (std::ops::Range<u32>, u32),
) -> Result<(), TaskError> {
    for number in units.step_by(jobs as usize) {
        if let Some(last) = hour.checked_sub(1) {
            os.unlink(&object(last, number)).await?;
        }
        let unit = Unit { number, hour, sources: sizes.sources, memory: sizes.compiler, seed };
        os.spawn_process::<_, Result<(), TaskError>>(Placement::Free, COMPILE_ENTRY, unit).await??;
    }
    Ok(())
}

fn object(hour: u64, number: u32) -> String {
    format!("obj-{hour}/{number}")
}

/// A compiler: reads sources, faults memory on the way, writes an object, and ends.
pub async fn compile<O: Os>(os: O, unit: Unit) -> Result<(), TaskError> {
    let mut random = random(unit.seed, unit.hour, 16 + unit.number);
    let mapping = os.mmap(unit.memory, MapSpec::Anonymous).await?;
    let pages = mapping.pages(Bytes::PAGE);
    for read in 0..u64::from(READS) {
        read_file(&os, &source(draw(&mut random, unit.sources)), SOURCE).await?;
        let (from, to) = (pages * read / u64::from(READS), pages * (read + 1) / u64::from(READS));
        os.store(mapping.part(Bytes::PAGE * from, Bytes::PAGE * (to - from)), Bytes::PAGE).await?;
        os.compute(Picos::from_micros(50_000)).await;
    }
    Ok(write_file(&os, &object(unit.hour, unit.number), OBJECT).await?)
}

/// The files of a tree have a size each, which follows from tree and number.
fn tree_file(tree: u64, number: u64) -> (String, Bytes) {
    let mut random = random(tree, number, 2);
    (format!("tree-{tree}/{number}"), Bytes::PAGE * (1 + below(&mut random, TREE_PAGES) as u64))
}

/// A tree is unpacked, and the oldest goes.
async fn unpack<O: Os>(os: &O, sizes: Sizes, hour: u64, reader: u64) -> Result<(), Errno> {
    for number in (reader..sizes.tree).step_by(READERS) {
        let (name, size) = tree_file(hour, number);
        write_file(os, &name, size).await?;
        if let Some(old) = hour.checked_sub(TREES) {
            os.unlink(&tree_file(old, number).0).await?;
        }
    }
    Ok(())
}

/// A quarter of all files of the trees that are there are read.
async fn walk<O: Os>(os: &O, sizes: Sizes, hour: u64, (reader, seed): (u64, u64)) -> Result<(), Errno> {
    let mut random = random(seed, hour, 4 + u32::try_from(reader).expect("few readers"));
    for tree in (hour + 1).saturating_sub(TREES)..=hour {
        for number in (reader..sizes.tree).step_by(READERS) {
            if draw(&mut random, 4) == 0 {
                let (name, size) = tree_file(tree, number);
                read_file(os, &name, size).await?;
            }
        }
    }
    Ok(())
}

async fn back_up<O: Os>(os: &O, sizes: Sizes, reader: u64) -> Result<(), Errno> {
    for number in (reader..sizes.sources).step_by(READERS) {
        read_file(os, &source(number), SOURCE).await?;
    }
    Ok(())
}

/// A server: memory that lives long, and a log.
struct Service {
    arenas: Vec<VmRange>,
    random: ChaCha8Rng,
}

impl Service {
    /// Frees a tenth of its memory in pieces and faults half of them again, grows or shrinks by whole arenas, and appends to
    /// its log.
    async fn hour<O: Os>(mut self, os: &O, sizes: Sizes) -> Result<Self, Errno> {
        let per_arena = ARENA.0 / PIECE.0;
        let pieces = self.arenas.len() as u64 * per_arena / 10;
        for nth in 0..pieces {
            let arena = self.arenas[below(&mut self.random, self.arenas.len())];
            let piece = arena.part(PIECE * draw(&mut self.random, per_arena), PIECE);
            os.madvise(piece, Advice::DontNeed).await?;
            if nth % 2 == 0 {
                os.store(piece, Bytes::PAGE).await?;
            }
        }
        let wanted = sizes.arenas + draw(&mut self.random, sizes.more_arenas + 1);
        while (self.arenas.len() as u64) > wanted {
            let arena = below(&mut self.random, self.arenas.len());
            os.munmap(self.arenas.swap_remove(arena)).await?;
        }
        while (self.arenas.len() as u64) < wanted {
            let arena = os.mmap(ARENA, MapSpec::Anonymous).await?;
            os.store(arena, Bytes::PAGE).await?;
            self.arenas.push(arena);
        }
        self.log(os).await?;
        Ok(self)
    }

    /// 1 MiB to a new log of the hour before, fsync(2) after every 64 KiB.
    async fn log<O: Os>(&mut self, os: &O) -> Result<(), Errno> {
        let file = os.create(&format!("log/{}", draw(&mut self.random, u64::from(u32::MAX)))).await?;
        for at in 0..16 {
            os.write(file, PIECE * at, PIECE).await?;
            os.fsync(file).await?;
        }
        os.close(file).await
    }
}

/// Faults blocks, and frees them; how mixed memory was before that.
async fn probe<O: Os>(os: &O, params: &Params) -> Result<TaskOutcome, Errno> {
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    outcome.census = match os.block_census().await {
        Err(Errno::NOSYS) => None,
        census => Some(census?),
    };
    let faulted = params.size.of(os.memory());
    let mapping = map_blocks(os, faulted, params.advise).await?;
    fault_blocks(os, mapping, blocks(faulted), &mut outcome).await?;
    os.munmap(mapping).await?;
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parts_of_memory() {
        let sizes = Sizes::of(Bytes::gib(16));
        assert_eq!((sizes.sources, sizes.compiler), (131_072, Bytes::mib(8)));
        assert_eq!((sizes.tree, sizes.service()), (16_384, Bytes::gib(6)));
        let params = Params::parse([("hours", "3"), ("size", "10%"), ("advise", "yes")]).unwrap();
        assert_eq!((params.case(), Params::parse([]).unwrap().case()), ("advised-3h".to_owned(), "24h".to_owned()));
        assert!(params.memory(Bytes::gib(16)) < Bytes::gib(8) && params.files(Bytes::gib(16)) < Bytes::gib(14));
        for bad in [("hours", "0"), ("hours", "169"), ("size", "0%"), ("advise", "maybe"), ("days", "1")] {
            assert!(Params::parse([bad]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_file_of_a_tree_has_the_same_size_each_time() {
        let sizes: Vec<_> = (0..1000).map(|number| tree_file(3, number).1).collect();
        assert_eq!(sizes, (0..1000).map(|number| tree_file(3, number).1).collect::<Vec<_>>());
        let mean = sizes.iter().map(|size| size.as_kib()).sum::<u64>() / 1000;
        assert!((16..=20).contains(&mean), "{mean} KiB");
    }
}
