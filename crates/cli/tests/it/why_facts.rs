//! Sentences of `why` against their facts: each number is one of a fact, or a sum or count of facts of a kind.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::{room::Room, words};

/// Memory is filled and in pieces, so that faults of huge pages compact and reclaim.
const FULL: [&str; 10] =
    ["run", "thpscale", "--target", "sim", "--machine", "two-node-2g", "--variant", "v4.1-rc2", "--set", "threads=4"];

/// The numbers and spans that sentences of an operation may have.
#[derive(Default)]
struct Allowed {
    numbers: BTreeSet<u64>,
    spans: BTreeSet<String>,
    instants: BTreeSet<String>,
}

/// An instant as texts print it.
fn instant(ps: u64) -> String {
    format!("{}.{:06}", ps / 1_000_000_000_000, ps / 1_000_000 % 1_000_000)
}

/// A span as texts print it.
fn span(ps: u64) -> String {
    let (unit, of) = match ps {
        1_000_000_000_000.. => ("s", 1e12),
        1_000_000_000.. => ("ms", 1e9),
        1_000_000.. => ("us", 1e6),
        _ => ("ns", 1e3),
    };
    let value = ps as f64 / of;
    let digits = [10.0, 100.0].iter().filter(|bound| value < **bound).count() + 1;
    format!("{value:.digits$} {unit}")
}

/// Adds all numbers of a value, also those in names such as `task 7`.
fn add_all(numbers: &mut BTreeSet<u64>, value: &Value) {
    match value {
        Value::Number(number) => drop(number.as_u64().map(|number| numbers.insert(number))),
        Value::String(text) => {
            let parts = text.split(|letter: char| !letter.is_ascii_digit());
            numbers.extend(parts.filter_map(|part| part.parse::<u64>().ok()));
        }
        Value::Array(all) => all.iter().for_each(|value| add_all(numbers, value)),
        Value::Object(all) => all.values().for_each(|value| add_all(numbers, value)),
        Value::Null | Value::Bool(_) => {}
    }
}

fn number(value: &Value, of: &str) -> Option<u64> {
    value.get(of).and_then(Value::as_u64)
}

/// The kind of a fact: its name, and all that is no number of its own.
fn kind(fact: &Value) -> String {
    let fields = fact.as_object().expect("a fact is an object").iter();
    let summed = [
        "free",
        "migrate_scanned",
        "free_scanned",
        "moved",
        "failed",
        "scanned",
        "reclaimed",
        "priority",
        "pages",
        "times",
        "whole",
        "took",
        "waits",
        "reads",
        "writes",
        "most",
        "until",
        "since",
        "at",
        "holder",
        "by",
        "cpus",
        "done",
        "joins",
        "has",
        "limit",
        "shift",
        "considered",
        "order",
    ];
    fields
        .filter(|(name, _)| !summed.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}={value} "))
        .collect()
}

impl Allowed {
    fn of(facts: &[Value]) -> Self {
        let mut allowed = Self::default();
        // Sums of each number, the count, and the time of each kind.
        let mut sums: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        let (mut run, mut is_compacting, mut reclaim, mut wait) = ((0, false), false, None, String::new());
        let mut tries = BTreeSet::new();
        for told in facts {
            let (at, fact) = (told["at"].as_u64().expect("an instant"), &told["fact"]);
            add_all(&mut allowed.numbers, told);
            allowed.instants.insert(instant(at));
            allowed.numbers.extend(number(fact, "shift").map(|shift| 1 << shift));
            let mut its = kind(fact);
            let mut time = ["took", "waits"].iter().filter_map(|of| number(fact, of)).sum::<u64>();
            match fact["fact"].as_str().expect("a name") {
                "passed_over" => {
                    allowed.numbers.insert(number(&fact["room"], "needs").expect("a number") + 1);
                    tries.insert(at);
                }
                "wakeup_kswapd" => its += &told["by"].to_string(),
                "shootdown" => its += &format!("{is_compacting} {}", reclaim.is_some()),
                "compaction_begin" => {
                    run = (at, fact["sync"].as_bool().expect("a bool"));
                    is_compacting = true;
                }
                "compaction_end" => {
                    its += if run.1 { "sync" } else { "async" };
                    time = at - run.0;
                    is_compacting = false;
                }
                "reclaim_begin" => reclaim = Some(at),
                "reclaim_end" => time = at - reclaim.take().unwrap_or(at),
                "spin_wait" => time = number(fact, "until").expect("an instant") - at,
                "device_wait" => wait.clone_from(&its),
                "throttled" => {
                    its += fact["by"].as_str().expect("a reason");
                    wait.clone_from(&its);
                }
                "waited" => {
                    let since = number(fact, "since").expect("an instant");
                    allowed.instants.insert(instant(since));
                    time = at - since;
                    if ["swap", "disk", "throttle"].contains(&fact["cause"].as_str().expect("a cause")) {
                        // The wait was counted where it began.
                        *sums.entry(wait.clone()).or_default().entry("time".to_owned()).or_default() += time;
                    }
                }
                _ => {}
            }
            let sum = sums.entry(its).or_default();
            for (name, value) in fact.as_object().expect("an object") {
                if let Some(number) = value.as_u64() {
                    *sum.entry(name.clone()).or_default() += number;
                }
            }
            *sum.entry("count".to_owned()).or_default() += 1;
            *sum.entry("time".to_owned()).or_default() += time;
        }
        for sum in sums.values() {
            allowed.spans.insert(span(sum["time"]));
            allowed.numbers.extend(sum.values());
        }
        allowed.numbers.extend(0..=tries.len() as u64);
        allowed
    }

    /// The first thing in a sentence that no fact has.
    fn stranger(&self, sentence: &str) -> Option<String> {
        let of_words: Vec<&str> = sentence.split_whitespace().collect();
        let bare = |word: &str| word.trim_matches([',', ';', ':', '(', ')', '.']).to_owned();
        let mut at = 0;
        while at < of_words.len() {
            let (word, next) = (bare(of_words[at]), of_words.get(at + 1).map_or(String::new(), |next| bare(next)));
            at += 1;
            let text = word.strip_prefix("order-").unwrap_or(&word);
            if !text.starts_with(|letter: char| letter.is_ascii_digit()) || next == "KiB" {
                continue;
            }
            let is_known = match (text.split_once('.'), next.as_str()) {
                (Some((_, digits)), "s") if digits.len() == 6 => self.instants.contains(text),
                (Some(_), "s" | "ms" | "us" | "ns") => self.spans.contains(&format!("{text} {next}")),
                _ => text.replace(',', "").parse().is_ok_and(|number: u64| self.numbers.contains(&number)),
            };
            if !is_known {
                return Some(format!("{text} {next}"));
            }
        }
        None
    }
}

/// The sentences of a block with their instants.
fn sentences(block: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for line in block.lines().filter(|line| line.is_ascii()) {
        let (head, rest) = line.split_at(line.len().min(15));
        match head.trim().strip_suffix(" s") {
            Some(at) if line.starts_with("   ") && at.parse::<f64>().is_ok() => {
                all.push((at.to_owned(), rest.to_owned()));
            }
            _ if head.trim().is_empty() && !rest.is_empty() => {
                if let Some((_, text)) = all.last_mut() {
                    *text += &format!(" {rest}");
                }
            }
            _ => {}
        }
    }
    all
}

/// Asks about operations, and holds every sentence against the facts; returns how many there were, and the text.
fn check(room: &Room, question: &[&str]) -> (usize, String) {
    let text = room.run(question).expect(0).stdout;
    let json = room.run(&words(&[question, &["--format", "json"]])).expect(0).stdout;
    let explained: Vec<Value> = serde_json::from_str(&json).expect("an array");
    let mut checked = 0;
    for (block, one) in text.split("\n\n").zip(&explained) {
        let parts: u64 = one["parts"].as_array().unwrap().iter().map(|part| part[1].as_u64().unwrap()).sum();
        assert_eq!(Some(parts), one["time_ps"].as_u64(), "{block}");
        let allowed = Allowed::of(one["facts"].as_array().expect("facts"));
        assert_eq!(allowed.stranger("scans 987,654,321 pages").as_deref(), Some("987,654,321 pages"));
        for (at, sentence) in sentences(block) {
            assert!(allowed.instants.contains(&at), "no fact at {at} s: {block}");
            assert_eq!(allowed.stranger(&sentence), None, "in {sentence:?} of {block}");
            checked += 1;
        }
    }
    (checked, text)
}

#[test]
fn every_number_of_a_sentence_is_one_of_the_facts() {
    let room = Room::new();
    room.run(&words(&[&FULL, &["-o", "result"]])).expect(0);
    let (checked, _) = check(&room, &["why", "result", "--slowest", "60"]);
    assert!(checked > 100, "{checked}");
}

#[test]
fn work_of_a_kernel_thread_is_explained_where_it_is_named() {
    let room = Room::new();
    room.run(&words(&[&FULL, &["-o", "result"]])).expect(0);
    let (checked, text) = check(&room, &["why", "result", "--slowest", "5", "--what", "kswapd0"]);
    assert!(text.starts_with("1. kswapd0 at "), "{text}");
    assert!(checked >= 5 && text.contains("passes"), "{text}");
    let tasks = room.run(&["why", "result", "--slowest", "9"]).expect(0).stdout;
    assert!(!tasks.contains("kswapd0 at "), "threads only where they are named: {tasks}");
}

#[test]
fn operations_of_guests_and_of_their_host_are_told_apart() {
    let room = Room::new();
    let run = ["run", "two-guests", "--machine", "one-node-512m", "--variant", "v6.1", "--set", "reporting=off"];
    let sets = ["--set", "memory=320MiB", "--set", "rounds=1", "--set", "turn=1", "-o", "result"];
    room.run(&words(&[&run, &sets])).expect(0);
    let (checked, text) = check(&room, &["why", "result", "--slowest", "4"]);
    assert!(checked > 4 && text.contains(" s  host: direct reclaim"), "{text}");
    let (_, text) = check(&room, &["why", "result", "--slowest", "2", "--what", "guest 1: khugepaged"]);
    assert!(text.starts_with("1. guest 1: khugepaged at "), "{text}");
}
