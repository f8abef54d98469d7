//! The name of a row, its change and the change's interval, in few characters.

use super::{Compared, Geometric, Tested, test::Bounds};
use crate::short::NEW;

/// The short name of a row; counters have no statistic.
pub(super) fn name_of(stat: &str, operation: &str) -> String {
    if ["Ops", ""].contains(&stat) { operation.to_owned() } else { format!("{stat} {operation}") }
}

/// A change in per cent, rounded to the digits that can be read. A change from zero is printed as `new`, and its size
/// is the number beside it.
pub(super) fn of_percent(percent: Option<f64>) -> String {
    let Some(percent) = percent else { return NEW.to_owned() };
    match percent.abs() {
        size if size >= 1000.0 => format!("x{}", crate::short::number_of(1.0 + percent / 100.0)),
        size if size >= 100.0 => format!("{percent:+.0}%"),
        _ => format!("{percent:+.1}%"),
    }
}

/// The change in per cent, as a table prints it.
pub(super) fn change(row: &Compared) -> String {
    match &row.tested {
        Tested::Same => "=".to_owned(),
        _ => of_percent(row.change_percent),
    }
}

/// The interval of the change of geometric means in per cent, or else the interval of the difference, in brackets.
pub(super) fn interval(geometric: Option<Geometric>, differences: Option<Bounds>) -> String {
    let end = |value: f64| match value.abs() {
        size if size >= 99.5 => crate::short::number_of(value.round()),
        _ => format!("{value:.1}"),
    };
    match (geometric, differences) {
        (Some(percent), _) => format!("{}..{}", end(percent.low), end(percent.high)),
        // Without logarithms the interval is of the difference, in the unit of the row.
        (None, Some(bounds)) => format!("({}..{})", end(bounds.low), end(bounds.high)),
        (None, None) => String::new(),
    }
}
