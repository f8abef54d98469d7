//! External fragmentation from hand-written cells: the line of a result, its tables, and the claims of a published series.

use std::{collections::BTreeMap, fs, path::Path};

use report::{
    Beside, Cell, Extfrag, Key, Layout, Measured, Ours, Published, Report, Run, SCHEMA, Target, Verdict,
    mmtests::table_text,
    published::{judge, scores},
    to_csv, to_short,
};
use units::{ExtfragClass, ExtfragCounts, ExtfragKind, Mobility, Order};

const UNMOVABLE: Mobility = Mobility::Unmovable;
const MOVABLE: Mobility = Mobility::Movable;
const RECLAIMABLE: Mobility = Mobility::Reclaimable;

fn cell(target: Target, kernel: &str, case: &str, extfrag: Option<Extfrag>) -> Cell {
    let key = Key {
        result: None,
        experiment: "files".into(),
        group: None,
        workload: "files".into(),
        case: case.into(),
        params: BTreeMap::new(),
        variant: "as-found".into(),
        machine: "m".into(),
        state: "fresh".into(),
        target,
        kernel: kernel.into(),
        seed: 1,
        program: "0123456789abcdef".into(),
    };
    let measured = Measured { extfrag, ..Measured::nothing() };
    let run = Run {
        date: String::new(),
        wall_s: 0.0,
        boot_s: None,
        host: String::new(),
        commit: String::new(),
        max_rss_kib: 0,
    };
    Cell { schema: SCHEMA, key, measured, series: None, map: None, slow_path: None, footprint: None, run }
}

/// Types, orders, ownership, and how many.
type Given = (Mobility, Mobility, u8, u8, bool, u64);

/// Half of it, rounded down, came in the window.
fn extfrag(given: &[Given]) -> Extfrag {
    let mut run = ExtfragCounts::default();
    let mut moved: BTreeMap<String, i64> = [("pgfault".to_owned(), 7)].into();
    for &(alloc_type, fallback_type, alloc_order, fallback_order, change_ownership, count) in given {
        let [alloc_order, fallback_order] = [alloc_order, fallback_order].map(Order);
        let kind = ExtfragKind { alloc_type, fallback_type, alloc_order, fallback_order, change_ownership };
        assert!(run.count(kind, count));
        *moved.entry(kind.class(Order::HUGE).name()).or_default() += i64::try_from(count / 2).unwrap();
    }
    Extfrag::new(Order::HUGE, &run, &moved, 0)
}

/// A kernel that mixes, one that does less, and one whose events nobody counted.
fn cells() -> Vec<Cell> {
    let much = extfrag(&[
        (MOVABLE, UNMOVABLE, 0, 3, false, 900),
        (MOVABLE, RECLAIMABLE, 0, 8, true, 60),
        (UNMOVABLE, MOVABLE, 3, 8, true, 40),
        (UNMOVABLE, MOVABLE, 0, 10, true, 5),
    ]);
    let little = extfrag(&[(MOVABLE, UNMOVABLE, 0, 3, false, 9), (RECLAIMABLE, MOVABLE, 0, 10, true, 2)]);
    vec![
        cell(Target::Sim, "a", "4k", Some(much)),
        cell(Target::Sim, "b", "4k", Some(little)),
        cell(Target::Host, "6.18", "4k", None),
    ]
}

#[test]
fn a_line_of_a_result_has_every_kind_in_order() {
    let found = extfrag(&[
        (RECLAIMABLE, MOVABLE, 0, 10, true, 1),
        (MOVABLE, UNMOVABLE, 0, 10, false, 4),
        (MOVABLE, UNMOVABLE, 0, 3, false, 17),
    ]);
    let line = serde_json::to_string(&found).unwrap();
    let expected = "{\"pageblock_order\":9,\"events\":[[\"movable\",\"unmovable\",0,3,true,false,17],\
                    [\"movable\",\"unmovable\",0,10,false,false,4],[\"reclaimable\",\"movable\",0,10,false,true,1]],\
                    \"window\":[[\"movable\",\"unmovable\",false,false,2],[\"movable\",\"unmovable\",true,false,8]]}";
    assert_eq!(line, expected);
    assert_eq!(serde_json::from_str::<Extfrag>(&line).unwrap(), found);
    assert_eq!(found.fragmenting_in_window(), 8);
    let lost = Extfrag { lost: 3, ..found };
    assert!(serde_json::to_string(&lost).unwrap().contains("\"lost\":3"));
}

#[test]
fn a_screen_has_extfrag_events_by_type_or_a_dash() {
    let expected = "\
files External Fragmentation Events, events per run, lower is better
                                sim  sim     host
                                a    b       6.18
fragmenting                     1000 9  -99%    -
fragmenting for unmovable         40 0 -100%    -
unmovable placed with movable     40 0 -100%    -
fragmenting for movable          960 9  -99%    -
movable placed with unmovable    900 9  -99%    -
movable placed with reclaimable   60 0 -100%    -
zero in all columns: unmovable placed with reclaimable and 3 more

%: change from the first column
one run on a side: no verdict, so no *
";
    assert_eq!(to_short(&Report::new(&cells(), 0), &Beside::default()), expected);
}

/// In rows of mmtests, and more.
#[test]
fn the_whole_table_has_orders_ownership_and_the_window() {
    let report = Report::new(&cells(), 0);
    let table = &report.tables[0];
    let value = |metric: &str, case: &str| {
        let row = table.rows.iter().find(|row| (row.metric.as_str(), row.case.as_str()) == (metric, case));
        let cells = &row.unwrap_or_else(|| panic!("no {case} in {table:?}")).cells;
        cells.iter().map(|cell| cell.as_ref().map(|cell| cell.value)).collect::<Vec<_>>()
    };
    for (case, expected) in [
        ("all", [1005.0, 11.0]),
        ("order<9", [1000.0, 9.0]),
        ("movable,order<9", [960.0, 9.0]),
        ("movable/reclaimable,order<9", [60.0, 0.0]),
        ("unmovable,order<9", [40.0, 0.0]),
        ("reclaimable,order<9", [0.0, 0.0]),
        ("pageblock taken over,order<9", [100.0, 0.0]),
        ("pageblock shared,order<9", [900.0, 9.0]),
        ("order>=9", [5.0, 2.0]),
        ("asked order 3", [40.0, 0.0]),
        ("found order 8", [100.0, 0.0]),
    ] {
        assert_eq!(value("extfrag_events", case), [Some(expected[0]), Some(expected[1]), None], "{case}");
    }
    assert_eq!(value("extfrag_events_in_window", "order<9"), [Some(500.0), Some(4.0), None]);
    let text = table_text(table);
    assert!(text.contains("Extfrag fragmenting for unmovable") && text.contains("(  99.10%)"), "{text}");
    assert!(text.lines().nth(3).is_some_and(|line| line.ends_with(" -")), "{text}");
    assert!(to_csv(&report, &[], &[]).contains("movable,order<9"), "programs find it too");
    assert!(!table.rows.iter().any(|row| row.case == "lost"), "nothing was");
}

#[test]
fn several_operations_stand_side_by_side() {
    let few = |count| Some(extfrag(&[(MOVABLE, UNMOVABLE, 0, 3, false, count)]));
    let cells = [cell(Target::Sim, "a", "4k", few(7)), cell(Target::Sim, "a", "64k", few(12))];
    let expected = "\
files External Fragmentation Events of sim a, events per run, lower is better
                              4k 64k
fragmenting                    7  12
fragmenting for movable        7  12
movable placed with unmovable  7  12
zero in all columns: fragmenting for unmovable, unmovable placed with movable
  and 5 more
";
    let text = to_short(&Report::new(&cells, 0), &Beside::default());
    let (found, expected): (Vec<&str>, Vec<&str>) = (text.lines().collect(), expected.lines().collect());
    assert_eq!(found[..5], expected[..5], "{text}");
    let lost = Extfrag { lost: 3, ..extfrag(&[]) };
    let report = Report::new(&[cell(Target::Sim, "a", "4k", Some(lost))], 0);
    assert_eq!(report.tables[0].rows.last().map(|row| row.case.as_str()), Some("lost"));
}

#[test]
fn where_no_pageblock_is_mixed_there_is_no_table_on_the_screen() {
    let whole = extfrag(&[(RECLAIMABLE, MOVABLE, 0, 10, true, 2)]);
    let report = Report::new(&[cell(Target::Sim, "a", "4k", Some(whole))], 0);
    assert_eq!((report.tables.len(), to_short(&report, &Beside::default())), (1, String::new()));
    let none = Report::new(&[cell(Target::Sim, "a", "4k", Some(extfrag(&[])))], 0);
    assert_eq!(none.tables, [], "and with no event at all there is none");
}

fn s1() -> Published {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../published/s1");
    let names = ["table.csv", "source.toml", "rows.toml", "claims.toml"];
    let files = names.map(|name| (format!("published/s1/{name}"), fs::read_to_string(folder.join(name)).unwrap()));
    Published::parse("s1", &files).expect("a series")
}

/// A result that has the published numbers of events, by requested type as published for one column.
#[test]
fn claims_about_events_are_judged_by_what_cells_hold() {
    let published = s1();
    let events = published.all().iter().filter(|printed| printed.metric == "extfrag_events");
    let cells = events.map(|printed| {
        let all: u64 = printed.digits.parse().unwrap();
        let kernel_memory = 3849.min(all / 200);
        let given =
            [(MOVABLE, UNMOVABLE, 0, 3, false, all - kernel_memory), (UNMOVABLE, MOVABLE, 0, 5, true, kernel_memory)];
        // What takes whole pageblocks does not count.
        let found = extfrag(&[&given[..], &[(MOVABLE, UNMOVABLE, 0, 10, true, 1_000_000)]].concat());
        let mut cell = cell(Target::Sim, &printed.kernel, "threads-1", Some(found));
        cell.key.group = Some(printed.experiment.clone());
        cell
    });
    let cells: Vec<Cell> = cells.collect();
    assert_eq!(cells.len(), 12);
    for layout in [Layout::Head, Layout::Classic] {
        let ours = Ours::new(&cells, layout, &published);
        let judgement = judge(&published, Ok(&ours));
        for id in ["s1-1", "s1-2", "s1-3", "s1-4", "s1-5", "s1-10"] {
            let claim = judgement.claims.iter().find(|claim| claim.id == id).expect(id);
            assert_eq!(claim.verdict, Verdict::Holds, "{layout:?} {id}: {claim:?}");
        }
        // Both changes of each of the four tables, and all of them.
        let covered: Vec<usize> = scores(&published, &ours).sets.iter().map(|set| set.score.covered).collect();
        assert_eq!(covered, [2, 2, 2, 2, 8], "{layout:?}");
    }
    let class =
        ExtfragClass { alloc_type: MOVABLE, fallback_type: UNMOVABLE, fragmenting: true, change_ownership: false };
    assert!(cells[0].measured.extfrag.as_ref().unwrap().window.iter().any(|of| of.class == class));
}
