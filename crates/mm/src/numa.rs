//! Linux: kernel/sched/fair.c, mm/mempolicy.c and mm/mprotect.c (v3.9 to v6.1).
//! Differs: where a task runs is decided by `sim`, which is told what it prefers.
//!
//! Floor 5: automatic NUMA balancing, from the scan that takes entries away to the node that a task prefers. Files here use
//! floors 0 to 4. Begin with `numa_balancing.rs`.

pub mod numa_balancing;
pub mod numa_hint;
