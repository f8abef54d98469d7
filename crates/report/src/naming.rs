//! Names of cases in rows: what is added to a case, or to a part of a case, so that no row shows two different things.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Cell, Key, Metric, OF_ALL_CASES};

/// Of a group of cells: the traits that rows have to name, by what rows are called without them.
pub(crate) struct Naming<'a> {
    traits: BTreeMap<Plain<'a>, BTreeSet<String>>,
}

/// The name of a row before traits are added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Plain<'a> {
    /// A case of the grid.
    Case(&'a str),
    /// A part of a case, by the name and class of its metric: a part has rows of its own.
    Part(&'a str, Option<&'a str>, &'a str),
}

impl<'a> Plain<'a> {
    fn of_metric(metric: &'a Metric) -> Option<Self> {
        Some(Self::Part(&metric.name, metric.class.as_deref(), metric.part.as_deref()?))
    }
}

/// A trait of a key, by name.
type Traits = BTreeMap<String, String>;
/// The trait that says the case itself, which parts leave out.
const CASE: &str = "case";

impl<'a> Naming<'a> {
    /// Finds the traits that differ between cells of one plain name and one column.
    pub(crate) fn of(cells: &[&'a Cell]) -> Self {
        let (mut columns, mut numbers, mut sets) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut first: BTreeMap<(Plain<'a>, usize), usize> = BTreeMap::new();
        let mut cases: BTreeMap<(Plain<'a>, usize, usize), &str> = BTreeMap::new();
        let mut all: BTreeMap<Plain<'a>, BTreeSet<String>> = BTreeMap::new();
        for &cell in cells {
            let next = columns.len();
            let column = *columns.entry(cell.key.column()).or_insert(next);
            let set = *numbers.entry(traits(&cell.key)).or_insert_with_key(|traits| {
                sets.push(traits.clone());
                sets.len() - 1
            });
            let parts: BTreeSet<Plain<'a>> = cell.measured.metrics.iter().filter_map(Plain::of_metric).collect();
            for plain in std::iter::once(Plain::Case(&cell.key.case)).chain(parts) {
                let named = all.entry(plain).or_default();
                let other = *first.entry((plain, column)).or_insert(set);
                if other != set {
                    named.extend(differing(&sets[other], &sets[set]));
                }
                // The case is said only where nothing else tells the cells apart: it follows from parameters, which say more.
                if *cases.entry((plain, column, set)).or_insert(&cell.key.case) != cell.key.case {
                    named.insert(CASE.to_owned());
                }
            }
        }
        Self { traits: all }
    }

    /// The name of a cell's case.
    pub(crate) fn case(&self, cell: &Cell) -> String {
        self.named(Plain::Case(&cell.key.case), &cell.key.case, &cell.key)
    }

    /// The name of the part of a case that a metric is of.
    ///
    /// # Panics
    /// When the metric is of no part.
    pub(crate) fn part(&self, cell: &Cell, metric: &Metric) -> String {
        let plain = Plain::of_metric(metric).expect("the metric is of a part");
        self.named(plain, metric.part.as_deref().unwrap_or_default(), &cell.key)
    }

    fn named(&self, plain: Plain<'_>, text: &str, key: &Key) -> String {
        let shown = match plain {
            // Whatever tells cells of one case apart.
            Plain::Part(OF_ALL_CASES, ..) => {
                let of_cases = self.traits.iter().filter(|(plain, _)| matches!(plain, Plain::Case(_)));
                of_cases.flat_map(|(_, traits)| traits.iter().cloned()).collect()
            }
            _ => self.traits.get(&plain).cloned().unwrap_or_default(),
        };
        if shown.is_empty() {
            return text.to_owned();
        }
        let mut traits = traits(key);
        traits.insert(CASE.to_owned(), key.case.clone());
        let shown = shown.iter().filter_map(|name| traits.get_key_value(name));
        shown.fold(text.to_owned(), |text, (name, value)| format!("{text},{name}={value}"))
    }
}

/// The names of traits that differ.
fn differing(one: &Traits, other: &Traits) -> BTreeSet<String> {
    let names = one.keys().chain(other.keys());
    names.filter(|name| one.get(*name) != other.get(*name)).cloned().collect()
}

/// Everything of a key that neither its column nor its case shows, but for the seed.
fn traits(key: &Key) -> Traits {
    let mut traits = key.params.clone();
    traits.insert("state".to_owned(), key.state.clone());
    traits.insert("variant".to_owned(), key.variant.clone());
    traits.insert("experiment".to_owned(), key.experiment.clone());
    // A workload may have a parameter `program`.
    traits.insert("program_hash".to_owned(), key.program.chars().take(8).collect());
    traits
}
