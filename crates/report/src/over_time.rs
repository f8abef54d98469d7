//! Time series and logs of slow operations as texts of 80 columns and as comma-separated values.

use std::collections::BTreeSet;

use csv::Writer;

use crate::record::{Cell, HUGE, RESIDENT};
use crate::series::{Sample, Series};
use crate::short::WIDTH;
use crate::slow_path::{Entry, SlowPath};

/// A column of the digest: its head, the names of the series that it sums up, and whether it shows the movement since the row
/// before.
struct Digest {
    head: &'static str,
    takes: fn(&str) -> bool,
    moves: bool,
    /// The digest's unit in units of the series.
    of: u64,
}

/// The default columns of a time series: values of the whole machine, first state, then events.
const DIGEST: [Digest; 10] = [
    Digest { head: "free-MiB", takes: |name| last(name) == "nr_free_pages", moves: false, of: 256 },
    Digest { head: "free-blk", takes: |name| name.ends_with("/blocks/free"), moves: false, of: 1 },
    Digest { head: "huge", takes: |name| last(name) == "nr_anon_transparent_hugepages", moves: false, of: 1 },
    Digest { head: "Unmov", takes: |name| name.ends_with("/blocks/Unmovable"), moves: false, of: 1 },
    Digest { head: "Recl", takes: |name| name.ends_with("/blocks/Reclaimable"), moves: false, of: 1 },
    Digest { head: "Mov", takes: |name| name.ends_with("/blocks/Movable"), moves: false, of: 1 },
    Digest { head: "+faults", takes: |name| name == "pgfault", moves: true, of: 1 },
    Digest { head: "+stall", takes: |name| name.starts_with("allocstall"), moves: true, of: 1 },
    Digest { head: "+compact", takes: |name| name == "compact_stall", moves: true, of: 1 },
    Digest { head: "+swapout", takes: |name| name == "pswpout", moves: true, of: 1 },
];

/// The default columns for a guest's memory on its host.
const OF_HOST: [Digest; 2] = [
    Digest { head: "host-MiB", takes: |name| name == RESIDENT, moves: false, of: 256 },
    Digest { head: "host-huge-MiB", takes: |name| name == HUGE, moves: false, of: 256 },
];

fn is_of_host(series: &Series) -> bool {
    series.names().contains(&RESIDENT)
}

/// The part of a name after its last slash: the gauge, whether or not it is kept by node.
fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The series sampled in a cell: the one of its kernel, and that of a guest's memory on its host.
pub fn series_of(cell: &Cell) -> impl Iterator<Item = &Series> {
    let of_host = cell.footprint.iter().map(|footprint| &footprint.series).filter(|series| !series.rows.is_empty());
    cell.series.iter().chain(of_host)
}

/// The series of a cell that have one of these names; if no name is asked for, or the cell has one series, every series.
pub(crate) fn series_with<'a>(cell: &'a Cell, names: &'a [String]) -> impl Iterator<Item = (&'a Cell, &'a Series)> {
    let takes_all = names.is_empty() || series_of(cell).count() == 1;
    let knows = move |series: &&Series| takes_all || series.names().iter().any(|name| names.iter().any(|n| n == name));
    series_of(cell).filter(knows).map(move |series| (cell, series))
}

/// The series of the cells as text: these columns or, if `names` is empty, the digest.
pub fn series_text(cells: &[Cell], names: &[String]) -> String {
    let texts = cells.iter().flat_map(|cell| series_with(cell, names)).map(|(cell, series)| {
        let samples = series.samples();
        let every = series.every_ps as f64 / 1e12;
        let title = format!("{}\nevery {every} s, {} samples", who(cell), samples.len());
        let table =
            |columns: Vec<TextColumn>| tables(&std::iter::once(seconds(&samples)).chain(columns).collect::<Vec<_>>());
        if !names.is_empty() {
            return format!(
                "{title}\n{}",
                table(names.iter().map(|name| named_column(series, &samples, name)).collect())
            );
        }
        let digest = if is_of_host(series) { &OF_HOST[..] } else { &DIGEST };
        let of_kernel =
            |kernel: &str| table(digest.iter().map(|of| digest_column(series, &samples, of, kernel)).collect());
        let texts: Vec<_> = match &kernels(series)[..] {
            [] => vec![of_kernel("")],
            kernels => kernels.iter().map(|kernel| format!("{kernel}\n{}", of_kernel(&format!("{kernel}/")))).collect(),
        };
        format!("{title}\n{}", texts.join("\n"))
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The kernels of a run with guests, the host and each guest; empty if the run has one kernel, whose names have no prefix.
fn kernels(series: &Series) -> Vec<String> {
    let of = |name: &str| {
        let (kernel, _) = name.split_once('/')?;
        let number = if kernel == "host" { 0 } else { kernel.strip_prefix("guest")?.parse().ok()? };
        Some((number, kernel.to_owned()))
    };
    let kernels: BTreeSet<(u32, String)> = series.names().into_iter().filter_map(of).collect();
    kernels.into_iter().map(|(_, kernel)| kernel).collect()
}

/// The name of the cell above its series.
pub(crate) fn who(cell: &Cell) -> String {
    let key = &cell.key;
    format!("{} {}, {} {} on {}, seed {}", key.experiment, key.case, key.target, key.kernel, key.machine, key.seed)
}

/// A column of text: its head and the values under it.
type TextColumn = (String, Vec<String>);

fn seconds(samples: &[Sample]) -> TextColumn {
    ("s".to_owned(), samples.iter().map(|sample| format!("{:.3}", sample.at_us as f64 / 1e6)).collect())
}

/// A column of the digest, summed over the names that begin with `kernel`.
fn digest_column(series: &Series, samples: &[Sample], digest: &Digest, kernel: &str) -> TextColumn {
    let takes = |name: &str| name.strip_prefix(kernel).is_some_and(digest.takes);
    let moving: Vec<usize> = (0..series.columns.len()).filter(|column| takes(&series.columns[*column])).collect();
    let still: Vec<u64> = series.still.iter().filter(|(name, _)| takes(name)).map(|(_, value)| *value).collect();
    if moving.is_empty() && still.is_empty() {
        return (digest.head.to_owned(), vec!["-".to_owned(); samples.len()]);
    }
    let rest: u64 = still.iter().fold(0, |sum, value| sum.wrapping_add(*value));
    let sum = |sample: &Sample| moving.iter().fold(rest, |sum, column| sum.wrapping_add(sample.values[*column]));
    let mut before = samples.first().map(sum);
    let value = |sample: &Sample| {
        let now = sum(sample);
        let then = before.replace(now).unwrap_or(now);
        if digest.moves { now.wrapping_sub(then).cast_signed().to_string() } else { (now / digest.of).to_string() }
    };
    (digest.head.to_owned(), samples.iter().map(value).collect())
}

fn named_column(series: &Series, samples: &[Sample], name: &str) -> TextColumn {
    let moving = series.columns.iter().position(|column| column == name);
    let value = |sample: &Sample| match (moving, series.still.get(name)) {
        (Some(column), _) => sample.values[column].to_string(),
        (None, Some(value)) => value.to_string(),
        (None, None) => "-".to_owned(),
    };
    (name.to_owned(), samples.iter().map(value).collect())
}

/// Lays columns side by side. Columns that do not fit beside the first column go into further tables, which repeat the first
/// column.
fn tables(columns: &[TextColumn]) -> String {
    let [first, rest @ ..] = columns else { return String::new() };
    let mut tables: Vec<Vec<&TextColumn>> = Vec::new();
    let mut left = 0;
    for column in rest {
        let needs = width(column) + 1;
        if tables.is_empty() || left < needs {
            tables.push(vec![first]);
            left = WIDTH.saturating_sub(width(first));
        }
        left = left.saturating_sub(needs);
        tables.last_mut().expect("one was just pushed").push(column);
    }
    tables.iter().map(|columns| table(columns)).collect::<Vec<_>>().join("\n")
}

fn width((head, cells): &TextColumn) -> usize {
    cells.iter().map(String::len).max().unwrap_or(0).max(head.len())
}

fn table(columns: &[&TextColumn]) -> String {
    let line = |row: Option<usize>| {
        let cell = |column: &&TextColumn| {
            let text = row.map_or(&column.0, |row| &column.1[row]);
            format!("{text:>width$}", width = width(column))
        };
        columns.iter().map(cell).collect::<Vec<_>>().join(" ") + "\n"
    };
    std::iter::once(None).chain((0..columns[0].1.len()).map(Some)).map(line).collect()
}

/// A line for each value: every sample of a name that moved, and one line for a name that did not. With `names`, only those
/// names.
///
/// # Panics
/// Never: writing to memory does not fail, and every line has as many fields.
pub fn series_csv(cells: &[Cell], names: &[String]) -> String {
    let wanted = |name: &str| names.is_empty() || names.iter().any(|known| known == name);
    let mut writer = Writer::from_writer(Vec::new());
    let mut line = |fields: [&str; 7]| writer.write_record(fields).expect("memory takes it");
    line(["experiment", "case", "kernel", "seed", "s", "name", "value"]);
    for (cell, series) in cells.iter().flat_map(|cell| series_with(cell, names)) {
        let (kernel, seed) = (cell.key.column().label(), cell.key.seed.to_string());
        let mut value = |at_us: u64, name: &str, value: u64| {
            let (at, value) = (format!("{:.6}", at_us as f64 / 1e6), value.to_string());
            line([&cell.key.experiment, &cell.key.case, &kernel, &seed, &at, name, &value]);
        };
        for (number, sample) in series.samples().iter().enumerate() {
            if number == 0 {
                series
                    .still
                    .iter()
                    .filter(|(name, _)| wanted(name))
                    .for_each(|(name, at)| value(sample.at_us, name, *at));
            }
            let moving = series.columns.iter().zip(&sample.values).filter(|(name, _)| wanted(name));
            moving.for_each(|(name, now)| value(sample.at_us, name, *now));
        }
    }
    String::from_utf8(writer.into_inner().expect("memory takes it")).expect("made of strings")
}

/// The longest operations of cells that log them: the total in numbers, then the `count` longest operations with their causes.
pub fn slow_path_text(cells: &[Cell], count: usize) -> String {
    let with = cells.iter().filter_map(|cell| Some((cell, cell.slow_path.as_ref()?)));
    with.map(|(cell, log)| format!("{}\n{}", who(cell), log_text(log, count))).collect::<Vec<_>>().join("\n")
}

fn log_text(log: &SlowPath, count: usize) -> String {
    let all = log.totals.values().fold(0_u64, |sum, total| sum.saturating_add(total.ps));
    let mut text = format!("{} operations off the fast path, {} ms together\n", log.count(), ms(all));
    let mut totals: Vec<_> = log.totals.iter().collect();
    totals.sort_by_key(|(_, total)| std::cmp::Reverse(total.ps));
    for (what, total) in totals {
        text += &format!("{:>16} {:>9} {:>14} ms\n", what, total.count, ms(total.ps));
    }
    let longest = log.longest(count);
    if longest.is_empty() {
        return text;
    }
    text +=
        &format!("{:>14} {:>12} {:>5} {:>4} {:>5}  what, and where its time went\n", "s", "ms", "task", "cpu", "order");
    for entry in longest {
        let order = entry.order.map_or_else(|| "-".to_owned(), |order| order.to_string());
        let (start, took) = (format!("{:.6}", entry.start_ps as f64 / 1e12), ms(entry.ps()));
        text +=
            &format!("{start:>14} {took:>12} {:>5} {:>4} {order:>5}  {}\n", entry.task, entry.cpu, what(log, entry));
        text += &wrapped(&parts(log, entry), 15);
    }
    text
}

fn ms(ps: u64) -> String {
    format!("{:.3}", ps as f64 / 1e9)
}

fn what(log: &SlowPath, entry: &Entry) -> String {
    let page = entry.vpn.map(|vpn| format!(" at 0x{:x}", vpn << 12));
    format!("{}{}", log.name(entry), page.unwrap_or_default())
}

/// An operation's time by cause, such as `migrate 1.234 ms`, the longest first.
fn parts(log: &SlowPath, entry: &Entry) -> Vec<String> {
    log.parts(entry).iter().map(|(cause, ps)| format!("{cause} {}", ms(*ps))).collect()
}

/// Words with commas between them, in lines of 80 columns that begin with `indent` spaces.
fn wrapped(words: &[String], indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (number, word) in words.iter().enumerate() {
        let word = if number + 1 < words.len() { format!("{word},") } else { word.clone() };
        match lines.last_mut().filter(|line| line.len() + 1 + word.len() <= WIDTH) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(format!("{:indent$}{word}", "")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// A line for each cause of each of the longest operations, and one line for the operation's whole time.
///
/// # Panics
/// Never: writing to memory does not fail, and every line has as many fields.
pub fn slow_path_csv(cells: &[Cell], count: usize) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    let mut line = |fields: [&str; 12]| writer.write_record(fields).expect("memory takes it");
    line(["experiment", "case", "kernel", "seed", "s", "task", "cpu", "what", "vpn", "order", "cause", "ns"]);
    for (cell, log) in cells.iter().filter_map(|cell| Some((cell, cell.slow_path.as_ref()?))) {
        let (kernel, seed) = (cell.key.column().label(), cell.key.seed.to_string());
        for entry in log.longest(count) {
            let at = format!("{:.9}", entry.start_ps as f64 / 1e12);
            let [task, cpu] = [entry.task, entry.cpu].map(|number| number.to_string());
            let vpn = entry.vpn.map_or_else(String::new, |vpn| vpn.to_string());
            let order = entry.order.map_or_else(String::new, |order| order.to_string());
            let mut part = |cause: &str, ps: u64| {
                let ns = format!("{:.3}", ps as f64 / 1e3);
                let Cell { key, .. } = cell;
                line([
                    &key.experiment,
                    &key.case,
                    &kernel,
                    &seed,
                    &at,
                    &task,
                    &cpu,
                    log.name(entry),
                    &vpn,
                    &order,
                    cause,
                    &ns,
                ]);
            };
            part("total", entry.ps());
            log.parts(entry).iter().for_each(|(cause, ps)| part(cause, *ps));
        }
    }
    String::from_utf8(writer.into_inner().expect("memory takes it")).expect("made of strings")
}

/// All names that the series of the cells have.
pub fn series_names(cells: &[Cell]) -> BTreeSet<&str> {
    cells.iter().flat_map(series_of).flat_map(Series::names).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series() -> Series {
        let names =
            ["pgfault", "node0/nr_free_pages", "node1/nr_free_pages", "node0/DMA32/blocks/free"].map(str::to_owned);
        let of = |at_us, values: [u64; 4]| Sample { at_us, values: values.to_vec() };
        let samples = [of(0, [5, 512, 256, 7]), of(1_000_000, [9, 256, 256, 7]), of(1_500_000, [9, 256, 256, 6])];
        Series::new(1_000_000_000_000, &names, &samples)
    }

    fn digest(head: &str) -> Vec<String> {
        let series = series();
        let of = DIGEST.iter().find(|digest| digest.head == head).unwrap();
        digest_column(&series, &series.samples(), of, "").1
    }

    #[test]
    fn a_run_with_guests_has_a_digest_for_each_kernel() {
        let names = ["host/node0/nr_free_pages", "guest10/node0/nr_free_pages", "guest2/node0/nr_free_pages"];
        let of = |at_us, values: [u64; 3]| Sample { at_us, values: values.to_vec() };
        let samples = [of(0, [5120, 512, 256]), of(1_000_000, [2560, 512, 256])];
        let series = Series::new(1_000_000_000_000, &names.map(str::to_owned), &samples);
        assert_eq!(kernels(&series), ["host", "guest2", "guest10"]);
        let free = |kernel| digest_column(&series, &series.samples(), &DIGEST[0], kernel).1;
        assert_eq!(
            (free("host/"), free("guest10/")),
            (vec!["20".to_owned(), "10".to_owned()], vec!["2".to_owned(); 2])
        );
        assert_eq!(kernels(&self::series()), [""; 0]);
    }

    #[test]
    fn the_digest_sums_up_nodes_and_takes_differences_of_counters() {
        assert_eq!(digest("free-MiB"), ["3", "2", "2"]);
        assert_eq!(digest("free-blk"), ["7", "7", "6"]);
        assert_eq!(digest("+faults"), ["0", "4", "0"]);
        assert_eq!(digest("huge"), ["-", "-", "-"], "nobody knows");
    }

    #[test]
    fn columns_that_do_not_fit_go_into_further_tables() {
        let column = |head: &str, cells: [&str; 2]| (head.to_owned(), cells.map(str::to_owned).to_vec());
        let wide = "w".repeat(40);
        let text = tables(&[
            column("s", ["0", "1"]),
            column(&wide, ["5", "6"]),
            column("x", ["7", "8"]),
            column(&wide, ["9", "0"]),
        ]);
        let heads: Vec<&str> = text.lines().filter(|line| line.contains('s')).collect();
        assert_eq!(heads, [format!("s {wide} x"), format!("s {wide}")]);
        assert_eq!(text.lines().filter(|line| line.starts_with("1 ")).count(), 2);
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }

    #[test]
    fn lists_of_causes_are_wrapped() {
        let words: Vec<String> = (0..20).map(|n| format!("cause {n} 1.000")).collect();
        let text = wrapped(&words, 15);
        assert!(text.lines().all(|line| line.len() <= WIDTH && line.starts_with(&" ".repeat(15))), "{text}");
        assert_eq!(text.matches(',').count(), 19);
    }
}
