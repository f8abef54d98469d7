//! Names of rows that a run will have, so that one that it cannot have is refused before anything runs.

use std::collections::BTreeSet;

use linux::qemu::Accelerator;
use report::{Layout, short::text::list};
use workloads::Workload;

use crate::{
    counted,
    plan::{Plan, Request},
    source::nearest,
    usage::UsageError,
    workload,
};

/// First words of rows, whatever they are of.
const STATISTICS: [&str; 17] = [
    "min",
    "amean",
    "hmean",
    "stddev",
    "hstddev",
    "coeffvar",
    "hcoeffvar",
    "max",
    "bamean.95",
    "bhmean.95",
    "percentage",
    "ops",
    "duration",
    "user",
    "system",
    "elapsed",
    "extfrag",
];

/// Refuses names of rows that no cell of a run can have.
///
/// # Errors
/// A request that is no run, or such a name.
pub fn check(metrics: &[String], request: &Request) -> Result<(), UsageError> {
    if metrics.is_empty() {
        return Ok(());
    }
    let plan = Plan::new(request, |_| Accelerator::Tcg)?;
    let names = Names::of(&plan);
    match metrics.iter().find(|metric| !names.has(metric)) {
        None => Ok(()),
        Some(metric) if counted::all().contains_key(metric.as_str()) => Err(UsageError::of_key(
            format!("--metrics {metric}"),
            "no kernel of this run counts it (pagelab list counters)",
        )),
        Some(metric) => {
            let known: Vec<&str> = names.counters.iter().chain(&names.others).map(String::as_str).collect();
            let question = nearest(metric, &known).map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            let others: Vec<String> = names.others.iter().cloned().collect();
            let others = list("valid are counters (pagelab list counters), ", &others, 400);
            Err(UsageError::of_key("--metrics", format!("unknown metric {metric:?}{question} ({others})")))
        }
    }
}

/// All names, in small letters.
struct Names {
    counters: BTreeSet<String>,
    others: BTreeSet<String>,
}

impl Names {
    fn of(plan: &Plan) -> Self {
        let mut counters = BTreeSet::new();
        if plan.experiment.layout == Layout::Classic {
            counters.extend(report::classic_counters().map(str::to_lowercase));
        }
        let mut names: BTreeSet<String> = STATISTICS.into_iter().map(str::to_owned).collect();
        names.extend([plan.experiment.name.to_lowercase(), plan.experiment.workload.name.to_owned()]);
        for session in &plan.sessions {
            counters.extend(counted::of_session(session));
            for key in &session.keys {
                names.insert(key.case.to_lowercase());
                names.extend(key.group.iter().map(|group| group.to_lowercase()));
                let workload = workload::of_key(key).ok();
                names.extend(workload.iter().flat_map(metrics).map(str::to_owned));
            }
        }
        Self { counters, others: names }
    }

    /// Is it a name, or one with a case or a statistic behind it?
    fn has(&self, metric: &str) -> bool {
        let metric = metric.to_lowercase();
        let begins = |name: &String| {
            metric
                .strip_prefix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ' ', '-', '_']))
        };
        self.counters.iter().chain(&self.others).any(begins) || metric.split('.').any(|part| self.others.contains(part))
    }
}

/// Metrics of a workload and their classes, without what stands behind a point.
fn metrics(workload: &Workload) -> impl Iterator<Item = &'static str> {
    let names = match workload {
        Workload::FaultStorm(_) => {
            "faults_per_second faults_per_second_per_task fault_latency_ns unmap_latency_per_page_ns page_stores_per_second"
        }
        Workload::ForkStorm(_) => "touch_fault_latency_ns fork_latency_ns copy_fault_latency_ns reuse_fault_latency_ns",
        Workload::NumaAccess(_) => {
            "access_latency_ns store_bandwidth latency_vs_local_thp_pct access_latency_regression_pct"
        }
        Workload::Week(_) => {
            "thp_success_pct mixed_pageblocks_pct pageblocks_with_unmovable_pct unmovable_frames_pct hour fault_latency_us \
             fault-base fault-huge fault-both"
        }
        Workload::Guests(_) => "fill_time_s host_pswpin host_pswpout",
        Workload::GuestFootprint(_) => {
            "phase_ms page_fault_count host_memory_gib_min host_memory_at_most_mib host_memory_at_end_mib"
        }
        Workload::WillItScale(_) => {
            "page_fault1 page_fault2 page_fault3 iterations idle_pct host_cleared_pages host_resident_gib \
             host_returned_gib reported_part reports_beyond_budget"
        }
        Workload::NumaProbe(_) => "phase_s read write pages_at_end task_moves same other load_pct load",
        Workload::Autonumabench(_) => "time_s cpu_pct cpu memory_gib",
        Workload::Warehouses(_) => "bops mean tput peak warehouses",
        Workload::VmLargerThanANode(_) | Workload::FragmentedFault(_) => {
            "seconds gb_per_s huge_pct node0_pct memory_kib counter max_deferred_allocations mb_before_recompaction"
        }
        Workload::LlfreeFrag(_) => "free_2mib_blocks",
        Workload::Service(_) => "latency_us throughput resident_mib huge_pct killed",
        Workload::Thpscale(_)
        | Workload::Thpscale2015(_)
        | Workload::AgedFault(_)
        | Workload::SmallFiles(_)
        | Workload::SlabChurn(_)
        | Workload::Thpfioscale(_) => {
            "fault_latency_us fault_latency_pct fault-base fault-huge fault-both thp_success_pct huge init_latency_us \
             anoninit fileinit"
        }
    };
    names.split_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{evidence, plan::Seeds};

    fn checked(experiment: &str, variant: &str, metric: &str) -> Result<(), String> {
        let request = evidence::request(experiment.to_owned(), Vec::new(), Seeds::up_to(1), None, "nowhere".into());
        let request = Request { targets: vec![report::Target::Sim], variants: vec![variant.to_owned()], ..request };
        check(&[metric.to_owned()], &request).map_err(|error| error.to_string())
    }

    #[test]
    fn every_counter_of_a_kernel_is_a_name_other_words_are_not() {
        let counters = counted::all().into_iter().filter(|(_, by)| by.sim).map(|(name, _)| name);
        let refused: Vec<String> = counters.filter(|name| checked("fault-storm", "v6.12", name).is_err()).collect();
        // It is no guest, has no balloon, and does not balance.
        let is_of_others = |name: &String| {
            let of = ["sim_page", "sim_report", "sim_host", "balloon_", "sim_sched", "sim_compact", "fragment_stall"];
            of.iter().any(|begin| name.starts_with(begin))
        };
        assert!(refused.iter().all(is_of_others), "{refused:?}");
        for name in
            ["amean", "Amean", "fault_latency_ns", "fault_latency_ns.Amean", "duration", "base-threads-1", "System"]
        {
            assert_eq!(checked("fault-storm", "v6.12", name), Ok(()), "{name}");
        }
        for name in ["fault-base-3", "thp_success_pct", "Compaction stalls", "compact_stall"] {
            assert_eq!(checked("thpscale-4.1", "v4.1", name), Ok(()), "{name}");
        }
        for (name, expected) in [
            ("compaction", "unknown metric \"compaction\" (valid are counters (pagelab list counters), amean, "),
            ("compact_stal", "did you mean \"compact_stall\"?"),
            ("thp_success_pct", "unknown metric"),
            ("sim_page_reports", "no kernel of this run counts it"),
        ] {
            let said = checked("fault-storm", "v6.12", name).expect_err(name);
            assert!(said.contains(expected) && said.len() < 700, "{said}");
        }
    }
}
