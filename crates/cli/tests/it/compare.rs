//! `pagelab compare`: two columns of a recorded result, results that have nothing in common, and conditions.

use std::path::Path;

use crate::support::room::Room;

fn recorded(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(name).display().to_string()
}

fn readme() -> String {
    recorded("docs/readme")
}

#[test]
fn columns_of_a_result_are_compared_with_its_first() {
    let room = Room::new();
    let text = room.run(&["compare", &readme()]).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 72), "{text}");
    let row = text.lines().find(|line| line.starts_with("Amean fault-base-3 ")).expect("a row");
    assert!(row.contains('*') && row.ends_with("better"), "{row}");
    assert!(text.contains("runs of each: 8 and 8"), "{text}");
    let sorted = room.run(&["compare", &readme(), "--sort", "--format", "csv"]).expect(0).stdout;
    let verdicts: Vec<&str> = sorted.lines().skip(1).filter_map(|line| line.rsplit(',').next()).collect();
    assert_eq!(verdicts[0], "worse", "the worst is first");
    let last_worse = verdicts.iter().rposition(|verdict| *verdict == "worse").expect("one");
    assert!(verdicts[..last_worse].iter().all(|verdict| *verdict == "worse"));
}

#[test]
fn a_result_is_the_same_as_itself() {
    let room = Room::new();
    let text = room.run(&["compare", &readme(), &readme(), "--format", "csv"]).expect(0).stdout;
    let verdicts: Vec<&str> = text.lines().skip(1).filter_map(|line| line.rsplit(',').next()).collect();
    assert!(
        verdicts.len() > 100 && verdicts.iter().all(|verdict| ["same", "one run"].contains(verdict)),
        "{verdicts:?}"
    );
}

#[test]
fn a_change_beyond_a_bound_is_status_3() {
    let room = Room::new();
    let run = |condition: &str| room.run(&["compare", &readme(), "--fail-on", condition]).status.code();
    assert_eq!(run("amean:fault-base-3>5%"), Some(3));
    assert_eq!(run("amean:fault-base-3>500%"), Some(0));
    assert_eq!(run("amean:fault-bse-3>5%"), Some(2));
    assert_eq!(run("amean"), Some(2));
}

#[test]
fn what_does_not_compare_is_one_message() {
    let room = Room::new();
    let other = recorded("crates/cli/tests/it/s3-autonumabench");
    let columns = readme();
    for (arguments, expected) in [
        (vec![columns.as_str(), other.as_str()], "no experiment in common"),
        (vec![columns.as_str(), "nowhere"], "is not a result directory"),
        (vec![columns.as_str(), "--against", "4.1-rc2+9"], "unknown column"),
        (vec![columns.as_str(), "--seeds", "90-91"], "no seed"),
    ] {
        let answer = room.run(&[&["compare"][..], &arguments].concat()).expect(2).says(&[expected]);
        assert!(answer.stderr.lines().count() == 1 && answer.stdout.is_empty(), "{answer:?}");
    }
}

#[test]
fn a_ladder_climbs_rules_and_goes_on_where_it_stopped() {
    let room = Room::new();
    let command = [
        "ladder",
        "v4.16..v4.17",
        "--rules",
        "--workload",
        "fault-storm",
        "--machines",
        "one-node-512m",
        "--set",
        "size=16MiB",
        "--set",
        "iterations=1",
        "--set",
        "page=huge",
        "--seeds",
        "2",
    ];
    let first = room.run(&command).expect(0);
    assert!(first.stdout.lines().all(|line| line.chars().count() <= 72), "{}", first.stdout);
    assert!(first.stdout.contains("changes are from the rung above"), "{}", first.stdout);
    let again = room.run(&command).expect(0).says(&["resuming"]);
    assert_eq!(again.stdout, first.stdout);
    room.run(&["ladder", "v4.1-rc2", "+9", "-w", "fault-storm"]).expect(2).says(&["unknown step \"+9\""]);
    room.run(&["noise", &readme(), "--format", "csv"]).expect(0);
}
