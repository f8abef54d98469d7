//! What is said before tables: what ran where, and what its numbers are worth.

use report::{Column, Target};

use super::{rules, shown::Shown};
use crate::{
    machine::{self, TRANSLATED_NS},
    plan::{SimulatedColumn, Start},
    prices, state,
};

/// What ran where.
pub(super) fn head(shown: &Shown) -> String {
    let mut text = String::new();
    if let Some(cell) = shown.cells.first() {
        let about = shown.presentation.about.as_ref().map(|about| format!(": {about}"));
        text += &format!("{}{}\n", cell.key.experiment, about.unwrap_or_default());
        text += &format!("program {}  commit {}  date {}\n", cell.key.program, cell.run.commit, cell.run.date);
        if !cell.measured.scored {
            text += "not scored: work bounded by time (duration) is not the same work on two kernels\n";
        }
    }
    for system in shown.systems.iter().filter(|system| system.target != Target::Sim) {
        let mut words = vec![format!("{:<5}{} on {}", system.target.name(), system.kernel, system.machine)];
        words.extend(system.accelerator.as_ref().map(|accelerator| format!("under QEMU ({accelerator})")));
        words.extend(first_operation(shown, &system.kernel));
        words.extend(system.notes.iter().cloned());
        for (name, value) in &system.settings {
            words.push(format!("{name}={value}"));
        }
        text += &(words.join(", ") + "\n");
    }
    for column in &shown.simulated {
        text += &simulated(column);
        text += &distances(shown, column);
        text += &state_notes(shown, column);
    }
    for line in rules::lines(&shown.simulated) {
        text += &format!("{line}\n");
    }
    if shown.systems.iter().any(|system| system.target == Target::Vm) {
        text +=
            "In a guest under translation counters are trustworthy, times are not; compare times within one column.\n";
    }
    text + "\n"
}

/// What a simulated column is: whose rules, and what its numbers are worth.
fn simulated(what: &SimulatedColumn) -> String {
    let Column { kernel, machine, .. } = &what.column;
    let mut words = vec![format!("sim  {kernel} on {machine}")];
    let twin = |real: &Column| format!("twin of {} {} on {}", real.target, real.kernel, real.machine);
    words.extend(what.twin_of.as_ref().map(twin));
    words.extend(what.chosen_for.as_ref().map(|release| format!("the newest rules not newer than {release}")));
    words.push(what.variant.difference.clone());
    if !what.shifts.is_empty() {
        let shifts: Vec<_> = what.shifts.iter().map(u8::to_string).collect();
        words.push(format!("prices are the guest's own (an instruction takes 2^{} ns, by seed)", shifts.join(", 2^")));
    }
    if what.is_translated {
        words.push(format!("prices are those of a guest that is translated (an instruction takes {TRANSLATED_NS} ns)"));
    }
    let prices = prices::summary(&what.prices);
    let start = match &what.start {
        Start::Fresh => what.system.as_ref().map_or_else(
            || "memory all free at the start".to_owned(),
            |system| format!("memory at the start: {system}; the rest is free"),
        ),
        Start::Kernel => "memory at the start as the kernel had it before the same cell".to_owned(),
        Start::Recipe(start) => format!("memory at the start by recipe, {}", start.recipe),
        Start::File(file) => {
            format!("memory at the start as in {} (state {})", file.path.display(), short(&file.hash))
        }
    };
    let worth = format!("{start}; {prices}: counters are predictions, times are not yet");
    format!("{}\n     {worth}\n", words.join(", "))
}

/// How far memory was from the CPUs of a column: of machines that say so, and of workloads whose times it decides.
fn distances(shown: &Shown, what: &SimulatedColumn) -> String {
    match &what.latency {
        Some(latency) => format!("     {}\n", latency.summary()),
        None if measures_distances(shown, what) => format!("     {}\n", machine::FLAT),
        None => String::new(),
    }
}

/// Whether the workload of a column is about how far memory is.
fn measures_distances(shown: &Shown, what: &SimulatedColumn) -> bool {
    let mut cells = shown.cells.iter().filter(|cell| cell.key.column() == what.column);
    let far_and_near = [workloads::numa_access::INFO.name, workloads::numa_probe::INFO.name];
    cells.any(|cell| far_and_near.contains(&cell.key.workload.as_str()))
}

/// Says that times cannot tell nodes apart, where some simulated column has a machine without distances.
pub(super) fn flat(shown: &Shown) -> Option<String> {
    let is_flat = |what: &&SimulatedColumn| what.latency.is_none() && measures_distances(shown, what);
    shown.simulated.iter().find(is_flat).map(|_| format!("sim: {}", machine::FLAT))
}

/// Digits of a hash that a reader sees.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// What was drawn of the states that the cells of a column started from: of the first, as the others differ by numbers.
fn state_notes(shown: &Shown, what: &SimulatedColumn) -> String {
    let states = shown.cells.iter().filter(|cell| cell.key.column() == what.column);
    let mut states = states.filter_map(|cell| Some((&cell.key.case, cell.measured.detail.get(state::DETAIL)?)));
    let Some((case, state)) = states.next() else { return String::new() };
    let notes = state["notes"].as_array().into_iter().flatten().filter_map(|note| note.as_str());
    let hash = short(state["hash"].as_str().unwrap_or("?"));
    let lines: Vec<String> = notes.map(|note| format!("       {note}\n")).collect();
    format!("     state {hash} of {case}, as an example of {}:\n{}", states.count() + 1, lines.concat())
}

/// How long the boots took, where there were any.
fn first_operation(shown: &Shown, kernel: &str) -> Option<String> {
    let boots: Vec<f64> = shown.boots.iter().filter(|(of, _)| of == kernel).map(|(_, seconds)| *seconds).collect();
    let median = report::stats::percentile(&boots, 50.0)?;
    let range = match (report::stats::min(&boots), report::stats::max(&boots)) {
        (Some(min), Some(max)) if boots.len() > 1 => {
            format!(" (median of {} boots, {min:.2} to {max:.2})", boots.len())
        }
        _ => String::new(),
    };
    Some(format!("first operation {median:.2} s after QEMU's start{range}"))
}
