//! docs/why.md: each command of the page, run in their order, prints what stands below it.
//!
//! `PAGELAB_BLESS=why cargo test --release -p cli --test it why_page` writes the page anew. Commands that take many runs are only
//! typed then; `fork.rs` asks the same of a small machine.

use std::{fs, path::PathBuf};

use crate::support::room::Room;

/// The beginning of a line that is a command.
const COMMAND: &str = "    $ pagelab ";
/// Options that take many runs.
const LONG: [&str; 2] = ["--inevitable", "--parting"];
/// The line below what a command prints, where the page shows only the beginning.
const MORE: &str = "    [...]";

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/why.md")
}

/// A line of a page, indented as what is printed.
fn indented(line: &str) -> String {
    if line.trim().is_empty() { String::new() } else { format!("    {}", line.trim_end()) }
}

/// The page with what its commands print in place of what stands below them. Of a command that is followed by `[...]`, as many
/// lines are shown as before; a command without lines below it shows none.
fn anew(text: &str, room: &Room, types_long: bool) -> String {
    let mut lines = text.lines().peekable();
    let mut out: Vec<String> = Vec::new();
    while let Some(line) = lines.next() {
        out.push(line.to_owned());
        let Some(command) = line.strip_prefix(COMMAND) else { continue };
        let mut command = command.trim_end().to_owned();
        while let Some(longer) = command.strip_suffix('\\') {
            let next = lines.next().expect("a command goes on");
            command = longer.to_owned() + next.trim();
            out.push(next.to_owned());
        }
        if !types_long && LONG.iter().any(|long| command.contains(long)) {
            continue;
        }
        let printed = room.run(&command.split_whitespace().collect::<Vec<_>>()).expect(0).stdout;
        let mut shown: Vec<&str> = Vec::new();
        while let Some(below) = lines.next_if(|line| line.starts_with("    ") || line.is_empty()) {
            if below.starts_with(COMMAND) {
                unreachable!("a paragraph stands between two commands");
            }
            shown.push(below);
        }
        let printed: Vec<String> = printed.lines().map(indented).collect();
        match shown.iter().position(|line| *line == MORE) {
            Some(lines) => out.extend(printed.into_iter().take(lines).chain([MORE.to_owned(), String::new()])),
            None if shown.iter().all(|line| line.is_empty()) => out.extend(shown.iter().map(|line| (*line).to_owned())),
            None => out.extend(printed.into_iter().chain([String::new()])),
        }
    }
    out.join("\n").trim_end().to_owned() + "\n"
}

#[test]
fn the_page_shows_what_its_commands_print() {
    let text = fs::read_to_string(page()).expect("docs/why.md");
    let is_blessed = std::env::var("PAGELAB_BLESS").is_ok_and(|how| how == "why");
    let anew = anew(&text, &Room::new(), is_blessed);
    if is_blessed {
        fs::write(page(), &anew).expect("docs/why.md");
    } else {
        assert_eq!(anew, text, "PAGELAB_BLESS=why writes it anew");
    }
}
