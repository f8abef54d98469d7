//! Comments keep their nouns: house style, 1.12. Doc comments with phrases that stand in place of a noun are counted.

use super::habit::{self, Habit, Place};

/// Most such phrases that there may be: as many as there are. The number is lowered with them.
const CEILING: usize = 26;
pub(super) const HABIT: Habit = Habit {
    ceiling: CEILING,
    held_in: "xtask/src/tidy/nouns.rs",
    summary: "drop a noun",
    finding: ("says", "say which, or how many of what"),
};
/// Phrases of which the noun, or the number, stands elsewhere.
const DROPPED: [&str; 7] = ["the next one", "all of them", "those of", "so many", "so much", "so long", "so few"];
/// Phrases that a noun may follow: `of one node` is fine, `of one that is full` is not.
const UNFINISHED: [&str; 5] = ["of one", "of any", "this much", "this many", "that many"];
/// Words after which, or in place of which, no noun completes the phrase.
const NO_NOUN: [&str; 28] = [
    "a", "after", "and", "are", "as", "at", "before", "but", "by", "can", "for", "from", "has", "if", "in", "is",
    "may", "not", "on", "or", "than", "that", "the", "to", "when", "which", "who", "with",
];

/// Every such phrase in the doc comments of one file, also one that goes on in the next line.
pub(super) fn in_file(path: &str, text: &str) -> Vec<Place> {
    if !habit::is_counted(path) {
        return Vec::new();
    }
    let docs: Vec<Option<&str>> = text.lines().map(habit::doc_text).collect();
    let found = docs.iter().enumerate().flat_map(|(at, line)| {
        let next = docs.get(at + 1).copied().flatten().unwrap_or_default();
        let found = line.map(|line| dropped(line, next)).unwrap_or_default();
        found.into_iter().map(move |words| Place { path: path.to_owned(), line: at + 1, words })
    });
    found.collect()
}

/// The phrases that begin in `line`, which `next` follows.
fn dropped(line: &str, next: &str) -> Vec<&'static str> {
    let begun = line.split_whitespace().count();
    let words: Vec<String> = line.split_whitespace().chain(next.split_whitespace()).map(str::to_lowercase).collect();
    let mut found = Vec::new();
    for at in 0..begun {
        let rest = &words[at..];
        found.extend(DROPPED.iter().filter(|phrase| after(phrase, rest).is_some()));
        found.extend(UNFINISHED.iter().filter(|phrase| after(phrase, rest).is_some_and(|rest| !names(rest))));
    }
    found
}

/// The end of the last word of `phrase` and the words after it, if `words` open with the phrase.
fn after<'a>(phrase: &str, words: &'a [String]) -> Option<(&'a str, &'a [String])> {
    let mut end = "";
    let mut at = 0;
    for wanted in phrase.split(' ') {
        let word = words.get(at)?;
        let bare = if at == 0 { word.trim_start_matches(|c: char| !c.is_alphanumeric()) } else { word };
        if !end.is_empty() {
            return None;
        }
        end = bare.strip_prefix(wanted)?;
        if end.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '\'' || c == '-') {
            return None;
        }
        at += 1;
    }
    Some((end, &words[at..]))
}

/// Whether a noun may follow the phrase: no punctuation (`end`) closes the phrase, and the next word is not in [`NO_NOUN`].
fn names((end, rest): (&str, &[String])) -> bool {
    let next = rest.first().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '`'));
    end.is_empty() && next.is_some_and(|next| !next.is_empty() && !NO_NOUN.contains(&next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_without_their_noun_are_found() {
        for (line, words) in [
            ("The run over the next one.", "the next one"),
            ("As if there were so many frames on the lists.", "so many"),
            ("So much is read at most.", "so much"),
            ("(so long, then)", "so long"),
            ("Frees all of them.", "all of them"),
            ("Those of a zone.", "those of"),
            ("The highest zone of any.", "of any"),
            ("A step of one on files, which works on all memory.", "of one"),
            ("The frames of one, in order.", "of one"),
            ("The frames of one", "of one"),
            ("More counts as this much in the mean.", "this much"),
            ("Pages of this many.", "this many"),
        ] {
            assert_eq!(dropped(line, ""), [words], "{line}");
        }
        assert_eq!(dropped("So many of those of so many.", ""), ["so many", "those of", "so many"]);
    }

    #[test]
    fn phrases_with_their_noun_are_not_found() {
        for line in [
            "The zones of one node.",
            "The owner of any `Folio`.",
            "One part in this many frames.",
            "Thoseof, oneof any",
            "Soon, much is free; also many.",
            "The next one-shot timer.",
            "All of the zones.",
            "All, of them.",
        ] {
            assert_eq!(dropped(line, ""), [""; 0], "{line}");
        }
    }

    #[test]
    fn a_phrase_may_go_on_in_the_next_line_and_counts_where_it_begins() {
        assert_eq!(dropped("The zones of", "one that is full."), ["of one"]);
        assert_eq!(dropped("The zones of one", "node."), [""; 0]);
        assert_eq!(dropped("The zones", "all of them."), [""; 0]);
        let text = "/// Frames: so\n/// many.\nstruct A; // so many\n// so much\n    //! Those of a zone.\n";
        let found = in_file("crates/mm/src/a.rs", text);
        assert_eq!(
            found.iter().map(|place| (place.line, place.words)).collect::<Vec<_>>(),
            [(1, "so many"), (5, "those of")]
        );
        assert_eq!(in_file("xtask/src/a.rs", text), []);
    }
}
