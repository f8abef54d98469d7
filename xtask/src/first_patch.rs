//! The patch of docs/your-first-patch.md: a stage of `cargo xtask test` applies it to a copy, and its own test must pass.
//!
//! Only what the patch changes is built: `mm` and the crates below it, not optimized.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;

use crate::{
    crates::with_those_below,
    test::{DEV_PROFILE, cargo_command, other_target},
};

/// The patch's own test.
const ITS_TEST: &str = "a_fault_without_a_huge_page_wakes_it_if_told_to";
const MEMBERS: &str = "members = [\"crates/*\", \"xtask\"]\ndefault-members = [\"crates/cli\"]\n";

/// Applies the patch and runs its test. Returns what went wrong, nothing when all is well.
pub(crate) fn run(workspace: &Metadata) -> Result<String> {
    let root = workspace.workspace_root.as_std_path();
    let copy = workspace.target_directory.join("first-patch");
    copy_of_mm(workspace, copy.as_std_path())?;
    let mut git = Command::new("git");
    // A directory inside of some repository would have its paths taken from there.
    git.env("GIT_CEILING_DIRECTORIES", &workspace.target_directory).current_dir(&copy);
    succeed(git.args(["apply", "--whitespace=error-all"]).arg(root.join("docs/your-first-patch.patch")))?;
    let mut cargo = cargo_command(workspace, &["test", "--offline", "--package", "mm", "--lib", ITS_TEST]);
    cargo.current_dir(&copy).envs(DEV_PROFILE).env("CARGO_TARGET_DIR", other_target(workspace));
    let output = succeed(&mut cargo)?;
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(if said.contains("test result: ok. 1 passed") {
        String::new()
    } else {
        format!("expected one test, found: {said}")
    })
}

/// The workspace with `mm` and what it uses alone; always in the same place, so that crates of others stay built.
fn copy_of_mm(workspace: &Metadata, copy: &Path) -> Result<()> {
    let root = workspace.workspace_root.as_std_path();
    for folder in ["crates", "variants"] {
        match fs::remove_dir_all(copy.join(folder)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).context(folder),
            _ => {}
        }
    }
    let crates: Vec<String> =
        with_those_below(workspace, &["mm"]).into_iter().map(|name| format!("crates/{name}")).collect();
    for folder in crates.iter().map(String::as_str).chain(["variants"]) {
        copy_all(&root.join(folder), &copy.join(folder)).with_context(|| folder.to_owned())?;
    }
    fs::copy(root.join("Cargo.lock"), copy.join("Cargo.lock")).context("Cargo.lock")?;
    let manifest = fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml")?;
    ensure!(manifest.contains(MEMBERS), "the workspace's manifest has other members now; expected {MEMBERS}");
    let manifest = manifest.replace(MEMBERS, &format!("members = {crates:?}\n"));
    fs::write(copy.join("Cargo.toml"), manifest).context("Cargo.toml")
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in from.read_dir()? {
        let entry = entry?;
        let to: PathBuf = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Runs a command, which must succeed.
fn succeed(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(output)
}
