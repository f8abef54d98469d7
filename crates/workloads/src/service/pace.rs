//! When the operations of a thread are due.

use units::{Bytes, Picos, Time};

use super::plan::Rate;

/// A stream of operations, each due at its time however long others take (an open loop); without a period each is due at once.
#[derive(Debug)]
pub(super) struct Pace {
    start: Time,
    /// Between two operations of the process.
    period: Option<Picos>,
    thread: u64,
    threads: u64,
    done: u64,
}

impl Pace {
    /// Thread i of n does operation i, i + n and so on of the process.
    pub(super) fn new(start: Time, period: Option<Picos>, (thread, threads): (u32, u32)) -> Self {
        Self { start, period, thread: thread.into(), threads: threads.into(), done: 0 }
    }

    /// When the next operation is due; none where it is at once.
    pub(super) fn due(&self) -> Option<Time> {
        let number = self.thread + self.done * self.threads;
        self.period.map(|period| self.start + period * number)
    }

    pub(super) fn count(&mut self) {
        self.done += 1;
    }

    pub(super) fn done(&self) -> u64 {
        self.done
    }
}

/// The time between two operations of `block` bytes.
pub(super) fn period(rate: Option<Rate>, block: Bytes) -> Option<Picos> {
    let (units, each_second) = match rate? {
        Rate::Operations(thousandths) => (1000, thousandths),
        Rate::Bytes(bytes) => (block.0, bytes),
    };
    let picos = u128::from(units) * u128::from(Picos::from_secs(1).0) / u128::from(each_second.max(1));
    Some(Picos(u64::try_from(picos).unwrap_or(u64::MAX).max(1)))
}

/// Operations that are due within a time.
pub(super) fn asked(period: Option<Picos>, time: Picos) -> Option<u64> {
    period.map(|period| time.0.div_ceil(period.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_rate_of_their_process() {
        let each = period(Some(Rate::Operations(5_000_000)), Bytes(0));
        assert_eq!(each, Some(Picos::from_micros(200)));
        let mut second = Pace::new(Time(0), each, (1, 4));
        assert_eq!(second.due(), Some(Time(0) + Picos::from_micros(200)));
        second.count();
        assert_eq!(second.due(), Some(Time(0) + Picos::from_micros(1000)));
        assert_eq!(asked(each, Picos::from_secs(2)), Some(10_000));
        assert_eq!(Pace::new(Time(7), None, (0, 1)).due(), None);
    }

    #[test]
    fn a_rate_in_bytes_depends_on_the_block() {
        assert_eq!(period(Some(Rate::Bytes(1 << 30)), Bytes::mib(1)), Some(Picos(976_562_500)));
        assert_eq!(period(Some(Rate::Bytes(u64::MAX)), Bytes(1)), Some(Picos(1)), "no operation is without a time");
    }
}
