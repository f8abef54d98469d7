//! Whether a change between two columns may be luck: what single runs say about it.

use std::collections::BTreeMap;

use crate::stats::{self, Pair};

/// Of fewer runs no change can be told from luck: an interval would rest on what two or three differences happen to be.
pub(super) const FEW: usize = 5;

/// What runs say about the change of their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Luck {
    /// Its 95 % interval does not hold zero.
    Unlikely,
    /// It does.
    Possible,
    /// There are too few runs to say.
    Unknown,
}

/// Of the runs of two columns, each by its seed; none where nothing changed in any run.
///
/// Runs of one seed belong together: where both columns have the same seeds, the interval is that of their differences.
pub(super) fn of(runs: Pair<&BTreeMap<u64, f64>>) -> Option<Luck> {
    let Pair { baseline, new } = runs;
    let are_pairs = baseline.keys().eq(new.keys());
    let mut all = baseline.values().chain(new.values());
    let is_constant = all.next().is_none_or(|first| all.all(|run| run.total_cmp(first).is_eq()));
    if is_constant || are_pairs && baseline.values().zip(new.values()).all(|(old, new)| old.total_cmp(new).is_eq()) {
        return None;
    }
    if baseline.len() < FEW || new.len() < FEW {
        return Some(Luck::Unknown);
    }
    let interval = if are_pairs {
        let pairs = baseline.values().zip(new.values()).map(|(&baseline, &new)| Pair { baseline, new });
        stats::paired_interval(&pairs.collect::<Vec<_>>())
    } else {
        let [baseline, new] = [baseline, new].map(|runs| runs.values().copied().collect::<Vec<f64>>());
        stats::welch_interval(Pair { baseline: &baseline[..], new: &new[..] })
    };
    let may_be = interval.is_none_or(stats::Interval::holds_zero);
    Some(if may_be { Luck::Possible } else { Luck::Unlikely })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of seed 1 and following.
    fn runs(values: &[f64]) -> BTreeMap<u64, f64> {
        (1..).zip(values.iter().copied()).collect()
    }

    fn luck(baseline: &[f64], new: &[f64]) -> Option<Luck> {
        of(Pair { baseline: &runs(baseline), new: &runs(new) })
    }

    #[test]
    fn what_falls_in_every_pair_is_hardly_luck() {
        // Seeds differ far more than the change does: ranges overlap, differences do not hold zero.
        let old = [100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0];
        let new = [95.0, 193.0, 294.0, 395.0, 492.0, 594.0, 695.0, 794.0];
        assert_eq!(luck(&old, &new), Some(Luck::Unlikely));
        // The same runs, of other seeds: no pairs.
        let of_others = (11..).zip(new).collect();
        assert_eq!(of(Pair { baseline: &runs(&old), new: &of_others }), Some(Luck::Possible));
        // Here it rises as often as it falls.
        let new = [95.0, 207.0, 294.0, 405.0, 492.0, 606.0, 695.0, 806.0];
        assert_eq!(luck(&old, &new), Some(Luck::Possible));
    }

    #[test]
    fn more_runs_of_the_same_tell_more() {
        let pattern = |differences: &[f64], times: usize| {
            let new: Vec<f64> = differences.iter().copied().cycle().take(differences.len() * times).collect();
            luck(&vec![0.0; new.len()], &new)
        };
        // A mean of 2 with a standard deviation of 4.1: of 5 pairs the interval is +-5.1, of 20 +-1.8.
        let differences = [-3.0, -1.0, 2.0, 5.0, 7.0];
        assert_eq!(pattern(&differences, 1), Some(Luck::Possible));
        assert_eq!(pattern(&differences, 4), Some(Luck::Unlikely));
    }

    #[test]
    fn of_few_runs_nobody_knows() {
        assert_eq!(luck(&[1.0; 4], &[100.0; 4]), Some(Luck::Unknown));
        assert_eq!(luck(&[1.0; 5], &[100.0; 5]), Some(Luck::Unlikely));
        assert_eq!(luck(&[1.0; 8], &[100.0; 4]), Some(Luck::Unknown));
    }

    #[test]
    fn no_change_is_no_luck() {
        assert_eq!(luck(&[1.0, 2.0], &[1.0, 2.0]), None);
        assert_eq!(luck(&[], &[]), None);
        assert_eq!(luck(&[3.0; 6], &[3.0; 7]), None);
        let runs = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(luck(&runs, &runs), None);
    }
}
