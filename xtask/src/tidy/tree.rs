//! Names of files, and names of machines inside files.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, ensure};

use super::Finding;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 4] = ["common", "utils", "helpers", "misc"];
/// Directories at the root of someone's machine. In pieces, so that this file passes its own check.
const MACHINE_ROOTS: [&str; 3] = ["work", "farm", "root"];

/// The files that are, or would be, in the repository; relative to its root.
pub(super) fn files(root: &Path) -> Result<Vec<String>> {
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(listing).current_dir(root).output().context("git ls-files")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    let mut files: Vec<String> =
        output.stdout.split(|&byte| byte == 0).map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    files.retain(|path| !path.is_empty());
    files.sort();
    files.dedup();
    Ok(files)
}

/// Does a source file hold tests alone? Modules of tests are called `tests`.
pub(super) fn is_test(file: &str) -> bool {
    file.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// Folders and source files named after nothing.
pub(super) fn check_name(path: &str) -> Option<Finding> {
    let mut parts = path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    let empty = parts.find(|part| EMPTY_NAMES.contains(part))?;
    Some(Finding::new(path, 1, format!("nothing is called `{empty}`: name the noun")))
}

/// Modules inside a file, named after nothing.
pub(super) fn check_module_name(path: &str, line: usize, code: &str) -> Option<Finding> {
    let mut words = code.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.by_ref().find(|word| *word == "mod")?;
    let name = words.next().filter(|name| EMPTY_NAMES.contains(name))?;
    Some(Finding::new(path, line, format!("no module is called `{name}`: name the noun")))
}

/// Absolute paths that exist on one machine only.
pub(super) fn check_paths_in(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for name in MACHINE_ROOTS {
            let needle = format!("/{name}/");
            if line.match_indices(&needle).any(|(start, _)| starts_a_path(&line[..start])) {
                findings.push(Finding::new(path, at + 1, format!("`{needle}` is a path of one machine")));
            }
        }
    }
    findings
}

/// Whether a `/` after this text begins an absolute path, rather than going on with a relative one.
fn starts_a_path(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~' | '}' | ')' | '*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_are_found_in_files_folders_and_modules() {
        for bad in ["crates/os/src/utils.rs", "crates/common/src/lib.rs", "crates/os/tests/helpers/mod.rs"] {
            assert!(check_name(bad).is_some(), "{bad}");
        }
        for good in ["crates/os/src/uncommon.rs", "docs/common.md", "crates/os/src/task.rs"] {
            assert!(check_name(good).is_none(), "{good}");
        }
        for name in EMPTY_NAMES {
            assert!(check_module_name("a.rs", 7, &format!("pub(crate) mod {name} {{")).is_some(), "{name}");
        }
        assert!(check_module_name("a.rs", 7, "mod miscible;").is_none());
        assert!(check_module_name("a.rs", 7, "use utils::x;").is_none());
    }

    #[test]
    fn files_of_tests_are_called_so_as_a_whole() {
        for test in ["tests.rs", "zone/tests.rs", "zone/tests/lab.rs", "crates/mm/src/zone/tests.rs"] {
            assert!(is_test(test), "{test}");
        }
        for product in ["mmtests.rs", "mmtests/read.rs", "contests/a.rs", "zone.rs"] {
            assert!(!is_test(product), "{product}");
        }
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let bad = MACHINE_ROOTS.map(|name| format!("cd \"/{name}/x\"")).join("\n");
        assert_eq!(check_paths_in("a.sh", &bad).len(), 3);
        let name = MACHINE_ROOTS[0];
        assert_eq!(check_paths_in("a.sh", &format!("file:///{name}/x")).len(), 1);
        for good in
            [format!("net/{name}/x"), format!("../{name}/x"), format!("/{name}ing/x"), format!("${{HOME}}/{name}/")]
        {
            assert_eq!(check_paths_in("a.sh", &good), [], "{good}");
        }
    }
}
