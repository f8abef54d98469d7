//! Changes that must not be: `amean:fault-base-3>5%`, or `compact_stall>100` for a counter that may begin at nought.

use std::{fmt, str::FromStr};

use thiserror::Error;

use super::{Compared, Comparison, Tested};
use crate::short::text::list;

/// A row, and the change from which on a comparison fails.
#[derive(Clone, Debug, PartialEq)]
pub struct FailOn {
    /// A statistic, a metric or a counter.
    stat: String,
    /// The rest of the row's name; all rows where none is given.
    row: Option<String>,
    /// Is it a rise that fails, or a fall?
    rises: bool,
    bound: Bound,
}

/// How far a change may go.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// In per cent of the old value. Any change from nought is beyond it.
    Percent(f64),
    /// In the unit of the row.
    Absolute(f64),
}

/// A condition that is none, or that no row has.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FailOnError {
    /// The text does not read as one.
    #[error(
        "expected NAME>N% or NAME:ROW>N%, such as amean:fault-base-3>5% (a fall: <-5%; without %: in the row's unit), found {0:?}"
    )]
    Form(String),
    /// Nothing compared is called so.
    #[error("{wanted}: no row is called so{nearest}; {rows}")]
    NoRow {
        /// The condition.
        wanted: String,
        /// A name that is like it.
        nearest: String,
        /// Those that there are.
        rows: String,
    },
}

impl FromStr for FailOn {
    type Err = FailOnError;

    fn from_str(text: &str) -> Result<Self, FailOnError> {
        let bad = || FailOnError::Form(text.to_owned());
        let at = text.rfind(['>', '<']).ok_or_else(bad)?;
        let (stat, row) = match text[..at].split_once(':') {
            Some((stat, row)) => (stat.trim(), Some(row.trim())),
            None => (text[..at].trim(), None),
        };
        let end = text[at + 1..].trim();
        let percent = end.strip_suffix('%').map(str::trim);
        let number: f64 = percent.unwrap_or(end).parse().map_err(|_| bad())?;
        let rises = &text[at..=at] == ">";
        // A fall is written as a negative number.
        if stat.is_empty() || row == Some("") || !number.is_finite() || (number < 0.0) == rises {
            return Err(bad());
        }
        let bound = if percent.is_some() { Bound::Percent(number) } else { Bound::Absolute(number) };
        Ok(Self { stat: stat.to_owned(), row: row.map(str::to_owned), rises, bound })
    }
}

impl fmt::Display for FailOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.row.as_ref().map_or_else(String::new, |row| format!(":{row}"));
        let (number, unit) = match self.bound {
            Bound::Percent(number) => (number, "%"),
            Bound::Absolute(number) => (number, ""),
        };
        write!(f, "{}{row}{}{number}{unit}", self.stat, if self.rises { '>' } else { '<' })
    }
}

impl FailOn {
    /// The statistic, metric or counter that it names.
    pub fn name(&self) -> &str {
        &self.stat
    }

    fn is_of(&self, row: &Compared) -> bool {
        let is = |name: &str| name.eq_ignore_ascii_case(&self.stat);
        let is_row = |wanted: &String| row.operation == *wanted || row.case == *wanted;
        (is(&row.stat) || is(&row.metric)) && self.row.as_ref().is_none_or(is_row)
    }

    /// The rows that fail it: they have a star, and both the change and the end of its interval that is nearer to none are beyond
    /// the bound.
    ///
    /// # Errors
    /// A condition of a row that was not compared.
    pub fn failed<'a>(&self, comparison: &'a Comparison) -> Result<Vec<&'a Compared>, FailOnError> {
        let mut of_name = comparison.rows.iter().filter(|row| self.is_of(row)).peekable();
        if of_name.peek().is_none() {
            let mut names: Vec<String> =
                comparison.rows.iter().map(|row| format!("{}:{}", row.stat.to_lowercase(), row.operation)).collect();
            names.dedup();
            let row = self.row.as_ref().map_or_else(String::new, |row| format!(":{row}"));
            let wanted = format!("{}{row}", self.stat.to_lowercase());
            let distance = |name: &&String| strsim::damerau_levenshtein(name, &wanted);
            let nearest = names.iter().min_by_key(distance).map(|name| format!(", nearest: {name}"));
            return Err(FailOnError::NoRow {
                wanted: self.to_string(),
                nearest: nearest.unwrap_or_default(),
                rows: list("rows: ", &names, 400),
            });
        }
        Ok(of_name.filter(|row| row.verdict.is_starred() && self.is_beyond(row)).collect())
    }

    fn is_beyond(&self, row: &Compared) -> bool {
        let Tested::By(test) = &row.tested else { return false };
        let is_beyond = |change: f64, bound: f64| if self.rises { change > bound } else { change < bound };
        let nearer = |low: f64, high: f64| if self.rises { low } else { high };
        match self.bound {
            Bound::Percent(_) if row.old == 0.0 => is_beyond(row.difference(), 0.0),
            Bound::Percent(bound) => {
                let percent = |change: f64| 100.0 * change / row.old.abs();
                let end = test.ends(row.old).map(|(low, high)| percent(nearer(low, high)));
                is_beyond(percent(row.difference()), bound) && end.is_some_and(|end| is_beyond(end, bound))
            }
            Bound::Absolute(bound) => {
                let end = test.interval.map(|interval| nearer(interval.low, interval.high));
                is_beyond(row.difference(), bound) && end.is_some_and(|end| is_beyond(end, bound))
            }
        }
    }
}
