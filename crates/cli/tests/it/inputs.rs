//! Files as users have them (recordings/inputs, made up: each folder stands for a kind): each gives what is right for its kind,
//! or the sentence that says why not.

use std::path::Path;

use crate::support::room::Room;

fn input(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/inputs").join(name).display().to_string()
}

fn imported(name: &str) -> String {
    Room::new().run(&["machine", "import", "--from", &input(name)]).expect(0).stdout
}

#[test]
fn inputs_may_be_nodes_without_memory_which_allocate_from_the_nearest() {
    let text = imported("memoryless");
    assert_eq!(text.matches("[[node]]").count(), 4, "{text}");
    assert_eq!(text.matches("memory = \"0B\"").count(), 2, "{text}");
    let room = Room::new();
    let machine = room.give("four.toml", &text);
    let line = [
        "run",
        "fault-storm",
        "--target",
        "sim",
        "--machine",
        &machine,
        "--variant",
        "v5.4",
        "--set",
        "tasks=2",
        "--set",
    ];
    let more = ["page=base", "--set", "size=2MiB", "--quiet", "-o", "R"];
    room.run(&line.iter().chain(&more).copied().collect::<Vec<_>>()).expect(0);
}

#[test]
fn inputs_may_be_nodes_of_movable_memory_alone() {
    let room = Room::new();
    let machine = input("movable-only-node/cxl.toml");
    let line = [
        "run",
        "fault-storm",
        "--target",
        "sim",
        "--machine",
        &machine,
        "--variant",
        "v6.6",
        "--set",
        "tasks=1",
        "--set",
    ];
    let more = ["page=base", "--set", "size=2MiB", "--set", "policy=bind:1", "--quiet", "-o", "R"];
    room.run(&line.iter().chain(&more).copied().collect::<Vec<_>>()).expect(0);
}
