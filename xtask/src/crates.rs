//! The crates of the workspace that a crate is built with, as cargo says.

use std::collections::BTreeSet;

use cargo_metadata::{DependencyKind, Metadata, Package};

/// The folder that a package lies in, whose name is the crate's.
pub(crate) fn folder(package: &Package) -> &str {
    package.manifest_path.parent().and_then(|folder| folder.file_name()).unwrap_or_default()
}

/// Crates of the workspace in the manifest of a package, those for tests apart.
pub(crate) fn built_with(package: &Package) -> impl Iterator<Item = (&cargo_metadata::Dependency, &str)> {
    let dependencies = package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
    dependencies.filter_map(|dependency| Some((dependency, dependency.path.as_ref()?.file_name()?)))
}

/// Returns these crates and those that they are built with, directly or by way of others.
pub(crate) fn with_those_below(workspace: &Metadata, crates: &[&str]) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = BTreeSet::new();
    let mut left: Vec<String> = crates.iter().map(|name| (*name).to_owned()).collect();
    // A crate adds to `left` when it is new, so at most once for each arrow.
    while let Some(name) = left.pop() {
        let packages = workspace.workspace_packages().into_iter().filter(|package| folder(package) == name);
        if all.insert(name.clone()) {
            left.extend(packages.flat_map(built_with).map(|(_, to)| to.to_owned()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate that is missing from the program hash would let old results go on under a changed simulator.
    #[test]
    fn the_program_hash_covers_every_crate_that_sim_and_workloads_are_built_with() {
        let workspace = crate::workspace().expect("the workspace");
        let hashed: BTreeSet<String> = lab::provenance::SIMULATED_CRATES.split(' ').map(str::to_owned).collect();
        assert_eq!(hashed, with_those_below(&workspace, &["sim", "workloads"]));
        assert!(hashed.contains("mm") && !hashed.contains("lab"), "{hashed:?}");
    }
}
