use memory::cost::{HostPages, TlbEntries};
use units::Bytes;

use super::*;
use crate::{machine::Machine, source::Source};

const GOOD: &str = r#"about = "a test"
[[node]]
id = 0
memory = "512MiB"
cpus = "0"
distance = [10, 21]
[[node]]
id = 1
memory = "64MiB"
cpus = "1"
distance = [21, 10]
[latency]
load = { ns = [[96, 146.5], [146.5, 90]], source = "somebody's matrix" }
line = { ns = [[6.25, 11], [11, 6.25]], source = "assumed: half of it" }
cache = { size = "20MiB", ns = 21.2, source = "a paper" }
tlb = { base = "6MiB", huge = "2GiB", ns = 30, source = "assumed: as others" }
"#;

fn read(text: &str) -> Result<Machine, UsageError> {
    Machine::from_source(&Source::from_text("machines/x.toml", text), &[])
}

#[test]
fn figures_are_read_and_read_back() {
    let machine = read(GOOD).unwrap();
    let latency = machine.latency.clone().unwrap();
    assert_eq!(latency.load.ps, [[Picos(96_000), Picos(146_500)], [Picos(146_500), Picos(90_000)]]);
    assert_eq!(latency.line.as_ref().unwrap().ps[0], [Picos(6_250), Picos(11_000)]);
    assert_eq!(latency.cache.as_ref().unwrap().size, Bytes::mib(20));
    assert_eq!(latency.tlb.as_ref().unwrap().huge, Bytes::gib(2));
    assert_eq!(latency.load.source, "somebody's matrix");
    assert_eq!(
        latency.summary(),
        "a load from memory takes 90 to 96 ns, from another node 146.5 ns; 2 of 4 figures of [latency] are assumed"
    );
    assert_eq!(read(&machine.to_toml()).unwrap(), machine, "{}", machine.to_toml());
    let figures = latency.figures();
    assert_eq!(figures.load, latency.load.ps);
    assert_eq!(figures.cache.unwrap().load, Picos(21_200));
}

#[test]
fn a_machine_without_them_is_flat() {
    let text = GOOD.split("[latency]").next().unwrap();
    let machine = read(text).unwrap();
    assert_eq!(machine.latency, None);
    assert!(!machine.to_toml().contains("latency"));
    let config = crate::simulated::config(&machine, rules::variant::named("v6.1"), Bytes::mib(64), 1).unwrap();
    assert!(config.latency.is_flat());
}

/// The good file with walks in the place of what its TLB reaches.
fn walking() -> String {
    let tlb = GOOD.lines().find(|line| line.starts_with("tlb")).unwrap();
    let walks = r#"private = { size = "256KiB", ns = 4, source = "a paper" }
tlbs = { first = [64, 32], second = [1024, 768], ns = 2.5, source = "a manual" }
walk_cache = { entries = [32, 4, 2], source = "assumed: as others" }
host = { pages = "2MiB", source = "assumed: as QEMU asks for it" }
links = { mb_per_s = [[0, 19200], [12800, 0]], source = "a data sheet" }
sharing = { core_percent = 160, uneven_percent = 30, source = "assumed: as others" }"#;
    GOOD.replace(tlb, walks)
}

#[test]
fn walks_and_links_are_read_and_read_back() {
    let machine = read(&walking()).unwrap();
    assert_eq!(read(&machine.to_toml()).unwrap(), machine, "{}", machine.to_toml());
    let latency = machine.latency.unwrap();
    assert!(latency.summary().ends_with("4 of 9 figures of [latency] are assumed"), "{}", latency.summary());
    let figures = latency.figures();
    let walk = figures.walk.unwrap();
    assert_eq!((walk.first, walk.second.huge), (TlbEntries { base: 64, huge: 32 }, 768));
    assert_eq!((walk.second_hit, walk.skips, walk.host), (Picos(2_500), [32, 4, 2], Some(HostPages::Huge)));
    assert_eq!(walk.private.map(|cache| cache.load), Some(Picos(4_000)));
    assert_eq!(figures.sharing.map(|sharing| (sharing.core_percent, sharing.uneven_percent)), Some((160, Some(30))));
    let equal = read(&walking().replace("uneven_percent = 30, ", "")).unwrap();
    assert_eq!(read(&equal.to_toml()).unwrap(), equal);
    assert_eq!(equal.latency.unwrap().figures().sharing.unwrap().uneven_percent, None);
    assert_eq!(figures.links, [[Picos(0), Picos(213_334)], [Picos(320_000), Picos(0)]]);
}

#[test]
fn every_mistake_about_walks_is_one_message() {
    let cases: &[(&str, &str, &str)] = &[
        (
            "tlbs = {",
            "tlb = { base = \"6MiB\", huge = \"2GiB\", ns = 30, source = \"x\" }\ntlbs = {",
            "17: latency.tlb: a machine gives what its TLB reaches and a miss takes, or entries in tlbs: not both",
        ),
        (
            "tlbs = { first = [64, 32], second = [1024, 768], ns = 2.5, source = \"a manual\" }\n",
            "",
            "16: latency.private: is for walks of page tables, which need the figure tlbs",
        ),
        ("[64, 32]", "[64]", "17: latency.tlbs.first: expected 2 numbers of entries, from 0 to 16777216 each"),
        ("[32, 4, 2]", "[32, 4, 99999999]", "18: latency.walk_cache.entries: expected 3 numbers of entries, from 0 to"),
        (
            "\"2MiB\", source = \"assumed: as QEMU",
            "\"2MB\", source = \"assumed: as QEMU",
            "19: latency.host.pages: unknown page size \"2MB\"; did you mean \"2MiB\"? (valid page sizes: 4KiB, 2MiB, as-guest)",
        ),
        (
            "[[0, 19200], [12800, 0]]",
            "[[0, 19200]]",
            "20: latency.links.mb_per_s: expected 2 lists of 2 numbers: by the node of the CPU, by that of the memory; 0 is no",
        ),
        (
            "core_percent = 160",
            "core_percent = 99",
            "21: latency.sharing.core_percent: expected 100 to 400 (percent of the time alone), found 99",
        ),
        (
            "uneven_percent = 30",
            "uneven_percent = 51",
            "21: latency.sharing.uneven_percent: expected 1 to 50 (percent of the mean), found 51",
        ),
        (
            "19200",
            "99999999",
            "20: latency.links.mb_per_s: expected 0 (no limit) or 1 to 10000000 MB/s, found 99999999",
        ),
    ];
    for (from, to, expected) in cases {
        assert!(walking().contains(from), "{from}");
        let text = walking().replacen(from, to, 1);
        let error = read(&text).expect_err(&text).to_string();
        assert!(error.starts_with(&format!("machines/x.toml:{expected}")), "{from} -> {to}: {error}");
    }
}

/// What to replace in the good file, by what, and the message without its file name.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "load =",
        "laod =",
        "13: latency: unknown figure \"laod\"; did you mean \"load\"? \
         (valid figures: load, line, handover, cache, tlb, private, tlbs, walk_cache, host, links, sharing)",
    ),
    (
        "load = { ns = [[96, 146.5], [146.5, 90]], source = \"somebody's matrix\" }\n",
        "",
        "12: latency.load: missing; expected a figure such as { ns = [[90, 140], [140, 90]], source = \"...\" }",
    ),
    (
        "[[96, 146.5], [146.5, 90]]",
        "[[96, 146.5]]",
        "13: latency.load.ns: expected 2 lists of 2 numbers: by the node of the CPU, by that of the memory",
    ),
    (
        "[[96,",
        "[[\"far\",",
        "13: latency.load.ns: expected a number above 0 with at most 3 decimals, at most a millisecond, found far",
    ),
    (
        "[[96,",
        "[[0,",
        "13: latency.load.ns: expected a number above 0 with at most 3 decimals, at most a millisecond, found 0",
    ),
    (
        "[6.25, 11]",
        "6.25",
        "14: latency.line.ns: expected a list, each item a string, number or boolean, found the float 6.25",
    ),
    (", source = \"a paper\"", "", "15: latency.cache.source: missing; expected a string"),
    ("\"20MiB\"", "20", "15: latency.cache.size: expected a size such as \"512MiB\", found the integer 20"),
    (
        "ns = 30",
        "ms = 30",
        "16: latency.tlb: unknown key \"ms\"; did you mean \"ns\"? (valid keys: base, huge, ns, source)",
    ),
    ("[latency]", "[latncy]", "12: unknown key \"latncy\"; did you mean \"latency\"?"),
];

#[test]
fn every_mistake_is_one_message() {
    for (from, to, expected) in MISTAKES {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        let error = read(&text).expect_err(&text).to_string();
        let expected = format!("machines/x.toml:{expected}");
        assert!(error.starts_with(&expected), "{from} -> {to}: {error}");
    }
}
