//! Linux: kernel/sched/fair.c, mm/mempolicy.c and mm/mprotect.c (v3.9 to v6.1).
//! Differs: `sim` decides where a task runs; it is told which node the task prefers.
//!
//! Floor 5: automatic NUMA balancing, from the scan that makes entries hint to the node that a task prefers. Files here use
//! floors 0 to 4. Begin with `numa_balancing.rs`.

pub mod numa_balancing;
pub mod numa_hint;
