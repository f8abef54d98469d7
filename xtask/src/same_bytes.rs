//! `cargo xtask same-bytes BASE`: compares a list of simulated cells between this tree and another commit. A change of
//! structure must leave every cell as it is.

mod compare;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;
use clap::Args;
use lab::{source::Source, usage::UsageError};

use self::compare::{Cells, Difference};
use crate::{
    base::{Base, PAGELAB},
    pool::{Clock, in_parallel},
};

/// The list of cells.
const LIST: &str = "xtask/same-bytes.toml";

/// What to compare with.
#[derive(Args)]
pub(crate) struct Options {
    /// The commit to compare with: anything that git takes for one, such as `HEAD~1` or `main`
    base: String,
    /// Only runs that have this among their arguments
    filter: Option<String>,
    /// Runs at a time [default: one per CPU of this host]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// Prints which cells differ, and returns how many do.
pub(crate) fn run(workspace: &Metadata, options: &Options) -> Result<usize> {
    let list = workspace.workspace_root.as_std_path().join(LIST);
    let runs = read(&Source::read(&list)?)?;
    let chosen = |run: &String| options.filter.as_ref().is_none_or(|filter| run.contains(filter));
    let runs: Vec<_> = runs.into_iter().filter(chosen).collect();
    ensure!(!runs.is_empty(), "no run of {LIST} has {:?} in it", options.filter.as_deref().unwrap_or_default());

    let base = Base::of(workspace, &options.base, &PAGELAB)?;
    let room = tempfile::tempdir().context("a temporary directory")?;
    let ours = PAGELAB.of_this_tree(workspace, room.path())?;

    let jobs = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let numbered: Vec<_> = runs.iter().enumerate().collect();
    let clock = Clock::start("runs", numbered.len());
    let outcomes = in_parallel(jobs, &numbered, |(number, run)| {
        let result = |side: &str, program: &Path| cells(program, run, &room.path().join(format!("{side}-{number}")));
        let both = (result("base", base.program())?, result("ours", &ours)?);
        clock.done(run);
        Ok::<_, anyhow::Error>(both)
    });
    let mut account = Account::default();
    for (run, outcome) in runs.iter().zip(outcomes) {
        let (before, after) = outcome?;
        account.add(run, before, after);
    }
    account.print(&base);
    Ok(account.differ)
}

/// The arguments of each run in the list.
fn read(source: &Source) -> Result<Vec<String>, UsageError> {
    let document = source.parse()?;
    let root = document.root().only("key", &["run"])?;
    root.tables("run")?.into_iter().map(|table| table.only("key", &["arguments"])?.required("arguments")).collect()
}

/// The cells of a run; or the last line of what the program said instead.
fn cells(program: &Path, run: &str, directory: &PathBuf) -> Result<Result<Cells, String>> {
    let mut command = Command::new(program);
    // Where no machines and variants lie about: each program has its own.
    command.current_dir(std::env::temp_dir());
    command.arg("run").args(run.split_whitespace()).args(["--target", "sim", "--workers", "1", "-o"]).arg(directory);
    let output = command.output().with_context(|| format!("{} run {run}", program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Ok(Err(said.lines().last().unwrap_or("nothing").to_owned()));
    }
    let lines = fs::read_to_string(directory.join("result.jsonl")).context("the result of a run")?;
    compare::cells(&lines).map(Ok)
}

/// What came of all runs.
#[derive(Default)]
struct Account {
    same: usize,
    differ: usize,
    /// Fields that only this tree has, and in how many cells.
    new: BTreeMap<String, usize>,
}

impl Account {
    fn add(&mut self, run: &str, before: Result<Cells, String>, after: Result<Cells, String>) {
        match (before, after) {
            (Ok(before), Ok(after)) => {
                let (mut same, mut differ) = (0, Vec::new());
                for (cell, difference) in compare::compare(&before, &after) {
                    match difference {
                        Difference::None { new } => {
                            same += 1;
                            for field in new {
                                *self.new.entry(field).or_default() += 1;
                            }
                        }
                        Difference::In(fields) => differ.push((cell, fields)),
                    }
                }
                println!(
                    "{} {run}: {same} of {} cells",
                    if differ.is_empty() { "same  " } else { "DIFFER" },
                    before.len()
                );
                for (cell, fields) in &differ {
                    println!("         {cell}: {}", fields.join(", "));
                }
                self.same += same;
                self.differ += differ.len();
            }
            (Err(said), Ok(_)) => println!("new    {run}: the base says: {said}"),
            (before, after) => {
                println!("DIFFER {run}: it does not run");
                for (side, outcome) in [("the base", before), ("this tree", after)] {
                    if let Err(said) = outcome {
                        println!("         {side} says: {said}");
                    }
                }
                self.differ += 1;
            }
        }
    }

    fn print(&self, base: &Base) {
        for (field, cells) in &self.new {
            println!("new: {field}, in {cells} cells");
        }
        println!("{} cells are the same as at {}, {} differ", self.same, base.name(), self.differ);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lab::{experiment::Experiment, source};

    use super::*;

    #[test]
    fn every_workload_is_compared() {
        let list = Source::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("same-bytes.toml")).unwrap();
        let programs = |name: &str| Experiment::load(name).unwrap().programs();
        let compared: BTreeSet<_> =
            read(&list).unwrap().iter().flat_map(|run| programs(run.split(' ').next().unwrap())).collect();
        for name in source::names(source::Kind::Experiment) {
            let all = programs(&name);
            assert!(
                all.iter().all(|program| compared.contains(program)),
                "no run of the list has a workload of {name}"
            );
        }
    }
}
