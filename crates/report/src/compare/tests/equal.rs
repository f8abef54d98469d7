//! Noughts, and false stars: each kind of number with and without a change.

use super::*;

/// A row in a unit, of two simulated columns with the same seeds.
fn in_unit(unit: &str, old: &[f64], new: &[f64]) -> Compared {
    let row = Row { unit: unit.to_owned(), better: Better::None, ..row("case", old, new) };
    compared(vec![row]).rows.remove(0)
}

const COUNT: &str = "movement of the counter per run";

#[test]
fn a_counter_that_goes_to_or_from_nought_has_a_verdict() {
    // Stalls of six seeds of a real sweep: from 28 to 118, and none.
    let stalls = [28.0, 118.0, 92.0, 71.0, 103.0, 85.0];
    let none = [0.0; 6];
    let fall = in_unit(COUNT, &stalls, &none);
    assert_eq!((fall.verdict, fall.change_percent), (Verdict::Differs, Some(-100.0)));
    let rise = in_unit(COUNT, &none, &stalls);
    assert_eq!((rise.verdict, rise.change_percent, rise.difference()), (Verdict::Differs, None, rise.new));
    let constant = in_unit(COUNT, &none, &[50.0; 6]);
    assert_eq!((constant.verdict, constant.change_percent), (Verdict::Differs, None));
    assert_eq!(in_unit(COUNT, &none, &none).verdict, Verdict::Same);
    // It is told among a hundred counters that are only noise.
    let mut draws = Normal(11);
    let mut noise = || (0..6).map(|_| (500.0 + 60.0 * draws.next()).round()).collect::<Vec<f64>>();
    let mut rows: Vec<Row> = (0..100).map(|at| row(&format!("noise-{at}"), &noise(), &noise())).collect();
    rows.push(row("stalls", &stalls, &none));
    let rows = rows.into_iter().map(|row| Row { unit: COUNT.to_owned(), ..row });
    let judged = compared(rows.collect());
    assert!(judged.rows.last().is_some_and(|row| row.verdict.is_starred()), "{:?}", judged.rows.last());
    let text = compare_text(&judged, false, false);
    assert!(text.starts_with("moved: 1 of 101 rows: Amean stalls -100%\n"), "{text}");
    assert!(text.contains(" 82.8       0   -100%* "), "{text}");
    let from =
        compare_text(&compared(vec![Row { unit: COUNT.to_owned(), ..row("stalls", &none, &stalls) }]), false, false);
    assert!(from.contains("       0    82.8     new* "), "{from}");
}

#[test]
fn a_rise_from_nought_fails_a_bound() {
    let rise = |runs: [f64; 6]| compared(vec![Row { unit: COUNT.to_owned(), ..row("stalls", &[0.0; 6], &runs) }]);
    let fails = |comparison: &Comparison, text: &str| {
        let failed = text.parse::<FailOn>().unwrap().failed(comparison);
        failed.map(|rows| !rows.is_empty()).map_err(|error| error.to_string())
    };
    let large = rise([28.0, 118.0, 92.0, 71.0, 103.0, 85.0]);
    for (condition, expected) in [("amean:stalls>5%", true), ("amean:stalls>40", true), ("amean:stalls>80", false)] {
        assert_eq!(fails(&large, condition), Ok(expected), "{condition}");
    }
    // Two stalls more are no material change: of counts that takes ten a run.
    assert_eq!(fails(&rise([2.0; 6]), "amean:stalls>1"), Ok(false));
}

#[test]
fn a_mean_that_few_runs_pull_has_no_star_the_other_way() {
    // Most runs rise, and the mean falls.
    let (old, new) = ([1.0, 1.1, 1.2, 1.0, 1.1, 900.0], [50.0, 52.0, 55.0, 51.0, 53.0, 54.0]);
    let found = in_unit("us", &old, &new);
    assert!(found.difference() < 0.0 && !found.verdict.is_starred(), "{found:?}");
}

#[test]
fn seconds_are_no_counts() {
    let old = [0.265, 0.262, 0.268, 0.266, 0.264, 0.267];
    let new = old.map(|run: f64| run * 0.339 / 0.265);
    for (unit, expected) in [
        ("s", Verdict::Differs),
        ("ns", Verdict::Differs),
        ("faults/s", Verdict::Differs),
        ("GiB", Verdict::Differs),
        ("pct", Verdict::NoChange),
        (COUNT, Verdict::NoChange),
    ] {
        assert_eq!(in_unit(unit, &old, &new).verdict, expected, "{unit}");
    }
    let fails = |percent: u32| {
        let comparison = compared(vec![Row { unit: "s".to_owned(), ..row("System", &old, &new) }]);
        !format!("amean:System>{percent}%").parse::<FailOn>().unwrap().failed(&comparison).unwrap().is_empty()
    };
    assert!(fails(5) && !fails(40));
}

/// Draws of one distribution.
struct Draws(Normal);

impl Draws {
    /// A number around a mean; the standard deviation of its logarithm is `spread`.
    fn around(&mut self, mean: f64, spread: f64) -> f64 {
        mean * libm::exp(spread * self.0.next())
    }

    /// True with a probability of `percent` per cent.
    fn is_one_of(&mut self, percent: f64) -> bool {
        // The sum of twelve uniform numbers, less 6: the part of it after the point is uniform.
        (self.0.next() + 6.0).fract() * 100.0 < percent
    }
}

/// Name and unit of a kind of row, and how a number of it is drawn.
type KindOfRow = (&'static str, &'static str, fn(&mut Draws) -> f64);

/// Kinds of numbers.
const KINDS: [KindOfRow; 10] = [
    ("a counter", COUNT, |draws| draws.around(3000.0, 0.3).round()),
    ("a small counter", COUNT, |draws| draws.around(30.0, 0.6).round()),
    ("a counter that is mostly nought", COUNT, |draws| {
        if draws.is_one_of(75.0) { 0.0 } else { draws.around(200.0, 0.8).round() }
    }),
    ("a counter that is nought half of the time", COUNT, |draws| {
        if draws.is_one_of(50.0) { 0.0 } else { draws.around(4000.0, 0.5).round() }
    }),
    ("a counter that is nought at times", COUNT, |draws| {
        if draws.is_one_of(20.0) { 0.0 } else { draws.around(80.0, 0.4).round() }
    }),
    ("a time", "us", |draws| draws.around(12.0, 0.1)),
    ("a time with a long tail", "s", |draws| {
        if draws.is_one_of(10.0) { draws.around(40.0, 0.5) } else { draws.around(8.0, 0.1) }
    }),
    ("a share", "pct", |draws| (60.0 + 12.0 * draws.0.next()).clamp(0.0, 100.0)),
    ("a share at its end", "pct", |draws| (98.0 + 4.0 * draws.0.next()).clamp(0.0, 100.0)),
    ("a rate", "faults/s", |draws| draws.around(2e6, 0.05)),
];

#[test]
fn at_most_6_in_100_unchanged_pairs_have_a_star() {
    for are_paired in [true, false] {
        for runs in [6, 8] {
            let mut all = 0;
            for (at, (kind, unit, draw)) in (0_u64..).zip(KINDS) {
                let mut draws = Draws(Normal(100 + at + runs));
                let mut side = || (0..runs).map(|_| draw(&mut draws)).collect::<Vec<f64>>();
                let mut starred = 0;
                for _ in 0..500 {
                    let mut row = Row { unit: unit.to_owned(), ..row(kind, &side(), &side()) };
                    if !are_paired {
                        let new = row.cells[1].as_mut().expect("it has runs");
                        new.of_seeds = new.of_seeds.iter().map(|(seed, run)| (seed + 1000, *run)).collect();
                    }
                    starred += usize::from(compared(vec![row]).rows[0].verdict.is_starred());
                }
                // Of 500 draws at 5 % there are 39 in the worst of a hundred.
                assert!(starred <= 39, "{starred} of 500: {kind}, {runs} runs, paired: {are_paired}");
                all += starred;
            }
            assert!(all <= 300, "{all} of 5000 pairs, {runs} runs, paired: {are_paired}");
        }
    }
}
