//! `cargo xtask calibration`: is the simulator right about this host, with the prices that `pagelab calibrate` gives it?
//!
//! No price comes from the benchmarks that are compared here, so all of this is prediction. What is measured on the host is
//! measured in the same round as the prices: both are slow while the machine is busy.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;

use crate::test::cargo_command;

const ROUNDS: usize = 3;
/// How long each calibration takes.
const SECONDS: &str = "6";

/// One run of an experiment on each side.
struct Trial {
    name: &'static str,
    arguments: &'static [&'static str],
}

const TRIALS: [Trial; 3] = [
    Trial { name: "faults", arguments: &["fault-storm", "--set", "tasks=1,2", "--set", "iterations=6"] },
    Trial {
        name: "munmap",
        arguments: &[
            "fault-storm",
            "--memory",
            "3GiB",
            "--set",
            "tasks=1",
            "--set",
            "model=threads",
            "--set",
            "page=base,huge",
            "--set",
            "size=1GiB",
            "--set",
            "iterations=3",
        ],
    },
    Trial { name: "fork", arguments: &["fork-storm"] },
];

/// Values by trial, metric and case.
type Values = BTreeMap<(&'static str, String, String), f64>;

/// A line of the table.
struct Row {
    what: &'static str,
    /// How far the simulator may be off, in percent; nothing where no bound was set.
    wanted: Option<f64>,
    unit: &'static str,
    of: fn(&Trials<'_>) -> f64,
}

struct Trials<'a>(&'a Values);

impl Trials<'_> {
    fn get(&self, trial: &'static str, metric: &str, case: &str) -> f64 {
        self.0.get(&(trial, metric.to_owned(), case.to_owned())).copied().unwrap_or(f64::NAN)
    }

    fn fault(&self, case: &str) -> f64 {
        self.get("faults", "fault_latency_ns.Amean", case)
    }

    /// Threads against processes.
    fn shared(&self, page: &str) -> f64 {
        let rate = |model: &str| self.get("faults", "faults_per_second.Hmean", &format!("{page}-{model}-2"));
        rate("threads") / rate("processes")
    }

    /// A fork of 128 MiB, and the faults of the child that writes all of it, in milliseconds.
    fn fork_and_copy(&self, page: &str) -> f64 {
        let copy = self.get("fork", "copy_fault_latency_ns.Amean", page) * PAGES_OF_FORK;
        (self.get("fork", "fork_latency_ns.Amean", page) + copy) / 1e6
    }

    /// Of 1 GiB, in milliseconds.
    fn munmap(&self, page: &str) -> f64 {
        self.get("munmap", "unmap_latency_per_page_ns.Amean", &format!("{page}-threads-1")) * PAGES_OF_MUNMAP / 1e6
    }
}

const PAGES_OF_FORK: f64 = 32_768.0;
const PAGES_OF_MUNMAP: f64 = 262_144.0;

#[rustfmt::skip]
const ROWS: [Row; 12] = [
    Row { what: "base fault", wanted: Some(20.0), unit: "ns", of: |t| t.fault("base-threads-1") },
    Row { what: "huge fault", wanted: Some(20.0), unit: "ns", of: |t| t.fault("huge-threads-1") },
    Row { what: "2 threads against 2 processes, base", wanted: Some(15.0), unit: "", of: |t| t.shared("base") },
    Row { what: "2 threads against 2 processes, huge", wanted: Some(15.0), unit: "", of: |t| t.shared("huge") },
    Row { what: "fork + COW of 128 MiB, base", wanted: Some(30.0), unit: "ms", of: |t| t.fork_and_copy("base") },
    Row { what: "fork + COW of 128 MiB, huge", wanted: Some(30.0), unit: "ms", of: |t| t.fork_and_copy("huge") },
    Row { what: "munmap of 1 GiB, base", wanted: Some(30.0), unit: "ms", of: |t| t.munmap("base") },
    Row { what: "munmap of 1 GiB, huge", wanted: Some(30.0), unit: "ms", of: |t| t.munmap("huge") },
    Row { what: "fork alone, base", wanted: None, unit: "ns", of: |t| t.get("fork", "fork_latency_ns.Amean", "base") },
    Row { what: "fork alone, huge", wanted: None, unit: "ns", of: |t| t.get("fork", "fork_latency_ns.Amean", "huge") },
    Row { what: "copy fault, base", wanted: None, unit: "ns", of: |t| t.get("fork", "copy_fault_latency_ns.Amean", "base") },
    Row { what: "reuse fault, base", wanted: None, unit: "ns", of: |t| t.get("fork", "reuse_fault_latency_ns.Amean", "base") },
];

pub(crate) fn run(workspace: &Metadata) -> Result<()> {
    let built = cargo_command(workspace, &["build", "--release", "--bin", "pagelab"]).status().context("cargo")?;
    ensure!(built.success(), "cargo build: {built}");
    let program = workspace.target_directory.join("release/pagelab");
    let room = tempfile::tempdir().context("a temporary directory")?;
    let (mut host, mut sim) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        let at = room.path().join(round.to_string());
        fs::create_dir(&at)?;
        pagelab(program.as_std_path(), &at, &["calibrate", "-o", "here.toml", "--seconds", SECONDS])?;
        host.push(values(program.as_std_path(), &at, &["--target", "host"])?);
        let simulated = ["--target", "sim", "--variant", "host", "--machine", "here.toml"];
        sim.push(values(program.as_std_path(), &at, &simulated)?);
    }
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("medians of {ROUNDS} rounds; load {}", load.trim());
    print!("{}", table(&host, &sim));
    Ok(())
}

fn table(host: &[Values], sim: &[Values]) -> String {
    let mut text = format!("{:<38}{:>14}{:>14}{:>9}{:>9}  within\n", "", "host", "sim", "ratio", "wanted");
    for Row { what, wanted, unit, of } in ROWS {
        let side = |side: &[Values]| median(side.iter().map(|values| of(&Trials(values))).collect());
        let (host, sim) = (side(host), side(sim));
        let off = (sim / host - 1.0) * 100.0;
        let within = match wanted {
            None => "",
            Some(wanted) if off.abs() <= wanted => "yes",
            Some(_) => "no",
        };
        let wanted = wanted.map_or(String::new(), |wanted| format!("{wanted} %"));
        let [host, sim] = [host, sim].map(|value| format!("{value:.2} {unit}"));
        text += &format!("{what:<38}{host:>14}{sim:>14}{:>9.2}{wanted:>9}  {within}\n", 1.0 + off / 100.0);
    }
    text
}

/// All trials on one side.
fn values(program: &Path, at: &Path, side: &[&str]) -> Result<Values> {
    let mut values = Values::new();
    for Trial { name, arguments } in TRIALS {
        let result = format!("{name}-{}", side[1]);
        let mut command = vec!["run"];
        command.extend_from_slice(arguments);
        command.extend_from_slice(side);
        command.extend_from_slice(&["--format", "csv", "-o", &result]);
        // experiment,metric,case,kernel,value,low,high
        for line in pagelab(program, at, &command)?.lines().skip(1) {
            if let [_, metric, case, _, value, ..] = line.split(',').collect::<Vec<_>>()[..]
                && let Ok(value) = value.parse()
            {
                values.insert((name, metric.to_owned(), case.to_owned()), value);
            }
        }
    }
    Ok(values)
}

/// What it prints.
fn pagelab(program: &Path, at: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).current_dir(at).output().context("pagelab")?;
    if !output.status.success() {
        bail!("pagelab {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(ns: f64) -> Values {
        let fault = |case: &str| (("faults", "fault_latency_ns.Amean".to_owned(), case.to_owned()), ns);
        [fault("base-threads-1"), fault("huge-threads-1")].into()
    }

    #[test]
    fn a_line_compares_medians_and_what_is_missing_is_not_within() {
        let text = table(&[measured(100.0), measured(90.0), measured(5_000.0)], &[measured(119.0)]);
        let line = |what: &str| text.lines().find(|line| line.starts_with(what)).unwrap().to_owned();
        assert!(line("base fault").ends_with("100.00 ns     119.00 ns     1.19     20 %  yes"), "{text}");
        let text = table(&[measured(100.0)], &[measured(121.0)]);
        assert!(text.lines().nth(1).unwrap().ends_with("1.21     20 %  no"), "{text}");
        assert!(line("munmap of 1 GiB, base").ends_with(" no"), "{text}");
    }
}
