//! docs/your-first-patch.md: its patch is as short as it says. `cargo xtask test` applies it and runs its own test.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The page says that it is shorter.
const MOST_CHANGED_LINES: usize = 40;
/// Name of the rule that the patch adds.
const RULE: &str = "kcompactd_woken_by_faults";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn patch() -> PathBuf {
    root().join("docs/your-first-patch.patch").canonicalize().expect("the patch is there")
}

#[test]
fn the_first_patch_is_short_and_its_page_explains_it() {
    let text = fs::read_to_string(patch()).expect("the patch");
    let is_changed =
        |line: &&str| line.starts_with(['+', '-']) && !line.starts_with("+++ ") && !line.starts_with("--- ");
    let changed = text.lines().filter(is_changed).count();
    assert!(changed > 0 && changed < MOST_CHANGED_LINES, "{changed} changed lines");
    assert!(text.contains(&format!("+    {RULE}: bool,")) && text.contains(&format!("+{RULE} = false")), "{text}");
    let page = fs::read_to_string(root().join("docs/your-first-patch.md")).expect("the page");
    assert!(page.contains(&format!("    {RULE} = true\n")), "the page has a variant file with the rule");
    let changed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("+++ b/")).collect();
    for file in &changed {
        assert!(!fs::read_to_string(root().join(file)).expect(file).contains(RULE), "{file}: it is an idea");
        assert!(page.contains(&format!("`{file}`")), "the page names {file}");
    }
    assert_eq!(changed.len(), 4, "the page says three and a test");
}
