//! Linux: vma_set_access_pid_bit(), include/linux/mm.h; vma_is_accessed() and the loop over VMAs in task_numa_work(),
//! kernel/sched/fair.c (v6.4 to v6.18).
//! Differs: no cpusets, so that no VMA is spared because its memory is of one node; a single step makes the state of a VMA, so
//! that there is no race for it (5f1b64e9a9b7); the number of a task's control stands for its PID.
//!
//! The VMAs that a scan makes hint: those whose delay is over, that this scan sequence has not scanned yet, and in which the
//! scanning task has faulted lately. Each correction since 6.4 is a rule.

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

/// Scan delays after which PIDs are forgotten (`VMA_PID_RESET_PERIOD`).
const RESET_DELAYS: u64 = 4;
/// Number of scan sequences, the first ones, that scan a VMA whatever tasks use it.
const FREE_SCANS: u64 = 2;
/// `GOLDEN_RATIO_32` of hash_32(), include/linux/hash.h.
const GOLDEN_RATIO: u32 = 0x61c8_8647;

/// The reason why a VMA is not scanned, or is although only other tasks use it (`enum numa_vmaskip_reason`, ed2da8b725b9).
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

/// Number of times for each reason (`sched_skip_vma_numa`). No counter of the kernel has them, so they are not part of the run
/// hash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Skips([u64; 4]);

/// The choice of VMAs in one scan.
#[derive(Clone, Debug)]
pub(super) struct VmaFilter {
    /// Number of threads of the process.
    threads: u64,
    /// The VMA that is being scanned: it is checked once.
    inside: Option<PageRange>,
    /// Some VMAs were skipped for their PIDs; and, as there were no others, one is scanned in any case.
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
    /// Whether the VMA that begins at `start` has a state.
    pub(super) fn knows_numab(&mut self, start: Vpn) -> bool {
        self.numab.of(start).is_some()
    }

    /// Notes the scan sequence in which the VMA was last scanned.
    pub(super) fn set_prev_scan_seq(&mut self, start: Vpn, seq: i64) {
        self.numab.of(start).expect("it was looked at").prev_scan_seq = seq;
    }
}

impl VmaFilter {
    /// Sets the number of threads of the process (`get_nr_threads`).
    pub(super) fn of_threads(&mut self, threads: u64) {
        self.threads = threads;
    }

    /// Whether the VMA is to be scanned from a page on.
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

    /// Whether more scan sequences have left the VMA out than the process has threads.
    fn is_overdue(&self, state: &NumabState, seq: u64) -> bool {
        seq.cast_signed() > state.prev_scan_seq + self.threads.cast_signed()
    }

    /// Notes the page up to which the VMA was scanned. Returns whether the scan ends, because it was forced to take one VMA and
    /// has done so.
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

    /// Whether all VMAs are to be tried again, after the last one, because some were skipped that the task does not use.
    pub(super) fn tries_again(&mut self, rules: &Variant) -> bool {
        let again = rules.numa_vma_once && self.has_skipped && !self.is_forced;
        self.is_forced |= again;
        again
    }
}

impl NumabState {
    /// Whether the VMA is scanned whatever tasks use it: until the address space, or the VMA, was scanned twice.
    fn is_free(&self, rules: &Variant, seq: u64) -> bool {
        let since = if rules.numa_vma_own_scans { self.start_scan_seq } else { 0 };
        seq - since < FREE_SCANS
    }

    /// Whether the task, or one whose PID has the same bit, has faulted in the VMA lately.
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

/// The bit of a PID.
fn bit_of(rules: &Variant, task: ControlId) -> u64 {
    let at =
        if rules.numa_vma_hashes_pids { task.0.wrapping_mul(GOLDEN_RATIO) >> (u32::BITS - 6) } else { task.0 % 64 };
    1 << at
}

impl Mm {
    /// Notes a hinting fault of a task in a VMA (`vma_set_access_pid_bit`).
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

    /// Number of VMAs that scans have skipped, by reason as in the trace event sched_skip_vma_numa; none in kernels before 6.4.
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
