//! What the tests of the command share: a room to run it in, turns for guests, results as read, and how to skip.

#![allow(dead_code, reason = "a test program of its own uses a part of it")]

pub(crate) mod document;
pub(crate) mod guests;
pub(crate) mod room;

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
};

/// Parameters of the smallest cell that is one.
pub(crate) const TINY: [&str; 10] =
    ["--set", "tasks=1", "--set", "page=base", "--set", "model=threads", "--set", "iterations=1", "--set", "size=2MiB"];

/// A machine file of two small nodes that swap, settings last: a cell takes a fraction of a second, and everything happens.
pub(crate) const TWO_NODES: &str = r#"
about = "two nodes of 96 MiB, a CPU each"
swap = "192MiB"
[[node]]
id = 0
memory = "96MiB"
cpus = "0"
[[node]]
id = 1
memory = "96MiB"
cpus = "1"
[settings]
"transparent_hugepage/enabled" = "always"
"#;

/// The variable that names the file for skips; `cargo xtask test` reads it.
const SKIPS_VARIABLE: &str = "PAGELAB_SKIPS";

/// Says that the test `name` did not test anything here, and why.
#[expect(clippy::print_stdout, reason = "a person who runs the test by hand wants to know")]
pub(crate) fn skip(name: &str, reason: &str) {
    println!("skipped {name}: {reason}");
    if let Some(path) = std::env::var_os(SKIPS_VARIABLE) {
        let mut file = OpenOptions::new().append(true).create(true).open(path).expect("the file for skips");
        // One write, so that tests that skip at the same time do not mix.
        file.write_all(format!("{name}\t{}\n", reason.replace(['\n', '\t'], " ")).as_bytes()).expect("a skip");
    }
}

/// A file or folder of `recordings/`, such as `proc/6.1-2n-2g/booted`.
pub(crate) fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings").join(name)
}

/// Words of a command line, from parts.
pub(crate) fn words(parts: &[&[&str]]) -> Vec<String> {
    parts.concat().into_iter().map(str::to_owned).collect()
}
