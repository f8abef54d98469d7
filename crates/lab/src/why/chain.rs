//! From the facts of an operation to sentences. Facts of equal kind make a single sentence, with the instant of the first fact.

use std::collections::BTreeMap;

use memory::fact::{Fact, Kswapd, Lacks, Room, Told, ZoneName};
use rules::gfp::Mark;
use units::{Mobility, Order, Time};

use super::{
    kinds::{Kind, Rank, Sum, answer, in_words, name, rank, result_name},
    numbers::{count, seconds},
};

/// The beginning of the sentence on a request that was refused.
const GIVES_UP: &str = "gives up on order";

/// A sentence, with the instant of its first fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    /// The instant.
    pub(super) at: Time,
    /// The words.
    pub(super) text: String,
    /// The place among sentences where there is no room: the lowest is left out first.
    pub(super) rank: Rank,
}

/// The sentences of an operation, by instant.
pub(super) fn sentences(facts: &[Told], (task, time): (u32, u64)) -> Vec<Sentence> {
    let mut chain = Chain { task, ..Chain::default() };
    for told in facts {
        chain.add(told);
    }
    chain.finish(time)
}

#[derive(Debug, Default)]
struct Chain {
    /// The operation's task. Facts of others are reasons for facts of its own.
    task: u32,
    sums: BTreeMap<Kind, Sum>,
    sentences: Vec<Sentence>,
    /// The request that is being tried, and the zones that it was refused by in this try.
    request: Option<(Time, Order, Mobility, u32)>,
    refused: Vec<(ZoneName, Order, Mark, Room, Lacks)>,
    is_slow: bool,
    /// Tries on the slow path, and the last of them.
    tries: u64,
    last_try: Option<(Time, String)>,
    /// The begin of the run or the reclaim in progress, and whether the run waits for locks.
    run: (Time, bool),
    is_compacting: bool,
    reclaim: Option<Time>,
    /// The kind of the last fact on a wait that has begun.
    waits: Option<Kind>,
    /// The last run that deferred compaction of a zone.
    deferrals: BTreeMap<ZoneName, Time>,
    /// The last request of another task that woke a node's kswapd.
    wakeups: BTreeMap<u32, (Time, u32, Order)>,
}

impl Chain {
    fn add(&mut self, Told { at, by, fact, .. }: &Told) {
        let at = *at;
        match fact {
            Fact::Request { order, mobility, node, .. } => {
                self.request = Some((at, *order, *mobility, node.0));
                self.refused.clear();
            }
            Fact::PassedOver { zone, order, mark, room, lacks } => {
                self.pass_over(at, (*zone, *order, *mark, room.clone(), *lacks));
            }
            Fact::SlowPath { order } => self.enter(*order),
            Fact::SlowPathEnd { order, found } => self.end(at, *order, *found),
            Fact::WakeupKswapd { node, order, kswapd: Kswapd::Woken } if *by != self.task => {
                self.wakeups.insert(node.0, (at, *by, *order));
            }
            Fact::WakeupKswapd { node, kswapd, .. } => {
                let waker = self.wakeups.get(&node.0).filter(|_| *kswapd == Kswapd::Awake);
                let note = waker.map(|(at, by, order)| {
                    format!(", since task {by} asked at {} for order {}", instant(*at), order.0)
                });
                self.sum(Kind::Wakeup(node.0, answer(*kswapd)), at).note = note.unwrap_or_default();
            }
            Fact::CompactionUnsuitable { zone, result, free, .. } => {
                let sum = self.sum(Kind::Unsuitable(*zone, result_name(*result)), at);
                sum.numbers[0] = *free;
            }
            Fact::CompactionDeferred { zone, shift, considered, .. } => {
                let since = self.deferrals.get(zone).map(|since| format!(" since a run failed at {}", instant(*since)));
                let sum = self.sum(Kind::Deferred(*zone), at);
                sum.note = format!("(shift {shift}, {considered} of {}){}", 1_u64 << shift, since.unwrap_or_default());
            }
            Fact::DeferCompaction { zone, .. } => drop(self.deferrals.insert(*zone, at)),
            Fact::CompactionBegin { sync, .. } => (self.run, self.is_compacting) = ((at, *sync), true),
            Fact::CompactionEnd { zone, result, migrate_scanned, free_scanned, moved, failed } => {
                self.is_compacting = false;
                let (begin, sync) = self.run;
                let sum = self.sum(Kind::Run(*zone, sync, result_name(*result)), begin);
                sum.time += at.since(begin).0;
                for (sum, more) in sum.numbers.iter_mut().zip([migrate_scanned, free_scanned, moved, failed]) {
                    *sum += more;
                }
            }
            Fact::ReclaimBegin { .. } => self.reclaim = Some(at),
            Fact::ReclaimEnd { scanned, reclaimed, .. } => {
                let begin = self.reclaim.take().unwrap_or(at);
                let sum = self.sum(Kind::Reclaim, begin);
                sum.time += at.since(begin).0;
                (sum.numbers[0], sum.numbers[1]) = (sum.numbers[0] + scanned, sum.numbers[1] + reclaimed);
            }
            Fact::OomKill { space } => self.say(at, format!("the OOM killer chooses process {space}")),
            Fact::ThpFallback => {
                let last = self.sentences.pop_if(|last| last.at == at && last.text.starts_with(GIVES_UP));
                let before = last.map_or_else(String::new, |last| format!("{}, and ", last.text));
                self.say(at, format!("{before}falls back to 4 KiB pages"));
            }
            Fact::SpinWait { lock, holder, by, until } => {
                let sum = self.sum(Kind::Spin(lock.clone()), at);
                sum.time += until.since(at).0;
                sum.note =
                    by.as_ref().map_or_else(String::new, |by| format!("{by} on ")) + &format!("CPU {}", holder.0);
            }
            Fact::Waited { cause, since, behind } => self.end_wait((*since, at), cause, behind.as_ref()),
            more => self.add_more(at, more),
        }
    }

    /// Adds a wait that has ended, to the fact at its begin if there is one.
    fn end_wait(&mut self, (since, until): (Time, Time), cause: &str, behind: Option<&String>) {
        let is_told = matches!(cause, "swap" | "disk" | "throttle");
        let told = self.waits.take_if(|_| is_told);
        let is_new = told.is_none();
        let sum = self.sum(told.unwrap_or_else(|| Kind::Wait(cause.to_owned(), behind.cloned())), since);
        // The fact at the begin of the wait was counted.
        sum.facts -= u64::from(!is_new);
        sum.time += until.since(since).0;
    }

    /// Adds a fact of work, or of a wait that begins.
    fn add_more(&mut self, at: Time, fact: &Fact) {
        let within = match () {
            () if self.is_compacting => " in compaction",
            () if self.reclaim.is_some() => " in reclaim",
            () => "",
        };
        let (kind, numbers, time) = match fact {
            Fact::Sent { device, is_write, pages, took, .. } => {
                (Kind::Sent(*device, *is_write), [*pages, 0, 0, 0], took.0)
            }
            Fact::DeviceWait { device, request, reads, writes, .. } => {
                let own = format!("task {}", self.task);
                let request = request.clone().map(|(is_write, by)| (is_write, Some(by).filter(|by| *by != own)));
                (Kind::DeviceWait(*device, request), [*reads, *writes, 0, 0], 0)
            }
            Fact::Throttled { by, has, limit, .. } => (Kind::Throttled(*by), [*has, *limit, 0, 0], 0),
            Fact::Shootdown { times, pages, cause, took, .. } => {
                (Kind::Shootdown(cause.clone(), within), [*times, *pages, 0, 0], took.0)
            }
            Fact::Interrupted { times, pages, whole, took } => (Kind::Interrupted, [*times, *pages, *whole, 0], took.0),
            Fact::Cleared { node, here, distance, pages, took } => {
                (Kind::Cleared(node.0, here.0, *distance), [*pages, 0, 0, 0], took.0)
            }
            Fact::Copied { from, to, distance, pages, took } => {
                (Kind::Copied(from.0, to.0, *distance), [*pages, 0, 0, 0], took.0)
            }
            Fact::MemoryBusy { node, pages, waits } => (Kind::MemoryBusy(node.0), [*pages, 0, 0, 0], waits.0),
            Fact::HintFault { node, here, pages, hinted } => {
                (Kind::Hint(node.0, here.0, *hinted), [*pages, 0, 0, 0], 0)
            }
            Fact::HintMove { to, settled } => (Kind::HintMove(to.0, *settled), [0; 4], 0),
            Fact::Collapse { node, result } => (Kind::Collapse(node.0, *result), [0; 4], 0),
            Fact::KswapdPass { node, zone, scanned, reclaimed, .. } => {
                (Kind::KswapdPass(node.0, *zone), [*scanned, *reclaimed, 0, 0], 0)
            }
            Fact::KcompactdWork { node, order } => (Kind::Kcompactd(node.0, *order), [0; 4], 0),
            _ => unreachable!("the caller has taken all others"),
        };
        let begins = matches!(fact, Fact::DeviceWait { .. } | Fact::Throttled { .. });
        let is_last = matches!(fact, Fact::Throttled { .. });
        self.waits = Some(kind.clone()).filter(|_| begins).or_else(|| self.waits.take());
        let sum = self.sum(kind, at);
        for (sum, more) in sum.numbers.iter_mut().zip(numbers) {
            *sum = if is_last { more } else { *sum + more };
        }
        sum.time += time;
        match fact {
            Fact::DeviceWait { most: Some(most), .. } => sum.note = format!(", most of them by {most}"),
            Fact::Shootdown { cpus, .. } => sum.numbers[2] = sum.numbers[2].max((*cpus).into()),
            Fact::KswapdPass { priority, order, .. } => {
                (sum.numbers[2], sum.numbers[3]) = ((*priority).into(), order.0.into());
            }
            _ => {}
        }
    }

    fn say(&mut self, at: Time, text: String) {
        self.sentences.push(Sentence { at, text, rank: Rank::Outcome });
    }

    /// The sum of a kind, with one fact more.
    fn sum(&mut self, kind: Kind, at: Time) -> &mut Sum {
        let sum = self.sums.entry(kind).or_insert_with(|| Sum { first: at, ..Sum::default() });
        sum.facts += 1;
        sum
    }

    fn pass_over(&mut self, at: Time, of: (ZoneName, Order, Mark, Room, Lacks)) {
        if !self.is_slow {
            // A later pass of the fast path says more: it asks for less.
            self.refused.retain(|(zone, ..)| *zone != of.0);
            self.refused.push(of);
            return;
        }
        let text = refusal(&of);
        let is_same_try = self.last_try.as_ref().is_some_and(|(last, _)| *last == at);
        if !is_same_try {
            self.tries += 1;
            self.last_try = Some((at, text));
        }
    }

    /// The request goes to the slow path.
    fn enter(&mut self, order: Order) {
        self.is_slow = true;
        let Some((at, _, mobility, node)) = self.request.take().filter(|(_, asked, ..)| *asked == order) else {
            return;
        };
        let (first, others) = self.refused.split_at(self.refused.len().min(1));
        let refused: Vec<String> = first.iter().map(refusal).chain(others.iter().map(short_refusal)).collect();
        self.say(at, format!("order-{} {mobility:?} request on node {node}: {}", order.0, refused.join("; ")));
        if let Some((zone, _, _, room, _)) = self.refused.first() {
            let blocks: Vec<String> = room.blocks.iter().map(u64::to_string).collect();
            let text = format!("free lists of {}, from order 0: {}", name(*zone), blocks.join(" "));
            self.sentences.push(Sentence { at, text, rank: Rank::Lists });
        }
    }

    /// The slow path ends.
    fn end(&mut self, at: Time, order: Order, found: bool) {
        self.is_slow = false;
        if let Some((at, last)) = self.last_try.take() {
            let tries = if self.tries == 1 { "1 try more".to_owned() } else { format!("{} tries more", self.tries) };
            let text = format!("{tries} in vain, the last: {last}");
            self.sentences.push(Sentence { at, text, rank: Rank::Tries });
        }
        let text = if found { "gets a block of order" } else { GIVES_UP };
        self.say(at, format!("{text} {}", order.0));
    }

    /// The sentences of an operation that took this time.
    fn finish(mut self, time: u64) -> Vec<Sentence> {
        if let Some(at) = self.reclaim {
            self.say(at, "direct reclaim begins, and is not over at the end".to_owned());
        }
        let sums = self.sums.into_iter().map(|(kind, sum)| Sentence {
            at: sum.first,
            text: in_words(&kind, &sum),
            rank: rank(&kind, sum.time, time),
        });
        let mut sentences = self.sentences;
        sentences.extend(sums);
        sentences.sort_by_key(|sentence| sentence.at);
        sentences
    }
}

/// An instant within a sentence.
fn instant(at: Time) -> String {
    format!("{} s", seconds(at))
}

/// Why a zone was passed over: its free pages, beside what was asked of it.
fn refusal((zone, order, mark, room, lacks): &(ZoneName, Order, Mark, Room, Lacks)) -> String {
    let (zone, free) = (name(*zone), count(room.free));
    match lacks {
        Lacks::Frames => {
            let mark = match mark {
                Mark::Min => "min",
                Mark::Low => "low",
                Mark::High => "high",
            };
            let more = [("+boost", room.boost > 0), ("+reserve", room.keeps > 0), ("+block", *order > Order::BASE)];
            let more: String = more.into_iter().filter(|(_, counts)| *counts).map(|(name, _)| name).collect();
            format!("{zone} {free} pages under {mark}{more} of {}", count(room.needs + 1))
        }
        Lacks::Block => match room.blocks.iter().rposition(|blocks| *blocks > 0) {
            Some(largest) if largest >= usize::from(order.0) => {
                format!("{zone} {free} pages, too few in large blocks")
            }
            Some(largest) => format!("{zone} {free} pages, in blocks of at most order {largest}"),
            None => format!("{zone} has no block"),
        },
        Lacks::List => format!("{zone} {free} pages, none on the lists of this request"),
    }
}

/// Why a zone behind the first one was passed over.
fn short_refusal(refused: &(ZoneName, Order, Mark, Room, Lacks)) -> String {
    let (zone, _, _, room, lacks) = refused;
    match lacks {
        Lacks::Frames => format!("{} {} under {}", name(*zone), count(room.free), count(room.needs + 1)),
        Lacks::Block | Lacks::List => refusal(refused),
    }
}

#[cfg(test)]
mod tests {
    use memory::fact::{Compaction, Told};
    use rules::zone::ZoneKind;
    use units::{CpuId, NodeId};

    use super::*;

    const NORMAL: ZoneName = ZoneName { node: NodeId(0), kind: ZoneKind::Normal };
    const SECOND: u64 = 1_000_000_000_000;

    fn room(free: u64, blocks: &[u64], needs: u64) -> Room {
        Room { free, blocks: blocks.to_vec(), mark: 1046, boost: 512, keeps: 0, needs }
    }

    fn texts(facts: &[(u64, Fact)]) -> Vec<String> {
        let by = |fact: &Fact| if matches!(fact, Fact::WakeupKswapd { kswapd: Kswapd::Woken, .. }) { 7 } else { 3 };
        let told = |(at, fact): &(u64, Fact)| Told { at: Time(*at), by: by(fact), kernel: 0, fact: fact.clone() };
        let told: Vec<Told> = facts.iter().map(told).collect();
        sentences(&told, (3, SECOND)).into_iter().map(|sentence| sentence.text).collect()
    }

    fn refused(order: u8, mark: Mark, room: Room, lacks: Lacks) -> Fact {
        Fact::PassedOver { zone: NORMAL, order: Order(order), mark, room, lacks }
    }

    #[test]
    fn a_fault_that_falls_back_is_told_from_its_request_to_its_end() {
        let order = Order(9);
        let request = Fact::Request { order, mobility: Mobility::Movable, node: NodeId(0), reclaims: true };
        let blocks = [7, 3, 0, 1];
        let facts = [
            (SECOND, Fact::DeferCompaction { zone: NORMAL, order, shift: 6 }),
            (2 * SECOND, Fact::WakeupKswapd { node: NodeId(0), order: Order(3), kswapd: Kswapd::Woken }),
            (4 * SECOND, request),
            (4 * SECOND, refused(9, Mark::Low, room(1034, &blocks, 2069), Lacks::Frames)),
            (4 * SECOND, refused(9, Mark::Min, room(1034, &blocks, 1900), Lacks::Frames)),
            (4 * SECOND, Fact::WakeupKswapd { node: NodeId(0), order, kswapd: Kswapd::Awake }),
            (4 * SECOND, Fact::SlowPath { order }),
            (4 * SECOND + 1, Fact::CompactionDeferred { zone: NORMAL, order, shift: 6, considered: 41 }),
            (4 * SECOND + 2, refused(9, Mark::Min, room(5000, &blocks, 1900), Lacks::Block)),
            (4 * SECOND + 3, Fact::SlowPathEnd { order, found: false }),
            (4 * SECOND + 3, Fact::ThpFallback),
        ];
        assert_eq!(
            texts(&facts),
            [
                "order-9 Movable request on node 0: Normal 1,034 pages under min+boost+block of 1,901",
                "free lists of Normal, from order 0: 7 3 0 1",
                "kswapd0 is asked for room, and is awake already, since task 7 asked at 2.000000 s for order 3",
                "compaction of Normal deferred (shift 6, 41 of 64) since a run failed at 1.000000 s",
                "1 try more in vain, the last: Normal 5,000 pages, in blocks of at most order 3",
                "gives up on order 9, and falls back to 4 KiB pages",
            ]
        );
    }

    #[test]
    fn facts_of_one_kind_are_one_sentence() {
        let run = |begin: u64, scanned: u64| {
            let end = Fact::CompactionEnd {
                zone: NORMAL,
                result: Compaction::PartialSkipped,
                migrate_scanned: scanned,
                free_scanned: 10,
                moved: 2,
                failed: 1,
            };
            let order = Some(Order(9));
            [(begin, Fact::CompactionBegin { zone: NORMAL, order, sync: false }), (begin + 5_000_000, end)]
        };
        let reclaim = |begin: u64| {
            let end = Fact::ReclaimEnd { scanned: 600, reclaimed: 32, priority: 10 };
            [(begin, Fact::ReclaimBegin { order: Order(0) }), (begin + 3_000_000, end)]
        };
        let wait = |since: u64, behind: &str| {
            let behind = Some(behind.to_owned());
            (since + 4_000_000, Fact::Waited { cause: "run queue".to_owned(), since: Time(since), behind })
        };
        let spin = Fact::SpinWait {
            lock: "zone lock".to_owned(),
            holder: CpuId(2),
            by: None,
            until: Time(SECOND + 50_000_000),
        };
        let facts: Vec<(u64, Fact)> = [
            &run(SECOND, 1000)[..],
            &run(SECOND + 6_000_000, 500),
            &reclaim(SECOND + 12_000_000),
            &reclaim(SECOND + 20_000_000),
            &[wait(SECOND + 30_000_000, "kswapd0"), wait(SECOND + 36_000_000, "kswapd0")],
            &[(SECOND + 49_000_000, spin)],
        ]
        .concat();
        assert_eq!(
            texts(&facts),
            [
                "async compaction of Normal 2 times, 10.00 us: scans 1,500 pages and 20 for free ones, moves 4, 2 failed; \
                 partial: the scanners met",
                "direct reclaim 2 times, 6.000 us: scans 1,200 pages, reclaims 64",
                "waits 2 times, 8.000 us, for a CPU, behind kswapd0",
                "spins, 1.000 us, for the zone lock; the last holder is CPU 2",
            ]
        );
    }
}
