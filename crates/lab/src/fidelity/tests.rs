//! On made-up runs: what is compared, by which class, and what comes of it.

use report::{Better, Extfrag, Metric, WindowEvents};
use units::{ExtfragClass, Mobility, Order};

use super::{class::Class, *};
use crate::source::Source;

fn figures_of(of: &[(&str, f64)]) -> Figures {
    of.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

/// A cell whose kernel and whose simulator gave these values of one counter; `beside` is in all of the kernel's runs.
fn cell(counter: &str, kernel: &[f64], ours: &[f64], beside: &[(&str, f64)]) -> Cell {
    assert_eq!(kernel.len(), ours.len());
    let run = |(kernel, ours): (&f64, &f64)| {
        let mut of_kernel = figures_of(beside);
        of_kernel.insert(counter.to_owned(), *kernel);
        (of_kernel, figures_of(&[(counter, *ours)]))
    };
    Cell { name: "a cell".to_owned(), runs: kernel.iter().zip(ours).map(run).collect(), ..Cell::default() }
}

fn only(cell: &Cell, counter: &str) -> Option<Counter> {
    cell.compare().counters.into_iter().find(|found| found.counter == counter)
}

fn within(cell: &Cell, counter: &str) -> (&'static str, bool) {
    let counter = only(cell, counter).expect("it says something");
    (counter.class, counter.within)
}

const RECLAIMS: &[(&str, f64)] = &[("pgscan_kswapd", 5000.0)];

#[test]
fn faults_without_reclaim_are_held_to_half_a_percent_and_400() {
    let faults = |ours: f64| within(&cell("pgfault", &[100_000.0; 2], &[ours; 2], &[]), "pgfault");
    assert_eq!(faults(100_900.0), ("faults", true));
    assert_eq!(faults(100_901.0), ("faults", false));
    assert_eq!(faults(99_100.0), ("faults", true));
    assert_eq!(faults(99_099.0), ("faults", false));
    let huge = cell("thp_fault_alloc", &[200.0; 2], &[100.0; 2], &[]);
    assert_eq!(within(&huge, "thp_fault_alloc"), ("faults", true), "within 400");
}

#[test]
fn faults_under_reclaim_are_held_to_the_kernels_spread() {
    let faults = |kernel: [f64; 2], ours: f64| within(&cell("pgfault", &kernel, &[ours; 2], RECLAIMS), "pgfault");
    assert_eq!(faults([10_000.0, 10_000.0], 10_300.0), ("faults under reclaim", true));
    assert_eq!(faults([10_000.0, 10_000.0], 10_301.0), ("faults under reclaim", false));
    assert_eq!(faults([9_000.0, 11_000.0], 11_000.0), ("faults under reclaim", true));
    assert_eq!(faults([9_000.0, 11_000.0], 11_001.0), ("faults under reclaim", false));
    // One run that swaps in is enough; the share of huge faults speaks for how many there were.
    let mut swaps = cell("pgfault", &[10_000.0; 2], &[10_400.0; 2], &[("thp_fault_alloc", 100.0)]);
    assert_eq!(within(&swaps, "pgfault"), ("faults", true));
    swaps.runs[1].0.insert("pswpin".to_owned(), 1.0);
    assert_eq!(within(&swaps, "pgfault"), ("faults under reclaim", false));
    assert!(only(&swaps, "thp_fault_alloc").is_none());
}

#[test]
fn few_events_say_nothing_whichever_side_has_them() {
    assert!(only(&cell("pgscan_direct", &[19.0; 2], &[0.0; 2], &[]), "pgscan_direct").is_none());
    assert!(only(&cell("pgscan_direct", &[0.0; 2], &[19.9; 2], &[]), "pgscan_direct").is_none());
    for (kernel, ours) in [(20.0, 0.0), (0.0, 20.0)] {
        let apart = cell("pgscan_direct", &[kernel; 2], &[ours; 2], &[]);
        assert_eq!(
            within(&apart, "pgscan_direct"),
            ("reclaim, compaction, extfrag", false),
            "present on one side only"
        );
    }
    let mean = only(&cell("pgscan_direct", &[0.0, 40.0], &[12.0, 8.0], &[]), "pgscan_direct").unwrap();
    assert_eq!((mean.kernel, mean.ours, mean.events, mean.within), (20.0, 10.0, 20.0, true), "a factor of two");
}

#[test]
fn the_share_of_huge_pages_is_held_to_the_kernels_spread() {
    let share = |kernel: [f64; 3], ours: f64| {
        let mut cell = cell(HUGE_BLOCKS, &kernel, &[ours; 3], RECLAIMS);
        cell.runs.iter_mut().for_each(|(kernel, _)| _ = kernel.insert(BLOCKS.to_owned(), 100.0));
        (cell.compare().nature.contended, within(&cell, HUGE_BLOCKS))
    };
    // Deviations of 2.9 and of 3.1 points.
    assert_eq!(share([47.1, 50.0, 52.9], 53.0), (false, ("huge share, clear", true)));
    assert_eq!(share([47.1, 50.0, 52.9], 53.1), (false, ("huge share, clear", false)));
    assert_eq!(share([46.9, 50.0, 53.1], 65.0), (true, ("huge share, contended", true)));
    assert_eq!(share([46.9, 50.0, 53.1], 34.9), (true, ("huge share, contended", false)));
}

#[test]
fn a_share_of_few_is_left_out_one_of_none_compared() {
    let mut few = cell(HUGE_FAULTS, &[10.0; 2], &[90.0; 2], &[("thp_fault_alloc", 10.0), ("thp_fault_fallback", 9.0)]);
    assert!(only(&few, HUGE_FAULTS).is_none(), "19 attempts");
    for (kernel, ours) in &mut few.runs {
        kernel.insert("thp_fault_fallback".to_owned(), 90.0);
        ours.insert(HUGE_FAULTS.to_owned(), 0.0);
    }
    let counter = only(&few, HUGE_FAULTS).unwrap();
    assert_eq!((counter.events, counter.within), (100.0, false), "10 % against none");
}

#[test]
fn kswapd_is_held_to_more_where_files_stream() {
    let mut kswapd = cell("pgsteal_kswapd", &[1000.0; 2], &[1030.0; 2], RECLAIMS);
    assert_eq!(within(&kswapd, "pgsteal_kswapd"), ("reclaim, compaction, extfrag", true));
    kswapd.streaming = true;
    assert_eq!(within(&kswapd, "pgsteal_kswapd"), ("streaming kswapd", true));
    kswapd.runs.iter_mut().for_each(|(_, ours)| _ = ours.insert("pgsteal_kswapd".to_owned(), 1031.0));
    assert_eq!(within(&kswapd, "pgsteal_kswapd"), ("streaming kswapd", false));
}

#[test]
fn splits_are_held_to_a_tenth() {
    let splits = |ours: f64| within(&cell("thp_split_page", &[200.0; 2], &[ours; 2], RECLAIMS), "thp_split_page");
    assert_eq!(splits(220.0), ("splits", true));
    assert_eq!(splits(179.0), ("splits", false));
}

#[test]
fn tallies_count_each_class_and_all() {
    let good = cell("pgfault", &[100.0; 2], &[100.0; 2], &[]);
    let mut bad = cell("pgfault", &[1000.0; 2], &[9000.0; 2], &[]);
    bad.runs.iter_mut().for_each(|(kernel, _)| _ = kernel.insert("compact_stall".to_owned(), 50.0));
    let comparison = compare("6.1", &[good, bad], Vec::new());
    let tally = |class: Class| comparison.classes[class.name()];
    assert_eq!(comparison.total, Tally { within: 1, compared: 3, vacuous: 1 }, "0.5 % plus 400 is more than 100");
    assert_eq!(tally(Class::Faults), Tally { within: 1, compared: 2, vacuous: 1 });
    assert_eq!(tally(Class::Reclaim), Tally { within: 0, compared: 1, vacuous: 0 });
}

// ---- From what was measured

fn measured(counters: &[(&str, i64)], metrics: Vec<Metric>) -> Measured {
    let counters = counters.iter().map(|(name, moved)| ((*name).to_owned(), *moved)).collect();
    Measured { counters, metrics, ..Measured::nothing() }
}

#[test]
fn both_sides_names_of_a_figure_become_one() {
    let kernel = [("allocstall_dma32", 3), ("allocstall_movable", 4)];
    // What the simulator counts beside is of the same events.
    let ours =
        [("allocstall_movable", 7), ("sim_mm_page_alloc_extfrag", 161), ("sim_mm_page_alloc_extfrag_fragmenting", 11)];
    let [kernel, ours] = [&kernel[..], &ours].map(|counters| {
        let mut measured = measured(counters, Vec::new());
        let class = |fragmenting, change_ownership| {
            let (alloc_type, fallback_type) = (Mobility::Unmovable, Mobility::Movable);
            ExtfragClass { alloc_type, fallback_type, fragmenting, change_ownership }
        };
        let window = [(class(true, true), 5), (class(true, false), 6), (class(false, true), 150)];
        let window = window.map(|(class, count)| WindowEvents { class, count }).to_vec();
        measured.extfrag = Some(Extfrag { pageblock_order: Order::HUGE, lost: 0, events: Vec::new(), window });
        figures(&measured)
    });
    assert_eq!(kernel, figures_of(&[(STALLS, 7.0), (EXTFRAG, 11.0)]));
    assert_eq!(ours, kernel);
}

#[test]
fn shares_are_of_blocks_and_of_faults() {
    let metric = |name: &str, class: &str, samples: Vec<f64>| Metric {
        name: name.to_owned(),
        class: Some(class.to_owned()),
        part: None,
        unit: String::new(),
        better: Better::None,
        samples,
    };
    let metrics =
        vec![metric("thp_success_pct", "huge", vec![25.0]), metric("fault_latency_us", "fault-both", vec![1.0; 40])];
    let figures = figures(&measured(&[("thp_fault_alloc", 30), ("thp_fault_fallback", 10)], metrics));
    assert_eq!((figures[HUGE_BLOCKS], figures[BLOCKS], figures[HUGE_FAULTS]), (25.0, 40.0, 75.0));
}

#[test]
fn shares_of_memory_are_of_all_places() {
    let metric = |name: &str, sample: f64| Metric {
        name: name.to_owned(),
        class: None,
        part: Some("1.2".to_owned()),
        unit: String::new(),
        better: Better::None,
        samples: vec![sample],
    };
    let places =
        [("node0-4k.memory_kib", 4096.0), ("node0-2M.memory_kib", 40_960.0), ("node1-2M.memory_kib", 12_288.0)];
    let metrics =
        places.iter().chain(&[("huge_pct", 92.9), ("node0_pct", 78.6)]).map(|(name, value)| metric(name, *value));
    let figures = figures(&measured(&[("pswpout", 7)], metrics.collect()));
    assert_eq!((figures[HUGE_MEMORY], figures[NEAR_MEMORY], figures[SWAPPED_OUT]), (92.9, 78.6, 7.0));
    let runs = vec![(figures.clone(), Figures::from([(HUGE_MEMORY.to_owned(), 10.0)])); 3];
    let compared = Cell { runs, ..Cell::default() }.compare();
    let counter = compared.counters.iter().find(|counter| counter.counter == HUGE_MEMORY).unwrap();
    assert_eq!((counter.events, counter.within, counter.class), (56.0, false, Class::ShareClear.name()), "of 56 MiB");
}

#[test]
fn what_balancing_does_is_compared_where_ours_does_it_too() {
    let (updates, local) = ("numa_pte_updates", "numa_hint_faults_local");
    let of = |ours: &[(&str, f64)]| {
        let kernel = figures_of(&[(updates, 217_000.0), (local, 2147.0), ("numa_pages_migrated", 16_700.0)]);
        Cell { runs: vec![(kernel, figures_of(ours))], ..Cell::default() }
    };
    let balancing = of(&[(updates, 124_000.0), (local, 900.0), ("numa_pages_migrated", 0.0)]);
    assert_eq!(within(&balancing, updates), (Class::Balancing.name(), true));
    assert_eq!(within(&balancing, local), (Class::Balancing.name(), false), "less than half");
    assert_eq!(within(&balancing, "numa_pages_migrated"), (Class::Balancing.name(), false), "absent here alone");
    assert!(only(&of(&[("pgfault", 7.0)]), updates).is_none(), "ours does not balance");
    // Where a program's memory is in the end.
    let gib = |class: &str, gib: f64| Metric {
        name: "memory_gib".to_owned(),
        class: Some(class.to_owned()),
        part: None,
        unit: "GiB".to_owned(),
        better: Better::None,
        samples: vec![gib],
    };
    let figures = figures(&measured(&[], vec![gib("node0-2M", 0.25), gib("node0-4k", 0.125), gib("node1-2M", 0.125)]));
    assert_eq!((figures[NEAR_MEMORY], figures[MEMORY]), (75.0, 512.0));
}

// ---- Policies

fn policy(name: &str, kernel: &[f64], ours: f64) -> Cell {
    let mut cell = cell(HUGE_BLOCKS, kernel, &vec![ours; kernel.len()], RECLAIMS);
    cell.policy = Some(("a group".to_owned(), name.to_owned()));
    cell
}

#[test]
fn policies_are_in_an_order_only_where_the_kernel_tells_them_apart() {
    // Deviations of 1, so that means of four runs each are told apart beyond 2 * sqrt(1/4 + 1/4) = 1.41.
    let of = |mean: f64| [mean - 1.0, mean + 1.0, mean - 0.5_f64.sqrt(), mean + 0.5_f64.sqrt()];
    let cells = [policy("low", &of(10.0), 50.0), policy("middle", &of(11.2), 10.0), policy("high", &of(12.5), 60.0)];
    let ranking = &rank::rankings(&cells)[0];
    assert_eq!((ranking.group.as_str(), ranking.quantity), ("a group", HUGE_BLOCKS));
    let pairs: Vec<_> =
        ranking.pairs.iter().map(|pair| (pair.lower.as_str(), pair.higher.as_str(), pair.agrees)).collect();
    assert_eq!(pairs, [("low", "high", true)], "1.2 and 1.3 are too near");
    let cells = [policy("low", &of(10.0), 50.0), policy("high", &of(20.0), 50.0)];
    assert!(!rank::rankings(&cells)[0].pairs[0].agrees, "as much is not less");
    let cells = [policy("low", &[10.0], 1.0), policy("high", &[20.0], 2.0)];
    assert!(rank::rankings(&cells)[0].pairs.is_empty(), "single runs tell nothing");
}

#[test]
fn policies_are_ranked_by_what_their_runs_name() {
    let quantities = |cells: &[Cell]| rank::rankings(cells).iter().map(|ranking| ranking.quantity).collect::<Vec<_>>();
    let mut cells = ["boost 0", "boost 15000"].map(|name| policy(name, &[1.0, 2.0], 1.0));
    assert_eq!(quantities(&cells), rank::USUAL);
    let reclaimed = [[4000.0, 4100.0], [7000.0, 7200.0]];
    for (cell, reclaimed) in cells.iter_mut().zip(reclaimed) {
        cell.ranked_by = vec![KSWAPD, HUGE_BLOCKS];
        for ((kernel, ours), reclaimed) in cell.runs.iter_mut().zip(reclaimed) {
            kernel.insert(KSWAPD.to_owned(), reclaimed);
            ours.insert(KSWAPD.to_owned(), reclaimed / 2.0);
        }
    }
    assert_eq!(quantities(&cells), [KSWAPD, HUGE_BLOCKS]);
    let ranking = &rank::rankings(&cells)[0];
    assert_eq!(
        (ranking.pairs.len(), ranking.pairs[0].higher.as_str(), ranking.pairs[0].agrees),
        (1, "boost 15000", true)
    );
}

// ---- The document

#[test]
fn what_people_wrote_stays_and_what_they_did_not_explain_is_named() {
    let mut missed = cell("pgfault", &[1000.0; 2], &[9000.0; 2], &[]);
    missed.runs.iter_mut().for_each(|(kernel, _)| _ = kernel.insert("compact_stall".to_owned(), 50.0));
    let kernel = known(&[figures_of(&[(HUGE_BLOCKS, 10.0), ("pgfault", 9.0)]), figures_of(&[(STALLS, 60.0)])]);
    assert_eq!(kernel.len(), 2, "nine faults are not many");
    let skipped = Skipped { kernel, ..Skipped::whole("other", "sim", "no\n files | yet") };
    let comparison = compare("6.1.0", &[missed], vec![skipped]);
    let first = table::renew("# Title\n\nWhy `pgfault` is off.\n", &comparison);
    assert!(first.ends_with("# Title\n\nWhy `pgfault` is off.\n"), "{first}");
    assert!(first.contains("| a cell | pgfault | faults | 1000 | 1000 to 1000 | 9000 | 9.00 |"), "{first}");
    assert!(first.contains("Nobody has written down yet why: `compact_stall`.\n"), "{first}");
    assert!(first.contains("| other | sim | 5.0 ± 7.1 % | 30 ± 42 | no files \\| yet |"), "{first}");
    assert_eq!(table::renew(&first, &comparison), first, "a second time changes nothing");
    assert!(table::renew("", &comparison).ends_with("-->\n"), "what is printed after it begins a line");
    let moved = format!("Before.\n\n{first}");
    assert_eq!(table::renew(&moved, &comparison), moved);
    let explained = table::renew(&format!("{first}\n`compact_stall` too.\n"), &comparison);
    assert!(!explained.contains("Nobody"), "{explained}");
}

// ---- The list

const LIST: &str = r#"kernel = "6.1"
[[guest]]
name = "one"
machine = "one-cpu-512m"
replayable = "2,3"
seeds = 8
[[guest]]
name = "four"
machine = "four-core-512m"
seeds = 5
[[run]]
experiment = "thpscale"
guests = ["one", "four"]
set = "threads=1"
defrag = ["always", "never"]
rank = "1 thread"
rank_by = ["extfrag"]
called = "small"
"#;

#[test]
fn a_run_is_one_for_each_guest_and_policy() {
    let read = |text: &str| cells::read(&Source::from_text("list.toml", text));
    let list = read(LIST).unwrap();
    let names: Vec<_> = list.runs.iter().map(|run| run.cell("1")).collect();
    let expected = [
        "one thpscale 1 defrag=always (small)",
        "one thpscale 1 defrag=never (small)",
        "four thpscale 1 defrag=always (small)",
    ];
    assert_eq!(names[..3], expected);
    assert_eq!(list.runs[0].sets, ["threads=1", "transparent_hugepage/defrag=always"]);
    assert_eq!(list.runs[3].policy, Some(("four 1 thread".to_owned(), "never".to_owned())));
    assert_eq!(list.runs[3].ranked_by, [EXTFRAG]);
    assert_eq!((list.runs[3].guest.seeds, &list.runs[3].guest.replayable), (5, &None));
    for (from, to, message) in [
        ("\"four\"]", "\"for\"]", "list.toml:13: run.guests: unknown guest \"for\"; did you mean \"four\"?"),
        ("thpscale", "thpscales", "list.toml:12: run.experiment: unknown experiment \"thpscales\""),
        ("extfrag", "extfrags", "list.toml:17: run.rank_by: unknown quantity \"extfrags\"; did you mean \"extfrag\"?"),
        ("defrag", "defrags", "list.toml:15: run: unknown key \"defrags\"; did you mean \"defrag\"?"),
    ] {
        let error = read(&LIST.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn the_list_of_the_repository_can_be_read() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/fidelity.toml");
    let list = cells::read(&Source::read(&file).unwrap()).unwrap();
    assert!(list.runs.iter().any(|run| run.experiment == "fork-storm"));
    let eight = |run: &cells::Run| run.guest.replayable.is_none() || run.guest.seeds >= 8;
    assert!(list.runs.iter().all(eight), "a perturbed kernel needs eight runs");
}
