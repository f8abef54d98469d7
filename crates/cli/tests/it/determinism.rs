//! The simulator gives the same bytes: again, with any number of workers, in any build profile, and whatever code the C
//! library chooses for this processor.

use std::{fs, path::Path, process::Command};

use crate::support::{document, room::Room, skip, words};

/// What a rerun must repeat: the tables, the CSV, and what each cell measured, its run hash among it.
#[derive(Debug, PartialEq, Eq)]
struct Bytes {
    tables: String,
    csv: String,
    measured: Vec<String>,
    hashes: Vec<String>,
}

const RUN: [&str; 7] = ["run", "fault-storm", "--target", "sim", "--machine", "two-node-2g", "-o"];

/// A run of the experiment by one build of the program. `tunables`: of the C library.
fn run(program: &Path, arguments: &[&str], tunables: Option<&str>) -> Bytes {
    let room = Room::new();
    let command = |arguments: &[String]| {
        let mut command = room.command_of(program, arguments);
        command.env_remove(TUNABLES).envs(tunables.map(|tunables| (TUNABLES, tunables)));
        room.start(command).wait().expect(0).stdout
    };
    let tables = command(&words(&[&RUN, &["result", "--seeds", "2"], arguments]));
    let csv = command(&words(&[&["show", "result", "--format", "csv"]]));
    let cells = report::cells(document::whole_records(&room.here().join("result")));
    assert_eq!(cells.len(), 16, "base and huge, threads and processes, one and two tasks, two seeds");
    let hash = |cell: &report::Cell| cell.measured.detail["run_hash"].as_str().expect("a run hash").to_owned();
    // One line says when it ran, and of which commit the program is.
    let is_same_everywhere = |line: &&str| !line.starts_with("program ");
    Bytes {
        tables: tables.lines().filter(is_same_everywhere).collect::<Vec<_>>().join("\n"),
        csv,
        measured: cells.iter().map(|cell| serde_json::to_string(&cell.measured).expect("it serialises")).collect(),
        hashes: cells.iter().map(hash).collect(),
    }
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_pagelab"))
}

#[test]
fn the_same_run_gives_the_same_bytes_with_one_and_two_workers() {
    let once = run(here(), &["--workers", "1"], None);
    assert_eq!(once, run(here(), &["--workers", "1"], None), "twice");
    assert_eq!(once, run(here(), &["--workers", "2"], None), "two workers");
    assert_eq!(once, run(here(), &[], None), "one worker per CPU");
    assert!(once.tables.contains("Fault Latency") && once.csv.lines().count() > 40, "{}\n{}", once.tables, once.csv);
    // The control: other work has other bytes.
    let other = run(here(), &["--set", "iterations=7"], None);
    assert!(once.measured.iter().zip(&other.measured).all(|(one, other)| one != other));
    assert!(once.hashes.iter().zip(&other.hashes).all(|(one, other)| one != other));
}

/// The variable that names the program as the profile builds it in which this test does not run.
const OTHER_PROFILE: &str = "PAGELAB_OTHER_PROFILE";

#[test]
fn debug_and_release_give_the_same_bytes() {
    let Some(other) = std::env::var_os(OTHER_PROFILE) else {
        let reason = format!("{OTHER_PROFILE} names no program; `cargo xtask test` builds one in the dev profile");
        return skip("debug_and_release_give_the_same_bytes", &reason);
    };
    assert_eq!(run(here(), &[], None), run(Path::new(&other), &[], None));
}

/// Settings of the C library, GNU's.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Makes it choose the code for processors without fused multiplication.
const WITHOUT_FMA: &str = "glibc.cpu.hwcaps=-FMA,-AVX2";
/// Where [`exp_bits_of_this_process`] writes.
const EXP_BITS: &str = "PAGELAB_TEST_EXP_BITS";

#[test]
fn another_choice_of_the_c_library_gives_the_same_bytes() {
    assert_eq!(run(here(), &[], None), run(here(), &[], Some(WITHOUT_FMA)));
    // The control: the setting does change results of floating point on this machine.
    if exp_bits(None) == exp_bits(Some(WITHOUT_FMA)) {
        let reason =
            format!("{TUNABLES}={WITHOUT_FMA} changes no bit of std's exp on this machine, so it shows nothing");
        skip("another_choice_of_the_c_library_gives_the_same_bytes", &reason);
    }
}

/// The bits of exp over a range, by a process of its own: the C library chooses when a process starts.
fn exp_bits(tunables: Option<&str>) -> String {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command = Command::new(std::env::current_exe().expect("the path of this test"));
    command.args(["--exact", "determinism::exp_bits_of_this_process"]).env(EXP_BITS, file.path());
    command.env_remove(TUNABLES).envs(tunables.map(|tunables| (TUNABLES, tunables)));
    let output = command.output().expect("this test starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let bits = fs::read_to_string(file.path()).expect("the bits");
    assert_eq!(bits.len(), 16, "{bits:?}");
    bits
}

/// No test by itself: the other half of [`exp_bits`].
#[test]
#[expect(clippy::disallowed_methods, reason = "it is what the rule warns of")]
fn exp_bits_of_this_process() {
    let Some(file) = std::env::var_os(EXP_BITS) else { return };
    let mut fold = 0_u64;
    for n in 0..200_000_u32 {
        let argument = std::hint::black_box(f64::from(n) * 1e-3 - 100.0);
        fold = fold.rotate_left(5) ^ f64::exp(argument).to_bits();
    }
    fs::write(file, format!("{fold:016x}")).expect("the bits");
}
