//! The program of another commit, built beside this tree's.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;

use crate::test::cargo_command;

/// The other commit and its program.
pub(super) struct Base {
    commit: String,
    program: PathBuf,
}

impl Base {
    /// Finds the program, or builds it: under `target/same-bytes`, so that the next comparison with this commit has it.
    pub(super) fn of(workspace: &Metadata, name: &str) -> Result<Self> {
        let root = workspace.workspace_root.as_std_path();
        let verified = format!("{name}^{{commit}}");
        let output = git(root).args(["rev-parse", "--verify", "--quiet", &verified]).output().context("git")?;
        ensure!(output.status.success(), "git knows no commit {name:?}; expected one such as HEAD~1 or main");
        let commit = String::from_utf8(output.stdout).context("a commit's hash")?.trim().to_owned();
        let place = workspace.target_directory.join("same-bytes").into_std_path_buf();
        fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
        let base = Self { program: place.join(format!("pagelab-{commit}")), commit };
        if !base.program.exists() {
            base.build(workspace, &place)?;
        }
        Ok(base)
    }

    /// In a clone of its own: neither this tree nor its index is touched.
    fn build(&self, workspace: &Metadata, place: &Path) -> Result<()> {
        eprintln!("building {}", self.name());
        let tree = tempfile::tempdir_in(place).context("a directory for the clone")?;
        let root = workspace.workspace_root.as_std_path();
        let clone = git(root).args(["clone", "--quiet", "--shared", "--no-checkout", "."]).arg(tree.path()).status();
        ensure!(clone.context("git")?.success(), "git clone failed");
        let checkout = git(tree.path()).args(["checkout", "--quiet", "--detach", &self.commit]).status();
        ensure!(checkout.context("git")?.success(), "git checkout failed");
        let target = place.join("target");
        let mut cargo = cargo_command(workspace, &["build", "--release", "--package", "pagelab", "--locked"]);
        let status = cargo.current_dir(tree.path()).env("CARGO_TARGET_DIR", &target).status().context("cargo")?;
        ensure!(status.success(), "cargo build of {}: {status}", self.name());
        // Whole or not at all.
        let partial = place.join("pagelab.partial");
        fs::copy(target.join("release/pagelab"), &partial)
            .and_then(|_| fs::rename(&partial, &self.program))
            .context("keeping the program of the base")
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// The commit as people write it.
    pub(super) fn name(&self) -> &str {
        &self.commit[..12]
    }
}

fn git(directory: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(directory);
    git
}
