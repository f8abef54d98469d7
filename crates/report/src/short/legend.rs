//! What the signs of short tables mean: said once, below all of them.

use std::collections::BTreeSet;

use super::WIDTH;
use crate::table::MANY_RUNS;

/// A sign in a table that a reader has to know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sign {
    Range,
    Same,
    Change,
    Ratio,
    Spread,
    Fitted,
    Wrong,
}

impl Sign {
    /// What numbers are.
    const NUMBERS: [Self; 4] = [Self::Range, Self::Same, Self::Change, Self::Ratio];
    /// What marks are.
    const MARKS: [Self; 3] = [Self::Spread, Self::Fitted, Self::Wrong];
}

/// Which signs the tables had.
#[derive(Default)]
pub(super) struct Seen {
    signs: BTreeSet<Sign>,
    /// Of how many runs ranges are.
    runs: BTreeSet<usize>,
}

impl Seen {
    pub(super) fn sign(&mut self, sign: Sign) {
        self.signs.insert(sign);
    }

    /// A range of so many runs.
    pub(super) fn range(&mut self, runs: usize) {
        self.runs.insert(runs);
        self.sign(Sign::Range);
    }

    /// What numbers are, then what marks are.
    pub(super) fn lines(&self) -> Vec<String> {
        let meanings = |signs: &[Sign]| {
            let there = signs.iter().filter(|sign| self.signs.contains(sign));
            there.map(|sign| self.meaning(*sign)).collect::<Vec<String>>()
        };
        [meanings(&Sign::NUMBERS), meanings(&Sign::MARKS)].iter().flat_map(|group| packed(group)).collect()
    }

    fn meaning(&self, sign: Sign) -> String {
        match sign {
            Sign::Range => return format!("low-high: {}", self.ends()),
            Sign::Same => "=: all runs the same",
            Sign::Change => "%: change from the first column",
            Sign::Ratio => "x: model over kernel",
            Sign::Spread => "~ within the spread: ranges overlap",
            Sign::Fitted => "f fitted to it",
            Sign::Wrong => "! known to be wrong",
        }
        .to_owned()
    }

    /// Which runs are at the ends of a range.
    fn ends(&self) -> String {
        let (few, many): (Vec<usize>, Vec<usize>) = self.runs.iter().partition(|runs| **runs < MANY_RUNS);
        match (few.as_slice(), many.as_slice()) {
            ([], _) => "95 of 100 runs".to_owned(),
            ([runs], []) => format!("smallest and largest of {runs} runs"),
            ([.., most], []) => format!("smallest and largest of up to {most} runs"),
            _ => format!("smallest and largest run; from {MANY_RUNS} runs on 95 of 100"),
        }
    }
}

/// As many of them in a line as fit.
fn packed(meanings: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for meaning in meanings {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + meaning.chars().count() <= WIDTH => {
                line.push_str("; ");
                line.push_str(meaning);
            }
            _ => lines.push(meaning.clone()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_says_which_runs_it_is_of() {
        for (runs, expected) in [
            (&[2][..], "smallest and largest of 2 runs"),
            (&[39], "smallest and largest of 39 runs"),
            (&[3, 8], "smallest and largest of up to 8 runs"),
            (&[40], "95 of 100 runs"),
            (&[40, 100], "95 of 100 runs"),
            (&[8, 40], "smallest and largest run; from 40 runs on 95 of 100"),
        ] {
            let mut seen = Seen::default();
            for runs in runs {
                seen.range(*runs);
            }
            assert_eq!(seen.lines(), [format!("low-high: {expected}")]);
        }
    }

    #[test]
    fn a_line_is_as_full_as_it_can_be() {
        let meanings = ["a", "b", "c"].map(|letter| letter.repeat(39));
        assert_eq!(packed(&meanings), [format!("{}; {}", meanings[0], meanings[1]), meanings[2].clone()]);
        assert_eq!(packed(&[]), Vec::<String>::new());
    }
}
