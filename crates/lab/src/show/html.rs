//! Results as one page: what is compared, maps of memory, samples over time, distributions, time by cause.

use std::{collections::BTreeSet, path::Path, sync::atomic::AtomicBool};

use report::{
    Cell, Column, Judgement, SamplesOf,
    compare::{Compared, Comparison, Family, Gates, Tested},
    html::{self, Cause, Causes, Changed, Curve, Distribution, Document, Kernel, Map, MapBand, PairOf, Stall},
    map::{BlockMap, unusable},
    series::Series,
    slow_path::{Entry, SlowPath},
};
use units::Order;

use super::{
    chains::{self, Question},
    commands::{self, How, PageWanted},
    compare::{NoBaseline, comparison, in_words, marked, names, steps},
    headline::{self, Titles},
    map::load,
    shown::{Shown, read, strange},
};
use crate::{
    evidence,
    progress::{Progress, RunError},
    source::unknown,
    sweep,
    usage::UsageError,
    why::{Chosen, Which, WhyWanted, is_of_thread},
};

/// Rows of the first screen.
const ROWS: usize = 5;
/// Kernels that are shown over time.
const KERNELS_MAX: usize = 8;
/// Samples of a map on a page, at first: as many as a screen has columns.
const SAMPLES_MAX: usize = 480;
/// Bytes of all maps of a page, before they are written in base 64.
const MAPS_MAX: usize = 2 << 20;
/// Samples of the lines over time of a kernel, at first.
const SERIES_SAMPLES_MAX: usize = 2000;
/// Bytes of the lines over time of all kernels, as JSON.
const SERIES_MAX: usize = 3 << 19;
/// Marks of stalls, of each kernel.
const STALLS: usize = 60;
/// Distributions of a page.
const DISTRIBUTIONS_MAX: usize = 60;
/// Fewer samples than this in each run are no distribution.
const SAMPLES_MIN: usize = 8;

/// A page, and what is not on it.
#[derive(Clone, Debug)]
pub struct Shows {
    /// The page.
    pub html: String,
    /// Parts that its results lack, a line for each with the command that records it.
    pub lacks: Vec<String>,
}

/// Results on one page.
///
/// # Errors
/// A directory that is no result, a result without a cell, a kernel or case that is not there, a map that is damaged. Where
/// chains are wanted, results that cannot be run again, or do not come out as they did; an interruption.
pub fn page(wanted: &PageWanted, stop: &AtomicBool, progress: &mut dyn Progress) -> Result<Shows, RunError> {
    let mut shown = Vec::new();
    for directory in &wanted.results {
        let found = read(directory, wanted.seeds)?;
        if found.cells.is_empty() {
            return Err(UsageError::in_file(directory.display(), "no cell is done, so there is nothing to show").into());
        }
        shown.push(found);
    }
    let names = names(&wanted.results);
    let mut cells = marked(&names, &shown);
    let all = all_columns(&cells);
    let Judged { mut pairs, verdict, how } = judged(wanted, &names, &shown, &cells, &all);
    let sweep = if let [alone] = &shown[..] { sweep::of_result(alone) } else { None };
    // Columns of a grid have no order in which each would be a step from the one before.
    let mut steps = match &shown[..] {
        [alone] if sweep.is_none() && all.len() > 2 => pairs_of(&steps(alone, &cells), &all),
        _ => Vec::new(),
    };
    let titles = Titles::of(&shown);
    let cases: Vec<String> = cells.iter().map(|cell| cell.key.case.clone()).collect();
    report::name_cases(&mut cells);
    let runs = Runs { wanted, cells: &cells, cases: &cases, names: &names, all: &all };
    let case = runs.case()?;
    let (columns, mut kernels, questions) = runs.kernels(&case)?;
    chains::put(wanted, &mut kernels, (questions, &cells), (stop, progress))?;
    let more_chains = chains::more(wanted, &kernels);
    let experiments: BTreeSet<&str> = shown.iter().map(|shown| shown.experiment.as_str()).collect();
    let machines: BTreeSet<&str> = cells.iter().map(|cell| cell.key.machine.as_str()).collect();
    let of = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<_>>().join(", ");
    let lacks: Vec<How> = how.into_iter().chain(commands::lacks(&kernels, &wanted.results, &shown)).collect();
    let others = commands::others(wanted, &case, &columns, &cells, KERNELS_MAX);
    let (more_chains, no_chains) = if wanted.why == 0 { (None, more_chains) } else { (more_chains, None) };
    if let [alone] = &mut pairs[..] {
        alone.all.clear();
    }
    for pair in pairs.iter_mut().chain(&mut steps) {
        pair.which = headline::which(pair, &titles, &of(machines.clone()));
    }
    let document = Document {
        name: headline::name(&pairs, &of(experiments.clone())),
        title: headline::title(&pairs, &titles, &of(experiments.clone())),
        subtitle: format!("{} on {}; over time: {case}", of(experiments), of(machines)),
        command: commands::this_page(wanted),
        compare: commands::compare(&wanted.results, wanted.seeds, None),
        program: of(shown.iter().map(|shown| shown.program.as_str()).collect()),
        verdict,
        columns: all.iter().map(|column| name_of(column, &all)).collect(),
        pairs,
        steps,
        missing: lacks.iter().cloned().chain(others).chain(no_chains).collect(),
        more_chains,
        sweep,
        claims: claims(wanted, &shown),
        frontier: report::frontier(&cells),
        kernels,
        ecdf: distributions(&cells, &all),
        causes: causes(&cells, &all),
    };
    let lacks = lacks.iter().map(|(what, command)| format!("{what} {command}").trim_end().to_owned()).collect();
    Ok(Shows { html: html::page(&document), lacks })
}

/// The claims of the series that the first result keeps, judged by all results; none where they cannot be judged.
fn claims(wanted: &PageWanted, shown: &[Shown]) -> Option<Judgement> {
    shown.first()?.published.as_ref()?;
    let series = evidence::series_of(&wanted.results[0], None).ok()?;
    let judged = evidence::judged(series, &wanted.results, wanted.seeds).ok()?;
    Some(judged.judgement).filter(|judgement| judgement.is_reached().is_some())
}

/// All columns, in the order of their first cells.
pub(super) fn all_columns(cells: &[Cell]) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for cell in cells {
        if !columns.contains(&cell.key.column()) {
            columns.push(cell.key.column());
        }
    }
    columns
}

/// Columns that are shown over time, a run of each, and the question about its operations.
type OverTime = (Vec<Column>, Vec<Kernel>, Vec<Question>);

/// All cells and columns, and what of them is wanted.
struct Runs<'a> {
    wanted: &'a PageWanted,
    cells: &'a [Cell],
    /// Cases of the cells as the results have them: [`report::name_cases`] gives some of them longer names.
    cases: &'a [String],
    names: &'a [String],
    all: &'a [Column],
}

impl Runs<'_> {
    /// The case that is shown over time.
    fn case(&self) -> Result<String, UsageError> {
        let known: BTreeSet<&str> = self.cells.iter().map(|cell| cell.key.case.as_str()).collect();
        if let Some(case) = &self.wanted.case {
            let known: Vec<&str> = known.into_iter().collect();
            let is_known = known.contains(&case.as_str());
            let problem = || UsageError::of_key("--case", unknown("case", case, &known));
            return is_known.then(|| case.clone()).ok_or_else(problem);
        }
        let first = |has: fn(&Cell) -> bool| self.cells.iter().find(|cell| has(cell));
        let found = first(|cell| cell.map.is_some()).or_else(|| first(|cell| cell.series.is_some()));
        Ok(found.unwrap_or(&self.cells[0]).key.case.clone())
    }

    /// The columns that are shown over time, and one run of each with what it has.
    fn kernels(&self, case: &str) -> Result<OverTime, UsageError> {
        let has_case =
            |column: &&Column| self.cells.iter().any(|cell| cell.key.case == case && cell.key.column() == **column);
        let mut columns: Vec<Column> = self.all.iter().filter(has_case).cloned().collect();
        let labels: Vec<String> = columns.iter().map(Column::label).collect();
        if self.wanted.kernels.len() > KERNELS_MAX {
            let found = self.wanted.kernels.len();
            return Err(UsageError::of_key("--kernel", format!("expected at most {KERNELS_MAX}, found {found}")));
        }
        if !self.wanted.kernels.is_empty() {
            let mut chosen = Vec::new();
            for name in &self.wanted.kernels {
                let known: Vec<&str> = labels.iter().map(String::as_str).collect();
                let is_it = |column: &&Column| column.label() == *name || column.kernel == *name;
                let found = columns.iter().find(is_it);
                let problem = || UsageError::of_key("--kernel", unknown("column", name, &known));
                chosen.push(found.ok_or_else(problem)?.clone());
            }
            columns = chosen;
        }
        columns.truncate(KERNELS_MAX);
        let mut runs = Vec::new();
        for column in &columns {
            let of_column: Vec<&Cell> =
                self.cells.iter().filter(|cell| cell.key.case == case && cell.key.column() == *column).collect();
            let (cell, note) = median(&of_column);
            let map = cell.map.is_some().then(|| load(self.directory(cell), cell)).transpose()?;
            runs.push((name_of(column, self.all), note, cell, map));
        }
        let samples = fitting(runs.iter().filter_map(|(.., map)| map.as_ref()));
        let of_series = fitting_series(runs.iter().filter_map(|(_, _, cell, _)| cell.series.as_ref()));
        let kernel = |(name, note, cell, map): (String, String, &Cell, Option<BlockMap>)| Kernel {
            why: self.question(cell).map(|question| chains::command_of(&question)),
            ..kernel((name, note), cell, map.as_ref(), (samples, of_series), STALLS.max(self.wanted.why))
        };
        let questions = runs.iter().map(|(.., cell, _)| self.question(cell)).collect();
        Ok((columns.clone(), runs.into_iter().map(kernel).collect(), questions))
    }

    /// The question about the slowest operation of a cell.
    fn question(&self, cell: &Cell) -> Question {
        let is_kept = cell.slow_path.is_some();
        let at = self.cells.iter().position(|other| other.key == cell.key).filter(|_| is_kept)?;
        let column = Column { result: None, ..cell.key.column() };
        let chosen =
            Chosen { kernel: Some(column.label()), case: Some(self.cases[at].clone()), seed: Some(cell.key.seed) };
        let result = self.directory(cell).to_owned();
        Some(WhyWanted { result, which: Which::Slowest(1), what: None, order: None, chosen })
    }

    /// The result that a cell is of.
    fn directory(&self, cell: &Cell) -> &Path {
        let of_result = |name: &String| self.names.iter().position(|known| known == name);
        &self.wanted.results[cell.key.result.as_ref().and_then(of_result).unwrap_or(0)]
    }
}

/// A column's name for people, as short as it can be.
fn name_of(column: &Column, all: &[Column]) -> String {
    let is_alone =
        |of: fn(&Column) -> (Option<&String>, &str)| all.iter().filter(|other| of(other) == of(column)).count() == 1;
    if is_alone(|column| (None, &column.kernel)) {
        column.kernel.clone()
    } else if is_alone(|column| (column.result.as_ref(), &column.kernel)) {
        format!("{} {}", column.result.as_deref().unwrap_or_default(), column.kernel)
    } else {
        column.label()
    }
}

/// The run of a column that is shown: of those with a map, or else with samples, the median by the mean of the first metric.
fn median<'a>(cells: &[&'a Cell]) -> (&'a Cell, String) {
    let having = |has: fn(&Cell) -> bool| cells.iter().copied().filter(|cell| has(cell)).collect::<Vec<_>>();
    let with_map = having(|cell| cell.map.is_some());
    let with_series = having(|cell| cell.series.is_some());
    let mut from = [with_map, with_series].into_iter().find(|cells| !cells.is_empty()).unwrap_or(cells.to_vec());
    let metric = |cell: &Cell| cell.measured.metrics.first().map(|metric| metric.name.clone());
    let mean = |cell: &Cell| {
        let samples = cell.measured.metrics.first().map_or(&[][..], |metric| &metric.samples);
        samples.iter().sum::<f64>() / samples.len().max(1) as f64
    };
    from.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
    let cell = from[(from.len() - 1) / 2];
    let of = metric(cell).filter(|_| from.len() > 1).map(|metric| format!(", the median by {metric}"));
    (cell, format!("seed {}{}", cell.key.seed, of.unwrap_or_default()))
}

/// How many samples each map may have so that all maps fit.
fn fitting<'a>(maps: impl Iterator<Item = &'a BlockMap>) -> usize {
    let maps: Vec<&BlockMap> = maps.collect();
    let mut samples = SAMPLES_MAX;
    let bytes = |most: usize| maps.iter().map(|map| map.only(&thinned(map.len(), most)).packed().len()).sum::<usize>();
    // Bound: the bits of a number.
    while samples > 2 && bytes(samples) > MAPS_MAX {
        samples /= 2;
    }
    samples
}

/// How many samples each series may have so that all series fit.
fn fitting_series<'a>(series: impl Iterator<Item = &'a Series>) -> usize {
    let series: Vec<&Series> = series.collect();
    let bytes_of = |series: &Series| serde_json::to_string(series).map_or(0, |json| json.len());
    let bytes =
        |most: usize| series.iter().map(|one| bytes_of(&one.only(&thinned(one.rows.len(), most)))).sum::<usize>();
    let mut samples = SERIES_SAMPLES_MAX;
    // Bound: the bits of a number.
    while samples > 2 && bytes(samples) > SERIES_MAX {
        samples /= 2;
    }
    samples
}

/// Indices of at most `most` evenly spaced samples out of `all`, with the first and the last sample among them.
fn thinned(all: usize, most: usize) -> Vec<usize> {
    if all <= most {
        return (0..all).collect();
    }
    (0..most).map(|at| at * (all - 1) / (most - 1)).collect()
}

/// A kernel without its command and its chains; `most` bounds the samples of its map and of its series, `marks` its stalls.
fn kernel(
    (name, note): (String, String),
    cell: &Cell,
    map: Option<&BlockMap>,
    most: (usize, usize),
    marks: usize,
) -> Kernel {
    let order = map.map_or(Order::HUGE.0, |map| map.head.pageblock_order);
    let of_map = map.map(|map| thinned(map.len(), most.0));
    let all = cell.series.as_ref().map_or(0, |series| series.rows.len());
    // The instants of the map are among those of the series, so that the map's table can have the series' exact numbers.
    let of_series: BTreeSet<usize> = thinned(all, most.1).into_iter().chain(of_map.iter().flatten().copied()).collect();
    let of_series: Vec<usize> = of_series.into_iter().filter(|at| *at < all).collect();
    let series = cell.series.as_ref().map(|series| series.only(&of_series));
    let note = if of_series.len() < all { format!("{note}, {} of {all} samples", of_series.len()) } else { note };
    let places = |at: &usize| of_series.binary_search(at).unwrap_or(*at);
    let map = map
        .zip(of_map)
        .map(|(map, samples)| Map { of_series: samples.iter().map(places).collect(), ..of_page(map, &samples) });
    Kernel {
        name,
        note,
        map,
        unusable: series.as_ref().and_then(|series| unusable(series, order)),
        series,
        stalls: cell.slow_path.as_ref().map_or_else(Vec::new, |log| stalls(log, marks)),
        why: None,
        chains: Vec::new(),
        no_chains: None,
    }
}

/// At most `most` longest operations of tasks, with the numbers that `pagelab why` gives them.
fn stalls(log: &SlowPath, most: usize) -> Vec<Stall> {
    let ms = |ps: u64| ps as f64 / 1e9;
    let of_tasks = log.longest(log.entries.len()).into_iter().filter(|entry| !is_of_thread(log.name(entry)));
    let stall = |(number, entry): (usize, &Entry)| Stall {
        number,
        at_us: entry.start_ps as f64 / 1e6,
        ms: ms(entry.ps()),
        what: log.name(entry).to_owned(),
        task: entry.task,
        cpu: entry.cpu,
        order: entry.order,
        parts: log.parts(entry).into_iter().map(|(cause, ps)| (cause.to_owned(), ms(ps))).collect(),
    };
    (1..).zip(of_tasks).take(most).map(stall).collect()
}

/// Some samples of a map.
fn of_page(map: &BlockMap, samples: &[usize]) -> Map {
    let some = map.only(samples);
    let band = |band: &report::map::Band| MapBand {
        zone: band.zone.clone(),
        title: band.title(),
        first: band.first,
        blocks: band.blocks,
    };
    let seen: BTreeSet<u8> = (0..some.len()).flat_map(|at| some.cells(at)).map(|cell| cell.kind).collect();
    Map {
        pageblock_order: some.head.pageblock_order,
        group: some.head.group,
        types: some.head.types.clone(),
        seen: seen.into_iter().collect(),
        bands: some.head.bands.iter().map(band).collect(),
        packed: html::base64(&some.packed()),
        at_us: some.head.at_us,
        scanners: some.head.scanners,
        fragmentation: some.head.fragmentation,
        of_series: samples.to_vec(),
    }
}

/// Pairs of columns that a page compares; or why it compares none, with commands that do.
struct Judged {
    pairs: Vec<PairOf>,
    verdict: String,
    how: Vec<How>,
}

/// Columns two by two. Results that have nothing in common stand beside each other without a verdict.
fn judged(wanted: &PageWanted, names: &[String], shown: &[Shown], cells: &[Cell], all: &[Column]) -> Judged {
    let nothing =
        |why: String, how: Vec<How>| Judged { pairs: Vec::new(), verdict: format!("Nothing is compared: {why}."), how };
    if let Some(other) = strange(shown) {
        let how = commands::of_strangers(&wanted.results, names, shown, wanted.seeds);
        return nothing(in_words(names, shown, other), how);
    }
    match pairs(names, shown, cells, all) {
        Ok(pairs) => {
            Judged { pairs, verdict: "No row is in two columns, so nothing is compared.".to_owned(), how: Vec::new() }
        }
        Err(NoBaseline::Unlike { first, column, labels }) => {
            let command = commands::compare(&wanted.results, wanted.seeds, labels.first().map(String::as_str));
            let how = vec![(format!("This compares every column with one of {first}:"), command)];
            nothing(format!("no column of {first} is like {column}"), how)
        }
        Err(NoBaseline::OneColumn(first)) => {
            nothing(format!("{first} has one column, and no other result is here"), Vec::new())
        }
        Err(NoBaseline::Unknown(problem)) => nothing(problem, Vec::new()),
    }
}

/// Columns that can be compared, two by two.
fn pairs(names: &[String], shown: &[Shown], cells: &[Cell], all: &[Column]) -> Result<Vec<PairOf>, NoBaseline> {
    Ok(pairs_of(&comparison(names, shown, cells, None, Gates::default())?, all))
}

/// The pairs of columns that a comparison has.
fn pairs_of(comparison: &Comparison, all: &[Column]) -> Vec<PairOf> {
    let mut columns: Vec<(&str, &str)> = Vec::new();
    for row in &comparison.rows {
        let pair = (row.old_column.as_str(), row.new_column.as_str());
        if !columns.contains(&pair) {
            columns.push(pair);
        }
    }
    let name = |label: &str| {
        let column = all.iter().find(|column| column.label() == label);
        column.map_or_else(|| label.to_owned(), |column| name_of(column, all))
    };
    let pair = |pair: (&str, &str)| pair_of(comparison, pair, (name(pair.0), name(pair.1)));
    columns.into_iter().filter_map(pair).collect()
}

fn pair_of(comparison: &Comparison, columns: (&str, &str), (old, new): (String, String)) -> Option<PairOf> {
    let is_of = |row: &&Compared| {
        row.family == Family::Primary && (row.old_column.as_str(), row.new_column.as_str()) == columns
    };
    let rows: Vec<&Compared> = comparison.rows.iter().filter(is_of).collect();
    let is_alone = rows.iter().all(|row| row.experiment == rows[0].experiment);
    let name = |row: &Compared| if is_alone { row.label() } else { format!("{}: {}", row.experiment, row.label()) };
    let all = rows.iter().map(|row| changed(row, name(row))).collect();
    let mut changed: Vec<(&Compared, Changed)> = rows.iter().map(|row| (*row, changed(row, name(row)))).collect();
    let size = |change: &Changed| change.change.map_or(f64::MAX, f64::abs);
    changed.sort_by(|(a, x), (b, y)| {
        b.verdict.is_starred().cmp(&a.verdict.is_starred()).then(size(y).total_cmp(&size(x)))
    });
    let runs = rows.first()?.runs;
    let verdict = headline::counts(&rows);
    let largest = headline::largest(&changed);
    let rows = changed.into_iter().take(ROWS).zip(1..);
    // Two names may have the same letters, and links have to tell them apart.
    let rows = rows.map(|((_, changed), number)| Changed { id: format!("{}-{number}", changed.id), ..changed });
    Some(PairOf { old, new, verdict, which: String::new(), largest, runs, rows: rows.collect(), all })
}

/// The change of a row in per cent, as tables have it.
fn changed(row: &Compared, name: String) -> Changed {
    let of_old = |value: f64| (row.old != 0.0).then(|| value / row.old.abs() * 100.0);
    let bounds = match &row.tested {
        Tested::By(test) => test.interval,
        Tested::OneRun | Tested::Same | Tested::DiffersInAll => None,
    };
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    Changed {
        id: name.chars().map(letter).collect(),
        name,
        unit: row.unit.clone(),
        old: row.old,
        new: row.new,
        change: row.change_percent,
        low: bounds.and_then(|bounds| of_old(bounds.low)),
        high: bounds.and_then(|bounds| of_old(bounds.high)),
        verdict: row.verdict.word(),
    }
}

/// Distributions of metrics of which cells keep samples, all seeds together.
pub(super) fn distributions(cells: &[Cell], all: &[Column]) -> Vec<Distribution> {
    let set = |row: SamplesOf| {
        let curves = row.columns.into_iter().filter(|(.., fewest)| *fewest >= SAMPLES_MIN);
        let curves = curves.map(|(column, samples, _)| Curve::of(name_of(&column, all), samples)).collect();
        Distribution { title: row.name, unit: row.unit, curves }
    };
    let sets = report::samples(cells).into_iter().map(set).filter(|set| !set.curves.is_empty());
    sets.take(DISTRIBUTIONS_MAX).collect()
}

/// Times by cause, case by case.
pub(super) fn causes(cells: &[Cell], all: &[Column]) -> Vec<Causes> {
    let mut sets = Vec::new();
    // Their cases are named: no two tables have one of them.
    for table in report::causes(cells) {
        let columns: Vec<Column> = table.columns.iter().map(|head| head.column.clone()).collect();
        let cases: BTreeSet<&str> = table.rows.iter().map(|row| row.case.as_str()).collect();
        for case in cases {
            let name = |metric: &str| {
                metric
                    .strip_prefix("cpu.")
                    .map(str::to_owned)
                    .or_else(|| metric.strip_prefix("waiting.").map(|cause| format!("waiting: {cause}")))
            };
            let row = |row: &report::Row| {
                let values = row.cells.iter().map(|cell| cell.as_ref().map(|value| value.value)).collect();
                Some(Cause { name: name(&row.metric)?, values })
            };
            let rows = table.rows.iter().filter(|row| row.case == case).filter_map(row).collect();
            let columns = columns.iter().map(|column| name_of(column, all)).collect();
            sets.push(Causes { title: case.to_owned(), columns, rows });
        }
    }
    sets
}
