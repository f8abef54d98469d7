//! Cells drawn at random: the ranges, in one table, and a draw that follows from its seed alone.
//!
//! Each choice is the hash of the seed, the number of the candidate and the name of what is chosen, so that a range that changes
//! leaves the other choices of a seed as they were. A candidate that cannot run is left out, and the next takes its place.

use super::cells::{Guest, Run};
use crate::{
    dice::Dice,
    evidence,
    plan::{Plan, Request, Seeds},
    usage::UsageError,
    variant,
};

/// Something that is drawn, and the values that it takes: one is as likely as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// A parameter of a workload, a setting of the kernel, or a property of the machine.
    pub name: &'static str,
    /// Values, as `pagelab run --set` takes them.
    pub values: &'static [&'static str],
}

/// A workload that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Name of its experiment.
    pub experiment: &'static str,
    /// Chances of this workload beside the others': those that reclaim and compact have more.
    pub weight: u32,
    /// Parameters, all of which are drawn.
    pub params: &'static [Axis],
    /// Whether its files stream through memory, so that kswapd's counts are proportional to the work.
    pub streaming: bool,
}

const fn axis(name: &'static str, values: &'static [&'static str]) -> Axis {
    Axis { name, values }
}

const ADVISE: Axis = axis("advise", &["no", "yes"]);
const PAGE: Axis = axis("page", &["base", "huge"]);
const MODEL: Axis = axis("model", &["threads", "processes"]);
const TASKS: Axis = axis("tasks", &["1", "2", "3"]);
const ITERATIONS: Axis = axis("iterations", &["2", "4"]);
const STORM: Axis = axis("size", &["32MiB", "64MiB", "96MiB"]);

/// The workloads. Sizes are such that one boot takes a minute or two under translation; swap is as large as memory.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        experiment: "thpscale",
        weight: 3,
        params: &[
            axis("threads", &["1", "2", "3", "4"]),
            axis("size", &["60%", "70%", "80%", "90%", "110%"]),
            ADVISE,
            axis("file", &["yes", "no"]),
        ],
        streaming: false,
    },
    Workload {
        experiment: "thpcompact",
        weight: 1,
        params: &[axis("threads", &["1", "2", "3"]), axis("size", &["60%", "70%", "80%"]), ADVISE],
        streaming: false,
    },
    Workload {
        experiment: "aged-fault",
        weight: 2,
        params: &[axis("aged", &["60%", "70%", "80%", "90%"]), axis("size", &["10%", "20%", "30%", "40%"]), ADVISE],
        streaming: false,
    },
    Workload {
        experiment: "slab-churn",
        weight: 2,
        params: &[
            axis("aged", &["60%", "70%", "80%"]),
            axis("file", &["4KiB", "8KiB", "16KiB"]),
            axis("writers", &["1", "2", "4", "8"]),
            axis("total", &["5%", "10%", "15%"]),
            axis("size", &["10%", "20%"]),
            ADVISE,
        ],
        streaming: false,
    },
    Workload {
        experiment: "small-files",
        weight: 2,
        params: &[
            axis("file", &["32KiB", "64KiB", "128KiB", "512KiB"]),
            axis("writers", &["1", "2", "4", "8"]),
            axis("total", &["110%", "130%"]),
            axis("size", &["10%", "20%", "30%"]),
            ADVISE,
        ],
        streaming: true,
    },
    Workload {
        experiment: "fault-storm",
        weight: 1,
        params: &[PAGE, MODEL, TASKS, ITERATIONS, STORM],
        streaming: false,
    },
    Workload { experiment: "fork-storm", weight: 1, params: &[PAGE, ITERATIONS, STORM], streaming: false },
    Workload { experiment: "page-fault2", weight: 1, params: &[MODEL, TASKS, ITERATIONS, STORM], streaming: false },
    Workload { experiment: "page-fault3", weight: 1, params: &[MODEL, TASKS, ITERATIONS, STORM], streaming: false },
];

/// Memory of the machine.
pub const MEMORY: Axis = axis("memory", &["384MiB", "448MiB", "512MiB", "640MiB", "768MiB", "896MiB", "1GiB"]);
/// CPUs of the machine. One alone counts its time in instructions, and repeats itself; two are threads of the host's.
pub const CPUS: Axis = axis("cpus", &["1", "2"]);
/// Binary logarithms of the nanoseconds that an instruction takes on one CPU: one for all boots of a cell, which differ in the
/// pages that init takes and keeps.
pub const SHIFT: Axis = axis("shift", &["2", "3", "4", "5", "6"]);
/// The kernels.
pub const KERNEL: Axis = axis("kernel", &["5.10", "6.1"]);

/// Settings that every cell has: a kernel's own values depend on the size of memory.
pub const ALWAYS_SET: &[Axis] = &[
    axis("transparent_hugepage/enabled", &["always", "madvise"]),
    axis("transparent_hugepage/defrag", &["always", "defer", "defer+madvise", "madvise", "never"]),
];
/// Settings that one cell in [`SOMETIMES`] has; elsewhere they are the kernel's.
pub const SOMETIMES_SET: &[Axis] = &[
    axis("transparent_hugepage/khugepaged/defrag", &["0"]),
    axis("transparent_hugepage/khugepaged/scan_sleep_millisecs", &["100", "1000"]),
    axis("transparent_hugepage/use_zero_page", &["0", "1"]),
    axis("vm.swappiness", &["10", "30", "100", "150"]),
    axis("vm.min_free_kbytes", &["2048", "8192", "16384"]),
    axis("vm.watermark_scale_factor", &["30", "100", "200"]),
    axis("vm.watermark_boost_factor", &["0", "5000", "30000"]),
    axis("vm.percpu_pagelist_high_fraction", &["8", "64"]),
    axis("vm.compaction_proactiveness", &["0", "50", "90"]),
    axis("vm.extfrag_threshold", &["100", "800"]),
    axis("vm.vfs_cache_pressure", &["50", "200"]),
    axis("vm.page-cluster", &["0", "5"]),
    axis("vm.dirty_ratio", &["10", "40"]),
    axis("vm.dirty_background_ratio", &["5", "15"]),
];
/// One cell in five has a setting of [`SOMETIMES_SET`].
pub const SOMETIMES: u64 = 5;
/// Candidates for each cell that is wanted; a draw that needs more has ranges of which nearly nothing can run.
const CANDIDATES_MAX: u64 = 50;

/// The table as text: all ranges, as `cargo xtask fidelity --list` prints it.
pub fn ranges() -> String {
    let values = |axis: &Axis| format!("{}={}", axis.name, axis.values.join(","));
    let chances: u32 = WORKLOADS.iter().map(|workload| workload.weight).sum();
    let mut text = format!("Workloads, with their chances of {chances}; one value of each parameter:\n");
    for Workload { experiment, weight, params, .. } in WORKLOADS {
        text += &format!("  {weight}  {experiment}\n");
        text += &params.iter().map(|axis| format!("       {}\n", values(axis))).collect::<String>();
    }
    text += "Guest:\n";
    text += &[MEMORY, CPUS, SHIFT, KERNEL].iter().map(|axis| format!("  {}\n", values(axis))).collect::<String>();
    text += "  one CPU counts time in instructions of 2^shift ns; swap is as large as memory\n";
    text += "Settings of every cell:\n";
    text += &ALWAYS_SET.iter().map(|axis| format!("  {}\n", values(axis))).collect::<String>();
    text += &format!("Settings, each of one cell in {SOMETIMES}; elsewhere the kernel's own value:\n");
    text += &SOMETIMES_SET.iter().map(|axis| format!("  {}\n", values(axis))).collect::<String>();
    text
}

/// A candidate: a run that may not be possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The run; its guest's machine is a name that has no file yet.
    pub run: Run,
    /// Text of the guest's machine file.
    pub machine: String,
}

/// The value of an axis that a candidate has.
fn one_of(dice: Dice<'_>, axis: &Axis) -> &'static str {
    dice.one_of::<&'static str>(axis.name, axis.values)
}

fn set(dice: Dice<'_>, axis: &Axis) -> String {
    format!("{}={}", axis.name, one_of(dice, axis))
}

/// A candidate of a draw. `boots` is how often each cell is booted.
pub fn candidate(seed: &str, number: u64, boots: u64) -> Candidate {
    let dice = Dice { seed, number };
    let workload = dice.weighted("workload", WORKLOADS, |workload| workload.weight.into());
    let [memory, cpus, kernel] = [MEMORY, CPUS, KERNEL].map(|axis| one_of(dice, &axis));
    let mut sets: Vec<_> = workload.params.iter().map(|axis| set(dice, axis)).collect();
    sets.extend(ALWAYS_SET.iter().map(|axis| set(dice, axis)));
    let sometimes = SOMETIMES_SET.iter().filter(|axis| dice.below(&format!("whether {}", axis.name), SOMETIMES) == 0);
    sets.extend(sometimes.map(|axis| set(dice, axis)));
    let replayable = (cpus == "1").then(|| one_of(dice, &SHIFT).to_owned());
    let pace = replayable.as_ref().map_or(String::new(), |shift| format!("-shift{shift}"));
    let guest = Guest {
        name: format!("{memory}-{cpus}cpu{pace}-{kernel}"),
        kernel: kernel.to_owned(),
        machine: format!("drawn-{memory}-{cpus}cpu"),
        replayable,
        seeds: boots,
    };
    let last = cpus.parse::<u32>().expect("a number of CPUs") - 1;
    let machine = format!(
        "about = \"one node of {memory}, CPUs: {cpus}\"\nswap = \"{memory}\"\n\n[[node]]\nid = 0\nmemory = \"{memory}\"\n\
         cpus = \"0-{last}\"\n"
    );
    let run = Run {
        experiment: workload.experiment.to_owned(),
        guest,
        sets,
        policy: None,
        ranked_by: Vec::new(),
        streaming: workload.streaming,
        called: None,
        skip: None,
    };
    Candidate { run, machine }
}

/// Why a run cannot be simulated, found out without running it. Its machine is a file by now.
pub fn cannot_plan(run: &Run) -> Option<String> {
    let rules = match variant::for_release(&run.guest.kernel) {
        Ok(rules) => rules.name,
        Err(reason) => return Some(reason),
    };
    let request = evidence::request(run.experiment.clone(), Vec::new(), Seeds::up_to(1), Some(1), std::env::temp_dir());
    let request = Request {
        machine: Some(run.guest.machine.clone()),
        variants: vec![rules],
        sets: run.sets.clone(),
        out: None,
        ..request
    };
    Plan::new(&request, |_| linux::qemu::Accelerator::Tcg).err().map(|error| error.to_string())
}

/// A candidate that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Guest, experiment, parameters and settings.
    pub label: String,
    /// Why it cannot run.
    pub reason: String,
}

/// The draw: `count` runs, and the candidates that were left out before the last run. `place` turns a candidate into a run whose
/// machine is a file, or says why the candidate cannot run.
pub fn draw(
    seed: &str,
    (cells, boots): (u64, u64),
    mut place: impl FnMut(Candidate) -> Result<Run, String>,
) -> Result<(Vec<Run>, Vec<LeftOut>), UsageError> {
    let (mut runs, mut left_out): (Vec<Run>, Vec<LeftOut>) = (Vec::new(), Vec::new());
    for number in 0..cells * CANDIDATES_MAX {
        if runs.len() as u64 == cells {
            break;
        }
        let candidate = candidate(seed, number, boots);
        let label = candidate.run.label();
        let placed =
            if runs.iter().any(|run| run.label() == label) { Err("drawn before".to_owned()) } else { place(candidate) };
        match placed {
            Ok(run) => {
                let called = Some(format!("cell {}", runs.len() + 1));
                runs.push(Run { called, ..run });
            }
            Err(reason) => left_out.push(LeftOut { label, reason }),
        }
    }
    if (runs.len() as u64) < cells {
        let tried = cells * CANDIDATES_MAX;
        let reason = left_out.last().map_or("none was tried", |left| left.reason.as_str());
        return Err(UsageError::new(format!("only {} of {tried} candidates can run: {reason}", runs.len())));
    }
    Ok((runs, left_out))
}

#[cfg(test)]
mod tests;
