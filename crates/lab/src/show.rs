//! From a result directory to what is printed: a pure function of the files, so that tables are redrawn without rerunning.

mod again;
mod brief;
mod columns;
mod commands;
pub mod compare;
mod head;
mod html;
mod map;
mod over_time;
#[cfg(test)]
mod rows;
mod rules;
mod tail;
#[cfg(test)]
mod tests;
mod zones;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    path::Path,
};

use report::{
    Beside, Cell, Contents, Key, Page, Part, Published, Record, Report, Skipped, System, Target, WIDTH,
    compare::{Comparison, Gates, summary_of},
    footprint::footprint_text,
    frontier, frontier_csv, frontier_text,
};

use self::zones::ZoneTables;
pub use self::{
    columns::{Which, columns},
    html::{PageWanted, Shows, page},
    map::{At, MapWanted, map},
    over_time::{series, stalls},
};
use crate::{
    counted,
    mmtests::{self, Like},
    plan::{Identity, Seeds, Simulated},
    presentation::Presentation,
    provenance,
    run::{self, IDENTITY_FILE},
    suggest::Again,
    usage::UsageError,
};

/// Why there is no time by cause.
const ONLY_SIM: &str = "only the simulator knows it";

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Tables in mmtests' layout.
    Text,
    /// One line per value.
    Csv,
    /// Everything.
    Json,
}

impl Format {
    /// A page in this form; as text with every row.
    pub(crate) fn of(self, page: &Page<'_>) -> String {
        match self {
            Self::Text => page.to_text(),
            Self::Csv => page.to_csv(),
            Self::Json => page.to_json(),
        }
    }
}

/// Whether tables of time by cause are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Causes {
    /// They are left out.
    No,
    /// They are, where they are known.
    Yes,
    /// They were asked for by name: a result that knows none is refused.
    Required,
}

/// What is printed of a result, and how.
#[derive(Clone, Copy, Debug)]
pub struct Print {
    /// In which form.
    pub format: Format,
    /// Whether with times by cause.
    pub causes: Causes,
    /// As text: every row as mmtests prints it, and all that is known of where the numbers come from.
    pub full: bool,
    /// As text: nothing before the tables.
    pub quiet: bool,
}

/// A result as read, in the order of its experiment.
pub(crate) struct Shown {
    experiment: String,
    /// Hash of the program that made it.
    pub(crate) program: String,
    pub(crate) presentation: Presentation,
    pub(crate) cells: Vec<Cell>,
    systems: Vec<System>,
    /// Seconds from QEMU's start to the first operation, one per boot, with the kernel.
    boots: Vec<(String, f64)>,
    skipped: Vec<Skipped>,
    pub(crate) missing: usize,
    pub(crate) report: Report,
    /// The series whose tables these are.
    published: Option<Published>,
    zones: Vec<ZoneTables>,
    simulated: Vec<Simulated>,
    /// The run of this result once more, where it is known what was asked for.
    again: Option<Again>,
    /// Where time by cause was asked for and is not known.
    without_causes: Vec<Target>,
}

impl Shown {
    /// Refuses a result without times by cause where they are required.
    fn check_causes(&self, causes: Causes, directory: &Path) -> Result<(), UsageError> {
        if causes == Causes::Required && self.cells.iter().all(|cell| cell.measured.causes.is_empty()) {
            let place = directory.display();
            return Err(UsageError::of_key("--causes", format!("nothing in {place} says where time went; {ONLY_SIM}")));
        }
        Ok(())
    }
}

/// Prints the result in `directory`, or what of it has one of these seeds.
pub fn render(directory: &Path, seeds: Option<Seeds>, print: Print) -> Result<String, UsageError> {
    let Print { format, causes, .. } = print;
    let mut shown = read(directory, seeds)?;
    let with_causes = causes != Causes::No;
    shown.check_causes(causes, directory)?;
    if with_causes {
        shown.report.tables.extend(report::causes(&shown.cells));
        let without: BTreeSet<Target> =
            shown.cells.iter().filter(|cell| cell.measured.causes.is_empty()).map(|cell| cell.key.target).collect();
        shown.without_causes = without.into_iter().collect();
    }
    Ok(match format {
        Format::Text if print.full => full_page(&shown, print.quiet).to_text(),
        Format::Text => short_page(&shown, print.quiet).to_short(),
        Format::Csv => page_of_values(&shown, with_causes).to_csv(),
        Format::Json => document(&shown).to_json(),
    })
}

/// Lines for above the tables of a result: whose rules its simulated columns have, and what no rule says.
pub(crate) fn rules_of(directory: &Path) -> Result<Vec<String>, UsageError> {
    Ok(rules::lines(&contents(directory, None)?.0.simulated))
}

/// A report of each seed alone, with the tables of the whole one.
fn by_seed(shown: &Shown, with_causes: bool) -> Vec<(u64, Report)> {
    let seeds: BTreeSet<u64> = shown.cells.iter().map(|cell| cell.key.seed).collect();
    let of = |seed| {
        let cells: Vec<Cell> = shown.cells.iter().filter(|cell| cell.key.seed == seed).cloned().collect();
        // A counter that is shown for what it did under one seed is shown under all.
        let mut report = Report::of_layout(shown.report.layout, &cells, 0);
        if with_causes {
            report.tables.extend(report::causes(&cells));
        }
        (seed, report)
    };
    seeds.into_iter().map(of).collect()
}

/// What a result directory holds, or what of it has one of these seeds.
pub(crate) fn contents(directory: &Path, seeds: Option<Seeds>) -> Result<(Identity, Contents), UsageError> {
    contents_like(directory, seeds, None)
}

/// Reads a result directory, or numbers that were measured elsewhere: those in the rows of another result or series, where one is
/// given.
pub(crate) fn contents_like(
    directory: &Path,
    seeds: Option<Seeds>,
    like: Option<&Like>,
) -> Result<(Identity, Contents), UsageError> {
    let lacks_identity = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory);
    let is_from_elsewhere = directory.join(IDENTITY_FILE).metadata().is_err_and(|error| lacks_identity(error.kind()));
    let (mut identity, mut contents) = if is_from_elsewhere {
        mmtests::contents(directory, like)?
    } else {
        let (identity, mut contents) = run::read(directory)?;
        counted::fill(&identity, &mut contents.records);
        (identity, contents)
    };
    if let Some(seeds) = seeds {
        leave_out(&mut identity.keys, &mut contents.records, seeds)?;
    }
    Ok((identity, contents))
}

pub(crate) fn read(directory: &Path, seeds: Option<Seeds>) -> Result<Shown, UsageError> {
    read_like(directory, seeds, None)
}

/// Reads a result, or numbers that were measured elsewhere: those in the rows of another result, where one is given.
fn read_like(directory: &Path, seeds: Option<Seeds>, like: Option<&Like>) -> Result<Shown, UsageError> {
    let (identity, contents) = contents_like(directory, seeds, like)?;
    let place: BTreeMap<_, _> = identity.keys.iter().zip(0..).collect();
    let skipped = run::skips(&contents.records);
    let unable = skipped.iter().filter(|skipped| skipped.key.is_some()).count();
    let mut systems: Vec<System> = Vec::new();
    let mut boots = Vec::new();
    for record in &contents.records {
        if let Record::System(system) = record {
            // A resumed run or a further seed boots again; what the kernel computes of its zones is the same.
            let same = |known: &System| known.column() == system.column();
            // Which seed it was for, nobody knows.
            let seconds = system.run.boot_s.filter(|_| seeds.is_none());
            boots.extend(seconds.map(|seconds| (system.kernel.clone(), seconds)));
            if !systems.iter().any(same) {
                systems.push(system.clone());
            }
        }
    }
    let mut cells = report::cells(contents.records);
    if cells.is_empty() {
        let (place, planned) = (directory.display(), identity.keys.len());
        return Err(UsageError::in_file(
            &place,
            format!("none of its {planned} cells is done; the same run with `-o {place}` goes on"),
        ));
    }
    cells.sort_by_key(|cell| place.get(&cell.key).copied());
    for cell in &mut cells {
        // They follow from what was seen of a guest that nobody can repeat, and are no part of what was measured.
        let of_host = cell.footprint.as_ref().map(report::Footprint::metrics);
        cell.measured.metrics.extend(of_host.into_iter().flatten());
    }
    let experiment = identity.keys.first().map_or_else(String::new, |key| key.experiment.clone());
    let again = Again::of(&identity);
    let presentation = match identity.presentation {
        Some(kept) => kept,
        None => Presentation::of_older(&experiment, cells.iter().map(|cell| &cell.key))?,
    };
    let zones = |system| ZoneTables::of(system, &identity.simulated, &presentation.rules);
    let zones = systems.iter().map(zones).collect();
    let report = Report::of_layout(identity.layout, &cells, presentation.counter_threshold);
    let published = presentation.series()?;
    let program = cells.first().map_or(provenance::PROGRAM_HASH, |cell| &cell.key.program).to_owned();
    Ok(Shown {
        experiment,
        program,
        presentation,
        published,
        again,
        missing: identity.keys.len().saturating_sub(cells.len() + unable),
        cells,
        systems,
        boots,
        skipped,
        report,
        zones,
        simulated: identity.simulated,
        without_causes: Vec::new(),
    })
}

/// Leaves out what has none of these seeds, all of which the result must have.
fn leave_out(keys: &mut Vec<Key>, records: &mut Vec<Record>, seeds: Seeds) -> Result<(), UsageError> {
    let all = || keys.iter().map(|key| key.seed);
    let (first, last) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
    if let Some(lacks) = seeds.all().find(|seed| !(first..=last).contains(seed)) {
        return Err(UsageError::of_key("--seeds", format!("the result has no seed {lacks}; it has {first}-{last}")));
    }
    keys.retain(|key| seeds.contains(key.seed));
    records.retain(|record| match record {
        Record::Cell(Cell { key, .. }) | Record::Skipped(Skipped { key: Some(key), .. }) => seeds.contains(key.seed),
        Record::System(_) | Record::Skipped(_) => true,
    });
    Ok(())
}

/// Cells with a guest's memory on its host, each with the name of its case in tables.
fn with_guests(shown: &Shown) -> Vec<Cell> {
    let names = report::operations(&shown.cells);
    let with = shown.cells.iter().filter(|cell| cell.footprint.is_some()).cloned();
    with.map(|cell| Cell { key: Key { case: names[&cell.key].clone(), ..cell.key }, ..cell }).collect()
}

/// Every row as mmtests prints it, and where all numbers come from.
fn full_page(shown: &Shown, quiet: bool) -> Page<'_> {
    let head = if quiet { String::new() } else { head::head(shown) };
    let tables = Part::Tables(&shown.report, Beside::default());
    let of_guests = with_guests(shown);
    let of_guests = [frontier_text(&frontier(&of_guests)), footprint_text(&of_guests)];
    let of_guests = of_guests.into_iter().filter(|text| !text.is_empty());
    let zones = shown.zones.iter().map(ZoneTables::text);
    let parts = std::iter::once(tables).chain(of_guests.chain(zones).map(Part::Text)).collect();
    Page { head, parts, foot: tail::tail(shown) + &summary(shown) }
}

/// A screen: what was compared, by how much it differs, how sure that is, and what is known to be wrong.
fn short_page(shown: &Shown, quiet: bool) -> Page<'_> {
    let beside = Beside { published: shown.published.as_ref(), titles: shown.presentation.titles.clone() };
    let head = if quiet { String::new() } else { brief::head(shown) };
    let of_guests = with_guests(shown);
    let texts = [frontier_text(&frontier(&of_guests)), footprint_text(&of_guests), brief::zones(&shown.zones)];
    let parts = std::iter::once(Part::Tables(&shown.report, beside)).chain(texts.map(Part::Text)).collect();
    Page { head, parts, foot: brief::tail(shown) + &summary(shown) }
}

/// The last three lines: what moved, what is worst, and what runs could not tell.
fn summary(shown: &Shown) -> String {
    let report = Report::with_all_counters(shown.report.layout, &shown.cells);
    let lines = summary_of(&report, &Comparison::of(&report, Gates::default()), WIDTH);
    std::iter::once(String::new()).chain(lines).map(|line| line + "\n").collect()
}

/// Every value.
fn page_of_values(shown: &Shown, with_causes: bool) -> Page<'_> {
    let zones = zones::csv(&shown.zones, &shown.experiment);
    let frontier = frontier_csv(&frontier(&with_guests(shown)), &shown.experiment);
    let tables = Part::Tables(&shown.report, Beside::default());
    let by_seed = Part::BySeed(by_seed(shown, with_causes));
    Page::of(vec![tables, by_seed, Part::Values(zones), Part::Values(frontier)])
}

/// Everything a program may want.
fn document(shown: &Shown) -> Page<'_> {
    Page::of(vec![
        Part::Fields(vec![("schema", &report::SCHEMA), ("program", &shown.program)]),
        Part::Tables(&shown.report, Beside::default()),
        Part::Fields(vec![
            ("zones", &shown.zones),
            ("cells", &shown.cells),
            ("systems", &shown.systems),
            ("simulated", &shown.simulated),
            ("skipped", &shown.skipped),
            ("missing", &shown.missing),
        ]),
    ])
}
