//! Linux: vma_set_access_pid_bit(), include/linux/mm.h; vma_is_accessed() and what
//! task_numa_work() does for each VMA, kernel/sched/fair.c (v6.4 to v6.18).
//! Differs: no cpusets, so that none is spared because its memory is of one node; a step makes the state of a VMA, so that nobody
//! can be second (5f1b64e9a9b7); the number of a task's control stands for its PID.
//!
//! Which VMAs a scan makes hint: those that wait no more, that this scan of all has not had yet, and in which the task that scans
//! has faulted of late. Each correction since 6.4 is a rule.

use memory::{cx::Cx, frame::ControlId};
use rules::variant::Variant;
use units::{Picos, Time, Vpn};

use super::millis;
use crate::{
    Mm,
    space::{
        address_space::AddressSpace,
        vma::{PageRange, Vma, numab::NumabState},
    },
};

/// PIDs are forgotten after so many delays (`VMA_PID_RESET_PERIOD`).
const RESET_DELAYS: u64 = 4;
/// So many scans of all look at a VMA whoever has used it.
const FREE_SCANS: u64 = 2;
/// `GOLDEN_RATIO_32` of hash_32(), include/linux/hash.h.
const GOLDEN_RATIO: u32 = 0x61c8_8647;

/// Why a VMA is not scanned, or is although its tasks are others (`enum numa_vmaskip_reason`, ed2da8b725b9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    ScanDelay,
    PidInactive,
    IgnorePid,
    SeqCompleted,
}

/// Names of the reasons, as counters.
pub const VMA_SKIPS: [&str; 4] = [
    "sim_sched_skip_vma_numa_scan_delay",
    "sim_sched_skip_vma_numa_pid_inactive",
    "sim_sched_skip_vma_numa_ignore_pid_inactive",
    "sim_sched_skip_vma_numa_seq_completed",
];

/// How often there was each reason (`sched_skip_vma_numa`). No counter of the kernel has it, so that it is no part of the run
/// hash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Skips([u64; 4]);

/// The choice of VMAs in one scan.
#[derive(Clone, Debug)]
pub(super) struct VmaFilter {
    /// Threads of the process.
    threads: u64,
    /// The VMA that is scanned: it is looked at once.
    inside: Option<PageRange>,
    /// Some were skipped for the PID; there was nothing else, and one is scanned in any case.
    has_skipped: bool,
    is_forced: bool,
}

impl Default for VmaFilter {
    fn default() -> Self {
        Self { threads: 1, inside: None, has_skipped: false, is_forced: false }
    }
}

#[cfg(test)]
impl crate::space::vma::VmaSet {
    /// Has the VMA that begins there been looked at?
    pub(super) fn knows_numab(&mut self, start: Vpn) -> bool {
        self.numab.of(start).is_some()
    }

    /// The VMA was scanned last in that scan of all.
    pub(super) fn set_prev_scan_seq(&mut self, start: Vpn, seq: i64) {
        self.numab.of(start).expect("it was looked at").prev_scan_seq = seq;
    }
}

impl VmaFilter {
    /// Sets the threads of the process (`get_nr_threads`).
    pub(super) fn of_threads(&mut self, threads: u64) {
        self.threads = threads;
    }

    /// Shall the VMA be scanned from a page on?
    pub(super) fn passes(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &Cx, (vma, at): (&Vma, Vpn)) -> bool {
        let rules = *mm.memory.variant();
        if !rules.numa_vma_delay && !rules.numa_vma_by_pid {
            return true;
        }
        if self.inside.is_some_and(|inside| inside.contains(at)) {
            return true;
        }
        let reason = self.look(&rules, space, (vma, cx.now()), (cx.control(), mm.numa_scan_delay()));
        if let Some(reason) = reason {
            mm.numa.as_mut().expect("a scan is of a kernel that balances").skips.0[reason as usize] += 1;
        }
        let passes = reason.is_none_or(|reason| reason == Reason::IgnorePid);
        self.inside = passes.then(|| vma.range());
        passes
    }

    fn look(
        &mut self,
        rules: &Variant,
        space: &mut AddressSpace,
        (vma, now): (&Vma, Time),
        (task, delay): (ControlId, Picos),
    ) -> Option<Reason> {
        let (seq, offset) = (space.numa.seq, space.numa.offset);
        let state = space.vmas.numab.make(vma.start, || NumabState {
            next_scan: now + delay,
            pids_active_reset: now + delay * (1 + RESET_DELAYS),
            pids_active: [0; 2],
            prev_scan_seq: seq.cast_signed() - 1,
            start_scan_seq: seq,
        });
        if rules.numa_vma_delay && seq > 0 && now < state.next_scan {
            return Some(Reason::ScanDelay);
        }
        let forgets = rules.numa_vma_forgets_pids && seq > 0;
        if rules.numa_vma_forgets_first && forgets {
            state.forget_pids(now, delay);
        }
        if rules.numa_vma_once && state.prev_scan_seq == seq.cast_signed() {
            space.numa.offset = vma.end();
            return Some(Reason::SeqCompleted);
        }
        let mut reason = None;
        if rules.numa_vma_by_pid && !self.is_forced {
            let has_begun = rules.numa_vma_finishes && offset > vma.start;
            if !state.is_free(rules, seq) && !state.knows(rules, task) {
                let is_overdue = rules.numa_vma_unscanned && self.is_overdue(state, seq);
                if !(has_begun || is_overdue) {
                    self.has_skipped = true;
                    return Some(Reason::PidInactive);
                }
                reason = has_begun.then_some(Reason::IgnorePid);
            }
        }
        if !rules.numa_vma_forgets_first && forgets {
            state.forget_pids(now, delay);
        }
        reason
    }

    /// Have more scans of all gone by without it than there are threads to make them?
    fn is_overdue(&self, state: &NumabState, seq: u64) -> bool {
        seq.cast_signed() > state.prev_scan_seq + self.threads.cast_signed()
    }

    /// A part of the VMA has been scanned, up to a page. Does the scan end, as it was forced to have one VMA and has it?
    pub(super) fn ends_at(&mut self, rules: &Variant, space: &mut AddressSpace, at: Vpn) -> bool {
        let Some(whole) = self.inside.filter(|inside| inside.end == at) else { return false };
        self.inside = None;
        if !rules.numa_vma_once {
            return false;
        }
        let seq = space.numa.seq.cast_signed();
        if let Some(state) = space.vmas.numab.of(whole.start) {
            state.prev_scan_seq = seq;
        }
        self.is_forced
    }

    /// There are no VMAs any more. Shall all be looked at again, because there were some that the task does not use?
    pub(super) fn tries_again(&mut self, rules: &Variant) -> bool {
        let again = rules.numa_vma_once && self.has_skipped && !self.is_forced;
        self.is_forced |= again;
        again
    }
}

impl NumabState {
    /// Is it looked at whoever uses it? Until the address space has been scanned twice, or it has.
    fn is_free(&self, rules: &Variant, seq: u64) -> bool {
        let since = if rules.numa_vma_own_scans { self.start_scan_seq } else { 0 };
        seq - since < FREE_SCANS
    }

    /// Has the task faulted in it, or one whose PID has the same bit?
    fn knows(&self, rules: &Variant, task: ControlId) -> bool {
        (self.pids_active[0] | self.pids_active[1]) & bit_of(rules, task) != 0
    }

    fn forget_pids(&mut self, now: Time, delay: Picos) {
        if now > self.pids_active_reset {
            self.pids_active_reset = self.pids_active_reset + delay * RESET_DELAYS;
            self.pids_active = [self.pids_active[1], 0];
        }
    }
}

/// The bit of a PID in a word.
fn bit_of(rules: &Variant, task: ControlId) -> u64 {
    let at =
        if rules.numa_vma_hashes_pids { task.0.wrapping_mul(GOLDEN_RATIO) >> (u32::BITS - 6) } else { task.0 % 64 };
    1 << at
}

impl Mm {
    /// A task has a hinting fault at a page that is memory (`vma_set_access_pid_bit`).
    pub(crate) fn numa_vma_faulted(&self, space: &mut AddressSpace, task: ControlId, vpn: Vpn) {
        let rules = self.memory.variant();
        if !rules.numa_vma_by_pid {
            return;
        }
        let Some(start) = space.vmas.find(vpn).map(|vma| vma.start) else { return };
        if let Some(state) = space.vmas.numab.of(start) {
            state.pids_active[1] |= bit_of(rules, task);
        }
    }

    fn numa_scan_delay(&self) -> Picos {
        let delay_ms = self.numa.as_ref().and_then(|numa| numa.settings.delay_ms);
        millis(u64::from(delay_ms.unwrap_or(1000)))
    }

    /// How often scans have skipped a VMA, by reason as the trace event sched_skip_vma_numa has them; of kernels that ask who
    /// uses
    /// a VMA.
    pub fn numa_vma_skips(&self) -> Option<[(&'static str, u64); 4]> {
        let Skips([delay, inactive, ignored, completed]) = self.numa.as_ref()?.skips;
        let [of_delay, of_inactive, of_ignored, of_completed] = VMA_SKIPS;
        self.memory.variant().numa_vma_by_pid.then_some([
            (of_delay, delay),
            (of_inactive, inactive),
            (of_ignored, ignored),
            (of_completed, completed),
        ])
    }
}
