//! Progress on stderr: a bar on a terminal, nothing else otherwise. Notes are printed either way.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::run::Progress;

/// Progress on the terminal that stderr is, if it is one.
pub(crate) struct Terminal {
    bar: ProgressBar,
    /// Without bar and notes.
    quiet: bool,
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
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "pagelab: {text}");
        });
    }
}
