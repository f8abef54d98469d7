//! Linux: none; the speed of memory itself.
//! Differs: limits clearing, copying and filling of frames, page by page, and sweeps of user code, as flows
//! (`bandwidth/flows.rs`). Other reads and writes of user code and page walks are not limited. The huge zero page, and the copy
//! of a huge page (`huge_cow.rs`), take all their bytes at once. If no memory has a limit, a huge page is cleared in one step,
//! which no tick interrupts.
//!
//! Clearing, copying and filling are priced as if one CPU had a node's memory for itself. A node with a limit serves a fixed
//! number of bytes per second: when it falls behind, the CPUs wait for it.
//!
//! A cleared page goes to a cache, whose lines come to memory when they are in the way, so that who clears beside flows does not
//! wait for them; a copy has to read memory first. (clear_page() stores with `rep stosq`, arch/x86/lib/clear_page_64.S, v3.9.
//! That such stores read no memory, and leave their lines in the cache, is Intel's account of fast strings, from memory.)

pub mod flows;

use units::{BytesPerSecond, NodeId, Order, Pfn, Picos, Time};

use self::flows::Flows;
use crate::{
    Memory,
    cost::{Cause, Work},
    cx::Cx,
    fact::Fact,
    primitive,
};

/// Unused capacity of a node stays available for this long. CPUs are not simulated in perfect order: one may be behind another
/// by a quantum (2 us by default) and a step, and may still use the capacity that the other left.
const SLACK: Picos = Picos::from_micros(4);

/// The memory bandwidth of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Bandwidth {
    /// Has any node a limit?
    is_limited: bool,
    /// User code that sweeps through memory.
    pub flows: Flows,
}

/// A node's memory, as a server of reads and writes.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// Time to read or write one frame while no other CPU does; 0 without a limit.
    per_frame: Picos,
    /// Time to read or write one frame while user code sweeps through the node's memory; 0 without such sweeps.
    beside_flows: Picos,
    /// When all reads and writes asked for so far are done.
    free_at: Time,
}

impl Server {
    /// Reads or writes frames from `start` on, at this time for each of them; returns when this is done.
    fn serve(&mut self, start: Time, frames: u32, per_frame: Picos) -> Time {
        let from = self.free_at.max(Time(start.0.saturating_sub(SLACK.0)));
        self.free_at = from + Picos(per_frame.0 * u64::from(frames));
        self.free_at
    }

    /// Clears frames from `start` on; returns when this is done.
    fn clear(&mut self, start: Time, frames: u32) -> Time {
        self.serve(start, frames, self.per_frame)
    }

    /// Reads or writes frames that no cache has from `start` on, beside the flows; returns when this is done.
    fn transfer(&mut self, start: Time, frames: u32) -> Time {
        self.serve(start, frames, self.per_frame.max(self.beside_flows))
    }
}

impl Memory {
    /// Limits the memory of a node to these bytes per second, for all CPUs together. Each clear or fill takes its bytes once,
    /// each copy from the node that it reads and from the node that it writes.
    pub fn limit_bandwidth(&mut self, node: NodeId, limit: BytesPerSecond) {
        self.bandwidth.is_limited = true;
        let per_frame = limit.takes(units::Frames(1).bytes());
        self.nodes[node].bandwidth.per_frame = per_frame;
        self.bandwidth.flows.limit_node((self.nodes.place(node), self.nodes.count()), per_frame);
    }

    /// In which pieces a run of frames is cleared or filled: where any node's memory has a limit, in single frames, so that
    /// others who want it at the same time have equal parts of it, and elsewhere in one, which takes fewer steps.
    pub fn piece(&self, run: Order) -> Order {
        if self.bandwidth.is_limited { Order::BASE } else { run }
    }

    /// Clears a run of frames.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "in the fault that is by far the most frequent, and nearly always one charge"
    )]
    pub fn clear(&mut self, cx: &mut Cx<'_>, frame: Pfn, order: Order) {
        if !self.bandwidth.is_limited && !self.frames.keeps_contents() {
            cx.work(Work::ClearFrame, u64::from(order.frames()));
        } else {
            self.clear_with_account(cx, frame, order);
        }
    }

    #[inline(never)]
    fn clear_with_account(&mut self, cx: &mut Cx<'_>, frame: Pfn, order: Order) {
        self.frames.clear_contents(frame, order);
        self.move_bytes(cx, Work::ClearFrame, &[frame], order);
    }

    /// Copies a run of frames to another.
    pub fn copy(&mut self, cx: &mut Cx<'_>, from: Pfn, to: Pfn, order: Order) {
        self.access_through_host(cx, to, order);
        self.frames.copy_contents(from, to, order);
        self.move_bytes(cx, Work::CopyFrame, &[from, to], order);
        let price = cx.price(Work::CopyFrame);
        cx.detail(|| {
            let [from, to] = [from, to].map(|pfn| self.node_of(pfn));
            let pages = u64::from(order.frames());
            Fact::Copied { from, to, distance: self.distance(from, to), pages, took: Picos(price.0 * pages) }
        });
    }

    /// Clears a frame for a kernel thread that collapses a range, and tells of it.
    pub fn clear_hole(&mut self, cx: &mut Cx<'_>, frame: Pfn) {
        self.clear(cx, frame, Order::BASE);
        let (cpu, took) = (cx.cpu(), cx.price(Work::ClearFrame));
        cx.detail(|| {
            let (node, here) = (self.node_of(frame), self.node_of_cpu(cpu));
            Fact::Cleared { node, here, distance: self.distance(here, node), pages: 1, took }
        });
    }

    /// The distance of two nodes.
    pub fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        self.distances(from)[self.nodes.place(to)]
    }

    /// Clears frames for a guest, as its host; `frame` is one of them.
    pub(crate) fn clear_for_guest(&mut self, cx: &mut Cx<'_>, frame: Pfn, frames: u64) {
        let start = cx.now();
        cx.because(Cause::Host, |cx| cx.work(Work::ClearFrame, frames));
        if self.bandwidth.is_limited {
            let node = self.node_of(frame);
            let done = self.nodes[node].bandwidth.clear(start, u32::try_from(frames).expect("a block at most"));
            cx.wait(done, Cause::Host);
        }
    }

    /// Writes `frames` whole pages of a mapping in user code; `frame` is one of these pages. Waits for memory are in user mode.
    #[inline]
    pub fn fill(&mut self, cx: &mut Cx<'_>, frame: Pfn, frames: u64) {
        let start = cx.now();
        primitive::user_fill(cx, frames);
        if self.bandwidth.is_limited {
            let node = self.node_of(frame);
            let done = self.nodes[node].bandwidth.transfer(start, u32::try_from(frames).expect("at most a huge page"));
            cx.wait(done, Cause::User);
        }
    }

    /// Streams of user code that share the bandwidth of nodes and links.
    #[inline]
    pub fn flows(&self) -> &Flows {
        &self.bandwidth.flows
    }

    /// Streams of user code, to be changed.
    #[inline]
    pub fn flows_mut(&mut self) -> &mut Flows {
        &mut self.bandwidth.flows
    }

    /// Has any node's memory a limit?
    pub(crate) fn has_bandwidth_limit(&self) -> bool {
        self.bandwidth.is_limited
    }

    /// A step of a flow begins: shares that are to change by now do. Says up to when they stay, if that is known.
    pub fn begin_flow_step(&mut self, now: Time) -> Option<Time> {
        let flows = &mut self.bandwidth.flows;
        let changes = flows.changes();
        let due = flows.begin_step(now);
        if flows.changes() != changes {
            for (place, id) in self.nodes.ids().enumerate().collect::<Vec<_>>() {
                self.nodes[id].bandwidth.beside_flows = self.bandwidth.flows.leaves(place);
            }
        }
        due
    }

    /// Charges the work on these runs of frames, and waits for the slowest of their nodes.
    fn move_bytes(&mut self, cx: &mut Cx<'_>, work: Work, runs: &[Pfn], order: Order) {
        let start = cx.now();
        cx.work(work, u64::from(order.frames()));
        if self.bandwidth.is_limited {
            for run in runs {
                let node = self.node_of(*run);
                let memory = &mut self.nodes[node].bandwidth;
                let done = match work {
                    Work::ClearFrame => memory.clear(start, order.frames()),
                    _ => memory.transfer(start, order.frames()),
                };
                let (before, pages) = (cx.now(), order.frames().into());
                cx.wait(done, Cause::Bandwidth);
                if done > before {
                    cx.detail(|| Fact::MemoryBusy { node, pages, waits: done.since(before) });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
