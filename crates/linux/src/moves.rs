//! Moves of a task from CPU to CPU, as far as it sees them itself: it looks where it is (getcpu(2), which takes no call of the
//! kernel) after every few accesses, and whenever it is asked.

use std::{cell::RefCell, sync::OnceLock};

use nix::sched::sched_getcpu;
use os::{CountedBy, Moves};
use units::Errno;

use crate::{host::errno, procfs};

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

/// The moves of a task, as far as it knows them.
struct Seen {
    /// Where it was when it looked last.
    cpu: Option<usize>,
    moves: Moves,
}

thread_local! {
    static SEEN: RefCell<Seen> = const { RefCell::new(Seen { cpu: None, moves: NONE }) };
}

const NONE: Moves = Moves { same_core: 0, same_node: 0, other_node: 0, counted_by: CountedBy::Task };

/// Where each CPU is: the first hardware thread of its core, and its node. A kernel that hides the topology has cores of one
/// thread and one node.
#[derive(Debug)]
struct Topology(Vec<(usize, usize)>);

impl Topology {
    fn read() -> Self {
        let list = |file: String| {
            let text = std::fs::read_to_string(&file).ok()?;
            procfs::list::cpus(&file, &text).ok()
        };
        let online = list(format!("{CPUS}/online")).unwrap_or_default();
        let most = online.iter().map(|cpu| cpu.0 as usize + 1).max().unwrap_or(0);
        let mut places: Vec<(usize, usize)> = (0..most).map(|cpu| (cpu, 0)).collect();
        for cpu in &online {
            let siblings = list(format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list")).unwrap_or_default();
            if let Some(first) = siblings.iter().min() {
                places[cpu.0 as usize].0 = first.0 as usize;
            }
        }
        for node in list(format!("{NODES}/online")).unwrap_or_default() {
            for cpu in list(format!("{NODES}/node{node}/cpulist")).unwrap_or_default() {
                if let Some(place) = places.get_mut(cpu.0 as usize) {
                    place.1 = node.0 as usize;
                }
            }
        }
        Self(places)
    }

    fn count(&self, from: usize, to: usize, moves: &mut Moves) {
        let place = |cpu: usize| self.0.get(cpu).copied().unwrap_or((cpu, 0));
        let ((from_core, from_node), (to_core, to_node)) = (place(from), place(to));
        match (from_core == to_core, from_node == to_node) {
            (true, _) => moves.same_core += 1,
            (false, true) => moves.same_node += 1,
            (false, false) => moves.other_node += 1,
        }
    }
}

/// The calling task looks where it is.
pub(crate) fn look() {
    let Ok(cpu) = sched_getcpu() else { return };
    SEEN.with_borrow_mut(|seen| {
        if let Some(from) = seen.cpu.replace(cpu).filter(|from| *from != cpu) {
            static TOPOLOGY: OnceLock<Topology> = OnceLock::new();
            TOPOLOGY.get_or_init(Topology::read).count(from, cpu, &mut seen.moves);
        }
    });
}

/// Moves that the calling task has seen.
///
/// # Errors
/// `ENOSYS` where the kernel does not say which CPU it is on.
pub(crate) fn moves() -> Result<Moves, Errno> {
    sched_getcpu().map_err(errno)?;
    look();
    Ok(SEEN.with_borrow(|seen| seen.moves))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host;

    #[test]
    fn moves_are_told_apart_by_core_and_node() {
        // Two nodes of two cores of two threads each.
        let topology = Topology([0, 1, 2, 3, 0, 1, 2, 3].map(|core| (core, core / 2)).to_vec());
        let mut moves = NONE;
        for (from, to) in [(0, 4), (4, 1), (1, 2), (2, 6), (6, 0), (0, 1)] {
            topology.count(from, to, &mut moves);
        }
        assert_eq!((moves.same_core, moves.same_node, moves.other_node), (2, 2, 2));
    }

    #[test]
    fn a_task_that_is_sent_elsewhere_sees_it() {
        let cpus = host::usable_cpus();
        let before = moves().unwrap();
        host::pin(cpus[0]);
        look();
        let first = moves().unwrap().since(&before);
        host::pin(*cpus.last().unwrap());
        let second = moves().unwrap().since(&before);
        let all = |moves: Moves| moves.same_core + moves.same_node + moves.other_node;
        assert_eq!(all(second) - all(first), u64::from(cpus.len() > 1));
    }
}
