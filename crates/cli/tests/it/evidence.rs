//! Claims and scores from the command line: what can be said without a run, and mistakes. series.rs beside it judges a run.

use std::{fs, path::Path};

use crate::support::room::Room;

/// Puts a published series beside the user as if no experiment made its tables.
fn give_series_without_experiment(room: &Room, series: &str) {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../published").join(series);
    let given = room.here().join("published").join(series);
    fs::create_dir_all(&given).expect("a directory");
    for file in fs::read_dir(ours).expect("a published series") {
        let file = file.expect("a file");
        let text = fs::read_to_string(file.path()).expect("text");
        let runs = |line: &&str| line.starts_with("experiment = ") || line.starts_with("also = ");
        let lines: Vec<&str> = text.lines().filter(|line| !runs(line)).collect();
        fs::write(given.join(file.file_name()), lines.join("\n")).expect("a file");
    }
}

#[test]
fn claims_of_a_series_that_does_not_run_are_not_yet_judged() {
    let room = Room::new();
    give_series_without_experiment(&room, "s3");
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
    give_series_without_experiment(&room, "s3");
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

/// Seed 1 of `pagelab run thp-locality` (November 2026) without the columns and the details that no claim reads.
#[test]
fn a_recorded_result_settles_what_s4_claims_of_faults() {
    let room = Room::new();
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/s4-thp-locality");
    let place = recorded.to_str().expect("a name");
    let text = room.run(&["claims", "s4", "--result", place]).expect(0).stdout;
    for id in ["s4-1", "s4-2", "s4-3", "s4-4", "s4-5", "s4-8", "s4-9", "s4-10"] {
        assert!(text.lines().any(|line| line.starts_with(&format!("{id:<5} holds "))), "{id} in\n{text}");
    }
    for line in ["s4-6  not yet ", "s4-7  not yet ", "      % longer                       40.9          58.9 "] {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line} in\n{text}");
    }
    let last = "s4: 7 of 7 claims hold, 1 of 1 identities, 2 cannot be judged yet: reached";
    assert_eq!(text.lines().last(), Some(last), "{text}");
    assert_eq!(room.run(&["claims", "--result", place]).expect(0).stdout, text, "the result says what it is of");

    // Had 42 GB taken the released kernel no longer than 38 GB, the step of each GB would be another one.
    let lines = fs::read_to_string(recorded.join("result.jsonl")).expect("cells");
    let mut cells: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a cell")).collect();
    let seconds_of = |case: &str| {
        let is_its = |cell: &&serde_json::Value| cell["key"]["case"] == case && cell["key"]["variant"] == "v4.18";
        cells.iter().find(is_its).expect(case)["measured"]["metrics"][0].clone()
    };
    let (before, last) = (seconds_of("gb=38"), seconds_of("gb=42"));
    assert_eq!((&before["name"], &last["name"]), (&"seconds".into(), &"seconds".into()));
    for cell in cells.iter_mut().filter(|cell| cell["measured"]["metrics"][0] == last) {
        cell["measured"]["metrics"][0]["samples"] = before["samples"].clone();
    }
    fs::create_dir(room.here().join("other")).expect("a directory");
    fs::copy(recorded.join("run.json"), room.here().join("other/run.json")).expect("run.json");
    let lines: Vec<String> = cells.iter().map(|cell| format!("{cell}\n")).collect();
    fs::write(room.here().join("other/result.jsonl"), lines.concat()).expect("result.jsonl");
    let text = room.run(&["claims", "s4", "--result", "other"]).expect(1).stdout;
    assert!(text.lines().any(|line| line.starts_with("s4-3  fails ")), "{text}");
}

/// A series of two columns about thpscale: what it says of one case, with a bound that everything meets.
fn give_series(room: &Room, set: &str, metric: &str, case: &str, kernel: &str) {
    let folder = room.here().join("published/mine");
    fs::create_dir_all(&folder).expect("a directory");
    let source = "about = 'own numbers'\ntitle = ''\nauthor = 'me'\ndate = '2020'\nwhere = ''\nmachine = ''\nexperiment = \
                  'thpscale'\n[[column]]\nkernel = 'base1'\nours = 'v6.1'\nabout = 'base'\n[[column]]\nkernel = \
                  'lru1'\nours = 'v6.6'\nabout = 'with'\n";
    let of =
        |kernel: &str| format!("{{ experiment = '{set}', metric = '{metric}', case = '{case}', kernel = '{kernel}' }}");
    let claims = format!(
        "[[claim]]\nid = 'mine-1'\nclaim = 'no slower'\nreason = 'x'\n[[claim.part]]\nwhat = 'one thread'\nkind = \
         'ratio'\nof = {}\nby = {}\nholds = {{ above = 0 }}\n",
        of(kernel),
        of("base1")
    );
    // The table has what the claim is about, so that it is no authority.
    let rows = ["base1", "lru1"].map(|kernel| format!("{set},{metric},{case},{kernel},15,lower\n")).concat();
    let table = format!("experiment,metric,case,kernel,value,better\n{rows}");
    for (name, text) in [("source.toml", source), ("rows.toml", ""), ("claims.toml", &claims), ("table.csv", &table)] {
        fs::write(folder.join(name), text).expect("a file");
    }
}

/// A row that no result can have is a mistake; one that was not measured is none, and says why.
#[test]
fn a_claim_about_a_row_that_cannot_be_is_a_mistake() {
    let room = Room::new();
    let run = "run thpscale --target sim --machine one-node-512m --variant v6.1 --set threads=1 -o R";
    room.run(&run.split(' ').collect::<Vec<_>>()).expect(0);
    let amean = "fault_latency_us.Amean";
    for (set, metric, case, kernel, expected) in [
        ("thpscale", amean, "fault-hugh-1", "base1", "case \"fault-hugh-1\"; did you mean \"fault-huge-1\"?"),
        ("thpscale", "fault_latncy_us.Amean", "fault-huge-1", "base1", "did you mean \"fault_latency_us.Amean\"?"),
        ("thpscale", "compact_stal", "1", "base1", "did you mean \"compact_stall\"?"),
        (
            "thpscal",
            amean,
            "fault-huge-1",
            "base1",
            "no result can have set of tables \"thpscal\"; did you mean \"thpscale\"?",
        ),
        ("thpscale", amean, "fault-huge-1", "lru2", "no result can have column \"lru2\"; did you mean \"lru1\"?"),
    ] {
        give_series(&room, set, metric, case, kernel);
        let answer = room.run(&["claims", "mine", "--result", "R"]).expect(2);
        assert!(answer.stderr.contains(expected), "{}", answer.stderr);
        assert!(
            answer.stderr.starts_with("pagelab: published/mine/claims.toml: mine-1: one thread: "),
            "{}",
            answer.stderr
        );
    }
    for (metric, case, kernel, verdict) in [
        (amean, "fault-huge-1", "base1", "holds,"),
        (
            amean,
            "fault-huge-1",
            "lru1",
            "not yet,not yet,no fault_latency_us.Amean fault-huge-1 of lru1: this column was not run",
        ),
        (
            amean,
            "fault-huge-64",
            "base1",
            "not yet,not yet,no fault_latency_us.Amean fault-huge-64 of base1: this case was not run",
        ),
        ("fault_latency_us.Hmean", "fault-huge-1", "base1", "not yet,not yet,"),
        ("compact_daemon_wake", "64", "base1", "not yet,not yet,"),
        (amean, "fault-huge-advised-1", "base1", "not yet,not yet,"),
    ] {
        give_series(&room, "thpscale", metric, case, kernel);
        let csv = room.run(&["claims", "mine", "--result", "R", "--format", "csv"]).expect(0).stdout;
        assert!(csv.contains(verdict), "{metric} {case}: {csv}");
    }
}
