//! docs/your-first-patch.md: its patch applies, is as short as it says, and passes its own test.
//!
//! Only what the patch changes is built: `mm`, and `units` below it, not optimized. What they use of others is built the first
//! time.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::support::skip;

/// The page says that it is shorter.
const MOST_CHANGED_LINES: usize = 40;
/// The patch's own test.
const ITS_TEST: &str = "a_fault_without_a_huge_page_wakes_it_if_told_to";
/// What the patch's rule is called.
const RULE: &str = "kcompactd_woken_by_faults";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn patch() -> PathBuf {
    root().join("docs/your-first-patch.patch").canonicalize().expect("the patch is there")
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in from.read_dir()? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// The workspace with `mm` and what it uses alone; always in the same place, so that crates of others stay built.
fn copy_of_mm() -> PathBuf {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first-patch");
    for folder in ["crates", "variants"] {
        match fs::remove_dir_all(copy.join(folder)) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{folder}: {error}"),
            _ => {}
        }
    }
    for folder in ["crates/mm", "crates/units", "variants"] {
        copy_all(&root().join(folder), &copy.join(folder)).expect(folder);
    }
    fs::copy(root().join("Cargo.lock"), copy.join("Cargo.lock")).expect("Cargo.lock");
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let members = r#"members = ["crates/*", "xtask"]
default-members = ["crates/cli"]
"#;
    assert!(manifest.contains(members), "the workspace's manifest has other members now");
    let manifest = manifest.replace(members, "members = [\"crates/mm\", \"crates/units\"]\n");
    fs::write(copy.join("Cargo.toml"), manifest).expect("Cargo.toml");
    copy
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn apply(to: &Path) {
    let mut git = Command::new("git");
    // A directory inside of some repository would have its paths taken from there.
    git.env("GIT_CEILING_DIRECTORIES", to.parent().expect("not the root")).current_dir(to);
    run(git.args(["apply", "--whitespace=error-all"]).arg(patch()));
}

#[test]
fn the_first_patch_is_short_and_the_page_shows_how_to_use_it() {
    let text = fs::read_to_string(patch()).expect("the patch");
    let is_changed =
        |line: &&str| line.starts_with(['+', '-']) && !line.starts_with("+++ ") && !line.starts_with("--- ");
    let changed = text.lines().filter(is_changed).count();
    assert!(changed > 0 && changed < MOST_CHANGED_LINES, "{changed} changed lines");
    assert!(text.contains(&format!("+    {RULE}: bool,")) && text.contains(&format!("+{RULE} = false")), "{text}");
    let page = fs::read_to_string(root().join("docs/your-first-patch.md")).expect("the page");
    assert!(page.contains(&format!("    {RULE} = true\n")), "the page has a variant file with the rule");
    assert!(
        !fs::read_to_string(root().join("crates/mm/src/variant.rs")).expect("rules").contains(RULE),
        "it is an idea"
    );
}

#[test]
fn the_first_patch_applies_and_passes_its_own_test() {
    if Command::new("git").arg("--version").output().is_err() {
        return skip("the_first_patch_applies_and_passes_its_own_test", "there is no git");
    }
    let copy = copy_of_mm();
    apply(&copy);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(&copy).env("CARGO_TARGET_DIR", copy.join("target"));
    // Half the time and a tenth of the room.
    cargo.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "none");
    let output = run(cargo.args(["test", "--offline", "--package", "pagelab-mm", "--lib", ITS_TEST]));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("test result: ok. 1 passed"), "{said}");
}
