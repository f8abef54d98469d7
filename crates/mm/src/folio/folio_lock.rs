//! Linux: folio_lock(), folio_unlock() and folio_wait_locked() in mm/filemap.c (v6.1).
//! Differs: a waiter is woken when the lock is let go, and looks again; the lock is not handed over.
//!
//! The lock of a folio is held across steps. Here it is only a mark, and who waits is known by the folio; who they are, and
//! when they run again, is known outside.

use std::collections::BTreeSet;

use memory::{cx::Cx, frame::FrameFlag, news::News, step::Wait};
use units::{Order, Pfn};

use crate::{Mm, folio::pte::Pte};

/// Folios that tasks wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct FolioWaits {
    waited: BTreeSet<Pfn>,
}

impl Mm {
    /// Locks a folio, unless another task has locked it (`folio_trylock`).
    pub(crate) fn try_lock_folio(&mut self, head: Pfn) -> bool {
        let is_free = !self.memory.frames.has(head, FrameFlag::Locked);
        if is_free {
            self.memory.frames.mark(head, FrameFlag::Locked, true);
        }
        is_free
    }

    /// Unlocks a folio. The step in progress ends soon where a task waits for that.
    pub(crate) fn unlock_folio(&mut self, cx: &mut Cx, head: Pfn) {
        assert!(self.memory.frames.has(head, FrameFlag::Locked), "folio {head} is unlocked by who has locked it");
        self.memory.frames.mark(head, FrameFlag::Locked, false);
        if self.folio_waits.waited.remove(&head) {
            self.memory.tell(News::Unlocked(head));
            cx.cut();
        }
    }

    /// Waiting for the page of an entry that says that it is on its way to another frame (`migration_entry_wait`).
    pub(crate) fn wait_on_migration(&mut self, entry: Pte) -> Wait {
        let pfn = entry.pfn();
        let is_own = self.memory.frames.is_file(pfn) || self.memory.frames.is_base_anon(pfn);
        self.wait_on_folio(if is_own { pfn } else { pfn.align_down(Order::HUGE) })
    }

    /// Waiting for the lock of a folio that another task has.
    pub(crate) fn wait_on_folio(&mut self, head: Pfn) -> Wait {
        assert!(self.memory.frames.has(head, FrameFlag::Locked), "folio {head} is locked by nobody");
        self.folio_waits.waited.insert(head);
        Wait::Folio(head)
    }
}
