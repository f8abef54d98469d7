//! Arguments of the commands that hold results against published tables.

use std::path::PathBuf;

use clap::Args;
use lab::plan::Seeds;

use super::format::{FormatArg, ProgressArg};

/// Say which claims about published tables hold
///
/// A claim is what a published table says so clearly that a model has to repeat it: a large effect, or an order with wide gaps.
/// An identity is a relation that holds by definition, such as blocks tried by each thread count: it checks that the same thing
/// was run. We chose the claims and their bounds, from each author's own words and tables; published/SERIES/claims.toml has them
/// with the reason of each. No simulation reads them. A claim about something that was not measured cannot be judged yet; one
/// about a row that no result of the experiment can have is wrong input.
///
/// A claim is judged by the mean over seeds. A series is reached when nine of ten of its claims hold, and all identities. What is
/// needed is run first, into a result directory of its own; the same command again goes on from there.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab claims s0
  pagelab claims s0 --seeds 21-40 --workers 1
  pagelab claims --result results/mine --seeds 1-8
  pagelab claims --format csv > claims.csv

Series:
  s0  khugepaged instead of page faults, 4.1 (2015)
  s1  boosted watermarks, 4.20 (2018)
  s2  free page reporting, linux-next (2020)
  s3  automatic NUMA balancing, 3.9 (2013)
  s4  locality of huge pages, 4.18 and 4.19 (2018)
and each folder of published/ in the working directory.

Exit status: 0 every series that can be run is reached, 1 one is not, or a cell failed, 2 wrong input, 130 interrupted.")]
pub(crate) struct Claims {
    /// Which series, such as s0 [default: all]
    pub(crate) series: Vec<String>,
    /// Run with seeds 1 to N, or with those from A to B [default: 8]; with --result, only these of it
    #[arg(long, value_name = "N|A-B")]
    pub(crate) seeds: Option<Seeds>,
    /// Judge this result, and run nothing: by the series that it keeps, or by a named one as its files are now. Of runs of
    /// mmtests those that are called as columns of the series (docs/mmtests.md)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "workers"])]
    pub(crate) result: Option<PathBuf>,
    /// Simulated cells at a time [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) workers: Option<u16>,
    /// Result directory of a single series [default: results/claims-SERIES-SEEDS-PROGRAM]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// How to print it: `csv` has a line for each part of a claim
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    pub(crate) format: FormatArg,
    /// How to tell progress on stderr
    #[arg(long, value_enum, default_value_t, conflicts_with = "result")]
    pub(crate) progress: ProgressArg,
}

/// Say how near the changes of a published table a result is
///
/// For information: `pagelab claims` judges, a score does not. A change is a published column against the first one, and material
/// if it is 10 per cent or more.
///
/// direction: which part of the material changes goes the same way here. skill: how near their sizes are; 1 is equal, 0 is as far
/// off as a model that says that nothing changes. level: the factor between the first columns, here and published; 1 is equal.
/// inside: which part of the published values is in the range of our single runs.
///
/// ceiling: the same of single runs of the model, each in the place of the published table, scored by the mean of the others. A
/// published table is a single run too, so that a perfect model gets no more than this.
///
/// Each line is a set of tables. `all` counts their rows together. `merged` takes them for one table with all columns, so
/// that columns of one set are also compared with the first column of the other.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab run thpscale-4.1 --seeds 8 -o results/mine
  pagelab score results/mine --published s0
  pagelab score results/mine --published s0 --seeds 1-4 --format csv")]
pub(crate) struct Score {
    /// A result directory
    pub(crate) result: PathBuf,
    /// Which series, as its files are now [default: the one whose tables the result's experiment makes, as the result keeps it]
    #[arg(long, value_name = "SERIES")]
    pub(crate) published: Option<String>,
    /// Only what was run with seeds 1 to N, or with those from A to B
    #[arg(long, value_name = "N|A-B")]
    pub(crate) seeds: Option<Seeds>,
    /// How to print it: `csv` has a line for each number
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    pub(crate) format: FormatArg,
}
