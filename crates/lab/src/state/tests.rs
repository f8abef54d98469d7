//! States of memory: a loaded state is held to the kernel's own counts, and damaged files are refused.

use std::collections::BTreeMap;

use linux::procfs::{buddyinfo, pagetypeinfo};
use memory::pageblock::MigrateType;
use mm::{
    Mm,
    whole::{
        check::{self, Owners},
        state::{Draw, Drawn, Seen},
    },
};
use units::{Frames, Order};

use super::*;
use crate::{recordings::recording, simulated};

/// Marsaglia's xorshift64, for tests and as draws.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

impl Draw for Xorshift {
    fn below(&mut self, bound: u64, _: Drawn) -> u64 {
        self.next() % bound
    }
}

/// States of 6.1 guests of 512 MiB and 4 GiB: before their first cell, and after several; with the frames of each.
const RECORDINGS: [(&str, u64); 3] =
    [("6.1-1n-512m-booted", 131_072), ("6.1-1n-512m-used", 131_072), ("6.1-1n-4g-booted", 1_310_720)];

fn recorded(name: &str) -> PathBuf {
    recording(&format!("state/{name}.state"))
}

fn bytes() -> Vec<u8> {
    fs::read(recorded(RECORDINGS[0].0)).unwrap()
}

#[test]
fn a_kernels_memory_is_taken_over_as_the_kernel_counts_it() {
    for (name, seed) in RECORDINGS.into_iter().flat_map(|(name, _)| [1, 2, 3].map(|seed| (name, seed))) {
        let state = State::load(&recorded(name)).unwrap();
        assert!(state.stood_still);
        let machine = state.machine("recorded");
        let spec = simulated::spec(&machine).unwrap();
        state.check_machine(&spec).unwrap();
        let variant = *rules::variant::named("v6.1");
        let settings = simulated::settings(&machine, &spec.view(), &variant).unwrap();
        let map = state.frame_map(spec.end()).unwrap();
        let loaded = Mm::from_map(&spec, variant, &settings, &map, &mut Xorshift(seed)).unwrap();
        check::walk(&loaded.mm).unwrap();
        check::walk_owners(&loaded.mm, &Owners { spaces: vec![&loaded.init], controls: Vec::new() }).unwrap();
        counts_are_equal(&state, &loaded.mm);
        let anon = map.frames.iter().filter(|seen| matches!(seen, Seen::Anon(_))).count();
        let shmem = map.frames.iter().filter(|seen| matches!(seen, Seen::Shmem(_))).count();
        // Tails of huge pages are anonymous too.
        assert!(loaded.init.rss_pages() >= (anon + shmem) as u64, "{name}: {anon} + {shmem}");
        assert!(anon > 200 && shmem > 2000, "{name}: {anon}, and {shmem} of what the archive held");
        let tables = map.frames.iter().filter(|seen| **seen == Seen::PageTable).count();
        assert_eq!(loaded.mm.gauges()[0].1, tables as u64, "{name}");
        assert_eq!(loaded.notes.iter().filter(|note| note.starts_with("drawn: ")).count(), 4);
        assert!(!loaded.notes.iter().any(|note| note.contains("not as the kernel counts")), "{:?}", loaded.notes);
    }
}

/// Every number that the kernel's own files have.
fn counts_are_equal(state: &State, mm: &Mm) {
    let snapshot = state.snapshot().unwrap();
    let buddy = buddyinfo::parse(state.capture.text("buddyinfo").unwrap()).unwrap();
    let types = pagetypeinfo::parse(state.capture.text("pagetypeinfo").unwrap()).unwrap();
    for (index, zone) in mm.memory.zones().iter().enumerate() {
        let here = |node, name: &str| node == zone.node && name == zone.kind.name();
        let kernel = snapshot.zones.iter().find(|kernel| here(kernel.node, &kernel.name)).unwrap();
        assert_eq!(zone.managed, kernel.managed.0);
        // Each CPU folds its own count into this one now and then: a kernel of two CPUs is off by less than a few batches.
        assert!(zone.free_frames().abs_diff(kernel.free.0) < 100, "{}: {}", zone.kind, kernel.free);
        let managed =
            (zone.start.0..zone.end.0).filter(|pfn| mm.memory.frames.get(Pfn(*pfn)) != memory::frame::Frame::Reserved);
        assert_eq!(Frames(managed.count() as u64), kernel.managed, "what is not reserved is managed");
        let listed: Vec<_> = zone.cpu_lists().iter().map(|pcp| u64::from(pcp.count())).collect();
        assert_eq!(listed, kernel.pagesets.iter().map(|set| set.count.0).collect::<Vec<_>>());
        let orders = || (0..=10).map(Order);
        let free = buddy.iter().find(|line| here(line.node, &line.zone)).unwrap();
        assert_eq!(orders().map(|order| zone.nr_free(order)).collect::<Vec<_>>(), free.free);
        let list = |name: &str| MigrateType::ALL.into_iter().find(|list| format!("{list:?}") == name).unwrap();
        for line in types.free.iter().filter(|line| here(line.node, &line.zone)) {
            let list = list(&line.migrate_type);
            let ours: Vec<_> = orders().map(|order| u64::from(zone.free_list(order, list).len())).collect();
            assert_eq!(ours, line.free, "{} {list:?}", zone.kind);
        }
        let mut blocks = BTreeMap::new();
        let first = zone.start.align_down(Order::HUGE).0;
        for block in (first..zone.end.0).step_by(512).map(Pfn) {
            if mm.memory.frames.blocks.zone(block).is_some_and(|of| usize::from(of.0) == index) {
                *blocks.entry(mm.memory.frames.blocks.migrate_type(block)).or_insert(0) += 1;
            }
        }
        let kernels = types.blocks.iter().find(|line| here(line.node, &line.zone)).unwrap();
        for (name, count) in &kernels.blocks {
            assert_eq!(blocks.get(&list(name)).copied().unwrap_or(0), *count, "{} {name}", zone.kind);
        }
    }
}

#[test]
fn a_file_says_what_the_state_was() {
    for (name, frames) in RECORDINGS {
        let state = State::load(&recorded(name)).unwrap();
        let again = State::from_bytes("x.state", &state.to_bytes()).unwrap();
        assert_eq!(again, state);
        assert_eq!(again.hash(), state.hash());
        assert_eq!(state.frames(), frames);
        let text = text(&recorded(name)).unwrap();
        assert!(text.starts_with(&format!("state {}\nLinux 6.1.0-", state.hash())), "{text}");
        assert_eq!(state.kinds().map(|(_, frames)| frames).sum::<u64>(), frames);
    }
}

#[test]
fn damage_is_refused_with_the_place() {
    let intact = bytes();
    let error = |bytes: &[u8]| State::from_bytes("x.state", bytes).unwrap_err().to_string();
    assert_eq!(error(b"[[node]]\n"), "x.state: byte 0: expected \"pagelab state 1\"");
    assert_eq!(error(&intact[..60]), "x.state: byte 16: expected a hash of 64 digits");
    let cut = error(&intact[..intact.len() / 2]);
    assert!(
        cut.starts_with("x.state: byte ") && cut.contains(": the compressed part is damaged or cut off: "),
        "{cut}"
    );
    let mut other = intact.clone();
    other[20] = if other[20] == b'0' { b'1' } else { b'0' };
    assert!(error(&other).starts_with("x.state: byte 16: expected the hash of what follows, "), "{}", error(&other));

    // A file with a right hash may still say nonsense.
    let packed = |payload: &[u8]| {
        let mut bytes = format!("{MAGIC}{}\n", blake3::hash(payload).to_hex()).into_bytes();
        let mut encoder = ZlibEncoder::new(&mut bytes, Compression::fast());
        encoder.write_all(payload).unwrap();
        encoder.finish().unwrap();
        bytes
    };
    let mut payload = State::from_bytes("x.state", &intact).unwrap().payload();
    let end = payload.len();
    payload.extend([0, 0, 0]);
    let what = format!("x.state: byte {end} of what is compressed: a run of no frames");
    assert_eq!(error(&packed(&payload)), what);
    payload[0] ^= 0x80;
    assert!(error(&packed(&payload)).starts_with("x.state: byte 8 of what is compressed: "));
    payload[7] = 0xff;
    assert_eq!(error(&packed(&payload)), "x.state: byte 0 of what is compressed: expected a length that fits");
    let mut state = State::from_bytes("x.state", &intact).unwrap();
    state.capture.texts.remove("zoneinfo");
    let what = "x.state: byte 8 of what is compressed: zoneinfo is not in this capture";
    assert_eq!(error(&state.to_bytes()), what);
}

#[test]
fn random_damage_is_refused_and_never_a_panic() {
    let (intact, mut random) = (bytes(), Xorshift(4711));
    let mut accepted = 0;
    for _ in 0..3000 {
        let mut bytes = intact.clone();
        for _ in 0..=random.index(3) {
            let at = random.index(bytes.len());
            match random.index(4) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes.insert(at, random.next().to_le_bytes()[0]),
                2 => drop(bytes.remove(at)),
                _ => bytes[at] ^= 1 << random.index(8),
            }
            bytes.push(0);
        }
        accepted += usize::from(State::from_bytes("x", &bytes).is_ok_and(|state| state.hash() != recorded_hash()));
    }
    assert_eq!(accepted, 0, "what differs has another hash");
}

fn recorded_hash() -> String {
    String::from_utf8(bytes()[MAGIC.len()..][..DIGITS].to_vec()).unwrap()
}

#[test]
fn another_machine_is_refused() {
    let state = State::load(&recorded(RECORDINGS[0].0)).unwrap();
    let other = Machine::load("two-node-2g", &linux::setting::names()).unwrap();
    let error = state.check_machine(&simulated::spec(&other).unwrap()).unwrap_err();
    assert_eq!(error, "its zones are not those of the machine");
}

#[test]
fn old_kernels_say_too_little() {
    let mut state = State::load(&recorded(RECORDINGS[0].0)).unwrap();
    let version = state.capture.texts["version"].replace("6.1.0", "4.5.0");
    state.capture.texts.insert("version".to_owned(), version);
    let error = state.frame_map(Pfn(4096)).unwrap_err();
    assert!(error.ends_with("marks only the first frame of a free block"), "{error}");
}
