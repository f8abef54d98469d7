//! Mappings of a file in memory: its pages are there already, so nothing is allocated, cleared, charged or put on a list.

use std::{ffi::c_void, num::NonZeroUsize, os::fd::OwnedFd, ptr::NonNull};

use nix::{
    sys::{
        memfd::{MFdFlags, memfd_create},
        mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mlock, mmap, mprotect, munlock, munmap},
    },
    unistd::ftruncate,
};
use os::VmRange;
use units::{Bytes, VirtAddr};

use super::{FEW_PAGES, Found, MANY_PAGES, Raw, SOME_PAGES, absent, each, failed, probe, timed};
use crate::memory::{fill, load, map_anonymous, store, unmap};

const MAP_PAIRS: i64 = 500;
/// Calls on few pages per sample, as one alone is hardly longer than reading a clock.
const FEW_TIMES: i64 = 200;
const MANY_TIMES: i64 = 4;
/// Bytes that each of two mappings locks at a time: together half of RLIMIT_MEMLOCK (8 MiB from 5.16 on).
const LOCKED: Bytes = Bytes::mib(2);
const LOCK_TIMES: i64 = 4;

pub(super) fn probes() -> Vec<Found> {
    vec![
        map_unmap(),
        on_file(PROTECT, protect),
        on_file(SCAN, scan),
        on_file(UNMAP, unmap_file),
        on_file(UNLOCK, unlock),
        on_file(TOUCH, touch),
    ]
}

const PROTECT: &[Raw] =
    &[Raw::ProtectFew, Raw::ProtectTwice, Raw::ProtectSome, Raw::ProtectHalf, Raw::ProtectEmpty, Raw::ProtectMany];
const SCAN: &[Raw] = &[Raw::ScanFew, Raw::ScanMany];
const UNMAP: &[Raw] = &[Raw::UnmapPresent, Raw::UnmapAbsent];
const UNLOCK: &[Raw] = &[Raw::Unlock, Raw::UnlockShared];
const TOUCH: &[Raw] = &[Raw::Touch, Raw::Fill];

fn map_unmap() -> Found {
    probe(&[Raw::MapUnmap], |samples| {
        let mut result = Ok(());
        let pair = || map_anonymous(Bytes::mib(2)).and_then(unmap);
        let ns = timed(|| (0..MAP_PAIRS).for_each(|_| result = result.and_then(|()| pair())));
        samples.set(Raw::MapUnmap, each(ns, MAP_PAIRS));
        result.map_err(|errno| format!("mmap or munmap: {errno}"))
    })
}

type Take = fn(&FileInMemory, &mut super::Samples) -> Result<(), String>;

fn on_file(gives: &'static [Raw], take: Take) -> Found {
    match FileInMemory::new(MANY_PAGES) {
        Ok(file) => probe(gives, move |samples| take(&file, samples)),
        Err(why) => absent(gives, why),
    }
}

fn protect(file: &FileInMemory, samples: &mut super::Samples) -> Result<(), String> {
    let few = FileInMemory::new(FEW_PAGES)?.map()?;
    few.store();
    samples.set(Raw::ProtectFew, protect_times(&few, FEW_TIMES)?);
    few.forget()?;
    samples.set(Raw::ProtectEmpty, protect_times(&few, FEW_TIMES)?);
    let twice = FileInMemory::new(2 * FEW_PAGES)?.map()?;
    twice.store();
    samples.set(Raw::ProtectTwice, protect_times(&twice, FEW_TIMES)?);
    for (raw, pages) in [(Raw::ProtectSome, SOME_PAGES), (Raw::ProtectHalf, SOME_PAGES / 2)] {
        let mapping = FileInMemory::new(pages)?.map()?;
        mapping.store();
        samples.set(raw, protect_times(&mapping, FEW_TIMES)?);
    }
    let many = file.map()?;
    many.store();
    samples.set(Raw::ProtectMany, protect_times(&many, MANY_TIMES)?);
    Ok(())
}

/// Picoseconds of each change to read-only; those back are not timed.
fn protect_times(mapping: &Mapping, times: i64) -> Result<i64, String> {
    let mut ns = 0;
    for _ in 0..times {
        let mut result = Ok(());
        ns += timed(|| result = mapping.protect(ProtFlags::PROT_READ));
        result?;
        mapping.protect(ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
    }
    Ok(each(ns, times))
}

fn scan(file: &FileInMemory, samples: &mut super::Samples) -> Result<(), String> {
    let mapping = file.map()?;
    mapping.store();
    let mut present = vec![0_u8; usize::try_from(MANY_PAGES).expect("few")];
    let mut scan = |pages: i64, times: i64| {
        let len = usize::try_from(pages).expect("few") * 4096;
        let mut result = Ok(0);
        let ns = timed(|| {
            for _ in 0..times {
                #[expect(unsafe_code, reason = "nix does not wrap mincore")]
                // SAFETY: the kernel writes a byte per page into `present`, which has one for each page of the mapping.
                let status = unsafe { libc::mincore(mapping.start.as_ptr(), len, present.as_mut_ptr()) };
                result = result.and(nix::errno::Errno::result(status));
            }
        });
        result.map(|_| each(ns, times)).map_err(failed("mincore"))
    };
    samples.set(Raw::ScanFew, scan(FEW_PAGES, FEW_TIMES)?);
    samples.set(Raw::ScanMany, scan(MANY_PAGES, FEW_TIMES)?);
    Ok(())
}

fn unmap_file(file: &FileInMemory, samples: &mut super::Samples) -> Result<(), String> {
    let present = file.map()?;
    present.is_passed_once()?;
    present.load();
    samples.set(Raw::UnmapPresent, each(timed(|| drop(present)), 1));
    let absent = file.map()?;
    absent.load();
    absent.forget()?;
    samples.set(Raw::UnmapAbsent, each(timed(|| drop(absent)), 1));
    Ok(())
}

/// Locked pages are on a list of their own (`LRU_UNEVICTABLE`), by batches like all moves between lists. They leave it when
/// the last mapping that locks them lets go; before that, everything else is done for each of them.
fn unlock(file: &FileInMemory, samples: &mut super::Samples) -> Result<(), String> {
    let (first, last) = (file.map()?, file.map()?);
    first.load();
    last.load();
    let (mut shared, mut ns) = (0, 0);
    for _ in 0..LOCK_TIMES {
        first.lock()?;
        last.lock()?;
        for (mapping, ns) in [(&first, &mut shared), (&last, &mut ns)] {
            let mut result = Ok(());
            *ns += timed(|| result = mapping.unlock());
            result?;
        }
    }
    let pages = LOCK_TIMES * LOCKED.frames().0.cast_signed();
    samples.set(Raw::UnlockShared, each(shared, pages));
    samples.set(Raw::Unlock, each(ns, pages));
    Ok(())
}

fn locked() -> usize {
    usize::try_from(LOCKED.0).expect("a few pages")
}

fn touch(file: &FileInMemory, samples: &mut super::Samples) -> Result<(), String> {
    let mapping = file.map()?;
    mapping.store();
    samples.set(Raw::Touch, each(timed(|| mapping.store()), MANY_PAGES));
    let mut result = Ok(());
    samples.set(Raw::Fill, each(timed(|| result = fill(mapping.range)), MANY_PAGES));
    result.map_err(|errno| format!("memset: {errno}"))
}

/// A file of the kernel's own memory, with all its pages there.
struct FileInMemory {
    file: OwnedFd,
    len: Bytes,
}

impl FileInMemory {
    fn new(pages: i64) -> Result<Self, String> {
        let file = memfd_create(c"pagelab-probe", MFdFlags::MFD_CLOEXEC).map_err(failed("memfd_create"))?;
        let len = Bytes(pages.cast_unsigned() * Bytes::PAGE.0);
        ftruncate(&file, len.0.cast_signed()).map_err(failed("ftruncate"))?;
        let this = Self { file, len };
        this.map()?.store();
        Ok(this)
    }

    /// Maps all of it, shared and writable, by base pages.
    fn map(&self) -> Result<Mapping, String> {
        let len = usize::try_from(self.len.0).ok().and_then(NonZeroUsize::new).expect("a file of some pages");
        let writable = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { mmap(None, len, writable, MapFlags::MAP_SHARED, &self.file, 0) };
        let start = start.map_err(failed("mmap"))?;
        let range = VmRange { start: VirtAddr(start.as_ptr().expose_provenance() as u64), len: self.len };
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: the advice changes no contents. Kernels without huge pages refuse it, and need none.
        let _ = unsafe { madvise(start, len.get(), MmapAdvise::MADV_NOHUGEPAGE) };
        Ok(Mapping { range, start })
    }
}

/// A mapping of such a file.
struct Mapping {
    range: VmRange,
    start: NonNull<c_void>,
}

impl Mapping {
    fn len(&self) -> usize {
        usize::try_from(self.range.len.0).expect("a mapping fits the address space")
    }

    /// Stores into every page.
    fn store(&self) {
        store(self.range, Bytes::PAGE);
    }

    /// Loads from every page: they become present, and stay clean.
    fn load(&self) {
        load(self.range, Bytes::PAGE);
    }

    /// The mapping's pages are wanted once: then taking it away says nothing about its pages (`folio_mark_accessed`).
    fn is_passed_once(&self) -> Result<(), String> {
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: the advice changes no contents.
        unsafe { madvise(self.start, self.len(), MmapAdvise::MADV_SEQUENTIAL) }.map_err(failed("madvise"))
    }

    /// Empties its page-table entries; the pages stay in the file.
    fn forget(&self) -> Result<(), String> {
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: the pages of a shared mapping keep their contents in the file.
        unsafe { madvise(self.start, self.len(), MmapAdvise::MADV_DONTNEED) }.map_err(failed("madvise"))
    }

    /// Locks the first of its pages.
    fn lock(&self) -> Result<(), String> {
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: locking changes no contents, and the range is inside the mapping.
        unsafe { mlock(self.start, locked()) }.map_err(failed("mlock"))
    }

    fn unlock(&self) -> Result<(), String> {
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: as for locking.
        unsafe { munlock(self.start, locked()) }.map_err(failed("munlock"))
    }

    fn protect(&self, access: ProtFlags) -> Result<(), String> {
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: nobody refers to the mapping, and who stores into it makes it writable first.
        unsafe { mprotect(self.start, self.len(), access) }.map_err(failed("mprotect"))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: nobody refers to the mapping. What fails goes with the process.
        let _ = unsafe { munmap(self.start, self.len()) };
    }
}
