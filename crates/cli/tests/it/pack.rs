//! A case in one file: what is packed runs again, and what was tampered with does not.

use std::{
    fs,
    io::{Read, Write},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use report::{RESULT_FILE, seal::seal};
use serde_json::Value;

use crate::support::{TINY, room::Room, words};

const MAP: [&str; 4] = ["--sample", "100ms", "--map", "--quiet"];

/// A result of two cells in `mine`, packed into `bug.case`.
fn packed(room: &Room) -> Value {
    room.run(&words(&[&["run", "fault-storm", "--target", "sim", "--seeds", "2", "-o", "mine"], &TINY])).expect(0);
    room.run(&["pack", "mine", "-o", "bug.case"]).expect(0).says(&["bug.case has 2 cells in ", "bug.txt is a mail"]);
    let mut text = String::new();
    GzDecoder::new(fs::File::open(room.here().join("bug.case")).unwrap()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The file of a case, as a program would write it.
fn file(room: &Room, name: &str, case: &Value) {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(case.to_string().as_bytes()).unwrap();
    fs::write(room.here().join(name), encoder.finish().unwrap()).unwrap();
}

#[test]
fn a_case_comes_out_as_it_was_packed() {
    let room = Room::new();
    packed(&room);
    let tables = room.run(&["show", "mine", "--quiet"]).expect(0).stdout;
    let again = room.run(&["run", "bug.case"]).expect(0);
    assert!(again.stderr.contains("2 of 2 cells came out as they were packed, to the byte"), "{}", again.stderr);
    assert_eq!(room.run(&["run", "bug.case", "-o", "other", "--quiet", "--workers", "1"]).expect(0).stdout, tables);
    // A result is what any command takes, and a second time it is there already.
    room.run(&["compare", "mine", "results/bug"]).expect(0);
    room.run(&["run", "bug.case"]).expect(0);
    // Packed again, the case is the same file.
    let bytes = fs::read(room.here().join("bug.case")).unwrap();
    room.run(&["pack", "results/bug", "-o", "again.case"]).expect(0);
    assert!(fs::read(room.here().join("again.case")).unwrap() == bytes);

    let mail = fs::read_to_string(room.here().join("bug.txt")).unwrap();
    assert!(mail.lines().count() <= 10 && mail.lines().all(|line| line.chars().count() <= 80), "{mail}");
    assert!(tables.starts_with(mail.lines().next().unwrap()), "{mail}");
    assert!(mail.contains("\nAgain: pagelab run bug.case\n") && mail.contains("blake3 "), "{mail}");
}

#[test]
fn a_case_that_was_tampered_with_is_refused_and_leaves_nothing() {
    let room = Room::new();
    let case = packed(&room);
    let with = |key: &str, value: &str| {
        let mut case = case.clone();
        case[key] = value.into();
        case
    };
    let (identity, result) = (case["identity"].as_str().unwrap(), case["result"].as_str().unwrap());
    // An altered case whose checksums are right still cannot have a file of this machine read.
    let mut of_file: Value = serde_json::from_str(identity).unwrap();
    of_file["simulated"][0]["start"] = serde_json::json!({ "file": { "path": "/etc/passwd", "hash": "00" } });
    let of_file = of_file.as_object_mut().unwrap();
    of_file.remove("checksum");
    let sealed = String::from_utf8(seal(serde_json::to_vec(&of_file).unwrap())).unwrap();
    let mut unknown = case.clone();
    unknown["path"] = "../../evil".into();
    let mut older = case.clone();
    older["pagelab_case"] = 0.into();
    for (name, case, says) in [
        ("a.case", with("program", "0123456789abcdef"), "it is of program 01234567, and this one is "),
        ("b.case", with("result", &result.replacen("\"pgfault\":", "\"pgfault\":1", 1)), "its checksum does not match"),
        ("c.case", with("result", result.lines().next().unwrap()), "no case that runs again"),
        ("d.case", with("identity", &sealed), "no case that runs again"),
        ("e.case", with("identity", "{}"), "no case that runs again"),
        ("f.case", unknown, "unknown field `path`"),
        ("g.case", older, "it has version 0, and this program reads 1"),
        ("h.case", Value::Null, "it lacks the key pagelab_case"),
    ] {
        file(&room, name, &case);
        let refused = room.run(&["run", name]).expect(2);
        assert!(refused.stderr.contains(says), "{name}: {}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{name}: {}", refused.stderr);
        assert!(!room.here().join("results").join(&name[..1]).exists(), "{name}");
    }
    // A kilobyte of them would unpack to a gigabyte.
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..65 {
        bomb.write_all(&vec![b' '; 1 << 20]).unwrap();
    }
    for (name, bytes, says) in [
        ("bomb.case", bomb.finish().unwrap(), "unpacked it is larger than 64 MiB"),
        ("large.case", vec![0; 1_000_001], "it is larger than 1000 KB"),
        ("text.case", b"hello".to_vec(), "no case file: "),
        ("none.case", Vec::new(), "no case file: "),
    ] {
        fs::write(room.here().join(name), bytes).unwrap();
        room.run(&["run", name]).expect(2).says(&[says]);
    }
    room.run(&["run", "absent.case"]).expect(2).says(&["absent.case"]);
}

#[test]
fn what_is_packed_and_run_is_said_before_anything_happens() {
    let room = Room::new();
    packed(&room);
    room.run(&["run", "bug.case", "--seeds", "3"]).expect(2).says(&["a case says itself what is run"]);
    room.run(&["run", "bug.case", "--set", "size=4MiB"]).expect(2).says(&["a case says itself what is run"]);
    room.run(&["pack", "mine", "-o", "bug"]).expect(2).says(&["expected a name that ends with .case, found bug"]);
    room.run(&["pack", "nowhere", "-o", "x.case"]).expect(2).says(&["nowhere"]);
    // Another result in the way stays.
    let before = fs::read(room.here().join("mine").join(RESULT_FILE)).unwrap();
    room.run(&words(&[&["run", "fault-storm", "--target", "sim", "-o", "one"], &TINY])).expect(0);
    room.run(&["run", "bug.case", "-o", "one"]).expect(2).says(&["it is there, with another result"]);
    room.run(&["run", "bug.case", "-o", "mine"]).expect(0);
    assert!(fs::read(room.here().join("mine").join(RESULT_FILE)).unwrap() == before);
    // Maps are files of their own.
    room.run(&words(&[&["run", "fault-storm", "--target", "sim", "-o", "mapped"], &TINY, &MAP])).expect(0);
    room.run(&["pack", "mapped", "-o", "m.case"]).expect(2).says(&["run it without --map"]);
    assert!(!room.here().join("m.case").exists());
    // An unfinished result does not say what comes out.
    let path = room.here().join("one").join(RESULT_FILE);
    let system = fs::read_to_string(&path).unwrap().lines().next().unwrap().to_owned() + "\n";
    fs::write(&path, system).unwrap();
    room.run(&["pack", "one", "-o", "o.case"]).expect(2);
}
