//! Kernels one after the other, each a step from the one before: patches of a variant, rules one by one, or the versions between
//! two.

use std::path::{Path, PathBuf};

use report::{
    Cell, Layout, Report, Table,
    compare::{Comparison, Family, Gates, compare_csv, ladder_text},
};

use crate::{
    evidence, named,
    plan::{Request, Seeds},
    provenance,
    show::{self, Format},
    source::{quoted, unknown},
    usage::UsageError,
    variant,
};

/// The folder of variants that were made for a ladder, in its result directory.
const VARIANTS: &str = "variants";

/// A ladder that a user asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// `v5.0..v5.1`, or a variant.
    pub from: String,
    /// Patches to put on it, in this order: `+1`, `+2..+5`; empty for those that the variant has, or for versions.
    pub steps: Vec<String>,
    /// Each rule of a step by itself.
    pub by_rule: bool,
    /// Name or path of an experiment.
    pub workload: String,
    /// Name or path of the machine.
    pub machine: Option<String>,
    /// Settings and parameters.
    pub sets: Vec<String>,
    /// Everything is repeated with these.
    pub seeds: Seeds,
    /// Simulated cells at a time.
    pub workers: Option<usize>,
    /// Where results go.
    pub out: Option<PathBuf>,
}

/// A rung: the variant to run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rung {
    /// A name or path.
    Named(String),
    /// These rules on top of a variant, whose last one is the step.
    Rules { parent: String, rules: Vec<(String, String)> },
}

impl Wanted {
    /// The run that makes the result. Variants of single rules are written beside it.
    ///
    /// # Errors
    /// Variants, patches or versions that are not there, or a ladder of one rung.
    pub fn request(&self) -> Result<Request, UsageError> {
        let rungs = self.rungs()?;
        if rungs.len() < 2 {
            return Err(UsageError::new(format!(
                "ladder: {} has one rung; expected patches or versions above it",
                self.from
            )));
        }
        let out = self.directory();
        let variants = rungs.iter().zip(0..).map(|(rung, number)| write(rung, number, &out.join(VARIANTS)));
        let variants = variants.collect::<Result<_, _>>()?;
        let request = evidence::request(self.workload.clone(), Vec::new(), self.seeds, self.workers, out);
        let (machine, sets) = (self.machine.clone(), self.sets.clone());
        Ok(Request { machine, variants, sets, ..request })
    }

    /// The run, after a look at the names of its rows: where one of them is wrong, nothing is left behind.
    ///
    /// # Errors
    /// As [`Self::request`]; a row that no rung can have.
    pub fn checked(&self, metrics: &[String]) -> Result<Request, UsageError> {
        let out = self.directory();
        let was_there = out.exists();
        let checked = self.request().and_then(|request| named::check(metrics, &request).map(|()| request));
        if checked.is_err() && !was_there {
            // Variants of single rules; what cannot be removed is no result.
            let _ = std::fs::remove_dir_all(out.join(VARIANTS));
            let _ = std::fs::remove_dir(&out);
        }
        checked
    }

    /// A ladder that stopped goes on here, if the program is still the same.
    fn directory(&self) -> PathBuf {
        let Self { from, steps, by_rule, workload, machine, sets, seeds, .. } = self;
        let name = |text: &str| text.replace(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.', "-");
        let what = format!("{from:?} {steps:?} {by_rule} {workload:?} {machine:?} {sets:?}");
        let hash = blake3::hash(what.as_bytes()).to_hex();
        let program = provenance::short(provenance::PROGRAM_HASH);
        let directory = format!("ladder-{}-{}-{seeds}-{}-{program}", name(workload), name(from), &hash[..6]);
        self.out.clone().unwrap_or_else(|| Path::new("results").join(directory))
    }

    fn rungs(&self) -> Result<Vec<Rung>, UsageError> {
        match self.from.split_once("..") {
            Some((first, last)) if self.steps.is_empty() => versions(first, last, self.by_rule),
            Some(_) => {
                Err(UsageError::new("ladder: expected versions (v5.0..v5.1) or patches (v5.0 +1..+3), not both"))
            }
            None => self.patches(),
        }
    }

    fn patches(&self) -> Result<Vec<Rung>, UsageError> {
        let base = variant::load(&self.from)?;
        let known: Vec<u32> = base.patches.iter().map(|patch| patch.number).collect();
        let mut wanted = Vec::new();
        for step in &self.steps {
            let bad = || UsageError::new(format!("ladder: expected patches such as +3 or +1..+12, found {step:?}"));
            let number = |text: &str| text.strip_prefix('+').and_then(|text| text.parse::<u32>().ok()).ok_or_else(bad);
            match step.split_once("..") {
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(bad());
                    }
                    wanted.extend(known.iter().copied().filter(|number| (first..=last).contains(number)));
                    let lacks = [first, last].into_iter().find(|end| !known.contains(end));
                    wanted.extend(lacks);
                }
                None => wanted.push(number(step)?),
            }
        }
        if self.steps.is_empty() {
            wanted.clone_from(&known);
        }
        if known.is_empty() {
            return Err(UsageError::new(format!(
                "ladder: {} has no patches; versions are climbed as v5.0..v5.1",
                self.from
            )));
        }
        let names: Vec<String> = known.iter().map(|number| format!("+{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if let Some(lacks) = wanted.iter().find(|number| !known.contains(number)) {
            return Err(UsageError::new(format!(
                "ladder: {}: {}",
                self.from,
                unknown("step", &format!("+{lacks}"), &names)
            )));
        }
        let mut rungs = vec![Rung::Named(self.from.clone())];
        let mut so_far = Vec::new();
        for number in wanted {
            let text = |number: &u32| number.to_string();
            let join = |numbers: &[u32]| numbers.iter().map(text).collect::<Vec<_>>().join(",");
            if self.by_rule {
                let parent =
                    if so_far.is_empty() { self.from.clone() } else { format!("{}+{}", self.from, join(&so_far)) };
                let patch = base.patches.iter().find(|patch| patch.number == number).expect("it was looked for");
                let rules: Vec<(String, String)> =
                    patch.diff.values().iter().map(|(rule, value)| ((*rule).to_owned(), value.clone())).collect();
                rungs.extend(
                    (1..=rules.len())
                        .map(|count| Rung::Rules { parent: parent.clone(), rules: rules[..count].to_vec() }),
                );
                so_far.push(number);
            } else {
                so_far.push(number);
                rungs.push(Rung::Named(format!("{}+{}", self.from, join(&so_far))));
            }
        }
        Ok(rungs)
    }
}

/// The variants from one to a later one, by their parents.
fn versions(first: &str, last: &str, by_rule: bool) -> Result<Vec<Rung>, UsageError> {
    let start = variant::load(first)?;
    let mut chain = vec![variant::load(last)?];
    loop {
        let top = chain.last().expect("there is one");
        if top.name == start.name {
            break;
        }
        // A release without rules of its own is where its rules are.
        if start.diff.is_empty() && start.parent.as_ref() == Some(&top.name) && chain.len() > 1 {
            chain.pop();
            chain.push(start);
            break;
        }
        let Some(parent) = &top.parent else {
            let names: Vec<&str> = chain.iter().map(|named| named.name.as_str()).collect();
            return Err(UsageError::new(format!(
                "ladder: {last} does not come from {first}: {}",
                unknown("version", first, &names)
            )));
        };
        chain.push(variant::load(parent)?);
    }
    chain.reverse();
    let mut rungs = vec![Rung::Named(first.to_owned())];
    for step in chain.windows(2) {
        let rules: Vec<(String, String)> = step[1]
            .rules
            .differences(&step[0].rules)
            .into_iter()
            .map(|(rule, value)| (rule.to_owned(), value))
            .collect();
        if by_rule {
            let parent = step[0].name.clone();
            rungs.extend(
                (1..=rules.len()).map(|count| Rung::Rules { parent: parent.clone(), rules: rules[..count].to_vec() }),
            );
        } else {
            rungs.push(Rung::Named(step[1].name.clone()));
        }
    }
    Ok(rungs)
}

/// The name or path to run; rules become a file.
fn write(rung: &Rung, number: usize, folder: &Path) -> Result<String, UsageError> {
    let (parent, rules) = match rung {
        Rung::Named(name) => return Ok(name.clone()),
        Rung::Rules { parent, rules } => (parent, rules),
    };
    let (last, value) = rules.last().expect("a rung has a rule");
    let bare = |value: &str| value == "true" || value == "false" || value.parse::<u64>().is_ok();
    let line = |(rule, value): &(String, String)| {
        if bare(value) { format!("{rule} = {value}\n") } else { format!("{rule} = {}\n", quoted(value)) }
    };
    let about = quoted(&format!("{parent}, and up to {last} = {value}"));
    let lines: String = rules.iter().map(line).collect();
    let text = format!("about = {about}\nparent = {}\n\n[rules]\n{lines}", quoted(parent));
    let path = folder.join(format!("{number:02}-{last}.toml"));
    let mistake = |error: std::io::Error| UsageError::in_file(folder.display(), error);
    std::fs::create_dir_all(folder).map_err(mistake)?;
    report::write_whole(&path, text.as_bytes()).map_err(UsageError::from)?;
    Ok(path.display().to_string())
}

/// The steps of a result: each column beside the one before it.
///
/// # Errors
/// A directory that is no result, or metrics that it does not have.
pub fn steps(directory: &Path, metrics: &[String], format: Format) -> Result<String, UsageError> {
    let shown = show::read(directory, None)?;
    let is_default = |_: &Table, family| family == Family::Primary;
    let mut report = rows(shown.report.layout, &shown.cells, metrics, is_default)?;
    for table in &mut report.tables {
        for at in 0..table.columns.len() {
            table.columns[at].baseline = at.saturating_sub(1);
        }
    }
    let comparison = Comparison::of(&report, Gates::default());
    Ok(match format {
        Format::Text => {
            let rules: String = show::rules_of(directory)?.iter().map(|line| format!("{line}\n")).collect();
            let gap = if rules.is_empty() { "" } else { "\n" };
            rules + gap + &ladder_text(&report, &comparison)
        }
        Format::Csv => compare_csv(&comparison),
        Format::Json => serde_json::to_string_pretty(&comparison).expect("fields serialise") + "\n",
    })
}

/// The rows of these metrics, which may be any counters; without any, those that are shown by default.
pub(crate) fn rows(
    layout: Layout,
    cells: &[Cell],
    metrics: &[String],
    is_default: impl Fn(&Table, Family) -> bool,
) -> Result<Report, UsageError> {
    let mut report = Report::with_all_counters(layout, cells);
    let is_named = |counter: &str| metrics.iter().any(|metric| metric.eq_ignore_ascii_case(counter));
    report.add_counters(cells, is_named);
    keep(&mut report, metrics, is_default)?;
    Ok(report)
}

/// Leaves the rows of these metrics alone; without any, those that are shown by default.
fn keep(
    report: &mut Report,
    metrics: &[String],
    is_default: impl Fn(&Table, Family) -> bool,
) -> Result<(), UsageError> {
    let is_of = |table: &Table, row: &report::Row, metric: &String| {
        let metric = metric.to_lowercase();
        [&row.metric, &row.stat, &row.operation, &row.case].iter().any(|name| name.to_lowercase() == metric)
            || row.metric.to_lowercase().split('.').any(|part| part == metric)
            || table.title.to_lowercase() == metric
    };
    let all: Vec<String> = report
        .tables
        .iter()
        .flat_map(|table| {
            table.rows.iter().filter(|row| Family::of(table, row).is_some()).map(|row| row.metric.clone())
        })
        .collect();
    for metric in metrics {
        let found = report.tables.iter().any(|table| table.rows.iter().any(|row| is_of(table, row, metric)));
        if !found {
            let mut known: Vec<&str> = all.iter().map(String::as_str).collect();
            known.dedup();
            return Err(UsageError::of_key("--metrics", unknown("metric", metric, &known)));
        }
    }
    for table in &mut report.tables {
        let rows = std::mem::take(&mut table.rows);
        let is_kept = |row: &report::Row| match metrics {
            [] => Family::of(table, row).is_some_and(|family| is_default(table, family)),
            metrics => metrics.iter().any(|metric| is_of(table, row, metric)) && Family::of(table, row).is_some(),
        };
        table.rows = rows.into_iter().filter(is_kept).collect();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(from: &str, steps: &[&str], by_rule: bool) -> Wanted {
        Wanted {
            from: from.to_owned(),
            steps: steps.iter().map(|step| (*step).to_owned()).collect(),
            by_rule,
            workload: "thpscale".to_owned(),
            machine: None,
            sets: Vec::new(),
            seeds: Seeds::up_to(1),
            workers: None,
            out: None,
        }
    }

    fn names(wanted: &Wanted) -> Vec<String> {
        let name = |rung: Rung| match rung {
            Rung::Named(name) => name,
            Rung::Rules { parent, rules } => format!("{parent} {}", rules.last().unwrap().0),
        };
        wanted.rungs().unwrap().into_iter().map(name).collect()
    }

    #[test]
    fn patches_are_put_on_one_after_the_other() {
        assert_eq!(
            names(&wanted("v4.1-rc2", &["+1..+3"], false)),
            ["v4.1-rc2", "v4.1-rc2+1", "v4.1-rc2+1,2", "v4.1-rc2+1,2,3"]
        );
        assert_eq!(names(&wanted("v4.1-rc2", &["+4", "+2"], false)), ["v4.1-rc2", "v4.1-rc2+4", "v4.1-rc2+4,2"]);
        assert_eq!(names(&wanted("v4.20-rc3", &[], false)).len(), 7, "all that it has");
    }

    #[test]
    fn versions_and_rules_between_two_are_climbed() {
        assert_eq!(names(&wanted("v4.15..v4.18", &[], false)), ["v4.15", "v4.16", "v4.17", "v4.18"]);
        let rules = names(&wanted("v5.0..v5.1", &[], true));
        assert!(rules.len() > 10 && rules[1].starts_with("v5.0 "), "{rules:?}");
        // Releases without rules of their own stand where their rules are.
        assert_eq!(names(&wanted("v4.9..v4.17", &[], false)), ["v4.9", "v4.12", "v4.15", "v4.16", "v4.17"]);
        assert_eq!(names(&wanted("v5.10..v5.15", &[], false)), ["v5.10", "v5.11", "v5.14", "v5.15"]);
        assert_eq!(names(&wanted("v5.15..v5.17", &[], false)), ["v5.15", "v5.17"]);
        let rules = names(&wanted("v4.9..v4.12", &[], true));
        assert!(rules[1].starts_with("v4.9 ") && rules.len() > 5, "{rules:?}");
        assert_eq!(names(&wanted("v3.10", &["+1", "+3"], false)), ["v3.10", "v3.10+1", "v3.10+1,3"]);
    }

    #[test]
    fn what_is_no_ladder_is_one_message() {
        for (from, steps, expected) in [
            ("v4.1-rc2", &["+9"][..], "unknown step \"+9\""),
            ("v4.1-rc2", &["1"], "expected patches such as +3"),
            ("v4.1-rc2", &["+3..+1"], "expected patches such as +3"),
            ("v6.1", &[], "has no patches"),
            ("v6.1..v5.0", &[], "does not come from"),
            ("v5.15..v5.14", &[], "does not come from"),
            ("v3.8..v4.1", &[], "kernel 3.8 is older than v3.9, the oldest whose rules we know"),
            ("v5.0..v5.1", &["+1"], "not both"),
        ] {
            let error = wanted(from, steps, false).rungs().unwrap_err().to_string();
            assert!(error.contains(expected), "{from} {steps:?}: {error}");
        }
        assert!(wanted("v6.1..v6.1", &[], false).request().unwrap_err().to_string().contains("one rung"));
    }
}
