//! Variants by name or path: kernels as data, each its parent plus what differs. Files: `variants/NAME.toml`.
//!
//! Which rules there are and which values they take is the table in `mm::variant`; this is its reader for files that
//! users write, with messages that name file, line and key. A file may have patches: `[patch.1]` is what the name of the
//! variant with `+1` behind it adds.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use linux::procfs::{Capture, ProcError, version};
use mm::{
    Variant,
    variant::{self, Diff, Named, Patch, Takes},
};
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::source::{self, Kind, OneOrMore, Source, SourceError, TableReader, unknown};

/// The variant that means the kernel this program runs on.
pub const HOST: &str = "host";

const KEYS: &[&str] = &["about", "parent", "since", "from_memory", "rules", "patch"];
const PATCH_KEYS: &[&str] = &["about", "rules"];
/// Missing rules that a message names.
const NAMED_MISSING: usize = 4;
/// Rules that variant files could have before, and those that they are now.
const FORMER: &[(&str, &[&str])] = &[
    (
        "compact_search",
        &[
            "compact_lists_for_sources",
            "compact_private_sources",
            "compact_lists_for_targets",
            "compact_orders_in_turn",
            "compact_rescans_at_once",
            "compact_passes_unfit",
            "compact_syncs_cached",
            "compact_marks_searched",
            "compact_samples",
            "compact_clears_selectively",
        ],
    ),
    ("sched_imbalance", &["sched_compares_loads"]),
];

/// The variant of a name or path, which may end with patches of its file: `v4.1-rc2+1,3`.
pub fn load(name_or_path: &str) -> Result<Named, SourceError> {
    resolve(name_or_path, &[], &|name| source::lookup(Kind::Variant, name))
}

/// The newest rules not newer than the kernel of a release, such as `6.1.0-25-amd64`: what simulates that kernel.
pub fn for_release(release: &str) -> Result<Named, String> {
    Variant::for_release(release).cloned().map_err(|error| error.to_string())
}

/// The release of the kernel that this program runs on.
pub fn host_release() -> Result<String, ProcError> {
    let capture = Capture::live()?;
    Ok(version::parse(capture.text("version")?)?.text)
}

/// Name, and lines about it, of every variant: what it is, its parent and what differs. Oldest first; a file that is wrong
/// comes before all, and says why.
pub fn list() -> Vec<(String, Vec<String>)> {
    let names = source::names(Kind::Variant).into_iter();
    let mut variants: Vec<_> = names.map(|name| (load(&name), name)).collect();
    variants.sort_by_key(|(variant, _)| variant.as_ref().ok().map(|variant| variant.since));
    let lines = |(variant, name): (Result<Named, SourceError>, String)| match variant {
        Ok(variant) => {
            let patches = variant.patches.iter().map(about_patch);
            (name, [variant.about.clone(), variant.difference()].into_iter().chain(patches).collect())
        }
        Err(error) => (name, vec![error.to_string()]),
    };
    variants.into_iter().map(lines).chain([(HOST.to_owned(), vec![about_host()])]).collect()
}

fn about_patch(patch: &Patch) -> String {
    let rules: Vec<_> = patch.diff.values().iter().map(|(rule, value)| format!("{rule} = {value}")).collect();
    format!("+{}  {}: {}", patch.number, patch.about, rules.join(", "))
}

fn about_host() -> String {
    let nearest = host_release().map_err(|error| error.to_string()).and_then(|release| {
        let variant = Variant::for_release(&release).map_err(|error| error.to_string())?;
        Ok(format!("the newest of these that is not newer than this kernel, {release}: {}", variant.name))
    });
    nearest.unwrap_or_else(|problem| format!("this machine's kernel: {problem}"))
}

/// The variant of a name with or without patches.
fn resolve(
    name: &str,
    below: &[&str],
    lookup: &dyn Fn(&str) -> Result<Source, SourceError>,
) -> Result<Named, SourceError> {
    let alone = |message: String| SourceError { file: None, line: None, key: None, message };
    let (base, patches) = variant::split_patches(name).map_err(|error| alone(error.to_string()))?;
    let source = lookup(base)?;
    let variant = read(&source, below, lookup)?;
    let wrong = |problem: variant::PatchProblem| SourceError {
        file: Some(source.file().to_owned()),
        ..alone(problem.to_string())
    };
    variant.with_patches(&patches).map_err(wrong)
}

/// `below`: the files whose parent this is, to find circles.
fn read(
    source: &Source,
    below: &[&str],
    lookup: &dyn Fn(&str) -> Result<Source, SourceError>,
) -> Result<Named, SourceError> {
    let document = source.parse()?;
    let root = document.root().only("key", KEYS)?;
    let about = root.required("about")?;
    let parent = root.optional::<String>("parent")?;
    let (diff, patches) = (diff(&root)?, patches(&root)?);
    remembered(&root)?;
    let since = since(&root)?;
    let is_release = since.is_some();
    let name = source.name().to_owned();
    let Some(parent) = parent else {
        let rules = diff.whole().map_err(|missing| root.error("parent", no_parent(&missing)))?;
        let since = since.ok_or_else(|| root.error("since", "missing; expected a release such as \"6.1\""))?;
        return Ok(Named { name, about, parent: None, since, is_release, patches, diff: Vec::new(), rules });
    };
    let line = [below, &[source.file()]].concat();
    let (base, wanted) = variant::split_patches(&parent).map_err(|error| root.error("parent", error.to_string()))?;
    let file = lookup(base).map_err(|error| match error.file {
        Some(file) => root.error("parent", format!("{file} {}", error.message)),
        None => root.error("parent", error.message),
    })?;
    if let Some(at) = line.iter().position(|below| *below == file.file()) {
        let circle = [&line[at..], &[file.file()]].concat();
        return Err(root.error("parent", format!("variants are their own parents: {}", circle.join(" -> "))));
    }
    let above = read(&file, &line, lookup)?.with_patches(&wanted);
    let above = above.map_err(|problem| root.error("parent", format!("{} {problem}", file.file())))?;
    let rules = diff.over(&above.rules);
    let diff = rules.differences(&above.rules);
    let since = since.unwrap_or(above.since);
    Ok(Named { name, about, parent: Some(above.name), since, is_release, patches, diff, rules })
}

/// The tables `[patch.1]` and so on, by number.
fn patches(root: &TableReader<'_>) -> Result<Vec<Patch>, SourceError> {
    let Some(all) = root.table("patch")? else { return Ok(Vec::new()) };
    let mut patches = Vec::new();
    for key in all.keys() {
        let number = key.parse::<u32>().ok().filter(|number| *number > 0 && number.to_string() == key);
        let number = number.ok_or_else(|| all.error(key, "expected a number from 1 on, as in [patch.1]"))?;
        let Some(table) = all.table(key)? else { continue };
        let table = table.only("key", PATCH_KEYS)?;
        let about = table.required("about")?;
        if !table.has("rules") {
            return Err(table.error("rules", "missing; a patch changes rules"));
        }
        patches.push(Patch { number, about, diff: diff(&table)? });
    }
    patches.sort_unstable_by_key(|patch| patch.number);
    Ok(patches)
}

fn since(root: &TableReader<'_>) -> Result<Option<(u32, u32)>, SourceError> {
    let Some(text) = root.optional::<String>("since")? else { return Ok(None) };
    let since = variant::major_minor(&text).filter(|(major, minor)| format!("{major}.{minor}") == text);
    let wrong = || root.error("since", format!("expected a release such as \"6.1\", found {text:?}"));
    since.ok_or_else(wrong).map(Some)
}

/// The rules of a variant that nobody read in the source of its release, what matters most first: those that its file names or
/// else its parent's, but for rules that the files between give, and its patches change.
pub fn from_memory(name: &str) -> Result<Vec<&'static str>, SourceError> {
    // This also finds what is wrong in any of the files, such as a circle of parents.
    load(name)?;
    let (mut given, mut next) = (Diff::default(), Some(name.to_owned()));
    let mut give = |rules: &Diff| {
        for (rule, value) in rules.values() {
            assert!(given.set(rule, &value), "{rule} was read from a file");
        }
        given
    };
    while let Some(name) = next {
        let (base, wanted) = variant::split_patches(&name).expect("it was loaded");
        let source = source::lookup(Kind::Variant, base)?;
        let document = source.parse()?;
        let root = document.root();
        for patch in patches(&root)?.iter().filter(|patch| wanted.contains(&patch.number)) {
            give(&patch.diff);
        }
        if let Some(own) = remembered(&root)? {
            let given = give(&Diff::default()).values();
            let is_given = |rule: &&str| given.iter().any(|(given, _)| given == rule);
            return Ok(own.into_iter().filter(|rule| !is_given(rule)).collect());
        }
        give(&diff(&root)?);
        next = root.optional("parent")?;
    }
    Ok(Vec::new())
}

fn remembered(root: &TableReader<'_>) -> Result<Option<Vec<&'static str>>, SourceError> {
    let Some(OneOrMore(names)) = root.optional("from_memory")? else { return Ok(None) };
    let known: Vec<_> = Variant::RULES.iter().map(|rule| rule.name).collect();
    let one = |name: &String| {
        let rule = known.iter().find(|known| *known == name);
        rule.copied().ok_or_else(|| root.error("from_memory", unknown("rule", name, &known)))
    };
    names.iter().map(one).collect::<Result<_, _>>().map(Some)
}

fn no_parent(missing: &[&str]) -> String {
    let named = missing.iter().take(NAMED_MISSING).copied().collect::<Vec<_>>().join(", ");
    let more = missing.len().checked_sub(NAMED_MISSING).filter(|more| *more > 0);
    let more = more.map_or(String::new(), |more| format!(" and {more} more"));
    format!("missing; a variant without a parent gives every rule, and this one lacks {named}{more}")
}

fn diff(root: &TableReader<'_>) -> Result<Diff, SourceError> {
    let mut diff = Diff::default();
    let Some(table) = root.table("rules")? else { return Ok(diff) };
    if let Some((former, now)) = FORMER.iter().find(|(former, _)| table.has(former)) {
        return Err(table.error(former, format!("is no rule any more, but true or false for {}", now.join(", "))));
    }
    let names: Vec<_> = Variant::RULES.iter().map(|rule| rule.name).collect();
    let table = table.only("rule", &names)?;
    for rule in Variant::RULES.iter().filter(|rule| table.has(rule.name)) {
        let value = value(&table, rule.name, rule.takes)?;
        assert!(diff.set(rule.name, &value), "{} takes {value}: its table says so", rule.name);
    }
    Ok(diff)
}

fn value(table: &TableReader<'_>, rule: &str, takes: Takes) -> Result<String, SourceError> {
    Ok(match takes {
        Takes::Switch => table.required::<bool>(rule)?.to_string(),
        Takes::Number => table.required::<u64>(rule)?.to_string(),
        Takes::Size => table.required::<Bytes>(rule)?.to_string(),
        Takes::Words(words) => {
            let word: String = table.required(rule)?;
            if !words.contains(&word.as_str()) {
                return Err(table.error(rule, unknown("value", &word, words)));
            }
            word
        }
    })
}

/// A variant as a run records it: a result explains itself, and a run that is resumed is the same run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Its name.
    pub name: String,
    /// Its parent and what differs, in words.
    pub difference: String,
    /// All of its rules.
    pub rules: BTreeMap<String, String>,
}

impl Recorded {
    /// A variant as it is now.
    pub fn of(variant: &Named) -> Self {
        let rules = variant.rules.values().into_iter().map(|(rule, value)| (rule.to_owned(), value));
        Self { name: variant.name.clone(), difference: variant.difference(), rules: rules.collect() }
    }

    /// Its rules, for the simulator.
    pub fn rules(&self) -> Result<Variant, String> {
        let mut diff = Diff::default();
        for (rule, value) in &self.rules {
            if !diff.set(rule, value) {
                return Err(format!("variant {}: {rule} cannot be {value}", self.name));
            }
        }
        diff.whole().map_err(|missing| format!("variant {} lacks {}", self.name, missing.join(", ")))
    }
}
