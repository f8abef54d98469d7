//! Clearing and copying 4 KiB at a time, as the kernel does it: by string instructions where it finds them fast, else by a
//! loop over words.
//!
//! The order of the blocks matters as much as the caches: on some CPUs a block above the last one costs less than half of
//! one below, because stores to it were prefetched. Kernels from 4.14 on (by memory) clear a huge page from its far end
//! towards the address that faulted (`process_huge_page`, mm/memory.c); that base pages come downwards too is an
//! assumption, as per-CPU lists hand out first what was freed last.

use os::{Advice, VmRange};
use units::Bytes;

use super::{Found, Raw, absent, each, probe, timed};
use crate::memory::{advise, map_anonymous, store, unmap};

const PAGE: usize = 4096;
/// Words of a turn of a loop: a cache line.
const WORDS: usize = 8;
/// Blocks per sample.
const BLOCKS: usize = 2048;
const TIMES: i64 = 2048;
/// Fits into any L2 cache of the last ten years.
const HOT: usize = 128 << 10;
const CLEARS: &[Raw] = &[Raw::ClearUp, Raw::ClearDown, Raw::ClearHot, Raw::CopyDown];

pub(super) fn probes(size: Bytes) -> Vec<Found> {
    let buffer = match Buffer::new(size) {
        Ok(buffer) => buffer,
        Err(why) => return vec![absent(CLEARS, why)],
    };
    let mut next = 0;
    vec![probe(CLEARS, move |samples| {
        // Each sample goes on where the last one ended, so that a block comes back only after the whole buffer.
        let blocks = buffer.len() / PAGE;
        let first = next;
        next = (first + BLOCKS) % blocks;
        let up = |block: usize| (first + block) % blocks * PAGE;
        let down = |block: usize| (2 * blocks - 1 - first - block) % blocks * PAGE;
        // Elsewhere, so that what was cleared a moment ago is neither read nor written.
        let quarters = |at: usize, quarters: usize| (at + blocks / 4 * quarters * PAGE) % (blocks * PAGE);
        let copy = |n: usize| buffer.copy(quarters(down(n), 1), quarters(down(n), 3));
        samples.set(Raw::ClearUp, each(timed(|| (0..BLOCKS).for_each(|n| buffer.clear(up(n)))), TIMES));
        samples.set(Raw::ClearDown, each(timed(|| (0..BLOCKS).for_each(|n| buffer.clear(down(n)))), TIMES));
        samples.set(Raw::CopyDown, each(timed(|| (0..BLOCKS).for_each(copy)), TIMES));
        let hot = |n: usize| n * PAGE % HOT;
        (0..HOT / PAGE).for_each(|n| buffer.clear(hot(n)));
        samples.set(Raw::ClearHot, each(timed(|| (0..BLOCKS).for_each(|n| buffer.clear(hot(n)))), TIMES));
        Ok(())
    })]
}

/// Memory of huge pages, so that misses of the TLB count as little as they do in the kernel's own map of memory.
struct Buffer {
    mapping: VmRange,
    aligned: VmRange,
    fast_strings: bool,
}

impl Buffer {
    fn new(size: Bytes) -> Result<Self, String> {
        let size = Bytes(size.0 / Bytes::HUGE_PAGE.0 * Bytes::HUGE_PAGE.0);
        if size.0 <= 8 * Bytes::HUGE_PAGE.0 {
            return Err("less than 16 MiB of memory may be used".to_owned());
        }
        let mapping =
            map_anonymous(size + Bytes::HUGE_PAGE).map_err(|errno| format!("mapping {size} failed: {errno}"))?;
        let aligned = mapping.aligned_part(Bytes::HUGE_PAGE, size);
        // Without huge pages in this kernel it goes on with base pages.
        let _ = advise(aligned, Advice::HugePage);
        store(aligned, Bytes::PAGE);
        Ok(Self { mapping, aligned, fast_strings: fast_strings() })
    }

    fn len(&self) -> usize {
        usize::try_from(self.aligned.len.0).expect("a mapping fits the address space")
    }

    /// A block's words.
    fn at(&self, offset: usize) -> *mut u64 {
        assert!(offset + PAGE <= self.len());
        let start = usize::try_from(self.aligned.start.0).expect("addresses fit a pointer");
        std::ptr::with_exposed_provenance_mut(start + offset)
    }

    #[inline]
    fn clear(&self, offset: usize) {
        let to = self.at(offset);
        #[cfg(target_arch = "x86_64")]
        if self.fast_strings {
            #[expect(unsafe_code, reason = "the instruction that the kernel clears with")]
            // SAFETY: PAGE bytes from `to` on are in the buffer, to which no reference exists.
            unsafe {
                std::arch::asm!("rep stosb", inout("rdi") to => _, inout("rcx") PAGE => _, in("al") 0_u8,
                                options(nostack, preserves_flags));
            }
            return;
        }
        for line in (0..PAGE / size_of::<u64>()).step_by(WORDS) {
            #[expect(unsafe_code, reason = "clearing memory of ours")]
            // SAFETY: as above. Volatile, so that it stays a loop over words (`clear_page_orig`).
            (line..line + WORDS).for_each(|word| unsafe { to.add(word).write_volatile(0) });
        }
    }

    #[inline]
    fn copy(&self, from: usize, to: usize) {
        assert_ne!(from, to, "blocks are copied to other blocks");
        let (from, to) = (self.at(from), self.at(to));
        #[cfg(target_arch = "x86_64")]
        if self.fast_strings {
            #[expect(unsafe_code, reason = "the instruction that the kernel copies with")]
            // SAFETY: both blocks of PAGE bytes are in the buffer, and they are two.
            unsafe {
                std::arch::asm!("rep movsb", inout("rdi") to => _, inout("rsi") from => _, inout("rcx") PAGE => _,
                                options(nostack, preserves_flags));
            }
            return;
        }
        for line in (0..PAGE / size_of::<u64>()).step_by(WORDS) {
            let copy = |word: usize| {
                #[expect(unsafe_code, reason = "copying memory of ours")]
                // SAFETY: as above. Word by word (`copy_page_regs`).
                unsafe {
                    to.add(word).write_volatile(from.add(word).read_volatile());
                }
            };
            (line..line + WORDS).for_each(copy);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // It goes with the process otherwise.
        let _ = unmap(self.mapping);
    }
}

/// Enhanced `rep movsb` and `rep stosb`, with which the kernel then clears and copies (`clear_page_erms`). What it says counts,
/// not what the CPU says: it may have been told not to use them.
fn fast_strings() -> bool {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    flags.is_some_and(|(_, flags)| flags.split_whitespace().any(|flag| flag == "erms"))
}
