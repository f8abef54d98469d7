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

fn read(text: &str) -> Result<Machine, SourceError> {
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
    let config = crate::simulated::config(&machine, mm::variant::named("v6.1"), Bytes::mib(64), 1).unwrap();
    assert!(config.latency.is_flat());
}

/// What to replace in the good file, by what, and the message without its file name.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "load =",
        "laod =",
        "13: latency: unknown figure \"laod\"; did you mean \"load\"? (valid figures: load, line, cache, tlb)",
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
