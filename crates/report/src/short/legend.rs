//! What the signs of short tables mean: said once, below all of them.

use std::collections::BTreeSet;

use super::{
    FITTED, WIDTH, WRONG,
    luck::{FEW, Luck},
    text::fold,
};
use crate::table::MANY_RUNS;

/// A sign in a table that a reader has to know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sign {
    Range,
    Same,
    Change,
    Ratio,
    Deviation,
    Luck,
    Fitted,
    Wrong,
    Combined,
}

impl Sign {
    /// What numbers are.
    const NUMBERS: [Self; 5] = [Self::Range, Self::Same, Self::Change, Self::Ratio, Self::Deviation];
    /// What marks are.
    const MARKS: [Self; 4] = [Self::Luck, Self::Fitted, Self::Wrong, Self::Combined];
}

/// Which signs the tables had.
#[derive(Default)]
pub(super) struct Seen {
    signs: BTreeSet<Sign>,
    /// Of how many runs ranges are.
    runs: BTreeSet<usize>,
    /// What runs said about changes.
    luck: BTreeSet<Luck>,
    /// Whether changes of published values were among them.
    published: bool,
}

impl Seen {
    pub(super) fn sign(&mut self, sign: Sign) {
        self.signs.insert(sign);
    }

    /// Marks of what is known about a published value.
    pub(super) fn marks(&mut self, marks: &str) {
        for (mark, sign) in [(FITTED, Sign::Fitted), (WRONG, Sign::Wrong)] {
            if marks.contains(mark) {
                self.sign(sign);
            }
        }
    }

    /// A range of so many runs.
    pub(super) fn range(&mut self, runs: usize) {
        self.runs.insert(runs);
        self.sign(Sign::Range);
    }

    /// A change between two published values.
    pub(super) fn published_change(&mut self) {
        self.published = true;
        self.sign(Sign::Change);
    }

    /// What runs say about a change that is shown.
    pub(super) fn tested(&mut self, luck: Luck) {
        self.luck.insert(luck);
        if luck != Luck::Unlikely {
            self.sign(Sign::Luck);
        }
    }

    /// What numbers are, then what marks are. `reasons` is where a reader finds why rows are known to be off.
    pub(super) fn lines(&self, reasons: &str) -> Vec<String> {
        let meanings = |signs: &[Sign]| {
            let there = signs.iter().filter(|sign| self.signs.contains(sign));
            there.map(|sign| self.meaning(*sign, reasons)).collect::<Vec<String>>()
        };
        [meanings(&Sign::NUMBERS), meanings(&Sign::MARKS)].iter().flat_map(|group| packed(group)).collect()
    }

    fn meaning(&self, sign: Sign, reasons: &str) -> String {
        match sign {
            Sign::Range => return format!("low-high: {}", self.ends()),
            Sign::Same => "=: all runs the same",
            Sign::Change if self.published => "%: change from the first column, of simulated or published",
            Sign::Change => "%: change from the first column",
            Sign::Ratio => "x: model over kernel",
            Sign::Deviation => "+-: the run that is furthest from the mean",
            Sign::Luck => return self.luck(),
            Sign::Fitted => "f fitted: the model was tuned to this row of the first column",
            Sign::Wrong => return format!("! simulated value known to be off; why: {reasons}"),
            Sign::Combined => "marks combine: ~! is both ~ and !",
        }
        .to_owned()
    }

    fn luck(&self) -> String {
        let all_few = !self.luck.contains(&Luck::Unlikely) && !self.luck.contains(&Luck::Possible);
        if all_few {
            return format!("~ fewer than {FEW} runs: no change can be told from luck");
        }
        let few =
            if self.luck.contains(&Luck::Unknown) { format!(", or fewer than {FEW} runs") } else { String::new() };
        format!("~ may be luck (95 % interval of the change holds 0{few})")
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

/// As many of them in a line as fit. One that is too long goes on in the next line.
fn packed(meanings: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for meaning in meanings.iter().flat_map(|meaning| fold(meaning, WIDTH)) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + meaning.chars().count() <= WIDTH => {
                line.push_str("; ");
                line.push_str(&meaning);
            }
            _ => lines.push(meaning),
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
            assert_eq!(seen.lines(""), [format!("low-high: {expected}")]);
        }
    }

    #[test]
    fn what_may_be_luck_says_why() {
        let line = |all: &[Luck]| {
            let mut seen = Seen::default();
            for luck in all {
                seen.tested(*luck);
            }
            seen.lines("").join("")
        };
        assert_eq!(line(&[Luck::Unlikely]), "");
        assert_eq!(line(&[Luck::Unlikely, Luck::Possible]), "~ may be luck (95 % interval of the change holds 0)");
        assert_eq!(line(&[Luck::Unknown]), "~ fewer than 5 runs: no change can be told from luck");
        let both = "~ may be luck (95 % interval of the change holds 0, or fewer than 5 runs)";
        assert_eq!(line(&[Luck::Unlikely, Luck::Unknown]), both);
    }

    #[test]
    fn a_change_is_of_what_has_changes() {
        let mut seen = Seen::default();
        seen.sign(Sign::Change);
        assert_eq!(seen.lines(""), ["%: change from the first column"]);
        seen.published_change();
        assert_eq!(seen.lines(""), ["%: change from the first column, of simulated or published"]);
    }

    #[test]
    fn a_line_is_as_full_as_it_can_be() {
        let meanings = ["a", "b", "c"].map(|letter| letter.repeat(39));
        assert_eq!(packed(&meanings), [format!("{}; {}", meanings[0], meanings[1]), meanings[2].clone()]);
        assert_eq!(packed(&[]), Vec::<String>::new());
    }
}
