//! Counters that targets have. A counter that did not move is nought; absent is only one that its target cannot count. Lines of
//! results leave noughts out, and whoever reads them puts these back here.

use std::collections::{BTreeMap, BTreeSet};

use linux::procfs::{Capture, vmstat};
use report::{Cell, Column, Record, System, Target};
use rules::variant::{self, Variant};
use units::{Bytes, ExtfragClass};
use workloads::{Workload, will_it_scale::LEAST_REPORTED};

use crate::{
    footprint,
    machine::Machine,
    plan::{Identity, Place, Session, SimulatedColumn},
    run::SIMULATED_MACHINE,
    simulated,
    source::Source,
    workload,
};

/// The beginning of the name of a skipped counter of a real kernel.
pub(crate) const SKIPPED: &str = "vmstat ";
/// The beginning of the names of a simulated host's counters, where a run has guests.
pub(crate) const OF_HOST: &str = "host_";

/// Puts noughts into the cells of a result for all counters that their targets have.
pub(crate) fn fill(identity: &Identity, records: &mut [Record]) {
    let systems = records.iter().filter_map(|record| match record {
        Record::System(system) => Some((system.column(), counted_by(system, &identity.simulated))),
        Record::Cell(_) | Record::Skipped(_) => None,
    });
    let mut counted: BTreeMap<Column, BTreeSet<String>> = BTreeMap::new();
    for (column, names) in systems {
        counted.entry(column).or_default().extend(names);
    }
    for record in records {
        let Record::Cell(cell) = record else { continue };
        if let Some(names) = counted.get(&cell.key.column()) {
            fill_cell(cell, names);
        }
    }
}

fn fill_cell(cell: &mut Cell, names: &BTreeSet<String>) {
    let measured = &mut cell.measured;
    let skipped: BTreeSet<&str> = measured.skipped.iter().filter_map(|skip| skip.what.strip_prefix(SKIPPED)).collect();
    // The counters of guests and of their host have names of their own.
    let of_guests = workload::of_key(&cell.key).is_ok_and(|workload| matches!(workload, Workload::Guests(_)));
    let prefixes: &[&str] = if of_guests { &["", OF_HOST] } else { &[""] };
    for name in prefixes.iter().flat_map(|prefix| names.iter().map(move |name| format!("{prefix}{name}"))) {
        if !skipped.contains(name.as_str()) && !measured.gauges.contains_key(&name) {
            measured.counters.entry(name).or_insert(0);
        }
    }
}

/// Names of all counters that a system has; none where the result does not say.
fn counted_by(system: &System, simulated: &[SimulatedColumn]) -> Vec<String> {
    if system.target != Target::Sim {
        return of_captures(system);
    }
    let (column, machine) = (system.column(), system.captures[SIMULATED_MACHINE].as_str());
    let what = simulated.iter().find(|what| what.column == column);
    let names = what.zip(machine).and_then(|(what, machine)| {
        let source = Source::from_text(format!("{}.toml", column.machine), machine);
        let machine = Machine::from_source(&source, &linux::setting::names()).ok()?;
        let today = variant::built_in(&what.variant.name).or(variant::all().last())?;
        of_machine(&machine, &what.variant.rules_over(&today.rules).ok()?).ok()
    });
    names.unwrap_or_default()
}

/// The names of the /proc/vmstat counters that a real kernel had.
fn of_captures(system: &System) -> Vec<String> {
    let phases = system.captures.as_object().into_iter().flat_map(serde_json::Map::values);
    let files = phases.filter_map(|files| serde_json::from_value::<Capture>(files.clone()).ok());
    let readings = files.filter_map(|files| vmstat::parse(files.text("vmstat").ok()?).ok());
    readings.flat_map(|reading| reading.into_keys().filter(|name| is_counter(name)).collect::<Vec<_>>()).collect()
}

/// The names of the counters that the simulator has on a machine, with rules.
fn of_machine(machine: &Machine, rules: &Variant) -> Result<Vec<String>, String> {
    let config = simulated::config(machine, rules, Bytes(0), 1)?;
    let balloon = linux::balloon::target(&machine.settings).map(|_| mm::guest::balloon::BalloonSpec::default());
    let names = sim::counter_names(&sim::Config { balloon, ..config });
    Ok(names.into_iter().filter(|name| is_counter(name)).map(str::to_owned).collect())
}

/// Counters that the cells of a session will have; all that any kernel has where only its boot will tell.
pub(crate) fn of_session(session: &Session) -> Vec<String> {
    match &session.place {
        Place::Sim { variant, .. } => {
            let machine = simulated::with_settings(session.machine.clone(), &session.settings);
            of_machine(&machine, &variant.rules).unwrap_or_default()
        }
        Place::Host | Place::Vm { .. } => all().into_keys().collect(),
    }
}

/// The places that count something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedBy {
    /// The simulator does, of some kernel.
    pub sim: bool,
    /// The kernel of this machine does.
    pub host: bool,
}

/// Every known counter: the simulator's, and those that this machine's kernel has.
pub fn all() -> BTreeMap<String, CountedBy> {
    let mut all: BTreeMap<String, CountedBy> = BTreeMap::new();
    for name in sim::all_counter_names().into_iter().filter(|name| is_counter(name)) {
        all.entry(name.to_owned()).or_default().sim = true;
    }
    let live = Capture::live().ok().and_then(|capture| vmstat::parse(capture.text("vmstat").ok()?).ok());
    for name in live.into_iter().flat_map(BTreeMap::into_keys).filter(|name| is_counter(name)) {
        all.entry(name).or_default().host = true;
    }
    all
}

/// Is a name of /proc/vmstat one of [`report::Measured::counters`]?
pub(crate) fn is_counter(name: &str) -> bool {
    !is_gauge(name) && !is_fallback(name)
}

/// Fallbacks, by class and in sums.
fn is_fallback(name: &str) -> bool {
    name.starts_with(ExtfragClass::PREFIX) || name.starts_with("sim_mm_page_alloc_extfrag")
}

fn is_gauge(name: &str) -> bool {
    is_vmstat_gauge(name) || [footprint::GAUGE, mm::guest::balloon::GAUGE, LEAST_REPORTED].contains(&name)
}

/// Names in /proc/vmstat that start with `nr_` are states, not events, but for these; and nodes of shadow entries are a state too
/// (`vmstat_text`, mm/vmstat.c, v6.6).
pub(crate) fn is_vmstat_gauge(name: &str) -> bool {
    const EVENTS: [&str; 11] = [
        "nr_vmscan_write",
        "nr_vmscan_immediate_reclaim",
        "nr_dirtied",
        "nr_written",
        "nr_throttled_written",
        "nr_foll_pin_acquired",
        "nr_foll_pin_released",
        "nr_tlb_remote_flush",
        "nr_tlb_remote_flush_received",
        "nr_tlb_local_flush_all",
        "nr_tlb_local_flush_one",
    ];
    name == "workingset_nodes" || (name.starts_with("nr_") && !EVENTS.contains(&name))
}

#[cfg(test)]
mod tests {
    use report::{
        Key, Layout, Measured, Report, Run, SCHEMA,
        compare::{Comparison, FailOn, Gates, Verdict},
    };

    use super::*;

    /// A cell in which one counter moved.
    fn cell(kernel: &str, seed: u64, counter: &str, moved: i64) -> Cell {
        let counters = if moved == 0 { BTreeMap::new() } else { BTreeMap::from([(counter.to_owned(), moved)]) };
        Cell {
            schema: SCHEMA,
            key: Key {
                result: None,
                experiment: "e".into(),
                group: None,
                workload: "fault-storm".into(),
                case: "c".into(),
                params: BTreeMap::new(),
                variant: kernel.into(),
                machine: "m".into(),
                state: "fresh".into(),
                target: Target::Sim,
                kernel: kernel.into(),
                seed,
                program: "p".into(),
            },
            measured: Measured { counters, ..Measured::nothing() },
            series: None,
            map: None,
            slow_path: None,
            footprint: None,
            run: Run {
                date: "2026-01-02T03:04:05Z".into(),
                wall_s: 1.0,
                boot_s: None,
                host: "h".into(),
                commit: "c".into(),
                max_rss_kib: 1,
            },
        }
    }

    #[test]
    fn every_counter_to_or_from_0_is_judged_and_named() {
        let machine = Machine::load("one-node-512m", &linux::setting::names()).expect("a machine");
        let rules = variant::built_in("v6.12").expect("a variant").rules;
        let names: BTreeSet<String> = of_machine(&machine, &rules).expect("a configuration").into_iter().collect();
        assert!(names.len() > 100);
        for counter in &names {
            let column = |kernel: &str, moved: i64| {
                let mut cells: Vec<Cell> =
                    (1..=6).map(|seed| cell(kernel, seed, counter, moved * (47 + seed.cast_signed()))).collect();
                for cell in &mut cells {
                    fill_cell(cell, &names);
                }
                cells
            };
            for (old, new) in [(0, 1), (1, 0)] {
                let cells = [column("old", old), column("new", new)].concat();
                for layout in [Layout::Head, Layout::Classic] {
                    let mut report = Report::with_all_counters(layout, &cells);
                    report.add_counters(&cells, |name| name == counter);
                    let comparison = Comparison::of(&report, Gates::default());
                    let unmatched = [&comparison.unmatched.only_old, &comparison.unmatched.only_new];
                    // A ratio of two counters is nothing where the second is nought.
                    let is_ratio = |name: &String| name.contains("per_mark");
                    assert!(unmatched.into_iter().flatten().all(is_ratio), "{unmatched:?}");
                    let row = comparison.rows.iter().find(|row| row.metric == *counter).expect(counter);
                    assert_eq!(row.verdict, Verdict::Differs, "{counter}: {row:?}");
                    let expected = if old == 0 { None } else { Some(-100.0) };
                    assert_eq!(row.change_percent, expected, "{counter}");
                    let others = comparison
                        .rows
                        .iter()
                        .filter(|row| row.metric.starts_with("compact_") && row.metric != *counter);
                    assert!(others.into_iter().all(|row| row.verdict == Verdict::Same), "noughts are the same");
                    let bounds = if old == 0 { [">5%", ">40", ">60"] } else { ["<-5%", "<-40", "<-60"] };
                    let fails = bounds.map(|bound| {
                        let condition: FailOn = format!("{counter}{bound}").parse().expect("a condition");
                        !condition.failed(&comparison).expect("its row is there").is_empty()
                    });
                    assert_eq!(fails, [true, true, false], "{counter}");
                }
            }
        }
    }

    #[test]
    fn a_kernel_has_the_counters_of_its_rules_and_machine() {
        let names = |machine: &str, kernel: &str| {
            let machine = Machine::load(machine, &linux::setting::names()).expect("a machine");
            of_machine(&machine, &variant::built_in(kernel).expect("a variant").rules).expect("a configuration")
        };
        let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
        let old = names("one-node-512m", "v4.1");
        let new = names("one-node-512m", "v6.12");
        assert!(has(&old, "compact_stall") && has(&new, "compact_stall"));
        assert!(!has(&old, "thp_migration_success") && has(&new, "thp_migration_success"), "since 5.9");
        assert!(!has(&new, "sim_page_reports"), "it is no guest");
        assert!(!has(&new, "nr_free_pages") && !has(&new, "sim_mm_page_alloc_extfrag"), "they are no counters");
        assert!(has(&new, "numa_pte_updates") && !has(&new, "sim_sched_move_numa"), "it can balance, and does not");
        assert!(new.iter().all(|name| all()[name].sim));
    }
}
