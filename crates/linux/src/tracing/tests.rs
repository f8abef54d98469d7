//! Texts as kernels print them, and damaged ones.

use units::{ExtfragKind, Order};

use super::*;
use crate::procfs::fuzz::{Xorshift, damage};

fn text_of_types(types: &str) -> String {
    format!("Page block order: 9\nPages per block:  512\n\nNumber of blocks type {types}\nNode 0, zone DMA 1 2 3 4\n")
}

/// A kernel before 4.4.
fn old() -> Numbers {
    Numbers::of(&text_of_types("Unmovable Reclaimable Movable Reserve"))
}

#[test]
fn numbers_of_mobilities_are_those_of_the_kernel() {
    let mobilities = [0, 1, 2, 3].map(|number| old().mobility(number));
    let (unmovable, movable) = (Some(Mobility::Unmovable), Some(Mobility::Movable));
    assert_eq!(mobilities, [unmovable, Some(Mobility::Reclaimable), movable, None]);
    assert_eq!(old().number(Mobility::Movable), Some(2));
    let new = Numbers::of(&text_of_types("Unmovable Movable Reclaimable HighAtomic"));
    assert_eq!(new.number(Mobility::Movable), Some(1));
    assert_eq!(Numbers::of("").number(Mobility::Reclaimable), Some(2), "where nobody may read it");
}

fn kind(types: [Mobility; 2], orders: [u8; 2], change_ownership: bool) -> ExtfragKind {
    let [alloc_type, fallback_type] = types;
    let [alloc_order, fallback_order] = orders.map(Order);
    ExtfragKind { alloc_type, fallback_type, alloc_order, fallback_order, change_ownership }
}

fn came(counts: &ExtfragCounts) -> Vec<(ExtfragKind, u64)> {
    counts.iter().filter(|(_, count)| *count > 0).collect()
}

// ---- Histograms

/// As 6.1 prints them, of two pairs of types.
const HISTOGRAMS: &str = include_str!("histograms.txt");

#[test]
fn histograms_are_added_up_by_the_types_of_their_filters() {
    use Mobility::{Movable, Reclaimable, Unmovable};
    let read = histogram::parse(HISTOGRAMS, &Numbers::default());
    let expected = [
        (kind([Unmovable, Movable], [0, 3], false), 17),
        (kind([Unmovable, Movable], [3, 10], true), 1),
        (kind([Movable, Reclaimable], [0, 8], true), 80_045),
    ];
    assert_eq!((came(&read.counts), read.lost), (expected.to_vec(), 2));
    // Before 4.4 the same numbers were other types.
    let read = histogram::parse(HISTOGRAMS, &old());
    assert_eq!(came(&read.counts)[2], (kind([Reclaimable, Movable], [0, 8], true), 80_045));
    assert!(histogram::is_any(HISTOGRAMS) && !histogram::is_any("# event histogram\n#\n"));
}

#[test]
fn each_pair_of_types_has_a_histogram() {
    let triggers = histogram::triggers(&old());
    assert_eq!(triggers.len(), 6);
    let keys = "hist:keys=alloc_order,fallback_order,change_ownership:size=256 if ";
    assert_eq!(triggers[0], format!("{keys}alloc_migratetype==0 && fallback_migratetype==2"));
    // What the kernel says of a trigger has its filter: it is read back as the pair that it is of.
    for trigger in triggers {
        let entry = "{ alloc_order: 1, fallback_order: 2, change_ownership: 0 } hitcount: 5";
        let read = histogram::parse(&format!("# trigger info: {trigger} [active]\n{entry}\n"), &old());
        assert_eq!(came(&read.counts).len(), 1, "{trigger}");
    }
}

// ---- Lines

/// As 4.20 and 6.1 print them, with what else a buffer may hold.
const LINES: &str = include_str!("lines.txt");

#[test]
fn lines_are_read_by_the_names_of_their_fields() {
    use Mobility::{Movable, Reclaimable, Unmovable};
    let of = |numbers: &Numbers| {
        let mut counts = ExtfragCounts::default();
        lines::count(LINES, numbers, &mut counts);
        came(&counts)
    };
    let expected = [(kind([Movable, Unmovable], [0, 3], false), 1), (kind([Reclaimable, Movable], [2, 10], true), 1)];
    assert_eq!(of(&Numbers::default()), expected);
    let old_names =
        [(kind([Movable, Reclaimable], [2, 10], true), 1), (kind([Reclaimable, Unmovable], [0, 3], false), 1)];
    assert_eq!(of(&old()), old_names);
}

#[test]
fn every_kind_of_line_is_counted_once() {
    let numbers = Numbers::default();
    for (kind, _) in ExtfragCounts::default().iter() {
        let [asked, found] = [kind.alloc_type, kind.fallback_type].map(|mobility| numbers.number(mobility).unwrap());
        // In another order than any kernel's.
        let line = format!(
            "task-1 [000] 1.000001: mm_page_alloc_extfrag: change_ownership={} fallback_migratetype={found} \
             alloc_migratetype={asked} fallback_order={} alloc_order={}\n",
            u8::from(kind.change_ownership),
            kind.fallback_order.0,
            kind.alloc_order.0,
        );
        let mut counts = ExtfragCounts::default();
        lines::count(&line, &numbers, &mut counts);
        assert_eq!(came(&counts), [(kind, 1)], "{line}");
    }
}

/// `per_cpu/cpu0/stats` of 6.1.
const STATS: &str = "\
entries: 0
overrun: 12
commit overrun: 0
bytes: 0
oldest event ts:     0.000000
now ts:   124.471000
dropped events: 2
read events: 9041
";

#[test]
fn lost_events_are_overruns_and_drops() {
    assert_eq!(lines::lost(STATS), 14);
    let [earlier, later] = [5, 14].map(|lost| Fallbacks { lost, ..Fallbacks::default() });
    assert_eq!(later.since(&earlier).lost, 9);
}

// ---- Damage

#[test]
fn damaged_texts_are_read_as_far_as_they_go() {
    let mut random = Xorshift::new();
    let numbers = Numbers::default();
    for _ in 0..3_000 {
        let mut counts = ExtfragCounts::default();
        lines::count(&damage(LINES, &mut random), &numbers, &mut counts);
        let lines: u64 = came(&counts).iter().map(|(_, count)| count).sum();
        // Damage doubles a text at most three times.
        assert!(lines <= 3 * 8, "{counts:?}");
        let read = histogram::parse(&damage(HISTOGRAMS, &mut random), &numbers);
        assert!(came(&read.counts).len() <= 3 * 8);
        lines::lost(&damage(STATS, &mut random));
        let types = Numbers::of(&damage(&text_of_types("Unmovable Movable Reclaimable HighAtomic"), &mut random));
        assert!(histogram::triggers(&types).len() <= 6);
    }
}

// ---- A directory in the place of a trace instance

#[test]
fn an_instance_is_emptied_and_what_it_lost_is_known() {
    let instance = tempfile::tempdir().unwrap();
    for (cpu, text) in [("cpu0", LINES), ("cpu1", "")] {
        let cpu = instance.path().join("per_cpu").join(cpu);
        fs::create_dir_all(&cpu).unwrap();
        fs::write(cpu.join("trace_pipe"), text).unwrap();
        fs::write(cpu.join("stats"), STATS).unwrap();
    }
    let mut reader = Reader::new(Watch::Instance(instance.path().to_owned()));
    reader.numbers = Numbers::default();
    let first = reader.read().unwrap();
    assert_eq!((came(&first.counts).len(), first.lost), (2, 28));
    // A real pipe would be empty now; a file has the same lines again.
    let both = reader.read().unwrap();
    assert_eq!(both.since(&first).counts, first.counts);
    let gone = Reader::new(Watch::Instance(instance.path().join("gone"))).read().unwrap_err();
    assert!(gone.contains("gone: No such file or directory"), "{gone}");
    assert_eq!(Reader::new(Watch::Nobody("why".to_owned())).read(), Err("why".to_owned()));
}
