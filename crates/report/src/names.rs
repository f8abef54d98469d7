//! Names in places that do not take every letter: files, and lines of messages.
//!
//! Different names have different files. What a file's name cannot have is folded, and what tells folded names apart is a number,
//! where all names are known, or a hash.

use std::{collections::BTreeSet, fmt::Display};

use crate::record::{Column, Key};

/// Bytes of a name that a file's name keeps; what is put around it fits into NAME_MAX, 255 (include/uapi/linux/limits.h, v6.1).
const KEPT_MAX: usize = 120;
/// Digits of the hash in the name of a cell's file.
const DIGITS: usize = 8;
/// Letters of a parser's message that are shown.
const BRIEF_MAX: usize = 200;

/// The name as part of a file's name: two names may be folded to one.
fn folded(name: &str) -> String {
    let is_kept = |letter: char| letter.is_ascii_alphanumeric() || "._+-=:".contains(letter);
    let mut folded: String = name.chars().take(KEPT_MAX).map(|c| if is_kept(c) { c } else { '_' }).collect();
    // A name of dots leads elsewhere, and a name with one in front is not seen.
    if folded.is_empty() || folded.starts_with('.') {
        folded.replace_range(..folded.len().min(1), "_");
    }
    folded
}

/// A file name for each of these names, no two of them alike: of two names that would give the same file name, the second gets a
/// number.
pub fn file_names<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Vec<String> {
    let mut given = BTreeSet::new();
    let distinct = |name: N| {
        let first = folded(name.as_ref());
        let numbered = (2_u64..).map(|number| format!("{first}_{number}"));
        let name = std::iter::once(first.clone()).chain(numbered).find(|name| !given.contains(name));
        let name = name.expect("one of more numbers than names");
        given.insert(name.clone());
        name
    };
    names.into_iter().map(distinct).collect()
}

/// The name of a file of a cell, without its extension, in a directory with files of other cells of the run. The column is that
/// of the cell, or that of the real kernel whose twin the cell's is.
pub fn file_name_of_cell(column: &Column, key: &Key) -> String {
    let Key { experiment, group, workload, case, params, seed, .. } = key;
    let Column { target, kernel, machine, .. } = column;
    let told = (target, kernel, machine, (experiment, group, workload), case, params, seed);
    let told = serde_json::to_vec(&told).expect("parts of a key serialise");
    let hash = &blake3::hash(&told).to_hex()[..DIGITS];
    format!("{}-{seed}-{hash}", folded(&format!("{machine}-{kernel}-{case}")))
}

/// A message of a parser as a part of a line: parsers repeat what they have read, however long it is.
pub fn brief(message: impl Display) -> String {
    let message = message.to_string();
    let mut letters = message.trim_end().char_indices();
    let cut = letters.by_ref().nth(BRIEF_MAX).map(|(at, _)| at);
    let is_over = letters.next().is_some();
    let shown = cut.filter(|_| is_over).map_or(message.trim_end(), |at| &message[..at]);
    let plain: String = shown.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if is_over { format!("{plain}…") } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Target;

    fn key(kernel: &str, machine: &str, case: &str, params: &[(&str, &str)]) -> Key {
        Key {
            result: None,
            experiment: "e".into(),
            group: None,
            workload: "w".into(),
            case: case.into(),
            params: params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            variant: kernel.into(),
            machine: machine.into(),
            state: "fresh".into(),
            target: Target::Sim,
            kernel: kernel.into(),
            seed: 1,
            program: "p".into(),
        }
    }

    #[test]
    fn names_that_fold_together_have_different_files() {
        let all = ["a b", "a_b", "a_b_2", "a/b", "a b", "v6.1", "..", ".", "", "_"];
        let expected = ["a_b", "a_b_2", "a_b_2_2", "a_b_3", "a_b_4", "v6.1", "_.", "_", "__2", "__3"];
        assert_eq!(file_names(all), expected);
        assert!(file_names(["x".repeat(500), "x".repeat(501)]).iter().all(|name| name.len() < 200));
    }

    #[test]
    fn every_cell_of_a_run_has_a_file_of_its_own() {
        let keys = [
            key("x-y", "m", "c-1", &[]),
            key("y", "m-x", "c-1", &[]),
            key("x y", "m", "c-1", &[]),
            key("x_y", "m", "c-1", &[]),
            key("x-y", "m", "c-1", &[("size", "1")]),
            key("x-y", "m", "c-1", &[("size", "2")]),
            key("x-y", "m", "c", &[]),
            key("x-y-c", "m", "1", &[]),
            key("x/../../y", "m", &"c".repeat(300), &[]),
        ];
        let names: BTreeSet<String> = keys.iter().map(|key| file_name_of_cell(&key.column(), key)).collect();
        assert_eq!(names.len(), keys.len(), "{names:?}");
        assert!(names.iter().all(|name| name.len() < 200 && !name.contains(['/', ' '])), "{names:?}");
        assert!(names.iter().any(|name| name.starts_with("m-x_y-c-1-1-")), "{names:?}");
    }

    #[test]
    fn a_message_is_a_line_however_long_what_was_read_is() {
        assert_eq!(brief("unknown field `x`\n"), "unknown field `x`");
        assert_eq!(brief("é".repeat(201)), "é".repeat(201), "not longer than what would stand for the rest");
        let cut = brief("é\n".repeat(5000));
        assert_eq!((cut.chars().count(), cut.ends_with('…'), cut.lines().count()), (201, true, 1));
    }
}
