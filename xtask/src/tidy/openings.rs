//! Comments name their subject: house style, 1.10. Doc lines whose first words name nobody are counted, and their number may
//! only fall.

use std::{cmp::Reverse, path::Path, process::Command};

use super::Finding;

/// How many such lines there may be: as many as there are. Lower it with them.
pub(super) const CEILING: usize = 178;
/// First words that stand for a subject which the reader does not know yet.
const NAMELESS: [&str; 8] = ["What", "Who", "Whose", "It", "Its", "The same", "Somebody", "Nobody"];
/// How many lines are named when there are too many.
const SHOWN: usize = 10;
/// The time of a line that is in no commit.
const NEVER: u64 = u64::MAX;
/// This file, which holds the ceiling.
const HERE: &str = "xtask/src/tidy/openings.rs";

/// A doc line whose first words name nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    path: String,
    line: usize,
    words: &'static str,
}

/// Those of one file; only Rust files of the crates have any.
pub(super) fn in_file(path: &str, text: &str) -> Vec<Opening> {
    if !path.starts_with("crates/") || Path::new(path).extension().is_none_or(|extension| extension != "rs") {
        return Vec::new();
    }
    let found = text.lines().enumerate().filter_map(|(at, line)| {
        let words = nameless(line)?;
        Some(Opening { path: path.to_owned(), line: at + 1, words })
    });
    found.collect()
}

/// The words that open this line, if it is a doc line and they name nobody.
fn nameless(line: &str) -> Option<&'static str> {
    let line = line.trim_start_matches(' ');
    let text = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "))?;
    let opens = |words: &&&str| {
        let rest = text.strip_prefix(**words);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    NAMELESS.iter().find(opens).copied()
}

/// Compares the number of such lines with the ceiling. Of too many, the newest are named: `times_of` says when each line of a
/// file came, in seconds since 1970.
pub(super) fn check(found: &[Opening], times_of: impl Fn(&str) -> Vec<u64>) -> Vec<Finding> {
    against(CEILING, found, times_of)
}

fn against(ceiling: usize, found: &[Opening], times_of: impl Fn(&str) -> Vec<u64>) -> Vec<Finding> {
    let count = found.len();
    if count < ceiling {
        let message = format!("{count} doc lines name nobody, at most {ceiling} may: lower CEILING to {count}");
        return vec![Finding::new(HERE, 1, message)];
    }
    if count == ceiling {
        return Vec::new();
    }
    let mut newest: Vec<(u64, &Opening)> = Vec::new();
    for file in found.chunk_by(|a, b| a.path == b.path) {
        let times = times_of(&file[0].path);
        newest.extend(file.iter().map(|opening| (times.get(opening.line - 1).copied().unwrap_or(NEVER), opening)));
    }
    newest.sort_by_key(|(time, _)| Reverse(*time));
    let named = newest.iter().take((count - ceiling).min(SHOWN)).map(|(_, opening)| {
        let Opening { path, line, words } = opening;
        let message = format!("a doc line opens with `{words}`: name its subject ({count} do, at most {ceiling} may)");
        Finding::new(path, *line, message)
    });
    named.collect()
}

/// When each line of a file came into the repository: git gives lines that are in no commit the time of now.
pub(super) fn times_of(root: &Path, path: &str) -> Vec<u64> {
    let output = Command::new("git").args(["blame", "--line-porcelain", "--", path]).current_dir(root).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout).unwrap_or_default();
    let mut times = Vec::new();
    let mut time = NEVER;
    for line in String::from_utf8_lossy(&text).lines() {
        if let Some(seconds) = line.strip_prefix("committer-time ") {
            time = seconds.parse().unwrap_or(NEVER);
        } else if line.starts_with('\t') {
            times.push(time);
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words_that_name_nobody_are_found() {
        for line in
            ["/// What it is.", "    //! It's", "/// Its name.", "/// The same: again.", "/// Nobody", "/// Who, then?"]
        {
            assert!(nameless(line).is_some(), "{line}");
        }
        for line in [
            "/// Whatever.",
            "// What",
            "let x; /// What",
            "/// The samples.",
            "/// Items",
            "///  What",
            "/// A frame.",
        ] {
            assert_eq!(nameless(line), None, "{line}");
        }
        let text = "//! Frames.\n/// Its state.\nstruct A;\n";
        let found = in_file("crates/mm/src/a.rs", text);
        assert_eq!(found, [Opening { path: "crates/mm/src/a.rs".to_owned(), line: 2, words: "Its" }]);
        assert_eq!(in_file("xtask/src/a.rs", text), []);
        assert_eq!(in_file("crates/mm/notes.md", text), []);
    }

    #[test]
    fn their_number_may_only_fall() {
        let found = in_file("crates/os/src/a.rs", "/// What\n/// Who\n/// Its\n");
        let messages = |ceiling| -> Vec<String> {
            let findings = against(ceiling, &found, |_| vec![5, 9, 7]);
            findings.iter().map(ToString::to_string).collect()
        };
        assert_eq!(messages(3), [""; 0]);
        let [below] = &messages(4)[..] else { panic!("{:?}", messages(4)) };
        assert!(below.contains("lower CEILING to 3"), "{below}");
        let above = messages(1);
        assert_eq!(above.len(), 2, "{above:?}");
        assert!(
            above[0].starts_with("crates/os/src/a.rs:2: ") && above[1].starts_with("crates/os/src/a.rs:3: "),
            "{above:?}"
        );
        assert!(above[0].contains("(3 do, at most 1 may)"), "{above:?}");
    }
}
