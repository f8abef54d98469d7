//! The logs of each benchmark, as mmtests keeps them in `TEST/logs`: from metrics to files, and back.
//!
//! A number is written with all its digits, where the benchmarks themselves print whole microseconds or hundredths of a second;
//! mmtests reads both.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use report::{Metric, file_names};

use super::{
    kind::{Kind, place},
    sysstate::wrong,
};
use crate::{
    metrics::{self, Times},
    usage::UsageError,
};

/// The files of a test, by their path under `logs`.
#[derive(Debug, Default)]
pub(super) struct Logs {
    /// Where they are, for messages.
    root: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
    /// The label that each file, or a place in one, was written for.
    labels: BTreeMap<String, String>,
    /// A place, and two labels that have it.
    clash: Option<[String; 3]>,
}

/// The numbers of one test in one iteration of mmtests.
#[derive(Debug, PartialEq)]
pub(super) struct Numbers {
    /// The set of tables that they belong to, where a test has several.
    pub(super) group: Option<String>,
    /// The metrics of each run: more than one where the test itself repeats what it does.
    pub(super) runs: Vec<Vec<Metric>>,
}

/// Folders of specjbb by page size, in the order in which mmtests looks.
const PAGES: [&str; 3] = ["base", "transhuge", "default"];
const SINGLE: &str = "SPECjbbSingleJVM/SPECjbb.001.txt";
const MULTI: &str = "SPECjbbMultiJVM.001/MultiVMReport.txt";

impl Logs {
    /// Reads the logs of a benchmark in a folder; files of other names are ignored.
    pub(super) fn open(root: &Path, kind: Kind) -> Result<Self, UsageError> {
        let mut logs = Self { root: root.to_owned(), ..Self::default() };
        if kind == Kind::Warehouses {
            for name in PAGES.iter().flat_map(|page| [SINGLE, MULTI].map(|file| format!("{page}/{file}"))) {
                let path = root.join(&name);
                if path.is_file() {
                    logs.files.insert(name, read_packed(&path)?);
                }
            }
            return Ok(logs);
        }
        for name in names(root)?.into_iter().filter(|name| is_log(kind, name)) {
            let plain = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".xz")).unwrap_or(&name);
            logs.files.insert(plain.to_owned(), read_packed(&root.join(&name))?);
        }
        Ok(logs)
    }

    /// From metrics, each list with what its case is called where a metric has no part.
    pub(super) fn of(kind: Kind, cells: &[(&str, &[Metric])]) -> Self {
        let mut logs = Self::default();
        for (label, metrics) in cells {
            match kind {
                Kind::Faults => logs.add_faults(label, metrics),
                Kind::Programs => logs.add_programs(label, metrics),
                Kind::Warehouses => logs.add_warehouses(label, metrics),
                Kind::Stores => logs.add_stores(label, metrics),
            }
        }
        logs
    }

    /// The files as they are on disk, by path; mmtests wants the logs of faults compressed.
    pub(super) fn packed(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        self.files.iter().map(|(name, text)| {
            if !has_extension(name, "log") {
                return (name.clone(), text.clone());
            }
            let mut packed = GzEncoder::new(Vec::new(), Compression::default());
            packed.write_all(text).expect("memory takes it");
            (format!("{name}.gz"), packed.finish().expect("memory takes it"))
        })
    }

    /// The numbers in them.
    pub(super) fn numbers(&self, kind: Kind) -> Result<Vec<Numbers>, UsageError> {
        let numbers = match kind {
            Kind::Faults => self.faults()?,
            Kind::Programs => self.programs()?,
            Kind::Warehouses => self.warehouses()?,
            Kind::Stores => self.stores()?,
        };
        if numbers.iter().all(|numbers| numbers.runs.iter().all(Vec::is_empty)) {
            let file = match kind {
                Kind::Faults => "threads-N.log.gz",
                Kind::Programs => "time-NUMA01-1",
                Kind::Warehouses => "default/SPECjbbSingleJVM/SPECjbb.001.txt",
                Kind::Stores => "benchlog-page_fault1_processes-1",
            };
            return Err(UsageError::in_file(self.root.display(), format!("expected logs such as {file}, found none")));
        }
        Ok(numbers)
    }

    fn text<'a>(&self, name: &str, bytes: &'a [u8]) -> Result<&'a str, UsageError> {
        std::str::from_utf8(bytes).map_err(|_| UsageError::in_file(self.root.join(name).display(), "not a text"))
    }

    /// A place in these files that two cells have, and what the cells are called.
    pub(super) fn clash(&self) -> Option<&[String; 3]> {
        self.clash.as_ref()
    }

    fn add(&mut self, label: &str, name: &str, text: &str) {
        self.claim(label, name);
        self.files.entry(name.to_owned()).or_default().extend(text.as_bytes());
    }

    /// Notes that a place is that of a label.
    fn claim(&mut self, label: &str, place: &str) {
        let known = self.labels.entry(place.to_owned()).or_insert_with(|| label.to_owned());
        if known != label && self.clash.is_none() {
            self.clash = Some([place.to_owned(), known.clone(), label.to_owned()]);
        }
    }

    // ---- thpscale and its relatives: `threads-N.log`

    fn add_faults(&mut self, label: &str, metrics: &[Metric]) {
        let mut cases: Vec<&str> = Vec::new();
        for metric in metrics.iter().filter(|metric| metric.name == "fault_latency_us") {
            let case = place(metric, label).2;
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
        for (case, file) in cases.iter().copied().zip(file_names(&cases)) {
            let of = |name: &str, class: &str| {
                let found = metrics.iter().find(|metric| place(metric, label) == (name, Some(class), case));
                found.map_or_else(VecDeque::new, |metric| metric.samples.iter().copied().collect::<VecDeque<f64>>())
            };
            let (mut base, mut huge) = (of("fault_latency_us", "fault-base"), of("fault_latency_us", "fault-huge"));
            let mut text = String::new();
            for class in ["anoninit", "fileinit"] {
                for (thread, sample) in of("init_latency_us", class).iter().enumerate() {
                    text += &format!("{class} {thread} {sample:>12}\n");
                }
            }
            // In the order in which they were taken; which thread took one is not kept.
            for sample in of("fault_latency_us", "fault-both") {
                let (queue, class) =
                    if huge.front() == Some(&sample) { (&mut huge, "huge") } else { (&mut base, "base") };
                if queue.front() == Some(&sample) {
                    queue.pop_front();
                    text += &fault(class, sample);
                }
            }
            text.extend(base.into_iter().map(|sample| fault("base", sample)));
            text.extend(huge.into_iter().map(|sample| fault("huge", sample)));
            self.add(label, &format!("threads-{file}.log"), &text);
        }
    }

    fn faults(&self) -> Result<Vec<Numbers>, UsageError> {
        const FAULT: &str = "`fault THREAD base|huge MICROSECONDS ...`";
        const INIT: &str = "`anoninit|fileinit THREAD MICROSECONDS`";
        let mut cases: Vec<(&str, &str, &str)> = Vec::new();
        for (name, bytes) in &self.files {
            let case = name.strip_prefix("threads-").and_then(|rest| rest.strip_suffix(".log"));
            cases.extend(
                case.map(|case| Ok::<_, UsageError>((case, name.as_str(), self.text(name, bytes)?))).transpose()?,
            );
        }
        cases.sort_by_key(|(case, ..)| (case.parse::<u32>().unwrap_or(u32::MAX), *case));
        let mut metrics = Vec::new();
        for (case, name, text) in cases {
            let (mut faults, mut anoninit, mut fileinit) = (Vec::new(), Vec::new(), Vec::new());
            let file = self.root.join(name);
            for (at, line) in (1..).zip(text.lines()) {
                let words: Vec<&str> = line.split_whitespace().collect();
                let number = |text: &str, expected| number(text).ok_or_else(|| wrong(&file, at, expected, line));
                match words.as_slice() {
                    ["fault", _, class @ ("base" | "huge"), micros, ..] => {
                        faults.push((*class == "huge", number(micros, FAULT)?));
                    }
                    ["fault", ..] => return Err(wrong(&file, at, FAULT, line)),
                    ["anoninit", _, micros] => anoninit.push(number(micros, INIT)?),
                    ["fileinit", _, micros] => fileinit.push(number(micros, INIT)?),
                    ["anoninit" | "fileinit", ..] => return Err(wrong(&file, at, INIT, line)),
                    _ => {}
                }
            }
            if faults.is_empty() {
                return Err(UsageError::in_file(file.display(), "no line begins with `fault`: was it cut short?"));
            }
            let of_case = metrics::of_faults(&faults, anoninit, fileinit).into_iter();
            metrics.extend(of_case.map(|metric| Metric { part: Some(case.to_owned()), ..metric }));
        }
        Ok(vec![Numbers { group: None, runs: vec![metrics] }])
    }

    // ---- autonumabench: `time-TEST-ITERATION`, as time(1) writes it

    fn add_programs(&mut self, label: &str, metrics: &[Metric]) {
        let mut parts: Vec<&str> = Vec::new();
        for metric in metrics.iter().filter(|metric| metric.name == "time_s") {
            let part = place(metric, label).2;
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        for (part, file) in parts.iter().copied().zip(file_names(&parts)) {
            let of = |class: &str| {
                let found = metrics.iter().find(|metric| place(metric, label) == ("time_s", Some(class), part));
                found.and_then(|metric| metric.samples.first().copied())
            };
            if let [Some(user), Some(system), Some(elapsed)] = ["User", "System", "Elapsed"].map(of) {
                let percent =
                    metrics::of_times(Times { user, system, elapsed }).pop().map_or(0.0, |cpu| cpu.samples[0]);
                let clock = clock(elapsed);
                let line = format!("{user}user {system}system {clock}elapsed {percent}%CPU\n");
                self.add(label, &format!("time-{file}-1"), &line);
            }
        }
    }

    fn programs(&self) -> Result<Vec<Numbers>, UsageError> {
        let mut runs: BTreeMap<u32, Vec<Metric>> = BTreeMap::new();
        for (name, bytes) in &self.files {
            let of_today = name.strip_prefix("time-");
            let of_2023 = name.strip_prefix("autonumabench-").and_then(|rest| rest.strip_suffix(".time"));
            let place = of_today.or(of_2023).and_then(|rest| rest.rsplit_once('-'));
            let place = place.and_then(|(test, iteration)| Some((test, iteration.parse::<u32>().ok()?)));
            let Some((test, iteration)) = place else { continue };
            let file = self.root.join(name);
            let content = self.text(name, bytes)?;
            let times = content.lines().find_map(times).ok_or_else(|| {
                let found = content.lines().next().unwrap_or_default();
                wrong(&file, 1, "times as time(1) prints them, such as `1.00user 2.00system 0:03.00elapsed`", found)
            })?;
            let part = Some(of_2013(test).to_owned());
            let metrics = metrics::of_times(times).into_iter().map(|metric| Metric { part: part.clone(), ..metric });
            runs.entry(iteration).or_default().extend(metrics);
        }
        Ok(vec![Numbers { group: None, runs: runs.into_values().collect() }])
    }

    // ---- specjbb: tables of throughput by warehouses

    fn add_warehouses(&mut self, label: &str, metrics: &[Metric]) {
        // Several JVMs have a mean, of which mmtests could not tell what each of them did.
        if metrics.iter().any(|metric| metric.class.as_deref() == Some("Mean")) {
            return;
        }
        let points = metrics.iter().filter(|metric| metric.class.as_deref() == Some("TPut"));
        let mut table = String::new();
        for metric in points {
            let warehouses = place(metric, label).2.strip_prefix("warehouses=");
            let Some((warehouses, rate)) = warehouses.zip(metric.samples.first()) else { continue };
            table += &format!("  {warehouses} {rate}\n");
            // Tables of several cells go into one file, as long as they have different points.
            self.claim(label, &format!("default/{SINGLE}, {warehouses} warehouses"));
        }
        if !table.is_empty() {
            let text = format!("SPEC scores\nWarehouses Thrput\n{table}\n");
            self.files.entry(format!("default/{SINGLE}")).or_default().extend(text.as_bytes());
        }
    }

    fn warehouses(&self) -> Result<Vec<Numbers>, UsageError> {
        let mut numbers = Vec::new();
        for (name, bytes) in &self.files {
            let mut points: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
            let file = self.root.join(name);
            let (mut is_table, mut has_scores) = (false, false);
            for (at, line) in (1..).zip(self.text(name, bytes)?.lines()) {
                has_scores = has_scores || line.contains("SPEC scores") || line.starts_with("JVM ");
                if line.contains("Warehouses") {
                    is_table = has_scores;
                } else if line.trim().is_empty() {
                    is_table = false;
                } else if is_table {
                    let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "*").collect();
                    let point = if let [warehouses, rate, ..] = words[..] {
                        warehouses.parse().ok().zip(number(rate))
                    } else {
                        None
                    };
                    let (warehouses, rate) = point.ok_or_else(|| wrong(&file, at, "`WAREHOUSES THROUGHPUT`", line))?;
                    points.entry(warehouses).or_default().push(rate);
                }
            }
            let points: Vec<(String, Vec<f64>)> =
                points.into_iter().map(|(warehouses, rates)| (format!("warehouses={warehouses}"), rates)).collect();
            let points: Vec<(&str, Vec<f64>)> =
                points.iter().map(|(part, rates)| (part.as_str(), rates.clone())).collect();
            let group = if name.ends_with(SINGLE) { "specjbb-single-jvm" } else { "specjbb-per-node-jvm" };
            numbers.push(Numbers { group: Some(group.to_owned()), runs: vec![metrics::of_points(&points)] });
        }
        Ok(numbers)
    }

    // ---- will-it-scale: `benchlog-TEST_MODEL-TASKS`, a total for each second

    fn add_stores(&mut self, label: &str, metrics: &[Metric]) {
        // The case of a cell is TEST-MODEL-TASKS.
        let Some(model) = label.split('-').nth(1) else { return };
        for metric in metrics {
            let Some(test) = metric.name.strip_suffix(".iterations").filter(|test| !test.contains('/')) else {
                continue;
            };
            let tasks = place(metric, label).2.strip_prefix("tasks=");
            let Some(tasks) = tasks.filter(|tasks| tasks.parse::<u32>().is_ok()) else { continue };
            let seconds: String =
                metric.samples.iter().map(|total| format!("min:{total} max:{total} total:{total}\n")).collect();
            self.add(label, &format!("benchlog-{test}_{model}-{tasks}"), &seconds);
        }
    }

    fn stores(&self) -> Result<Vec<Numbers>, UsageError> {
        let mut models: BTreeMap<&str, Vec<(u32, &str, Metric)>> = BTreeMap::new();
        for (name, bytes) in &self.files {
            let place = name.strip_prefix("benchlog-").and_then(|rest| rest.rsplit_once('-'));
            let place =
                place.and_then(|(program, tasks)| Some((program.rsplit_once('_')?, tasks.parse::<u32>().ok()?)));
            let Some(((test, model), tasks)) = place else { continue };
            let file = self.root.join(name);
            let mut samples = Vec::new();
            for (at, line) in (1..).zip(self.text(name, bytes)?.lines()) {
                if let Some(total) = line.split_whitespace().find_map(|word| word.strip_prefix("total:")) {
                    samples.push(number(total).ok_or_else(|| wrong(&file, at, "`min:N max:N total:N`", line))?);
                }
            }
            if samples.is_empty() {
                return Err(UsageError::in_file(file.display(), "no line has `total:`: was it cut short?"));
            }
            models.entry(model).or_default().push((tasks, test, metrics::stores(test, tasks, samples)));
        }
        let of_model = |(model, mut found): (&str, Vec<(u32, &str, Metric)>)| {
            found.sort_by_key(|(tasks, test, _)| (*test, *tasks));
            let metrics = found.into_iter().map(|(.., metric)| metric).collect();
            Numbers { group: Some(format!("will-it-scale-{model}")), runs: vec![metrics] }
        };
        Ok(models.into_iter().map(of_model).collect())
    }
}

/// A line of a block. Its thread, when it was and whether its memory was near are not kept: -1 is "unknown" there.
fn fault(class: &str, micros: f64) -> String {
    format!("fault 0 {class} {micros:>12} 0.0 -1\n")
}

/// The spelling of 2013, by which autonumabench's program is known here.
pub(super) fn of_2013(test: &str) -> &str {
    if test == "NUMA01_THREADLOCAL" { "NUMA01_THEADLOCAL" } else { test }
}

/// `1.00user 2.00system 1:03.00elapsed 95%CPU ...`
fn times(line: &str) -> Option<Times> {
    let of = |unit: &str| line.split_whitespace().find_map(|word| word.strip_suffix(unit));
    let clock = |text: &str| text.split(':').try_fold(0.0, |sum, part| Some(60.0 * sum + number(part)?));
    Some(Times { user: number(of("user")?)?, system: number(of("system")?)?, elapsed: clock(of("elapsed")?)? })
}

/// Minutes and seconds, so that reading them gives the same number to the last bit; where they would not, all in seconds.
fn clock(elapsed: f64) -> String {
    let minutes = (elapsed / 60.0).floor();
    let seconds = format!("{:015.12}", elapsed - 60.0 * minutes);
    let again = 60.0 * minutes + seconds.parse::<f64>().unwrap_or(f64::NAN);
    if again.to_bits() == elapsed.to_bits() { format!("{minutes:.0}:{seconds}") } else { format!("0:{elapsed}") }
}

/// Whether a file's name ends in a dot and this.
fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == extension)
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

fn is_log(kind: Kind, name: &str) -> bool {
    match kind {
        Kind::Faults => {
            name.starts_with("threads-") && [".log", ".log.gz", ".log.xz"].iter().any(|end| name.ends_with(end))
        }
        Kind::Programs => {
            name.starts_with("time-") || name.starts_with("autonumabench-") && has_extension(name, "time")
        }
        Kind::Stores => name.starts_with("benchlog-"),
        Kind::Warehouses => false,
    }
}

/// The names in a folder, sorted.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, UsageError> {
    let mistake = |error: std::io::Error| UsageError::in_file(folder.display(), error);
    let entries = std::fs::read_dir(folder).map_err(mistake)?.collect::<Result<Vec<_>, _>>().map_err(mistake)?;
    let mut names: Vec<String> = entries.iter().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// More than the log of any run has; a damaged or wicked file may unpack to anything.
const UNPACKED_MAX: u64 = 256 << 20;

/// A file, unpacked where its name says that it is packed.
pub(super) fn read_packed(path: &Path) -> Result<Vec<u8>, UsageError> {
    let mistake = |error: std::io::Error| UsageError::in_file(path.display(), error);
    let bytes = report::check_regular(path).and_then(|()| std::fs::read(path)).map_err(mistake)?;
    let mut text = Vec::new();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => GzDecoder::new(bytes.as_slice()).take(UNPACKED_MAX + 1).read_to_end(&mut text),
        Some("xz") => liblzma::read::XzDecoder::new(bytes.as_slice()).take(UNPACKED_MAX + 1).read_to_end(&mut text),
        Some("zst") => {
            return Err(UsageError::in_file(path.display(), format!("unpack it first: zstd -d {}", path.display())));
        }
        _ => return Ok(bytes),
    }
    .map_err(|error| {
        UsageError::in_file(path.display(), format!("cannot be unpacked, it may be cut short: {error}"))
    })?;
    if text.len() as u64 > UNPACKED_MAX {
        let most = UNPACKED_MAX >> 20;
        return Err(UsageError::in_file(
            path.display(),
            format!("it unpacks to more than {most} MiB, which no log has"),
        ));
    }
    Ok(text)
}
