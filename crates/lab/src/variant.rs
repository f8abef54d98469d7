//! Variants by name or path: kernels as data, each its parent plus what differs. Files: `variants/NAME.toml`.
//!
//! Rules and the values that they take are the table in `rules::variant`, and `rules::variant::file` reads a file.
//! Here are the files that users write, with messages that name file, line and key. A file may have patches: `[patch.1]` is
//! what the name of the variant with `+1` behind it adds.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use linux::procfs::{Capture, ProcError, version};
use rules::variant::{
    self, Changes, Diff, Named, Patch, Rule, Takes, Variant,
    file::{self, File, Table},
};
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::{
    source::{self, Kind, OneOrMore, Source, TableReader, unknown},
    usage::UsageError,
};

/// Parents in a chain, at most.
const PARENTS_MAX: usize = 64;

/// The variant that means the kernel this program runs on.
pub const HOST: &str = "host";

/// The variant of a name or path, which may end with patches of its file: `v4.1-rc2+1,3`.
pub fn load(name_or_path: &str) -> Result<Named, UsageError> {
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
    let lines = |(variant, name): (Result<Named, UsageError>, String)| match variant {
        Ok(variant) => {
            let patches = variant.patches.iter().map(about_patch);
            (name, [variant.about.clone(), variant.difference()].into_iter().chain(patches).collect())
        }
        Err(error) => (name, vec![error.to_string()]),
    };
    variants.into_iter().map(lines).chain([(HOST.to_owned(), vec![about_host()])]).collect()
}

/// The sections of the table of rules: a heading, and each rule with what it does, since when, and the values that it takes.
pub fn sections() -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    let sections = Variant::RULES.chunk_by(|a, b| a.section == b.section);
    sections.map(|rules| (rules[0].section, rules.iter().map(|rule| (rule.name, about_rule(rule))).collect())).collect()
}

fn about_rule(rule: &Rule) -> String {
    let takes = match rule.takes {
        Takes::Switch => String::new(),
        Takes::Number(least, most) => format!("{least} to {most}"),
        Takes::Size(least, most) => format!("{least} to {most}"),
        Takes::Words(words) => words.join(", "),
    };
    let when = match rule.changes {
        Changes::AnyInstant => "",
        Changes::AtBoot => "at boot",
    };
    let more: Vec<_> = [takes.as_str(), when].into_iter().filter(|text| !text.is_empty()).collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join("; ")) };
    effect(rule) + &more
}

/// The effect of a rule that is true, or its choice, and the releases in which the rule is true or the choice changed.
fn effect(rule: &Rule) -> String {
    let releases = variant::all().iter().filter_map(|named| {
        let number = named.name.strip_prefix('v')?;
        let is_release = number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let (_, value) = named.rules.values().into_iter().find(|(name, _)| *name == rule.name)?;
        is_release.then_some((number, value))
    });
    let mut values: Vec<(&str, String)> = releases.collect();
    values.dedup_by(|later, earlier| later.1 == earlier.1);
    let about = rule.about.trim_end_matches('.');
    let history = match rule.takes {
        Takes::Switch => spans(&values),
        _ if values.len() == 1 => "one value in all".to_owned(),
        _ => format!("changed in {}", values[1..].iter().map(|(release, _)| *release).collect::<Vec<_>>().join(", ")),
    };
    format!("{about}; {history}")
}

/// The releases in which a switch is true, from the first release with each of its values in turn.
fn spans(values: &[(&str, String)]) -> String {
    let ends = values.iter().skip(1).map(|(release, _)| Some(*release)).chain([None]);
    let spans = values.iter().zip(ends).enumerate().filter(|(_, ((_, value), _))| value == "true");
    let said: Vec<_> = spans
        .map(|(at, ((start, _), end))| match (at, end) {
            (0, None) => "in all".to_owned(),
            (0, Some(end)) => format!("before {end}"),
            (_, None) => format!("since {start}"),
            (_, Some(end)) => format!("from {start} on, before {end}"),
        })
        .collect();
    if said.is_empty() { "in no release".to_owned() } else { said.join("; ") }
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
    lookup: &dyn Fn(&str) -> Result<Source, UsageError>,
) -> Result<Named, UsageError> {
    let (base, patches) = variant::split_patches(name).map_err(|error| UsageError::new(error.to_string()))?;
    let (variant, file) = match find(base, lookup)? {
        Found::File(source) => (read(&source, below, lookup)?, source.file().to_owned()),
        Found::Release(variant) => (*variant, base.to_owned()),
    };
    let wrong = |problem: variant::PatchProblem| UsageError::in_file(file, problem);
    variant.with_patches(&patches).map_err(wrong)
}

/// The meaning of a variant's name without patches.
enum Found {
    /// A file, of the user or built in.
    File(Source),
    /// A release without one, which has the rules of an earlier one.
    Release(Box<Named>),
}

/// The file of a name, or else the release that it is the name of.
fn find(name: &str, lookup: &dyn Fn(&str) -> Result<Source, UsageError>) -> Result<Found, UsageError> {
    let error = match lookup(name) {
        Ok(source) => return Ok(Found::File(source)),
        Err(error) => error,
    };
    match Variant::of_release(name) {
        // `6.1` and `v6.1.7` mean v6.1, and the user may have a file of that name.
        Some(Ok(variant)) if variant.name != name && lookup(&variant.name).is_ok() => {
            lookup(&variant.name).map(Found::File)
        }
        Some(Ok(variant)) => Ok(Found::Release(Box::new(variant))),
        Some(Err(problem)) => Err(UsageError { message: problem.to_string(), ..error }),
        None => Err(error),
    }
}

/// `below`: the files whose parent this is, to find circles.
fn read(
    source: &Source,
    below: &[&str],
    lookup: &dyn Fn(&str) -> Result<Source, UsageError>,
) -> Result<Named, UsageError> {
    let document = source.parse()?;
    file::read(document.root(), source.name(), |root, parent| {
        let line = [below, &[source.file()]].concat();
        if line.len() > PARENTS_MAX {
            return Err(root.error("parent", format!("expected a chain of at most {PARENTS_MAX} parents")));
        }
        let (base, wanted) = variant::split_patches(parent).map_err(|error| root.error("parent", error.to_string()))?;
        let found = find(base, lookup).map_err(|error| match error.file {
            Some(file) => root.error("parent", format!("{file} {}", error.message)),
            None => root.error("parent", error.message),
        })?;
        let file = match found {
            Found::File(file) => file,
            Found::Release(variant) => {
                let above = variant.with_patches(&wanted);
                return above.map_err(|problem| root.error("parent", format!("{base} {problem}")));
            }
        };
        if let Some(at) = line.iter().position(|below| *below == file.file()) {
            let circle = [&line[at..], &[file.file()]].concat();
            return Err(root.error("parent", format!("variants are their own parents: {}", circle.join(" -> "))));
        }
        let above = read(&file, &line, lookup)?.with_patches(&wanted);
        above.map_err(|problem| root.error("parent", format!("{} {problem}", file.file())))
    })
}

impl Table for TableReader<'_> {
    type Error = UsageError;

    fn only(self, noun: &str, valid: &[&str]) -> Result<Self, UsageError> {
        self.only(noun, valid)
    }

    fn keys(&self) -> Vec<String> {
        self.keys().into_iter().map(str::to_owned).collect()
    }

    fn text(&self, key: &str) -> Result<Option<String>, UsageError> {
        self.optional(key)
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, UsageError> {
        Ok(self.optional(key)?.map(|OneOrMore(texts)| texts))
    }

    fn value(&self, key: &str, takes: Takes) -> Result<String, UsageError> {
        Ok(match takes {
            Takes::Switch => self.required::<bool>(key)?.to_string(),
            Takes::Number(..) => self.required_as::<u64>(key, &takes.expected())?.to_string(),
            Takes::Size(..) => self.required_as::<Bytes>(key, &takes.expected())?.to_string(),
            Takes::Words(_) => self.required_as(key, &takes.expected())?,
        })
    }

    fn table(&self, key: &str) -> Result<Option<Self>, UsageError> {
        self.table(key)
    }

    fn error(&self, key: &str, message: String) -> UsageError {
        self.error(key, message)
    }

    fn unknown(noun: &str, name: &str, valid: &[&str]) -> String {
        unknown(noun, name, valid)
    }
}

/// The rules of a variant that nobody read in the source of its release, what matters most first: those that its file names or
/// else its parent's, but for rules that the files between give, and its patches change.
pub fn from_memory(name: &str) -> Result<Vec<&'static str>, UsageError> {
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
        let source = match find(base, &|name| source::lookup(Kind::Variant, name))? {
            Found::File(source) => source,
            Found::Release(variant) => {
                let parent = variant.parent.expect("its rules are another one's");
                let numbers: Vec<_> = wanted.iter().map(u32::to_string).collect();
                next = Some(if wanted.is_empty() { parent } else { format!("{parent}+{}", numbers.join(",")) });
                continue;
            }
        };
        let document = source.parse()?;
        let File { parent, from_memory, diff, patches, .. } = File::parse(&document.root())?;
        for patch in patches.iter().filter(|patch| wanted.contains(&patch.number)) {
            give(&patch.diff);
        }
        if let Some(own) = from_memory {
            let given = give(&Diff::default()).values();
            let is_given = |rule: &&str| given.iter().any(|(given, _)| given == rule);
            return Ok(own.into_iter().filter(|rule| !is_given(rule)).collect());
        }
        give(&diff);
        next = parent;
    }
    Ok(Vec::new())
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
    /// A release that it is named after, and the variant whose rules it has, where no rule is of that release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_in: Option<(String, String)>,
    /// Mechanisms of its release that no rule has: `exact free lists (6.10)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_modelled: Vec<String>,
}

impl Recorded {
    /// A variant as it is now.
    pub fn of(variant: &Named) -> Self {
        let rules = variant.rules.values().into_iter().map(|(rule, value)| (rule.to_owned(), value));
        let lacks = variant.not_modelled.iter().map(|((major, minor), what)| format!("{what} ({major}.{minor})"));
        Self {
            name: variant.name.clone(),
            difference: variant.difference(),
            rules: rules.collect(),
            stands_in: variant.stands_in.clone(),
            not_modelled: lacks.collect(),
        }
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

    /// Rules for figures of a result that may be older than some of them: those that its program did not know are as in
    /// `rest`, and those that this program does not know any more have no part in it.
    ///
    /// # Errors
    /// A value that the rule cannot have.
    pub(crate) fn rules_over(&self, rest: &Variant) -> Result<Variant, String> {
        let mut diff = Diff::default();
        let is_known = |name: &str| Variant::RULES.iter().any(|rule| rule.name == name);
        for (rule, value) in self.rules.iter().filter(|(rule, _)| is_known(rule)) {
            if !diff.set(rule, value) {
                return Err(format!("variant {}: {rule} cannot be {value}", self.name));
            }
        }
        Ok(diff.over(rest))
    }
}
