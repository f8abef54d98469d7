//! A time series: the counters and gauges of a kernel at instants of one run, in one form for every target.
//!
//! Names are paths, with the kernel's own words: `pgfault` is the machine's, `node0/nr_free_pages` a node's (where the target
//! knows it by node; then the machine has no column of it), `node0/DMA32/free/3` the free blocks of one order in a zone
//! (/proc/buddyinfo), `node0/DMA32/blocks/Movable` its pageblocks of one type (/proc/pagetypeinfo), and
//! `node0/DMA32/blocks/free` those that are free from end to end. Huge pages are `node0/nr_anon_transparent_hugepages`.
//! In a run with guests of a simulated host, a name begins with its kernel: `host/pgfault`, `guest1/pgfault`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A time series as it is stored: names once, then rows of differences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// The time between two samples, in picoseconds. The last sample is taken at the end of the run, whatever the interval.
    pub every_ps: u64,
    /// Names of the values that changed during the run.
    pub columns: Vec<String>,
    /// Values that never changed, by name.
    pub still: BTreeMap<String, u64>,
    /// A row for each sample: microseconds since the start of the run, then the columns. Each number is the difference from the
    /// row before (for the first row, from 0), without the trailing zeroes.
    pub rows: Vec<Vec<i64>>,
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Microseconds since the start of the run.
    pub at_us: u64,
    /// The value of each column.
    pub values: Vec<u64>,
}

impl Series {
    /// Builds the series from samples, each of which has a value for every name.
    pub fn new(every_ps: u64, names: &[String], samples: &[Sample]) -> Self {
        let moves = |column: &usize| samples.windows(2).any(|pair| pair[0].values[*column] != pair[1].values[*column]);
        let (moving, resting): (Vec<usize>, Vec<usize>) = (0..names.len()).partition(moves);
        let first = |column: &usize| samples.first().map(|sample| (names[*column].clone(), sample.values[*column]));
        let mut before = vec![0; moving.len() + 1];
        let mut row = |sample: &Sample| {
            let now: Vec<u64> =
                std::iter::once(sample.at_us).chain(moving.iter().map(|column| sample.values[*column])).collect();
            let mut row: Vec<i64> = now.iter().zip(&before).map(|(now, then)| difference(*now, *then)).collect();
            before = now;
            while row.last() == Some(&0) {
                row.pop();
            }
            row
        };
        Self {
            every_ps,
            rows: samples.iter().map(&mut row).collect(),
            columns: moving.iter().map(|column| names[*column].clone()).collect(),
            still: resting.iter().filter_map(first).collect(),
        }
    }

    /// The samples of the series, with the values of [`Self::columns`].
    pub fn samples(&self) -> Vec<Sample> {
        let mut now = vec![0_u64; self.columns.len() + 1];
        let sample = |row: &Vec<i64>| {
            for (value, moved) in now.iter_mut().zip(row) {
                *value = value.wrapping_add_signed(*moved);
            }
            Sample { at_us: now[0], values: now[1..].to_vec() }
        };
        self.rows.iter().map(sample).collect()
    }

    /// The series with the samples of these indices, in rising order.
    ///
    /// # Panics
    /// When there is no sample of an index.
    #[must_use]
    pub fn only(&self, indices: &[usize]) -> Self {
        let samples = self.samples();
        let mut before = vec![0; self.columns.len() + 1];
        let mut row = |at: &usize| {
            let now: Vec<u64> =
                std::iter::once(samples[*at].at_us).chain(samples[*at].values.iter().copied()).collect();
            let mut row: Vec<i64> = now.iter().zip(&before).map(|(now, then)| difference(*now, *then)).collect();
            before = now;
            while row.last() == Some(&0) {
                row.pop();
            }
            row
        };
        Self { rows: indices.iter().map(&mut row).collect(), ..self.clone() }
    }

    /// Looks up the values of one sample by name.
    ///
    /// # Panics
    /// When there is no sample of that index.
    pub fn at(&self, sample: usize) -> impl Fn(&str) -> Option<u64> {
        let values = self.samples().swap_remove(sample).values;
        move |name| match self.columns.iter().position(|column| column == name) {
            Some(column) => Some(values[column]),
            None => self.still.get(name).copied(),
        }
    }

    /// Every name in the series, whether or not its value changed, in name order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.columns.iter().chain(self.still.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

/// The difference of two values. Values are below 2^63, or differ by less.
fn difference(now: u64, then: u64) -> i64 {
    now.wrapping_sub(then).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Sample> {
        let of = |at_us, values: [u64; 4]| Sample { at_us, values: values.to_vec() };
        vec![
            of(7, [100, 5, 3, 9]),
            of(1_000_007, [90, 5, 3, 9]),
            of(2_000_007, [90, 5, 4, 9]),
            of(2_000_009, [95, 5, 4, 9]),
        ]
    }

    #[test]
    fn names_stand_once_and_rows_are_differences() {
        let names = ["falls", "rests", "grows", "rests too"].map(str::to_owned);
        let series = Series::new(1_000_000_000_000, &names, &samples());
        let json = concat!(
            r#"{"every_ps":1000000000000,"columns":["falls","grows"],"still":{"rests":5,"rests too":9},"#,
            r#""rows":[[7,100,3],[1000000,-10],[1000000,0,1],[2,5]]}"#
        );
        assert_eq!(serde_json::to_string(&series).unwrap(), json);
        let back: Series = serde_json::from_str(json).unwrap();
        assert_eq!(back, series);
        let kept: Vec<Sample> = samples()
            .into_iter()
            .map(|sample| Sample { values: vec![sample.values[0], sample.values[2]], ..sample })
            .collect();
        assert_eq!(back.samples(), kept);
        assert_eq!(back.names(), ["falls", "grows", "rests", "rests too"]);
    }

    #[test]
    fn some_samples_have_the_values_they_had() {
        let series = Series::new(1, &["falls", "rests", "grows", "rests too"].map(str::to_owned), &samples());
        let some = series.only(&[0, 3]);
        let all = series.samples();
        assert_eq!(some.samples(), [all[0].clone(), all[3].clone()]);
        assert_eq!(series.only(&[0, 1, 2, 3]), series);
    }

    #[test]
    fn a_run_of_no_samples_is_a_series_too() {
        let series = Series::new(1, &["a".to_owned()], &[]);
        assert_eq!((series.samples(), series.names()), (vec![], vec![]));
    }

    #[test]
    fn values_beyond_half_of_64_bits_come_back() {
        let of = |at_us, value| Sample { at_us, values: vec![value] };
        let samples = [of(0, u64::MAX), of(1, 3), of(2, 1 << 63)];
        assert_eq!(Series::new(1, &["a".to_owned()], &samples).samples(), samples);
    }

    /// A sample per second for 200 s, and a sample per minute for a day: ten columns that always move, fifty that sometimes do.
    #[test]
    fn a_day_is_less_than_a_megabyte() {
        let names: Vec<String> = (0..400).map(|n| format!("node0/nr_of_a_common_length_{n}")).collect();
        let value = |n: u64, at: u64| match n {
            0..10 => at * (1000 + n * 977 % 4096),
            10..60 => at / (n % 7 + 2) * n,
            _ => n,
        };
        let sample = |at: u64| Sample { at_us: at * 60_000_000, values: (0..400).map(|n| value(n, at)).collect() };
        let length = |samples: u64| {
            let samples: Vec<Sample> = (0..samples).map(sample).collect();
            serde_json::to_string(&Series::new(60_000_000_000_000, &names, &samples)).unwrap().len()
        };
        assert!(length(200) < 100_000, "{}", length(200));
        assert!(length(1441) < 400_000, "{}", length(1441));
    }
}
