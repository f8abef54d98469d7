//! docs/compare-your-own.md: its files can be read, and its commands do what it says.
//!
//! In the place of its first run is the one that is recorded for the README, which is the same command. The other one runs with
//! one seed.

use std::{fs, path::Path};

use crate::support::room::Room;

const SHORT: usize = 60;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compare-your-own.md");
    fs::read_to_string(path).expect("the page")
}

/// The indented blocks, each with the paragraph before it.
fn blocks(page: &str) -> Vec<(String, String)> {
    let parts: Vec<&str> = page.split("\n\n").collect();
    let is_block = |part: &str| part.starts_with("    ");
    let unindented = |part: &str| part.lines().map(|line| format!("{}\n", line.trim_start())).collect::<String>();
    let pairs = parts.windows(2).filter(|pair| is_block(pair[1]) && !is_block(pair[0]));
    pairs.map(|pair| (pair[0].to_owned(), unindented(pair[1]))).collect()
}

/// Its commands, as arguments.
fn commands(page: &str) -> Vec<Vec<String>> {
    let line = |line: &str| line.split('#').next().unwrap_or_default().to_owned();
    let lines = page.lines().filter_map(|text| text.strip_prefix("    pagelab ")).map(line);
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

fn copy_recorded(to: &Path) {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/readme");
    fs::create_dir_all(to).expect("a directory");
    fs::copy(recorded.join("result.jsonl"), to.join("result.jsonl")).expect("result.jsonl");
    // The recorded run had no folder `mine` beside it, and keeps the series that it had. The page's run has that folder; a result
    // that keeps none is shown beside what is there.
    let text = fs::read_to_string(recorded.join("run.json")).expect("run.json");
    let mut identity: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let kept = identity.as_object_mut().expect("an object").remove("presentation");
    assert!(kept.is_some(), "the recorded run keeps what it is printed with");
    fs::write(to.join("run.json"), identity.to_string()).expect("run.json");
}

/// A room with the page's files and the recorded result.
fn room() -> Room {
    let (room, page) = (Room::new(), page());
    let folder = room.here().join("published/mine");
    fs::create_dir_all(&folder).expect("a directory");
    let mut written = Vec::new();
    for (before, text) in blocks(&page) {
        let Some((_, rest)) = before.rsplit_once("`published/mine/") else { continue };
        let name = rest.split('`').next().expect("a name").to_owned();
        // The last paragraph names a file that may be empty, and has commands below it.
        let text = if name == "rows.toml" { String::new() } else { text };
        fs::write(folder.join(&name), text).expect("written");
        written.push(name);
    }
    assert_eq!(written, ["source.toml", "table.csv", "claims.toml", "rows.toml"]);
    copy_recorded(&room.here().join("results/mine"));
    room
}

#[test]
fn own_numbers_stand_beside_a_run_and_judge_it() {
    let (room, commands) = (room(), commands(&page()));
    let words = |command: &[String]| command.join(" ");
    assert_eq!(words(&commands[0]), "run thpscale-4.1 --seeds 8 -o results/mine", "what is recorded");
    let text = room.run(&["show", "results/mine"]).expect(0).stdout;
    assert!(text.contains("\npublished (mine): me, 2026-11-25, "), "{text}");
    let row = text.lines().find(|line| line.starts_with("fault-base-3 ")).expect("a row");
    assert!(row.contains(" 3373 ") && row.ends_with(" 2950 -13%"), "{row}");
    for (command, expected) in
        [(&commands[1], "mine-1 holds"), (&commands[2], "direction"), (&commands[3], "thpscale-defrag-default,")]
    {
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let answer = room.run(&arguments).expect(0);
        let found = answer.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(found.contains(expected), "{arguments:?}: {}", answer.stdout);
    }
}

#[test]
fn patches_are_put_on_one_after_the_other() {
    let (room, commands) = (Room::new(), commands(&page()));
    let command: Vec<&str> = commands[4].iter().map(String::as_str).collect();
    let (option, seeds) = (command.len() - 2, command.len() - 1);
    assert_eq!(command[option..], ["--seeds", "8"]);
    let command = [&command[..seeds], &["1", "--quiet"]].concat();
    let text = room.run(&command).expect(0).stdout;
    for column in ["patch 1", " 1,2 ", " 1-3 ", " 1-4"] {
        assert!(text.contains(column), "{column} in\n{text}");
    }
}

#[test]
fn the_page_is_short() {
    assert!(page().lines().count() <= SHORT);
}
