//! Ties between the files of a crate: imports, paths and calls, each name once for each pair of files.
//!
//! A name ties to the file that defines it, whoever exports it again; naming or declaring a module and exporting a name are no
//! ties. A call of a method ties where the type of its receiver can be told ([`types`]). Where it cannot, the one type of the
//! crate that defines a method of this name is taken, unless std, a trait or another crate has such a method, too. Methods that
//! implement a trait are none: their callers name the trait. Roots of crates (`lib.rs`, `main.rs`) and tests are left out.
//!
//! Macros are not expanded. Their arguments are read as far as they are expressions, and a name that a module does not define is
//! taken for one that a macro makes there, if the module calls one.

mod body;
mod scope;
mod std_names;
mod types;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Context, Result};

use super::tree::is_test;
use scope::Tree;
use types::Types;

/// The files that put a crate together.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

/// From a file to another one: the name that is used.
pub(super) type Tie = (String, String, String);

/// The files of one crate, relative to its `src`, without roots and tests, and the ties between them.
pub(super) struct Files {
    pub(super) names: BTreeSet<String>,
    pub(super) ties: BTreeSet<Tie>,
}

/// Reads every crate under `crates/`, by the name of its folder. `sources`: path and text of files, relative to the workspace.
pub(super) fn of_crates(sources: &[(String, String)]) -> Result<BTreeMap<String, Files>> {
    let mut parsed: BTreeMap<&str, BTreeMap<String, syn::File>> = BTreeMap::new();
    for (path, text) in sources {
        if let Some((name, file)) = place(path) {
            let text = syn::parse_file(text).with_context(|| path.clone())?;
            parsed.entry(name).or_default().insert(file.to_owned(), text);
        }
    }
    let trees: BTreeMap<&str, Tree> = parsed.into_iter().map(|(name, files)| (name, Tree::new(files))).collect();
    let types: BTreeMap<&str, Types> = trees.iter().map(|(name, tree)| (*name, Types::new(tree))).collect();
    let files = types.iter().map(|(name, own)| {
        let others = types.iter().filter(|(other, _)| *other != name);
        let foreign = others.flat_map(|(_, types)| types.method_names()).collect();
        let names = own.tree.files().filter(|file| !ROOTS.contains(file)).map(str::to_owned).collect();
        let of_root = |(from, to, _): &Tie| ROOTS.iter().any(|root| from == root || to == root);
        let ties = body::ties(own, &foreign).into_iter().filter(|tie| !of_root(tie)).collect();
        ((*name).to_owned(), Files { names, ties })
    });
    Ok(files.collect())
}

/// Crate and file of a path, for the product's own Rust.
fn place(path: &str) -> Option<(&str, &str)> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let is_rust = Path::new(file).extension().is_some_and(|extension| extension == "rs");
    (is_rust && !is_test(file)).then_some((name, file))
}
