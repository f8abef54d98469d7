//! Bytes that user code has streamed through memory, by place and by limit.

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// Bytes that sweeps of user code have moved through memory. A line that is read before it is written, and written back later,
/// counts twice. The bytes near and far are all bytes together, and so are the bytes by limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streamed {
    /// Memory of the node of the CPU.
    pub near: Bytes,
    /// Memory of other nodes.
    pub far: Bytes,
    /// The CPU could not go faster, whatever others did.
    pub by_core: Bytes,
    /// A node's memory had more to serve than it could.
    pub by_node: Bytes,
    /// A link between nodes had.
    pub by_link: Bytes,
    /// Lines that go from cache to cache took longer than memory.
    pub by_lines: Bytes,
}

impl Streamed {
    /// All bytes.
    pub fn total(&self) -> Bytes {
        self.near + self.far
    }

    /// Each limit with its name.
    pub fn limits(&self) -> [(&'static str, Bytes); 4] {
        [("core", self.by_core), ("node", self.by_node), ("link", self.by_link), ("lines", self.by_lines)]
    }

    /// The bytes since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, |now, before| now - before)
    }

    /// Adds the bytes since an earlier reading this number of times more.
    pub fn repeat(&mut self, earlier: &Self, times: u64) {
        *self = self.with(earlier, |now, before| now + (now - before) * times);
    }

    fn with(&self, other: &Self, of: impl Fn(Bytes, Bytes) -> Bytes) -> Self {
        Self {
            near: of(self.near, other.near),
            far: of(self.far, other.far),
            by_core: of(self.by_core, other.by_core),
            by_node: of(self.by_node, other.by_node),
            by_link: of(self.by_link, other.by_link),
            by_lines: of(self.by_lines, other.by_lines),
        }
    }
}
