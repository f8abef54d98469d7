//! The newest commit's subject: `area: Verb what`, short enough for a line of `git log --oneline`.

use std::{path::Path, process::Command};

/// Characters of a subject, at most.
const LENGTH_MAX: usize = 72;

/// A line about the newest commit's subject, if that is not as it should be. Where there is no commit, there is nothing to say.
pub(super) fn of_newest(root: &Path) -> Option<String> {
    let log = Command::new("git").current_dir(root).args(["log", "-1", "--no-merges", "--format=%s"]).output().ok()?;
    let subject = String::from_utf8_lossy(&log.stdout);
    wrong(subject.trim()).map(|problem| format!("the newest commit's subject: {problem}: {}", subject.trim()))
}

fn wrong(subject: &str) -> Option<String> {
    let length = subject.chars().count();
    if subject.is_empty() {
        return None;
    }
    if length > LENGTH_MAX {
        return Some(format!("{length} characters; at most {LENGTH_MAX}"));
    }
    let verb = subject.split_once(": ").map(|(_, what)| what);
    let begins = verb.is_some_and(|verb| verb.starts_with(|c: char| c.is_uppercase() || c == '`'));
    (!begins).then(|| "expected `area: Verb what`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_short_and_name_an_area_and_a_verb() {
        for good in ["", "compact: Count file pages as movable", "mm, sim: Say so"] {
            assert_eq!(wrong(good), None, "{good}");
        }
        for bad in ["Fix things", "docs: say less"] {
            assert_eq!(wrong(bad).as_deref(), Some("expected `area: Verb what`"), "{bad}");
        }
        let long = format!("docs: Say {}", "more".repeat(16));
        assert_eq!(wrong(&long).as_deref(), Some("74 characters; at most 72"));
    }
}
