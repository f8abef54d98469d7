//! Linux: folio_lock(), folio_unlock() and folio_wait_locked() in mm/filemap.c (v6.1).
//! Differs: a waiter is woken when the lock is released, and tries again; the lock is not handed over.
//!
//! The lock of a folio is held across steps. Here it is only a flag, and the folio knows whether a task waits; which tasks
//! wait, and when they run again, is up to `sim`.

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

    /// Unlocks a folio. If a task waits for it, the step in progress ends soon.
    pub(crate) fn unlock_folio(&mut self, cx: &mut Cx, head: Pfn) {
        assert!(self.memory.frames.has(head, FrameFlag::Locked), "folio {head} is unlocked by who has locked it");
        self.memory.frames.mark(head, FrameFlag::Locked, false);
        if self.folio_waits.waited.remove(&head) {
            self.memory.tell(News::Unlocked(head));
            cx.cut();
        }
    }

    /// The wait for a page whose entry says that it is being migrated (`migration_entry_wait`).
    pub(crate) fn wait_on_migration(&mut self, entry: Pte) -> Wait {
        let pfn = entry.pfn();
        let is_own = self.memory.frames.is_file(pfn) || self.memory.frames.is_base_anon(pfn);
        self.wait_on_folio(if is_own { pfn } else { pfn.align_down(Order::HUGE) })
    }

    /// The wait for the lock of a folio that another task holds.
    pub(crate) fn wait_on_folio(&mut self, head: Pfn) -> Wait {
        assert!(self.memory.frames.has(head, FrameFlag::Locked), "folio {head} is locked by nobody");
        self.folio_waits.waited.insert(head);
        Wait::Folio(head)
    }
}
