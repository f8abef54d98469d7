//! Linux: list_head and list_lru, where order is all that counts (v6.1).
//! Differs: runs of places in the order of arrival. An entry can leave from anywhere, and a walk can go on behind a place
//! whose entry has left.

use std::collections::VecDeque;

/// Places in a run: the bits of a word.
const RUN: u32 = u64::BITS;

/// Entries in the order in which they came. The owner of an entry keeps its place.
#[derive(Clone, Debug)]
pub struct Ordered<T> {
    /// By place; a run that nobody is in any more takes no memory but its entry, and none while it is the first.
    runs: VecDeque<Option<Box<Run<T>>>>,
    /// Number of the first run: its places begin at `first_run * 64`.
    first_run: u64,
    next: u64,
    len: u64,
}

#[derive(Clone, Debug)]
struct Run<T> {
    /// One bit for each place that holds an entry.
    taken: u64,
    things: [Option<T>; RUN as usize],
}

/// Number of the run that holds a place, and the place's index in that run.
fn split(place: u64) -> (u64, usize) {
    (place / u64::from(RUN), usize::try_from(place % u64::from(RUN)).expect("a run is short"))
}

impl<T: Copy> Run<T> {
    /// The first entry of the run at index `at` or behind it.
    fn from(&self, at: usize) -> Option<(usize, T)> {
        let at = at + (self.taken >> at).trailing_zeros() as usize;
        Some((at, (*self.things.get(at)?)?))
    }
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self { runs: VecDeque::new(), first_run: 0, next: 1, len: 0 }
    }
}

impl<T: Copy> Ordered<T> {
    /// Puts one behind all others; its place.
    pub fn push(&mut self, what: T) -> u64 {
        let place = self.next;
        self.next += 1;
        self.len += 1;
        let (number, at) = split(place);
        if self.runs.is_empty() {
            self.first_run = number;
        }
        let run = usize::try_from(number - self.first_run).expect("memory holds the runs");
        if run == self.runs.len() {
            self.runs.push_back(None);
        }
        let run = self.runs[run].get_or_insert_with(|| Box::new(Run { taken: 0, things: [None; RUN as usize] }));
        run.taken |= 1 << at;
        run.things[at] = Some(what);
        place
    }

    /// Takes one out by its place.
    pub fn remove(&mut self, place: u64) {
        let (number, at) = split(place);
        let skip = number.checked_sub(self.first_run).and_then(|skip| usize::try_from(skip).ok());
        let entry = skip.and_then(|skip| self.runs.get_mut(skip)).expect("somebody was at a place of this run");
        let run = entry.as_mut().expect("somebody was at a place of this run");
        let was = run.things[at].take();
        assert!(was.is_some(), "nothing is at place {place}");
        run.taken &= !(1 << at);
        self.len -= 1;
        if run.taken == 0 {
            *entry = None;
            // Bound: each turn drops a run.
            while let Some(None) = self.runs.front() {
                self.runs.pop_front();
                self.first_run += 1;
            }
        }
    }

    /// The one that has been here the longest.
    pub fn first(&self) -> Option<T> {
        self.from(0).map(|(_, what)| what)
    }

    /// The first at a place or behind it, with its place.
    pub fn from(&self, place: u64) -> Option<(u64, T)> {
        let (number, at) = split(place.max(self.first_run * u64::from(RUN)));
        let skip = usize::try_from(number - self.first_run).expect("memory holds the runs");
        // Bound: the runs; an empty run costs one pointer to pass.
        (number..).zip(self.runs.iter().skip(skip)).find_map(|(run, things)| {
            let from = if run == number { at } else { 0 };
            let (at, what) = things.as_ref()?.from(from)?;
            Some((run * u64::from(RUN) + at as u64, what))
        })
    }

    /// Elements of the list.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The place that the next element gets.
    pub fn end(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::splitmix::mix;

    #[test]
    fn order_is_that_of_a_map_by_arrival() {
        let mut state = 7;
        let mut draw = |bound: u64| {
            state = mix(state);
            state % bound
        };
        let (mut ours, mut twin) = (Ordered::default(), BTreeMap::new());
        let mut most_runs = 0;
        for turn in 0..100_000_u64 {
            // By turns it grows and shrinks, down to nothing.
            let grows = turn / 1000 % 2 == 0;
            if draw(5) < if grows { 4 } else { 1 } {
                twin.insert(ours.push(turn), turn);
            } else if let Some((&place, _)) = twin.range(draw(ours.end())..).next().or_else(|| twin.iter().next()) {
                twin.remove(&place);
                ours.remove(place);
            }
            let from = draw(ours.end() + 2);
            assert_eq!(ours.from(from), twin.range(from..).next().map(|(place, what)| (*place, *what)));
            assert_eq!((ours.first(), ours.len()), (twin.values().next().copied(), twin.len() as u64));
            most_runs = most_runs.max(ours.runs.len());
        }
        assert!(most_runs > 5 && ours.runs.iter().flatten().count() as u64 <= ours.len().max(1), "{most_runs}");
    }

    #[test]
    #[should_panic(expected = "nothing is at place 1")]
    fn who_left_cannot_leave_again() {
        let mut ours = Ordered::default();
        let place = ours.push('a');
        ours.push('b');
        ours.remove(place);
        ours.remove(place);
    }
}
