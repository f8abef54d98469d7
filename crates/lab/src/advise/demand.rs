//! Demand for memory that counters of /proc/vmstat tell: how much is in use, and how much is taken each second.

use std::collections::BTreeMap;

use serde::Serialize;
use units::Bytes;

use super::files::Observed;

/// Less than this each second is no demand worth a process of its own.
const LEAST: u64 = 256 << 10;
/// Above this part of pages that go to swap and come back, the part of memory that is used changes all the time.
const RETURNS: f64 = 0.3;
/// Seconds for which a profile is watched, at least and at most.
const WINDOW_LEAST: u64 = 10;
const WINDOW_MOST: u64 = 60;
/// Where memory was free, this share of what may be in huge pages is.
const HUGE_WHERE_FREE: f64 = 0.8;
/// A share of huge pages below which memory is taken in pieces in which no huge page fits, or by who asks for none.
const SMALL_BELOW: f64 = 0.1;

/// Demand, in bytes and in bytes a second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Demand {
    /// Seconds for which a profile is watched.
    pub(super) window: u64,
    /// Managed memory.
    pub(super) memory: u64,
    /// Anonymous memory at the end.
    pub(super) anonymous: u64,
    /// As much of that came between the captures.
    pub(super) grown: u64,
    /// Anonymous memory came when free memory was short: less of it than there could be is in huge pages.
    pub(super) came_late: bool,
    /// Anonymous memory that is in swap, on top.
    pub(super) swapped: u64,
    /// Pages come back from swap nearly as often as they go there.
    pub(super) returns: bool,
    /// Page cache at the start and at the end.
    pub(super) caches: [u64; 2],
    /// Anonymous memory that is taken each second.
    pub(super) taken: u64,
    /// Part of that which faults took as huge pages, or would have taken.
    pub(super) huge: f64,
    /// Advice by madvise(2) that processes give, where huge pages or their absence cannot be explained without it.
    pub(super) advice: Option<&'static str>,
    /// Files read into the page cache each second.
    pub(super) reads: u64,
    /// Files written each second.
    pub(super) writes: u64,
    /// Part of the pages read that had been in the page cache not long ago.
    pub(super) refaults: f64,
}

impl Demand {
    /// The demand of a machine at work.
    pub(super) fn of(observed: &Observed) -> Self {
        let rate = |name: &str| sum(&observed.moved, name) / observed.seconds;
        let of = |at: usize, name: &str| observed.levels[at].get(name).copied().unwrap_or(0).max(0).cast_unsigned();
        let level = |name: &str| of(1, name);
        let page = Bytes::PAGE.0 as f64;
        let memory = observed.machine.memory().0;
        let huge = 512.0 * rate("thp_fault_alloc");
        let wanted = huge + 512.0 * rate("thp_fault_fallback");
        // A fault of a file's page allocates none where the page cache has it: there, faults say too much.
        let base = (rate("pgfault") - rate("thp_fault_alloc") - rate("pgmajfault")).max(0.0);
        let allocated = rate("pgalloc_");
        let swapped_in = rate("pswpin");
        let read = (rate("pgpgin") / 4.0 - swapped_in).max(0.0);
        let written = (rate("pgpgout") / 4.0 - rate("pswpout")).max(0.0);
        let taken = (base + huge).min((allocated - read).max(0.0));
        // Pages that no fault took are of the page cache: of files on disk, of sparse ones, of tmpfs.
        let cached = (allocated - taken - swapped_in).max(read);
        let reads = (cached - written).max(read);
        let share = if base + huge > 0.0 { (wanted / (base + huge)).min(1.0) } else { 0.0 };
        let refaults = rate("workingset_refault_file") + rate("workingset_refault ");
        let anonymous_at =
            |at: usize| of(at, "nr_anon_pages").max(of(at, "nr_inactive_anon") + of(at, "nr_active_anon"));
        let grown = anonymous_at(1).saturating_sub(anonymous_at(0)) * Bytes::PAGE.0;
        let grown = if grown > memory / 20 { grown } else { 0 };
        // A burst may be in one of two captures.
        let anonymous = if grown > 0 { anonymous_at(1) } else { anonymous_at(0).min(anonymous_at(1)) };
        let huge_now = 512.0 * level("nr_anon_transparent_hugepages") as f64 / anonymous.max(1) as f64;
        let bytes = |pages: f64| {
            let bytes = bytes_of(pages * page);
            if bytes < LEAST { 0 } else { bytes }
        };
        Self {
            window: window(observed.seconds),
            memory,
            anonymous: (anonymous * Bytes::PAGE.0).clamp(64 << 20, memory * 19 / 20),
            grown,
            came_late: wants_huge(observed, share) && huge_now < HUGE_WHERE_FREE,
            swapped: in_swap(observed).min(memory),
            returns: swapped_in > rate("pswpout") * RETURNS,
            caches: [0, 1].map(|at| (of(at, "nr_file_pages") * Bytes::PAGE.0).min(memory * 19 / 20)),
            taken: bytes(taken),
            huge: share,
            advice: advice(observed, share),
            reads: bytes(reads),
            writes: bytes(written),
            refaults: if reads > 0.0 { (refaults / reads).min(1.0) } else { 0.0 },
        }
    }
}

/// Memory in swap, by /proc/meminfo where it is there; else what went and did not come back.
fn in_swap(observed: &Observed) -> u64 {
    observed.in_swap.unwrap_or_else(|| {
        let [out, back] = ["pswpout", "pswpin"].map(|name| observed.last.get(name).copied().unwrap_or(0));
        let pages = (out - back).max(0).cast_unsigned();
        if pages * Bytes::PAGE.0 < LEAST { 0 } else { pages * Bytes::PAGE.0 }
    })
}

/// As long as lies between the captures, where that can be simulated in a moment.
fn window(seconds: f64) -> u64 {
    (WINDOW_LEAST..WINDOW_MOST).find(|whole| *whole as f64 >= seconds).unwrap_or(WINDOW_MOST)
}

/// Under `madvise` only who asks for huge pages gets any; under `always` only who asks for none, or for little, gets none.
fn advice(observed: &Observed, share: f64) -> Option<&'static str> {
    match enabled(observed) {
        "madvise" if share >= SMALL_BELOW => Some("huge"),
        "always" if share < SMALL_BELOW => Some("base"),
        _ => None,
    }
}

/// Do faults ask for huge pages?
fn wants_huge(observed: &Observed, share: f64) -> bool {
    match enabled(observed) {
        "never" => false,
        _ => share >= SMALL_BELOW,
    }
}

fn enabled(observed: &Observed) -> &str {
    let set = observed.machine.settings.iter().find(|(name, _)| name == "transparent_hugepage/enabled");
    set.map_or("always", |(_, value)| value.as_str())
}

/// A positive number of bytes, without its fraction. Rates of a machine have far fewer bits than the mantissa.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are positive and finite")]
pub(super) fn bytes_of(size: f64) -> u64 {
    size as u64
}

/// How far all counters of a name moved; of a name that ends with `_`, those that begin with it, one for each zone.
pub(super) fn sum(moved: &BTreeMap<String, i64>, name: &str) -> f64 {
    let is_it = |counter: &&String| {
        if name.ends_with('_') { counter.starts_with(name) } else { counter.as_str() == name.trim_end() }
    };
    moved.iter().filter(|(counter, _)| is_it(counter)).map(|(_, moved)| *moved as f64).sum()
}
