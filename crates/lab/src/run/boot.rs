//! What a guest is told: which cells share a boot, and the plan that its init carries out.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use linux::{
    file::Ground,
    guest::{Fault, Plan as GuestPlan, PlannedNode},
    kernel_image::KernelImage,
    module::ModuleError,
    tracing::Watch,
};
use report::Key;

use super::files::CELL;
use crate::{
    machine::{Machine, Node},
    order::{CellOrder, Order},
    plan::{Every, Place, Session},
    seed,
};

/// For tests: a fault that guests shall have (`panic`, `hang`, `exit`, `oom`).
const INJECT: &str = "PAGELAB_INJECT";

/// A guest that has not come to its first operation by then never will, even on a busy machine.
pub(crate) const BOOT_TIMEOUT_S: u64 = 180;

/// The cells of each boot that has cells to do. Cells with the same seed share a boot. A workload that fills memory leaves a
/// changed kernel (compaction deferred, mobility of blocks changed), so each of its cells gets a boot of its own; so does a cell
/// with a balloon, which the following cell would find inflated.
pub(super) fn boots(session: &Session, replayable: bool, done: &BTreeSet<Key>) -> Vec<Vec<Key>> {
    let boots: Vec<Vec<Key>> = if session.presses() || session.has_balloon() {
        session.keys.iter().map(|key| vec![key.clone()]).collect()
    } else {
        session.keys.chunk_by(|one, next| one.seed == next.seed).map(<[Key]>::to_vec).collect()
    };
    let missing = |keys: Vec<Key>| {
        let left: Vec<Key> = keys.iter().filter(|key| !done.contains(*key)).cloned().collect();
        // A replayable boot is one thing: a part of it would not be the same run.
        (!left.is_empty()).then_some(if replayable { keys } else { left })
    };
    boots.into_iter().filter_map(missing).collect()
}

pub(super) fn guest_plan(session: &Session, keys: &[Key], sample: Option<Every>) -> Result<GuestPlan, String> {
    let disk = session.disk();
    let ground = Ground {
        directory: disk.map(|_| Path::new(linux::disk::DIRECTORY).join(CELL)),
        room: session.files(),
        memory: None,
        drops_caches: true,
    };
    let order = |key: &Key| {
        let order = CellOrder {
            key: key.clone(),
            cap: session.cap,
            ground: ground.clone(),
            watch: Watch::Init,
            idle_window: false,
            simulated: None,
            trace: None,
            sample,
            map: None,
            footprint: session.footprint(),
        };
        serde_json::to_value(Order::Cell(order)).expect("an order serialises")
    };
    let inject = match std::env::var(INJECT) {
        Ok(fault) => Some(
            serde_json::from_value::<Fault>(serde_json::Value::String(fault))
                .map_err(|error| format!("{INJECT}: {error}"))?,
        ),
        Err(_) => None,
    };
    Ok(GuestPlan {
        nodes: planned_nodes(&session.machine),
        settings: [session.machine.settings.clone(), session.settings.clone()].concat(),
        held: seed::held(keys.first().map_or(1, |key| key.seed)),
        disk,
        jobs: keys.iter().map(order).collect(),
        frames: matches!(session.place, Place::Vm { frames: true, .. }),
        clock: session.footprint().is_some() || session.has_balloon(),
        inject,
    })
}

/// Modules that a guest needs: for its machine, and drivers for what the plan gives it.
pub(super) fn modules(session: &Session, image: &KernelImage, plan: &GuestPlan) -> Result<Vec<String>, ModuleError> {
    let disk = plan.disk.map(linux::disk::Disk::modules).unwrap_or_default();
    let drivers = [disk, linux::balloon::modules(&plan.settings)].concat();
    let drivers = linux::module::those_there(image, &drivers)?;
    Ok([session.machine.modules.clone(), drivers].concat())
}

/// The nodes that a guest must have.
pub(crate) fn planned_nodes(machine: &Machine) -> Vec<PlannedNode> {
    let planned = |node: &Node| PlannedNode { memory: node.memory, cpus: node.cpus.clone() };
    machine.nodes.iter().map(planned).collect()
}

/// The settings that a cell's parameters change.
pub(super) fn settings_of(key: &Key) -> BTreeMap<String, String> {
    let settings = key.params.iter().filter(|(name, _)| crate::workload::is_setting(name));
    settings.map(|(name, value)| (name.clone(), value.clone())).collect()
}
