//! `pagelab completions` and `pagelab man`: both made from the command line's own description.

use std::io;

use clap::{Command, CommandFactory, builder::PossibleValuesParser};
use clap_complete::{
    Generator,
    shells::{Bash, Fish, Zsh},
};
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};
use lab::source::{self, Kind};

use crate::args::{Pagelab, Shell};

const PROGRAM: &str = "pagelab";

/// The completions of a shell.
pub(crate) fn completions(shell: Shell) -> String {
    let run = |run: Command| {
        run.mut_arg("experiment", |arg| arg.value_parser(runnable()))
            .mut_arg("machine", |arg| arg.value_parser(names(Kind::Machine)))
            .mut_arg("variant", |arg| arg.value_parser(names(Kind::Variant)))
    };
    let mut command = visible(&Pagelab::command()).mut_subcommand("run", run);
    command.set_bin_name(PROGRAM);
    command.build();
    let mut script = Vec::new();
    match shell {
        Shell::Bash => Bash.generate(&command, &mut script),
        Shell::Zsh => Zsh.generate(&command, &mut script),
        Shell::Fish => Fish.generate(&command, &mut script),
    }
    let script = String::from_utf8(script).expect("it is made of our own words");
    match shell {
        Shell::Bash | Shell::Zsh => script,
        // The generator for fish leaves out what has no dash.
        Shell::Fish => {
            let names = [source::names(Kind::Experiment), source::names(Kind::Workload)].concat().join(" ");
            format!("{script}complete -c {PROGRAM} -n \"__fish_{PROGRAM}_using_subcommand run\" -a \"{names}\"\n")
        }
    }
}

/// Only for completing: who types a path gets that of a file.
fn names(kind: Kind) -> PossibleValuesParser {
    PossibleValuesParser::new(source::names(kind))
}

/// Names that `run` takes.
fn runnable() -> PossibleValuesParser {
    PossibleValuesParser::new([source::names(Kind::Experiment), source::names(Kind::Workload)].concat())
}

/// The command without what users do not call: generators of completions know of no hidden subcommands.
fn visible(whole: &Command) -> Command {
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let arguments = whole.get_arguments().cloned();
    let about = whole.get_about().cloned().unwrap_or_default();
    Command::new(PROGRAM).version(env!("CARGO_PKG_VERSION")).about(about).args(arguments).subcommands(shown)
}

/// A page of the manual.
#[derive(Debug)]
pub(crate) struct Page {
    /// What `pagelab man` calls it: the command's words, none for the program as a whole.
    pub(crate) words: Vec<String>,
    /// The name of its file.
    pub(crate) file: String,
    /// Its source, for man(1).
    pub(crate) text: Vec<u8>,
}

/// All pages of the manual.
pub(crate) fn pages() -> io::Result<Vec<Page>> {
    let mut command = Pagelab::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    collect(&command, &[], &mut pages)?;
    Ok(pages)
}

fn collect(command: &Command, words: &[String], pages: &mut Vec<Page>) -> io::Result<()> {
    let man = Man::new(command.clone()).source(format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION"))).manual(PROGRAM);
    pages.push(Page { words: words.to_vec(), file: man.get_filename(), text: text(&man, command)? });
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        collect(inner, &[words, &[inner.get_name().to_owned()]].concat(), pages)?;
    }
    Ok(())
}

/// As [`Man::render`] has it, but for the examples, whose lines it would run together.
fn text(man: &Man, command: &Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|inner| !inner.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    if let Some(after) = command.get_after_help() {
        let after = after.to_string();
        let (examples, notes) = after.split_once("\n\n").unwrap_or((&after, ""));
        let mut roff = Roff::default();
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines().filter(|line| *line != "Examples:") {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
        if !notes.is_empty() {
            roff.control("SH", ["NOTES"]);
        }
        for line in notes.lines() {
            if line.is_empty() || line.starts_with("Exit status:") {
                roff.control("PP", []);
            }
            if !line.is_empty() {
                roff.text([roman(line)]);
            }
        }
        roff.to_writer(&mut text)?;
    }
    Ok(text)
}
