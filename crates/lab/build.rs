//! Puts the program hash and the commit into the binary.
//!
//! The guest's hash is that of what works inside a guest: kept results of real kernels outlive a change of the simulator.
//!
//! The program hash is that of everything a simulated result depends on: the sources of the simulator, of the workloads and of
//! every crate below them, the built-in variants, the generic prices and the lock file. Two binaries with the same hash give
//! the same bytes.

#[path = "build/sources.rs"]
mod sources;

use std::{path::Path, process::Command};

use sources::{Sources, built_with};

/// Crates that work in a simulated run, apart from those below them.
const SIMULATED: [&str; 2] = ["sim", "workloads"];
/// Crates that work inside a guest, apart from those below them.
const IN_GUESTS: [&str; 2] = ["linux", "workloads"];

fn main() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in crates/");
    let root = crates.parent().expect("crates/ lies in the repository");
    let simulated = built_with(root, &SIMULATED);
    let mut program = Sources::default();
    program.add_crates(root, &simulated);
    for data in ["Cargo.lock", "variants", "machines/prices"] {
        program.add(&root.join(data));
    }
    let mut guest = Sources::default();
    guest.add_crates(root, &built_with(root, &IN_GUESTS));
    guest.add(&crates.join("lab/src/seed.rs"));
    for watched in program.watched.iter().chain(&guest.watched) {
        watch(watched);
    }
    for watched in ["machines", "experiments", "workloads", "published", ".git/HEAD", ".git/logs/HEAD"] {
        watch(&root.join(watched));
    }
    let simulated: Vec<String> = simulated.into_iter().collect();
    println!("cargo::rustc-env=PAGELAB_SIMULATED_CRATES={}", simulated.join(" "));
    println!("cargo::rustc-env=PAGELAB_PROGRAM_HASH={}", program.hash(root));
    println!("cargo::rustc-env=PAGELAB_GUEST_HASH={}", guest.hash(root));
    println!("cargo::rustc-env=PAGELAB_COMMIT={}", commit(root).unwrap_or_else(|| "unknown".to_owned()));
}

/// A path that does not exist would make cargo run this on every build.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn commit(root: &Path) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}
