//! Comments name their subject: house style, 1.10. Doc lines whose first words name nobody are counted.

use super::habit::{self, Habit, Place};

/// How many such lines there may be: as many as there are. Lower it with them.
const CEILING: usize = 116;
pub(super) const HABIT: Habit = Habit {
    ceiling: CEILING,
    held_in: "xtask/src/tidy/openings.rs",
    summary: "name nobody",
    finding: ("opens with", "name its subject"),
};
/// First words that stand for a subject which the reader does not know yet.
const NAMELESS: [&str; 8] = ["What", "Who", "Whose", "It", "Its", "The same", "Somebody", "Nobody"];

/// The doc lines of one file that open with such words.
pub(super) fn in_file(path: &str, text: &str) -> Vec<Place> {
    if !habit::is_counted(path) {
        return Vec::new();
    }
    let found = text.lines().enumerate().filter_map(|(at, line)| {
        let words = nameless(line)?;
        Some(Place { path: path.to_owned(), line: at + 1, words })
    });
    found.collect()
}

/// The words that open this line, if it is a doc line and they name nobody.
fn nameless(line: &str) -> Option<&'static str> {
    let text = habit::doc_text(line)?;
    let opens = |words: &&&str| {
        let rest = text.strip_prefix(**words);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    NAMELESS.iter().find(opens).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words_that_name_nobody_are_found() {
        for line in
            ["/// What it is.", "    //! It's", "/// Its name.", "/// The same: again.", "/// Nobody", "/// Who, then?"]
        {
            assert!(nameless(line).is_some(), "{line}");
        }
        for line in [
            "/// Whatever.",
            "// What",
            "let x; /// What",
            "/// The samples.",
            "/// Items",
            "///  What",
            "/// A frame.",
        ] {
            assert_eq!(nameless(line), None, "{line}");
        }
        let text = "//! Frames.\n/// Its state.\nstruct A;\n";
        let found = in_file("crates/mm/src/a.rs", text);
        assert_eq!(found, [Place { path: "crates/mm/src/a.rs".to_owned(), line: 2, words: "Its" }]);
        assert_eq!(in_file("xtask/src/a.rs", text), []);
    }
}
