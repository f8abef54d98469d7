//! Judged claims as text of 80 columns, and as CSV lines for programs.

use csv::Writer;

use super::{
    JudgedClaim, JudgedPart, Judgement, Published, Verdict,
    claim::{Unit, WHAT_MAX},
};
use crate::{
    short::{WIDTH, text::fold},
    table::MANY_RUNS,
};

/// Column at which the lines of a claim's parts begin, below the claim's text.
const INDENT: usize = 6;
/// Column of the mark at a part that fails.
const MARK: usize = INDENT - 1;
/// Widths of the columns of text: the figure's name, the published value, our value, and the range of single runs.
const COLUMNS: [usize; 4] = [WHAT_MAX, 14, 13, 14];

/// The columns of [`claims_csv`].
const HEADER: [&str; 15] = [
    "series",
    "id",
    "claim",
    "what",
    "unit",
    "published_low",
    "published_high",
    "low",
    "high",
    "range_low",
    "range_high",
    "wanted",
    "part_verdict",
    "verdict",
    "note",
];

/// A table of claims, each with its parts, and below the number of claims that hold.
pub fn claims_text(published: &Published, judgement: &Judgement) -> String {
    let source = &published.source;
    let mut text = wrapped(&format!("{}: {}", published.name, source.about), 0);
    text += &wrapped(&format!("{}, {}, {}", source.author, source.date, source.place), 4);
    text += &wrapped(&ran(published, judgement), 4);
    text += "\n";
    let runs = judgement.seeds.len();
    let of_runs = if runs < MANY_RUNS { format!("all {runs} runs") } else { "95 % of runs".to_owned() };
    let of_runs = if runs > 1 { of_runs } else { String::new() };
    text += &line([" ", "", "published", "ours", &of_runs, "wanted"].map(str::to_owned));
    for claim in &judgement.claims {
        text += &claim_text(claim, runs);
    }
    text + "\n" + &tally(judgement)
}

/// A line about the runs that the judgement is made from.
fn ran(published: &Published, judgement: &Judgement) -> String {
    let also = || published.source.also.first();
    let Some(experiment) = published.source.experiment.as_ref().or_else(also) else {
        return "no experiment of ours makes these tables yet".to_owned();
    };
    match (judgement.seeds.first(), judgement.seeds.last()) {
        (Some(first), Some(last)) if judgement.seeds.len() > 1 => {
            let seeds = judgement.seeds.len();
            format!("ours: {experiment}, means over {seeds} seeds ({first} to {last})")
        }
        (Some(seed), _) => format!("ours: {experiment}, seed {seed} alone"),
        _ => format!("ours: {experiment}, not run"),
    }
}

fn claim_text(claim: &JudgedClaim, runs: usize) -> String {
    let head = format!("{:<5} {:<9} ", claim.id, verdict_word(claim));
    // The first line begins with the claim's id, where later lines begin with spaces.
    let words = wrapped(&claim.claim, head.len());
    let mut text = head.clone() + &words[head.len()..];
    for part in &claim.parts {
        text += &part_text(part, runs);
    }
    text += &claim.unsettled.as_ref().map_or_else(String::new, |why| wrapped(&format!("unsettled: {why}"), INDENT));
    match &claim.verdict {
        Verdict::Fails => {
            let suspected = claim.suspected.as_deref().unwrap_or("nothing");
            text += &wrapped(&format!("suspected: {suspected}"), INDENT);
        }
        // If no simulation was run, the head of the table says so once.
        Verdict::NotYet(why) if runs > 0 => text += &wrapped(why, INDENT),
        Verdict::NotYet(_) | Verdict::Holds => {}
    }
    text
}

fn verdict_word(claim: &JudgedClaim) -> &'static str {
    match &claim.verdict {
        Verdict::NotYet(_) => "not yet",
        _ if claim.unsettled.is_some() => "unsettled",
        Verdict::Holds => "holds",
        Verdict::Fails => "fails",
    }
}

fn part_text(part: &JudgedPart, runs: usize) -> String {
    let mark = if part.verdict == Verdict::Fails { "!" } else { " " };
    let counted = |ends| match part.count_of {
        None => span(ends, part.unit),
        // The range of a count over single runs is not whole, and says nothing.
        Some(_) => span((f64::round(ends.0), f64::round(ends.1)), part.unit),
    };
    let published = match (&part.published_words, part.published) {
        (Some(words), _) => words.clone(),
        (None, ends) => ends.map_or_else(String::new, |ends| span(ends, published_unit(part))),
    };
    let of_runs = if runs < MANY_RUNS { part.extremes } else { part.range };
    let [ours, runs] = [part.ours, of_runs].map(|ends| ends.map_or_else(String::new, counted));
    line([mark.to_owned(), part.what.clone(), published, ours, runs, part.wanted.clone()])
}

/// A line of the table: the mark, then the columns.
fn line([mark, what, published, ours, runs, wanted]: [String; 6]) -> String {
    let [w, p, o, r] = COLUMNS;
    let before = format!("{mark:>MARK$} {what:w$} {published:>p$} {ours:>o$} {runs:>r$}");
    let line = format!("{before}  {wanted}");
    let line = line.trim_end();
    let length = |text: &str| text.chars().count();
    if length(line) <= WIDTH {
        return format!("{line}\n");
    }
    // A figure may take unused room of the columns before it. The bounds begin earlier where nothing stands before them.
    let before = before.trim_end();
    let narrow = format!("{mark:>MARK$} {what} {published} {ours} {runs}");
    let before = if length(before) <= WIDTH { before } else { narrow.trim_end() };
    match WIDTH.checked_sub(length(before) + length(&wanted)).filter(|spaces| *spaces >= 2) {
        Some(spaces) => format!("{before}{}{wanted}\n", " ".repeat(spaces)),
        None => format!("{before}\n{:1$}{wanted}\n", "", INDENT + 2),
    }
}

/// The unit of a part's published figures: a deviation is from a value, so the published figure is a plain value.
fn published_unit(part: &JudgedPart) -> Unit {
    if part.unit == Unit::Deviation { Unit::Plain } else { part.unit }
}

/// A number, or a range of two numbers.
fn span((low, high): (f64, f64), unit: Unit) -> String {
    let [first, last] = [low, high].map(|figure| number(figure, unit, low.min(high)));
    let (before, after) = match unit {
        Unit::Plain => ("", ""),
        Unit::Factor => ("x", ""),
        Unit::Percent | Unit::Deviation => ("", " %"),
    };
    if first == last { format!("{before}{first}{after}") } else { format!("{before}{first}..{last}{after}") }
}

/// A figure, with the digits that the smallest number beside it needs.
fn number(figure: f64, unit: Unit, smallest: f64) -> String {
    match unit {
        Unit::Plain => plain(figure),
        Unit::Factor if smallest < 0.1 => format!("{figure:.3}"),
        Unit::Factor => format!("{figure:.2}"),
        Unit::Percent => format!("{:.0}", 100.0 * figure),
        Unit::Deviation => format!("{:+.1}", 100.0 * figure),
    }
}

/// A number without fraction from 100 on, with a comma for thousands; in millions from one million on; smaller numbers with
/// the digits they need.
fn plain(figure: f64) -> String {
    let size = figure.abs();
    if size >= 1e6 {
        return format!("{:.2}M", figure / 1e6);
    }
    if size < 100.0 && figure.fract() != 0.0 {
        return if size < 10.0 { format!("{figure:.2}") } else { format!("{figure:.1}") };
    }
    let (sign, size) = (if figure < 0.0 { "-" } else { "" }, size.round());
    match (size / 1000.0).floor() {
        0.0 => format!("{sign}{size}"),
        thousands => format!("{sign}{thousands},{:03}", size % 1000.0),
    }
}

/// A line on how many claims hold.
fn tally(judgement: &Judgement) -> String {
    let ((hold, judged), identities) = (judgement.tally(false), judgement.tally(true));
    let later = judgement.claims.len() - judged - identities.1;
    let mut parts = Vec::new();
    if judged > 0 {
        parts.push(format!("{hold} of {judged} claims hold"));
    }
    if identities.1 > 0 {
        parts.push(format!("{} of {} identities", identities.0, identities.1));
    }
    if later > 0 {
        parts.push(format!("{later} cannot be judged yet"));
    }
    let word = match judgement.is_reached() {
        None => "",
        Some(true) => ": reached",
        Some(false) => ": not reached (nine of ten, and all identities)",
    };
    wrapped(&format!("{}: {}{word}", judgement.series, parts.join(", ")), 4).trim_start().to_owned()
}

/// Lines of at most [`WIDTH`] columns, broken between words; each line begins with `indent` spaces.
pub(super) fn wrapped(text: &str, indent: usize) -> String {
    fold(text, WIDTH - indent).iter().map(|line| format!("{:indent$}{line}\n", "")).collect()
}

/// A line for each part of each claim, numbers unrounded.
///
/// # Panics
/// Never: writing to memory does not fail, and every line has as many fields.
pub fn claims_csv(judgements: &[&Judgement]) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    writer.write_record(HEADER).expect("memory takes it");
    for judgement in judgements {
        for claim in &judgement.claims {
            for part in &claim.parts {
                writer.write_record(csv_line(judgement, claim, part)).expect("memory takes it");
            }
        }
    }
    String::from_utf8(writer.into_inner().expect("memory takes it")).expect("made of strings")
}

fn csv_line(judgement: &Judgement, claim: &JudgedClaim, part: &JudgedPart) -> [String; 15] {
    let ends = |ends: Option<(f64, f64)>| {
        let (low, high) = ends.unzip();
        [low, high].map(|end| end.map_or_else(String::new, |end| end.to_string()))
    };
    let [[published_low, published_high], [low, high], [range_low, range_high]] =
        [part.published, part.ours, part.range].map(ends);
    let unit = match part.unit {
        Unit::Plain => "plain",
        Unit::Factor => "factor",
        Unit::Percent => "percent",
        Unit::Deviation => "deviation",
    };
    let verdict = |verdict: &Verdict| match verdict {
        Verdict::Holds => "holds",
        Verdict::Fails => "fails",
        Verdict::NotYet(_) => "not yet",
    };
    let note = match &part.verdict {
        Verdict::NotYet(reason) => reason.clone(),
        _ => claim.unsettled.clone().unwrap_or_default(),
    };
    [
        judgement.series.clone(),
        claim.id.clone(),
        claim.claim.clone(),
        part.what.clone(),
        unit.to_owned(),
        published_low,
        published_high,
        low,
        high,
        range_low,
        range_high,
        part.wanted.clone(),
        verdict(&part.verdict).to_owned(),
        verdict_word(claim).to_owned(),
        note,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (ends, unit, expected) in [
            ((14_322.0, 14_327.6), Unit::Plain, "14,322..14,328"),
            ((1_721_504.0, 1_891_067.0), Unit::Plain, "1.72M..1.89M"),
            ((999.6, 1007.0), Unit::Plain, "1,000..1,007"),
            ((0.0, 0.0), Unit::Plain, "0"),
            ((2.26, 38.4), Unit::Plain, "2.26..38.4"),
            ((-1234.0, -5.0), Unit::Plain, "-1,234..-5"),
            ((0.365, 0.365), Unit::Factor, "x0.36"),
            ((0.0444, 0.2), Unit::Factor, "x0.044..0.200"),
            ((0.21, 0.79), Unit::Percent, "21..79 %"),
            ((-0.0101, 0.02), Unit::Deviation, "-1.0..+2.0 %"),
        ] {
            assert_eq!(span(ends, unit), expected);
        }
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let text = wrapped(&"words of some length ".repeat(20), 6);
        assert!(
            text.lines()
                .all(|line| line.chars().count() <= WIDTH && line.starts_with("      w") || line.starts_with("      ")),
            "{text}"
        );
        assert!(text.lines().count() > 4);
        let wide = ["!", "what it is of", "1,234,567..2,345,678", "1,234,567..2,345,678", "1..2", "<= 0.5"];
        let text = line(wide.map(str::to_owned));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }
}
