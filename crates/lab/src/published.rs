//! Published series by name, or by the experiment that makes their tables: the folder of the working directory first, then
//! the files inside the binary.

use std::{collections::BTreeSet, path::Path};

use include_dir::{Dir, include_dir};
use report::{Published, published::PublishedError};
use serde::{Deserialize, Serialize};

use crate::usage::UsageError;

static PUBLISHED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../published");

/// The folder of a working directory, one folder in it for each series.
const FOLDER: &str = "published";
/// What makes a folder a series.
const SOURCE: &str = "source.toml";

/// A series as files: its name, and what it is read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// The name of the series.
    pub name: String,
    /// Each file, by the path that messages call it by, and its text.
    pub files: Vec<(String, String)>,
}

impl Files {
    /// Reads the series.
    ///
    /// # Errors
    /// The file and line that are wrong.
    pub fn parse(&self) -> Result<Published, UsageError> {
        Ok(Published::parse(&self.name, &self.files)?)
    }
}

impl From<PublishedError> for UsageError {
    fn from(error: PublishedError) -> Self {
        let line = error.line.and_then(|line| u32::try_from(line).ok());
        Self { line, file: Some(error.file), key: None, message: error.message }
    }
}

/// The series that come with the program, as they came.
pub(crate) fn built_in() -> impl Iterator<Item = Published> {
    let named = |folder: &'static Dir<'_>| Some((folder.path().file_name()?.to_str()?, built_in_files(folder)));
    let parsed = |(name, files): (&str, Vec<_>)| Published::parse(name, &files).expect("a test reads each");
    PUBLISHED.dirs().filter_map(named).map(parsed)
}

/// Every name that [`load`] knows, sorted.
pub fn names() -> Vec<String> {
    names_in(Path::new(""))
}

/// The series of this name.
pub fn load(name: &str) -> Result<Published, UsageError> {
    load_in(Path::new(""), name)
}

/// The series whose tables this experiment makes, if there is one. Of several one of the working directory comes first, so that
/// who puts numbers of their own there sees them; else the first by name.
pub fn of_experiment(experiment: &str) -> Result<Option<Published>, UsageError> {
    files_of_experiment(experiment)?.as_ref().map(Files::parse).transpose()
}

/// Files of the same series, to be kept.
pub(crate) fn files_of_experiment(experiment: &str) -> Result<Option<Files>, UsageError> {
    of_experiment_in(Path::new(""), experiment)
}

/// Files of a series that needs this experiment besides its main one, where all sets of tables of it are printed there.
pub(crate) fn files_with_tables(experiment: &str, tables: &BTreeSet<&str>) -> Result<Option<Files>, UsageError> {
    find_in(Path::new(""), |published| {
        let is_printed = |set: &&str| published.all().iter().any(|printed| printed.place()[0] == *set);
        let needs = published.source.also.iter().any(|also| also == experiment);
        needs && !tables.is_empty() && tables.iter().all(is_printed)
    })
}

/// The series whose claims need this experiment: whose tables it makes, or else one that needs it besides.
pub fn that_needs(experiment: &str) -> Result<Option<Published>, UsageError> {
    let root = Path::new("");
    let main = of_experiment_in(root, experiment)?;
    let besides = |published: &Published| published.source.also.iter().any(|also| also == experiment);
    let files = if main.is_some() { main } else { find_in(root, besides)? };
    files.as_ref().map(Files::parse).transpose()
}

fn of_experiment_in(root: &Path, experiment: &str) -> Result<Option<Files>, UsageError> {
    find_in(root, |published| published.source.experiment.as_deref() == Some(experiment))
}

fn find_in(root: &Path, is_it: impl Fn(&Published) -> bool) -> Result<Option<Files>, UsageError> {
    let mut names = names_in(root);
    // Stable: by name within both.
    names.sort_by_key(|name| !root.join(FOLDER).join(name).join(SOURCE).exists());
    for name in names {
        let files = files_in(root, &name)?;
        if is_it(&files.parse()?) {
            return Ok(Some(files));
        }
    }
    Ok(None)
}

fn names_in(root: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(root.join(FOLDER)).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_user = folders.filter(|folder| folder.join(SOURCE).exists());
    let built_in = PUBLISHED.dirs().map(|folder| folder.path().to_owned());
    let names = of_user.chain(built_in).filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

fn load_in(root: &Path, name: &str) -> Result<Published, UsageError> {
    files_in(root, name)?.parse()
}

fn files_in(root: &Path, name: &str) -> Result<Files, UsageError> {
    let folder = root.join(FOLDER).join(name);
    let files = if is_name(name) && folder.join(SOURCE).exists() {
        of_folder(&folder)?
    } else {
        let built_in = PUBLISHED.get_dir(name).filter(|_| is_name(name));
        built_in.map(built_in_files).ok_or_else(|| {
            let message = format!("unknown published series {name:?} (there are {})", names_in(root).join(", "));
            UsageError::new(message)
        })?
    };
    Ok(Files { name: name.to_owned(), files })
}

/// A name is one folder, and no way out of it.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\']) && !name.starts_with('.')
}

fn built_in_files(folder: &Dir<'_>) -> Vec<(String, String)> {
    let text = |file: &include_dir::File<'_>| {
        let name = format!("built-in {FOLDER}/{}", file.path().display());
        Some((name, file.contents_utf8()?.to_owned()))
    };
    sorted(folder.files().filter(|file| is_read(file.path())).filter_map(text).collect())
}

fn of_folder(folder: &Path) -> Result<Vec<(String, String)>, UsageError> {
    let error = |path: &Path, error: &std::io::Error| UsageError {
        file: Some(path.display().to_string()),
        line: None,
        key: None,
        message: format!("cannot be read: {error}"),
    };
    let entries = std::fs::read_dir(folder).map_err(|broken| error(folder, &broken))?;
    let mut files = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| is_read(path)) {
        let text = std::fs::read_to_string(&path).map_err(|broken| error(&path, &broken))?;
        files.push((path.display().to_string(), text));
    }
    Ok(sorted(files))
}

fn is_read(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "csv" || extension == "toml")
}

/// By name, but `table.csv`, the letter's own, before all others.
fn sorted(mut files: Vec<(String, String)>) -> Vec<(String, String)> {
    files.sort_by_key(|(name, _)| (!name.ends_with("/table.csv"), name.clone()));
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn every_series_inside_is_read() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(names_in(root.path()), ["s0", "s1", "s2", "s3", "s4"]);
        let values =
            names_in(root.path()).into_iter().map(|name| load_in(root.path(), &name).expect(&name).all().len());
        assert_eq!(values.collect::<Vec<_>>(), [508, 40, 68, 560, 57]);
    }

    #[test]
    fn the_columns_of_a_series_are_those_of_its_experiment() {
        for name in names() {
            let published = load(&name).expect("a series");
            let Some(experiment) = &published.source.experiment else { continue };
            let of = |name: &String| Experiment::load(name).expect("an experiment").columns;
            let columns: Vec<_> = [experiment].into_iter().chain(&published.source.also).flat_map(of).collect();
            let ours: Vec<&str> = columns.iter().map(|column| column.kernel.as_str()).collect();
            for column in &published.source.columns {
                assert!(ours.contains(&column.ours()), "{name}: {} is not among {ours:?}", column.ours());
            }
        }
    }

    #[test]
    fn a_series_is_found_by_its_experiment() {
        let found = of_experiment("thpscale-4.1").expect("read").expect("there is one");
        assert_eq!(found.name, "s0");
        assert_eq!(of_experiment("fault-storm").expect("read").map(|found| found.name), None);
        let needs = |experiment| that_needs(experiment).expect("read").map(|found| found.name);
        assert_eq!(needs("thpscale-4.1").as_deref(), Some("s0"));
        assert_eq!(needs("numa-random-seek").as_deref(), Some("s4"), "one of several");
        assert_eq!(needs("fault-storm"), None);
    }

    #[test]
    fn a_folder_of_the_user_comes_before_the_built_in_one() {
        let root = tempfile::tempdir().expect("a directory");
        let mine = root.path().join("published/s0");
        std::fs::create_dir_all(&mine).expect("made");
        let write = |name: &str, text: &str| std::fs::write(mine.join(name), text).expect("written");
        write(
            "source.toml",
            "about = 'mine'\ntitle = ''\nauthor = ''\ndate = ''\nwhere = ''\nmachine = ''\ncolumn = []\n",
        );
        write("rows.toml", "");
        write("claims.toml", "");
        write("table.csv", "experiment,metric,case,kernel,value,better\na,b,c,d,1.50,lower\n");
        write("notes.md", "not read");
        let published = load_in(root.path(), "s0").expect("a series");
        assert_eq!(published.source.about, "mine");
        assert_eq!(published.printed("a", "b", "c", "d").map(|printed| printed.digits.as_str()), Some("1.50"));

        // Its experiment's tables are beside it, although s0 is earlier by name.
        let other = root.path().join("published/version2");
        std::fs::create_dir_all(&other).expect("made");
        let source = "about = ''\ntitle = ''\nauthor = ''\ndate = ''\nwhere = ''\nmachine = ''\ncolumn = []\n\
                      experiment = 'thpscale-4.1'\n";
        for (name, text) in [
            ("source.toml", source),
            ("rows.toml", ""),
            ("claims.toml", ""),
            ("table.csv", "experiment,metric,case,kernel,value,better\n"),
        ] {
            std::fs::write(other.join(name), text).expect("written");
        }
        let found = of_experiment_in(root.path(), "thpscale-4.1").expect("read").map(|found| found.name);
        assert_eq!(found.as_deref(), Some("version2"));

        write("rows.toml", "[[wrong]]\nwhy = ''\ncase = 'x'\n");
        let message = load_in(root.path(), "s0").expect_err("no such row").to_string();
        assert!(
            message.ends_with("published/s0/rows.toml: [[wrong]] number 1 picks no value of the tables"),
            "{message}"
        );

        write("rows.toml", "[[fitted]]\nwhy = ''\ncaes = ''\n");
        let message = load_in(root.path(), "s0").expect_err("a wrong key").to_string();
        assert!(
            message.ends_with(
                "published/s0/rows.toml:3: unknown field `caes`, expected one of `experiment`, \
                 `metric`, `case`, `kernel`, `why`"
            ),
            "{message}"
        );
    }

    #[test]
    fn an_unknown_name_is_one_message() {
        for name in ["s9", "", "..", "s0/x"] {
            let message = load(name).expect_err("no series").to_string();
            assert!(message.starts_with("unknown published series"), "{message}");
        }
    }
}
