//! `cargo xtask test`: all that CI checks, stage by stage, and an honest account at the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, BufRead, BufReader, Write},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use cargo_metadata::Metadata;
use linux::{
    kernel_image::{self, release_matches},
    qemu,
};

use crate::{code, tidy};

/// Variable that names the file to which tests append `NAME\tREASON` when they skip.
const SKIPS_VARIABLE: &str = "PAGELAB_SKIPS";
/// How the names of tests begin that boot a guest.
const VM_PREFIX: &str = "vm_";

/// How one stage ended.
struct Stage {
    name: &'static str,
    wall: Duration,
    /// What went wrong; empty when all is well.
    complaint: String,
}

/// Sums of cargo's `test result:` lines, and what its `test NAME ... ok` lines tell of guests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
    ignored: usize,
    /// Tests that boot a guest and that cargo calls ok: they passed, or they skipped.
    vm_ok: BTreeSet<String>,
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
        let complaints = vm_complaints(filter, &tally.vm_ok, &skips);
        stages.extend(complaints.into_iter().map(|complaint| Stage { name: "vm", wall: Duration::ZERO, complaint }));
    }
    Ok(code(summarize(&stages, &tally, &skips)))
}

/// Prints the account and returns how much failed.
fn summarize(stages: &[Stage], tally: &Tally, skips: &BTreeMap<&str, &str>) -> usize {
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
    /// Reads one line, with or without colours.
    fn add(&mut self, line: &str) {
        let Some(line) = line.trim_start().strip_prefix("test ") else { return };
        match line.strip_prefix("result: ") {
            Some(results) => self.add_results(results),
            None => self.vm_ok.extend(ok_name(line).filter(|name| name.starts_with(VM_PREFIX)).map(str::to_owned)),
        }
    }

    /// Reads `ok. 3 passed; 0 failed; 1 ignored; 0 measured; ...`.
    fn add_results(&mut self, results: &str) {
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

/// The name in `NAME ... ok`, perhaps with ` - should panic` after it.
fn ok_name(line: &str) -> Option<&str> {
    let (name, verdict) = line.trim_end().split_once(" ... ")?;
    let is_ok = verdict.split('\u{1b}').any(|part| part == "ok" || part.ends_with("mok"));
    name.split(' ').next().filter(|_| is_ok)
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
        assert_eq!(tally, Tally { passed: 5, failed: 5, ignored: 1, vm_ok: BTreeSet::new() });
    }

    #[test]
    fn guests_that_are_ok_are_known_by_name() {
        let mut tally = Tally::default();
        for line in [
            "test vm_plain ... ok\n",
            "test vm_coloured ... \u{1b}[32mok\u{1b}(B\u{1b}[m\n",
            "test vm_panics - should panic ... ok\n",
            "test vm_fails ... FAILED\n",
            "test vm_fails_in_red ... \u{1b}[31mFAILED\u{1b}[m\n",
            "test vm_later ... ignored, no time\n",
            "test vm_slow has been running for over 60 seconds\n",
            "test no_vm_ ... ok\n",
            "test vm::boots ... ok\n",
            "the test vm_told ... ok\n",
        ] {
            tally.add(line);
        }
        let names: Vec<&str> = tally.vm_ok.iter().map(String::as_str).collect();
        assert_eq!(names, ["vm_coloured", "vm_panics", "vm_plain"]);
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
