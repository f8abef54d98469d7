//! Linux: drivers/virtio/virtio_balloon.c (v4.18 to v6.1).
//! Differs: compaction does not move its pages (as without CONFIG_BALLOON_COMPACTION); MemTotal includes the balloon's pages;
//! deflation for a task does not wait for the worker's lock (`balloon_lock`); the work item is a kernel thread of its own.
//!
//! A balloon takes memory from a guest for its host: it allocates pages one by one, and tells the host of up to 256 of them at a
//! time. The host frees each page, which splits its huge pages. Deflation is the reverse. An operator outside sets the balloon's
//! size, in orders that are known beforehand.

use std::collections::{BTreeMap, VecDeque};

use memory::{
    cost::{Cause, Work},
    cx::Cx,
    event::Event,
    frame::{Frame, Held, Holdings},
    news::{Daemon, News},
    step::{Step, Wait},
};
use rules::{
    gfp::{AllocRequest, Mobility},
    variant::BalloonDeflates,
};
use units::{Frames, Order, Pfn, Picos, Time};

use crate::{Mm, Spaces, slow::AllocControl};

/// Name of the gauge of pages in the balloon.
pub const GAUGE: &str = "sim_balloon_pages";
/// Most pages that the device is told of at a time.
// VIRTIO_BALLOON_ARRAY_PFNS_MAX, drivers/virtio/virtio_balloon.c (v6.1).
const ARRAY: usize = 256;
/// Pause of the balloon when no page is free for it (`fill_balloon`, v6.1).
const REST: Picos = Picos::from_micros(200_000);
/// Pages that one step takes, or gives back.
const RUN: usize = 32;
/// Time of the device for an array, and for each of its pages. From 7 GiB in 4,126 ms: 68.3 % for sending, 25.1 % for finding
/// and freeing pages ("Virtio-balloon Enhancement", a version posted in July 2017).
const SENDING: Picos = Picos::from_nanos(393_000);
const GIVING_BACK: Picos = Picos::from_nanos(564);

/// The memory that an order leaves to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// This much memory (QEMU's command `balloon`).
    Memory(Frames),
    /// The memory in use when the balloon comes, this much beside it, a tenth of the sum, and all High marks.
    Use(Frames),
}

/// A guest's memory when its balloon comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Frames that exist.
    pub exist: Frames,
    /// Frames that are free.
    pub free: Frames,
    /// The High marks of all zones.
    pub high: Frames,
}

impl Leaves {
    /// Pages that the balloon takes so that the guest is left with this memory.
    pub fn taken(self, before: Before) -> Frames {
        let left = match self {
            Self::Memory(frames) => frames.0,
            Self::Use(frames) => (before.exist.0.saturating_sub(before.free.0) + frames.0) * 11 / 10 + before.high.0,
        };
        Frames(before.exist.0.saturating_sub(left))
    }
}

/// An operator's orders to a balloon, earliest first: from each time on, counted from when the balloon comes, the guest is left
/// with this memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalloonSpec {
    /// All orders.
    pub orders: Vec<(Picos, Leaves)>,
    /// Whether the guest may take pages back when it needs them (`deflate-on-oom`).
    pub deflate_on_oom: bool,
}

/// Pages that are taken out of the balloon for a task; the device is told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leak(u32);

/// The device's driver.
#[derive(Clone, Debug)]
pub(crate) struct Balloon {
    /// The number of pages wanted from each time on (`num_pages`); past orders are dropped.
    orders: VecDeque<(Time, usize)>,
    target: usize,
    /// Pages that the work item still has to take or give back; at 0 it waits for the next order.
    left: usize,
    /// Pages in the balloon, in the order in which they came.
    pages: Vec<Pfn>,
    /// Pages on their way in or out that the device is told of next, or was told of.
    array: Vec<Pfn>,
    stage: Stage,
    /// The trigger that takes pages out of the balloon beside the orders.
    deflates: BalloonDeflates,
    /// Pages that are being taken out, by the number of the leak.
    leaks: BTreeMap<u32, Vec<Pfn>>,
    last_leak: u32,
    /// The leak for the OOM killer: there is one at a time (`oom_lock`).
    oom_leak: Option<Leak>,
}

#[derive(Clone, Debug)]
enum Stage {
    /// Compare the number of pages with the order (`update_balloon_size_func`).
    Look,
    /// Allocate pages until the array has this many (`fill_balloon`).
    Fill(usize),
    /// As `Fill`, where a page has to be made free.
    Reclaim(usize, Box<AllocControl>),
    /// Pause, as no page was free.
    Rest(Time),
    /// Free the array's pages, of which the device was told (`leak_balloon`).
    Release,
}

impl Mm {
    /// Gives a guest an empty balloon.
    ///
    /// # Panics
    /// When the host has a kernel of its own, which does not support balloons.
    pub fn add_balloon(&mut self, spec: &BalloonSpec, now: Time) {
        assert!(!self.memory.has_host_kernel(), "the host gives pages back at once");
        let before = Before {
            exist: Frames(self.memory.zones().iter().map(|zone| zone.present).sum()),
            free: self.memory.free_frames(),
            high: self.memory.zones().iter().map(|zone| zone.marks.high).sum(),
        };
        let pages = |leaves: Leaves| usize::try_from(leaves.taken(before).0).expect("fewer than 2^32 frames");
        let orders = spec.orders.iter().map(|(at, leaves)| (now + *at, pages(*leaves))).collect();
        let deflates =
            if spec.deflate_on_oom { self.memory.variant().balloon_deflates } else { BalloonDeflates::Never };
        self.balloon = Some(Box::new(Balloon {
            orders,
            target: 0,
            left: 0,
            pages: Vec::new(),
            array: Vec::with_capacity(ARRAY),
            stage: Stage::Look,
            deflates,
            leaks: BTreeMap::new(),
            last_leak: 0,
            oom_leak: None,
        }));
        self.memory.tell(News::Woken(Daemon::Balloon, units::NodeId(0)));
    }

    /// Whether the guest has a balloon.
    pub fn has_balloon(&self) -> bool {
        self.balloon.is_some()
    }

    /// Pages in the balloon, including those on their way in or out; none if there is no balloon.
    pub fn balloon_pages(&self) -> Option<u64> {
        let leaking = |balloon: &Balloon| balloon.leaks.values().map(Vec::len).sum::<usize>();
        self.balloon.as_ref().map(|balloon| (balloon.pages.len() + balloon.array.len() + leaking(balloon)) as u64)
    }

    /// Whether the balloon only waits for an order, or for memory.
    pub fn is_balloon_idle(&self) -> bool {
        self.balloon.as_ref().is_none_or(|balloon| matches!(balloon.stage, Stage::Look | Stage::Rest(_)))
    }

    /// Pages of the balloon: they are on no list of the guest.
    pub fn balloon_holdings(&self) -> Holdings {
        let Some(balloon) = &self.balloon else { return Holdings::default() };
        let of = |pfn: &Pfn| Held { pfn: *pfn, order: Order::BASE };
        let leaking = balloon.leaks.values().flatten();
        let isolated = balloon.pages.iter().chain(&balloon.array).chain(leaking).map(of).collect();
        let mut holdings = Holdings { isolated, ..Holdings::default() };
        if let Stage::Reclaim(_, alloc) = &balloon.stage {
            holdings.add(alloc.holdings());
        }
        holdings
    }

    /// Takes a step of the work item, until others may run or the device has something to do.
    pub fn step_balloon(&mut self, spaces: &mut Spaces, cx: &mut Cx<'_>) -> Step<()> {
        let Some(mut balloon) = self.balloon.take() else { return Step::Block(Wait::Queue) };
        let step = balloon.step(self, spaces, cx);
        self.balloon = Some(balloon);
        step
    }

    /// Allocates a page for the balloon without accessing it: its host is told of it only later.
    fn alloc_for_balloon(&mut self, cx: &mut Cx<'_>, request: &AllocRequest) -> Option<Pfn> {
        // Steps of kernel threads ask for nothing: they take the slow path themselves.
        self.memory.alloc_unaccessed(cx, request).ok()
    }
}

// ---- Pages that the guest takes back by itself

impl Mm {
    /// Pages that the shrinker could take out of the balloon (`virtio_balloon_shrinker_count`).
    pub(crate) fn count_balloon(&self) -> u64 {
        match self.balloon.as_deref() {
            Some(balloon) if balloon.deflates == BalloonDeflates::Shrinker => balloon.pages.len() as u64,
            _ => 0,
        }
    }

    /// Takes up to `most` pages out of the balloon, and waits until the device knows of them (`leak_balloon`); none if it is
    /// empty.
    pub(crate) fn begin_leak(&mut self, cx: &mut Cx<'_>, most: u64) -> Option<(Leak, Wait)> {
        let balloon = self.balloon.as_mut()?;
        let has = balloon.pages.len();
        let count = ARRAY.min(has).min(usize::try_from(most).unwrap_or(ARRAY));
        if count == 0 {
            return None;
        }
        balloon.last_leak += 1;
        balloon.leaks.insert(balloon.last_leak, balloon.pages.split_off(has - count));
        Some((Leak(balloon.last_leak), device(cx, Picos(0))))
    }

    /// Frees these pages in the guest, now that the device knows of them.
    pub(crate) fn end_leak(&mut self, cx: &mut Cx<'_>, leak: Leak) {
        let balloon = self.balloon.as_mut().expect("pages come out of one");
        let pages = balloon.leaks.remove(&leak.0).expect("a leak ends once");
        balloon.oom_leak = balloon.oom_leak.filter(|other| *other != leak);
        self.release_from_balloon(cx, pages);
    }

    /// Takes pages out of the balloon instead of calling the OOM killer, if the rule says so. Returns the wait for the device.
    pub(crate) fn begin_leak_on_oom(&mut self, cx: &mut Cx<'_>) -> Option<(Leak, Wait)> {
        let balloon = self.balloon.as_ref().filter(|balloon| balloon.deflates == BalloonDeflates::OnOom)?;
        assert_eq!(balloon.oom_leak, None, "one at a time");
        let (leak, wait) = self.begin_leak(cx, ARRAY as u64)?;
        self.balloon.as_mut().expect("it was there").oom_leak = Some(leak);
        Some((leak, wait))
    }

    /// Whether such a leak is under way.
    pub(crate) fn is_leaking_on_oom(&self) -> bool {
        self.balloon.as_ref().is_some_and(|balloon| balloon.oom_leak.is_some())
    }

    fn release_from_balloon(&mut self, cx: &mut Cx<'_>, pages: Vec<Pfn>) {
        cx.count(Event::BalloonDeflate, pages.len() as u64);
        for pfn in pages {
            let is_held = matches!(self.memory.frames.get(pfn), Frame::Isolated { order: Order::BASE, .. });
            assert!(is_held, "frame {pfn} of a balloon is {:?}", self.memory.frames.get(pfn));
            self.memory.frames.set(pfn, Frame::Kernel { order: Order::BASE, mobility: Mobility::Movable });
            self.memory.free(cx, pfn, Order::BASE);
        }
    }
}

impl Balloon {
    fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx<'_>) -> Step<()> {
        match std::mem::replace(&mut self.stage, Stage::Look) {
            Stage::Look => self.look(cx),
            Stage::Fill(want) => self.fill(mm, cx, want),
            Stage::Reclaim(want, mut alloc) => match alloc.step(mm, spaces, cx) {
                Step::Done(got) => self.take(mm, cx, want, got),
                Step::More => self.later(Stage::Reclaim(want, alloc)),
                Step::Block(until) => {
                    self.stage = Stage::Reclaim(want, alloc);
                    Step::Block(until)
                }
            },
            Stage::Rest(until) if cx.now() < until => {
                self.stage = Stage::Rest(until);
                Step::Block(Wait::Until(until))
            }
            Stage::Rest(_) if self.array.is_empty() => Step::More,
            Stage::Rest(_) => self.tell(mm, cx),
            Stage::Release => self.release(mm, cx),
        }
    }

    fn later(&mut self, stage: Stage) -> Step<()> {
        self.stage = stage;
        Step::More
    }

    /// Applies the newest order that is due, and sets the number of pages to take or give back.
    fn look(&mut self, cx: &mut Cx<'_>) -> Step<()> {
        while let Some((_, target)) = self.orders.pop_front_if(|(at, _)| *at <= cx.now()) {
            self.target = target;
            self.left = target.abs_diff(self.pages.len());
        }
        let has = self.pages.len();
        if self.left > 0 {
            // Others may have taken pages out meanwhile (`towards_target`).
            self.left = self.target.abs_diff(has);
        }
        match self.orders.front() {
            _ if self.left > 0 && has < self.target => self.later(Stage::Fill(ARRAY.min(self.left))),
            _ if self.left > 0 => {
                // The newest pages first (`balloon_page_list_dequeue`). The device is told before the pages may be used.
                let count = ARRAY.min(self.left);
                self.array = self.pages.split_off(has - count);
                self.left -= count;
                self.stage = Stage::Release;
                wait(cx, Picos(0))
            }
            Some((at, _)) => Step::Block(Wait::Until(*at)),
            None => Step::Block(Wait::Queue),
        }
    }

    fn fill(&mut self, mm: &mut Mm, cx: &mut Cx<'_>, want: usize) -> Step<()> {
        let user = AllocRequest::gfp_highuser_movable(mm.memory.node_of_cpu(cx.cpu()));
        let request = AllocRequest { no_retry: true, ..user };
        for _ in 0..RUN {
            if self.array.len() == want {
                return self.tell(mm, cx);
            }
            match mm.alloc_for_balloon(cx, &request) {
                Some(pfn) => self.hold(mm, cx, pfn),
                None => return self.later(Stage::Reclaim(want, Box::new(AllocControl::new(request)))),
            }
        }
        self.later(Stage::Fill(want))
    }

    fn hold(&mut self, mm: &mut Mm, cx: &Cx<'_>, pfn: Pfn) {
        mm.memory.isolate(cx, pfn, Order::BASE);
        self.array.push(pfn);
    }

    /// Adds the page that was allocated to the array; pauses if there was none.
    fn take(&mut self, mm: &mut Mm, cx: &mut Cx<'_>, want: usize, got: Option<Pfn>) -> Step<()> {
        if let Some(pfn) = got {
            self.hold(mm, cx, pfn);
            return self.later(Stage::Fill(want));
        }
        // "Out of puff!" says the kernel. The pages allocated so far go to the host after the pause.
        let until = cx.now() + REST;
        self.stage = Stage::Rest(until);
        Step::Block(Wait::Until(until))
    }

    /// Tells the device of all pages in the array; the host frees them.
    fn tell(&mut self, mm: &mut Mm, cx: &mut Cx<'_>) -> Step<()> {
        let count = self.array.len();
        self.left -= count;
        let count = count as u64;
        for pfn in &self.array {
            mm.memory.discard_by_host(cx, *pfn, Order::BASE);
        }
        self.pages.append(&mut self.array);
        cx.count(Event::BalloonInflate, count);
        wait(cx, Picos(GIVING_BACK.0 * count))
    }

    fn release(&mut self, mm: &mut Mm, cx: &mut Cx<'_>) -> Step<()> {
        let first = self.array.len().saturating_sub(RUN);
        mm.release_from_balloon(cx, self.array.split_off(first));
        self.later(if self.array.is_empty() { Stage::Look } else { Stage::Release })
    }
}

fn wait(cx: &mut Cx<'_>, more: Picos) -> Step<()> {
    Step::Block(device(cx, more))
}

/// The wait until the device is done with an array. No time if reports are free of charge, as when instructions are counted.
fn device(cx: &mut Cx<'_>, more: Picos) -> Wait {
    let takes = if cx.price(Work::HostReport) == Picos(0) { Picos(0) } else { SENDING + more };
    cx.count(Event::SimHostGivesBackNs, takes.as_nanos());
    Wait::Io { until: cx.now() + takes, cause: Cause::Host }
}

#[cfg(test)]
mod tests;
