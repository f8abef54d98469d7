//! Arguments of `cells` and `collect`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use lab::{plan::Seeds, sweep::Wanted};

/// Print a line for each simulated cell of a run or a sweep, for workers on other machines
///
/// A line has all that a worker needs, and says of which program it is: the workers' pagelab must be built from the same
/// sources. The result directory is made with what is known before any cell has run. `pagelab collect` puts the lines that
/// come back into it; until then the same command prints the lines of the cells that it lacks. docs/cluster.md has a line for
/// GNU parallel, SLURM, Kubernetes and HyperQueue.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab cells thpscale --set vm.watermark_boost_factor=0..30000:5000 --seeds 8 -o results/mine > cells.jsonl
  parallel --pipe -N1 pagelab worker < cells.jsonl > back.jsonl
  pagelab collect results/mine back.jsonl
  pagelab sweep --result results/mine

Exit status: 0 done, 2 wrong input.")]
pub(crate) struct Cells {
    /// Name or path of an experiment (`pagelab list experiments`)
    experiment: String,
    /// A kernel setting or a parameter of the workload, as of `sweep`: one value, several with commas, or ranges
    #[arg(long, value_name = "NAME=A,B|FROM..TO:STEP")]
    set: Vec<String>,
    /// Name or path of a variant; may be given several times [default: the experiment's columns, or the rules of its kernel]
    #[arg(long)]
    variant: Vec<String>,
    /// Name or path of the machine [default: the experiment's]
    #[arg(long)]
    machine: Option<String>,
    /// Where memory stands when a workload starts: a state file does not travel [default: the experiment's]
    #[arg(long, value_name = "fresh|RECIPE")]
    state: Option<String>,
    /// Repeat everything with seeds 1 to N, or with those from A to B
    #[arg(long, value_name = "N|A-B", default_value = "8")]
    seeds: Seeds,
    /// Result directory, for the lines that come back
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: PathBuf,
}

impl Cells {
    /// The run or sweep in the laboratory's words.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            experiment: self.experiment.clone(),
            sets: self.set.clone(),
            variants: self.variant.clone(),
            machine: self.machine.clone(),
            state: self.state.clone(),
            seeds: self.seeds,
            workers: None,
            out: Some(self.output.clone()),
        }
    }
}

/// Put lines that came back from workers into their result directory: all of the result, or nothing
///
/// Lines are judged by what is in them. Of the same cell one is taken, if all say the same. Lines that are cut off count as none.
/// Lines of another program, of cells that the run does not have, or that differ for one cell are refused, and so is a result
/// that lacks cells: the directory stays as it was.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab collect results/mine back.jsonl
  pagelab collect results/mine out/*.jsonl --orders cells.jsonl > again.jsonl
  cat out/* | pagelab collect results/mine -

Exit status: 0 the result is whole, 2 it is not, or wrong input.")]
pub(crate) struct Collect {
    /// The directory that `pagelab cells` has made
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) result: PathBuf,
    /// Files of lines that came back; `-` is stdin
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub(crate) lines: Vec<PathBuf>,
    /// The lines that went out: where cells are missing, theirs are printed, to be sent again
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) orders: Option<PathBuf>,
}
