//! Steps one below the other: a bar for each value, and which steps have moved it.

use super::{Compared, Comparison, Verdict, words};
use crate::{
    short::{
        number_of,
        text::{fold, name_field},
    },
    table::Report,
};

const WIDTH: usize = 72;
/// Characters of a rung's name, and of the longest bar.
const NAME: usize = 26;
const BAR: usize = 18;

/// Each row as a ladder: the value of each rung with a bar, and the change from the rung before, with a star where it is
/// separated and material.
pub fn ladder_text(report: &Report, comparison: &Comparison) -> String {
    let mut lines = Vec::new();
    let mut stars = 0;
    for table in &report.tables {
        for row in &table.rows {
            let values = || row.cells.iter().flatten().map(|value| value.value.abs());
            let most = values().fold(0.0, f64::max);
            if !lines.is_empty() {
                lines.push(String::new());
            }
            let name = words::name_of(&row.stat, &row.operation);
            lines.extend(fold(&format!("{} ({}): {name}", super::title(table), table.unit), WIDTH));
            let own = |step: &&Compared| {
                (&step.metric, &step.case, &step.experiment, &step.title)
                    == (&row.metric, &row.case, &table.experiment, &super::title(table))
            };
            if comparison.rows.iter().filter(own).all(|step| step.verdict == Verdict::Same) {
                let value = row.cells.iter().flatten().next().map_or_else(String::new, |value| number_of(value.value));
                lines.push(format!("  {value}, the same on all rungs"));
                continue;
            }
            for (head, value) in table.columns.iter().zip(&row.cells) {
                let (before, name) = name_field(&head.column.kernel, NAME, WIDTH - 2);
                lines.extend(before.iter().map(|line| format!("  {line}")));
                let Some(value) = value else {
                    lines.push(format!("  {name} -"));
                    continue;
                };
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "from 0 to the longest bar"
                )]
                let length = if most > 0.0 { (value.value.abs() / most * BAR as f64).round() as usize } else { 0 };
                let label = head.column.label();
                let step = comparison.rows.iter().filter(own).find(|step| step.new_column == label);
                let change = step.map_or_else(String::new, |step| {
                    stars += usize::from(step.verdict.is_starred());
                    let word = if step.verdict == Verdict::CannotTell { "" } else { step.verdict.word() };
                    let star = if step.verdict.is_starred() { "*" } else { " " };
                    format!("{:>7}{star} {word}", words::change(step))
                });
                let line = format!("  {name} {:>7} {:BAR$} {change}", number_of(value.value), "=".repeat(length));
                lines.push(line.trim_end().to_owned());
            }
        }
    }
    lines.push(String::new());
    let mut runs: Vec<String> = comparison.runs().values().map(|(old, new)| format!("{}", old.min(new))).collect();
    runs.sort();
    runs.dedup();
    let rule = format!(
        "changes are from the rung above; * separated from none (Holm over all {} steps, 5 %) and material ({} % and more): \
         {stars} of them; runs of each rung: {}",
        comparison.rows.len(),
        comparison.gates.percent,
        runs.join(" to ")
    );
    lines.extend(fold(&rule, WIDTH));
    lines.extend(super::summary(comparison, WIDTH));
    lines.iter().map(|line| format!("{line}\n")).collect()
}
