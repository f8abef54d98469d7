//! Machines, variants, experiments and services by name: the folder of the working directory first, then the files inside the
//! binary.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use include_dir::{Dir, include_dir};
use report::brief;

use super::{Source, unknown};
use crate::usage::UsageError;

static MACHINES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../machines");
static VARIANTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../variants");
static WORKLOADS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../workloads");
static EXPERIMENTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");

/// What a name names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A machine, in `machines/`.
    Machine,
    /// A variant, in `variants/`.
    Variant,
    /// An experiment, in `experiments/`.
    Experiment,
    /// A service, in `workloads/`.
    Workload,
}

/// The source of a name, or of a path: something that contains a `/` or ends in `.toml`.
pub fn lookup(kind: Kind, name_or_path: &str) -> Result<Source, UsageError> {
    let source = lookup_in(Path::new("."), kind, name_or_path)?;
    match check_name(kind.noun(), source.name(), &[':']) {
        Ok(()) => Ok(source),
        Err(message) => Err(UsageError::new(message)),
    }
}

/// Refuses a name that would be another one, or none, where it stands: a line of a table is one line, and `TARGET:KERNEL:MACHINE`
/// names a column.
pub(crate) fn check_name(noun: &str, name: &str, separators: &[char]) -> Result<(), String> {
    match name.chars().find(|letter| letter.is_control() || separators.contains(letter)) {
        None => Ok(()),
        Some(letter) => {
            let name = brief(format_args!("{name:?}"));
            Err(format!("{noun} {name}: expected a name without {letter:?}: rename the file"))
        }
    }
}

/// A file by name, and what it says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// One line; of a file that cannot be read, why not.
    pub about: String,
    /// The one measurement that it is there for, if it serves no other.
    pub serves: Option<String>,
}

/// The key of an experiment file that names the one measurement it is there for. `pagelab list` leaves it out.
pub const SERVES: &str = "serves";

/// Every name that [`lookup`] knows, with what its file says about itself; sorted by name.
pub fn list(kind: Kind) -> Vec<Listed> {
    let listed = |name: String| {
        let source = lookup(kind, &name);
        let serves = source.as_ref().ok().and_then(|source| source.parse().ok()?.root().optional(SERVES).ok()?);
        Listed { name, about: about(source), serves }
    };
    names(kind).into_iter().map(listed).collect()
}

/// Every name that [`lookup`] knows, sorted.
pub fn names(kind: Kind) -> Vec<String> {
    names_in(Path::new("."), kind)
}

impl Kind {
    fn noun(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Variant => "variant",
            Self::Experiment => "experiment",
            Self::Workload => "service",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Machine => "machines",
            Self::Variant => "variants",
            Self::Experiment => "experiments",
            Self::Workload => "workloads",
        }
    }

    fn built_in(self) -> &'static Dir<'static> {
        match self {
            Self::Machine => &MACHINES,
            Self::Variant => &VARIANTS,
            Self::Experiment => &EXPERIMENTS,
            Self::Workload => &WORKLOADS,
        }
    }
}

fn lookup_in(root: &Path, kind: Kind, name_or_path: &str) -> Result<Source, UsageError> {
    if name_or_path.contains('/') || is_toml(Path::new(name_or_path)) {
        return Source::read(Path::new(name_or_path));
    }
    let file = format!("{name_or_path}.toml");
    // Without the root in front, so that messages say `machines/x.toml` and not `./machines/x.toml`.
    let path = if root == Path::new(".") { PathBuf::new() } else { root.to_owned() }.join(kind.folder()).join(&file);
    if path.exists() {
        return Source::read(&path);
    }
    if let Some(text) = kind.built_in().get_file(&file).and_then(|file| file.contents_utf8()) {
        return Ok(Source::from_text(format!("built-in {}/{file}", kind.folder()), text));
    }
    let names = names_in(root, kind);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Err(UsageError::new(unknown(kind.noun(), name_or_path, &names)))
}

fn names_in(root: &Path, kind: Kind) -> Vec<String> {
    // A folder that is missing or unreadable has no names; reading one of its files by name gives the reason.
    let folder = std::fs::read_dir(root.join(kind.folder())).into_iter().flatten().flatten().map(|entry| entry.path());
    let built_in = kind.built_in().files().map(|file| file.path().to_owned());
    let files = folder.chain(built_in).filter(|path| is_toml(path));
    let names = files.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

fn about(source: Result<Source, UsageError>) -> String {
    let about = source.and_then(|source| source.parse()?.root().required("about"));
    about.unwrap_or_else(|error| error.to_string())
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_the_user_comes_before_the_built_in_files() {
        let root = tempfile::tempdir().unwrap();
        let built_in = lookup_in(root.path(), Kind::Machine, "one-node-4g").unwrap();
        assert_eq!(built_in.file(), "built-in machines/one-node-4g.toml");
        assert_eq!(built_in.name(), "one-node-4g");

        std::fs::create_dir(root.path().join("machines")).unwrap();
        std::fs::write(root.path().join("machines/one-node-4g.toml"), "about = 'mine'").unwrap();
        std::fs::write(root.path().join("machines/laptop.toml"), "").unwrap();
        std::fs::write(root.path().join("machines/notes.txt"), "").unwrap();
        let mine = lookup_in(root.path(), Kind::Machine, "one-node-4g");
        assert_eq!(mine.as_ref().map(Source::name), Ok("one-node-4g"));
        assert_eq!(about(mine), "mine");
        let names = names_in(root.path(), Kind::Machine);
        assert!(names.is_sorted(), "{names:?}");
        assert!(["laptop", "one-node-4g", "skylake-1s"].iter().all(|name| names.iter().any(|known| known == name)));
        let files = Kind::Machine.built_in().files().filter(|file| is_toml(file.path())).count();
        assert_eq!(names.len(), files + 1, "one that is in both is listed once");
    }

    #[test]
    fn an_unknown_name_lists_the_nearest() {
        let root = tempfile::tempdir().unwrap();
        let error = lookup_in(root.path(), Kind::Machine, "two-nodes-2g").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown machine \"two-nodes-2g\"; did you mean \"two-node-2g\"?",
            "a list of more than 16 is left out where one is near"
        );
        let error = lookup_in(root.path(), Kind::Experiment, "storm").unwrap_err();
        assert!(error.to_string().starts_with("unknown experiment \"storm\" (valid experiments: "), "{error}");
    }

    #[test]
    fn what_looks_like_a_path_is_one() {
        for path in ["no/such", "such.toml"] {
            let error = lookup(Kind::Machine, path).unwrap_err();
            assert_eq!(error.to_string(), format!("{path}: cannot be read: No such file or directory (os error 2)"));
        }
    }

    #[test]
    fn every_listed_file_says_what_it_is() {
        for kind in [Kind::Machine, Kind::Variant, Kind::Experiment, Kind::Workload] {
            for file in kind.built_in().files() {
                let text = file.contents_utf8().unwrap();
                let about = Source::from_text("x", text).parse().unwrap().root().required::<String>("about");
                assert!(about.is_ok(), "{}: {about:?}", file.path().display());
            }
        }
        assert!(list(Kind::Experiment).iter().any(|one| one.name == "fault-storm" && one.about.contains("fault")));
    }
}
