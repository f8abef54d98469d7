//! `cargo xtask test`: all that CI checks, stage by stage, and an honest account at the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Metadata, camino::Utf8PathBuf};
use linux::{
    kernel_image::{self, release_matches},
    qemu,
};

use crate::{
    browser, code, first_patch, perfetto, python,
    suite::{self, Tally, VM_PREFIX},
    tidy,
};

/// Variable that names the file to which tests append `NAME\tREASON` when they skip.
const SKIPS_VARIABLE: &str = "PAGELAB_SKIPS";
/// Variable that names the program as the dev profile builds it; a test compares its bytes with the release profile's.
const OTHER_PROFILE_VARIABLE: &str = "PAGELAB_OTHER_PROFILE";

/// Settings of the dev profile for such builds: half the time and a tenth of the room, and no other code.
pub(crate) const DEV_PROFILE: [(&str, &str); 2] = [("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "none")];

/// How one stage ended.
struct Stage {
    name: &'static str,
    wall: Duration,
    /// What went wrong; empty when all is well.
    complaint: String,
}

/// Runs every stage, also after one failed.
pub(crate) fn run(workspace: &Metadata, filter: Option<&str>) -> Result<ExitCode> {
    let skips_file = tempfile::NamedTempFile::new().context("a temporary file for skips")?;
    let mut tally = Tally::default();
    let (mut python_passed, mut browser_passed, mut perfetto_passed) = (0, 0, 0);
    let mut programs = Vec::new();
    let mut other_profile = None;
    let mut stages = vec![
        stage("fmt", || cargo(workspace, &["fmt", "--all", "--check"])),
        stage("tidy", || match tidy::run(workspace)? {
            0 => Ok(String::new()),
            findings => Ok(format!("{findings} findings")),
        }),
        stage("clippy", || {
            cargo(workspace, &["clippy", "--workspace", "--all-targets", "--release", "--", "-D", "warnings"])
        }),
        stage("build", || cargo(workspace, &["build", "--release"])),
        stage("debug build", || {
            other_profile = Some(build_other_profile(workspace)?);
            Ok(String::new())
        }),
        stage("first patch", || first_patch::run(workspace)),
        stage("test build", || {
            programs = suite::build(workspace)?;
            Ok(String::new())
        }),
        stage("tests", || {
            let variables: Vec<(&str, &Path)> = [(SKIPS_VARIABLE, skips_file.path())]
                .into_iter()
                .chain(other_profile.as_deref().map(|path| (OTHER_PROFILE_VARIABLE, path)))
                .collect();
            suite::run(&programs, filter, &variables, &mut io::stdout(), &mut tally)
        }),
        stage("python", || python::run(workspace, filter, (SKIPS_VARIABLE, skips_file.path()), &mut python_passed)),
        stage("browser", || browser::run(workspace, skips_file.path(), &mut browser_passed)),
        stage("perfetto", || perfetto::run(workspace, skips_file.path(), &mut perfetto_passed)),
        stage("doc tests", || cargo(workspace, &["test", "--release", "--workspace", "--doc"])),
    ];
    tally.passed += python_passed + browser_passed + perfetto_passed;
    let text = fs::read_to_string(skips_file.path()).context("the file of skips")?;
    let skips = parse_skips(&text);
    if vm_can_run() {
        let complaints = vm_complaints(filter, &tally.vm_ok, &skips);
        stages.extend(complaints.into_iter().map(|complaint| Stage { name: "vm", wall: Duration::ZERO, complaint }));
    }
    Ok(code(summarize(&stages, &tally, &skips)))
}

/// Prints the account and returns how much failed.
fn summarize(stages: &[Stage], tally: &Tally, skips: &BTreeMap<&str, &str>) -> usize {
    println!();
    print!("{}", tally.slowest());
    for (name, reason) in skips {
        println!("skipped {name}: {reason}");
    }
    for stage in stages {
        let verdict = if stage.complaint.is_empty() { "ok" } else { &stage.complaint };
        println!("{:11} {:7.1} s  {verdict}", stage.name, stage.wall.as_secs_f64());
    }
    let (line, failed) = closing_line(stages, tally, skips.len());
    println!("{line}");
    failed
}

/// A failed stage counts once, except that failed tests are counted instead of their stage. To cargo, a test that
/// skips has passed; here it has not.
fn closing_line(stages: &[Stage], tally: &Tally, skips: usize) -> (String, usize) {
    let failed_stages = stages.iter().filter(|stage| !stage.complaint.is_empty()).count();
    let test_stage_failed = stages.iter().any(|stage| stage.name == "tests" && !stage.complaint.is_empty());
    let counted_twice = usize::from(test_stage_failed && tally.failed > 0);
    let failed = tally.failed + failed_stages - counted_twice;
    let passed = tally.passed.saturating_sub(skips);
    (format!("total: {passed} passed, {failed} failed, {} skipped", tally.ignored + skips), failed)
}

#[expect(clippy::disallowed_methods, reason = "wall time of a stage, for a person to read")]
fn stage(name: &'static str, body: impl FnOnce() -> Result<String>) -> Stage {
    println!("== {name}");
    let start = Instant::now();
    let complaint = body().unwrap_or_else(|error| format!("{error:#}"));
    if !complaint.is_empty() {
        println!("== {name}: {complaint}");
    }
    Stage { name, wall: start.elapsed(), complaint }
}

/// Cargo, in the workspace.
pub(crate) fn cargo_command(workspace: &Metadata, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(&workspace.workspace_root);
    command
}

/// The program as the dev profile builds it, in a target folder of its own, so that neither build makes the other's stale.
fn build_other_profile(workspace: &Metadata) -> Result<PathBuf> {
    let target = other_target(workspace);
    let mut build = cargo_command(workspace, &["build", "--locked", "--bin", "pagelab"]);
    let status = build.envs(DEV_PROFILE).arg("--target-dir").arg(&target).status().context("cargo build")?;
    ensure!(status.success(), "cargo build: {status}");
    Ok(target.join("debug/pagelab").into())
}

/// The target directory of all builds in the dev profile, so that their dependencies are compiled once.
pub(crate) fn other_target(workspace: &Metadata) -> Utf8PathBuf {
    workspace.target_directory.join("other-profile")
}

fn cargo(workspace: &Metadata, arguments: &[&str]) -> Result<String> {
    let status = cargo_command(workspace, arguments).status().context("cargo")?;
    Ok(if status.success() { String::new() } else { format!("cargo {}: {status}", arguments[0]) })
}

/// Skipped tests and their reasons; one that skips several parts counts once.
fn parse_skips(text: &str) -> BTreeMap<&str, &str> {
    text.lines().map(|line| line.split_once('\t').unwrap_or((line, "no reason given"))).collect()
}

/// Whether this machine has what the tests of real kernels need.
fn vm_can_run() -> bool {
    let cached = kernel_image::list_cached().unwrap_or_default();
    qemu::find_emulator().is_ok() && cached.iter().any(|release| release_matches(release, "6.1"))
}

/// What is wrong with the tests of real kernels on a machine that can run them. Without a filter, some must have passed:
/// else a run where they are gone would look like one where they are well.
fn vm_complaints(filter: Option<&str>, vm_ok: &BTreeSet<String>, skips: &BTreeMap<&str, &str>) -> Vec<String> {
    const HERE: &str = "though QEMU and a 6.1 kernel are here";
    let excuses = skips.iter().filter(|(name, reason)| is_vm_excuse(name, reason));
    let mut complaints: Vec<String> = excuses.map(|(name, _)| format!("{name} skipped, {HERE}")).collect();
    let some_passed = vm_ok.iter().any(|name| !skips.contains_key(name.as_str()));
    if filter.is_none() && !some_passed {
        complaints.push(format!("no test named {VM_PREFIX}... ran and passed, {HERE}"));
    }
    complaints
}

/// Whether a test of real kernels skipped for want of QEMU or of the 6.1 kernel. The first version in a reason tells
/// which kernel was missed; a reason without one means the usual, 6.1.
fn is_vm_excuse(name: &str, reason: &str) -> bool {
    let reason = reason.to_lowercase();
    let is_version = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    let missed = reason.split([' ', ',', ';', ':', '`', '(', ')']).find(is_version);
    let kernel_is_missed = reason.contains("kernel") && missed.is_none_or(|version| release_matches(version, "6.1"));
    name.starts_with("vm") && (reason.contains("qemu") || kernel_is_missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &'static str, complaint: &str) -> Stage {
        Stage { name, wall: Duration::ZERO, complaint: complaint.to_owned() }
    }

    #[test]
    fn the_closing_line_counts_stages_tests_and_skips() {
        let tally = Tally { passed: 10, ignored: 1, ..Tally::default() };
        let line = |stages: &[Stage], tally: &Tally| closing_line(stages, tally, 2);
        assert_eq!(line(&[stage("fmt", "")], &tally), ("total: 8 passed, 0 failed, 3 skipped".to_owned(), 0));
        let stages = [stage("fmt", "bad"), stage("tests", "2 tests failed")];
        let failing = Tally { failed: 2, ..tally };
        assert_eq!(line(&stages, &failing), ("total: 8 passed, 3 failed, 3 skipped".to_owned(), 3));
        let stages = [stage("tests", "cargo test: it does not compile"), stage("vm", "vm_boot skipped")];
        assert_eq!(line(&stages, &Tally::default()).1, 2);
    }

    #[test]
    fn skips_are_counted_once_per_test() {
        let skips = parse_skips("vm_boot\tno QEMU\nvm_boot\tno QEMU\nother\n");
        assert_eq!(skips.len(), 2);
        assert_eq!(skips["other"], "no reason given");
    }

    #[test]
    fn where_guests_can_run_some_test_of_them_must_pass() {
        let skips = parse_skips("vm_a\tthe host has no huge pages\nvm_b\tno qemu-system-x86_64 on PATH");
        let complaints = |filter, names: &[&str]| {
            vm_complaints(filter, &names.iter().map(|name| (*name).to_owned()).collect(), &skips)
        };
        let excuse = "vm_b skipped, though QEMU and a 6.1 kernel are here";
        let none = "no test named vm_... ran and passed, though QEMU and a 6.1 kernel are here";
        assert_eq!(complaints(None, &["vm_a", "vm_b", "vm_c"]), [excuse]);
        assert_eq!(complaints(None, &["vm_a", "vm_b"]), [excuse, none], "to cargo, tests that skip are ok");
        assert_eq!(complaints(None, &[]), [excuse, none]);
        assert_eq!(complaints(Some("units"), &[]), [excuse]);
    }

    #[test]
    fn some_excuses_do_not_hold() {
        for reason in [
            "no qemu-system-x86_64 on PATH",
            "kernel 6.1 is not in the cache (there: nothing)",
            "no kernel in the cache",
            "kernel 6.1.0-50-cloud-amd64 has no modules",
        ] {
            assert!(is_vm_excuse("vm::boots", reason), "{reason}");
        }
        let other_kernel = "kernel 5.10 is not in the cache x (there: 6.1.0-56-cloud-amd64); `cargo xtask kernel 5.10`";
        assert!(!is_vm_excuse("vm::boots", other_kernel));
        assert!(!is_vm_excuse("module::x", "kernel 6.1 is not in the cache"));
        assert!(!is_vm_excuse("vm::thp", "the host has no huge pages"));
    }
}
