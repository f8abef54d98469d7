//! Each crate's one name, and which crate may use which: house style, 1.13 and 1.1. Tests and benches may use what they like.

use anyhow::Result;
use cargo_metadata::Metadata;

use super::{Finding, read};
use crate::crates::{built_with, folder};

/// From user to used. A crate that is not here may not exist.
const ARROWS: [(&str, &[&str]); 12] = [
    ("cli", &["lab", "linux", "report", "units"]),
    ("lab", &["workloads", "sim", "mm", "memory", "rules", "linux", "report", "os", "units"]),
    ("sim", &["mm", "memory", "rules", "os", "units"]),
    ("workloads", &["os", "units"]),
    ("linux", &["os", "units"]),
    ("report", &["units"]),
    ("mm", &["memory", "rules", "units"]),
    ("memory", &["rules", "units"]),
    ("rules", &["units"]),
    ("os", &["units"]),
    ("units", &[]),
    ("xtask", &["linux", "lab"]),
];

/// Every arrow between two crates of the workspace; crates go by their folder's name.
pub(super) fn check(workspace: &Metadata) -> Result<Vec<Finding>> {
    let root = &workspace.workspace_root;
    let mut findings = Vec::new();
    for package in workspace.workspace_packages() {
        let manifest = package.manifest_path.strip_prefix(root).unwrap_or(&package.manifest_path).as_str();
        let from = folder(package);
        let text = read(root.as_std_path(), manifest)?;
        if !ARROWS.iter().any(|(known, _)| *known == from) {
            findings.push(Finding::new(manifest, 1, format!("crate {from} is not in the table of arrows")));
        }
        let targets = || package.targets.iter().filter(|target| target.is_lib());
        for name in std::iter::once(package.name.as_str()).chain(targets().map(|target| target.name.as_str())) {
            if name != from {
                let message = format!("{name} is of the folder {from}: one name a crate, house style, 1.13");
                findings.push(Finding::new(manifest, line_of(&text, "name"), message));
            }
        }
        for (dependency, to) in built_with(package) {
            if let Some(key) = &dependency.rename {
                let message = format!("{to} is called {key} here: one name a crate, house style, 1.13");
                findings.push(Finding::new(manifest, line_of(&text, key), message));
            }
            if !is_allowed(from, to) {
                let key = dependency.rename.as_deref().unwrap_or(&dependency.name);
                let message = format!("{from} may not depend on {to}: house style, 1.1");
                findings.push(Finding::new(manifest, line_of(&text, key), message));
            }
        }
    }
    Ok(findings)
}

fn is_allowed(from: &str, to: &str) -> bool {
    may_use(from).contains(&to)
}

fn may_use(from: &str) -> &'static [&'static str] {
    ARROWS.iter().find(|(user, _)| *user == from).map_or(&[], |(_, may_use)| may_use)
}

/// Returns whether a crate is one of these, or they may use it, directly or by way of others.
pub(super) fn is_below(name: &str, users: &[&str]) -> bool {
    // As deep as the longest way along the arrows: they have no cycle.
    users.contains(&name) || users.iter().any(|user| is_below(name, may_use(user)))
}

/// Returns whether a crate is of the memory manager: `mm`, or a crate below it that workloads do not use.
pub(super) fn is_of_manager(name: &str) -> bool {
    is_below(name, &["mm"]) && !is_below(name, &["workloads"])
}

/// The line where a manifest names this dependency.
fn line_of(manifest: &str, key: &str) -> usize {
    let names_it = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    manifest.lines().position(names_it).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_point_from_user_to_used() {
        assert!(is_allowed("lab", "mm") && is_allowed("workloads", "os") && is_allowed("xtask", "linux"));
        for (from, to) in [
            ("workloads", "mm"),
            ("mm", "os"),
            ("memory", "mm"),
            ("rules", "memory"),
            ("linux", "lab"),
            ("new", "units"),
        ] {
            assert!(!is_allowed(from, to), "{from} -> {to}");
        }
    }

    #[test]
    fn the_table_has_no_cycle() {
        let mut left: Vec<&str> = ARROWS.iter().map(|(user, _)| *user).collect();
        for _ in 0..ARROWS.len() {
            let uses_one_left = |from: &str| left.iter().any(|to| is_allowed(from, to));
            left = left.iter().copied().filter(|user| uses_one_left(user)).collect();
        }
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn crates_below_a_crate_are_those_that_arrows_lead_to() {
        for (name, users) in [("units", &["sim"][..]), ("mm", &["lab"]), ("mm", &["mm"]), ("units", &["os", "cli"])] {
            assert!(is_below(name, users), "{name} below {users:?}");
        }
        assert!(!is_below("sim", &["mm"]) && !is_below("os", &["mm", "report"]) && !is_below("new", &["cli"]));
        assert!(["mm", "memory", "rules"].iter().all(|name| is_of_manager(name)));
        assert!(!["units", "os", "sim", "new"].iter().any(|name| is_of_manager(name)));
    }

    #[test]
    fn findings_point_at_the_line() {
        let manifest = "[dependencies]\nmmap.workspace = true\nmm.workspace = true\nos = { path = \"../os\" }\n";
        assert_eq!((line_of(manifest, "mm"), line_of(manifest, "os"), line_of(manifest, "lab")), (3, 4, 1));
    }
}
