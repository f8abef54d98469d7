//! Linux: block/blk-mq.c, block/blk-core.c (v6.1), and the driver below.
//! Differs: one queue, in the order of arrival; a device without moving parts: the time of a request is in proportion to its
//! length, and the next request begins when it is transferred. A disk that is memory (pmem) has no queue.

use std::collections::VecDeque;

use memory::{
    cost::{Cause, Work},
    cx::Cx,
    event::Event,
    fact::{Device, Fact},
    primitive,
};
use units::{Bytes, BytesPerSecond, Picos, Time};

/// Pages of one request (`BIO_MAX_VECS`).
const PAGES_MAX: u32 = 256;

/// A disk with a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpec {
    /// The room for all files together.
    pub size: Bytes,
    /// Time from the end of a request's transfer to its interrupt.
    pub latency: Picos,
    /// Bytes per second that the disk reads and writes.
    pub bandwidth: BytesPerSecond,
    /// Most requests that are under way; a task that sends more waits.
    pub depth: u32,
    /// The medium of the disk.
    pub medium: DiskMedium,
    /// The file system, which decides how files are laid out.
    pub filesystem: Filesystem,
}

/// The file system of a disk, as far as memory sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filesystem {
    /// ext4: pages have buffer heads; metadata is pages of the block device, which the journal holds.
    Ext4,
    /// XFS: no buffer heads; inodes have log items, and lie in buffers.
    Xfs,
}

/// The medium of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskMedium {
    /// Something behind a queue, with latency, bandwidth and depth.
    Queue,
    /// Memory outside the kernel's zones: the task that sends a request copies its pages, and the request is done
    /// (`pmem_submit_bio`).
    Memory,
}

impl Default for DiskSpec {
    /// A disk as large as needed: a virtio disk on a solid-state one, with assumed figures.
    fn default() -> Self {
        let bandwidth = BytesPerSecond::new(Bytes::mib(400)).expect("more than nothing");
        Self {
            size: Bytes::gib(1 << 20),
            latency: Picos::from_micros(80),
            bandwidth,
            depth: 128,
            medium: DiskMedium::Queue,
            filesystem: Filesystem::Ext4,
        }
    }
}

/// A request to read or write pages that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request<T> {
    /// The owner of the pages.
    pub(crate) of: T,
    /// Index of the first page.
    pub(crate) index: u64,
    pub(crate) pages: u32,
    pub(crate) is_write: bool,
    /// The request ends with an error.
    pub(crate) failed: bool,
    done: Time,
}

/// The last request of a disk that is memory, with the index at its end.
#[derive(Clone, Copy, Debug)]
struct Copied<T> {
    of: T,
    end: u64,
    pages: u32,
    is_write: bool,
}

/// The disk, which knows until when it is busy.
#[derive(Clone, Debug)]
pub(crate) struct Disk<T> {
    spec: DiskSpec,
    per_page: Picos,
    free_at: Time,
    /// Requests under way, in the order in which they end.
    queue: VecDeque<Request<T>>,
    requests: u32,
    last: Option<Copied<T>>,
    /// Every n-th request fails; 0 is never.
    pub(crate) fail_every: u32,
    /// Factor on the times of the specification, for tests.
    pub(crate) slowdown: u64,
}

fn sent(is_write: bool, pages: u32, (done, joins): (Time, Option<Time>), took: Picos) -> Fact {
    Fact::Sent { device: Device::Disk, is_write, pages: pages.into(), done, joins, took }
}

impl<T: Copy + PartialEq> Disk<T> {
    pub(crate) fn new(spec: DiskSpec) -> Self {
        let per_page = spec.bandwidth.takes(Bytes::PAGE);
        let (free_at, queue) = (Time(0), VecDeque::new());
        Self { spec, per_page, free_at, queue, requests: 0, last: None, fail_every: 0, slowdown: 1 }
    }

    /// The room for all files together, in pages.
    pub(crate) fn pages(&self) -> u64 {
        self.spec.size.0 / Bytes::PAGE.0
    }

    pub(crate) fn filesystem(&self) -> Filesystem {
        self.spec.filesystem
    }

    /// Whether a request is done as soon as it is sent.
    pub(crate) fn is_memory(&self) -> bool {
        self.spec.medium == DiskMedium::Memory
    }

    /// Number of requests under way.
    pub(crate) fn requests(&self) -> usize {
        self.queue.len()
    }

    /// Until when the disk's queue is full, if it is.
    pub(crate) fn full_until(&self) -> Option<Time> {
        let depth = self.spec.depth as usize;
        self.queue.len().checked_sub(depth).and_then(|over| self.queue.get(over)).map(|request| request.done)
    }

    /// Sends a request; returns when it will end.
    pub(crate) fn submit(&mut self, cx: &mut Cx, of: T, (index, pages): (u64, u32), is_write: bool) -> Time {
        cx.count(if is_write { Event::Pgpgout } else { Event::Pgpgin }, u64::from(pages) * (Bytes::PAGE.0 >> 10));
        if self.is_memory() {
            return self.copy(cx, of, (index, pages), is_write);
        }
        self.free_at = self.free_at.max(cx.now()) + Picos(self.per_page.0 * u64::from(pages) * self.slowdown);
        let done = self.free_at + Picos(self.spec.latency.0 * self.slowdown);
        if let Some(last) = self.queue.back_mut()
            && last.of == of
            && last.is_write == is_write
            && last.index.checked_add(last.pages.into()) == Some(index)
            && last.pages + pages <= PAGES_MAX
            && last.done > cx.now()
        {
            let joins = Some(std::mem::replace(&mut last.done, done));
            last.pages += pages;
            cx.fact(|| sent(is_write, pages, (done, joins), Picos(0)));
            return done;
        }
        primitive::disk_io(cx);
        let took = cx.price(Work::DiskIo);
        cx.fact(|| sent(is_write, pages, (done, None), took));
        self.push(Request { of, index, pages, is_write, failed: false, done });
        done
    }

    /// Does a request of a disk that is memory. Pages that follow the last request's pages came with it (`struct bio`); a
    /// block of the journal has the largest index.
    fn copy(&mut self, cx: &mut Cx, of: T, (index, pages): (u64, u32), is_write: bool) -> Time {
        let follows = |last: &Copied<T>| last.of == of && last.is_write == is_write && last.end == index;
        let before = self.last.filter(follows).map_or(0, |last| last.pages);
        let is_new = before == 0 || before + pages > PAGES_MAX;
        if is_new {
            primitive::disk_io(cx);
        }
        cx.because(Cause::Disk, |cx| primitive::copy_frames(cx, pages.into()));
        let so_far = if is_new { pages } else { before + pages };
        self.last = Some(Copied { of, end: index.wrapping_add(pages.into()), pages: so_far, is_write });
        self.push(Request { of, index, pages, is_write, failed: false, done: cx.now() });
        cx.now()
    }

    fn push(&mut self, request: Request<T>) {
        self.requests += 1;
        let failed = self.fail_every > 0 && self.requests.is_multiple_of(self.fail_every);
        self.queue.push_back(Request { failed, ..request });
    }

    /// Whether a request has ended.
    #[inline]
    pub(crate) fn is_done(&self, now: Time) -> bool {
        self.queue.front().is_some_and(|request| request.done <= now)
    }

    /// When the next request ends, if there is one.
    pub(crate) fn next_end(&self) -> Option<Time> {
        self.queue.front().map(|request| request.done)
    }

    /// Takes the next request that has ended.
    pub(crate) fn next_done(&mut self, now: Time) -> Option<Request<T>> {
        self.queue.pop_front_if(|request| request.done <= now)
    }

    /// When a read ends that fits `is_it`, if there is one under way.
    pub(crate) fn read_by(&self, is_it: impl Fn(T, u64, u64) -> bool) -> Option<Time> {
        let mut reads = self.queue.iter().filter(|request| !request.is_write);
        reads.find(|read| is_it(read.of, read.index, read.pages.into())).map(|read| read.done)
    }

    /// Until when the disk has too many writes, if it has (`bdi_write_congested`): from 7/8 of its depth on, until there are
    /// 1/16 fewer (`blk_queue_congestion_threshold`, block/blk-core.c, v4.1).
    pub(crate) fn congested_until(&self) -> Option<Time> {
        let depth = self.spec.depth as usize;
        let (on, off) = (depth - depth / 8 + 1, depth.saturating_sub(depth / 8 + depth / 16 + 1));
        let writes = self.queue.iter().filter(|request| request.is_write);
        let count = writes.clone().count();
        if count < on { None } else { writes.map(|request| request.done).nth(count - off) }
    }

    /// Number of writes under way, and from how many on the disk is congested.
    pub(crate) fn congestion(&self) -> (u64, u64) {
        let writes = self.queue.iter().filter(|request| request.is_write).count();
        (writes as u64, u64::from(self.spec.depth - self.spec.depth / 8 + 1))
    }

    /// When `pages` more pages will have been written, or all.
    pub(crate) fn written_by(&self, pages: u64) -> Option<Time> {
        let mut left = pages;
        let writes = self.queue.iter().filter(|request| request.is_write);
        let mut last = None;
        for request in writes {
            last = Some(request.done);
            left = left.saturating_sub(request.pages.into());
            if left == 0 {
                break;
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use memory::{cost::Prices, event::Counters};
    use units::CpuId;

    use super::*;

    #[test]
    fn a_disk_is_congested_from_7_8_of_its_queue() {
        let (prices, mut counters) = (Prices::free(), Counters::default());
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        let mut disk = Disk::new(DiskSpec { depth: 16, ..DiskSpec::default() });
        // Reads do not count as congestion.
        let mut done = Vec::new();
        for at in 0..20 {
            disk.submit(&mut cx, 0, (at * 10, 1), false);
        }
        for at in 0..15 {
            assert_eq!(disk.congested_until(), None, "{at} writes");
            done.push(disk.submit(&mut cx, 1, (at * 10, 1), true));
        }
        // 15 writes are under way; when the fourth has ended there are fewer than 12.
        assert_eq!(disk.congested_until(), Some(done[3]));
        disk.submit(&mut cx, 1, (1000, 1), true);
        assert_eq!(disk.congested_until(), Some(done[4]));
    }
}
