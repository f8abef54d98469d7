//! The table of files at the head of `mm`: each file of the folder is in it, what it names is there, and what it calls left out
//! is not.

use std::collections::BTreeSet;

use super::{Finding, tree};

/// Where the table stands.
pub(super) const TABLE: &str = "crates/mm/src/lib.rs";
/// The folder that the table is of.
const FOLDER: &str = "crates/mm/src/";

/// Compares the second column of the table in `text` with `files`, paths relative to the workspace. A file is named itself, or
/// by a folder that it is in (`compact/`). Tests need no row.
pub(super) fn check(text: &str, files: &[String]) -> Vec<Finding> {
    let here: BTreeSet<&str> = files.iter().filter_map(|path| path.strip_prefix(FOLDER)).collect();
    let named = names(text);
    let mut findings = Vec::new();
    for (line, name) in &named {
        let is_there = here.contains(name) || (name.ends_with('/') && here.iter().any(|file| file.starts_with(name)));
        if !is_there {
            findings.push(Finding::new(TABLE, *line, format!("the table names `{name}`, which is not in {FOLDER}")));
        }
    }
    let has_row =
        |file: &&str| named.iter().any(|(_, name)| name == file || (name.ends_with('/') && file.starts_with(name)));
    for file in here.iter().filter(|file| **file != "lib.rs" && !tree::is_test(file)) {
        if !has_row(file) {
            findings.push(Finding::new(TABLE, 1, format!("the table of files lacks `{file}`, or its folder")));
        }
    }
    findings.extend(text.lines().enumerate().flat_map(|(at, line)| found_after_all(at + 1, line, &here)));
    findings
}

/// Words of a row's last column that are names of files in a folder of the row: such a mechanism is there by now.
fn found_after_all(line: usize, row: &str, here: &BTreeSet<&str>) -> Vec<Finding> {
    let columns: Vec<&str> = row.strip_prefix("//! |").map_or_else(Vec::new, |row| row.split('|').collect());
    let [_, files, left_out, ..] = columns.as_slice() else { return Vec::new() };
    let folders: Vec<&str> = files.split('`').skip(1).step_by(2).filter(|name| name.ends_with('/')).collect();
    let words = left_out.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_lowercase);
    let mut findings = Vec::new();
    for word in words.filter(|word| !word.is_empty()) {
        let end = format!("/{word}.rs");
        if let Some(file) =
            here.iter().find(|file| file.ends_with(&end) && folders.iter().any(|it| file.starts_with(it)))
        {
            findings.push(Finding::new(TABLE, line, format!("the table leaves out {word}, and `{file}` is there")));
        }
    }
    findings
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
        let mut files: Vec<String> = files.iter().map(|file| format!("{FOLDER}{file}")).collect();
        files.push("crates/sim/src/clock.rs".to_owned());
        let findings: Vec<String> = check(text, &files).iter().map(ToString::to_string).collect();
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
