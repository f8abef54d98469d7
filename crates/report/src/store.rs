//! A result directory: `result.jsonl`, one whole line per record with a checksum at its end, durable when `append` returns.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::{
    names::brief,
    record::{OLDEST_SCHEMA, Record, SCHEMA},
    seal::{Seal, checksum, seal, verify},
    whole::{check_regular, replace},
};

/// The file of a result directory that holds its records.
pub const RESULT_FILE: &str = "result.jsonl";

/// Why a line with another checksum is rejected.
pub const ALTERED: &str = "its checksum does not match: the line was altered";

/// A result directory, locked against other writers for as long as the value lives.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    /// Length of all whole lines, in bytes.
    length: u64,
}

/// The records of a result, or numbers that were measured elsewhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// The records, in the order written.
    pub records: Vec<Record>,
}

/// The lines of a result file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// Whole lines, in the order written.
    pub whole: Vec<Line>,
    /// Lines that say nothing for sure.
    pub rejected: Vec<Rejected>,
    /// The last line, if its writer was stopped in the middle of it.
    pub torn: Option<Torn>,
}

/// A line with a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The line's number, from 1.
    pub number: u64,
    /// The checksum of the whole line, which tells lines of a file apart.
    pub checksum: String,
    /// Whether the line had a checksum of its own, which programs before these did not write.
    pub is_sealed: bool,
    /// The record.
    pub record: Record,
}

/// A line without a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The line's number, from 1.
    pub line: u64,
    /// The mistake in the line.
    pub reason: String,
    /// Whether a newer program may have written the line: it is not ours to remove.
    pub is_foreign: bool,
}

/// A last line that was not written to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The line's number, from 1.
    pub line: u64,
    /// How many bytes of it there are.
    pub bytes: u64,
    /// Whether the file ends without a newline, as a writer that was stopped leaves it.
    pub is_cut: bool,
}

/// Why a result directory cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused.
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The error of the operating system.
        reason: io::Error,
    },
    /// A new result was to be made where there is one.
    #[error("{} exists: resume it, or choose another directory", path.display())]
    Exists {
        /// The result file.
        path: PathBuf,
    },
    /// Another process is writing.
    #[error("{} is being written by another process", path.display())]
    Busy {
        /// The result file.
        path: PathBuf,
    },
    /// A record could not be read back, so it was not written: a number in it is not finite.
    #[error("record not written to {}: {reason}", path.display())]
    Unreadable {
        /// The result file.
        path: PathBuf,
        /// The error of reading it back.
        reason: String,
    },
}

impl Store {
    /// Makes a new result in `dir`, which is made too if need be.
    pub fn create(dir: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(io_error("create", dir))?;
        let path = dir.join(RESULT_FILE);
        let file = OpenOptions::new().create_new(true).append(true).open(&path);
        let file = file.map_err(|reason| match reason.kind() {
            io::ErrorKind::AlreadyExists => StoreError::Exists { path: path.clone() },
            _ => io_error("create", &path)(reason),
        })?;
        lock(&file, &path)?;
        sync_directory(dir)?;
        Ok(Self { path, file, length: 0 })
    }

    /// Opens the result in `dir` to append to it, and cuts off a torn last line.
    pub fn open(dir: &Path) -> Result<(Self, Lines), StoreError> {
        let path = dir.join(RESULT_FILE);
        check_regular(&path).map_err(io_error("open", &path))?;
        let file = OpenOptions::new().read(true).append(true).open(&path);
        let mut file = file.map_err(io_error("open", &path))?;
        lock(&file, &path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io_error("read", &path))?;
        let lines = parse(&bytes);
        let length = bytes.len() as u64 - lines.torn.map_or(0, |torn| torn.bytes);
        if lines.torn.is_some() {
            file.set_len(length).map_err(io_error("truncate", &path))?;
            file.sync_all().map_err(io_error("sync", &path))?;
        }
        Ok((Self { path, file, length }, lines))
    }

    /// Reads the result in `dir` and changes nothing, even while another process writes it.
    pub fn read(dir: &Path) -> Result<Lines, StoreError> {
        Ok(parse(&read_regular(&dir.join(RESULT_FILE))?))
    }

    /// Appends one line; it is on disk when this returns. After an error the file is as before.
    pub fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        let mut line = self.line(record)?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_all());
        if let Err(reason) = written {
            // If this fails too, the next `open` cuts the line off.
            let _ = self.file.set_len(self.length);
            return Err(io_error("append to", &self.path)(reason));
        }
        self.length += line.len() as u64;
        Ok(())
    }

    /// The line of a record, which can be read again.
    fn line(&self, record: &Record) -> Result<Vec<u8>, StoreError> {
        let unreadable =
            |reason: serde_json::Error| StoreError::Unreadable { path: self.path.clone(), reason: reason.to_string() };
        let line = serde_json::to_vec(record).map_err(unreadable)?;
        // JSON has no infinity: serde_json writes it as null, which no one could read again.
        serde_json::from_slice::<Record>(&line).map_err(unreadable)?;
        Ok(seal(line))
    }

    /// Leaves these lines of the file, in this order, each byte as it was.
    ///
    /// # Panics
    /// When there is no such line.
    pub fn keep(&mut self, numbers: &[u64]) -> Result<(), StoreError> {
        let bytes = read_regular(&self.path)?;
        let lines: Vec<_> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        let line = |number: &u64| lines[usize::try_from(number - 1).expect("a line of the file")];
        let kept: Vec<u8> = numbers.iter().map(line).collect::<Vec<_>>().concat();
        self.replace_bytes(&kept)
    }

    /// Puts the lines of these records in the place of all that is there.
    pub fn replace(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        for record in records {
            bytes.extend(self.line(record)?);
            bytes.push(b'\n');
        }
        self.replace_bytes(&bytes)
    }

    fn replace_bytes(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file = replace(&self.path, bytes)?;
        self.length = bytes.len() as u64;
        Ok(())
    }

    /// The result file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A new name is durable only once its directory is (fsync(2)).
pub(crate) fn sync_directory(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("sync", dir))
}

fn lock(file: &File, path: &Path) -> Result<(), StoreError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => StoreError::Busy { path: path.to_owned() },
        TryLockError::Error(reason) => io_error("lock", path)(reason),
    })
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |reason| StoreError::Io { action, path: path.to_owned(), reason }
}

/// Reads a file that another process cannot make us wait for.
fn read_regular(path: &Path) -> Result<Vec<u8>, StoreError> {
    check_regular(path).and_then(|()| fs::read(path)).map_err(io_error("read", path))
}

/// Only the last line may be torn, and only in a way that a stopped writer leaves behind: without
/// its end. JSON that is whole but no record is rejected wherever it stands.
fn parse(bytes: &[u8]) -> Lines {
    let mut found = Lines::default();
    let mut lines = (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')).peekable();
    while let Some((number, text)) = lines.next() {
        let whole = text.strip_suffix(b"\n");
        let is_last = lines.peek().is_none();
        let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
        if is_last && (whole.is_none() || !is_json()) {
            found.torn = Some(Torn { line: number, bytes: text.len() as u64, is_cut: whole.is_none() });
            continue;
        }
        let text = whole.unwrap_or(text);
        match read_line(text) {
            Ok((_, Seal::Broken)) => {
                found.rejected.push(Rejected { line: number, reason: ALTERED.to_owned(), is_foreign: false });
            }
            Ok((record, seal)) => {
                let is_sealed = seal == Seal::Whole;
                found.whole.push(Line { number, checksum: checksum(text), is_sealed, record });
            }
            Err(NoRecord { reason, is_foreign }) => {
                found.rejected.push(Rejected { line: number, reason, is_foreign });
            }
        }
    }
    found
}

/// Why a line has no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRecord {
    /// The mistake in the line.
    pub reason: String,
    /// Whether a newer program may have written the line.
    pub is_foreign: bool,
}

/// The record of a line without its newline, and the verdict of the line's checksum.
///
/// # Errors
/// A line that is no record of this program.
pub fn read_line(text: &[u8]) -> Result<(Record, Seal), NoRecord> {
    let seal = verify(text);
    let broken = |reason: String, is_foreign: bool| NoRecord {
        reason: format!("not a result record: {reason}"),
        is_foreign: is_foreign && seal != Seal::Broken,
    };
    let value: serde_json::Value = serde_json::from_slice(text).map_err(|error| broken(json_reason(&error), false))?;
    let reads = |schema: u64| (u64::from(OLDEST_SCHEMA)..=u64::from(SCHEMA)).contains(&schema);
    if let Some(found) = value.get("schema").filter(|found| !found.as_u64().is_some_and(reads)) {
        let reason = format!("expected schema {OLDEST_SCHEMA} to {SCHEMA}, found {}", brief(found));
        return Err(NoRecord { reason, is_foreign: seal != Seal::Broken });
    }
    let record = serde_json::from_value(value).map_err(|error| broken(json_reason(&error), true))?;
    Ok((record, seal))
}

/// serde_json counts lines within the text it was given, which is always one line here.
fn json_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())) {
        Some(reason) => format!("{} at column {}", brief(reason), error.column()),
        None => brief(text),
    }
}
