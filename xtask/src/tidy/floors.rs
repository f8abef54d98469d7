//! The floors of `mm`: house style, 1.11. A file may use its own floor and those below. Ties that run upward stand in a list, one
//! line for each pair of files, and the list may only get shorter.
//!
//! Floors 0 to 2 are crates, `rules` and `memory`: the compiler keeps their arrows.

use std::collections::BTreeSet;

use super::{
    Finding,
    ties::{Files, Tie},
};

/// The ties that are known, as `FROM -> TO: NAME, NAME`.
pub(super) const LIST: &str = "xtask/upward-ties.txt";
/// The crate whose files have floors.
pub(super) const CRATE: &str = "mm";

/// A room: files and folders whose files may use each other.
type Room = &'static [&'static str];

/// The floors from 3 on, the lowest first, and the rooms of each, the lowest first. A file may use its own room, the rooms before
/// it on its floor, and all floors below. To order a floor, make its room several: `&[&["folio/"], &["swap/", "swap.rs"]]`. The
/// longest name that fits a file decides.
#[rustfmt::skip]
const FLOORS: [&[Room]; 5] = [
    &[&["folio.rs", "folio/"], &["swap.rs", "swap/"], &["file.rs", "file/"], &["space.rs", "space/"]],
    &[&[
        "compact.rs", "compact/", "migrate.rs", "migrate/", "reclaim.rs", "reclaim/", "slow.rs", "slow/",
    ]],
    &[&[
        "fault.rs", "fault/", "file/page_cache/fault.rs", "migrate/to_node.rs", "numa.rs", "numa/", "swap/fault.rs", "thp.rs",
        "thp/",
    ]],
    &[&["guest.rs", "guest/"]],
    &[&["whole.rs", "whole/"]],
];

/// Compares the ties that run upward with the list.
pub(super) fn check(files: &Files, list: &str) -> (Vec<Finding>, usize) {
    let at = |file: &str| format!("crates/{CRATE}/src/{file}");
    let homeless = files.names.iter().filter(|file| place_of(&FLOORS, file).is_none());
    let mut findings: Vec<Finding> = homeless
        .map(|file| Finding::new(&at(file), 1, "stands on no floor: FLOORS in xtask/src/tidy/floors.rs"))
        .collect();
    let found = upward(&FLOORS, files);
    let known = known(list);
    for (from, to, name) in found.difference(&known) {
        let message = format!("uses `{name}` of {to}, which is higher up (house style, 1.11), and {LIST} lacks it");
        findings.push(Finding::new(&at(from), 1, message));
    }
    for (from, to, name) in known.difference(&found) {
        findings.push(Finding::new(LIST, 1, format!("{from} does not use `{name}` of {to} any more: take it out")));
    }
    (findings, found.len())
}

fn upward(floors: &[&[Room]], files: &Files) -> BTreeSet<Tie> {
    let goes_up = |(from, to, _): &&Tie| place_of(floors, from) < place_of(floors, to);
    files.ties.iter().filter(goes_up).cloned().collect()
}

/// Floor and room of a file.
fn place_of(floors: &[&[Room]], file: &str) -> Option<(usize, usize)> {
    let fits = |name: &&str| file == *name || (name.ends_with('/') && file.starts_with(*name));
    let mut best: Option<(usize, (usize, usize))> = None;
    for (floor, rooms) in floors.iter().enumerate() {
        for (room, names) in rooms.iter().enumerate() {
            let longest = names.iter().copied().filter(fits).map(str::len).max();
            best = best.max(longest.map(|length| (length, (floor, room))));
        }
    }
    best.map(|(_, place)| place)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The files that these ties name.
    fn files(ties: &[(&str, &str, &str)]) -> Files {
        let ties = ties.iter().map(|(from, to, name)| ((*from).to_owned(), (*to).to_owned(), (*name).to_owned()));
        let ties: BTreeSet<Tie> = ties.collect();
        let names = ties.iter().flat_map(|(from, to, _)| [from.clone(), to.clone()]).collect();
        Files { names, ties }
    }

    #[test]
    fn the_list_may_only_get_shorter() {
        let files = files(&[
            ("folio/lru.rs", "space/rmap.rs", "Rmap"),
            ("space/rmap.rs", "whole/daemon.rs", "Daemon"),
            ("whole/daemon.rs", "space/rmap.rs", "Rmap"),
            ("whole/daemon.rs", "odd.rs", "Odd"),
        ]);
        let (findings, count) = check(&files, "space/rmap.rs -> whole/daemon.rs: Daemon, Row\n");
        let messages: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(count, 2);
        let [no_floor, new, gone] = messages.as_slice() else { panic!("{messages:?}") };
        assert!(no_floor.starts_with("crates/mm/src/odd.rs:1: stands on no floor"), "{no_floor}");
        assert!(new.starts_with("crates/mm/src/folio/lru.rs:1: uses `Rmap` of space/rmap.rs"), "{new}");
        assert!(gone.contains("space/rmap.rs does not use `Row` of whole/daemon.rs any more"), "{gone}");
    }

    #[test]
    fn the_longest_name_decides_the_floor() {
        let floor_of = |file| place_of(&FLOORS, file).map(|(floor, _)| floor);
        assert_eq!(
            [floor_of("swap/slots.rs"), floor_of("slow/fixed.rs"), floor_of("swap/fault.rs")],
            [Some(0), Some(1), Some(2)]
        );
        assert_eq!(floor_of("new.rs"), None);
    }

    #[test]
    fn rooms_of_a_floor_have_an_order() {
        let floors: [&[Room]; 2] = [&[&["zone.rs"]], &[&["folio/", "lru.rs"], &["swap/"], &["file/", "file.rs"]]];
        let files = files(&[
            ("folio/rmap.rs", "lru.rs", "Lru"),
            ("folio/rmap.rs", "swap/slots.rs", "Slot"),
            ("lru.rs", "folio/rmap.rs", "Rmap"),
            ("swap/slots.rs", "lru.rs", "Lru"),
            ("swap/slots.rs", "file/inode.rs", "Inode"),
            ("file.rs", "swap/slots.rs", "Slot"),
            ("file.rs", "zone.rs", "Zone"),
            ("zone.rs", "lru.rs", "Lru"),
        ]);
        let found = upward(&floors, &files);
        let found: Vec<(&str, &str)> = found.iter().map(|(from, to, _)| (from.as_str(), to.as_str())).collect();
        let expected = [("folio/rmap.rs", "swap/slots.rs"), ("swap/slots.rs", "file/inode.rs"), ("zone.rs", "lru.rs")];
        assert_eq!(found, expected);
    }
}
