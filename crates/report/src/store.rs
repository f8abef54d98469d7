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

/// The reason for rejecting a line whose checksum does not match.
pub const ALTERED: &str = "its checksum does not match: the line was altered";

/// A result directory, locked against other writers while the value lives.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    /// Length of all complete lines, in bytes.
    length: u64,
}

/// The records of a result, or numbers measured elsewhere.
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
    /// Lines whose content cannot be trusted.
    pub rejected: Vec<Rejected>,
    /// The last line, if its writer was stopped in the middle of it.
    pub torn: Option<Torn>,
}

/// A line with a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The line's number, from 1.
    pub number: u64,
    /// The checksum of the line, which is different for every line of a file.
    pub checksum: String,
    /// Did the line have a checksum of its own? Older programs did not write one.
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
    /// Could a newer program have written the line? Such a line is not ours to remove.
    pub is_foreign: bool,
}

/// A last line that was not completely written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The line's number, from 1.
    pub line: u64,
    /// Number of bytes that were written.
    pub bytes: u64,
    /// Does the file end without a newline, as a stopped writer leaves it?
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
        /// The file or directory that it failed on.
        path: PathBuf,
        /// The error of the operating system.
        reason: io::Error,
    },
    /// A new result was requested where a result exists.
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
    /// Makes a new result in `dir`, which is created if needed.
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

    /// Reads the result in `dir` without changing it, even while another process writes.
    pub fn read(dir: &Path) -> Result<Lines, StoreError> {
        Ok(parse(&read_regular(&dir.join(RESULT_FILE))?))
    }

    /// Appends one line, which is on disk when this returns. After an error the file is unchanged.
    pub fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        let mut line = self.line(record)?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_all());
        if let Err(reason) = written {
            // If truncating fails too, the following `open` cuts the line off.
            let _ = self.file.set_len(self.length);
            return Err(io_error("append to", &self.path)(reason));
        }
        self.length += line.len() as u64;
        Ok(())
    }

    /// The line of a record, checked to be readable.
    fn line(&self, record: &Record) -> Result<Vec<u8>, StoreError> {
        let unreadable =
            |reason: serde_json::Error| StoreError::Unreadable { path: self.path.clone(), reason: reason.to_string() };
        let line = serde_json::to_vec(record).map_err(unreadable)?;
        // JSON has no infinity: serde_json writes it as null, which no one could read again.
        serde_json::from_slice::<Record>(&line).map_err(unreadable)?;
        Ok(seal(line))
    }

    /// Keeps only these lines of the file, in this order and unchanged.
    ///
    /// # Panics
    /// When a line number does not exist.
    pub fn keep(&mut self, numbers: &[u64]) -> Result<(), StoreError> {
        let bytes = read_regular(&self.path)?;
        let lines: Vec<_> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        let line = |number: &u64| lines[usize::try_from(number - 1).expect("a line of the file")];
        let kept: Vec<u8> = numbers.iter().map(line).collect::<Vec<_>>().concat();
        self.replace_bytes(&kept)
    }

    /// Replaces the whole content by the lines of these records.
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

/// Syncs a directory: a new file name is durable only once its directory is (fsync(2)).
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

/// Reads a file; it refuses files such as pipes, on which another process could make us wait.
fn read_regular(path: &Path) -> Result<Vec<u8>, StoreError> {
    check_regular(path).and_then(|()| fs::read(path)).map_err(io_error("read", path))
}

/// Parses lines. Only the last line may be torn, and only as a stopped writer leaves it, without its end. Complete JSON
/// that is no record is rejected wherever it is.
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

/// A line that has no record, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRecord {
    /// The mistake in the line.
    pub reason: String,
    /// Could a newer program have written the line?
    pub is_foreign: bool,
}

/// Parses a line, without its newline, into a record and the verdict on its checksum.
///
/// # Errors
/// When the line is no record of this program.
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

/// serde_json counts lines within the text it was given, which here is always one line, so the line number is cut off.
fn json_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())) {
        Some(reason) => format!("{} at column {}", brief(reason), error.column()),
        None => brief(text),
    }
}
