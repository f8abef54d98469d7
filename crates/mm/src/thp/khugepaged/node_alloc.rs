//! Linux: alloc_hugepage_khugepaged_gfpmask() and hpage_collapse_alloc_page() in mm/khugepaged.c (v6.1), khugepaged_alloc_page()
//! in mm/huge_memory.c (v4.1).
//! Differs: no memcg.

use memory::{cx::Cx, frame::Holdings, step::Step};
use rules::gfp::AllocRequest;
use units::{NodeId, Order, Pfn};

use crate::{Mm, Spaces, slow::AllocControl};

/// The allocation of a huge page on one node, with as much effort as khugepaged may make.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, in the box of whoever allocates")]
pub(super) enum NodeAlloc {
    /// From the free lists.
    Fast(AllocRequest),
    /// With reclaim and compaction.
    Slow(AllocControl),
}

impl NodeAlloc {
    pub(super) fn new(mm: &Mm, node: NodeId) -> Self {
        let light = AllocRequest::gfp_transhuge_light(node).this_node();
        let reclaims = mm.khugepaged.settings.defrag;
        // GFP_TRANSHUGE holds __GFP_NORETRY before 4.8.
        let no_retry = reclaims && !mm.memory.variant().thp_advised_retries;
        Self::Fast(AllocRequest { reclaims, no_retry, ..light })
    }

    /// Takes a step; done with an isolated block, or with none.
    pub(super) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Option<Pfn>> {
        let got = match self {
            // Steps of kernel threads ask for nothing: they take the slow path themselves.
            Self::Fast(request) => match mm.memory.alloc(cx, request) {
                Ok(frame) => Some(frame),
                Err(_) if request.reclaims => {
                    *self = Self::Slow(AllocControl::new(*request));
                    return Step::More;
                }
                Err(_) => None,
            },
            Self::Slow(control) => match control.step(mm, spaces, cx) {
                Step::Done(got) => {
                    // [`memory::Memory::alloc`] does the same for whoever takes a block from it.
                    got.inspect(|frame| mm.memory.access_through_host(cx, *frame, Order::HUGE))
                }
                step => return step,
            },
        };
        if let Some(frame) = got {
            mm.memory.isolate(cx, frame, Order::HUGE);
        }
        Step::Done(got)
    }

    pub(super) fn holdings(&self) -> Holdings {
        match self {
            Self::Fast(_) => Holdings::default(),
            Self::Slow(control) => control.holdings(),
        }
    }
}
