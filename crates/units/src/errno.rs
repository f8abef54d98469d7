//! Errors of system calls, by the kernel's names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A Linux error number. The named ones are those that a workload may meet and tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Errno(pub i32);

impl Errno {
    /// The caller is not allowed to do this.
    pub const PERM: Self = Self(1);
    /// There is no file of that name.
    pub const NOENT: Self = Self(2);
    /// The disk could not read or write something.
    pub const IO: Self = Self(5);
    /// There is a file of that name.
    pub const EXIST: Self = Self(17);
    /// No such file is open.
    pub const BADF: Self = Self(9);
    /// No memory, or the run's memory cap is reached.
    pub const NOMEM: Self = Self(12);
    /// An address that is not mapped.
    pub const FAULT: Self = Self(14);
    /// An argument makes no sense.
    pub const INVAL: Self = Self(22);
    /// The disk is full, or the run's files would become larger than it declared.
    pub const NOSPC: Self = Self(28);
    /// The target does not have this operation.
    pub const NOSYS: Self = Self(38);
    /// The kind of memory, or of file, does not have this operation.
    pub const OPNOTSUPP: Self = Self(95);
    /// Another task of the run died, so what this one waits for will never come.
    pub const CANCELED: Self = Self(125);

    fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::PERM => "EPERM",
            Self::NOENT => "ENOENT",
            Self::IO => "EIO",
            Self::EXIST => "EEXIST",
            Self::BADF => "EBADF",
            Self::NOMEM => "ENOMEM",
            Self::FAULT => "EFAULT",
            Self::INVAL => "EINVAL",
            Self::NOSPC => "ENOSPC",
            Self::NOSYS => "ENOSYS",
            Self::OPNOTSUPP => "EOPNOTSUPP",
            Self::CANCELED => "ECANCELED",
            _ => return None,
        })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl std::error::Error for Errno {}
