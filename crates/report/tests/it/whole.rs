//! Files that are replaced whole, and paths that lead to something else.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    os::unix::net::UnixListener,
    path::Path,
    thread,
};

use nix::{
    sys::stat::{Mode, SFlag, makedev, mknod},
    unistd::{Uid, mkfifo},
};
use report::{check_whole, write_all_whole, write_whole};
use tempfile::TempDir;

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("listed").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_file_is_replaced_whole_and_leaves_no_remnant() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("table.txt");
    write_whole(&path, b"first, and longer").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    // Of a process that was killed.
    fs::write(dir.path().join(".table.txt.partial"), "older, and longer than all").unwrap();
    check_whole(&path).expect("it can be");
    assert_eq!(fs::read(&path).expect("readable"), b"first, and longer");
    write_whole(&path, b"second").expect("written");
    assert_eq!(fs::read(&path).expect("readable"), b"second");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640, "as it was");
    assert_eq!(names(dir.path()), ["table.txt"]);
}

#[test]
fn many_may_write_the_same_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("same");
    thread::scope(|scope| {
        for n in 0..8_u8 {
            let path = &path;
            scope.spawn(move || (0..20).for_each(|_| write_whole(path, &vec![n; 5000]).expect("written")));
        }
    });
    let found = fs::read(&path).unwrap();
    assert!(found.len() == 5000 && found.iter().all(|byte| *byte == found[0]));
    assert_eq!(names(dir.path()), ["same"]);
}

#[test]
fn symlinks_are_followed_and_stay() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("there")).unwrap();
    fs::write(at("there/file"), "old").unwrap();
    symlink("there/file", at("link")).unwrap();
    symlink("link", at("link of a link")).unwrap();
    symlink(at("there/new"), at("to nothing yet")).unwrap();
    symlink("circle", at("circle")).unwrap();
    let before = names(dir.path());
    for (name, file) in [("link", "there/file"), ("link of a link", "there/file"), ("to nothing yet", "there/new")] {
        check_whole(&at(name)).expect("it can be");
        write_whole(&at(name), name.as_bytes()).expect("written");
        assert_eq!(fs::read_to_string(at(file)).unwrap(), name);
        assert!(at(name).symlink_metadata().unwrap().is_symlink(), "{name}");
    }
    let message = write_whole(&at("circle"), b"x").expect_err("it leads nowhere").to_string();
    assert!(message.contains("circle: "), "{message}");
    assert!(check_whole(&at("circle")).is_err());
    assert_eq!(names(dir.path()), before);
    assert_eq!(names(&at("there")), ["file", "new"]);
}

#[test]
fn a_link_beside_a_file_is_not_written_through() {
    let dir = TempDir::new().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, dir.path().join(".out.partial")).unwrap();
    assert!(write_whole(&dir.path().join("out"), b"x").is_err());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn a_pipe_is_written_to() {
    let dir = TempDir::new().unwrap();
    let pipe = dir.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    symlink("pipe", dir.path().join("link")).unwrap();
    for name in ["pipe", "link"] {
        check_whole(&dir.path().join(name)).expect("nothing waits");
        let reader = thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut text = String::new();
                fs::File::open(pipe).and_then(|mut pipe| pipe.read_to_string(&mut text)).map(|_| text)
            }
        });
        let long = "0123456789".repeat(20_000);
        write_whole(&dir.path().join(name), long.as_bytes()).expect("written");
        assert_eq!(reader.join().unwrap().unwrap(), long);
        assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo());
    }
    assert_eq!(names(dir.path()), ["link", "pipe"]);
}

/// A null device and a full one of our own: this machine's devices are not ours to lose.
#[test]
fn a_device_is_written_to() {
    let dir = TempDir::new().unwrap();
    let device = |name: &str, minor| {
        let path = dir.path().join(name);
        let made = mknod(&path, SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, makedev(1, minor));
        made.map_err(|error| error.to_string())?;
        // A file system may be mounted without devices.
        fs::OpenOptions::new().write(true).open(&path).map_err(|error| error.to_string())?;
        Ok::<_, String>(path)
    };
    let (null, full) = match (device("null", 3), device("full", 7)) {
        (Ok(null), Ok(full)) => (null, full),
        (Err(reason), _) | (_, Err(reason)) => {
            println!("skipped: no device of our own can be made (root: {}): {reason}", Uid::effective().is_root());
            return;
        }
    };
    check_whole(&null).expect("it can be");
    write_whole(&null, b"x").expect("written");
    let message = write_whole(&full, b"x").expect_err("it is full").to_string();
    assert!(message.contains("No space left"), "{message}");
    for path in [null, full] {
        assert!(path.symlink_metadata().unwrap().file_type().is_char_device());
    }
    assert_eq!(names(dir.path()), ["full", "null"]);
}

#[test]
fn anything_else_is_refused_and_stays() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("directory")).unwrap();
    symlink("directory", at("link")).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    let before = names(dir.path());
    for (name, said) in [("directory", "Is a directory"), ("link", "Is a directory"), ("socket", "found a socket")] {
        for refused in [write_whole(&at(name), b"x"), check_whole(&at(name))] {
            let message = refused.expect_err(name).to_string().to_lowercase();
            assert!(message.contains(&said.to_lowercase()), "{message}");
        }
    }
    assert_eq!(names(dir.path()), before);
    assert!(at("socket").symlink_metadata().unwrap().file_type().is_socket());
}

#[test]
fn of_several_files_all_are_there_or_none() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("c")).unwrap();
    fs::write(at("a"), "old").unwrap();
    let (a, b, c, d) = (at("a"), at("b"), at("c"), at("d"));
    let files: Vec<(&Path, &[u8])> = vec![(&a, b"1"), (&b, b"2"), (&c, b"3"), (&d, b"4")];
    assert!(write_all_whole(&files).is_err(), "c is a directory");
    assert_eq!((names(dir.path()), fs::read_to_string(&a).unwrap().as_str()), (vec!["a".into(), "c".into()], "old"));
    fs::remove_dir(&c).unwrap();
    write_all_whole(&files).expect("written");
    assert_eq!(files.iter().map(|(path, _)| fs::read(path).unwrap()).collect::<Vec<_>>().concat(), b"1234");
}
