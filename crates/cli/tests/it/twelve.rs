//! Twelve experiments give the same bytes with one, two and three workers, and in another locale, time zone and directory, with
//! other limits.

use std::{collections::BTreeSet, path::Path};

use crate::support::{TWO_NODES, document, room::Room, words};

const EXPERIMENTS: [&[&str]; 12] = [
    &["fault-storm", "size=2MiB", "iterations=1", "tasks=2", "model=threads", "page=huge"],
    &["fork-storm", "size=2MiB", "iterations=1", "page=base"],
    &["page-fault2", "size=2MiB", "iterations=1", "tasks=2", "model=processes"],
    &["page-fault3", "size=2MiB", "iterations=1", "tasks=2", "model=threads"],
    &["thpscale", "size=20%", "threads=2", "file=no", "advise=yes"],
    &["thpcompact", "size=20%", "threads=1", "advise=no"],
    &["thpfioscale", "size=20%", "threads=1", "jobs=1", "total=20%", "advise=no"],
    &["aged-fault", "aged=40%", "size=5%", "advise=yes"],
    &["slab-churn", "aged=20%", "writers=2", "total=5%", "size=5%", "advise=no"],
    &["small-files", "total=20%", "writers=2", "size=5%", "advise=yes"],
    &["numa-probe", "size=4MiB", "rounds=5", "load=30"],
    &["numa01", "size=16MiB", "threads=2", "rounds=2%"],
];

/// The part of each cell that a rerun repeats: key and measurements, the run hash among them.
fn cells(room: &Room, result: &str) -> Vec<String> {
    let cells = report::cells(document::whole_records(&room.here().join(result)));
    cells.iter().map(|cell| serde_json::to_string(&(&cell.key, &cell.measured)).expect("it serialises")).collect()
}

/// Runs an experiment with some workers: as it stands, or by a shell that changes what a process inherits.
fn run(room: &Room, arguments: &[String], (result, workers): (&str, &str), is_elsewhere: bool) -> Vec<String> {
    let out = room.here().join(result);
    let rest = ["--workers", workers, "-o", out.to_str().expect("paths of rooms are UTF-8")];
    let arguments: Vec<_> = arguments.iter().cloned().chain(rest.map(str::to_owned)).collect();
    let command = if is_elsewhere {
        let limits = "ulimit -n 256; ulimit -s 4096; umask 077; exec \"$0\" \"$@\"";
        let program = env!("CARGO_BIN_EXE_pagelab").to_owned();
        let of_shell: Vec<_> = ["-c".to_owned(), limits.to_owned(), program].into_iter().chain(arguments).collect();
        let mut command = room.command_of(Path::new("/bin/sh"), &of_shell);
        command.current_dir(room.path()).env("LC_ALL", "tr_TR.UTF-8").env("LANG", "de_DE").env("TZ", "Pacific/Apia");
        command
    } else {
        room.command(&arguments)
    };
    room.start(command).wait().expect(0);
    cells(room, result)
}

#[test]
fn twelve_experiments_give_the_same_bytes_wherever_they_run() {
    let room = Room::new();
    let machine = room.give("nodes.toml", format!("{TWO_NODES}\"kernel.numa_balancing\" = \"1\"\n"));
    let mut all = BTreeSet::new();
    for words_of_one in EXPERIMENTS {
        let (&experiment, params) = words_of_one.split_first().expect("a name");
        let start =
            ["run", experiment, "--target", "sim", "--machine", machine.as_str(), "--variant", "v6.1", "--seeds", "3"];
        let mut arguments = words(&[&start]);
        arguments.extend(params.iter().flat_map(|param| ["--set".to_owned(), (*param).to_owned()]));
        let one = run(&room, &arguments, (&format!("{experiment}-1"), "1"), false);
        assert!(one.len() >= 3, "{experiment}: a cell for each seed");
        assert_eq!(one, run(&room, &arguments, (&format!("{experiment}-2"), "2"), false), "{experiment}: two workers");
        assert_eq!(one, run(&room, &arguments, (&format!("{experiment}-3"), "3"), true), "{experiment}: elsewhere");
        // The control: cells differ.
        let cells = one.len() + all.len();
        all.extend(one);
        assert_eq!(all.len(), cells, "{experiment}");
    }
}
