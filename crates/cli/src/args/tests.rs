//! Arguments: every example in the help texts parses, and a run keeps its whole command line.

use clap::CommandFactory;
use lab::plan::Asked;

use super::*;

/// Words as a shell makes them of a line, up to where it sends its output elsewhere.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for letter in line.chars() {
        match letter {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            '>' | '<' | '|' | '#' if !is_quoted => return words,
            letter => word.push(letter),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// Help suggests commands too: their options are those that there are.
#[test]
fn every_example_in_help_is_a_command() {
    let (mut commands, mut examples) = (vec![Pagelab::command()], 0);
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().cloned());
        let help = [command.get_before_help(), command.get_after_help()];
        let help: String = help.into_iter().flatten().map(|text| format!("{text}\n")).collect();
        let line = |line: &'_ str| line.trim_start().trim_start_matches("Start with:").trim_start().to_owned();
        for line in help.lines().map(line).filter(|line| line.starts_with("pagelab ")) {
            let parsed = Pagelab::try_parse_from(words(&line));
            assert!(
                parsed.is_ok(),
                "{}: {line}: {:?}",
                command.get_name(),
                parsed.err().map(|error| error.to_string())
            );
            examples += 1;
        }
    }
    assert!(examples > 60, "{examples} examples");
}

fn request(words: &[String]) -> Request {
    let whole = ["pagelab", "run"].map(str::to_owned).into_iter().chain(words.iter().cloned());
    match Pagelab::try_parse_from(whole).expect("a command").command {
        Command::Run(run) => run.request(),
        other => panic!("{other:?}"),
    }
}

/// Options that say where results go, how often samples are taken (`run.json` has it) and how something is told or printed.
const NOT_ASKED: [&str; 12] = [
    "workers", "sample", "map", "causes", "output", "report", "format", "progress", "full", "quiet", "explain", "help",
];

/// `run.json` keeps each option of a run: the words that it has are the same request. A new option has to be in one of these
/// lines.
#[test]
fn the_words_that_are_kept_are_the_whole_run() {
    let lines = [
        "thpscale --target vm --target sim --machine 'my machine.toml' --kernel ./bzImage --kernel 6.1 --set 'counts=1 3' \
         --set vm.swappiness=10,60 --seeds 2-4 --state kernel --replayable 2,3 --timeout 7 --trace",
        "fault-storm --target host --memory 64MiB --drop-caches --set size=2MiB",
        "./mine.toml --variant v6.1 --variant host --state ./a.state --seeds 8",
        "thpscale-4.1 --column 4.1-rc2+0 --column 4.1-rc2+4",
        "fault-storm --kernel 6.1 --accel kvm",
        "fault-storm --kernel 6.1 --accel tcg",
    ];
    let mut seen = String::new();
    for line in lines {
        let asked = request(&words(line));
        let kept = Asked::of(&asked, asked.targets.clone()).words();
        assert_eq!(format!("{:?}", request(&kept)), format!("{asked:?}"), "{line}: {kept:?}");
        seen += line;
    }
    let run = Pagelab::command();
    let run = run.find_subcommand("run").expect("a command");
    for option in run.get_arguments().filter_map(clap::Arg::get_long).filter(|option| !NOT_ASKED.contains(option)) {
        assert!(seen.contains(&format!("--{option}")), "--{option} is neither kept nor known not to be");
    }
}
