//! The grid of an experiment: which cases there are, and which of them fit a machine.

use std::collections::BTreeMap;

use os::NumaNode;
use report::Key;
use units::Bytes;
use workloads::{Workload, WorkloadInfo};

use super::Seeds;
use crate::{
    experiment::{Experiment, combinations},
    mmtests::stride::large_stride,
    provenance,
    usage::UsageError,
    workload,
};

/// How many tasks are tried on a machine of this many CPUs: every number up to 8, beyond that mmtests' "large stride"
/// from 1 (mmtests shellpacks/common.sh of 2023, read for behaviour).
pub fn task_counts(cpus: u32) -> Vec<u32> {
    if cpus <= 8 { (1..=cpus).collect() } else { large_stride(cpus) }
}

/// The thread counts of mmtests' thpscale on a machine with `cpus` CPUs.
fn thread_counts(cpus: u32) -> Vec<u32> {
    const THREADS_MAX: u32 = 32;
    large_stride(THREADS_MAX.min(4 * cpus))
}

/// What a grid is laid over.
pub(super) struct Ground<'a> {
    /// Everything of the key but workload, case, set of tables, parameters and seed.
    pub(super) key: Key,
    pub(super) cpus: u32,
    pub(super) nodes: Vec<NumaNode>,
    /// What workloads take for the memory of the machine.
    pub(super) memory: Bytes,
    pub(super) cap: Bytes,
    /// What `cap` is, for messages.
    pub(super) cap_from: &'a str,
    /// What there is to be had at all, where that is known beforehand: of a simulated machine.
    pub(super) room: Option<Bytes>,
    pub(super) settings: &'a [(String, String)],
    pub(super) seeds: Seeds,
    /// Parameters of this ground alone, which override the experiment's parameters.
    pub(super) params: &'a [(String, Vec<String>)],
}

/// The cells of an experiment, and the cases that do not fit with the reason.
pub(super) struct Grid {
    pub(super) keys: Vec<Key>,
    pub(super) misfits: Vec<(String, String)>,
}

/// Parameters that say how much memory a case needs: a user who gives one has asked for that.
const ASKED: [&str; 7] = ["tasks", "threads", "size", "aged", "total", "guests", "memory"];

/// Lays the grid. Parameters in `given` come from the user and replace the experiment's parameters. A case that the
/// user asked for and that does not fit is an error; a case that only the default grid has is left out.
pub(super) fn lay(
    experiment: &Experiment,
    given: &[(String, Vec<String>)],
    ground: &Ground<'_>,
) -> Result<Grid, UsageError> {
    let mut all = experiment.params.clone();
    for (name, values) in ground.params.iter().chain(given) {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => old.clone_from(values),
            None => all.push((name.clone(), values.clone())),
        }
    }
    let offered = experiment.workload;
    let programs = offered.chosen(&all).map_err(|bad| UsageError::new(format!("--set {}: {bad}", bad.param.name)))?;
    for (name, _) in given.iter().filter(|(name, _)| !offered.chooses(name)) {
        if let (false, Some(only)) = (programs.iter().any(|program| workload::has(program, name)), offered.only(name)) {
            return Err(UsageError::of_key(format!("--set {name}"), format!("is there only with {only}")));
        }
    }
    let asked = given.iter().any(|(name, _)| ASKED.contains(&name.as_str()));
    let mut grid = Grid { keys: Vec::new(), misfits: Vec::new() };
    for (program, params) in programs.iter().flat_map(|program| program_grid(program, &all, ground.cpus)) {
        let key = case(&ground.key, program, params, ground.settings)?;
        let workload = workload::of_key(&key).map_err(UsageError::new)?;
        if let Some(problem) =
            workload.misfit(ground.memory, ground.cpus / u32::try_from(ground.nodes.len()).expect("few nodes").max(1))
        {
            return Err(UsageError::new(problem));
        }
        let conditions = workload::conditions(&key).map_err(UsageError::new)?;
        let of_nodes = workload.misfit_of_nodes(&ground.nodes).or_else(|| conditions.misfit(&ground.nodes));
        if let Some(problem) = of_nodes {
            return Err(UsageError::new(format!("machine {}: {problem}", ground.key.machine)));
        }
        if let Some(reason) = misfit(&key, &workload, ground) {
            if asked {
                return Err(UsageError::new(reason));
            }
            grid.misfits.push((key.case, reason));
            continue;
        }
        grid.keys.push(key);
    }
    let seeds = |seed| grid.keys.iter().map(move |key| Key { seed, ..key.clone() });
    grid.keys = ground.seeds.all().flat_map(seeds).collect();
    Ok(grid)
}

/// The cells of one of the chosen programs: with what it has of the parameters, and as many tasks as fit the CPUs.
fn program_grid<'a>(
    program: &'a WorkloadInfo,
    all: &[(String, Vec<String>)],
    cpus: u32,
) -> Vec<(&'a WorkloadInfo, Vec<(String, String)>)> {
    let mut own: Vec<_> = all.iter().filter(|(name, _)| workload::has(program, name)).cloned().collect();
    for (name, counts) in [("tasks", task_counts(cpus)), ("threads", thread_counts(cpus))] {
        let is_counted = program.params.iter().any(|param| param.name == name && param.default != "auto");
        if is_counted && !own.iter().any(|(known, _)| known == name) {
            own.push((name.to_owned(), counts.iter().map(u32::to_string).collect()));
        }
    }
    combinations(&own).into_iter().map(|params| (program, params)).collect()
}

/// Why a case does not fit, if it can be seen not to.
fn misfit(key: &Key, workload: &Workload, ground: &Ground<'_>) -> Option<String> {
    let need = workload.memory(ground.memory);
    if need > ground.cap {
        let fitting = workload.fitting(ground.cap).map(|fitting| format!(": expected {fitting}"));
        let (cap_from, cap) = (ground.cap_from, mib(ground.cap));
        return Some(format!("{}, {cap_from} is {cap}{}", needs(key, need), fitting.unwrap_or_default()));
    }
    beyond(key, need, ground.room?)
}

/// What a cell needs, and the parameters that say so.
fn needs(key: &Key, need: Bytes) -> String {
    format!(
        "{} needs {} ({})",
        key.case,
        mib(need),
        workload::those(key, &["aged", "guests", "memhog", "memory", "size"])
    )
}

/// Why a planned cell does not fit into `room` bytes, if it does not.
pub(super) fn misfit_of(key: &Key, room: Bytes) -> Option<String> {
    let workload = workload::planned(key);
    beyond(key, workload.memory(room), room)
}

fn beyond(key: &Key, need: Bytes, room: Bytes) -> Option<String> {
    let what = "what the machine manages above its min marks and reserves";
    (need > room).then(|| format!("{}, {what} is {}", needs(key, need), mib(room)))
}

fn mib(size: Bytes) -> String {
    format!("{} MiB", size.as_mib())
}

fn case(
    base: &Key,
    program: &WorkloadInfo,
    params: Vec<(String, String)>,
    settings: &[(String, String)],
) -> Result<Key, UsageError> {
    let words = params.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    // The experiment's own values were checked when it was read, so a bad one came with --set.
    let workload = Workload::parse(program.name, words).map_err(|error| UsageError::new(format!("--set {error}")))?;
    let params: BTreeMap<_, _> = params.into_iter().chain(settings.iter().cloned()).collect();
    assert!(settings.iter().all(|(name, _)| workload::is_setting(name)), "settings and parameters share no names");
    let group = workload.tables();
    Ok(Key { workload: program.name.to_owned(), case: workload.case(), group, params, ..base.clone() })
}

/// The part of a key that all cells of a session share.
pub(super) fn base_key(experiment: &Experiment, target: report::Target, kernel: &str, machine: &str) -> Key {
    Key {
        result: None,
        experiment: experiment.name.clone(),
        group: None,
        workload: String::new(),
        case: String::new(),
        params: BTreeMap::new(),
        // A real kernel is what it is; variants are kernels as data, for the simulator.
        variant: "none".to_owned(),
        machine: machine.to_owned(),
        state: "booted".to_owned(),
        target,
        kernel: kernel.to_owned(),
        seed: 0,
        program: provenance::PROGRAM_HASH.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_counts_follow_the_large_stride_rule_beyond_eight() {
        assert_eq!(task_counts(1), [1]);
        assert_eq!(task_counts(2), [1, 2]);
        assert_eq!(task_counts(8), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(task_counts(12), [1, 3, 5, 7, 12]);
        assert_eq!(task_counts(32), [1, 3, 5, 7, 12, 18, 24, 30, 32]);
        assert_eq!(task_counts(48), [1, 4, 7, 12, 21, 30, 48]);
        assert_eq!(task_counts(128), [1, 4, 7, 12, 21, 30, 48, 79, 110, 128]);
    }

    #[test]
    fn thread_counts_are_those_of_mmtests() {
        assert_eq!(thread_counts(1), [1, 3, 4]);
        assert_eq!(thread_counts(2), [1, 3, 5, 7, 8]);
        assert_eq!(thread_counts(3), [1, 3, 5, 7, 12]);
        assert_eq!(thread_counts(64), [1, 3, 5, 7, 12, 18, 24, 30, 32]);
    }

    fn ground(cap: Bytes) -> Ground<'static> {
        let experiment = Experiment::load("fault-storm").unwrap();
        let key = base_key(&experiment, report::Target::Host, "6.1", "here");
        Ground {
            key,
            cpus: 2,
            nodes: Vec::new(),
            memory: cap,
            cap,
            cap_from: "the cap",
            room: None,
            settings: &[],
            seeds: Seeds::up_to(1),
            params: &[],
        }
    }

    #[test]
    fn the_default_grid_is_pages_by_models_by_tasks() {
        let grid = lay(&Experiment::load("fault-storm").unwrap(), &[], &ground(Bytes::gib(1))).unwrap();
        let cases: Vec<_> = grid.keys.iter().map(|key| key.case.as_str()).collect();
        assert_eq!(cases[..4], ["base-threads-1", "base-threads-2", "base-processes-1", "base-processes-2"]);
        assert_eq!(cases.len(), 8);
        assert!(grid.misfits.is_empty());
    }

    fn laid(experiment: &str, sets: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let experiment = Experiment::load(experiment).unwrap();
        let words = |text: &str| text.split(',').map(str::to_owned).collect();
        let given: Vec<_> = sets.iter().map(|(name, values)| ((*name).to_owned(), words(values))).collect();
        let grid = lay(&experiment, &given, &ground(Bytes::gib(1))).map_err(|error| error.to_string())?;
        let cell = |key: &Key| {
            let params: Vec<_> = key.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{} {} {}", key.workload, key.case, params.join(","))
        };
        Ok(grid.keys.iter().map(cell).collect())
    }

    /// The names and parameters of results from before these programs had one name.
    #[test]
    fn cells_name_the_program_and_its_own_parameters() {
        let counts = "thpscale-2015 1+3+5+7+12+16 counts=1 3 5 7 12 16,size=80%";
        assert_eq!(laid("thpscale-4.1", &[]).unwrap(), [counts]);
        assert_eq!(
            laid("thpscale", &[("script", "2018,2023"), ("threads", "3")]).unwrap(),
            ["thpscale 3 advise=no,size=80%,threads=3", "thpcompact 3 advise=no,size=80%,threads=3"]
        );
        assert_eq!(laid("thpcompact", &[("threads", "3")]).unwrap(), ["thpcompact 3 advise=no,size=80%,threads=3"]);
        let small = [("tasks", "1"), ("model", "threads"), ("size", "2MiB")];
        let params = "iterations=8,model=threads,size=2MiB,tasks=1";
        assert_eq!(laid("page-fault3", &small).unwrap(), [format!("page-fault3 threads-1 {params}")]);
        // What a file has of another script's parameters is left out; what the user sets is not.
        assert_eq!(
            laid("thpscale-4.1", &[("script", "2018"), ("threads", "1")]).unwrap(),
            ["thpscale 1 size=80%,threads=1"]
        );
        assert_eq!(
            laid("thpscale", &[("counts", "1 3")]).unwrap_err(),
            "--set counts: is there only with script = 2015"
        );
        let unknown = laid("thpscale", &[("script", "2016")]).unwrap_err();
        assert!(
            unknown.starts_with("--set script: expected \"2015\" (") && unknown.ends_with("found \"2016\""),
            "{unknown}"
        );
    }

    #[test]
    fn guests_that_do_not_fit_say_what_would() {
        let guests = |sets| laid("two-guests", sets).unwrap_err();
        assert_eq!(
            guests(&[("memory", "3GiB")]),
            "2-on needs 6144 MiB (guests, memory), the cap is 1024 MiB: expected memory of at most 512MiB, or a machine with \
             more memory or swap"
        );
        let many = guests(&[("memory", "64MiB"), ("guests", "20")]);
        assert!(many.ends_with("expected at most 16 guests, or a machine with more memory or swap"), "{many}");
    }

    #[test]
    fn what_does_not_fit_is_left_out_unless_asked_for() {
        let experiment = Experiment::load("fault-storm").unwrap();
        let grid = lay(&experiment, &[], &ground(Bytes::mib(200))).unwrap();
        assert_eq!(grid.keys.len(), 4);
        assert_eq!(grid.misfits.len(), 4);
        let tasks = [("tasks".to_owned(), vec!["2".to_owned()])];
        let error = lay(&experiment, &tasks, &ground(Bytes::mib(200))).err().unwrap();
        assert_eq!(error.to_string(), "base-threads-2 needs 256 MiB (size), the cap is 200 MiB");
    }
}
