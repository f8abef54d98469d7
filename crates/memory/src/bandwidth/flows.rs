//! Linux: none; memory and links between nodes that several CPUs stream through at the same time.
//! Differs: as in [`super::Server`] each CPU streams one page at a time and pages are served in turn; here that is computed as
//! shares of a rate, not page by page. Clearing and copying are not flows: they use `Server`; copies get the bandwidth that flows
//! leave, and clears, whose lines a cache takes, do not notice flows.
//!
//! User code that sweeps through memory is a flow of its CPU, through the memory of the nodes where its pages are and the links
//! to them. A node or link with a limit, if the flows want more than it has, serves their pages in turn, so that a page takes
//! each flow the same time, a *turn*. Flows that want less are not slowed down, and the others have equal parts. Turns change
//! when a flow begins, ends, or goes through other nodes than before, at most once a tick: between two changes the time of a page
//! is one number, and a sweep goes on for as long as nothing else happens on its CPU.
//!
//! CPUs that write all of the same range through their caches go through it in step: a CPU behind finds lines in another's
//! cache, which is nearer than memory, and catches up; the CPU in front waits for memory. A line then goes from CPU to CPU, first
//! within a node (the last-level cache answers first), then to another node, and comes from memory once for all CPUs. So a line
//! takes each CPU as long as it takes to go round. Non-temporal stores have no part in this: no cache has their lines.
//!
//! A line that is read before it is written, and written back later, counts twice; a link counts both ways as one.
//!
//! No memory serves all CPUs alike: which one gets more depends on where it sits. Where a machine says by how much parts differ,
//! each CPU's turn is longer or shorter than the mean by a draw of its own. Threads that run through the same memory would
//! otherwise stay beside each other for ever.

mod shortest_turn;

use units::{Bytes, Pfn, Picos, Streamed, Time, Vpn};

use self::shortest_turn::{Claim, Claims, ONE};

/// Least time between two changes of the turns.
const TICK: Picos = Picos::from_micros(4000);
/// If the turns have not changed for a tick, they change this soon after a flow has: flows that begin together are all there by
/// then.
const TOGETHER: Picos = Picos::from_micros(10);
/// A flow that has not gone on for this long has ended: its CPU does something else. CPUs are not simulated in perfect order.
const GONE: Picos = Picos::from_micros(50);
/// Number of passes in which each resource's turn is computed while the others stay: flows through several nodes tie them
/// together.
const PASSES: usize = 4;
/// The shares of a flow's nodes are rounded to a sixteenth: a smaller change counts as none.
const MIX: u64 = 16;

/// The flows of a machine, and the time of a page where flows want more than a resource has.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// Flows by CPU.
    by_cpu: Vec<Flow>,
    /// Time to serve one page, by node: 0 without a limit.
    nodes: Vec<Picos>,
    /// Time to send one page over a link, by the node of the CPU and of the memory; none where no link has a limit.
    links: Vec<Vec<Picos>>,
    /// Time for all lines of a page to go from one CPU to another, by the nodes of both; none where it takes no time.
    handovers: Vec<Vec<Picos>>,
    /// The time of a turn for each CPU, in thousandths of the mean; empty if memory serves all alike.
    unevenness: Vec<u64>,
    /// The turns in force.
    turns: Turns,
    /// When the turns changed last.
    changed: Option<Time>,
    /// When the turns change next, if they do.
    due: Option<Time>,
    next_look: Time,
    /// Number of changes of the turns so far.
    changes: u64,
    /// All that flows have gone through so far.
    streamed: Streamed,
    /// Room for the claims on a resource.
    claims: Vec<Claim>,
}

/// The least time of a page, by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Turns {
    nodes: Vec<Picos>,
    links: Vec<Vec<Picos>>,
}

/// The flow of a CPU.
#[derive(Clone, Debug, Default)]
struct Flow {
    is_live: bool,
    /// The CPU is in a fault: clearing there is not the flow's.
    is_held_up: bool,
    /// The position of the CPU's node.
    from: usize,
    until: Time,
    /// Pages of the present step, by node, and the time of a page without other flows.
    pages: Vec<u64>,
    alone: Vec<Picos>,
    /// The pages of the last step, by node; the turns follow from them.
    mix: Vec<u64>,
    /// The memory that the flow writes; none where its stores go past caches.
    writes: Option<Written>,
    /// CPUs that write this memory in step, this CPU included; and the time in which a page goes round these CPUs.
    sharers: u64,
    round_trip: Picos,
}

/// Memory that a flow writes: the root of its page tables, and a range of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The frame of the root of the page tables.
    pub root: Pfn,
    /// From the first to one past the last.
    pub pages: (Vpn, Vpn),
}

/// How a step of a flow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The flow goes on.
    GoesOn,
    /// A page fault comes before the flow's next page.
    HeldUp,
    /// The flow ends.
    Done,
}

/// A memory or a link, which serves one page after the other.
#[derive(Clone, Copy, Debug)]
enum Resource {
    Node(usize),
    Link(usize, usize),
}

impl Flows {
    /// Limits a node's memory: the time to serve one page.
    pub(super) fn limit_node(&mut self, (node, nodes): (usize, usize), per_page: Picos) {
        self.nodes.resize(nodes, Picos(0));
        self.nodes[node] = per_page;
    }

    /// Limits links: the time to serve one page, by the node of the CPU and of the memory; 0 without a limit.
    pub(crate) fn limit_links(&mut self, links: Vec<Vec<Picos>>) {
        self.nodes.resize(links.len().max(self.nodes.len()), Picos(0));
        self.links = links;
    }

    /// Sets the time that all lines of a page take from one CPU's cache to another's, by the nodes of both.
    pub(crate) fn set_handovers(&mut self, handovers: Vec<Vec<Picos>>) {
        self.nodes.resize(handovers.len().max(self.nodes.len()), Picos(0));
        self.handovers = handovers;
    }

    /// Sets the time of a turn for each CPU, in thousandths of the mean.
    pub fn set_unevenness(&mut self, thousandths: Vec<u64>) {
        self.unevenness = thousandths;
    }

    /// A turn as it is for a CPU.
    #[inline]
    fn for_cpu(&self, cpu: usize, turn: Picos) -> Picos {
        self.unevenness.get(cpu).map_or(turn, |thousandths| Picos(turn.0 * thousandths / 1000))
    }

    /// Whether any node or link has a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Whether the CPU has a flow.
    #[inline]
    pub fn is_live(&self, cpu: usize) -> bool {
        self.by_cpu.get(cpu).is_some_and(|flow| flow.is_live)
    }

    /// The least time of a page for a CPU.
    #[inline]
    pub fn turn(&self, cpu: usize, from: usize, to: usize) -> Picos {
        self.for_cpu(cpu, self.turn_of(from, to)).max(self.by_cpu.get(cpu).map_or(Picos(0), |flow| flow.round_trip))
    }

    fn turn_of(&self, from: usize, to: usize) -> Picos {
        self.turns.of(Resource::Node(to)).max(self.turns.of(Resource::Link(from, to)))
    }

    /// All that flows have gone through so far; none where nothing limits them.
    pub fn streamed(&self) -> Option<Streamed> {
        self.is_limited().then_some(self.streamed)
    }

    /// Counts what flows have gone through since `before` this number of times more.
    pub fn repeat(&mut self, before: &Streamed, times: u64) {
        self.streamed.repeat(before, times);
    }

    /// How often turns have changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Begins a step of a flow: changes turns that are due. Returns the instant up to which the turns stay, if that is known.
    pub(crate) fn begin_step(&mut self, now: Time) -> Option<Time> {
        if now >= self.next_look {
            self.next_look = now + TICK;
            self.end_those_gone(now);
        }
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            self.changed = Some(now);
            self.changes += 1;
            self.find_turns();
        }
        self.due
    }

    /// Counts pages of a node that the flow of a CPU of a node has gone through; `alone` is the time of each without other flows.
    #[inline]
    pub fn note(&mut self, cpu: usize, (from, to): (usize, usize), (pages, alone): (u64, Picos)) {
        self.count(cpu, (from, to), (Bytes::PAGE * pages, alone));
        if self.by_cpu.len() <= cpu {
            self.by_cpu.resize_with(cpu + 1, Flow::default);
        }
        let nodes = self.nodes.len();
        let flow = &mut self.by_cpu[cpu];
        if flow.pages.len() < nodes {
            flow.pages.resize(nodes, 0);
            flow.alone.resize(nodes, Picos(0));
        }
        flow.pages[to] += pages;
        flow.alone[to] = alone;
    }

    /// Counts bytes by where they went, and by the limit that took longest.
    fn count(&mut self, cpu: usize, (from, to): (usize, usize), (bytes, alone): (Bytes, Picos)) {
        let node = self.for_cpu(cpu, self.turns.of(Resource::Node(to)));
        let lines = self.by_cpu.get(cpu).map_or(Picos(0), |flow| flow.round_trip);
        let turn = self.turn(cpu, from, to);
        let Streamed { near, far, by_core, by_node, by_link, by_lines } = &mut self.streamed;
        *(if from == to { near } else { far }) += bytes;
        let limit = match turn {
            _ if turn <= alone => by_core,
            _ if turn == lines => by_lines,
            _ if turn == node => by_node,
            _ => by_link,
        };
        *limit += bytes;
    }

    /// The step of a CPU ends, and with it, where that is so, its flow; or the flow is held up by a fault.
    pub fn end_step(&mut self, cpu: usize, (from, writes): (usize, Option<Written>), now: Time, end: End) {
        let Some(flow) = self.by_cpu.get_mut(cpu) else { return };
        let pages: u64 = flow.pages.iter().sum();
        flow.until = now;
        let was_held_up = std::mem::replace(&mut flow.is_held_up, end == End::HeldUp);
        if flow.writes != writes {
            (flow.sharers, flow.round_trip) = (1, Picos(0));
        }
        if pages == 0 && (end != End::Done || !flow.is_live) {
            if flow.is_live && flow.is_held_up != was_held_up {
                self.change_from(now);
            }
            return;
        }
        let goes_on = end != End::Done;
        let has_changed = flow.is_held_up != was_held_up
            || !flow.is_live
            || !goes_on
            || flow.from != from
            || flow.writes != writes
            || is_other(&flow.mix, &flow.pages);
        (flow.is_live, flow.from, flow.writes) = (goes_on, from, writes);
        if has_changed {
            flow.mix.clone_from(&flow.pages);
            self.change_from(now);
        }
        self.by_cpu[cpu].pages.fill(0);
    }

    fn change_from(&mut self, now: Time) {
        let together = now + TOGETHER;
        let soon = self.changed.map_or(together, |changed| together.max(changed + TICK));
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    fn end_those_gone(&mut self, now: Time) {
        let mut have_gone = false;
        for flow in self.by_cpu.iter_mut().filter(|flow| flow.is_live && flow.until + GONE < now) {
            flow.is_live = false;
            (flow.sharers, flow.round_trip) = (1, Picos(0));
            flow.pages.fill(0);
            have_gone = true;
        }
        if have_gone {
            self.change_from(now);
        }
    }

    /// Finds the shortest turns with which no resource is asked for more than it can serve.
    fn find_turns(&mut self) {
        self.find_round_trips();
        let count = self.nodes.len();
        let none = Turns { nodes: vec![Picos(0); count], links: vec![vec![Picos(0); count]; self.links.len()] };
        let before = std::mem::replace(&mut self.turns, none);
        let links = (0..self.links.len()).flat_map(|from| (0..count).map(move |to| Resource::Link(from, to)));
        let wanted: Vec<Resource> =
            (0..count).map(Resource::Node).chain(links).filter(|resource| self.is_wanted(*resource)).collect();
        for pass in 0..if wanted.len() > 1 { PASSES } else { 1 } {
            for resource in &wanted {
                let last = if pass == 0 { before.of(*resource) } else { self.turns.of(*resource) };
                self.find_turn(*resource, last);
            }
        }
    }

    /// Finds flows that write the same memory, and the time in which a page goes round their CPUs.
    fn find_round_trips(&mut self) {
        if self.handovers.is_empty() {
            return;
        }
        let mut groups: Vec<(Written, Vec<u64>)> = Vec::new();
        for flow in self.by_cpu.iter().filter(|flow| flow.is_live && !flow.is_held_up) {
            let Some(writes) = flow.writes else { continue };
            let at = groups.iter().position(|(written, _)| *written == writes).unwrap_or_else(|| {
                groups.push((writes, vec![0; self.handovers.len()]));
                groups.len() - 1
            });
            groups[at].1[flow.from] += 1;
        }
        for (written, by_node) in groups {
            let sharers = by_node.iter().sum();
            let round_trip = if sharers > 1 { self.round_trip(&by_node) } else { Picos(0) };
            let its =
                self.by_cpu.iter_mut().filter(|flow| flow.is_live && !flow.is_held_up && flow.writes == Some(written));
            its.for_each(|flow| (flow.sharers, flow.round_trip) = (sharers, round_trip));
        }
    }

    /// Time of a page that goes from CPU to CPU within each node, then to the next node with such CPUs, and at last back.
    fn round_trip(&self, by_node: &[u64]) -> Picos {
        let those: Vec<usize> = (0..by_node.len()).filter(|node| by_node[*node] > 0).collect();
        let next = those.iter().cycle().skip(1);
        let each = those
            .iter()
            .zip(next)
            .map(|(node, next)| self.handovers[*node][*node].0 * (by_node[*node] - 1) + self.handovers[*node][*next].0);
        Picos(each.sum())
    }

    fn is_wanted(&self, resource: Resource) -> bool {
        self.per_page(resource) > Picos(0) && self.by_cpu.iter().any(|flow| flow.goes_through(resource) > 0)
    }

    fn per_page(&self, resource: Resource) -> Picos {
        match resource {
            Resource::Node(node) => self.nodes[node],
            Resource::Link(from, to) => self.links[from][to],
        }
    }

    fn turn_mut(&mut self, resource: Resource) -> &mut Picos {
        match resource {
            Resource::Node(node) => &mut self.turns.nodes[node],
            Resource::Link(from, to) => &mut self.turns.links[from][to],
        }
    }

    /// Finds the shortest turn of a resource, while the turns of all other resources stay. `last`: a turn that may be near.
    fn find_turn(&mut self, resource: Resource, last: Picos) {
        *self.turn_mut(resource) = Picos(0);
        let mut claims = std::mem::take(&mut self.claims);
        claims.clear();
        claims.extend(self.claims_on(resource));
        // A turn of one page per flow is always long enough, even if each flow wants pages of this resource alone; no CPU's turn
        // is shorter than half of it.
        let per_page = self.per_page(resource).0;
        let most = 2 * per_page * claims.len() as u64;
        *self.turn_mut(resource) = Picos(Claims { of: &claims, per_page }.shortest_turn(most, last.0));
        self.claims = claims;
    }

    /// The time that copies wait for each page of a node; 0 if it has no flows. They have at least an equal part of
    /// the bandwidth: one part for each CPU whose flow is held up by a fault, as it copies then.
    pub(super) fn leaves(&self, node: usize) -> Picos {
        let resource = Resource::Node(node);
        let its = self.by_cpu.iter().filter(|flow| flow.goes_through(resource) > 0).count() as u128;
        let others = self.by_cpu.iter().filter(|flow| flow.is_live && flow.is_held_up).count().max(1) as u128;
        let left = ONE.saturating_sub(self.asked(resource)).max(ONE * others / (its + others));
        let time = u128::from(self.nodes[node].0) * ONE / left;
        if its == 0 { Picos(0) } else { Picos(u64::try_from(time).expect("a few pages' time")) }
    }

    /// The demand of all flows on a resource with these turns, in parts of what it can serve.
    fn asked(&self, resource: Resource) -> u128 {
        // The least time of a page has the resource's turn in it.
        self.claims_on(resource).map(|claim| claim.asks(self.per_page(resource).0, 0)).sum()
    }

    /// The claims of all flows on a resource with these turns.
    fn claims_on(&self, resource: Resource) -> impl Iterator<Item = Claim> {
        let to = resource.to();
        self.by_cpu.iter().enumerate().filter_map(move |(cpu, flow)| {
            let pages = flow.goes_through(resource);
            let others = (0..flow.mix.len()).filter(|other| *other != to);
            (pages > 0).then(|| Claim {
                pages,
                rest: others.map(|other| self.time_of(cpu, flow, other)).sum(),
                least: self.time_of_page(cpu, flow, to),
                thousandths: self.unevenness.get(cpu).copied().unwrap_or(1000),
                sharers: flow.sharers.max(1),
            })
        })
    }

    /// The time that the flow takes for the pages of its mix that are on a node, in picoseconds.
    fn time_of(&self, cpu: usize, flow: &Flow, to: usize) -> u64 {
        flow.mix[to] * self.time_of_page(cpu, flow, to)
    }

    fn time_of_page(&self, cpu: usize, flow: &Flow, to: usize) -> u64 {
        flow.alone[to].max(self.for_cpu(cpu, self.turn_of(flow.from, to))).max(flow.round_trip).0
    }
}

impl Turns {
    /// The turn of a resource; 0 if it is not known.
    fn of(&self, resource: Resource) -> Picos {
        let turn = match resource {
            Resource::Node(node) => self.nodes.get(node),
            Resource::Link(from, to) => self.links.get(from).and_then(|row| row.get(to)),
        };
        turn.copied().unwrap_or_default()
    }
}

impl Resource {
    /// The node whose pages come through it.
    fn to(self) -> usize {
        match self {
            Self::Node(to) | Self::Link(_, to) => to,
        }
    }
}

impl Flow {
    /// Pages of the flow's mix that come through a resource.
    fn goes_through(&self, resource: Resource) -> u64 {
        let to = match resource {
            Resource::Node(to) => to,
            Resource::Link(from, to) if from == self.from => to,
            Resource::Link(..) => return 0,
        };
        if self.is_live && !self.is_held_up { self.mix.get(to).copied().unwrap_or(0) } else { 0 }
    }
}

/// Whether the shares of nodes have changed by more than the rounding.
fn is_other(before: &[u64], now: &[u64]) -> bool {
    let all = |of: &[u64]| of.iter().sum::<u64>().max(1);
    let (all_before, all_now) = (all(before), all(now));
    let share = |pages: u64, all: u64| (2 * MIX * pages).div_ceil(all);
    before.len() != now.len()
        || before.iter().zip(now).any(|(before, now)| share(*before, all_before).abs_diff(share(*now, all_now)) > 2)
}

#[cfg(test)]
mod tests;
