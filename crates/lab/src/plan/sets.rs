//! `--set NAME=VALUE`: which names are kernel settings and which are parameters of the workload, and the columns that a
//! setting with several values makes.

use units::setting::{BALLOON, DISCARD, NUMA_BALANCING, REPORTING, REPORTING_DELAY, REPORTING_ORDER};

use super::{Request, traces};
use crate::{
    experiment::{Experiment, combinations},
    source::{nearest, unknown},
    usage::UsageError,
    workload,
};

/// Settings of one column, of those that `--set` gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// What tells the column from the others: the settings that have several values, such as `swappiness=10`.
    pub(super) label: Option<String>,
    /// All settings of the column.
    pub(super) values: Vec<(String, String)>,
}

impl Settings {
    /// The label of a kernel with them.
    pub(super) fn of_kernel(&self, kernel: &str) -> String {
        labelled(kernel, self.label.as_deref())
    }
}

/// The label of a kernel whose column has settings of its own.
pub(super) fn labelled(kernel: &str, label: Option<&str>) -> String {
    label.map_or_else(|| kernel.to_owned(), |label| format!("{kernel} {label}"))
}

/// Names with their values, in the order given.
pub(super) type Values = Vec<(String, Vec<String>)>;

/// What `--set` comes to.
pub(super) struct Split {
    /// Settings of each column, the experiment's settings included.
    pub(super) columns: Vec<Settings>,
    /// The same of a host, which nobody changes unless the user says so.
    pub(super) of_host: Vec<Settings>,
    /// Parameters of the workload.
    pub(super) params: Values,
}

/// Sorts `--set NAME=VALUE` into kernel settings, one for each column, and parameters; refuses unknown names.
pub(super) fn split(request: &Request, experiment: &Experiment) -> Result<Split, UsageError> {
    let params = experiment.workload.param_names();
    let known = linux::setting::names();
    let (mut settings, mut given): (Values, Values) = (Vec::new(), Vec::new());
    for set in &request.sets {
        let Some((name, value)) = set.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty())
        else {
            return Err(UsageError::of_key(
                format!("--set {set}"),
                "expected NAME=VALUE, as in --set vm.swappiness=10",
            ));
        };
        if settings.iter().chain(&given).any(|(known, _)| known == name) {
            return Err(UsageError::of_key(format!("--set {name}"), "given twice; several values go with commas"));
        }
        let values: Vec<_> = value.split(',').map(str::to_owned).collect();
        let complain = |noun: &str, valid: &[&str]| UsageError::of_key("--set", unknown(noun, name, valid));
        match workload::is_setting(name) {
            true if known.contains(&name) => {
                check(name, &values)?;
                let has_trace = experiment.workload.name == workloads::guest_footprint::INFO.name;
                if name == BALLOON && values.iter().any(|value| value == "trace") && !has_trace {
                    let workload = experiment.workload.name;
                    return Err(UsageError::of_key(
                        format!("--set {name}"),
                        format!(
                            "trace is of the workload guest-footprint, and this is {workload}; expected a size or off"
                        ),
                    ));
                }
                settings.push((name.to_owned(), values));
            }
            true => return Err(complain("setting", &known)),
            false if params.contains(&name) => {
                let values = values.into_iter().map(|value| traces::read(experiment.workload.name, name, value));
                given.push((name.to_owned(), values.collect::<Result<_, _>>()?));
            }
            false => return Err(unknown_parameter(name, &params, &known)),
        }
    }
    // What the user sets goes before.
    let is_left = |(name, _): &&(String, Vec<String>)| settings.iter().all(|(set, _)| set != name);
    let all: Values = experiment.settings.iter().filter(is_left).chain(&settings).cloned().collect();
    let is_left = |(name, _): &&(String, Vec<String>)| given.iter().all(|(set, _)| set != name);
    let values = all.iter().chain(experiment.params.iter().filter(is_left)).chain(&given);
    check_size(values, request)?;
    Ok(Split { columns: columns(&all), of_host: columns(&settings), params: given })
}

/// Cells that a run has at most: their keys alone take 50 MB.
const CELLS_MAX: u64 = 100_000;

/// Refuses a grid that is too large before any of it is made.
fn check_size<'a>(
    values: impl Iterator<Item = &'a (String, Vec<String>)>,
    request: &Request,
) -> Result<(), UsageError> {
    let named = values.map(|(name, values)| (name.as_str(), values.len()));
    let by_option = [("--variant", request.variants.len()), ("--kernel", request.kernels.len())];
    let seeds = ("--seeds", request.seeds.all().count());
    let several: Vec<_> = named.chain(by_option).chain([seeds]).filter(|(_, count)| *count > 1).collect();
    let cells = several.iter().fold(1_u64, |cells, (_, count)| cells.saturating_mul(*count as u64));
    if cells <= CELLS_MAX {
        return Ok(());
    }
    let words: Vec<_> = several.iter().map(|(name, count)| format!("{count} of {name}")).collect();
    let words = words.join(" x ");
    Err(UsageError::new(format!(
        "{words}: {cells} cells are too many; expected at most {CELLS_MAX}: run parts of them"
    )))
}

/// A name without a dot or a slash is a parameter's. One that the workload does not have may be a setting's without its
/// beginning.
fn unknown_parameter(name: &str, params: &[&str], settings: &[&str]) -> UsageError {
    let message = match nearest(name, settings).filter(|_| nearest(name, params).is_none()) {
        Some(setting) => format!("unknown parameter {name:?}; did you mean the setting {setting:?}?"),
        None => unknown("parameter", name, params),
    };
    UsageError::of_key("--set", message)
}

fn check(name: &str, values: &[String]) -> Result<(), UsageError> {
    for (at, value) in values.iter().enumerate() {
        linux::setting::check_form(name, value)
            .map_err(|problem| UsageError::of_key(format!("--set {name}"), problem))?;
        if values[..at].contains(value) {
            return Err(UsageError::of_key(format!("--set {name}"), format!("{value} is given twice")));
        }
    }
    Ok(())
}

/// Every combination of the settings' values, the last setting changing fastest.
fn columns(settings: &Values) -> Vec<Settings> {
    let has_several = |name: &str| settings.iter().any(|(known, values)| known == name && values.len() > 1);
    let column = |values: Vec<(String, String)>| {
        let words = values.iter().filter(|(name, _)| has_several(name));
        let words: Vec<_> = words.map(|(name, value)| format!("{}={value}", short(name, settings))).collect();
        Settings { label: (!words.is_empty()).then(|| words.join(" ")), values }
    };
    let mut columns: Vec<Settings> = Vec::new();
    for values in combinations(settings) {
        let column = column(effective(values));
        // What makes no difference makes no column.
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns
}

/// Without what means nothing: how pages are reported, where none is, and how memory is scanned, where nothing is balanced.
fn effective(mut values: Vec<(String, String)>) -> Vec<(String, String)> {
    if values.iter().any(|(name, value)| name == REPORTING && value == "off") {
        values.retain(|(name, _)| ![REPORTING_ORDER, REPORTING_DELAY, DISCARD].contains(&name.as_str()));
    }
    if values.iter().any(|(name, value)| name == NUMA_BALANCING && value == "0") {
        values.retain(|(name, _)| name == NUMA_BALANCING || !name.starts_with(NUMA_BALANCING));
    }
    values
}

/// What heads of columns call a setting: its last word, or all of its name where two of them have the same. Labels are part
/// of file names: no slash.
fn short(name: &str, settings: &Values) -> String {
    let last = |name: &str| name.rsplit(['.', '/']).next().unwrap_or_default().to_owned();
    let is_alone = settings.iter().filter(|(other, _)| last(other) == last(name)).count() == 1;
    if is_alone { last(name) } else { name.replace('/', ".") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(settings: &[(&str, &str)]) -> Values {
        let of = |(name, values): &(&str, &str)| ((*name).to_owned(), values.split(',').map(str::to_owned).collect());
        settings.iter().map(of).collect()
    }

    fn labels(settings: &[(&str, &str)]) -> Vec<String> {
        columns(&values(settings)).iter().map(|column| column.of_kernel("v6.1")).collect()
    }

    #[test]
    fn each_combination_of_values_is_a_column() {
        assert_eq!(labels(&[]), ["v6.1"]);
        assert_eq!(labels(&[("vm.swappiness", "10")]), ["v6.1"], "what all have tells nobody apart");
        let two = [
            ("vm.swappiness", "10,60"),
            ("vm.extfrag_threshold", "500"),
            ("transparent_hugepage/defrag", "always,never"),
        ];
        let expected = ["10 defrag=always", "10 defrag=never", "60 defrag=always", "60 defrag=never"];
        assert_eq!(labels(&two), expected.map(|words| format!("v6.1 swappiness={words}")));
        let third = &columns(&values(&two))[2].values;
        let pairs: Vec<_> = third.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let [swappiness, threshold, defrag] =
            [("vm.swappiness", "60"), ("vm.extfrag_threshold", "500"), ("transparent_hugepage/defrag", "always")];
        assert_eq!(pairs, [swappiness, threshold, defrag]);
    }

    #[test]
    fn how_pages_are_reported_makes_no_difference_where_none_is() {
        let settings = [(REPORTING, "off,on"), (REPORTING_ORDER, "0,9"), (REPORTING_DELAY, "2000")];
        assert_eq!(labels(&settings), ["v6.1 reporting=off", "v6.1 reporting=on order=0", "v6.1 reporting=on order=9"]);
        assert_eq!(columns(&values(&settings))[0].values, [(REPORTING.to_owned(), "off".to_owned())]);
        let size = "kernel.numa_balancing_scan_size_mb";
        let settings = [(NUMA_BALANCING, "0,1"), (size, "64,256")];
        let columns = columns(&values(&settings));
        assert_eq!(columns.len(), 3, "without balancing nothing is scanned");
        assert_eq!(columns[0].values, [(NUMA_BALANCING.to_owned(), "0".to_owned())]);
    }

    #[test]
    fn names_that_end_alike_are_told_apart_and_none_has_a_slash() {
        let both = [("transparent_hugepage/defrag", "always"), ("transparent_hugepage/khugepaged/defrag", "0,1")];
        assert_eq!(labels(&both)[1], "v6.1 transparent_hugepage.khugepaged.defrag=1");
    }
}
