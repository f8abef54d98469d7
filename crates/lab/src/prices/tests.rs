//! Prices in machine files: read, written back, and every way in which one can be wrong.

use super::*;
use crate::machine::Machine;

const HEAD: &str = "about = ''\n[[node]]\nid = 0\nmemory = '1GiB'\ncpus = '0'\n[prices]\n";

fn machine(prices: &str) -> Result<Machine, String> {
    let source = Source::from_text("machines/x.toml", format!("{HEAD}{prices}\n"));
    Machine::from_source(&source, &[]).map_err(|error| error.to_string())
}

fn bad(prices: &str) -> String {
    machine(prices).expect_err(prices)
}

#[test]
fn every_operation_has_one_generic_price_with_a_source() {
    for work in Work::ALL {
        assert_eq!(generic().iter().filter(|price| price.work == *work).count(), 1, "{}", work.name());
    }
    assert!(generic().iter().all(|price| !price.source.is_empty() && price.takes > Picos(0)));
    let clear = generic().iter().find(|price| price.work == Work::ClearFrame).unwrap();
    // 4,096 bytes at 14.55 GB/s.
    assert_eq!(clear.takes, Picos(281_500));
    let (works, measured) =
        (Work::ALL.len(), generic().iter().filter(|price| !price.source.starts_with(ASSUMED)).count());
    assert!(measured > 0);
    let expected = format!("{} of {works} prices are assumed; 0 are the machine's, {works} generic", works - measured);
    assert_eq!(summary(&all(&[], None)), expected);
}

#[test]
fn an_instruction_takes_as_long_as_the_guest_says() {
    let [four, sixteen] = [4, 16].map(of_instructions);
    assert_eq!(four.iter().map(|price| price.work).collect::<Vec<_>>(), Work::ALL);
    let of = |work: Work| [&four, &sixteen].map(|prices| prices[work as usize].takes.0);
    // What was measured at 4 ns, and what was not.
    assert_eq!(of(Work::SystemCall), [1_205_800, 4 * 1_205_800]);
    let generic = generic().iter().find(|price| price.work == Work::WakeUp).unwrap().takes.0;
    assert_eq!(of(Work::WakeUp), [20 * generic, 80 * generic]);
}

#[test]
fn a_machines_own_prices_replace_generic_ones_and_survive_writing() {
    let text = "copy_frame = { ns = 512.25, source = \"memcpy, perf bench\" }\ntrap = { ps = 98_001, source = 'assumed: \"x\"' }";
    let machine = machine(text).unwrap();
    let used = all(&machine.prices, None);
    let of = |work: Work| used.iter().find(|price| price.work == work.name()).unwrap();
    assert_eq!((of(Work::CopyFrame).ps, of(Work::Trap).ps), (512_250, 98_001));
    assert_eq!((of(Work::CopyFrame).is_assumed(), of(Work::Trap).is_assumed()), (false, true));
    assert!(of(Work::ClearFrame).generic && !of(Work::Trap).generic);
    let generic_ones = Work::ALL.len() - 2;
    assert!(summary(&used).ends_with(&format!("; 2 are the machine's, {generic_ones} generic")), "{}", summary(&used));

    let written = machine.to_toml();
    assert!(written.contains("copy_frame = { ns = 512.25, source = \"memcpy, perf bench\" }\n"), "{written}");
    let again = Machine::from_source(&Source::from_text("machines/x.toml", written), &[]).unwrap();
    assert_eq!(again, machine);
}

#[test]
fn spreads_and_what_is_measured_besides_survive_writing() {
    let text = "trap = { ns = 210.4, low = 205, high = 230.9, source = 'measured: a' }\n[measured]\n\
                ipi = { ps = 1_500, low = 0, high = 1_501, source = 'measured: b' }";
    let machine = machine(text).unwrap();
    assert_eq!(machine.prices[0].range, Some(Range { low: Picos(205_000), high: Picos(230_900) }));
    let [ipi] = machine.measured.as_slice() else { panic!("{:?}", machine.measured) };
    assert_eq!((ipi.name.as_str(), ipi.takes), ("ipi", Picos(1_500)));
    let written = machine.to_toml();
    assert!(
        written.contains("trap = { ns = 210.4, low = 205, high = 230.9, source = \"measured: a\" }\n"),
        "{written}"
    );
    assert!(written.contains("\n[measured]\n"), "{written}");
    assert!(written.contains("ipi = { ns = 1.5, low = 0, high = 1.501, source = \"measured: b\" }\n"), "{written}");
    assert_eq!(Machine::from_source(&Source::from_text("machines/x.toml", written), &[]).unwrap(), machine);
    assert_eq!(prices(&machine.prices, None).of(Work::Trap), Picos(210_400), "the spread changes no price");
}

#[test]
fn prices_reach_the_simulator() {
    let dear = machine("clear_frame = { ps = 7, source = 'test' }").unwrap();
    let generic_price = Prices::new(|work| Picos(all(&[], None)[work as usize].ps));
    assert_eq!(prices(&[], None), generic_price);
    let expected = Prices::new(|work| match work {
        Work::ClearFrame => Picos(7),
        work => Picos(all(&[], None)[work as usize].ps),
    });
    assert_eq!(prices(&dear.prices, None), expected);
    assert_ne!(expected, generic_price);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, message) in [
        (
            "clear_fram = { ns = 1, source = 'x' }",
            "prices: unknown price \"clear_fram\"; did you mean \"clear_frame\"?",
        ),
        (
            "clear_frame = { ns = 1, sauce = 'x' }",
            "prices.clear_frame: unknown key \"sauce\"; did you mean \"source\"? (valid keys: ns, ps, low, high, source)",
        ),
        ("clear_frame = 281", &format!("prices.clear_frame: {FORM}")),
        ("clear_frame = { source = 'x' }", &format!("prices.clear_frame: {FORM}: either ns or ps")),
        ("clear_frame = { ns = 1, ps = 1, source = 'x' }", &format!("prices.clear_frame: {FORM}: either ns or ps")),
        ("clear_frame = { ns = 1 }", "prices.clear_frame.source: missing; expected a string"),
        ("trap = { ns = 2, low = 1, source = 'x' }", "prices.trap.high: missing; expected a string, number or boolean"),
        ("trap = { ns = 2, low = 3, high = 4, source = 'x' }", "prices.trap.ns: expected a price from low to high"),
        ("trap = { ps = 5, low = 3, high = 4, source = 'x' }", "prices.trap.ps: expected a price from low to high"),
        (
            "clear_frame = { ns = 1, source = ' ' }",
            "prices.clear_frame.source: expected who measured it and how, or \"assumed: \" and why, found nothing",
        ),
        (
            "clear_frame = { ns = 1, source = 'fault-storm on my laptop' }",
            "prices.clear_frame.source: expected a source other than fault-storm: no price comes from what it is compared with",
        ),
    ] {
        assert_eq!(bad(text), format!("machines/x.toml:7: {message}"), "{text}");
    }
    for number in ["-1", "1.2345", "1e3", "nan", "1_000_000_000.001", "true", "'fast'"] {
        let message = bad(&format!("trap = {{ ns = {number}, source = 'x' }}"));
        let expected =
            "machines/x.toml:7: prices.trap.ns: expected a number with at most 3 decimals, at most a second, found ";
        assert!(message.starts_with(expected), "{message}");
    }
    let message = bad("trap = { ps = 0.5, source = 'x' }");
    assert!(message.contains("prices.trap.ps: expected a whole number, at most a second, found 0.5"), "{message}");
}

#[test]
fn a_pace_is_for_generic_prices() {
    let pace = Pace { percent: 250, source: "a slow clock".to_owned() };
    let own = Price { work: Work::Trap, takes: Picos(7), range: None, source: "measured".to_owned() };
    let used = all(&[own], Some(&pace));
    assert_eq!(used[Work::Trap as usize].ps, 7);
    let system_call = &used[Work::SystemCall as usize];
    assert_eq!(system_call.ps * 2, 5 * all(&[], None)[Work::SystemCall as usize].ps);
    assert!(system_call.is_assumed() && system_call.source.contains("a slow clock"), "{system_call:?}");
    let read = |text: &str| {
        let text = format!("about = ''\n{text}\n[[node]]\nid = 0\nmemory = '1GiB'\ncpus = '0'\n");
        Machine::from_source(&Source::from_text("x.toml", text), &[])
    };
    assert_eq!(read("pace = { percent = 250, source = 'a slow clock' }").unwrap().pace, Some(pace));
    let error = read("pace = { percent = 5, source = 'x' }").unwrap_err().to_string();
    assert!(error.contains("pace.percent: expected 10 to 1000 (percent of generic prices), found 5"), "{error}");
    assert!(read("pace = 250").unwrap_err().to_string().contains("expected such as { percent = 200"), "a table");
}

#[test]
fn prices_are_fitted_measured_or_assumed() {
    let of = |source: &str, generic| Used { work: "clear_frame".into(), ps: 1, source: source.into(), generic };
    let used = [
        of("fitted: a third of Min", false),
        of("fitted: 187 percent of generic: by Min", true),
        of("assumed", true),
        of("who measured it", true),
    ];
    assert_eq!(kinds(&used), Kinds { fitted: 1, measured: 1, assumed: 2 });
}

#[test]
fn a_pace_leaves_generic_prices_what_they_are() {
    let pace = Pace { percent: 187, source: "fitted: Min".into() };
    assert_eq!(kinds(&all(&[], Some(&pace))), kinds(&all(&[], None)));
    assert!(all(&[], Some(&pace)).iter().all(Used::is_assumed), "nobody measured them there");
}
