//! Arguments of `why`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use lab::{
    show::{At, between::BetweenWanted},
    why::{Chosen, Which, WhyWanted, nothing::NothingWanted},
};

/// Say why operations of a simulated run were slow: for each of the slowest, at most ten lines of facts with their instants
///
/// A result says which operations of a run left the allocator's fast path or slept, and where their time went. This runs their
/// cells again from the seed, and records what was decided for these operations: which zone refused the request against which
/// mark, with the free blocks of that instant; what kswapd was asked; whether compaction was deferred, skipped or ran, and how
/// it ended; reclaim; waits, and behind whom; what came of it. The run hash must come out as it was, and the program must be the
/// one that made the result.
///
/// With --inevitable the cell runs again up to instants before the stall, and on with other draws: the phase of timer ticks and
/// a few interrupts. A branch ends when it is known whether the task's fault on the same pages takes more than half of the
/// stall's time. The share of branches in which it does is printed by instant, with the decision without which the stall is gone.
///
/// With --between the question is about two simulated columns of the result with the same seeds, and nothing runs again: the
/// row's change and whether it is more than luck (the tests of `compare`), and at most ten lines of what differs with it. Where
/// the row is a time, first the times by cause of all tasks and kernel threads that moved in the row's direction, each with its
/// share of what all such causes gained or lost together. Then the counters of the row's case, the largest change in logarithms
/// first, each with the correlation, over the seeds, of its difference with the row's; from four seeds on. Both only as far as
/// they differ beyond luck, tested among their kind. A counter that differs is no proof: what it has to do with the row is for
/// the reader to say. With --parting both columns run again, for the first instant at which their runs part.
///
/// With --nothing the question is why a mechanism never did its work, or how often it did. Each test between *wanted* and *done*
/// is counted where it is decided, and is named after the kernel's function and condition: how often it was asked and failed, by
/// zone or node. One sentence first says how often the work was done, and at which test most rounds ended; tests that failed each
/// time are marked. Cells of one kernel are added up; each kernel has a block of its own, with the tests that it has.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("which").required(true).args(["slowest", "stall", "at", "between", "nothing"]),
    after_help = "\
Examples:
  pagelab run thpscale --machine two-node-2g --variant v4.1-rc2 -o results/mine
  pagelab show results/mine --stalls 10
  pagelab why results/mine --slowest 10 --what fault
  pagelab why results/mine --slowest 3 --what kswapd0
  pagelab why results/mine --stall 17 --kernel v4.1-rc2
  pagelab why results/mine --at 12.3s --task 4
  pagelab why results/mine --slowest 1 --what fault --order 9 --inevitable
  pagelab run thpscale-4.1 --column 4.1-rc2+0 --column 4.1-rc2+4 --seeds 8 -o results/two
  pagelab why results/two --between 4.1-rc2+0 4.1-rc2+4 --row amean:fault-huge-7
  pagelab why results/mine --nothing direct-compaction --kernel v4.1-rc2

Mechanisms of --nothing: allocation, kswapd, kswapd-compaction (up to 4.5), direct-compaction, kcompactd,
proactive-compaction, reclaim (direct reclaim), oom (the OOM killer), khugepaged, huge-fault, numa-scan, numa-balancing,
reporting (free page reporting), boost (of watermarks).

Two lines name the operation: its place, kind, task and instant, its cell, page and order, and its time by cause. Each
sentence below is about one kind of fact, from the instant of the first one on; what finds no room is in --format json, fact
by fact. Operations of kernel threads are left out, unless --what names a thread. A cell takes as long as it took; several
operations of a cell are found in one run of it.

Exit status: 0 printed, 1 a cell did not come out as it was, 2 wrong input: no result of the simulator, a result of another
program, fewer operations than asked for, or an unknown column, row or mechanism, 130 interrupted."
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
    /// Two columns whose difference is asked about: kernels, or labels as --format csv has them
    #[arg(long, num_args = 2, value_names = ["A", "B"], requires = "row",
        conflicts_with_all = ["what", "order", "kernel", "case", "seed"])]
    between: Vec<String>,
    /// With --between, the row: its first word, its metric or a counter, and the rest of its name
    #[arg(long, value_name = "METRIC:CASE", requires = "between",
        conflicts_with_all = ["slowest", "stall", "at"])]
    row: Option<String>,
    /// With --between, also run both columns again: the first instant at which their runs part, and what each decided then
    #[arg(long, requires = "between")]
    pub(crate) parting: bool,
    /// Count the tests of this mechanism, and say at which it ends
    #[arg(long, value_name = "MECHANISM", conflicts_with = "what")]
    nothing: Option<String>,
    /// With --at, the number of the task
    #[arg(long, value_name = "N", requires = "at")]
    task: Option<u32>,
    /// Only operations of this kind: fault, the name of a system call such as fsync, or a kernel thread such as kswapd0; in a run
    /// with guests, of all kernels, or as in "guest 1: fault" of the named kernel
    #[arg(long, value_name = "KIND")]
    what: Option<String>,
    /// Only requests for blocks of this order: 9 is a huge page
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=10))]
    order: Option<u8>,
    /// Of faults: the share of branches with the same stall, from instants before it on, and what it hung on
    #[arg(long, conflicts_with = "between")]
    pub(crate) inevitable: bool,
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
    /// The question about two columns, if that is asked.
    pub(crate) fn between(&self) -> Option<BetweenWanted> {
        let columns: [String; 2] = self.between.clone().try_into().ok()?;
        Some(BetweenWanted { result: self.result.clone(), columns, row: self.row.clone()? })
    }

    /// The question about a mechanism, if that is asked.
    pub(crate) fn nothing(&self) -> Option<NothingWanted> {
        Some(NothingWanted { result: self.result.clone(), mechanism: self.nothing.clone()?, chosen: self.chosen() })
    }

    fn chosen(&self) -> Chosen {
        Chosen { kernel: self.kernel.clone(), case: self.case.clone(), seed: self.seed }
    }

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
            order: self.order,
            chosen: self.chosen(),
        }
    }
}
