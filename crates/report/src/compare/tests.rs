//! Verdicts of runs that are known.

mod equal;
mod summary;

use std::collections::BTreeMap;

use super::{test::mann_whitney, *};
use crate::{
    record::Column,
    table::{ColumnHead, Form, Layout, Value},
};

fn runs(values: &[f64]) -> BTreeMap<u64, f64> {
    (1..).zip(values.iter().copied()).collect()
}

fn row(name: &str, old: &[f64], new: &[f64]) -> Row {
    let value = |values: &[f64]| {
        let mean = crate::stats::amean(values).expect("there are some");
        Some(Value { value: mean, of_seeds: runs(values), ..Value::default() })
    };
    Row {
        metric: "latency_us.Amean".to_owned(),
        case: name.to_owned(),
        stat: "Amean".to_owned(),
        operation: name.to_owned(),
        better: Better::Lower,
        unit: "us".to_owned(),
        form: Form::Hundredths,
        cells: vec![value(old), value(new)],
    }
}

fn compared(rows: Vec<Row>) -> Comparison {
    Comparison::of(&report_of(rows), Gates::default())
}

/// A table of two simulated columns.
fn report_of(rows: Vec<Row>) -> Report {
    let column = |result: &str| Column {
        result: Some(result.to_owned()),
        target: Target::Sim,
        kernel: "v6.1".to_owned(),
        machine: "m".to_owned(),
    };
    let head = |result| ColumnHead { column: column(result), lines: Vec::new(), baseline: 0 };
    let table = Table {
        experiment: "e".to_owned(),
        title: "e Latency".to_owned(),
        kind: Kind::Metric,
        unit: "us".to_owned(),
        better: Better::Lower,
        columns: vec![head("a"), head("b")],
        rows,
    };
    Report { layout: Layout::Head, tables: vec![table], checks: Vec::new() }
}

fn verdict(old: &[f64], new: &[f64]) -> Verdict {
    compared(vec![row("case", old, new)]).rows[0].verdict
}

/// Draws that are spread like a normal distribution.
pub(super) struct Normal(pub(super) u64);

impl Normal {
    pub(super) fn next(&mut self) -> f64 {
        let mut uniform = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) as f64 + 0.5) / f64::from(1_u32 << 31)
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }
}

#[test]
fn verdicts_are_words() {
    let old = [100.0, 104.0, 98.0, 101.0, 97.0, 103.0, 99.0, 102.0];
    let times = |factor: f64| old.map(|run| run * factor);
    assert_eq!(verdict(&old, &times(1.1)), Verdict::Worse);
    assert_eq!(verdict(&old, &times(0.9)), Verdict::Better);
    assert_eq!(verdict(&old, &old), Verdict::Same);
    let near = [100.1, 103.9, 98.2, 100.8, 97.1, 103.1, 98.9, 102.1];
    assert_eq!(verdict(&old, &near), Verdict::NoChange, "pairs differ by less than the gate");
    let apart = [103.0, 97.0, 104.0, 98.0, 102.0, 99.0, 101.0, 100.0];
    assert_eq!(verdict(&old, &apart), Verdict::CannotTell);
    // Separated, and too small to matter.
    assert_eq!(verdict(&old, &times(1.001)), Verdict::NoChange);
    assert_eq!(verdict(&[1.0], &[2.0]), Verdict::OneRun);
    assert_eq!(verdict(&[1.0; 4], &[2.0; 4]), Verdict::DiffersInAll);
    assert_eq!(verdict(&[1.0; 5], &[2.0; 5]), Verdict::Worse);
    assert_eq!(verdict(&[0.0, 0.0, 0.0, 0.0, 0.0], &[0.0; 5]), Verdict::Same);
}

#[test]
fn many_rows_ask_more_of_each() {
    // p of 0.02 alone is enough, and of ten rows it is not.
    let old = [100.0, 100.0, 100.0, 100.0, 100.0];
    let new = [101.5, 104.0, 100.5, 103.0, 105.0];
    assert_eq!(verdict(&old, &new), Verdict::Worse);
    let many = (0..10).map(|n| row(&format!("case-{n}"), &old, &new)).collect();
    assert!(compared(many).rows.iter().all(|row| row.verdict == Verdict::CannotTell));
    assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
    assert_eq!(holm(&[]), [0.0; 0]);
}

/// Student's example of 1908, as R has it: `t.test(extra ~ group, sleep, paired = TRUE)`, without, and `wilcox.test`.
#[test]
fn p_is_that_of_a_worked_example() {
    let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
    let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
    let (old, new) = (runs(&first), runs(&second));
    let p = |are_simulated| test::of(Pair { baseline: &old, new: &new }, Quantity::Time, are_simulated).p().unwrap();
    assert!((p(true) - 0.002_832_890).abs() < 1e-8, "{}", p(true));
    assert!((p(false) - 0.079_394_14).abs() < 1e-7, "{}", p(false));
    assert!((mann_whitney(&first, &second) - 0.069_328).abs() < 1e-5);
}

#[test]
fn at_most_1_in_20_unchanged_tables_has_a_star() {
    for pairs in [true, false] {
        let mut draws = Normal(if pairs { 3 } else { 4 });
        let mut starred = 0;
        for _ in 0..200 {
            // Rows of a table spread by different amounts, and runs of one seed have something in common.
            let rows = (0..18).map(|at| {
                let spread = 2.0 + f64::from(at);
                let mut common = Vec::new();
                let mut side = || -> Vec<f64> {
                    (0..20)
                        .map(|run| {
                            if common.len() <= run {
                                common.push(draws.next() * spread);
                            }
                            200.0 + common[run] + draws.next() * spread
                        })
                        .collect()
                };
                row(&format!("case-{at}"), &side(), &side())
            });
            let mut rows: Vec<Row> = rows.collect();
            if !pairs {
                for cell in rows.iter_mut().filter_map(|row| row.cells[1].as_mut()) {
                    cell.of_seeds = cell.of_seeds.iter().map(|(seed, run)| (seed + 1000, *run)).collect();
                }
            }
            starred += usize::from(compared(rows).rows.iter().any(|row| row.verdict.is_starred()));
        }
        assert!(starred <= 16, "{starred} of 200 tables have a star, pairs: {pairs}");
    }
}

#[test]
fn a_shift_of_a_deviation_and_a_quarter_is_seen() {
    let mut draws = Normal(5);
    let mut seen = 0;
    for _ in 0..100 {
        let rows = (0..18).map(|at| {
            let old: Vec<f64> = (0..20).map(|_| 400.0 + 20.0 * draws.next()).collect();
            let shift = if at == 7 { 1.25 * 10.0 } else { 0.0 };
            let new: Vec<f64> = old.iter().map(|run| run + shift + 10.0 * draws.next()).collect();
            row(&format!("case-{at}"), &old, &new)
        });
        seen += usize::from(compared(rows.collect()).rows[7].verdict == Verdict::Worse);
    }
    assert!(seen >= 90, "{seen} of 100");
}

#[test]
fn a_condition_names_a_row_and_fails_beyond_its_bound() {
    let old = [100.0, 104.0, 98.0, 101.0, 97.0, 103.0, 99.0, 102.0];
    let comparison = compared(vec![row("base-3", &old, &old.map(|run| run * 1.1 + run % 3.0 / 10.0))]);
    let fails = |text: &str| {
        text.parse::<FailOn>()
            .unwrap()
            .failed(&comparison)
            .map(|rows| !rows.is_empty())
            .map_err(|error| error.to_string())
    };
    assert_eq!(fails("amean:base-3>5%"), Ok(true));
    assert_eq!(fails("amean:base-3>12%"), Ok(false));
    assert_eq!(fails("amean:base-3<-5%"), Ok(false));
    assert_eq!(fails("latency_us.Amean:base-3>0%"), Ok(true));
    assert_eq!((fails("latency_us.amean>5%"), fails("amean>12%")), (Ok(true), Ok(false)), "all of its rows");
    assert_eq!((fails("amean:base-3>9"), fails("amean:base-3>12")), (Ok(true), Ok(false)), "in the row's unit");
    let error = fails("amean:bas-3>5%").unwrap_err();
    assert!(error.contains("nearest: amean:base-3"), "{error}");
    for bad in ["amean", "amean:x", "amean:>5", "amean:x>-5%", ":x>5%", "amean:x<5%", "amean:x>many"] {
        assert!(bad.parse::<FailOn>().is_err(), "{bad}");
    }
}

#[test]
fn a_table_fits_a_mail() {
    let old = [100.0, 104.0, 98.0, 101.0, 97.0, 103.0, 99.0, 102.0];
    let apart = [103.0, 97.0, 104.0, 98.0, 102.0, 99.0, 101.0, 100.0];
    let comparison =
        compared(vec![row("fault-base-1", &old, &old.map(|run| run * 1.1 + run % 3.0)), row("b", &old, &apart)]);
    for full in [false, true] {
        let text = compare_text(&comparison, full, false);
        assert!(text.lines().all(|line| line.chars().count() <= 72), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.starts_with("moved: 1 of 2 rows: Amean fault-base-1 +11.1% worst: "), "{text}");
        assert_eq!(words.contains("b 100 100"), full, "rows without a star are for --full: {text}");
        assert!(words.contains("worse") && words.contains("5 % takes"), "{text}");
        assert_eq!(words.contains("cannot tell"), full, "{text}");
    }
    assert!(compare_text(&comparison, false, true).contains("| Amean fault-base-1 |"));
    assert_eq!(compare_csv(&comparison).lines().count(), 3);
}

#[test]
fn noise_says_what_runs_can_see() {
    // Logarithms spread by 2 %: with 20 runs of each, 2.8 standard errors of 0.63 % are 1.8 %.
    let mut draws = Normal(6);
    let old: Vec<f64> = (0..20).map(|_| 100.0 * libm::exp(0.02 * draws.next())).collect();
    let comparison = compared(vec![row("a", &old, &old)]);
    assert_eq!(comparison.rows[0].verdict, Verdict::Same);
    let found = test::spread(&old).unwrap();
    assert!((1.4..2.6).contains(&found.percent), "{found:?}");
    assert!((0.85..1.0).contains(&(found.sees_percent / found.percent / 0.95)), "{found:?}");
    assert!((3..=6).contains(&found.runs_for_asked), "{found:?}");
    assert_eq!(test::spread(&[1.0]), None);
    assert_eq!(test::spread(&[1.0, 0.0]), None);
    assert_eq!(test::spread(&[2.0, 2.0]), None);
}
