//! Whether policies rank as in the kernel: the order of huge share, of allocation stalls or of what else their runs name,
//! wherever the kernel's own runs tell two policies apart.

use std::collections::BTreeMap;

use report::stats;
use serde::Serialize;

use super::{Cell, EXTFRAG, HUGE_BLOCKS, HUGE_MEMORY, KSWAPD, NEAR_MEMORY, STALLS, SWAPPED_OUT, mean};

/// Quantities by which policies can be ranked.
pub const QUANTITIES: [&str; 7] = [HUGE_BLOCKS, STALLS, KSWAPD, EXTFRAG, HUGE_MEMORY, NEAR_MEMORY, SWAPPED_OUT];
/// Quantities by which they are ranked where nothing else is said.
pub const USUAL: [&str; 2] = [HUGE_BLOCKS, STALLS];
/// Two means of the kernel have an order if they are more than this number of pooled standard errors apart.
const ERRORS: f64 = 2.0;

/// Every two policies of one group, by one quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranking {
    /// The subject of the comparison, such as `thpscale, 1 thread`.
    pub group: String,
    /// By what.
    pub quantity: &'static str,
    /// Means by policy: the kernel's, ours.
    pub means: BTreeMap<String, (f64, f64)>,
    /// Pairs of policies that the kernel tells apart, the lower one first.
    pub pairs: Vec<RankedPair>,
}

/// Two policies that the kernel tells apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankedPair {
    /// The one with less.
    pub lower: String,
    /// The one with more.
    pub higher: String,
    /// Whether ours has them in the same order.
    pub agrees: bool,
}

/// The rankings of all groups.
pub fn rankings(cells: &[Cell]) -> Vec<Ranking> {
    let mut groups: BTreeMap<&str, Vec<(&str, &Cell)>> = BTreeMap::new();
    for cell in cells {
        if let Some((group, policy)) = &cell.policy {
            groups.entry(group).or_default().push((policy, cell));
        }
    }
    let of = |(group, cells): (&&str, &Vec<(&str, &Cell)>)| {
        // All of a group are of one run, or of runs that say the same.
        let by = cells.first().map_or(&[][..], |(_, cell)| cell.ranked_by.as_slice());
        let by = if by.is_empty() { &USUAL[..] } else { by };
        by.iter().map(|quantity| ranking(group, quantity, cells)).collect::<Vec<_>>()
    };
    groups.iter().flat_map(of).collect()
}

fn ranking(group: &str, quantity: &'static str, cells: &[(&str, &Cell)]) -> Ranking {
    let means = |cell: &Cell| (mean(&cell.kernel(quantity)), mean(&cell.ours(quantity)));
    let mut pairs = Vec::new();
    for (at, one) in cells.iter().enumerate() {
        for other in &cells[at + 1..] {
            if !told_apart(&one.1.kernel(quantity), &other.1.kernel(quantity)) {
                continue;
            }
            let (lower, higher) = if means(one.1).0 < means(other.1).0 { (one, other) } else { (other, one) };
            pairs.push(RankedPair {
                lower: lower.0.to_owned(),
                higher: higher.0.to_owned(),
                agrees: means(lower.1).1 < means(higher.1).1,
            });
        }
    }
    let means = cells.iter().map(|(policy, cell)| ((*policy).to_owned(), means(cell))).collect();
    Ranking { group: group.to_owned(), quantity, means, pairs }
}

/// Whether two means differ by more than [`ERRORS`] times the standard error of their difference, with the variance pooled.
/// A single run on a side tells nothing.
fn told_apart(one: &[f64], other: &[f64]) -> bool {
    let (Some(s1), Some(s2)) = (stats::stddev(one), stats::stddev(other)) else { return false };
    let (n1, n2) = (one.len() as f64, other.len() as f64);
    if n1 + n2 <= 2.0 {
        return false;
    }
    let pooled = ((n1 - 1.0) * s1 * s1 + (n2 - 1.0) * s2 * s2) / (n1 + n2 - 2.0);
    let error = (pooled * (1.0 / n1 + 1.0 / n2)).sqrt();
    (mean(one) - mean(other)).abs() > ERRORS * error
}
