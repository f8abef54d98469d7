//! Linux: none; variant files: their keys, and the variant that one comes to.
//! Differs: this is the only reader. Whoever opens a file says how a table of it is read ([`Table`]): the built-in files
//! plainly, `lab` those of users, with file and line in every message.

use super::{Diff, Named, Patch, Takes, Variant, major_minor};

const KEYS: &[&str] = &["about", "parent", "since", "from_memory", "not_modelled", "rules", "patch"];
const PATCH_KEYS: &[&str] = &["about", "rules"];
/// Most missing rules that an error message names.
const NAMED_MISSING: usize = 4;
/// Former rules of variant files, each with the rules that replaced it.
pub const FORMER: &[(&str, &[&str])] = &[
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

/// A table of an open TOML file.
pub trait Table: Sized {
    /// An error about a key.
    type Error;

    /// Refuses keys that are not in `valid`; the error calls a key `noun`.
    fn only(self, noun: &str, valid: &[&str]) -> Result<Self, Self::Error>;
    /// The keys of the table, in the order of the file or sorted.
    fn keys(&self) -> Vec<String>;
    /// The text of an optional key.
    fn text(&self, key: &str) -> Result<Option<String>, Self::Error>;
    /// The text, or list of texts, of an optional key.
    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, Self::Error>;
    /// The value of a required key, as text. The TOML type must be that of `takes`; for words any string will do. A value of
    /// another type is refused with the list of words.
    fn value(&self, key: &str, takes: Takes) -> Result<String, Self::Error>;
    /// The sub-table of an optional key.
    fn table(&self, key: &str) -> Result<Option<Self>, Self::Error>;
    /// An error about a key, which need not be in the file.
    fn error(&self, key: &str, message: String) -> Self::Error;
    /// A message about a name that is not in `valid`.
    fn unknown(noun: &str, name: &str, valid: &[&str]) -> String;
}

/// A variant file by itself, without its parent.
#[derive(Clone, Debug)]
pub struct File {
    /// One line on the variant.
    pub about: String,
    /// The name of the parent variant, perhaps with patches.
    pub parent: Option<String>,
    /// The release whose rules the file has, if it names one.
    pub since: Option<(u32, u32)>,
    /// Rules that were not read in the source of that release, if the file lists them.
    pub from_memory: Option<Vec<&'static str>>,
    /// Mechanisms of that release that no rule models.
    pub not_modelled: Vec<String>,
    /// The rules that the file sets.
    pub diff: Diff,
    /// Patches, by number.
    pub patches: Vec<Patch>,
}

impl File {
    /// Reads the root table of a file.
    pub fn parse<T: Table>(root: &T) -> Result<Self, T::Error> {
        Ok(Self {
            about: required(root, "about")?,
            parent: root.text("parent")?,
            diff: diff(root)?,
            patches: patches(root)?,
            from_memory: from_memory(root)?,
            not_modelled: root.texts("not_modelled")?.unwrap_or_default(),
            since: since(root)?,
        })
    }
}

/// The variant of a file; `above` finds the variant named as its parent.
pub fn read<T: Table>(
    root: T,
    name: &str,
    above: impl FnOnce(&T, &str) -> Result<Named, T::Error>,
) -> Result<Named, T::Error> {
    let root = root.only("key", KEYS)?;
    let File { about, parent, since, diff, patches, not_modelled, .. } = File::parse(&root)?;
    let (name, is_release) = (name.to_owned(), since.is_some());
    let lacks = move |since: (u32, u32)| not_modelled.into_iter().map(move |what| (since, what));
    let Some(parent) = parent else {
        let rules = diff.whole().map_err(|missing| root.error("parent", no_parent(&missing)))?;
        let missing = || root.error("since", "missing; expected a release such as \"6.1\"".to_owned());
        let since = since.ok_or_else(missing)?;
        let (not_modelled, diff, stands_in) = (lacks(since).collect(), Vec::new(), None);
        return Ok(Named {
            name,
            about,
            parent: None,
            since,
            is_release,
            not_modelled,
            stands_in,
            patches,
            diff,
            rules,
        });
    };
    let above = above(&root, &parent)?;
    let rules = diff.over(&above.rules);
    let diff = rules.differences(&above.rules);
    let since = since.unwrap_or(above.since);
    let not_modelled = above.not_modelled.into_iter().chain(lacks(since)).collect();
    let stands_in = match (is_release, diff.is_empty()) {
        (true, true) => Some((name.clone(), above.name.clone())),
        (true, false) => None,
        (false, _) => above.stands_in,
    };
    let parent = Some(above.name);
    Ok(Named { name, about, parent, since, is_release, not_modelled, stands_in, patches, diff, rules })
}

fn required<T: Table>(table: &T, key: &str) -> Result<String, T::Error> {
    let missing = || table.error(key, "missing; expected a string".to_owned());
    table.text(key)?.ok_or_else(missing)
}

/// The tables `[patch.1]` and so on, by number.
fn patches<T: Table>(root: &T) -> Result<Vec<Patch>, T::Error> {
    let Some(all) = root.table("patch")? else { return Ok(Vec::new()) };
    let mut patches = Vec::new();
    for key in all.keys() {
        let number = key.parse::<u32>().ok().filter(|number| *number > 0 && number.to_string() == key);
        let wrong = || all.error(&key, "expected a number from 1 on, as in [patch.1]".to_owned());
        let number = number.ok_or_else(wrong)?;
        let Some(table) = all.table(&key)? else { continue };
        let table = table.only("key", PATCH_KEYS)?;
        let about = required(&table, "about")?;
        if !table.keys().iter().any(|key| key == "rules") {
            return Err(table.error("rules", "missing; a patch changes rules".to_owned()));
        }
        patches.push(Patch { number, about, diff: diff(&table)? });
    }
    patches.sort_unstable_by_key(|patch| patch.number);
    Ok(patches)
}

fn since<T: Table>(root: &T) -> Result<Option<(u32, u32)>, T::Error> {
    let Some(text) = root.text("since")? else { return Ok(None) };
    let since = major_minor(&text).filter(|(major, minor)| format!("{major}.{minor}") == text);
    let wrong = || root.error("since", format!("expected a release such as \"6.1\", found {text:?}"));
    since.ok_or_else(wrong).map(Some)
}

fn from_memory<T: Table>(root: &T) -> Result<Option<Vec<&'static str>>, T::Error> {
    let Some(names) = root.texts("from_memory")? else { return Ok(None) };
    let known: Vec<_> = Variant::RULES.iter().map(|rule| rule.name).collect();
    let one = |name: &String| {
        let rule = known.iter().find(|known| *known == name);
        rule.copied().ok_or_else(|| root.error("from_memory", T::unknown("rule", name, &known)))
    };
    names.iter().map(one).collect::<Result<_, _>>().map(Some)
}

fn no_parent(missing: &[&str]) -> String {
    let named = missing.iter().take(NAMED_MISSING).copied().collect::<Vec<_>>().join(", ");
    let more = missing.len().checked_sub(NAMED_MISSING).filter(|more| *more > 0);
    let more = more.map_or(String::new(), |more| format!(" and {more} more"));
    format!("missing; a variant without a parent gives every rule, and this one lacks {named}{more}")
}

/// The rules that the table `[rules]` of a file or of a patch sets.
fn diff<T: Table>(root: &T) -> Result<Diff, T::Error> {
    let mut diff = Diff::default();
    let Some(table) = root.table("rules")? else { return Ok(diff) };
    let has = |rule: &str| table.keys().iter().any(|key| key == rule);
    if let Some((former, now)) = FORMER.iter().find(|(former, _)| has(former)) {
        let message = format!("is no rule any more, but true or false for {}", now.join(", "));
        return Err(table.error(former, message));
    }
    let names: Vec<_> = Variant::RULES.iter().map(|rule| rule.name).collect();
    let table = table.only("rule", &names)?;
    let given = table.keys();
    for rule in Variant::RULES.iter().filter(|rule| given.iter().any(|key| key == rule.name)) {
        let value = table.value(rule.name, rule.takes)?;
        if !rule.takes.accepts(&value) {
            let wrong = match rule.takes {
                Takes::Words(words) => T::unknown("value", &value, words),
                _ => format!("expected {}, found {value}", rule.takes.expected()),
            };
            return Err(table.error(rule.name, wrong));
        }
        assert!(diff.set(rule.name, &value), "{} takes {value}: its table says so", rule.name);
    }
    Ok(diff)
}
