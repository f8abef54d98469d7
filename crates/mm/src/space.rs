//! Linux: mm/mmap.c, mm/memory.c, mm/rmap.c, mm/mmu_gather.c and kernel/fork.c (v6.1).
//! Differs: page tables and VMAs belong to one struct, an address space.
//!
//! Floor 3, the highest room: address spaces, with VMAs, page tables, reverse mapping, fork and unmapping. Files here use
//! floors 0 to 2 and the other rooms of this floor. Begin with `address_space.rs`, then `page_table.rs`.

pub mod address_space;
pub mod fork;
pub mod huge_zero;
pub(crate) mod mmu_gather;
pub mod page_table;
pub mod rmap;
pub mod spaces;
pub mod unmap;
pub mod vma;
