//! The place of LRU lists in the twin: who joins and who leaves. The lists themselves come with the real ones.

/// Where anonymous memory waits to be reclaimed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lru {
    /// What is on a list, in the order in which it was put there: one list for all, until there are lists by node with
    /// batches by CPU before them.
    pub(crate) joined: std::collections::BTreeSet<u32>,
}

impl Lru {
    /// Memory that `cpu` has just mapped for the first time.
    pub(crate) fn add(&mut self, _cpu: usize, head: u32) {
        assert!(self.joined.insert(head), "frame {head} is on a list already");
    }

    /// Memory that goes back to the allocator.
    pub(crate) fn remove(&mut self, head: u32) {
        assert!(self.joined.remove(&head), "frame {head} is on no list");
    }
}
