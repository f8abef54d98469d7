//! Kernel settings under their kernel names: the one table of which there are, and the values that the simulator reads.
//!
//! `vm.swappiness` is `/proc/sys/vm/swappiness`; `transparent_hugepage/enabled` is below `/sys/kernel/mm`
//! (Documentation/admin-guide/sysctl/vm.rst and Documentation/admin-guide/mm/transhuge.rst, v6.1).

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// A setting that pagelab knows: a line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The kernel's name.
    pub name: &'static str,
    /// Effect of the setting, in one line.
    pub about: &'static str,
    /// Values that it takes.
    pub takes: Takes,
    /// The value where nobody sets it, as it is written; in words where that depends on the machine or on the kernel's rules.
    pub default: &'static str,
    /// The first release (major, minor) that has it; [`OLDEST`] for all that are older.
    pub since: (u32, u32),
    /// Where real kernels have it.
    pub real: Real,
    /// Whether the simulator has its mechanism.
    pub sim: Sim,
}

/// The oldest release whose rules we know: settings that it has are not told from older ones.
pub const OLDEST: (u32, u32) = (3, 9);

/// The form of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A whole number, from the least to the most that any kernel takes.
    Number(i64, i64),
    /// Whole numbers of 32 bits separated by blanks.
    Numbers,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A size, or one of these words.
    Size(&'static [&'static str]),
}

/// Where real kernels have a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Real {
    /// In a file of the kernel that runs.
    File,
    /// In a file of a guest's kernel.
    GuestFile,
    /// Outside a guest's kernel: its balloon device has it.
    GuestDevice,
    /// On the command line of a guest's kernel.
    CommandLine,
    /// In none, for this reason.
    Never(&'static str),
}

/// Whether the simulator has the mechanism of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sim {
    /// Not yet: it is refused.
    No,
    /// Yes.
    Yes,
    /// In guests alone.
    Guests,
}

impl Takes {
    /// The form as messages call it, without the values.
    pub fn expects(self) -> String {
        match self {
            Self::Number(0, 1) => "0 or 1".to_owned(),
            Self::Number(least, most) => format!("a whole number from {least} to {most}"),
            Self::Numbers => "whole numbers separated by blanks".to_owned(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Size(words) => format!("a size such as 400MiB, or one of {}", words.join(", ")),
        }
    }

    /// Is this text such a value?
    pub fn accepts(self, value: &str) -> bool {
        match self {
            Self::Number(least, most) => value.parse::<i64>().is_ok_and(|value| (least..=most).contains(&value)),
            Self::Numbers => numbers(value).is_some_and(|numbers| !numbers.is_empty()),
            Self::Word(words) => words.contains(&value),
            Self::Size(words) => words.contains(&value) || value.parse::<Bytes>().is_ok_and(|size| size >= Bytes::PAGE),
        }
    }
}

impl Setting {
    /// Why a value cannot be this setting's, found out without a kernel.
    pub fn check(&self, value: &str) -> Result<(), String> {
        if self.takes.accepts(value) {
            return Ok(());
        }
        Err(format!("expected {}, found {value:?}", self.takes.expects()))
    }

    /// The release that it came with, unless all kernels have it: `5.14`.
    pub fn came_with(&self) -> Option<String> {
        let (major, minor) = self.since;
        (self.since > OLDEST).then(|| format!("{major}.{minor}"))
    }
}

/// The setting of a name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The names of all settings, in the order of the table.
pub fn names() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}

/// A type that a field of [`Settings`] has.
trait Value: Sized {
    fn read(text: &str) -> Option<Self>;
}

impl Value for u32 {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// A number where nobody leaves it to the kernel's rules, whose default depends on them.
impl Value for Option<u32> {
    fn read(text: &str) -> Option<Self> {
        if text == KERNELS { Some(None) } else { text.parse().ok().map(Some) }
    }
}

impl Value for bool {
    fn read(text: &str) -> Option<Self> {
        match text {
            "on" | "Y" | "1" => Some(true),
            "off" | "N" | "0" => Some(false),
            _ => None,
        }
    }
}

/// A slab allocator: the one that a kernel is built with (CONFIG_SLUB, CONFIG_SLAB).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlabAllocator {
    /// SLUB (2.6.22 and later).
    #[default]
    Slub,
    /// SLAB (up to 6.7).
    Slab,
}

impl Value for SlabAllocator {
    fn read(text: &str) -> Option<Self> {
        match text {
            "slub" => Some(Self::Slub),
            "slab" => Some(Self::Slab),
            _ => None,
        }
    }
}

impl Value for Vec<u32> {
    /// The kernel keeps these as int, and takes a negative one for 0.
    fn read(text: &str) -> Option<Self> {
        Some(numbers(text)?.into_iter().map(|number| u32::try_from(number).unwrap_or(0)).collect())
    }
}

fn numbers(text: &str) -> Option<Vec<i32>> {
    text.split_whitespace().map(|number| number.parse().ok()).collect()
}

/// Makes the table, constants for names (`as NAME`), and a field of [`Settings`] for each setting that names one.
macro_rules! settings {
    ($($name:literal $(as $constant:ident)? $(=> $field:ident: $type:ty)?: $about:literal,
        $takes:expr, $default:literal, $since:expr, $real:expr, $sim:expr;)*) => {
        $($(
            #[doc = $about]
            pub const $constant: &str = $name;
        )?)*

        /// Settings that can be given in a machine file or with `--set`, in the order of `pagelab list settings`.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            name: $name, about: $about, takes: $takes, default: $default, since: $since, real: $real, sim: $sim,
        },)*];

        /// The values of settings that the simulator's memory manager reads, of one kernel: plain fields.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Settings {
            /// `vm.min_free_kbytes`, in KiB.
            pub min_free_kbytes: u64,
            /// `transparent_hugepage/enabled` is `always` or `madvise`.
            pub thp: bool,
            $($(
                #[doc = concat!("`", $name, "`: ", $about, ".")]
                pub $field: $type,
            )?)*
        }

        impl Default for Settings {
            /// The kernel's defaults on x86-64 with all five zones, before it sizes `min_free_kbytes`.
            fn default() -> Self {
                Self {
                    min_free_kbytes: 1024,
                    thp: false,
                    $($($field: <$type as Value>::read($default).expect("the table's default is a value"),)?)*
                }
            }
        }

        impl Settings {
            /// Sets the field of a setting to a value as it is written. Settings without a field are only checked.
            ///
            /// # Errors
            /// The name is none of a setting, or the setting does not take this value; the message begins with the name.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
                let setting = find(name).ok_or_else(|| format!("{name}: unknown setting"))?;
                let refused = || format!("{name}: expected {}, found {value:?}", setting.takes.expects());
                setting.check(value).map_err(|problem| format!("{name}: {problem}"))?;
                match name {
                    $($($name => self.$field = <$type as Value>::read(value).ok_or_else(refused)?,)?)*
                    _ => {}
                }
                Ok(())
            }
        }
    };
}

/// The default of settings that each kernel has another one of.
const KERNELS: &str = "the kernel's";

/// The largest `int` and `unsigned int`.
const INT: i64 = i32::MAX as i64;
const UINT: i64 = u32::MAX as i64;
/// Entries of a page table but one.
const PTES: i64 = 511;
const SWITCH: Takes = Takes::Number(0, 1);
const ON_OFF: Takes = Takes::Word(&["on", "off"]);
const NO_FILE: Real = Real::Never("not passed on to a real guest yet; only the simulator has it (--target sim)");

// Ranges are those of kernel/sysctl.c, mm/huge_memory.c and mm/khugepaged.c (v6.1): the widest of any release, as the kernel that
// gets the value has the last word. Columns: effect, range, default, since, real kernels, simulator.
settings! {
    "transparent_hugepage/enabled" as THP_ENABLED: "huge pages for faults",
        Takes::Word(&["always", "madvise", "never"]), "always", OLDEST, Real::File, Sim::Yes;
    "transparent_hugepage/defrag" as THP_DEFRAG: "effort of a huge fault",
        Takes::Word(&["always", "defer", "defer+madvise", "madvise", "never"]), "the kernel's", OLDEST, Real::File, Sim::Yes;
    "transparent_hugepage/use_zero_page": "huge zero page for read faults",
        SWITCH, "1", OLDEST, Real::File, Sim::Yes;
    "transparent_hugepage/khugepaged/defrag": "whether khugepaged may compact and reclaim",
        SWITCH, "1", OLDEST, Real::File, Sim::Yes;
    "transparent_hugepage/khugepaged/pages_to_scan": "pages khugepaged scans per wake-up",
        Takes::Number(1, UINT), "4096", OLDEST, Real::File, Sim::Yes;
    "transparent_hugepage/khugepaged/scan_sleep_millisecs": "sleep between scans",
        Takes::Number(0, UINT), "10000", OLDEST, Real::File, Sim::Yes;
    "transparent_hugepage/khugepaged/alloc_sleep_millisecs": "sleep after a failed allocation",
        Takes::Number(0, UINT), "60000", OLDEST, Real::File, Sim::Yes;
    "transparent_hugepage/khugepaged/max_ptes_none": "empty PTEs that a collapse may fill",
        Takes::Number(0, PTES), "511", OLDEST, Real::File, Sim::Yes;
    "transparent_hugepage/khugepaged/max_ptes_swap": "swapped pages that a collapse may read",
        Takes::Number(0, PTES), "64", (4, 8), Real::File, Sim::Yes;
    "transparent_hugepage/khugepaged/max_ptes_shared": "shared pages that a collapse may copy",
        Takes::Number(0, PTES), "256", (5, 8), Real::File, Sim::Yes;
    "lru_gen/enabled": "multi-generational LRU: 0 is the classic LRU",
        Takes::Number(0, 7), "the kernel's", (6, 1), Real::File, Sim::No;
    "vm.min_free_kbytes" as MIN_FREE_KBYTES: "memory kept free, from which the min marks follow",
        Takes::Number(0, INT), "by the size of memory", OLDEST, Real::File, Sim::Yes;
    "vm.watermark_scale_factor" => watermark_scale_factor: u32: "distance between marks in 1/10000 of a zone",
        Takes::Number(1, 3000), "10", (4, 6), Real::File, Sim::Yes;
    "vm.watermark_boost_factor" => watermark_boost_factor: u32:
        "boost of the high mark after fragmentation, in 1/10000; 0 is off",
        Takes::Number(0, INT), "15000", (5, 0), Real::File, Sim::Yes;
    "vm.lowmem_reserve_ratio" => lowmem_reserve_ratio: Vec<u32>: "protection of lower zones, one ratio per zone",
        Takes::Numbers, "256 256 32 0 0", OLDEST, Real::File, Sim::Yes;
    "vm.percpu_pagelist_fraction" as PCP_FRACTION: "per-CPU lists up to 5.13: high is zone/fraction; 0 is automatic",
        Takes::Number(0, INT), "0", OLDEST, Real::File, Sim::Yes;
    "vm.percpu_pagelist_high_fraction" as PCP_HIGH_FRACTION => percpu_pagelist_high_fraction: u32:
        "per-CPU lists from 5.14: high is zone/fraction/CPUs; 0 is automatic",
        Takes::Number(0, INT), "0", (5, 14), Real::File, Sim::Yes;
    "vm.swappiness" => swappiness: u32: "weight of anonymous against file pages in reclaim",
        Takes::Number(0, 200), "60", OLDEST, Real::File, Sim::Yes;
    "vm.extfrag_threshold" => extfrag_threshold: u32: "fragmentation index above which compaction beats reclaim",
        Takes::Number(0, 1000), "500", OLDEST, Real::File, Sim::Yes;
    "vm.compaction_proactiveness" => compaction_proactiveness: u32: "background compaction; 0 is off",
        Takes::Number(0, 100), "20", (5, 9), Real::File, Sim::Yes;
    "vm.compact_unevictable_allowed": "whether compaction moves mlocked pages",
        SWITCH, "1", (4, 2), Real::File, Sim::No;
    "vm.zone_reclaim_mode": "reclaim locally before going to another node",
        Takes::Number(0, 7), "0", OLDEST, Real::File, Sim::No;
    "vm.dirty_ratio" => dirty_ratio: u32: "dirty memory at which writers wait, in percent",
        Takes::Number(0, 100), "20", OLDEST, Real::File, Sim::Yes;
    "vm.dirty_background_ratio" => dirty_background_ratio: u32: "dirty memory at which flushers start, in percent",
        Takes::Number(0, 100), "10", OLDEST, Real::File, Sim::Yes;
    "vm.dirty_expire_centisecs" => dirty_expire_centisecs: u32: "age at which dirty data is written",
        Takes::Number(0, INT), "3000", OLDEST, Real::File, Sim::Yes;
    "vm.dirty_writeback_centisecs" => dirty_writeback_centisecs: u32: "period of the flushers",
        Takes::Number(0, INT), "500", OLDEST, Real::File, Sim::Yes;
    "vm.vfs_cache_pressure" => vfs_cache_pressure: u32: "weight of dentries and inodes in reclaim",
        Takes::Number(0, INT), "100", OLDEST, Real::File, Sim::Yes;
    "vm.page-cluster" => page_cluster: u32: "log2 of the pages read ahead from swap",
        Takes::Number(0, 31), "3", OLDEST, Real::File, Sim::Yes;
    "vm.overcommit_memory": "address space overcommit: 0 heuristic, 1 always, 2 never",
        Takes::Number(0, 2), "0", OLDEST, Real::File, Sim::No;
    "vm.max_map_count": "mappings one process may have",
        Takes::Number(0, INT), "65530", OLDEST, Real::File, Sim::No;
    "kernel.numa_balancing" as NUMA_BALANCING => numa_balancing: Option<u32>:
        "automatic NUMA balancing: 0 is off; the simulator has it off unless it is set",
        Takes::Number(0, 4), "the kernel's", OLDEST, Real::File, Sim::Yes;
    "kernel.numa_balancing_scan_delay_ms" => numa_scan_delay_ms: Option<u32>: "period of scans with which tasks begin",
        Takes::Number(0, INT), "the kernel's", OLDEST, Real::File, Sim::Yes;
    "kernel.numa_balancing_scan_period_min_ms" => numa_scan_period_min_ms: Option<u32>:
        "shortest period of scans; of a whole task, where it follows from its size",
        Takes::Number(1, INT), "the kernel's", OLDEST, Real::File, Sim::Yes;
    "kernel.numa_balancing_scan_period_max_ms" => numa_scan_period_max_ms: Option<u32>: "longest period of scans",
        Takes::Number(1, INT), "the kernel's", OLDEST, Real::File, Sim::Yes;
    "kernel.numa_balancing_scan_period_reset" as NUMA_SCAN_PERIOD_RESET => numa_scan_period_reset_ms: Option<u32>:
        "how often the period of scans falls back to the shortest, in ms (up to 3.12)",
        Takes::Number(0, INT), "the kernel's", OLDEST, Real::File, Sim::Yes;
    "kernel.numa_balancing_scan_size_mb" => numa_scan_size_mb: Option<u32>: "memory that a scan makes hint",
        Takes::Number(1, 1 << 20), "the kernel's", OLDEST, Real::File, Sim::Yes;
    "kernel.numa_balancing_settle_count" as NUMA_SETTLE_COUNT => numa_settle_count: Option<u32>:
        "scans for which the load balancer favours a task's preferred node (patch 7 of v3.9; 3.13)",
        Takes::Number(0, INT), "the kernel's", OLDEST, Real::File, Sim::Yes;
    "virtio_balloon.reporting" as REPORTING: "guests: virtio-balloon reports free pages to the host",
        ON_OFF, "off", (5, 7), Real::GuestDevice, Sim::Guests;
    "virtio_balloon.target" as BALLOON: "memory that a balloon leaves a guest with; trace: what guest-footprint needs",
        Takes::Size(&["off", "trace"]), "off", OLDEST, Real::GuestDevice, Sim::Guests;
    "virtio_balloon.deflate_on_oom" as DEFLATE_ON_OOM:
        "simulated guests: a balloon gives pages back before the OOM killer comes",
        ON_OFF, "off", (3, 19), NO_FILE, Sim::Guests;
    "virtio_balloon.page_poison" as DEVICE_POISON => device_knows_poison: bool:
        "simulated guests: the balloon's device knows of poisoned pages, as QEMU's does",
        ON_OFF, "on", OLDEST, NO_FILE, Sim::Guests;
    "boot.page_poison" as PAGE_POISON => page_poison: bool:
        "simulator: a word of the command line, freed pages get a pattern",
        ON_OFF, "off", (4, 6), NO_FILE, Sim::Yes;
    "boot.init_on_free" as INIT_ON_FREE => init_on_free: bool:
        "simulator: a word of the command line, freed pages are cleared",
        ON_OFF, "off", (5, 3), NO_FILE, Sim::Yes;
    "page_reporting.order" as REPORTING_ORDER => reporting_order: u32: "least order of a free block that is reported",
        Takes::Number(0, 10), "9", (5, 16), Real::GuestFile, Sim::Guests;
    "page_reporting.delay_ms" as REPORTING_DELAY => reporting_delay_ms: u32:
        "between two passes of reporting; no kernel has it as a setting",
        Takes::Number(1, 3_600_000), "2000", (5, 7),
        Real::Never("a constant of the kernel, 2 s; only the simulator can change it (--target sim)"), Sim::Guests;
    "page_alloc.shuffle" as SHUFFLE: "free lists are shuffled: a word of the kernel's command line",
        Takes::Word(&["Y", "N"]), "N", (5, 2), Real::CommandLine, Sim::Yes;
    "slab.allocator" as SLAB_ALLOCATOR => slab_allocator: SlabAllocator:
        "simulator: what the kernel is built with; slab up to 6.7",
        Takes::Word(&["slub", "slab"]), "slub", OLDEST,
        Real::Never("an option that the kernel was built with; only the simulator can change it (--target sim)"), Sim::Yes;
    "host.discard" as DISCARD: "simulated hosts: madvise(2) for a page that a guest reports",
        Takes::Word(&["dontneed", "free"]), "dontneed", OLDEST,
        Real::Never("QEMU discards with MADV_DONTNEED; only the simulator has another host (--target sim)"), Sim::Guests;
}
