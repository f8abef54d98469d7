//! The legend below short tables: what their signs mean.

use std::collections::BTreeSet;

use super::{
    number::{FITTED, NEW, WIDTH, WRONG},
    text::fold,
};
use crate::{
    compare::{Gates, Verdict},
    table::MANY_RUNS,
};

/// A sign in a table that the legend explains.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sign {
    Range,
    Same,
    Change,
    New,
    Ratio,
    Deviation,
    Verdict,
    Fitted,
    Wrong,
    Combined,
}

impl Sign {
    /// Signs that explain numbers.
    const NUMBERS: [Self; 6] = [Self::Range, Self::Same, Self::Change, Self::New, Self::Ratio, Self::Deviation];
    /// Signs that explain marks.
    const MARKS: [Self; 4] = [Self::Verdict, Self::Fitted, Self::Wrong, Self::Combined];
}

/// The signs that the tables have used so far.
#[derive(Default)]
pub(super) struct Seen {
    signs: BTreeSet<Sign>,
    /// Numbers of runs behind the ranges.
    runs: BTreeSet<usize>,
    /// The verdicts that tables show.
    verdicts: BTreeSet<Verdict>,
    /// Do the tables have changes between published values?
    published: bool,
}

impl Seen {
    pub(super) fn sign(&mut self, sign: Sign) {
        self.signs.insert(sign);
    }

    /// Notes a change from another column, as it is printed.
    pub(super) fn change(&mut self, is_ratio: bool, text: &str) {
        self.sign(if is_ratio { Sign::Ratio } else { Sign::Change });
        if text == NEW {
            self.sign(Sign::New);
        }
    }

    /// Notes the marks of a published value.
    pub(super) fn marks(&mut self, marks: &str) {
        for (mark, sign) in [(FITTED, Sign::Fitted), (WRONG, Sign::Wrong)] {
            if marks.contains(mark) {
                self.sign(sign);
            }
        }
    }

    /// Notes a range over `runs` runs.
    pub(super) fn range(&mut self, runs: usize) {
        self.runs.insert(runs);
        self.sign(Sign::Range);
    }

    /// Notes a change between two published values.
    pub(super) fn published_change(&mut self) {
        self.published = true;
        self.sign(Sign::Change);
    }

    /// Notes the verdict on a change.
    pub(super) fn verdict(&mut self, verdict: Verdict) {
        self.verdicts.insert(verdict);
        self.sign(Sign::Verdict);
    }

    /// The legend's lines: first numbers, then marks. `reasons` says where readers find why rows are known to be off.
    pub(super) fn lines(&self, reasons: &str) -> Vec<String> {
        let meanings = |signs: &[Sign]| {
            let there = signs.iter().filter(|sign| self.signs.contains(sign));
            there.flat_map(|sign| self.meanings(*sign, reasons)).collect::<Vec<String>>()
        };
        [meanings(&Sign::NUMBERS), meanings(&Sign::MARKS)].iter().flat_map(|group| packed(group)).collect()
    }

    fn meanings(&self, sign: Sign, reasons: &str) -> Vec<String> {
        let meaning = match sign {
            Sign::Range => return vec![format!("low-high: {}", self.ends())],
            Sign::Same => "=: all runs the same",
            Sign::Change if self.published => "%: change from the first column, of simulated or published",
            Sign::Change => "%: change from the first column",
            Sign::New => "new: it was 0",
            Sign::Ratio => "x: model over kernel",
            Sign::Deviation => "+-: the run that is furthest from the mean",
            Sign::Verdict => return self.stars(),
            Sign::Fitted => "f fitted: the model was tuned to this row of the first column",
            Sign::Wrong => return vec![format!("! simulated value known to be off; why: {reasons}")],
            Sign::Combined => "marks combine: *! is both * and !",
        };
        vec![meaning.to_owned()]
    }

    /// The meaning of a star, or why there is none; nothing if no run differs from another.
    fn stars(&self) -> Vec<String> {
        let has = |verdicts: &[Verdict]| verdicts.iter().any(|verdict| self.verdicts.contains(verdict));
        let rule = Gates::default().in_words("");
        let mut meanings = Vec::new();
        if has(&[Verdict::Better, Verdict::Worse, Verdict::Differs]) {
            meanings.push(format!("* {rule}"));
        } else if has(&[Verdict::CannotTell, Verdict::NoChange]) {
            meanings.push(format!("no change has a *: {rule}"));
        }
        if has(&[Verdict::OneRun]) {
            meanings.push("one run on a side: no verdict, so no *".to_owned());
        } else if has(&[Verdict::DiffersInAll]) {
            meanings.push("differs in all runs, of fewer than 5: no verdict, so no *".to_owned());
        }
        meanings
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

/// Packs as many meanings into a line as fit. A meaning that is too long has lines of its own.
fn packed(meanings: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut is_open = false;
    for meaning in meanings {
        let folded = fold(meaning, WIDTH);
        match (lines.last_mut(), folded.as_slice()) {
            (Some(line), [meaning]) if is_open && line.chars().count() + 2 + meaning.chars().count() <= WIDTH => {
                line.push_str("; ");
                line.push_str(meaning);
            }
            _ => {
                is_open = folded.len() == 1;
                lines.extend(folded);
            }
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
    fn verdicts_say_what_a_star_is_or_why_there_is_none() {
        let line = |all: &[Verdict]| {
            let mut seen = Seen::default();
            for verdict in all {
                seen.verdict(*verdict);
            }
            seen.lines("").join(" ")
        };
        let rule = "separated (Holm over metrics, and over counters; 5 %) and material (1 % and more; of counts also 10 a \
                    run, of shares 0.5 points)";
        assert_eq!(line(&[Verdict::Same]), "");
        assert_eq!(line(&[Verdict::Worse, Verdict::CannotTell]), format!("* {rule}"));
        assert_eq!(line(&[Verdict::NoChange]), format!("no change has a *: {rule}"));
        assert_eq!(line(&[Verdict::OneRun, Verdict::Same]), "one run on a side: no verdict, so no *");
        assert_eq!(
            line(&[Verdict::Better, Verdict::OneRun]),
            format!("* {rule} one run on a side: no verdict, so no *")
        );
        assert_eq!(line(&[Verdict::DiffersInAll]), "differs in all runs, of fewer than 5: no verdict, so no *");
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
