//! Rules of a seed on every target; those in the simulator alone are in `sim`.

use units::Frames;

/// The frames that init takes before the workload and keeps, so that another seed is another layout of free memory: none for
/// seed 1, fewer than 16 MiB, and different for any 4,093 seeds in a row (a prime).
pub(crate) fn held(seed: u64) -> Frames {
    const MODULUS: u64 = 4093;
    Frames(seed.saturating_sub(1) % MODULUS * 61 % MODULUS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn seeds_hold_different_amounts() {
        assert_eq!([1, 2, 3].map(held), [Frames(0), Frames(61), Frames(122)]);
        assert_eq!((100..100 + 4093).map(held).collect::<BTreeSet<_>>().len(), 4093);
        assert!(held(u64::MAX) < Frames(4093));
    }
}
