//! The arithmetic of zones against kernels: what ours computes from pages, CPUs and settings is what they print.

use lab::arithmetic::{LiveState, Phase, ZoneComparison};
use report::{RESULT_FILE, Target};

use crate::support::{
    TINY,
    document::{Document, forget_checksums},
    guests,
    room::Room,
    skip, words,
};

#[test]
fn vm_one_node_512m() {
    check("vm_one_node_512m", "one-node-512m", &["0 DMA", "0 DMA32"]);
}

#[test]
fn vm_two_node_2g() {
    check("vm_two_node_2g", "two-node-2g", &["0 DMA", "0 DMA32", "1 DMA32"]);
}

#[test]
fn vm_one_node_4g() {
    check("vm_one_node_4g", "one-node-4g", &["0 DMA", "0 DMA32", "0 Normal"]);
}

#[test]
fn vm_four_node_2g() {
    check("vm_four_node_2g", "four-node-2g", &["0 DMA", "0 DMA32", "1 DMA32", "2 DMA32", "3 DMA32"]);
}

#[test]
fn vm_node_without_memory() {
    let room = Room::new();
    let node = |id: u32, memory: &str, distance: &str| {
        format!("[[node]]\nid = {id}\nmemory = \"{memory}\"\ncpus = \"{id}\"\ndistance = {distance}\n")
    };
    let nodes = [node(0, "1GiB", "[10, 20, 30]"), node(1, "0B", "[20, 10, 20]"), node(2, "1GiB", "[30, 20, 10]")];
    let machine = room.give("middle.toml", format!("about = \"no memory in the middle\"\n{}", nodes.concat()));
    let booted = check_in(&room, "vm_node_without_memory", &machine, &["0 DMA", "0 DMA32", "2 DMA32"]);
    if booted {
        let cells = std::fs::read_to_string(room.here().join("result").join(RESULT_FILE)).expect("the result");
        assert!(cells.contains("Node 1, zone    DMA32\\n  pages free     0\\n"), "the node is there, and empty");
    }
}

/// Boots a machine whose zones with pages must be these, and compares.
fn check(name: &str, machine: &str, populated: &[&str]) {
    check_in(&Room::new(), name, machine, populated);
}

/// Boots a machine whose zones with pages must be these, and compares; the result is in the room. Whether guests run here.
fn check_in(room: &Room, name: &str, machine: &str, populated: &[&str]) -> bool {
    let Some(_turn) = guests::turn(name) else { return false };
    let target = ["run", "fault-storm", "--target", "vm", "--accel", "tcg", "--machine", machine, "--format", "json"];
    let answer = room.run(&words(&[&target, &TINY, &["-o", "result"]])).expect(0);
    let document = Document::parse(&answer.stdout);
    assert_eq!(document.problems, [""; 0]);
    let [system] = document.systems.as_slice() else { panic!("{} systems", document.systems.len()) };
    assert!(system.release.starts_with("6.1."), "{}", system.release);
    let boot_s = system.run.boot_s.expect("the time to the first operation");
    assert!(boot_s > 0.0, "{boot_s}");

    let recomputed = document.zones_of(Target::Vm, Phase::Recomputed);
    let with_pages: Vec<_> = recomputed.zones.iter().filter(|zone| zone.managed.0 > 0).collect();
    let names: Vec<_> = with_pages.iter().map(|zone| format!("{} {}", zone.node, zone.kind.name())).collect();
    assert_eq!(names, populated);
    assert!(recomputed.zones.len() > populated.len(), "zones without pages are compared too");
    for zone in with_pages {
        assert!(zone.kernel.marks.min.0 > 0 && zone.kernel.marks.high.0 > 0, "{zone:?}");
        assert!(zone.kernel.pcp_batch.is_some() && zone.kernel.pcp_high.is_some(), "{zone:?}");
        assert!(zone.kernel.protection.len() > 1, "{zone:?}");
    }
    assert_equal(recomputed);
    for phase in [Phase::Recomputed, Phase::Booted] {
        let min_free = document.zones_of(Target::Vm, phase).min_free_kbytes;
        assert!(min_free.within && min_free.difference_percent.abs() <= 2.5, "{phase:?}: {min_free:?}");
        assert!(min_free.kernel_kib > 1000, "{phase:?}: {min_free:?}");
    }
    assert_one_page_shows(room, recomputed);
    room.assert_nothing_left("a run");
    true
}

/// Every figure, one by one: not only by the verdict of the code under test.
fn assert_equal(zones: &ZoneComparison) {
    for zone in &zones.zones {
        let name = format!("node {} {}", zone.node, zone.kind.name());
        assert_eq!(zone.kernel.marks, zone.ours.marks, "{name}");
        assert_eq!(zone.kernel.protection, zone.ours.protection, "{name}");
        assert_eq!(zone.kernel.pcp_batch, zone.ours.pcp_batch, "{name}");
        assert_eq!(zone.kernel.pcp_high, zone.ours.pcp_high, "{name}");
        assert_eq!(zone.mismatches, [], "{name}");
    }
}

/// The control: one page more in what the kernel printed, and the comparison says which figure differs.
fn assert_one_page_shows(room: &Room, zones: &ZoneComparison) {
    let low = zones.zones.iter().rfind(|zone| zone.managed.0 > 0).expect("a zone with pages").kernel.marks.low.0;
    let file = room.here().join("result").join(RESULT_FILE);
    let text = std::fs::read_to_string(&file).expect("the result");
    let (printed, changed) = (format!(r"\n        low      {low}\n"), format!(r"\n        low      {}\n", low + 1));
    assert!(text.contains(&printed), "the kernel printed {printed:?}");
    std::fs::write(&file, text.replace(&printed, &changed)).expect("the result, changed");
    forget_checksums(&room.here().join("result"));
    let answer = room.run(&["show", "result", "--format", "json"]).expect(0);
    let document = Document::parse(&answer.stdout);
    let mismatches: Vec<_> = document.zones_of(Target::Vm, Phase::Recomputed).mismatches().collect();
    assert!(!mismatches.is_empty(), "a page more went unnoticed");
    for (_, mismatch) in mismatches {
        assert_eq!((mismatch.figure.as_str(), mismatch.kernel.map(|low| low.0)), ("low", Some(low + 1)));
    }
}

#[test]
fn zones_of_this_machine_are_equal() {
    let room = Room::new();
    let answer = room.run(&words(&[&["run", "fault-storm", "--target", "host", "--format", "json"], &TINY])).expect(0);
    let document = Document::parse(&answer.stdout);
    if let Some(problem) = document.problems.first() {
        return skip("zones_of_this_machine_are_equal", problem);
    }
    let live = document.zones_of(Target::Host, Phase::Live);
    assert!(live.zones.iter().any(|zone| zone.managed.0 > 0));
    assert_equal(live);
    for zone in &live.zones {
        let outside = zone.live_high.iter().find(|high| high.state == LiveState::Outside);
        assert_eq!(outside, None, "node {} {}: {:?}", zone.node, zone.kind.name(), zone.kernel.pcp_high);
    }
}
