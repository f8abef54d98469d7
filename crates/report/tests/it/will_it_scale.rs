//! The tables of will-it-scale, of hand-written cells: byte for byte, and their values beside published ones.

use std::collections::BTreeMap;

use report::{Beside, Cell, Kind, Layout, Ours, Published, Report, published::judge, to_short};
use serde_json::json;

/// A run of one test: iterations a second, and the time that the CPUs were idle.
fn cell(kernel: &str, test: &str, tasks: u32, seed: u64, (iterations, idle): (f64, f64)) -> Cell {
    let metric = |name: &str, unit: &str, better: &str, sample: f64| {
        json!({ "name": format!("{test}.{name}"), "part": format!("tasks={tasks}"), "unit": unit, "better": better,
                "samples": [sample] })
    };
    let metrics = [metric("iterations", "1/s", "higher", iterations), metric("idle_pct", "pct", "none", idle)];
    let cell = json!({
        "schema": 4,
        "key": { "experiment": "reporting", "group": "will-it-scale-processes", "workload": "will-it-scale",
                 "case": format!("{test}-processes-{tasks}"), "params": { "test": test, "tasks": tasks.to_string() },
                 "variant": "v", "machine": "m", "state": "fresh", "target": "sim", "kernel": kernel, "seed": seed,
                 "program": "p" },
        "measured": { "scored": false, "metrics": metrics, "counters": {}, "checks": [], "skipped": [], "detail": null },
        "run": { "date": "", "wall_s": 1.0, "host": "h", "commit": "c", "max_rss_kib": 1 },
    });
    serde_json::from_value(cell).expect("a cell")
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for seed in 1..=2 {
        let more = 1e4 * seed as f64;
        for (test, base) in [("page_fault1", 1e6), ("page_fault2", 4e5)] {
            cells.push(cell("without", test, 1, seed, (base + more, 0.0)));
            cells.push(cell("without", test, 16, seed, (9.0 * base + more, -0.001)));
            cells.push(cell("with", test, 1, seed, (base + more, 0.5)));
        }
        cells.push(cell("with", "page_fault1", 16, seed, (8.1e6, 37.125)));
    }
    cells
}

/// The second column's cases have another name in the published table.
fn published() -> Published {
    let file = |name: &str, text: &str| (format!("published/x/{name}"), text.to_owned());
    let source = "about = ''\ntitle = ''\nauthor = ''\ndate = ''\nwhere = ''\nmachine = ''\nexperiment = 'reporting'\n\
                  [[column]]\nkernel = 'without'\nabout = 'a'\n\
                  [[column]]\nkernel = 'with'\ncondition = 'shuffle'\nabout = 'b'\n";
    let table = "experiment,metric,case,kernel,value,better\n\
                 will-it-scale-processes,page_fault1.iterations,tasks=16,without,8827457.25,higher\n\
                 will-it-scale-processes,page_fault1.iterations,tasks=16;shuffle,with,8093776.25,higher\n";
    let claims = "[[claim]]\nid = 'x-1'\nclaim = 'it costs'\nreason = 'r'\n[[claim.part]]\nwhat = 'with by without'\n\
                  kind = 'ratio'\nholds = { below = 0.95 }\n\
                  of = { experiment = 'will-it-scale-processes', metric = 'page_fault1.iterations', \
                  case = 'tasks=16;shuffle', kernel = 'with' }\n\
                  by = { experiment = 'will-it-scale-processes', metric = 'page_fault1.iterations', \
                  case = 'tasks=16', kernel = 'without' }\n";
    let files =
        [file("source.toml", source), file("rows.toml", ""), file("claims.toml", claims), file("table.csv", table)];
    Published::parse("x", &files).expect("a series")
}

#[test]
fn a_line_for_each_kernel_and_number_of_tasks() {
    let report = Report::of_layout(Layout::WillItScale, &cells(), 0);
    let metrics = report.tables.iter().filter(|table| table.kind == Kind::Metric);
    assert_eq!(metrics.map(|table| table.rows.len()).collect::<Vec<_>>(), [4, 4]);
    let published = published();
    let titles = BTreeMap::from([("with".to_owned(), "reporting".to_owned())]);
    let beside = Beside { published: Some(&published), titles };
    let expected = "\
will-it-scale-processes iterations, 1/s, higher is better
             page_fault1                       page_fault2
              ours                   published
without    1 1.01M        +-0.5%                415k      +-1.2%
          16 9.02M        +-0.1%   8.83M       3.62M      +-0.1%
reporting  1 1.01M   0.0% +-0.5%                415k 0.0% +-1.2%
          16 8.10M -10.1% +-0.0% * 8.09M -8.3%

will-it-scale-processes idle, pct
             page_fault1 page_fault2
without    1        0.00        0.00
          16        0.00        0.00
reporting  1        0.50        0.50
          16       37.12

%: change from the first column, of simulated or published
+-: the run that is furthest from the mean
* separated (Holm over metrics, and over counters; 5 %) and material (1 % and
more; of counts also 10 a run, of shares 0.5 points)
";
    assert_eq!(to_short(&report, &beside), expected);
}

#[test]
fn cases_of_a_column_may_say_more_in_the_published_table() {
    let published = published();
    let ours = Ours::new(&cells(), Layout::WillItScale, &published);
    let judgement = judge(&published, Ok(&ours));
    assert_eq!(judgement.tally(false), (1, 1), "{judgement:?}");
    let wider = published.value("will-it-scale-processes", "page_fault1.iterations", "tasks=16", "with");
    assert_eq!(wider.map(|printed| printed.digits.as_str()), Some("8093776.25"));
}

/// Seconds of one case, and what the kernel counted.
fn mapping(kernel: &str, case: &str, (seconds, huge, skipped): (f64, f64, f64)) -> Cell {
    let metric = |name: &str, part: &str, unit: &str, sample: f64| {
        json!({ "name": name, "part": part, "unit": unit, "better": if unit == "s" { "lower" } else { "none" },
                "samples": [sample] })
    };
    let mut cell = cell(kernel, "", 1, 1, (0.0, 0.0));
    cell.key.group = Some("mapping".to_owned());
    case.clone_into(&mut cell.key.case);
    let metrics = json!([
        metric("seconds", case, "s", seconds),
        metric("alloc.counter", case, "times", huge),
        metric("stall.counter", case, "times", 0.0),
        metric("counter", "compaction skipped", "times", skipped),
    ]);
    cell.measured.metrics = serde_json::from_value(metrics).expect("metrics");
    cell
}

fn mappings() -> Vec<Cell> {
    vec![
        mapping("without", "gb=30", (8.0, 15.0, 0.0)),
        mapping("without", "gb=34", (320.0, 16.0, 500.0)),
        mapping("with", "gb=30", (8.0, 15.0, 0.0)),
        mapping("with", "gb=34", (10.0, 17.0, 0.0)),
    ]
}

#[test]
fn a_line_for_each_kernel_and_cases_side_by_side() {
    let report = Report::of_layout(Layout::Cases, &mappings(), 0);
    let published = published();
    let expected = "\
mapping seconds, s, lower is better
        gb=30 gb=34
without     8   320
with        8    10

mapping counter, times: gb=34
        alloc
without    16
with       17
zero in all columns: stall
";
    let text = to_short(&report, &Beside { published: Some(&published), ..Beside::default() });
    assert!(text.starts_with(expected), "{text}");
}

/// A letter may say by how many per cent something changed, and no more.
#[test]
fn changes_between_columns_are_values_of_their_own() {
    let file = |name: &str, text: &str| (format!("published/x/{name}"), text.to_owned());
    let source = "about = ''\ntitle = ''\nauthor = ''\ndate = ''\nwhere = ''\nmachine = ''\nexperiment = 'reporting'\n\
                  [[column]]\nkernel = 'without'\ncondition = 'run=1'\nabout = 'a'\n\
                  [[column]]\nkernel = 'with'\ncondition = 'run=1'\nabout = 'b'\n\
                  [[change]]\nexperiment = 'mapping'\nmetric = 'seconds_pct'\nkernel = 'with vs without'\nof = 'seconds'\n\
                  to = 'with'\nfrom = 'without'\n";
    let table = "experiment,metric,case,kernel,value,better\nmapping,seconds,gb=34;run=1,with,12,lower\n";
    let part = |what: &str, metric: &str, case: &str, kernel: &str, is: f64| {
        format!(
            "[[claim.part]]\nwhat = '{what}'\nkind = 'value'\npublished = 'in words'\n\
             of = {{ experiment = 'mapping', metric = '{metric}', case = '{case}', kernel = '{kernel}' }}\n\
             holds = {{ at_least = {is}, at_most = {is} }}\n"
        )
    };
    // A condition is one of cases that are a name and a value.
    let claims = [
        "[[claim]]\nid = 'x-1'\nclaim = 'c'\nreason = 'r'\n".to_owned(),
        part("less", "seconds_pct", "gb=34;run=1", "with vs without", -96.875),
        part("of both cases", "counter", "compaction skipped", "without", 250.0),
    ];
    let files = [
        file("source.toml", source),
        file("rows.toml", ""),
        file("claims.toml", &claims.concat()),
        file("table.csv", table),
    ];
    let published = Published::parse("x", &files).expect("a series");
    let judgement = judge(&published, Ok(&Ours::new(&mappings(), Layout::Cases, &published)));
    assert_eq!(judgement.tally(false), (1, 1), "{judgement:?}");
}

/// Cells that differ in something that no row names are not one number.
#[test]
fn what_no_row_names_is_said() {
    let mut cells = cells();
    let mut longer = cells[0].clone();
    longer.key.params.insert("seconds".to_owned(), "9".to_owned());
    cells.push(longer);
    let report = Report::of_layout(Layout::WillItScale, &cells, 0);
    let cases: Vec<&str> = report.tables[0].rows.iter().map(|row| row.case.as_str()).collect();
    assert!(cases.contains(&"tasks=1,seconds=9") && cases.contains(&"tasks=1"), "{cases:?}");
}
