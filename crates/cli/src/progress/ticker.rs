//! A line of progress every 15 s, for logs: whoever reads one sees that the run goes on, and where it is.

use std::{
    io::Write,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// The time between two lines.
const EVERY: Duration = Duration::from_secs(15);

/// A thread that writes the newest line again and again until it is stopped.
pub(super) struct Ticker {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    /// The newest line; none before the first.
    line: Option<String>,
    stopped: bool,
}

impl Ticker {
    /// Starts the thread. Where there is none to be had there are no lines.
    pub(super) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        // Detached: it ends with the process, or a moment after it was stopped.
        drop(thread::Builder::new().name("progress".to_owned()).spawn(move || theirs.write_lines(EVERY)));
        Self { shared }
    }

    /// Makes this the newest line.
    pub(super) fn tell(&self, line: String) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).line = Some(line);
    }

    /// Writes no line from now on.
    pub(super) fn stop(&self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
        self.shared.stopped.notify_all();
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Bound: one line in each period until the ticker is stopped.
    fn write_lines(&self, every: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let waited = self.stopped.wait_timeout_while(state, every, |state| !state.stopped);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.stopped {
                return;
            }
            if let Some(line) = &state.line {
                // Under the lock: no line comes after `stop` has returned. A reader that is gone is no error.
                let _ = writeln!(std::io::stderr(), "pagelab: {line}");
            }
        }
    }
}
