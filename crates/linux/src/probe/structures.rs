//! Lists and locks in user space with the kernel's layout and access pattern, for what no system call does alone.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU32, Ordering},
};

use os::{Advice, VmRange};
use units::{Bytes, VirtAddr};

use super::{Found, Raw, each, probe, timed};
use crate::memory::advise;

/// One per frame of 512 MiB: 8 MiB of nodes, more than an L2 cache.
const NODES: usize = 1 << 17;
/// One per frame of 16 MiB: 256 KiB of nodes, which an L2 cache holds.
const NODES_HOT: usize = 1 << 12;
/// From one node of a shuffled list to the next.
const SHUFFLE: usize = 0x9e37_79b1;
const NONE: u32 = u32::MAX;
const MOVES: usize = 4096;
/// The tail frames of eight huge pages, so that every node of the list has its turn before a node has its turn again.
const TAILS: usize = 4096;
/// Entries of a page table.
const ENTRIES: usize = 512;
const TABLES: i64 = 8;
/// One alone would be no longer than reading the clock.
const FILLS: u64 = 32;
const LOCKS: i64 = 20_000;

pub(super) fn probes() -> Vec<Found> {
    vec![list_move(), list_move_shuffled(), tail_frame(), pte_store(), lock_pair()]
}

/// As large as a `struct page`, and in a cache line of its own.
#[derive(Clone)]
#[repr(C, align(64))]
struct Node {
    next: u32,
    prev: u32,
    flags: u64,
    order: u64,
}

struct Nodes(Vec<Node>);

struct List {
    head: u32,
    count: u64,
}

impl Nodes {
    /// In huge pages where there are any, as the kernel's frame table is: else misses of the TLB would be measured.
    fn new(count: usize) -> Self {
        let mut nodes = Vec::<Node>::with_capacity(count);
        let start = VirtAddr(nodes.as_ptr().addr() as u64);
        let all = VmRange { start, len: Bytes((count * size_of::<Node>()) as u64) };
        if all.len > Bytes::HUGE_PAGE {
            let aligned = all.aligned_part(Bytes::HUGE_PAGE, all.len - Bytes::HUGE_PAGE);
            let _ = advise(aligned, Advice::HugePage);
        }
        nodes.resize(count, Node { next: NONE, prev: NONE, flags: 0, order: 0 });
        Self(nodes)
    }

    #[inline]
    fn push(&mut self, list: &mut List, at: u32) {
        let first = list.head;
        let node = &mut self.0[at as usize];
        (node.next, node.prev) = (first, NONE);
        if first != NONE {
            self.0[first as usize].prev = at;
        }
        list.head = at;
        list.count += 1;
    }

    #[inline]
    fn pop(&mut self, list: &mut List) -> u32 {
        let at = list.head;
        let node = &mut self.0[at as usize];
        list.head = node.next;
        node.next = NONE;
        node.order += 1;
        if list.head != NONE {
            self.0[list.head as usize].prev = NONE;
        }
        list.count -= 1;
        at
    }

    /// Moves the first `count` nodes of `source` to the head of `target`.
    #[inline]
    fn transfer(&mut self, source: &mut List, target: &mut List, count: usize) {
        for _ in 0..count {
            let at = self.pop(source);
            self.push(target, at);
        }
    }
}

/// Most moves are of a block's neighbours, when the block is split or merged, and of frames whose records somebody has just
/// read, to take them off a process or give them to a process: caches have these frames.
fn list_move() -> Found {
    let (mut nodes, [mut full, mut empty]) = lists(NODES_HOT, 1);
    probe(&[Raw::ListMove], move |samples| {
        // Into the caches, which other probes have used meanwhile.
        nodes.transfer(&mut full, &mut empty, NODES_HOT);
        let ns = timed(|| {
            nodes.transfer(&mut empty, &mut full, NODES_HOT);
            nodes.transfer(&mut full, &mut empty, NODES_HOT);
        });
        nodes.transfer(&mut empty, &mut full, NODES_HOT);
        samples.set(Raw::ListMove, each(ns, 2 * i64::try_from(NODES_HOT).expect("a few thousand")));
        Ok(())
    })
}

/// The lists of a machine that has run for a while are in no order of addresses: there the first block that is taken costs more.
fn list_move_shuffled() -> Found {
    let (mut nodes, mut lists) = lists(NODES, SHUFFLE);
    let mut from = 0;
    probe(&[Raw::ListMoveShuffled], move |samples| {
        if lists[from].count <= MOVES as u64 {
            from = 1 - from;
        }
        let [first, second] = &mut lists;
        let (source, target) = if from == 0 { (first, second) } else { (second, first) };
        let ns = timed(|| nodes.transfer(source, target, MOVES));
        samples.set(Raw::ListMoveShuffled, each(ns, i64::try_from(MOVES).expect("a few thousand")));
        Ok(())
    })
}

/// Makes `count` nodes, all on the first of two lists; each node is followed by the node `step` places further.
fn lists(count: usize, step: usize) -> (Nodes, [List; 2]) {
    let mut nodes = Nodes::new(count);
    let mut lists = [List { head: NONE, count: 0 }, List { head: NONE, count: 0 }];
    // An odd step visits every number below a power of two once.
    for n in 0..count {
        let at = n.wrapping_mul(step) % count;
        nodes.push(&mut lists[0], u32::try_from(at).expect("below 2^17"));
    }
    (nodes, lists)
}

/// The tail frames of a huge page, one after the other.
fn tail_frame() -> Found {
    let mut nodes = Nodes::new(NODES);
    let mut first = 0;
    probe(&[Raw::TailFrame], move |samples| {
        let tails = &mut nodes.0[first..][..TAILS];
        let ns = timed(|| {
            for node in black_box(tails) {
                node.flags &= !1;
                node.order = 0;
                (node.next, node.prev) = (NONE, NONE);
            }
        });
        first = (first + TAILS) % NODES;
        samples.set(Raw::TailFrame, each(ns, i64::try_from(TAILS).expect("a few thousand")));
        Ok(())
    })
}

/// The child's entries on fork, or the entries of a huge page that is split: plain stores, one after the other.
fn pte_store() -> Found {
    let mut table = Box::new([0_u64; ENTRIES]);
    probe(&[Raw::PteStore], move |samples| {
        let mut ns = 0;
        for _ in 0..TABLES {
            black_box(&mut table).fill(0);
            ns += timed(|| (0..FILLS).for_each(|fill| (0..ENTRIES).for_each(|at| *black_box(&mut table[at]) = fill)));
        }
        samples.set(Raw::PteStore, each(ns, TABLES * FILLS.cast_signed() * 512));
        Ok(())
    })
}

fn lock_pair() -> Found {
    let lock = AtomicU32::new(0);
    probe(&[Raw::LockPair], move |samples| {
        let ns = timed(|| {
            for _ in 0..LOCKS {
                let taken = black_box(&lock).compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
                assert!(taken.is_ok(), "nobody else has the lock");
                black_box(&lock).store(0, Ordering::Release);
            }
        });
        samples.set(Raw::LockPair, each(ns, LOCKS));
        Ok(())
    })
}
