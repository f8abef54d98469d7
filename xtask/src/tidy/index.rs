//! The table of files at the head of a crate of the memory manager: each file of the crate is in it, what it names is there, and
//! what it calls left out is not.

use std::collections::BTreeSet;

use super::{Finding, tree};

/// Returns where the table of a crate stands.
pub(super) fn table(krate: &str) -> String {
    format!("{}lib.rs", folder(krate))
}

/// Returns the folder that the table of a crate is of.
fn folder(krate: &str) -> String {
    format!("crates/{krate}/src/")
}

/// Compares the second column of the crate's table in `text` with `files`, paths relative to the workspace. A file is named
/// itself, or by a folder that it is in (`compact/`). Tests need no row.
pub(super) fn check(krate: &str, text: &str, files: &[String]) -> Vec<Finding> {
    let (folder, table) = (folder(krate), table(krate));
    let here: BTreeSet<&str> = files.iter().filter_map(|path| path.strip_prefix(&folder)).collect();
    let named = names(text);
    let mut findings = Vec::new();
    for (line, name) in &named {
        let is_there = here.contains(name) || (name.ends_with('/') && here.iter().any(|file| file.starts_with(name)));
        if !is_there {
            findings.push(Finding::new(&table, *line, format!("the table names `{name}`, which is not in {folder}")));
        }
    }
    let has_row =
        |file: &&str| named.iter().any(|(_, name)| name == file || (name.ends_with('/') && file.starts_with(name)));
    for file in here.iter().filter(|file| **file != "lib.rs" && !tree::is_test(file)) {
        if !has_row(file) {
            findings.push(Finding::new(&table, 1, format!("the table of files lacks `{file}`, or its folder")));
        }
    }
    for (at, row) in text.lines().enumerate() {
        let messages = found_after_all(row, &here).into_iter();
        findings.extend(messages.map(|message| Finding::new(&table, at + 1, message)));
    }
    findings
}

/// Words of a row's last column that are names of files in a folder of the row: such a mechanism is there by now.
fn found_after_all(row: &str, here: &BTreeSet<&str>) -> Vec<String> {
    let columns: Vec<&str> = row.strip_prefix("//! |").map_or_else(Vec::new, |row| row.split('|').collect());
    let [_, files, left_out, ..] = columns.as_slice() else { return Vec::new() };
    let folders: Vec<&str> = files.split('`').skip(1).step_by(2).filter(|name| name.ends_with('/')).collect();
    let words = left_out.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_lowercase);
    let mut messages = Vec::new();
    for word in words.filter(|word| !word.is_empty()) {
        let end = format!("/{word}.rs");
        if let Some(file) =
            here.iter().find(|file| file.ends_with(&end) && folders.iter().any(|it| file.starts_with(it)))
        {
            messages.push(format!("the table leaves out {word}, and `{file}` is there"));
        }
    }
    messages
}

/// All that stands in backticks in the second column, with its line.
fn names(text: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some(column) = line.strip_prefix("//! |").and_then(|row| row.split('|').nth(1)) else {
            continue;
        };
        let quoted = column.split('`').skip(1).step_by(2);
        names.extend(quoted.map(|name| (at + 1, name)));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_folder_agree() {
        let text = "\
//! | Linux        | here                   | left out |
//! |--------------|------------------------|----------|
//! | `mm/a.c`     | `a.rs`, `a/`           | `b.rs`   |
//! | `mm/gone.c`  | `gone.rs`, `empty/`    |          |
//! | `mm/d.c`     | `a/`                   | shallow, Deep things |
";
        let files = ["lib.rs", "a.rs", "a/deep.rs", "a/deep/er.rs", "b.rs", "b/tests.rs", "b/tests/c.rs", "b/d.rs"];
        let mut files: Vec<String> = files.iter().map(|file| format!("{}{file}", folder("mm"))).collect();
        files.push("crates/sim/src/clock.rs".to_owned());
        let findings: Vec<String> = check("mm", text, &files).iter().map(ToString::to_string).collect();
        assert_eq!(
            findings,
            [
                "crates/mm/src/lib.rs:4: the table names `gone.rs`, which is not in crates/mm/src/",
                "crates/mm/src/lib.rs:4: the table names `empty/`, which is not in crates/mm/src/",
                "crates/mm/src/lib.rs:1: the table of files lacks `b.rs`, or its folder",
                "crates/mm/src/lib.rs:1: the table of files lacks `b/d.rs`, or its folder",
                "crates/mm/src/lib.rs:5: the table leaves out deep, and `a/deep.rs` is there",
            ]
        );
    }
}
