//! Typed reading of one TOML table.

use std::str::FromStr;

use report::brief;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use units::{Bytes, BytesPerSecond};

use super::{Source, unknown};
use crate::usage::UsageError;

/// Reads one table of a document. Its errors name file, line and key.
#[derive(Clone, Debug)]
pub struct TableReader<'d> {
    source: &'d Source,
    /// Path of the table, such as `node.zone`; empty for the root.
    path: String,
    /// Where the table begins: the line to name when a key is missing.
    start: usize,
    table: &'d DeTable<'d>,
}

/// A type that a TOML value can be.
pub trait FromValue: Sized {
    /// What was expected, to be followed by what was found: `a whole number`.
    fn expected() -> String;

    /// The value, or why it is not one.
    fn from_value(value: &Spanned<DeValue<'_>>) -> Result<Self, Mismatch>;
}

/// Why a value is not of the expected type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Byte offset of the offender, which may be an item of a list.
    offset: usize,
    message: String,
}

/// A string, number or boolean, as text: settings and parameters are texts whose owner knows their type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar(pub String);

/// One [`Scalar`], or a list of at least one, all different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOrMore(pub Vec<String>);

impl Mismatch {
    /// Says what was expected in place of a value.
    pub fn new(expected: &str, value: &Spanned<DeValue<'_>>) -> Self {
        mismatch(expected, value)
    }
}

impl<'d> TableReader<'d> {
    pub(super) fn new(source: &'d Source, path: String, start: usize, table: &'d DeTable<'d>) -> Self {
        Self { source, path, start, table }
    }

    /// Refuses keys that are not in `valid`; the message calls a key `noun`.
    pub fn only(self, noun: &str, valid: &[&str]) -> Result<Self, UsageError> {
        match self.keys().into_iter().find(|key| !valid.contains(key)) {
            None => Ok(self),
            Some(key) => {
                let path = (!self.path.is_empty()).then(|| self.path.clone());
                Err(self.source.error_at(self.offset(key), path, unknown(noun, key, valid)))
            }
        }
    }

    /// The table's keys, in the order of the file.
    pub fn keys(&self) -> Vec<&'d str> {
        let mut keys: Vec<_> = self.table.keys().map(|key| (key.span().start, key.get_ref().as_ref())).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, key)| key).collect()
    }

    /// Whether the table has this key.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The value of a key that must be there.
    pub fn required<T: FromValue>(&self, key: &str) -> Result<T, UsageError> {
        let missing = || self.error(key, format!("missing; expected {}", T::expected()));
        self.optional(key)?.ok_or_else(missing)
    }

    /// The value of a key that must be there; a message about a value of another type says what else was expected.
    pub fn required_as<T: FromValue>(&self, key: &str, expected: &str) -> Result<T, UsageError> {
        match self.table.get(key) {
            Some(value) if T::from_value(value).is_err() => Err(self.mismatch(key, mismatch(expected, value))),
            _ => self.required(key),
        }
    }

    /// The value of a key that may be there.
    pub fn optional<T: FromValue>(&self, key: &str) -> Result<Option<T>, UsageError> {
        self.table
            .get(key)
            .map(|value| T::from_value(value).map_err(|mismatch| self.mismatch(key, mismatch)))
            .transpose()
    }

    /// The table `[key]`, if it is there.
    pub fn table(&self, key: &str) -> Result<Option<TableReader<'d>>, UsageError> {
        self.table.get(key).map(|value| self.inner_table(key, value, || format!("a table [{key}]"))).transpose()
    }

    /// The tables `[[key]]`, in the order of the file; none is fine.
    pub fn tables(&self, key: &str) -> Result<Vec<TableReader<'d>>, UsageError> {
        let expected = || format!("a table [[{key}]]");
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.mismatch(key, mismatch(&expected(), value)));
        };
        items.iter().map(|item| self.inner_table(key, item, expected)).collect()
    }

    /// An error about a key: at its line if it is there, else at the table's.
    pub fn error(&self, key: &str, message: impl Into<String>) -> UsageError {
        self.source.error_at(self.offset(key), Some(self.path_of(key)), message.into())
    }

    fn inner_table(
        &self,
        key: &str,
        value: &'d Spanned<DeValue<'d>>,
        expected: impl Fn() -> String,
    ) -> Result<TableReader<'d>, UsageError> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(Self::new(self.source, self.path_of(key), value.span().start, table)),
            _ => Err(self.mismatch(key, mismatch(&expected(), value))),
        }
    }

    fn mismatch(&self, key: &str, mismatch: Mismatch) -> UsageError {
        self.source.error_at(mismatch.offset, Some(self.path_of(key)), mismatch.message)
    }

    fn offset(&self, key: &str) -> usize {
        self.table.get_key_value(key).map_or(self.start, |(key, _)| key.span().start)
    }

    /// The key's path, written as TOML would: quoted when it is not a bare key.
    fn path_of(&self, key: &str) -> String {
        let bare = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        let key = if bare { key.to_owned() } else { format!("{key:?}") };
        if self.path.is_empty() { key } else { format!("{}.{key}", self.path) }
    }
}

impl FromValue for String {
    fn expected() -> String {
        "a string".to_owned()
    }

    fn from_value(value: &Spanned<DeValue<'_>>) -> Result<Self, Mismatch> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.as_ref().to_owned()),
            _ => Err(mismatch(&Self::expected(), value)),
        }
    }
}

impl FromValue for u64 {
    fn expected() -> String {
        "a whole number".to_owned()
    }

    fn from_value(value: &Spanned<DeValue<'_>>) -> Result<Self, Mismatch> {
        let DeValue::Integer(integer) = value.get_ref() else { return Err(mismatch(&Self::expected(), value)) };
        Self::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| mismatch(&Self::expected(), value))
    }
}

impl FromValue for bool {
    fn expected() -> String {
        "true or false".to_owned()
    }

    fn from_value(value: &Spanned<DeValue<'_>>) -> Result<Self, Mismatch> {
        value.get_ref().as_bool().ok_or_else(|| mismatch(&Self::expected(), value))
    }
}

impl FromValue for Bytes {
    fn expected() -> String {
        "a size such as \"512MiB\"".to_owned()
    }

    fn from_value(value: &Spanned<DeValue<'_>>) -> Result<Self, Mismatch> {
        let DeValue::String(text) = value.get_ref() else { return Err(mismatch(&Self::expected(), value)) };
        Self::from_str(text).map_err(|error| Mismatch { offset: value.span().start, message: error.to_string() })
    }
}

impl FromValue for BytesPerSecond {
    fn expected() -> String {
        "a rate such as \"12GiB/s\"".to_owned()
    }

    fn from_value(value: &Spanned<DeValue<'_>>) -> Result<Self, Mismatch> {
        let DeValue::String(text) = value.get_ref() else { return Err(mismatch(&Self::expected(), value)) };
        Self::from_str(text).map_err(|error| Mismatch { offset: value.span().start, message: error.to_string() })
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn expected() -> String {
        format!("a list, each item {}", T::expected())
    }

    fn from_value(value: &Spanned<DeValue<'_>>) -> Result<Self, Mismatch> {
        let DeValue::Array(items) = value.get_ref() else { return Err(mismatch(&Self::expected(), value)) };
        items.iter().map(T::from_value).collect()
    }
}

impl FromValue for Scalar {
    fn expected() -> String {
        "a string, number or boolean".to_owned()
    }

    fn from_value(value: &Spanned<DeValue<'_>>) -> Result<Self, Mismatch> {
        Ok(Self(match value.get_ref() {
            DeValue::String(text) => text.as_ref().to_owned(),
            DeValue::Integer(integer) => i128::from_str_radix(integer.as_str(), integer.radix())
                .map_err(|_| mismatch("an integer of at most 128 bits", value))?
                .to_string(),
            DeValue::Float(float) => float.as_str().to_owned(),
            DeValue::Boolean(boolean) => boolean.to_string(),
            _ => return Err(mismatch(&Self::expected(), value)),
        }))
    }
}

impl FromValue for OneOrMore {
    fn expected() -> String {
        format!("{}, or a list of them", Scalar::expected())
    }

    fn from_value(value: &Spanned<DeValue<'_>>) -> Result<Self, Mismatch> {
        let DeValue::Array(items) = value.get_ref() else {
            return match Scalar::from_value(value) {
                Ok(Scalar(text)) => Ok(Self(vec![text])),
                Err(_) => Err(mismatch(&Self::expected(), value)),
            };
        };
        let mut texts: Vec<String> = Vec::with_capacity(items.len());
        for item in items {
            let Scalar(text) = Scalar::from_value(item)?;
            if texts.contains(&text) {
                return Err(Mismatch {
                    offset: item.span().start,
                    message: format!("{} is listed twice", brief(format_args!("{text:?}"))),
                });
            }
            texts.push(text);
        }
        if texts.is_empty() {
            return Err(Mismatch { offset: value.span().start, message: "the list is empty".to_owned() });
        }
        Ok(Self(texts))
    }
}

fn mismatch(expected: &str, value: &Spanned<DeValue<'_>>) -> Mismatch {
    let found = match value.get_ref() {
        DeValue::String(text) => format!("the string {}", brief(format_args!("{text:?}"))),
        DeValue::Integer(integer) => format!("the integer {}", brief(integer)),
        DeValue::Float(float) => format!("the float {}", brief(float)),
        DeValue::Boolean(boolean) => format!("the boolean {boolean}"),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    Mismatch { offset: value.span().start, message: format!("expected {expected}, found {found}") }
}
