//! Linux: flush_tlb_others() in arch/x86/mm/tlb.c (v6.1).
//! Differs: what a step has asked of others is added up, and done when they next run.

use crate::{frame::ControlId, spaces::SpaceId};

/// Whose step it is, and what the other CPUs do meanwhile.
#[derive(Debug)]
pub struct Circumstances<'a> {
    /// See [`super::Cx::acting_for`].
    pub control: ControlId,
    /// See [`super::Cx::with_sharers`].
    pub sharers: u32,
    /// What they run, where the step may change other address spaces than its own.
    pub running: Option<Running<'a>>,
    /// Somebody else waits for this CPU (`need_resched`).
    pub need_resched: bool,
    /// Somebody else has had it since the last step: the kernel would have asked at the end of that one.
    pub was_preempted: bool,
}

/// What CPUs run, and what the step asks of those that run an address space, whichever.
#[derive(Debug)]
pub struct Running<'a> {
    /// Whose address space each CPU runs, by number.
    pub spaces: &'a [SpaceId],
    /// What was asked, by address space.
    pub asked: &'a mut Vec<(SpaceId, Shootdowns)>,
}

/// What a step has asked of the other CPUs that have its address space loaded; each of them pays for all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shootdowns {
    /// Interrupts that each of them gets.
    pub rounds: u32,
    /// How many of those flush the whole TLB.
    pub whole: u32,
    /// Pages that the others flush one by one.
    pub pages: u32,
}

impl Shootdowns {
    /// Adds what another step asks.
    pub fn add(&mut self, other: Self) {
        let Self { rounds, whole, pages } = *self;
        *self = Self { rounds: rounds + other.rounds, whole: whole + other.whole, pages: pages + other.pages };
    }
}
