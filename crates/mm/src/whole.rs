//! Linux: kernel/kthread.c, mm/vmstat.c and /proc/kpageflags (v6.1).
//! Differs: walks over all of memory check invariants that no kernel checks.
//!
//! Floor 7: code that looks at the memory manager as a whole: the table of kernel threads, checks of every frame, states
//! that are saved and loaded, maps of blocks, and the figures of /proc/vmstat. Files here use everything. Begin with
//! `daemon.rs`.

pub(crate) mod block_map;
pub mod check;
pub mod daemon;
pub mod state;
pub mod vmstat;
