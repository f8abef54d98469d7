//! The operations of a service, one at a time.
//!
//! A thread knows the memory of its process as it was when its phase began: memory that threads allocate belongs to all when the
//! phase is over.

use os::{Advice, Barrier, File, FileRange, MapSpec, Os, Placement, VmRange};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use units::{Bytes, CpuId, Errno, Picos};

use super::{
    arena::Arena,
    pattern::below_u64,
    plan::{Action, Advising, Cpus, Event, Exec, Freed, Phase, Process, Service, Until},
};

/// A process of a service while it runs, as each of its threads knows it.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) service: Service,
    pub(super) process: u32,
    pub(super) copy: u32,
    pub(super) seed: u64,
    pub(super) signals: Signals,
    /// Memory of the machine, of which sizes are parts.
    pub(super) total: Bytes,
    pub(super) arena: Arena,
}

/// Barriers at which processes hear of each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Signals {
    /// Ends of phases that somebody waits for.
    pub(super) phases: Vec<(Event, Barrier)>,
    /// The end of each process, in their order.
    pub(super) ended: Vec<Barrier>,
}

/// A thread in a phase, as far as its operations know it.
#[derive(Debug)]
pub(super) struct Hand {
    pub(super) index: u32,
    pub(super) random: ChaCha8Rng,
    /// Memory that was allocated: the index of the phase, and where.
    pub(super) allocated: Vec<(u32, VmRange)>,
    /// Memory that is given back when its time is over.
    pub(super) held: Option<(VmRange, Picos)>,
    /// How often the whole work of the phase has been done.
    pub(super) rounds: u64,
    /// Programs that the kernel killed.
    pub(super) killed: u64,
    cursor: Cursor,
}

/// Where a thread stands in the work of its phase.
#[derive(Debug, Default)]
struct Cursor {
    mapping: Option<VmRange>,
    file: Option<File>,
    /// Bytes of this round that are done.
    at: Bytes,
    /// Files that were made.
    made: u64,
}

/// The entry of a program that a process starts.
pub const EXEC_ENTRY: &str = "service-program";

/// Parameters of a program; they cross a pipe.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramParams {
    exec: Exec,
    /// A directory of its own.
    name: String,
}

impl Hand {
    /// Files of a repetition have numbers that no earlier one has.
    pub(super) fn new(index: u32, random: ChaCha8Rng, repetition: u64) -> Self {
        Self {
            index,
            random,
            allocated: Vec::new(),
            held: None,
            rounds: 0,
            killed: 0,
            cursor: Cursor { made: repetition << 32, ..Cursor::default() },
        }
    }
}

impl Member {
    pub(super) fn new(
        service: Service,
        (process, copy): (u32, u32),
        seed: u64,
        signals: Signals,
        total: Bytes,
    ) -> Self {
        Self { service, process, copy, seed, signals, total, arena: Arena::default() }
    }

    pub(super) fn process(&self) -> &Process {
        &self.service.processes[self.process as usize]
    }

    /// The index of a phase of this process.
    pub(super) fn number_of(&self, phase: &Phase) -> u32 {
        let index = self.process().phases.iter().position(|one| one.name == phase.name);
        u32::try_from(index.expect("a phase of this process")).expect("few phases")
    }

    /// Threads that share the work of a phase; some work is one thing, which one thread does.
    pub(super) fn threads_of(&self, phase: &Phase) -> u32 {
        self.process().threads_of(phase)
    }

    /// Whether all copies of a process have ended.
    pub(super) fn has_ended<O: Os>(&self, os: &O, process: u32) -> Result<bool, Errno> {
        let barrier = self.signals.ended[process as usize];
        // A cancelled barrier is seen without a look at its number.
        Ok(os.is_cancelled(barrier) && os.add(barrier, 0)? >= self.service.processes[process as usize].copies)
    }

    /// The name of a file that this process has to itself.
    pub(super) fn file_name(&self, phase: &Phase, number: impl std::fmt::Display) -> String {
        format!("{}-{}-{}/{number}", self.process, self.copy, self.number_of(phase))
    }

    /// Takes memory that a thread has allocated as memory of the process.
    pub(super) fn take_over(&mut self, hand: &mut Hand) {
        for (phase, range) in std::mem::take(&mut hand.allocated) {
            let pieces = match &self.process().phases[phase as usize].action {
                Action::Allocate { pieces, .. } => pieces.clone(),
                _ => Vec::new(),
            };
            self.arena.push(phase, range, &pieces, &mut hand.random);
        }
    }

    /// One access of a block from a page on; says how many bytes it was.
    pub(super) async fn access<O: Os>(&self, os: &O, block: Bytes, page: u64, stores: bool) -> Result<Bytes, Errno> {
        let range = self.arena.at(page, block);
        if stores {
            os.store(range, Bytes::PAGE).await?;
        } else {
            os.load(range, Bytes::PAGE).await?;
        }
        Ok(range.len)
    }

    /// Gives a piece back and takes it anew, as an allocator does that returns freed memory.
    pub(super) async fn replace<O: Os>(&self, os: &O, random: &mut ChaCha8Rng) -> Result<(), Errno> {
        let Some(piece) = self.arena.piece(random) else { return Ok(()) };
        os.madvise(piece, Advice::DontNeed).await?;
        os.store(piece, Bytes::PAGE).await
    }

    /// One operation of any phase but accesses; says how many bytes it was.
    pub(super) async fn operate<O: Os>(&mut self, os: &O, phase: &Phase, thread: &mut Hand) -> Result<Bytes, Errno> {
        match &phase.action {
            Action::Allocate { .. } => self.allocate(os, phase, thread).await,
            Action::Read { mapped: true, .. } => self.read_mapped(os, phase, thread).await,
            Action::Read { .. } => self.read(os, phase, thread).await,
            Action::Write { .. } => self.write(os, phase, thread).await,
            Action::Exec(exec) => {
                let number = format_args!("{}-{}", thread.index, thread.rounds).to_string();
                let with = ProgramParams { exec: *exec, name: self.file_name(phase, number) };
                thread.rounds += 1;
                if let Ok(done) = os.spawn_process::<_, Result<(), Errno>>(Placement::Free, EXEC_ENTRY, with).await {
                    return done.map(|()| exec.size);
                }
                // The kernel has killed the program; the process has lost one request.
                thread.killed += 1;
                Ok(Bytes(0))
            }
            whole => {
                let bytes = self.whole(os, phase, whole).await?;
                thread.rounds += 1;
                Ok(bytes)
            }
        }
    }

    /// An operation that is the whole work of its phase.
    async fn whole<O: Os>(&mut self, os: &O, phase: &Phase, action: &Action) -> Result<Bytes, Errno> {
        match action {
            Action::Free(freed) => self.free(os, *freed, phase.requests.block).await,
            Action::Sleep(time) => {
                os.sleep(*time).await;
                Ok(Bytes(0))
            }
            Action::Compute(time) => {
                os.compute(*time).await;
                Ok(Bytes(0))
            }
            Action::Pin(pinning) => {
                let len = whole_pages(pinning.size.of(self.total));
                let range = os.mmap(len, MapSpec::Anonymous).await?;
                self.advise(os, range, self.process().thp).await?;
                os.pin(range).await?;
                Ok(len)
            }
            Action::Drop => {
                // A machine that others use keeps its caches.
                match os.drop_caches().await {
                    Err(Errno::NOSYS) | Ok(()) => Ok(Bytes(0)),
                    Err(errno) => Err(errno),
                }
            }
            Action::Madvise(advising) => {
                let ranges = self.arena.ranges();
                for range in ranges {
                    self.advise(os, range, *advising).await?;
                }
                Ok(Bytes(0))
            }
            Action::Allocate { .. }
            | Action::Access(_)
            | Action::Read { .. }
            | Action::Write { .. }
            | Action::Fork(_)
            | Action::Exec(_) => unreachable!("not one call: {action:?}"),
        }
    }

    async fn advise<O: Os>(&self, os: &O, range: VmRange, advising: Advising) -> Result<(), Errno> {
        match advising {
            Advising::Default => Ok(()),
            Advising::Huge => os.madvise(range, Advice::HugePage).await,
            Advising::Base => os.madvise(range, Advice::NoHugePage).await,
        }
    }

    /// A thread's part of a size, in whole blocks where it is at least one.
    fn part_of(&self, phase: &Phase, size: Bytes) -> Bytes {
        let threads = u64::from(self.threads_of(phase));
        let block = phase.requests.block;
        let part = Bytes(size.0 / threads);
        if part >= block { Bytes(part.0 / block.0 * block.0) } else { whole_pages(part) }
    }

    /// The next block of an allocation: maps memory with the first one.
    async fn allocate<O: Os>(&self, os: &O, phase: &Phase, thread: &mut Hand) -> Result<Bytes, Errno> {
        let Action::Allocate { size, hold, fill, .. } = &phase.action else { unreachable!("an allocation") };
        let len = self.part_of(phase, size.of(self.total));
        let range = if let Some(range) = thread.cursor.mapping {
            range
        } else {
            let range = self.map(os, len, phase.requests.block).await?;
            thread.cursor.mapping = Some(range);
            range
        };
        let at = thread.cursor.at;
        let block = range.part(at, Bytes(phase.requests.block.0.min(range.len.0 - at.0)));
        if *fill {
            os.fill(block).await?;
        } else {
            os.store(block, Bytes::PAGE).await?;
        }
        thread.cursor.at = at + block.len;
        if thread.cursor.at == range.len {
            thread.cursor.at = Bytes(0);
            thread.cursor.mapping = None;
            thread.rounds += 1;
            match hold {
                Some(hold) => thread.held = Some((range, *hold)),
                None => thread.allocated.push((self.number_of(phase), range)),
            }
        }
        Ok(block.len)
    }

    /// Maps `len` bytes; larger blocks than pages begin at a boundary of 2 MiB, as allocators of large memory have it.
    async fn map<O: Os>(&self, os: &O, len: Bytes, block: Bytes) -> Result<VmRange, Errno> {
        let aligned = len >= Bytes::HUGE_PAGE && block >= Bytes::HUGE_PAGE && self.process().thp != Advising::Base;
        let room = if aligned { Bytes::HUGE_PAGE } else { Bytes(0) };
        let mapping = os.mmap(len + room, MapSpec::Anonymous).await?;
        self.advise(os, mapping, self.process().thp).await?;
        Ok(if aligned { mapping.aligned_part(Bytes::HUGE_PAGE, len) } else { mapping })
    }

    async fn free<O: Os>(&mut self, os: &O, freed: Freed, block: Bytes) -> Result<Bytes, Errno> {
        let ranges = if freed.holes { self.arena.punch(freed.part, block) } else { self.arena.take(freed.part) };
        let mut bytes = Bytes(0);
        for range in ranges {
            if freed.keeps_mapping {
                os.madvise(range, Advice::DontNeed).await?;
            } else {
                os.munmap(range).await?;
            }
            bytes += range.len;
        }
        Ok(bytes)
    }

    /// The file that a phase reads, which was made before the start.
    async fn open<O: Os>(&self, os: &O, phase: &Phase, thread: &mut Hand) -> Result<File, Errno> {
        if let Some(file) = thread.cursor.file {
            return Ok(file);
        }
        let file = os.open(&self.file_name(phase, "read")).await?;
        if matches!(phase.action, Action::Read { random: true, .. }) {
            os.advise_random(file).await?;
        }
        thread.cursor.file = Some(file);
        Ok(file)
    }

    /// Where a thread reads next, and how many bytes its part of a round is.
    fn reads_at(&self, phase: &Phase, thread: &mut Hand) -> (Bytes, Bytes) {
        let Action::Read { size, file, random, .. } = &phase.action else { unreachable!("a read") };
        let (size, file) = (self.part_of(phase, size.of(self.total)), whole_pages(file.of(self.total)));
        let block = phase.requests.block;
        let blocks = (file.0 / block.0).max(1);
        let number = if *random {
            below_u64(&mut thread.random, blocks)
        } else {
            let begin = blocks / u64::from(self.threads_of(phase)) * u64::from(thread.index);
            (begin + thread.cursor.at.0 / block.0) % blocks
        };
        (block * number, size)
    }

    async fn read<O: Os>(&self, os: &O, phase: &Phase, thread: &mut Hand) -> Result<Bytes, Errno> {
        let file = self.open(os, phase, thread).await?;
        let (offset, size) = self.reads_at(phase, thread);
        os.read(file, offset, phase.requests.block).await?;
        self.have_read(os, (phase, size), thread).await
    }

    async fn read_mapped<O: Os>(&self, os: &O, phase: &Phase, thread: &mut Hand) -> Result<Bytes, Errno> {
        let file = self.open(os, phase, thread).await?;
        let (offset, size) = self.reads_at(phase, thread);
        let block = phase.requests.block;
        let range = os.mmap(block, MapSpec::SharedRead(FileRange { file, offset })).await?;
        os.load(range, Bytes::PAGE).await?;
        os.munmap(range).await?;
        self.have_read(os, (phase, size), thread).await
    }

    async fn have_read<O: Os>(
        &self,
        os: &O,
        (phase, size): (&Phase, Bytes),
        thread: &mut Hand,
    ) -> Result<Bytes, Errno> {
        let block = phase.requests.block;
        thread.cursor.at += block;
        if thread.cursor.at >= size {
            thread.rounds += 1;
            // The next round goes on with the file where this one ended, if rounds are counted by time.
            if matches!(phase.requests.until, Until::Times(_)) {
                thread.cursor.at = Bytes(0);
                if let Some(file) = thread.cursor.file.take() {
                    os.close(file).await?;
                }
            }
        }
        Ok(block)
    }

    async fn write<O: Os>(&self, os: &O, phase: &Phase, thread: &mut Hand) -> Result<Bytes, Errno> {
        let Action::Write { size, file: each, sync, remove } = &phase.action else { unreachable!("a write") };
        let size = self.part_of(phase, size.of(self.total));
        let each = each.unwrap_or(size).max(Bytes::PAGE);
        let number = thread.cursor.made;
        let name = |number: u64| self.file_name(phase, format_args!("{}/{number}", thread.index));
        let file = match thread.cursor.file {
            Some(file) => file,
            None => os.create(&name(number)).await?,
        };
        thread.cursor.file = Some(file);
        let offset = Bytes(thread.cursor.at.0 % each.0);
        let len = Bytes(phase.requests.block.0.min(each.0 - offset.0));
        os.write(file, offset, len).await?;
        thread.cursor.at += len;
        if thread.cursor.at.0.is_multiple_of(each.0) {
            if *sync {
                os.fsync(file).await?;
            }
            os.close(file).await?;
            thread.cursor.file = None;
            thread.cursor.made += 1;
            // What is left of a round and makes no whole file is not written.
            if thread.cursor.at + each > size {
                let of_round = thread.cursor.at.0 / each.0;
                thread.cursor.at = Bytes(0);
                thread.rounds += 1;
                if *remove {
                    for number in thread.cursor.made - of_round..thread.cursor.made {
                        os.unlink(&self.file_name(phase, format_args!("{}/{number}", thread.index))).await?;
                    }
                }
            }
        }
        Ok(len)
    }
}

/// Puts the calling thread where its process wants the thread of this number.
pub(super) async fn settle<O: Os>(os: &O, member: &Member, thread: u32) -> Result<(), Errno> {
    match &member.process().cpus {
        Cpus::Free => Ok(()),
        Cpus::Spread => {
            let place = (member.copy * member.process().threads + thread) % os.cpus();
            os.set_affinity(&[CpuId(place)]).await
        }
        Cpus::These(cpus) => os.set_affinity(&cpus.iter().copied().map(CpuId).collect::<Vec<_>>()).await,
    }
}

/// A number of bytes, at least a page, in whole pages.
pub(super) fn whole_pages(bytes: Bytes) -> Bytes {
    Bytes::PAGE * (bytes.0 / Bytes::PAGE.0).max(1)
}

/// A program that a process has started: memory, time, files, and its end.
pub async fn program<O: Os>(os: O, with: ProgramParams) -> Result<(), Errno> {
    let ProgramParams { exec, name } = with;
    if exec.size > Bytes(0) {
        let range = os.mmap(whole_pages(exec.size), MapSpec::Anonymous).await?;
        os.store(range, Bytes::PAGE).await?;
    }
    if exec.compute > Picos(0) {
        os.compute(exec.compute).await;
    }
    let files = if exec.file > Bytes(0) { exec.writes.0 / exec.file.0 } else { 0 };
    for number in 0..files {
        let file = os.create(&format!("{name}/{number}")).await?;
        os.write(file, Bytes(0), exec.file).await?;
        os.close(file).await?;
    }
    Ok(())
}
