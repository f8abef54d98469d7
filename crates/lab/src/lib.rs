//! An experiment is workload × variant × machine × state × target × seed. This crate knows every other one.

pub mod arithmetic;
pub mod calibrate;
pub mod cell;
pub mod evidence;
pub mod experiment;
pub mod fidelity;
mod footprint;
pub mod import;
pub mod interrupt;
pub mod layout;
pub mod machine;
mod metrics;
mod over_time;
pub mod plan;
pub mod prices;
pub mod provenance;
pub mod published;
pub mod run;
pub mod sampler;
mod seed;
pub mod show;
pub mod simulated;
pub mod source;
pub mod state;
pub mod trust;
pub mod variant;
pub mod workload;
