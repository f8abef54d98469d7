//! Arguments of `pack`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Put a simulated result in one file that runs again anywhere, with a mail of ten lines beside it
///
/// The file has the result and all that its cells took: machine, kernel, workload, recipe and seed of each. `pagelab run
/// FILE.case` unpacks it, runs each cell again, and says whether it came out the same, to the byte. That takes the same program:
/// another one refuses the file and says which it is of. The file holds a megabyte at most.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab run thpscale-4.1 --column 4.1-rc2+0 -o results/mine
  pagelab pack results/mine -o bug.case
  pagelab run bug.case

A result is refused that does not come out again from its own files: of real kernels, of another program, unfinished, begun
from a state file, or with maps of memory.
Exit status: 0 written, 2 wrong input.")]
pub(crate) struct Pack {
    /// A result directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) result: PathBuf,
    /// The file to write, with .case at its end; the mail is beside it, with .txt
    #[arg(short, long, value_name = "FILE.case", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
}
