//! Linux: mm/page_io.c, bdev_write_page() and bdev_read_page() in block/bdev.c (v6.1), and what is below it.
//! Differs: one page after the other in the order of arrival, reads and writes alike; requests are not merged.

use std::collections::VecDeque;

use memory::{
    cost::{Cause, Work},
    cx::Cx,
    fact::{Device as Kind, Fact},
    primitive,
};
use units::{Bytes, Picos, Time};

use super::{SwapMedium, SwapSpec};
use crate::folio::pte::SwapSlot;

/// A request to read or write a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    done: Time,
    pub(super) slot: SwapSlot,
    pub(super) is_write: bool,
    /// The page cannot be read, or written.
    pub(super) failed: bool,
}

/// The swap device, which knows until when it is busy.
#[derive(Clone, Debug, Default)]
pub(super) struct Device {
    /// The device has no queue: a task that reads or writes copies the page.
    is_memory: bool,
    free_at: Time,
    latency: Picos,
    per_page: Picos,
    /// Requests under way, in the order in which they end.
    queue: VecDeque<Io>,
    /// The number of the first request in the queue; requests are numbered as they are submitted.
    first: u32,
    writes: u32,
    /// Every n-th write fails; 0 is never.
    pub(super) fail_every: u32,
    reads: u32,
    /// Every n-th read fails; 0 is never.
    pub(super) fail_reads_every: u32,
}

impl Device {
    pub(super) fn new(spec: &SwapSpec) -> Self {
        match spec.medium {
            SwapMedium::Disk { latency, bandwidth } => {
                Self { latency, per_page: bandwidth.takes(Bytes::PAGE), ..Self::default() }
            }
            SwapMedium::Memory => Self { is_memory: true, ..Self::default() },
        }
    }

    /// Whether pages are read and written at once (`SWP_SYNCHRONOUS_IO`).
    #[inline]
    pub(super) fn is_memory(&self) -> bool {
        self.is_memory
    }

    /// Writes a page if the device does that at once; returns whether it failed.
    pub(super) fn write_at_once(&mut self, cx: &mut Cx) -> Option<bool> {
        self.is_memory.then(|| {
            primitive::swap_io(cx);
            cx.because(Cause::Swap, |cx| primitive::copy_frames(cx, 1));
            self.fails_next_write()
        })
    }

    /// Reads a page if the device does that at once; returns whether it failed.
    pub(super) fn read_at_once(&mut self, cx: &mut Cx) -> Option<bool> {
        self.is_memory.then(|| {
            primitive::swap_io(cx);
            cx.because(Cause::Swap, |cx| primitive::copy_frames(cx, 1));
            self.fails_next_read()
        })
    }

    fn fails_next_read(&mut self) -> bool {
        self.reads += 1;
        self.fail_reads_every > 0 && self.reads.is_multiple_of(self.fail_reads_every)
    }

    fn fails_next_write(&mut self) -> bool {
        self.writes += 1;
        self.fail_every > 0 && self.writes.is_multiple_of(self.fail_every)
    }

    /// Submits a request for a page; returns its number.
    pub(super) fn submit(&mut self, cx: &mut Cx, slot: SwapSlot, is_write: bool) -> u32 {
        primitive::swap_io(cx);
        self.free_at = self.free_at.max(cx.now()) + self.per_page;
        let failed = if is_write { self.fails_next_write() } else { self.fails_next_read() };
        let done = self.free_at + self.latency;
        let took = cx.price(Work::SwapIo);
        cx.fact(|| Fact::Sent { device: Kind::Swap, is_write, pages: 1, done, joins: None, took });
        self.queue.push_back(Io { done, slot, is_write, failed });
        self.first.wrapping_add(u32::try_from(self.queue.len() - 1).expect("fewer than slots"))
    }

    /// Whether a request has ended.
    #[inline]
    pub(super) fn is_done(&self, now: Time) -> bool {
        self.queue.front().is_some_and(|io| io.done <= now)
    }

    /// Takes the next request that has ended.
    pub(super) fn next_done(&mut self, now: Time) -> Option<Io> {
        let done = self.queue.pop_front_if(|io| io.done <= now)?;
        self.first = self.first.wrapping_add(1);
        Some(done)
    }

    /// When the request with this number ends; time 0 if it has ended.
    pub(super) fn done_at(&self, number: u32) -> Time {
        self.queue.get(number.wrapping_sub(self.first) as usize).map_or(Time(0), |io| io.done)
    }

    /// When `pages` more requests have ended, or all.
    pub(super) fn done_by(&self, pages: usize) -> Option<Time> {
        self.queue.get(pages.saturating_sub(1)).or(self.queue.back()).map(|io| io.done)
    }
}
