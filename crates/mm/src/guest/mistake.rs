//! Linux: none.
//! Differs: mistakes that a test makes in free page reporting, to see that its checks catch them. Each would let a host
//! drop contents that its guest has written, or keep pages that it could free.

use memory::{
    backing::{Host, HostMistake},
    cx::Cx,
    frame::Held,
    pageblock::MigrateType,
};

use crate::{
    Mm,
    guest::reporting::{Pass, Reporting},
};

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Blocks stay on their lists while they are reported.
    LeavesOnList,
    /// Blocks return to their lists before the host is done with them.
    PutsBackEarly,
    /// The host discards the blocks of a failed report after they have returned to their lists.
    DiscardsWhatFailed,
    /// The blocks of a failed report are marked as reported.
    MarksWhatFailed,
    /// A block that merges when it is put back is marked, including the part that was not reported.
    MarksMerged,
    /// A reported block still has its mark after it was used and freed.
    KeepsMark,
    /// The blocks of the last report are reported again, whatever they are used for by now.
    ReportsAgain,
    /// The host discards the buddy of a block too.
    DiscardsBuddy,
    /// One of the blocks is not put back on its list.
    LosesBlock,
    /// Blocks are put back on the list of another type.
    PutsBackOnOtherList,
    /// Blocks that are put back request another pass.
    NotifiesItself,
    /// The host discards the whole page of which the block is a part.
    DiscardsHostPage,
    /// The host clears its whole page when it backs a part of it.
    ClearsHostPage,
    /// The host backs a page again with its old contents.
    BringsBackStale,
    /// The host discards pages that the guest has poisoned.
    DiscardsPoisoned,
}

impl Mistake {
    /// Every mistake.
    pub const ALL: [Self; 15] = [
        Self::LeavesOnList,
        Self::PutsBackEarly,
        Self::DiscardsWhatFailed,
        Self::MarksWhatFailed,
        Self::MarksMerged,
        Self::KeepsMark,
        Self::ReportsAgain,
        Self::DiscardsBuddy,
        Self::LosesBlock,
        Self::PutsBackOnOtherList,
        Self::NotifiesItself,
        Self::DiscardsHostPage,
        Self::ClearsHostPage,
        Self::BringsBackStale,
        Self::DiscardsPoisoned,
    ];

    /// The list that a block is put back on, instead of that of its type.
    pub(crate) fn other_list(list: MigrateType) -> MigrateType {
        if list == MigrateType::Movable { MigrateType::Unmovable } else { MigrateType::Movable }
    }
}

/// A mistake of the reporting thread, and the blocks that it is about.
#[derive(Clone, Debug)]
pub(crate) struct Seeded {
    mistake: Mistake,
    kept: Vec<Held>,
}

impl Reporting {
    /// Whether this mistake is made.
    pub(crate) fn makes(&self, mistake: Mistake) -> bool {
        self.seeded.as_ref().is_some_and(|seeded| seeded.mistake == mistake)
    }
}

impl Mm {
    /// Makes this mistake from now on, in the reporting thread or the host: for tests.
    pub fn make_mistake(&mut self, mistake: Mistake) {
        self.reporting.as_mut().expect("there is a device").seeded = Some(Seeded { mistake, kept: Vec::new() });
        if let Some(Host::Pages(backing)) = self.memory.host_mut() {
            backing.mistake = match mistake {
                Mistake::DiscardsHostPage => Some(HostMistake::DiscardsHostPage),
                Mistake::ClearsHostPage => Some(HostMistake::ClearsHostPage),
                Mistake::BringsBackStale => Some(HostMistake::BringsBackStale),
                _ => None,
            };
        }
        if mistake == Mistake::DiscardsPoisoned {
            self.memory.poison();
        }
    }

    /// Whether the reporting thread makes this mistake.
    pub(crate) fn does_reporter(&self, mistake: Mistake) -> bool {
        self.reporting.as_ref().is_some_and(|reporting| reporting.makes(mistake))
    }

    /// Makes the mistakes that come before the device gets the blocks.
    pub(crate) fn err_before_report(&mut self, cx: &mut Cx<'_>, pass: &mut Pass, failed: bool) {
        let Some(Seeded { mistake, mut kept }) = self.reporting.as_mut().and_then(|all| all.seeded.take()) else {
            return;
        };
        match mistake {
            Mistake::PutsBackEarly if !failed => {
                kept.clone_from(&pass.taken);
                self.drain_reported(cx, pass, true);
            }
            Mistake::DiscardsWhatFailed if failed => kept.clone_from(&pass.taken),
            Mistake::DiscardsWhatFailed => self.discard_all(cx, kept.drain(..)),
            Mistake::ReportsAgain => {
                self.discard_all(cx, kept.drain(..));
                kept.clone_from(&pass.taken);
            }
            Mistake::KeepsMark => {
                for Held { pfn, order } in &kept {
                    if self.memory.frames.is_free(*pfn, *order) {
                        self.memory.frames.set_reported(*pfn, *order);
                    }
                }
                kept.extend(pass.taken.iter().filter(|_| !failed));
            }
            Mistake::DiscardsBuddy => {
                let buddies: Vec<_> = pass.taken.iter().map(|held| held.buddy_block()).collect();
                self.discard_all(cx, buddies.into_iter());
            }
            _ => {}
        }
        self.reporting.as_mut().expect("it reports").seeded = Some(Seeded { mistake, kept });
    }

    /// Makes the mistakes that come after the host has discarded the blocks, before they are put back.
    pub(crate) fn err_after_report(&mut self, cx: &mut Cx<'_>, pass: &mut Pass) {
        let Some(Seeded { mistake, mut kept }) = self.reporting.as_mut().and_then(|all| all.seeded.take()) else {
            return;
        };
        match mistake {
            Mistake::PutsBackEarly => self.discard_all(cx, kept.drain(..)),
            Mistake::LosesBlock => {
                pass.taken.pop();
            }
            _ => {}
        }
        self.reporting.as_mut().expect("it reports").seeded = Some(Seeded { mistake, kept });
    }

    fn discard_all(&mut self, cx: &mut Cx<'_>, blocks: impl Iterator<Item = Held>) {
        for Held { pfn, order } in blocks {
            if self.memory.is_memory(pfn) {
                self.memory.discard_by_host(cx, pfn, order);
            }
        }
    }
}
