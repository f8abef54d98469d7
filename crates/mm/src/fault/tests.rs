//! Faults under memory policies, and where memory has a limit.

mod bandwidth;
mod mempolicy;
