//! Two runs side by side: whether one goes on where the other stopped, and their differences.

use std::collections::BTreeSet;

use report::Key;

use super::{Identity, Seeds};
use crate::provenance;

/// Values of a difference that are named on each side; of more there is the number.
const NAMED_MAX: usize = 4;

impl Identity {
    /// The keys that `run.json` may have, beside its checksum.
    pub(crate) const KEYS: [&str; 10] =
        ["program", "keys", "machines", "simulated", "layout", "sample", "map", "presentation", "asked", "lines"];

    /// The seeds that its cells have.
    pub(crate) fn seeds(&self) -> Option<Seeds> {
        Seeds::around(self.keys.iter().map(|key| key.seed))
    }

    /// Whether a run of this identity goes on as `other`: both are of the same run, in whatever words it was asked for, however
    /// their results are printed and however far they are, and `other` has at least its seeds.
    pub(crate) fn goes_on_as(&self, other: &Self) -> bool {
        let seeds = self.seeds();
        let is_here = |key: &&Key| seeds.is_some_and(|seeds| seeds.contains(key.seed));
        let keys = other.keys.iter().filter(is_here).cloned().collect();
        let here = Self {
            presentation: other.presentation.clone(),
            asked: other.asked.clone(),
            lines: other.lines.clone(),
            ..self.clone()
        };
        here == Self { keys, ..other.clone() }
    }

    /// Lists the differences between this run and `other`, as `NAME: OLD there, NEW here`.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let program = |run: &Self| BTreeSet::from([provenance::short(&run.program)]);
        let sample = |run: &Self| BTreeSet::from([run.sample.map_or("none".to_owned(), |every| every.to_string())]);
        let map = |run: &Self| BTreeSet::from([if run.map { "yes" } else { "no" }.to_owned()]);
        let mut found: Vec<_> = [
            ("program", differ(&program(self), &program(other))),
            ("experiment", differ(&of(self, |key| key.experiment.clone()), &of(other, |key| key.experiment.clone()))),
            ("columns", differ(&of(self, |key| key.column().label()), &of(other, |key| key.column().label()))),
            ("variants", differ(&of(self, |key| key.variant.clone()), &of(other, |key| key.variant.clone()))),
            ("states", differ(&of(self, |key| key.state.clone()), &of(other, |key| key.state.clone()))),
            ("--sample", differ(&sample(self), &sample(other))),
            ("--map", differ(&map(self), &map(other))),
        ]
        .into_iter()
        .filter_map(|(what, differs)| differs.map(|differs| format!("{what}: {differs}")))
        .chain(self.params_that_differ(other))
        .collect();
        if found.is_empty() && self.simulated != other.simulated {
            found.push("variants, prices or states of the same names, which say something else now".to_owned());
        }
        if found.is_empty() && self.machines != other.machines {
            found.push("machines of the same names, or what runs guests, which are something else now".to_owned());
        }
        if found.is_empty() {
            found.push("cells".to_owned());
        }
        found
    }

    fn params_that_differ(&self, other: &Self) -> Vec<String> {
        let names: BTreeSet<_> =
            [self, other].into_iter().flat_map(|run| &run.keys).flat_map(|key| key.params.keys()).collect();
        let values = |run: &Self, name: &String| {
            of(run, |key| key.params.get(name).map_or("not set", String::as_str).to_owned())
        };
        let differ = |name: &String| {
            differ(&values(self, name), &values(other, name)).map(|differs| format!("{name}: {differs}"))
        };
        names.into_iter().filter_map(differ).collect()
    }
}

fn of(run: &Identity, what: impl Fn(&Key) -> String) -> BTreeSet<String> {
    run.keys.iter().map(what).collect()
}

/// Both sides in words, where they are not the same.
fn differ(there: &BTreeSet<String>, here: &BTreeSet<String>) -> Option<String> {
    let words = |values: &BTreeSet<String>| match values.len() {
        0 => "none".to_owned(),
        1..=NAMED_MAX => values.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
        many => format!("{many} others"),
    };
    // What both have says nothing, unless one side has no more than that.
    let only = |these: &BTreeSet<String>, others: &BTreeSet<String>| {
        let only: BTreeSet<_> = these.difference(others).cloned().collect();
        if only.is_empty() { words(these) } else { words(&only) }
    };
    (there != here).then(|| format!("{} there, {} here", only(there, here), only(here, there)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        evidence,
        plan::{Plan, Request},
    };

    /// A key that is missing there makes every `run.json` without a checksum one that was altered.
    #[test]
    fn the_known_keys_are_those_that_are_written() {
        let request =
            evidence::request("fault-storm".to_owned(), Vec::new(), Seeds::up_to(1), Some(1), "result".into());
        let request = Request { sample: "1s".parse().ok(), map: true, ..request };
        let plan = Plan::new(&request, |_| panic!("no guest is planned")).expect("a plan");
        let identity = Identity { lines: Some(Vec::new()), ..plan.identity() };
        let written = serde_json::to_value(&identity).expect("it serialises");
        let written: BTreeSet<&str> = written.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(written, BTreeSet::from(Identity::KEYS));
    }
}
