//! The map of one instant as a text of 80 columns.

use units::BlockCell;

use super::{BlockMap, TYPES, ZoneCensus, census};
use crate::series::Series;
use crate::short::{WIDTH, text::fold};

/// Characters of a row: a power of two, so that equal addresses stand below each other.
const ROW: u32 = 64;
/// Rows of a map, about; with more, a character stands for more pageblocks.
const ROWS_MAX: u32 = 40;
/// Characters of an address and the gap behind it.
const LABEL: usize = 10;

/// Letters of types, in the order of [`TYPES`].
const LETTERS: [char; TYPES.len()] = ['U', 'M', 'R', 'H', 'V', 'C', 'I'];
/// Heads of the table, in the order of [`TYPES`].
const HEADS: [&str; TYPES.len()] = ["Unmov", "Mov", "Recl", "HighAt", "Reserve", "CMA", "Isolate"];
/// Hues of types: the palette of Okabe and Ito (2008), which people with any colour vision tell apart.
const HUES: [(u8, u8, u8); TYPES.len()] = [
    (0xd5, 0x5e, 0x00),
    (0x00, 0x72, 0xb2),
    (0x00, 0x9e, 0x73),
    (0xcc, 0x79, 0xa7),
    (0xf0, 0xe4, 0x42),
    (0xe6, 0x9f, 0x00),
    (0xe6, 0x9f, 0x00),
];

/// Words around a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caption {
    /// Lines above it: of what it is.
    pub head: Vec<String>,
    /// Lines below it.
    pub foot: Vec<String>,
    /// Whether types have colours.
    pub has_colours: bool,
}

/// A character of the map: cells beside each other.
#[derive(Clone, Copy, Debug, Default)]
struct Spot {
    of_type: [u32; TYPES.len()],
    cells: u32,
    with_memory: u32,
    sixteenths: u32,
    huge: u32,
    mixed: u32,
    reported: u32,
}

impl Spot {
    fn add(&mut self, cell: BlockCell) {
        self.cells += 1;
        let Some(used) = cell.used else { return };
        self.with_memory += 1;
        self.of_type[usize::from(cell.kind) % TYPES.len()] += 1;
        self.sixteenths += u32::from(used);
        self.huge += u32::from(cell.huge);
        self.mixed += u32::from(cell.mixed);
        self.reported += u32::from(cell.reported);
    }

    /// The most frequent type.
    fn kind(&self) -> usize {
        let most = self.of_type.iter().max().copied().unwrap_or(0);
        self.of_type.iter().position(|cells| *cells == most).unwrap_or(0)
    }

    fn glyph(&self) -> char {
        let is_most = |cells: u32| cells > 0 && 2 * cells >= self.with_memory;
        let is_half = self.sixteenths * 2 >= self.with_memory * u32::from(BlockCell::WHOLE);
        match self {
            _ if self.with_memory == 0 => '-',
            _ if is_most(self.reported) => 'o',
            _ if self.sixteenths == 0 => '.',
            _ if self.mixed > 0 => {
                if is_half {
                    'X'
                } else {
                    'x'
                }
            }
            _ if is_most(self.huge) => '#',
            _ if is_half => LETTERS[self.kind()],
            _ => LETTERS[self.kind()].to_ascii_lowercase(),
        }
    }
}

/// Prints a sample of a map: what it is, the map, its legend, and a table of pageblocks by type and zone.
///
/// # Panics
/// When there is no such sample.
pub fn map_text(map: &BlockMap, sample: usize, series: Option<&Series>, caption: &Caption) -> String {
    let head = &map.head;
    let per = blocks_of_a_spot(map);
    let mut lines: Vec<String> = caption.head.iter().flat_map(|line| fold(line, WIDTH)).collect();
    let mib = f64::from(per) * head.block_mib();
    let each = if per == 1 { "a pageblock".to_owned() } else { format!("{per} pageblocks") };
    lines.push(format!("a character is {each}, {}; a row {}", size(mib), size(mib * f64::from(ROW))));
    let cells = map.cells(sample);
    let (mut rest, mut seen) = (cells.as_slice(), Vec::new());
    for band in &head.bands {
        let (own, others) = rest.split_at(band.cells(head.group));
        rest = others;
        let first = band.first / per;
        let mut spots = vec![Spot::default(); ((band.first + band.blocks - 1) / per - first + 1) as usize];
        for (cell, number) in own.iter().zip(0..) {
            spots[((band.first + number * head.group) / per - first) as usize].add(*cell);
        }
        lines.push(String::new());
        lines.push(format!("{:LABEL$}{}, {}", "", band.title(), size(f64::from(band.blocks) * head.block_mib())));
        let start = size(f64::from(band.first) * head.block_mib());
        lines.extend(rows((first, &start), &spots, mib, caption.has_colours));
        seen.extend(spots);
    }
    lines.push(String::new());
    lines.extend(legend(&seen, caption.has_colours));
    lines.push(String::new());
    lines.extend(table(&census(map, sample, series)));
    lines.extend(scanners(map, sample).iter().flat_map(|line| fold(line, WIDTH)));
    lines.extend(caption.foot.iter().flat_map(|line| fold(line, WIDTH)));
    lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Pageblocks that one character stands for: the smallest power of two with which the map fits its rows.
fn blocks_of_a_spot(map: &BlockMap) -> u32 {
    let mut per = map.head.group;
    let rows = |per: u32| {
        let of = |band: &super::Band| (band.first + band.blocks - 1) / per / ROW - band.first / per / ROW + 1;
        map.head.bands.iter().map(of).sum::<u32>()
    };
    // Bound: the bits of a number. Each band has a row, however few there are.
    while rows(per) > ROWS_MAX && rows(per) > rows(2 * per) {
        per *= 2;
    }
    per
}

/// Rows of spots, the first of which is number `first` of the machine and begins at an address; each row begins at a multiple of
/// its length.
fn rows((first, begin): (u32, &str), spots: &[Spot], mib: f64, has_colours: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let end = first + u32::try_from(spots.len()).expect("few characters");
    let mut row = first / ROW * ROW;
    // Bound: the characters.
    while row < end {
        let start = row.max(first);
        let address = f64::from(start) * mib;
        let label = match address % 1024.0 == 0.0 {
            _ if start == first => begin.to_owned(),
            true => size(address),
            false => String::new(),
        };
        let mut line = format!("{label:>width$} {:gap$}", "", width = LABEL - 1, gap = (start - row) as usize);
        let own = &spots[(start - first) as usize..((row + ROW).min(end) - first) as usize];
        line.push_str(&painted(own, has_colours));
        lines.push(line);
        row += ROW;
    }
    lines
}

/// The characters of spots, runs of one hue together.
fn painted(spots: &[Spot], has_colours: bool) -> String {
    if !has_colours {
        return spots.iter().map(Spot::glyph).collect();
    }
    let runs = spots.chunk_by(|a, b| hue(a) == hue(b));
    runs.map(|run| coloured(&run.iter().map(Spot::glyph).collect::<String>(), hue(&run[0]))).collect()
}

fn hue(spot: &Spot) -> Option<usize> {
    (spot.with_memory > 0).then(|| spot.kind())
}

fn coloured(text: &str, kind: Option<usize>) -> String {
    let Some(kind) = kind else { return text.to_owned() };
    let (red, green, blue) = HUES[kind];
    format!("\x1b[38;2;{red};{green};{blue}m{text}\x1b[0m")
}

/// Words for the characters that the map has.
fn legend(seen: &[Spot], has_colours: bool) -> Vec<String> {
    let mut words = Vec::new();
    for (kind, name) in TYPES.iter().enumerate() {
        let letter = LETTERS[kind];
        let is_there = seen.iter().any(|spot| spot.with_memory > 0 && spot.kind() == kind);
        if is_there {
            let letters = format!("{letter} {}", letter.to_ascii_lowercase());
            words.push((format!("{letters} {name}"), has_colours.then_some(kind)));
        }
    }
    let has = |wanted: &[char]| seen.iter().any(|spot| wanted.contains(&spot.glyph()));
    let marks: [(&[char], &str); 5] = [
        (&['#'], "# a huge page"),
        (&['X', 'x'], "X x with pages of another mobility than its type"),
        (&['.'], ". free"),
        (&['o'], "o free, and its host knows"),
        (&['-'], "- no memory"),
    ];
    words.extend(marks.iter().filter(|(wanted, _)| has(wanted)).map(|(_, text)| ((*text).to_owned(), None)));
    words.push(("capitals: half or more in use".to_owned(), None));
    let mut lines: Vec<String> = Vec::new();
    let mut used = 0;
    for (text, kind) in words {
        let length = text.chars().count();
        let painted = coloured(&text, kind);
        if let Some(line) = lines.last_mut().filter(|_| used + 2 + length <= WIDTH) {
            *line += &format!("  {painted}");
            used += 2 + length;
        } else {
            lines.push(painted);
            used = length;
        }
    }
    lines
}

/// Pageblocks by type and zone, and the sum where there are several zones.
fn table(zones: &[ZoneCensus]) -> Vec<String> {
    let there: Vec<usize> = (0..TYPES.len()).filter(|of| zones.iter().any(|zone| zone.of_type[*of] > 0)).collect();
    let has_reported = zones.iter().any(|zone| zone.reported > 0);
    let mut heads = vec!["pageblocks".to_owned(), "all".to_owned()];
    heads.extend(there.iter().map(|of| HEADS[*of].to_owned()));
    heads.extend(["free", "huge", "mixed"].map(str::to_owned));
    heads.extend(has_reported.then(|| "reported".to_owned()));
    let line = |zone: &ZoneCensus| {
        let mut cells = vec![zone.zone.clone(), zone.blocks().to_string()];
        cells.extend(there.iter().map(|of| zone.of_type[*of].to_string()));
        cells.extend([zone.free, zone.huge, zone.mixed].map(|blocks| blocks.to_string()));
        cells.extend(has_reported.then(|| zone.reported.to_string()));
        cells
    };
    let mut rows = vec![heads];
    rows.extend(zones.iter().map(line));
    if zones.len() > 1 {
        let mut sum = ZoneCensus { zone: "all".to_owned(), ..ZoneCensus::default() };
        for zone in zones {
            sum.of_type.iter_mut().zip(zone.of_type).for_each(|(sum, blocks)| *sum += blocks);
            sum.free += zone.free;
            sum.huge += zone.huge;
            sum.mixed += zone.mixed;
            sum.reported += zone.reported;
        }
        rows.push(line(&sum));
    }
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let text = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cell = |(at, (text, width)): (usize, (&String, &usize))| match at {
            0 => format!("{text:<width$}"),
            _ => format!(" {text:>width$}", width = *width.max(&6)),
        };
        cells.map(cell).collect::<String>()
    };
    rows.iter().map(text).collect()
}

/// Where compaction goes on, in zones in which it has begun, and why a huge page would fail.
fn scanners(map: &BlockMap, sample: usize) -> Vec<String> {
    let head = &map.head;
    let place = |block: u32| size(f64::from(block) * head.block_mib());
    let line = |(at, band): (usize, &super::Band)| {
        let [migrate, free] = head.scanners[sample][at];
        let index = head.fragmentation[sample][at];
        let has_begun = migrate != band.first || free != band.first + band.blocks - 1;
        let fails = (index >= 0).then(|| format!("fragmentation index {:.3}", index as f64 / 1000.0));
        let scan = has_begun.then(|| format!("scanners at {} (migrate) and {} (free)", place(migrate), place(free)));
        let words: Vec<String> = [scan, fails].into_iter().flatten().collect();
        (!words.is_empty()).then(|| format!("{}: {}", band.title(), words.join(", ")))
    };
    head.bands.iter().enumerate().filter_map(line).collect()
}

/// MiB in words: `16 MiB`, `1.5 GiB`.
fn size(mib: f64) -> String {
    let (number, unit) = if mib >= 1024.0 { (mib / 1024.0, "GiB") } else { (mib, "MiB") };
    let text = format!("{number:.2}");
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{Band, Head, tests::random_map};

    /// One cell each of what a character can be.
    fn small() -> BlockMap {
        let cell = |kind, used| BlockCell { kind, used, ..BlockCell::default() };
        let cells = [
            cell(0, Some(16)),
            cell(0, Some(3)),
            cell(1, Some(8)),
            BlockCell { huge: true, ..cell(1, Some(16)) },
            BlockCell { mixed: true, ..cell(1, Some(9)) },
            BlockCell { mixed: true, ..cell(2, Some(1)) },
            cell(3, Some(0)),
            BlockCell { reported: true, ..cell(1, Some(0)) },
            cell(1, None),
        ];
        let head = Head {
            pageblock_order: 9,
            group: 1,
            types: TYPES.map(str::to_owned).to_vec(),
            bands: vec![Band { zone: "node0/DMA32".to_owned(), first: 62, blocks: 9 }],
            at_us: vec![0],
            scanners: vec![vec![[64, 69]]],
            fragmentation: vec![vec![512]],
        };
        let changes: Vec<_> = (0..).zip(cells.map(BlockCell::to_bytes)).collect();
        BlockMap::from_changes(head, std::iter::once(changes.as_slice()))
    }

    #[test]
    fn characters_stand_below_equal_addresses() {
        let caption = Caption { head: vec!["of a test".to_owned()], ..Caption::default() };
        let text = map_text(&small(), 0, None, &caption);
        let gap = " ".repeat(62);
        let expected = format!(
            "of a test\na character is a pageblock, 2 MiB; a row 128 MiB\n\n          node 0 DMA32, 18 MiB\n\
             \u{20} 124 MiB {gap}Uu\n          M#Xx.o-\n\n\
             U u Unmovable  M m Movable  R r Reclaimable  H h HighAtomic  # a huge page\n\
             X x with pages of another mobility than its type  . free\n\
             o free, and its host knows  - no memory  capitals: half or more in use\n\n\
             pageblocks      all  Unmov    Mov   Recl HighAt   free   huge  mixed reported\n\
             node 0 DMA32      9      2      5      1      1      2      1      2        1\n\
             node 0 DMA32: scanners at 128 MiB (migrate) and 138 MiB (free), fragmentation\nindex 0.512\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn colours_change_nothing_else() {
        let plain = map_text(&small(), 0, None, &Caption::default());
        let coloured = map_text(&small(), 0, None, &Caption { has_colours: true, ..Caption::default() });
        let mut rest = coloured.as_str();
        let mut stripped = String::new();
        while let Some((before, after)) = rest.split_once('\x1b') {
            stripped += before;
            rest = after.split_once('m').unwrap().1;
        }
        assert_eq!(stripped + rest, plain);
        assert!(coloured.contains("\x1b[38;2;213;94;0mUu\x1b[0m"), "{coloured}");
    }

    #[test]
    fn large_memory_has_no_more_rows_and_no_line_is_too_long() {
        let (map, _) = random_map(1, 2, &mut 23);
        let mut large = map.head.clone();
        large.bands[2].blocks = 60_000;
        large.group = 4;
        let cells: Vec<_> = (0..).zip(vec![[1, 16]; large.cells()]).collect();
        let map = BlockMap::from_changes(large, [cells.as_slice(), &[]].into_iter());
        let text = map_text(&map, 1, None, &Caption::default());
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().count() < 60, "{text}");
        assert!(text.contains("a character is 32 pageblocks, 64 MiB; a row 4 GiB"), "{text}");
    }
}
