//! Results of a few records, as they are printed.

use std::collections::BTreeMap;

use linux::procfs::Capture;
use report::{Check, Measured, Record, Run, SCHEMA, Store, System};

use super::*;
use crate::{
    evidence,
    plan::{Identity, SimulatedColumn},
    presentation::Presentation,
    recordings::recording,
    run::IDENTITY_FILE,
    variant::Recorded,
};

fn cell(kernel: &str, case: &str, found: u64) -> Cell {
    let key = Key {
        result: None,
        experiment: "fault-storm".into(),
        group: None,
        workload: "fault-storm".into(),
        case: case.into(),
        params: BTreeMap::new(),
        variant: "as-found".into(),
        machine: "here".into(),
        state: "as-found".into(),
        target: Target::Host,
        kernel: kernel.into(),
        seed: 1,
        program: "p".into(),
    };
    let check = Check {
        name: "faults by getrusage".into(),
        expected: 4096,
        found,
        tolerance: "0.5 % + 400".into(),
        within: found == 4096,
    };
    let measured = Measured { checks: vec![check], ..Measured::nothing() };
    Cell { schema: SCHEMA, key, measured, series: None, map: None, slow_path: None, footprint: None, run: run() }
}

fn run() -> Run {
    Run {
        date: "2026-01-02T03:04:05Z".into(),
        wall_s: 1.0,
        boot_s: None,
        host: "builder".into(),
        commit: "abc".into(),
        max_rss_kib: 1,
    }
}

/// A simulated column of the variant of a name, which may have been chosen for a release.
pub(super) fn simulated_by(name: &str, chosen_for: Option<&str>) -> SimulatedColumn {
    let variant = crate::variant::load(name).expect(name);
    SimulatedColumn {
        column: report::Column {
            result: None,
            target: Target::Sim,
            kernel: variant.name.clone(),
            machine: "one-node-512m".into(),
        },
        variant: Recorded::of(&variant),
        chosen_for: chosen_for.map(str::to_owned),
        twin_of: None,
        start: crate::plan::Start::Fresh,
        system: None,
        prices: Vec::new(),
        shifts: Vec::new(),
        is_translated: false,
        shared_core: None,
        bandwidth: Vec::new(),
        latency: None,
    }
}

/// With the files of a recorded 6.1.
fn system(kernel: &str) -> System {
    let files = Capture::from_dir(&recording("proc/6.1-1n-512m/recomputed")).expect("a recording");
    System {
        schema: SCHEMA,
        target: Target::Host,
        machine: "here".into(),
        kernel: kernel.into(),
        release: kernel.into(),
        accelerator: None,
        settings: BTreeMap::new(),
        captures: serde_json::json!({ "recomputed": files }),
        notes: Vec::new(),
        run: run(),
    }
}

fn full(format: Format) -> Print {
    Print { format, causes: Causes::No, full: true, quiet: false }
}

/// What `format` makes of a result of these cells and systems.
fn rendered(cells: &[Cell], kernels: &[&str], format: Format) -> String {
    rendered_as(cells, kernels, full(format))
}

/// Of a result of an earlier program, that kept nothing of how it is printed.
fn rendered_as(cells: &[Cell], kernels: &[&str], print: Print) -> String {
    rendered_with(cells, kernels, None, print)
}

fn rendered_with(cells: &[Cell], kernels: &[&str], presentation: Option<Presentation>, print: Print) -> String {
    let directory = result(cells, kernels, presentation);
    render(directory.path(), None, print).expect("a result")
}

/// A result directory.
fn result(cells: &[Cell], kernels: &[&str], presentation: Option<Presentation>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let keys = cells.iter().map(|cell| cell.key.clone()).collect();
    let identity = Identity {
        program: "p".into(),
        keys,
        machines: vec![],
        simulated: vec![],
        layout: report::Layout::Head,
        sample: None,
        map: false,
        presentation,
        asked: None,
        lines: None,
    };
    let identity = serde_json::to_vec(&identity).expect("an identity serialises");
    std::fs::write(directory.path().join(IDENTITY_FILE), identity).expect("written");
    let mut store = Store::create(directory.path()).expect("an empty directory");
    let systems = kernels.iter().map(|kernel| Record::System(system(kernel)));
    for record in systems.chain(cells.iter().cloned().map(Record::Cell)) {
        store.append(&record).expect("appended");
    }
    directory
}

#[test]
fn a_kernel_has_one_name_in_every_line_of_the_csv() {
    let csv = rendered(&[cell("6.1.1", "base", 4096)], &["6.1.1"], Format::Csv);
    let names = |prefix: &str| {
        let fields = csv.lines().map(|line| line.split(',').collect::<Vec<&str>>());
        let mine = fields.filter(|fields| fields[1].starts_with(prefix)).map(|fields| fields[3].to_owned());
        mine.collect::<BTreeSet<String>>()
    };
    assert_eq!(names("check."), ["host:6.1.1:here".to_owned()].into());
    let kernel_and_ours = ["host:6.1.1:here", "host:6.1.1:here:rules v6.1"].map(str::to_owned);
    assert_eq!(names("zone.recomputed."), kernel_and_ours.into());
}

#[test]
fn json_has_its_fields_in_their_order() {
    let json = rendered(&[cell("6.1.1", "base", 4096)], &["6.1.1"], Format::Json);
    let fields = json.lines().filter_map(|line| line.strip_prefix("  \"")?.split('"').next());
    let names = ["schema", "program", "report", "zones", "cells", "systems", "simulated", "skipped", "missing"];
    assert_eq!(fields.collect::<Vec<_>>(), names, "{json}");
    assert!(json.starts_with("{\n  \"schema\": 5,\n  \"program\": \"p\",\n") && json.ends_with("\n}\n"), "{json}");
}

#[test]
fn failed_checks_are_lines_of_their_own() {
    let failed = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("check failed")).map(str::to_owned).collect()
    };
    let good = cell("6.1.1", "base-threads-1", 4096);
    let bad = cell("6.1.1", "base-threads-2", 5000);
    let text = rendered(&[good.clone(), bad.clone()], &["6.1.1"], Format::Text);
    let line = "base-threads-2 faults by getrusage: expected 4096, found 5000 (tolerance 0.5 % + 400)";
    assert_eq!(failed(&text), [format!("check failed: host {line}")]);
    assert!(text.find(" no\n") < text.find(" yes\n"), "failures first:\n{text}");
    assert_eq!(failed(&rendered(&[good], &["6.1.1"], Format::Text)), [""; 0]);

    // Whatever else could be meant is named: the kernel, and how many of the seeds.
    let mut again = bad.clone();
    again.key.seed = 2;
    let text = rendered(&[bad, again], &["6.1.1", "6.1.2"], Format::Text);
    let line = line.replace(')', ", in 2 of 2 runs)");
    assert_eq!(failed(&text), [format!("check failed: host 6.1.1 {line}")]);
}

#[test]
fn a_place_without_a_result_is_called_that() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("written");
    for (place, why) in [
        (
            directory.path(),
            " is not a result directory: it has no run.json, no run of mmtests (RUN/iter-0) and no captures of /proc/vmstat",
        ),
        (&directory.path().join("nowhere"), " is not a result directory: there is nothing of this name"),
        (&file, ": its form is not known: expected a result directory, JSON of compare-mmtests.pl or LKP, "),
    ] {
        // A directory that has a file in it is still none.
        let message = render(place, None, full(Format::Text)).expect_err("no result").to_string();
        let expected = format!("{}{why}", place.display());
        assert!(message.starts_with(&expected), "{message}");
    }
    std::fs::write(directory.path().join(IDENTITY_FILE), "{").expect("written");
    let message = render(directory.path(), None, full(Format::Text)).expect_err("no result").to_string();
    assert!(message.contains("run.json: EOF while parsing"), "{message}");
}

#[test]
fn a_short_text_counts_what_is_skipped() {
    let mut cell = cell("6.1.1", "base", 4096);
    let skip = |number| report::Skip { what: format!("counter {number}"), reason: "it moves by itself".to_owned() };
    cell.measured.skipped = (0..9).map(skip).collect();
    let short = |print| rendered_as(std::slice::from_ref(&cell), &["6.1.1"], print);
    let text = short(Print { full: false, ..full(Format::Text) });
    assert!(text.contains("\nskipped: host 9, such as counter 0: it moves by itself\n"), "{text}");
    assert!(text.contains("\nfault-storm Checks: 1 of 1 as expected\n"), "{text}");
    assert!(text.starts_with("fault-storm: cost of page faults"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let quiet = short(Print { full: false, quiet: true, ..full(Format::Text) });
    assert!(text.ends_with(&quiet) && quiet.len() < text.len(), "{quiet}");
}

/// A result that says of itself how it is printed.
fn presented(counter_threshold: u64) -> Presentation {
    let files = [
        ("table.csv", "experiment,metric,case,kernel,value,better\nfault-storm,faults,base,theirs,17,lower\n"),
        (
            "source.toml",
            "about = 'a'\ntitle = 'Of last month'\nauthor = 'me'\ndate = '2026-01'\nwhere = 'here'\nmachine = 'm'\n\
             [[column]]\nkernel = 'theirs'\nours = '6.1.1'\nabout = 'theirs'\n",
        ),
        ("rows.toml", ""),
        ("claims.toml", ""),
    ];
    let files = files.map(|(file, text)| (file.to_owned(), text.to_owned())).to_vec();
    Presentation {
        axes: Vec::new(),
        about: Some("asked last month".to_owned()),
        titles: [("6.1.1".to_owned(), "titled".to_owned())].into(),
        counter_threshold,
        published: Some(crate::published::Files { name: "kept".to_owned(), files }),
        rules: BTreeMap::new(),
    }
}

#[test]
fn a_result_is_printed_as_it_says_of_itself() {
    let mut cell = cell("6.1.1", "base", 4096);
    cell.measured.counters.insert("pgfault".to_owned(), 7);
    let text = |presentation, full| {
        let print = Print { format: Format::Text, causes: Causes::No, full, quiet: false };
        rendered_with(std::slice::from_ref(&cell), &["6.1.1"], presentation, print)
    };
    let short = text(Some(presented(5)), false);
    assert!(short.starts_with("fault-storm: asked last month\n"), "{short}");
    assert!(short.contains("\npublished (kept): me, 2026-01, \"Of last month\"\n"), "{short}");
    assert!(short.contains("titled"), "{short}");
    assert!(short.contains("pgfault") && !text(Some(presented(8)), false).contains("pgfault"), "{short}");
    assert!(text(Some(presented(5)), true).starts_with("fault-storm: asked last month\n"));
    // Of a result without any of it the files of today say so.
    let older = text(None, false);
    assert!(older.starts_with("fault-storm: cost of page faults"), "{older}");
    assert!(!older.contains("titled") && !older.contains("pgfault"), "{older}");
}

#[test]
fn claims_are_judged_by_the_series_that_the_result_keeps() {
    let mut cell = cell("6.1.1", "base", 4096);
    cell.measured.metrics.push(report::Metric {
        name: "faults".to_owned(),
        class: None,
        part: None,
        unit: "faults".to_owned(),
        better: report::Better::Lower,
        samples: vec![17.0],
    });
    let claim = "[[claim]]\nid = 'k-1'\nclaim = 'held last month'\nreason = ''\n[[claim.part]]\nwhat = 'faults'\n\
                 kind = 'value'\nholds = { within = 0.1 }\n\
                 of = { experiment = 'fault-storm', metric = 'faults.Amean', case = 'base', kernel = 'theirs' }\n";
    let table = "experiment,metric,case,kernel,value,better\nfault-storm,faults.Amean,base,theirs,17,lower\n";
    let mut kept = presented(5);
    for (file, text) in kept.published.iter_mut().flat_map(|series| &mut series.files) {
        match file.as_str() {
            "claims.toml" => claim.clone_into(text),
            "table.csv" => table.clone_into(text),
            _ => {}
        }
    }
    let cells = std::slice::from_ref(&cell);
    let directory = result(cells, &["6.1.1"], Some(kept));
    let text = |name| {
        let series = evidence::series_of(directory.path(), name)?;
        let judged = evidence::judged(series, &[directory.path().to_owned()], None)?;
        Ok::<_, UsageError>(evidence::claims(&[judged], Format::Text))
    };
    // No file of the program has such a series.
    for name in [None, Some("kept")] {
        let text = text(name).expect("judged");
        assert!(text.starts_with("kept: a\n") && text.contains("k-1   holds     held last month"), "{text}");
        assert!(text.contains("1 of 1 claims hold: reached"), "{text}");
    }
    let message = text(Some("s0")).expect_err("of another experiment").to_string();
    assert!(message.ends_with("is of experiment fault-storm; s0 needs one of thpscale-4.1"), "{message}");
    let score = evidence::score(directory.path(), None, None, Format::Text).expect("scored");
    assert!(score.starts_with("kept: a\n"), "{score}");
}

#[test]
fn zones_are_held_against_the_rules_that_the_result_keeps() {
    let zones = |rules: Option<Recorded>| {
        let rules = rules.into_iter().map(|rules| ("6.1.1".to_owned(), rules)).collect();
        let cell = cell("6.1.1", "base", 4096);
        let presentation = Some(Presentation { rules, ..presented(5) });
        let csv = rendered_with(&[cell], &["6.1.1"], presentation, full(Format::Csv));
        let ours = csv.lines().filter(|line| line.starts_with("fault-storm,zone.") && line.contains(":rules "));
        ours.map(|line| line.split(":rules ").nth(1).expect("it has").to_owned()).collect::<Vec<_>>()
    };
    let today = zones(None);
    assert!(today.iter().all(|line| line.starts_with("v6.1,")), "{today:?}");
    let mut kept = Recorded::of(::rules::variant::built_in("v4.1").expect("a variant"));
    kept.name = "of last month".to_owned();
    // Programs before and after it know other rules.
    let newest = ::rules::variant::Variant::RULES.last().expect("there are some").name;
    kept.rules.remove(newest).expect("a rule");
    kept.rules.insert("no_rule_any_more".to_owned(), "1".to_owned());
    let kept = zones(Some(kept));
    assert!(!kept.is_empty() && kept.iter().all(|line| line.starts_with("of last month,")), "{kept:?}");
    let values =
        |lines: &[String]| lines.iter().map(|line| line.split(',').nth(1).map(str::to_owned)).collect::<Vec<_>>();
    assert_ne!(values(&kept), values(&today), "4.1 has other marks");
}

#[test]
fn another_presentation_is_no_other_run() {
    let identity = |presentation| Identity {
        program: "p".into(),
        keys: vec![cell("6.1.1", "base", 4096).key],
        machines: vec![],
        simulated: vec![],
        layout: report::Layout::Head,
        sample: None,
        map: false,
        presentation,
        asked: None,
        lines: None,
    };
    assert!(identity(None).goes_on_as(&identity(Some(presented(5)))));
    assert!(identity(Some(presented(8))).goes_on_as(&identity(Some(presented(5)))));
    let other = Identity { program: "q".into(), ..identity(None) };
    assert!(!other.goes_on_as(&identity(None)));
}
