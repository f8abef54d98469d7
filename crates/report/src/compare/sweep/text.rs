//! A sweep as text of 80 columns, and as Markdown: maps with shades, flat regions, and the effect of each setting.

use super::{Axis, Effect, Mapped, Place, Point, Reaction, Region, Sweep};
use crate::{
    better::Better,
    compare::{Compared, Verdict, words},
    short::{
        number_of,
        text::{fold, list, name_field},
    },
};

/// Characters of a line.
const WIDTH: usize = 80;
/// The longest printed value name and row name, and the longest bar, in characters.
const VALUE: usize = 22;
const NAME: usize = 24;
const BAR: usize = 24;
/// Shades, from the lowest value to the highest.
const SHADES: [&str; 5] = ["  ", "░░", "▒▒", "▓▓", "██"];
/// Most flat regions that are named below a map.
const REGIONS_MAX: usize = 4;

/// The whole sweep as text.
pub fn sweep_text(sweep: &Sweep, markdown: bool) -> String {
    let mut lines = head(sweep);
    let has_map = |row: &&Mapped| sweep.maps.is_empty() || sweep.maps.contains(&row.family);
    for row in sweep.rows.iter().filter(has_map) {
        lines.push(String::new());
        lines.extend(map(sweep, row, markdown));
    }
    lines.push(String::new());
    for (at, axis) in sweep.axes.iter().enumerate() {
        lines.extend(reactions(sweep, at, axis, markdown));
        lines.push(String::new());
    }
    lines.extend(foot(sweep));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The axes with their values, and a legend of the marks.
fn head(sweep: &Sweep) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, axis) in sweep.axes.iter().enumerate() {
        let place = match (at, sweep.axes.len()) {
            (0, _) => "rows",
            (1, _) => "columns",
            _ => "panels",
        };
        let value = |(value, name): (&String, String)| {
            let whole = marked(axis, value);
            if whole == name { whole } else { format!("({name}) {whole}") }
        };
        let values: Vec<String> = axis.values.iter().zip(value_names(axis)).map(value).collect();
        let default = match &axis.default {
            Some(default) if axis.values.contains(default) => String::new(),
            Some(default) => format!("; the default is {default}"),
            None => "; the default is the kernel's".to_owned(),
        };
        lines.extend(fold(&format!("{place}: {} {}{default}", axis.name, values.join(" ")), WIDTH));
    }
    lines.push("[..] is the default; the darker the higher".to_owned());
    lines
}

/// A value's name in a map: the default is in brackets.
fn marked(axis: &Axis, value: &str) -> String {
    if axis.default.as_deref() == Some(value) { format!("[{value}]") } else { value.to_owned() }
}

fn title(row: &Mapped) -> String {
    let better = match row.better {
        Better::Lower => ", lower is better",
        Better::Higher => ", higher is better",
        Better::None => "",
    };
    format!("{} ({}{better}): {}", row.title, row.unit, row.name)
}

fn map(sweep: &Sweep, row: &Mapped, markdown: bool) -> Vec<String> {
    let mut lines =
        if markdown { vec![format!("**{}**", title(row)), String::new()] } else { fold(&title(row), WIDTH) };
    if row.is_same {
        let value = row.points.iter().find_map(|point| point.value).map_or_else(String::new, number_of);
        lines.push(format!("  {value} everywhere, in every run"));
        return lines;
    }
    for rest in panels(sweep) {
        if !rest.is_empty() {
            let values = sweep.axes[2..].iter().zip(&rest);
            let values = values.map(|(axis, at)| format!("{} {}", axis.short(), marked(axis, &axis.values[*at])));
            let words = fold(&format!("at {}", values.collect::<Vec<_>>().join(", ")), WIDTH - 2);
            lines.extend(words.iter().map(|line| format!("  {line}")));
            lines.extend(markdown.then(String::new));
        }
        lines.extend(match (sweep.axes.len(), markdown) {
            (1, false) => bars(&sweep.axes[0], row),
            (1, true) => markdown_bars(&sweep.axes[0], row),
            (_, false) => panel(sweep, row, &rest),
            (_, true) => markdown_panel(sweep, row, &rest),
        });
    }
    let regions = row.regions.iter().take(REGIONS_MAX).map(|region| region_words(&sweep.axes, row, region));
    let mut regions: Vec<String> = regions.collect();
    if row.regions.len() > REGIONS_MAX {
        regions.push(format!("and {} smaller flat regions", row.regions.len() - REGIONS_MAX));
    }
    if markdown {
        lines.extend(regions.iter().map(|text| format!("- {text}")));
    } else {
        lines.extend(regions.iter().flat_map(|text| fold(text, WIDTH - 2)).map(|line| format!("  {line}")));
    }
    lines
}

/// The grid places of the third and further axes; each place has a map of its own.
fn panels(sweep: &Sweep) -> Vec<Place> {
    let others = sweep.axes.get(2..).unwrap_or_default();
    others.iter().fold(vec![Vec::new()], |panels, axis| {
        let with = |panel: &Place, at| [panel.as_slice(), &[at]].concat();
        panels.iter().flat_map(|panel| (0..axis.values.len()).map(move |at| with(panel, at))).collect()
    })
}

/// The point at a row and a column of a panel.
fn at<'r>(row: &'r Mapped, down: usize, across: usize, rest: &[usize]) -> &'r Point {
    let place = [&[down, across], rest].concat();
    row.points.iter().find(|point| point.place == place).expect("a row has all places")
}

/// Is the whole row certainly one flat region?
fn is_all_flat(row: &Mapped) -> bool {
    let there = row.points.iter().filter(|point| point.value.is_some()).count();
    row.regions.first().is_some_and(|region| region.is_sure && region.cells == there)
}

/// How dark a value is on the scale of its row.
fn shade(row: &Mapped, value: f64) -> &'static str {
    // In a row that is flat everywhere, a shade would show differences that do not matter.
    if is_all_flat(row) {
        return SHADES[0];
    }
    let values = || row.points.iter().filter_map(|point| point.value);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    if high <= low {
        return SHADES[0];
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to the number of shades")]
    let shade = ((value - low) / (high - low) * SHADES.len() as f64) as usize;
    SHADES[shade.min(SHADES.len() - 1)]
}

fn number(point: &Point) -> String {
    point.value.map_or_else(|| "-".to_owned(), number_of)
}

/// A map of rows by columns, in blocks that are no wider than a line.
fn panel(sweep: &Sweep, row: &Mapped, rest: &[usize]) -> Vec<String> {
    let (down, across) = (&sweep.axes[0], &sweep.axes[1]);
    let (down_names, across_names) = (value_names(down), value_names(across));
    let width = |texts: &[String]| texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let label = width(&down_names).max(down.short().chars().count());
    let numbers = |at_row: usize| (0..across_names.len()).map(move |column| number(at(row, at_row, column, rest)));
    let widest = (0..down_names.len()).flat_map(numbers).map(|text| text.chars().count()).max().unwrap_or(0);
    // A cell is a number, a blank and a shade of two characters, then two blanks before the following cell.
    let cell = (widest + 3).max(width(&across_names)) + 2;
    let in_block = ((WIDTH - 2 - label) / cell).max(1);
    let mut lines = Vec::new();
    for block in (0..across_names.len()).collect::<Vec<_>>().chunks(in_block) {
        lines.push(format!("  {:label$}  {}", down.short(), across.short()));
        let heads = block.iter().map(|column| format!("{:>cell$}", format!("{:<1$}", across_names[*column], 3)));
        let heads: String = heads.collect();
        lines.push(format!("  {:label$}{heads}", "").trim_end().to_owned());
        for (at_row, name) in down_names.iter().enumerate() {
            let cells = block.iter().map(|column| {
                let point = at(row, at_row, *column, rest);
                let shade = point.value.map_or(SHADES[0], |value| shade(row, value));
                format!("{:>cell$}", format!("{} {shade}", number(point)))
            });
            lines.push(format!("  {name:>label$}{}", cells.collect::<String>()).trim_end().to_owned());
        }
    }
    lines
}

fn markdown_panel(sweep: &Sweep, row: &Mapped, rest: &[usize]) -> Vec<String> {
    let (down, across) = (&sweep.axes[0], &sweep.axes[1]);
    let heads: Vec<String> = across.values.iter().map(|value| marked(across, value)).collect();
    let mut lines = vec![format!("| {} \\ {} | {} |", down.short(), across.short(), heads.join(" | "))];
    lines.push(format!("|--:|{}", "--:|".repeat(heads.len())));
    for (at_row, value) in down.values.iter().enumerate() {
        let cell = |column: usize| {
            let point = at(row, at_row, column, rest);
            let shade = point.value.map_or("", |value| shade(row, value).trim());
            format!("{} {shade}", number(point)).trim_end().to_owned()
        };
        let cells: Vec<String> = (0..heads.len()).map(cell).collect();
        lines.push(format!("| {} | {} |", marked(down, value), cells.join(" | ")));
    }
    lines.push(String::new());
    lines
}

/// Names of values as the rows and columns of a map: a value whose name is too long has its number in the list above the
/// maps.
fn value_names(axis: &Axis) -> Vec<String> {
    let name = |(value, number): (&String, usize)| {
        let whole = marked(axis, value);
        if whole.chars().count() <= VALUE { whole } else { format!("value {number}") }
    };
    axis.values.iter().zip(1..).map(name).collect()
}

/// For a sweep of one axis, a line for each value: a bar, and the change from the line above.
fn bars(axis: &Axis, row: &Mapped) -> Vec<String> {
    let names = value_names(axis);
    let label = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let most = row.points.iter().filter_map(|point| point.value).map(f64::abs).fold(0.0, f64::max);
    let line = |(name, point): (&String, &Point)| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to the longest bar")]
        let length = match point.value {
            Some(value) if most > 0.0 => (value.abs() / most * BAR as f64).round() as usize,
            _ => 0,
        };
        let change = point.step.as_ref().map_or_else(String::new, step);
        format!("  {name:>label$} {:>7} {:BAR$} {change}", number(point), "=".repeat(length)).trim_end().to_owned()
    };
    names.iter().zip(&row.points).map(line).collect()
}

fn markdown_bars(axis: &Axis, row: &Mapped) -> Vec<String> {
    let mut lines = vec![format!("| {} | | from the line above |", axis.short()), "|--:|--:|--:|".to_owned()];
    for (value, point) in axis.values.iter().zip(&row.points) {
        let change = point.step.as_ref().map_or_else(String::new, step).replace('*', " \\*");
        lines.push(format!("| {} | {} | {} |", marked(axis, value), number(point), change.trim()));
    }
    lines.push(String::new());
    lines
}

fn step(step: &Compared) -> String {
    let word = if step.verdict == Verdict::CannotTell { "" } else { step.verdict.word() };
    let star = if step.verdict.is_starred() { "*" } else { " " };
    format!("{:>7}{star} {word}", words::change(step))
}

/// A flat region in words: its first and last place, and its lowest and highest value.
fn region_words(axes: &[Axis], row: &Mapped, region: &Region) -> String {
    let what = if region.is_sure { "flat" } else { "no difference found" };
    let range = |(at, axis): (usize, &Axis)| {
        let (from, to) = (&axis.values[region.from[at]], &axis.values[region.to[at]]);
        if from == to { format!("{} {from}", axis.short()) } else { format!("{} {from}..{to}", axis.short()) }
    };
    let values = if number_of(region.low) == number_of(region.high) {
        number_of(region.low)
    } else {
        format!("{} to {}", number_of(region.low), number_of(region.high))
    };
    let there = row.points.iter().filter(|point| point.value.is_some()).count();
    let whose = if region.cells == there && axes.len() <= 2 {
        "everywhere".to_owned()
    } else {
        axes.iter().enumerate().map(range).collect::<Vec<_>>().join(", ")
    };
    format!("{what}: {whose} ({} cells, {values})", region.cells)
}

/// Lists how each row reacts to one setting.
fn reactions(sweep: &Sweep, at: usize, axis: &Axis, markdown: bool) -> Vec<String> {
    let all: Vec<(&Mapped, &Effect)> =
        sweep.rows.iter().filter_map(|row| Some((row, row.effects[at].as_ref()?))).collect();
    let count = |reaction: Reaction| all.iter().filter(|(_, effect)| effect.reaction == reaction).count();
    let (moves, flat, few) = (count(Reaction::Moves), count(Reaction::Flat), count(Reaction::DiffersInAll));
    let verdict = match all.len() {
        0 => "no two of its values can be compared".to_owned(),
        rows if flat == rows => "flat: nothing reacts to it".to_owned(),
        rows if count(Reaction::OneRun) == rows => "one run: nothing can be told; --seeds 8 would tell".to_owned(),
        rows if moves == 0 && few > 0 => {
            format!("all runs differ in {few} of {rows} rows, of fewer than 5; flat in {flat}")
        }
        rows if moves == 0 => format!("nothing is seen to react to it; flat in {flat} of {rows} rows"),
        rows => format!("moves {moves} of {rows} rows, flat in {flat}"),
    };
    let mut lines = fold(&format!("{}: {verdict}", axis.name), WIDTH);
    if markdown {
        lines = vec![format!("**{}**: {verdict}", axis.name), String::new()];
        lines.push("| | change | 95 % geometric | | from | to |".to_owned());
        lines.push("|---|--:|:-:|---|--:|--:|".to_owned());
    }
    let mut of_title = "";
    for (row, effect) in all {
        let star = if effect.reaction == Reaction::Moves { "*" } else { " " };
        let range = words::of_percent(effect.percent);
        let interval = words::interval(effect.geometric, effect.interval);
        let ends = |value: &String| {
            let place = axis.values.iter().position(|known| known == value).unwrap_or(0);
            (value.clone(), effect.means[place].map_or_else(|| "-".to_owned(), number_of))
        };
        let ((from, old), (to, new)) = (ends(&effect.from), ends(&effect.to));
        let word = effect.reaction.word();
        if markdown {
            let (name, star) = (format!("{}: {}", row.title, row.name), star.replace('*', " \\*"));
            let range = format!("{range}{}", star.trim_end());
            lines.push(format!("| {name} | {range} | {interval} | {word} | {old} at {from} | {new} at {to} |"));
            continue;
        }
        if of_title != row.title {
            of_title = &row.title;
            lines.extend(fold(&row.title, WIDTH - 2).iter().map(|line| format!("  {line}")));
        }
        let (before, name) = name_field(&row.name, NAME, WIDTH - 4);
        lines.extend(before.iter().map(|line| format!("    {line}")));
        let start = format!("    {name} {range:>7}{star} {interval:^13}");
        // The star already says that the row moves.
        let end = if effect.reaction == Reaction::Moves {
            format!("{old} at {from}, {new} at {to}")
        } else {
            word.to_owned()
        };
        let room = WIDTH.saturating_sub(start.chars().count() + 1);
        if end.chars().count() <= room {
            lines.push(format!("{start} {end}").trim_end().to_owned());
        } else {
            lines.push(start.trim_end().to_owned());
            lines.extend(fold(&end, WIDTH - 6).iter().map(|line| format!("      {line}")));
        }
    }
    lines
}

/// The rule for a star, and the number of runs.
fn foot(sweep: &Sweep) -> Vec<String> {
    let mut runs: Vec<String> = sweep
        .rows
        .iter()
        .flat_map(|row| &row.points)
        .filter(|point| point.runs > 0)
        .map(|point| point.runs.to_string())
        .collect();
    runs.sort();
    runs.dedup();
    let rule = format!(
        "change: between the two values of a setting whose means over all others are furthest apart, in % of the first (new: it \
         is 0); * separated from none (Holm over {} pairs of values, 5 %) and material ({} % and more); interval: of that pair \
         alone, 95 %, of the change of geometric means in %, and (a..b) of the difference where a number is 0 or negative. Flat \
         regions: no pair of neighbours (Holm over {}) and not the ends of the region are separated by so much; \"no difference \
         found\": runs spread too much to call it flat. Runs of each cell: {}",
        sweep.pairs,
        sweep.gates.percent,
        sweep.neighbours,
        if runs.is_empty() { "none".to_owned() } else { list("", &runs, 30) }
    );
    fold(&rule, WIDTH)
}
