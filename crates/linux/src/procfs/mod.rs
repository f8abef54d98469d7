//! /proc and /sys as data: a [`Capture`] holds the kernel's texts, a [`Snapshot`] what they say.
//!
//! | Kernel's file                                | here               |
//! |----------------------------------------------|--------------------|
//! | /proc/zoneinfo                               | [`zoneinfo`]       |
//! | /proc/vmstat, /proc/meminfo                  | [`vmstat`], [`meminfo`] |
//! | /proc/buddyinfo, /proc/pagetypeinfo          | [`buddyinfo`], [`pagetypeinfo`] |
//! | node and CPU lists, distances, "\[choices\]" | [`list`]           |
//! | /proc/version                                | [`version`]        |
//! | the memory in an OOM report                   | [`oom`]            |
//! | pasted texts, and several files in a text    | [`paste`], `divide.rs` |
//!
//! Every parser is a function from text to data. Text that is malformed or cut off is an error with its line; a name
//! that we do not know is none, because each kernel adds some.

pub mod buddyinfo;
mod capture;
mod divide;
mod lines;
pub mod list;
pub mod meminfo;
pub mod oom;
pub mod pagetypeinfo;
pub mod paste;
mod snapshot;
pub mod version;
pub mod vmstat;
pub mod zoneinfo;

use std::{io, path::PathBuf};

pub use capture::Capture;
pub use snapshot::{Node, Snapshot};
pub use version::Release;
pub use zoneinfo::{Pageset, Zone};

/// Why a capture cannot be made or understood.
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    /// A text is not what the kernel writes, or it is cut off.
    #[error("{file}, line {line}: expected {expected}, found {found}")]
    Parse {
        /// The capture's key, such as "zoneinfo".
        file: String,
        /// Line number, from 1; one past the last line when the text ended too early.
        line: usize,
        /// The text that should be there.
        expected: String,
        /// The text that is there.
        found: String,
    },
    /// The capture lacks a text that is needed.
    #[error("{file} is not in this capture")]
    Missing {
        /// The capture's key.
        file: String,
    },
    /// A file that every Linux has cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

#[cfg(test)]
pub(crate) mod fuzz;
