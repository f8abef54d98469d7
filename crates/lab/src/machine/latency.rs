//! The `[latency]` of a machine file: how far memory is from each CPU. Without it memory is equally near everywhere.

use mm::cost::{self, LastCache, TlbReach};
use serde::{Deserialize, Serialize};
use units::{Bytes, Picos};

use crate::{
    prices,
    source::{Scalar, SourceError, TableReader},
};

/// The latency of accesses to memory on a machine, each figure with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// A load that has to come from memory.
    pub load: ByPlace,
    /// A cache line of a sweep of stores by one CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<ByPlace>,
    /// The last-level cache of each CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// The TLB of each CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlb: Option<Tlb>,
}

/// A figure for each pair of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByPlace {
    /// In picoseconds, by the node of the CPU, and by that of the memory.
    pub ps: Vec<Vec<Picos>>,
    /// The author and the way of the measurement, or that it is an assumption.
    pub source: String,
}

/// A last-level cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// The size of the cache.
    pub size: Bytes,
    /// A load from it, in picoseconds.
    pub ps: Picos,
    /// The author and the way of the measurement, or that it is an assumption.
    pub source: String,
}

/// The reach of a TLB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tlb {
    /// In base pages.
    pub base: Bytes,
    /// In huge pages.
    pub huge: Bytes,
    /// Finding a translation that it does not hold, in picoseconds.
    pub ps: Picos,
    /// The author and the way of the measurement, or that it is an assumption.
    pub source: String,
}

const KEYS: &[&str] = &["load", "line", "cache", "tlb"];

impl Latency {
    /// The figures for the simulator.
    pub fn figures(&self) -> cost::Latency {
        cost::Latency {
            load: self.load.ps.clone(),
            line: self.line.as_ref().map_or_else(Vec::new, |line| line.ps.clone()),
            cache: self.cache.as_ref().map(|cache| LastCache { size: cache.size, load: cache.ps }),
            tlb: self.tlb.as_ref().map(|tlb| TlbReach { base: tlb.base, huge: tlb.huge, miss: tlb.ps }),
        }
    }

    /// In words: how far the nearest and the farthest memory is, and how much of that is assumed.
    pub fn summary(&self) -> String {
        let nodes = self.load.ps.len();
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        let load = |own: bool| {
            let loads = pairs.clone().filter(|(from, to)| (from == to) == own).map(|(from, to)| self.load.ps[from][to]);
            loads.clone().min().map(|least| match loads.max() {
                Some(most) if most > least => format!("{} to {} ns", prices::ns(least), prices::ns(most)),
                _ => format!("{} ns", prices::ns(least)),
            })
        };
        let own = load(true).expect("a machine has nodes");
        let others = load(false).map_or_else(String::new, |others| format!(", from another node {others}"));
        let sources = [
            Some(&self.load.source),
            self.line.as_ref().map(|line| &line.source),
            self.cache.as_ref().map(|cache| &cache.source),
            self.tlb.as_ref().map(|tlb| &tlb.source),
        ];
        let sources: Vec<&String> = sources.into_iter().flatten().collect();
        let assumed = sources.iter().filter(|source| prices::is_assumed(source)).count();
        format!(
            "a load from memory takes {own}{others}; {assumed} of {} figures of [latency] are assumed",
            sources.len()
        )
    }
}

/// The note about a machine without distances.
pub const FLAT: &str = "memory is equally near everywhere: the machine gives no [latency]";

/// The `[latency]` of a file, of a machine of so many nodes.
pub(super) fn read(root: &TableReader<'_>, nodes: usize) -> Result<Option<Latency>, SourceError> {
    let Some(table) = root.table("latency")? else { return Ok(None) };
    let table = table.only("figure", KEYS)?;
    let load = by_place(&table, "load", nodes)?.ok_or_else(|| {
        table.error("load", "missing; expected a figure such as { ns = [[90, 140], [140, 90]], source = \"...\" }")
    })?;
    Ok(Some(Latency { load, line: by_place(&table, "line", nodes)?, cache: cache(&table)?, tlb: tlb(&table)? }))
}

fn by_place(table: &TableReader<'_>, name: &str, nodes: usize) -> Result<Option<ByPlace>, SourceError> {
    let Some(figure) = table.table(name)? else { return Ok(None) };
    let figure = figure.only("key", &["ns", "source"])?;
    let rows: Vec<Vec<Scalar>> = figure.required("ns")?;
    if rows.len() != nodes || rows.iter().any(|row| row.len() != nodes) {
        let message =
            format!("expected {nodes} lists of {nodes} numbers: by the node of the CPU, by that of the memory");
        return Err(figure.error("ns", message));
    }
    let row = |row: Vec<Scalar>| row.into_iter().map(|Scalar(text)| span(&figure, "ns", &text)).collect();
    let ps = rows.into_iter().map(row).collect::<Result<_, _>>()?;
    Ok(Some(ByPlace { ps, source: prices::source_of(&figure)? }))
}

fn cache(table: &TableReader<'_>) -> Result<Option<Cache>, SourceError> {
    let Some(figure) = table.table("cache")? else { return Ok(None) };
    let figure = figure.only("key", &["size", "ns", "source"])?;
    Ok(Some(Cache { size: figure.required("size")?, ps: one_span(&figure)?, source: prices::source_of(&figure)? }))
}

fn tlb(table: &TableReader<'_>) -> Result<Option<Tlb>, SourceError> {
    let Some(figure) = table.table("tlb")? else { return Ok(None) };
    let figure = figure.only("key", &["base", "huge", "ns", "source"])?;
    let (base, huge) = (figure.required("base")?, figure.required("huge")?);
    Ok(Some(Tlb { base, huge, ps: one_span(&figure)?, source: prices::source_of(&figure)? }))
}

fn one_span(figure: &TableReader<'_>) -> Result<Picos, SourceError> {
    let Scalar(text) = figure.required("ns")?;
    span(figure, "ns", &text)
}

/// The longest that an access may take.
const MAX: Picos = Picos::from_micros(1000);

fn span(figure: &TableReader<'_>, key: &str, text: &str) -> Result<Picos, SourceError> {
    prices::thousandths(text, 3).filter(|span| (Picos(1)..=MAX).contains(span)).ok_or_else(|| {
        figure.error(
            key,
            format!("expected a number above 0 with at most 3 decimals, at most a millisecond, found {text}"),
        )
    })
}

/// The text of the table, for a machine file.
pub(super) fn write(latency: &Latency, quoted: impl Fn(&str) -> String) -> String {
    let mut text = String::from("\n# By the node of the CPU, by the node of the memory.\n[latency]\n");
    let places = [("load", Some(&latency.load)), ("line", latency.line.as_ref())];
    for (name, figure) in places.into_iter().filter_map(|(name, figure)| Some((name, figure?))) {
        let row =
            |row: &Vec<Picos>| format!("[{}]", row.iter().map(|ps| prices::ns(*ps)).collect::<Vec<_>>().join(", "));
        let rows = figure.ps.iter().map(row).collect::<Vec<_>>().join(", ");
        text += &format!("{name} = {{ ns = [{rows}], source = {} }}\n", quoted(&figure.source));
    }
    if let Some(Cache { size, ps, source }) = &latency.cache {
        let size = quoted(&size.to_string());
        text += &format!("cache = {{ size = {size}, ns = {}, source = {} }}\n", prices::ns(*ps), quoted(source));
    }
    if let Some(Tlb { base, huge, ps, source }) = &latency.tlb {
        let [base, huge] = [base, huge].map(|size| quoted(&size.to_string()));
        let (ns, source) = (prices::ns(*ps), quoted(source));
        text += &format!("tlb = {{ base = {base}, huge = {huge}, ns = {ns}, source = {source} }}\n");
    }
    text
}

#[cfg(test)]
mod tests;
