//! Linux: none; the loads and stores of user code, and the faults that they take.
//! Differs: a range at a time; no data are loaded or stored.

use memory::{
    cx::Cx,
    frame::{Holdings, SpaceId},
    primitive,
    step::Step,
};
use rules::mempolicy::Mempolicy;
use units::{Bytes, Order, Pfn, Time, VirtAddr, Vpn};

use crate::{
    Mm, Spaces,
    fault::{self, Access, FaultControl, FaultDone},
    file::page_cache::copy_at_once,
    folio::pte::Pte,
    space::{
        address_space::AddressSpace,
        page_table::{Level, Pmd, TableId},
        vma::{FileMap, PageRange},
    },
};

/// User code that accesses one byte at the start of every `stride` bytes of a range, in address order. The field of the fault
/// comes last, as few steps have one.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Touch {
    next: u64,
    end: u64,
    stride: u64,
    access: Access,
    /// Every byte of each page is written, not only the first of a stride.
    fills: bool,
    /// The VMA that was accessed last, if it has anonymous pages.
    tied: Option<Tied>,
    /// The page table that was accessed last, and the end of its pages in one VMA.
    walked: Option<Walked>,
    fault: Option<FaultControl>,
    /// The memory policy of the task.
    policy: Mempolicy,
}

/// The page table of the pages up to `end`, valid while no table moves; and their VMA, valid while no VMA changes.
#[derive(Clone, Copy, Debug)]
struct Walked {
    end: Vpn,
    moves: u64,
    changes: u64,
    table: TableId,
    kind: Kind,
}

/// The kind of a VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The VMA has anonymous pages, and no file.
    Anon,
    /// The VMA is a private mapping of a file, and has anonymous pages.
    Private(FileMap),
    /// Nothing: it may get anonymous pages.
    Other,
}

impl Walked {
    /// Whether this is still the table of a page at or behind the one that it was found for.
    #[inline]
    fn is_table_of(&self, space: &AddressSpace, vpn: Vpn) -> bool {
        self.moves == space.tables.moves() && vpn < self.end
    }

    /// Whether, in addition, the page is still in that VMA.
    #[inline]
    fn holds(&self, space: &AddressSpace, vpn: Vpn) -> bool {
        self.is_table_of(space, vpn) && self.changes == space.vmas.changes() && self.kind != Kind::Other
    }
}

/// Pages of a VMA with anonymous pages, valid while no VMA changes.
#[derive(Clone, Copy, Debug)]
struct Tied {
    range: PageRange,
    changes: u64,
}

impl Touch {
    /// Accesses to the `len` bytes from `start` on, `stride` bytes (not 0) apart.
    pub fn new(start: VirtAddr, len: Bytes, stride: Bytes, access: Access) -> Self {
        assert!(stride.0 > 0, "accesses are some bytes apart");
        let (next, end, stride) = (start.0, start.0 + len.0, stride.0);
        Self {
            next,
            end,
            stride,
            access,
            fills: false,
            tied: None,
            walked: None,
            fault: None,
            policy: Mempolicy::Local,
        }
    }

    /// Stores to every byte of the `len` bytes from `start` on.
    pub fn fill(start: VirtAddr, len: Bytes) -> Self {
        Self { fills: true, ..Self::new(start, len, Bytes::PAGE, Access::Write) }
    }

    /// One access to each page.
    pub fn pages(range: PageRange, access: Access) -> Self {
        let len = Bytes(range.pages() * Bytes::PAGE.0);
        Self::new(VirtAddr(range.start.0 * Bytes::PAGE.0), len, Bytes::PAGE, access)
    }

    /// Sets the policy of the task.
    #[must_use]
    pub fn under(self, policy: Mempolicy) -> Self {
        Self { policy, ..self }
    }

    /// The first byte that is not accessed yet.
    pub fn next(&self) -> VirtAddr {
        VirtAddr(self.next)
    }

    /// Accesses that are left.
    #[inline]
    pub fn left(&self) -> u64 {
        let rest = self.end.saturating_sub(self.next);
        if self.stride.is_power_of_two() {
            // Every turn of a CPU asks this, and a division takes as long as a page.
            return (rest + (self.stride - 1)) >> self.stride.trailing_zeros();
        }
        rest.div_ceil(self.stride)
    }

    /// Whether the VMA of the next access has anonymous pages, or may have had some, and no task has locked the VMA for write
    /// (`lock_vma_under_rcu`).
    pub fn has_tied_vma(&self, space: &AddressSpace) -> bool {
        let tied = self.known_tied(space).or_else(|| self.find_tied(space));
        let is_locked = |tied: Tied| space.locked_vma.is_some_and(|page| tied.range.contains(page));
        tied.is_some_and(|tied| !is_locked(tied))
    }

    /// The VMA of the next access, if it was also that of the last access and has not changed.
    #[inline]
    fn known_tied(&self, space: &AddressSpace) -> Option<Tied> {
        self.tied.filter(|tied| tied.changes == space.vmas.changes() && tied.range.contains(self.vpn()))
    }

    fn find_tied(&self, space: &AddressSpace) -> Option<Tied> {
        let vma = space.vmas.find(self.vpn()).filter(|vma| vma.anon.is_some() && vma.file.is_none())?;
        Some(Tied { range: vma.range(), changes: space.vmas.changes() })
    }

    /// Whether a fault is under way, for which the caller holds the mmap lock for read.
    pub fn is_in_fault(&self) -> bool {
        self.fault.is_some()
    }

    /// Whether the fault under way is in the middle of clearing a huge page.
    #[inline]
    pub fn is_clearing(&self) -> bool {
        self.fault.as_ref().is_some_and(FaultControl::is_clearing)
    }

    /// Clears the rest of that huge page in pieces, as [`Self::step`] would, each as a step of its own: at least one piece, and
    /// further pieces as long as they begin before an instant. `ended` is called at the end of each piece. Returns when the last
    /// piece began.
    ///
    /// # Panics
    /// When no huge page is being cleared.
    pub fn clear_on(&mut self, mm: &mut Mm, cx: &mut Cx, before: Time, ended: impl FnMut(Time)) -> Time {
        self.fault.as_mut().expect("a huge page is being cleared").clear_on(mm, cx, before, ended)
    }

    /// Takes a step until `horizon`, at least one page or one phase of a fault. Returns `Handled` when all bytes are accessed.
    pub fn step(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, horizon: Time) -> Step<FaultDone> {
        // Bound: each turn passes a page, or starts a fault, or ends one.
        while self.next < self.end {
            match &mut self.fault {
                None => self.advance(mm, space, cx, horizon),
                Some(fault) => match fault.step(mm, space, cx) {
                    Step::More => return Step::More,
                    Step::Block(wait) => return Step::Block(wait),
                    Step::Done(FaultDone::Handled) => self.fault = None,
                    Step::Done(failed) => return Step::Done(failed),
                },
            }
            if self.next < self.end && cx.is_over(horizon) {
                return Step::More;
            }
        }
        Step::Done(FaultDone::Handled)
    }

    /// Whether a fault under way has pages to move, which needs all address spaces.
    #[inline]
    pub fn is_moving(&self) -> bool {
        self.fault.as_ref().is_some_and(FaultControl::is_moving)
    }

    /// Takes a step of moving these pages, if [`Self::is_moving`].
    ///
    /// # Panics
    /// When there are no pages to move.
    pub fn step_moving(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, id: SpaceId) -> Step<FaultDone> {
        match self.fault.as_mut().expect("a fault moves pages").step_moving(mm, spaces, cx, id) {
            Step::Done(FaultDone::Handled) => self.fault = None,
            Step::Done(failed) => return Step::Done(failed),
            Step::Block(wait) => return Step::Block(wait),
            Step::More => {}
        }
        Step::More
    }

    /// Leaves the pages that were to move where they are, if there are any.
    pub fn abort_moving(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        if let Some(fault) = &mut self.fault {
            fault.abort_moving(mm, spaces, cx);
        }
    }

    /// Frames that a fault under way holds between two steps.
    pub fn holdings(&self, space: &AddressSpace) -> Holdings {
        self.fault.as_ref().map_or_else(Holdings::default, |fault| fault.holdings(space))
    }

    /// Frees what a fault under way holds.
    pub fn abort(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) {
        if let Some(mut fault) = self.fault.take() {
            fault.abort(mm, space, cx);
        }
    }

    fn vpn(&self) -> Vpn {
        Vpn(self.next / Bytes::PAGE.0)
    }

    fn advance(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, horizon: Time) {
        let vpn = self.vpn();
        if !self.walked.is_some_and(|walked| walked.holds(space, vpn)) {
            self.walked = self.walk(mm, space, cx);
        }
        if let Some(walked) = self.walked {
            self.advance_in_table(mm, space, cx, walked, horizon);
        }
    }

    /// Finds the page table of the next access, if it has one. A huge page is accessed here; if nothing is mapped, a fault
    /// begins.
    #[inline(never)]
    fn walk(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Option<Walked> {
        let vpn = self.vpn();
        let known = self.walked.filter(|walked| walked.is_table_of(space, vpn));
        match known.map_or_else(|| space.tables.pmd_of(vpn), |walked| Pmd::Table(walked.table)) {
            Pmd::Huge(huge) if huge.is_accessible() && (self.access == Access::Read || huge.is_writable()) => {
                if !huge.is_accessed() {
                    space.tables.use_huge(vpn, self.access == Access::Write);
                }
                if mm.memory.has_host_kernel() {
                    mm.memory.access_through_host(cx, huge.pfn(), Order::HUGE);
                }
                let huge_end = vpn.huge_start().plus(AddressSpace::HUGE_PAGES);
                let piece = vpn.plus(u64::from(mm.memory.piece(Order::HUGE).frames()));
                let end = if self.fills { huge_end.min(piece) } else { huge_end };
                self.touch_below(mm, cx, end, huge.pfn());
                None
            }
            Pmd::Table(table) => {
                if self.known_tied(space).is_none() {
                    self.tied = self.find_tied(space);
                }
                let table_end = vpn.huge_start().plus(AddressSpace::HUGE_PAGES);
                let (kind, vma_end) = match self.tied {
                    Some(tied) => (Kind::Anon, tied.range.end),
                    None => {
                        of_file(space, vpn).map_or((Kind::Other, table_end), |(map, end)| (Kind::Private(map), end))
                    }
                };
                let (moves, changes) = (space.tables.moves(), space.vmas.changes());
                Some(Walked { end: vma_end.min(table_end), moves, changes, table, kind })
            }
            Pmd::None | Pmd::Huge(_) => {
                self.fault = Some(FaultControl::new(vpn, self.access).under(self.policy));
                None
            }
        }
    }

    /// Accesses base pages of one table and one VMA. The first store to a page, by far the most frequent fault, is taken here:
    /// with the work of `FaultControl` once a table is there, in the same order.
    fn advance_in_table(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, walked: Walked, horizon: Time) {
        let Walked { end, table, kind, .. } = walked;
        let node = mm.memory.node_of_cpu(cx.cpu());
        // Where pages of another policy go, the fault knows.
        let is_tied = kind == Kind::Anon && self.policy.is_local();
        // Bound: each turn passes a page.
        while self.next < self.end && self.vpn() < end {
            let vpn = self.vpn();
            let pte = space.tables.pte(table, vpn);
            if pte == Pte::NONE && self.access == Access::Write && is_tied {
                primitive::page_fault(cx, vpn);
                if fault::map_base(mm, space, cx, table, vpn, node).is_err() {
                    // The fault asks again, or is told again that memory is out, and is not counted twice.
                    self.fault = Some(FaultControl::again(vpn, self.access));
                    return;
                }
            } else if pte == Pte::NONE
                && self.access == Access::Write
                && let Kind::Private(map) = kind
                && let Some(page) = mm.ready_page(map, vpn)
                && !cx.is_over(horizon)
            {
                primitive::page_fault(cx, vpn);
                if copy_at_once(mm, space, cx, (table, vpn, map), page).is_err() {
                    self.fault = Some(FaultControl::again_of_file(vpn, self.access).under(self.policy));
                    return;
                }
                // Others get their turn where they would if the fault took the long way.
                if cx.is_over(horizon) {
                    return;
                }
            } else if !pte.is_accessible() || (self.access == Access::Write && !pte.is_writable()) {
                self.fault = Some(FaultControl::new(vpn, self.access).under(self.policy));
                return;
            } else {
                if mm.memory.has_host_kernel() && !pte.is_zero_page() {
                    // The host may have swapped it out.
                    mm.memory.access_through_host(cx, pte.pfn(), Order::BASE);
                }
                // A migrated page may have been read since, but not stored to.
                let used = pte.used(self.access == Access::Write);
                if used != pte {
                    space.tables.ptes_mut(table)[Level::Pte.index(vpn)] = used;
                }
            }
            // Only `fill` needs the frame: not worth a second lookup otherwise.
            let frame = if self.fills { space.tables.pte(table, vpn).pfn() } else { Pfn(0) };
            self.touch_below(mm, cx, vpn.plus(1), frame);
            if cx.is_over(horizon) {
                return;
            }
        }
    }

    /// Does the accesses to mapped pages below `end`; `frame` is one of them if they are filled.
    #[inline]
    fn touch_below(&mut self, mm: &mut Mm, cx: &mut Cx, end: Vpn, frame: Pfn) {
        let end = (end.0 * Bytes::PAGE.0).min(self.end);
        let span = end - self.next;
        let touches = if span <= self.stride { 1 } else { span.div_ceil(self.stride) };
        if self.fills {
            mm.memory.fill(cx, frame, touches);
        } else {
            primitive::user_touch(cx, touches);
        }
        self.next += touches * self.stride;
    }
}

/// The part of a file that the page's VMA maps, and the VMA's end, if it is a private mapping that has anonymous pages already.
fn of_file(space: &AddressSpace, vpn: Vpn) -> Option<(FileMap, Vpn)> {
    let vma = space.vmas.find(vpn).filter(|vma| vma.anon.is_some())?;
    vma.file.filter(|map| !map.is_shared).map(|map| (map, vma.end()))
}
