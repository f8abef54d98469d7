//! Linux: include/linux/gfp.h, include/linux/mempolicy.h, and the history of mm/ (v3.9 to v6.18).
//! Differs: a rule of a release is a value, so that one program holds all releases.
//!
//! What is settled before a machine runs: requests, policies, settings, the description of a machine, releases and their rules.
//! Begin with `variant.rs`, the table of rules.

pub mod gfp;
pub mod machine;
pub mod mempolicy;
pub mod variant;
pub mod zone;
