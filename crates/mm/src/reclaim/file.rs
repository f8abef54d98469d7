//! Linux: the branches for the page cache of shrink_folio_list() in mm/vmscan.c (v6.1).
//! Differs: the page cache does not mark its folios yet: whatever is on its lists is clean, unmapped and known only there.
//!
//! What reclaim asks of the page cache, and nothing else. Each function says what it promises; the page cache keeps it.

use units::Pfn;

use super::active::Uses;
use crate::{Mm, cost::Cx};

/// What stands between a file's folio and the free lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileState {
    /// Nothing: the disk has it.
    Clean,
}

impl Mm {
    /// Is the folio dirty, or being written (`folio_check_dirty_writeback`)?
    #[expect(clippy::unused_self, reason = "the page cache's to answer")]
    pub(super) fn file_state(&self, _head: Pfn) -> FileState {
        FileState::Clean
    }

    /// The entries that map the folio, and those of them through which it was used; makes them unused.
    #[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "the page cache's to answer")]
    pub(super) fn file_uses(&mut self, _head: Pfn) -> Uses {
        Uses::default()
    }

    /// Takes a clean folio that nobody maps out of the page cache, which keeps a shadow of it (`__remove_mapping`). From then
    /// on it is the caller's to free. False when somebody else uses it just now.
    #[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "the page cache's to answer")]
    pub(super) fn remove_file_folio(&mut self, _cx: &mut Cx, _head: Pfn) -> bool {
        true
    }
}
