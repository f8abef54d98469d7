//! `pagelab list`: names and one line each, aligned.

use std::collections::BTreeSet;

use lab::{
    counted::CountedBy,
    experiment::{Cost, Experiment},
    source::{self, Kind},
    workload::OfferedParam,
};
use units::setting::{SETTINGS, Setting, Sim};

use crate::args::Listed;

/// What `pagelab list` prints, also what it leaves out by default if `all`.
pub(crate) fn text(what: Listed, all: bool) -> String {
    match what {
        Listed::Variants => variants(),
        Listed::Rules => rules(),
        Listed::Machines => files(Kind::Machine, all),
        Listed::Experiments => experiments(all),
        Listed::Workloads => workloads(),
        Listed::Settings => columns(SETTINGS.iter().map(|line| (line.name.to_owned(), setting(line)))),
        Listed::Counters => counters(),
        Listed::Kernels => kernels(),
    }
}

/// A setting's effect and range, its value where nobody sets it, the release that it came with, and where it acts.
fn setting(setting: &Setting) -> String {
    let since = setting.came_with().map_or_else(String::new, |release| format!("; since {release}"));
    let sim = if setting.sim == Sim::No { "; not in the simulator" } else { "" };
    format!("{}: {}; {} if not set{since}{sim}", setting.about, setting.takes.expects(), setting.default)
}

fn files(kind: Kind, all: bool) -> String {
    let about = |file: source::Listed| {
        let serves = file.serves.map_or(String::new(), |serves| format!(" (for {serves})"));
        (file.name, file.about + &serves)
    };
    columns(source::list(kind).into_iter().filter(|file| all || file.serves.is_none()).map(about))
}

/// Name, cost and question of each experiment, and below which processor the costs are of.
fn experiments(all: bool) -> String {
    let mut processors = BTreeSet::new();
    let rows: Vec<_> = source::list(Kind::Experiment)
        .into_iter()
        .filter(|file| all || file.serves.is_none())
        .map(|file| {
            let cost = Experiment::load(&file.name).ok().and_then(|experiment| experiment.cost);
            let serves = file.serves.map_or(String::new(), |serves| format!(" (for {serves})"));
            let seconds = cost.as_ref().map_or("-".to_owned(), seconds);
            processors.extend(cost.map(|cost| cost.processor));
            (file.name, format!("{seconds:>8}  {}{serves}", file.about))
        })
        .collect();
    if processors.is_empty() {
        return files(Kind::Experiment, all);
    }
    let processors: Vec<_> = processors.into_iter().collect();
    let note = format!(
        "\nIn front: CPU time of one seed on sim, on {}. N seeds take N times that, over the CPUs that there are;\n\
         -: not measured, or not simulated.\n",
        processors.join(" or ")
    );
    columns(rows) + &note
}

/// The cost in seconds.
fn seconds(cost: &Cost) -> String {
    match cost.cpu_ms {
        ms @ ..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        ms => format!("{} s", ms / 1000),
    }
}

/// For the help of `run`: each experiment with what a seed of it takes.
pub(crate) fn costs() -> String {
    let listed = source::list(Kind::Experiment).into_iter().filter(|file| file.serves.is_none());
    let cost = |name: &str| Some(seconds(&Experiment::load(name).ok()?.cost?));
    let costs = listed.filter_map(|file| Some(format!("{} {}", file.name, cost(&file.name)?)));
    costs.collect::<Vec<_>>().join(", ")
}

fn columns(rows: impl IntoIterator<Item = (String, String)>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, about)| format!("{name:width$}  {about}").trim_end().to_owned() + "\n").collect()
}

fn variants() -> String {
    let rows = lab::variant::list().into_iter().flat_map(|(name, lines)| {
        let names = [name].into_iter().chain(std::iter::repeat(String::new()));
        names.zip(lines).collect::<Vec<_>>()
    });
    columns(rows)
}

/// Rules below the heading of their mechanism.
fn rules() -> String {
    let section = |(heading, rules): (&str, Vec<(&str, String)>)| {
        let rows = rules.into_iter().map(|(name, about)| (format!("  {name}"), about));
        format!("{heading}\n{}", columns(rows))
    };
    lab::variant::sections().into_iter().map(section).collect::<Vec<_>>().join("\n")
}

/// Services, which are files that run as they are, and below them the workloads that experiments have, with their parameters.
fn workloads() -> String {
    let services = source::list(Kind::Workload).into_iter().map(|file| (format!("  {}", file.name), file.about));
    let mut text =
        format!("services: pagelab run NAME, or a file of your own (docs/services.md)\n{}\n", columns(services));
    for workload in lab::workload::all().into_iter().filter(|workload| workload.name != "service") {
        text += &format!("{}  {}\n", workload.name, workload.about);
        let rows = workload.params().into_iter().map(|OfferedParam { info, only }| {
            let only = only.map_or(String::new(), |only| format!(" (only with {only})"));
            let about = format!("{}: {} [default: {}]{only}", info.about, info.expects, info.default);
            (format!("  {}", info.name), about)
        });
        text += &columns(rows);
    }
    text
}

fn counters() -> String {
    let by = |by: CountedBy| match by {
        CountedBy { sim: true, host: true } => "sim, and the kernel of this machine",
        CountedBy { sim: true, .. } => "sim",
        CountedBy { .. } => "the kernel of this machine",
    };
    columns(lab::counted::all().into_iter().map(|(name, counted_by)| (name, by(counted_by).to_owned())))
}

fn kernels() -> String {
    match linux::kernel_image::list_cached() {
        Ok(releases) if releases.is_empty() => "none; `cargo xtask kernel 6.1` fetches one\n".to_owned(),
        Ok(releases) => releases.iter().map(|release| format!("{release}\n")).collect(),
        Err(error) => format!("{error}\n"),
    }
}
