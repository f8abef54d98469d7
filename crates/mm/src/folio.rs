//! Linux: mm/swap.c, folio_lock() of mm/filemap.c, and entries of page tables, arch/x86/include/asm/pgtable.h (v6.1).
//! Differs: the lists, counts and locks of a folio lie beside its frame, not in it.
//!
//! Floor 3, the lowest room: a folio in use, with its LRU lists, its lock, and the entry that maps it. Files here use floors 0
//! to 2. Begin with `lru.rs`.

pub(crate) mod folio_lock;
pub mod lru;
pub mod pte;
