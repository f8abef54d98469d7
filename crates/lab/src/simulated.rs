//! A machine file as the simulator's machine: where its memory lies, and the settings that shape its zones.

mod thp;

use memory::backing::{Discard, HostSpec};
use mm::{
    file::disk::{DiskMedium, DiskSpec, Filesystem},
    guest::{
        balloon::{BalloonSpec, Leaves},
        reporting::ReportingSpec,
    },
    swap::{SwapMedium, SwapSpec},
    thp::ThpEnabled,
};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{BalloonDeflates, Variant},
    zone::{MachineView, Settings, ZoneKind},
};
use units::{
    Bytes, BytesPerSecond, CpuId, Frames, Order, PageAllocator, Pfn, Picos,
    setting::{
        self, DEFLATE_ON_OOM, NUMA_BALANCING, NUMA_SCAN_PERIOD_RESET, NUMA_SETTLE_COUNT, PCP_FRACTION,
        PCP_HIGH_FRACTION, REPORTING, REPORTING_ORDER, SHUFFLE, SLAB_ALLOCATOR,
    },
};
use workloads::Workload;

use crate::{
    layout,
    machine::{Latency, Machine, Storage, ZoneFacts},
    prices, seed,
};

/// The largest order of the buddy allocator of x86-64 (MAX_ORDER - 1, include/linux/mmzone.h, v6.1).
const MAX_ORDER: Order = Order(10);

/// The machine as the memory manager wants it; zones that the file does not give are laid out as usual.
pub fn spec(machine: &Machine) -> Result<MachineSpec, String> {
    let zones = layout::zones(machine);
    let nodes = machine.nodes.iter().zip(zones).map(|(node, zones)| {
        let zones = zones.iter().map(zone).collect::<Result<_, _>>()?;
        Ok(NodeSpec { id: node.id, cpus: node.cpus.clone(), distance: node.distance.clone(), zones })
    });
    let nodes = nodes.collect::<Result<Vec<NodeSpec>, String>>()?;
    check_borders(&nodes)?;
    Ok(MachineSpec { pageblock_order: Order::HUGE, max_order: MAX_ORDER, nodes })
}

/// Rejects a zone border inside a pageblock: here a pageblock belongs to one zone, though real machines can have such borders.
fn check_borders(nodes: &[NodeSpec]) -> Result<(), String> {
    let zones = nodes.iter().flat_map(|node| node.zones.iter().map(move |zone| (node.id, zone)));
    let mut zones: Vec<_> = zones.filter(|(_, zone)| zone.spanned.0 > 0).collect();
    zones.sort_by_key(|(_, zone)| zone.start);
    for pair in zones.windows(2) {
        let [(lower_node, lower), (upper_node, upper)] = pair else { unreachable!("windows of two") };
        let last = Pfn(lower.end().0 - 1);
        if last.align_down(Order::HUGE) >= upper.start.align_down(Order::HUGE) {
            return Err(format!(
                "node {lower_node} {} and node {upper_node} {} meet inside a pageblock, at frame {}; memory of nodes must \
                 be a multiple of 2MiB",
                lower.kind.name(),
                upper.kind.name(),
                upper.start
            ));
        }
    }
    Ok(())
}

/// Refuses what a user sets and the simulator would ignore, or the kernel refuse: a prediction that leaves it out would be of
/// another machine.
pub fn check_settings(settings: &[(String, String)], variant: &Variant) -> Result<(), String> {
    let refused = |(name, value): &(String, String)| Some(format!("{name}: {}", thp::refusal(name, value, variant)?));
    if let Some(problem) = settings.iter().find_map(refused) {
        return Err(problem);
    }
    if !variant.page_reporting && settings.iter().any(|(name, value)| name == REPORTING && value == "on") {
        return Err(format!(
            "{REPORTING}=on: these rules have no page reporting, which came with {}",
            release(REPORTING)
        ));
    }
    if !variant.has_slab && settings.iter().any(|(name, value)| name == SLAB_ALLOCATOR && value == "slab") {
        return Err(format!(
            "{SLAB_ALLOCATOR}=slab: kernels with these rules can be built with SLUB alone; SLAB went with 6.8"
        ));
    }
    let of_balancing = settings.iter().find(|(name, _)| name.starts_with(NUMA_BALANCING));
    if let Some((name, value)) = of_balancing.filter(|(_, value)| !variant.numa_balancing && value != "0") {
        return Err(format!("{name}={value}: the simulator does not balance NUMA with these rules"));
    }
    if let Some((name, value)) =
        settings.iter().find(|(name, value)| name == NUMA_BALANCING && !["0", "1"].contains(&value.as_str()))
    {
        return Err(format!("{name}: expected 0 or 1, found {value:?}; tiers of memory came with 5.18"));
    }
    let is_gone = |name: &str| variant.numa_groups && [NUMA_SCAN_PERIOD_RESET, NUMA_SETTLE_COUNT].contains(&name);
    if let Some((name, _)) = settings.iter().find(|(name, _)| is_gone(name)) {
        return Err(format!("{name}: 3.13 removes it"));
    }
    if variant.numa_period_by_preference && settings.iter().any(|(name, _)| name == NUMA_SCAN_PERIOD_RESET) {
        return Err(format!("{NUMA_SCAN_PERIOD_RESET}: patch 10 of v3.9 removes it"));
    }
    if !variant.numa_favours_moves && settings.iter().any(|(name, _)| name == NUMA_SETTLE_COUNT) {
        return Err(format!("{NUMA_SETTLE_COUNT}: these rules have no preferred nodes; patch 7 of v3.9 brings it"));
    }
    if variant.balloon_deflates == BalloonDeflates::Never
        && settings.iter().any(|(name, value)| name == DEFLATE_ON_OOM && value == "on")
    {
        return Err(format!(
            "{DEFLATE_ON_OOM}=on: a balloon of these rules gives nothing back by itself, which came with {}",
            release(DEFLATE_ON_OOM)
        ));
    }
    check_allocator(settings, variant)?;
    match settings.iter().find(|(name, _)| setting::find(name).is_none_or(|setting| setting.sim == setting::Sim::No)) {
        Some((name, _)) => {
            Err(format!("{name}: the simulator does not model it yet (it models {})", modelled().join(", ")))
        }
        None => Ok(()),
    }
}

/// Refuses settings of what Linux's page allocator alone has, where the rules have another.
fn check_allocator(settings: &[(String, String)], variant: &Variant) -> Result<(), String> {
    if variant.allocator == PageAllocator::Linux {
        return Ok(());
    }
    let lacks = |name: &str, value: &str| match name {
        REPORTING if value == "on" => Some("does not report free blocks"),
        SHUFFLE if value == "Y" => Some("has no free lists to shuffle"),
        "vm.compaction_proactiveness" if value != "0" => Some("is not compacted"),
        "vm.extfrag_threshold" => Some("is not compacted"),
        PCP_FRACTION | PCP_HIGH_FRACTION if value != "0" => Some("has no lists of CPUs"),
        "vm.watermark_boost_factor" if value != "0" => Some("has no migrate types, so that nothing raises marks"),
        _ => None,
    };
    let refused = settings.iter().find_map(|(name, value)| lacks(name, value).map(|why| (name, value, why)));
    match refused {
        Some((name, value, why)) => {
            Err(format!("{name}={value}: these rules have allocator = \"{}\", which {why}", variant.allocator.name()))
        }
        None => Ok(()),
    }
}

/// Names of settings whose mechanism the simulator has.
fn modelled() -> Vec<&'static str> {
    let modelled = setting::SETTINGS.iter().filter(|setting| setting.sim != setting::Sim::No);
    modelled.map(|setting| setting.name).collect()
}

/// The release that a setting came with.
fn release(name: &str) -> String {
    setting::find(name).and_then(setting::Setting::came_with).expect("a setting that not all kernels have")
}

/// Settings that guests of a simulated host have, on machines of hosts: `pagelab run two-guests --set page_reporting.order=10`.
pub(crate) const OF_GUESTS: [&str; 3] = [setting::REPORTING_ORDER, setting::REPORTING_DELAY, setting::DEVICE_POISON];

/// A host as its own kernel sees it: without the settings of its guests.
pub(crate) fn without_guests_settings(mut machine: Machine) -> Machine {
    machine.settings.retain(|(name, _)| !OF_GUESTS.contains(&name.as_str()));
    machine
}

/// Refuses what only a guest can have, where the machine is none.
pub fn check_guest(machine: &Machine) -> Result<(), String> {
    let is_of_guest = |name: &str| setting::find(name).is_some_and(|setting| setting.sim == setting::Sim::Guests);
    let of_guest = machine.settings.iter().find(|(name, _)| is_of_guest(name));
    match of_guest.filter(|_| machine.host_page.is_none()) {
        Some((name, _)) => Err(format!(
            "{name}: machine {} is no guest; expected one with the key host_page, such as haswell-guest-32g",
            machine.name
        )),
        None => Ok(()),
    }
}

/// Refuses what neither a host that runs guests can have nor these.
pub(crate) fn check_host_of_guests(machine: &Machine) -> Result<(), String> {
    match machine.settings.iter().find(|(name, _)| name == setting::REPORTING) {
        Some(_) => {
            Err(format!("{}: guests of a simulated host have it by parameter: --set reporting=on", setting::REPORTING))
        }
        None => check_guest(&without_guests_settings(machine.clone())),
    }
}

/// The host behind a guest's memory, and the way in which the guest reports free blocks.
fn as_guest(machine: &Machine, settings: &Settings) -> Result<(Option<HostSpec>, Option<ReportingSpec>), String> {
    check_guest(machine)?;
    let discard = if value(machine, setting::DISCARD) == Some("free") { Discard::Free } else { Discard::DontNeed };
    let page = |page| if page == Bytes::HUGE_PAGE { Order::HUGE } else { Order::BASE };
    let host = machine.host_page.map(|bytes| HostSpec { page: page(bytes), discard });
    let order = settings.reporting_order;
    let spec = ReportingSpec {
        order: Order(u8::try_from(order).map_err(|_| format!("{REPORTING_ORDER}: {order}"))?),
        delay: Picos::from_millis(settings.reporting_delay_ms.into()),
    };
    Ok((host, (value(machine, REPORTING) == Some("on")).then_some(spec)))
}

/// Memory that a workload in the simulator is told that there is.
pub fn managed(machine: &rules::machine::MachineSpec) -> Bytes {
    let zones = machine.nodes.iter().flat_map(|node| &node.zones);
    zones.map(|zone| zone.managed).sum::<Frames>().bytes()
}

/// Orders to a guest's balloon while a workload runs, where there is one. An operator who follows a trace knows the next phases:
/// from each phase on, the guest keeps what that phase and the next need, and so has room when the next begins.
pub fn balloon(machine: &Machine, workload: &Workload, memory: Bytes) -> Option<BalloonSpec> {
    let target = linux::balloon::target(&machine.settings)?;
    let deflate_on_oom = linux::balloon::deflates_on_oom(&machine.settings);
    match (target, workload) {
        ("trace", Workload::GuestFootprint(params)) => {
            let phases = params.phases(memory);
            let need = |at: usize| phases.get(at).map_or(0, |phase| (phase.anonymous + phase.file).frames().0);
            let order = |at: usize| (phases[at].at, Leaves::Use(Frames(need(at).max(need(at + 1)))));
            Some(BalloonSpec { orders: (0..phases.len()).map(order).collect(), deflate_on_oom })
        }
        (size, _) => {
            let size: Bytes = size.parse().ok()?;
            Some(BalloonSpec { orders: vec![(Picos(0), Leaves::Memory(size.frames()))], deflate_on_oom })
        }
    }
}

/// The machine with settings changed.
#[must_use]
pub fn with_settings(mut machine: Machine, settings: &[(String, String)]) -> Machine {
    for (name, value) in settings {
        machine.settings.retain(|(known, _)| known != name);
        machine.settings.push((name.clone(), value.clone()));
    }
    machine
}

/// Memory that user pages can ever be had from: what the zones manage above their min marks and what they keep from such
/// requests. Page tables come out of it too, so what fits here may still run out.
pub fn room(machine: &Machine, variant: &Variant) -> Result<Bytes, String> {
    Ok(above_marks(machine, variant)?.bytes() + machine.swap)
}

/// Whether a simulated kernel can start its first process. What it needs until then it has without reclaim, and so without swap;
/// a process that runs out of memory later is reclaimed for, or killed.
///
/// # Errors
/// Why it cannot, with the settings that say so.
pub fn check_start(machine: &Machine, variant: &Variant) -> Result<(), String> {
    /// Page tables and stacks of the first processes: assumed.
    const FIRST: Frames = Frames(16);
    let left = above_marks(machine, variant)?;
    let need = machine.system.map_or(FIRST, |system| Frames(FIRST.0 + system.anonymous.0 + system.kernel.0));
    if left >= need {
        return Ok(());
    }
    let kib = |frames: Frames| frames.bytes().0 >> 10;
    Err(format!(
        "machine {}: min marks and reserves leave {} KiB of its memory, and a kernel needs {} KiB to start a process: expected \
         a smaller vm.min_free_kbytes, or larger ratios in vm.lowmem_reserve_ratio",
        machine.name,
        kib(left),
        kib(need)
    ))
}

/// Frames that the zones manage above their min marks and what they keep from requests that may go to every zone.
fn above_marks(machine: &Machine, variant: &Variant) -> Result<Frames, String> {
    let view = spec(machine)?.view();
    let figures = memory::zone_figures(&view, &settings(machine, &view, variant)?, variant);
    let managed = view.nodes.iter().flat_map(|node| &node.zones).map(|zone| zone.managed);
    let room = managed.zip(&figures).map(|(managed, figures)| {
        // The last entry is for requests that may go to every zone.
        let kept = figures.protection.last().map_or(0, |frames| frames.0);
        managed.0.saturating_sub(figures.marks.min.0 + kept)
    });
    Ok(Frames(room.sum()))
}

/// A guest swaps to a virtio disk of its own, unless it is memory. What a disk takes is assumed: a solid-state one behind a
/// hypervisor.
fn swap(machine: &Machine) -> Option<SwapSpec> {
    let bandwidth = BytesPerSecond::new(Bytes::mib(400)).expect("more than nothing");
    let medium = match machine.storage {
        Storage::Disk => SwapMedium::Disk { latency: Picos::from_micros(80), bandwidth },
        Storage::Memory => SwapMedium::Memory,
    };
    (machine.swap > Bytes(0)).then_some(SwapSpec { size: machine.swap, medium })
}

/// The disk of a run's files: as large as they need.
fn disk(machine: &Machine) -> DiskSpec {
    let medium = match machine.storage {
        Storage::Disk => DiskMedium::Queue,
        Storage::Memory => DiskMedium::Memory,
    };
    let spec = DiskSpec { medium, ..DiskSpec::default() };
    machine.disk.map_or(spec, |disk| DiskSpec {
        latency: Picos::from_micros(disk.latency_us),
        bandwidth: disk.bandwidth,
        size: disk.size.unwrap_or(spec.size),
        filesystem: if disk.is_xfs { Filesystem::Xfs } else { Filesystem::Ext4 },
        ..spec
    })
}

/// The disk of a workload's files as guests have it, where the machine does not say how large it is: the size of the journal
/// follows from the disk's, and from that how much one transaction keeps in memory (`ext2fs_default_journal_size`, e2fsprogs
/// 1.47).
pub fn fit_disk(machine: &Machine, workload: &Workload, disk: DiskSpec) -> DiskSpec {
    let has_size = machine.disk.is_some_and(|disk| disk.size.is_some());
    let files = workload.files(machine.memory());
    if has_size || files == Bytes(0) { disk } else { DiskSpec { size: linux::disk::Disk::size_for(files), ..disk } }
}

/// Refuses a start from memory that was laid out in blocks of Linux's page allocator, where the rules have another.
pub(crate) fn check_state(state: Option<&str>, variant: &Variant) -> Result<(), String> {
    match state.filter(|_| variant.allocator != PageAllocator::Linux) {
        Some(state) => Err(format!(
            "state {state}: memory in blocks of Linux's page allocator, and these rules have allocator = \"{}\"",
            variant.allocator.name()
        )),
        None => Ok(()),
    }
}

/// Everything that the simulator needs to know.
pub fn config(machine: &Machine, variant: &Variant, cap: Bytes, seed: u64) -> Result<sim::Config, String> {
    let spec = spec(machine)?;
    let settings = settings(machine, &spec.view(), variant)?;
    let cpus = machine.cpus().len();
    let (host, reporting) = as_guest(machine, &settings)?;
    if host.is_some() && variant.allocator != PageAllocator::Linux {
        return Err(format!(
            "machine {}: a guest's pages are backed block by block, and allocator = {:?} has no blocks",
            machine.name,
            variant.allocator.name()
        ));
    }
    let of = |name: &str| value(machine, name);
    let is_small = thp::is_small(&spec.view());
    let thp_enabled = match of(setting::THP_ENABLED) {
        Some("never") => ThpEnabled::Never,
        Some("madvise") => ThpEnabled::Madvise,
        None if is_small => ThpEnabled::Never,
        _ => ThpEnabled::Always,
    };
    let use_zero_page = of("transparent_hugepage/use_zero_page").map_or(!is_small, |value| value != "0");
    let prices = prices::prices(&machine.prices, machine.pace.as_ref());
    Ok(sim::Config {
        machine: spec,
        variant: *variant,
        settings,
        thp_enabled,
        use_zero_page,
        thp_defrag: thp::defrag(of(setting::THP_DEFRAG), is_small, variant),
        khugepaged: thp::khugepaged(of, is_small),
        prices,
        cores: in_order(machine, &machine.threads),
        caches: in_order(machine, &caches(machine)),
        latency: machine.latency.as_ref().map(Latency::figures).unwrap_or_default(),
        shared_core: prices::shared_core(machine.shared_core.as_ref()).percent,
        bandwidth: machine.nodes.iter().filter_map(|node| Some((node.id, node.bandwidth?))).collect(),
        swap: swap(machine),
        disk: disk(machine),
        cpus,
        quantum: sim::QUANTUM,
        cap,
        seed,
        held: seed::held(seed),
        system: machine.system,
        host,
        reporting,
        balloon: None,
        shuffle: of(setting::SHUFFLE) == Some("Y"),
    })
}

/// The CPUs that share a cache; where the machine does not say, the CPUs of each node.
fn caches(machine: &Machine) -> Vec<Vec<CpuId>> {
    let of_nodes = || machine.nodes.iter().map(|node| node.cpus.clone()).filter(|cpus| !cpus.is_empty()).collect();
    if machine.caches.is_empty() { of_nodes() } else { machine.caches.clone() }
}

/// Groups of CPUs by the numbers that the simulator gives to them: in their order.
fn in_order(machine: &Machine, groups: &[Vec<CpuId>]) -> Vec<Vec<CpuId>> {
    let cpus = machine.cpus();
    let place = |cpu: &CpuId| cpus.iter().position(|other| other == cpu).expect("a group has CPUs of the machine");
    let id = |cpu: &CpuId| CpuId(u32::try_from(place(cpu)).expect("fewer than 2^32 CPUs"));
    groups.iter().map(|group| group.iter().map(id).collect()).collect()
}

fn zone(facts: &ZoneFacts) -> Result<ZoneSpec, String> {
    let kind = ZoneKind::from_name(&facts.name).ok_or_else(|| format!("no rules for zone {}", facts.name))?;
    let (spanned, present, managed) = (facts.spanned, facts.present, facts.managed);
    // Room above the last frame for the largest block, whose end has a number too.
    let end = facts.start_pfn.checked_add(spanned.0).and_then(|end| end.checked_add(MAX_ORDER.frames().into()));
    let start = u32::try_from(facts.start_pfn).ok().filter(|_| end.is_some_and(|end| u32::try_from(end).is_ok()));
    let start = start.ok_or_else(|| {
        format!("zone {} reaches 16 TiB, and the simulator has numbers for the frames below", facts.name)
    })?;
    Ok(ZoneSpec { kind, start: Pfn(start), spanned, present, managed })
}

/// The value of a setting in a machine file, as it is written there.
fn value<'m>(machine: &'m Machine, name: &str) -> Option<&'m str> {
    machine.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The settings of a machine file; `min_free_kbytes` follows from the pages where the file does not set it.
///
/// # Errors
/// A value is none of its setting's: nothing is left out silently, and the message begins with the name.
pub fn settings(machine: &Machine, view: &MachineView, variant: &Variant) -> Result<Settings, String> {
    let mut settings = Settings { thp: value(machine, setting::THP_ENABLED) != Some("never"), ..Settings::default() };
    // The fraction has two names, and the newer one goes before.
    if let Some(fraction) = value(machine, setting::PCP_FRACTION) {
        settings.set(setting::PCP_HIGH_FRACTION, fraction)?;
    }
    for (name, value) in &machine.settings {
        settings.set(name, value)?;
    }
    settings.min_free_kbytes = match value(machine, setting::MIN_FREE_KBYTES) {
        Some(kib) => kib.parse().map_err(|_| format!("{}: {kib:?} is no number of KiB", setting::MIN_FREE_KBYTES))?,
        None => memory::watermark::automatic_min_free_kbytes(view, &settings, variant),
    };
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use units::Frames;

    use super::*;

    #[test]
    fn nodes_that_meet_inside_a_pageblock_are_refused() {
        let node = |id: u32| format!("[[node]]\nid = {id}\nmemory = '262148KiB'\ncpus = '{id}'\n");
        let source = crate::source::Source::from_text("x.toml", format!("about = ''\n{}{}", node(0), node(1)));
        let machine = Machine::from_source(&source, &linux::setting::names()).unwrap();
        let error = spec(&machine).unwrap_err();
        assert!(error.starts_with("node 0 DMA32 and node 1 DMA32 meet inside a pageblock, at frame 65537"), "{error}");
    }

    #[test]
    fn a_disk_is_by_default_as_large_as_in_guests() {
        let (machine, generic) = (Machine::load("two-node-2g", &setting::names()).unwrap(), DiskSpec::default());
        let read = |name, params: &[(&str, &str)]| Workload::parse(name, params.iter().copied()).unwrap();
        let files = read("small-files", &[("total", "100%"), ("file", "64KiB")]);
        let room = linux::disk::Disk::size_for(Bytes::gib(2));
        assert_eq!((fit_disk(&machine, &files, generic).size, room), (room, Bytes::mib(2048 + 512 + 64)));
        assert_eq!(fit_disk(&machine, &read("fork-storm", &[]), generic), generic, "it has no files");
        let disk = crate::machine::Disk {
            latency_us: 1,
            bandwidth: generic.bandwidth,
            is_xfs: false,
            size: Some(Bytes::gib(1)),
        };
        let given = DiskSpec { size: Bytes::gib(1), ..generic };
        assert_eq!(fit_disk(&Machine { disk: Some(disk), ..machine }, &files, given), given);
    }

    /// A machine file says it, or `--set`: each number is what was written, and a text that is none ends the run.
    #[test]
    fn no_number_of_a_setting_is_dropped() {
        let machine = Machine::load("two-node-2g", &setting::names()).unwrap();
        let read = |name: &str, value: &str| {
            let machine = with_settings(machine.clone(), &[(name.to_owned(), value.to_owned())]);
            settings(&machine, &spec(&machine).unwrap().view(), rules::variant::named("v6.1"))
        };
        let ratios = |value| read("vm.lowmem_reserve_ratio", value).map(|settings| settings.lowmem_reserve_ratio);
        assert_eq!(ratios("256 -1 32 0 0"), Ok(vec![256, 0, 32, 0, 0]), "as the kernel takes a negative one");
        let bad = "vm.lowmem_reserve_ratio: expected whole numbers separated by blanks, found \"256 4294967296 32\"";
        assert_eq!(ratios("256 4294967296 32"), Err(bad.to_owned()));
        assert_eq!(read("vm.percpu_pagelist_fraction", "8").unwrap().percpu_pagelist_high_fraction, 8);
        assert!(read("vm.min_free_kbytes", "a lot").unwrap_err().starts_with("vm.min_free_kbytes: expected a whole"));
    }

    #[test]
    fn the_built_in_machines_are_machines() {
        for name in crate::source::names(crate::source::Kind::Machine) {
            let machine = Machine::load(&name, &linux::setting::names()).unwrap();
            let spec = spec(&machine).unwrap();
            let settings = settings(&machine, &spec.view(), rules::variant::named("v6.1")).unwrap();
            let managed: Frames = spec.nodes.iter().flat_map(|node| &node.zones).map(|zone| zone.managed).sum();
            assert!(managed.bytes() < machine.memory() && managed.bytes().0 * 10 > machine.memory().0 * 8, "{name}");
            assert!(settings.min_free_kbytes > 1000, "{name}");
            let mm = mm::Mm::new(&spec, *rules::variant::named("v6.1"), &settings);
            assert_eq!(
                mm.memory.zones().len(),
                spec.nodes.iter().map(|node| node.zones.len()).sum::<usize>(),
                "{name}"
            );
        }
    }

    #[test]
    fn balancing_is_refused_where_the_rules_have_another_form_of_it() {
        let check = |name: &str, setting: &str, value: &str| {
            let (base, patches) = rules::variant::split_patches(name).unwrap();
            let rules = rules::variant::patched(base, &patches);
            check_settings(&[(setting.to_owned(), value.to_owned())], &rules)
        };
        let size = "kernel.numa_balancing_scan_size_mb";
        assert_eq!(check("v3.9", NUMA_BALANCING, "1"), Ok(()));
        assert_eq!(check("v3.9+1-16", size, "64"), Ok(()));
        for name in ["v3.16", "v4.1", "v4.19", "v5.8", "v6.1"] {
            assert_eq!(check(name, NUMA_BALANCING, "1"), Ok(()), "{name}");
            assert_eq!(check(name, size, "64"), Ok(()), "{name}");
        }
        let without = Variant { numa_balancing: false, ..*rules::variant::named("v6.1") };
        let is_on = |value: &str| check_settings(&[(NUMA_BALANCING.to_owned(), value.to_owned())], &without);
        assert!(is_on("1").is_err() && is_on("0").is_ok());
        for (name, setting, value) in [
            ("v3.16", NUMA_SETTLE_COUNT, "3"),
            ("v6.1", NUMA_SCAN_PERIOD_RESET, "60000"),
            ("v3.9", NUMA_BALANCING, "2"),
            ("v3.9", NUMA_SETTLE_COUNT, "3"),
            ("v3.9+1-10", NUMA_SCAN_PERIOD_RESET, "60000"),
        ] {
            let said = check(name, setting, value).unwrap_err();
            assert!(said.starts_with(setting), "{name}: {said}");
        }
        assert_eq!(check("v3.9+1-7", NUMA_SETTLE_COUNT, "4"), Ok(()));
    }

    #[test]
    fn a_kernel_starts_with_memory_above_its_marks_without_swap() {
        let machine = Machine::load("one-node-512m", &setting::names()).unwrap();
        assert!(machine.swap > Bytes(0));
        let rules = rules::variant::named("v6.1");
        let start = |name: &str, value: &str| {
            check_start(&with_settings(machine.clone(), &[(name.to_owned(), value.to_owned())]), rules)
        };
        for kbytes in ["67584", "480000"] {
            assert_eq!(start(setting::MIN_FREE_KBYTES, kbytes), Ok(()), "{kbytes}");
        }
        let message = start(setting::MIN_FREE_KBYTES, "600000").unwrap_err();
        let expected =
            "machine one-node-512m: min marks and reserves leave 0 KiB of its memory, and a kernel needs 64 KiB";
        assert!(message.starts_with(expected), "{message}");
        // All of the built-in machines can, as they are.
        for name in crate::source::names(crate::source::Kind::Machine) {
            let machine = Machine::load(&name, &setting::names()).unwrap();
            assert_eq!(check_start(&machine, rules), Ok(()), "{name}");
        }
    }
}
