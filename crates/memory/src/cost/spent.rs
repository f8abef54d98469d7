//! Linux: none; where the time of a step, a task or a run went.

use units::Picos;

use super::{CAUSES, Cause, Meter};

/// Number of causes, the first ones, on which faults spend nearly all their time: they fill one cache line.
const FIRST: usize = 8;
const _: () = assert!((Cause::Clear as usize) < FIRST);

/// Time spent, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent(pub(super) [Picos; CAUSES]);

impl Spent {
    /// Time spent on one cause.
    pub fn on(&self, cause: Cause) -> Picos {
        self.0[cause as usize]
    }

    /// Adds time spent on one cause.
    pub fn add_on(&mut self, cause: Cause, span: Picos) {
        self.0[cause as usize] += span;
    }

    /// Adds the time that another step spent.
    #[inline]
    pub fn add(&mut self, step: &Self) {
        for (sum, part) in self.0.iter_mut().zip(step.0) {
            // A part is no more than the time that has passed, and the sum of that is checked.
            sum.0 = sum.0.wrapping_add(part.0);
        }
    }

    /// Time spent since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut spent = *self;
        for (part, before) in spent.0.iter_mut().zip(earlier.0) {
            part.0 = part.0.wrapping_sub(before.0);
        }
        spent
    }

    /// Adds the time that a step has spent so far. Most steps spend time on the first causes alone, and then the rest is
    /// not added. That the parts are the whole time is checked at the end of the operation.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "in every turn of a CPU")]
    pub fn add_step(&mut self, meter: &Meter<'_>) {
        let (first, rest) = meter.spent.0.split_at(FIRST);
        let mut total = 0_u64;
        for (sum, part) in self.0.iter_mut().zip(first) {
            sum.0 = sum.0.wrapping_add(part.0);
            total = total.wrapping_add(part.0);
        }
        if total != meter.total.0 {
            self.add_rest(rest);
        }
    }

    #[inline(never)]
    fn add_rest(&mut self, rest: &[Picos]) {
        for (sum, part) in self.0[FIRST..].iter_mut().zip(rest) {
            sum.0 = sum.0.wrapping_add(part.0);
        }
    }

    /// Time spent on all causes together.
    pub fn total(&self) -> Picos {
        // No part is more than the time that has passed.
        Picos(self.0.iter().fold(0, |sum, part| sum.wrapping_add(part.0)))
    }

    /// Every cause on which time was spent, and that time, in the order of declaration.
    pub fn by_cause(&self) -> impl Iterator<Item = (Cause, Picos)> + '_ {
        Cause::ALL.iter().map(|cause| (*cause, self.on(*cause))).filter(|(_, span)| *span > Picos(0))
    }
}
