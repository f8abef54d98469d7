//! Pages of docs/ whose commands, run in their order, print what stands below them.
//!
//! `PAGELAB_BLESS=why cargo test --release -p cli --test it pages` writes docs/why.md anew; so it is with the other
//! pages. Commands that take many runs are only typed then; `fork.rs` and `services.rs` ask the same of small machines.

use std::{fs, path::PathBuf};

use crate::support::room::Room;

/// The beginning of a line that is a command.
const COMMAND: &str = "    $ pagelab ";
/// Parts of commands that take many runs, or long ones.
const LONG: [&str; 7] =
    ["--inevitable", "--parting", "--seeds 8", "run kv-store", "run jvm", "run build-server", "run training"];
/// The line below what a command prints, where the page shows only the beginning.
const MORE: &str = "    [...]";

fn page(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/{name}.md"))
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

fn is_what_its_commands_print(name: &str) {
    let page = page(name);
    let text = fs::read_to_string(&page).expect("a page of docs/");
    let is_blessed = std::env::var("PAGELAB_BLESS").is_ok_and(|how| how == name);
    let anew = anew(&text, &Room::new(), is_blessed);
    if is_blessed {
        fs::write(&page, &anew).expect("a page of docs/");
    } else {
        assert_eq!(anew, text, "PAGELAB_BLESS={name} writes it anew");
    }
}

#[test]
fn the_page_on_why_shows_what_its_commands_print() {
    is_what_its_commands_print("why");
}

#[test]
fn the_page_on_services_shows_what_its_commands_print() {
    is_what_its_commands_print("services");
}

#[test]
fn the_page_on_machines_shows_what_its_commands_print() {
    is_what_its_commands_print("machines");
}
