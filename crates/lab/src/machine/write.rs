//! A machine as the text of its file.

use units::{Bytes, CpuId, Frames};

use crate::{prices, source::quoted as string};

use super::{Machine, Node, Storage, ZoneFacts, cpulist, latency};

/// The whole file. Root keys come first: after a table header, TOML would read them as the table's.
pub(super) fn machine(machine: &Machine) -> String {
    let mut text = String::from("# A machine for pagelab: NUMA nodes, CPUs, memory and kernel settings.\n");
    if machine.kernel.is_some() {
        text += "# Written from what a running kernel said about itself; `kernel` is its release.\n";
    }
    line(&mut text, "about", &string(&machine.about));
    if let Some(kernel) = &machine.kernel {
        line(&mut text, "kernel", &string(kernel));
    }
    if !machine.modules.is_empty() {
        line(&mut text, "modules", &list(machine.modules.iter().map(|module| string(module))));
    }
    if machine.swap > Bytes(0) {
        line(&mut text, "swap", &string(&machine.swap.to_string()));
    }
    if machine.storage != Storage::default() {
        line(&mut text, "storage", &string(machine.storage.name()));
    }
    if let Some(page) = machine.host_page {
        line(&mut text, "host_page", &string(&page.to_string()));
    }
    if let Some(disk) = &machine.disk {
        let (latency, bandwidth) = (disk.latency_us, string(&disk.bandwidth.to_string()));
        let filesystem = if disk.is_xfs { ", filesystem = \"xfs\"" } else { "" };
        let size = disk.size.map_or_else(String::new, |size| format!(", size = \"{size}\""));
        line(&mut text, "disk", &format!("{{ latency_us = {latency}, bandwidth = {bandwidth}{filesystem}{size} }}"));
    }
    if let Some(system) = &machine.system {
        let size = |frames: Frames| string(&frames.bytes().to_string());
        let [anonymous, kernel, programs] = [system.anonymous, system.kernel, system.programs].map(size);
        let (percent, varies) = (system.percent, system.varies);
        let memory = format!("anonymous = {anonymous}, kernel = {kernel}, percent = {percent}");
        let value = format!("{{ {memory}, programs = {programs}, varies = {varies} }}");
        line(&mut text, "system", &value);
    }
    if !machine.threads.is_empty() {
        text += "# One entry per core: the CPUs that share it.\n";
        line(&mut text, "threads", &groups(&machine.threads));
    }
    if !machine.caches.is_empty() {
        text += "# One entry per last cache: the CPUs that share it.\n";
        line(&mut text, "caches", &groups(&machine.caches));
    }
    if let Some(shared) = &machine.shared_core {
        line(&mut text, "shared_core", &prices::write_percent(shared.percent, &shared.source, string));
    }
    if let Some(pace) = &machine.pace {
        line(&mut text, "pace", &prices::write_percent(pace.percent, &pace.source, string));
    }
    for node in &machine.nodes {
        write_node(&mut text, node);
    }
    if !machine.settings.is_empty() {
        text += "\n[settings]\n";
        for (name, value) in &machine.settings {
            line(&mut text, &string(name), &setting(value));
        }
    }
    if !machine.prices.is_empty() {
        text += "\n[prices]\n";
        text.extend(machine.prices.iter().map(|price| prices::write(price, string)));
    }
    if let Some(figures) = &machine.latency {
        text += &latency::write(figures, string);
    }
    if !machine.measured.is_empty() {
        text += "\n# What no operation of the simulator stands for; no run uses it.\n[measured]\n";
        text.extend(machine.measured.iter().map(|measured| prices::write_measured(measured, string)));
    }
    text
}

fn write_node(text: &mut String, node: &Node) {
    *text += "\n[[node]]\n";
    line(text, "id", &node.id.to_string());
    line(text, "memory", &string(&node.memory.to_string()));
    line(text, "cpus", &string(&cpulist::print(&node.cpus)));
    line(text, "distance", &list(node.distance.iter().map(u32::to_string)));
    if let Some(bandwidth) = node.bandwidth {
        line(text, "bandwidth", &string(&bandwidth.to_string()));
    }
    for ZoneFacts { name, start_pfn, spanned, present, managed } in &node.zones {
        *text += "[[node.zone]]\n";
        line(text, "name", &string(name));
        line(text, "start_pfn", &start_pfn.to_string());
        line(text, "spanned", &spanned.to_string());
        line(text, "present", &present.to_string());
        line(text, "managed", &managed.to_string());
    }
}

fn line(text: &mut String, key: &str, value: &str) {
    text.extend([key, " = ", value, "\n"]);
}

/// Numbers without quotes, if they read back as the same text.
fn setting(value: &str) -> String {
    match value.parse::<i64>() {
        Ok(number) if number.to_string() == value => value.to_owned(),
        _ => string(value),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// Groups of CPUs, each a list as the kernel writes one.
fn groups(groups: &[Vec<CpuId>]) -> String {
    list(groups.iter().map(|cpus| string(&cpulist::print(cpus))))
}
