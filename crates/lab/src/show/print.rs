//! The forms in which a result is printed.

use report::Page;

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Tables in mmtests' layout.
    Text,
    /// One line per value.
    Csv,
    /// Everything.
    Json,
}

impl Format {
    /// A page in this form; as text with every row.
    pub(crate) fn of(self, page: &Page<'_>) -> String {
        match self {
            Self::Text => page.to_text(),
            Self::Csv => page.to_csv(),
            Self::Json => page.to_json(),
        }
    }
}

/// Whether tables of time by cause are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Causes {
    /// They are left out.
    No,
    /// They are, where they are known.
    Yes,
    /// They were asked for by name: a result that knows none is refused.
    Required,
}

/// The parts of a result that are printed, and their form.
#[derive(Clone, Copy, Debug)]
pub struct Print {
    /// The form.
    pub format: Format,
    /// Whether with times by cause.
    pub causes: Causes,
    /// As text: every row as mmtests prints it, and all that is known of where the numbers come from.
    pub full: bool,
    /// As text: nothing before the tables.
    pub quiet: bool,
}
