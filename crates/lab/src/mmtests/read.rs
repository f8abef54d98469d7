//! A directory or file from elsewhere as a result.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use report::{Cell, Contents, Key, Layout, Measured, Metric, Record, Run, SCHEMA, Skip, Target, brief};

use super::{
    beside::{BESIDE, BESIDE_VERSION, Beside},
    foreign,
    found::Found,
    json,
    kind::{Kind, known_tests, place},
    like::{Like, Wanted},
    logs::{Logs, Numbers, names, read_packed},
    sysstate::{self, Around},
};
use crate::{plan::Identity, presentation::Presentation, run::IDENTITY_FILE, usage::UsageError};

/// The name of machines, programs and states that nothing is known of.
pub(crate) const ELSEWHERE: &str = "elsewhere";
/// Counters of a real machine move for many reasons: those that moved less often are not shown.
const COUNTER_THRESHOLD: u64 = 20;

/// Is the path a result of ours, or the export of a result?
pub(crate) fn is_ours(path: &Path) -> bool {
    [IDENTITY_FILE, BESIDE].iter().any(|file| path.join(file).exists())
}

/// The result at a path without a `run.json`; with rows like `like`'s, if that is given.
///
/// # Errors
/// One message: nothing that is understood, a file that is cut short, or a run that has no place beside `like`.
pub(crate) fn contents(path: &Path, like: Option<&Like>) -> Result<(Identity, Contents), UsageError> {
    let (mut identity, mut records, known) = match Beside::read(path)? {
        Some(beside) => {
            let known: BTreeSet<String> = beside.cells.iter().map(|cell| cell.run.clone()).collect();
            let (identity, records) = beside.join(path)?;
            (Some(identity), records, known)
        }
        None => (None, Vec::new(), BTreeSet::new()),
    };
    let found = find(path, &known)?;
    if !found.is_empty() || identity.is_none() {
        let own = identity.as_ref().map(|identity| Like::of_result(&path.display().to_string(), identity));
        let like = like.or(own.as_ref());
        let cells = cells(path, &found, like)?;
        let keys = cells.iter().map(|cell| cell.key.clone());
        match &mut identity {
            Some(identity) => identity.keys.extend(keys),
            None => identity = Some(unknown_identity(keys.collect(), like.map(|like| like.layout))),
        }
        records.extend(cells.into_iter().map(Record::Cell));
    }
    Ok((identity.expect("made above"), Contents { records }))
}

fn unknown_identity(keys: Vec<Key>, layout: Option<Layout>) -> Identity {
    Identity {
        program: ELSEWHERE.to_owned(),
        keys,
        machines: Vec::new(),
        simulated: Vec::new(),
        layout: layout.unwrap_or_default(),
        sample: None,
        map: false,
        presentation: Some(Presentation {
            axes: Vec::new(),
            about: Some("measured elsewhere".to_owned()),
            titles: BTreeMap::new(),
            counter_threshold: COUNTER_THRESHOLD,
            published: None,
            rules: BTreeMap::new(),
        }),
        asked: None,
        lines: None,
    }
}

// ---- Exports

impl Beside {
    fn read(path: &Path) -> Result<Option<Self>, UsageError> {
        let file = path.join(BESIDE);
        if !file.is_file() {
            return Ok(None);
        }
        let mistake = |error: String| UsageError::in_file(file.display(), error);
        let bytes = std::fs::read(&file).map_err(|error| mistake(error.to_string()))?;
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| mistake(brief(error)))?;
        if value["version"] != BESIDE_VERSION {
            return Err(mistake(format!("expected version {BESIDE_VERSION}, found {}", brief(&value["version"]))));
        }
        serde_json::from_value(value).map(Some).map_err(|error| mistake(brief(error)))
    }

    /// The result: cells with the numbers of their logs.
    fn join(self, path: &Path) -> Result<(Identity, Vec<Record>), UsageError> {
        let mut read: BTreeMap<PathBuf, Vec<Metric>> = BTreeMap::new();
        let mut records = self.records;
        for beside in self.cells {
            let logs =
                path.join(&beside.run).join(format!("iter-{}", beside.iteration)).join(&beside.test).join("logs");
            if !read.contains_key(&logs) {
                let kind = Kind::of_test(&beside.test).ok_or_else(|| {
                    UsageError::in_file(path.join(BESIDE).display(), format!("unknown test {:?}", beside.test))
                })?;
                let numbers = Logs::open(&logs, kind)?.numbers(kind)?;
                let metrics = numbers.into_iter().flat_map(|numbers| numbers.runs.into_iter().flatten());
                read.insert(logs.clone(), metrics.collect());
            }
            let mut cell = beside.cell;
            for metric in cell.measured.metrics.iter_mut().filter(|metric| metric.samples.is_empty()) {
                let in_logs =
                    read[&logs].iter().find(|known| place(known, &beside.label) == place(metric, &beside.label));
                metric.samples = in_logs.map(|known| known.samples.clone()).unwrap_or_default();
            }
            let had = |metric: &Metric| metric.name == "fault_latency_us" && !metric.samples.is_empty();
            if Kind::of_test(&beside.test) == Some(Kind::Faults) && !cell.measured.metrics.iter().any(had) {
                return Err(UsageError::in_file(
                    logs.display(),
                    format!("expected a log of {}, found none", beside.label),
                ));
            }
            records.push(Record::Cell(cell));
        }
        Ok((self.identity, records))
    }
}

// ---- Directories of mmtests, and others

/// The runs in a path, but for those that are known.
fn find(path: &Path, known: &BTreeSet<String>) -> Result<Vec<Found>, UsageError> {
    if path.is_file() {
        return match foreign::read(path)? {
            Some(found) => Ok(found),
            None => json::read(path),
        };
    }
    let place = path.display();
    if !path.is_dir() {
        return Err(UsageError::new(format!("{place} is not a result directory: there is nothing of this name")));
    }
    let all = names(path)?;
    let name = run_name(path);
    let mut runs: Vec<(PathBuf, String)> = Vec::new();
    if has_iterations(path)? {
        runs.push((path.to_owned(), name.clone()));
    }
    for (folder, name) in all.iter().map(|name| (path.join(name), name)).filter(|(folder, _)| folder.is_dir()) {
        if !known.contains(name) && has_iterations(&folder)? {
            runs.push((folder, name.clone()));
        }
    }
    let files: Vec<String> = all.iter().filter(|name| path.join(name).is_file()).cloned().collect();
    let pairs = pairs(&files);
    match (runs.is_empty(), pairs.is_empty()) {
        (false, false) => Err(UsageError::new(format!(
            "{place} holds runs of mmtests ({}) and captures of /proc/vmstat ({}); give each a directory of its own",
            runs[0].1, pairs[0].0
        ))),
        (true, false) => pairs.iter().map(|pair| read_pair(path, &name, pair)).collect(),
        (false, true) => {
            runs.sort_by_key(|(folder, name)| (start(folder), name.clone()));
            let mut found = Vec::new();
            for (folder, name) in runs {
                found.extend(read_run(&folder, &name)?);
            }
            Ok(found)
        }
        (true, true) if is_ours(path) => Ok(Vec::new()),
        (true, true) => Err(nothing_here(path, &all)),
    }
}

fn nothing_here(path: &Path, names: &[String]) -> UsageError {
    let place = path.display();
    let old = names.iter().find(|name| name.starts_with("tests-timestamp-"));
    UsageError::new(match old {
        Some(old) => format!("{place}: {old} is of an mmtests of 2018 or before; its layout is not understood"),
        None => format!(
            "{place} is not a result directory: it has no {IDENTITY_FILE}, no run of mmtests (RUN/iter-0) and no captures of \
             /proc/vmstat (before and after)"
        ),
    })
}

fn run_name(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().map_or_else(|| ELSEWHERE.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// `iter-0`, `iter-1` and so on, in order.
fn iterations(folder: &Path) -> Result<Vec<PathBuf>, UsageError> {
    let number = |name: &String| Some((name.strip_prefix("iter-")?.parse::<u32>().ok()?, folder.join(name)));
    let mut found: Vec<(u32, PathBuf)> =
        names(folder)?.iter().filter_map(number).filter(|(_, folder)| folder.is_dir()).collect();
    found.sort();
    Ok(found.into_iter().map(|(_, folder)| folder).collect())
}

fn has_iterations(folder: &Path) -> Result<bool, UsageError> {
    iterations(folder).map(|found| !found.is_empty())
}

/// When a run began, in seconds since 1970; runs that do not say so are last.
fn start(folder: &Path) -> u64 {
    let files = ["iter-0/tests-activity", "mmtests-activity", "tests-activity"];
    let text = files.iter().find_map(|file| std::fs::read_to_string(folder.join(file)).ok()).unwrap_or_default();
    let line = text.lines().find(|line| line.contains("run-mmtests: Start") || line.contains("run-kvm: Start"));
    line.and_then(|line| line.split(' ').next()?.parse().ok()).unwrap_or(u64::MAX)
}

fn read_run(folder: &Path, name: &str) -> Result<Vec<Found>, UsageError> {
    let mut found = Vec::new();
    for iteration in iterations(folder)? {
        let is_test = |test: &String| {
            let folder = iteration.join(test);
            folder.join("logs").is_dir() && !folder.is_symlink()
        };
        let tests: Vec<String> = names(&iteration)?.into_iter().filter(is_test).collect();
        if tests.is_empty() {
            return Err(UsageError::in_file(iteration.display(), "expected logs of a test (TEST/logs), found none"));
        }
        for test in tests {
            let around = around(&iteration, &test)?;
            let numbers = match Kind::of_test(&test) {
                None => None,
                Some(kind) => Some(Logs::open(&iteration.join(&test).join("logs"), kind)?.numbers(kind)?),
            };
            found.push(Found { run: name.to_owned(), test, is_pair: false, numbers, around });
        }
    }
    Ok(found)
}

/// Counters and times of a test, as far as they were kept.
fn around(iteration: &Path, test: &str) -> Result<Around, UsageError> {
    let read = |name: &str| {
        let files = ["", ".gz", ".xz"].map(|packed| iteration.join(format!("{name}{packed}")));
        let file = files.into_iter().find(|file| file.is_file());
        file.map(|file| Ok::<_, UsageError>((read_packed(&file)?, file))).transpose()
    };
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut around = Around::default();
    if let Some((bytes, file)) = read("tests-sysstate")? {
        around = sysstate::read(&file, &lossy(&bytes), test)?;
    }
    if around.duration.is_none()
        && let Some((bytes, file)) = read("tests-timestamp")?
    {
        around.duration = sysstate::time(&file, &lossy(&bytes), test)?;
    }
    Ok(around)
}

/// Names of captures: each with `before` in it has one with `after` in the same place.
fn pairs(names: &[String]) -> Vec<(String, String)> {
    let pair = |name: &String| {
        let after = name.replacen("before", "after", 1);
        (name.contains("before") && names.contains(&after)).then(|| (name.clone(), after))
    };
    names.iter().filter_map(pair).collect()
}

fn read_pair(folder: &Path, run: &str, (before, after): &(String, String)) -> Result<Found, UsageError> {
    let capture = |name: &String| {
        let file = folder.join(name);
        let bytes = read_packed(&file)?;
        let text = String::from_utf8(bytes).map_err(|_| UsageError::in_file(file.display(), "not a text"))?;
        sysstate::vmstat(&file, &text)
    };
    let (earlier, later) = (capture(before)?, capture(after)?);
    let counters = sysstate::moved_on((&folder.join(before), &earlier), (&folder.join(after), &later))?;
    let around = Around { counters, duration: None };
    Ok(Found { run: run.to_owned(), test: "vmstat".to_owned(), is_pair: true, numbers: Some(Vec::new()), around })
}

// ---- Cells

/// Cells of the tests that were found. Iterations of a run are its seeds, and so are repetitions within one.
fn cells(path: &Path, found: &[Found], like: Option<&Like>) -> Result<Vec<Cell>, UsageError> {
    let mut seeds: BTreeMap<(String, String, Option<String>), u64> = BTreeMap::new();
    let mut cells = Vec::new();
    for found in found {
        let whole = [Numbers { group: None, runs: vec![Vec::new()] }];
        let numbers = found.numbers.as_deref().filter(|numbers| !numbers.is_empty()).unwrap_or(&whole);
        let parts: usize = numbers.iter().map(|numbers| numbers.runs.len()).sum();
        for Numbers { group, runs } in numbers {
            let mut parts_of: Vec<&str> = runs.iter().flatten().filter_map(|metric| metric.part.as_deref()).collect();
            parts_of.dedup();
            let Some(key) = key(found, group.as_deref(), &parts_of, like)? else { continue };
            for metrics in runs {
                let seed = seeds.entry((found.run.clone(), found.test.clone(), group.clone())).or_default();
                *seed += 1;
                cells.push(cell(Key { seed: *seed, ..key.clone() }, metrics.clone(), found, parts));
            }
        }
    }
    if let Some(like) = like.filter(|_| cells.is_empty()) {
        let runs: BTreeSet<&str> = found.iter().map(|found| found.run.as_str()).collect();
        return Err(UsageError::in_file(
            path.display(),
            format!(
                "no run is a column of {}, by its name and benchmark: runs are {}, columns {}",
                like.name(),
                runs.into_iter().collect::<Vec<_>>().join(", "),
                like.columns()
            ),
        ));
    }
    Ok(cells)
}

/// The key of what was found, but for its seed; none where it is of no column of a series.
fn key(found: &Found, group: Option<&str>, parts: &[&str], like: Option<&Like>) -> Result<Option<Key>, UsageError> {
    let kind = Kind::of_test(&found.test);
    let own = kind.map_or(found.test.as_str(), |kind| kind.workload());
    let key = Key {
        result: None,
        experiment: own.to_owned(),
        group: group.map(str::to_owned),
        workload: own.to_owned(),
        case: found.test.clone(),
        params: BTreeMap::new(),
        variant: ELSEWHERE.to_owned(),
        machine: ELSEWHERE.to_owned(),
        state: ELSEWHERE.to_owned(),
        target: Target::Host,
        kernel: found.run.clone(),
        seed: 0,
        program: ELSEWHERE.to_owned(),
    };
    let Some(like) = like else { return Ok(Some(key)) };
    let place =
        like.place(Wanted { run: &found.run, test: &found.test, kind, group, parts, is_pair: found.is_pair })?;
    Ok(match place {
        Some(column) => Some(Key {
            experiment: column.experiment,
            group: column.group,
            workload: column.workload,
            case: column.case,
            params: column.params,
            kernel: column.kernel,
            ..key
        }),
        None if like.is_series() => None,
        None => Some(key),
    })
}

fn cell(key: Key, metrics: Vec<Metric>, found: &Found, parts: usize) -> Cell {
    let mut measured = Measured::nothing();
    measured.metrics = metrics;
    // A mail has no counters around its tables.
    if parts == 1 || foreign::TESTS.contains(&found.test.as_str()) {
        measured.counters.clone_from(&found.around.counters);
        measured.duration = found.around.duration;
    } else {
        let reason = format!("they are of {parts} runs of {} together", found.test);
        measured.skipped.push(Skip { what: "counters and times".to_owned(), reason });
    }
    if found.numbers.is_none() {
        let reason = format!("these are understood: {}", known_tests());
        measured.skipped.push(Skip { what: format!("the numbers of {}", found.test), reason });
    }
    let wall_s = found.around.duration.map_or(0.0, |duration| duration.elapsed_ps as f64 / 1e12);
    let run = Run {
        date: "unknown".to_owned(),
        wall_s,
        boot_s: None,
        host: ELSEWHERE.to_owned(),
        commit: ELSEWHERE.to_owned(),
        max_rss_kib: 0,
    };
    Cell { schema: SCHEMA, key, measured, series: None, map: None, slow_path: None, footprint: None, run }
}
