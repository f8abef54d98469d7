//! Progress on stderr: a bar on a terminal, else notes alone; or a line of JSON for each event, for programs.

use std::{
    io::{IsTerminal, Write},
    path::Path,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::run::{Finished, Progress};
use serde::Serialize;

use crate::args::ProgressArg;

/// Progress as the user wants to see it.
pub(crate) enum Reporter {
    /// For people.
    Terminal(Terminal),
    /// For programs.
    Lines,
}

/// Progress on the terminal that stderr is, if it is one.
pub(crate) struct Terminal {
    bar: ProgressBar,
    /// Without bar and notes.
    quiet: bool,
}

/// A line of `--progress json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// So many of so many cells are done, and what is being done now.
    Step { done: usize, total: usize, doing: &'a str },
    /// Something worth knowing.
    Note { text: &'a str },
    /// A cell gave no result.
    Failed { text: &'a str },
    /// The run has come to its end, and this is its result.
    Finished { directory: &'a Path },
}

impl Reporter {
    /// Progress in this form; `quiet` leaves out bar and notes.
    pub(crate) fn new(form: ProgressArg, quiet: bool) -> Self {
        match form {
            ProgressArg::Bar => Self::Terminal(Terminal::new(quiet)),
            ProgressArg::Json => Self::Lines,
        }
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        if let Self::Terminal(terminal) = self {
            terminal.clear();
        }
    }

    /// Says which cells failed and where the result is.
    pub(crate) fn finished(&self, finished: &Finished) {
        for text in &finished.failures {
            self.line(&format!("failed: {text}"), &Event::Failed { text });
        }
        if !matches!(self, Self::Terminal(Terminal { quiet: true, .. })) {
            let directory = &finished.directory;
            self.line(&format!("results are in {}", directory.display()), &Event::Finished { directory });
        }
    }

    /// One line: these words for people, this event for programs. A reader that is gone is no error.
    fn line(&self, words: &str, event: &Event<'_>) {
        let _ = match self {
            Self::Terminal(_) => writeln!(std::io::stderr(), "pagelab: {words}"),
            Self::Lines => match serde_json::to_string(event) {
                Ok(line) => writeln!(std::io::stderr(), "{line}"),
                // Of all that is in them only a path may be no UTF-8.
                Err(error) => writeln!(std::io::stderr(), "pagelab: {words} ({error})"),
            },
        };
    }
}

impl Progress for Reporter {
    fn step(&mut self, done: usize, total: usize, doing: &str) {
        match self {
            Self::Terminal(terminal) => terminal.step(done, total, doing),
            Self::Lines => self.line("", &Event::Step { done, total, doing }),
        }
    }

    fn note(&mut self, text: &str) {
        match self {
            Self::Terminal(terminal) => terminal.note(text),
            Self::Lines => self.line("", &Event::Note { text }),
        }
    }
}

impl Terminal {
    pub(crate) fn new(quiet: bool) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("{elapsed:>4} [{pos}/{len}] {msg}");
        bar.set_style(style.expect("the template is well-formed"));
        if !quiet && std::io::stderr().is_terminal() {
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Self { bar, quiet }
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Terminal {
    fn step(&mut self, done: usize, total: usize, doing: &str) {
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(doing.to_owned());
    }

    fn note(&mut self, text: &str) {
        if self.quiet {
            return;
        }
        // `ProgressBar::println` is silent where there is no bar.
        self.bar.suspend(|| {
            let _ = writeln!(std::io::stderr(), "pagelab: {text}");
        });
    }
}
