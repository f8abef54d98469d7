//! Ranges of virtual memory, and what can be said about them.

use serde::{Deserialize, Serialize};
use units::{Bytes, VirtAddr};

use crate::File;

/// A range of virtual addresses, resolved against the calling task's address space. Copy, because partial unmaps and
/// inheritance make tokens of ownership a lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmRange {
    /// First byte.
    pub start: VirtAddr,
    /// Length in bytes.
    pub len: Bytes,
}

impl VmRange {
    /// The largest part of this range that starts on a multiple of `align` and is `len` long.
    ///
    /// # Panics
    /// When the range is too short to hold it.
    #[must_use]
    pub fn aligned_part(self, align: Bytes, len: Bytes) -> Self {
        let start = self.start.align_up(align);
        assert!(start.0 + len.0 <= self.start.0 + self.len.0, "{len} aligned to {align} does not fit into {self:?}");
        Self { start, len }
    }

    /// `len` bytes of this range from `offset` on.
    ///
    /// # Panics
    /// When they are not all in it.
    #[must_use]
    pub fn part(self, offset: Bytes, len: Bytes) -> Self {
        assert!(offset.0 + len.0 <= self.len.0, "{len} at {offset} do not lie in {self:?}");
        Self { start: VirtAddr(self.start.0 + offset.0), len }
    }

    /// Whole pages of `page` bytes in this range.
    pub fn pages(self, page: Bytes) -> u64 {
        self.len.0 / page.0
    }
}

/// The kind of mapping that `mmap` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapSpec {
    /// Private anonymous memory, readable and writable.
    Anonymous,
    /// A part of a file, private and writable: what is written is a copy.
    Private(FileRange),
    /// A part of a file, shared and writable.
    Shared(FileRange),
    /// A part of a file, shared and only readable.
    SharedRead(FileRange),
}

impl MapSpec {
    /// Whether pages of the mapping can come to be that belong to the process alone.
    pub fn is_private(self) -> bool {
        matches!(self, Self::Anonymous | Self::Private(_))
    }
}

/// Where in a file a mapping begins; how much of it is mapped, `mmap` is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The file.
    pub file: File,
    /// The first byte, a multiple of the page size.
    pub offset: Bytes,
}

/// `madvise(2)` advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_HUGEPAGE`.
    HugePage,
    /// `MADV_NOHUGEPAGE`.
    NoHugePage,
    /// `MADV_DONTNEED`: frees the pages of the range, and keeps the mapping.
    DontNeed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_aligned_part_lies_inside() {
        let range = VmRange { start: VirtAddr(0x1000), len: Bytes::mib(4) };
        let part = range.aligned_part(Bytes::HUGE_PAGE, Bytes::mib(2));
        assert_eq!(part, VmRange { start: VirtAddr(0x20_0000), len: Bytes::mib(2) });
        assert_eq!(part.pages(Bytes::PAGE), 512);
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_part_that_does_not_fit_is_a_bug() {
        let _ = VmRange { start: VirtAddr(0x1000), len: Bytes::mib(2) }.aligned_part(Bytes::HUGE_PAGE, Bytes::mib(2));
    }
}
