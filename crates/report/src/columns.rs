//! A result as typed columns, for programs that work on tables: each column has a name, type, unit and meaning. The Python
//! package builds Arrow arrays from the columns and reads results in no other form.
//!
//! The document is one JSON object on one line. A column has its values in `values`, one per row, or in `runs`: pairs of a
//! value and the number of consecutive rows that have the value. All tables but `cells` begin with the columns that say which
//! cell a row belongs to.

use std::{borrow::Cow, collections::BTreeSet};

use serde::{Serialize, Serializer};

use crate::{
    better::Better,
    over_time::series_with,
    record::{Cell, SCHEMA, Skipped, WAITING},
};

/// The version of the column format.
pub const COLUMNS: u32 = 1;

/// A result, or a part of it, as columns.
#[derive(Debug, Serialize)]
pub struct Columns<'a> {
    /// The format's version, [`COLUMNS`].
    pub columns: u32,
    /// Version of the result format, [`SCHEMA`], in the program that prints the document.
    pub schema: u32,
    /// Hash of the program that made the result.
    pub program: &'a str,
    /// Name of the experiment.
    pub experiment: &'a str,
    /// Number of cells of the run that have no result.
    pub missing: usize,
    /// Work that was not done, with the reason.
    pub skipped: &'a [Skipped],
    /// The tables.
    pub tables: Vec<ColumnTable<'a>>,
}

impl<'a> Columns<'a> {
    /// A document with these tables of a result.
    pub fn new(program: &'a str, experiment: &'a str, tables: Vec<ColumnTable<'a>>) -> Self {
        Self { columns: COLUMNS, schema: SCHEMA, program, experiment, missing: 0, skipped: &[], tables }
    }

    /// The document as one line of JSON.
    ///
    /// # Panics
    /// Never: names, numbers and texts serialise.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("columns serialise") + "\n"
    }
}

/// A table: columns of the same length.
#[derive(Debug, Serialize)]
pub struct ColumnTable<'a> {
    name: &'static str,
    rows: u64,
    columns: Vec<ValueColumn<'a>>,
}

/// One column: its description, and its values as runs of equal values.
#[derive(Debug)]
struct ValueColumn<'a> {
    head: Head,
    rows: u64,
    runs: Vec<(Field<'a>, u64)>,
}

/// The head of a column.
#[derive(Clone, Debug, Serialize)]
struct Head {
    name: Cow<'static, str>,
    r#type: Type,
    unit: Option<&'static str>,
    about: &'static str,
}

/// The type of a column, by Arrow's name. Any value may be missing.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    Bool,
    Uint64,
    Int64,
    Float64,
    String,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Field<'a> {
    Missing,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a str),
}

impl Serialize for ValueColumn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a, 'b> {
            #[serde(flatten)]
            head: &'a Head,
            #[serde(skip_serializing_if = "Option::is_none")]
            runs: Option<&'a [(Field<'b>, u64)]>,
            #[serde(skip_serializing_if = "Option::is_none")]
            values: Option<Vec<Field<'b>>>,
        }
        let head = &self.head;
        let written = if self.runs.len() as u64 * 2 <= self.rows {
            Written { head, runs: Some(&self.runs), values: None }
        } else {
            let values = self.runs.iter().flat_map(|(value, rows)| (0..*rows).map(move |_| *value)).collect();
            Written { head, runs: None, values: Some(values) }
        };
        written.serialize(serializer)
    }
}

impl<'a> ColumnTable<'a> {
    fn new(name: &'static str, heads: Vec<Head>) -> Self {
        let columns = heads.into_iter().map(|head| ValueColumn { head, rows: 0, runs: Vec::new() });
        Self { name, rows: 0, columns: columns.collect() }
    }

    /// Adds a row, which has one value for each column of the table.
    fn push(&mut self, row: impl IntoIterator<Item = Field<'a>>) {
        self.rows += 1;
        let mut row = row.into_iter();
        for column in &mut self.columns {
            let value = row.next().expect("a row has a value for each column");
            match column.runs.last_mut() {
                Some((last, rows)) if *last == value => *rows += 1,
                _ => column.runs.push((value, 1)),
            }
            column.rows += 1;
        }
        assert!(row.next().is_none(), "a row has no more values than there are columns: {}", self.name);
    }

    /// The table of cells, one row for each cell of the result.
    pub fn cells(cells: &'a [Cell]) -> Self {
        let params: BTreeSet<&str> = cells.iter().flat_map(|cell| cell.key.params.keys()).map(String::as_str).collect();
        let mut heads = vec![
            head("cell", Type::Uint64, None, "number of the cell among those printed, from 0"),
            head("experiment", Type::String, None, "name of the experiment"),
            head("group", Type::String, None, "subject of the tables, where an experiment has several sets of them"),
            head("workload", Type::String, None, "name of the workload"),
            head("case", Type::String, None, "point of the experiment's grid"),
            head("variant", Type::String, None, "name of the kernel variant"),
            head("machine", Type::String, None, "name of the machine"),
            head("state", Type::String, None, "where memory stood when the workload started"),
            head("target", Type::String, None, "where it ran: host, vm or sim"),
            head("kernel", Type::String, None, "label of the kernel in column heads"),
            head("seed", Type::Uint64, None, "seed of every random stream"),
            head("program", Type::String, None, "hash of the program"),
            head("scored", Type::Bool, None, "whether numbers may be held against those of another target"),
            head("user_ps", Type::Uint64, Some("ps"), "time of all tasks in user mode"),
            head("system_ps", Type::Uint64, Some("ps"), "time of all tasks in the kernel"),
            head("elapsed_ps", Type::Uint64, Some("ps"), "time from the common start to the common end"),
            head("date", Type::String, None, "when it began, RFC 3339"),
            head("wall_s", Type::Float64, Some("s"), "how long it took by the wall clock"),
            head("boot_s", Type::Float64, Some("s"), "how long the kernel took to boot, where one was booted"),
            head("host", Type::String, None, "name of the computer that ran it"),
            head("commit", Type::String, None, "commit of the program"),
            head("max_rss_kib", Type::Uint64, Some("KiB"), "most resident memory of the process that ran it"),
        ];
        let about = "parameter of the workload, as the experiment has it";
        let parameter = |name| Head { name: format!("param_{name}").into(), r#type: Type::String, unit: None, about };
        heads.extend(params.iter().map(parameter));
        let mut table = Self::new("cells", heads);
        for (number, cell) in (0..).zip(cells) {
            let (key, run, duration) = (&cell.key, &cell.run, cell.measured.duration);
            let row = [
                Field::Unsigned(number),
                Field::Text(&key.experiment),
                key.group.as_deref().into(),
                Field::Text(&key.workload),
                Field::Text(&key.case),
                Field::Text(&key.variant),
                Field::Text(&key.machine),
                Field::Text(&key.state),
                Field::Text(key.target.name()),
                Field::Text(&key.kernel),
                Field::Unsigned(key.seed),
                Field::Text(&key.program),
                Field::Bool(cell.measured.scored),
                duration.map(|duration| duration.user_ps).into(),
                duration.map(|duration| duration.system_ps).into(),
                duration.map(|duration| duration.elapsed_ps).into(),
                Field::Text(&run.date),
                Field::Float(run.wall_s),
                run.boot_s.map_or(Field::Missing, Field::Float),
                Field::Text(&run.host),
                Field::Text(&run.commit),
                Field::Unsigned(run.max_rss_kib),
            ];
            let params = params.iter().map(|name| key.params.get(*name).map(String::as_str).into());
            table.push(row.into_iter().chain(params));
        }
        table
    }

    /// The table of samples, one row for each sample of each metric.
    pub fn samples(cells: &'a [Cell]) -> Self {
        let mut table = Self::new(
            "samples",
            of_cell([
                head("metric", Type::String, None, "name of the metric, unit last"),
                head("class", Type::String, None, "which of several classes of the quantity"),
                head("part", Type::String, None, "which part of the case"),
                head("unit", Type::String, None, "unit of the value"),
                head("better", Type::String, None, "which direction is better: lower, higher or none"),
                head("sample", Type::Uint64, None, "number of the sample in its metric and cell, from 0"),
                head("value", Type::Float64, None, "the sample, in the unit of its row"),
            ]),
        );
        for (number, cell) in (0..).zip(cells) {
            for metric in &cell.measured.metrics {
                let better = match metric.better {
                    Better::Lower => "lower",
                    Better::Higher => "higher",
                    Better::None => "none",
                };
                for (sample, value) in (0..).zip(&metric.samples) {
                    table.push(key_of(number, cell).into_iter().chain([
                        Field::Text(&metric.name),
                        metric.class.as_deref().into(),
                        metric.part.as_deref().into(),
                        Field::Text(&metric.unit),
                        Field::Text(better),
                        Field::Unsigned(sample),
                        Field::Float(*value),
                    ]));
                }
            }
        }
        table
    }

    /// The table of counters: how far each counter moved in each cell, and how far apart the gauges' readings were.
    pub fn counters(cells: &'a [Cell]) -> Self {
        let about =
            "how far it moved while the workload ran; of a gauge, how far apart it was without and with its memory";
        let mut table = Self::new(
            "counters",
            of_cell([
                head("counter", Type::String, None, "name in /proc/vmstat"),
                head("kind", Type::String, None, "counter or gauge"),
                head("value", Type::Int64, None, about),
            ]),
        );
        for (number, cell) in (0..).zip(cells) {
            for (kind, values) in [("counter", &cell.measured.counters), ("gauge", &cell.measured.gauges)] {
                for (name, value) in values {
                    let row = [Field::Text(name), Field::Text(kind), Field::Signed(*value)];
                    table.push(key_of(number, cell).into_iter().chain(row));
                }
            }
        }
        table
    }

    /// The table of CPU time by cause over whole runs, for the cells that measured it.
    pub fn causes(cells: &'a [Cell]) -> Self {
        let mut table = Self::new(
            "causes",
            of_cell([
                head("cause", Type::String, None, "where time went"),
                head("on_cpu", Type::Bool, None, "whether the tasks had a CPU, or waited without one"),
                head("time_ps", Type::Uint64, Some("ps"), "time of all tasks and kernel threads, start to end"),
            ]),
        );
        for (number, cell) in (0..).zip(cells) {
            for (name, ps) in &cell.measured.causes {
                let (cause, on_cpu) = name.strip_prefix(WAITING).map_or((name.as_str(), true), |cause| (cause, false));
                let row = [Field::Text(cause), Field::Bool(on_cpu), Field::Unsigned(*ps)];
                table.push(key_of(number, cell).into_iter().chain(row));
            }
        }
        table
    }

    /// The table of sampled counters and gauges over time, for `names` or, if that is empty, for every name. A value that never
    /// changes has one row, at the first instant.
    pub fn series(cells: &'a [Cell], names: &'a [String]) -> Self {
        let mut table = Self::new(
            "series",
            of_cell([
                head("name", Type::String, None, "counter or gauge, by node and zone where it is kept so"),
                head("at_us", Type::Uint64, Some("us"), "time since the start of the run"),
                head("value", Type::Uint64, None, "what the counter or gauge stood at"),
            ]),
        );
        let wanted = |name: &str| names.is_empty() || names.iter().any(|known| known == name);
        for (number, cell) in (0..).zip(cells) {
            for (_, series) in series_with(cell, names) {
                let samples = series.samples();
                let first = samples.first().map_or(0, |sample| sample.at_us);
                let mut push = |name: &'a str, at_us: u64, value: u64| {
                    let row = [Field::Text(name), Field::Unsigned(at_us), Field::Unsigned(value)];
                    table.push(key_of(number, cell).into_iter().chain(row));
                };
                for (name, value) in series.still.iter().filter(|(name, _)| wanted(name)) {
                    push(name, first, *value);
                }
                for (column, name) in series.columns.iter().enumerate().filter(|(_, name)| wanted(name)) {
                    for sample in &samples {
                        push(name, sample.at_us, sample.values[column]);
                    }
                }
            }
        }
        table
    }

    /// The table of the `count` longest operations off the allocator's fast path in each cell: a row for each cause of an
    /// operation's time.
    pub fn stalls(cells: &'a [Cell], count: usize) -> Self {
        let mut table = Self::new(
            "stalls",
            of_cell([
                head("stall", Type::Uint64, None, "number of the operation in its cell, from 0: the longest first"),
                head("what", Type::String, None, "kind of operation"),
                head("start_ps", Type::Uint64, Some("ps"), "when it left the fast path, since the start of the run"),
                head("task", Type::Uint64, None, "number of the task, in the order in which tasks were made"),
                head("cpu", Type::Uint64, None, "CPU that it was on then"),
                head("vpn", Type::Uint64, None, "page of a fault, by number"),
                head("order", Type::Uint64, None, "order that was asked for, where memory was"),
                head("cause", Type::String, None, "where a part of its time went"),
                head("time_ps", Type::Uint64, Some("ps"), "time of that part"),
            ]),
        );
        for (number, cell) in (0..).zip(cells) {
            let Some(log) = &cell.slow_path else { continue };
            for (stall, entry) in (0..).zip(log.longest(count)) {
                for (cause, ps) in log.parts(entry) {
                    table.push(key_of(number, cell).into_iter().chain([
                        Field::Unsigned(stall),
                        Field::Text(log.name(entry)),
                        Field::Unsigned(entry.start_ps),
                        Field::Unsigned(entry.task.into()),
                        Field::Unsigned(entry.cpu.into()),
                        entry.vpn.into(),
                        entry.order.map(u64::from).into(),
                        Field::Text(cause),
                        Field::Unsigned(ps),
                    ]));
                }
            }
        }
        table
    }
}

impl<'a> From<Option<&'a str>> for Field<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Missing, Self::Text)
    }
}

impl From<Option<u64>> for Field<'_> {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Missing, Self::Unsigned)
    }
}

fn head(name: &'static str, r#type: Type, unit: Option<&'static str>, about: &'static str) -> Head {
    Head { name: name.into(), r#type, unit, about }
}

/// The columns that say which cell a row belongs to, followed by `more`.
fn of_cell<const N: usize>(more: [Head; N]) -> Vec<Head> {
    let mut heads = vec![
        head("cell", Type::Uint64, None, "number of the cell: a row of table cells"),
        head("case", Type::String, None, "point of the experiment's grid"),
        head("target", Type::String, None, "where it ran: host, vm or sim"),
        head("kernel", Type::String, None, "label of the kernel in column heads"),
        head("machine", Type::String, None, "name of the machine"),
        head("seed", Type::Uint64, None, "seed of every random stream"),
    ];
    heads.extend(more);
    heads
}

/// The values of the columns that say which cell a row belongs to.
fn key_of(number: u64, cell: &Cell) -> [Field<'_>; 6] {
    let key = &cell.key;
    [
        Field::Unsigned(number),
        Field::Text(&key.case),
        Field::Text(key.target.name()),
        Field::Text(&key.kernel),
        Field::Text(&key.machine),
        Field::Unsigned(key.seed),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        made_up,
        record::Metric,
        series::{Sample, Series},
        slow_path::{Entry, SlowPath},
    };

    fn cell(seed: u64, samples: &[f64]) -> Cell {
        let metric = Metric {
            name: "fault_latency_ns".into(),
            class: None,
            part: None,
            unit: "ns".into(),
            better: Better::Lower,
            samples: samples.to_vec(),
        };
        let mut cell = made_up::cell("6.1", seed);
        cell.key.case = "c-1".into();
        cell.key.params.insert("tasks".to_owned(), "1".to_owned());
        cell.measured.metrics.push(metric);
        cell.measured.counters.insert("pgfault".to_owned(), -3);
        cell.measured.gauges.insert("nr_page_table_pages".to_owned(), 4);
        cell.measured.causes = [("clear".to_owned(), 5), ("waiting: disk".to_owned(), 6)].into();
        let sample = |at_us, moves| Sample { at_us, values: vec![moves, 7] };
        let names = ["moves", "rests"].map(str::to_owned);
        let series = Series::new(1, &names, &[sample(0, 1), sample(10, u64::MAX)]);
        let entry = |start_ps, parts: &[(u32, u64)]| Entry {
            start_ps,
            task: 3,
            cpu: 1,
            what: 0,
            vpn: None,
            order: Some(9),
            parts: parts.to_vec(),
        };
        let slow_path = SlowPath {
            totals: std::collections::BTreeMap::new(),
            what: vec!["fault".into()],
            causes: vec!["copy".into(), "migrate".into()],
            entries: vec![entry(5, &[(0, 3)]), entry(8, &[(0, 1), (1, 30)])],
        };
        Cell { series: Some(series), slow_path: Some(slow_path), ..cell }
    }

    fn column(table: &ColumnTable<'_>, name: &str) -> Value {
        let table = serde_json::to_value(table).unwrap();
        let columns = table["columns"].as_array().unwrap();
        columns.iter().find(|column| column["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    }

    #[test]
    fn values_in_turn_are_runs_and_others_stand_one_by_one() {
        let cells = [cell(1, &[2.0, 1.0, 1.0]), cell(2, &[0.1])];
        let samples = ColumnTable::samples(&cells);
        assert_eq!(samples.rows, 4);
        assert_eq!(column(&samples, "case")["runs"], json!([["c-1", 4]]));
        assert_eq!(column(&samples, "class")["runs"], json!([[null, 4]]));
        assert_eq!(column(&samples, "sample")["values"], json!([0, 1, 2, 0]));
        let value = column(&samples, "value");
        assert_eq!(
            (&value["values"], &value["type"], value.get("runs")),
            (&json!([2.0, 1.0, 1.0, 0.1]), &json!("float64"), None)
        );
    }

    #[test]
    fn every_table_has_what_cells_hold() {
        let cells = [cell(1, &[2.0]), cell(u64::MAX, &[1.0])];
        let of_cells = ColumnTable::cells(&cells);
        assert_eq!(column(&of_cells, "seed")["values"], json!([1, u64::MAX]));
        assert_eq!(column(&of_cells, "param_tasks")["runs"], json!([["1", 2]]));
        assert_eq!(column(&of_cells, "user_ps")["runs"], json!([[null, 2]]), "it was not measured");
        assert_eq!(
            (&column(&of_cells, "wall_s")["unit"], &column(&of_cells, "wall_s")["runs"]),
            (&json!("s"), &json!([[1.5, 2]]))
        );
        let counters = ColumnTable::counters(&cells[..1]);
        assert_eq!(column(&counters, "counter")["values"], json!(["pgfault", "nr_page_table_pages"]));
        assert_eq!(column(&counters, "kind")["values"], json!(["counter", "gauge"]));
        assert_eq!(column(&counters, "value")["values"], json!([-3, 4]));
        let causes = ColumnTable::causes(&cells[..1]);
        assert_eq!(column(&causes, "cause")["values"], json!(["clear", "disk"]));
        assert_eq!(column(&causes, "on_cpu")["values"], json!([true, false]));
    }

    #[test]
    fn what_rests_has_one_row_and_the_longest_stall_comes_first() {
        let cells = [cell(1, &[2.0])];
        let series = ColumnTable::series(&cells, &[]);
        assert_eq!(column(&series, "name")["values"], json!(["rests", "moves", "moves"]));
        assert_eq!(column(&series, "at_us")["values"], json!([0, 0, 10]));
        assert_eq!(column(&series, "value")["values"], json!([7, 1, u64::MAX]));
        let names = ["moves".to_owned()];
        assert_eq!(ColumnTable::series(&cells, &names).rows, 2);
        let stalls = ColumnTable::stalls(&cells, 1);
        assert_eq!(column(&stalls, "cause")["values"], json!(["migrate", "copy"]));
        assert_eq!(column(&stalls, "time_ps")["values"], json!([30, 1]));
        assert_eq!(ColumnTable::stalls(&cells, 9).rows, 3);
    }

    #[test]
    fn a_document_of_no_cells_is_one_too() {
        let document = Columns::new("p", "e", vec![ColumnTable::samples(&[])]).to_json();
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!((&document["columns"], &document["missing"]), (&json!(COLUMNS), &json!(0)));
        assert_eq!(document["tables"][0]["rows"], json!(0));
    }
}
