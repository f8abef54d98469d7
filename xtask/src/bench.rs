//! `cargo xtask bench`: the benchmarks of the crates, and long simulated runs of this tree paired with runs of another commit.

use std::{fmt, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;
use clap::Args;
use linux::host::monotonic_ns;

use crate::{
    base::{Base, Program},
    pool::in_parallel,
    test::cargo_command,
};

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct Options {
    /// Pair this tree with a commit instead: instructions by callgrind, where valgrind is installed, and wall time
    #[arg(long, value_name = "COMMIT")]
    against: Option<String>,
}

/// The benchmarks, with cargo's own runner: crate and name.
const BENCHES: [(&str, &str); 2] = [("lab", "fault_loop"), ("mm", "speed")];

const ONE_RUN: Program = Program {
    path: "release/examples/one_run",
    arguments: &["--workspace", "--example", "one_run"],
    shared: Some("crates/lab/examples/one_run.rs"),
};

/// Runs that are paired: half a second each, so that what a run takes before its first fault is a hundredth of it.
const RUNS: [(&str, &str); 4] = [
    ("fault-storm, base pages", "one-node-4g fault-storm page=base size=1GiB iterations=16 warmup=0"),
    ("fault-storm, huge pages", "one-node-4g fault-storm page=huge size=2GiB iterations=256 warmup=0"),
    ("thpscale", "two-node-2g thpscale threads=3 size=80% advise=no"),
    ("accesses", "four-socket-8g numa-access pattern=random policy=interleave threads=16 rounds=100 size=128MiB"),
];

/// Pairs of runs whose wall time is taken; odd, for the median.
const PAIRS: usize = 9;
const CALLGRIND: &str = "valgrind";

/// Runs them, and returns how many failed.
pub(crate) fn run(workspace: &Metadata, options: &Options) -> Result<usize> {
    let Some(commit) = &options.against else { return benches(workspace) };
    let base = Base::of(workspace, commit, &ONE_RUN)?;
    let room = tempfile::tempdir().context("a temporary directory")?;
    let ours = ONE_RUN.of_this_tree(workspace, room.path())?;
    println!("this tree against {}, whose figures are in brackets", base.name());
    let counts = has_callgrind();
    if !counts {
        println!("no instructions: {CALLGRIND} is not on PATH; Debian's package {CALLGRIND} has it");
    }
    for (name, arguments) in RUNS {
        let sides = Sides { ours: &ours, base: base.program(), arguments };
        println!("{name}");
        let faults = sides.both(faults)?;
        if faults[0] != faults[1] {
            println!("  {} faults ({}): not the same run", faults[0], faults[1]);
        }
        if counts {
            println!("  instructions {}", Pair { figures: sides.both(instructions)?, faults });
        }
        println!("  wall time ns {}", sides.wall_times(faults)?);
    }
    Ok(0)
}

fn benches(workspace: &Metadata) -> Result<usize> {
    let mut failed = 0;
    for (krate, bench) in BENCHES {
        let arguments = ["bench", "--quiet", "--package", krate, "--bench", bench];
        let status = cargo_command(workspace, &arguments).status();
        failed += usize::from(!status.context("cargo bench")?.success());
    }
    Ok(failed)
}

/// Figures of one run by two programs.
struct Sides<'a> {
    ours: &'a Path,
    base: &'a Path,
    arguments: &'a str,
}

impl Sides<'_> {
    /// A figure of ours, and of the base's; both at the same time, as it must not depend on what else the machine does.
    fn both(&self, figure: impl Fn(&Path, &str) -> Result<u64> + Sync) -> Result<[u64; 2]> {
        let figures = in_parallel(2, &[self.ours, self.base], |program| figure(program, self.arguments));
        let [ours, base] = <[_; 2]>::try_from(figures).expect("two jobs have two results");
        Ok([ours?, base?])
    }

    /// Wall times of runs in turn, so that what slows the machine slows both sides.
    fn wall_times(&self, faults: [u64; 2]) -> Result<Walls> {
        let pairs = (0..PAIRS).map(|_| {
            let figures = [wall_ns(self.ours, self.arguments)?, wall_ns(self.base, self.arguments)?];
            Ok(Pair { figures, faults })
        });
        Ok(Walls::new(pairs.collect::<Result<_>>()?))
    }
}

/// One figure of this tree's run and of the base's, and the page faults of each.
#[derive(Clone, Copy)]
struct Pair {
    figures: [u64; 2],
    faults: [u64; 2],
}

impl Pair {
    /// How much more ours takes in all, in percent.
    fn percent(&self) -> f64 {
        (self.figures[0] as f64 / self.figures[1] as f64 - 1.0) * 100.0
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ours, base] = [0, 1].map(|side| self.figures[side] as f64 / self.faults[side] as f64);
        write!(f, "{ours:.1} a fault ({base:.1}): {:+.2} %", self.percent())
    }
}

/// Wall times of pairs: the median pair, and the extremes.
struct Walls {
    sorted: Vec<Pair>,
}

impl Walls {
    fn new(mut pairs: Vec<Pair>) -> Self {
        pairs.sort_by(|one, other| one.percent().total_cmp(&other.percent()));
        Self { sorted: pairs }
    }
}

impl fmt::Display for Walls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (&self.sorted[0], &self.sorted[self.sorted.len() - 1]);
        write!(f, "{}; {:+.1} to {:+.1} %", self.sorted[self.sorted.len() / 2], least.percent(), most.percent())
    }
}

/// Page faults of a run.
fn faults(program: &Path, arguments: &str) -> Result<u64> {
    let printed = output(&mut one_run(program, arguments))?.0;
    printed.trim().parse().with_context(|| format!("one_run printed {printed:?}; expected a number of faults"))
}

fn wall_ns(program: &Path, arguments: &str) -> Result<u64> {
    let start = monotonic_ns();
    output(&mut one_run(program, arguments))?;
    Ok(monotonic_ns() - start)
}

/// Instructions of a run, from its first to its last.
fn instructions(program: &Path, arguments: &str) -> Result<u64> {
    let mut command = Command::new(CALLGRIND);
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(program).args(arguments.split(' '));
    let said = output(&mut command)?.1;
    collected(&said).with_context(|| format!("callgrind does not say how many instructions it collected:\n{said}"))
}

/// The sum that callgrind ends with: `==123== Collected : 1041181230`.
fn collected(said: &str) -> Option<u64> {
    said.lines().rev().find_map(|line| line.split_once("Collected : ")?.1.split(' ').next()?.parse().ok())
}

fn one_run(program: &Path, arguments: &str) -> Command {
    let mut command = Command::new(program);
    command.args(arguments.split(' '));
    command
}

/// Standard output and standard error of a command that ends well.
fn output(command: &mut Command) -> Result<(String, String)> {
    let name = command.get_program().display().to_string();
    // Where no machines lie about: each program has its own.
    let output = command.current_dir(std::env::temp_dir()).output().with_context(|| name.clone())?;
    let [printed, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ensure!(output.status.success(), "{name} {}: {said}", output.status);
    Ok((printed, said))
}

fn has_callgrind() -> bool {
    Command::new(CALLGRIND).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrind_s_sum_is_found() {
        let said = "==7== Events    : Ir\n==7== Collected : 1041181230\n==7== \n==7== I   refs:      1,041,181,230\n";
        assert_eq!(collected(said), Some(1_041_181_230));
        assert_eq!(collected("valgrind: cannot run"), None);
    }

    #[test]
    fn a_pair_reports_the_time_per_fault_and_its_change() {
        let pair = Pair { figures: [102, 100], faults: [10, 10] };
        assert_eq!(pair.to_string(), "10.2 a fault (10.0): +2.00 %");
        let pairs = [98, 130, 101].map(|ours| Pair { figures: [ours, 100], faults: [10, 10] });
        assert_eq!(Walls::new(pairs.to_vec()).to_string(), "10.1 a fault (10.0): +1.00 %; -2.0 to +30.0 %");
    }
}
