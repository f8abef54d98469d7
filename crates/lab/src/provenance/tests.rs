//! Tests of what the program hash covers, on a workspace of small crates. `xtask` holds the crates of this workspace against
//! `cargo metadata`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::sources::{Sources, built_with};

/// Crates and their manifests: `sim` is built with `mm`, that with `rules`, and so on.
const CRATES: [(&str, &str); 9] = [
    ("sim", "[dependencies]\nmm.workspace = true\nserde = \"1\"\n[dev-dependencies]\nreport.workspace = true\n"),
    ("mm", "[dependencies]\nrules = { path = \"../rules\" }\nmemory = { workspace = true, optional = true }\n"),
    ("rules", "[build-dependencies]\nunits.workspace = true\n"),
    ("memory", "[dependencies.pcp]\nworkspace = true\n"),
    ("pcp", "[target.'cfg(unix)'.dependencies]\nslab.workspace = true\n"),
    ("units", "[package]\nname = \"units\"\n"),
    ("slab", ""),
    ("report", "[dependencies]\nlab.workspace = true\n"),
    ("lab", "[dependencies]\nsim.workspace = true\n"),
];
/// Crates that `sim` is built with, and itself.
const BELOW_SIM: [&str; 7] = ["memory", "mm", "pcp", "rules", "sim", "slab", "units"];

fn workspace() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a folder");
    for (name, manifest) in CRATES {
        let folder = directory.path().join("crates").join(name);
        fs::create_dir_all(folder.join("src/deep")).expect("a folder");
        fs::create_dir_all(folder.join("tests")).expect("a folder");
        fs::write(folder.join("Cargo.toml"), manifest).expect("a manifest");
        for file in ["src/lib.rs", "src/deep/er.rs", "build.rs", "tests/it.rs"] {
            fs::write(folder.join(file), name).expect("a source");
        }
    }
    directory
}

fn sources(root: &Path) -> Sources {
    let mut sources = Sources::default();
    sources.add_crates(root, &built_with(root, &["sim"]));
    sources
}

#[test]
fn crates_follow_from_the_manifests() {
    let directory = workspace();
    let found = built_with(directory.path(), &["sim"]);
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), BELOW_SIM);
    let new: BTreeSet<String> = ["report", "lab"].map(str::to_owned).into();
    assert_eq!(built_with(directory.path(), &["report"]), &found | &new);
}

#[test]
fn a_change_in_any_crate_below_changes_the_hash() {
    let directory = workspace();
    let root = directory.path();
    let hash = || sources(root).hash(root);
    let mut before = hash();
    assert_eq!(before, hash());
    for (name, _) in CRATES {
        let folder = root.join("crates").join(name);
        for file in ["src/lib.rs", "src/deep/er.rs", "build.rs", "src/new.rs", "tests/it.rs"] {
            fs::write(folder.join(file), "changed").expect("a source");
            let is_covered = BELOW_SIM.contains(&name) && !file.starts_with("tests/");
            let after = hash();
            assert_eq!(before != after, is_covered, "{name}/{file}");
            before = after;
        }
    }
}

#[test]
fn cargo_watches_the_folders_and_manifests_of_every_crate_below() {
    let directory = workspace();
    let watched: BTreeSet<PathBuf> = sources(directory.path()).watched.into_iter().collect();
    for name in BELOW_SIM {
        for path in ["src", "build.rs", "Cargo.toml"] {
            assert!(watched.contains(&directory.path().join("crates").join(name).join(path)), "{name}/{path}");
        }
    }
    assert_eq!(watched.len(), 3 * BELOW_SIM.len(), "{watched:?}");
}

#[test]
fn what_another_program_ran_is_not_run_again() {
    assert_eq!(super::check_program(super::PROGRAM_HASH), Ok(()));
    let refused = super::check_program(&"0".repeat(64)).expect_err("it is of another program");
    let own = super::short(super::PROGRAM_HASH);
    assert!(refused.starts_with(&format!("it is of program 00000000, and this one is {own}, ")), "{refused}");
}
