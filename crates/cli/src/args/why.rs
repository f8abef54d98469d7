//! Arguments of `why`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use lab::{
    show::At,
    why::{Which, WhyWanted},
};

/// Say why operations of a simulated run were slow: for each of the slowest, at most ten lines of facts with their instants
///
/// A result says which operations of a run left the allocator's fast path or slept, and where their time went. This runs their
/// cells again from the seed, and records what was decided for these operations: which zone refused the request against which
/// mark, with the free blocks of that instant; what kswapd was asked; whether compaction was deferred, skipped or ran, and how
/// it ended; reclaim; waits, and behind whom; what came of it. The run hash must come out as it was, and the program must be the
/// one that made the result.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("which").required(true).args(["slowest", "stall", "at"]),
    after_help = "\
Examples:
  pagelab run thpscale --machine two-node-2g --variant v4.1-rc2 -o results/mine
  pagelab show results/mine --stalls 10
  pagelab why results/mine --slowest 10 --what fault
  pagelab why results/mine --stall 17 --kernel v4.1-rc2
  pagelab why results/mine --at 12.3s --task 4

Two lines name the operation: its place, kind, task and instant, its cell, page and order, and its time by cause. Each
sentence below is about one kind of fact, from the instant of the first one on; what finds no room is in --format json, fact
by fact. Operations of kernel threads are left out. A cell takes as long as it took; several operations of a cell are
found in one run of it.

Exit status: 0 printed, 1 a cell did not come out as it was, 2 wrong input: no result of the simulator, a result of another
program, or fewer operations than asked for, 130 interrupted."
)]
pub(crate) struct Why {
    /// A result directory with simulated cells
    #[arg(value_hint = ValueHint::DirPath)]
    result: PathBuf,
    /// The N slowest operations of all cells that are asked about
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    slowest: Option<u16>,
    /// The N-th slowest alone
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    stall: Option<u16>,
    /// The slowest operation that was under way at this instant: 12.3s, 450ms, 5min
    #[arg(long, value_name = "TIME")]
    at: Option<At>,
    /// With --at, the number of the task
    #[arg(long, value_name = "N", requires = "at")]
    task: Option<u32>,
    /// Only operations of this kind: fault, or the name of a system call such as fsync
    #[arg(long, value_name = "KIND")]
    what: Option<String>,
    /// Only cells of this kernel, or of the column with this label as --format csv has it
    #[arg(long, value_name = "COLUMN")]
    kernel: Option<String>,
    /// Only cells of this case
    #[arg(long, value_name = "CASE")]
    case: Option<String>,
    /// Only cells of this seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = WhyFormat::Text)]
    pub(crate) format: WhyFormat,
}

/// How `why` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhyFormat {
    /// At most ten lines of 80 columns for each operation
    Text,
    /// Every fact, for programs
    Json,
}

impl Why {
    /// This command in the laboratory's words.
    pub(crate) fn wanted(&self) -> WhyWanted {
        let which = match (self.slowest, self.stall, self.at) {
            (_, _, Some(at)) => Which::At { at, task: self.task },
            (_, Some(nth), _) => Which::Nth(nth.into()),
            (most, ..) => Which::Slowest(most.unwrap_or(1).into()),
        };
        WhyWanted {
            result: self.result.clone(),
            which,
            what: self.what.clone(),
            kernel: self.kernel.clone(),
            case: self.case.clone(),
            seed: self.seed,
        }
    }
}
