//! Tests of ties between files.

use std::fmt::Write;

use super::*;

/// The ties of a crate with these files, as lists have them.
fn ties(files: &[(&str, &str)]) -> String {
    let sources: Vec<(String, String)> =
        files.iter().map(|(file, text)| (format!("crates/mm/src/{file}"), (*text).to_owned())).collect();
    let crates = of_crates(&sources).expect("they parse");
    let mut pairs: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (from, to, name) in &crates["mm"].ties {
        pairs.entry((from, to)).or_default().push(name);
    }
    let mut text = String::new();
    for ((from, to), names) in pairs {
        let _ = writeln!(text, "{from} -> {to}: {}", names.join(", "));
    }
    text
}

#[test]
fn imports_paths_and_calls_are_ties() {
    let ties = ties(&[
        ("lib.rs", "pub use kswapd::{Kswapd, Nap as Rest}; pub struct Mm { cache: Cache } use balloon::Balloon;"),
        ("kswapd.rs", "pub struct Kswapd; impl crate::Mm { pub fn wake(&mut self) { self.free(); } }"),
        ("balloon.rs", "pub struct Balloon; impl Balloon { pub fn fill(&self) {} } pub fn limit() {}"),
        (
            "buddy.rs",
            "use crate::{Mm, Kswapd, balloon::{self, Balloon as B}}; \
             impl Mm { fn free(&mut self) { self.wake(); let x = crate::balloon::limit(); } } \
             fn f(mm: &mut Mm, b: &B) { mm.wake(); b.fill(); mm.cache.wake(); } \
             #[cfg(test)] mod tests { use crate::daemon::Daemon; }",
        ),
        ("compact/fast.rs", "use super::{super::buddy::Buddy, zone::Zone}; use super::super::daemon::Daemon;"),
        ("compact.rs", "mod fast; mod zone; pub use zone::Zone;"),
        ("compact/zone.rs", "pub struct Zone;"),
        ("daemon.rs", "use crate::{Kswapd}; daemons! { Daemon }"),
        ("khugepaged/tests.rs", "use crate::daemon::Daemon;"),
    ]);
    assert_eq!(
        ties,
        "buddy.rs -> balloon.rs: Balloon, fill, limit\n\
         buddy.rs -> kswapd.rs: Kswapd, wake\n\
         compact/fast.rs -> compact/zone.rs: Zone\n\
         compact/fast.rs -> daemon.rs: Daemon\n\
         daemon.rs -> kswapd.rs: Kswapd\n\
         kswapd.rs -> buddy.rs: free\n"
    );
}

#[test]
fn names_tie_to_the_file_that_defines_them() {
    let ties = ties(&[
        ("lib.rs", "mod alloc; mod swap; pub use alloc::Slow; pub struct Mm;"),
        (
            "alloc.rs",
            "mod stall; pub use stall::{Slow, order}; use crate::swap; fn f() { stall::applies(); swap::go(); }",
        ),
        ("alloc/stall.rs", "pub struct Slow; pub enum Why { Late } pub fn applies() {} pub fn order() {}"),
        (
            "swap.rs",
            "use crate::alloc; pub fn go() { alloc::order(); inner::f(); } mod inner { use super::super::Slow; }",
        ),
        ("thp.rs", "use crate::alloc::stall::Why::{self, Late as L}; fn f() { let order = 1; g(order); }"),
        ("zone.rs", "pub use crate::alloc::order; fn f() { let order = 1; g(order); }"),
        ("slab.rs", "use crate::alloc::stall::*; fn f(_: Why) {}"),
        ("outside.rs", "use anyhow::anyhow; use std::mem::{self, swap}; fn f() { mem::swap(); Self::f(); }"),
    ]);
    assert_eq!(
        ties,
        "alloc.rs -> alloc/stall.rs: applies\n\
         alloc.rs -> swap.rs: go\n\
         slab.rs -> alloc/stall.rs: Why\n\
         swap.rs -> alloc/stall.rs: Slow, order\n\
         thp.rs -> alloc/stall.rs: Why\n"
    );
}

/// The files that `user.rs` with this text uses, with the names, and with the types and methods of a small crate.
fn ties_of_user(text: &str) -> String {
    let text = format!("use crate::Mm; {text}");
    let all = ties(&[
        ("lib.rs", "mod a; pub struct Mm { pub cache: a::Cache, pub nodes: Vec<Option<Box<a::Node>>> }"),
        (
            "a.rs",
            "pub struct Node { pub thp: Thp, pub rows: PerNode<Row> } pub struct Cache; pub struct Thp; \
             pub struct Row(pub Thp, u64); pub struct PerNode<T>(Vec<T>); pub enum Entry { Huge(Thp), Empty { of: Cache } }",
        ),
        ("cache.rs", "impl crate::a::Cache { pub fn find(&self) -> Option<crate::a::Node> {} pub fn len(&self) {} }"),
        (
            "thp.rs",
            "use crate::a::*; impl Thp { pub fn split(&self) {} pub fn only_here(&self) {} pub fn test(&self) {} }",
        ),
        (
            "per_node.rs",
            "use crate::a::*; impl<T> PerNode<T> { pub fn at(&self) -> &T {} pub fn each(&self, f: impl Fn(&T)) {} }",
        ),
        (
            "row.rs",
            "impl crate::a::Row { pub fn test(&self) {} pub fn of(c: &crate::a::Cache) -> Result<Self, u8> {} }",
        ),
        ("shrink.rs", "pub trait Shrink { fn shrink(&self); } impl Shrink for crate::a::Thp { fn shrink(&self) {} }"),
        ("user.rs", &text),
    ]);
    let of_user = all.lines().filter_map(|line| line.strip_prefix("user.rs -> "));
    of_user.filter(|line| !line.starts_with("a.rs: ")).collect::<Vec<_>>().join("; ")
}

#[test]
fn calls_tie_to_the_file_of_the_method() {
    for (text, expected) in [
        ("fn f(mm: &mut Mm) { mm.cache.find(); }", "cache.rs: find"),
        ("impl Mm { fn f(&self) { self.cache.len(); self.nodes.len(); self.nodes.find(); } }", "cache.rs: len"),
        ("fn f(mm: &Mm) { let x = &mm.cache; for y in z { x.find(); } }", "cache.rs: find"),
        ("fn f(mm: &Mm) { for node in mm.nodes.iter().flatten() { node.thp.split(); } }", "thp.rs: split"),
        ("fn f(mm: &Mm) { if let Some(node) = &mm.nodes[0] && x { node.thp.split() } }", "thp.rs: split"),
        (
            "fn f(mm: &Mm) -> R { mm.nodes.iter().map(|node| node.rows.at()).for_each(|row| row.test()) }",
            "per_node.rs: at; row.rs: test",
        ),
        ("fn f(node: &crate::a::Node) { node.rows.each(|row| row.0.test()); }", "per_node.rs: each; thp.rs: test"),
        (
            "fn f(mm: &Mm) { let Some(node) = mm.cache.find() else { return }; node.thp.test(); }",
            "cache.rs: find; thp.rs: test",
        ),
        ("fn f(c: &C) -> R { crate::a::Row::of(c)?.test(); }", "row.rs: of, test"),
        (
            "fn f(e: Entry) { match e { Entry::Huge(x) => x.test(), Entry::Empty { of } => of.find() } } use crate::a::Entry;",
            "cache.rs: find; thp.rs: test",
        ),
        ("fn f(mm: &Mm) { assert!(mm.cache.find().is_some(), \"{}\", 1); }", "cache.rs: find"),
        ("fn f(shrinker: &dyn crate::shrink::Shrink) { shrinker.shrink() }", "shrink.rs: Shrink, shrink"),
        ("fn f(thp: &crate::a::Thp) { thp.shrink() }", ""),
        ("type Rows = Vec<crate::a::Row>; fn f(rows: &Rows) { rows[1].test(); rows.len(); }", "row.rs: test"),
    ] {
        assert_eq!(ties_of_user(text), expected, "{text}");
    }
}

#[test]
fn a_name_that_one_type_has_is_taken_for_that_type() {
    for (text, expected) in [
        ("fn f() { unknown().only_here(); }", "thp.rs: only_here"),
        // Two types have the first, std the second, a trait the third; the fourth is called on a type from outside.
        ("fn f() { unknown().test(); unknown().find(); unknown().shrink(); }", ""),
        ("fn f(path: &std::path::Path) { path.only_here(); 1.only_here(); }", ""),
    ] {
        assert_eq!(ties_of_user(text), expected, "{text}");
    }
    let files = [
        ("crates/mm/src/a.rs", "pub struct A; impl A { pub fn frames(&self) {} pub fn blocks(&self) {} }"),
        ("crates/mm/src/b.rs", "fn f() { order().frames(); order().blocks(); }"),
        ("crates/units/src/order.rs", "pub struct Order; impl Order { pub fn frames(self) {} }"),
    ];
    let sources = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
    let crates = of_crates(&sources).expect("they parse");
    assert_eq!(crates["mm"].ties, [("b.rs".to_owned(), "a.rs".to_owned(), "blocks".to_owned())].into());
}

#[test]
fn calls_on_types_of_another_crate_are_no_ties_and_what_its_lists_hold_ties() {
    let below = "pub struct Memory; pub struct PerNode<T>(Vec<T>); \
         impl Memory { pub fn wake(&mut self) {} pub fn zones(&self) -> &[Zone] {} pub fn mark(&mut self) {} } \
         pub struct Zone; impl Zone { pub fn sleep(&self) {} } \
         impl<T> PerNode<T> { pub fn values(&self) -> &[T] {} pub fn place(&self) -> usize {} }";
    let of_user = |text: &str| {
        let user = format!("use memory::Memory; use crate::Mm; {text}");
        let files = [
            ("crates/memory/src/alloc.rs", below),
            (
                "crates/mm/src/lib.rs",
                "use memory::{Memory, PerNode}; pub struct Mm { memory: Memory, kswapd: PerNode<kswapd::Kswapd> }",
            ),
            (
                "crates/mm/src/kswapd.rs",
                "pub struct Kswapd; impl Kswapd { pub fn wake(&mut self) {} pub fn sleep(&self) {} pub fn mark(&self) {} }",
            ),
            ("crates/mm/src/user.rs", &user),
        ];
        let sources = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let crates = of_crates(&sources).expect("they parse");
        let ties: Vec<String> = crates["mm"].ties.iter().map(|(_, to, name)| format!("{to}: {name}")).collect();
        ties.join(", ")
    };
    for text in [
        "impl Mm { fn f(&mut self) { self.memory.wake(); self.memory.mark(); } }",
        "impl Mm { fn f(&self) { for zone in self.memory.zones() { zone.sleep(); } self.memory.zones()[0].sleep(); } }",
        "fn f(memory: &mut Memory) { memory.wake(); memory::wake(); Memory::wake(memory); }",
        "impl Mm { fn f(&self) { self.kswapd.place(); unknown().mark(); } }",
    ] {
        assert_eq!(of_user(text), "", "{text}");
    }
    for text in [
        "impl Mm { fn f(&mut self, node: u8) { self.kswapd[node].wake(); } }",
        "impl Mm { fn f(&self) { self.kswapd.values().iter().for_each(|kswapd| kswapd.wake()); } }",
        "fn f(mm: &Mm) { for kswapd in mm.kswapd.values() { kswapd.wake(); } }",
    ] {
        assert_eq!(of_user(text), "kswapd.rs: wake", "{text}");
    }
}
