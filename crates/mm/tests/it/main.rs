//! The rules of the memory manager on small machines.
//!
//! `twin` and `pressure` are programs of their own: `cargo xtask soak` runs them alone.

mod address_space;
mod contention;
mod faults;
mod small_machine;
mod steps;
