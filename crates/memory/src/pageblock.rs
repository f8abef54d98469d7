//! Linux: include/linux/mmzone.h, include/linux/pageblock-flags.h (v6.1).
//! Differs: the zone of a pageblock stands here too, where Linux keeps it in each page's flags; two
//! zones never share a pageblock.

use serde::Serialize;
use units::{Mobility, Order, Pfn};

/// The type of a pageblock, and of each free list (`enum migratetype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum MigrateType {
    /// Frames that stay where they are.
    Unmovable,
    /// Frames that can be migrated; the type of every pageblock at boot.
    Movable,
    /// Frames that can be freed under pressure.
    Reclaimable,
    /// Kept for atomic requests of higher orders (4.4 and later).
    HighAtomic,
    /// Kept for requests that would fail otherwise (up to 4.3).
    Reserve,
    /// Kept for contiguous allocations, lent to movable frames.
    Cma,
    /// Isolated while the pageblock is emptied; nothing is allocated from it.
    Isolate,
}

impl MigrateType {
    /// Number of types.
    pub const COUNT: usize = 7;
    /// Every type, in the order of declaration.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Unmovable, Self::Movable, Self::Reclaimable, Self::HighAtomic, Self::Reserve, Self::Cma, Self::Isolate];

    /// The type with this position in [`Self::ALL`].
    #[inline]
    pub fn from_index(index: usize) -> Self {
        Self::ALL[index]
    }

    /// The type of the pageblocks that frames of this mobility belong in.
    #[inline]
    pub const fn of(mobility: Mobility) -> Self {
        match mobility {
            Mobility::Unmovable => Self::Unmovable,
            Mobility::Movable => Self::Movable,
            Mobility::Reclaimable => Self::Reclaimable,
        }
    }

    /// Whether requests ask for this type: free blocks of such types merge with each other
    /// (`migratetype_is_mergeable`).
    #[inline]
    pub const fn is_requestable(self) -> bool {
        self.mobility().is_some()
    }

    /// The mobility of the requests that ask for this type, if any do.
    #[inline]
    pub const fn mobility(self) -> Option<Mobility> {
        match self {
            Self::Unmovable => Some(Mobility::Unmovable),
            Self::Movable => Some(Mobility::Movable),
            Self::Reclaimable => Some(Mobility::Reclaimable),
            Self::HighAtomic | Self::Reserve | Self::Cma | Self::Isolate => None,
        }
    }
}

/// A zone of the machine: its position in `Memory::zones`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZoneIndex(pub u16);

impl ZoneIndex {
    /// No zone of any machine.
    pub const NONE: Self = Self(u16::MAX);
    /// The machine's first zone with memory.
    pub const FIRST: Self = Self(0);

    /// The one at a position.
    pub fn at(position: usize) -> Self {
        Self(u16::try_from(position).expect("fewer zones than numbers for them"))
    }

    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The zone's position among all zones.
    #[inline]
    pub fn position(self) -> usize {
        usize::from(self.0)
    }
}

const NO_ZONE: u16 = ZoneIndex::NONE.0;

/// Facts about one pageblock.
#[derive(Clone, Copy, Debug)]
struct Facts {
    zone: u16,
    migrate_type: MigrateType,
    /// Compaction found nothing in the pageblock lately (`PB_migrate_skip`).
    skip: bool,
}

/// Facts about whole pageblocks, by number.
#[derive(Clone, Debug)]
pub struct Pageblocks {
    order: Order,
    facts: Vec<Facts>,
}

impl Pageblocks {
    /// `count` pageblocks, Movable, of no zone.
    pub fn new(order: Order, count: usize) -> Self {
        Self { order, facts: vec![Facts { zone: NO_ZONE, migrate_type: MigrateType::Movable, skip: false }; count] }
    }

    /// Order of a pageblock (`pageblock_order`).
    #[inline]
    pub fn order(&self) -> Order {
        self.order
    }

    /// The number of the pageblock that holds a frame.
    #[inline]
    pub fn index(&self, pfn: Pfn) -> usize {
        // An order is less than the bits of a frame number: `wrapping_shr` saves the check.
        pfn.0.wrapping_shr(self.order.0.into()) as usize
    }

    /// The migrate type of a frame's pageblock.
    #[inline]
    pub fn migrate_type(&self, pfn: Pfn) -> MigrateType {
        self.facts[self.index(pfn)].migrate_type
    }

    /// Sets the migrate type of a frame's pageblock.
    pub fn set_migrate_type(&mut self, pfn: Pfn, to: MigrateType) {
        let index = self.index(pfn);
        self.facts[index].migrate_type = to;
    }

    /// Whether compaction found nothing in the frame's pageblock lately (`get_pageblock_skip`).
    #[inline]
    pub fn skip(&self, pfn: Pfn) -> bool {
        self.facts[self.index(pfn)].skip
    }

    /// Sets or clears the skip mark of a frame's pageblock.
    #[inline]
    pub fn set_skip(&mut self, pfn: Pfn, skip: bool) {
        let index = self.index(pfn);
        self.facts[index].skip = skip;
    }

    /// The zone whose buddy allocator manages the frame's pageblock, or part of it.
    #[inline]
    pub fn zone(&self, pfn: Pfn) -> Option<ZoneIndex> {
        let zone = self.facts[self.index(pfn)].zone;
        (zone != NO_ZONE).then_some(ZoneIndex(zone))
    }

    /// The zone ([`ZoneIndex::NONE`] if there is none) and the type of a frame's pageblock, read together.
    #[inline]
    pub(crate) fn zone_and_type(&self, pfn: Pfn) -> (ZoneIndex, MigrateType) {
        let Facts { zone, migrate_type, .. } = self.facts[self.index(pfn)];
        (ZoneIndex(zone), migrate_type)
    }

    /// Gives the pageblock of a frame to a zone.
    pub fn set_zone(&mut self, pfn: Pfn, zone: ZoneIndex) {
        let index = self.index(pfn);
        let facts = &mut self.facts[index];
        assert!(facts.zone == NO_ZONE || facts.zone == zone.0, "two zones share the pageblock of frame {pfn}");
        facts.zone = zone.0;
    }
}
