//! From cells to a report: calls the makers of all tables, and judges what has changed.

use crate::checks::checks;
use crate::classic;
use crate::compare::{Comparison, Gates};
use crate::counters;
use crate::duration;
use crate::extfrag;
use crate::group::{Group, groups, groups_against};
use crate::memory;
use crate::metrics;
use crate::record::Cell;
use crate::table::{Baseline, Layout, Report};
use crate::will_it_scale;

impl Report {
    /// Makes all tables, in the order in which the cells first mention what is in them: cells that
    /// were run in parallel must be brought into the experiment's order first.
    pub fn new(cells: &[Cell], counter_threshold: u64) -> Self {
        Self::of_layout(Layout::Head, cells, counter_threshold)
    }

    /// The tables that a layout has, each column compared with the first of its result, target and machine.
    pub fn of_layout(layout: Layout, cells: &[Cell], counter_threshold: u64) -> Self {
        Self::against(&Baseline::OfTarget, layout, cells, counter_threshold)
    }

    /// The tables that a layout has, of cells that may be of several results, compared with a column.
    pub fn against(baseline: &Baseline, layout: Layout, cells: &[Cell], counter_threshold: u64) -> Self {
        let groups = groups_against(cells, baseline);
        let mut report = Self::whole(layout, cells, &groups).judged();
        if layout != Layout::Classic {
            counters::hide(&mut report.tables, &groups, counter_threshold);
        }
        report
    }

    /// The tables of a layout with every counter that a target has, as comparisons judge them; not judged yet.
    pub fn with_all_counters(layout: Layout, cells: &[Cell]) -> Self {
        Self::whole(layout, cells, &groups(cells))
    }

    /// Adds rows of some counters by their names, if the layout's own rows of counters differ: in 2015 they have titles.
    pub fn add_counters(&mut self, cells: &[Cell], is_wanted: impl Fn(&str) -> bool) {
        if self.layout != Layout::Classic {
            return;
        }
        let mut tables = counters::of_groups(&groups(cells), 0);
        for table in &mut tables {
            table.rows.retain(|row| is_wanted(&row.metric));
        }
        self.tables.extend(tables.into_iter().filter(|table| !table.rows.is_empty()));
    }

    fn whole(layout: Layout, cells: &[Cell], groups: &[Group<'_>]) -> Self {
        match layout {
            Layout::Head => Self::head(groups, cells),
            Layout::Classic => classic::report(groups),
            Layout::WillItScale | Layout::Cases => will_it_scale::report(groups, layout, Self::head(groups, cells)),
        }
    }

    /// With the verdict on each change: those that `compare` has of the same columns, all rows taken together.
    #[must_use]
    pub fn judged(mut self) -> Self {
        let (comparison, places) = Comparison::with_places(&self, Gates::default());
        for (row, at) in comparison.rows.iter().zip(places) {
            let value = self.tables[at.table].rows[at.row].cells[at.column].as_mut();
            value.expect("a value was compared").verdict = Some(row.verdict);
        }
        self
    }

    fn head(groups: &[Group<'_>], cells: &[Cell]) -> Self {
        let mut all = metrics::of_groups(groups);
        all.extend(duration::of_groups(groups));
        all.extend(extfrag::of_groups(groups));
        all.extend(counters::of_groups(groups, 0));
        all.extend(memory::of_groups(groups));
        Self { layout: Layout::Head, tables: all, checks: checks(cells) }
    }

    /// The tables of mmtests in 2015, of cells each of which is a whole run of it.
    pub fn classic(cells: &[Cell]) -> Self {
        Self::of_layout(Layout::Classic, cells, 0)
    }
}
