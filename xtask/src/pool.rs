//! Several jobs at a time, and how long the rest of them will take.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use linux::host::monotonic_ns;

/// Runs each job, `at_once` jobs at a time; results come in the order of the jobs.
pub(crate) fn in_parallel<J: Sync, R: Send>(at_once: usize, jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..at_once.min(jobs.len()) {
            scope.spawn(|| {
                while let Some((at, job)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, jobs.get(at)?)))
                {
                    let result = work(job);
                    done.lock().expect("no job panicked").push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no job panicked");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Says what was done, and when the rest will be.
pub(crate) struct Clock {
    what: &'static str,
    start_ns: u64,
    total: usize,
    done: AtomicUsize,
}

impl Clock {
    pub(crate) fn start(what: &'static str, total: usize) -> Self {
        if total > 0 {
            eprintln!("{total} {what}");
        }
        Self { what, start_ns: monotonic_ns(), total, done: AtomicUsize::new(0) }
    }

    /// One more.
    pub(crate) fn done(&self, name: &str) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let seconds = (monotonic_ns() - self.start_ns) as f64 / 1e9;
        let left = seconds / done as f64 * self.total.saturating_sub(done) as f64;
        eprintln!("{} {done} of {}, {seconds:.0} s, about {left:.0} s left: {name}", self.what, self.total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        assert_eq!(in_parallel(3, &jobs, |job| job * 2), (0..100).map(|job| job * 2).collect::<Vec<_>>());
        assert!(in_parallel(3, &[], |job: &u64| *job).is_empty());
    }
}
