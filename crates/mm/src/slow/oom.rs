//! Linux: mm/oom_kill.c (v6.1).
//! Differs: oom_score_adj only spares a process; no cpusets, no memcg; kernels up to 5.0 look for a child to kill instead.
//! The oom_reaper frees nothing; it only gives up a victim that has not ended in the time for which it would have tried.
//!
//! When nothing more can be reclaimed, a process has to go: the one with most memory. `sim` hears of it ([`News::Killed`])
//! and ends the victim's tasks, which may use half of the Min mark until they are gone.

use std::collections::BTreeMap;

use memory::{cx::Cx, event::Event, fact::Fact, frame::SpaceId, news::News};
use units::{Picos, Time};

use crate::{Mm, Spaces, space::address_space::AddressSpace};

/// How long a victim is waited for: `OOM_REAPER_DELAY`, and `MAX_OOM_REAP_RETRIES` times HZ/10.
// mm/oom_kill.c (v6.1).
const PATIENCE: Picos = Picos::from_secs(3);

/// Processes that the OOM killer spares, and those that it has killed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oom {
    /// The caller ends the tasks of victims; until it says so the OOM killer kills none (`oom_killer_disabled`).
    is_enabled: bool,
    /// Processes that are never killed, and victims, each with the time of its death.
    all: BTreeMap<SpaceId, Status>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// init, or another process that must not be killed (`OOM_SCORE_ADJ_MIN`).
    Spared,
    /// Killed at this instant.
    Victim(Time),
}

/// The score of a process: base pages of its memory, in RAM or in swap, and of its page tables (`oom_badness`).
fn badness(space: &AddressSpace) -> u64 {
    space.rss_pages() + space.swapped_pages() + space.tables.frames().count() as u64
}

impl Mm {
    /// Notes that the caller ends the tasks of processes that are killed from now on.
    pub fn enable_oom_killer(&mut self) {
        self.oom.is_enabled = true;
    }

    /// Spares a process from now on, and no longer waits for its end.
    pub fn spare_from_oom(&mut self, id: SpaceId) {
        self.oom.all.insert(id, Status::Spared);
    }

    /// Lets the OOM killer choose the process again.
    pub fn expose_to_oom(&mut self, id: SpaceId) {
        if self.oom.all.get(&id) == Some(&Status::Spared) {
            self.oom.all.remove(&id);
        }
    }

    /// Kills the process with most memory, unless a victim is already on its way; returns false if waiting is of no use.
    /// `is_victim`: the task that allocates is a victim itself (`out_of_memory`).
    pub(crate) fn out_of_memory(&mut self, spaces: &Spaces, cx: &mut Cx, is_victim: bool) -> bool {
        if !self.oom.is_enabled {
            return false;
        }
        if is_victim {
            return true;
        }
        let mut chosen: Option<(u64, SpaceId)> = None;
        for (id, space) in spaces.iter() {
            match self.oom.all.get(&id) {
                Some(Status::Victim(since)) if cx.now() < *since + PATIENCE => return true,
                Some(Status::Spared | Status::Victim(_)) => {}
                // The process seems to have no memory of its own any more.
                None if space.is_exiting => {}
                None => {
                    let points = badness(space);
                    // Of processes with equal scores, the last.
                    if chosen.is_none_or(|(most, _)| points >= most) {
                        chosen = Some((points, id));
                    }
                }
            }
        }
        let Some((_, id)) = chosen else { return false };
        cx.count(Event::OomKill, 1);
        self.oom.all.insert(id, Status::Victim(cx.now()));
        self.memory.tell(News::Killed(id));
        cx.fact(|| Fact::OomKill { space: id.0 });
        true
    }
}

#[cfg(test)]
mod tests;
