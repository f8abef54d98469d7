//! `cargo xtask bench`: the benchmarks of the crates, and long simulated runs of this tree paired with runs of another commit.

use std::{collections::BTreeMap, fmt, path::Path, process::Command};

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

    /// Count instead of timing: steps, and instructions by callgrind where valgrind is installed, for each unit of a run's work.
    /// With --against beside the commit's
    #[arg(long)]
    counts: bool,
}

/// The benchmarks, with cargo's own runner: crate and name.
const BENCHES: [(&str, &str); 2] = [("lab", "fault_loop"), ("mm", "speed")];

const ONE_RUN: Program = Program {
    path: "release/examples/one_run",
    arguments: &["--workspace", "--example", "one_run"],
    shared: Some("crates/lab/examples/one_run.rs"),
};

/// A simulated run of a second at most, so that callgrind takes a minute at most, and the unit of its work.
struct Run {
    name: &'static str,
    arguments: &'static str,
    /// The unit, and the counters whose sum says how many there were.
    unit: (&'static str, &'static [&'static str]),
}

const FAULT: (&str, &[&str]) = ("fault", &["pgfault"]);
const SCANNED: (&str, &[&str]) = ("page scanned", &["pgscan_kswapd", "pgscan_direct"]);
/// A counter is in KiB.
const FROM_DISK: (&str, &[&str]) = ("KiB of the disk", &["pgpgin", "pgpgout"]);
const MILLISECOND: (&str, &[&str]) = ("virtual ms", &["virtual_ms"]);

const RUNS: [Run; 9] = [
    Run {
        name: "fault-storm, base pages",
        arguments: "one-node-4g fault-storm page=base size=1GiB iterations=16 warmup=0",
        unit: FAULT,
    },
    Run {
        name: "fault-storm, huge pages",
        arguments: "one-node-4g fault-storm page=huge size=2GiB iterations=256 warmup=0",
        unit: FAULT,
    },
    Run { name: "thpscale", arguments: "two-node-2g thpscale threads=3 size=80% advise=no", unit: SCANNED },
    Run { name: "thpfioscale", arguments: "one-node-512m thpfioscale threads=3 kernel=v4.20", unit: SCANNED },
    Run { name: "small-files", arguments: "one-node-512m small-files", unit: FROM_DISK },
    Run { name: "slab-churn", arguments: "one-node-512m slab-churn", unit: FROM_DISK },
    Run {
        name: "numa-access",
        arguments: "four-socket-8g numa-access pattern=random policy=interleave threads=16 rounds=100 size=128MiB",
        unit: MILLISECOND,
    },
    Run {
        name: "numa01",
        arguments: "e7-4807-4s autonumabench program=numa01 rounds=2% kernel=v3.9 kernel.numa_balancing=1",
        unit: MILLISECOND,
    },
    Run {
        name: "warehouses",
        arguments: "e7-4807-4s warehouses threads=43 seconds=2 kernel=v3.9 kernel.numa_balancing=1",
        unit: MILLISECOND,
    },
];

/// Pairs of runs whose wall time is taken; odd, for the median.
const PAIRS: usize = 9;
const CALLGRIND: &str = "valgrind";

/// Runs them, and returns how many failed.
pub(crate) fn run(workspace: &Metadata, options: &Options) -> Result<usize> {
    if options.against.is_none() && !options.counts {
        return benches(workspace);
    }
    let base = options.against.as_ref().map(|commit| Base::of(workspace, commit, &ONE_RUN)).transpose()?;
    let room = tempfile::tempdir().context("a temporary directory")?;
    let ours = ONE_RUN.of_this_tree(workspace, room.path())?;
    if let Some(base) = &base {
        println!("this tree against {}, whose figures are in brackets", base.name());
    }
    let counts = has_callgrind();
    if !counts {
        println!("no instructions: {CALLGRIND} is not on PATH; Debian's package {CALLGRIND} has it");
    }
    for Run { name, arguments, unit: (unit, counters) } in &RUNS {
        let sides = Sides { ours: &ours, base: base.as_ref().map(Base::program), arguments };
        let counted = sides.all(one_run_counts)?;
        let of = |names: &[&str]| counted.iter().map(|counts| units(counts, names)).collect::<Result<Vec<u64>>>();
        let units = of(counters)?;
        println!("{name}: {} times: {unit}", units[0]);
        if units.iter().any(|number| *number != units[0]) {
            println!("  {} of the base: not the same run", units[1]);
        }
        println!("  steps {}", Figures { sums: of(&["steps"])?, units: &units, unit });
        if counts {
            println!("  instructions {}", Figures { sums: sides.all(instructions)?, units: &units, unit });
        }
        if let (Some(base), false) = (sides.base, options.counts) {
            println!("  wall time ns {}", wall_times(&sides, base, (&units, unit))?);
        }
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

/// A run by this tree's program, and by the base's if there is one.
struct Sides<'a> {
    ours: &'a Path,
    base: Option<&'a Path>,
    arguments: &'a str,
}

impl Sides<'_> {
    /// A figure of ours, and of the base's; both at the same time, as it must not depend on what else the machine does.
    fn all<T: Send>(&self, figure: impl Fn(&Path, &str) -> Result<T> + Sync) -> Result<Vec<T>> {
        let programs: Vec<&Path> = std::iter::once(self.ours).chain(self.base).collect();
        in_parallel(2, &programs, |program| figure(program, self.arguments)).into_iter().collect()
    }
}

/// Wall times of runs in turn, so that what slows the machine slows both sides: the median pair, and the extremes.
fn wall_times(sides: &Sides<'_>, base: &Path, (units, unit): (&[u64], &str)) -> Result<String> {
    let pairs = (0..PAIRS).map(|_| {
        let sums = vec![wall_ns(sides.ours, sides.arguments)?, wall_ns(base, sides.arguments)?];
        Ok(Figures { sums, units, unit })
    });
    let mut pairs: Vec<Figures<'_>> = pairs.collect::<Result<_>>()?;
    let percent = |pair: &Figures<'_>| pair.percent().expect("a pair has two sides");
    pairs.sort_by(|one, other| percent(one).total_cmp(&percent(other)));
    let [least, most] = [0, pairs.len() - 1].map(|at| percent(&pairs[at]));
    Ok(format!("{}; {least:+.1} to {most:+.1} %", pairs[pairs.len() / 2]))
}

/// One figure of this tree's run, and of the base's if there is one, with how much work each run did.
struct Figures<'a> {
    sums: Vec<u64>,
    units: &'a [u64],
    unit: &'a str,
}

impl Figures<'_> {
    /// How much more ours takes in all, in percent.
    fn percent(&self) -> Option<f64> {
        let [ours, base] = self.sums.as_slice() else { return None };
        Some((*ours as f64 / *base as f64 - 1.0) * 100.0)
    }
}

impl fmt::Display for Figures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<f64> = self.sums.iter().zip(self.units).map(|(sum, units)| *sum as f64 / *units as f64).collect();
        write!(f, "{:.1} a {}", each[0], self.unit)?;
        match self.percent() {
            Some(percent) => write!(f, " ({:.1}): {percent:+.2} %", each[1]),
            None => Ok(()),
        }
    }
}

/// The counts of a run.
fn one_run_counts(program: &Path, arguments: &str) -> Result<BTreeMap<String, u64>> {
    let printed = output(&mut one_run(program, arguments))?.0;
    serde_json::from_str(&printed).with_context(|| format!("one_run printed {printed:?}; expected counts as JSON"))
}

/// The sum of some counts of a run, which is not nought.
fn units(counts: &BTreeMap<String, u64>, names: &[&str]) -> Result<u64> {
    let sum = names.iter().filter_map(|name| counts.get(*name)).sum();
    ensure!(sum > 0, "the run has none of {}", names.join(", "));
    Ok(sum)
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
    fn figures_are_by_unit_and_beside_the_base_s() {
        let of = |sums: &[u64]| Figures { sums: sums.to_vec(), units: &[10, 10], unit: "fault" };
        assert_eq!(of(&[102, 100]).to_string(), "10.2 a fault (10.0): +2.00 %");
        assert_eq!(of(&[102]).to_string(), "10.2 a fault");
        let counts = BTreeMap::from([("pgpgin".to_owned(), 3), ("steps".to_owned(), 8)]);
        assert_eq!(units(&counts, &["pgpgin", "pgpgout"]).unwrap(), 3);
        assert!(units(&counts, &["pgfault"]).unwrap_err().to_string().contains("none of pgfault"));
    }
}
