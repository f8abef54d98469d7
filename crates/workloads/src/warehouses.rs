//! Java virtual machines that run warehouses as SPECjbb2005 does: a thread for each, more of them from point to point.
//!
//! **A JVM** has one heap: an old generation, and a young one with eden and two survivor spaces, in HotSpot's default shares.
//! At each point it gets more warehouses, some 25 MiB of live objects each. Their threads allocate them in eden, buffer by
//! buffer; then all stop, and the collector's threads copy them to the old generation, each a buffer at a time: they decide on
//! which node the memory is, and buffers of different warehouses lie next to each other, so that a huge page may hold objects
//! of several threads.
//!
//! **A transaction** follows pointers through records of its own warehouse, a few through another one's, reads tables that all
//! share, computes, and allocates short-lived objects in its part of eden. When eden is full, all threads stop between two
//! batches of transactions, and the collector's threads copy what survives: to a survivor space, and some of it to the old
//! generation. When that is full they go through all live objects (an old collection), which stay where they are. The score of
//! a point is the transactions per second of all its threads.
//!
//! No formula gives time: threads access memory through [`Os`], a round over their live objects for each batch.
//!
//! Not modelled: locks and other contention inside a JVM, the compiler's threads, heaps that grow and shrink.
//!
//! Sources: SPEC's description of SPECjbb2005 (one thread per warehouse, about 25 MB of live objects, no think time); HotSpot's
//! defaults of JDK 7 from memory (`NewRatio` 2, `SurvivorRatio` 8 of which the collector begins with 6, `ParallelGCThreads`).
//! Figures that nobody published are marked `assumed:` below.

mod layout;

use std::collections::BTreeMap;

use os::{Amount, Barrier, MapSpec, Mempolicy, NumaNode, Os, Pattern, Placement, VmRange};
use units::{Bytes, Errno, Picos, Time};

pub use self::layout::Jvm;
use self::layout::{Heap, collectors};
use crate::{
    During, Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    meet::{TaskError, results},
    outcome::{streamed, streamed_since},
    params::value,
};

const JVMS: ParamInfo = ParamInfo {
    name: "jvms",
    expects: "\"nodes\" or a whole number from 1 to 64",
    default: "1",
    about: "virtual machines, each a process; nodes is one for each node with memory",
};
const THREADS: ParamInfo = ParamInfo {
    name: "threads",
    expects: "\"auto\", a whole number from 1 to 4096, or a range of them such as 10..40:10",
    default: "auto",
    about: "warehouses of each JVM at each point; auto is 1 to the number of CPUs, in eight points",
};
const BIND: ParamInfo = ParamInfo {
    name: "bind",
    expects: "\"no\" or \"hard\"",
    default: "no",
    about: "each JVM and its memory bound to a node by hand",
};
const HEAP: ParamInfo = ParamInfo {
    name: "heap",
    expects: "\"auto\" or a size from 64MiB to 1024GiB",
    default: "auto",
    about: "heaps of all JVMs together; auto is 80 % of memory (4 times -Xmx12901m of 64 GiB)",
};
const SECONDS: ParamInfo = ParamInfo {
    name: "seconds",
    expects: "a whole number from 1 to 3600",
    default: "32",
    about: "how long each point takes (published: 32 for one JVM, 200 for one per node)",
};
const WAREHOUSE: ParamInfo = ParamInfo {
    name: "warehouse",
    expects: "a size from 1MiB to 1GiB",
    default: "25MiB",
    about: "live objects of a warehouse",
};
const BUFFER: ParamInfo = ParamInfo {
    name: "buffer",
    expects: "a size from 4KiB to 1GiB, in whole pages",
    default: "1MiB",
    about: "allocation buffer: live objects of a thread that lie together",
};

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "warehouses",
    about: "Java virtual machines with a thread for each warehouse, as SPECjbb2005 has them",
    maps_memory: true,
    params: &[JVMS, THREADS, BIND, HEAP, SECONDS, WAREHOUSE, BUFFER],
};

/// The entry of a JVM.
pub(crate) const JVM_ENTRY: &str = "warehouses-jvm";

// The model of a transaction. With 200 loads, 20 us and 7 KiB, one warehouse alone on the box of series s3 has its
// published score, and so have 25 of them, each within 3 %: chosen on the column without patches, and nowhere else.

/// Loads from records of the own warehouse, each after the one before. assumed: fitted, see above.
const LOADS: u64 = 200;
/// Time of a transaction that needs no memory. assumed: fitted, see above.
const COMPUTE: Picos = Picos::from_micros(20);
/// Short-lived objects of a transaction. assumed: fitted, see above; others say 5 to 20 KiB of such programs.
const ALLOCATED: Bytes = Bytes::kib(7);
/// Rounds of a batch over the own warehouse, with a word of each page. assumed: as many as make a batch of some 15 ms, 256
/// transactions.
const ROUNDS: u64 = 8;
/// Words of each page that a collector's thread loads where it goes through objects. assumed: objects of half a KiB.
const LINES: u32 = 8;
/// One batch in four goes to another warehouse too, for a word of each page: 3 % of all loads. assumed: TPC-C, from which
/// SPECjbb descends, has 1 % of order lines and 15 % of payments elsewhere; SPEC gives no figure.
const ELSEWHERE: u64 = 4;
/// Tables that all warehouses of a JVM read. assumed: 20,000 items of some hundred bytes, with trees over them.
const TABLES: Bytes = Bytes::mib(8);
/// Words that a batch loads from each page of the tables: 20 a transaction. assumed: ten items an order, and the way to each.
const TABLE_LINES: u32 = 2;
/// Code that a JVM has compiled: a batch fetches a line of each page of it. assumed: of such programs, in the 48 MiB that JDK 7
/// reserves.
const CODE: Bytes = Bytes::mib(6);
/// By how much the code cache grows (`CodeCacheExpansionSize` of JDK 7, from memory).
const PIECE: Bytes = Bytes::kib(64);
/// Objects of each thread that survive a young collection. assumed: transactions under way and the orders before them.
const SURVIVING: Bytes = Bytes::mib(1);
/// Of these, what goes to the old generation each time. assumed: a quarter.
const PROMOTED: Bytes = Bytes::kib(256);

/// How many JVMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Jvms {
    Number(u32),
    PerNode,
}

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    jvms: Jvms,
    /// First, last and step; none is by the number of CPUs.
    threads: Option<(u32, u32, u32)>,
    is_bound: bool,
    heap: Option<Bytes>,
    seconds: u64,
    warehouse: Bytes,
    buffer: Bytes,
}

fn counts(text: &str) -> Result<(u32, u32, u32), ParamError> {
    let bad = || value::<String>(&THREADS, text, |_| false).expect_err("nothing is accepted");
    let number = |text: &str| text.parse::<u32>().ok().filter(|n| (1..=4096).contains(n)).ok_or_else(bad);
    let Some((first, rest)) = text.split_once("..") else {
        let only = number(text)?;
        return Ok((only, only, 1));
    };
    let (last, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let (first, last, step) = (number(first)?, number(last)?, number(step)?);
    if first > last || (last - first) / step >= 64 { Err(bad()) } else { Ok((first, last, step)) }
}

fn size_within(info: &ParamInfo, text: &str, (least, most): (Bytes, Bytes)) -> Result<Bytes, ParamError> {
    value(info, text, |size: &Bytes| (least..=most).contains(size) && size.0.is_multiple_of(Bytes::PAGE.0))
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let (jvms, threads, is_bound, heap, seconds) = (Jvms::Number(1), None, false, None, 32);
        let (warehouse, buffer) = (Bytes::mib(25), Bytes::mib(1));
        let mut params = Self { jvms, threads, is_bound, heap, seconds, warehouse, buffer };
        for (name, text) in given {
            match name {
                "jvms" if text == "nodes" => params.jvms = Jvms::PerNode,
                "jvms" => params.jvms = Jvms::Number(value(&JVMS, text, |n| (1..=64).contains(n))?),
                "threads" if text == "auto" => params.threads = None,
                "threads" => params.threads = Some(counts(text)?),
                "bind" => params.is_bound = crate::params::one_of(&BIND, text, "hard", "no")?,
                "heap" if text == "auto" => params.heap = None,
                "heap" => params.heap = Some(size_within(&HEAP, text, (Bytes::mib(64), Bytes::gib(1024)))?),
                "seconds" => params.seconds = value(&SECONDS, text, |n| (1..=3600).contains(n))?,
                "warehouse" => {
                    params.warehouse = size_within(&WAREHOUSE, text, (Bytes::mib(1), Bytes::gib(1)))?;
                }
                "buffer" => params.buffer = size_within(&BUFFER, text, (Bytes::PAGE, Bytes::gib(1)))?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    /// The heaps of all JVMs.
    pub(crate) fn mapped(&self, total: Bytes) -> Bytes {
        /// Room to align each heap.
        const ALIGNED: Bytes = Bytes::mib(256);
        self.heaps(total) + ALIGNED
    }

    fn heaps(&self, total: Bytes) -> Bytes {
        self.heap.unwrap_or(Bytes(total.0 / 5 * 4))
    }

    /// The memory of them that is used: three eighths of the old generation are not.
    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        Bytes(self.heaps(total).0 / 4 * 3)
    }

    pub(crate) fn case(&self) -> String {
        let jvms = match self.jvms {
            Jvms::Number(number) => format!("jvms={number}"),
            Jvms::PerNode => "jvms=nodes".to_owned(),
        };
        let threads = match self.threads {
            None => String::new(),
            Some((first, last, _)) if first == last => format!("-threads={first}"),
            Some((first, last, step)) => format!("-threads={first}..{last}:{step}"),
        };
        format!("{jvms}{threads}{}", if self.is_bound { "-hard" } else { "" })
    }

    fn jvms(&self, nodes: &[NumaNode]) -> u32 {
        match self.jvms {
            Jvms::Number(number) => number,
            Jvms::PerNode => u32::try_from(homes(nodes).len()).expect("few nodes"),
        }
    }

    /// Warehouses of each JVM, point after point.
    fn points(&self, cpus: u32) -> Vec<u32> {
        /// Points where the CPUs say how many warehouses.
        const POINTS: u32 = 8;
        let (first, last, step) = self.threads.unwrap_or((1, cpus, (cpus / POINTS).max(1)));
        (first..=last).step_by(step as usize).collect()
    }

    /// Heaps that hold less than the live objects of the last point.
    pub(crate) fn misfit(&self, memory: Bytes, nodes: &[NumaNode]) -> Option<String> {
        let cpus = u32::try_from(nodes.iter().map(|node| node.cpus.len()).sum::<usize>()).expect("few CPUs");
        let jvms = self.jvms(nodes);
        if self.is_bound && (jvms < 2 || homes(nodes).len() < 2) {
            return Some(format!(
                "bind: expected no, as {jvms} JVM on {} nodes has no node of its own; with --set jvms=nodes each has",
                homes(nodes).len()
            ));
        }
        let jvm = self.jvm(0, (jvms, memory), &self.points(cpus), None);
        let last = *jvm.points.last().expect("there is a point");
        let (needs, has) = (jvm.live(), jvm.heap.old().len);
        let eden = jvm.heap.eden().len;
        (needs > has || jvm.allocates() * u64::from(last) > eden).then(|| {
            format!(
                "heap: expected more than {} for {jvms} JVMs: {last} warehouses of {} need {needs} of an old generation \
                 of {has}, and {} of an eden of {eden} for a batch of each",
                self.heaps(memory),
                self.warehouse,
                jvm.allocates() * u64::from(last)
            )
        })
    }

    fn jvm(&self, index: u32, (jvms, memory): (u32, Bytes), points: &[u32], together: Option<Barrier>) -> Jvm {
        let each = self.heaps(memory).0 / u64::from(jvms) / Bytes::HUGE_PAGE.0 * Bytes::HUGE_PAGE.0;
        Jvm {
            index,
            points: points.to_vec(),
            heap: Heap(VmRange { start: units::VirtAddr(0), len: Bytes(each) }),
            seconds: self.seconds,
            warehouse: self.warehouse,
            buffer: self.buffer,
            is_bound: self.is_bound,
            together: together.unwrap_or(Barrier { id: 0, parties: jvms }),
        }
    }
}

/// Nodes with CPUs and memory.
fn homes(nodes: &[NumaNode]) -> Vec<&NumaNode> {
    nodes.iter().filter(|node| node.has_memory() && !node.cpus.is_empty()).collect()
}

/// The threads of a JVM have this in common.
#[derive(Clone)]
struct Shared {
    jvm: Jvm,
    workers: u64,
    /// For each point: where all threads stop, and where they wait for the collection's end.
    stops: Vec<[Barrier; 2]>,
    /// Pages of eden that are taken: the number of this barrier.
    eden: Barrier,
    /// Points whose time is up, likewise.
    over: Barrier,
    /// The compiled code, which all threads run.
    code: VmRange,
}

impl Shared {
    async fn arrive<O: Os>(&self, os: &O, point: usize, at: usize) -> Result<(), Errno> {
        os.arrive(self.stops[point][at]).await
    }

    /// After a stop: is the point over?
    fn is_over<O: Os>(&self, os: &O, point: usize) -> Result<bool, Errno> {
        Ok(os.add(self.over, 0)? as usize > point)
    }

    /// The next part of eden; none where it is full.
    fn take<O: Os>(&self, os: &O, len: Bytes) -> Result<Option<VmRange>, Errno> {
        let (eden, pages) = (self.jvm.heap.eden(), len.frames().0);
        let at = Bytes::PAGE * u64::from(os.add(self.eden, u32::try_from(pages).expect("a part of eden"))?);
        Ok((at.0 + len.0 <= eden.len.0).then(|| eden.part(at, len)))
    }

    async fn cancel_all<O: Os>(&self, os: &O) {
        for stop in self.stops.iter().flatten() {
            os.cancel(*stop).await;
        }
        os.cancel(self.jvm.together).await;
    }
}

/// Runs all JVMs, point after point.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    let (nodes, cpus) = (os.nodes(), os.cpus());
    let jvms = params.jvms(&nodes);
    let before = os.vmstat().await.during("vmstat")?;
    let start = os.now();
    let together = os.barrier(jvms).await.during("barrier")?;
    let points = params.points(cpus);
    let jvm = |index| params.jvm(index, (jvms, os.memory()), &points, Some(together));
    let processes = (0..jvms).map(|index| os.spawn_process(Placement::Free, JVM_ENTRY, jvm(index)));
    let done: Vec<Vec<TaskOutcome>> = results(processes.collect()).await?;
    let window = os.now().since(start);
    let counters = os.vmstat().await.during("vmstat")?.since(&before);
    // The outcomes are ordered by point, and within a point by JVM.
    let tasks = (0..points.len()).flat_map(|point| done.iter().map(move |jvm| jvm[point].clone())).collect();
    Ok(Outcome { tasks, counters, gauges: BTreeMap::new(), window, unable: Vec::new(), cpus: Some(cpus) })
}

/// A JVM: maps its heap, starts the collector's threads, and goes from point to point.
pub async fn process<O: Os>(os: O, jvm: Jvm) -> Result<Vec<TaskOutcome>, TaskError> {
    let nodes = os.nodes();
    bind(&os, &jvm, &nodes).await?;
    let mapping = os.mmap(jvm.heap.0.len + Bytes::HUGE_PAGE, MapSpec::Anonymous).await?;
    let heap = Heap(mapping.aligned_part(Bytes::HUGE_PAGE, jvm.heap.0.len));
    let jvm = Jvm { heap, ..jvm };
    let workers = collectors(jvm.bound(&nodes).map_or(u64::from(os.cpus()), |(cpus, _)| cpus.len() as u64));
    let mut stops = Vec::new();
    for threads in &jvm.points {
        let parties = threads + u32::try_from(workers).expect("few workers");
        stops.push([os.barrier(parties).await?, os.barrier(parties).await?]);
    }
    let (eden, over) = (os.barrier(1).await?, os.barrier(1).await?);
    let code = compile(&os).await?;
    let shared = Shared { jvm, workers, stops, eden, over, code };
    let done = live(&os, &shared).await;
    if done.is_err() {
        shared.cancel_all(&os).await;
    }
    let done = done?;
    os.munmap(code).await?;
    os.munmap(mapping).await?;
    Ok(done)
}

/// Maps the code cache as it grows, and writes each piece of it: a piece is too small for a huge page. Pieces lie beside each
/// other where the kernel places them so; pieces after one that lies elsewhere are given back.
async fn compile<O: Os>(os: &O) -> Result<VmRange, Errno> {
    let mut code = os.mmap(PIECE, MapSpec::Anonymous).await?;
    os.store(code, Bytes::PAGE).await?;
    while code.len < CODE {
        let piece = os.mmap(PIECE, MapSpec::Anonymous).await?;
        let (is_below, is_above) =
            (piece.start.0 + PIECE.0 == code.start.0, code.start.0 + code.len.0 == piece.start.0);
        if !is_below && !is_above {
            os.munmap(piece).await?;
            break;
        }
        os.store(piece, Bytes::PAGE).await?;
        code = VmRange { start: code.start.min(piece.start), len: code.len + PIECE };
    }
    Ok(code)
}

async fn bind<O: Os>(os: &O, jvm: &Jvm, nodes: &[NumaNode]) -> Result<(), Errno> {
    if let Some((cpus, node)) = jvm.bound(nodes) {
        os.set_affinity(&cpus).await?;
        os.set_mempolicy(&Mempolicy::Bind(vec![node])).await?;
    }
    Ok(())
}

async fn live<O: Os>(os: &O, shared: &Shared) -> Result<Vec<TaskOutcome>, TaskError> {
    let jvm = &shared.jvm;
    os.access(jvm.tables(), Pattern::Sweep, Amount::Rounds(1)).await?;
    let workers = (0..shared.workers).map(|worker| {
        let shared = shared.clone();
        os.spawn(Placement::Free, async move |os: O| {
            let done = collect(&os, &shared, worker).await;
            give_up_on_error(&os, &shared, done).await
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut points: Vec<TaskOutcome> = Vec::new();
    for (point, threads) in jvm.points.iter().enumerate() {
        os.arrive(jvm.together).await?;
        os.set(shared.eden, 0)?;
        let tasks = (0..*threads).map(|warehouse| {
            let shared = shared.clone();
            os.spawn(Placement::Free, async move |os: O| {
                let done = warehouse_thread(&os, &shared, point, warehouse).await;
                give_up_on_error(&os, &shared, done).await
            })
        });
        let tasks: Vec<TaskOutcome> = results(tasks.collect()).await.map_err(TaskError::from)?;
        points.push(of_point(*threads, &tasks));
    }
    let workers = results(workers).await.map_err(TaskError::from)?;
    let last = points.last_mut().expect("there is a point");
    for used in &workers {
        last.rusage.add(used);
    }
    Ok(points)
}

async fn give_up_on_error<O: Os, T>(os: &O, shared: &Shared, done: Result<T, Errno>) -> Result<T, TaskError> {
    if done.is_err() {
        shared.cancel_all(os).await;
    }
    done.map_err(TaskError::from)
}

/// All threads of a point together.
fn of_point(threads: u32, tasks: &[TaskOutcome]) -> TaskOutcome {
    let start = tasks.iter().map(|task| task.start).min().expect("a point has threads");
    let mut whole = TaskOutcome::starting(start, os::Rusage::default());
    whole.end = tasks.iter().map(|task| task.end).max().expect("a point has threads");
    whole.part = Some(format!("warehouses={threads}"));
    // The threads of a point begin together and end within a batch of each other, so that one reading is of all.
    whole.streamed = tasks.first().and_then(|task| task.streamed);
    whole.transactions = tasks.iter().map(|task| task.transactions).sum();
    for task in tasks {
        whole.rusage.add(&task.rusage);
    }
    whole
}

/// The thread of a warehouse, for one point. `start` and `end` of the outcome are the ends of its transactions.
async fn warehouse_thread<O: Os>(os: &O, shared: &Shared, point: usize, warehouse: u32) -> Result<TaskOutcome, Errno> {
    let jvm = &shared.jvm;
    let used = os.rusage().await?;
    bind(os, jvm, &os.nodes()).await?;
    if warehouse >= jvm.before(point) {
        for _ in 0..jvm.buffers() {
            // Objects that do not fit are copied at once: nothing of them is seen later.
            if let Some(buffer) = shared.take(os, jvm.buffer)? {
                os.access(buffer, Pattern::Sweep, Amount::Rounds(1)).await?;
            }
        }
    }
    shared.arrive(os, point, 0).await?;
    shared.arrive(os, point, 1).await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    let before = streamed(os).await?;
    let deadline = outcome.start + Picos::from_secs(jvm.seconds);
    let transactions = trade(os, shared, (point, warehouse), deadline).await?;
    outcome.end = os.now();
    outcome.transactions = Some(transactions);
    outcome.streamed = streamed_since(os, before).await?;
    outcome.rusage = os.rusage().await?.since(&used);
    Ok(outcome)
}

/// Batches of transactions up to the end of the point. Says how many transactions there were.
async fn trade<O: Os>(os: &O, shared: &Shared, (point, warehouse): (usize, u32), deadline: Time) -> Result<u64, Errno> {
    let jvm = &shared.jvm;
    let (own, threads) = (jvm.records(warehouse), jvm.points[point]);
    let (each, allocates) = (jvm.transactions(), jvm.allocates());
    let (mut batches, mut transactions) = (0, 0);
    loop {
        let is_late = os.now() >= deadline;
        if is_late {
            os.set(shared.over, u32::try_from(point + 1).expect("few points"))?;
        }
        let Some(objects) = (if is_late { None } else { shared.take(os, allocates)? }) else {
            shared.arrive(os, point, 0).await?;
            if shared.is_over(os, point)? {
                return Ok(transactions);
            }
            shared.arrive(os, point, 1).await?;
            continue;
        };
        // All of eden came between: no cache has any of it.
        os.access(objects, Pattern::Fresh, Amount::Rounds(1)).await?;
        os.access_runs(own, Pattern::Random, Amount::Rounds(ROUNDS)).await?;
        if threads > 1 && batches % ELSEWHERE == 0 {
            let far = 1 + u32::try_from(batches / ELSEWHERE % u64::from(threads - 1)).expect("as few as threads");
            let other = jvm.records((warehouse + far) % threads);
            os.access_runs(other, Pattern::Lines(1), Amount::Rounds(1)).await?;
        }
        os.access(jvm.tables(), Pattern::Lines(TABLE_LINES), Amount::Rounds(1)).await?;
        os.access(shared.code, Pattern::Lines(1), Amount::Rounds(1)).await?;
        os.compute(Picos(COMPUTE.0 * each)).await;
        batches += 1;
        transactions += each;
    }
}

/// A thread of the collector, for the life of the JVM. Each point begins with the copy of its new warehouses.
async fn collect<O: Os>(os: &O, shared: &Shared, worker: u64) -> Result<os::Rusage, Errno> {
    let jvm = &shared.jvm;
    let used = os.rusage().await?;
    bind(os, jvm, &os.nodes()).await?;
    let (mut collections, mut tenured) = (0_u64, Bytes(0));
    for point in 0..jvm.points.len() {
        shared.arrive(os, point, 0).await?;
        let batch = jvm.batch(point);
        if let Some(share) = jvm.share(batch.region, (worker, shared.workers)) {
            os.access_runs(share, Pattern::Sweep, Amount::Rounds(1)).await?;
        }
        loop {
            if worker == 0 {
                os.set(shared.eden, 0)?;
            }
            shared.arrive(os, point, 1).await?;
            shared.arrive(os, point, 0).await?;
            if shared.is_over(os, point)? {
                break;
            }
            collections += 1;
            tenured = young_collection(os, shared, (point, worker), (collections, tenured)).await?;
        }
    }
    Ok(os.rusage().await?.since(&used))
}

/// A thread's share of a young collection: reads survivors in eden, writes them to a survivor space, and some to the old
/// generation. Says how much has come there.
async fn young_collection<O: Os>(
    os: &O,
    shared: &Shared,
    (point, worker): (usize, u64),
    (nth, tenured): (u64, Bytes),
) -> Result<Bytes, Errno> {
    let (jvm, workers, threads) = (&shared.jvm, shared.workers, u64::from(shared.jvm.points[point]));
    let share_of = |all: Bytes| Bytes((all.0 * threads / workers).next_multiple_of(Bytes::PAGE.0));
    let (eden, to) = (jvm.heap.eden(), jvm.heap.survivors(nth.is_multiple_of(2)));
    let place = |space: VmRange, len: Bytes| {
        let at = space.len.0 / workers / Bytes::PAGE.0 * Bytes::PAGE.0;
        space.part(Bytes(at * worker), len.min(Bytes(at)))
    };
    let survive = share_of(SURVIVING);
    os.access(place(eden, survive), Pattern::Lines(LINES), Amount::Rounds(1)).await?;
    os.access(place(to, survive), Pattern::Sweep, Amount::Rounds(1)).await?;
    let old = jvm.heap.old();
    let (live, promoted) = (jvm.live(), share_of(PROMOTED));
    let room = Bytes(old.len.0 - live.0);
    if promoted * workers > room {
        return Ok(tenured);
    }
    let tenured = if tenured + promoted * workers > room {
        // Old objects are gone through, and what was promoted is dead by now.
        if let Some(share) = jvm.share(old.part(Bytes(0), live), (worker, workers)) {
            os.access_runs(share, Pattern::Lines(LINES), Amount::Rounds(1)).await?;
        }
        Bytes(0)
    } else {
        tenured
    };
    let at = live + tenured + promoted * worker;
    os.access(old.part(at, promoted), Pattern::Sweep, Amount::Rounds(1)).await?;
    Ok(tenured + promoted * workers)
}

#[cfg(test)]
mod tests;
