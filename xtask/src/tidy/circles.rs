//! Circles of files: each file of a circle uses each other one, directly or by way of others. Their sizes may only fall.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};

use super::{
    Finding,
    ties::{Files, Tie},
};

/// The sizes of each crate's circles, as `CRATE SIZE SIZE`.
pub(super) const LIST: &str = "xtask/circles.txt";

/// The files of one circle.
type Circle<'a> = BTreeSet<&'a str>;

/// Compares the circles of every crate with the list: the largest one and the number of files in circles may only fall.
/// Returns that number, too.
pub(super) fn check(crates: &BTreeMap<String, Files>, list: &str) -> (Vec<Finding>, usize) {
    let known = known(list);
    let mut findings = Vec::new();
    let mut in_circles = 0;
    for (name, files) in crates {
        let now = sizes(files);
        in_circles += now.iter().sum::<usize>();
        let before = known.get(name.as_str()).cloned().unwrap_or_default();
        let is_larger = |of: fn(&[usize]) -> usize| of(&now) > of(&before);
        let verdict = if now == before {
            continue;
        } else if is_larger(largest) || is_larger(|sizes| sizes.iter().sum()) {
            "circles of files may only get smaller; see `cargo xtask tidy --circles`"
        } else {
            "write it down"
        };
        let message =
            format!("`{}` are the circles now, and {LIST} has `{}`: {verdict}", line(name, &now), line(name, &before));
        findings.push(Finding::new(LIST, 1, message));
    }
    for name in known.keys().filter(|name| !crates.contains_key(**name)) {
        findings.push(Finding::new(LIST, 1, format!("there is no crate {name}: take it out")));
    }
    (findings, in_circles)
}

/// Every circle of every crate, with the names that tie it.
pub(super) fn text(crates: &BTreeMap<String, Files>) -> String {
    let mut text = String::new();
    for (name, files) in crates {
        let _ = writeln!(text, "{}", line(name, &sizes(files)));
        for circle in circles(files) {
            let members: Vec<&str> = circle.iter().copied().collect();
            let _ = writeln!(text, "\n  {} files: {}", circle.len(), members.join(", "));
            for (pair, names) in pairs(&files.ties, &circle) {
                let _ = writeln!(text, "    {} -> {}: {}", pair.0, pair.1, names.join(", "));
            }
        }
        text.push('\n');
    }
    text
}

fn line(name: &str, sizes: &[usize]) -> String {
    let sizes: String = sizes.iter().map(|size| format!(" {size}")).collect();
    format!("{name}{}", if sizes.is_empty() { " 0" } else { &sizes })
}

fn known(list: &str) -> BTreeMap<&str, Vec<usize>> {
    let crates = list.lines().filter_map(|line| line.split_once(' '));
    let sizes = |sizes: &str| sizes.split(' ').filter_map(|size| size.parse().ok()).filter(|size| *size > 0).collect();
    crates.map(|(name, of)| (name, sizes(of))).collect()
}

fn largest(sizes: &[usize]) -> usize {
    sizes.first().copied().unwrap_or(0)
}

fn sizes(files: &Files) -> Vec<usize> {
    circles(files).iter().map(Circle::len).collect()
}

/// The circles of a crate, the largest first.
fn circles(files: &Files) -> Vec<Circle<'_>> {
    let graph: DiGraphMap<&str, ()> = files.ties.iter().map(|(from, to, _)| (from.as_str(), to.as_str())).collect();
    let mut circles: Vec<Circle> = tarjan_scc(&graph).into_iter().map(Circle::from_iter).collect();
    circles.retain(|circle| circle.len() > 1);
    circles.sort_by_key(|circle| (std::cmp::Reverse(circle.len()), circle.first().copied()));
    circles
}

/// The names that tie the files of a circle, by pair.
fn pairs<'a>(ties: &'a BTreeSet<Tie>, circle: &Circle) -> BTreeMap<(&'a str, &'a str), Vec<&'a str>> {
    let mut pairs: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (from, to, name) in ties {
        if circle.contains(from.as_str()) && circle.contains(to.as_str()) {
            pairs.entry((from, to)).or_default().push(name);
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates(ties: &[(&str, &str, &str)]) -> BTreeMap<String, Files> {
        let ties = ties.iter().map(|(from, to, name)| ((*from).to_owned(), (*to).to_owned(), (*name).to_owned()));
        BTreeMap::from([("lab".to_owned(), Files { names: BTreeSet::new(), ties: ties.collect() })])
    }

    /// Circles of 2 and of 3 files, and a file that uses both.
    fn two_circles() -> BTreeMap<String, Files> {
        crates(&[
            ("a.rs", "b.rs", "B"),
            ("a.rs", "c.rs", "C"),
            ("b.rs", "a.rs", "A"),
            ("b.rs", "a.rs", "new"),
            ("c.rs", "d.rs", "D"),
            ("d.rs", "e.rs", "E"),
            ("e.rs", "c.rs", "C"),
            ("f.rs", "a.rs", "A"),
        ])
    }

    #[test]
    fn circles_are_listed_with_their_names() {
        assert_eq!(
            text(&two_circles()),
            "lab 3 2\n\n  \
             3 files: c.rs, d.rs, e.rs\n    c.rs -> d.rs: D\n    d.rs -> e.rs: E\n    e.rs -> c.rs: C\n\n  \
             2 files: a.rs, b.rs\n    a.rs -> b.rs: B\n    b.rs -> a.rs: A, new\n\n"
        );
    }

    #[test]
    fn circles_may_only_get_smaller() {
        let verdict = |list: &str| {
            let findings: Vec<String> = check(&two_circles(), list).0.iter().map(ToString::to_string).collect();
            findings.join("\n")
        };
        assert_eq!(verdict("lab 3 2\n"), "");
        for less in ["lab 2 2\n", "lab 3\n", "lab 2 2 2\n", "lab 0\n", ""] {
            assert!(verdict(less).ends_with("may only get smaller; see `cargo xtask tidy --circles`"), "{less}");
        }
        for more in ["lab 4 2\n", "lab 3 3\n", "lab 5\n"] {
            assert!(verdict(more).starts_with("xtask/circles.txt:1: `lab 3 2` are the circles now"), "{more}");
            assert!(verdict(more).ends_with("write it down"), "{more}");
        }
        assert!(verdict("lab 3 2\nold 7\n").contains("there is no crate old"));
    }
}
