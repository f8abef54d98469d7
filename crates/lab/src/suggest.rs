//! Commands that are suggested: whole, as a shell takes them, and the user's own. Every suggestion is made here.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use units::Picos;

use crate::{
    plan::{Asked, Every, Identity},
    state::{Made, Recipe, RecipeStart},
};

/// The time between two samples where the user has not chosen one: of a run that is not longer than [`SAMPLES_MAX`] of them.
const EVERY: [&str; 5] = ["100ms", "1s", "10s", "1min", "5min"];
/// Samples of a run that anybody looks at.
const SAMPLES_MAX: u64 = 2000;

/// A command line of pagelab with these words.
pub fn command<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    words.into_iter().fold("pagelab".to_owned(), |line, word| format!("{line} {}", quoted(word.as_ref())))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./:=,+%@-".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The words of a path.
pub(crate) fn path(path: &Path) -> String {
    path.display().to_string()
}

/// The run of a result, once more.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    pub(crate) asked: Asked,
    sample: Option<Every>,
    map: bool,
}

impl Again {
    /// The run of a result; none where `run.json` does not say what was asked for: of an earlier program, or measured elsewhere.
    pub(crate) fn of(identity: &Identity) -> Option<Self> {
        let asked = identity.asked.clone()?;
        Some(Self { asked, sample: identity.sample, map: identity.map })
    }

    /// With samples as often as the user took them; else so that a run of this length has at most [`SAMPLES_MAX`].
    pub(crate) fn sampled(self, length: Picos) -> Self {
        let every = EVERY.map(|every| every.parse::<Every>().expect("a time"));
        let fitting = every.into_iter().find(|every| length.0 / every.time().0 <= SAMPLES_MAX);
        let sample = self.sample.or(fitting).or(every.last().copied());
        Self { sample, ..self }
    }

    /// With maps of memory too.
    pub(crate) fn mapped(self, length: Picos) -> Self {
        Self { map: true, ..self.sampled(length) }
    }

    /// The command, whose result goes to a directory.
    pub(crate) fn into(self, directory: &Path) -> String {
        let mut words = vec!["run".to_owned()];
        words.extend(self.asked.words());
        words.extend(self.sample.iter().flat_map(|every| ["--sample".to_owned(), every.to_string()]));
        words.extend(self.map.then(|| "--map".to_owned()));
        words.extend(["-o".to_owned(), path(directory)]);
        command(words)
    }
}

/// A directory beside that of a result: `results/mine-sampled` of `results/mine/`.
pub(crate) fn beside(directory: &Path, word: &str) -> PathBuf {
    let name = directory.file_name().map_or_else(|| "result".into(), |name| name.to_string_lossy().into_owned());
    directory.with_file_name(format!("{name}-{word}"))
}

/// Everything that `state make` needs for a recipe's file.
#[derive(Clone, Copy, Debug)]
pub struct StateMake<'a> {
    /// The recipe.
    pub recipe: &'a Recipe,
    /// Name or path of the machine.
    pub machine: &'a str,
    /// Names or paths of variants.
    pub variants: &'a [String],
    /// The first seed and the last.
    pub seeds: (u64, u64),
    /// The file.
    pub output: &'a Path,
}

/// The command that makes a recipe's file.
pub fn state_make(make: StateMake<'_>) -> String {
    let StateMake { recipe, machine, variants, seeds: (first, last), output } = make;
    let shares = [recipe.unmovable(), recipe.blocks()].map(|share| share.to_string());
    let mut words = vec!["state", "make", "--recipe", recipe.name(), "--unmovable", &shares[0], "--blocks", &shares[1]];
    words.extend(["--machine", machine]);
    words.extend(variants.iter().flat_map(|variant| ["--variant", variant]));
    let (seeds, output) = (format!("{first}-{last}"), path(output));
    words.extend(["--seeds", &seeds, "-o", &output]);
    command(words)
}

/// The command that makes the file of a recipe again, as far as it is about this machine, with the names or paths of a run.
pub(crate) fn state_again(start: &RecipeStart, machine: &str, asked: &Asked) -> String {
    let made: Vec<&Made> = start.made.iter().filter(|made| made.machine == machine).collect();
    let seeds = || made.iter().map(|made| made.seed);
    let names: BTreeSet<&str> = made.iter().map(|made| made.variant.as_str()).collect();
    let is_file = |word: &&String, name: &str| Path::new(word).file_stem().is_some_and(|stem| stem == name);
    let word = |name: &str| asked.variants.iter().find(|word| is_file(word, name)).cloned().unwrap_or(name.to_owned());
    let variants: Vec<String> = names.into_iter().map(word).collect();
    state_make(StateMake {
        recipe: &start.recipe,
        machine: asked.machine.as_deref().unwrap_or(machine),
        variants: &variants,
        seeds: (seeds().min().unwrap_or(1), seeds().max().unwrap_or(1)),
        output: start.file.as_deref().unwrap_or(Path::new("state.toml")),
    })
}
