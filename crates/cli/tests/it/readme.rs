//! The README shows what its first command prints: a recorded result of it is in docs/readme, and shown again here.
//!
//! Only the cells are taken as recorded. Prices, rules and titles are those that the program of today would record, so that no
//! line before the tables can become stale. `PAGELAB_BLESS=1 cargo test --release -p pagelab --test it readme` runs the command,
//! which takes minutes, records the result anew and writes it into the README. `PAGELAB_BLESS=recorded` writes into it what the
//! recorded cells print now: that is for changes of words and prices. Of a recorded cell only means are kept: the README shows
//! nothing else. That the simulator still does the same is asked in `series.rs`, which runs some of these cells.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use lab::{
    plan::{AcceleratorChoice, Plan, Request, Seeds},
    run::IDENTITY_FILE,
};
use serde_json::Value;

/// Asks to write README and record anew.
const BLESS: &str = "PAGELAB_BLESS";
/// Its value that asks to write the README from what is recorded.
const FROM_RECORDED: &str = "recorded";
/// What stands before the command's arguments.
const BEFORE: &str = "    cargo run --release -- run ";
const BEGIN: &str = "<!-- printed by the first command: crates/cli/tests/it/readme.rs says how to write it anew -->\n";
const END: &str = "<!-- end of what is printed -->\n";
/// Where it is explained what is not as published.
const WHY: &str =
    "[docs/series/s0-khugepaged.md](docs/series/s0-khugepaged.md#what-does-not-come-out-and-why-we-think-so)";
/// The tables that are shown: those of the first set of columns, as far as they fit beside each other.
const SHOWN: [&str; 2] = ["Fault Latencies", "Percentage Faults Huge"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn recorded() -> PathBuf {
    root().join("docs/readme")
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).expect("README.md")
}

/// What the first command asks to run: the experiment, and how often.
fn arguments() -> Vec<String> {
    let readme = readme();
    let line = readme.lines().find_map(|line| line.strip_prefix(BEFORE)).expect("the README begins with a command");
    let command = line.split('#').next().expect("there is a first part");
    command.split_whitespace().map(str::to_owned).collect()
}

fn pagelab(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagelab"));
    let output = command.args(arguments).current_dir(root()).env_remove("COLUMNS").output().expect("it starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The recorded cells with `run.json` as the program of today would write it, in a directory of their own.
fn recorded_today() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::copy(recorded().join("result.jsonl"), directory.path().join("result.jsonl")).expect("result.jsonl");
    fs::write(directory.path().join(IDENTITY_FILE), identity_today()).expect("run.json");
    directory
}

/// `run.json` of the first command as it would be written today, but for the hash of the program that made the recorded cells.
fn identity_today() -> String {
    let text = fs::read_to_string(recorded().join(IDENTITY_FILE)).expect("run.json");
    let before: Value = serde_json::from_str(&text).expect("JSON");
    let plan = Plan::new(&request(), |_| panic!("only the simulator runs")).expect("a plan");
    let mut today = serde_json::to_value(plan.identity()).expect("JSON");
    today["program"] = before["program"].clone();
    for key in today["keys"].as_array_mut().into_iter().flatten() {
        key["program"] = before["program"].clone();
    }
    assert_eq!(today["keys"], before["keys"], "the first command has other cells than were recorded: {BLESS}=1");
    serde_json::to_string_pretty(&today).expect("JSON") + "\n"
}

/// The first command as a request.
fn request() -> Request {
    let arguments = arguments();
    let [experiment, _, seeds] = arguments.as_slice() else { panic!("{arguments:?}") };
    Request {
        experiment: experiment.clone(),
        targets: Vec::new(),
        kernels: Vec::new(),
        machine: None,
        variants: Vec::new(),
        columns: Vec::new(),
        sets: Vec::new(),
        seeds: Seeds::up_to(seeds.parse().expect("a number")),
        drop_caches: false,
        memory: None,
        state: None,
        accelerator: AcceleratorChoice::Auto,
        timeout_s: 1,
        workers: None,
        trace: false,
        sample: None,
        axes: Vec::new(),
        map: false,
        causes: false,
        out: None,
    }
}

/// What the README shows of what is printed, as Markdown: head, two tables and the legend; and below how often the tables go
/// another way than the published one.
fn excerpt(text: &str) -> String {
    let parts: Vec<&str> = text.trim_end().split("\n\n").collect();
    let legend = parts.iter().find(|part| part.starts_with("low-high: "));
    let (Some(head), Some(legend)) = (parts.first(), legend) else { panic!("no head and legend in {text}") };
    let table = |title: &str| -> &str {
        let is_it = |part: &&&str| part.lines().next().is_some_and(|line| line.contains(title));
        parts.iter().find(is_it).unwrap_or_else(|| panic!("no table {title:?} in {text}"))
    };
    let [first, second] = SHOWN.map(table);
    let shown = [head, first, second, "[...]", legend];
    let lines = shown.join("\n\n");
    assert!(lines.lines().all(|line| line.chars().count() <= 80), "{lines}");
    let indented = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") };
    let block: String = lines.lines().map(indented).collect();
    format!("\n{block}\n{}", against_published(&[first, second]))
}

/// In how many rows the simulated change has the opposite sign of the published one: those that are shown.
fn against_published(tables: &[&str]) -> String {
    let changes = |line: &str| -> Vec<i64> {
        let changes = line.split_whitespace().filter_map(|word| word.strip_suffix('%'));
        changes.map(|change| change.parse().expect("a change in whole per cent")).collect()
    };
    let rows: Vec<(Vec<i64>, bool)> = tables
        .iter()
        .flat_map(|table| table.lines().skip(1).map(|line| (changes(line), line.contains('*'))))
        .filter(|(changes, _)| !changes.is_empty())
        .collect();
    let opposite: Vec<bool> = rows
        .iter()
        .filter_map(|(changes, has_star)| {
            let [ours, theirs] = changes.as_slice() else { panic!("a row has two changes: {changes:?}") };
            (ours * theirs < 0).then_some(*has_star)
        })
        .collect();
    let stars = opposite.iter().filter(|has_star| **has_star).count();
    format!(
        "In {} of these {} rows the simulated change has the opposite sign of the published one \
         ({stars} of the {} have a `*`).\n{WHY} says what does not come out.\n\n",
        opposite.len(),
        rows.len(),
        opposite.len()
    )
}

/// A result with the mean of each metric in place of its samples, and without logs.
fn reduce(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    let identity = fs::read_to_string(from.join("run.json")).expect("run.json");
    let mut identity: Value = serde_json::from_str(&identity).expect("JSON");
    // What is reduced is not what was written: as of a program without checksums.
    for key in ["lines", "checksum"] {
        identity.as_object_mut().expect("an object").remove(key);
    }
    fs::write(to.join("run.json"), identity.to_string()).expect("run.json");
    let text = fs::read_to_string(from.join("result.jsonl")).expect("a result");
    let lines = text.lines().map(|line| {
        let mut record: Value = serde_json::from_str(line).expect("JSON");
        let Some(fields) = record.as_object_mut() else { panic!("a record is an object") };
        fields.remove("slow_path");
        fields.remove("checksum");
        if let Some(measured) = fields.get_mut("measured") {
            measured["detail"]["tasks"] = Value::Null;
            for metric in measured["metrics"].as_array_mut().into_iter().flatten() {
                let samples: Vec<f64> =
                    metric["samples"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
                if samples.len() > 1 {
                    metric["samples"] = Value::from(vec![samples.iter().sum::<f64>() / samples.len() as f64]);
                }
            }
        }
        record.to_string() + "\n"
    });
    fs::write(to.join("result.jsonl"), lines.collect::<String>()).expect("the reduced result");
}

fn bless() {
    let whole = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    let path = whole.to_str().expect("UTF-8");
    if whole.exists() {
        fs::remove_dir_all(&whole).expect("what an older program has left there");
    }
    let arguments = arguments();
    let arguments = ["run"].into_iter().chain(arguments.iter().map(String::as_str)).chain(["-o", path]);
    pagelab(&arguments.collect::<Vec<_>>());
    reduce(&whole, &recorded());
    let block = excerpt(&pagelab(&["show", recorded().to_str().expect("UTF-8")]));
    // Columns may be wider there, for rows that the README leaves out.
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&block), words(&excerpt(&pagelab(&["show", path]))), "what is kept of the cells is too little");
}

/// The README's block, from the recorded cells.
fn block() -> String {
    excerpt(&pagelab(&["show", recorded_today().path().to_str().expect("UTF-8")]))
}

/// Writes into the README what the recorded cells print, and into docs/readme what the program of today says of them.
fn write_readme() {
    fs::write(recorded().join(IDENTITY_FILE), identity_today()).expect("run.json");
    let block = block();
    let readme = readme();
    let (before, rest) = readme.split_once(BEGIN).expect("the README has the mark");
    let (_, after) = rest.split_once(END).expect("the README has the second mark");
    fs::write(root().join("README.md"), format!("{before}{BEGIN}{block}{END}{after}")).expect("README.md");
}

#[test]
fn the_readme_shows_what_its_first_command_prints() {
    if let Some(how) = std::env::var_os(BLESS) {
        if how != FROM_RECORDED {
            bless();
        }
        write_readme();
    }
    let readme = readme();
    let shown = readme.split_once(BEGIN).and_then(|(_, rest)| Some(rest.split_once(END)?.0)).expect("both marks");
    assert_eq!(shown, block());
}

/// What was recorded is what the command runs: the experiment, and each seed.
#[test]
fn what_was_recorded_is_the_first_command() {
    let arguments = arguments();
    let [experiment, option, seeds] = arguments.as_slice() else { panic!("{arguments:?}") };
    assert_eq!(option, "--seeds");
    let text = fs::read_to_string(recorded().join("result.jsonl")).expect("a result");
    let cells = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|record| record["record"] == "cell");
    let mut found: Vec<u64> = cells
        .map(|cell| {
            assert_eq!(cell["key"]["experiment"], experiment.as_str());
            cell["key"]["seed"].as_u64().expect("a number")
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, (1..=seeds.parse::<u64>().expect("a number")).collect::<Vec<_>>());
}

/// The variant file that the README shows: the lines between two indented blocks.
#[test]
fn the_readmes_variant_can_be_run() {
    let readme = readme();
    let (_, rest) = readme.split_once("(`my.toml`):\n\n").expect("a variant file");
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let text: String =
        lines.take_while(|line| !line.contains("pagelab run")).map(|line| format!("{}\n", line.trim_start())).collect();
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a file");
    fs::write(file.path(), text).expect("a variant");
    let variant = lab::variant::load(file.path().to_str().expect("UTF-8")).expect("it can be read");
    assert_eq!((variant.parent.as_deref(), variant.diff.len()), (Some("v6.1"), 3));
}

#[test]
fn rows_that_go_another_way_are_counted() {
    let table = "title -9%\n  without with\nfault-1 10 f 10 12 +20% 10-14 * 8 -20%\nfault-2 10 10 9 -10% 8-9 9 -10%\n\
                 fault-3 10 10 11 +10% 11-12 9 -9%\nfault-4 10 10 10 0% = 9 -9%";
    let text = against_published(&[table]);
    assert!(text.starts_with("In 2 of these 4 rows ") && text.contains("(1 of the 2 have a `*`)"), "{text}");
}

#[test]
fn what_is_explained_is_there() {
    let page = fs::read_to_string(root().join("docs/series/s0-khugepaged.md")).expect("the page");
    assert!(page.contains("\n## What does not come out, and why we think so\n"), "the README links to it");
    let published = lab::published::load("s0").expect("a series");
    assert_eq!(published.reasons(), "docs/series/s0-khugepaged.md", "the legend names it");
}

#[test]
fn the_readme_is_short() {
    assert!(readme().lines().count() <= 120, "{} lines", readme().lines().count());
}
