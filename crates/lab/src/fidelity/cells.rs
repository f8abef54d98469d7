//! The list of cells as data: which workloads, on which guests, how often.

use linux::kernel_image::compare_versions;
use units::setting;

use super::rank::QUANTITIES;
use crate::{
    experiment::Experiment,
    source::{OneOrMore, Source, TableReader, unknown},
    usage::UsageError,
};

const KEYS: &[&str] = &["kernel", "guest", "run"];
const GUEST_KEYS: &[&str] = &["name", "kernel", "machine", "replayable", "seeds"];
const RUN_KEYS: &[&str] =
    &["experiment", "guests", "set", "defrag", "rank", "rank_by", "policy", "streaming", "called", "skip"];
/// The setting that policies are values of.
const DEFRAG: &str = "transparent_hugepage/defrag";

/// Everything that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Runs on guests and beside them.
    pub runs: Vec<Run>,
}

/// A kind of guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The guest's name in cells.
    pub name: String,
    /// The real kernel: a version in the cache, or a path; that of the list where it names none.
    pub kernel: String,
    /// Name or path of its machine.
    pub machine: String,
    /// The values of `pagelab run --replayable` that the guest's runs take in turn, seed by seed. Without them QEMU's translation
    /// takes the time of the clock, and no run can be replayed.
    pub replayable: Option<String>,
    /// Runs with seeds 1 to this.
    pub seeds: u64,
}

/// One experiment with one set of parameters on one kind of guest: a cell, or several where parameters have several values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Name or path of the experiment.
    pub experiment: String,
    /// Where.
    pub guest: Guest,
    /// As `pagelab run --set` takes them.
    pub sets: Vec<String>,
    /// The group in which it is ranked, and its policy.
    pub policy: Option<(String, String)>,
    /// Quantities by which policies are ranked; empty where they are the usual ones.
    pub ranked_by: Vec<&'static str>,
    /// Whether files stream through memory.
    pub streaming: bool,
    /// The name that tells its cells from others of the same case.
    pub called: Option<String>,
    /// Why it is not run.
    pub skip: Option<String>,
}

impl Run {
    /// The name of one of its cells.
    pub fn cell(&self, case: &str) -> String {
        let defrag = self.sets.iter().find_map(|set| set.strip_prefix(DEFRAG)?.strip_prefix('='));
        let defrag = defrag.map_or(String::new(), |value| format!(" defrag={value}"));
        let called = self.called.as_ref().map_or(String::new(), |called| format!(" ({called})"));
        format!("{} {} {case}{defrag}{called}", self.guest.name, self.experiment)
    }

    /// The name of the run's cells together.
    pub fn label(&self) -> String {
        format!("{} {} {}", self.guest.name, self.experiment, self.sets.join(" "))
    }

    /// Why the run's kernel cannot have one of the run's settings: the setting came later. None where the kernel has every
    /// setting.
    pub fn lacks_setting(&self) -> Option<String> {
        let kernel = &self.guest.kernel;
        let names = self.sets.iter().filter_map(|set| set.split_once('=')).map(|(name, _)| name);
        let came = names.filter_map(|name| Some((name, setting::find(name)?.came_with()?)));
        let mut late = came.filter(|(_, release)| compare_versions(kernel, release).is_lt());
        late.next().map(|(name, release)| format!("kernel {kernel} has no {name}, which came with {release}"))
    }
}

/// Reads the list.
pub fn read(source: &Source) -> Result<List, UsageError> {
    let document = source.parse()?;
    let root = document.root().only("key", KEYS)?;
    let kernel: String = root.required("kernel")?;
    let guests = root.tables("guest")?.into_iter().map(|table| guest(table, &kernel)).collect::<Result<Vec<_>, _>>()?;
    let mut runs = Vec::new();
    for table in root.tables("run")? {
        runs.extend(run(&table.only("key", RUN_KEYS)?, &guests)?);
    }
    Ok(List { runs })
}

fn guest(table: TableReader<'_>, kernel: &str) -> Result<Guest, UsageError> {
    let table = table.only("key", GUEST_KEYS)?;
    Ok(Guest {
        name: table.required("name")?,
        kernel: table.optional("kernel")?.unwrap_or_else(|| kernel.to_owned()),
        machine: table.required("machine")?,
        replayable: table.optional("replayable")?,
        seeds: table.required("seeds")?,
    })
}

/// One for each guest and value of `defrag`.
fn run(table: &TableReader<'_>, guests: &[Guest]) -> Result<Vec<Run>, UsageError> {
    let experiment: String = table.required("experiment")?;
    Experiment::load(&experiment).map_err(|error| table.error("experiment", error.to_string()))?;
    let list = |key: &str| table.optional(key).map(|list| list.map_or(Vec::new(), |OneOrMore(list)| list));
    let mut on = Vec::new();
    for name in list("guests")? {
        let names: Vec<_> = guests.iter().map(|guest| guest.name.as_str()).collect();
        let found = guests.iter().find(|guest| guest.name == name);
        on.push(found.ok_or_else(|| table.error("guests", unknown("guest", &name, &names)))?);
    }
    if on.is_empty() {
        return Err(table.error("guests", "expected at least one"));
    }
    let sets = list("set")?;
    let policies = match list("defrag")? {
        values if values.is_empty() => vec![None],
        values => values.into_iter().map(Some).collect(),
    };
    let group: Option<String> = table.optional("rank")?;
    let policy: Option<String> = table.optional("policy")?;
    let ranked_by = list("rank_by")?.iter().map(|name| quantity(table, name)).collect::<Result<Vec<_>, _>>()?;
    let streaming = table.optional("streaming")?.unwrap_or(false);
    let called: Option<String> = table.optional("called")?;
    let skip: Option<String> = table.optional("skip")?;
    let mut runs = Vec::new();
    for guest in on {
        for defrag in &policies {
            let setting = defrag.as_ref().map(|value| format!("{DEFRAG}={value}"));
            let name = policy.as_ref().or(defrag.as_ref());
            let group = group.as_ref().map(|group| format!("{} {group}", guest.name));
            runs.push(Run {
                experiment: experiment.clone(),
                guest: guest.clone(),
                sets: sets.iter().cloned().chain(setting).collect(),
                policy: group.zip(name.cloned()),
                ranked_by: ranked_by.clone(),
                streaming,
                called: called.clone(),
                skip: skip.clone(),
            });
        }
    }
    Ok(runs)
}

/// A quantity by which policies can be ranked, by its name.
fn quantity(table: &TableReader<'_>, name: &str) -> Result<&'static str, UsageError> {
    let found = QUANTITIES.into_iter().find(|quantity| *quantity == name);
    found.ok_or_else(|| table.error("rank_by", unknown("quantity", name, &QUANTITIES)))
}
