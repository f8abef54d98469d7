//! Simulated runs drawn at random, to look for mistakes in the simulator: any machine, rules, settings and workload, with faults
//! from outside. At regular steps each frame is asked which owner it has; when the faults are over, the run has to come to its
//! end.
//!
//! A case is text: what it draws follows from its seed, and what failed can be made smaller, kept, and run again.

mod draw;
mod smaller;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use linux::qemu::Accelerator;
use memory::event::{Counters, Event};
use serde::{Deserialize, Serialize};
use sim::Faults;

use crate::{
    cell::{self, Trial},
    evidence,
    plan::{Place, Plan, Request, Seeds},
    run, simulated,
};

pub use draw::case;

/// A case: what `pagelab run` would be told, and faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The nodes of the machine.
    pub nodes: Vec<Node>,
    /// The machine's swap, in MiB.
    pub swap_mib: u64,
    /// The machine is a guest, whose host backs its memory.
    pub is_guest: bool,
    /// The variant that its rules are of.
    pub variant: String,
    /// Rules that differ from the variant's.
    pub rules: BTreeMap<String, String>,
    /// Name of the experiment.
    pub experiment: String,
    /// Parameters of the workload, and settings of the kernel.
    pub sets: BTreeMap<String, String>,
    /// The seed of the run.
    pub seed: u64,
    /// Faults from outside.
    pub faults: Faults,
    /// Steps between two walks over all frames.
    pub check_every: u64,
}

/// A node of a case's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Memory in MiB.
    pub mib: u64,
    /// CPUs; a node may have none.
    pub cpus: u32,
}

/// The outcome of a case that found nothing wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// How often each event came, by name.
    pub events: BTreeMap<String, u64>,
    /// Faults that were made.
    pub faults: u64,
    /// Cells that have a result.
    pub cells: u64,
    /// Why others have none: a task that faults or want of memory have ended, for example.
    pub without_result: BTreeSet<String>,
}

impl Case {
    /// The text of its machine file.
    pub fn machine(&self) -> String {
        let mut text = format!("about = \"drawn\"\nswap = \"{}MiB\"\n", self.swap_mib);
        if self.is_guest {
            text += "host_page = \"2MiB\"\n";
        }
        let mut cpu = 0;
        for (id, Node { mib, cpus }) in self.nodes.iter().enumerate() {
            let of_node = match cpus {
                0 => String::new(),
                1 => cpu.to_string(),
                _ => format!("{cpu}-{}", cpu + cpus - 1),
            };
            cpu += cpus;
            let distance: Vec<_> = (0..self.nodes.len()).map(|to| if to == id { "10" } else { "20" }).collect();
            text += &format!(
                "\n[[node]]\nid = {id}\nmemory = \"{mib}MiB\"\ncpus = \"{of_node}\"\ndistance = [{}]\n",
                distance.join(", ")
            );
        }
        text
    }

    /// The text of its variant file.
    pub fn variant_file(&self) -> String {
        let rules: String = self.rules.iter().map(|(rule, value)| format!("{rule} = {value}\n")).collect();
        format!("about = \"drawn\"\nparent = \"{}\"\n\n[rules]\n{rules}", self.variant)
    }

    /// The plan of the case; its files are written into a directory.
    ///
    /// # Errors
    /// Why it cannot run, as the command line says it.
    pub fn plan(&self, directory: &Path) -> Result<Plan, String> {
        let write = |name: &str, text: String| {
            let file = directory.join(name);
            fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
            Ok::<_, String>(file.display().to_string())
        };
        let machine = write(MACHINE, self.machine())?;
        let variant = write(VARIANT, self.variant_file())?;
        let seeds = Seeds::around([self.seed]).expect("one seed");
        let request = evidence::request(self.experiment.clone(), Vec::new(), seeds, Some(1), directory.join("result"));
        let sets = self.sets.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = Request { machine: Some(machine), variants: vec![variant], sets, out: None, ..request };
        Plan::new(&request, |_| Accelerator::Tcg).map_err(|error| error.to_string())
    }

    /// Runs it in this process. A mistake of the simulator panics.
    ///
    /// # Errors
    /// Why it cannot run.
    pub fn run(&self, directory: &Path) -> Result<Ran, String> {
        let plan = self.plan(directory)?;
        let mut ran = Ran::default();
        for session in &plan.sessions {
            let Place::Sim { variant, start, twin_of, .. } = &session.place else { continue };
            let machine = simulated::with_settings(session.machine.clone(), &session.settings);
            for key in &session.keys {
                let order =
                    run::sim_order((&plan, session), (variant, start, twin_of.as_ref()), &machine, directory, key);
                let mut trial = Trial { faults: self.faults, check_every: self.check_every, ..Trial::default() };
                match cell::try_out(&order, &mut trial) {
                    Ok(()) => ran.cells += 1,
                    Err(problem) => drop(ran.without_result.insert(problem)),
                }
                ran.faults += trial.made;
                for (event, count) in trial.counters.iter().flat_map(Counters::iter) {
                    *ran.events.entry(event.name().to_owned()).or_default() += count;
                }
            }
        }
        Ok(ran)
    }

    /// The case with only those rules and settings that can be had together, each added to those before; none where it cannot
    /// run without them all.
    pub fn runnable(&self, directory: &Path) -> Option<Self> {
        if self.plan(directory).is_ok() {
            return Some(self.clone());
        }
        let is_setting = |(name, _): &(&String, &String)| crate::workload::is_setting(name);
        let (settings, params): (Vec<_>, Vec<_>) = self.sets.iter().partition(is_setting);
        let params = params.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut case = Self { rules: BTreeMap::new(), sets: params, ..self.clone() };
        case.plan(directory).ok()?;
        let rules = self.rules.iter().map(|it| (true, it));
        for (is_rule, (name, value)) in rules.chain(settings.into_iter().map(|it| (false, it))) {
            let mut next = case.clone();
            let all = if is_rule { &mut next.rules } else { &mut next.sets };
            all.insert(name.clone(), value.clone());
            if next.plan(directory).is_ok() {
                case = next;
            }
        }
        Some(case)
    }

    /// Cases that are one step smaller.
    pub fn smaller(&self) -> Vec<Self> {
        smaller::of(self)
    }
}

/// Names of all events that a swarm may reach.
pub fn events() -> impl Iterator<Item = &'static str> {
    Event::ALL.iter().map(|event| event.name())
}

/// The files of a case.
const MACHINE: &str = "drawn.machine.toml";
const VARIANT: &str = "drawn.toml";

#[cfg(test)]
mod tests;
