//! `cargo xtask test`: all that CI checks, stage by stage, and an honest account at the end.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead, BufReader, Write},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use cargo_metadata::Metadata;
use linux::kernel_image::{self, release_matches};

use crate::{code, program, tidy};

/// Variable that names the file to which tests append `NAME\tREASON` when they skip.
const SKIPS_VARIABLE: &str = "PAGELAB_SKIPS";

/// How one stage ended.
struct Stage {
    name: &'static str,
    wall: Duration,
    /// What went wrong; empty when all is well.
    complaint: String,
}

/// Sums of cargo's `test result:` lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
    ignored: usize,
}

/// Runs every stage, also after one failed.
pub(crate) fn run(workspace: &Metadata, filter: Option<&str>) -> Result<ExitCode> {
    let skips_file = tempfile::NamedTempFile::new().context("a temporary file for skips")?;
    let mut tally = Tally::default();
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
        stage("tests", || {
            let mut tests = cargo_command(workspace, &["test", "--release", "--workspace", "--no-fail-fast"]);
            tests.args(filter).env(SKIPS_VARIABLE, skips_file.path());
            run_tests(tests, &mut io::stdout(), &mut tally)
        }),
    ];
    let text = fs::read_to_string(skips_file.path()).context("the file of skips")?;
    let skips = parse_skips(&text);
    if vm_can_run() {
        let complaints = skips.iter().filter(|(name, reason)| is_vm_excuse(name, reason));
        stages.extend(complaints.map(|(name, _)| Stage {
            name: "vm",
            wall: Duration::ZERO,
            complaint: format!("{name} skipped, though QEMU and a 6.1 kernel are here"),
        }));
    }
    Ok(code(summarize(&stages, tally, &skips)))
}

/// Prints the account and returns how much failed.
fn summarize(stages: &[Stage], tally: Tally, skips: &BTreeMap<&str, &str>) -> usize {
    println!();
    for (name, reason) in skips {
        println!("skipped {name}: {reason}");
    }
    for stage in stages {
        let verdict = if stage.complaint.is_empty() { "ok" } else { &stage.complaint };
        println!("{:8} {:7.1} s  {verdict}", stage.name, stage.wall.as_secs_f64());
    }
    let (line, failed) = closing_line(stages, tally, skips.len());
    println!("{line}");
    failed
}

/// A failed stage counts once, except that failed tests are counted instead of their stage. To cargo, a test that
/// skips has passed; here it has not.
fn closing_line(stages: &[Stage], tally: Tally, skips: usize) -> (String, usize) {
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

fn cargo_command(workspace: &Metadata, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(&workspace.workspace_root);
    command
}

fn cargo(workspace: &Metadata, arguments: &[&str]) -> Result<String> {
    let status = cargo_command(workspace, arguments).status().context("cargo")?;
    Ok(if status.success() { String::new() } else { format!("cargo {}: {status}", arguments[0]) })
}

/// Runs the tests, passing their output on to the terminal as it comes, and adds their results up.
fn run_tests(mut command: Command, terminal: &mut impl Write, tally: &mut Tally) -> Result<String> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cargo test")?;
    let mut output = BufReader::new(child.stdout.take().context("cargo test has no output")?);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        terminal.write_all(&line)?;
        tally.add(&String::from_utf8_lossy(&line));
        line.clear();
    }
    let status = child.wait()?;
    Ok(match (status.success(), tally.failed, tally.passed) {
        (true, 0, 0) => "no test ran; expected a name that some test contains".to_owned(),
        (true, 0, _) => String::new(),
        (_, 0, _) => format!("cargo test: {status}"),
        (_, failed, _) => format!("{failed} tests failed"),
    })
}

impl Tally {
    /// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; ...`, with or without colours.
    fn add(&mut self, line: &str) {
        let Some(results) = line.trim_start().strip_prefix("test result: ") else {
            return;
        };
        let words: Vec<&str> = results.split([' ', ';']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let Ok(count) = pair[0].parse::<usize>() else {
                continue;
            };
            match pair[1] {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }
}

/// Skipped tests and their reasons; one that skips several parts counts once.
fn parse_skips(text: &str) -> BTreeMap<&str, &str> {
    text.lines().map(|line| line.split_once('\t').unwrap_or((line, "no reason given"))).collect()
}

/// Whether this machine has what the tests of real kernels need.
fn vm_can_run() -> bool {
    let cached = kernel_image::list_cached().unwrap_or_default();
    program("qemu-system-x86_64").is_some() && cached.iter().any(|release| release_matches(release, "6.1"))
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
    fn results_add_up() {
        let mut tally = Tally::default();
        for line in [
            "running 4 tests\n",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.07s\n",
            "test result: \u{1b}[31mFAILED\u{1b}[m. 2 passed; 5 failed; 0 ignored; 0 measured; 9 filtered out\n",
            "test test result: 9 passed ... ok\n",
        ] {
            tally.add(line);
        }
        assert_eq!(tally, Tally { passed: 5, failed: 5, ignored: 1 });
    }

    #[test]
    fn the_closing_line_counts_stages_tests_and_skips() {
        let tally = Tally { passed: 10, failed: 0, ignored: 1 };
        let line = |stages: &[Stage], tally| closing_line(stages, tally, 2);
        assert_eq!(line(&[stage("fmt", "")], tally), ("total: 8 passed, 0 failed, 3 skipped".to_owned(), 0));
        let stages = [stage("fmt", "bad"), stage("tests", "2 tests failed")];
        let failing = Tally { failed: 2, ..tally };
        assert_eq!(line(&stages, failing), ("total: 8 passed, 3 failed, 3 skipped".to_owned(), 3));
        let stages = [stage("tests", "cargo test: it does not compile"), stage("vm", "vm_boot skipped")];
        assert_eq!(line(&stages, Tally::default()).1, 2);
    }

    #[test]
    fn the_tests_are_run_and_read() {
        let mut tally = Tally::default();
        let script = |text: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            command
        };
        let mut shown = Vec::new();
        let mut run = |text: &str, tally: &mut Tally| run_tests(script(text), &mut shown, tally).unwrap();
        assert_eq!(run("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'", &mut tally), "");
        assert_eq!(tally.passed, 2);
        assert_eq!(run("exit 101", &mut tally), "cargo test: exit status: 101");
        assert!(run("echo test result: none. 0 passed", &mut Tally::default()).starts_with("no test ran"));
        assert!(shown.starts_with(b"test result: ok. 2 passed"));
    }

    #[test]
    fn skips_are_counted_once_per_test() {
        let skips = parse_skips("vm_boot\tno QEMU\nvm_boot\tno QEMU\nother\n");
        assert_eq!(skips.len(), 2);
        assert_eq!(skips["other"], "no reason given");
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
