//! A benchmark of page allocators: frames that are allocated, freed at random and replaced.

use serde::{Deserialize, Serialize};

use crate::Order;

/// A page allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageAllocator {
    /// Linux's: free lists by order and type, and lists of each CPU.
    #[default]
    Linux,
    /// LLFree: a bit for each frame, and counters.
    Llfree,
}

impl PageAllocator {
    /// Every allocator.
    pub const ALL: [Self; 2] = [Self::Linux, Self::Llfree];

    /// The allocator's name in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Llfree => "llfree",
        }
    }
}

/// The work of a kernel module that fills all memory, frees blocks that are drawn, and then replaces blocks in rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameChurn {
    /// The allocator that the module uses.
    pub allocator: PageAllocator,
    /// The order of all blocks.
    pub order: Order,
    /// Per cent of the blocks that stay allocated after memory was filled.
    pub kept: u32,
    /// Rounds.
    pub rounds: u32,
    /// Per cent of the allocated blocks that are replaced in each round.
    pub replaced: u32,
    /// Blocks that are freed before as many are taken for them.
    pub at_once: u32,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// CPUs that take turns.
    pub cpus: u32,
}

/// The findings of such a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameChurned {
    /// Blocks that filled memory.
    pub filled: u64,
    /// Blocks that were kept of them.
    pub kept: u64,
    /// Free blocks of 2 MiB with memory full.
    pub free_huge_full: u64,
    /// Free blocks of 2 MiB after blocks were freed, then after each round.
    pub free_huge: Vec<u64>,
}
