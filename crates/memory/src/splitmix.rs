//! Linux: none; numbers without a pattern, for shuffled free lists and for accesses in random order.
//! Differs: Linux draws from its pool of randomness; here a number follows from the state alone.

/// The distance between two states of `splitmix64` (Steele, Lea and Flood, OOPSLA 2014).
pub(crate) const SPLITMIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that `splitmix64` draws in a state; the next state is [`SPLITMIX_STEP`] further.
pub fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(SPLITMIX_STEP);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
