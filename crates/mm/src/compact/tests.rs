//! Compaction: a laboratory of fragmented zones, held to the rules of releases from 4.1 on.

mod background;
mod contended;
mod deferral;
mod direct;
mod failures;
mod fixed;
mod gate;
mod lab;
mod moves;
pub(crate) mod random;
mod series;
