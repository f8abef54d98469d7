//! Choice of targets: held to the rule that named machines, kernels and options never lead to the host by accident.

use std::collections::BTreeSet;

use units::{Bytes, setting::SETTINGS};

use super::*;
use crate::{
    evidence,
    plan::{Place, Plan, Seeds},
    source::{self, Kind},
};

/// An option as a change of a request, and what it means.
struct Given {
    name: String,
    change: Box<dyn Fn(&mut Request)>,
    /// No run with it is on this machine's kernel, unless `--target host` is said.
    is_named: bool,
}

fn request(experiment: &str) -> Request {
    let request = evidence::request(experiment.to_owned(), Vec::new(), Seeds::up_to(1), None, "result".into());
    Request { targets: Vec::new(), out: None, ..request }
}

/// Every option of `run` that could have a part in where a run goes.
fn options() -> Vec<Given> {
    let given = |name: &str, is_named: bool, change: fn(&mut Request)| Given {
        name: name.to_owned(),
        change: Box::new(change),
        is_named,
    };
    let replayable = |request: &mut Request| {
        request.accelerator = AcceleratorChoice::InTurn(vec![Accelerator::Replayable { shift: 4 }]);
    };
    let mut options = vec![
        given("--machine", true, |request| request.machine = Some("one-node-512m".to_owned())),
        given("--machine FILE", true, |request| request.machine = Some("./mine.toml".to_owned())),
        given("--variant", true, |request| request.variants = vec!["v6.1".to_owned()]),
        given("--variant host", true, |request| request.variants = vec!["host".to_owned()]),
        given("--column", true, |request| request.columns = vec!["4.1-rc2+0".to_owned()]),
        given("--state fresh", true, |request| request.state = Some(FRESH.to_owned())),
        given("--state kernel", true, |request| request.state = Some(KERNEL.to_owned())),
        given("--state RECIPE", true, |request| request.state = Some("metadata+anon".to_owned())),
        given("--state FILE", true, |request| request.state = Some("./mine.state".to_owned())),
        given("--kernel", true, |request| request.kernels = vec!["6.1".to_owned()]),
        given("--accel", true, |request| request.accelerator = AcceleratorChoice::InTurn(vec![Accelerator::Tcg])),
        given("--replayable", true, replayable),
        given("--target sim", true, |request| request.targets.push(Sim)),
        given("--target vm", true, |request| request.targets.push(Vm)),
        given("--trace", false, |request| request.trace = true),
        given("--map", false, |request| (request.sample, request.map) = ("1s".parse().ok(), true)),
        given("--sample", false, |request| request.sample = "1s".parse().ok()),
        given("--causes", false, |request| request.causes = true),
        given("--memory", false, |request| request.memory = Some(Bytes::mib(64))),
        given("--drop-caches", false, |request| request.drop_caches = true),
        given("--seeds", false, |request| request.seeds = Seeds::up_to(3)),
        given("--set of a parameter", false, |request| request.sets.push("size=2MiB".to_owned())),
    ];
    options.extend(SETTINGS.iter().map(|setting| Given {
        name: format!("--set {}", setting.name),
        change: Box::new(|request| request.sets.push(format!("{}={}", setting.name, setting.default))),
        is_named: setting.real != Real::File,
    }));
    options
}

fn experiments() -> Vec<Experiment> {
    let names = source::names(Kind::Experiment);
    let all: Vec<_> = names.iter().map(|name| Experiment::load(name).expect("it is built in")).collect();
    assert!(all.len() >= 30 && all.iter().any(|known| known.targets.iter().any(|target| target == "host")));
    all
}

/// All experiments, and each option with each.
#[test]
fn what_is_named_never_leads_to_this_machines_kernel() {
    let options = options();
    let mut on_host = 0;
    for experiment in experiments() {
        for (at, first) in options.iter().enumerate() {
            for second in &options[at..] {
                let mut asked = request(&experiment.name);
                (first.change)(&mut asked);
                (second.change)(&mut asked);
                let who = format!("{} {} {}", experiment.name, first.name, second.name);
                let is_named = first.is_named || second.is_named;
                let Ok(Chosen { targets, by_name }) = choose(&asked, &experiment) else { continue };
                assert!(!targets.is_empty() && targets.is_sorted(), "{who}");
                assert_eq!(by_name, is_named, "{who}: what is named must be had");
                let is_its_own = experiment.targets.iter().any(|target| target == Host.name());
                assert_eq!(targets.contains(&Host), is_its_own && !is_named, "{who}: {targets:?}");
                on_host += usize::from(targets.contains(&Host));
                let named = |target| asked.targets.is_empty() || asked.targets.contains(&target);
                assert!(!is_named || targets.iter().all(|target| named(*target)), "{who}: {targets:?}");
            }
        }
    }
    assert!(on_host > 1000, "without such an option the experiment says where: {on_host}");
}

/// The cells that are planned, and not only where they might go.
#[test]
fn a_plan_for_named_targets_has_no_host_cell() {
    for experiment in experiments() {
        // Those that can run there: the grid of each is cheap.
        if !experiment.targets.iter().any(|target| target == Host.name()) {
            continue;
        }
        for option in ["--machine", "--variant", "--state fresh", "--set slab.allocator", "--set page_alloc.shuffle"] {
            let mut asked = request(&experiment.name);
            let all = options();
            let given = all.iter().find(|given| given.name == option).expect("it is an option");
            (given.change)(&mut asked);
            asked.machine.get_or_insert_with(|| "four-socket-8g".to_owned());
            let plan = Plan::new(&asked, |_| panic!("no guest was asked for"));
            match plan {
                Ok(plan) => {
                    let is_simulated = |place: &Place| matches!(place, Place::Sim { twin_of: None, .. });
                    assert!(plan.sessions.iter().all(|session| is_simulated(&session.place)), "{option}");
                    assert_eq!((plan.on_host(&BTreeSet::new()), plan.asked.targets.as_slice()), (None, &[Sim][..]));
                    assert!(plan.sessions.iter().all(|session| Some(&session.machine.name) == asked.machine.as_ref()));
                }
                Err(error) => {
                    let problem = error.to_string();
                    assert!(problem.contains("memory") || problem.contains("huge"), "{problem}");
                }
            }
        }
    }
}

#[test]
fn options_mean_targets() {
    let chosen = |experiment: &str, names: &[&str]| {
        let mut asked = request(experiment);
        let all = options();
        for name in names {
            (all.iter().find(|given| given.name == *name).expect("an option").change)(&mut asked);
        }
        choose(&asked, &Experiment::load(experiment).unwrap())
            .map(|chosen| chosen.targets)
            .map_err(|error| error.to_string())
    };
    let is = |names: &[&str], targets: &[Target]| {
        assert_eq!(chosen("fork-storm", names).as_deref(), Ok(targets), "{names:?}");
    };
    is(&[], &[Host, Vm, Sim]);
    is(&["--sample", "--map"], &[Host, Vm, Sim]);
    is(&["--memory"], &[Host, Vm, Sim]);
    is(&["--machine"], &[Sim]);
    is(&["--machine", "--target vm"], &[Vm]);
    is(&["--machine", "--kernel"], &[Vm]);
    is(&["--set slab.allocator"], &[Sim]);
    is(&["--set vm.swappiness"], &[Host, Vm, Sim]);
    is(&["--replayable", "--target vm", "--target sim"], &[Vm, Sim]);
    is(&["--state kernel"], &[Vm, Sim]);
    is(&["--state kernel", "--machine"], &[Vm, Sim]);
    assert_eq!(chosen("thpscale", &[]).as_deref(), Ok(&[Vm, Sim][..]));
    assert_eq!(chosen("thpscale", &["--kernel"]).as_deref(), Ok(&[Vm][..]));
    assert_eq!(chosen("thpfioscale", &["--replayable"]).as_deref(), Ok(&[Vm][..]));
    let refused = |names: &[&str], message: &str| assert_eq!(chosen("thpscale", names).unwrap_err(), message);
    refused(&["--kernel", "--map"], "--map is for target sim, which --kernel leaves out");
    refused(&["--target sim", "--accel"], "--accel is for target vm, which --target leaves out");
    refused(&["--target vm", "--state fresh"], "--state is for target sim, which --target leaves out");
    refused(&["--machine", "--memory"], "--memory is for target host, which --machine leaves out");
    refused(&["--drop-caches"], "--drop-caches is for target host, which experiment thpscale leaves out");
    let alone = "--variant is for target sim alone; a twin has the rules of its kernel";
    refused(&["--target vm", "--target sim", "--variant"], alone);
    refused(&["--variant", "--kernel"], "--variant is for target sim, which --kernel leaves out");
}

/// With `--target host` too, what is named is used or refused.
#[test]
fn beside_this_machines_kernel_nothing_that_is_named_is_ignored() {
    let message = |targets: &[Target], name: &str| {
        let mut asked = Request { targets: targets.to_vec(), ..request("fault-storm") };
        let all = options();
        (all.iter().find(|given| given.name == name).expect("an option").change)(&mut asked);
        Plan::new(&asked, |_| panic!("no guest is planned")).map(|_| ()).map_err(|error| error.to_string())
    };
    let machine = "--machine is for targets vm and sim";
    assert_eq!(message(&[Host], "--machine").unwrap_err(), format!("{machine}, which --target leaves out"));
    let twin = message(&[Host, Sim], "--machine").unwrap_err();
    assert_eq!(twin, format!("{machine}; beside host, sim is the twin of this machine"));
    let cases = [
        ("--variant", "--variant is for target sim"),
        ("--state RECIPE", "state metadata+anon: a recipe is for target sim alone"),
        ("--state kernel", "state kernel: a guest's, so it needs target vm"),
        ("--kernel", "--kernel is for target vm"),
        ("--replayable", "--replayable is for target vm"),
        ("--set slab.allocator", "--set slab.allocator: an option that the kernel was built with"),
        ("--set virtio_balloon.reporting", "--set virtio_balloon.reporting: a guest's"),
    ];
    for (name, begins) in cases {
        for targets in [&[Host][..], &[Host, Sim]] {
            let problem = message(targets, name).unwrap_err();
            assert!(problem.starts_with(begins), "{name}: {problem}");
        }
    }
    assert!(message(&[Host], "--state fresh").unwrap_err().starts_with("--state is for target sim"));
}
