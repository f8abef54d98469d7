//! Tables of metrics: mmtests' blocks of rows, one block per statistic, one row per operation.

use std::collections::BTreeMap;

use crate::group::{Group, distinct, groups};
use crate::record::{Better, Cell, Metric};
use crate::stats::{self, Spread};
use crate::table::{Form, Kind, Row, Table, Value};

/// One table per experiment, workload and metric, in order of first appearance. The samples of all
/// seeds are pooled.
///
/// Metrics where higher is better get harmonic means, unless a sample is zero or negative somewhere in
/// the table: such samples have no harmonic mean. Then, and for all others, means are arithmetic.
pub fn tables(records: &[Cell]) -> Vec<Table> {
    of_groups(&groups(records))
}

pub(crate) fn of_groups(groups: &[Group<'_>]) -> Vec<Table> {
    groups.iter().flat_map(group_tables).collect()
}

fn group_tables(group: &Group<'_>) -> Vec<Table> {
    let metrics = group.cells.iter().flat_map(|placed| &placed.cell.measured.metrics);
    let metrics = metrics.filter(|metric| !metric.samples.is_empty()).map(Identity::of);
    distinct(metrics).into_iter().map(|metric| table(group, metric)).collect()
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
    let blocks = if is_share {
        &[Statistic::Percentage][..]
    } else if pools().all(|pool| pool.samples.len() == 1) {
        &[Statistic::Mean][..]
    } else {
        &Statistic::BLOCKS[..]
    };
    let block = |&statistic: &Statistic| {
        let block = Block { metric, average, statistic };
        operations.iter().map(move |operation| block.row(operation))
    };
    Table {
        experiment: group.experiment.to_owned(),
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

/// Titles that do not follow from the name of a metric; the first are those of mmtests.
const TITLES: [(&str, &str); 3] = [
    ("fault_latency_us", "Fault Latencies"),
    ("thp_success_pct", "Percentage Faults Huge"),
    ("host_memory_gib_min", "Host Memory over Time"),
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
struct Operation {
    /// The case, after the class of the metric if it has any.
    name: String,
    /// Where its class comes in the order of classes.
    class: usize,
    /// One per column.
    pools: Vec<Option<Pool>>,
}

/// The samples of one operation in one column; there is at least one.
#[derive(Default)]
struct Pool {
    /// Those of all seeds, sorted.
    samples: Vec<f64>,
    /// The same by seed, sorted.
    of_seed: BTreeMap<u64, Vec<f64>>,
}

/// In order of first appearance, but all of a class together: mmtests' rows of 2018, as changelogs quote them.
fn operations(group: &Group<'_>, metric: Identity<'_>) -> Vec<Operation> {
    let mut operations: Vec<Operation> = Vec::new();
    let of_all = group.cells.iter().flat_map(|placed| &placed.cell.measured.metrics);
    let classes = distinct(of_all.filter(|found| Identity::of(found) == metric).map(|found| found.class.as_deref()));
    for placed in &group.cells {
        let metrics = placed.cell.measured.metrics.iter();
        for found in metrics.filter(|found| Identity::of(found) == metric) {
            if found.samples.is_empty() {
                continue;
            }
            let case = found.part.as_ref().unwrap_or(&placed.operation);
            let name = match &found.class {
                Some(class) => format!("{class}-{case}"),
                None => case.clone(),
            };
            let class = classes.iter().position(|class| *class == found.class.as_deref()).unwrap_or(0);
            let known = operations.iter().position(|known| known.name == name);
            let index = known.unwrap_or_else(|| {
                let pools = group.columns.iter().map(|_| None).collect();
                operations.push(Operation { name, class, pools });
                operations.len() - 1
            });
            let pool = operations[index].pools[placed.column].get_or_insert_default();
            pool.samples.extend(&found.samples);
            pool.of_seed.entry(placed.cell.key.seed).or_default().extend(&found.samples);
        }
    }
    operations.sort_by_key(|operation| operation.class);
    let pools = operations.iter_mut().flat_map(|operation| operation.pools.iter_mut().flatten());
    for pool in pools {
        // Sums must not depend on the order in which cells finished.
        pool.samples.sort_by(f64::total_cmp);
        pool.of_seed.values_mut().for_each(|samples| samples.sort_by(f64::total_cmp));
    }
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
    Max,
    BestMean,
    Percentage,
}

impl Statistic {
    /// The blocks of a table with more than one sample somewhere, in mmtests' order.
    const BLOCKS: [Self; 6] = [Self::Min, Self::Mean, Self::Stddev, Self::CoeffVar, Self::Max, Self::BestMean];
}

/// The rows of one statistic.
#[derive(Clone, Copy)]
struct Block<'a> {
    metric: Identity<'a>,
    average: Average,
    statistic: Statistic,
}

impl Block<'_> {
    fn row(self, operation: &Operation) -> Row {
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
            (Statistic::Max, _) => "Max",
            (Statistic::BestMean, Average::Arithmetic) => "BAmean.95",
            (Statistic::BestMean, Average::Harmonic) => "BHmean.95",
            (Statistic::Percentage, _) => "Percentage",
        }
    }

    /// A spread is better low, whatever spreads.
    fn better(self) -> Better {
        match (self.statistic, self.metric.better) {
            (Statistic::Stddev | Statistic::CoeffVar, Better::Lower | Better::Higher) => Better::Lower,
            (_, better) => better,
        }
    }

    fn value(self, pool: &Pool) -> Option<Value> {
        let samples = &pool.samples;
        let value = match self.statistic {
            Statistic::Min => stats::min(samples),
            Statistic::Mean | Statistic::Percentage => self.mean(samples),
            Statistic::Stddev => self.spread(samples)?.stddev,
            Statistic::CoeffVar => stats::coeff_var(self.spread(samples)?),
            Statistic::Max => stats::max(samples),
            Statistic::BestMean => match self.average {
                Average::Arithmetic => stats::bamean95(samples, self.metric.better),
                Average::Harmonic => stats::bhmean95(samples, self.metric.better),
            },
        };
        let mut of_seeds = BTreeMap::new();
        if matches!(self.statistic, Statistic::Mean | Statistic::Percentage) {
            let mean = |(seed, samples): (&u64, &Vec<f64>)| Some((*seed, self.mean(samples)?));
            of_seeds = pool.of_seed.iter().filter_map(mean).collect();
        }
        Some(Value::over_seeds(value?, of_seeds))
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
