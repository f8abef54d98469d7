//! From what is timed to prices: sums and differences within one round, so that a slow round is slow in all its parts.

use linux::probe::{FEW_PAGES, MANY_PAGES, Raw, SOME_PAGES, Samples};

/// How a price comes from samples.
pub(super) struct Recipe {
    /// The name of the operation, for `[prices]`; one that the simulator does not know goes to `[measured]`.
    pub(super) name: &'static str,
    /// The measurement in words.
    pub(super) how: &'static str,
    /// All that it needs.
    pub(super) needs: &'static [Raw],
    /// Picoseconds, when all that it needs is there.
    pub(super) of: fn(&dyn Fn(Raw) -> i64) -> i64,
}

impl Recipe {
    /// The value of a round.
    pub(super) fn value(&self, samples: &Samples) -> Option<i64> {
        let has_all = self.needs.iter().all(|raw| samples.get(*raw).is_some());
        let get = |raw| {
            assert!(self.needs.contains(&raw), "{} uses what it does not name", self.name);
            samples.get(raw).expect("looked at before")
        };
        has_all.then(|| (self.of)(&get))
    }
}

const TAILS_OF_HUGE: i64 = 511;

/// Cost of a packet in a pipe beyond a byte, without the page: half of it when it is written, half when it is read.
fn half_packet(get: &dyn Fn(Raw) -> i64) -> i64 {
    (get(Raw::PacketPair) - get(Raw::ByteWrite) - get(Raw::ByteRead)) / 2
}

fn alloc(get: &dyn Fn(Raw) -> i64) -> i64 {
    get(Raw::PacketWrite) - get(Raw::ByteWrite) - half_packet(get)
}

fn free(get: &dyn Fn(Raw) -> i64) -> i64 {
    get(Raw::PacketRead) - get(Raw::ByteRead) - half_packet(get)
}

/// Changing one present entry on a walk.
fn protect_one(get: &dyn Fn(Raw) -> i64) -> i64 {
    (get(Raw::ProtectMany) - get(Raw::ProtectFew)) / (MANY_PAGES - FEW_PAGES)
}

fn scan_one(get: &dyn Fn(Raw) -> i64) -> i64 {
    (get(Raw::ScanMany) - get(Raw::ScanFew)) / (MANY_PAGES - FEW_PAGES)
}

/// Cost of changing an entry alone.
fn change_one(get: &dyn Fn(Raw) -> i64) -> i64 {
    protect_one(get) - scan_one(get)
}

/// Taking away a mapping of a page that stays.
fn unmap_one(get: &dyn Fn(Raw) -> i64) -> i64 {
    (get(Raw::UnmapPresent) - get(Raw::UnmapAbsent)) / MANY_PAGES
}

/// Taking a page that is not charged, and giving it back.
fn bare_pair(get: &dyn Fn(Raw) -> i64) -> i64 {
    get(Raw::EnvironRead) - get(Raw::CmdlineRead)
}

/// Off one LRU list, on another: half of that. The walk, the batch and its reference, and taking the batch's pages in hand are
/// no part of it: they are done for pages that stay where they are too.
fn lru_move(get: &dyn Fn(Raw) -> i64) -> i64 {
    (get(Raw::Unlock) - get(Raw::UnlockShared)) / 2
}

/// A page that comes into a file in memory: LRU, counters, the file's tree.
fn new_folio(get: &dyn Fn(Raw) -> i64) -> i64 {
    get(Raw::Fallocate) - alloc(get)
}

/// A page that leaves a file in memory: LRU, counters, the file's tree.
fn drop_folio(get: &dyn Fn(Raw) -> i64) -> i64 {
    get(Raw::Truncate) - bare_pair(get) / 2
}

/// All prices, in the order of the table.
pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        name: "user_touch",
        how: "a store per base page of 16 MiB of a mapped file, present, in address order",
        needs: &[Raw::Touch],
        of: |get| get(Raw::Touch),
    },
    Recipe {
        name: "user_fill",
        how: "the same pages filled (memset), per page",
        needs: &[Raw::Fill],
        of: |get| get(Raw::Fill),
    },
    Recipe {
        name: "trap",
        how: "a fault that maps the zero page in a table that is there, minus pte_write: entry, VMA, walk, lock of the table",
        needs: &[Raw::ZeroFault, Raw::ProtectMany, Raw::ProtectFew, Raw::ScanMany, Raw::ScanFew],
        of: |get| get(Raw::ZeroFault) - change_one(get),
    },
    Recipe { name: "system_call", how: "getuid", needs: &[Raw::SystemCall], of: |get| get(Raw::SystemCall) },
    Recipe {
        name: "vma_update",
        how: "half of mmap and munmap of 2 MiB that nobody touches, minus a system call",
        needs: &[Raw::MapUnmap, Raw::SystemCall],
        of: |get| get(Raw::MapUnmap) / 2 - get(Raw::SystemCall),
    },
    Recipe {
        name: "pte_write",
        how: "mprotect to read-only of 4096 and of 40 present pages of a file in memory: per page, minus pte_scan",
        needs: &[Raw::ProtectMany, Raw::ProtectFew, Raw::ScanMany, Raw::ScanFew],
        of: change_one,
    },
    Recipe {
        name: "pte_clear",
        how: "MADV_DONTNEED of 511 pages that map the zero page, which nobody counts: per page, minus pte_scan",
        needs: &[Raw::ZeroForget, Raw::ScanMany, Raw::ScanFew],
        of: |get| get(Raw::ZeroForget) - scan_one(get),
    },
    Recipe {
        name: "pte_scan",
        how: "mincore of 4096 and of 40 present pages of a file in memory: per page",
        needs: &[Raw::ScanMany, Raw::ScanFew],
        of: scan_one,
    },
    Recipe {
        name: "pte_store",
        how: "in user space: a word stored to a page of 4 KiB that was just cleared, one after the other",
        needs: &[Raw::PteStore],
        of: |get| get(Raw::PteStore),
    },
    Recipe {
        name: "rmap",
        how: "unmap, minus taking away a mapping of the zero page, which nobody counts",
        needs: &[Raw::UnmapPresent, Raw::UnmapAbsent, Raw::ZeroForget],
        of: |get| unmap_one(get) - get(Raw::ZeroForget),
    },
    Recipe {
        name: "tlb_flush",
        how: "mprotect to read-only of 40 present pages: what is left of it without the pages (80 pages tell), minus a \
              call that finds no page",
        needs: &[Raw::ProtectFew, Raw::ProtectTwice, Raw::ProtectEmpty],
        of: |get| 2 * get(Raw::ProtectFew) - get(Raw::ProtectTwice) - get(Raw::ProtectEmpty),
    },
    Recipe {
        name: "tlb_flush_page",
        how: "mprotect to read-only of 32 and of 16 present pages, which are flushed one by one: per page, minus what a page \
              costs where all are flushed at once",
        needs: &[Raw::ProtectSome, Raw::ProtectHalf, Raw::ProtectMany, Raw::ProtectFew],
        of: |get| (get(Raw::ProtectSome) - get(Raw::ProtectHalf)) / (SOME_PAGES / 2) - protect_one(get),
    },
    Recipe {
        name: "clear_frame",
        how: "clearing 4 KiB blocks of memory in no cache, each below the last, as process_huge_page() clears",
        needs: &[Raw::ClearDown],
        of: |get| get(Raw::ClearDown),
    },
    Recipe {
        name: "clear_frame_up",
        how: "the same, each block above the last",
        needs: &[Raw::ClearUp],
        of: |get| get(Raw::ClearUp),
    },
    Recipe {
        name: "clear_frame_hot",
        how: "clearing 4 KiB blocks in the L2 cache",
        needs: &[Raw::ClearHot],
        of: |get| get(Raw::ClearHot),
    },
    Recipe {
        name: "copy_frame",
        how: "copying 4 KiB blocks from and to memory in no cache, each below the last",
        needs: &[Raw::CopyDown],
        of: |get| get(Raw::CopyDown),
    },
    Recipe {
        name: "alloc_fast",
        how: "the page that a packet written to a pipe takes, charged to the cgroup: bursts of 15 against single bytes and \
              against a pipe that keeps its page",
        needs: &[Raw::PacketPair, Raw::PacketWrite, Raw::ByteWrite, Raw::ByteRead],
        of: alloc,
    },
    Recipe {
        name: "free_fast",
        how: "half of a page taken and given back, not charged: reads behind the end of /proc/self/environ, which take one, \
              minus those of cmdline, which take none",
        needs: &[Raw::EnvironRead, Raw::CmdlineRead],
        of: |get| bare_pair(get) / 2,
    },
    Recipe {
        name: "uncharge",
        how: "the page of alloc_fast given back when the packet is read, minus free_fast",
        needs: &[Raw::PacketPair, Raw::PacketRead, Raw::ByteWrite, Raw::ByteRead, Raw::EnvironRead, Raw::CmdlineRead],
        of: |get| free(get) - bare_pair(get) / 2,
    },
    Recipe {
        name: "list_move",
        how: "in user space: a 64-byte node of a list of 256 KiB, in address order, from its head to another list",
        needs: &[Raw::ListMove],
        of: |get| get(Raw::ListMove),
    },
    Recipe {
        name: "tail_frame",
        how: "in user space: changing 64-byte nodes in address order, in memory in no cache",
        needs: &[Raw::TailFrame],
        of: |get| get(Raw::TailFrame),
    },
    Recipe {
        name: "tail_free",
        how: "a block of 2 MiB of a packet socket's ring freed, minus a single frame of one: per tail frame",
        needs: &[Raw::FreeHuge, Raw::FreeSingle],
        of: |get| (get(Raw::FreeHuge) - get(Raw::FreeSingle)) / TAILS_OF_HUGE,
    },
    Recipe {
        name: "list_move_cold",
        how: "the same of a list of 8 MiB in no order",
        needs: &[Raw::ListMoveShuffled],
        of: |get| get(Raw::ListMoveShuffled),
    },
    Recipe {
        name: "lock_pair",
        how: "in user space: compare-and-exchange and a store, interrupts left alone",
        needs: &[Raw::LockPair],
        of: |get| get(Raw::LockPair),
    },
    Recipe {
        name: "lru_move",
        how: "half of munlock of 512 present pages of a file in memory, which takes them off one list and puts them on another, \
              minus the same while another mapping still locks them: per page",
        needs: &[Raw::Unlock, Raw::UnlockShared],
        of: lru_move,
    },
    Recipe {
        name: "unmap",
        how: "munmap of 4096 present clean pages of a file in memory, minus the same without pages: per page, nothing freed",
        needs: &[Raw::UnmapPresent, Raw::UnmapAbsent],
        of: unmap_one,
    },
    Recipe {
        name: "new_folio",
        how: "fallocate of a file in memory, per page, minus alloc_fast: LRU, counters, the file's tree",
        needs: &[Raw::Fallocate, Raw::PacketPair, Raw::PacketWrite, Raw::ByteWrite, Raw::ByteRead],
        of: new_folio,
    },
    Recipe {
        name: "drop_folio",
        how: "ftruncate of the same, per page, minus free_fast: the same counted off",
        needs: &[Raw::Truncate, Raw::EnvironRead, Raw::CmdlineRead],
        of: drop_folio,
    },
    Recipe {
        name: "file_page",
        how: "half of new_folio and drop_folio, minus lru_move",
        needs: &[
            Raw::Fallocate,
            Raw::PacketPair,
            Raw::PacketWrite,
            Raw::ByteWrite,
            Raw::ByteRead,
            Raw::Truncate,
            Raw::EnvironRead,
            Raw::CmdlineRead,
            Raw::Unlock,
            Raw::UnlockShared,
        ],
        of: |get| i64::midpoint(new_folio(get), drop_folio(get)) - lru_move(get),
    },
    Recipe {
        name: "ipi",
        how: "membarrier that interrupts another CPU and waits for it, minus the same alone",
        needs: &[Raw::MembarrierPaired, Raw::MembarrierAlone],
        of: |get| get(Raw::MembarrierPaired) - get(Raw::MembarrierAlone),
    },
    Recipe {
        name: "ipi_receive",
        how: "what such an interrupt takes from a thread that counts on the other CPU",
        needs: &[Raw::Interrupted],
        of: |get| get(Raw::Interrupted),
    },
    Recipe {
        name: "context_switch",
        how: "sched_yield between two threads of a process on one CPU, minus a system call",
        needs: &[Raw::Switch, Raw::SystemCall],
        of: |get| get(Raw::Switch) - get(Raw::SystemCall),
    },
    Recipe {
        name: "line_transfer",
        how: "half a round trip of a word between two CPUs",
        needs: &[Raw::LineTransfer],
        of: |get| get(Raw::LineTransfer),
    },
    Recipe {
        name: "wake_up",
        how: "from futex wake to the first instruction of a thread on another CPU that was idle, or busy with others",
        needs: &[Raw::WakeUp],
        of: |get| get(Raw::WakeUp),
    },
];
