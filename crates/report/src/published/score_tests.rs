//! Scores that can be worked out by hand.

use super::{
    scores,
    tests::{ours, series},
};

fn assert_near(found: Option<f64>, expected: f64) {
    let found = found.expect("a number");
    assert!((found - expected).abs() < 1e-9, "found {found}, expected {expected}");
}

#[test]
fn a_score_of_a_worked_example() {
    // a: x2 as published. b: halved, as published. c: nothing where it should be x4. d: no matter.
    let ours = ours(
        &[1],
        &[("a", &[50.0], &[100.0]), ("b", &[100.0], &[50.0]), ("c", &[400.0], &[400.0]), ("d", &[100.0], &[300.0])],
    );
    let scores = scores(&series(""), &ours);
    assert_eq!(scores.sets.len(), 1);
    let score = scores.sets[0].score;
    assert_eq!((score.rows, score.covered, score.material), (4, 4, 3));
    // One of two that rise, one of one that falls.
    assert_near(score.direction, 0.75);
    // Two of three sizes are exact, so that the median is.
    assert_near(score.skill, 1.0);
    // Baselines are off by 2, 1, 4 and 1: the median lies between 1 and 2 by factors.
    assert_near(score.level, 2.0_f64.sqrt());
    assert_eq!((score.inside, scores.sets[0].ceiling), (None, None));
    // Everything down by 15 %: the one that falls, and of sizes ln(2/0.85), ln(0.85/0.5) and ln(4/0.85) the middle one.
    let down = scores.sets[0].all_down;
    assert_near(down.direction, 0.5);
    assert_near(down.skill, 1.0 - libm::log(2.0 / 0.85) / libm::log(2.0));
}

#[test]
fn half_the_size_is_half_the_skill() {
    let root = 2.0_f64.sqrt();
    let cases: [(&str, &[f64], &[f64]); 3] =
        [("a", &[100.0], &[100.0 * root]), ("b", &[100.0], &[100.0 / root]), ("c", &[100.0], &[200.0])];
    let score = scores(&series(""), &ours(&[1], &cases)).sets[0].score;
    assert_near(score.direction, 1.0);
    assert_near(score.skill, 0.5);
    assert_eq!((score.rows, score.covered), (4, 3), "d is not covered");
    // Nothing changes: that is the zero of skill.
    let cases: [(&str, &[f64], &[f64]); 3] = [("a", &[1.0], &[1.0]), ("b", &[1.0], &[1.0]), ("c", &[1.0], &[1.0])];
    let score = scores(&series(""), &ours(&[1], &cases)).sets[0].score;
    assert_near(score.direction, 0.0);
    assert_near(score.skill, 0.0);
}

#[test]
fn the_ceiling_is_what_single_runs_get_by_the_others() {
    // Three runs: each by the mean of the other two. `a` rises by 2, by 2 and by 8.
    let ours = ours(&[1, 2, 3], &[("a", &[100.0, 100.0, 100.0], &[200.0, 200.0, 800.0])]);
    let set = scores(&series(""), &ours).sets.remove(0);
    let ceiling = set.ceiling.expect("three runs");
    assert_eq!(ceiling.runs, 3);
    assert_near(ceiling.direction.map(|runs| runs.mean), 1.0);
    // By 5 in the others of the first and second, by 2 in those of the third.
    let (of_two, of_third) = (1.0 - libm::log(2.5) / libm::log(2.0), 1.0 - libm::log(4.0) / libm::log(8.0));
    let skill = ceiling.skill.expect("it changes");
    assert_near(Some(skill.mean), (2.0 * of_two + of_third) / 3.0);
    assert!(skill.low < skill.mean && skill.mean < skill.high, "{skill:?}");
    assert_near(ceiling.level.map(|runs| runs.mean), 1.0);
    // 100 is in the range of three times 100, and 200 in that of the new kernel.
    assert_near(set.score.inside, 1.0);
}
