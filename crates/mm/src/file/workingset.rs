//! Linux: mm/workingset.c (v5.9 to v6.1).
//! Differs: nodes that hold only shadows are not reclaimed before their file is.
//!
//! An evicted page leaves a shadow: the reading of a clock that every eviction and activation advances. When the page comes
//! back, the difference tells how much more memory would have kept it.

use memory::{cx::Cx, event::Event, frame::FrameFlag, lru_kind::LruKind};
use rules::variant::NewAnon;
use units::Pfn;

use crate::{
    Mm,
    file::page_cache::{InodeId, PageFlag},
};

/// The fields of a shadow, from the top down: the clock, the lists, and whether the page was in use.
const AGE_BITS: u32 = 24;
const LRUVEC_BITS: u32 = 7;

impl Mm {
    /// log2 of the clock's steps that are one step in a shadow, so that distances up to the size of memory fit
    /// (`bucket_order`).
    fn bucket_order(&self) -> u32 {
        (u32::BITS - self.memory.frames.len().leading_zeros()).saturating_sub(AGE_BITS)
    }

    /// The shadow of a page that is evicted (`workingset_eviction`).
    pub(crate) fn workingset_eviction(&mut self, head: Pfn) -> u32 {
        let lruvec = self.lru.of_zone(self.zone_position(head));
        let age = self.lru.lruvecs()[lruvec].nonresident_age >> self.bucket_order();
        self.age_nonresident(lruvec, 1);
        let age = u32::try_from(age & ((1 << AGE_BITS) - 1)).expect("24 bits");
        let place =
            u32::try_from(lruvec).ok().filter(|at| at >> LRUVEC_BITS == 0).expect("fewer than 128 nodes and zones");
        let was_in_use = match self.cache.place_of(&self.memory.frames, head) {
            Some(at) => self.cache.has(at, PageFlag::Workingset),
            None => self.swap.is_workingset(head),
        };
        age << (LRUVEC_BITS + 1) | place << 1 | u32::from(was_in_use)
    }

    /// Decides whether an anonymous page that comes back is active at once (`workingset_refault`, since 5.9). It is not on a
    /// list yet.
    pub(crate) fn refault_anon(&mut self, cx: &mut Cx, head: Pfn, shadow: u32) {
        if self.memory.variant().lru_new_anon == NewAnon::Active {
            return;
        }
        cx.count(Event::WorkingsetRefaultAnon, 1);
        let (was_in_use, lruvec, distance) = self.read_shadow(shadow);
        // The pages that could have been evicted instead: files, and active anonymous pages.
        let mut kinds = vec![LruKind::ActiveFile, LruKind::InactiveFile];
        if self.swap.free() > 0 {
            kinds.push(LruKind::ActiveAnon);
        }
        let size: u64 = kinds.into_iter().map(|kind| self.lru.frames(lruvec, kind)).sum();
        if distance > size {
            return;
        }
        self.memory.frames.mark(head, FrameFlag::Active, true);
        self.age_nonresident(lruvec, 1);
        self.lru.lruvec_mut(lruvec).activations[0] += 1;
        cx.count(Event::WorkingsetActivateAnon, 1);
        if was_in_use {
            self.swap.set_workingset(head);
            self.note_cost(lruvec, false, 1);
            cx.count(Event::WorkingsetRestoreAnon, 1);
        }
    }

    /// The fields of a shadow: whether the page was in use, its lists, and the evictions and activations since.
    fn read_shadow(&self, shadow: u32) -> (bool, usize, u64) {
        let lruvec = (shadow >> 1 & ((1 << LRUVEC_BITS) - 1)) as usize;
        let then = u64::from(shadow >> (LRUVEC_BITS + 1));
        let order = self.bucket_order();
        let now = self.lru.lruvecs()[lruvec].nonresident_age >> order;
        let distance = (now.wrapping_sub(then) & ((1 << AGE_BITS) - 1)) << order;
        (shadow & 1 != 0, lruvec, distance)
    }

    /// Decides whether a file's page that comes back is active at once. It is not on a list yet.
    pub(crate) fn refault_file(&mut self, cx: &mut Cx, at: (InodeId, u64), head: Pfn, shadow: u32) {
        let (was_in_use, lruvec, distance) = self.read_shadow(shadow);
        cx.count(Event::WorkingsetRefaultFile, 1);
        // The pages that could have been evicted instead: active files, and anonymous pages.
        let mut size = self.lru.frames(lruvec, LruKind::ActiveFile);
        if self.swap.free() > 0 {
            size += self.lru.frames(lruvec, LruKind::ActiveAnon) + self.lru.frames(lruvec, LruKind::InactiveAnon);
        }
        if distance > size {
            return;
        }
        self.memory.frames.mark(head, FrameFlag::Active, true);
        self.age_nonresident(lruvec, 1);
        self.lru.lruvec_mut(lruvec).activations[1] += 1;
        cx.count(Event::WorkingsetActivateFile, 1);
        if was_in_use {
            self.cache.mark(at, PageFlag::Workingset, true);
            self.note_cost(lruvec, true, 1);
            cx.count(Event::WorkingsetRestoreFile, 1);
        }
    }
}
