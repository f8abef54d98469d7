//! `cargo xtask fidelity`: each cell on guests and in the simulator, and what that says, into docs/: cells of a fixed list, or
//! with `--draw` cells drawn at random.

mod draw;
mod guests;
mod pace;
mod seed;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use cargo_metadata::Metadata;
use clap::{Args, value_parser};
use lab::{
    fidelity::{self, Cell, Comparison, Figures, Skipped, cells, results, table},
    source::Source,
    variant,
};

use self::guests::{Guests, Outcome};
use crate::{
    base::Base,
    pool::{Clock, in_parallel},
    test::cargo_command,
};

/// The list of cells.
const LIST: &str = "xtask/fidelity.toml";
/// Seconds that one simulated cell may take.
const SIMULATED_S: &str = "120";
const JSON: &str = "docs/fidelity.json";
const DOCUMENT: &str = "docs/fidelity/fixed-list.md";

/// What to compare.
#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct Options {
    /// Only runs whose name contains this, such as `one-cpu thpscale`; the result is printed, and docs/ stays as it is
    filter: Option<String>,
    /// Compare so many cells drawn at random instead of the fixed list; --list prints the ranges
    #[arg(long, value_name = "N", conflicts_with_all = ["filter", "seeds"], value_parser = value_parser!(u64).range(1..=1000))]
    draw: Option<u64>,
    /// Boots of each drawn cell
    #[arg(long, value_name = "N", default_value_t = 3, requires = "draw", value_parser = value_parser!(u64).range(1..=100))]
    boots: u64,
    /// Draw with this seed of eight hexadecimal digits, for looking only: docs/ stays as it is. The draw that counts has the
    /// seed of the newest commit that changed rules, prices, workloads or ranges
    #[arg(long, value_name = "HEX", requires = "draw", value_parser = seed::chosen)]
    seed: Option<String>,
    /// Run the program of this commit on the same draw too: the gain within class by cell, with its interval
    #[arg(long, value_name = "COMMIT", requires = "draw")]
    base: Option<String>,
    /// Print the ranges that --draw draws from
    #[arg(long)]
    list: bool,
    /// At most so many seeds of each cell; the result is printed, and docs/ stays as it is
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Compare what guests and the simulator have run into this result directory (`pagelab run ... --target vm --target sim
    /// --state kernel`), instead of cells of ours; docs/ stays as it is
    #[arg(long, value_name = "DIR", conflicts_with_all = ["filter", "draw", "seeds", "refresh", "cached", "stale"])]
    of: Option<PathBuf>,
    /// Run guests again, also where their results are in the cache
    #[arg(long)]
    refresh: bool,
    /// Guests or simulated cells at a time [default: one per CPU of this host]; a guest whose time is the host's runs alone
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Take guests from the cache alone: a cell that is not there is listed as not compared
    #[arg(long, conflicts_with = "refresh")]
    cached: bool,
    /// Take guests from the cache also when what works inside guests has changed since; the result says so
    #[arg(long, conflicts_with = "refresh")]
    stale: bool,
}

pub(crate) fn run(workspace: &Metadata, options: &Options) -> Result<()> {
    if options.list {
        print!("{}", lab::fidelity::draw::ranges());
        return Ok(());
    }
    if let Some(directory) = &options.of {
        return show(directory);
    }
    match options.draw {
        Some(cells) => draw::run(workspace, options, cells),
        None => run_list(workspace, options),
    }
}

/// Prints how the simulated cells of a result compare with the cells of its guests.
fn show(directory: &Path) -> Result<()> {
    let cells = results::beside(directory)?;
    ensure!(!cells.is_empty(), "{}: no guest's cell with a simulated one beside it", directory.display());
    print!("{}", table::renew("", &fidelity::compare("of its guests", &cells, Vec::new())));
    Ok(())
}

/// The program of this tree, built now.
fn built(workspace: &Metadata) -> Result<PathBuf> {
    let built = cargo_command(workspace, &["build", "--release", "--bin", "pagelab"]).status().context("cargo")?;
    ensure!(built.success(), "cargo build: {built}");
    copied(workspace.target_directory.join("release").as_std_path())
}

impl Options {
    fn jobs(&self) -> usize {
        self.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
    }
}

fn run_list(workspace: &Metadata, options: &Options) -> Result<()> {
    let root = workspace.workspace_root.as_std_path();
    let list = cells::read(&Source::read(&root.join(LIST))?)?;
    let program = built(workspace)?;
    let chosen = |run: &&cells::Run| options.filter.as_ref().is_none_or(|filter| run.label().contains(filter));
    let runs: Vec<_> = list.runs.iter().filter(chosen).collect();
    ensure!(!runs.is_empty(), "no run of {LIST} has {:?} in its name", options.filter.as_deref().unwrap_or_default());

    let guests = Guests::new(&program, &runs, options)?;
    let ran = GuestRuns::of(&guests, &runs, options)?;
    let (cells, skipped) = ran.beside(&Subject::of_this_tree(&program), options.jobs())?;
    let comparison = ran.compare(&cells, skipped);
    eprintln!("guests took {:.0} s together when they ran", guests.seconds(&ran.boots));
    report(root, &comparison, options.filter.is_none() && options.seeds.is_none())
}

/// The program that simulates.
struct Subject<'a> {
    program: &'a Path,
    /// The generic prices of a program of another commit, which refuses those that it does not know.
    prices: Option<String>,
}

impl<'a> Subject<'a> {
    fn of_this_tree(program: &'a Path) -> Self {
        Self { program, prices: None }
    }

    fn of_base(workspace: &Metadata, base: &'a Base) -> Result<Self> {
        Ok(Self { program: base.program(), prices: Some(base.text(workspace, "machines/prices/generic.toml")?) })
    }

    /// Whether the program has a price of that name.
    fn knows(&self, price: &str) -> bool {
        let is_it = |line: &str| line.split_once(" =").is_some_and(|(name, _)| name == price);
        self.prices.as_ref().is_none_or(|prices| prices.lines().any(is_it))
    }
}

/// Runs on guests that have come to their end.
struct GuestRuns<'a> {
    guests: &'a Guests<'a>,
    boots: Vec<(&'a cells::Run, u64)>,
    planned: Vec<Planned<'a>>,
    /// Runs without any result, and why.
    skipped: Vec<Skipped>,
}

impl<'a> GuestRuns<'a> {
    /// Runs what the cache does not have.
    fn of(guests: &'a Guests<'a>, runs: &[&'a cells::Run], options: &Options) -> Result<Self> {
        let seeds = |run: &cells::Run| 1..=options.seeds.unwrap_or(u64::MAX).min(run.guest.seeds);
        let why_not = |run: &cells::Run| run.skip.clone().or_else(|| guests.image(run).err().map(str::to_owned));
        let wanted = runs.iter().filter(|run| why_not(run).is_none());
        let boots: Vec<_> = wanted.flat_map(|run| seeds(run).map(move |seed| (*run, seed))).collect();
        let clock = Clock::start("guests", boots.iter().filter(|(run, seed)| !guests.has(run, *seed)).count());
        // A guest that counts instructions does the same whatever else its host does. One in the host's time has it to itself:
        // beside another its kswapd reclaims a quarter of what it does alone.
        let (counting, timed): (Vec<_>, Vec<_>) =
            boots.iter().enumerate().partition(|(_, (run, _))| run.guest.replayable.is_some());
        let mut booted = Vec::new();
        for (at_once, some) in [(options.jobs(), counting), (1, timed)] {
            let done = in_parallel(at_once, &some, |(_, (run, seed))| guests.outcome(run, *seed, &clock));
            booted.extend(some.into_iter().map(|(at, _)| at).zip(done));
        }
        booted.sort_by_key(|(at, _)| *at);
        let mut outcomes = booted.into_iter().map(|(_, outcome)| outcome);

        let mut skipped = Vec::new();
        let mut planned = Vec::new();
        for run in runs {
            if let Some(reason) = why_not(run) {
                skipped.push(Skipped::whole(&run.label(), "kernel", &reason));
                continue;
            }
            let of_run: Vec<_> = seeds(run).map(|seed| (seed, outcomes.next().expect("one per boot"))).collect();
            let image = guests.image(run).map_err(|reason| anyhow!("{reason}"))?;
            let rules = variant::for_release(&image.release).map_err(anyhow::Error::msg)?.name;
            planned.extend(Planned::of((run, &rules), of_run, &mut skipped)?);
        }
        // Nothing to compare with is no result, and must not take the place of one.
        ensure!(!planned.is_empty() || boots.is_empty(), "no guest gave a result: {}", why_none(options, boots.len()));
        Ok(Self { guests, boots, planned, skipped })
    }

    /// The cells with simulated runs of a program beside the guests', and those that have none.
    fn beside(&self, subject: &Subject, jobs: usize) -> Result<(Vec<Cell>, Vec<Skipped>)> {
        let mut skipped = self.skipped.clone();
        let clock = Clock::start("simulated cells", self.planned.len());
        let compared = in_parallel(jobs, &self.planned, |cell| {
            let outcome = cell.simulate(subject);
            clock.done(&cell.name);
            outcome
        });
        let mut cells = Vec::new();
        for (cell, outcome) in self.planned.iter().zip(compared) {
            match outcome? {
                Ok(compared) => cells.push(compared),
                Err(reason) => {
                    let kernel: Vec<_> = cell.seeds.iter().map(|(_, ran)| ran.figures.clone()).collect();
                    let skip = Skipped::whole(&cell.name, "sim", &reason);
                    skipped.push(Skipped { kernel: fidelity::known(&kernel), ..skip });
                }
            }
        }
        Ok((cells, skipped))
    }

    fn compare(&self, cells: &[Cell], skipped: Vec<Skipped>) -> Comparison {
        let mut comparison = fidelity::compare(&self.guests.releases(), cells, skipped);
        comparison.notes.extend(self.guests.note(&self.boots));
        comparison
    }
}

fn why_none(options: &Options, boots: usize) -> String {
    if options.cached {
        format!("none of the {boots} is in the cache; without --cached they run, which takes hours")
    } else {
        format!("all {boots} failed; `cargo xtask fidelity NAME`, of one of them, says why")
    }
}

/// A copy of the program: whoever builds while guests run would replace it.
fn copied(release: &Path) -> Result<PathBuf> {
    let (partial, program) = (release.join(".pagelab-fidelity.partial"), release.join("pagelab-fidelity"));
    fs::copy(release.join("pagelab"), &partial)
        .and_then(|_| fs::rename(&partial, &program))
        .context("copying pagelab")?;
    Ok(program)
}

/// One cell, of which guests have run at least one seed.
struct Planned<'a> {
    run: &'a cells::Run,
    /// The variant that simulates its kernel.
    rules: String,
    name: String,
    seeds: Vec<(u64, results::Ran)>,
    note: Option<String>,
}

impl<'a> Planned<'a> {
    /// The cells of a run: what its guests left behind.
    fn of(
        (run, rules): (&'a cells::Run, &str),
        outcomes: Vec<(u64, Outcome)>,
        skipped: &mut Vec<Skipped>,
    ) -> Result<Vec<Self>> {
        let mut planned: Vec<Self> = Vec::new();
        let mut failed = Vec::new();
        for (seed, outcome) in outcomes {
            let directory = match outcome {
                Outcome::Done(directory) => directory,
                Outcome::Failed(reason) => {
                    failed.push(reason);
                    continue;
                }
            };
            for ran in results::guests(&directory)? {
                let name = run.cell(&ran.case);
                if let Some(cell) = planned.iter_mut().find(|cell| cell.name == name) {
                    cell.seeds.push((seed, ran));
                } else {
                    let (rules, seeds) = (rules.to_owned(), vec![(seed, ran)]);
                    planned.push(Self { run, rules, name, seeds, note: None });
                }
            }
        }
        if let Some(reason) = failed.first() {
            if planned.is_empty() {
                skipped.push(Skipped::whole(&run.label(), "kernel", reason));
            }
            for cell in &mut planned {
                cell.note = Some(format!("{} guests gave no result: {reason}", failed.len()));
            }
        }
        Ok(planned)
    }

    /// The simulated runs beside the guests'; or why there is none.
    fn simulate(&self, subject: &Subject) -> Result<Result<Cell, String>> {
        let mut runs = Vec::new();
        let mut failed = Vec::new();
        for (seed, ran) in &self.seeds {
            match self.simulate_one(subject, *seed, ran)? {
                Ok(figures) => runs.push((ran.figures.clone(), figures)),
                // What it cannot do, it cannot do with any seed.
                Err(Why::Cannot(reason)) => return Ok(Err(reason)),
                Err(Why::Failed(reason)) => failed.push(reason),
            }
        }
        let more = (!failed.is_empty()).then(|| format!("{} simulated runs failed: {}", failed.len(), failed[0]));
        let notes: Vec<_> = [self.note.clone(), more].into_iter().flatten().collect();
        if runs.is_empty() {
            return Ok(Err(notes.join("; ")));
        }
        Ok(Ok(Cell {
            name: self.name.clone(),
            runs,
            streaming: self.run.streaming,
            policy: self.run.policy.clone(),
            ranked_by: self.run.ranked_by.clone(),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
        }))
    }

    fn simulate_one(&self, subject: &Subject, seed: u64, ran: &results::Ran) -> Result<Result<Figures, Why>> {
        let room = tempfile::tempdir().context("a temporary directory")?;
        let result = room.path().join("result");
        let guest = &self.run.guest;
        let slow = room.path().join(format!("{}.toml", guest.name));
        fs::write(&slow, pace::machine(guest, seed, |price| subject.knows(price))?)
            .with_context(|| slow.display().to_string())?;
        let mut command = Command::new("nice");
        // Where no machines and variants lie about: each program has its own.
        command.current_dir(room.path());
        command.args(["-n", "5"]).arg(subject.program).args(["run", &self.run.experiment, "--target", "sim"]);
        // The kernel's, not those of the experiment's usual one.
        command.args(["--variant", &self.rules]);
        command.args(["--machine", &slow.to_string_lossy(), "--seeds", &format!("{seed}-{seed}")]);
        command.args(["--timeout", SIMULATED_S, "--workers", "1"]);
        command.args(ran.sets.iter().flat_map(|(name, value)| ["--set".to_owned(), format!("{name}={value}")]));
        command.arg("--state").arg(&ran.state).arg("-o").arg(&result);
        let output = command.output().context("pagelab")?;
        if output.status.success() {
            let figures = results::simulated(&result)?;
            return Ok(figures.ok_or_else(|| Why::Failed("it gave no result".to_owned())));
        }
        let reason = last_words(&output.stderr);
        Ok(Err(if output.status.code() == Some(USAGE) { Why::Cannot(reason) } else { Why::Failed(reason) }))
    }
}

/// Why there is no simulated run.
enum Why {
    /// The simulator does not have something that it needs.
    Cannot(String),
    /// It went wrong.
    Failed(String),
}

/// pagelab's exit status when something cannot be had.
const USAGE: i32 = 2;

/// The last message of pagelab, in one line of bounded length; it names the place of our results, which is of no interest.
fn last_words(stderr: &[u8]) -> String {
    const LENGTH_MAX: usize = 240;
    let text = String::from_utf8_lossy(stderr);
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("pagelab: "));
    let words = lines.rfind(|line| !line.starts_with("results are in") && !line.starts_with("KVM"));
    let words = words.or_else(|| text.lines().last()).unwrap_or("it said nothing");
    words.chars().take(LENGTH_MAX).collect()
}

fn report(root: &Path, comparison: &Comparison, whole: bool) -> Result<()> {
    let (json, document) = (root.join(JSON), root.join(DOCUMENT));
    let text = match fs::read_to_string(&document) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => bail!("{}: {error}", document.display()),
    };
    let unexplained = table::unexplained(comparison, &[&text]);
    if whole {
        write(&json, &(serde_json::to_string_pretty(comparison)? + "\n"))?;
        write(&document, &table::renew(&text, comparison))?;
        println!("{JSON} and {DOCUMENT} are new");
    } else {
        print!("{}", table::renew("", comparison));
    }
    println!("{} of {} counters within their class", comparison.total.within, comparison.total.compared);
    if !unexplained.is_empty() {
        println!("not explained in {DOCUMENT}: {}", unexplained.into_iter().collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

fn write(path: &PathBuf, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    /// The options of a command line.
    pub(super) fn options(arguments: &[&str]) -> Result<Options, clap::Error> {
        let command = Options::augment_args(clap::Command::new("fidelity"));
        Options::from_arg_matches(&command.try_get_matches_from(arguments)?)
    }

    #[test]
    fn draws_that_make_no_sense_are_refused_with_one_message() {
        let refused = |arguments: &[&str]| options(arguments).err().map(|error| (error.exit_code(), error.to_string()));
        for (arguments, message) in [
            (&["fidelity", "--draw", "0"][..], "0 is not in 1..=1000"),
            (&["fidelity", "--draw", "2", "--seed", "12345"], "expected eight hexadecimal digits"),
            (&["fidelity", "--draw", "2", "--seed", "1234567g"], "expected eight hexadecimal digits"),
            (&["fidelity", "--seed", "12345678"], "--draw <N>"),
            (&["fidelity", "--base", "HEAD"], "--draw <N>"),
            (&["fidelity", "--of", "kv", "--draw", "2"], "cannot be used with"),
            (&["fidelity", "--draw", "2", "thpscale"], "cannot be used with"),
        ] {
            let (code, said) = refused(arguments).expect("it makes no sense");
            assert!(code == 2 && said.contains(message), "{arguments:?}: {said}");
        }
        assert_eq!(options(&["fidelity", "--draw", "2", "--seed", "0BADcafe"]).unwrap().seed.unwrap(), "0badcafe");
    }

    #[test]
    fn what_is_said_names_options_that_exist() {
        let command = Options::augment_args(clap::Command::new("fidelity"));
        let known: Vec<String> =
            command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
        for cached in [false, true] {
            let options = options(&["fidelity", if cached { "--cached" } else { "--refresh" }]).unwrap();
            let said = why_none(&options, 3);
            let mut named = said.split([' ', ',', '`']).filter(|word| word.starts_with("--"));
            assert!(named.all(|name| known.iter().any(|known| known == name)), "{said}: expected some of {known:?}");
        }
    }
}
