//! A column of a short table with all its text, and blocks of columns that are no wider than a line.

use super::{
    number::WIDTH,
    text::{fold, pieces, widest},
};

/// A column of a short table.
pub(super) struct Strip {
    /// The column's title.
    pub(super) title: Vec<String>,
    /// Captions above the first field and the last fields, if the column has published values.
    pub(super) whose: Option<[&'static str; 2]>,
    /// The fields, each with one text per row; all fields have the same number of rows.
    pub(super) fields: Vec<Field>,
}

/// Texts under each other.
#[derive(Default)]
pub(super) struct Field {
    pub(super) texts: Vec<String>,
    /// Are the texts aligned left, as words are, and not right, as numbers are?
    pub(super) left: bool,
}

impl Field {
    fn width(&self) -> usize {
        widest(self.texts.iter().map(String::as_str))
    }
}

impl Strip {
    /// The column's width, with a gap before each field; an empty field takes none. The width holds every name and number of the
    /// title.
    pub(super) fn width(&self) -> usize {
        let words = || self.title.iter().flat_map(|line| line.split_whitespace());
        let word = widest(words()).min(WORD).max(widest(words().flat_map(pieces)).min(PIECE));
        let first = self.fields.first().map_or(0, Field::width);
        let ours = self.whose.map_or(0, |[ours, _]| ours.len().saturating_sub(first));
        (self.fields_width() + ours).max(1 + word)
    }

    fn fields_width(&self) -> usize {
        self.fields.iter().map(Field::width).filter(|width| *width > 0).map(|width| width + 1).sum()
    }

    fn row(&self, row: usize) -> String {
        let mut line = " ".repeat(self.width() - self.fields_width());
        for field in &self.fields {
            let (text, width) = (&field.texts[row], field.width());
            match (width, field.left) {
                (0, _) => {}
                (_, true) => line += &format!(" {text:<width$}"),
                (_, false) => line += &format!(" {text:>width$}"),
            }
        }
        line
    }

    /// The title in as many lines as it needs; the last line is right above the numbers.
    fn title(&self) -> Vec<String> {
        let width = self.width().saturating_sub(1).max(1);
        self.title.iter().flat_map(|line| fold(line, width)).collect()
    }

    /// `ours` above the first field, `published` above the last.
    fn whose(&self) -> String {
        let (width, first) = (self.width(), self.fields.first().map_or(0, Field::width) + 1);
        let first = first + width - self.fields_width();
        let Some([ours, theirs]) = self.whose else { return " ".repeat(width) };
        let ours = format!("{ours:>first$}");
        let left = width.saturating_sub(ours.chars().count() + 1);
        // If there is little room, the beginning of the word and a dot.
        let short: String = theirs.chars().take(left.saturating_sub(1).min(4)).chain(['.']).collect();
        let theirs = if theirs.len() <= left { theirs.to_owned() } else { short };
        format!("{ours} {theirs:>left$}").chars().take(width).collect()
    }
}

/// The lines of a table: strips side by side as far as they fit, the remaining strips in blocks below. Each block repeats the
/// labels.
pub(super) fn lines(labels: &[String], strips: &[Strip], width: usize) -> Vec<String> {
    let widest_strip = strips.iter().map(Strip::width).max().unwrap_or(0);
    let widest_label = widest(labels.iter().map(String::as_str));
    let most = widest_label.min(width.saturating_sub(widest_strip)).max(1);
    // Labels are wrapped between words, and only if wrapping saves a block.
    let count = |label: &usize| blocks(strips, width.saturating_sub(*label)).len();
    let word = widest(labels.iter().flat_map(|label| label.split_whitespace()));
    let least = (LABEL.max(word).min(most)..=most).rev().min_by_key(count).unwrap_or(most);
    let mut lines = Vec::new();
    for (number, block) in blocks(strips, width.saturating_sub(least)).into_iter().enumerate() {
        if number > 0 {
            lines.push(String::new());
        }
        let used: usize = block.iter().map(Strip::width).sum();
        let label = widest_label.min(width.saturating_sub(used)).max(least);
        lines.extend(heads(block, label));
        for (row, name) in labels.iter().enumerate() {
            let values: String = block.iter().map(|strip| strip.row(row)).collect();
            let (end, start) = label_lines(name, label);
            lines.extend(start);
            lines.push(format!("{end:label$}{values}"));
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Characters of a label that stay on one line, whatever the effect on blocks.
const LABEL: usize = 16;
/// Longest word of a title that a column is widened for, and longest name or number in a column that stands beside a label.
const WORD: usize = 20;
const PIECE: usize = WIDTH - 1 - LABEL;

/// The last line of a label, which its values follow, and the lines before it. Every line after the first is indented.
fn label_lines(name: &str, width: usize) -> (String, Vec<String>) {
    if name.chars().count() <= width {
        return (name.to_owned(), Vec::new());
    }
    let indent = if width < 2 * INDENT { 0 } else { INDENT };
    let mut lines = fold(name, width - indent);
    for line in lines.iter_mut().skip(1) {
        *line = format!("{:indent$}{line}", "");
    }
    (lines.pop().unwrap_or_default(), lines)
}

/// Indentation of continued labels, in characters.
const INDENT: usize = 2;

fn blocks(strips: &[Strip], width: usize) -> Vec<&[Strip]> {
    let (mut blocks, mut start, mut used) = (Vec::new(), 0, 0);
    for (at, strip) in strips.iter().enumerate() {
        if at > start && used + strip.width() > width {
            blocks.push(&strips[start..at]);
            (start, used) = (at, 0);
        }
        used += strip.width();
    }
    blocks.push(&strips[start..]);
    blocks
}

fn heads(block: &[Strip], label: usize) -> Vec<String> {
    let titles: Vec<Vec<String>> = block.iter().map(Strip::title).collect();
    let height = titles.iter().map(Vec::len).max().unwrap_or(0);
    let mut lines: Vec<String> = (0..height)
        .map(|line| {
            let of = |(strip, title): (&Strip, &Vec<String>)| {
                let text = (line + title.len()).checked_sub(height).map_or("", |at| title[at].as_str());
                format!(" {text:<width$}", width = strip.width().saturating_sub(1))
            };
            let heads: String = block.iter().zip(&titles).map(of).collect();
            format!("{:label$}{heads}", "")
        })
        .collect();
    if block.iter().any(|strip| strip.whose.is_some()) {
        let whose: String = block.iter().map(Strip::whose).collect();
        lines.push(format!("{:label$}{whose}", ""));
    }
    lines
}
