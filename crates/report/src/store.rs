//! A result directory: `result.jsonl`, one whole line per record, durable when `append` returns.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::record::{OLDEST_SCHEMA, Record, SCHEMA};

/// The file of a result directory that holds its records.
pub const RESULT_FILE: &str = "result.jsonl";

/// A result directory, locked against other writers for as long as the value lives.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    /// Length of all whole lines, in bytes.
    length: u64,
}

/// The contents of a result directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The records, in the order written.
    pub records: Vec<Record>,
    /// The last line, if its writer was stopped in the middle of it.
    pub torn: Option<Torn>,
}

/// A last line that was not written to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The line's number, from 1.
    pub line: u64,
    /// How many bytes of it there are.
    pub bytes: u64,
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
    /// A line is not a record.
    #[error("{}:{line}: not a result record: {reason}", path.display())]
    Malformed {
        /// The result file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// The mistake in the line.
        reason: String,
    },
    /// A line is of another version of the schema.
    #[error("{}:{line}: expected schema {OLDEST_SCHEMA} to {SCHEMA}, found {found}", path.display())]
    Schema {
        /// The result file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// The line's `schema`, as JSON.
        found: String,
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
    pub fn open(dir: &Path) -> Result<(Self, Contents), StoreError> {
        let path = dir.join(RESULT_FILE);
        let file = OpenOptions::new().read(true).append(true).open(&path);
        let mut file = file.map_err(io_error("open", &path))?;
        lock(&file, &path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io_error("read", &path))?;
        let contents = parse(&path, &bytes)?;
        let length = bytes.len() as u64 - contents.torn.map_or(0, |torn| torn.bytes);
        if contents.torn.is_some() {
            file.set_len(length).map_err(io_error("truncate", &path))?;
            file.sync_all().map_err(io_error("sync", &path))?;
        }
        Ok((Self { path, file, length }, contents))
    }

    /// Reads the result in `dir` and changes nothing, even while another process writes it.
    pub fn read(dir: &Path) -> Result<Contents, StoreError> {
        let path = dir.join(RESULT_FILE);
        let bytes = fs::read(&path).map_err(io_error("read", &path))?;
        parse(&path, &bytes)
    }

    /// Appends one line; it is on disk when this returns. After an error the file is as before.
    pub fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        let unreadable =
            |reason: serde_json::Error| StoreError::Unreadable { path: self.path.clone(), reason: reason.to_string() };
        let mut line = serde_json::to_vec(record).map_err(unreadable)?;
        // JSON has no infinity: serde_json writes it as null, which no one could read again.
        serde_json::from_slice::<Record>(&line).map_err(unreadable)?;
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

/// Only the last line may be torn, and only in a way that a stopped writer leaves behind: without
/// its end. JSON that is whole but no record is an error wherever it stands.
fn parse(path: &Path, bytes: &[u8]) -> Result<Contents, StoreError> {
    let mut contents = Contents { records: Vec::new(), torn: None };
    let mut lines = (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')).peekable();
    while let Some((line, text)) = lines.next() {
        let (whole, json) = match text.strip_suffix(b"\n") {
            Some(json) => (true, json),
            None => (false, text),
        };
        let is_last = lines.peek().is_none();
        match serde_json::from_slice::<serde_json::Value>(json) {
            Ok(value) if whole => contents.records.push(record(path, line, value)?),
            _ if is_last => contents.torn = Some(Torn { line, bytes: text.len() as u64 }),
            Ok(_) => unreachable!("only the last line can lack its end"),
            Err(error) => {
                let reason = json_reason(&error);
                return Err(StoreError::Malformed { path: path.to_owned(), line, reason });
            }
        }
    }
    Ok(contents)
}

fn record(path: &Path, line: u64, value: serde_json::Value) -> Result<Record, StoreError> {
    let reads = |schema: u64| (u64::from(OLDEST_SCHEMA)..=u64::from(SCHEMA)).contains(&schema);
    if let Some(found) = value.get("schema").filter(|found| !found.as_u64().is_some_and(reads)) {
        let found = found.to_string();
        return Err(StoreError::Schema { path: path.to_owned(), line, found });
    }
    serde_json::from_value(value).map_err(|error| StoreError::Malformed {
        path: path.to_owned(),
        line,
        reason: json_reason(&error),
    })
}

/// serde_json counts lines within the text it was given, which is always one line here.
fn json_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())) {
        Some(reason) => format!("{reason} at column {}", error.column()),
        None => text,
    }
}
