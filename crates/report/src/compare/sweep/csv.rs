//! A sweep as lines of values: each row at each place of the grid, and what each setting does to each row.

use csv::Writer;

use super::Sweep;

const BEFORE: [&str; 4] = ["record", "experiment", "metric", "case"];
const POINT: [&str; 6] = ["is_default", "runs", "value", "low", "high", "flat"];
const EFFECT: [&str; 12] = [
    "setting",
    "from",
    "to",
    "difference",
    "difference_from",
    "difference_to",
    "change_pct",
    "geometric_pct",
    "geometric_pct_from",
    "geometric_pct_to",
    "p_holm",
    "reaction",
];

/// Lines `cell` have the columns of settings and of values; lines `effect` have the other columns. `flat` numbers the flat
/// regions of a row from 1.
///
/// # Panics
/// Never: writing to memory does not fail.
pub fn sweep_csv(sweep: &Sweep) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    let mut write = |fields: Vec<String>| writer.write_record(fields).expect("memory takes it");
    let names = sweep.axes.iter().map(|axis| axis.name.as_str());
    write(BEFORE.into_iter().chain(names).chain(POINT).chain(EFFECT).map(str::to_owned).collect());
    let number = |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
    for row in &sweep.rows {
        let before =
            |record: &str| vec![record.to_owned(), row.experiment.clone(), row.metric.clone(), row.case.clone()];
        for point in &row.points {
            let values = sweep.axes.iter().zip(&point.place).map(|(axis, at)| axis.values[*at].clone());
            let flat = row.regions.iter().position(|region| region.holds(&point.place));
            let is_default = Some(&point.place) == sweep.default.as_ref();
            let mut fields = before("cell");
            fields.extend(values);
            fields.extend([
                is_default.to_string(),
                point.runs.to_string(),
                number(point.value),
                number(point.low),
                number(point.high),
                flat.map_or_else(String::new, |flat| (flat + 1).to_string()),
            ]);
            fields.extend(EFFECT.map(|_| String::new()));
            write(fields);
        }
        for effect in row.effects.iter().flatten() {
            let mut fields = before("effect");
            fields.extend(sweep.axes.iter().map(|_| String::new()).chain(POINT.map(|_| String::new())));
            fields.extend([
                effect.axis.clone(),
                effect.from.clone(),
                effect.to.clone(),
                effect.difference.to_string(),
                number(effect.interval.map(|bounds| bounds.low)),
                number(effect.interval.map(|bounds| bounds.high)),
                number(effect.percent),
                number(effect.geometric.map(|geometric| geometric.change)),
                number(effect.geometric.map(|geometric| geometric.low)),
                number(effect.geometric.map(|geometric| geometric.high)),
                number(effect.p_holm),
                effect.reaction.word().to_owned(),
            ]);
            write(fields);
        }
    }
    String::from_utf8(writer.into_inner().expect("memory takes it")).expect("made of strings")
}
