//! The screen as text: rows of a name, a count and an example, each of which may take several lines.

use std::fmt::Write as _;

use report::{WIDTH, short::text::fold};

const NAME: usize = 18;
const COUNT: usize = 11;
/// Lines of a screen.
pub(super) const SCREEN: usize = 24;
/// Lines that one example may take: as many as there is room for on the screen.
const LINES: std::ops::RangeInclusive<usize> = 2..=4;
/// Lines that the head and the foot may take, each line of theirs.
const AROUND: usize = 2;

/// One thing that is counted.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) count: usize,
    /// How many there are in all.
    pub(super) of: usize,
    /// In words; empty where there is none.
    pub(super) worst: String,
}

pub(super) fn screen(head: &[String], rows: &[Row], more: &str) -> String {
    let with = |lines| screen_of(head, rows, more, lines);
    let fits = LINES.rev().map(with).find(|text| text.lines().count() <= SCREEN);
    fits.unwrap_or_else(|| with(*LINES.start()))
}

/// The screen, with examples of at most `most` lines.
fn screen_of(head: &[String], rows: &[Row], more: &str, most: usize) -> String {
    let mut text = String::new();
    for line in head.iter().flat_map(|line| wrapped(line, WIDTH, AROUND)) {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "\n{:NAME$} {:>COUNT$}  worst example", "", "count");
    for Row { name, count, of, worst } in rows {
        let (names, examples) = (fold(name, NAME), wrapped(worst, WIDTH - NAME - COUNT - 3, most));
        let line = |lines: &[String], at: usize| lines.get(at).cloned().unwrap_or_default();
        for at in 0..names.len().max(examples.len()) {
            let count = if at == 0 { format!("{count} of {of}") } else { String::new() };
            let (name, example) = (line(&names, at), line(&examples, at));
            let _ = writeln!(text, "{}", format!("{name:NAME$} {count:>COUNT$}  {example}").trim_end());
        }
    }
    let _ = writeln!(text);
    for line in wrapped(more, WIDTH, AROUND) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Lines of whole words; text that does not fit on `most` lines is cut.
fn wrapped(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = fold(text, width);
    lines.retain(|line| !line.is_empty());
    if lines.len() > most {
        lines.truncate(most);
        let last = lines.last_mut().expect("there are some");
        while last.chars().count() + 4 > width {
            last.truncate(last.rfind(' ').unwrap_or(0));
        }
        last.push_str(" ...");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_whole_and_what_is_too_long_ends_in_dots() {
        assert_eq!(wrapped("one two three", 80, 2), ["one two three"]);
        assert_eq!(wrapped("one two three", 7, 2), ["one two", "three"]);
        assert_eq!(wrapped("one two three four five", 10, 2), ["one two", "three ..."]);
        assert_eq!(wrapped("one two three four five", 10, 3), ["one two", "three four", "five"]);
        assert_eq!(wrapped("", 10, 2), Vec::<String>::new());
    }

    #[test]
    fn examples_take_the_room_that_there_is() {
        let row = |_| Row { name: "a name of two lines", count: 1, of: 2, worst: "evidence ".repeat(20) };
        let lines = |rows: usize| screen(&[], &(0..rows).map(row).collect::<Vec<_>>(), "more").lines().count();
        // Of four lines each, then of three, then of two; and one empty line and the head before them, two after.
        assert_eq!([1, 5, 6, 7, 10].map(lines), [8, 24, 22, 18, 24]);
    }

    #[test]
    fn a_name_goes_on_below_itself() {
        let row = Row { name: "rules not checked against the source", count: 7, of: 100, worst: String::new() };
        let text = screen(&[], &[row], "more");
        assert!(text.contains("\nrules not checked     7 of 100\nagainst the source\n"), "{text}");
    }
}
