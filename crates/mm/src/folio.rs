//! Linux: mm/swap.c, mm/rmap.c, mm/workingset.c and folio_lock() of mm/filemap.c (v6.1).
//! Differs: the lists, ties and locks of a folio lie beside its frame, not in it.
//!
//! Floor 3, the lowest room: what is known of a folio that is in use. LRU lists, who maps it, its lock, its way back after it was
//! reclaimed. Files here use floors 0 to 2. Begin with `lru.rs`.

pub(crate) mod folio_lock;
pub mod lru;
pub mod rmap;
pub(crate) mod workingset;
