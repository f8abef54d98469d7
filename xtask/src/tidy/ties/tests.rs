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
