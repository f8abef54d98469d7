//! Advice as text of 80 columns.

use report::{WIDTH, short::number_of, short::text::fold};
use units::Bytes;

use super::{Advice, BAR, CONFIRMED, Confirmed, judge, replay::Held};
use crate::suggest;

/// Counters that are printed beside the profile's.
const COUNTERS: usize = 14;
/// Width of the words that begin a line of a setting.
const HEAD: usize = 8;

/// Advice as text.
pub fn text(advice: &Advice) -> String {
    let mut lines = head(advice);
    lines.push(String::new());
    lines.extend(beside(advice));
    lines.push(String::new());
    if advice.is_given() {
        lines.extend(settings(advice));
        lines.extend(undecided(advice));
    } else {
        lines.extend(fold(
            &format!(
                "No advice: {:.0} % of the counters are within class, and below {BAR:.0} % a profile says too little of the \
                 machine. What would tell more: captures some minutes apart while it is slow, with zoneinfo, pagetypeinfo and \
                 meminfo; or a service's file of your own (docs/services.md).",
                advice.replay.share
            ),
            WIDTH,
        ));
    }
    lines.extend(not_modelled(advice));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn head(advice: &Advice) -> Vec<String> {
    let size = |bytes: u64| suggest_size(bytes);
    let demand = &advice.demand;
    let title = format!(
        "{}: Linux {}, {} of memory, {} CPUs, {:.0} s between the captures",
        advice.from.display(),
        advice.release,
        size(advice.memory),
        advice.cpus,
        advice.seconds
    );
    let mut lines = fold(&title, WIDTH);
    let huge = if demand.taken > 0 { format!(" ({:.0} % as huge pages)", 100.0 * demand.huge) } else { String::new() };
    let swapped = if demand.swapped > 0 { format!(", {} more in swap", size(demand.swapped)) } else { String::new() };
    let grown =
        if demand.grown > 0 { format!(" ({} of it since the first)", size(demand.grown)) } else { String::new() };
    lines.extend(fold(
        &format!(
            "{} anonymous{grown}{swapped}, {}/s taken anew{huge}; {} page cache, {}/s read, {}/s written",
            size(demand.anonymous),
            size(demand.taken),
            size(demand.caches[1]),
            size(demand.reads),
            size(demand.writes)
        ),
        WIDTH,
    ));
    lines.extend(fold(&format!("Profile {}: {}", advice.profile.name(), advice.profile.profile.about()), WIDTH));
    lines
}

fn suggest_size(bytes: u64) -> String {
    let mib = Bytes::mib(1).0;
    if bytes == 0 {
        "nothing".to_owned()
    } else if bytes < mib {
        format!("{} KiB", bytes >> 10)
    } else if bytes < 10 << 30 {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} GiB", bytes >> 30)
    }
}

/// The machine's counters beside its profile's.
fn beside(advice: &Advice) -> Vec<String> {
    let replay = &advice.replay;
    let holding = replay.counters.iter().filter(|held| held.holds).count();
    let mut lines = vec![format!("{:<30}{:>14}{:>14}", "Events each second", "the machine", "the profile")];
    let mut shown: Vec<&Held> = replay.counters.iter().collect();
    // The misses are what a reader has to know.
    shown.sort_by_key(|held| held.holds);
    for held in shown.into_iter().take(COUNTERS) {
        let word = if held.holds { "" } else { "  out of class" };
        let name = held.name.trim_end_matches('_');
        lines.push(format!("{name:<30}{:>14}{:>14}{word}", number_of(held.observed), number_of(held.ours)));
    }
    lines.extend(fold(
        &format!(
            "{holding} of {} counters are within class ({:.0} %, wanted {BAR:.0}): faults and allocations within a tenth, \
             reclaim and compaction within a factor of two",
            replay.counters.len(),
            replay.share
        ),
        WIDTH,
    ));
    lines
}

fn settings(advice: &Advice) -> Vec<String> {
    let about = advice.goal.about();
    let named = advice.helping();
    let tried = advice.screened.len();
    if named.is_empty() {
        return fold(
            &format!(
                "Nothing helps: none of {tried} values of settings makes the {about} better by {:.0} % and surely so.",
                judge::MATERIAL
            ),
            WIDTH,
        );
    }
    let seeds = CONFIRMED.1 - CONFIRMED.0 + 1;
    let mut lines = fold(
        &format!("Goal: {about}. Of {tried} values of settings, confirmed with {seeds} seeds of their own:"),
        WIDTH,
    );
    for (number, confirmed) in named.iter().enumerate() {
        lines.push(String::new());
        lines.extend(setting(advice, number + 1, confirmed));
    }
    lines
}

/// Settings that help in the nearest profile, and not in another that may be the machine's as well.
fn undecided(advice: &Advice) -> Vec<String> {
    let is_refuted = |confirmed: &&Confirmed| !confirmed.finding.helps && !confirmed.rivals.is_empty();
    let mut lines = Vec::new();
    for Confirmed { choice, finding, rivals } in advice.confirmed.iter().filter(is_refuted) {
        let rivals: Vec<String> =
            rivals.iter().map(|(name, change)| format!("{:+.0} % if it is {name}", change.percent)).collect();
        lines.extend(fold(
            &format!(
                "Cannot tell: {} = {}: {:+.0} % if the machine is {}, {}.",
                choice.name,
                choice.value,
                finding.change.percent,
                advice.profile.profile.name(),
                rivals.join(", ")
            ),
            WIDTH,
        ));
    }
    if !lines.is_empty() {
        lines.insert(0, String::new());
        lines.extend(fold("Captures some seconds apart would tell these profiles apart.", WIDTH));
    }
    lines
}

fn setting(advice: &Advice, number: usize, confirmed: &Confirmed) -> Vec<String> {
    let Confirmed { choice, finding, rivals } = confirmed;
    let now = choice.now.as_deref().map_or_else(String::new, |now| format!(" (now {now})"));
    let mut lines = fold(&format!("{number}. {} = {}{now}", choice.name, choice.value), WIDTH);
    let mut part = |head: &str, text: &str| {
        for (at, line) in fold(text, WIDTH - HEAD).into_iter().enumerate() {
            lines.push(format!("{:<HEAD$}{line}", if at == 0 { format!("   {head}") } else { String::new() }));
        }
    };
    let percent = |of: judge::Change| format!("{:+.0} % ({:+.0} to {:+.0})", of.percent, of.low, of.high);
    let also: String = rivals.iter().map(|(name, change)| format!("; if it is {name}, {}", percent(*change))).collect();
    part("gain", &format!("{}{also}", percent(finding.change)));
    let mut costs: Vec<String> =
        finding.costs.iter().map(|(name, change)| format!("{name} {}", percent(*change))).collect();
    if finding.kept_free_mib >= 1.0 {
        costs.push(format!("{:.0} MiB more stay free", finding.kept_free_mib));
    }
    part("cost", &if costs.is_empty() { "none that was found".to_owned() } else { costs.join("; ") });
    let mut reasons: Vec<String> = finding
        .time
        .iter()
        .map(|(cause, before, after)| format!("time in {cause} {} -> {} s", number_of(*before), number_of(*after)))
        .collect();
    let events = finding.reasons.iter();
    reasons
        .extend(events.map(|(name, before, after)| format!("{name} {} -> {}", number_of(*before), number_of(*after))));
    part("why", &if reasons.is_empty() { "no counter tells".to_owned() } else { reasons.join(", ") });
    let file = advice.out.join(format!("{}.toml", advice.profile.name()));
    let now = choice.now.as_ref().map_or_else(String::new, |now| format!("{now},"));
    let again = suggest::command([
        "run".to_owned(),
        super::as_path(&file),
        "--machine".to_owned(),
        super::as_path(&advice.out.join("machine.toml")),
        "--set".to_owned(),
        format!("{}={now}{}", choice.name, choice.value),
        "--seeds".to_owned(),
        "8".to_owned(),
    ]);
    // A command is not folded, so that it can be copied.
    lines.push(format!("{:<HEAD$}{again}", "   see"));
    lines
}

fn not_modelled(advice: &Advice) -> Vec<String> {
    if advice.not_modelled.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "Not modelled, and it may matter:".to_owned()];
    for sentence in &advice.not_modelled {
        for (at, line) in fold(sentence, WIDTH - 2).into_iter().enumerate() {
            lines.push(format!("{}{line}", if at == 0 { "- " } else { "  " }));
        }
    }
    lines
}
