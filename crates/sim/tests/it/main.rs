//! The simulated machine, driven by small programs.

mod access;
mod branch;
mod causes;
mod extfrag;
mod fork;
mod mmap_lock;
mod nothing;
mod numa_balancing;
mod over_time;
mod pins;
mod quantum;
mod run_hash;
mod scheduler;
mod seeds;
mod shootdowns;
mod state;
mod support;
mod why;
mod why_causes;
