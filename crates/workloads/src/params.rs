//! Parameters of workloads, as a user writes them.

use std::str::FromStr;

/// One parameter of a workload, for `pagelab list workloads` and for messages.
#[derive(Clone, Copy, Debug)]
pub struct ParamInfo {
    /// The parameter's name in an experiment file and after `--set`.
    pub name: &'static str,
    /// Values that the parameter takes.
    pub expects: &'static str,
    /// The value when not given.
    pub default: &'static str,
    /// The parameter's meaning.
    pub about: &'static str,
}

/// Why a workload cannot be built from what the user wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamError {
    /// No workload has that name.
    UnknownWorkload(String),
    /// The workload has no parameter of that name.
    UnknownParam {
        /// The name as written.
        name: String,
    },
    /// The value does not fit the parameter.
    BadValue {
        /// Which parameter.
        name: String,
        /// Values that the parameter takes.
        expects: String,
        /// The value as written.
        found: String,
    },
}

impl std::fmt::Display for ParamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownWorkload(name) => write!(f, "unknown workload {name:?}"),
            Self::UnknownParam { name } => write!(f, "unknown parameter {name:?}"),
            Self::BadValue { name, expects, found } => write!(f, "{name}: expected {expects}, found {found:?}"),
        }
    }
}

impl std::error::Error for ParamError {}

/// Parses one value; the message names the parameter and what it takes.
pub(crate) fn value<T: FromStr>(info: &ParamInfo, text: &str, accept: impl Fn(&T) -> bool) -> Result<T, ParamError> {
    text.parse().ok().filter(accept).ok_or_else(|| ParamError::BadValue {
        name: info.name.to_owned(),
        expects: info.expects.to_owned(),
        found: text.to_owned(),
    })
}

/// Whether `text` is the first of two words; neither is an error.
pub(crate) fn one_of(info: &ParamInfo, text: &str, first: &str, second: &str) -> Result<bool, ParamError> {
    value::<String>(info, text, |word| word == first || word == second).map(|word| word == first)
}

/// Says which values a parameter takes and which it has, in the words of [`ParamError::BadValue`]: for values that are
/// wrong only beside others.
pub(crate) fn misfit(info: &ParamInfo, expects: &str, found: impl std::fmt::Display) -> String {
    format!("{}: expected {expects}, found {found}", info.name)
}
