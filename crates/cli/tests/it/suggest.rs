//! Commands that are suggested: the user's own, whole, and each runs as it stands, in a shell.

use std::{fs, path::Path};

use serde_json::Value;

use crate::support::{
    TINY, document,
    room::{Answer, PATIENCE_S, Room, within},
    words,
};

/// Every kind of word that a run has: files whose names a shell would split, values with blanks, seeds from 2 on.
const OWN: [&str; 14] = [
    "run",
    "fault-storm",
    "--machine",
    "my machine.toml",
    "--variant",
    "v6.1",
    "--variant",
    "mine's.toml",
    "--set",
    "vm.lowmem_reserve_ratio=256 256 32 0 0",
    "--seeds",
    "2-3",
    "--state",
    "fresh",
];

/// The words of [`OWN`] and [`TINY`] as a command has them.
const OWN_WORDS: &str = "pagelab run fault-storm --target sim --machine 'my machine.toml' --variant v6.1 \
    --variant 'mine'\\''s.toml' --set 'vm.lowmem_reserve_ratio=256 256 32 0 0' --set tasks=1 --set page=base \
    --set model=threads --set iterations=1 --set size=2MiB --seeds 2-3 --state fresh";

fn room() -> Room {
    let room = Room::new();
    let machine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/one-node-512m.toml");
    fs::copy(machine, room.here().join("my machine.toml")).expect("a machine");
    fs::write(room.here().join("mine's.toml"), "about = 'x'\nparent = 'v6.1'\n").expect("a variant");
    room
}

/// Runs a line in a shell, with this build as `pagelab`.
fn in_shell(room: &Room, line: &str) -> Answer {
    let mut command = room.command_of(Path::new("sh"), &["-c", line]);
    let program = Path::new(env!("CARGO_BIN_EXE_pagelab"));
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", program.parent().expect("a folder").display()));
    room.start(command).wait()
}

/// The command at the end of a line.
fn command_in(text: &str) -> String {
    let line = text.lines().find(|line| line.contains(": pagelab ")).unwrap_or_else(|| panic!("no command in {text}"));
    let at = line.rfind(": pagelab ").expect("it was found");
    line[at + 2..].to_owned()
}

/// Whether the second result is of the run of the first, but for samples and maps.
fn is_same_run(room: &Room, first: &str, second: &str) {
    let keys = |result: &str| {
        let cells = report::cells(document::whole_records(&room.here().join(result)));
        let keys = cells.into_iter().map(|cell| (cell.key, cell.measured.counters));
        keys.collect::<Vec<_>>()
    };
    assert_eq!(keys(first), keys(second), "{first} and {second}");
}

/// Returns the data behind a page.
fn page(room: &Room, file: &str) -> Value {
    let page = fs::read_to_string(room.here().join(file)).expect("a page");
    let (_, rest) = page.split_once("id=\"data\">").expect("data");
    let (json, _) = rest.split_once("</script>").expect("its end");
    serde_json::from_str(json).expect("JSON")
}

/// All commands of a page, each with its sentence.
fn commands_of(page: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let missing = page["missing"].as_array().expect("a list").iter().map(|pair| (text(&pair[0]), text(&pair[1])));
    let own = ["command", "compare"].map(|name| (name.to_owned(), text(&page[name])));
    own.into_iter().chain(missing).collect()
}

#[test]
fn what_a_result_lacks_is_recorded_by_the_command_that_is_said() {
    let room = room();
    room.run(&words(&[&OWN, &TINY, &["-o", "my results/"]])).expect(0);
    let series = command_in(&room.run(&["show", "my results", "--series"]).expect(2).stderr);
    assert_eq!(series, format!("{OWN_WORDS} --sample 100ms -o 'my results-sampled'"));
    let traced = room.run(&["export", "my results", "--to", "perfetto", "x.pftrace"]).expect(2).stderr;
    assert_eq!(command_in(&traced), series);
    let map = command_in(&room.run(&["map", "my results"]).expect(2).stderr);
    assert_eq!(map, format!("{OWN_WORDS} --sample 100ms --map -o 'my results-mapped'"));
    for command in [&series, &map] {
        in_shell(&room, command).expect(0);
    }
    is_same_run(&room, "my results", "my results-sampled");
    is_same_run(&room, "my results", "my results-mapped");
    room.run(&["show", "my results-sampled", "--series"]).expect(0);
    // A run that was sampled is sampled as often where a map is wanted.
    let map = command_in(&room.run(&["map", "my results-sampled"]).expect(2).stderr);
    assert!(map.ends_with(" --sample 100ms --map -o 'my results-sampled-mapped'"), "{map}");
    room.run(&["map", "my results-mapped"]).expect(0);
    room.run(&["export", "my results-mapped", "--to", "perfetto", "x.pftrace"]).expect(0);
}

#[test]
fn every_command_on_a_page_runs() {
    let room = room();
    room.run(&words(&[&OWN, &TINY[..8], &["--set", "size=2MiB,4MiB", "-o", "mine"]])).expect(0);
    let five = ["v5.0", "v5.4", "v5.10", "v5.14", "v5.1"].map(|name| ["--variant", name]).concat();
    room.run(&words(&[
        &["run", "fork-storm", "--machine", "one-node-512m"],
        &five,
        &["--set", "size=2MiB", "-o", "five"],
    ]))
    .expect(0);
    let pages: [&[&str]; 4] = [
        &["report", "mine", "-o", "my page.html"],
        &[
            "report",
            "mine",
            "--seeds",
            "3-3",
            "--kernel",
            "v6.1",
            "--case",
            "base-threads-1,size=2MiB",
            "-o",
            "one seed.html",
        ],
        &["report", "five", "-o", "five.html"],
        &["report", "mine", "five", "-o", "both.html"],
    ];
    for arguments in pages {
        let told = room.run(arguments).expect(0).stderr;
        let output = arguments.last().expect("a file");
        let page = page(&room, output);
        let compared = page["pairs"].as_array().is_some_and(|pairs| !pairs.is_empty());
        let commands = commands_of(&page);
        assert!(commands.len() > 3, "{commands:?}");
        if arguments.contains(&"--seeds") {
            let own =
                "pagelab report mine --seeds 3-3 --kernel v6.1 --case base-threads-1,size=2MiB -o 'one seed.html'";
            assert_eq!(page["command"], own);
        }
        // One after the other: the second of two may be about the result of the first.
        for (sentence, command) in commands {
            if sentence == "compare" && !compared {
                continue;
            }
            assert!(command.starts_with("pagelab ") && !command.contains("RESULT"), "{sentence} {command}");
            assert!(!command.starts_with("pagelab run ") || command.contains(" --target sim --machine "), "{command}");
            in_shell(&room, &command).expect(0);
        }
        let is_said = |line: &&str| line.contains(": pagelab run ");
        assert!(told.lines().any(|line| is_said(&line)), "{told}");
    }
}

/// Results of different workloads, and results none of whose kernels is in both.
#[test]
fn how_results_are_compared_that_have_nothing_in_common() {
    let room = room();
    let run = |experiment: &str, variants: &[&str], out: &str| {
        let variants: Vec<&str> = variants.iter().flat_map(|name| ["--variant", name]).collect();
        let machine =
            ["--machine", "one-node-512m", "--set", "iterations=1", "--set", "page=base", "--set", "size=2MiB"];
        room.run(&words(&[&["run", experiment], &machine, &variants, &["-o", out]])).expect(0);
    };
    run("fault-storm", &["v6.1", "v5.0"], "storm");
    run("fork-storm", &["v5.10"], "forks");
    let told = room.run(&["report", "storm", "forks", "-o", "page.html"]).expect(0).stderr;
    let page = page(&room, "page.html");
    let verdict = "Nothing is compared: storm and forks have no experiment in common: fault-storm, and fork-storm.";
    assert_eq!((page["verdict"].as_str(), page["pairs"].as_array().map(Vec::len)), (Some(verdict), Some(0)));
    let how: Vec<_> = commands_of(&page).into_iter().skip(2).take(3).map(|(_, command)| command).collect();
    let run_there = "pagelab run fork-storm --target sim --machine one-node-512m --variant v6.1 --set iterations=1 \
                     --set page=base --set size=2MiB -o forks-v6.1";
    assert_eq!(how, [run_there, "pagelab compare forks-v6.1 forks --against v6.1", "pagelab compare storm"]);
    let refused = room.run(&["compare", "storm", "forks"]).expect(2).stderr;
    for command in &how {
        assert!(told.contains(command) && refused.contains(command), "{command}: {told} {refused}");
        in_shell(&room, command).expect(0);
    }
    // Columns that are not alike: the command has an option that it takes.
    run("fork-storm", &["v6.1", "v5.0"], "others");
    let told = room.run(&["report", "others", "forks", "-o", "page.html"]).expect(0).stderr;
    let command = command_in(&told);
    assert_eq!(command, "pagelab compare others forks --against others:sim:v5.0:one-node-512m");
    assert!(!told.contains("name one of these with --against"), "{told}");
    in_shell(&room, &command).expect(0);
}

#[test]
fn what_goes_on_after_an_interruption_is_the_same_run() {
    let room = room();
    let run = words(&[&OWN, &["--set", "page=base", "--set", "size=32MiB", "--workers", "1", "-o", "result"]]);
    let running = room.start(room.command(&run));
    let file = room.here().join("result/result.jsonl");
    let has_cell = || fs::read_to_string(&file).is_ok_and(|text| text.contains("\"record\":\"cell\""));
    assert!(within(PATIENCE_S, has_cell), "no cell was done");
    running.press_ctrl_c();
    let answer = running.wait();
    // All cells may be done by then.
    if answer.status.success() {
        return;
    }
    let command = command_in(&answer.expect(130).stderr);
    assert!(command.ends_with("--set page=base --set size=32MiB --seeds 2-3 --state fresh -o result"), "{command}");
    let answer = in_shell(&room, &command).expect(0);
    assert!(answer.stderr.starts_with("pagelab: resuming result: "), "{}", answer.stderr);
    room.run(&words(&[&OWN, &["--set", "page=base", "--set", "size=32MiB", "-o", "whole"]])).expect(0);
    is_same_run(&room, "whole", "result");
}

#[test]
fn a_result_that_is_not_whole_says_how_it_is_finished() {
    let room = Room::new();
    room.run(&["cells", "thpscale-4.1", "--seeds", "1", "-o", "mine"]).expect(0);
    let refused = room.run(&["score", "mine"]).expect(2).stderr;
    let how = "run it to its end (pagelab run thpscale-4.1 --target sim -o mine), or choose";
    assert!(refused.contains(how), "{refused}");
}

#[test]
fn a_recipes_file_says_what_makes_it() {
    let room = room();
    // Kernels from 5.0 on compact while the recipe goes on.
    fs::write(room.here().join("mine's.toml"), "about = 'x'\nparent = 'v4.20'\n").expect("a variant");
    let make =
        ["state", "make", "--recipe", "metadata+anon", "--machine", "my machine.toml", "--variant", "mine's.toml"];
    room.run(&words(&[&make, &["-o", "my state.toml"]])).expect(0);
    let file = room.here().join("my state.toml");
    let text = fs::read_to_string(&file).expect("a recipe");
    let expected = "pagelab state make --recipe metadata+anon --unmovable 7% --blocks 34% --machine 'my machine.toml' \
                    --variant 'mine'\\''s.toml' --seeds 1-1 -o 'my state.toml'";
    assert_eq!(text.lines().nth(1), Some(format!("# {expected}").as_str()));
    in_shell(&room, expected).expect(0);
    assert_eq!(fs::read_to_string(&file).expect("a recipe"), text);
    // Of a file that another version has made.
    let sum = text.lines().find_map(|line| line.strip_prefix("checksum = ")).expect("a checksum");
    fs::write(&file, text.replace(sum, &format!("\"{}\"", "0".repeat(64)))).expect("written");
    let start = ["--machine", "my machine.toml", "--variant", "mine's.toml", "--state", "my state.toml"];
    let run = |out: &str| room.run(&words(&[&["run", "fault-storm"], &start, &TINY, &["-o", out]]));
    let failed = run("failed").expect(1).stderr;
    let command = command_in(&failed);
    assert_eq!(command.strip_suffix(')'), Some(expected), "{failed}");
    in_shell(&room, expected).expect(0);
    assert_eq!(fs::read_to_string(&file).expect("a recipe"), text);
    run("mine").expect(0);
}

/// Commands in the texts of `score`, `show` and `trust`.
#[test]
fn what_is_said_of_published_tables_runs() {
    let room = Room::new();
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/readme").display().to_string();
    let scored = room.run(&["score", &recorded]).expect(0).stdout;
    let claims = scored.lines().last().expect("a line").trim();
    assert_eq!(claims, format!("pagelab claims s0 --result {recorded}"));
    let judged = in_shell(&room, claims);
    assert!(judged.stdout.contains("thpscale-4.1") || judged.stdout.contains("claims"), "{judged:?}");
    assert_ne!(judged.status.code(), Some(2), "{judged:?}");
    let head = room.run(&["show", &recorded]).expect(0).stdout;
    let line = head.lines().find(|line| line.starts_with("prices: ")).expect("a line");
    let trust = in_shell(&room, &line[line.find("pagelab ").expect("a command")..]).expect(0).stdout;
    let trust = trust.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(trust.contains("pagelab claims s0."), "{trust}");
}
