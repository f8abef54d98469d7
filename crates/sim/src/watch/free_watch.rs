//! Free memory of the simulated machine over a whole run, whether or not samples are asked for: minimum, and mean over time.
//!
//! Looks are at instants of virtual time, as [samples](super::sampler) are, and do not depend on whether samples are taken.

use units::{Frames, Picos, Time};

/// Time between the first looks.
const EVERY: Picos = Picos(100_000_000);
/// After this number of looks the time between two is doubled: a week takes as many looks as a second.
const LOOKS: u32 = 8192;

/// Looks at free memory.
#[derive(Clone, Debug)]
pub(crate) struct FreeWatch {
    every: Picos,
    /// The next look.
    pub(crate) due: Time,
    /// Number of looks at the present distance.
    looks: u32,
    /// When the watch began.
    start: Time,
    /// Time of the last look, and the free frames at that time.
    last: Option<(Time, Frames)>,
    least: Frames,
    /// Free frames times picoseconds.
    area: u128,
}

/// Free memory of all zones together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// The least that was seen.
    pub least: Frames,
    /// The mean over time.
    pub mean: Frames,
}

impl Default for FreeWatch {
    fn default() -> Self {
        Self::from(Time(0))
    }
}

impl FreeWatch {
    /// A watch that begins at an instant.
    pub(crate) fn from(start: Time) -> Self {
        Self { every: EVERY, due: start, looks: 0, start, last: None, least: Frames(u64::MAX), area: 0 }
    }

    /// Takes a sample of the free memory, when a sample is due, and sets when the following sample is due.
    pub(crate) fn look(&mut self, at: Time, free: Frames) {
        self.see(at, free);
        self.looks += 1;
        if self.looks == LOOKS {
            (self.looks, self.every) = (0, Picos(self.every.0 * 2));
        }
        // Nothing has happened meanwhile, however long that was.
        let passed = at.since(self.due).0 / self.every.0 + 1;
        self.due = self.due + Picos(self.every.0 * passed);
    }

    fn see(&mut self, at: Time, free: Frames) {
        if let Some((before, was)) = self.last.replace((at, free)) {
            self.area += u128::from(was.0) * u128::from(at.since(before).0);
        }
        self.least = Frames(self.least.0.min(free.0));
    }

    /// Minimum and mean of the whole watch, up to the end.
    pub(crate) fn end(mut self, at: Time, free: Frames) -> Free {
        self.see(at, free);
        let span = u128::from(at.since(self.start).0);
        let mean = self.area.checked_div(span).map_or(free.0, |mean| u64::try_from(mean).unwrap_or(u64::MAX));
        Free { least: self.least, mean: Frames(mean) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_the_mean_over_time_and_the_least() {
        let mut watch = FreeWatch::from(Time(0));
        let at = |looks: u64| Time(EVERY.0 * looks);
        watch.look(at(0), Frames(100));
        assert_eq!(watch.due, at(1));
        watch.look(at(1), Frames(40));
        // A pause of three looks.
        watch.look(at(4), Frames(80));
        assert_eq!(watch.due, at(5));
        let found = watch.end(at(5), Frames(90));
        assert_eq!(found, Free { least: Frames(40), mean: Frames((100 + 3 * 40 + 80) / 5) });
        assert_eq!(FreeWatch::from(at(3)).end(at(3), Frames(7)), Free { least: Frames(7), mean: Frames(7) });
    }

    #[test]
    fn looks_of_a_long_run_are_far_apart() {
        let mut watch = FreeWatch::default();
        let mut looks = 0;
        while watch.due < Time(Picos::from_secs(3600).0) {
            watch.look(watch.due, Frames(1));
            looks += 1;
        }
        assert!(looks < 20 * LOOKS, "{looks}");
        assert_eq!(watch.end(Time(Picos::from_secs(3600).0), Frames(1)).mean, Frames(1));
    }
}
