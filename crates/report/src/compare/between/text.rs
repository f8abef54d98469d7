//! A row of two columns and the numbers that differ with it, in lines of 80 columns.

use super::{Between, Compared, Explainer, Explaining, PAIRS, Tested, Verdict};
use crate::{
    WIDTH,
    compare::words::{change, name_of},
    short::{
        number_of,
        text::{fold, list, name_field},
    },
};

/// Width of names.
const NAME: usize = 32;
/// Characters of the list of rules.
const RULES: usize = 3 * WIDTH;

/// The row, the rules that differ, and at most ten lines of causes and counters.
pub fn between_text(between: &Between) -> String {
    let Between { row, explained, .. } = between;
    let name = name_of(&row.stat, &row.operation);
    let mut lines = fold(&format!("{}: {name} ({})", row.title, row.unit), WIDTH);
    lines.extend([("old", &row.old_column), ("new", &row.new_column)].map(|(side, label)| format!("{side}: {label}")));
    let values = format!("{} -> {}, {}: {}", number_of(row.old), number_of(row.new), change(row), luck(row));
    lines.extend(fold(&values, WIDTH));
    lines.extend(fold(&rules(between), WIDTH));
    lines.push(String::new());
    for kind in [Explainer::Cause, Explainer::Counter] {
        let of_kind: Vec<(usize, &Explaining)> = (1..).zip(explained).filter(|(_, one)| one.kind == kind).collect();
        if !of_kind.is_empty() {
            lines.push(head(kind));
        }
        lines.extend(of_kind.into_iter().flat_map(|(number, one)| line(number, one)));
    }
    if explained.is_empty() {
        lines.push("no cause and no counter differs beyond luck".to_owned());
    }
    lines.push(String::new());
    lines.extend(foot(between));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The verdict on the row in words.
fn luck(row: &Compared) -> String {
    let (old, new) = row.runs;
    let seeds = format!("{} seeds", old.min(new));
    match (&row.verdict, &row.tested) {
        (Verdict::OneRun, _) => "one seed, so nothing can be told from luck; --seeds 8 would tell".to_owned(),
        (Verdict::Same, _) => format!("the same in all {seeds}"),
        (Verdict::DiffersInAll, _) => format!("differs in all {seeds}, too few to tell it from luck"),
        (Verdict::NoChange, _) => format!("too small to matter ({seeds})"),
        (verdict, Tested::By(test)) => {
            let told = if verdict.is_starred() { "more than luck" } else { "not told from luck" };
            let (lower, of) = test.lower;
            let p = row.p_holm.unwrap_or(1.0);
            let pairs = if test.is_paired { "seeds" } else { "pairs" };
            format!("{told} ({}; {lower} of {of} {pairs} lower, p {p:.3} among all rows)", verdict.word())
        }
        (verdict, _) => verdict.word().to_owned(),
    }
}

fn rules(between: &Between) -> String {
    let of = |(name, old, new): &(String, String, String)| format!("{name} {old} -> {new}");
    let rules: Vec<String> = between.rules.iter().map(of).collect();
    if rules.is_empty() {
        "rules and settings that differ: none".to_owned()
    } else {
        list("rules and settings that differ: ", &rules, RULES)
    }
}

fn head(kind: Explainer) -> String {
    let (what, last) = match kind {
        Explainer::Cause => ("ms by cause, all tasks", "share"),
        Explainer::Counter => ("counters", "r"),
    };
    format!("    {what:NAME$} {:>7} {:>7} {:>7}  {:<12} {last:>5}", "old", "new", "change", "")
}

fn line(number: usize, one: &Explaining) -> Vec<String> {
    let row = &one.compared;
    let (mut lines, name) = name_field(&one.name, NAME, WIDTH - 4);
    let last = match (one.kind, one.share_percent, one.correlation) {
        (Explainer::Cause, Some(share), _) => format!("{share:.0}%"),
        (Explainer::Counter, _, Some(correlation)) => format!("{correlation:+.2}"),
        _ => "-".to_owned(),
    };
    let [old, new] = [row.old, row.new].map(number_of);
    let numbers = format!("{name} {old:>7} {new:>7} {:>7}  {:<12} {last:>5}", change(row), row.verdict.word());
    lines.push(numbers);
    let place =
        |(at, line): (usize, String)| if at == 0 { format!("{number:>2}. {line}") } else { format!("    {line}") };
    lines.into_iter().enumerate().map(place).collect()
}

fn foot(between: &Between) -> Vec<String> {
    let Between { row, explained, looked_at, within_luck, .. } = between;
    let has = |kind: Explainer| explained.iter().any(|one| one.kind == kind);
    let mut lines = Vec::new();
    let seeds = row.runs.0.min(row.runs.1);
    if seeds < 2 {
        let one = "one seed: nothing above can be told from luck; a run with --seeds 8 would tell";
        lines.extend(fold(one, WIDTH));
    }
    if matches!(row.verdict, Verdict::CannotTell | Verdict::DiffersInAll) {
        let unsure = "the row's own difference is not told from luck: there may be nothing to explain";
        lines.extend(fold(unsure, WIDTH));
    }
    if has(Explainer::Cause) {
        let share =
            "share: of the time that all causes which moved with the row gained or lost; the others are left out";
        lines.extend(fold(share, WIDTH));
    }
    if has(Explainer::Counter) {
        let few = if seeds < PAIRS { format!(" (from {PAIRS} seeds on)") } else { String::new() };
        let counters = format!(
            "counters: the largest change in logarithms first; r: correlation over seeds with the row's differences{few}. A \
             counter that differs is no proof of a cause"
        );
        lines.extend(fold(&counters, WIDTH));
    }
    let why = if seeds < 2 { "too small" } else { "within luck or too small" };
    let luck = format!("left out as {why}: {within_luck} of {looked_at} causes and counters");
    lines.extend(fold(&luck, WIDTH));
    lines
}
