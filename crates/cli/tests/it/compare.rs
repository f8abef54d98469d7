//! `pagelab compare`: two columns of a recorded result, results that have nothing in common, and conditions.

use std::path::Path;

use serde_json::Value;

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

/// One rule for tables and comparisons.
#[test]
fn a_table_of_a_result_has_the_stars_that_compare_gives() {
    let room = Room::new();
    let json = |command: &str| -> Value {
        let text = room.run(&[command, &readme(), "--format", "json"]).expect(0).stdout;
        serde_json::from_str(&text).expect("JSON")
    };
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let shown = list(&json("show")["report"]["tables"]).into_iter().flat_map(|table| {
        let rows = list(&table["rows"]);
        let of_column = |column: usize| rows.iter().map(move |row| row["cells"][column]["verdict"].clone());
        (0..list(&table["columns"]).len()).flat_map(of_column).collect::<Vec<Value>>()
    });
    let shown: Vec<Value> = shown.filter(|verdict| !verdict.is_null()).collect();
    let compared = list(&json("compare")["comparison"]["rows"]);
    let compared: Vec<Value> = compared.iter().map(|row| row["verdict"].clone()).collect();
    assert_eq!(shown, compared);
    assert!(compared.contains(&"better".into()) && compared.contains(&"cannot_tell".into()));
    let text = room.run(&["show", &readme()]).expect(0).stdout;
    assert!(!text.contains('~') && text.contains("* separated (Holm over metrics"), "{text}");
}
