//! Linux: mm/oom_kill.c (v6.1).
//! Differs: no oom_score_adj but to be spared, no cpusets, no memcg; kernels up to 5.0 look for a child to kill instead. The
//! oom_reaper frees nothing; it only gives a victim up that has not gone after as long as it would have tried.
//!
//! When all that could be reclaimed is, a process has to go: the one with most memory. Who runs tasks hears of it
//! ([`News::Killed`]), ends those of the victim, and lets them have half of what marks keep until they are gone.

use std::collections::BTreeMap;

use memory::{cx::Cx, event::Event, frame::SpaceId, news::News};
use units::{Picos, Time};

use crate::{Mm, Spaces, space::address_space::AddressSpace};

/// For how long a victim may take: `OOM_REAPER_DELAY`, and `MAX_OOM_REAP_RETRIES` times HZ/10.
// mm/oom_kill.c (v6.1).
const PATIENCE: Picos = Picos::from_secs(3);

/// Processes that the OOM killer spares, and those that it has killed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oom {
    /// Victims can hear of their death; until then the OOM killer kills none (`oom_killer_disabled`).
    is_enabled: bool,
    /// Those that are never killed, and victims, by the instant of their death.
    all: BTreeMap<SpaceId, Status>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// init, and what else is not to be killed (`OOM_SCORE_ADJ_MIN`).
    Spared,
    /// Killed at this instant.
    Victim(Time),
}

/// How bad a process is: base pages of its memory, in RAM or in swap, and of its tables (`oom_badness`).
fn badness(space: &AddressSpace) -> u64 {
    space.rss_pages() + space.swapped_pages() + space.tables.frames().count() as u64
}

impl Mm {
    /// From now on the caller ends the tasks of processes that are killed.
    pub fn enable_oom_killer(&mut self) {
        self.oom.is_enabled = true;
    }

    /// A process is never killed, or not waited for any more.
    pub fn spare_from_oom(&mut self, id: SpaceId) {
        self.oom.all.insert(id, Status::Spared);
    }

    /// Lets the OOM killer choose the process again.
    pub fn expose_to_oom(&mut self, id: SpaceId) {
        if self.oom.all.get(&id) == Some(&Status::Spared) {
            self.oom.all.remove(&id);
        }
    }

    /// Kills the process that has most, unless one is dying already; false when nothing is to be expected from this.
    /// `is_victim`: the task that asks is dying itself (`out_of_memory`).
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
                // It has no memory of its own any more, as far as one can see.
                None if space.is_exiting => {}
                None => {
                    let points = badness(space);
                    // Of those that have as much, the last one.
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
        true
    }
}

#[cfg(test)]
mod tests;
