//! Prices of primitive operations, measured on this machine.
//!
//! `linux::probe` times small things, round after round; [`recipe`] makes prices of each round; here are their medians and
//! spreads, the table, and the machine file. Nothing is fitted: no benchmark that is compared with the simulator has a part
//! in it, and a price that cannot be had is left to the generic ones, with the reason.

mod guest;
mod recipe;
#[cfg(test)]
mod tests;

use std::{
    fmt::Write as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use linux::{
    host::{self, monotonic_ns},
    probe::{self, Rounds, Setting},
    procfs::{Capture, Snapshot},
};
use memory::cost::Work;
use units::{Bytes, CpuId, Picos};

use crate::{
    import,
    machine::Machine,
    prices::{Measured, Price, Range},
    progress::{Progress, RunError},
    provenance, run,
    usage::UsageError,
};

pub(crate) use guest::probe_as_worker;
pub use guest::{Wanted, calibrate_guest};
use recipe::{RECIPES, Recipe};

/// How long to probe when nobody says.
pub const DEFAULT_SECONDS: u16 = 10;
/// Most memory that probes use; they never use more than a quarter of what is available.
const MEMORY_MAX: Bytes = Bytes::mib(512);
/// The least number of rounds: fewer say nothing about a spread, so on a busy machine probing goes on until there are five.
const ROUNDS_MIN: usize = 5;
/// More than any primitive operation takes: a probe that says so was disturbed throughout.
const TAKES_MAX: Picos = Picos::from_micros(100);
/// A price whose spread is more than this part of it is named.
const SPREAD_MAX_PERCENT: u64 = 20;

/// A machine file with prices, and what to tell about them.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// This machine with its prices.
    pub machine: Machine,
    rows: Vec<Row>,
    skipped: Vec<(&'static str, String)>,
}

/// A price of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    name: &'static str,
    how: &'static str,
    takes: Picos,
    range: Range,
    /// The operation, when the simulator charges it.
    work: Option<Work>,
}

/// Whether a machine file may be written to `path`, to be asked before it is measured what goes into it.
pub fn check_output(path: &Path, may_replace: bool) -> Result<(), UsageError> {
    let refuse = |why: &str| Err(UsageError::in_file(path.display(), why));
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => return refuse("expected the name of a file, found a directory"),
        Ok(_) if !may_replace => return refuse("exists already; --force replaces it"),
        _ => {}
    }
    let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    if path.file_name().is_none() || !parent.is_dir() {
        return refuse("expected the name of a file in a directory that exists");
    }
    Ok(())
}

/// Probes this machine for some seconds and imports it under `name`.
pub fn calibrate(
    name: &str,
    seconds: u16,
    stop: &AtomicBool,
    progress: &mut (dyn Progress + Send),
) -> Result<Calibration, RunError> {
    run::put_back(progress);
    let snapshot = live().map_err(RunError::Failed)?;
    let setting = setting(&snapshot);
    let rounds = probe_here(setting, seconds, stop, progress).map_err(RunError::Failed)?;
    if stop.load(Ordering::Relaxed) {
        return Err(RunError::InterruptedEarly);
    }
    let mut machine = import::import(&snapshot, name);
    let (model, cpus, release) = (probe::cpu_model(), machine.cpus().len(), &snapshot.version.text);
    machine.about = format!(
        "{model}, {cpus} CPUs, Linux {release}; prices measured {date} in {count} rounds, {place}",
        date = provenance::now(),
        count = rounds.samples.len(),
        place = place(setting),
    );
    Ok(Calibration::new(machine, &rounds))
}

/// A snapshot of this machine.
fn live() -> Result<Snapshot, String> {
    Capture::live().and_then(|capture| Snapshot::parse(&capture)).map_err(|error| error.to_string())
}

/// Where the probes of this machine run.
fn setting(snapshot: &Snapshot) -> Setting {
    let of = |name: &str| snapshot.meminfo.get(name).copied();
    let available = Bytes::kib(of("MemAvailable").or_else(|| of("MemFree")).unwrap_or(0));
    let available = host::memory_limit().unwrap_or(available).min(available);
    let cpus = host::usable_cpus();
    Setting { cpu: cpus[0], partner: cpus.get(1).copied(), memory: Bytes(available.0 / 4).min(MEMORY_MAX) }
}

/// Probes this machine for some seconds.
fn probe_here(
    setting: Setting,
    seconds: u16,
    stop: &AtomicBool,
    progress: &mut (dyn Progress + Send),
) -> Result<Rounds, String> {
    let place = place(setting);
    progress.note(&format!("timing the parts that the kernel is made of for {seconds} s, {place}; nothing is changed"));
    let mut start = None;
    probe::run(setting, &mut |done| {
        let begin = *start.get_or_insert_with(monotonic_ns);
        let passed = (monotonic_ns() - begin) / 1_000_000_000;
        progress.step(
            usize::try_from(passed).unwrap_or(0).min(seconds.into()),
            seconds.into(),
            &format!("round {done}"),
        );
        !stop.load(Ordering::Relaxed) && (done < ROUNDS_MIN || passed < u64::from(seconds))
    })
}

fn place(setting: Setting) -> String {
    let CpuId(cpu) = setting.cpu;
    match setting.partner {
        Some(CpuId(other)) => format!("on CPU {cpu}, second threads on CPU {other}"),
        None => format!("on CPU {cpu}, the only one that may be used"),
    }
}

impl Calibration {
    /// The prices that these rounds give a machine.
    fn new(machine: Machine, rounds: &Rounds) -> Self {
        let mut this = Self { machine, rows: Vec::new(), skipped: Vec::new() };
        for recipe in RECIPES {
            match row(recipe, rounds) {
                Ok(row) => this.rows.push(row),
                Err(why) => this.skipped.push((recipe.name, why)),
            }
        }
        let count = rounds.samples.len();
        let source = |row: &Row| format!("measured: {} (median of {count} rounds)", row.how);
        let price = |work: &Work| {
            let row = this.rows.iter().find(|row| row.work == Some(*work))?;
            Some(Price { work: *work, takes: row.takes, range: Some(row.range), source: source(row) })
        };
        this.machine.prices = Work::ALL.iter().filter_map(price).collect();
        let measured = |row: &Row| Measured {
            name: row.name.to_owned(),
            takes: row.takes,
            range: Some(row.range),
            source: source(row),
        };
        this.machine.measured = this.rows.iter().filter(|row| row.work.is_none()).map(measured).collect();
        this
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let mut text = format!("{}\n\n", self.machine.about);
        let width = RECIPES.iter().map(|recipe| recipe.name.len()).max().unwrap_or(0);
        let _ = writeln!(
            text,
            "{:width$} {:>10} {:>10} {:>10} {:>7}  what was measured",
            "ns", "median", "low", "high", "spread"
        );
        for (is_price, title) in [(true, "prices"), (false, "measured besides; no run uses it")] {
            let _ = writeln!(text, "{title}");
            for row in self.rows.iter().filter(|row| row.work.is_some() == is_price) {
                let Range { low, high } = row.range;
                let [takes, low, high] = [row.takes, low, high].map(tenths);
                let (name, spread) = (row.name, row.spread_percent());
                let _ = writeln!(text, "{name:width$} {takes:>10} {low:>10} {high:>10} {spread:>5} %  {}", row.how);
            }
        }
        for (name, why) in &self.skipped {
            let _ = writeln!(text, "{name:width$} skipped: {why}");
        }
        text += "low and high: a tenth of the rounds lies below, a tenth above; spread: their distance\n";
        text
    }

    /// Warnings about the prices.
    pub fn warnings(&self) -> Vec<String> {
        let wide = self.rows.iter().filter(|row| row.spread_percent() > SPREAD_MAX_PERCENT).map(|row| row.name);
        let wide: Vec<_> = wide.collect();
        let missing: Vec<_> =
            Work::ALL.iter().filter(|work| self.rows.iter().all(|row| row.work != Some(**work))).collect();
        let mut warnings = Vec::new();
        if !wide.is_empty() {
            let names = wide.join(", ");
            warnings.push(format!("the spread is over {SPREAD_MAX_PERCENT} % (is the machine busy?): {names}"));
        }
        if !missing.is_empty() {
            let names: Vec<_> = missing.iter().map(|work| work.name()).collect();
            warnings.push(format!("not measured, so generic: {}", names.join(", ")));
        }
        warnings
    }
}

impl Row {
    /// How far low and high are apart, in percent of the price.
    fn spread_percent(&self) -> u64 {
        (self.range.high - self.range.low).0 * 100 / self.takes.0
    }
}

/// The median of a recipe over all rounds, or why it has no price.
fn row(recipe: &Recipe, rounds: &Rounds) -> Result<Row, String> {
    if let Some((_, why)) = rounds.absent.iter().find(|(raw, _)| recipe.needs.contains(raw)) {
        return Err(why.clone());
    }
    let mut values: Vec<i64> = rounds.samples.iter().filter_map(|samples| recipe.value(samples)).collect();
    if values.len() < ROUNDS_MIN {
        return Err(format!("{} rounds, which is too few", values.len()));
    }
    values.sort_unstable();
    let at = |tenths: usize| values[(values.len() - 1) * tenths / 10];
    let (low, median, high) = (at(1), at(5), at(9));
    let takes = u64::try_from(median).ok().filter(|ps| *ps > 0);
    let takes = takes.map(Picos).ok_or_else(|| format!("lost in the noise: {median} ps from {low} to {high}"))?;
    if takes > TAKES_MAX {
        return Err(format!("{takes} is more than any primitive operation takes"));
    }
    let range = Range { low: picos(low), high: picos(high) };
    Ok(Row { name: recipe.name, how: recipe.how, takes, range, work: work(recipe.name) })
}

/// A difference of two times can be negative where they are noisy.
fn picos(ps: i64) -> Picos {
    Picos(ps.max(0).cast_unsigned())
}

/// The simulator's operation of this name.
fn work(name: &str) -> Option<Work> {
    Work::ALL.iter().copied().find(|work| work.name() == name)
}

/// Nanoseconds with one decimal.
fn tenths(span: Picos) -> String {
    format!("{}.{}", span.as_nanos(), span.0 % 1000 / 100)
}
