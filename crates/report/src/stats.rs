//! Statistics of mmtests at HEAD, as plain functions on slices.
//!
//! Only + - * / and sqrt are used, which IEEE 754 rounds the same on every CPU, and logarithms and Student's t from the libm
//! library, which uses only these. The order of summation changes the last bits of a result, so callers that need repeatable
//! results pass sorted samples.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::better::Better;

/// Two numbers to compare, so that they cannot be swapped unseen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair<T> {
    /// The baseline of the comparison.
    pub baseline: T,
    /// The compared number.
    pub new: T,
}

/// A mean and the standard deviation of the samples around it, both in the unit of the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation; none for a single sample.
    pub stddev: Option<f64>,
}

/// The interval that holds a number in 19 of 20 cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The smallest sample.
pub fn min(samples: &[f64]) -> Option<f64> {
    samples.iter().copied().min_by(f64::total_cmp)
}

/// The largest sample.
pub fn max(samples: &[f64]) -> Option<f64> {
    samples.iter().copied().max_by(f64::total_cmp)
}

/// The arithmetic mean.
pub fn amean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// The harmonic mean; none if any sample is zero or negative.
pub fn hmean(samples: &[f64]) -> Option<f64> {
    if samples.is_empty() || samples.iter().any(|&x| x <= 0.0) {
        return None;
    }
    Some(samples.len() as f64 / samples.iter().map(|x| 1.0 / x).sum::<f64>())
}

/// The geometric mean; none if any sample is zero or negative.
pub fn gmean(samples: &[f64]) -> Option<f64> {
    if samples.is_empty() || samples.iter().any(|&x| x <= 0.0) {
        return None;
    }
    Some(libm::exp(samples.iter().map(|&x| libm::log(x)).sum::<f64>() / samples.len() as f64))
}

/// The standard deviation of the samples around their arithmetic mean, divisor n - 1; none for n = 1.
pub fn stddev(samples: &[f64]) -> Option<f64> {
    if samples.len() < 2 {
        return None;
    }
    let mean = amean(samples)?;
    let squares: f64 = samples.iter().map(|x| (x - mean) * (x - mean)).sum();
    Some((squares / (samples.len() - 1) as f64).sqrt())
}

/// The standard deviation that belongs to the harmonic mean H, sqrt(H⁴/n · Σ(1/x - 1/H)²); none for
/// n = 1.
pub fn hstddev(samples: &[f64]) -> Option<f64> {
    if samples.len() < 2 {
        return None;
    }
    let mean = hmean(samples)?;
    let squares: f64 = samples.iter().map(|x| (1.0 / x - 1.0 / mean) * (1.0 / x - 1.0 / mean)).sum();
    Some((mean * mean * mean * mean / samples.len() as f64 * squares).sqrt())
}

/// The coefficient of variation, 100 · stddev / mean, in percent; 0 if the mean is 0.
pub fn coeff_var(spread: Spread) -> Option<f64> {
    let stddev = spread.stddev?;
    Some(if spread.mean == 0.0 { 0.0 } else { 100.0 * stddev / spread.mean })
}

/// The best int(0.95 n) of the samples, at least one, best first: the only trimming that mmtests does.
/// Where no direction is better, the lowest count as best, as in mmtests.
pub fn best95(samples: &[f64], better: Better) -> Vec<f64> {
    let mut best = samples.to_vec();
    match better {
        Better::Lower | Better::None => best.sort_by(f64::total_cmp),
        Better::Higher => best.sort_by(|a, b| b.total_cmp(a)),
    }
    best.truncate((samples.len() * 95 / 100).max(1));
    best
}

/// The arithmetic mean of [`best95`].
pub fn bamean95(samples: &[f64], better: Better) -> Option<f64> {
    amean(&best95(samples, better))
}

/// The harmonic mean of [`best95`].
pub fn bhmean95(samples: &[f64], better: Better) -> Option<f64> {
    hmean(&best95(samples, better))
}

/// The given percent point, interpolated linearly between order statistics (R's default, type 7).
///
/// # Panics
/// When `percent` is not from 0 to 100.
pub fn percentile(samples: &[f64], percent: f64) -> Option<f64> {
    assert!((0.0..=100.0).contains(&percent), "{percent} is no percent point");
    let last = samples.len().checked_sub(1)?;
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = percent * last as f64 / 100.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 <= rank <= last")]
    let below = rank as usize;
    let above = (below + 1).min(last);
    let (low, high) = (sorted[below], sorted[above]);
    Some(low + (rank - below as f64) * (high - low))
}

/// The change between two numbers in per cent of the baseline. It is used everywhere except in columns in mmtests' own form
/// ([`percent_change`]). None if the baseline is zero and the new number is not.
pub fn change(Pair { baseline, new }: Pair<f64>) -> Option<f64> {
    match (baseline == 0.0, new == 0.0) {
        (true, true) => Some(0.0),
        (true, false) => None,
        (false, _) => Some(100.0 * ((new - baseline) / baseline.abs())),
    }
}

/// How much better the new number is, in percent of the baseline: positive is better. None if no direction is better.
///
/// mmtests' special cases are kept: equal numbers give 0, so does a number of exactly -1 (its mark
/// for "no data"); lower is better: new = 0 gives 100, baseline = 0 gives -99; higher is better:
/// baseline = 0 gives 100. One is not: higher is better and new = 0 gives -100, all of it is lost, where mmtests prints 0.
pub fn percent_change(better: Better, pair: Pair<f64>) -> Option<f64> {
    let Pair { baseline, new } = pair;
    #[expect(clippy::float_cmp, reason = "exact values are the special cases")]
    let unchanged = baseline == new || baseline == -1.0 || new == -1.0;
    match better {
        Better::None => None,
        _ if unchanged => Some(0.0),
        Better::Lower if new == 0.0 => Some(100.0),
        Better::Lower if baseline == 0.0 => Some(-99.0),
        Better::Lower => Some(100.0 - 100.0 * new / baseline),
        Better::Higher if new == 0.0 => Some(-100.0),
        Better::Higher if baseline == 0.0 => Some(100.0),
        Better::Higher => Some(100.0 * new / baseline - 100.0),
    }
}

/// The 95 % interval of the mean of new - baseline, for paired runs, by Student's t for paired samples. None with fewer than two
/// pairs.
pub fn paired_interval(pairs: &[Pair<f64>]) -> Option<Interval> {
    let differences: Vec<f64> = pairs.iter().map(|pair| pair.new - pair.baseline).collect();
    Estimate::paired(&differences)?.interval()
}

/// The 95 % interval of the difference of means, for runs that are no pairs (Welch). None if a side has fewer than two runs.
pub fn unpaired_interval(pairs: &[Pair<f64>]) -> Option<Interval> {
    let side = |of: fn(&Pair<f64>) -> f64| pairs.iter().map(of).collect::<Vec<f64>>();
    Estimate::welch(&side(|pair| pair.baseline), &side(|pair| pair.new))?.interval()
}

/// An estimated difference of means, new - baseline: its standard error, and the degrees of freedom for Student's t.
#[derive(Clone, Copy)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    pub(crate) error: f64,
    pub(crate) freedom: f64,
}

impl Estimate {
    /// For paired runs, from their differences; none with fewer than two pairs.
    pub(crate) fn paired(differences: &[f64]) -> Option<Self> {
        let error = stddev(differences)? / (differences.len() as f64).sqrt();
        Some(Self { mean: amean(differences)?, error, freedom: (differences.len() - 1) as f64 })
    }

    /// For unpaired runs (Welch); none if a side has fewer than two.
    pub(crate) fn welch(old: &[f64], new: &[f64]) -> Option<Self> {
        let side = |runs: &[f64]| {
            let stddev = stddev(runs)?;
            Some((amean(runs)?, stddev * stddev / runs.len() as f64, (runs.len() - 1) as f64))
        };
        let ((old_mean, old, old_freedom), (new_mean, new, new_freedom)) = (side(old)?, side(new)?);
        let spread = old + new;
        let freedom = spread * spread / (old * old / old_freedom + new * new / new_freedom);
        // Numbers without spread, or whose squares are out of range, give no degrees of freedom.
        let freedom = if freedom > 0.0 && freedom.is_finite() { freedom } else { 1.0 };
        Some(Self { mean: new_mean - old_mean, error: spread.sqrt(), freedom })
    }

    fn t(self) -> StudentsT {
        StudentsT::new(0.0, 1.0, self.freedom).expect("there is a degree of freedom")
    }

    /// The two-sided p-value of no difference.
    pub(crate) fn p(self) -> f64 {
        if self.error == 0.0 {
            return if self.mean == 0.0 { 1.0 } else { 0.0 };
        }
        // The tail beyond |t|, in which no digits are lost.
        2.0 * self.t().cdf(-(self.mean / self.error).abs())
    }

    /// The 95 % interval of the difference.
    pub(crate) fn interval(self) -> Option<Interval> {
        interval(self.mean, self.error, self.freedom)
    }

    /// The smallest difference that a test detects with this power.
    pub(crate) fn sees(self, power: f64) -> f64 {
        (self.t().inverse_cdf(0.975) + self.t().inverse_cdf(power)) * self.error
    }
}

/// The 95 % interval around a mean with this standard error, by Student's t with `freedom` degrees of freedom.
fn interval(mean: f64, error: f64, freedom: f64) -> Option<Interval> {
    // Without spread the interval is a point; Welch's degrees of freedom would be 0 by 0.
    if error == 0.0 {
        return Some(Interval { low: mean, high: mean });
    }
    let half = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975) * error;
    Some(Interval { low: mean - half, high: mean + half })
}

/// The 2.5 % and 97.5 % points of one number per seed; none with a single seed.
pub(crate) fn middle_95(of_seeds: &[f64]) -> (Option<f64>, Option<f64>) {
    match of_seeds.len() {
        0 | 1 => (None, None),
        _ => (percentile(of_seeds, 2.5), percentile(of_seeds, 97.5)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal to the number of digits that worked examples print.
    fn assert_near(found: Option<f64>, expected: f64) {
        let found = found.expect("a number");
        assert!((found - expected).abs() < 5e-6, "found {found}, expected {expected}");
    }

    #[test]
    fn arithmetic_statistics_of_a_worked_example() {
        // Mean 5, sum of squares 32, so the sample variance is 32/7.
        let samples = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_near(amean(&samples), 5.0);
        assert_near(stddev(&samples), 2.138_090);
        let spread = Spread { mean: 5.0, stddev: stddev(&samples) };
        assert_near(coeff_var(spread), 42.761_799);
        assert_eq!((min(&samples), max(&samples)), (Some(2.0), Some(9.0)));
    }

    #[test]
    fn harmonic_statistics_of_a_worked_example() {
        // 40 and 60 km/h over equal distances average 48 km/h.
        assert_near(hmean(&[40.0, 60.0]), 48.0);
        // H = 3; 1/2 - 1/3 = 1/6 = -(1/6 - 1/3); 81/2 * 2/36 = 2.25.
        assert_near(hmean(&[2.0, 6.0]), 3.0);
        assert_near(hstddev(&[2.0, 6.0]), 1.5);
    }

    #[test]
    fn a_geometric_mean_weighs_half_and_double_alike() {
        assert_near(gmean(&[0.5, 2.0]), 1.0);
        assert_near(gmean(&[2.0, 8.0]), 4.0);
        assert_eq!(gmean(&[]), None);
        assert_eq!(gmean(&[3.0, 0.0]), None);
    }

    #[test]
    fn what_is_undefined_is_none() {
        assert_eq!(amean(&[]), None);
        assert_eq!(min(&[]), None);
        assert_eq!(hmean(&[]), None);
        assert_eq!(hmean(&[3.0, 0.0]), None);
        assert_eq!(hmean(&[3.0, -1.0]), None);
        assert_eq!(stddev(&[7.0]), None);
        assert_eq!(hstddev(&[7.0]), None);
        assert_eq!(percentile(&[], 50.0), None);
        assert_eq!(coeff_var(Spread { mean: 7.0, stddev: None }), None);
        assert_eq!(coeff_var(Spread { mean: 0.0, stddev: Some(1.0) }), Some(0.0));
    }

    #[test]
    fn trimming_drops_the_worst_twentieth() {
        let samples: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_near(bamean95(&samples, Better::Lower), 10.0); // 1..=19
        assert_near(bamean95(&samples, Better::Higher), 11.0); // 2..=20
        assert_near(bhmean95(&[6.0, 3.0, 2.0], Better::Higher), 4.0); // of 6 and 3
        assert_near(bamean95(&[6.0, 2.0], Better::Lower), 2.0); // int(1.9) = 1
        assert_near(bamean95(&[6.0], Better::Lower), 6.0); // at least one
        assert_eq!(bamean95(&[], Better::Lower), None);
    }

    #[test]
    fn percent_points_interpolate() {
        let samples = [40.0, 10.0, 30.0, 20.0];
        assert_near(percentile(&samples, 0.0), 10.0);
        assert_near(percentile(&samples, 50.0), 25.0);
        assert_near(percentile(&samples, 75.0), 32.5);
        assert_near(percentile(&samples, 100.0), 40.0);
        assert_near(percentile(&[7.0], 97.5), 7.0);
        let hundred: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_near(percentile(&hundred, 2.5), 2.5);
    }

    #[test]
    fn a_change_is_one_of_the_two_numbers() {
        let of = |baseline, new| change(Pair { baseline, new });
        assert_eq!(of(0.5, 0.75), Some(50.0));
        assert_eq!(of(82.8, 0.0), Some(-100.0));
        assert_eq!(of(-2.0, -1.0), Some(50.0), "of the old number's size");
        assert_eq!((of(0.0, 0.0), of(0.0, 4.0)), (Some(0.0), None));
    }

    #[test]
    fn percent_change_is_positive_where_better() {
        let change = |better, baseline, new| percent_change(better, Pair { baseline, new });
        assert_near(change(Better::Lower, 2271.0, 1675.0), 26.243_945);
        assert_near(change(Better::Higher, 200_699.07, 210_699.11), 4.982_604);
        assert_eq!(change(Better::None, 1.0, 2.0), None);
    }

    #[test]
    fn percent_change_keeps_the_special_cases() {
        let change = |better, baseline, new| percent_change(better, Pair { baseline, new });
        assert_eq!(change(Better::Lower, 0.0, 0.0), Some(0.0));
        assert_eq!(change(Better::Lower, 5.0, 0.0), Some(100.0));
        assert_eq!(change(Better::Lower, 0.0, 5.0), Some(-99.0));
        assert_eq!(change(Better::Higher, 5.0, 0.0), Some(-100.0));
        assert_eq!(change(Better::Higher, 0.0, 5.0), Some(100.0));
        assert_eq!(change(Better::Lower, -1.0, 5.0), Some(0.0));
        assert_eq!(change(Better::Higher, 5.0, -1.0), Some(0.0));
    }

    /// Student's own example of 1908, hours of sleep that ten patients gained from two drugs, as R computes it: `t.test(extra ~
    /// group, sleep, paired = TRUE)` and without pairs.
    #[test]
    fn intervals_of_a_difference_are_those_of_a_worked_example() {
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let pairs = first.iter().zip(&second).map(|(&baseline, &new)| Pair { baseline, new });
        let paired = paired_interval(&pairs.collect::<Vec<_>>()).expect("ten pairs");
        assert_near(Some(paired.low), 0.700_114_2);
        assert_near(Some(paired.high), 2.459_885_8);
        let apart = Estimate::welch(&first, &second).and_then(Estimate::interval).expect("ten each");
        assert_near(Some(apart.low), -0.205_483_2);
        assert_near(Some(apart.high), 3.365_483_2);
    }

    #[test]
    fn intervals_need_runs_and_may_be_points() {
        assert_eq!(paired_interval(&[Pair { baseline: 1.0, new: 2.0 }]), None);
        assert!(Estimate::welch(&[1.0, 2.0], &[3.0]).is_none());
        let point = Some(Interval { low: 1.0, high: 1.0 });
        assert_eq!(paired_interval(&[Pair { baseline: 1.0, new: 2.0 }; 3]), point);
        assert_eq!(Estimate::welch(&[1.0, 1.0], &[2.0, 2.0, 2.0]).and_then(Estimate::interval), point);
    }

    /// Intervals at the numbers of runs in Student's tables of 1908 and later: they shrink with more runs.
    #[test]
    fn an_interval_shrinks_with_runs() {
        let half = |freedom: f64| interval(0.0, 1.0, freedom).map(|interval| interval.high);
        for (freedom, expected) in
            [(1.0, 12.706_205), (4.0, 2.776_445), (7.0, 2.364_624), (19.0, 2.093_024), (1e3, 1.962_339)]
        {
            assert_near(half(freedom), expected);
        }
    }
}
