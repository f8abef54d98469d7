//! The real thing: `Os` by system calls, `/proc` and `/sys` as data, and QEMU guests that run this same binary.
//!
//! | file | what |
//! |---|---|
//! | `host.rs`, `memory.rs`, `access.rs`, `numa.rs`, `file.rs`, `barrier.rs` | `Os` by system calls |
//! | `process.rs`, `fork.rs`, `moves.rs` | tasks as threads and as processes; where they have been |
//! | `worker.rs`, `guard.rs`, `journal.rs` | one process per cell; one that puts back what was changed; its notes on disk |
//! | `setting.rs`, `procfs/` | kernel settings by name; what /proc and /sys say |
//! | `sampler.rs` | what /proc and /sys count, for time series |
//! | `frame_map.rs` | what a kernel says of every frame at one moment |
//! | `probe.rs`, `probe/` | timing small parts of this kernel and machine, for calibration |
//! | `kernel_image.rs`, `module.rs`, `newc.rs`, `initramfs.rs` | what a guest is made of |
//! | `disk.rs`, `balloon.rs`, `tracing.rs` | a guest's file system and swap; its balloon; events that only tracefs counts |
//! | `footprint.rs` | the memory of a guest on this host, over time |
//! | `qemu.rs`, `monitor.rs`, `guest.rs` | booting a guest from outside, its balloon by hand, and being its init inside |
//!
//! `unsafe` lives in this crate only, each block with its `SAFETY:` line.

mod access;
pub mod balloon;
mod barrier;
pub mod disk;
pub mod file;
pub mod footprint;
mod fork;
pub mod frame_map;
pub mod guard;
pub mod guest;
pub mod host;
mod initramfs;
pub mod journal;
pub mod kernel_image;
pub mod kvm;
mod memory;
pub mod module;
pub mod monitor;
mod moves;
pub mod newc;
mod numa;
mod pin;
mod places;
pub mod probe;
pub mod process;
pub mod procfs;
pub mod qemu;
pub mod sampler;
pub mod setting;
mod stores;
pub mod tracing;
pub mod worker;
