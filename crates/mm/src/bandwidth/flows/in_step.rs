//! Linux: none; CPUs that write the same memory, and so go through it in step.

use units::{Picos, Time};

use super::{Flow, Flows, Written};

/// The pages by which a CPU is behind another that has written them, and what each takes from the cache where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) pages: u64,
    pub(crate) each: Picos,
}

impl Flows {
    /// Finds flows that write the same, and how long a page takes to go round all of them.
    pub(super) fn find_round_trips(&mut self) {
        if self.handovers.is_empty() {
            return;
        }
        let mut groups: Vec<(Written, Vec<u64>)> = Vec::new();
        for flow in self.by_cpu.iter().filter(|flow| flow.is_live && !flow.is_held_up) {
            let Some(writes) = flow.writes else { continue };
            let at = groups.iter().position(|(written, _)| *written == writes).unwrap_or_else(|| {
                groups.push((writes, vec![0; self.handovers.len()]));
                groups.len() - 1
            });
            groups[at].1[flow.from] += 1;
        }
        for (written, by_node) in groups {
            let sharers = by_node.iter().sum();
            let round_trip = if sharers > 1 { self.round_trip(&by_node) } else { Picos(0) };
            let its =
                self.by_cpu.iter_mut().filter(|flow| flow.is_live && !flow.is_held_up && flow.writes == Some(written));
            its.for_each(|flow| (flow.sharers, flow.round_trip) = (sharers, round_trip));
        }
    }

    /// A page goes from CPU to CPU within each node, then to the next node that has any, and at last back.
    fn round_trip(&self, by_node: &[u64]) -> Picos {
        let those: Vec<usize> = (0..by_node.len()).filter(|node| by_node[*node] > 0).collect();
        let next = those.iter().cycle().skip(1);
        let each = those
            .iter()
            .zip(next)
            .map(|(node, next)| self.handovers[*node][*node].0 * (by_node[*node] - 1) + self.handovers[*node][*next].0);
        Picos(each.sum())
    }

    /// The time that a page takes a CPU that writes in step with others, from its place among them to that place again; 0 where
    /// no others write what it does.
    #[inline]
    pub(crate) fn round_trip_of(&self, cpu: usize) -> Picos {
        self.by_cpu.get(cpu).map_or(Picos(0), |flow| flow.round_trip)
    }

    /// A CPU has come to so many pages from the start of its range.
    pub(crate) fn reach(&mut self, cpu: usize, page: u64) {
        if let Some(flow) = self.by_cpu.get_mut(cpu) {
            flow.reached = page;
        }
    }

    /// How far a CPU on a node, which has come to page `reached` of its `range` by now, is behind the foremost of those that
    /// write in step with it. Pages that are farther in front than a last-level cache is large have left the cache: whoever
    /// wrote them is not in step.
    pub(crate) fn behind(
        &self,
        (cpu, from): (usize, usize),
        (now, reached): (Time, u64),
        (range, cache): (u64, u64),
    ) -> Behind {
        let Some(own) = self.by_cpu.get(cpu).filter(|flow| flow.round_trip > Picos(0)) else {
            return Behind::default();
        };
        let others = self.by_cpu.iter().enumerate();
        let others = others.filter(|(other, flow)| *other != cpu && flow.is_live && flow.writes == own.writes);
        let behind = others.map(|(_, flow)| Behind {
            pages: (flow.reached_by(now, range) + range - reached) % range,
            each: self.handovers[from][flow.from],
        });
        let in_step = behind.filter(|behind| (1..=cache).contains(&behind.pages));
        // Of those that are as far in front the nearest answers.
        in_step.max_by_key(|behind| (behind.pages, std::cmp::Reverse(behind.each))).unwrap_or_default()
    }
}

impl Flow {
    /// The page of a range that it had come to at an instant: its last step may have gone on for longer.
    fn reached_by(&self, now: Time, range: u64) -> u64 {
        let ahead = self.until.0.saturating_sub(now.0);
        (self.reached + range - ahead.div_ceil(self.round_trip.0.max(1)) % range) % range
    }
}
