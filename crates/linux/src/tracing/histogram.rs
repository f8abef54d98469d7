//! Histograms of the kernel: one for each pair of types, as a histogram has three keys at most
//! (`TRACING_MAP_KEYS_MAX`, kernel/trace/tracing_map.h, v4.20 and v6.1).

use units::{ExtfragKind, Mobility, Order};

use super::{Fallbacks, Numbers};

/// Fields of the event that are keys, and those that filters pick pairs by.
const ALLOC_ORDER: &str = "alloc_order";
const FALLBACK_ORDER: &str = "fallback_order";
const OWNERSHIP: &str = "change_ownership";
const ALLOC_TYPE: &str = "alloc_migratetype";
const FALLBACK_TYPE: &str = "fallback_migratetype";

pub(super) fn triggers(numbers: &Numbers) -> Vec<String> {
    let number = |mobility: &Mobility| numbers.number(*mobility);
    let pairs = Mobility::ALL.iter().filter_map(number).flat_map(|asked| {
        let others = Mobility::ALL.iter().filter_map(number).filter(move |found| *found != asked);
        others.map(move |found| (asked, found))
    });
    // 66 pairs of orders, each with and without a change of ownership: 132 entries.
    let trigger = |(asked, found): (usize, usize)| {
        format!(
            "hist:keys={ALLOC_ORDER},{FALLBACK_ORDER},{OWNERSHIP}:size=256 if {ALLOC_TYPE}=={asked} && {FALLBACK_TYPE}=={found}"
        )
    };
    pairs.map(trigger).collect()
}

/// Whether the file has a histogram of ours.
pub(super) fn is_any(text: &str) -> bool {
    text.lines().any(|line| line.starts_with(HEAD) && line.contains(FALLBACK_TYPE))
}

/// The beginning of a histogram's line about itself.
const HEAD: &str = "# trigger info:";

/// Adds up all histograms of the file.
pub(super) fn parse(text: &str, numbers: &Numbers) -> Fallbacks {
    let mut all = Fallbacks::default();
    // The types of the histogram that a line is in, where they are types of ours.
    let mut types = None;
    for line in text.lines() {
        if line.starts_with(HEAD) {
            let of = |name: &str| numbers.mobility(value(line, &format!("{name}=="))?);
            types = of(ALLOC_TYPE).zip(of(FALLBACK_TYPE));
        } else if let Some((kind, hits)) = types.and_then(|types| entry(line, types)) {
            all.counts.count(kind, hits);
        } else if let Some(dropped) = line.trim().strip_prefix("Dropped:") {
            all.lost = all.lost.saturating_add(dropped.trim().parse().unwrap_or(0));
        }
    }
    all
}

/// `{ alloc_order:          0, fallback_order:          3, change_ownership:          1 } hitcount:         17`.
fn entry(line: &str, (alloc_type, fallback_type): (Mobility, Mobility)) -> Option<(ExtfragKind, u64)> {
    let (keys, hits) = line.trim().strip_prefix('{')?.split_once('}')?;
    let key = |name: &str| value(keys, &format!("{name}:"));
    let order = |name: &str| Some(Order(u8::try_from(key(name)?).ok()?));
    let kind = ExtfragKind {
        alloc_type,
        fallback_type,
        alloc_order: order(ALLOC_ORDER)?,
        fallback_order: order(FALLBACK_ORDER)?,
        change_ownership: key(OWNERSHIP)? != 0,
    };
    Some((kind, value(hits, "hitcount:")?))
}

/// The number after a name.
fn value(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(name)?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
