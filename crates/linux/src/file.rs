//! Files of a run: names below a directory that goes away at its end.
//!
//! A run declares how large its files become together, and cannot pass that: this machine's disk is not ours to fill.

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::BinaryHeap,
    fs, io,
    os::unix::fs::FileExt,
    path::{Component, Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use nix::{
    fcntl::{PosixFadviseAdvice, posix_fadvise},
    sys::statvfs::statvfs,
    unistd::syncfs,
};
use os::{File, FileRange, VmRange};
use serde::{Deserialize, Serialize};
use units::{Bytes, Errno};

use crate::{
    host::errno as host_errno,
    memory::{self, FileMapping},
};

/// Directory and memory that a run uses, besides CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ground {
    /// Where its files live; without one there are none.
    pub directory: Option<PathBuf>,
    /// How large they become together.
    pub room: Bytes,
    /// The memory that the run takes for the machine's; all of it when not given.
    pub memory: Option<Bytes>,
    /// Whether it may drop the caches of the machine.
    pub drops_caches: bool,
}

/// The files of one process.
#[derive(Debug)]
pub(crate) struct Files {
    ground: Ground,
    /// Bytes that files of this process may still gain. What is unlinked is not given back: it may still be open.
    left: AtomicU64,
    open: Mutex<Table>,
    /// Mappings whose pages belong to files.
    shared: Mutex<Vec<VmRange>>,
}

/// Open files by number, and the numbers below the highest that nobody has.
#[derive(Debug, Default)]
struct Table {
    files: Vec<Option<Arc<Open>>>,
    free: BinaryHeap<Reverse<u32>>,
}

/// An open file.
#[derive(Debug)]
struct Open {
    file: fs::File,
    /// The file's length, as far as this descriptor made or found it.
    len: AtomicU64,
}

/// The content that is written: not zeros, which a file system or a host below may treat specially.
static CONTENT: [u8; 1 << 20] = [0xa5; 1 << 20];

/// The most that one call reads.
const BUFFER: usize = 1 << 20;

thread_local! {
    /// The buffer of reads: its content is never looked at.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Files {
    pub(crate) fn new(ground: Ground) -> Self {
        let left = AtomicU64::new(ground.room.0);
        Self { ground, left, open: Mutex::default(), shared: Mutex::default() }
    }

    /// For a process that is started from this one.
    pub(crate) fn ground(&self) -> Ground {
        Ground { room: Bytes(self.left.load(Ordering::Relaxed)), ..self.ground.clone() }
    }

    pub(crate) fn memory(&self) -> Bytes {
        self.ground.memory.unwrap_or_else(total_memory)
    }

    pub(crate) fn create(&self, name: &str) -> Result<File, Errno> {
        let path = self.path(name)?;
        let attempt = || fs::File::options().read(true).write(true).create_new(true).open(&path);
        let made = attempt().or_else(|error| match (error.kind(), path.parent()) {
            (io::ErrorKind::NotFound, Some(parent)) => fs::create_dir_all(parent).and_then(|()| attempt()),
            _ => Err(error),
        });
        Ok(self.keep(made.map_err(errno)?, 0))
    }

    pub(crate) fn open(&self, name: &str) -> Result<File, Errno> {
        let file = fs::File::options().read(true).write(true).open(self.path(name)?).map_err(errno)?;
        let len = file.metadata().map_err(errno)?.len();
        Ok(self.keep(file, len))
    }

    pub(crate) fn close(&self, file: File) -> Result<(), Errno> {
        let mut table = self.table();
        let closed = table.files.get_mut(file.id as usize).and_then(Option::take).ok_or(Errno::BADF)?;
        table.free.push(Reverse(file.id));
        drop(table);
        drop(closed);
        Ok(())
    }

    pub(crate) fn unlink(&self, name: &str) -> Result<(), Errno> {
        fs::remove_file(self.path(name)?).map_err(errno)
    }

    pub(crate) fn truncate(&self, file: File, len: Bytes) -> Result<(), Errno> {
        let open = self.get(file)?;
        self.grow(&open, len.0)?;
        open.file.set_len(len.0).map_err(errno)?;
        open.len.store(len.0, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn write(&self, file: File, offset: Bytes, len: Bytes) -> Result<(), Errno> {
        let content = usize::try_from(len.0).ok().and_then(|len| CONTENT.get(..len)).ok_or(Errno::INVAL)?;
        let open = self.get(file)?;
        self.grow(&open, offset.0 + len.0)?;
        open.file.write_all_at(content, offset.0).map_err(errno)
    }

    pub(crate) fn write_blocks(&self, file: File, offset: Bytes, len: Bytes, block: Bytes) -> Result<(), Errno> {
        let step = usize::try_from(block.0).ok().filter(|step| *step > 0).ok_or(Errno::INVAL)?;
        let mut starts = (0..len.0).step_by(step);
        starts.try_for_each(|start| self.write(file, Bytes(offset.0 + start), block.min(Bytes(len.0 - start))))
    }

    pub(crate) fn read(&self, file: File, offset: Bytes, len: Bytes) -> Result<(), Errno> {
        let len = usize::try_from(len.0).ok().filter(|len| *len <= BUFFER).ok_or(Errno::INVAL)?;
        let open = self.get(file)?;
        READ.with_borrow_mut(|buffer| {
            buffer.resize(BUFFER, 0);
            // What lies behind the end is not read: one call is enough for what lies before it.
            open.file.read_at(&mut buffer[..len], offset.0).map(drop).map_err(errno)
        })
    }

    pub(crate) fn advise_random(&self, file: File) -> Result<(), Errno> {
        posix_fadvise(&self.get(file)?.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM).map_err(host_errno)
    }

    pub(crate) fn fsync(&self, file: File) -> Result<(), Errno> {
        self.get(file)?.file.sync_all().map_err(errno)
    }

    pub(crate) fn map(&self, part: FileRange, len: Bytes, how: FileMapping) -> Result<VmRange, Errno> {
        memory::map_file(&self.get(part.file)?.file, part.offset, len, how)
    }

    /// Remembers a mapping that does not count as memory of this process.
    pub(crate) fn note_shared(&self, range: VmRange) {
        self.shared.lock().expect("no task panics while it holds the list of mappings").push(range);
    }

    /// Whether the range is such a mapping; it is none any more.
    pub(crate) fn forget_shared(&self, range: VmRange) -> bool {
        let mut shared = self.shared.lock().expect("no task panics while it holds the list of mappings");
        let known = shared.iter().position(|known| *known == range);
        known.map(|known| shared.swap_remove(known)).is_some()
    }

    pub(crate) fn sync(&self) -> Result<(), Errno> {
        let directory = self.ground.directory.as_ref().ok_or(Errno::NOSYS)?;
        syncfs(fs::File::open(directory).map_err(errno)?).map_err(host_errno)
    }

    /// Dirty pages stay: they are written first (drop_caches_sysctl_handler, fs/drop_caches.c, v6.1, leaves them).
    pub(crate) fn drop_caches(&self) -> Result<(), Errno> {
        if !self.ground.drops_caches {
            return Err(Errno::NOSYS);
        }
        nix::unistd::sync();
        fs::write("/proc/sys/vm/drop_caches", "3").map_err(errno)
    }

    fn path(&self, name: &str) -> Result<PathBuf, Errno> {
        let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        let directory = self.ground.directory.as_ref().ok_or(Errno::NOSYS)?;
        if inside && !name.is_empty() { Ok(directory.join(name)) } else { Err(Errno::INVAL) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.open.lock().expect("no task panics while it holds the table of files")
    }

    fn keep(&self, file: fs::File, len: u64) -> File {
        let opened = Some(Arc::new(Open { file, len: AtomicU64::new(len) }));
        let mut table = self.table();
        // The lowest number that is free, as descriptors are.
        if let Some(Reverse(id)) = table.free.pop() {
            table.files[id as usize] = opened;
            return File { id };
        }
        table.files.push(opened);
        File { id: u32::try_from(table.files.len() - 1).expect("fewer than 2^32 files") }
    }

    fn get(&self, file: File) -> Result<Arc<Open>, Errno> {
        self.table().files.get(file.id as usize).and_then(Clone::clone).ok_or(Errno::BADF)
    }

    /// A file gets `len` bytes long, if it is not yet.
    fn grow(&self, open: &Open, len: u64) -> Result<(), Errno> {
        let known = open.len.load(Ordering::Relaxed);
        let take = |left: u64| left.checked_sub(len.saturating_sub(known));
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| Errno::NOSPC)?;
        // What another task has counted meanwhile is counted once.
        let before = open.len.fetch_max(len, Ordering::Relaxed);
        self.left.fetch_add(before.min(len).saturating_sub(known), Ordering::Relaxed);
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err takes")]
fn errno(error: io::Error) -> Errno {
    // What the standard library refuses by itself has no number.
    Errno(error.raw_os_error().unwrap_or(Errno::INVAL.0))
}

/// `MemTotal`.
fn total_memory() -> Bytes {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    Bytes::kib(kib.unwrap_or(0))
}

/// Space that a file system has left for this user.
pub fn free_space(directory: &Path) -> Option<Bytes> {
    let found = statvfs(directory).ok()?;
    Some(Bytes(found.blocks_available().saturating_mul(found.fragment_size())))
}

/// Whether files there are memory themselves (tmpfs): reclaim can only swap them out.
pub fn is_memory(directory: &Path) -> bool {
    nix::sys::statfs::statfs(directory).is_ok_and(|found| found.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Linux, block_on, usable_cpus};
    use os::{MapSpec, Os};

    fn ground(directory: &Path) -> Ground {
        let directory = Some(directory.to_owned());
        Ground { directory, room: Bytes::mib(1), memory: Some(Bytes::mib(64)), drops_caches: false }
    }

    #[test]
    fn files_hold_what_they_declared_and_no_more() {
        let scratch = tempfile::tempdir().unwrap();
        let files = Files::new(ground(scratch.path()));
        let file = files.create("writer-0/1").unwrap();
        files.write(file, Bytes(0), Bytes::kib(512)).unwrap();
        files.write(file, Bytes(0), Bytes::kib(512)).unwrap();
        assert_eq!(files.write(file, Bytes::kib(512), Bytes::mib(1)), Err(Errno::NOSPC), "a second megabyte");
        files.write_blocks(file, Bytes::kib(510), Bytes::kib(2), Bytes(512)).unwrap();
        assert_eq!(files.write_blocks(file, Bytes::mib(1), Bytes(700), Bytes(512)), Err(Errno::NOSPC));
        assert_eq!(files.write_blocks(file, Bytes(0), Bytes(700), Bytes(0)), Err(Errno::INVAL));
        assert_eq!(fs::metadata(scratch.path().join("writer-0/1")).unwrap().len(), 512 << 10);
        assert_eq!(files.create("writer-0/1"), Err(Errno(libc::EEXIST)));
        assert_eq!(files.create("../out"), Err(Errno::INVAL));
        files.advise_random(file).unwrap();
        files.read(file, Bytes::kib(511), Bytes::PAGE).unwrap();
        assert_eq!(files.read(file, Bytes(0), Bytes::mib(2)), Err(Errno::INVAL), "more than a call reads");
        files.close(file).unwrap();
        assert_eq!((files.fsync(file), files.read(file, Bytes(0), Bytes::PAGE)), (Err(Errno::BADF), Err(Errno::BADF)));
        let again = files.open("writer-0/1").unwrap();
        assert_eq!(again, file, "the lowest free number");
        files.unlink("writer-0/1").unwrap();
        assert_eq!(files.open("writer-0/1"), Err(Errno::NOENT));
        assert_eq!(files.drop_caches(), Err(Errno::NOSYS));
        assert_eq!(Files::new(Ground::default()).create("a"), Err(Errno::NOSYS), "there is no directory");
    }

    #[test]
    fn mapped_files_fault_as_the_kernel_says() {
        let scratch = tempfile::tempdir().unwrap();
        let os = Linux::new(usable_cpus(), Bytes::kib(256), ground(scratch.path()));
        let size = Bytes::kib(256);
        let faults = |spec: fn(FileRange) -> MapSpec, touch: bool| {
            let file = block_on(os.create("f")).unwrap();
            block_on(os.unlink("f")).unwrap();
            block_on(os.truncate(file, size)).unwrap();
            let range = block_on(os.mmap(size, spec(FileRange { file, offset: Bytes(0) }))).unwrap();
            let before = block_on(os.rusage()).unwrap().faults();
            if touch {
                block_on(os.store(range, Bytes::PAGE)).unwrap();
            } else {
                block_on(os.load(range, Bytes::PAGE)).unwrap();
            }
            let faults = block_on(os.rusage()).unwrap().faults() - before;
            block_on(os.munmap(range)).unwrap();
            block_on(os.close(file)).unwrap();
            faults
        };
        assert!((64..80).contains(&faults(MapSpec::Private, true)), "a copy of each page");
        assert!((64..80).contains(&faults(MapSpec::Shared, true)), "each page made writable");
        assert_eq!(os.memory(), Bytes::mib(64));
        // The whole cap is free again, as shared mappings never took of it.
        let range = block_on(os.mmap(size, MapSpec::Anonymous)).unwrap();
        block_on(os.fill(range)).unwrap();
        assert!(block_on(os.mincore(range)).unwrap().iter().all(|resident| *resident));
        assert!(faults(MapSpec::SharedRead, false) <= 80);
    }
}
