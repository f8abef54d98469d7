//! External fragmentation: how often the page allocator took from pageblocks of another mobility, as the trace event
//! `mm_page_alloc_extfrag` has it, and tables of that in the rows of mmtests.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use units::{ExtfragClass, ExtfragCounts, ExtfragKind, Mobility, Order};

use crate::group::{Group, Runs, groups, row_of, thing_and_operation};
use crate::record::{Better, Cell};
use crate::table::{Form, Kind, Row, Table};

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

// ---- Tables

/// The metric under which programs find the rows: of whole runs, and of the measured window.
const METRIC: &str = "extfrag_events";
const WINDOW: &str = "extfrag_events_in_window";
/// The unit of all rows.
const UNIT: &str = "events per run";

/// One table per experiment and workload in which somebody counted an event. A value is the mean over the runs of an operation
/// (its seeds). A run in which nobody counted says nothing.
pub fn extfrag(records: &[Cell]) -> Vec<Table> {
    of_groups(&groups(records))
}

pub(crate) fn of_groups(groups: &[Group<'_>]) -> Vec<Table> {
    groups.iter().filter_map(table).collect()
}

pub(crate) fn table(group: &Group<'_>) -> Option<Table> {
    let all = || group.cells.iter().filter_map(|placed| placed.cell.measured.extfrag.as_ref());
    if all().all(|extfrag| extfrag.events.is_empty() && extfrag.lost == 0) {
        return None;
    }
    let pageblock = all().map(|extfrag| extfrag.pageblock_order).max()?;
    let operations = group.operations();
    let lines = lines(pageblock, &all().flat_map(|extfrag| &extfrag.events), all().any(|extfrag| extfrag.lost > 0));
    // Where there is one operation, rows do not name it: published tables do not.
    let named = |row, operation| if operations.len() == 1 { row } else { row_of(row, operation) };
    let of_line = |line| operations.iter().map(move |operation| (row(group, line, operation), *operation));
    let rows = lines.iter().flat_map(of_line).map(|(row, operation)| named(row, operation));
    Some(Table {
        experiment: group.experiment.clone(),
        title: format!("{} External Fragmentation Events", group.title),
        kind: Kind::Extfrag,
        unit: UNIT.to_owned(),
        better: Better::Lower,
        columns: group.columns.clone(),
        rows: rows.collect(),
    })
}

/// One kind of row.
struct Line {
    metric: &'static str,
    case: String,
    name: String,
    better: Better,
    counts: Counts,
}

/// The events that a row counts.
enum Counts {
    Lost,
    Run(Box<dyn Fn(&ExtfragEvents) -> bool>),
    Window(Box<dyn Fn(&ExtfragClass) -> bool>),
}

impl Line {
    fn new(case: &str, name: &str, better: Better, counts: Counts) -> Self {
        let metric = if let Counts::Window(_) = counts { WINDOW } else { METRIC };
        Self { metric, case: case.to_owned(), name: name.to_owned(), better, counts }
    }

    /// Of the events of whole runs, with a name of our own.
    fn run(case: &str, name: &str, counts: impl Fn(&ExtfragEvents) -> bool + 'static) -> Self {
        Self::new(case, name, Better::None, Counts::Run(Box::new(counts)))
    }

    fn value(&self, extfrag: &Extfrag) -> u64 {
        match &self.counts {
            Counts::Lost => extfrag.lost,
            Counts::Run(counts) => extfrag.events.iter().filter(|of| counts(of)).map(|of| of.count).sum(),
            Counts::Window(counts) => extfrag.window.iter().filter(|of| counts(&of.class)).map(|of| of.count).sum(),
        }
    }
}

/// Fragmenting events for a mobility, or for all of them; of them those that took from one other. In the order of mmtests.
fn fragmenting() -> Vec<(Option<Mobility>, Option<Mobility>)> {
    let mut all = vec![(None, None)];
    for asked in [Mobility::Unmovable, Mobility::Reclaimable, Mobility::Movable] {
        all.push((Some(asked), None));
        let others = [Mobility::Movable, Mobility::Unmovable, Mobility::Reclaimable].into_iter();
        all.extend(others.filter(|with| *with != asked).map(|with| (Some(asked), Some(with))));
    }
    all
}

/// The names of such a row for programs and for people.
fn names(below: &str, of: (Option<Mobility>, Option<Mobility>)) -> (String, String) {
    match of {
        (Some(asked), Some(with)) => (format!("{asked}/{with},{below}"), format!("{asked} placed with {with}")),
        (Some(asked), None) => (format!("{asked},{below}"), format!("fragmenting for {asked}")),
        (None, _) => (below.to_owned(), "fragmenting".to_owned()),
    }
}

/// Rows of mmtests' report (`--print-monitor ftraceextfrag`), then what it does not have: by ownership, by order, and the
/// measured window.
fn lines<'a>(pageblock: Order, found: &(impl Iterator<Item = &'a ExtfragEvents> + Clone), lost: bool) -> Vec<Line> {
    let below = format!("order<{}", pageblock.0);
    let is_of = |(asked, with): (Option<Mobility>, Option<Mobility>), class: &ExtfragClass| {
        class.fragmenting
            && asked.is_none_or(|asked| class.alloc_type == asked)
            && with.is_none_or(|with| class.fallback_type == with)
    };
    let mut lines = vec![Line::run("all", "event", |_| true)];
    for of in fragmenting() {
        let (case, name) = names(&below, of);
        let counts = move |events: &ExtfragEvents| is_of(of, &events.kind.class(pageblock));
        lines.push(Line::new(&case, &name, Better::Lower, Counts::Run(Box::new(counts))));
    }
    for (ends, owned) in [("pageblock taken over", true), ("pageblock shared", false)] {
        let (case, name) = (format!("{ends},{below}"), format!("fragmenting, {ends}"));
        lines.push(Line::run(&case, &name, move |of| of.fragmenting && of.kind.change_ownership == owned));
    }
    lines.push(Line::run(&format!("order>={}", pageblock.0), "whole pageblocks", |of| !of.fragmenting));
    for (what, order) in [("asked", alloc_order as fn(&ExtfragEvents) -> Order), ("found", fallback_order)] {
        let orders: BTreeSet<Order> = found.clone().map(order).collect();
        lines.extend(orders.into_iter().map(|this| {
            let case = format!("{what} order {}", this.0);
            Line::run(&case, &case, move |of| order(of) == this)
        }));
    }
    for of in fragmenting().into_iter().filter(|(_, with)| with.is_none()) {
        let (case, name) = names(&below, of);
        let counts = Counts::Window(Box::new(move |class| is_of(of, class)));
        lines.push(Line::new(&case, &format!("{name}, in window"), Better::Lower, counts));
    }
    if lost {
        lines.push(Line::new("lost", "lost, not counted", Better::None, Counts::Lost));
    }
    lines
}

fn alloc_order(events: &ExtfragEvents) -> Order {
    events.kind.alloc_order
}

fn fallback_order(events: &ExtfragEvents) -> Order {
    events.kind.fallback_order
}

fn row(group: &Group<'_>, line: &Line, operation: &str) -> Row {
    let value = |column: usize| {
        let mut runs = Runs::default();
        for placed in group.cells.iter().filter(|of| (of.column, of.operation.as_str()) == (column, operation)) {
            if let Some(extfrag) = &placed.cell.measured.extfrag {
                runs.add(placed, [line.value(extfrag) as f64]);
            }
        }
        runs.mean()
    };
    Row {
        metric: line.metric.to_owned(),
        case: line.case.clone(),
        stat: "Extfrag".to_owned(),
        operation: line.name.clone(),
        better: line.better,
        unit: UNIT.to_owned(),
        form: Form::Whole,
        cells: (0..group.columns.len()).map(value).collect(),
    }
}

/// Of all rows those that a screen has room for: fragmenting events of whole runs, by type.
pub(crate) fn is_short(row: &Row) -> bool {
    let (what, _) = thing_and_operation(row);
    row.metric == METRIC && what.contains("order<") && !what.starts_with("pageblock")
}
