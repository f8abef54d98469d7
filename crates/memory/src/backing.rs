//! Linux: virt/kvm/kvm_main.c, do_huge_pmd_anonymous_page() and zap_huge_pmd() of the host's kernel (v5.5 to v6.1).
//! Differs: a host without a kernel is only a state for each page of the guest's memory; it has no shortage and no other
//! guests. For a host with a kernel, the caller that steps both kernels does the work listed here.
//!
//! A guest's memory is backed by pages of a process on the host, which come with the guest's first access to each and go when
//! the guest reports them. An access is assumed when a block is allocated, or a page is copied to: nearly all allocated memory
//! is written at once. A host with a kernel, which may swap, also sees accesses of user code to mapped pages; later reads of
//! the guest's kernel are not modelled.

use rules::gfp::AllocRequest;
use serde::Serialize;
use units::{Order, Pfn};

use crate::{Memory, alloc::NoMemory, cx::Cx, event::Event, frame::Held, poison::OnFree, primitive};

/// How the host discards a page that its guest reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Discard {
    /// The page is gone at once, and comes back cleared (`MADV_DONTNEED`, which QEMU uses).
    #[default]
    DontNeed,
    /// The page may go when the host is short of memory; else it is there as it was (`MADV_FREE`).
    Free,
}

/// A host, as described in a guest's machine file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// The largest pages that the host backs the guest with.
    pub page: Order,
    /// How the host discards reported pages.
    pub discard: Discard,
}

/// The host's pages behind a region. A region is the frames of one huge page of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    /// Nothing (`pmd_none`).
    Nothing,
    /// A huge page.
    Huge,
    /// A page table, which backs frame by frame.
    Table,
}

/// The host behind a guest's memory.
#[derive(Clone, Debug)]
pub enum Host {
    /// Pages without a kernel that owns them.
    Pages(Backing),
    /// A host with a kernel, and the work for it.
    Kernel(HostWork),
}

/// Work that a guest leaves to its host's kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostWork {
    /// Blocks that the guest has accessed, in order, whether backed or not.
    pub accessed: Vec<Held>,
    /// Blocks that the guest has reported; it waits until they are freed.
    pub reported: Vec<Held>,
    /// The huge page of the guest that was last found to be a huge page of the host.
    known: Option<u32>,
}

/// A rule of the host that is broken, for tests of who reports free pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMistake {
    /// The host gives back the whole of its page, of which the block is a part.
    DiscardsHostPage,
    /// The host clears the whole of its page when it backs a part of it.
    ClearsHostPage,
    /// The host backs a page again with what was there before.
    BringsBackStale,
}

/// The pages with which a host without a kernel backs the guest's memory.
#[derive(Clone, Debug)]
pub struct Backing {
    spec: HostSpec,
    regions: Vec<Region>,
    /// One bit for each frame: it is backed. Only for regions with a page table.
    frames: Vec<u64>,
    /// One bit for each frame: the host has taken it back.
    given_back: Vec<u64>,
    /// Frames that are backed.
    pub resident: u64,
    /// Frames that the host has yet to clear before the CPU that has accessed them goes on, and one of them.
    to_clear: (u64, Pfn),
    /// Number of times that all CPUs have to leave the guest, so that none uses a page that was taken back.
    flushes: u64,
    /// A rule that is broken, for tests.
    pub mistake: Option<HostMistake>,
}

/// Frames of a region, and frames in one word of a bitmap.
const REGION: u32 = Order::HUGE.frames();
const WORD: u32 = u64::BITS;

/// Work of the host for an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Faulted {
    faults: u64,
    cleared: u64,
    again: u64,
}

fn has(bits: &[u64], pfn: Pfn) -> bool {
    bits[(pfn.0 / WORD) as usize] >> (pfn.0 % WORD) & 1 != 0
}

fn put(bits: &mut [u64], pfn: Pfn, on: bool) {
    let bit = 1 << (pfn.0 % WORD);
    let word = &mut bits[(pfn.0 / WORD) as usize];
    if on { *word |= bit } else { *word &= !bit }
}

impl Backing {
    fn new(frames: u32, spec: HostSpec) -> Self {
        let words = || vec![0; frames.div_ceil(WORD) as usize];
        let regions = vec![Region::Nothing; frames.div_ceil(REGION) as usize];
        Self {
            spec,
            regions,
            frames: words(),
            given_back: words(),
            resident: 0,
            to_clear: (0, Pfn(0)),
            flushes: 0,
            mistake: None,
        }
    }

    /// Whether a frame is backed.
    #[inline]
    pub fn has(&self, pfn: Pfn) -> bool {
        match self.regions[(pfn.0 / REGION) as usize] {
            Region::Nothing => false,
            Region::Huge => true,
            Region::Table => has(&self.frames, pfn),
        }
    }

    /// By a huge page?
    pub fn is_huge(&self, pfn: Pfn) -> bool {
        self.regions[(pfn.0 / REGION) as usize] == Region::Huge
    }

    /// Was it backed, and is it no longer?
    pub fn is_given_back(&self, pfn: Pfn) -> bool {
        has(&self.given_back, pfn)
    }

    /// Does the host do this with what is reported?
    pub fn discard_is(&self, discard: Discard) -> bool {
        self.spec.discard == discard
    }

    /// Backs a frame that the guest accesses (`__do_huge_pmd_anonymous_page`, `do_anonymous_page`).
    fn access(&mut self, pfn: Pfn, faulted: &mut Faulted) {
        if self.has(pfn) {
            return;
        }
        let at = (pfn.0 / REGION) as usize;
        let run = if self.regions[at] == Region::Nothing && self.spec.page == Order::HUGE {
            self.regions[at] = Region::Huge;
            pfn.align_down(Order::HUGE).0..pfn.align_down(Order::HUGE).0 + REGION
        } else {
            self.regions[at] = Region::Table;
            put(&mut self.frames, pfn, true);
            pfn.0..pfn.0 + 1
        };
        faulted.faults += 1;
        faulted.cleared += u64::from(run.end - run.start);
        self.resident += u64::from(run.end - run.start);
        for pfn in run.map(Pfn) {
            faulted.again += u64::from(has(&self.given_back, pfn));
            put(&mut self.given_back, pfn, false);
        }
    }

    /// Discards a block that the guest has reported; returns the number of frames freed (`zap_huge_pmd`, `zap_pte_range`). A
    /// huge page that is freed in part is split.
    fn discard(&mut self, pfn: Pfn, order: Order) -> u64 {
        if self.spec.discard == Discard::Free {
            return 0;
        }
        let before = self.resident;
        if order >= Order::HUGE {
            for start in (0..order.frames()).step_by(REGION as usize).map(|n| pfn.plus(n)) {
                self.discard_region(start);
            }
        } else {
            self.discard_part(pfn, order);
        }
        before - self.resident
    }

    fn discard_region(&mut self, start: Pfn) {
        let at = (start.0 / REGION) as usize;
        if self.regions[at] == Region::Huge {
            for pfn in (0..REGION).map(|n| start.plus(n)) {
                put(&mut self.given_back, pfn, true);
            }
            self.regions[at] = Region::Nothing;
            self.resident -= u64::from(REGION);
        } else {
            self.discard_part(start, Order::HUGE);
        }
    }

    fn discard_part(&mut self, pfn: Pfn, order: Order) {
        let at = (pfn.0 / REGION) as usize;
        if self.regions[at] == Region::Huge {
            self.regions[at] = Region::Table;
            let start = pfn.align_down(Order::HUGE);
            (0..REGION).for_each(|n| put(&mut self.frames, start.plus(n), true));
        }
        for pfn in (0..order.frames()).map(|n| pfn.plus(n)) {
            if self.has(pfn) {
                put(&mut self.frames, pfn, false);
                put(&mut self.given_back, pfn, true);
                self.resident -= 1;
            }
        }
    }
}

impl Memory {
    /// This memory is a guest's: of what the machine has now, a host backs what is in use.
    pub fn attach_host(&mut self, spec: HostSpec) {
        let mut backing = Backing::new(self.frames.len(), spec);
        let mut faulted = Faulted::default();
        let free = self.free_regions();
        for region in 0..self.frames.len() / REGION {
            let start = Pfn(region * REGION);
            if !free[region as usize] && self.is_memory(start) {
                (0..REGION).for_each(|n| backing.access(start.plus(n), &mut faulted));
            }
        }
        self.host = Some(Box::new(Host::Pages(backing)));
    }

    /// Makes this memory that of a guest whose host has a kernel. Memory in use counts as accessed, so the host backs it
    /// first.
    pub fn attach_host_kernel(&mut self) {
        let free = self.free_regions();
        let used = (0..self.frames.len() / REGION).filter(|region| !free[*region as usize]);
        let used = used.map(|region| Held { pfn: Pfn(region * REGION), order: Order::HUGE });
        let accessed = used.filter(|held| self.is_memory(held.pfn)).collect();
        self.host = Some(Box::new(Host::Kernel(HostWork { accessed, ..HostWork::default() })));
    }

    /// The host below, where this memory is a guest's.
    pub fn host(&self) -> Option<&Host> {
        self.host.as_deref()
    }

    /// The host below, to be changed: for tests.
    pub fn host_mut(&mut self) -> Option<&mut Host> {
        self.host.as_deref_mut()
    }

    /// Allocates a block that the guest does not access yet: its host hears of it only later.
    ///
    /// # Errors
    /// As of [`Self::alloc`].
    pub fn alloc_unaccessed(&mut self, cx: &mut Cx<'_>, request: &AllocRequest) -> Result<Pfn, NoMemory> {
        let host = self.host.take();
        let got = self.alloc(cx, request);
        self.host = host;
        got
    }

    /// Is its host a kernel?
    #[inline]
    pub fn has_host_kernel(&self) -> bool {
        matches!(self.host.as_deref(), Some(Host::Kernel(_)))
    }

    /// Whether there is work for the host's kernel.
    #[inline]
    pub fn has_host_work(&self) -> bool {
        match self.host.as_deref() {
            Some(Host::Kernel(work)) => !work.accessed.is_empty() || !work.reported.is_empty(),
            _ => false,
        }
    }

    /// Notes that the host has backed a block with huge pages: accesses to the last of them need no further look.
    pub fn note_backed_huge(&mut self, last: Pfn) {
        if let Some(Host::Kernel(work)) = self.host.as_deref_mut() {
            work.known = Some(last.0 / REGION);
        }
    }

    /// Takes the work that this guest has for its host's kernel.
    pub fn take_host_work(&mut self) -> HostWork {
        match self.host.as_deref_mut() {
            Some(Host::Kernel(work)) => std::mem::take(work),
            _ => HostWork::default(),
        }
    }

    /// Is it memory of a machine, and no hole in a zone or between two?
    pub fn is_memory(&self, pfn: Pfn) -> bool {
        self.zones.iter().any(|zone| pfn >= zone.start && u64::from(pfn.0 - zone.start.0) < zone.present)
    }

    /// Marks the regions of the machine that are wholly free and were never written to.
    fn free_regions(&self) -> Vec<bool> {
        let mut free = vec![false; (self.frames.len() / REGION) as usize];
        if self.on_free != OnFree::Nothing {
            // All memory was written at boot.
            return free;
        }
        for pfn in (0..self.frames.len()).step_by(REGION as usize).map(Pfn) {
            for order in Order::HUGE.0..=self.max_order().0 {
                if pfn.is_aligned(Order(order)) && self.frames.is_free(pfn, Order(order)) {
                    let first = (pfn.0 / REGION) as usize;
                    free[first..first + (Order(order).frames() / REGION) as usize].fill(true);
                }
            }
        }
        free
    }

    /// Frames of this guest that its host backs; none if this is not a guest.
    pub fn host_resident(&self) -> Option<u64> {
        match self.host.as_deref() {
            Some(Host::Pages(backing)) => Some(backing.resident),
            _ => None,
        }
    }

    /// Accesses a block in a guest: the host backs what is not backed yet, while the guest's CPU waits.
    #[inline]
    pub fn access_through_host(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order) {
        if self.host.is_some() {
            self.fault_at_host(cx, pfn, order);
        }
    }

    #[inline(never)]
    fn fault_at_host(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order) {
        let host = match self.host.as_deref_mut().expect("a guest has a host") {
            Host::Pages(backing) => backing,
            Host::Kernel(work) if work.known == Some(pfn.0 / REGION) && order <= Order::HUGE => return,
            Host::Kernel(work) => {
                work.accessed.push(Held { pfn, order });
                // The host looks at it before more memory is accessed.
                return cx.cut();
            }
        };
        let mut faulted = Faulted::default();
        for pfn in (0..order.frames()).map(|n| pfn.plus(n)) {
            host.access(pfn, &mut faulted);
        }
        if faulted.faults == 0 {
            return;
        }
        host.to_clear = (host.to_clear.0 + faulted.cleared, pfn);
        if host.mistake == Some(HostMistake::ClearsHostPage) {
            self.frames.clear_contents(pfn.align_down(Order::HUGE), Order::HUGE);
        }
        cx.count(Event::SimHostFaults, faulted.faults);
        cx.count(Event::SimHostClearedPages, faulted.cleared);
        cx.count(Event::SimHostRefaults, faulted.again);
        primitive::host_faults(cx, faulted.faults);
        if !self.has_bandwidth_limit() {
            self.clear_by_host(cx, u64::MAX);
        }
    }

    /// Whether the host has frames to clear for the CPU of this step. Only if memory has a bandwidth limit, so that others
    /// have their part of it meanwhile.
    #[inline]
    pub fn has_host_clears(&self) -> bool {
        matches!(self.host.as_deref(), Some(Host::Pages(backing)) if backing.to_clear.0 > 0)
    }

    /// Takes the number of frames that the host has to clear.
    pub fn take_host_clears(&mut self) -> u64 {
        match self.host.as_deref_mut() {
            Some(Host::Pages(backing)) => std::mem::take(&mut backing.to_clear.0),
            _ => 0,
        }
    }

    /// Whether the host has taken pages back since this was last asked (`kvm_flush_remote_tlbs`).
    #[inline]
    pub fn has_host_flushes(&self) -> bool {
        matches!(self.host.as_deref(), Some(Host::Pages(backing)) if backing.flushes > 0)
    }

    /// Takes the number of times that each CPU has to leave the guest for that.
    pub fn take_host_flushes(&mut self) -> u64 {
        match self.host.as_deref_mut() {
            Some(Host::Pages(backing)) => std::mem::take(&mut backing.flushes),
            _ => 0,
        }
    }

    /// Clears up to `most` of the frames that the host has to clear.
    fn clear_by_host(&mut self, cx: &mut Cx<'_>, most: u64) {
        let Some(Host::Pages(backing)) = self.host.as_deref_mut() else { return };
        let (left, pfn) = backing.to_clear;
        let frames = left.min(most);
        backing.to_clear.0 -= frames;
        self.clear_for_guest(cx, pfn, frames);
    }

    /// Clears one of the frames that [`Self::take_host_clears`] returned.
    pub fn clear_one_by_host(&mut self, cx: &mut Cx<'_>) {
        let Some(Host::Pages(backing)) = self.host.as_deref() else { return };
        let pfn = backing.to_clear.1;
        self.clear_for_guest(cx, pfn, 1);
    }

    /// The host gives back a block that was reported; false when it has a kernel, which does it later.
    pub fn discard_by_host(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order) -> bool {
        let Held { pfn, order } = self.rounded_by_host(Held { pfn, order });
        let mut is_stale = false;
        let gone = match self.host.as_deref_mut() {
            Some(Host::Pages(backing)) => {
                is_stale = backing.mistake == Some(HostMistake::BringsBackStale);
                let gone = backing.discard(pfn, order);
                backing.flushes += u64::from(gone > 0);
                gone
            }
            Some(Host::Kernel(work)) => {
                work.reported.push(Held { pfn, order });
                work.known = None;
                self.frames.clear_contents(pfn, order);
                return false;
            }
            None => 0,
        };
        if gone > 0 && !is_stale {
            // A store to such a page is lost.
            self.frames.clear_contents(pfn, order);
        }
        cx.count(Event::SimHostDiscards, gone);
        true
    }

    /// The part of memory that the host gives back for a block.
    fn rounded_by_host(&self, block: Held) -> Held {
        match self.host.as_deref() {
            Some(Host::Pages(backing)) if backing.mistake == Some(HostMistake::DiscardsHostPage) => {
                Held { pfn: block.pfn.align_down(Order::HUGE), order: block.order.max(Order::HUGE) }
            }
            _ => block,
        }
    }
}
