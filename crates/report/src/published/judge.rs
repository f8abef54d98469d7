//! Judges which claims of a published series hold in a result.

use serde::Serialize;

use super::{
    Published,
    claim::{Claim, Part, Unit},
    figure::{Missing, figures},
    ours::{Ours, Place},
};
use crate::stats;

/// The judgement of a result on the claims of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The series.
    pub series: String,
    /// The seeds of the result; none where nothing was run.
    pub seeds: Vec<u64>,
    /// Each claim, in the order of its file.
    pub claims: Vec<JudgedClaim>,
}

/// A claim with its verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JudgedClaim {
    /// The claim's name: `s0-3`.
    pub id: String,
    /// The claim in a few words.
    pub claim: String,
    /// Why it is a claim.
    pub reason: String,
    /// Is the claim an identity, which has to hold for every model?
    pub identity: bool,
    /// Whether it holds.
    pub verdict: Verdict,
    /// Why the verdict is not to be relied on, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<String>,
    /// The suspected cause, if the claim fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspected: Option<String>,
    /// The parts, all of which must hold for the claim to hold.
    pub parts: Vec<JudgedPart>,
}

/// One part of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JudgedPart {
    /// The figures in a few words.
    pub what: String,
    /// How the figures are printed.
    pub unit: Unit,
    /// The smallest and the largest published figure; with a count, the count twice. For [`Unit::Deviation`] they are the
    /// published values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<(f64, f64)>,
    /// The published figure in words, if no table has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_words: Option<String>,
    /// The smallest and largest figure of the simulation's means over seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours: Option<(f64, f64)>,
    /// Range of the figure over single simulated runs: the 2.5 % point where the figure is least, and the 97.5 % point where it
    /// is largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
    /// The smallest and the largest figure of single runs. Not serialised; programs have `range`.
    #[serde(skip)]
    pub extremes: Option<(f64, f64)>,
    /// The bounds in words, such as `<= 0.5`.
    pub wanted: String,
    /// Number of figures, if only some of them have to be within the bounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_of: Option<usize>,
    /// The verdict on the part.
    pub verdict: Verdict,
}

/// The verdict on a claim, or on one part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The claim holds.
    Holds,
    /// The claim does not hold.
    Fails,
    /// The claim cannot be judged yet, for this reason.
    NotYet(String),
}

impl Judgement {
    /// The number of claims that hold and the number that could be judged, either of identities or of all other claims. A claim
    /// with an unsettled verdict does not hold.
    pub fn tally(&self, identities: bool) -> (usize, usize) {
        let mine = self.claims.iter().filter(|claim| claim.identity == identities);
        let judged = mine.filter(|claim| !matches!(claim.verdict, Verdict::NotYet(_)));
        (judged.clone().filter(|claim| claim.holds()).count(), judged.count())
    }

    /// Do all identities and nine tenths of the other claims hold, of those that could be judged? None if none could be judged.
    pub fn is_reached(&self) -> Option<bool> {
        let ((hold, judged), identities) = (self.tally(false), self.tally(true));
        (judged + identities.1 > 0).then(|| 10 * hold >= 9 * judged && identities.0 == identities.1)
    }
}

impl JudgedClaim {
    /// Does the claim hold, also with other seeds?
    pub fn holds(&self) -> bool {
        self.verdict == Verdict::Holds && self.unsettled.is_none()
    }
}

/// Judges all claims of a series. Without a result each claim's verdict is `NotYet` with the reason in `ours`.
pub fn judge(published: &Published, ours: Result<&Ours, &str>) -> Judgement {
    let seeds = ours.map(|ours| ours.seeds().to_vec()).unwrap_or_default();
    let claims = published.claims().iter().map(|claim| judged(claim, published, ours)).collect();
    Judgement { series: published.name.clone(), seeds, claims }
}

/// Judges the published tables by their own claims: each claim has to hold there, unless its figures were not published.
pub fn judge_published(published: &Published) -> Judgement {
    judge(published, Ok(&Ours::of_table(published)))
}

fn judged(claim: &Claim, published: &Published, ours: Result<&Ours, &str>) -> JudgedClaim {
    let parts: Vec<JudgedPart> = claim.parts.iter().map(|part| judged_part(part, published, ours)).collect();
    let verdict = |is: fn(&Verdict) -> bool| parts.iter().map(|part| &part.verdict).find(|verdict| is(verdict));
    let fails = verdict(|verdict| *verdict == Verdict::Fails);
    let verdict = fails.or_else(|| verdict(|verdict| matches!(verdict, Verdict::NotYet(_)))).cloned();
    JudgedClaim {
        id: claim.id.clone(),
        claim: claim.claim.clone(),
        reason: claim.reason.clone(),
        identity: claim.identity,
        verdict: verdict.unwrap_or(Verdict::Holds),
        unsettled: claim.unsettled.clone(),
        suspected: claim.suspected.clone(),
        parts,
    }
}

fn judged_part(part: &Part, published: &Published, ours: Result<&Ours, &str>) -> JudgedPart {
    let printed = |[experiment, metric, case, kernel]: &Place| {
        published.printed(experiment, metric, case, kernel).map(|printed| printed.number).ok_or_else(String::new)
    };
    let printed = figures(part, &printed).ok();
    // With a count, the figure is the number of figures that are within the bounds.
    let counted = |figures: Vec<f64>| match part.count {
        None => figures,
        Some(_) => vec![figures.iter().filter(|figure| part.holds.hold(**figure)).count() as f64],
    };
    let mut judged = JudgedPart {
        what: part.what.clone(),
        unit: if part.count.is_some() { Unit::Plain } else { part.unit() },
        published: printed.clone().map(counted).as_deref().and_then(ends),
        published_words: part.published.clone(),
        ours: None,
        range: None,
        extremes: None,
        wanted: wanted(part),
        count_of: part.count.and(printed.as_ref().map(Vec::len)),
        verdict: Verdict::Holds,
    };
    let outcome = ours.map_err(str::to_owned).and_then(|ours| {
        let apart = |figures: Vec<f64>| from_published(part, figures, printed.as_deref());
        let mean = |place: &Place| ours.mean(place).ok_or_else(|| ours.why_not(place));
        let mean = figures(part, &mean).and_then(apart).map_err(|Missing(what)| what)?;
        let of_run =
            |run: usize| figures(part, &|place| ours.of_run(run, place).ok_or_else(String::new)).and_then(apart).ok();
        let runs = (0..ours.seeds().len()).filter_map(of_run).map(counted).collect::<Vec<_>>();
        Ok((mean, runs))
    });
    match outcome {
        Err(reason) => judged.verdict = Verdict::NotYet(reason),
        Ok((mean, runs)) => {
            let inside = mean.iter().filter(|figure| part.holds.hold(**figure)).count();
            let enough = inside >= part.count.unwrap_or(mean.len());
            judged.verdict = if enough { Verdict::Holds } else { Verdict::Fails };
            judged.count_of = part.count.map(|_| mean.len());
            judged.ours = ends(&counted(mean));
            judged.range = range(&runs);
            judged.extremes = ends(&runs.concat()).filter(|_| runs.len() > 1);
        }
    }
    judged
}

/// The figures of a part. If the bounds are around the published figures, each figure becomes its deviation from the published
/// one, as a fraction.
fn from_published(part: &Part, figures: Vec<f64>, printed: Option<&[f64]>) -> Result<Vec<f64>, Missing> {
    if part.holds.within.is_none() {
        return Ok(figures);
    }
    let printed = printed.ok_or_else(|| Missing(format!("{}: not published as figures", part.what)))?;
    Ok(figures.iter().zip(printed).map(|(ours, printed)| ours / printed - 1.0).collect())
}

fn ends(figures: &[f64]) -> Option<(f64, f64)> {
    stats::min(figures).zip(stats::max(figures))
}

/// The range over runs: from the 2.5 % point of the least figure to the 97.5 % point of the largest one.
fn range(runs: &[Vec<f64>]) -> Option<(f64, f64)> {
    let figures = runs.first().filter(|_| runs.len() > 1)?.len();
    let points = (0..figures).filter_map(|figure| {
        let of_runs: Vec<f64> = runs.iter().filter_map(|run| run.get(figure).copied()).collect();
        stats::percentile(&of_runs, 2.5).zip(stats::percentile(&of_runs, 97.5))
    });
    let (lows, highs): (Vec<f64>, Vec<f64>) = points.unzip();
    stats::min(&lows).zip(stats::max(&highs))
}

/// The bounds of a part in words, such as `<= 0.5`.
fn wanted(part: &Part) -> String {
    let holds = &part.holds;
    let (factor, after) = if part.unit() == Unit::Percent { (100.0, " %") } else { (1.0, "") };
    let number = |number: f64| short(factor * number);
    let bound = |sign: &str, bound: Option<f64>| bound.map(|bound| format!("{sign} {}{after}", number(bound)));
    if let Some(count) = part.count {
        return format!("{count} or more");
    }
    match (holds.at_least, holds.at_most) {
        (Some(low), Some(high)) if low.total_cmp(&high).is_eq() => return format!("= {}{after}", number(low)),
        (Some(low), Some(high)) => return format!("{}..{}{after}", number(low), number(high)),
        (_, _) => {}
    }
    let within = holds.within.map(|part| format!("+-{} %", short(100.0 * part)));
    let signs = [(">=", holds.at_least), ("<=", holds.at_most), (">", holds.above), ("<", holds.below)];
    let bounds = signs.into_iter().filter_map(|(sign, of)| bound(sign, of));
    bounds.chain(within).collect::<Vec<_>>().join(", ")
}

/// A bound with at most three digits after the point and no trailing zeroes.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
