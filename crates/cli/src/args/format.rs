//! Forms of output that several commands have.

use clap::ValueEnum;
use lab::show::Format;

/// How most commands print.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FormatArg {
    /// Tables in mmtests' layout, to paste into a mail
    Text,
    /// One line for each value or row, below a line with the names of the columns
    Csv,
    /// Everything, for programs
    Json,
}

/// How `show` prints: as other commands do, or as columns.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ShowFormatArg {
    /// Tables in mmtests' layout, to paste into a mail
    Text,
    /// One line for each value or row, below a line with the names of the columns
    Csv,
    /// Everything, for programs
    Json,
    /// Columns with types and units, as one JSON object: cells, samples, counters and causes; with --series or --stalls theirs.
    /// The Python package reads it (docs/python.md)
    Columns,
}

/// Columns are asked for, which only `show` prints.
pub(crate) struct AsColumns;

impl TryFrom<ShowFormatArg> for FormatArg {
    type Error = AsColumns;

    fn try_from(format: ShowFormatArg) -> Result<Self, AsColumns> {
        match format {
            ShowFormatArg::Text => Ok(Self::Text),
            ShowFormatArg::Csv => Ok(Self::Csv),
            ShowFormatArg::Json => Ok(Self::Json),
            ShowFormatArg::Columns => Err(AsColumns),
        }
    }
}

/// How progress is told on stderr.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ProgressArg {
    /// A bar where stderr is a terminal, else a line every 15 s (not with PAGELAB_PROGRESS=none); notes in words
    #[default]
    Bar,
    /// One JSON object in a line for each event, for programs: step, note, failed, finished
    Json,
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Text => Self::Text,
            FormatArg::Csv => Self::Csv,
            FormatArg::Json => Self::Json,
        }
    }
}
