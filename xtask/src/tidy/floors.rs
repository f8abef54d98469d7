//! The floors of `mm`: house style, 1.11. A file may use its own floor and those below. Ties that run upward stand in a list, one
//! line for each pair of files, and the list may only get shorter.
//!
//! Ties are imports and paths between files, and calls of methods of `Mm` and `Cx`, each name once for each pair. A call through
//! a field (`mm.cache.find()`) is no tie here, and neither is what a macro holds.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Context, Result};
use syn::{
    Expr, ExprMethodCall, ImplItem, Item, ItemImpl, ItemMod, ItemUse, Type, UseTree,
    visit::{self, Visit},
};

use super::Finding;

/// The ties that are known, as `FROM -> TO: NAME, NAME`.
pub(super) const LIST: &str = "xtask/upward-ties.txt";
/// The folder whose files have floors.
pub(super) const FOLDER: &str = "crates/mm/src/";
/// The file that puts all floors together.
const WHOLE: &str = "lib.rs";

/// Files and folders of each floor, the lowest first. The longest name that fits a file decides.
#[rustfmt::skip]
const FLOORS: [&[&str]; 8] = [
    &["variant.rs", "variant/", "gfp.rs", "machine.rs", "mempolicy.rs", "zone.rs"],
    &[
        "alloc/lent.rs", "bandwidth.rs", "bandwidth/", "cost.rs", "cost/", "cx.rs", "event.rs", "frame.rs", "frame/",
        "line.rs", "list.rs", "list_order.rs", "lru_kind.rs", "news.rs", "pageblock.rs", "per_node.rs", "primitive.rs",
        "slab/kinds.rs", "spin.rs", "splitmix.rs",
        "step.rs", "tlb.rs",
    ],
    &[
        "alloc.rs", "alloc/", "block_census.rs", "buddy.rs", "fallback.rs", "node.rs", "pcp.rs", "pcp/", "per_zone.rs",
        "poison.rs",
        "reserve.rs", "shuffle.rs", "slab.rs", "slab/", "watermark.rs", "zone_state.rs",
    ],
    &[
        "address_space.rs", "disk.rs", "folio_lock.rs", "fork.rs", "lru.rs", "lru/", "mmu_gather.rs", "page_cache.rs",
        "page_cache/", "page_table.rs", "page_table/", "pte.rs", "rmap.rs", "spaces.rs", "swap.rs", "swap/", "unmap.rs", "vma.rs",
        "vma/", "workingset.rs",
    ],
    &[
        "alloc/slow.rs", "alloc/slow/", "alloc/stall.rs", "compact.rs", "compact/", "kswapd.rs", "kswapd/", "migrate.rs",
        "migrate/", "oom.rs", "reclaim.rs", "reclaim/", "shrinker.rs",
    ],
    &[
        "access.rs", "access/", "fault.rs", "fault/", "gup.rs", "huge_cow.rs", "khugepaged.rs", "khugepaged/",
        "migrate/to_node.rs", "numa_balancing.rs", "numa_balancing/", "numa_hint.rs", "page_cache/fault.rs", "split.rs",
        "swap/fault.rs", "thp.rs", "touch.rs",
    ],
    &["balloon.rs", "host.rs", "mistake.rs", "reporting.rs"],
    &["block_map.rs", "check.rs", "check/", "daemon.rs", "state.rs", "state/", "vmstat.rs"],
];

/// From a file to one on a higher floor: the name that is used.
type Tie = (String, String, String);

/// Compares the ties that run upward with the list. `sources`: path and text of files, relative to the workspace.
pub(super) fn check(sources: &[(String, String)], list: &str) -> Result<(Vec<Finding>, usize)> {
    let files = Files::read(sources)?;
    let mut findings: Vec<Finding> = files
        .parsed
        .keys()
        .filter(|file| **file != WHOLE && floor_of(file).is_none())
        .map(|file| {
            Finding::new(&format!("{FOLDER}{file}"), 1, "stands on no floor: FLOORS in xtask/src/tidy/floors.rs")
        })
        .collect();
    let found = files.upward();
    let known = known(list);
    for (from, to, name) in found.difference(&known) {
        let message = format!("uses `{name}` of {to}, on a higher floor (house style, 1.11), and {LIST} lacks it");
        findings.push(Finding::new(&format!("{FOLDER}{from}"), 1, message));
    }
    for (from, to, name) in known.difference(&found) {
        findings.push(Finding::new(LIST, 1, format!("{from} does not use `{name}` of {to} any more: take it out")));
    }
    Ok((findings, found.len()))
}

fn floor_of(file: &str) -> Option<usize> {
    let fits = |name: &&&str| file == **name || (name.ends_with('/') && file.starts_with(**name));
    let named = FLOORS.iter().enumerate().flat_map(|(floor, names)| names.iter().map(move |name| (floor, name)));
    named.filter(|(_, name)| fits(name)).max_by_key(|(_, name)| name.len()).map(|(floor, _)| floor)
}

fn known(list: &str) -> BTreeSet<Tie> {
    let pairs = list.lines().filter_map(|line| line.split_once(": ")).filter_map(|(pair, names)| {
        let (from, to) = pair.split_once(" -> ")?;
        Some((from, to, names))
    });
    let ties = pairs.flat_map(|(from, to, names)| {
        names.split(", ").map(move |name| (from.to_owned(), to.to_owned(), name.to_owned()))
    });
    ties.collect()
}

/// The files of `mm` without tests.
struct Files {
    parsed: BTreeMap<String, syn::File>,
    /// The file of each name that lib.rs exports from a module.
    exports: BTreeMap<String, String>,
    /// The file of each method, by the name of its type.
    methods: BTreeMap<(String, String), String>,
}

impl Files {
    fn read(sources: &[(String, String)]) -> Result<Self> {
        let mut parsed = BTreeMap::new();
        for (path, text) in sources {
            let Some(file) = path.strip_prefix(FOLDER) else { continue };
            let is_rust = Path::new(file).extension().is_some_and(|extension| extension == "rs");
            if is_rust && !file.ends_with("tests.rs") && !file.contains("tests/") {
                parsed.insert(file.to_owned(), syn::parse_file(text).with_context(|| path.clone())?);
            }
        }
        let mut files = Self { parsed, exports: BTreeMap::new(), methods: BTreeMap::new() };
        files.exports = files.exports();
        files.methods = files.methods();
        Ok(files)
    }

    fn exports(&self) -> BTreeMap<String, String> {
        let items = self.parsed.get(WHOLE).map(|whole| whole.items.as_slice()).unwrap_or_default();
        let mut exports = BTreeMap::new();
        for item in items {
            if let Item::Use(item) = item {
                leaves(&item.tree, &mut Vec::new(), &mut |path| {
                    if let (Some(file), Some(name)) = (self.file_of(path), path.last()) {
                        exports.insert(name.clone(), file);
                    }
                });
            }
        }
        exports
    }

    fn methods(&self) -> BTreeMap<(String, String), String> {
        let mut methods = BTreeMap::new();
        for (file, parsed) in &self.parsed {
            for item in &parsed.items {
                let Item::Impl(item) = item else { continue };
                let Some(of) = type_name(&item.self_ty).filter(|_| item.trait_.is_none()) else { continue };
                for item in &item.items {
                    if let ImplItem::Fn(function) = item {
                        methods.insert((of.clone(), function.sig.ident.to_string()), file.clone());
                    }
                }
            }
        }
        methods
    }

    /// The file that a path from the crate's root leads into.
    fn file_of(&self, path: &[String]) -> Option<String> {
        let modules = (1..=path.len()).rev().map(|length| format!("{}.rs", path[..length].join("/")));
        let mut files = modules.filter(|file| self.parsed.contains_key(file));
        files.next().or_else(|| self.exports.get(path.first()?).cloned())
    }

    fn upward(&self) -> BTreeSet<Tie> {
        let mut ties = BTreeSet::new();
        for (file, parsed) in self.parsed.iter().filter(|(file, _)| *file != WHOLE) {
            let module = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
            let mut uses = Uses { files: self, module, of: None, found: BTreeSet::new() };
            uses.visit_file(parsed);
            let goes_up = |to: &str| floor_of(file) < floor_of(to);
            let found = uses.found.into_iter().filter(|(to, _)| goes_up(to));
            ties.extend(found.map(|(to, name)| (file.clone(), to, name)));
        }
        ties
    }
}

/// The files that one file uses, with the names.
struct Uses<'a> {
    files: &'a Files,
    module: Vec<String>,
    /// The type whose functions are visited.
    of: Option<String>,
    found: BTreeSet<(String, String)>,
}

impl Uses<'_> {
    fn note_path(&mut self, path: &[String]) {
        let Some(absolute) = self.absolute(path) else { return };
        if let (Some(file), Some(name)) = (self.files.file_of(&absolute), absolute.last()) {
            self.found.insert((file, name.clone()));
        }
    }

    /// The path from the crate's root; none for names from outside of it.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let mut base = match path.first()?.as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" | "super" => self.module.clone(),
            _ => return None,
        };
        let rest = path.iter().skip_while(|name| *name == "self" || *name == "super").cloned();
        let up = path.iter().take_while(|name| *name == "super").count();
        base.truncate(base.len().saturating_sub(up));
        Some(base.into_iter().chain(rest).collect())
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        // Modules within a file are tests.
        if item.content.is_none() {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        leaves(&item.tree, &mut Vec::new(), &mut |path| self.note_path(path));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.note_path(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        self.of = type_name(&item.self_ty);
        visit::visit_item_impl(self, item);
        self.of = None;
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let of = match receiver(&call.receiver).as_deref() {
            Some("mm") => Some("Mm".to_owned()),
            Some("cx") => Some("Cx".to_owned()),
            Some("self") => self.of.clone().filter(|of| of == "Mm" || of == "Cx"),
            _ => None,
        };
        let name = call.method.to_string();
        let file = of.and_then(|of| self.files.methods.get(&(of, name.clone())));
        self.found.extend(file.map(|file| (file.clone(), name)));
        visit::visit_expr_method_call(self, call);
    }
}

/// The last name of a variable or field that a method is called on.
fn receiver(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => Some(name.to_string()),
            syn::Member::Unnamed(_) => None,
        },
        Expr::Reference(reference) => receiver(&reference.expr),
        Expr::Paren(inner) => receiver(&inner.expr),
        _ => None,
    }
}

fn type_name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

/// Calls `leaf` with every path that a `use` names; a rename counts under its first name.
fn leaves(tree: &UseTree, path: &mut Vec<String>, leaf: &mut impl FnMut(&[String])) {
    match tree {
        UseTree::Path(step) => {
            path.push(step.ident.to_string());
            leaves(&step.tree, path, leaf);
            path.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, path, leaf)),
        UseTree::Glob(_) => leaf(path),
        UseTree::Name(name) if name.ident == "self" => leaf(path),
        UseTree::Name(name) => named(&name.ident.to_string(), path, leaf),
        UseTree::Rename(rename) => named(&rename.ident.to_string(), path, leaf),
    }
}

fn named(name: &str, path: &mut Vec<String>, leaf: &mut impl FnMut(&[String])) {
    path.push(name.to_owned());
    leaf(path);
    path.pop();
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// The list of these ties.
    fn text(ties: &BTreeSet<Tie>) -> String {
        let mut pairs: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for (from, to, name) in ties {
            pairs.entry((from, to)).or_default().push(name);
        }
        let mut text = String::new();
        for ((from, to), names) in pairs {
            let _ = writeln!(text, "{from} -> {to}: {}", names.join(", "));
        }
        text
    }

    fn sources(files: &[(&str, &str)]) -> Vec<(String, String)> {
        files.iter().map(|(file, text)| (format!("{FOLDER}{file}"), (*text).to_owned())).collect()
    }

    #[test]
    fn ties_that_run_upward_are_found() {
        let sources = sources(&[
            ("lib.rs", "mod kswapd; pub use kswapd::{Kswapd, Nap as Rest}; pub struct Mm; use balloon::Balloon;"),
            ("kswapd.rs", "pub struct Kswapd; impl crate::Mm { pub fn wake(&mut self) { self.free(); } }"),
            ("balloon.rs", "pub struct Balloon; impl Balloon { fn fill(&self) {} }"),
            (
                "buddy.rs",
                "use crate::{Mm, Kswapd, balloon::{self, Balloon as B}}; \
                 impl Mm { fn free(&mut self) { self.wake(); let x = crate::balloon::limit(); } } \
                 fn f(mm: &mut Mm, b: &B) { mm.wake(); b.fill(); mm.cache.wake(); } \
                 #[cfg(test)] mod tests { use crate::daemon::Daemon; }",
            ),
            ("compact/fast.rs", "use super::{super::buddy::Buddy, zone::Zone}; use super::super::daemon::Daemon;"),
            ("compact/zone.rs", ""),
            ("daemon.rs", "use crate::{Kswapd, buddy::Buddy};"),
            ("khugepaged/tests.rs", "use crate::daemon::Daemon;"),
        ]);
        let files = Files::read(&sources).expect("they parse");
        let ties = text(&files.upward());
        assert_eq!(
            ties,
            "buddy.rs -> balloon.rs: Balloon, balloon, limit\n\
             buddy.rs -> kswapd.rs: Kswapd, wake\n\
             compact/fast.rs -> daemon.rs: Daemon\n"
        );
    }

    #[test]
    fn the_list_may_only_get_shorter() {
        let sources = sources(&[
            ("lib.rs", ""),
            ("frame.rs", "use crate::buddy::Buddy;"),
            ("buddy.rs", "use crate::daemon::Daemon;"),
            ("daemon.rs", ""),
            ("odd.rs", ""),
        ]);
        let list = "buddy.rs -> daemon.rs: Daemon, Row\n";
        let (findings, count) = check(&sources, list).expect("they parse");
        let messages: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(count, 2);
        let [no_floor, new, gone] = messages.as_slice() else { panic!("{messages:?}") };
        assert!(no_floor.starts_with("crates/mm/src/odd.rs:1: stands on no floor"), "{no_floor}");
        assert!(new.starts_with("crates/mm/src/frame.rs:1: uses `Buddy` of buddy.rs"), "{new}");
        assert!(gone.contains("buddy.rs does not use `Row` of daemon.rs any more"), "{gone}");
    }

    #[test]
    fn the_longest_name_decides_the_floor() {
        assert_eq!(
            [floor_of("alloc/fair.rs"), floor_of("alloc/slow/fixed.rs"), floor_of("alloc/lent.rs")],
            [Some(2), Some(4), Some(1)]
        );
        assert_eq!(floor_of("new.rs"), None);
    }
}
