//! Commands that stand beside a comparison or on a page: what makes it again, what shows more, what can be compared.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use report::{Cell, Column, Target, html::Kernel, short::text::list};

use super::shown::{Shown, strange};
use crate::{
    plan::Seeds,
    suggest::{beside, command, path},
};

/// A page that a user asks for.
#[derive(Clone, Debug)]
pub struct PageWanted {
    /// Result directories; columns of the first one are what others are compared with.
    pub results: Vec<PathBuf>,
    /// Only what was run with these seeds.
    pub seeds: Option<Seeds>,
    /// Kernels that are shown over time; else the first ones.
    pub kernels: Vec<String>,
    /// The case that is shown over time; else the first one with a map, or with samples.
    pub case: Option<String>,
    /// Chains of the slowest operations of each run that is shown over time.
    pub why: usize,
    /// The file that it goes to.
    pub output: PathBuf,
}

/// A sentence, and the command that it is about; empty where there is none.
pub(super) type How = (String, String);

/// Words of results, and of the seeds that are wanted of them.
fn of_results(name: &str, results: &[PathBuf], seeds: Option<Seeds>) -> Vec<String> {
    let results = results.iter().map(|result| path(result));
    let seeds = seeds.iter().flat_map(|seeds| ["--seeds".to_owned(), seeds.to_string()]);
    [name.to_owned()].into_iter().chain(results).chain(seeds).collect()
}

/// The command that makes a page, with these kernels and this case over time.
fn page(wanted: &PageWanted, kernels: &[String], case: Option<&str>) -> String {
    let mut words = of_results("report", &wanted.results, wanted.seeds);
    words.extend(kernels.iter().flat_map(|kernel| ["--kernel".to_owned(), kernel.clone()]));
    words.extend(case.iter().flat_map(|case| ["--case".to_owned(), (*case).to_owned()]));
    if wanted.why > 0 {
        words.extend(["--why".to_owned(), wanted.why.to_string()]);
    }
    words.extend(["-o".to_owned(), path(&wanted.output)]);
    command(words)
}

/// The command that makes this page again.
pub(super) fn this_page(wanted: &PageWanted) -> String {
    page(wanted, &wanted.kernels, wanted.case.as_deref())
}

/// The command that makes this page with chains of `why` operations of each run.
pub(super) fn with_chains(wanted: &PageWanted, why: usize) -> String {
    this_page(&PageWanted { why, ..wanted.clone() })
}

/// The command that compares all rows of results, with a column of the first where one is named.
pub(super) fn compare(results: &[PathBuf], seeds: Option<Seeds>, against: Option<&str>) -> String {
    let mut words = of_results("compare", results, seeds);
    words.extend(against.iter().flat_map(|column| ["--against".to_owned(), (*column).to_owned()]));
    command(words)
}

/// Parts that a page lacks, with the command that records each.
pub(super) fn lacks(kernels: &[Kernel], results: &[PathBuf], shown: &[Shown]) -> Vec<How> {
    let mut lacks = Vec::new();
    let of_which = |result: &Path| match results {
        [_] => String::new(),
        _ => format!(" of {}", path(result)),
    };
    for (result, shown) in results.iter().zip(shown) {
        let which = of_which(result);
        if kernels.iter().all(|kernel| kernel.map.is_none()) && shown.can_have_maps() {
            lacks.push(match shown.mapped_again(result) {
                Some(command) => (format!("No map of memory{which} is here; this records one:"), command),
                None => (format!("No map of memory{which} is here; {}.", shown.mapping(result)), String::new()),
            });
        }
        if kernels.iter().all(|kernel| kernel.series.is_none()) {
            lacks.push(match shown.sampled_again(result) {
                Some(command) => (format!("Nothing{which} was sampled over time; this samples:"), command),
                None => (format!("Nothing{which} was sampled over time; {}.", shown.sampling(result)), String::new()),
            });
        }
    }
    lacks
}

/// Kernels and cases that are in the results and not shown over time, each with the command that shows it.
pub(super) fn others(wanted: &PageWanted, case: &str, columns: &[Column], cells: &[Cell], most: usize) -> Vec<How> {
    let mut others = Vec::new();
    let of_case = cells.iter().filter(|cell| cell.key.case == case).map(|cell| cell.key.column());
    let rest: BTreeSet<Column> = of_case.filter(|column| !columns.contains(column)).collect();
    if !rest.is_empty() {
        let labels: Vec<String> = rest.iter().map(Column::label).collect();
        let first = &labels[..labels.len().min(most)];
        others.push((list("Other kernels over time: ", &labels, 300), page(wanted, first, Some(case))));
    }
    let cases: BTreeSet<&str> =
        cells.iter().map(|cell| cell.key.case.as_str()).filter(|other| *other != case).collect();
    if let Some(first) = cases.first() {
        let names: Vec<String> = cases.iter().map(|case| (*case).to_owned()).collect();
        others.push((list("Other cases over time: ", &names, 300), page(wanted, &[], Some(first))));
    }
    others
}

/// How results of different workloads are compared: the first result's workload on the second result's kernel, and each
/// result in itself.
pub(super) fn of_strangers(results: &[PathBuf], names: &[String], shown: &[Shown], seeds: Option<Seeds>) -> Vec<How> {
    let mut how = Vec::new();
    if let Some(other) = strange(shown) {
        how.extend(as_other(&results[other], (&names[0], &shown[0]), (&names[other], &shown[other])));
    }
    let several = results
        .iter()
        .zip(names)
        .zip(shown)
        .filter(|(_, shown)| shown.cells.iter().map(|cell| cell.key.column()).collect::<BTreeSet<_>>().len() > 1);
    how.extend(several.map(|((result, name), _)| {
        (format!("Columns of {name} with each other:"), compare(std::slice::from_ref(result), seeds, None))
    }));
    how
}

/// The run of `other` with the kernel of `first`, and its comparison with `other`; nothing where they have the same kernel.
fn as_other(result: &Path, (name, first): (&str, &Shown), (of, other): (&str, &Shown)) -> Vec<How> {
    let simulated = |shown: &'_ Shown| {
        let cell = shown.cells.iter().find(|cell| cell.key.target == Target::Sim)?;
        Some((cell.key.variant.clone(), cell.key.kernel.clone()))
    };
    let (Some((variant, _)), Some((own, kernel))) = (simulated(first), simulated(other)) else { return Vec::new() };
    let (Some(asked), Some(mut again)) = (first.again().map(|again| again.asked), other.again()) else {
        return Vec::new();
    };
    if variant == own {
        return Vec::new();
    }
    // The first variant of the first result, by the path that the user gave if it was one.
    let word = asked.variants.first().filter(|word| *word != "host").cloned().unwrap_or(variant.clone());
    again.asked.variants = vec![word];
    again.asked.columns = Vec::new();
    again.asked.kernels = Vec::new();
    again.asked.targets = vec![Target::Sim];
    let directory = beside(result, &variant);
    let label = kernel.strip_prefix(&own).unwrap_or_default();
    let results = [directory.clone(), result.to_owned()];
    vec![
        (format!("This runs {} with {variant}, as of {name}:", other.experiment), again.into(&directory)),
        (format!("and this compares {of} with it:"), compare(&results, None, Some(&format!("{variant}{label}")))),
    ]
}
