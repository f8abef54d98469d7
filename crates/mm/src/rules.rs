//! Linux: include/linux/gfp.h, include/linux/mempolicy.h, and the history of mm/ (v3.9 to v6.18).
//! Differs: a rule of a release is a value, so that one program holds all releases.
//!
//! Floor 0: what is settled before a machine runs. Requests, policies, settings, the description of a machine, releases and
//! their rules live here. Files here use nothing else of this crate. Begin with `variant.rs`, the table of rules.

pub mod gfp;
pub mod machine;
pub mod mempolicy;
pub mod variant;
pub mod zone;
