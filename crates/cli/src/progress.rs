//! Progress on stderr: a bar on a terminal, else a line every 15 s; or a line of JSON for each event, for programs.

mod ticker;

use std::{
    io::{IsTerminal, Write},
    path::Path,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::{progress::Progress, run::Finished};
use linux::host::monotonic_ns;
use serde::Serialize;

use self::ticker::Ticker;
use crate::args::ProgressArg;

/// The variable that leaves out lines of progress, where its value is `none`.
const VARIABLE: &str = "PAGELAB_PROGRESS";

/// Progress as the user wants to see it.
pub(crate) enum Reporter {
    /// For people.
    Terminal(Terminal),
    /// For programs.
    Lines,
}

/// Progress on the terminal that stderr is, if it is one; else in lines.
pub(crate) struct Terminal {
    bar: ProgressBar,
    /// Writes the lines.
    ticker: Option<Ticker>,
    begun: Option<Begun>,
    /// Without bar and notes.
    quiet: bool,
}

/// A line of `--progress json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// `done` of `total` cells are finished, and the cell that is running now.
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

    fn warning(&mut self, text: &str) {
        match self {
            Self::Terminal(terminal) => terminal.warning(text),
            Self::Lines => self.note(text),
        }
    }
}

/// The first thing that was told.
#[derive(Clone, Copy)]
struct Begun {
    at_ns: u64,
    /// Cells that were done before.
    done: usize,
}

impl Begun {
    /// The time until all is done, if cells go on as they did; none before the first one is done.
    fn left(self, now_ns: u64, done: usize, total: usize) -> Option<Duration> {
        let new = u32::try_from(done.checked_sub(self.done)?).ok().filter(|new| *new > 0)?;
        let rest = u32::try_from(total.saturating_sub(done)).ok()?;
        Some(Duration::from_nanos(now_ns.saturating_sub(self.at_ns)) / new * rest)
    }
}

/// A time for people: `40 s`, `12 min`, `3 h 20 min`.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5999 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

impl Terminal {
    pub(crate) fn new(quiet: bool) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("{elapsed:>4} [{pos}/{len}] {msg}");
        bar.set_style(style.expect("the template is well-formed"));
        let is_terminal = std::io::stderr().is_terminal();
        if !quiet && is_terminal {
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        let wants_lines = std::env::var_os(VARIABLE).is_none_or(|value| value != "none");
        let ticker = (!quiet && !is_terminal && wants_lines).then(Ticker::start);
        Self { bar, ticker, begun: None, quiet }
    }

    /// Removes the bar, and ends the lines.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
        if let Some(ticker) = &self.ticker {
            ticker.stop();
        }
    }
}

impl Progress for Terminal {
    fn step(&mut self, done: usize, total: usize, doing: &str) {
        let now_ns = monotonic_ns();
        // Looking for a kernel's accelerator is a step of a run without cells.
        let begun = (total > 0).then(|| *self.begun.get_or_insert(Begun { at_ns: now_ns, done }));
        let left = begun.and_then(|begun| begun.left(now_ns, done, total));
        let left = left.map_or(String::new(), |left| format!("about {} left; ", in_words(left)));
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(format!("{left}{doing}"));
        if let Some(ticker) = &self.ticker {
            ticker.tell(format!("{done} of {total} cells done; {left}{doing}"));
        }
    }

    fn note(&mut self, text: &str) {
        if !self.quiet {
            self.warning(text);
        }
    }

    fn warning(&mut self, text: &str) {
        // `ProgressBar::println` is silent where there is no bar.
        self.bar.suspend(|| {
            let _ = writeln!(std::io::stderr(), "pagelab: {text}");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_in_sight_as_soon_as_a_cell_is_done() {
        let begun = Begun { at_ns: 1_000_000_000, done: 4 };
        let left = |seconds: u64, done| begun.left(seconds * 1_000_000_000, done, 10).map(|left| left.as_secs());
        assert_eq!((left(9, 4), left(9, 3)), (None, None), "cells of an earlier run say nothing of this one");
        assert_eq!((left(9, 5), left(9, 6), left(9, 10)), (Some(40), Some(16), Some(0)));
        assert_eq!(left(0, 5), Some(0), "a clock that goes back");
    }

    #[test]
    fn times_are_said_in_the_unit_that_people_would_use() {
        let words = |seconds| in_words(Duration::from_secs(seconds));
        assert_eq!([0, 99, 100, 5999, 6000].map(words), ["0 s", "99 s", "2 min", "100 min", "1 h 40 min"]);
    }
}
