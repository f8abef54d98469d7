//! Modules of a crate, and where a path leads.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Attribute, ImplItem, Item, ItemMod, ItemUse, UseTree, visit::Visit};

/// Bound of exports that lead to exports.
const HOPS_MAX: usize = 16;

/// The names of modules from the crate's root.
pub(super) type Module = Vec<String>;

/// The modules of one crate without tests.
pub(super) struct Tree {
    pub(super) parsed: BTreeMap<String, syn::File>,
    modules: BTreeMap<Module, Names>,
}

/// The names that a module has.
struct Names {
    file: String,
    items: BTreeSet<String>,
    /// The path of each imported name.
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// Whether macros make items here, whose names are not known.
    makes_items: bool,
}

/// The end of a path: an item, and the names behind it (of a variant, of a method).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) module: Module,
    /// None for a module.
    pub(super) item: Option<String>,
    pub(super) rest: Vec<String>,
}

impl Found {
    /// The item's path from the crate's root.
    pub(super) fn id(&self) -> Option<String> {
        let item = self.item.as_ref()?;
        Some(self.module.iter().chain([item]).cloned().collect::<Vec<_>>().join("::"))
    }
}

impl Tree {
    pub(super) fn new(mut parsed: BTreeMap<String, syn::File>) -> Self {
        let mut tests = Vec::new();
        for (file, parsed) in &mut parsed {
            let module = module_of(file);
            tests.extend(without_tests(&mut parsed.items).into_iter().map(|name| [&module[..], &[name]].concat()));
        }
        parsed.retain(|file, _| !tests.iter().any(|test| module_of(file).starts_with(test)));
        let mut tree = Self { parsed: BTreeMap::new(), modules: BTreeMap::new() };
        for (file, parsed) in &parsed {
            tree.add(&module_of(file), file, &parsed.items);
        }
        tree.parsed = parsed;
        tree
    }

    fn add(&mut self, module: &Module, file: &str, items: &[Item]) {
        let mut names = Names {
            file: file.to_owned(),
            items: items.iter().filter_map(name_of).collect(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            makes_items: items.iter().any(|item| matches!(item, Item::Macro(item) if item.ident.is_none())),
        };
        for item in items {
            match item {
                Item::Mod(inner) => {
                    if let Some((_, items)) = &inner.content {
                        self.add(&[&module[..], &[inner.ident.to_string()]].concat(), file, items);
                    }
                }
                item => Imports { names: &mut names }.visit_item(item),
            }
        }
        self.modules.insert(module.clone(), names);
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.parsed.keys().map(String::as_str)
    }

    pub(super) fn file_of(&self, module: &[String]) -> Option<&str> {
        self.modules.get(module).map(|names| names.file.as_str())
    }

    /// Follows a path that stands in a module; none for names from outside of the crate.
    pub(super) fn find(&self, module: &[String], path: &[String]) -> Option<Found> {
        self.follow(module, path, HOPS_MAX)
    }

    fn follow(&self, module: &[String], path: &[String], hops: usize) -> Option<Found> {
        let hops = hops.checked_sub(1)?;
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" | "super" => {
                let up = path.iter().take_while(|name| *name == "super" || *name == "self").count();
                let supers = path[..up].iter().filter(|name| *name == "super").count();
                (module[..module.len().checked_sub(supers)?].to_vec(), &path[up..])
            }
            _ => (module.to_vec(), path),
        };
        let is_relative = rest.len() == path.len();
        while let Some((name, behind)) = rest.split_first() {
            let found = self.look_up(&at, name, !behind.is_empty(), hops);
            let of_macro = || {
                let names = self.modules.get(&at).filter(|_| !is_relative || rest.len() < path.len())?;
                let is_foreign = names.imports.contains_key(name) || !names.makes_items;
                (!is_foreign).then(|| Found { module: at.clone(), item: Some(name.clone()), rest: Vec::new() })
            };
            let found = found.or_else(of_macro)?;
            if found.item.is_some() {
                return Some(Found { rest: [&found.rest[..], behind].concat(), ..found });
            }
            (at, rest) = (found.module, behind);
        }
        Some(Found { module: at, item: None, rest: Vec::new() })
    }

    /// The meaning of a name in a module; `leads_on`: more of the path follows, as it does not behind a function.
    fn look_up(&self, module: &[String], name: &str, leads_on: bool, hops: usize) -> Option<Found> {
        let names = self.modules.get(module)?;
        let child = [module, &[name.to_owned()]].concat();
        let is_module = self.modules.contains_key(&child);
        let as_module = Found { module: child, item: None, rest: Vec::new() };
        if is_module && leads_on {
            return Some(as_module);
        }
        if names.items.contains(name) {
            return Some(Found { module: module.to_vec(), item: Some(name.to_owned()), rest: Vec::new() });
        }
        if let Some(found) = names.imports.get(name).and_then(|path| self.follow(module, path, hops)) {
            return Some(found);
        }
        if is_module {
            return Some(as_module);
        }
        let globs = names.globs.iter().filter_map(|path| self.follow(module, path, hops));
        let mut globs = globs.filter(|from| from.item.is_none() && from.module != module);
        let hops = hops.checked_sub(1)?;
        globs.find_map(|from| self.look_up(&from.module, name, leads_on, hops))
    }
}

/// The module of a file.
pub(super) fn module_of(file: &str) -> Module {
    let path = file.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if ["lib", "main"].contains(&path) { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Collects imports, those within functions, too.
struct Imports<'a> {
    names: &'a mut Names,
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        leaves(&item.tree, &mut Vec::new(), &mut |path, name| match name {
            Some(name) => {
                self.names.imports.entry(name.to_owned()).or_insert_with(|| path.to_vec());
            }
            None => self.names.globs.push(path.to_vec()),
        });
    }

    fn visit_item_mod(&mut self, _: &'ast ItemMod) {
        // The names of an inner module are its own.
    }
}

/// Calls `leaf` with every path that a `use` names, and with the name that it gives it, if that is one.
pub(super) fn leaves(tree: &UseTree, path: &mut Vec<String>, leaf: &mut impl FnMut(&[String], Option<&str>)) {
    match tree {
        UseTree::Path(step) => {
            path.push(step.ident.to_string());
            leaves(&step.tree, path, leaf);
            path.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, path, leaf)),
        UseTree::Glob(_) => leaf(path, None),
        UseTree::Name(name) if name.ident == "self" => leaf(path, path.last().map(String::as_str)),
        UseTree::Name(name) => named(&name.ident.to_string(), &name.ident.to_string(), path, leaf),
        UseTree::Rename(rename) if rename.ident == "self" => leaf(path, Some(&rename.rename.to_string())),
        UseTree::Rename(rename) => named(&rename.ident.to_string(), &rename.rename.to_string(), path, leaf),
    }
}

fn named(name: &str, here: &str, path: &mut Vec<String>, leaf: &mut impl FnMut(&[String], Option<&str>)) {
    path.push(name.to_owned());
    leaf(path, Some(here));
    path.pop();
}

/// Takes tests out, and returns the names of modules in files of their own that are tests.
fn without_tests(items: &mut Vec<Item>) -> Vec<String> {
    let mut modules = Vec::new();
    items.retain_mut(|item| {
        if let Item::Mod(inner) = item
            && is_test(&inner.attrs)
        {
            modules.push(inner.ident.to_string());
        }
        match item {
            Item::Impl(inner) => inner.items.retain(|item| !matches!(item, ImplItem::Fn(of) if is_test(&of.attrs))),
            Item::Mod(inner) => {
                if let Some((_, items)) = &mut inner.content {
                    without_tests(items);
                }
            }
            _ => {}
        }
        !attributes(item).is_some_and(is_test)
    });
    modules
}

fn attributes(item: &Item) -> Option<&[Attribute]> {
    match item {
        Item::Const(item) => Some(&item.attrs),
        Item::Enum(item) => Some(&item.attrs),
        Item::Fn(item) => Some(&item.attrs),
        Item::Impl(item) => Some(&item.attrs),
        Item::Mod(item) => Some(&item.attrs),
        Item::Static(item) => Some(&item.attrs),
        Item::Struct(item) => Some(&item.attrs),
        Item::Trait(item) => Some(&item.attrs),
        Item::Type(item) => Some(&item.attrs),
        Item::Use(item) => Some(&item.attrs),
        _ => None,
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    let is = |attribute: &Attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    };
    attributes.iter().any(is)
}
