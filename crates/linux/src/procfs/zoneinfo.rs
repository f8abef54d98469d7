//! /proc/zoneinfo: sizes, watermarks, reserves and per-CPU lists of every zone.
//!
//! Kernels up to 4.11 print populated zones only, later ones all zones, but without per-CPU lists where there is no
//! memory. Statistics (`nr_...`, `numa_...`) are checked for their form and left out; /proc/vmstat has their sums.

use std::collections::{BTreeMap, btree_map::Entry};

use serde::{Deserialize, Serialize};
use units::{CpuId, Frames, NodeId};

use super::{
    ProcError,
    lines::{Cursor, Line},
};

/// One zone, as the kernel prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's name, such as "DMA32".
    pub name: String,
    /// Free frames in the buddy allocator.
    pub free: Frames,
    /// Frames by which the marks below are raised for the moment; printed by newer kernels only.
    pub boost: Option<Frames>,
    /// The min watermark, boost included.
    pub min: Frames,
    /// The low watermark, boost included.
    pub low: Frames,
    /// The high watermark, boost included.
    pub high: Frames,
    /// The promo watermark, boost included; printed by newer kernels only.
    pub promo: Option<Frames>,
    /// Frames from the zone's first to its last, holes included.
    pub spanned: Frames,
    /// Frames that exist.
    pub present: Frames,
    /// Frames that the buddy allocator was given.
    pub managed: Frames,
    /// Frames of the contiguous memory allocator; printed by newer kernels only.
    pub cma: Option<Frames>,
    /// Number of the zone's first frame; printed for populated zones only.
    pub start_pfn: Option<u64>,
    /// Frames kept from requests whose highest zone is the n-th of the node (`lowmem_reserve`).
    pub protection: Vec<Frames>,
    /// Per-CPU lists; none where there is no memory.
    pub pagesets: Vec<Pageset>,
}

/// One CPU's page list in one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pageset {
    /// The CPU.
    pub cpu: CpuId,
    /// Frames in the list.
    pub count: Frames,
    /// Frames at which the list gives some back.
    pub high: Frames,
    /// Frames moved between the list and the buddy allocator at a time.
    pub batch: Frames,
    /// Lower bound of `high`; printed by newer kernels only.
    pub high_min: Option<Frames>,
    /// Upper bound of `high`; printed by newer kernels only.
    pub high_max: Option<Frames>,
}

impl Zone {
    /// Does the zone have any memory?
    pub fn is_populated(&self) -> bool {
        self.present > Frames(0)
    }
}

/// More frames than 52 bits of physical address hold: a number above this is damaged.
const FRAMES_MAX: u64 = 1 << 40;

/// Sizes that follow "pages free", the only names on such lines that are not statistics.
const SIZES: [&str; 8] = ["boost", "min", "low", "high", "promo", "spanned", "present", "managed"];

/// Every zone, in the kernel's order.
pub fn parse(text: &str) -> Result<Vec<Zone>, ProcError> {
    let mut lines = Cursor::new("zoneinfo", text)?.peekable();
    let end = Cursor::new("zoneinfo", text)?;
    let mut zones: Vec<Zone> = Vec::new();
    while let Some(header) = lines.next() {
        let mut draft = Draft::start(header)?;
        if zones.iter().any(|zone| zone.node == draft.node && zone.name == draft.name) {
            return Err(header.wrong("each zone once"));
        }
        while let Some(line) = lines.next_if(|line| !line.text.starts_with("Node ")) {
            draft.line(line)?;
        }
        let missing = |expected: &str| match lines.peek() {
            Some(line) => line.wrong(expected),
            None => end.ended(expected),
        };
        zones.push(draft.finish(missing)?);
    }
    check_zone_count(&zones, &end)?;
    Ok(zones)
}

/// Does the kernel print zones without memory? 4.12 and later do; only later ones print a boost.
pub(super) fn prints_empty(zones: &[Zone]) -> bool {
    zones.iter().any(|zone| !zone.is_populated() || zone.boost.is_some())
}

/// Checks the last node's zones: a kernel that prints empty zones prints every zone, so the last node must lack none.
fn check_zone_count(zones: &[Zone], end: &Cursor<'_>) -> Result<(), ProcError> {
    let Some(last) = zones.last() else { return Err(end.ended("a zone")) };
    let of_last = zones.iter().filter(|zone| zone.node == last.node).count();
    if prints_empty(zones) && of_last != last.protection.len() {
        return Err(end.ended(&format!("{} zones of node {}", last.protection.len(), last.node)));
    }
    Ok(())
}

/// A zone while its lines are read.
struct Draft {
    node: NodeId,
    name: String,
    sizes: BTreeMap<&'static str, Frames>,
    start_pfn: Option<u64>,
    protection: Vec<Frames>,
    pagesets: Vec<PagesetDraft>,
}

#[derive(Default)]
struct PagesetDraft {
    cpu: u32,
    fields: BTreeMap<&'static str, Frames>,
}

const FREE: &str = "free";
const CMA: &str = "cma";
const FIELDS: [&str; 5] = ["count", "high", "batch", "high_min", "high_max"];

impl Draft {
    fn start(line: Line<'_>) -> Result<Self, ProcError> {
        let header = || line.wrong("\"Node N, zone NAME\"");
        let (node, name, rest) = line.node_and_zone().ok_or_else(header)?;
        if name.is_empty() || !rest.is_empty() {
            return Err(header());
        }
        Ok(Self {
            node: NodeId(line.small(node, "a node")?),
            name: name.to_owned(),
            sizes: BTreeMap::new(),
            start_pfn: None,
            protection: Vec::new(),
            pagesets: Vec::new(),
        })
    }

    fn line(&mut self, line: Line<'_>) -> Result<(), ProcError> {
        let text = line.text.trim();
        if matches!(text, "per-node stats" | "pagesets") {
            return Ok(());
        }
        match text.split_once(':') {
            Some(("protection", list)) => self.protection(line, list.trim()),
            Some((key, value)) => self.keyed(line, key, value.trim()),
            None => self.size(line, text),
        }
    }

    /// "pages free N", "min N", or a statistic.
    fn size(&mut self, line: Line<'_>, text: &str) -> Result<(), ProcError> {
        let Some((name, value)) = text.rsplit_once(' ') else {
            // 4.17 to 4.19 print a statistic whose name is empty (NR_INDIRECTLY_RECLAIMABLE_BYTES, mm/vmstat.c, v4.19).
            return if text.parse::<u64>().is_ok() { Ok(()) } else { Err(line.wrong("a name and a number")) };
        };
        let name = name.trim_end();
        let known =
            if name == "pages free" { Some(FREE) } else { SIZES.into_iter().chain([CMA]).find(|known| *known == name) };
        let Some(known) = known else { return line.number(value, "a statistic").map(|_| ()) };
        if known != FREE && !self.sizes.contains_key(FREE) {
            return Err(line.wrong("\"pages free\" before this line"));
        }
        insert(&mut self.sizes, known, line, frames(line, value, known)?)
    }

    fn protection(&mut self, line: Line<'_>, list: &str) -> Result<(), ProcError> {
        let inner = list.strip_prefix('(').and_then(|list| list.strip_suffix(')'));
        let inner = inner.ok_or_else(|| line.wrong("a list in parentheses"))?;
        if !self.protection.is_empty() {
            return Err(line.wrong("one protection line per zone"));
        }
        let entries = inner.split(',').map(|entry| frames(line, entry.trim(), "protection"));
        self.protection = entries.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// A line of a per-CPU list, or one of the few that follow them.
    fn keyed(&mut self, line: Line<'_>, key: &str, value: &str) -> Result<(), ProcError> {
        if key == "cpu" {
            let cpu = line.small(value, "a CPU")?;
            self.pagesets.push(PagesetDraft { cpu, ..PagesetDraft::default() });
            return Ok(());
        }
        if key == "start_pfn" {
            self.start_pfn = Some(line.number(value, key)?);
            return Ok(());
        }
        // vm stats threshold, node_unreclaimable, all_unreclaimable, inactive_ratio: not of interest.
        let Some(field) = FIELDS.into_iter().find(|field| *field == key) else {
            return line.number(value, key).map(|_| ());
        };
        let pageset = self.pagesets.last_mut().ok_or_else(|| line.wrong("\"cpu:\" before this line"))?;
        insert(&mut pageset.fields, field, line, frames(line, value, key)?)
    }

    /// The zone, if nothing is missing. The error is for the place where the zone ended.
    fn finish(self, mut missing: impl FnMut(&str) -> ProcError) -> Result<Zone, ProcError> {
        let mut sizes = self.sizes;
        let mut need = |name: &str| {
            let size = sizes.remove(name);
            size.ok_or_else(|| missing(&format!("{name:?} of node {}, zone {}", self.node, self.name)))
        };
        let (free, min, low, high) = (need(FREE)?, need("min")?, need("low")?, need("high")?);
        let (spanned, present, managed) = (need("spanned")?, need("present")?, need("managed")?);
        let zone = Zone {
            node: self.node,
            name: self.name,
            free,
            boost: sizes.remove("boost"),
            min,
            low,
            high,
            promo: sizes.remove("promo"),
            spanned,
            present,
            managed,
            cma: sizes.remove(CMA),
            start_pfn: self.start_pfn,
            protection: self.protection,
            pagesets: self.pagesets.into_iter().map(|p| p.finish(&mut missing)).collect::<Result<_, _>>()?,
        };
        let of = |what: &str| format!("{what} of node {}, zone {}", zone.node, zone.name);
        if zone.protection.is_empty() {
            return Err(missing(&of("protection")));
        }
        if zone.is_populated() && zone.pagesets.is_empty() {
            return Err(missing(&of("per-CPU lists")));
        }
        if zone.is_populated() && zone.start_pfn.is_none() {
            return Err(missing(&of("start_pfn")));
        }
        Ok(zone)
    }
}

impl PagesetDraft {
    fn finish(mut self, mut missing: impl FnMut(&str) -> ProcError) -> Result<Pageset, ProcError> {
        let mut need = |field: &str| {
            let value = self.fields.remove(field);
            value.ok_or_else(|| missing(&format!("\"{field}:\" of cpu {}", self.cpu)))
        };
        let (count, high, batch) = (need("count")?, need("high")?, need("batch")?);
        let bounds = (self.fields.remove("high_min"), self.fields.remove("high_max"));
        if bounds.0.is_some() != bounds.1.is_some() {
            return Err(missing(&format!("both \"high_min:\" and \"high_max:\" of cpu {}", self.cpu)));
        }
        Ok(Pageset { cpu: CpuId(self.cpu), count, high, batch, high_min: bounds.0, high_max: bounds.1 })
    }
}

fn frames(line: Line<'_>, value: &str, what: &str) -> Result<Frames, ProcError> {
    match line.number(value, what)? {
        frames if frames <= FRAMES_MAX => Ok(Frames(frames)),
        _ => Err(line.wrong_at(format!("{what}, at most {FRAMES_MAX} frames"), value)),
    }
}

fn insert(
    map: &mut BTreeMap<&'static str, Frames>,
    name: &'static str,
    line: Line<'_>,
    value: Frames,
) -> Result<(), ProcError> {
    match map.entry(name) {
        Entry::Occupied(_) => Err(line.wrong(format!("{name:?} once per zone and CPU"))),
        Entry::Vacant(place) => {
            place.insert(value);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form of 4.1 and older: statistics between sizes and protection, no empty zones.
    const OLD: &str = "\
Node 0, zone   Normal
  pages free     3975
        min      32
        low      40
        high     48
        scanned  0
        spanned  4095
        present  3998
        managed  3977
    nr_free_pages 3975
        protection: (0, 0, 0, 0)
  pagesets
    cpu: 0
              count: 7
              high:  186
              batch: 31
  vm stats threshold: 6
  all_unreclaimable: 0
  start_pfn:         1
  inactive_ratio:    1
";

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_old_form() {
        let zones = parse(OLD).unwrap();
        assert_eq!(zones.len(), 1);
        let zone = &zones[0];
        assert_eq!((zone.min, zone.managed, zone.start_pfn), (Frames(32), Frames(3977), Some(1)));
        assert_eq!((zone.boost, zone.promo, zone.cma), (None, None, None));
        assert_eq!((zone.protection.len(), zone.pagesets[0].batch), (4, Frames(31)));
    }

    #[test]
    fn every_cut_is_noticed() {
        // Up to start_pfn a zone is incomplete; the one line after it may be missing in other kernels.
        let last = OLD.find("  inactive_ratio").unwrap();
        for cut in (0..OLD.len()).filter(|cut| *cut != last) {
            assert!(parse(&OLD[..cut]).is_err(), "cut at byte {cut}: {:?}", &OLD[..cut]);
        }
    }

    #[test]
    fn errors_name_the_place() {
        let until = |text: &str| &OLD[..OLD.find(text).unwrap()];
        assert_eq!(
            error(until("        spanned")),
            "zoneinfo, line 7: expected \"spanned\" of node 0, zone Normal, found the end"
        );
        assert_eq!(
            error(until("              batch")),
            "zoneinfo, line 16: expected \"batch:\" of cpu 0, found the end"
        );
        let twice = format!("{}{OLD}", until("  pagesets"));
        assert_eq!(
            error(&twice),
            "zoneinfo, line 12: expected per-CPU lists of node 0, zone Normal, found \"Node 0, zone   Normal\""
        );
        assert_eq!(error(&OLD.replace("32", "3x")), "zoneinfo, line 3: expected min, a number, found \"3x\"");
        assert_eq!(
            error(&OLD.replace("managed  3977", "managed  99999999999999")),
            "zoneinfo, line 9: expected managed, at most 1099511627776 frames, found \"99999999999999\""
        );
        assert_eq!(
            error(&OLD.replace("low", "min")),
            "zoneinfo, line 4: expected \"min\" once per zone and CPU, found \"min      40\""
        );
        let again = "zoneinfo, line 21: expected each zone once, found \"Node 0, zone   Normal\"";
        assert_eq!(error(&OLD.repeat(2)), again);
        assert_eq!(error("\n"), "zoneinfo, line 2: expected a zone, found the end");
    }

    #[test]
    fn empty_zones_are_printed_for_all_nodes_or_none() {
        let empty = |name| {
            format!(
                "Node 0, zone  {name}\n  pages free     0\n        min      0\n        low      0\n        high     0\n\
                 \x20       spanned  0\n        present  0\n        managed  0\n        protection: (0, 0, 0)\n"
            )
        };
        let both = format!("{}{}{}", empty("DMA"), empty("Normal"), empty("Movable"));
        assert_eq!(parse(&both).unwrap().len(), 3);
        let cut = format!("{}{}", empty("DMA"), empty("Normal"));
        assert_eq!(error(&cut), "zoneinfo, line 19: expected 3 zones of node 0, found the end");
    }
}
