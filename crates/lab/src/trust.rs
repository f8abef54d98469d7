//! The worth of an experiment's numbers, on one screen: what behind them is fitted, measured, assumed or not checked, and what
//! is known to be wrong. Each is a count, and the worst example.

mod beside;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use report::{Page, Part, Published};
use rules::variant::Variant;

use self::{
    beside::{Beside, Drawn},
    text::Row,
};
use crate::{
    experiment::Experiment,
    machine::Machine,
    prices::{self, Origin, Used},
    published, suggest,
    usage::UsageError,
    variant,
};

/// The grounds of an experiment's simulated numbers.
pub struct Trust {
    experiment: Experiment,
    machine: Machine,
    /// The variants of the columns, by name, with the rules of each variant that nobody read in the source.
    columns: Vec<(String, Vec<&'static str>)>,
    /// The published series whose tables it makes.
    published: Option<Published>,
    /// Counters of it that were compared with a real kernel's.
    beside: Option<Beside>,
    /// Counters of cells drawn at random, with their ceiling.
    drawn: Option<Drawn>,
}

/// Collects what is known of the experiment of a name or path.
pub fn of(name_or_path: &str) -> Result<Trust, UsageError> {
    let experiment = Experiment::load(name_or_path)?;
    let machine = Machine::load(&experiment.machine, &linux::setting::names())?;
    let mut names: Vec<String> = experiment.columns.iter().map(|column| column.variant.clone()).collect();
    if names.is_empty() {
        let newest = Variant::for_release(&experiment.kernel).map_err(|unknown| UsageError {
            file: Some(format!("experiment {}", experiment.name)),
            line: None,
            key: Some("kernel".to_owned()),
            message: unknown.to_string(),
        })?;
        names.push(newest.name.clone());
    }
    // A column may differ from another in its settings alone.
    let mut known = BTreeSet::new();
    names.retain(|name| known.insert(name.clone()));
    let column = |name: String| Ok((name.clone(), variant::from_memory(&name)?));
    Ok(Trust {
        columns: names.into_iter().map(column).collect::<Result<_, UsageError>>()?,
        published: published::of_experiment(&experiment.name)?,
        beside: beside::of(&experiment.name),
        drawn: beside::drawn(&experiment.name),
        experiment,
        machine,
    })
}

impl Trust {
    /// The screen: at most 24 lines of 80 columns.
    pub fn text(&self) -> String {
        let names: Vec<_> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        let title = format!("{}: {}", self.experiment.name, self.experiment.about);
        let on = format!("machine {}; rules of {}", self.machine.name, names.join(", "));
        let mut rows = self.prices();
        rows.push(self.rules());
        rows.extend(self.published.iter().flat_map(published_rows));
        rows.extend(self.drawn.as_ref().map(Drawn::row));
        rows.extend(self.beside.as_ref().map(Beside::row));
        Page::of(vec![Part::Text(text::screen(&[title, on], &rows, &self.more()))]).to_text()
    }

    fn prices(&self) -> Vec<Row> {
        let Machine { prices: own, pace, .. } = &self.machine;
        let used = prices::all(own, pace.as_ref());
        let mut by_origin: BTreeMap<Origin, Vec<(&Used, String)>> = BTreeMap::new();
        for price in &used {
            let (origin, source) = price.origin();
            by_origin.entry(origin).or_default().push((price, source.to_owned()));
        }
        let row = |(name, origin)| {
            let all = by_origin.get(&origin).map_or(&[][..], Vec::as_slice);
            // What is remembered is worse than what was looked up; else an error in the dearest costs most.
            let worst = all.iter().max_by_key(|(price, source)| (source.contains("from memory"), price.ps));
            let example = |(price, source): &(&Used, String)| {
                let ns = prices::ns(units::Picos(price.ps));
                format!("{} {ns} ns: {source}", price.work)
            };
            Row { name, count: all.len(), of: used.len(), worst: worst.map(example).unwrap_or_default() }
        };
        let [mut fitted, measured, assumed] = [
            ("prices fitted", Origin::Fitted),
            ("prices measured", Origin::Measured),
            ("prices assumed", Origin::Assumed),
        ]
        .map(row);
        if let Some(pace) = pace.as_ref().filter(|pace| prices::origin(&pace.source).0 == Origin::Fitted) {
            let paced = used.iter().filter(|price| price.generic).count();
            let why = prices::origin(&pace.source).1;
            let scale = f64::from(pace.percent) / 100.0;
            fitted.worst = format!("all {paced} other costs are scaled by {scale}, fitted to published rows: {why}");
        }
        vec![fitted, measured, assumed]
    }

    fn rules(&self) -> Row {
        let all: BTreeSet<_> = self.columns.iter().flat_map(|(_, rules)| rules).collect();
        // The first of a list is the one that matters most.
        let worst = self.columns.iter().find_map(|(name, rules)| Some((name, rules.first()?)));
        let about = |rule: &str| Variant::RULES.iter().find(|known| known.name == rule).map_or("", |rule| rule.about);
        let worst = worst.map(|(name, rule)| format!("{rule} of {name}: {}", about(rule)));
        Row {
            name: "rules not checked against the source",
            count: all.len(),
            of: Variant::RULES.len(),
            worst: worst.unwrap_or_default(),
        }
    }

    /// Where there is more about it.
    fn more(&self) -> String {
        let published = match &self.published {
            Some(published) => {
                let Published { name, source, .. } = published;
                let claims = suggest::command(["claims", name]);
                format!("Published as {name} ({}, {}): {claims}. ", source.author, source.date)
            }
            None => "No published table is held against it. ".to_owned(),
        };
        let beside = match (&self.drawn, &self.beside) {
            (Some(_), _) => "Counters beside real kernels: docs/fidelity.md.",
            (None, Some(_)) => "Counters beside real kernels: docs/fidelity.md; no drawn cell.",
            (None, None) => "No real kernel was compared with it.",
        };
        published + beside
    }
}

/// How many values of the published tables are fitted, and how many of ours are known to be off.
fn published_rows(published: &Published) -> [Row; 2] {
    let column = |kernel: &str| published.source.columns.iter().find(|column| column.kernel == kernel);
    let count = |name, reason: &dyn Fn([&str; 4]) -> Option<String>| {
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for value in published.all() {
            let ours = column(&value.kernel).map_or(value.kernel.as_str(), |column| column.ours());
            if let Some(reason) = reason([&value.experiment, &value.metric, &value.case, ours]) {
                *reasons.entry(reason).or_default() += 1;
            }
        }
        // The worst is what most values suffer from.
        let worst = reasons.iter().max_by_key(|(_, values)| **values);
        let worst = worst.map(|(reason, values)| format!("{values} values: {reason}")).unwrap_or_default();
        Row { name, count: reasons.values().sum(), of: published.all().len(), worst }
    };
    let owned = |reason: Option<&str>| reason.map(str::to_owned);
    [
        count("table values fitted", &|[experiment, metric, case, kernel]| {
            owned(published.fitted(experiment, metric, case, kernel))
        }),
        count("table values known to be off", &|[experiment, metric, case, kernel]| {
            owned(published.wrong(experiment, metric, case, kernel))
        }),
    ]
}
