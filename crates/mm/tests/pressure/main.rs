//! More memory in use than there is: processes write to all of it, and find again what they wrote, whatever went to swap and
//! came back. After every step each frame, slot and entry is asked for.

mod all;
mod chance;
mod machine;
mod mistakes;
#[path = "../soak/mod.rs"]
mod soak;

use std::collections::BTreeMap;

use machine::{Fate, Machine, Setup};
use memory::event::{Counters, Event};
use mistakes::Seeded;
use mm::swap::SwapMedium;
use rules::variant::{self, ThpDefrag};

const MIB: u64 = 256;

/// As many seeds as many times more as `cargo xtask soak` asks for.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    0..usual * soak::times()
}

fn setup() -> Setup {
    Setup { frames: 16 * MIB, swap: Some(64 * MIB), ..Setup::default() }
}

/// Reclaim frees what it has looked at, and writes what it counts.
fn counts_agree(machine: &Machine) {
    let count = |event| machine.count(event);
    let scanned = count(Event::PgscanKswapd) + count(Event::PgscanDirect);
    let stolen = count(Event::PgstealKswapd) + count(Event::PgstealDirect);
    assert!(stolen > 0 && stolen <= scanned, "{stolen} of {scanned}");
    assert_eq!(scanned, count(Event::PgscanAnon) + count(Event::PgscanFile));
    assert_eq!(stolen, count(Event::PgstealAnon) + count(Event::PgstealFile));
    assert_eq!(count(Event::Pswpout), count(Event::NrVmscanWrite), "only reclaim writes to swap");
}

#[test]
fn what_was_swapped_out_comes_back() {
    for name in ["v6.1", "v5.10", "v4.20", "v4.1"] {
        let mut machine = Machine::new(&Setup { variant: *variant::named(name), ..setup() });
        let process = machine.start(40 * MIB);
        machine.write_all(process);
        assert!(machine.count(Event::Pswpout) >= 24 * MIB, "{name}: {}", machine.count(Event::Pswpout));
        machine.read_all(process);
        assert!(machine.count(Event::Pswpin) >= 24 * MIB, "{name}");
        assert!(
            machine.count(Event::Pgmajfault) > 0 && machine.count(Event::Pgmajfault) <= machine.count(Event::Pswpin)
        );
        machine.read_all(process);
        counts_agree(&machine);
        machine.end(process);
        machine.is_empty();
    }
}

#[test]
fn memory_shared_with_a_child_is_swapped_for_both() {
    let mut machine = Machine::new(&setup());
    let parent = machine.start(20 * MIB);
    machine.write_all(parent);
    let child = machine.fork(parent);
    machine.read_all(child);
    machine.write_some(child, 3);
    machine.write_some(parent, 5);
    machine.read_all(parent);
    machine.read_all(child);
    counts_agree(&machine);
    machine.end(parent);
    machine.read_all(child);
    machine.end(child);
    machine.is_empty();
}

#[test]
fn without_a_device_nothing_is_scanned() {
    let mut machine = Machine::new(&Setup { swap: None, ..setup() });
    let process = machine.start(20 * MIB);
    assert_eq!(machine.try_write_all(process), Fate::OutOfMemory);
    for event in [Event::PgscanAnon, Event::PgscanKswapd, Event::PgscanDirect, Event::Pgrefill] {
        assert_eq!(machine.count(event), 0, "{event:?}");
    }
    assert!(machine.count(Event::AllocstallMovable) + machine.count(Event::AllocstallNormal) > 0);
    machine.end(process);
    machine.is_empty();
}

#[test]
fn a_full_device_ends_it() {
    let mut machine = Machine::new(&Setup { swap: Some(8 * MIB), ..setup() });
    let process = machine.start(30 * MIB);
    assert_eq!(machine.try_write_all(process), Fate::OutOfMemory);
    assert_eq!(machine.mm.swap.free(), 0, "every slot was of use");
    machine.end(process);
    machine.is_empty();
}

#[test]
fn pages_that_cannot_be_written_stay() {
    let mut machine = Machine::new(&setup());
    machine.mm.swap.fail_writes(3);
    let process = machine.start(30 * MIB);
    machine.write_all(process);
    machine.read_all(process);
    let (out, stolen) = (machine.count(Event::Pswpout), machine.count(Event::PgstealAnon));
    assert!(stolen < out, "a third of {out} failed, and {stolen} went");
    machine.end(process);
    machine.is_empty();
}

#[test]
fn a_task_whose_page_cannot_be_read_is_killed() {
    let memory = Setup { medium: SwapMedium::Memory, ..setup() };
    for setup in [setup(), memory] {
        let mut machine = Machine::new(&setup);
        let process = machine.start(30 * MIB);
        machine.write_all(process);
        let child = machine.fork(process);
        machine.mm.swap.fail_reads(7);
        assert_eq!(machine.try_read_all(process), Fate::BusError);
        assert_eq!(machine.try_read_all(process), Fate::BusError, "and again");
        machine.end(process);
        // What could not be read can be another time, when the frame that it should have gone to has gone itself.
        machine.mm.swap.fail_reads(0);
        let other = machine.start(24 * MIB);
        machine.write_all(other);
        machine.end(other);
        machine.read_all(child);
        machine.end(child);
        machine.is_empty();
    }
}

#[test]
fn memory_to_swap_to_keeps_what_is_written_and_what_cannot_be() {
    let mut machine = Machine::new(&Setup { medium: SwapMedium::Memory, ..setup() });
    let process = machine.start(30 * MIB);
    machine.write_all(process);
    machine.read_all(process);
    let count = |event| machine.count(event);
    assert_eq!(count(Event::PgstealAnon), count(Event::Pswpout), "what is written goes at once");
    // Nobody else wants a page: its slot is free when it is back, so that it is written again.
    assert_eq!(machine.cached(), []);
    counts_agree(&machine);
    let child = machine.fork(process);
    machine.read_all(child);
    assert!(!machine.cached().is_empty(), "what two want goes through the swap cache");
    machine.mm.swap.fail_writes(3);
    let (out, stolen) = (machine.count(Event::Pswpout), machine.count(Event::PgstealAnon));
    for process in [process, child] {
        machine.write_all(process);
        machine.read_all(process);
    }
    let (out, stolen) = (machine.count(Event::Pswpout) - out, machine.count(Event::PgstealAnon) - stolen);
    assert!(0 < stolen && stolen < out, "a third of {out} failed, and {stolen} went");
    machine.end(child);
    machine.end(process);
    machine.is_empty();
}

#[test]
fn the_same_seed_gives_the_same_counts() {
    let run = || {
        let mut machine = Machine::new(&setup());
        let process = machine.start(24 * MIB);
        machine.write_all(process);
        machine.storm(process, 7, 4000);
        machine.counters.iter().collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn many_at_once_lose_nothing() {
    for seed in seeds(4) {
        let medium = if seed % 4 < 2 { Setup::default().medium } else { SwapMedium::Memory };
        let mut machine = Machine::new(&Setup { frames: 8 * MIB, swap: Some(24 * MIB), medium, ..setup() });
        machine.mm.swap.fail_writes(if seed % 2 == 0 { 0 } else { 17 });
        machine.crowd(seed, 6000);
        machine.is_empty();
    }
}

#[test]
fn huge_pages_are_split_before_swap_with_equal_contents() {
    for name in ["v6.1", "v5.10", "v4.20", "v4.1"] {
        let variant = *variant::named(name);
        let mut machine = Machine::new(&Setup { frames: 24 * MIB, huge: true, boost_factor: 0, variant, ..setup() });
        let process = machine.start(40 * MIB);
        machine.write_all(process);
        let count = |event| machine.count(event);
        assert!(count(Event::ThpFaultAlloc) >= 8, "{name}: {}", count(Event::ThpFaultAlloc));
        assert!(count(Event::Pswpout) >= 14 * MIB, "{name}: {}", count(Event::Pswpout));
        assert!(count(Event::ThpSplitPage) >= 4, "{name}: {}", count(Event::ThpSplitPage));
        assert_eq!(count(Event::ThpSplitPage), count(Event::ThpSwpoutFallback), "{name}: each was whole before");
        counts_agree(&machine);
        machine.read_all(process);
        machine.read_all(process);
        machine.end(process);
        machine.is_empty();
    }
}

#[test]
fn a_huge_page_that_a_child_shares_is_swapped_for_both() {
    let mut machine = Machine::new(&Setup { frames: 24 * MIB, huge: true, boost_factor: 0, ..setup() });
    let parent = machine.start(14 * MIB);
    machine.write_all(parent);
    let child = machine.fork(parent);
    let other = machine.start(16 * MIB);
    machine.write_all(other);
    assert!(machine.count(Event::ThpSplitPage) > 0 && machine.count(Event::Pswpout) > 0);
    machine.write_some(child, 3);
    for process in [parent, child, other] {
        machine.read_all(process);
        machine.end(process);
    }
    machine.is_empty();
}

#[test]
fn many_at_once_with_huge_pages_lose_nothing() {
    for seed in seeds(2) {
        let mut machine =
            Machine::new(&Setup { frames: 8 * MIB, swap: Some(40 * MIB), huge: true, boost_factor: 0, ..setup() });
        machine.mm.swap.fail_writes(if seed % 2 == 0 { 0 } else { 17 });
        machine.crowd(seed, 4000);
        machine.is_empty();
        assert!(
            machine.count(Event::ThpFaultAlloc) > 0 && machine.count(Event::Pswpout) > 0,
            "seed {seed}: {:?}",
            machine.counters
        );
    }
}

#[test]
fn pages_of_the_swap_cache_are_moved_with_their_slots() {
    let mut machine = Machine::new(&setup());
    let [kept, gone] = [8 * MIB, 24 * MIB].map(|pages| machine.start(pages));
    machine.write_all(kept);
    machine.write_all(gone);
    // What was read keeps its slot; and when one of them goes, the other is left all over memory.
    machine.read_in_turn([kept, gone], 8 * MIB);
    machine.end(gone);
    let before = machine.cached();
    let moved = machine.count(Event::PgmigrateSuccess);
    machine.compact();
    let after = machine.cached();
    assert!(machine.count(Event::PgmigrateSuccess) > moved + 100);
    assert_eq!(before.len(), after.len());
    let elsewhere = before.iter().zip(&after).filter(|((slot, old), (same, new))| slot == same && old != new).count();
    assert!(elsewhere > 100, "{elsewhere} of {} have moved", before.len());
    machine.read_all(kept);
    machine.write_all(kept);
    machine.read_all(kept);
    machine.end(kept);
    machine.is_empty();
}

#[test]
fn what_others_hold_survives_that_processes_are_killed() {
    for seed in seeds(4) {
        let (swap, huge) = ((seed % 2 == 1).then_some(MIB), seed % 4 > 1);
        let frames = if huge { 4 * MIB } else { 3 * MIB };
        let mut machine = Machine::new(&Setup {
            frames,
            swap,
            huge,
            kills: true,
            boost_factor: if huge { 0 } else { 15_000 },
            ..setup()
        });
        machine.crowd(seed, 8000);
        machine.is_empty();
        assert!(machine.count(Event::OomKill) > 0, "seed {seed}: {:?}", machine.counters);
    }
}

/// Events that happen in the streams of everything at once.
const EVERYTHING: [Event; 24] = [
    Event::Pswpout,
    Event::Pswpin,
    Event::PgstealKswapd,
    Event::PgstealDirect,
    Event::PgmigrateSuccess,
    Event::PgmigrateFail,
    Event::CompactStall,
    Event::CompactMigrateScanned,
    Event::ThpFaultAlloc,
    Event::ThpFaultFallback,
    Event::ThpCollapseAlloc,
    Event::ThpCollapseAllocFailed,
    Event::ThpDeferredSplitPage,
    Event::ThpSplitPage,
    Event::ThpSplitPageFailed,
    Event::ThpSplitPmd,
    Event::ThpZeroPageAlloc,
    Event::SlabsScanned,
    Event::OomKill,
    Event::Pgmajfault,
    Event::SimPageReports,
    Event::SimPagesReported,
    Event::SimHostDiscards,
    Event::SimHostRefaults,
];

/// One of each kind: versions, devices with room and without, and what fails.
fn everything(seed: u64, steps: u64) -> Machine {
    everything_with(seed, steps, Seeded::default())
}

fn everything_with(seed: u64, steps: u64, seeded: Seeded) -> Machine {
    let pick = |of: usize| usize::try_from(seed).unwrap() % of;
    // As many as have no factor in common with the other kinds.
    let variant = match pick(7) {
        6 => variant::patched("v4.20-rc3", &[1, 2, 3, 4, 5]),
        at => *variant::named(["v6.1", "v5.10", "v4.20", "v4.1", "v6.7", "v5.9"][at]),
    };
    let medium = if pick(3) == 0 { SwapMedium::Memory } else { Setup::default().medium };
    let swap = Some(if pick(2) == 0 { 24 * MIB } else { MIB });
    let boost_factor = [15_000, 0, 150_000][pick(3)];
    let mut machine =
        Machine::new(&Setup { frames: 12 * MIB, swap, medium, variant, huge: true, kills: true, boost_factor });
    machine.mm.thp.defrag = [ThpDefrag::Always, ThpDefrag::Defer, ThpDefrag::DeferMadvise][pick(3)];
    machine.mm.swap.fail_writes([17, 17, 0, 0][pick(4)]);
    machine.mm.swap.fail_reads([0, 0, 0, 501][pick(4)]);
    machine.mm.compaction.fail_moves([11, 0, 11, 11][pick(4)]);
    machine.seeded = seeded;
    machine.everything(seed, steps);
    machine.is_empty();
    machine
}

/// Says which seed it was when it fails.
fn everything_named(seed: u64, steps: u64) -> Machine {
    std::panic::catch_unwind(|| everything(seed, steps)).unwrap_or_else(|panic| {
        #[expect(clippy::print_stdout, reason = "the seed of a failure")]
        let () = println!("everything({seed}, {steps}) has failed");
        std::panic::resume_unwind(panic)
    })
}

/// A million steps, in the soak ten million.
#[test]
fn contents_survive_everything_at_once() {
    let mut sums = Counters::default();
    let (mut injected, mut collapsed, mut full) = (0, 0, 0);
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds(50) {
        let machine = everything_named(seed, 20_000);
        injected += machine.injected;
        collapsed += machine.mm.khugepaged.pages_collapsed;
        full += u64::from(machine.was_full);
        for (event, count) in machine.counters.iter() {
            sums.count(event, count);
        }
        for (what, count) in machine.reached {
            *reached.entry(what).or_insert(0) += count;
        }
    }
    for event in EVERYTHING {
        assert!(sums.get(event) >= 5, "{} {}", sums.get(event), event.name());
    }
    for what in ["marks are raised", "a stall ends with a pass", "who cannot wait is served under a boost"] {
        assert!(reached.get(what).is_some_and(|count| *count >= 5), "{what}: {reached:?}");
    }
    assert!(
        injected > 1000 && collapsed > 5 && full > 5,
        "{injected} failed, {collapsed} huge pages, {full} times full"
    );
}

#[test]
fn everything_at_once_is_the_same_twice() {
    for seed in [5, 8] {
        let run = || {
            let machine = everything(seed, 5_000);
            (format!("{:?}", machine.mm), machine.counters.iter().collect::<Vec<_>>())
        };
        assert!(run() == run(), "seed {seed}");
    }
}
