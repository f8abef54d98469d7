use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use units::{Bytes, Picos};
use workloads::{
    Workload,
    service::{Action, Rate, Share, Until},
};

use super::*;
use crate::source::{self, Kind, Source};

fn read_text(text: &str) -> Result<Service, String> {
    let source = Source::from_text("my.toml", text);
    let document = source.parse().map_err(|error| error.to_string())?;
    read("my", &document.root()).map_err(|error| error.to_string())
}

/// A file of one process with these phases.
fn phases(text: &str) -> String {
    format!("about = \"x\"\n[[process]]\nname = \"p\"\n{text}")
}

#[test]
fn defaults_and_values_are_what_the_file_says() {
    let text = phases(
        "[[process.phase]]\ndo = \"allocate\"\nsize = \"40%\"\nrate = \"800MiB/s\"\n\
         [[process.phase]]\nname = \"serve\"\ndo = \"access\"\nfor = \"2m\"\npattern = \"zipf 0.99\"\nwrites = \"20%\"\n\
         rate = \"5k/s\"\n\
         [[process.phase]]\ndo = \"fork\"\nevery = \"40s\"\n",
    );
    let service = read_text(&text).unwrap();
    let phases = &service.processes[0].phases;
    assert_eq!(phases[0].name, "allocate");
    assert_eq!((phases[0].requests.rate, phases[0].requests.block), (Some(Rate::Bytes(800 << 20)), Bytes::mib(2)));
    assert_eq!(phases[1].requests.until, Until::Time(Picos::from_secs(120)));
    let Action::Access(access) = phases[1].action else { panic!("an access") };
    assert_eq!((access.pattern, access.writes, access.churn), (Share::Zipf(990), 200_000, 0));
    assert_eq!(phases[2].every, Some(Picos::from_secs(40)));
}

#[test]
fn mistakes_name_line_key_and_the_nearest_word() {
    let allocate = "[[process.phase]]\ndo = \"allocate\"\nsize = \"1GiB\"\n";
    let access = "[[process.phase]]\ndo = \"access\"\n";
    let cases = [
        ("about = \"x\"\nprocess = []\n".to_owned(), "my.toml:2: process: expected at least one table [[process]]"),
        (
            phases("[[process.phase]]\ndo = \"alocate\"\n"),
            "my.toml:5: process.phase.do: unknown operation \"alocate\"; did you mean \"allocate\"?",
        ),
        (
            phases("[[process.phase]]\ndo = \"allocate\"\nsiez = \"1GiB\"\n"),
            "unknown key \"siez\"; did you mean \"size\"?",
        ),
        (
            phases("[[process.phase]]\ndo = \"allocate\"\nsize = \"-4\"\n"),
            "my.toml:6: process.phase.size: expected a size such as",
        ),
        (phases(&format!("{access}for = \"1s\"\n")), "my.toml:5: process.phase.do: process p has no memory yet"),
        (phases(&format!("{allocate}{access}")), "process.phase.for: missing; expected `for`, `times` or `until`"),
        (phases(&format!("{allocate}{access}for = \"2 days\"\n")), "expected a time up to a day, such as"),
        (
            phases(&format!("{allocate}{access}for = \"1s\"\npattern = \"zipf x\"\n")),
            "expected \"sequential\", \"uniform\"",
        ),
        (phases(&format!("{allocate}every = \"1s\"\n")), "there is no phase before it that it could run beside"),
        (phases(&format!("{allocate}{allocate}")), "there is another phase \"allocate\" already"),
        (phases(&format!("{allocate}after = \"p.fill\"\n")), "unknown phase \"p.fill\""),
        (phases(&format!("{allocate}until = \"p\"\n")), "unknown process \"p\""),
        (phases(&format!("{allocate}after = \"allocate\"\n")), "these wait for each other, so that none ever begins"),
        (phases(&format!("{allocate}[measure]\nlatency = [\"serv\"]\n")), "measure.latency: unknown phase \"serv\""),
    ];
    for (text, expected) in cases {
        let found = read_text(&text).expect_err(&text);
        assert!(found.contains(expected), "{text}\n{found}\nexpected {expected}");
    }
}

#[test]
fn processes_that_wait_for_each_other_are_refused() {
    let text = "about = \"x\"\n\
        [[process]]\nname = \"a\"\n[[process.phase]]\ndo = \"allocate\"\nsize = \"1GiB\"\n\
        [[process.phase]]\ndo = \"access\"\nuntil = \"b\"\n\
        [[process]]\nname = \"b\"\nafter = \"a.access\"\n[[process.phase]]\ndo = \"drop\"\n";
    let found = read_text(text).unwrap_err();
    assert!(
        found.contains("my.toml:9: process.phase.until: these wait for each other")
            && found.contains("a.access, b.drop"),
        "{found}"
    );
}

/// A file with some lines left out, doubled, moved, or with another value.
fn mutated(text: &str, random: &mut impl Rng) -> String {
    const VALUES: [&str; 14] = [
        "0",
        "-1",
        "\"0%\"",
        "\"1000%\"",
        "\"99999999999999TiB\"",
        "\"0/s\"",
        "\"1us\"",
        "\"24h\"",
        "true",
        "[]",
        "\"zipf 4\"",
        "\"hot 0% 0% 1us\"",
        "18446744073709551615",
        "\"nobody.nothing\"",
    ];
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut below = |bound: usize| usize::try_from(random.next_u64() % bound.max(1) as u64).expect("an index");
    for _ in 0..=below(4) {
        let at = below(lines.len());
        match below(5) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(below(lines.len()), lines[at].clone()),
            2 => {
                let other = below(lines.len());
                lines.swap(at, other);
            }
            3 => {
                let cut = below(lines[at].len() + 1);
                let cut = (0..=cut).rev().find(|cut| lines[at].is_char_boundary(*cut)).unwrap_or(0);
                lines[at].truncate(cut);
            }
            _ => {
                if let Some((key, _)) = lines[at].clone().split_once('=') {
                    lines[at] = format!("{key}= {}", VALUES[below(VALUES.len())]);
                }
            }
        }
        if lines.is_empty() {
            break;
        }
    }
    lines.join("\n")
}

#[test]
fn damaged_files_are_refused_or_read_but_never_a_panic() {
    const MUTANTS: usize = 2000;
    let texts: Vec<String> = source::names(Kind::Workload)
        .iter()
        .map(|name| source::lookup(Kind::Workload, name).unwrap().text().to_owned())
        .collect();
    let mut random = ChaCha8Rng::seed_from_u64(27);
    let mut read = 0;
    for number in 0..MUTANTS {
        let text = mutated(&texts[number % texts.len()], &mut random);
        match read_text(&text) {
            Err(message) => assert!(message.starts_with("my.toml"), "{message}\n{text}"),
            Ok(service) => {
                read += 1;
                let (name, value) = service.to_param();
                let again = Workload::parse("service", [(name.as_str(), value.as_str())]).unwrap();
                assert_eq!(again, Workload::Service(service), "a plan comes through a result unchanged");
                // Sums of sizes stop, and do not overflow.
                let _ = (again.memory(Bytes::gib(1 << 20)), again.files(Bytes::gib(1 << 20)));
            }
        }
    }
    assert!((MUTANTS / 10..MUTANTS).contains(&read), "{read} of {MUTANTS} are read");
}
