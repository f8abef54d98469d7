//! Linux: mm/shuffle.c (v5.5 to v6.1).
//! Differs: the numbers follow from a seed.
//!
//! Puts blocks of the largest order at random places of their free lists: all blocks at boot, and each block that is freed
//! later at a random end.

use rules::variant::ListEnd;
use units::Pfn;

use crate::{
    Memory,
    buddy::Buddy,
    frame::FrameTable,
    pageblock::{MigrateType, ZoneIndex},
    splitmix::{SPLITMIX_STEP, mix},
};

/// Most tries to find another block to change places with.
// SHUFFLE_RETRY, mm/shuffle.c.
const RETRY: u32 = 10;

/// The random numbers of one zone.
#[derive(Clone, Debug)]
pub struct Shuffle {
    state: u64,
    /// Random bits that are not used yet; `left` is their number.
    bits: u64,
    left: u32,
}

impl Shuffle {
    fn new(seed: u64) -> Self {
        Self { state: seed, bits: 0, left: 0 }
    }

    fn next(&mut self) -> u64 {
        let drawn = mix(self.state);
        self.state = self.state.wrapping_add(SPLITMIX_STEP);
        drawn
    }

    /// A random end of the list (`shuffle_pick_tail`).
    pub(crate) fn pick_end(&mut self) -> ListEnd {
        if self.left == 0 {
            (self.bits, self.left) = (self.next(), u64::BITS);
        }
        let end = if self.bits & 1 != 0 { ListEnd::Tail } else { ListEnd::Head };
        self.bits >>= 1;
        self.left -= 1;
        end
    }
}

impl Memory {
    /// Shuffles the free lists of all zones, and goes on to do so with what comes back (`page_alloc.shuffle=Y`).
    pub fn shuffle(&mut self, seed: u64) {
        for (at, zone) in self.zones.iter_mut().enumerate() {
            let mut shuffle = Shuffle::new(seed ^ (at as u64).rotate_left(u64::BITS / 2));
            let (start, end, zone_index) = (zone.start, zone.end, ZoneIndex::at(at));
            shuffle_zone(&mut zone.buddy, &mut self.frames, (start, end, zone_index), &mut shuffle);
            zone.buddy.shuffle = Some(shuffle);
        }
    }
}

/// Exchanges each block of the largest order with a random block of its type (`__shuffle_zone`).
fn shuffle_zone(
    buddy: &mut Buddy,
    frames: &mut FrameTable,
    (start, end, zone): (Pfn, Pfn, ZoneIndex),
    shuffle: &mut Shuffle,
) {
    let order = buddy.max_order();
    let is_block = |frames: &FrameTable, pfn: Pfn| frames.is_free(pfn, order) && frames.blocks.zone(pfn) == Some(zone);
    let spanned = u64::from(end.0 - start.0);
    let mut lists: Vec<Vec<Pfn>> = MigrateType::ALL.iter().map(|list| buddy.blocks_of(frames, order, *list)).collect();
    let mut places = vec![0; (frames.len() / order.frames()) as usize];
    let at = |pfn: Pfn| (pfn.0 / order.frames()) as usize;
    for list in &lists {
        list.iter().enumerate().for_each(|(place, pfn)| places[at(*pfn)] = place);
    }
    let first = start.0.next_multiple_of(order.frames());
    for one in (first..end.0).step_by(order.frames() as usize).map(Pfn) {
        if !is_block(frames, one) {
            continue;
        }
        let draw = |shuffle: &mut Shuffle| {
            let offset = u32::try_from(shuffle.next() % spanned).expect("below the zone's size");
            start.plus(offset).align_down(order)
        };
        let other = (0..RETRY).map(|_| draw(shuffle)).find(|other| *other != one && is_block(frames, *other));
        let Some(other) = other else { continue };
        let list = frames.free_list(one, order);
        if frames.free_list(other, order) == list {
            lists[list as usize].swap(places[at(one)], places[at(other)]);
            places.swap(at(one), at(other));
        }
    }
    for (list, blocks) in MigrateType::ALL.iter().zip(&lists) {
        buddy.reorder(frames, order, *list, blocks);
    }
}
