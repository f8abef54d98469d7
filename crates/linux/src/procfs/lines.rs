//! A cursor over a text's lines that knows where it is, so that errors can say so.

use std::{iter::Enumerate, str::Lines};

use super::ProcError;

/// One line, with its place.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) text: &'a str,
    file: &'a str,
    number: usize,
}

/// The lines of one file; blank ones are left out.
pub(super) struct Cursor<'a> {
    file: &'a str,
    end: usize,
    lines: Enumerate<Lines<'a>>,
}

impl<'a> Cursor<'a> {
    /// Starts at the top of `text`. The kernel ends every line, so a last line without an end is cut off.
    pub(super) fn new(file: &'a str, text: &'a str) -> Result<Self, ProcError> {
        let end = text.lines().count();
        if !text.ends_with('\n') {
            let found = text.lines().last().map_or_else(|| "nothing".to_owned(), shown);
            let expected = "a line that ends".to_owned();
            return Err(ProcError::Parse { file: file.to_owned(), line: end.max(1), expected, found });
        }
        Ok(Self { file, end, lines: text.lines().enumerate() })
    }

    /// The next line that must be there, because `expected` is missing.
    pub(super) fn require(&mut self, expected: &str) -> Result<Line<'a>, ProcError> {
        self.next().ok_or_else(|| self.ended(expected))
    }

    /// The text ended before `expected`.
    pub(super) fn ended(&self, expected: &str) -> ProcError {
        let (file, expected) = (self.file.to_owned(), expected.to_owned());
        ProcError::Parse { file, line: self.end + 1, expected, found: "the end".to_owned() }
    }
}

impl<'a> Iterator for Cursor<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let file = self.file;
        let (index, text) = self.lines.find(|(_, text)| !text.trim().is_empty())?;
        Some(Line { text, file, number: index + 1 })
    }
}

impl<'a> Line<'a> {
    /// A text of one line that may lack its end, such as a file of /proc/sys after trimming.
    pub(super) fn only(file: &'a str, text: &'a str) -> Self {
        Self { text: text.trim(), file, number: 1 }
    }

    /// This line is not `expected`.
    pub(super) fn wrong(self, expected: impl Into<String>) -> ProcError {
        self.wrong_at(expected, self.text)
    }

    /// The part `found` of this line is not `expected`.
    pub(super) fn wrong_at(self, expected: impl Into<String>, found: &str) -> ProcError {
        let file = self.file.to_owned();
        ProcError::Parse { file, line: self.number, expected: expected.into(), found: shown(found) }
    }

    /// The number that `text`, a part of this line, is.
    pub(super) fn number(self, text: &str, what: &str) -> Result<u64, ProcError> {
        text.parse().map_err(|_| self.wrong_at(format!("{what}, a number"), text))
    }

    /// A number no larger than 32 bits: of CPUs, nodes, distances.
    pub(super) fn small(self, text: &str, what: &str) -> Result<u32, ProcError> {
        text.parse().map_err(|_| self.wrong_at(format!("{what}, a number of at most 32 bits"), text))
    }

    /// This line's `node` and zone name, from "Node N, zone NAME" and whatever follows it.
    pub(super) fn node_and_zone(self) -> Option<(&'a str, &'a str, &'a str)> {
        let (node, rest) = self.text.strip_prefix("Node ")?.split_once(',')?;
        let rest = rest.trim_start().strip_prefix("zone ")?.trim_start();
        let end = rest.find([' ', ',']).unwrap_or(rest.len());
        let (zone, rest) = rest.split_at(end);
        Some((node.trim(), zone, rest))
    }
}

/// The longest part of a wrong line that an error shows, in characters.
const SHOWN: usize = 60;

fn shown(text: &str) -> String {
    let short: String = text.trim().chars().take(SHOWN).collect();
    format!("{short:?}")
}
