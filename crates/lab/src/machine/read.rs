//! Reads and validates a machine file.

use std::collections::BTreeMap;

use mm::whole::state::System;
use units::{Bytes, BytesPerSecond, CpuId, Frames, NodeId};

use super::{Disk, LOCAL_DISTANCE, Machine, Node, REMOTE_DISTANCE, Storage, ZoneFacts, cpulist, latency};
use crate::{
    prices,
    source::{Scalar, Source, TableReader, unknown},
    usage::UsageError,
};

const KEYS: &[&str] = &[
    "about",
    "kernel",
    "modules",
    "swap",
    "storage",
    "host_page",
    "disk",
    "system",
    "threads",
    "caches",
    "shared_core",
    "pace",
    "node",
    "settings",
    "prices",
    "latency",
    "measured",
];
const DISK_KEYS: &[&str] = &["latency_us", "bandwidth", "filesystem", "size"];
const FILESYSTEMS: [&str; 2] = ["ext4", "xfs"];
const SYSTEM_KEYS: &[&str] = &["anonymous", "kernel", "percent", "programs", "varies"];
const NODE_KEYS: &[&str] = &["id", "memory", "cpus", "distance", "bandwidth", "zone"];
const ZONE_KEYS: &[&str] = &["name", "start_pfn", "spanned", "present", "managed"];

/// The kernel ignores smaller nodes (NODE_MIN_SIZE, arch/x86/include/asm/numa.h, v6.1).
const NODE_MEMORY_MIN: Bytes = Bytes::mib(4);
/// Measured: Debian's 6.1 boots with our init in 96 MiB, and panics in 64 MiB.
const MEMORY_MIN: Bytes = Bytes::mib(96);
/// More than any x86-64 machine addresses (52 bits), so that sums over nodes never overflow.
const NODE_MEMORY_MAX: Bytes = Bytes::gib(1 << 22);

/// The simulator numbers swap slots with 32 bits, 16 TiB in all.
const SWAP_MAX: Bytes = Bytes::gib(8 << 10);

/// Far below any memory, and far from clocks that overflow.
const BANDWIDTH_MIN: BytesPerSecond = BytesPerSecond::new(Bytes::mib(1)).unwrap();

/// A second: no disk of ours is a tape.
const LATENCY_MAX_US: u64 = 1_000_000;

/// From the least that mkfs.xfs takes to more than there is.
const DISK_SIZES: std::ops::RangeInclusive<Bytes> = Bytes::mib(16)..=Bytes::gib(1 << 20);

/// ACPI's SLIT: 255 means unreachable.
const DISTANCE_MAX: u32 = 254;

pub(super) fn machine(source: &Source, known: &[&str]) -> Result<Machine, UsageError> {
    let document = source.parse()?;
    let root = document.root().only("key", KEYS)?;
    let about = root.required("about")?;
    let tables =
        root.tables("node")?.into_iter().map(|table| table.only("key", NODE_KEYS)).collect::<Result<Vec<_>, _>>()?;
    if tables.is_empty() {
        return Err(root.error("node", "a machine has at least one [[node]], found none"));
    }
    let mut nodes = Vec::with_capacity(tables.len());
    for (table, id) in tables.iter().zip(0..) {
        nodes.push(node(table, NodeId(id))?);
    }
    let memory: Bytes = nodes.iter().map(|node| node.memory).sum();
    if memory == Bytes(0) {
        return Err(tables[0].error("memory", too_small(memory)));
    }
    if memory < MEMORY_MIN {
        let message =
            format!("expected at least {MEMORY_MIN} in all nodes (Linux does not boot in less), found {memory}");
        return Err(tables[0].error("memory", message));
    }
    let owners = owners(&tables, &nodes)?;
    read_distances(&tables, &mut nodes)?;
    Ok(Machine {
        name: source.name().to_owned(),
        about,
        threads: groups(&root, &owners, ("threads", "core"))?,
        caches: groups(&root, &owners, ("caches", "cache"))?,
        shared_core: prices::read_shared_core(&root)?,
        settings: settings(&root, known)?,
        pace: prices::read_pace(&root)?,
        prices: prices::read(&root)?,
        measured: prices::read_measured(&root)?,
        latency: latency::read(&root, nodes.len())?,
        modules: root.optional("modules")?.unwrap_or_default(),
        swap: swap(&root)?,
        storage: storage(&root)?,
        host_page: host_page(&root)?,
        disk: disk(&root)?,
        system: system(&root, memory)?,
        kernel: root.optional("kernel")?,
        nodes,
    })
}

/// A system that takes more than half of the memory leaves no room for benchmarks.
fn system(root: &TableReader<'_>, memory: Bytes) -> Result<Option<System>, UsageError> {
    let Some(table) = root.table("system")? else { return Ok(None) };
    let table = table.only("key", SYSTEM_KEYS)?;
    let (anonymous, kernel): (Bytes, Bytes) = (table.required("anonymous")?, table.required("kernel")?);
    if anonymous > memory || kernel > memory || anonymous + kernel > Bytes(memory.0 / 2) {
        let message = format!("expected at most half of the memory for the system, found {anonymous} and {kernel}");
        return Err(table.error("anonymous", message));
    }
    let percent: u64 = table.required("percent")?;
    let spread = u32::try_from(percent).ok().filter(|percent| *percent <= 50);
    let percent = spread.ok_or_else(|| table.error("percent", format!("expected 0 to 50, found {percent}")))?;
    let programs: Bytes = table.optional("programs")?.unwrap_or_default();
    let program = System::PROGRAM.bytes();
    if programs > Bytes(0) && !(program..=Bytes(memory.0 / 2)).contains(&programs) {
        let message = format!("expected 0 or {program} to half of the memory, found {programs}");
        return Err(table.error("programs", message));
    }
    let varies: u64 = table.optional("varies")?.unwrap_or_default();
    let by = u32::try_from(varies).ok().filter(|by| *by <= 90);
    let varies = by.ok_or_else(|| table.error("varies", format!("expected 0 to 90, found {varies}")))?;
    let [anonymous, kernel, programs] = [anonymous, kernel, programs].map(Bytes::frames);
    Ok(Some(System { anonymous, kernel, percent, programs, varies }))
}

fn swap(root: &TableReader<'_>) -> Result<Bytes, UsageError> {
    let swap: Bytes = root.optional("swap")?.unwrap_or_default();
    if swap > SWAP_MAX || !swap.0.is_multiple_of(Bytes::HUGE_PAGE.0) {
        let message = format!("expected a multiple of {} up to {SWAP_MAX}, found {swap}", Bytes::HUGE_PAGE);
        return Err(root.error("swap", message));
    }
    Ok(swap)
}

fn host_page(root: &TableReader<'_>) -> Result<Option<Bytes>, UsageError> {
    let page: Option<Bytes> = root.optional("host_page")?;
    match page {
        Some(page) if page != Bytes::PAGE && page != Bytes::HUGE_PAGE => {
            Err(root.error("host_page", format!("expected \"4KiB\" or \"2MiB\", found \"{page}\"")))
        }
        page => Ok(page),
    }
}

fn storage(root: &TableReader<'_>) -> Result<Storage, UsageError> {
    let Some(name) = root.optional::<String>("storage")? else { return Ok(Storage::default()) };
    let found = Storage::ALL.into_iter().find(|medium| medium.name() == name);
    found.ok_or_else(|| root.error("storage", format!("expected \"disk\" or \"memory\", found {name:?}")))
}

fn disk(root: &TableReader<'_>) -> Result<Option<Disk>, UsageError> {
    let Some(table) = root.table("disk")? else { return Ok(None) };
    let table = table.only("key", DISK_KEYS)?;
    if storage(root)? == Storage::Memory {
        return Err(root.error("disk", "a machine whose storage is memory has no disk".to_owned()));
    }
    let filesystem = table.optional::<String>("filesystem")?.unwrap_or_else(|| "ext4".to_owned());
    if !FILESYSTEMS.contains(&filesystem.as_str()) {
        return Err(table.error("filesystem", unknown("filesystem", &filesystem, &FILESYSTEMS)));
    }
    let is_xfs = filesystem == "xfs";
    let disk = Disk {
        latency_us: table.required("latency_us")?,
        bandwidth: table.required("bandwidth")?,
        is_xfs,
        size: table.optional("size")?,
    };
    if let Some(size) = disk.size.filter(|size| !DISK_SIZES.contains(size)) {
        let (least, most) = (DISK_SIZES.start(), DISK_SIZES.end());
        return Err(table.error("size", format!("expected from {least} to {most}, found {size}")));
    }
    if disk.latency_us > LATENCY_MAX_US {
        return Err(table.error("latency_us", format!("expected at most {LATENCY_MAX_US}, found {}", disk.latency_us)));
    }
    if disk.bandwidth < BANDWIDTH_MIN {
        return Err(table.error("bandwidth", format!("expected at least {BANDWIDTH_MIN}, found {}", disk.bandwidth)));
    }
    Ok(Some(disk))
}

/// A node without its distances, which make sense only beside the distances of the other nodes.
fn node(table: &TableReader<'_>, id: NodeId) -> Result<Node, UsageError> {
    let found: u64 = table.required("id")?;
    if found != u64::from(id.0) {
        return Err(table.error("id", format!("nodes are numbered from 0 in order: expected {id}, found {found}")));
    }
    let memory: Bytes = table.required("memory")?;
    let cpus = cpulist::parse(&table.required::<String>("cpus")?).map_err(|message| table.error("cpus", message))?;
    // Boards with two modules have nodes of CPUs alone; the kernel keeps these.
    if memory < NODE_MEMORY_MIN && (memory > Bytes(0) || cpus.is_empty()) {
        return Err(table.error("memory", too_small(memory)));
    }
    if !memory.0.is_multiple_of(Bytes::PAGE.0) {
        return Err(table.error("memory", format!("expected a multiple of {}, found {memory}", Bytes::PAGE)));
    }
    if memory > NODE_MEMORY_MAX {
        return Err(table.error("memory", format!("expected at most {NODE_MEMORY_MAX}, found {memory}")));
    }
    let bandwidth: Option<BytesPerSecond> = table.optional("bandwidth")?;
    if let Some(found) = bandwidth.filter(|bandwidth| *bandwidth < BANDWIDTH_MIN) {
        return Err(table.error("bandwidth", format!("expected at least {BANDWIDTH_MIN}, found {found}")));
    }
    let zones = table.tables("zone")?.into_iter().map(zone).collect::<Result<_, _>>()?;
    Ok(Node { id, cpus, memory, distance: Vec::new(), bandwidth, zones })
}

fn too_small(memory: Bytes) -> String {
    format!("expected at least {NODE_MEMORY_MIN} (the kernel ignores smaller nodes), found {memory}")
}

fn zone(table: TableReader<'_>) -> Result<ZoneFacts, UsageError> {
    let table = table.only("key", ZONE_KEYS)?;
    let frames = |key| table.required(key).map(Frames);
    let zone = ZoneFacts {
        name: table.required("name")?,
        start_pfn: table.required("start_pfn")?,
        spanned: frames("spanned")?,
        present: frames("present")?,
        managed: frames("managed")?,
    };
    for (key, part, whole_key, whole) in
        [("present", zone.present, "spanned", zone.spanned), ("managed", zone.managed, "present", zone.present)]
    {
        if part > whole {
            return Err(table.error(key, format!("expected at most {whole_key} ({whole} frames), found {part}")));
        }
    }
    Ok(zone)
}

/// Which node each CPU is on: CPUs are numbered from 0 without gaps, and each is on one node.
fn owners(tables: &[TableReader<'_>], nodes: &[Node]) -> Result<BTreeMap<CpuId, NodeId>, UsageError> {
    let mut owners = BTreeMap::new();
    for (table, node) in tables.iter().zip(nodes) {
        for &cpu in &node.cpus {
            if let Some(owner) = owners.insert(cpu, node.id) {
                return Err(table.error("cpus", format!("CPU {cpu} is already on node {owner}")));
            }
        }
    }
    if owners.is_empty() {
        return Err(tables[0].error("cpus", "expected at least one CPU in the machine, found none on any node"));
    }
    for ((&cpu, &owner), expected) in owners.iter().zip(0..) {
        if cpu.0 != expected {
            let message = format!("CPUs are numbered from 0 without gaps: there is a CPU {cpu}, but no CPU {expected}");
            return Err(tables[owner.0 as usize].error("cpus", message));
        }
    }
    Ok(owners)
}

/// Distances are given by every node or by none.
fn read_distances(tables: &[TableReader<'_>], nodes: &mut [Node]) -> Result<(), UsageError> {
    let given = tables.iter().any(|table| table.has("distance"));
    for at in 0..nodes.len() {
        nodes[at].distance = if given {
            distances(&tables[at], &nodes[..at], nodes.len())?
        } else {
            (0..nodes.len()).map(|to| if to == at { LOCAL_DISTANCE } else { REMOTE_DISTANCE }).collect()
        };
    }
    Ok(())
}

/// The distances of the node after the `earlier` ones.
fn distances(table: &TableReader<'_>, earlier: &[Node], nodes: usize) -> Result<Vec<u32>, UsageError> {
    let found: Vec<u64> = table.required("distance")?;
    let error = |message: String| Err(table.error("distance", message));
    if found.len() != nodes {
        return error(format!("expected one distance per node ({nodes}), found {}", found.len()));
    }
    let here = earlier.len();
    let mut row = Vec::with_capacity(nodes);
    for (to, distance) in found.into_iter().enumerate() {
        let valid = if to == here { LOCAL_DISTANCE..=LOCAL_DISTANCE } else { LOCAL_DISTANCE + 1..=DISTANCE_MAX };
        let Some(distance) = u32::try_from(distance).ok().filter(|distance| valid.contains(distance)) else {
            let (low, high) = valid.into_inner();
            let range = if low == high { low.to_string() } else { format!("{low} to {high}") };
            return error(format!("expected {range} as the distance from node {here} to node {to}, found {distance}"));
        };
        match earlier.get(to) {
            Some(node) if node.distance[here] != distance => {
                let back = node.distance[here];
                return error(format!(
                    "node {here} to node {to} is {distance}, but node {to} to node {here} is {back}"
                ));
            }
            _ => row.push(distance),
        }
    }
    Ok(row)
}

/// Cores that list their hardware threads, or caches that list the CPUs that share them: all CPUs or none, each once, and what
/// is shared is on one node.
fn groups(
    root: &TableReader<'_>,
    owners: &BTreeMap<CpuId, NodeId>,
    (key, what): (&str, &str),
) -> Result<Vec<Vec<CpuId>>, UsageError> {
    let Some(lists) = root.optional::<Vec<String>>(key)? else { return Ok(Vec::new()) };
    let error = |message: String| Err(root.error(key, message));
    let mut unlisted = owners.clone();
    let mut groups = Vec::with_capacity(lists.len());
    for list in lists {
        let group = cpulist::parse(&list).map_err(|message| root.error(key, message))?;
        if group.is_empty() {
            return error(format!("expected at least one CPU on each {what}, found an empty list"));
        }
        for &cpu in &group {
            match (owners.get(&cpu), unlisted.remove(&cpu)) {
                (None, _) => return error(format!("CPU {cpu} is not on any node")),
                (Some(_), None) => return error(format!("CPU {cpu} is listed twice")),
                (Some(node), Some(_)) if *node != owners[&group[0]] => {
                    return error(format!("CPUs {} and {cpu} share a {what}, but not a node", group[0]));
                }
                _ => {}
            }
        }
        groups.push(group);
    }
    match unlisted.first_key_value() {
        Some((cpu, _)) if !groups.is_empty() => error(format!("CPU {cpu} is on no {what}; list each CPU, or none")),
        _ => Ok(groups),
    }
}

fn settings(root: &TableReader<'_>, known: &[&str]) -> Result<Vec<(String, String)>, UsageError> {
    let Some(table) = root.table("settings")? else { return Ok(Vec::new()) };
    for key in table.keys() {
        // `vm.min_free_kbytes = 1` without quotes is a table to TOML.
        if let Ok(Some(inner)) = table.table(key) {
            let name = format!("{key}.{}", inner.keys().join("."));
            return Err(table.error(key, format!("a setting's name with a dot in it needs quotes: {name:?}")));
        }
    }
    let table = table.only("setting", known)?;
    let read = |name: &str| {
        let value = table.required::<Scalar>(name)?.0;
        linux::setting::check_form(name, &value).map_err(|problem| table.error(name, problem))?;
        Ok((name.to_owned(), value))
    };
    table.keys().into_iter().map(read).collect()
}
