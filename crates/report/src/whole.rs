//! Files that are there whole or not at all.
//!
//! A path that a user names may lead elsewhere: a symlink is followed, and what is replaced is the file at its end. A device or a
//! pipe is no file that could be replaced: it is written to. Anything else is refused.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use crate::store::{StoreError, io_error, sync_directory};

/// Symlinks that one path may lead through (MAXSYMLINKS, include/linux/namei.h, v6.1).
const LINKS_MAX: usize = 40;
/// Attempts to lock a file that other processes lock and rename at the same time.
const ATTEMPTS_MAX: usize = 1000;
/// How long a pipe may have no reader.
const READER_MAX: Duration = Duration::from_secs(20);

/// Writes a file: to `.NAME.partial` beside it, then renamed. A device or a pipe is written to.
///
/// # Errors
/// A path that is none of these, or one that cannot be written. What was there before is there then.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    write_all_whole(&[(path, bytes)])
}

/// Writes several files as [`write_whole`] does: none of them has its name before all are on disk.
///
/// # Errors
/// As of one of them.
pub fn write_all_whole(files: &[(&Path, &[u8])]) -> Result<(), StoreError> {
    let goals = files.iter().map(|(path, bytes)| Ok((*path, *bytes, Goal::of(path)?)));
    let goals = goals.collect::<Result<Vec<_>, StoreError>>()?;
    let mut partials = Vec::new();
    for (path, bytes, goal) in &goals {
        if let Goal::File(place) = goal {
            let partial = Partial::open(place).and_then(|partial| partial.write(bytes));
            partials.push((*path, partial.map_err(io_error("write", path))?));
        }
    }
    for (path, partial) in partials {
        let directory = partial.directory.clone();
        drop(partial.keep().map_err(io_error("write", path))?);
        sync_directory(&directory)?;
    }
    for (path, bytes, goal) in &goals {
        match goal {
            Goal::File(_) => {}
            Goal::Device => write_to(path, bytes).map_err(io_error("write", path))?,
            Goal::Pipe => write_to_pipe(path, bytes).map_err(io_error("write", path))?,
        }
    }
    Ok(())
}

/// Replaces a regular file, and returns it open for appending. No other process has had its lock in between.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<File, StoreError> {
    let place = end_of(path).map_err(io_error("write", path))?;
    let partial = Partial::open(&place).and_then(|partial| partial.write(bytes)).map_err(io_error("write", path))?;
    let directory = partial.directory.clone();
    let file = partial.keep().map_err(io_error("write", path))?;
    sync_directory(&directory)?;
    Ok(file)
}

/// Whether [`write_whole`] could write a file now, to be asked before the work whose outcome goes there. What is there stays.
///
/// # Errors
/// The errors of [`write_whole`] that can be seen beforehand.
pub fn check_whole(path: &Path) -> Result<(), StoreError> {
    match Goal::of(path)? {
        Goal::File(place) => Partial::open(&place).map(drop).map_err(io_error("write", path)),
        // To open one may mean something to the process at its other end.
        Goal::Device | Goal::Pipe => Ok(()),
    }
}

/// Whether a path leads to a regular file, which can be read without waiting for another process.
///
/// # Errors
/// The path leads to something else, or nowhere.
pub fn check_regular(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_file() { Ok(()) } else { Err(unfit("a file", kind)) }
}

/// The end of a path that is written to.
enum Goal {
    /// A regular file, or nothing yet.
    File(PathBuf),
    /// A character device. A block device holds what a user would miss.
    Device,
    Pipe,
}

impl Goal {
    fn of(path: &Path) -> Result<Self, StoreError> {
        let found = match fs::metadata(path) {
            Err(reason) if reason.kind() == io::ErrorKind::NotFound => None,
            found => Some(found.map_err(io_error("write", path))?),
        };
        match found.as_ref().map(fs::Metadata::file_type) {
            Some(kind) if kind.is_fifo() => Ok(Self::Pipe),
            Some(kind) if kind.is_char_device() => Ok(Self::Device),
            Some(kind) if kind.is_dir() => Err(io_error("write", path)(io::ErrorKind::IsADirectory.into())),
            Some(kind) if !kind.is_file() => {
                Err(io_error("write", path)(unfit("a file, a character device or a pipe", kind)))
            }
            _ => end_of(path).map(Self::File).map_err(io_error("write", path)),
        }
    }
}

/// An error that says what a path leads to.
fn unfit(expected: &str, kind: fs::FileType) -> io::Error {
    let names = [
        (kind.is_dir(), "a directory"),
        (kind.is_block_device(), "a block device"),
        (kind.is_char_device(), "a character device"),
        (kind.is_fifo(), "a pipe"),
        (kind.is_socket(), "a socket"),
    ];
    let found = names.into_iter().find(|(is_it, _)| *is_it).map_or("another thing", |(_, name)| name);
    io::Error::new(io::ErrorKind::InvalidInput, format!("expected {expected}, found {found}"))
}

/// The path behind all symlinks, which need not lead to anything yet.
fn end_of(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&place) {
            Ok(to) => place = place.parent().unwrap_or(Path::new("")).join(to),
            // Not a symlink, or nothing.
            Err(_) => return Ok(place),
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it leads through too many symlinks"))
}

/// A file beside another one, which will get its name. Removed unless it is kept.
struct Partial {
    file: File,
    path: PathBuf,
    place: PathBuf,
    directory: PathBuf,
    is_kept: bool,
}

impl Partial {
    /// Opens the file beside `place`, which one process at a time has.
    ///
    /// Bound: a process that takes the file away from another one has renamed or removed it.
    fn open(place: &Path) -> io::Result<Self> {
        let Some(name) = place.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it names no file"));
        };
        let parent = place.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        let path = parent.join([OsStr::new("."), name, OsStr::new(".partial")].join(OsStr::new("")));
        for _ in 0..ATTEMPTS_MAX {
            // Nothing that another user may have put there is followed or waited for.
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
            let file = OpenOptions::new().read(true).append(true).create(true).custom_flags(flags).open(&path)?;
            match file.lock() {
                Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
                _ => {}
            }
            let own = file.metadata()?;
            if !own.is_file() {
                return Err(unfit(&format!("a file at {}", path.display()), own.file_type()));
            }
            let is_there =
                fs::symlink_metadata(&path).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()));
            if is_there {
                let (place, directory) = (place.to_owned(), parent.to_owned());
                return Ok(Self { file, path, place, directory, is_kept: false });
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("others keep writing {}", path.display())))
    }

    /// Writes all of it, down to the disk. A file that is replaced keeps its mode.
    fn write(mut self, bytes: &[u8]) -> io::Result<Self> {
        self.file.set_len(0)?;
        self.file.write_all(bytes)?;
        if let Ok(before) = fs::metadata(&self.place) {
            self.file.set_permissions(before.permissions())?;
        }
        self.file.sync_all()?;
        Ok(self)
    }

    /// Gives the file its name, and returns it with its lock.
    fn keep(mut self) -> io::Result<File> {
        fs::rename(&self.path, &self.place)?;
        self.is_kept = true;
        self.file.try_clone()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_kept {
            // Nothing to do about a remnant that cannot be removed.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn write_to(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(bytes)
}

/// Opening a pipe waits for its reader, which may never come.
fn write_to_pipe(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (tell, told) = mpsc::channel();
    let (path, bytes) = (path.to_owned(), bytes.to_owned());
    let write = move || {
        let opened = OpenOptions::new().write(true).open(path);
        let _ = tell.send(());
        opened?.write_all(&bytes)
    };
    let writer = thread::Builder::new().spawn(write)?;
    match told.recv_timeout(READER_MAX) {
        Err(RecvTimeoutError::Timeout) => {
            let reason = format!("no process has read from this pipe for {} s", READER_MAX.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, reason))
        }
        _ => writer.join().expect("the thread that writes does not panic"),
    }
}
