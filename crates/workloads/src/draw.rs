//! Draws of workloads.

use rand_chacha::rand_core::Rng;

/// Seeds that are near each other draw nothing alike, nor do the numbered parts of one run.
pub(crate) fn seed_of(seed: u64, part: u32) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(part.into())
}

/// A number below a bound.
pub(crate) fn below(random: &mut impl Rng, bound: usize) -> usize {
    let bound = u128::try_from(bound).expect("a number of things in memory");
    usize::try_from((u128::from(random.next_u64()) * bound) >> 64).expect("below the bound")
}
