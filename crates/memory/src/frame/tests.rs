//! The frame table: every state is held to survive packing and unpacking.

use super::{
    word::{FAMILY_MAX, SEGMENT_MAX, VPN_MASK},
    *,
};

fn every_kind() -> Vec<Frame> {
    let mut kinds = vec![Frame::Interior, Frame::PageTable, Frame::ZeroHuge, Frame::Reserved];
    for order in (0..=10).map(Order) {
        for list in MigrateType::ALL {
            kinds.extend([false, true].map(|reported| Frame::Free { order, list, reported }));
            kinds.extend([0, 7, u32::MAX].map(|cpu| Frame::Pcp { cpu: CpuId(cpu), order, list }));
        }
        for (family, vpn) in [(0, 0), (1, 1), (FAMILY_MAX, VPN_MASK), (FAMILY_MAX, 0), (0, VPN_MASK)] {
            kinds.push(Frame::Anon { family: FamilyId(family), vpn: Vpn(vpn), order });
        }
        for (segment, index) in [(0, 0), (1, 1), (SEGMENT_MAX, SegmentId::PAGES - 1), (SEGMENT_MAX, 0)] {
            kinds.push(Frame::File { segment: SegmentId(segment), index, order });
        }
        kinds.extend(Mobility::ALL.map(|mobility| Frame::Kernel { order, mobility }));
        kinds.extend([0, 1, u32::MAX].map(|owner| Frame::Isolated { owner: ControlId(owner), order }));
    }
    kinds.extend([0, 512, u32::MAX].map(|count| Frame::Tail { count }));
    kinds
}

#[test]
fn every_kind_comes_back_as_it_went_in() {
    let mut words = Vec::new();
    for frame in every_kind() {
        assert_eq!(unpack(pack(frame)), frame);
        words.push(pack(frame));
    }
    words.sort_unstable();
    assert!(words.is_sorted_by(|a, b| a < b), "no two are packed alike");
    assert_eq!(pack(Frame::Interior), 0);
}

#[test]
fn flags_are_beside_what_a_frame_is() {
    let mut frames = FrameTable::new(Pfn(16), Order(2), Order(3));
    let anon = Frame::Anon { family: FamilyId(FAMILY_MAX), vpn: Vpn(VPN_MASK), order: Order(2) };
    frames.set(Pfn(4), anon);
    for flag in [
        FrameFlag::OnLru,
        FrameFlag::Active,
        FrameFlag::InBatch,
        FrameFlag::Dropped,
        FrameFlag::Referenced,
        FrameFlag::Locked,
    ] {
        assert!(!frames.has(Pfn(4), flag));
        frames.mark(Pfn(4), flag, true);
        assert!(frames.has(Pfn(4), flag));
        assert_eq!(frames.get(Pfn(4)), anon);
    }
    frames.mark(Pfn(4), FrameFlag::OnLru, false);
    assert!(!frames.has(Pfn(4), FrameFlag::OnLru));
    assert!(frames.has(Pfn(4), FrameFlag::Active));
    assert_eq!(frames.get(Pfn(4)), anon);
    frames.set(Pfn(4), anon);
    assert!(!frames.has(Pfn(4), FrameFlag::Active));
}

#[test]
#[should_panic(expected = "does not fit into its payload")]
fn what_does_not_fit_is_refused() {
    pack(Frame::Anon { family: FamilyId(0), vpn: Vpn(VPN_MASK + 1), order: Order(0) });
}

#[test]
fn a_large_free_block_leaves_its_frames_alone() {
    let mut frames = FrameTable::new(Pfn(30), Order(2), Order(4));
    assert_eq!(frames.len(), 32, "whole blocks");
    frames.reserve_edges(Pfn(0), Pfn(30), ZoneIndex(0));
    for (order, is_big) in [(1, false), (2, true), (3, true)] {
        let order = Order(order);
        let free = Frame::Free { order, list: MigrateType::Reclaimable, reported: false };
        frames.set(Pfn(8), free);
        frames.free_threads(order).set(Pfn(8), Links { prev: Pfn(3), next: NIL });
        assert_eq!(frames.get(Pfn(8)), free);
        assert!(frames.is_free(Pfn(8), order) && !frames.is_free(Pfn(8), Order(order.0 + 1)));
        assert_eq!(frames.links(Pfn(8)), Links { prev: Pfn(3), next: NIL });
        assert_eq!(frames.raw(Pfn(8)) == (0, 0), is_big);
        assert_eq!(frames.raw_block(Pfn(8)) != (0, 0), is_big);
        frames.free_threads(order).clear(Pfn(8));
        frames.clear_free(Pfn(8), order);
        assert_eq!(frames.get(Pfn(8)), Frame::Interior);
        assert_eq!(frames.raw_block(Pfn(8)), (0, 0));
    }
    let states: Vec<_> = (28..32).map(|pfn| frames.get(Pfn(pfn))).collect();
    assert_eq!(states, [Frame::Interior, Frame::Interior, Frame::Reserved, Frame::Reserved]);
}
