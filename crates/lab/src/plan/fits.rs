//! Whether the files of a session fit where they are to lie, and may all be open; and whether a guest can have its settings.

use std::path::Path;

use linux::{
    disk::{Disk, Medium},
    file,
    qemu::Accelerator,
};
use units::{
    Bytes,
    setting::{BALLOON, DEFLATE_ON_OOM, NUMA_BALANCING, REPORTING},
};
use workloads::Workload;

use super::{Place, Session};
use crate::workload;

/// The most files that a process may have open: what `fs.nr_open` is after boot (`sysctl_nr_open`, fs/file.c, v6.1).
const OPEN_MAX: u64 = 1 << 20;

/// Parameters that give the total size of files. A workload uses the first line that has any of its parameters.
const SIZED_BY: [&[&str]; 2] = [&["aged", "total"], &["size"]];

/// Why the parameters of a session ask for files that its machine cannot have, if they do: a mistake on every host.
pub(super) fn misfit(session: &Session) -> Option<String> {
    let (need, from) = (session.files(), params(session));
    let size = session.machine.disk.and_then(|disk| disk.size);
    if let Some(size) = size.filter(|size| need > *size) {
        let machine = &session.machine.name;
        return Some(format!("files of {} ({from}) do not fit the disk of machine {machine}, {size}", mib(need)));
    }
    if let Some(problem) =
        beyond_balloon(session).or_else(|| nothing_to_balance(session)).or_else(|| beyond_overcommit(session))
    {
        return Some(problem);
    }
    // The simulator has no table of descriptors.
    let open =
        session.keys.iter().map(|key| workload::planned(key).open_files(session.memory())).max().unwrap_or_default();
    (open > OPEN_MAX && !matches!(session.place, Place::Sim { .. })).then(|| {
        format!(
            "{open} files are open at the same time, a process may have {OPEN_MAX}: larger ones (file) or less ({from})"
        )
    })
}

/// Whether somebody sets how memory is balanced between the nodes of a machine that has one.
fn nothing_to_balance(session: &Session) -> Option<String> {
    let nodes = session.machine.nodes.len();
    let is_of_balancing = |(name, value): &&(String, String)| {
        name.starts_with(NUMA_BALANCING) && (name != NUMA_BALANCING || value != "0")
    };
    let (name, value) = session.settings.iter().find(is_of_balancing)?;
    let is_said = session.settings.iter().any(|(name, _)| name == NUMA_BALANCING);
    if nodes > 1 {
        // Real kernels may balance without being told; the simulator does not.
        return (!is_said && matches!(session.place, Place::Sim { .. }))
            .then(|| format!("--set {name}={value}: nothing is balanced unless {NUMA_BALANCING}=1 is set too"));
    }
    let expected = if name == NUMA_BALANCING { "0, or " } else { "" };
    let machine = &session.machine.name;
    Some(format!(
        "--set {name}={value}: nothing can be balanced on machine {machine}, which has {nodes} node: expected {expected}a \
         machine of two nodes and more, as --machine two-node-2g"
    ))
}

/// Whether a balloon leaves the guest less than its workload touches, though nothing takes pages back out.
fn beyond_balloon(session: &Session) -> Option<String> {
    let settings = [&session.machine.settings[..], &session.settings[..]].concat();
    let deflates = linux::balloon::deflates_on_oom(&settings);
    let size: Bytes = linux::balloon::target(&settings).filter(|_| !deflates)?.parse().ok()?;
    let need = session.keys.iter().map(|key| workload::planned(key).memory(session.memory())).max().unwrap_or_default();
    (need > size).then(|| {
        let (need, size) = (mib(need), mib(size));
        format!(
            "{BALLOON}: the guest is left with {size} and the workload touches {need} (trace, size): expected more, or \
             {DEFLATE_ON_OOM}=on"
        )
    })
}

/// Whether a phase of a service asks for more memory in one call than Linux promises: memory and swap, unless
/// `vm.overcommit_memory` is 1 (`__vm_enough_memory`, mm/util.c).
fn beyond_overcommit(session: &Session) -> Option<String> {
    const OVERCOMMIT: (&str, &str) = ("vm.overcommit_memory", "1");
    let mut settings = session.machine.settings.iter().chain(&session.settings);
    if session.place.is_host() || settings.any(|(name, value)| (name.as_str(), value.as_str()) == OVERCOMMIT) {
        return None;
    }
    let largest = |key| match workload::planned(key) {
        Workload::Service(service) => service.largest_mapping(session.memory()),
        _ => None,
    };
    let (phase, size) = session.keys.iter().filter_map(largest).max_by_key(|(_, size)| *size)?;
    let most = session.machine.memory() + session.machine.swap;
    (size > most).then(|| {
        let (size, most) = (mib(size), mib(most));
        format!(
            "{phase} maps {size} in one call, and a kernel refuses more than memory and swap, {most}: expected a smaller size \
             several times (times), or more threads"
        )
    })
}

/// Why this host has no room for the files of a session, if it has none.
pub(super) fn lack(session: &Session, available: impl Fn() -> Bytes) -> Option<String> {
    let directory = std::env::temp_dir();
    let left = || file::free_space(&directory).unwrap_or(Bytes(u64::MAX));
    match (&session.place, session.disk()) {
        (Place::Host, _) => on_host(session, left(), &directory),
        (Place::Vm { .. }, Some(disk)) => {
            let (left, place) = match disk.medium {
                Medium::Virtio => (left(), format!("left in {} (TMPDIR chooses the place)", directory.display())),
                // It is a part of QEMU's memory.
                Medium::Pmem => (available(), "available in memory".to_owned()),
            };
            in_guest(session, disk, left, &place)
        }
        _ => None,
    }
}

/// Whether a guest can have what is set of its host and of how it reports free pages.
pub(super) fn reporting(session: &Session) -> Result<(), String> {
    let of_machine = session.machine.settings.iter().map(|set| (format!("machine {}:", session.machine.name), set));
    let of_user = session.settings.iter().map(|set| ("--set".to_owned(), set));
    let replayable = matches!(session.place.accelerator(1), Some(Accelerator::Replayable { .. }));
    for (place, (name, value)) in of_machine.chain(of_user) {
        if let Some(reason) = linux::balloon::refused_in_guests(name) {
            return Err(format!("{place} {name}: {reason}"));
        }
        let why = match name.as_str() {
            REPORTING if value == "on" => "a report ends at an instant of the host's",
            BALLOON if value != "off" => "an order comes at an instant of the host's",
            _ => continue,
        };
        if replayable {
            return Err(format!("{place} {name}={value}: not with --replayable: {why} (--accel tcg or kvm)"));
        }
    }
    Ok(())
}

fn on_host(session: &Session, left: Bytes, directory: &Path) -> Option<String> {
    let need = session.files();
    (need > Bytes(left.0 / 2)).then(|| {
        let (need, left, from) = (mib(need), mib(left), params(session));
        let place = directory.display();
        format!("files of {need} ({from}) are more than half of the {left} that are left in {place} (TMPDIR chooses the place)")
    })
}

fn in_guest(session: &Session, disk: Disk, left: Bytes, place: &str) -> Option<String> {
    let need = Bytes(disk.size.0.saturating_add(disk.swap.0));
    (need > left).then(|| {
        let (files, need, left, from) = (mib(session.files()), mib(need), mib(left), params(session));
        format!("files of {files} ({from}) take disks of {need} with swap, more than the {left} that are {place}")
    })
}

/// The parameters that make files as large as they are.
fn params(session: &Session) -> String {
    let Some(key) = session.keys.first() else { return String::new() };
    let found = SIZED_BY.iter().map(|names| workload::those(key, names)).find(|names| !names.is_empty());
    found.unwrap_or_default()
}

fn mib(size: Bytes) -> String {
    format!("{} MiB", size.as_mib())
}
