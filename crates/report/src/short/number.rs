//! The width of a line and the marks in it; numbers in few characters: three digits, and as many as they need to differ.

use crate::stats::{self, Pair};

/// Characters of a line.
pub const WIDTH: usize = 80;

/// Mark of a change that the test separates from zero and that is large enough to matter.
pub(super) const STAR: char = '*';
/// Mark of a value whose price was chosen so that the published value comes out.
pub(super) const FITTED: char = 'f';
/// Mark of a published value that is known not to come out.
pub(super) const WRONG: char = '!';

/// From this ratio on, a factor is easier to read than a percentage.
const MANY_TIMES: f64 = 10.0;
/// Printed for a change from zero, where the number itself says the size.
pub(crate) const NEW: &str = "new";
/// Printed where a model has a number and the kernel has zero.
const OVER_ZERO: &str = "over 0";
/// Printed for a range whose ends print the same.
pub(super) const SAME: &str = "=";
/// Letters for powers of a thousand, the largest first.
const SCALES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];

/// Three digits, or four where the number is below 10,000: `0.42`, `7551`, `639k`, `1.05M`. At most nine characters.
pub fn number(value: f64) -> String {
    let (digits, letter) = parts(value);
    format!("{digits}{letter}")
}

/// A range of numbers, with the letter once if it is the same: `1.41-1.45M`. At most 20 characters.
pub(super) fn range(low: f64, high: f64) -> String {
    let ((low_digits, low_letter), (high_digits, high_letter)) = (parts(low), parts(high));
    let mark = if low < 0.0 { ".." } else { "-" };
    if (&low_digits, low_letter) == (&high_digits, high_letter) {
        return SAME.to_owned();
    }
    let low_letter = if low_letter == high_letter { "" } else { low_letter };
    format!("{low_digits}{low_letter}{mark}{high_digits}{high_letter}")
}

/// The change from the baseline in per cent; as a factor if the new number is ten times the baseline or more. A fall to zero
/// is -100 %.
pub(super) fn change(pair: Pair<f64>) -> String {
    let Some(percent) = stats::change(pair) else { return NEW.to_owned() };
    let Pair { baseline, new } = pair;
    let times = new / baseline;
    if times >= MANY_TIMES {
        return if times < 999.5 { format!("x{times:.0}") } else { format!("x{}", number(times)) };
    }
    match percent.abs() {
        small if small < 0.5 => "0%".to_owned(),
        middle if middle < 999.5 => format!("{percent:+.0}%"),
        large => format!("{}{}%", if percent < 0.0 { "-" } else { "+" }, number(large)),
    }
}

/// The model's number as a multiple of the real one: `x0.42`.
pub(super) fn ratio(Pair { baseline, new }: Pair<f64>) -> String {
    match (baseline == 0.0, new == 0.0) {
        (true, true) => "x1".to_owned(),
        (true, false) => OVER_ZERO.to_owned(),
        _ => match new / baseline {
            times if (0.995..9.995).contains(&times) => format!("x{times:.1}"),
            times if (0.095..0.995).contains(&times) => format!("x{times:.2}"),
            times => format!("x{}", number(times)),
        },
    }
}

fn parts(value: f64) -> (String, &'static str) {
    let size = value.abs();
    if size == 0.0 {
        return ("0".to_owned(), "");
    }
    if !(1e-3..9.995e14).contains(&size) {
        return (format!("{value:.1e}"), "");
    }
    let whole = value.fract() == 0.0;
    match SCALES.iter().find(|(scale, _)| size >= 0.9995 * scale).filter(|_| size >= 9999.5) {
        Some((scale, letter)) => (three_digits(value / scale), letter),
        None if whole || size >= 999.5 => (format!("{value:.0}"), ""),
        None => (three_digits(value), ""),
    }
}

fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_three_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (0.000_4, "4.0e-4"),
            (0.042, "0.042"),
            (0.9996, "1.00"),
            (3.333_3, "3.33"),
            (17.0, "17"),
            (63.94, "63.9"),
            (639.4, "639"),
            (7551.3, "7551"),
            (9999.6, "10.0k"),
            (639_000.0, "639k"),
            (999_600.0, "1.00M"),
            (1_050_000.0, "1.05M"),
            (-12_345.0, "-12.3k"),
            (4e13, "40.0T"),
            (1e300, "1.0e300"),
        ] {
            assert_eq!(number(value), expected, "{value}");
        }
    }

    #[test]
    fn a_range_says_its_letter_once() {
        assert_eq!(range(1510.0, 1604.4), "1510-1604");
        assert_eq!(range(1_410_000.0, 1_450_000.0), "1.41-1.45M");
        assert_eq!(range(980_000.0, 1_040_000.0), "980k-1.04M");
        assert_eq!(range(-3.0, 4.0), "-3..4");
        assert_eq!(range(7.0, 7.0), "=");
        assert_eq!(range(7000.1, 7000.2), "=");
    }

    #[test]
    fn a_number_that_falls_to_zero_has_lost_all() {
        let of = |baseline, new| change(Pair { baseline, new });
        assert_eq!(of(79.3, 0.0), "-100%");
        assert_eq!(of(-79.3, 0.0), "+100%");
        assert_eq!(of(0.0, 0.0), "0%");
        assert_eq!(of(0.0, 4.0), "new");
        assert_eq!(of(7551.0, 1500.0), "-80%");
        assert_eq!(of(1000.0, 1052.0), "+5%");
        assert_eq!(of(1000.0, 995.6), "0%");
        assert_eq!(of(0.58, 79.3), "x137");
        assert_eq!(of(100.0, 999.0), "+899%");
    }

    #[test]
    fn a_model_is_so_many_times_its_kernel() {
        let of = |baseline, new| ratio(Pair { baseline, new });
        assert_eq!(of(100.0, 42.0), "x0.42");
        assert_eq!(of(100.0, 0.0), "x0");
        assert_eq!(of(0.0, 0.0), "x1");
        assert_eq!(of(0.0, 5.0), "over 0");
        assert_eq!(of(100.0, 114.0), "x1.1");
        assert_eq!(of(100.0, 0.4), "x0.004");
    }
}
