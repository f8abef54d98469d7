//! The verdict on the change of a row.

use serde::Serialize;

/// The words about a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The change is separated from none, is large enough, and is for the better.
    Better,
    /// The change is for the worse.
    Worse,
    /// Neither direction is better.
    Differs,
    /// The interval is within what does not matter.
    NoChange,
    /// Every run has the same number.
    Same,
    /// Numbers are constant on each side and differ, of too few runs for more.
    DiffersInAll,
    /// Runs spread too much to tell.
    CannotTell,
    /// A side has one run.
    OneRun,
}

impl Verdict {
    /// The verdict in a table.
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

    /// Has the row a star: separated from no change, and material?
    pub fn is_starred(self) -> bool {
        matches!(self, Self::Better | Self::Worse | Self::Differs)
    }
}
