//! Blocks of frames that a packet socket takes for its ring and gives back, each block of one order: the larger ones are
//! compound pages, whose tail frames the kernel takes leave of one by one when it frees them.
//!
//! The socket listens to no protocol, so that no packet ever comes. It needs `CAP_NET_RAW`.

use std::{
    mem::size_of,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use nix::errno::Errno;
use units::{Bytes, Order};

use super::{Found, Raw, absent, each, failed, probe, timed};

/// In a ring.
const BLOCKS: u32 = 16;
/// The ring is set only in every fourth round: each time, the kernel lets a grace period of RCU pass (`synchronize_net`).
const PERIOD: u32 = 4;

pub(super) fn probes() -> Vec<Found> {
    const GIVES: &[Raw] = &[Raw::FreeSingle, Raw::FreeHuge];
    let ring = match Ring::new() {
        Ok(ring) => ring,
        Err(errno) => return vec![absent(GIVES, failed("socket(AF_PACKET)")(errno))],
    };
    let mut round = 0;
    vec![probe(GIVES, move |samples| {
        round += 1;
        if round % PERIOD != 0 {
            return Ok(());
        }
        for (raw, order) in [(Raw::FreeSingle, Order::BASE), (Raw::FreeHuge, Order::HUGE)] {
            ring.set(BLOCKS, order).map_err(failed("setsockopt(PACKET_RX_RING)"))?;
            let mut result = Ok(());
            let ns = timed(|| result = ring.set(0, order));
            result.map_err(failed("setsockopt(PACKET_RX_RING)"))?;
            samples.set(raw, each(ns, BLOCKS.into()));
        }
        Ok(())
    })]
}

struct Ring(OwnedFd);

impl Ring {
    fn new() -> nix::Result<Self> {
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: it takes numbers only, and what it gives belongs to nobody else.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            OwnedFd::from_raw_fd(Errno::result(fd)?)
        };
        Ok(Self(socket))
    }

    /// Gives the ring `blocks` blocks of an order; with no blocks, the ring's present blocks are freed.
    fn set(&self, blocks: u32, order: Order) -> nix::Result<()> {
        let size = u32::try_from(Bytes::PAGE.0).expect("4 KiB") << order.0;
        let size = if blocks == 0 { 0 } else { size };
        let request =
            libc::tpacket_req { tp_block_size: size, tp_block_nr: blocks, tp_frame_size: size, tp_frame_nr: blocks };
        let len = libc::socklen_t::try_from(size_of::<libc::tpacket_req>()).expect("a few bytes");
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: the kernel reads the request, which lives until then, and nothing behind it.
        let result = unsafe {
            let request = (&raw const request).cast();
            libc::setsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, request, len)
        };
        Errno::result(result).map(drop)
    }
}
