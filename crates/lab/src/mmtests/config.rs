//! A configuration of mmtests (`config-workload-...`, lines of `export KEY=VALUE`) as the experiment of ours that does the same.
//!
//! The benchmark says which, and the benchmark's own keys say parameters. Monitors, disks and reports of mmtests are left out.

use std::path::Path;

use units::Bytes;

use super::{kind::known_tests, stride::large_stride};
use crate::{
    experiment::Experiment,
    notice,
    source::{Kind, lookup},
    usage::UsageError,
};

/// Benchmarks of mmtests, the experiments that do the same, and what the benchmark's keys begin with.
const BENCHMARKS: [(&str, &str, &str); 7] = [
    ("thpscale", "thpscale", "THPSCALE_"),
    ("thpcompact", "thpcompact", "THPCOMPACT_"),
    ("thpfioscale", "thpfioscale", "THPFIOSCALE_"),
    ("thpchallenge", "thpfioscale", "THPCHALLENGE_"),
    ("autonumabench", "autonumabench", "AUTONUMABENCH_"),
    ("specjbb", "warehouses", "SPECJBB_"),
    ("wis-pf", "will-it-scale", "WILLITSCALE_"),
];
/// More threads take no workload.
const THREADS_MAX: u32 = 4096;
/// The programs of autonumabench, which do not begin as its other keys do.
const PROGRAMS: &str = "AUTONUMA_TESTS";
/// The background of thpchallenge that thpfioscale had: files that are written and read badly.
const OF_FIO: &str = "fio-";
/// As many threads as mmtests' own configurations ask for, which is the grid of an experiment that names none.
const ALL_THREADS: [&str; 2] = ["$((NUMCPUS*4))", "$(($NUMCPUS*4))"];
/// The setting that mmtests writes before each test.
const THP: &str = "VM_TRANSPARENT_HUGEPAGES_DEFAULT";

/// A line of a configuration.
struct Export<'a> {
    line: u32,
    key: &'a str,
    value: &'a str,
}

/// The experiment of the configuration at this path; none if there is no configuration.
///
/// # Errors
/// One sentence with the line: a benchmark that no workload is like, or a value that none has.
pub(crate) fn experiment(path: &str) -> Result<Option<Experiment>, UsageError> {
    if !path.contains('/') || Path::new(path).extension().is_some_and(|extension| extension == "toml") {
        return Ok(None);
    }
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(None) };
    let exports = exports(&text);
    let Some(tests) = exports.iter().find(|export| export.key == "MMTESTS") else {
        let is_named = Path::new(path).file_name().is_some_and(|name| name.to_string_lossy().starts_with("config-"));
        let is_experiment = text.lines().any(|line| line.starts_with("workload"));
        if exports.is_empty() && (is_experiment || !is_named) {
            return Ok(None);
        }
        let what = "expected `export MMTESTS=BENCHMARK`, found none: a configuration of mmtests names its benchmark itself, \
                    files that it reads are not looked at";
        return Err(UsageError::in_file(path, what));
    };
    let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path);
    crate::source::check_name("experiment", name, &[':']).map_err(|problem| UsageError::in_file(path, problem))?;
    let wrong = |export: &Export<'_>, problem: String| UsageError::in_line(path, export.line, problem);
    let (_, ours, prefix) = benchmark(tests.value).map_err(|problem| wrong(tests, problem))?;
    let found = Experiment::from_source(&lookup(Kind::Experiment, ours)?)?;
    let mut asked = Asked::default();
    for export in &exports {
        match export.key.strip_prefix(prefix) {
            Some(key) => asked.take(key, export).map_err(|problem| wrong(export, problem))?,
            None if export.key == PROGRAMS && prefix == "AUTONUMABENCH_" => {
                asked.others.push(("program".to_owned(), words(export.value)));
            }
            None if export.key == THP && export.value != "default" => {
                let value = export.value.to_owned();
                asked.settings.push(("transparent_hugepage/enabled".to_owned(), vec![value]));
            }
            None => {}
        }
    }
    if let Some(name) = asked.of_machine {
        notice::leave(format!("{path}: {name} depends on a machine: left out, --set threads=... names threads"));
    }
    if !asked.unknown.is_empty() {
        notice::leave(format!("{path}: {} of {ours} are not there: left out", asked.unknown.join(", ")));
    }
    let params = asked.params().map_err(|problem| UsageError::in_file(path, problem))?;
    let is_param = |(name, _): &&(String, Vec<String>)| found.workload.param_names().contains(&name.as_str());
    if let Some((name, _)) = params.iter().find(|param| !is_param(param)) {
        return Err(UsageError::in_file(path, format!("experiment {ours} has no parameter {name:?}")));
    }
    let merged = |kept: Vec<(String, Vec<String>)>, asked: Vec<(String, Vec<String>)>| {
        let is_kept = |(name, _): &(String, Vec<String>)| asked.iter().all(|(other, _)| other != name);
        kept.into_iter().filter(is_kept).chain(asked.iter().cloned()).collect()
    };
    Ok(Some(Experiment {
        name: name.to_owned(),
        about: format!("{ours}, as mmtests' {name} asks for it"),
        params: merged(found.params, params),
        settings: merged(found.settings, asked.settings),
        cost: None,
        ..found
    }))
}

/// Lines that are not within a condition: those are indented. The first of a key counts.
fn exports(text: &str) -> Vec<Export<'_>> {
    let mut exports: Vec<Export<'_>> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let Some((key, value)) = text.strip_prefix("export ").and_then(|text| text.split_once('=')) else { continue };
        let value = value.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\'']);
        if exports.iter().all(|export| export.key != key) {
            exports.push(Export { line, key, value });
        }
    }
    exports
}

/// Names in lower case: `NUMA01 NUMA02`.
fn words(value: &str) -> Vec<String> {
    value.split([' ', ',']).filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect()
}

fn benchmark(tests: &str) -> Result<(&'static str, &'static str, &'static str), String> {
    let mut names = tests.split_whitespace();
    let (Some(name), None) = (names.next(), names.next()) else {
        return Err(format!("MMTESTS: expected one benchmark, found {tests:?}"));
    };
    BENCHMARKS.into_iter().find(|(test, ..)| *test == name).ok_or_else(|| {
        let known = BENCHMARKS.map(|(test, ..)| test).join(", ");
        let is_read = known_tests().split(", ").any(|test| test == name);
        let also = if is_read { ", whose results `pagelab show` reads" } else { "" };
        format!("MMTESTS: no workload is like {name:?}{also} (there are {known})")
    })
}

/// Parameters and settings that the lines ask for.
#[derive(Default)]
struct Asked<'a> {
    min: Option<u32>,
    max: Option<u32>,
    others: Vec<(String, Vec<String>)>,
    settings: Vec<(String, Vec<String>)>,
    unknown: Vec<&'a str>,
    /// A number of threads that is a formula of the machine.
    of_machine: Option<&'a str>,
}

impl<'a> Asked<'a> {
    fn take(&mut self, key: &str, export: &Export<'a>) -> Result<(), String> {
        let Export { key: name, value, .. } = export;
        let threads = || {
            let number = value.parse::<u32>().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
            number.ok_or_else(|| {
                format!("{name}: expected 1 to {THREADS_MAX} threads or {}, found {value:?}", ALL_THREADS[0])
            })
        };
        match key {
            "MIN_THREADS" | "MAX_THREADS" if is_formula(value) => self.of_machine = Some(name),
            "MIN_THREADS" => self.min = Some(threads()?),
            "MAX_THREADS" if ALL_THREADS.contains(value) => {}
            "MAX_THREADS" => self.max = Some(threads()?),
            "BACKGROUND" if !value.starts_with(OF_FIO) => {
                return Err(format!(
                    "{name}: no workload is like {value:?}: expected a background of fio, `{OF_FIO}...`"
                ));
            }
            "BACKGROUND" => {}
            "MAPSIZE" | "THP_WSETSIZE" => {
                let size = size(value).ok_or_else(|| {
                    format!("{name}: expected bytes or $((MEMTOTAL_BYTES*A/B)) of whole percents, found {value:?}")
                })?;
                self.others.push(("size".to_owned(), vec![size]));
            }
            "MADV_HUGEPAGE" => {
                let advise = if *value == "yes" { "yes" } else { "no" };
                self.others.push(("advise".to_owned(), vec![advise.to_owned()]));
            }
            _ => self.unknown.push(name),
        }
        Ok(())
    }

    /// Parameters of the experiment; thread counts as mmtests steps through them.
    fn params(&self) -> Result<Vec<(String, Vec<String>)>, String> {
        let mut params = self.others.clone();
        let (min, max) = (self.min.unwrap_or(1), self.max);
        if min > 1 && max != Some(min) {
            return Err(format!(
                "expected MIN_THREADS of 1, found {min}: mmtests' steps from there are not known; --set threads=... names them"
            ));
        }
        if let Some(max) = max {
            let counts = if max == min { vec![max] } else { large_stride(max) };
            params.push(("threads".to_owned(), counts.iter().map(u32::to_string).collect()));
        }
        Ok(params)
    }
}

/// Threads of the CPUs and nodes of the machine that mmtests runs on, but for as many as its own configurations ask for.
fn is_formula(value: &str) -> bool {
    value.starts_with('$') && !ALL_THREADS.contains(&value) && value.contains(|c: char| c.is_ascii_uppercase())
}

/// Bytes, or a share of memory.
fn size(value: &str) -> Option<String> {
    if let Ok(bytes) = value.parse::<u64>() {
        return Some(Bytes(bytes).to_string());
    }
    let share =
        value.strip_prefix("$((")?.strip_suffix("))")?.trim_start_matches('$').strip_prefix("MEMTOTAL_BYTES")?;
    let (times, by) = share.split_once('/').unwrap_or((share, "1"));
    let times: u64 = times.strip_prefix('*').map_or(Some(1), |times| times.parse().ok())?;
    let by: u64 = by.parse().ok().filter(|by| *by > 0)?;
    let percent = times.checked_mul(100)?;
    percent.is_multiple_of(by).then(|| format!("{}%", percent / by))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Experiment>, String> {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("config-mine");
        std::fs::write(&path, text).unwrap();
        let path = path.display().to_string();
        experiment(&path).map_err(|error| error.to_string().replace(&path, "HERE"))
    }

    fn param<'a>(experiment: &'a Experiment, name: &str) -> Option<&'a [String]> {
        experiment.params.iter().find(|(known, _)| known == name).map(|(_, values)| values.as_slice())
    }

    #[test]
    fn a_configuration_is_the_experiment_with_its_parameters() {
        let text = "export MMTESTS=\"thpcompact\"\nexport RUN_MONITOR=yes\nexport THPCOMPACT_MIN_THREADS=1\n\
                    export THPCOMPACT_MAX_THREADS=8\nexport THPCOMPACT_MADV_HUGEPAGE=yes\n\
                    export THPCOMPACT_MAPSIZE=$((MEMTOTAL_BYTES*8/10))\nexport VM_TRANSPARENT_HUGEPAGES_DEFAULT=always\n";
        let found = read(text).unwrap().expect("a configuration");
        assert_eq!((found.name.as_str(), found.workload.name), ("config-mine", "thpscale"));
        assert_eq!(param(&found, "threads").unwrap(), ["1", "3", "5", "7", "8"]);
        assert_eq!(param(&found, "script").unwrap(), ["2023"]);
        assert_eq!(
            (param(&found, "size").unwrap(), param(&found, "advise").unwrap()),
            (&["80%".to_owned()][..], &["yes".to_owned()][..])
        );
        assert_eq!(found.settings, [("transparent_hugepage/enabled".to_owned(), vec!["always".to_owned()])]);
    }

    #[test]
    fn as_many_threads_as_there_are_cpus_is_the_grid_of_the_experiment() {
        let text = "export MMTESTS=thpscale\nexport THPSCALE_MAX_THREADS=$((NUMCPUS*4))\n\
                    if [ $THPSCALE_MAX_THREADS -gt 32 ]; then\n\texport THPSCALE_MAX_THREADS=32\nfi\n\
                    export THPSCALE_MAPSIZE=1073741824\n";
        let found = read(text).unwrap().expect("a configuration");
        assert_eq!((param(&found, "threads"), param(&found, "size").unwrap()), (None, &["1GiB".to_owned()][..]));
    }

    #[test]
    fn a_benchmark_or_value_that_is_not_there_is_one_sentence() {
        let error = |text: &str| read(text).unwrap_err();
        assert!(
            error("# x\nexport MMTESTS=\"dbench4\"\n")
                .starts_with("HERE:2: MMTESTS: no workload is like \"dbench4\" (there are thpscale,")
        );
        assert_eq!(
            error("export MMTESTS=\"thpscale stutter\"\n"),
            "HERE:1: MMTESTS: expected one benchmark, found \"thpscale stutter\""
        );
        assert!(
            error("export MMTESTS=thpscale\nexport THPSCALE_MAX_THREADS=many\n")
                .starts_with("HERE:2: THPSCALE_MAX_THREADS: ")
        );
        assert!(
            error("export MMTESTS=thpscale\nexport THPSCALE_MIN_THREADS=4\n").contains("MIN_THREADS of 1, found 4")
        );
        assert!(read("workload = 'thpscale'\n").unwrap().is_none());
        // The name of the file says what it is.
        let message = error("source configs/config-other\n");
        assert!(message.starts_with("HERE: expected `export MMTESTS=BENCHMARK`, found none"), "{message}");
    }

    #[test]
    fn configurations_of_today_have_formulas_backgrounds_and_programs() {
        let text = "export MMTESTS=\"thpchallenge\"\nexport THPCHALLENGE_BACKGROUND=\"fio-random\"\n\
                    export THPCHALLENGE_MIN_THREADS=$(((NUM_LOGICAL_CPUS/NUM_NODES)/4))\n\
                    export THPCHALLENGE_MAX_THREADS=$THPCHALLENGE_MIN_THREADS\n\
                    export THPCHALLENGE_THP_WSETSIZE=$((MEMTOTAL_BYTES*8/10))\n";
        let found = read(text).unwrap().expect("a configuration");
        assert_eq!((found.workload.name, param(&found, "threads")), ("thpfioscale", None));
        assert_eq!(param(&found, "size").unwrap(), ["80%"]);
        let message = read(&text.replace("fio-random", "kernel-build")).unwrap_err();
        assert!(
            message.starts_with("HERE:2: THPCHALLENGE_BACKGROUND: no workload is like \"kernel-build\""),
            "{message}"
        );
        let text = "export MMTESTS=\"autonumabench\"\nexport AUTONUMA_TESTS=\"NUMA01 NUMA02_SMT\"\n";
        let found = read(text).unwrap().expect("a configuration");
        assert_eq!(param(&found, "program").unwrap(), ["numa01", "numa02_smt"]);
    }
}
