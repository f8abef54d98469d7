//! Claims and scores from the command line: what can be said without a run, and mistakes. series.rs beside it judges a run.

use crate::support::room::Room;

#[test]
fn claims_of_a_series_that_does_not_run_are_not_yet_judged() {
    let room = Room::new();
    let text = room.run(&["claims", "s3"]).expect(0).stdout;
    for line in ["no experiment of ours makes these tables yet", "s3-1  not yet   ", "s3: 15 cannot be judged yet"] {
        assert!(text.lines().any(|found| found.trim_start().starts_with(line)), "{line} in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    let csv = room.run(&["claims", "s3", "--format", "csv"]).expect(0).stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].starts_with("series,id,claim,what,unit,published_low,"), "{csv}");
    assert!(lines[1..].iter().all(|line| line.starts_with("s3,s3-") && line.contains(",not yet,not yet,")), "{csv}");
    let json = room.run(&["claims", "s3", "--format", "json"]).expect(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json[0]["claims"].as_array().map(Vec::len), Some(15));
}

#[test]
fn mistakes_are_one_message() {
    let room = Room::new();
    for (arguments, expected) in [
        (&["claims", "s9"][..], "unknown published series \"s9\" (there are s0, s1, s2, s3, s4)"),
        (&["claims", "--result", "nowhere"], "nowhere is not a result directory"),
        (&["claims", "s0", "s1", "--result", "nowhere"], "--result is of one series"),
        (&["claims", "--result", "x", "--workers", "2"], "cannot be used with"),
        (&["claims", "--seeds", "0"], "expected how many"),
        (&["score", "nowhere"], "nowhere is not a result directory"),
    ] {
        let stderr = room.run(arguments).expect(2).stderr;
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
    // A result of something else.
    room.run(&[
        "run",
        "fault-storm",
        "--variant",
        "v6.1",
        "--machine",
        "one-node-512m",
        "--set",
        "tasks=1",
        "-o",
        "other",
    ])
    .expect(0);
    for (arguments, expected) in [
        (&["score", "other"][..], "other is of experiment fault-storm, which makes no published table"),
        (&["score", "other", "--published", "s0"], "s0 needs one of thpscale-4.1"),
        (&["score", "other", "--published", "s3"], "s3: no experiment makes this table yet"),
        (&["claims", "--result", "other"], "which makes no published table"),
    ] {
        let stderr = room.run(arguments).expect(2).stderr;
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn help_explains_the_words_of_claims_and_scores() {
    let room = Room::new();
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let help = room.run(&["claims", "--help"]).expect(0).stdout;
    for name in lab::published::names() {
        assert!(help.contains(&format!("\n  {name}  ")), "{name} is not among the series:\n{help}");
    }
    let help = words(help);
    assert!(help.contains("We chose the claims") && help.contains("holds by definition"), "{help}");
    let help = room.run(&["score", "--help"]).expect(0).stdout;
    for word in ["direction: ", "skill: ", "level: ", "ceiling: ", "`merged`"] {
        assert!(help.contains(word), "{word} is not explained:\n{help}");
    }
}
