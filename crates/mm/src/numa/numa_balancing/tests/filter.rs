//! Linux: kernel/sched/fair.c (v6.12).
//!
//! Which VMAs scans have: of one huge page each, by several tasks.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::space::vma::HugeAdvice;

/// The delay of new VMAs.
const DELAY: u64 = 100;
/// More than there is.
const ALL: u64 = 100 * HUGE;

/// The scan of 2013 with the filter of a release.
fn rules(release: &str) -> Variant {
    let of = named(release);
    Variant {
        numa_vma_delay: of.numa_vma_delay,
        numa_vma_by_pid: of.numa_vma_by_pid,
        numa_vma_forgets_pids: of.numa_vma_forgets_pids,
        numa_vma_hashes_pids: of.numa_vma_hashes_pids,
        numa_vma_forgets_first: of.numa_vma_forgets_first,
        numa_vma_finishes: of.numa_vma_finishes,
        numa_vma_once: of.numa_vma_once,
        numa_vma_own_scans: of.numa_vma_own_scans,
        numa_vma_unscanned: of.numa_vma_unscanned,
        ..patched("v3.9", &(1..=14).collect::<Vec<_>>())
    }
}

/// A process with one VMA after the other; `vmas` gives the huge pages of each.
fn world(rules: &Variant, vmas: &[u64]) -> (World, Vec<PageRange>) {
    let mut world = World::new(rules, &[("kernel.numa_balancing_scan_delay_ms", "100")]);
    let whole = world.huge(vmas.iter().sum(), 0);
    let mut start = whole.start;
    let ranges: Vec<PageRange> = vmas
        .iter()
        .map(|pages| {
            let range = PageRange::new(start, pages * HUGE);
            start = range.end;
            range
        })
        .collect();
    let id = world.id;
    let slack = |space: &mut AddressSpace| {
        let all: Vec<PageRange> = space.vmas.iter().map(crate::space::vma::Vma::range).collect();
        let below = PageRange { start: all[0].start, end: whole.start };
        let above = PageRange { start: whole.end, end: all[all.len() - 1].end };
        [below, above]
    };
    for range in slack(world.space()).into_iter().filter(|range| range.pages() > 0) {
        world.unmap(range);
    }
    for range in ranges.iter().step_by(2) {
        let (range, advice) = (*range, HugeAdvice::HugePage);
        let given = world.on(0, 0, |mm, spaces, cx| spaces.get_mut(id).unwrap().madvise(mm, cx, range, advice));
        given.unwrap();
    }
    (world, ranges)
}

impl World {
    fn scan_by(&mut self, task: u32, pages: u64, threads: u64) {
        let id = self.id;
        let mut work = crate::numa::numa_balancing::scan::ScanWork::new(pages).of_threads(threads);
        self.on(
            task,
            0,
            |mm, spaces, cx| {
                while let Step::More = work.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)) {}
            },
        );
    }

    /// Which of these hint, in all of their pages; and they do so no more.
    fn marked(&mut self, vmas: &[PageRange]) -> Vec<usize> {
        let mut marked = Vec::new();
        for (at, range) in vmas.iter().enumerate() {
            let heads = (0..range.pages() / HUGE).map(|nth| range.start.plus(nth * HUGE));
            let hinting: Vec<Vpn> = heads.filter(|head| self.hints(*head)).collect();
            if hinting.len() as u64 * HUGE == range.pages() {
                marked.push(at);
            }
            for head in hinting {
                let slot = self.space().tables.pmd_slot(head).unwrap();
                self.space().tables.hint_huge(slot, false);
            }
        }
        marked
    }

    /// A task faults in a VMA.
    fn use_vma(&mut self, task: u32, vma: PageRange) {
        let id = self.id;
        self.on(task, 0, |mm, spaces, cx| mm.numa_vma_faulted(spaces.get_mut(id).unwrap(), cx.control(), vma.start));
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Picos::from_micros(1000 * ms);
    }

    fn skipped(&self) -> [u64; 4] {
        self.mm.numa_vma_skips().unwrap().map(|(_, count)| count)
    }

    fn unmap(&mut self, range: PageRange) {
        let id = self.id;
        let mut unmap = crate::space::unmap::Unmap::new(range);
        self.on(
            0,
            0,
            |mm, spaces, cx| {
                while let Step::More = unmap.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)) {}
            },
        );
    }

    fn has_state(&mut self, start: Vpn) -> bool {
        self.space().vmas.knows_numab(start)
    }
}

#[test]
fn without_the_filter_every_vma_is_scanned_every_time() {
    let (mut world, vmas) = world(&rules("v6.1"), &[1, 1, 1]);
    for task in [7, 8, 7] {
        world.scan_by(task, ALL, 1);
        assert_eq!(world.marked(&vmas), [0, 1, 2]);
    }
    assert_eq!(world.mm.numa_vma_skips(), None);
    assert!(!world.has_state(vmas[0].start));
}

#[test]
fn up_to_6_6_a_vma_is_scanned_by_tasks_that_faulted() {
    let (mut world, vmas) = world(&rules("v6.4"), &[1, 1, 1]);
    world.scan_by(7, ALL, 1);
    assert_eq!(world.marked(&vmas), [0, 1, 2], "the first scan asks nobody");
    world.scan_by(7, ALL, 1);
    assert_eq!((world.marked(&vmas), world.skipped()), (vec![], [3, 0, 0, 0]), "they are new");
    world.pass(DELAY);
    world.space().numa.seq = 1;
    world.scan_by(7, ALL, 1);
    assert_eq!(world.marked(&vmas), [0, 1, 2], "nor does the second");
    world.use_vma(7, vmas[0]);
    world.use_vma(8, vmas[2]);
    world.scan_by(7, ALL, 1);
    assert_eq!(world.marked(&vmas), [0]);
    world.scan_by(8, ALL, 1);
    assert_eq!(world.marked(&vmas), [2]);
    world.scan_by(9, ALL, 1);
    assert_eq!(world.marked(&vmas), [0_usize; 0], "nobody else may help");
    assert_eq!(world.space().numa.seq, 5, "though all was scanned once more");
}

#[test]
fn pids_are_forgotten_after_two_periods_up_to_6_6_by_scanners() {
    for (release, forgotten) in [("v6.4", false), ("v6.7", true)] {
        let (mut world, vmas) = world(&rules(release), &[1, 1]);
        world.scan_by(7, ALL, 1);
        world.space().numa.seq = 5;
        world.use_vma(7, vmas[0]);
        // Task 9 scans and uses no page; 6.7 forgets in its second and its third scan.
        for _ in 0..3 {
            world.pass(5 * DELAY);
            world.scan_by(9, ALL, 1);
            world.space().numa.begin_again();
            world.marked(&vmas);
        }
        world.scan_by(7, ALL, 1);
        // From 6.7 on it is had because there is no other, and that is the first one.
        assert_eq!(world.marked(&vmas), [0], "{release}");
        // Six times by the other, once or twice by this one.
        assert_eq!(world.skipped()[1], if forgotten { 8 } else { 7 }, "{release}");
    }
}

#[test]
fn from_6_7_on_an_unused_vma_is_scanned_once_if_forced() {
    let (mut world, vmas) = world(&rules("v6.7"), &[1, 1, 1]);
    world.scan_by(7, ALL, 1);
    world.marked(&vmas);
    world.pass(DELAY);
    world.space().numa.seq = 5;
    for nth in [0, 1, 2] {
        world.scan_by(9, ALL, 1);
        assert_eq!((world.marked(&vmas), world.space().numa.seq), (vec![nth], 5));
    }
    world.use_vma(9, vmas[1]);
    world.space().numa.begin_again();
    world.scan_by(9, ALL, 1);
    assert_eq!(world.marked(&vmas), [0, 1], "what it uses, and one more");
    world.scan_by(9, ALL, 1);
    assert_eq!(world.marked(&vmas), [2], "each once");
    assert!(world.skipped()[3] > 0);
}

#[test]
fn from_6_7_on_a_vma_that_was_begun_is_finished() {
    for (release, finished) in [("v6.6", false), ("v6.7", true)] {
        let (mut world, vmas) = world(&rules(release), &[4]);
        world.scan_by(7, ALL, 1);
        world.marked(&vmas);
        world.pass(DELAY);
        world.space().numa.seq = 5;
        world.use_vma(7, vmas[0]);
        world.scan_by(7, 2 * HUGE, 1);
        assert_eq!(world.marked(&vmas), [0_usize; 0], "half of it");
        assert_eq!(world.space().numa.offset, vmas[0].start.plus(2 * HUGE));
        world.scan_by(9, 2 * HUGE, 1);
        let last = vmas[0].start.plus(3 * HUGE);
        assert_eq!((world.hints(last), world.skipped()[2] > 0), (finished, finished), "{release}");
    }
}

#[test]
fn from_6_8_on_a_new_vma_has_two_free_scans() {
    for (release, own) in [("v6.7", false), ("v6.8", true)] {
        let (mut world, vmas) = world(&rules(release), &[1, 1, 1]);
        world.space().numa.seq = 5;
        world.scan_by(9, ALL, 1);
        assert_eq!(world.marked(&vmas), [0_usize; 0], "they are new");
        world.pass(DELAY);
        world.scan_by(9, ALL, 1);
        let scanned = world.marked(&vmas);
        assert_eq!(scanned, if own { vec![0, 1, 2] } else { vec![0] }, "{release}");
    }
}

#[test]
fn from_6_12_on_vmas_skipped_more_often_than_threads_are_scanned() {
    for (release, threads, after) in [("v6.12", 1, Some(2)), ("v6.12", 3, Some(4)), ("v6.8", 1, None)] {
        let (mut world, vmas) = world(&rules(release), &[1, 1, 1]);
        world.scan_by(9, ALL, threads);
        world.pass(DELAY);
        world.space().numa.seq = 5;
        world.scan_by(9, ALL, threads);
        // Everything has been had in this scan of all; from now on the task uses the first alone.
        let seq = world.space().numa.seq.cast_signed();
        for vma in &vmas {
            world.space().vmas.set_prev_scan_seq(vma.start, seq);
        }
        world.marked(&vmas);
        let mut found = None;
        for nth in 1..6 {
            world.space().numa.begin_again();
            world.use_vma(9, vmas[0]);
            world.scan_by(9, ALL, threads);
            let marked = world.marked(&vmas);
            assert!(marked.contains(&0), "{release}: {marked:?}");
            if marked.contains(&2) {
                found = Some(nth);
                break;
            }
        }
        assert_eq!(found, after, "{release} with {threads} threads");
    }
}

#[test]
fn the_lower_part_of_a_split_vma_keeps_its_numab_state() {
    let (mut world, vmas) = world(&rules("v6.8"), &[2, 1, 1]);
    world.scan_by(7, ALL, 1);
    assert!(vmas.iter().all(|vma| world.has_state(vma.start)));
    let id = world.id;
    let upper = PageRange::new(vmas[0].start.plus(HUGE), HUGE);
    let advise = |world: &mut World, range: PageRange, advice| {
        world.on(0, 0, |mm, spaces, cx| spaces.get_mut(id).unwrap().madvise(mm, cx, range, advice)).unwrap();
    };
    advise(&mut world, upper, HugeAdvice::NoHugePage);
    assert!(world.has_state(vmas[0].start) && !world.has_state(upper.start), "a VMA that was split off is new");
    world.scan_by(7, ALL, 1);
    assert!(world.has_state(upper.start));
    advise(&mut world, upper, HugeAdvice::HugePage);
    assert!(world.has_state(vmas[0].start) && !world.has_state(upper.start), "one again");
    let gone = vmas[1];
    world.unmap(gone);
    assert!(!world.has_state(gone.start) && world.has_state(vmas[2].start));
}

/// A VMA, as a reader of task_numa_work would note it down.
#[derive(Clone, Debug)]
struct Known {
    next_scan: u64,
    reset: u64,
    older: BTreeSet<u32>,
    newer: BTreeSet<u32>,
    prev: i64,
    start: i64,
}

/// The filter as a list of VMAs with sets of tasks, for scans that have room for all.
struct Twin {
    rules: Variant,
    known: BTreeMap<usize, Known>,
    seq: i64,
    /// The first VMA of the next scan.
    offset: usize,
    vmas: usize,
}

impl Twin {
    fn forget(rules: &Variant, seq: i64, now: u64, known: &mut Known) {
        if rules.numa_vma_forgets_pids && seq > 0 && now > known.reset {
            known.reset += 4 * DELAY;
            known.older = std::mem::take(&mut known.newer);
        }
    }

    fn scan(&mut self, task: u32, threads: i64, now: u64) -> Vec<usize> {
        let rules = self.rules;
        let (mut marked, mut forced) = (Vec::new(), false);
        loop {
            let mut skipped = false;
            if self.offset == self.vmas {
                (self.seq, self.offset) = (self.seq + 1, 0);
            }
            for at in self.offset..self.vmas {
                let seq = self.seq;
                let known = self.known.entry(at).or_insert_with(|| Known {
                    next_scan: now + DELAY,
                    reset: now + 5 * DELAY,
                    older: BTreeSet::new(),
                    newer: BTreeSet::new(),
                    prev: seq - 1,
                    start: seq,
                });
                if seq > 0 && now < known.next_scan {
                    continue;
                }
                if rules.numa_vma_forgets_first {
                    Self::forget(&rules, seq, now, known);
                }
                if rules.numa_vma_once && known.prev == seq {
                    self.offset = at + 1;
                    continue;
                }
                let age = if rules.numa_vma_own_scans { seq - known.start } else { seq };
                let uses = known.older.contains(&task) || known.newer.contains(&task);
                let overdue = rules.numa_vma_unscanned && seq > known.prev + threads;
                if !(forced || age < 2 || uses || overdue) {
                    skipped = true;
                    continue;
                }
                if !rules.numa_vma_forgets_first {
                    Self::forget(&rules, seq, now, known);
                }
                marked.push(at);
                if rules.numa_vma_once {
                    known.prev = seq;
                    if forced {
                        self.offset = at + 1;
                        return marked;
                    }
                }
            }
            if rules.numa_vma_once && skipped && !forced {
                forced = true;
                continue;
            }
            (self.seq, self.offset) = (self.seq + 1, 0);
            return marked;
        }
    }
}

#[test]
fn many_vmas_and_several_tasks_are_as_a_naive_twin_has_them() {
    const TASKS: [u32; 5] = [3, 7, 8, 9, 21];
    for release in ["v6.4", "v6.7", "v6.8", "v6.12"] {
        let sizes = [1; 25];
        let (mut world, vmas) = world(&rules(release), &sizes);
        let mut twin = Twin { rules: rules(release), known: BTreeMap::new(), seq: 0, offset: 0, vmas: vmas.len() };
        let (mut draw, mut now, mut marks) = (1_u64, 0, 0);
        for turn in 0..4000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (task, vma) = (TASKS[(draw >> 33) as usize % 5], (draw >> 40) as usize % vmas.len());
            match (draw >> 50) % 4 {
                0 => {
                    world.pass(40);
                    now += 40;
                }
                1 => {
                    let threads = 1 + (draw >> 55) % 3;
                    world.scan_by(task, 1_000_000, threads);
                    let found: Vec<usize> = world.marked(&vmas);
                    let mut expected = twin.scan(task, threads.cast_signed(), now);
                    expected.sort_unstable();
                    expected.dedup();
                    assert_eq!(found, expected, "{release}, turn {turn}");
                    assert_eq!(world.space().numa.seq.cast_signed(), twin.seq, "{release}, turn {turn}");
                    marks += found.len();
                }
                _ => {
                    // Most use the first few.
                    let vma = if (draw >> 60).is_multiple_of(4) { vma } else { vma % 3 };
                    world.use_vma(task, vmas[vma]);
                    if let Some(known) = twin.known.get_mut(&vma) {
                        known.newer.insert(task);
                    }
                }
            }
        }
        assert!(marks > 1000, "{release}: {marks}");
    }
}
