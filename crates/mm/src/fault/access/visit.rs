//! Linux: none; do_numa_page() for a run of pages.
//!
//! Visits to pages with common properties, as many at once as fit into the rest of the step.

use std::cell::Cell;

use memory::{
    cost::{
        AccessPrice, Cause, Pattern,
        latency::Place,
        walk::{Homes, Visit},
    },
    cx::Cx,
    primitive,
    step::RUN,
};
use units::{Pfn, Picos, Streamed, Time};

use super::{Accesses, Alike, Amount, Met, Phase};
use crate::{
    Mm,
    fault::FaultControl,
    folio::pte::Pte,
    numa::numa_hint,
    space::{
        address_space::AddressSpace,
        page_table::{
            Pmd, TableId,
            runs::{NODES, Run},
        },
        vma::PageRange,
    },
};

/// Nodes whose prices of visits are kept for the rest of a step.
const KEPT: usize = 8;

/// The prices of visits to base pages, and to 4 KiB of huge pages, in one step.
pub(super) struct Units {
    prices: UnitPrices,
    /// The position of the CPU's own node.
    own: usize,
}

/// Prices of visits by page size, base pages first.
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, for one step")]
enum UnitPrices {
    /// By the position of the page's node, each found when it is asked for.
    ByNode { at: VisitAt, kept: [Cell<Option<AccessPrice>>; 2 * KEPT] },
    /// By the position of the page's node, and of its page table's node.
    Walked([Visit; 2]),
}

/// The circumstances of all visits of a step.
#[derive(Clone, Copy)]
struct VisitAt {
    pattern: Pattern,
    range: units::Frames,
    from: usize,
    cache_users: u64,
    /// The CPU, if its visits share the bandwidth of nodes and links.
    flow: Option<usize>,
}

impl VisitAt {
    /// The price of a visit to a page of a node while no other flow wants its memory.
    fn alone(&self, mm: &Mm, cx: &Cx, to: usize, is_huge: bool) -> AccessPrice {
        let place = Place { from: self.from, to, is_huge, cache_users: self.cache_users };
        mm.memory.latency().of_visit(cx.prices(), self.pattern, self.range, place)
    }

    fn price(&self, mm: &Mm, cx: &Cx, to: usize, is_huge: bool) -> AccessPrice {
        let alone = self.alone(mm, cx, to, is_huge);
        let Some(cpu) = self.flow else { return alone };
        let turn = mm.memory.flows().turn(cpu, self.from, to);
        with_turn(alone, Picos(turn.0 * self.pattern.crossings()))
    }
}

impl Units {
    /// The price of a visit to a page of node `node` whose page table is on node `tables`.
    #[inline]
    fn of(&self, mm: &Mm, cx: &Cx, is_huge: bool, (node, tables): (usize, usize)) -> AccessPrice {
        match &self.prices {
            UnitPrices::ByNode { at, kept } => {
                let Some(kept) = kept.get(2 * node + usize::from(is_huge)) else {
                    return at.price(mm, cx, node, is_huge);
                };
                let price = kept.get().unwrap_or_else(|| at.price(mm, cx, node, is_huge));
                kept.set(Some(price));
                price
            }
            UnitPrices::Walked(visits) => {
                visits[usize::from(is_huge)].price(mm.memory.latency(), Homes { cpu: self.own, page: node, tables })
            }
        }
    }

    /// The position of a page table's node, if prices depend on it.
    #[inline]
    fn home(&self, mm: &Mm, table: impl FnOnce() -> Pfn) -> usize {
        match &self.prices {
            UnitPrices::ByNode { .. } => self.own,
            UnitPrices::Walked(_) => mm.memory.nodes().place(mm.memory.node_of(table())),
        }
    }
}

/// A round that was done within one step.
pub(super) struct Round {
    start: Time,
    near: Picos,
    far: Picos,
    /// Bytes of all flows when the round began.
    streamed: Option<Streamed>,
}

impl Accesses {
    pub(super) fn units(&mut self, mm: &Mm, cx: &Cx) -> Units {
        let own = mm.memory.nodes().place(mm.memory.node_of_cpu(cx.cpu()));
        let range = units::Frames(self.order.pages());
        let sizes = [false, true];
        let pattern = self.pattern;
        let walked = self
            .walked
            .get_or_insert_with(|| sizes.map(|is_huge| mm.memory.latency().walked_visit(pattern, range, is_huge)));
        if let [Some(base), Some(huge)] = *walked {
            return Units { prices: UnitPrices::Walked([base, huge]), own };
        }
        let at = VisitAt {
            pattern,
            range,
            from: own,
            cache_users: mm.memory.beside().cache_users,
            flow: self.is_flow(mm).then_some(cx.cpu().0 as usize),
        };
        Units { prices: UnitPrices::ByNode { at, kept: [const { Cell::new(None) }; 2 * KEPT] }, own }
    }

    /// Begins a round. If the last round was done within this step without a fault, further rounds of this step take as long.
    pub(super) fn go_round(&mut self, mm: &mut Mm, cx: &mut Cx, limit: Time, last: &mut Option<Round>) {
        let (near, far) = (cx.spent().on(Cause::User), cx.spent().on(Cause::RemoteMemory));
        if let Some(last) = last {
            let span = cx.now().since(last.start).0;
            let left = limit.0.saturating_sub(cx.now().0);
            let most = match self.amount {
                Amount::Rounds(_) => self.left() / self.order.pages(),
                Amount::Time(_) => u64::MAX,
            };
            let rounds = left.checked_div(span).map_or(most, |fit| fit.min(most));
            if rounds == u64::MAX {
                // Rounds that take no time would never end.
                cx.wait(limit, Cause::User);
                return;
            }
            cx.access(AccessPrice { near: near - last.near, far: far - last.far }, rounds);
            if let Some(streamed) = &last.streamed {
                mm.memory.flows_mut().repeat(streamed, rounds);
            }
            self.visits += rounds * self.order.pages();
            self.order.pass_rounds(rounds);
            self.next = self.order.piece().start;
        }
        let (near, far) = (cx.spent().on(Cause::User), cx.spent().on(Cause::RemoteMemory));
        *last = Some(Round { start: cx.now(), near, far, streamed: mm.memory.flows().streamed() });
    }

    /// Begins a round. If the last round met only pages with common properties, and no entry was written since it began, these
    /// are known for the whole range.
    pub(super) fn begin_to_meet(&mut self, space: &AddressSpace) {
        let changes = space.tables.changes();
        if let Some(Met::Alike(alike)) = self.met
            && alike.changes == changes
        {
            self.known = Some(alike);
        }
        self.met = Some(Met::Nothing { changes });
    }

    /// Notes the properties of pages that the round has visited without changing an entry.
    fn meet(&mut self, node: usize, tables: usize, is_huge: bool) {
        self.met = match self.met {
            Some(Met::Nothing { changes }) => Some(Met::Alike(Alike { node, tables, is_huge, changes })),
            Some(Met::Alike(alike)) if (alike.node, alike.tables, alike.is_huge) == (node, tables, is_huge) => self.met,
            _ => None,
        };
    }

    /// Visits the next pages with common properties; or changes to the phase that has to come first.
    pub(super) fn visit(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, units: &Units, limit: Time) {
        let rest = PageRange { start: self.next, end: self.order.piece().end };
        let known = self.known.filter(|known| known.changes == space.tables.changes());
        if let Some(Alike { node, tables, is_huge, .. }) = known {
            let unit = units.of(mm, cx, is_huge, (node, tables));
            let pages = fit(unit.total(), rest.pages(), cx.now(), limit);
            self.pay(mm, cx, (units, unit), (node, pages));
            return self.pass(pages);
        }
        match space.tables.pmd_of(self.next) {
            Pmd::Huge(huge) if huge.is_present() && (huge.is_writable() || !self.stores()) => {
                if huge.is_hinting() {
                    self.phase = Phase::Hints;
                    return;
                }
                self.visit_huge(mm, space, cx, (units, huge), rest, limit);
            }
            Pmd::Table(table) => self.visit_table(mm, space, cx, (units, table), rest, limit),
            Pmd::None | Pmd::Huge(_) => self.begin_fault(),
        }
    }

    fn begin_fault(&mut self) {
        self.phase = Phase::Fault(Box::new(FaultControl::new(self.next, self.access()).under(self.policy)));
    }

    fn visit_huge(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        (units, huge): (&Units, Pte),
        rest: PageRange,
        limit: Time,
    ) {
        if huge.used(self.stores()) != huge {
            space.tables.use_huge(self.next, self.stores());
        }
        let node = mm.memory.nodes().place(mm.memory.node_of(huge.pfn()));
        let tables = units.home(mm, || space.tables.pmd_frame(self.next).expect("there is a huge page"));
        let unit = units.of(mm, cx, true, (node, tables));
        let pages = fit(unit.total(), rest.pages(), cx.now(), limit);
        self.meet(node, tables, true);
        self.pay(mm, cx, (units, unit), (node, pages));
        self.pass(pages);
    }

    fn visit_table(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        (units, table): (&Units, TableId),
        rest: PageRange,
        limit: Time,
    ) {
        if rest.pages() == AddressSpace::HUGE_PAGES && self.visit_whole(mm, space, cx, (units, table), limit) {
            return;
        }
        if space.tables.pte(table, self.next).is_hinting() {
            self.phase = Phase::Hints;
            return;
        }
        match space.tables.run(mm, table, rest, self.stores()) {
            Run::Faults => self.begin_fault(),
            Run::Hinting { .. } => unreachable!("it was looked at"),
            Run::Ready { node, pages } => {
                let tables = units.home(mm, || space.tables.frame(table));
                match node {
                    Some(node) => self.meet(node, tables, false),
                    // The page is equally near to every CPU.
                    None => self.met = None,
                }
                let node = node.unwrap_or(units.own);
                let unit = units.of(mm, cx, false, (node, tables));
                let pages = fit(unit.total(), pages, cx.now(), limit);
                space.tables.use_pages(table, PageRange::new(self.next, pages), self.stores());
                self.pay(mm, cx, (units, unit), (node, pages));
                self.pass(pages);
            }
        }
    }

    /// Visits all 512 pages of a table at once, if they only take time and none was visited in this round; returns whether that
    /// was possible.
    fn visit_whole(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        (units, table): (&Units, TableId),
        limit: Time,
    ) -> bool {
        let Some(summary) = space.tables.summary(mm, table).filter(|summary| summary.is_plain(self.stores())) else {
            return false;
        };
        let tables = units.home(mm, || space.tables.frame(table));
        let nodes = || (0..NODES).zip(summary.by_node).filter(|(_, pages)| *pages > 0);
        let span =
            nodes().map(|(node, pages)| units.of(mm, cx, false, (node, tables)).total().0 * u64::from(pages)).sum();
        if limit.0.saturating_sub(cx.now().0) < span {
            return false;
        }
        for (node, pages) in nodes() {
            self.meet(node, tables, false);
            let unit = units.of(mm, cx, false, (node, tables));
            self.pay(mm, cx, (units, unit), (node, pages.into()));
        }
        self.pass(AddressSpace::HUGE_PAGES);
        true
    }

    /// Takes the hinting faults at the next pages with common properties, each followed by its visit. The mmap lock is taken for
    /// each fault, so that others do not wait for many faults.
    pub(super) fn take_hints(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        units: &Units,
        (limit, horizon): (Time, Time),
    ) {
        self.phase = Phase::User;
        self.met = None;
        if mm.balances_numa() {
            return self.begin_fault();
        }
        let most = if cx.is_over(horizon) { 1 } else { cx.faults_at_once(RUN) };
        let rest = self.order.piece().end.0 - self.next.0;
        let rest = PageRange::new(self.next, rest.min(most));
        match space.tables.pmd_of(self.next) {
            Pmd::Huge(huge) if mm.is_copied_mapped(huge) => self.begin_fault(),
            Pmd::Huge(huge) if huge.is_hinting() => {
                primitive::page_fault(cx, self.next);
                numa_hint::huge_hinting_fault(mm, space, cx, self.next);
            }
            Pmd::Table(table) => {
                let Run::Hinting { node, pages } = space.tables.run(mm, table, rest, self.stores()) else {
                    // A store to a write-protected page begins a fault, too.
                    return self.begin_fault();
                };
                let unit = units.of(mm, cx, false, (node, units.home(mm, || space.tables.frame(table))));
                let pages = fit(numa_hint::price_of_fault(cx) + unit.total(), pages, cx.now(), limit);
                let run = PageRange::new(self.next, pages);
                primitive::page_faults(cx, self.next, pages);
                numa_hint::hinting_faults(space, cx, table, run, node == units.own);
                space.tables.use_pages(table, run, self.stores());
                self.pay(mm, cx, (units, unit), (node, pages));
                self.pass(pages);
            }
            // Another task was faster.
            Pmd::None | Pmd::Huge(_) => {}
        }
    }

    fn pay(&self, mm: &mut Mm, cx: &mut Cx, (units, unit): (&Units, AccessPrice), (node, pages): (usize, u64)) {
        cx.access(unit, pages);
        if let UnitPrices::ByNode { at, .. } = &units.prices
            && let Some(cpu) = at.flow
        {
            let alone = at.alone(mm, cx, node, false).total();
            // A page whose lines cross twice counts as two pages of half the time.
            let crossings = self.pattern.crossings();
            let each = Picos(alone.0 / crossings);
            mm.memory.flows_mut().note(cpu, (units.own, node), (pages * crossings, each));
        }
    }

    fn pass(&mut self, pages: u64) {
        self.visits += pages;
        self.next = self.next.plus(pages);
        if self.next == self.order.piece().end {
            self.next = self.order.next_piece();
        }
    }
}

/// The price of a visit that takes at least a turn; the rest of the turn is waited for in user mode.
fn with_turn(alone: AccessPrice, turn: Picos) -> AccessPrice {
    AccessPrice { near: alone.near + Picos(turn.0.saturating_sub(alone.total().0)), ..alone }
}

/// Number of visits of a price that begin before the limit; at least one, at most `most`.
fn fit(price: Picos, most: u64, now: Time, limit: Time) -> u64 {
    let left = limit.0.saturating_sub(now.0);
    if price.0 == 0 { most } else { left.div_ceil(price.0).clamp(1, most) }
}
