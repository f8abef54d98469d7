//! The tests: built as cargo builds them, run program by program, with the time of each program and each test.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Message, Metadata};
use nix::sys::resource::{UsageWho, getrusage};

use crate::test::cargo_command;

/// How the names of tests begin that boot a guest.
pub(crate) const VM_PREFIX: &str = "vm_";
/// How many programs and how many tests are listed as the slowest.
const SLOWEST: usize = 20;

/// A test program as cargo built it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Package and target, as in `mm twin`.
    name: String,
    executable: PathBuf,
    /// The package's folder, where cargo runs its tests.
    folder: PathBuf,
}

/// Sums of the `test result:` lines, the times, and what the `test NAME ... ok` lines tell of guests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    /// Tests that boot a guest and that ended well: they passed, or they skipped. Names without their module.
    pub(crate) vm_ok: BTreeSet<String>,
    /// Seconds and names of the tests, in the order in which they ended.
    pub(crate) tests: Vec<(f64, String)>,
    pub(crate) programs: Vec<Times>,
}

/// How long a test program took, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Times {
    wall: f64,
    /// Of the program and of all processes that it waited for.
    cpu: f64,
    name: String,
}

/// Builds all test programs of the workspace, in the release profile.
pub(crate) fn build(workspace: &Metadata) -> Result<Vec<Program>> {
    let arguments = ["test", "--release", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"];
    let mut child = cargo_command(workspace, &arguments).stdout(Stdio::piped()).spawn().context("cargo test")?;
    let output = BufReader::new(child.stdout.take().context("cargo test has no output")?);
    let mut programs = Vec::new();
    for message in Message::parse_stream(output) {
        let Message::CompilerArtifact(artifact) = message.context("cargo's messages")? else { continue };
        let (true, Some(executable)) = (artifact.profile.test, artifact.executable) else { continue };
        let package = workspace.packages.iter().find(|package| package.id == artifact.package_id);
        let package =
            package.with_context(|| format!("cargo built {}, a package it did not list", artifact.package_id))?;
        let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
        programs.push(Program {
            name: format!("{} {}", package.name, artifact.target.name),
            executable: executable.into(),
            folder: folder.into(),
        });
    }
    let status = child.wait()?;
    ensure!(status.success(), "cargo test --no-run: {status}");
    programs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(programs)
}

/// Runs the programs one after the other, passing their output on to the terminal as it comes, and adds their results up.
/// Returns what went wrong, nothing when all is well.
pub(crate) fn run(
    programs: &[Program],
    filter: Option<&str>,
    variables: &[(&str, &Path)],
    terminal: &mut impl Write,
    tally: &mut Tally,
) -> Result<String> {
    let mut bad_ends = Vec::new();
    for program in programs {
        writeln!(terminal, "   {}", program.name)?;
        let mut command = Command::new(&program.executable);
        command.args(filter).args(["--report-time", "-Zunstable-options"]).current_dir(&program.folder);
        // Times of single tests are for nightly compilers; this variable lets libtest of a stable one print them, too.
        command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_MANIFEST_DIR", &program.folder);
        command.envs(variables.iter().copied());
        let failed_before = tally.failed;
        let status = run_program(command, &program.name, terminal, tally)?;
        if !status.is_empty() && tally.failed == failed_before {
            bad_ends.push(format!("{}: {status}", program.name));
        }
    }
    if tally.failed > 0 {
        bad_ends.insert(0, format!("{} tests failed", tally.failed));
    } else if bad_ends.is_empty() && tally.passed == 0 {
        bad_ends.push("no test ran; expected a name that some test contains".to_owned());
    }
    Ok(bad_ends.join("; "))
}

/// Runs one program. Returns how it ended, nothing when that is success.
#[expect(clippy::disallowed_methods, reason = "wall time of a test program, for a person to read")]
fn run_program(mut command: Command, name: &str, terminal: &mut impl Write, tally: &mut Tally) -> Result<String> {
    let (start, cpu_before) = (Instant::now(), cpu_of_children()?);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| name.to_owned())?;
    let mut output = BufReader::new(child.stdout.take().context("a test program has no output")?);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        terminal.write_all(&line)?;
        tally.add(name, &String::from_utf8_lossy(&line));
        line.clear();
    }
    let status = child.wait()?;
    let cpu = cpu_of_children()?.saturating_sub(cpu_before).as_secs_f64();
    tally.programs.push(Times { wall: start.elapsed().as_secs_f64(), cpu, name: name.to_owned() });
    Ok(if status.success() { String::new() } else { status.to_string() })
}

/// CPU time of all processes that were waited for.
fn cpu_of_children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
    let time = usage.user_time() + usage.system_time();
    Ok(Duration::new(time.tv_sec().cast_unsigned(), u32::try_from(time.tv_usec())? * 1000))
}

impl Tally {
    /// Reads one line of a test program, with or without colours.
    fn add(&mut self, program: &str, line: &str) {
        let Some(line) = line.trim_start().strip_prefix("test ") else { return };
        if let Some(results) = line.strip_prefix("result: ") {
            return self.add_results(results);
        }
        let Some((name, verdict)) = line.trim_end().split_once(" ... ") else { return };
        let name = name.split(' ').next().unwrap_or(name);
        let (verdict, seconds) = split_time(verdict);
        if let Some(seconds) = seconds {
            self.tests.push((seconds, format!("{program} {name}")));
        }
        let bare = name.rsplit("::").next().unwrap_or(name);
        if is_ok(verdict) && bare.starts_with(VM_PREFIX) {
            self.vm_ok.insert(bare.to_owned());
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

    /// The slowest programs and tests, and the sums, as lines of text; empty when nothing ran.
    pub(crate) fn slowest(&self) -> String {
        let mut text = String::new();
        if self.programs.is_empty() {
            return text;
        }
        let mut programs: Vec<&Times> = self.programs.iter().collect();
        programs.sort_by(|one, other| other.wall.total_cmp(&one.wall));
        let (wall, cpu) = programs.iter().fold((0.0, 0.0), |(wall, cpu), times| (wall + times.wall, cpu + times.cpu));
        let _ = writeln!(text, "{:>8} {:>8}  the slowest test programs", "wall s", "CPU s");
        for times in programs.iter().take(SLOWEST) {
            let _ = writeln!(text, "{:8.1} {:8.1}  {}", times.wall, times.cpu, times.name);
        }
        let _ = writeln!(text, "{wall:8.1} {cpu:8.1}  all {} test programs\n", programs.len());
        let mut tests: Vec<&(f64, String)> = self.tests.iter().collect();
        tests.sort_by(|one, other| other.0.total_cmp(&one.0));
        let _ = writeln!(text, "{:>8}  the slowest tests", "wall s");
        for (seconds, name) in tests.into_iter().take(SLOWEST) {
            let _ = writeln!(text, "{seconds:8.1}  {name}");
        }
        text.push('\n');
        text
    }
}

/// Splits `ok <1.250s>` into the verdict and the seconds.
fn split_time(verdict: &str) -> (&str, Option<f64>) {
    let parts =
        verdict.rsplit_once(" <").and_then(|(before, time)| Some((before, time.strip_suffix("s>")?.parse().ok()?)));
    parts.map_or((verdict, None), |(before, seconds)| (before, Some(seconds)))
}

fn is_ok(verdict: &str) -> bool {
    verdict.split('\u{1b}').any(|part| part == "ok" || part.ends_with("mok"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_add_up() {
        let mut tally = Tally::default();
        for line in [
            "running 4 tests\n",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.07s\n",
            "test result: \u{1b}[31mFAILED\u{1b}[m. 2 passed; 5 failed; 0 ignored; 0 measured; 9 filtered out\n",
            "test test result: 9 passed ... ok\n",
        ] {
            tally.add("p", line);
        }
        assert_eq!(tally, Tally { passed: 5, failed: 5, ignored: 1, ..Tally::default() });
    }

    #[test]
    fn guests_that_are_ok_are_known_by_name() {
        let mut tally = Tally::default();
        for line in [
            "test vm_plain ... ok\n",
            "test vm_timed ... ok <0.250s>\n",
            "test vm_coloured ... \u{1b}[32mok\u{1b}(B\u{1b}[m\n",
            "test vm_panics - should panic ... ok\n",
            "test vm_fails ... FAILED\n",
            "test vm_fails_late ... FAILED <2.000s>\n",
            "test vm_fails_in_red ... \u{1b}[31mFAILED\u{1b}[m\n",
            "test vm_later ... ignored, no time\n",
            "test vm_slow has been running for over 60 seconds\n",
            "test no_vm_ ... ok\n",
            "test module::vm_inside ... ok\n",
            "test vm::boots ... ok\n",
            "the test vm_told ... ok\n",
        ] {
            tally.add("p", line);
        }
        let names: Vec<&str> = tally.vm_ok.iter().map(String::as_str).collect();
        assert_eq!(names, ["vm_coloured", "vm_inside", "vm_panics", "vm_plain", "vm_timed"]);
    }

    fn run_scripts(texts: &[&str]) -> (String, Tally, String) {
        let (mut tally, mut shown, mut complaints) = (Tally::default(), Vec::new(), String::new());
        for text in texts {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            complaints += &run_program(command, text, &mut shown, &mut tally).expect("sh starts");
        }
        (complaints, tally, String::from_utf8(shown).expect("text"))
    }

    #[test]
    fn programs_are_run_and_read() {
        let (complaint, tally, shown) = run_scripts(&[
            "echo 'test a ... ok <1.500s>'; echo 'test m::b ... ok <2.250s>'; echo 'test result: ok. 2 passed; 0 failed'",
            "exit 101",
        ]);
        assert_eq!((complaint.as_str(), tally.passed), ("exit status: 101", 2));
        assert!(shown.starts_with("test a ... ok"), "{shown}");
        let text = tally.slowest();
        let (programs, tests) = text.split_once("\n\n").expect("two parts");
        assert!(programs.ends_with("all 2 test programs"), "{text}");
        let lines: Vec<&str> = tests.lines().map(str::trim_start).collect();
        assert!(lines[1].starts_with("2.2  ") && lines[1].ends_with(" m::b"), "{text}");
        assert!(lines[2].starts_with("1.5  ") && lines[2].ends_with(" a"), "{text}");
        assert_eq!(Tally::default().slowest(), "");
    }

    #[test]
    fn a_run_without_a_test_is_a_complaint() {
        let nothing = run(&[], Some("x"), &[], &mut Vec::new(), &mut Tally::default()).expect("it runs");
        assert!(nothing.starts_with("no test ran"), "{nothing}");
        let missing = Program { name: "gone".to_owned(), executable: "/nowhere/at/all".into(), folder: "/".into() };
        let error = run(&[missing], None, &[], &mut Vec::new(), &mut Tally::default()).expect_err("it is not there");
        assert_eq!(error.to_string(), "gone");
    }
}
