//! Arguments of `sweep`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use lab::{
    plan::Seeds,
    sweep::{Print, Wanted},
};
use report::compare::Gates;

use super::{
    compare::{FormArg, gate},
    format::ProgressArg,
};

/// Run a grid over kernel settings and parameters of the workload, and say what each of them does
///
/// Each --set with several values is an axis: the first gives the rows of a map, the second its columns, further ones a map for
/// each combination of their values (24 at most). With one axis there is a bar for each value. Every row of the tables is a map.
/// Values are shaded from the lowest to the highest; the default is in brackets.
///
/// Below each map are its flat regions: neighbouring cells among which no difference beyond the gate is found. At the end is,
/// setting by setting, what reacts to it: the change between the two values whose means are furthest apart, with its interval,
/// and a star if that is separated from none (5 %, over all pairs of values together) and large enough to matter. "flat": all of
/// it is too small.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab sweep thpscale --set vm.watermark_boost_factor=0..30000:5000 --set vm.extfrag_threshold=0,500,1000 --seeds 8
  pagelab sweep thpscale --set vm.min_free_kbytes=4096..32768:4096 --set threads=1,3 --metrics amean,compact_stall
  pagelab sweep fault-storm --variant v6.1 --set size=2MiB..8MiB:2MiB --set tasks=2 --format markdown
  pagelab sweep --result results/mine --metrics thp_fault_alloc --format csv > map.csv

FROM..TO:STEP is each value from FROM on. The same command again goes on where it stopped. --result prints the maps of a result
that is there: of a sweep, of one that `pagelab collect` has built, or of a run whose settings have several values.
Exit status: 0 done, 1 a cell failed, 2 wrong input, 130 interrupted.")]
pub(crate) struct Sweep {
    /// Name or path of an experiment (`pagelab list experiments`)
    #[arg(required_unless_present = "result")]
    experiment: Option<String>,
    /// A kernel setting (`pagelab list settings`) or a parameter of the workload (`pagelab list workloads`), with one value or
    /// several: values with commas, and ranges
    #[arg(long, value_name = "NAME=A,B|FROM..TO:STEP")]
    set: Vec<String>,
    /// Name or path of the variant [default: the newest rules not newer than the experiment's kernel]
    #[arg(long)]
    variant: Option<String>,
    /// Name or path of the machine [default: the experiment's]
    #[arg(long)]
    machine: Option<String>,
    /// Where memory stands when a workload starts, as of `run` [default: the experiment's]
    #[arg(long, value_name = "fresh|FILE|RECIPE")]
    state: Option<String>,
    /// Rows to show: statistics (amean, p99), metrics (memory.low), cases or counters [default: means for which a direction is
    /// better; percentiles and memory are listed]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    metrics: Vec<String>,
    /// Repeat everything with seeds 1 to N, or with those from A to B
    #[arg(long, value_name = "N|A-B", default_value = "8")]
    seeds: Seeds,
    /// From how many per cent on a difference matters
    #[arg(long, value_name = "PERCENT", default_value_t = Gates::default().percent, value_parser = gate)]
    gate: f64,
    /// Cells at a time [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    workers: Option<u16>,
    /// Result directory [default: results/sweep-...]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// Run nothing, and print the maps of this result directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath,
          conflicts_with_all = ["experiment", "set", "variant", "machine", "state", "seeds", "workers", "output"])]
    pub(crate) result: Option<PathBuf>,
    /// How to tell progress on stderr
    #[arg(long, value_enum, default_value_t)]
    pub(crate) progress: ProgressArg,
    /// How to print it
    #[arg(long, value_enum, default_value_t = FormArg::Text)]
    format: FormArg,
}

impl Sweep {
    /// The sweep in the laboratory's words.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            experiment: self.experiment.clone().unwrap_or_default(),
            sets: self.set.clone(),
            variants: self.variant.iter().cloned().collect(),
            machine: self.machine.clone(),
            state: self.state.clone(),
            seeds: self.seeds,
            workers: self.workers.map(usize::from),
            out: self.output.clone(),
        }
    }

    /// How its result is printed.
    pub(crate) fn print(&self) -> Print {
        let gates = Gates { percent: self.gate, ..Gates::default() };
        Print { metrics: self.metrics.clone(), gates, form: self.format.into() }
    }
}
