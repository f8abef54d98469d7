//! Changes that must not be: `amean:fault-base-3>5%`.

use std::{fmt, str::FromStr};

use thiserror::Error;

use super::{Compared, Comparison, Tested, text};
use crate::short::text::list;

/// A row, and the change from which on a comparison fails.
#[derive(Clone, Debug, PartialEq)]
pub struct FailOn {
    stat: String,
    row: String,
    /// Is it a rise that fails, or a fall?
    rises: bool,
    percent: f64,
}

/// A condition that is none, or that no row has.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FailOnError {
    /// The text does not read as one.
    #[error("expected STAT:ROW>N% or STAT:ROW<-N%, such as amean:fault-base-3>5%, found {0:?}")]
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
        let (stat, row) = text[..at].split_once(':').ok_or_else(bad)?;
        let number = text[at + 1..].trim().strip_suffix('%').ok_or_else(bad)?;
        let percent: f64 = number.trim().parse().map_err(|_| bad())?;
        let rises = &text[at..=at] == ">";
        // A fall is written as a negative number.
        if stat.is_empty() || row.is_empty() || !percent.is_finite() || (percent < 0.0) == rises {
            return Err(bad());
        }
        Ok(Self { stat: stat.trim().to_owned(), row: row.trim().to_owned(), rises, percent })
    }
}

impl fmt::Display for FailOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{}{}%", self.stat, self.row, if self.rises { '>' } else { '<' }, self.percent)
    }
}

impl FailOn {
    fn is_of(&self, row: &Compared) -> bool {
        let is = |name: &str| name.eq_ignore_ascii_case(&self.stat);
        (is(&row.stat) || is(&row.metric)) && (row.operation == self.row || row.case == self.row)
    }

    /// The rows that fail it: they have a star, and the end of the interval that is nearer to no change is beyond the bound.
    ///
    /// # Errors
    /// A condition of a row that was not compared.
    pub fn failed<'a>(&self, comparison: &'a Comparison) -> Result<Vec<&'a Compared>, FailOnError> {
        let mut of_name = comparison.rows.iter().filter(|row| self.is_of(row)).peekable();
        if of_name.peek().is_none() {
            let mut names: Vec<String> =
                comparison.rows.iter().map(|row| format!("{}:{}", row.stat.to_lowercase(), row.operation)).collect();
            names.dedup();
            let wanted = format!("{}:{}", self.stat.to_lowercase(), self.row);
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
        let Some((low, high)) = test.ends(row.old) else { return false };
        let percent = |end: f64| text::percent(end, row.old);
        if self.rises { percent(low) > self.percent } else { percent(high) < self.percent }
    }
}
