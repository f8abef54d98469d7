//! Habits of doc comments that tidy counts: the number of doc lines with a habit may only fall.

use std::{cmp::Reverse, path::Path, process::Command};

use super::Finding;

/// How many lines are named when there are too many.
const SHOWN: usize = 10;
/// The time of a line that is in no commit.
const NEVER: u64 = u64::MAX;

/// A habit of doc lines, and how many lines may have it.
pub(super) struct Habit {
    /// As many lines as there are. It falls with them.
    pub ceiling: usize,
    /// The file that holds the ceiling.
    pub held_in: &'static str,
    /// The verb phrase of which such lines are the subject: `name nobody`.
    pub summary: &'static str,
    /// Words of a finding before and after the words that were found in the line.
    pub finding: (&'static str, &'static str),
}

/// A doc line with a habit, and the words that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub path: String,
    pub line: usize,
    pub words: &'static str,
}

/// Whether doc comments of this file are counted: Rust files of the crates.
pub(super) fn is_counted(path: &str) -> bool {
    path.starts_with("crates/") && Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

/// The text of a line, if it is a line of a doc comment.
pub(super) fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start_matches(' ');
    line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "))
}

impl Habit {
    /// Compares the number of such lines with the ceiling. If there are too many, the newest are named: `times_of` says when
    /// each line of a file came, in seconds since 1970.
    pub(super) fn check(&self, found: &[Place], times_of: impl Fn(&str) -> Vec<u64>) -> Vec<Finding> {
        let (count, ceiling, summary) = (found.len(), self.ceiling, self.summary);
        if count < ceiling {
            let message = format!("{count} doc lines {summary}, at most {ceiling} may: lower CEILING to {count}");
            return vec![Finding::new(self.held_in, 1, message)];
        }
        if count == ceiling {
            return Vec::new();
        }
        let mut newest: Vec<(u64, &Place)> = Vec::new();
        for file in found.chunk_by(|a, b| a.path == b.path) {
            let times = times_of(&file[0].path);
            newest.extend(file.iter().map(|place| (times.get(place.line - 1).copied().unwrap_or(NEVER), place)));
        }
        newest.sort_by_key(|(time, _)| Reverse(*time));
        let (before, after) = self.finding;
        let named = newest.iter().take((count - ceiling).min(SHOWN)).map(|(_, place)| {
            let Place { path, line, words } = place;
            let message = format!("a doc line {before} `{words}`: {after} ({count} do, at most {ceiling} may)");
            Finding::new(path, *line, message)
        });
        named.collect()
    }

    /// The line about this habit in the summary of a run of tidy.
    pub(super) fn count(&self, found: &[Place]) -> String {
        format!("{} doc lines {} ({} may)", found.len(), self.summary, self.ceiling)
    }
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
    fn the_number_of_lines_with_a_habit_may_only_fall() {
        let place = |line| Place { path: "crates/os/src/a.rs".to_owned(), line, words: "Who" };
        let found = [place(1), place(2), place(3)];
        let messages = |ceiling| -> Vec<String> {
            let finding = ("opens with", "name its subject");
            let habit = Habit { ceiling, held_in: "xtask/src/a.rs", summary: "name nobody", finding };
            let findings = habit.check(&found, |_| vec![5, 9, 7]);
            findings.iter().map(ToString::to_string).collect()
        };
        assert_eq!(messages(3), [""; 0]);
        let [below] = &messages(4)[..] else { panic!("{:?}", messages(4)) };
        assert!(below.starts_with("xtask/src/a.rs:1: ") && below.contains("lower CEILING to 3"), "{below}");
        let above = messages(1);
        assert_eq!(above.len(), 2, "{above:?}");
        assert!(
            above[0].starts_with("crates/os/src/a.rs:2: ") && above[1].starts_with("crates/os/src/a.rs:3: "),
            "{above:?}"
        );
        assert!(above[0].contains("(3 do, at most 1 may)"), "{above:?}");
    }

    #[test]
    fn only_doc_lines_of_the_crates_are_counted() {
        assert!(is_counted("crates/mm/src/a.rs"));
        assert!(!is_counted("xtask/src/a.rs") && !is_counted("crates/mm/notes.md"));
        assert_eq!(doc_text("    /// Frames."), Some("Frames."));
        assert_eq!(doc_text("//! Frames."), Some("Frames."));
        assert_eq!(doc_text("// Frames."), None);
        assert_eq!(doc_text("let x; /// Frames."), None);
    }
}
