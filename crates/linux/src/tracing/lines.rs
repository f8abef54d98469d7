//! Lines of `trace_pipe`, read by the names of their fields: which there are changed little since 3.10, how numbers are printed
//! did (include/trace/events/kmem.h).

use units::{ExtfragCounts, ExtfragKind, Order};

use super::Numbers;

/// Adds every event that the text has.
pub(super) fn count(text: &str, numbers: &Numbers, counts: &mut ExtfragCounts) {
    for kind in text.lines().filter_map(|line| kind(line, numbers)) {
        counts.count(kind, 1);
    }
}

/// Of a line of another event, or of lost ones, nothing.
fn kind(line: &str, numbers: &Numbers) -> Option<ExtfragKind> {
    let (_, fields) = line.split_once(" mm_page_alloc_extfrag: ")?;
    let field = |name: &str| -> Option<u64> {
        let value = fields.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
        value.parse().ok()
    };
    let order = |name: &str| Some(Order(u8::try_from(field(name)?).ok()?));
    Some(ExtfragKind {
        alloc_type: numbers.mobility(field("alloc_migratetype")?)?,
        fallback_type: numbers.mobility(field("fallback_migratetype")?)?,
        alloc_order: order("alloc_order")?,
        fallback_order: order("fallback_order")?,
        change_ownership: field("change_ownership")? != 0,
    })
}

/// From the `stats` of a CPU's buffer: events that were written over before anybody read them, and that were not written
/// (Documentation/trace/ftrace.rst, v6.1).
pub(super) fn lost(stats: &str) -> u64 {
    let of = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim().parse::<u64>().ok()?;
        matches!(name.trim(), "overrun" | "commit overrun" | "dropped events").then_some(value)
    };
    stats.lines().filter_map(of).fold(0, u64::saturating_add)
}
