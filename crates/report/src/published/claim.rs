//! Claims as data: what of a published table a model is held against.

use serde::{Deserialize, Serialize};

/// Letters that say what a figure is of: a text of 80 columns has no room for more.
pub(super) const WHAT_MAX: usize = 20;

/// `claims.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claims {
    #[serde(default, rename = "claim")]
    pub(super) claims: Vec<Claim>,
}

/// One claim. It holds if all of its parts do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim's name: `s0-3`.
    pub id: String,
    /// The claim in a few words.
    pub claim: String,
    /// Why it is a claim: what it says about a model.
    pub reason: String,
    /// An identity holds for every model that runs the same work: it has to hold, whatever the others do.
    #[serde(default)]
    pub identity: bool,
    /// How often an exact truth passes, with the noise of one run in each published value; from 0 to 1.
    #[serde(default)]
    pub chance: Option<f64>,
    /// Why the verdict is not to be relied on, where it is not the same for other seeds.
    #[serde(default)]
    pub unsettled: Option<String>,
    /// The suspected cause, of a claim that fails.
    #[serde(default)]
    pub suspected: Option<String>,
    #[serde(rename = "part")]
    pub(super) parts: Vec<Part>,
}

/// One thing that has to be so.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    /// The figure in a few words.
    pub(super) what: String,
    pub(super) kind: Kind,
    /// The published figure in words, where the tables do not have it.
    #[serde(default)]
    pub(super) published: Option<String>,
    pub(super) of: Selection,
    /// The divisor of `of`, or the values that are taken off or compared: one value, or as many as `of` has.
    #[serde(default)]
    pub(super) by: Option<Selection>,
    /// Each ratio is divided by the ratio of these.
    #[serde(default)]
    pub(super) against: Option<Against>,
    /// Whether all figures are made one.
    #[serde(default)]
    pub(super) fold: Option<Fold>,
    /// How many of the figures have to be so, where it need not be all.
    #[serde(default)]
    pub(super) count: Option<usize>,
    pub(super) holds: Bounds,
    /// How figures are shown, where it is not as their kind says.
    #[serde(default)]
    pub(super) unit: Option<Unit>,
}

/// How figures are made of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Each value is one.
    Value,
    /// `of` by `by`, pair by pair.
    Ratio,
    /// `of` less `by`, pair by pair.
    Difference,
    /// The largest of the values by the smallest.
    Range,
    /// Each value by the one after it.
    Order,
    /// For each column the number in the name of the case that has the largest value.
    Peak,
    /// `of` less `by`, which are the same by what they are.
    Identity,
}

/// One figure of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fold {
    GeometricMean,
}

/// How figures are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// As they are.
    Plain,
    /// As so many times: `x0.37`.
    Factor,
    /// In per cent, of figures that are parts of one.
    Percent,
    /// How far from the published value, in per cent.
    Deviation,
}

/// Ratios to compare with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Against {
    pub(super) of: Selection,
    #[serde(default)]
    pub(super) by: Option<Selection>,
}

/// Values of a table: all combinations of these names, the case changing fastest, then the metric, then the column.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Selection {
    pub(super) experiment: OneOrMore,
    pub(super) metric: OneOrMore,
    pub(super) case: OneOrMore,
    /// Labels of columns, as published.
    pub(super) kernel: OneOrMore,
    /// Whether the values of all cases are made one.
    #[serde(default)]
    pub(super) cases: Cases,
    /// The factor of each case, where cases are added up.
    #[serde(default)]
    pub(super) weights: Option<Vec<f64>>,
    /// The values say how many per cent are added to one.
    #[serde(default)]
    pub(super) percent_more: bool,
}

/// The way in which the values of several cases become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cases {
    #[default]
    Each,
    Sum,
    Mean,
}

/// One name or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Where a figure has to be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bounds {
    #[serde(default)]
    pub(super) at_least: Option<f64>,
    #[serde(default)]
    pub(super) at_most: Option<f64>,
    #[serde(default)]
    pub(super) above: Option<f64>,
    #[serde(default)]
    pub(super) below: Option<f64>,
    /// How far from the published figure, as a part of it; the figure is then how far it is.
    #[serde(default)]
    pub(super) within: Option<f64>,
}

impl OneOrMore {
    pub(super) fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::More(names) => names,
        }
    }
}

impl Selection {
    /// How many values it is.
    fn len(&self) -> usize {
        let cases = if self.cases == Cases::Each { self.case.names().len() } else { 1 };
        self.experiment.names().len() * self.metric.names().len() * self.kernel.names().len() * cases
    }
}

impl Bounds {
    /// Whether a figure is where it has to be.
    pub(super) fn hold(&self, figure: f64) -> bool {
        let is = |bound: Option<f64>, so: fn(f64, f64) -> bool| bound.is_none_or(|bound| so(figure, bound));
        is(self.at_least, |figure, bound| figure >= bound)
            && is(self.at_most, |figure, bound| figure <= bound)
            && is(self.above, |figure, bound| figure > bound)
            && is(self.below, |figure, bound| figure < bound)
            && is(self.within, |figure, bound| figure.abs() <= bound)
    }

    fn is_empty(&self) -> bool {
        [self.at_least, self.at_most, self.above, self.below, self.within].iter().all(Option::is_none)
    }
}

impl Part {
    /// All that it selects.
    pub(super) fn selections(&self) -> impl Iterator<Item = &Selection> {
        let against = self.against.iter().flat_map(|against| [Some(&against.of), against.by.as_ref()]);
        [Some(&self.of), self.by.as_ref()].into_iter().chain(against).flatten()
    }

    /// How its figures are shown.
    pub(super) fn unit(&self) -> Unit {
        let of_kind = match self.kind {
            Kind::Ratio | Kind::Range | Kind::Order => Unit::Factor,
            Kind::Value | Kind::Difference | Kind::Peak | Kind::Identity => Unit::Plain,
        };
        if self.holds.within.is_some() { Unit::Deviation } else { self.unit.unwrap_or(of_kind) }
    }

    /// The mistake in the claim, if there is one.
    fn problem(&self) -> Option<String> {
        let needs_by = matches!(self.kind, Kind::Ratio | Kind::Difference | Kind::Identity);
        if needs_by != self.by.is_some() {
            let needs = if needs_by { "needs" } else { "takes no" };
            return Some(format!("kind {:?} {needs} `by`", self.kind));
        }
        if self.against.is_some() && self.kind != Kind::Ratio {
            return Some("`against` is for ratios".to_owned());
        }
        if self.holds.is_empty() {
            return Some("`holds` has no bound".to_owned());
        }
        let uneven = |by: &Selection| by.len() != 1 && by.len() != self.of.len();
        let against = self.against.as_ref().map(|against| &against.of);
        if self.by.iter().chain(against).any(uneven) {
            return Some(format!("{}: `by` has neither one value nor as many as `of`", self.what));
        }
        if self.what.chars().count() > WHAT_MAX {
            return Some(format!("{:?} is longer than {WHAT_MAX} letters", self.what));
        }
        let weighted = |selection: &&Selection| {
            let weights = selection.weights.as_ref().map(Vec::len);
            weights.is_some_and(|weights| weights != selection.case.names().len() || selection.cases != Cases::Sum)
        };
        let selections = [Some(&self.of), self.by.as_ref()].into_iter().flatten();
        selections.clone().find(weighted).map(|_| "`weights` needs `cases = \"sum\"` and one for each case".to_owned())
    }
}

impl Claims {
    /// The mistake in the claims, if there is one, and in which.
    pub(super) fn problem(&self) -> Option<String> {
        let mut ids = Vec::new();
        for claim in &self.claims {
            if ids.contains(&&claim.id) {
                return Some(format!("{}: there are two of it", claim.id));
            }
            ids.push(&claim.id);
            if let Some(problem) = claim.parts.iter().find_map(Part::problem) {
                return Some(format!("{}: {problem}", claim.id));
            }
        }
        None
    }
}
