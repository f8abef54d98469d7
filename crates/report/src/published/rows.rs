//! Rows of a published table that `rows.toml` picks out, each for a reason.

use serde::Deserialize;

use super::claim::OneOrMore;

/// The file `rows.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rows {
    /// Rows that are no evidence: derived from others, repeated, or called unstable by their author.
    #[serde(default)]
    pub(super) unscored: Vec<Picked>,
    /// Rows that are no prediction of the model: something was chosen so that they come out.
    #[serde(default)]
    pub(super) fitted: Vec<Picked>,
    /// Rows whose zeros are no numbers: there was nothing to measure.
    #[serde(default)]
    pub(super) no_sample: Vec<Picked>,
    /// Rows that are known not to come out.
    #[serde(default)]
    pub(super) wrong: Vec<Picked>,
}

/// A pattern for some rows, and the reason they are picked. Each name may have one `*`, which stands for any text; a field
/// without a name matches every row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Picked {
    #[serde(default)]
    pub(super) experiment: Option<OneOrMore>,
    #[serde(default)]
    pub(super) metric: Option<OneOrMore>,
    #[serde(default)]
    pub(super) case: Option<OneOrMore>,
    #[serde(default)]
    pub(super) kernel: Option<OneOrMore>,
    pub(super) why: String,
}

impl Picked {
    /// Does the pattern match a value of this experiment, metric, case and kernel?
    pub(super) fn has(&self, value: [&str; 4]) -> bool {
        let names = [&self.experiment, &self.metric, &self.case, &self.kernel];
        let has = |names: &Option<OneOrMore>, name| {
            names.as_ref().is_none_or(|names| names.names().iter().any(|pattern| matches(pattern, name)))
        };
        names.into_iter().zip(value).all(|(names, name)| has(names, name))
    }
}

/// The reason of the first pattern that matches the value.
pub(super) fn reason<'a>(picked: &'a [Picked], value: [&str; 4]) -> Option<&'a str> {
    picked.iter().find(|picked| picked.has(value)).map(|picked| picked.why.as_str())
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => {
            name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("User", "User", true),
            ("User", "Users", false),
            ("*.stdev_pct", "page_fault2.stdev_pct", true),
            ("fault_latency_us.*", "fault_latency_us.Min", true),
            ("fault-*-1", "fault-base-1", true),
            ("fault-*-1", "fault-base-12", false),
            ("ab*ba", "aba", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} and {name}");
        }
    }
}
