//! From the values of a table to the figures of a claim's part.

use super::{
    claim::{Cases, Fold, Kind, Part, Selection},
    ours::Place,
};
use crate::stats;

/// A value that a claim needs and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing(pub(super) String);

/// Finds the value at a place, or says why it is not there: nothing, or a colon and the reason.
pub(super) type Find<'a> = dyn Fn(&Place) -> Result<f64, String> + 'a;

/// The figures of a part, but for how far they are from the published ones.
pub(super) fn figures(part: &Part, value: &Find<'_>) -> Result<Vec<f64>, Missing> {
    let of = selected(&part.of, value)?;
    let mut figures = match part.kind {
        Kind::Value => of,
        Kind::Ratio => pairs(part, &of, value, |of, by| of / by)?,
        Kind::Difference | Kind::Identity => pairs(part, &of, value, |of, by| of - by)?,
        Kind::Range => {
            let ends = stats::max(&of).zip(stats::min(&of));
            ends.map(|(max, min)| max / min).into_iter().collect()
        }
        Kind::Order => of.windows(2).map(|pair| pair[0] / pair[1]).collect(),
        Kind::Peak => peaks(&part.of, &of),
    };
    if let Some(against) = &part.against {
        let of = selected(&against.of, value)?;
        let by = against.by.as_ref().map_or_else(|| Ok(vec![1.0]), |by| selected(by, value))?;
        for (at, figure) in figures.iter_mut().enumerate() {
            *figure /= at_or_only(&of, at) / at_or_only(&by, at);
        }
    }
    if part.fold == Some(Fold::GeometricMean) {
        figures = stats::gmean(&figures).into_iter().collect();
    }
    let are_numbers = !figures.is_empty() && figures.iter().all(|figure| figure.is_finite());
    are_numbers.then_some(figures).ok_or_else(|| Missing(format!("{}: divided by zero", part.what)))
}

fn pairs(part: &Part, of: &[f64], value: &Find<'_>, figure: impl Fn(f64, f64) -> f64) -> Result<Vec<f64>, Missing> {
    let by = selected(part.by.as_ref().expect("checked when it was read"), value)?;
    Ok(of.iter().enumerate().map(|(at, &of)| figure(of, at_or_only(&by, at))).collect())
}

/// One for each, or one for all.
fn at_or_only(values: &[f64], at: usize) -> f64 {
    values.get(at).or(values.first().filter(|_| values.len() == 1)).copied().unwrap_or(f64::NAN)
}

/// The values of a selection, in its order.
fn selected(selection: &Selection, value: &Find<'_>) -> Result<Vec<f64>, Missing> {
    let mut all = Vec::new();
    for experiment in selection.experiment.names() {
        for kernel in selection.kernel.names() {
            for metric in selection.metric.names() {
                let mut cases = Vec::new();
                for case in selection.case.names() {
                    let place = [experiment, metric, case, kernel].map(String::clone);
                    let value = value(&place).map_err(|why| Missing(format!("no {metric} {case} of {kernel}{why}")))?;
                    cases.push(if selection.percent_more { 1.0 + value / 100.0 } else { value });
                }
                match selection.cases {
                    Cases::Each => all.extend(cases),
                    Cases::Sum => all.push(sum(&cases, selection.weights.as_deref())),
                    Cases::Mean => all.extend(stats::amean(&cases)),
                }
            }
        }
    }
    Ok(all)
}

fn sum(cases: &[f64], weights: Option<&[f64]>) -> f64 {
    let weight = |at: usize| weights.map_or(1.0, |weights| weights[at]);
    cases.iter().enumerate().map(|(at, case)| weight(at) * case).sum()
}

/// For each column the number at the end of the case that has the largest value: 25 of `warehouses=25`.
fn peaks(selection: &Selection, values: &[f64]) -> Vec<f64> {
    let cases = selection.case.names();
    let number = |case: &String| {
        let digits = case.trim_start_matches(|c: char| !c.is_ascii_digit());
        digits.parse().unwrap_or(f64::NAN)
    };
    let peak = |column: &[f64]| {
        let largest = (0..column.len()).max_by(|&a, &b| column[a].total_cmp(&column[b]));
        largest.map_or(f64::NAN, |largest| number(&cases[largest]))
    };
    values.chunks(cases.len().max(1)).map(peak).collect()
}
