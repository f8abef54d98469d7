//! A real guest whose balloon somebody outside fills and empties, as the simulator's operator does.

use std::cell::RefCell;

use linux::{
    monitor::Operator,
    procfs::{Capture, Snapshot},
};
use mm::guest::balloon::{BalloonSpec, Before};
use report::{Key, Record};
use units::{Bytes, Frames, Picos};

use super::stopped::Stopped;
use crate::{machine::Machine, plan::Session, simulated, workload};

/// By how much an operator comes after the trace. A job begins a moment after the guest says so, as its worker has to start; who
/// took memory before the guest has freed it would take it from the process.
const LATE: Picos = Picos::from_micros(1_000_000);

/// How much a balloon held at last, in `Measured::detail` and in base pages.
const HELD: &str = "balloon_pages";

/// The operator of one boot.
pub(super) struct ByHand {
    machine: Machine,
    operator: RefCell<Operator>,
}

impl ByHand {
    /// Of a session that has one.
    pub(super) fn of(session: &Session) -> Option<Self> {
        let machine = || simulated::with_settings(session.machine.clone(), &session.settings);
        session.has_balloon().then(|| Self { machine: machine(), operator: RefCell::default() })
    }

    pub(super) fn operator(&self) -> &RefCell<Operator> {
        &self.operator
    }

    /// A guest that said how its memory is begins this cell.
    pub(super) fn begins(&self, key: &Key, captures: &[(String, Capture)]) -> Result<(), Stopped> {
        let (_, capture) =
            captures.last().ok_or_else(|| Stopped::Failed("the guest did not say what it has".to_owned()))?;
        let snapshot = Snapshot::parse(capture).map_err(|error| Stopped::Failed(error.to_string()))?;
        let total = Bytes::kib(snapshot.meminfo.get("MemTotal").copied().unwrap_or(0));
        if let Some(spec) = simulated::balloon(&self.machine, &workload::planned(key), total) {
            self.operator.borrow_mut().begin(orders(&spec, before(&snapshot)));
        }
        Ok(())
    }

    /// What the balloon held when it was asked last, up to a second ago, goes into the result.
    pub(super) fn fill(&self, record: &mut Record) {
        let Record::Cell(cell) = record else { return };
        if let Some(held) = self.operator.borrow().held() {
            // As simulated cells have it, which have more than tasks too.
            let tasks = std::mem::take(&mut cell.measured.detail);
            cell.measured.detail = serde_json::json!({ "tasks": tasks, HELD: held.0 });
        }
    }
}

fn before(snapshot: &Snapshot) -> Before {
    let zones = || snapshot.zones.iter();
    Before {
        exist: zones().map(|zone| zone.present).sum(),
        free: zones().map(|zone| zone.free).sum(),
        high: zones().map(|zone| zone.high).sum(),
    }
}

fn orders(spec: &BalloonSpec, before: Before) -> Vec<(Picos, Frames)> {
    let late = |at: Picos| if at == Picos(0) { at } else { at + LATE };
    spec.orders.iter().map(|(at, leaves)| (late(*at), leaves.taken(before))).collect()
}

#[cfg(test)]
mod tests {
    use mm::guest::balloon::Leaves;

    use super::*;

    #[test]
    fn an_operator_takes_as_much_as_a_simulated_one_after_the_trace() {
        let before = Before { exist: Frames(1000), free: Frames(900), high: Frames(10) };
        let spec = BalloonSpec {
            orders: vec![
                (Picos(0), Leaves::Use(Frames(700))),
                (Picos::from_secs(10), Leaves::Use(Frames(0))),
                (Picos::from_secs(20), Leaves::Memory(Frames(400))),
                (Picos::from_secs(30), Leaves::Memory(Frames(4000))),
            ],
            deflate_on_oom: false,
        };
        // A tenth more than 800, and than 100, and the marks.
        let at = |seconds, pages| (Picos::from_secs(seconds), Frames(pages));
        assert_eq!(orders(&spec, before), [at(0, 110), at(11, 880), at(21, 600), at(31, 0)]);
    }
}
