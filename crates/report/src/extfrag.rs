//! Tables of external fragmentation events, in the rows of mmtests.

use std::collections::BTreeSet;

use units::{ExtfragClass, Mobility, Order};

use crate::better::Better;
use crate::group::{Group, Runs, groups, row_of, thing_and_operation};
use crate::record::{Cell, Extfrag, ExtfragEvents};
use crate::table::{Form, Kind, Row, Table};

/// The metric name of the rows in output for programs: events of whole runs, and of the measured window.
const METRIC: &str = "extfrag_events";
const WINDOW: &str = "extfrag_events_in_window";
/// The unit of all rows.
const UNIT: &str = "events per run";

/// One table per experiment and workload in which a run recorded external fragmentation events. A value is the mean over the
/// runs of an operation (its seeds). A run that recorded none of these events adds nothing to the mean.
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
    // With a single operation, rows do not name the operation, as published tables do not.
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

/// One row: its names, and which events it counts.
struct Line {
    metric: &'static str,
    case: String,
    name: String,
    better: Better,
    counts: Counts,
}

/// Which external fragmentation events a row counts.
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

    /// A row of events of whole runs that mmtests does not have.
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

/// The pairs of an allocation's mobility and, if given, the one other mobility that it took a pageblock from; `None` is every
/// mobility. In mmtests' order.
fn fragmenting() -> Vec<(Option<Mobility>, Option<Mobility>)> {
    let mut all = vec![(None, None)];
    for asked in [Mobility::Unmovable, Mobility::Reclaimable, Mobility::Movable] {
        all.push((Some(asked), None));
        let others = [Mobility::Movable, Mobility::Unmovable, Mobility::Reclaimable].into_iter();
        all.extend(others.filter(|with| *with != asked).map(|with| (Some(asked), Some(with))));
    }
    all
}

/// The names of a fragmenting row for programs and for people.
fn names(below: &str, of: (Option<Mobility>, Option<Mobility>)) -> (String, String) {
    match of {
        (Some(asked), Some(with)) => (format!("{asked}/{with},{below}"), format!("{asked} placed with {with}")),
        (Some(asked), None) => (format!("{asked},{below}"), format!("fragmenting for {asked}")),
        (None, _) => (below.to_owned(), "fragmenting".to_owned()),
    }
}

/// Rows of mmtests' report (`--print-monitor ftraceextfrag`), then rows that mmtests has not: by ownership change, by order,
/// and of the measured window.
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

/// Does the row fit on a screen's short table? Fragmenting events of whole runs, by mobility.
pub(crate) fn is_short(row: &Row) -> bool {
    let (what, _) = thing_and_operation(row);
    row.metric == METRIC && what.contains("order<") && !what.starts_with("pageblock")
}
