//! The test that keeps a mechanism from its work: how often each was asked and failed, from cells run once more.
//!
//! A result counts what a kernel did. Why something was never done is in no counter: a test failed, each time or at one zone. The
//! cells run again, in a worker, with the tests counted where they are decided (`memory::tally`); the run hash and the log of
//! slow operations must come out the same.

use std::{path::PathBuf, sync::atomic::AtomicBool};

use memory::tally::{Count, Counted, Mechanism, Place, Row, Tally, Test};
use report::{Cell, Key, Record, WIDTH, short::text::fold};
use rules::variant::Variant;
use serde::Serialize;

use super::{Chosen, check_same, check_single, chosen, failed, numbers::count, run};
use crate::{
    order::{Order, Tests},
    progress::RunError,
    provenance, results,
    run::order_again,
    source::unknown,
    usage::UsageError,
};

/// A question about a mechanism.
#[derive(Clone, Debug)]
pub struct NothingWanted {
    /// The result directory.
    pub result: PathBuf,
    /// The name of the mechanism.
    pub mechanism: String,
    /// Of these cells.
    pub chosen: Chosen,
}

/// The answer for one kernel: the sum over its cells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nothing {
    mechanism: Mechanism,
    /// The kernel's column, by its label.
    kernel: String,
    /// The cells.
    cells: Vec<Key>,
    /// Whether the kernel has the mechanism.
    is_known: bool,
    /// Number of times that the mechanism has done its work.
    done: u64,
    /// The answer in a sentence.
    sentence: String,
    /// The tests, in the order of the kernel's code.
    tests: Vec<Line>,
}

/// A test of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Line {
    test: Test,
    function: &'static str,
    condition: &'static str,
    file: &'static str,
    /// The state in which the test passes.
    passes_if: &'static str,
    /// The unit that is counted.
    unit: &'static str,
    /// The sum over all places.
    #[serde(flatten)]
    all: Count,
    /// Whether the test was asked, and never passed.
    has_never_passed: bool,
    places: Vec<At>,
}

/// The counts of a test at a place.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct At {
    place: Place,
    #[serde(flatten)]
    count: Count,
    has_never_passed: bool,
}

/// Answers for each kernel of a result.
///
/// # Errors
/// No such mechanism; no result, none of the simulator, or one of another program; a cell that does not come out as it did.
pub fn nothing(wanted: &NothingWanted, stop: &AtomicBool) -> Result<Vec<Nothing>, RunError> {
    let names: Vec<&str> = Mechanism::ALL.iter().map(|mechanism| mechanism.name()).collect();
    let mechanism = Mechanism::named(&wanted.mechanism)
        .ok_or_else(|| UsageError::of_key("--nothing", unknown("mechanism", &wanted.mechanism, &names)))?;
    let directory = &wanted.result;
    let (identity, contents) = results::contents(directory, None)?;
    let is_cell = |record: &Record| matches!(record, Record::Cell(_));
    let (cells, others): (Vec<Record>, Vec<Record>) = contents.records.into_iter().partition(is_cell);
    let cells = report::cells(cells);
    let mut groups: Vec<(Variant, Vec<Key>, Tally)> = Vec::new();
    let cells = chosen(&cells, directory, &wanted.chosen)?;
    check_single(cells.iter().map(|cell| &cell.key))?;
    for cell in cells {
        let in_file = |problem| UsageError::in_file(directory.display(), problem);
        provenance::check_program(&cell.key.program).map_err(in_file)?;
        let order = order_again(directory, &identity, &others, &cell.key)?;
        let rules = order.simulated.as_ref().expect("the cell is simulated").variant.rules();
        let rules = rules.map_err(|problem| failed(&cell.key, &problem))?;
        let counts = counts(cell, &Order::Nothing(order), stop)?;
        let is_its = |(_, keys, _): &&mut (Variant, Vec<Key>, Tally)| keys[0].column() == cell.key.column();
        if let Some((_, keys, tally)) = groups.iter_mut().find(is_its) {
            keys.push(cell.key.clone());
            tally.add(&counts);
        } else {
            let mut tally = Tally::default();
            tally.add(&counts);
            groups.push((rules, vec![cell.key.clone()], tally));
        }
    }
    Ok(groups.into_iter().map(|(rules, keys, tally)| answer(mechanism, &rules, keys, &tally)).collect())
}

/// The counts of a cell that runs once more.
fn counts(cell: &Cell, order: &Order, stop: &AtomicBool) -> Result<Vec<Counted>, RunError> {
    let Tests { run_hash, slow_path, counts } = run(order, &cell.key, stop)?;
    let log = cell.slow_path.as_ref().expect("cells without a log were left out");
    check_same(cell, log, (&run_hash, &slow_path))?;
    Ok(counts)
}

fn answer(mechanism: Mechanism, rules: &Variant, cells: Vec<Key>, tally: &Tally) -> Nothing {
    let line = |row: &Row| {
        let places = tally.at(row.test).map(|(place, count)| {
            let has_never_passed = count.has_never_passed();
            At { place, count, has_never_passed }
        });
        let all = tally.sum(row.test);
        Line {
            test: row.test,
            function: row.function,
            condition: row.condition,
            file: row.file,
            passes_if: row.passes,
            unit: row.unit,
            all,
            has_never_passed: all.has_never_passed(),
            places: places.collect(),
        }
    };
    let is_known = mechanism.is_in(rules);
    let kernel = cells[0].column().label();
    Nothing {
        mechanism,
        sentence: sentence(mechanism, is_known.then_some(tally), &cells[0].kernel),
        kernel,
        cells,
        is_known,
        done: tally.done(mechanism),
        tests: mechanism.tests().filter(|row| (row.has)(rules)).map(line).collect(),
    }
}

/// The answer in a sentence; without counts, the kernel lacks the mechanism.
fn sentence(mechanism: Mechanism, tally: Option<&Tally>, kernel: &str) -> String {
    let Some(tally) = tally else {
        return format!("{kernel} has no {}: its rules lack the mechanism", mechanism.name());
    };
    let (done, times) = (mechanism.done(), tally.done(mechanism));
    let head = format!("{done} {} {}", count(times), if times == 1 { "time" } else { "times" });
    let Some((test, place, Count { asked, failed })) = tally.culprit(mechanism) else {
        let is_asked = mechanism.tests().any(|row| tally.sum(row.test).asked > 0);
        return head + if is_asked { ", and no test failed" } else { ": no test was asked, as nothing has wanted it" };
    };
    let ended = |(test, place, Count { asked, failed }): (Test, Option<Place>, Count)| {
        let Row { function, condition, unit, .. } = test.row();
        let at = place.filter(|place| *place != Place::Machine).map(|place| format!("({place})")).unwrap_or_default();
        format!("of {} {unit} {} ended at {condition}{at}, in {function}", count(asked), count(failed))
    };
    let lead = if times == 0 { ": " } else { "; otherwise, " };
    let before =
        tally.barrier_before(mechanism, test, failed).map(|barrier| format!("; before that, {}", ended(barrier)));
    format!("{head}{lead}{}{}", ended((test, place, Count { asked, failed })), before.unwrap_or_default())
}

/// Answers as text.
pub fn text(answers: &[Nothing]) -> String {
    answers.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// Answers as JSON.
pub fn json(answers: &[Nothing]) -> String {
    serde_json::to_string_pretty(answers).expect("counts serialise") + "\n"
}

/// Columns of a place.
const PLACE: usize = 16;
/// Columns of a number, with a space before it.
const NUMBER: usize = (WIDTH - 2 - Row::NAME_MAX - 1 - PLACE) / 2;

/// The block of a kernel: a sentence, its cells, and the table of its tests.
fn block(answer: &Nothing) -> String {
    let Nothing { kernel, cells, sentence, tests, .. } = answer;
    let Key { experiment, case, seed, .. } = &cells[0];
    let cells = match cells.len() {
        1 => format!("{kernel}: {experiment} {case}, seed {seed}"),
        number => format!("{kernel}: {experiment}, {number} cells"),
    };
    let mut lines = fold(sentence, WIDTH);
    lines.extend(fold(&cells, WIDTH));
    if !tests.is_empty() {
        lines.push(row("", ("test", "place"), ["asked", "failed"]));
        lines.extend(tests.iter().flat_map(rows));
    }
    if tests.iter().any(|test| test.places.iter().any(|at| at.has_never_passed)) {
        lines.push("! failed each time".to_owned());
    }
    lines.join("\n") + "\n"
}

/// A line for each place of a test.
fn rows(test: &Line) -> Vec<String> {
    let name = format!("{}: {}", test.function, test.condition);
    if test.places.is_empty() {
        return vec![row("", (&name, ""), ["0", "-"])];
    }
    let names = std::iter::once(name.as_str()).chain(std::iter::repeat(""));
    let line = |(at, name): (&At, &str)| {
        let mark = if at.has_never_passed { "!" } else { "" };
        let place = if at.place == Place::Machine { String::new() } else { at.place.to_string() };
        row(mark, (name, &place), [&count(at.count.asked), &count(at.count.failed)])
    };
    test.places.iter().zip(names).map(line).collect()
}

fn row(mark: &str, (name, place): (&str, &str), [asked, failed]: [&str; 2]) -> String {
    let name_max = Row::NAME_MAX;
    format!("{mark:<2}{name:<name_max$} {place:<PLACE$}{asked:>NUMBER$}{failed:>NUMBER$}")
}

#[cfg(test)]
mod tests {
    use rules::{variant::named, zone::ZoneKind};
    use units::NodeId;

    use super::*;

    fn zone(kind: ZoneKind) -> Place {
        Place::Zone(NodeId(0), kind)
    }

    #[test]
    fn the_zone_that_ends_each_round_is_in_the_sentence() {
        let mut tally = Tally::default();
        for _ in 0..812 {
            tally.count(Test::KswapdCompactOrder, Place::Node(NodeId(0)), true);
            tally.count(Test::KswapdCompactHasBlock, zone(ZoneKind::Dma), false);
        }
        assert_eq!(
            sentence(Mechanism::KswapdCompaction, Some(&tally), "v4.4"),
            "kswapd's compaction made a block 0 times: of 812 rounds 812 ended at zone_watermark_ok(DMA, node 0), \
             in balance_pgdat"
        );
        assert_eq!(
            sentence(Mechanism::Boost, Some(&tally), "v6.1"),
            "a zone raised its marks 0 times: no test was asked, as nothing has wanted it"
        );
        assert!(sentence(Mechanism::Boost, None, "v4.4").starts_with("v4.4 has no boost"));
        tally.count(Test::KswapdCompactMet, zone(ZoneKind::Dma), true);
        assert!(
            sentence(Mechanism::KswapdCompaction, Some(&tally), "v4.4")
                .starts_with("kswapd's compaction made a block 1 time; otherwise, ")
        );
    }

    #[test]
    fn only_tests_that_the_kernel_has_are_printed_and_each_fits() {
        for kernel in ["v3.9", "v4.4", "v4.8", "v6.1", "v6.12"] {
            for mechanism in Mechanism::ALL {
                let mut tally = Tally::default();
                for row in mechanism.tests() {
                    (0..12).for_each(|_| tally.count(row.test, zone(ZoneKind::Movable), false));
                }
                for row in mechanism.tests().filter(|row| (row.has)(named(kernel))) {
                    let line = Line {
                        test: row.test,
                        function: row.function,
                        condition: row.condition,
                        file: row.file,
                        passes_if: row.passes,
                        unit: row.unit,
                        all: tally.sum(row.test),
                        has_never_passed: true,
                        places: vec![At {
                            place: zone(ZoneKind::Movable),
                            count: Count { asked: 99_999_999, failed: 99_999_999 },
                            has_never_passed: true,
                        }],
                    };
                    assert!(rows(&line).iter().all(|line| line.chars().count() <= WIDTH), "{:?}", rows(&line));
                }
            }
        }
    }
}
