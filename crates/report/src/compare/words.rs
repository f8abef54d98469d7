//! The name of a row, its change and its interval, in few characters.

use super::{Compared, Geometric, Tested, test::Bounds};
use crate::short::NEW;

/// The name of a row; counters have no statistic.
pub(super) fn name_of(stat: &str, operation: &str) -> String {
    if ["Ops", ""].contains(&stat) { operation.to_owned() } else { format!("{stat} {operation}") }
}

/// A change with as many digits as can be read; from nought it is `new`, and the number beside it is its size.
pub(super) fn of_percent(percent: Option<f64>) -> String {
    let Some(percent) = percent else { return NEW.to_owned() };
    match percent.abs() {
        size if size >= 1000.0 => format!("x{}", crate::short::number_of(1.0 + percent / 100.0)),
        size if size >= 100.0 => format!("{percent:+.0}%"),
        _ => format!("{percent:+.1}%"),
    }
}

/// The change in per cent, as a table has it.
pub(super) fn change(row: &Compared) -> String {
    match &row.tested {
        Tested::Same => "=".to_owned(),
        _ => of_percent(row.change_percent),
    }
}

/// The interval of geometric means in per cent, or else in brackets that of differences.
pub(super) fn interval(geometric: Option<Geometric>, differences: Option<Bounds>) -> String {
    let end = |value: f64| match value.abs() {
        size if size >= 99.5 => crate::short::number_of(value.round()),
        _ => format!("{value:.1}"),
    };
    match (geometric, differences) {
        (Some(percent), _) => format!("{}..{}", end(percent.low), end(percent.high)),
        // Without logarithms it is of differences, in the unit of the row.
        (None, Some(bounds)) => format!("({}..{})", end(bounds.low), end(bounds.high)),
        (None, None) => String::new(),
    }
}
