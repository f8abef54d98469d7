//! Arguments of `fork`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use lab::{fork::ForkWanted, plan::Every, show::At, why::Chosen};

use super::why::WhyFormat;

/// Run simulated cells again up to an instant, and on from there by other rules: one instant, two policies
///
/// Each branch is executed from the seed. Up to the instant it is the run of the result, which the run hash proves; there the
/// kernel takes the rules of the variant. Luck up to the instant is the same for all branches of a seed, so that they are
/// pairs: the table has the interval of each change with seeds as pairs, by how much wider it is without, and how long that
/// lasts. Variants must differ in rules that a running kernel can change; which rules need a boot, `pagelab list rules` says.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab run large-vm-4.18 --column 4.18 --seeds 8 -o results/mine
  pagelab fork results/mine --at 2s --variant 4.18+patch
  pagelab fork results/mine --at 2s --variant 4.18 --variant 4.18+patch --format json

Exit status: 0 printed, 1 a cell did not come out as it was, 2 wrong input: no result of the simulator, a result of another
program, an unknown variant, rules that need a boot, or an instant behind the end, 130 interrupted.")]
pub(crate) struct Fork {
    /// A result directory with simulated cells
    #[arg(value_hint = ValueHint::DirPath)]
    result: PathBuf,
    /// The instant: 41.2s, 450ms, 5min
    #[arg(long, value_name = "TIME")]
    at: At,
    /// The rules from there on; the others are compared with the first, a single one with the cells' own rules
    #[arg(long, value_name = "VARIANT", required = true)]
    variant: Vec<String>,
    /// Time between two samples, by which it is seen how long pairs last
    #[arg(long, value_name = "TIME", default_value = "1s")]
    sample: Every,
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

impl Fork {
    /// This command in the laboratory's words.
    pub(crate) fn wanted(&self) -> ForkWanted {
        ForkWanted {
            result: self.result.clone(),
            at: self.at,
            variants: self.variant.clone(),
            every: self.sample,
            chosen: Chosen { kernel: self.kernel.clone(), case: self.case.clone(), seed: self.seed },
        }
    }
}
