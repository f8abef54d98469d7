//! Bad input: one message that says what was expected where, exit status 2, and nothing written.

use std::{fs, os::unix::process::CommandExt, path::Path};

use crate::support::{TINY, recording, room::Room, skip, words};
use linux::{kernel_image, qemu::EMULATOR};

/// A run on this machine that is over at once.
const HOST: [&str; 4] = ["run", "fault-storm", "--target", "host"];
/// The beginning of a run in a guest, which must not come to a boot.
const GUEST: [&str; 6] = ["run", "fault-storm", "--target", "vm", "--accel", "tcg"];

/// A simulated machine with little memory.
const SIM: [&str; 4] = ["--target", "sim", "--machine", "one-node-512m"];

/// Runs `args` and asserts status 2, one message with these words, and nothing written.
#[track_caller]
fn refuse(room: &Room, args: &[&str], expected: &[&str]) {
    let mut command = room.command(args);
    // An emulator that is there and never runs: what is tested comes before a boot.
    let path = std::env::var("PATH").unwrap_or_default();
    room.give(&format!("bin/{EMULATOR}"), "");
    command.env("PATH", format!("{path}:{}", room.given("bin").display()));
    let answer = room.start(command).wait().expect(2).says(expected);
    assert_one_message(&answer.stderr);
    assert_eq!(answer.stdout, "", "{args:?}");
    room.assert_untouched(&args.join(" "));
}

/// Ours is one paragraph that starts with our name; clap's starts with `error: ` and goes on with the usage.
#[track_caller]
fn assert_one_message(stderr: &str) {
    let starts = stderr.lines().filter(|line| line.starts_with("pagelab: ") || line.starts_with("error: ")).count();
    assert!(starts == 1 && (stderr.starts_with("pagelab: ") || stderr.starts_with("error: ")), "{stderr}");
    assert!(stderr.starts_with("error: ") || stderr.trim_end().lines().count() == 1, "more than a line:\n{stderr}");
}

#[test]
fn unknown_names() {
    let room = Room::new();
    let cases: [(&[&str], &[&str]); 12] = [
        (&["run", "fault-strom"], &["unknown experiment \"fault-strom\"", "did you mean \"fault-storm\"?"]),
        (&["run", "no/such.toml"], &["no/such.toml: cannot be read"]),
        (&["rnu", "fault-storm"], &["unrecognized subcommand 'rnu'", "Usage: "]),
        (&["run"], &["<EXPERIMENT>"]),
        (&["list", "machine"], &["invalid value 'machine'", "machines"]),
        (&["run", "fault-storm", "--target", "hots"], &["invalid value 'hots'", "host"]),
        (
            &["run", "fault-storm", "--target", "vm", "--machine", "two-nodes-2g"],
            &["unknown machine \"two-nodes-2g\"", "did you mean \"two-node-2g\"?"],
        ),
        (
            &["run", "fault-storm", "--set", "taks=1"],
            &["--set: unknown parameter \"taks\"", "did you mean \"tasks\"?", "page, model, tasks, iterations"],
        ),
        (
            &["run", "fault-storm", "--set", "vm.swapiness=1"],
            &["--set: unknown setting \"vm.swapiness\"", "did you mean \"vm.swappiness\"?"],
        ),
        (&["run", "fault-storm", "--set", "tasks"], &["--set tasks: expected NAME=VALUE"]),
        (&["run", "fault-storm", "--set", "=1"], &["--set =1: expected NAME=VALUE"]),
        (&["run", "fault-storm", "--formt", "csv"], &["unexpected argument '--formt'", "--format"]),
    ];
    for (args, expected) in cases {
        refuse(&room, args, expected);
    }
}

#[test]
fn values_of_the_wrong_form() {
    let room = Room::new();
    let cases: [(&[&str], &[&str]); 20] = [
        (&["--set", "tasks=1", "--set", "tasks=2"], &["--set tasks: given twice"]),
        (&["--set", "size=3MB"], &["size: expected a multiple of 2MiB", "found \"3MB\""]),
        (&["--set", "size=3MiB"], &["size: expected a multiple of 2MiB", "found \"3MiB\""]),
        (&["--set", "tasks=zero"], &["tasks: expected a whole number from 1 to 4096, found \"zero\""]),
        (&["--set", "tasks=0"], &["tasks: expected a whole number from 1 to 4096, found \"0\""]),
        (&["--set", "tasks=1,"], &["tasks: expected a whole number from 1 to 4096, found \"\""]),
        (&["--set", "page=big"], &["page: expected \"base\" or \"huge\", found \"big\""]),
        (&["--set", "duration=1s"], &["duration: expected whole seconds", "found \"1s\""]),
        (
            &["--set", "vm.swappiness=ten"],
            &["--set vm.swappiness: expected a whole number from 0 to 200, found \"ten\""],
        ),
        (&["--memory", "2GB"], &["'2GB'", "--memory", "KiB"]),
        (&["--seeds", "0"], &["'0'", "--seeds"]),
        (&["--seeds", "5-3"], &["'5-3'", "--seeds", "the first and the last as in 3-5"]),
        (&["--sample", "0s"], &["'0s'", "--sample", "a time from 1ms to 24h"]),
        (&["--sample", "abc"], &["'abc'", "--sample", "such as 100ms, 1s, 5min or 1h"]),
        (&["--sample", "10"], &["'10'", "--sample", "such as 100ms, 1s, 5min or 1h"]),
        (&["--timeout", "soon"], &["'soon'", "--timeout"]),
        (&["--replayable", "99"], &["'99'", "--replayable"]),
        (&["--replayable", "2,99"], &["'99'", "--replayable"]),
        (&["--accel", "tcg", "--replayable"], &["--accel", "--replayable", "cannot be used with"]),
        (&["--kernel", "6.1"], &["--kernel is for target vm"]),
    ];
    for (more, expected) in cases {
        refuse(&room, &[&HOST[..], more].concat(), expected);
    }
}

/// Parts of the file are rounded up, and the file is not: the program of 2015 dies of SIGBUS behind its end.
#[test]
fn threads_that_would_read_behind_the_end_of_their_file() {
    let room = Room::new();
    let run = ["run", "thpscale", "--machine", "four-core-4g", "--variant", "v4.4", "--set", "script=2015"];
    room.run(&words(&[&run, &["--set", "counts=24", "-o", "result"]])).expect(1).says(&[
        "failed: sim 24 on four-core-4g: ",
        "counts: expected at most ",
        "whose parts lie within the file of 3161MiB (size), found 24: the last part ends at ",
        "and reading there is SIGBUS",
    ]);
}

#[test]
fn guests_that_their_host_cannot_hold() {
    let room = Room::new();
    let refused = |sets: &[&str], expected: &[&str]| {
        let mut run = vec!["run", "two-guests", "--machine", "one-node-512m", "--set", "turn=1", "-o", "result"];
        run.extend(sets.iter().flat_map(|set| ["--set", set]));
        refuse(&room, &run, expected);
    };
    let killed = &["memory=64MiB", "guests=15", "hog=80"];
    refused(
        killed,
        &[
            "sim 15-on on one-node-512m: guest ",
            ": the host's OOM killer has killed its process after 0.",
            "15 guests of 64 MiB (960 MiB), each filling 80 %, on machine one-node-512m with 512 MiB of memory and \
             512 MiB of swap",
            "ask for fewer or smaller guests (guests, memory, hog), or for a machine with more memory or swap",
        ],
    );
    refused(
        &["memory=768MiB"],
        &[
            "2-on needs 1536 MiB (guests, memory), memory and swap of the machine is 1024 MiB: expected memory of at most \
             512MiB, or a machine with more memory or swap",
        ],
    );
    let itself = "guest 1: its own memory is out after 0.";
    refused(&["memory=512MiB", "hog=95"], &[itself, "its program fills 95 % of 512 MiB", "ask for less (hog)"]);
    room.assert_nothing_left("guests that their host cannot hold");
    let small = ["run", "guest-footprint", "--set", "virtio_balloon.target=256MiB", "-o", "result"];
    let left = "virtio_balloon.target: the guest is left with 256 MiB and the workload touches 716 MiB ";
    refuse(&room, &small, &[left, "(trace, size): expected more, or virtio_balloon.deflate_on_oom=on"]);
}

#[test]
fn workloads_that_cannot_fit() {
    let room = Room::new();
    let needs = "base-threads-1 needs 1048576 MiB";
    let huge = [&TINY[..8], &["--set", "size=1TiB"]].concat();
    refuse(&room, &[&HOST[..], &huge].concat(), &[needs, "a quarter of the memory that is available is "]);
    refuse(&room, &[&HOST[..], &huge, &["--memory", "1GiB"]].concat(), &[needs, "--memory is 1024 MiB"]);
}

/// Of workloads that write many files: each message says which parameter, and what is allowed.
#[test]
fn files_that_cannot_fit() {
    let room = Room::new();
    let disk = "about = 'x'\nswap = '512MiB'\ndisk = { latency_us = 80, bandwidth = '200MiB/s', size = '256MiB' }\n";
    let small = room.give("small.toml", format!("{disk}[[node]]\nid = 0\nmemory = '512MiB'\ncpus = '0-1'\n"));
    let beyond = ["run", "thpfioscale", "--set", "threads=1", "--target", "sim", "--machine", &small];
    refuse(&room, &beyond, &["files of 768 MiB (total) do not fit the disk of machine small, 256MiB"]);
    let tiny = room.give("tiny.toml", fs::read_to_string(&small).unwrap().replace("'256MiB'", "'1MiB'"));
    let beyond = ["run", "thpfioscale", "--target", "sim", "--machine", &tiny];
    refuse(&room, &beyond, &["tiny.toml:3", "size: expected from 16MiB to", "found 1MiB"]);
    let fio = |more: &[&'static str]| [&["run", "thpfioscale", "--set", "threads=1"], &SIM[..], more].concat();
    let churn = |more: &[&'static str]| [&["run", "slab-churn"], &SIM[..], more].concat();
    let cases: [(Vec<&str>, &[&str]); 9] = [
        (vec!["run", "thpfioscale", "--set", "threads=0"], &["--set threads: expected a whole number from 1 to 4096"]),
        (fio(&["--set", "jobs=0"]), &["--set jobs: expected a whole number from 1 to 1024, found \"0\""]),
        (
            fio(&["--set", "jobs=40", "--set", "total=32MiB", "--set", "file=1MiB"]),
            &["jobs: expected at most 32, as 32MiB (total) are so many files of 1MiB (file), found 40"],
        ),
        (fio(&["--set", "file=1GiB"]), &["file: expected at most 768MiB (total), found 1GiB"]),
        (
            [&["run", "thpfioscale", "--set", "threads=97"], &SIM[..]].concat(),
            &["threads: expected at most 96, as each maps 4MiB or more of 384MiB (size), found 97"],
        ),
        (fio(&["--set", "size=2GiB"]), &["1 needs 2058 MiB (size), memory and swap of the machine is 1024 MiB"]),
        (churn(&["--set", "writers=0"]), &["--set writers: expected a whole number from 1 to 1024, found \"0\""]),
        (
            churn(&["--set", "writers=9", "--set", "total=4MiB", "--set", "file=512KiB"]),
            &["writers: expected at most 8, as 4MiB (total) are so many files of 512KiB (file), found 9"],
        ),
        (churn(&["--set", "aged=1TiB"]), &["(aged, size), memory and swap of the machine is 1024 MiB"]),
    ];
    for (arguments, expected) in cases {
        refuse(&room, &arguments, expected);
    }
}

/// What this host has no room for, and what no process may have open.
#[test]
fn grids_and_machines_that_are_too_large() {
    let room = Room::new();
    let many =
        |name: &str| format!("{name}={}", (1..=1000).map(|value| value.to_string()).collect::<Vec<_>>().join(","));
    let (tasks, iterations) = (many("tasks"), many("iterations"));
    let run = ["run", "fault-storm", "--set", &tasks, "--set", &iterations];
    let expected = ["1000 of tasks x 1000 of iterations: 4000000 cells are too many; expected at most 100000"];
    refuse(&room, &[&run[..], &SIM[..]].concat(), &["2 of page x 2 of model x ", expected[0]]);
    let seeds = ["run", "fault-storm", "--set", "vm.swappiness=1,2,3", "--seeds", "10000"];
    refuse(&room, &[&seeds[..], &SIM[..]].concat(), &["10000 of --seeds: 120000 cells are too many"]);
    let machine = |memory: &str| {
        room.give("large.toml", format!("about = 'large'\n[[node]]\nid = 0\ncpus = '0'\nmemory = '{memory}'\n"))
    };
    for memory in ["16TiB", "64TiB", "4096TiB"] {
        let path = machine(memory);
        let run = ["run", "fault-storm", "--target", "sim", "--machine", &path, "--set", "size=2MiB"];
        refuse(&room, &run, &["machine large: zone Normal reaches 16 TiB"]);
    }
}

#[test]
fn files_that_this_host_cannot_have() {
    let room = Room::new();
    let churn = ["run", "slab-churn", "--target", "host", "--set", "total=1TiB"];
    refuse(&room, &churn, &["target host: files of 10", "MiB (aged, total) are more than half of the", "TMPDIR"]);
    let fio =
        ["run", "thpfioscale", "--target", "host", "--set", "threads=1", "--set", "file=4KiB", "--set", "total=5GiB"];
    refuse(
        &room,
        &fio,
        &["1310720 files are open at the same time, a process may have 1048576: larger ones (file) or less (total)"],
    );
    let Ok(image) = kernel_image::resolve("6.1") else {
        return skip("files_that_this_host_cannot_have", "kernel 6.1 is not in the cache");
    };
    let image = image.path.display().to_string();
    let guest = ["--target", "vm", "--accel", "tcg", "--machine", "one-node-512m", "--kernel", &image];
    let churn = [&["run", "slab-churn", "--set", "total=1TiB"], &guest[..]].concat();
    refuse(
        &room,
        &churn,
        &["files of 1048780 MiB (aged, total) take disks of", "MiB with swap, more than the", "left in"],
    );
}

#[test]
fn vm_workload_that_cannot_fit() {
    let Ok(image) = kernel_image::resolve("6.1") else {
        return skip("vm_workload_that_cannot_fit", "kernel 6.1 is not in the cache");
    };
    let room = Room::new();
    let image = image.path.display().to_string();
    let guest =
        [&GUEST[..], &TINY[..8], &["--set", "size=1TiB"], &["--machine", "one-node-512m", "--kernel", &image]].concat();
    refuse(&room, &guest, &["base-threads-1 needs 1048576 MiB", "three quarters of the guest's memory is 384 MiB"]);
}

#[test]
fn machine_files() {
    let room = Room::new();
    let node = |rest: &str| format!("about = 'x'\n[[node]]\nid = 0\nmemory = '1GiB'\ncpus = '0'\n{rest}");
    let second = |cpus: &str, distance: &str| {
        node(&format!(
            "distance = [10, 20]\n[[node]]\nid = 1\nmemory = '1GiB'\ncpus = '{cpus}'\ndistance = {distance}\n"
        ))
    };
    let cases: [(&str, String, &[&str]); 17] = [
        ("syntax", "about = 'x\n".to_owned(), &["syntax.toml:1: "]),
        ("no-about", "[[node]]\nid = 0\n".to_owned(), &["no-about.toml:1: about: missing"]),
        ("key", node("memroy = '1GiB'\n"), &["key.toml:6: node: unknown key \"memroy\"", "did you mean \"memory\"?"]),
        ("root-key", "abuot = 'x'\n".to_owned(), &["root-key.toml:1: unknown key \"abuot\"", "\"about\""]),
        ("type", node("distance = 'far'\n"), &["type.toml:6: node.distance: expected a list", "\"far\""]),
        ("bare", node("").replace("'1GiB'", "1024"), &["bare.toml:4: node.memory: expected a size", "integer 1024"]),
        ("unit", node("").replace("1GiB", "1GB"), &["unit.toml:4: node.memory: expected a size", "GiB", "\"1GB\""]),
        ("no-memory", node("").replace("memory = '1GiB'\n", ""), &["no-memory.toml:2: node.memory: missing"]),
        ("zero", node("").replace("1GiB", "0B"), &["zero.toml:4: node.memory: expected at least 4MiB", "found 0"]),
        ("no-node", "about = 'x'\n".to_owned(), &["no-node.toml:1: node: a machine has at least one [[node]]"]),
        ("no-cpu", node("").replace("'0'", "''"), &["no-cpu.toml:5: node.cpus: expected at least one CPU"]),
        ("shared", second("0", "[20, 10]"), &["shared.toml:10: node.cpus: CPU 0 is already on node 0"]),
        ("gap", second("2", "[20, 10]"), &["gap.toml:10: node.cpus: ", "there is a CPU 2, but no CPU 1"]),
        ("skew", second("1", "[30, 10]"), &["skew.toml:11: node.distance: node 1 to node 0 is 30, but", "is 20"]),
        ("row", second("1", "[20]"), &["row.toml:11: node.distance: expected one distance per node (2), found 1"]),
        ("ghost", node("").replace("id = 0", "id = 1"), &["ghost.toml:3: node.id: ", "expected 0, found 1"]),
        ("core", format!("threads = ['0-1']\n{}", node("")), &["core.toml:1: threads: CPU 1 is not on any node"]),
    ];
    for (name, text, expected) in cases {
        let file = room.give(&format!("{name}.toml"), text);
        refuse(&room, &[&GUEST[..], &["--machine", &file]].concat(), expected);
    }
    let settings: [(&str, &str, &[&str]); 3] = [
        ("setting", "\"vm.swapiness\" = 1", &["setting.toml:7: settings: unknown setting", "\"vm.swappiness\""]),
        ("quotes", "vm.swappiness = 1", &["quotes.toml:7: settings.vm: ", "needs quotes: \"vm.swappiness\""]),
        ("value", "\"vm.swappiness\" = 'ten'", &["value.toml:7: ", "vm.swappiness", "a whole number", "\"ten\""]),
    ];
    for (name, line, expected) in settings {
        let file = room.give(&format!("{name}.toml"), node(&format!("[settings]\n{line}\n")));
        refuse(&room, &[&GUEST[..], &["--machine", &file]].concat(), expected);
    }
}

#[test]
fn copies_of_proc() {
    let whole = recording("proc/6.1-2n-2g/booted");
    let zoneinfo = fs::read_to_string(whole.join("zoneinfo")).expect("a recording");
    let managed = zoneinfo.lines().position(|line| line.contains("managed")).expect("zones say it") + 1;
    let letters = zoneinfo.replacen("        managed  ", "        managed  x", 1);
    assert_ne!(letters, zoneinfo);
    // In the middle of the first zone's figures: what follows is missed at the last line there is.
    let cut: String = zoneinfo.split_inclusive('\n').take(managed - 2).collect();
    let torn = &zoneinfo[..zoneinfo.find("managed").expect("zones say it") + 3];
    let one_node = &zoneinfo[..zoneinfo.find("Node 1,").expect("two nodes")];
    let letters_at = format!(": zoneinfo, line {managed}: expected managed, a number, found \"x");
    let cut_at = format!(": zoneinfo, line {}: expected \"present\" of node 0, zone DMA, found the end", managed - 1);
    let torn_at = format!(": zoneinfo, line {managed}: expected a line that ends, found \"man\"");
    let cases: [(&str, Option<&str>, &[&str]); 12] = [
        ("zoneinfo", Some(&letters), &[&letters_at]),
        ("zoneinfo", Some(&cut), &[&cut_at]),
        ("zoneinfo", Some(torn), &[&torn_at]),
        ("zoneinfo", Some(one_node), &[": zoneinfo of node 1 is not in this capture"]),
        ("zoneinfo", Some(""), &[": zoneinfo, line 1: expected a line that ends, found nothing"]),
        ("zoneinfo", None, &[": missing: zoneinfo (or the Mem-Info of an OOM report)"]),
        ("meminfo", Some("MemTotal: lots kB\n"), &[": meminfo, line 1: expected MemTotal, a number, found \"lots\""]),
        ("version", Some("Minix 3\n"), &[": version, line 1: expected \"Linux version RELEASE\", found \"Minix 3\""]),
        ("node/node1/cpulist", Some("2-x\n"), &[": node/node1/cpulist, line 1: expected a CPU", "found \"x\""]),
        ("node/node1/cpulist", Some("0-1\n"), &[": node.cpus: CPU 0 is already on node 0"]),
        ("node/node1/distance", Some("10"), &[": node/node1/distance, line 1: expected 2 distances, found 1"]),
        ("node/node1/distance", Some("30 10\n"), &[": node.distance: node 1 to node 0 is 30, but"]),
    ];
    for (number, (file, text, expected)) in cases.into_iter().enumerate() {
        let room = Room::new();
        let copy = room.given(&number.to_string());
        copy_tree(&whole, &copy);
        match text {
            Some(text) => fs::write(copy.join(file), text).expect("a copied file"),
            None => fs::remove_file(copy.join(file)).expect("a copied file"),
        }
        let from = copy.display().to_string();
        refuse(&room, &["machine", "import", "--from", &from, "-o", "machine.toml"], &[&[&*from], expected].concat());
    }
    let room = Room::new();
    refuse(
        &room,
        &["machine", "import", "--from", "no-such-directory"],
        &["no-such-directory: there is no file or folder"],
    );
    let whole = whole.display().to_string();
    refuse(&room, &["machine", "import", "--from", &whole, "-o", "no/such/file.toml"], &["no/such"]);
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory of the copy");
    for entry in fs::read_dir(from).expect("a recording").map(|entry| entry.expect("a recording")) {
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a recording").is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copied file");
        }
    }
}

#[test]
fn images() {
    let room = Room::new();
    let mut noise = vec![0; 8192];
    let mut state = 7_u32;
    for byte in &mut noise {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = state.to_be_bytes()[0];
    }
    let mut elf = vec![0; 4096];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    elf[18] = 183;
    let mut arm = vec![0; 4096];
    arm[0x38..0x3c].copy_from_slice(b"ARM\x64");
    let given = |name: &str, bytes: &[u8]| room.give(name, bytes);
    let directory = room.given("").display().to_string();
    let cases = [
        ("9.9".to_owned(), "kernel 9.9 is not in the cache"),
        ("./no-such-image".to_owned(), "no such file; expected an x86-64 bzImage"),
        (given("noise", &noise), "no boot header; expected an x86-64 bzImage"),
        (given("empty", b""), "an empty file; expected an x86-64 bzImage"),
        (given("elf", &elf), "an ELF file for aarch64; expected an x86-64 bzImage"),
        (given("arm", &arm), "an arm64 Image; expected an x86-64 bzImage"),
        (directory, "a directory; expected an x86-64 bzImage"),
    ];
    for (image, expected) in cases {
        let named = format!("--kernel {image}: ");
        refuse(&room, &[&GUEST[..], &TINY, &["--kernel", &image]].concat(), &[&named, expected]);
    }
}

#[test]
fn vm_truncated_image() {
    let Ok(whole) = kernel_image::resolve("6.1") else {
        return skip("vm_truncated_image", "kernel 6.1 is not in the cache");
    };
    let room = Room::new();
    let whole = fs::read(whole.path).expect("the image");
    let half = room.give("half", &whole[..whole.len() / 2]);
    refuse(&room, &[&GUEST[..], &TINY, &["--kernel", &half]].concat(), &[&half, "truncated: ", "its header promises"]);
}

#[test]
fn without_an_emulator() {
    let room = Room::new();
    let nowhere = room.given("nowhere");
    let start = |args: &[String]| {
        let mut command = room.command(args);
        command.env("PATH", &nowhere);
        room.start(command).wait()
    };
    let answer = start(&words(&[&GUEST, &TINY])).expect(2).says(&["pagelab: target vm: ", EMULATOR, "not on PATH"]);
    assert_one_message(&answer.stderr);
    room.assert_untouched("a run without an emulator");

    let answer = start(&words(&[&["run", "fault-storm", "-o", "result"], &TINY])).expect(0);
    let skipped = format!("\nskipped: vm all of fault-storm: {EMULATOR} is not on PATH");
    assert!(answer.stdout.contains(&skipped) && answer.stdout.contains("base-threads-1"), "{}", answer.stdout);
    let told: Vec<_> = answer.stderr.lines().collect();
    assert!(told.len() == 2 && told[0].starts_with("pagelab: this machine's own kernel is used (host, "), "{told:?}");
    assert_eq!(told[1], "pagelab: results are in result");
}

#[test]
fn without_a_kernel() {
    let room = Room::new();
    room.give(&format!("bin/{EMULATOR}"), "");
    let start = |args: &[String]| {
        let mut command = room.command(args);
        command.env("PATH", room.given("bin")).env("PAGELAB_CACHE", room.given("cache"));
        room.start(command).wait()
    };
    let reason = "kernel 6.1 is not in the cache";
    let answer =
        start(&words(&[&GUEST, &TINY])).expect(2).says(&["pagelab: target vm: ", reason, "cargo xtask kernel"]);
    assert_one_message(&answer.stderr);
    room.assert_untouched("a run without a kernel");

    let answer = start(&words(&[&["run", "fault-storm", "-o", "result"], &TINY])).expect(0);
    let skipped = format!("\nskipped: vm all of fault-storm: {reason}");
    assert!(answer.stdout.contains(&skipped) && answer.stdout.contains("base-threads-1"), "{}", answer.stdout);
}

#[test]
fn result_directories() {
    let room = Room::new();
    let host = |out: &str| [&HOST[..], &TINY, &["-o", out]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let refuse_at = |out: &str, expected: &[&str]| {
        let args = host(out);
        refuse(&room, &args.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    };
    let file = room.give("file", "in the way");
    refuse_at(&file, &[&file]);
    refuse_at(&format!("{file}/below"), &[&file]);
    refuse_at("/proc/pagelab-result", &["/proc/pagelab-result"]);

    let theirs = room.given("theirs").display().to_string();
    room.run(&host(&theirs)).expect(0);
    let before = fs::read(room.given("theirs/result.jsonl")).expect("a result");
    let other = [&HOST[..], &TINY[..6], &["--set", "iterations=2", "-o", &theirs]].concat();
    refuse(&room, &other, &[&theirs, "holds a different run"]);
    assert_eq!(fs::read(room.given("theirs/result.jsonl")).expect("a result"), before, "untouched");

    // A result whose run is not known, and one with a line in the middle that is none.
    let text = String::from_utf8(before).expect("results are text");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "a system and a cell");
    let unknown = room.give("unknown/result.jsonl", &text);
    let unknown = unknown.strip_suffix("/result.jsonl").expect("it ends so");
    refuse_at(unknown, &[unknown]);
    let broken = format!("{}\n{}\n{}\n", lines[0], "{\"record\": \"cell\", torn", lines[1]);
    fs::write(room.given("theirs/result.jsonl"), &broken).expect("a result");
    let place = format!("{theirs}/result.jsonl:2: not a result record: ");
    refuse(&room, &["show", &theirs], &[&place]);
    // The run again removes the line, and works on what it lacks: nothing.
    room.run(&host(&theirs)).expect(0).says(&[&place]);
    assert_eq!(fs::read_to_string(room.given("theirs/result.jsonl")).expect("a result"), text);
    let schema = format!("{}\n{}\n", lines[0], lines[1].replacen("\"schema\":5", "\"schema\":99", 1));
    fs::write(room.given("theirs/result.jsonl"), &schema).expect("a result");
    refuse(&room, &["show", &theirs], &["result.jsonl:2: expected schema 1 to 5, found 99"]);

    let nothing = room.given("").display().to_string();
    refuse(&room, &["show", &nothing], &[&nothing, "run.json"]);
    refuse(&room, &["show", "no-such-directory"], &["no-such-directory"]);
}

#[test]
fn settings_without_permission() {
    const NOBODY: u32 = 65534;
    let room = Room::new();
    let setting = format!("vm.page-cluster={}", linux::setting::read("vm.page-cluster").expect("every kernel has it"));
    let args = words(&[&HOST, &TINY, &["--set", &setting]]);
    let mut command = room.command(&args);
    if nix::unistd::geteuid().is_root() {
        // The program may lie where nobody may go.
        let program = room.given("pagelab");
        fs::copy(env!("CARGO_BIN_EXE_pagelab"), &program).expect("a copy of the program");
        for directory in [room.path(), &room.here(), &room.given("")] {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).expect("a directory of ours");
        }
        let environment: Vec<_> =
            command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        command = std::process::Command::new(program);
        command.args(&args).current_dir(room.here()).process_group(0).uid(NOBODY).gid(NOBODY);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    } else if linux::setting::check_writable("vm.page-cluster").is_ok() {
        return skip("settings_without_permission", "this user may write settings");
    }
    let answer = room.start(command).wait().expect(2);
    let answer = answer.says(&["pagelab: --set vm.page-cluster: no permission to write /proc/sys/vm/page-cluster"]);
    assert_one_message(&answer.stderr);
    assert_eq!(answer.stdout, "");
    room.assert_untouched("a setting without permission");
}

/// A setting's name without its beginning is told apart from a parameter's.
#[test]
fn a_setting_without_its_prefix_gets_the_full_name() {
    let room = Room::new();
    for (name, expected) in [
        ("extfrag_threshold", "vm.extfrag_threshold"),
        ("swapiness", "vm.swappiness"),
        ("min_free_kbytes", "vm.min_free_kbytes"),
        ("defrag", "transparent_hugepage/defrag"),
    ] {
        let (set, told) =
            (format!("{name}=1"), format!("unknown parameter {name:?}; did you mean the setting {expected:?}?"));
        refuse(&room, &[&["run", "fault-storm"][..], &SIM, &["--set", &set]].concat(), &[&told]);
    }
}

/// Releases before the oldest rules, and what is none.
#[test]
fn a_variant_that_is_no_release_of_ours() {
    let room = Room::new();
    let too_old = "kernel 3.8 is older than v3.9, the oldest whose rules we know";
    for (name, expected) in
        [("v3.8", too_old), ("v4.1-rc3", "did you mean \"v4.1-rc2\"?"), ("v5.15+1", "v5.15: has no patches")]
    {
        refuse(&room, &[&["run", "fault-storm"][..], &SIM, &["--variant", name]].concat(), &[expected]);
    }
}

/// Such a machine would panic before its first process; with a little more it kills by the rules of the kernel.
#[test]
fn a_machine_whose_marks_leave_nothing_to_start_with() {
    let room = Room::new();
    let run = |kbytes: &'static str| {
        let sets = ["--variant", "v6.1", "--set", "page=huge", "--set", "size=32MiB", "--set", kbytes];
        [&["run", "fault-storm"][..], &SIM, &sets].concat()
    };
    let expected =
        ["machine one-node-512m: min marks and reserves leave 0 KiB of its memory", "a smaller vm.min_free_kbytes"];
    refuse(&room, &run("vm.min_free_kbytes=600000"), &expected);
    let one = |kbytes, place: &'static str| {
        [&run(kbytes)[..], &["--set", "tasks=1", "--set", "model=threads", "-o", place]].concat()
    };
    let killed = room.run(&one("vm.min_free_kbytes=480000", "killed")).expect(1);
    killed.says(&["out of memory: killed by signal 9 (SIGKILL)"]);
    // Where it swaps, faults are not known beforehand: no check of them fails.
    let swaps = room.run(&one("vm.min_free_kbytes=470000", "swaps")).expect(0).stdout;
    assert!(swaps.contains("pages were swapped meanwhile") && !swaps.contains("check failed"), "{swaps}");
}
