//! Linux: `enum lru_list`, include/linux/mmzone.h (v6.1).
//! Differs: no unevictable list.

use rules::variant::NewAnon;
use serde::Serialize;

/// An LRU list (`enum lru_list`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LruKind {
    /// Anonymous memory that reclaim scans.
    InactiveAnon,
    /// Anonymous memory that is in use.
    ActiveAnon,
    /// Pages of files that reclaim scans.
    InactiveFile,
    /// Pages of files that are in use.
    ActiveFile,
}

impl LruKind {
    /// Every list.
    pub const ALL: [Self; 4] = [Self::InactiveAnon, Self::ActiveAnon, Self::InactiveFile, Self::ActiveFile];

    /// The list of a folio (`folio_lru_list`).
    #[inline]
    pub const fn of(is_file: bool, is_active: bool) -> Self {
        match (is_file, is_active) {
            (false, false) => Self::InactiveAnon,
            (false, true) => Self::ActiveAnon,
            (true, false) => Self::InactiveFile,
            (true, true) => Self::ActiveFile,
        }
    }

    /// Whether this is a list of file pages.
    pub const fn is_file(self) -> bool {
        matches!(self, Self::InactiveFile | Self::ActiveFile)
    }

    /// The list on which new anonymous folios begin.
    #[inline]
    pub const fn of_new_anon(rule: NewAnon) -> Self {
        Self::of(false, matches!(rule, NewAnon::Active))
    }

    /// Whether this is an active list.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::ActiveAnon | Self::ActiveFile)
    }
}
