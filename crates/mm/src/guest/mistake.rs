//! Linux: none.
//! Differs: mistakes that a test seeds in the rules of free page reporting, to see that its checks catch them. Each is the
//! kind that lets a host drop what its guest has written, or keep what it could have.

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

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Blocks stay on their lists while they are reported.
    LeavesOnList,
    /// Blocks are on their lists again before the host is done with them.
    PutsBackEarly,
    /// The host still gives back what a report that failed had in it, when that is on its lists again.
    DiscardsWhatFailed,
    /// The blocks of a report that failed are marked.
    MarksWhatFailed,
    /// A block that has merged when it was put back is marked, with the part that was not reported.
    MarksMerged,
    /// A block that was reported, used and freed has its mark again.
    KeepsMark,
    /// The blocks of the last report are reported once more, whoever has them by now.
    ReportsAgain,
    /// The buddy of a block goes with it.
    DiscardsBuddy,
    /// One of the blocks is not put back.
    LosesBlock,
    /// Blocks are put back on the list of another type.
    PutsBackOnOtherList,
    /// Blocks that are put back make for another pass.
    NotifiesItself,
    /// The host gives back the whole of its page, of which the block is a part.
    DiscardsHostPage,
    /// The host clears the whole of its page when it backs a part of it.
    ClearsHostPage,
    /// The host backs a page again with what was there before.
    BringsBackStale,
    /// The host gives back what the guest has poisoned.
    DiscardsPoisoned,
}

impl Mistake {
    /// All of them.
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

/// A mistake of the thread that reports, and the blocks that it is about.
#[derive(Clone, Debug)]
pub(crate) struct Seeded {
    mistake: Mistake,
    kept: Vec<Held>,
}

impl Reporting {
    /// Is this the mistake that is made?
    pub(crate) fn makes(&self, mistake: Mistake) -> bool {
        self.seeded.as_ref().is_some_and(|seeded| seeded.mistake == mistake)
    }
}

impl Mm {
    /// From now on this mistake is made, by who reports or by the host: for tests.
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

    /// Does who reports make this mistake?
    pub(crate) fn does_reporter(&self, mistake: Mistake) -> bool {
        self.reporting.as_ref().is_some_and(|reporting| reporting.makes(mistake))
    }

    /// Makes the mistakes that come before the device has the blocks.
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
                let buddies: Vec<_> =
                    pass.taken.iter().map(|held| held.buddy_block()).collect();
                self.discard_all(cx, buddies.into_iter());
            }
            _ => {}
        }
        self.reporting.as_mut().expect("it reports").seeded = Some(Seeded { mistake, kept });
    }

    /// Makes the mistakes that come when the host has done its part, and before blocks are put back.
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
