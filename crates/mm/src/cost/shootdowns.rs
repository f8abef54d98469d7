//! Linux: flush_tlb_others() in arch/x86/mm/tlb.c (v6.1).
//! Differs: what a step has asked of others is added up, and done when they next run.

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
