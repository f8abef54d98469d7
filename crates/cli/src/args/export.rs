//! Arguments of `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

/// Write a result in the files of another tool
///
/// mmtests: the logs that its own compare-kernels.sh and bin/compare-mmtests.pl read, with a directory for each column and an
/// iteration for each seed, so that a simulated kernel stands in one table with runs of a real machine: copy those runs into
/// DIR, or runs out of it into work/log. Where an experiment has several sets of tables, each has a directory of its own in DIR.
/// Logs have every sample with all digits; counters and times are of all cases together, as mmtests counts them. thpscale is
/// called thpchallenge there since 2026, and has its old name beside it.
///
/// The way back is every command that takes a result: `pagelab compare`, `show`, `claims --result` and `score` read runs of
/// mmtests, whatever wrote them, and pairs of captures of /proc/vmstat. docs/mmtests.md has all of it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab run thpscale --variant v5.0 --variant v5.1 --seeds 8 -o results/mine
  pagelab export results/mine --to mmtests exported
  cd exported && mmtests/bin/compare-mmtests.pl -d . -b thpchallenge -n v5.0-sim,v5.1-sim
  pagelab compare results/mine exported

What mmtests reads: thpscale (and thpcompact, thpfioscale and others that time blocks), autonumabench, warehouses with one JVM
(specjbb) and will-it-scale (wis-pf). What else a result has is named and left out; with nothing left it is refused.
Exit status: 0 written, 2 wrong input, or DIR has something in it: then nothing is written.")]
pub(crate) struct Export {
    /// A result directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) result: PathBuf,
    /// The tool whose files to write
    #[arg(long, value_enum, value_name = "TOOL")]
    pub(crate) to: Tool,
    /// The directory to make; it may be there if it is empty
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// A tool whose files can be written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Tool {
    /// gormanm/mmtests: its work/log
    Mmtests,
}
