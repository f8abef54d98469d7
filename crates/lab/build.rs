//! Puts the program hash and the commit into the binary.
//!
//! The guest's hash is that of what works inside a guest: kept results of real kernels outlive a change of the simulator.
//!
//! The program hash is that of everything a simulated result depends on: the sources of units, mm, os, workloads and sim,
//! the built-in variants, the generic prices and the lock file. Two binaries with the same hash give the same bytes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const IN_GUESTS: [&str; 4] = ["units", "os", "workloads", "linux"];
const HASHED: [&str; 5] = ["units", "mm", "os", "workloads", "sim"];

fn main() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in crates/");
    let root = crates.parent().expect("crates/ lies in the repository");
    let mut files = vec![root.join("Cargo.lock")];
    let sources = HASHED.map(|name| crates.join(name).join("src"));
    for folder in sources.into_iter().chain(["variants", "machines/prices"].map(|folder| root.join(folder))) {
        watch(&folder);
        collect(&folder, &mut files);
    }
    for watched in ["Cargo.lock", "machines", "experiments", "published", ".git/HEAD", ".git/logs/HEAD"] {
        watch(&root.join(watched));
    }
    println!("cargo::rustc-env=PAGELAB_PROGRAM_HASH={}", hash(root, files));
    let mut files = vec![crates.join("lab/src/seed.rs")];
    for folder in IN_GUESTS.map(|name| crates.join(name).join("src")) {
        watch(&folder);
        collect(&folder, &mut files);
    }
    println!("cargo::rustc-env=PAGELAB_GUEST_HASH={}", hash(root, files));
    println!("cargo::rustc-env=PAGELAB_COMMIT={}", commit(root).unwrap_or_else(|| "unknown".to_owned()));
}

fn hash(root: &Path, mut files: Vec<PathBuf>) -> String {
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in files {
        let name = file.strip_prefix(root).expect("all files lie in the repository");
        let contents = fs::read(&file).unwrap_or_default();
        // The lengths keep a byte that moves between two files from going unnoticed.
        hasher.update(name.to_string_lossy().as_bytes());
        hasher.update(&(contents.len() as u64).to_le_bytes());
        hasher.update(&contents);
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

/// A path that does not exist would make cargo run this on every build.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}

fn commit(root: &Path) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}
