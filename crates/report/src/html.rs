//! The report as one HTML page with its styles, scripts and data inside, so that the page needs no network and may be sent by
//! mail.
//!
//! The data is JSON in a script element of its own, with `<` written as an escape. The scripts only make text nodes of the data.
//! The parts of the page are files under assets/; uPlot (MIT, assets/uplot/LICENSE) draws the lines over time.

use std::{collections::BTreeSet, iter::successors};

use serde::Serialize;

use crate::{compare::Sweep, frontier::FrontierRow, published::Judgement, series::Series};

const PAGE: &str = include_str!("../assets/page.html");
const STYLES: [&str; 2] = [include_str!("../assets/uplot/uPlot.min.css"), include_str!("../assets/page.css")];
/// The licence of uPlot, which every copy of it must carry.
const LICENCE: &str = include_str!("../assets/uplot/LICENSE");
const SCRIPTS: [&str; 12] = [
    include_str!("../assets/uplot/uPlot.iife.min.js"),
    include_str!("../assets/dom.js"),
    include_str!("../assets/state.js"),
    include_str!("../assets/columns.js"),
    include_str!("../assets/lines.js"),
    include_str!("../assets/blocks.js"),
    include_str!("../assets/map.js"),
    include_str!("../assets/charts.js"),
    include_str!("../assets/chains.js"),
    include_str!("../assets/timeline.js"),
    include_str!("../assets/grids.js"),
    include_str!("../assets/page.js"),
];

/// Everything that a page shows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Document {
    /// The page's name in a browser and in a list of files: the columns, the experiment and the counts of verdicts.
    pub name: String,
    /// The title in words: the columns that are compared, and what the experiment asks.
    pub title: String,
    /// The experiment, the machine and the case.
    pub subtitle: String,
    /// The command that makes the page again.
    pub command: String,
    /// The command that compares all rows.
    pub compare: String,
    /// Hash of the program that made the results.
    pub program: String,
    /// The sentence that stands where no columns are compared.
    pub verdict: String,
    /// Names of all columns; a column's place here decides its colour and its dash on every chart.
    pub columns: Vec<String>,
    /// The pairs of compared columns.
    pub pairs: Vec<PairOf>,
    /// Each column with the one before it, where a result has three columns and more: the steps of a ladder.
    pub steps: Vec<PairOf>,
    /// The map of a grid of settings; none of a result that has none.
    pub sweep: Option<Sweep>,
    /// The claims of the published series whose tables the results make.
    pub claims: Option<Judgement>,
    /// The ways in which guests give memory back.
    pub frontier: Vec<FrontierRow>,
    /// The runs that are shown over time.
    pub kernels: Vec<Kernel>,
    /// Distributions of samples.
    pub ecdf: Vec<Distribution>,
    /// Times by cause.
    pub causes: Vec<Causes>,
    /// The command that puts more chains on the page, with what it is for.
    pub more_chains: Option<(String, String)>,
    /// Missing parts of the page, each with the command that records its data.
    pub missing: Vec<(String, String)>,
}

/// Two columns that are compared.
#[derive(Clone, Debug, Serialize)]
pub struct PairOf {
    /// The old column.
    pub old: String,
    /// The new column.
    pub new: String,
    /// A sentence that counts all rows by verdict.
    pub verdict: String,
    /// A sentence that names both columns, the machine and the runs.
    pub which: String,
    /// A sentence that names the largest change of each verdict.
    pub largest: String,
    /// Number of runs of the old and of the new column.
    pub runs: (usize, usize),
    /// The rows with the largest changes.
    pub rows: Vec<Changed>,
    /// All rows for which a direction is better, in the order of the tables; empty where the page compares one pair of columns.
    pub all: Vec<Changed>,
}

/// A row and how it has changed, in per cent.
#[derive(Clone, Debug, Serialize)]
pub struct Changed {
    /// A name for links.
    pub id: String,
    /// The row.
    pub name: String,
    /// The unit of its values.
    pub unit: String,
    /// The value of the old column.
    pub old: f64,
    /// The value of the new column.
    pub new: f64,
    /// The change in per cent; none if the old value is zero.
    pub change: Option<f64>,
    /// The lower end of the interval of the difference, in per cent of the old value.
    pub low: Option<f64>,
    /// The upper end of the interval.
    pub high: Option<f64>,
    /// The comparison's verdict in words.
    pub verdict: &'static str,
}

/// A run of one kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Kernel {
    /// The kernel's name.
    pub name: String,
    /// A note that says which run of the kernel this is.
    pub note: String,
    /// The map of its memory.
    pub map: Option<Map>,
    /// The counters and gauges of the run.
    pub series: Option<Series>,
    /// For each sample of the series, the unusable free space index at pageblock order, in thousandths.
    pub unusable: Option<Vec<u64>>,
    /// The longest operations off the allocator's fast path, the longest first.
    pub stalls: Vec<Stall>,
    /// The command that prints an operation's chain of facts, but for its number; none where facts are not kept.
    pub why: Option<String>,
    /// Chains of the longest operations, the longest first.
    pub chains: Vec<Chain>,
    /// The reason why there are no chains, where some were asked for.
    pub no_chains: Option<String>,
}

/// The chain of an operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chain {
    /// The number of the operation, as [`Stall::number`].
    pub number: usize,
    /// The lines that `pagelab why` prints of it.
    pub text: String,
}

/// An operation off the allocator's fast path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stall {
    /// The number that `pagelab why --stall` knows the operation by: 1 is the longest of its run.
    pub number: usize,
    /// Start, in microseconds since the start of the run.
    pub at_us: f64,
    /// Whole time, in milliseconds.
    pub ms: f64,
    /// The kind of operation.
    pub what: String,
    /// The number of the task.
    pub task: u32,
    /// The CPU that the task was on at the start.
    pub cpu: u32,
    /// The order of the requested block, if memory was requested.
    pub order: Option<u8>,
    /// Causes with their milliseconds, the longest first.
    pub parts: Vec<(String, f64)>,
}

/// A map of memory over time.
#[derive(Clone, Debug, Serialize)]
pub struct Map {
    /// As in [`crate::map::Head`].
    pub pageblock_order: u8,
    /// As in [`crate::map::Head`].
    pub group: u32,
    /// As in [`crate::map::Head`].
    pub types: Vec<String>,
    /// Numbers of the page types that some cell of the map has at some instant.
    pub seen: Vec<u8>,
    /// The map's zones.
    pub bands: Vec<MapBand>,
    /// Instants of the samples of the map, in microseconds.
    pub at_us: Vec<u64>,
    /// Places of compaction's scanners at each sample.
    pub scanners: Vec<Vec<[u32; 2]>>,
    /// The fragmentation of each band at each sample.
    pub fragmentation: Vec<Vec<i64>>,
    /// For each sample of the map, the index of the series' sample at that instant.
    pub of_series: Vec<usize>,
    /// The map's cells, packed as by [`crate::map::BlockMap::packed`], in base 64.
    pub packed: String,
}

/// A zone's part of a map.
#[derive(Clone, Debug, Serialize)]
pub struct MapBand {
    /// The zone's name, as in [`crate::map::Band`].
    pub zone: String,
    /// The zone's name for people.
    pub title: String,
    /// As in [`crate::map::Band`].
    pub first: u32,
    /// As in [`crate::map::Band`].
    pub blocks: u32,
}

/// The distribution of a metric's samples.
#[derive(Clone, Debug, Serialize)]
pub struct Distribution {
    /// The metric and the case.
    pub title: String,
    /// The unit of its samples.
    pub unit: String,
    /// One curve for each kernel.
    pub curves: Vec<Curve>,
}

/// The distribution of a metric's samples on one kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// The kernel.
    pub kernel: String,
    /// Number of samples.
    pub count: usize,
    /// Points of the distribution: a value, and the share of samples that are at most this value.
    pub points: Vec<(f64, f64)>,
    /// The median, p99 and p99.9; none of a share that the samples are too few for.
    pub marks: [Option<f64>; 3],
}

/// CPU time by cause in one case.
#[derive(Clone, Debug, Serialize)]
pub struct Causes {
    /// The case.
    pub title: String,
    /// The kernels, one for each column.
    pub columns: Vec<String>,
    /// Causes, the longest first.
    pub rows: Vec<Cause>,
}

/// A cause and its time on each kernel, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Cause {
    /// The cause.
    pub name: String,
    /// Milliseconds on each kernel; none where causes are not known.
    pub values: Vec<Option<f64>>,
}

/// Most points of a curve: the first half has evenly spaced ranks, the second half comes nearer and nearer to the last rank.
const POINTS: usize = 160;
/// Shares of the marks of a curve, in thousandths.
pub const MARKS: [usize; 3] = [500, 990, 999];

impl Curve {
    /// The distribution of `samples`; if there are more than [`POINTS`], the curve has some ranks, most of them in the tail.
    pub fn of(kernel: String, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let count = samples.len();
        let points = ranks(count).into_iter().map(|at| (samples[at], (at + 1) as f64 / count as f64)).collect();
        let mark = |thousandths: usize| {
            let rank = (thousandths * count).div_ceil(1000);
            // The last rank is the largest sample, which has a name of its own.
            (0 < rank && rank < count).then(|| samples[rank - 1])
        };
        Self { kernel, count, points, marks: MARKS.map(mark) }
    }
}

/// Indices of the sorted samples that a curve has points at.
fn ranks(count: usize) -> Vec<usize> {
    if count <= POINTS {
        return (0..count).collect();
    }
    let half = POINTS / 2;
    let even = (0..half).map(|step| step * (count - 1) / half);
    // Distances from the last rank: one by one at first, then by an eighth more each time.
    let distances = successors(Some(0), |distance| Some(distance + 1 + distance / 8));
    let tail = distances.take_while(|distance| *distance < count).take(half).map(|distance| count - 1 - distance);
    even.chain(tail).collect::<BTreeSet<usize>>().into_iter().collect()
}

/// The HTML page of a document.
///
/// # Panics
/// Never: a document serialises.
pub fn page(document: &Document) -> String {
    let json = serde_json::to_string(document).expect("a document serialises");
    // With `<` escaped, nothing in the JSON can end the script element or begin a comment in it.
    let json = json.replace('<', "\\u003c");
    let mut page = PAGE
        .replace("/*CSS*/", &STYLES.join("\n"))
        .replace("/*JS*/", &format!("/*\n{LICENCE}*/\n{}", SCRIPTS.join("\n")));
    // From the last place to the first, so that placeholders in what is inserted are not replaced.
    for (place, text) in
        [("/*DATA*/", json), ("/*FIRST*/", first_words(document)), ("/*NAME*/", text_of_html(&document.name))]
    {
        let (before, after) = page.split_once(place).expect("the page has a place for it");
        page = format!("{before}{text}{after}");
    }
    page
}

/// The title and the sentences of the first pair as HTML, for readers that run no scripts.
fn first_words(document: &Document) -> String {
    let sentences = match document.pairs.first() {
        Some(pair) => vec![&pair.which, &pair.verdict, &pair.largest],
        None => vec![&document.verdict],
    };
    let sentences = sentences.into_iter().map(|sentence| format!("<p>{}</p>", text_of_html(sentence)));
    format!("<h1>{}</h1>{}", text_of_html(&document.title), sentences.collect::<String>())
}

/// Text in HTML: markup in it stays text.
fn text_of_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Bytes in base 64 (RFC 4648).
pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if at > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_data() {
        let hostile = "</script><script>alert(1)</script><!-- /*JS*/ /*CSS*/ /*DATA*/ \"'";
        let words = || hostile.to_owned();
        let page = page(&Document { name: words(), title: words(), verdict: words(), ..Document::default() });
        assert_eq!(page.matches("alert(1)").count(), 6, "as text and as data");
        assert_eq!(page.matches("&lt;script&gt;alert(1)").count(), 3);
        assert!(!page.contains("<script>alert"), "it stands as an escape");
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        let (json, _) = rest.split_once("</script>").unwrap();
        let back: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(back["title"], hostile);
    }

    #[test]
    fn a_page_asks_nobody_for_anything() {
        let page = page(&Document::default());
        assert!(page.contains("default-src 'none'"));
        for word in ["src=\"http", "href=\"http", "@import", "fetch(", "XMLHttpRequest", "innerHTML", "eval("] {
            assert!(!page.contains(word), "{word}");
        }
        assert_eq!(page.matches("</script>").count(), 2);
    }

    #[test]
    fn base_64_is_that_of_the_rfc() {
        let of = |text: &str| base64(text.as_bytes());
        assert_eq!(
            ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(of),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]
        );
    }

    #[test]
    fn a_distribution_keeps_its_ends() {
        let curve = Curve::of(String::new(), (0..1000).map(f64::from).rev().collect());
        assert_eq!(curve.count, 1000);
        assert!(curve.points.len() <= POINTS && curve.points.is_sorted_by(|a, b| a.1 < b.1));
        assert_eq!((curve.points[0], *curve.points.last().unwrap()), ((0.0, 0.001), (999.0, 1.0)));
        assert_eq!(curve.points.iter().filter(|(_, share)| *share > 0.991).count(), 9, "the end of the tail is whole");
        assert_eq!(curve.marks, [Some(499.0), Some(989.0), Some(998.0)]);
        let few = Curve::of(String::new(), (0..99).map(f64::from).collect());
        assert_eq!(few.marks, [Some(49.0), None, None], "99 samples have no p99");
        assert_eq!(Curve::of(String::new(), vec![2.0, 1.0]).points, [(1.0, 0.5), (2.0, 1.0)]);
    }
}
