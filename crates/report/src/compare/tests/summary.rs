//! The three lines.

use super::*;
use crate::compare::summary_of;

const OLD: [f64; 8] = [100.0, 104.0, 98.0, 101.0, 97.0, 103.0, 99.0, 102.0];
const APART: [f64; 8] = [103.0, 97.0, 104.0, 98.0, 102.0, 99.0, 101.0, 100.0];

#[test]
fn the_largest_change_is_first_and_the_worst_has_its_numbers() {
    let of = |name: &str, times: f64| row(name, &OLD, &OLD.map(|run| run * times));
    let rows = vec![of("a", 1.1), of("b", 0.5), of("c", 1.3), row("d", &OLD, &APART), row("e", &OLD, &[0.0; 8])];
    let [moved, worst, not_told] = summary(&compared(rows), 72);
    assert_eq!(moved, "moved: 4 of 5 rows: Amean e -100%, Amean b -50.0% and 2 more");
    assert_eq!(worst, "worst: Amean c +30.0%, 100 to 131 us");
    assert!(not_told.starts_with("not told apart: 1 of 5; 5 % takes ") && not_told.ends_with(" seeds"), "{not_told}");
    let [moved, worst, not_told] = summary(&compared(vec![row("a", &OLD, &OLD)]), 72);
    assert_eq!(
        [moved, worst, not_told],
        ["moved: none of 1 rows", "worst: no row is worse", "not told apart: none of 1 rows"]
    );
}

#[test]
fn few_seeds_are_said_to_be_few() {
    let not_told = |rows: Vec<Row>| summary(&compared(rows), 72)[2].clone();
    assert_eq!(
        not_told(vec![row("a", &[1.0], &[2.0])]),
        "not told apart: 1 of 1 rows, of one seed; --seeds 8 would tell"
    );
    assert_eq!(
        not_told(vec![row("a", &[1.0; 3], &[2.0; 3])]),
        "not told apart: 1 of 1 rows, of fewer than 5 seeds; --seeds 8 would tell"
    );
}

#[test]
fn of_one_column_the_lines_say_what_its_runs_could_tell() {
    let table = |runs: &[f64]| {
        let comparison = compared(vec![row("a", runs, runs)]);
        let mut report = report_of(vec![row("a", runs, runs)]);
        for table in &mut report.tables {
            table.columns.truncate(1);
            table.rows.iter_mut().for_each(|row| row.cells.truncate(1));
        }
        summary_of(&report, &Comparison { rows: Vec::new(), ..comparison }, 80)
    };
    let [nothing, widest, seeds] = table(&OLD);
    assert_eq!(nothing, "moved: nothing to compare: one column (--variant or --set makes more)");
    assert_eq!(widest, "widest spread of 8 runs: 2.47%, Amean a");
    assert!(seeds.starts_with("to tell 5 % apart: ") && seeds.ends_with(" seeds, of 1 rows"), "{seeds}");
    assert_eq!(table(&OLD[..1])[2], "to tell changes from luck: --seeds 8; there is one seed");
}
