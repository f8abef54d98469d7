//! A fork as text of 80 columns, and as JSON.

use report::{WIDTH, short::number_of, short::text::fold, stats::Pair, stats::change};

use super::{Forked, NARROWER, Row};
use crate::why::numbers::{seconds, span};

/// Metrics and counters that are printed; JSON has all.
const METRICS: usize = 6;
const COUNTERS: usize = 12;
/// Width of names.
const NAME: usize = 30;

/// A fork as JSON.
pub fn json(forked: &Forked) -> String {
    serde_json::to_string_pretty(forked).expect("fields serialise") + "\n"
}

/// A fork as text.
pub fn text(forked: &Forked) -> String {
    let Forked { experiment, kernel, case, at_ps, seeds, variants, .. } = forked;
    let at = seconds(units::Time(*at_ps));
    let runs = if seeds.len() == 1 { format!("seed {}", seeds[0]) } else { format!("{} seeds", seeds.len()) };
    let mut lines = fold(&format!("{experiment} {case} on {kernel}, {runs}, forked at {at} s"), WIDTH);
    for (number, rows) in forked.pairs.iter().enumerate() {
        let (old, new) = (&variants[0], &variants[number + 1]);
        lines.push(String::new());
        lines.extend(fold(&format!("from there on {old}, against {new}"), WIDTH));
        if forked.hashes[0] == forked.hashes[number + 1] {
            lines.push("the same bytes: no decision behind the instant differs".to_owned());
            continue;
        }
        if rows.is_empty() {
            lines.push("no metric and no counter differs, but the instants of steps do".to_owned());
            continue;
        }
        lines.extend(table(rows, seeds.len()));
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn table(rows: &[Row], seeds: usize) -> Vec<String> {
    let mut lines = vec![format!(
        "{:NAME$}{:>10}{:>10}{:>8}{:>7}{:>7}{:>8}",
        "", "old", "new", "change", "paired", "times", "pairs"
    )];
    let (metrics, counters): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| !row.unit.is_empty());
    let shown = metrics.into_iter().take(METRICS).chain(counters.into_iter().take(COUNTERS));
    lines.extend(shown.map(line));
    let more = rows.len().saturating_sub(lines.len() - 1);
    if more > 0 {
        lines.push(format!("{more} more in --format json"));
    }
    lines.push(String::new());
    let foot = if seeds < 2 {
        "One seed: no interval. Results with more seeds (--seeds 8) have them.".to_owned()
    } else {
        format!(
            "paired: half of the 95 % interval of the change, seeds as pairs. times: by how much the interval is \
             wider if they are no pairs. pairs: for how long it stays {NARROWER} times as wide, after the instant. \
             Metrics are of the whole run, counters from the instant on."
        )
    };
    lines.extend(fold(&foot, WIDTH));
    lines
}

fn line(row: &Row) -> String {
    let [old, new] = row.means;
    let name = if row.unit.is_empty() { row.name.clone() } else { format!("{} ({})", row.name, row.unit) };
    let change = change(Pair { baseline: old, new }).map_or_else(String::new, |change| format!("{change:+.1}%"));
    let half = row.paired.filter(|_| old != 0.0).map(|[low, high]| 50.0 * (high - low) / old.abs());
    let half = half.map_or_else(String::new, |half| format!("{half:.1}%"));
    let times = row
        .narrower()
        .map_or_else(String::new, |times| if times.is_finite() { format!("{times:.1}") } else { "all".to_owned() });
    let lasts = match (row.pairs_for_ps, row.to_the_end) {
        (_, true) => "to end".to_owned(),
        (Some(ps), _) => span(ps),
        (None, _) => String::new(),
    };
    let short: String = name.chars().take(NAME - 1).collect();
    format!("{short:NAME$}{:>10}{:>10}{change:>8}{half:>7}{times:>7}{lasts:>8}", number_of(old), number_of(new))
}
