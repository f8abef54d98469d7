//! Counters and times around a test: `tests-sysstate`, `tests-timestamp`, and captures of /proc/vmstat.

use std::{collections::BTreeMap, path::Path};

use report::{Duration, brief};

use crate::{counted::is_vmstat_gauge, usage::UsageError};

/// Counters that only rise while a kernel runs.
const RISING: [&str; 4] = ["pgfault", "pgfree", "pgpgin", "pgactivate"];

/// Counters and times that moved while a test ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Around {
    pub(super) counters: BTreeMap<String, i64>,
    pub(super) duration: Option<Duration>,
}

/// A mistake in a line of a file.
pub(super) fn wrong(file: &Path, line: usize, expected: &str, found: &str) -> UsageError {
    UsageError::new(format!(
        "{}:{line}: expected {expected}, found {}",
        file.display(),
        brief(format_args!("{found:?}"))
    ))
}

/// One capture of /proc/vmstat.
pub(crate) fn vmstat(file: &Path, text: &str) -> Result<BTreeMap<String, i64>, UsageError> {
    // 4.17 to 4.19 have a counter without a name.
    let has_name = |line: &str| !line.trim().is_empty() && line.trim().parse::<u64>().is_err();
    let lines = (1..).zip(text.lines()).filter(|(_, line)| has_name(line));
    let values = lines.map(|(at, line)| counter(file, at, line)).collect::<Result<BTreeMap<_, _>, _>>()?;
    if values.is_empty() {
        return Err(UsageError::in_file(file.display(), "expected lines of /proc/vmstat, found none"));
    }
    Ok(values)
}

fn counter(file: &Path, at: usize, line: &str) -> Result<(String, i64), UsageError> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let value =
        if let [name, value] = words.as_slice() { value.parse().ok().map(|value| (*name, value)) } else { None };
    value
        .map(|(name, value)| (name.to_owned(), value))
        .ok_or_else(|| wrong(file, at, "a counter and its value, as in /proc/vmstat", line))
}

/// How far counters moved; gauges are left out.
pub(super) fn moved(before: &BTreeMap<String, i64>, after: &BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    let of = |(name, value): (&String, &i64)| (name.clone(), value - before.get(name).unwrap_or(&0));
    after.iter().filter(|(name, _)| !is_vmstat_gauge(name)).map(of).collect()
}

/// How far counters moved between two captures of one kernel, where the second is the later one.
///
/// # Errors
/// Several counters fell, or one that cannot: the machine was booted between them, or the captures are swapped.
pub(crate) fn moved_on(
    before: (&Path, &BTreeMap<String, i64>),
    after: (&Path, &BTreeMap<String, i64>),
) -> Result<BTreeMap<String, i64>, UsageError> {
    let mut moved = moved(before.1, after.1);
    let fallen: Vec<&String> = moved.iter().filter(|(_, moved)| **moved < 0).map(|(name, _)| name).collect();
    let first = fallen.iter().find(|name| RISING.contains(&name.as_str())).or(fallen.get(1));
    if let Some(name) = first {
        let value = |capture: &BTreeMap<String, i64>| capture.get(*name).copied().unwrap_or(0);
        return Err(UsageError::in_file(
            after.0.display(),
            format!(
                "it is older than {}, or the machine was booted between them: {} counters are lower in it, such as {name} ({} \
                 before, {} after); expected two captures of one boot, the earlier one first",
                before.0.display(),
                fallen.len(),
                value(before.1),
                value(after.1)
            ),
        ));
    }
    // A single one that fell is a gauge of a kernel that is not known.
    moved.retain(|_, moved| *moved >= 0);
    Ok(moved)
}

/// Reads counters and times of a test from `tests-sysstate`.
pub(super) fn read(file: &Path, content: &str, test: &str) -> Result<Around, UsageError> {
    let (begin, end) = (format!("test begin :: {test} "), format!("test end :: {test} "));
    let lines: Vec<(usize, &str)> = (1..).zip(content.lines()).collect();
    let from = lines.iter().position(|(_, line)| line.starts_with(&begin));
    let Some(from) = from else {
        return Ok(Around { duration: time(file, content, test)?, ..Around::default() });
    };
    let lines = &lines[from + 1..];
    let lines = &lines[..lines.iter().position(|(_, line)| line.starts_with(&end)).unwrap_or(lines.len())];
    let captures = ["start", "end"].map(|moment| block(lines, &format!("file {moment} :: /proc/vmstat")));
    let counters = match captures {
        [None, None] => BTreeMap::new(),
        [Some(before), Some(after)] => {
            let values = |lines: &[(usize, &str)]| {
                lines.iter().map(|(at, line)| counter(file, *at, line)).collect::<Result<BTreeMap<_, _>, _>>()
            };
            moved(&values(before)?, &values(after)?)
        }
        [before, _] => {
            let lacks = if before.is_some() { "end" } else { "start" };
            return Err(UsageError::in_file(
                file.display(),
                format!("expected `file {lacks} :: /proc/vmstat` for {test}: the run was cut short, or the file was"),
            ));
        }
    };
    Ok(Around { counters, duration: time(file, content, test)? })
}

/// The lines between a marker and the marker after it.
fn block<'a, 'b>(lines: &'b [(usize, &'a str)], marker: &str) -> Option<&'b [(usize, &'a str)]> {
    let from = lines.iter().position(|(_, line)| line.trim_end() == marker)? + 1;
    let is_end = |line: &str| line.starts_with("file ") || line.starts_with("test ") || line.starts_with("time ::");
    // Without a marker behind it a block is cut short.
    let length = lines[from..].iter().position(|(_, line)| is_end(line))?;
    Some(&lines[from..from + length])
}

/// The line `time :: TEST n user n system n elapsed`, which both files have.
pub(super) fn time(file: &Path, content: &str, test: &str) -> Result<Option<Duration>, UsageError> {
    let start = format!("time :: {test} ");
    let Some((at, line)) = (1..).zip(content.lines()).find(|(_, line)| line.starts_with(&start)) else {
        return Ok(None);
    };
    let words: Vec<&str> = line[start.len()..].split_whitespace().collect();
    let expected = || wrong(file, at, "`time :: TEST SECONDS user SECONDS system SECONDS elapsed`", line);
    let [user, "user", system, "system", elapsed, "elapsed"] = words[..] else { return Err(expected()) };
    let ps = |text: &str| picos(text).ok_or_else(expected);
    Ok(Some(Duration { user_ps: ps(user)?, system_ps: ps(system)?, elapsed_ps: ps(elapsed)? }))
}

/// Seconds with at most twelve decimals that count.
fn picos(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = decimals.chars().chain(std::iter::repeat('0')).take(12).collect();
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000_000)?.checked_add(digits.parse().ok()?)
}

/// Seconds, to the last picosecond and not one digit more.
pub(super) fn seconds(ps: u64) -> String {
    let text = format!("{}.{:012}", ps / 1_000_000_000_000, ps % 1_000_000_000_000);
    let short = text.trim_end_matches('0');
    let decimals = short.len() - short.find('.').expect("one") - 1;
    // As time(1) prints them: two decimals at least.
    format!("{short}{}", "0".repeat(2_usize.saturating_sub(decimals)))
}

/// The `time` line of a test.
pub(super) fn time_line(test: &str, duration: &Duration) -> String {
    let Duration { user_ps, system_ps, elapsed_ps } = *duration;
    let [user, system, elapsed] = [user_ps, system_ps, elapsed_ps].map(seconds);
    format!("time :: {test} {user} user {system} system {elapsed} elapsed\n")
}

/// `tests-sysstate` of one test. The zoneinfo markers end the blocks for mmtests.
pub(super) fn write(test: &str, around: &Around) -> String {
    let values = |sign: i64| -> String {
        let value = |moved: i64| (sign * moved).max(0);
        around.counters.iter().map(|(name, moved)| format!("{name} {}\n", value(*moved))).collect()
    };
    let time = around.duration.as_ref().map_or_else(String::new, |duration| time_line(test, duration));
    format!(
        "test begin :: {test} 0\nfile start :: /proc/vmstat\n{}file start :: /proc/zoneinfo\nfile end :: \
         /proc/vmstat\n{}file end :: /proc/zoneinfo\ntest end :: {test} 0 0\n{time}",
        values(-1),
        values(1)
    )
}
