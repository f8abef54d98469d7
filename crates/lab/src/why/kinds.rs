//! The kinds of facts that are summed up: the words about each, and its rank where there is no room.

use memory::fact::{Collapsed, Compaction, Device, HintVerdict, Kswapd, Settled, Throttle, ZoneName};
use rules::zone::ZoneKind;
use units::{Order, Time};

use super::numbers::{count, span};

/// The place of a sentence among those that there is no room for, from the lowest up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A part of the operation, with its picoseconds.
    Part(u64),
    /// Tries that came to nothing.
    Tries,
    /// The answer of kswapd.
    Asked,
    /// The free lists.
    Lists,
    /// A reason for which something was not done.
    Reason,
    /// A part that is a twentieth of the operation or more, with its picoseconds.
    LargePart(u64),
    /// The request, and what came of it.
    Outcome,
    /// A part that is half of the operation or more.
    Most,
}

/// The kind of a fact: facts of equal kind make a single sentence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Wakeup(u32, &'static str),
    Unsuitable(ZoneName, &'static str),
    Deferred(ZoneName),
    Run(ZoneName, bool, &'static str),
    Reclaim,
    Spin(String),
    Wait(String, Option<String>),
    /// Requests sent: the device, and whether it writes.
    Sent(Device, bool),
    /// Waits for a device: for a read or a write, of another task where one is named.
    DeviceWait(Device, Option<(bool, Option<String>)>),
    Throttled(Throttle),
    /// TLB flushes on other CPUs: the cause that they are charged to, and what asked for them.
    Shootdown(String, &'static str),
    Interrupted,
    /// Clearing: the page's node, the CPU's, and their distance.
    Cleared(u32, u32, u32),
    /// Copying: from a node to another at a distance.
    Copied(u32, u32, u32),
    MemoryBusy(u32),
    /// Hinting faults: the page's node, the CPU's, and the decision.
    Hint(u32, u32, HintVerdict),
    HintMove(u32, Settled),
    Collapse(u32, Collapsed),
    KswapdPass(u32, Option<ZoneKind>),
    Kcompactd(u32, Option<Order>),
}

/// The sum of the facts of a kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    pub(super) first: Time,
    pub(super) facts: u64,
    pub(super) time: u64,
    /// The numbers of the kind.
    pub(super) numbers: [u64; 4],
    /// Words about the last fact.
    pub(super) note: String,
}

/// A zone's name; of the first node, its kind alone.
pub(super) fn name(zone: ZoneName) -> String {
    if zone.node.0 == 0 { zone.kind.to_string() } else { format!("node {} {}", zone.node, zone.kind) }
}

/// The rank of a sentence of an operation that took `time`.
pub(super) fn rank(kind: &Kind, part: u64, time: u64) -> Rank {
    match kind {
        Kind::Wakeup(..) => Rank::Asked,
        Kind::Unsuitable(..) | Kind::Deferred(_) | Kind::Hint(..) | Kind::HintMove(..) | Kind::Kcompactd(..) => {
            Rank::Reason
        }
        Kind::Collapse(..) => Rank::Outcome,
        _ if part > 0 && part.saturating_mul(2) >= time => Rank::Most,
        _ if part > 0 && part.saturating_mul(20) >= time => Rank::LargePart(part),
        // Passes of kswapd have no time of their own: they are what it does all the time.
        Kind::KswapdPass(..) => Rank::LargePart(0),
        _ => Rank::Part(part),
    }
}

pub(super) fn answer(kswapd: Kswapd) -> &'static str {
    match kswapd {
        Kswapd::Woken => "is woken",
        Kswapd::Awake => "is awake already",
        Kswapd::Hopeless => "sleeps on: it has failed too often",
        Kswapd::Content => "sleeps on: its own test finds room",
    }
}

/// The result of a run, as `mm_compaction_end` names it.
pub(super) fn result_name(result: Compaction) -> &'static str {
    match result {
        Compaction::Skipped => "skipped",
        Compaction::Complete => "complete: the scanners met",
        Compaction::PartialSkipped => "partial: the scanners met",
        Compaction::Contended => "contended",
        Compaction::Success => "success",
        Compaction::Deferred => "deferred",
    }
}

fn device_name(device: Device) -> &'static str {
    match device {
        Device::Swap => "swap",
        Device::Disk => "disk",
    }
}

fn hinted_name(hinted: HintVerdict) -> &'static str {
    match hinted {
        HintVerdict::IsLocal => "stays, as the CPU is there",
        HintVerdict::Policy => "stays, by its memory policy",
        HintVerdict::LastElsewhere => "stays, as the fault before was not from here",
        HintVerdict::Group => "stays, as its NUMA group uses that node enough",
        HintVerdict::FalselyShared => "is split, as tasks use parts of it",
        HintVerdict::Moves => "is to move",
    }
}

fn settled_name(settled: Settled) -> &'static str {
    match settled {
        Settled::Moved => "done",
        Settled::Unfit => "refused: it is shared, dirty, or a part",
        Settled::RateLimit => "refused: the node's limit on moves is reached",
        Settled::NoRoom => "refused: no room above the High mark, or it is off its list",
        Settled::NoFrame => "failed: no free frame there",
        Settled::Busy => "failed: it is locked or referenced",
        Settled::Changed => "in vain: its entry has changed",
        Settled::IsThere => "needless: it is there",
    }
}

fn collapsed_name(result: Collapsed) -> &'static str {
    match result {
        Collapsed::Succeeded => "succeeds",
        Collapsed::Abandoned => "is abandoned: the range has changed, or a page is in use",
        Collapsed::NoMemory => "fails: there is no huge page",
    }
}

/// The reason for which a task is held back, with its numbers.
fn throttle_words(by: Throttle, has: &str, limit: &str) -> String {
    match by {
        Throttle::Isolated => format!("{has} pages are isolated, of at most {limit}"),
        Throttle::Writeback => format!("{has} of {limit} pages were met again on their way to the disk"),
        Throttle::Congested => format!("{has} writes are under way, and the disk is congested from {limit} on"),
        Throttle::NoProgress => format!("a round at priority 1 reclaims {has} of {limit} pages"),
        Throttle::Reserves => format!("{has} free pages are left for reclaim, of at least {limit}"),
        Throttle::Retry => format!("reclaim comes to nothing, try {has} of {limit}"),
        Throttle::Oom => "the OOM killer is at work".to_owned(),
        Throttle::Stall => "the request would fragment memory, and kswapd comes first".to_owned(),
        Throttle::Dirty => format!("{has} pages of files are dirty, of at most {limit}"),
    }
}

/// ` at distance 21`, if the nodes differ.
fn far(distance: u32) -> String {
    if distance > 10 { format!(" at distance {distance}") } else { String::new() }
}

/// The sentence of a kind.
pub(super) fn in_words(kind: &Kind, sum: &Sum) -> String {
    let times = if sum.facts == 1 { String::new() } else { format!(" {} times", count(sum.facts)) };
    let [first, second, third, fourth] = sum.numbers.map(count);
    let time = span(sum.time);
    match kind {
        Kind::Wakeup(node, answer) => format!("kswapd{node} is asked{times} for room, and {answer}{}", sum.note),
        Kind::Unsuitable(zone, "success") => {
            format!("compaction of {} not needed{times}: there is a block", name(*zone))
        }
        Kind::Unsuitable(zone, _) => {
            format!("compaction of {} skipped{times}: {first} free pages are no room for it", name(*zone))
        }
        Kind::Deferred(zone) => format!("compaction of {} deferred{times} {}", name(*zone), sum.note),
        Kind::Run(zone, sync, result) => {
            let mode = if *sync { "sync" } else { "async" };
            let failed = if sum.numbers[3] == 0 { String::new() } else { format!(", {fourth} failed") };
            format!(
                "{mode} compaction of {}{times}, {time}: scans {first} pages and {second} for free ones, moves \
                 {third}{failed}; {result}",
                name(*zone)
            )
        }
        Kind::Reclaim => {
            format!("direct reclaim{times}, {time}: scans {first} pages, reclaims {second}")
        }
        Kind::Spin(lock) => format!("spins{times}, {time}, for the {lock}; the last holder is {}", sum.note),
        Kind::Wait(cause, behind) => {
            let behind = behind.as_ref().map(|other| format!(", behind {other}")).unwrap_or_default();
            let what = match cause.as_str() {
                "run queue" => "for a CPU".to_owned(),
                "throttle" => "throttled".to_owned(),
                other => format!("for the {other}"),
            };
            format!("waits{times}, {time}, {what}{behind}")
        }
        more => in_more_words(more, sum, &times),
    }
}

/// The sentence of a kind of work, or of a wait with a reason.
fn in_more_words(kind: &Kind, sum: &Sum, times: &str) -> String {
    let [first, second, third, fourth] = sum.numbers.map(count);
    let time = span(sum.time);
    match kind {
        Kind::Sent(device, true) => format!("sends {first} pages to the {}, {time}", device_name(*device)),
        Kind::Sent(device, false) => format!("asks the {} for {first} pages, {time}", device_name(*device)),
        Kind::DeviceWait(device, request) => {
            let device = device_name(*device);
            let what = match request {
                Some((true, None)) => format!("its own write to the {device}"),
                Some((false, None)) => format!("its own read from the {device}"),
                Some((true, Some(by))) => format!("a write to the {device} by {by}"),
                Some((false, Some(by))) => format!("a read from the {device} by {by}"),
                None => format!("the {device}, or for memory"),
            };
            format!(
                "waits{times}, {time}, for {what}; ahead of it {first} pages to read and {second} to write{}",
                sum.note
            )
        }
        Kind::Throttled(by) => format!("held back{times}, {time}: {}", throttle_words(*by, &first, &second)),
        Kind::Shootdown(cause, within) => {
            let whole = if sum.numbers[1] == 0 { "all of their TLBs".to_owned() } else { format!("{second} pages") };
            let cause = if cause == "ipi" { String::new() } else { format!(", charged to {cause}") };
            format!(
                "interrupts other CPUs {first} times, {time}{within}, to flush {whole}; at most {third} at a time{cause}"
            )
        }
        Kind::Interrupted => {
            let pages = if sum.numbers[1] > 0 { format!("{second} pages") } else { String::new() };
            let whole = match (sum.numbers[2], sum.numbers[1]) {
                (0, _) => "",
                (_, 0) => "the whole TLB",
                _ => ", and the whole TLB",
            };
            format!("is interrupted {first} times, {time}, to flush {pages}{whole}")
        }
        Kind::Cleared(node, here, distance) => {
            format!("clears {first} pages of node {node} from node {here}{}, {time}", far(*distance))
        }
        Kind::Copied(from, to, distance) if from == to => {
            format!("copies {first} pages within node {from}, {time}")
        }
        Kind::Copied(from, to, distance) => {
            format!("copies {first} pages from node {from} to node {to}{}, {time}", far(*distance))
        }
        Kind::MemoryBusy(node) => {
            format!("waits{times}, {time}, for the bandwidth of node {node}, over {first} pages")
        }
        Kind::Hint(node, here, hinted) => {
            format!("hinting fault{times} from node {here} on a page of node {node}: it {}", hinted_name(*hinted))
        }
        Kind::HintMove(to, settled) => format!("move{times} to node {to} {}", settled_name(*settled)),
        Kind::Collapse(node, result) => {
            format!("collapse{times} to a huge page of node {node} {}", collapsed_name(*result))
        }
        Kind::KswapdPass(node, zone) => {
            let place = zone.map_or_else(String::new, |zone| format!(", {zone}"));
            format!(
                "passes{times} over node {node}{place} for order {fourth}, at last at priority {third}: scans {first} pages, \
                 reclaims {second}"
            )
        }
        Kind::Kcompactd(node, Some(order)) => {
            format!("is woken{times} to make blocks of order {} on node {node}", order.0)
        }
        Kind::Kcompactd(node, None) => format!("lowers the fragmentation score of node {node}"),
        _ => unreachable!("the caller has taken all others"),
    }
}
