//! Linux: none; the traffic between CPU caches.
//!
//! A cache line that several CPUs write moves between them, one access after the other: a CPU waits until the accesses
//! before its own are served.

use units::{CpuId, Picos, Time};

use crate::{
    cost::{Cause, Work},
    cx::Cx,
};

/// CPUs are not simulated in perfect order: one may be behind another by a quantum (2 us by default) and a step, and may
/// still use the turns that the other left.
const SLACK: Picos = Picos::from_micros(4);

/// A cache line.
#[derive(Clone, Debug, Default)]
pub struct CacheLine {
    /// The CPU whose cache holds the line.
    last: Option<CpuId>,
    /// When all accesses asked for so far are served.
    free_at: Time,
}

impl CacheLine {
    /// Charges `times` writes of a step to the line. Each write is a transfer, unless this CPU still holds the line from
    /// its last access.
    #[inline]
    pub fn access(&mut self, cx: &mut Cx<'_>, times: u64, cause: Cause) {
        let start = cx.now();
        if self.last.replace(cx.cpu()).is_none_or(|last| last == cx.cpu()) {
            return;
        }
        cx.because(cause, |cx| cx.work(Work::LineTransfer, times));
        let from = self.free_at.max(Time(start.0.saturating_sub(SLACK.0)));
        self.free_at = from + cx.now().since(start);
        cx.wait(self.free_at, cause);
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::{cost::Prices, event::Counters};

    /// Duration in ns of `times` writes by a CPU at an instant.
    fn access(line: &mut CacheLine, cpu: u32, at: u64, times: u64) -> u64 {
        let prices = Prices::new(|_| Picos::from_nanos(50));
        let mut counters = Counters::default();
        let mut cx = Cx::new(CpuId(cpu), Time(Picos::from_nanos(at).0), &prices, &mut counters);
        line.access(&mut cx, times, Cause::MmapLock);
        cx.spent().on(Cause::MmapLock).as_nanos()
    }

    #[test]
    fn a_line_that_nobody_else_wants_stays() {
        let mut line = CacheLine::default();
        assert_eq!(access(&mut line, 1, 10_000, 2), 0);
        assert_eq!(access(&mut line, 1, 10_100, 2), 0);
        assert_eq!(access(&mut line, 2, 20_000, 2), 100, "it comes from the other CPU");
        assert_eq!(access(&mut line, 2, 20_100, 2), 0);
    }

    #[test]
    fn more_accesses_than_there_are_turns_queue() {
        let mut line = CacheLine::default();
        let mut last = 0;
        for round in 0..20 {
            for cpu in 0..16 {
                last = access(&mut line, cpu, 10_000 + 1000 * round, 4);
            }
        }
        // Each round asks for 16 times 200 ns in 1 us; what was left in the 4 us before is used up.
        assert!((40_000..48_000).contains(&last), "{last}");
    }
}
