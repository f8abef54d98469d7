//! Words and limits that a result is printed with: kept in `run.json` when the run is made, so that `show` prints a result of
//! last month as it was, whatever experiments and published series say by now.

use std::collections::BTreeMap;

use report::{Key, Published, Target, compare::Axis};
use serde::{Deserialize, Serialize};

use crate::{
    experiment::Experiment,
    published::{self, Files},
    usage::UsageError,
    variant::{self, Recorded},
};

/// A counter is shown when it moved at least this often in some case: less is within what reading counters costs.
const COUNTER_THRESHOLD: u64 = 400;
/// The threshold for workloads that fill memory: their stalls, compactions and splits are few, and reading counters causes none.
const PRESSED_THRESHOLD: u64 = 20;

/// How a result is printed: nothing here has a part in what is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presentation {
    /// One line on what the experiment asks; none where the experiment of an older result is gone.
    pub about: Option<String>,
    /// Titles of columns, by their kernel, where the experiment has some.
    pub titles: BTreeMap<String, String>,
    /// A counter is shown when it moved at least this often in some case.
    pub counter_threshold: u64,
    /// The published series whose tables these are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Files>,
    /// Rules by which the zones of real kernels are computed, by the kernel's release; none in results of earlier programs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, Recorded>,
    /// The axes of a sweep; empty of other runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub axes: Vec<Axis>,
}

impl Presentation {
    /// As the files of today have it, for a run of these cells.
    ///
    /// # Errors
    /// A series that cannot be read.
    pub(crate) fn of<'a>(experiment: &Experiment, cells: impl Iterator<Item = &'a Key>) -> Result<Self, UsageError> {
        let titles = experiment.columns.iter();
        let titles = titles.filter_map(|column| Some((column.kernel.clone(), column.title.clone()?))).collect();
        let about = Some(experiment.about.clone());
        let mut shown = Self { about, titles, ..Self::without_experiment(&experiment.name, cells)? };
        if shown.published.is_none() {
            let tables = experiment.columns.iter().filter_map(|column| column.tables.as_deref()).collect();
            shown.published = published::files_with_tables(&experiment.name, &tables)?;
        }
        Ok(shown)
    }

    /// For a result that was made before these things were kept: as the files of today have it. Where its experiment is gone,
    /// columns have the names of their kernels.
    ///
    /// # Errors
    /// A series that cannot be read.
    pub(crate) fn of_older<'a>(name: &str, cells: impl Iterator<Item = &'a Key>) -> Result<Self, UsageError> {
        match Experiment::load(name) {
            Ok(experiment) => Self::of(&Experiment { name: name.to_owned(), ..experiment }, cells),
            Err(_) => Self::without_experiment(name, cells),
        }
    }

    fn without_experiment<'a>(name: &str, cells: impl Iterator<Item = &'a Key>) -> Result<Self, UsageError> {
        let (mut presses, mut rules) = (false, BTreeMap::new());
        for key in cells {
            presses = presses || crate::workload::of_key(key).is_ok_and(|workload| workload.presses());
            if key.target == Target::Sim {
                continue;
            }
            let release = release(&key.kernel);
            // A kernel without rules says so where its zones are printed.
            let of_release = variant::for_release(release).ok().map(|named| (release.to_owned(), Recorded::of(&named)));
            rules.extend(of_release);
        }
        Ok(Self {
            about: None,
            titles: BTreeMap::new(),
            counter_threshold: if presses { PRESSED_THRESHOLD } else { COUNTER_THRESHOLD },
            published: published::files_of_experiment(name)?,
            rules,
            axes: Vec::new(),
        })
    }

    /// The series, as it was.
    ///
    /// # Errors
    /// Files that are no series, with the file and line.
    pub(crate) fn series(&self) -> Result<Option<Published>, UsageError> {
        self.published.as_ref().map(Files::parse).transpose()
    }
}

/// The release of a real kernel, which its label begins with.
pub(crate) fn release(kernel: &str) -> &str {
    kernel.split(' ').next().unwrap_or_default()
}
