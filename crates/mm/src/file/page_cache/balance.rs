//! Linux: domain_dirty_limits(), balance_dirty_pages() and what they call in mm/page-writeback.c (v6.1).
//! Differs: one device, whose share of all that is dirty is everything; no cgroups, no strict limits.
//!
//! Below the middle between both limits writers run free. Above it each writer pauses from time to time, so that all writers
//! together dirty no more than the disk writes; at the hard limit they stop.

use memory::{
    cx::Cx,
    fact::{Fact, Throttle},
    frame::ControlId,
    lru_kind::LruKind,
    pageblock::ZoneIndex,
    step::Wait,
};
use units::{NodeId, Picos, Time};

use super::PageCache;
use crate::Mm;

/// Ticks of a second, as in distribution kernels.
const HZ: i64 = 250;
const JIFFY: Picos = Picos::from_micros(4000);
/// Assumed write bandwidth of a disk before it was measured, in pages per second: 100 MiB/s.
// INIT_BW, mm/backing-dev.c (v6.1).
const INIT_BW: i64 = 100 << (20 - 12);
/// Time between two estimates of bandwidths, in ticks.
// BANDWIDTH_INTERVAL, mm/page-writeback.c (v6.1).
const BANDWIDTH_INTERVAL: i64 = HZ / 5;
/// The longest pause, in ticks.
// MAX_PAUSE, mm/page-writeback.c (v6.1).
const MAX_PAUSE: i64 = HZ / 5;
/// Fewest dirtied pages for which a task pauses.
// DIRTY_POLL_THRESH, mm/page-writeback.c (v6.1): 128 KiB.
const POLL_THRESH: i64 = 32;
const SHIFT: u32 = 10;

/// The disk's speed as the kernel estimates it (`struct bdi_writeback`), in pages and pages per second.
#[derive(Clone, Debug)]
pub(super) struct Balancing {
    /// Pages dirtied and written so far.
    pub(super) dirtied: i64,
    pub(super) written: i64,
    dirtied_stamp: i64,
    written_stamp: i64,
    /// Time of the last estimate, in ticks.
    stamp: i64,
    write_bandwidth: i64,
    avg_write_bandwidth: i64,
    dirty_ratelimit: i64,
    balanced_dirty_ratelimit: i64,
    dirty_exceeded: bool,
    /// The hard limit, which follows the threshold slowly when that falls.
    dirty_limit: i64,
    limit_stamp: i64,
    /// Stores so far, numbered so that tests can tell them apart.
    pub(super) tags: u64,
    /// The contents of the last page of the last read(2), if contents are kept for tests.
    pub(super) seen: u64,
}

impl Default for Balancing {
    fn default() -> Self {
        Self {
            dirtied: 0,
            written: 0,
            dirtied_stamp: 0,
            written_stamp: 0,
            stamp: 0,
            write_bandwidth: INIT_BW,
            avg_write_bandwidth: INIT_BW,
            dirty_ratelimit: INIT_BW,
            balanced_dirty_ratelimit: INIT_BW,
            dirty_exceeded: false,
            dirty_limit: 0,
            limit_stamp: 0,
            tags: 0,
            seen: 0,
        }
    }
}

/// Pages that a task has dirtied since it paused.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskDirty {
    nr_dirtied: i64,
    nr_dirtied_pause: i64,
    /// Time of the last pause in ticks; 0 before the first.
    paused_when: i64,
}

impl Default for TaskDirty {
    fn default() -> Self {
        Self { nr_dirtied: 0, nr_dirtied_pause: 128 >> (12 - 10), paused_when: 0 }
    }
}

/// Dirty limits at an instant, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) dirty: i64,
    pub(super) thresh: i64,
    pub(super) background: i64,
}

impl Limits {
    fn freerun(&self) -> i64 {
        i64::midpoint(self.thresh, self.background)
    }
}

impl PageCache {
    /// Counts a page that a task has dirtied.
    pub(super) fn note_dirtied(&mut self, task: ControlId) {
        self.dirtiers.entry(task).or_default().nr_dirtied += 1;
    }

    /// Whether a task has dirtied too few pages for a pause to be considered.
    fn is_balanced(&self, task: TaskDirty) -> bool {
        let mut ratelimit = task.nr_dirtied_pause;
        if self.balancing.dirty_exceeded {
            ratelimit = ratelimit.min(32 >> (12 - 10));
        }
        task.nr_dirtied < ratelimit
    }

    /// Whether this task has dirtied too few pages for a pause to be considered.
    pub(super) fn runs_free(&self, task: ControlId) -> bool {
        self.is_balanced(self.dirtiers.get(&task).copied().unwrap_or_default())
    }

    /// Pages of one file that the flusher writes before it turns to the next file (`writeback_chunk_size`).
    pub(super) fn chunk(&self) -> u64 {
        // MIN_WRITEBACK_PAGES, fs/fs-writeback.c (v6.1): 4 MiB.
        const LEAST: i64 = 1024;
        let pages = (self.balancing.avg_write_bandwidth / 2).min(self.balancing.dirty_limit / 8);
        u64::try_from((pages + LEAST) / LEAST * LEAST).expect("positive")
    }
}

/// (base * part) >> 10, as the kernel scales rates.
fn scaled(base: i64, by: i64) -> i64 {
    narrow((i128::from(base) * i128::from(by)) >> SHIFT)
}

fn narrow(rate: i128) -> i64 {
    i64::try_from(rate).expect("rates of disks")
}

fn jiffies(at: Time) -> i64 {
    // The kernel's jiffies begin five minutes before their first wrap; here only 0 must not occur.
    i64::try_from(at.0 / JIFFY.0).expect("213 days") + 1
}

fn ilog2(n: i64) -> i64 {
    n.max(1).ilog2().into()
}

impl Mm {
    /// Frames of a node that could hold dirty pages (`node_dirtyable_memory`).
    fn node_dirtyable(&self, node: NodeId) -> u64 {
        self.memory.node(node).zones().map(|at| self.zone_dirtyable(at)).sum()
    }

    fn zone_dirtyable(&self, at: ZoneIndex) -> u64 {
        let zone = self.memory.zone(at);
        let most = zone.protection.iter().copied().max().unwrap_or(0) + zone.marks.high.0;
        let reserve = most.min(zone.managed);
        let files = self.lru.zone_frames(at, LruKind::InactiveFile) + self.lru.zone_frames(at, LruKind::ActiveFile);
        zone.free_frames().saturating_sub(reserve) + files
    }

    /// Is there room for another dirty page on a node (`node_dirty_ok`)?
    fn is_dirty_ok(&self, node: NodeId) -> bool {
        let limit = self.node_dirtyable(node) * self.cache.settings.dirty_ratio / 100;
        let counts = self.node_file_counts(node);
        counts.dirty + counts.writeback <= limit
    }

    /// Nodes, by a bit of their number, that hold as many dirty pages as they should.
    pub(super) fn nodes_full_of_dirty(&self) -> u64 {
        let full = self.memory.nodes().ids().filter(|node| !self.is_dirty_ok(*node));
        full.fold(0, |bits, node| bits | 1 << (node.0 % u64::BITS))
    }

    /// How much is dirty, and how much may be (`domain_dirty_limits`).
    pub(super) fn dirty_limits(&self) -> Limits {
        let totals = self.cache.totals();
        let avail: u64 = self.memory.zone_indices().map(|zone| self.zone_dirtyable(zone)).sum::<u64>() + 1;
        let part = |ratio: u64| i64::try_from(ratio * 4096 / 100 * avail / 4096).expect("pages");
        let thresh = part(self.cache.settings.dirty_ratio);
        let mut background = part(self.cache.settings.dirty_background_ratio);
        if background >= thresh {
            background = thresh / 2;
        }
        let dirty = i64::try_from(totals.dirty + totals.writeback).expect("pages");
        Limits { dirty, thresh, background }
    }

    /// Whether there are enough dirty pages for the flusher to work (`wb_over_bg_thresh`).
    pub(super) fn is_over_background(&self) -> bool {
        let limits = self.dirty_limits();
        i64::try_from(self.cache.totals().dirty).expect("pages") > limits.background
    }

    /// Returns the pause that a task must take after it has dirtied a page, if any (`balance_dirty_pages_ratelimited`). To be
    /// asked again after the pause.
    pub(super) fn balance_dirty(&mut self, cx: &mut Cx) -> Option<Wait> {
        let task = *self.cache.dirtiers.entry(cx.control()).or_default();
        if self.cache.is_balanced(task) { None } else { self.balance_dirty_pages(cx) }
    }

    fn balance_dirty_pages(&mut self, cx: &mut Cx) -> Option<Wait> {
        let mut now = jiffies(cx.now());
        self.complete_disk_io(cx);
        let limits = self.dirty_limits();
        let nr_dirty = i64::try_from(self.cache.totals().dirty).expect("pages");
        if nr_dirty > limits.background && !self.cache.flusher.is_working() {
            self.start_background_writeback(cx);
        }
        let pages_dirtied = self.cache.dirtiers[&cx.control()].nr_dirtied;
        if limits.dirty <= limits.freerun() {
            let pause = if limits.thresh > limits.dirty { 1 << (ilog2(limits.thresh - limits.dirty) >> 1) } else { 1 };
            self.set_paused(cx, now, pause);
            return None;
        }
        if !self.cache.flusher.is_working() {
            self.start_background_writeback(cx);
        }
        let wb = &mut self.cache.balancing;
        wb.dirty_exceeded = limits.dirty > limits.thresh;
        let pos_ratio = wb.position_ratio(limits);
        if now > wb.stamp + BANDWIDTH_INTERVAL {
            wb.update(now, limits, pos_ratio);
        }
        let dirty_ratelimit = wb.dirty_ratelimit;
        let task_ratelimit = scaled(dirty_ratelimit, pos_ratio);
        let max_pause = wb.max_pause(limits.dirty);
        let (min_pause, pause_pages) = wb.min_pause(max_pause, task_ratelimit);
        let task = self.cache.dirtiers.get_mut(&cx.control()).expect("looked at above");
        let mut pause = max_pause;
        if task_ratelimit > 0 {
            let period = HZ * pages_dirtied / task_ratelimit;
            pause = period;
            if task.paused_when != 0 {
                pause -= now - task.paused_when;
            }
            if pause < min_pause {
                if pause < -HZ {
                    (task.paused_when, task.nr_dirtied) = (now, 0);
                } else if period > 0 {
                    (task.paused_when, task.nr_dirtied) = (task.paused_when + period, 0);
                } else if task.nr_dirtied_pause <= pages_dirtied {
                    task.nr_dirtied_pause += pages_dirtied;
                }
                return None;
            }
            if pause > max_pause {
                now += (pause - max_pause).min(max_pause);
                pause = max_pause;
            }
        }
        task.paused_when = now + pause;
        if task_ratelimit > 0 {
            task.nr_dirtied = 0;
        }
        task.nr_dirtied_pause = pause_pages;
        let until = cx.now() + JIFFY * u64::try_from(pause.max(1)).expect("positive");
        let counts = [limits.dirty, limits.thresh].map(|pages| u64::try_from(pages).unwrap_or(0));
        cx.fact(|| Fact::Throttled { by: Throttle::Dirty, has: counts[0], limit: counts[1], until });
        Some(Wait::Until(until))
    }

    fn set_paused(&mut self, cx: &Cx, now: i64, pause: i64) {
        let task = self.cache.dirtiers.get_mut(&cx.control()).expect("looked at above");
        *task = TaskDirty { nr_dirtied: 0, nr_dirtied_pause: pause, paused_when: now };
    }

    /// Updates the bandwidth estimates while the flusher writes (`wb_update_bandwidth`).
    pub(super) fn update_bandwidth(&mut self, cx: &Cx) {
        let now = jiffies(cx.now());
        if now > self.cache.balancing.stamp + BANDWIDTH_INTERVAL {
            let limits = self.dirty_limits();
            self.cache.balancing.update_write_only(now, limits);
        }
    }
}

impl Balancing {
    /// `hard_dirty_limit`.
    fn limit(&self, thresh: i64) -> i64 {
        thresh.max(self.dirty_limit)
    }

    /// The factor on the balanced rate at which tasks may dirty pages, in 1/1024 (`wb_position_ratio`).
    fn position_ratio(&self, limits: Limits) -> i64 {
        let Limits { dirty, thresh, .. } = limits;
        let limit = self.limit(thresh);
        if dirty >= limit {
            return 0;
        }
        let setpoint = i64::midpoint(limits.freerun(), limit);
        let x = ((setpoint - dirty) << SHIFT) / ((limit - setpoint) | 1);
        let cubed = (((x * x) >> SHIFT) * x) >> SHIFT;
        let mut ratio = (cubed + (1 << SHIFT)).clamp(0, 2 << SHIFT);
        // The device's own limits: it has the whole share.
        let wb_thresh = thresh.max((limit - dirty) / 8);
        let x = (wb_thresh << 16) / (thresh | 1);
        let wb_setpoint = narrow((i128::from(setpoint) * i128::from(x)) >> 16);
        let span = narrow((i128::from(thresh - wb_thresh + 8 * self.avg_write_bandwidth) * i128::from(x)) >> 16);
        let intercept = wb_setpoint + span;
        if dirty < intercept - span / 4 {
            ratio = ratio * (intercept - dirty) / ((intercept - wb_setpoint) | 1);
        } else {
            ratio /= 4;
        }
        let reserve = wb_thresh / 2;
        if dirty < reserve {
            ratio = if dirty > reserve / 8 { ratio * reserve / dirty } else { ratio * 8 };
        }
        ratio
    }

    /// `__wb_update_bandwidth`.
    fn update(&mut self, now: i64, limits: Limits, pos_ratio: i64) {
        let elapsed = (now - self.stamp).max(1);
        self.update_limit(now, limits);
        self.update_ratelimit(limits, pos_ratio, elapsed);
        self.update_write(now, elapsed);
    }

    fn update_write_only(&mut self, now: i64, limits: Limits) {
        let elapsed = (now - self.stamp).max(1);
        self.update_limit(now, limits);
        self.update_write(now, elapsed);
    }

    fn update_write(&mut self, now: i64, elapsed: i64) {
        let period = u64::try_from(3 * HZ).expect("positive").next_power_of_two();
        let period = i64::try_from(period).expect("small");
        let mut bw = (self.written - self.written_stamp) * HZ;
        let (old, mut avg) = (self.write_bandwidth, self.avg_write_bandwidth);
        if elapsed > period {
            bw /= elapsed;
            avg = bw;
        } else {
            bw = (bw + old * (period - elapsed)) / period;
            if avg > old && old >= bw {
                avg -= (avg - old) >> 3;
            }
            if avg < old && old <= bw {
                avg += (old - avg) >> 3;
            }
        }
        (self.write_bandwidth, self.avg_write_bandwidth) = (bw, avg.max(1));
        (self.dirtied_stamp, self.written_stamp, self.stamp) = (self.dirtied, self.written, now);
    }

    /// `domain_update_dirty_limit`.
    fn update_limit(&mut self, now: i64, limits: Limits) {
        if now < self.limit_stamp + BANDWIDTH_INTERVAL {
            return;
        }
        self.limit_stamp = now;
        let thresh = limits.thresh;
        if self.dirty_limit < thresh {
            self.dirty_limit = thresh;
            return;
        }
        let thresh = thresh.max(limits.dirty);
        if self.dirty_limit > thresh {
            self.dirty_limit -= (self.dirty_limit - thresh) >> 5;
        }
    }

    /// `wb_update_dirty_ratelimit`.
    fn update_ratelimit(&mut self, limits: Limits, pos_ratio: i64, elapsed: i64) {
        let setpoint = i64::midpoint(self.limit(limits.thresh), limits.freerun());
        let write_bw = self.avg_write_bandwidth;
        let rate = (self.dirtied - self.dirtied_stamp) * HZ / elapsed;
        let now = self.dirty_ratelimit;
        let task = scaled(now, pos_ratio) + 1;
        let balanced = narrow(i128::from(task) * i128::from(write_bw) / i128::from(rate | 1));
        let balanced = balanced.min(write_bw);
        let mut step = 0;
        if limits.dirty < setpoint {
            step = self.balanced_dirty_ratelimit.min(balanced).min(task) - now;
        } else {
            step = step.max(now - self.balanced_dirty_ratelimit.max(balanced).max(task));
        }
        step = step.max(0);
        let shift = now / (2 * step + 1);
        step = if shift < 64 { ((step >> shift) + 7) / 8 } else { 0 };
        self.dirty_ratelimit = if now < balanced { now + step } else { now - step }.max(1);
        self.balanced_dirty_ratelimit = balanced;
    }

    /// The longest pause for this number of dirty pages, in ticks.
    fn max_pause(&self, dirty: i64) -> i64 {
        let eighth = i64::try_from(u64::try_from(1 + HZ / 8).expect("positive").next_power_of_two()).expect("small");
        (dirty / (1 + self.avg_write_bandwidth / eighth) + 1).min(MAX_PAUSE)
    }

    /// The shortest pause that is worth its cost, and the number of pages after which the following pause is due.
    fn min_pause(&self, max_pause: i64, task_ratelimit: i64) -> (i64, i64) {
        let hz = i64::try_from(u64::try_from(HZ).expect("positive").next_power_of_two()).expect("small");
        let (hi, lo) = (ilog2(self.avg_write_bandwidth), ilog2(self.dirty_ratelimit));
        let mut t = (HZ / 100).max(1);
        if hi > lo {
            t += (hi - lo) * (10 * HZ) / 1024;
        }
        t = t.min(1 + max_pause / 2);
        let mut pages = self.dirty_ratelimit * t / hz;
        if pages < POLL_THRESH {
            t = max_pause;
            pages = self.dirty_ratelimit * t / hz;
            if pages > POLL_THRESH {
                pages = POLL_THRESH;
                t = HZ * POLL_THRESH / self.dirty_ratelimit;
            }
        }
        if HZ * pages / (task_ratelimit + 1) > max_pause {
            t = max_pause;
            pages = task_ratelimit * t / hz;
        }
        (if pages >= POLL_THRESH { 1 + t / 2 } else { t }, pages)
    }
}
