//! Memory as the kernel prints it when it runs out: the `Mem-Info:` of an OOM report, of a page allocation failure, or of
//! SysRq m (`show_free_areas()`, mm/show_mem.c, v6.6).
//!
//! Reports come through logs and mails, with times, host names and quotation marks before each line, and wrapped, even within a
//! word. So words are read in their order, wherever a line ends: a zone begins with `Normal free:`, its list of free blocks with
//! `Normal: 12*4kB`. Kernels since 4.9 may print parts of a line as lines of their own, with lines of other CPUs between.

use units::{Frames, NodeId};

use super::{ProcError, paste};

/// The name of a report in errors.
const FILE: &str = "OOM report";

/// The memory of a machine as a report prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The kernel's release, where the report has the line `CPU: N PID: N Comm: NAME Not tainted RELEASE`.
    pub release: Option<String>,
    /// The number of CPUs, where the report has a list for each, or the log the start of the kernel.
    pub cpus: Option<u32>,
    /// The highest CPU that is named, plus one; 0 where none is.
    pub cpus_at_least: u32,
    /// Zones with memory, in the kernel's order.
    pub zones: Vec<ReportedZone>,
    /// The reports in the text; this is the last whole one.
    pub reports: usize,
    /// The page size in KiB.
    pub page_kib: u64,
    /// Memory of the whole machine in pages (`N pages RAM`); since 6.1 a report lists only zones that the request could use.
    pub ram_pages: Option<u64>,
    /// The first line with a register or an address of a 32-bit kernel.
    pub of_32_bit: Option<usize>,
}

/// One zone. Sizes are in KiB, as they are printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedZone {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's name, such as "DMA32".
    pub name: String,
    /// The line of its first word, from 1.
    pub line: usize,
    /// Free memory.
    pub free: u64,
    /// The boost, by which each mark is raised for the moment.
    pub boost: u64,
    /// The min, low and high marks.
    pub marks: [u64; 3],
    /// Memory that exists.
    pub present: u64,
    /// Memory that the page allocator was given; kernels before 3.9 do not print it.
    pub managed: Option<u64>,
    /// Frames that are kept from requests whose highest zone is the n-th.
    pub protection: Vec<Frames>,
    /// Free blocks of each order; empty where the report does not list them.
    pub blocks: Vec<u64>,
}

impl ReportedZone {
    fn new(node: NodeId, name: &str, line: usize) -> Self {
        let (protection, blocks) = (Vec::new(), Vec::new());
        Self {
            node,
            name: name.to_owned(),
            line,
            free: 0,
            boost: 0,
            marks: [0; 3],
            present: 0,
            managed: None,
            protection,
            blocks,
        }
    }
}

/// Names of zones.
const ZONES: [&str; 6] = ["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"];
/// Sizes of a zone that are of interest.
const SIZES: [&str; 7] = ["free", "boost", "min", "low", "high", "present", "managed"];
/// More than any zone has, in KiB: a number above it is damaged.
const KIB_MAX: u64 = 1 << 42;
/// Characters of times and host names before the kernel's text, at most.
const PREFIX_MAX: usize = 80;
/// More orders than any kernel has.
const ORDERS_MAX: usize = 20;
/// More CPUs than any kernel is built for.
const CPUS_MAX: u32 = 1 << 16;

#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    line: usize,
}

impl Word<'_> {
    fn wrong(self, expected: impl Into<String>) -> ProcError {
        ProcError::Parse {
            file: FILE.to_owned(),
            line: self.line,
            expected: expected.into(),
            found: format!("{:?}", self.text.chars().take(60).collect::<String>()),
        }
    }
}

/// Does the text have the sizes of a zone, as reports print them?
pub fn is_report(text: &str) -> bool {
    let plain = paste::plain(text);
    let words = words(&plain);
    words.windows(2).any(|pair| ZONES.contains(&pair[0].text) && pair[1].text.starts_with("free:"))
}

/// The last whole report of a text.
///
/// # Errors
/// No zone, a zone that lacks a size, or a number that is none.
pub fn parse(text: &str) -> Result<Report, ProcError> {
    let plain = paste::plain(text);
    let words = words(&plain);
    let mut reader = Reader::default();
    for at in 0..words.len() {
        reader.word(&words, at)?;
    }
    reader.finish(plain.lines().count())
}

fn words(text: &str) -> Vec<Word<'_>> {
    let of_line = |(line, text)| {
        let words = without_prefix(text).split_whitespace();
        words.map(move |text| Word { text, line: line + 1 })
    };
    text.lines().enumerate().flat_map(of_line).collect()
}

/// The line of a log without times, host, level and thread: behind `kernel:` and `[   12.500000]`, `[T123]`.
fn without_prefix(line: &str) -> &str {
    let near = line.char_indices().nth(PREFIX_MAX).map_or(line.len(), |(end, _)| end);
    let kernel = line[..near].find("kernel:").map_or(0, |at| at + "kernel:".len());
    let is_time = |inner: &str| {
        let inner = inner.trim_start();
        inner.contains('.') && inner.chars().all(|c| c.is_ascii_digit() || c == '.')
    };
    let mut rest = &line[kernel..];
    if let Some((before, inner, behind)) = bracketed(rest)
        && before.len() < PREFIX_MAX
        && is_time(inner)
    {
        rest = behind;
    }
    // The thread or CPU that printed the line (CONFIG_PRINTK_CALLER).
    let is_caller = |inner: &str| {
        let inner = inner.trim_start();
        inner.starts_with(['T', 'C']) && inner.len() > 1 && inner[1..].chars().all(|c| c.is_ascii_digit())
    };
    match bracketed(rest) {
        Some((before, inner, behind)) if before.trim().is_empty() && is_caller(inner) => behind,
        _ => rest,
    }
}

/// The first brackets of a line: what stands before, in and behind them.
fn bracketed(line: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = line.split_once('[')?;
    let (inner, behind) = rest.split_once(']')?;
    Some((before, inner, behind))
}

struct Draft {
    zone: ReportedZone,
    /// The sizes that were there.
    has: Vec<&'static str>,
}

#[derive(Default)]
struct Reader {
    report: Report,
    /// The reports before this one, of which the last is kept.
    whole: Option<Vec<ReportedZone>>,
    drafts: Vec<Draft>,
    /// The zone whose sizes are read, and the one whose list is.
    sizes: Option<usize>,
    list: Option<usize>,
    /// The line of `lowmem_reserve[]:`, whose numbers follow.
    reserve: Option<usize>,
    /// Words since `tainted`.
    since_tainted: Option<usize>,
    /// The node of a line `Node 0` that the rest of the line has not followed yet.
    node: Option<NodeId>,
}

impl Reader {
    fn word(&mut self, words: &[Word<'_>], at: usize) -> Result<(), ProcError> {
        let word = words[at];
        let next = words.get(at + 1);
        self.system(words, at);
        let is_last = next.is_none_or(|next| next.line != word.line);
        if let Some(number) = word.text.parse().ok().filter(|_| is_last && at > 0 && words[at - 1].text == "Node") {
            self.node = Some(NodeId(number));
        }
        if ZONES.contains(&word.text) && next.is_some_and(|next| next.text.starts_with("free:")) {
            return self.zone(words, at);
        }
        let name = word.text.strip_suffix(':').filter(|name| ZONES.contains(name));
        let has_list = next.is_some_and(|next| blocks(next.text).is_some()) || (is_last && self.node.is_some());
        if let Some(name) = name.filter(|_| has_list) {
            let node = self.node_before(words, at);
            let is_its = |draft: &Draft| draft.zone.node == node && draft.zone.name == name;
            self.list = self.drafts.iter().position(is_its);
            self.sizes = None;
            return Ok(());
        }
        if word.text == "lowmem_reserve[]:" {
            self.reserve = self.sizes.take().map(|_| word.line);
            return Ok(());
        }
        if let Some(line) = self.reserve {
            let number = word.text.parse().ok().filter(|_| word.line == line);
            match (number, self.drafts.last_mut()) {
                (Some(frames), Some(draft)) => draft.zone.protection.push(Frames(frames)),
                _ => self.reserve = None,
            }
        }
        // A word that was split where the line was full.
        let whole = next.filter(|_| is_last).map(|next| format!("{}{}", word.text, next.text)).unwrap_or_default();
        if let Some(list) = self.list {
            let is_split = blocks(word.text).is_none() && blocks(&whole).is_some();
            return self.block(list, if is_split { Word { text: &whole, ..word } } else { word });
        }
        let is_split = size(word.text).is_none() && size(&whole).is_some();
        self.size(if is_split { Word { text: &whole, ..word } } else { word })
    }

    /// The node before a zone's name; kernels without NUMA print none.
    fn node_before(&mut self, words: &[Word<'_>], at: usize) -> NodeId {
        let waiting = self.node.take();
        let node = at.checked_sub(2).filter(|at| words[*at].text.ends_with("Node"));
        let node = node.and_then(|_| words[at - 1].text.parse().ok()).map(NodeId);
        node.or(waiting).unwrap_or(NodeId(0))
    }

    /// Words that are of the machine, not of a zone.
    fn system(&mut self, words: &[Word<'_>], at: usize) {
        let text = words[at].text;
        let number = |at: usize| words.get(at).and_then(|word| word.text.trim_matches([',', ':']).parse::<u32>().ok());
        if let Some(cpu) = number(at + 1).filter(|cpu| text.ends_with("CPU:") && *cpu < CPUS_MAX) {
            self.report.cpus_at_least = self.report.cpus_at_least.max(cpu + 1);
        }
        // Up to 4.6 each zone has a line for each CPU: "CPU    0: hi:  186, btch:  31 usd:   0".
        let is_list = text == "CPU" && words.get(at + 2).is_some_and(|word| word.text == "hi:");
        if let Some(cpu) = number(at + 1).filter(|cpu| is_list && *cpu < CPUS_MAX) {
            self.report.cpus = Some(self.report.cpus.unwrap_or(0).max(cpu + 1));
        }
        if text == "Brought" && words.get(at + 1).is_some_and(|word| word.text == "up") {
            let cpus = (at + 2..at + 6).find(|at| words.get(at + 1).is_some_and(|word| word.text == "CPUs"));
            self.report.cpus = cpus.and_then(number).filter(|cpus| (1..CPUS_MAX).contains(cpus)).or(self.report.cpus);
        }
        if text == "pages" && at > 0 && words.get(at + 1).is_some_and(|word| word.text == "RAM") {
            self.report.ram_pages = words[at - 1].text.parse().ok().filter(|pages| *pages <= KIB_MAX);
        }
        if text == "Linux" && words.get(at + 1).is_some_and(|word| word.text == "version") {
            self.report.release = words.get(at + 2).map(|word| word.text.to_owned());
        }
        if is_of_32_bit(text) {
            self.report.of_32_bit.get_or_insert(words[at].line);
        }
        if text.eq_ignore_ascii_case("tainted") || text == "Tainted:" {
            self.since_tainted = Some(0);
        } else if let Some(since) = self.since_tainted.as_mut() {
            *since += 1;
            if is_release(text) {
                self.report.release = Some(text.to_owned());
                self.since_tainted = None;
            } else if *since > TAINTS_MAX {
                self.since_tainted = None;
            }
        }
    }

    fn zone(&mut self, words: &[Word<'_>], at: usize) -> Result<(), ProcError> {
        let (node, name) = (self.node_before(words, at), words[at].text);
        let is_its = |draft: &Draft| draft.zone.node == node && draft.zone.name == name;
        if self.drafts.iter().any(is_its) {
            // A report that is cut off is not the last whole one.
            self.end_report().or_else(|error| self.whole.is_some().then_some(()).ok_or(error))?;
        }
        let zone = ReportedZone::new(node, name, words[at].line);
        self.drafts.push(Draft { zone, has: Vec::new() });
        self.sizes = Some(self.drafts.len() - 1);
        self.list = None;
        Ok(())
    }

    /// A size of a zone, such as `free:15360kB`; other words are left out.
    fn size(&mut self, word: Word<'_>) -> Result<(), ProcError> {
        let Some(draft) = self.sizes.and_then(|at| self.drafts.get_mut(at)) else { return Ok(()) };
        let Some((key, _)) = word.text.split_once(':') else { return Ok(()) };
        let Some(key) = SIZES.into_iter().find(|size| *size == key) else { return Ok(()) };
        if draft.has.contains(&key) {
            return Ok(());
        }
        let (_, kib) = size(word.text).ok_or_else(|| word.wrong(format!("{key}:NUMBERkB")))?;
        draft.has.push(key);
        let zone = &mut draft.zone;
        match key {
            "free" => zone.free = kib,
            "boost" => zone.boost = kib,
            "min" => zone.marks[0] = kib,
            "low" => zone.marks[1] = kib,
            "high" => zone.marks[2] = kib,
            "present" => zone.present = kib,
            _ => zone.managed = Some(kib),
        }
        Ok(())
    }

    /// `12*4kB` of a list, its types `(UME)`, or its end.
    fn block(&mut self, list: usize, word: Word<'_>) -> Result<(), ProcError> {
        if let Some((count, kib)) = blocks(word.text) {
            let page = if self.report.page_kib == 0 { kib } else { self.report.page_kib };
            self.report.page_kib = page;
            let order = kib.checked_div(page).filter(|frames| frames.is_power_of_two() && frames * page == kib);
            let order = order.map(u64::trailing_zeros).and_then(|order| usize::try_from(order).ok());
            let order = order.filter(|order| *order < ORDERS_MAX);
            let order = order.ok_or_else(|| word.wrong(format!("blocks of {page} kB times a power of two")))?;
            let blocks = &mut self.drafts[list].zone.blocks;
            blocks.resize(blocks.len().max(order + 1), 0);
            blocks[order] = count;
        } else if word.text == "=" || word.text == "Node" {
            self.list = None;
        }
        Ok(())
    }

    fn end_report(&mut self) -> Result<(), ProcError> {
        let drafts = std::mem::take(&mut self.drafts);
        (self.sizes, self.list, self.reserve) = (None, None, None);
        self.report.reports += 1;
        let whole = drafts.into_iter().map(Draft::finish).collect::<Result<Vec<_>, _>>()?;
        self.whole = Some(whole);
        Ok(())
    }

    fn finish(mut self, end: usize) -> Result<Report, ProcError> {
        if !self.drafts.is_empty() {
            self.end_report().or_else(|error| self.whole.is_some().then_some(()).ok_or(error))?;
        }
        let zones = self.whole.take().filter(|zones| !zones.is_empty());
        let zones = zones.ok_or_else(|| {
            let expected = "\"Node N ZONE free:NUMBERkB min:NUMBERkB ...\"".to_owned();
            ProcError::Parse { file: FILE.to_owned(), line: end + 1, expected, found: "the end".to_owned() }
        })?;
        let page_kib = if self.report.page_kib == 0 { 4 } else { self.report.page_kib };
        Ok(Report { zones, page_kib, ..self.report })
    }
}

/// Flags between `Tainted:` and the release, at most.
const TAINTS_MAX: usize = 24;

impl Draft {
    fn finish(self) -> Result<ReportedZone, ProcError> {
        let lacks = ["free", "min", "low", "high", "present"].into_iter().find(|size| !self.has.contains(size));
        match lacks {
            None => Ok(self.zone),
            Some(size) => Err(ProcError::Parse {
                file: FILE.to_owned(),
                line: self.zone.line,
                expected: format!("{size}:NUMBERkB of node {}, zone {}", self.zone.node, self.zone.name),
                found: "none before the next zone or the end".to_owned(),
            }),
        }
    }
}

/// `free:15360kB`: one of [`SIZES`], and KiB.
fn size(text: &str) -> Option<(&'static str, u64)> {
    let (key, value) = text.split_once(':')?;
    let key = SIZES.into_iter().find(|size| *size == key)?;
    let value = value.trim_end_matches(',');
    let number = value.strip_suffix("kB").or_else(|| value.strip_suffix("KB"))?;
    Some((key, number.parse().ok().filter(|kib| *kib <= KIB_MAX)?))
}

/// `12*4kB`: blocks, and the size of each in KiB.
fn blocks(text: &str) -> Option<(u64, u64)> {
    let (count, size) = text.split_once('*')?;
    let kib: u64 = size.strip_suffix("kB")?.parse().ok()?;
    Some((count.parse().ok().filter(|count| *count <= KIB_MAX)?, kib)).filter(|(_, kib)| (1..=KIB_MAX).contains(kib))
}

/// Is it a register of i386, or an address of a call trace with 8 digits, where 64-bit kernels have 16: `[<c0123456>]`?
fn is_of_32_bit(text: &str) -> bool {
    let address = text.strip_prefix("[<").or_else(|| text.strip_prefix("([<")).and_then(|rest| rest.split('>').next());
    let is_short = |address: &str| address.len() == 8 && address.chars().all(|c| c.is_ascii_hexdigit());
    matches!(text, "EIP:" | "EAX:") || address.is_some_and(is_short)
}

/// Is it a release, such as 4.18.0-305.el8.x86_64? A time, such as 12345.678901, is none.
fn is_release(text: &str) -> bool {
    let mut parts = text.split('.');
    let major = parts.next().and_then(|part| part.parse::<u32>().ok());
    let minor = parts.next().is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    major.is_some_and(|major| (2..100).contains(&major)) && minor
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made up, in the form of 6.1.
    const REPORT: &str = "\
[ 12.5] CPU: 3 PID: 77 Comm: app Tainted: G        W          6.1.0-9-amd64 #1
[ 12.5] Node 0 DMA free:15360kB boost:0kB min:40kB low:52kB high:64kB reserved_highatomic:0KB present:15996kB managed:15360kB
[ 12.5] lowmem_reserve[]: 0 1900 3900
[ 12.5] Node 1 Normal free:36kB boost:4kB min:34544kB low:43180kB high:51816kB present:2097152kB managed:2031616kB
[ 12.5] lowmem_reserve[]: 0 0 0
[ 12.5] Node 0 DMA: 0*4kB 0*8kB 1*1024kB (U) 1*2048kB (M) 3*4096kB (M) = 15360kB
[ 12.5] Node 1 Normal: 3*4kB (UME) 3*8kB = 36kB
";

    #[test]
    fn zones_marks_and_lists() {
        let report = parse(REPORT).unwrap();
        let counted = parse(&format!("{REPORT}[ 12.5] 528287 pages RAM\n")).unwrap();
        assert_eq!((report.ram_pages, counted.ram_pages), (None, Some(528_287)));
        assert_eq!((report.release.as_deref(), report.cpus_at_least, report.page_kib), (Some("6.1.0-9-amd64"), 4, 4));
        let [dma, normal] = report.zones.as_slice() else { panic!("{report:?}") };
        assert_eq!((dma.managed, dma.marks, dma.protection.len()), (Some(15360), [40, 52, 64], 3));
        assert_eq!(dma.blocks, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 3]);
        assert_eq!((normal.node, normal.boost, normal.free), (NodeId(1), 4, 36));
        assert_eq!(normal.blocks, [3, 3]);
    }

    #[test]
    fn logs_mails_and_wrapped_lines_make_no_difference() {
        let expected = parse(REPORT).unwrap().zones;
        let same = |text: &str| {
            let zones = parse(text).unwrap().zones;
            let without_line = |zones: &[ReportedZone]| {
                zones.iter().map(|zone| ReportedZone { line: 0, ..zone.clone() }).collect::<Vec<_>>()
            };
            assert_eq!(without_line(&zones), without_line(&expected), "{text}");
        };
        same(&REPORT.replace("[ 12.5]", "Nov 01 10:00:00 host kernel:"));
        same(&REPORT.replace("[ 12.5]", "2024-01-01T10:00:00.123456+00:00 host kernel: [   12.500000]"));
        same(&REPORT.replace("[ 12.5]", "> <4>[Mon Jan  1 10:00:00 2024]"));
        same(
            &REPORT.replace(" min:", "\nmin:").replace(" present:", "\n> present:").replace(" 1*2048kB", "\n1*2048kB"),
        );
        same(&format!("{REPORT}{REPORT}"));
        same(&format!("{REPORT}{}", &REPORT[..REPORT.find(" present").unwrap()]));
    }

    #[test]
    fn parts_of_a_line_that_were_printed_as_lines_are_one() {
        let expected = parse(REPORT).unwrap();
        let parts = REPORT
            .replace("[ 12.5] Node 0 ", "[ 12.5] Node 0 \n[ 12.6][ T77] other: line\n[ 12.7][    C1] ")
            .replace("[ 12.5] Node 1 ", "[ 12.5] Node 1 \n[ 12.7] ")
            .replace("DMA: ", "DMA: \n[ 12.8] ")
            .replace(" 1*2048kB", "\nJan  1 00:00:01 host kernel: [ 12.9] 1*2048kB");
        let blocks = |report: &Report| -> Vec<(NodeId, [u64; 3], Vec<u64>)> {
            report.zones.iter().map(|zone| (zone.node, zone.marks, zone.blocks.clone())).collect()
        };
        let found = parse(&parts).unwrap();
        assert_eq!((blocks(&found), found.release), (blocks(&expected), expected.release), "{parts}");
    }

    #[test]
    fn words_that_were_split_where_a_line_was_full_are_one() {
        let expected = parse(REPORT).unwrap().zones;
        for (whole, split) in [
            ("managed:2031616kB", "managed:\n> 2031616kB"),
            ("present:2097152kB", "present:2097152k\nB"),
            ("min:34544kB", "mi\nn:34544kB"),
            ("3*4096kB", "3*40\n96kB"),
        ] {
            let zones = parse(&REPORT.replace(whole, split)).unwrap().zones;
            let sizes = |zones: &[ReportedZone]| {
                zones
                    .iter()
                    .map(|zone| (zone.marks, zone.present, zone.managed, zone.blocks.clone()))
                    .collect::<Vec<_>>()
            };
            assert_eq!(sizes(&zones), sizes(&expected), "{split}");
        }
    }

    #[test]
    fn kernels_of_32_bits_are_told_by_their_addresses() {
        let line = |text: &str| parse(&format!("[ 1.5]  {text}\n{REPORT}")).unwrap().of_32_bit;
        for text in ["[<c0123456>] ? x+0x1/0x2", "EIP: 0060:[<c01>]", "EAX: 00000000 EBX: 00000001"] {
            assert_eq!(line(text), Some(1), "{text}");
        }
        assert_eq!(line("[<ffffffff81123456>] x+0x1/0x2"), None);
    }

    #[test]
    fn damage_names_its_place() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            error(&REPORT.replace("low:43180kB", "low:4318x")),
            "OOM report, line 4: expected low:NUMBERkB, found \"low:4318x\""
        );
        assert_eq!(
            error(&REPORT.replace("present:15996kB", "")),
            "OOM report, line 2: expected present:NUMBERkB of node 0, zone DMA, found none before the next zone or the end"
        );
        assert!(error("nothing\n").starts_with("OOM report, line 2: expected \"Node N ZONE"));
    }

    #[test]
    fn kernels_without_numa_print_no_node() {
        let old = "Pid: 7, comm: x Not tainted 2.6.32-431.el6.x86_64 #1\nDMA per-cpu:\nCPU    0: hi:    0, btch:   1 usd:   0\n\
                   CPU    1: hi:    0, btch:   1 usd:   0\nDMA free:15360kB min:40kB low:52kB high:64kB present:15996kB\n";
        let report = parse(old).unwrap();
        assert_eq!((report.zones[0].node, report.zones[0].managed, report.cpus), (NodeId(0), None, Some(2)));
        assert_eq!(report.release.as_deref(), Some("2.6.32-431.el6.x86_64"));
    }
}
