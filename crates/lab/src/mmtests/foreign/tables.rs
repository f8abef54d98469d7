//! Tables that compare-mmtests has printed into a mail: a name, then a value for each column with its change in brackets, or
//! between stars where it is significant.
//!
//! A mail has several tables, of different tests, machines and columns; a title begins one. Mail programs wrap rows.

use report::{Better, Metric};

use super::sheet::{Sheet, metric, number};

/// Tables that give values alone, and the first words of their rows.
const PLAIN: [&str; 5] = ["Duration", "Ops", "User", "System", "Elapsed"];
/// Words of the longest name of a row.
const NAME_MAX: usize = 6;
/// Columns of the widest table in a mail.
const COLUMNS_MAX: usize = 24;
/// Lines of a heading: the kernel, and below it the patches.
const HEAD_LINES: usize = 2;

/// A row, and where its name begins in the line.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    name: Vec<String>,
    values: Vec<f64>,
    /// Changes in percent; none where they are no numbers, and in tables without them.
    changes: Vec<Option<f64>>,
}

/// A line of a mail, and how far it is indented behind marks of quotation.
struct Line {
    text: String,
    indent: usize,
    row: Option<Row>,
}

/// Parses a row from its end, as names may be of anything.
fn row(line: &str) -> Option<Row> {
    let spaced = spaced(line);
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (cells, rest) = cells(&words);
    if !cells.is_empty() {
        let (values, changes) = cells.into_iter().unzip();
        return named(rest, values, changes);
    }
    let is_plain = words.first().is_some_and(|first| PLAIN.contains(first));
    let name = words.len() - words.iter().rev().take_while(|word| decimals(word)).count();
    let values: Vec<f64> = words[name..].iter().filter_map(|word| number(word)).collect();
    if is_plain && values.len() > 1 { named(&words[..name], values, Vec::new()) } else { None }
}

fn named(name: &[&str], values: Vec<f64>, changes: Vec<Option<f64>>) -> Option<Row> {
    let is_name = (1..=NAME_MAX).contains(&name.len()) && name[0].starts_with(|c: char| c.is_ascii_alphanumeric());
    let name = name.iter().map(|&word| word.to_owned()).collect();
    (is_name && values.len() <= COLUMNS_MAX).then_some(Row { name, values, changes })
}

/// A line whose brackets and stars stand alone.
fn spaced(line: &str) -> String {
    let mut spaced = String::with_capacity(line.len() + 16);
    for character in line.chars() {
        match character {
            '(' | ')' | '*' => spaced.extend([' ', character, ' ']),
            _ => spaced.push(character),
        }
    }
    spaced
}

/// Values and their changes at the end of a line, and the words before them.
fn cells<'a>(words: &'a [&'a str]) -> (Vec<(f64, Option<f64>)>, &'a [&'a str]) {
    let mut cells = Vec::new();
    let mut rest = words;
    while let [before @ .., value, open, percent, close] = rest
        && is_pair(open, close)
        && let (Some(value), Some(change)) = (number(value), change(percent))
    {
        cells.insert(0, (value, change));
        rest = before;
    }
    (cells, rest)
}

fn is_pair(open: &str, close: &str) -> bool {
    matches!((open, close), ("(", ")") | ("*", "*"))
}

/// `-0.12%`: with two decimals, or no number where the first value is 0.
#[allow(clippy::option_option, reason = "a change that is no number is a change")]
fn change(word: &str) -> Option<Option<f64>> {
    let number = word.strip_suffix('%')?;
    if matches!(number.trim_start_matches(['-', '+']).to_ascii_lowercase().as_str(), "nan" | "inf") {
        return Some(None);
    }
    decimals(number).then(|| number.parse().ok())
}

/// Is the word a number with two to four decimals, as tables have them?
fn decimals(word: &str) -> bool {
    let is_short = word.split_once('.').is_some_and(|(_, decimals)| (2..=4).contains(&decimals.len()));
    is_short && number(word).is_some()
}

/// Is it the rest of a row that was wrapped: values and changes without a name? A name may be a number too, with a value behind.
fn is_rest(line: &str) -> bool {
    let spaced = spaced(line);
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let is_number = |word: &&&str| number(word).is_some();
    let is_named = words.iter().take(2).filter(is_number).count() == 2;
    let is_part = |word: &&str| matches!(*word, "(" | ")" | "*") || number(word).is_some() || change(word).is_some();
    !is_named && words.iter().all(is_part) && words.iter().any(|word| change(word).is_some())
}

/// The tables of a text, whose lines are as `paste::plain` leaves them; `indents` says how far each was indented.
pub(super) fn sheets(lines: &[(usize, &str)], indents: &[usize]) -> Vec<Sheet> {
    let lines = joined(lines, indents);
    let mut sheets: Vec<Sheet> = Vec::new();
    let mut judges: Vec<Vec<Row>> = Vec::new();
    // The last row before this one, and whether other text came between.
    let mut last: Option<usize> = None;
    for (at, line) in lines.iter().enumerate() {
        let Some(row) = &line.row else { continue };
        let columns = row.values.len();
        let follows = last.is_some_and(|last| lines[last + 1..at].iter().all(|line| line.text.is_empty()));
        let head = if follows { Vec::new() } else { head(&lines[..at], line, columns) };
        last = Some(at);
        let title = if head.is_empty() { None } else { title(&lines[..at], line) };
        let is_same = sheets.last().is_some_and(|sheet| {
            sheet.columns.len() == columns
                && title.is_none()
                && begins(&sheet.names, &head)
                && !sheet.has(&statistic(row).0, &statistic(row).1)
        });
        if !is_same {
            let before = sheets.last().filter(|sheet| sheet.columns.len() == columns && begins(&sheet.names, &head));
            let names = match before {
                Some(sheet) => sheet.names.clone(),
                None if head.is_empty() => (1..=columns).map(|column| format!("column {column}")).collect(),
                None => head,
            };
            sheets.push(Sheet { title, names, columns: vec![Vec::new(); columns] });
            judges.push(Vec::new());
        }
        let (Some(sheet), Some(rows)) = (sheets.last_mut(), judges.last_mut()) else { continue };
        let (name, part) = statistic(row);
        for (column, value) in sheet.columns.iter_mut().zip(&row.values) {
            column.push(metric(&name, &part, Better::None, *value));
        }
        rows.push(Row { name: row.name.clone(), values: row.values.clone(), changes: row.changes.clone() });
    }
    for (sheet, rows) in sheets.iter_mut().zip(&judges) {
        for metric in sheet.columns.iter_mut().flatten() {
            metric.better = better(metric, rows);
        }
    }
    sheets
}

/// Are these the columns of a heading? One without the patches' names, where equal words have been numbered, begins as theirs.
fn begins(names: &[String], head: &[String]) -> bool {
    let is_its = |(name, head): (&String, &String)| {
        let kernel = head.split(" (").next().unwrap_or(head);
        name.strip_prefix(kernel).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    names.iter().zip(head).all(is_its)
}

/// The statistic and the operation of a row.
fn statistic(row: &Row) -> (String, String) {
    match row.name.as_slice() {
        [only] => ("value".to_owned(), only.clone()),
        [statistic, operation @ ..] => (statistic.clone(), operation.join(" ")),
        [] => ("value".to_owned(), String::new()),
    }
}

/// The better direction of a statistic: compare-mmtests prints what is better as a positive change. Where no row tells, usual
/// meanings are taken.
fn better(metric: &Metric, rows: &[Row]) -> Better {
    let own = rows.iter().filter(|row| statistic(row).0 == metric.name);
    let signs = own.flat_map(|row| {
        let base = row.values[0];
        row.values.iter().zip(&row.changes).map(move |(value, change)| change.unwrap_or(0.0) * (value - base))
    });
    let (more, less) =
        signs.fold((0, 0), |(more, less), sign| (more + u32::from(sign > 0.0), less + u32::from(sign < 0.0)));
    match (more, less) {
        _ if more > less => Better::Higher,
        _ if less > more => Better::Lower,
        _ => match metric.name.as_str() {
            "Hmean" => Better::Higher,
            "Amean" | "Stddev" | "CoeffVar" | "Duration" | "User" | "System" | "Elapsed" => Better::Lower,
            _ => Better::None,
        },
    }
}

/// Lines with their rows; the rest of a wrapped row is put back to its beginning.
fn joined(lines: &[(usize, &str)], indents: &[usize]) -> Vec<Line> {
    let mut joined: Vec<Line> = Vec::new();
    for ((_, text), indent) in lines.iter().zip(indents) {
        match joined.last_mut().filter(|before| is_begun(&before.text) && is_rest(text)) {
            Some(before) => before.text.extend([" ", text]),
            None => joined.push(Line { text: (*text).to_owned(), indent: *indent, row: None }),
        }
    }
    for line in &mut joined {
        line.row = row(&line.text);
    }
    joined
}

/// Can the rest of a row follow this line? It has a change, or ends in a value.
fn is_begun(line: &str) -> bool {
    let spaced = spaced(line);
    spaced.split_whitespace().any(|word| change(word).is_some())
        || spaced.split_whitespace().last().is_some_and(decimals)
}

/// Names of columns: the last one or two lines above a row that are indented and have a word for each.
fn head(above: &[Line], row: &Line, columns: usize) -> Vec<String> {
    let mut heads: Vec<Vec<&str>> = Vec::new();
    for line in heading(above, row).take(2 * HEAD_LINES) {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        if words.len() == columns && heads.len() < HEAD_LINES {
            heads.insert(0, words);
        }
    }
    if heads.is_empty() {
        return Vec::new();
    }
    let name = |at: usize| heads.iter().map(|words| words[at]).collect::<Vec<_>>().join("-");
    let mut names: Vec<String> = (0..columns).map(name).collect();
    for at in 1..names.len() {
        if names[..at].contains(&names[at]) {
            names[at] = format!("{} ({})", names[at], at + 1);
        }
    }
    names
}

/// The indented lines directly above a row, the nearest first.
fn heading<'a>(above: &'a [Line], row: &Line) -> impl Iterator<Item = &'a Line> + use<'a> {
    let indent = row.indent;
    let blank = above.iter().rev().take_while(|line| line.text.is_empty()).count();
    let lines = above[..above.len() - blank].iter().rev();
    lines.take_while(move |line| line.row.is_none() && !line.text.is_empty() && line.indent > indent + 2)
}

/// The line above a heading, if it is short and begins where rows do.
fn title(above: &[Line], row: &Line) -> Option<String> {
    let blank = above.iter().rev().take_while(|line| line.text.is_empty()).count();
    let heads = heading(above, row).count();
    let before = &above[..above.len() - blank - heads];
    let line = before.iter().rev().find(|line| !line.text.is_empty())?;
    let is_title = line.row.is_none()
        && line.indent <= row.indent
        && line.text.split_whitespace().count() <= NAME_MAX
        && line.text.chars().any(char::is_alphabetic);
    is_title.then(|| line.text.trim_end_matches(':').to_owned())
}
