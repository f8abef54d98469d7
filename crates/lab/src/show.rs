//! From a result directory to what is printed: a pure function of the files, so that tables are redrawn without rerunning.

mod again;
pub mod between;
mod brief;
mod chains;
mod columns;
mod commands;
pub mod compare;
mod counts;
mod head;
mod headline;
mod html;
mod map;
mod over_time;
mod print;
#[cfg(test)]
mod rows;
mod rules;
mod shown;
mod tail;
#[cfg(test)]
mod tests;
mod zones;

use std::{collections::BTreeSet, path::Path};

use report::{
    Beside, Cell, Key, Page, Part, Report, Target, WIDTH,
    compare::{Comparison, Gates, summary_of},
    footprint::footprint_text,
    frontier, frontier_csv, frontier_text,
};

pub(crate) use self::shown::{Shown, read};
use self::zones::ZoneTables;
pub use self::{
    chains::CHAINS_MAX,
    columns::{Which, columns},
    commands::PageWanted,
    html::{Shows, page},
    map::{At, MapWanted, map},
    over_time::{series, stalls},
    print::{Causes, Format, Print},
};
use crate::{plan::Seeds, results::contents, usage::UsageError};

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
