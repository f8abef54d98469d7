//! Where accesses of a service go: the draw of a block among many.

use rand_chacha::{ChaCha8Rng, rand_core::Rng};
use units::Time;

use super::plan::Share;
use crate::draw::below;

/// Draws blocks, of `0..blocks`.
#[derive(Debug)]
pub(super) struct Pattern {
    share: Share,
    blocks: u64,
    /// The block that comes next in a sequence.
    at: u64,
    zipf: Option<Zipf>,
    /// Frequent blocks lie apart: rank r is block r x step, modulo blocks.
    step: u64,
}

impl Pattern {
    /// `thread` of `threads` begins a sequence at its own part.
    pub(super) fn new(share: Share, blocks: u64, (thread, threads): (u32, u32)) -> Self {
        let at = blocks / u64::from(threads) * u64::from(thread);
        let zipf = match share {
            Share::Zipf(exponent) => Some(Zipf::new(blocks, f64::from(exponent) / 1000.0)),
            Share::Sequential | Share::Uniform | Share::Hot { .. } => None,
        };
        Self { share, blocks, at, zipf, step: coprime(blocks) }
    }

    /// The block of the next access, which is due at `now` after the start of the phase.
    pub(super) fn draw(&mut self, random: &mut ChaCha8Rng, start: Time, now: Time) -> u64 {
        match self.share {
            Share::Sequential => {
                let at = self.at;
                self.at = (at + 1) % self.blocks;
                at
            }
            Share::Uniform => below_u64(random, self.blocks),
            Share::Zipf(_) => {
                let rank = self.zipf.as_ref().expect("made with the pattern").draw(random) - 1;
                let block = u128::from(rank) * u128::from(self.step) % u128::from(self.blocks);
                u64::try_from(block).expect("below the number of blocks")
            }
            Share::Hot { part, accesses, moves } => {
                let hot = (self.blocks.saturating_mul(part.into()) / MILLION).max(1);
                let turns = moves.map_or(0, |moves| now.since(start).0 / moves.0.max(1));
                let from = turns.wrapping_mul(hot) % self.blocks;
                if below_u64(random, MILLION) < accesses.into() {
                    return (from + below_u64(random, hot)) % self.blocks;
                }
                below_u64(random, self.blocks)
            }
        }
    }
}

/// Parts are in millionths.
pub(super) const MILLION: u64 = 1_000_000;

/// A number below a bound above 0.
pub(super) fn below_u64(random: &mut ChaCha8Rng, bound: u64) -> u64 {
    below(random, usize::try_from(bound).expect("a number of things in memory")) as u64
}

/// A step through `blocks` that meets each of them, and that is no small one.
fn coprime(blocks: u64) -> u64 {
    // The golden section of all blocks, in thousandths.
    let mut step = (blocks.saturating_mul(618) / 1000) | 1;
    while gcd(step, blocks) != 1 {
        step += 2;
    }
    step
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Zipf's distribution over 1..=n by rejection from the integral of its density, which takes the same time for any n.
/// (W. Hörmann and G. Derflinger, Rejection-inversion to generate variates from monotone discrete distributions, 1996.)
#[derive(Debug)]
struct Zipf {
    n: f64,
    exponent: f64,
    below_first: f64,
    at_last: f64,
    accepted: f64,
}

impl Zipf {
    fn new(n: u64, exponent: f64) -> Self {
        let mut zipf = Self { n: n as f64, exponent, below_first: 0.0, at_last: 0.0, accepted: 0.0 };
        zipf.below_first = zipf.integral(1.5) - 1.0;
        zipf.at_last = zipf.integral(zipf.n + 0.5);
        zipf.accepted = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn draw(&self, random: &mut ChaCha8Rng) -> u64 {
        loop {
            // 53 bits are what a float holds.
            let unit = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            let drawn = self.at_last + unit * (self.below_first - self.at_last);
            let x = self.inverse(drawn);
            let rank = libm::floor(x + 0.5).clamp(1.0, self.n);
            if rank - x <= self.accepted || drawn >= self.integral(rank + 0.5) - self.density(rank) {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and from 1 to n")]
                return rank as u64;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(x))
    }

    /// The integral of the density from 1 to x.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let scaled = (1.0 - self.exponent) * log;
        let ratio = if scaled.abs() > 1e-8 { libm::expm1(scaled) / scaled } else { 1.0 + scaled / 2.0 };
        ratio * log
    }

    fn inverse(&self, integral: f64) -> f64 {
        let scaled = (integral * (1.0 - self.exponent)).max(-1.0);
        let ratio = if scaled.abs() > 1e-8 { libm::log1p(scaled) / scaled } else { 1.0 - scaled / 2.0 };
        libm::exp(ratio * integral)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;
    use units::Picos;

    use super::*;

    fn counted(share: Share, blocks: u64, draws: u32) -> Vec<u32> {
        let mut pattern = Pattern::new(share, blocks, (0, 1));
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut counts = vec![0; usize::try_from(blocks).unwrap()];
        (0..draws).for_each(|_| {
            counts[usize::try_from(pattern.draw(&mut random, Time(0), Time(0))).unwrap()] += 1;
        });
        counts
    }

    #[test]
    fn zipf_gives_each_rank_its_share() {
        for exponent in [500, 990, 1000, 1500] {
            let mut counts = counted(Share::Zipf(exponent), 100, 200_000);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let power = f64::from(exponent) / 1000.0;
            let weight = |rank: f64| libm::pow(rank, -power);
            let all: f64 = (1..=100).map(|rank| weight(f64::from(rank))).sum();
            for rank in [1_usize, 2, 10] {
                let expected = weight(rank as f64) / all * 200_000.0;
                let found = f64::from(counts[rank - 1]);
                assert!((found / expected - 1.0).abs() < 0.08, "{exponent} {rank}: {found} {expected}");
            }
        }
    }

    #[test]
    fn frequent_blocks_lie_apart() {
        let counts = counted(Share::Zipf(990), 1000, 100_000);
        let mut by_count: Vec<usize> = (0..1000).collect();
        by_count.sort_unstable_by_key(|block| std::cmp::Reverse(counts[*block]));
        assert!(by_count[0].abs_diff(by_count[1]) > 100, "{:?}", &by_count[..4]);
    }

    #[test]
    fn a_sequence_meets_every_block() {
        assert!(counted(Share::Sequential, 64, 128).iter().all(|count| *count == 2));
        assert_eq!(Pattern::new(Share::Sequential, 64, (1, 4)).at, 16);
    }

    #[test]
    fn a_hot_part_gets_its_accesses_and_moves() {
        let moves = Some(Picos::from_secs(10));
        let share = Share::Hot { part: 100_000, accesses: 900_000, moves };
        let hot: u32 = counted(share, 1000, 100_000)[..100].iter().sum();
        assert!((90_000..92_500).contains(&hot), "{hot}");
        let mut pattern = Pattern::new(share, 1000, (0, 1));
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let later = Time(0) + Picos::from_secs(25);
        let after_shift = (0..1000).filter(|_| (200..300).contains(&pattern.draw(&mut random, Time(0), later))).count();
        assert!(after_shift > 850, "{after_shift}");
    }

    #[test]
    fn a_step_meets_every_block() {
        for blocks in [1, 2, 3, 64, 1000, 1 << 20] {
            assert_eq!(gcd(coprime(blocks), blocks), 1, "{blocks}");
        }
    }
}
