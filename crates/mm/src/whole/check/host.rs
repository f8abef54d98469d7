//! Linux: none; a guest does not see the host's backing.
//! Differs: compares the backing of a host without a kernel with the frames that its guest uses, and with those it has
//! reported.

use memory::{
    backing::{Backing, Discard, Host},
    frame::{Frame, FrameFlag},
};
use units::{Order, Pfn};

use super::{Broken, ensure};
use crate::Mm;

/// Checks that a host backs all frames that its guest uses, and none that are marked as reported; frames that it took back
/// and does not back are unused. Without such a host all is well.
pub fn walk_host(mm: &Mm) -> Result<(), Broken> {
    let Some(Host::Pages(backing)) = mm.memory.host() else { return Ok(()) };
    let backed = (0..mm.memory.frames.len()).map(Pfn).filter(|pfn| backing.has(*pfn)).count() as u64;
    ensure(backed == backing.resident, None, || format!("the host counts {} frames, not {backed}", backing.resident))?;
    for pfn in (0..mm.memory.frames.len()).map(Pfn).filter(|pfn| backing.is_given_back(*pfn)) {
        let is_clear = !mm.memory.frames.keeps_contents() || mm.memory.frames.content(pfn) == 0;
        ensure(is_clear, Some(pfn), || format!("given back, but it holds {}", mm.memory.frames.content(pfn)))?;
    }
    let mut at = Pfn(0);
    // Bounded by the table: each block is at least a frame.
    while at.0 < mm.memory.frames.len() {
        let frame = mm.memory.frames.get(at);
        let order = mm.memory.frames.order_of(frame);
        // A copy that became what nobody wanted any more was never written; a batch frees it.
        if !mm.memory.frames.has(at, FrameFlag::Dropped) {
            let gives_back = backing.discard_is(Discard::DontNeed) && !mm.device_keeps();
            agree(backing, at, order, frame, gives_back)?;
        }
        at = at.plus(order.frames());
    }
    Ok(())
}

fn agree(backing: &Backing, head: Pfn, order: Order, frame: Frame, gives_back: bool) -> Result<(), Broken> {
    for pfn in (head.0..head.0 + order.frames()).map(Pfn) {
        match frame {
            Frame::Free { reported: true, .. } if gives_back => {
                // An access to a neighbour of a small block may have brought a whole page of the host.
                let holds = !backing.has(pfn) || order < Order::HUGE && backing.is_huge(pfn);
                ensure(holds, Some(pfn), || format!("part of {frame:?} at {head}, but the host backs it"))?;
            }
            Frame::Anon { .. }
            | Frame::File { .. }
            | Frame::Kernel { .. }
            | Frame::PageTable
            | Frame::Slab(_)
            | Frame::ZeroHuge => {
                ensure(backing.has(pfn), Some(pfn), || format!("part of {frame:?} at {head}, which no host backs"))?;
            }
            _ => {}
        }
    }
    Ok(())
}
