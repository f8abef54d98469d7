//! Linux: include/linux/mmzone.h, include/linux/mm_types.h, mm/page_alloc.c, mm/slab.c and mm/slub.c (v6.1).
//! Differs: prices, and the context of a step, stand beside the frames that they are about.
//!
//! Floors 1 and 2: frames and their lists, prices and the context of a step (`cx.rs`); above them the page allocator with
//! zones, nodes, free lists, lists of CPUs, watermarks and slabs. Files here use `rules` alone. Begin with `alloc.rs`: one
//! request, from the zonelist to a block.

pub mod alloc;
pub mod backing;
pub(crate) mod bandwidth;
pub mod bell;
pub(crate) mod block_census;
pub mod buddy;
pub mod cost;
pub mod cx;
pub mod event;
pub mod fallback;
pub mod frame;
pub mod last_fault;
pub mod line;
pub mod list;
pub(crate) mod list_order;
pub mod lru_kind;
pub mod news;
pub mod node;
pub mod pageblock;
pub mod pcp;
pub(crate) mod per_node;
pub(crate) mod per_zone;
pub mod poison;
pub(crate) mod primitive;
pub(crate) mod reserve;
pub(crate) mod shuffle;
pub mod slab;
pub mod spin;
pub(crate) mod splitmix;
pub mod step;
pub mod suitable;
pub mod tlb;
pub mod watermark;
pub mod zone_state;
