//! Results held against published tables: which claims hold, and how near changes are.

mod possible;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use report::{
    Cell, Layout, Ours, Page, Part, Published, Target,
    published::{Judgement, Scores, judge, scores},
};

use crate::{
    experiment::Experiment,
    mmtests::{self, Like},
    plan::{AcceleratorChoice, Request, Seeds, TIMEOUT_S},
    provenance, published, results,
    show::Format,
    suggest::{self, Again},
    usage::UsageError,
};

/// A series and what a result makes of its claims.
#[derive(Debug)]
pub struct Judged {
    published: Published,
    pub(crate) judgement: Judgement,
}

impl Judged {
    /// Whether it is reached; none where nothing could be judged.
    pub fn is_reached(&self) -> Option<bool> {
        self.judgement.is_reached()
    }
}

/// The series of these names; all where there are none.
pub fn series(names: &[String]) -> Result<Vec<Published>, UsageError> {
    let all = published::names();
    let names = if names.is_empty() { &all } else { names };
    names.iter().map(|name| published::load(name)).collect()
}

/// Runs for the claims of a series, if there are experiments that make its tables: the published columns of the main one,
/// and then what else claims need, each in a directory of its own. Directories are of these seeds and this program, so that the
/// same again goes on there.
pub fn requests(published: &Published, seeds: Seeds, workers: Option<usize>, out: Option<&Path>) -> Vec<Request> {
    let program = provenance::short(provenance::PROGRAM_HASH);
    let directory = Path::new("results").join(format!("claims-{}-{seeds}-{program}", published.name));
    let directory = out.map_or(directory, Path::to_owned);
    let columns =
        published.source.experiment.iter().flat_map(|experiment| published_columns(published, experiment)).collect();
    let also = published.source.also.iter().map(|experiment| {
        let mut beside = directory.clone().into_os_string();
        beside.push(format!("-{experiment}"));
        request(experiment.clone(), Vec::new(), seeds, workers, beside.into())
    });
    let also: Vec<_> = also.collect();
    let main = published.source.experiment.clone();
    main.map(|main| request(main, columns, seeds, workers, directory.clone())).into_iter().chain(also).collect()
}

/// Kernels of those columns of an experiment that are published; none where all are, or where the experiment cannot be read, of
/// which the run says why.
fn published_columns(published: &Published, experiment: &str) -> Vec<String> {
    let Ok(Experiment { columns, .. }) = Experiment::load(experiment) else { return Vec::new() };
    let all: BTreeSet<String> = columns.into_iter().map(|column| column.kernel).collect();
    let is_published =
        |kernel: &&String| published.source.columns.iter().any(|column| column.ours() == kernel.as_str());
    let some: Vec<String> = all.iter().filter(is_published).cloned().collect();
    if some.len() == all.len() { Vec::new() } else { some }
}

/// A run of an experiment in the simulator into a directory, all else as it is without options.
pub(crate) fn request(
    experiment: String,
    columns: Vec<String>,
    seeds: Seeds,
    workers: Option<usize>,
    out: PathBuf,
) -> Request {
    Request {
        experiment,
        targets: vec![Target::Sim],
        kernels: Vec::new(),
        machine: None,
        variants: Vec::new(),
        columns,
        sets: Vec::new(),
        seeds,
        state: None,
        memory: None,
        drop_caches: false,
        accelerator: AcceleratorChoice::Auto,
        timeout_s: TIMEOUT_S,
        workers,
        trace: false,
        sample: None,
        axes: Vec::new(),
        map: false,
        causes: false,
        out: Some(out),
    }
}

/// Judges the claims of a series by the results in directories; without one, says of each that it cannot be judged yet.
pub fn judged(published: Published, results: &[PathBuf], seeds: Option<Seeds>) -> Result<Judged, UsageError> {
    let ours = results.iter().map(|directory| ours(directory, seeds, &published));
    let judgement = match ours.collect::<Result<Vec<_>, _>>()?.into_iter().reduce(Ours::with) {
        None => judge(&published, Err("no experiment makes this table yet")),
        Some(ours) => {
            published.check_claims(&ours, &possible::possible(&published)).map_err(UsageError::from)?;
            judge(&published, Ok(&ours))
        }
    };
    Ok(Judged { published, judgement })
}

/// The series that a result keeps, or the one of this name as its files have it today, which has to be of the result's
/// experiment. Results of earlier programs keep none: theirs is the one of today whose tables their experiment makes.
///
/// # Errors
/// No result directory, no such series, or a series of another experiment.
pub fn series_of(directory: &Path, name: Option<&str>) -> Result<Published, UsageError> {
    if !mmtests::is_ours(directory) {
        return of_elsewhere(directory, name);
    }
    let (identity, _) = results::contents(directory, None)?;
    let kept = identity.presentation.as_ref().and_then(|presentation| presentation.published.as_ref());
    let is_gone = |name: &str| !published::names().iter().any(|known| known == name);
    if let Some(kept) = kept.filter(|kept| name.is_none_or(|name| kept.name == name && is_gone(name))) {
        return kept.parse();
    }
    let experiment = identity.keys.first().map_or("", |key| key.experiment.as_str());
    let place = directory.display();
    let Some(name) = name else {
        // A result keeps a series whose tables it makes, and no series that needs it beside its main experiment.
        let may_be_todays = |found: &Published| {
            identity.presentation.is_none() || found.source.experiment.as_deref() != Some(experiment)
        };
        let found = published::that_needs(experiment)?.filter(may_be_todays);
        return found.ok_or_else(|| {
            UsageError::new(format!("{place} is of experiment {experiment}, which makes no published table"))
        });
    };
    let published = published::load(name)?;
    let source = &published.source;
    match source.experiment.as_ref().or(source.also.first()) {
        Some(_) if source.also.iter().chain(&source.experiment).any(|needed| needed == experiment) => Ok(published),
        Some(needed) => {
            Err(UsageError::new(format!("{place} is of experiment {experiment}; {name} needs one of {needed}")))
        }
        None => Err(UsageError::new(format!("{name}: no experiment makes this table yet"))),
    }
}

/// The series of this name, for numbers that were measured elsewhere: they keep none.
fn of_elsewhere(directory: &Path, name: Option<&str>) -> Result<Published, UsageError> {
    // Whatever is wrong with them is said first.
    results::contents(directory, None)?;
    let known = || published::names().join(", ");
    let name = name.ok_or_else(|| {
        UsageError::in_file(
            directory.display(),
            format!("measured elsewhere; name the series it is held against: {}", known()),
        )
    })?;
    published::load(name)
}

/// The claims of these series in one of the formats.
pub fn claims(judged: &[Judged], format: Format) -> String {
    let parts = judged.iter().map(|judged| Part::Claims(&judged.published, &judged.judgement));
    format.of(&Page::of(parts.collect()))
}

/// How near the changes of a published table the result in a directory is.
pub fn score(
    directory: &Path,
    published: Option<&str>,
    seeds: Option<Seeds>,
    format: Format,
) -> Result<String, UsageError> {
    let published = series_of(directory, published)?;
    let scores: Scores = scores(&published, &ours(directory, seeds, &published)?);
    let foot = judged_by(directory, &published, seeds);
    Ok(format.of(&Page { foot, ..Page::of(vec![Part::Score(&published, &scores)]) }))
}

/// The command that judges the same runs.
fn judged_by(directory: &Path, published: &Published, seeds: Option<Seeds>) -> String {
    let mut words = vec!["claims".to_owned(), published.name.clone(), "--result".to_owned(), suggest::path(directory)];
    words.extend(seeds.iter().flat_map(|seeds| ["--seeds".to_owned(), seeds.to_string()]));
    format!("A score is for information. What is judged is claims:\n  {}\n", suggest::command(words))
}

/// Results of experiments beside the main one, where they lie beside its result: of `DIR`, `DIR-NAME`.
pub fn beside(directory: &Path, published: &Published) -> Vec<PathBuf> {
    let beside = published.source.also.iter().map(|experiment| {
        let mut beside = directory.to_owned().into_os_string();
        beside.push(format!("-{experiment}"));
        PathBuf::from(beside)
    });
    [directory.to_owned()].into_iter().chain(beside.filter(|beside| beside.is_dir())).collect()
}

fn ours(directory: &Path, seeds: Option<Seeds>, published: &Published) -> Result<Ours, UsageError> {
    let (identity, contents) = if mmtests::is_ours(directory) {
        results::contents(directory, seeds)?
    } else {
        results::contents_like(directory, seeds, Some(&Like::of_series(published)?))?
    };
    let cells: Vec<Cell> = report::cells(contents.records);
    let layout: Layout = identity.layout;
    if cells.len() < identity.keys.len() {
        let missing = identity.keys.len() - cells.len();
        let place = directory.display();
        let how = Again::of(&identity).map(|again| format!(" ({})", again.into(directory))).unwrap_or_default();
        return Err(UsageError::in_file(
            &place,
            format!(
                "{missing} of {} cells have no result; run it to its end{how}, or choose seeds that it has",
                identity.keys.len()
            ),
        ));
    }
    Ok(Ours::new(&cells, layout, published))
}
