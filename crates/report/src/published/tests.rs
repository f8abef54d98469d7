//! Claims of a series small enough to be worked out by hand.

use super::{ours::Ours, *};

const SOURCE: &str = "about = 'a test'\ntitle = ''\nauthor = 'nobody'\ndate = '2020'\nwhere = ''\nmachine = ''\n\
                      experiment = 'x'\n[[column]]\nkernel = 'old'\nabout = 'without'\n[[column]]\nkernel = 'new'\n\
                      ours = 'mine'\nabout = 'with'\n";
/// Of three material changes two rise, by 2 and by 4, and one falls, by 2; one change is none, one is too few to count.
const TABLE: &str = "experiment,metric,case,kernel,value,better\n\
                     e,us,a,old,100.00,lower\ne,us,a,new,200.0,lower\n\
                     e,us,b,old,100,lower\ne,us,b,new,50,lower\n\
                     e,us,c,old,100,lower\ne,us,c,new,400,lower\n\
                     e,us,d,old,100,lower\ne,us,d,new,105,lower\n\
                     e,counter,few,old,7,lower\ne,counter,few,new,29,lower\n\
                     e,us.Max,a,old,100,lower\ne,us.Max,a,new,900,lower\n";
const ROWS: &str = "[[unscored]]\nmetric = '*.Max'\nwhy = 'an extreme'\n[[fitted]]\nkernel = 'old'\nmetric = 'us'\n\
                    case = 'a'\nwhy = 'chosen'\n[[wrong]]\nkernel = 'new'\ncase = ['b', 'c']\nwhy = 'not known'\n";

pub(super) fn series(claims: &str) -> Published {
    let files = [("source.toml", SOURCE), ("table.csv", TABLE), ("rows.toml", ROWS), ("claims.toml", claims)];
    let files = files.map(|(name, text)| (format!("published/t/{name}"), text.to_owned()));
    Published::parse("t", &files).expect("a series")
}

/// Values by seed of cases of the metric `us`: what the old kernel has, and the new one.
pub(super) fn ours(seeds: &[u64], cases: &[(&str, &[f64], &[f64])]) -> Ours {
    let mut values = Vec::new();
    for (case, old, new) in cases {
        for (kernel, of_seeds) in [("old", old), ("new", new)] {
            values.push((["e", "us", case, kernel].map(str::to_owned), of_seeds.to_vec()));
        }
    }
    Ours::of_values(seeds, &values)
}

#[test]
fn values_are_found_by_our_names() {
    let published = series("");
    let value = published.value("e", "us", "a", "mine").expect("a value");
    assert_eq!((value.digits.as_str(), value.number), ("200.0", 200.0));
    assert_eq!(published.value("e", "us", "a", "old").map(|value| value.digits.as_str()), Some("100.00"));
    assert_eq!(published.value("e", "us", "a", "new"), None, "ours is called otherwise");
    assert_eq!(published.value("e", "us", "x", "old"), None);
    assert_eq!(published.column("mine").map(|column| column.about.as_str()), Some("with"));
    assert_eq!(published.fitted("e", "us", "a", "old"), Some("chosen"));
    assert_eq!(published.fitted("e", "us", "a", "mine"), None);
    assert_eq!(published.wrong("e", "us", "c", "mine"), Some("not known"));
    assert_eq!(published.wrong("e", "us", "c", "old"), None);
}

/// A claim with one part about a ratio of the new kernel by the old.
fn claim(id: &str, more: &str, case: &str, part: &str) -> String {
    let selection = |kernel: &str| format!("{{ experiment = 'e', metric = 'us', case = {case}, kernel = '{kernel}' }}");
    format!(
        "[[claim]]\nid = '{id}'\nclaim = 'a claim'\nreason = 'a reason'\n{more}\n[[claim.part]]\nwhat = 'a part'\n\
         kind = 'ratio'\nof = {}\nby = {}\n{part}\n",
        selection("new"),
        selection("old")
    )
}

#[test]
fn a_claim_is_judged_by_the_mean_over_seeds() {
    let cases: [(&str, &[f64], &[f64]); 2] =
        [("a", &[100.0, 100.0, 100.0], &[100.0, 200.0, 300.0]), ("b", &[100.0, 100.0, 100.0], &[60.0, 60.0, 30.0])];
    let ours = ours(&[4, 5, 6], &cases);
    let claims = [
        claim("t-1", "", "'a'", "holds = { at_least = 2, at_most = 2 }"),
        claim("t-2", "suspected = 'a mechanism'", "'a'", "holds = { above = 2 }"),
        claim("t-3", "", "['a', 'b']", "count = 1\nholds = { below = 1 }"),
        claim("t-4", "", "['a', 'b']", "fold = 'geometric-mean'\nholds = { at_least = 0.99, at_most = 1.01 }"),
        claim("t-5", "unsettled = 'seeds differ'", "['a', 'b']", "holds = { within = 0.01 }"),
        claim("t-6", "", "'none'", "holds = { below = 1 }"),
    ];
    let judgement = judge(&series(&claims.concat()), Ok(&ours));
    let verdicts: Vec<_> = judgement.claims.iter().map(|claim| claim.verdict.clone()).collect();
    let not_yet = Verdict::NotYet("no us none of new".to_owned());
    assert_eq!(verdicts, [Verdict::Holds, Verdict::Fails, Verdict::Holds, Verdict::Holds, Verdict::Holds, not_yet]);
    // t-4 holds only just: the geometric mean of 2 and 0.5 is 1.
    let part = |claim: usize| &judgement.claims[claim].parts[0];
    assert_eq!(
        (part(0).published, part(0).ours, part(0).range),
        (Some((2.0, 2.0)), Some((2.0, 2.0)), Some((1.05, 2.95)))
    );
    assert_eq!((part(2).published, part(2).ours, part(2).count_of), (Some((1.0, 1.0)), Some((1.0, 1.0)), Some(2)));
    assert_eq!((part(4).published, part(4).ours), (Some((0.5, 2.0)), Some((0.0, 0.0))));
    // What is unsettled does not hold: three of five.
    assert_eq!((judgement.tally(false), judgement.is_reached()), ((3, 5), Some(false)));
    let text = claims_text(&series(&claims.concat()), &judgement);
    assert!(text.contains("3 of 5 claims hold, 1 cannot be judged yet: not reached"), "{text}");
    // Of three runs the least and the largest, not points between them.
    assert!(text.contains("all 3 runs") && text.contains("x1.00..3.00"), "{text}");
    assert!(text.contains("suspected: a mechanism") && text.contains("unsettled: seeds differ"), "{text}");
    assert_eq!(claims_csv(&[&judgement]).lines().count(), 7);
}

#[test]
fn nine_of_ten_hold_and_every_identity() {
    let reached = |held: usize, failed: usize, broken: usize| {
        let of = |name: &str, more: &str, bound: &str, times: usize| -> String {
            (0..times)
                .map(|at| claim(&format!("{name}-{at}"), more, "'a'", &format!("holds = {{ {bound} }}")))
                .collect()
        };
        let claims = of("held", "", "at_least = 1", held) + &of("failed", "", "below = 1", failed);
        let claims = claims + &of("identity", "identity = true", "below = 1", broken);
        judge(&series(&claims), Ok(&ours(&[1], &[("a", &[1.0], &[2.0])]))).is_reached()
    };
    assert_eq!(reached(9, 1, 0), Some(true));
    assert_eq!(reached(8, 1, 0), Some(false));
    assert_eq!(reached(10, 0, 1), Some(false));
    assert_eq!(reached(0, 0, 0), None);
}

#[test]
fn a_series_that_does_not_run_is_not_judged() {
    let published = series(&claim("t-1", "", "'a'", "holds = { below = 1 }"));
    let judgement = judge(&published, Err("no experiment makes this table yet"));
    assert_eq!(judgement.is_reached(), None);
    let text = claims_text(&published, &judgement);
    assert!(text.contains("t-1   not yet   a claim") && text.contains("x2.00"), "{text}");
}

#[test]
fn a_mistake_in_a_claim_names_it() {
    let message = |claims: String| {
        let files =
            [("source.toml", SOURCE.to_owned()), ("table.csv", TABLE.to_owned()), ("rows.toml", ROWS.to_owned())];
        let files = files.into_iter().chain([("claims.toml", claims)]);
        let files: Vec<_> = files.map(|(name, text)| (format!("published/t/{name}"), text)).collect();
        Published::parse("t", &files).expect_err("a mistake").to_string()
    };
    for (claims, expected) in [
        (claim("t-1", "", "'a'", "holds = { }"), "claims.toml: t-1: `holds` has no bound"),
        (claim("t-1", "", "'a'", "holds = { blow = 1 }"), "claims.toml:11: unknown field `blow`, expected one of"),
        (claim("t-1", "", "'a'", "").repeat(2), ": missing field `holds`"),
        (claim("t-1", "", "'a'", "holds = { below = 1 }").repeat(2), "claims.toml: t-1: there are two of it"),
        (
            claim("t-1", "", "'a'", "holds = { below = 1 }").replace("'new'", "'nwe'"),
            "claims.toml: t-1: a part: no result can have column \"nwe\"; did you mean \"new\"?",
        ),
        (
            claim("t-1", "", "'a'", "holds = { below = 1 }").replace("'ratio'", "'value'"),
            "claims.toml: t-1: kind Value takes no `by`",
        ),
    ] {
        let message = message(claims);
        assert!(message.contains(expected), "{message}");
    }
}
