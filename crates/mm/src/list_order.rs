//! Linux: list_head and list_lru, where order is all that counts (v6.1).
//! Differs: a map from the order of arrival, so that whoever is on it can leave from anywhere.

use std::collections::BTreeMap;

/// Things in the order in which they came. Each knows its place.
#[derive(Clone, Debug)]
pub(crate) struct Ordered<T> {
    by_place: BTreeMap<u64, T>,
    next: u64,
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self { by_place: BTreeMap::new(), next: 1 }
    }
}

impl<T: Copy> Ordered<T> {
    /// Puts one behind all others; its place.
    pub(crate) fn push(&mut self, what: T) -> u64 {
        let place = self.next;
        self.next += 1;
        self.by_place.insert(place, what);
        place
    }

    /// Takes one out by its place.
    pub(crate) fn remove(&mut self, place: u64) {
        let was = self.by_place.remove(&place);
        assert!(was.is_some(), "nothing is at place {place}");
    }

    /// The one that has been here the longest.
    pub(crate) fn first(&self) -> Option<T> {
        self.by_place.values().next().copied()
    }

    /// The first at a place or behind it, with its place.
    pub(crate) fn from(&self, place: u64) -> Option<(u64, T)> {
        self.by_place.range(place..).next().map(|(place, what)| (*place, *what))
    }

    pub(crate) fn len(&self) -> u64 {
        self.by_place.len() as u64
    }

    /// The place that the next one gets.
    pub(crate) fn end(&self) -> u64 {
        self.next
    }
}
