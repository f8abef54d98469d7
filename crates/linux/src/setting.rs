//! Kernel settings in the files of a real kernel: reading, writing, and what exists. Which there are is the table of
//! [`units::setting`].

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use nix::fcntl::{Flock, FlockArg};
pub use units::setting::names;
use units::setting::{self, REPORTING_ORDER, Real, Setting, THP_ENABLED};

use crate::procfs;

/// Settings that change when this one is written, and so must be put back after it: switching huge pages on raises
/// `min_free_kbytes` (mm/khugepaged.c, v6.1), and of each ratio and its bytes only one counts, the other becomes 0
/// (mm/page-writeback.c, v6.1).
pub fn disturbed_by(name: &str) -> &'static [&'static str] {
    match name {
        THP_ENABLED => &["vm.min_free_kbytes"],
        "vm.dirty_ratio" => &["vm.dirty_bytes"],
        "vm.dirty_background_ratio" => &["vm.dirty_background_bytes"],
        _ => &[],
    }
}

/// Why a value cannot be this setting's, found out without a kernel: an unknown name or a value of the wrong form.
pub fn check_form(name: &str, value: &str) -> Result<(), String> {
    setting::find(name).ok_or("unknown setting")?.check(value)
}

/// Why a value cannot be what a run found in a setting, or in one that changes with a setting.
pub(crate) fn check_found(name: &str, value: &str) -> Result<(), String> {
    match setting::find(name) {
        Some(known) if matches!(known.real, Real::File | Real::GuestFile) => known.check(value),
        None if names().into_iter().any(|known| disturbed_by(known).contains(&name)) => {
            let is_number = value.parse::<u64>().is_ok();
            if is_number { Ok(()) } else { Err(format!("expected a whole number, found {value:?}")) }
        }
        _ => Err("no setting that a run changes".to_owned()),
    }
}

/// Why a setting could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// This kernel does not have it.
    #[error("{name}: this kernel has no such setting ({path} does not exist){}", since(name))]
    Absent {
        /// The setting.
        name: String,
        /// Its file.
        path: PathBuf,
    },
    /// The user may not write it.
    #[error("{name}: no permission to write {path}; settings of a real host need root")]
    Permission {
        /// The setting.
        name: String,
        /// Its file.
        path: PathBuf,
    },
    /// The kernel refused the value.
    #[error("{name}: the kernel refused the value {value:?}; it is {current:?} now")]
    Refused {
        /// The setting.
        name: String,
        /// What was written.
        value: String,
        /// What it still is.
        current: String,
    },
    /// The kernel took something else.
    #[error("{name}: wrote {value:?}, but the kernel made it {found:?}")]
    Altered {
        /// The setting.
        name: String,
        /// What was written.
        value: String,
        /// What is read back.
        found: String,
    },
    /// Another run has changed it and will put it back.
    #[error("{name}: another run has changed it and will put it back; wait for its end")]
    Busy {
        /// The setting.
        name: String,
    },
    /// Anything else.
    #[error("{name}: {path}: {source}")]
    Io {
        /// The setting.
        name: String,
        /// Its file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Words on the release that a setting came with, behind a message; none where all kernels have it.
fn since(name: &str) -> String {
    let release = setting::find(name).and_then(Setting::came_with);
    release.map_or_else(String::new, |release| format!("; kernels have it from {release} on"))
}

/// Where the kernel's files are, but in tests.
static ROOT: OnceLock<PathBuf> = OnceLock::new();

/// Has settings below another root, for the life of this process: tests leave this machine as it is.
///
/// # Panics
/// When there is one already.
pub fn root_at(root: &Path) {
    ROOT.set(root.to_owned()).expect("settings have one root");
}

fn path(name: &str) -> PathBuf {
    let path = path_in_root(name);
    match (ROOT.get(), path.strip_prefix("/")) {
        (Some(root), Ok(below)) => root.join(below),
        _ => path,
    }
}

fn path_in_root(name: &str) -> PathBuf {
    if name == REPORTING_ORDER {
        return PathBuf::from("/sys/module/page_reporting/parameters/page_reporting_order");
    }
    match name.split_once('.') {
        Some((group @ ("vm" | "kernel"), rest)) => PathBuf::from("/proc/sys").join(group).join(rest),
        _ => PathBuf::from("/sys/kernel/mm").join(name),
    }
}

fn explain(name: &str, path: PathBuf, source: io::Error) -> SettingError {
    let name = name.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => SettingError::Absent { name, path },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => SettingError::Permission { name, path },
        _ => SettingError::Io { name, path, source },
    }
}

/// Folds white space, picks the chosen word of a bracketed list, and reads lru_gen's hexadecimal mask as 0 or 1.
fn canonical(name: &str, text: &str) -> String {
    if let Ok(chosen) = procfs::list::choice(name, text) {
        return chosen.to_owned();
    }
    if name == "lru_gen/enabled" {
        return if text.trim().trim_start_matches("0x").chars().all(|digit| digit == '0') { "0" } else { "1" }
            .to_owned();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reserves a setting for as long as the returned file is open, so that two runs do not put back each other's values.
/// `None` when another run has it.
pub fn reserve(name: &str) -> Result<Option<Flock<fs::File>>, SettingError> {
    let path = path(name);
    let file = fs::File::open(&path).map_err(|error| explain(name, path.clone(), error))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(explain(name, path, errno.into())),
    }
}

/// The value in force, in the form in which it can be written back.
pub fn read(name: &str) -> Result<String, SettingError> {
    let path = path(name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(canonical(name, &text)),
        Err(error) => Err(explain(name, path, error)),
    }
}

/// Checks that a setting exists and may be written, without changing it.
pub fn check_writable(name: &str) -> Result<(), SettingError> {
    let path = path(name);
    fs::OpenOptions::new().write(true).open(&path).map(drop).map_err(|error| explain(name, path, error))
}

/// Writes a setting and reads it back: a value that the kernel silently altered is an error.
pub fn write(name: &str, value: &str) -> Result<(), SettingError> {
    let path = path(name);
    if let Err(error) = fs::write(&path, value) {
        return Err(match error.raw_os_error() {
            Some(libc::EINVAL | libc::ERANGE) => {
                SettingError::Refused { name: name.to_owned(), value: value.to_owned(), current: read(name)? }
            }
            _ => explain(name, path, error),
        });
    }
    let found = read(name)?;
    if is_kept(name, value, &found) {
        Ok(())
    } else {
        Err(SettingError::Altered { name: name.to_owned(), value: value.to_owned(), found })
    }
}

/// Whether a setting that reads so was given this value, and kept it.
pub(crate) fn is_kept(name: &str, value: &str, found: &str) -> bool {
    let value = canonical(name, value);
    found == value || found.starts_with(&format!("{value} "))
}

/// Puts `transparent_hugepage/enabled` first and keeps the order of the rest.
pub fn in_order(settings: &[(String, String)]) -> Vec<(String, String)> {
    let (first, rest): (Vec<_>, Vec<_>) = settings.iter().cloned().partition(|(name, _)| name == THP_ENABLED);
    [first, rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_paths_as_sysctl_does_it() {
        assert_eq!(path("vm.page-cluster"), PathBuf::from("/proc/sys/vm/page-cluster"));
        assert_eq!(
            path("transparent_hugepage/khugepaged/defrag"),
            PathBuf::from("/sys/kernel/mm/transparent_hugepage/khugepaged/defrag")
        );
    }

    #[test]
    fn values_are_read_in_the_form_in_which_they_are_written() {
        assert_eq!(canonical(THP_ENABLED, "always [madvise] never\n"), "madvise");
        assert_eq!(canonical("vm.lowmem_reserve_ratio", "256\t256\t32\t0\t0\n"), "256 256 32 0 0");
        assert_eq!(canonical("lru_gen/enabled", "0x0007\n"), "1");
        assert_eq!(canonical("lru_gen/enabled", "0x0000\n"), "0");
    }

    #[test]
    fn an_unknown_setting_is_absent_and_a_real_one_reads() {
        assert!(matches!(read("vm.no_such_setting"), Err(SettingError::Absent { .. })));
        let said = |name: &str| SettingError::Absent { name: name.to_owned(), path: path(name) }.to_string();
        assert!(said("vm.compaction_proactiveness").ends_with("does not exist); kernels have it from 5.9 on"));
        assert!(said("vm.no_such_setting").ends_with("(/proc/sys/vm/no_such_setting does not exist)"));
        assert!(read("vm.min_free_kbytes").unwrap().parse::<u64>().is_ok());
    }

    #[test]
    fn huge_pages_come_first() {
        let settings = [("vm.swappiness", "1"), (THP_ENABLED, "always"), ("vm.page-cluster", "0")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let names: Vec<_> = in_order(&settings).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [THP_ENABLED, "vm.swappiness", "vm.page-cluster"]);
    }
}
