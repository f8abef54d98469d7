//! The machine that tests of the simulator run on, to change where they need another one; and a run without processes.

use memory::cost::Prices;
use mm::thp::{ThpEnabled, khugepaged::KhugepagedSettings};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{self, ThpDefrag},
    zone::{Settings, ZoneKind},
};
use sim::{Config, EntryFuture};
use units::{Bytes, CpuId, Frames, NodeId, Order, Pfn, Picos};

/// A machine of one node with these CPUs and frames, without huge pages, on which everything takes some time.
pub(crate) fn machine(cpus: u32, frames: u32) -> Config {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), frames);
    let ids = (0..cpus).map(CpuId).collect();
    let node = NodeSpec { id: NodeId(0), cpus: ids, distance: vec![10], zones: vec![zone] };
    Config {
        machine: MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] },
        variant: *variant::named("v6.1"),
        settings: Settings { min_free_kbytes: 128, ..Settings::default() },
        thp_enabled: ThpEnabled::Never,
        use_zero_page: true,
        thp_defrag: ThpDefrag::Madvise,
        khugepaged: KhugepagedSettings::default(),
        prices: Prices::new(|_| Picos::from_nanos(200)),
        cores: Vec::new(),
        caches: Vec::new(),
        shared_core: 100,
        latency: memory::cost::Latency::default(),
        bandwidth: Vec::new(),
        swap: None,
        disk: mm::file::disk::DiskSpec::default(),
        cpus: usize::try_from(cpus).unwrap(),
        quantum: sim::QUANTUM,
        cap: Bytes::mib(200),
        seed: 1,
        held: Frames(0),
        system: None,
        host: None,
        reporting: None,
        balloon: None,
        shuffle: false,
    }
}

/// The entries of a program whose tasks are all threads.
pub(crate) fn no_entries(name: &'static str, _: Vec<u8>) -> EntryFuture {
    panic!("nobody spawns a process, not even {name}")
}
