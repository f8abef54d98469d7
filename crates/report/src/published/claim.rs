//! Claims as data: the statements about a published table that a model is tested against.

use serde::{Deserialize, Serialize};

/// Most characters of a figure's name; text of 80 columns has no room for more.
pub(super) const WHAT_MAX: usize = 20;

/// The file `claims.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claims {
    #[serde(default, rename = "claim")]
    pub(super) claims: Vec<Claim>,
}

/// One claim. It holds if all of its parts hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim's name: `s0-3`.
    pub id: String,
    /// The claim in a few words.
    pub claim: String,
    /// The part of the claim that is about a model.
    pub reason: String,
    /// An identity holds for every model that runs the same work, so it has to hold even where other claims may fail.
    #[serde(default)]
    pub identity: bool,
    /// The probability, 0 to 1, that a model that is exactly right passes although each published value has the noise
    /// of one run.
    #[serde(default)]
    pub chance: Option<f64>,
    /// Why the verdict is not to be relied on, if it differs between seeds.
    #[serde(default)]
    pub unsettled: Option<String>,
    /// The suspected cause, if the claim fails.
    #[serde(default)]
    pub suspected: Option<String>,
    #[serde(rename = "part")]
    pub(super) parts: Vec<Part>,
}

/// A part of a claim: figures made of values, and the bounds they must lie in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    /// Name of the figure, in a few words.
    pub(super) what: String,
    pub(super) kind: Kind,
    /// The published figure in words, if the published tables do not have it.
    #[serde(default)]
    pub(super) published: Option<String>,
    pub(super) of: Selection,
    /// The values that `of` is divided by, reduced by or compared with: one value, or as many as `of` has.
    #[serde(default)]
    pub(super) by: Option<Selection>,
    /// Values whose ratio each ratio is divided by.
    #[serde(default)]
    pub(super) against: Option<Against>,
    /// How all figures are reduced to one figure, if they are.
    #[serde(default)]
    pub(super) fold: Option<Fold>,
    /// How many of the figures have to be within the bounds; without it, every figure does.
    #[serde(default)]
    pub(super) count: Option<usize>,
    pub(super) holds: Bounds,
    /// How figures are printed; without it, the kind of figure decides.
    #[serde(default)]
    pub(super) unit: Option<Unit>,
}

/// How figures are computed from values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Each value is a figure.
    Value,
    /// Each value of `of` divided by the value of `by` beside it.
    Ratio,
    /// Each value of `of` less the value of `by` beside it.
    Difference,
    /// The largest value divided by the smallest value.
    Range,
    /// Each value divided by the value after it.
    Order,
    /// For each column, the number in the name of the case with the largest value.
    Peak,
    /// Each value of `of` less the value of `by` beside it, which by definition are equal.
    Identity,
}

/// Reduces several figures to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fold {
    GeometricMean,
}

/// How a figure is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// The number itself.
    Plain,
    /// As a factor: `x0.37`.
    Factor,
    /// In per cent; the figures are fractions of a whole.
    Percent,
    /// The deviation from the published value, in per cent.
    Deviation,
}

/// The two selections whose ratio other ratios are compared with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Against {
    pub(super) of: Selection,
    #[serde(default)]
    pub(super) by: Option<Selection>,
}

/// Selected values of a table: all combinations of these names. The case changes fastest, then the metric, then the
/// column.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Selection {
    pub(super) experiment: OneOrMore,
    pub(super) metric: OneOrMore,
    pub(super) case: OneOrMore,
    /// Labels of columns, as published.
    pub(super) kernel: OneOrMore,
    /// How the values of all cases are reduced to one value, if they are.
    #[serde(default)]
    pub(super) cases: Cases,
    /// The weight of each case when cases are added up.
    #[serde(default)]
    pub(super) weights: Option<Vec<f64>>,
    /// Are the values percentages of increase, so that 5 stands for 1.05?
    #[serde(default)]
    pub(super) percent_more: bool,
}

/// How the values of several cases become one value.
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

/// The range that a figure has to lie in.
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
    /// Largest deviation from the published figure, as a fraction of it; the figure that is tested is then the
    /// deviation.
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
    /// Number of names.
    fn len(&self) -> usize {
        let cases = if self.cases == Cases::Each { self.case.names().len() } else { 1 };
        self.experiment.names().len() * self.metric.names().len() * self.kernel.names().len() * cases
    }
}

impl Bounds {
    /// Is the figure within the bounds?
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
    /// Every selection of values in the part.
    pub(super) fn selections(&self) -> impl Iterator<Item = &Selection> {
        let against = self.against.iter().flat_map(|against| [Some(&against.of), against.by.as_ref()]);
        [Some(&self.of), self.by.as_ref()].into_iter().chain(against).flatten()
    }

    /// The unit in which the part's figures are printed.
    pub(super) fn unit(&self) -> Unit {
        let of_kind = match self.kind {
            Kind::Ratio | Kind::Range | Kind::Order => Unit::Factor,
            Kind::Value | Kind::Difference | Kind::Peak | Kind::Identity => Unit::Plain,
        };
        if self.holds.within.is_some() { Unit::Deviation } else { self.unit.unwrap_or(of_kind) }
    }

    /// Text of the mistake in the claim, if there is one.
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
    /// Text of the mistake in the claims, and the claim that has it.
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
