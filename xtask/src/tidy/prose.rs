//! Pages are read by people in a hurry: no paragraph of docs/ is long, and sentences of the first three pages are short on
//! average.

use std::collections::BTreeMap;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::Finding;

/// Folder of the pages whose paragraphs are counted.
const FOLDER: &str = "docs/";
/// Words in a paragraph or a list's item, at most.
const PARAGRAPH_MAX: usize = 120;
/// The pages that everybody reads.
const FIRST: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
/// Words in a sentence of theirs, at most, on average.
const SENTENCE_MAX: f64 = 20.0;

/// A paragraph, or the text of a list's item.
struct Paragraph {
    line: usize,
    words: usize,
    sentences: usize,
}

/// Checks pages by path. Also returns a line about the sentences of the first pages.
pub(super) fn check(pages: &BTreeMap<String, String>) -> (Vec<Finding>, String) {
    let mut findings = Vec::new();
    for (path, text) in pages.iter().filter(|(path, _)| path.starts_with(FOLDER) || FIRST.contains(&path.as_str())) {
        for Paragraph { line, words, .. } in paragraphs(text).into_iter().filter(|it| it.words > PARAGRAPH_MAX) {
            findings.push(Finding::new(path, line, format!("a paragraph of {words} words; at most {PARAGRAPH_MAX}")));
        }
    }
    let mut said = Vec::new();
    for (path, text) in FIRST.iter().filter_map(|path| pages.get_key_value(*path)) {
        let mean = words_in_a_sentence(text);
        said.push(format!("{path} {mean:.1}"));
        if mean > SENTENCE_MAX {
            findings.push(Finding::new(path, 1, format!("{mean:.1} words in a sentence; at most {SENTENCE_MAX}")));
        }
    }
    (findings, format!("words in a sentence: {}", said.join(", ")))
}

fn words_in_a_sentence(text: &str) -> f64 {
    let all = paragraphs(text);
    let sum = |of: fn(&Paragraph) -> usize| all.iter().map(of).sum::<usize>() as f64;
    sum(|it| it.words) / sum(|it| it.sentences).max(1.0)
}

/// Paragraphs and items of a page, without headings, tables and code.
fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    let mut read = String::new();
    let (mut at, mut outside) = (0, 0);
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. } | Tag::Table(_) | Tag::CodeBlock(_)) => outside += 1,
            Event::End(TagEnd::Heading(_) | TagEnd::Table | TagEnd::CodeBlock) => outside -= 1,
            Event::Start(Tag::Paragraph | Tag::Item | Tag::List(_)) | Event::End(TagEnd::Paragraph | TagEnd::Item) => {
                paragraphs.extend(paragraph(text, at, &std::mem::take(&mut read)));
                at = range.start;
            }
            Event::Text(words) | Event::Code(words) if outside == 0 => read.push_str(&words),
            Event::SoftBreak | Event::HardBreak => read.push(' '),
            _ => {}
        }
    }
    paragraphs
}

fn paragraph(text: &str, start: usize, read: &str) -> Option<Paragraph> {
    let words = read.split_whitespace().filter(|word| word.contains(char::is_alphanumeric));
    let words: Vec<_> = words.map(|word| word.trim_end_matches([')', '"', '*'])).collect();
    let sentences = words.iter().filter(|word| word.ends_with(['.', '!', '?'])).count().max(1);
    let line = text[..start].matches('\n').count() + 1;
    (!words.is_empty()).then_some(Paragraph { line, words: words.len(), sentences })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, String)]) -> (Vec<String>, String) {
        let pages = pages.iter().map(|(path, text)| ((*path).to_owned(), text.clone())).collect();
        let (findings, said) = check(&pages);
        (findings.iter().map(ToString::to_string).collect(), said)
    }

    #[test]
    fn long_paragraphs_of_docs_are_found() {
        let long = "word ".repeat(121);
        let page =
            format!("# {long}\n\nfine\n\n- {long}\n- fine\n\n{long}\n\n    {long}\n\n| a |\n|---|\n| {long} |\n");
        let (findings, _) = found(&[("docs/a.md", page.clone()), ("published/b.md", page)]);
        let about = "a paragraph of 121 words; at most 120";
        assert_eq!(findings, [format!("docs/a.md:5: {about}"), format!("docs/a.md:8: {about}")]);
        let parts = format!("- {0}\n\n  {0}\n", "word ".repeat(120));
        assert_eq!(found(&[("docs/a.md", parts)]).0, Vec::<String>::new());
    }

    #[test]
    fn sentences_of_the_first_pages_are_short() {
        let short = "One two (three `four`.) Five, six. Seven\n\n- eight\n".to_owned();
        let (findings, said) = found(&[("README.md", short), ("ARCHITECTURE.md", "word ".repeat(21))]);
        assert_eq!(said, "words in a sentence: README.md 2.7, ARCHITECTURE.md 21.0");
        assert_eq!(findings, ["ARCHITECTURE.md:1: 21.0 words in a sentence; at most 20"]);
    }
}
