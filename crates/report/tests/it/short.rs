//! Short tables: hand-written ones byte for byte, and arbitrary ones in their width.

use std::collections::BTreeMap;

use report::{
    Beside, Better, Column, ColumnHead, Form, Kind, Layout, Published, Report, Row, Table, Target, Value, WIDTH,
    to_short,
};

fn head(target: Target, kernel: &str, baseline: usize) -> ColumnHead {
    let column = Column { result: None, target, kernel: kernel.into(), machine: "m".into() };
    ColumnHead { lines: vec![target.to_string(), kernel.into()], column, baseline }
}

fn found(value: f64, range: Option<(f64, f64)>) -> Value {
    let runs = |(low, high)| vec![low, high, value, value, value, value];
    let of_seeds = (1..).zip(range.map_or_else(|| vec![value], runs)).collect();
    Value { value, of_seeds, ..Value::default() }
}

#[expect(clippy::unnecessary_wraps, reason = "cells are options")]
fn some(value: f64, range: Option<(f64, f64)>) -> Option<Value> {
    Some(found(value, range))
}

fn row(metric: &str, case: &str, stat: &str, cells: Vec<Option<Value>>) -> Row {
    let (metric, case, operation, stat) = (metric.into(), case.into(), case.into(), stat.into());
    let (better, unit, form) = (Better::Lower, "us".to_owned(), Form::Whole);
    Row { metric, case, stat, operation, better, unit, form, cells }
}

fn report(layout: Layout, kind: Kind, columns: Vec<ColumnHead>, rows: Vec<Row>) -> Report {
    let table = Table {
        experiment: "storm".into(),
        title: "storm Latencies (us)".into(),
        kind,
        unit: "us".into(),
        better: Better::Lower,
        columns,
        rows,
    };
    Report { layout, tables: vec![table], checks: Vec::new() }.judged()
}

/// A published table of two columns, in which `fault-1` was fitted and `fault-2` is known to be wrong.
fn published() -> Published {
    let file = |name: &str, text: &str| (format!("published/x/{name}"), text.to_owned());
    let source = "about = ''\ntitle = ''\nauthor = ''\ndate = ''\nwhere = ''\nmachine = ''\n\
                  [[column]]\nkernel = 'k+0'\nabout = 'a'\n[[column]]\nkernel = 'k+4'\nabout = 'b'\n";
    let rows = "[[fitted]]\nwhy = 'w'\nkernel = 'k+0'\ncase = 'fault-1'\n[[wrong]]\nwhy = 'w'\ncase = 'fault-2'\n\
                [[no_sample]]\nwhy = 'w'\ncase = 'some'\n";
    let table = "experiment,metric,case,kernel,value,better\n\
                 storm,us.Amean,fault-1,k+0,1000.00,lower\nstorm,us.Amean,fault-1,k+4,500.00,lower\n\
                 storm,us.Amean,fault-2,k+0,79.30,lower\nstorm,us.Amean,fault-2,k+4,0.00,lower\n\
                 storm,us.Amean,seen,k+0,3.00,lower\n\
                 storm,us.Amean,some,k+0,0.00,lower\nstorm,us.Amean,some,k+4,7.00,lower\n";
    let claims = file("claims.toml", "");
    let files = [file("source.toml", source), file("rows.toml", rows), claims, file("table.csv", table)];
    Published::parse("x", &files).expect("a series")
}

/// Six runs of two kernels and a third, which nobody published.
fn compared() -> Report {
    let columns = vec![head(Target::Sim, "k+0", 0), head(Target::Sim, "k+4", 0), head(Target::Sim, "v4.1-rc2+1,4", 0)];
    let mean = |case: &str, cells| row("us.Amean", case, "Amean", cells);
    let rows = vec![
        row("us.Min", "fault-1", "Min", vec![some(1.0, None), some(1.0, None), some(1.0, None)]),
        mean(
            "fault-1",
            vec![
                some(1010.4, Some((990.0, 1033.0))),
                some(640_000.0, Some((630_000.0, 655_000.0))),
                some(1011.0, Some((1000.0, 1030.0))),
            ],
        ),
        mean("fault-2", vec![some(80.0, Some((70.0, 90.0))), some(0.0, Some((0.0, 0.0))), some(40.0, None)]),
        mean("none", vec![some(0.0, Some((0.0, 0.0))), some(0.0, None), None]),
        mean("seen", vec![some(0.0, Some((0.0, 0.0))), some(0.0, None), some(0.0, None)]),
        // No run had one without the patches, as in the published table.
        mean("some", vec![Some(Value::default()), some(984.0, None), None]),
        mean("no", vec![Some(Value::default()), None, None]),
        mean("never", vec![some(0.0, None), some(0.0, None), some(0.0, None)]),
        row("us.Stddev", "fault-1", "Stddev", vec![some(1.0, None), some(1.0, None), some(1.0, None)]),
    ];
    report(Layout::Classic, Kind::Metric, columns, rows)
}

#[test]
fn a_row_says_by_how_much_how_sure_and_what_others_found() {
    let titles = [("k+0", "without"), ("k+4", "with patches 1-4")].map(|(kernel, title)| (kernel.into(), title.into()));
    let published = published();
    let beside = Beside { published: Some(&published), titles: BTreeMap::from(titles) };
    let expected = "\
storm Latencies (us), lower is better
        without              with patches 1-4
        ours       published ours                   published
fault-1 1010 990-1033 f 1000 640k  x633 630-655k *  500  -50%
fault-2   80    70-90 ! 79.3    0 -100%        = *!   0 -100%
seen       0        =      3    0    0%
some       -               -  984                     7

        v4.1-rc2
        patches 1,4
fault-1 1011   0% 1000-1030
fault-2   40 -50%           !
seen       0   0%
some       -
zero in all columns: none, never
no sample in any column: no

low-high: smallest and largest of 6 runs; =: all runs the same
%: change from the first column, of simulated or published
* separated (Holm over metrics, and over counters; 5 %) and material (1 % and
more; of counts also 10 a run, of shares 0.5 points)
one run on a side: no verdict, so no *
f fitted: the model was tuned to this row of the first column
! simulated value known to be off; why: published/x/rows.toml
marks combine: *! is both * and !
";
    assert_eq!(to_short(&compared(), &beside), expected);
}

#[test]
fn without_published_values_and_names_there_are_neither() {
    let text = to_short(&compared(), &Beside::default());
    let expected = "\
storm Latencies (us), lower is better
                                            v4.1-rc2
        k+0           k+4                   patches 1,4
fault-1 1010 990-1033 640k  x633 630-655k * 1011   0% 1000-1030
fault-2   80    70-90    0 -100%        = *   40 -50%
some       -           984                     -
zero in all columns: none, seen, never
no sample in any column: no

low-high: smallest and largest of 6 runs; =: all runs the same
%: change from the first column
* separated (Holm over metrics, and over counters; 5 %) and material (1 % and
more; of counts also 10 a run, of shares 0.5 points)
one run on a side: no verdict, so no *
";
    assert_eq!(text, expected);
}

#[test]
fn a_model_and_its_kernel_have_no_percentage_between_them() {
    let columns = vec![
        head(Target::Vm, "6.1", 0),
        head(Target::Sim, "v6.1", 0),
        head(Target::Vm, "6.12", 0),
        head(Target::Sim, "v6.12", 2),
    ];
    let cells = vec![some(100.0, None), some(42.0, None), some(50.0, None), some(55.0, None)];
    let rows = vec![row("us.Amean", "fault-1", "Amean", cells)];
    let report = report(Layout::Head, Kind::Metric, columns, rows);
    let expected = "\
storm Latencies (us), lower is better
        vm  sim      vm      sim
        6.1 v6.1     6.12    v6.12
fault-1 100 42 x0.42 50 -50% 55 x1.1

%: change from the first column; x: model over kernel
one run on a side: no verdict, so no *
";
    assert_eq!(to_short(&report, &Beside::default()), expected);
    let full = report::to_text(&report);
    assert!(full.contains("42.00      x0.42") && full.contains("50.00 ("), "{full}");
    assert!(full.contains("55.00      x1.10") && !full.contains('*'), "{full}");
}

#[test]
fn cases_of_counters_stand_side_by_side() {
    let count = |name: &str, case: &str, moved: f64| {
        let row = row(name, case, "Ops", vec![some(moved, None)]);
        Row { operation: format!("{name} {case}"), ..row }
    };
    let rows = vec![
        count("late", "8", 7.0),
        count("pgfault", "1", 512.0),
        count("pgfault", "8", 4096.0),
        count("no", "1", 0.0),
    ];
    let report = report(Layout::Head, Kind::Counters, vec![head(Target::Sim, "v6.1", 0)], rows);
    let expected = "\
storm Latencies (us) of sim v6.1, lower is better
        1   8
late           7
pgfault 512 4096
zero in all columns: no
";
    assert_eq!(to_short(&report, &Beside::default()), expected);
}

/// Numbers that look like chance, the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn word(&mut self, longest: u64) -> String {
        let length = self.below(longest + 1);
        (0..length)
            .map(|_| ['a', 'B', '-', ' ', '+', ',', '1', 'ä', '_'][usize::try_from(self.below(9)).unwrap()])
            .collect()
    }

    fn number(&mut self) -> f64 {
        let sign = if self.below(4) == 0 { -1.0 } else { 1.0 };
        let exponent = i32::try_from(self.below(40)).unwrap() - 15;
        let text = format!("{}.{}e{exponent}", self.below(10), self.below(1000));
        match self.below(12) {
            0 => 0.0,
            1 => sign * 1e300,
            2 => sign * 1e-300,
            _ => sign * text.parse::<f64>().expect("a number"),
        }
    }

    fn value(&mut self) -> Option<Value> {
        let range = (self.below(3) > 0).then(|| (self.number(), self.number()));
        (self.below(8) > 0).then(|| found(self.number(), range))
    }

    fn report(&mut self) -> Report {
        let columns = usize::try_from(1 + self.below(7)).unwrap();
        let targets = [Target::Host, Target::Vm, Target::Sim];
        let heads = (0..columns).map(|column| {
            let target = targets[usize::try_from(self.below(3)).unwrap()];
            let baseline = usize::try_from(self.below(column as u64 + 1)).unwrap();
            head(target, &self.word(60), baseline)
        });
        let heads: Vec<ColumnHead> = heads.collect();
        let rows = (0..self.below(12)).map(|_| {
            let case = self.word(100);
            let stat = ["Amean", "Min", "Percentage", "Ops"][usize::try_from(self.below(4)).unwrap()];
            let row = row(&self.word(20), &case, stat, (0..columns).map(|_| self.value()).collect());
            let operation = if self.below(2) == 0 { format!("{} {case}", self.word(50)) } else { case };
            Row { operation, ..row }
        });
        let rows = rows.collect();
        let kind =
            [Kind::Metric, Kind::Duration, Kind::Counters, Kind::Causes][usize::try_from(self.below(4)).unwrap()];
        let layout = if self.below(2) == 0 { Layout::Head } else { Layout::Classic };
        let mut report = report(layout, kind, heads, rows);
        report.tables[0].title = self.word(200);
        report
    }
}

#[test]
fn no_line_is_wider_than_a_screen() {
    let mut chance = Chance(1);
    for number in 0..3000 {
        let report = chance.report();
        let text = to_short(&report, &Beside::default());
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "report {number}: {line:?} of\n{text}");
        }
    }
}
