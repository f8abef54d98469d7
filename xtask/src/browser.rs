//! The page of `pagelab report` in a real browser. `cargo xtask browser` makes an environment with Selenium, once, with a
//! network; a stage of `cargo xtask test` makes a page and has it used by mouse and keyboard there, without one.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;

/// The environment.
const ENVIRONMENT: Environment =
    Environment { command: "browser", requirements: "xtask/browser/requirements.txt", serves: "tests in a browser" };
/// The tests.
const TESTS: &str = "xtask/browser/test_page.py";
/// Programs that can show the page; the first that is on PATH does. The driver works a whole browser, not the shell alone.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// The program by which Selenium works the browser (Debian: `chromium-driver`).
const DRIVER: &str = "chromedriver";
/// The name of the second column of the page: it would be markup if it were more than text.
const HOSTILE: &str = "\"><img src=x onerror=window.hacked=1>.toml";
/// Arguments of `pagelab run` for every page.
const RUN: [&str; 8] =
    ["run", "thpscale", "--target=sim", "--machine=one-node-512m", "--seeds=2", "--quiet", "--set=threads=1", "-o"];
/// Further arguments for the page of two columns, but for its second variant.
const OF_COLUMNS: [&str; 6] = ["columns", "--sample=200ms", "--map", "--variant", "v6.1", "--variant"];
/// Further arguments for the page of a grid.
const OF_GRID: [&str; 4] =
    ["grid", "--variant=v6.1", "--set=vm.extfrag_threshold=100,500,900", "--set=vm.swappiness=0,60"];

/// The run of a ladder of three kernels.
const LADDER: [&str; 9] = [
    "ladder",
    "v4.20..v5.1",
    "--experiment=fault-storm",
    "--set=tasks=1",
    "--set=size=2MiB",
    "--set=iterations=1",
    "--seeds=2",
    "-o",
    "ladder",
];
/// The run of guests.
const GUESTS: [&str; 6] = ["run", "guest-footprint", "--target=sim", "--quiet", "-o", "guests"];
/// Results that become pages, each with the number of chains on it.
const PAGES: [(&str, &str); 4] = [("columns", "3"), ("grid", "0"), ("ladder", "0"), ("guests", "0")];

/// An environment of Python packages for one stage of tests.
pub(crate) struct Environment {
    /// The command that makes it, and its folder under the target folder.
    pub(crate) command: &'static str,
    /// The list of its packages; a copy of this list in it says what it was made of.
    pub(crate) requirements: &'static str,
    /// The tests that need it, in words.
    pub(crate) serves: &'static str,
}

impl Environment {
    fn folder(&self, workspace: &Metadata) -> PathBuf {
        workspace.target_directory.join(self.command).into()
    }

    /// The interpreter of the environment.
    pub(crate) fn python(&self, workspace: &Metadata) -> PathBuf {
        self.folder(workspace).join("venv/bin/python")
    }

    fn made_of(&self, workspace: &Metadata) -> PathBuf {
        self.folder(workspace).join("requirements.txt")
    }

    /// Makes the environment, whole or not at all.
    pub(crate) fn make(&self, workspace: &Metadata) -> Result<()> {
        let folder = self.folder(workspace);
        let requirements = workspace.workspace_root.join(self.requirements);
        let text = fs::read_to_string(&requirements).context(self.requirements)?;
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).context("the old environment"),
            _ => fs::create_dir_all(&folder)?,
        }
        succeed(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")))?;
        let mut install = Command::new(self.python(workspace));
        succeed(install.args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(&requirements))?;
        fs::write(self.made_of(workspace), text)?;
        println!("{}", folder.display());
        Ok(())
    }

    /// The reason why the environment cannot be used, if it cannot.
    pub(crate) fn lacks(&self, workspace: &Metadata) -> Result<Option<String>> {
        let wanted = fs::read_to_string(workspace.workspace_root.join(self.requirements)).context(self.requirements)?;
        let make = format!("`cargo xtask {}` makes", self.command);
        Ok(match fs::read_to_string(self.made_of(workspace)) {
            Ok(found) if found == wanted => None,
            Ok(_) => Some(format!("the environment is older than its requirements; {make} it anew")),
            Err(_) => Some(format!("no environment for {}; {make} one", self.serves)),
        })
    }
}

/// Adds a line to the file of skips: a stage of tests that cannot run here.
pub(crate) fn skip(stage: &str, reason: &str, skips: &Path, passed: &mut usize) -> Result<String> {
    let mut file = OpenOptions::new().append(true).create(true).open(skips)?;
    file.write_all(format!("{stage}\t{reason}\n").as_bytes())?;
    // A skip is counted as passed until skips are taken off.
    *passed += 1;
    Ok(String::new())
}

/// Makes the environment.
pub(crate) fn make(workspace: &Metadata) -> Result<()> {
    ENVIRONMENT.make(workspace)
}

/// Makes a page and runs the tests on it. Returns what went wrong. Where browser or environment are not there, a line in the
/// file of skips says so.
pub(crate) fn run(workspace: &Metadata, skips: &Path, passed: &mut usize) -> Result<String> {
    let programs = match programs(workspace)? {
        Ok(programs) => programs,
        Err(reason) => return skip("browser", &reason, skips, passed),
    };
    let room = tempfile::tempdir().context("a temporary directory")?;
    let program = workspace.target_directory.join("release/pagelab");
    let pages = pages(program.as_std_path(), room.path())?;
    let mut tests = Command::new(ENVIRONMENT.python(workspace));
    tests.arg(workspace.workspace_root.join(TESTS)).args(pages).args(programs);
    passed_by(&mut tests, TESTS, passed)
}

/// Runs the tests of a stage, a program in Python that prints them, and counts those that passed. Returns what went wrong.
pub(crate) fn passed_by(tests: &mut Command, name: &str, passed: &mut usize) -> Result<String> {
    tests.env("PYTHONDONTWRITEBYTECODE", "1").stdout(Stdio::piped());
    let output = tests.spawn().context("the tests")?.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let (passed_here, failed) = counts(&text);
    *passed += passed_here;
    Ok(match failed {
        0 if output.status.success() => String::new(),
        0 => format!("{name}: {}", output.status),
        _ => format!("{failed} tests failed"),
    })
}

/// The browser and its driver; or the reason why there are no tests.
fn programs(workspace: &Metadata) -> Result<Result<[PathBuf; 2], String>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let find = |name: &&str| folders.iter().map(|folder| folder.join(name)).find(|file| file.exists());
    let Some(browser) = BROWSERS.iter().find_map(find) else {
        return Ok(Err(format!("none of {} is on PATH", BROWSERS.join(", "))));
    };
    let Some(driver) = find(&DRIVER) else { return Ok(Err(format!("{DRIVER} is not on PATH"))) };
    Ok(ENVIRONMENT.lacks(workspace)?.map_or(Ok([browser, driver]), Err))
}

/// The pages of small runs, in a folder.
fn pages(program: &Path, room: &Path) -> Result<[PathBuf; PAGES.len()]> {
    fs::write(room.join(HOSTILE), "about = \"</script><b>\"\nparent = \"v6.1\"\n")?;
    let in_room = || {
        let mut command = Command::new(program);
        command.current_dir(room).stdout(Stdio::null());
        command
    };
    succeed(in_room().args(RUN).args(OF_COLUMNS).arg(format!("./{HOSTILE}")))?;
    succeed(in_room().args(RUN).args(OF_GRID))?;
    succeed(in_room().args(LADDER))?;
    succeed(in_room().args(GUESTS))?;
    for (name, chains) in PAGES {
        succeed(in_room().args(["report", name, "--why", chains, "-o", &format!("{name}.html")]))?;
    }
    Ok(PAGES.map(|(name, _)| room.join(format!("{name}.html"))))
}

/// How many passed and failed by the last line of the tests, `24 passed, 1 failed`.
fn counts(text: &str) -> (usize, usize) {
    let last = text.lines().last().unwrap_or_default();
    let number = |word: &str| {
        let (before, _) = last.split_once(word)?;
        before.trim_end().rsplit(' ').next()?.parse().ok()
    };
    (number("passed").unwrap_or(0), number("failed").unwrap_or(0))
}

/// Runs a program, which must end well.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_counted() {
        assert_eq!(counts("test_a ... ok\n24 passed, 1 failed\n"), (24, 1));
        assert_eq!(counts("25 passed, 0 failed\n"), (25, 0));
        assert_eq!(counts("Traceback\n"), (0, 0));
    }
}
