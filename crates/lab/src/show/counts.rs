//! The map of memory that files tell by counts alone: /proc/buddyinfo, /proc/pagetypeinfo, or the free lists of an OOM report.

use std::path::PathBuf;

use linux::procfs::{Capture, ProcError, buddyinfo, oom::Report, pagetypeinfo, version, zoneinfo};
use memory::suitable::FreeBlocks;
use report::map::{Band, BlockMap, Caption, Head, TYPES, map_text};
use units::{BlockCell, Order};

use crate::{
    import::{Collected, collect},
    usage::UsageError,
};

/// Pageblocks of x86-64, where no file says their size: 2 MiB.
const PAGEBLOCK_ORDER: u32 = 9;
/// The number of the type that pageblocks without one are shown as (Movable, in [`TYPES`]).
const SHOWN_AS: u8 = 1;
/// Pageblocks of 32 TiB: more is a damaged number.
const BLOCKS_MAX: u64 = 1 << 24;
/// More orders than any kernel has, and a pageblock of 1 GiB.
const ORDERS_MAX: usize = 19;

/// Files that have counts of free memory.
pub(super) enum Counts {
    /// buddyinfo, pagetypeinfo, or both.
    Files(Capture),
    /// An OOM report.
    Report(Report),
}

/// A zone's counts.
struct Zone {
    path: String,
    parts: Vec<Part>,
}

/// Pageblocks of a type in a zone.
struct Part {
    /// The number of the type in [`TYPES`].
    kind: u8,
    /// All its pageblocks, where a file says it.
    blocks: Option<u64>,
    /// Free blocks of each order.
    free: Vec<u64>,
}

/// The counts that these files have together; none if they have none.
///
/// # Errors
/// A file that cannot be read, or a damaged report.
pub(super) fn counts(files: &[PathBuf]) -> Result<Option<Counts>, UsageError> {
    let mut all = Capture::default();
    let mut report = None;
    for file in files {
        match collect(file)? {
            Collected::Files(capture) => all.complete_with(capture),
            Collected::Report(_, found) => report = report.or(Some(found)),
        }
    }
    if ["buddyinfo", "pagetypeinfo"].iter().any(|key| all.texts.contains_key(*key)) {
        return Ok(Some(Counts::Files(all)));
    }
    Ok(report.map(Counts::Report))
}

/// Prints the map of counts.
///
/// # Errors
/// A line that is not what the kernel writes, or numbers that no machine has.
pub(super) fn map(name: &str, counts: &Counts, has_colours: bool) -> Result<String, UsageError> {
    let problem = |problem: String| UsageError::in_file(name, problem);
    let (zones, order, release) = match counts {
        Counts::Files(capture) => {
            let types = capture.text("pagetypeinfo").ok().map(pagetypeinfo::parse).transpose();
            let types = types.map_err(|error: ProcError| problem(error.to_string()))?;
            let release = capture.text("version").ok().and_then(|text| version::parse(text).ok());
            let zones = match &types {
                Some(types) => of_types(types).map_err(problem)?,
                None => of_buddyinfo(capture).map_err(|error| problem(error.to_string()))?,
            };
            let order = types.map_or(PAGEBLOCK_ORDER, |types| types.pageblock_order);
            (zones, order, release.map(|release| release.text))
        }
        Counts::Report(report) => (of_report(report).map_err(problem)?, PAGEBLOCK_ORDER, report.release.clone()),
    };
    check(&zones, order).map_err(problem)?;
    let of = release.map_or_else(String::new, |release| format!(" of Linux {release}"));
    let head = vec![format!("{name}: free memory{of}, by counts; positions are guessed")];
    let caption = Caption { head, foot: foot(counts, &zones), has_colours };
    Ok(map_text(&laid(&zones, order), 0, None, &caption))
}

/// Free blocks by zone, and guesses: a line each.
fn foot(counts: &Counts, zones: &[Zone]) -> Vec<String> {
    let mut foot = vec!["free blocks by order, from 4 KiB up:".to_owned()];
    foot.extend(zones.iter().map(|zone| {
        let orders = zone.parts.iter().map(|part| part.free.len()).max().unwrap_or(0);
        let of_order = |order: usize| zone.parts.iter().filter_map(|part| part.free.get(order)).sum::<u64>();
        let counts: Vec<String> = (0..orders).map(|order| of_order(order).to_string()).collect();
        format!("{}: {}", zone.path, counts.join(" "))
    }));
    foot.push(
        "positions are guessed: the files have numbers alone. Of each type, pageblocks in use come first and free ones \
         last; free frames in smaller blocks are spread evenly over those in use"
            .to_owned(),
    );
    let has_types = matches!(counts, Counts::Files(capture) if capture.texts.contains_key("pagetypeinfo"));
    if !has_types {
        foot.push(
            "types are not in the files (pagetypeinfo has them): all pageblocks are shown as Movable, of 2 MiB each"
                .to_owned(),
        );
    }
    if zones.iter().flat_map(|zone| &zone.parts).any(|part| part.blocks.is_none()) {
        foot.push(
            "sizes of zones are not in the files (zoneinfo has them): pageblocks without free memory are left out"
                .to_owned(),
        );
    }
    foot
}

fn of_types(types: &pagetypeinfo::PageTypeInfo) -> Result<Vec<Zone>, String> {
    let number = |name: &str| {
        let at = TYPES.iter().position(|known| known.eq_ignore_ascii_case(name));
        let at = at.and_then(|at| u8::try_from(at).ok());
        at.ok_or_else(|| format!("pagetypeinfo: expected one of {}, found {name:?}", TYPES.join(", ")))
    };
    let zone = |of: &pagetypeinfo::BlocksOfZone| {
        let part = |(name, blocks): &(String, u64)| {
            let is_its = |free: &&pagetypeinfo::FreeOfType| {
                free.node == of.node && free.zone == of.zone && free.migrate_type == *name
            };
            let free = types.free.iter().find(is_its).map(|free| free.free.clone()).unwrap_or_default();
            Ok(Part { kind: number(name)?, blocks: Some(*blocks), free })
        };
        let parts = of.blocks.iter().map(part).collect::<Result<Vec<_>, String>>()?;
        Ok(Zone { path: format!("node{}/{}", of.node, of.zone), parts })
    };
    types.blocks.iter().map(zone).collect()
}

fn of_buddyinfo(capture: &Capture) -> Result<Vec<Zone>, ProcError> {
    let zones = buddyinfo::parse(capture.text("buddyinfo")?)?;
    let sizes = capture.text("zoneinfo").ok().and_then(|text| zoneinfo::parse(text).ok()).unwrap_or_default();
    let zone = |of: buddyinfo::FreeBlocks| {
        let size = sizes.iter().find(|zone| zone.node == of.node && zone.name == of.zone);
        let blocks = size.map(|zone| zone.managed.0.div_ceil(1 << PAGEBLOCK_ORDER));
        Zone {
            path: format!("node{}/{}", of.node, of.zone),
            parts: vec![Part { kind: SHOWN_AS, blocks, free: of.free }],
        }
    };
    Ok(zones.into_iter().map(zone).collect())
}

fn of_report(report: &Report) -> Result<Vec<Zone>, String> {
    if report.page_kib != 4 {
        return Err(format!("pages of {} KiB are not modelled", report.page_kib));
    }
    let populated = report.zones.iter().filter(|zone| zone.present > 0);
    let zones = populated.map(|zone| {
        let frames = zone.managed.unwrap_or(zone.present) / report.page_kib;
        // Some reports end before the lists: as if all that is free were in single frames.
        let free = if zone.blocks.is_empty() { vec![zone.free / report.page_kib] } else { zone.blocks.clone() };
        let part = Part { kind: SHOWN_AS, blocks: Some(frames.div_ceil(1 << PAGEBLOCK_ORDER)), free };
        Zone { path: format!("node{}/{}", zone.node, zone.name), parts: vec![part] }
    });
    Ok(zones.collect())
}

fn check(zones: &[Zone], order: u32) -> Result<(), String> {
    if order as usize >= ORDERS_MAX {
        return Err(format!("expected pageblocks of order {} at most, found {order}", ORDERS_MAX - 1));
    }
    let parts = zones.iter().flat_map(|zone| &zone.parts);
    let mut all = 0_u64;
    for part in parts {
        if part.free.len() > ORDERS_MAX {
            return Err(format!("expected {ORDERS_MAX} orders at most, found {}", part.free.len()));
        }
        let is_damaged = part.free.iter().any(|blocks| *blocks > BLOCKS_MAX << order);
        let (whole, frames) = if is_damaged { (u64::MAX, 0) } else { part.sizes(order) };
        let free = whole.saturating_add(frames.div_ceil(1 << order));
        all = all.saturating_add(part.blocks.unwrap_or(free));
        if all.max(free) > BLOCKS_MAX {
            return Err(format!("expected {BLOCKS_MAX} pageblocks at most, found more"));
        }
    }
    if all == 0 {
        return Err("expected a zone with pageblocks or free memory, found none".to_owned());
    }
    Ok(())
}

impl Part {
    /// Pageblocks that are wholly free, and frames in blocks that are smaller.
    fn sizes(&self, order: u32) -> (u64, u64) {
        let (mut whole, mut frames) = (0, 0);
        for (of, blocks) in (0..).zip(&self.free) {
            if of >= order {
                whole += blocks << (of - order);
            } else {
                frames += blocks << of;
            }
        }
        (whole, frames)
    }

    fn cells(&self, order: u32) -> Vec<BlockCell> {
        let (whole, frames) = self.sizes(order);
        // Where a free block is larger than a pageblock, its list counts it under the type of its first one.
        let whole = self.blocks.map_or(whole, |blocks| whole.min(blocks));
        let rest = self.blocks.map_or_else(|| frames.div_ceil(1 << order), |blocks| blocks - whole);
        let of_rest = rest << order;
        let used = BlockCell::sixteenths(of_rest.saturating_sub(frames), of_rest);
        let cell = |used| BlockCell { kind: self.kind, used, ..BlockCell::default() };
        let count = |blocks: u64| usize::try_from(blocks).expect("the number of pageblocks was checked");
        let mut cells = vec![cell(used); count(rest)];
        cells.resize(count(rest + whole), cell(Some(0)));
        cells
    }
}

/// The zones one behind the other.
fn laid(zones: &[Zone], order: u32) -> BlockMap {
    let (mut bands, mut fragmentation, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for zone in zones {
        let first = u32::try_from(cells.len()).expect("the number of pageblocks was checked");
        let of_zone: Vec<BlockCell> = zone.parts.iter().flat_map(|part| part.cells(order)).collect();
        let blocks = u32::try_from(of_zone.len()).expect("the number of pageblocks was checked");
        if blocks == 0 {
            continue;
        }
        bands.push(Band { zone: zone.path.clone(), first, blocks });
        fragmentation.push(zone.free_blocks(order).fragmentation_index(Order(u8::try_from(order).unwrap_or(u8::MAX))));
        cells.extend(of_zone);
    }
    let head = Head {
        pageblock_order: u8::try_from(order).expect("the order was checked"),
        group: 1,
        types: TYPES.map(str::to_owned).to_vec(),
        at_us: vec![0],
        scanners: vec![bands.iter().map(|band: &Band| [band.first, band.first + band.blocks - 1]).collect()],
        fragmentation: vec![fragmentation],
        bands,
    };
    let cells: Vec<(u32, [u8; 2])> =
        (0..).zip(cells).map(|(at, cell): (u32, BlockCell)| (at, cell.to_bytes())).collect();
    BlockMap::from_changes(head, std::iter::once(cells.as_slice()))
}

impl Zone {
    fn free_blocks(&self, order: u32) -> FreeBlocks {
        let mut free = FreeBlocks::default();
        for (of, blocks) in self.parts.iter().flat_map(|part| (0_u32..).zip(&part.free)) {
            free.blocks += blocks;
            free.frames += blocks << of;
            free.suitable += if of >= order { blocks << (of - order) } else { 0 };
        }
        free
    }
}
