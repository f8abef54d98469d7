//! Cases that are one step smaller than a case that failed: the greatest steps first.

use sim::Faults;
use units::Picos;

use super::{Case, Node};

/// The least memory of a node, in MiB.
const LEAST_MIB: u64 = 16;

pub(super) fn of(case: &Case) -> Vec<Case> {
    let mut cases = Vec::new();
    if case.nodes.len() > 1 {
        cases.push(Case { nodes: case.nodes[..case.nodes.len() - 1].to_vec(), ..case.clone() });
    }
    if case.faults != Faults::default() {
        cases.push(Case { faults: Faults::default(), ..case.clone() });
        cases.extend(without_one(case.faults).into_iter().map(|faults| Case { faults, ..case.clone() }));
    }
    for rule in case.rules.keys() {
        let mut rules = case.rules.clone();
        rules.remove(rule);
        cases.push(Case { rules, ..case.clone() });
    }
    for set in case.sets.keys() {
        let mut sets = case.sets.clone();
        sets.remove(set);
        cases.push(Case { sets, ..case.clone() });
    }
    let halve = |node: &Node| Node { mib: (node.mib / 2).max(LEAST_MIB), ..*node };
    cases.push(Case { nodes: case.nodes.iter().map(halve).collect(), ..case.clone() });
    let one_cpu = |node: &Node| Node { cpus: node.cpus.min(1), ..*node };
    cases.push(Case { nodes: case.nodes.iter().map(one_cpu).collect(), ..case.clone() });
    cases.push(Case { swap_mib: case.swap_mib / 2, ..case.clone() });
    for (name, value) in &case.sets {
        let Some(half) = value.parse::<u64>().ok().map(|number| number / 2).filter(|half| *half > 0) else { continue };
        let mut sets = case.sets.clone();
        sets.insert(name.clone(), half.to_string());
        cases.push(Case { sets, ..case.clone() });
    }
    cases.retain(|smaller| smaller != case);
    cases
}

/// Faults of which one kind is left out.
fn without_one(faults: Faults) -> [Faults; 5] {
    [
        Faults { alloc_every: 0, ..faults },
        Faults { move_every: 0, ..faults },
        Faults { request_every: 0, ..faults },
        Faults { disk_slowdown: 0, ..faults },
        Faults { wake_every: 0, wake_delay: Picos(0), ..faults },
    ]
}
