//! Developer commands of pagelab. CI runs `cargo xtask test` and nothing else.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line program talks to a person")]

mod advise;
mod apt;
mod base;
mod bench;
mod browser;
mod calibration;
mod claims;
mod costs;
mod crates;
mod fidelity;
mod first_patch;
mod gallery;
mod kernel;
mod perfetto;
mod pool;
mod python;
mod same_bytes;
mod suite;
mod swarm;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand};
use clap::{Parser, Subcommand};

/// Developer commands of pagelab.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything that CI checks: fmt, tidy, clippy, builds, tests; then the slowest tests, and what was skipped and why
    ///
    /// A failed stage does not keep the later ones from running. Exits with 1 when anything failed. On two CPUs and from an
    /// empty target folder, builds take about five minutes and tests up to ten.
    Test {
        /// Run only the tests whose name contains this (the other stages run whole)
        filter: Option<String>,
    },
    /// What we take, as ratios and sizes from one run: the fault loop against this host's kernel, and the memory manager
    /// from 4 GiB to 1 TiB
    ///
    /// CPU times, medians; nothing is asserted, and a busy machine shows in the figures. Takes about a minute and 4 GiB.
    ///
    /// With `--against COMMIT`, simulated runs of this tree and of that commit in pairs: instructions, which do not depend on the
    /// machine's load, and wall time, runs in turn. The commit's program is built once, under target/same-bytes; the runs take
    /// ten minutes on a quiet machine. With `--counts` steps and instructions for each unit of work, and no times.
    Bench(bench::Options),
    /// What calibrated prices predict, beside what this host takes: faults, fork and copy on write, munmap
    ///
    /// Rounds of `pagelab calibrate`, the host's runs and those of the simulator with these prices; medians over the rounds.
    /// Nothing is asserted, and a busy machine shows in the figures. Takes about two minutes and 3 GiB.
    Calibration,
    /// The claims of the five series as a landing runs them, beside the verdicts of the last one: docs/verdicts.txt
    ///
    /// s0, s2 and s4 with eight seeds, s3 with three, s1 with one; a line for each, with the claims that are lost and gained
    /// and the CPU time. Exits with 1 when one is lost. Takes an hour and a half of CPU time; a run that was stopped goes on.
    Claims(claims::Options),
    /// Whether `pagelab advise` names the best setting of machines whose best setting is known, and none where nothing helps
    ///
    /// Each service of xtask/advise/ runs once for the captures that the advice sees. What is best is found by running the
    /// service itself with other seeds and all values. A line for each; exits with 1 when one is wrong. Takes half an hour of
    /// CPU time.
    Advise {
        /// Only these cases
        cases: Vec<String>,
    },
    /// CPU seconds of one seed of each experiment on sim, written into its file: what `pagelab list experiments` says
    ///
    /// One experiment after the other, its cells on all CPUs. Takes about an hour of CPU time for all; figures of a busy machine
    /// are too large.
    Costs(costs::Options),
    /// How far the simulator is from real kernels, cell by cell and counter by counter: docs/fidelity.json, docs/fidelity/
    ///
    /// Each cell of xtask/fidelity.toml runs on guests, which are kept in the cache until what runs in them changes, and then in
    /// the simulator from the memory that each guest had. The first time takes up to half an hour on two CPUs.
    ///
    /// With `--draw N`, cells are drawn at random instead, three boots each, from the ranges that `--list` prints: workload and
    /// parameters, settings, memory, CPUs and kernel. The seed is the newest commit that changed rules, prices, workloads or
    /// ranges, so that nobody chooses it. The score stands beside its ceiling, each boot of the kernel against its other boots:
    /// docs/fidelity/draw.md and docs/fidelity-draw.json. What was stopped goes on with the guests that were kept. A boot takes
    /// from ten seconds to two minutes. `--base COMMIT` runs that commit's program on the same draw.
    Fidelity(fidelity::Options),
    /// Pictures of pages of `pagelab report`, in docs/gallery: of runs of the simulator, by a browser without a window
    ///
    /// Chromium has to be on PATH, such as Debian's chromium-headless-shell. Takes some minutes. Look at them before you commit.
    Gallery,
    /// Simulated cells with this tree and with commit BASE: the same bytes, or which fields differ
    ///
    /// For a change of structure, which must leave every result as it is. Runs the list in xtask/same-bytes.toml; the program of
    /// BASE is built once, under target/same-bytes. Exits with 1 when a cell differs.
    SameBytes(same_bytes::Options),
    /// The random tests of the memory manager, many times as long: ten million operations against the naive twin, and
    /// processes, files and huge pages under pressure
    ///
    /// A failure names its seed. Takes about a quarter of an hour on two CPUs.
    Soak {
        /// How many times as many seeds as in `cargo xtask test`, which takes a million operations
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
        times: u32,
    },
    /// Least, most, middle and a drawn value of every setting and every rule, on two workloads: no panic, and an end that
    /// says what it is
    ///
    /// `cargo xtask test` runs a part of them. Takes about ten minutes of CPU time.
    Values,
    /// Simulated runs drawn at random, to find mistakes of the simulator: any machine, rules, settings and workload, with faults
    ///
    /// Each case runs in a process of its own. Every few thousand steps each frame is asked whose it is; allocations fail, pages
    /// cannot be moved, the disk is slow, kernel threads are late; then the faults are over, and the run has to end. A case that
    /// fails is made smaller and kept under target/swarm, with the command that runs it again. At the end: events that came
    /// fewer than five times over all cases. Exits with 1 when a case failed.
    Swarm(swarm::Options),
    /// The checks that clippy does not have: crate arrows, file names and sizes, banned words, manifest comments, mm's table
    /// of files, comments that name nobody (their number may only fall), ties of mm that run upward (so may theirs), and circles
    /// of files (so may their sizes)
    Tidy(tidy::Options),
    /// Make the environment that the tests of the Python package run in: python/tests/requirements.txt, under target/python
    ///
    /// Needs python3 with venv, and a network. `cargo xtask test` needs none, and skips these tests without the environment.
    Python,
    /// Make the environment that the tests of the page in a browser run in: xtask/browser/requirements.txt, under target/browser
    ///
    /// Needs python3 with venv, and a network. `cargo xtask test` needs none, and skips these tests without the environment,
    /// without Chromium, or without its driver (Debian: chromium, chromium-driver).
    Browser,
    /// Make the environment that the queries of traces run in: xtask/perfetto/requirements.txt, under target/perfetto
    ///
    /// Needs python3 with venv, and a network. `cargo xtask test` needs none, and skips these tests without the environment.
    /// Perfetto's trace processor is downloaded where that is possible; else SQLite answers on tables of the same names.
    Perfetto,
    /// Fetch a Debian cloud kernel into the cache, without root, for tests and `--kernel VERSION`
    ///
    /// The cache is $PAGELAB_CACHE, else $XDG_CACHE_HOME/pagelab, else ~/.cache/pagelab; the kernel arrives there whole
    /// or not at all. Packages come from the Debian mirrors of this system's own apt configuration, with its keyrings.
    Kernel(kernel::Options),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            // As clap has it for what it refuses.
            if error.is::<lab::usage::UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Test { filter } => test::run(&workspace()?, filter.as_deref()),
        Command::Bench(options) => Ok(code(bench::run(&workspace()?, &options)?)),
        Command::Calibration => calibration::run(&workspace()?).map(|()| ExitCode::SUCCESS),
        Command::Advise { cases } => Ok(code(advise::run(&workspace()?, &cases)?)),
        Command::Claims(options) => Ok(code(claims::run(&workspace()?, &options)?)),
        Command::Costs(options) => Ok(code(costs::run(&workspace()?, &options)?)),
        Command::Fidelity(options) => fidelity::run(&workspace()?, &options).map(|()| ExitCode::SUCCESS),
        Command::Gallery => gallery::run(&workspace()?).map(|()| ExitCode::SUCCESS),
        Command::SameBytes(options) => Ok(code(same_bytes::run(&workspace()?, &options)?)),
        Command::Soak { times } => soak(times),
        Command::Values => values(),
        Command::Swarm(options) => swarm::run(&workspace()?, &options),
        Command::Tidy(options) if options.circles => tidy::list_circles(&workspace()?).map(|()| ExitCode::SUCCESS),
        Command::Tidy(_) => Ok(code(tidy::run(&workspace()?)?)),
        Command::Browser => browser::make(&workspace()?).map(|()| ExitCode::SUCCESS),
        Command::Perfetto => perfetto::make(&workspace()?).map(|()| ExitCode::SUCCESS),
        Command::Python => python::make(&workspace()?).map(|()| ExitCode::SUCCESS),
        Command::Kernel(options) => kernel::run(&options).map(|()| ExitCode::SUCCESS),
    }
}

/// The random tests, with many more seeds: `docs/history/step-4.md` counts their operations.
fn soak(times: u32) -> Result<ExitCode> {
    let workspace = workspace()?;
    let mut failed = 0;
    for tests in [
        ["--test", "twin", "agree"],
        ["--test", "pressure", "lose"],
        ["--test", "pressure", "survive"],
        ["--lib", "--", "survive"],
    ] {
        let arguments = [&["test", "--release", "--package", "mm"][..], &tests].concat();
        let status = test::cargo_command(&workspace, &arguments).env("PAGELAB_SOAK", times.to_string()).status();
        failed += usize::from(!status.context("cargo test")?.success());
    }
    Ok(code(failed))
}

/// The whole grid of values, of which the suite runs a part.
fn values() -> Result<ExitCode> {
    let arguments = ["test", "--release", "--workspace", "--test", "it", "--", "extreme_values", "--nocapture"];
    let status = test::cargo_command(&workspace()?, &arguments).env("PAGELAB_VALUES", "all").status();
    Ok(code(usize::from(!status.context("cargo test")?.success())))
}

/// 1 when anything was found, as every check here reports itself.
fn code(findings: usize) -> ExitCode {
    if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The workspace around the current directory.
fn workspace() -> Result<Metadata> {
    MetadataCommand::new().no_deps().exec().context("cargo metadata; run this inside the pagelab workspace")
}
