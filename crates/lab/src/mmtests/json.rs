//! The files of `compare-mmtests.pl --json-export`: the samples of one test, of several runs.

use std::{collections::BTreeMap, path::Path};

use report::{Metric, brief};
use serde::Deserialize;

use super::{
    found::Found,
    kind::{Kind, TESTS, known_tests},
    logs::{Numbers, of_2013, read_packed},
    sysstate::Around,
};
use crate::{
    metrics::{self, Times},
    usage::UsageError,
};

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "_ExtractModules")]
    runs: Vec<ExportedRun>,
}

/// One run.
#[derive(Deserialize)]
struct ExportedRun {
    #[serde(rename = "_TestName")]
    run: String,
    /// `ExtractShellpackthpchallenge`, or `ExtractThpscale` in earlier ones.
    #[serde(rename = "_ModuleName")]
    module: String,
    /// For each operation its samples, by iteration.
    #[serde(rename = "_ResultData")]
    data: BTreeMap<String, Vec<Option<Samples>>>,
}

#[derive(Deserialize)]
struct Samples {
    #[serde(rename = "Values")]
    values: Vec<Sample>,
}

/// Perl writes what it has read as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Sample {
    Number(f64),
    Text(String),
}

/// The runs in a file.
pub(super) fn read(file: &Path) -> Result<Vec<Found>, UsageError> {
    let mistake = |what: String| UsageError::in_file(file.display(), what);
    let bytes = read_packed(file)?;
    let document: Document = serde_json::from_slice(&bytes).map_err(|error| {
        let place = file.display();
        UsageError::new(format!(
            "{place} is not a result directory, nor what compare-mmtests.pl --json-export writes: {}",
            brief(error)
        ))
    })?;
    let mut found = Vec::new();
    for module in &document.runs {
        let name = module.module.trim_start_matches("Extract").trim_start_matches("Shellpack").to_lowercase();
        let test = TESTS.iter().find(|(test, _)| test.replace('-', "") == name.replace('-', ""));
        let Some((test, kind)) = test else {
            return Err(mistake(format!(
                "it is of {}, which is not understood; these are: {}",
                brief(format_args!("{name:?}")),
                known_tests()
            )));
        };
        let iterations = module.data.values().map(Vec::len).max().unwrap_or(0);
        for iteration in 0..iterations {
            let numbers = numbers(*kind, &module.data, iteration).map_err(mistake)?;
            if numbers.iter().all(|numbers| numbers.runs.iter().all(Vec::is_empty)) {
                return Err(mistake(format!("{}: no operation of {test} has samples", module.run)));
            }
            let (run, test) = (module.run.clone(), (*test).to_owned());
            found.push(Found { run, test, is_pair: false, numbers: Some(numbers), around: Around::default() });
        }
    }
    if found.is_empty() { Err(mistake("no run has samples".to_owned())) } else { Ok(found) }
}

type Data = BTreeMap<String, Vec<Option<Samples>>>;

/// The samples of an operation in an iteration.
fn samples(data: &Data, operation: &str, iteration: usize) -> Result<Vec<f64>, String> {
    let found = data.get(operation).and_then(|all| all.get(iteration)?.as_ref());
    let number = |sample: &Sample| match sample {
        Sample::Number(number) => Ok(*number),
        Sample::Text(text) => {
            let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| format!("{operation}: expected a number, found {text:?}"))
        }
    };
    found.map_or(Ok(Vec::new()), |samples| samples.values.iter().map(number).collect())
}

fn numbers(kind: Kind, data: &Data, iteration: usize) -> Result<Vec<Numbers>, String> {
    let of = |operation: &str| samples(data, operation, iteration);
    // Names of operations with the same word are sorted by what follows it, numbers in their order.
    let after = |word: &str| {
        let mut found: Vec<&str> = data.keys().filter_map(|operation| operation.strip_prefix(word)).collect();
        found.sort_by_key(|rest| (rest.parse::<u32>().unwrap_or(u32::MAX), *rest));
        found
    };
    let one = |group: Option<String>, metrics: Vec<Metric>| Numbers { group, runs: vec![metrics] };
    Ok(match kind {
        Kind::Faults => {
            let mut metrics = Vec::new();
            for case in after("fault-both-") {
                let class = |class: &str| {
                    let mut samples = of(&format!("fault-{class}-{case}"))?;
                    // mmtests puts a zero where there was none.
                    if samples == [0.0] {
                        samples.clear();
                    }
                    Ok::<_, String>(samples)
                };
                let (base, huge) = (class("base")?, class("huge")?);
                let faults: Vec<(bool, f64)> = base
                    .into_iter()
                    .map(|sample| (false, sample))
                    .chain(huge.into_iter().map(|sample| (true, sample)))
                    .collect();
                let of_case = metrics::of_faults(&faults, Vec::new(), Vec::new()).into_iter();
                metrics.extend(of_case.map(|metric| Metric { part: Some(case.to_owned()), ..metric }));
            }
            vec![one(None, metrics)]
        }
        Kind::Programs => {
            let mut runs: Vec<Vec<Metric>> = Vec::new();
            for program in after("Elapsed-") {
                let [user, system, elapsed] =
                    ["User", "System", "Elapsed"].map(|class| of(&format!("{class}-{program}")));
                for (at, ((user, system), elapsed)) in user?.into_iter().zip(system?).zip(elapsed?).enumerate() {
                    if runs.len() <= at {
                        runs.push(Vec::new());
                    }
                    let times = metrics::of_times(Times { user, system, elapsed }).into_iter();
                    let part = Some(of_2013(program).to_owned());
                    runs[at].extend(times.map(|metric| Metric { part: part.clone(), ..metric }));
                }
            }
            vec![Numbers { group: None, runs }]
        }
        Kind::Warehouses => {
            let mut points = Vec::new();
            for warehouses in after("tput-") {
                points.push((format!("warehouses={warehouses}"), of(&format!("tput-{warehouses}"))?));
            }
            let is_single = points.iter().all(|(_, rates)| rates.len() <= 1);
            let group = if is_single { "specjbb-single-jvm" } else { "specjbb-per-node-jvm" };
            let points: Vec<(&str, Vec<f64>)> =
                points.iter().map(|(part, rates)| (part.as_str(), rates.clone())).collect();
            vec![one(Some(group.to_owned()), metrics::of_points(&points))]
        }
        Kind::Stores => {
            let mut models: BTreeMap<String, Vec<Metric>> = BTreeMap::new();
            for rest in after("ops-") {
                let place = rest
                    .rsplit_once('-')
                    .and_then(|(program, tasks)| Some((program.rsplit_once('_')?, tasks.parse().ok()?)));
                let Some(((test, model), tasks)) = place else { continue };
                let metric = metrics::stores(test, tasks, of(&format!("ops-{rest}"))?);
                models.entry(format!("will-it-scale-{model}")).or_default().push(metric);
            }
            models.into_iter().map(|(group, metrics)| one(Some(group), metrics)).collect()
        }
    })
}
