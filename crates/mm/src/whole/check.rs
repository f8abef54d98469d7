//! Linux: none; CONFIG_DEBUG_VM and CONFIG_DEBUG_LIST check single pages and links.
//! Differs: walks the whole state, and reads it only through `FrameTable::get`, the raw words and the ends of lists,
//! without help from the code that it checks.

mod files;
mod host;
mod lru;
mod owners;
mod spaces;
mod swap;
mod thp;

use memory::check::{self, broken, ensure};

pub use memory::check::Broken;

use crate::Mm;

pub use files::walk_files;
pub use host::walk_host;
pub use owners::{Owners, walk_owners};

/// Walks every list and every frame.
pub fn walk(mm: &Mm) -> Result<(), Broken> {
    let batched = vec![false; mm.memory.frames.len() as usize];
    let mut walk = Walk { mm, low: check::Walk::new(&mm.memory), batched };
    walk.low.zone_lists()?;
    walk.lru_lists()?;
    walk.lru_batches()?;
    walk.low.slab_lists()?;
    walk.swap_cache()?;
    walk.huge_pages()?;
    let Walk { low, batched, .. } = &mut walk;
    low.all_frames(&|at, listed| lru::is_where_it_says(mm, batched, at, listed))?;
    low.counts()
}

struct Walk<'a> {
    mm: &'a Mm,
    /// Over lists and frames of the page allocator.
    low: check::Walk<'a>,
    /// Seen in an LRU batch, by frame.
    batched: Vec<bool>,
}
