//! The commands by what they are for: what `pagelab --help` lists.

use clap::Subcommand;
use report::short::text::fold;

use super::Command;

/// Headings and the commands below them. A new command gets a place here.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run and show", &["run", "show", "report", "map", "why", "fork", "pack", "list"]),
    ("Compare", &["compare", "noise", "ladder", "sweep", "advise"]),
    ("Trust", &["trust", "claims", "score"]),
    ("Machines and states of memory", &["machine", "calibrate", "state"]),
    ("Other machines, tools and shells", &["cells", "worker", "collect", "export", "completions", "man"]),
];
/// Characters in a line, at most.
const WIDTH: usize = 80;

/// The help of the program as a whole, with its commands by group.
pub(super) fn template() -> String {
    let all = Command::augment_subcommands(clap::Command::new("pagelab"));
    let names = GROUPS.iter().flat_map(|(_, names)| names.iter());
    let indent = names.map(|name| name.len()).max().unwrap_or(0) + 4;
    let next_line = format!("\n{:indent$}", "");
    let mut text = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in GROUPS {
        text += &format!("\n{heading}:\n");
        for name in names {
            let command = all.find_subcommand(name).unwrap_or_else(|| panic!("no command {name:?}"));
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            text += &format!("  {name:width$}{}\n", fold(&about, WIDTH - indent).join(&next_line), width = indent - 2);
        }
    }
    text + "\nOptions:\n{options}{after-help}"
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Pagelab;

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let whole = Pagelab::command();
        let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
        let mut there: Vec<_> = shown.map(clap::Command::get_name).collect();
        there.sort_unstable();
        assert_eq!(grouped, there);
    }

    #[test]
    fn help_has_the_groups_and_fits_a_screen() {
        let help = Pagelab::command().render_help().to_string();
        let headings = GROUPS.map(|(heading, _)| help.find(&format!("\n{heading}:\n  ")).expect(heading));
        assert!(headings.is_sorted(), "{help}");
        let below = help.split_once("Run and show:").expect("a heading").1;
        assert!(below.lines().all(|line| line.chars().count() <= WIDTH), "{help}");
        assert_eq!(help.matches("\nOptions:\n").count(), 1, "{help}");
    }
}
