//! The files of a machine from elsewhere: a copy of /proc and /sys, a sosreport, a pasted text, or an OOM report.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use linux::procfs::{Capture, buddyinfo, meminfo, oom, pagetypeinfo, vmstat, zoneinfo};

use crate::usage::UsageError;

/// More is no text that somebody pastes.
const TEXT_MAX: u64 = 64 << 20;
/// More files in a folder are not looked at for texts of the kernel.
const FILES_MAX: usize = 400;
/// First bytes of files that are packed: gzip, xz, zstd, bzip2, zip.
const PACKED: [&[u8]; 5] = [b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"BZh", b"PK\x03\x04"];

/// Files of sosreports and of folders made by hand that have what the kernel's files lack: release, settings, CPUs, distances.
const OF_SOS: [&str; 10] = [
    "proc/sys/kernel/osrelease",
    "sys/kernel/osrelease",
    "sos_commands/kernel/uname_-a",
    "uname",
    "sos_commands/kernel/sysctl_-a",
    "sysctl",
    "sos_commands/numa/numactl_--hardware",
    "numactl",
    "sos_commands/processor/lscpu",
    "lscpu",
];

/// A machine's files, or the memory in an OOM report.
#[derive(Debug)]
pub(crate) enum Collected {
    /// Files of /proc and /sys.
    Files(Capture),
    /// An OOM report, with the name of its file.
    Report(String, oom::Report),
}

/// Everything that a path holds; `-` is stdin.
///
/// # Errors
/// A path that is none, a file that is packed, a report that is damaged.
pub(crate) fn collect(from: &Path) -> Result<Collected, UsageError> {
    if from == Path::new("-") {
        return of_text("stdin", &read(std::io::stdin().lock(), "stdin")?);
    }
    if from.is_file() {
        return of_text(&from.display().to_string(), &read_file(from)?);
    }
    if !from.is_dir() {
        return Err(UsageError::in_file(from.display(), "there is no file or folder of this name"));
    }
    of_folder(&root(from))
}

/// The folder that has the kernel's files: itself, or the only one in it, as archives of sosreports unpack.
fn root(folder: &Path) -> PathBuf {
    if folder.join("zoneinfo").is_file() {
        // A copy of /proc, with a copy of /sys beside it.
        let above = folder.parent().filter(|above| folder.ends_with("proc") && above.join("sys").is_dir());
        return above.unwrap_or(folder).to_owned();
    }
    if folder.join("proc").is_dir() {
        return folder.to_owned();
    }
    let mut inside = entries(folder).into_iter().filter(|path| path.join("proc").is_dir());
    match (inside.next(), inside.next()) {
        (Some(only), None) => only,
        _ => folder.to_owned(),
    }
}

fn of_folder(folder: &Path) -> Result<Collected, UsageError> {
    let mut capture = cleaned(Capture::gathered(folder));
    for name in OF_SOS {
        let path = folder.join(name);
        if path.is_file() {
            let text = read_file(&path)?;
            let key = name.ends_with("osrelease").then_some("osrelease");
            capture.complete_with(Capture::pasted_as(&text, key));
        }
    }
    if !capture.texts.contains_key("zoneinfo") {
        let files = entries(folder).into_iter().filter(|path| path.is_file()).take(FILES_MAX);
        let mut report = None;
        for path in files {
            let text = read_file(&path)?;
            match of_text(&path.display().to_string(), &text) {
                Ok(Collected::Files(files)) => capture.complete_with(files),
                Ok(Collected::Report(file, found)) => report = report.or(Some((file, found))),
                Err(error) if oom::is_report(&text) => return Err(error),
                Err(_) => {}
            }
        }
        if let Some((file, report)) = report.filter(|_| !capture.texts.contains_key("zoneinfo")) {
            return Ok(Collected::Report(file, report));
        }
    }
    Ok(Collected::Files(capture))
}

/// The files in a text: copies of /proc with whatever is around them, or an OOM report.
fn of_text(name: &str, text: &str) -> Result<Collected, UsageError> {
    let capture = Capture::pasted(text);
    if capture.texts.contains_key("zoneinfo") {
        return Ok(Collected::Files(capture));
    }
    if oom::is_report(text) {
        let report = oom::parse(text).map_err(|error| UsageError::in_file(name, error))?;
        return Ok(Collected::Report(name.to_owned(), report));
    }
    match of_cgroup(text) {
        Some(line) if !COUNTS.iter().any(|key| capture.texts.contains_key(*key)) => {
            Err(UsageError::in_file(name, format!("line {line}: {NO_MEM_INFO}")))
        }
        _ => Ok(Collected::Files(capture)),
    }
}

/// Files that count free memory.
const COUNTS: [&str; 2] = ["buddyinfo", "pagetypeinfo"];
/// The sentence for reports of a cgroup's limit.
const NO_MEM_INFO: &str = "the OOM report is of the limit of a memory cgroup, which does not print the memory of the machine: \
                           expected a report with Mem-Info, or zoneinfo";

/// The line that says that a cgroup was out of memory.
fn of_cgroup(text: &str) -> Option<usize> {
    let signs = ["Memory cgroup out of memory", "CONSTRAINT_MEMCG", "killed as a result of limit of"];
    text.lines().position(|line| signs.iter().any(|sign| line.contains(sign))).map(|at| at + 1)
}

/// Files as the kernel wrote them are left alone; others are taken for pasted texts.
fn cleaned(mut capture: Capture) -> Capture {
    let mut others = Vec::new();
    for (key, text) in &mut capture.texts {
        let Some((start, is_whole)) = form(key) else { continue };
        if is_whole(text) {
            continue;
        }
        let mut pasted = Capture::pasted_as(text, Some(key));
        // A text in which nothing is found stays as it is, for the message about it; and so does a damaged copy without prose.
        if let Some(found) = pasted.texts.remove(key).filter(|found| is_whole(found) || !text.starts_with(start)) {
            *text = found;
        }
        others.push(pasted);
    }
    for other in others {
        capture.complete_with(other);
    }
    capture
}

/// Whether a text is a file as the kernel writes it.
type IsWhole = fn(&str) -> bool;

/// The start of a file as the kernel writes it, and whether a text is such a file.
fn form(key: &str) -> Option<(&'static str, IsWhole)> {
    Some(match key {
        "zoneinfo" => ("Node ", |text| zoneinfo::parse(text).is_ok()),
        "meminfo" => ("MemTotal:", |text| meminfo::parse(text).is_ok()),
        "vmstat" => ("nr_free_pages ", |text| vmstat::parse(text).is_ok()),
        "buddyinfo" => ("Node ", |text| buddyinfo::parse(text).is_ok()),
        "pagetypeinfo" => ("Page block order:", |text| pagetypeinfo::parse(text).is_ok()),
        "version" => ("Linux version ", |text| text.starts_with("Linux version ")),
        _ => return None,
    })
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn read_file(path: &Path) -> Result<String, UsageError> {
    let problem = |error: std::io::Error| UsageError::in_file(path.display(), error);
    read(fs::File::open(path).map_err(problem)?, &path.display().to_string())
}

fn read(source: impl Read, name: &str) -> Result<String, UsageError> {
    let mut bytes = Vec::new();
    let read = source.take(TEXT_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| UsageError::in_file(name, error))?;
    if PACKED.iter().any(|magic| bytes.starts_with(magic)) {
        return Err(UsageError::in_file(name, "it is packed: expected a text, or the folder that it unpacks to"));
    }
    if bytes.len() as u64 > TEXT_MAX {
        return Err(UsageError::in_file(name, format!("expected at most {} MiB of text", TEXT_MAX >> 20)));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
