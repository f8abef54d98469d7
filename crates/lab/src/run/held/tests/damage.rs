//! Whole kinds of damage to a result directory, each with what is said of it.

use std::os::unix::fs::symlink;

use super::*;

/// The outcome of damage.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// The result is refused with these words.
    Refused(&'static str),
    /// The rest is shown, and the reader is told.
    Noted(&'static str),
    /// Nothing that was written is another.
    Harmless,
}

use Told::{Harmless, Noted, Refused};

/// A kind of damage: its name, what it does to the directory, and its outcome.
type Kind = (&'static str, fn(&Path), Told);

fn change(path: &Path, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let before = fs::read(path).unwrap();
    fs::write(path, change(before)).unwrap();
}

fn of_lines(room: &Path, with: impl FnOnce(&mut Vec<String>)) {
    change(&room.join(RESULT_FILE), |bytes| {
        let text = String::from_utf8(bytes).unwrap();
        let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        with(&mut lines);
        lines.concat().into_bytes()
    });
}

fn of_json(room: &Path, with: impl FnOnce(String) -> String) {
    change(&room.join(IDENTITY_FILE), |bytes| with(String::from_utf8(bytes).unwrap()).into_bytes());
}

/// The files of maps, by name.
fn maps(room: &Path) -> [PathBuf; 2] {
    let folder = fs::read_dir(room.join(report::map::FOLDER)).unwrap();
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.try_into().unwrap()
}

fn replace_by(path: &Path, make: impl FnOnce(&Path)) {
    fs::remove_file(path).unwrap();
    make(path);
}

fn fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

/// The lines of another run of the same cells, which took another time.
fn other_run(lines: &[String]) -> Vec<String> {
    let other = |line: &String| {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        value["run"]["wall_s"] = json!(7.5);
        value.as_object_mut().unwrap().remove("checksum");
        let record: Record = serde_json::from_value(value).unwrap();
        sealed(&record)
    };
    lines.iter().map(other).collect()
}

/// Cuts off the newline.
fn cut_end(line: &mut String) {
    line.truncate(line.trim_end().len());
}

/// The text without the checksum at its end.
fn without_checksum(text: &str) -> String {
    let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
    value.as_object_mut().unwrap().remove("checksum");
    value.to_string()
}

const LINES: [Kind; 27] = [
    ("a byte more", |room| of_lines(room, |lines| lines[2].insert(11, ' ')), Refused(":3: ")),
    (
        "a number written otherwise",
        |room| of_lines(room, |lines| lines[2] = lines[2].replacen("0.1,", "0.10,", 1)),
        Refused(":3: "),
    ),
    ("a key twice", |room| of_lines(room, |lines| lines[2].insert_str(1, "\"schema\":5,")), Refused(":3: ")),
    (
        "a field that is not known",
        |room| of_lines(room, |lines| lines[2].insert_str(1, "\"more\":5,")),
        Refused(":3: "),
    ),
    (
        "a number beyond all",
        |room| of_lines(room, |lines| lines[2] = lines[2].replacen("0.1,", "1e999,", 1)),
        Refused(":3: "),
    ),
    (
        "written anew",
        |room| {
            of_lines(room, |lines| {
                let value: serde_json::Value = serde_json::from_str(&lines[2]).unwrap();
                lines[2] = value.to_string() + "\n";
            });
        },
        Refused(":3: "),
    ),
    (
        "the checksum of another line",
        |room| {
            of_lines(room, |lines| {
                let checksum = |line: &str| {
                    serde_json::from_str::<serde_json::Value>(line).unwrap()["checksum"].as_str().unwrap().to_owned()
                };
                lines[2] = lines[2].replace(&checksum(&lines[2]), &checksum(&lines[3]));
            });
        },
        Refused(":3: its checksum"),
    ),
    (
        "a checksum cut short",
        |room| {
            of_lines(room, |lines| {
                let end = lines[2].trim_end().len() - 5;
                lines[2].replace_range(end..end + 2, "");
            });
        },
        Refused(":3: "),
    ),
    (
        "no checksum",
        |room| of_lines(room, |lines| lines[2] = without_checksum(&lines[2]) + "\n"),
        Refused(":3: it has no checksum"),
    ),
    (
        "another schema",
        |room| of_lines(room, |lines| lines[2] = lines[2].replacen("\"schema\":5", "\"schema\":99", 1)),
        Refused(":3: "),
    ),
    (
        "another kind of record",
        |room| of_lines(room, |lines| lines[2] = lines[2].replacen("\"cell\"", "\"cello\"", 1)),
        Refused(":3: "),
    ),
    ("two lines made one", |room| of_lines(room, |lines| cut_end(&mut lines[2])), Refused(":3: not a result record")),
    ("one line made two", |room| of_lines(room, |lines| lines[2].insert(50, '\n')), Refused(":3: not a result record")),
    (
        "an empty line",
        |room| of_lines(room, |lines| lines.insert(3, "\n".to_owned())),
        Refused(":4: not a result record"),
    ),
    (
        "line ends of another system",
        |room| {
            of_lines(room, |lines| {
                for line in lines {
                    *line = line.replace('\n', "\r\n");
                }
            });
        },
        Refused(":1: "),
    ),
    ("one such line end", |room| of_lines(room, |lines| lines[4] = lines[4].replace('\n', "\r\n")), Refused(":5: ")),
    (
        "a mark of the byte order",
        |room| change(&room.join(RESULT_FILE), |bytes| [b"\xef\xbb\xbf".as_slice(), &bytes].concat()),
        Refused(":1: not a result record"),
    ),
    (
        "a page of nought",
        |room| {
            change(&room.join(RESULT_FILE), |mut bytes| {
                bytes[600..1200].fill(0);
                bytes
            });
        },
        Refused("not a result record"),
    ),
    (
        "nought behind the end",
        |room| change(&room.join(RESULT_FILE), |bytes| [bytes, vec![0; 512]].concat()),
        Noted("a last line that was cut off"),
    ),
    (
        "no text",
        |room| {
            change(&room.join(RESULT_FILE), |mut bytes| {
                bytes[40] = 0xff;
                bytes
            });
        },
        Refused(":1: not a result record"),
    ),
    (
        "no newline at the end",
        |room| of_lines(room, |lines| cut_end(&mut lines[10])),
        Refused("1 lines that were there when the run ended are not"),
    ),
    ("everything twice", |room| of_lines(room, |lines| lines.extend(lines.clone())), Refused("there already")),
    (
        "everything twice over",
        |room| {
            of_lines(room, |lines| {
                *lines = lines.iter().flat_map(|line| [line.clone(), line.clone()]).collect();
            });
        },
        Refused("an earlier line says it already"),
    ),
    ("two runs in one", |room| of_lines(room, |lines| lines.extend(other_run(&lines[1..]))), Refused("there already")),
    (
        "the lines of another run",
        |room| of_lines(room, |lines| *lines = other_run(&lines[1..])),
        Refused(":1: it was not there when the run ended"),
    ),
    (
        "a cell of another run",
        |room| of_lines(room, |lines| lines[2] = other_run(&lines[2..3]).concat()),
        Refused(":3: it was not there when the run ended"),
    ),
    (
        "the first half",
        |room| of_lines(room, |lines| lines.truncate(6)),
        Refused("lines that were there when the run ended are not"),
    ),
];

const FILES: [Kind; 32] = [
    (
        "no lines",
        |room| fs::write(room.join(RESULT_FILE), "").unwrap(),
        Refused("lines that were there when the run ended are not"),
    ),
    ("no file of lines", |room| fs::remove_file(room.join(RESULT_FILE)).unwrap(), Refused("result.jsonl")),
    (
        "a folder for lines",
        |room| replace_by(&room.join(RESULT_FILE), |path| fs::create_dir(path).unwrap()),
        Refused("expected a file, found a directory"),
    ),
    ("a pipe for lines", |room| replace_by(&room.join(RESULT_FILE), fifo), Refused("expected a file, found a pipe")),
    (
        "a device for lines",
        |room| replace_by(&room.join(RESULT_FILE), |path| symlink("/dev/zero", path).unwrap()),
        Refused("expected a file, found a character device"),
    ),
    (
        "a link to nowhere for lines",
        |room| replace_by(&room.join(RESULT_FILE), |path| symlink("nowhere", path).unwrap()),
        Refused("result.jsonl"),
    ),
    (
        "a link in a circle for lines",
        |room| replace_by(&room.join(RESULT_FILE), |path| symlink(RESULT_FILE, path).unwrap()),
        Refused("result.jsonl"),
    ),
    (
        "lines elsewhere",
        |room| {
            fs::rename(room.join(RESULT_FILE), room.join("moved")).unwrap();
            symlink("moved", room.join(RESULT_FILE)).unwrap();
        },
        Harmless,
    ),
    ("no run.json", |room| fs::remove_file(room.join(IDENTITY_FILE)).unwrap(), Refused("run.json")),
    ("run.json empty", |room| of_json(room, |_| String::new()), Refused("run.json: EOF")),
    ("run.json cut off", |room| of_json(room, |text| text[..text.len() / 2].to_owned()), Refused("run.json: EOF")),
    ("run.json twice", |room| of_json(room, |text| text.clone() + &text), Refused("run.json: trailing characters")),
    (
        "run.json with another seed",
        |room| of_json(room, |text| text.replacen("\"seed\": 2", "\"seed\": 3", 1)),
        Refused("run.json: its checksum"),
    ),
    (
        "run.json with a space more",
        |room| of_json(room, |text| text.replacen('\n', "\n ", 1)),
        Refused("run.json: its checksum"),
    ),
    ("run.json with other line ends", |room| of_json(room, |text| text.replace('\n', "\r\n")), Refused("run.json: ")),
    ("run.json with a mark", |room| of_json(room, |text| format!("\u{feff}{text}")), Refused("run.json: ")),
    ("run.json with nought behind it", |room| of_json(room, |text| text + "\0\0"), Refused("run.json: ")),
    (
        "run.json without checksum",
        |room| of_json(room, |text| without_checksum(&text)),
        Refused("run.json: it says which lines"),
    ),
    (
        "run.json without the lines at the end",
        |room| {
            of_json(room, |text| {
                let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
                value.as_object_mut().unwrap().remove("lines");
                value.to_string()
            });
        },
        Refused("it was altered"),
    ),
    (
        "run.json of another run",
        |room| {
            let mut identity = identity(room).unwrap().identity;
            identity.lines = None;
            identity.keys.iter_mut().for_each(|key| key.case = "d".to_owned());
            write_identity(room, &identity, true).unwrap();
        },
        Refused("is no cell of this run"),
    ),
    (
        "run.json of the same run at another time",
        |room| {
            let mut identity = identity(room).unwrap().identity;
            identity.lines =
                identity.lines.map(|lines| lines.iter().rev().map(|line| line.chars().rev().collect()).collect());
            write_identity(room, &identity, true).unwrap();
        },
        Refused(":1: it was not there when the run ended"),
    ),
    (
        "run.json a folder",
        |room| replace_by(&room.join(IDENTITY_FILE), |path| fs::create_dir(path).unwrap()),
        Refused("expected a file, found a directory"),
    ),
    (
        "a map with a byte less",
        |room| {
            change(&maps(room)[0], |mut bytes| {
                bytes.pop();
                bytes
            });
        },
        Refused("its content is not that of its name"),
    ),
    (
        "a map with a byte more",
        |room| change(&maps(room)[0], |bytes| [bytes, vec![b'\n']].concat()),
        Refused("its content is not that of its name"),
    ),
    ("an empty map", |room| fs::write(&maps(room)[1], "").unwrap(), Refused("its content is not that of its name")),
    (
        "maps that changed places",
        |room| {
            let [one, other] = maps(room);
            let aside = room.join("aside");
            fs::rename(&one, &aside).unwrap();
            fs::rename(&other, &one).unwrap();
            fs::rename(&aside, &other).unwrap();
        },
        Refused("its content is not that of its name"),
    ),
    (
        "a map that is the other",
        |room| {
            let [one, other] = maps(room);
            replace_by(&one, |path| symlink(&other, path).unwrap());
        },
        Refused("its content is not that of its name"),
    ),
    ("a pipe for a map", |room| replace_by(&maps(room)[0], fifo), Noted("not in files/ any more")),
    (
        "a folder for a map",
        |room| replace_by(&maps(room)[0], |path| fs::create_dir(path).unwrap()),
        Noted("not in files/ any more"),
    ),
    (
        "a map renamed",
        |room| fs::rename(&maps(room)[0], room.join(report::map::FOLDER).join("renamed")).unwrap(),
        Noted("not in files/ any more"),
    ),
    (
        "a file for the folder of maps",
        |room| {
            fs::remove_dir_all(room.join(report::map::FOLDER)).unwrap();
            fs::write(room.join(report::map::FOLDER), "").unwrap();
        },
        Noted("not in files/ any more"),
    ),
    (
        "files that are none of ours",
        |room| {
            fs::write(room.join(report::map::FOLDER).join("f".repeat(64)), "mine").unwrap();
            fs::write(room.join("notes.txt"), "mine").unwrap();
            fs::write(room.join("result.jsonl~"), "mine").unwrap();
        },
        Harmless,
    ),
];

#[test]
fn every_kind_of_damage_to_a_directory_is_told() {
    let mut wrong = Vec::new();
    for (name, damage, told) in LINES.into_iter().chain(FILES) {
        let result = Result::new();
        damage(result.path());
        let said = result.said();
        let is_right = match (&said, told) {
            (Err(said), Refused(words)) => said.contains(words) && said.lines().count() == 1,
            (Ok(said), Noted(words)) => said.concat().contains(words),
            (Ok(said), Harmless) => said.is_empty(),
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{name}: expected {told:?}, said {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn maps_that_are_gone_when_a_run_ends_are_told() {
    let result = Result::new();
    write_identity(result.path(), &result.identity, true).unwrap();
    fs::remove_dir_all(result.path().join(report::map::FOLDER)).unwrap();
    let (mut store, _) = Store::open(result.path()).unwrap();
    let problems = directory::finish(result.path(), &mut store).unwrap();
    assert!(
        problems.len() == 3 && problems.iter().all(|problem| problem.contains("is not there any more")),
        "{problems:?}"
    );
    assert_eq!(identity(result.path()).unwrap().identity.lines, None, "it has not ended");
}

/// A bit of every byte, one after the other: of a cell, a system, a skipped cell and the head.
#[test]
fn no_byte_of_any_field_changes_unseen() {
    let result = Result::new();
    let lines = result.lines();
    let first_three: usize = lines[..3].iter().map(String::len).sum();
    for (file, bytes) in [(RESULT_FILE, first_three), (IDENTITY_FILE, usize::MAX)] {
        let file = result.path().join(file);
        let before = fs::read(&file).unwrap();
        for at in 0..before.len().min(bytes) {
            let mut damaged = before.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&file, &damaged).unwrap();
            assert_ne!(result.said(), Ok(vec![]), "{}: byte {at}", file.display());
        }
        fs::write(&file, &before).unwrap();
    }
}
