//! Linux: split_huge_page_to_list(), deferred_split_scan() in mm/huge_memory.c (v4.5 to v6.1).
//! Differs: one step takes the folio apart, with the locks of its lists and of its pages' tables in one; no swap cache.
//!
//! A huge folio becomes base folios. Whoever maps it by a huge entry maps it by base entries after; the frames that nobody
//! maps are freed.

use units::{Order, Pfn, Vpn};

use crate::{
    Mm, Spaces,
    cost::Cx,
    event::Event,
    frame::{FamilyId, Frame, FrameFlag},
    gfp::Mobility,
    spaces::Entry,
};

/// What became of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The folio is base folios now; so many of them were freed, as nobody mapped them.
    Done {
        /// Base folios freed.
        freed: u32,
    },
    /// Somebody else holds it: a batch of new folios, a control, or a child that is being forked.
    Busy,
}

impl Mm {
    /// Takes a huge anonymous folio apart (`split_huge_page`). The caller holds the mmap lock of nobody: mappings are changed
    /// under the locks of page tables.
    pub fn split_folio(&mut self, spaces: &mut Spaces, cx: &mut Cx, head: Pfn) -> Split {
        let Frame::Anon { family, vpn, order: Order::HUGE } = self.frames.get(head) else {
            unreachable!("frame {head} is no huge folio, but {:?}", self.frames.get(head));
        };
        if self.frames.has(head, FrameFlag::InBatch) {
            // It may be in this CPU's (`lru_add_drain` in `split_huge_page_to_list`).
            self.lru_add_drain(cx);
        }
        let is_loose = self.frames.has(head, FrameFlag::InBatch) || self.frames.has(head, FrameFlag::Locked);
        if is_loose || !self.frames.has(head, FrameFlag::OnLru) {
            cx.count(Event::ThpSplitPageFailed, 1);
            return Split::Busy;
        }
        if !self.split_mappings(spaces, cx, head, vpn) {
            cx.count(Event::ThpSplitPageFailed, 1);
            return Split::Busy;
        }
        let freed = self.take_apart(cx, head, family, vpn);
        cx.count(Event::ThpSplitPage, 1);
        Split::Done { freed }
    }

    /// Makes base entries of all huge ones (`unmap_folio`, `remap_page`); false when somebody has one that is not found.
    fn split_mappings(&mut self, spaces: &mut Spaces, cx: &mut Cx, head: Pfn, vpn: Vpn) -> bool {
        let mappings = spaces.mappings(self, head);
        // Without any it is about to be freed by whoever unmapped it.
        if mappings.is_empty() || u32::try_from(mappings.len()).ok() != Some(self.folio_mappings(head)) {
            return false;
        }
        for mapping in mappings {
            if let Entry::Huge(slot) = mapping.at {
                let space = spaces.get_mut(mapping.space).expect("it maps the folio");
                space.split_pmd(self, cx, slot);
            }
        }
        debug_assert!(self.frames.map_count(head) == 0, "page {vpn:?} is mapped by base entries only");
        true
    }

    /// The frames become folios of their own, those that are mapped beside the head on its list, the others free
    /// (`__split_huge_page`).
    fn take_apart(&mut self, cx: &mut Cx, head: Pfn, family: FamilyId, vpn: Vpn) -> u32 {
        let counts = self.rmap.take_base_counts(head);
        let (zone, is_active) = (self.zone_position(head), self.frames.has(head, FrameFlag::Active));
        let (mut tails, mut unmapped) = (Vec::new(), Vec::new());
        for n in (0..Order::HUGE.frames()).rev() {
            let pfn = head.plus(n);
            match counts[n as usize] {
                0 => unmapped.push(pfn),
                count => {
                    self.frames.set(pfn, Frame::Anon { family, vpn: vpn.plus(n.into()), order: Order::BASE });
                    self.set_base_mappings(pfn, u32::from(count));
                    if n > 0 {
                        tails.push(pfn);
                    }
                }
            }
        }
        let is_head_mapped = unmapped.last() != Some(&head);
        self.lru_split(cx, (zone, head), is_active, &tails, is_head_mapped);
        // Whoever asked for the split holds the head, and lets go of it last.
        unmapped.reverse();
        if !is_head_mapped {
            unmapped.rotate_left(1);
        }
        for pfn in &unmapped {
            self.frames.set(*pfn, Frame::Kernel { order: Order::BASE, mobility: Mobility::Movable });
            self.free(cx, *pfn, Order::BASE);
        }
        u32::try_from(unmapped.len()).expect("at most 512")
    }

    /// Huge pages that wait for a split (`deferred_split_count`).
    pub fn deferred_split_count(&self) -> u64 {
        self.rmap.deferred_splits().count() as u64
    }

    /// Splits up to `most` of the huge pages that lost some of their mappings, the oldest first; the base frames that it freed
    /// and the pages it looked at (`deferred_split_scan`). Those that cannot be split stay, at the end of the queue.
    pub fn deferred_split_scan(&mut self, spaces: &mut Spaces, cx: &mut Cx, most: u64) -> (u64, u64) {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let waiting: Vec<Pfn> = self.rmap.deferred_splits().take(most).collect();
        let mut freed = 0;
        for head in &waiting {
            match self.split_folio(spaces, cx, *head) {
                Split::Done { freed: frames } => freed += u64::from(frames),
                Split::Busy => self.rmap.requeue_deferred(*head),
            }
        }
        (freed, waiting.len() as u64)
    }
}

#[cfg(test)]
mod tests;
