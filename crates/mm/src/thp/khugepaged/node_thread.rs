//! Linux: none; an idea at the end of the cover letter of "Outsourcing page fault THP allocations to khugepaged" (May 2015):
//! "if each node had own khugepaged just for the THP allocation work".
//! Differs: there is no such code; it does what khugepaged_check_nodes() of that series does, for one node.

use memory::{
    cx::Cx,
    frame::Holdings,
    news::{Daemon, News},
    step::{Step, Wait},
};
use units::{NodeId, Order};

use super::node_alloc::NodeAlloc;
use crate::{Mm, Spaces, thp::ThpEnabled};

/// The thread of a node that allocates huge pages when faults ask for them, so that the next faults find some.
#[derive(Clone, Debug, Default)]
pub struct ThpThread {
    alloc: Option<Box<NodeAlloc>>,
    /// A fault wants a huge page: the thread does not sleep.
    is_requested: bool,
}

impl ThpThread {
    /// Whether the thread has nothing to do.
    pub fn is_idle(&self) -> bool {
        self.alloc.is_none()
    }

    /// The blocks that the thread holds between two steps.
    pub fn holdings(&self) -> Holdings {
        self.alloc.as_ref().map_or_else(Holdings::default, |alloc| alloc.holdings())
    }
}

impl Mm {
    /// Wakes the thread of a node for a fault that wants a huge page.
    pub(super) fn request_of_thread(&mut self, node: NodeId) {
        let thread = &mut self.thp_threads[node];
        thread.is_requested = true;
        if thread.is_idle() {
            self.memory.tell(News::Woken(Daemon::ThpThread, node));
        }
    }

    /// Takes a step, or sleeps: until a fault asks, or after a failure as long as khugepaged would.
    pub fn step_thp_thread(&mut self, spaces: &mut Spaces, cx: &mut Cx, node: NodeId) -> Step<()> {
        let Some(mut alloc) = self.thp_threads[node].alloc.take() else {
            self.thp_threads[node].is_requested = false;
            if self.has_huge(node) || self.thp.enabled == ThpEnabled::Never {
                return Step::Block(Wait::Until(cx.now() + self.khugepaged.settings.alloc_sleep));
            }
            self.thp_threads[node].alloc = Some(Box::new(NodeAlloc::new(self, node)));
            return Step::More;
        };
        let got = match alloc.step(self, spaces, cx) {
            Step::Done(got) => got,
            step => {
                self.thp_threads[node].alloc = Some(alloc);
                return step.map(|_| ());
            }
        };
        if let Some(frame) = got {
            self.note_huge(node);
            self.memory.free(cx, frame, Order::HUGE);
        }
        if self.thp_threads[node].is_requested {
            return Step::More;
        }
        Step::Block(Wait::Until(cx.now() + self.khugepaged.settings.alloc_sleep))
    }
}
