//! Random draws of a run: numbers that follow from the seed, the drawing task or CPU, the purpose, and how many draws it
//! made for that purpose before.
//!
//! Each (seed, who, purpose) is a ChaCha8 stream of its own, and draw `n` is its `n`th 64-bit word: a draw changes no state,
//! so a variant that draws more often, or for something new, shifts no other draw.

use mm::whole::state::Drawn;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

/// The purpose of a draw. The numbers are part of every recorded hash and are only ever added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Purpose {
    /// The offset of the first instant within a timer tick; drawn once, as CPU 0.
    ClockOffset = 1,
    /// The offset of ticks from the multiples of their period; drawn once, as CPU 0.
    TickPhase = 2,
    /// The types of a map's pageblocks; drawn for the machine.
    BlockType = 3,
    /// The order of the free lists of a map.
    FreeOrder = 4,
    /// The unmarked frames of a map that are on per-CPU lists.
    Listed = 5,
    /// The order of the LRU lists of a map.
    LruOrder = 6,
    /// Time from the first instant to kcompactd's first check of its node; drawn for each node.
    CompactPhase = 7,
    /// The places of a system's memory in use before anything begins.
    System = 8,
    /// Time before the run at which its system's programs were started; drawn once.
    ProgramsPhase = 9,
    /// The places of blocks on shuffled free lists; drawn once.
    Shuffle = 10,
    /// The part of saturated memory that a CPU has; drawn for each CPU.
    Unevenness = 11,
    /// Interrupts at the instant of a branch; drawn for each CPU.
    Interrupts = 12,
}

/// Draws for memory that is loaded from a map: facts that the map does not have.
#[derive(Debug)]
pub(crate) struct StateDraws {
    draws: Draws,
    /// Number of draws so far for each purpose.
    counts: [u64; 5],
}

impl StateDraws {
    pub(crate) fn new(draws: Draws) -> Self {
        Self { draws, counts: [0; 5] }
    }
}

impl mm::whole::state::Draw for StateDraws {
    fn below(&mut self, bound: u64, what: Drawn) -> u64 {
        let (place, purpose) = match what {
            Drawn::BlockType => (0, Purpose::BlockType),
            Drawn::FreeOrder => (1, Purpose::FreeOrder),
            Drawn::Listed => (2, Purpose::Listed),
            Drawn::LruOrder => (3, Purpose::LruOrder),
            Drawn::System => (4, Purpose::System),
        };
        let n = self.counts[place];
        self.counts[place] += 1;
        self.draws.below(bound, 0, purpose, n)
    }
}

/// All random streams of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draws {
    seed: u64,
}

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Draw number `n` of `who` (a task, CPU or node, by the purpose) for a purpose.
    pub(crate) fn number(self, who: u64, purpose: Purpose, n: u64) -> u64 {
        number([self.seed, who, purpose as u64, 0], n)
    }

    /// Draws a number below `bound`; even to within 2^-64 of it.
    pub(crate) fn below(self, bound: u64, who: u64, purpose: Purpose, n: u64) -> u64 {
        let wide = u128::from(self.number(who, purpose, n)) * u128::from(bound);
        u64::try_from(wide >> 64).expect("less than the bound")
    }
}

/// Word `n` of the stream with this key.
fn number(key: [u64; 4], n: u64) -> u64 {
    const WORDS: u128 = 2; // of 32 bits each
    let mut bytes = [0; 32];
    for (chunk, part) in bytes.chunks_exact_mut(8).zip(key) {
        chunk.copy_from_slice(&part.to_le_bytes());
    }
    let mut stream = ChaCha8Rng::from_seed(bytes);
    stream.set_word_pos(u128::from(n) * WORDS);
    stream.next_u64()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// draft-strombergson-chacha-test-vectors-01, TC1 (key and nonce zero), 8 rounds, 256 bits: the first 32 bytes.
    #[test]
    fn the_stream_is_the_published_one() {
        let published =
            [0x3e00_ef2f_895f_40d6_u64, 0x7f5b_b8e8_1f09_a5a1, 0x2c84_0ec3_ce9a_7f3b, 0x181b_e188_ef71_1a1e];
        for (n, bytes) in (0..).zip(published) {
            assert_eq!(number([0; 4], n), bytes.swap_bytes(), "word {n}");
        }
    }

    #[test]
    fn a_draw_depends_on_nothing_that_was_drawn_before() {
        let draws = Draws::new(7);
        let late = draws.number(3, Purpose::ClockOffset, 1000);
        for n in 0..1000 {
            draws.number(3, Purpose::ClockOffset, n);
            draws.number(4, Purpose::ClockOffset, n);
        }
        assert_eq!(draws.number(3, Purpose::ClockOffset, 1000), late);
    }

    #[test]
    fn seeds_drawers_purposes_and_counts_are_streams_of_their_own() {
        let mut seen = BTreeSet::new();
        for part in 0..4 {
            for value in 1..=64 {
                let mut key = [0; 4];
                key[part] = value;
                assert!(seen.insert(number(key, 0)), "key part {part} is {value}");
            }
        }
        assert!((0..64).all(|n| seen.insert(number([0; 4], n))));
    }

    #[test]
    fn draws_below_a_bound_are_below_it_and_spread() {
        let draws = Draws::new(1);
        let counts = (0..8000).fold([0_u32; 8], |mut counts, n| {
            counts[usize::try_from(draws.below(8, 0, Purpose::ClockOffset, n)).unwrap()] += 1;
            counts
        });
        // Mean 1000, standard deviation 30.
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(draws.below(1, 0, Purpose::ClockOffset, 0), 0);
    }
}
