//! Kernels with SLAB: what lies idle in arrays and on nodes goes back in time, on each CPU.

use memory::slab::SlabAllocator;

use super::*;

/// Mappings, each of which has a `vm_area_struct`.
const MAPPINGS: u64 = 600;

/// A process has many mappings, removes every mapping, and sleeps. Returns the number of frames that are kept, and the
/// run's hash.
fn churn(slab_allocator: SlabAllocator, sleeps: Picos) -> (u64, String) {
    let mut config = larger(ThpEnabled::Never);
    config.variant = *variant::named("v4.20");
    config.settings.slab_allocator = slab_allocator;
    let ((), finish) = simulate(&config, no_entries, async move |os: Sim| {
        let range = os.mmap(Bytes(2 * MAPPINGS * Bytes::PAGE.0), MapSpec::Anonymous).await.unwrap();
        // Every other page goes, which makes a mapping of each that stays.
        for n in 0..MAPPINGS {
            os.munmap(range.part(Bytes(2 * n * Bytes::PAGE.0), Bytes::PAGE)).await.unwrap();
        }
        os.munmap(range).await.unwrap();
        os.sleep(sleeps).await;
    });
    (kept(&finish), finish.hash)
}

#[test]
fn what_lies_idle_goes_back_in_time() {
    let minute = Picos::from_micros(60_000_000);
    let (at_once, _) = churn(SlabAllocator::Slab, Picos(0));
    let (later, _) = churn(SlabAllocator::Slab, minute);
    // 600 mappings have 30 slabs: some are above the node's limit, an array and the shared one hold the rest.
    assert!(at_once > 15, "{at_once} frames are kept");
    assert!(later < at_once / 2, "{later} of {at_once} frames are kept after a minute");
    // SLUB keeps what it keeps.
    assert_eq!(churn(SlabAllocator::Slub, minute).0, churn(SlabAllocator::Slub, Picos(0)).0);
}

#[test]
fn a_run_is_the_same_again_and_another_with_the_other_allocator() {
    let run = |allocator| churn(allocator, Picos::from_micros(10_000_000));
    assert_eq!(run(SlabAllocator::Slab), run(SlabAllocator::Slab));
    assert_ne!(run(SlabAllocator::Slab).1, run(SlabAllocator::Slub).1);
}
