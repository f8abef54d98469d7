//! Runs that start from memory as a kernel had it.

use memory::{buddy::ORDERS, event::Event, pageblock::MigrateType};
use mm::whole::state::{FrameMap, Seen, ZoneCounts};
use os::{MapSpec, Os};
use rules::zone::ZoneKind;
use sim::{Extra, Finish, Options, Sim, simulate_from};
use units::{Bytes, Frames, NodeId};

use crate::support::{machine, no_entries};

const FRAMES: u32 = 16_384;

/// Every other frame of the lower half is a file's; of the upper half, the first pageblock holds page tables and slabs.
fn map() -> FrameMap {
    let mut frames = vec![Seen::Free; FRAMES as usize];
    frames.iter_mut().take(8192).step_by(2).for_each(|seen| *seen = Seen::File);
    frames[8192..8200].fill(Seen::PageTable);
    frames[8200..8500].fill(Seen::Slab);
    frames[8500..8512].fill(Seen::Unmarked);
    let mut blocks = [0; MigrateType::COUNT];
    (blocks[MigrateType::Unmovable as usize], blocks[MigrateType::Movable as usize]) = (1, 31);
    let mut free = [[0; ORDERS]; MigrateType::COUNT];
    free[MigrateType::Unmovable as usize][6] = 3;
    (free[MigrateType::Movable as usize][0], free[MigrateType::Movable as usize][9]) = (4096, 1);
    free[MigrateType::Movable as usize][10] = 7;
    let zone = ZoneCounts { node: NodeId(0), kind: ZoneKind::Normal, blocks, free, listed: vec![5, 3] };
    FrameMap { frames, zones: vec![zone] }
}

fn run(seed: u64, map: Option<&FrameMap>) -> (Finish, Extra) {
    let config = sim::Config { seed, held: Frames(100), ..machine(2, FRAMES) };
    let main = async |os: Sim| {
        let range = os.mmap(Bytes::mib(20), MapSpec::Anonymous).await.unwrap();
        os.store(range, Bytes::PAGE).await.unwrap();
    };
    let ((), finish, extra) = simulate_from(&config, Options::default(), map, no_entries, main);
    (finish, extra)
}

#[test]
fn the_same_map_and_seed_are_the_same_run() {
    let map = map();
    let (once, again, other) = (run(1, Some(&map)), run(1, Some(&map)), run(2, Some(&map)));
    assert_eq!(once, again);
    assert_ne!(once.0.hash, other.0.hash);
    assert_ne!(once.0.hash, run(1, None).0.hash, "memory that is all free is another run");
    let drawn = once.1.notes.iter().filter(|note| note.starts_with("drawn: ")).count();
    assert_eq!(drawn, 4, "{:?}", once.1.notes);
    assert_eq!(run(1, None).1.notes, [""; 0]);
}

#[test]
fn what_init_holds_is_part_of_a_map_already() {
    let faults = |map: Option<&FrameMap>| run(1, map).0.counters.get(Event::Pgfault);
    assert_eq!(faults(None), 5120 + 100);
    assert_eq!(faults(Some(&map())), 5120);
}

#[test]
#[should_panic(expected = "the map has room for the tables of what it says is mapped")]
fn a_map_without_memory_says_so() {
    run(1, Some(&FrameMap { frames: vec![Seen::Reserved; FRAMES as usize], zones: Vec::new() }));
}
