//! What is said before and after short tables: in few lines of 80 columns what was compared, and what is not as it should be.

use std::collections::{BTreeMap, BTreeSet};

use report::{
    Published, Target, WIDTH,
    short::text::{fit, fold, list},
};

use super::{
    head::flat,
    rules,
    shown::{ONLY_SIM, Shown},
    tail::failed_check,
    zones::ZoneTables,
};
use crate::{plan::Start, prices, suggest};

/// Lines of the header.
const HEAD: usize = 5;
/// Lines of each kind after the tables; more are counted.
const LINES: usize = 4;

/// The lines before the tables: at most five on columns, what they stand beside, and what prices and distances are worth; then
/// what is to be known of rules.
pub(super) fn head(shown: &Shown) -> String {
    let about = shown.presentation.about.as_ref().map_or_else(String::new, |about| format!(": {about}"));
    let mut what = fold(&format!("{}{about}", shown.experiment), WIDTH);
    let places = places(shown);
    let prices = shown.simulated.first().map(|first| {
        let prices::Kinds { fitted, measured, assumed } = prices::kinds(&first.prices);
        let kinds = format!("prices: {fitted} fitted, {measured} measured, {assumed} assumed");
        // A command is whole or not there.
        let line = format!("{kinds}: {}", suggest::command(["trust", shown.asked_experiment()]));
        if line.chars().count() <= WIDTH { line } else { kinds }
    });
    // The published title and what is about the experiment take more than one line where there is room, in this order.
    let flat = flat(shown);
    let others = places.len() + usize::from(prices.is_some()) + usize::from(flat.is_some());
    let mut published = shown.published.as_ref().map(published_lines).unwrap_or_default();
    if 1 + others + published.len() > HEAD {
        published = shown.published.iter().map(published_line).collect();
    }
    if what.len() + others + published.len() > HEAD {
        what = vec![fit(&format!("{}{about}", shown.experiment), WIDTH)];
    }
    let rules = rules::lines(&shown.simulated);
    let all = what.into_iter().chain(places).chain(published).chain(prices).chain(flat).chain(rules);
    text(all.map(|line| fit(&line, WIDTH)).collect())
}

/// Who published the tables, and where: as many lines as it takes.
fn published_lines(published: &Published) -> Vec<String> {
    fold(&format!("{} {:?}", published_by(published), published.source.title), WIDTH)
}

/// The same in one line: what of the title has no room is left out, within its quotes.
fn published_line(published: &Published) -> String {
    let by = published_by(published);
    let room = WIDTH.saturating_sub(by.chars().count() + 3);
    format!("{by} {:?}", fit(&published.source.title, room))
}

fn published_by(Published { name, source, .. }: &Published) -> String {
    format!("published ({name}): {}, {},", source.author, source.date)
}

/// One line for each target: its columns, machines, seeds, and memory at the start.
fn places(shown: &Shown) -> Vec<String> {
    let mut lines = Vec::new();
    for target in [Target::Host, Target::Vm, Target::Sim] {
        let cells = || shown.cells.iter().filter(|cell| cell.key.target == target);
        let Some(first) = cells().next() else { continue };
        let mut kernels: Vec<&str> = Vec::new();
        for cell in cells() {
            if !kernels.contains(&cell.key.kernel.as_str()) {
                kernels.push(&cell.key.kernel);
            }
        }
        let machines: BTreeSet<&str> = cells().map(|cell| cell.key.machine.as_str()).collect();
        let machines = machines.into_iter().collect::<Vec<_>>().join(", ");
        let seeds: BTreeSet<u64> = cells().map(|cell| cell.key.seed).collect();
        let seeds = match (seeds.first(), seeds.last()) {
            (Some(first), Some(last)) if first != last => format!("seeds {first}-{last}"),
            _ => format!("seed {}", first.key.seed),
        };
        let start = shown.simulated.iter().map(|what| &what.start).filter(|_| target == Target::Sim);
        let start = start.map(Start::name).map(|name| format!(", {name}")).next().unwrap_or_default();
        let under = shown.systems.iter().filter(|system| system.target == target);
        let under = under.filter_map(|system| system.accelerator.as_ref()).map(|name| format!(", {name}")).next();
        let before = format!("{target}, {machines}{}{start}, {seeds}: ", under.unwrap_or_default());
        lines.push(list(&before, &stem_once(&kernels), WIDTH));
    }
    lines
}

/// The names of kernels; all but the first lose the stem before a `+` that every name shares.
fn stem_once(kernels: &[&str]) -> Vec<String> {
    let stem = kernels.first().and_then(|first| Some(first.split_once('+')?.0)).unwrap_or_default();
    let all = !stem.is_empty() && kernels.iter().all(|kernel| kernel.split('+').next() == Some(stem));
    let short = |(at, kernel): (usize, &&str)| kernel[if all && at > 0 { stem.len() } else { 0 }..].to_owned();
    kernels.iter().enumerate().map(short).collect()
}

/// What is not as it should be, what is not there, and what one run is worth.
pub(super) fn tail(shown: &Shown) -> String {
    let rows = shown.report.checks.iter().flat_map(|table| &table.rows);
    let failed: Vec<String> = rows.filter(|row| row.failed()).map(|row| failed_check(shown, row)).collect();
    let mut lines = some(&failed);
    lines.extend(some(&skipped(shown)));
    if shown.missing > 0 {
        lines.push(format!("missing: {} cells have no result yet", shown.missing));
    }
    if shown.cells.iter().any(|cell| !cell.measured.scored) {
        lines.push("not scored: in a given time two kernels do not do the same work".to_owned());
    }
    if shown.systems.iter().any(|system| system.target == Target::Vm && system.accelerator.as_deref() != Some("kvm")) {
        lines.push("under QEMU's translation counters are the kernel's; times are not".to_owned());
    }
    let seeds: BTreeSet<u64> = shown.cells.iter().map(|cell| cell.key.seed).collect();
    if seeds.len() == 1 {
        lines.push("one seed: what a single run shows may be luck; --seeds 8 says how much".to_owned());
    }
    let lines = lines.iter().map(|line| fit(line, WIDTH)).collect::<Vec<_>>();
    if lines.is_empty() { String::new() } else { format!("\n{}", text(lines)) }
}

/// Of many lines some, and how many more there are.
fn some(all: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = all.iter().take(LINES).cloned().collect();
    if let Some(more) = all.len().checked_sub(LINES).filter(|more| *more > 0) {
        let kind = all[0].split(':').next().unwrap_or_default();
        lines.push(format!("{kind}: {more} more (--full names them)"));
    }
    lines
}

/// One line for each reason: how many measurements were skipped for it.
fn skipped(shown: &Shown) -> Vec<String> {
    let mut lines: Vec<String> =
        shown.skipped.iter().map(|skip| format!("skipped: {} {}: {}", skip.target, skip.what, skip.reason)).collect();
    lines.extend(shown.without_causes.iter().map(|target| format!("skipped: {target} time by cause: {ONLY_SIM}")));
    let mut counts: BTreeMap<(Target, &str), (BTreeSet<&str>, &str, usize)> = BTreeMap::new();
    for cell in &shown.cells {
        for skip in &cell.measured.skipped {
            let reason = skip.reason.as_str();
            // Each counter that is too noisy has a reason with numbers of its own.
            let why = if skip.what.starts_with("vmstat ") { "" } else { reason };
            let place = (cell.key.target, why);
            let (whats, _, count) = counts.entry(place).or_insert((BTreeSet::new(), reason, 0));
            whats.insert(&skip.what);
            *count += 1;
        }
    }
    for ((target, _), (whats, reason, count)) in counts {
        let whats = whats.into_iter().collect::<Vec<_>>();
        lines.push(match (whats.as_slice(), count) {
            ([what], 1) => format!("skipped: {target} {what}: {reason}"),
            ([what], count) => format!("skipped: {target} {what} in {count} cells: {reason}"),
            (whats, _) => format!("skipped: {target} {}, such as {}: {reason}", whats.len(), whats[0]),
        });
    }
    lines
}

/// Whether every figure of every zone is the kernel's: one line, and one for each system where that is not so.
pub(super) fn zones(all: &[ZoneTables]) -> String {
    let mut lines: Vec<String> = all.iter().filter_map(ZoneTables::difference).collect();
    let equal = all.iter().filter(|zones| zones.is_real() && zones.difference().is_none()).count();
    if equal > 0 {
        let kernels = if equal == 1 { "1 kernel".to_owned() } else { format!("{equal} kernels") };
        lines.push(format!("zones: all marks and limits of {kernels} as computed here"));
    }
    text(lines.iter().map(|line| fit(line, WIDTH)).collect())
}

fn text(lines: Vec<String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}
