//! Choices that follow from a seed. Each choice is a hash of the seed, the number of the cell that is drawn and the name of the
//! choice. A choice that is new, or gone, leaves all other choices of a seed as they were.

/// The choices that make one cell: of a draw of cells, or of a swarm's cases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dice<'a> {
    pub(crate) seed: &'a str,
    /// The number of the cell among all cells that are drawn with the seed.
    pub(crate) number: u64,
}

impl Dice<'_> {
    /// A number below a bound, which is at least 1.
    pub(crate) fn below(self, what: &str, bound: u64) -> u64 {
        let hash = blake3::hash(format!("{}/{}/{what}", self.seed, self.number).as_bytes());
        let first = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
        u64::from_le_bytes(*first) % bound
    }

    /// One of these values, each as likely as another.
    pub(crate) fn one_of<'v, T>(self, what: &str, values: &'v [T]) -> &'v T {
        let at = self.below(what, values.len() as u64);
        &values[usize::try_from(at).expect("below a length")]
    }

    /// One of these values, by their weights.
    pub(crate) fn weighted<'v, T>(self, what: &str, values: &'v [T], weight: impl Fn(&T) -> u64) -> &'v T {
        let mut left = self.below(what, values.iter().map(&weight).sum());
        let chosen = values.iter().find(|value| {
            let weight = weight(value);
            let is_it = left < weight;
            left = left.saturating_sub(weight);
            is_it
        });
        chosen.expect("the chances are the sum of the weights")
    }
}
