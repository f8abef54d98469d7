//! Scores as text, and as CSV lines for programs.

use csv::Writer;

use super::{Ceiling, Published, Runs, Score, ScoredSet, Scores, claims_text::wrapped};

/// A table of scores: one line for each set of tables, and below it how well a single run could do at all.
pub fn scores_text(published: &Published, scores: &Scores) -> String {
    let source = &published.source;
    let mut text = wrapped(&format!("{}: {}", published.name, source.about), 0);
    let seeds = match (scores.seeds.first(), scores.seeds.last()) {
        (Some(first), Some(last)) if first != last => {
            format!("means over {} seeds ({first} to {last})", scores.seeds.len())
        }
        (Some(seed), _) => format!("seed {seed} alone"),
        _ => "no run".to_owned(),
    };
    text += &wrapped(&format!("{seeds}, by the table of {}, {}", source.author, source.date), 4);
    text += &format!(
        "\n{:<28}{:>8}{:>10}{:>12}{:>7}{:>7}{:>8}\n",
        "", "changes", "material", "direction", "skill", "level", "inside"
    );
    for set in &scores.sets {
        text += &set_text(set);
    }
    text += "\n";
    for line in LEGEND {
        text += &wrapped(line, 0);
    }
    text
}

const LEGEND: [&str; 3] = [
    "direction: material changes (10 % or more) that go the same way. skill: how near their sizes are; 1 is equal, 0 as far as \
     \"nothing changes\". level: factor between baselines. inside: published values in the range of our single runs.",
    "ceiling: single runs of ours in the place of the published table, each by the mean of the others (mean, and 2.5 to 97.5 % \
     of them). A perfect model gets no more.",
    "all down: a model that only says that everything falls by 15 %.",
];

fn set_text(set: &ScoredSet) -> String {
    let Score { rows, covered, material, direction, skill, level, inside } = set.score;
    let changes = if covered < rows { format!("{covered}/{rows}") } else { rows.to_string() };
    let percent = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", 100.0 * part));
    let number = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}"));
    let factor = |factor: Option<f64>| factor.map_or_else(|| "-".to_owned(), |factor| format!("x{factor:.2}"));
    let mut text = format!(
        "{:<28}{changes:>8}{material:>10}{:>12}{:>7}{:>7}{:>8}\n",
        set.name,
        percent(direction),
        number(skill),
        factor(level),
        percent(inside)
    );
    let down = &set.all_down;
    text += &format!("{:<46}{:>12}{:>7}\n", "  all down", percent(down.direction), number(down.skill));
    let Some(Ceiling { runs, direction, skill, level }) = set.ceiling else { return text };
    let mean = |of: Option<Runs>| of.map(|of| of.mean);
    let (name, means) = (format!("  ceiling, {runs} runs"), [mean(direction), mean(skill), mean(level)]);
    text += &format!("{name:<46}{:>12}{:>7}{:>7}\n", percent(means[0]), number(means[1]), factor(means[2]));
    let span = |of: Option<Runs>, show: &dyn Fn(Option<f64>) -> String| {
        of.map_or_else(|| "-".to_owned(), |of| format!("{} to {}", show(Some(of.low)), show(Some(of.high))))
    };
    let ranges = [span(direction, &percent), span(skill, &number), span(level, &factor)];
    text + &format!("    from {}, {}, {}\n", ranges[0], ranges[1], ranges[2])
}

/// A line for each number.
///
/// # Panics
/// Never: writing to memory does not fail, and every line has as many fields.
pub fn scores_csv(scores: &Scores) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    let mut line = |fields: [&str; 6]| writer.write_record(fields).expect("memory takes it");
    line(["series", "tables", "of", "number", "low", "high"]);
    for set in &scores.sets {
        let ceiling = |of: fn(&Ceiling) -> Option<Runs>| set.ceiling.as_ref().and_then(of);
        let (score, down) = (&set.score, &set.all_down);
        let single = |number: f64| Runs { mean: number, low: f64::NAN, high: f64::NAN };
        let numbers = [
            ("changes", Some(single(score.rows as f64))),
            ("covered", Some(single(score.covered as f64))),
            ("material", Some(single(score.material as f64))),
            ("direction", score.direction.map(single)),
            ("skill", score.skill.map(single)),
            ("level", score.level.map(single)),
            ("inside", score.inside.map(single)),
            ("all_down.direction", down.direction.map(single)),
            ("all_down.skill", down.skill.map(single)),
            ("ceiling.direction", ceiling(|ceiling| ceiling.direction)),
            ("ceiling.skill", ceiling(|ceiling| ceiling.skill)),
            ("ceiling.level", ceiling(|ceiling| ceiling.level)),
        ];
        for (of, numbers) in numbers {
            let Some(Runs { mean, low, high }) = numbers else { continue };
            let [mean, low, high] =
                [mean, low, high].map(|number| if number.is_nan() { String::new() } else { number.to_string() });
            line([&scores.series, &set.name, of, &mean, &low, &high]);
        }
    }
    String::from_utf8(writer.into_inner().expect("memory takes it")).expect("made of strings")
}
