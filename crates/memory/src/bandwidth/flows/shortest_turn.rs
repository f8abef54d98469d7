//! Linux: none.
//!
//! The shortest turn with which a node or link can serve all flows: a guess in floating point, which exact arithmetic then
//! corrects. So the turn does not depend on the guess, and few exact sums are taken, each of which divides once for each flow.

/// The rate that a resource can serve; other rates are in parts of it.
pub(super) const ONE: u128 = 1 << 32;

/// A flow, as far as one resource is concerned. Times are in picoseconds, for the pages of a round of the flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Pages of the round that come through the resource.
    pub(super) pages: u64,
    /// Time of all other pages of the round.
    pub(super) rest: u64,
    /// The least time of each of the pages, whatever the resource's turn is.
    pub(super) least: u64,
    /// The turn of the flow's CPU, in thousandths of the resource's turn.
    pub(super) thousandths: u64,
    /// CPUs for which a page comes once.
    pub(super) sharers: u64,
}

/// The claims on a resource that serves a page in `per_page` picoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claims<'a> {
    pub(super) of: &'a [Claim],
    pub(super) per_page: u64,
}

impl Claims<'_> {
    /// The shortest turn with which the resource can serve all claims, or `most` if that is shorter. It is found sooner if it
    /// is near `last`.
    pub(super) fn shortest_turn(&self, most: u64, last: u64) -> u64 {
        if most == 0 || self.is_enough(0) {
            return 0;
        }
        let guess = self.guess(most, last).clamp(1, most);
        // `short` is too short, `enough` is not, or is `most`.
        let (mut short, mut enough, mut step) = (0, most, 1_u64);
        // Bounds: the steps double, and then the distance halves.
        if guess == most || self.is_enough(guess) {
            enough = guess;
            while enough > step {
                if !self.is_enough(enough - step) {
                    short = enough - step;
                    break;
                }
                (enough, step) = (enough - step, step * 2);
            }
        } else {
            short = guess;
            while most - short > step {
                if self.is_enough(short + step) {
                    enough = short + step;
                    break;
                }
                (short, step) = (short + step, step * 2);
            }
        }
        while enough - short > 1 {
            let middle = u64::midpoint(short, enough);
            *(if self.is_enough(middle) { &mut enough } else { &mut short }) = middle;
        }
        enough
    }

    /// Whether the resource can serve what the flows ask of it with this turn.
    fn is_enough(&self, turn: u64) -> bool {
        let mut left = ONE;
        self.of.iter().all(|claim| match left.checked_sub(claim.asks(self.per_page, turn)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
    }

    /// A turn of at most `most` that is close to the shortest one.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a guess from 0 to `most`")]
    fn guess(&self, most: u64, last: u64) -> u64 {
        let beyond = |turn: f64| {
            let rate = |claim: &Claim| {
                let each = (turn * claim.thousandths as f64 / 1000.0).max(claim.least as f64);
                claim.pages as f64 / ((claim.rest as f64 + claim.pages as f64 * each).max(1.0) * claim.sharers as f64)
            };
            self.of.iter().map(rate).sum::<f64>() * self.per_page as f64 - 1.0
        };
        let [less, more] = [0.98, 1.02].map(|part| last as f64 * part);
        let (mut low, mut high) = ((less, beyond(less)), (more, beyond(more)));
        if low.1 <= 0.0 {
            (low, high) = ((0.0, beyond(0.0)), low);
        } else if high.1 >= 0.0 {
            (low, high) = (high, (most as f64, beyond(most as f64)));
        }
        // The method of false position, with the Illinois rule. Bound: more than it takes for a picosecond.
        for _ in 0..64 {
            if low.1 <= 0.0 || high.1 >= 0.0 || high.0 - low.0 < 0.5 {
                break;
            }
            let turn = (low.0 * high.1 - high.0 * low.1) / (high.1 - low.1);
            let at = beyond(turn);
            if at > 0.0 {
                low = (turn, at);
                high.1 /= 2.0;
            } else {
                high = (turn, at);
                low.1 /= 2.0;
            }
        }
        high.0.ceil() as u64
    }
}

impl Claim {
    /// The demand on the resource, in parts of what it can serve.
    pub(super) fn asks(&self, per_page: u64, turn: u64) -> u128 {
        let each = self.least.max(turn * self.thousandths / 1000);
        let round = (self.rest + self.pages * each).max(1);
        let pages = u128::from(self.pages) * u128::from(per_page) * ONE;
        let span = u128::from(round) * u128::from(self.sharers);
        match (u64::try_from(pages), u64::try_from(span)) {
            (Ok(pages), Ok(span)) => u128::from(pages / span),
            _ => pages / span,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitmix::mix;

    /// By halving alone.
    fn by_halves(claims: Claims<'_>, most: u64) -> u64 {
        let (mut short, mut enough) = (0, most);
        if claims.is_enough(0) {
            return 0;
        }
        while enough - short > 1 {
            let middle = u64::midpoint(short, enough);
            *(if claims.is_enough(middle) { &mut enough } else { &mut short }) = middle;
        }
        enough
    }

    #[test]
    fn the_shortest_turn_is_the_one_that_halving_finds() {
        let mut word = 7;
        let mut draw = |least: u64, most: u64| {
            word = mix(word);
            least + word % (most - least + 1)
        };
        let mut moved = 0;
        for _ in 0..2000 {
            let claim = |draw: &mut dyn FnMut(u64, u64) -> u64| {
                let scale = 1 << draw(0, 21);
                Claim {
                    pages: draw(1, 5000),
                    rest: draw(0, 1) * draw(0, 4000 * scale),
                    least: draw(0, scale),
                    thousandths: draw(900, 1100),
                    sharers: draw(1, 2),
                }
            };
            let of: Vec<Claim> = (0..draw(1, 48)).map(|_| claim(&mut draw)).collect();
            let claims = Claims { of: &of, per_page: 1 << draw(0, 21) };
            let most = 2 * claims.per_page * of.len() as u64;
            let expected = by_halves(claims, most);
            let found = [0, 1, expected, expected * 101 / 100, most, draw(0, 2 * most)]
                .map(|last| claims.shortest_turn(most, last));
            assert_eq!(found, [expected; 6], "{claims:?}");
            let found = expected;
            moved += u64::from(found > 0 && found < most);
        }
        assert!(moved > 500, "{moved} turns are neither the least nor the most");
    }
}
