//! The command line: help, lists, formats, and output into pipes.

use std::{fs, io, path::Path, process::Stdio};

use crate::support::{TINY, recording, room::Room, words};

#[test]
fn every_command_explains_itself() {
    let room = Room::new();
    let cases: [(&[&str], &str); 8] = [
        (&[], "pagelab run large-vm-4.18"),
        (&["completions"], "pagelab completions bash"),
        (&["man"], "pagelab man run | man -l -"),
        (&["run"], "pagelab run fault-storm --target vm --kernel"),
        (&["show"], "pagelab show "),
        (&["machine"], "pagelab machine import"),
        (&["machine", "import"], "pagelab machine import --from"),
        (&["list"], "pagelab list experiments"),
    ];
    for (command, example) in cases {
        let answer = room.run(&[command, &["--help"]].concat()).expect(0);
        assert_eq!(answer.stderr, "", "{command:?}");
        assert!(answer.stdout.contains("Usage: pagelab"), "{command:?}:\n{}", answer.stdout);
        assert!(answer.stdout.contains(&format!("  {example}")), "{command:?} has no example:\n{}", answer.stdout);
        assert!(!answer.stdout.contains("(inside)"), "{command:?} shows what users do not call");
    }
    for help in ["-h", "--help"] {
        let answer = room.run(&[help]).expect(0).stdout;
        assert!(answer.starts_with("Start with:  pagelab run large-vm-4.18\n"), "{answer}");
    }
    let help = room.run(&["--help"]).expect(0).stdout;
    assert!(help.contains("A patch can be tried on sim") && help.contains("docs/your-first-patch.md"), "{help}");
    let version = room.run(&["--version"]).expect(0).stdout;
    let [commit, program] = [lab::provenance::COMMIT, lab::provenance::PROGRAM_HASH];
    let expected = format!("pagelab {} (commit {commit}, program {program})\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(version, expected);
    room.assert_untouched("help");
}

#[test]
fn every_list_has_what_there_is() {
    let room = Room::new();
    let cases: [(&str, &[&str]); 8] = [
        ("variants", &["v3.9", "v4.1", "v4.20", "v5.10", "v6.1", "v6.7", "v6.12", "host"]),
        ("rules", &["Compaction", "  compact_capture", "The scheduler", "  scheduler"]),
        ("machines", &["one-node-512m", "two-node-2g", "one-node-4g", "four-node-2g"]),
        (
            "workloads",
            &[
                "fault-storm",
                "thpscale",
                "  script",
                "  page",
                "  model",
                "  tasks",
                "  iterations",
                "  size",
                "  duration",
            ],
        ),
        ("experiments", &["fault-storm"]),
        ("counters", &["pgfault", "pgfree", "sim_nr_tlb_remote_flush"]),
        ("settings", &["transparent_hugepage/enabled", "vm.min_free_kbytes", "vm.lowmem_reserve_ratio"]),
        ("kernels", &[]),
    ];
    for (what, known) in cases {
        let answer = room.run(&["list", what]).expect(0);
        assert_eq!(answer.stderr, "");
        assert!(!answer.stdout.is_empty(), "{what}");
        for name in known {
            let listed = answer.stdout.lines().any(|line| line == *name || line.starts_with(&format!("{name} ")));
            assert!(listed, "{what} has no {name}:\n{}", answer.stdout);
        }
    }
    let old_name = room.run(&["list", "knobs"]).expect(0).stdout;
    assert_eq!(old_name, room.run(&["list", "settings"]).expect(0).stdout, "an alias");
    assert!(old_name.contains(": 0 or 1; 1 if not set\n") && !old_name.contains("0 or 1: "), "{old_name}");
    // Near-twins have one name, and what serves one measurement is not in the way.
    let workloads = room.run(&["list", "workloads"]).expect(0).stdout;
    assert!(
        !workloads.lines().any(|line| line.starts_with("thpcompact") || line.starts_with("page-fault")),
        "{workloads}"
    );
    let counts = workloads.lines().find(|line| line.starts_with("  counts")).expect("a parameter of one script");
    assert!(counts.ends_with("(only with script = 2015)"), "{counts}");
    let few = room.run(&["list", "experiments"]).expect(0).stdout;
    let all = room.run(&["list", "experiments", "--all"]).expect(0).stdout;
    let name = |line: &str| line.split(' ').next().expect("a name").to_owned();
    let few: Vec<_> = few.lines().map(name).collect();
    let more: Vec<_> = all.lines().filter(|line| !few.contains(&name(line))).collect();
    assert_eq!(few.len() + more.len(), all.lines().count(), "{few:?}\n{all}");
    assert_eq!(more.len(), 2, "{more:?}");
    assert!(more[0].starts_with("fault-storm-16  ") && more[0].contains("(for the ratio"), "{more:?}");
    if let Ok(releases) = linux::kernel_image::list_cached() {
        let listed = room.run(&["list", "kernels"]).expect(0).stdout;
        assert!(releases.iter().all(|release| listed.lines().any(|line| line == release)), "{listed}");
    }
}

/// Help names the columns of CSV where they are these, and nowhere else.
#[test]
fn help_names_the_columns_that_csv_has() {
    let room = Room::new();
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/readme").display().to_string();
    let csv = room.run(&["show", &recorded, "--format", "csv"]).expect(0).stdout;
    let head = csv.lines().next().expect("a line").to_owned();
    for (command, has) in
        [("run", true), ("show", true), ("noise", false), ("ladder", false), ("claims", false), ("score", false)]
    {
        assert_eq!(room.run(&[command, "--help"]).expect(0).stdout.contains(&head), has, "{command}: {head}");
    }
}

#[test]
fn a_result_is_shown_again_as_it_was() {
    let room = Room::new();
    let host = ["run", "fault-storm", "--target", "host", "-o", "result", "--format"];
    // The second and third run find everything done and only print.
    for format in ["text", "csv", "json"] {
        let printed = room.run(&words(&[&host, &[format], &TINY])).expect(0);
        let shown = room.run(&["show", "result", "--format", format]).expect(0);
        assert_eq!(shown.stdout, printed.stdout, "{format}");
        assert_eq!(shown.stderr, "");
        // No bar, no colours: neither stream is a terminal.
        let resuming = "pagelab: resuming result: 1 of 1 cells are there\n";
        let notes = printed.stderr.strip_prefix(resuming).unwrap_or(&printed.stderr);
        assert_eq!(notes, "pagelab: results are in result\n", "{format}");
        assert_eq!(printed.stderr.starts_with(resuming), format != "text");
        assert!(!printed.stdout.contains(['\r', '\u{1b}']), "{format}");
    }
    let text = room.run(&["show", "result", "--full"]).expect(0).stdout;
    for part in ["Hmean base-threads-1", "Amean base-threads-1", "faults by getrusage", "Zones of host", "zones: equal"]
    {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert_csv(&room.run(&["show", "result", "--format", "csv"]).expect(0).stdout);
}

#[test]
fn a_short_table_fits_a_screen_and_quiet_prints_nothing_else() {
    let room = Room::new();
    let run = ["run", "fault-storm", "--target", "sim", "-o", "result"];
    let quiet = room.run(&words(&[&run, &TINY, &["--quiet"]])).expect(0);
    assert_eq!(quiet.stderr, "");
    assert!(quiet.stdout.starts_with("fault-storm Faults Per Second"), "{}", quiet.stdout);
    for columns in ["40", "80", "200"] {
        let mut command = room.command(&["show", "result"]);
        command.env("COLUMNS", columns);
        let shown = room.start(command).wait().expect(0).stdout;
        let (head, tables) = shown.split_once("\n\n").expect("a header and tables");
        assert!((2..=5).contains(&head.lines().count()), "{head}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert_eq!(tables, quiet.stdout);
        assert!(tables.contains("one seed: "), "{tables}");
    }
    let full = room.run(&["show", "result", "--full"]).expect(0).stdout;
    assert!(full.contains("program ") && full.contains(" prices are assumed; "), "{full}");
}

/// Lines of eight fields, with numbers where numbers belong.
fn assert_csv(text: &str) {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("experiment,metric,case,kernel,value,low,high,seed"));
    let mut metrics = Vec::new();
    for line in lines {
        assert!(!line.contains('"'), "a field with a comma: {line}");
        let fields: Vec<_> = line.split(',').collect();
        let [experiment, metric, _, kernel, value, low, high, seed] = fields.as_slice() else { panic!("{line}") };
        assert_eq!(*experiment, "fault-storm");
        assert!(kernel.starts_with("host:"), "{line}");
        assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
        assert!([low, high].iter().all(|bound| bound.is_empty() || bound.parse::<f64>().is_ok()), "{line}");
        assert!(["", "1"].contains(seed), "{line}");
        metrics.push(format!("{metric} {seed}").trim_end().to_owned());
    }
    for metric in [
        "fault_latency_ns.Amean",
        "fault_latency_ns.Amean 1",
        "check.faults by getrusage.within",
        "zone.live.min",
        "zone.live.protection0",
    ] {
        assert!(metrics.iter().any(|known| known == metric), "no {metric} in {metrics:?}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let room = Room::new();
    room.run(&words(&[&["run", "fault-storm", "--target", "host", "-o", "result"], &TINY])).expect(0);
    for args in [&["show", "result"][..], &["list", "counters"], &["machine", "import"]] {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let output = room.command(args).stdout(writer).stderr(Stdio::piped()).output().expect("pagelab runs");
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"".as_slice()), "{args:?}");
    }
}

#[test]
fn runs_that_begin_in_the_same_second_have_their_own_results() {
    let room = Room::new();
    let start = || room.start(room.command(&words(&[&["run", "fault-storm", "--target", "host"], &TINY])));
    let runs = [start(), start(), start()];
    for run in runs {
        let answer = run.wait().expect(0);
        assert!(answer.stderr.starts_with("pagelab: results are in results/fault-storm-"), "{}", answer.stderr);
        assert_eq!(answer.stderr.lines().count(), 1, "{}", answer.stderr);
    }
    assert_eq!(fs::read_dir(room.here().join("results")).expect("results").count(), 3);
}

#[test]
fn an_imported_machine_can_be_used() {
    let room = Room::new();
    room.run(&["machine", "import", "-o", "here.toml"]).expect(0);
    let text = fs::read_to_string(room.here().join("here.toml")).expect("the machine");
    assert_eq!(text, room.run(&["machine", "import"]).expect(0).stdout);
    let recorded = recording("proc/6.1-2n-2g/booted");
    let from = recorded.display().to_string();
    room.run(&["machine", "import", "--from", &from, "--name", "two", "-o", "two.toml"]).expect(0);
    let two = fs::read_to_string(room.here().join("two.toml")).expect("the machine");
    assert!(two.contains("id = 1") && two.contains("distance = [20, 10]") && two.contains("6.1.0-"), "{two}");
    // The image is looked at after the machine, so that its complaint says that the machine is well-formed.
    room.give(&format!("bin/{}", linux::qemu::EMULATOR), "");
    for file in ["here.toml", "two.toml"] {
        let guest = ["run", "fault-storm", "--target", "vm", "--accel", "tcg", "--machine", file, "--kernel", "./none"];
        let mut command = room.command(&guest);
        command.env("PATH", room.given("bin"));
        room.start(command).wait().expect(2).says(&["pagelab: --kernel ./none: "]);
    }
}
