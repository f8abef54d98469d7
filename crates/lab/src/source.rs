//! Files that a user writes: TOML, read such that every mistake is one message with file, line and key.
//!
//! [`Source`] is the text, [`Document`] its tables, [`TableReader`] one table. A reader first says which keys the
//! table may have ([`TableReader::only`]), so a misspelt key is reported as such and not as a missing one.

mod library;
mod reader;

use std::path::Path;

pub(crate) use library::check_name;
pub use library::{Kind, Listed, SERVES, list, lookup, names};
pub use reader::{FromValue, Mismatch, OneOrMore, Scalar, TableReader};
use report::brief;
use toml::de::DeTable;

use crate::usage::UsageError;

/// A file's text, and what messages call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    file: String,
    text: String,
}

/// A parsed [`Source`].
#[derive(Debug)]
pub struct Document<'s> {
    source: &'s Source,
    table: DeTable<'s>,
}

impl Source {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, UsageError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Self { file, text }),
            Err(error) => {
                Err(UsageError { file: Some(file), line: None, key: None, message: format!("cannot be read: {error}") })
            }
        }
    }

    /// A text that does not come from the file system; messages call it `file`.
    pub fn from_text(file: impl Into<String>, text: impl Into<String>) -> Self {
        Self { file: file.into(), text: text.into() }
    }

    /// What messages call it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file's name without folders and extension: the name of the machine, variant or experiment in it.
    pub fn name(&self) -> &str {
        Path::new(&self.file).file_stem().and_then(|stem| stem.to_str()).unwrap_or(&self.file)
    }

    /// The text as tables; a syntax error or a key given twice is an error.
    pub fn parse(&self) -> Result<Document<'_>, UsageError> {
        match DeTable::parse(&self.text) {
            Ok(table) => Ok(Document { source: self, table: table.into_inner() }),
            Err(error) => {
                let span = error.span().unwrap_or(0..0);
                let message = match (error.message(), self.text.get(span.clone())) {
                    ("duplicate key", Some(key)) => format!("the key {} is given twice", brief(key)),
                    (message, _) => brief(message.trim_end().replace('\n', "; ")),
                };
                Err(self.error_at(span.start, None, message))
            }
        }
    }

    /// An error about the byte at `offset`.
    fn error_at(&self, offset: usize, key: Option<String>, message: String) -> UsageError {
        let newlines = self.text.bytes().take(offset).filter(|&byte| byte == b'\n').count();
        let line = u32::try_from(newlines + 1).expect("a file has fewer than 2^32 lines");
        UsageError { file: Some(self.file.clone()), line: Some(line), key, message }
    }
}

impl Document<'_> {
    /// The table that holds everything.
    pub fn root(&self) -> TableReader<'_> {
        TableReader::new(self.source, String::new(), 0, &self.table)
    }
}

/// A text as a string of TOML, quoted and on one line.
pub(crate) fn quoted(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// The valid name that `name` most likely meant: a few letters away at most, or without what it begins with.
pub fn nearest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let edits = |candidate: &str| {
        let edits = strsim::damerau_levenshtein(name, candidate);
        (edits <= 1 + candidate.chars().count() / 4).then_some(edits)
    };
    // `swappiness` is `vm.swappiness`, and `defrag` rather transparent_hugepage/defrag than what is below khugepaged there.
    let by_end = |candidate: &&'a str| {
        let ends = candidate.char_indices().filter(|(_, c)| matches!(c, '.' | '/'));
        let ends = ends.filter_map(|(at, _)| edits(&candidate[at + 1..]).map(|edits| (edits, candidate.len())));
        ends.min()
    };
    let whole = candidates.iter().filter_map(|candidate| Some((edits(candidate)?, *candidate)));
    let whole = whole.min_by_key(|(edits, _)| *edits);
    let ends = candidates.iter().filter_map(|candidate| Some((by_end(candidate)?, *candidate)));
    let ends = ends.min_by_key(|(order, _)| *order).map(|((edits, _), candidate)| (edits, candidate));
    whole.into_iter().chain(ends).min_by_key(|(edits, _)| *edits).map(|(_, candidate)| candidate)
}

/// The one message about a name that does not exist: `unknown key "memroy"; did you mean "memory"? (valid keys: ...)`.
pub fn unknown(noun: &str, name: &str, valid: &[&str]) -> String {
    // A table of kernel settings is too long for a message when the nearest name already helps.
    const LISTED_MAX: usize = 16;
    let near = nearest(name, valid);
    let question = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
    let list = if valid.is_empty() {
        format!(" (there are no valid {noun}s)")
    } else if near.is_none() || valid.len() <= LISTED_MAX {
        format!(" (valid {noun}s: {})", valid.join(", "))
    } else {
        String::new()
    };
    format!("unknown {noun} {}{question}{list}", brief(format_args!("{name:?}")))
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    fn message<T: std::fmt::Debug>(text: &str, read: impl Fn(TableReader<'_>) -> Result<T, UsageError>) -> String {
        let source = Source::from_text("machines/x.toml", text);
        source.parse().and_then(|document| read(document.root())).expect_err(text).to_string()
    }

    #[test]
    fn syntax_errors_and_duplicate_keys_name_the_line() {
        let cases = [
            ("a = 1\nb = = 2\n", "machines/x.toml:2: extra `=`, expected nothing"),
            ("a = 1\n\nb = \"x\n", "machines/x.toml:3: invalid basic string, expected `\"`"),
            ("a = 1\nb = 2\na = 3\n", "machines/x.toml:3: the key a is given twice"),
            ("[t]\nx = 1\n[t]\n", "machines/x.toml:3: the key t is given twice"),
        ];
        for (text, expected) in cases {
            assert_eq!(message(text, |_| Ok(())), expected, "{text}");
        }
    }

    #[test]
    fn a_value_of_the_wrong_type_says_what_was_expected_and_found() {
        let cases = [
            ("\nsize = 512", r#"machines/x.toml:2: size: expected a size such as "512MiB", found the integer 512"#),
            ("size = 0x1f", r#"machines/x.toml:1: size: expected a size such as "512MiB", found the integer 0x1f"#),
            ("size = 1.5", r#"machines/x.toml:1: size: expected a size such as "512MiB", found the float 1.5"#),
            ("size = true", r#"machines/x.toml:1: size: expected a size such as "512MiB", found the boolean true"#),
            (
                "size = 1979-05-27",
                r#"machines/x.toml:1: size: expected a size such as "512MiB", found the date 1979-05-27"#,
            ),
            ("size = []", r#"machines/x.toml:1: size: expected a size such as "512MiB", found a list"#),
            ("[size]", r#"machines/x.toml:1: size: expected a size such as "512MiB", found a table"#),
            ("other = 1", r#"machines/x.toml:1: size: missing; expected a size such as "512MiB""#),
            (
                "size = '2GB'",
                "machines/x.toml:1: size: expected a size such as \"512MiB\" (units B, KiB, MiB, GiB, TiB), \
                 found \"2GB\"",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(message(text, |root| root.required::<Bytes>("size")), expected, "{text}");
        }
    }

    #[test]
    fn an_item_of_a_list_is_reported_on_its_own_line() {
        let numbers = |root: TableReader<'_>| root.required::<Vec<u64>>("n");
        assert_eq!(
            message("n = [\n  1,\n  -2,\n]", numbers),
            "machines/x.toml:3: n: expected a whole number, found the integer -2"
        );
        assert_eq!(
            message("n = 1", numbers),
            "machines/x.toml:1: n: expected a list, each item a whole number, found the integer 1"
        );
    }

    #[test]
    fn an_unknown_key_is_reported_before_a_missing_one() {
        let read = |root: TableReader<'_>| {
            root.tables("node")?.remove(0).only("key", &["memory", "cpus"])?.required::<Bytes>("memory")
        };
        assert_eq!(
            message("[[node]]\nx = 1\nmemroy = '1GiB'\n", read),
            "machines/x.toml:2: node: unknown key \"x\" (valid keys: memory, cpus)"
        );
        assert_eq!(
            message("[[node]]\ncpus = ''\nmemroy = '1GiB'\n", read),
            "machines/x.toml:3: node: unknown key \"memroy\"; did you mean \"memory\"? (valid keys: memory, cpus)"
        );
        assert_eq!(
            message("\n[[node]]\ncpus = ''\n", read),
            "machines/x.toml:2: node.memory: missing; expected a size such as \"512MiB\""
        );
    }

    #[test]
    fn tables_and_lists_of_tables_are_told_apart() {
        let tables = |root: TableReader<'_>| root.tables("node").map(|_| ());
        let table = |root: TableReader<'_>| root.table("node").map(|_| ());
        assert_eq!(message("[node]", tables), "machines/x.toml:1: node: expected a table [[node]], found a table");
        assert_eq!(
            message("node = [1]", tables),
            "machines/x.toml:1: node: expected a table [[node]], found the integer 1"
        );
        assert_eq!(message("[[node]]", table), "machines/x.toml:1: node: expected a table [node], found a list");
    }

    #[test]
    fn values_are_read() {
        let text = "s = 'a'\nn = 1_000\nh = 0xff\nb = false\nl = ['x', 'y']\nsize = '2GiB'\n";
        let source = Source::from_text("dir/x.toml", text);
        assert_eq!(source.name(), "x");
        let document = source.parse().unwrap();
        let root = document.root();
        assert_eq!(root.required("s"), Ok("a".to_owned()));
        assert_eq!(root.required("n"), Ok(1000));
        assert_eq!(root.required("h"), Ok(255));
        assert_eq!(root.required("b"), Ok(false));
        assert_eq!(root.required("l"), Ok(vec!["x".to_owned(), "y".to_owned()]));
        assert_eq!(root.required("size"), Ok(Bytes::gib(2)));
        assert_eq!(root.optional::<String>("none"), Ok(None));
        assert_eq!(root.required("h"), Ok(Scalar("255".to_owned())));
        assert_eq!(root.required("b"), Ok(OneOrMore(vec!["false".to_owned()])));
        assert_eq!(root.required("l"), Ok(OneOrMore(vec!["x".to_owned(), "y".to_owned()])));
        assert_eq!(root.keys(), ["s", "n", "h", "b", "l", "size"]);
    }

    #[test]
    fn the_nearest_name_is_near() {
        assert_eq!(nearest("memroy", &["cpus", "memory"]), Some("memory"));
        assert_eq!(nearest("min_free_kbytes", &["vm.min_free_kbytes"]), Some("vm.min_free_kbytes"));
        assert_eq!(nearest("colour", &["cpus", "memory"]), None);
        let defrag = ["transparent_hugepage/khugepaged/defrag", "transparent_hugepage/defrag"];
        for (name, expected) in [("defrag", defrag[1]), ("khugepaged/defrag", defrag[0]), ("dfrag", defrag[1])] {
            assert_eq!(nearest(name, &defrag), Some(expected), "{name}");
        }
        assert_eq!(unknown("key", "x", &[]), "unknown key \"x\" (there are no valid keys)");
    }

    #[test]
    fn a_file_that_is_not_there_is_one_message() {
        let error = Source::read(Path::new("/no/such.toml")).unwrap_err();
        assert_eq!(error.to_string(), "/no/such.toml: cannot be read: No such file or directory (os error 2)");
    }
}
