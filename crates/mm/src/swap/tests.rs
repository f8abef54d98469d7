use memory::{cost::Prices, event::Counters};
use units::{CpuId, Frames};

use super::*;
use crate::folio::pte::SwapSlot;

fn slots(count: u32) -> Slots {
    Slots::new(count)
}

fn take(slots: &mut Slots) -> Option<u32> {
    slots.take(FamilyId(3), Vpn(1 << 20)).map(|slot| slot.0)
}

#[test]
fn slots_are_given_out_in_a_row_behind_the_header() {
    let mut slots = slots(2048);
    assert_eq!((slots.len(), slots.free()), (2048, 2047));
    assert_eq!((0..700).map(|_| take(&mut slots).unwrap()).collect::<Vec<_>>(), (1..=700).collect::<Vec<_>>());
    assert_eq!(slots.owner(SwapSlot(700)), (FamilyId(3), Vpn(1 << 20)));
    // What is free again behind the present run has to wait until that is full.
    for slot in 10..20 {
        slots.give(SwapSlot(slot));
    }
    assert_eq!(take(&mut slots), Some(701));
}

/// A device of 1 TiB, of which a few pages are used.
#[test]
fn slots_take_room_when_they_are_used() {
    let mut slots = slots(1 << 28);
    assert_eq!((slots.free(), slots.room()), ((1 << 28) - 1, 0));
    assert!(!slots.has(SwapSlot(1 << 27), SlotFlag::Dirty) && slots.count(SwapSlot(1 << 27)) == 0);
    assert_eq!(slots.room(), 0, "a look at a slot makes nothing");
    for slot in 1..600 {
        assert_eq!(take(&mut slots), Some(slot));
    }
    assert_eq!(slots.room(), 2 * 512);
}

#[test]
fn a_new_run_begins_where_as_many_slots_are_free() {
    let mut slots = slots(4096);
    while take(&mut slots) != Some(2048) {}
    for slot in (100..700).chain(1000..1100) {
        slots.give(SwapSlot(slot));
    }
    // The next run of 512.
    assert_eq!(take(&mut slots), Some(100));
    assert_eq!(take(&mut slots), Some(101));
}

#[test]
fn the_last_slots_are_found_wherever_they_are() {
    let mut slots = slots(200);
    while take(&mut slots).is_some() {}
    assert_eq!(slots.free(), 0);
    slots.give(SwapSlot(5));
    slots.give(SwapSlot(199));
    let mut last = [take(&mut slots).unwrap(), take(&mut slots).unwrap()];
    last.sort_unstable();
    assert_eq!((last, take(&mut slots)), ([5, 199], None));
}

#[test]
fn a_slot_is_free_when_nobody_wants_it() {
    let mut slots = slots(64);
    let slot = slots.take(FamilyId(1), Vpn(7)).unwrap();
    slots.set_count(slot, 1);
    slots.set_folio(slot, Pfn(9));
    slots.mark(slot, SlotFlag::Dirty, true);
    assert_eq!((slots.folio(slot), slots.has(slot, SlotFlag::Dirty)), (Some(Pfn(9)), true));
    slots.clear_folio(slot, 77);
    assert_eq!((slots.folio(slot), slots.shadow(slot), slots.is_taken(slot)), (None, 77, true));
    assert!(!slots.has(slot, SlotFlag::Dirty), "what was known of a folio goes with it");
    slots.set_count(slot, 0);
    slots.set_folio(slot, Pfn(9));
    slots.clear_folio(slot, 0);
    assert!(!slots.is_taken(slot));
}

#[test]
fn the_device_does_one_after_the_other() {
    let spec = SwapSpec {
        size: Frames(64).bytes(),
        medium: SwapMedium::Disk {
            latency: Picos::from_micros(100),
            bandwidth: BytesPerSecond::new(Bytes(4096 * 100_000)).unwrap(),
        },
    };
    let mut device = Device::new(&spec);
    device.fail_every = 2;
    let (prices, mut counters) = (Prices::free(), Counters::default());
    let at = |micros| Time(0) + Picos::from_micros(micros);
    let mut cx = Cx::new(CpuId(0), at(50), &prices, &mut counters);
    let numbers = [1, 2, 3].map(|slot| device.submit(&mut cx, SwapSlot(slot), slot < 3));
    // Ten microseconds each.
    assert_eq!(numbers.map(|number| device.done_at(number)), [at(160), at(170), at(180)]);
    assert_eq!((device.done_by(2), device.done_by(9)), (Some(at(170)), Some(at(180))));
    assert!(!device.is_done(at(159)) && device.is_done(at(160)));
    let done: Vec<_> = std::iter::from_fn(|| device.next_done(at(170))).map(|io| (io.slot.0, io.failed)).collect();
    assert_eq!(done, [(1, false), (2, true)]);
    assert_eq!(device.done_at(numbers[0]), Time(0), "long ago");
    assert_eq!(device.done_at(numbers[2]), at(180));
}
