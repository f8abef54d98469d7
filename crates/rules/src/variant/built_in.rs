//! Linux: none; the variants that come with the program.
//! Differs: the files of `variants/`, read once.

use std::sync::LazyLock;

use units::Bytes;

use super::{
    Named, Takes, Variant,
    file::{self, Table as _},
    split_patches,
};

/// Name and text of each built-in variant.
macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../variants/", $name, ".toml"))),)*]
    };
}

/// Oldest first, so that a parent comes before its children.
#[rustfmt::skip]
const FILES: &[(&str, &str)] = files![
    "v3.9" "v3.16" "v4.1" "v4.1-rc2" "v4.4" "v4.6" "v4.7" "v4.8" "v4.12" "v4.15" "v4.16" "v4.17" "v4.18" "v4.19" "v4.20"
    "v4.20-rc3" "v5.0" "v5.1" "v5.2" "v5.3" "v5.4" "v5.5-next" "v5.8" "v5.9" "v5.10" "v5.11" "v5.14" "v5.18" "v6.1" "v6.4"
    "v6.6" "v6.7" "v6.8" "v6.10" "v6.12" "v6.15" "v6.18"
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
/// When there is no such variant, as [`named`]; or when the variant has no patch of such a number.
pub fn patched(name: &str, patches: &[u32]) -> Variant {
    let variant = built_in(name).unwrap_or_else(|| panic!("no built-in variant {name:?}"));
    variant.with_patches(patches).unwrap_or_else(|problem| panic!("{name}: {problem}")).rules
}

/// Reads a built-in file; `older` are the variants that may be its parent.
pub(super) fn read(name: &str, text: &str, older: &[Named]) -> Result<Named, String> {
    let root = text.parse::<toml::Table>().map_err(|error| error.to_string())?;
    file::read(Plain { path: String::new(), table: root }, name, |root, parent| {
        let wrong = |message: String| root.error("parent", message);
        let (base, patches) = split_patches(parent).map_err(|error| wrong(error.to_string()))?;
        let above = older.iter().find(|older| older.name == base);
        let above = above.ok_or_else(|| wrong(format!("{base} is none of the older variants")))?;
        above.with_patches(&patches).map_err(|problem| wrong(problem.to_string()))
    })
}

/// A table of a built-in file. Errors name the key alone: only a developer who changes such a file sees them.
struct Plain {
    path: String,
    table: toml::Table,
}

impl Plain {
    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn wrong<T>(&self, key: &str, expected: &str) -> Result<T, String> {
        Err(self.error(key, format!("expected {expected}, found {}", self.table[key])))
    }
}

impl file::Table for Plain {
    type Error = String;

    fn only(self, noun: &str, valid: &[&str]) -> Result<Self, String> {
        match self.table.keys().find(|key| !valid.contains(&key.as_str())) {
            Some(key) => Err(self.error(key, Self::unknown(noun, key, valid))),
            None => Ok(self),
        }
    }

    fn keys(&self) -> Vec<String> {
        self.table.keys().cloned().collect()
    }

    fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.table.get(key) {
            None => Ok(None),
            Some(toml::Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => self.wrong(key, "a string"),
        }
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, String> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let texts = value.as_array().map(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        texts.flatten().map_or_else(|| self.wrong(key, "a list of strings"), |texts| Ok(Some(texts)))
    }

    fn value(&self, key: &str, takes: Takes) -> Result<String, String> {
        let value = &self.table[key];
        let text = || value.as_str().map(str::to_owned);
        let number = || value.as_integer().and_then(|number| u64::try_from(number).ok());
        let text = match takes {
            Takes::Switch => value.as_bool().map(|switch| switch.to_string()),
            Takes::Number(..) => number().map(|number| number.to_string()),
            Takes::Size(..) => text().filter(|text| text.parse::<Bytes>().is_ok()),
            Takes::Words(_) => text(),
        };
        text.map_or_else(|| self.wrong(key, &takes.expected()), Ok)
    }

    fn table(&self, key: &str) -> Result<Option<Self>, String> {
        match self.table.get(key) {
            None => Ok(None),
            Some(toml::Value::Table(table)) => Ok(Some(Self { path: self.path_of(key), table: table.clone() })),
            Some(_) => self.wrong(key, "a table"),
        }
    }

    fn error(&self, key: &str, message: String) -> String {
        format!("{}: {message}", self.path_of(key))
    }

    fn unknown(noun: &str, name: &str, _: &[&str]) -> String {
        format!("unknown {noun} {name:?}")
    }
}
