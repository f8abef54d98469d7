//! `cargo xtask swarm`: simulated runs drawn at random, each in a process of its own; what fails is made smaller and kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use anyhow::{Context, Result};
use cargo_metadata::Metadata;
use clap::Args;
use lab::swarm::{self, Case, Ran};
use linux::host::monotonic_ns;
use nix::sys::resource::{Resource, setrlimit};

/// CPU seconds that a case may take.
const CPU_S: u64 = 120;
/// Most smaller cases that are tried of a failing case.
const SMALLER_MAX: usize = 80;
/// An event that comes less often than this over all cases is named.
const EVENTS_LEAST: u64 = 5;
/// Reasons, and ends without a result, that are printed.
const REASONS: usize = 12;
/// Status of a case that cannot run, as of any user's mistake.
const REFUSED: u8 = 2;
/// Begin of what is said of a case that did not panic.
const WITHOUT_PLACE: &str = "its process was";
/// Time between two lines of progress.
const PROGRESS_NS: u64 = 15_000_000_000;

/// The options: which cases are drawn.
#[derive(Args)]
pub(crate) struct Options {
    /// The seed that all cases follow from; a new one when not given
    #[arg(long)]
    seed: Option<String>,
    /// The first case
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many cases; else as many as come in `--minutes`
    #[arg(long)]
    cases: Option<u64>,
    /// For how long cases are begun
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Cases at a time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=256))]
    jobs: u64,
    /// Run this case alone, in this process: the file that a failure left
    #[arg(long, conflicts_with_all = ["seed", "from", "cases", "minutes", "jobs"])]
    case: Option<PathBuf>,
}

/// A case that found a mistake.
struct Failure {
    number: u64,
    case: Case,
    how: String,
}

/// The sum over all cases.
#[derive(Default)]
struct Sum {
    cases: u64,
    /// Why cases cannot run, and how many.
    refused: BTreeMap<String, u64>,
    cells: u64,
    faults: u64,
    events: BTreeMap<String, u64>,
    without_result: BTreeSet<String>,
    failures: Vec<Failure>,
}

pub(crate) fn run(workspace: &Metadata, options: &Options) -> Result<ExitCode> {
    if let Some(file) = &options.case {
        return alone(file);
    }
    let seed = options.seed.clone().unwrap_or_else(|| format!("{:x}", monotonic_ns()));
    let folder = workspace.target_directory.as_std_path().join("swarm");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    eprintln!("seed {seed}");
    let program = std::env::current_exe().context("this program's own file")?;
    let sum = Mutex::new(Sum::default());
    let start_ns = monotonic_ns();
    let (next, said_ns) = (AtomicU64::new(options.from), AtomicU64::new(start_ns));
    let is_over = |number: u64| match options.cases {
        Some(cases) => number >= options.from.saturating_add(cases),
        None => monotonic_ns() - start_ns >= options.minutes * 60_000_000_000,
    };
    thread::scope(|scope| -> Result<()> {
        let work = || -> Result<()> {
            // Bound: cases, or time.
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if is_over(number) {
                    return Ok(());
                }
                let case = swarm::case(&seed, number);
                let room = tempfile::tempdir().context("a temporary directory")?;
                let case = case.runnable(room.path()).unwrap_or(case);
                let tried = Tried::of(&program, &folder, &format!("{seed}-{number}"), &case)?;
                let mut sum = sum.lock().expect("no thread panicked");
                sum.add(number, case, tried);
                let now_ns = monotonic_ns();
                if now_ns - said_ns.load(Ordering::Relaxed) > PROGRESS_NS {
                    said_ns.store(now_ns, Ordering::Relaxed);
                    let (cases, failed) = (sum.cases, sum.failures.len());
                    eprintln!("{cases} cases, {failed} failed, {} s", (now_ns - start_ns) / 1_000_000_000);
                }
            }
        };
        let threads: Vec<_> = (0..options.jobs).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panicked"))
    })?;
    let sum = sum.into_inner().expect("no thread panicked");
    for Failure { number, case, how } in &sum.failures {
        println!("case {number} failed: {how}");
        // Without a place it has taken all of its time, and smaller cases would take theirs.
        let small = if how.starts_with(WITHOUT_PLACE) { case.clone() } else { smallest(&program, &folder, case, how)? };
        let file = folder.join(format!("failed-{seed}-{number}.json"));
        fs::write(&file, serde_json::to_vec_pretty(&small)?).with_context(|| file.display().to_string())?;
        println!("  this runs it again, as small as it could be made: cargo xtask swarm --case {}", file.display());
    }
    print!("{}", sum.text(&seed));
    Ok(crate::code(sum.failures.len()))
}

/// Runs a case in this process: its verdict is the process's end.
fn alone(file: &Path) -> Result<ExitCode> {
    let text = fs::read(file).with_context(|| file.display().to_string())?;
    let case: Case = serde_json::from_slice(&text).with_context(|| file.display().to_string())?;
    setrlimit(Resource::RLIMIT_CPU, CPU_S, CPU_S).context("a limit of CPU time")?;
    let room = tempfile::tempdir().context("a temporary directory")?;
    match case.run(room.path()) {
        Ok(ran) => {
            serde_json::to_writer(io::stdout(), &ran)?;
            io::stdout().write_all(b"\n")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(reason) => {
            eprintln!("xtask: this case cannot run: {reason}");
            Ok(ExitCode::from(REFUSED))
        }
    }
}

/// The outcome of a case.
enum Tried {
    Ran(Ran),
    /// Why it cannot run.
    Refused(String),
    /// The first line of what its process said, or how it ended.
    Failed(String),
}

impl Tried {
    /// Runs a case in a process of its own.
    fn of(program: &Path, folder: &Path, name: &str, case: &Case) -> Result<Self> {
        let file = folder.join(format!("case-{name}.json"));
        fs::write(&file, serde_json::to_vec(case)?).with_context(|| file.display().to_string())?;
        let mut command = Command::new(program);
        let output = command.args(["swarm", "--case"]).arg(&file).output().context("a case's process");
        fs::remove_file(&file).with_context(|| file.display().to_string())?;
        let Output { status, stdout, stderr } = output?;
        match status.code() {
            Some(0) => Ok(Self::Ran(serde_json::from_slice(&stdout).context("what a case prints")?)),
            Some(code) if code == i32::from(REFUSED) => {
                let stderr = String::from_utf8_lossy(&stderr);
                Ok(Self::Refused(stderr.lines().next().unwrap_or_default().to_owned()))
            }
            _ => Ok(Self::Failed(how(&String::from_utf8_lossy(&stderr), &linux::process::ending(status)))),
        }
    }
}

/// The place and the message of a panic, in one line.
fn how(stderr: &str, ending: &str) -> String {
    let mut lines = stderr.lines().skip_while(|line| !line.contains("panicked at"));
    match (lines.next(), lines.next()) {
        (Some(place), message) => {
            let place = place.split_once("panicked at ").map_or(place, |(_, place)| place);
            format!("{place} {}", message.unwrap_or_default())
        }
        (None, _) => format!("{WITHOUT_PLACE} {ending} (a case may take {CPU_S} s of CPU time)"),
    }
}

/// The smallest case that fails in the same way.
fn smallest(program: &Path, folder: &Path, case: &Case, how: &str) -> Result<Case> {
    let mut small = case.clone();
    let mut tries = 0;
    // Bound: each turn has a smaller case, and tries are counted.
    'smaller: loop {
        for smaller in small.smaller() {
            if tries == SMALLER_MAX {
                break 'smaller;
            }
            tries += 1;
            let of_smaller = Tried::of(program, folder, "smaller", &smaller)?;
            if matches!(&of_smaller, Tried::Failed(other) if place(other) == place(how)) {
                small = smaller;
                continue 'smaller;
            }
        }
        break;
    }
    Ok(small)
}

/// A message with nought for each number, so that like ones are one.
fn without_numbers(message: &str) -> String {
    let mut text = String::new();
    for character in message.chars().take(160) {
        match character {
            '0'..='9' if text.ends_with('0') => {}
            '0'..='9' => text.push('0'),
            other => text.push(other),
        }
    }
    text
}

/// The place of a panic: its message has numbers that differ.
fn place(how: &str) -> &str {
    how.split_whitespace().next().unwrap_or_default()
}

impl Sum {
    fn add(&mut self, number: u64, case: Case, tried: Tried) {
        self.cases += 1;
        match tried {
            Tried::Refused(reason) => *self.refused.entry(without_numbers(&reason)).or_default() += 1,
            Tried::Failed(how) => {
                eprintln!("case {number} failed: {how}");
                self.failures.push(Failure { number, case, how });
            }
            Tried::Ran(ran) => {
                self.cells += ran.cells;
                self.faults += ran.faults;
                self.without_result.extend(ran.without_result);
                for (event, count) in ran.events {
                    *self.events.entry(event).or_default() += count;
                }
            }
        }
    }

    fn text(&self, seed: &str) -> String {
        let Self { cases, cells, faults, failures, .. } = self;
        let refused: u64 = self.refused.values().sum();
        let rare = |event: &&str| self.events.get(*event).is_none_or(|count| *count < EVENTS_LEAST);
        let rare: Vec<_> = swarm::events().filter(rare).collect();
        let mut text = format!(
            "seed {seed}: {cases} cases, {refused} of which cannot run; {cells} cells with a result, {} kinds of ends without; \
             {faults} allocations failed or kernel threads late; {} cases failed\n",
            self.without_result.len(),
            failures.len()
        );
        let mut reasons: Vec<_> = self.refused.iter().map(|(reason, count)| (count, reason)).collect();
        reasons.sort_unstable_by(|a, b| b.cmp(a));
        text += &reasons
            .iter()
            .take(REASONS)
            .map(|(count, reason)| format!("  {count} cannot run: {reason}\n"))
            .collect::<String>();
        text += &self
            .without_result
            .iter()
            .take(REASONS)
            .map(|end| format!("  ended without a result: {end}\n"))
            .collect::<String>();
        text += &format!("{} events came fewer than {EVENTS_LEAST} times: {}\n", rare.len(), rare.join(" "));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_its_place_and_its_message() {
        let stderr = "\nthread 'main' (7) panicked at crates/mm/src/lru.rs:7:9:\nno frame 12\nnote: run with";
        assert_eq!(how(stderr, "ended"), "crates/mm/src/lru.rs:7:9: no frame 12");
        assert_eq!(place(&how(stderr, "ended")), "crates/mm/src/lru.rs:7:9:");
        assert!(how("", "was killed by SIGXCPU").contains("SIGXCPU"));
    }
}
