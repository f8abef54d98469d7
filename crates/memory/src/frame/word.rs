//! Linux: include/linux/page-flags.h (v6.1).
//! Differs: one word holds the state of a frame: its kind, order, flags, and a payload by kind.

use rules::gfp::Mobility;
use units::{CpuId, Order, Pfn, Vpn};

use super::{FamilyId, Frame, FrameTable, Links, SegmentId};
use crate::{
    frame::ControlId,
    pageblock::MigrateType,
    slab::{Cache, Slab},
};

// State word: kind 4 bits, order 4, flags 8, payload 48.
pub(super) const INTERIOR: u64 = 0;
pub(super) const FREE: u64 = 1;
pub(super) const PCP: u64 = 2;
pub(super) const ANON: u64 = 3;
pub(super) const FILE: u64 = 4;
pub(super) const SLAB: u64 = 5;
pub(super) const PAGE_TABLE: u64 = 6;
pub(super) const KERNEL: u64 = 7;
pub(super) const ISOLATED: u64 = 8;
pub(super) const ZERO_HUGE: u64 = 9;
pub(super) const TAIL: u64 = 10;
pub(super) const RESERVED: u64 = 15;

/// Kinds that head a folio of user memory, one bit each.
pub(super) const FOLIOS: u64 = 1 << ANON | 1 << FILE;
/// Kinds that head an allocated block, one bit each.
pub(super) const ALLOCATED: u64 = FOLIOS | 1 << SLAB | 1 << PAGE_TABLE | 1 << KERNEL | 1 << ISOLATED | 1 << ZERO_HUGE;
/// Kinds of allocated blocks that may have one frame: a range of numbers.
pub(super) const ALLOCATED_BASE: std::ops::RangeInclusive<u64> = ANON..=ISOLATED;
const _: () = assert!(ALLOCATED == (1 << (ZERO_HUGE + 1)) - (1 << ANON) && ISOLATED + 1 == ZERO_HUGE);

pub(super) const KIND_MASK: u64 = 0xf;
pub(super) const ORDER_SHIFT: u32 = 4;
pub(super) const ORDER_MASK: u64 = 0xf << ORDER_SHIFT;
pub(super) const FLAGS_SHIFT: u32 = 8;
pub(super) const REPORTED: u64 = 1 << FLAGS_SHIFT;
/// The upper two flags of Anon: the folio's map count.
pub(super) const MAP_COUNT_SHIFT: u32 = FLAGS_SHIFT + 6;
pub(super) const MAP_COUNT_MASK: u64 = FrameTable::MAP_COUNT_MAX as u64;
pub(super) const PAYLOAD_SHIFT: u32 = 16;
/// Payload of Anon: page number 35 bits (user addresses have 47), a flag that says pinned, family 12 bits. Of File: page 20 bits,
/// segment 28. Of Pcp: type 8 bits, CPU 32. Of Slab: objects 16 bits, cache 8, frozen.
pub(super) const FAMILY_SHIFT: u32 = 36;
pub(super) const FAMILY_MAX: u16 = (1 << (48 - FAMILY_SHIFT)) - 1;
pub(super) const PINNED_SHIFT: u32 = FAMILY_SHIFT - 1;
pub(super) const VPN_MASK: u64 = (1 << PINNED_SHIFT) - 1;
pub(super) const INDEX_BITS: u32 = 20;
pub(super) const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
pub(super) const SEGMENT_MAX: u32 = (1 << (48 - INDEX_BITS)) - 1;
pub(super) const CPU_SHIFT: u32 = 8;
pub(super) const TYPE_MASK: u64 = 0xff;
pub(super) const CACHE_SHIFT: u32 = 16;
pub(super) const FROZEN_SHIFT: u32 = 24;
pub(super) const NEXT_SHIFT: u32 = 32;
pub(super) const NEXT_MASK: u64 = (u32::MAX as u64) << NEXT_SHIFT;

#[inline(always)]
#[expect(clippy::inline_always, reason = "most callers know the kind, and then this is a constant")]
pub(super) fn pack(frame: Frame) -> u64 {
    let (kind, order, rest) = match frame {
        Frame::Interior => (INTERIOR, Order::BASE, 0),
        Frame::Free { order, list, reported } => {
            let flag = if reported { REPORTED } else { 0 };
            (FREE, order, (list as u64) << PAYLOAD_SHIFT | flag)
        }
        Frame::Pcp { cpu, order, list } => (PCP, order, (u64::from(cpu.0) << CPU_SHIFT | list as u64) << PAYLOAD_SHIFT),
        Frame::Anon { family, vpn, order } => {
            assert!(family.0 <= FAMILY_MAX && vpn.0 <= VPN_MASK, "{frame:?} does not fit into its payload");
            (ANON, order, (u64::from(family.0) << FAMILY_SHIFT | vpn.0) << PAYLOAD_SHIFT)
        }
        Frame::File { segment, index, order } => {
            assert!(segment.0 <= SEGMENT_MAX && index < SegmentId::PAGES, "{frame:?} does not fit into its payload");
            (FILE, order, (u64::from(segment.0) << INDEX_BITS | u64::from(index)) << PAYLOAD_SHIFT)
        }
        Frame::PageTable => (PAGE_TABLE, Order::BASE, 0),
        Frame::Slab(Slab { cache, order, in_use, frozen }) => {
            let state = u64::from(frozen) << FROZEN_SHIFT | (cache as u64) << CACHE_SHIFT | u64::from(in_use);
            (SLAB, order, state << PAYLOAD_SHIFT)
        }
        Frame::Kernel { order, mobility } => (KERNEL, order, (mobility as u64) << PAYLOAD_SHIFT),
        Frame::Isolated { owner, order } => (ISOLATED, order, u64::from(owner.0) << PAYLOAD_SHIFT),
        Frame::ZeroHuge => (ZERO_HUGE, Order::BASE, 0),
        Frame::Tail { count } => (TAIL, Order::BASE, u64::from(count) << PAYLOAD_SHIFT),
        Frame::Reserved => (RESERVED, Order::BASE, 0),
    };
    kind | u64::from(order.0) << ORDER_SHIFT | rest
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "each field is masked, or was put in with this width")]
pub(super) fn unpack(state: u64) -> Frame {
    let order = unpack_order(state);
    let payload = state >> PAYLOAD_SHIFT;
    let list = || MigrateType::from_index((payload & TYPE_MASK) as usize);
    match state & KIND_MASK {
        INTERIOR => Frame::Interior,
        FREE => Frame::Free { order, list: list(), reported: state & REPORTED != 0 },
        PCP => Frame::Pcp { cpu: CpuId((payload >> CPU_SHIFT) as u32), order, list: list() },
        ANON => Frame::Anon { family: FamilyId((payload >> FAMILY_SHIFT) as u16), vpn: Vpn(payload & VPN_MASK), order },
        FILE => Frame::File {
            segment: SegmentId((payload >> INDEX_BITS) as u32),
            index: (payload & INDEX_MASK) as u32,
            order,
        },
        PAGE_TABLE => Frame::PageTable,
        SLAB => Frame::Slab(Slab {
            cache: Cache::from_index((payload >> CACHE_SHIFT & TYPE_MASK) as usize),
            order,
            in_use: payload as u16,
            frozen: payload >> FROZEN_SHIFT & 1 != 0,
        }),
        KERNEL => Frame::Kernel { order, mobility: Mobility::ALL[payload as usize] },
        ISOLATED => Frame::Isolated { owner: ControlId(payload as u32), order },
        ZERO_HUGE => Frame::ZeroHuge,
        TAIL => Frame::Tail { count: payload as u32 },
        RESERVED => Frame::Reserved,
        kind => panic!("no frame is of kind {kind} (state {state:#x})"),
    }
}

#[inline]
pub(super) fn unpack_order(state: u64) -> Order {
    Order(((state & ORDER_MASK) >> ORDER_SHIFT) as u8)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is the neighbour towards the head")]
pub(super) fn unpack_links(word: u64) -> Links {
    Links { prev: Pfn(word as u32), next: Pfn((word >> NEXT_SHIFT) as u32) }
}
