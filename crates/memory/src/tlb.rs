//! Linux: flush_tlb_others() and flush_tlb_mm_range() in arch/x86/mm/tlb.c (v6.1).
//! Differs: no lazy TLBs, no address space identifiers. The flushes that a step has asked of other CPUs are added up, and
//! done when those CPUs next run.

use crate::{
    cost::{Cause, Work},
    cx::Cx,
    event::Event,
    fact::Fact,
    frame::SpaceId,
};

/// The address spaces that CPUs run, and the requests of the step to CPUs that run one of them.
#[derive(Debug)]
pub struct Running<'a> {
    /// The address space that each CPU runs, by number.
    pub spaces: &'a [SpaceId],
    /// Requests so far, by address space.
    pub asked: &'a mut Vec<(SpaceId, Shootdowns)>,
}

/// Requests of a step to the other CPUs that have its address space loaded; each of these CPUs pays for all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shootdowns {
    /// Interrupts that each of the CPUs gets.
    pub rounds: u32,
    /// Interrupts that flush the whole TLB.
    pub whole: u32,
    /// Pages that each of the CPUs flushes one by one.
    pub pages: u32,
}

impl Shootdowns {
    /// Adds the requests of another step.
    pub fn add(&mut self, other: Self) {
        let Self { rounds, whole, pages } = *self;
        *self = Self { rounds: rounds + other.rounds, whole: whole + other.whole, pages: pages + other.pages };
    }
}

/// The CPUs that have the step's address space loaded (`mm_cpumask`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// Not even this one: there is no TLB to flush.
    Nowhere,
    /// By the CPU of the step, and by `others` CPUs.
    Here {
        /// CPUs beside this one.
        others: u32,
    },
}

/// The TLBs of the machine as a step knows them, and its requests to them.
#[derive(Debug)]
pub struct Tlbs<'a> {
    /// Where the page tables of this step are loaded.
    pub loaded: Loaded,
    shootdowns: Shootdowns,
    /// The address spaces that CPUs run; none where the caller does not say.
    pub running: Option<Running<'a>>,
}

impl Tlbs<'_> {
    /// The step's address space is loaded on its own CPU alone, and the caller does not say what others run.
    pub const ALONE: Self = Self {
        loaded: Loaded::Here { others: 0 },
        shootdowns: Shootdowns { rounds: 0, whole: 0, pages: 0 },
        running: None,
    };

    /// Whether the step has sent requests to other CPUs.
    #[inline]
    pub fn has_asked(&self) -> bool {
        let has_asked = self.running.as_ref().is_some_and(|running| !running.asked.is_empty());
        self.shootdowns.rounds > 0 || has_asked
    }
}

impl Cx<'_> {
    /// Does everything inside `body` to an address space that no CPU has loaded.
    pub fn on_unloaded<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.tlbs.loaded, Loaded::Nowhere);
        let result = body(self);
        self.tlbs.loaded = outer;
        result
    }

    /// Flushes `pages` entries one by one, or the whole TLB, on every CPU that has the address space loaded
    /// (`flush_tlb_mm_range`, arch/x86/mm/tlb.c, v6.1).
    pub fn flush_tlb(&mut self, pages: Option<u32>) {
        let Loaded::Here { others } = self.tlbs.loaded else { return };
        let flush = Shootdowns { rounds: 1, whole: u32::from(pages.is_none()), pages: pages.unwrap_or(0) };
        self.flush_here(flush);
        if others > 0 {
            self.interrupt(flush, others);
            self.tlbs.shootdowns.add(flush);
        }
    }

    /// Flushes pages of an address space, which need not be the task's, on every CPU that runs it (`flush_tlb_page` of
    /// `ptep_clear_flush`).
    pub(crate) fn flush_tlb_of(&mut self, space: SpaceId, pages: Option<u32>) {
        let flush = Shootdowns { rounds: 1, whole: u32::from(pages.is_none()), pages: pages.unwrap_or(0) };
        let here = self.cpu().0 as usize;
        let Some(Running { spaces, asked }) = &mut self.tlbs.running else { return };
        let is_here = spaces.get(here) == Some(&space);
        let others = spaces.iter().enumerate().filter(|(cpu, runs)| *cpu != here && **runs == space).count();
        if others > 0 {
            match asked.iter_mut().find(|(asked, _)| *asked == space) {
                Some((_, asked)) => asked.add(flush),
                None => asked.push((space, flush)),
            }
        }
        if is_here {
            self.flush_here(flush);
        }
        if others > 0 {
            self.interrupt(flush, u32::try_from(others).expect("fewer than 2^32 CPUs"));
        }
    }

    fn flush_here(&mut self, flush: Shootdowns) {
        self.flush_own_tlb(flush.whole, flush.pages);
        self.count(Event::SimTlbLocalFlushAll, flush.whole.into());
        self.count(Event::SimTlbLocalFlushOne, flush.pages.into());
    }

    fn interrupt(&mut self, flush: Shootdowns, others: u32) {
        let before = self.now();
        self.work(Work::Ipi, flush.rounds.into());
        self.work(Work::IpiTarget, u64::from(others - 1));
        self.count(Event::SimTlbRemoteFlush, 1);
        self.count(Event::SimTlbRemoteFlushReceived, others.into());
        let cause = self.meter().charges(Work::Ipi);
        let pages = if flush.whole > 0 { 0 } else { flush.pages.into() };
        let took = self.now().since(before);
        self.detail(|| Fact::Shootdown { cpus: others, times: 1, pages, cause: cause.name().to_owned(), took });
    }

    /// Requests of the step so far to other CPUs that have its address space loaded.
    #[inline]
    pub fn shootdowns(&self) -> Shootdowns {
        self.tlbs.shootdowns
    }

    /// Does the flushes that another CPU's step has asked of this CPU (`flush_tlb_func` in the interrupt).
    #[inline]
    pub fn receive(&mut self, asked: Shootdowns) {
        if asked.rounds == 0 {
            return;
        }
        let before = self.now();
        self.because(Cause::Ipi, |cx| {
            cx.work(Work::IpiReceive, asked.rounds.into());
            cx.flush_own_tlb(asked.whole, asked.pages);
        });
        let (took, Shootdowns { rounds, whole, pages }) = (self.now().since(before), asked);
        self.detail(|| Fact::Interrupted { times: rounds.into(), pages: pages.into(), whole: whole.into(), took });
    }

    fn flush_own_tlb(&mut self, whole: u32, pages: u32) {
        self.work(Work::TlbFlush, whole.into());
        self.work(Work::TlbFlushPage, pages.into());
    }
}
