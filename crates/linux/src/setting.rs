//! Kernel settings under their kernel names: reading, writing, and what exists.
//!
//! `vm.swappiness` is `/proc/sys/vm/swappiness`; `transparent_hugepage/enabled` is below `/sys/kernel/mm`.
//! (Documentation/admin-guide/sysctl/vm.rst and Documentation/admin-guide/mm/transhuge.rst, v6.1.)

use std::{fs, io, path::PathBuf};

use nix::fcntl::{Flock, FlockArg};
use units::Bytes;

use crate::procfs;

/// A setting that pagelab knows, for `pagelab list knobs`, for suggestions and for checking values.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// The kernel's name.
    pub name: &'static str,
    /// What values it takes; the kernel knows the range.
    pub takes: Takes,
    /// What it does, in one line.
    pub about: &'static str,
}

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

/// The form of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A whole number, from the least to the most that any kernel takes.
    Number(i64, i64),
    /// Whole numbers separated by blanks.
    Numbers,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A size, or one of these words.
    Size(&'static [&'static str]),
}

impl Takes {
    /// What to write, for messages.
    pub fn expects(self) -> String {
        match self {
            Self::Number(least, most) => format!("a whole number from {least} to {most}"),
            Self::Numbers => "whole numbers separated by blanks".to_owned(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Size(words) => format!("a size such as 400MiB, or one of {}", words.join(", ")),
        }
    }

    fn accepts(self, value: &str) -> bool {
        let number = |word: &str| word.parse::<i64>().is_ok();
        match self {
            Self::Number(least, most) => value.parse::<i64>().is_ok_and(|value| (least..=most).contains(&value)),
            Self::Numbers => !value.trim().is_empty() && value.split_whitespace().all(number),
            Self::Word(words) => words.contains(&value),
            Self::Size(words) => words.contains(&value) || value.parse::<Bytes>().is_ok_and(|size| size >= Bytes::PAGE),
        }
    }
}

/// The setting that is written before all others: switching huge pages on recomputes `vm.min_free_kbytes`.
pub const THP_ENABLED: &str = "transparent_hugepage/enabled";

/// Whether a guest's virtio-balloon has `free-page-reporting` (QEMU's property).
pub const REPORTING: &str = "virtio_balloon.reporting";
/// What a guest's balloon leaves it with: a size as for QEMU's command `balloon`, or what its trace needs.
pub const BALLOON: &str = "virtio_balloon.target";
/// Whether a guest may take pages back out of its balloon (QEMU's property `deflate-on-oom`).
pub const DEFLATE_ON_OOM: &str = "virtio_balloon.deflate_on_oom";
/// Whether a guest's balloon device knows of poisoned pages (QEMU's property `page-poison`).
pub const DEVICE_POISON: &str = "virtio_balloon.page_poison";
/// `page_poison`, a word of the kernel's command line.
pub const PAGE_POISON: &str = "boot.page_poison";
/// `init_on_free`, another one.
pub const INIT_ON_FREE: &str = "boot.init_on_free";
/// `page_reporting_order`, the parameter of the module page_reporting.
pub const REPORTING_ORDER: &str = "page_reporting.order";
/// `PAGE_REPORTING_DELAY`, a constant of the kernel (mm/page_reporting.c, v6.1).
pub const REPORTING_DELAY: &str = "page_reporting.delay_ms";
/// `shuffle`, the parameter of page_alloc that is read at boot.
pub const SHUFFLE: &str = "page_alloc.shuffle";
/// What a host does with a page that its guest reports: `MADV_DONTNEED` as QEMU does, or `MADV_FREE`.
pub const DISCARD: &str = "host.discard";

/// The largest `int` and `unsigned int`.
const INT: i64 = i32::MAX as i64;
const UINT: i64 = u32::MAX as i64;
/// Entries of a page table but one.
const PTES: i64 = 511;

const fn number(name: &'static str, (least, most): (i64, i64), about: &'static str) -> Knob {
    Knob { name, takes: Takes::Number(least, most), about }
}

const fn word(name: &'static str, words: &'static [&'static str], about: &'static str) -> Knob {
    Knob { name, takes: Takes::Word(words), about }
}

/// Settings that can be given in a machine file or with `--set`. Ranges are those of kernel/sysctl.c, mm/huge_memory.c and
/// mm/khugepaged.c (v6.1): the widest of any release, as the kernel that gets the value has the last word.
pub const KNOBS: &[Knob] = &[
    word(THP_ENABLED, &["always", "madvise", "never"], "huge pages for faults"),
    word(
        "transparent_hugepage/defrag",
        &["always", "defer", "defer+madvise", "madvise", "never"],
        "effort of a huge fault",
    ),
    number("transparent_hugepage/use_zero_page", (0, 1), "huge zero page for read faults: 0 or 1"),
    number("transparent_hugepage/khugepaged/defrag", (0, 1), "whether khugepaged may compact and reclaim: 0 or 1"),
    number("transparent_hugepage/khugepaged/pages_to_scan", (1, UINT), "pages khugepaged scans per wake-up"),
    number("transparent_hugepage/khugepaged/scan_sleep_millisecs", (0, UINT), "sleep between scans"),
    number("transparent_hugepage/khugepaged/alloc_sleep_millisecs", (0, UINT), "sleep after a failed allocation"),
    number("transparent_hugepage/khugepaged/max_ptes_none", (0, PTES), "empty PTEs that a collapse may fill"),
    number("transparent_hugepage/khugepaged/max_ptes_swap", (0, PTES), "swapped pages that a collapse may read (4.8)"),
    number("transparent_hugepage/khugepaged/max_ptes_shared", (0, PTES), "shared pages that a collapse may copy (5.8)"),
    number("lru_gen/enabled", (0, 7), "multi-generational LRU: 0 is the classic LRU"),
    number("vm.min_free_kbytes", (0, INT), "memory kept free, from which the min marks follow"),
    number("vm.watermark_scale_factor", (1, 3000), "distance between marks in 1/10000 of a zone"),
    number("vm.watermark_boost_factor", (0, INT), "boost of the high mark after fragmentation, in 1/10000; 0 is off"),
    Knob {
        name: "vm.lowmem_reserve_ratio",
        takes: Takes::Numbers,
        about: "protection of lower zones, one ratio per zone",
    },
    number("vm.percpu_pagelist_fraction", (0, INT), "per-CPU lists up to 5.13: high is zone/fraction; 0 is automatic"),
    number(
        "vm.percpu_pagelist_high_fraction",
        (0, INT),
        "per-CPU lists from 5.14: high is zone/fraction/CPUs; 0 is automatic",
    ),
    number("vm.swappiness", (0, 200), "weight of anonymous against file pages in reclaim"),
    number("vm.extfrag_threshold", (0, 1000), "fragmentation index above which compaction beats reclaim"),
    number("vm.compaction_proactiveness", (0, 100), "background compaction; 0 is off"),
    number("vm.compact_unevictable_allowed", (0, 1), "whether compaction moves mlocked pages"),
    number("vm.zone_reclaim_mode", (0, 7), "reclaim locally before going to another node"),
    number("vm.dirty_ratio", (0, 100), "dirty memory at which writers wait, in percent"),
    number("vm.dirty_background_ratio", (0, 100), "dirty memory at which flushers start, in percent"),
    number("vm.dirty_expire_centisecs", (0, INT), "age at which dirty data is written"),
    number("vm.dirty_writeback_centisecs", (0, INT), "period of the flushers"),
    number("vm.vfs_cache_pressure", (0, INT), "weight of dentries and inodes in reclaim"),
    number("vm.page-cluster", (0, 31), "log2 of the pages read ahead from swap"),
    number("vm.overcommit_memory", (0, 2), "address space overcommit: 0 heuristic, 1 always, 2 never"),
    number("vm.max_map_count", (0, INT), "mappings one process may have"),
    number("kernel.numa_balancing", (0, 4), "automatic NUMA balancing: 0 is off"),
    word(REPORTING, &["on", "off"], "guests: virtio-balloon reports free pages to the host (5.7)"),
    Knob {
        name: BALLOON,
        takes: Takes::Size(&["off", "trace"]),
        about: "memory that a balloon leaves a guest with; trace: what guest-footprint needs",
    },
    word(
        DEFLATE_ON_OOM,
        &["on", "off"],
        "simulated guests: a balloon gives pages back before the OOM killer comes (3.19)",
    ),
    word(
        DEVICE_POISON,
        &["on", "off"],
        "simulated guests: the balloon's device knows of poisoned pages, as QEMU's does; on",
    ),
    word(PAGE_POISON, &["on", "off"], "simulator: a word of the command line, freed pages get a pattern (4.6)"),
    word(INIT_ON_FREE, &["on", "off"], "simulator: a word of the command line, freed pages are cleared (5.3)"),
    number(REPORTING_ORDER, (0, 10), "least order of a free block that is reported; 9 (5.16)"),
    number(REPORTING_DELAY, (1, 3_600_000), "between two passes of reporting; 2000; no kernel has it as a setting"),
    word(SHUFFLE, &["Y", "N"], "free lists are shuffled: a word of the kernel's command line (5.2)"),
    word(DISCARD, &["dontneed", "free"], "simulated hosts: madvise(2) for a page that a guest reports"),
];

/// Why a value cannot be this setting's, found out without a kernel: an unknown name or a value of the wrong form.
pub fn check_form(name: &str, value: &str) -> Result<(), String> {
    match KNOBS.iter().find(|knob| knob.name == name) {
        None => Err("unknown setting".to_owned()),
        Some(knob) if !knob.takes.accepts(value) => Err(format!("expected {}, found {value:?}", knob.takes.expects())),
        Some(_) => Ok(()),
    }
}

/// The names of all known settings.
pub fn names() -> Vec<&'static str> {
    KNOBS.iter().map(|knob| knob.name).collect()
}

/// Why a setting could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// This kernel does not have it.
    #[error("{name}: this kernel has no such setting ({path} does not exist)")]
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

fn path(name: &str) -> PathBuf {
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
    let kept = found == canonical(name, value) || found.starts_with(&format!("{} ", canonical(name, value)));
    if kept { Ok(()) } else { Err(SettingError::Altered { name: name.to_owned(), value: value.to_owned(), found }) }
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
        assert!(read("vm.min_free_kbytes").unwrap().parse::<u64>().is_ok());
    }

    #[test]
    fn values_of_the_wrong_form_are_refused_without_a_kernel() {
        assert_eq!(check_form("vm.swappiness", "10"), Ok(()));
        assert_eq!(check_form("vm.lowmem_reserve_ratio", "256 256 32 0 0"), Ok(()));
        assert_eq!(check_form("transparent_hugepage/defrag", "defer+madvise"), Ok(()));
        assert_eq!(
            check_form("vm.swappiness", "10%"),
            Err("expected a whole number from 0 to 200, found \"10%\"".to_owned())
        );
        assert_eq!(
            check_form("vm.watermark_boost_factor", "-1"),
            Err("expected a whole number from 0 to 2147483647, found \"-1\"".to_owned())
        );
        assert_eq!(check_form("vm.watermark_boost_factor", "2147483647"), Ok(()));
        assert_eq!(
            check_form(THP_ENABLED, "on"),
            Err("expected one of always, madvise, never, found \"on\"".to_owned())
        );
    }

    #[test]
    fn huge_pages_come_first() {
        let settings = [("vm.swappiness", "1"), (THP_ENABLED, "always"), ("vm.page-cluster", "0")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let names: Vec<_> = in_order(&settings).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [THP_ENABLED, "vm.swappiness", "vm.page-cluster"]);
    }
}
