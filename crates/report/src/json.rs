//! JSON: the tables as they are, for programs.

use crate::table::Report;

/// The report, indented, with a newline at its end.
///
/// # Panics
/// Never: every key is a string, and writing to memory does not fail.
pub fn to_json(report: &Report) -> String {
    let text = serde_json::to_string_pretty(report).expect("a report is plain data");
    format!("{text}\n")
}
