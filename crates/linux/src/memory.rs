//! Mapping, advising, touching and asking about memory of this process.

use std::{fs::File, num::NonZeroUsize, os::raw::c_void, ptr::NonNull};

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use os::{Advice, VmRange};
use units::{Bytes, Errno, VirtAddr};

use crate::host::errno;

fn length(len: Bytes) -> Result<usize, Errno> {
    usize::try_from(len.0).ok().filter(|len| *len > 0).ok_or(Errno::INVAL)
}

pub(crate) fn pointer(range: VmRange) -> Result<NonNull<c_void>, Errno> {
    let address = usize::try_from(range.start.0).map_err(|_| Errno::INVAL)?;
    NonNull::new(std::ptr::with_exposed_provenance_mut(address)).ok_or(Errno::INVAL)
}

pub(crate) fn map_anonymous(len: Bytes) -> Result<VmRange, Errno> {
    let bytes = NonZeroUsize::new(length(len)?).ok_or(Errno::INVAL)?;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches no existing memory.
    let start = unsafe { mmap_anonymous(None, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags) };
    let start = start.map_err(errno)?.as_ptr().expose_provenance();
    Ok(VmRange { start: VirtAddr(start as u64), len })
}

/// How a file is mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileMapping {
    Private,
    Shared,
    SharedRead,
}

pub(crate) fn map_file(file: &File, offset: Bytes, len: Bytes, how: FileMapping) -> Result<VmRange, Errno> {
    let bytes = NonZeroUsize::new(length(len)?).ok_or(Errno::INVAL)?;
    let offset = offset.0.try_into().map_err(|_| Errno::INVAL)?;
    let writable = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let (access, flags) = match how {
        FileMapping::Private => (writable, MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE),
        FileMapping::Shared => (writable, MapFlags::MAP_SHARED),
        FileMapping::SharedRead => (ProtFlags::PROT_READ, MapFlags::MAP_SHARED),
    };
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory, and no reference into it is
    // ever made.
    let start = unsafe { mmap(None, bytes, access, flags, file, offset) };
    let start = start.map_err(errno)?.as_ptr().expose_provenance();
    Ok(VmRange { start: VirtAddr(start as u64), len })
}

pub(crate) fn unmap(range: VmRange) -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: ranges come from `map_anonymous` or `map_file`, hold only workload bytes, and no reference into them exists.
    unsafe { munmap(pointer(range)?, length(range.len)?) }.map_err(errno)
}

pub(crate) fn advise(range: VmRange, advice: Advice) -> Result<(), Errno> {
    let advice = match advice {
        Advice::HugePage => MmapAdvise::MADV_HUGEPAGE,
        Advice::NoHugePage => MmapAdvise::MADV_NOHUGEPAGE,
        Advice::DontNeed => MmapAdvise::MADV_DONTNEED,
    };
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: at most the contents of the range change, which holds only workload bytes, and no reference into it exists.
    unsafe { madvise(pointer(range)?, length(range.len)?, advice) }.map_err(errno)
}

/// Stores one byte at the start of every `stride` bytes. The stores are volatile: they are the measurement.
pub(crate) fn store(range: VmRange, stride: Bytes) {
    let start = first_byte(range);
    for offset in offsets(range, stride) {
        #[expect(unsafe_code, reason = "touching memory is what the workload asks for")]
        // SAFETY: the offset is inside the range, which is mapped writable and which nobody else refers to.
        unsafe {
            start.add(offset).write_volatile(1);
        }
    }
}

/// Loads one byte at the start of every `stride` bytes. The loads are volatile, as the stores are.
pub(crate) fn load(range: VmRange, stride: Bytes) {
    let start = first_byte(range);
    for offset in offsets(range, stride) {
        #[expect(unsafe_code, reason = "touching memory is what the workload asks for")]
        // SAFETY: the offset is inside the range, which is mapped readable.
        unsafe {
            start.add(offset).read_volatile();
        }
    }
}

/// Writes every byte.
pub(crate) fn fill(range: VmRange) -> Result<(), Errno> {
    let len = length(range.len)?;
    #[expect(unsafe_code, reason = "touching memory is what the workload asks for")]
    // SAFETY: the range is mapped writable, and nobody else refers to it. The C library's own call, which no compiler sees
    // through: nothing reads what is written.
    unsafe {
        libc::memset(first_byte(range).cast(), 2, len);
    }
    Ok(())
}

pub(crate) fn first_byte(range: VmRange) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(usize::try_from(range.start.0).expect("addresses fit a pointer"))
}

fn offsets(range: VmRange, stride: Bytes) -> impl Iterator<Item = usize> {
    let (len, stride) = (usize::try_from(range.len.0).unwrap(), usize::try_from(stride.0).unwrap());
    (0..len).step_by(stride)
}

pub(crate) fn resident(range: VmRange) -> Result<Vec<bool>, Errno> {
    let len = length(range.len)?;
    let mut pages = vec![0_u8; usize::try_from(range.pages(Bytes::PAGE)).map_err(|_| Errno::INVAL)?];
    #[expect(unsafe_code, reason = "nix does not wrap mincore")]
    // SAFETY: the kernel writes one byte per page of the range into `pages`, which has exactly that many.
    let status = unsafe { libc::mincore(pointer(range)?.as_ptr(), len, pages.as_mut_ptr()) };
    nix::errno::Errno::result(status).map_err(errno)?;
    Ok(pages.into_iter().map(|page| page & 1 == 1).collect())
}
