//! The rows that numbers from elsewhere are put into: the rows of another result, or of a published series.

use std::collections::{BTreeMap, BTreeSet};

use report::{Key, Layout, Published};

use super::kind::Kind;
use crate::{experiment::Experiment, plan::Identity, usage::UsageError};

/// Rows of an experiment, and the columns that there are of it.
#[derive(Debug)]
pub(crate) struct Like {
    /// The name in messages.
    name: String,
    pub(super) layout: Layout,
    columns: Vec<LikeColumn>,
    /// Whether runs that are no column of it are left out.
    is_series: bool,
}

/// One column, with the cells of one case.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LikeColumn {
    /// The kernel here.
    pub(super) kernel: String,
    /// The name that others have for the kernel.
    alias: Option<String>,
    pub(super) experiment: String,
    pub(super) group: Option<String>,
    pub(super) workload: String,
    pub(super) case: String,
    pub(super) params: BTreeMap<String, String>,
}

impl LikeColumn {
    fn kind(&self) -> Option<Kind> {
        Some(match self.workload.as_str() {
            "thpscale" | "thpscale-2015" | "thpcompact" | "thpfioscale" => Kind::Faults,
            "autonumabench" => Kind::Programs,
            "warehouses" => Kind::Warehouses,
            "will-it-scale" => Kind::Stores,
            _ => return None,
        })
    }

    /// Is it the column of a run of this name? An export adds the target to names without a dash.
    fn is_called(&self, run: &str) -> bool {
        let bare = run.strip_suffix("-sim").or_else(|| run.strip_suffix("-vm")).or_else(|| run.strip_suffix("-host"));
        [Some(run), bare].into_iter().flatten().any(|name| name == self.kernel || Some(name) == self.alias.as_deref())
    }
}

/// A run that is to be placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) run: &'a str,
    pub(super) test: &'a str,
    pub(super) kind: Option<Kind>,
    pub(super) group: Option<&'a str>,
    /// The cases that the numbers of the foreign table are of.
    pub(super) parts: &'a [&'a str],
    /// Whether it is a pair of captures of /proc/vmstat, which may be of any workload.
    pub(super) is_pair: bool,
}

impl Like {
    /// The rows of another result.
    pub(crate) fn of_result(name: &str, identity: &Identity) -> Self {
        let mut columns: Vec<LikeColumn> = Vec::new();
        for key in &identity.keys {
            let Key { experiment, group, workload, case, params, kernel, .. } = key.clone();
            let column = LikeColumn { kernel, alias: None, experiment, group, workload, case, params };
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        Self { name: name.to_owned(), layout: identity.layout, columns, is_series: false }
    }

    /// The rows of a published series, whose columns runs are called after.
    ///
    /// # Errors
    /// No experiment makes its tables.
    pub(crate) fn of_series(published: &Published) -> Result<Self, UsageError> {
        let name = &published.name;
        let Some(experiment) = &published.source.experiment else {
            return Err(UsageError::new(format!("{name}: no experiment makes this table yet")));
        };
        let experiment = Experiment::load(experiment)?;
        let column = |column: &crate::experiment::SimColumn| {
            let published = published.column(&column.kernel)?;
            Some(LikeColumn {
                kernel: column.kernel.clone(),
                alias: Some(published.kernel.clone()),
                experiment: experiment.name.clone(),
                group: column.tables.clone(),
                workload: experiment.workload.name.to_owned(),
                case: "all".to_owned(),
                params: BTreeMap::new(),
            })
        };
        let columns = experiment.columns.iter().filter_map(column).collect();
        Ok(Self { name: name.clone(), layout: experiment.layout, columns, is_series: true })
    }

    /// The names of its columns, for messages.
    pub(super) fn columns(&self) -> String {
        self.columns
            .iter()
            .map(|column| column.kernel.as_str())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// The name that messages call it by.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a published series: then runs that are no column of it are left out.
    pub(super) fn is_series(&self) -> bool {
        self.is_series
    }

    /// Where a run's numbers belong; nowhere where they are of another benchmark.
    pub(super) fn place(&self, wanted: Wanted<'_>) -> Result<Option<LikeColumn>, UsageError> {
        let Wanted { run, test, kind, group, parts, is_pair } = wanted;
        let fits = |column: &&LikeColumn| is_pair || kind.is_some() && column.kind() == kind;
        let mut fitting: Vec<&LikeColumn> = self.columns.iter().filter(fits).collect();
        if fitting.is_empty() {
            return Ok(None);
        }
        if let Some(group) = group.filter(|group| fitting.iter().any(|column| column.group.as_deref() == Some(*group)))
        {
            fitting.retain(|column| column.group.as_deref() == Some(group));
        }
        let is_called = |column: &&&LikeColumn| column.is_called(run);
        let known = fitting.iter().find(is_called).map(|column| (column.kernel.clone(), column.group.clone()));
        if self.is_series && known.is_none() {
            return Ok(None);
        }
        let groups: BTreeSet<_> = fitting.iter().map(|column| &column.group).collect();
        let (kernel, group) = match known {
            Some(known) => known,
            None if groups.len() == 1 => (run.to_owned(), fitting[0].group.clone()),
            None => {
                let names = groups.into_iter().flatten().cloned().collect::<Vec<_>>().join(" or ");
                return Err(UsageError::new(format!(
                    "run {run} may be of {names} of {}; give its directory the name of the column that it stands beside: {}",
                    self.name,
                    self.columns()
                )));
            }
        };
        fitting.retain(|column| column.group == group);
        let mut place = LikeColumn { kernel, ..fitting[0].clone() };
        let cases: BTreeSet<&str> = fitting.iter().map(|column| column.case.as_str()).collect();
        // Tables of 2015 have rows of whole runs, whatever the case.
        if self.layout == Layout::Classic {
            return Ok(Some(place));
        }
        if is_pair && cases.len() > 1 {
            let cases = cases.into_iter().collect::<Vec<_>>().join(", ");
            return Err(UsageError::new(format!(
                "{run}: a pair of /proc/vmstat is of one case, and {} has several: {cases}",
                self.name
            )));
        }
        // Counters of other work than a case's are no counters of the case.
        // A case of thpscale is called after its thread counts: 3, or 1+3+5.
        let counts = place.case.strip_prefix("advised-").unwrap_or(&place.case);
        let is_of_counts = kind == Some(Kind::Faults) && place.workload != "thpfioscale";
        let is_same_work = cases.len() == 1 && (!is_of_counts || parts.join("+") == counts);
        if !is_pair && !is_same_work {
            test.clone_into(&mut place.case);
            place.params.clear();
        }
        Ok(Some(place))
    }
}
