//! Linux: mm/page_alloc.c (v3.9 to v6.1).
//! Differs: no zone reclaim, no cpusets.

pub mod fair;
pub mod lent;

use std::borrow::Cow;

use rules::{
    gfp::{AllocRequest, Mark, Mobility, Urgency},
    mempolicy::NodeMask,
    variant::{ListEnd, Variant},
    zone::ZoneKind,
};
use units::{NodeId, Order, Pfn};

pub use self::lent::NoMemory;
use crate::{
    Memory,
    alloc::lent::Shortage,
    buddy::Block,
    cx::Cx,
    event::Event,
    fact::Fact,
    fallback::Want,
    frame::{Frame, FrameTable},
    node::Node,
    pageblock::{MigrateType, ZoneIndex},
    per_node::PerNode,
    per_zone::PerZone,
    primitive,
    tally::Test,
    zone_state::ZoneState,
};

const _: () = assert!(size_of::<Result<Pfn, NoMemory>>() == size_of::<Option<Pfn>>(), "every fault gets one");

impl Memory {
    /// Allocates a block of frames, which is `Frame::Kernel` until the caller says what it is; `__alloc_pages`.
    ///
    /// # Errors
    /// No zone has a free block above its Min mark: for good, or until the slow path has got one.
    #[inline]
    pub fn alloc(&mut self, cx: &mut Cx<'_>, request: &AllocRequest) -> Result<Pfn, NoMemory> {
        self.alloc_beside(cx, request, 0)
    }

    /// Allocates a block for what will be dirty: rather not on nodes that hold as many dirty pages as they should, which
    /// `full` has by a bit of their number (`spread_dirty_pages`).
    ///
    /// # Errors
    /// As of [`Self::alloc`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "next to no request avoids a node, and then half of this is constant")]
    pub fn alloc_beside(&mut self, cx: &mut Cx<'_>, request: &AllocRequest, full: u64) -> Result<Pfn, NoMemory> {
        let pfn = if cx.is_supplied() {
            self.alloc_supplied(cx, request, full)?
        } else if let Some(pfn) = self.alloc_listed(cx, request, full) {
            pfn
        } else {
            self.alloc_anywhere(cx, request, full)?
        };
        self.access_through_host(cx, pfn, request.order);
        self.check_poison(cx, pfn, request.order);
        Ok(pfn)
    }

    /// The common case: one frame, the first zone of the list is the node's own and above its mark, and the CPU's list is not
    /// empty.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "most callers know the request, and then half of this is constant")]
    fn alloc_listed(&mut self, cx: &mut Cx<'_>, request: &AllocRequest, full: u64) -> Option<Pfn> {
        let is_bound = request.allowed != NodeMask::ALL;
        let is_full_of_dirty = has_node(full, request.node);
        if request.order > Order::BASE || request.is_cold || is_bound || is_full_of_dirty {
            return None;
        }
        let home = self.homes.get(request.node.0 as usize)?[request.highest as usize];
        let home = self.zones.get_mut(home.position())?;
        if !home.is_ok(Order::BASE, request.mark, request.highest, Urgency::Normal, &self.variant) {
            return None;
        }
        let is_fair = self.variant.fair_zones;
        if is_fair && home.fair.is_depleted() {
            return None;
        }
        let pcp = &mut home.pcps[cx.cpu().0 as usize];
        let pfn = pcp.take_base(cx, request.mobility)?;
        if is_fair {
            home.fair.take(1);
        }
        self.frames.set(pfn, Frame::Kernel { order: Order::BASE, mobility: request.mobility });
        cx.count_each([home.alloc_event, Event::NumaHit, pcp.locality()]);
        Some(pfn)
    }

    /// Allocates in a step that has asked for memory before, or was given a block by the slow path.
    #[cold]
    fn alloc_supplied(&mut self, cx: &mut Cx<'_>, request: &AllocRequest, full: u64) -> Result<Pfn, NoMemory> {
        if cx.has_asked() {
            return Err(NoMemory::Asked);
        }
        if Self::does_alloc_fail(cx) || Self::is_refused(cx, request) {
            return Err(NoMemory::Refused);
        }
        match self.take_given(cx, request).or_else(|| self.alloc_listed(cx, request, full)) {
            Some(pfn) => Ok(pfn),
            None => self.alloc_anywhere(cx, request, full),
        }
    }

    #[inline(never)]
    fn alloc_anywhere(&mut self, cx: &mut Cx<'_>, request: &AllocRequest, full: u64) -> Result<Pfn, NoMemory> {
        let preferred = *listed(&self.nodes, &self.zones, request).first().ok_or(NoMemory::Refused)?;
        let AllocRequest { order, mobility, node, reclaims, .. } = *request;
        cx.fact(|| Fact::Request { order, mobility, node, reclaims });
        let found = self.take_fast(cx, request, full).or_else(|| {
            primitive::enter_slow_path(cx);
            if self.variant.node_only_gives_up && request.this_node_only && !request.reclaims {
                // Speculative, as requests for huge pages are where faults may not reclaim: no thread is woken for them.
                return None;
            }
            if request.wakes_kswapd {
                self.wake_all_kswapds(cx, request);
            }
            self.take_slow(cx, request)
        });
        if let Some(found) = found {
            return Ok(self.finish_alloc(cx, request, preferred, found));
        }
        if cx.test(Test::ReclaimAllowed, node, request.reclaims)
            && matches!(cx.memory.shortage, Shortage::Ask | Shortage::Refused(_) | Shortage::Injected(_, true))
        {
            cx.memory.shortage = Shortage::Asked(*request);
            cx.fact(|| Fact::SlowPath { order: request.order });
            return Err(NoMemory::Asked);
        }
        // Nor does it stall.
        let found = stalls_for_block(request, &self.variant).then(|| self.alloc_above_min(cx, request)).flatten();
        found.ok_or(NoMemory::Refused)
    }

    fn finish_alloc(
        &mut self,
        cx: &mut Cx<'_>,
        request: &AllocRequest,
        preferred: ZoneIndex,
        (pfn, zone): (Pfn, ZoneIndex),
    ) -> Pfn {
        let boosted = &mut self.zones[zone];
        if std::mem::take(&mut boosted.is_boosted) {
            let (node, highest) = (boosted.node, boosted.kind);
            self.wake_kswapd(cx, node, Order::BASE, highest);
        }
        self.frames.set(pfn, Frame::Kernel { order: request.order, mobility: request.mobility });
        let (zone, local) = (&self.zones[zone], self.node_of_cpu(cx.cpu()));
        count_alloc(cx, zone, self.zones[preferred].node, local, request.order);
        pfn
    }

    /// A block from the first zone that stays above its Min mark: how the slow path looks each time.
    pub fn alloc_above_min(&mut self, cx: &mut Cx<'_>, request: &AllocRequest) -> Option<Pfn> {
        self.alloc_above(cx, request, Mark::Min)
    }

    /// A block from the first zone that stays above this mark.
    pub fn alloc_above(&mut self, cx: &mut Cx<'_>, request: &AllocRequest, mark: Mark) -> Option<Pfn> {
        let Self { frames, zones, nodes, variant, .. } = self;
        let list = listed(nodes, zones, request);
        let preferred = *list.first()?;
        let pass = Pass { mark, ..Pass::MIN };
        let found = take_in_turn(frames, zones, &list, cx, request, pass, variant)?;
        Some(self.finish_alloc(cx, request, preferred, found))
    }

    /// The zones that may serve a request, the best first.
    pub fn zones_for(&self, request: &AllocRequest) -> Vec<ZoneIndex> {
        listed(&self.nodes, &self.zones, request).into_owned()
    }

    /// Gives back what the lists of all CPUs hold (`drain_all_pages`).
    pub fn drain_all_pages(&mut self, cx: &mut Cx<'_>) {
        let Self { frames, zones, variant, .. } = self;
        for zone in zones.iter_mut() {
            zone.drain_cpus(frames, cx, variant);
        }
    }

    /// The passes of the fast path: rather another zone of the node than pageblocks broken up; rather that than another node.
    /// Where zones take turns: rather one whose turn it is.
    fn take_fast(&mut self, cx: &mut Cx<'_>, request: &AllocRequest, avoids: u64) -> Option<(Pfn, ZoneIndex)> {
        let Self { frames, zones, nodes, variant, .. } = self;
        let list = listed(nodes, zones, request);
        let list = list.as_ref();
        let has_others = nodes.count() > 1;
        let spares_blocks = variant.nofragment && !variant.nofragment_flag_lost && zones[*list.first()?].can_spread;
        let mut try_with = |pass| take_in_turn(frames, zones, list, cx, request, pass, variant);
        let first = Pass { mark: request.mark, avoids, ..Pass::MIN };
        if variant.fair_zones {
            let found = try_with(Pass { in_turn: true, ..first });
            if found.is_some() {
                return found;
            }
            let has_depleted = fair::has_depleted(zones, list);
            if has_depleted {
                fair::begin_turn(zones, list);
            }
            let looks_on = has_depleted || has_others;
            return looks_on.then(|| take_in_turn(frames, zones, list, cx, request, first, variant)).flatten();
        }
        if spares_blocks { try_with(Pass { whole_blocks_only: true, ..first }) } else { None }
            .or_else(|| try_with(first))
    }

    /// The slow path within one step: tries the zonelist once more, down to the Min mark.
    fn take_slow(&mut self, cx: &mut Cx<'_>, request: &AllocRequest) -> Option<(Pfn, ZoneIndex)> {
        let Self { frames, zones, nodes, variant, .. } = self;
        let list = listed(nodes, zones, request);
        let pass = Pass { stalls: stalls_for_block(request, variant), ..Pass::MIN };
        // The slow path does not spread what will be dirty.
        if request.mark == Mark::Min && !request.writes {
            return None;
        }
        let found = take_in_turn(frames, zones, &list, cx, request, pass, variant);
        if pass.stalls {
            self.wake_for_refused(cx, request);
        }
        found
    }

    /// Wakes the kswapds for a request, as the slow path does each round to keep them awake.
    pub fn wake_for(&mut self, cx: &mut Cx<'_>, request: &AllocRequest) {
        self.wake_all_kswapds(cx, request);
    }

    /// Wakes the kswapd of every node that the request could use (`wake_all_kswapds`).
    fn wake_all_kswapds(&mut self, cx: &mut Cx<'_>, request: &AllocRequest) {
        let mut last = None;
        for zone in listed(&self.nodes, &self.zones, request).into_owned() {
            let its = self.zones[zone].node;
            if last.replace(its) != Some(its) {
                let may_wake = self.variant.kcompactd_without_kswapd && !request.reclaims;
                if may_wake && self.is_left_to_kcompactd(its, request.order, request.highest) {
                    self.wake_kcompactd(cx, its, request.order, request.highest);
                }
                self.wake_kswapd(cx, its, request.order, request.highest);
            }
        }
    }

    /// Wakes the kswapds of zones whose marks were raised for a block that was not taken in the end.
    pub(crate) fn wake_for_refused(&mut self, cx: &mut Cx, request: &AllocRequest) {
        for zone in self.zones_for(request) {
            let zone = &mut self.zones[zone];
            if std::mem::take(&mut zone.is_boosted) {
                let (node, highest) = (zone.node, zone.kind);
                self.wake_kswapd(cx, node, Order::BASE, highest);
            }
        }
    }

    /// Frees a block that its caller owns; `__free_pages`.
    #[inline]
    pub fn free(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order) {
        self.prepare_free(cx, pfn, order);
        if order > Order::BASE || !self.free_to_list(cx, pfn) {
            self.free_anywhere(cx, pfn, order, ListEnd::Head);
        }
    }

    /// Frees a block that no cache holds: where the CPU has others, those are used first (`free_hot_cold_page`).
    pub fn free_cold(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order) {
        self.prepare_free(cx, pfn, order);
        self.free_anywhere(cx, pfn, order, ListEnd::Tail);
    }

    /// Forgets what was known of a block that is freed, and overwrites its contents where that is asked (`free_pages_prepare`).
    #[inline]
    fn prepare_free(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order) {
        if let Some(faults) = &mut self.last_faults {
            faults.forget(pfn, order);
        }
        self.overwrite_freed(cx, pfn, order);
    }

    /// The common case of a free: one frame, of a type that requests ask for, and the CPU's list stays below `high`. In any
    /// other case it returns false and changes nothing.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call would take a tenth of it")]
    fn free_to_list(&mut self, cx: &mut Cx<'_>, pfn: Pfn) -> bool {
        let (zone, list) = self.frames.blocks.zone_and_type(pfn);
        let Some(zone) = self.zones.get_mut(zone.position()) else { return false };
        let pcp = &mut zone.pcps[cx.cpu().0 as usize];
        let is_put = pcp.put_base(&mut self.frames, cx, pfn, list);
        if is_put {
            cx.count(Event::Pgfree, 1);
        }
        is_put
    }

    #[inline(never)]
    fn free_anywhere(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order, end: ListEnd) {
        assert!(
            self.frames.allocated(pfn) == Some(order) && pfn.is_aligned(order),
            "frame {pfn} is freed with order {order}, but it is {:?}",
            self.frames.get(pfn)
        );
        assert!(
            order == Order::BASE || self.frames.raw_state(pfn.plus(1)) == 0,
            "frame {pfn} is freed, but a frame behind it still says what it is"
        );
        assert!(self.frames.raw_links(pfn) == 0, "frame {pfn} is freed, but it is still on a list");
        let (zone, list) = self.frames.blocks.zone_and_type(pfn);
        let zone = self.zones.get_mut(zone.position()).expect("an allocated frame is in a zone");
        cx.count(Event::Pgfree, order.frames().into());
        zone.give(&mut self.frames, cx, Block { pfn, order }, (list, end), &self.variant);
        if order >= Order::HUGE {
            self.nodes[zone.node].has_freed_huge = true;
        }
    }
}

/// The zones of a node's zonelist that may serve a request (`for_each_zone_zonelist_nodemask`).
#[inline]
pub fn listed<'a>(
    nodes: &'a PerNode<Node>,
    zones: &PerZone<ZoneState>,
    request: &AllocRequest,
) -> Cow<'a, [ZoneIndex]> {
    let all = nodes[request.node].zonelist.zones(request.highest, request.this_node_only);
    if request.allowed == NodeMask::ALL {
        return Cow::Borrowed(all);
    }
    // A policy for nodes that have movable memory alone is none for requests that such memory cannot serve: page tables of a
    // task that is bound to a node of CXL memory come from other nodes (`apply_policy_zone`, mm/mempolicy.c, v6.6).
    let is_of_policy = |zone: &ZoneState| zone.kind.holds_user() && request.allowed.has(zone.node);
    if request.highest < ZoneKind::Movable && !zones.iter().any(is_of_policy) {
        return Cow::Borrowed(all);
    }
    let is_allowed = |zone: &&ZoneIndex| request.allowed.has(zones[**zone].node);
    Cow::Owned(all.iter().filter(is_allowed).copied().collect())
}

/// One pass over a zonelist.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// The mark that the pass leaves in a zone.
    mark: Mark,
    /// Take at least a whole pageblock from another type, and stay on the node of the first zone (`ALLOC_NOFRAGMENT`).
    whole_blocks_only: bool,
    /// Take only from zones whose turn it is, and stay on the node of the first zone (`ALLOC_FAIR`).
    in_turn: bool,
    /// Take no block smaller than [`rules::gfp::STALL_ORDER`] from another type, and stay on the node of the first zone
    /// (`ALLOC_FRAGMENT_STALL`).
    stalls: bool,
    /// Nodes that are passed over, one bit per node number (`spread_dirty_pages`).
    avoids: u64,
}

impl Pass {
    /// The pass of the slow path.
    const MIN: Self = Self { mark: Mark::Min, whole_blocks_only: false, in_turn: false, stalls: false, avoids: 0 };
}

/// Takes a block from the first zone that stays above the mark and has a block; `get_page_from_freelist`.
#[inline]
fn take_in_turn(
    frames: &mut FrameTable,
    zones: &mut PerZone<ZoneState>,
    list: &[ZoneIndex],
    cx: &mut Cx<'_>,
    request: &AllocRequest,
    pass: Pass,
    rules: &Variant,
) -> Option<(Pfn, ZoneIndex)> {
    let AllocRequest { order, highest, mobility, .. } = *request;
    let urgency = if pass.mark == Mark::Min { urgency_of(request, rules) } else { Urgency::Normal };
    let Pass { whole_blocks_only, stalls, .. } = pass;
    let (list_type, wakes_kswapd) = (MigrateType::of(mobility), request.wakes_kswapd);
    let want = Want { order, list: list_type, whole_blocks_only, stalls, wakes_kswapd };
    let end = if request.is_cold { ListEnd::Tail } else { ListEnd::Head };
    let home = zones[*list.first()?].node;
    for index in list {
        let zone = &mut zones[*index];
        if (whole_blocks_only || pass.in_turn || stalls) && zone.node != home {
            return None;
        }
        if pass.in_turn && zone.fair.is_depleted() {
            continue;
        }
        if !has_node(pass.avoids, zone.node)
            && cx.test(Test::AllocMark, zone.name(), zone.is_ok(order, pass.mark, highest, urgency, rules))
            && let found = zone.take(frames, cx, (want, end), urgency, rules)
            && cx.test(Test::AllocLists, zone.name(), found.is_some())
            && let Some(pfn) = found
        {
            if order > Order::BASE && urgency.is_harder() {
                zone.reserve_high_atomic(frames, cx, pfn, rules);
            }
            if rules.fair_zones {
                zone.fair.take(order.frames());
            }
            return Some((pfn, *index));
        }
        cx.fact(|| zone.passed_over(request, (pass.mark, urgency), rules));
    }
    None
}

/// Is it a request that rather waits than takes a small block from another type (`ALLOC_FRAGMENT_STALL`)?
pub fn stalls_for_block(request: &AllocRequest, rules: &Variant) -> bool {
    rules.fragment_stall && request.reclaims && request.mobility == Mobility::Movable
}

/// The reserves that a request may use once the Low mark is not met (`gfp_to_alloc_flags`).
#[inline]
fn urgency_of(request: &AllocRequest, rules: &Variant) -> Urgency {
    let is_nowait = !request.reclaims && request.wakes_kswapd && request.urgency == Urgency::Normal;
    if is_nowait && rules.nowait_is_harder { Urgency::Harder } else { request.urgency }
}

/// Does a set of nodes, by a bit of their number, have this one?
#[inline]
fn has_node(nodes: u64, node: NodeId) -> bool {
    nodes >> (node.0 % u64::BITS) & 1 != 0
}

/// `zone_statistics` and the allocation counters of `rmqueue`.
fn count_alloc(cx: &mut Cx<'_>, zone: &ZoneState, preferred: NodeId, local: NodeId, order: Order) {
    cx.count(zone.alloc_event, order.frames().into());
    if zone.node == preferred {
        cx.count(Event::NumaHit, 1);
    } else {
        cx.count(Event::NumaMiss, 1);
        cx.count(Event::NumaForeign, 1);
    }
    cx.count(if zone.node == local { Event::NumaLocal } else { Event::NumaOther }, 1);
}

#[cfg(test)]
mod tests;
