//! External fragmentation events: how often the page allocator took pages from pageblocks of another mobility, as the trace
//! event `mm_page_alloc_extfrag` reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use units::{ExtfragClass, ExtfragCounts, ExtfragKind, Mobility, Order};

/// The external fragmentation events of one run by kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extfrag {
    /// Order of a pageblock. Taking a smaller block leaves pages of two mobilities in one pageblock.
    pub pageblock_order: Order,
    /// Events that were lost because the kernel's trace buffer was full.
    #[serde(default, skip_serializing_if = "is_none_lost")]
    pub lost: u64,
    /// Events of the whole run that came, from the start of the workload to its end, including preparations; in the order of
    /// their fields.
    pub events: Vec<ExtfragEvents>,
    /// Events in the window in which counters are measured, in the same order.
    #[serde(default)]
    pub window: Vec<WindowEvents>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none_lost(lost: &u64) -> bool {
    *lost == 0
}

/// The events of one kind. In JSON it is an array: alloc type, fallback type, alloc order, fallback order, fragmenting, change
/// of ownership, number of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub struct ExtfragEvents {
    /// The kind.
    pub kind: ExtfragKind,
    /// Was less than a pageblock taken?
    pub fragmenting: bool,
    /// Number of events.
    pub count: u64,
}

/// The events of one class. In JSON it is an array: alloc type, fallback type, fragmenting, change of ownership, number of
/// events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WindowFields", into = "WindowFields")]
pub struct WindowEvents {
    /// The class.
    pub class: ExtfragClass,
    /// Number of events.
    pub count: u64,
}

/// The fields of [`ExtfragEvents`] in the order of its JSON array.
type Fields = (Mobility, Mobility, Order, Order, bool, bool, u64);
/// The fields of [`WindowEvents`] in the order of its JSON array.
type WindowFields = (Mobility, Mobility, bool, bool, u64);

impl From<Fields> for ExtfragEvents {
    fn from(fields: Fields) -> Self {
        let (alloc_type, fallback_type, alloc_order, fallback_order, fragmenting, change_ownership, count) = fields;
        let kind = ExtfragKind { alloc_type, fallback_type, alloc_order, fallback_order, change_ownership };
        Self { kind, fragmenting, count }
    }
}

impl From<ExtfragEvents> for Fields {
    fn from(events: ExtfragEvents) -> Self {
        let ExtfragEvents { kind, fragmenting, count } = events;
        let ExtfragKind { alloc_type, fallback_type, alloc_order, fallback_order, change_ownership } = kind;
        (alloc_type, fallback_type, alloc_order, fallback_order, fragmenting, change_ownership, count)
    }
}

impl From<WindowFields> for WindowEvents {
    fn from((alloc_type, fallback_type, fragmenting, change_ownership, count): WindowFields) -> Self {
        Self { class: ExtfragClass { alloc_type, fallback_type, fragmenting, change_ownership }, count }
    }
}

impl From<WindowEvents> for WindowFields {
    fn from(WindowEvents { class, count }: WindowEvents) -> Self {
        let ExtfragClass { alloc_type, fallback_type, fragmenting, change_ownership } = class;
        (alloc_type, fallback_type, fragmenting, change_ownership, count)
    }
}

impl Extfrag {
    /// Builds the events of a run from its counts, and from the counters of classes, which moved in the window.
    pub fn new(pageblock_order: Order, run: &ExtfragCounts, moved: &BTreeMap<String, i64>, lost: u64) -> Self {
        let events = run.iter().filter(|(_, count)| *count > 0).map(|(kind, count)| {
            let fragmenting = kind.is_fragmenting(pageblock_order);
            ExtfragEvents { kind, fragmenting, count }
        });
        let window = ExtfragClass::all().filter_map(|class| {
            let count = u64::try_from(*moved.get(&class.name())?).ok().filter(|count| *count > 0)?;
            Some(WindowEvents { class, count })
        });
        Self { pageblock_order, lost, events: events.collect(), window: window.collect() }
    }

    /// Number of fragmenting events in the measured window.
    pub fn fragmenting_in_window(&self) -> u64 {
        self.window.iter().filter(|of| of.class.fragmenting).map(|of| of.count).sum()
    }
}
