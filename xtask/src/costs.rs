//! `cargo xtask costs`: the CPU seconds that one seed of each experiment takes, written into the experiment's file.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;
use clap::Args;
use lab::experiment::{COST_HEAD, Experiment};
use nix::sys::{
    resource::{Usage, UsageWho, getrusage},
    time::TimeValLike,
};

use crate::{base::PAGELAB, pool::Clock};

const FOLDER: &str = "experiments";
const SIM: &str = "sim";

/// Which experiments.
#[derive(Args)]
pub(crate) struct Options {
    /// Only experiments whose name contains this
    filter: Option<String>,
    /// Only experiments whose file has no cost yet
    #[arg(long)]
    missing: bool,
}

/// Measures and writes; returns how many experiments failed.
pub(crate) fn run(workspace: &Metadata, options: &Options) -> Result<usize> {
    let folder = workspace.workspace_root.as_std_path().join(FOLDER);
    let mut wanted = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let experiment = Experiment::load(&path.to_string_lossy())?;
        let is_chosen = options.filter.as_ref().is_none_or(|filter| experiment.name.contains(filter));
        let is_simulated = experiment.targets.iter().any(|target| target == SIM);
        if is_chosen && is_simulated && !(options.missing && experiment.cost.is_some()) {
            wanted.push((experiment.name, path));
        }
    }
    wanted.sort();
    ensure!(!wanted.is_empty(), "no experiment of {FOLDER} is meant");
    let room = tempfile::tempdir().context("a temporary directory")?;
    let program = PAGELAB.of_this_tree(workspace, room.path())?;
    let processor = processor()?;
    let clock = Clock::start("experiments", wanted.len());
    let mut failed = 0;
    for (name, path) in wanted {
        match seconds(&program, &path, &room.path().join(&name)) {
            Ok(seconds) => {
                write(&path, seconds, &processor)?;
                clock.done(&format!("{name}, {seconds:.1} s of CPU"));
            }
            Err(error) => {
                failed += 1;
                clock.done(&format!("{name} failed: {error:#}"));
            }
        }
    }
    Ok(failed)
}

/// CPU seconds of one seed on sim, in user mode and in the kernel, of the program and of the cells' workers.
fn seconds(program: &Path, experiment: &Path, result: &Path) -> Result<f64> {
    let before = of_children()?;
    let mut command = Command::new(program);
    command.current_dir(std::env::temp_dir()).arg("run").arg(experiment).args(["--target", SIM, "--quiet"]);
    // A cell may take longer than users are willing to wait without saying so.
    command.args(["--timeout", "100000", "-o"]).arg(result);
    let output = command.output().with_context(|| program.display().to_string())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(of_children()? - before)
}

/// CPU seconds of all child processes that have ended.
pub(crate) fn of_children() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
    let seconds = |time: fn(&Usage) -> nix::sys::time::TimeVal| time(&usage).num_microseconds() as f64 / 1e6;
    Ok(seconds(Usage::user_time) + seconds(Usage::system_time))
}

/// The name that the processor gives itself.
fn processor() -> Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    Ok(name.context("/proc/cpuinfo has no model name")?.1.trim().replace('"', ""))
}

/// Replaces what the file says of its cost, which is its last table.
fn write(path: &Path, seconds: f64, processor: &str) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let kept = text.split_once(COST_HEAD).map_or(text.as_str(), |(kept, _)| kept).trim_end();
    let cpu_ms = two_digits(seconds * 1000.0);
    let text = format!("{kept}\n\n{COST_HEAD}[cost]\ncpu_ms = {cpu_ms}\nprocessor = \"{processor}\"\n");
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Rounded to two digits, as more would move from run to run.
fn two_digits(value: f64) -> f64 {
    let mut unit = 1.0;
    while value / unit >= 99.5 {
        unit *= 10.0;
    }
    ((value / unit).round() * unit).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_written_once_and_read_back() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("x.toml");
        let text =
            "about = 'x'\nworkload = 'fault-storm'\ntargets = 'sim'\nmachine = 'one-node-512m'\nkernel = '6.1'\n";
        fs::write(&path, text).unwrap();
        let read = || Experiment::load(path.to_str().unwrap()).unwrap().cost;
        assert_eq!(read(), None);
        for (seconds, expected) in
            [(0.0, 1), (0.0266, 27), (9.94, 9900), (9.97, 10_000), (12.6, 13_000), (1537.0, 1_500_000)]
        {
            write(&path, seconds, "a processor").unwrap();
            let cost = read().unwrap();
            assert_eq!((cost.cpu_ms, cost.processor.as_str()), (expected, "a processor"));
            assert_eq!(fs::read_to_string(&path).unwrap().matches("[cost]").count(), 1);
        }
        assert!(fs::read_to_string(&path).unwrap().starts_with(text));
    }
}
