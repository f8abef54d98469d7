//! A guest whose memory on this host is looked at while it runs.

use std::cell::{Cell, RefCell};

use linux::{footprint::Footprint, host::monotonic_ns};
use report::{Record, Skip};
use units::Picos;

use crate::{
    footprint::{self, Clocks},
    plan::Session,
};

/// What was seen of one boot so far, and when the job that runs began, by both clocks.
pub(super) struct Watched {
    every: Picos,
    seen: RefCell<Footprint>,
    clocks: Cell<Option<(usize, Clocks)>>,
}

impl Watched {
    /// Of a session whose workload wants it.
    pub(super) fn of(session: &Session) -> Option<Self> {
        let every = session.footprint()?;
        Some(Self { every, seen: RefCell::new(Footprint::every(every)), clocks: Cell::new(None) })
    }

    pub(super) fn seen(&self) -> &RefCell<Footprint> {
        &self.seen
    }

    /// A guest says what time it is before job `index`.
    pub(super) fn begins(&self, index: usize, guest_ns: u64) {
        self.clocks.set(Some((index, Clocks { host_ns: monotonic_ns(), guest_ns })));
    }

    /// Puts what was seen into the result of job `index`; where there is nothing, the result says why.
    pub(super) fn fill(&self, index: usize, record: &mut Record) {
        let Record::Cell(cell) = record else { return };
        let Some(footprint) = &mut cell.footprint else { return };
        let seen = self.seen.borrow();
        let clocks = self.clocks.get().filter(|(job, _)| *job == index).map(|(_, clocks)| clocks);
        let clocks = clocks.ok_or_else(|| "the guest did not say when it began".to_owned());
        match seen.samples().and_then(|samples| Ok((samples, clocks?))) {
            Ok((samples, clocks)) => footprint::fill(footprint, self.every, samples, clocks),
            Err(reason) => cell.measured.skipped.push(Skip { what: "memory on the host".to_owned(), reason }),
        }
    }
}
