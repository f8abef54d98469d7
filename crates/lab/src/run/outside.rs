//! What goes on around a real guest while it runs: its memory is looked at, its balloon is filled and emptied.

use std::cell::RefCell;

use linux::{footprint::Footprint, monitor::Operator, procfs::Capture};
use report::{Key, Record};

use super::{by_hand::ByHand, stopped::Stopped, watched::Watched};
use crate::plan::Session;

/// Of one boot, as far as its session wants it.
pub(super) struct Outside {
    watched: Option<Watched>,
    by_hand: Option<ByHand>,
}

impl Outside {
    pub(super) fn of(session: &Session) -> Self {
        Self { watched: Watched::of(session), by_hand: ByHand::of(session) }
    }

    pub(super) fn seen(&self) -> Option<&RefCell<Footprint>> {
        self.watched.as_ref().map(Watched::seen)
    }

    pub(super) fn operator(&self) -> Option<&RefCell<Operator>> {
        self.by_hand.as_ref().map(ByHand::operator)
    }

    /// A guest that had these captures says what time it is before job `index` of these.
    pub(super) fn begins(
        &self,
        (index, guest_ns): (usize, u64),
        keys: &[Key],
        captures: &[(String, Capture)],
    ) -> Result<(), Stopped> {
        if let Some(watched) = &self.watched {
            watched.begins(index, guest_ns);
        }
        match (&self.by_hand, keys.get(index)) {
            (Some(by_hand), Some(key)) => by_hand.begins(key, captures),
            _ => Ok(()),
        }
    }

    /// Puts what was seen and done into the result of job `index`.
    pub(super) fn fill(&self, index: usize, record: &mut Record) {
        if let Some(watched) = &self.watched {
            watched.fill(index, record);
        }
        if let Some(by_hand) = &self.by_hand {
            by_hand.fill(record);
        }
    }
}
