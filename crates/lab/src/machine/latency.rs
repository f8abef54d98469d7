//! The `[latency]` of a machine file: how far memory is from each CPU. Without it memory is equally near everywhere.

use memory::cost::{self, HostPages, LastCache, TlbEntries, TlbReach, Walk};
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSecond, Picos};

use crate::{
    prices,
    source::{Scalar, TableReader, unknown},
    usage::UsageError,
};

/// The latency of accesses to memory on a machine, each figure with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// A load that has to come from memory.
    pub load: ByPlace,
    /// A cache line of a sweep of stores by one CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<ByPlace>,
    /// Time for a cache line that CPUs write in step to pass from one CPU's cache to another's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<ByPlace>,
    /// The last-level cache of each CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// The TLB of each CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlb: Option<Tlb>,
    /// The cache of a core between it and the last-level one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<Cache>,
    /// The entries of the TLBs of a CPU, from which follows how often it walks page tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlbs: Option<Tlbs>,
    /// Upper entries of page tables that walks need not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walk_cache: Option<WalkCache>,
    /// Of a guest: the host behind its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Limits of links between nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Links>,
    /// How much of each other CPUs take that are busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
}

/// Slow-down when CPUs are busy: the CPUs of a core share its speed, and the CPUs of a last-level cache share its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// The time of user code that needs no memory while another hardware thread of the core is busy, in percent of its time
    /// alone.
    pub core_percent: u32,
    /// By how much the time in which saturated memory serves a page differs at most between a CPU and the mean of all, in
    /// percent. Each run draws it anew for each CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uneven_percent: Option<u32>,
    /// The author and the way of the measurement, or that it is an assumption.
    pub source: String,
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

/// The TLBs of a CPU, by the number of their entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tlbs {
    /// Of the one that each access looks in: translations of base pages, of huge pages.
    pub first: [u64; 2],
    /// Of the one behind it, likewise.
    pub second: [u64; 2],
    /// A look into that, in picoseconds.
    pub ps: Picos,
    /// The author and the way of the measurement, or that it is an assumption.
    pub source: String,
}

/// A cache of upper entries of page tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkCache {
    /// Entries of PMD tables, of PUD tables, of the root.
    pub entries: [u64; 3],
    /// The author and the way of the measurement, or that it is an assumption.
    pub source: String,
}

/// A host that backs a guest's memory, whose page tables are walked with the guest's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// In which pages: one of [`HOST_PAGES`].
    pub pages: String,
    /// The author and the way of the measurement, or that it is an assumption.
    pub source: String,
}

/// Limits of the links between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// Bytes per second in millions, by the node of the CPU, and by that of the memory; 0 where there is no limit.
    pub mb_per_s: Vec<Vec<u64>>,
    /// The author and the way of the measurement, or that it is an assumption.
    pub source: String,
}

/// The pages in which a host may back a guest.
const HOST_PAGES: [(&str, HostPages); 3] =
    [("4KiB", HostPages::Base), ("2MiB", HostPages::Huge), ("as-guest", HostPages::AsGuest)];

const KEYS: &[&str] =
    &["load", "line", "handover", "cache", "tlb", "private", "tlbs", "walk_cache", "host", "links", "sharing"];

impl Latency {
    /// The figures for the simulator.
    pub fn figures(&self) -> cost::Latency {
        cost::Latency {
            load: self.load.ps.clone(),
            line: self.line.as_ref().map_or_else(Vec::new, |line| line.ps.clone()),
            handover: self.handover.as_ref().map_or_else(Vec::new, |handover| handover.ps.clone()),
            cache: self.cache.as_ref().map(|cache| LastCache { size: cache.size, load: cache.ps }),
            tlb: self.tlb.as_ref().map(|tlb| TlbReach { base: tlb.base, huge: tlb.huge, miss: tlb.ps }),
            walk: self.walk(),
            links: self.links.as_ref().map_or_else(Vec::new, Links::per_page),
            sharing: self.sharing.as_ref().map(|sharing| cost::latency::Sharing {
                core_percent: sharing.core_percent,
                uneven_percent: sharing.uneven_percent,
            }),
        }
    }

    /// A processor's way from an address to memory, where its TLBs are known.
    fn walk(&self) -> Option<Walk> {
        let tlbs = self.tlbs.as_ref()?;
        let entries = |[base, huge]: [u64; 2]| TlbEntries { base, huge };
        let pages = |host: &Host| HOST_PAGES.iter().find(|(name, _)| *name == host.pages).map(|(_, pages)| *pages);
        Some(Walk {
            first: entries(tlbs.first),
            second: entries(tlbs.second),
            second_hit: tlbs.ps,
            skips: self.walk_cache.as_ref().map_or([0; 3], |cache| cache.entries),
            private: self.private.as_ref().map(|cache| LastCache { size: cache.size, load: cache.ps }),
            host: self.host.as_ref().and_then(pages),
        })
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
            self.handover.as_ref().map(|handover| &handover.source),
            self.cache.as_ref().map(|cache| &cache.source),
            self.tlb.as_ref().map(|tlb| &tlb.source),
            self.private.as_ref().map(|cache| &cache.source),
            self.tlbs.as_ref().map(|tlbs| &tlbs.source),
            self.walk_cache.as_ref().map(|cache| &cache.source),
            self.host.as_ref().map(|host| &host.source),
            self.links.as_ref().map(|links| &links.source),
            self.sharing.as_ref().map(|sharing| &sharing.source),
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

/// The table `[latency]` of a file, for a machine with `nodes` nodes.
pub(super) fn read(root: &TableReader<'_>, nodes: usize) -> Result<Option<Latency>, UsageError> {
    let Some(table) = root.table("latency")? else { return Ok(None) };
    let table = table.only("figure", KEYS)?;
    let load = by_place(&table, "load", nodes)?.ok_or_else(|| {
        table.error("load", "missing; expected a figure such as { ns = [[90, 140], [140, 90]], source = \"...\" }")
    })?;
    let latency = Latency {
        load,
        line: by_place(&table, "line", nodes)?,
        handover: by_place(&table, "handover", nodes)?,
        cache: cache(&table, "cache")?,
        tlb: tlb(&table)?,
        private: cache(&table, "private")?,
        tlbs: tlbs(&table)?,
        walk_cache: walk_cache(&table)?,
        host: host(&table)?,
        links: links(&table, nodes)?,
        sharing: sharing(&table)?,
    };
    check(&table, &latency)?;
    Ok(Some(latency))
}

/// Refuses figures that nothing would use, and two that say the same.
fn check(table: &TableReader<'_>, latency: &Latency) -> Result<(), UsageError> {
    if latency.tlb.is_some() && latency.tlbs.is_some() {
        return Err(
            table.error("tlb", "a machine gives what its TLB reaches and a miss takes, or entries in tlbs: not both")
        );
    }
    let walks = [("private", latency.private.is_some()), ("walk_cache", latency.walk_cache.is_some())];
    let walks = walks.into_iter().chain([("host", latency.host.is_some())]);
    let mut lacking = walks.filter(|(_, is_given)| *is_given && latency.tlbs.is_none());
    if let Some((name, _)) = lacking.next() {
        return Err(table.error(name, "is for walks of page tables, which need the figure tlbs"));
    }
    if latency.private.is_some() && latency.cache.is_none() {
        return Err(table.error("private", "is in front of a last-level cache, which needs the figure cache"));
    }
    Ok(())
}

fn by_place(table: &TableReader<'_>, name: &str, nodes: usize) -> Result<Option<ByPlace>, UsageError> {
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

fn cache(table: &TableReader<'_>, name: &str) -> Result<Option<Cache>, UsageError> {
    let Some(figure) = table.table(name)? else { return Ok(None) };
    let figure = figure.only("key", &["size", "ns", "source"])?;
    Ok(Some(Cache { size: figure.required("size")?, ps: one_span(&figure)?, source: prices::source_of(&figure)? }))
}

/// From no slow-down to that of a core which does less with two threads than with one.
const CORE_PERCENT: std::ops::RangeInclusive<u64> = 100..=400;
/// A CPU's turn is at least half of the mean.
const UNEVEN_PERCENT: std::ops::RangeInclusive<u64> = 1..=50;

fn sharing(table: &TableReader<'_>) -> Result<Option<Sharing>, UsageError> {
    let Some(figure) = table.table("sharing")? else { return Ok(None) };
    let figure = figure.only("key", &["core_percent", "uneven_percent", "source"])?;
    let found: u64 = figure.required("core_percent")?;
    let percent = |key, found, range: std::ops::RangeInclusive<u64>, of| {
        let (least, most) = range.clone().into_inner();
        let percent = u32::try_from(found).ok().filter(|_| range.contains(&found));
        percent.ok_or_else(|| figure.error(key, format!("expected {least} to {most} (percent of {of}), found {found}")))
    };
    let core_percent = percent("core_percent", found, CORE_PERCENT, "the time alone")?;
    let found: Option<u64> = figure.optional("uneven_percent")?;
    let uneven_percent = found.map(|found| percent("uneven_percent", found, UNEVEN_PERCENT, "the mean")).transpose()?;
    Ok(Some(Sharing { core_percent, uneven_percent, source: prices::source_of(&figure)? }))
}

fn tlb(table: &TableReader<'_>) -> Result<Option<Tlb>, UsageError> {
    let Some(figure) = table.table("tlb")? else { return Ok(None) };
    let figure = figure.only("key", &["base", "huge", "ns", "source"])?;
    let (base, huge) = (figure.required("base")?, figure.required("huge")?);
    Ok(Some(Tlb { base, huge, ps: one_span(&figure)?, source: prices::source_of(&figure)? }))
}

fn tlbs(table: &TableReader<'_>) -> Result<Option<Tlbs>, UsageError> {
    let Some(figure) = table.table("tlbs")? else { return Ok(None) };
    let figure = figure.only("key", &["first", "second", "ns", "source"])?;
    let (first, second) = (entries(&figure, "first")?, entries(&figure, "second")?);
    Ok(Some(Tlbs { first, second, ps: one_span(&figure)?, source: prices::source_of(&figure)? }))
}

fn walk_cache(table: &TableReader<'_>) -> Result<Option<WalkCache>, UsageError> {
    let Some(figure) = table.table("walk_cache")? else { return Ok(None) };
    let figure = figure.only("key", &["entries", "source"])?;
    Ok(Some(WalkCache { entries: entries(&figure, "entries")?, source: prices::source_of(&figure)? }))
}

fn host(table: &TableReader<'_>) -> Result<Option<Host>, UsageError> {
    let Some(figure) = table.table("host")? else { return Ok(None) };
    let figure = figure.only("key", &["pages", "source"])?;
    let pages: String = figure.required("pages")?;
    if !HOST_PAGES.iter().any(|(name, _)| *name == pages) {
        return Err(figure.error("pages", unknown("page size", &pages, &HOST_PAGES.map(|(name, _)| name))));
    }
    Ok(Some(Host { pages, source: prices::source_of(&figure)? }))
}

impl Links {
    /// The time to send a page over each link; 0 where it has no limit.
    fn per_page(&self) -> Vec<Vec<Picos>> {
        let takes = |mb: u64| {
            let rate = BytesPerSecond::new(Bytes(mb * 1_000_000));
            rate.map_or(Picos(0), |rate| rate.takes(Bytes::PAGE))
        };
        self.mb_per_s.iter().map(|row| row.iter().map(|mb| takes(*mb)).collect()).collect()
    }
}

/// From the slowest link that there is use for to more than any memory gives.
const LINKS: std::ops::RangeInclusive<u64> = 1..=10_000_000;

fn links(table: &TableReader<'_>, nodes: usize) -> Result<Option<Links>, UsageError> {
    let Some(figure) = table.table("links")? else { return Ok(None) };
    let figure = figure.only("key", &["mb_per_s", "source"])?;
    let mb_per_s: Vec<Vec<u64>> = figure.required("mb_per_s")?;
    let error = |message: String| Err(figure.error("mb_per_s", message));
    if mb_per_s.len() != nodes || mb_per_s.iter().any(|row| row.len() != nodes) {
        return error(format!(
            "expected {nodes} lists of {nodes} numbers: by the node of the CPU, by that of the memory; 0 is no limit"
        ));
    }
    let beyond = mb_per_s.iter().flatten().find(|mb| **mb > 0 && !LINKS.contains(*mb));
    if let Some(beyond) = beyond {
        let (least, most) = LINKS.into_inner();
        return error(format!("expected 0 (no limit) or {least} to {most} MB/s, found {beyond}"));
    }
    Ok(Some(Links { mb_per_s, source: prices::source_of(&figure)? }))
}

/// More entries than any TLB has.
const ENTRIES_MAX: u64 = 1 << 24;

/// Reads an entry that is a list of `N` numbers.
fn entries<const N: usize>(figure: &TableReader<'_>, key: &str) -> Result<[u64; N], UsageError> {
    let given: Vec<u64> = figure.required(key)?;
    let found: Option<[u64; N]> = given.try_into().ok();
    found
        .filter(|found| found.iter().all(|entries| *entries <= ENTRIES_MAX))
        .ok_or_else(|| figure.error(key, format!("expected {N} numbers of entries, from 0 to {ENTRIES_MAX} each")))
}

fn one_span(figure: &TableReader<'_>) -> Result<Picos, UsageError> {
    let Scalar(text) = figure.required("ns")?;
    span(figure, "ns", &text)
}

/// The longest that an access may take.
const MAX: Picos = Picos::from_micros(1000);

fn span(figure: &TableReader<'_>, key: &str, text: &str) -> Result<Picos, UsageError> {
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
    let places =
        [("load", Some(&latency.load)), ("line", latency.line.as_ref()), ("handover", latency.handover.as_ref())];
    for (name, figure) in places.into_iter().filter_map(|(name, figure)| Some((name, figure?))) {
        let row =
            |row: &Vec<Picos>| format!("[{}]", row.iter().map(|ps| prices::ns(*ps)).collect::<Vec<_>>().join(", "));
        let rows = figure.ps.iter().map(row).collect::<Vec<_>>().join(", ");
        text += &format!("{name} = {{ ns = [{rows}], source = {} }}\n", quoted(&figure.source));
    }
    for (name, cache) in [("cache", &latency.cache), ("private", &latency.private)] {
        let Some(Cache { size, ps, source }) = cache else { continue };
        let size = quoted(&size.to_string());
        text += &format!("{name} = {{ size = {size}, ns = {}, source = {} }}\n", prices::ns(*ps), quoted(source));
    }
    if let Some(Tlbs { first, second, ps, source }) = &latency.tlbs {
        let (ns, source) = (prices::ns(*ps), quoted(source));
        text += &format!("tlbs = {{ first = {first:?}, second = {second:?}, ns = {ns}, source = {source} }}\n");
    }
    if let Some(WalkCache { entries, source }) = &latency.walk_cache {
        text += &format!("walk_cache = {{ entries = {entries:?}, source = {} }}\n", quoted(source));
    }
    if let Some(Links { mb_per_s, source }) = &latency.links {
        text += &format!("links = {{ mb_per_s = {mb_per_s:?}, source = {} }}\n", quoted(source));
    }
    if let Some(Sharing { core_percent, uneven_percent, source }) = &latency.sharing {
        let uneven = uneven_percent.map_or_else(String::new, |percent| format!("uneven_percent = {percent}, "));
        text += &format!("sharing = {{ core_percent = {core_percent}, {uneven}source = {} }}\n", quoted(source));
    }
    if let Some(Host { pages, source }) = &latency.host {
        text += &format!("host = {{ pages = {}, source = {} }}\n", quoted(pages), quoted(source));
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
