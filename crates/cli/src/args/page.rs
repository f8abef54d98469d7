//! Arguments of `report`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use lab::{
    plan::Seeds,
    show::{CHAINS_MAX, PageWanted},
};

/// Write results as one page of HTML: to look at, to mail, to show
///
/// On top a title in words, three sentences about all rows and the rows that changed most, as `pagelab compare` says them: with
/// 95 % intervals where both sides have several runs. Of three columns and more, all changes in one table; of a grid of settings
/// its map; of a published series its claims; of guests their frontier. Below maps of physical memory of two kernels side by
/// side, with a chart of the unusable free index that is their place in time, then distributions of latencies, counters over
/// time, and time by cause. The file needs no network and nothing beside it.
///
/// Maps and counters over time are of one run of each kernel: the median of the seeds by the first metric.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab run thpscale-4.1 --seeds 8 --sample 100ms --map -o results/mine
  pagelab report results/mine -o report.html
  pagelab report results/old results/new -o report.html
  pagelab report results/mine --why 20 -o report.html
  pagelab report results/mine --case 7 --kernel 4.1-rc2+0 --kernel 4.1-rc2+4 -o report.html

What a result lacks, the page says, with the command that records it.
Exit status: 0 written, 1 a run of --why did not come out as it was, 2 wrong input, results that --why cannot run again, or a
file that cannot be written: then nothing is, 130 interrupted.")]
pub(crate) struct Report {
    /// Result directories; the first is what the others are compared with
    #[arg(required = true, value_hint = ValueHint::DirPath)]
    results: Vec<PathBuf>,
    /// Where to write the page; a file that is there is replaced
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Only what was run with seeds 1 to N, or with those from A to B
    #[arg(long, value_name = "N|A-B")]
    seeds: Option<Seeds>,
    /// A column that is shown over time: its kernel, or its label as --format csv has it; may be given up to eight
    /// times [default: the first eight]
    #[arg(long, value_name = "COLUMN")]
    kernel: Vec<String>,
    /// The case that is shown over time, as the column `case` of `pagelab show --format csv` has it: 7 of thpscale is that with
    /// 7 threads [default: the first with a map]
    #[arg(long, value_name = "CASE")]
    case: Option<String>,
    /// Put the chains of the N slowest operations of each simulated run that is shown over time on the page, as `pagelab why`
    /// prints them: each of these runs is run once more
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = chains)]
    why: usize,
}

/// A number of chains.
fn chains(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count <= CHAINS_MAX);
    count.ok_or_else(|| format!("expected a number from 0 to {CHAINS_MAX}"))
}

/// The page of a run that has just ended: all of its seeds, and what is shown over time where nobody chooses.
pub(crate) fn of_run(directory: &Path, output: &Path) -> PageWanted {
    PageWanted {
        results: vec![directory.to_owned()],
        seeds: None,
        kernels: Vec::new(),
        case: None,
        why: 0,
        output: output.to_owned(),
    }
}

impl Report {
    /// This command in the laboratory's words.
    pub(crate) fn wanted(&self) -> PageWanted {
        PageWanted {
            results: self.results.clone(),
            seeds: self.seeds,
            kernels: self.kernel.clone(),
            case: self.case.clone(),
            why: self.why,
            output: self.output.clone(),
        }
    }
}
