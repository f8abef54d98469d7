//! Numbers that mean something. Every quantity that crosses a crate border is one of these, so that bytes are never
//! mistaken for frames, nor a time for a count.

mod block_cell;
mod block_census;
mod errno;
mod extfrag;
mod frame_churn;
mod ids;
mod mobility;
mod rate;
pub mod setting;
mod size;
mod stores;
mod streamed;
mod time;

pub use block_cell::BlockCell;
pub use block_census::BlockCensus;
pub use errno::Errno;
pub use extfrag::{ExtfragClass, ExtfragCounts, ExtfragKind};
pub use frame_churn::{FrameChurn, FrameChurned, PageAllocator};
pub use ids::{CpuId, NodeId, Order, Pfn, VirtAddr, Vpn};
pub use mobility::Mobility;
pub use rate::{BytesPerSecond, ParseRateError};
pub use size::{Bytes, FRAME_SHIFT, Frames, ParseSizeError};
pub use stores::{Bzero, Stores};
pub use streamed::Streamed;
pub use time::{Picos, Time};
