//! Linux: try_to_compact_pages() and below in mm/compaction.c (v4.8 to v6.1).
//! Differs: nothing is compacted yet.

use units::Pfn;

use crate::{Mm, Spaces, cost::Cx, frame::Holdings, gfp::AllocRequest, step::Step};

/// How much effort compaction makes (`enum compact_priority`), the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CompactPriority {
    /// Waits for nothing.
    Async,
    /// Waits for locks, not for disks.
    SyncLight,
    /// Waits for everything, and looks at every pageblock.
    SyncFull,
}

impl CompactPriority {
    /// The next, if there is one for such an order.
    pub(crate) fn harder(self, is_costly: bool) -> Option<Self> {
        match self {
            Self::Async => Some(Self::SyncLight),
            Self::SyncLight if !is_costly => Some(Self::SyncFull),
            Self::SyncLight | Self::SyncFull => None,
        }
    }
}

/// What compaction came to (`enum compact_result`), in the kernel's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CompactResult {
    /// No zone had the free frames that it takes, or the need.
    Skipped,
    /// Every zone has failed lately.
    Deferred,
    /// All that was to be looked at was.
    Complete,
    /// The same, but for pageblocks passed over.
    PartialSkipped,
    /// Others wanted the lock or the CPU.
    Contended,
    /// There is a block now.
    Success,
}

/// The result, and the block if it was captured or taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compacted {
    pub(crate) result: CompactResult,
    pub(crate) block: Option<Pfn>,
}

/// Compacting memory for one request (`mechanisms.md` C2.5).
#[derive(Clone, Debug)]
pub(crate) struct DirectCompact {
    _request: AllocRequest,
    _priority: CompactPriority,
}

impl DirectCompact {
    pub(crate) fn new(request: AllocRequest, priority: CompactPriority) -> Self {
        Self { _request: request, _priority: priority }
    }

    /// Goes on until others may run.
    #[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "for what comes")]
    pub(crate) fn step(&mut self, _mm: &mut Mm, _spaces: &mut Spaces, _cx: &mut Cx) -> Step<Compacted> {
        Step::Done(Compacted { result: CompactResult::Skipped, block: None })
    }

    #[expect(clippy::unused_self, reason = "for what comes")]
    pub(crate) fn holdings(&self) -> Holdings {
        Holdings::default()
    }

    #[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "for what comes")]
    pub(crate) fn abort(&mut self, _mm: &mut Mm, _cx: &mut Cx) {}
}
