//! What `pagelab list` takes.

use clap::{Args, ValueEnum};

/// List what there is, a name and a line for each
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab list experiments
  pagelab list experiments --all
  pagelab list rules
  pagelab list settings")]
pub(crate) struct List {
    /// What to list
    #[arg(value_enum)]
    pub(crate) what: Listed,
    /// Also experiments that serve one measurement only
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Listed {
    /// Kernels as data: each its parent plus what differs
    Variants,
    /// Rules that variants differ in, by mechanism: what each does, its kernel function, its values, since which release
    Rules,
    /// Machine files
    Machines,
    /// Benchmarks, with their parameters
    Workloads,
    /// Runnable specs
    Experiments,
    /// Counters of the simulator and of this machine's /proc/vmstat: names for --metrics and --fail-on
    Counters,
    /// Kernel settings that --set and machine files know
    #[value(alias = "knobs")]
    Settings,
    /// Kernel images in the cache
    Kernels,
}
