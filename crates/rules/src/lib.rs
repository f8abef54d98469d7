//! Linux: include/linux/gfp.h, include/linux/mempolicy.h, and the history of mm/ (v3.9 to v6.18).
//! Differs: a rule of a release is a value, so that one program holds all releases.
//!
//! | Linux | here | left out |
//! |-------|------|----------|
//! | `include/linux/mmzone.h` | `zone.rs` | HighMem (64-bit only) |
//! | arch/x86/kernel/e820.c, ACPI | `machine.rs` | ranges |
//! | `include/linux/gfp.h` | `gfp.rs` | `__GFP_FS`, `__GFP_IO`, `__GFP_NOFAIL`, `__GFP_MEMALLOC` |
//! | `mm/mempolicy.c` | `mempolicy.rs` | policies of VMAs, weights |
//! | (several) | `variant.rs`, `variant/` | 32-bit rules, configurations without SMP |
//!
//! Everything that is settled before a machine runs: requests, policies, settings, the description of a machine, releases and
//! their rules. This crate uses `units` alone. Begin with `variant.rs`, the table of rules.

pub mod gfp;
pub mod machine;
pub mod mempolicy;
pub mod variant;
pub mod zone;
