//! The Python package. `cargo xtask python` makes an environment for its tests, once, with a network; a stage of
//! `cargo xtask test` builds the wheel and runs the tests there, without one.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Metadata, camino::Utf8Path};

use crate::test::cargo_command;

/// Packages of the environment; a copy of this list in it says what it was made of.
const REQUIREMENTS: &str = "python/tests/requirements.txt";
/// The one dependency of the package, as `REQUIREMENTS` pins it.
const DEPENDENCY: &str = "nanoarrow==";
/// A wheel has to be smaller.
const WHEEL_MAX_BYTES: u64 = 8_000_000;
/// The exit status of pytest where no test has the name that was asked for.
const NO_TESTS: i32 = 5;

/// The environment in a folder of its own.
struct Environment {
    folder: PathBuf,
}

/// Makes the environment, whole or not at all.
pub(crate) fn make(workspace: &Metadata) -> Result<()> {
    let environment = Environment::of(workspace);
    let requirements = workspace.workspace_root.join(REQUIREMENTS);
    let text = fs::read_to_string(&requirements).context(REQUIREMENTS)?;
    match fs::remove_dir_all(&environment.folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).context("the old environment"),
        _ => fs::create_dir_all(&environment.folder)?,
    }
    succeed(Command::new("python3").args(["-m", "venv"]).arg(environment.folder.join("venv")))?;
    succeed(environment.python().args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(&requirements))?;
    // For a test that installs the wheel where nothing is, without a network.
    let dependency = text.lines().find(|line| line.starts_with(DEPENDENCY)).context("the dependency is not pinned")?;
    let mut download = environment.python();
    download.args(["-m", "pip", "download", "--quiet", "--no-deps", dependency, "--dest"]).arg(environment.wheels());
    succeed(&mut download)?;
    // Also what is for other systems: maturin asks for the metadata of all.
    let status = cargo_command(workspace, &["fetch", "--locked"]).status().context("cargo fetch")?;
    ensure!(status.success(), "cargo fetch: {status}");
    fs::write(environment.made_of(), text)?;
    println!("{}", environment.folder.display());
    Ok(())
}

/// Builds the wheel, installs it and runs the tests of the package whose name contains `filter`. Returns what went wrong.
/// Where the environment is not there, a line in the file of skips says so.
pub(crate) fn run(
    workspace: &Metadata,
    filter: Option<&str>,
    skips: (&str, &Path),
    passed: &mut usize,
) -> Result<String> {
    let environment = Environment::of(workspace);
    if let Some(reason) = environment.lacks(&workspace.workspace_root.join(REQUIREMENTS))? {
        let mut file = OpenOptions::new().append(true).create(true).open(skips.1)?;
        file.write_all(format!("python\t{reason}\n").as_bytes())?;
        // A skip is counted as passed until skips are taken off.
        *passed += 1;
        return Ok(String::new());
    }
    let python = workspace.workspace_root.join("python");
    let wheel = environment.build(python.as_std_path())?;
    let bytes = fs::metadata(&wheel)?.len();
    println!("{}: {:.1} MB", wheel.display(), bytes as f64 / 1e6);
    ensure!(bytes <= WHEEL_MAX_BYTES, "{} has {bytes} bytes; expected at most {WHEEL_MAX_BYTES}", wheel.display());
    let mut install = environment.python();
    install.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--force-reinstall"]).arg(&wheel);
    succeed(&mut install)?;
    // As a program of its own pytest does not see the sources here: the package that is tested is the one in the wheel.
    let mut tests = environment.program("pytest");
    tests.args(["--verbose", "--color", "no"]).args(filter.iter().flat_map(|name| ["-k", name])).current_dir(&python);
    tests.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PAGELAB_PROGRAM");
    tests.env(skips.0, skips.1).env("PAGELAB_WHEELS", environment.wheels());
    let output = tests.stdout(Stdio::piped()).spawn().context("pytest")?.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let (passed_here, failed) = summary(&text);
    *passed += passed_here;
    Ok(match output.status.code() {
        Some(0 | NO_TESTS) => String::new(),
        _ if failed > 0 => format!("{failed} tests failed"),
        _ => format!("pytest: {}", output.status),
    })
}

impl Environment {
    fn of(workspace: &Metadata) -> Self {
        Self { folder: workspace.target_directory.join("python").into() }
    }

    /// A program of the environment.
    fn program(&self, name: &str) -> Command {
        Command::new(self.folder.join("venv/bin").join(name))
    }

    fn python(&self) -> Command {
        self.program("python")
    }

    /// Wheels for `pip install --no-index --find-links`.
    fn wheels(&self) -> PathBuf {
        self.folder.join("wheels")
    }

    fn made_of(&self) -> PathBuf {
        self.folder.join("requirements.txt")
    }

    /// Why tests cannot run in it, if they cannot.
    fn lacks(&self, requirements: &Utf8Path) -> Result<Option<String>> {
        let wanted = fs::read_to_string(requirements).context(REQUIREMENTS)?;
        Ok(match fs::read_to_string(self.made_of()) {
            Ok(found) if found == wanted => None,
            Ok(_) => {
                Some("the environment is older than its requirements; `cargo xtask python` makes it anew".to_owned())
            }
            Err(_) => Some("no environment for tests of the Python package; `cargo xtask python` makes one".to_owned()),
        })
    }

    /// The wheel, from the program as the stage before has built it.
    fn build(&self, python: &Path) -> Result<PathBuf> {
        let is_ours =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pagelab-"));
        let list = || -> Result<Vec<PathBuf>> {
            let entries =
                fs::read_dir(self.wheels())?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
            Ok(entries.into_iter().filter(is_ours).collect())
        };
        list()?.iter().try_for_each(fs::remove_file)?;
        let mut maturin = self.program("maturin");
        maturin.args(["build", "--release", "--offline", "--quiet", "--out"]).arg(self.wheels()).current_dir(python);
        succeed(&mut maturin)?;
        let [wheel] = &list()?[..] else { anyhow::bail!("expected one wheel, found {:?}", list()?) };
        Ok(wheel.clone())
    }
}

/// How many passed and failed by pytest's last line, `== 2 failed, 30 passed, 1 skipped in 4.20s ==`. What is skipped has passed,
/// as for cargo.
fn summary(text: &str) -> (usize, usize) {
    let (mut passed, mut failed) = (0, 0);
    let last = text.lines().rev().find(|line| line.starts_with('=')).unwrap_or_default();
    let words: Vec<&str> = last.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    for pair in words.windows(2) {
        let Ok(count) = pair[0].parse::<usize>() else { continue };
        match pair[1] {
            "passed" | "skipped" => passed += count,
            "failed" | "error" | "errors" => failed += count,
            _ => {}
        }
    }
    (passed, failed)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_pytest_is_counted() {
        assert_eq!(summary("=== test session starts ===\nx PASSED\n=== 3 passed in 0.1s ===\n"), (3, 0));
        assert_eq!(summary("=== 2 failed, 30 passed, 1 skipped, 5 deselected, 1 error in 4.20s ===\n"), (31, 3));
        assert_eq!(summary("=== 9 deselected in 0.1s ===\n"), (0, 0));
        assert_eq!(summary(""), (0, 0));
    }
}
