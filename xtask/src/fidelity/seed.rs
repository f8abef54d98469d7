//! The seed of a draw: the newest commit that changed what a draw judges, so that nobody can choose it.

use std::{path::Path, process::Command};

use anyhow::{Context, Result};
use lab::usage::UsageError;

/// Tests below [`paths`], which no run has.
const WITHOUT: [&str; 2] = [":(exclude,glob)crates/*/src/**/tests/**", ":(exclude,glob)crates/*/src/**/tests.rs"];
/// Hexadecimal digits of a seed.
const DIGITS: usize = 8;

/// A seed, and why it is that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seed {
    /// Eight hexadecimal digits.
    pub(super) digits: String,
    /// The commit that it is of; none of a seed that somebody chose.
    pub(super) commit: Option<String>,
    /// Whether the tree has changes to [`paths`] that no commit has: its draw is not the one that counts.
    pub(super) changed: bool,
}

impl Seed {
    /// The seed that counts.
    pub(super) fn of_commit(root: &Path) -> Result<Self> {
        let commit = git(root, &["log", "-1", "--format=%H"])?;
        if commit.is_empty() {
            let problem =
                format!("no commit has changed {}; expected one, for the seed of the draw", paths().join(", "));
            return Err(UsageError::new(problem).into());
        }
        let changed = !git(root, &["status", "--porcelain"])?.is_empty();
        Ok(Self { digits: commit[..DIGITS].to_owned(), commit: Some(commit), changed })
    }

    /// Of somebody's choice.
    pub(super) fn of_choice(digits: &str) -> Self {
        Self { digits: digits.to_owned(), commit: None, changed: false }
    }

    /// Why this draw is not the one that counts; none where it is.
    pub(super) fn why_not(&self) -> Option<&'static str> {
        match self {
            Self { commit: None, .. } => Some("its seed was chosen"),
            Self { changed: true, .. } => Some("rules, prices, workloads or ranges have changes that no commit has"),
            Self { .. } => None,
        }
    }
}

/// Rules, prices and workloads; and the ranges, as with others a seed draws other cells.
fn paths() -> Vec<String> {
    let crates = lab::provenance::SIMULATED_CRATES.split(' ').map(|name| format!("crates/{name}/src"));
    crates.chain(["variants", "machines", "crates/lab/src/fidelity/draw.rs"].map(str::to_owned)).collect()
}

/// Answers of git about [`paths`].
fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .current_dir(root)
        .args(arguments)
        .arg("--")
        .args(paths())
        .args(WITHOUT)
        .output()
        .context("git")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(UsageError::new(format!("no seed from git: {}", said.lines().last().unwrap_or("it failed"))).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Reads a seed of somebody's choice.
pub(super) fn chosen(text: &str) -> Result<String, String> {
    let is_seed = text.len() == DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_seed { Ok(text.to_ascii_lowercase()) } else { Err("expected eight hexadecimal digits".to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn done(root: &Path, arguments: &[&str]) {
        let name = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"];
        let output = Command::new("git").current_dir(root).args(name).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn commit(root: &Path, file: &str, text: &str) -> String {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        done(root, &["add", "."]);
        done(root, &["commit", "-q", "-m", text]);
        let output = Command::new("git").current_dir(root).args(["rev-parse", "HEAD"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn the_seed_is_of_the_newest_commit_that_changed_what_is_judged() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let refused = Seed::of_commit(root).unwrap_err();
        assert!(refused.is::<UsageError>(), "no repository: {refused}");
        done(root, &["init", "-q"]);
        commit(root, "README.md", "words");
        assert!(
            Seed::of_commit(root).unwrap_err().to_string().starts_with("no commit has changed crates/memory/src, ")
        );
        let rules = commit(root, "crates/mm/src/rule.rs", "a rule");
        commit(root, "docs/fidelity.md", "the last draw");
        commit(root, "crates/mm/src/rule/tests/slow.rs", "a test");
        commit(root, "crates/sim/src/tests.rs", "another");
        let found = Seed::of_commit(root).unwrap();
        assert_eq!((found.digits.as_str(), found.commit.as_deref()), (&rules[..8], Some(rules.as_str())));
        assert_eq!(found.why_not(), None);
        fs::write(root.join("crates/mm/src/rule.rs"), "tried out").unwrap();
        assert!(Seed::of_commit(root).unwrap().why_not().is_some());
        let prices = commit(root, "machines/prices/generic.toml", "a price");
        assert_eq!(Seed::of_commit(root).unwrap().commit, Some(prices));
        assert!(Seed::of_choice("1a2b3c4d").why_not().is_some());
    }

    #[test]
    fn all_paths_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(paths().iter().all(|path| root.join(path).exists()), "{:?}", paths());
    }
}
