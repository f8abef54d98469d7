//! The sources that a hash covers: the sources of some crates, and of every crate of this workspace that those are built with.
//!
//! Read from the manifests, as a build script cannot ask cargo. A dependency for tests alone does not count.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

/// Where the crates of the workspace lie: each in the folder of its name (`cargo xtask tidy` checks the names).
const CRATES: &str = "crates";

/// Files of a hash, and what they are found by.
#[derive(Default)]
pub(crate) struct Sources {
    pub(crate) files: BTreeSet<PathBuf>,
    /// Files and folders whose change may change the hash.
    pub(crate) watched: Vec<PathBuf>,
}

impl Sources {
    /// Adds the `src` of crates and, where a crate has one, its build script.
    pub(crate) fn add_crates(&mut self, root: &Path, crates: &BTreeSet<String>) {
        for folder in crates.iter().map(|name| root.join(CRATES).join(name)) {
            self.add(&folder.join("src"));
            self.add(&folder.join("build.rs"));
            // A new dependency may add a crate.
            self.watched.push(folder.join("Cargo.toml"));
        }
    }

    /// Adds a file, or all files of a folder.
    pub(crate) fn add(&mut self, path: &Path) {
        self.watched.push(path.to_owned());
        collect(path, &mut self.files);
    }

    /// The first 16 digits of the hash of names and contents.
    pub(crate) fn hash(&self, root: &Path) -> String {
        let mut hasher = blake3::Hasher::new();
        for file in &self.files {
            let name = file.strip_prefix(root).expect("all files lie in the repository");
            let contents = fs::read(file).unwrap_or_default();
            // The lengths keep a byte that moves between two files from going unnoticed.
            hasher.update(name.to_string_lossy().as_bytes());
            hasher.update(&(contents.len() as u64).to_le_bytes());
            hasher.update(&contents);
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }
}

fn collect(path: &Path, files: &mut BTreeSet<PathBuf>) {
    if path.is_file() {
        files.insert(path.to_owned());
    }
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.filter_map(Result::ok) {
        collect(&entry.path(), files);
    }
}

/// Returns these crates and those that they are built with, directly or by way of others.
pub(crate) fn built_with(root: &Path, crates: &[&str]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut left: Vec<String> = crates.iter().map(|name| (*name).to_owned()).collect();
    // A crate adds to `left` when it is new, so at most once for each dependency in the workspace.
    while let Some(name) = left.pop() {
        let folder = root.join(CRATES).join(&name);
        // A crate without a folder comes from a registry.
        if folder.is_dir() && all.insert(name) {
            left.extend(dependencies(&manifest(&folder)).cloned());
        }
    }
    all
}

fn manifest(folder: &Path) -> Table {
    let path = folder.join("Cargo.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of what a crate, or its build script, is built with on some machine.
fn dependencies(manifest: &Table) -> impl Iterator<Item = &String> {
    let of_machines = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = std::iter::once(manifest).chain(of_machines.filter_map(Value::as_table));
    let kinds = tables.flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)));
    kinds.flatten().filter_map(Value::as_table).flat_map(Table::keys)
}
