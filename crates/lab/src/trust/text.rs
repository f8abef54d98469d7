//! The screen as text: rows of a name, a count and an example that may take two lines.

use std::fmt::Write as _;

use report::{WIDTH, short::text::fold};

const NAME: usize = 18;
const COUNT: usize = 11;
/// Lines that one text may take.
const LINES: usize = 2;

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
    let mut text = String::new();
    for line in head.iter().flat_map(|line| wrapped(line, WIDTH)) {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "\n{:NAME$} {:>COUNT$}  worst example", "", "count");
    for Row { name, count, of, worst } in rows {
        let mut lines = wrapped(worst, WIDTH - NAME - COUNT - 3).into_iter();
        let count = format!("{count} of {of}");
        let first = format!("{name:NAME$} {count:>COUNT$}  {}", lines.next().unwrap_or_default());
        let _ = writeln!(text, "{}", first.trim_end());
        for line in lines {
            let _ = writeln!(text, "{:1$}{line}", "", NAME + COUNT + 3);
        }
    }
    let _ = writeln!(text);
    for line in wrapped(more, WIDTH) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Lines of whole words; what does not fit on two is cut.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = fold(text, width);
    lines.retain(|line| !line.is_empty());
    if lines.len() > LINES {
        lines.truncate(LINES);
        let last = lines.last_mut().expect("there are more than two");
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
        assert_eq!(wrapped("one two three", 80), ["one two three"]);
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("one two three four five", 10), ["one two", "three ..."]);
        assert_eq!(wrapped("", 10), Vec::<String>::new());
    }
}
