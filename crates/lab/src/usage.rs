//! Mistakes of a user: one message each, with file, line and key where it has them.

use std::fmt;

/// A user's mistake, in a file or in arguments: one message, exit status 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", Place(self))]
pub struct UsageError {
    /// The file or directory; none when a name led to none, and for arguments.
    pub file: Option<String>,
    /// The line, from 1; none when the file as a whole is meant.
    pub line: Option<u32>,
    /// The option, or the path of the key, such as `node.memory`; for an unknown key, of the table that holds it.
    pub key: Option<String>,
    /// The message: the value that was expected, and the one that was found.
    pub message: String,
}

impl UsageError {
    /// A mistake that is of no file and of no key.
    pub fn new(message: impl Into<String>) -> Self {
        Self { file: None, line: None, key: None, message: message.into() }
    }

    /// A mistake in a file or directory.
    pub fn in_file(file: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self { file: Some(file.to_string()), ..Self::new(message.to_string()) }
    }

    /// A mistake in a line of a file.
    pub fn in_line(file: impl fmt::Display, line: u32, message: impl fmt::Display) -> Self {
        Self { line: Some(line), ..Self::in_file(file, message) }
    }

    /// A mistake in an option such as `--set NAME`, or in what has a key.
    pub fn of_key(key: impl Into<String>, message: impl fmt::Display) -> Self {
        Self { key: Some(key.into()), ..Self::new(message.to_string()) }
    }
}

impl From<report::StoreError> for UsageError {
    fn from(error: report::StoreError) -> Self {
        Self::new(error.to_string())
    }
}

/// Prints `file:line: key: `, of which each part may be missing.
struct Place<'a>(&'a UsageError);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UsageError { file, line, key, .. } = self.0;
        match (file, line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: ")?,
            (Some(file), None) => write!(f, "{file}: ")?,
            (None, _) => {}
        }
        match key {
            Some(key) => write!(f, "{key}: "),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_after_its_place() {
        let whole = UsageError { key: Some("node.memory".to_owned()), ..UsageError::in_line("x.toml", 3, "missing") };
        let printed =
            [UsageError::new("one"), UsageError::in_file("x.toml", "two"), whole, UsageError::of_key("--set a", "3")];
        let expected = ["one", "x.toml: two", "x.toml:3: node.memory: missing", "--set a: 3"];
        assert_eq!(printed.map(|error| error.to_string()), expected);
    }
}
