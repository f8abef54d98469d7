//! Arguments of `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use lab::plan::Seeds;

/// Write a result in the files of another tool
///
/// mmtests: the logs that its own compare-kernels.sh and bin/compare-mmtests.pl read, with a directory for each column and an
/// iteration for each seed, so that a simulated kernel stands in one table with runs of a real machine: copy those runs into
/// DIR, or runs out of it into work/log. Where an experiment has several sets of tables, each has a directory of its own in DIR.
/// Logs have every sample with all digits; counters and times are of all cases together, as mmtests counts them. thpscale is
/// called thpchallenge there since 2026, and has its old name beside it.
///
/// perfetto: one trace of all runs, in virtual time from the start of each, for https://ui.perfetto.dev (which reads it in the
/// browser and sends nothing). A process for each kernel of a run; in it a thread for each task with its operations off the
/// allocator's fast path and within each where its time went, and the columns of --sample TIME that moved as counters. With
/// --again simulated cells run again, observed: then the parts of an operation stand in their order, with what was decided for
/// it, each CPU has a track with the tasks it ran, and an arrow leads from each waker to the task it woke. docs/report.md says
/// what may be read from it, and has three queries.
///
/// The way back from mmtests is every command that takes a result: `pagelab compare`, `show`, `claims --result` and `score` read
/// runs of mmtests, whatever wrote them, and pairs of captures of /proc/vmstat. docs/mmtests.md has all of it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab run thpscale --variant v5.0 --variant v5.1 --seeds 8 -o results/mine
  pagelab export results/mine --to mmtests exported
  cd exported && mmtests/bin/compare-mmtests.pl -d . -b thpchallenge -n v5.0-sim,v5.1-sim
  pagelab compare results/mine exported
  pagelab export results/mine --to perfetto mine.pftrace
  pagelab export results/mine --to perfetto --again --seeds 1-1 first.pftrace

What mmtests reads: thpscale (and thpcompact, thpfioscale and others that time blocks), autonumabench, warehouses with one JVM
(specjbb) and will-it-scale (wis-pf). What else a result has is named and left out; with nothing left it is refused.
Exit status: 0 written, 2 wrong input, DIR has something in it or FILE exists: then nothing is written.")]
pub(crate) struct Export {
    /// A result directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) result: PathBuf,
    /// The tool whose files to write
    #[arg(long, value_enum, value_name = "TOOL")]
    pub(crate) to: Tool,
    /// Only what was run with seeds 1 to N, or with those from A to B
    #[arg(long, value_name = "N|A-B")]
    pub(crate) seeds: Option<Seeds>,
    /// perfetto: run simulated cells again, for the order of an operation's parts, turns of CPUs and wake-ups
    #[arg(long)]
    pub(crate) again: bool,
    /// mmtests: the directory to make, which may be there if it is empty. perfetto: the file to make, which must not be there
    #[arg(value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) output: PathBuf,
}

/// A tool whose files can be written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Tool {
    /// gormanm/mmtests: its work/log
    Mmtests,
    /// Perfetto: a trace
    Perfetto,
}
