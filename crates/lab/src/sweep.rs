//! A grid over settings of the kernel and parameters of the workload: a run with a cell for each place, and what it says.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use linux::qemu::Accelerator;
use report::{
    Cell, Key, Kind, Table,
    compare::{Axis, Family, Gates, Grid, Sweep, sweep_csv, sweep_text},
};
use serde::Serialize;
use units::{Bytes, setting};

use crate::{
    evidence,
    experiment::Experiment,
    ladder,
    plan::{Plan, Request, Seeds, Session},
    provenance,
    show::{self, compare::Form},
    simulated,
    usage::UsageError,
    workload::{self, Offered},
};

/// Places of a grid, as many as anyone can look at and a machine can do overnight.
const PLACES_MAX: usize = 2000;
/// Cells: places, times what else the experiment varies, times seeds.
const CELLS_MAX: usize = 100_000;
/// Maps of each row: a third axis and those after it make one for each combination of their values.
const PANELS_MAX: usize = 24;

/// Names of settings and parameters, each with the values that it takes.
type Values = Vec<(String, Vec<String>)>;

/// A sweep that a user asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Name or path of an experiment.
    pub experiment: String,
    /// `NAME=VALUES`: values with commas, and ranges `FROM..TO:STEP`.
    pub sets: Vec<String>,
    /// Names or paths of variants: one at most, but for cells that travel.
    pub variants: Vec<String>,
    /// Name or path of the machine.
    pub machine: Option<String>,
    /// Where memory stands when a workload starts.
    pub state: Option<String>,
    /// Everything is repeated with these.
    pub seeds: Seeds,
    /// Simulated cells at a time.
    pub workers: Option<usize>,
    /// Where results go.
    pub out: Option<PathBuf>,
}

/// The form in which a sweep is printed, and its rows.
#[derive(Clone, Debug)]
pub struct Print {
    /// Statistics, metrics, cases or counters; without any, the means for which a direction is better.
    pub metrics: Vec<String>,
    /// How large a difference has to be.
    pub gates: Gates,
    /// The form.
    pub form: Form,
}

impl Wanted {
    /// The run that makes the result.
    ///
    /// # Errors
    /// No grid, one that is too large, names or values that are not there, or more than one kernel.
    pub fn request(&self) -> Result<Request, UsageError> {
        if self.sets.is_empty() {
            return Err(UsageError::new("sweep: expected --set NAME=VALUES, as in --set vm.swappiness=0..100:20"));
        }
        let (request, plan, given) = self.planned()?;
        let axes: Values = given.into_iter().filter(|(_, values)| values.len() > 1).collect();
        if axes.is_empty() {
            return Err(UsageError::new(
                "sweep: the grid has one cell; expected several values of something, as in --set vm.swappiness=0..100:20",
            ));
        }
        let panels = axes.iter().skip(2).map(|(_, values)| values.len()).product::<usize>();
        if panels > PANELS_MAX {
            return Err(UsageError::new(format!(
                "sweep: the third --set and those after it make {panels} maps of each row; expected at most {PANELS_MAX} (the \
                 first two are the rows and columns of a map)"
            )));
        }
        one_kernel(&plan, &self.experiment)?;
        let axes = axes.into_iter().map(|(name, values)| axis(name, values, &plan));
        Ok(Request { axes: axes.collect::<Result<_, _>>()?, ..request })
    }

    /// The run whose cells travel: a sweep where it is one, else one that is printed as any other.
    ///
    /// # Errors
    /// Names or values that are not there, or too many cells.
    pub fn request_of_cells(&self) -> Result<Request, UsageError> {
        let (plain, ..) = self.planned()?;
        Ok(self.request().unwrap_or(plain))
    }

    /// The run, its plan, and names with their values.
    fn planned(&self) -> Result<(Request, Plan, Values), UsageError> {
        let given = self.values()?;
        let places = given.iter().map(|(_, values)| values.len()).fold(1, usize::saturating_mul);
        if places > PLACES_MAX {
            return Err(UsageError::new(format!(
                "sweep: the grid has {places} places; expected at most {PLACES_MAX} (fewer values, or a larger step)"
            )));
        }
        let sets = given.iter().map(|(name, values)| format!("{name}={}", values.join(",")));
        let request =
            evidence::request(self.experiment.clone(), Vec::new(), self.seeds, self.workers, self.directory());
        let request = Request {
            machine: self.machine.clone(),
            variants: self.variants.clone(),
            state: self.state.clone(),
            sets: sets.collect(),
            ..request
        };
        // Names and values are judged here.
        let plan = Plan::new(&request, |_| Accelerator::Tcg)?;
        if plan.cells() > CELLS_MAX {
            return Err(UsageError::new(format!("sweep: {} cells; expected at most {CELLS_MAX}", plan.cells())));
        }
        Ok((request, plan, given))
    }

    /// Names with all of their values.
    fn values(&self) -> Result<Values, UsageError> {
        let read = |set: &String| {
            let pair = set.split_once('=').filter(|(name, values)| !name.is_empty() && !values.is_empty());
            let Some((name, values)) = pair else {
                return Err(UsageError::of_key(
                    format!("--set {set}"),
                    "expected NAME=VALUES, as in --set vm.swappiness=0..100:20",
                ));
            };
            let mistake = |problem: String| UsageError::of_key(format!("--set {name}"), problem);
            let values = values.split(',').map(range).collect::<Result<Vec<_>, _>>().map_err(mistake)?.concat();
            if let Some(twice) = (1..values.len()).find(|at| values[..*at].contains(&values[*at])) {
                return Err(mistake(format!("{} is given twice", values[twice])));
            }
            Ok((name.to_owned(), values))
        };
        self.sets.iter().map(read).collect()
    }

    /// A sweep that stopped goes on here, if the program is still the same.
    fn directory(&self) -> PathBuf {
        let Self { experiment, sets, variants, machine, state, seeds, .. } = self;
        let what = format!("{experiment:?} {sets:?} {variants:?} {machine:?} {state:?}");
        self.out.clone().unwrap_or_else(|| place("sweep", &format!("{experiment}-{seeds}"), &what))
    }
}

/// The result directory of a command that goes on where it stopped: of the same words, by the same program.
pub(crate) fn place(command: &str, name: &str, what: &str) -> PathBuf {
    let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.', "-");
    let hash = blake3::hash(what.as_bytes()).to_hex();
    let program = provenance::short(provenance::PROGRAM_HASH);
    Path::new("results").join(format!("{command}-{name}-{}-{program}", &hash[..6]))
}

/// All values of `FROM..TO:STEP`, both ends included where the step leads there; any other text is one value. Numbers may be
/// followed by the same unit, or be sizes.
fn range(text: &str) -> Result<Vec<String>, String> {
    // A path may have two dots too.
    let is_number = |from: &str| from.starts_with(|letter: char| letter.is_ascii_digit());
    let Some((from, rest)) = text.split_once("..").filter(|(from, _)| is_number(from)) else {
        return Ok(vec![text.to_owned()]);
    };
    let bad =
        |problem: &str| format!("{text}: {problem}; expected FROM..TO:STEP, as in 0..30000:5000 or 2MiB..8MiB:2MiB");
    let Some((to, step)) = rest.split_once(':') else { return Err(bad("a range has a step")) };
    let parts = |text: &str| {
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        Some((text[..digits].parse::<u64>().ok()?, text[digits..].to_owned()))
    };
    let all = [from, to, step].map(parts);
    let [Some(from_parts), Some(to_parts), Some(step_parts)] = all else { return Err(bad("no range of numbers")) };
    let (numbers, write): ([u64; 3], Box<dyn Fn(u64) -> String>) =
        if from_parts.1 == to_parts.1 && to_parts.1 == step_parts.1 {
            let unit = from_parts.1;
            ([from_parts.0, to_parts.0, step_parts.0], Box::new(move |number| format!("{number}{unit}")))
        } else {
            let size = |text: &str| text.parse::<Bytes>().map(|size| size.0).map_err(|_| bad("its units differ"));
            ([size(from)?, size(to)?, size(step)?], Box::new(|size| Bytes(size).to_string()))
        };
    let [from, to, step] = numbers;
    match step {
        0 => return Err(bad("a step of 0 leads nowhere")),
        _ if from > to => return Err(bad("the range is empty")),
        step if (to - from) / step >= PLACES_MAX as u64 => {
            return Err(format!("{text}: {} values; expected at most {PLACES_MAX}", (to - from) / step + 1));
        }
        _ => {}
    }
    let step = usize::try_from(step).map_err(|error| error.to_string())?;
    Ok((from..=to).step_by(step).map(write).collect())
}

/// A map is of one kernel.
fn one_kernel(plan: &Plan, experiment: &str) -> Result<(), UsageError> {
    let kernels = plan.sessions.iter().map(|session| base_kernel(&session.kernel, session.label.as_deref()));
    let mut kernels: Vec<String> = kernels.collect();
    let tables: BTreeSet<&Option<String>> =
        plan.sessions.iter().flat_map(|session| session.keys.iter().map(|key| &key.group)).collect();
    kernels.dedup();
    kernels.sort();
    kernels.dedup();
    match kernels.len() {
        1 if tables.len() <= 1 => Ok(()),
        _ => Err(UsageError::new(format!(
            "sweep: {experiment} compares {}; a sweep is of one kernel: choose it with --variant",
            report::short::text::list("", &kernels, 100)
        ))),
    }
}

/// The kernel's name without the label that tells its settings from another column's.
fn base_kernel(kernel: &str, label: Option<&str>) -> String {
    let without = label.and_then(|label| kernel.strip_suffix(label)).map(str::trim_end);
    without.unwrap_or(kernel).to_owned()
}

/// An axis of a planned sweep, with its values as cells have them.
fn axis(name: String, given: Vec<String>, plan: &Plan) -> Result<Axis, UsageError> {
    let keys = || plan.sessions.iter().flat_map(|session| &session.keys);
    let mut values: Vec<String> = Vec::new();
    for value in keys().filter_map(|key| key.params.get(&name)) {
        if !values.contains(value) {
            values.push(value.clone());
        }
    }
    if values.is_empty() {
        return Err(UsageError::of_key(
            format!("--set {name}"),
            "says what the cells are, so it cannot be swept; give one value",
        ));
    }
    // A value that fits nowhere has no cell, and its place in the map is empty.
    if given.iter().all(|value| !is_file(&name, value)) {
        values = given;
    }
    let default = default(&name, &plan.sessions[0], &plan.experiment);
    Ok(Axis { name, values, default })
}

/// Is this a value whose cells have the content of a file instead?
fn is_file(name: &str, value: &str) -> bool {
    !workload::is_setting(name) && value.contains(['/', '.']) && Path::new(value).is_file()
}

/// The value of a setting or parameter where a user sets none: of the machine, of the experiment, of the kernel; none where the
/// kernel's rules decide.
pub(crate) fn default(name: &str, session: &Session, experiment: &Experiment) -> Option<String> {
    let only = |values: &Vec<String>| if let [value] = values.as_slice() { Some(value.clone()) } else { None };
    if !workload::is_setting(name) {
        let given = experiment.params.iter().find(|(known, _)| known == name);
        return given.map_or_else(|| default_of_param(experiment.workload, name), |(_, values)| only(values));
    }
    let of_machine = session.machine.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let of_experiment =
        experiment.settings.iter().find(|(known, _)| known == name).and_then(|(_, values)| only(values));
    let of_kernel = || if name == setting::MIN_FREE_KBYTES { min_free(session) } else { None };
    of_experiment.or(of_machine).or_else(of_kernel).or_else(|| default_of_table(name))
}

/// The default of a setting that is a value, whatever the machine and the rules.
fn default_of_table(name: &str) -> Option<String> {
    let known = setting::find(name).filter(|known| known.takes.accepts(known.default))?;
    Some(known.default.to_owned())
}

fn default_of_param(workload: &Offered, name: &str) -> Option<String> {
    workload.params().iter().find(|param| param.info.name == name).map(|param| param.info.default.to_owned())
}

/// The memory that the kernel keeps free by itself.
fn min_free(session: &Session) -> Option<String> {
    let crate::plan::Place::Sim { variant, .. } = &session.place else { return None };
    let view = simulated::spec(&session.machine).ok()?.view();
    let settings = simulated::settings(&session.machine, &view, &variant.rules).ok()?;
    Some(settings.min_free_kbytes.to_string())
}

#[derive(Serialize)]
struct Document<'a> {
    result: String,
    program: &'a str,
    missing: usize,
    sweep: &'a Sweep,
}

/// Prints what the result in a directory says. Of a run that was no sweep, its settings with several values are the axes.
///
/// # Errors
/// A directory that is no result, a result in which nothing varies, or metrics that it does not have.
pub fn judged(directory: &Path, print: &Print) -> Result<String, UsageError> {
    let shown = show::read(directory, None)?;
    let place = directory.display();
    if shown.cells.is_empty() {
        return Err(UsageError::in_file(&place, "no cell is done, so there is no map"));
    }
    let axes = match &shown.presentation.axes {
        axes if axes.is_empty() => varying(&shown.cells),
        axes => axes.clone(),
    };
    if axes.is_empty() {
        return Err(UsageError::new(format!("{place} is of no sweep: no kernel setting has several values in it")));
    }
    let panels: usize = axes.iter().skip(2).map(|axis| axis.values.len()).product();
    if panels > PANELS_MAX {
        return Err(UsageError::in_file(&place, format!("{panels} maps of each row; expected at most {PANELS_MAX}")));
    }
    let (grid, cells) = placed(axes, &shown.cells).map_err(|problem| UsageError::in_file(&place, problem))?;
    let is_default = |table: &Table, family| family != Family::Counters || table.kind == Kind::Memory;
    let report = ladder::rows(shown.report.layout, &cells, &print.metrics, is_default)?;
    // What nobody asked for by name is listed without a map.
    let maps = if print.metrics.is_empty() { vec![Family::Primary] } else { Vec::new() };
    let sweep = Sweep { maps, ..Sweep::of(&report, &grid, print.gates) };
    let unfinished = match shown.missing {
        0 => String::new(),
        missing => format!("unfinished: {missing} cells have no result\n"),
    };
    Ok(match print.form {
        Form::Text => sweep_text(&sweep, false) + &unfinished,
        Form::Markdown => sweep_text(&sweep, true) + &unfinished,
        Form::Csv => sweep_csv(&sweep),
        Form::Json => {
            let document =
                Document { result: place.to_string(), program: &shown.program, missing: shown.missing, sweep: &sweep };
            serde_json::to_string_pretty(&document).expect("fields serialise") + "\n"
        }
    })
}

/// The map of a result's grid, of the means for which a direction is better; none where it has no grid that can be drawn.
pub(crate) fn of_result(shown: &show::Shown) -> Option<Sweep> {
    let axes = match &shown.presentation.axes {
        axes if axes.is_empty() => varying(&shown.cells),
        axes => axes.clone(),
    };
    let panels: usize = axes.iter().skip(2).map(|axis| axis.values.len()).product();
    if axes.is_empty() || panels > PANELS_MAX {
        return None;
    }
    let (grid, cells) = placed(axes, &shown.cells).ok()?;
    let report = ladder::rows(shown.report.layout, &cells, &[], |_: &Table, family| family == Family::Primary).ok()?;
    Some(Sweep::of(&report, &grid, Gates::default()))
}

/// Settings that have several values in a result.
fn varying(cells: &[Cell]) -> Vec<Axis> {
    let mut values: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, value) in cells.iter().flat_map(|cell| &cell.key.params).filter(|(name, _)| workload::is_setting(name)) {
        let known = values.entry(name).or_default();
        if !known.contains(value) {
            known.push(value.clone());
        }
    }
    let axis =
        |(name, values): (&str, Vec<String>)| Axis { name: name.to_owned(), values, default: default_of_table(name) };
    values.into_iter().filter(|(_, values)| values.len() > 1).map(axis).collect()
}

/// The cells as columns of a report, one for each place, and where in the grid these stand.
fn placed(axes: Vec<Axis>, cells: &[Cell]) -> Result<(Grid, Vec<Cell>), String> {
    let mut kernels: Vec<(&str, &str)> = Vec::new();
    let mut columns = BTreeMap::new();
    let mut placed = Vec::new();
    let cases = cases(&axes, cells);
    for cell in cells {
        let key = &cell.key;
        let kernel = (key.variant.as_str(), key.machine.as_str());
        if !kernels.contains(&kernel) {
            kernels.push(kernel);
        }
        let of = |axis: &Axis| key.params.get(&axis.name);
        let words = axes.iter().filter_map(|axis| Some(format!("{}={}", axis.name, of(axis)?)));
        let column = words.collect::<Vec<_>>().join(" ");
        let mut coordinates = vec![Vec::new()];
        for axis in &axes {
            let at: Vec<usize> = match of(axis) {
                // This setting means nothing with the others' values: the cell stands for all of its values.
                None => (0..axis.values.len()).collect(),
                Some(value) => axis.values.iter().position(|known| known == value).into_iter().collect(),
            };
            let with = |place: &Vec<usize>, at: &usize| [place.as_slice(), &[*at]].concat();
            coordinates = coordinates.iter().flat_map(|place| at.iter().map(move |at| with(place, at))).collect();
        }
        columns.extend(coordinates.into_iter().map(|place| (place, column.clone())));
        let mut key = Key { kernel: column, case: cases[&row_of(&axes, key)].clone(), ..key.clone() };
        key.params.retain(|name, _| axes.iter().all(|axis| axis.name != *name));
        placed.push(Cell { key, ..cell.clone() });
    }
    if kernels.len() > 1 {
        let names: Vec<String> = kernels.iter().map(|(variant, machine)| format!("{variant} on {machine}")).collect();
        return Err(format!(
            "a map is of one kernel and machine, found {}",
            report::short::text::list("", &names, 100)
        ));
    }
    Ok((Grid { axes, columns }, placed))
}

/// The traits that all cells of a row have in common.
type RowOf = (Option<String>, String, BTreeMap<String, String>);

fn row_of(axes: &[Axis], key: &Key) -> RowOf {
    let is_swept = |name: &String| axes.iter().any(|axis| axis.name == *name);
    let params = key.params.iter().filter(|(name, _)| !workload::is_setting(name) && !is_swept(name));
    let params = params.map(|(name, value)| (name.clone(), value.clone()));
    (key.group.clone(), key.workload.clone(), params.collect())
}

/// The case of each row: where it differs over the grid, with stars in these places.
fn cases(axes: &[Axis], cells: &[Cell]) -> BTreeMap<RowOf, String> {
    let mut cases: BTreeMap<RowOf, Vec<String>> = BTreeMap::new();
    for cell in cells {
        let words = cell.key.case.split('-').map(str::to_owned);
        let row = cases.entry(row_of(axes, &cell.key)).or_insert_with(|| words.clone().collect());
        for (known, word) in row.iter_mut().zip(words) {
            if *known != word {
                "*".clone_into(known);
            }
        }
    }
    cases.into_iter().map(|(row, words)| (row, words.join("-"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(experiment: &str, sets: &[&str]) -> Wanted {
        Wanted {
            experiment: experiment.to_owned(),
            sets: sets.iter().map(|set| (*set).to_owned()).collect(),
            variants: Vec::new(),
            machine: None,
            state: None,
            seeds: Seeds::up_to(2),
            workers: None,
            out: None,
        }
    }

    #[test]
    fn a_range_is_all_of_its_values() {
        let values = |text| range(text).unwrap().join(" ");
        assert_eq!(values("0..30000:15000"), "0 15000 30000");
        assert_eq!(values("1..10:4"), "1 5 9");
        assert_eq!(values("70%..90%:10%"), "70% 80% 90%");
        assert_eq!(values("512KiB..2MiB:512KiB"), "512KiB 1MiB 1536KiB 2MiB");
        assert_eq!((values("always"), values("../mine.csv")), ("always".to_owned(), "../mine.csv".to_owned()));
        for (bad, expected) in [
            ("0..5", "a range has a step"),
            ("5..0:1", "the range is empty"),
            ("0..5:0", "leads nowhere"),
            ("0..x:1", "no range of numbers"),
            ("1%..2MiB:1", "units differ"),
            ("0..1000000:1", "expected at most"),
        ] {
            let error = range(bad).unwrap_err();
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }

    #[test]
    fn a_grid_has_axes_with_defaults() {
        let sets = [
            "vm.watermark_boost_factor=0..30000:15000",
            "vm.extfrag_threshold=0,500",
            "threads=1",
            "size=70%..80%:10%",
        ];
        let request = wanted("thpscale", &sets).request().unwrap();
        let axes: Vec<_> = request.axes.iter().map(|axis| (axis.name.as_str(), axis.default.as_deref())).collect();
        let expected = [
            ("vm.watermark_boost_factor", Some("15000")),
            ("vm.extfrag_threshold", Some("500")),
            ("size", Some("80%")),
        ];
        assert_eq!(axes, expected);
        assert_eq!(request.axes[0].values, ["0", "15000", "30000"]);
        let plan = Plan::new(&request, |_| Accelerator::Tcg).unwrap();
        assert_eq!(plan.cells(), 3 * 2 * 2 * 2);
        let min_free = wanted("thpscale", &["vm.min_free_kbytes=4096,8192"]).request().unwrap();
        let default = min_free.axes[0].default.as_ref().unwrap();
        assert!(default.parse::<u64>().unwrap() > 1000, "the kernel's own: {default}");
    }

    #[test]
    fn what_is_no_grid_is_one_message() {
        for (experiment, sets, expected) in [
            ("thpscale", &[][..], "expected --set NAME=VALUES"),
            ("thpscale", &["vm.swappiness"], "expected NAME=VALUES"),
            ("thpscale", &["vm.swappiness=10"], "the grid has one cell"),
            ("thpscale", &["vm.swappiness=10,10"], "10 is given twice"),
            ("thpscale", &["vm.swapiness=10,20"], "did you mean \"vm.swappiness\"?"),
            ("thpscale", &["thread=1,2"], "did you mean \"threads\"?"),
            ("thpscale", &["vm.swappiness=10,900"], "expected a whole number from 0 to 200"),
            ("thpscale", &["vm.swappiness=20..10:5"], "the range is empty"),
            ("thpscale", &["vm.swappiness=0..200:1", "vm.extfrag_threshold=0..1000:1"], "the grid has 201201 places"),
            ("thpscale", &["vm.swappiness=1,2", "vm.page-cluster=1,2", "vm.extfrag_threshold=0..24:1"], "25 maps"),
            ("thpscale", &["script=2018,2023", "threads=1"], "cannot be swept"),
            ("thpscale-4.1", &["vm.swappiness=1,2"], "choose it with --variant"),
            ("thpscal", &["vm.swappiness=1,2"], "did you mean \"thpscale\"?"),
        ] {
            let error = wanted(experiment, sets).request().unwrap_err().to_string();
            assert!(error.contains(expected) && error.lines().count() == 1, "{experiment} {sets:?}: {error}");
        }
    }
}
