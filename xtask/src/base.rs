//! Programs of another commit, built beside this tree's.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;
use lab::usage::UsageError;

use crate::test::cargo_command;

/// A program of this workspace.
pub(crate) struct Program {
    /// Where cargo leaves it below a target directory; the last part is its name.
    pub(crate) path: &'static str,
    /// Arguments of `cargo build` that name the target.
    pub(crate) arguments: &'static [&'static str],
    /// A source file that is this tree's in both commits, if any.
    pub(crate) shared: Option<&'static str>,
}

/// The command.
pub(crate) const PAGELAB: Program = Program { path: "release/pagelab", arguments: &["--bin", "pagelab"], shared: None };

impl Program {
    /// This tree's, built now and copied to `directory`: whoever builds meanwhile would replace it.
    pub(crate) fn of_this_tree(&self, workspace: &Metadata, directory: &Path) -> Result<PathBuf> {
        let status = self.cargo_build(workspace).status().context("cargo")?;
        ensure!(status.success(), "cargo build: {status}");
        let (from, to) = (workspace.target_directory.join(self.path), directory.join(self.name()));
        fs::copy(&from, &to).with_context(|| format!("copying {from}"))?;
        Ok(to)
    }

    fn cargo_build(&self, workspace: &Metadata) -> Command {
        let mut cargo = cargo_command(workspace, &["build", "--release"]);
        cargo.args(self.arguments);
        cargo
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }
}

/// The other commit and its program.
pub(crate) struct Base {
    commit: String,
    program: PathBuf,
}

impl Base {
    /// Finds the program, or builds it: under `target/same-bytes`, so that the next comparison with this commit has it.
    pub(crate) fn of(workspace: &Metadata, name: &str, wanted: &Program) -> Result<Self> {
        let root = workspace.workspace_root.as_std_path();
        let verified = format!("{name}^{{commit}}");
        let output = git(root).args(["rev-parse", "--verify", "--quiet", &verified]).output().context("git")?;
        if !output.status.success() {
            let problem = format!("git knows no commit {name:?}; expected one such as HEAD~1 or main");
            return Err(UsageError::new(problem).into());
        }
        let commit = String::from_utf8(output.stdout).context("a commit's hash")?.trim().to_owned();
        let place = workspace.target_directory.join("same-bytes").into_std_path_buf();
        fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
        let shared = match wanted.shared {
            Some(file) => Some((file, fs::read(root.join(file)).with_context(|| file.to_owned())?)),
            None => None,
        };
        let version = shared.as_ref().map(|(_, text)| format!("-{}", &blake3::hash(text).to_hex()[..8]));
        let program = place.join(format!("{}-{commit}{}", wanted.name(), version.unwrap_or_default()));
        let base = Self { commit, program };
        if !base.program.exists() {
            base.build(workspace, &place, wanted, shared)?;
        }
        Ok(base)
    }

    /// In a clone of its own: neither this tree nor its index is touched.
    fn build(
        &self,
        workspace: &Metadata,
        place: &Path,
        wanted: &Program,
        shared: Option<(&str, Vec<u8>)>,
    ) -> Result<()> {
        eprintln!("building {} of {}", wanted.name(), self.name());
        let tree = tempfile::tempdir_in(place).context("a directory for the clone")?;
        let root = workspace.workspace_root.as_std_path();
        let clone = git(root).args(["clone", "--quiet", "--shared", "--no-checkout", "."]).arg(tree.path()).status();
        ensure!(clone.context("git")?.success(), "git clone failed");
        let checkout = git(tree.path()).args(["checkout", "--quiet", "--detach", &self.commit]).status();
        ensure!(checkout.context("git")?.success(), "git checkout failed");
        if let Some((name, text)) = shared {
            let file = tree.path().join(name);
            fs::create_dir_all(file.parent().unwrap_or(&file)).context("a folder of the clone")?;
            fs::write(&file, text).with_context(|| file.display().to_string())?;
        }
        let target = place.join("target");
        let mut cargo = wanted.cargo_build(workspace);
        let status = cargo.arg("--locked").current_dir(tree.path()).env("CARGO_TARGET_DIR", &target).status();
        let status = status.context("cargo")?;
        ensure!(status.success(), "cargo build of {}: {status}", self.name());
        // Whole or not at all.
        let partial = place.join(format!("{}.partial", wanted.name()));
        fs::copy(target.join(wanted.path), &partial)
            .and_then(|_| fs::rename(&partial, &self.program))
            .context("keeping the program of the base")
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The text of a file of its tree.
    pub(crate) fn text(&self, workspace: &Metadata, path: &str) -> Result<String> {
        let named = format!("{}:{path}", self.commit);
        let output = git(workspace.workspace_root.as_std_path()).args(["show", &named]).output().context("git")?;
        ensure!(output.status.success(), "git show {named}: {}", String::from_utf8_lossy(&output.stderr).trim());
        String::from_utf8(output.stdout).with_context(|| named)
    }

    /// The commit as people write it.
    pub(crate) fn name(&self) -> &str {
        &self.commit[..12]
    }
}

fn git(directory: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(directory);
    git
}
