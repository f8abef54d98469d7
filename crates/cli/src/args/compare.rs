//! Arguments of `compare`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use lab::{
    plan::Seeds,
    show::compare::{Form, Wanted},
};
use report::compare::Gates;

use super::format::{FormatArg, ProgressArg};

/// Say which rows of results differ, by how much, and whether that is more than luck
///
/// Each column of the others is compared with its like (target, kernel, machine) in the first result, or with the only column
/// there; of a single result all columns with its first. The unit is the run: --seeds 8 makes eight. Runs of simulated columns
/// with the same seeds are compared pair by pair.
///
/// First come three lines: what moved (the largest change first), the worst row, and how many rows were not told apart; then
/// the rows with a star. A star says that a change is separated from none (5 %, over all rows of the table together) and large
/// enough to matter. `no change` says that the whole interval is too small to matter, which `cannot tell` does not. A change is
/// that of the two numbers shown; its interval, where all numbers are positive, is of geometric means, which the test compares.
/// `new` was 0.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab run thpscale --variant v6.1 --seeds 8 -o results/old
  pagelab run thpscale --variant ./mine.toml --seeds 8 -o results/new
  pagelab compare results/old results/new --sort
  pagelab compare results/old results/new --fail-on 'amean:fault-base-3>5%'
  pagelab compare results/old results/new --fail-on 'compact_stall>100'
  pagelab compare results/thpscale-4.1-20261126 --full
  pagelab compare results/old results/new --format csv > changes.csv
  pagelab compare results/old mmtests/work/log --against v6.1

In csv change_pct is the change of old and new, and geometric_pct with its bounds that of geometric means.
Exit status: 0 compared, 2 wrong input or nothing in common, 3 a change that --fail-on names.")]
pub(crate) struct Compare {
    /// Result directories, or numbers measured elsewhere: runs of mmtests, its JSON, directories with captures of /proc/vmstat
    /// before and after, tables of mails, LKP's JSON, will-it-scale's CSV (docs/mmtests.md). The first is what the others are
    /// compared with. Of two captures of /proc/vmstat, how far each counter moved between them
    #[arg(required = true, value_hint = ValueHint::DirPath)]
    results: Vec<PathBuf>,
    /// Only what was run with seeds 1 to N, or with those from A to B
    #[arg(long, value_name = "N|A-B")]
    seeds: Option<Seeds>,
    /// Compare all columns with this one of the first result: its kernel, or its label as --format csv has it
    #[arg(long, value_name = "COLUMN")]
    against: Option<String>,
    /// Exit with 3 if a row has a star and its change and the whole interval of it are beyond a bound. NAME is the row's first
    /// word, its metric or a counter (`pagelab list counters`), ROW the rest, without which all its rows are meant. Falls are
    /// written as `<-5%`. N without % is in the unit of the row: from nought any rise is beyond every per cent. May be given
    /// several times
    #[arg(long, value_name = "NAME[:ROW]>N[%]")]
    fail_on: Vec<String>,
    /// From how many per cent on a change matters
    #[arg(long, value_name = "PERCENT", default_value_t = Gates::default().percent, value_parser = gate)]
    gate: f64,
    /// The rows that are worst first
    #[arg(long)]
    sort: bool,
    /// All rows, also without a star, and below each row p, how many runs are lower, and what so many runs can see
    #[arg(long)]
    full: bool,
    /// How to print it
    #[arg(long, value_enum, default_value_t = FormArg::Text)]
    format: FormArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum FormArg {
    /// Lines of 72 columns, to paste into a mail
    Text,
    /// Tables of Markdown
    Markdown,
    /// One line for each row
    Csv,
    /// Everything, for programs
    Json,
}

impl From<FormArg> for Form {
    fn from(form: FormArg) -> Self {
        match form {
            FormArg::Text => Self::Text,
            FormArg::Markdown => Self::Markdown,
            FormArg::Csv => Self::Csv,
            FormArg::Json => Self::Json,
        }
    }
}

pub(super) fn gate(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number.filter(|number| (0.0..=1000.0).contains(number)).ok_or_else(|| "expected per cent from 0 to 1000".to_owned())
}

impl Compare {
    /// This command in the laboratory's words.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            results: self.results.clone(),
            seeds: self.seeds,
            against: self.against.clone(),
            gates: Gates { percent: self.gate, ..Gates::default() },
            sort: self.sort,
            full: self.full,
            fail_on: self.fail_on.clone(),
            form: self.format.into(),
        }
    }
}

/// Say how small a change the runs of a result can see, and how many runs a change of 5 % needs
///
/// Row by row and column by column, from the spread of single runs: before a comparison, to choose --seeds; after it, to know
/// what "cannot tell" is worth.
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
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    pub(crate) format: FormatArg,
}

/// Climb from one kernel to another, and say which steps moved what
///
/// Steps are patches of a variant (+1, then +1,2 and so on, in the order in which they are named), or the built-in versions
/// between two releases. With --rules a step is a single rule. All rungs run with the same seeds, and each is compared with the
/// one before it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab ladder v4.1-rc2 +1..+4 --experiment thpscale-4.1 --seeds 8
  pagelab ladder v4.20-rc3 --experiment thpfioscale --metrics amean,compact_free_scanned
  pagelab ladder v4.15..v5.1 --experiment thpscale --machines four-core-4g,two-node-4g
  pagelab ladder v5.0..v5.1 --rules --experiment thpscale --seeds 8

The same command again goes on where it stopped.
Exit status: 0 done, 1 a cell failed, 2 wrong input, 130 interrupted.")]
pub(crate) struct Ladder {
    /// A variant whose patches are put on, or two versions, with or without rules of their own: v5.0..v5.1, v4.9..v5.15
    #[arg(value_name = "VARIANT|FIRST..LAST")]
    from: String,
    /// Patches, in the order in which they are put on [default: all that the variant has]
    #[arg(value_name = "+N|+N..+M")]
    steps: Vec<String>,
    /// Name or path of an experiment (`pagelab list experiments`)
    #[arg(long, short, alias = "workload", short_alias = 'w', value_name = "EXPERIMENT")]
    experiment: String,
    /// Each rule that a step changes is a step of its own
    #[arg(long = "rules")]
    by_rule: bool,
    /// Rows to show: statistics (amean, p99), metrics, cases or counters [default: all means for which a direction is better]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub(crate) metrics: Vec<String>,
    /// Machines: a ladder for each [default: the experiment's]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    machines: Vec<String>,
    /// A kernel setting or a parameter of the workload, as of `run`
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Repeat everything with seeds 1 to N, or with those from A to B
    #[arg(long, value_name = "N|A-B", default_value = "8")]
    seeds: Seeds,
    /// Simulated cells at a time [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    workers: Option<u16>,
    /// Result directory; with several machines one for each, with its name behind [default: results/ladder-...]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    pub(crate) format: FormatArg,
    /// How to tell progress on stderr
    #[arg(long, value_enum, default_value_t)]
    pub(crate) progress: ProgressArg,
}

impl Ladder {
    /// One for each machine.
    pub(crate) fn wanted(&self) -> Vec<lab::ladder::Wanted> {
        let of = |machine: Option<&String>| {
            let out = match (&self.output, machine) {
                (Some(output), Some(machine)) if self.machines.len() > 1 => {
                    let mut name = output.clone().into_os_string();
                    name.push(format!("-{machine}"));
                    Some(name.into())
                }
                (output, _) => output.clone(),
            };
            lab::ladder::Wanted {
                from: self.from.clone(),
                steps: self.steps.clone(),
                by_rule: self.by_rule,
                workload: self.experiment.clone(),
                machine: machine.cloned(),
                sets: self.set.clone(),
                seeds: self.seeds,
                workers: self.workers.map(usize::from),
                out,
            }
        };
        if self.machines.is_empty() {
            vec![of(None)]
        } else {
            self.machines.iter().map(|machine| of(Some(machine))).collect()
        }
    }
}
