//! Contents of a guest's frames, on both levels: each frame that a guest uses gets a word in the host's frame behind it, which is
//! there for as long as the guest uses the frame, whatever the host swaps, moves or splits.

use std::{cell::RefCell, collections::BTreeMap};

use memory::frame::{Frame, FrameFlag};
use units::{Pfn, Vpn};

use crate::{ids::HOST, world::World};

/// The words, by guest and frame, and how many there were.
#[derive(Default)]
struct Tags {
    now: BTreeMap<(usize, u32), u64>,
    count: u64,
    /// Words that were looked at in host frames.
    seen: u64,
}

thread_local! {
    static TAGS: RefCell<Option<Tags>> = const { RefCell::new(None) };
}

/// Compares both levels of all worlds of this thread from now on, while `body` runs: its result, and words that were set and
/// that were looked at.
pub(crate) fn tagged<T>(body: impl FnOnce() -> T) -> (T, u64, u64) {
    TAGS.set(Some(Tags::default()));
    let result = body();
    let tags = TAGS.take().expect("it was set");
    (result, tags.count, tags.seen)
}

impl World {
    /// After a step.
    pub(crate) fn check_tags(&mut self) {
        TAGS.with_borrow_mut(|tags| {
            if let Some(tags) = tags {
                (0..self.guests.len()).for_each(|guest| self.check_guest_tags(guest, tags));
            }
        });
    }

    fn check_guest_tags(&mut self, guest: usize, tags: &mut Tags) {
        let Some((kernel, process, base)) = self.guests[guest].place() else { return };
        let used = self.used_frames(kernel);
        let host = &mut self.kernels[HOST];
        if tags.count == 0 {
            // Whatever it had until now nobody looks at.
            host.mm.memory.frames.keep_contents(!0);
            tags.count = 1;
        }
        let Some(space) = host.spaces.get(process) else { return };
        for (frame, is_used) in (0..).zip(used) {
            if !is_used {
                tags.now.remove(&(guest, frame));
                continue;
            }
            let vpn = Vpn(base.0 + u64::from(frame));
            let pte = space.tables.lookup(vpn);
            let is_there = (pte.is_present() || pte.is_migration()) && !pte.is_zero_page();
            let within = if pte.is_huge() { u32::try_from(vpn.0 % 512).expect("below 512") } else { 0 };
            match tags.now.get(&(guest, frame)) {
                Some(tag) if is_there => {
                    tags.seen += 1;
                    let found = host.mm.memory.frames.content(pte.pfn().plus(within));
                    assert_eq!(found, *tag, "frame {frame} of guest {guest}: {pte:?}");
                }
                Some(_) => {
                    assert!(pte.swap_slot().is_some(), "frame {frame} of guest {guest} is in use, and gone: {pte:?}");
                }
                // What is clean has a copy in swap, which a store of user code would make an old one.
                None if is_there && pte.is_present() && pte.is_dirty() => {
                    tags.count += 1;
                    host.mm.memory.frames.store(pte.pfn().plus(within), tags.count);
                    tags.now.insert((guest, frame), tags.count);
                }
                None => {}
            }
        }
    }

    /// Which frames a guest's kernel or its processes have.
    fn used_frames(&self, kernel: crate::ids::KernelId) -> Vec<bool> {
        let frames = &self.kernels[kernel].mm.memory.frames;
        let mut used = vec![false; frames.len() as usize];
        let mut at = Pfn(0);
        // Bound: each block is at least a frame.
        while at.0 < frames.len() {
            let frame = frames.get(at);
            let order = frames.order_of(frame);
            let is_used = match frame {
                Frame::Anon { .. } | Frame::File { .. } => !frames.has(at, FrameFlag::Dropped),
                Frame::Kernel { .. } | Frame::PageTable | Frame::Slab(_) | Frame::ZeroHuge => true,
                _ => false,
            };
            used[at.0 as usize..][..order.frames() as usize].fill(is_used);
            at = at.plus(order.frames());
        }
        used
    }
}
