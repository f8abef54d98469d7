//! Arguments of `map`.

use std::{
    io::{IsTerminal, stdout},
    path::PathBuf,
};

use clap::{Args, ValueHint};
use lab::show::{At, MapWanted};

/// Print the map of physical memory at one instant: a character per pageblock, or group of pageblocks, in the order of addresses
///
/// Of a result whose simulated cells were run with --sample TIME --map; of this kernel (/proc), which takes root; or of a state
/// file, which `pagelab state make -o FILE` writes of a kernel. Kernels do not say of which type a pageblock is, but how many
/// there are: of those, types are put where they fit best.
///
/// Of buddyinfo, pagetypeinfo or an OOM report alone, pasted or as they are, it shows counts: positions are guessed, as the map
/// says.
///
/// A letter is the pageblock's type, a capital where at least half of it is in use. Colours are only for terminals, and not
/// where NO_COLOR is set. Below the map stand pageblocks by type and zone, and where compaction goes on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab run thpscale-4.1 --sample 100ms --map -o results/mine
  pagelab map results/mine --at 12.3s
  pagelab map results/mine --at 12.3s --kernel 4.1-rc2+4 --seed 1
  pagelab map /proc
  pagelab map buddyinfo pagetypeinfo
  pagelab map oom.txt

Exit status: 0 printed, 2 wrong input, or nothing there has a map.")]
pub(crate) struct Map {
    /// A result directory, /proc, a state file; or files with counts: buddyinfo, pagetypeinfo (and zoneinfo), an OOM report
    #[arg(value_hint = ValueHint::AnyPath)]
    source: PathBuf,
    /// Further files with counts
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath)]
    beside: Vec<PathBuf>,
    /// The instant, in virtual time from the start of the run: 12.3s, 450ms, 5min. The last sample before it is printed
    /// [default: the end]
    #[arg(long, value_name = "TIME")]
    at: Option<At>,
    /// The column: its kernel, or its label as --format csv has it [default: the first with a map]
    #[arg(long, value_name = "COLUMN")]
    kernel: Option<String>,
    /// The case, as the column `case` of `pagelab show --format csv` has it: 7 of thpscale is that with 7 threads [default: the
    /// first with a map]
    #[arg(long, value_name = "CASE")]
    case: Option<String>,
    /// The run's seed [default: the first with a map]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Map {
    /// This command in the laboratory's words.
    pub(crate) fn wanted(&self) -> MapWanted {
        MapWanted {
            source: self.source.clone(),
            beside: self.beside.clone(),
            at: self.at,
            kernel: self.kernel.clone(),
            case: self.case.clone(),
            seed: self.seed,
            has_colours: stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }
}
