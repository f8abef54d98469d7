//! Machines that are not modelled, each refused with the sentence that says why; and files that are missing, all at once.

use linux::procfs::{Capture, Snapshot, version, zoneinfo};
use units::Frames;

/// Parts of a release that only 32-bit kernels have.
const OF_32_BIT: [&str; 10] = ["i386", "i486", "i586", "i686", "-686", "armv", "armhf", ".PAE", "-v7+", "-v7l+"];
/// Machines whose kernels are usually built with pages of 64 KiB.
const LARGE_PAGES: [&str; 6] = ["64k", "ppc64", "powerpc64", "el7.aarch64", "el7a.aarch64", "el8.aarch64"];

/// The sentence for kernels before 3.9.
pub(super) const NO_MANAGED: &str = "expected the managed frames of each zone, found none: kernels before 3.9 do not print them, \
                                     and they are not modelled";
/// The sentence for 32-bit kernels.
pub(super) const HIGHMEM: &str = "32-bit kernels (zone HighMem) are not modelled: expected a 64-bit kernel";

/// The sentence for other 32-bit kernels.
pub(super) const BITS: &str = "32-bit kernels are not modelled: expected a 64-bit kernel";
/// The addresses of a 32-bit kernel.
const KIB_OF_32_BIT: u64 = 1 << 22;

/// Every file that is needed and not there.
pub(super) fn missing(capture: &Capture) -> Option<String> {
    let has = |key: &str| capture.texts.contains_key(key);
    let mut missing = Vec::new();
    if !has("zoneinfo") {
        missing.push("zoneinfo (or the Mem-Info of an OOM report)".to_owned());
    }
    if !has("version") {
        missing.push("the release (version, sys/kernel/osrelease or uname -a; or say --kernel RELEASE)".to_owned());
    }
    let zones = capture.text("zoneinfo").ok().and_then(|text| zoneinfo::parse(text).ok()).unwrap_or_default();
    let mut nodes: Vec<u32> = zones.iter().map(|zone| zone.node.0).collect();
    nodes.dedup();
    let without = nodes.iter().filter(|node| !has(&format!("node/node{node}/cpulist"))).map(u32::to_string);
    let without: Vec<String> = without.collect();
    if nodes.len() > 1 && !without.is_empty() {
        let nodes = without.join(", ");
        missing.push(format!("the CPUs of node {nodes} (node/nodeN/cpulist, numactl --hardware or lscpu)"));
    }
    (!missing.is_empty()).then(|| format!("missing: {}", missing.join("; ")))
}

/// Why the machine of these files is not modelled, as far as their lines say so.
pub(super) fn files(capture: &Capture) -> Option<String> {
    let text = capture.text("zoneinfo").unwrap_or_default();
    let line_of = |found: &dyn Fn(&str) -> bool| text.lines().position(found).map(|at| at + 1);
    let highmem = line_of(&|line| line.starts_with("Node ") && line.ends_with("HighMem"));
    let present = line_of(&|line| line.trim_start().starts_with("present "));
    let has_managed = line_of(&|line| line.trim_start().starts_with("managed ")).is_some();
    if let Some(line) = present.filter(|_| !has_managed && is_before_3_9(capture)) {
        let also = if highmem.is_some() { "; it is a 32-bit kernel (zone HighMem) too" } else { "" };
        return Some(format!("zoneinfo, line {line}: {NO_MANAGED}{also}"));
    }
    if let Some(line) = highmem {
        return Some(format!("zoneinfo, line {line}: {HIGHMEM}"));
    }
    let version = capture.text("version").unwrap_or_default();
    if let Some(machine) = machine(version).filter(|machine| OF_32_BIT.iter().any(|part| machine.starts_with(part))) {
        return Some(format!("uname -a says {machine}: {BITS}"));
    }
    let release = version::parse(version).ok().map(|release| release.text);
    release.and_then(|release| of_32_bit(&release)).or_else(|| small_space(capture.text("meminfo").unwrap_or_default()))
}

/// The machine that `uname -a` names behind the release, if it is no x86-64.
fn machine(version: &str) -> Option<&str> {
    let known = ["i386", "i486", "i586", "i686", "armv", "aarch64", "ppc64", "riscv64", "loongarch64", "s390x"];
    version.split_whitespace().skip(3).find(|word| known.iter().any(|name| word.starts_with(name)))
}

/// The sentence for a release that only 32-bit kernels have.
pub(super) fn of_32_bit(release: &str) -> Option<String> {
    let is_32_bit = OF_32_BIT.iter().any(|part| release.contains(part));
    is_32_bit.then(|| format!("release {release}: {BITS}"))
}

/// The sentence for 32-bit kernels, by /proc/meminfo: they have memory that is low or high, and less than 4 GiB of addresses.
fn small_space(meminfo: &str) -> Option<String> {
    let total = |line: &str| line.strip_prefix("VmallocTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok();
    let is_small = |line: &str| total(line).is_some_and(|kib| (1..KIB_OF_32_BIT).contains(&kib));
    let is_of_32_bit = |line: &&str| line.starts_with("LowTotal:") || is_small(line);
    let at = meminfo.lines().position(|line| is_of_32_bit(&line))?;
    let shown = meminfo.lines().nth(at).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    Some(format!("meminfo, line {}: {BITS}, found {shown:?}", at + 1))
}

/// A later kernel whose zoneinfo lacks the line is cut off.
fn is_before_3_9(capture: &Capture) -> bool {
    let release = capture.text("version").ok().and_then(|text| version::parse(text).ok());
    release.is_none_or(|release| (release.major, release.minor) < (3, 9))
}

/// Why the machine of a snapshot is not modelled: its page size; or that zoneinfo and meminfo are not of one machine.
pub(super) fn page_size(capture: &Capture, snapshot: &Snapshot) -> Option<String> {
    let frames = snapshot.zones.iter().map(|zone| zone.managed).sum::<Frames>().0;
    let release = &snapshot.version.text;
    let total = snapshot.meminfo.get("MemTotal").copied().or_else(|| of_nodes(capture));
    let Some(total) = total.filter(|_| frames > 0) else {
        let machine = machine(capture.text("version").unwrap_or_default()).unwrap_or_default();
        let is_large = LARGE_PAGES.iter().any(|part| release.contains(part) || machine.starts_with(part));
        return is_large.then(|| {
            format!("release {release}: such kernels have pages of 64 KiB, which are not modelled; MemTotal would tell (meminfo)")
        });
    };
    // In hundredths, so that a frame or two of difference is none.
    let each = total.saturating_mul(100) / frames;
    let is_near = |kib: u64| (kib * 85..=kib * 115).contains(&each);
    if let Some(kib) =
        [8, 16, 64, 256].into_iter().find(|kib| is_near(*kib)).filter(|kib| *kib > 8 || is_other(release))
    {
        return Some(format!(
            "pages of {kib} KiB are not modelled: MemTotal ({total} kB) is {kib} kB times the {frames} managed frames of \
             zoneinfo, not 4 kB times; the release is {release}"
        ));
    }
    if (250..=600).contains(&each) {
        return None;
    }
    Some(format!(
        "zoneinfo has {frames} managed frames, {} kB, but MemTotal of meminfo is {total} kB: expected both of one machine, and \
         neither cut off",
        frames.saturating_mul(4)
    ))
}

/// Machines other than x86-64, by their releases.
fn is_other(release: &str) -> bool {
    ["aarch64", "arm64", "ppc64", "powerpc", "mips", "loong", "sparc", "alpha", "ia64"]
        .iter()
        .any(|name| release.contains(name))
}

/// MemTotal of all nodes, from `node/nodeN/meminfo`.
fn of_nodes(capture: &Capture) -> Option<u64> {
    let texts: Vec<&str> = capture.matching("node/node", "/meminfo").map(|(_, text)| text).collect();
    let total = |text: &str| {
        let line = text.lines().find_map(|line| line.split_once("MemTotal:"))?;
        line.1.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    (!texts.is_empty()).then(|| texts.iter().map(|text| total(text)).sum::<Option<u64>>())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_low_or_few_addresses_are_of_32_bits() {
        let refused = |meminfo: &str| small_space(&format!("MemTotal: 252308 kB\n{meminfo}\n"));
        let expected = format!("meminfo, line 2: {BITS}, found \"VmallocTotal: 770048 kB\"");
        assert_eq!(refused("VmallocTotal:     770048 kB").as_deref(), Some(expected.as_str()));
        assert!(refused("LowTotal:         252308 kB").is_some());
        let machine_of = |words: &str| {
            machine(&format!("Linux version 5.4.0-1-generic #1 SMP {words} GNU/Linux")).map(str::to_owned)
        };
        assert_eq!(machine_of("i686 i686 i386").as_deref(), Some("i686"));
        assert_eq!((machine_of("ppc64le").as_deref(), machine_of("x86_64")), (Some("ppc64le"), None));
        for meminfo in ["VmallocTotal:   34359738367 kB", "VmallocTotal: 0 kB", "SwapTotal: 1 kB"] {
            assert_eq!(refused(meminfo), None, "{meminfo}");
        }
    }
}
