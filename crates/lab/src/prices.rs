//! Prices of primitive operations on a machine: the `[prices]` of its file, each with its source.
//!
//! A price that a machine leaves open is taken from `machines/prices/generic.toml`. None is taken from a benchmark that is then
//! compared: fault-storm least of all.

#[cfg(test)]
mod tests;

use std::{ops::RangeInclusive, sync::LazyLock};

use memory::cost::{Prices, Work};
use serde::{Deserialize, Serialize};
use units::Picos;

use crate::{
    source::{Scalar, Source, TableReader},
    usage::UsageError,
};

/// A price of a machine file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    /// The operation.
    pub work: Work,
    /// The price.
    pub takes: Picos,
    /// How far measurements of it lie apart, when somebody says.
    pub range: Option<Range>,
    /// The author and the way of the measurement; or that it is assumed, or chosen to fit a published table: see [`Origin`].
    pub source: String,
}

/// How a figure of a machine file came about. Its source begins with the word, if it is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Measured, by us or by others.
    Measured,
    /// Chosen so that some row of a published table comes out: `fitted: which`.
    Fitted,
    /// Assumed, and not measured: `assumed: why`.
    Assumed,
}

/// The time of work on a CPU while the other hardware threads of its core are busy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedCore {
    /// Percent of the time that it takes alone.
    pub percent: u32,
    /// The author and the way of the measurement, or that it is an assumption.
    pub source: String,
}

/// Where most measurements of a price lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// A tenth of them are less.
    pub low: Picos,
    /// A tenth of them are more.
    pub high: Picos,
}

/// Something that was measured and that no operation of the simulator stands for: for readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The figure's name.
    pub name: String,
    /// The figure.
    pub takes: Picos,
    /// How far measurements of it lie apart, when somebody says.
    pub range: Option<Range>,
    /// The author and the way of the measurement.
    pub source: String,
}

/// A price that a run uses, as its result records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Name of the operation.
    pub work: String,
    /// The price, in picoseconds.
    pub ps: u64,
    /// The author and the way of the measurement, or that it is an assumption.
    pub source: String,
    /// Not the machine's own.
    pub generic: bool,
}

const ASSUMED: &str = "assumed";
/// The beginning of a source that is generic but for the machine's pace.
const OF_GENERIC: &str = " percent of generic: ";
const FITTED: &str = "fitted";
/// Measured by one of our own benchmarks, a price would explain what it was taken from.
const COMPARED: &str = "fault-storm";
/// More than this and a core would be better off with one thread.
const SHARED_CORE_MAX: u64 = 400;
/// One second: far beyond any primitive operation, and far from overflow when many are added.
const MAX: Picos = Picos::from_secs(1);
const FORM: &str = "expected a price such as { ns = 281.5, source = \"who measured it, or assumed: why\" }";
const SHARED_CORE_FORM: &str = "expected such as { percent = 160, source = \"who measured it, or assumed: why\" }";

const PACE_FORM: &str = "expected such as { percent = 200, source = \"who measured it, or assumed: why\" }";

static GENERIC: LazyLock<(Vec<Price>, SharedCore)> = LazyLock::new(|| {
    let text = include_str!("../../../machines/prices/generic.toml");
    let source = Source::from_text("built-in machines/prices/generic.toml", text);
    let both = source.parse().and_then(|document| {
        let root = document.root().only("key", &["about", "shared_core", "prices"])?;
        let shared = read_shared_core(&root)?.ok_or_else(|| root.error("shared_core", "missing"))?;
        Ok((read(&root)?, shared))
    });
    both.unwrap_or_else(|error| panic!("{error}"))
});

static COUNTED: LazyLock<Vec<Price>> = LazyLock::new(|| {
    let text = include_str!("../../../machines/prices/instructions.toml");
    let source = Source::from_text("built-in machines/prices/instructions.toml", text);
    let prices = source.parse().and_then(|document| read(&document.root().only("key", &["about", "prices"])?));
    prices.unwrap_or_else(|error| panic!("{error}"))
});

/// The prices of machines that give none of their own.
pub fn generic() -> &'static [Price] {
    &GENERIC.0
}

/// The prices of a guest that counts time in instructions, with `ns` nanoseconds per instruction.
pub fn of_instructions(ns: u64) -> Vec<Price> {
    let price = |generic: &Price| {
        let own = COUNTED.iter().find(|own| own.work == generic.work);
        let (takes, source) = own.map_or_else(
            || {
                let times = REST_PER_NS * ns;
                (generic.takes.0 * times, format!("{ASSUMED}: {times} times the generic price: {}", generic.source))
            },
            |own| (own.takes.0 * ns / COUNTED_NS, format!("{ns} of {COUNTED_NS} ns an instruction: {}", own.source)),
        );
        Price { work: generic.work, takes: Picos(takes), range: None, source }
    };
    generic().iter().map(price).collect()
}

/// Nanoseconds of an instruction in `machines/prices/instructions.toml`.
const COUNTED_NS: u64 = 4;
/// How many times its generic price an operation takes that was not measured in such a guest, for each nanosecond that an
/// instruction takes there: the median of those that were.
const REST_PER_NS: u64 = 5;

/// The slow-down of sharing a core on a machine that says this of it.
pub fn shared_core(own: Option<&SharedCore>) -> &SharedCore {
    own.unwrap_or_else(|| &GENERIC.1)
}

/// How fast a machine is, where it gives no price of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The price of everything, in percent of the generic price.
    pub percent: u32,
    /// The author and the way of the measurement, or that it is an assumption.
    pub source: String,
}

/// The price of each operation on a machine that gives these prices itself, and for the others a pace, in the order of
/// [`Work::ALL`].
///
/// # Panics
/// Never: a test sees to it that every operation has a generic price.
pub fn all(own: &[Price], pace: Option<&Pace>) -> Vec<Used> {
    let paced = |price: Price| match pace {
        None => price,
        Some(pace) => {
            let takes = Picos(price.takes.0 * u64::from(pace.percent) / 100);
            let source = format!("{ASSUMED}: {}{OF_GENERIC}{}", pace.percent, pace.source);
            Price { takes, range: None, source, ..price }
        }
    };
    let price = |work: &Work| {
        let of = |prices: &[Price]| prices.iter().find(|price| price.work == *work).cloned();
        let of_generic = || of(generic()).unwrap_or_else(|| panic!("{} has a generic price", work.name()));
        let (price, generic) = of(own).map_or_else(|| (paced(of_generic()), true), |price| (price, false));
        Used { work: work.name().to_owned(), ps: price.takes.0, source: price.source, generic }
    };
    Work::ALL.iter().map(price).collect()
}

/// Prices for the simulator.
pub fn prices(own: &[Price], pace: Option<&Pace>) -> Prices {
    let all = all(own, pace);
    Prices::new(|work| Picos(all[work as usize].ps))
}

impl Used {
    /// Is it assumed, and not measured?
    pub fn is_assumed(&self) -> bool {
        is_assumed(&self.source)
    }

    /// Where it comes from, and the rest of what its source says. A pace leaves generic prices in proportion: each is what the
    /// generic one is. That the pace was fitted makes none of them fitted: only their mean was.
    pub fn origin(&self) -> (Origin, &str) {
        if self.generic && self.source.starts_with(ASSUMED) && self.source.contains(OF_GENERIC) {
            let own = generic().iter().find(|price| price.work.name() == self.work);
            return own.map_or((Origin::Assumed, &self.source), |own| origin(&own.source));
        }
        match origin(&self.source) {
            (Origin::Fitted, rest) if self.generic => (Origin::Assumed, rest),
            found => found,
        }
    }
}

/// Does a source say that nobody measured it?
pub(crate) fn is_assumed(source: &str) -> bool {
    origin(source).0 != Origin::Measured
}

/// The origin that a source names, and the rest of it.
pub(crate) fn origin(source: &str) -> (Origin, &str) {
    let said = [(ASSUMED, Origin::Assumed), (FITTED, Origin::Fitted)];
    let rest = |(word, origin)| Some((origin, source.strip_prefix(word)?.trim_start_matches([':', ' '])));
    said.into_iter().find_map(rest).unwrap_or((Origin::Measured, source))
}

/// How many prices come from where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Chosen so that something published comes out.
    pub fitted: usize,
    /// Measured on a machine.
    pub measured: usize,
    /// Prices that were not measured.
    pub assumed: usize,
}

/// Sorts prices by where they come from.
pub fn kinds(used: &[Used]) -> Kinds {
    let mut kinds = Kinds::default();
    for price in used {
        match price.origin().0 {
            Origin::Fitted => kinds.fitted += 1,
            Origin::Assumed => kinds.assumed += 1,
            Origin::Measured => kinds.measured += 1,
        }
    }
    kinds
}

/// How many prices are assumed and where they come from, in words.
pub fn summary(used: &[Used]) -> String {
    let assumed = used.iter().filter(|price| price.is_assumed()).count();
    let generic = used.iter().filter(|price| price.generic).count();
    let own = used.len() - generic;
    format!("{assumed} of {} prices are assumed; {own} are the machine's, {generic} generic", used.len())
}

/// The `[prices]` of a file, in the order of [`Work::ALL`].
pub fn read(root: &TableReader<'_>) -> Result<Vec<Price>, UsageError> {
    let Some(table) = root.table("prices")? else { return Ok(Vec::new()) };
    let names: Vec<_> = Work::ALL.iter().map(|work| work.name()).collect();
    let table = table.only("price", &names)?;
    Work::ALL.iter().filter(|work| table.has(work.name())).map(|work| price(&table, *work)).collect()
}

/// The `[measured]` of a file, in its order.
pub fn read_measured(root: &TableReader<'_>) -> Result<Vec<Measured>, UsageError> {
    let Some(table) = root.table("measured")? else { return Ok(Vec::new()) };
    let entry = |name: &str| {
        let (takes, range, source) = entry(&table, name)?;
        Ok(Measured { name: name.to_owned(), takes, range, source })
    };
    table.keys().into_iter().map(entry).collect()
}

fn price(table: &TableReader<'_>, work: Work) -> Result<Price, UsageError> {
    let (takes, range, source) = entry(table, work.name())?;
    Ok(Price { work, takes, range, source })
}

fn entry(table: &TableReader<'_>, name: &str) -> Result<(Picos, Option<Range>, String), UsageError> {
    let Ok(Some(price)) = table.table(name) else { return Err(table.error(name, FORM)) };
    let price = price.only("key", &["ns", "ps", "low", "high", "source"])?;
    let (key, decimals) = match (price.has("ns"), price.has("ps")) {
        (true, false) => ("ns", 3),
        (false, true) => ("ps", 0),
        _ => return Err(table.error(name, format!("{FORM}: either ns or ps"))),
    };
    let number = |key: &str| {
        let Scalar(text) = price.required(key)?;
        let wrong = || {
            let decimals = if decimals == 0 { "whole number" } else { "number with at most 3 decimals" };
            price.error(key, format!("expected a {decimals}, at most a second, found {text}"))
        };
        thousandths(&text, decimals).filter(|takes| *takes <= MAX).ok_or_else(wrong)
    };
    let takes = number(key)?;
    let range = match (price.has("low"), price.has("high")) {
        (false, false) => None,
        // The one that is not there is what the error names.
        _ => Some(Range { low: number("low")?, high: number("high")? }),
    };
    if range.is_some_and(|range| takes < range.low || range.high < takes) {
        return Err(price.error(key, "expected a price from low to high"));
    }
    let source = source_of(&price)?;
    Ok((takes, range, source))
}

/// Where a figure comes from.
pub(crate) fn source_of(table: &TableReader<'_>) -> Result<String, UsageError> {
    let source: String = table.required("source")?;
    if source.trim().is_empty() {
        return Err(table.error("source", "expected who measured it and how, or \"assumed: \" and why, found nothing"));
    }
    if source.contains(COMPARED) {
        let message = format!("expected a source other than {COMPARED}: no price comes from what it is compared with");
        return Err(table.error("source", message));
    }
    Ok(source)
}

/// The `shared_core` of a file.
pub fn read_shared_core(root: &TableReader<'_>) -> Result<Option<SharedCore>, UsageError> {
    let bounds = (100..=SHARED_CORE_MAX, "percent of the time alone");
    let read = read_percent(root, "shared_core", SHARED_CORE_FORM, bounds)?;
    Ok(read.map(|(percent, source)| SharedCore { percent, source }))
}

/// The `pace` of a file.
pub fn read_pace(root: &TableReader<'_>) -> Result<Option<Pace>, UsageError> {
    let read = read_percent(root, "pace", PACE_FORM, (10..=1000, "percent of generic prices"))?;
    Ok(read.map(|(percent, source)| Pace { percent, source }))
}

/// A share in per cent within bounds, which are of something, and its source.
fn read_percent(
    root: &TableReader<'_>,
    key: &str,
    form: &str,
    (bounds, of): (RangeInclusive<u64>, &str),
) -> Result<Option<(u32, String)>, UsageError> {
    if !root.has(key) {
        return Ok(None);
    }
    let Ok(Some(table)) = root.table(key) else { return Err(root.error(key, form)) };
    let table = table.only("key", &["percent", "source"])?;
    let found: u64 = table.required("percent")?;
    let percent = u32::try_from(found).ok().filter(|_| bounds.contains(&found)).ok_or_else(|| {
        let (least, most) = (bounds.start(), bounds.end());
        table.error("percent", format!("expected {least} to {most} ({of}), found {found}"))
    })?;
    Ok(Some((percent, source_of(&table)?)))
}

/// The value of `shared_core` or `pace` in a machine file.
pub(crate) fn write_percent(percent: u32, source: &str, quoted: impl Fn(&str) -> String) -> String {
    format!("{{ percent = {percent}, source = {} }}", quoted(source))
}

/// A number with `decimals` digits after the point at most, in units of the last of them.
pub(crate) fn thousandths(text: &str, decimals: usize) -> Option<Picos> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > decimals || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    format!("{whole}{fraction:0<decimals$}").parse().ok().map(Picos)
}

/// The line of a machine file.
pub(crate) fn write(price: &Price, quoted: impl Fn(&str) -> String) -> String {
    write_entry(price.work.name(), price.takes, price.range, &quoted(&price.source))
}

/// The line of something else that was measured.
pub(crate) fn write_measured(measured: &Measured, quoted: impl Fn(&str) -> String) -> String {
    write_entry(&measured.name, measured.takes, measured.range, &quoted(&measured.source))
}

fn write_entry(name: &str, takes: Picos, range: Option<Range>, source: &str) -> String {
    let range =
        range.map_or_else(String::new, |Range { low, high }| format!("low = {}, high = {}, ", ns(low), ns(high)));
    format!("{name} = {{ ns = {}, {range}source = {source} }}\n", ns(takes))
}

/// Nanoseconds with as many decimals as it takes.
pub(crate) fn ns(span: Picos) -> String {
    let fraction = format!("{:03}", span.0 % 1000);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}", span.as_nanos())
}
