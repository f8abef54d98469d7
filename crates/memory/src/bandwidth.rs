//! Linux: none; the speed of memory itself.
//! Differs: limits clearing, copying and filling of frames, page by page, and sweeps of user code, as flows
//! (`bandwidth/flows.rs`). Other reads and writes of user code and page walks are not limited. The huge zero page, and the copy
//! of a huge page (`huge_cow.rs`), take all their bytes at once. If no memory has a limit, a huge page is cleared in one step,
//! which no tick interrupts.
//!
//! Clearing, copying and filling are priced as if one CPU had a node's memory for itself. A node with a limit serves a fixed
//! number of bytes per second: when it falls behind, the CPUs wait for it.

pub mod flows;

use units::{BytesPerSecond, NodeId, Order, Pfn, Picos, Time};

use self::flows::{Flows, Side};
use crate::{
    Memory,
    cost::{Cause, Work},
    cx::Cx,
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
    /// Time to read or write one frame while user code sweeps through the node's memory, for the node's own CPUs and for others;
    /// 0 without such sweeps.
    beside_flows: [Picos; 2],
    /// When all reads and writes asked for so far are done. Where the sides are served unequally, each waits for its own.
    free_at: [Time; 2],
}

impl Server {
    /// Reads or writes frames from `start` on; returns when this is done.
    fn serve(&mut self, start: Time, frames: u32, side: Side) -> Time {
        let side = if self.beside_flows == [Picos(0); 2] { Side::Near } else { side } as usize;
        let from = self.free_at[side].max(Time(start.0.saturating_sub(SLACK.0)));
        self.free_at[side] = from + Picos(self.per_frame.max(self.beside_flows[side]).0 * u64::from(frames));
        self.free_at[side]
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
    }

    /// Clears frames for a guest, as its host; `frame` is one of them.
    pub(crate) fn clear_for_guest(&mut self, cx: &mut Cx<'_>, frame: Pfn, frames: u64) {
        let start = cx.now();
        cx.because(Cause::Host, |cx| cx.work(Work::ClearFrame, frames));
        if self.bandwidth.is_limited {
            let (node, side) = self.side_of(cx, frame);
            let done = self.nodes[node].bandwidth.serve(start, u32::try_from(frames).expect("a block at most"), side);
            cx.wait(done, Cause::Host);
        }
    }

    /// Writes `frames` whole pages of a mapping in user code; `frame` is one of these pages. Waits for memory are in user mode.
    #[inline]
    pub fn fill(&mut self, cx: &mut Cx<'_>, frame: Pfn, frames: u64) {
        let start = cx.now();
        primitive::user_fill(cx, frames);
        if self.bandwidth.is_limited {
            let (node, side) = self.side_of(cx, frame);
            let frames = u32::try_from(frames).expect("at most a huge page");
            let done = self.nodes[node].bandwidth.serve(start, frames, side);
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
                let beside = Side::BOTH.map(|side| self.bandwidth.flows.leaves(place, side));
                self.nodes[id].bandwidth.beside_flows = beside;
            }
        }
        due
    }

    /// The node of a frame, and on which side of its memory the CPU is.
    fn side_of(&self, cx: &Cx<'_>, frame: Pfn) -> (NodeId, Side) {
        let node = self.node_of(frame);
        let is_near = !self.bandwidth.flows.has_sides() || self.node_of_cpu(cx.cpu()) == node;
        (node, if is_near { Side::Near } else { Side::Far })
    }

    /// Charges the work on these runs of frames, and waits for the slowest of their nodes.
    fn move_bytes(&mut self, cx: &mut Cx<'_>, work: Work, runs: &[Pfn], order: Order) {
        let start = cx.now();
        cx.work(work, u64::from(order.frames()));
        if self.bandwidth.is_limited {
            for run in runs {
                let (node, side) = self.side_of(cx, *run);
                let done = self.nodes[node].bandwidth.serve(start, order.frames(), side);
                cx.wait(done, Cause::Bandwidth);
            }
        }
    }
}

#[cfg(test)]
mod tests;
