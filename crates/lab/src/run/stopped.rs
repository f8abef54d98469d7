//! Why a session ended before its end.

use linux::setting::SettingError;
use report::StoreError;

use crate::usage::UsageError;

/// The end of a session before its last cell.
pub(super) enum Stopped {
    /// The user interrupted.
    Interrupted,
    /// The kernel refused what the user asked for.
    Mistake(UsageError),
    /// A cell has shown that what the user asked for cannot be had.
    Refused(UsageError),
    /// Something else.
    Failed(String),
}

impl From<SettingError> for Stopped {
    fn from(error: SettingError) -> Self {
        Self::Mistake(UsageError::new(format!("--set {error}")))
    }
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}
