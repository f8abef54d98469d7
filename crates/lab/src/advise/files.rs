//! Files of a machine that runs: two captures of its /proc/vmstat, the time between them, and the machine.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use linux::procfs::{Capture, meminfo, version};
use units::Bytes;

use crate::{
    counted::{self, is_vmstat_gauge},
    import::{Collected, collect, import, snapshot},
    machine::Machine,
    mmtests::captures::{moved_on, vmstat},
    usage::UsageError,
};

/// Folders in folders that are looked into.
const DEPTH: usize = 4;
/// Files and folders that are looked at.
const ENTRIES_MAX: usize = 2000;
/// Less is no capture of another moment: rates of it would be noise.
const SECONDS_MIN: f64 = 1.0;
/// Counters without a counterpart that are named, the largest first.
const NAMED: usize = 3;
/// Events below this number are not named.
const NAMED_FROM: i64 = 1000;

/// A machine at work, by its own files.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    /// The machine, with the settings that it had.
    pub(super) machine: Machine,
    /// Seconds between the two captures.
    pub(super) seconds: f64,
    /// How far each counter of /proc/vmstat moved between them.
    pub(super) moved: BTreeMap<String, i64>,
    /// The gauges of the earlier capture, and of the later one.
    pub(super) levels: [BTreeMap<String, i64>; 2],
    /// All of the later capture.
    pub(super) last: BTreeMap<String, i64>,
    /// Bytes in swap, where a file says so.
    pub(super) in_swap: Option<u64>,
    /// Mechanisms that are not modelled and may matter, a sentence each.
    pub(super) not_modelled: Vec<String>,
}

/// Reads a folder; a machine file and the seconds between the captures may be given where the folder has neither.
///
/// # Errors
/// The captures are not two of one boot, the time between them is not known, or the machine is not modelled.
pub(super) fn read(from: &Path, machine: Option<&str>, seconds: Option<f64>) -> Result<Observed, UsageError> {
    if !from.is_dir() {
        return Err(UsageError::in_file(from.display(), "expected a folder with two captures of /proc/vmstat"));
    }
    let Captures { before, after, moved, levels, last } = two_captures(from)?;
    let seconds = match seconds {
        Some(seconds) => seconds,
        None => between(&before, &after)?,
    };
    if seconds < SECONDS_MIN {
        let problem = format!("{seconds} s lie between the captures; expected at least {SECONDS_MIN} s");
        return Err(UsageError::in_file(after.display(), problem));
    }
    let capture = files(from, [&after, &before])?;
    let mut machine = match machine {
        Some(name) => Machine::load(name, &linux::setting::names())?,
        None => of_files(from, &capture)?,
    };
    if machine.swap == Bytes(0) {
        machine.swap = swap(&capture);
    }
    let not_modelled = not_modelled(&capture, &moved);
    let in_swap = in_swap(&capture);
    Ok(Observed { machine, seconds, moved, levels, last, in_swap, not_modelled })
}

/// Values of /proc/vmstat by their names.
type Values = BTreeMap<String, i64>;

/// Two captures of /proc/vmstat of one boot.
struct Captures {
    before: PathBuf,
    after: PathBuf,
    /// How far counters moved.
    moved: Values,
    /// Gauges of both.
    levels: [Values; 2],
    /// All of the later one.
    last: Values,
}

/// The captures in a folder, the earlier one first.
fn two_captures(from: &Path) -> Result<Captures, UsageError> {
    let mut found = Vec::new();
    let mut left = ENTRIES_MAX;
    for path in walk(from, DEPTH, &mut left) {
        let is_named = path.to_string_lossy().contains("vmstat");
        let text = if is_named { fs::read(&path).unwrap_or_default() } else { Vec::new() };
        let text = linux::procfs::paste::plain(&String::from_utf8_lossy(&text));
        if text.lines().any(|line| line.starts_with("nr_free_pages ")) {
            let values = vmstat(&path, &text)?;
            found.push((path, values));
        }
    }
    let [one, other] = &found[..] else {
        let names: Vec<_> = found.iter().map(|(path, _)| path.display().to_string()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(UsageError::in_file(
            from.display(),
            format!(
                "expected two captures of /proc/vmstat, some time apart, such as vmstat.before and vmstat.after; found {names}"
            ),
        ));
    };
    let order = |before: &(PathBuf, Values), after: &(PathBuf, Values)| {
        let moved = moved_on((&before.0, &before.1), (&after.0, &after.1))?;
        let gauges = |(_, values): &(PathBuf, Values)| {
            let gauges = values.iter().filter(|(name, _)| is_vmstat_gauge(name));
            gauges.map(|(name, value)| (name.clone(), *value)).collect()
        };
        Ok(Captures {
            before: before.0.clone(),
            after: after.0.clone(),
            moved,
            levels: [gauges(before), gauges(after)],
            last: after.1.clone(),
        })
    };
    // Captures in which nothing moved are told apart by their time alone.
    let is_swapped = uptime(&one.0).zip(uptime(&other.0)).is_some_and(|(one, other)| one > other);
    let [one, other] = if is_swapped { [other, one] } else { [one, other] };
    order(one, other).or_else(|error| order(other, one).map_err(|_: UsageError| error))
}

/// Files below a folder, by name, without following links.
fn walk(folder: &Path, depth: usize, left: &mut usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| !path.is_symlink()).collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if *left == 0 {
            break;
        }
        *left -= 1;
        if path.is_file() {
            files.push(path);
        } else if depth > 0 && path.is_dir() {
            files.extend(walk(&path, depth - 1, left));
        }
    }
    files
}

/// Seconds between two captures, by copies of /proc/uptime beside them.
fn between(before: &Path, after: &Path) -> Result<f64, UsageError> {
    match (uptime(before), uptime(after)) {
        (Some(before), Some(after)) => Ok(after - before),
        _ => Err(UsageError::of_key(
            "--seconds",
            format!(
                "how much time lies between {} and {} is not known: say it with --seconds N, or put copies of /proc/uptime \
                 beside them (uptime.before beside vmstat.before)",
                before.display(),
                after.display()
            ),
        )),
    }
}

/// Seconds since the boot, by the copy of /proc/uptime beside a capture.
fn uptime(capture: &Path) -> Option<f64> {
    let name = capture.file_name()?.to_string_lossy().replace("vmstat", "uptime");
    let text = fs::read_to_string(capture.with_file_name(name)).ok()?;
    text.split_whitespace().next()?.parse::<f64>().ok().filter(|seconds| seconds.is_finite())
}

/// All files of /proc and /sys: of the folder itself, and of those in which the captures lie.
fn files(from: &Path, captures: [&PathBuf; 2]) -> Result<Capture, UsageError> {
    let mut all = Capture::default();
    let beside = captures.into_iter().filter_map(|capture| capture.parent());
    for folder in [from].into_iter().chain(beside) {
        if let Collected::Files(capture) = collect(folder)? {
            all.complete_with(capture);
        }
        for file in ["swaps", "proc/swaps", "cgroups", "proc/cgroups"] {
            let key = file.trim_start_matches("proc/");
            if let (false, Ok(text)) = (all.texts.contains_key(key), fs::read_to_string(folder.join(file))) {
                all.texts.insert(key.to_owned(), text);
            }
        }
    }
    Ok(all)
}

fn of_files(from: &Path, capture: &Capture) -> Result<Machine, UsageError> {
    let found = snapshot(capture).map_err(|problem| {
        UsageError::in_file(from.display(), format!("{problem}; or name a machine file with --machine"))
    })?;
    Ok(import(&found, "machine"))
}

/// The swap space that /proc/meminfo has.
fn swap(capture: &Capture) -> Bytes {
    let found = capture.text("meminfo").ok().and_then(|text| meminfo::parse(text).ok());
    Bytes::kib(found.and_then(|found| found.get("SwapTotal").copied()).unwrap_or(0))
}

/// Swap that is in use by /proc/meminfo.
fn in_swap(capture: &Capture) -> Option<u64> {
    let found = meminfo::parse(capture.text("meminfo").ok()?).ok()?;
    Some(Bytes::kib(found.get("SwapTotal")?.saturating_sub(*found.get("SwapFree")?)).0)
}

/// The release in the files.
pub(super) fn release(machine: &Machine) -> Option<(u32, u32)> {
    let text = format!("Linux version {}", machine.kernel.as_ref()?);
    version::parse(&text).ok().map(|release| (release.major, release.minor))
}

fn not_modelled(capture: &Capture, moved: &Values) -> Vec<String> {
    let has = |key: &str, word: &str| capture.text(key).is_ok_and(|text| text.contains(word));
    let meminfo = capture.text("meminfo").ok().and_then(|text| meminfo::parse(text).ok()).unwrap_or_default();
    let is_there = |name: &str| meminfo.get(name).is_some_and(|value| *value > 0);
    let mut said = Vec::new();
    let mut say = |is_so: bool, sentence: &str| {
        if is_so {
            said.push(sentence.to_owned());
        }
    };
    say(has("swaps", "zram"), "swap is on zram, whose memory and time are not modelled");
    say(is_there("Zswap"), "zswap keeps compressed pages, which are not modelled");
    say(is_there("HugePages_Total"), "pages of hugetlbfs are not modelled: their memory counts as free");
    let is_multi_gen =
        capture.texts.iter().any(|(key, text)| key.ends_with("lru_gen/enabled") && text.trim() != "0x0000");
    say(is_multi_gen, "the multi-generational LRU may be on; the classic one is modelled");
    let has_memcg = capture.text("cgroups").is_ok_and(|text| {
        text.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.first() == Some(&"memory") && words.get(2).and_then(|count| count.parse().ok()) > Some(1_u32)
        })
    });
    say(has_memcg, "memory cgroups are in use; their limits are not modelled");
    let known = counted::all();
    let mut unknown: Vec<(&String, &i64)> = moved
        .iter()
        .filter(|(name, moved)| **moved >= NAMED_FROM && known.get(*name).is_none_or(|counted| !counted.sim))
        .filter(|(name, _)| !is_of_node(name))
        .collect();
    unknown.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().take(NAMED).map(|(name, moved)| format!("{name} (+{moved})")).collect();
        let more = if unknown.len() > NAMED { format!(" and {} more", unknown.len() - NAMED) } else { String::new() };
        said.push(format!("counters that the simulator does not have moved: {}{more}", names.join(", ")));
    }
    said
}

/// Counters of local and remote allocations count what `pgalloc_*` counts.
fn is_of_node(name: &str) -> bool {
    ["numa_hit", "numa_local", "numa_other", "numa_interleave"].contains(&name)
}
