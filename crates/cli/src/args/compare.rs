//! Arguments of `compare`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use lab::{
    plan::Seeds,
    show::compare::{Form, Wanted},
};
use report::compare::Gates;

/// Say which rows of results differ, by how much, and whether that is more than luck
///
/// Each column of the others is compared with its like (target, kernel, machine) in the first result, or with the only column
/// there; of a single result all columns with its first. The unit is the run: --seeds 8 makes eight. Runs of simulated columns with
/// the same seeds are compared pair by pair.
///
/// A star says that a change is separated from none (5 %, over all rows of the table together) and large enough to matter. `no
/// change` says that the whole interval is too small to matter, which `cannot tell` does not.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab run thpscale --variant v6.1 --seeds 8 -o results/old
  pagelab run thpscale --variant ./mine.toml --seeds 8 -o results/new
  pagelab compare results/old results/new --sort
  pagelab compare results/old results/new --fail-on 'amean:fault-base-3>5%'
  pagelab compare results/thpscale-4.1-20261126 --full
  pagelab compare results/old results/new --format csv > changes.csv

In csv the bounds of a change are change_pct_from and change_pct_to.
Exit status: 0 compared, 2 wrong input or nothing in common, 3 a change that --fail-on names.")]
pub(crate) struct Compare {
    /// Result directories; the first is what the others are compared with
    #[arg(required = true, value_hint = ValueHint::DirPath)]
    results: Vec<PathBuf>,
    /// Only what was run with seeds 1 to N, or with those from A to B
    #[arg(long, value_name = "N|A-B")]
    seeds: Option<Seeds>,
    /// Compare all columns with this one of the first result: its kernel, or its label as --format csv has it
    #[arg(long, value_name = "COLUMN")]
    against: Option<String>,
    /// Exit with 3 if a row has a star and the whole interval of its change is beyond a bound. STAT is the row's first word
    /// or its metric, ROW the rest; falls are written as `<-5%`; may be given several times
    #[arg(long, value_name = "STAT:ROW>N%")]
    fail_on: Vec<String>,
    /// From how many per cent on a change matters
    #[arg(long, value_name = "PERCENT", default_value_t = Gates::default().percent, value_parser = gate)]
    gate: f64,
    /// The rows that are worst first
    #[arg(long)]
    sort: bool,
    /// Also rows of counters without a star, and below each row p, how many runs are lower, and what so many runs can see
    #[arg(long)]
    full: bool,
    /// How to print it
    #[arg(long, value_enum, default_value_t = FormArg::Text)]
    format: FormArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormArg {
    /// Lines of 72 columns, to paste into a mail
    Text,
    /// Tables of Markdown
    Markdown,
    /// One line for each row
    Csv,
    /// Everything, for programs
    Json,
}

fn gate(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number.filter(|number| (0.0..=1000.0).contains(number)).ok_or_else(|| "expected per cent from 0 to 1000".to_owned())
}

impl Compare {
    /// The same in the laboratory's words.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            results: self.results.clone(),
            seeds: self.seeds,
            against: self.against.clone(),
            gates: Gates { percent: self.gate, ..Gates::default() },
            sort: self.sort,
            full: self.full,
            fail_on: self.fail_on.clone(),
            form: match self.format {
                FormArg::Text => Form::Text,
                FormArg::Markdown => Form::Markdown,
                FormArg::Csv => Form::Csv,
                FormArg::Json => Form::Json,
            },
        }
    }
}

/// Say how small a change the runs of a result can see, and how many runs a change of 5 % needs
///
/// Row by row and column by column, from the spread of single runs: before a comparison, to choose --seeds; after it, to know what
/// "cannot tell" is worth.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab run thpscale --variant v6.1 --seeds 8 -o results/old
  pagelab noise results/old
  pagelab noise results/old --full --format csv > noise.csv

Exit status: 0 done, 2 wrong input.")]
pub(crate) struct Noise {
    /// Result directories
    #[arg(required = true, value_hint = ValueHint::DirPath)]
    pub(crate) results: Vec<PathBuf>,
    /// Only what was run with seeds 1 to N, or with those from A to B
    #[arg(long, value_name = "N|A-B")]
    pub(crate) seeds: Option<Seeds>,
    /// Also counters (csv and json always have them)
    #[arg(long)]
    pub(crate) full: bool,
    /// How to print it
    #[arg(long, value_enum, default_value_t = super::FormatArg::Text)]
    pub(crate) format: super::FormatArg,
}
