//! `Os` on top of the simulated machine: a handle is only the right to be polled inside a run.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use mm::file::page_cache::{Blocks, FileAnswer, FileRequest};
use os::{
    Accessed, Advice, Amount, Barrier, Died, File, MapSpec, Mempolicy, Moves, NumaNode, Os, Pattern, Placed, Placement,
    Runs, Rusage, VmRange, VmStat, Wire,
};
use units::{
    BlockCensus, Bytes, CpuId, Errno, FrameChurn, FrameChurned, Frames, NodeId, Picos, Stores, Streamed, Time,
};

use crate::{
    ids::TaskId,
    runqueue::Nice,
    task::{Answer, Meeting, Request, executor, layout, operation::pages},
    world::{self, with},
};

/// The simulator's handle on its operating system. All handles are equal: the asking task is the one that is polled.
#[derive(Clone, Copy, Debug)]
pub struct Sim;

impl Sim {
    /// Shows the memory manager as it is now. Not part of [`Os`]: only the simulator can.
    pub fn look<T>(&self, at: impl FnOnce(&mm::Mm) -> T) -> T {
        with(|world| at(&world.own_kernel().mm))
    }

    /// Restarts the record of free memory ([`crate::Extra::free`]). Not part of [`Os`].
    pub fn watch_free_anew(&self) {
        with(world::World::watch_free_anew);
    }

    /// Fallbacks by kind since the machine was made. Not part of [`Os`], whose counters have only sums.
    pub fn extfrag(&self) -> units::ExtfragCounts {
        with(|world| world.own_kernel().counters.extfrag().clone())
    }

    /// Makes every page of a range hint once, as automatic NUMA balancing does (`change_prot_numa`). Not part of [`Os`]: no
    /// program asks for it.
    ///
    /// # Errors
    /// None yet.
    pub async fn hint(&self, range: VmRange) -> Result<(), Errno> {
        unit(Request::Hint(range)).await
    }
}

/// A request under way: submitted at the first poll, complete at the poll that follows the answer.
pub(crate) struct Call(Option<Request>);

impl Call {
    pub(crate) fn of(request: Request) -> Self {
        Self(Some(request))
    }
}

impl Future for Call {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Answer> {
        if let Some(request) = self.0.take() {
            with(|world| world.submit(request));
        }
        // Some requests are answered at once.
        with(world::World::take_answer).map_or(Poll::Pending, Poll::Ready)
    }
}

async fn unit(request: Request) -> Result<(), Errno> {
    match Call(Some(request)).await {
        Answer::Unit(result) => result,
        other => unreachable!("{other:?} answers no request for nothing"),
    }
}

async fn file(request: FileRequest) -> Result<FileAnswer, Errno> {
    match Call(Some(Request::File(request))).await {
        Answer::File(result) => result,
        other => unreachable!("{other:?} answers no request about files"),
    }
}

async fn done(request: FileRequest) -> Result<(), Errno> {
    file(request).await.map(drop)
}

async fn opened(request: FileRequest) -> Result<File, Errno> {
    match file(request).await? {
        FileAnswer::Opened(id) => Ok(File { id }),
        FileAnswer::Done => unreachable!("a file that was opened has a descriptor"),
    }
}

/// Waits for the end of a spawned task, and takes its result.
pub(crate) async fn join<T: 'static>(task: TaskId, slot: Rc<RefCell<Option<Result<T, Died>>>>) -> Result<T, Died> {
    // Joining a task that has ended cannot fail.
    let _ = unit(Request::Join(task)).await;
    // A task that the kernel ended has left no result.
    slot.take().unwrap_or_else(|| {
        let reason =
            with(|world| world.tasks[task.0 as usize].killed()).expect("a task that ends by itself leaves its result");
        Err(Died { reason: reason.to_owned() })
    })
}

/// The result that another process sent through a pipe.
fn received<T: Wire>(output: Result<Vec<u8>, String>) -> Result<T, Died> {
    let result = output.and_then(|output| {
        serde_json::from_slice(&output).map_err(|error| format!("its result is not readable: {error}"))
    });
    result.map_err(|reason| Died { reason })
}

/// Whether some rule of the kernel chooses among the VMAs of a process.
fn chooses_vmas() -> bool {
    with(|world| world.own_kernel().mm.balances_numa())
}

impl Os for Sim {
    fn now(&self) -> Time {
        with(|world| world.now())
    }

    fn cpus(&self) -> u32 {
        with(|world| u32::try_from(world.own_kernel().cpus.len()).expect("fewer than 2^32 CPUs"))
    }

    fn memory(&self) -> Bytes {
        with(|world| Frames(world.own_kernel().mm.memory.zones().iter().map(|zone| zone.managed).sum()).bytes())
    }

    fn nodes(&self) -> Vec<NumaNode> {
        with(|world| world.numa_nodes())
    }

    async fn set_affinity(&self, cpus: &[CpuId]) -> Result<(), Errno> {
        unit(Request::SetAffinity(cpus.to_vec())).await
    }

    fn nice_children(&self, level: i8) -> Result<(), Errno> {
        if !(-20..=19).contains(&level) {
            return Err(Errno::INVAL);
        }
        with(|world| {
            let current = world.current;
            world.tasks[current.0 as usize].nice_of_children = Nice::new(level);
        });
        Ok(())
    }

    async fn set_mempolicy(&self, policy: &Mempolicy) -> Result<(), Errno> {
        unit(Request::SetMempolicy(policy.clone())).await
    }

    async fn node_of(&self, range: VmRange) -> Result<Vec<Option<NodeId>>, Errno> {
        match Call(Some(Request::NodeOf(range))).await {
            Answer::Nodes(nodes) => Ok(nodes),
            Answer::Unit(Err(errno)) => Err(errno),
            other => unreachable!("{other:?} answers no question about nodes"),
        }
    }

    async fn compute(&self, span: Picos) {
        // Computing cannot fail.
        let _ = unit(Request::Compute(span)).await;
    }

    async fn sleep(&self, span: Picos) {
        // A sleep cannot fail.
        let _ = unit(Request::Sleep(span)).await;
    }

    async fn mmap(&self, len: Bytes, spec: MapSpec) -> Result<VmRange, Errno> {
        match Call(Some(Request::Mmap(len, spec))).await {
            Answer::Range(result) => result,
            other => unreachable!("{other:?} answers no mmap"),
        }
    }

    async fn munmap(&self, range: VmRange) -> Result<(), Errno> {
        unit(Request::Munmap(range)).await
    }

    async fn madvise(&self, range: VmRange, advice: Advice) -> Result<(), Errno> {
        unit(Request::Madvise(range, advice)).await
    }

    async fn pin(&self, range: VmRange) -> Result<(), Errno> {
        unit(Request::Pin(range)).await
    }

    async fn store(&self, range: VmRange, stride: Bytes) -> Result<(), Errno> {
        unit(Request::Store(range, stride)).await
    }

    async fn fill(&self, range: VmRange) -> Result<(), Errno> {
        unit(Request::Fill(range)).await
    }

    fn bzero(&self, len: Bytes) -> Stores {
        with(|world| world.bzero(len))
    }

    async fn load(&self, range: VmRange, stride: Bytes) -> Result<(), Errno> {
        unit(Request::Load(range, stride)).await
    }

    async fn access(&self, range: VmRange, pattern: Pattern, amount: Amount) -> Result<Accessed, Errno> {
        self.access_runs(range.into(), pattern, amount).await
    }

    async fn access_runs(&self, runs: Runs, pattern: Pattern, amount: Amount) -> Result<Accessed, Errno> {
        match Call(Some(Request::Access(runs, pattern, amount))).await {
            Answer::Accessed(accessed) => Ok(accessed),
            Answer::Unit(Err(errno)) => Err(errno),
            other => unreachable!("{other:?} answers no accesses"),
        }
    }

    async fn create(&self, name: &str) -> Result<File, Errno> {
        opened(FileRequest::Create(name.to_owned())).await
    }

    async fn open(&self, name: &str) -> Result<File, Errno> {
        opened(FileRequest::Open(name.to_owned())).await
    }

    async fn close(&self, file: File) -> Result<(), Errno> {
        done(FileRequest::Close(file.id)).await
    }

    async fn unlink(&self, name: &str) -> Result<(), Errno> {
        done(FileRequest::Unlink(name.to_owned())).await
    }

    async fn truncate(&self, file: File, len: Bytes) -> Result<(), Errno> {
        done(FileRequest::Truncate(file.id, len)).await
    }

    async fn write(&self, file: File, offset: Bytes, len: Bytes) -> Result<(), Errno> {
        done(FileRequest::Write { file: file.id, offset, len }).await
    }

    async fn write_blocks(&self, file: File, offset: Bytes, len: Bytes, block: Bytes) -> Result<(), Errno> {
        if block == Bytes(0) {
            return Err(Errno::INVAL);
        }
        let mut left = Blocks { file: file.id, at: offset.0, end: offset.0 + len.0, block: block.0 };
        while left.at < left.end {
            left.at += with(|world| world.write_again(left));
            let len = Bytes(left.block.min(left.end - left.at));
            if len > Bytes(0) {
                self.write(file, Bytes(left.at), len).await?;
                left.at += len.0;
            }
        }
        Ok(())
    }

    async fn read(&self, file: File, offset: Bytes, len: Bytes) -> Result<(), Errno> {
        done(FileRequest::Read { file: file.id, offset, len }).await
    }

    async fn advise_random(&self, file: File) -> Result<(), Errno> {
        done(FileRequest::AdviseRandom(file.id)).await
    }

    async fn fsync(&self, file: File) -> Result<(), Errno> {
        done(FileRequest::Sync(file.id)).await
    }

    async fn sync(&self) -> Result<(), Errno> {
        done(FileRequest::SyncAll).await
    }

    async fn drop_caches(&self) -> Result<(), Errno> {
        done(FileRequest::DropCaches).await
    }

    async fn mincore(&self, range: VmRange) -> Result<Vec<bool>, Errno> {
        match Call(Some(Request::Mincore(range))).await {
            Answer::Resident(result) => result,
            other => unreachable!("{other:?} answers no mincore"),
        }
    }

    async fn rusage(&self) -> Result<Rusage, Errno> {
        Ok(with(|world| world.current().rusage()))
    }

    async fn moves(&self) -> Result<Moves, Errno> {
        Ok(with(|world| world.current().moves.moves()))
    }

    async fn vmstat(&self) -> Result<VmStat, Errno> {
        Ok(VmStat(with(|world| {
            let kernel = world.own_kernel();
            let events = kernel.counters.iter().map(|(event, count)| (event.name(), count));
            let named = events.chain(kernel.mm.gauges()).map(|(name, value)| (name.to_owned(), value));
            let extfrag = kernel.counters.extfrag().by_class(kernel.mm.memory.frames.blocks.order());
            let extfrag = extfrag.map(|(class, count)| (class.name(), count));
            let moves = kernel.mm.balances_numa().then(|| kernel.moves.named());
            let moves = moves.into_iter().flatten().chain(kernel.mm.numa_vma_skips().into_iter().flatten());
            let moves = moves.map(|(name, count)| (name.to_owned(), count));
            named.chain(extfrag).chain(moves).collect()
        })))
    }

    async fn places(&self, range: VmRange) -> Result<Vec<Placed>, Errno> {
        let found = with(|world| {
            let (kernel, task) = (world.own_kernel(), world.current());
            let space = kernel.spaces.get(task.space).expect("a live task has an address space");
            space.places_of(&kernel.mm, pages(range))
        });
        let placed = |((node, is_huge), pages)| Placed { node, is_huge, size: Bytes::PAGE * pages };
        Ok(found.into_iter().map(placed).collect())
    }

    async fn streamed(&self) -> Result<Streamed, Errno> {
        with(|world| world.own_kernel().mm.memory.flows().streamed()).ok_or(Errno::NOSYS)
    }

    async fn block_census(&self) -> Result<BlockCensus, Errno> {
        Ok(with(|world| world.own_kernel().mm.memory.block_census()))
    }

    async fn churn_frames(&self, churn: &FrameChurn) -> Result<FrameChurned, Errno> {
        Ok(with(|world| world.churn_frames(churn)))
    }

    async fn barrier(&self, parties: u32) -> Result<Barrier, Errno> {
        Ok(with(|world| {
            let id = u32::try_from(world.meetings.len()).expect("fewer than 2^32 barriers");
            world.meetings.push(Meeting { parties, ..Meeting::default() });
            Barrier { id, parties }
        }))
    }

    async fn arrive(&self, barrier: Barrier) -> Result<(), Errno> {
        unit(Request::Arrive(barrier)).await
    }

    async fn cancel(&self, barrier: Barrier) {
        with(|world| world.cancel(barrier));
    }

    fn is_cancelled(&self, barrier: Barrier) -> bool {
        with(|world| world.meetings[barrier.id as usize].cancelled)
    }

    fn add(&self, barrier: Barrier, n: u32) -> Result<u32, Errno> {
        Ok(with(|world| {
            let count = &mut world.meetings[barrier.id as usize].count;
            let before = *count;
            *count = before.wrapping_add(n);
            before
        }))
    }

    fn set(&self, barrier: Barrier, value: u32) -> Result<(), Errno> {
        with(|world| world.meetings[barrier.id as usize].count = value);
        Ok(())
    }

    fn spawn<T: Send + 'static>(
        &self,
        on: Placement,
        body: impl AsyncFnOnce(Self) -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, Died>> + 'static {
        let slot = Rc::new(RefCell::new(None));
        let result = Rc::clone(&slot);
        let task = with(|world| {
            let space = world.current().space;
            world.create_task(on, space)
        });
        let whole = async move {
            let stack = if chooses_vmas() { layout::stack(&Sim).await } else { None };
            let done = body(Sim).await;
            if let Some(stack) = stack {
                let _ = Sim.munmap(stack).await;
            }
            *result.borrow_mut() = Some(Ok(done));
        };
        executor::adopt(task, Box::pin(whole));
        join(task, slot)
    }

    async fn fork<T: Wire>(
        &self,
        on: Placement,
        body: impl AsyncFnOnce(Self) -> T + 'static,
    ) -> Result<impl Future<Output = Result<T, Died>> + 'static, Errno> {
        let space = match Call(Some(Request::Fork)).await {
            Answer::Space(result) => result?,
            other => unreachable!("{other:?} answers no fork"),
        };
        let slot = Rc::new(RefCell::new(None));
        let result = Rc::clone(&slot);
        let task = with(|world| world.create_task(on, space));
        let half = async move {
            let sent = serde_json::to_vec(&body(Sim).await).map_err(|error| error.to_string());
            *result.borrow_mut() = Some(received(sent));
        };
        executor::adopt(task, Box::pin(half));
        Ok(join(task, slot))
    }

    fn spawn_process<P: Wire, T: Wire>(
        &self,
        on: Placement,
        entry: &'static str,
        params: P,
    ) -> impl Future<Output = Result<T, Died>> + 'static {
        let slot = Rc::new(RefCell::new(None));
        let result = Rc::clone(&slot);
        let task = with(|world| {
            let space = world.try_space();
            if space.is_none() {
                world.cancel_all();
            }
            Some(world.create_task(on, space?))
        });
        // Through JSON, as on the other targets: what cannot cross a pipe there must not cross it here.
        let params = serde_json::to_vec(&params).expect("parameters serialise");
        let body = executor::entry(entry, params);
        if let Some(task) = task {
            let whole = async move {
                if chooses_vmas() {
                    layout::begin(&Sim).await;
                }
                *result.borrow_mut() = Some(received(body.await));
            };
            executor::adopt(task, Box::pin(whole));
        }
        async move {
            match task {
                Some(task) => join(task, slot).await,
                None => Err(Died { reason: "no memory for a new process".to_owned() }),
            }
        }
    }
}
