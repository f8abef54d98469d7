//! What `pagelab completions` and `pagelab man` take.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

/// Print what a shell needs for completing commands, options and names
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab completions bash > ~/.local/share/bash-completion/completions/pagelab
  pagelab completions zsh > ~/.zfunc/_pagelab          # a folder of $fpath
  pagelab completions fish > ~/.config/fish/completions/pagelab.fish

Experiments, machines and variants are those there are when this is called.")]
pub(crate) struct Completions {
    /// For which shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// The friendly interactive shell
    Fish,
}

/// Print a page of the manual, or write all of them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab man | man -l -
  pagelab man run | man -l -
  pagelab man -o ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Of which command, such as `machine import` [default: of pagelab as a whole]
    #[arg(conflicts_with = "output")]
    pub(crate) command: Vec<String>,
    /// Write the pages of all commands into this folder
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) output: Option<PathBuf>,
}
