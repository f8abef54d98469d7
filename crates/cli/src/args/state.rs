//! `pagelab state`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lab::{
    plan::Seeds,
    state::{Recipe, Share},
};

#[derive(Debug, Subcommand)]
pub(crate) enum State {
    Make(Make),
    /// Say what a state file holds, or a recipe file
    Show {
        /// The file
        file: PathBuf,
    },
}

/// Write a state of memory: by recipe in the simulator, or that of this machine from /proc/kpageflags and its like (needs root).
///
/// A recipe is what is done before a workload, and two numbers that say what memory is like then. `metadata+anon` fills the
/// machine with anonymous memory but for holes, makes files whose inodes, dentries and buffers go into the holes, keeps them
/// open, and frees the anonymous memory. No frame is painted: what the kernel's rules make of these operations is the state.
///
/// The two numbers are --unmovable, the frames in unmovable use among all frames that the page allocator manages, and --blocks,
/// the pageblocks that hold at least one such frame. Unmovable use is slabs (reclaimable caches too), page tables, and all else
/// that the kernel has for itself. Both are reached within a tenth, or the command says how near it came. Kernels from 5.0 on
/// raise their watermarks when memory is mixed, and compact while the recipe goes on: in a few GiB they do not come to what
/// older ones do, unless a machine file sets vm.watermark_boost_factor to 0.
///
/// Printed are /proc/buddyinfo and /proc/pagetypeinfo as that kernel would show them, and a checksum of them and of what every
/// frame is. The same recipe, machine, variant and seed have the same checksum with one version of this program. With -o the
/// recipe is written to a small file, with the checksums, for `pagelab run --state FILE`. A run follows the recipe again in
/// each cell, with the cell's own variant, settings and seed; a cell whose checksum differs from the file's fails.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab state make --recipe metadata+anon --unmovable 7% --blocks 34% --machine one-node-4g
  pagelab state make --recipe metadata+anon --machine skylake-1s --variant v4.20-rc3 --seeds 2 -o mixed.toml
  pagelab run thpfioscale --machine skylake-1s --variant v4.20-rc3 --seeds 2 --state mixed.toml
  pagelab run thpscale --target sim --variant v4.20 --state metadata+anon,unmovable=7%,blocks=34%
  pagelab state make -o here.state
  pagelab run fault-storm --target sim --machine machines/here.toml --state here.state

Exit status: 0 done, 2 wrong input, or a recipe that cannot be reached there.")]
pub(crate) struct Make {
    /// Where to write it
    #[arg(short, long, value_name = "FILE", required_unless_present = "recipe")]
    pub(crate) output: Option<PathBuf>,
    /// What is done: metadata+anon
    #[arg(long, value_name = "NAME")]
    pub(crate) recipe: Option<String>,
    /// Frames in unmovable use afterwards, of all frames
    #[arg(long, value_name = "PERCENT", requires = "recipe", default_value_t = Recipe::UNMOVABLE)]
    pub(crate) unmovable: Share,
    /// Pageblocks with at least one such frame, of all pageblocks
    #[arg(long, value_name = "PERCENT", requires = "recipe", default_value_t = Recipe::BLOCKS)]
    pub(crate) blocks: Share,
    /// The simulated machine: a name or path (`pagelab list machines`)
    #[arg(long, requires = "recipe", default_value = "one-node-4g")]
    pub(crate) machine: String,
    /// The simulated kernel: a name or path (`pagelab list variants`); may be given several times
    #[arg(long, requires = "recipe", default_value = "v4.20")]
    pub(crate) variant: Vec<String>,
    /// With seeds 1 to N, or with those from A to B
    #[arg(long, value_name = "N|A-B", requires = "recipe", default_value = "1")]
    pub(crate) seeds: Seeds,
}
