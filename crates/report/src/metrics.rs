//! Tables of metrics: mmtests' blocks of rows, one block per statistic, one row per operation.

use std::collections::BTreeMap;

use crate::better::Better;
use crate::group::{Group, Runs, distinct, groups};
use crate::record::{Cell, Column, Metric};
use crate::stats::{self, Spread};
use crate::table::{ColumnHead, Form, Kind, Row, Table, Value};

/// One table per experiment, workload and metric, in order of first appearance. The samples of all
/// seeds are pooled.
///
/// Metrics where higher is better get harmonic means, unless a sample is zero or negative somewhere in
/// the table: such samples have no harmonic mean. Then, and for all others, means are arithmetic.
pub fn tables(records: &[Cell]) -> Vec<Table> {
    of_groups(&groups(records))
}

pub(crate) fn of_groups(groups: &[Group<'_>]) -> Vec<Table> {
    groups.iter().flat_map(|group| identities(group).into_iter().map(|metric| table(group, metric))).collect()
}

fn identities<'a>(group: &'a Group<'_>) -> Vec<Identity<'a>> {
    let metrics = group.cells.iter().flat_map(|placed| &placed.cell.measured.metrics);
    distinct(metrics.filter(|metric| !metric.samples.is_empty()).map(Identity::of))
}

/// The samples of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplesOf {
    /// Metric and case in full: no other row has this name.
    pub name: String,
    /// The unit of the samples.
    pub unit: String,
    /// All samples of each column that has any, and the fewest of a run.
    pub columns: Vec<(Column, Vec<f64>, usize)>,
}

/// All samples, row by row, in the order of tables.
pub fn samples(records: &[Cell]) -> Vec<SamplesOf> {
    let groups = groups(records);
    let mut rows = Vec::new();
    for (group, metric) in
        groups.iter().flat_map(|group| identities(group).into_iter().map(move |metric| (group, metric)))
    {
        for operation in operations(group, metric) {
            let mut name = format!("{} {}", metric.name, operation.name);
            if groups.len() > 1 {
                name = format!("{}: {name}", group.title);
            }
            if rows.iter().any(|known: &SamplesOf| known.name == name) {
                name = format!("{name} ({})", metric.unit);
            }
            let fewest = |pool: &Pool<'_>| pool.of_seed.values().map(Vec::len).min().unwrap_or(0);
            let pools = group.columns.iter().zip(operation.pools);
            let of_column = |(head, pool): (&ColumnHead, Option<Pool<'_>>)| {
                let pool = pool?;
                Some((head.column.clone(), fewest(&pool), pool.samples))
            };
            let columns = pools.filter_map(of_column).map(|(column, fewest, samples)| (column, samples, fewest));
            rows.push(SamplesOf { name, unit: metric.unit.to_owned(), columns: columns.collect() });
        }
    }
    rows
}

fn table(group: &Group<'_>, metric: Identity<'_>) -> Table {
    let operations = operations(group, metric);
    let pools = || operations.iter().flat_map(|operation| operation.pools.iter().flatten());
    let positive = pools().all(|pool| pool.samples.iter().all(|&sample| sample > 0.0));
    let average = if metric.better == Better::Higher && positive && metric.unit != PERCENT {
        Average::Harmonic
    } else {
        Average::Arithmetic
    };
    let is_share = metric.unit == PERCENT;
    let has_tails = metric.is_time() && pools().any(|pool| pool.of_seed.values().any(|run| run.len() > 1));
    let blocks = if is_share {
        &[Statistic::Percentage][..]
    } else if pools().all(|pool| pool.samples.len() == 1) {
        &[Statistic::Mean][..]
    } else if has_tails {
        &Statistic::OF_TIMES[..]
    } else {
        &Statistic::BLOCKS[..]
    };
    let block = |&statistic: &Statistic| {
        let block = Block { metric, average, statistic, has_tails };
        operations.iter().map(move |operation| block.row(operation))
    };
    Table {
        experiment: group.experiment.clone(),
        title: format!("{} {}", group.title, metric.title()),
        kind: Kind::Metric,
        unit: metric.unit.to_owned(),
        better: metric.better,
        columns: group.columns.clone(),
        rows: blocks.iter().flat_map(block).collect(),
    }
}

/// The unit of metrics that are shares: they get one block, as in mmtests.
const PERCENT: &str = "pct";

/// Titles that do not follow from the name of a metric; the first titles are mmtests'.
const TITLES: [(&str, &str); 4] = [
    ("fault_latency_us", "Fault Latencies"),
    ("thp_success_pct", "Percentage Faults Huge"),
    ("host_memory_gib_min", "Host Memory over Time"),
    ("free_2mib_blocks", "Free 2 MiB Blocks"),
];

/// What makes two metrics the same: numbers of different units never meet in a table.
#[derive(Clone, Copy, PartialEq)]
struct Identity<'a> {
    name: &'a str,
    unit: &'a str,
    better: Better,
}

impl<'a> Identity<'a> {
    fn of(metric: &'a Metric) -> Self {
        Self { name: &metric.name, unit: &metric.unit, better: metric.better }
    }

    /// Is it how long something took? Of those the longest matter too.
    fn is_time(self) -> bool {
        self.better == Better::Lower && ["ns", "us", "ms", "s"].contains(&self.unit)
    }

    /// `fault_latency_ns`, in ns, becomes `Fault Latency`.
    fn title(self) -> String {
        if let Some((_, title)) = TITLES.iter().find(|(name, _)| *name == self.name) {
            return (*title).to_owned();
        }
        let unit = self.unit.to_lowercase();
        let stem = self.name.strip_suffix(&unit).and_then(|stem| stem.strip_suffix('_'));
        let word = |word: &str| {
            let mut letters = word.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            first.into_iter().chain(letters).collect::<String>()
        };
        let words: Vec<String> = stem.unwrap_or(self.name).split('_').map(word).collect();
        words.join(" ")
    }
}

/// The samples of one operation.
struct Operation<'a> {
    /// The case, after the class of the metric if it has any.
    name: String,
    /// Where its class comes in the order of classes.
    class: usize,
    /// One per column.
    pools: Vec<Option<Pool<'a>>>,
}

/// The samples of one operation in one column; there is at least one.
#[derive(Default)]
struct Pool<'a> {
    /// The samples of all seeds, sorted.
    samples: Vec<f64>,
    /// The same by seed, sorted.
    of_seed: BTreeMap<u64, Vec<f64>>,
    /// Samples in the order in which cells finished, until they are sorted.
    runs: Runs<'a>,
}

impl Pool<'_> {
    /// Sorts samples: sums must not depend on the order in which cells finished.
    fn sort(&mut self) {
        self.of_seed = std::mem::take(&mut self.runs).into_by_seed();
        self.of_seed.values_mut().for_each(|samples| samples.sort_by(f64::total_cmp));
        self.samples = self.of_seed.values().flatten().copied().collect();
        self.samples.sort_by(f64::total_cmp);
    }
}

/// In order of first appearance, but all of a class together: mmtests' rows of 2018, as changelogs quote them.
fn operations<'a>(group: &'a Group<'_>, metric: Identity<'_>) -> Vec<Operation<'a>> {
    let mut operations: Vec<Operation<'a>> = Vec::new();
    let of_all = group.cells.iter().flat_map(|placed| &placed.cell.measured.metrics);
    let classes = distinct(of_all.filter(|found| Identity::of(found) == metric).map(|found| found.class.as_deref()));
    for placed in &group.cells {
        let metrics = placed.cell.measured.metrics.iter();
        for found in metrics.filter(|found| Identity::of(found) == metric) {
            if found.samples.is_empty() {
                continue;
            }
            let case = group.case_of(placed, found);
            let name = match &found.class {
                Some(class) => format!("{class}-{case}"),
                None => case,
            };
            let class = classes.iter().position(|class| *class == found.class.as_deref()).unwrap_or(0);
            let known = operations.iter().position(|known| known.name == name);
            let index = known.unwrap_or_else(|| {
                let pools = group.columns.iter().map(|_| None).collect();
                operations.push(Operation { name, class, pools });
                operations.len() - 1
            });
            let pool = operations[index].pools[placed.column].get_or_insert_default();
            pool.runs.add_metric(placed, found);
        }
    }
    operations.sort_by_key(|operation| operation.class);
    operations.iter_mut().flat_map(|operation| operation.pools.iter_mut().flatten()).for_each(Pool::sort);
    operations
}

#[derive(Clone, Copy)]
enum Average {
    Arithmetic,
    Harmonic,
}

#[derive(Clone, Copy, PartialEq)]
enum Statistic {
    Min,
    Mean,
    Stddev,
    CoeffVar,
    P50,
    P99,
    Max,
    BestMean,
    Percentage,
}

impl Statistic {
    /// The blocks of a table with more than one sample somewhere, in mmtests' order.
    const BLOCKS: [Self; 6] = [Self::Min, Self::Mean, Self::Stddev, Self::CoeffVar, Self::Max, Self::BestMean];
    /// Blocks of a table of times, with percentiles.
    const OF_TIMES: [Self; 8] =
        [Self::Min, Self::Mean, Self::Stddev, Self::CoeffVar, Self::P50, Self::P99, Self::Max, Self::BestMean];
}

/// The statistic of one run's samples.
type OfRun<'a> = fn(Block<'a>, &[f64]) -> Option<f64>;

const P50: &str = "P50";
const P99: &str = "P99";
const MAX: &str = "Max";
/// Statistics of how long the longest take.
pub(crate) const TAILS: [&str; 3] = [P50, P99, MAX];

/// The rows of one statistic.
#[derive(Clone, Copy)]
struct Block<'a> {
    metric: Identity<'a>,
    average: Average,
    statistic: Statistic,
    /// Has the table percentiles, of runs with several samples of a time?
    has_tails: bool,
}

impl<'a> Block<'a> {
    fn row(self, operation: &Operation<'_>) -> Row {
        Row {
            metric: match self.statistic {
                // A share is one number, as in the published tables.
                Statistic::Percentage => self.metric.name.to_owned(),
                _ => format!("{}.{}", self.metric.name, self.name()),
            },
            case: operation.name.clone(),
            stat: self.name().to_owned(),
            operation: operation.name.clone(),
            better: self.better(),
            unit: self.unit().to_owned(),
            form: Form::Hundredths,
            cells: operation.pools.iter().map(|pool| self.value(pool.as_ref()?)).collect(),
        }
    }

    fn name(self) -> &'static str {
        match (self.statistic, self.average) {
            (Statistic::Min, _) => "Min",
            (Statistic::Mean, Average::Arithmetic) => "Amean",
            (Statistic::Mean, Average::Harmonic) => "Hmean",
            (Statistic::Stddev, Average::Arithmetic) => "Stddev",
            (Statistic::Stddev, Average::Harmonic) => "HStddev",
            (Statistic::CoeffVar, Average::Arithmetic) => "CoeffVar",
            (Statistic::CoeffVar, Average::Harmonic) => "HCoeffVar",
            (Statistic::P50, _) => P50,
            (Statistic::P99, _) => P99,
            (Statistic::Max, _) => MAX,
            (Statistic::BestMean, Average::Arithmetic) => "BAmean.95",
            (Statistic::BestMean, Average::Harmonic) => "BHmean.95",
            (Statistic::Percentage, _) => "Percentage",
        }
    }

    /// That of the samples, but for a spread as a part of the mean.
    fn unit(&self) -> &str {
        if self.statistic == Statistic::CoeffVar { PERCENT } else { self.metric.unit }
    }

    /// A spread is better low, whatever spreads.
    fn better(self) -> Better {
        match (self.statistic, self.metric.better) {
            (Statistic::Stddev | Statistic::CoeffVar, Better::Lower | Better::Higher) => Better::Lower,
            (_, better) => better,
        }
    }

    fn value(self, pool: &Pool<'_>) -> Option<Value> {
        let samples = &pool.samples;
        let value = match self.statistic {
            Statistic::Min => stats::min(samples),
            Statistic::Mean | Statistic::Percentage => self.mean(samples),
            Statistic::Stddev => self.spread(samples)?.stddev,
            Statistic::CoeffVar => stats::coeff_var(self.spread(samples)?),
            Statistic::P50 | Statistic::P99 | Statistic::Max => self.tail(samples),
            Statistic::BestMean => match self.average {
                Average::Arithmetic => stats::bamean95(samples, self.metric.better),
                Average::Harmonic => stats::bhmean95(samples, self.metric.better),
            },
        };
        let of_run: Option<OfRun<'a>> = match self.statistic {
            Statistic::Mean | Statistic::Percentage => Some(Self::mean),
            Statistic::P50 | Statistic::P99 | Statistic::Max if self.has_tails => Some(Self::tail),
            _ => None,
        };
        let of_seeds = |of_run: OfRun<'a>| {
            let of_seed = |(seed, samples): (&u64, &Vec<f64>)| Some((*seed, of_run(self, samples)?));
            pool.of_seed.iter().filter_map(of_seed).collect()
        };
        Some(Value::over_seeds(value?, of_run.map(of_seeds).unwrap_or_default()))
    }

    /// A percentile, or the largest.
    fn tail(self, samples: &[f64]) -> Option<f64> {
        match self.statistic {
            Statistic::P50 => stats::percentile(samples, 50.0),
            Statistic::P99 => stats::percentile(samples, 99.0),
            _ => stats::max(samples),
        }
    }

    fn mean(self, samples: &[f64]) -> Option<f64> {
        match self.average {
            Average::Arithmetic => stats::amean(samples),
            Average::Harmonic => stats::hmean(samples),
        }
    }

    fn spread(self, samples: &[f64]) -> Option<Spread> {
        let stddev = match self.average {
            Average::Arithmetic => stats::stddev(samples),
            Average::Harmonic => stats::hstddev(samples),
        };
        Some(Spread { mean: self.mean(samples)?, stddev })
    }
}
