//! The block of counters below a table of mmtests: how far /proc/vmstat's counters moved over a whole run, and rows computed
//! from them. (Formulas: gormanm/mmtests, the vmstat monitor of 2015, read for behaviour.)

use std::collections::BTreeMap;

use crate::{balancing, record::Cell, table::Form};

/// The movement of each /proc/vmstat counter in one run.
pub(super) struct Run<'a> {
    counters: &'a BTreeMap<String, i64>,
    elapsed_s: f64,
}

/// One row of the block: its name, unit and formula.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) form: Form,
    pub(super) value: fn(&Run<'_>) -> f64,
}

impl<'a> Run<'a> {
    pub(super) fn of(cell: &'a Cell) -> Self {
        let elapsed_ps = cell.measured.duration.as_ref().map_or(0, |duration| duration.elapsed_ps);
        Self { counters: &cell.measured.counters, elapsed_s: elapsed_ps as f64 / 1e12 }
    }

    /// The movement of a counter. A counter that did not move is missing from the result, and reads 0.
    fn get(&self, name: &str) -> f64 {
        self.counters.get(name).map_or(0.0, |moved| *moved as f64)
    }

    /// The sum over zones of a counter that newer kernels keep by zone.
    fn by_zone(&self, name: &str) -> f64 {
        const ZONES: [&str; 5] = ["", "_dma", "_dma32", "_normal", "_movable"];
        ZONES.iter().map(|zone| self.get(&format!("{name}{zone}"))).sum()
    }

    /// Pages that reclaim scanned in one zone.
    fn scanned(&self, zone: &str) -> f64 {
        self.get(&format!("pgscan_kswapd_{zone}")) + self.get(&format!("pgscan_direct_{zone}"))
    }

    fn per_second(&self, count: f64) -> f64 {
        if self.elapsed_s > 0.0 { count / self.elapsed_s } else { 0.0 }
    }
}

/// Reclaim efficiency in per cent, pages reclaimed of pages scanned; 100 where nothing was scanned.
fn efficiency(stolen: f64, scanned: f64) -> f64 {
    if scanned > 0.0 { 100.0 * stolen / scanned } else { 100.0 }
}

/// The cost of compaction in millions of eight-byte words touched: a scanned page costs one `struct page` of 7 words, an
/// isolated page 12 more, a migrated page two copies of 512 words and their `struct page`s, a failed page two `struct page`s.
fn compaction_cost(run: &Run<'_>) -> f64 {
    let words = 7.0 * run.get("compact_migrate_scanned")
        + 19.0 * run.get("compact_isolated")
        + 1038.0 * run.get("pgmigrate_success")
        + 14.0 * run.get("pgmigrate_fail");
    words / 1e6
}

/// The cost of automatic NUMA balancing, in the same unit as `compaction_cost`.
fn numa_cost(run: &Run<'_>) -> f64 {
    balancing::cost(|name| run.get(name))
}

const fn line(name: &'static str, form: Form, value: fn(&Run<'_>) -> f64) -> Line {
    Line { name, form, value }
}

/// A row whose value is a whole number.
const fn count(name: &'static str, value: fn(&Run<'_>) -> f64) -> Line {
    line(name, Form::Whole, value)
}

/// The 2013 table's name for entries that were made to fault; the tables of 2015 have other rows instead.
const UPDATES_OF_2013: &str = "NUMA PTE updates";
const UPDATES_OF_2015: [&str; 3] = ["NUMA base PTE updates", "NUMA huge PMD updates", "NUMA page range updates"];

/// Rows that mmtests has not, shown where some run has the counters they need: how often tasks moved to other CPUs, and hint
/// faults per marked entry.
const OF_TASKS: [(&str, &str); 7] = [
    ("Task moves same core", "sim_sched_migrate_task_core"),
    ("Task moves same node", "sim_sched_migrate_task_node"),
    ("Task moves other node", "sim_sched_migrate_task_other_node"),
    ("sched_move_numa", "sim_sched_move_numa"),
    ("sched_stick_numa", "sim_sched_stick_numa"),
    ("sched_swap_numa", "sim_sched_swap_numa"),
    ("NUMA hint faults per mark", "numa_hint_faults"),
];

/// Rows whose unit does not follow from their number format: they are printed like counts or percentages but are neither.
const UNITS: [(&str, &str); 3] =
    [("Compaction cost", COST), ("AutoNUMA cost", COST), ("NUMA hint local percent", "pct")];
const COST: &str = "million words";

impl Line {
    /// The unit of the row's values.
    pub(super) fn unit(&self) -> &'static str {
        let own = UNITS.iter().find(|(name, _)| *name == self.name).map(|(_, unit)| *unit);
        own.unwrap_or(match self.form {
            Form::Percent => "pct",
            Form::Thousandths if self.name.ends_with("velocity") => "pages/s",
            Form::Hundredths => "faults per mark",
            Form::Whole | Form::Thousandths => "as counted",
        })
    }

    /// Does a run have the counters that the row is computed from? Rows of the published tables are shown in any case.
    pub(super) fn is_counted(&self, run: &Run<'_>) -> bool {
        let needs = OF_TASKS.iter().find(|(name, _)| *name == self.name);
        needs.is_none_or(|(_, counter)| run.get(counter) != 0.0)
    }

    /// Is the row in the table of 2013 (`is_2013`), or else in that of 2015?
    pub(super) fn is_of(&self, is_2013: bool) -> bool {
        if OF_TASKS.iter().any(|(name, _)| *name == self.name) {
            return is_2013;
        }
        if is_2013 { !UPDATES_OF_2015.contains(&self.name) } else { self.name != UPDATES_OF_2013 }
    }
}

/// Every row of the published tables, in their order.
pub(super) const LINES: &[Line] = &[
    count("Minor Faults", |run| run.get("pgfault") - run.get("pgmajfault")),
    count("Major Faults", |run| run.get("pgmajfault")),
    count("Swap Ins", |run| run.get("pswpin")),
    count("Swap Outs", |run| run.get("pswpout")),
    count("Allocation stalls", |run| run.by_zone("allocstall")),
    count("DMA allocs", |run| run.get("pgalloc_dma")),
    count("DMA32 allocs", |run| run.get("pgalloc_dma32")),
    count("Normal allocs", |run| run.get("pgalloc_normal")),
    count("Movable allocs", |run| run.get("pgalloc_movable")),
    count("Direct pages scanned", |run| run.get("pgscan_direct")),
    count("Kswapd pages scanned", |run| run.get("pgscan_kswapd")),
    count("Kswapd pages reclaimed", |run| run.get("pgsteal_kswapd")),
    count("Direct pages reclaimed", |run| run.get("pgsteal_direct")),
    line("Kswapd efficiency", Form::Percent, |run| efficiency(run.get("pgsteal_kswapd"), run.get("pgscan_kswapd"))),
    line("Kswapd velocity", Form::Thousandths, |run| run.per_second(run.get("pgscan_kswapd"))),
    line("Direct efficiency", Form::Percent, |run| efficiency(run.get("pgsteal_direct"), run.get("pgscan_direct"))),
    line("Direct velocity", Form::Thousandths, |run| run.per_second(run.get("pgscan_direct"))),
    line("Percentage direct scans", Form::Percent, |run| {
        let all = run.get("pgscan_direct") + run.get("pgscan_kswapd");
        if all > 0.0 { 100.0 * run.get("pgscan_direct") / all } else { 0.0 }
    }),
    line("Zone normal velocity", Form::Thousandths, |run| run.per_second(run.scanned("normal"))),
    line("Zone dma32 velocity", Form::Thousandths, |run| run.per_second(run.scanned("dma32"))),
    line("Zone dma velocity", Form::Thousandths, |run| run.per_second(run.scanned("dma"))),
    line("Page writes by reclaim", Form::Thousandths, |run| run.get("nr_vmscan_write")),
    count("Page writes file", |run| run.get("nr_vmscan_write") - run.get("pswpout")),
    count("Page writes anon", |run| run.get("pswpout")),
    count("Page reclaim immediate", |run| run.get("nr_vmscan_immediate_reclaim")),
    count("Sector Reads", |run| run.get("pgpgin")),
    count("Sector Writes", |run| run.get("pgpgout")),
    count("Page rescued immediate", |run| run.get("pgrescued")),
    count("Slabs scanned", |run| run.get("slabs_scanned")),
    count("Direct inode steals", |run| run.get("pginodesteal")),
    count("Kswapd inode steals", |run| run.get("kswapd_inodesteal")),
    count("Kswapd skipped wait", |run| run.get("kswapd_skip_congestion_wait")),
    count("THP fault alloc", |run| run.get("thp_fault_alloc")),
    count("THP collapse alloc", |run| run.get("thp_collapse_alloc")),
    count("THP splits", |run| run.get("thp_split_page")),
    count("THP fault fallback", |run| run.get("thp_fault_fallback")),
    count("THP collapse fail", |run| run.get("thp_collapse_alloc_failed")),
    count("Compaction stalls", |run| run.get("compact_stall")),
    count("Compaction success", |run| run.get("compact_success")),
    count("Compaction failures", |run| run.get("compact_fail")),
    count("Page migrate success", |run| run.get("pgmigrate_success")),
    count("Page migrate failure", |run| run.get("pgmigrate_fail")),
    count("Compaction pages isolated", |run| run.get("compact_isolated")),
    count("Compaction migrate scanned", |run| run.get("compact_migrate_scanned")),
    count("Compaction free scanned", |run| run.get("compact_free_scanned")),
    count("Compaction cost", compaction_cost),
    count("NUMA alloc hit", |run| run.get("numa_hit")),
    count("NUMA alloc miss", |run| run.get("numa_miss")),
    count("NUMA interleave hit", |run| run.get("numa_interleave")),
    count("NUMA alloc local", |run| run.get("numa_local")),
    count(UPDATES_OF_2013, |run| run.get("numa_pte_updates")),
    count("NUMA base PTE updates", |run| run.get("numa_pte_updates") - 512.0 * run.get("numa_huge_pte_updates")),
    count("NUMA huge PMD updates", |run| run.get("numa_huge_pte_updates")),
    count("NUMA page range updates", |run| run.get("numa_pte_updates")),
    count("NUMA hint faults", |run| run.get("numa_hint_faults")),
    count("NUMA hint local faults", |run| run.get("numa_hint_faults_local")),
    count("NUMA hint local percent", |run| efficiency(run.get("numa_hint_faults_local"), run.get("numa_hint_faults"))),
    count("NUMA pages migrated", |run| run.get("numa_pages_migrated")),
    line("AutoNUMA cost", Form::Percent, numa_cost),
    count(OF_TASKS[0].0, |run| run.get(OF_TASKS[0].1)),
    count(OF_TASKS[1].0, |run| run.get(OF_TASKS[1].1)),
    count(OF_TASKS[2].0, |run| run.get(OF_TASKS[2].1)),
    count(OF_TASKS[3].0, |run| run.get(OF_TASKS[3].1)),
    count(OF_TASKS[4].0, |run| run.get(OF_TASKS[4].1)),
    count(OF_TASKS[5].0, |run| run.get(OF_TASKS[5].1)),
    line(OF_TASKS[6].0, Form::Hundredths, |run| balancing::faults_per_mark(|name| run.get(name)).unwrap_or(0.0)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn run(counters: &BTreeMap<String, i64>) -> Run<'_> {
        Run { counters, elapsed_s: 200.0 }
    }

    fn value(name: &str, counters: &[(&str, i64)]) -> f64 {
        let counters = counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let line = LINES.iter().find(|line| line.name == name).expect(name);
        (line.value)(&run(&counters))
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "found {found}, expected {expected}");
    }

    #[test]
    fn compaction_costs_what_mmtests_says() {
        // Rows of a published table, and its own cost (4.1-rc2, defrag always).
        let rows = [
            ("compact_migrate_scanned", 1_416_728),
            ("compact_isolated", 1_451_445),
            ("pgmigrate_success", 569_476),
            ("pgmigrate_fail", 0),
        ];
        assert!(value("Compaction cost", &rows).to_string().starts_with("628."));
    }

    #[test]
    fn shares_and_rates_follow_from_counts() {
        let scans =
            [("pgscan_kswapd", 300), ("pgsteal_kswapd", 57), ("pgscan_direct", 900), ("pgscan_direct_normal", 700)];
        assert_near(value("Kswapd efficiency", &scans), 19.0);
        assert_near(value("Direct efficiency", &[]), 100.0);
        assert_near(value("Direct velocity", &scans), 4.5);
        assert_near(value("Percentage direct scans", &scans), 75.0);
        assert_near(value("Zone normal velocity", &scans), 3.5);
        assert_near(value("Allocation stalls", &[("allocstall_normal", 3), ("allocstall_movable", 4)]), 7.0);
        assert_near(value("NUMA hint local percent", &[]), 100.0);
        let marks = [("numa_pte_updates", 5120), ("numa_hint_faults", 22)];
        assert_near(value("NUMA hint faults per mark", &marks), 2.2);
        let counters: BTreeMap<String, i64> = [("numa_hint_faults".to_owned(), 1)].into();
        let line =
            |name: &str| LINES.iter().find(|line| line.name == name).expect("it is there").is_counted(&run(&counters));
        assert!(line("NUMA hint faults per mark") && line("Swap Ins") && !line("sched_move_numa"));
    }
}
