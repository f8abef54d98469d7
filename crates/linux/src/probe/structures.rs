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
const NONE: u32 = u32::MAX;
const MOVES: i64 = 4096;
const LOCKS: i64 = 20_000;
/// New folios that are put on their list at once (`PAGEVEC_SIZE`, include/linux/pagevec.h, v6.1).
const BATCH: usize = 15;
const BATCHES: usize = 512;

pub(super) fn probes() -> Vec<Found> {
    vec![list_move(), lock_pair(), lru_move()]
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
    fn new() -> Self {
        let mut nodes = Vec::<Node>::with_capacity(NODES);
        let start = VirtAddr(nodes.as_ptr().addr() as u64);
        let all = VmRange { start, len: Bytes((NODES * size_of::<Node>()) as u64) };
        let aligned = all.aligned_part(Bytes::HUGE_PAGE, all.len - Bytes::HUGE_PAGE);
        let _ = advise(aligned, Advice::HugePage);
        nodes.resize(NODES, Node { next: NONE, prev: NONE, flags: 0, order: 0 });
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
}

/// Free lists of a machine that has run for a while are in no order of addresses.
fn list_move() -> Found {
    let mut nodes = Nodes::new();
    let mut lists = [List { head: NONE, count: 0 }, List { head: NONE, count: 0 }];
    // An odd multiplier visits every number below a power of two once.
    for n in 0..NODES {
        let at = n.wrapping_mul(0x9e37_79b1) % NODES;
        nodes.push(&mut lists[0], u32::try_from(at).expect("below 2^17"));
    }
    let mut from = 0;
    probe(&[Raw::ListMove], move |samples| {
        if lists[from].count <= MOVES.cast_unsigned() {
            from = 1 - from;
        }
        let [first, second] = &mut lists;
        let (source, target) = if from == 0 { (first, second) } else { (second, first) };
        let ns = timed(|| {
            for _ in 0..MOVES {
                let at = nodes.pop(source);
                nodes.push(target, at);
            }
        });
        samples.set(Raw::ListMove, each(ns, MOVES));
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

/// New folios were written to a moment ago; each is flagged, linked and counted for its zone and its node.
fn lru_move() -> Found {
    let mut nodes = Nodes::new();
    let mut list = List { head: NONE, count: 0 };
    let mut counts = [0_u64; 4];
    let mut first = 0;
    probe(&[Raw::LruMove], move |samples| {
        let mut ns = 0;
        for _ in 0..BATCHES / 16 {
            let group = first..first + BATCH * 16;
            group.clone().for_each(|n| nodes.0[n].flags = 1);
            ns += timed(|| {
                for n in group {
                    nodes.0[n].flags |= 0x20;
                    nodes.push(&mut list, u32::try_from(n).expect("below 2^17"));
                    for count in black_box(&mut counts) {
                        *count += 1;
                    }
                }
            });
            first += BATCH * 16;
            if first + BATCH * 16 > NODES {
                (first, list.head) = (0, NONE);
            }
        }
        let all = i64::try_from(BATCH * BATCHES).expect("few nodes");
        samples.set(Raw::LruMove, each(ns, all));
        Ok(())
    })
}
