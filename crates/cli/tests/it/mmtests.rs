//! `pagelab export --to mmtests`, numbers measured elsewhere in the commands that take results, and docs/mmtests.md.
//!
//! Where `PAGELAB_MMTESTS` names a checkout of gormanm/mmtests, its own compare-mmtests.pl says what is in an export. That needs
//! perl with File::Which, YAML::PP and File::Slurp; R, which it asks for the stars alone, need not be there.

use std::{collections::BTreeMap, fs, path::Path, path::PathBuf, process::Command};

use crate::support::{room::Room, skip};

fn recorded(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name).display().to_string()
}

fn programs() -> String {
    recorded("crates/cli/tests/it/s3-autonumabench")
}

fn jvms() -> String {
    recorded("crates/cli/tests/it/s3-autonumabench-specjbb-3.9")
}

/// Two kernels, two thread counts, two seeds.
fn thpscale(room: &Room) {
    let line = "run thpscale --variant v5.0 --variant v4.4 --set threads=1,3 --seeds 2 -o mine --quiet --format csv";
    room.run(&line.split(' ').collect::<Vec<_>>()).expect(0);
}

fn stores(room: &Room) {
    let line = "run will-it-scale --target sim --machine two-node-2g --variant v5.0 --variant v5.1 --set test=page_fault1 --set \
                tasks=1,2 --set seconds=1 --set size=4MiB -o wis --quiet --format csv";
    room.run(&line.split_whitespace().collect::<Vec<_>>()).expect(0);
}

/// The numbers of rows by their first two words, as mmtests and `show --full` print them, without percentages.
fn rows(text: &str) -> BTreeMap<(String, String), Vec<f64>> {
    let row = |line: &str| {
        let plain = line.replace(['(', ')', '*'], " ");
        let mut words = plain.split_whitespace();
        let name = (words.next()?.to_owned(), words.next()?.to_owned());
        let numbers: Vec<f64> = words.filter(|word| word.contains('.')).filter_map(|word| word.parse().ok()).collect();
        (!numbers.is_empty()).then_some((name, numbers))
    };
    text.lines().filter_map(row).collect()
}

/// The output of compare-mmtests.pl about a test; none where there is no mmtests.
fn by_mmtests(name: &str, room: &Room, directory: &str, more: &[&str]) -> Option<String> {
    let Some(checkout) = std::env::var_os("PAGELAB_MMTESTS").map(PathBuf::from) else {
        skip(name, "PAGELAB_MMTESTS names no checkout of gormanm/mmtests");
        return None;
    };
    let answer = Command::new(checkout.join("bin/compare-mmtests.pl"))
        .args(["-d", directory])
        .args(more)
        .current_dir(room.here())
        .env("HOME", room.path())
        .output()
        .expect("compare-mmtests.pl starts");
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(answer.status.success() && !text.is_empty(), "{answer:?}");
    Some(text)
}

/// Asserts that each row of mmtests that is expected is one of ours with the same numbers.
fn assert_same(theirs: &str, ours: &str, row: impl Fn(&str, &str) -> Option<(String, String)>, at_least: usize) {
    let (theirs, ours) = (rows(theirs), rows(ours));
    let mut compared = 0;
    for ((stat, operation), numbers) in &theirs {
        let Some(name) = row(stat, operation) else { continue };
        let found = ours.get(&name).unwrap_or_else(|| panic!("{name:?} is not among {:?}", ours.keys()));
        let is_near = |(one, other): (&f64, &f64)| (one - other).abs() < 0.0101;
        assert!(
            found.len() == numbers.len() && numbers.iter().zip(found).all(is_near),
            "{name:?}: {numbers:?}, {found:?}"
        );
        compared += 1;
    }
    assert!(compared >= at_least, "{compared} rows of {theirs:?}");
}

#[test]
fn mmtests_says_of_an_export_of_thpscale_what_show_says() {
    let room = Room::new();
    thpscale(&room);
    room.run(&["export", "mine", "--to", "mmtests", "to"]).expect(0);
    let names = ["-b", "thpchallenge", "-n", "v5.0-sim,v4.4-sim"];
    let name = "mmtests_says_of_an_export_of_thpscale_what_show_says";
    let Some(theirs) = by_mmtests(name, &room, "to", &names) else { return };
    let ours = room.run(&["show", "mine", "--full"]).expect(0).stdout;
    let same = |stat: &str, operation: &str| Some((stat.to_owned(), operation.to_owned()));
    assert_same(&theirs, &ours, same, 24);
    let theirs = by_mmtests(name, &room, "to", &[&names[..], &["-a", "counts"]].concat()).expect("it is there");
    let share =
        |stat: &str, operation: &str| (stat == "Amean").then(|| ("Percentage".to_owned(), operation.to_owned()));
    // Of several iterations the mean, here of percentages.
    assert_same(&theirs, &ours, share, 2);
}

#[test]
fn mmtests_says_of_an_export_of_autonumabench_what_show_says() {
    let room = Room::new();
    room.run(&["export", &programs(), "--to", "mmtests", "to"]).expect(0);
    let runs = "3.9.0-vanilla,3.9.0-favorpref-v4,3.9.0-scanshared-v4,3.9.0-splitprivate-v4,3.9.0-accountload-v4";
    let name = "mmtests_says_of_an_export_of_autonumabench_what_show_says";
    let Some(theirs) = by_mmtests(name, &room, "to", &["-b", "autonumabench", "-n", runs]) else { return };
    let ours = room.run(&["show", &programs(), "--format", "csv"]).expect(0).stdout;
    assert_values(&theirs, &ours, runs, 12, |stat, operation| {
        let (class, program) = operation.split_once('-')?;
        (stat == "Amean").then(|| (format!("time_s.{class}"), program.to_owned()))
    });
}

#[test]
fn mmtests_says_of_an_export_of_a_jvm_what_show_says() {
    let room = Room::new();
    let answer = room.run(&["export", &jvms(), "--to", "mmtests", "to"]).expect(0);
    assert!(answer.stderr.contains("left out: warehouses with several JVMs: "), "{}", answer.stderr);
    let runs = "3.9.0-vanilla,3.9.0-favorpref-v4,3.9.0-scanshared-v4,3.9.0-splitprivate-v4,3.9.0-accountload-v4";
    let name = "mmtests_says_of_an_export_of_a_jvm_what_show_says";
    let Some(theirs) = by_mmtests(name, &room, "to", &["-b", "specjbb", "-n", runs]) else { return };
    let ours = room.run(&["show", &jvms(), "--format", "csv"]).expect(0).stdout;
    let ours: String =
        ours.lines().filter(|line| line.contains("single-jvm")).map(|line| format!("{line}\n")).collect();
    assert_values(&theirs, &ours, runs, 8, |stat, operation| {
        let warehouses = operation.strip_prefix("tput-")?;
        (stat == "Ops").then(|| ("bops.TPut".to_owned(), format!("warehouses={warehouses}")))
    });
}

#[test]
fn mmtests_says_of_an_export_of_will_it_scale_what_show_says() {
    let room = Room::new();
    stores(&room);
    room.run(&["export", "wis", "--to", "mmtests", "to"]).expect(0);
    let sets: Vec<_> =
        fs::read_dir(room.here().join("to")).expect("it").flatten().filter(|entry| entry.path().is_dir()).collect();
    let name = "mmtests_says_of_an_export_of_will_it_scale_what_show_says";
    let directory = format!("to/{}", sets[0].file_name().display());
    let names = ["-b", "wis-pf", "-n", "v5.0-sim,v5.1-sim"];
    let Some(theirs) = by_mmtests(name, &room, &directory, &names) else { return };
    let ours = room.run(&["show", "wis", "--format", "csv"]).expect(0).stdout;
    let set = sets[0].file_name().display().to_string();
    let ours: String = ours.lines().filter(|line| line.starts_with(&set)).map(|line| format!("{line}\n")).collect();
    assert_values(&theirs, &ours, "sim:v5.0:,sim:v5.1:", 2, |stat, operation| {
        let (program, tasks) = operation.strip_prefix("ops-")?.rsplit_once('-')?;
        let (test, _) = program.rsplit_once('_')?;
        (stat == "Hmean").then(|| (format!("{test}.iterations"), format!("tasks={tasks}")))
    });
}

/// Asserts that rows of mmtests have the values of lines of ours: `experiment,metric,case,kernel,value,...` with an empty seed.
fn assert_values(
    theirs: &str,
    ours: &str,
    runs: &str,
    at_least: usize,
    row: impl Fn(&str, &str) -> Option<(String, String)>,
) {
    let mut compared = 0;
    for ((stat, operation), numbers) in rows(theirs) {
        let Some((metric, case)) = row(&stat, &operation) else { continue };
        for (number, run) in numbers.iter().zip(runs.split(',')) {
            let is_it = |line: &&str| {
                let words: Vec<&str> = line.split(',').collect();
                words[1] == metric && words[2] == case && words[3].contains(run) && line.ends_with(',')
            };
            let line = ours.lines().find(is_it).unwrap_or_else(|| panic!("{metric} {case} of {run} in\n{ours}"));
            let value: f64 = line.split(',').nth(4).expect("a value").parse().expect("a number");
            // Elapsed times go through awk there, which keeps six digits.
            assert!((value - number).abs() <= 0.0051 + 5e-6 * value, "{metric} {case} of {run}: {value}, {number}");
        }
        compared += 1;
    }
    assert!(compared >= at_least, "{compared} rows of\n{theirs}");
}

/// The verdicts of a comparison, and how many rows it has.
fn verdicts(room: &Room, results: &[&str]) -> Vec<String> {
    let text = room.run(&[&["compare"][..], results, &["--format", "csv"]].concat()).expect(0).stdout;
    text.lines().skip(1).filter_map(|line| Some(line.rsplit_once(',')?.1.to_owned())).collect()
}

#[test]
fn a_result_is_the_same_as_its_export() {
    let room = Room::new();
    thpscale(&room);
    let (programs, jvms) = (programs(), jvms());
    // Claims that need a second experiment of the series look for its result in the directory of the first.
    for (result, to) in [("mine", "to"), (programs.as_str(), "s3"), (jvms.as_str(), "s3-specjbb-3.9")] {
        room.run(&["export", result, "--to", "mmtests", to]).expect(0);
        for pair in [[result, to], [to, result]] {
            let verdicts = verdicts(&room, &pair);
            let is_same = |verdict: &String| verdict == "same" || verdict == "one run";
            assert!(verdicts.len() > 20 && verdicts.iter().all(is_same), "{verdicts:?}");
        }
        for args in [vec!["show", "--full"], vec!["show", "--format", "csv"]] {
            let shown = |of: &str| room.run(&[&args[..1], &[of], &args[1..]].concat()).expect(0).stdout;
            assert_eq!(shown(result), shown(to), "{args:?}");
        }
    }
    // An export is judged as what it was made of.
    let judged = |of: &str| room.run(&["claims", "s3", "--result", of, "--format", "csv"]).stdout;
    assert_eq!(judged(&programs), judged("s3"));
}

/// A run as mmtests leaves it on a real machine, in directory `real`.
fn real(room: &Room, run: &str) {
    let give = |name: &str, text: &str| {
        let path = room.here().join("real").join(run).join("iter-0").join(name);
        fs::create_dir_all(path.parent().expect("one")).expect("made");
        fs::write(path, text).expect("written");
    };
    for threads in [1, 3] {
        let faults: String = (0..40)
            .map(|at| format!("fault 0 {} {:>12} 5.{at} 1\n", if at % 4 == 0 { "huge" } else { "base" }, 600 + 40 * at))
            .collect();
        give(&format!("thpchallenge/logs/threads-{threads}.log"), &faults);
    }
    give(
        "tests-activity",
        "1700000000 run-mmtests: Start\n1700000002 run-mmtests: test start :: thpchallenge 1700000002\n",
    );
}

#[test]
fn a_run_of_a_real_machine_stands_beside_a_simulated_one() {
    let room = Room::new();
    thpscale(&room);
    real(&room, "v5.0");
    let text = room.run(&["compare", "mine", "real", "--full"]).expect(0).stdout;
    let row = text.lines().find(|line| line.starts_with("Percentage huge-1 ")).expect("a row");
    // Ten of the forty faults in each log of the real run are huge; the simulated share stands before that.
    let fields: Vec<_> = row.split_whitespace().collect();
    assert!(matches!(fields[..], ["Percentage", "huge-1", simulated, "25", ..] if simulated != "25"), "{row}");
    // A run's column is the one of the same name; for another name the user has to say which.
    real(&room, "6.8-other");
    fs::remove_dir_all(room.here().join("real/v5.0")).expect("removed");
    let answer = room.run(&["compare", "mine", "real"]).expect(2);
    assert!(answer.stderr.contains("name one of these with --against: "), "{}", answer.stderr);
    room.run(&["compare", "mine", "real", "--against", "v4.4"]).expect(0);
    room.run(&["compare", "real", "real"]).expect(0);
    room.run(&["show", "real"]).expect(0);
    let answer = room.run(&["claims", "--result", "real"]).expect(2);
    assert!(answer.stderr.contains("name the series it is held against: s0"), "{}", answer.stderr);
    let answer = room.run(&["claims", "s0", "--result", "real"]).expect(2);
    assert!(answer.stderr.contains("no run is a column of s0"), "{}", answer.stderr);
}

#[test]
fn a_run_of_a_real_machine_is_held_against_a_series() {
    let room = Room::new();
    for run in ["4.1-rc2+0", "4.1-rc2+4"] {
        real(&room, run);
    }
    let judged = room.run(&["claims", "s0", "--result", "real"]);
    assert!(judged.stdout.contains("s0"), "{judged:?}");
    let scored = room.run(&["score", "real", "--published", "s0"]).expect(0).stdout;
    assert!(scored.contains("direction"), "{scored}");
}

#[test]
fn what_cannot_be_exported_is_one_message() {
    let room = Room::new();
    fs::create_dir_all(room.here().join("full/x")).expect("made");
    let readme = recorded("docs/readme");
    for (result, to, expected) in [
        ("nowhere", "to", "nowhere is not a result directory"),
        (programs().as_str(), "full", "full is not empty"),
        (readme.as_str(), "to", "has not the time of every fault"),
    ] {
        let answer = room.run(&["export", result, "--to", "mmtests", to]).expect(2);
        assert_eq!(answer.stderr.lines().count(), 1, "{}", answer.stderr);
        assert!(answer.stderr.contains(expected), "{}", answer.stderr);
    }
    assert_eq!(fs::read_dir(room.here()).expect("it").count(), 1, "nothing is written");
    let answer = room.run(&["export", &programs(), "--to", "chrome", "to"]).expect(2);
    assert!(answer.stderr.contains("mmtests"), "{}", answer.stderr);
}
