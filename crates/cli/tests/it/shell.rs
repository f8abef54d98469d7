//! Completions, the manual, and the program far from its repository.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    process::{Command, Stdio},
};

use crate::support::{TINY, room::Room, skip};

/// The candidates that bash offers for the last of these words, with the script that we print.
fn bash_offers(script: &str, words: &[&str]) -> BTreeSet<String> {
    let last = words.len() - 1;
    let line = format!(
        "{script}\nCOMP_WORDS=({}); COMP_CWORD={last}; _pagelab pagelab '{}' '{}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words[last],
        words[last - 1]
    );
    let output = Command::new("bash").args(["--norc", "-c", &line]).output().expect("bash was there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_names() {
    let room = Room::new();
    let script = room.run(&["completions", "bash"]).expect(0).stdout;
    if Command::new("bash").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip("bash_completes_commands_options_and_names", "there is no bash");
    }
    let commands = bash_offers(&script, &["pagelab", ""]);
    for command in ["run", "show", "list", "completions", "man"] {
        assert!(commands.contains(command), "{command}: {commands:?}");
    }
    for inside in ["cell", "task", "sampler", "guard"] {
        assert!(!commands.contains(inside), "{inside} is not for users");
    }
    assert!(bash_offers(&script, &["pagelab", "run", "thp"]).contains("thpscale-4.1"));
    assert!(bash_offers(&script, &["pagelab", "run", "thpscale", "--see"]).contains("--seeds"));
    assert!(bash_offers(&script, &["pagelab", "run", "thpscale", "--machine", "two"]).contains("two-node-2g"));
    assert!(bash_offers(&script, &["pagelab", "run", "thpscale", "--variant", "v4.2"]).contains("v4.20"));
}

#[test]
fn other_shells_have_theirs() {
    let room = Room::new();
    for (shell, mark) in [("zsh", "#compdef pagelab"), ("fish", "complete -c pagelab")] {
        let script = room.run(&["completions", shell]).expect(0).stdout;
        assert!(script.contains(mark), "{shell}");
        assert!(script.contains("thpscale-4.1"), "{shell} has no experiments");
        assert!(script.contains("two-node-2g"), "{shell} has no machines");
        assert!(!script.contains("(inside)"), "{shell} has what users do not call");
    }
    room.run(&["completions", "tcsh"]).expect(2).says(&["invalid value 'tcsh'", "bash, zsh, fish"]);
    room.assert_untouched("completions");
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let room = Room::new();
    let answer = room.run(&["man", "-o", "pages/man1"]).expect(0);
    assert_eq!(answer.stdout, "");
    answer.says(&["pages/man1"]);
    let written = fs::read_dir(room.here().join("pages/man1")).expect("pages");
    let files: BTreeSet<_> = written.map(|entry| entry.expect("a page").file_name().into_string().unwrap()).collect();
    for file in ["pagelab.1", "pagelab-run.1", "pagelab-machine-import.1", "pagelab-man.1"] {
        assert!(files.contains(file), "{file}: {files:?}");
    }
    assert!(!files.contains("pagelab-cell.1") && !files.contains("pagelab-help.1"), "{files:?}");
    let run = room.run(&["man", "run"]).expect(0).stdout;
    assert_eq!(run, fs::read_to_string(room.here().join("pages/man1/pagelab-run.1")).expect("a page"));
    let whole = room.run(&["man"]).expect(0).stdout;
    assert!(whole.contains("pagelab\\-run(1)") && !whole.contains("(inside)"), "{whole}");
    room.run(&["man", "rum"]).expect(2).says(&["unknown command \"rum\"; did you mean \"run\"?"]);
}

/// Examples one below the other, and nothing that man(1) complains of.
#[test]
fn pages_can_be_formatted() {
    let room = Room::new();
    let page = room.run(&["man", "run"]).expect(0).stdout;
    let Ok(mut groff) = Command::new("groff")
        .args(["-man", "-Tascii", "-P-cbou", "-ww"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        return skip("pages_can_be_formatted", "there is no groff");
    };
    groff.stdin.take().expect("a pipe").write_all(page.as_bytes()).expect("groff reads");
    let output = groff.wait_with_output().expect("groff ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8_lossy(&output.stdout);
    let examples: Vec<_> = text.lines().skip_while(|line| *line != "EXAMPLES").collect();
    assert!(examples.len() > 5 && examples[1].trim_start().starts_with("pagelab run "), "{text}");
}

/// As after `cargo install`: no repository around, and the program lies elsewhere.
#[test]
fn the_program_alone_has_all_that_it_needs() {
    let room = Room::new();
    let program = room.here().join("elsewhere");
    fs::copy(env!("CARGO_BIN_EXE_pagelab"), &program).expect("a copy");
    let run = |args: &[&str]| room.start(room.command_of(&program, args)).wait().expect(0).stdout;
    for (what, name) in [("machines", "one-cpu-512m"), ("variants", "v6.1"), ("experiments", "thpscale-4.1")] {
        assert!(run(&["list", what]).lines().any(|line| line.starts_with(name)), "{what}");
    }
    let args =
        ["run", "fault-storm", "--target", "sim", "--machine", "one-cpu-512m", "-o", "result", "--format", "csv"];
    let table = run(&[&args[..], &TINY].concat());
    assert!(table.contains("fault-storm,faults_per_second"), "{table}");
}
