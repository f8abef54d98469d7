//! The verdict on the change of a row, as the word that tables print.

use serde::Serialize;

/// The verdict on the change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The test separates the change from zero, and it is large enough and for the better.
    Better,
    /// As `Better`, but the change is for the worse.
    Worse,
    /// The test separates a change that is large enough, but neither direction is better.
    Differs,
    /// The interval of the change lies within what does not matter.
    NoChange,
    /// Every run of both columns has the same number.
    Same,
    /// All runs of a column agree and the columns differ, but the runs are too few for a test.
    DiffersInAll,
    /// The runs spread too much to tell.
    CannotTell,
    /// One of the columns has a single run.
    OneRun,
}

impl Verdict {
    /// The word for the verdict in a table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Differs => "differs",
            Self::NoChange => "no change",
            Self::Same => "same",
            Self::DiffersInAll => "differs, few",
            Self::CannotTell => "cannot tell",
            Self::OneRun => "one run",
        }
    }

    /// Does the row get a star: is the change separated from zero, and large enough to matter?
    pub fn is_starred(self) -> bool {
        matches!(self, Self::Better | Self::Worse | Self::Differs)
    }
}
