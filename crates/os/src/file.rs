//! Files of a run, by name and by descriptor.

use serde::{Deserialize, Serialize};

/// An open file of the calling process, as a descriptor is: Copy, and good until it is closed. Processes that are spawned
/// do not have it; they open what they need by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// The target's own number for it.
    pub id: u32,
}
