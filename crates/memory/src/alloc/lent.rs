//! Linux: none; the result of __alloc_pages_slowpath() when a step's allocation is tried again (v4.1 to v6.1).
//! Differs: a step does not wait in its middle: it asks for memory, ends, and is taken again once there is an answer.

use rules::gfp::AllocRequest;
use units::{Errno, Order, Pfn};

use crate::{Memory, cx::Cx, frame::Frame, step::Step};

/// There is no block, object or table: the error of every allocation, and of all that is made with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMemory {
    /// The step has asked the slow path for a block (`mm::slow::Supply`). It undoes nothing and ends, and it is taken
    /// again, from what it had come to, when there is one or none is to be had.
    Asked,
    /// Memory is out (`-ENOMEM`): the slow path got nothing, or the request or its caller does not wait for it.
    Refused,
}

/// A block that the slow path has got for a step, which will take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// The request that the slow path has served.
    pub request: AllocRequest,
    /// The first frame of the block.
    pub pfn: Pfn,
}

/// Whether a step may ask the slow path for memory, and what it has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shortage {
    /// Do without.
    #[default]
    Fail,
    /// The step may ask, and is taken again after that.
    Ask,
    /// The step has asked for this request.
    Asked(AllocRequest),
    /// The step has asked before, and the slow path got nothing: this request fails, another request may ask.
    Refused(AllocRequest),
    /// For tests: after this number of further allocations, one fails even if memory is free, and the slow path is not asked.
    /// After that the state is `Ask` (true) or `Fail`.
    Injected(u32, bool),
}

/// The part of a step's context that is about memory shortage: the step's request, and the slow path's answer.
#[derive(Debug, Default)]
pub struct Lent {
    /// The permission of a step to ask for memory when there is none.
    pub shortage: Shortage,
    /// The block that the slow path has got for the step.
    pub given: Option<Given>,
}

impl Cx<'_> {
    /// Whether the fate of the next allocation that the fast path cannot serve is known already.
    #[inline]
    pub fn is_supplied(&self) -> bool {
        self.memory.given.is_some() || !matches!(self.memory.shortage, Shortage::Fail | Shortage::Ask)
    }

    /// Has the step asked for memory? Then it ends soon, without having failed, and is taken again. For the allocator and for
    /// `mm::slow::Supply`: all others hear of it by [`NoMemory::Asked`].
    #[inline]
    pub fn has_asked(&self) -> bool {
        matches!(self.memory.shortage, Shortage::Asked(_))
    }

    /// Makes an allocation of this step fail, after `after` others, like `fail_page_alloc`: for tests. Returns false if the
    /// step has asked for memory before.
    pub fn fail_alloc(&mut self, after: u32) -> bool {
        let asks = match self.memory.shortage {
            Shortage::Fail => false,
            Shortage::Ask => true,
            _ => return false,
        };
        self.memory.shortage = Shortage::Injected(after, asks);
        true
    }
}

impl NoMemory {
    /// The step of a system call that fails when memory is out, and holds nothing then.
    pub fn step<T>(self) -> Step<Result<T, Errno>> {
        match self {
            Self::Asked => Step::More,
            Self::Refused => Step::Done(Err(Errno::NOMEM)),
        }
    }

    /// The answer of a system call of one step, which ends with this. Of a step that has asked nobody sees it:
    /// `mm::slow::Supply::settle` has it taken again.
    pub fn errno(self) -> Errno {
        match self {
            Self::Asked | Self::Refused => Errno::NOMEM,
        }
    }
}

impl Memory {
    /// The control that takes this step holds a block until its next one: nobody else sees it.
    pub fn isolate(&mut self, cx: &Cx, pfn: Pfn, order: Order) {
        self.frames.set(pfn, Frame::Isolated { owner: cx.control(), order });
    }

    /// Is a block still the one that the control left behind?
    pub fn assert_isolated(&self, cx: &Cx, pfn: Pfn, order: Order) {
        let owner = cx.control();
        assert_eq!(self.frames.get(pfn), Frame::Isolated { owner, order }, "frame {pfn} is held by {owner:?}");
    }

    /// Takes the block that the slow path has got, if it was got for this request.
    pub(crate) fn take_given(&mut self, cx: &mut Cx, request: &AllocRequest) -> Option<Pfn> {
        let given = cx.memory.given.take_if(|given| given.request == *request)?;
        self.assert_isolated(cx, given.pfn, request.order);
        self.frames.set(given.pfn, Frame::Kernel { order: request.order, mobility: request.mobility });
        Some(given.pfn)
    }

    /// Is this the request that the slow path got nothing for? It fails once.
    pub fn is_refused(cx: &mut Cx, request: &AllocRequest) -> bool {
        let refused = cx.memory.shortage == Shortage::Refused(*request);
        if refused {
            cx.memory.shortage = Shortage::Ask;
        }
        refused
    }

    /// Whether a test has this allocation fail (`should_fail_alloc_page`).
    pub(crate) fn does_alloc_fail(cx: &mut Cx) -> bool {
        let Shortage::Injected(left, asks) = cx.memory.shortage else { return false };
        cx.memory.shortage = match left.checked_sub(1) {
            Some(left) => Shortage::Injected(left, asks),
            None if asks => Shortage::Ask,
            None => Shortage::Fail,
        };
        left == 0
    }
}
