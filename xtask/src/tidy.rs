//! `cargo xtask tidy`: the house rules that the compiler and clippy do not know.

mod arrows;
mod circles;
mod floors;
mod habit;
mod index;
mod links;
mod manifest;
mod nouns;
mod openings;
mod prose;
mod source;
mod subject;
mod ties;
mod tree;

use std::{collections::BTreeMap, fmt, fs, path::Path};

use anyhow::{Context, Result};
use cargo_metadata::Metadata;
use clap::Args;

use crate::crates::folder;

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// Relative to the workspace.
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

#[derive(Args)]
pub(crate) struct Options {
    /// List the circles of files of every crate instead, with the names that tie each: files that use each other, directly or
    /// by way of others
    #[arg(long)]
    pub(crate) circles: bool,
}

/// Prints what it finds and returns how much that was.
pub(crate) fn run(workspace: &Metadata) -> Result<usize> {
    let root = workspace.workspace_root.as_std_path();
    let mut findings = arrows::check(workspace)?;
    findings.extend(manifest::check("Cargo.toml", &read(root, "Cargo.toml")?));
    let files = tree::files(root)?;
    for krate in workspace.workspace_packages().into_iter().map(folder).filter(|krate| arrows::is_of_manager(krate)) {
        findings.extend(index::check(krate, &read(root, &index::table(krate))?, &files));
    }
    let mut openings = Vec::new();
    let mut nouns = Vec::new();
    let mut sources = Vec::new();
    let mut pages = BTreeMap::new();
    for path in &files {
        findings.extend(tree::check_name(path));
        let Ok(bytes) = fs::read(root.join(path)) else {
            continue; // deleted, and git does not know yet; or a link to nowhere
        };
        let Ok(text) = str::from_utf8(&bytes) else {
            continue;
        };
        findings.extend(tree::check_paths_in(path, text));
        findings.extend(source::check(path, text));
        openings.extend(openings::in_file(path, text));
        nouns.extend(nouns::in_file(path, text));
        sources.push((path.clone(), text.to_owned()));
        if Path::new(path).extension().is_some_and(|extension| extension == "md") {
            pages.insert(path.clone(), text.to_owned());
        }
    }
    findings.extend(links::check(&pages, &files));
    let (long, sentences) = prose::check(&pages);
    findings.extend(long);
    findings.extend(openings::HABIT.check(&openings, |path| habit::times_of(root, path)));
    findings.extend(nouns::HABIT.check(&nouns, |path| habit::times_of(root, path)));
    let crates = ties::of_crates(&sources)?;
    let (upward, ties) = match crates.get(floors::CRATE) {
        Some(mm) => floors::check(mm, &read(root, floors::LIST)?),
        None => Default::default(),
    };
    findings.extend(upward);
    let (larger, in_circles) = circles::check(&crates, &read(root, circles::LIST)?);
    findings.extend(larger);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {}", openings::HABIT.count(&openings));
    println!("tidy: {}", nouns::HABIT.count(&nouns));
    println!("tidy: {sentences}");
    println!("tidy: {ties} ties of mm run upward ({})", floors::LIST);
    println!("tidy: {in_circles} files of all crates are in circles ({})", circles::LIST);
    // Said, and not counted: a commit that is there cannot be mended by another one.
    if let Some(problem) = subject::of_newest(root) {
        println!("tidy: {problem}");
    }
    println!("tidy: {} found", findings.len());
    Ok(findings.len())
}

/// Prints the circles of files of every crate.
pub(crate) fn list_circles(workspace: &Metadata) -> Result<()> {
    let root = workspace.workspace_root.as_std_path();
    let sources = tree::files(root)?.into_iter().filter(|path| path.starts_with("crates/"));
    let sources: Vec<(String, String)> =
        sources.filter_map(|path| fs::read_to_string(root.join(&path)).ok().map(|text| (path, text))).collect();
    print!("{}", circles::text(&ties::of_crates(&sources)?));
    Ok(())
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| path.to_owned())
}
