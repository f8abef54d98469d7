//! Linux: none; the variants that come with the program.
//! Differs: the files of `variants/`, read once.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

use super::{Diff, Named, Patch, Variant, major_minor};

/// Name and text of each built-in variant.
macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../variants/", $name, ".toml"))),)*]
    };
}

/// Oldest first, so that a parent comes before its children.
#[rustfmt::skip]
const FILES: &[(&str, &str)] = files![
    "v3.9" "v3.16" "v4.1" "v4.1-rc2" "v4.4" "v4.6" "v4.7" "v4.8" "v4.12" "v4.15" "v4.16" "v4.17" "v4.19" "v4.20" "v4.20-rc3"
    "v5.0" "v5.1" "v5.2" "v5.3" "v5.4" "v5.5-next" "v5.8" "v5.9" "v5.10" "v5.11" "v5.14" "v5.18" "v6.1" "v6.4" "v6.6" "v6.7"
    "v6.10" "v6.12" "v6.15" "v6.18"
];

static ALL: LazyLock<Vec<Named>> = LazyLock::new(|| {
    let mut all: Vec<Named> = Vec::with_capacity(FILES.len());
    for (name, text) in FILES {
        let variant = read(name, text, &all).unwrap_or_else(|problem| panic!("variants/{name}.toml: {problem}"));
        all.push(variant);
    }
    all
});

/// Every built-in variant, oldest first.
pub fn all() -> &'static [Named] {
    &ALL
}

/// The built-in variant of this name, if there is one.
pub fn built_in(name: &str) -> Option<&'static Named> {
    all().iter().find(|variant| variant.name == name)
}

/// The rules of the built-in variant of this name.
///
/// # Panics
/// When there is none: names that a user gives go through [`built_in`].
pub fn named(name: &str) -> &'static Variant {
    let variant = built_in(name).unwrap_or_else(|| panic!("no built-in variant {name:?}"));
    &variant.rules
}

/// The rules of the built-in variant of this name with some of its patches.
///
/// # Panics
/// As [`named`]; and when it has no such patch.
pub fn patched(name: &str, patches: &[u32]) -> Variant {
    let variant = built_in(name).unwrap_or_else(|| panic!("no built-in variant {name:?}"));
    variant.with_patches(patches).unwrap_or_else(|problem| panic!("{name}: {problem}")).rules
}

/// A variant file; `lab` reads the same keys from files of users, with better messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    about: String,
    parent: Option<String>,
    since: Option<String>,
    /// For readers: `lab` tells them.
    #[serde(default, rename = "from_memory")]
    _from_memory: Vec<String>,
    #[serde(default)]
    rules: toml::Table,
    #[serde(default)]
    patch: BTreeMap<String, PatchTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchTable {
    about: String,
    rules: toml::Table,
}

pub(super) fn read(name: &str, text: &str, older: &[Named]) -> Result<Named, String> {
    let File { about, parent, since, rules, patch, .. } = toml::from_str(text).map_err(|error| error.to_string())?;
    let release = |text: &String| major_minor(text).ok_or_else(|| format!("since: {text:?} is no release"));
    let said = since.as_ref().map(release).transpose()?;
    let diff = diff(&rules)?;
    let above = match &parent {
        None => None,
        Some(parent) => Some(older.iter().find(|older| older.name == *parent).ok_or("no such parent")?),
    };
    let rules = match above {
        Some(parent) => diff.over(&parent.rules),
        None => diff.whole().map_err(|missing| format!("without a parent, but also without {}", missing.join(", ")))?,
    };
    let since = said.or(above.map(|parent| parent.since)).ok_or("since: missing")?;
    let diff = above.map_or_else(Vec::new, |parent| rules.differences(&parent.rules));
    let mut patches = patch.iter().map(|(number, table)| patch_of(number, table)).collect::<Result<Vec<_>, _>>()?;
    patches.sort_unstable_by_key(|patch| patch.number);
    Ok(Named { name: name.to_owned(), about, parent, since, is_release: said.is_some(), patches, diff, rules })
}

fn patch_of(number: &str, table: &PatchTable) -> Result<Patch, String> {
    let its = number.parse().map_err(|_| format!("patch.{number}: no number"))?;
    let diff = diff(&table.rules).map_err(|problem| format!("patch.{number}.{problem}"))?;
    Ok(Patch { number: its, about: table.about.clone(), diff })
}

fn diff(rules: &toml::Table) -> Result<Diff, String> {
    let mut diff = Diff::default();
    for (rule, value) in rules {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if !diff.set(rule, &value) {
            return Err(format!("rules.{rule}: no such rule, or it does not take {value}"));
        }
    }
    Ok(diff)
}
