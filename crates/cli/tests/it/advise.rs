//! Advice from two captures of /proc/vmstat: nothing helps, no profile is like the machine, and files that are not enough.

use std::fs;

use crate::support::room::Room;

/// A quiet machine: little memory in use, little of it taken anew.
const QUIET: [&str; 2] = [
    "nr_free_pages 100000\nnr_inactive_anon 20000\nnr_active_anon 0\nnr_file_pages 2000\nnr_anon_transparent_hugepages 39\n\
     pgalloc_dma32 100000\npgfree 80000\npgfault 300\nthp_fault_alloc 100\n",
    "nr_free_pages 100000\nnr_inactive_anon 20000\nnr_active_anon 0\nnr_file_pages 2000\nnr_anon_transparent_hugepages 39\n\
     pgalloc_dma32 105120\npgfree 85120\npgfault 310\nthp_fault_alloc 110\n",
];

/// That machine, with counters that no demand explains.
fn odd() -> [String; 2] {
    let beside = |capture: &str, times: u64| {
        let names = ["compact_stall", "compact_fail", "pgscan_direct", "pgsteal_direct", "allocstall_normal", "pswpin"];
        let lines: String = names.iter().map(|name| format!("{name} {}\n", 100_000 * times)).collect();
        format!("{capture}{lines}")
    };
    [beside(QUIET[0], 1), beside(QUIET[1], 2)]
}

fn captured(room: &Room, captures: [&str; 2]) {
    let folder = room.here().join("captures");
    fs::create_dir_all(&folder).expect("a folder");
    for ((name, capture), uptime) in ["before", "after"].iter().zip(captures).zip(["70.00 1.0\n", "80.00 1.0\n"]) {
        fs::write(folder.join(format!("vmstat.{name}")), capture).expect("written");
        fs::write(folder.join(format!("uptime.{name}")), uptime).expect("written");
    }
}

const ADVISE: [&str; 5] = ["advise", "--from", "captures", "--machine", "one-node-512m"];

#[test]
fn a_quiet_machine_needs_nothing() {
    let room = Room::new();
    captured(&room, QUIET);
    let first = room.run(&[&ADVISE[..], &["-o", "advice"]].concat()).expect(0);
    let text = &first.stdout;
    assert!(text.contains("captures: Linux 6.1, 512 MiB of memory"), "{text}");
    assert!(text.contains("4 of 4 counters are within class"), "{text}");
    assert!(text.contains("Nothing helps: none of"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // The command once more reads the results that are there.
    let again = room.run(&[&ADVISE[..], &["-o", "advice"]].concat()).expect(0);
    assert_eq!(again.stdout, first.stdout);
    let json = room.run(&[&ADVISE[..], &["-o", "advice", "--format", "json"]].concat()).expect(0).stdout;
    assert_eq!(json, fs::read_to_string(room.here().join("advice/advice.json")).expect("written") + "\n");
    // The profile is a service that can be run.
    room.run(&["run", "./advice/steady.toml", "--machine", "./advice/machine.toml", "--explain"]).expect(0);
}

#[test]
fn counters_that_no_profile_explains_get_no_advice() {
    let room = Room::new();
    let [before, after] = odd();
    captured(&room, [&before, &after]);
    let answer = room.run(&[&ADVISE[..], &["-o", "advice"]].concat()).expect(1);
    assert!(answer.stdout.contains("No advice: "), "{}", answer.stdout);
    assert!(answer.stdout.contains("out of class"), "{}", answer.stdout);
}

#[test]
fn files_that_are_not_enough_are_one_message() {
    let room = Room::new();
    captured(&room, QUIET);
    let says = |words: &[&str], expected: &str| {
        room.run(words).expect(2).says(&[expected]);
    };
    says(&["advise", "--from", "captures"], "--machine");
    says(&["advise", "--from", "nowhere"], "expected a folder with two captures");
    says(&[&ADVISE[..], &["--goal", "p98"]].concat(), "p99");
    says(&[&ADVISE[..], &["--seconds", "0"]].concat(), "expected seconds from 1");
    fs::remove_file(room.here().join("captures/vmstat.after")).expect("removed");
    says(&ADVISE, "expected two captures of /proc/vmstat");
    fs::write(room.here().join("captures/vmstat.after"), "nr_free_pages 1\npgfault x\n").expect("written");
    says(&ADVISE, "vmstat.after:2: expected a counter");
}
