//! Loads from private memory that nobody has stored to: the kernel maps its one page of zeros, which is not counted, charged
//! or on any list. What is left is what every fault does: entering the kernel, finding the VMA, walking the tables, an entry
//! written under the lock of the last table.

use std::ptr::NonNull;

use nix::sys::mman::{MmapAdvise, madvise};
use os::{Advice, VmRange};
use units::{Bytes, VirtAddr};

use super::{Found, Raw, absent, each, failed, probe, timed};
use crate::memory::{advise, load, map_anonymous, store, unmap};

const GIVES: &[Raw] = &[Raw::ZeroFault, Raw::ZeroForget];
/// Tables of base pages, each of 2 MiB.
const TABLES: u64 = 4;
/// The pages of a table but for its last: that one stays, so that the table does. (From 6.14 on `MADV_DONTNEED` of all that
/// a table covers frees it.)
const PART: Bytes = Bytes(Bytes::HUGE_PAGE.0 - Bytes::PAGE.0);

pub(super) fn probes() -> Vec<Found> {
    vec![match Tables::new() {
        Ok(tables) => probe(GIVES, move |samples| {
            let (mut fault, mut forget) = (0, 0);
            for part in tables.parts() {
                fault += timed(|| load(part, Bytes::PAGE));
                let mut result = Ok(());
                forget += timed(|| result = forget_pages(part));
                result?;
            }
            let pages = (TABLES * PART.frames().0).cast_signed();
            samples.set(Raw::ZeroFault, each(fault, pages));
            samples.set(Raw::ZeroForget, each(forget, pages));
            Ok(())
        }),
        Err(why) => absent(GIVES, why),
    }]
}

/// Memory whose page tables are there.
struct Tables {
    mapping: VmRange,
    aligned: VmRange,
}

impl Tables {
    fn new() -> Result<Self, String> {
        let size = Bytes(Bytes::HUGE_PAGE.0 * TABLES);
        let mapping = map_anonymous(size + Bytes::HUGE_PAGE).map_err(|errno| format!("mmap: {errno}"))?;
        let this = Self { mapping, aligned: mapping.aligned_part(Bytes::HUGE_PAGE, size) };
        // Kernels without huge pages refuse the advice, and need none.
        let _ = advise(mapping, Advice::NoHugePage);
        for part in this.parts() {
            store(VmRange { start: VirtAddr(part.start.0 + part.len.0), len: Bytes::PAGE }, Bytes::PAGE);
        }
        Ok(this)
    }

    fn parts(&self) -> impl Iterator<Item = VmRange> + '_ {
        (0..TABLES)
            .map(|table| VmRange { start: VirtAddr(self.aligned.start.0 + table * Bytes::HUGE_PAGE.0), len: PART })
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        // What fails goes with the process.
        let _ = unmap(self.mapping);
    }
}

fn forget_pages(part: VmRange) -> Result<(), String> {
    let start =
        usize::try_from(part.start.0).ok().and_then(|start| NonNull::new(std::ptr::with_exposed_provenance_mut(start)));
    let len = usize::try_from(part.len.0).expect("a few pages");
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the pages hold nothing, and nobody refers to them.
    unsafe { madvise(start.expect("a mapping is not at 0"), len, MmapAdvise::MADV_DONTNEED) }
        .map_err(failed("madvise(MADV_DONTNEED)"))
}
