//! Made-up cells with a planted cause.

use super::*;
use crate::{made_up, record::Metric};

/// Noise of a seed, the same on each build.
fn noise(seed: u64, stream: u64) -> i64 {
    i64::try_from((seed * 7919 + stream * 104_729).wrapping_mul(2_654_435_761) % 11).expect("small")
}

/// A cell in which the patched kernel does not compact.
fn cell(kernel: &str, seed: u64) -> Cell {
    let is_old = kernel == "old";
    let compacting = if is_old { 5_000 + 40 * noise(seed, 1) } else { 100 + noise(seed, 1) };
    // Luck: the draws of the two columns differ, and not their mean.
    let lucky = 1_000 + 40 * noise(seed, if is_old { 2 } else { 3 });
    let ps = |ms: i64| u64::try_from(ms).expect("positive") * 1_000_000_000;
    let time = (compacting + 2_000) as f64;
    let metric = Metric {
        name: "fault_latency_us".into(),
        class: Some("fault-huge".into()),
        part: None,
        unit: "us".into(),
        better: Better::Lower,
        samples: vec![time, time + 2.0],
    };
    let counters = [("compact_stall", compacting), ("pgfault", lucky), ("pgalloc", 5_000)];
    let causes = [("scan", compacting), ("clear", lucky), ("waiting: disk", 700 + noise(seed, 4))];
    let mut cell = made_up::cell(kernel, seed);
    cell.measured.metrics.push(metric);
    cell.measured.counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
    cell.measured.causes = causes.map(|(name, ms)| (name.to_owned(), ps(ms))).into();
    cell.key.case = "7".into();
    cell
}

fn of(seeds: u64, row: &str) -> Result<Between, BetweenError> {
    let cells: Vec<Cell> =
        ["old", "new"].into_iter().flat_map(|kernel| (1..=seeds).map(move |seed| cell(kernel, seed))).collect();
    let columns = ["old", "new"].map(|kernel| cell(kernel, 1).key.column());
    Between::of(Layout::Head, &cells, [&columns[0], &columns[1]], row)
}

fn names(between: &Between) -> Vec<&str> {
    between.explained.iter().map(|one| one.name.as_str()).collect()
}

#[test]
fn a_planted_cause_comes_first_and_luck_is_left_out() {
    let between = of(6, "amean:fault-huge-7").expect("a row");
    assert_eq!(between.row.verdict, Verdict::Better);
    assert_eq!(names(&between), ["CPU: scan", "compact_stall"]);
    assert_eq!((between.looked_at, between.within_luck), (6, 4));
    let [cause, counter] = &between.explained[..] else { panic!("two") };
    assert!(cause.share_percent.is_some_and(|share| share > 90.0), "{cause:?}");
    assert!(counter.correlation.is_some_and(|correlation| correlation > 0.99), "{counter:?}");
    let text = between_text(&between);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("more than luck (better"), "{text}");
}

#[test]
fn a_row_that_is_a_counter_is_not_explained_by_itself() {
    assert!(names(&of(6, "compact_stall:7").expect("a row")).is_empty());
}

#[test]
fn one_seed_tells_nothing_from_luck() {
    let between = of(1, "fault_latency_us.Amean:fault-huge-7").expect("a row");
    assert_eq!(between.row.verdict, Verdict::OneRun);
    assert_eq!(between.explained[0].name, "CPU: scan");
    assert!(between.explained.iter().all(|one| one.correlation.is_none()));
    let text = between_text(&between);
    assert!(text.contains("one seed: nothing above can be told from luck"), "{text}");
}

#[test]
fn a_row_that_is_not_there_has_a_nearest_name() {
    let nearest = "amean:fault-huge-7".to_owned();
    let wanted = "amean:fault-huge-9".to_owned();
    assert_eq!(of(2, &wanted), Err(BetweenError::NoRow { wanted, nearest }));
    assert!(of(2, "").is_err());
}

#[test]
fn correlation_needs_pairs_and_spread() {
    let runs = |values: &[f64]| (1..).zip(values.iter().copied()).collect::<BTreeMap<u64, f64>>();
    let rising = runs(&[1.0, 2.0, 3.0, 4.0]);
    assert!((correlation(&rising, &runs(&[2.0, 4.0, 6.0, 8.0])).expect("four") - 1.0).abs() < 1e-12);
    assert!((correlation(&rising, &runs(&[4.0, 3.0, 2.0, 1.0])).expect("four") + 1.0).abs() < 1e-12);
    assert_eq!(correlation(&rising, &runs(&[1.0; 4])), None);
    assert_eq!(correlation(&runs(&[1.0, 2.0, 3.0]), &rising), None);
}
