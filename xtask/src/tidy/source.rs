//! What may stand in a source file, by the crate it belongs to.

use std::path::Path;

use super::{
    Finding,
    arrows::{is_below, is_of_manager},
    tree,
};

/// Beyond this, a file is two (house style, rule 12).
const LINES_MAX: usize = 600;
/// rustfmt breaks at 120; strings and comments get a little more.
const COLUMNS_MAX: usize = 130;
/// Files of the memory manager whose operations charge for themselves (house style, 1.4).
const PRIMITIVE_FILES: [&str; 11] = [
    "cost.rs",
    "cx.rs",
    "tlb.rs",
    "primitive.rs",
    "bandwidth.rs",
    "line.rs",
    "spin.rs",
    "buddy.rs",
    "lists.rs",
    "lru.rs",
    "moves.rs",
];

/// A word that must not stand in the code of some crates.
struct Ban {
    needle: &'static str,
    /// Whether a crate, by its folder's name under `crates/`, is among these crates.
    crates: fn(&str) -> bool,
    /// What to do instead.
    instead: &'static str,
}

const ALL: fn(&str) -> bool = |_| true;
const DETERMINISTIC: fn(&str) -> bool = |name| is_below(name, &["workloads", "mm"]);
const SINGLE_THREADED: fn(&str) -> bool = |name| name == "workloads" || is_of_manager(name);

#[rustfmt::skip]
const BANS: [Ban; 22] = [
    Ban { needle: "Instant::now", crates: DETERMINISTIC, instead: "time is an input" },
    Ban { needle: "SystemTime", crates: DETERMINISTIC, instead: "time is an input" },
    Ban { needle: "HashMap", crates: DETERMINISTIC, instead: "order is an input: BTreeMap, or an index" },
    Ban { needle: "HashSet", crates: DETERMINISTIC, instead: "order is an input: BTreeSet, or an index" },
    Ban { needle: "rand::", crates: ALL, instead: "randomness is an input: a seeded stream" },
    Ban { needle: "std::sync", crates: SINGLE_THREADED, instead: "tasks speak through the Os" },
    Ban { needle: "std::thread", crates: SINGLE_THREADED, instead: "tasks come from the Os" },
    Ban { needle: "#[cfg(feature", crates: ALL, instead: "variants are values" },
    Ban { needle: "todo!", crates: ALL, instead: "finish it, or leave it out" },
    Ban { needle: "unimplemented!", crates: ALL, instead: "finish it, or leave it out" },
    Ban { needle: "dbg!", crates: ALL, instead: "take it out" },
    Ban { needle: ".exp(", crates: ALL, instead: "bits differ between CPUs: crate libm" },
    Ban { needle: ".ln(", crates: ALL, instead: "bits differ between CPUs: crate libm" },
    Ban { needle: ".powf(", crates: ALL, instead: "bits differ between CPUs: crate libm" },
    Ban { needle: ".sin(", crates: ALL, instead: "bits differ between CPUs: crate libm" },
    Ban { needle: ".cos(", crates: ALL, instead: "bits differ between CPUs: crate libm" },
    Ban { needle: ".log2(", crates: ALL, instead: "bits differ between CPUs: crate libm" },
    Ban { needle: ".log10(", crates: ALL, instead: "bits differ between CPUs: crate libm" },
    Ban { needle: ".exp2(", crates: ALL, instead: "bits differ between CPUs: crate libm" },
    Ban { needle: ".tan(", crates: ALL, instead: "bits differ between CPUs: crate libm" },
    Ban { needle: ".cbrt(", crates: ALL, instead: "bits differ between CPUs: crate libm" },
    Ban { needle: ".powi(", crates: ALL, instead: "bits differ between compilers: crate libm" },
];

/// Checks one file; files that are not ours to check, or not Rust, have no findings.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let krate = crate_of(path);
    let is_rust = Path::new(path).extension().is_some_and(|extension| extension == "rs");
    if !is_rust || (krate.is_none() && !path.starts_with("xtask/")) {
        return Vec::new();
    }
    let mut findings = check_size(path, text);
    for (at, line) in text.lines().enumerate() {
        let code = code_of(line);
        findings.extend(tree::check_module_name(path, at + 1, code));
        if let Some(krate) = krate {
            findings.extend(check_words(path, at + 1, code, krate).into_iter().filter(|_| !is_excused(text, at)));
        }
    }
    if is_mechanism(path) && !text.starts_with("//! Linux: ") {
        findings.push(Finding::new(path, 1, "expected a first line `//! Linux: mm/FILE.c (vX.Y).`"));
    }
    findings
}

fn check_size(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        findings.push(Finding::new(path, lines, format!("{lines} lines; expected at most {LINES_MAX}")));
    }
    for (at, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            findings.push(Finding::new(path, at + 1, format!("{columns} columns; expected at most {COLUMNS_MAX}")));
        }
    }
    findings
}

fn check_words(path: &str, line: usize, code: &str, krate: &str) -> Vec<Finding> {
    // What is computed once and never changes is nothing that two threads could race for.
    let code = &code.replace("std::sync::LazyLock", "");
    let banned = BANS.iter().filter(|ban| contains_word(code, ban.needle) && (ban.crates)(krate));
    let mut findings: Vec<Finding> =
        banned.map(|ban| Finding::new(path, line, format!("`{}` in {krate}: {}", ban.needle, ban.instead))).collect();
    let is_primitive =
        PRIMITIVE_FILES.iter().any(|file| path.ends_with(&format!("/{file}"))) || path.ends_with("/cost/tests.rs");
    if is_of_manager(krate) && !is_primitive && code.contains(".work(") {
        findings.push(Finding::new(path, line, "`.work(` outside the primitives: algorithms never name a price"));
    }
    findings
}

/// Does the line above say why this one may use a type that clippy does not allow? (Linux's dcache is a hash table, too.)
fn is_excused(text: &str, at: usize) -> bool {
    let above = at.checked_sub(1).and_then(|above| text.lines().nth(above));
    above.is_some_and(|line| line.starts_with("#[expect(clippy::disallowed_types, reason = \""))
}

/// `needle` in `code`, not as the tail of a longer name.
fn contains_word(code: &str, needle: &str) -> bool {
    let continues = |before: &str| before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let is_name = needle.starts_with(|c: char| c.is_alphabetic());
    code.match_indices(needle).any(|(at, _)| !(is_name && continues(&code[..at])))
}

/// The folder under `crates/`.
fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split('/').next()
}

/// The line without its comment. A `//` inside a string hides the rest of its line: a miss, never a false alarm.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Returns whether a file is of the memory manager, and neither its root nor a test.
fn is_mechanism(path: &str) -> bool {
    let place = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
    place.is_some_and(|(krate, file)| is_of_manager(krate) && file != "lib.rs" && !file.ends_with("tests.rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(path, text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn words_are_banned_by_crate() {
        for (path, code) in [
            ("crates/os/src/a.rs", "let start = Instant::now();"),
            ("crates/units/src/a.rs", "use std::time::SystemTime;"),
            ("crates/workloads/src/a.rs", "use std::collections::HashMap;"),
            ("crates/workloads/src/a.rs", "std::thread::spawn(f);"),
            ("crates/workloads/src/deep/a.rs", "use std::sync::Arc;"),
            ("crates/linux/src/a.rs", "todo!()"),
            ("crates/cli/src/main.rs", "dbg!(x);"),
            ("crates/cli/tests/a.rs", "#[cfg(feature = \"x\")]"),
            ("crates/report/src/a.rs", "x.powf(2.0)"),
            ("crates/report/src/a.rs", "x.powi(2)"),
            ("crates/report/src/a.rs", "x.exp2()"),
            ("crates/units/src/a.rs", "x.tan()"),
            ("crates/lab/src/a.rs", "x.cbrt()"),
            ("crates/linux/src/a.rs", "let x = rand::random();"),
        ] {
            assert_eq!(check(path, code).len(), 1, "{path}: {code}");
        }
        for (path, code) in [
            ("crates/linux/src/a.rs", "let start = Instant::now();"),
            ("crates/os/src/a.rs", "use std::sync::Arc;"),
            ("crates/mm/src/a.rs", "//! Linux: mm/x.c (v6.1).\nuse std::sync::LazyLock;"),
            ("crates/os/src/a.rs", "// no Instant::now here"),
            ("crates/os/src/a.rs", "#[expect(clippy::disallowed_types, reason = \"x\")]\ntype A = HashMap<u8, u8>;"),
            ("crates/cli/src/a.rs", "my_todo!(); x.expect(y);"),
            ("crates/cli/src/a.rs", "use operand::Operand; x.atan2(y);"),
            ("xtask/src/a.rs", "dbg!(x)"),
            ("crates/os/notes.md", "todo!"),
        ] {
            assert_eq!(messages(path, code), [""; 0], "{path}: {code}");
        }
    }

    #[test]
    fn prices_stay_in_the_primitives() {
        let with_head = |code: &str| format!("//! Linux: mm/x.c (v6.1).\n{code}\n");
        assert_eq!(
            messages("crates/mm/src/compaction.rs", &with_head("cx.work(Work::Push, 1);")),
            ["crates/mm/src/compaction.rs:2: `.work(` outside the primitives: algorithms never name a price"]
        );
        assert_eq!(messages("crates/mm/src/memory/cost.rs", &with_head("self.work(w, 1);")), [""; 0]);
        assert_eq!(messages("crates/lab/src/a.rs", "cx.work(w, 1);"), [""; 0]);
    }

    #[test]
    fn files_of_mm_name_their_origin() {
        assert_eq!(check("crates/mm/src/memory/buddy/split.rs", "//! Halves.\n").len(), 1);
        assert_eq!(check("crates/mm/src/memory/buddy/tests.rs", "use super::*;\n"), []);
        assert_eq!(check("crates/mm/src/memory/buddy.rs", "//! Buddies.\n").len(), 1);
        assert_eq!(check("crates/mm/src/lib.rs", "//! Memory.\n"), []);
        assert_eq!(check("crates/os/src/task.rs", "//! Tasks.\n"), []);
    }

    #[test]
    fn sizes_are_limited() {
        assert_eq!(check("xtask/src/a.rs", &"\n".repeat(600)), []);
        let found = messages("xtask/src/a.rs", &"\n".repeat(601));
        assert_eq!(found, ["xtask/src/a.rs:601: 601 lines; expected at most 600"]);
        assert_eq!(check("crates/os/src/a.rs", &"x".repeat(130)), []);
        assert_eq!(check("crates/os/src/a.rs", &"x".repeat(131)).len(), 1);
    }
}
