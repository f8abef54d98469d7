//! External fragmentation: how often the page allocator took from pageblocks of another mobility, as the trace event
//! `mm_page_alloc_extfrag` has it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use units::{ExtfragClass, ExtfragCounts, ExtfragKind, Mobility, Order};

/// The events of one run by kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extfrag {
    /// log2 of the frames in a pageblock: a smaller block that is taken leaves two types in one pageblock.
    pub pageblock_order: Order,
    /// Events that were not counted, as the kernel's buffer was full.
    #[serde(default, skip_serializing_if = "is_none_lost")]
    pub lost: u64,
    /// Those of the whole run that came, from the start of the workload to its end, preparations included; in the order of their
    /// fields.
    pub events: Vec<ExtfragEvents>,
    /// Those of them that came in the window that counters are of, likewise.
    #[serde(default)]
    pub window: Vec<WindowEvents>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none_lost(lost: &u64) -> bool {
    *lost == 0
}

/// Events of one kind. As JSON an array: alloc type, fallback type, alloc order, fallback order, fragmenting, change of
/// ownership, how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub struct ExtfragEvents {
    /// The kind.
    pub kind: ExtfragKind,
    /// Less than a pageblock was taken.
    pub fragmenting: bool,
    /// How many there were.
    pub count: u64,
}

/// Events of one class. As JSON an array: alloc type, fallback type, fragmenting, change of ownership, how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WindowFields", into = "WindowFields")]
pub struct WindowEvents {
    /// The class.
    pub class: ExtfragClass,
    /// How many there were.
    pub count: u64,
}

/// In the order of the documentation of [`ExtfragEvents`].
type Fields = (Mobility, Mobility, Order, Order, bool, bool, u64);
/// In that of [`WindowEvents`].
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
    /// Counts of a run, and how far its counters moved in its window: those with names of classes.
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

    /// How many fragmenting events came in the measured window.
    pub fn fragmenting_in_window(&self) -> u64 {
        self.window.iter().filter(|of| of.class.fragmenting).map(|of| of.count).sum()
    }
}
