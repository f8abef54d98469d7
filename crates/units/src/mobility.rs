//! Mobility: frames are grouped by it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Can the frames be moved or given back later? Decides which pageblocks they are grouped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mobility {
    /// They stay where they are: page tables, stacks, most kernel objects.
    Unmovable,
    /// They can be migrated: user memory, page cache (`__GFP_MOVABLE`).
    Movable,
    /// They can be given back under pressure: inodes, dentries (`__GFP_RECLAIMABLE`).
    Reclaimable,
}

impl Mobility {
    /// Every mobility, in the order of `enum migratetype` (include/linux/mmzone.h, since 4.4).
    pub const ALL: [Self; 3] = [Self::Unmovable, Self::Movable, Self::Reclaimable];

    /// The mobility's name in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmovable => "unmovable",
            Self::Movable => "movable",
            Self::Reclaimable => "reclaimable",
        }
    }
}

impl fmt::Display for Mobility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
