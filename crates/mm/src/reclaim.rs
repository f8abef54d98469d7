//! Linux: try_to_free_pages() and below in mm/vmscan.c (v4.20 to v6.1).
//! Differs: nothing is reclaimed yet.

use crate::{Mm, Spaces, cost::Cx, frame::Holdings, gfp::AllocRequest, step::Step};

/// Reclaiming memory for one request (`mechanisms.md` B5).
#[derive(Clone, Debug)]
pub(crate) struct DirectReclaim {
    _request: AllocRequest,
}

impl DirectReclaim {
    pub(crate) fn new(request: AllocRequest) -> Self {
        Self { _request: request }
    }

    /// Goes on until others may run; the frames reclaimed.
    #[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "for what comes")]
    pub(crate) fn step(&mut self, _mm: &mut Mm, _spaces: &mut Spaces, _cx: &mut Cx) -> Step<u64> {
        Step::Done(0)
    }

    #[expect(clippy::unused_self, reason = "for what comes")]
    pub(crate) fn holdings(&self) -> Holdings {
        Holdings::default()
    }

    #[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "for what comes")]
    pub(crate) fn abort(&mut self, _mm: &mut Mm, _cx: &mut Cx) {}
}

impl Mm {
    /// Frames of a zone that reclaim could free (`zone_reclaimable_pages`).
    #[expect(clippy::unused_self, reason = "for what comes")]
    pub(crate) fn reclaimable_frames(&self, _zone: usize) -> u64 {
        0
    }
}
