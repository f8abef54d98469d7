//! Traces of `pagelab export --again` under the queries of docs/report.md. `cargo xtask perfetto` makes an environment with
//! Perfetto's package, once, with a network; a stage of `cargo xtask test` makes a trace and asks there, without one.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use cargo_metadata::Metadata;

use crate::browser::{Environment, passed_by, skip, succeed};

/// The environment.
const ENVIRONMENT: Environment =
    Environment { command: "perfetto", requirements: "xtask/perfetto/requirements.txt", serves: "queries of traces" };
/// The tests.
const TESTS: &str = "xtask/perfetto/test_trace.py";
/// The document with the queries.
const DOCUMENT: &str = "docs/report.md";
/// Has the package download its trace processor, which it keeps in the user's folder.
const DOWNLOAD: &str = "from perfetto.trace_processor import TraceProcessor; TraceProcessor().close()";
/// The run of docs/report.md.
const RUN: [&str; 9] = [
    "run",
    "thpscale",
    "--target=sim",
    "--machine=one-node-512m",
    "--variant=v6.1",
    "--set=threads=4",
    "--seeds=1",
    "--quiet",
    "-oresult",
];

/// Makes the environment, whole or not at all; the trace processor is in it where it can be downloaded.
pub(crate) fn make(workspace: &Metadata) -> Result<()> {
    ENVIRONMENT.make(workspace)?;
    let mut download = Command::new(ENVIRONMENT.python(workspace));
    let status = download.args(["-c", DOWNLOAD]).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if !status.success() {
        println!("Perfetto's trace processor cannot be downloaded; SQLite will answer in its place");
    }
    Ok(())
}

/// Makes a trace and asks the queries of it. Returns what went wrong. Where the environment is not there, a line in the file of
/// skips says so.
pub(crate) fn run(workspace: &Metadata, skips: &Path, passed: &mut usize) -> Result<String> {
    if let Some(reason) = ENVIRONMENT.lacks(workspace)? {
        return skip("perfetto", &reason, skips, passed);
    }
    let room = tempfile::tempdir().context("a temporary directory")?;
    let program = workspace.target_directory.join("release/pagelab");
    let made = trace(program.as_std_path(), room.path())?;
    let mut tests = Command::new(ENVIRONMENT.python(workspace));
    tests.arg(workspace.workspace_root.join(TESTS)).arg(workspace.workspace_root.join(DOCUMENT)).args(made);
    passed_by(&mut tests, TESTS, passed)
}

/// The trace of a small run, and what `why` says about its slowest fault, in a folder.
fn trace(program: &Path, room: &Path) -> Result<[PathBuf; 2]> {
    let in_room = || {
        let mut command = Command::new(program);
        command.current_dir(room).stdout(Stdio::null());
        command
    };
    succeed(in_room().args(RUN))?;
    succeed(in_room().args(["export", "result", "--to", "perfetto", "--again", "trace"]))?;
    let file = File::create(room.join("why.json"))?;
    succeed(in_room().args(["why", "result", "--slowest=1", "--what=fault", "--format=json"]).stdout(file))?;
    Ok(["trace", "why.json"].map(|name| room.join(name)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_document_names_the_run_and_has_three_queries() {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(DOCUMENT)).unwrap();
        assert_eq!(text.matches("```sql\n").count(), 3);
        let run = RUN[..7].join(" ").replace('=', " ").replace("threads 4", "threads=4");
        assert!(text.contains(&format!("pagelab {run}`")), "{run}");
    }
}
