//! One instant, two policies: cells of a result run again up to an instant, and on from there by other rules.
//!
//! Each branch executes its cell from the seed. Up to the instant it must be the run of the result: its run hash there must be
//! that of the cell, which runs again too and must come out as it did. From there on the branches of a seed are a pair: what
//! luck had done by then is the same for both.

mod text;

use std::{path::PathBuf, sync::atomic::AtomicBool};

use report::{
    Cell, Key, Metric, Record, Series,
    stats::{Interval, Pair, amean, paired_interval, unpaired_interval},
};
use serde::Serialize;

pub use self::text::{json, text};
use crate::{
    branches::{check_same_path, run_all},
    counted::is_counter,
    order::{BranchChange, BranchOrder, Branched},
    plan::Every,
    progress::{Progress, RunError},
    provenance, results,
    run::order_again,
    show::At,
    usage::UsageError,
    variant::{self, Recorded},
    why::{self, Chosen},
};

/// Pairing holds as long as the paired interval is narrower by this factor.
const NARROWER: f64 = 3.0;

/// A fork of a result.
#[derive(Clone, Debug)]
pub struct ForkWanted {
    /// The result directory.
    pub result: PathBuf,
    /// The instant.
    pub at: At,
    /// The variants from there on; a single one is compared with the cells' own rules.
    pub variants: Vec<String>,
    /// Time between two samples, by which it is seen how long pairing lasts.
    pub every: Every,
    /// Which cells.
    pub chosen: Chosen,
}

/// Branches of cells, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Forked {
    /// The experiment.
    pub experiment: String,
    /// The kernel up to the instant.
    pub kernel: String,
    /// The case.
    pub case: String,
    /// The instant, in picoseconds since the start of the run.
    pub at_ps: u64,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// The variants from there on: what the others are compared with, and the others.
    pub variants: Vec<String>,
    /// Run hashes of the branches: of each variant, of each seed.
    pub hashes: Vec<Vec<String>>,
    /// Rows of each variant but the first.
    pub pairs: Vec<Vec<Row>>,
}

/// A number of two variants.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// A metric of the whole run, or a counter.
    pub name: String,
    /// The unit; of a counter, empty. Counters count from the instant on.
    pub unit: String,
    /// The means over seeds, of the first variant and of this one.
    pub means: [f64; 2],
    /// The 95 % interval of the difference, the seeds being pairs.
    pub paired: Option<[f64; 2]>,
    /// The 95 % interval of the difference if the seeds were no pairs.
    pub unpaired: Option<[f64; 2]>,
    /// Of a counter: the time from the instant on for which the paired interval stays at most a third of the other, in
    /// picoseconds; none if it never is.
    pub pairs_for_ps: Option<u64>,
    /// Whether that is to the end of the run.
    pub to_the_end: bool,
}

impl Row {
    /// The difference by the half of its interval: the larger, the surer.
    fn sureness(&self) -> f64 {
        let half = self.paired.map_or(f64::INFINITY, |[low, high]| (high - low) / 2.0);
        (self.means[1] - self.means[0]).abs() / half.max(f64::MIN_POSITIVE)
    }

    /// How many times narrower the paired interval is.
    fn narrower(&self) -> Option<f64> {
        let width = |interval: Option<[f64; 2]>| interval.map(|[low, high]| high - low);
        let (paired, unpaired) = (width(self.paired)?, width(self.unpaired)?);
        (unpaired > 0.0).then(|| unpaired / paired)
    }
}

/// Forks cells of a result.
///
/// # Errors
/// No simulated result of this program, an unknown variant, rules that only a boot can change, an instant behind the end; a cell
/// that does not come out as it did.
pub fn fork(wanted: &ForkWanted, stop: &AtomicBool, progress: &mut dyn Progress) -> Result<Forked, RunError> {
    let directory = &wanted.result;
    let (identity, contents) = results::contents(directory, None)?;
    let is_cell = |record: &Record| matches!(record, Record::Cell(_));
    let (cells, others): (Vec<Record>, Vec<Record>) = contents.records.into_iter().partition(is_cell);
    let cells = report::cells(cells);
    let cells = of_one(why::chosen(&cells, directory, &wanted.chosen)?)?;
    let orders = cells.iter().map(|cell| {
        provenance::check_program(&cell.key.program)
            .map_err(|problem| UsageError::in_file(directory.display(), problem))?;
        order_again(directory, &identity, &others, &cell.key)
    });
    let orders = orders.collect::<Result<Vec<_>, UsageError>>()?;
    let own = orders[0].simulated.as_ref().map(|simulated| simulated.variant.clone());
    let own = own.ok_or_else(|| UsageError::in_file(directory.display(), "it is of no simulated machine"))?;
    let mut variants = variants(&wanted.variants, &own)?;
    if let [_] = variants[..] {
        variants.insert(0, own);
    }
    let branch = |order: &crate::order::CellOrder, change: BranchChange, sample| BranchOrder {
        cell: crate::order::CellOrder { sample, ..order.clone() },
        changes: vec![(wanted.at.ps(), change)],
        otherwise: None,
        symptom: None,
        window: None,
    };
    let bases = orders.iter().map(|order| branch(order, BranchChange::Nothing, order.sample));
    let rules = |variant: &Recorded| BranchChange::Rules(Box::new(variant.clone()));
    let of_variants = variants
        .iter()
        .flat_map(|variant| orders.iter().map(move |order| branch(order, rules(variant), Some(wanted.every))));
    let all = run_all(&bases.chain(of_variants).collect::<Vec<_>>(), stop, progress)?;
    let (bases, branches) = all.split_at(cells.len());
    for (cell, base) in cells.iter().zip(bases) {
        check_base(cell, base)?;
    }
    let per_variant: Vec<&[Branched]> = branches.chunks(cells.len()).collect();
    for of_variant in &per_variant {
        for ((cell, base), branch) in cells.iter().zip(bases).zip(*of_variant) {
            check_same_path(std::slice::from_ref(branch), &base.hashes[0], &cell.key)?;
        }
    }
    let first = per_variant[0];
    let key = &cells[0].key;
    Ok(Forked {
        experiment: key.experiment.clone(),
        kernel: key.kernel.clone(),
        case: key.case.clone(),
        at_ps: wanted.at.ps(),
        seeds: cells.iter().map(|cell| cell.key.seed).collect(),
        variants: variants.iter().map(|variant| variant.name.clone()).collect(),
        hashes: per_variant.iter().map(|of_variant| of_variant.iter().map(hash_of).collect()).collect(),
        pairs: per_variant[1..].iter().map(|second| rows(first, second, wanted.at)).collect(),
    })
}

/// The cells of one column and one case.
fn of_one(cells: Vec<&Cell>) -> Result<Vec<&Cell>, UsageError> {
    let first = cells[0];
    let names = |of: &dyn Fn(&Key) -> String| {
        let mut all: Vec<String> = cells.iter().map(|cell| of(&cell.key)).collect();
        all.dedup();
        all.join(", ")
    };
    why::check_single(cells.iter().map(|cell| &cell.key))?;
    if cells.iter().any(|cell| cell.key.column() != first.key.column()) {
        let columns = names(&|key| key.column().label());
        return Err(UsageError::of_key("--kernel", format!("a fork is of one column; the result has {columns}")));
    }
    if cells.iter().any(|cell| cell.key.case != first.key.case) {
        let cases = names(&|key| key.case.clone());
        return Err(UsageError::of_key("--case", format!("a fork is of one case; the result has {cases}")));
    }
    Ok(cells)
}

/// The variants from the instant on, which a running kernel can become.
fn variants(names: &[String], own: &Recorded) -> Result<Vec<Recorded>, UsageError> {
    let rules = own.rules().map_err(UsageError::new)?;
    let of = |name: &String| {
        if *name == own.name {
            return Ok(own.clone());
        }
        let found = variant::load(name)?;
        let from = &own.name;
        rules.check_change(&found.rules).map_err(|problem| {
            let how = format!("{from} cannot become {name} while it runs: {problem}");
            UsageError::of_key("--variant", how)
        })?;
        Ok(Recorded::of(&found))
    };
    names.iter().map(of).collect()
}

fn hash_of(branch: &Branched) -> String {
    let found = branch.found.as_ref();
    found.and_then(|(measured, _)| measured.detail["run_hash"].as_str()).unwrap_or_default().to_owned()
}

/// Fails unless the cell has come out as it did, and the instant is in its run.
fn check_base(cell: &Cell, base: &Branched) -> Result<(), RunError> {
    let before = cell.measured.detail["run_hash"].as_str().unwrap_or_default();
    let Key { kernel, case, seed, .. } = &cell.key;
    if hash_of(base) != before {
        let now = hash_of(base);
        let problem = format!("it did not come out as it did: run hash {now}, and {before} before");
        return Err(RunError::Failed(format!("{kernel} {case} seed {seed}: {problem}")));
    }
    if base.hashes.is_empty() {
        return Err(UsageError::of_key("--at", format!("the run of {kernel} {case} seed {seed} ends before")).into());
    }
    Ok(())
}

/// The rows in which two variants differ: metrics of the whole run, then counters; of each the surest difference first.
fn rows(first: &[Branched], second: &[Branched], at: At) -> Vec<Row> {
    let found: Vec<_> = first.iter().zip(second).filter_map(|(a, b)| a.found.as_ref().zip(b.found.as_ref())).collect();
    let Some(((measured, _), _)) = found.first() else { return Vec::new() };
    let number = |metric: &Metric| amean(&metric.samples);
    let mut rows: Vec<Row> = Vec::new();
    for (place, metric) in measured.metrics.iter().enumerate() {
        let pairs = found.iter().filter_map(|((a, _), (b, _))| {
            let (old, new) = (a.metrics.get(place)?, b.metrics.get(place)?);
            Some(Pair { baseline: number(old)?, new: number(new)? })
        });
        let words = [Some(&metric.name), metric.class.as_ref(), metric.part.as_ref()];
        let name = words.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ");
        rows.extend(row(&name, &metric.unit, &pairs.collect::<Vec<_>>()));
    }
    let series: Vec<(Moves, Moves)> = found
        .iter()
        .filter_map(|((_, a), (_, b))| Some((Moves::of(a.as_ref()?, at), Moves::of(b.as_ref()?, at))))
        .collect();
    let mut names: Vec<&String> = series.iter().flat_map(|(a, b)| a.names.iter().chain(&b.names)).collect();
    names.sort_unstable();
    names.dedup();
    let of_counters = names.into_iter().filter_map(|name| {
        let last: Vec<Pair<f64>> =
            series.iter().map(|(a, b)| Pair { baseline: a.last(name), new: b.last(name) }).collect();
        let (pairs_for_ps, to_the_end) = lasts(&series, name);
        row(name, "", &last).map(|row| Row { pairs_for_ps, to_the_end, ..row })
    });
    let mut of_counters: Vec<Row> = of_counters.collect();
    for kind in [&mut rows, &mut of_counters] {
        kind.sort_by(|a, b| b.sureness().total_cmp(&a.sureness()));
    }
    rows.extend(of_counters);
    rows
}

/// Whether a name of a series is a counter of the whole machine.
fn is_of_vmstat(name: &str) -> bool {
    is_counter(name) && !name.contains('/')
}

/// A row, if any pair differs.
fn row(name: &str, unit: &str, pairs: &[Pair<f64>]) -> Option<Row> {
    let differs = |pair: &Pair<f64>| (pair.new - pair.baseline).abs() > 0.0;
    if !pairs.iter().any(differs) {
        return None;
    }
    let mean = |of: fn(&Pair<f64>) -> f64| amean(&pairs.iter().map(of).collect::<Vec<_>>());
    let ends = |interval: Interval| [interval.low, interval.high];
    Some(Row {
        name: name.to_owned(),
        unit: unit.to_owned(),
        means: [mean(|pair| pair.baseline)?, mean(|pair| pair.new)?],
        paired: paired_interval(pairs).map(ends),
        unpaired: unpaired_interval(pairs).map(ends),
        pairs_for_ps: None,
        to_the_end: false,
    })
}

/// How far counters have moved since an instant, by sample.
struct Moves {
    names: Vec<String>,
    /// Time since the instant in picoseconds, and the counters' moves.
    rows: Vec<(u64, Vec<f64>)>,
}

impl Moves {
    fn of(series: &Series, at: At) -> Self {
        let kept: Vec<usize> =
            (0..series.columns.len()).filter(|place| is_of_vmstat(&series.columns[*place])).collect();
        let samples = series.samples();
        let before = samples.iter().rposition(|sample| sample.at_us <= at.us()).unwrap_or(0);
        let base: Vec<u64> = samples.get(before).map(|sample| sample.values.clone()).unwrap_or_default();
        let moved = |now: u64, then: u64| now.wrapping_sub(then).cast_signed() as f64;
        let behind = samples.iter().skip(before + 1);
        let rows = behind.map(|sample| {
            let values = kept.iter().map(|place| moved(sample.values[*place], base[*place])).collect();
            (sample.at_us.saturating_mul(1_000_000).saturating_sub(at.ps()), values)
        });
        Self { rows: rows.collect(), names: kept.iter().map(|place| series.columns[*place].clone()).collect() }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// The move of a counter up to a sample, or to the last one if there are fewer.
    fn at(&self, sample: usize, name: &str) -> f64 {
        let row = self.rows.get(sample).or_else(|| self.rows.last());
        row.zip(self.place(name)).map_or(0.0, |((_, values), place)| values[place])
    }

    fn last(&self, name: &str) -> f64 {
        self.at(usize::MAX, name)
    }
}

/// The time for which pairing lasts for a counter, and whether that is to the end.
fn lasts(series: &[(Moves, Moves)], name: &str) -> (Option<u64>, bool) {
    let samples = series.iter().map(|(a, b)| a.rows.len().max(b.rows.len())).max().unwrap_or(0);
    let mut lasted = None;
    for sample in 0..samples {
        let pairs: Vec<Pair<f64>> =
            series.iter().map(|(a, b)| Pair { baseline: a.at(sample, name), new: b.at(sample, name) }).collect();
        let Some(row) = row(name, "", &pairs) else { continue };
        if row.narrower().is_none_or(|narrower| narrower < NARROWER) {
            return (lasted, false);
        }
        let time = |moves: &Moves| moves.rows.get(sample).map(|(time, _)| *time);
        lasted = series.iter().filter_map(|(a, b)| time(a).max(time(b))).max();
    }
    (lasted, lasted.is_some())
}
