//! What a session's cells ran on, as a record.

use linux::{
    procfs::Capture,
    qemu::{Accelerator, Boot},
};
use report::{Run, SCHEMA, System};
use units::Bytes;

use super::boot::settings_of;
use crate::{
    plan::{Place, Session},
    presentation::release,
    provenance,
};

/// Captures by their phase.
pub(super) fn capture_json<'a>(captures: impl IntoIterator<Item = (&'a str, &'a Capture)>) -> serde_json::Value {
    let files = |(phase, files): (&str, &Capture)| {
        (phase.to_owned(), serde_json::to_value(files).expect("a capture serialises"))
    };
    serde_json::Value::Object(captures.into_iter().map(files).collect())
}

/// What its cells ran on. `boot`: of a guest, what ran its instructions, and how its boot went if it ended well.
pub(super) fn system(
    session: &Session,
    boot: Option<(Accelerator, Option<&Boot>)>,
    captures: serde_json::Value,
) -> System {
    let mut notes = Vec::new();
    if session.place.is_host() && session.files() > Bytes(0) && linux::file::is_memory(&std::env::temp_dir()) {
        notes.push("files are memory too (tmpfs; TMPDIR chooses the place)".to_owned());
    }
    notes.extend(session.disk().map(|disk| format!("ext4 of {}, swap of {}", disk.size, disk.swap)));
    if boot.is_some() && !session.machine.threads.is_empty() {
        notes.push("hardware threads of the machine file are not given to the guest".to_owned());
    }
    if matches!(session.place, Place::Vm { frames: true, .. }) {
        notes.push("frames before each cell are in states/".to_owned());
    }
    if let Some((Accelerator::Replayable { .. }, Some(boot))) = boot {
        notes.push(format!("stream of {} bytes, blake3 {}", boot.stream.len(), blake3::hash(&boot.stream).to_hex()));
    }
    System {
        schema: SCHEMA,
        target: session.target(),
        machine: session.machine.name.clone(),
        kernel: session.kernel.clone(),
        release: release(&session.kernel).to_owned(),
        accelerator: boot.map(|(accelerator, _)| accelerator.name()),
        settings: session.keys.first().map(settings_of).unwrap_or_default(),
        captures,
        notes,
        run: Run {
            date: provenance::now(),
            wall_s: 0.0,
            boot_s: boot.and_then(|(_, boot)| boot).map(|boot| boot.first_operation_ns as f64 / 1e9),
            host: linux::host::host_name(),
            commit: provenance::COMMIT.to_owned(),
            max_rss_kib: linux::host::max_rss_kib(),
        },
    }
}
