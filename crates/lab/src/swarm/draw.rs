//! The draw of a case: each choice is the hash of the seed, the case's number and the name of what is chosen.

use std::collections::BTreeMap;

use rules::variant::{Takes as RuleTakes, Variant};
use sim::Faults;
use units::{
    Picos, Time,
    setting::{self, SETTINGS, Setting, Sim, Takes},
};

use super::{Case, Node};
use crate::{
    dice::Dice,
    source::{self, Kind},
};

/// A workload, and values of its parameters. Sizes are such that a case takes about a second.
struct Drawn {
    experiment: &'static str,
    /// Chances beside the others'.
    weight: u64,
    params: &'static [(&'static str, &'static [&'static str])],
}

const ADVISE: (&str, &[&str]) = ("advise", &["no", "yes"]);
const MODEL: (&str, &[&str]) = ("model", &["threads", "processes"]);
const TASKS: (&str, &[&str]) = ("tasks", &["1", "2", "5"]);
const STORM: (&str, &[&str]) = ("size", &["2MiB", "8MiB", "20MiB"]);
const PARTS: &[&str] = &["5%", "20%", "60%", "90%", "110%", "150%"];
/// Balancing begins before a short program ends.
const SCAN_DELAY: (&str, &[&str]) = ("kernel.numa_balancing_scan_delay_ms", &["1", "20"]);
const BALANCING: (&str, &[&str]) = ("kernel.numa_balancing", &["1"]);

const WORKLOADS: &[Drawn] = &[
    Drawn {
        experiment: "thpscale",
        weight: 4,
        params: &[("threads", &["1", "2", "4"]), ("size", PARTS), ADVISE, ("file", &["yes", "no"])],
    },
    Drawn { experiment: "thpcompact", weight: 1, params: &[("threads", &["1", "3"]), ("size", PARTS), ADVISE] },
    Drawn {
        experiment: "thpfioscale",
        weight: 1,
        params: &[
            ("threads", &["1", "2"]),
            ("jobs", &["1", "3"]),
            ("total", &["50%", "110%"]),
            ("size", PARTS),
            ADVISE,
        ],
    },
    Drawn {
        experiment: "aged-fault",
        weight: 2,
        params: &[("aged", &["40%", "80%", "95%"]), ("size", &["5%", "30%", "60%"]), ADVISE],
    },
    Drawn {
        experiment: "slab-churn",
        weight: 2,
        params: &[
            ("aged", &["40%", "80%"]),
            ("file", &["4KiB", "16KiB"]),
            ("writers", &["1", "4"]),
            ("total", &["5%", "15%"]),
            ("size", &["5%", "20%"]),
            ADVISE,
        ],
    },
    Drawn {
        experiment: "small-files",
        weight: 2,
        params: &[
            ("file", &["4KiB", "64KiB", "1MiB"]),
            ("writers", &["1", "4"]),
            ("total", &["50%", "110%"]),
            ("size", &["5%", "30%"]),
            ADVISE,
        ],
    },
    Drawn {
        experiment: "fault-storm",
        weight: 2,
        params: &[("page", &["base", "huge"]), MODEL, TASKS, ("iterations", &["1", "3"]), STORM],
    },
    Drawn {
        experiment: "fork-storm",
        weight: 2,
        params: &[("page", &["base", "huge"]), ("iterations", &["1", "3"]), STORM],
    },
    Drawn { experiment: "page-fault2", weight: 1, params: &[MODEL, TASKS, ("iterations", &["1", "3"]), STORM] },
    Drawn { experiment: "page-fault3", weight: 1, params: &[MODEL, TASKS, ("iterations", &["1", "3"]), STORM] },
    Drawn {
        experiment: "numa01",
        weight: 2,
        params: &[("size", &["16MiB"]), ("threads", &["2"]), ("rounds", &["2%", "20%"]), BALANCING, SCAN_DELAY],
    },
    Drawn {
        experiment: "numa-probe",
        weight: 1,
        params: &[
            ("size", &["8MiB"]),
            ("rounds", &["20", "300"]),
            ("load", &["0", "60"]),
            ("held", &["0", "50"]),
            BALANCING,
            SCAN_DELAY,
        ],
    },
    Drawn { experiment: "guest-footprint", weight: 2, params: &[("size", &["40%", "70%"]), ADVISE] },
];

/// Settings that each case has; others come by chance.
const ALWAYS: [&str; 2] = [setting::THP_ENABLED, setting::THP_DEFRAG];
/// On average one setting in ten, and one rule in 40, is drawn for a case.
const SETTINGS_RARE: u64 = 10;
const RULES_RARE: u64 = 40;
/// Steps between two walks over all frames.
const CHECK_EVERY: u64 = 4001;

/// Case `number` of a seed. Whether it can run is another question: [`Case::plan`] says so.
pub fn case(seed: &str, number: u64) -> Case {
    let seed = format!("swarm/{seed}");
    let dice = Dice { seed: &seed, number };
    let workload = dice.weighted("workload", WORKLOADS, |drawn| drawn.weight);
    let param = |(name, values): &(&str, &[&str])| {
        ((*name).to_owned(), (*dice.one_of(&format!("param {name}"), values)).to_owned())
    };
    let mut sets: BTreeMap<String, String> = settings(dice).collect();
    sets.extend(workload.params.iter().map(param));
    let is_numa = workload.experiment.starts_with("numa");
    let count = *dice.one_of("nodes", if is_numa { &[2, 2, 4] } else { &[1, 1, 2, 2, 4] });
    let node = |id: u64| Node {
        mib: *dice.one_of(&format!("memory {id}"), &[48, 96, 160, 256]),
        cpus: if id == 0 {
            *dice.one_of("cpus", &[1, 2, 3, 4])
        } else {
            *dice.one_of(&format!("cpus {id}"), &[0, 1, 2])
        },
    };
    let nodes: Vec<Node> = (0..count).map(node).collect();
    let memory: u64 = nodes.iter().map(|node| node.mib).sum();
    let variants = source::names(Kind::Variant);
    Case {
        swap_mib: *dice.one_of("swap", &[0, 16, memory, 2 * memory]),
        nodes,
        is_guest: workload.experiment == "guest-footprint",
        variant: dice.one_of("variant", &variants).clone(),
        rules: rules(dice),
        experiment: workload.experiment.to_owned(),
        sets,
        seed: 1 + dice.below("seed", 1000),
        faults: faults(dice),
        check_every: CHECK_EVERY,
    }
}

/// Settings of the simulator, extremes often.
fn settings(dice: Dice<'_>) -> impl Iterator<Item = (String, String)> {
    let is_drawn = move |setting: &&Setting| {
        setting.sim == Sim::Yes
            && (ALWAYS.contains(&setting.name) || dice.below(&format!("whether {}", setting.name), SETTINGS_RARE) == 0)
    };
    SETTINGS.iter().filter(is_drawn).filter_map(move |setting| {
        let name = setting.name;
        let value = match setting.takes {
            Takes::Number(least, most) => number(dice, name, (least, most)).to_string(),
            Takes::Word(words) => (*dice.one_of(name, words)).to_owned(),
            Takes::Size(_) | Takes::Numbers => return None,
        };
        Some((name.to_owned(), value))
    })
}

/// A number of a range: its ends, the middle, or something of the size of its lesser end.
fn number(dice: Dice<'_>, name: &str, (least, most): (i64, i64)) -> i64 {
    let middle = least + (most - least) / 2;
    let near = least.saturating_add(i64::try_from(dice.below(&format!("{name} near"), 1000)).expect("small")).min(most);
    *dice.one_of(name, &[least, most, middle, near, near])
}

fn rules(dice: Dice<'_>) -> BTreeMap<String, String> {
    let is_drawn = |name: &str| dice.below(&format!("whether rule {name}"), RULES_RARE) == 0;
    let drawn = Variant::RULES.iter().filter(|rule| is_drawn(rule.name)).filter_map(|rule| {
        let value = match rule.takes {
            RuleTakes::Switch => (*dice.one_of(rule.name, &["true", "false"])).to_owned(),
            RuleTakes::Words(words) => format!("{:?}", dice.one_of(rule.name, words)),
            _ => return None,
        };
        Some((rule.name.to_owned(), value))
    });
    drawn.collect()
}

/// Faults of one case in two, each kind of them in one of two.
fn faults(dice: Dice<'_>) -> Faults {
    if dice.below("faults", 2) == 0 {
        return Faults::default();
    }
    let some = |what: &str, values: &[u64]| {
        if dice.below(what, 2) == 0 { 0 } else { *dice.one_of(&format!("{what} every"), values) }
    };
    let few = |what: &str, values: &[u64]| u32::try_from(some(what, values)).expect("a small number");
    Faults {
        alloc_every: some("alloc", &[2, 7, 101, 2003]),
        move_every: few("move", &[1, 3, 50]),
        request_every: few("request", &[2, 17, 300]),
        disk_slowdown: few("slowdown", &[10, 1000]),
        wake_every: some("wake", &[1, 2, 10]),
        wake_delay: Picos::from_millis(*dice.one_of("delay", &[1, 50, 2000])),
        until: Time(0) + Picos::from_millis(*dice.one_of("until", &[1, 20, 500, 5000])),
    }
}
